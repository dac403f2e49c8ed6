"""The sampled Gaussian's log M as a polynomial in x = (norm ratio / noise multiplier)², with a proved error.

On a vertical line s = c + iu, log M(s; x) = x·f(x), and f is approximated on [0, reach] by one polynomial, written in
Chebyshev polynomials of the whole domain. A record that took steps x_1, x_2, … then has

    K(s) = Σ_t log M(s; x_t) ≈ Σ_j a_j(s) m_j,      m_j = Σ_t x_t T_j(2x_t/domain − 1),

off by at most error·Σx + min(low·Σx, near·T). Every bound here is proved in ``proofs/audit_moments.md``, §§2–3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev

from privcalc.numerics.elementary import log1p
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Complexes
from privcalc.numerics.records.line import Line, TableFailed

MOMENTS = 14
"""Chebyshev moments of a record."""

PANELS, _NODES = 18, 22
"""Octaves below ``reach``; interpolation nodes in each."""

THETA = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
TO_CHEBYSHEV = np.cos(np.multiply.outer(np.arange(_NODES), np.arccos(THETA))) * 2 / _NODES
TO_CHEBYSHEV[0] *= 0.5
"""Chebyshev nodes, and the matrix that takes values there to Chebyshev coefficients."""

_SIGNED = 0.01
"""About what the gap's modulus is worth where its sign is used."""


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
        gap: f − polynomial for x ≥ split, but for what ``vague`` bounds: Chebyshev coefficients on panels, shape
            (panels, nodes of a panel, size); without panels where its sign is of no use.
        ends: right ends of these panels, ascending.
        vague: what is left of ``error`` if the gap is known, shape (size,).
        steady: the same for one step, times its x.
    """

    c: float
    step: float
    coefficients: Complexes
    error: Floats
    low: Floats
    near: Floats
    split: float
    rounding: Floats
    gap: Complexes
    ends: Floats
    vague: Floats
    steady: Floats

    def cut(self, size: int) -> NormTable:
        """The first nodes only."""
        return NormTable(
            self.c,
            self.step,
            self.coefficients[:, :size],
            self.error[:size],
            self.low[:size],
            self.near[:size],
            self.split,
            self.rounding[:size],
            self.gap[:, :, :size],
            self.ends,
            self.vague[:size],
            self.steady[:size],
        )

    def missed(self, total: Floats, noise: Floats, count: int) -> Floats:
        """Bounds of K's error, shape (n, size), from Σx, what roundings are relative to, and the number of steps."""
        found = np.multiply.outer(total, self.low)
        np.minimum(found, count * self.near, out=found)
        found += np.stack([total, noise], axis=1) @ np.stack([self.error, self.rounding])
        return np.asarray(found, dtype=np.float64)

    def missed_beside_gap(self, total: Floats, noise: Floats, count: int) -> Floats:
        """What is missed, without what the gap says."""
        found = np.multiply.outer(noise, self.rounding)
        found += np.minimum(np.multiply.outer(total, self.low), count * self.near)
        found += np.minimum(np.multiply.outer(total, self.vague), count * self.steady)
        return found


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

    def up_to(self, end: float) -> Panel:
        """The panel's polynomials on [a, end] only, end ≤ b."""
        end = max(end, self.a * (1 + 1e-6))
        values = self(0.5 * (self.a + end) + 0.5 * (end - self.a) * THETA)
        rounding = 64 * UNIT * np.sum(np.abs(self.coefficients), axis=0)
        return Panel(
            self.a, end, self.slope, np.asarray(TO_CHEBYSHEV @ values, dtype=np.complex128), self.missed + rounding
        )

    def __call__(self, x: Floats | float) -> Complexes:
        """f, shape (x, size)."""
        return np.asarray(
            chebyshev.chebval((2 * np.asarray(x) - self.a - self.b) / (self.b - self.a), self.coefficients).T,
            dtype=np.complex128,
        )


def unsampled(c: float, step: float, size: int) -> NormTable:
    """The table of full batches: log M is s(s + 1)x/2 in both directions.

    See ``proofs/audit_moments.md``, §4.
    """
    s = c + 1j * step * np.arange(size)
    coefficients = np.zeros((MOMENTS, size), dtype=np.complex128)
    coefficients[0] = 0.5 * s * (s + 1)
    sizes, none = np.abs(coefficients[0]), np.zeros(size)
    gap, ends = np.zeros((0, _NODES, size), dtype=np.complex128), np.zeros(0)
    return NormTable(c, step, coefficients, 8 * UNIT * sizes, none, none, 0.0, sizes, gap, ends, none, none)


def build(
    q: float, add: bool, c: float, step: float, size: int, reach: float, domain: float, count: int, typical: float
) -> NormTable:
    """The table of one line.

    Args:
        q: sampling rate in (0, 1].
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
    if q == 1:
        return unsampled(c, step, size)
    line = Line(q, add, c, step, size, count)
    table = fit(line, panels_below(line, reach), reach, domain, typical)
    if not np.isfinite(table.near).all():
        raise TableFailed("M is not near 1 even near 0")
    return table


def fit(
    line: Line, panels: list[Panel], reach: float, domain: float, typical: float, *, signed: bool = False
) -> NormTable:
    """The polynomial for x in [0, reach] from f on the panels, ascending, and its errors.

    They are ∞ at nodes where nothing is known.

    The split is where a record with so large a typical x loses least. Signed: the gap is kept.
    """
    # The degree is chosen at some of the nodes.
    stride = max(line.size // 12, 1)
    some = replace(line, step=line.step * stride, size=len(range(0, line.size, stride)))
    few = [
        replace(panel, coefficients=panel.coefficients[:, ::stride], missed=panel.missed[::stride]) for panel in panels
    ]
    growth = np.abs(some.s * (some.s + 1)) / (line.c * (line.c + 1))
    slope = float(line.slopes(np.array([panels[0].a]))[0])

    def cost(degree: int) -> float:
        table = _fit(some, few, reach, domain, degree, typical, slope, signed=False)
        known = (table.error + table.rounding * 4 * line.count * UNIT) / growth
        return float(np.max(known[np.isfinite(known)], initial=0.0))

    degree = MOMENTS if reach > 0.3 * domain else min((MOMENTS, 10, 6, 3), key=cost)
    return _fit(line, panels, reach, domain, degree, typical, slope, signed=signed)


def _fit(
    line: Line,
    panels: list[Panel],
    reach: float,
    domain: float,
    degree: int,
    typical: float,
    slope: float,
    *,
    signed: bool,
) -> NormTable:
    s = line.s
    origin = 0.5 * s * (s + 1) * line.q**2
    first = np.abs(s * (s + 1)) / (line.c * (line.c + 1)) * slope
    a_j = _interpolate(panels, origin, reach, domain, degree)
    gap, vague, near = _residual(line, panels, origin, a_j, domain, first)
    error = np.abs(gap).sum(axis=1) + vague
    ends = np.array([panels[0].a, *(panel.b for panel in panels)])
    whole = np.concatenate([near[None, :], error])
    options = []
    for k in range(1, len(panels), 2):  # the steps below ends[k - 1] lie on the first k pieces
        low, high = whole[:k], whole[k:]
        per_step = np.max(low * ends[:k, None], axis=0)
        table = NormTable(
            line.c,
            line.step,
            a_j,
            high.max(axis=0),
            low.max(axis=0),
            per_step,
            float(ends[k - 1]),
            np.sum(np.abs(a_j), axis=0),
            gap[k - 1 :] if signed else gap[:0],
            ends[k:],
            vague[k - 1 :].max(axis=0),
            (vague[k - 1 :] * ends[k:, None]).max(axis=0),
        )
        above = table.error * typical
        if signed:
            above = np.minimum(table.vague * typical, table.steady) + _SIGNED * above
        missed = line.count * (above + np.minimum(table.low * typical, table.near))
        # As in δ; an error of K above 1 is no worse than knowing nothing.
        cost = float(np.sum(np.minimum(np.nan_to_num(missed, nan=1.0), 1.0) / np.abs(s * (s + 1))))
        options.append((cost, -k, table))
    return min(options, key=lambda option: option[:2])[2]


def panels_below(line: Line, reach: float) -> list[Panel]:
    """f on every octave below ``reach``, ascending.

    Raises:
        TableFailed: if log M cannot be bounded there.
    """
    s, c = line.s, line.c
    growth = np.abs(s * (s + 1)) / (c * (c + 1))
    lebesgue = 2 / math.pi * math.log(_NODES) + 1
    left = reach * 2.0 ** np.arange(-1, -PANELS - 1, -1)
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
    """Interpolate f at the Chebyshev nodes of [0, reach].

    Any coefficients are valid; ``_residual`` bounds what they miss.
    """
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
) -> tuple[Complexes, Floats, Floats]:
    """f − polynomial on each panel: Chebyshev coefficients, shape (panels, any, size), and a bound of what they miss.

    Third, a bound of its modulus below all of them, shape (size,). On a panel it is at most the sum of the
    coefficients' moduli.
    """
    a0 = panels[0].a
    rounding = 64 * UNIT * np.sum(np.abs(a_j), axis=0)

    def coefficients(a: Floats, b: Floats) -> Complexes:
        x = 0.5 * np.add.outer(a + b, 0 * THETA) + 0.5 * np.multiply.outer(b - a, THETA)
        values = chebyshev.chebvander(2 * x / domain - 1, MOMENTS - 1) @ a_j
        return np.asarray(TO_CHEBYSHEV @ values, dtype=np.complex128)

    there = coefficients(np.array([panel.a for panel in panels]), np.array([panel.b for panel in panels]))
    gap = np.array([panel.coefficients for panel in panels]) - there
    vague = np.array([panel.missed for panel in panels]) + rounding
    # |f(x) − f(0)| ≤ x/2·sup|K''|, K'' = M''/M − (M'/M)².
    power = line.power + 1j * line.s.imag
    second = 0.5 * (2 + 4 * np.abs(power - 2) + np.abs((power - 2) * (power - 3)))
    curved = 0.5 * a0 * (2 * first * second + 4 * first**2)
    below = coefficients(np.zeros(1), np.array([a0]))[0]
    below[0] -= origin
    near = np.abs(below).sum(axis=0) + rounding + curved
    return gap, vague, np.where(a0 * first < 0.5, near, math.inf)
