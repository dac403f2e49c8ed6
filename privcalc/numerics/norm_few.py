"""ε of records whose loss few steps carry: their largest steps exactly, the others by moments, smoothed by a tiny Gaussian step.

    K(s) = Σ_{largest} log M(s; x) + Σ_j a_j(s) m_j + η² s(s + 1)/2

One more Gaussian step can only add to δ. It makes the integrand decay whatever the record did, so that nothing needs to be known
between or beyond the nodes: |M(c + iu)| ≤ M(c). Its price is about η²δ''/2. What is aliased from the left is known well enough to
be subtracted; therefore c may be small, and the period as short as losses reach. Proofs: ``proofs/audits.md``, §7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from privcalc.numerics.norm_bank import CLOSE, Bank
from privcalc.numerics.norm_sheet import PANELS, Sheet
from privcalc.numerics.norm_table import NormTable, TableFailed
from privcalc.numerics.normal import UNIT, Floats
from privcalc.numerics.sampled_gaussian import log_mixture
from privcalc.numerics.transform import Complexes

_CELLS = 600_000
"""Nodes times records that are evaluated together."""

_GRID = 1.4
"""Ratio of periods."""

_DIGITS = 9.5
"""−log of the share of δ that aliasing from the right takes."""

_EXACT = 14.0
"""c times the period is at least −log δ less this: what is subtracted must not cost too many digits."""

_SMOOTHINGS = (4.5, 6.0, 8.0)
"""η times the height of the last node."""


class Try(NamedTuple):
    """A way to choose the line.

    Attributes:
        nodes: how many.
        left: c times the period: small for a short period, large where K is not known well enough. None: as much as keeps out
            all that aliases from the left, at the c of Chernoff's bound; the only way where ε is larger than a period.
        most: of how many records at most, the furthest off.
        all_or_none: whether nothing is tried when more records than that need it.
    """

    nodes: int
    left: float | None
    most: int
    all_or_none: bool = False


TRIES = (
    Try(1600, 6.0, 6_000),
    Try(1600, 20.0, 3_000),
    Try(1600, None, 3_000),
    Try(6400, 2.5, 1_000, True),
    Try(6400, 14.0, 1_000, True),
)


def epsilons(banks: list[Bank], q: float, delta: float, known: Floats, off: Floats) -> Floats:
    """Upper bounds of ε(δ) for every record, in both directions; what is known where this method has no smaller ones.

    Args:
        banks: what the records did, the same records in each.
        q: sampling rate in (0, 1).
        delta: δ in (0, 1).
        known: finite upper bounds.
        off: by about how many times 1e-4·ε + 1e-6 these may be off; those below CLOSE are left alone.
    """
    found, apart = known.copy(), off.copy()
    for attempt in TRIES:
        rows = np.flatnonzero((apart > CLOSE) & (found > 0))
        if rows.size > attempt.most and attempt.all_or_none:
            break
        rows = np.sort(rows[np.argsort(-apart[rows], kind="stable")[: attempt.most]])
        if rows.size:
            new, new_apart = _attempt([bank[rows] for bank in banks], q, delta, found[rows], attempt)
            apart[rows] = np.where(new < found[rows], new_apart, apart[rows])
            found[rows] = np.minimum(new, found[rows])
    return found


@np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
def _attempt(banks: list[Bank], q: float, delta: float, known: Floats, attempt: Try) -> tuple[Floats, Floats]:
    """What one way gives, and about how far it is off."""
    found, off = known.copy(), np.full(known.size, math.inf)
    reach = np.stack([bank.reach for bank in banks])
    largest = np.concatenate([bank.largest for bank in banks], axis=1)
    top = np.maximum(largest.max(axis=1, initial=0.0), reach.max(axis=0))
    need = -math.log(delta)
    left = None if attempt.left is None else max(attempt.left, need - _EXACT)
    periods = _periods(banks, largest, float(top.max()), q, need, left)
    count = sum(bank.count for bank in banks)
    for period in np.unique(periods):
        own = np.flatnonzero(periods == period)
        above = float(top[own].max()) * (1 + 1e-9)
        if above == 0:
            found[own] = 0.0
            continue
        try:
            line, step = (left or need + _DIGITS) / float(period), 2 * math.pi / float(period)
            sheets = [Sheet.of(q, add, line, step, attempt.nodes, above, count) for add in (False, True)]
        except (TableFailed, OverflowError):
            continue
        # The panel in which the reach lies, and the size of Σx: records that share all of them share polynomials.
        place = np.floor(2 * np.log2(above / np.maximum(reach[:, own], 1e-300)) - 1e-9)
        place = np.where(reach[:, own] > 0, np.clip(place, 0, PANELS - 4), PANELS)
        total = np.floor(np.log2(np.maximum([bank.moments[own, 0] for bank in banks], 1e-300)))
        keys = np.concatenate([place, np.where(place < PANELS, total, 0)])
        for key in np.unique(keys, axis=1).T:
            rows, panel = own[(keys == key[:, None]).all(axis=0)], key[: len(banks)]
            typical = [float(np.median(bank.moments[rows, 0])) / max(bank.count, 1) for bank in banks]
            reaches = above * 2.0 ** (-0.5 * panel)
            try:
                tables = [
                    [sheet.rest(end, bank.domain, x) for end, bank, x in zip(reaches, banks, typical, strict=True)]
                    for sheet in sheets
                ]
            except (TableFailed, OverflowError):
                continue
            together = _CELLS // attempt.nodes
            for start in range(0, rows.size, together):
                here = rows[start : start + together]
                worst, apart = np.zeros(here.size), np.zeros(here.size)
                for sheet, parts in zip(sheets, tables, strict=True):
                    contour = _Contour.of([bank[here] for bank in banks], largest[here], sheet, parts)
                    new = contour.invert(delta, worst, known[here])
                    apart = np.where(new > worst, contour.off(new, delta), apart)
                    worst = new
                found[here], off[here] = worst, apart
    return found, off


def _periods(banks: list[Bank], largest: Floats, top: float, q: float, need: float, left: float | None) -> Floats:
    """2π/step for every record, on a grid: beyond ε + period, δ shall be next to nothing. Estimates that no bound relies on."""
    far = need + (left or 0.0) + _DIGITS
    c = 0.02 * 1.2 ** np.arange(70.0)
    x = max(top, 1e-300) * 2.0 ** np.arange(-16.0, 0.5, 0.5)
    log_m = np.log(np.maximum(_log_real(x, q, c), 1e-300))
    log_x, at = np.log(x), np.log(np.maximum(largest, 1e-300))
    near, end = np.full((2, largest.shape[0]), math.inf)
    saddle = np.full(largest.shape[0], c[0])
    for k, value in enumerate(c):
        total = np.where(largest > 0, np.exp(np.interp(at, log_x, log_m[:, k])), 0.0).sum(axis=1)
        for bank in banks:
            own = bank.moments[:, 0]
            typical = np.clip(0.5 * bank.domain * (1 + bank.moments[:, 1] / np.maximum(own, 1e-300)), x[0], x[-1])
            total += np.exp(np.interp(np.log(typical), log_x, log_m[:, k])) * own / typical
        total -= math.log1p(value) + value * math.log1p(1 / value)
        saddle = np.where((total + need) / value < near, value, saddle)
        near, end = np.minimum(near, (total + need) / value), np.minimum(end, (total + far) / value)
    short = np.maximum(np.maximum(end - 0.8 * near, 2 * near), 1e-6)
    # At a c below the saddle e^{cP} outweighs less of what aliases from the right: there M may grow like e^{c²}.
    period = short if left is not None else (need + _DIGITS) / (saddle / 1.44)
    return np.asarray(_GRID ** np.ceil(np.log(period) / math.log(_GRID)), dtype=np.float64)


def _log_real(x: Floats, q: float, c: Floats) -> Floats:
    """log M(c; x), remove direction, roughly; shape (x, c)."""
    found = np.empty((x.size, c.size))
    for i, mu in enumerate(np.sqrt(x)):
        t = np.arange(-9.0, min((c[-1] + 1) * mu, 30.0) + 9.0, 0.1)
        log = np.multiply.outer(c + 1, log_mixture(float(mu), q, t)) - 0.5 * t * t
        peak = log.max(axis=1)
        found[i] = np.log(np.exp(log - peak[:, None]).sum(axis=1) * (0.1 * 0.3989422804014327)) + peak
        small = (c + 1) * mu < 0.5
        found[i, small] = 0.5 * c[small] * (c[small] + 1) * q * q * np.expm1(mu * mu)
        # What lies beyond: E[(qr)^{c + 1}].
        found[i] = np.where((c + 1) * mu > 25, np.logaddexp(found[i], (c + 1) * (math.log(q) + 0.5 * c * mu * mu)), found[i])
    return np.maximum(found, 0.0)


@dataclass(frozen=True, eq=False)
class _Contour:
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
    def of(cls, parts: list[Bank], largest: Floats, sheet: Sheet, tables: list[NormTable | None]) -> _Contour:
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
        half = math.pi / line.step if 2 * math.pi * line.c / line.step < 0.99 * (_DIGITS - goal) else math.inf
        found = np.maximum(known, least)
        for times in _SMOOTHINGS:
            if np.all(found <= least):
                break
            smooth = _Smooth.of(self, times / (line.step * line.size), goal)
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
            for smooth in (_Smooth.of(self, times * eta, goal) for times in (1.0, math.sqrt(2)))
        )
        tolerance = 1e-4 * epsilon + 1e-6
        here, next_ = (np.exp(one.excess(epsilon + move)) for move in (0.0, tolerance))
        true = 2 * here - np.exp(two.excess(epsilon))  # δ grows like η²
        found = np.log(np.maximum(true, 1e-300)) / np.log(next_ / here)
        return np.asarray(np.where(epsilon > 0, np.nan_to_num(found, nan=math.inf), 0.0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Smooth:
    """The contour with one more Gaussian step of μ = η."""

    c: float
    step: float
    goal: float
    top: Floats
    f: Complexes
    fixed: Floats
    turning: Floats

    @classmethod
    def of(cls, contour: _Contour, eta: float, goal: float) -> _Smooth:
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
        fixed = (fall @ contour.error + tail + rounding) * (1 + 1e-12)
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
