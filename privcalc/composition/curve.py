"""From pairs and counts to certified bounds: which route answers, and how routes are combined.

Everything here concerns one *direction*: a list of (pair, count), all ordered the same way. A relation's guarantee is the worst
of its directions *after* composing each (Lebeda, Regehr, Kamath, Steinke 2024, show that mixing them earlier is wrong).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from privcalc.composition.bound import FAIR, FEW, GOOD, POOR, STEEP, Bound
from privcalc.composition.direction import (
    Direction,
    collapse,
    delta_at_most,
    epsilon_at_most,
    max_loss,
    merge,
    split_leaks,
    sure_loss,
)
from privcalc.composition.fallback import Moments, axis_epsilon, rough
from privcalc.numerics.routes import contour, direct, jumps, lattice, smoothing
from privcalc.numerics.routes.atoms import enumerate_sums
from privcalc.numerics.routes.route import RouteFailed
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.solve import Bounds, crossing
from privcalc.numerics.transforms import GaussianTransform


class Curve:
    """The profile of one direction. What was built for one question also answers the next ones nearby.

    Args:
        direction: pairs and counts, all ordered the same way.
        tolerance: relative width of ε below which no slow route is asked to do better.
    """

    def __init__(self, direction: Direction, tolerance: float = 0.0) -> None:
        self.direction, self.tolerance = direction, tolerance
        direction, self.leak = split_leaks(direction)
        self._pairs = merge(direction)  # for routes that know count-fold composition
        self._uses = collapse(self._pairs)  # for routes that pay for every use
        self._top = max_loss(self._pairs)
        self._moments = Moments(self._pairs) if any(pair.moments_only for pair, _ in self._pairs) else None
        self._built: list[tuple[str, Callable[[float], Bounds]]] = []

    @property
    def empty(self) -> bool:
        """Whether nothing ran."""
        return not self._pairs and not self.leak.upper

    @property
    def max_loss(self) -> float:
        """An upper bound of the loss."""
        return math.inf if self.leak.upper else self._top

    def delta(self, epsilon: float, *, rtol: float = GOOD, atol: float = 0.0, quick: bool = False) -> Bound:
        """Bounds of δ(ε), ε ≥ 0.

        Args:
            epsilon: ε.
            rtol: relative width with which the caller is content, if what was built before reaches it.
            atol: the same for the absolute width.
            quick: leave out the routes that take more than milliseconds.
        """
        if epsilon >= self._top:
            return Bound(*self.leak.delta((0.0, 0.0)), ("closed form",))
        found = self._delta(epsilon, max(rtol, STEEP * self.tolerance), atol, quick)
        high = min(found.upper, delta_at_most(epsilon, self._top))
        return Bound(*self.leak.delta((found.lower, high)), found.routes)

    def epsilon(self, delta: float, *, quick: bool = False) -> Bound:
        """Bounds of the smallest ε ≥ 0 with δ(ε) ≤ δ."""
        if not self.leak.upper:
            return self._below_top(delta, quick)
        # Each end for itself: below a leak that certainly happens no ε is enough.
        low, high = self.leak.rest(delta)
        above = self._below_top(low, quick) if low >= 0 else Bound(math.inf, math.inf, ("closed form",))
        below = self._below_top(min(high, 1.0), quick) if high >= 0 else above
        return Bound(min(below.lower, above.upper), above.upper, above.routes)

    def trade_off(self, alpha: float) -> Bounds | None:
        """Bounds of the trade-off curve in this order, of a single use that has a closed form."""
        return self._uses[0][0].trade_off(alpha) if self._single and not self.leak.upper else None

    def _below_top(self, delta: float, quick: bool) -> Bound:
        """What a route says, or the largest loss where that is less."""
        if not self._pairs or delta >= 1:
            return Bound(0.0, 0.0, ("closed form",))
        found = self._epsilon(delta, quick)
        return Bound(found.lower, min(found.upper, epsilon_at_most(delta, self._top)), found.routes)

    @property
    def _single(self) -> bool:
        return len(self._uses) == 1 and self._uses[0][1] == 1

    def _delta(self, epsilon: float, rtol: float, atol: float, quick: bool) -> Bound:
        if self._moments is not None:
            return Bound(0.0, self._moments.delta(epsilon), ("moments",))
        if self._single:
            return Bound(*self._uses[0][0].bounds(epsilon), ("closed form",))
        low, high = (side(epsilon) for side in rough(self._pairs))
        best = Bound(low, high, ("fallback",))
        for name, bounds in reversed(self._built):
            best = best.meet(*bounds(epsilon), name)
            if best.width() <= rtol or best.upper - best.lower <= atol:
                return best
        for name, build in self._builders(quick=quick, least=max(1e-11, 0.2 * STEEP * self.tolerance)):
            delta: float | None = None
            for _ in range(3):
                try:
                    bounds, _ = build(delta, epsilon, (best.lower, best.upper))
                except RouteFailed:
                    break
                self._built.append((name, bounds))
                best = best.meet(*bounds(epsilon), name)
                if best.width() <= max(GOOD if name == "contour" else 10 * FAIR, STEEP * self.tolerance) or best.upper == 0:
                    break
                # The plan was made for an estimate of δ; make it again for what was found.
                middle = 0.5 * (best.lower + best.upper)
                if delta is not None and abs(middle - delta) <= 0.1 * middle:
                    break
                delta = middle
            # Where atoms keep the smoothed contour from being sharper, the lattice is wider yet.
            fair = max((10 if name == "smoothing" else 1) * FAIR, self.tolerance)
            if best.width() <= STEEP * fair or best.upper - best.lower <= atol:
                break
        if (
            best.width() > max(POOR, 10 * STEEP * self.tolerance)
            and best.upper - best.lower > atol
            and not quick
            and epsilon > 0
            and self._few
        ):
            try:
                built, _ = direct.build(list(self._uses), epsilon=epsilon)
            except RouteFailed:
                return best
            self._built.append(("direct", built.bounds))
            best = best.meet(*built.bounds(epsilon), "direct")
        return best

    def _epsilon(self, delta: float, quick: bool) -> Bound:
        if self._moments is not None:
            return Bound(0.0, self._moments.epsilon(delta), ("moments",))
        if delta == 0:
            return Bound(sure_loss(self._pairs), self._top, ("closed form",))
        if self._single:
            return Bound(*_invert(self._uses[0][0].bounds, delta, self._guess(delta), self._top), ("closed form",))
        # The two ends lie far apart, so each is inverted for itself; the lower one takes longer, and only where it is needed.
        low, high = rough(self._pairs)
        end = _invert(lambda e: (high(e),) * 2, delta, self._guess(delta), rtol=1e-6)[1]
        best = Bound(0.0, min(end, self._top), ("fallback",))

        @functools.cache
        def least() -> float:
            return _invert(lambda e: (low(e),) * 2, delta, self._guess(delta), self._top, rtol=1e-9)[0]

        def from_below(bound: Bound) -> Bound:
            return bound.meet(least(), bound.upper, "fallback")

        for name, build in self._builders(quick=quick):
            epsilon: float | None = None
            for _ in range(3):
                try:
                    bounds, guess = build(delta, epsilon, (best.lower, best.upper))
                except RouteFailed:
                    break
                self._built.append((name, bounds))
                best = best.meet(*_invert(bounds, delta, min(max(guess, best.lower), best.upper)), name)
                if best.width() <= max(FAIR if name == "jumps" else GOOD, self.tolerance) or best.upper == 0:
                    break
                if best.width() > POOR:
                    best = from_below(best)
                middle = 0.5 * (best.lower + best.upper)
                planned = guess if epsilon is None and name == "smoothing" else epsilon
                if planned is not None and abs(middle - planned) <= 0.01 * middle:
                    break
                epsilon = middle
            if best.width() <= max(10 * FAIR if name == "smoothing" or self._number < FEW else FAIR, self.tolerance):
                break
        if best.width() > max(FAIR, self.tolerance):
            best = from_below(best)
        if quick:
            return best
        if best.width() > POOR:
            best = best.meet(best.lower, axis_epsilon(self._pairs, delta, best.upper), "axis")
        if best.width() > max(10 * FAIR, self.tolerance) and best.upper < math.inf and self._few:
            try:
                built, guess = direct.build(list(self._uses), delta=delta, known=(best.lower, best.upper))
            except RouteFailed:
                return best
            best = best.meet(*_invert(built.bounds, delta, min(max(guess, best.lower), best.upper), rtol=1e-10), "direct")
        return best

    @property
    def _number(self) -> int:
        """Of all uses."""
        return sum(count for _, count in self._uses)

    @property
    def _few(self) -> bool:
        """Whether there are few enough uses to compose them one convolution at a time."""
        return self._number <= 20_000 and len(self._uses) <= 4

    def _builders(self, *, quick: bool, least: float = 1e-11) -> list[tuple[str, Builder]]:
        """The routes that may apply, best first; for ``least`` see :func:`lattice.build`."""
        found: list[tuple[str, Builder]] = []
        transforms = [(pair.transform, count) for pair, count in self._pairs]
        entries = [(transform, count) for transform, count in transforms if transform is not None]
        if len(entries) == len(self._pairs):

            def by_contour(delta: float | None, epsilon: float | None, _: Bounds) -> tuple[Callable[[float], Bounds], float]:
                built, estimate = contour.build(entries, delta=delta, epsilon=epsilon)
                return built.bounds, estimate

            found.append(("contour", by_contour))
        if quick:
            return found

        def by_enumeration(delta: float | None, epsilon: float | None, _: Bounds) -> tuple[Callable[[float], Bounds], float]:
            law = enumerate_sums((pair.atoms, count) for pair, count in self._uses)
            return law.bounds, law.guess(delta) if epsilon is None and delta is not None else 0.0

        found.append(("enumeration", by_enumeration))
        # Without atoms the lattice is the sharper one.
        smooth = all(isinstance(transform, (GaussianTransform, SampledGaussianTransform)) for transform, _ in entries)
        if len(entries) == len(self._pairs) and not smooth:

            def by_smoothing(delta: float | None, epsilon: float | None, _: Bounds) -> tuple[Callable[[float], Bounds], float]:
                built, estimate = smoothing.build(entries, delta=delta, epsilon=epsilon)
                return built.bounds, estimate

            found.append(("smoothing", by_smoothing))

        def by_lattice(delta: float | None, epsilon: float | None, _: Bounds) -> tuple[Callable[[float], Bounds], float]:
            rtol = max(2e-7, 0.2 * self.tolerance)
            built, estimate = lattice.build(list(self._uses), delta=delta, epsilon=epsilon, rtol=rtol, least=least)
            return built.bounds, estimate

        found.append(("lattice", by_lattice))
        sampled = [transform for transform, _ in entries if isinstance(transform, SampledGaussianTransform)]
        if len(entries) == len(self._pairs) and len(sampled) == 1 and not sampled[0].add:

            def by_jumps(delta: float | None, epsilon: float | None, known: Bounds) -> tuple[Callable[[float], Bounds], float]:
                built, estimate = jumps.build(entries, delta=delta, epsilon=epsilon, known=known)
                return built.bounds, estimate

            # Where few uses leave the transform without decay the lattice is better; elsewhere it is only slower.
            found.insert(len(found) - (sum(n for _, n in entries) >= 1000), ("jumps", by_jumps))
        return found

    def _guess(self, delta: float) -> float:
        """A first ε: the zCDP bound ρ + 2√(ρ log 1/δ) (Bun, Steinke 2016, Proposition 1.3)."""
        rho = math.fsum(count * pair.zcdp for pair, count in self._pairs)
        return min(rho + 2 * math.sqrt(rho * -math.log(delta)), 0.999 * self._top, 1e300)

    def proves(self, epsilon: float, delta: float, *, cheaply: bool) -> bool:
        """Whether δ(ε) ≤ δ could be shown; ``cheaply`` by a bound on the real axis alone."""
        if self.empty or self.max_loss <= epsilon:
            return True
        if delta == 0:
            return False
        if not cheaply:
            return self.delta(epsilon).upper <= delta
        entries = [(pair.transform, count) for pair, count in self._pairs if pair.transform is not None]
        delta = self.leak.rest(delta)[0]
        if len(entries) < len(self._pairs) or not epsilon > 0 or not delta > 0:
            return False
        points = -math.log(delta) / epsilon * np.geomspace(0.3, 8.0, 12)
        try:
            prepared = [(transform.prepare(points[-1], n, math.log(delta) - 60, cut=False), n) for transform, n in entries]
        except OverflowError:
            return False
        line = contour.axis(prepared, points)
        best = float(np.nan_to_num(line.log_chernoff(epsilon), nan=math.inf).min())
        left = delta - math.fsum(n * part.lost for part, n in prepared) * (1 + 1e-9)
        return left > 0 and best <= math.log(left)


Builder = Callable[[float | None, float | None, Bounds], tuple[Callable[[float], Bounds], float]]


def _invert(bounds: Callable[[float], Bounds], delta: float, guess: float, top: float = math.inf, rtol: float = 1e-15) -> Bounds:
    """Bounds of the crossing of δ(ε) with δ, at or above ε = 0; at most the largest loss ``top``."""
    if bounds(0.0)[1] <= delta:
        return 0.0, 0.0
    return crossing(bounds, delta, min(max(guess, 1e-12), 0.999 * top), 0.0, top, rtol)


def worst_epsilon(curves: Sequence[Curve], delta: float) -> Bound:
    """The larger ε over the directions; the later ones are only shown not to exceed the first, where that succeeds."""
    best = curves[0].epsilon(delta)
    if best.upper == 0:
        return best  # δ(0), the total variation distance, is the same in both orders
    for other in curves[1:]:
        if best.upper == math.inf or any(other.proves(best.upper, delta, cheaply=cheaply) for cheaply in (True, False)):
            continue
        best = _larger(best, other.epsilon(delta))
    return best


def worst_delta(curves: Sequence[Curve], epsilon: float) -> Bound:
    """The larger δ over the directions."""
    best = curves[0].delta(epsilon)
    if epsilon == 0:
        return best  # the total variation distance is the same in both orders
    for other in curves[1:]:
        # Of pairs that only bound, the lower end may lie above the upper one.
        if not other.proves(epsilon, min(best.lower, best.upper), cheaply=True):
            best = _larger(best, other.delta(epsilon))
    return best


def _larger(a: Bound, b: Bound) -> Bound:
    return Bound(max(a.lower, b.lower), max(a.upper, b.upper), tuple(dict.fromkeys((*a.routes, *b.routes))))
