"""One choice of a game (``numerics/routes/choices.py``): the envelope of all secants between points of the ratio e^a.

On the points jh, h = a/m, those between lattice points are a strategy, which bounds the value from below; from above
the value is replaced by its chords, and the secants between the chords of two cells exceed those at their ends by a
known amount. That no line beyond a few around the best one matters is shown by comparing neighbours: of two lines the
right one gains on the left one as z grows. Proofs, and rounding: ``proofs/choices.md``, §2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import RouteFailed

Indices = NDArray[np.int64]

SMALL = 1e-27
"""Below this, over the scale of V, the last point of a table need not be shown to be the best."""

_MARGIN = 4
"""Places before and after a range where weights are 0: lines that far from the best one are looked at."""

_BLOCK = 1 << 13
"""Points that are worked on at once, for the cache's sake."""

_STRIDE = 16
"""Points between those where t is searched first."""


class _Runs:
    """Where t is the same for many points in a row, slices are faster than indices."""

    def __init__(self, t: Indices, origin: int) -> None:
        cuts = np.flatnonzero(np.diff(t)) + 1
        self.t, self.origin, self.lengths = t, origin, np.diff(np.concatenate([[0], cuts, [t.size]]))
        self.at = t[np.concatenate([[0], cuts])]
        ends = np.cumsum(self.lengths) + origin - self.at
        self.ranges = list(zip((ends - self.lengths).tolist(), ends.tolist(), strict=True))
        self.places = np.arange(t.size) + (origin - t) if 32 * self.at.size > t.size else None

    def take(self, v: Floats, d: int) -> Floats:
        """v at origin + p − t − d."""
        if self.places is not None:
            return np.take(v, self.places - d)
        return np.concatenate([v[first - d : end - d] for first, end in self.ranges])

    def weigh(self, table: Floats, d: int) -> Floats:
        """The table, which begins at −_MARGIN, at t + d."""
        return np.repeat(table[self.at + (_MARGIN + d)], self.lengths)


@dataclass(frozen=True, eq=False)
class Strategy:
    """What a policy and its test S attain on points: P(S) − e^x Q(S), e^x Q(S) and P(not S).

    Beyond the end S is empty.
    """

    lower: Floats
    tail: Floats
    rest: Floats


@dataclass(frozen=True, eq=False)
class Position:
    """V on the points jh, j = 0, …, n − 1, after some choices.

    Attributes:
        upper: V(jh) is at most this, plus ``leak``.
        missing: 1 − ``upper`` of the first points, where V is more than a half: relative accuracy for that, too.
        leak: what was cut off.
        variance: Σ m² of the choices so far.
        whole: whether the last point is the largest loss.
        policies: of the ranges that were tried, by m: the best t at every point, and the ``variance`` then.
        strategy: what is known from below; None where this was not asked.
    """

    upper: Floats
    missing: Floats
    leak: float
    variance: float
    whole: bool
    policies: Mapping[int, tuple[Indices, float]] = field(default_factory=dict)
    strategy: Strategy | None = None


@dataclass(frozen=True, eq=False)
class _Known:
    """The same values three times, from −``pad`` on: each is accurate somewhere.

    Attributes:
        value: V, where it is at most a half.
        above: V − (1 − e^x), left of where that is so of V(−x).
        complement: V − 1 < 0, in between.
        near: how many points x ≥ 0 are in between.
    """

    value: Floats
    above: Floats
    complement: Floats
    near: int


def _more_than_half(value: Floats) -> int:
    """How many of the first values are; they fall."""
    return int(np.argmax(value <= 0.5))


def best(positions: Sequence[Position]) -> Position:
    """The larger of several values at every point; the strategy is the one that the first has."""
    if len(positions) == 1:
        return positions[0]
    size = min(position.upper.size for position in positions)
    upper = np.max([position.upper[:size] for position in positions], axis=0)
    near = min(max(position.missing.size for position in positions), size - 1)
    missing = np.min([np.append(p.missing, 1 - p.upper[p.missing.size : near])[:near] for p in positions], axis=0)
    cut = float(upper[-1]) if any(position.upper.size > size for position in positions) else 0.0
    policies = {m: policy for position in positions for m, policy in position.policies.items()}
    leak = max(position.leak for position in positions) + cut * (1 + 1e-9)
    whole = all(position.whole for position in positions) and cut == 0
    return replace(positions[0], upper=upper, missing=missing, leak=leak, whole=whole, policies=policies)


class Range:
    """Choices of range a = mh.

    Args:
        m: points in the range.
        spacing: h.
        scale: of V(0).
        least: tables end where V is below this, times ``scale``.
        window: lines more than this far from the best one are shown to matter no more: 2, or 3 where V is less smooth.
        shown: whether they must be; else values are known from below only, and ``upper`` is about as large.
    """

    def __init__(self, m: int, spacing: float, scale: float, least: float, *, window: int, shown: bool) -> None:
        self.window, self.shown = window, shown
        self.a, self.m, self.spacing = m * spacing, m, spacing
        self.small, self.least = scale * SMALL, scale * least
        self.pad = 3 * m + 8
        t, whole = np.arange(m + 1), -math.expm1(-self.a)
        up, down = -np.expm1((t - m) * spacing) / whole, np.exp((t - m) * spacing) * -np.expm1(-t * spacing) / whole
        # Where there is no place of the range the lines are low: 0, or far below where values are negative.
        self.weights = [[np.pad(w, _MARGIN, constant_values=low) for w in (up, down)] for low in (0.0, 1e9)]
        self.gain = 0.25 * math.expm1(spacing) / whole
        x = spacing * np.arange(self.pad, 0, -1.0)
        self.shrink, self.start, self.beyond = np.exp(-x), -np.expm1(-x), np.expm1(spacing * np.arange(2.0 * m))

    def first(self) -> Position:
        """One choice: the logistic profile, and the test of its worst offset."""
        m, a, scale = self.m, self.a, -math.expm1(-self.a)
        x = self.spacing * np.arange(m + 1.0)
        w = np.exp(np.minimum(0.5 * (x - a), 0.0))
        gap = -np.expm1(np.minimum(0.5 * (x - a), 0.0))
        gap[-1] = 0.0
        upper = gap * (gap / scale)
        strategy = Strategy(upper, w * (gap / scale), w * -np.expm1(-0.5 * (x + a)) / scale)
        near = w[: _more_than_half(upper)]
        missing = (near * (2 - near) - math.exp(-a)) / scale
        return Position(upper, missing, 0.0, float(m * m), True, {m: (np.full(m + 1, m // 2), float(m * m))}, strategy)

    def play(self, position: Position) -> Position:
        """One more choice of this range, before those of the position.

        Raises:
            RouteFailed: if no line is shown to be the best.
        """
        m, pad, old = self.m, self.pad, position.upper
        size = old.size + 2 * m  # of the points x ≥ 0 where lines are compared; their values are kept for m fewer
        ratio = old[-1] / old[-2] if old[-2] > 0 else 0.0
        right = np.concatenate([old, old[-1] * ratio ** np.arange(1.0, pad + 1)])
        left = self.shrink * right[pad:0:-1]  # V − (1 − e^x) for x < 0, by symmetry
        near = position.missing.size
        missing = np.append(position.missing, 1 - right[near : near + pad + 1])
        known = _Known(
            value=np.concatenate([left + self.start, right]),
            above=np.concatenate([left, right[: 2 * m] + self.beyond]),
            complement=-np.concatenate([self.shrink * missing[pad:0:-1], missing]),
            near=near,
        )
        lift = self._lift(known)
        steps = np.arange(size)
        variance = position.variance + m * m
        half = self._guess(position, known, lift, size, variance)
        for attempt in range(4):
            half = np.minimum(np.maximum.accumulate(half + steps) - steps, m - 1)  # falls by one at most
            new, shown, shift = self._best(known.value, lift, half, pad)
            end = min(_more_than_half(new[near:]) + near, near + m)
            first = min(near, m)
            t = np.concatenate(
                [np.maximum(m - half[first:0:-1], 1), half[: end + 1]]
            )  # from −first to end, which is compared
            best, compared, moved = self._best(known.complement, lift, t, pad - first)
            missing, shown[:end], shift[:end] = -best[first:-1], compared[first:-1], moved[first:-1]
            shown[end] &= compared[-1]
            new[:end] = 1 - missing
            failed = np.flatnonzero(~shown[: size - m] if position.whole else ~shown)
            mirrored = compared[:first]
            if first < m:
                t = np.maximum(m - half[m : max(first - 1, 0) : -1], 1)
                mirrored = np.append(self._best(known.above, lift, t, pad - m)[1], mirrored)
            if (not failed.size and np.all(mirrored)) or attempt == 3:
                break
            half = np.clip(self._search(known, lift, steps) if attempt else half + shift, (m + 1) // 2, m - 1)
        keep = size - m
        if self.shown:
            keep = size - m if not failed.size else int(failed[0]) - m
            if not np.all(mirrored) or keep < 2 or (failed.size and new[keep - 1] > self.small):
                raise RouteFailed("no strategy is shown to be the best")
        small = max(int(np.argmax(new < self.least)) + 1, 2)
        if new[keep - 1] < self.least and (small < 0.75 * keep or not position.whole):
            keep = min(small, keep)  # near the largest loss V falls too steeply
        strategy = self._strategy(position.strategy, _Runs(half[:keep], pad)) if position.strategy else None
        upper, policy = new[:keep], np.clip(half[:keep] + shift[:keep], (m + 1) // 2, m - 1)
        whole = position.whole and keep == size - m
        if whole:
            upper[-1] = 0.0  # the largest loss
        leak = position.leak + float(upper[-1]) * (1 + 1e-9)
        policies = {**position.policies, m: (policy, variance)}
        return Position(upper, missing[: keep - 1], leak, variance, whole, policies, strategy)

    def _guess(self, position: Position, known: _Known, lift: Floats, size: int, variance: float) -> Indices:
        """Of one range the best t depends on x over the variance, nearly; else it is searched at some points."""
        if set(position.policies) == {self.m}:
            policy, before = position.policies[self.m]
            return policy[np.minimum((np.arange(size) * (before / variance)).astype(np.int64), policy.size - 1)]
        places = np.unique(np.append(np.arange(0, size, _STRIDE), size - 1))
        found = np.interp(np.arange(size), places, self._search(known, lift, places))
        return np.clip(np.rint(found).astype(np.int64), (self.m + 1) // 2, self.m - 1)

    def _strategy(self, known: Strategy, runs: _Runs) -> Strategy:
        """What the policy attains."""
        right = [
            np.concatenate([v, np.full(self.pad, end)])
            for v, end in ((known.lower, 0.0), (known.tail, 0.0), (known.rest, 1.0))
        ]
        value, tail, rest = (self.shrink * v[self.pad : 0 : -1] for v in right)
        left = (value + self.start, rest, tail)  # P and Q exchanged: not S is the test
        found = [self._lines(np.concatenate(ends), runs, 0) for ends in zip(left, right, strict=True)]
        return Strategy(*found)

    def _lift(self, known: _Known) -> Floats:
        """By how much secants from within the cells on both sides of a point may exceed those at their ends.

        What it is, and whether the slopes of the secants rise, is the same of V, V − (1 − e^x) and V − 1; rounding is
        not.

        Raises:
            RouteFailed: unless the slopes of the secants rise.
        """
        m, pad, shrink, step = self.m, self.pad, math.exp(-self.a), math.exp(self.spacing)
        size = known.value.size - m - 1
        lift, ordered = np.full(size, np.inf), np.zeros(size, dtype=np.bool_)
        for v in (known.value, known.above, known.complement):
            fall, drop = v[:-1] - v[1:], v[:-m] - v[m:]
            cell, blur = (
                fall[:-m] - shrink * fall[m:],
                np.abs(v[: -m - 1] if v is known.value else v[m:-1]),
            )  # the larger end
            part = slice(0, cell.size)
            lift[part] = np.minimum(
                lift[part], self.gain * (np.maximum(cell, 0.0) * (1 + 64 * UNIT) + 16 * UNIT * blur)
            )
            if v is known.value:
                blur[pad + known.near :] = drop[pad + known.near : -1]  # here the values are as they stand
            ordered[part] |= step * drop[:-1] - drop[1:] >= 32 * UNIT * blur
        if self.shown and not np.all(ordered[m:]):
            raise RouteFailed("the value is not convex")
        lift[1:] = np.maximum(lift[1:], lift[:-1])
        return lift

    def _best(self, value: Floats, lift: Floats, t: Indices, origin: int) -> tuple[Floats, NDArray[np.bool_], Indices]:
        """The best of all secants; whether this was shown; and how far the best near t is off t: by blocks."""
        best, shown, shift = np.empty(t.size), np.ones(t.size, dtype=np.bool_), np.empty(t.size, dtype=np.int64)
        for first in range(0, t.size, _BLOCK):
            block = slice(first, first + _BLOCK + 1)  # neighbours across the end are compared
            best[block], also, shift[block] = self._best_near(value, lift, _Runs(t[block], origin + first))
            shown[block] &= also
        return best, shown, shift

    def _best_near(self, value: Floats, lift: Floats, runs: _Runs) -> tuple[Floats, NDArray[np.bool_], Indices]:
        w = self.window
        lines = [self._lines(value, runs, d) for d in range(-w, w + 1)]
        lifts = [runs.take(lift, d) for d in range(-w, w + 1)]
        lifted = [line + more for line, more in zip(lines, lifts, strict=True)]
        slack, t = 1 - math.copysign((64 + 8 * self.a) * UNIT, value[0]), runs.t
        best = np.maximum(lifted[1], lifted[-2])
        for i in range(1, 2 * w - 1):
            most = np.maximum(lifts[i], lifts[i + 1])
            share = np.maximum(1 - np.abs(lines[i] - lines[i + 1]) / (4 * most + TINY), 0.0)
            best = np.maximum(best, np.maximum(lines[i], lines[i + 1]) + most * share * share)
        shown = ((lifted[0] <= lifted[1] * slack) | (t < w)) & ((lifted[-1] <= lifted[-2] * slack) | (t > self.m - w))
        # Where t falls, the best line skips one, and its neighbours one further away are compared as well.
        falls = np.flatnonzero(np.diff(t) < 0)
        for p, d, nearer in ((falls, -w - 1, lifted[0]), (falls + 1, w + 1, lifted[-1])):
            y = runs.origin + p - t[p] - d
            up, down = (w[t[p] + (_MARGIN + d)] for w in self.weights[int(np.signbit(value[0]))])
            further = up * value[y] + down * value[y + self.m] + lift[y]
            shown[p] &= (further <= nearer[p] * slack) | (t[p] + d < 0) | (t[p] + d > self.m)
        top = np.argmax(lifted[1:-1], axis=0)
        return best, shown, np.where(np.max(lifted[1:-1], axis=0) > lifted[w], top - (w - 1), 0)

    def _lines(self, value: Floats, runs: _Runs, d: int) -> Floats:
        """The secants for t + d; low where this is no place of the range."""
        low, high = runs.take(value, d), runs.take(value, d - self.m)
        up, down = (runs.weigh(w, d) for w in self.weights[int(np.signbit(value[0]))])
        return up * low + down * high

    def _search(self, known: _Known, lift: Floats, steps: Indices) -> Indices:
        """For each of these points x ≥ 0, which rise, the t after which the lines fall."""
        first = int(np.searchsorted(steps, known.near))
        parts = ((known.complement, steps[:first]), (known.value, steps[first:]))
        return np.concatenate([self._turn(value, lift, part + self.pad) for value, part in parts])

    def _turn(self, value: Floats, lift: Floats, at: Indices) -> Indices:
        low, high = np.full(at.size, self.m // 2), np.full(at.size, self.m - 1)
        up, down = self.weights[0]
        while np.any(low < high):
            t = (low + high) // 2
            here, there = (
                up[t + e + _MARGIN] * value[at - t - e]
                + down[t + e + _MARGIN] * value[at - t - e + self.m]
                + lift[at - t - e]
                for e in (0, 1)
            )
            rises = (there > here) | (here == 0)  # beyond the largest loss all are 0
            low, high = np.where(rises & (low < high), t + 1, low), np.where(rises, high, np.maximum(t, low))
        return low
