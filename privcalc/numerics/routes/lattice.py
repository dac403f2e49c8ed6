"""The lattice route: any run of pairs with known profiles, between two laws on the points iΔ.

A profile h is convex in x = e^ε. Its chords through the lattice points are the profile of a pair that is less private
(*connect the dots*); lowered by a quarter of cell width × slope change at both ends of each cell, and made convex
again, they are the profile of one that is more private. Both compose. With the time value w(ε) = h(ε) − (1 − e^ε)_+
such a law has the transform

    M(s) = 1 + κ(s) Σ_i w_i e^{s iΔ},    κ(s) = (e^{Δ(s+1)} − 1)(1 − e^{−Δs})/(e^Δ − 1),

periodic in Im s: with n points per period D = nΔ the contour integral is one finite sum of n terms, an FFT, without
truncation:

    Σ_m e^{cmD} h(jΔ + mD) = (1/n) Σ_k M(s_k)/κ(s_k) e^{−s_k jΔ},    s_k = c + 2πik/D.

Derivations, and the constants of every error: ``proofs/lattice.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.elementary import expm1, log1p
from privcalc.numerics.floats import QUIET, UNIT, Complexes, Floats
from privcalc.numerics.interfaces import Profile, RealValues, RouteFailed, log_slack
from privcalc.numerics.log_moment import slope_error
from privcalc.numerics.routes.contour import Axis, place, saddle
from privcalc.numerics.routes.minorant import SMALL, convexified, end_index, exact_spacing, minorant, vague
from privcalc.numerics.solve import Bounds

FFT_UNIT = 16 * UNIT
"""Rounding per level of a fast Fourier transform, relative to the sum of absolute values.

A level is a butterfly and a twiddle factor.
"""


def kernel_at(s: Complexes, spacing: float) -> Complexes:
    """The transform κ(s) of the lattice's kernel."""
    return np.asarray(expm1(spacing * (s + 1)) * -expm1(-spacing * s) / math.expm1(spacing), dtype=np.complex128)


class Cells:
    """Time values of one pair on the lattice, and what is cut off at both ends.

    For ε < 0 they are those of the reverse pair, e^{|ε|} times the pair's own.
    """

    def __init__(self, pair: Profile, c: float, spacing: float, log_small: float, count: int) -> None:
        start = float(pair.profile(np.zeros(1)).delta[0])
        scale = math.log(start) - math.log(count) - 40
        right = end_index(pair, spacing, lambda e, log_h: log_h <= log_small and log_h + c * e <= scale)
        left = end_index(pair.reverse, spacing, lambda e, log_h: log_h - (1 + c) * e <= scale)
        if right + left > 3_000_000:
            raise RouteFailed("the lattice would need too many points")
        self.index = np.arange(-left, right + 1)
        self.epsilon = np.asarray(spacing * self.index, dtype=np.float64)
        self.c, self.spacing = c, spacing
        h, tail, h_error = pair.profile(self.epsilon[left:])
        if pair.reverse is pair and left <= right:
            g, g_tail, g_error = (values[: left + 1].copy() for values in (h, tail, h_error))
        else:
            g, g_tail, g_error = pair.reverse.profile(-self.epsilon[left::-1])
        # Of lines below the profile (``proofs/tails.md``): the value at 0, slopes on the left,
        # how far slopes may be off.
        least = min(float(h[0] - h_error[0]), float(g[0] - g_error[0]))
        mass, blur, g_blur = g - g_error + g_tail, slope_error(h, tail, h_error), slope_error(g, g_tail, g_error)
        g[0], g_error[0] = h[0], h_error[0]
        low_h, low_g = h - h_error, g - g_error
        if not pair.convex or vague((h, h_error), (g, g_error)):
            # The truth is convex and below the bound at the points, so it is below the minorant of these.
            (h, h_error), (g, g_error) = convexified((h, h_error), (g, g_error), spacing)
        self.upper, self.error = _whole(h, g), _whole(h_error + 4 * UNIT * h, g_error + 4 * UNIT * g)
        self.mass_beyond = float(h[-1] + h_error[-1])
        self.log_scale = max(float(np.max(self._exponent(c) + np.log(np.maximum(self.upper, SMALL)))) - 600, 0.0)
        # Lowered by a quarter of width × slope change of the cells on both sides (left of 0 in the reverse pair's
        # scale). Where the pair is only a bound, so that no lower law exists,
        # this is no more than an estimate of the width.
        low_h[0] = low_g[0] = min(least, float(low_h[0]))
        shrink, quarter = math.exp(-spacing), 0.25 * math.expm1(spacing) * (1 + 1e-12)
        r = quarter * (np.maximum(tail[:-1] - shrink * tail[1:], 0.0) + blur[:-1] + shrink * blur[1:])
        s = quarter * (np.maximum(mass[:-1] - mass[1:], 0.0) + g_blur[:-1] + g_blur[1:] + 4 * UNIT * mass[:-1])
        low_h -= np.maximum(np.append(r, 0.0), np.append(shrink * s[0], r)) + 8 * UNIT * h
        low_g -= np.maximum(np.append(shrink * s, 0.0), np.append(r[0], s)) + 8 * UNIT * g
        lowered = (_cut(low_h, low_g[1]), _cut(low_g, low_h[1]))
        hull = minorant(lowered, spacing)
        factor = hull.below(lowered)
        self.lower = _whole(hull.values[0], hull.values[1]) * factor
        self.lower_error = (hull.rounding + 2 * UNIT) * self.lower

    def _exponent(self, c: float) -> Floats:
        """What the values are multiplied by is e^{this}."""
        return np.asarray(c * self.epsilon + np.minimum(self.epsilon, 0.0), dtype=np.float64)

    def transform(self, w: Floats, w_error: Floats, kernel: Complexes, size: int) -> tuple[Complexes, Floats]:
        """(M(s_k) − 1)·e^{−log_scale} and its error: fold the tilted values into one period, and transform."""
        exponent = self._exponent(self.c)
        tilt = np.exp(exponent - self.log_scale)
        terms = w * tilt
        blur = 4 + 4 * (1 + self.c) * np.abs(self.epsilon) + 2 * self.log_scale
        noise = float(np.sum(tilt * (w_error + UNIT * w * blur))) + self._ends(self.c, self.log_scale)
        folded = np.bincount(self.index % size, weights=terms, minlength=size)
        folds = self.index.size // size + 2
        total = float(np.sum(terms))
        spectrum = np.conj(np.fft.rfft(folded))
        error = np.abs(kernel) * (noise + total * (FFT_UNIT * math.log2(size) + (folds + 16) * UNIT)) * (1 + 1e-9)
        change = kernel * spectrum
        return change, error + 16 * UNIT * np.abs(change)

    def _ends(self, c: float, shift: float) -> float:
        """The two sums left out, Σ_{i<L} w_L e^{ε_i − ε_L} e^{cε_i} and δ(∞) Σ_{i≤R} e^{cε_i}.

        See ``proofs/lattice.md``, §5.
        """
        left = self.upper[0] * np.exp((1 + c) * self.epsilon[0] - shift) / np.expm1(self.spacing * (c + 1))
        right = self.mass_beyond * np.exp(c * self.epsilon[-1] - shift) / -np.expm1(-self.spacing * c)
        return float(left + right) * (1 + 1e-9)

    def log_real(self, c: Floats) -> RealValues:
        """An upper bound of K of the upper law at real points (its error is already in it)."""
        terms = (self.upper + self.error) * np.exp(np.minimum(self.epsilon, 0.0)) + 1e-300
        value = np.empty_like(c)
        for i, x in enumerate(c.tolist()):
            shift = max(x * float(self.epsilon[-1]) - 600, 0.0)
            exponent = x * self.epsilon
            exponent -= shift
            total = float(np.exp(exponent, out=exponent) @ terms)
            total *= 1 + UNIT * (self.index.size + 64 + 4 * (1 + x) * float(np.abs(self.epsilon).max()) + shift)
            kernel = np.expm1(self.spacing * (x + 1)) * -np.expm1(-self.spacing * x) / math.expm1(self.spacing)
            value[i] = shift + np.log1p(kernel * (total + self._ends(x, shift)) + math.expm1(-shift))
        return RealValues(np.where(np.isfinite(value), value, math.inf), 16 * UNIT * (1 + np.abs(value)))


def _whole(right: Floats, left: Floats) -> Floats:
    """Both sides in one array."""
    return np.concatenate([left[:0:-1], right])


def _cut(low: Floats, across: float) -> Floats:
    """0 from the last point before the first that is not positive: raising one end might lift a segment above h."""
    positive = low > SMALL
    positive[-1] = False
    first = int(np.argmin(positive))
    cut = low.copy()
    cut[max(first - 1, 0) if across > SMALL else 0 :] = 0.0
    return cut


PairEntries = list[tuple[Profile, int]]

MAX_LOG_SIZE = 20


@dataclass(frozen=True)
class Law:
    """Composed lattice law: e^{c jΔ − log_scale} × (Σ_m e^{cmD} h(jΔ + mD)) for j < n, and its error."""

    values: Floats
    error: float
    log_scale: float
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
    def bounds(self, epsilon: float) -> Bounds:
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
        left, right = self.axis.alias(epsilon, self.c, self.upper.values.size * self.spacing)
        (low, low_error), (high, high_error) = (self._value(law, j, epsilon) for law in (self.lower, self.upper))
        return low - low_error - left - right, high + high_error + self.upper.infinity

    def _value(self, law: Law, j: int, epsilon: float) -> tuple[float, float]:
        """The periodic sum at jΔ and its error."""
        exponent = law.log_scale - self.c * epsilon
        if not -690 < exponent < 700:
            return 0.0, math.inf
        scale = math.exp(exponent)
        value = float(law.values[j % law.values.size])
        rounding = 8 * UNIT * (1 + abs(self.c * epsilon) + abs(law.log_scale))
        return scale * value, scale * (law.error + rounding * (abs(value) + law.error))


@QUIET
def build(
    entries: PairEntries,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    rtol: float = 2e-7,
    least: float = 1e-11,
    useless: float = math.inf,
    estimates: Callable[[Profile], Estimate] | None = None,
) -> tuple[Lattice, float]:
    """Lay a lattice for a target δ or a target ε.

    Args:
        entries: pairs with their counts, all in one direction.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or None.
        rtol: aimed-at relative width of ε.
        least: relative width of δ with which the caller is content anyway.
        useless: relative width of ε that is known already: no lattice is laid that is expected to be wider.
        estimates: what estimates K of a pair, for those who keep it for the next question.

    Returns:
        The lattice, and an estimate of what was asked.

    Raises:
        RouteFailed: if no lattice of affordable size serves.
    """
    try:
        return _build(entries, delta, epsilon, rtol, least, useless, estimates or functools.cache(Estimate))
    except (ArithmeticError, ValueError) as error:
        raise RouteFailed(str(error)) from error


def _build(
    entries: PairEntries,
    delta: float | None,
    epsilon: float | None,
    rtol: float,
    least: float,
    useless: float,
    estimates: Callable[[Profile], Estimate],
) -> tuple[Lattice, float]:
    k_of = functools.partial(log_moments, entries, estimates)
    c_star, eps, log_delta, _ = saddle(k_of, delta, epsilon)
    grid = c_star * np.geomspace(0.05, 4.0, 48)
    c, d = place(Axis(grid, k_of(grid), np.zeros_like(grid)), eps, log_delta, c_star, digits=25.0)
    if not (0 < c < 1e15 and 0 < d < math.inf):
        raise RouteFailed("the saddle is out of reach")
    count = sum(n for _, n in entries)
    wanted = max(rtol * c * max(eps, 1e-3 / c), least)
    spacing = math.sqrt(8 * wanted / (count * c * (c + 1)))
    log_size = max(10, math.ceil(math.log2(d / spacing)))
    size = 2 ** min(log_size, MAX_LOG_SIZE)
    spacing = exact_spacing(d / size)
    if not 0 < spacing < 1:
        raise RouteFailed("the lattice is too coarse")
    # The variance that cells add counts at the saddle, a multiple of c where jumps carry the tail;
    # twice that from below.
    if size == 2**MAX_LOG_SIZE and 3 * count * (c_star + 1) * spacing * spacing / 8 > useless * eps:
        raise RouteFailed("the lattice is no sharper than what is known")
    return invert(entries, c, spacing, size, log_delta, grid), (eps if epsilon is None else math.exp(log_delta))


def log_moments(entries: PairEntries, estimates: Callable[[Profile], Estimate], c: Floats) -> Floats:
    """About K(c), c ascending."""

    def one(pair: Profile, count: int) -> Floats:
        try:
            if pair.transform is not None:
                return pair.transform.prepare(c[-1], count, -800.0, cut=True).log_real(c).value
        except OverflowError:  # a quadrature that is out of reach: an estimate will do for the plan
            pass
        return estimates(pair).log_real(c)

    return np.asarray(sum(count * one(pair, count) for pair, count in entries), dtype=np.float64)


class Estimate:
    """K of a pair on the real axis from its profile, to a few digits: used to plan, never to certify."""

    def __init__(self, pair: Profile) -> None:
        start = float(pair.profile(np.zeros(1)).delta[0])
        if not start > 0:
            raise RouteFailed("the profile vanishes")
        right, left = _graded(pair, start), _graded(pair.reverse, start)
        self.epsilon = np.concatenate([-left[0][::-1], right[0]])
        log_w = np.concatenate([(left[1] - left[0])[::-1], right[1]])
        self.log_terms = log_w + np.log(np.concatenate([left[2][::-1], right[2]]))

    def log_real(self, c: Floats) -> Floats:
        """An estimate of K(c), for plans."""
        z = np.multiply.outer(c, self.epsilon) + self.log_terms
        top = z.max(axis=1)
        log_sum = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top + np.log(c) + np.log1p(c)
        return np.asarray(np.logaddexp(0.0, log_sum), dtype=np.float64)


def _graded(pair: Profile, start: float) -> tuple[Floats, Floats, Floats]:
    """Points graded from 1e-4 of the scale to where the profile vanishes: ε, log δ(ε), and quadrature weights."""
    end = start
    while end < pair.max_loss and float(pair.profile(np.array([2 * end])).delta[0]) > 1e-290 and end < 1e7:
        end *= 2
    top = min(2 * end, pair.max_loss)
    grades = np.geomspace(1e-4 * start, 0.5 * top, 400)
    epsilon = np.concatenate([grades, top - np.geomspace(0.5 * top, 1e-6 * top, 200)[1:]])
    weights = np.gradient(epsilon)
    weights[0] += epsilon[0]
    with np.errstate(divide="ignore"):
        return epsilon, np.log(np.maximum(pair.profile(epsilon).delta, 0.0)), weights


def invert(entries: PairEntries, c: float, spacing: float, size: int, log_delta: float, grid: Floats) -> Lattice:
    """Compose both laws of every pair at s_k = c + 2πik/D, and invert; any c, Δ, n are valid.

    The laws are the upper and the lower one.
    """
    u = np.asarray(2 * math.pi / (size * spacing) * np.arange(size // 2 + 1), dtype=np.float64)
    kernel = kernel_at(np.asarray(c + 1j * u), spacing)
    points = np.unique(np.concatenate([grid[:: max(1, grid.size // 24)], [c]]))
    k_axis, k_error = np.zeros_like(points), np.zeros_like(points)
    logs = [np.zeros(u.size, dtype=np.complex128) for _ in range(2)]
    slacks = [np.zeros(u.size) for _ in range(2)]
    reals = [0.0, 0.0]
    infinity = 0.0
    for pair, count in entries:
        cells = Cells(pair, c, spacing, log_delta - math.log(count) - 30, count)
        infinity += count * cells.mass_beyond
        value, bound = cells.log_real(points)
        k_axis, k_error = k_axis + count * value, k_error + count * bound
        for which, (w, w_error) in enumerate(((cells.upper, cells.error), (cells.lower, cells.lower_error))):
            change, error = cells.transform(w, w_error, kernel, size)
            change = change + math.expm1(-cells.log_scale)  # M = e^{log_scale}(1 + change)
            k_real = math.log1p(float(change[0].real))
            log_m, slack = log_slack(log1p(change) - k_real, error * math.exp(-k_real) + 4 * UNIT)
            k_real += cells.log_scale
            logs[which] += count * log_m
            slacks[which] += count * (slack + 4 * UNIT * np.abs(log_m) + 8 * UNIT * abs(k_real))
            reals[which] += count * k_real
    laws = []
    for log, slack, real in zip(logs, slacks, reals, strict=True):
        spectrum = np.exp(log) / kernel
        magnitude = np.abs(spectrum)
        weight = np.full(u.size, 2.0)
        weight[0] = weight[-1] = 1.0
        rounding = UNIT * (32 + 4 * np.abs(log) + abs(real)) + FFT_UNIT * math.log2(size)
        with np.errstate(over="ignore", invalid="ignore"):
            off = np.where(slack < 600, magnitude * np.expm1(slack), np.exp(log.real + slack) / np.abs(kernel))
        total = float(weight @ (off + magnitude * rounding)) / size
        values = np.asarray(np.fft.irfft(np.conj(spectrum), size), dtype=np.float64)
        laws.append(Law(values, total * (1 + 1e-9), real, infinity * (1 + 1e-9)))
    return Lattice(c, spacing, laws[0], laws[1], Axis(points, k_axis, k_error))
