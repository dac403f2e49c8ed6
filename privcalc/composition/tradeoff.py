"""The hypothesis-testing face: the trade-off curve, and the smallest μ of Gaussian DP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from privcalc.composition.direction import Bound
from privcalc.numerics.floats import UNIT
from privcalc.numerics.interfaces import TradeOff
from privcalc.numerics.solve import Bounds, crossing, smallest
from privcalc.numerics.special import erfinv, gdp_profile, ndtri

if TYPE_CHECKING:
    from privcalc.composition.curve import Curve


CONTENT, SHARP = 2e-8, 1e-10
"""The relative width of μ with which the search is content, and that to which it is not told from a smaller one."""

ABOUT = 0.03
"""Relative width of what only says where to search."""

ENOUGH = 1e-7
"""Width of δ with which the search along a curve is content, so that slow routes are not rebuilt at every point."""

UNKNOWN = 0.5
"""Relative width of δ(0) above which no route is taken to tell δ."""

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Whose ε are asked for instead."""

NO_TEST = TradeOff((1.0, 1.0), (0.0, 0.0))
"""Of two outputs that are alike: no curve is above."""


def beta(curves: Sequence[Curve], alpha: float) -> Bound:
    """Bounds of the trade-off curve at α, the minimum over both orders (Dong, Roth, Su 2022, Section 2)."""
    found, routes = _worst(curves, alpha)
    return Bound(*found.missed, routes)


def power(curves: Sequence[Curve], alpha: float) -> Bound:
    """Bounds of 1 − β(α), with all digits where that is small."""
    found, routes = _worst(curves, alpha)
    return Bound(*found.power, routes)


def _worst(curves: Sequence[Curve], alpha: float) -> tuple[TradeOff, tuple[str, ...]]:
    forward, backward = curves[0], curves[-1]
    if alpha in (0.0, 1.0):
        # At α = 0 a certain leak is a test without false positives.
        low, high = max(curve.leak.lower for curve in curves), max(curve.leak.upper for curve in curves)
        low, high, off = (low, high, 2 * UNIT if high else 0.0) if alpha == 0 else (1.0, 1.0, 0.0)
        return TradeOff((1 - high - off, 1 - low + off), (low, high)).tidy(alpha), ("closed form",)
    answers = [one_order(forward, backward, alpha)]
    if forward is not backward:
        answers.append(one_order(backward, forward, alpha, answers[0][0]))
    missed, most = [found.missed for found, _ in answers], [found.power for found, _ in answers]
    worst = TradeOff(
        (min(low for low, _ in missed), min(high for _, high in missed)),
        (max(low for low, _ in most), max(high for _, high in most)),
    )
    return worst, answers[0][1]


def one_order(
    forward: Curve, backward: Curve, alpha: float, enough: TradeOff = NO_TEST
) -> tuple[TradeOff, tuple[str, ...]]:
    """The best test of one order at 0 < α < 1. What leaks every test sees, without a false positive.

    So β(α) = (1 − p)·β'(α/(1 − p)), β' of the rest; with bounds of p, each end for itself (``proofs/gdp.md``, §1). Of
    an order whose tests are no better than ``enough`` no more is told than that.
    """
    if not forward.leak.upper or forward.leak.upper != backward.leak.upper:
        return _known_or_searched(forward, backward, alpha, enough)
    leaks = forward.leak, backward.leak
    most, least, kept = max(p.upper for p in leaks), min(p.lower for p in leaks), min(p.kept for p in leaks)
    above = below = TradeOff((0.0, 0.0), (1.0, 1.0))
    routes: tuple[str, ...] = ("closed form",)
    up, down = 1 + 4 * UNIT, 1 - 4 * UNIT
    share = (1 - most) * down
    if alpha * up < share:
        below, routes = _known_or_searched(forward.without_leaks, backward.without_leaks, alpha / share * up)
    if alpha < kept * down:
        above, routes = _known_or_searched(forward.without_leaks, backward.without_leaks, alpha / kept * down)
    found = TradeOff(
        (share * below.missed[0] * down, max(1 - least - kept, 0.0) + 2 * UNIT + kept * above.missed[1] * up),
        ((least + kept * above.power[0]) * down, (most + (1 - least) * below.power[1]) * up),
    )
    if leaks[0] == leaks[1]:
        return found.tidy(alpha), routes
    # From below the orders differ, and each for itself may say more.
    other, more = _known_or_searched(forward, backward, alpha)
    ends = ((max(a, c), min(b, d)) for (a, b), (c, d) in zip(found, other, strict=True))
    return TradeOff(*ends).tidy(alpha), tuple(dict.fromkeys((*routes, *more)))


def _known_or_searched(
    forward: Curve, backward: Curve, alpha: float, enough: TradeOff = NO_TEST
) -> tuple[TradeOff, tuple[str, ...]]:
    known = forward.trade_off(alpha)
    if known is not None:
        return known[0], (known[1],)
    lines = _Lines(forward, backward, alpha)
    return lines.best(enough).tidy(alpha), tuple(lines.routes)


class _Lines:
    """Maximise g(ε) = 1 − δ_{P‖Q}(ε) − e^ε α over real ε; g is concave in x = e^ε.

    Negative ε are those of the reversed pair. What is known of g is kept as bounds of g and of 1 − g.
    """

    def __init__(self, forward: Curve, backward: Curve, alpha: float) -> None:
        self.forward, self.backward, self.alpha = forward, backward, alpha
        self.routes: dict[str, None] = {}
        self._known: dict[float, TradeOff] = {}
        # (|ε|, δ) of either order: δ falls, so that it is at most as much beyond.
        self._most: dict[bool, list[Bounds]] = {}

    def best(self, enough: TradeOff) -> TradeOff:
        """Bounds of the largest g and of 1 − g; a lower one of g alone where that is ``enough``."""
        # Only where to search, and how finely.
        advantage = self.forward.delta(0.0, rtol=ABOUT)
        reach = -math.log(self.alpha)
        leak, least = self.backward.leak.upper, min(1e-9, 1e-3 * (1 - self.alpha))
        far = -self.backward.epsilon(leak + (1 - leak) * least, quick=True, rtol=ABOUT).upper
        if not math.isfinite(far):
            far = -700.0
        scale = min(max(advantage.upper, 1e-12), reach - far)
        unknown = advantage.width() > UNKNOWN
        self._most = {order: [(0.0, advantage.upper)] for order in (True, False)}  # it is that of both orders
        high, least = 1.0, 0.0
        if unknown:
            high, least = self._from_epsilons()
        for precision in (0.1, 3e-5):
            at = smallest(lambda e: self._rank(self._line(e, unknown)), far, reach, precision * scale, most=500)[1]
            line = self._line(at, unknown)
            if line.missed[0] >= enough.missed[1] and line.power[1] <= enough.power[0]:
                return TradeOff((line.missed[0], 1.0), (0.0, line.power[1]))
            far, reach = max(far, at - 0.5 * scale), min(reach, at + 0.5 * scale)
        for step in (1e-4 * scale, 1e-3 * scale, 1e-2 * scale, 0.1 * scale):
            near = [at + k * step for k in (-4, -2, -1, 0, 1, 2, 4)]
            found = _highest([(e, self._line(e, unknown)) for e in near])
            high, least = min(high, found[0]), max(least, found[1])
            if high < 1:
                break
        self._line(self._corner(at, 1e-4 * scale), unknown)
        low = max(line.missed[0] for line in self._known.values())
        most = min(line.power[1] for line in self._known.values())
        return TradeOff((low, max(high, low)), (min(least, most), most))

    def _rank(self, line: TradeOff) -> float:
        """What falls where a lower bound of g rises, with all digits near both ends."""
        low = line.missed[0]
        return math.log(line.power[1]) - math.log(low) if low > 0 else 1e3 - low

    def _line(self, epsilon: float, quick: bool) -> TradeOff:
        """At one ε."""
        if epsilon not in self._known:
            curve = self.forward if epsilon >= 0 else self.backward
            # Relative to the other term of g.
            other = math.exp(min(epsilon + math.log(self.alpha), 0.0)) if epsilon >= 0 else 1 - self.alpha
            atol, size, most = ENOUGH * min(10 * other, 1.0), abs(epsilon), self._most[epsilon >= 0]
            before = min(upper for at, upper in most if at <= size)
            if before > atol:
                found = curve.delta(size, rtol=ENOUGH, atol=atol, quick=quick)
                self.routes.update(dict.fromkeys(found.routes))
                most.append((size, found.upper))
            else:
                found = Bound(0.0, before, ())
            self._known[epsilon] = self._of(epsilon, replace(found, upper=min(found.upper, before)))
        return self._known[epsilon]

    def _corner(self, at: float, step: float) -> float:
        """Where the lines through two points before and through two points after a highest point meet.

        At a loss of positive probability g has a corner, where the search alone is off by its step times a slope.
        """
        x = [math.expm1(k * step) for k in (-2, -1, 1, 2)]
        far, near, beyond, last = (self._line(at + k * step, True).missed[0] for k in (-2, -1, 1, 2))
        rise, fall = (near - far) / (x[1] - x[0]), (last - beyond) / (x[3] - x[2])
        if not rise > fall:
            return at
        meets = (beyond - near + rise * x[1] - fall * x[2]) / (rise - fall)
        return at + math.log1p(meets) if x[1] < meets < x[2] else at

    def _of(self, epsilon: float, delta: Bound) -> TradeOff:
        """From bounds of δ(|ε|) of its order."""
        slack = 8 * UNIT
        if epsilon >= 0:
            log = epsilon + math.log(self.alpha)
            cost, error = math.exp(min(log, 700.0)), slack * (2 + epsilon - math.log(self.alpha))
            least, most = (delta.lower + cost) * (1 - error), (delta.upper + cost) * (1 + error)
            ends = 1 - most, 1 - least
            return TradeOff((ends[0] - UNIT * abs(ends[0]), ends[1] + UNIT * abs(ends[1])), (least, most))
        scale, rest, lost = math.exp(epsilon), 1 - self.alpha, -math.expm1(epsilon)
        off = slack * scale * (rest + delta.upper)
        power = [(lost + scale * (self.alpha + end)) for end in (delta.lower, delta.upper)]
        missed = scale * (rest - delta.upper) - off, scale * (rest - delta.lower) + off
        return TradeOff(missed, (power[0] * (1 - slack), power[1] * (1 + slack)))

    def _from_epsilons(self) -> Bounds:
        """Where no route tells δ at such ε, some may tell ε at a δ: δ(ε) falls in x = e^ε, by at most 1 for 1."""
        for sign, curve in ((1, self.forward), (-1, self.backward)):
            for delta in DELTAS:
                found = curve.epsilon(delta, rtol=ENOUGH)
                if 0 < found.upper < 700:
                    moved = (math.exp(found.upper) - math.exp(found.lower)) * (1 + 1e-9) + 1e-15
                    self.routes.update(dict.fromkeys(found.routes))
                    epsilon = sign * found.upper
                    self._known[epsilon] = self._of(epsilon, Bound(max(delta - moved, 0.0), delta, found.routes))
        return _highest(sorted(self._known.items())) if len(self._known) > 2 else (1.0, 0.0)


def _highest(lines: Sequence[tuple[float, TradeOff]]) -> Bounds:
    """An upper bound of g and a lower one of 1 − g from their bounds at rising ε."""
    middle = lines[len(lines) // 2][0]
    x = [math.expm1(epsilon - middle) for epsilon, _ in lines]  # over e^middle: only ratios of differences count
    return peak(x, [line.missed for _, line in lines]), -peak(x, [(-b, -a) for _, (_, (a, b)) in lines])


def peak(x: Sequence[float], values: Sequence[Bounds]) -> float:
    """An upper bound of a concave function from bounds at rising points; ∞ where its highest point may be elsewhere.

    Between two points it is below the chords of the points before and of the points after them.

    Example:
        >>> round(peak([0.0, 1.0, 3.0, 4.0], [(0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0)]), 9)
        2.0
    """
    if not (values[1][0] >= values[0][1] and values[-2][0] >= values[-1][1]):
        return math.inf
    best, last = -math.inf, len(x) - 2
    for i in range(last + 1):
        width, here, there = x[i + 1] - x[i], values[i][1], values[i + 1][1]
        # Heights, at both ends, of the line through the two points before, and of that through the two after.
        rise = (here - values[i - 1][0]) / (x[i] - x[i - 1]) * width if i > 0 else math.inf
        fall = (there - values[i + 2][0]) / (x[i + 2] - x[i + 1]) * width if i < last else math.inf
        left, right = min(here, there + fall), min(here + rise, there)
        if i == 0:
            left = there + fall
        elif i == last:
            right = here + rise
        elif rise + fall > 0 and 0 < (share := (there + fall - here) / (rise + fall)) < 1:
            left = max(left, here + rise * share)
        best = max(best, left + 16 * UNIT * abs(left), right + 16 * UNIT * abs(right))
    return best


def gdp_mu(curves: Sequence[Curve], delta: float) -> Bound:
    """Bounds of the smallest μ with δ(ε) ≤ δ₀ + (1 − δ₀)δ_μ(ε) for all real ε, i.e. in every direction for ε ≥ 0."""
    leak = max(curve.leak.upper for curve in curves)
    if leak:
        if delta < leak:
            sure = max(curve.leak.lower for curve in curves)
            return Bound(math.inf if delta < sure else 0.0, math.inf, ("closed form",))
        if delta == leak:  # the leaks, and no more: the rest must be μ-GDP as it stands
            rest = gdp_mu([curve.without_leaks for curve in curves], 0.0)
            # Where the true leaks are less than their upper bound, δ₀ leaves something over for the rest.
            return rest if all(curve.leak.lower == leak for curve in curves) else Bound(0.0, rest.upper, rest.routes)
    tails = [[(pair.gdp_bounds, count) for pair, count in curve.direction] for curve in curves]
    from_tail = max(math.sqrt(math.fsum(n * low**2 for (low, _), n in tail)) for tail in tails)
    ceiling = max(math.sqrt(math.fsum(n * high**2 for (_, high), n in tail)) for tail in tails)
    ceiling *= (
        1 + 8 * UNIT
    )  # each μ is off by three units at most, the root of their squares by half of that and three more
    if ceiling == 0:
        return Bound(0.0, 0.0, ("closed form",))
    if delta == 0:
        if from_tail * (1 + 12 * UNIT) >= ceiling:
            return Bound(from_tail * (1 - 8 * UNIT), ceiling, ("closed form",))
        # μ ≥ 2Φ⁻¹((1 + TV)/2): the condition at ε = 0.
        advantage = curves[0].delta(0.0).lower
        return Bound(
            max(from_tail * (1 - 8 * UNIT), 2 * math.sqrt(2) * float(erfinv(min(advantage, 1 - 1e-16))) * (1 - 1e-12)),
            ceiling,
            ("closed form",),
        )
    found: list[Bound] = []
    for curve in curves:
        found.append(_mu_of_direction(curve, delta, ceiling, max((b.lower for b in found), default=0.0)))
    return Bound(max(b.lower for b in found), min(ceiling, max(b.upper for b in found)), found[0].routes)


def _mu_of_direction(curve: Curve, delta: float, ceiling: float, known: float) -> Bound:
    """Cut [0, ε(δ₀)] into cells; in x = e^ε the run's profile lies below its chord, and δ_μ minus a chord is convex.

    The largest of all directions is at least ``known``: less is not told from it.
    """
    end = curve.epsilon(delta).upper
    if end == 0:
        return Bound(0.0, 0.0, ("closed form",))
    if not math.isfinite(end):
        return Bound(0.0, ceiling, ("fallback",))
    routes: dict[str, None] = {}

    def excess(epsilon: float) -> Bounds:
        found = curve.delta(epsilon, rtol=100 * ENOUGH, atol=ENOUGH * delta)
        routes.update(dict.fromkeys(found.routes))
        low, high = ((value - delta) / (1 - delta) for value in (found.lower, found.upper))
        return max(low, 0.0) * (1 - 8 * UNIT), max(high, 0.0) * (1 + 8 * UNIT)

    points = [end * k / 16 for k in range(17)]
    values = [excess(point) for point in points]
    lower = known
    # most is needed in the middle: elsewhere it is soon seen to be enough
    for i in sorted(range(17), key=lambda i: abs(i - 8)):
        lower = max(lower, _mu_at(points[i], values[i][0], lower)[0])
    cells = [_cell(points[i], values[i], points[i + 1], values[i + 1], ceiling, lower) for i in range(16)]
    for _ in range(60):
        worst = max(cells, key=lambda cell: cell[0])
        if worst[0] <= lower * (1 + CONTENT):
            break
        cells.remove(worst)
        (e0, v0), (e1, v1) = worst[1], worst[2]
        middle = 0.5 * (e0 + e1)
        value = excess(middle)
        lower = max(lower, _mu_at(middle, value[0], lower)[0])
        cells += [_cell(e0, v0, middle, value, ceiling, lower), _cell(middle, value, e1, v1, ceiling, lower)]
    upper = max(cell[0] for cell in cells)
    return Bound(lower, upper, tuple(routes))


def _mu_at(epsilon: float, value: float, known: float = 0.0, *, both: bool = False) -> Bounds:
    """A lower bound, or ``both``, of the μ with δ_μ(ε) = value; (0, μ') where it is at most a known μ'."""
    if value <= 0:
        return 0.0, 0.0

    def bounds(x: float) -> Bounds:
        delta, _, error = gdp_profile(1 / x, np.array([epsilon]))
        return float(delta[0] - error[0]), float(delta[0] + error[0])

    if known > 0 and bounds(1 / known)[0] >= value:
        return 0.0, known * (1 + 4 * UNIT)
    start = max(known, math.sqrt(2 * epsilon), 1e-3, 2.5 * value)
    left, right = crossing(bounds, value, 1 / start, 0.0, math.inf, 0.01 * SHARP, both=both)
    return (1 - 4 * UNIT) / right, (1 + 4 * UNIT) / left if left > 0 else math.inf


Cell = tuple[float, tuple[float, Bounds], tuple[float, Bounds]]


def _cell(e0: float, v0: Bounds, e1: float, v1: Bounds, ceiling: float, known: float) -> Cell:
    """An upper bound of the μ that is needed between two points; hardly more than a known one where that is enough."""
    ends = (e0, v0), (e1, v1)
    x0, x1 = math.exp(min(e0, 700.0)), math.exp(min(e1, 700.0))
    if v0[1] <= 0:
        return 0.0, *ends
    if e1 > 690:
        return ceiling, *ends
    slope = (v0[1] - v1[1]) / (x1 - x0) if x1 > x0 else 0.0

    def least(inverse: float) -> Bounds:
        """The ratio of δ_μ to the chord, where their difference is least: where Q(L > ε) = Φ(−μ/2 − ε/μ) = slope."""
        mu = 1 / inverse
        at = -mu * (mu / 2 + float(ndtri(min(slope, 1.0)))) if slope > 0 else e1
        at = min(max(at, e0), e1)
        delta, tail, error = gdp_profile(mu, np.array([at]))
        # The minimiser is rounded; at a nearby point a convex function differs to second order only.
        share = math.expm1(at - e0) / math.expm1(e1 - e0) if e1 > e0 else 0.0
        chord = max(v0[1] + share * (v1[1] - v0[1]), 1e-300)  # 0 at the far end, where δ_μ is above it
        blur = float(error[0]) + 1e-13 * (float(tail[0]) + chord)
        return (float(delta[0]) - blur) / chord, (float(delta[0]) + blur) / chord

    # least() falls with 1/μ; the needed μ is where it passes 1 from above.
    enough = known * (1 + SHARP)
    if 0 < enough < ceiling and least((1 + 4 * UNIT) / enough)[0] >= 1:
        return enough, *ends
    start = known if 0 < known < ceiling else _mu_at(e0, v0[1], both=True)[1]
    if start == math.inf:
        return ceiling, *ends
    left, _ = crossing(least, 1.0, 1 / start, 1 / ceiling * 0.5, math.inf, 0.01 * SHARP)
    return (min(ceiling, (1 + 4 * UNIT) / left) if left > 0 else ceiling), *ends  # 0: no μ reaches the chord
