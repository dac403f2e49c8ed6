"""ε of records whose loss few steps carry: their largest steps exactly, the others by moments.

    K(s) = Σ_{largest} log M(s; x) + Σ_j a_j(s) m_j

The weights of the nodes make the sum an upper bound whatever K is between and beyond them. What is aliased from the
left is known well enough to be subtracted; therefore c may be small, and the period as short as losses reach. Proofs:
``proofs/audit_few.md``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.elementary import log_mixture
from privcalc.numerics.floats import Floats
from privcalc.numerics.records.bank import CLOSE, Bank
from privcalc.numerics.records.contour import DIGITS, Contour
from privcalc.numerics.records.line import TableFailed
from privcalc.numerics.records.panels import PANELS, Sheet
from privcalc.numerics.records.table import unsampled

_CELLS = 600_000
"""Nodes times records that are evaluated together."""

_GRID, _FEW = (1.25, 1.5), 1000
"""Ratio of periods for so many records, and for more: the second makes half as many tables."""

_ALIAS = 6.0
"""−log of the share of δ that aliasing from the right may take, by a rough estimate from above."""

_EXACT = 14.0
"""c times the period is at least −log δ less this: what is subtracted must not cost too many digits."""


class Try(NamedTuple):
    """A way to choose the line.

    Attributes:
        nodes: how many.
        left: c times the period: small for a short period, large where K is not known well enough. None: as much as
            keeps out all that aliases from the left, at the c of Chernoff's bound; the only way where ε is larger than
            a period.
        most: tried if it is asked for so many records at most.
        least: and for more than this.
        signed: whether the sign of what the polynomial misses is used.
    """

    nodes: int
    left: float | None
    most: float
    least: int = 0
    signed: bool = True


TRIES = (
    Try(256, 2.5, math.inf, 30_000, signed=False),
    Try(1600, 2.5, 30_000),
    Try(6400, 2.5, 5_000),
    Try(1600, 6.0, 10_000),
    Try(1600, None, 10_000),
    Try(6400, 14.0, 5_000),
)


def epsilons(banks: list[Bank], delta: float, known: Floats, off: Floats, *, patient: bool = False) -> Floats:
    """Upper bounds of ε(δ) for every record, in both directions; what is known where this method has no smaller ones.

    Args:
        banks: what the records did, the same records in each.
        delta: δ in (0, 1).
        known: finite upper bounds.
        off: by about how many times 1e-4·ε + 1e-6 these may be off; those below CLOSE are left alone.
        patient: whether every way is tried for however many records.
    """
    found, apart = known.copy(), off.copy()
    for attempt in TRIES:
        rows = np.flatnonzero((apart > CLOSE) & (found > 0))
        asked = attempt.signed if patient else attempt.least < rows.size <= attempt.most
        if rows.size == 0 or not asked:
            continue
        own = [bank[rows] for bank in banks]
        new, new_apart = _attempt(own, delta, found[rows], attempt)
        apart[rows] = np.where(new < found[rows], new_apart, apart[rows])
        found[rows] = np.minimum(new, found[rows])
    return found


def _attempt(banks: list[Bank], delta: float, known: Floats, attempt: Try) -> tuple[Floats, Floats]:
    """What one way gives, and about how far it is off."""
    found, off = known.copy(), np.full(known.size, math.inf)
    need = -math.log(delta)
    left = None if attempt.left is None else max(attempt.left, need - _EXACT)
    periods = _periods(banks, need, left)

    for period in np.unique(periods):
        rows, line = np.flatnonzero(periods == period), (left or need + DIGITS) / period
        own = [bank[rows] for bank in banks]
        found[rows], off[rows] = _on_line(own, delta, known[rows], attempt, float(line), 2 * math.pi / float(period))
    return found, off


@np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
def _on_line(
    banks: list[Bank], delta: float, known: Floats, attempt: Try, c: float, step: float
) -> tuple[Floats, Floats]:
    """Upper ends of ε of records that share a line, and about how far each is off."""
    found, off = known.copy(), np.full(known.size, math.inf)
    reach = np.stack([bank.reach for bank in banks])
    sampled = [bank for bank in banks if bank.rate < 1]
    top = max(max(float(bank.largest.max(initial=0.0)), float(bank.reach.max())) for bank in sampled) * (1 + 1e-9)
    if top == 0:  # full batches at most, of which all is known
        return found, np.zeros(known.size)
    try:
        count = sum(bank.count for bank in banks)
        rates = sorted({bank.rate for bank in sampled})
        sheets = [{q: Sheet.of(q, add, c, step, attempt.nodes, top, count) for q in rates} for add in (False, True)]
    except (TableFailed, OverflowError):
        return found, off
    # The panel in which the reach lies, and the size of Σx: records that share all of them share polynomials.
    place = np.floor(2 * np.log2(top / np.maximum(reach, 1e-300)) - 1e-9)
    place = np.where(reach > 0, np.clip(place, 0, PANELS - 4), PANELS)
    total = np.floor(np.log2(np.maximum([bank.moments[:, 0] for bank in banks], 1e-300)))
    keys = np.concatenate([place, np.where(place < PANELS, total, 0)])
    kinds, which = np.unique(keys, axis=1, return_inverse=True)
    for kind, key in enumerate(kinds.T):
        rows = np.flatnonzero(which == kind)
        ends = top * 2.0 ** (-0.5 * key[: len(banks)])
        typical = [float(np.median(bank.moments[rows, 0])) / max(bank.count, 1) for bank in banks]
        try:
            tables = [
                [
                    sheet[bank.rate].rest(end, bank.domain, x, signed=attempt.signed)
                    if bank.rate < 1
                    else unsampled(c, step, attempt.nodes)
                    for end, bank, x in zip(ends, banks, typical, strict=True)
                ]
                for sheet in sheets
            ]
        except (TableFailed, OverflowError):
            continue
        together = max(_CELLS // attempt.nodes, 1)
        for start in range(0, rows.size, together):
            here = rows[start : start + together]
            worst, apart = np.zeros(here.size), np.zeros(here.size)
            for sheet, parts in zip(sheets, tables, strict=True):
                contour = Contour.of([bank[here] for bank in banks], sheet, parts)
                new = contour.invert(delta, worst, known[here])
                apart = np.where(new > worst, contour.off(new, delta), apart)
                worst = new
            found[here], off[here] = worst, apart
    return found, off


@np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
def _periods(banks: list[Bank], need: float, left: float | None) -> Floats:
    """2π/step for every record, on a grid, such that δ is next to nothing beyond ε + period.

    They are estimates that no bound relies on.
    """
    typical = np.stack(
        [0.5 * bank.domain * (1 + bank.moments[:, 1] / np.maximum(bank.moments[:, 0], 1e-300)) for bank in banks]
    )
    top = max(*(max(float(bank.largest.max(initial=0.0)), float(bank.reach.max())) for bank in banks), 1e-300)
    c = 0.02 * 1.2 ** np.arange(70.0)
    x = top * 2.0 ** np.arange(-16.0, 0.25, 0.25)
    log_m = {q: _log_real(x, q, c) for q in {bank.rate for bank in banks}}

    def bins(values: Floats) -> NDArray[np.intp]:
        return np.asarray(np.clip(np.ceil(4 * np.log2(np.maximum(values, 1e-300) / top)) + 64, 0, 64), dtype=np.intp)

    periods = np.empty(banks[0].reach.size)
    for start in range(0, periods.size, 20_000):
        rows = slice(start, start + 20_000)
        n = periods[rows].size
        total = np.zeros((n, c.size))
        for bank, size in zip(banks, typical[:, rows], strict=True):
            steps = np.zeros((n, x.size))
            for column in bank.largest[rows].T:
                steps[np.arange(n), bins(column)] += column > 0
            steps[np.arange(n), bins(size)] += bank.moments[rows, 0] / np.clip(size, x[0], top)
            total += steps @ log_m[bank.rate]
        periods[rows] = _period(c, total, need, left)
    ratio = _GRID[periods.size > _FEW]
    return np.asarray(ratio ** np.ceil(np.log(periods) / math.log(ratio)), dtype=np.float64)


def _period(c: Floats, total: Floats, need: float, left: float | None) -> Floats:
    """For each row of K(c)."""
    left_out = np.log1p(c) + c * np.log1p(1 / c)
    if left is None:
        # At a c below the saddle e^{cP} outweighs less of what aliases from the right: there M may grow like e^{c²}.
        saddle = c[np.argmin((total - left_out + need) / c, axis=1)]
        return np.asarray((need + DIGITS) / (saddle / 1.44), dtype=np.float64)
    # (1 − e^{ε − L})₊ is at most about (e^{cL} − 1 − cL)/(e^{cε} − 1 − cε): many see no jump,
    # and these tell nothing of the tail.
    log_e = np.where(total > 30, total, np.log(np.expm1(np.minimum(total, 30.0)))) - left_out

    def reach(digits: float) -> Floats:
        ratio = log_e + digits
        power = np.exp(np.minimum(ratio, 30.0))
        return np.asarray(
            np.min(np.where(ratio > 30, ratio, np.log1p(power + np.sqrt(2 * power))) / c, axis=1), dtype=np.float64
        )

    near, end = reach(need), reach(need + left + _ALIAS)
    # Where c is so large that e^{K(c) − cε} > e, errors of K are multiplied by more than needs be.
    worth = np.max(np.where(total - c * near[:, None] <= 1, c, c[0]), axis=1)
    return np.asarray(
        np.maximum(np.maximum(end - 0.8 * near, 2 * near), np.maximum(left / worth, 1e-6)), dtype=np.float64
    )


def _log_real(x: Floats, q: float, c: Floats) -> Floats:
    """log M(c; x), remove direction, roughly; shape (x, c)."""
    if q == 1:
        return np.asarray(np.multiply.outer(x, 0.5 * c * (c + 1)), dtype=np.float64)
    found = np.empty((x.size, c.size))
    for i, mu in enumerate(np.sqrt(x)):
        t = np.arange(-9.0, min((c[-1] + 1) * mu, 30.0) + 9.0, 0.1)
        log = np.multiply.outer(c + 1, log_mixture(float(mu), q, t)) - 0.5 * t * t
        peak = log.max(axis=1)
        found[i] = np.log(np.exp(log - peak[:, None]).sum(axis=1) * (0.1 * 0.3989422804014327)) + peak
        small = (c + 1) * mu < 0.5
        found[i, small] = 0.5 * c[small] * (c[small] + 1) * q * q * np.expm1(mu * mu)
        # What lies beyond: E[(qr)^{c + 1}].
        found[i] = np.where(
            (c + 1) * mu > 25, np.logaddexp(found[i], (c + 1) * (math.log(q) + 0.5 * c * mu * mu)), found[i]
        )
    return np.maximum(found, 0.0)
