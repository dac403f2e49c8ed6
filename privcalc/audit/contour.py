"""Contours of some records on one line: an upper bound of δ(ε), and where it is δ.

A sum over finitely many nodes of a transform is E[τ(L)] for a trigonometric polynomial τ. The weights here make τ a
majorant of the hockey stick, which it touches half-way between multiples of its resolution: nothing need be known of
the transform between or beyond the nodes. The price is the density of L at ε times resolution²/24. What is aliased from
the left is known well enough to be subtracted, and what the polynomial of the other steps misses counts with its sign,
to first order. Proofs: ``proofs/audit_majorant.md``, ``proofs/audit_few.md``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.audit.panels import BLOCK, Sheet
from privcalc.audit.polynomial import Line, NormTable
from privcalc.audit.sums import Bank
from privcalc.numerics.floats import UNIT, Complexes, Floats
from privcalc.numerics.routes.rules import Indices

DIGITS = 9.5
"""−log of the share of δ that aliasing from the right takes."""

_PASSES, _NEAR, _TRIES = 30, 1e-7, 6
"""Steps of Newton's method, or bisection, and |log| over δ where they end; how often ε is raised until δ is reached."""

_FINE = 1e-4
"""Share of δ that may be added for gaps without their signs."""


class Majorant(NamedTuple):
    """A trigonometric polynomial that, with its deficit, is nowhere below the payoff.

    Attributes:
        weights: ω_k.
        rounding: bounds of their errors.
        deficit: D; ∞ where there is none.
    """

    weights: Complexes
    rounding: Floats
    deficit: float


@functools.lru_cache(maxsize=16)
def weights(c: float, step: float, size: int) -> Majorant:
    """ω_k, bounds of their roundings, and D such that, with P = 2π/step, for every real ε and every distribution of L,

        e^{−cε}·(Re Σ_k ω_k E[e^{(c + ik·step)L}]e^{−ik·step·ε} + D·E[e^{cL}]) ≥ Σ_m e^{cmP} E[(1 − e^{ε + mP − L})₊].

    Args:
        c: real part of the line, > 0.
        step: distance of the nodes.
        size: their number.
    """
    k = np.arange(size, dtype=np.float64)
    resolution = 2 * math.pi / (step * size)
    turn = -0.5j * resolution / math.pi
    # W(s) = (1 − ν)/(2i sin πν), ν = resolution·s/2πi; from 1/2 on by sin πν = sin π(1 − ν).
    first, second = (_half(k, size, turn * real) for real in (c, c + 1))
    share = np.where(k > 0, 2 / size, 1 / size)
    found = (first - second) * share
    # The sine of x inherits its argument's rounding x/tan x times, which is at most 1 + |Im x|.
    rounding = 16 * UNIT * (np.abs(first) + np.abs(second)) * share * (1 + abs(turn) * (c + 1))
    if not resolution * (2 * c + 1.5) <= 3:
        return Majorant(np.asarray(found, dtype=np.complex128), np.asarray(rounding, dtype=np.float64), math.inf)
    deficit = resolution**3 * (2 * c + 1) * ((2 * c + 1) / (48 * math.pi**2) + step / (96 * math.pi**2))
    return Majorant(np.asarray(found, dtype=np.complex128), rounding, deficit * (1 + 1e-9))


def _half(k: Floats, size: int, shift: complex) -> Complexes:
    rest = (size - k) / size - shift
    near = np.where(2 * k < size, k / size + shift, rest)
    return np.asarray(rest / (2j * np.sin(math.pi * near)), dtype=np.complex128)


@dataclass(frozen=True, eq=False)
class Contour:
    """Some records on a line, in one direction.

    Attributes:
        line: where it runs.
        k: K(c), shape (n,).
        f: ω_k e^{K(c + iu) − K(c)} at the first nodes, shape (n, any).
        fixed: what its errors add to the sum of f, without the gaps of the tables, shape (n,).
        turning: the same for every unit of |ε|, shape (n,).
        unsigned: what the gaps add at most, shape (n,).
        rest: of the other steps: their polynomial, Σx of shape (n,), and their number at most.
    """

    line: Line
    k: Floats
    f: Complexes
    fixed: Floats
    turning: Floats
    unsigned: Floats
    rest: list[tuple[NormTable, Floats, int]]

    @classmethod
    def of(
        cls,
        parts: list[Bank],
        sheets: dict[float, Sheet],
        tables: list[NormTable | None],
        end: int | None = None,
        tail: Floats | float = 0.0,
    ) -> Contour:
        """Products of the largest steps, by the sheet of their rate, sums of the others.

        Args:
            parts: the records.
            sheets: of every rate that is sampled.
            tables: of the other steps; a part without any has none.
            end: how many nodes are evaluated, a multiple of BLOCK; None: all.
            tail: bounds of Σ |ω_k||e^{K − K(c)}| over all that follow, shape (n,).
        """
        line, n = next(iter(sheets.values())).line, len(parts[0].reach)
        end = line.size if end is None else end
        k, product = np.zeros(n), np.ones((1, end), dtype=np.complex128)
        missed = np.zeros((1, end))
        for rate, sheet in sheets.items():
            largest = np.concatenate([part.largest for part in parts if part.rate == rate], axis=1)
            if not largest.size:
                continue
            own = sheet.product(largest, end)
            # No factor exceeds 1, at most a computed one by what it misses.
            k, product, missed = k + own.k, product * own.ratio, missed + own.error + missed * own.error
        known = [(part, table) for part, table in zip(parts, tables, strict=True) if table is not None]
        size = min([end, *(table.vague.size for _, table in known)])
        power = np.zeros((n, size), dtype=np.complex128)
        gap, others = np.zeros((2, n, size))
        rest = []
        for part, whole in known:
            table, noise = whole.cut(size), part.unit * part.scale
            total = part.moments[:, 0] + noise
            both = part.moments @ np.concatenate([table.coefficients.real, table.coefficients.imag], axis=1)
            power += both[:, :size] + 1j * both[:, size:]
            others += table.missed(total, noise, part.count)
            gap += np.multiply.outer(total, table.sizes())
            rest.append((table, total, part.count))
        error = gap + others
        at_c = power[:, 0].real
        power = np.exp(power - at_c[:, None])
        # |e^K| ≤ e^{K(c)}, whatever is known of its argument.
        moduli = np.abs(product)
        lost = np.broadcast_to((missed + moduli) * np.exp(error[:, :1]), (n, end)).copy()
        # e^E for what is missed, E, is 1, E's part with a sign, and this.
        beyond = np.expm1(error) - error + others
        now = np.abs(power) * (missed[:, :size] * np.exp(error) + moduli[:, :size] * beyond)
        better = now < lost[:, :size]
        omega, omega_error, deficit = weights(line.c, line.step, line.size)
        omega, omega_error = omega[:end], omega_error[:end]
        fixed = lost @ omega_error + deficit * lost[:, 0] + tail * (1 + missed[:, 0]) * np.exp(error[:, 0])
        lost[:, :size] = np.where(better, now, lost[:, :size])
        product = np.broadcast_to(product, (n, end)) * omega
        product[:, :size] *= np.where(better, power, 0.0)
        product[:, size:] = 0.0
        moduli = np.abs(product)
        signed = moduli[:, :size] * np.where(better, gap, 0.0)
        fixed = (fixed + lost @ np.abs(omega)) * (1 + 1e-9) + 8 * end * UNIT * signed.sum(axis=1)
        fixed += UNIT * (8 * end + 96 + 32 * np.abs(k) + 32 * np.abs(at_c)) * moduli.sum(axis=1)
        u = line.step * np.arange(end)
        turning = 8 * UNIT * (moduli @ u + signed @ u[:size])
        return cls(line, k + at_c, product, fixed, turning, signed.sum(axis=1) * (1 + 1e-9), rest)

    def invert(self, delta: float, start: Floats, least: Floats, known: Floats) -> Floats:
        """ε with upper(ε) ≤ δ, checked, at least ``least`` and at most ``known``; the search begins at ``start``."""
        line, goal = self.line, math.log(delta)
        # Near the period and above, what is aliased from the left is more than what is subtracted,
        # unless next to nothing is.
        half = math.pi / line.step if 2 * math.pi * line.c / line.step < 0.99 * (DIGITS - goal) else math.inf
        low, high = least.copy(), np.maximum(np.minimum(known, half), least)
        found = np.where(self.excess(least, delta) <= 0, least, np.maximum(known, least))
        open_ = found > least
        epsilon = np.where(open_, np.clip(start, low, high), least)
        slope = np.full(epsilon.size, -line.c)
        for _ in range(_PASSES):
            if not open_.any():
                break
            value, new = self._newton(epsilon)
            value = np.where(np.isfinite(value), value - goal, np.nan)
            slope = np.where(open_ & (new < 0), new, slope)
            low, high = np.where(value > 0, epsilon, low), np.where(value > 0, high, epsilon)
            open_ &= ~(np.abs(value) < _NEAR) & (high - low > 1e-9 * high + 1e-12)
            to = epsilon - value / slope
            to = np.where((np.abs(value) < 3.0) & (to > low) & (to < high), to, 0.5 * (low + high))
            epsilon = np.where(open_, to, epsilon)
        for attempt in range(_TRIES):
            above = self.excess(epsilon, delta)
            found = np.where(above <= 0, np.minimum(found, np.maximum(epsilon, least)), found)
            rows = (above > 0) & (above < 3.0) & (found > epsilon)
            if not rows.any():
                break
            epsilon = np.where(rows, epsilon - (above * (1.02 + 0.3 * attempt) + 1e-9) / slope, epsilon)
        return found

    def excess(self, epsilon: Floats, delta: float) -> Floats:
        """log of an upper bound of δ(ε), less log δ."""
        gaps = self.unsigned.copy()
        large = np.flatnonzero(gaps * np.exp(self.k - self.line.c * epsilon) > _FINE * delta)
        if large.size:
            gaps[large] = np.minimum(gaps[large], self._gaps(epsilon[large], large))
        total = self._sums(epsilon)[0].real + self.fixed + self.turning * np.abs(epsilon) + gaps
        return np.asarray(self._log(total, epsilon) - math.log(delta), dtype=np.float64)

    def off(self, epsilon: Floats, delta: float) -> Floats:
        """By how many times 1e-4·ε + 1e-6 an ε is too large.

        It is an estimate, from sums without errors on two sizes of the line.
        """
        line = self.line
        some = 3 * line.size // 4
        ratio = weights(line.c, line.step, some).weights / weights(line.c, line.step, line.size).weights[:some]
        next_ = epsilon + 1e-4 * epsilon + 1e-6
        here, there = self._sums(epsilon)[0].real, self._sums(next_)[0].real
        used = min(some, self.f.shape[1])
        coarse = self._sums(epsilon, self.f[:, :used] * ratio[:used])[0].real
        true = here - 9 / 7 * (coarse - here)  # the majorant's price falls like 1/size²
        logs = [self._log(total, at) for total, at in ((here, epsilon), (there, next_), (true, epsilon))]
        found = (math.log(delta) - logs[2]) / (logs[0] - logs[1])
        return np.asarray(
            np.where(epsilon > 0, np.abs(np.nan_to_num(found, nan=math.inf, neginf=math.inf)), 0.0), dtype=np.float64
        )

    def _newton(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """log of about an upper bound of δ(ε), without gaps, and its slope."""
        c = self.line.c
        total, turned = self._sums(epsilon)
        value = self._log(total.real + self.fixed + self.turning * np.abs(epsilon), epsilon)
        falls = np.exp(self.k - c * epsilon) * (self.line.step * turned.imag - c * total.real)
        return value, (falls + self._left(epsilon)[1]) * np.exp(-value)

    def _left(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Σ_m e^{−cmP} and Σ_m e^{−cmP}e^{ε − mP}, over mP > ε: their difference is aliased from the left, at least."""
        c, period = self.line.c, 2 * math.pi / self.line.step
        before = np.floor(epsilon / period) * period
        ones, powers = (math.exp(-x) / -math.expm1(-x) for x in (c * period, (c + 1) * period))
        return ones * np.exp(-c * before), powers * np.exp(epsilon - (c + 1) * before)

    def _log(self, total: Floats, epsilon: Floats) -> Floats:
        """log of e^{K(c) − cε}·total without what aliases from the left: e^{−cmP}δ(ε − mP), at least 1 − e^{ε − mP}."""
        c, period = self.line.c, 2 * math.pi / self.line.step
        found = np.exp(self.k - c * epsilon) * (total + 8 * UNIT * c * np.abs(total) * np.abs(epsilon))
        ones, powers = self._left(epsilon)
        found -= (ones - powers) - 16 * UNIT * (1 + (c + 1) * (period + np.abs(epsilon))) * (ones + powers)
        found = np.log(np.where(found > 0, found, math.inf))
        return np.asarray(np.nan_to_num(found, nan=math.inf, posinf=math.inf), dtype=np.float64)

    def _sums(self, epsilon: Floats, f: Complexes | None = None) -> tuple[Complexes, Complexes]:
        """Σ f_k e^{−iu_kε}, and the same with every term times k."""
        f = self.f if f is None else f
        turn, j = -1j * self.line.step * epsilon[:, None], np.arange(BLOCK)
        starts = np.arange(0, f.shape[1], BLOCK)
        small, large = np.exp(turn * j), np.exp(turn * starts)
        inner = f.reshape(len(f), -1, BLOCK) @ np.stack([small, small * j], axis=-1)
        total = (large * inner[:, :, 0]).sum(axis=-1)
        return total, (large * (inner[:, :, 1] + inner[:, :, 0] * starts)).sum(axis=-1)

    def _gaps(self, epsilon: Floats, rows: Indices) -> Floats:
        """A bound of Re Σ f_k e^{−iu_kε} Σ_t x_t gap(x_t): on each panel the inner sum is a polynomial in x_t."""
        found = np.zeros(epsilon.size)
        for table, total, count in self.rest:
            if not len(table.gap):
                continue
            size = table.vague.size
            turn = np.multiply.outer(-1j * self.line.step * np.arange(size), epsilon)
            turned = self.f[rows, :size].T * np.exp(turn)
            flat = table.gap.reshape(-1, size)
            both = flat.real @ turned.real - flat.imag @ turned.imag
            both = both.reshape(-1, table.gap.shape[1], epsilon.size)
            largest = np.maximum(both[:, 0] + np.abs(both[:, 1:]).sum(axis=1), 0.0)
            # From a panel on a bound times Σx, below it one for each step; any panel will do.
            above, below = np.zeros((2, len(largest) + 1, epsilon.size))
            above[:-1] = np.maximum.accumulate(largest[::-1])[::-1]
            below[1:] = np.maximum.accumulate(largest * table.ends[:, None])
            found += np.min(total[rows] * above + count * below, axis=0)
        return found
