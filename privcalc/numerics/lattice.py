"""The lattice route: any run of pairs with known profiles, between two laws on the points iΔ.

A profile h is convex in x = e^ε. Its chords through the lattice points are the profile of a pair that is less private
(*connect the dots*); lowered by a quarter of cell width × slope change at both ends of each cell, and made convex again, they
are the profile of one that is more private. Both compose. With the time value w(ε) = h(ε) − (1 − e^ε)_+ such a law
has the transform

    M(s) = 1 + κ(s) Σ_i w_i e^{s iΔ},    κ(s) = (e^{Δ(s+1)} − 1)(1 − e^{−Δs})/(e^Δ − 1),

periodic in Im s: with n points per period D = nΔ the contour integral is one finite sum of n terms, an FFT, without truncation:

    Σ_m e^{cmD} h(jΔ + mD) = (1/n) Σ_k M(s_k)/κ(s_k) e^{−s_k jΔ},    s_k = c + 2πik/D.

Derivations, and the constants of every error: ``proofs/lattice.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.contour import QUIET, Axis, RouteFailed, place, saddle
from privcalc.numerics.normal import UNIT, Floats
from privcalc.numerics.sampled_gaussian import expm1, log1p
from privcalc.numerics.transform import Complexes, log_slack
from privcalc.pair import Pair

PairEntries = list[tuple[Pair, int]]

MAX_LOG_SIZE = 20

_FFT_UNIT = 16 * UNIT
"""Rounding per level of a fast Fourier transform (butterfly and twiddle factor), relative to the sum of absolute values."""


@dataclass(frozen=True)
class Law:
    """Composed lattice law: e^{c jΔ} × (Σ_m e^{cmD} h(jΔ + mD)) for j < n, and its error."""

    values: Floats
    error: float
    infinity: float


@dataclass(frozen=True)
class Lattice:
    """The two laws; bounds between lattice points are chords in e^ε, which is exact for laws on the lattice."""

    c: float
    spacing: float
    upper: Law
    lower: Law
    axis: Axis

    @QUIET
    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Lower and upper bounds of δ(ε)."""
        if epsilon > 2**40 * self.spacing:  # too far for the lattice's indices; δ falls
            return 0.0, self.bounds(2**40 * self.spacing)[1]
        j = math.floor(epsilon / self.spacing)
        share = math.expm1(epsilon - j * self.spacing) / math.expm1(self.spacing)
        share = min(max(share, 0.0), 1.0)
        (low0, high0), (low1, high1) = self._at(j), self._at(j + 1)
        # ε/Δ is rounded: the chord's weight is off by a few units of ε/Δ.
        blur = 16 * UNIT * (1 + abs(epsilon) / self.spacing)
        lower = low0 + share * (low1 - low0) - blur * abs(low1 - low0)
        upper = high0 + share * (high1 - high0) + blur * abs(high1 - high0)
        if math.isnan(lower) or math.isnan(upper):
            return 0.0, 1.0
        return min(max(lower, 0.0), 1.0), min(max(upper, 0.0), 1.0)

    def _at(self, j: int) -> tuple[float, float]:
        epsilon = j * self.spacing
        if self.c * epsilon > 690:
            return 0.0, 1.0  # e^{−cε} underflows
        size = self.upper.values.size
        scale = math.exp(min(-self.c * epsilon, 700.0))
        left, right = self.axis.alias(epsilon, self.c, size * self.spacing)
        rounding = 1 + 8 * UNIT * (1 + abs(self.c * epsilon))
        low = scale * (self.lower.values[j % size] - self.lower.error) / rounding - left - right
        high = scale * (self.upper.values[j % size] + self.upper.error) * rounding + self.upper.infinity
        return float(low), float(high)


@QUIET
def build(
    entries: PairEntries, *, delta: float | None = None, epsilon: float | None = None, rtol: float = 2e-7
) -> tuple[Lattice, float]:
    """Lay a lattice for a target δ or a target ε.

    Args:
        entries: pairs with their counts, all in one direction.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or None.
        rtol: aimed-at relative width of ε.

    Returns:
        The lattice, and an estimate of what was asked.

    Raises:
        RouteFailed: if no lattice of affordable size serves.
    """
    try:
        return _build(entries, delta, epsilon, rtol)
    except (ArithmeticError, ValueError) as error:
        raise RouteFailed(str(error)) from error


def _build(entries: PairEntries, delta: float | None, epsilon: float | None, rtol: float) -> tuple[Lattice, float]:
    estimates = [(_Estimate(pair) if pair.transform is None else None, pair, count) for pair, count in entries]

    def k_of(c: Floats) -> Floats:
        total = np.zeros_like(c)
        for estimate, pair, count in estimates:
            if estimate is not None:
                total += count * estimate.log_real(c)
            elif pair.transform is not None:
                total += count * pair.transform.prepare(c[-1], count, -800.0, cut=True).log_real(c)[0]
        return total

    c_star, eps, log_delta, _ = saddle(k_of, delta, epsilon)
    grid = c_star * np.geomspace(0.05, 4.0, 48)
    c, d = place(Axis(grid, k_of(grid), np.zeros_like(grid)), eps, log_delta, c_star, digits=25.0)
    if not (0 < c < 1e15 and 0 < d < math.inf):
        raise RouteFailed("the saddle is out of reach")
    count = sum(n for _, n in entries)
    wanted = max(rtol * c * max(eps, 1e-3 / c), 1e-11)
    spacing = math.sqrt(8 * wanted / (count * c * (c + 1)))
    log_size = max(10, math.ceil(math.log2(d / spacing)))
    size = 2 ** min(log_size, MAX_LOG_SIZE)
    spacing = d / size
    if not 0 < spacing < 1:
        raise RouteFailed("the lattice is too coarse")
    return invert(entries, c, spacing, size, log_delta, grid), (eps if epsilon is None else math.exp(log_delta))


class _Estimate:
    """K of a pair on the real axis from its profile, to a few digits: used to plan, never to certify."""

    def __init__(self, pair: Pair) -> None:
        start = float(pair.profile(np.zeros(1))[0][0])
        if not start > 0:
            raise RouteFailed("the profile vanishes")
        right, left = _graded(pair, start), _graded(pair.reverse, start)
        self.epsilon = np.concatenate([-left[0][::-1], right[0]])
        log_w = np.concatenate([(left[1] - left[0])[::-1], right[1]])
        self.log_terms = log_w + np.log(np.concatenate([left[2][::-1], right[2]]))

    def log_real(self, c: Floats) -> Floats:
        z = np.multiply.outer(c, self.epsilon) + self.log_terms
        top = z.max(axis=1)
        log_sum = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top + np.log(c) + np.log1p(c)
        return np.asarray(np.logaddexp(0.0, log_sum), dtype=np.float64)


def _graded(pair: Pair, start: float) -> tuple[Floats, Floats, Floats]:
    """Points graded from 1e-4 of the scale to where the profile vanishes: ε, log δ(ε), and quadrature weights."""
    end = start
    while end < pair.max_loss and float(pair.profile(np.array([2 * end]))[0][0]) > 1e-290 and end < 1e7:
        end *= 2
    top = min(2 * end, pair.max_loss)
    grades = np.geomspace(1e-4 * start, 0.5 * top, 400)
    epsilon = np.concatenate([grades, top - np.geomspace(0.5 * top, 1e-6 * top, 200)[1:]])
    weights = np.gradient(epsilon)
    weights[0] += epsilon[0]
    with np.errstate(divide="ignore"):
        return epsilon, np.log(np.maximum(pair.profile(epsilon)[0], 0.0)), weights


def invert(entries: PairEntries, c: float, spacing: float, size: int, log_delta: float, grid: Floats) -> Lattice:
    """Compose the upper and the lower law of every pair at s_k = c + 2πik/D, and invert; any c, Δ, n give valid bounds."""
    u = np.asarray(2 * math.pi / (size * spacing) * np.arange(size // 2 + 1), dtype=np.float64)
    kernel = _kernel(np.asarray(c + 1j * u), spacing)
    points = np.unique(np.concatenate([grid[:: max(1, grid.size // 24)], [c]]))
    k_axis, k_error = np.zeros_like(points), np.zeros_like(points)
    logs = [np.zeros(u.size, dtype=np.complex128) for _ in range(2)]
    slacks = [np.zeros(u.size) for _ in range(2)]
    reals = [0.0, 0.0]
    infinity = 0.0
    for pair, count in entries:
        cells = _Cells(pair, c, spacing, log_delta - math.log(count) - 30, count)
        infinity += count * cells.mass_beyond
        value, bound = cells.log_real(points)
        k_axis, k_error = k_axis + count * value, k_error + count * bound
        for which, (w, w_error) in enumerate(((cells.upper, cells.error), (cells.lower, cells.lower_error))):
            change, error = cells.transform(w, w_error, kernel, size)
            k_real = math.log1p(float(change[0].real))
            log_m, slack = log_slack(log1p(change) - k_real, error * math.exp(-k_real) + 4 * UNIT)
            logs[which] += count * log_m
            slacks[which] += count * (slack + 4 * UNIT * (np.abs(log_m) + abs(k_real)))
            reals[which] += count * k_real
    laws = []
    for log, slack, real in zip(logs, slacks, reals, strict=True):
        spectrum = np.exp(log + real) / kernel
        magnitude = np.abs(spectrum)
        weight = np.full(u.size, 2.0)
        weight[0] = weight[-1] = 1.0
        rounding = np.expm1(np.minimum(slack, 600.0)) + UNIT * (32 + 4 * np.abs(log) + abs(real)) + _FFT_UNIT * math.log2(size)
        total = float(weight @ (magnitude * rounding)) / size
        values = np.asarray(np.fft.irfft(np.conj(spectrum), size), dtype=np.float64)
        laws.append(Law(values, total * (1 + 1e-9), infinity * (1 + 1e-9)))
    return Lattice(c, spacing, laws[0], laws[1], Axis(points, k_axis, k_error))


def _kernel(s: Complexes, spacing: float) -> Complexes:
    """κ(s)."""
    return np.asarray(expm1(spacing * (s + 1)) * -expm1(-spacing * s) / math.expm1(spacing), dtype=np.complex128)


class _Cells:
    """Time values of one pair on the lattice, and what is cut off at both ends."""

    def __init__(self, pair: Pair, c: float, spacing: float, log_small: float, count: int) -> None:
        start = float(pair.profile(np.zeros(1))[0][0])
        scale = math.log(start) - math.log(count) - 40
        right = end_index(pair, spacing, lambda e, log_h: log_h <= log_small and log_h + c * e <= scale)
        left = end_index(pair.reverse, spacing, lambda e, log_h: log_h - (1 + c) * e <= scale)
        if right + left > 3_000_000:
            raise RouteFailed("the lattice would need too many points")
        up = np.asarray(spacing * np.arange(right + 1), dtype=np.float64)
        down = np.asarray(spacing * np.arange(1, left + 1), dtype=np.float64)
        h, tail, h_error = pair.profile(up)
        g, g_tail, g_error = pair.reverse.profile(down)
        shrink = np.exp(-down)
        self.index = np.arange(-left, right + 1)
        self.epsilon = np.concatenate([-down[::-1], up])
        self.c, self.spacing = c, spacing
        self.upper = np.concatenate([(g * shrink)[::-1], h])
        self.mass_beyond = float(h[-1] + h_error[-1])
        error = np.concatenate([(g_error * shrink)[::-1], h_error])
        self.error = error + 4 * UNIT * self.upper
        if not pair.convex:
            # A bound on a convex profile: its convex minorant on the lattice is a bound too, and the lower law is not used.
            self.upper = envelope(self.upper, left, spacing, ends=False)
            self.error = self.error + 1e-13 * self.upper
        # Slope changes over cells, times x: on the right e^ε Q(L > ε); on the left P_rev(L > ε) = δ + tail, times e^{−ε}.
        step = math.expm1(spacing)
        slope_right = np.maximum(tail[:-1] - math.exp(-spacing) * tail[1:], 0.0) + 1e-11 * tail[:-1]
        at_zero = pair.reverse.profile(np.zeros(1))
        below = np.concatenate([at_zero[0] + at_zero[1], g + g_tail])  # Q(L < −iΔ), i = 0, 1, …
        slope_left = np.maximum(below[:-1] - below[1:], 0.0) + 1e-11 * below[:-1]
        gap = 0.25 * step * np.concatenate([(slope_left * shrink)[::-1], slope_right])
        lowered = self.upper - np.maximum(np.append(gap, gap[-1]), np.append(gap[0], gap)) * (1 + 1e-12) - self.error
        # Where it is negative, 0 is taken instead, and at the neighbours too: raising one end might lift a segment above h.
        below_zero = lowered < 0
        near = below_zero.copy()
        near[1:] |= below_zero[:-1]
        near[:-1] |= below_zero[1:]
        self.lower = envelope(np.where(near, 0.0, lowered), left, spacing)
        self.lower_error = 1e-13 * self.upper

    def transform(self, w: Floats, w_error: Floats, kernel: Complexes, size: int) -> tuple[Complexes, Floats]:
        """M(s_k) − 1 and its error: fold the tilted values into one period, and transform."""
        tilt = np.exp(self.c * self.epsilon)
        terms = w * tilt
        noise = float(np.sum(tilt * (w_error + UNIT * w * (4 + 2 * np.abs(self.c * self.epsilon))))) + float(self._ends(self.c))
        folded = np.bincount(self.index % size, weights=terms, minlength=size)
        folds = self.index.size // size + 2
        total = float(np.sum(terms))
        spectrum = np.conj(np.fft.rfft(folded))
        error = np.abs(kernel) * (noise + total * (_FFT_UNIT * math.log2(size) + (folds + 16) * UNIT)) * (1 + 1e-9)
        change = kernel * spectrum
        return change, error + 16 * UNIT * np.abs(change)

    def _ends(self, c: float | Floats) -> Floats:
        """What the sum leaves out: Σ_{i<L} w_L e^{ε_i − ε_L} e^{cε_i} and δ(∞) Σ_{i≤R} e^{cε_i} (``proofs/lattice.md``, §4)."""
        left = self.upper[0] * np.exp(c * self.epsilon[0]) / np.expm1(self.spacing * (c + 1))
        right = self.mass_beyond * np.exp(c * self.epsilon[-1]) / -np.expm1(-self.spacing * c)
        return np.asarray(left + right)

    def log_real(self, c: Floats) -> tuple[Floats, Floats]:
        """An upper bound of K of the upper law at real points (its error is already in it)."""
        terms = self.upper + self.error
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.array([float(np.exp(x * self.epsilon) @ terms) for x in c])
            total *= 1 + UNIT * (self.index.size + 64 + 2 * c * float(np.abs(self.epsilon).max()))
            kernel = np.expm1(self.spacing * (c + 1)) * -np.expm1(-self.spacing * c) / math.expm1(self.spacing)
            value = np.log1p(kernel * (total + self._ends(c)))
        return np.where(np.isfinite(value), value, math.inf), 8 * UNIT * (1 + np.abs(value))


def end_index(pair: Pair, spacing: float, small: object) -> int:
    """The first lattice index, by doubling and halving, from which on the profile no longer matters."""
    assert callable(small)

    def done(i: int) -> bool:
        epsilon = i * spacing
        delta, _, error = pair.profile(np.array([epsilon]))
        return epsilon >= pair.max_loss or bool(small(epsilon, math.log(float(delta[0] + error[0]))))

    high = 1
    while not done(high) and high < 10_000_000:
        high *= 2
    low = high // 2
    while high - low > max(1, high // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if done(middle) else (middle, high)
    return high


def envelope(v: Floats, zero: int, spacing: float, *, ends: bool = True) -> Floats:
    """The largest function below v for which v + (1 − x)_+ is convex in x = e^ε; with ``ends``, both are set to 0.

    The slopes of a convex minorant are the isotonic regression of the slopes, weighted by cell width: once on each side of
    ε = 0, where the payoff (1 − x)_+ is linear, then across it, where its kink adds one to the slope.
    """
    from scipy.optimize import isotonic_regression  # slow to import, and only this route needs it

    v = v.copy()
    if ends:
        v[0] = v[-1] = 0.0
    i = np.arange(v.size) - zero
    if spacing * max(zero, v.size - zero) > 600:
        raise RouteFailed("the lattice spans more than e^600")
    x = np.exp(spacing * i)
    width = x[:-1] * math.expm1(spacing)
    if not (np.all(width > 0) and np.all(np.isfinite(v))):
        raise RouteFailed("the lattice is out of range")
    slope = np.diff(v) / width
    kept = [np.array([0])]
    for start, stop in ((0, zero), (zero, v.size - 1)):
        if stop > start:
            kept.append(isotonic_regression(slope[start:stop], weights=width[start:stop]).blocks[1:] + start)
    points = np.concatenate(kept)
    # Across ε = 0: the block of the profile's own slopes (−1 more on the left) that spans it, if one does.
    h, wide = v[points], x[points[:-1]] * np.expm1(spacing * np.diff(points))
    slope = np.diff(h) / wide - (points[:-1] < zero)
    blocks = isotonic_regression(slope, weights=wide).blocks
    middle = int(np.searchsorted(points, zero))
    first = int(blocks[np.searchsorted(blocks, middle, side="right") - 1])
    last = int(blocks[np.searchsorted(blocks, middle, side="right")]) if middle < slope.size else middle
    if first < middle < last:
        points = np.concatenate([points[: first + 1], points[last:]])
    for _ in range(50):
        h, e = v[points], (points - zero) * spacing
        # Beyond rounding, which ``lower_error`` covers.
        bad = h[1:-1] * (1 - 1e-14) > _chord(e[:-2], h[:-2], e[2:], h[2:], e[1:-1])
        if not bad.any():
            break
        points = np.concatenate([points[:1], points[1:-1][~bad], points[-1:]])
    else:
        raise RouteFailed("the lower law has no envelope")
    gap = np.setdiff1d(np.arange(v.size), points, assume_unique=True)
    if gap.size:
        after = np.searchsorted(points, gap)
        a, b = points[after - 1], points[after]
        chord = _chord((a - zero) * spacing, v[a], (b - zero) * spacing, v[b], (gap - zero) * spacing)
        if np.any(chord > v[gap] * (1 + 1e-12) + 1e-300):
            raise RouteFailed("the envelope is not below the law")
        v[gap] = np.minimum(chord, v[gap])
    return v


def _chord(e0: Floats, v0: Floats, e1: Floats, v1: Floats, e: Floats) -> Floats:
    """Time value at e of the chord of the profile, in x = e^ε, between (e0, v0) and (e1, v1)."""
    share = np.expm1(e1 - e) / (np.expm1(e1 - e) - np.expm1(e0 - e))
    bend = np.zeros_like(v0)
    across = (e0 < 0) & (e1 > 0)
    if across.any():
        payoff = [np.maximum(-np.expm1(y[across]), 0.0) for y in (e0, e1, e)]
        bend[across] = share[across] * payoff[0] + (1 - share[across]) * payoff[1] - payoff[2]
    return np.asarray(share * v0 + (1 - share) * v1 + bend, dtype=np.float64)
