"""ε of many Poisson-sampled Gaussians at once, a row for each question, by one contour each.

No row depends on another one: rows that need arrays of one shape are computed together, every sum is one over the last axis of a
row, and every product one of a row's own matrices. Where a bound does not close, a row has no answer, and is asked elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.routes.contour import DIGITS
from privcalc.numerics.routes.lines import NEAR, Lines, lay
from privcalc.numerics.routes.route import QUIET
from privcalc.numerics.routes.rules import Bools, Indices, Rows, chernoff, log_ratio, rules

MANY = 4096
"""Rows whose points are in memory together."""

PASSES = 5
"""Steps of Newton's method: from a saddle's two digits."""

PLANS = 4
"""How often a row is planned: for a cut that was felt, and for an ε that was far from the estimate."""

FINE, WIDE = 1e-9, 1e-8
"""Relative widths of ε: with which no other plan is made, and with which a row has no answer."""

MOVED = 1e-3
"""If the estimate moved by no more than this, relative, no other plan is made for it."""

LEAST, MOST = 1e-200, 0.5
"""δ for which a row may have an answer."""

BLOCK = 64
"""Rows that are computed together: so many fit a processor's cache."""

SLACKS = (1.0, 2.0, 6.0, 30.0)
"""How many times the estimated width an end may lie from the estimate."""


def invert(lines: Lines, delta: Floats) -> tuple[Floats, Floats, Floats]:
    """Both ends of ε(δ), at which δ was evaluated to be on the right side, NaN where it was not; and an estimate."""
    epsilon, log_delta = lines.start, np.log(delta)
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
            point = np.maximum(epsilon[open_] + sign * (times * 1.05 * apart[open_] + 4 * times * UNIT * epsilon[open_]), 0.0)
            there = lines[open_].bounds(point)
            good = (there[0] >= delta[open_]) | (point == 0) if sign < 0 else there[1] <= delta[open_]
            found[open_[good]] = point[good]
        ends.append(found)
    return ends[0], ends[1], epsilon


def pieces(size: int, most: int = BLOCK) -> list[Indices]:
    """Rows that are computed together."""
    return [np.arange(start, min(start + most, size)) for start in range(0, size, most)]


@QUIET
def epsilons(mu: Floats, q: Floats, count: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """Both ends of ε(δ) of Poisson-sampled Gaussians, the worse of both orders; NaN where they are not known.

    Args:
        mu: 1/noise multiplier.
        q: sampling rate, in (0, 1).
        count: steps, at least 2.
        delta: δ in (0, 1/2].
    """
    ends = np.full((2, delta.size), math.nan)
    for part in pieces(delta.size, MANY):
        ends[:, part] = _epsilons(Rows(mu[part], q[part], count[part], np.log(delta[part])), delta[part])
    return ends[0], ends[1]


def _epsilons(rows: Rows, delta: Floats) -> Floats:
    """The same, few enough for all of their points to be in memory."""
    size = delta.size
    ends = np.full((2, size), math.nan)
    c, felt, guess, planned = (np.full(size, math.nan) for _ in range(4))
    beyond, again = np.full(size, -math.inf), np.arange(size)
    for _ in range(PLANS):
        for inside, rule in rules(rows[again], rows.mu[again], beyond[again]):
            for piece in pieces(inside.size):
                here = again[inside[piece]]
                lines, felt[here] = lay(rule[piece], guess[here])
                for of, line in lines:
                    at = here[of]
                    low, high, guess[at] = invert(line, delta[at])
                    better = ~(high - low >= ends[1, at] - ends[0, at]) & np.isfinite(high - low)
                    ends[0, at[better]], ends[1, at[better]], c[at] = low[better], high[better], line.c
        moved = ~(np.abs(guess - planned) <= MOVED * guess) & np.isfinite(guess)
        wide = ~(ends[1] - ends[0] <= FINE * ends[1]) & moved
        planned = guess.copy()
        cut = np.isfinite(felt)
        beyond[cut] = past(rows[cut], felt[cut])
        again = again[(wide | cut)[again]]
        if not again.size:
            break
        felt[again] = math.nan
    known = np.flatnonzero(np.isfinite(ends).all(axis=0))
    known = known[ends[1, known] - ends[0, known] <= WIDE * ends[1, known]]
    wrong = known[~_no_worse(replace(rows[known], add=True), c[known], ends[1, known], delta[known])]
    answered = np.setdiff1d(known, wrong)
    found = np.full((2, size), math.nan)
    found[:, answered] = ends[:, answered]
    return found


def past(rows: Rows, c: Floats) -> Floats:
    """Where a cut is not felt at c, nor a little above: the first of some points, or beyond all that e^{cL} favours."""
    most, mu = 1.2 * c, rows.mu
    small = -52 - np.log(rows.count)  # 6a e^{2a²} is at most e^{10.5}
    start = np.sqrt(2 * np.maximum(DIGITS - rows.log_delta, 0.0))
    far = (most + 1) * mu + np.sqrt(2 * np.maximum(np.log(rows.q) + 0.5 * most * (most + 1) * mu**2 - small + 8, 0.0)) + 4
    b = start[:, None] + np.maximum(far - start, 0.0)[:, None] * np.linspace(0, 1, 65)
    good = (most + 1)[:, None] * log_ratio(rows, b) - 0.5 * b * b <= small[:, None]
    return np.asarray(np.where(good.any(axis=1), b[np.arange(c.size), np.argmax(good, axis=1)], far))


def _no_worse(rows: Rows, c: Floats, epsilon: Floats, delta: Floats) -> Bools:
    """Whether δ(ε) ≤ δ is shown for the order (without, with): by the real axis, else by a contour."""
    shown = np.zeros(c.size, dtype=np.bool_)
    for contours in (False, True):
        left = np.flatnonzero(~shown)
        for inside, rule in rules(rows[left], 4 * c[left]):
            for piece in pieces(inside.size):
                here = left[inside[piece]]
                if not contours:
                    near, count = c[here, None] * NEAR, rows.count[here, None]
                    values, errors = rule[piece].real(near)
                    best = chernoff(near, count * values, count * errors, epsilon[here, None])
                    shown[here] = np.fmin.reduce(best, axis=1) <= np.log(delta[here])
                    continue
                for of, line in lay(rule[piece], epsilon[here])[0]:
                    shown[here[of]] = line.bounds(epsilon[here[of]])[1] <= delta[here[of]]
    return shown
