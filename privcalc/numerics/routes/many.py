"""ε or δ of many Poisson-sampled Gaussians at once, a row for each question.

Those of one run that are near share a contour.

Where a contour lies depends on the run and on the nearest of fixed points of the real axis (``lines.Scan``), and no row
depends on another one: rows that need arrays of one shape are computed together, every sum is one over the last axis of
a row, and every product one of a row's own matrices. Where a bound does not close, a row has no answer, and is asked
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.routes.contour import DIGITS
from privcalc.numerics.routes.lines import FINER, NEAR, Cells, Lines, lay, scan
from privcalc.numerics.routes.rules import Bools, Indices, Rows, Rule, chernoff, distinct, log_ratio, rules

MANY = 4096
"""Rows whose points are in memory together."""

PASSES = 5
"""Steps of Newton's method: from a saddle's two digits."""

PLANS = 5
"""How often a row is planned: for a cut that was felt, and for an ε or δ that was far from the estimate."""

FINE, WIDE = 1e-9, 1e-8
"""Relative widths: with which no other plan is made, and with which an ε has no answer."""

STEEP = 10
"""δ is steep: how many times wider it may be."""

LEVEL = 8.0
"""Runs are cut for a log δ that is a multiple."""

FIRST = -24.0
"""Where δ is asked, they are first cut for this one; and then for one up to so far below δ."""

LEAST, MOST = 1e-200, 0.5
"""δ for which a row may have an answer."""

BLOCK = 64
"""Rows that are computed together: so many fit a processor's cache."""

FAR = (1.0, 8.0)
"""Where the order (without, with) is looked at, over the saddle of the other one: its own is farther out."""

SLACKS = (1.0, 2.0, 6.0, 30.0)
"""How many times the estimated width an end may lie from the estimate."""


def invert(lines: Lines, start: Floats, delta: Floats) -> tuple[Floats, Floats, Floats]:
    """Both ends of ε(δ), at which δ was evaluated to be on the right side, NaN where it was not; and an estimate."""
    epsilon, log_delta = start, np.log(delta)
    slope = -lines.c
    for _ in range(PASSES):
        value, slope = lines.newton(epsilon)
        epsilon = np.clip(epsilon - (value - log_delta) / slope, 0.5 * epsilon, 2 * epsilon)
    low, high = lines.bounds(epsilon)
    ends = []
    for sign, end in ((-1.0, low), (1.0, high)):
        apart = np.maximum(sign * (np.log(end) - log_delta), 0.0) / -slope
        found = np.full(delta.size, math.nan)
        for times in SLACKS:
            open_ = np.flatnonzero(np.isnan(found))
            if not open_.size:
                break
            point = np.maximum(
                epsilon[open_] + sign * (times * 1.05 * apart[open_] + 4 * times * UNIT * epsilon[open_]), 0.0
            )
            there = lines[open_].bounds(point)
            good = (there[0] >= delta[open_]) | (point == 0) if sign < 0 else there[1] <= delta[open_]
            found[open_[good]] = point[good]
        ends.append(found)
    return ends[0], ends[1], epsilon


def pieces(size: int, most: int = BLOCK) -> list[Indices]:
    """Rows that are computed together."""
    return [np.arange(start, min(start + most, size)) for start in range(0, size, most)]


def level(log_delta: Floats) -> Floats:
    """The δ for which runs are cut: the next one below, at a distance, of a few."""
    return np.asarray(LEVEL * np.floor(np.clip(log_delta, math.log(LEAST), 0.0) / LEVEL))


class Batch(NamedTuple):
    """Questions whose lines were laid together: which, their lines, and about their ε and log δ."""

    at: Indices
    lines: Lines
    epsilon: Floats


class Asked:
    """Questions of one order, and where their lines are laid, which each plan may change.

    Args:
        rows: runs, and log δ, given or expected.
        epsilon: ε, or NaN where δ is given.
        c_max: for which real parts rules are made.
    """

    def __init__(self, rows: Rows, epsilon: Floats, c_max: Floats) -> None:
        self.rows, self.epsilon = rows, epsilon
        size = epsilon.size
        self.key = np.stack(
            [rows.mu, rows.q, rows.count, level(rows.log_delta), np.full(size, -math.inf), c_max], axis=1
        )
        self.line = np.full((size, self.key.shape[1] + 2), math.nan)
        """The last line that was laid: its run, and its cell."""

    def saddle(self, at: Indices) -> Floats:
        """c of their saddles."""
        return np.asarray(2.0 ** (0.25 / FINER * self.line[at, -2]))

    def laid(self, at: Indices, guess: Floats, *, free: bool) -> Iterator[Batch]:
        """Lines for some questions.

        Args:
            at: which.
            guess: their ε, so far as it is known.
            free: whether log δ was only guessed.
        """
        runs, which = distinct(self.key[at])
        rows = Rows(runs[:, 0], runs[:, 1], runs[:, 2], runs[:, 3], self.rows.add)
        for inside, rule in rules(rows, runs[:, 5], runs[:, 4]):
            for piece in pieces(inside.size):
                own, run = members(which, inside[piece], len(runs))
                yield from self._of_runs(at[own], run, guess[own], rule[piece], free)

    def _of_runs(self, at: Indices, run: Indices, guess: Floats, rule: Rule, free: bool) -> Iterator[Batch]:
        """The same, of some runs."""
        axis = scan(rule)
        cells, epsilon, log_delta = axis.cells(run, guess, self.rows.log_delta[at])
        known = cells.width > 0
        if free:
            known &= log_delta >= math.log(LEAST)
            off = known & ~((self.key[at, 3] <= log_delta) & (self.key[at, 3] >= log_delta + FIRST))
            self.key[at[off], 3] = level(log_delta[off])
            known &= ~off
        line = np.column_stack([self.key[at], cells.middle, cells.width])
        new = np.flatnonzero(known & (line != self.line[at]).any(axis=1))
        self.line[at[new]] = line[new]
        spots, which = distinct(np.column_stack(cells)[new])
        for piece in pieces(len(spots)):
            found, felt = lay(axis, Cells(*spots[piece].T))
            own, spot = members(which, piece, len(spots))
            cut = np.isfinite(felt[spot])
            here = at[new[own[cut]]]
            self.key[here, 4] = past(self.rows[here], felt[spot[cut]])
            for inside, lines in found:
                these, one = members(spot, inside, piece.size)
                for part in pieces(these.size):
                    to = new[own[these[part]]]
                    yield Batch(at[to], lines[one[part]], epsilon[to])


def members(which: Indices, of: Indices, size: int) -> tuple[Indices, Indices]:
    """Which elements are among some numbers below ``size``, and the place of each in these."""
    place = np.full(size, -1)
    place[of] = np.arange(of.size)
    found = place[which]
    at = np.flatnonzero(found >= 0)
    return at, found[at]


@QUIET
def epsilons(mu: Floats, q: Floats, count: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """Both ends of ε(δ) of Poisson-sampled Gaussians, the worse of both orders; NaN where they are not known.

    Args:
        mu: 1/noise multiplier.
        q: sampling rate, in (0, 1).
        count: steps, at least 2.
        delta: δ; none is answered but those from LEAST to MOST.
    """
    ends, usual = np.full((2, delta.size), math.nan), np.flatnonzero((delta >= LEAST) & (delta <= MOST))
    for few in pieces(usual.size, MANY):
        part = usual[few]
        rows = Rows(mu[part], q[part], count[part], np.log(delta[part]))
        found, star = _with(rows, np.full(part.size, math.nan), delta[part])
        known = np.flatnonzero(found[1] - found[0] <= WIDE * found[1])
        other = _without(rows[known], star[known], found[1, known], delta[part[known]])
        sure = known[other[1] <= delta[part[known]]]
        ends[:, part[sure]] = found[:, sure]
    return ends[0], ends[1]


@QUIET
def deltas(mu: Floats, q: Floats, count: Floats, epsilon: Floats) -> tuple[Floats, Floats]:
    """Both ends of δ(ε) of Poisson-sampled Gaussians, the worse of both orders; NaN where they are not known.

    Args:
        mu: 1/noise multiplier.
        q: sampling rate, in (0, 1).
        count: steps, at least 2.
        epsilon: ε ≥ 0, finite.
    """
    ends = np.full((2, epsilon.size), math.nan)
    for part in pieces(epsilon.size, MANY):
        rows = Rows(mu[part], q[part], count[part], np.full(part.size, FIRST))
        found, star = _with(rows, epsilon[part], np.full(part.size, math.nan))
        known = np.flatnonzero((found[1] - found[0] <= STEEP * WIDE * found[1]) & (found[0] >= LEAST))
        other = np.zeros((2, known.size))
        apart = epsilon[part[known]] > 0  # the total variation distance is the same in both orders
        at = known[apart]
        other[:, apart] = _without(rows[at], star[at], epsilon[part[at]], found[1, at])
        sure = np.isfinite(other).all(axis=0)
        ends[:, part[known[sure]]] = np.maximum(found[:, known], other)[:, sure]
    return ends[0], ends[1]


def _with(rows: Rows, epsilon: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """Both ends of ε or δ in the order (with, without), NaN where there is no answer; and the saddles."""
    asked = Asked(rows, epsilon, rows.mu)
    ends, star, guess = np.full((2, epsilon.size), math.nan), np.full(epsilon.size, math.nan), epsilon.copy()
    again = np.arange(epsilon.size)
    for _ in range(PLANS):
        for at, lines, start in asked.laid(again, guess[again], free=bool(np.isfinite(epsilon).any())):
            if np.isfinite(epsilon[at]).all():
                low, high = lines.bounds(epsilon[at])
                low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
            else:
                low, high, guess[at] = invert(lines, start, delta[at])
            better = ~(high - low >= ends[1, at] - ends[0, at]) & np.isfinite(high - low)
            ends[0, at[better]], ends[1, at[better]], star[at] = low[better], high[better], asked.saddle(at)
        again = again[~(ends[1, again] - ends[0, again] <= FINE * ends[1, again])]
        if not again.size:
            break
    return ends, star


def _without(rows: Rows, star: Floats, epsilon: Floats, delta: Floats) -> Floats:
    """Bounds of δ(ε) in the order (without, with), NaN where unknown: (0, δ) where the real axis shows no more than δ.

    Args:
        rows: runs.
        star: the saddle in the other order.
        epsilon: ε.
        delta: what it may be.
    """
    found = np.full((2, star.size), math.nan)
    rows, near = Rows(rows.mu, rows.q, rows.count, np.log(delta), add=True), 2.0 ** (0.25 * np.rint(4 * np.log2(star)))
    for far in FAR:
        left = np.flatnonzero(np.isnan(found[1]))
        if not left.size:
            return found
        shown = left[_on_axis(rows[left], near[left] * far, epsilon[left])]
        found[0, shown], found[1, shown] = 0.0, delta[shown]
    left = np.flatnonzero(np.isnan(found[1]))
    asked = Asked(rows, epsilon, 4 * near * FAR[-1])
    for at, lines, _ in asked.laid(left, epsilon[left], free=False) if left.size else ():
        found[:, at] = lines.bounds(epsilon[at])
    return np.where(np.isnan(found), math.nan, np.clip(found, 0.0, 1.0))


def _on_axis(rows: Rows, c: Floats, epsilon: Floats) -> Bools:
    """Whether real points about c show that δ(ε) is at most what is given."""
    shown = np.zeros(c.size, dtype=np.bool_)
    runs, which = distinct(np.stack([rows.mu, rows.q, rows.count, c], axis=1))
    for inside, rule in rules(Rows(runs[:, 0], runs[:, 1], runs[:, 2], np.zeros(len(runs)), rows.add), 4 * runs[:, 3]):
        for piece in pieces(inside.size):
            near, count = runs[inside[piece], 3, None] * NEAR, runs[inside[piece], 2, None]
            values, errors = rule[piece].real(near)
            at, one = members(which, inside[piece], len(runs))
            best = chernoff(near[one], (count * values)[one], (count * errors)[one], epsilon[at, None])
            shown[at] = np.fmin.reduce(best, axis=1) <= rows.log_delta[at]
    return shown


def past(rows: Rows, c: Floats) -> Floats:
    """Where a cut is not felt at c, nor a little above: the first of some points, or beyond all that e^{cL} favours."""
    most, mu = 1.2 * c, rows.mu
    small = -52 - np.log(rows.count)  # 6a e^{2a²} is at most e^{10.5}
    start = np.sqrt(2 * np.maximum(DIGITS - rows.log_delta, 0.0))
    far = (
        (most + 1) * mu + np.sqrt(2 * np.maximum(np.log(rows.q) + 0.5 * most * (most + 1) * mu**2 - small + 8, 0.0)) + 4
    )
    b = start[:, None] + np.maximum(far - start, 0.0)[:, None] * np.linspace(0, 1, 65)
    good = (most + 1)[:, None] * log_ratio(rows, b) - 0.5 * b * b <= small[:, None]
    return np.asarray(np.where(good.any(axis=1), b[np.arange(c.size), np.argmax(good, axis=1)], far))
