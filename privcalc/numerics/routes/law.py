"""Nonnegative measures on the points iΔ, with a mass at +∞; their profiles and convolution.

See ``proofs/direct.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.routes.route import RouteFailed

MAX_WORK = 5e9
"""Multiplications that one lattice may cost: a few seconds."""


@dataclass(frozen=True)
class Law:
    """Masses at (first + k)Δ and at +∞; ``error`` bounds the relative rounding error of each."""

    first: int
    mass: Floats
    infinity: float
    error: float = 0.0

    def profile(self, spacing: float) -> Floats:
        """H at the law's points, up to a relative ``gamma``: H_i = H_{i+1} + (1 − e^{−Δ}) Σ_{l>i} m_l e^{−(l−1−i)Δ}."""
        shrink = math.exp(-spacing)
        slope = np.fromiter(
            accumulate(self.mass[:0:-1].tolist(), lambda d, m: m + shrink * d), np.float64, self.mass.size - 1
        )
        drops = np.concatenate([[self.infinity], -math.expm1(-spacing) * slope])
        return np.asarray(np.cumsum(drops)[::-1], dtype=np.float64)

    def total(self) -> float:
        """H(−∞)."""
        return float(self.mass.sum()) + self.infinity

    def scaled(self, factor: float) -> Law:
        """All masses times a factor."""
        return Law(self.first, self.mass * factor, self.infinity * factor, self.error)


def gamma(size: int) -> float:
    """Relative rounding error of ``profile``, ``total`` and one composition, together."""
    return (16 * size + 64) * UNIT


def compose(a: Law, b: Law, last: int, share: float, *, upper: bool) -> Law:
    """Convolve; cut at ``last`` and where less than ``share`` lies to the left, in the safe direction."""
    if float(a.mass.size) * b.mass.size > MAX_WORK / 4:
        raise RouteFailed("the law spans too many points")
    mass, first = np.convolve(a.mass, b.mass), a.first + b.first
    keep = last - first + 1
    if keep < 2:  # everything lies beyond the window
        return Law(
            last - 1, np.zeros(2), a.total() * b.total() if upper else 0.0, a.error + b.error + gamma(b.mass.size)
        )
    infinity = a.infinity * b.total() + float(a.mass.sum()) * b.infinity + float(mass[keep:].sum()) if upper else 0.0
    mass = mass[:keep]
    below = np.cumsum(mass)
    cut = min(int(np.searchsorted(below, share)), mass.size - 2)
    mass = mass[cut:].copy()
    if upper and cut:
        mass[0] += below[cut - 1]
    return Law(first + cut, mass, infinity, a.error + b.error + gamma(keep + cut + b.mass.size))


def power(law: Law, count: int, last: int, share: float, *, upper: bool) -> Law:
    """The count-fold composition, by repeated squaring."""
    result: Law | None = None
    while True:
        if count & 1:
            result = law if result is None else compose(result, law, last, share, upper=upper)
        count >>= 1
        if not count:
            assert result is not None
            return result
        law = compose(law, law, last, share, upper=upper)
