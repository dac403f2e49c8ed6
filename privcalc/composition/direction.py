"""One direction of a run: a list of (pair, count), all in the same order, in the form that routes take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from privcalc.numerics.floats import UNIT
from privcalc.numerics.solve import Bounds, crossing
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import LeakPair, Pair

GOOD = 1e-9
"""Relative width below which no further attempt is made."""

FAIR = 1e-7
"""Relative width of the contour's ε above which slower routes are asked too."""

POOR = 1e-3
"""Relative width above which bounds on the real axis are tried as well."""

STEEP = 100
"""δ is steep: where its relative width is that many times larger, ε is still as sharp."""


class Widths(NamedTuple):
    """A relative width of ε and one of δ: what is asked decides which of them counts."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Bound:
    """A certified interval and the routes that gave it."""

    lower: float
    upper: float
    routes: tuple[str, ...]

    def meet(self, lower: float, upper: float, *routes: str) -> Bound:
        """The common part of two intervals that both hold; keep a route's name only if it made a difference."""
        if lower <= self.lower and upper >= self.upper:
            return self
        low, high = max(lower, self.lower), min(upper, self.upper)
        kept = self.routes if (low, high) != (lower, upper) and self.routes != ("fallback",) else ()
        return Bound(low, high, (*(name for name in kept if name not in routes), *routes))

    def width(self) -> float:
        """Relative width; ∞ if the upper end is."""
        if self.lower >= self.upper:  # a contradiction is raised where an answer is made
            return 0.0
        return (self.upper - self.lower) / self.upper if self.upper < math.inf else math.inf


Direction = tuple[tuple[Pair, int], ...]

SMALLEST = math.ulp(0.0)
"""The least probability above 0."""


@dataclass(frozen=True)
class Leak:
    """Probability that some use gives everything away: δ = p + (1 − p)·δ' above, p + kept·δ' below, δ' of the rest.

    ``upper`` and ``lower`` bound p, and ``kept`` is a lower bound. What is computed from them are sums and products of
    terms ≥ 0 and the differences 1 − p and δ − p, each rounded once: within four units.
    """

    upper: float = 0.0
    lower: float = 0.0
    kept: float = 1.0

    def delta(self, rest: Bounds) -> Bounds:
        """Bounds of δ from those of δ'."""
        if not self.upper:
            return rest
        low, high = self.lower + self.kept * rest[0], self.upper + (1 - self.lower) * rest[1]
        return low * (1 - 6 * UNIT), min(high * (1 + 6 * UNIT), 1.0)

    def rest(self, delta: float) -> Bounds:
        """Bounds of the δ' that belongs to δ; negative where no δ' is small enough."""
        low = (delta - self.upper) / (1 - self.lower)
        high = (delta - self.lower) / self.kept if self.kept else math.copysign(math.inf, delta - self.lower)
        return low * (1 - 6 * UNIT), high * (1 + 6 * UNIT)


def split_leaks(direction: Direction) -> tuple[Direction, Leak]:
    """Set certain events apart: 1 − Π(1 − p)^n (``proofs/conversions.md``, §2)."""
    if sum(count for _, count in direction) > 1:
        direction = tuple((pair.among, count) for pair, count in direction)
    leaks = [(pair, count) for pair, count in direction if isinstance(pair, LeakPair)]
    if not leaks:
        return direction, Leak()
    kept = ((pair.pair if isinstance(pair, LeakPair) else pair, count) for pair, count in direction)
    rest = tuple((part, number * count) for pair, count in kept for part, number in pair.factors)
    if sum(count for _, count in leaks) == 1:
        only = leaks[0][0]
        return rest, Leak(only.leak, only.attained, (1 - only.dropped) * (1 - UNIT))
    high, low, share = (
        math.fsum(count * math.log1p(-p) if p < 1 else -math.inf for p, count in part)
        for part in zip(*(((pair.leak, n), (pair.attained, n), (pair.dropped, n)) for pair, n in leaks), strict=True)
    )
    # log1p, the products and fsum are each within two units.
    up, down = 1 + 8 * UNIT, 1 - 8 * UNIT
    return rest, Leak(-math.expm1(high * up) * up, -math.expm1(low * down) * down, math.exp(share * up) * down)


def merge(direction: Direction) -> Direction:
    """Equal pairs once, and all Gaussian ones as one: μ-GDP composes to √(Σμ²) (Dong, Roth, Su 2022, Corollary 3.3)."""
    counts: dict[Pair, int] = {}
    squares = []
    for pair, count in direction:
        if count == 0 or pair.gdp == 0:  # two equal laws
            continue
        if pair.gdp is None:
            counts[pair] = counts.get(pair, 0) + count
        else:
            squares.append(count * pair.gdp**2)
    merged = list(counts.items())
    if squares:
        merged.append((GaussianPair(math.sqrt(math.fsum(squares))), 1))
    return tuple(merged)


def collapse(direction: Direction) -> Direction:
    """Every (pair, count) as one use, where the composition has a closed form."""
    powers = [(pair.power(count), pair, count) for pair, count in direction]
    return tuple((pair, count) if power is None else (power, 1) for power, pair, count in powers)


def max_loss(direction: Direction) -> float:
    """An upper bound of the composed loss, rounding included."""
    return math.fsum(count * pair.max_loss for pair, count in direction) * (1 + 8 * UNIT)


def delta_at_most(epsilon: float, top: float) -> float:
    """Bound δ(ε) ≤ 1 − e^{ε − l} where no loss exceeds l = ``top``.

    This is the chord of the profile in e^ε from 1 at 0 to 0 at e^l.
    """
    return min(-math.expm1(epsilon - top) * (1 + 4 * UNIT), 1.0) if epsilon < top else 0.0


def epsilon_at_most(delta: float, top: float) -> float:
    """An upper bound of ε(δ) from the largest loss l: l + log(1 − δ)."""
    below = math.log1p(-delta)
    return min(max(top + below + 4 * UNIT * (top - below), 0.0), top) if top < math.inf else math.inf


def sure_loss(direction: Direction) -> float:
    """A loss that the composed one exceeds with positive probability: the sum of such losses of each use."""
    if len(direction) == 1 and direction[0][1] == 1:
        return _sure_loss(direction[0][0])
    return math.fsum(count * _sure_loss(pair) for pair, count in direction) * (1 - 4 * UNIT)


def _sure_loss(pair: Pair) -> float:
    """As near below the largest loss as δ is surely positive; ∞ where that is ∞."""
    top = pair.max_loss
    return (
        top if top in (0.0, math.inf) else crossing(pair.bounds, SMALLEST, 0.999 * top, 0.0, max_loss(((pair, 1),)))[0]
    )
