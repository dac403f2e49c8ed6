"""Contours of many Poisson-sampled Gaussians at once, a row for each: where they are laid, and what they bound.

As ``contour.py``, with every step and every bound an array (``proofs/engine.md``, §8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.routes.contour import CROSS, DIGITS
from privcalc.numerics.routes.rules import MOST_NODES, Bools, Indices, Rows, Rule, chernoff, log_kappa, size_class, turned

WINDOW = 2.0 ** (0.25 * np.arange(-36, 13))
"""Points of the real axis, over the c that a Gaussian loss of the same variance would have."""

NEAR = 2.0 ** (0.25 * np.arange(-6, 7))
"""Those at which aliasing is bounded, over the c of the line; 1 is in the middle."""

CUT = 1e-13
"""Share of M that a cut may be felt by, of all uses."""

REACH = (1.2, 1.5, 1.9, 2.5, 3.5, 5.0, 8.0, 14.0, 25.0)
"""Where a line may end, over where it would for a Gaussian loss of the same variance."""


@dataclass(frozen=True)
class Place:
    """Where the axis is crossed: c, the period D, the estimated ε, log δ and curvature, and log of what the line adds to δ."""

    c: Floats
    period: Floats
    epsilon: Floats
    log_delta: Floats
    curvature: Floats
    slack: Floats

    def __getitem__(self, rows: Indices | Bools) -> Place:
        values = (self.c, self.period, self.epsilon, self.log_delta, self.curvature, self.slack)
        return Place(*(value[rows] for value in values))


def place(rule: Rule, epsilon: Floats) -> Place:
    """The saddle by differences along log c, the first crossing of log δ (or ε), and the cheapest c near it."""
    rows = rule.rows
    spread = rows.count * rows.q**2 * np.expm1(rows.mu**2)
    start = np.sqrt(2 * (1 - rows.log_delta) / spread)
    c = start[:, None] * WINDOW
    k = rows.count[:, None] * rule.plan(c)
    h, log_c = 0.25 * math.log(2), np.log(c)
    rise = k[:, 2:] - k[:, :-2]
    bend = k[:, 2:] - 2 * k[:, 1:-1] + k[:, :-2]
    x = c[:, 1:-1]
    slope = rise / (2 * h) / x
    curvature = np.maximum((bend / (h * h) - rise / (2 * h)) / x**2, 0.0) + 1 / x**2 + 1 / (1 + x) ** 2
    eps = slope - 1 / x - 1 / (1 + x)
    log_delta = k[:, 1:-1] - x * eps - log_c[:, 1:-1] - np.log1p(x) - 0.5 * np.log(2 * math.pi * curvature)
    given = np.isfinite(epsilon)
    goal, values = np.where(given, epsilon, -rows.log_delta), np.where(given[:, None], eps, -log_delta)
    crossed = values >= goal[:, None]
    at = np.argmax(crossed, axis=1)
    number = np.arange(at.size)
    known = crossed[number, at] & (at > 0)
    at = np.maximum(at, 1)
    left, right = values[number, at - 1], values[number, at]
    share = np.clip((goal - left) / (right - left), 0.0, 1.0)

    def between(y: Floats) -> Floats:
        return np.asarray(y[number, at - 1] + share * (y[number, at] - y[number, at - 1]))

    star, found_curve = np.exp(between(log_c[:, 1:-1])), np.exp(between(np.log(curvature)))
    found = np.where(given, epsilon, np.maximum(between(eps), 0.0))
    target = np.where(given & rows.add, between(log_delta), rows.log_delta)
    # The cheapest of some points near the saddle, each with the least period that keeps both aliases small.
    tail = chernoff(c, k, np.zeros_like(k), found[:, None]) - target[:, None] + DIGITS
    candidates = (at + 1)[:, None] + np.arange(-9, 2)  # of the grid, ends included
    inside = (candidates >= 6) & (candidates < c.shape[1] - 6)
    candidates = np.clip(candidates, 6, c.shape[1] - 7)
    crossing = np.take_along_axis(c, candidates, axis=1)
    inside &= (crossing > CROSS[0] * star[:, None]) & (crossing < CROSS[1] * star[:, None])
    others = candidates[:, :, None] + np.arange(-6, 7)
    flat = others.reshape(at.size, -1)
    apart = crossing[:, :, None] - np.take_along_axis(c, flat, axis=1).reshape(others.shape)
    period = np.take_along_axis(tail, flat, axis=1).reshape(others.shape) / np.abs(apart)
    from_left = np.min(np.where(apart > 0, period, math.inf), axis=2)
    from_left = np.minimum(from_left, (DIGITS - target)[:, None] / crossing)
    from_right = np.min(np.where(apart < 0, period, math.inf), axis=2)
    d = 1.02 * np.maximum(np.maximum(from_left, from_right), 1 / crossing)
    here = np.take_along_axis(k, candidates, axis=1)
    slack = here - crossing * found[:, None] - np.log(crossing) - np.log1p(crossing) - target[:, None]
    # Where a cut is felt at the saddle it may not be below; where it is felt everywhere, another cut is needed.
    unfelt = rows.count[:, None] * rule.edge(crossing) <= CUT * np.exp(-np.maximum(slack, 0.0))
    inside &= unfelt | ~(unfelt & inside).any(axis=1, keepdims=True)
    cost = np.where(inside, np.nan_to_num(d * np.exp(np.clip(0.12 * (slack - 2.5), 0, 600)), nan=math.inf), math.inf)
    best = np.argmin(cost, axis=1)
    known &= cost[number, best] < math.inf
    chosen = [np.where(known, y[number, best], math.nan) for y in (crossing, d, slack)]
    return Place(chosen[0], chosen[1], found, target, found_curve, np.maximum(chosen[2], 0.0))


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
        near: c', A(c') at ε = 0 and what its rounding is a multiple of, shape (n, points), by which aliasing is bounded.
        start: an estimate of ε.
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
    start: Floats

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


def reach(rule: Rule, spot: Place, k: Floats, k_error: Floats, good: Bools) -> tuple[Floats, Floats]:
    """Where a line may end, and the tail there (``proofs/engine.md``, §§3, 6): the first of some ends; ∞ where none does.

    Args:
        rule: the quadrature.
        spot: where the lines are.
        k: K(c) of one use.
        k_error: its error.
        good: for which rows one is looked for.
    """
    rows, c = rule.rows, spot.c
    end, tail = np.full(c.size, math.inf), np.zeros(c.size)
    start = np.sqrt(2 * (DIGITS + spot.slack) / spot.curvature)
    power = rule.power(c[:, None])[:, 0]
    tilted = np.exp(rule.weight + power[:, None] * rule.ratio - k[:, None])
    share = rows.q[:, None] * np.exp(rows.mu[:, None] * rule.points - 0.5 * rows.mu[:, None] ** 2 - rule.ratio)
    mean = (tilted * share).sum(axis=-1)
    variance = (tilted * (share - mean[:, None]) ** 2).sum(axis=-1)
    limit = math.log(math.pi) + spot.log_delta - DIGITS - (rows.count * k - c * spot.epsilon)
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
            strip = np.exp(kappa + 0.5 * ((theta / part.mu) ** 2 + psi**2)) / np.expm1(2 * math.pi * psi / rule.step[open_])
            spare = 2 * np.maximum(1.0, np.exp(-k[open_])) * strip
            unit = 4 * UNIT * (rule.points.shape[1] + 48) * (2 + np.hypot(c[open_], u))
            bound = np.log(change + spare + unit * grown.sum(axis=-1) + missed[open_]) + k_error[open_]
            best = np.fmin(best, bound)
        log_tail = part.count * best - np.log(u)
        small = log_tail <= limit[open_]
        end[open_[small]], tail[open_[small]] = u[small], np.exp(log_tail[small]) * (1 + 1e-9)
    return end, tail


def lay(rule: Rule, epsilon: Floats) -> tuple[list[tuple[Indices, Lines]], Floats]:
    """Contours for the rows of a rule, by their number of nodes, where one can be laid; and c where a cut is felt.

    Args:
        rule: of which.
        epsilon: where δ is wanted, or about the ε that is; NaN where that is not known.
    """
    rows, spot = rule.rows, place(rule, epsilon)
    felt = rows.count * rule.edge(spot.c[:, None])[:, 0] > CUT * np.exp(-spot.slack)
    near = spot.c[:, None] * NEAR
    values, errors = rule.real(near)
    k, k_error = (x[:, NEAR.size // 2] for x in (values, errors))
    end, tail = reach(rule, spot, k, k_error, ~felt & np.isfinite(k_error))
    step = 2 * math.pi / spot.period
    number = np.ceil(end / step) + 1
    good = number <= MOST_NODES
    sizes = np.where(good, size_class(np.where(good, number, 8.0), 1), 0)
    found = []
    for size in np.unique(sizes[sizes > 0]).tolist():
        at = np.flatnonzero(sizes == size)
        own, count, h = rule[at], rows.count[at, None], step[at]
        log_m, off, agree = own.nodes(spot.c[at], k[at], k_error[at], h, size)
        floor = np.log(np.maximum(off, 1e-300))
        below = log_m.real < floor
        modulus = np.where(below, floor, log_m.real)
        blur = np.log1p(np.exp(floor - modulus) * np.where(below, 2.0, 1.0)) + 4 * UNIT * np.abs(log_m) + k_error[at, None]
        phase = (-count if rows.add else count) * log_m.imag  # the nodes of the order (without, with) are conjugates, §8
        slack = np.expm1(count * blur) * (1 + 8 * UNIT)
        slack += UNIT * (4 * np.abs(phase) + 8 * np.abs(count * k[at, None]) + size + 66)
        lines = Lines(
            rows[at],
            spot.c[at],
            h,
            count * modulus,
            phase,
            h[:, None] * np.arange(float(size)),
            rows.count[at] * k[at],
            np.where(agree[:, None], slack, math.inf),
            tail[at],
            own.lost,
            near[at],
            count * values[at],
            count * errors[at],
            spot.epsilon[at],
        )
        found.append((at, lines))
    return found, np.where(felt, spot.c, math.nan)
