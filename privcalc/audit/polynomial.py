"""The sampled Gaussian's log M as a polynomial in x = (norm ratio / noise multiplier)², with a proved error.

On a vertical line s = c + iu, log M(s; x) = x·f(x), and f is approximated on [0, reach] by one polynomial, written in
Chebyshev polynomials of the whole domain. A record that took steps x_1, x_2, … then has

    K(s) = Σ_t log M(s; x_t) ≈ Σ_j a_j(s) m_j,      m_j = Σ_t x_t T_j(2x_t/domain − 1),

and what is missed is a polynomial on each panel, but for next to nothing. Proofs: ``proofs/audit_moments.md``, §3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from privcalc.audit.sums import MOMENTS
from privcalc.numerics.floats import UNIT, Complexes, Floats

NODES = 22
"""Interpolation nodes of a panel."""

THETA = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
TO_CHEBYSHEV = np.cos(np.multiply.outer(np.arange(NODES), np.arccos(THETA))) * 2 / NODES
TO_CHEBYSHEV[0] *= 0.5
"""Chebyshev nodes, and the matrix that takes values there to Chebyshev coefficients."""

_KEPT = 10
"""Coefficients of the gap whose signs count."""

_SIGNED = 0.01
"""About what the gap's modulus is worth, as its sign is used."""

_GROWTH = 9
"""Digits by which coefficients on the domain may exceed those on [0, reach], about; it bounds the degree."""


class TableFailed(ArithmeticError):
    """M is not known well enough on this line."""


@dataclass(frozen=True)
class Line:
    """The nodes c + ik·step, k < size; sums want a multiple of 32."""

    c: float
    step: float
    size: int

    @property
    def s(self) -> Complexes:
        """The s at which the powers are known: the nodes."""
        return np.asarray(self.c + 1j * self.step * np.arange(self.size), dtype=np.complex128)


@dataclass(frozen=True)
class Panel:
    """f on [a, b]: Chebyshev coefficients, and what they miss."""

    a: float
    b: float
    coefficients: Complexes
    missed: Floats

    def cut(self, size: int) -> Panel:
        """The first nodes only."""
        return Panel(self.a, self.b, self.coefficients[:, :size], self.missed[:size])

    def up_to(self, end: float) -> Panel:
        """The panel's polynomials on [a, end] only, end ≤ b."""
        end = max(end, self.a * (1 + 1e-6))
        values = self(0.5 * (self.a + end) + 0.5 * (end - self.a) * THETA)
        rounding = 64 * UNIT * np.sum(np.abs(self.coefficients), axis=0)
        return Panel(self.a, end, np.asarray(TO_CHEBYSHEV @ values, dtype=np.complex128), self.missed + rounding)

    def __call__(self, x: Floats | float) -> Complexes:
        """f, shape (x, size)."""
        return np.asarray(
            chebyshev.chebval((2 * np.asarray(x) - self.a - self.b) / (self.b - self.a), self.coefficients).T,
            dtype=np.complex128,
        )


@dataclass(frozen=True)
class NormTable:
    """One direction of one line: the polynomial and what it misses.

    Attributes:
        coefficients: a_j at the nodes, shape (MOMENTS, size).
        gap: f − polynomial for x ≥ split, but for what ``vague`` bounds: the first Chebyshev coefficients on panels,
            shape (panels, any, size).
        ends: right ends of these panels, ascending.
        vague: what else is missed for x ≥ split, times x; shape (size,).
        steady: the same, for one step.
        low: bound of |f − polynomial| for x < split.
        near: bound of x|f − polynomial| for x < split.
        split: where the one ends and the others begin.
        rounding: Σ_j |a_j|: by how much an error of the moments, relative to Σx, is multiplied.
    """

    coefficients: Complexes
    gap: Complexes
    ends: Floats
    vague: Floats
    steady: Floats
    low: Floats
    near: Floats
    split: float
    rounding: Floats

    def cut(self, size: int) -> NormTable:
        """The first nodes only."""
        return NormTable(
            self.coefficients[:, :size],
            self.gap[:, :, :size],
            self.ends,
            self.vague[:size],
            self.steady[:size],
            self.low[:size],
            self.near[:size],
            self.split,
            self.rounding[:size],
        )

    @property
    def known(self) -> int:
        """How many nodes, from the first on, have finite bounds."""
        known = np.isfinite(self.vague) & np.isfinite(self.near)
        return known.size if known.all() else int(np.argmin(known))

    def sizes(self) -> Floats:
        """Bounds of the gap's modulus, shape (size,)."""
        return np.asarray(np.abs(self.gap).sum(axis=1).max(axis=0, initial=0.0), dtype=np.float64)

    def missed(self, total: Floats, noise: Floats, count: int) -> Floats:
        """What is missed, without what the gap says, shape (n, size).

        Args:
            total: Σx.
            noise: bounds of the moments' errors.
            count: number of steps.
        """
        found = np.multiply.outer(noise, self.rounding)
        found += np.minimum(np.multiply.outer(total, self.low), count * self.near)
        found += np.minimum(np.multiply.outer(total, self.vague), count * self.steady)
        return found


def unsampled(s: Complexes) -> NormTable:
    """The table of full batches: log M is s(s + 1)x/2 in both directions.

    See ``proofs/audit_moments.md``, §4.
    """
    coefficients = np.zeros((MOMENTS, s.size), dtype=np.complex128)
    coefficients[0] = 0.5 * s * (s + 1)
    sizes, none = np.abs(coefficients[0]), np.zeros(s.size)
    gap, ends = np.zeros((0, NODES, s.size), dtype=np.complex128), np.zeros(0)
    return NormTable(coefficients, gap, ends, 8 * UNIT * sizes, none + 1e300, none, none, 0.0, sizes)


def fit(
    s: Complexes, q: float, slope: float, panels: list[Panel], reach: float, domain: float, count: int, typical: float
) -> NormTable:
    """The polynomial for x in [0, reach] from f on the panels, and its errors, ∞ at nodes where nothing is known.

    Args:
        s: the nodes.
        q: sampling rate in (0, 1).
        slope: bound of ∂M(c; x)/∂x up to the first panel.
        panels: ascending.
        reach: where the last one ends, about.
        domain: end of the interval of the moments.
        count: about how many steps are composed.
        typical: about Σx/count of a record. As the number of steps it only sets the split.
    """
    origin, c = 0.5 * s * (s + 1) * q**2, float(s[0].real)
    first = np.abs(s * (s + 1)) / (c * (c + 1)) * slope
    a_j = _interpolate(panels, origin, min(reach, domain), domain)
    rounding = 64 * UNIT * np.sum(np.abs(a_j), axis=0)

    def coefficients(a: Floats, b: Floats) -> Complexes:
        x = 0.5 * np.add.outer(a + b, 0 * THETA) + 0.5 * np.multiply.outer(b - a, THETA)
        values = chebyshev.chebvander(2 * x / domain - 1, MOMENTS - 1) @ a_j
        return np.asarray(TO_CHEBYSHEV @ values, dtype=np.complex128)

    there = coefficients(np.array([panel.a for panel in panels]), np.array([panel.b for panel in panels]))
    gap = np.array([panel.coefficients for panel in panels]) - there
    vague = np.array([panel.missed for panel in panels]) + rounding
    whole, vague = np.abs(gap).sum(axis=1) + vague, np.abs(gap[:, _KEPT:]).sum(axis=1) + vague
    gap = gap[:, :_KEPT]
    # Below the panels |f(x) − f(0)| ≤ x/2·sup|K''|, K'' = M''/M − (M'/M)²; |P − 2| is |s − 1| or |s + 2|.
    a0 = panels[0].a
    second = 0.5 * (2 + 4 * np.abs(s + 2) + np.abs((s + 2) * (s + 3)))
    below = coefficients(np.zeros(1), np.array([a0]))[0]
    below[0] -= origin
    near = np.abs(below).sum(axis=0) + rounding + 0.5 * a0 * (2 * first * second + 4 * first**2)
    near = np.where(a0 * first < 0.5, near, math.inf)
    whole = np.concatenate([near[None, :], whole])
    ends = np.array([a0, *(panel.b for panel in panels)])
    best, least = 1, math.inf
    for k in range(1, len(panels), 2):  # the steps below ends[k - 1] lie on the first k pieces
        table = _split(a_j, gap, vague, whole, ends, k)
        above = np.minimum(table.vague * typical, table.steady) + _SIGNED * whole[k:].max(axis=0) * typical
        missed = count * (above + np.minimum(table.low * typical, table.near))
        # As in δ; an error of K above 1 is no worse than knowing nothing.
        cost = float(np.sum(np.minimum(np.nan_to_num(missed, nan=1.0), 1.0) / np.abs(s * (s + 1))))
        if cost <= least:
            best, least = k, cost
    return _split(a_j, gap, vague, whole, ends, best)


def _split(a_j: Complexes, gap: Complexes, vague: Floats, whole: Floats, ends: Floats, k: int) -> NormTable:
    """The table with the steps below ends[k − 1] apart, which lie on the first k pieces."""
    low, high = whole[:k], vague[k - 1 :]
    return NormTable(
        a_j,
        gap[k - 1 :],
        ends[k:],
        high.max(axis=0),
        (high * ends[k:, None]).max(axis=0),
        low.max(axis=0),
        (low * ends[:k, None]).max(axis=0),
        float(ends[k - 1]),
        np.sum(np.abs(a_j), axis=0),
    )


def _interpolate(panels: list[Panel], origin: Complexes, reach: float, domain: float) -> Complexes:
    """Interpolate f at Chebyshev nodes of [0, reach]; any coefficients are valid, as ``fit`` bounds what they miss."""
    stretch = math.log10(6 * domain / reach)
    degree = MOMENTS if reach > 0.3 * domain else min(max(int(_GROWTH / stretch), 3), MOMENTS)
    theta = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    values = np.array([_f(panels, origin, x) for x in 0.5 * reach * (theta + 1)])
    local = chebyshev.chebfit(theta, values, degree - 1)
    # From [0, reach] to [0, domain], where it is the same polynomial.
    there = chebyshev.chebval((theta + 1) * domain / reach - 1, local).T
    a_j = np.zeros((MOMENTS, origin.size), dtype=np.complex128)
    a_j[:degree] = chebyshev.chebfit(theta, there, degree - 1)
    return a_j


def _f(panels: list[Panel], origin: Complexes, x: float) -> Complexes:
    for panel in panels:
        if panel.a <= x <= panel.b * (1 + 1e-12):
            return panel(x)
    return origin
