"""Planted bugs: each is caught by its attack, without a false alarm, or by a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from planted.bugs import BUGS, CAUGHT_BY_TESTS, verdict

from proofs.errata import ERRATA

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


VIOLATIONS = {
    ("AdaMix", "§3.2, noise"): "AdaMix: one row of noise for all",
    ("AdaMix", "Proposition 14"): "AdaMix, Proposition 14: realised loss as a guarantee",
    ("DOPE-SGD", "Proposition 2"): "DOPE-SGD, Proposition 2: printed update",
    ("DOPE-SGD", "Proposition 2, batches of fixed size"): "DOPE-SGD: fixed size as Poisson",
    ("DOPE-SGD", "Proposition 2, proof: q = |B|/|D|"): "DOPE-SGD: rate from the private |D|",
    ("DOPE-SGD", "Proposition 2, replace-one"): "DOPE-SGD: printed update, replace-one",
    ("DOPE-SGD", "Experiments"): "DOPE-SGD: best of 3360 runs",
    ("PILLAR", "Lemma 1"): "PILLAR, Lemma 1: selection on top",
    ("PILLAR", "Algorithm 2, σ²"): "PILLAR, Algorithm 2: ε for ε² in σ²",
    ("PILLAR", "Definition 1 and experiments"): "PILLAR: replace-one as add-or-remove-one",
    ("PILLAR", "Algorithm 2, n_L sets the noise"): "PILLAR: noise from the private n",
    ("PDA-DPMD", "Algorithm 1"): "PDA-DPMD: gradients not clipped",
    ("PDA-DPMD", "Algorithm 1, σ ∝ 1/n_priv"): "PDA-DPMD: mean over the private n",
    ("DPPL", "DPPL-Mean"): "DPPL: mean over a private count",
    ("DPPL", "Top-K, equation 6"): "DPPL Top-K: C(y, K) sets of a rank",
    ("DPPL", "Algorithm 1: return {p_c | c ∈ y}"): "DPPL: classes without records are left out",
    ("DPPL", "Definition 1; Lemmas 2, 3"): "DPPL-Public: range under replace-one",
    ("DPPL", "Experiments"): "DPPL: best of many choices of K",
    ("DPPL", "C.5, projection layer"): "DPPL, C.5: a record in every query's gradient",
}
"""Errata of severity V, by paper and place, and the planted bug."""


def test_every_violation_is_planted():
    assert set(VIOLATIONS) == {(e.paper, e.where) for e in ERRATA if e.severity == "V"}
    assert set(VIOLATIONS.values()) <= {bug.name for bug in BUGS} | set(CAUGHT_BY_TESTS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_attacks_catch_bugs_and_spare_the_code_without(bug):
    found = verdict(bug)
    assert found.caught
    assert not found.false_alarm


def test_the_table_has_every_bug_and_its_tests_exist():
    assert {bug.name for bug in BUGS} >= CLASSIC
    for name in [*(bug.test for bug in BUGS if bug.test), *CAUGHT_BY_TESTS.values()]:
        file, _, function = name.partition("::")
        tree = ast.parse((HERE.parent / file).read_text(encoding="utf-8"))
        assert not function or function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
