"""From pairs and counts to certified bounds: what has a closed form, else what the ladder of routes says.

A curve is that of one *direction*: a list of (pair, count), all ordered the same way. A relation's guarantee is
the worst of its directions *after* composing each (Lebeda, Regehr, Kamath, Steinke 2024, show that mixing them earlier
is wrong).

Of several neighbours in a row (replace-one as removing a record then adding another; groups of k records) all
mechanisms may know the pair (``sides.Group``), and nothing is lost. Else: for data sets D₀, …, D_k, each a neighbour of
the next,
δ(Σε_i) ≤ Σ_i e^{ε_1 + … + ε_{i−1}}·δ_i(ε_i) for every split of ε, each δ_i that of the whole run (Dwork, Roth 2014,
Theorem 2.2 for pure DP; ``proofs/replace_one.md`` for the step).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from privcalc.composition.direction import (
    GOOD,
    STEEP,
    Bound,
    Direction,
    Widths,
    delta_at_most,
    epsilon_at_most,
    split_leaks,
    sure_loss,
)
from privcalc.composition.ladder import Ladder
from privcalc.composition.question import DeltaAt, EpsilonAt, invert
from privcalc.composition.uses import Moments, Uses
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import RouteFailed, TradeOff
from privcalc.numerics.routes import contour, many
from privcalc.numerics.routes.atoms import Atoms, enumerate_sums
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.solve import crossing, smallest

ONE_USE = Widths(GOOD, STEEP * GOOD)
"""Widths with which the profile of a single use is enough."""

LINES = 16
"""Lines of the real axis that are kept."""


class Curve:
    """The profile of one direction.

    Args:
        direction: pairs and counts, all ordered the same way.
        tolerance: relative width of ε below which no slow route is asked to do better.
    """

    def __init__(self, direction: Direction, tolerance: float = 0.0) -> None:
        self.direction, self.tolerance = direction, tolerance
        self.rest, self.leak = split_leaks(direction)
        self._uses = Uses(self.rest)
        self._moments = Moments(self._uses.pairs) if any(pair.moments_only for pair, _ in self._uses.pairs) else None
        self._line = functools.lru_cache(LINES)(self._axis)

    @cached_property
    def _ladder(self) -> Ladder:
        return Ladder(self._uses)

    @cached_property
    def without_leaks(self) -> Curve:
        """The same where no use gives everything away."""
        return Curve(self.rest, self.tolerance) if self.leak.upper else self

    @property
    def empty(self) -> bool:
        """Whether nothing ran, so that δ is 0."""
        return not self._uses.pairs and not self.leak.upper

    @property
    def sampled(self) -> tuple[SampledGaussianTransform, int] | None:
        """The one Poisson-sampled Gaussian, and how often it is used, if that is all."""
        pairs = self._uses.pairs
        transform = pairs[0][0].transform if len(pairs) == 1 and not self.leak.upper else None
        return (transform, pairs[0][1]) if isinstance(transform, SampledGaussianTransform) else None

    @property
    def max_loss(self) -> float:
        """An upper bound of the loss."""
        return math.inf if self.leak.upper else self._uses.top

    def delta(
        self, epsilon: float, *, rtol: float = GOOD, atol: float = 0.0, quick: bool = False, below: float = 0.0
    ) -> Bound:
        """Bounds of δ(ε), ε ≥ 0.

        Args:
            epsilon: ε.
            rtol: relative width with which the caller is content.
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

    def trade_off(self, alpha: float) -> tuple[TradeOff, str] | None:
        """The trade-off curve of this order and its route; None with leaks, and where it has to be searched."""
        if self.leak.upper:
            return None
        if not self._uses.pairs:
            return TradeOff((1 - alpha, 1 - alpha), (alpha, alpha)).tidy(alpha), "closed form"
        found, name = (None, "") if self._uses.one is None else (self._uses.one.trade_off(alpha), "closed form")
        if found is None and self._values is not None:
            found, name = self._values.trade_off(alpha), "enumeration"
        return None if found is None else (found, name)

    @cached_property
    def _values(self) -> Atoms | None:
        """All values of the loss, where these are few."""
        try:
            return enumerate_sums((pair.atoms, count) for pair, count in self._uses.each)
        except RouteFailed:
            return None

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
            question = DeltaAt(epsilon=epsilon, tolerance=self.tolerance, atol=atol, quick=True, below=below)
            return found if question.content(self._uses, found, ONE_USE) else self._ladder.climb(question, found)
        return self._ladder.climb(
            DeltaAt(epsilon=epsilon, tolerance=self.tolerance, rtol=rtol, atol=atol, quick=quick, below=below)
        )

    def _epsilon(self, delta: float, quick: bool, rtol: float) -> Bound:
        if self._moments is not None:
            return Bound(0.0, self._moments.epsilon(delta), ("moments",))
        if delta == 0:
            return Bound(sure_loss(self._uses.pairs), self._uses.top, ("closed form",))
        if self._uses.one is not None:
            found = Bound(
                *invert(self._uses.one.bounds, delta, self._uses.guess(delta), self._uses.top), ("closed form",)
            )
            if found.width() <= max(GOOD, self.tolerance) or self._uses.transforms is None:
                return found
            return self._ladder.climb(EpsilonAt(delta, tolerance=self.tolerance, quick=True), found)
        return self._ladder.climb(EpsilonAt(delta, tolerance=self.tolerance, quick=quick, rtol=rtol))

    def proves(self, epsilon: float, delta: float, *, cheaply: bool) -> bool:
        """Whether δ(ε) ≤ δ could be shown; ``cheaply`` by a bound on the real axis alone."""
        if self.empty or self.max_loss <= epsilon:
            return True
        if delta == 0:
            return False
        if not cheaply:
            return self.delta(epsilon, below=delta).upper <= delta
        delta = self.leak.rest(delta)[0]
        if self._uses.transforms is None or not epsilon > 0 or not delta > 0:
            return False
        slope, digits = -math.log(delta) / epsilon, -math.log(delta)
        line = self._line(round(2 * math.log2(slope)), math.ceil(digits / 32)) if 0 < slope < math.inf else None
        return line is not None and _shown(*line, epsilon, delta)

    def _axis(self, octave: int, digits: int) -> tuple[contour.Axis, float] | None:
        """Points of the real axis about 2^(octave/2), and what all uses leave out there.

        That is at most e^(−32·digits − 60).
        """
        points, entries = 2.0 ** (0.5 * octave) * np.geomspace(0.25, 9.6, 13), self._uses.transforms or []
        try:
            prepared = [
                (transform.prepare(points[-1], n, -32.0 * digits - 60, cut=False), n) for transform, n in entries
            ]
        except OverflowError:
            return None
        return contour.axis(prepared, points), math.fsum(n * part.lost for part, n in prepared) * (1 + 1e-9)


def _shown(line: contour.Axis, lost: float, epsilon: float, delta: float) -> bool:
    """Whether a point of the real axis shows δ(ε) ≤ δ, where ``lost`` was left out."""
    best = float(np.nan_to_num(line.log_chernoff(epsilon), nan=math.inf).min())
    return delta > lost and best <= math.log(delta - lost)


def worst_epsilon(curves: Sequence[Curve], delta: float) -> Bound:
    """The larger ε over the directions; the later ones are only shown not to exceed the first, where that succeeds."""
    if (found := at_once(curves, np.array([delta]), many.epsilons)) is not None and found[1, 0] < math.inf:
        return Bound(float(found[0, 0]), float(found[1, 0]), ("contour",))
    best = curves[0].epsilon(delta)
    if best.upper == 0 and len(curves) <= 2:
        return best  # δ(0), the total variation distance, is the same in both orders
    for other in curves[1:]:
        if best.upper == math.inf or any(other.proves(best.upper, delta, cheaply=cheaply) for cheaply in (True, False)):
            continue
        best = _larger(best, other.epsilon(delta))
    return best


def at_once(curves: Sequence[Curve], points: Floats, question: Callable[..., tuple[Floats, Floats]]) -> Floats | None:
    """Both ends of ε at many δ, or of δ at many ε, of a Poisson-sampled Gaussian in both orders; None of anything else.

    Args:
        curves: both orders.
        points: δ, or ε.
        question: ``many.epsilons`` or ``many.deltas``.

    Returns:
        Ends, shape (2, points): of each point alone, to the last bit. Where there is no answer they are NaN.
    """
    found = [curve.sampled for curve in curves]
    if len(found) != 2 or found[0] is None or found[1] is None:
        return None
    remove, count = found[0]
    if remove.add or found[1] != (replace(remove, add=True), count) or count < 2:
        return None
    same = np.ones(points.size)
    return np.array(question(remove.mu * same, remove.q * same, count * same, points))


def worst_delta(curves: Sequence[Curve], epsilon: float) -> Bound:
    """The larger δ over the directions."""
    if (found := at_once(curves, np.array([epsilon]), many.deltas)) is not None and found[1, 0] < math.inf:
        return Bound(float(found[0, 0]), float(found[1, 0]), ("contour",))
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


def epsilon_in_a_row(curves: Sequence[Curve], delta: float) -> float:
    """An upper bound of the replace-one ε from the curves of removing and of adding."""
    remove, add = curves[0], curves[-1]
    most = epsilon_at_most(delta, (remove.max_loss + add.max_loss) * (1 + UNIT))
    if delta == 0:
        return most

    def total(share: float) -> float:
        first = remove.epsilon(share * delta * (1 - 4 * UNIT), quick=True).upper
        rest = (1 - share) * delta * math.exp(-first) * (1 - 16 * UNIT) if first < 700 else 0.0
        return (first + add.epsilon(rest, quick=True).upper) * (1 + 4 * UNIT) if rest > 0 else math.inf

    return min(smallest(total, 0.01, 0.99, 0.02)[0], most)


def delta_in_a_row(curves: Sequence[Curve], epsilon: float) -> float:
    """An upper bound of the replace-one δ."""
    remove, add = curves[0], curves[-1]

    def total(first: float) -> float:
        late = add.delta(max(epsilon - first, 0.0) * (1 - 4 * UNIT), quick=True).upper
        early = remove.delta(first, quick=True).upper
        return (early + math.exp(first) * late) * (1 + 16 * UNIT) if first < 700 else math.inf

    most = delta_at_most(epsilon, (remove.max_loss + add.max_loss) * (1 + UNIT))
    return min(most, smallest(total, 0.0, epsilon, 1e-3 * epsilon)[0]) if most else 0.0


def epsilon_of_group(curves: Sequence[Curve], size: int, delta: float) -> Bound:
    """A bound of ε for neighbours that differ in up to ``size`` records, by equal splits."""
    own = worst_epsilon(curves, delta)
    most = epsilon_at_most(delta, _largest(curves, size))
    # The rule asks for at least ε/k of each: there is nothing to find where these add up to the largest loss already.
    least = size * own.lower
    if delta == 0 or own.upper == math.inf or least >= most * (1 - 1e-6):
        return Bound(own.lower, most, ("group rule",))

    def spread(epsilon: float) -> tuple[float, float]:
        value = _spread(curves, size, epsilon)
        return value, value

    _, high = crossing(spread, delta, min(max(size * own.upper, 1e-9), most), least, most, 1e-10, both=False)
    return Bound(own.lower, high, ("group rule",))


def delta_of_group(curves: Sequence[Curve], size: int, epsilon: float) -> Bound:
    """The same for δ."""
    return Bound(worst_delta(curves, epsilon).lower, _spread(curves, size, epsilon), ("group rule",))


def _spread(curves: Sequence[Curve], size: int, epsilon: float) -> float:
    """δ(ε/k)·(1 + e^{ε/k} + … + e^{(k−1)ε/k}), 1 if that is more."""
    most = delta_at_most(epsilon, _largest(curves, size))
    share = epsilon / size * (1 - 4 * UNIT)
    each = max(curve.delta(share, rtol=1e-7).upper for curve in curves)
    if most == 0 or each == 0 or epsilon > 700:
        return 0.0 if each == 0 else most
    factor = math.expm1(epsilon) / math.expm1(share) if share > 0 else float(size)
    return min(most, each * factor * (1 + 64 * UNIT * (1 + epsilon)))


def _largest(curves: Sequence[Curve], size: int) -> float:
    """No loss of the group exceeds this."""
    return size * max(curve.max_loss for curve in curves) * (1 + UNIT)
