"""The sampled Gaussian's log M as a polynomial in x = (norm ratio / noise multiplier)², with a proved error.

On a vertical line s = c + iu, log M(s; x) = x·f(x), and f is approximated on [0, reach] by one polynomial, written in Chebyshev
polynomials of the whole domain. A record that took steps x_1, x_2, … then has

    K(s) = Σ_t log M(s; x_t) ≈ Σ_j a_j(s) m_j,      m_j = Σ_t x_t T_j(2x_t/domain − 1),

off by at most error·Σx + min(low·Σx, near·T). Every bound here is proved in ``proofs/audits.md``, §§3–5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev

from privcalc.numerics.norm_line import Line, TableFailed, log_mixture_rows
from privcalc.numerics.normal import UNIT, Floats
from privcalc.numerics.sampled_gaussian import log1p
from privcalc.numerics.transform import Complexes

MOMENTS = 14
"""Chebyshev moments of a record."""

LINES, BLOCKS = 4, 14
"""Straight lines below the decay per x, as a function of x."""

_PANELS, _NODES = 18, 22
"""Octaves below ``reach``; interpolation nodes in each."""

THETA = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
TO_CHEBYSHEV = np.cos(np.multiply.outer(np.arange(_NODES), np.arccos(THETA))) * 2 / _NODES
TO_CHEBYSHEV[0] *= 0.5
"""Chebyshev nodes, and the matrix that takes values there to Chebyshev coefficients."""

_CELLS = 128
"""Cells of the last octave in which the decay is bounded; half as many in each octave below it."""


@dataclass(frozen=True)
class NormTable:
    """One direction of one line.

    Attributes:
        c: real part of the line.
        step: distance of its nodes; the k-th is c + ik·step.
        coefficients: a_j at the nodes, shape (MOMENTS, size).
        error: bound of |f − polynomial| for x ≥ split, shape (size,).
        low: the same for x < split.
        near: bound of x|f − polynomial| for x < split.
        split: where the one ends and the others begin.
        rounding: Σ_j |a_j|: by how much an error of the moments, relative to Σx, is multiplied.
    """

    c: float
    step: float
    coefficients: Complexes
    error: Floats
    low: Floats
    near: Floats
    split: float
    rounding: Floats

    def cut(self, size: int) -> NormTable:
        """The first nodes only."""
        arrays = (self.error[:size], self.low[:size], self.near[:size], self.split, self.rounding[:size])
        return NormTable(self.c, self.step, self.coefficients[:, :size], *arrays)

    def missed(self, total: Floats, noise: Floats, count: int) -> Floats:
        """Bounds of the error of K, shape (n, size), from Σx, what roundings are relative to, and the number of steps."""
        found = np.multiply.outer(total, self.low)
        np.minimum(found, count * self.near, out=found)
        found += np.stack([total, noise], axis=1) @ np.stack([self.error, self.rounding])
        return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True)
class Panel:
    """f on [a, b]: Chebyshev coefficients and what they miss; slope bounds ∂M(c; x)/∂x up to 7a/3 (0: unknown)."""

    a: float
    b: float
    slope: float
    coefficients: Complexes
    missed: Floats

    def cut(self, size: int) -> Panel:
        """The first nodes only."""
        return Panel(self.a, self.b, self.slope, self.coefficients[:, :size], self.missed[:size])

    def __call__(self, x: Floats | float) -> Complexes:
        """f, shape (x, size)."""
        return np.asarray(
            chebyshev.chebval((2 * np.asarray(x) - self.a - self.b) / (self.b - self.a), self.coefficients).T, dtype=np.complex128
        )


@dataclass(frozen=True)
class Decay:
    """How fast |M| falls along a line, and where along it that is known.

    Attributes:
        blocks: heights u, ascending, shape (BLOCKS,).
        lines: α, β of shape (2, LINES, BLOCKS): |M(c + iu; x)| ≤ M(c; x)·e^{−α(x − a0) + βx²} for every u ≥ blocks[j].
        a0: end of the first panel.
    """

    blocks: Floats
    lines: Floats
    a0: float


def decay(q: float, add: bool, c: float, reach: float, count: int) -> Decay:
    """The decay of |M| along Re s = c for x in [0, reach]; arguments and errors as of ``build``."""
    line = Line(q, add, c, c, 1, count)
    blocks = np.asarray(1.5 * c * 1.3 ** np.arange(BLOCKS), dtype=np.float64)
    panels = _panels(line, reach)
    return Decay(blocks, _decay(line, blocks, panels), panels[0].a)


def build(
    q: float, add: bool, c: float, step: float, size: int, reach: float, domain: float, count: int, typical: float
) -> NormTable:
    """The table of one line.

    Args:
        q: sampling rate in (0, 1).
        add: the direction (without, with); else (with, without).
        c: real part of the line, > 0.
        step: distance of its nodes.
        size: number of nodes.
        reach: largest x that occurs, ≤ domain.
        domain: end of the interval of the moments.
        count: about how many steps are composed; it only sets the precision of the quadrature.
        typical: about Σx/count of a record; it only sets the split.

    Raises:
        TableFailed: if log M cannot be bounded on the panels.
        OverflowError: if a quadrature needs too many nodes.
    """
    line = Line(q, add, c, step, size, count)
    table = fit(line, _panels(line, reach), reach, domain, typical)
    if not np.isfinite(table.near).all():
        raise TableFailed("M is not near 1 even near 0")
    return table


def fit(line: Line, panels: list[Panel], reach: float, domain: float, typical: float) -> NormTable:
    """The polynomial for x in [0, reach] from f on the panels, ascending, and its errors; ∞ at nodes where nothing is known.

    The split is where a record with so large a typical x loses least.
    """
    # The degree is chosen at some of the nodes.
    stride = max(line.size // 12, 1)
    some = replace(line, step=line.step * stride, size=len(range(0, line.size, stride)))
    few = [replace(panel, coefficients=panel.coefficients[:, ::stride], missed=panel.missed[::stride]) for panel in panels]
    growth = np.abs(some.s * (some.s + 1)) / (line.c * (line.c + 1))
    slope = float(line.slopes(np.array([panels[0].a]))[0])

    def cost(degree: int) -> float:
        table = _fit(some, few, reach, domain, degree, typical, slope)
        known = (table.error + table.rounding * 4 * line.count * UNIT) / growth
        return float(np.max(known[np.isfinite(known)], initial=0.0))

    degree = MOMENTS if reach > 0.3 * domain else min((MOMENTS, 10, 6, 3), key=cost)
    return _fit(line, panels, reach, domain, degree, typical, slope)


def _fit(line: Line, panels: list[Panel], reach: float, domain: float, degree: int, typical: float, slope: float) -> NormTable:
    s = line.s
    origin = 0.5 * s * (s + 1) * line.q**2
    first = np.abs(s * (s + 1)) / (line.c * (line.c + 1)) * slope
    a_j = _interpolate(panels, origin, reach, domain, degree)
    error, near = _residual(line, panels, origin, a_j, domain, first)
    ends = np.array([panels[0].a, *(panel.b for panel in panels)])
    whole = np.concatenate([near[None, :], error])
    options = []
    for k in range(1, len(panels), 2):  # the steps below ends[k - 1] lie on the first k pieces
        low, high = whole[:k], whole[k:]
        per_step = np.max(low * ends[:k, None], axis=0)
        table = NormTable(
            line.c, line.step, a_j, high.max(axis=0), low.max(axis=0), per_step, float(ends[k - 1]), np.sum(np.abs(a_j), axis=0)
        )
        missed = line.count * (table.error * typical + np.minimum(table.low * typical, table.near))
        # As in δ; an error of K above 1 is no worse than knowing nothing.
        cost = float(np.sum(np.minimum(np.nan_to_num(missed, nan=1.0), 1.0) / np.abs(s * (s + 1))))
        options.append((cost, -k, table))
    return min(options, key=lambda option: option[:2])[2]


def _panels(line: Line, reach: float) -> list[Panel]:
    """f on every octave below ``reach``."""
    s, c = line.s, line.c
    growth = np.abs(s * (s + 1)) / (c * (c + 1))
    lebesgue = 2 / math.pi * math.log(_NODES) + 1
    left = reach * 2.0 ** np.arange(-1, -_PANELS - 1, -1)
    panels: list[Panel] = []
    for a, slope in zip(left.tolist(), line.slopes(7 * left / 3).tolist(), strict=True):  # the first one fails first
        # On the ellipse of parameter 3 around [a, 2a]: Re x > 0, |x|/cos arg x ≤ 7a/3.
        bound = growth * slope * 1.07 * math.exp(0.07 * a)
        far = 7 * a / 3 * bound
        direct = np.full_like(far, math.inf)
        if not far.max() < 0.95:
            direct = 2.01 * math.exp(0.28 * a) * line.distance(7 * a / 3)
        worst = float(np.minimum(far, direct).max())
        if not worst < 0.95:
            raise TableFailed(f"|M − 1| may reach {worst:.3g}")
        with np.errstate(invalid="ignore", divide="ignore"):
            bound = np.where(far < direct, bound * -np.log1p(-far) / far, -np.log1p(-direct) / (2 * a / 3))
        x = 1.5 * a + 0.5 * a * THETA
        excess, error = line.excess(x, line.size)
        modulus = np.abs(1 + excess)
        if not (error < 0.5 * modulus).all():
            raise TableFailed("the quadrature is too coarse")
        values = (np.conj(log1p(excess)) if line.add else log1p(excess)) / x[:, None]
        errors = np.max(2 * error / modulus / x[:, None], axis=0)
        coefficients = np.asarray(TO_CHEBYSHEV @ values, dtype=np.complex128)
        rounding = 64 * UNIT * np.max(np.abs(values), axis=0)
        missed = 2 * bound * 3.0 ** (1 - _NODES) + lebesgue * (errors + rounding)
        panels.append(Panel(a, 2 * a, slope, coefficients, np.asarray(missed, dtype=np.float64)))
    return panels[::-1]


def _interpolate(panels: list[Panel], origin: Complexes, reach: float, domain: float, degree: int) -> Complexes:
    """Interpolate f at the Chebyshev nodes of [0, reach]; any coefficients are valid, ``_residual`` bounds what they miss."""
    theta = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    x = 0.5 * reach * (theta + 1)
    values = np.array([_f(panels, origin, y) for y in x])
    local = chebyshev.chebfit(theta, values, degree - 1)
    # From [0, reach] to [0, domain], where it is the same polynomial.
    wide = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    there = chebyshev.chebval((wide + 1) * domain / reach - 1, local).T
    a_j = np.zeros((MOMENTS, origin.size), dtype=np.complex128)
    a_j[:degree] = chebyshev.chebfit(wide, there, degree - 1)
    return a_j


def _f(panels: list[Panel], origin: Complexes, x: float) -> Complexes:
    for panel in panels:
        if panel.a <= x <= panel.b * (1 + 1e-12):
            return panel(x)
    return origin


def _residual(
    line: Line, panels: list[Panel], origin: Complexes, a_j: Complexes, domain: float, first: Floats
) -> tuple[Floats, Floats]:
    """Bounds of |f − polynomial| on each panel, shape (panels, size), and below all of them, shape (size,).

    On each panel a polynomial is at most the sum of its Chebyshev coefficients.
    """
    a0 = panels[0].a
    rounding = 64 * UNIT * np.sum(np.abs(a_j), axis=0)

    def coefficients(a: Floats, b: Floats) -> Complexes:
        x = 0.5 * np.add.outer(a + b, 0 * THETA) + 0.5 * np.multiply.outer(b - a, THETA)
        values = chebyshev.chebvander(2 * x / domain - 1, MOMENTS - 1) @ a_j
        return np.asarray(TO_CHEBYSHEV @ values, dtype=np.complex128)

    there = coefficients(np.array([panel.a for panel in panels]), np.array([panel.b for panel in panels]))
    gap = np.abs(there - np.array([panel.coefficients for panel in panels])).sum(axis=1)
    error = gap + np.array([panel.missed for panel in panels]) + rounding
    # |f(x) − f(0)| ≤ x/2·sup|K''|, K'' = M''/M − (M'/M)².
    power = line.power + 1j * line.s.imag
    second = 0.5 * (2 + 4 * np.abs(power - 2) + np.abs((power - 2) * (power - 3)))
    curved = 0.5 * a0 * (2 * first * second + 4 * first**2)
    below = coefficients(np.zeros(1), np.array([a0]))[0]
    below[0] -= origin
    near = np.abs(below).sum(axis=0) + rounding + curved
    return error, np.where(a0 * first < 0.5, near, math.inf)


def _decay(line: Line, blocks: Floats, panels: list[Panel]) -> Floats:
    """Lines below d(u; x)/x, d = log M(c; x) − log G_θ(u; x), from bounds on cells (``proofs/audits.md``, §5)."""
    c = line.c
    power = np.abs(line.power + 1j * blocks)
    rate = power * (power + 1) / (c * (c + 1))
    ratios, places = [], []
    for k, panel in enumerate(panels):
        edges = panel.a * np.linspace(1.0, 2.0, max(_CELLS >> (_PANELS - 1 - k), 4) + 1)
        low, high = edges[:-1, None], edges[1:, None]
        x, half = 0.5 * (low + high), 0.5 * (high - low)
        f = panel(x[:, 0])[:, :1].real
        log_m = x * (f - panel.missed[0])
        theta, value, error = _rotated(line, x, blocks, x * (f + panel.missed[0]))
        moved = half * panel.slope * rate * np.cos(0.5 * theta) ** (-2 - (c if line.add else 0.0))
        d = log_m - half * panel.slope - 0.5 * theta**2 / low - np.log(value + error + moved)
        ratios.append(d / high)
        places.append(low[:, 0])
    found = np.concatenate(ratios) * (1 - 1e-9)
    where = np.concatenate(places)
    lines = np.zeros((2, LINES, blocks.size))
    for k in range(LINES):
        part = where < where[-1] * 1.1 * 4.0**-k
        lines[0, k] = np.maximum(found[part].min(axis=0), 0.0)
        lines[1, k] = np.maximum((lines[0, k] - found) / where[:, None], 0.0).max(axis=0) * (1 + 1e-9)
    return lines


def _rotated(line: Line, x: Floats, blocks: Floats, log_m: Floats) -> tuple[Floats, Floats, Floats]:
    """θ, E_x[|1 − q + qe^{y + iθ}|^p e^{−u·arg}] and what it may miss, by a trapezoid rule on the real line.

    Arguments and results have the shape (cells, blocks); x and log M (an upper bound) are columns.
    """
    mu, p, q = np.sqrt(x), line.power, line.q
    top = float(mu.max())
    eta = 0.22
    t = np.arange(-9.5, max(9.5, p * top + 9.5), eta)
    log = log_mixture_rows(mu, q, t)
    tilted = np.exp(p * log - 0.5 * t * t)
    share = np.sum(tilted * (1 - (1 - q) * np.exp(-log)), axis=1, keepdims=True) / tilted.sum(axis=1, keepdims=True)
    limit = min(0.5 * math.pi, 2 / math.sqrt(line.c)) if line.add else 0.5 * math.pi
    theta = np.minimum(blocks * share * x, 0.6 * limit)
    r = q * np.exp(np.minimum(mu * t - 0.5 * x, 600.0))[:, None, :]
    real, imag = 1 - q + r * np.cos(theta)[:, :, None], r * np.sin(theta)[:, :, None]
    exponent = 0.5 * p * np.log(real * real + imag * imag) - blocks[:, None] * np.arctan2(imag, real) - 0.5 * t * t
    value = np.exp(exponent).sum(axis=2) * eta / math.sqrt(2 * math.pi)
    up = np.minimum((limit - theta) / mu, 4.0)
    kappa = np.cos(0.5 * (theta + mu * up)) ** (-line.c) if line.add else 1.0
    rule = 2 * kappa * np.exp(0.5 * up * up + log_m) / np.expm1(2 * math.pi * up / eta)
    left = 2e-21 * (1 + ((1 - q) ** p * np.cos(0.5 * theta) ** (-line.c) if line.add else 0.0))
    right = 2e-21 * np.cos(0.5 * theta) ** (-line.c) if line.add else line.beyond(x[:, 0], float(t[-1]) - eta)[:, None]
    return theta, value, rule + left + right + 1e-13 * value
