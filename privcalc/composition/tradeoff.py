"""The hypothesis-testing face: the trade-off curve, and the smallest μ of Gaussian DP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from privcalc.composition.direction import Bound
from privcalc.numerics.floats import UNIT
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


def beta(curves: Sequence[Curve], alpha: float) -> Bound:
    """Bounds of the trade-off curve at α, the minimum over both orders (Dong, Roth, Su 2022, Section 2)."""
    forward, backward = curves[0], curves[-1]
    if alpha in (0.0, 1.0) or forward.empty:
        # At α = 0 a certain leak is a test without false positives.
        upper, lower = (curve.leak.lower for curve in curves), max(curve.leak.upper for curve in curves)
        ends = (1 - alpha) * (1 - lower), (1 - alpha) * (1 - max(upper))
        if alpha == 1 or (alpha == 0 and lower == 0):
            return Bound(*ends, ("closed form",))
        return Bound(max(ends[0] * (1 - 4 * UNIT), 0.0), min(ends[1] * (1 + 4 * UNIT), 1.0), ("closed form",))
    closed = [found for curve in curves if (found := curve.trade_off(alpha)) is not None]
    if len(closed) == len(curves):
        return Bound(min(low for low, _ in closed), min(high for _, high in closed), ("closed form",))
    first = one_order(forward, backward, alpha)
    if forward is backward:
        return first
    second = one_order(backward, forward, alpha)
    return Bound(min(first.lower, second.lower), min(first.upper, second.upper), first.routes)


def one_order(forward: Curve, backward: Curve, alpha: float) -> Bound:
    """Maximise g(ε) = 1 − δ_{P‖Q}(ε) − e^ε α over real ε; g is concave in x = e^ε.

    Negative ε are those of the reversed pair.
    """
    routes: dict[str, None] = {}

    def g(epsilon: float) -> Bounds:
        if epsilon >= 0:
            found = forward.delta(epsilon, rtol=ENOUGH, atol=ENOUGH)
            cost = math.exp(min(epsilon + math.log(alpha), 700.0)) * (1 + 8 * UNIT * (1 + epsilon))
            low, high = 1 - found.upper - cost, 1 - found.lower - cost
        else:
            found = backward.delta(-epsilon, rtol=ENOUGH, atol=ENOUGH)
            scale = math.exp(epsilon)
            low, high = scale * (1 - alpha - found.upper), scale * (1 - alpha - found.lower)
        routes.update(dict.fromkeys(found.routes))
        return low - 8 * UNIT, high + 8 * UNIT

    # Only where to search, and how finely.
    advantage = forward.delta(0.0, rtol=ABOUT).upper
    reach = -math.log(alpha)
    far = -backward.epsilon(max(1e-9, 2 * backward.leak.upper), quick=True, rtol=ABOUT).upper
    if not math.isfinite(far):
        far = -700.0
    scale = min(max(advantage, 1e-12), reach - far)
    best = smallest(lambda e: -g(e)[0], far, reach, 3e-5 * scale, most=500)[1]
    lower, upper = max(0.0, g(best)[0]), 1.0 - alpha
    for step in (1e-4 * scale, 1e-3 * scale, 1e-2 * scale, 0.1 * scale):
        a, b, c = g(best - step), g(best), g(best + step)
        x = [math.exp(k * step) for k in (-1, 0, 1)]  # over e^best: only ratios of differences count
        if not x[0] < x[1] < x[2]:
            continue
        # Concavity: g lies below the chords extended; both must point down away from the middle.
        rise = (b[1] - a[0]) / (x[1] - x[0])
        out_left, out_right = (b[0] - a[1]) / (x[1] - x[0]), (c[1] - b[0]) / (x[2] - x[1])
        if out_left >= 0 >= out_right:
            upper = min(upper, b[1] + max(rise, 0.0) * (x[2] - x[1]), 1 - alpha)
            upper = max(upper, min(1 - alpha, b[1] + max(-((c[0] - b[1]) / (x[2] - x[1])), 0.0) * (x[1] - x[0])), lower)
            break
    return Bound(lower, max(upper, lower), tuple(routes))


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
