"""One direction of a run: a list of (pair, count), all ordered the same way, brought into the form that the routes take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privcalc.numerics.normal import UNIT
from privcalc.numerics.solve import Bounds
from privcalc.pair import Pair
from privcalc.pairs import GaussianPair, LeakPair

Direction = tuple[tuple[Pair, int], ...]


@dataclass(frozen=True)
class Leak:
    """Probability that some use gives everything away: δ = p + (1 − p)·δ' above, p + kept·δ' below, δ' of the rest."""

    upper: float = 0.0
    lower: float = 0.0
    kept: float = 1.0

    def delta(self, rest: Bounds) -> Bounds:
        """Bounds of δ from those of δ'."""
        return self.lower + self.kept * rest[0], min(self.upper + (1 - self.lower) * rest[1] * (1 + 4 * UNIT), 1.0)

    def rest(self, delta: float) -> Bounds:
        """Bounds of the δ' that belongs to δ; negative where no δ' is small enough."""
        low, high = (delta - self.upper) / (1 - self.lower), (delta - self.lower) / self.kept
        blur = 4 * UNIT * (delta + self.upper) if self.upper else 0.0
        return low * (1 - 4 * UNIT) - blur, high * (1 + 4 * UNIT) + blur


def split_leaks(direction: Direction) -> tuple[Direction, Leak]:
    """Set certain events apart: 1 − Π(1 − p)^n (``proofs/conversions.md``, §2)."""
    leaks = [(pair, count) for pair, count in direction if isinstance(pair, LeakPair)]
    if not leaks:
        return direction, Leak()
    rest = tuple((pair.pair if isinstance(pair, LeakPair) else pair, count) for pair, count in direction)
    if sum(count for _, count in leaks) == 1:
        return rest, Leak(leaks[0][0].leak, leaks[0][0].attained, 1 - leaks[0][0].dropped)
    high, low, share = (
        math.fsum(count * math.log1p(-p) for p, count in part)
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
    """The essential supremum of the composed loss."""
    return math.fsum(count * pair.max_loss for pair, count in direction)
