"""``python -m docs.verifier OUT [CACHE]``: one page, whole, that works from a disk and from any server of files.

Python for browsers comes from npm, python-flint from PyPI: both are pinned by version and digest, and stand in the page
as they were published. Nothing is compressed here, so that the page is the same on every machine, to the byte.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path
from string import Template

from docs.verifier.room import room
from privcalc.serial import canonical
from privcalc.version import __version__

HERE = Path(__file__).parent
PYODIDE, FLINT = "314.0.7", "0.9.0"
WHEEL = f"python_flint-{FLINT}-cp314-cp314-pyemscripten_2026_0_wasm32.whl"
PINNED = {
    f"pyodide-{PYODIDE}.tgz": "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0",
    WHEEL: "b31f5c00e0e36040ab58d00b3025156e20869b990d776e4bf90f870b1ee11ad3",
}
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
    files = {"pyodide.tgz": package, "flint.whl": wheel, "room.json": canonical(room()).encode()}
    data = "\n".join(
        f'<script type="text/plain" data-name="{name}">{base64.b64encode(found).decode()}</script>'
        for name, found in files.items()
    )
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


def main(out: str, cache: str = "build/verifier") -> None:
    """Write ``verify.html`` and its digest."""
    made, folder = page(Path(cache)).encode(), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verify.html").write_bytes(made)
    line = f"{hashlib.sha256(made).hexdigest()}  verify.html\n"
    (folder / "SHA256SUMS").write_bytes(line.encode())
    print(line, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
