"""``python -m docs.verifier OUT [CACHE]``: one page, whole, that works from a disk and from any server of files.

Python for browsers comes from npm, python-flint from PyPI: both are pinned by version and digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from string import Template

from docs.verifier.room import room
from privcalc.version import __version__

HERE = Path(__file__).parent
PYODIDE, FLINT = "314.0.7", "0.9.0"
WHEEL = f"python_flint-{FLINT}-cp314-cp314-pyemscripten_2026_0_wasm32.whl"
PINNED = {
    f"pyodide-{PYODIDE}.tgz": "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0",
    WHEEL: "b31f5c00e0e36040ab58d00b3025156e20869b990d776e4bf90f870b1ee11ad3",
}
OURS = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PIP = ("--no-deps", "--only-binary=:all:", "--platform", "pyemscripten_2026_0_wasm32", "--python-version", "314")


def pinned(cache: Path) -> dict[str, bytes]:
    """The two packages, fetched if they are not there.

    Raises:
        ValueError: if one is not what was pinned.
    """
    cache.mkdir(parents=True, exist_ok=True)
    for command, name in zip(
        (
            ["npm", "pack", "--silent", f"pyodide@{PYODIDE}"],
            [sys.executable, "-m", "pip", "download", "-q", *PIP, f"python-flint=={FLINT}"],
        ),
        PINNED,
        strict=True,
    ):
        if not (cache / name).exists():
            subprocess.run(command, cwd=cache, check=True, stdout=subprocess.DEVNULL)
    found = {name: (cache / name).read_bytes() for name in PINNED}
    for name, data in found.items():
        if hashlib.sha256(data).hexdigest() != PINNED[name]:
            raise ValueError(f"{name}: is not what was pinned")
    return found


def page(cache: Path) -> str:
    """The page, the same for the same sources."""
    package, wheel = pinned(cache).values()
    with tarfile.open(fileobj=io.BytesIO(package)) as tar:
        files = {name: tar.extractfile(f"package/{name}").read() for name in OURS}  # type: ignore[union-attr]
    files |= {"flint.whl": wheel, "room.zip": _zipped(room())}
    data = "\n".join(_block(number, *file) for number, file in enumerate(files.items()))
    texts = {
        name: (HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "worker.js", "page.html")
    }
    digests = {name: _digest(texts[name]) for name in ("page.css", "page.js")}
    policy = (
        f"default-src 'none'; script-src '{digests['page.js']}' blob: 'wasm-unsafe-eval'; worker-src blob:; "
        f"style-src '{digests['page.css']}'; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    return Template(texts["page.html"]).substitute(
        policy=policy,
        style=texts["page.css"],
        script=texts["page.js"],
        worker=texts["worker.js"],
        data=data,
        versions=f"privcalc {__version__}, Pyodide {PYODIDE}, python-flint {FLINT}",
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _block(number: int, name: str, data: bytes) -> str:
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="text/plain" id="file{number}" data-name="{name}">{packed}</script>'


def _zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def main(out: str, cache: str = "build/verifier") -> None:
    """Write ``verify.html`` and its digest."""
    text, folder = page(Path(cache)), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verify.html").write_text(text, encoding="utf-8")
    line = f"{hashlib.sha256(text.encode()).hexdigest()}  verify.html\n"
    (folder / "SHA256SUMS").write_text(line)
    print(line, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
