"""Keys that only one of two neighbours has, beside counts with noise: certain events, and a shift of what remains.

Proof: ``proofs/thresholded_counts.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.solve import Bounds
from privcalc.pairs.pair import SymmetricPair

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
        found = sure + kept * delta
        return ProfileValues(
            found, kept * tail, kept * error + 2 * (sure * CHANCE + size * (tail + delta)) + 8 * UNIT * found
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
        found = [part.profile(epsilon) for part in self.parts]
        delta, tail, error = (np.stack([values[i] for values in found]) for i in range(3))
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
