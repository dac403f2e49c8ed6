"""Planted bugs: each is caught by its attack, without a false alarm, or by a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from privcalc.attacks.bugs import BUGS, CAUGHT_BY_TESTS, table, verdict

HERE = Path(__file__).parent
CLASSIC = {
    "sensitivity off by 2",
    "noise reused across steps",
    "Poisson claimed but shuffled",
    "normaliser from the private count",
    "clip after averaging",
    "seed reused",
    "float32 noise too small",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_attacks_catch_bugs_and_spare_the_code_without(bug):
    found = verdict(bug)
    assert found.caught
    assert not found.false_alarm


def test_the_table_has_every_bug_and_its_tests_exist():
    assert {bug.name for bug in BUGS} >= CLASSIC
    for name in [*(bug.test for bug in BUGS if bug.test), *CAUGHT_BY_TESTS.values()]:
        file, _, function = name.partition("::")
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        assert not function or function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_the_table_says_what_is_not_caught(monkeypatch):
    text, good = table(size=64)
    assert not good
    assert "NOT CAUGHT" in text
    assert all(bug.name in text for bug in BUGS)
