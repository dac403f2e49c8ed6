"""The worked scripts run, and what they claim is so."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privcalc as pc

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_calibrate_in_pytorch() -> None:
    pytest.importorskip("torch")
    accuracy, epsilon = load("calibrate_pytorch")["train"]()
    assert accuracy > 0.9
    assert 3.0 * (1 - 1e-6) < epsilon.lower <= epsilon.upper <= 3.0


def test_certify_a_scikit_learn_classifier(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    accuracy, certificate = load("certify_sklearn")["main"](tmp_path)
    assert accuracy > 0.7
    assert certificate.final
    assert certificate.guarantee.epsilon <= 1.0
    with pytest.raises(pc.PrivcalcError, match="closed"):
        load("certify_sklearn")["main"](tmp_path)


def test_monthly_releases(tmp_path: Path) -> None:
    script = load("monthly_releases")
    answers, certificate = script["main"](tmp_path)
    for number, (visits, turnover, basket, age) in enumerate(answers, 1):
        table = script["made_up"](number)
        assert abs(float(visits.value.sum()) - 20_000) < 2_000  # some customers came more than four times
        assert abs(basket.value - 30) < 5
        assert abs(turnover.value / (20_000 * 30) - 1) < 0.2
        assert abs(age.value - np.median(table["age"])) < 10
    assert certificate.guarantee.epsilon <= 1.6
    assert len(certificate.document["ledgers"][0]["labels"]) == 12
    with pytest.raises(pc.PrivcalcError, match="'2026-02 visits': was used"):
        script["release"](tmp_path / "year.jsonl", "2026-02", script["made_up"](2))
    script["release"](tmp_path / "year.jsonl", "2026-04", script["made_up"](4))


def test_audit_in_jax() -> None:
    pytest.importorskip("jax")
    accuracy, guarantee, losses = load("audit_jax")["train"]()
    assert accuracy > 0.9
    own = np.asarray(losses.epsilon(delta=1e-5))
    assert own.shape == (1_000,)
    assert own.max() <= guarantee.epsilon.upper <= 2.0
    assert np.median(own) < 0.5 * guarantee.epsilon.upper
