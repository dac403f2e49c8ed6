"""From pairs and counts to certified bounds: what has a closed form, else what the ladder of routes says.

Everything here concerns one *direction*: a list of (pair, count), all ordered the same way. A relation's guarantee is the worst
of its directions *after* composing each (Lebeda, Regehr, Kamath, Steinke 2024, show that mixing them earlier is wrong).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from privcalc.composition.aim import DeltaAt, EpsilonAt, invert
from privcalc.composition.bound import FAIR, GOOD, STEEP, Bound, Widths
from privcalc.composition.direction import Direction, Uses, delta_at_most, epsilon_at_most, split_leaks, sure_loss
from privcalc.composition.fallback import Moments
from privcalc.composition.ladder import Memory, climb
from privcalc.numerics.floats import TINY
from privcalc.numerics.routes import contour
from privcalc.numerics.solve import Bounds


class Curve:
    """The profile of one direction. What was built for one question also answers the next ones nearby.

    Args:
        direction: pairs and counts, all ordered the same way.
        tolerance: relative width of ε below which no slow route is asked to do better.
        anew: whether slow routes are built for each question even so: a little sharper for some.
    """

    def __init__(self, direction: Direction, tolerance: float = 0.0, *, anew: bool = False) -> None:
        self.direction, self.tolerance, self.anew = direction, tolerance, anew
        rest, self.leak = split_leaks(direction)
        self._uses = Uses(rest)
        self._moments = Moments(self._uses.pairs) if any(pair.moments_only for pair, _ in self._uses.pairs) else None
        self._memory = Memory()
        self._line: tuple[contour.Axis, float] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing ran."""
        return not self._uses.pairs and not self.leak.upper

    @property
    def max_loss(self) -> float:
        """An upper bound of the loss."""
        return math.inf if self.leak.upper else self._uses.top

    def delta(self, epsilon: float, *, rtol: float = GOOD, atol: float = 0.0, quick: bool = False, below: float = 0.0) -> Bound:
        """Bounds of δ(ε), ε ≥ 0.

        Args:
            epsilon: ε.
            rtol: relative width with which the caller is content; what was built before and reaches it is not built again.
            atol: the same for the absolute width.
            quick: leave out the routes that take more than milliseconds.
            below: no more is asked once δ(ε) was shown to be at most this.
        """
        if epsilon >= self._uses.top:
            return Bound(*self.leak.delta((0.0, 0.0)), ("closed form",))
        rest = self.leak.rest(below)[0] if below > 0 else 0.0
        found = self._delta(epsilon, max(rtol, STEEP * self.tolerance), atol, quick, rest)
        high = min(found.upper, delta_at_most(epsilon, self._uses.top))
        return Bound(*self.leak.delta((found.lower, high)), found.routes)

    def epsilon(self, delta: float, *, quick: bool = False, rtol: float = 0.0) -> Bound:
        """Bounds of the smallest ε ≥ 0 with δ(ε) ≤ δ; ``rtol`` is a relative width with which the caller is content."""
        if not self.leak.upper:
            return self._below_top(delta, quick, rtol)
        # Each end for itself: below a leak that certainly happens no ε is enough.
        low, high = self.leak.rest(delta)
        above = self._below_top(low, quick, rtol) if low >= 0 else Bound(math.inf, math.inf, ("closed form",))
        below = self._below_top(min(high, 1.0), quick, rtol) if high >= 0 else above
        return Bound(min(below.lower, above.upper), above.upper, above.routes)

    def trade_off(self, alpha: float) -> Bounds | None:
        """Bounds of the trade-off curve in this order, of a single use that has a closed form."""
        one = self._uses.one
        return one.trade_off(alpha) if one is not None and not self.leak.upper else None

    def _below_top(self, delta: float, quick: bool, rtol: float) -> Bound:
        """What a route says, or the largest loss where that is less."""
        if not self._uses.pairs or delta >= 1:
            return Bound(0.0, 0.0, ("closed form",))
        found = self._epsilon(delta, quick, rtol)
        return Bound(found.lower, min(found.upper, epsilon_at_most(delta, self._uses.top)), found.routes)

    def _delta(self, epsilon: float, rtol: float, atol: float, quick: bool, below: float) -> Bound:
        if self._moments is not None:
            return Bound(0.0, self._moments.delta(epsilon), ("moments",))
        below = max(below, 2 * TINY)  # no route says less of what underflows
        if self._uses.one is not None:
            found = Bound(*self._uses.one.bounds(epsilon), ("closed form",))
            if found.width() <= STEEP * GOOD or self._uses.transforms is None:
                return found
            aim = DeltaAt(self._uses, epsilon, self.tolerance, atol, True, self.anew, below)
            return found if aim.content(found, Widths(GOOD, STEEP * GOOD)) else climb(aim, found, self._memory)
        aim = DeltaAt(self._uses, epsilon, self.tolerance, atol, quick, self.anew, below, rtol)
        best = Bound(0.0, 1.0, ("fallback",))
        for name, built, sharpness, _ in self._memory.nearest(aim):
            best = best.meet(*built.bounds(epsilon), name)
            if best.width() <= rtol or best.upper - best.lower <= atol or best.upper <= below:
                return best
            if not self.anew and aim.sharpness(best) <= min(sharpness, FAIR):  # rounding leaves no more to be found
                return best
        return climb(aim, aim.start().meet(best.lower, best.upper, *best.routes), self._memory)

    def _epsilon(self, delta: float, quick: bool, rtol: float) -> Bound:
        if self._moments is not None:
            return Bound(0.0, self._moments.epsilon(delta), ("moments",))
        if delta == 0:
            return Bound(sure_loss(self._uses.pairs), self._uses.top, ("closed form",))
        if self._uses.one is not None:
            found = Bound(*invert(self._uses.one.bounds, delta, self._uses.guess(delta), self._uses.top), ("closed form",))
            if found.width() <= max(GOOD, self.tolerance) or self._uses.transforms is None:
                return found
            return climb(EpsilonAt(self._uses, delta, self.tolerance, True, self.anew), found, self._memory)
        aim = EpsilonAt(self._uses, delta, self.tolerance, quick, self.anew, rtol)
        return climb(aim, aim.start(), self._memory)

    def proves(self, epsilon: float, delta: float, *, cheaply: bool) -> bool:
        """Whether δ(ε) ≤ δ could be shown; ``cheaply`` by a bound on the real axis alone."""
        if self.empty or self.max_loss <= epsilon:
            return True
        if delta == 0:
            return False
        if not cheaply:
            return self.delta(epsilon, below=delta).upper <= delta
        entries = self._uses.transforms
        delta = self.leak.rest(delta)[0]
        if entries is None or not epsilon > 0 or not delta > 0:
            return False
        if self._line is not None and _shown(*self._line, epsilon, delta):  # that of a question nearby may do
            return True
        points = -math.log(delta) / epsilon * np.geomspace(0.3, 8.0, 12)
        try:
            prepared = [(transform.prepare(points[-1], n, math.log(delta) - 60, cut=False), n) for transform, n in entries]
        except OverflowError:
            return False
        self._line = contour.axis(prepared, points), math.fsum(n * part.lost for part, n in prepared) * (1 + 1e-9)
        return _shown(*self._line, epsilon, delta)


def _shown(line: contour.Axis, lost: float, epsilon: float, delta: float) -> bool:
    """Whether a point of the real axis shows δ(ε) ≤ δ, where ``lost`` was left out."""
    best = float(np.nan_to_num(line.log_chernoff(epsilon), nan=math.inf).min())
    return delta > lost and best <= math.log(delta - lost)


def worst_epsilon(curves: Sequence[Curve], delta: float) -> Bound:
    """The larger ε over the directions; the later ones are only shown not to exceed the first, where that succeeds."""
    best = curves[0].epsilon(delta)
    if best.upper == 0 and len(curves) <= 2:
        return best  # δ(0), the total variation distance, is the same in both orders
    for other in curves[1:]:
        if best.upper == math.inf or any(other.proves(best.upper, delta, cheaply=cheaply) for cheaply in (True, False)):
            continue
        best = _larger(best, other.epsilon(delta))
    return best


def worst_delta(curves: Sequence[Curve], epsilon: float) -> Bound:
    """The larger δ over the directions."""
    best = curves[0].delta(epsilon)
    if epsilon == 0 and len(curves) <= 2:
        return best  # the total variation distance is the same in both orders
    for other in curves[1:]:
        # Of pairs that only bound, the lower end may lie above the upper one.
        less = min(best.lower, best.upper)
        if not other.proves(epsilon, less, cheaply=True):
            best = _larger(best, other.delta(epsilon, below=less))
    return best


def _larger(a: Bound, b: Bound) -> Bound:
    return Bound(max(a.lower, b.lower), max(a.upper, b.upper), tuple(dict.fromkeys((*a.routes, *b.routes))))
