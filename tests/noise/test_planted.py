"""The bits of sums and noise, at all exponents; and planted bugs of noise, each of which a check must catch.

Statistical tests fail by chance with probability 1e-6 all together; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import privcalc as pc
from privcalc.ledger import Stream
from privcalc.noise import Bits, Grid, Noise, SeededBits
from privcalc.strategies import MinSeparation, Toeplitz

ALARM = 1e-6 / 2000
STEP = pc.Gaussian(noise_multiplier=1.0)
MOST = Fraction(np.finfo(np.float64).max)


def check_bits(whole, steps, at=""):
    """Whole numbers with noise of so many steps: residues are uniform, whatever the place of the bits."""
    for shift in range(0, max(1, int(math.log2(steps)) - 6), 3):
        assert stats.chisquare(np.bincount((whole >> shift) & 15, minlength=16)).pvalue > ALARM, (shift, at)


def check_law(whole, scaled):
    """Quantiles of the high bits, in 64 classes, and how far the tails are."""
    assert stats.chisquare(np.bincount(np.minimum((scaled * 64).astype(int), 63), minlength=64)).pvalue > ALARM
    assert len(np.unique(whole)) > 0.99 * whole.size


def check_noise():
    """Noise for grids of any fineness."""
    for kind, cdf in (("normal", stats.norm.cdf), ("laplace", stats.laplace.cdf)):
        for exponent in (36, 41, 47, 52):
            steps = 1.37 * 2.0 ** (exponent - 1)
            whole = getattr(Noise(SeededBits(exponent)), kind)(2**13, steps)
            check_bits(whole, steps, at=kind)
            check_law(whole, cdf(whole / steps))


def released(total, mechanism, clip_norm, seed, kind="gaussian", error=0.0):
    """What leaves, and the whole numbers that were drawn for it."""
    drawn, name = [], "normal" if kind == "gaussian" else kind
    draw = getattr(Noise, name)
    with pytest.MonkeyPatch.context() as patch, pc.Ledger(None, plan=mechanism, seed=seed) as ledger:

        def spy(self, size, steps):
            found = draw(self, size, steps)
            drawn.append(found)
            return found

        patch.setattr(Noise, name, spy)
        try:
            return getattr(ledger, kind)(total, mechanism, clip_norm=clip_norm, error=error), drawn
        except pc.PrivcalcError as refusal:
            raise AssertionError("what is refused depends on the sum") from refusal


SUMS = [0.0, 1 / 3, -1e-30, 5e-324, 1e5 + 1 / 3, -(2.0**52), 2.0**80 / 3, 1e300, -1.7e308]


def check_sums():
    """Of any sum the nearest double to g·(round(sum/g) + k), g from public numbers: in rational arithmetic."""
    for number, (kind, clip_norm) in enumerate(
        [("gaussian", 0.5), ("laplace", 0.5), ("gaussian", 1e-100), ("gaussian", 1e100)]
    ):
        mechanism = STEP if kind == "gaussian" else pc.Laplace(1.0)
        for total in (np.repeat(SUMS, 40) * min(1.0, clip_norm * 2), np.zeros(360)):
            grid = Grid.of(1.0, clip_norm=clip_norm, coordinates=total.size, norm=2 if kind == "gaussian" else 1)
            g = Fraction(2) ** grid.exponent
            found, drawn = released(total, mechanism, clip_norm, number, kind)
            assert len(drawn) == 1
            for value, k, result in zip(total.tolist(), drawn[0].tolist(), found.tolist(), strict=True):
                exact = g * (round(Fraction(value) / g) + k)
                assert result == float(min(max(exact, -MOST), MOST))


def check_released_bits(size=2**12):
    """Sums of any size, next to where they are added otherwise; what doubles leave of them."""
    grid = Grid.of(1.0, clip_norm=0.7, coordinates=size)
    for number, power in enumerate([None, 0, 20, 37, 51, 53, 58, 60, 61, 70]):
        for offset in (-1 / 3, 0.5):
            total = offset if power is None else 2.0**power + offset
            found, _ = released(np.full(size, math.ldexp(total, grid.exponent)), STEP, 0.7, number)
            last = max(0, (power or 0) - 51)  # the last bit of a double but one, in steps: the last is rounded to even
            on_grid = np.ldexp(found, -grid.exponent)
            assert np.all(on_grid == np.rint(on_grid))
            whole = np.floor(np.ldexp(on_grid, -last)).astype(np.int64)
            check_bits(whole, grid.steps / 2**last, at=f"2^{power}")


def check_rare_choices():
    """A candidate far behind is chosen where the uniform number says so: by noise in doubles it never is."""

    class Late(Bits):
        """A uniform number next to 1: two words of ones, then zeros."""

        drawn = 0

        def words(self, size):
            self.drawn += size
            return np.where(np.arange(self.drawn - size, self.drawn) < 2, 2**64 - 1, 0).astype(np.uint64)

    for behind in (1.0, 20.0, 44.0, 80.0):
        assert Noise(Late()).choose(np.array([0.0, -behind]), Fraction(1)) == 1


def check_choices():
    scores = np.array([0.0, 1.0, 1.5, -3.0])
    found = [Noise(SeededBits(3, i)).choose(scores, Fraction(1)) for i in range(4000)]
    weights = np.exp(scores)
    assert stats.chisquare(np.bincount(found, minlength=4), 4000 * weights / weights.sum()).pvalue > ALARM


def check_stream():
    """Other sums, and noise that makes up for them, give the same bits; so do sums that are snapped to the same."""
    strategy = Toeplitz([0.75, -1.0], 4)
    run, rng = pc.CorrelatedGaussian(1.5, strategy, MinSeparation(separation=2)), np.random.default_rng(3)
    whole = [int(c * 2**20) for c in strategy.coefficients]
    steps, noise = rng.integers(-(2**30), 2**30, (2, 4, 100)), rng.integers(-(2**50), 2**50, (4, 100))
    apart = steps[0] - steps[1]
    moved = whole[0] * apart
    moved[1:] += whole[1] * apart[:-1]
    found = []
    for x, z in ((steps[0], noise), (steps[1], noise + moved), (steps[0] + 0.3, noise)):
        given = list(z.copy())
        with pytest.MonkeyPatch.context() as patch, pc.Ledger(None, plan=run) as ledger:
            patch.setattr(Noise, "normal", lambda self, size, scale, given=given: given.pop(0))
            stream = ledger.correlated(run, coordinates=100, clip_norm=1.0)
            found.append([stream.release(row).tobytes() for row in np.ldexp(x, stream._grid.exponent)])
    assert found[0] == found[1] == found[2]


CHECKS = [check_noise, check_sums, check_released_bits, check_rare_choices, check_choices, check_stream]


@pytest.mark.parametrize("check", CHECKS)
def test_the_code_passes_its_checks(check):
    check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "laplace"])
@pytest.mark.parametrize("exponent", [36, 40, 44, 48, 52])
def test_bits_of_much_noise(kind, exponent):
    steps = 1.37 * 2.0 ** (exponent - 1)
    whole = getattr(Noise(SeededBits(7, exponent)), kind)(
        10**6 if exponent < 46 else 10**5, steps
    )  # finer ones take long
    check_bits(whole, steps)
    for shift in range(0, exponent - 20, 4):
        assert stats.chisquare(np.bincount((whole >> shift) & 1023, minlength=1024)).pvalue > ALARM


@pytest.mark.slow
def test_bits_of_many_releases():
    check_released_bits(2**16)


# --- planted bugs ---


def float_noise(patch):
    """As libraries draw it: a normal number in doubles, added in doubles."""

    def add(self, values, noise):
        return values + (self.scale * np.random.default_rng(1).standard_normal(values.size)).reshape(values.shape)

    patch.setattr(Grid, "add", add)


def float_noise_on_a_coarse_grid(patch):
    """Rounded to a multiple of 2⁻²⁰ σ, in steps."""
    rng = np.random.default_rng(1)
    patch.setattr(
        Noise,
        "normal",
        lambda self, size, steps: np.rint(rng.standard_normal(size) * 2**20).astype(np.int64) * int(steps / 2**20),
    )


def an_unsnapped_sum(patch):
    patch.setattr(
        Grid, "add", lambda self, values, noise: values + np.ldexp(noise.reshape(values.shape) * 1.0, self.exponent)
    )


def snapping_after_noise(patch):
    @np.errstate(over="ignore")
    def add(self, values, noise):
        return np.ldexp(np.rint(np.ldexp(values, -self.exponent) + noise.reshape(values.shape)), self.exponent)

    patch.setattr(Grid, "add", add)


def a_grid_from_private_data(patch):
    add = Grid.add

    def finer(self, values, noise):
        exponent = min(self.exponent, math.frexp(float(np.abs(values).min()))[1])
        return add(dataclasses.replace(self, exponent=max(exponent, self.exponent - 3)), values, noise * 8)

    patch.setattr(Grid, "add", finer)


def a_range_from_private_data(patch):
    add = Grid.add

    def within(self, values, noise):
        most = float(np.abs(values).max()) + 2 * self.scale
        return np.clip(add(self, values, noise), -most, most)

    patch.setattr(Grid, "add", within)


def a_range_of_an_integer(patch):
    """Sums beyond 2⁶³ steps wrap around, or stop there."""
    add = Grid.add
    patch.setattr(
        Grid,
        "add",
        lambda self, values, noise: add(
            self, np.clip(values, *(x * 2.0**62 * 2.0**self.exponent for x in (-1, 1))), noise
        ),
    )


def a_refusal_that_depends_on_data(patch):
    add = Grid.add

    def refusing(self, values, noise):
        if np.abs(values).max() > math.ldexp(2.0**53, self.exponent):
            raise pc.PrivcalcError("values: too large for the grid")
        return add(self, values, noise)

    patch.setattr(Grid, "add", refusing)


def noise_in_float32(patch):
    normal = Noise.normal
    patch.setattr(
        Noise, "normal", lambda self, size, steps: normal(self, size, steps).astype(np.float32).astype(np.int64)
    )


def noise_of_32_bits(patch):
    """A uniform number of 32 bits for each: not all places of the grid can come up."""

    def normal(self, size, steps):
        place = ((self.bits.words(size) >> np.uint64(32)).astype(np.float64) + 0.5) * 2.0**-32
        return np.rint(stats.norm.ppf(place) * steps).astype(np.int64)

    patch.setattr(Noise, "normal", normal)


def gumbel_in_doubles(patch):
    def choose(self, scores, factor):
        u = np.minimum((self.bits.words(scores.size).astype(np.float64) + 0.5) * 2.0**-64, 1 - 2.0**-53)
        return int(np.argmax(scores * float(factor) - np.log(-np.log1p(-u))))

    patch.setattr(Noise, "choose", choose)


def choices_without_their_factor(patch):
    choose = Noise.choose
    patch.setattr(Noise, "choose", lambda self, scores, factor: choose(self, scores, factor / 2))


def a_stream_that_snaps_after_decoding(patch):
    """Noise is decoded in doubles, the sum is added, and the result is snapped."""

    def release(self, values):
        found = self._encoder.next(np.zeros(self.coordinates), self._drawn)
        self._step += 1
        return np.ldexp(np.rint(np.ldexp(values + found, -self._grid.exponent)), self._grid.exponent)

    patch.setattr(Stream, "release", release)


BUGS = {
    float_noise: [check_sums, check_released_bits],
    float_noise_on_a_coarse_grid: [check_noise],
    an_unsnapped_sum: [check_sums, check_released_bits],
    snapping_after_noise: [check_sums],
    a_grid_from_private_data: [check_sums],
    a_range_from_private_data: [check_sums],
    a_range_of_an_integer: [check_sums],
    a_refusal_that_depends_on_data: [check_sums],
    noise_in_float32: [check_noise],
    noise_of_32_bits: [check_noise],
    gumbel_in_doubles: [check_rare_choices],
    choices_without_their_factor: [check_choices],
    a_stream_that_snaps_after_decoding: [check_stream],
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug, monkeypatch):
    bug(monkeypatch)
    for check in BUGS[bug]:
        with pytest.raises(AssertionError):
            check()
