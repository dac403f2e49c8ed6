"""ε of many records at once, from their moments: one contour for all records with a similar saddle.

    moments (n, 14)  ->  rough saddle c and ε  ->  groups of alike c  ->  table
                     ->  upper bound of δ(ε)  ->  ε, certified

Aliasing can only overestimate δ (``proofs/engine.md``, §2), so an upper bound needs no bound of it; what the
polynomial, the truncation and the rounding may miss is added (``proofs/audit_contours.md``, §2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from privcalc.numerics.elementary import log_mixture
from privcalc.numerics.floats import Floats
from privcalc.numerics.records import decay as norm_decay
from privcalc.numerics.records import table as norm_table
from privcalc.numerics.records.bank import Bank
from privcalc.numerics.records.inversion import Fall, Lines, falls_of
from privcalc.numerics.records.line import TableFailed
from privcalc.numerics.records.table import MOMENTS, NormTable

ROWS = 8192
"""Records that are evaluated together."""

_RATIO, _MERGE = 1.15, 1
"""Ratio of the grid of saddles, and how many of its points share a contour."""

_MOST = 160
"""Nodes of a line at most."""

_LEAST = 5.0
"""−log of what |e^K| must fall to at the end of a line."""

_DIGITS = 10.5
"""−log of the share of δ that aliasing takes."""


class Epsilons(NamedTuple):
    """For every record, both ∞ where nothing is known.

    Attributes:
        upper: upper bounds of ε(δ), in both directions.
        off: about how many times 1e-4·ε + 1e-6 they may be off.
    """

    upper: Floats
    off: Floats


@np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
def epsilons(banks: list[Bank], delta: float) -> Epsilons:
    """Upper bounds of ε(δ) for every record, in both directions.

    Args:
        banks: what the records did, the same records in each, all steps in the moments.
        delta: δ in (0, 1).
    """
    size = banks[0].reach.size
    found, off = np.full(size, math.inf), np.full(size, math.inf)
    total = np.sum([bank.moments[:, 0] for bank in banks], axis=0)
    found[np.max([bank.reach for bank in banks], axis=0) == 0] = 0.0
    off[found == 0] = 0.0
    keys = np.zeros(size, dtype=np.int64)
    for bank in banks:  # half octaves of the reach; 127 where nothing happened
        octave = np.floor(2 * np.log2(bank.domain / np.maximum(bank.reach, 1e-300)) + 1e-9)
        keys = keys * 128 + np.where(bank.reach > 0, np.clip(octave, 0, 126), 127).astype(np.int64)
    for key in np.unique(keys[found > 0]):
        rows = np.flatnonzero((keys == key) & (found > 0) & (total > 0))
        if not rows.size:
            continue
        parts = [bank[rows] for bank in banks]
        reaches = [float(part.reach.max()) for part in parts]
        c, bins, guess = _rough(parts, reaches, delta)
        size_class = np.floor(np.log2(total[rows])).astype(np.int64)
        labels = bins * 4096 + size_class - size_class.min()
        for label in np.unique(labels):
            here = np.flatnonzero(labels == label)
            index = int(bins[here[0]])
            group = [part[here] for part in parts]
            found[rows[here]], off[rows[here]] = _group(group, reaches, delta, float(c[index]), guess[here])
    return Epsilons(found, off)


def _rough(parts: list[Bank], reaches: list[float], delta: float) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Where to cross the axis, as an index into a grid of c, and ε, for each record.

    They are estimates that no bound relies on.
    """
    need = -math.log(delta)
    spread = np.sum([part.rate**2 * part.moments[:, 0] for part in parts], axis=0)
    low, high = (
        0.03 * math.sqrt(2 * need / spread.max()),
        3 * math.sqrt(2 * need / spread.min()) + 1 / spread.min() ** 0.5,
    )
    c = np.asarray(low * _RATIO ** np.arange(math.ceil(math.log(high / low) / math.log(_RATIO)) + 1), dtype=np.float64)
    tables = [_real(reach, part.domain, part.rate, c) for part, reach in zip(parts, reaches, strict=True)]
    index, guess = [], []
    c32 = c.astype(np.float32)
    log_c = np.log(c32)
    for start in range(0, spread.size, ROWS):
        k = np.sum(
            [
                (part.moments[start : start + ROWS] @ table).astype(np.float32)
                for part, table in zip(parts, tables, strict=True)
            ],
            axis=0,
        )
        # Where M explodes there is nothing to gain; K must also rise.
        slope = np.gradient(k, log_c, axis=1) / c32
        curve = np.maximum(np.gradient(slope, log_c, axis=1) / c32, 0.0) + 1 / c32**2 + 1 / (1 + c32) ** 2
        eps = slope - 1 / c32 - 1 / (1 + c32)
        level = -(k - c32 * eps - log_c - np.log1p(c32) - 0.5 * np.log(2 * math.pi * curve))
        bad = ~np.isfinite(level)
        bad[:, 0] = False
        usable = np.where(bad.any(axis=1), np.argmax(bad, axis=1), c.size) - 1
        reached = (level >= need) & (np.arange(c.size) >= 1)
        at = np.where(reached.any(axis=1), np.argmax(reached, axis=1), c.size)
        at = np.clip(np.minimum(at, usable - 1), 1, c.size - 1)
        row = np.arange(at.size)
        before, after = level[row, at - 1], level[row, at]
        share = np.clip(np.nan_to_num((need - before) / (after - before), nan=1.0), 0.0, 1.0)
        index.append(at - 1)
        guess.append(
            np.nan_to_num((1 - share) * eps[row, at - 1] + share * eps[row, at], nan=1.0, posinf=1.0, neginf=0.0)
        )
    bins = np.concatenate(index) // _MERGE * _MERGE
    return c, bins.astype(np.intp), np.concatenate(guess).astype(np.float64)


def _real(reach: float, domain: float, q: float, c: Floats) -> Floats:
    """Coefficients of K(c) in the moments, remove direction, shape (MOMENTS, c); ∞ where M overflows."""
    if reach == 0:
        return np.zeros((MOMENTS, c.size))
    if q == 1:
        return np.concatenate([(0.5 * c * (c + 1))[None], np.zeros((MOMENTS - 1, c.size))])
    x = 0.5 * reach * (1 + np.cos(np.pi * (np.arange(16) + 0.5) / 16))
    values = np.zeros((16, c.size))
    t = np.linspace(-9.0, 9.0, 181)
    for i, y in enumerate(x):
        mu = math.sqrt(y)
        # Centred at the tilt, which moves the peak by at most (c + 1)μ.
        for j, p in enumerate(c + 1):
            high = min(p * mu, 40.0) + 9.0
            t = np.linspace(-9.0, high, int(8 * (high + 9)))
            log = p * log_mixture(mu, q, t)
            values[i, j] = math.log1p(
                float(np.expm1(np.minimum(log, 690.0)) @ np.exp(-0.5 * t * t)) * (t[1] - t[0]) * 0.3989422804014327
            )
    basis = chebyshev.chebvander(2 * x / domain - 1, MOMENTS - 1)
    ratio = values / x[:, None]
    found = np.asarray(np.linalg.lstsq(basis, ratio, rcond=1e-11)[0], dtype=np.float64)
    # Beyond the first c at which the polynomial is poor nothing is known.
    poor = (values.max(axis=0) > 4) | (np.abs(basis @ found - ratio).max(axis=0) > 0.1 * ratio.min(axis=0))
    found[:, np.maximum.accumulate(poor)] = math.inf
    return found


def _group(parts: list[Bank], reaches: list[float], delta: float, c: float, guess: Floats) -> tuple[Floats, Floats]:
    """Upper bounds for records with alike saddles, in the worse direction.

    They come from the contour, else from Chernoff's bound at c.
    """
    count = sum(part.count for part in parts)
    both = list(zip(parts, reaches, strict=True))
    typicals = [float(np.median(part.moments[:, 0])) / max(part.count, 1) for part in parts]
    found, off = np.full(guess.size, math.inf), np.full(guess.size, math.inf)
    for lower in (0.9, 0.5, 0.25):
        line = lower * c
        try:
            decays = [
                [norm_decay.decay(part.rate, add, line, reach, count) if reach else None for part, reach in both]
                for add in (False, True)
            ]
        except (TableFailed, OverflowError):
            continue
        step = 2 * math.pi * line / (_DIGITS - math.log(delta))
        falls = [falls_of(parts, side) for side in decays]
        sizes = [math.ceil(_height(fall) / step) + 2 for fall in falls]
        # Where |e^K| hardly falls, only Chernoff's bound is left.
        shares = (1, 0.8, 0.65) if all(np.quantile(fall.fall[:, -1], 0.97) > _LEAST for fall in falls) else ()
        for attempt in (*([min(int(share * n) + 2, _MOST) for n in sizes] for share in shares), [1, 1]):
            try:
                tables = [
                    [
                        norm_table.build(part.rate, add, line, step, size, reach, part.domain, count, typical)
                        if reach
                        else None
                        for (part, reach), typical in zip(both, typicals, strict=True)
                    ]
                    for add, size in zip((False, True), attempt, strict=True)
                ]
            except (TableFailed, OverflowError):
                continue
            new, new_off = _evaluate(parts, tables, falls, delta, guess)
            found, off = np.minimum(found, new), np.where(new <= found, new_off, off)
            break
        if np.mean(np.isfinite(found)) > 0.5 and (attempt != [1, 1] or not shares):
            break
    return found, off


def _height(fall: Fall) -> float:
    """Where to stop, so that nearly all records have fallen far enough."""
    low = np.quantile(fall.fall, 0.03, axis=0)
    enough = low >= 16
    return float(fall.blocks[int(np.argmax(enough)) if enough.any() else -1])


def _evaluate(
    parts: list[Bank], sides: list[list[NormTable | None]], falls: list[Fall], delta: float, guess: Floats
) -> tuple[Floats, Floats]:
    """The larger upper bound of both directions, and how far it may be off."""
    found, off = np.zeros(guess.size), np.zeros(guess.size)
    for start in range(0, guess.size, ROWS):
        rows = np.arange(start, min(start + ROWS, guess.size))
        chunk = [part[rows] for part in parts]
        epsilon = guess[rows]
        for tables, fall in zip(sides, falls, strict=True):
            line = Lines.of(chunk, tables, Fall(fall.blocks, fall.fall[rows]))
            worst, apart = line.chernoff(delta), np.full(rows.size, math.inf)
            if line.weights.shape[1] > 1:
                worst = np.minimum(worst, line.invert(epsilon, delta))
                epsilon = np.where(np.isfinite(worst), worst, epsilon)
                apart = line.off(worst, delta)
            off[rows] = np.where(worst > found[rows], apart, off[rows])
            found[rows] = np.maximum(found[rows], worst)
    return found, off
