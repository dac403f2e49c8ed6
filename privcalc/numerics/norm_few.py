"""ε of records whose loss few steps carry: their largest steps exactly, the others by moments, smoothed by a tiny Gaussian step.

    K(s) = Σ_{largest} log M(s; x) + Σ_j a_j(s) m_j + η² s(s + 1)/2

One more Gaussian step can only add to δ. It makes the integrand decay whatever the record did, so that nothing needs to be known
between or beyond the nodes: |M(c + iu)| ≤ M(c). Its price is about η²δ''/2. What is aliased from the left is known well enough to
be subtracted; therefore c may be small, and the period as short as losses reach. Proofs: ``proofs/audits.md``, §7.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from privcalc.numerics.norm_bank import CLOSE, Bank
from privcalc.numerics.norm_contour import DIGITS, Contour
from privcalc.numerics.norm_line import TableFailed
from privcalc.numerics.norm_sheet import PANELS, Sheet
from privcalc.numerics.normal import Floats
from privcalc.numerics.sampled_gaussian import log_mixture

_CELLS = 600_000
"""Nodes times records that are evaluated together."""

_GRID = 1.4
"""Ratio of periods."""

_EXACT = 14.0
"""c times the period is at least −log δ less this: what is subtracted must not cost too many digits."""


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
            line, step = (left or need + DIGITS) / float(period), 2 * math.pi / float(period)
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
                    contour = Contour.of([bank[here] for bank in banks], largest[here], sheet, parts)
                    new = contour.invert(delta, worst, known[here])
                    apart = np.where(new > worst, contour.off(new, delta), apart)
                    worst = new
                found[here], off[here] = worst, apart
    return found, off


def _periods(banks: list[Bank], largest: Floats, top: float, q: float, need: float, left: float | None) -> Floats:
    """2π/step for every record, on a grid: beyond ε + period, δ shall be next to nothing. Estimates that no bound relies on."""
    far = need + (left or 0.0) + DIGITS
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
    period = short if left is not None else (need + DIGITS) / (saddle / 1.44)
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
