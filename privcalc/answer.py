"""From pairs and counts to certified bounds: which route answers, and how routes are combined.

Everything here concerns one *direction*: a list of (pair, count), all ordered the same way. A relation's guarantee is the worst
of its directions *after* composing each (Lebeda, Regehr, Kamath, Steinke 2024, show that mixing them earlier is wrong).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privcalc.numerics import contour, direct, lattice
from privcalc.numerics.contour import Axis, RouteFailed
from privcalc.numerics.normal import TINY, UNIT
from privcalc.numerics.solve import Bounds, crossing
from privcalc.pair import Pair
from privcalc.pairs import GaussianPair

Direction = tuple[tuple[Pair, int], ...]

GOOD = 1e-9
"""Relative width below which no further attempt is made."""

FAIR = 1e-7
"""Relative width of the contour's answer above which the lattice is tried too."""


POOR = 1e-3
"""Relative width above which bounds on the real axis are tried as well."""


@dataclass(frozen=True)
class Bound:
    """A certified interval and the routes that gave it."""

    lower: float
    upper: float
    routes: tuple[str, ...]

    def meet(self, lower: float, upper: float, route: str) -> Bound:
        """Both intervals hold; keep a route's name only if it made a difference."""
        if lower <= self.lower and upper >= self.upper:
            return self
        low, high = max(lower, self.lower), min(upper, self.upper)
        kept = self.routes if (low, high) != (lower, upper) and self.routes != ("fallback",) else ()
        return Bound(low, high, (*kept, route))

    def width(self) -> float:
        """Relative width; ∞ if the upper end is."""
        if self.lower >= self.upper:  # a contradiction is raised where an answer is made
            return 0.0
        return (self.upper - self.lower) / self.upper if self.upper < math.inf else math.inf


def simplify(direction: Direction) -> Direction:
    """Merge equal pairs, and all Gaussian ones into one: μ-GDP composes to √(Σμ²) (Dong, Roth, Su 2022, Corollary 3.3)."""
    counts: dict[Pair, int] = {}
    squares = []
    for pair, count in direction:
        if count == 0:
            continue
        if pair.gdp is None:
            counts[pair] = counts.get(pair, 0) + count
        else:
            squares.append(count * pair.gdp**2)
    merged = list(counts.items())
    if squares:
        merged.append((GaussianPair(math.sqrt(math.fsum(squares))), 1))
    return tuple(merged)


def _closed_form(direction: Direction) -> Callable[[float], Bounds] | None:
    """The exact profile, where the run is one use of one pair."""
    if len(direction) != 1 or direction[0][1] != 1:
        return None
    pair = direction[0][0]

    def bounds(epsilon: float) -> Bounds:
        delta, _, error = pair.profile(np.array([epsilon]))
        return max(float(delta[0] - error[0]), 0.0), min(float(delta[0] + error[0]), 1.0)

    return bounds


def _fallback(direction: Direction) -> Callable[[float], Bounds]:
    """Always available: zCDP from above (at the best order), any single use from below."""
    rho = math.fsum(count * pair.zcdp for pair, count in direction) * (1 + 8 * UNIT)
    top = max_loss(direction) * (1 + 8 * UNIT)
    c = np.geomspace(1e-6, 1e12, 400)
    line = Axis(c, rho * c * (c + 1), 4 * UNIT * rho * c * (c + 1))

    def bounds(epsilon: float) -> Bounds:
        if epsilon >= top:
            return 0.0, 0.0
        upper = min(1.0, math.exp(min(0.0, float(line.log_chernoff(epsilon).min())))) * (1 + 1e-12)
        lower = max((_any_jump(pair, count, epsilon) for pair, count in direction[:64]), default=0.0)
        return lower, min(upper, 1.0)

    return bounds


def _any_jump(pair: Pair, count: int, epsilon: float) -> float:
    """A lower bound of δ(ε) from the test "some use has a loss above t", for a few t: P(S) − e^ε Q(S) of that event S.

    Where large losses are rare it is nearly sharp. With p = P(L > t) and r = Q(L > t): 1 − (1 − p)^n − e^ε (1 − (1 − r)^n).
    """
    t = epsilon * np.array([1.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02])
    delta, tail, error = pair.profile(t)
    p = np.minimum(np.maximum((delta + tail) * (1 - 1e-11) - error, 0.0), 1.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        r = np.minimum((tail * (1 + 1e-11) + TINY) * np.exp(-t), 1.0)
        value = -np.expm1(count * np.log1p(-p)) + math.exp(min(epsilon, 700.0)) * np.expm1(count * np.log1p(-r))
        rounding = 1e-11 * (np.minimum(count * p, 1.0) + math.exp(min(epsilon, 700.0)) * np.minimum(count * r, 1.0))
    single = max(float(delta[0] - error[0]), _every_jump(pair, count, epsilon), 0.0)
    if epsilon >= 700:
        return single
    return max(single, float(np.nanmax(np.where(np.isfinite(value), value - rounding, 0.0))))


def _every_jump(pair: Pair, count: int, epsilon: float) -> float:
    """The same from the test "every use has a loss above t": p^n − e^ε r^n, sharp near a largest loss that is an atom."""
    t = epsilon / count * np.array([0.9, 0.99, 0.999, 0.9999])
    delta, tail, error = pair.profile(t)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        log_p = count * np.log(np.maximum((delta + tail) * (1 - 1e-11) - error, 0.0))
        log_r = epsilon + count * (np.log(tail * (1 + 1e-9) + 1e-300) - t)  # a tail that underflowed is not 0
        value = np.exp(np.minimum(log_p, 0.0)) * (1 - 1e-9) - np.exp(np.minimum(log_r, 700.0)) * (1 + 1e-9)
    return float(np.nanmax(np.where(np.isfinite(value), value, 0.0), initial=0.0))


def max_loss(direction: Direction) -> float:
    """The essential supremum of the composed loss."""
    return math.fsum(count * pair.max_loss for pair, count in direction)


Builder = Callable[[float | None, float | None], tuple[Callable[[float], Bounds], float]]


def _builders(direction: Direction, *, quick: bool) -> list[tuple[str, Builder]]:
    """The routes that may apply, best first."""
    transforms = [(pair.transform, count) for pair, count in direction]
    found: list[tuple[str, Builder]] = []
    entries = [(transform, count) for transform, count in transforms if transform is not None]
    if len(entries) == len(direction):

        def by_contour(delta: float | None, epsilon: float | None) -> tuple[Callable[[float], Bounds], float]:
            built, estimate = contour.build(entries, delta=delta, epsilon=epsilon)
            return built.bounds, estimate

        found.append(("contour", by_contour))
    if quick:
        return found

    def by_lattice(delta: float | None, epsilon: float | None) -> tuple[Callable[[float], Bounds], float]:
        built, estimate = lattice.build(list(direction), delta=delta, epsilon=epsilon)
        return built.bounds, estimate

    found.append(("lattice", by_lattice))
    return found


def delta_at(direction: Direction, epsilon: float, *, quick: bool = False) -> Bound:
    """Bounds of δ(ε), ε ≥ 0; ``quick`` leaves out the routes that take more than milliseconds."""
    direction = simplify(direction)
    if not direction:
        return Bound(0.0, 0.0, ("closed form",))
    exact = _closed_form(direction)
    if exact is not None:
        return Bound(*exact(epsilon), ("closed form",))
    best = Bound(*_fallback(direction)(epsilon), ("fallback",))
    for name, build in _builders(direction, quick=quick):
        delta: float | None = None
        for _ in range(3):
            try:
                bounds, _ = build(delta, epsilon)
            except RouteFailed:
                break
            best = best.meet(*bounds(epsilon), name)
            if best.width() <= GOOD or best.upper == 0:
                break
            # The plan was made for an estimate of δ; make it again for what was found.
            middle = 0.5 * (best.lower + best.upper)
            if delta is not None and abs(middle - delta) <= 0.1 * middle:
                break
            delta = middle
        if best.width() <= 100 * FAIR:  # δ is steep: its relative width is larger than that of ε
            break
    if best.width() > POOR and not quick and epsilon > 0 and _few(direction):
        try:
            built, _ = direct.build(list(direction), epsilon=epsilon)
        except RouteFailed:
            return best
        best = best.meet(*built.bounds(epsilon), "direct")
    return best


def epsilon_at(direction: Direction, delta: float, *, quick: bool = False) -> Bound:
    """Bounds of the smallest ε ≥ 0 with δ(ε) ≤ δ; ``quick`` leaves out the routes that take more than milliseconds."""
    direction = simplify(direction)
    if not direction:
        return Bound(0.0, 0.0, ("closed form",))
    if delta == 0:
        top = max_loss(direction)
        return Bound(max(top * (1 - 8 * UNIT), 0.0) if top < math.inf else math.inf, top * (1 + 8 * UNIT), ("closed form",))
    exact = _closed_form(direction)
    if exact is not None:
        return Bound(*_invert(exact, delta, _guess(direction, delta)), ("closed form",))
    rough = _fallback(direction)
    # The two ends lie far apart, so each is inverted for itself.
    ends = [_invert(lambda e, i=i: (rough(e)[i],) * 2, delta, _guess(direction, delta), rtol=1e-6)[i] for i in (0, 1)]  # type: ignore[misc]
    best = Bound(ends[0], min(max(*ends), max_loss(direction) * (1 + 8 * UNIT)), ("fallback",))
    for name, build in _builders(direction, quick=quick):
        epsilon: float | None = None
        for _ in range(3):
            try:
                bounds, guess = build(delta, epsilon)
            except RouteFailed:
                break
            best = best.meet(*_invert(bounds, delta, min(max(guess, best.lower), best.upper)), name)
            if best.width() <= GOOD or best.upper == 0:
                break
            middle = 0.5 * (best.lower + best.upper)
            if epsilon is not None and abs(middle - epsilon) <= 0.01 * middle:
                break
            epsilon = middle
        if best.width() <= FAIR:
            break
    if quick:
        return best
    if best.width() > POOR:
        best = best.meet(best.lower, _axis_epsilon(direction, delta, best), "axis")
    if best.width() > 10 * FAIR and best.upper < math.inf and _few(direction):
        try:
            built, guess = direct.build(list(direction), delta=delta, known=(best.lower, best.upper))
        except RouteFailed:
            return best
        best = best.meet(*_invert(built.bounds, delta, min(max(guess, best.lower), best.upper), rtol=1e-10), "direct")
    return best


def _few(direction: Direction) -> bool:
    """Whether there are few enough uses to compose them one convolution at a time."""
    return sum(count for _, count in direction) <= 20_000 and len(direction) <= 4


def _axis_epsilon(direction: Direction, delta: float, known: Bound) -> float:
    """ε from the real axis alone, after leaving out a rare event that is paid for with a share of δ.

    Where a few large jumps carry the tail, M explodes long before the saddle; without them it does not.
    """
    entries = [(pair.transform, count) for pair, count in direction if pair.transform is not None]
    best = known.upper
    if len(entries) < len(direction) or not 0 < known.upper < math.inf:
        return best
    for share in (0.5, 0.9):
        log_mass = math.log(share * delta / len(entries))
        points = -math.log(delta) / known.upper * np.geomspace(0.3, 3e4, 60)
        for part in (points[:20], points[:40], points):
            try:
                prepared = [(t.prepare(part[-1], n, log_mass, cut=True), n) for t, n in entries]
            except OverflowError:
                break
            line = contour.axis(prepared, part)
            left = delta - math.fsum(n * t.lost for t, n in prepared) * (1 + 1e-9)
            if left <= 0:
                continue
            log_left = line.log_chernoff(0.0) - math.log(left) + 1e-9
            found = float(np.nan_to_num(log_left / part, nan=math.inf).min())
            best = min(best, max(found * (1 + 1e-12), 0.0))
    return best


def _guess(direction: Direction, delta: float) -> float:
    """A first ε: the zCDP bound ρ + 2√(ρ log 1/δ) (Bun, Steinke 2016, Proposition 1.3)."""
    rho = math.fsum(count * pair.zcdp for pair, count in direction)
    return min(rho + 2 * math.sqrt(rho * -math.log(delta)), 0.999 * max_loss(direction), 1e300)


def _invert(bounds: Callable[[float], Bounds], delta: float, guess: float, rtol: float = 1e-15) -> Bounds:
    """Bounds of the crossing of δ(ε) with δ, at or above ε = 0."""
    if bounds(0.0)[1] <= delta:
        return 0.0, 0.0
    return crossing(bounds, delta, max(guess, 1e-12), 0.0, math.inf, rtol)


def proves(direction: Direction, epsilon: float, delta: float, *, cheaply: bool) -> bool:
    """Whether δ(ε) ≤ δ could be shown for this direction; ``cheaply`` by a bound on the real axis alone."""
    direction = simplify(direction)
    if not direction or max_loss(direction) * (1 + 8 * UNIT) <= epsilon:
        return True
    if delta == 0:
        return False
    if not cheaply:
        return delta_at(direction, epsilon).upper <= delta
    entries = [(pair.transform, count) for pair, count in direction if pair.transform is not None]
    if len(entries) < len(direction) or not epsilon > 0:
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


def worst_epsilon(directions: Sequence[Direction], delta: float) -> Bound:
    """The larger ε over the directions; the later ones are only shown not to exceed the first, where that succeeds."""
    best = epsilon_at(directions[0], delta)
    if best.upper == 0:
        return best  # δ(0), the total variation distance, is the same in both orders
    for other in directions[1:]:
        if best.upper == math.inf or any(proves(other, best.upper, delta, cheaply=cheaply) for cheaply in (True, False)):
            continue
        found = epsilon_at(other, delta)
        best = Bound(max(best.lower, found.lower), max(best.upper, found.upper), _join(best.routes, found.routes))
    return best


def worst_delta(directions: Sequence[Direction], epsilon: float) -> Bound:
    """The larger δ over the directions."""
    best = delta_at(directions[0], epsilon)
    if epsilon == 0:
        return best  # the total variation distance is the same in both orders
    for other in directions[1:]:
        if proves(other, epsilon, best.lower, cheaply=True):
            continue
        found = delta_at(other, epsilon)
        best = Bound(max(best.lower, found.lower), max(best.upper, found.upper), _join(best.routes, found.routes))
    return best


def _join(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b)))
