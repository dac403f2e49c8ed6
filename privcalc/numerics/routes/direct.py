"""The direct route: two lattice laws composed by plain convolution, which loses no relative precision anywhere.

Where a few rare large jumps carry the tail, no exponential tilt is right: the transform explodes long before the
saddle, and a Fourier inversion at c has a floor of e^{K(c) − cε}·1e−15. Sums of products of nonnegative numbers have
none. A nonnegative measure m on the points iΔ, with a mass at +∞, has the profile H(ε) = m_∞ + Σ_i m_i (1 −
e^{ε−iΔ})_+. It need not be a probability: wherever H ≥ h (or ≤ h) at every real ε for each use, so it is for the
compositions. So every float law is certified *after* it was made: its profile is evaluated (sums of nonnegative numbers
again), and the law is scaled by the worst ratio to what it must exceed.

The upper law interpolates h in x = e^ε (connect the dots); the lower one stays, on every cell, below a line below h.
Masses beyond the window go to +∞ or to its left end (upper), or are dropped (lower). Proofs and constants:
``proofs/direct.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from privcalc.numerics.floats import QUIET, TINY, UNIT, Floats
from privcalc.numerics.interfaces import Profile, RouteFailed
from privcalc.numerics.log_moment import slope_error
from privcalc.numerics.routes.lattice import PairEntries
from privcalc.numerics.routes.minorant import Hull, convexified, end_index, exact_spacing, minorant
from privcalc.numerics.solve import Bounds, crossing

MAX_WORK = 5e9
"""Multiplications that one lattice may cost: a few seconds."""


@dataclass(frozen=True)
class Law:
    """Masses at (first + k)Δ and at +∞; ``error`` bounds the relative rounding error of each."""

    first: int
    mass: Floats
    infinity: float
    error: float = 0.0

    def profile(self, spacing: float) -> Floats:
        """H at the law's points, up to a relative ``gamma``: H_i = H_{i+1} + (1 − e^{−Δ}) Σ_{l>i} m_l e^{−(l−1−i)Δ}."""
        shrink = math.exp(-spacing)
        slope = np.fromiter(
            accumulate(self.mass[:0:-1].tolist(), lambda d, m: m + shrink * d), np.float64, self.mass.size - 1
        )
        drops = np.concatenate([[self.infinity], -math.expm1(-spacing) * slope])
        return np.asarray(np.cumsum(drops)[::-1], dtype=np.float64)

    def total(self) -> float:
        """The total mass H(−∞) of the law."""
        return float(self.mass.sum()) + self.infinity

    def scaled(self, factor: float) -> Law:
        """All masses times a factor."""
        return Law(self.first, self.mass * factor, self.infinity * factor, self.error)


def gamma(size: int) -> float:
    """Relative rounding error of ``profile``, ``total`` and one composition, together."""
    return (16 * size + 64) * UNIT


def compose(a: Law, b: Law, last: int, share: float, *, upper: bool) -> Law:
    """Convolve; cut at ``last`` and where less than ``share`` lies to the left, in the safe direction."""
    if float(a.mass.size) * b.mass.size > MAX_WORK / 4:
        raise RouteFailed("the law spans too many points")
    mass, first = np.convolve(a.mass, b.mass), a.first + b.first
    keep = last - first + 1
    if keep < 2:  # everything lies beyond the window
        return Law(
            last - 1, np.zeros(2), a.total() * b.total() if upper else 0.0, a.error + b.error + gamma(b.mass.size)
        )
    infinity = a.infinity * b.total() + float(a.mass.sum()) * b.infinity + float(mass[keep:].sum()) if upper else 0.0
    mass = mass[:keep]
    below = np.cumsum(mass)
    cut = min(int(np.searchsorted(below, share)), mass.size - 2)
    mass = mass[cut:].copy()
    if upper and cut:
        mass[0] += below[cut - 1]
    return Law(first + cut, mass, infinity, a.error + b.error + gamma(keep + cut + b.mass.size))


def power(law: Law, count: int, last: int, share: float, *, upper: bool) -> Law:
    """The count-fold composition, by repeated squaring."""
    result: Law | None = None
    while True:
        if count & 1:
            result = law if result is None else compose(result, law, last, share, upper=upper)
        count >>= 1
        if not count:
            assert result is not None
            return result
        law = compose(law, law, last, share, upper=upper)


MAX_POINTS = 32768
FIRST_POINTS = 512
WIDTH = 5e-5
"""Aimed-at relative width of ε."""

_UNDERFLOW = 1e-300
"""More than everything that underflows."""


@dataclass(frozen=True)
class Direct:
    """The two composed laws; between lattice points their profiles are chords in e^ε."""

    spacing: float
    upper: Law
    lower: Law
    high: Floats
    low: Floats
    widest: int = 0
    """Points of the largest law that was convolved."""

    @QUIET
    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ(ε)."""
        ends = []
        for law, values, sign in ((self.lower, self.low, -1), (self.upper, self.high, 1)):
            k = math.floor(epsilon / self.spacing)
            k += int(epsilon >= (k + 1) * self.spacing) - int(epsilon < k * self.spacing)  # multiples of Δ are exact
            e, k = epsilon - k * self.spacing, k - law.first
            margin = sign * (law.error + gamma(values.size)) * 1.01
            if k >= values.size - 1:
                value = float(values[-1])
            else:
                # Left of all points the profile is a chord, too: from x = 0.
                near, far = (law.total(), float(values[0])) if k < 0 else (float(values[k]), float(values[k + 1]))
                share = (
                    math.exp(epsilon - law.first * self.spacing) if k < 0 else math.expm1(e) / math.expm1(self.spacing)
                )
                share = min(max(share - sign * 16 * UNIT, 0.0), 1.0)
                value = (1 - share) * near + share * far
            ends.append(value * (1 + margin) + sign * _UNDERFLOW)
        if math.isnan(ends[0]) or math.isnan(ends[1]):
            return 0.0, 1.0
        return min(max(ends[0], 0.0), 1.0), min(max(ends[1], 0.0), 1.0)


@QUIET
def build(
    entries: PairEntries,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    known: tuple[float, float] | None = None,
) -> tuple[Direct, float]:
    """Compose coarsely to find the window, then as finely as the target asks and the budget allows.

    Args:
        entries: pairs with their counts, all in one direction.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or None.
        known: an interval of ε from elsewhere; used to plan only.

    Returns:
        The two laws, and an estimate of what was asked.

    Raises:
        RouteFailed: if no affordable lattice serves.
    """
    try:
        return _build(entries, delta, epsilon, known)
    except (ArithmeticError, ValueError) as error:
        raise RouteFailed(str(error)) from error


def _build(
    entries: PairEntries, delta: float | None, epsilon: float | None, known: tuple[float, float] | None
) -> tuple[Direct, float]:
    target = (
        delta
        if delta is not None
        else max(1e-100, *(float(pair.profile(np.array([epsilon])).delta[0]) for pair, _ in entries))
    )
    far = max(pair.max_loss for pair, _ in entries) == math.inf
    reach = epsilon if epsilon is not None else known[1] if known is not None and 0 < known[1] < 100 else 0.0
    reach = max(
        [1.5 * reach, *(_tail_end(pair, 1e-4 * target / count) for pair, count in entries)] if far else [1.5 * reach]
    )
    top = 2 * math.fsum(
        count * pair.max_loss for pair, count in entries
    )  # rounding up to the lattice may double a loss
    reach = min(reach if reach > 0 else top, top)
    points, spent, c, grown = FIRST_POINTS, 0.0, -math.log(target) / reach, False
    price = sum(2 * _convolutions(n) for _, n in entries)
    while True:
        if spent > MAX_WORK or not 0 < reach < 300 or not 1e-200 < target < 1:
            raise RouteFailed("no window was found")
        direct = _at(entries, reach, points, target, c)
        spent += price * direct.widest**2 + 0.01 * MAX_WORK
        left, right = (epsilon, epsilon) if epsilon is not None else _crossing(direct, target, reach)
        if epsilon is not None:
            target, old = direct.bounds(epsilon)[1], target
            if not 0.01 < target / old < 100:
                continue
        if direct.upper.infinity > 1e-6 * target and reach < top and points == FIRST_POINTS:
            reach, grown = min((2 if direct.upper.infinity > 0.1 else 1.15) * reach, top), True
            continue
        beyond = np.flatnonzero(direct.high <= 1e-7 * target)
        new = max((direct.upper.first + int(beyond[0])) * direct.spacing if beyond.size else reach, 1.05 * right)
        if new < 0.87 * reach and not grown:
            reach = new
            continue
        c = _slope(direct, right, reach)
        width, share = _width(direct, left, right, c), direct.widest / points
        most = min(MAX_POINTS, math.sqrt(max(MAX_WORK - spent, 0.0) / price)) / max(share, 1.0)
        # The width shrinks like Δ², or like Δ while the bulk is finer than the lattice.
        points, last = int(min(points * max(1.5, 1.3 * math.sqrt(width / WIDTH)), most)), points
        if width <= WIDTH or points < 1.2 * last:
            return direct, 0.5 * (left + right) if epsilon is None else target


def _crossing(direct: Direct, target: float, reach: float) -> tuple[float, float]:
    """Where the two bounds pass the target, each for itself: they may lie far apart."""

    def end(i: int) -> float:
        return crossing(lambda e: (direct.bounds(e)[i],) * 2, target, 0.5 * reach, 0.0, reach, 1e-9)[i]

    return end(0), end(1)


def _slope(direct: Direct, epsilon: float, reach: float) -> float:
    """The slope −d log δ/dε, about."""
    step = 0.005 * max(epsilon, 0.01 * reach)
    near, far = (max(direct.bounds(e)[1], 1e-300) for e in (epsilon, epsilon + step))
    return max(math.log(near / far) / step, 1e-3 / reach)


def _width(direct: Direct, left: float, right: float, c: float) -> float:
    """Relative width of ε; where ε is given, from that of δ and the slope."""
    if left < right or right == 0:
        return (right - left) / right if right > 0 else 0.0
    low, high = direct.bounds(left)
    return math.log(high / low) / (c * left) if low > 0 else 1.0


def _tail_end(pair: Profile, small: float) -> float:
    """A loss that one use exceeds with little probability."""
    e = 1e-9
    while e < min(pair.max_loss, 1e3) and float(pair.profile(np.array([e])).delta[0]) > small:
        e *= 1.2
    return e


def _convolutions(count: int) -> int:
    return count.bit_length() + count.bit_count()


def _at(entries: PairEntries, reach: float, points: int, target: float, c: float) -> Direct:
    """Both laws on the window (…, reach], with so many points right of 0."""
    spacing = exact_spacing(reach / points)
    uses = sum(n for _, n in entries)
    share = 1e-8 / uses
    composed: list[Law | None] = [None, None]
    widest = 0
    for pair, count in entries:
        small = math.log(target) - math.log(uses) - 18
        for which, law in enumerate(_laws(pair, c, spacing, small, math.log(share))):
            widest = max(widest, law.mass.size)
            if 2.0 * law.mass.size**2 * _convolutions(count) > 4 * MAX_WORK:
                raise RouteFailed("one use spans too many points")
            part, old = power(law, count, points, share, upper=which == 0), composed[which]
            composed[which] = part if old is None else compose(old, part, points, share, upper=which == 0)
    upper, lower = composed
    assert upper is not None
    assert lower is not None
    if max(upper.error, lower.error) > 0.01:
        raise RouteFailed("too many roundings")
    widest = max(widest, upper.mass.size, lower.mass.size)
    return Direct(spacing, upper, lower, upper.profile(spacing), lower.profile(spacing), widest)


def _masses(hull: Hull, spacing: float) -> Floats:
    """Probabilities P(L = iΔ): differences of P(L > iΔ), on the left of e^{−|ε|}·Q(L < iΔ)."""
    right, left = (-np.diff(slope) for slope in hull.slopes)
    shrink = np.exp(-spacing * np.arange(1, left.size + 1))
    return np.asarray(np.concatenate([(left * shrink)[::-1], [max(1 - hull.steep, 0.0)], right]), dtype=np.float64)


def _laws(pair: Profile, c: float, spacing: float, log_small: float, log_left: float) -> tuple[Law, Law]:
    """The upper and the lower law of one use, each certified against the profile."""
    right = max(end_index(pair, spacing, lambda _, log_h: log_h <= log_small), 2)
    left = end_index(pair.reverse, spacing, lambda e, log_h: log_h - e <= log_left)
    if right + left > 2 * MAX_POINTS or spacing * (right + left) > 300:
        raise RouteFailed("the lattice would need too many points")
    up, down = spacing * np.arange(right + 1.0), spacing * np.arange(left + 1.0)
    h, tail, h_error = pair.profile(up)
    h_error = np.where(up > pair.max_loss * (1 + 16 * UNIT), TINY, h_error)
    g, _, g_error = pair.reverse.profile(down)
    if not pair.convex:  # as in the lattice route: a bound only, and no lower law
        (h, h_error), (g, g_error) = convexified((h, h_error), (g, g_error), spacing)
    shrink, payoff = np.exp(-down[:0:-1]), np.concatenate([-np.expm1(-down[:0:-1]), np.zeros(right + 1)])
    w, error = np.concatenate([g[:0:-1] * shrink, h]), np.concatenate([g_error[:0:-1] * shrink, h_error])
    error = error + 8 * UNIT * (w + payoff)
    rounding = gamma(w.size)
    law = Law(-left, _masses(minorant((h, g), spacing), spacing), float(w[-1] + error[-1]))
    worst = float(np.max((w + error + payoff) / law.profile(spacing)))
    if not worst < math.inf:
        raise RouteFailed("the upper law is out of range")
    upper = law.scaled(max(1.0, worst, 1 / law.total()) * (1 + 2 * rounding))
    if not pair.convex:
        return upper, Law(-left, np.zeros(w.size), 0.0)
    v = _lowered(pair, c, spacing, left, up, tail / np.maximum(h, _UNDERFLOW))
    above = v[left:].copy()
    above[int(np.argmax(above <= 0)) :] = 0.0
    law = Law(
        -left, _masses(minorant((above, np.append(above[0], v[:left][::-1] / shrink[::-1])), spacing), spacing), 0.0
    )
    profile = law.profile(spacing)
    used = profile > 0
    worst = float(np.min(((v + payoff)[used] - 8 * UNIT * payoff[used]) / profile[used], initial=1.0))
    return upper, law.scaled(max(0.0, min(worst, 1 / law.total())) * (1 - 2 * rounding))


def _lowered(pair: Profile, c: float, spacing: float, left: int, up: Floats, steep: Floats) -> Floats:
    """Time values that lie, at both ends of every cell, below some line below h: a tangent inside the cell."""
    half = 0.5 * spacing
    # Right of 0: the middle of the cell, but closer to its right end where h falls by much.
    e = up[1:] - np.minimum(half, 0.125 / np.maximum(steep[1:] ** 2 * spacing, 1e-300))
    h, tail, error = pair.profile(e)
    near, far = h - tail * np.expm1(up[:-1] - e), h - tail * np.expm1(up[1:] - e)
    margin = error + 8 * UNIT * (h + tail) * spacing + 8 * UNIT * h + slope_error(h, tail, error) * math.expm1(spacing)
    fine = far > margin
    near, far = np.where(fine, near - margin, 0.0), np.where(fine, far - margin, 0.0)  # else the line 0
    right = np.minimum(near, np.append(math.inf, far[:-1]))

    def below(e: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        g, g_tail, g_error = pair.reverse.profile(e)
        y, mass = np.exp(-e), g + g_tail  # Q(L < −e): the slope of w in x
        blur = slope_error(g, g_tail, g_error) + g_error
        margin = y * g_error + 8 * UNIT * y * g + blur * (np.exp(-high) - np.exp(-low)) + 8 * UNIT * mass * spacing
        return y * (g + mass * np.expm1(e - low)) - margin, y * (g + mass * np.expm1(e - high)) - margin

    # Left of −Δ: middles. Between −Δ and 0 the tangent that spoils the neighbours least.
    high = spacing * np.arange(left - 1.0, 0.0, -1)
    a, b = below(high + half, high + spacing, high)
    lower = np.append(np.minimum(a, np.append(0.0, b[:-1])), np.append(0.0, b)[-1])
    t = np.asarray(np.geomspace(1e-9, 0.5, 200), dtype=np.float64)
    e = min(spacing, pair.reverse.max_loss) * np.concatenate([t, 1 - t])
    a, b = below(e, np.full(e.size, spacing), np.zeros(e.size))
    # Its cost in log δ: a time value at iΔ counts c(c + 1)Δ e^{ciΔ}; one below 0 at −Δ pulls down all to the left of
    # it, too. A value at 0 pulls down those at Δ, 2Δ, …, up to where a line from it touches them.
    b, k = np.minimum(b, right[0]), np.arange(1, min(right.size, max(64, right.size // 32)))
    run = np.expm1(spacing * k)
    slopes = np.minimum((right[k] - b[:, None]) / run, 0.0)
    touch = np.where(slopes.min(axis=1) < 0, slopes.argmin(axis=1), k.size)
    sunk = np.maximum(right[k] - (b[:, None] + slopes.min(axis=1)[:, None] * run), 0.0) @ np.exp(
        np.minimum(c * spacing * k, 99)
    )
    spoilt = sunk + right[0] - b + np.maximum(lower[-1] - np.maximum(a, 0.0), 0.0)
    loss = (c + 1) * spacing * spoilt + np.maximum(-a, 0.0)
    best = int(np.argmin(np.where((b > 0) & (touch < k.size // 2), loss, 1e9 + loss)))
    ends = (a[best], b[best]) if b[best] > 0 else (0.0, 0.0)  # the line 1 − x
    lower[-1], right[0] = min(lower[-1], ends[0]), min(right[0], ends[1])
    return np.concatenate([lower, right, [0.0]])
