"""`Pair.profile`: δ within its error, and a line below the whole profile with the tail's slope (proofs/tails.md).

The truth is in 150 digits. By the lemma of Neyman and Pearson, power(s), the largest P(φ) of a test with Q(φ) ≤ s,
tells which lines lie below a profile: p − s·x does iff p ≤ power(s). Sampling changes the power in closed form.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pytest
from mpmath import mp, mpf

from privcalc.mechanisms.discrete_gaussian import DiscreteGaussianPair, OppositeDiscreteGaussianPair
from privcalc.mechanisms.exponential import BoundedRangePair
from privcalc.mechanisms.fixed_size import NulledSlotPair
from privcalc.mechanisms.laplace import LaplacePair, OppositeLaplacePair
from privcalc.numerics.floats import TINY, UNIT
from privcalc.numerics.log_moment import slope_error
from privcalc.pairs.discrete import DiscretePair
from privcalc.pairs.gaussian import GaussianPair, OppositeGaussianPair
from privcalc.pairs.pair import LeakPair, Pair
from privcalc.pairs.poisson import JointConvexityPair, SampledPair
from privcalc.pairs.replace_one import opposite as opposite_pair
from privcalc.pairs.two_point import TwoPointPair

DIGITS = 150


class Truth(Protocol):
    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        """P(L > loss), Q(L > loss)."""

    def power(self, s: mpf) -> mpf: ...

    @property
    def reverse(self) -> Truth: ...


def log_root(f: Callable[[mpf], mpf], low: mpf, high: mpf) -> mpf:
    """Where a rising f passes 0 (regula falsi, Illinois)."""
    f_low, f_high, side = f(low), f(high), 0
    for _ in range(500):
        x = (low * f_high - high * f_low) / (f_high - f_low)
        if not low < x < high:
            x = (low + high) / 2
        value = f(x)
        if value == 0 or high - low < mpf(10) ** (20 - DIGITS) * max(1, abs(x)):
            break
        if value < 0:
            low, f_low, f_high, side = x, value, f_high / (2 if side < 0 else 1), -1
        else:
            high, f_high, f_low, side = x, value, f_low / (2 if side > 0 else 1), 1
    return x


@dataclass(frozen=True)
class Shift:
    """A loss that rises with a normal variable t: (1 − q)N(0) + qN(a) against (1 − q)N(0) + qN(b), tests {t > τ}."""

    q: mpf
    a: mpf
    b: mpf

    def tails(self, t: mpf) -> tuple[mpf, mpf]:
        stay = (1 - self.q) * mp.erfc(t / mp.sqrt(2)) / 2
        return tuple(stay + self.q * mp.erfc((t - m) / mp.sqrt(2)) / 2 for m in (self.a, self.b))

    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        if self.q == 1:
            return self.tails(loss / (self.a - self.b) + (self.a + self.b) / 2)
        return self.tails(
            (loss / 2 + mp.asinh((1 - self.q) * mp.sinh(loss / 2) * mp.exp(self.a**2 / 2) / self.q)) / self.a
        )

    def power(self, s: mpf) -> mpf:
        if not 0 < s < 1:
            return mpf(s >= 1)
        far = 2 * mp.sqrt(max(-2 * mp.log(s), 1)) + 10
        return self.tails(log_root(lambda t: mp.log(s) - mp.log(self.tails(t)[1]), -far - 200 - 2 * self.a, far))[0]

    @property
    def reverse(self) -> Truth:
        return self


@dataclass(frozen=True)
class Laplace:
    a: mpf

    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        if abs(loss) >= self.a:
            return (mpf(0), mpf(0)) if loss > 0 else (mpf(1), mpf(1))
        return 1 - mp.exp((loss - self.a) / 2) / 2, mp.exp(-(self.a + loss) / 2) / 2

    def power(self, s: mpf) -> mpf:
        atom = mp.exp(-self.a)
        middle = 1 - atom / (4 * s) if atom / 2 < s <= 0.5 else 1 - (1 - s) * atom
        return s / atom if s <= atom / 2 else middle

    @property
    def reverse(self) -> Truth:
        return self


@dataclass(frozen=True)
class OppositeLaplace:
    """Levels τ of the ``Laplace`` trade-off, mirrored: (1 − q)τ + q·power(τ) against (1 − q)τ + q(1 − power(1 − τ))."""

    a: mpf
    q: mpf

    def laws(self, level: mpf) -> tuple[mpf, mpf]:
        power = Laplace(self.a).power
        return (1 - self.q) * level + self.q * power(level), (1 - self.q) * level + self.q * (1 - power(1 - level))

    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        # The likelihood ratio of the first law at τ is a quotient of slopes, that of the second e^{−a} up to ½.
        ratio = (mp.exp(loss) * (1 - self.q + self.q * mp.exp(-self.a)) - (1 - self.q)) / self.q
        atom = mp.exp(-self.a) / 2
        if ratio >= mp.exp(self.a):
            return mpf(0), mpf(0)
        return self.laws(mp.sqrt(atom / (2 * ratio)) if ratio > mp.exp(-self.a) else mpf(0.5))

    def power(self, s: mpf) -> mpf:
        if not 0 < s < 1:
            return mpf(s >= 1)
        level = mp.exp(
            log_root(lambda t: mp.log(self.laws(mp.exp(t))[1]) - mp.log(s), mp.log(s) - 1, mp.log(s) + 110 + self.a)
        )
        return self.laws(min(level, mpf(1)))[0]

    @property
    def reverse(self) -> Truth:
        return self


@dataclass(frozen=True)
class Logistic:
    a: mpf

    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        if abs(loss) >= self.a:
            return (mpf(0), mpf(0)) if loss > 0 else (mpf(1), mpf(1))
        s = mp.expm1((loss - self.a) / 2) / mp.expm1(-self.a) * mp.exp(-(loss + self.a) / 2)
        return self.power(s), s

    def power(self, s: mpf) -> mpf:
        return 1 / (1 + (1 - s) / s * mp.exp(-self.a)) if s > 0 else mpf(0)

    @property
    def reverse(self) -> Truth:
        return self


@dataclass(frozen=True)
class Atoms:
    """Finitely many outcomes, of probabilities (p, q), the largest ratio first."""

    outcomes: tuple[tuple[mpf, mpf], ...]

    @staticmethod
    def of(outcomes: list[tuple[mpf, mpf]]) -> Atoms:
        return Atoms(tuple(sorted(outcomes, key=lambda o: -o[0] / o[1] if o[1] else -mp.inf)))

    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        x = mp.exp(loss) * (1 + mpf(10) ** (10 - DIGITS))
        kept = [(p, q) for p, q in self.outcomes if p > x * q]
        return mp.fsum(p for p, _ in kept), mp.fsum(q for _, q in kept)

    def power(self, s: mpf) -> mpf:
        total = mpf(0)
        for p, q in self.outcomes:
            if q > s:
                return total + p * s / q
            total, s = total + p, s - q
        return total

    @property
    def reverse(self) -> Truth:
        return Atoms.of([(q, p) for p, q in self.outcomes])


@dataclass(frozen=True)
class Sampled:
    base: Truth
    q: mpf
    add: bool

    def above(self, loss: mpf) -> tuple[mpf, mpf]:
        inner = 1 + mp.expm1(-loss if self.add else loss) / self.q
        if inner <= 0:
            return (mpf(0), mpf(0)) if self.add else (mpf(1), mpf(1))
        if self.add:
            p, r = self.base.reverse.above(-mp.log(inner))
            return p, (1 - self.q) * p + self.q * r
        p, r = self.base.above(mp.log(inner))
        return (1 - self.q) * r + self.q * p, r

    def power(self, s: mpf) -> mpf:
        if not self.add:
            return (1 - self.q) * s + self.q * self.base.power(s)
        if not 0 < s < 1:
            return mpf(s >= 1)
        reverse, high = self.base.reverse, min(mpf(0), mp.log(s / self.q))

        def over(log_r: mpf) -> mpf:
            r = mp.exp(log_r)
            return mp.log(((1 - self.q) * reverse.power(r) + self.q * r) / s)

        low = high - 1
        while over(low) > 0:
            low -= 2 * (high - low)
        return reverse.power(mp.exp(log_root(over, low, high)))

    @property
    def reverse(self) -> Truth:
        return Sampled(self.base, self.q, not self.add)


def check(pair: Pair, truth: Truth, losses: list[float]) -> None:
    """The promise at these losses."""
    delta, tail, error = pair.profile(np.array(losses))
    blur = slope_error(delta, tail, error) / 1.001
    with mp.workdps(DIGITS):
        for e, value, slope, off, bound in zip(
            losses, *map(np.ndarray.tolist, (delta, tail, blur, error)), strict=True
        ):
            y = mp.exp(mpf(e))
            p, s = truth.above(mpf(e))
            assert abs(value - max(p - y * s, 0)) <= bound, (pair, e)
            # The tangent at e if its slope will do, else the nearest slope that will.
            best = min(max(s, max(mpf(slope) - mpf(off) - mpf(TINY), 0) / y), (mpf(slope) + mpf(off) + mpf(TINY)) / y)
            assert truth.power(best) - best * y >= mpf(value) - mpf(bound), (pair, e)


def ulps(x: float, rng: random.Random, most: int = 20) -> float:
    return x * (1 + rng.randint(-most, most) * 2.0**-53)


def near(pair: Pair, rng: random.Random) -> list[float]:
    """Losses near 0, near atoms and the largest loss, to a few units; and where the profile is from 1 to 1e-290."""
    found, top = [0.0, 1e-300, 1e-17, 1e-9], pair.max_loss
    atoms = pair.atoms
    edges = [top] if 0 < top < math.inf else []
    edges += (
        []
        if atoms is None
        else rng.sample(atoms.losses[atoms.losses > 0].tolist(), min(3, int(np.sum(atoms.losses > 0))))
    )
    for x in edges:
        found += [
            x,
            ulps(x, rng),
            ulps(x, rng),
            math.nextafter(x, 0),
            math.nextafter(x, 2 * x),
            x * (1 - 1e-9),
            x * rng.random(),
        ]
    far = max(float(pair.profile(np.zeros(1))[0][0]), 1e-12)
    while far < 600 and pair.profile(np.array([1.5 * far]))[0][0] > 1e-290:
        far *= 1.5
    found += [far * 10 ** rng.uniform(-6, 0) for _ in range(5)]
    return [x for x in found if 0 <= x < 700]


def spread(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def rate(rng: random.Random) -> float:
    return rng.choice([spread(rng, 1e-9, 0.999), spread(rng, 1e-60, 0.999), 0.01, 0.5, 0.999, 1 - 2.0**-53])


Made = tuple[Pair, Truth]


def gaussian(rng: random.Random) -> Made:
    mu = rng.choice([spread(rng, 1e-6, 1e3), spread(rng, 0.01, 10), 1e-4, 1e4])
    return GaussianPair(mu), Shift(mpf(1), mpf(mu), mpf(0))


def laplace(rng: random.Random) -> Made:
    a = spread(rng, 1e-6, 100)
    return LaplacePair(a), Laplace(mpf(a))


def logistic(rng: random.Random) -> Made:
    a = spread(rng, 1e-6, 100)
    return BoundedRangePair(a), Logistic(mpf(a))


def two_point(rng: random.Random, count: int = 1) -> Made:
    high = 50 if count == 1 else 5
    up, down = spread(rng, 1e-6, high), rng.choice([spread(rng, 1e-6, high), 1.0])
    with mp.workdps(DIGITS):
        total = -mp.expm1(-mpf(up) - mpf(down))
        p, r = -mp.expm1(-mpf(down)) / total, mp.exp(-mpf(down)) * -mp.expm1(-mpf(up)) / total
        masses = [
            (mp.binomial(count, k) * p**k * r ** (count - k), k * mpf(up) - (count - k) * mpf(down))
            for k in range(count + 1)
        ]
        truth = Atoms.of([(mass, mass * mp.exp(-loss)) for mass, loss in masses])
    found = TwoPointPair(up, down).power(count)
    assert found is not None
    return found, truth


def powers(rng: random.Random) -> Made:
    return two_point(rng, rng.randint(2, 30))


def discrete_gaussian(rng: random.Random) -> Made:
    sigma, shift = spread(rng, 0.2, 5), rng.randint(1, 3)
    far = int(40 * sigma) + 8
    with mp.workdps(DIGITS):
        weight = {x: mp.exp(-(mpf(x) ** 2) / (2 * mpf(sigma) ** 2)) for x in range(-far - shift, far + shift + 1)}
        total = mp.fsum(weight.values())
        truth = Atoms.of([(weight[x - shift] / total, weight[x] / total) for x in range(-far, far + 1)])
    return DiscreteGaussianPair(sigma, shift), truth


def probabilities(rng: random.Random, size: int) -> list[float]:
    """With sum exactly 1."""
    return probabilities_of(rng, size, rng.choice([4, 20, 40]))


def probabilities_of(rng: random.Random, size: int, bits: int) -> list[float]:
    """Multiples of 2^−bits."""
    cuts = [0, *sorted(rng.sample(range(1, 2**bits), size - 1)), 2**bits]
    return [(high - low) / 2**bits for low, high in itertools.pairwise(cuts)]


def discrete(rng: random.Random, rest: int = 0) -> Made:
    size = rng.randint(2, 6)
    p, q = probabilities(rng, size), probabilities(rng, size + rest)
    both = [(mpf(x), mpf(y)) for x, y in zip([*p, 0.0][: size + rest], q, strict=True)]
    return DiscretePair(tuple(p), tuple(q[:size]), q[-1] if rest else 0.0), Atoms.of(both)


def with_rest(rng: random.Random) -> Made:
    return discrete(rng, 1)


def opposite(rng: random.Random) -> Made:
    mu, q = rng.choice([spread(rng, 1e-20, 50), spread(rng, 0.05, 5), 1e3]), rate(rng)
    return OppositeGaussianPair(mu, q), Shift(mpf(q), mpf(mu), -mpf(mu))


def opposite_laplace(rng: random.Random) -> Made:
    a, q = spread(rng, 1e-6, 100), rate(rng)
    return OppositeLaplacePair(a, q), OppositeLaplace(mpf(a), mpf(q))


def opposite_integers(rng: random.Random) -> Made:
    sigma, shift, q = spread(rng, 0.2, 5), rng.randint(1, 3), rate(rng)
    count = rng.choice([1, 2, 3]) if shift / 12 < sigma < 1 else 1  # more would be slow here, or too far apart
    far = int(40 * sigma) + 8
    with mp.workdps(DIGITS):
        one = {x: mp.exp(-(mpf(x) ** 2) / (2 * mpf(sigma) ** 2)) for x in range(-far, far + 1)}
        weight = one
        for _ in range(count - 1):
            weight, before = dict.fromkeys(range(min(weight) - far, max(weight) + far + 1), mpf(0)), weight
            for (x, p), (y, r) in itertools.product(before.items(), one.items()):
                weight[x + y] += p * r
        total, loss = mp.fsum(weight.values()), shift / mpf(sigma) ** 2
        laws = [
            [
                w / total * (1 - mpf(q) + mpf(q) * mp.exp(loss * (s * x - mpf(count * shift) / 2)))
                for x, w in weight.items()
            ]
            for s in (1, -1)
        ]
        truth = Atoms.of(list(zip(*laws, strict=True)))
    pair = opposite_pair(DiscreteGaussianPair(sigma, shift, count), q)
    assert isinstance(pair, OppositeDiscreteGaussianPair)
    return pair, truth


def opposite_outcomes(rng: random.Random) -> Made:
    """Sixteen equally likely levels; the laws with a record are any."""
    q, parts = rate(rng), rng.randint(2, 6)
    null = [16 * x for x in probabilities_of(rng, parts, 4)]
    p = probabilities(rng, parts)
    with mp.workdps(DIGITS):
        ratios = sorted((mpf(x) * 16 / n for x, n in zip(p, null, strict=True) for _ in range(int(n))), reverse=True)
        high = [((1 - mpf(q)) + mpf(q) * r) / 16 for r in ratios]
        truth = Atoms.of(list(zip(high, high[::-1], strict=True)))
    return opposite_pair(DiscretePair(tuple(p), tuple(n / 16 for n in null), 0.0), q), truth


BASES = [gaussian, laplace, logistic, two_point, discrete_gaussian, discrete]


def sampled(base: Callable[[random.Random], Made]) -> Callable[[random.Random], Made]:
    def make(rng: random.Random) -> Made:
        (pair, truth), q = base(rng), rate(rng)
        return SampledPair(pair, q, add=False), Sampled(truth, mpf(q), add=False)

    make.__name__ = f"sampled_{base.__name__}"
    return make


MAKERS = [
    *BASES,
    powers,
    with_rest,
    opposite,
    opposite_laplace,
    opposite_integers,
    opposite_outcomes,
    *map(sampled, BASES),
]


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_a_profile_promises(make: Callable[[random.Random], Made], count: int) -> None:
    for seed in range(count):
        rng = random.Random(seed)
        pair, truth = make(rng)
        for one, true in ((pair, truth), (pair.reverse, truth.reverse)):
            check(one, true, near(one, rng))


def test_a_tail_at_another_point() -> None:
    """The examples by which "to 1e-11 relative" was refuted; the promise holds there."""
    rare, loss = OppositeGaussianPair(1.883e-5, 1.694e-8), 1.4994547606545014e-11
    check(rare, Shift(mpf(rare.rate), mpf(rare.mu), -mpf(rare.mu)), [loss])
    pair = SampledPair(LaplacePair(1.0), 0.01, add=False)
    truth, top = Sampled(Laplace(mpf(1)), mpf(0.01), add=False), pair.max_loss
    losses = [top * (1 + k * 2.0**-53) for k in range(-12, 13)]
    check(pair, truth, losses)
    with mp.workdps(DIGITS):
        exact = [float(mp.exp(mpf(e)) * truth.above(mpf(e))[1]) for e in losses]
    assert np.max(np.abs(pair.profile(np.array(losses))[1] - exact)) > 0.1


def test_opposite_records_with_a_hopeless_signal() -> None:
    """With μ = 8e-17 the threshold's terms, up to 20, must not cancel to 1e-16: δ was 0 ± 1e-306 where it is 2e-224."""
    mu, q, loss = 8.400693514298335e-17, 7.710016553007945e-10, 3.8861691631191986e-24
    check(OppositeGaussianPair(mu, q), Shift(mpf(q), mpf(mu), -mpf(mu)), [loss, 0.1 * loss, 1e-3 * loss])


@pytest.mark.parametrize("add", [False, True])
def test_a_sampled_loss_never_exceeds_its_largest(add: bool) -> None:
    rng = random.Random(2)
    cases = [(49.75084190563201, 7.298330707254749e-73), (1e-9, 0.9), (700.5, 1e-304), (750.0, 0.5)]
    cases += [(spread(rng, 1e-9, 700), rate(rng)) for _ in range(200)]
    for a, q in cases:
        with mp.workdps(DIGITS + 500):
            inner = -mpf(a) if add else mpf(a)
            truth = abs(mp.log1p(mpf(q) * mp.expm1(inner)))
            largest = mpf(SampledPair(LaplacePair(a), q, add).max_loss)
            assert truth <= largest * (1 + 4 * mpf(UNIT)), (a, q)
            assert largest <= truth * (1 + mpf(1e-11)), (a, q)


def test_bounds_by_joint_convexity() -> None:
    """Pairs that are bounds: their formulas in 150 digits; a leak likewise."""
    rng = random.Random(5)
    for _ in range(20):
        one, two, q = spread(rng, 1e-4, 20), spread(rng, 1e-4, 20), rate(rng)
        pair = JointConvexityPair(LaplacePair(one), LaplacePair(two), q)
        slot = NulledSlotPair(LaplacePair(2 * one), LaplacePair(one), q)
        leak = LeakPair(LaplacePair(one), q / 2, q / 2, q / 2)
        losses = [0.0, 1e-300, 1e-12, *(x * one for x in (1e-6, 0.1, 0.5, 0.999, 1, 1 + 4e-16))]
        for which, a, b in ((pair, one, two), (slot, 2 * one, one)):
            delta, _, error = which.profile(np.array(losses))
            for e, value, bound in zip(losses, delta.tolist(), error.tolist(), strict=True):
                with mp.workdps(DIGITS):
                    inner = mp.log1p(mp.expm1(mpf(e)) / mpf(q))
                    beta = mp.exp(mpf(e) - inner)
                    parts = [max(-mp.expm1((x - mpf(c)) / 2), 0) for x, c in ((inner, a), (inner, b), (mpf(e), b))]
                    truth = mpf(q) * ((1 - beta) * parts[0] + beta * parts[1])
                    if which is slot:
                        k, top = mpf(a), mpf(b)
                        rest = (1 - mpf(q)) * mp.exp(-k)
                        largest = mp.log((rest + mpf(q)) / (rest + mpf(q) * mp.exp(-top)))
                        truth = min(truth, mpf(q) * parts[2]) if e < largest else mpf(0)
                    assert abs(value - truth) <= bound, (which, e)
        delta, _, error = leak.profile(np.array(losses))
        for e, value, bound in zip(losses, delta.tolist(), error.tolist(), strict=True):
            with mp.workdps(DIGITS):
                truth = mpf(q / 2) + (1 - mpf(q / 2)) * max(-mp.expm1((mpf(e) - mpf(one)) / 2), 0)
                assert abs(value - truth) <= bound, (leak, e)
