"""Convex minorants of profiles known at the points iΔ, and how far to trust them.

On either side of ε = 0 a profile is given by a time value at 0, Δ, 2Δ, …: h for ε ≥ 0, that of the reverse pair, g, for
ε ≤ 0. As a function of y = e^{−|ε|}, the time value y·h is convex and 0 at y = 0, with slope P(L > ε) (on the left y·g,
Q(L < −ε)). So a law on the lattice is two sequences of such probabilities, non-increasing and ≥ 0, whose two sums

    h_i = (1 − e^{−Δ}) Σ_{i≤j<n} e^{−(j−i)Δ} C_j + e^{−(n−i)Δ} C_n

agree at 0, and for which Q(L > 0) + Q(L < 0) = C_0 − h_0 + C'_0 ≤ 1. Isotonic regression yields such floats exactly,
and sums of nonnegative numbers keep their relative precision; the rest is certified afterwards. Proofs:
``proofs/lattice.md``, §2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Profile, RouteFailed

Valued = tuple[Floats, Floats]
"""Time values and bounds on their errors."""

SMALL = 1e-290
"""Time values below are not told from 0: then nothing that matters underflows."""


def end_index(pair: Profile, spacing: float, small: Callable[[float, float], bool]) -> int:
    """The first lattice index, by doubling and halving, from which on the profile no longer matters."""

    def done(i: int) -> bool:
        epsilon = i * spacing
        delta, _, error = pair.profile(np.array([epsilon]))
        return epsilon >= pair.max_loss or small(epsilon, math.log(float(delta[0] + error[0])))

    high = 1
    while not done(high) and high < 10_000_000:
        high *= 2
    low = high // 2
    while high - low > max(1, high // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if done(middle) else (middle, high)
    return high


def exact_spacing(spacing: float) -> float:
    """The next number of 28 bits: its multiples up to 2^25 are floats."""
    unit = 2.0 ** (math.frexp(spacing)[1] - 28)
    return math.ceil(spacing / unit) * unit


@dataclass(frozen=True)
class Hull:
    """Slopes C in y and time values, from ε = 0 outward: (right, left).

    The slopes, those of one side times the real factor ≤ 1 that makes both sides agree at 0, are a function whose time
    values the floats ``values`` are, up to a relative ``rounding``.
    """

    slopes: tuple[Floats, Floats]
    values: tuple[Floats, Floats]
    rounding: float

    @property
    def steep(self) -> float:
        """Q(L > 0) + Q(L < 0): above 1, the function is not convex at 0."""
        return float(self.slopes[0][0] + self.slopes[1][0] - self.values[0][0])

    def below(self, points: tuple[Floats, Floats]) -> float:
        """A factor f ≤ 1: f times this is a law with time values ≤ the given ones (each 0 or ≥ ``SMALL``)."""
        steep = self.steep + self.rounding * float(self.slopes[0][0] + self.slopes[1][0] + self.values[0][0])
        worst = 1 / max(steep, 1.0)
        for value, point in zip(self.values, points, strict=True):
            used = value > 0
            worst = min(worst, float(np.min(point[used] / (value[used] + 1e-310), initial=1.0)))
        return max(worst * (1 - 2 * self.rounding), 0.0)

    def above(self, points: tuple[Floats, Floats], spacing: float) -> float:
        """A factor F ≥ 1: convex functions ≤ the given time values (≥ ``SMALL``) have time values ≤ F times these."""
        worst, ends = 1.0, []
        for slope, value, point in zip(self.slopes, self.values, points, strict=True):
            vertex = np.flatnonzero(slope[1:] < slope[:-1]) + 1
            worst = max(worst, float(np.max(point[vertex] / value[vertex], initial=1.0)))
            ends.append((spacing * int(vertex[0]), float(point[vertex[0]])) if vertex.size else (math.inf, 0.0))
        # At 0 also the chord from the last vertex on its left to the first on its right.
        (e, h), (f, g) = ends
        a, b = -math.expm1(-e), -math.expm1(-f)
        chord = (a * b + math.exp(-e) * h * b + math.exp(-f) * g * a) / -math.expm1(-e - f)
        worst = max(worst, min(float(points[0][0]), chord * (1 + 32 * UNIT)) / float(self.values[0][0]))
        return worst * (1 + 2 * self.rounding)


def minorant(points: tuple[Floats, Floats], spacing: float) -> Hull:
    """The largest convex profile below the given time values, to rounding; nothing relies on its being the largest."""
    if not all(np.all(np.isfinite(point)) for point in points):
        raise RouteFailed("the lattice is out of range")
    slopes, values = map(list, zip(*(_side(point, spacing) for point in points), strict=True))
    if slopes[0][0] + slopes[1][0] - min(values[0][0], values[1][0]) > 1:
        slopes = _straighten(slopes, values, spacing)
        values = [_values(slope, spacing) for slope in slopes]
    start = min(float(value[0]) for value in values)
    values = [value * (start / value[0]) if 0 < start < value[0] else value for value in values]
    # A term passes one multiplication, one addition and one rounded power of e on each level; three sums and a factor.
    rounding = 4 * (4 * max(value.size for value in values).bit_length() + 16) * UNIT
    return Hull((slopes[0], slopes[1]), (values[0], values[1]), rounding)


def vague(*sides: Valued) -> bool:
    """Whether errors, magnified by a tilt, are so large that they are felt.

    Then the values with them make a law.
    """
    return any(np.any((error > 1e-6 * v) & (v + error > SMALL)) for v, error in sides)


def convexified(right: Valued, left: Valued, spacing: float) -> tuple[Valued, Valued]:
    """The largest convex profile below bounds at the points, with their errors; and its own error."""
    points = [np.maximum(v + error, SMALL) * (1 + 2 * UNIT) for v, error in (right, left)]
    points[1][0] = points[0][0]
    both = points[0], points[1]
    hull = minorant(both, spacing)
    error = 1.01 * (max(1 - hull.below(both), hull.above(both, spacing) - 1) + hull.rounding)
    if not error < 0.01:
        raise RouteFailed("the bound's convex minorant is out of range")
    right, left = ((v, error * v) for v in hull.values)
    return right, left


def _side(point: Floats, spacing: float) -> tuple[Floats, Floats]:
    """Non-increasing slopes in y of the minorant of the points y_i·h_i and of 0 at y = 0, and its time values.

    Isotonic regression finds the vertices; where its sums cancel it may miss some, which are put back.
    """
    from scipy.optimize import isotonic_regression  # slow to import, and few routes need it

    kept = np.arange(point.size)
    full = value = np.empty(0)
    for _ in range(20):
        width = np.append(spacing * np.diff(kept), math.inf)
        h = point[kept]
        after = np.append(h[1:], 0.0)
        slope = after + (h - after) / -np.expm1(-width)
        least = np.minimum.accumulate(slope)
        if np.any(slope - least > 16 * UNIT * np.abs(slope)):
            weight = np.exp(np.maximum(600 - spacing * kept, -700.0)) * -np.expm1(-width)
            kept = kept[isotonic_regression(slope, weights=weight, increasing=False).blocks[:-1]]
            continue
        full = np.repeat(least, np.diff(np.append(kept, point.size)))
        value = _values(full, spacing)
        missed = np.flatnonzero(value - point > 1e-13 * np.abs(value))
        if not missed.size or kept.size == point.size:
            break
        kept = np.union1d(kept, missed)
    if not full.size:
        raise RouteFailed("no convex minorant was found")
    return full, value


def _values(slope: Floats, spacing: float) -> Floats:
    """h_i for all i, in log₂n rounds: the sum over 2^k terms from i on, and from i + 2^k on."""
    value = slope * -math.expm1(-spacing)
    value[-1] = slope[-1]
    step = 1
    while step < value.size:
        value[:-step] += math.exp(-spacing * step) * value[step:]
        step *= 2
    return value


def _straighten(slopes: list[Floats], values: list[Floats], spacing: float) -> list[Floats]:
    """Cap the slopes on both sides so that C_0 + C'_0 = 1 + h_0: one straight line passes ε = 0."""
    y = [np.append(np.exp(-spacing * np.arange(slope.size)), 0.0) for slope in slopes]
    rest = [z * np.append(value, 0.0) for z, value in zip(y, values, strict=True)]
    # h_0 if the slopes are capped at C_m; non-increasing.
    level = [
        slope * -np.expm1(-spacing * np.arange(slope.size)) + z[:-1] for slope, z in zip(slopes, rest, strict=True)
    ]

    def caps(start: float) -> tuple[list[int], list[float]]:
        m = [max(int(np.searchsorted(-x, -start)), 1) for x in level]
        return m, [(start - float(rest[i][m[i]])) / (1 - float(y[i][m[i]])) for i in (0, 1)]

    low, high = 0.0, float(min(values[0][0], values[1][0]))
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sum(caps(middle)[1]) - middle <= 1 else (low, middle)
    m, cap = caps(low)
    for _ in range(4):  # the caps lose digits where m is small; h_0 does not
        start = min(cap[i] * -math.expm1(-spacing * m[i]) + float(rest[i][m[i]]) for i in (0, 1))
        excess = cap[0] + cap[1] - start - 1
        cap = [x - max(0.5 * excess, 0.0) for x in cap]
    return [np.minimum(slope, x) for slope, x in zip(slopes, cap, strict=True)]
