"""``privcalc plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc import pictures
from privcalc.calibration.plans import compare_noise, plan
from privcalc.cli import main
from privcalc.strategies import momentum


def test_every_choice_meets_the_target() -> None:
    choices = plan(records=10_000, epsilon=1.0, delta=1e-6, epochs=[5, 0.5], batch_sizes=[100, 10_000, 3_000])
    assert [(c.epochs, c.batch_size) for c in choices] == [(e, b) for e in (0.5, 5) for b in (100, 3_000, 10_000)]
    for c in choices:
        assert c.sample_rate == c.batch_size / 10_000
        assert c.steps * c.sample_rate >= c.epochs > (c.steps - 1) * c.sample_rate
        reached = (pc.PoissonSampled(pc.Gaussian(c.noise_multiplier), c.sample_rate) * c.steps).epsilon(delta=1e-6)
        assert 1 - 1e-6 < reached.lower <= reached.upper <= 1.0
        assert c.step_noise == c.noise_multiplier / c.batch_size
    assert [c.relative for c in choices if c.batch_size == 10_000] == [1.0, 1.0]


def test_larger_batches_are_less_noisy_and_more_epochs_cost() -> None:
    choices = plan(records=1_000, epsilon=2.0, delta=1e-5, epochs=[1, 10], batch_sizes=[10, 100, 1_000])
    one, ten = choices[:3], choices[3:]
    assert one[0].step_noise > one[1].step_noise > one[2].step_noise
    assert all(a.noise_multiplier < b.noise_multiplier for a, b in zip(one, ten, strict=True))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("records", {"records": 0}),
        ("batch_sizes", {"batch_sizes": [2_000]}),
        ("batch_sizes", {"batch_sizes": [0]}),
        ("batch_sizes", {"batch_sizes": []}),
        ("epochs", {"epochs": [0]}),
        ("epsilon", {"epsilon": -1}),
        ("delta", {"delta": 0}),
        ("are they swapped", {"epsilon": 1e-5, "delta": 0.3}),
    ],
)
def test_bad_arguments_are_named(name: str, wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"records": 1_000, "epsilon": 1.0, "delta": 1e-5, "epochs": [1], "batch_sizes": [10]}
    with pytest.raises(pc.PrivcalcError, match=name):
        plan(**good | wrong)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", "--records", "1000", "--epsilon", "1", "--delta", "1e-5"]
    assert main([*given, "--epochs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + 4
    small = [*given, "--epochs", "1", "--batch-sizes", "1000", "--relation", "replace-one", "--json"]
    assert main(small) == 0
    (choice,) = json.loads(capsys.readouterr().out)["choices"]
    expected = pc.noise_multiplier(epsilon=1, delta=1e-5, sample_rate=1, steps=1, relation=pc.REPLACE_ONE)
    assert choice["noise_multiplier"] == expected
    assert main([*given, "--batch-sizes", "5000"]) == 2
    assert "--batch-sizes = 5000" in capsys.readouterr().err
    pytest.importorskip("matplotlib")
    assert main([*small, "--picture", str(tmp_path / "plan.png")]) == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    for wrong in (tmp_path / "no" / "folder.png", tmp_path / "plan.unknown"):
        assert main([*small, "--picture", str(wrong)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("privcalc plan: ")
        assert repr(str(wrong)) in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE], ids=str)
def test_three_kinds_of_noise(relation: pc.Relation) -> None:
    """Each meets the target with no noise to spare; errors are those of AC⁻¹, written out."""
    target = {"epsilon": 2.0, "delta": 1e-6, "relation": relation}
    found = compare_noise(records=2_000, epochs=3, batch_size=100, beta=0.5, bands=[4, 2, 40], **target)
    assert sorted(one.noise for one in found) == ["correlated", "cyclic bands", "independent"]
    assert [one.error for one in found] == sorted(one.error for one in found)
    kept = momentum(60, beta=0.5)
    workload = np.tril(kept[np.abs(np.subtract.outer(range(60), range(60)))])
    for one in found:
        assert 1.9999 < one.run.epsilon(delta=1e-6, relation=relation).upper <= 2.0
        [(mechanism, count)] = one.run.entries
        matrix = np.eye(60) if one.noise == "independent" else mechanism.strategy.matrix()
        assert count == (60 if one.noise == "independent" else 1)
        rows = np.linalg.norm(workload @ np.linalg.inv(matrix), axis=1)
        assert one.error == pytest.approx(one.noise_multiplier * np.sqrt(np.mean(rows**2)) / 100, rel=1e-9)
    figure = pictures.compared({"3 × 20": found})
    assert [line.get_label() for line in figure.axes[0].lines] == ["independent", "cyclic bands", "correlated"]


def test_few_steps_have_no_classes() -> None:
    found = compare_noise(records=100, epochs=2, batch_size=100, epsilon=1.0, delta=1e-5)
    assert [one.noise for one in found].count("cyclic bands") == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 101}, "batch_size = 101"), ({"epochs": 1.5}, "epochs = 1.5"),
        ({"epochs": 10**6}, "at most 20000 steps"),
        ({"bands": [1]}, "bands = 1"), ({"records": 0}, "records = 0"), ({"beta": 1.0}, "beta = 1.0"),
    ],
)  # fmt: skip
def test_comparisons_refused(wrong: dict[str, Any], message: str) -> None:
    good = {"records": 100, "epochs": 2, "batch_size": 10, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(pc.PrivcalcError, match=message):
        compare_noise(**good | wrong)


def test_the_command_compares(capsys) -> None:
    given = ["plan", "--records", "1000", "--epsilon", "1", "--delta", "1e-5", "--correlated"]
    assert main(given) == 2
    assert "must be given with --correlated" in capsys.readouterr().err
    assert main([*given, "--epochs", "1", "--batch-sizes", "500", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["choices"]
    assert {one["noise"] for one in told} == {"independent", "correlated"}
    assert main([*given, "--epochs", "1", "--batch-sizes", "500"]) == 0
    assert "noise multiplier" in capsys.readouterr().out
