"""Correlated noise as a ledger draws it: the law of its rows, what is published as a function of these, order, and crashes."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

import privcalc as pc
from privcalc.noise.source import Noise
from privcalc.strategies import BLT, CyclicPoisson, FixedOrder, MinSeparation, SquareRoot, Toeplitz, Tree

STRATEGY = Toeplitz([1.0, 0.5, 0.25 + 2.0**-20], steps=6)
RUN = pc.CorrelatedGaussian(1.5, STRATEGY, MinSeparation(separation=3))


def rows(published: np.ndarray, strategy: Toeplitz) -> np.ndarray:
    """Cx + Z from what was published."""
    return strategy.matrix() @ published


def test_the_law_of_the_rows() -> None:
    """(Cx + Z) − Cx: independent, normal, of the standard deviation that the grid asks for."""
    x = np.random.default_rng(0).normal(size=(6, 40_000)) * 50
    with pc.Ledger(None, plan=RUN, seed=1) as ledger:
        stream = ledger.correlated(RUN, coordinates=40_000, clip_norm=2.0)
        published = np.array([stream.release(row) for row in x])
    noise = rows(published - x, STRATEGY) / 3.0
    assert np.cov(noise) == pytest.approx(np.eye(6), abs=0.035)  # five standard errors
    assert min(stats.kstest(row, "norm").pvalue for row in noise) > 1e-6


@pytest.mark.parametrize("strategy", [STRATEGY, Toeplitz([0.5, -1.0, 0.75], 6)], ids=str)
def test_what_is_published_depends_on_the_rows_alone(strategy: Toeplitz, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sums, and noise that makes up for them: the same bits leave. So nothing but Cx + Z is told."""
    run = pc.CorrelatedGaussian(1.5, strategy, MinSeparation(separation=3))
    rng, size = np.random.default_rng(3), 200
    given: list[np.ndarray] = []
    monkeypatch.setattr(Noise, "normal", lambda self, size, scale: given.pop(0).copy())

    def publish(x: np.ndarray, noise: np.ndarray) -> bytes:
        given[:] = list(noise)
        with pc.Ledger(None, plan=run) as ledger:
            stream = ledger.correlated(run, coordinates=size, clip_norm=1.0)
            return np.array([stream.release(row) for row in x]).tobytes()

    with pc.Ledger(None, plan=run) as ledger:
        exponent = ledger.correlated(run, coordinates=size, clip_norm=1.0)._grid.exponent
    steps = rng.integers(-(2**30), 2**30, (2, 6, size))
    whole = np.array([int(c * 2**20) for c in strategy.coefficients])
    moved = np.zeros((6, size), dtype=np.int64)  # C(x − x'), in steps of the fine grid, in whole numbers
    for t in range(6):
        for i, c in enumerate(whole[: t + 1]):
            moved[t] += c * (steps[0, t - i] - steps[1, t - i])
    noise = rng.integers(-(2**50), 2**50, (6, size))
    one, other = publish(np.ldexp(steps[0], exponent), noise), publish(np.ldexp(steps[1], exponent), noise + moved)
    assert one == other
    assert one != publish(np.ldexp(steps[1], exponent), noise)


def test_huge_sums_are_cut_off_and_the_rows_are_exact() -> None:
    """A sum beyond what the grid holds moves no further; rows are exact whole numbers where they are read."""
    with pc.Ledger(None, plan=RUN * 2, seed=1) as ledger:
        one, other = (ledger.correlated(RUN, coordinates=1, clip_norm=1.0) for _ in range(2))
        for stream in (one, other):
            assert abs(stream.release(np.array([1e300]))[0]) == pytest.approx(2.0**52 * 2.0**stream._grid.exponent)
        high, low = one._row(one._steps(np.array([3.0])))
        exact = Fraction(2**52) * Fraction(STRATEGY.coefficients[1]) + Fraction(3) / Fraction(2) ** one._grid.exponent
        found = Fraction(int(high[0]) * 2**26 + int(low[0]), 2**20)
        assert abs(found - exact) < 40 * Fraction(one._grid.steps)


def test_noise_is_enough() -> None:
    """z·(C + √d·g), in the ledger's own line too."""
    with pc.Ledger(None, plan=RUN) as ledger:
        stream = ledger.correlated(RUN, coordinates=10**4, clip_norm=0.3, error=0.0)
        assert Fraction(stream._grid.scale) >= Fraction(1.5) * (Fraction(0.3) + 100 * Fraction(2) ** stream._grid.exponent)
        assert stream._grid.scale < 0.45 * (1 + 2.0**-10)
        for _ in range(6):
            stream.release(np.zeros(10**4))
    certificate = pc.certify(ledger, delta=1e-6)
    certificate.verify()
    assert certificate.run == RUN.run
    assert not any("real-valued" in line for line in certificate.document["idealised"])


def test_places_in_the_epoch() -> None:
    """Each record has one turn in every epoch, always at the same place; places are uniform, and independent of the number."""
    run = pc.CorrelatedGaussian(2.0, Toeplitz([1.0, 0.5], steps=11), FixedOrder(epoch=4))
    with pc.Ledger(None, plan=run, seed=5) as ledger:
        stream = ledger.correlated(run, coordinates=1, clip_norm=1.0, records=20_000)
        turns = []
        for _ in range(11):
            turns.append(stream.indices)
            stream.release(np.zeros(1))
    assert sorted(np.concatenate(turns[:4]).tolist()) == list(range(20_000))
    for t in range(4, 11):
        assert np.array_equal(turns[t], turns[t - 4])
    assert stats.chisquare([len(turn) for turn in turns[:4]]).pvalue > 1e-6


def test_cyclic_samples() -> None:
    """Each record has one class, a coin decides each of its turns, and asking twice tosses it once."""
    run = pc.CorrelatedGaussian(2.0, Toeplitz([1.0, 0.5], steps=40), CyclicPoisson(classes=2, rate=0.3))
    with pc.Ledger(None, plan=run, seed=5) as ledger:
        stream = ledger.correlated(run, coordinates=1, clip_norm=1.0, error=0.0, records=20_000)
        taken = np.zeros((40, 20_000), dtype=bool)
        for t in range(40):
            taken[t, stream.indices] = True
            stream.indices[:] = 0  # a caller's mistake stays the caller's
            assert np.array_equal(np.flatnonzero(taken[t]), stream.indices)
            stream.release(np.zeros(1))
    assert not np.any(taken[::2].any(axis=0) & taken[1::2].any(axis=0))
    counts = taken.sum(axis=0)
    expected = 20_000 * stats.binom(20, 0.3).pmf(np.arange(2, 12))
    found = np.bincount(counts, minlength=21)[2:12]
    assert np.abs((found - expected) / np.sqrt(expected)).max() < 5.5
    certificate = pc.certify(ledger, delta=1e-6)
    [entry] = [entry for entry in certificate.document["assumptions"]["needed"] if entry["name"] == "sampling"]
    assert (entry["by"], certificate.run) == ("ledger", run.run)
    certificate.verify(ledger)


@pytest.mark.parametrize("order", [FixedOrder(epoch=3), CyclicPoisson(classes=3, rate=0.5)], ids=["places", "coins"])
def test_a_sum_of_whose_turn_nobody_asked_is_refused(order) -> None:
    """The certificate said that the ledger had drawn who takes part, of batches that the caller had drawn otherwise."""
    run = pc.CorrelatedGaussian(1.5, STRATEGY, order)
    with pc.Ledger(None, plan=run) as ledger:
        stream = ledger.correlated(run, coordinates=1, clip_norm=1.0, error=0.0, records=9)
        for _ in range(2):
            with pytest.raises(pc.PrivcalcError, match="were not asked for in step"):
                stream.release(np.zeros(1))
            assert stream.indices.size <= 9
            stream.release(np.zeros(1))


def test_a_release_that_failed_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again, it is the release that would have been: no sum counts in two steps, which nobody paid for."""
    sums = np.random.default_rng(4).normal(size=(6, 3))
    broken: list[bool] = []

    def draw(self: Noise, size: int, scale: float) -> np.ndarray:
        if broken:
            broken.clear()
            raise MemoryError
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(Noise, "normal", draw)
    with pc.Ledger(None, plan=RUN * 2) as ledger:
        one, other = (ledger.correlated(RUN, coordinates=3, clip_norm=1.0) for _ in range(2))
        for row in sums:
            broken.append(True)
            with pytest.raises(MemoryError):
                one.release(row)
            assert one.release(row).tolist() == other.release(row).tolist()
        assert one.step == 6


def test_kinds_of_arrays() -> None:
    with pc.Ledger(None, plan=RUN * 2) as ledger:
        one, other = (ledger.correlated(RUN, coordinates=6, clip_norm=1.0) for _ in range(2))
        found = one.release(torch.zeros((2, 3), dtype=torch.float32))
        assert found.dtype == torch.float32
        assert found.shape == (2, 3)
        assert other.release(np.zeros((3, 2), dtype=np.float32)).dtype == np.float32


def test_refused_before_anything_is_charged() -> None:
    fine = {"coordinates": 3, "clip_norm": 1.0}

    def refuse(run, arguments, message: str) -> None:
        plan = run if isinstance(run, pc.CorrelatedGaussian) else RUN
        with pc.Ledger(None, plan=plan) as ledger:
            with pytest.raises(pc.PrivcalcError, match=message):
                ledger.correlated(run, **arguments)
            assert not ledger.spent.entries

    apart = MinSeparation(separation=3)
    for strategy in (SquareRoot(6), BLT([0.5], [0.5], 6), Tree(6), Toeplitz([1.0, 1 / 3], 6), Toeplitz([2.0**15], 6)):
        refuse(pc.CorrelatedGaussian(1.5, strategy, apart), fine, "rounded")
    refuse(pc.Gaussian(1.0), fine, "must be CorrelatedGaussian")
    refuse(RUN, {**fine, "clip_norm": math.inf}, "clip_norm")
    refuse(RUN, {**fine, "coordinates": 0}, "coordinates")
    refuse(RUN, {**fine, "error": 0.1}, "error = 0.1")
    refuse(RUN, {**fine, "records": 10}, "FixedOrder has places")


def test_order_and_end() -> None:
    with pc.Ledger(None, plan=RUN) as ledger:
        stream = ledger.correlated(RUN, coordinates=2, clip_norm=1.0)
        with pytest.raises(pc.PrivcalcError, match="2 numbers in every step, not 3"):
            stream.release(np.zeros(3))
        with pytest.raises(pc.PrivcalcError, match="finite"):
            stream.release(np.array([0.0, np.nan]))
        with pytest.raises(pc.PrivcalcError, match="records = None"):
            stream.indices  # noqa: B018
        assert stream.step == 0
        for _ in range(5):
            stream.release(np.zeros(2))
        with pytest.raises(pc.BudgetExceeded):
            ledger.correlated(RUN, coordinates=2, clip_norm=1.0)
        stream.release(np.zeros(2))
        with pytest.raises(pc.PrivcalcError, match="all 6 releases"):
            stream.release(np.zeros(2))
    other = pc.Ledger(None, plan=RUN)
    stream = other.correlated(RUN, coordinates=2, clip_norm=1.0)
    other.close()
    with pytest.raises(pc.PrivcalcError, match="closed"):
        stream.release(np.zeros(2))


def test_who_vouches_for_turns() -> None:
    """A certificate said nothing of it: neither that places were drawn, nor that a separation is the caller's word."""
    order = pc.CorrelatedGaussian(1.5, STRATEGY, FixedOrder(epoch=3))
    for run, records, by in ((RUN, None, "nobody"), (order, None, "nobody"), (order, 9, "ledger")):
        with pc.Ledger(None, plan=run) as ledger:
            stream = ledger.correlated(run, coordinates=1, clip_norm=1.0, error=0.0, records=records)
            for _ in range(6):
                assert records is None or stream.indices.size <= records
                stream.release(np.zeros(1))
        certificate = pc.certify(ledger, delta=1e-6)
        [found] = [entry for entry in certificate.document["assumptions"]["needed"] if entry["name"] == "sampling"]
        assert found == {"name": "sampling", "value": "in turns", "by": by, "page": "correlated.md"}
        assert "sampling: in turns" in str(certificate)
        certificate.verify(ledger)
    before = pc.certify(pc.Ledger(None, plan=RUN), delta=1e-6).document["assumptions"]["needed"]
    assert [entry["by"] for entry in before if entry["name"] == "sampling"] == ["nobody"]  # nor will it ever be the ledger's
    said = pc.Assumptions(sampling="in turns")
    [found] = [
        e for e in pc.certify(RUN, delta=1e-6, assumptions=said).document["assumptions"]["needed"] if e["name"] == "sampling"
    ]
    assert found["by"] == "caller"


def test_there_is_one_stream() -> None:
    """A copy would make T releases more."""
    with pc.Ledger(None, plan=RUN) as ledger:
        stream = ledger.correlated(RUN, coordinates=2, clip_norm=1.0)
        for copied in (copy.copy, copy.deepcopy):
            with pytest.raises(pc.PrivcalcError, match="a Stream cannot be copied"):
                copied(stream)


def test_a_crash_costs_the_stream(tmp_path) -> None:
    """It stays charged, and another needs another use."""
    path = tmp_path / "ledger.jsonl"
    ledger = pc.Ledger(path, plan=RUN)
    ledger.correlated(RUN, coordinates=2, clip_norm=1.0).release(np.zeros(2))
    ledger._journal.close()  # the process ends
    with pc.Ledger(path, plan=RUN) as again:
        assert again.spent == RUN.run
        with pytest.raises(pc.BudgetExceeded):
            again.correlated(RUN, coordinates=2, clip_norm=1.0)
    assert pc.certify(path, delta=1e-6).run == RUN.run
