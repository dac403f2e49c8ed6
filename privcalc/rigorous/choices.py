"""The game of adaptive choices from above, in integers: multiples of 2^−320, every operation rounded upwards.

What is shown is that of ``proofs/choices.md``, §1 and §2: chords on a lattice, and that no line beyond five around the best one
matters. Floats guess which line is the best. Weights come from ball arithmetic.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from privcalc.rigorous.balls import Ball, arb, precision, upper
from privcalc.rigorous.factors import Logistic, UnprovableError
from privcalc.rigorous.translate import Composition

Integers: TypeAlias = Any
"""An array of Python integers."""

BITS = 320
ONE = 1 << BITS
OFF = 1 << 40
"""More units than a line may be off by, and than the difference of two lines may rise by to the left, as slopes are rounded."""

LARGEST = 4
"""The largest range, for which that is so."""

MOST, WORK, FINEST = 100, 1e6, 1600
"""Choices; lattice points times choices, a few microseconds each; points per range."""

SPARE = 1e-10
"""The share of δ that all that is cut off may take."""


def of(parts: Composition) -> tuple[Fraction, int] | None:
    """The range and number of choices, where a run consists of choices of one range; else None."""
    if len(parts.factors) == 1 and not parts.leaks:
        only = parts.factors[0]
        if isinstance(only, Logistic) and only.count > 1:
            return only.a, only.count
    return None


def game(a: Fraction, count: int, epsilon: Fraction, delta: float) -> tuple[float, int]:
    """An upper bound of δ(ε) of ``count`` adaptive choices of range a, meant for δ of about ``delta``; and the points per range.

    Raises:
        UnprovableError: if there are too many choices, or no line is shown to be the best.
    """
    if not 2 <= count <= MOST or not Fraction(1, 10**6) <= a <= LARGEST or not 0 <= epsilon < count * a or delta < 1e-30:
        raise UnprovableError(f"{count} choices of range {float(a)!r}: not played in ball arithmetic")
    reach = math.sqrt(-0.5 * math.log(SPARE * delta / count))
    m = min(FINEST, int(WORK / (count * (min(0.5 * count, 0.67 * reach * math.sqrt(count)) + 4)))) & ~1
    table, leak = _play(a, count, m, SPARE * delta / count)
    place = epsilon / a * m
    j = min(math.floor(place), len(table) - 2)
    with precision(BITS + 64):
        h = arb(a) / m
        share = (arb(epsilon) - j * h).expm1() / h.expm1() if j == math.floor(place) else arb(1)  # beyond the end V has fallen
        high, low = int(table[j]), int(table[j + 1])
        bound = (high - share * (high - low) + leak) / arb(ONE)
        return upper(bound), m


@functools.lru_cache(maxsize=4)
def _play(a: Fraction, count: int, m: int, least: float) -> tuple[Integers, int]:
    """V on the points jh, j = 0, 1, …, and what was cut off, as multiples of 2^−BITS."""
    weights, small, leak = _Weights(a, m), int(least * ONE), 0
    table = weights.first()
    for played in range(1, count):
        end = (played + 1) * m  # the largest loss
        table = weights.step(table, played * m, small)
        below = np.flatnonzero(table < small)
        if below.size and below[0] < 0.75 * end:
            table = table[: max(int(below[0]) + 1, m + 2)]
        if len(table) <= end:
            leak += int(table[-1])
    return table, leak


def _up(ball: Ball) -> int:
    """No smaller than 2^BITS times anything in the ball."""
    return int((ball * ONE).upper().ceil().unique_fmpz())


def _down(ball: Ball) -> int:
    return -_up(-ball)


def _array(values: list[int]) -> Integers:
    return np.array(values, dtype=object)


class _Weights:
    """For choices of range a = mh."""

    def __init__(self, a: Fraction, m: int) -> None:
        self.m, self.pad = m, 3 * m + 8
        with precision(BITS + 64):
            h = arb(a) / m
            whole = -(-arb(a)).expm1()
            up = [-((t - m) * h).expm1() / whole for t in range(m + 1)]
            self.high = _array([0] * 3 + [_up(p) for p in up] + [0] * 3)
            self.low = _array([0] * 3 + [_up(1 - p) for p in up] + [0] * 3)
            self.shrink = _array([_down((-j * h).exp()) for j in range(self.pad, 0, -1)])
            self.gain, self.decay, self.grow = _up(h.expm1() / (4 * whole)), _down((-arb(a)).exp()), _down(h.exp())
            self.start = [_up((-(j * h - arb(a)) / 2).expm1() ** 2 * (j * h - arb(a)).exp() / whole) for j in range(m)] + [0]

    def first(self) -> Integers:
        """(1 − e^{(x − a)/2})²/(1 − e^{−a})."""
        return _array(self.start)

    def step(self, table: Integers, end: int, small: int) -> Integers:
        """One more choice; the largest loss so far is at ``end``. A table may end where it is below ``small``."""
        m, pad, n = self.m, self.pad, len(table)
        more, ratio = [0] * pad, 0
        if n <= end:  # what stands beyond the end does not matter: it was set apart
            ratio = int(table[-1]) * ONE // int(table[-2])
            last = int(table[-1])
            for k in range(pad):
                last = last * ratio >> BITS
                more[k] = last
        right = np.concatenate([table, _array(more)])
        value = np.concatenate([ONE - (self.shrink * (ONE - right[pad:0:-1]) >> BITS), right])
        drop = value[:-1] - value[1:]
        fall = value[:-m] - value[m:]
        if np.any(drop < 0) or np.any((fall[:-1] * self.grow >> BITS) + 8 < fall[1:]):
            raise UnprovableError("the value is not convex")
        excess = drop[:-m] - (drop[m:] * self.decay >> BITS)
        excess[excess < 0] = 0
        excess = excess * self.gain // ONE + (excess > 0)
        lift = np.append(excess[:1], np.maximum(excess[1:], excess[:-1]))
        size = n + 2 * m
        half, steps = self._policy(value, size), np.arange(-m, size)
        for _ in range(6):
            half = np.minimum(np.maximum.accumulate(half + steps[m:]) - steps[m:], m - 1)  # falls by one at most
            t = np.concatenate([np.maximum(m - half[m:0:-1], 1), half])
            best, shown, shift = self._best(value, lift, t, steps + pad)
            failed = np.flatnonzero(~shown.astype(bool))
            if not failed.size:
                break
            half = np.clip(half + shift[m:], m // 2, m - 1)
        keep = n + m if not failed.size else int(failed[0]) - 2 * m  # every line that matters so far was compared
        found = np.minimum(best[m : m + max(keep, 0)], ONE)
        if failed.size:
            if keep < m + 2 or found[-1] >= small:
                raise UnprovableError("no line is shown to be the best")
            return found
        if n > end:
            found[end + m :] = 0  # the largest loss
            return found[: end + m + 1]
        return found

    def _line(self, value: Integers, t: Any, at: Any) -> Integers:
        low = at - t
        return (self.high[t + 3] * value[low] >> BITS) + (self.low[t + 3] * value[low + self.m] >> BITS)

    def _best(self, value: Integers, lift: Integers, t: Any, at: Any) -> tuple[Integers, Any, Any]:
        """The best of all secants at these points, rounded up; whether it was shown to be; and where the best of five is."""
        m = self.m
        lines = [self._line(value, t + d, at) for d in range(-2, 3)]
        lifts = [lift[at - t - d] for d in range(-2, 3)]
        lifted = [line + more for line, more in zip(lines, lifts, strict=True)]
        best = np.maximum(lifted[1], lifted[3])
        most = np.maximum(np.maximum(lifts[1], lifts[2]), lifts[3]) + 1
        for other in (lines[1], lines[3]):
            share = np.maximum(4 * most - np.maximum(np.abs(lines[2] - other) - OFF, 0), 0)
            best = np.maximum(best, np.maximum(lines[2], other) + share * share // (16 * most) + 1)

        def less(far: Integers, near: Integers) -> Any:
            return (far == 0) | (far + OFF <= near)

        shown = (less(lifted[0], lifted[1]) | (t < 2)) & (less(lifted[4], lifted[3]) | (t > m - 2))
        falls = np.flatnonzero(np.diff(t) < 0)
        for p, d, nearer in ((falls, -3, lifted[0]), (falls + 1, 3, lifted[4])):
            further = self._line(value, t[p] + d, at[p]) + lift[at[p] - t[p] - d]
            shown[p] &= less(further, nearer[p]) | (t[p] + d < 0) | (t[p] + d > m)
        shift = np.where(lifted[1] > lifted[2], -1, np.where(lifted[3] > lifted[2], 1, 0))
        return best + OFF * (best > 0), shown, shift

    def _policy(self, value: Integers, size: int) -> Any:
        """In floats: for every x ≥ 0 the t after which the lines fall."""
        m, pad = self.m, self.pad
        u, up = (np.array([float(x) for x in part]) / float(ONE) for part in (value, self.high))
        at = np.arange(size) + pad
        low, high = np.full(size, m // 2), np.full(size, m - 1)
        while np.any(low < high):
            t = (low + high) // 2
            here, there = (u[at - t - e + m] + up[t + e + 3] * (u[at - t - e] - u[at - t - e + m]) for e in (0, 1))
            rises = (there > here) | (here <= 0)
            low, high = np.where(rises & (low < high), t + 1, low), np.where(rises, high, np.maximum(t, low))
        return low
