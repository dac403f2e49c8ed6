"""Contours of some records on one line: an upper bound of δ(ε), smoothed by a tiny Gaussian step, and where it is δ.

What is aliased from the left is known well enough to be subtracted. Proofs: ``proofs/audits.md``, §7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privcalc.numerics.norm_bank import Bank
from privcalc.numerics.norm_sheet import Sheet
from privcalc.numerics.norm_table import NormTable
from privcalc.numerics.normal import UNIT, Floats
from privcalc.numerics.transform import Complexes

DIGITS = 9.5
"""−log of the share of δ that aliasing from the right takes."""

_SMOOTHINGS = (4.5, 6.0, 8.0)
"""η times the height of the last node."""


@dataclass(frozen=True, eq=False)
class Contour:
    """Some records on a line, in one direction, without smoothing.

    Attributes:
        sheet: the line.
        k: K(c), shape (n,), and an upper bound of its error, shape (n,).
        f: e^{K(c + iu) − K(c)}/(s(s + 1)), shape (size, n), the first halved.
        error: bounds of its error, shape (size, n).
    """

    sheet: Sheet
    k: Floats
    k_error: Floats
    f: Complexes
    error: Floats

    @classmethod
    def of(cls, parts: list[Bank], largest: Floats, sheet: Sheet, tables: list[NormTable | None]) -> Contour:
        """Products of the largest steps, sums of the others."""
        s = sheet.line.s
        k, product, missed = sheet.product(largest)
        k_error = np.log1p(missed[:, 0])
        for part, table in zip(parts, tables, strict=True):
            if table is None:
                continue
            known = slice(0, table.error.size)
            noise = part.unit * part.scale
            total = part.moments[:, 0] + noise
            error = table.missed(total, noise, part.count)
            both = part.moments @ table.coefficients
            power = np.exp(both - both[:, :1].real)
            # |e^K| ≤ e^{K(c)}, whatever is known of its argument.
            bound = np.exp(2 * error[:, :1])
            size = np.abs(product)
            now = missed[:, known] * bound + size[:, known] * np.abs(power) * np.expm1(error)
            missed = (missed + size) * bound
            # Where less is known of K than that.
            vague = now > missed[:, known]
            missed[:, known] = np.minimum(missed[:, known], now)
            product[:, known] *= np.where(vague, 0.0, power)
            product[:, table.error.size :] = 0.0
            k = k + both[:, 0].real
            k_error = k_error + error[:, 0]
        weight = 1 / (s * (s + 1))
        weight[0] *= 0.5
        f = np.ascontiguousarray((product * weight).T)
        return cls(sheet, k, k_error + 16 * UNIT * np.abs(k), f, (missed * np.abs(weight)).T)

    def invert(self, delta: float, least: Floats, known: Floats) -> Floats:
        """ε with upper(ε) ≤ δ, checked, the smallest of all smoothings, at least ``least`` and at most ``known``."""
        line, goal = self.sheet.line, math.log(delta)
        # Near the period and above, what is aliased from the left is more than what is subtracted, unless next to nothing is.
        half = math.pi / line.step if 2 * math.pi * line.c / line.step < 0.99 * (DIGITS - goal) else math.inf
        found = np.maximum(known, least)
        for times in _SMOOTHINGS:
            if np.all(found <= least):
                break
            smooth = Smooth.of(self, times / (line.step * line.size), goal)
            low, high = least.copy(), np.maximum(np.minimum(found, half), least)
            at_low, at_high = smooth.excess(low), smooth.excess(high)
            found = np.where(at_high <= 0, high, found)
            found = np.where(at_low <= 0, low, found)
            # Regula falsi (Illinois) where the bound holds at ``high`` but not at ``low``.
            open_ = (at_high <= 0) & ~(at_low <= 0)
            for _ in range(24):
                if not np.any(open_ & (high - low > 3e-6 * high + 3e-8)):
                    break
                share = np.clip(np.nan_to_num(at_low / (at_low - at_high), nan=0.5), 0.01, 0.99)
                middle = low + share * (high - low)
                value = smooth.excess(middle)
                below = value <= 0
                at_low, at_high = (
                    np.where(below, 0.5 * at_low, value),
                    np.where(below, value, 0.5 * at_high),
                )
                low, high = np.where(below, low, middle), np.where(below, middle, high)
                found = np.where(open_ & below, np.minimum(found, middle), found)
        return np.asarray(np.maximum(found, least), dtype=np.float64)

    def off(self, epsilon: Floats, delta: float) -> Floats:
        """By how many times 1e-4·ε + 1e-6 an ε is too large, without the bounds of errors and smoothing: an estimate."""
        line, goal = self.sheet.line, math.log(delta)
        eta = _SMOOTHINGS[0] / (line.step * line.size)
        one, two = (
            replace(smooth, fixed=0 * smooth.fixed, turning=0 * smooth.turning)
            for smooth in (Smooth.of(self, times * eta, goal) for times in (1.0, math.sqrt(2)))
        )
        tolerance = 1e-4 * epsilon + 1e-6
        here, next_ = (np.exp(one.excess(epsilon + move)) for move in (0.0, tolerance))
        true = 2 * here - np.exp(two.excess(epsilon))  # δ grows like η²
        found = np.log(np.maximum(true, 1e-300)) / np.log(next_ / here)
        return np.asarray(np.where(epsilon > 0, np.nan_to_num(found, nan=math.inf), 0.0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Smooth:
    """The contour with one more Gaussian step of μ = η."""

    c: float
    step: float
    goal: float
    top: Floats
    f: Complexes
    fixed: Floats
    turning: Floats

    @classmethod
    def of(cls, contour: Contour, eta: float, goal: float) -> Smooth:
        """Everything that does not depend on ε."""
        line = contour.sheet.line
        c, h, u = line.c, line.step, line.step * np.arange(line.size)
        end = h * line.size
        fall = np.exp(-0.5 * np.square(eta * u))
        f = contour.f * (fall * np.exp(0.5j * eta * eta * u * (2 * c + 1)))[:, None]
        size = np.abs(f)
        rounding = UNIT * (8 * u.size + 96 + 32 * np.abs(contour.k)) * size.sum(axis=0)
        # Nodes from ``end`` on: |e^{K(s) − K(c)}| ≤ 1, and Σ 1/u² ≤ 1/(h(end − h)).
        tail = np.exp(contour.k_error) * math.exp(-0.5 * (eta * end) ** 2) / (h * (end - h))
        fixed = (fall @ contour.error + tail + rounding) * (1 + 1e-9)
        top = contour.k + 0.5 * eta * eta * c * (c + 1) + math.log(h / math.pi)
        return cls(c, h, goal, top, f, fixed, 4 * UNIT * (u @ size))

    def excess(self, epsilon: Floats) -> Floats:
        """log of an upper bound of δ(ε), less the goal."""
        total = self._sum(epsilon)
        whole = total.real + self.fixed + (self.turning + 8 * UNIT * self.c * np.abs(total)) * np.abs(epsilon)
        found = np.exp(self.top - self.c * epsilon) * whole
        # From the left δ(ε − mP) ≥ 1 − e^{ε − mP} is aliased, times e^{−cmP}, for all m with mP > ε.
        period = 2 * math.pi / self.step
        before = np.floor(epsilon / period) * period
        ones = np.exp(-self.c * before) / np.expm1(self.c * period)
        powers = np.exp(epsilon - (self.c + 1) * before) / np.expm1((self.c + 1) * period)
        found -= (ones - powers) - 16 * UNIT * (1 + (self.c + 1) * (period + np.abs(epsilon))) * (ones + powers)
        found = np.log(np.where(found > 0, found, math.inf)) - self.goal
        return np.asarray(np.nan_to_num(found, nan=math.inf, posinf=math.inf), dtype=np.float64)

    def _sum(self, epsilon: Floats) -> Complexes:
        """Σ f_k e^{−iu_kε}, by Horner's rule."""
        z = np.exp(-1j * self.step * epsilon)
        total = np.zeros(epsilon.size, dtype=np.complex128)
        for row in self.f[::-1]:
            total *= z
            total += row
        return total
