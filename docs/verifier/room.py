"""What the page runs: the modules that a check by ball arithmetic needs, as they are, and a table of mechanisms."""

from __future__ import annotations

import ast
from pathlib import Path

from privcalc.certificate.alone import table
from privcalc.serial import indented

ROOT = Path(__file__).parents[2]
FIRST = ("privcalc.certificate.alone", "privcalc.rigorous.proof")
"""Where to begin: what the page calls, and what a proof asks for later (``proof.py``)."""


def room() -> dict[str, str]:
    """The files, by their path: the modules, what certificates' lines mean, and ``mechanisms.json``."""
    files = {"privcalc/__init__.py": ""}
    todo = list(FIRST)
    while todo:
        name = todo.pop()
        path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        path = path if path.exists() else path.with_suffix("") / "__init__.py"
        if (own := path.relative_to(ROOT).as_posix()) in files:
            continue
        files[own] = path.read_text(encoding="utf-8")
        for node in ast.parse(files[own]).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("privcalc"):
                inner = (f"{node.module}.{each.name}" for each in node.names)
                todo += [one if _there(one) else node.module for one in inner]
    words = "privcalc/certificate/pages/words.toml"
    return files | {words: (ROOT / words).read_text(encoding="utf-8"), "mechanisms.json": indented(table())}


def _there(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
