"""Contours of some records on one line: an upper bound of δ(ε), and where it is δ.

The weights are those of a majorant of the hockey stick; what is aliased from the left is known well enough to be
subtracted. What the polynomial of the other steps misses counts with its sign, to first order. Proofs:
``proofs/audit_few.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Complexes
from privcalc.numerics.records.bank import Bank
from privcalc.numerics.records.line import Line
from privcalc.numerics.records.majorant import weights
from privcalc.numerics.records.panels import Sheet
from privcalc.numerics.records.table import NormTable

DIGITS = 9.5
"""−log of the share of δ that aliasing from the right takes."""

_TRIES = 6
"""How often ε is raised until the bound of δ(ε) is at most δ."""


@dataclass(frozen=True, eq=False)
class Contour:
    """Some records on a line, in one direction.

    Attributes:
        line: where it runs; its rate says nothing.
        k: K(c), shape (n,).
        f: ω_k e^{K(c + iu) − K(c)}, shape (size, n).
        fixed: what its errors add to the sum of f, without the gaps of the tables, shape (n,).
        turning: the same for every unit of |ε|, shape (n,).
        rest: of the other steps: their polynomial, Σx of shape (n,), and their number at most.
    """

    line: Line
    k: Floats
    f: Complexes
    fixed: Floats
    turning: Floats
    rest: list[tuple[NormTable, Floats, int]]

    @classmethod
    def of(cls, parts: list[Bank], sheets: dict[float, Sheet], tables: list[NormTable | None]) -> Contour:
        """Products of the largest steps, by the sheet of their rate, sums of the others."""
        line = next(iter(sheets.values())).line
        k, product, missed = (
            np.zeros(len(parts[0].reach)),
            np.ones((1, line.size), dtype=np.complex128),
            np.zeros((1, line.size)),
        )
        for rate, sheet in sheets.items():
            largest = np.concatenate([part.largest for part in parts if part.rate == rate], axis=1)
            own = sheet.product(largest)
            # No factor exceeds 1, at most a computed one by what it misses.
            k, product, missed = k + own.k, product * own.ratio, missed + own.error + missed * own.error
        size_of = np.abs(product)
        known = [(part, table) for part, table in zip(parts, tables, strict=True) if table is not None]
        size = min([line.size, *(table.error.size for _, table in known)])
        power = np.zeros((k.size, size), dtype=np.complex128)
        error, unsigned = np.zeros((2, k.size, size))
        rest = []
        for part, whole in known:
            table, noise = whole.cut(size), part.unit * part.scale
            total = part.moments[:, 0] + noise
            power += part.moments @ table.coefficients
            if len(table.gap):
                unsigned += table.missed_beside_gap(total, noise, part.count)
                error += np.multiply.outer(total, np.abs(table.gap).sum(axis=1).max(axis=0))
            else:
                unsigned += table.missed(total, noise, part.count)
            rest.append((table, total, part.count))
        error += unsigned
        at_c = power[:, 0].real
        power = np.exp(power - at_c[:, None])
        # |e^K| ≤ e^{K(c)}, whatever is known of its argument.
        lost = (missed + size_of) * np.exp(error[:, :1])
        # e^E for what is missed, E, is 1, E's part with a sign, and this.
        beyond = np.expm1(error) - error + unsigned
        now = np.abs(power) * (missed[:, :size] * np.exp(error) + size_of[:, :size] * beyond)
        better = now < lost[:, :size]
        omega, omega_error, deficit = weights(line.c, line.step, line.size)
        fixed = lost @ omega_error + deficit * lost[:, 0]
        lost[:, :size] = np.where(better, now, lost[:, :size])
        product[:, :size] *= np.where(better, power, 0.0)
        product[:, size:] = 0.0
        f = (product * omega).T
        sizes = np.abs(f)
        rounding = UNIT * (8 * line.size + 96 + 32 * np.abs(k) + 32 * np.abs(at_c))
        signed = sizes[:size] * np.where(better, error, 0.0).T
        fixed = (fixed + lost @ np.abs(omega) + 8 * line.size * UNIT * signed.sum(axis=0)) * (1 + 1e-9)
        fixed += rounding * sizes.sum(axis=0)
        u = line.step * np.arange(line.size)
        turning = np.asarray(8 * UNIT * (u @ sizes + u[:size] @ signed), dtype=np.float64)
        return cls(line, k + at_c, np.ascontiguousarray(f), fixed, turning, rest)

    def invert(self, delta: float, least: Floats, known: Floats) -> Floats:
        """ε with upper(ε) ≤ δ, checked, at least ``least`` and at most ``known``."""
        line, goal = self.line, math.log(delta)
        # Near the period and above, what is aliased from the left is more than what is subtracted,
        # unless next to nothing is.
        half = math.pi / line.step if 2 * math.pi * line.c / line.step < 0.99 * (DIGITS - goal) else math.inf
        low, high = least.copy(), np.maximum(np.minimum(known, half), least)
        at_low, at_high = (self._log(self._sum(end), end) - goal for end in (low, high))
        epsilon = np.where(at_low <= 0, low, high)
        # Regula falsi (Illinois) where δ is not reached at ``low`` but is at ``high``, without the gaps.
        open_ = (at_high <= 0) & ~(at_low <= 0)
        for _ in range(24):
            if not np.any(open_ & (high - low > 3e-6 * high + 3e-8)):
                break
            share = np.clip(np.nan_to_num(at_low / (at_low - at_high), nan=0.5), 0.01, 0.99)
            middle = low + share * (high - low)
            value = self._log(self._sum(middle), middle) - goal
            below = value <= 0
            at_low, at_high = np.where(below, 0.5 * at_low, value), np.where(below, value, 0.5 * at_high)
            low, high = np.where(below, low, middle), np.where(below, middle, high)
            epsilon = np.where(open_ & below, np.minimum(epsilon, middle), epsilon)
        found = np.maximum(known, least)
        move = 1e-4 * epsilon + 1e-6
        slope = (self._log(self._sum(epsilon), epsilon) - self._log(self._sum(epsilon + move), epsilon + move)) / move
        slope = np.where(slope > 0, slope, line.c)
        for attempt in range(_TRIES):
            above = self.excess(epsilon, delta)
            found = np.where(above <= 0, np.minimum(found, epsilon), found)
            rows = (above > 0) & (above < 3.0) & (found > epsilon)
            if not rows.any():
                break
            epsilon = np.where(rows, epsilon + (above * (1.02 + 0.3 * attempt) + 1e-9) / slope, epsilon)
        return np.asarray(np.maximum(found, least), dtype=np.float64)

    def excess(self, epsilon: Floats, delta: float) -> Floats:
        """log of an upper bound of δ(ε), less log δ."""
        return np.asarray(
            self._log(self._sum(epsilon) + self._gaps(epsilon), epsilon) - math.log(delta), dtype=np.float64
        )

    def off(self, epsilon: Floats, delta: float) -> Floats:
        """By how many times 1e-4·ε + 1e-6 an ε is too large.

        It is an estimate, from sums without errors on two sizes of the line.
        """
        line = self.line
        some = round(line.size / math.sqrt(2))
        ratio = weights(line.c, line.step, some).weights / weights(line.c, line.step, line.size).weights[:some]
        tolerance = 1e-4 * epsilon + 1e-6
        bare = [self._sum(e, errors=False) for e in (epsilon, epsilon + tolerance)]
        coarse = self._sum(epsilon, ratio, errors=False)
        share = some**2 / (line.size**2 - some**2)  # the majorant's price falls like 1/size²
        here, next_ = (self._log(value, e) for value, e in zip(bare, (epsilon, epsilon + tolerance), strict=True))
        true = self._log(bare[0] - share * (coarse - bare[0]), epsilon)
        found = (math.log(delta) - true) / (here - next_)
        return np.asarray(np.where(epsilon > 0, np.nan_to_num(found, nan=math.inf), 0.0), dtype=np.float64)

    def _log(self, total: Floats, epsilon: Floats) -> Floats:
        """log of e^{K(c) − cε}·total without what aliases from the left: e^{−cmP}δ(ε − mP), at least 1 − e^{ε − mP}."""
        c, period = self.line.c, 2 * math.pi / self.line.step
        found = np.exp(self.k - c * epsilon) * (total + 8 * UNIT * c * np.abs(total) * np.abs(epsilon))
        before = np.floor(epsilon / period) * period
        ones = np.exp(-c * before) / np.expm1(c * period)
        powers = np.exp(epsilon - (c + 1) * before) / np.expm1((c + 1) * period)
        found -= (ones - powers) - 16 * UNIT * (1 + (c + 1) * (period + np.abs(epsilon))) * (ones + powers)
        found = np.log(np.where(found > 0, found, math.inf))
        return np.asarray(np.nan_to_num(found, nan=math.inf, posinf=math.inf), dtype=np.float64)

    def _sum(self, epsilon: Floats, ratio: Complexes | None = None, *, errors: bool = True) -> Floats:
        """Re Σ f_k e^{−iu_kε}, by Horner's rule, and what its errors add."""
        rows = self.f if ratio is None else self.f[: ratio.size] * ratio[:, None]
        z = np.exp(-1j * self.line.step * epsilon)
        total = np.zeros(epsilon.size, dtype=np.complex128)
        for row in rows[::-1]:
            total *= z
            total += row
        return np.asarray(
            total.real + (self.fixed + self.turning * np.abs(epsilon) if errors else 0.0), dtype=np.float64
        )

    def _gaps(self, epsilon: Floats) -> Floats:
        """A bound of Re Σ f_k e^{−iu_kε} Σ_t x_t gap(x_t): on each panel the inner sum is a polynomial in x_t."""
        found = np.zeros(epsilon.size)
        for table, total, count in self.rest:
            if not len(table.gap):
                continue
            size = table.error.size
            turned = self.f[:size] * np.exp(np.multiply.outer(-1j * self.line.step * np.arange(size), epsilon))
            shape = (-1, table.gap.shape[1], epsilon.size)
            flat = table.gap.reshape(-1, size)
            both = (flat.real @ turned.real - flat.imag @ turned.imag).reshape(shape)
            largest = np.maximum(both[:, 0] + np.abs(both[:, 1:]).sum(axis=1), 0.0)
            # From a panel on a bound times Σx, below it one for each step; any panel will do.
            above, below = np.zeros((2, len(largest) + 1, epsilon.size))
            above[:-1] = np.maximum.accumulate(largest[::-1])[::-1]
            below[1:] = np.maximum.accumulate(largest * table.ends[:, None])
            found += np.min(total * above + count * below, axis=0)
        return found
