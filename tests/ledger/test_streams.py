"""Correlated noise as a ledger draws it: the law of its rows, what is published as their function, order, crashes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

import privcalc as pc
from privcalc.ledger.streams import Encoder, encoder_of
from privcalc.noise.source import Noise
from privcalc.strategies import (
    BLT,
    CyclicPoisson,
    Dense,
    FixedOrder,
    MinSeparation,
    SquareRoot,
    Strategy,
    Toeplitz,
    Tree,
    optimal_blt,
    sensitivity,
)

STRATEGY = Toeplitz([1.0, 0.5, 0.25 + 2.0**-20], steps=6)
RUN = pc.CorrelatedGaussian(1.5, STRATEGY, MinSeparation(separation=3))
LOWER = np.random.default_rng(5).integers(-(2**10), 2**10, (6, 6)) / 2**9 * np.tri(6, k=-1) + np.eye(6)
MOST = 1 - 2.0**-20


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


WHOLE = [STRATEGY, Toeplitz([0.5, -1.0, 0.75], 6), Dense(LOWER), BLT([0.25, 0.5], [0.875, 0.5], 6), Tree(6)]


@pytest.mark.parametrize("strategy", WHOLE, ids=["bands", "signed", "dense", "buffers", "tree"])
def test_what_is_published_depends_on_the_rows_alone(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
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
    number = len(strategy.matrix())
    nothing = np.zeros((number, size), dtype=np.int64)
    one, other = (rows_of(encoder_of(strategy, 0, size), x.astype(float), nothing) for x in steps)
    moved = np.array([[int(a - b) for a, b in zip(*both, strict=True)] for both in zip(one, other, strict=True)])
    noise = rng.integers(-(2**50), 2**50, (number, size))
    first, second = publish(np.ldexp(steps[0], exponent), noise), publish(np.ldexp(steps[1], exponent), noise + moved)
    assert first == second
    assert first != publish(np.ldexp(steps[1], exponent), noise)


def rows_of(encoder: Encoder, sums: np.ndarray, noise: np.ndarray) -> list[list[Fraction]]:
    """What an encoder reads rows from, in steps of the fine grid."""
    found: list[list[Fraction]] = []
    read = type(encoder)._read

    def spy(self, row, bits):
        found.append([int(high) * 2**bits + Fraction(int(low)) for high, low in zip(*row, strict=True)])
        assert np.all((row[1] >= 0) & (row[1] < 2**bits))
        return read(self, row, bits)

    given = iter(noise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(encoder), "_read", spy)
        for x in sums:
            encoder.next(x, lambda: next(given))
    return found


DRAWN = [
    STRATEGY,
    Dense(LOWER),
    BLT([0.25, 0.5], [0.875, 0.5], 6),
    BLT([1 - MOST, MOST], [0.0, MOST], 6),
    optimal_blt(6, MinSeparation(3), buffers=2),
    Tree(6),
]


@pytest.mark.parametrize("strategy", DRAWN, ids=["bands", "dense", "buffers", "long buffers", "found buffers", "tree"])
def test_rows_in_rationals(strategy: Strategy) -> None:
    """Rows are Cx + Z on the fine grid; buffers' up to half a step of it for each rounding, whatever the sums."""
    rng, rate = np.random.default_rng(7), 2**20
    largest = 2**44 if isinstance(strategy, BLT) else 2**52
    sums = np.stack([rng.integers(-largest, largest, 6), [largest] * 6, rng.integers(-3, 4, 6)], axis=1)
    noise = rng.integers(-(2**61), 2**61, (len(strategy.matrix()), 3))
    given = np.ldexp(sums.astype(float), 5)
    given[0] *= 4  # beyond what the grid holds: cut off
    sums[0] = np.clip(4 * sums[0], -largest, largest)
    found = rows_of(encoder_of(strategy, 5, 3), given, noise)
    order = range(6)
    if isinstance(strategy, Tree):  # rows as they become complete
        order = [0, 1, 6, 2, 3, 7, 9, 4, 5, 8]
    exact, allowed = strategy.matrix(), Fraction(0)
    if isinstance(strategy, BLT):
        buffers = [(Fraction(a), Fraction(d)) for a, d in zip(strategy.scales, strategy.decays, strict=True)]
        column = [Fraction(1), *(sum(a * d**i for a, d in buffers) for i in range(5))]
        exact = [[column[r - t] if r >= t else Fraction(0) for t in range(6)] for r in range(6)]
        allowed = (1 + sum(a * min(6, 1 / (1 - d)) for a, d in buffers)) / 2
        assert Fraction(strategy.blur) * rate >= 2 * allowed * Fraction(math.sqrt(6)) * (1 - Fraction(1, 10**15))
    off = Fraction(0)
    for at, (row, z) in enumerate(zip(order, noise, strict=True)):
        for i in range(3):
            wanted = sum(Fraction(c) * int(x) for c, x in zip(exact[row], sums[:, i], strict=True)) * rate + int(z[i])
            off = max(off, abs(wanted - found[at][i]))
    assert off <= allowed


def test_totals_of_many_steps_hold() -> None:
    """The slowest buffer and the largest sums, until the total is as large as it can be: no whole number overflows."""
    encoder = encoder_of(BLT([MOST], [MOST], 10**7), 0, 1)
    below = 2**64 * 2**20 - 2**64  # Σ decay^i from where it is all but full, in steps of the fine grid
    full = np.array([below >> 42]), np.array([below & (2**42 - 1)])
    encoder._totals, encoder._published = [full], [np.zeros(1)]
    [[first], [second]] = rows_of(encoder, np.full((2, 1), 2.0**44), np.zeros((2, 1), dtype=np.int64))
    after = below * Fraction(MOST) + 2**64
    assert abs(first - (2**64 + Fraction(MOST) * below)) <= 1
    assert abs(second - (2**64 + Fraction(MOST) * after)) <= 1


def test_noise_is_enough() -> None:
    """z·(C + √d·g), in the ledger's own line too."""
    with pc.Ledger(None, plan=RUN) as ledger:
        stream = ledger.correlated(RUN, coordinates=10**4, clip_norm=0.3, error=0.0)
        assert Fraction(stream._grid.scale) >= Fraction(1.5) * (
            Fraction(0.3) + 100 * Fraction(2) ** stream._grid.exponent
        )
        assert stream._grid.scale < 0.45 * (1 + 2.0**-10)
        for _ in range(6):
            stream.release(np.zeros(10**4))
    certificate = pc.certify(ledger, delta=1e-6)
    certificate.verify()
    assert certificate.run == RUN.run
    assert certificate.document["noise"] == "exact"


def test_places_in_the_epoch() -> None:
    """Each record has a turn per epoch, always at the same place; places are uniform and independent of the number."""
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
    for strategy in (
        SquareRoot(6), BLT([0.5], [0.3], 6), BLT([0.3], [0.5], 6), Toeplitz([1.0, 1 / 3], 6), Toeplitz([2.0**15], 6),
        Dense(np.eye(6) / 3), Dense(np.eye(6) * 2.0**15),
    ):  # fmt: skip
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
        with pytest.raises(AttributeError):  # as a program might that goes on from a checkpoint
            stream.step = 0  # type: ignore[misc]
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
        assert ("sampling: in turns: each" if by == "ledger" else "sampling: NOT SAID, taken to be in turns") in str(
            certificate
        )
        certificate.verify(ledger)
    before = pc.certify(pc.Ledger(None, plan=RUN), delta=1e-6).document["assumptions"]["needed"]
    assert [entry["by"] for entry in before if entry["name"] == "sampling"] == [
        "nobody"
    ]  # nor will it ever be the ledger's
    said = pc.Assumptions(sampling="in turns")
    [found] = [
        e
        for e in pc.certify(RUN, delta=1e-6, assumptions=said).document["assumptions"]["needed"]
        if e["name"] == "sampling"
    ]
    assert found["by"] == "caller"


def test_a_crash_costs_the_stream(tmp_path) -> None:
    """It stays charged, and another needs another use."""
    path = tmp_path / "ledger.jsonl"
    ledger = pc.Ledger(path, plan=RUN)
    ledger.correlated(RUN, coordinates=2, clip_norm=1.0).release(np.zeros(2))
    ledger.journal.close()  # the process ends
    with pc.Ledger(path, plan=RUN) as again:
        assert again.spent == RUN.run
        with pytest.raises(pc.BudgetExceeded):
            again.correlated(RUN, coordinates=2, clip_norm=1.0)
    assert pc.certify(path, delta=1e-6).run == RUN.run


def test_the_law_of_what_a_tree_publishes() -> None:
    """Sums of t steps have the variance of Honaker's estimate, Σ 1/(2 − 2^-h) over the blocks of t, in z²C²."""
    run = pc.CorrelatedGaussian(1.5, Tree(13), MinSeparation(separation=3))
    sums = np.random.default_rng(0).normal(size=(13, 20_000)) * 50
    with pc.Ledger(None, plan=run, seed=1) as ledger:
        stream = ledger.correlated(run, coordinates=20_000, clip_norm=2.0, error=0.0)
        published = np.array([stream.release(row) for row in sums])
    found = np.cumsum(published - sums, axis=0).var(axis=1) / 9
    expected = [sum(1 / (2 - 2.0**-h) for h in range(5) if t >> h & 1) for t in range(1, 14)]
    assert found == pytest.approx(expected, rel=0.06)
    pc.certify(ledger, delta=1e-6).verify(ledger)


def test_buffers_are_what_a_stream_holds() -> None:
    """O(m·d), however many steps: and the noise of their rows is enough for what they round."""
    run = pc.CorrelatedGaussian(1.5, optimal_blt(10_000, FixedOrder(100), buffers=2), FixedOrder(100))
    with pc.Ledger(None, plan=run, seed=1) as ledger:
        stream = ledger.correlated(run, coordinates=1000, clip_norm=1.0, error=0.0, records=300)
        for _ in range(50):
            assert stream.indices.size < 300
            stream.release(np.zeros(1000))
        held = [*stream._encoder._totals, *stream._encoder._published]
        assert sum(np.asarray(part).nbytes for part in held) == 2 * 3 * 8000
        step = Fraction(2) ** stream._grid.exponent
        most = sensitivity(run.strategy, run.participation)[1]
        # ‖(exact rows moved) + (what is rounded)‖ ≤ s(C + √d·g) + √(Td)(1 + Σ a·min(T, 1/(1 − λ)))·2⁻²⁰g
        rounded = 1 + sum(
            a * min(10_000, 1 / (1 - d)) for a, d in zip(run.strategy.scales, run.strategy.decays, strict=True)
        )
        moved = most * (1 + math.sqrt(1000) * step) + math.sqrt(10_000 * 1000) * rounded * 2.0**-20 * step
        assert stream._grid.scale * most >= 1.5 * moved
        assert stream._grid.scale < 1.5 * (1 + 2.0**-10)
    pc.certify(ledger, delta=1e-6).verify(ledger)
