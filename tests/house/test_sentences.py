"""First sentences of docstrings: each names its object in the field's term, and says more than three words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXEMPT = (
    *("audit", "budget", "calibration", "certificate", "claims", "cli", "composition", "interop", "ledger", "log"),
    *(
        "numerics/routes",
        "bulk",
        "enclosure",
        "parts",
        "proof",
        "run",
        "serial",
        "tripwire",
        "learners",
    ),
)
"""Rooms whose first sentences nobody has read again yet. A room that is clean leaves the list; none joins it."""

BARE = re.compile(r"(The same|As|Both|It|Its|Likewise|No|Of|See|That|Their|Them|These|They|This|Those|What|Yes)\b[^`]")
"""Beginnings without a noun: a reader needs the file's name, or the sentence before, to know what is meant."""

WORDS = 3
"""A sentence of so many words names a thing and says nothing of it."""


def first_sentence(text):
    return re.split(r"(?<=[.!?])\s|\n\n", text.strip())[0].replace("\n", " ")


def fault(text):
    """What is wrong with a docstring's first sentence; None if nothing is."""
    sentence = first_sentence(text)
    if len(sentence.split()) <= WORDS:
        return f"at most {WORDS} words"
    return "begins without a noun" if BARE.match(sentence) else None


def described(path):
    """The classes and functions of a file with their docstrings: (line, name, text)."""

    def inside(node, name):
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inner = f"{name}.{child.name}".strip(".") if named else name
            if named and (text := ast.get_docstring(child)):
                yield child.lineno, inner, text
            yield from inside(child, inner)

    yield from inside(ast.parse(path.read_text(encoding="utf-8")), "")


def room(path):
    """A file's room: ``learners``, or a folder or file of ``privcalc``; numerics is read folder by folder."""
    if path.is_relative_to(ROOT / "learners"):
        return "learners"
    parts = path.relative_to(ROOT / "privcalc").with_suffix("").parts
    deep = "/".join(parts[:2])
    return deep if deep in EXEMPT else parts[0]


FILES = [path for package in ("privcalc", "learners") for path in sorted((ROOT / package).rglob("*.py"))]


def faults(path):
    return [
        f"{path.relative_to(ROOT)}:{line} {name}: {why}: {first_sentence(text)}"
        for line, name, text in described(path)
        if (why := fault(text))
    ]


@pytest.mark.parametrize(
    "text",
    ["All.", "Of K.", "The same.", "Their sum.", "log M(c).", "What holds of both of them.", "Its sum over all n."],
)
def test_the_test(text):
    assert fault(text)


@pytest.mark.parametrize(
    "text",
    ["Return log M(c), the log moment.", "An array of losses, shape (n,).", "``this`` names what the caller gave."],
)
def test_sentences_that_pass(text):
    assert fault(text) is None


def test_first_sentences():
    found = [line for path in FILES if room(path) not in EXEMPT for line in faults(path)]
    assert not found, "\n".join(found)


def test_the_list_of_exempt_rooms_shrinks():
    """A room without faults has no place in the list."""
    still = {room(path) for path in FILES if faults(path)}
    assert set(EXEMPT) <= still, f"clean by now: {sorted(set(EXEMPT) - still)}"


class Class:
    """A class: the names of its bases, and its methods and properties, each with whether it has a docstring."""

    def __init__(self, node):
        self.public = not node.name.startswith("_")
        self.bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        self.methods = {
            child.name: bool(ast.get_docstring(child))
            for child in node.body
            if isinstance(child, ast.FunctionDef)
            and not any("overload" in ast.unparse(mark) for mark in child.decorator_list)
        }


def classes():
    """The classes of each file, and those of all files by name: a base is looked for in its own file first."""
    by_file, by_name = {}, {}
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        by_file[path] = {node.name: Class(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for name, kind in by_file[path].items():
            by_name.setdefault(name, []).append((path, kind))
    return by_file, by_name


def test_every_public_method_is_described_by_its_class_or_by_the_one_it_overrides():
    by_file, by_name = classes()

    def described_in(path, kind, method):
        if kind.methods.get(method):
            return True
        for base in kind.bases:
            own = by_file[path].get(base)
            found = [(path, own)] if own and own is not kind else by_name.get(base, [])
            if any(described_in(*one, method) for one in found if one[1] is not kind):
                return True
        return False

    bare = [
        f"{path.relative_to(ROOT)}: {name}.{method}"
        for path, kinds in by_file.items()
        for name, kind in kinds.items()
        for method in kind.methods
        if kind.public and not method.startswith("_") and not described_in(path, kind, method)
    ]
    assert not bare, "\n".join(bare)
