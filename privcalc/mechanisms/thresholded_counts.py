"""Counts of keys that nobody listed: noisy, and released only where they are large (stability-based histograms)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from privcalc import errors
from privcalc.mechanisms.laplace import LaplacePair
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.laplace_sum import MOST_COUNT, laplace_sum_profile
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import log_ndtr, ndtr
from privcalc.pairs.dominating import NOTHING, Others, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import LeakPair, Pair, SymmetricPair
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Shown

CHANCE = 1e-12
"""Relative error of a probability of being released, at most."""


@dataclass(frozen=True)
class Part:
    """One kind of neighbour: which keys came and went, and the pair of the remaining noise.

    Attributes:
        came: −log of the probability that no key is released that only P has.
        went: the same of keys that only Q has.
        pair: the noise on keys that both have; None: nothing differs there.
    """

    came: float
    went: float
    pair: SymmetricPair | None

    def profile(self, epsilon: Floats) -> ProfileValues:
        """δ(ε) = c + (1 − c)·δ_pair(ε + came − went), c = 1 − e^{−came}, at every real ε."""
        kept, sure = math.exp(-self.came), -math.expm1(-self.came)
        inner = epsilon + (self.came - self.went)
        delta, tail, error = self._inside(inner)
        size = (self.came + self.went) * CHANCE + UNIT * np.abs(epsilon)
        whole = sure + kept * delta
        return ProfileValues(
            whole, kept * tail, kept * error + 2 * (sure * CHANCE + size * (tail + delta)) + 8 * UNIT * whole
        )

    def _inside(self, x: Floats) -> ProfileValues:
        """Return the profile of the noise; at x < 0 from the reverse order, 1 − e^x(1 − δ(−x))."""
        if self.pair is None:
            low = np.minimum(x, 0.0)
            return ProfileValues(-np.expm1(low), np.where(x < 0, np.exp(low), 0.0), 0 * low)
        delta, tail, error = self.pair.profile(np.abs(x))
        scale = np.exp(np.minimum(x, 0.0))
        mirrored = -np.expm1(np.minimum(x, 0.0)) + scale * delta
        slope = np.maximum(scale * (1 - delta - tail), 0.0)
        return ProfileValues(
            np.where(x < 0, mirrored, delta),
            np.where(x < 0, slope, tail),
            np.where(x < 0, scale * error + 4 * UNIT, error),
        )


@dataclass(frozen=True)
class NewKeysPair(SymmetricPair):
    """The largest profile of several parts without a leak, which was set apart: in both orders.

    That is (max − leak)/(1 − leak), or 0.

    Attributes:
        parts: two or more, of which the worst counts; the first with noise on all keys, the next on all but one.
        leak: the largest probability of a key that only P has; that of a :class:`LeakPair` around this pair.
        whole: noise such that δ(ε) ≤ δ_whole(ε − went).
        went: the largest of the parts'.
    """

    parts: tuple[Part, ...]
    leak: float
    whole: SymmetricPair
    went: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Return the profile: the first part's where no other is larger, as those are ≤ c + (1 − c)·δ(ε − went)."""
        first, next_one = self.parts[0].profile(epsilon), Part(0.0, self.went, self.parts[1].pair).profile(epsilon)
        least = first.delta - first.error - self.leak * (1 + 4 * CHANCE)
        most = (next_one.delta + next_one.error) * (1 + 4 * CHANCE)
        delta, tail, error = (values.copy() for values in first)
        open_ = np.flatnonzero(least < (1 - self.leak) * most + TINY)
        if open_.size:
            delta[open_], tail[open_], error[open_] = self._largest(epsilon[open_])
        kept, above = 1 - self.leak, delta - self.leak
        off, inside = error + 2 * CHANCE * self.leak, above > 0
        return ProfileValues(np.where(inside, above / kept, 0.0), np.where(inside, tail / kept, 0.0), off / kept + TINY)

    def _largest(self, epsilon: Floats) -> ProfileValues:
        """Return the largest profile of all parts at each ε."""
        profiles = [part.profile(epsilon) for part in self.parts]
        delta, tail, error = (np.stack([values[i] for values in profiles]) for i in range(3))
        at = np.argmax(delta, axis=0)[None]
        return ProfileValues(np.take_along_axis(delta, at, 0)[0], np.take_along_axis(tail, at, 0)[0], error.max(axis=0))

    @property
    def max_loss(self) -> float:
        """The largest loss: the noise's plus the loss of a key that went."""
        return (self.whole.max_loss + self.went) * (1 + 8 * UNIT)

    @property
    def zcdp(self) -> float:
        """D_α ≤ ρα + what a key that went adds ≤ (ρ + that)α."""
        return (self.whole.zcdp + self.went) * (1 + CHANCE)

    @property
    def gdp_bounds(self) -> Bounds:
        """From above, where no key goes."""
        return 0.0, math.inf if self.went else self.whole.gdp_bounds[1]


__all__ = ["ThresholdedCounts"]

Noise = Literal["laplace", "gaussian"]

_MOST_PARTS = 64
"""Ways to be neighbours up to which the worst of them is found, and keys of a group."""

_SURE = 30.0
"""A leak of 1 − e^{−30} is all."""


@dataclass(frozen=True)
class LaplaceSumPair(SymmetricPair):
    """Laplace noise on ``count`` numbers, each of which moves by a: as many pairs, and composed as such.

    Its own profile is for what is made of it: a leak beside it, samples.
    """

    a: float
    count: int

    @property
    def factors(self) -> tuple[tuple[Pair, int], ...]:
        """The Laplace pair of one number, as often as there are numbers."""
        return ((LaplacePair(self.a), self.count),)

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The profile by sums of positive terms.

        For many numbers, or large shifts, it lies between some of them and one shift by the sum.
        """
        if self.count == 1:
            return LaplacePair(self.a).profile(epsilon)
        exact = laplace_sum_profile(self.a, self.count, epsilon)
        if exact is not None:
            return exact
        high, _, high_error = LaplacePair(self.max_loss).profile(epsilon)
        some = laplace_sum_profile(self.a, MOST_COUNT, epsilon) if self.count > MOST_COUNT else None
        low, tail, error = some or ProfileValues(0 * high, 0 * high, 0 * high)
        low, high = np.maximum(low - error, 0.0), high + high_error
        half = np.maximum(0.5 * (high - low), 2 * error) * (1 + 4 * UNIT)  # what the slope may be off is known from it
        return ProfileValues(low + half, tail, half + 4 * UNIT * low)

    @property
    def max_loss(self) -> float:
        return self.count * self.a * (1 + 2 * UNIT)

    @property
    def zcdp(self) -> float:
        return self.count * LaplacePair(self.a).zcdp * (1 + 2 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """√count times that of one, from above."""
        return 0.0, math.sqrt(self.count) * LaplacePair(self.a).gdp_bounds[1] * (1 + 4 * UNIT)

    def log_moment(self, c: Floats) -> Floats:
        return self.count * LaplacePair(self.a).log_moment(c) * (1 + 2 * UNIT)


@dataclass(frozen=True, init=False, repr=False)
class ThresholdedCounts(Shown):
    """Count each key's persons, add noise to counts > 0, and release keys and noisy counts ≥ a threshold.

    A stability-based histogram (Korolova et al. 2009; Bun, Nissim, Stemmer 2016), or partition selection, where keys
    are not known in advance. A person has at most ``keys`` different keys and counts once for each; of one with more,
    the person's own first ones, or a random choice, count.

    A key that only one person has is released with the probability p that its noise lifts it from 1 to the threshold,
    and then it tells that this person is there. So under add-or-remove-one (and zero-out) δ(ε) is the largest, over the
    number j ≤ keys of keys that nobody else has, of c + (1 − c)·δ'(ε + jλ), c = 1 − (1 − p)^j, λ = −log(1 − p), δ' the
    profile of noise on the other keys − j counts: **a maximum, not the usual sum of δ' and c**. One use is exact;
    several compose leaks apart from the rest. Under replace-one the new person's keys come and the old one's go; beyond
    7 keys (63 under the other relations) the usual sum bounds it. Proof: ``proofs/thresholded_counts.md``.

    Args:
        noise: "laplace" or "gaussian", independent for each key.
        scale: of the noise, in persons: Laplace's scale, or the standard deviation; > 0 (1e-100 to 1e100).
        threshold: the least noisy count that is released, > 1 (up to 1e100).
        keys: most keys of a person.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> counts = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=15.0)
        >>> print(counts.epsilon(delta=1e-6), counts.epsilon(delta=1e-7).upper)
        0.999997999999 inf
        >>> normal = lambda t: pc.ThresholdedCounts(noise="gaussian", scale=5.0, threshold=t)
        >>> least = pc.calibrate(normal, epsilon=1.0, delta=1e-6)
        >>> print(f"{least.parameter:.6f}")
        24.767122
    """

    kind = "ThresholdedCounts"
    page = "thresholded_counts.md"
    needs = ("keys",)
    draws = "thresholded"
    scheme = None
    nulled = "absent"

    noise: Noise
    scale: float
    threshold: float
    keys: int

    def __init__(self, *, noise: Noise, scale: float, threshold: float, keys: int = 1) -> None:
        if noise not in get_args(Noise):
            raise errors.PrivcalcError(f"noise = {noise!r}: must be 'laplace' or 'gaussian'")
        least = errors.real("threshold", threshold, "a number > 1 (up to 1e100)", low=1.0, high=1e100, open_low=True)
        most_keys = errors.count("keys", keys, least=1)
        self._set(noise=noise, scale=errors.scale("scale", scale), threshold=least, keys=most_keys)

    @property
    def chance(self) -> float:
        """The probability p with which a key that only one person has is released, to a relative 1e-12."""
        return -math.expm1(-self._hidden(1))

    def pairs(self, relation: Relation) -> Pairs:
        """The pairs of one person, or of one in the place of another."""
        return self._several(1, int(relation is REPLACE_ONE))

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """The pairs of several persons, if they have few keys together; one shift of all may be worse than a chain."""
        shifted = self.noise == "laplace" and removed > 2 and (self.keys > 1 or relation is REPLACE_ONE)
        return None if shifted or removed * self.keys > _MOST_PARTS else self._several(removed, added)

    def _several(self, removed: int, added: int) -> Pairs:
        """The worst part; noise alone, on the counts of ever more others, and new keys alone occur."""
        came, went = self._unseen(removed), self._unseen(added)
        leak = -math.expm1(-came[-1])
        new, newer = (LeakPair(NOTHING[0], _up(c), _down(c), _up(c)) for c in (leak, -math.expm1(-went[-1])))
        also = ((new, newer if added else NOTHING[1]),)
        whole, least = self._on(removed, 0, added, 0) or NOTHING[0], self._least(removed, added)
        sure = _up(-math.expm1(-came[-1] - went[-1]))
        both, others = LeakPair(whole, sure, 0.0, sure), Others(attains=(math.inf, math.inf))
        if (removed * self.keys + 1) * (added * self.keys + 1) > _MOST_PARTS or came[-1] > _SURE:
            return Pairs(both, both, (least, least), bound="new keys", also=also, others=others)
        parts = [
            Part(one, other, self._on(removed, i, added, j))
            for i, one in enumerate(came)
            for j, other in enumerate(went)
        ]
        if removed != added > 0:
            parts += [replace(part, came=part.went, went=part.came) for part in parts]
        worst = replace(new, pair=NewKeysPair(tuple(parts), leak, whole, came[-1] if added else 0.0))
        alone = self.noise == "gaussian" or max(removed, added) == 1 or (self.keys == 1 and not added)
        return Pairs(worst, worst, (least, least), alone, (both, both), bound="new keys", also=also, others=others)

    def _unseen(self, persons: int) -> list[float]:
        """−log of the probability that of keys that only so many persons have none is released.

        The least one, of keys that are counted 0, 1, … times together; of one person with many keys only for all.
        """
        largest = persons * self.keys
        if persons == 1:
            each = self._hidden(1)
            return [number * each for number in range(largest + 1)] if largest <= _MOST_PARTS else [largest * each]
        one, found = [self._hidden(count) for count in range(1, persons + 1)], [0.0]
        for number in range(1, largest + 1):
            found.append(max(found[number - count - 1] + one[count] for count in range(min(persons, number))))
        return found

    def _hidden(self, count: int) -> float:
        """−log of the probability that a key is not released that so many persons have, to a relative 1e-12."""
        z = (self.threshold - count) / self.scale
        if z < 0:
            return math.log(2) - z if self.noise == "laplace" else -float(log_ndtr(z))
        # What underflows is more than nothing.
        return max(-math.log1p(-0.5 * math.exp(-z) if self.noise == "laplace" else -float(ndtr(-z))), TINY)

    def _on(self, removed: int, came: int, added: int, went: int) -> SymmetricPair | None:
        """The noise on counts that move by so many in all, but for those of new keys; None: by nothing."""
        ups, downs = removed * self.keys - came, added * self.keys - went
        if ups + downs == 0:
            return None
        if self.noise == "gaussian":
            squares = (n // most * most**2 + (n % most) ** 2 for n, most in ((ups, removed), (downs, added)) if most)
            return GaussianPair(math.sqrt(sum(squares)) / self.scale)
        most, total = max(removed, added), ups + downs
        if total <= most or most > 2 or removed != added > 0:
            return LaplaceSumPair(total / self.scale, 1)
        return LaplaceSumPair(most / self.scale, -(-total // most))

    def _least(self, removed: int, added: int) -> SymmetricPair:
        """The noise on counts of many others, each of which all of the group move: it occurs."""
        if self.noise == "laplace":
            return LaplaceSumPair(removed / self.scale, self.keys * (2 if added == removed else 1))
        return GaussianPair(math.sqrt(self.keys * (removed**2 + added**2)) / self.scale)


def _up(leak: float) -> float:
    """Return an upper bound of a leak that was computed to a relative ``CHANCE``; at most 1."""
    return min(leak * (1 + 2 * CHANCE) + TINY, 1.0)


def _down(leak: float) -> float:
    """A lower bound of it; 0 where it may be what underflowed."""
    return leak * (1 - 2 * CHANCE) if leak > _MOST_PARTS * TINY else 0.0
