"""Whether the proof pages still speak of the code as it is: each page, with the code it was last read against.

    python -m proofs.check                          list the pages whose code has changed; exit status 1 if any
    python -m proofs.check --update gaussian.md     record that the page was read again, against the code as it is now
    python -m proofs.check --update all

A page names its code after "Code:" and its tests after "Tests", as paths in backticks. ``a.py::Name`` stands for one
class or function, so that the rest of the file may change. What is compared is the syntax tree without docstrings:
comments, wording and layout are free.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from privcalc.errors import PrivcalcError
from privcalc.files import write_whole
from privcalc.terminal import command

__all__ = ["Page", "changed", "code_hash", "main", "read_pages", "update"]

ROOT = Path(__file__).resolve().parents[1]
RECORD = "read.json"
NOT_PAGES = {"README.md", "ERRATA.md"}
_PATH = re.compile(r"`([\w./{},*-]+\.py)((?:::[\w.*]+)?)`")
_PARAGRAPH = re.compile(r"(?:^|(?<=\s))Code:(.*?)(?=\n\n|\n#|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A proof page.

    Attributes:
        name: its file in ``proofs/``.
        code: the code it speaks of: paths, some with ``::Name``.
        tests: the files of its tests.
    """

    name: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


def read_pages(root: Path = ROOT) -> list[Page]:
    """The pages of ``proofs/``, in order of name.

    Args:
        root: the repository.

    Raises:
        PrivcalcError: if there are none.
    """
    found = [_read(path) for path in sorted((root / "proofs").glob("*.md")) if path.name not in NOT_PAGES]
    if not found:
        raise PrivcalcError(f"root = {str(root)!r}: must be the repository, with pages in proofs/")
    return found


def _read(path: Path) -> Page:
    names = [name for part in _PARAGRAPH.findall(path.read_text(encoding="utf-8")) for name in _names(part)]
    tests = [name.partition("::")[0] for name in names if name.startswith("tests/")]
    code = [name for name in names if not name.startswith("tests/")]
    return Page(path.name, tuple(dict.fromkeys(code)), tuple(dict.fromkeys(tests)))


def _names(text: str) -> Iterator[str]:
    """Paths in backticks, with {a,b} written out."""
    for path, member in _PATH.findall(text):
        before, brace, rest = path.partition("{")
        inner, _, after = rest.partition("}")
        for choice in inner.split(",") if brace else [""]:
            yield before + choice + after + member


def code_hash(name: str, root: Path = ROOT) -> str:
    """A short hash of a file's syntax tree, or of one class or function of it.

    Args:
        name: path from the root, possibly with ``::Name`` or ``::Class.method``.
        root: the repository.

    Raises:
        PrivcalcError: if there is no such file, class or function.

    Example:
        >>> len(code_hash("privcalc/pairs/gaussian.py::GaussianPair")) if (ROOT / "proofs").exists() else 12
        12
    """
    path, _, member = name.partition("::")
    try:
        node: ast.AST = ast.parse((root / path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        raise PrivcalcError(f"{name}: must be a Python file of the repository") from error
    for part in member.split(".") if member else []:
        inside = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == part]
        if not inside:
            raise PrivcalcError(f"{name}: {path} must have a class or function {part}")
        node = inside[0]
    return hashlib.sha256(_plain(node).encode()).hexdigest()[:12]


def _plain(value: object) -> str:
    """A syntax tree as text that does not depend on the version of Python: empty fields and docstrings are left out."""
    if isinstance(value, list):
        return "[" + ",".join(map(_plain, value)) + "]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = []
    for name, content in ast.iter_fields(value):
        kept = (
            [item for item in content if not _is_text(item)]
            if name == "body" and isinstance(content, list)
            else content
        )
        empty = (kept is None or kept == []) and not isinstance(value, ast.Constant)
        if not empty and name not in ("kind", "type_comment"):
            fields.append(f"{name}={_plain(kept)}")
    return f"{type(value).__name__}({','.join(fields)})"


def _is_text(node: object) -> bool:
    """A docstring, wherever it stands."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _record(root: Path) -> dict[str, dict[str, str]]:
    path = root / "proofs" / RECORD
    found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def changed(root: Path = ROOT) -> list[str]:
    """What has changed since each page was last read, a line each; empty if nothing has.

    Args:
        root: the repository.
    """
    record, pages = _record(root), read_pages(root)
    lines = [
        f"proofs/{name}: is recorded as read, but is no page"
        for name in record
        if name not in {page.name for page in pages}
    ]
    for page in pages:
        known = record.get(page.name, {})
        for name in page.code:
            if name not in known:
                lines.append(f"proofs/{page.name}: was never read against {name}")
            elif known[name] != code_hash(name, root):
                lines.append(f"proofs/{page.name}: {name} has changed since the page was read")
        lines += [f"proofs/{page.name}: no longer names {name}" for name in known if name not in page.code]
    return lines


def update(names: Sequence[str], root: Path = ROOT) -> list[str]:
    """Record that pages were read against the code as it is.

    Args:
        names: of pages, or "all", which also forgets pages that are gone.
        root: the repository.

    Returns:
        The pages that were recorded.

    Raises:
        PrivcalcError: if there is no such page, or it names code that does not exist.
    """
    pages = {page.name: page for page in read_pages(root)}
    everything = list(names) == ["all"]
    chosen = list(pages) if everything else [name.removeprefix("proofs/") for name in names]
    if unknown := [name for name in chosen if name not in pages]:
        raise PrivcalcError(f"PAGE = {unknown[0]!r}: must be one of {', '.join(pages)}, or all")
    record = {} if everything else _record(root)
    for name in chosen:
        record[name] = {code: code_hash(code, root) for code in pages[name].code}
    text = json.dumps(dict(sorted(record.items())), indent=1) + "\n"
    write_whole(root / "proofs" / RECORD, text)
    return chosen


@command("proofcheck")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.check", description="Proof pages against the code they speak of."
    )
    parser.add_argument("--update", nargs="+", metavar="PAGE", help='pages that were read again, or "all"')
    args = parser.parse_args(argv)
    if args.update:
        print(f"recorded as read: {', '.join(update(args.update))}")
        return 0
    if lines := changed():
        print("\n".join([*lines, "read the pages again, then: python -m proofs.check --update PAGE …"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
