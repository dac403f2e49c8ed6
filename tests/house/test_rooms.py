"""The order of the rooms: imports go down only, without circles; numerics know no pair, mechanism or relation."""

from __future__ import annotations

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS = {
    "privcalc": [
        *("__main__", "cli", "peers", "claims", "budget", "signatures", "certificate", "interop", "pictures", "audit"),
        *("ledger", "log", "proof", "attacks", "tripwire"),
        *(
            "calibration",
            "serial",
            "bulk",
            "tables",
            "mechanisms",
            "strategies",
            "run",
            "questions",
            "composition",
            "pairs",
            "noise",
        ),
        *(
            "enclosure",
            "relation",
            "parts",
            "terminal",
            "files",
            "notebook",
            "errors",
            "keywords",
            "version",
            "rigorous",
            "kernel",
            "numerics",
        ),
    ],
    "learners": ["demo", "*", "data", "frame", "gradients", "device"],
}
"""From above to below; ``*`` stands for the modules that no room has: one paper's algorithm each."""

OUTSIDE = {"cli", "peers", "__main__"}
"""Rooms that use the library as its users do, by ``import privcalc``."""

FREE_STANDING = {
    "numerics",
    "rigorous",
    "kernel",
    "keywords",
    "notebook",
    "errors",
    "files",
    "terminal",
    "version",
    "noise",
}
"""Rooms that import nothing of the library but themselves, and errors (with keywords, which it asks)."""


def modules(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


NAMES = {name for package in ROOMS for name, _ in modules(package)}


def imported(path):
    """The modules of the two packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in NAMES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def edges():
    """What each module imports. Not when tests are collected, which every process does."""
    return {name: set(imported(path)) - {name} for package in ROOMS for name, path in modules(package)}


def room(name):
    package, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    return first if first in ROOMS[package] or not first else "*"


def own(package):
    """Every import within a package, apart from that of the package itself."""
    for name, found in edges().items():
        if name.startswith(package + "."):
            yield from ((name, other) for other in found if other.startswith(package + "."))


@pytest.mark.parametrize("package", ROOMS)
def test_every_module_has_a_room(package):
    assert {room(name) for name in NAMES if name.startswith(package + ".")} == set(ROOMS[package])


@pytest.mark.parametrize("package", ROOMS)
def test_imports_go_down_only(package):
    order = ROOMS[package]
    wrong = [(name, other) for name, other in own(package) if order.index(room(name)) > order.index(room(other))]
    assert not wrong


@pytest.mark.parametrize("package", ROOMS)
def test_there_are_no_circles(package):
    graph = {name: set() for name in NAMES if name.startswith(package + ".")}
    for name, other in own(package):
        graph[name].add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_nothing_imports_what_stands_above_it():
    for name, found in edges().items():
        tops = {other.partition(".")[0] for other in found}
        assert not tops & {"benchmarks", "proofs", "tests"}, name
        if name.startswith("privcalc"):
            assert "learners" not in tops, name
            assert "privcalc" not in found or room(name) in OUTSIDE, f"{name}: import from the module that has it"


def test_the_ground_knows_nothing_of_what_it_carries():
    for name, other in own("privcalc"):
        if room(name) in FREE_STANDING:
            assert room(other) in {room(name), "errors", "keywords"}, (name, other)


def test_learners_use_public_names_only():
    """What a learner imports of privcalc is at its top, or in a package that is documented."""
    named = (
        "pictures",
        "ledger",
        "ledger.assumptions",  # the door by which our own code says what it does
        "attacks",
        "attacks.replay",
        "audit",
        "strategies",
        "errors",
        "files",
        "terminal",
        "tripwire",
    )
    public = {"privcalc", *(f"privcalc.{name}" for name in named)}
    for name, found in edges().items():
        if name.startswith("learners"):
            assert {other for other in found if other.startswith("privcalc")} <= public, name


def test_the_architecture_page_has_the_same_order():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    places = [text.find(f"\n{name}") for name in ROOMS["privcalc"] if name != "__main__"]
    assert -1 not in places, [name for name in ROOMS["privcalc"] if f"\n{name}" not in text]
    assert places == sorted(places)
