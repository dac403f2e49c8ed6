"""Summaries of realised losses leave through the ledger only, in one plan with the run; reports are whole or absent."""

from __future__ import annotations

import numpy as np
import pytest

import privcalc as pc
from privcalc.cli import main

DELTA, STEPS, RECORDS = 1e-5, 20, 200
STEP, HISTOGRAM, QUANTILE = (
    pc.Gaussian(noise_multiplier=10.0),
    pc.Gaussian(noise_multiplier=8.0),
    pc.ExponentialMechanism(epsilon=0.4, monotone=False),
)
EDGES = np.linspace(0.0, 0.5, 9)


def train(x, ledger, leave_out=None):
    """Noisy descent on |θ − x|: the norms of this record's clipped gradients depend on the outputs and itself only."""
    keep = np.ones(len(x), dtype=bool)
    if leave_out is not None:
        keep[leave_out] = False
    losses, theta = pc.RealisedLosses(records=int(keep.sum()), noise_multiplier=STEP.noise_multiplier), 0.0
    outputs = []
    for _ in range(STEPS):
        gradient = np.clip(theta - x[keep], -1.0, 1.0)
        outputs.append(float(ledger.gaussian(np.array([gradient.sum()]), STEP, clip_norm=1.0)[0]))
        losses.update(np.abs(gradient))
        theta -= outputs[-1] / RECORDS
    return losses, outputs


def test_histogram_and_quantile_in_one_plan():
    x = np.random.default_rng(0).standard_normal(RECORDS)
    plan = STEP * STEPS + HISTOGRAM + QUANTILE
    ledger = pc.Ledger(plan=plan, seed=3)
    losses, _ = train(x, ledger)
    values = np.asarray(losses.mu())
    counts = ledger.gaussian(np.histogram(values, EDGES)[0].astype(float), HISTOGRAM, clip_norm=1.0)
    assert np.abs(counts - np.histogram(values, EDGES)[0]).max() < 6 * HISTOGRAM.noise_multiplier
    candidates = np.linspace(0.0, 0.5, 81)
    scores = -np.abs((values <= candidates[:, None]).sum(axis=1) - 0.5 * values.size)
    chosen = candidates[ledger.select(scores, QUANTILE, sensitivity=1.0)]
    assert 0.3 < np.mean(values <= chosen) < 0.7
    made = pc.certify(ledger, delta=DELTA)
    assert made.guarantee.epsilon == plan.epsilon(delta=DELTA).upper > (STEP * STEPS).epsilon(delta=DELTA).upper
    with pytest.raises(pc.PrivcalcError):
        ledger.gaussian(counts, HISTOGRAM, clip_norm=1.0)  # not in the plan a second time


def test_a_record_moves_its_own_value_only():
    """What section 4 of the page rests on, at the same outputs: of μ to the last bit, of ε to its last digits only."""

    class Replay:
        def __init__(self, outputs):
            self.outputs = iter(outputs)

        def gaussian(self, values, mechanism, *, clip_norm):
            return np.array([next(self.outputs)])

    x = np.random.default_rng(1).standard_normal(RECORDS)
    losses, outputs = train(x, pc.Ledger(plan=STEP * STEPS, seed=4))
    fewer, _ = train(x, Replay(outputs), leave_out=17)
    values = np.asarray(losses.mu())
    assert np.delete(values, 17).tolist() == np.asarray(fewer.mu()).tolist()
    assert np.abs(np.histogram(values, EDGES)[0] - np.histogram(np.asarray(fewer.mu()), EDGES)[0]).sum() == 1
    found, without = (np.asarray(each.epsilon(DELTA)) for each in (losses, fewer))
    assert np.delete(found, 17) == pytest.approx(without, abs=1e-12)


def test_mu_is_that_of_one_record_in_any_company():
    rng = np.random.default_rng(5)
    norms = rng.random((30, 2000)) * rng.choice([1.0, 0.1, 1e-5], (30, 2000))
    kept = rng.random(2000) < 0.5

    def mu(rows):
        losses = pc.RealisedLosses(records=rows.shape[1], noise_multiplier=3.3)
        for row in rows:
            losses.update(row)
        return np.asarray(losses.mu())

    assert mu(norms)[kept].tolist() == mu(norms[:, kept]).tolist()


def test_a_report_that_fails_leaves_nothing_half(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    np.save(tmp_path / "norms.npy", np.full((3, 5), 0.5))
    command = [
        "audit",
        str(tmp_path / "norms.npy"),
        "--noise-multiplier",
        "2",
        "--delta",
        "1e-5",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(command) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert before.keys() == {"epsilon.parquet", "epsilon.png", "summary.json"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "out").iterdir())  # sensitive

    def full(table, file, **_):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(parquet, "write_table", full)
    np.save(tmp_path / "norms.npy", np.full((3, 5), 0.9))
    assert main(command) == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
