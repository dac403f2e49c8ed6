"""The grid: how much larger the noise is, what is released, and what is not refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

import privcalc as pc
from privcalc import noise
from privcalc.noise import Grid, Noise, SeededBits

ALARM = 1e-6 / 40
STEP = pc.Gaussian(noise_multiplier=2.0)
SCALES = st.floats(1e-100, 1e100)


@given(SCALES, SCALES, st.integers(0, 2**53), st.one_of(st.just(0.0), st.floats(0, 1e100)), st.sampled_from([1, 2]))
@example(20.0, 1e-100, 10**6, 0.0, 2)
@example(1e4, 1.0, 10**9, 1e-9, 2)
@example(0.3, 1.0, 1, 1e100, 1)
def test_the_noise_is_enlarged_enough_and_hardly_more(z, clip, d, error, norm):
    bound = Fraction(clip) + 2 * Fraction(error)
    size = max(1, d) if norm == 1 else math.sqrt(max(1, d))
    try:
        grid = Grid.of(z, clip_norm=clip, coordinates=d, error=error, norm=norm)
    except pc.PrivcalcError:
        assert z * size > 2.0**50
        return
    step = Fraction(2) ** grid.exponent
    extra = Fraction(grid.scale) / Fraction(z) - bound
    assert extra > 0
    if norm == 1:
        assert extra >= d * step
    else:
        assert extra**2 >= d * step**2
    if z * size < 2.0**35:
        assert extra < bound / 2**12 * (1 + Fraction(1, 10**9))
    assert step * 2**36 <= Fraction(grid.scale)
    assert Fraction(grid.steps) * step == Fraction(grid.scale)
    assert grid.steps <= 2.0**52


def test_absurd_numbers_are_refused_before_anything_is_charged():
    ledger = pc.Ledger(None, plan=(STEP + pc.Gaussian(1e60) + pc.Laplace(1e20)) * 9)
    for attempt, match in [
        (lambda: ledger.gaussian(0.0, pc.Gaussian(1e60), clip_norm=1.0), "no grid"),
        (lambda: ledger.laplace(0.0, pc.Laplace(1e20), clip_norm=1.0), "no grid"),
        (lambda: ledger.gaussian(0.0, STEP, clip_norm=1.0, error=-1.0), "error"),
        (lambda: ledger.gaussian(0.0, STEP, clip_norm=1.0, error=math.nan), "error"),
        (lambda: ledger.gaussian(0.0, STEP, clip_norm=1.0, error=math.inf), "error"),
        (lambda: ledger.laplace(0.0, pc.Laplace(1e20), clip_norm=1.0, error="1"), "error"),
    ]:
        with pytest.raises(pc.PrivcalcError, match=match):
            attempt()
    assert not ledger.spent.entries


WHOLE = st.integers(-(2**40), 2**40)


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), WHOLE), min_size=1), SCALES)
@example([(2.0**53, 1), (2.0**53, -1), (2.0**80, 1), (-(2.0**80), 3), (0.5, 0), (1.5, 0), (-0.0, 0)], 2.0**36)
@example([(x, 12345) for x in (2.0**59, 2.0**60 - 128, 2.0**60, 2.0**62, -1.5 * 2.0**63, 2.0**64)], 2.0**36)
@example([(np.finfo(np.float64).max, 2**40), (-np.finfo(np.float64).max, -(2**40))], 1e100)
@example([(2.0**60, k) for k in (2**53, 2**53 + 1, -(2**53) - 1, 2**61 + 1, -(2**61) - 257)], 2.0**36)
@example([(2.0**116, k) for k in (2**53 + 1, 2**61 + 2**7 + 1)], 2.0**36)
@example([(5e-324, 1), (1e-300, -1)], 1e-100)
def test_what_is_added(pairs, scale):
    """The nearest double to g·(round(value/g) + k), whatever the sizes: in rational arithmetic."""
    grid = Grid.of(1.0, clip_norm=scale, coordinates=1)
    step = Fraction(2) ** grid.exponent
    values, noise = np.array([value for value, _ in pairs]), np.array([k for _, k in pairs], dtype=np.int64)
    found = grid.add(values, noise)
    for value, k, result in zip(values, noise, found, strict=True):
        exact = step * (round(Fraction(value) / step) + int(k))
        most = Fraction(np.finfo(np.float64).max)
        assert result == float(min(max(exact, -most), most))
        assert Fraction(result) % step == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.lists(st.floats(-1e-3, 1e-3), min_size=5, max_size=5))
def test_snapped_neighbours_differ_by_what_is_charged(sums, change):
    """Norms of differences, in rational arithmetic, of all that the noise is added to."""
    values, other = np.array(sums), np.array(sums) + np.array(change[: len(sums)])
    moved = [Fraction(a) - Fraction(b) for a, b in zip(values, other, strict=True)]
    square, absolute = sum(x * x for x in moved), sum(map(abs, moved))
    assume(square > 0)
    none = np.zeros(values.size, dtype=np.int64)
    for norm, size in ((2, math.sqrt(square) * (1 + 1e-12)), (1, float(absolute) * (1 + 1e-15))):
        assume(size > 1e-100)
        grid = Grid.of(1.5, clip_norm=size, coordinates=values.size, norm=norm)
        snapped = [
            Fraction(a) - Fraction(b) for a, b in zip(grid.add(values, none), grid.add(other, none), strict=True)
        ]
        charged = Fraction(grid.scale) / Fraction(1.5)
        assert (sum(x * x for x in snapped) <= charged**2) if norm == 2 else (sum(map(abs, snapped)) <= charged)


# --- releases of a ledger -------------------------------------------------------------------------


def releases(total, size, *, clip_norm=0.5, seed=1, kind="gaussian"):
    step = STEP if kind == "gaussian" else pc.Laplace(2.0)
    ledger = pc.Ledger(None, plan=step, seed=seed)
    return getattr(ledger, kind)(np.full(size, total), step, clip_norm=clip_norm)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("total", [0.0, 1.0, 0.1, 1 / 3, -1e-30, 12345.678])
def test_everything_released_is_on_the_grid_and_its_low_bits_tell_nothing(kind, total):
    size = 2**16
    found = releases(total, size, kind=kind)
    grid = Grid.of(2.0, clip_norm=0.5, coordinates=size, norm=2 if kind == "gaussian" else 1)
    steps = np.ldexp(found, -grid.exponent)
    assert np.all(steps == np.rint(steps))
    whole = steps.astype(np.int64)
    for shift in (0, 4, 13):
        assert stats.chisquare(np.bincount((whole >> shift) & 15)).pvalue > ALARM


def test_the_event_that_told_sums_apart_never_occurs():
    """|y| < ¼ and no multiple of 2⁻⁵⁴ told, by noise in doubles, a sum of 0 from 1: 13 % against 0 at σ = 1."""
    rng = np.random.default_rng(0)
    doubles = 0.0 + rng.standard_normal(10**5), 1.0 + rng.standard_normal(10**5)
    told = [np.mean((np.abs(y) < 0.25) & (y * 2.0**54 != np.rint(y * 2.0**54))) for y in doubles]
    assert told[0] > 0.1
    assert told[1] == 0
    for total in (0.0, 1.0):
        y = releases(total, 10**6)
        assert np.mean(np.abs(y) < 0.25) > 0.05
        assert np.all(y * 2.0**54 == np.rint(y * 2.0**54))


def test_single_precision_is_rounded_once_after_the_noise():
    values = np.full(1000, 1 / 3, dtype=np.float32)
    one, two = (
        pc.Ledger(None, plan=STEP, seed=4).gaussian(x, STEP, clip_norm=0.5) for x in (values, values.astype(float))
    )
    assert one.dtype == np.float32
    assert np.array_equal(one, two.astype(np.float32))


def test_the_error_of_a_sum_is_paid_for():
    ledgers = [pc.Ledger(None, plan=STEP * 2, seed=5) for _ in range(2)]
    grids = [Grid.of(2.0, clip_norm=0.5, coordinates=3, error=error) for error in (0.0, 0.25)]
    assert grids[1].scale == pytest.approx(2 * grids[0].scale, rel=1e-9)
    drawn = zip(ledgers, (0.0, 0.25), strict=True)
    spread = [np.std(ledger.gaussian(np.zeros(9), STEP, clip_norm=0.5, error=error)) for ledger, error in drawn]
    assert spread[1] == pytest.approx(2 * spread[0])  # the same draws


def test_what_is_drawn_and_when_does_not_depend_on_the_sum():
    """The same words in the same portions, for sums of any size; and one number is drawn among many."""

    class Portions(SeededBits):
        def __init__(self):
            super().__init__(5)
            self.drawn = []

        def words(self, size):
            self.drawn.append(size)
            return super().words(size)

    seen = []
    for total in (0.0, 1e-300, 0.5, -1e6, 2.0**80, 1e308):
        bits = Portions()
        noise.gaussian(np.full(3, total), 1.0, clip_norm=1.0, noise=Noise(bits))
        seen.append(bits.drawn)
    assert all(drawn == seen[0] for drawn in seen)
    assert seen[0][0] >= 2**10


def test_noise_is_drawn_from_the_source_of_the_ledger():
    source = Noise(SeededBits(8, 1))
    grid = Grid.of(2.0, clip_norm=0.5, coordinates=7)
    ledger = pc.Ledger(None, plan=STEP, seed=8)
    assert np.array_equal(
        ledger.gaussian(np.zeros(7), STEP, clip_norm=0.5), grid.add(np.zeros(7), source.normal(7, grid.steps))
    )


def test_code_without_a_ledger_draws_the_same():
    for name, step in (("gaussian", STEP), ("laplace", pc.Laplace(2.0))):
        ledger = pc.Ledger(None, plan=step, seed=9)
        drawn = getattr(noise, name)([1.5, 2.5], 2.0, clip_norm=0.5, error=0.1, noise=Noise(SeededBits(9, 1)))
        assert np.array_equal(drawn, getattr(ledger, name)([1.5, 2.5], step, clip_norm=0.5, error=0.1))
    assert np.std(noise.gaussian(np.zeros(10**4, dtype=np.float32), 3.0, clip_norm=2.0)) == pytest.approx(6.0, rel=0.1)
