"""ε of many records at once, from their moments: one contour for all records with a similar saddle.

    moments (n, 14)  ->  rough saddle c and ε  ->  groups of alike c  ->  table  ->  upper bound of δ(ε)  ->  ε, certified

Aliasing can only overestimate δ (``proofs/engine.md``, §2), so an upper bound needs no bound of it; what the polynomial, the
truncation and the rounding may miss is added (``proofs/audit_contours.md``, §2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.records import decay as norm_decay
from privcalc.numerics.records import table as norm_table
from privcalc.numerics.records.bank import Bank
from privcalc.numerics.records.decay import BLOCKS, Decay
from privcalc.numerics.records.line import TableFailed
from privcalc.numerics.records.table import MOMENTS, NormTable
from privcalc.numerics.sampled_gaussian import log_mixture

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


@np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
def epsilons(banks: list[Bank], q: float, delta: float) -> tuple[Floats, Floats]:
    """Upper bounds of ε(δ) for every record, in both directions, and about how many times 1e-4·ε + 1e-6 they may be off.

    Both are ∞ where this method has none.

    Args:
        banks: what the records did, the same records in each, all steps in the moments.
        q: sampling rate in (0, 1).
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
        c, bins, guess = _rough(parts, reaches, q, delta)
        size_class = np.floor(np.log2(total[rows])).astype(np.int64)
        labels = bins * 4096 + size_class - size_class.min()
        for label in np.unique(labels):
            here = np.flatnonzero(labels == label)
            index = int(bins[here[0]])
            group = [part[here] for part in parts]
            found[rows[here]], off[rows[here]] = _group(group, reaches, q, delta, float(c[index]), guess[here])
    return found, off


def _rough(parts: list[Bank], reaches: list[float], q: float, delta: float) -> tuple[Floats, NDArray[np.intp], Floats]:
    """For each record where to cross the axis, as an index into a grid of c, and ε: estimates that no bound relies on."""
    need = -math.log(delta)
    spread = q * q * np.sum([part.moments[:, 0] for part in parts], axis=0)
    low, high = 0.03 * math.sqrt(2 * need / spread.max()), 3 * math.sqrt(2 * need / spread.min()) + 1 / spread.min() ** 0.5
    c = np.asarray(low * _RATIO ** np.arange(math.ceil(math.log(high / low) / math.log(_RATIO)) + 1), dtype=np.float64)
    tables = [_real(reach, part.domain, q, c) for part, reach in zip(parts, reaches, strict=True)]
    index, guess = [], []
    c32 = c.astype(np.float32)
    log_c = np.log(c32)
    for start in range(0, spread.size, ROWS):
        k = np.sum(
            [(part.moments[start : start + ROWS] @ table).astype(np.float32) for part, table in zip(parts, tables, strict=True)],
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
        guess.append(np.nan_to_num((1 - share) * eps[row, at - 1] + share * eps[row, at], nan=1.0, posinf=1.0, neginf=0.0))
    bins = np.concatenate(index) // _MERGE * _MERGE
    return c, bins.astype(np.intp), np.concatenate(guess).astype(np.float64)


def _real(reach: float, domain: float, q: float, c: Floats) -> Floats:
    """Coefficients of K(c) in the moments, remove direction, shape (MOMENTS, c); ∞ where M overflows."""
    if reach == 0:
        return np.zeros((MOMENTS, c.size))
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


def _group(parts: list[Bank], reaches: list[float], q: float, delta: float, c: float, guess: Floats) -> tuple[Floats, Floats]:
    """Upper bounds for records with alike saddles: the worse direction, by the contour, else by Chernoff's bound at c."""
    count = sum(part.count for part in parts)
    both = list(zip(parts, reaches, strict=True))
    typicals = [float(np.median(part.moments[:, 0])) / max(part.count, 1) for part in parts]
    found, off = np.full(guess.size, math.inf), np.full(guess.size, math.inf)
    for lower in (0.9, 0.5, 0.25):
        line = lower * c
        try:
            decays = [
                [norm_decay.decay(q, add, line, reach, count) if reach else None for _, reach in both] for add in (False, True)
            ]
        except (TableFailed, OverflowError):
            continue
        step = 2 * math.pi * line / (_DIGITS - math.log(delta))
        falls = [_falls(parts, side) for side in decays]
        sizes = [math.ceil(_height(fall) / step) + 2 for fall in falls]
        # Where |e^K| hardly falls, only Chernoff's bound is left.
        shares = (1, 0.8, 0.65) if all(np.quantile(fall.fall[:, -1], 0.97) > _LEAST for fall in falls) else ()
        for attempt in (*([min(int(share * n) + 2, _MOST) for n in sizes] for share in shares), [1, 1]):
            try:
                tables = [
                    [
                        norm_table.build(q, add, line, step, size, reach, part.domain, count, typical) if reach else None
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


@dataclass(frozen=True, eq=False)
class _Fall:
    """|e^{K(c + iu) − K(c)}| ≤ e^{−fall[j]} for u ≥ blocks[j], fall of shape (n, BLOCKS)."""

    blocks: Floats
    fall: Floats


def _falls(parts: list[Bank], decays: list[Decay | None]) -> _Fall:
    """Of each record, the best of the straight lines."""
    fall = np.zeros((parts[0].reach.size, BLOCKS))
    for part, decay in zip(parts, decays, strict=True):
        if decay is None:
            continue
        blocks, noise = decay.blocks, part.unit * part.scale
        certain = np.maximum(part.moments[:, 0] - noise - part.count * decay.a0, 0.0)
        squares = 0.5 * part.domain * (part.moments[:, 1] + part.moments[:, 0] + 2 * noise)
        best = np.zeros_like(fall)
        for alpha, beta in zip(*decay.lines, strict=True):
            best = np.maximum(best, np.multiply.outer(certain, alpha) - np.multiply.outer(squares, beta))
        fall += np.maximum.accumulate(best, axis=1)
    return _Fall(blocks, fall)


def _height(fall: _Fall) -> float:
    """Where to stop, so that nearly all records have fallen far enough."""
    low = np.quantile(fall.fall, 0.03, axis=0)
    enough = low >= 16
    return float(fall.blocks[int(np.argmax(enough)) if enough.any() else -1])


def _evaluate(
    parts: list[Bank], sides: list[list[NormTable | None]], falls: list[_Fall], delta: float, guess: Floats
) -> tuple[Floats, Floats]:
    """The larger upper bound of both directions, and how far it may be off."""
    found, off = np.zeros(guess.size), np.zeros(guess.size)
    for start in range(0, guess.size, ROWS):
        rows = np.arange(start, min(start + ROWS, guess.size))
        chunk = [part[rows] for part in parts]
        epsilon = guess[rows]
        for tables, fall in zip(sides, falls, strict=True):
            line = _Lines.of(chunk, tables, _Fall(fall.blocks, fall.fall[rows]))
            worst, apart = line.chernoff(delta), np.full(rows.size, math.inf)
            if line.weights.shape[1] > 1:
                worst = np.minimum(worst, line.invert(epsilon, delta))
                epsilon = np.where(np.isfinite(worst), worst, epsilon)
                apart = line.off(worst, delta)
            off[rows] = np.where(worst > found[rows], apart, off[rows])
            found[rows] = np.maximum(found[rows], worst)
    return found, off


@dataclass(frozen=True, eq=False)
class _Lines:
    """Contours of some records in one direction: K at the nodes and what may be missing.

    Attributes:
        c, step: the line.
        k: K(c), shape (n,), and ``error`` a bound on its error at every node, shape (n, size).
        weights: |f(c + iu)|/e^{K(c) − cε}, shape (n, size), the first halved.
        phase: the argument of f at ε = 0, shape (n, size).
        turn: |Im K|, shape (n, size).
        tail: Σ_j e^{−decay}(1/U_j − 1/U_{j+1}), shape (n,).
    """

    c: float
    step: float
    k: Floats
    error: Floats
    weights: Floats
    phase: Floats
    turn: Floats
    tail: Floats

    @classmethod
    def of(cls, parts: list[Bank], tables: list[NormTable | None], fall: _Fall) -> _Lines:
        """From moments and coefficients."""
        real = imag = error = np.zeros((parts[0].reach.size, 1))
        for part, table in zip(parts, tables, strict=True):
            if table is None:
                continue
            c, step, size = table.c, table.step, table.error.size
            noise = part.unit * part.scale
            total = part.moments[:, 0] + noise
            both = part.moments @ np.concatenate([table.coefficients.real, table.coefficients.imag], axis=1)
            real, imag = real + both[:, :size], imag + both[:, size:]
            error = error + table.missed(total, noise, part.count)
        u = step * np.arange(size)
        s = c + 1j * u
        k = real[:, 0]
        weights = np.exp(real - k[:, None]) / np.abs(s * (s + 1))
        weights[:, 0] *= 0.5
        last = float(u[-1])
        here = fall.blocks <= last  # the first block starts at the last node; it has what was known below
        if here.any() and size > 1:
            edges = np.append(last, fall.blocks[~here])
            widths = np.append(1 / edges[:-1] - 1 / edges[1:], 1 / edges[-1])
            tail = np.exp(-fall.fall[:, int(here.sum()) - 1 :]) @ widths * (1 + 1e-9)
        else:
            tail = np.full(k.size, math.inf)
        return cls(c, step, k, error, weights, imag - np.arctan2(u, c) - np.arctan2(u, c + 1), np.abs(imag), tail)

    def chernoff(self, delta: float) -> Floats:
        """ε from δ ≤ e^{K(c) − cε}c^c/(1 + c)^{1 + c} (Canonne, Kamath, Steinke 2020, Proposition 12)."""
        c = self.c
        top = self.k + self.error[:, 0] + 16 * UNIT * np.abs(self.k) - math.log1p(c) - c * math.log1p(1 / c) - math.log(delta)
        return np.asarray(np.nan_to_num(np.maximum(top / c * (1 + 8 * UNIT) + 1e-15, 0.0), nan=math.inf), dtype=np.float64)

    def upper(self, epsilon: Floats) -> Floats:
        """log of an upper bound of δ(ε), for any real ε."""
        u = self.step * np.arange(self.weights.shape[1])
        turn = np.multiply.outer(epsilon, u)
        total = np.sum(self.weights * np.cos(self.phase - turn), axis=1)
        slack = np.expm1(self.error) + UNIT * (
            4 * np.abs(turn) + 4 * self.turn + (8 * np.abs(self.k) + 8 * self.c * np.abs(epsilon) + u.size + 96)[:, None]
        )
        error = np.sum(self.weights * slack, axis=1)
        tail = np.exp(self.error[:, 0]) * self.tail / self.step
        whole = (total + error + tail) * (1 + 1e-12) * self.step / math.pi
        return np.asarray(self.k - self.c * epsilon + np.log(np.where(whole > 0, whole, math.inf)), dtype=np.float64)

    def off(self, epsilon: Floats, delta: float) -> Floats:
        """How much smaller δ(ε) is without the bounds of its errors, in ε, over 1e-4·ε + 1e-6."""
        angle = self.phase - np.multiply.outer(epsilon, self.step * np.arange(self.weights.shape[1]))
        total = np.sum(self.weights * np.cos(angle), axis=1) * self.step / math.pi
        short = math.log(delta) - (self.k - self.c * epsilon + np.log(np.maximum(total, 1e-300)))
        apart = np.where(np.isfinite(epsilon), short / (self.c * (1e-4 * np.minimum(epsilon, 1e300) + 1e-6)), math.inf)
        return np.asarray(np.where(epsilon <= 0, 0.0, np.nan_to_num(apart, nan=math.inf, posinf=math.inf)), dtype=np.float64)

    def invert(self, epsilon: Floats, delta: float) -> Floats:
        """ε with upper(ε) ≤ log δ, checked; ∞ where none was found."""
        goal, u = math.log(delta), self.step * np.arange(self.weights.shape[1])
        # Where f is largest δ is still above the goal, as c lies below the saddle; Newton's method, kept inside what is known.
        low = self.phase[:, 1] / self.step
        high = np.full(epsilon.size, math.inf)
        epsilon = np.where(epsilon > low, epsilon, low)
        slope = np.full(epsilon.size, self.c)
        for _ in range(9):
            angle = self.phase - np.multiply.outer(epsilon, u)
            total = np.maximum(np.sum(self.weights * np.cos(angle), axis=1), 1e-300)
            slope = np.maximum(self.c - np.sum(self.weights * np.sin(angle) * u, axis=1) / total, 0.8 * self.c)
            value = self.k - self.c * epsilon + np.log(total * self.step / math.pi) - goal
            low, high = np.where(value > 0, epsilon, low), np.where(value > 0, high, epsilon)
            new = epsilon + np.clip(value / slope, -6 / self.c, 6 / self.c)
            inside = (new >= low) & (new <= high) & (value > -1.0)
            epsilon = np.where(inside, new, 0.5 * (low + np.minimum(high, low + 6 / self.c)))
        found = np.full(epsilon.size, math.inf)
        for attempt in range(5):
            above = self.upper(epsilon) - goal
            found = np.where(above <= 0, np.minimum(found, epsilon), found)
            if np.isfinite(found).all():
                break
            # With room for what a step may leave, and for an error that does not fall as δ does.
            epsilon = epsilon + np.where(above > 0, (above * (1.02 + 0.5 * attempt) + 1e-9) / slope, 0.0)
        return np.asarray(np.where(np.isfinite(found), np.maximum(found, 0.0), math.inf), dtype=np.float64)
