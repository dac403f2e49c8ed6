"""Whether δ(ε) ≤ δ, in ball arithmetic, of a run as a certificate writes it down (``proofs/rigorous.md``)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from privcalc.rigorous.balls import Ball, arb, precision, upper
from privcalc.rigorous.contour import Progress
from privcalc.rigorous.description import RELATIONS, REPLACE_ONE, RefusedError, UnprovableError, read
from privcalc.rigorous.direction import Composition, DirectionBounds, by_group, compose, silent
from privcalc.rigorous.factors import Logistic
from privcalc.rigorous.mechanisms import Kind

Integers: TypeAlias = list[int]

BITS = 320
"""Of the fixed point: δ ≥ 1e-30 = 2^−100 leaves 220 of them, of which a line may be off by 40 (``OFF``)."""
ONE = 1 << BITS
OFF = 1 << 40
"""More units than a line may be off by.

It is also more than the difference of two lines may rise by to the left, as slopes are rounded.
"""

LARGEST = 4
"""The largest range, for which that is so."""

MOST, WORK, FINEST = 100, 1e6, 1600
"""Choices; lattice points times choices, a few microseconds each; points per range."""

SPARE = 1e-10
"""The share of δ that all that is cut off may take."""


def choices_in(parts: Composition) -> tuple[Fraction, int] | None:
    """The range and number of choices, where a run consists of choices of one range; else None."""
    if len(parts.factors) == 1 and not parts.leaks:
        only = parts.factors[0]
        if isinstance(only, Logistic) and only.count > 1:
            return only.a, only.count
    return None


def game(a: Fraction, count: int, epsilon: Fraction, delta: float, progress: Progress) -> tuple[float, int]:
    """Bound δ(ε) of ``count`` adaptive choices of range a, from above; and the points per range.

    It is meant for δ of about ``delta``.

    Raises:
        UnprovableError: if there are too many choices, or no line is shown to be the best.
    """
    if (
        not 2 <= count <= MOST
        or not Fraction(1, 10**6) <= a <= LARGEST
        or not 0 <= epsilon < count * a
        or delta < 1e-30
    ):
        raise UnprovableError(f"{count} choices of range {float(a)!r}: not played in ball arithmetic")
    reach = math.sqrt(-0.5 * math.log(SPARE * delta / count))
    m = min(FINEST, int(WORK / (count * (min(0.5 * count, 0.67 * reach * math.sqrt(count)) + 4)))) & ~1
    table, leak = _play(a, count, m, SPARE * delta / count, progress)
    place = epsilon / a * m
    j = min(math.floor(place), len(table) - 2)
    with precision(BITS + 64):
        h = arb(a) / m
        share = (
            (arb(epsilon) - j * h).expm1() / h.expm1() if j == math.floor(place) else arb(1)
        )  # beyond the end V has fallen
        high, low = table[j], table[j + 1]
        bound = (high - share * (high - low) + leak) / arb(ONE)
        return upper(bound), m


def _play(a: Fraction, count: int, m: int, least: float, progress: Progress) -> tuple[Integers, int]:
    """V on the points jh, j = 0, 1, …, and what was cut off, as multiples of 2^−BITS."""
    weights, small, leak = _Weights(a, m), int(least * ONE), 0
    table = weights.first()
    for played in range(1, count):
        progress("")
        end = (played + 1) * m  # the largest loss
        table = weights.step(table, played * m, small)
        below = next((j for j, value in enumerate(table) if value < small), end)
        # Cut only where a quarter goes. Empirical: only speed depends on it.
        if below < 0.75 * end:
            table = table[: max(below + 1, m + 2)]
        if len(table) <= end:
            leak += table[-1]
    return table, leak


def _up(ball: Ball) -> int:
    """Return an integer no smaller than 2^BITS times anything in the ball."""
    return int((ball * ONE).upper().ceil().unique_fmpz())


def _down(ball: Ball) -> int:
    return -_up(-ball)


class _Weights:
    """For choices of range a = mh."""

    def __init__(self, a: Fraction, m: int) -> None:
        self.m, self.pad = m, 3 * m + 8
        with precision(BITS + 64):
            h = arb(a) / m
            whole = -(-arb(a)).expm1()
            up = [-((t - m) * h).expm1() / whole for t in range(m + 1)]
            self.high = [0] * 3 + [_up(p) for p in up] + [0] * 3
            self.low = [0] * 3 + [_up(1 - p) for p in up] + [0] * 3
            self.shrink = [_down((-j * h).exp()) for j in range(self.pad, 0, -1)]
            self.gain, self.decay, self.grow = _up(h.expm1() / (4 * whole)), _down((-arb(a)).exp()), _down(h.exp())
            self.start = [
                _up((-(j * h - arb(a)) / 2).expm1() ** 2 * (j * h - arb(a)).exp() / whole) for j in range(m)
            ] + [0]

    def first(self) -> Integers:
        """(1 − e^{(x − a)/2})²/(1 − e^{−a})."""
        return self.start

    def step(self, table: Integers, end: int, small: int) -> Integers:
        """One more choice; the largest loss so far is at ``end``. A table may end where it is below ``small``."""
        m, pad, n = self.m, self.pad, len(table)
        right = table + [0] * pad
        if n <= end:  # what stands beyond the end does not matter: it was set apart
            ratio, last = table[-1] * ONE // table[-2], table[-1]
            for k in range(pad):
                last = last * ratio >> BITS
                right[n + k] = last
        value = [ONE - (fall * (ONE - x) >> BITS) for fall, x in zip(self.shrink, right[pad:0:-1], strict=True)] + right
        drop = [x - y for x, y in itertools.pairwise(value)]
        fall = [x - y for x, y in zip(value, value[m:], strict=False)]
        if min(drop) < 0 or any((x * self.grow >> BITS) + 8 < y for x, y in itertools.pairwise(fall)):
            raise UnprovableError("the value is not convex")
        excess = [max(x - (y * self.decay >> BITS), 0) for x, y in zip(drop, drop[m:], strict=False)]
        excess = [x * self.gain // ONE + (x > 0) for x in excess]
        lift = [excess[0], *(max(pair) for pair in itertools.pairwise(excess))]
        size = n + 2 * m
        half = self._policy(value, size)
        for _ in range(6):
            far = list(itertools.accumulate((t + x for x, t in enumerate(half)), max))  # falls by one at most
            half = [min(y - x, m - 1) for x, y in enumerate(far)]
            t = [max(m - x, 1) for x in half[m:0:-1]] + half
            best, failed, shift = self._best(value, lift, t)
            if not failed:
                break
            half = [min(max(x + d, m // 2), m - 1) for x, d in zip(half, shift[m:], strict=True)]
        keep = n + m if not failed else failed[0] - 2 * m  # every line that matters so far was compared
        played = [min(x, ONE) for x in best[m : m + max(keep, 0)]]
        if failed:
            if keep < m + 2 or played[-1] >= small:
                raise UnprovableError("no line is shown to be the best")
            return played
        if n > end:
            played[end + m :] = [0] * (len(played) - end - m)  # the largest loss
            return played[: end + m + 1]
        return played

    def _best(self, value: Integers, lift: Integers, policy: Sequence[int]) -> tuple[Integers, list[int], list[int]]:
        """The best of all secants from x = −m on, rounded up; where this was not shown; where the best of five is."""
        m, bests, failed, shift = self.m, list[int](), list[int](), list[int]()

        def line(t: int) -> int:
            return (self.high[t + 3] * value[at - t] >> BITS) + (self.low[t + 3] * value[at - t + m] >> BITS)

        def less(far: int, near: int) -> bool:
            return far == 0 or far + OFF <= near

        for p, t in enumerate(policy):
            at = self.pad - m + p
            lines = [line(t + d) for d in range(-2, 3)]
            lifted = [x + lift[at - t - d] for d, x in zip(range(-2, 3), lines, strict=True)]
            best = max(lifted[1], lifted[3])
            most = max(lift[at - t + 1], lift[at - t], lift[at - t - 1]) + 1
            for other in (lines[1], lines[3]):
                share = max(4 * most - max(abs(lines[2] - other) - OFF, 0), 0)
                best = max(best, max(lines[2], other) + share * share // (16 * most) + 1)
            shown = (t < 2 or less(lifted[0], lifted[1])) and (t > m - 2 or less(lifted[4], lifted[3]))
            if shown and p + 1 < len(policy) and policy[p + 1] < t and t >= 3:
                shown = less(line(t - 3) + lift[at - t + 3], lifted[0])
            if shown and p > 0 and t < policy[p - 1] and t <= m - 3:
                shown = less(line(t + 3) + lift[at - t - 3], lifted[4])
            if not shown:
                failed.append(p)
            shift.append(-1 if lifted[1] > lifted[2] else 1 if lifted[3] > lifted[2] else 0)
            bests.append(best + OFF * (best > 0))
        return bests, failed, shift

    def _policy(self, value: Integers, size: int) -> list[int]:
        """Return, in floats, for every x ≥ 0 the t after which the lines fall."""
        m, offsets = self.m, list[int]()
        u, up = ([x / ONE for x in part] for part in (value, self.high))
        for at in range(self.pad, self.pad + size):
            low, high = m // 2, m - 1
            while low < high:
                t = (low + high) // 2
                here = u[at - t + m] + up[t + 3] * (u[at - t] - u[at - t + m])
                there = u[at - t - 1 + m] + up[t + 4] * (u[at - t - 1] - u[at - t - 1 + m])
                if there > here or here <= 0:
                    low = t + 1
                else:
                    high = t
            offsets.append(low)
        return offsets


Verdict = Literal["proved", "refuted", "undecided"]


@dataclass(frozen=True)
class Finding:
    """The outcome of a proof: bounds of δ(ε), 0 and 1 where nothing is known, and the working, line by line."""

    verdict: Verdict
    low: float
    high: float
    working: tuple[str, ...]


class Prover:
    """One run under one relation, of which several claims may be asked; what they share is kept.

    Args:
        run: the field ``run`` of a certificate.
        relation: the name of the neighbouring relation.

    Example:
        >>> mechanism = {"kind": "Gaussian", "noise_multiplier": 20.0}
        >>> prover = Prover([{"mechanism": mechanism, "count": 206}], "add-or-remove-one")
        >>> prover.decide(2.993, 1e-5).verdict, prover.decide(2.992, 1e-5).verdict
        ('proved', 'refuted')
    """

    def __init__(self, run: object, relation: str) -> None:
        self.relation, self.reason = relation, ""
        try:
            self.run = read(run)
        except UnprovableError as reason:
            self.run, self.reason = (), str(reason)
        if relation not in RELATIONS:
            raise RefusedError(f"relation = {relation!r}: must be one of {', '.join(RELATIONS)}")
        self._direction = functools.cache(self._compose)

    def _compose(self, kind: Kind, add: bool) -> DirectionBounds:
        return DirectionBounds(compose(self.run, self.relation, kind, add=add))

    def decide(self, epsilon: float, delta: float, progress: Callable[[str], None] = silent) -> Finding:
        """Decide the claim δ(ε) ≤ δ.

        Args:
            epsilon: ε ≥ 0, finite.
            delta: δ in [0, 1).
            progress: called now and then with what is being done, often with an empty text; it may raise
                ``UnprovableError`` to end what takes too long.

        Raises:
            RefusedError: if a mechanism has no guarantee under the relation.
        """
        if not (0 <= epsilon < math.inf and 0 <= delta < 1):
            raise RefusedError(f"epsilon = {epsilon!r}, delta = {delta!r}: must be finite and >= 0, δ below 1")
        if self.reason:
            return Finding("undecided", 0.0, 1.0, (self.reason,))
        lines = list[str]()
        low, high = 0.0, 1.0
        try:
            low, high = self._both(Fraction(epsilon), delta, progress, lines)
        except (UnprovableError, ArithmeticError) as reason:
            lines.append(str(reason))
        if self.relation == REPLACE_ONE and low <= delta < high:
            with contextlib.suppress(RefusedError, ArithmeticError):
                try:
                    most, how = by_group(self.run, Fraction(epsilon), delta, progress)
                    high = min(high, most)
                    lines.append(f"group rule: δ(ε) ≤ {most!r} by {how}")
                except UnprovableError as other:
                    lines.append(f"group rule: {other}")
        if low > high:
            raise AssertionError(f"δ({epsilon!r}) in [{low!r}, {high!r}]: an error in the rigorous route")
        verdict: Verdict = "proved" if high <= delta else "refuted" if low > delta else "undecided"
        return Finding(verdict, low, high, tuple(lines))

    def _both(
        self, epsilon: Fraction, delta: float, progress: Callable[[str], None], lines: list[str]
    ) -> tuple[float, float]:
        """Bounds in the worse direction."""
        bounds = []
        for add in (False, True):
            name = "add" if add else "remove"
            direction = self._direction("dominating", add)
            best = direction.bounds(epsilon, delta, progress)
            lines.append(f"{name}: δ(ε) in [{best.low!r}, {best.high!r}] by {best.how}")
            least, most = (best.low if direction.parts.exact else 0.0), best.high
            if most > delta and (other := self._direction("moments", add)).parts != direction.parts:
                moments = other.bounds(epsilon, delta, progress)
                lines.append(f"{name}, a²/8-zCDP or a normal pair: δ(ε) ≤ {moments.high!r} by {moments.how}")
                most = min(most, moments.high)
            if most > delta and (played := choices_in(direction.parts)):
                with contextlib.suppress(UnprovableError):
                    better, points = game(*played, epsilon, delta, progress)
                    lines.append(
                        f"{name}, adaptive choices: δ(ε) ≤ {better!r} by their game, {points} points per range"
                    )
                    most = min(most, better)
            if most > delta and not direction.parts.exact:
                occurs = self._direction("occurring", add).bounds(epsilon, delta, progress)
                lines.append(f"{name}, a pair that occurs: δ(ε) ≥ {occurs.low!r} by {occurs.how}")
                least = occurs.low
            bounds.append((least, most))
            if not add and self._direction("dominating", True).parts == direction.parts:
                lines[-1] += "; the other direction is the same"
                break
        return max(x for x, _ in bounds), max(x for _, x in bounds)
