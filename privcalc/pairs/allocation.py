"""A record that takes part in one of t steps, drawn uniformly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from privcalc.numerics.allocation import AllocationTransform
from privcalc.numerics.allocation_bounds import MOST_MU as MOST_SPREAD
from privcalc.numerics.allocation_bounds import Points, between, scores
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, Transform
from privcalc.numerics.lognormal_sum import LognormalSum
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import gdp_profile
from privcalc.pairs.discrete import DiscretePair
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import LeakPair, Pair


@dataclass(frozen=True)
class ProductPair(Pair):
    """Several pairs, each so many times, independently; ``whole`` dominates the product, and is simple."""

    parts: tuple[tuple[Pair, int], ...]
    whole: Pair

    @property
    def factors(self) -> tuple[tuple[Pair, int], ...]:
        return self.parts

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Between nothing and that of the whole."""
        delta, tail, error = self.whole.profile(epsilon)
        return ProfileValues(0 * delta, 0 * tail, delta + error)

    @property
    def reverse(self) -> Pair:
        return ProductPair(tuple((pair.reverse, count) for pair, count in self.parts), self.whole.reverse)

    @property
    def zcdp(self) -> float:
        return self.whole.zcdp

    @property
    def gdp_bounds(self) -> Bounds:
        """Bounds (0, μ), the upper one of the whole."""
        return 0.0, self.whole.gdp_bounds[1]


MOST_MU = 2.5
"""With less noise the inversion has too many nodes."""

_ROUGH = 1e-4
"""The relative error of the inversion beyond which the grid is asked, too."""

_FEW_SLOTS, _FINE, _USUAL = 4, 1500, 700
"""Points of a grid: the first number up to so many slots."""

_ROUGHLY, _SHORT = 120, 0.99
"""Points of the grid that a search begins with; and where it begins, as a share of what they say: δ is larger there."""

LEAK = 1e-16
"""About what is told apart when outcomes of large loss are merged."""

_TILT, _SCORES = 0.6, 1000
"""The scores' rate, over k/t, about the best; and the number of outcomes that are told apart.

What holds does not depend on the rate.
"""

_GONE = 1e-32
"""Outcomes rarer than this under both laws are cut off the ends of a grid."""


@dataclass(frozen=True)
class AllocationPair(Pair):
    """(1/t)Σ_j N(μe_j, I) against N(0, I) in t dimensions; with ``add`` in the other order (``proofs/allocation.md``).

    With S the sum of t lognormal ratios r_j under Q: δ(ε) = E(S − te^ε)_+/t; in the other order e^ε·E(te^{−ε} − S)_+/t.
    """

    mu: float
    steps: int
    add: bool

    @np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
    def profile(self, epsilon: Floats) -> ProfileValues:
        """Bounds by inversion and on a grid, at most those of moments, and of the unsampled Gaussian's profile.

        The latter is N(μ, 1) against N(0, 1).
        """
        if self.mu > MOST_MU:
            most, _, most_error = gdp_profile(self.mu, epsilon)
            return self._of_root(
                epsilon, *self._sharpened(epsilon, np.zeros_like(most), np.zeros_like(most), most + most_error)
            )
        t, sign = self.steps, -1.0 if self.add else 1.0
        near = np.minimum(epsilon, 700.0)
        k = t * np.expm1(sign * near)
        law = _law(self.mu, t)
        put, put_error, mass, mass_error = law.deviations(k)
        share = np.exp(near) / t if self.add else np.full_like(near, 1 / t)
        mass = np.where((k == 0) & self.add, 1 - mass, mass)
        delta = share * put
        # A rounding of k counts as much as the mass beyond.
        error = share * (put_error + 4 * UNIT * np.abs(k) * (mass + mass_error)) + 8 * UNIT * (2 + near) * delta
        tail, tail_error = (
            (mass - delta, mass_error + error) if self.add else (np.exp(near) * mass, np.exp(near) * mass_error)
        )
        most, _, most_error = gdp_profile(self.mu, epsilon)
        high = np.minimum(delta + error, most + most_error)
        if not self.add:
            high = np.minimum(high, share * np.exp(law.log_beyond(k)[0]) * (1 + 1e-9))
        # Where all that is known is small: 0, and a bound as its error.
        poor = (delta <= error) | (tail <= tail_error) | (delta + error > high)
        error = np.maximum(error, delta * np.minimum(2 * tail_error / np.maximum(tail, TINY), 1.0))
        high = np.maximum(high, 0.0) * (1 + 4 * UNIT)
        delta, tail, error = (np.where(poor, *ends) for ends in ((0.0, delta), (0.0, tail), (high, error)))
        return self._of_root(epsilon, *self._sharpened(epsilon, delta, tail, error + TINY))

    def _of_root(self, epsilon: Floats, delta: Floats, tail: Floats, error: Floats) -> ProfileValues:
        """Return the profile with an error for μ, which three roundings move (``proofs/allocation.md``, §5)."""
        size = np.minimum((0.0 if self.add else delta + error) + tail, 1.0)
        rare = np.maximum(-np.log(np.maximum(size, TINY)) + (epsilon if self.add else 0.0), 0.5)
        return ProfileValues(delta, tail, error + 4 * UNIT * self.mu * size * np.sqrt(2 * rare))

    def _sharpened(self, epsilon: Floats, *known: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the profile with more digits where it has few, δ lying between those of two pairs on a grid."""
        delta, tail, error = (value.copy() for value in known)
        few = np.flatnonzero(error > _ROUGH * delta)
        laws = _between(self.mu, self.steps) if few.size else None
        if laws is not None:
            (merged, _), (spread, _) = (pairs[:: -1 if self.add else 1] for pairs in laws)
            low, high = merged.profile(epsilon[few]), spread.profile(epsilon[few])
            bottom, top = low.delta - low.error, np.minimum(high.delta + high.error, (delta + error)[few])
            # No less than the error of the line, so that what its slope may be off is known from it.
            half = np.maximum(0.5 * (top - bottom), 2 * low.error) * (1 + 4 * UNIT)
            better = half < error[few]
            at = few[better]
            delta[at], tail[at], error[at] = (bottom + half)[better], low.tail[better], half[better]
        return delta, tail, error

    def guess(self, delta: float) -> float | None:
        """An ε from a few points, about thrice as far above as below.

        Where these are too far apart, it is about that of a normal sum.
        """
        below, above = (_read(law, self, delta) for law in between(self.mu, self.steps, _ROUGHLY) or (None, None))
        # A guess where a search starts: its constants are empirical, only speed depends on them.
        if not above < 2.5 * below:
            rho = 0.5 * math.expm1(self.mu**2) / self.steps
            return 0.6 * (rho + 2 * math.sqrt(rho * -math.log(delta)))
        return _SHORT * (0.75 * below + 0.25 * above)

    @property
    def transform(self) -> Transform | None:
        """By a rule on rays, where these have few nodes."""
        serves = AllocationTransform.serves(self.mu, self.steps)
        return AllocationTransform(self.mu, self.steps, self.add) if serves else None

    @property
    def reverse(self) -> AllocationPair:
        return AllocationPair(self.mu, self.steps, not self.add)

    @property
    def zcdp(self) -> float:
        """The unsampled pair dominates: P is a mixture of such."""
        return 0.5 * self.mu**2

    @property
    def gdp_bounds(self) -> Bounds:
        """Between nothing and the unsampled pair."""
        return 0.0, self.mu


@dataclass(frozen=True)
class MergedPair(Pair):
    """The pair after a post-processing that makes one outcome of all whose loss exceeds ``end``.

    With ``back`` it is in the other order.

    Up to ``end`` the profile is as it was, beyond it a line in e^ε, below it. At ε ≤ 0 nothing changes.
    """

    of: AllocationPair
    end: float
    back: bool = False

    @cached_property
    def _last(self) -> tuple[float, float, float]:
        delta, tail, error = self.of.profile(np.array([self.end]))
        return float(delta[0]), float(tail[0]), float(error[0])

    def profile(self, epsilon: Floats) -> ProfileValues:
        if self.back:
            return self.of.reverse.profile(epsilon)
        delta, tail, error = self.of.profile(np.minimum(epsilon, self.end))
        last, slope, blur = self._last
        rise = np.expm1(np.minimum(np.maximum(epsilon - self.end, 0.0), 700.0))
        beyond, gone = epsilon > self.end, epsilon >= self.max_loss
        delta = np.where(beyond, np.maximum(last - slope * rise, 0.0), delta)
        error = np.where(
            beyond, blur * (1 + 2 * rise * slope / last) + 8 * UNIT * (last + slope * rise * (1 + epsilon)), error
        )
        tail = np.where(beyond, slope * (1 + rise), tail)
        return ProfileValues(np.where(gone, 0.0, delta), np.where(gone, 0.0, tail), np.where(gone, TINY, error))

    @property
    def reverse(self) -> Pair:
        return MergedPair(self.of, self.end, not self.back)

    @cached_property
    def max_loss(self) -> float:
        """Where the line ends, at most."""
        if self.back:
            return math.inf
        last, slope, blur = self._last
        # Its slope is known as well as δ is.
        return self.end + math.log1p((last + blur) / (slope * max(1 - 2 * blur / last, 0.1))) * (1 + 1e-9)

    @property
    def zcdp(self) -> float:
        return self.of.zcdp

    @property
    def gdp_bounds(self) -> Bounds:
        return self.of.gdp_bounds


class RemovingPair(AllocationPair):
    """The order that removes, which among other uses is merged beyond some loss, and a leak."""

    @property
    def among(self) -> Pair:
        """The merged pair with a leak, at least the pair: they differ only beyond the pair's end, by at most δ."""
        whole = AllocationPair(self.mu, self.steps, add=False)
        cut = _end(whole) if whole.transform is None else None
        if cut is None:
            return whole
        end, most = cut
        return LeakPair(MergedPair(whole, end), most / (1 - most) * (1 + 8 * UNIT), 0.0, 0.0)


class SparePair(AllocationPair):
    """The pair of an allocation that stands in where the merged pair has few digits."""

    @property
    def among(self) -> Pair:
        """The pair as it is; the unsampled pair, where nothing could be merged."""
        merged = _end(AllocationPair(self.mu, self.steps, add=False)) is not None
        return AllocationPair(self.mu, self.steps, self.add) if merged else GaussianPair(self.mu)


@lru_cache(maxsize=16)
def _law(mu: float, steps: int) -> LognormalSum:
    return LognormalSum(mu, steps)


def _on_points(law: Points, steps: int) -> tuple[DiscretePair, float]:
    """The pair of ratios of the points over t, without rare ends, and how much of either law is missing."""
    q = law.masses
    p = q * np.exp(law.logs - math.log(steps))
    kept = np.flatnonzero(np.maximum(p, q) > _GONE)
    inside = slice(int(kept[0]), int(kept[-1]) + 1)
    inside_p, inside_q = p[inside], q[inside]
    lost_p, lost_q = (float(x[: inside.start].sum() + x[inside.stop :].sum()) for x in (p, q))
    gone = max(law.excess * math.exp(law.logs[-1] - math.log(steps)) + lost_p, law.zero + lost_q)
    blur = 4 * (law.relative + law.shift) + UNIT * (16 + 4 * q.size)
    pair = DiscretePair(
        tuple((inside_p / inside_p.sum()).tolist()), tuple((inside_q / inside_q.sum()).tolist()), 0.0, blur
    )
    return pair, gone * (1 + 1e-6)


def _read(law: Points | None, pair: AllocationPair, delta: float) -> float:
    """The ε of a law on points: δ is linear in e^ε between two losses. 0 without a law."""
    if law is None:
        return 0.0
    losses = (law.logs - math.log(pair.steps)) * (-1 if pair.add else 1)
    order = np.argsort(-losses)
    losses, masses = losses[order], law.masses[order]
    p, q = (np.cumsum(masses * x) for x in ((1.0, np.exp(-losses)) if pair.add else (np.exp(losses), 1.0)))
    at = int(np.argmax(p - q * np.exp(losses) > delta))
    return math.log((p[at - 1] - delta) / q[at - 1]) if at and p[at - 1] > delta else 0.0


@lru_cache(maxsize=64)
def _between(mu: float, steps: int) -> tuple[tuple[Pair, Pair], tuple[Pair, Pair]] | None:
    """Pairs that occur, and pairs that dominate: both orders."""
    points = between(mu, steps, _FINE if steps <= _FEW_SLOTS else _USUAL)
    if points is None:
        return None
    merged, spread = points
    low, (high, leak) = _on_points(merged, steps)[0], _on_points(spread, steps)
    return (low, low.reverse), (LeakPair(high, leak, 0.0, leak), LeakPair(high.reverse, leak, 0.0, leak))


@lru_cache(maxsize=64)
def _end(pair: AllocationPair) -> tuple[float, float] | None:
    """A loss where δ is about ``LEAK`` and four times its error, and an upper bound of δ there.

    None if that is not known.
    """
    if pair.mu > MOST_MU:
        return None
    low, high = 0.0, math.log1p(0.5 * _law(pair.mu, pair.steps).deviation / pair.steps)
    while pair.profile(np.array([high])).delta[0] > LEAK and high < 700:
        low, high = high, 2 * high
    for _ in range(6):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if pair.profile(np.array([middle])).delta[0] > LEAK else (low, middle)
    delta, tail, error = (float(x[0]) for x in pair.profile(np.array([low])))
    return (low, delta + error) if tail > 0 and delta > 4 * error and delta < 1e3 * LEAK else None


def allocation(mu: float, steps: int) -> Pairs:
    """Return the pairs of one epoch in both orders; the unsampled pair bounds them."""
    whole = GaussianPair(mu)
    if steps == 1:
        return Pairs(whole, whole)
    if mu > MOST_SPREAD:
        return Pairs(whole, whole, NOTHING, bound="unsampled")
    spare = SparePair(mu, steps, add=False), SparePair(mu, steps, add=True)
    return Pairs(RemovingPair(mu, steps, add=False), AllocationPair(mu, steps, add=True), alternative=spare)


@lru_cache(maxsize=64)
def several(one: float, steps: int, choices: int, epochs: int) -> Pairs:
    """Pairs for distinct ``choices`` of the steps in all epochs.

    They are at most those of one step of each of so many blocks, and at least what scores tell.

    ``one`` is the μ of one release.
    """
    if choices == steps:  # each root is taken once, and rounded to nearest: it is what occurs, too
        whole = GaussianPair(one * math.sqrt(choices * epochs))
        return Pairs(whole, whole)
    mu = one * math.sqrt(epochs)
    if choices == 1:
        return allocation(mu, steps)
    whole = GaussianPair(mu * math.sqrt(choices) * (1 + 4 * UNIT))
    size, longer = divmod(steps, choices)
    blocks = [(allocation(mu, size), choices - longer), *([(allocation(mu, size + 1), longer)] if longer else [])]
    forward, other = (
        ProductPair(tuple((pairs[0], n) for pairs, n in sides), whole)
        for sides in ([(p.upper(), n) for p, n in blocks], [(p.other(), n) for p, n in blocks])
    )
    low = _scored(mu, steps, choices)
    return Pairs(
        forward,
        ProductPair(tuple((p.backward, n) for p, n in blocks), whole),
        low,
        alternative=(other, other.reverse),
        bound="blocks",
    )


def _scored(mu: float, steps: int, choices: int) -> tuple[Pair, Pair]:
    """Pairs that occur: the laws of the sum of scores, neighbours told as one."""
    laws = scores(mu, steps, choices, min(_TILT * choices / steps, 0.9))
    if laws is None:
        return NOTHING
    p, q, relative = laws
    kept = np.flatnonzero(np.minimum(p, q) > _GONE)
    if kept.size < 2:
        return NOTHING
    starts = np.arange(kept[0] + 1, kept[-1], max(1, (kept[-1] - kept[0]) // _SCORES))
    starts = np.concatenate([[0], starts, [kept[-1]]])
    p, q = (np.add.reduceat(x, starts) for x in (p, q))
    low = DiscretePair(
        tuple((p / p.sum()).tolist()), tuple((q / q.sum()).tolist()), 0.0, 4 * relative + UNIT * 4 * laws.without.size
    )
    return low, low.reverse
