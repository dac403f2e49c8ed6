"""The optimal adaptive composition of k choices whose loss has a range of at most a, as the value of a game.

    V_0(x) = (1 − e^x)_+,      V_k(x) = sup_{0≤t≤a} E V_{k−1}(x − L_t),

L_t = t with probability (1 − e^{t−a})/(1 − e^{−a}), else t − a. In z = e^x the value is the envelope of all secants of V_{k−1}
between y and ye^a. On the points jh, h = a/m, those between lattice points are a strategy, which bounds V_k from below; from
above V_{k−1} is replaced by its chords, and the secants between the chords of two cells exceed those at their ends by a known
amount. That no line beyond five around the best one matters is shown by comparing neighbours: of two lines the right one gains
on the left one as z grows. Proofs, and rounding: ``proofs/choices.md``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.routes.route import QUIET, RouteFailed

Indices = NDArray[np.int64]

WORK = 15_000_000
"""Lattice points times choices that one game may cost: about half a second."""

FINEST, COARSEST = 1024, 16
"""Lattice points per range: at most, and at least."""

_MOST_RANGE = 50.0
"""The largest range a of a choice: above it the weights of the ends are known too badly."""

_WINDOW = range(-2, 3)


@dataclass(frozen=True, eq=False)
class Values:
    """V at jh, j = 0, …, n − 1: ``lower`` − ``leak`` ≤ V ≤ ``upper`` + ``leak``, up to ``rounding`` (relative); beyond, V falls."""

    spacing: float
    upper: Floats
    lower: Floats
    leak: float
    rounding: float

    @property
    def reach(self) -> float:
        """Up to where V is known."""
        return self.spacing * (self.upper.size - 1)


class Game:
    """Played on m points per range, where V exceeds ``least``."""

    def __init__(self, a: float, m: int, least: float) -> None:
        self.a, self.m, self.least, self.spacing = a, m, least, a / m
        t, scale = np.arange(m + 1), -math.expm1(-a)
        self.up = np.pad(-np.expm1((t - m) * self.spacing) / scale, 3)
        self.down = np.pad(np.exp((t - m) * self.spacing) * -np.expm1(-t * self.spacing) / scale, 3)
        self.gain = 0.25 * math.expm1(self.spacing) / scale
        # One choice: the logistic profile.
        x = self.spacing * np.arange(m + 1.0)
        gap = -np.expm1(np.minimum(0.5 * (x - a), 0.0))
        gap[-1] = 0.0
        self.upper = gap * (gap / scale)
        self.lower = self.upper
        self.leak, self.choices = 0.0, 1
        self.policy = np.full(m + 1, m // 2)

    def values(self) -> Values:
        """After the choices so far."""
        rounding = (self.choices + 1) * (32 + 8 * self.a) * UNIT
        return Values(self.spacing, self.upper, self.lower, self.leak * (1 + 1e-9), rounding)

    def play(self) -> None:
        """One more choice."""
        m, size = self.m, self.upper.size
        wide, low = self._extended(self.upper), self._extended(self.lower)
        origin = 2 * m + 4  # of x = 0 in these
        after = size + m
        lift = self._lift(wide)
        at = np.arange(-m, after) + origin
        half = np.append(self.policy, np.full(after - self.policy.size, self.policy[-1]))[:after]
        for attempt in range(4):
            if attempt:
                half = self._search(wide, lift, at[m:]) if attempt > 1 else half + shift[m:]
                half = np.minimum(np.maximum(half, (m + 1) // 2), m - 1)
            steps = np.arange(after)
            half = np.minimum(np.maximum.accumulate(half + steps) - steps, m - 1)  # falls by one at most
            t = np.concatenate([m - half[m:0:-1], half])
            t = np.minimum(np.maximum(t, 1), m - 1)
            new, ok, shift = self._upper(wide, lift, at, t)
            if ok:
                break
        else:
            raise RouteFailed("no strategy is shown to be the best")
        y = at[m:] - half
        below = self._line(low, y, half)
        keep = after
        new = new[m:]
        if new[-1] < self.least:
            keep = max(int(np.argmax(new < self.least)) + 1, 2)
        if keep < after and new[keep - 1] > 0:
            self.leak += float(new[keep - 1]) * (1 + 1e-9) + TINY
        self.upper, self.lower, self.policy = new[:keep], below[:keep], half[:keep] + shift[m : m + keep]
        self.choices += 1

    def _extended(self, v: Floats) -> Floats:
        """V from −(2m + 4)h on, by symmetry, to 2m + 4 points beyond its end, by continuing the last ratio."""
        pad = 2 * self.m + 4
        ratio = v[-1] / v[-2] if v[-2] > 0 else 0.0
        right = np.concatenate([v, v[-1] * ratio ** np.arange(1.0, pad + 1)])
        x = self.spacing * np.arange(pad, 0, -1.0)
        return np.concatenate([np.exp(-x) * right[pad:0:-1] - np.expm1(-x), right])

    def _lift(self, wide: Floats) -> Floats:
        """By how much the secants from within the cells on both sides of a point may exceed those at their ends."""
        drop = wide[:-1] - wide[1:]
        cell = np.maximum(drop[: -self.m] - math.exp(-self.a) * drop[self.m :], 0.0) * self.gain
        lift = cell * (1 + 64 * UNIT) + 8 * UNIT * self.gain * wide[: cell.size]
        lift[1:] = np.maximum(lift[1:], lift[:-1])
        return lift

    def _upper(self, wide: Floats, lift: Floats, at: Indices, t: Indices) -> tuple[Floats, bool, Indices]:
        """The best of all secants; whether this was shown; and by how much the best of five is off the policy."""
        first = at - t
        lines, lifts = [], []
        for d in _WINDOW:
            y = first - d
            lines.append(self._line(wide, y, t + d))
            lifts.append(lift[y])
        lifted = [line + more for line, more in zip(lines, lifts, strict=True)]
        slack = 1 - 32 * UNIT
        right = (lifted[0] <= lifted[1] * slack) | (t < 2)
        left = (lifted[4] <= lifted[3] * slack) | (t > self.m - 2)
        middle, most = lines[2], np.maximum(np.maximum(lifts[1], lifts[2]), lifts[3])
        best = np.maximum(lifted[1], lifted[3])
        for other in (lines[1], lines[3]):
            share = np.maximum(1 - np.abs(middle - other) / (4 * most + TINY), 0.0)
            best = np.maximum(best, np.maximum(middle, other) + most * share * share)
        shift = np.where(lifted[1] > lifted[2], -1, np.where(lifted[3] > lifted[2], 1, 0))
        ok = bool(np.all((right & left) | (best <= 0)))
        # Where t falls, the best line skips one, and its neighbours two further away are compared as well.
        falls = np.flatnonzero(np.diff(t) < 0)
        for j, d in ((falls, -3), (falls + 1, 3)):
            far, near = (self._line(wide, first[j] - e, t[j] + e) + lift[first[j] - e] for e in (d, d - d // abs(d)))
            ok = ok and bool(np.all((far <= near * slack) | (t[j] + d < 0) | (t[j] + d > self.m) | (best[j] <= 0)))
        return best, ok, shift

    def _line(self, wide: Floats, y: Indices, t: Indices) -> Floats:
        """The secants that begin at y, at y + t; 0 where t is no place of the range."""
        return self.up[t + 3] * wide[y] + self.down[t + 3] * wide[y + self.m]

    def _search(self, wide: Floats, lift: Floats, at: Indices) -> Indices:
        """For every x ≥ 0 the t after which the lines fall."""
        low, high = np.full(at.size, self.m // 2), np.full(at.size, self.m - 1)
        while np.any(low < high):
            t = (low + high) // 2
            y = at - t
            here, there = (self._line(wide, y - e, t + e) + lift[y - e] for e in (0, 1))
            rises = (there > here) | (here <= 0)  # beyond the largest loss all are 0
            low, high = np.where(rises & (low < high), t + 1, low), np.where(rises, high, np.maximum(t, low))
        return low
