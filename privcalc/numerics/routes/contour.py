"""The contour route: δ(ε) of a composed run from its transform, with certified bounds.

With K the sum of count × log M over the run, and any c > 0 in the strip where it is finite,

    δ(ε) = (1/2πi) ∫_{c−i∞}^{c+i∞} e^{K(s) − sε} / (s(s + 1)) ds
         ≈ S = (h/π) Re Σ'_k e^{K(c+iu_k) − (c+iu_k)ε} / (s_k(s_k + 1)).

The sum at u_k = kh equals Σ_m e^{cmD} δ(ε + mD), D = 2π/h, whose terms are all ≥ 0; the excess over δ(ε), the nodes
beyond U and the rounding are bounded by the formulas of ``proofs/engine.md``, §§2, 3 and 7, so that

    δ(ε) ∈ [S − left − right − tail − err, S + tail + err].
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import QUIET, TINY, UNIT, Complexes, Floats
from privcalc.numerics.interfaces import PeriodicTransform, Prepared, RouteFailed, TransformCounts
from privcalc.numerics.solve import Bounds

DIGITS = 29.0
"""−log of the share of δ that aliasing and truncation may each take: about 2.5e-13."""

MAX_NODES = 120_000

BLOCK = 256
"""Terms that are summed at a time."""

FLOOR = 1e6
"""Where a transform returns for ever, what it leaves may exceed the share of truncation by so much."""

CROSS = (0.2, 1.1)
"""Where the axis is crossed, as multiples of the saddle."""


@dataclass(frozen=True)
class Precision:
    """How precisely a contour is to be laid."""

    digits: float = DIGITS
    """−log of the share of δ that aliasing and truncation may each take."""
    most: int = MAX_NODES
    """The largest number of nodes."""
    square: float = 0.0
    """η² of a Gaussian use that was added: then the tail counts that of η² times the density, too."""


@dataclass(frozen=True)
class Axis:
    """K and a bound on its error at real points c, ascending; and the logarithm of the measure's mass, K(0)."""

    c: Floats
    k: Floats
    error: Floats
    log_mass: float = 0.0

    def log_chernoff(self, epsilon: float) -> Floats:
        """A(c) = K(c) − cε + c log c − (1 + c) log(1 + c): δ(ε) ≤ e^{A(c)} (Canonne, Kamath, Steinke 2020)."""
        c = self.c
        high, low = np.log1p(c), c * np.log1p(1 / c)
        # Each term is rounded at most four times by itself and four times as part of a sum, before anything cancels.
        rounding = 8 * UNIT * (np.abs(self.k) + c * epsilon + high + low)
        return self.k + self.error + rounding - c * epsilon - high - low

    def alias(self, epsilon: float, c: float, d: float) -> tuple[float, float]:
        """Bounds of Σ_{m<0} and Σ_{m>0} e^{cmD} δ(ε + mD), by e^{A(c'')}, A(0) = log mass, and by e^{A(c')}."""
        grid = np.concatenate([[0.0], self.c])
        log_tail = np.concatenate([[self.log_mass], self.log_chernoff(epsilon)])
        left, right = grid < c, grid > c
        rho = -np.abs(grid - c) * d
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            excess = np.exp(log_tail + rho) / -np.expm1(rho) * (1 + 1e-9)
        return float(np.nanmin(excess[left], initial=math.inf)), float(np.nanmin(excess[right], initial=math.inf))


@QUIET
def axis(prepared: list[tuple[Prepared, int]], c: Floats) -> Axis:
    """Evaluate the composed K at real points."""
    k, error = np.zeros_like(c), np.zeros_like(c)
    for part, count in prepared:
        value, bound = part.log_real(c)
        k = k + count * value
        error = error + count * bound
    return Axis(c, k, error)


@dataclass(frozen=True)
class Contour:
    """One contour: everything that ε = fixed questions share."""

    c: float
    step: float
    log: Complexes  # K(c + iu_k) − K(c)
    k: float
    slack: Floats  # Σ count × log(1 + relative error of M), plus the rounding of the sum
    tail: float  # Σ_j Π_i min(1, G_i(U_j)/M_i(c))^{T_i} (1/U_j − 1/U_{j+1} + η²(U_{j+1} − U_j)), η² = precision.square
    lost: float  # probability under P of what the transforms leave out
    axis: Axis

    @functools.cached_property
    def _nodes(self) -> tuple[Floats, Floats]:
        """u_k, and the rounding there that does not depend on ε."""
        u = np.asarray(self.step * np.arange(self.log.size), dtype=np.float64)
        with np.errstate(over="ignore"):
            rounding = np.expm1(self.slack) * (1 + 8 * UNIT)
        return u, rounding + UNIT * (4 * np.abs(self.log.imag) + 8 * abs(self.k) + min(u.size, BLOCK) + 66)

    @functools.cached_property
    def _kernel(self) -> tuple[Floats, Floats]:
        """Modulus and argument of s(s + 1)."""
        c, u = self.c, self._nodes[0]
        modulus, angle = np.hypot(u, c) * np.hypot(u, c + 1), np.arctan2(u, c) + np.arctan2(u, c + 1)
        return np.asarray(modulus, dtype=np.float64), np.asarray(angle, dtype=np.float64)

    def integrand(self, epsilon: float) -> tuple[Floats, Floats, Floats]:
        """e^{K(s) − sε} at the nodes: modulus, phase, relative error at most, also after a kernel's 1/(s(s + 1))."""
        u, rounding = self._nodes
        values = np.exp(self.log.real + (self.k - self.c * epsilon))
        return values, self.log.imag - u * epsilon, rounding + 4 * UNIT * epsilon * (u + self.c)

    @QUIET
    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ(ε)."""
        c = self.c
        peak = self.k - c * epsilon
        values, phase, rounding = self.integrand(epsilon)
        size, angle = self._kernel
        terms = values / size
        terms[0] *= 0.5
        total = in_blocks(terms * np.cos(phase - angle)) * self.step / math.pi
        error = float(terms @ rounding) * self.step / math.pi
        tail = float(np.exp(peak)) * self.tail / math.pi * (1 + 1e-9)
        left, right = self.axis.alias(epsilon, c, 2 * math.pi / self.step)
        lower, upper = total - left - right - tail - error - TINY, total + tail + error + self.lost + TINY
        if math.isnan(lower) or math.isnan(upper):
            return 0.0, 1.0
        return max(lower, 0.0), min(max(upper, 0.0), 1.0)


def in_blocks(x: Floats) -> float:
    """Σx in blocks, so that the error, of one unit for each term of a block, does not grow with the number of nodes."""
    if x.size <= BLOCK:
        return float(x.sum())
    sums = np.add.reduceat(x, np.arange(0, x.size, BLOCK))
    return math.fsum(sums.tolist()) if np.isfinite(sums).all() else math.nan


@QUIET
def build(
    entries: TransformCounts,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    precision: Precision = Precision(),
) -> tuple[Contour, float]:
    """Choose c, h and U for a target δ or a target ε from the evaluated bounds.

    Args:
        entries: transforms with their counts.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or None.
        precision: how precisely, and at which cost.

    Returns:
        The contour, and an estimate of the ε or δ that was not given.

    Raises:
        RouteFailed: if the integrand decays too slowly, or the saddle lies where nothing can be evaluated.
    """
    log_mass = (-60.0 if delta is None else math.log(delta)) - precision.digits

    def k_of(cut: bool, c: Floats) -> Floats:
        return axis(prepare(entries, c[-1], log_mass, cut=cut), c).k

    flat: Saddle | None = None
    for cut in (True, False):
        try:
            if flat is None or not _same(k_of, flat.c):
                flat = saddle(functools.partial(k_of, cut), delta, epsilon)
            built = _build(entries, flat, min(log_mass, flat.log_delta - precision.digits), precision, cut=cut)
            return built, (flat.epsilon if epsilon is None else math.exp(flat.log_delta))
        except (ArithmeticError, ValueError) as error:
            failure = error
    raise RouteFailed(str(failure)) from failure


def _same(k_of: Callable[[bool, Floats], Floats], c: float) -> bool:
    """Whether what a cut leaves out is small at c, so that the saddle is nearly the same without it."""
    try:
        with_cut, without = (float(k_of(cut, np.array([c]))[0]) for cut in (True, False))
    except ArithmeticError:
        return False
    return abs(without - with_cut) <= 1e-3


def prepare(entries: TransformCounts, c_max: float, log_mass: float, *, cut: bool) -> list[tuple[Prepared, int]]:
    """Every transform for real parts up to ``c_max``; together they leave out at most e^log_mass."""
    return [(t.prepare(c_max, n, log_mass - math.log(len(entries)), cut=cut), n) for t, n in entries]


def _build(entries: TransformCounts, flat: Saddle, log_mass: float, precision: Precision, *, cut: bool) -> Contour:
    digits = precision.digits
    c_star, eps, log_delta, curvature = flat
    points = c_star * np.geomspace(0.03, 5.0, 56)
    prepared = prepare(entries, points[-1], log_mass, cut=cut)
    if cut and edges(prepared, CROSS[0] * c_star) > 1e-13:  # the error of the cut grows with c
        raise RouteFailed("the cut is felt wherever the axis is crossed")
    line = axis(prepared, points)
    c, d = place(line, eps, log_delta, c_star, digits)
    prepared = prepare(entries, c, log_mass, cut=cut)
    step = 2 * math.pi / d
    k = float(axis(prepared, np.array([c])).k[0])
    slack = k - c * eps - math.log(c) - math.log1p(c) - log_delta
    if cut and edges(prepared, c) > 1e-13 * math.exp(-max(slack, 0.0)):
        raise RouteFailed("the cut is felt at the saddle")
    u0 = math.sqrt(2 * (digits + max(slack, 0.0)) / curvature)
    size, tail = truncate(prepared, c, step, u0, log_delta - (k - c * eps) - digits, precision)
    return assemble(prepared, line, c, step, size, tail)


def edges(prepared: list[tuple[Prepared, int]], c: float) -> float:
    """What cuts leave out of M(c), of all uses together."""
    return math.fsum(n * float(part.edge(c)[0]) for part, n in prepared)


def assemble(
    prepared: list[tuple[Prepared, int]], line: Axis, c: float, step: float, size: int, tail: float
) -> Contour:
    """Evaluate the composed K at the nodes; any c, step and size give valid bounds."""
    log = np.zeros(size, dtype=np.complex128)
    slack = np.zeros(size)
    for part, count in prepared:
        value, bound = part.log_nodes(c, step, size)
        if not abs(value[0]) <= 1e-9 + 2 * float(bound[0] + part.log_real(np.array([c])).error[0]):
            raise RouteFailed("two evaluations of M(c) disagree")  # the rotated line must reproduce the real one
        log += count * value
        slack += count * (bound + 4 * UNIT * np.abs(value))
    lost = math.fsum(count * part.lost for part, count in prepared) * (1 + 1e-9)
    return Contour(c, step, log, float(axis(prepared, np.array([c])).k[0]), slack, tail, lost, line)


class Saddle(NamedTuple):
    """Where K(c) − cε − log c(1 + c) is flat: c, ε, about log δ(ε), and the second derivative there."""

    c: float
    epsilon: float
    log_delta: float
    curvature: float


class Scan:
    """K(c) − cε − log c(1 + c) along c, by blocks of ten octaves: where it is flat; no bound relies on it."""

    def __init__(self, k_of: Callable[[Floats], Floats]) -> None:
        self._k_of = k_of
        self._block = functools.cache(self._values)

    def _values(self, c_max: float) -> tuple[Floats, Floats, Floats, Floats]:
        """log c, and what :class:`Saddle` has besides, were c the saddle."""
        c = c_max * np.geomspace(2.0**-10, 1.0, 61)
        k = self._k_of(c)
        if not np.all(np.isfinite(k)):
            raise RouteFailed("the transform overflows")
        log_c = np.log(c)
        slope = np.gradient(k, log_c) / c
        curvature = np.maximum(np.gradient(slope, log_c) / c, 0.0) + 1 / c**2 + 1 / (1 + c) ** 2
        eps = slope - 1 / c - 1 / (1 + c)
        return log_c, eps, k - c * eps - log_c - np.log1p(c) - 0.5 * np.log(2 * math.pi * curvature), curvature

    def saddle(self, delta: float | None, epsilon: float | None) -> Saddle:
        """For a target δ or ε."""
        c_max, tried = 64.0, set[float]()
        for _ in range(24):
            tried.add(c_max)
            log_c, eps, log_delta, curvature = self._block(c_max)
            index = np.arange(log_c.size, dtype=np.float64)
            if epsilon is None:
                at = np.interp(-math.log(delta or 1.0), np.maximum.accumulate(-log_delta), index)
            else:
                at = np.interp(epsilon, np.maximum.accumulate(eps), index)
            if at > 54 and c_max * 8 not in tried and c_max < 1e18:
                c_max *= 8
            elif at < 6 and c_max / 32 not in tried and c_max > 1e-9:
                c_max /= 32
            else:
                here = [float(np.interp(at, index, y)) for y in (log_c, eps, log_delta, curvature)]
                found_eps = max(here[1], 0.0) if epsilon is None else epsilon
                found_delta = here[2] if delta is None else math.log(delta)
                return Saddle(math.exp(here[0]), found_eps, found_delta, here[3])
        raise RouteFailed("no saddle was found")


def saddle(k_of: Callable[[Floats], Floats], delta: float | None, epsilon: float | None) -> Saddle:
    """The saddle of K(c) − cε − log c(1 + c) for a target δ or ε."""
    return Scan(k_of).saddle(delta, epsilon)


@QUIET
def place(line: Axis, epsilon: float, log_delta: float, c_star: float, digits: float) -> tuple[float, float]:
    """Where to cross the axis, and the period D, so that both alias bounds are below e^{−digits} δ."""
    log_tail, c = line.log_chernoff(epsilon) - log_delta + digits, line.c
    at = np.flatnonzero((c > CROSS[0] * c_star) & (c < CROSS[1] * c_star))
    apart = c[at, None] - c
    periods = log_tail / np.abs(apart)
    left = np.minimum(
        np.min(periods, axis=1, where=apart > 0, initial=math.inf), (digits - log_delta + line.log_mass) / c[at]
    )
    right = np.min(periods, axis=1, where=apart < 0, initial=math.inf)
    d = 1.01 * np.maximum(np.maximum(left, right), 1 / c[at])
    slack = line.k[at] - c[at] * epsilon - np.log(c[at]) - np.log1p(c[at]) - log_delta
    cost = priced(d, slack)
    best = int(np.argmin(cost)) if at.size else 0
    if not (at.size and cost[best] < math.inf):
        raise RouteFailed("no place to cross the axis was found")
    return float(c[at[best]]), float(d[best])


def priced(period: Floats, slack: Floats) -> Floats:
    """Cost of lines: nodes, and 12 % more per unit of slack above 2.5 (x multiplies roundings by e^x): empirical."""
    return np.nan_to_num(period * np.exp(np.clip(0.12 * (slack - 2.5), 0.0, 600.0)), nan=math.inf)


def truncate(
    prepared: list[tuple[Prepared, int]],
    c: float,
    step: float,
    u0: float,
    log_small: float,
    precision: Precision = Precision(),
) -> tuple[int, float]:
    """The number of nodes, and ``Contour.tail`` from one step before the first node left out."""
    periodic = [(part, count) for part, count in prepared if isinstance(part, PeriodicTransform)]
    others = [(part, count) for part, count in prepared if not isinstance(part, PeriodicTransform)]
    widest = sorted(periodic, key=lambda entry: entry[0].period)[-8:]
    halves = np.array([0.5 * part.period - 2 * step for part, _ in widest])

    def tails(grid: Floats, rest: float | None) -> Floats:
        decay = np.zeros_like(grid)
        for part, count in others:
            decay = decay + count * np.minimum(part.log_decay(c, grid), 0.0)
        end = math.exp(decay[-1]) * (2 if precision.square else 1) / grid[-1]
        later = np.full_like(grid, math.inf)
        for part, count in widest if not precision.square else []:
            later = np.minimum(later, np.exp(decay) * returns(part, count, c, step, grid))
        for (
            part,
            count,
        ) in periodic:  # as long as a block, and the node after it, lie within the first half of the period
            within = np.append(grid[1:] + step <= 0.5 * part.period, False)
            decay = decay + np.where(within, count * np.minimum(part.log_fall(c, grid), 0.0), 0.0)
        rho = np.exp(decay)
        widths = 1 / grid[:-1] - 1 / grid[1:] + precision.square * np.diff(grid)
        blocks = np.append(widths * rho[:-1], end if rest is None else rest)
        if not widest:
            return np.asarray(np.cumsum(blocks[::-1])[::-1], dtype=np.float64)
        steps = zip(blocks[::-1].tolist(), later[::-1].tolist(), strict=True)
        found = itertools.accumulate(steps, lambda total, new: min(total + new[0], new[1]), initial=0.0)
        return np.array(list(found)[:0:-1])

    limit = math.pi * math.exp(max(log_small, -740.0))
    allowed = limit * FLOOR if periodic and not precision.square else limit
    for first, ratio, count_u in ((0.5 * u0, math.sqrt(2), 12), (4 * u0, 1.6, 44)):
        grid = np.asarray(first * ratio ** np.arange(count_u), dtype=np.float64)
        grid = np.unique(np.concatenate([grid, halves[halves > first]]))
        tail = tails(grid, None)
        good = tail <= max(limit, min(1.1 * float(tail.min()), allowed))
        if not good.any():
            continue
        index = int(np.argmax(good))
        if index and grid[index] > 4000 * step:  # many nodes: look closer
            grid = np.geomspace(grid[index - 1], grid[index], 11)
            tail = tails(grid, float(tail[index]))
            index = int(np.argmax(tail <= max(limit, 1.1 * float(tail.min()))))
        size = math.ceil(grid[index] / step) + 1
        if size > precision.most:
            break
        return size, float(tail[index])
    raise RouteFailed("the transform decays too slowly along the contour")


def returns(part: PeriodicTransform, count: int, c: float, step: float, u: Floats) -> Floats:
    """A bound of step·Σ|M/M(c)|^count/u_k² over the nodes u_k ≥ u, from 3 steps before half a period on."""
    half = 0.5 * part.period
    grid = half * 2.0 ** (-0.25 * np.arange(160.0, -1.0, -1.0))
    inside = np.exp(count * np.minimum(part.log_fall(c, grid), 0.0))
    once = step + float(grid[0] + inside[:-1] @ np.diff(grid))
    m = np.maximum(np.floor(u / part.period * (1 - 1e-9) + 0.5), 1) - 0.5
    all_ = 2 * once / part.period**2 * (1 / m**2 + 1 / m)
    before = 4 * step * np.exp(count * np.minimum(part.log_fall(c, u), 0.0)) / u**2 * (u < half)
    return np.asarray(np.where(u + 3 * step >= half, (all_ + before) * (1 + 1e-9), math.inf), dtype=np.float64)
