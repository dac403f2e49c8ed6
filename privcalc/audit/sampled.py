"""ε of many records in sampled steps: their largest steps exactly, the others by moments.

    K(s) = Σ_{largest} log M(s; x) + Σ_j a_j(s) m_j

The weights of the nodes make the sum an upper bound whatever K is between and beyond them. What is aliased from the
left is known well enough to be subtracted; therefore c may be small, and the period as short as losses reach. Proofs:
``proofs/audit_few.md``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privcalc.audit import gdp
from privcalc.audit.contour import DIGITS, Contour, weights
from privcalc.audit.panels import BLOCK, PANELS, Law, Sheet
from privcalc.audit.polynomial import Line, NormTable, TableFailed, unsampled
from privcalc.audit.sums import Bank, Indices
from privcalc.numerics.elementary import log_mixture
from privcalc.numerics.floats import QUIET, Floats

CLOSE = 0.6
"""Tolerances, 1e-4·ε + 1e-6, above which a record is asked again on another line."""

_FOLD = 64
"""Steps below which the largest of them are more than a polynomial can say."""

_DEAR = 0.5
"""Tolerances that the majorant may cost by a rough estimate for a line to be tried at all."""

_MANY = 512
"""Nodes of a record that are not evaluated for any number of them."""

_CELLS = 100_000
"""Nodes times records that are evaluated together."""

_GRID, _FEW = (1.25, 1.5), 1000
"""Ratio of periods for so many records, and for more: the second makes half as many tables."""

_ALIAS = 8.0
"""−log of the share of δ that aliasing from the right may take, by a rough estimate from above."""

_EXACT = 14.0
"""c times the period is at least −log δ less this: what is subtracted must not cost too many digits."""

_OTHER = 4
"""By so much fewer nodes tell, first, that the direction (without, with) is not the worse one."""


class Try(NamedTuple):
    """A way to choose the line.

    Attributes:
        nodes: how many, a multiple of 512.
        fold: whether the largest steps are among the moments, too.
        left: c times the period: small for a short period, large where K is not known well enough. None: as much as
            keeps out all that aliases from the left, at the c of Chernoff's bound; the only way where ε is larger than
            a period.
        most: of so many records at most whose transforms do not fall along the line, unless all are wanted.
    """

    nodes: int
    left: float | None
    most: float
    fold: bool = False


TRIES = (
    Try(512, None, math.inf, fold=True),
    Try(512, None, math.inf),
    Try(1024, 2.5, math.inf),
    Try(6144, 2.5, 5_000),
    Try(1536, 6.0, 10_000),
    Try(1536, None, 10_000),
    Try(6144, 14.0, 5_000),
)


@QUIET
def once(mu: Floats, rate: float, delta: float) -> Floats:
    """Upper bounds of ε(δ) after one step that was Poisson-sampled: log(1 + q(e^ε' − 1)), ε' of the step at δ/q.

    The order (with, without) is the worse one (``proofs/audit_few.md``, §6).

    Args:
        mu: what a record added, in units of the noise, shape (n,).
        rate: q in (0, 1].
        delta: δ in (0, 1).
    """
    inner = gdp.epsilons(mu, delta / rate) if delta < rate else np.zeros_like(mu)
    return np.log1p(rate * np.expm1(inner)) * (1 + 1e-14)


@QUIET
def epsilons(banks: list[Bank], delta: float, known: Floats, *, patient: bool = False) -> Floats:
    """Upper bounds of ε(δ) for every record, in both directions; what is known where this method has no smaller ones.

    Args:
        banks: what the records did, the same records in each.
        delta: δ in (0, 1).
        known: finite upper bounds.
        patient: whether every way is tried for however many records.
    """
    found, apart = known.copy(), np.full(known.size, math.inf)
    for attempt in TRIES:
        rows = np.flatnonzero((apart > CLOSE) & (found > 0))
        if attempt.fold and max(bank.count for bank in banks) < _FOLD:
            continue
        if rows.size:
            some = [bank[rows].folded() if attempt.fold else bank[rows] for bank in banks]
            new, new_apart = _attempt(some, delta, found[rows], attempt._replace(most=math.inf) if patient else attempt)
            apart[rows] = np.minimum(new_apart, apart[rows])  # what is not larger is not further off
            found[rows] = np.minimum(new, found[rows])
    return found


def _attempt(banks: list[Bank], delta: float, known: Floats, attempt: Try) -> tuple[Floats, Floats]:
    """What one way gives, and about how far it is off."""
    found, off = known.copy(), np.full(known.size, math.inf)
    need = -math.log(delta)
    left = None if attempt.left is None else max(attempt.left, need - _EXACT)
    periods, start = _periods(banks, need, left)
    digits = 14.0 + (0.0 if left is None else need)
    # What the majorant costs, about: a²/24 times the slope of δ. Where M explodes to the right of c it is large.
    price = (periods / attempt.nodes) ** 2 * need / (15 * start * (1e-4 * start + 1e-6))
    periods = np.where((price < _DEAR) | (attempt.left is not None), periods, 0.0)
    for period in np.unique(periods[periods > 0]).tolist():
        rows = np.flatnonzero(periods == period)
        line = Line((left or need + DIGITS) / period, 2 * math.pi / period, attempt.nodes)
        own = [bank[rows] for bank in banks]
        worst, apart = _side(own, False, line, delta, start[rows], 0 * start[rows], known[rows], digits, attempt.most)
        open_ = np.arange(rows.size)
        for size in (line.size // _OTHER, line.size):
            part, least = [bank[open_] for bank in own], worst[open_]
            other = replace(line, size=size)
            new, new_apart = _side(part, True, other, delta, least, least, known[rows[open_]], digits, attempt.most)
            worse = new > least
            open_, new, new_apart = open_[worse], new[worse], new_apart[worse]
            if not open_.size:
                break
        worst[open_], apart[open_] = new, new_apart
        found[rows], off[rows] = worst, apart
    return found, off


def _side(
    banks: list[Bank],
    add: bool,
    line: Line,
    delta: float,
    start: Floats,
    least: Floats,
    known: Floats,
    digits: float,
    most: float,
) -> tuple[Floats, Floats]:
    """Upper ends of ε of records that share a line, in one direction, and about how far each is off."""
    found, off = np.maximum(known, least), np.full(known.size, math.inf)
    reach = np.stack([bank.reach for bank in banks])
    sampled = [bank for bank in banks if bank.rate < 1]
    top = max(max(float(bank.largest.max(initial=0.0)), float(bank.reach.max())) for bank in sampled) * (1 + 1e-9)
    if top == 0:  # full batches at most, of which all is known
        return found, np.zeros(known.size)
    whole = max(bank.domain for bank in sampled) * (1 + 2e-9)
    top = whole * 2.0 ** (-0.5 * math.floor(2 * math.log2(whole / top) - 1e-9))  # so that many have the same
    count = sum(bank.count for bank in banks)
    sheets = {q: _sheet(Law(q, add, count), line, top) for q in sorted({bank.rate for bank in sampled})}
    # The octave in which the reach lies: records that share all of them share polynomials.
    place = np.floor(np.log2(top / np.maximum(reach, 1e-300)) - 1e-9)
    place = np.where(reach > 0, np.clip(place, 0, PANELS // 2 - 2), PANELS)
    kinds, which = np.unique(place, axis=1, return_inverse=True)
    for kind, key in enumerate(kinds.T):
        rows = np.flatnonzero(which == kind)
        ends = top * 2.0**-key
        for k, bank in enumerate(banks):
            if bank.rate < 1:
                known_to = sheets[bank.rate].known
                ends[k] = min(ends[k], known_to)
                x = np.maximum(bank.reach[rows], bank.largest[rows].max(axis=1, initial=0.0))
                rows = rows[x <= known_to]
        if not rows.size:
            continue
        size, tail = _ends([bank[rows] for bank in banks], sheets, ends, digits)
        for last in np.unique(size).tolist():
            own = np.flatnonzero(size == last)
            if last > _MANY and own.size > most:
                continue
            tables: list[NormTable | None] = []
            try:
                for end, bank in zip(ends, banks, strict=True):
                    if bank.rate == 1:
                        tables.append(unsampled(line.s[:last]))
                        continue
                    typical = float(np.median(bank.moments[rows[own], 0])) / max(bank.count, 1)
                    tables.append(sheets[bank.rate].rest(end, bank.domain, typical, last))
            except TableFailed:
                continue
            together = max(_CELLS // last, 1)
            for first in range(0, own.size, together):
                some = own[first : first + together]
                here = rows[some]
                contour = Contour.of([bank[here] for bank in banks], sheets, tables, last, tail[some])
                found[here] = contour.invert(delta, start[here], least[here], known[here])
                off[here] = contour.off(found[here], delta)
    return found, off


@functools.lru_cache(maxsize=32)
def _small(law: Law, line: Line, top: float) -> Sheet:
    return Sheet.of(law, line, top)


def _sheet(law: Law, line: Line, top: float) -> Sheet:
    """A sheet; small ones are kept for the next block of records."""
    return (_small if line.size <= 512 else Sheet.of)(law, line, top)


def _ends(parts: list[Bank], sheets: dict[float, Sheet], ends: Floats, digits: float) -> tuple[Indices, Floats]:
    """How many nodes each record needs, and a bound of Σ |ω_k||e^{K − K(c)}| over the others.

    Args:
        parts: some records.
        sheets: of every rate that is sampled.
        ends: of x, for each part.
        digits: −log of the share of the first node which may be left out.
    """
    line = next(iter(sheets.values())).line
    omega, error, _ = weights(line.c, line.step, line.size)
    blocks = (np.abs(omega) + error).reshape(-1, BLOCK).sum(axis=1) * (1 + 1e-9)
    fall = np.zeros((len(parts[0].reach), blocks.size))
    for part, end in zip(parts, ends, strict=True):
        if part.rate < 1:
            fall += sheets[part.rate].fall(part, end)
        else:
            total = np.maximum(part.moments[:, 0] - part.unit * part.scale, 0.0)
            fall += np.multiply.outer(total, 0.5 * (line.step * BLOCK * np.arange(blocks.size)) ** 2 * (1 - 1e-9))
    after = np.zeros((len(fall), blocks.size + 1))
    after[:, :-1] = np.cumsum((blocks * np.exp(-fall))[:, ::-1], axis=1)[:, ::-1] * (1 + 1e-9)
    number = np.argmax(after <= math.exp(-digits) * abs(omega[0]), axis=1)
    wanted = 2 ** np.ceil(np.log2(np.maximum(number, 1)))
    number = np.minimum(wanted, blocks.size).astype(np.intp)
    return BLOCK * number, after[np.arange(number.size), number]


def _periods(banks: list[Bank], need: float, left: float | None) -> tuple[Floats, Floats]:
    """2π/step for every record, on a grid, such that δ is next to nothing beyond ε + period; and about ε.

    They are estimates that no bound relies on.
    """
    typical = [_two_sizes(bank) for bank in banks]
    top = max(*(max(float(bank.largest.max(initial=0.0)), float(bank.reach.max())) for bank in banks), 1e-300)
    c = 0.02 * 1.2 ** np.arange(70.0)
    x = top * 2.0 ** np.arange(-16.0, 0.125, 0.125)
    log_m = {q: _log_real(x, q, c) for q in {bank.rate for bank in banks}}

    def bins(values: Floats) -> Indices:
        return np.asarray(np.clip(np.ceil(8 * np.log2(np.maximum(values, 1e-300) / top)) + 128, 0, 128), dtype=np.intp)

    periods, start = np.empty((2, banks[0].reach.size))
    for first in range(0, periods.size, 20_000):
        rows = slice(first, first + 20_000)
        n = periods[rows].size
        total = np.zeros((n, c.size))
        for bank, sizes in zip(banks, typical, strict=True):
            steps = np.zeros((n, x.size))
            for column in bank.largest[rows].T:
                steps[np.arange(n), bins(column)] += column > 0
            for size, share in sizes:
                steps[np.arange(n), bins(size[rows])] += share[rows] / np.clip(size[rows], x[0], top)
            total += steps @ log_m[bank.rate]
        periods[rows], start[rows] = _period(c, total, need, left)
    ratio = _GRID[periods.size > _FEW]
    return np.asarray(ratio ** np.ceil(np.log(periods) / math.log(ratio)), dtype=np.float64), start


def _two_sizes(bank: Bank) -> list[tuple[Floats, Floats]]:
    """About the x of the steps that are not kept, and their Σx: two sizes with the same four moments."""
    total = np.maximum(bank.moments[:, 0], 1e-300)
    t1, t2, t3 = (bank.moments[:, j] / total for j in (1, 2, 3))
    second, third = (t2 + 1) / 2, (t3 + 3 * t1) / 4
    spread = np.sqrt(np.maximum(second - t1**2, 1e-12))
    skew = np.clip((third - 3 * t1 * second + 2 * t1**3) / (2 * spread**3), -1e3, 1e3)
    root = np.sqrt(1 + skew**2)
    sizes = [0.5 * bank.domain * (1 + t1 + spread * (skew + sign * root)) for sign in (-1.0, 1.0)]
    shares = [0.5 * total * (1 - sign * skew / root) for sign in (-1.0, 1.0)]
    least = bank.reach * 2.0**-16
    return [(np.clip(size, least, bank.reach), share) for size, share in zip(sizes, shares, strict=True)]


def _period(c: Floats, total: Floats, need: float, left: float | None) -> tuple[Floats, Floats]:
    """For each row of K(c)."""
    left_out = np.log1p(c) + c * np.log1p(1 / c)
    # (1 − e^{ε − L})₊ is at most about (e^{cL} − 1 − cL)/(e^{cε} − 1 − cε): many see no jump,
    # and these tell nothing of the tail.
    log_e = np.where(total > 30, total, np.log(np.expm1(np.minimum(total, 30.0)))) - left_out

    def reach(digits: float) -> Floats:
        ratio = log_e + digits
        power = np.exp(np.minimum(ratio, 30.0))
        return np.asarray(
            np.min(np.where(ratio > 30, ratio, np.log1p(power + np.sqrt(2 * power))) / c, axis=1), dtype=np.float64
        )

    near = reach(need)
    if left is None:
        # At a c below the saddle e^{cP} outweighs less of what aliases from the right: there M may grow like e^{c²}.
        saddle = c[np.argmin((total - left_out + need) / c, axis=1)]
        return (need + DIGITS) / (saddle / 1.44), 0.8 * near
    # Where c is so large that e^{K(c) − cε} > e, errors of K are multiplied by more than needs be.
    worth = np.max(np.where(total - c * near[:, None] <= 1, c, c[0]), axis=1)
    end = reach(need + left + _ALIAS)
    return np.maximum.reduce([end - 0.8 * near, 2.5 * near, left / worth, np.full(near.size, 1e-6)]), 0.8 * near


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
