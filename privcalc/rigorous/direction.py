"""Bounds of δ(ε) of one composed direction: the routes in turn, until the claim is decided."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from privcalc.rigorous.allocation import allocated
from privcalc.rigorous.balls import Ball, arb, lower, middle, precision, upper
from privcalc.rigorous.contour import Bounds, Contour, Progress
from privcalc.rigorous.description import ADD_OR_REMOVE_ONE, Description
from privcalc.rigorous.exact import exact
from privcalc.rigorous.factors import Factor, Normal
from privcalc.rigorous.mechanisms import BOUNDED, Kind, Leak, factors_of, occurs


class Leaked(NamedTuple):
    """1 − Π(1 − p)^n from above and below; the share Π(1 − dropped)^n kept below (``proofs/conversions.md``, §2)."""

    high: Ball
    low: Ball
    kept: Ball


@dataclass(frozen=True)
class Composition:
    """One composed direction: factors, leaks, and whether this pair itself occurs."""

    factors: tuple[Factor, ...]
    leaks: tuple[Leak, ...]
    exact: bool

    def leaked(self) -> Leaked:
        """Return all leaks together: bounds of the probability that any occurs, and of what is kept."""
        high, low, kept = arb(1), arb(1), arb(1)
        for leak in self.leaks:
            high *= (1 - arb(leak.high)) ** leak.count
            low *= (1 - arb(leak.low)) ** leak.count
            kept *= (1 - arb(leak.dropped)) ** leak.count
        return Leaked(1 - high, 1 - low, kept)

    def top(self) -> Ball | None:
        """The largest loss apart from leaks; None if there is none."""
        total = arb(0)
        for factor in self.factors:
            top = factor.top
            if top is None:
                return None
            total += factor.count * top
        return total


def compose(run: Description, relation: str, kind: Kind, *, add: bool) -> Composition:
    """The factors of a run in one direction.

    Raises:
        UnprovableError: if a part has no factor here.
        RefusedError: if a mechanism has no guarantee under the relation.
    """
    square, parts, leaks, exact = Fraction(0), dict[Factor, int](), list[Leak](), True
    alone = len(run) == 1 and run[0][1] == 1
    for mechanism, count in run:
        exact = exact and (kind == "occurring" or mechanism.kind not in BOUNDED)
        for part in factors_of(mechanism, count, relation, kind, add):
            if isinstance(part, Leak):
                leaks.append(part)
            elif isinstance(part, Normal):
                square += part.count * part.square
            else:
                parts[replace(part, count=1)] = parts.get(replace(part, count=1), 0) + part.count
            exact = exact and (kind == "occurring" or occurs(mechanism, part, alone))
    factors = [replace(part, count=n) for part, n in parts.items()]
    if square:
        factors.append(Normal(1, square))
    return Composition(tuple(factors), tuple(leaks), exact)


LADDER = (1e-4, 1e-8, 1e-13, 1e-18)
"""Accuracies of δ relative to the claim, each tried only if the one before did not decide."""

BITS = 192
"""Of what is not asked to more digits than a double has: thrice as many."""


def silent(line: str) -> None:
    """Take a line of progress and show nothing."""


class DirectionBounds:
    """The bounds of δ of one composition: δ ≤ p + (1 − p)·δ' with the leaks' p set apart."""

    def __init__(self, parts: Composition) -> None:
        self.parts = parts
        self.contour = Contour(parts.factors)

    def chernoff(self, epsilon: Fraction) -> float:
        """The bound on the real axis, leaks included."""
        with precision(BITS):
            return self._leaked(Bounds(0.0, self.contour.axis.chernoff(arb(epsilon)), "")).high

    def bounds(self, epsilon: Fraction, delta: float, progress: Progress) -> Bounds:
        """Bounds of δ(ε), sharp enough to compare it with δ where that is possible."""
        with precision(BITS):
            self.contour.axis.progress = progress
            top = self.parts.top()
            if top is not None and top <= arb(epsilon):
                return self._leaked(Bounds(0.0, 0.0, "the largest possible loss"))
            if delta == 0:  # and a loss above ε may occur
                positive = top is None or top > arb(epsilon)
                # 5e-324: the least double above 0, as δ > 0.
                return self._leaked(Bounds(5e-324 if positive else 0.0, 1.0, "losses above ε"))
            leak = self.parts.leaked().high
            rest = middle((delta - leak) / (1 - leak))
            quick = self._leaked(Bounds(0.0, self.contour.axis.chernoff(arb(epsilon)), "a Chernoff bound"))
            if quick.high <= delta:
                return quick
            closed = exact(self.parts.factors, epsilon)
            if closed is not None:
                return self._leaked(closed)
            # Where the leaks take all of δ, four digits of it are looked for, not ever more.
            target = math.log(max(rest, 1e-4 * delta))
            best = quick
            for accuracy in LADDER:
                small = target + math.log(accuracy)
                sharp = allocated(self.parts.factors, epsilon, small, progress) or self.contour.bounds(
                    arb(epsilon), small, progress
                )
                if isinstance(sharp, str):
                    if best is quick:
                        best = self._leaked(Bounds(0.0, self.contour.axis.chernoff(arb(epsilon), fine=True), quick.how))
                    return Bounds(best.low, best.high, f"{best.how} ({sharp})")
                best = self._leaked(sharp)
                if best.high <= delta or best.low > delta:
                    break
            return best

    def _leaked(self, rest: Bounds) -> Bounds:
        high, low, kept = self.parts.leaked()
        if not self.parts.leaks:
            return rest
        most = min(1.0, upper(high + (1 - high) * arb(rest.high)))
        least = max(0.0, lower(low + kept * arb(rest.low)))
        return Bounds(least, most, f"{rest.how}, and leaks with probability {upper(high):.6g}")


def by_group(run: Description, epsilon: Fraction, delta: float, progress: Progress) -> tuple[float, str]:
    """Replace-one as removing and adding: δ ≤ δ_remove(t) + e^t·δ_add(ε − t) for any t.

    Chernoff bounds suggest a t.
    """
    remove, add = (DirectionBounds(compose(run, ADD_OR_REMOVE_ONE, "dominating", add=way)) for way in (False, True))

    def total(t: Fraction, sharp: bool) -> tuple[float, str]:
        rise = math.exp(min(float(t), 700.0))
        with precision(BITS):
            if not sharp:
                return remove.chernoff(t) + rise * add.chernoff(epsilon - t), ""
            first = remove.bounds(t, 1e-9 * delta, silent)
            second = add.bounds(epsilon - t, 1e-9 * delta / rise, silent)
            return upper(
                arb(first.high) + arb(t).exp() * arb(second.high)
            ), f"t = {float(t):.6g}, {first.how}, {second.how}"

    share = min(range(1, 40), key=lambda k: total(epsilon * k / 40, sharp=False)[0])
    low, high = epsilon * max(share - 2, 0) / 40, epsilon * min(share + 2, 40) / 40
    golden, points = Fraction(math.sqrt(5) - 1) / 2, dict[Fraction, tuple[float, str]]()
    best = (1.0, "")
    for turn in range(34):
        if turn > 4 and best[0] > (1 + 4.0 ** (3 - turn)) * delta:  # out of reach
            break
        inner = [high - golden * (high - low), low + golden * (high - low)]
        for wanted in inner:
            t = Fraction(float(wanted))
            if not points or min(abs(p - t) for p in points) > (high - low) / 10**6:
                points[t] = total(t, sharp=True)
                best = min(best, points[t])
                progress(f"group rule: {len(points)} points tried, δ ≤ {best[0]:.9g}")
                if best[0] <= delta:
                    return best
        left, right = (min(points, key=lambda p: abs(p - t)) for t in inner)
        low, high = (low, inner[1]) if points[left] < points[right] else (inner[0], high)
    return best
