"""The sampled Gaussian's M(s; x) along a line, as polynomials in x on panels [a, √2·a].

Here x = (norm ratio / noise multiplier)².

M is analytic for Re x > 0, |M(s; x)| ≤ (1 + tan²φ)^¼ e^{|Im x|²/8 Re x} M(c; |x|²/Re x), φ = arg x. Its logarithm is
analytic where the polynomial says that M stays away from 0. Proofs: ``proofs/audit_few.md``, §§2–3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from privcalc.numerics.elementary import fan, log1p
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Complexes, RealValues
from privcalc.numerics.records.line import Line, Rule, TableFailed
from privcalc.numerics.records.table import THETA, TO_CHEBYSHEV, NormTable, Panel, fit
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform

PANELS = 52
"""Panels below the largest x."""

_ORDER = THETA.size
_LEBESGUE = 2 / math.pi * math.log(_ORDER) + 1


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
        edges: of the panels, descending, shape (PANELS + 1,).
        polynomials: Chebyshev coefficients of M(s; x)e^{−ℓ(x)}, shape (PANELS, _ORDER, 2·size), each real part before
            its imaginary part.
        errors: bounds of what they miss, relative to M(c; x)e^{−ℓ(x)}, shape (PANELS, size).
        chords: ℓ(x) = chords[0] + chords[1]·x, shape (2, PANELS).
        logs: f = log M/x on the panels, ascending; where it is unknown ``missed`` is infinite.
    """

    line: Line
    edges: Floats
    polynomials: Floats
    errors: Floats
    chords: Floats
    logs: list[Panel]

    @classmethod
    def of(cls, q: float, add: bool, c: float, step: float, size: int, top: float, count: int) -> Sheet:
        """By interpolation at points where M is known from quadrature.

        Args:
            q: sampling rate in (0, 1).
            add: the direction (without, with); else (with, without).
            c: real part of the line.
            step: distance of its nodes.
            size: their number.
            top: the largest x.
            count: about how many steps are composed; it only sets the precision of the quadrature.

        Raises:
            TableFailed: if M is too large.
            OverflowError: if a quadrature needs too many nodes.
        """
        line = Line(q, add, c, step, size, count)
        edges = np.asarray(top * 2.0 ** (-0.5 * np.arange(PANELS + 1)), dtype=np.float64)
        grid = top * 2.0 ** (np.arange(18, -8 * PANELS - 18, -1) / 16)
        log_m, slack = _log_real(line, grid)
        chords, errors = np.empty((2, PANELS)), np.empty((PANELS, size))
        polynomials = np.empty((PANELS, _ORDER, 2 * size))
        logs: list[Panel] = []
        phase = np.zeros(size)
        for k in range(PANELS - 1, -1, -1):
            a, b = float(edges[k + 1]), float(edges[k])
            inside = slice(18 + 8 * k, 18 + 8 * k + 9)  # grid points from b down to a
            slope = float(log_m[inside][0] - log_m[inside][-1]) / (b - a)
            chords[:, k] = float(log_m[inside][-1]) - slope * a, slope
            level = chords[0, k] + slope * grid
            # M(c; x)e^{−ℓ} on a cell is at least its value at the left end over that of ℓ at the right one.
            floor = math.exp(float(np.min((log_m - slack)[inside][1:] - level[inside][:-1])))
            bound = _ellipse(a, b, grid, log_m + slack, chords[:, k])
            x = 0.5 * (a + b) + 0.5 * (b - a) * THETA
            value, error = _powers(line, x)
            chord = (chords[0, k] + slope * x)[:, None]
            scale = np.exp(-chord)
            value, error = value * scale, np.max(error * scale, axis=0)
            error += 8 * UNIT * np.abs(chord).max() * np.max(np.abs(value), axis=0)
            c_j = TO_CHEBYSHEV @ value
            sizes = np.abs(c_j)
            missed = 0.8 * bound * 6.0 ** (1 - _ORDER) + _LEBESGUE * error + 64 * UNIT * sizes.sum(axis=0)
            polynomials[k] = np.ascontiguousarray(c_j).view(np.float64)
            errors[k] = missed / floor
            if not errors[k, 0] < 0.1:
                raise TableFailed("the polynomial is too coarse")
            panel, phase = _logarithm(a, b, x, chord, value, c_j, missed, phase)
            if logs:  # the branch of the logarithm comes from below
                panel = replace(panel, missed=np.where(np.isfinite(logs[-1].missed), panel.missed, math.inf))
            logs.append(panel)
        return cls(line, edges, polynomials, errors, chords, logs)

    def rest(self, reach: float, domain: float, typical: float, *, signed: bool) -> NormTable | None:
        """The polynomial of log M/x for x ≤ reach at the first nodes, where it is known; None without panels there.

        The typical x of a step only sets the table's split; signed: the gap is kept.

        Raises:
            TableFailed: if it is not known even on the real axis.
        """
        panels = [panel for panel in self.logs if panel.b <= reach * (1 + 1e-9)]
        if not panels:
            return None
        if panels[-1].b > domain:  # no step is beyond, and T_j is large there
            panels[-1] = panels[-1].up_to(domain)
        known = np.isfinite(panels[-1].missed)
        size = self.line.size if known.all() else int(np.argmin(known))
        line, cut = replace(self.line, size=max(size, 1)), [panel.cut(max(size, 1)) for panel in panels]
        table = fit(line, cut, reach, domain, typical, signed=signed)
        known = np.isfinite(table.error) & np.isfinite(table.near)
        if not known[0]:
            raise TableFailed("nothing is known on the real axis")
        return table.cut(known.size if known.all() else int(np.argmin(known)))

    def product(self, x: Floats) -> Product:
        """For x of shape (n, any)."""
        n = x.shape[0]
        k, at_c, found = np.zeros(n), np.ones(n), np.ones((n, self.line.size), dtype=np.complex128)
        place = np.floor(2 * np.log2(self.edges[0] / np.maximum(x, self.edges[-1])))
        place = np.where(x > 0, np.clip(place, 0, PANELS - 1), -1).astype(np.int64)
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
                basis = np.cos(np.multiply.outer(np.arccos(theta), np.arange(_ORDER)))
                factor = (basis @ self.polynomials[panel]).view(np.complex128)
                found[rows] *= factor
                at_c[rows] *= factor[:, 0].real
                level, rise = self.chords[0, panel], self.chords[1, panel] * y
                k[rows] += level + rise
                slack[rows] += np.abs(level) + np.abs(rise)
                counts[rows, panel] += 1
        found /= at_c[:, None]
        missed = counts @ (self.errors + 2 * self.errors[:, :1])
        return Product(k + np.log(at_c) + 16 * UNIT * slack, found, np.expm1(missed * (1 + 1e-9) + 1e-14))


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
    power = 0.5 * (3.0 ** np.arange(1, _ORDER) + 3.0 ** -np.arange(1, _ORDER))
    rest = np.maximum(sizes[0], 1e-300)
    moved = power @ sizes[1:] / rest * (1 + 1e-12)
    known = moved < 0.9
    left, right = (-1.0) ** np.arange(_ORDER) @ c_j / c_j[0], c_j.sum(axis=0) / c_j[0]
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
    lost = 2.34 * depth * 3.0 ** (1 - _ORDER) + 2 * apart + rounding
    return Panel(a, b, 0.0, coefficients, np.where(known, lost / a, math.inf)), np.asarray(
        own + np.angle(right), dtype=np.float64
    )


def _log_real(line: Line, x: Floats) -> RealValues:
    """log M(c; x) and its error."""
    c = np.array([line.c])
    pairs = (SampledGaussianTransform(math.sqrt(y), line.q, line.add).prepare(line.c, 1, -800.0, cut=False) for y in x)
    found = np.array([pair.log_real(c) for pair in pairs])[:, :, 0]
    return RealValues(found[:, 0], found[:, 1])


def _ellipse(a: float, b: float, grid: Floats, log_m: Floats, chord: Floats) -> float:
    """A bound of |M(s; x)e^{−ℓ(x)}| on the ellipse of parameter 6 around [a, b], arc by arc; grid is descending."""
    angle = np.linspace(0.0, math.pi, 65)
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    real = middle + half * (6 + 1 / 6) / 2 * np.cos(angle)
    imag = half * (6 - 1 / 6) / 2 * np.maximum(np.sin(angle[:-1]), np.sin(angle[1:])) * (1 + 1e-9)
    high, low = real[:-1], real[1:]
    v = high + imag**2 / low
    if v.max() > grid[0]:
        raise TableFailed("the ellipse leaves the grid")
    above = np.searchsorted(-grid, -v, side="right") - 1  # the next point of the grid that is not below v
    turned = 0.25 * np.log1p((imag / low) ** 2) + imag**2 / (8 * low)
    return math.exp(float(np.max(turned + log_m[above] - chord[0] - chord[1] * low)))


def _powers(line: Line, x: Floats) -> tuple[Complexes, Floats]:
    """M at all nodes for every x, shape (x, size), and a bound of its error, as one product."""
    p, rule = line.power, Rule.of(line, x, 5000)
    # Weight and power together, as one may underflow while the other overflows.
    large = np.exp(np.maximum(p * rule.log.real, 0.0) + rule.log_size)
    if not large.max() < 1e250:
        raise TableFailed("the transform overflows")
    value = fan(np.exp(p * rule.log + rule.log_size - 1j * rule.height * rule.t), rule.log, line.step, line.size)
    rounding = UNIT * (large @ (rule.t**2 + 2 * rule.t.size + 60))
    turning = 8 * UNIT * np.sum(large * rule.spread, axis=1)
    error = (rounding + rule.missed(value[:, 0]))[:, None] + np.hypot(p, line.s.imag) * turning[:, None]
    return (np.conj(value) if line.add else value), error * (1 + 1e-6)
