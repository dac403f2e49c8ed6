"""The sampled Gaussian's M(s; x) along a line, as polynomials in x on panels [a, √2·a].

Here x = (norm ratio / noise multiplier)².

M is analytic for Re x > 0, |M(s; x)| ≤ (1 + tan²φ)^¼ e^{|Im x|²/8 Re x} M(c; |x|²/Re x), φ = arg x. Its logarithm is
analytic where the polynomial says that M stays away from 0. Values come from the quadrature of questions
(``numerics/routes/rules.py``), a row for each x. Proofs: ``proofs/audit_few.md``, §§2–3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc.audit.polynomial import NODES, THETA, TO_CHEBYSHEV, Line, NormTable, Panel, TableFailed, fit
from privcalc.audit.sums import Bank
from privcalc.numerics.elementary import log1p
from privcalc.numerics.floats import UNIT, Complexes, Floats
from privcalc.numerics.interfaces import RealValues
from privcalc.numerics.routes.many import pieces
from privcalc.numerics.routes.rules import Indices, Rows, Rule, rules
from privcalc.numerics.special import mills

BLOCK = 16
"""Nodes, a multiple of which is evaluated."""

PANELS = 40
"""Panels below the largest x."""

_DROPPED = 1e-13
"""Share of M(c; x) that coefficients may have which are left out where many records are multiplied."""

_RADII = (6.0, 4.0, 3.0, 2.3)
"""Parameters of ellipses: large ones make an interpolant better, but M may explode there."""

_LEBESGUE = 2 / math.pi * math.log(NODES) + 1


@dataclass(frozen=True)
class Law:
    """Steps of one rate in one direction: (without, with) the record where ``add``, else (with, without).

    Besides, about how many are composed, which sets the precision.
    """

    q: float
    add: bool
    count: int


class Product(NamedTuple):
    """The transform of all uses of each record together, with s the nodes.

    Attributes:
        k: Σ log M(c; x), shape (n,).
        ratio: Π M(s; x)/M(c; x), shape (n, size).
        error: a bound of its error, shape (n, size).
    """

    k: Floats
    ratio: Complexes
    error: Floats


@dataclass(frozen=True, eq=False)
class Sheet:
    """One direction of one line.

    Attributes:
        line: the line.
        law: the steps.
        edges: of the panels, descending, shape (PANELS + 1,).
        polynomials: Chebyshev coefficients of M(s; x)e^{−ℓ(x)}, shape (PANELS, NODES, 2·size), each real part before
            its imaginary part.
        orders: how many of these coefficients are more than next to nothing, shape (PANELS,).
        errors: bounds of what they miss, relative to M(c; x)e^{−ℓ(x)}, shape (PANELS, size).
        chords: ℓ(x) = chords[0] + chords[1]·x, shape (2, PANELS).
        logs: f = log M/x on the panels, ascending; where it is unknown ``missed`` is infinite.
        falls: β ≥ 0 with |M(s; x)| ≤ M(c; x)·e^{−βx} on the panels, shape (PANELS, size).
        slope: bound of ∂M(c; x)/∂x below the panels.
        known: up to where panels are known; 0 without any.
    """

    line: Line
    law: Law
    edges: Floats
    polynomials: Floats
    orders: Indices
    errors: Floats
    chords: Floats
    logs: list[Panel]
    falls: Floats
    slope: float
    known: float

    @classmethod
    def of(cls, law: Law, line: Line, top: float) -> Sheet:
        """By interpolation at points where M is known from quadrature, up to x = ``top``, or as far as it is."""
        edges = np.asarray(top * 2.0 ** (-0.5 * np.arange(PANELS + 1)), dtype=np.float64)
        grid = top * 2.0 ** (np.arange(18, -8 * PANELS - 18, -1) / 16)
        log_m, slack = _log_real(law, line.c, grid)
        log_m = np.where(log_m + slack < 600, log_m, math.inf)
        chords, errors = np.zeros((2, PANELS)), np.full((PANELS, line.size), 1e300)
        polynomials, orders = np.zeros((PANELS, NODES, 2 * line.size)), np.zeros(PANELS, dtype=np.intp)
        logs: list[Panel] = []
        phase, falls = np.zeros(line.size), np.zeros((PANELS, line.size))
        for k in range(PANELS - 1, -1, -1):
            a, b = float(edges[k + 1]), float(edges[k])
            inside = slice(18 + 8 * k, 18 + 8 * k + 9)  # grid points from b down to a
            slope = float(log_m[inside][0] - log_m[inside][-1]) / (b - a)
            chords[:, k] = float(log_m[inside][-1]) - slope * a, slope
            level = chords[0, k] + slope * grid
            # M(c; x)e^{−ℓ} on a cell is at least its value at the left end over that of ℓ at the right one.
            floor = math.exp(float(np.min((log_m - slack)[inside][1:] - level[inside][:-1])))
            x = 0.5 * (a + b) + 0.5 * (b - a) * THETA
            chord = (chords[0, k] + slope * x)[:, None]
            try:
                bound = min(_ellipse(a, b, grid, log_m + slack, chords[:, k], radius) for radius in _RADII)
                value, error = _values(law, line, x, chord)
            except TableFailed:
                break
            c_j = TO_CHEBYSHEV @ value
            sizes = np.abs(c_j)
            missed = bound + _LEBESGUE * error + 64 * UNIT * sizes.sum(axis=0)
            own = missed / floor + _DROPPED
            if not own[0] < 0.1:  # the polynomial is too coarse
                break
            beyond = np.cumsum(sizes[::-1], axis=0)[::-1]
            orders[k] = 1 + int(np.sum(beyond[1:].max(axis=1) > _DROPPED * floor))
            polynomials[k] = np.ascontiguousarray(c_j).view(np.float64)
            errors[k] = own
            panel, phase = _logarithm(a, b, x, chord, value, c_j, missed, phase)
            falls[k] = _falls(panel, sizes, own)
            if logs:  # the branch of the logarithm comes from below
                panel = replace(panel, missed=np.where(np.isfinite(logs[-1].missed), panel.missed, math.inf))
            logs.append(panel)
        slope, known = _slope(law, line.c, float(edges[-1])), float(edges[PANELS - len(logs)]) if logs else 0.0
        return cls(line, law, edges, polynomials, orders, errors, chords, logs, falls, slope, known)

    def rest(self, reach: float, domain: float, typical: float, end: int | None = None) -> NormTable | None:
        """The polynomial of log M/x for x ≤ reach at the first nodes, where it is known; None without panels there.

        The typical x of a step only sets the table's split.

        Raises:
            TableFailed: if it is not known even on the real axis.
        """
        panels = [panel for panel in self.logs if panel.b <= reach * (1 + 1e-9)]
        if not panels:
            return None
        if panels[-1].b > domain:  # no step is beyond, and T_j is large there
            panels[-1] = panels[-1].up_to(domain)
        known = np.isfinite(panels[-1].missed[:end])
        size = max(known.size if known.all() else int(np.argmin(known)), 1)
        cut = [panel.cut(size) for panel in panels]
        table = fit(self.line.s[:size], self.law.q, self.slope, cut, reach, domain, self.law.count, typical)
        if table.known == 0:
            raise TableFailed("nothing is known on the real axis")
        return table.cut(table.known)

    def fall(self, bank: Bank, reach: float) -> Floats:
        """−log of a bound of Π |M(s; x)|/M(c; x) over all steps, those that are not kept being at most ``reach``.

        Least over blocks of nodes, shape (n, size / BLOCK).
        """
        falls = self.falls.reshape(PANELS, -1, BLOCK).min(axis=2)
        below = self.edges[:-1] <= reach * (1 + 1e-9)
        rest = falls[below].min(axis=0) if below.any() else 0 * falls[0]
        total = bank.moments[:, 0] - bank.unit * bank.scale - bank.count * self.edges[-1]
        weight = np.zeros((total.size, PANELS))
        place = self._place(bank.largest)
        for x, panel in zip(bank.largest.T, place.T, strict=True):
            rows = np.flatnonzero(panel >= 0)
            weight[rows, panel[rows]] += x[rows] * (x[rows] >= self.edges[-1])
        found = np.multiply.outer(np.maximum(total, 0.0), rest) + weight @ falls
        return np.asarray(found * (1 - 1e-9), dtype=np.float64)

    def _place(self, x: Floats) -> NDArray[np.int64]:
        """The panels in which x lie; −1 for 0."""
        place = np.floor(2 * np.log2(self.edges[0] / np.maximum(x, self.edges[-1])))
        return np.where(x > 0, np.clip(place, 0, PANELS - 1), -1).astype(np.int64)

    def product(self, x: Floats, size: int) -> Product:
        """For x of shape (n, any), at the first nodes."""
        n = x.shape[0]
        k, at_c, found = np.zeros(n), np.ones(n), np.ones((n, size), dtype=np.complex128)
        place = self._place(x)
        slack, counts = np.zeros(n), np.zeros((n, PANELS))
        for j in range(x.shape[1]):
            for panel in np.unique(place[:, j]):
                if panel < 0:
                    continue
                rows = np.flatnonzero(place[:, j] == panel)
                a, b = self.edges[panel + 1], self.edges[panel]
                # Below the last panel x is rounded up.
                y = np.clip(x[rows, j], a, b)
                theta = np.clip((2 * y - a - b) / (b - a), -1.0, 1.0)
                basis = np.cos(np.multiply.outer(np.arccos(theta), np.arange(self.orders[panel])))
                factor = (basis @ self.polynomials[panel, : self.orders[panel], : 2 * size]).view(np.complex128)
                found[rows] *= factor
                at_c[rows] *= factor[:, 0].real
                level, rise = self.chords[0, panel], self.chords[1, panel] * y
                k[rows] += level + rise
                slack[rows] += np.abs(level) + np.abs(rise)
                counts[rows, panel] += 1
        found /= at_c[:, None]
        missed = counts @ (self.errors[:, :size] + 2 * self.errors[:, :1])
        return Product(k + np.log(at_c) + 16 * UNIT * slack, found, np.expm1(missed * (1 + 1e-9) + 1e-14))


def _falls(panel: Panel, sizes: Floats, errors: Floats) -> Floats:
    """β ≥ 0 with |M(s; x)| ≤ M(c; x)·e^{−βx} on a panel: from log M/x, or, as x/b ≤ 1, from M itself.

    Args:
        panel: log M/x.
        sizes: moduli of the Chebyshev coefficients of Me^{−ℓ}.
        errors: bounds of what these miss, relative to M(c; x)e^{−ℓ}.
    """
    real = (panel.coefficients - panel.coefficients[:, :1]).real
    known = -(real[0] + np.abs(real[1:]).sum(axis=0) + panel.missed + panel.missed[0])
    least = max(2 * sizes[0, 0] - sizes[:, 0].sum(), 1e-300)
    share = sizes.sum(axis=0) / least * (1 + 2 * errors[0]) + errors
    found = np.fmax(known, -np.log(np.minimum(share, 1.0)) / panel.b)
    return np.asarray(np.fmax(found, 0.0) * (1 - 1e-9), dtype=np.float64)


def _logarithm(
    a: float, b: float, x: Floats, chord: Floats, value: Complexes, c_j: Complexes, missed: Floats, phase: Floats
) -> tuple[Panel, Floats]:
    """log M/x on [a, b], and the phase of Me^{−ℓ} at b; what it misses is infinite where it is unknown.

    Args:
        a: left end of the panel.
        b: right end.
        x: interpolation points.
        chord: ℓ there, a column.
        value: Me^{−ℓ} there.
        c_j: its polynomial.
        missed: bounds of what that misses.
        phase: that of Me^{−ℓ} at a.
    """
    sizes, steep = np.abs(c_j), float(np.abs(chord).max())
    # The polynomial's own logarithm is analytic where, on the ellipse of parameter 3, the rest of it is below c_0.
    power = 0.5 * (3.0 ** np.arange(1, NODES) + 3.0 ** -np.arange(1, NODES))
    rest = np.maximum(sizes[0], 1e-300)
    moved = power @ sizes[1:] / rest * (1 + 1e-12)
    known = moved < 0.9
    left, right = (-1.0) ** np.arange(NODES) @ c_j / c_j[0], c_j.sum(axis=0) / c_j[0]
    own = np.angle(c_j[0])
    own = own + 2 * math.pi * np.round((phase - np.angle(left) - own) / (2 * math.pi))
    ratio = np.where(known, value / c_j[0], 1.0)
    whole = log1p(ratio - 1) + np.log(rest) + 1j * own
    coefficients = np.asarray(TO_CHEBYSHEV @ ((whole + chord) / x[:, None]), dtype=np.complex128)
    with np.errstate(invalid="ignore", divide="ignore"):
        depth = -np.log1p(-moved)
        # On the panel M differs from the polynomial by so much of it; the logarithm by at most twice that, below 1/2.
        apart = missed / (sizes[0] - sizes[1:].sum(axis=0))
    known &= (apart >= 0) & (apart < 0.5)
    # On that ellipse 1/|x| ≤ 1.17/a.
    rounding = 16 * _LEBESGUE * UNIT * (1 + steep + np.abs(whole).max(axis=0))
    lost = 2.34 * depth * 3.0 ** (1 - NODES) + 2 * apart + rounding
    return Panel(a, b, coefficients, np.where(known, lost / a, math.inf)), np.asarray(
        own + np.angle(right), dtype=np.float64
    )


def _quadrature(law: Law, c: float, x: Floats) -> Iterator[tuple[Indices, Rule, RealValues]]:
    """Rules for some x each, with log M(c; x) and its error; of what they cut off, too."""
    one = np.ones(x.size)
    rows = Rows(np.sqrt(x), law.q * one, max(law.count, 2) * one, 0.0 * one, law.add)
    # Nine standard deviations beyond where w^{c + 1} moves φ. Rows that need too many points are left out.
    for at, rule in rules(rows, c * one, (c + 1) * rows.mu + 9):
        for piece in pieces(at.size):
            own = rule[piece]
            k, error = (value[:, 0] for value in own.real(np.full((piece.size, 1), c)))
            if not law.add:  # ∫_{t > b} φw^{c + 1} dt, by w(t) ≤ w(b)e^{μ(t − b)}
                b = own.points[:, -1] + 0.5 * own.step
                beyond = mills((c + 1) * own.rows.mu - b) * np.exp((c + 1) * own.at_edge - 0.5 * b * b - k)
                error = error + np.where(beyond < 0.1, beyond, math.inf)
            yield at[piece], own, RealValues(k, error)


def _log_real(law: Law, c: float, x: Floats) -> RealValues:
    """log M(c; x) and its error."""
    found = RealValues(np.full(x.size, math.inf), np.zeros(x.size))
    for at, _, (k, error) in _quadrature(law, c, x):
        found[0][at], found[1][at] = k, np.nan_to_num(error, nan=math.inf)
    return found


def _values(law: Law, line: Line, x: Floats, chord: Floats) -> tuple[Complexes, Floats]:
    """M(s; x)e^{−ℓ} at all nodes for every x, shape (x, size), and bounds of the errors, shape (size,)."""
    found, error = np.full((x.size, line.size), math.nan, dtype=np.complex128), np.zeros(line.size)
    for at, rule, (k, k_error) in _quadrature(law, line.c, x):
        log_m, off, agree = rule.nodes(np.full(at.size, line.c), k, k_error, np.full(at.size, line.step), line.size)
        if not agree.all():
            raise TableFailed("two rules differ")
        level = k[:, None] - chord[at]
        found[at] = np.exp(level + (np.conj(log_m) if law.add else log_m))
        missed = off + (k_error + 16 * UNIT * (1 + np.abs(k) + np.abs(chord[at, 0])))[:, None]
        np.maximum(error, (missed * np.exp(level)).max(axis=0) * (1 + 1e-6), out=error)
    if np.isnan(found[:, 0]).any():
        raise TableFailed("the transform needs too many points")
    return found, np.nan_to_num(error, nan=math.inf)


def _slope(law: Law, c: float, v: float) -> float:
    """A bound of ∂M(c; x)/∂x for 0 ≤ x ≤ v, a difference quotient as M'' ≥ −M' (``proofs/audit_moments.md``, §2)."""
    h = v / 4
    k, error = _log_real(law, c, np.array([v, v + h]))
    rise = np.expm1(k[1]) - np.expm1(k[0]) + 1.01 * error.sum() * math.exp(k.max())
    return float(rise / h * math.exp(h + v) * (1 + 1e-9))


def _ellipse(a: float, b: float, grid: Floats, log_m: Floats, chord: Floats, radius: float) -> float:
    """A bound of what interpolation of M(s; x)e^{−ℓ(x)} misses on [a, b], from an ellipse; the grid is descending."""
    angle = np.linspace(0.0, math.pi, 65)
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    real = middle + half * (radius + 1 / radius) / 2 * np.cos(angle)
    imag = half * (radius - 1 / radius) / 2 * np.maximum(np.sin(angle[:-1]), np.sin(angle[1:])) * (1 + 1e-9)
    high, low = real[:-1], real[1:]
    v = high + imag**2 / low
    if not v.max() <= grid[np.isfinite(log_m)].max(initial=0.0):
        return math.inf
    above = np.searchsorted(-grid, -v, side="right") - 1  # the next point of the grid that is not below v
    turned = 0.25 * np.log1p((imag / low) ** 2) + imag**2 / (8 * low)
    most = float(np.max(turned + log_m[above] - chord[0] - chord[1] * low))
    return 4 * math.exp(most) * radius ** (1 - NODES) / (radius - 1) * (1 + 1e-9) if most < 700 else math.inf
