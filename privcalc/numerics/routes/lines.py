"""Contours of many Poisson-sampled Gaussians at once, a row for each: where they are laid, and what they bound.

As ``contour.py``, with every step and every bound an array (``proofs/engine.md``, §8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.routes.contour import CROSS, DIGITS, priced
from privcalc.numerics.routes.rules import (
    MOST_NODES,
    Bools,
    Indices,
    Rows,
    Rule,
    Saddles,
    chernoff,
    distinct,
    log_kappa,
    saddles,
    size_class,
    turned,
)

WINDOW = np.arange(-36, 13)
"""Points of the real axis, powers of 2^(1/4), about the c of a Gaussian loss of the same variance."""

STEP = 0.25 * math.log(2)
"""Of log c."""

WIDTHS = (64, 16, 4, 1)
"""Widths of cells: of log₂ c, in steps of 1/256."""

FINER = WIDTHS[0]
"""So many of these are a step of the axis."""

FALL = 6.0
"""By how much log δ falls in a cell, about, where cells are not as narrow as may be."""

NEAR = 2.0 ** (0.25 * np.arange(-6, 7))
"""Those at which aliasing is bounded, over the c of the line; 1 is in the middle."""

DEARER = 1.3
"""How many times the cost of the best place one may have that needs no other cut."""

CUT = 1e-13
"""Share of M that a cut may be felt by, of all uses."""

REACH = (1.2, 1.5, 1.9, 2.5, 3.5, 5.0, 8.0, 14.0, 25.0, 40.0, 65.0, 100.0, 160.0, 250.0, 400.0, 650.0, 1000.0)
"""Where a line may end, over where it would for a Gaussian loss of the same variance."""


class Cells(NamedTuple):
    """Where saddles are, so nearly that one line serves a cell.

    A row says of which run, log₂ c in steps of 1/(4 FINER), and how many wide.

    The width is 0 where no saddle is known.
    """

    run: Indices
    middle: Indices
    width: Indices


@dataclass(frozen=True)
class Scan:
    """The real axis of some runs, at fixed points.

    Attributes:
        rule: the quadrature.
        index: of each run, that of its first point c = 2^(index/4).
        c: the points, shape (n, points).
        k: K(c), composed.
    """

    rule: Rule
    index: Indices
    c: Floats
    k: Floats

    def cells(self, run: Indices, epsilon: Floats, log_delta: Floats) -> tuple[Cells, Floats, Floats]:
        """The cell of each question; about its ε, and its log δ.

        Args:
            run: of each question.
            epsilon: ε, or NaN where δ is given.
            log_delta: log δ, where ε is not.
        """
        found, level = np.full(run.size, math.nan), np.full(run.size, math.nan)
        middle, width = np.zeros(run.size, dtype=np.intp), np.zeros(run.size, dtype=np.intp)
        first, here, row, start = saddles(self.c, self.k, STEP), np.arange(run.size), run, FINER * (self.index[run] + 1)
        for wide in WIDTHS:
            known, at, share = first.crossed(row, epsilon[here], log_delta[here])
            nearest = at + (share >= 0.5)
            low, high = (
                first.log_delta[row, np.clip(nearest + step, 0, first.log_delta.shape[1] - 1)] for step in (-1, 1)
            )
            done = known & ((low - high <= 2 * FALL) | (wide == WIDTHS[-1]))
            these = here[done]
            found[these], level[these] = first.between(row[done], at[done], share[done])
            middle[these], width[these] = (start + wide * nearest)[done], wide
            # Where K rises steeply that is too coarse: the saddle is in this interval, or the next one.
            here, start = here[known & ~done], (start + wide * at)[known & ~done]
            if not here.size or wide == WIDTHS[-1]:
                break
            step = wide // 4
            points, row = distinct(np.column_stack([run[here], start]))
            start = start - step
            first = self._near(points[:, 0], points[:, 1, None] + step * np.arange(-2, 11), step)
        given = np.isfinite(epsilon)
        found, level = np.where(given, epsilon, np.maximum(found, 0.0)), np.where(given, level, log_delta)
        return Cells(run, middle, width), found, level

    def of(self, cells: Cells) -> Saddles:
        """Those in the middle of cells, and one cell before and after."""
        return self._near(
            cells.run, cells.middle[:, None] + cells.width[:, None] * np.arange(-2, 3), cells.width[:, None]
        )

    def _near(self, run: Indices, index: Indices, step: Indices | int) -> Saddles:
        """Saddles of runs at c = 2^(index/(4 FINER)), ``step`` apart, but for the first and the last."""
        c = np.asarray(2.0 ** (0.25 / FINER * index), dtype=np.float64)
        return saddles(
            c,
            self.rule.rows.count[run, None] * self.rule[run].plan(c),
            STEP / FINER * np.asarray(step, dtype=np.float64),
        )


def scan(rule: Rule) -> Scan:
    """The axis about the c that a Gaussian loss of the same variance would have."""
    rows = rule.rows
    spread = rows.count * rows.q**2 * np.expm1(rows.mu**2)
    first = np.rint(4 * np.log2(np.sqrt(2 * (1 - rows.log_delta) / spread))) + WINDOW[0]
    index = np.asarray(np.clip(np.nan_to_num(first), -3000, 3000), dtype=np.intp)
    c = np.asarray(2.0 ** (0.25 * (index[:, None] + np.arange(WINDOW.size))), dtype=np.float64)
    return Scan(rule, index, c, rows.count[:, None] * rule.plan(c))


@dataclass(frozen=True)
class Place:
    """Where lines cross the axis.

    Attributes:
        c: real part.
        period: D.
        curvature: at the saddle.
        room: the least log δ(ε) + cε of all ε that a line is for.
        better: a cheaper c, where only the cut forbids it.
    """

    c: Floats
    period: Floats
    curvature: Floats
    room: Floats
    better: Floats


def place(scan: Scan, cells: Cells) -> Place:
    """The cheapest c near a cell, for every ε whose saddle is in it."""
    run, number = cells.run, np.arange(cells.run.size)
    rule, c, k, fine = scan.rule[run], scan.c[run], scan.k[run], scan.of(cells)
    middles = [fine.between(number, np.full(run.size, at), np.full(run.size, 0.5)) for at in (0, 1)]
    epsilons, deltas = [np.maximum(e, 0.0) for e, _ in middles], [d for _, d in middles]
    lowest = np.minimum(*deltas)
    tails = [chernoff(c, k, np.zeros_like(k), e[:, None]) - d[:, None] for e, d in zip(epsilons, deltas, strict=True)]
    tail = np.maximum(*tails) + DIGITS
    candidates = (cells.middle // FINER - scan.index[run])[:, None] + np.arange(-9, 3)
    inside = (candidates >= 6) & (candidates < c.shape[1] - 6)
    candidates = np.clip(candidates, 6, c.shape[1] - 7)
    crossing, star = np.take_along_axis(c, candidates, axis=1), 2.0 ** (0.25 / FINER * cells.middle[:, None])
    inside &= (crossing > CROSS[0] * star) & (crossing < CROSS[1] * star)
    others = candidates[:, :, None] + np.arange(-6, 7)
    flat = others.reshape(run.size, -1)
    apart = crossing[:, :, None] - np.take_along_axis(c, flat, axis=1).reshape(others.shape)
    period = np.take_along_axis(tail, flat, axis=1).reshape(others.shape) / np.abs(apart)
    from_left = np.min(np.where(apart > 0, period, math.inf), axis=2)
    from_left = np.minimum(from_left, (DIGITS - lowest)[:, None] / crossing)
    from_right = np.min(np.where(apart < 0, period, math.inf), axis=2)
    d = 1.02 * np.maximum(np.maximum(from_left, from_right), 1 / crossing)
    room = np.minimum(*(d[:, None] + crossing * e[:, None] for e, d in zip(epsilons, deltas, strict=True)))
    slack = np.take_along_axis(k, candidates, axis=1) - np.log(crossing) - np.log1p(crossing) - room
    cost = np.where(inside, priced(d, slack), math.inf)
    # Where a cut is felt at the saddle it may not be below; where it is felt everywhere, another cut is needed.
    unfelt = rule.rows.count[:, None] * rule.edge(crossing) <= CUT * np.exp(-np.maximum(slack, 0.0))
    below = np.where(unfelt | ~(unfelt & inside).any(axis=1, keepdims=True), cost, math.inf)
    best, any_ = np.argmin(below, axis=1), np.argmin(cost, axis=1)
    known = below[number, best] < math.inf
    chosen = [np.where(known, y[number, best], math.nan) for y in (crossing, d, room)]
    better = np.where(DEARER * cost[number, any_] < below[number, best], crossing[number, any_], math.nan)
    return Place(chosen[0], chosen[1], fine.curvature[:, 1], chosen[2], better)


@dataclass(frozen=True)
class Lines:
    """Contours of some rows, all of one number of nodes; as ``contour.Contour``, a row each.

    Attributes:
        rows: of which.
        c: real part.
        step: h.
        log: K(c + iu) − K(c), real and imaginary part, shape (n, N), and u; of padding −∞.
        k: K(c), and a bound of its error.
        slack: of log M at the nodes and of the sum, relative.
        tail: of ``Contour``.
        lost: the same.
        near: c', K(c') and a bound of its error, shape (n, points), by which aliasing is bounded.
    """

    rows: Rows
    c: Floats
    step: Floats
    modulus: Floats
    phase: Floats
    nodes: Floats
    k: Floats
    slack: Floats
    tail: Floats
    lost: Floats
    near: Floats
    near_k: Floats
    near_error: Floats

    def __getitem__(self, at: Indices | Bools) -> Lines:
        given = {name: value[at] for name, value in vars(self).items() if name != "rows"}
        return Lines(rows=self.rows[at], **given)

    def terms(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """h/π times the integrand at the nodes: modulus and phase, the first one halved."""
        c, u = self.c[:, None], self.nodes
        values = np.exp(self.modulus + (self.k - self.c * epsilon)[:, None]) / (np.hypot(u, c) * np.hypot(u, c + 1))
        values *= (self.step / math.pi)[:, None]
        values[:, 0] *= 0.5
        return values, self.phase - u * epsilon[:, None] - np.arctan2(u, c) - np.arctan2(u, c + 1)

    def newton(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """About log δ(ε), and its slope."""
        values, phase = self.terms(epsilon)
        real, imag = values * np.cos(phase), values * np.sin(phase)
        total = real.sum(axis=-1)
        return np.log(total), (self.nodes * imag).sum(axis=-1) / total - self.c

    def bounds(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of δ(ε)."""
        values, phase = self.terms(epsilon)
        total = (values * np.cos(phase)).sum(axis=-1)
        turns = 4 * UNIT * epsilon[:, None] * (self.nodes + self.c[:, None])
        error = (values * (self.slack + turns)).sum(axis=-1)
        tail = np.exp(self.k - self.c * epsilon) * self.tail * (1 + 1e-9) / math.pi
        c, period = self.near, 2 * math.pi / self.step
        log_tail = chernoff(c, self.near_k, self.near_error, epsilon[:, None])
        apart = np.abs(c - self.c[:, None]) * period[:, None]
        excess = np.exp(log_tail - apart) / -np.expm1(-apart) * (1 + 1e-9)
        middle = NEAR.size // 2
        left = np.fmin.reduce(excess[:, :middle], axis=1)
        zero = self.c * period
        left = np.fmin(left, np.exp(-zero) / -np.expm1(-zero) * (1 + 1e-9))  # A(0) is at most 0
        right = np.fmin.reduce(excess[:, middle + 1 :], axis=1)
        return total - left - right - tail - error - TINY, total + tail + error + self.lost + TINY


def reach(rule: Rule, spot: Place, slack: Floats, k: Floats, k_error: Floats, good: Bools) -> tuple[Floats, Floats]:
    """Ends of lines, and the tail there: the first of some ends; ∞ where none serves.

    See ``proofs/engine.md``, §§3, 6.

    Args:
        rule: the quadrature.
        spot: where the lines are.
        slack: log of what a line adds to δ, at most.
        k: K(c) of one use.
        k_error: its error.
        good: for which rows one is looked for.
    """
    rows, c = rule.rows, spot.c
    end, tail = np.full(c.size, math.inf), np.zeros(c.size)
    start = np.sqrt(2 * (DIGITS + slack) / spot.curvature)
    power = rule.power(c[:, None])[:, 0]
    tilted = np.exp(rule.weight + power[:, None] * rule.ratio - k[:, None])
    share = rows.q[:, None] * np.exp(rows.mu[:, None] * rule.points - 0.5 * rows.mu[:, None] ** 2 - rule.ratio)
    mean = (tilted * share).sum(axis=-1)
    variance = (tilted * (share - mean[:, None]) ** 2).sum(axis=-1)
    limit = math.log(math.pi) + spot.room - DIGITS - rows.count * k
    widest = np.minimum(1.2, rule.line * rows.mu)
    missed = rule.missing * np.exp(-np.minimum(k, 0.0)) + rule.edge(c[:, None])[:, 0] * np.exp(-k)
    for number, times in enumerate(REACH):
        open_ = np.flatnonzero(good & np.isinf(end) & (limit > -740))
        if not open_.size:
            break
        part, u = rows[open_], start[open_] * times
        best = np.zeros(open_.size)
        turns = u * mean[open_] / (1 / part.mu**2 + u * u * variance[open_])
        for factor in (1.0, 2.5, math.inf) if number % 3 == 2 else (1.0,):
            theta = np.minimum(turns * factor, widest[open_] * (0.75 if factor == math.inf else 1.0))
            modulus, angle, _ = turned(part, rule.points[open_], theta[:, None])
            # |e^{A + cL}| on the turned line, over that on the real one
            grown = tilted[open_] * np.exp(
                power[open_, None] * (modulus - rule.ratio[open_]) + 0.5 * (theta / part.mu)[:, None] ** 2
            )
            change = (grown * np.exp(-u[:, None] * np.abs(angle))).sum(axis=-1)
            psi = np.minimum((0.5 * math.pi - theta) / part.mu, rule.line[open_])
            kappa = log_kappa(part, theta + part.mu * psi, c[open_])
            strip = np.exp(kappa + 0.5 * ((theta / part.mu) ** 2 + psi**2)) / np.expm1(
                2 * math.pi * psi / rule.step[open_]
            )
            spare = 2 * np.maximum(1.0, np.exp(-k[open_])) * strip
            unit = 4 * UNIT * (rule.points.shape[1] + 48) * (2 + np.hypot(c[open_], u))
            bound = np.log(change + spare + unit * grown.sum(axis=-1) + missed[open_]) + k_error[open_]
            best = np.fmin(best, bound)
        log_tail = part.count * best - np.log(u)
        small = log_tail <= limit[open_]
        end[open_[small]], tail[open_[small]] = u[small], np.exp(log_tail[small]) * (1 + 1e-9)
    return end, tail


def assemble(
    rule: Rule, c: Floats, step: Floats, size: int, tail: Floats, near: Floats, real: tuple[Floats, Floats]
) -> Lines:
    """Evaluate K at the nodes of contours; any c, step and size give valid bounds.

    Args:
        rule: the quadrature.
        c: real part.
        step: h.
        size: number of nodes.
        tail: what later ones add, as ``reach`` bounds it.
        near: points by which aliasing is bounded, c in their middle.
        real: K of one use there, and a bound of its error.
    """
    rows, (values, errors) = rule.rows, real
    count, (k, k_error) = rows.count[:, None], (x[:, NEAR.size // 2] for x in real)
    log_m, off, agree = rule.nodes(c, k, k_error, step, size)
    floor = np.log(np.maximum(off, 1e-300))
    below = log_m.real < floor
    modulus = np.where(below, floor, log_m.real)
    blur = np.log1p(np.exp(floor - modulus) * np.where(below, 2.0, 1.0)) + 4 * UNIT * np.abs(log_m) + k_error[:, None]
    phase = (-count if rows.add else count) * log_m.imag  # the nodes of the order (without, with) are conjugates, §8
    slack = np.expm1(count * blur) * (1 + 8 * UNIT)
    slack += UNIT * (4 * np.abs(phase) + 8 * np.abs(count * k[:, None]) + size + 66)
    return Lines(
        rows,
        c,
        step,
        count * modulus,
        phase,
        step[:, None] * np.arange(float(size)),
        rows.count * k,
        np.where(agree[:, None], slack, math.inf),
        tail,
        rule.lost,
        near,
        count * values,
        count * errors,
    )


def lay(scan: Scan, cells: Cells) -> tuple[list[tuple[Indices, Lines]], Floats]:
    """Contours for cells, by number of nodes, where one can be laid.

    Returned with c of a better one that needs another cut.
    """
    rule, spot = scan.rule[cells.run], place(scan, cells)
    rows, c = rule.rows, spot.c
    near = c[:, None] * NEAR
    values, errors = rule.real(near)
    k, k_error = (x[:, NEAR.size // 2] for x in (values, errors))
    slack = np.maximum(rows.count * k - np.log(c) - np.log1p(c) - spot.room, 0.0)
    felt = rows.count * rule.edge(c[:, None])[:, 0] > CUT * np.exp(-slack)
    end, tail = reach(rule, spot, slack, k, k_error, ~felt & np.isfinite(k_error))
    step = 2 * math.pi / spot.period
    number = np.ceil(end / step) + 1
    good = number <= MOST_NODES
    sizes = np.where(good, size_class(np.where(good, number, 8.0), 1), 0)
    found = []
    for size in sorted(set(sizes.tolist()) - {0}):
        at = np.flatnonzero(sizes == size)
        lines = assemble(rule[at], c[at], step[at], size, tail[at], near[at], (values[at], errors[at]))
        found.append((at, lines))
    return found, np.where(felt, c, spot.better)
