"""The one root finder, and the one minimiser: search freely, certify once.

Every inversion of the library (ε for a δ, a parameter for a target) asks where a non-increasing function crosses a
target. The function is known by enclosures only. The search may use anything; what is returned are two points at which
the two safe-side predicates were evaluated to be true.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Bounds = tuple[float, float]

SLACK = 5e-8
"""The most that may be left over of a target, relative."""


def crossing(
    bounds: Callable[[float], Bounds],
    target: float,
    guess: float,
    low: float,
    high: float,
    rtol: float = 1e-15,
    *,
    both: bool = True,
    slope: float = math.nan,
    above: bool = False,
) -> tuple[float, float]:
    """Enclose the point where a non-increasing function passes ``target``.

    Args:
        bounds: maps x to (lower, upper) bounds of the function; NaN counts as "not known".
        target: the level, > 0.
        guess: where to start, in (low, high).
        low: left end of the domain, ≥ 0; the function is taken to be above the target there.
        high: right end of the domain, may be ∞.
        rtol: the search stops when it moves by less than this, relative.
        both: whether the left end is wanted too.
        slope: about −d log f/d log x, if that is known; used to search only.
        above: where upper ends cross, not the middle: the right end is wanted alone, and a tenth of the width may be
            left over.

    Returns:
        ``(left, right)``: lower(left) ≥ target, or left = low; upper(right) ≤ target, or right = high.

    Example:
        >>> left, right = crossing(lambda x: (math.exp(-x), math.exp(-x)), 0.5, 1.0, 0.0, math.inf)
        >>> left <= math.log(2) <= right and right - left < 1e-14
        True
    """
    known: dict[float, Bounds] = {}

    def once(x: float) -> Bounds:
        if x not in known:
            known[x] = bounds(x)
        return known[x]

    x, spare = _search(once, target, guess, low, high, rtol, slope, above)
    if not math.isfinite(x):
        return low, high
    # The first step out is what the search left open and the enclosure's own width demand;
    # it doubles until the predicate holds.
    first = max(spare, 2 * x * 2.0**-52, 5e-324)
    right = _certify(lambda y: once(y)[1] <= target, x, first, high)
    return (_certify(lambda y: once(y)[0] >= target, x, -first, low) if both else low), right


def _certify(holds: Callable[[float], bool], x: float, step: float, end: float) -> float:
    """The first of x, x + step, x + 2 step, … (doubling) at which the predicate is true; else ``end``."""
    if holds(x):
        return x
    # From one unit of x 70 doublings reach 2¹⁸ x: who is not there by then gets the end of the domain, which is valid.
    for _ in range(70):
        y = x + step
        if (step > 0 and y >= end) or (step < 0 and y <= end):
            return end
        if holds(y):
            return y
        step *= 2
    return end


def _search(
    bounds: Callable[[float], Bounds],
    target: float,
    guess: float,
    low: float,
    high: float,
    rtol: float,
    slope: float,
    above: bool,
) -> tuple[float, float]:
    """A point near the crossing (NaN if there is none), and by how much it may be off.

    Steps of inverse quadratic interpolation, or secant ones, of log f over log x, inside the bracket that the signs so
    far allow.
    """
    left, right = low, high  # log f > log target at left, < at right
    log_target = math.log(target)
    x = guess
    best = (math.inf, math.nan, math.inf)
    seen: list[tuple[float, float]] = []
    # More steps than bisection takes for all digits of a double; a search that does not end costs only width.
    for _ in range(100):
        lower, upper = bounds(x)
        middle = 0.5 * (lower + upper) if lower > 0 else upper
        if math.isnan(middle):
            break
        # −1e3: below the logarithm of the least double, −745.
        value = (math.log(middle) if middle > 0 else -1e3) - log_target
        noise = math.log(upper / lower) if lower > 0 and upper < math.inf else math.inf
        if above:
            # The search aims at half of what may be left over: there the predicate holds at once.
            left_over = min(0.1 * noise, SLACK) if noise < math.inf else 0.0
            value = (math.log(upper) if upper > 0 else -1e3) - log_target + 0.5 * left_over
            noise = 2 * left_over
        if abs(value) < best[0]:
            best = (abs(value), x, noise)
        seen.append((math.log(x), value))
        if len(seen) > 1 and seen[-1][0] != seen[-2][0]:
            slope = -(value - seen[-2][1]) / (seen[-1][0] - seen[-2][0])
        left, right = (x, right) if value > 0 else (left, x)
        # Nearer than a quarter of the enclosure's own width no search can tell anything. Empirical: only speed depends
        # on it.
        if value == 0 or (abs(value) <= 0.25 * noise and noise < math.inf):
            break
        if 0 < slope < math.inf:
            move = _curved(seen, value / slope)
            new = x * math.exp(min(max(move, -2.0), 2.0))
            if abs(move) <= rtol:
                break
        elif len(seen) == 1 and math.isfinite(value) and abs(value) < 100:
            # A second point for the first secant: near, but far from the roundings of f. Only speed depends on it.
            new = x * (1 + math.copysign(1e-3, value))
        else:
            new = x * 2 if value > 0 else x / 2
        if not left < new < right:
            new = math.sqrt(left * right) if left > 0 and right > 4 * left else 0.5 * (left + right)
        if not left < new < right or right - left <= rtol * left:
            break
        x = new
    if len(seen) == 1:
        slope = math.nan  # what was only guessed tells nothing of the distance
    # 0.6: an end is half the width from the middle, and a fifth more. Where that is too little, ``_certify`` goes on.
    spare = best[1] * (best[0] + 0.6 * best[2]) / slope if 0 < slope < math.inf and best[2] < math.inf else 0.0
    return best[1], spare


def _curved(seen: list[tuple[float, float]], move: float) -> float:
    """The secant's step, or that of the parabola through the last three points where the two nearly agree."""
    if len(seen) < 3:
        return move
    (x, f), (y, g), (z, h) = seen[-3:]
    if not all(0 < abs(difference) < math.inf for difference in (f - g, g - h, h - f)):
        return move
    root = x * g * h / ((f - g) * (f - h)) + y * h * f / ((g - h) * (g - f)) + z * f * g / ((h - f) * (h - g))
    return root - z if abs(root - z - move) <= 0.5 * abs(move) else move


def smallest(
    function: Callable[[float], float], low: float, high: float, xatol: float, most: int = 40
) -> tuple[float, float]:
    """The smallest value met while minimising over an interval, and where.

    Each value met must be valid, none need be optimal.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and few questions need it

    met: list[tuple[float, float]] = []

    def record(x: float) -> float:
        value = function(float(x))
        met.append((value, float(x)))
        return min(value, 1e300)

    minimize_scalar(
        record, bounds=(low, high), method="bounded", options={"xatol": max(xatol, 1e-300), "maxiter": most}
    )
    return min(met)
