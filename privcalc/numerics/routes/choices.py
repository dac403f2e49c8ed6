"""The optimal adaptive composition of choices whose losses have bounded ranges, as the value of a game.

    V_0(x) = (1 − e^x)_+,      V_n(x) = max_i sup_{0≤t≤a_i} E V_{n − e_i}(x − L_{i,t}),

n the numbers of choices of each range a_i, L_{i,t} = t with probability (1 − e^{t−a_i})/(1 − e^{−a_i}), else t − a_i:
whoever plays may also choose what comes next. There is a table of V for every n below the one asked for. From below the
smallest ranges come first, which is about the best order. Proofs, and rounding: ``proofs/choices.md``.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privcalc.numerics.floats import QUIET, TINY, UNIT, Floats
from privcalc.numerics.interfaces import RouteFailed
from privcalc.numerics.routes.secants import SMALL, Position, Range, best

Levels = tuple[tuple[float, int], ...]
"""Ranges, the largest first, and how many choices each has."""

WORK = 20_000_000
"""Lattice points times choices that one game may cost: about a second."""

MOST_STEPS = 1300
"""Choices in all tables of a game of several ranges."""

FINEST, COARSEST = 1600, 24
"""Lattice points in the largest range: at most, and at least."""

LEAST = (SMALL, 1e-290)
"""Below these values of V, over a or 1, the first and the second table of a game end; the second is the coarser one."""

MOST_RANGE = 30.0
"""The largest range a: above it the weights of the two losses are known less well."""

ALIKE = 4 * UNIT
"""Spacings that differ by less are one: no more than the weights are off by anyway."""


@dataclass(frozen=True, eq=False)
class Values:
    """V on the points jh, j = 0, …, n − 1: from above, and the best strategy found there.

    The strategy holds everywhere as a test.

    Attributes:
        spacing: h.
        upper: V(jh) is at most this, plus ``leak``.
        lower: V(jh) is at least this: what the strategy and its test attain, P(S) − e^{jh} Q(S).
        tail: e^{jh} Q(S).
        leak: what was cut off from above.
        rounding: a bound on the relative error of each.
    """

    spacing: float
    upper: Floats
    lower: Floats
    tail: Floats
    leak: float
    rounding: float

    def bounds(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Lower and upper bounds of V at x ≥ 0, and e^x Q(S) of the test that gives the lower one.

        Above, a chord in e^x; below, the better of the tests of the points on both sides. Beyond the last point V is at
        most what it is there.
        """
        h, last = self.spacing, self.upper.size - 1
        inside = x <= last * h
        x = np.minimum(x, last * h)
        j = np.minimum(np.floor(x / h), last - 1).astype(np.int64)
        near, far = x - j * h, x - (j + 1) * h
        share = np.clip(np.expm1(near) / math.expm1(h), 0.0, 1.0)
        drop = self.upper[j] - self.upper[j + 1]
        top = self.upper[j] - share * drop
        left, right = (self.lower[j + d] - self.tail[j + d] * np.expm1(y) for d, y in ((0, near), (1, far)))
        blur = (self.rounding + 64 * UNIT) * (1 + 1e-9)
        slope = np.where(left > right, self.tail[j] * np.exp(near), self.tail[j + 1] * np.exp(far))
        off = blur * (top + slope * h) + 64 * UNIT * x * (
            slope + drop / h
        )  # of the values; and of where x lies in its cell
        low = np.where(inside, np.maximum(left, right) - off - TINY, 0.0)
        known = inside & (low > 0)
        return np.where(known, low, 0.0), top + off + self.leak + TINY, np.where(known, slope, 0.0)


class Game:
    """All tables of choices of the ranges m·spacing, numbers and order as they were given; where V exceeds ``least``.

    Args:
        levels: lattice points of a range, and how many choices it has; the largest first.
        spacing: of the lattice.
        least: over the largest range, or 1.
        orders: whether all orders are played, and the values bounded from above; else one order, from below.
    """

    def __init__(self, levels: Sequence[tuple[int, int]], spacing: float, least: float, *, orders: bool = True) -> None:
        self.counts, self.spacing, self.orders = [count for _, count in levels], spacing, orders
        largest = levels[0][0] * spacing
        window, scale = 2 if len(levels) == 1 else 3, min(largest, 1.0)  # V(0) is about the largest
        self.ranges = [Range(m, spacing, scale, least, window=window, shown=orders) for m, _ in levels]

    def values(self) -> Values:
        """After all choices.

        Raises:
            RouteFailed: if no line is shown to be the best.
        """
        known: dict[tuple[int, ...], Position] = {}
        for total in range(1, sum(self.counts) + 1):
            found = {}
            for n in _vectors(self.counts, total) if self.orders else [_in_order(self.counts, total)]:
                found[n] = self._position(n, known)
            known = found
        (last,), strategy = known.values(), next(iter(known.values())).strategy
        assert strategy is not None
        size = min(last.upper.size, strategy.lower.size)
        leak = (last.leak + float(last.upper[size - 1]) * (size < last.upper.size)) * (1 + 1e-9)
        a = self.ranges[0].a  # twice as much where spacings may be off, too
        rounding = (sum(self.counts) + 1) * (32 + 8 * a) * (1 if len(self.ranges) == 1 else 2) * UNIT
        return Values(self.spacing, last.upper[:size], strategy.lower[:size], strategy.tail[:size], leak, rounding)

    def _position(self, n: tuple[int, ...], known: dict[tuple[int, ...], Position]) -> Position:
        """The smallest range comes first: what is known from below is its."""
        last = max(i for i, count in enumerate(n) if count)
        if sum(n) == 1:
            return self.ranges[last].first()
        played = []
        for i in reversed(range(len(n))):
            before = (*n[:i], n[i] - 1, *n[i + 1 :])
            if n[i] and (self.orders or i == last):
                position = known[before]
                if i != last or before != _in_order(self.counts, sum(before)):
                    position = replace(position, strategy=None)
                played.append(self.ranges[i].play(position))
        return best(played)


def _vectors(counts: Sequence[int], total: int) -> list[tuple[int, ...]]:
    """All numbers of choices that are no more than these, with this sum."""
    if len(counts) == 1:
        return [(total,)] if total <= counts[0] else []
    return [(i, *rest) for i in range(min(counts[0], total) + 1) for rest in _vectors(counts[1:], total - i)]


def _in_order(counts: Sequence[int], total: int) -> tuple[int, ...]:
    """So many choices, of the largest ranges first: those that come last."""
    found = []
    for count in counts:
        found.append(min(count, total))
        total -= found[-1]
    return tuple(found)


def points(levels: Levels, least: float, *, orders: bool = True) -> float:
    """Lattice points that a game needs, over those of the largest range."""
    a = np.array([a for a, _ in levels]) / levels[0][0]
    counts = [count for _, count in levels]
    if orders:
        n = np.stack(np.meshgrid(*(np.arange(count + 1.0) for count in counts), indexing="ij"), axis=-1).reshape(
            -1, len(counts)
        )
    else:
        n = np.stack(
            [np.clip(np.arange(sum(counts) + 1.0) - sum(counts[:i]), 0, count) for i, count in enumerate(counts)],
            axis=-1,
        )
    reach = np.sqrt(-0.5 * math.log(least) * (n @ a**2))  # V falls below ``least`` at about √(Σ a²/4)·√(−2 log least)
    played = (n > 0).sum(axis=1) if orders else np.minimum(n.sum(axis=1), 1.0)
    return float(played @ (np.minimum(n @ a, reach) + 3))


def steps(levels: Levels) -> int:
    """Choices in all tables, where there are several ranges."""
    counts = [count for _, count in levels]
    return sum(
        count * math.prod(other + 1 for j, other in enumerate(counts) if j != i) for i, count in enumerate(counts)
    )


def fineness(levels: Levels, least: float, *, orders: bool = True) -> int:
    """Points in the largest range that ``WORK`` allows; 0 if there are too many tables, or choices for ``COARSEST``."""
    if 3 * COARSEST * sum(count for _, count in levels) > WORK:
        return 0
    if len(levels) > 1 and orders and steps(levels) > MOST_STEPS:
        return 0
    share = (0.4 if len(levels) > 1 and orders else 1.0) * (1.0 if least == LEAST[0] else 0.2)
    return min(FINEST, int(share * WORK / points(levels, least, orders=orders)))


def lattice(ranges: Sequence[float], finest: int, *, up: bool) -> tuple[list[int], float, bool]:
    """Points m_i in each range, the spacing h, and whether all m_ih are the ranges.

    If they are not, none is smaller, or none is larger.

    The first m is even: a/2, nearly the best t of small ranges, is a point.
    """
    most = finest & ~1
    first = np.arange(max(most // 2 & ~1, 2), most + 1, 2)[:, None]
    a, h = np.array(ranges), ranges[0] / first
    m = np.maximum(np.rint(a / h), 2.0)
    spacings = a / m
    near = np.flatnonzero(spacings.max(axis=1) <= spacings.min(axis=1) * (1 + ALIKE))
    if near.size:
        at = int(near[-1])
        h = spacings.max(axis=1) if up else spacings.min(axis=1)
    else:
        m = np.maximum(np.ceil(a / h * (1 + ALIKE)), 2.0) if up else np.floor(a / h * (1 - ALIKE))
        m[:, :1] = first
        at = int(np.argmin(np.abs(m * h - a) @ a))
    spacing = float(np.ravel(h)[at])
    return m[at].astype(int).tolist(), spacing if up else spacing * (1 - UNIT), bool(near.size)


@functools.lru_cache(maxsize=16)
@QUIET
def solve(levels: Levels, least: float) -> tuple[Values | None, Values | None]:
    """A game's value where it exceeds ``least``: a table from above, one from below; None if none in time.

    No exception: that there is no answer is remembered as well.
    """
    above, exact = _play(levels, least, orders=True)
    if above is not None and exact:
        return above, above
    return above, _play(levels, least, orders=False)[0] if len(levels) > 1 else None


def _play(levels: Levels, least: float, *, orders: bool) -> tuple[Values | None, bool]:
    """The game whose ranges are not smaller, with all orders, or not larger, with one.

    Returned with whether they are the same.
    """
    ranges = [a for a, _ in levels]
    finest = fineness(levels, least, orders=orders)
    if finest < 2 or not 1e-100 < ranges[-1] <= ranges[0] <= MOST_RANGE:
        return None, True
    for share in (1.0, 0.6, 0.3) if len(levels) > 1 else (1.0,):
        m, h, exact = lattice(ranges, max(int(share * finest), 2), up=orders)
        entries = [(part, count) for part, (_, count) in zip(m, levels, strict=True) if part > 1]  # fewer, from below
        with contextlib.suppress(RouteFailed):  # V has small edges where orders meet: a coarser lattice may miss them
            return Game(entries, h, least, orders=orders).values(), exact
    return None, True
