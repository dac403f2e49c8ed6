"""Quadrature of the transforms of many Poisson-sampled Gaussians at once: trapezoid rules, a row for each.

As ``normal_loss.py`` and ``sampled_gaussian.py``, with every bound an array. What differs is the sum at the nodes of a
line: M(c + iu)/M(c) − 1 is summed with all its digits, in two factors (``proofs/engine.md``, §§4–8).

And where saddles of K are, by differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.elementary import expm1, log1p
from privcalc.numerics.floats import UNIT, Complexes, Floats
from privcalc.numerics.routes.contour import DIGITS
from privcalc.numerics.special import log_normal_tail

Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

MOST_NODES, MOST_POINTS = 8192, 1024
"""Nodes of a line, and points of the quadrature, at most."""


@dataclass(frozen=True)
class Rows:
    """What is asked, in arrays of one length.

    Attributes:
        mu: 1/noise multiplier.
        q: sampling rate, in (0, 1).
        count: steps.
        log_delta: log δ, given or expected.
        add: (without, with) the record; else (with, without).
    """

    mu: Floats
    q: Floats
    count: Floats
    log_delta: Floats
    add: bool = False

    def __getitem__(self, rows: Indices | Bools) -> Rows:
        return Rows(self.mu[rows], self.q[rows], self.count[rows], self.log_delta[rows], self.add)

    @property
    def columns(self) -> tuple[Floats, Floats]:
        """μ and q, to broadcast over points."""
        return self.mu[:, None], self.q[:, None]


def size_class(number: Floats, bits: int = 2) -> Indices:
    """Array sizes: 2^bits in every octave, multiples of 8, so that few of them occur."""
    step = 2.0 ** np.maximum(np.ceil(np.log2(np.maximum(number, 8.0))) - 1 - bits, 3)
    return np.asarray(np.ceil(number / step) * step, dtype=np.intp)


def distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], Indices]:
    """Return the different rows of an array, and for each row which of them it is."""
    if len(keys) == 1:  # one question, to which np.unique is a tenth of the time
        return keys, np.zeros(1, dtype=np.intp)
    rows, which = np.unique(keys, axis=0, return_inverse=True)
    return rows, which.reshape(-1)


def log_ratio(rows: Rows, t: Floats) -> Floats:
    """log w(t) = log(1 − q + q e^{μt − μ²/2}); NaN where it would be above 700."""
    mu, q = rows.columns
    x = mu * t - 0.5 * mu * mu
    less = q * np.expm1(x)
    log = np.where(less < -0.5, np.log((1 - q) + q * np.exp(np.minimum(x, 30.0))), np.log1p(less))
    return np.asarray(np.where(x < 700, log, math.nan), dtype=np.float64)


def turned(rows: Rows, t: Floats, theta: Floats) -> tuple[Floats, Floats, Floats]:
    """log|w| and arg w where the ratio is turned by θ, and what their rounding scales with."""
    mu, q = rows.columns
    x = mu * t - 0.5 * mu * mu
    r = np.exp(x)
    real = q * (np.expm1(x) - 2 * r * np.sin(0.5 * theta) ** 2)
    imag, direct = q * r * np.sin(theta), (1 - q) + q * r * np.cos(theta)
    small = real * (2 + real) + imag * imag
    square = direct * direct + imag * imag
    modulus = 0.5 * np.where(np.abs(small) < 0.5, np.log1p(small), np.log(square))
    angle = np.arctan2(imag, direct)
    weight = q * r / np.sqrt(square)
    size = np.hypot(modulus, angle) + 0.25 * weight * (np.abs(mu * t) + mu * mu)  # as mixture.rotated_size
    return modulus, angle, np.asarray(size, dtype=np.float64)


def log_kappa(rows: Rows, angle: Floats, c: Floats) -> Floats:
    """log κ of ``proofs/engine.md``, §4."""
    if not rows.add:
        return np.zeros(np.broadcast(angle, c).shape)
    q = rows.q.reshape((-1,) + (1,) * (np.ndim(angle) - 1))
    wide = -c * np.log(np.cos(0.5 * angle))
    rare = math.log(2) - 0.5 * c * np.log1p(-4 * q * (1 - q) * np.sin(0.5 * angle) ** 2)
    return np.asarray(np.where((angle <= 0.5 * math.pi) & (q <= 0.5), np.minimum(wide, rare), wide), dtype=np.float64)


@dataclass(frozen=True)
class Rule:
    """The trapezoid rules of some rows: a, η, nodes and log weights, what is left out, and the cut.

    The log weights of padding are −∞.

    Attributes:
        rows: of which.
        line: Im t = a.
        step: η.
        points: t, shape (n, J).
        weight: log of η φ(t).
        ratio: log w(t).
        size: what its rounding scales with.
        missing: quadrature and ends, relative to max(1, M(c)).
        lost: probability of what is cut off, of all uses.
        c_max: up to which real part the bounds hold.
        log_edge: log of 6a e^{2a²} φ(b), and log w(b); −∞ without a cut.
    """

    rows: Rows
    line: Floats
    step: Floats
    points: Floats
    weight: Floats
    ratio: Floats
    size: Floats
    missing: Floats
    lost: Floats
    c_max: Floats
    log_edge: Floats
    at_edge: Floats

    def __getitem__(self, at: Indices) -> Rule:
        given = {name: value[at] for name, value in vars(self).items() if name != "rows"}
        return Rule(rows=self.rows[at], **given)

    def power(self, c: Floats) -> Floats:
        """A + cL = p log w: p."""
        return -c if self.rows.add else c + 1

    def edge(self, c: Floats) -> Floats:
        """The error of M(c), shape (n, points), that comes from the cut."""
        return np.asarray(np.exp(self.log_edge[:, None] + np.maximum(self.power(c) * self.at_edge[:, None], 0.0)))

    def plan(self, c: Floats) -> Floats:
        """About K(c) of one use, shape (n, points)."""
        z = self.power(c)[:, :, None] * self.ratio[:, None, :] + self.weight[:, None, :]
        return np.asarray(np.log(np.exp(z).sum(axis=-1)), dtype=np.float64)

    def real(self, c: Floats) -> tuple[Floats, Floats]:
        """K(c) of one use with all digits, shape (n, points), and a bound of its error; ∞ above ``c_max``."""
        z = self.power(c)[:, :, None] * self.ratio[:, None, :]
        weight = np.exp(self.weight)[:, None, :]
        grown = np.expm1(z)
        value = np.log1p((grown * weight).sum(axis=-1))
        unit = self.size * (self.points**2 + 60 + math.log2(self.points.shape[1])) * np.exp(self.weight)
        size = np.maximum(grown + 1, 1.0) * unit[:, None, :]
        rounding = UNIT * np.abs(self.power(c)) * size.sum(axis=-1) * np.exp(-value)
        missed = self.missing[:, None] * np.exp(-np.minimum(value, 0.0)) + self.edge(c) * np.exp(-value)
        error = -np.log1p(-np.minimum(1.01 * (rounding + missed), 0.5)) + 4 * UNIT * np.abs(value)
        return value, np.asarray(np.where((rounding + missed < 0.3) & (c <= self.c_max[:, None]), error, math.inf))

    def nodes(self, c: Floats, k: Floats, k_error: Floats, h: Floats, size: int) -> tuple[Complexes, Floats, Bools]:
        """log M(c + ikh)/M(c), k < size; a bound of the ratio's error; and whether this rule has the same M(c).

        The ratio is M(c + ikh)/M(c).

        M(c + iu) − M(c) is summed, all of its digits, as Σ b(e^{iuX} − 1), b that of u = 0; e^{iuX} − 1 in two factors.
        """
        t, power = self.points, self.power(c[:, None])
        modulus, angle, blur = turned(self.rows, t, (self.line * self.rows.mu)[:, None])
        sizes = np.exp(self.weight + 0.5 * self.line[:, None] ** 2 - k[:, None] + power * modulus)
        turn = power * angle - self.line[:, None] * t
        base = (sizes * np.cos(turn) + 1j * (sizes * np.sin(turn)))[:, None, :]
        block = 8 * math.ceil(math.sqrt(size) / 8)
        log = (1j * modulus - angle)[:, None, :]
        inner = expm1((h[:, None] * np.arange(float(block)))[:, :, None] * log)
        outer = expm1((h[:, None] * (block * np.arange(float(-(-size // block)))))[:, :, None] * log)
        product = (base * (1 + outer)) @ inner.swapaxes(1, 2)
        total = ((base * outer).sum(axis=-1)[:, :, None] + product).reshape(k.size, -1)[:, :size]
        unit = sizes * blur * (3 * t.shape[1] + 108 + t * t + 8 * np.abs(power) * blur + 4 * np.abs(k[:, None]))
        missed = self.missing * np.exp(-np.minimum(k, 0.0)) + self.edge(c[:, None])[:, 0] * np.exp(-k)
        error = UNIT * (h * unit.sum(axis=-1))[:, None] * np.arange(float(size))
        error += 1.01 * np.abs(total) * k_error[:, None] + 2.02 * missed[:, None]
        agree = np.abs(base[:, 0].sum(axis=-1) - 1) <= 1e-9
        return log1p(np.ascontiguousarray(total)), error, agree


def rules(rows: Rows, c_max: Floats, beyond: Floats | None = None) -> list[tuple[Indices, Rule]]:
    """Rules for real parts up to ``c_max``, by the number of points; rows that would need too many are left out.

    Args:
        rows: of which.
        c_max: shape (n,).
        beyond: where to cut at least.
    """
    mu, log_count = rows.mu, np.log(rows.count)
    digits = (log_count + 34)[:, None]
    a = np.minimum(1.5 / mu, 2.0)[:, None] * np.linspace(0.05, 1.0, 20)
    growth = log_kappa(rows, 2 * mu[:, None] * a, c_max[:, None])
    steps = 2 * math.pi * a / (digits + 2 * a * a + growth)
    best = np.argmax(np.nan_to_num(steps, nan=0.0), axis=1)[:, None]
    line, step, kappa = (np.take_along_axis(x, best, axis=1)[:, 0] for x in (a, steps, growth))
    log_tol = -36 - log_count - 0.5 * line * line - log_kappa(rows, mu * line, c_max)
    z = np.sqrt(-2 * log_tol)
    if rows.add:
        low = -np.sqrt(2 * (-log_tol - c_max * np.log1p(-rows.q))) - step
        high = np.maximum(z, 0.5 * mu) + step
    else:
        log_mass = (
            rows.log_delta - DIGITS - 20 - log_count
        )  # an edge is felt e^{10.5} times as much as it is likely, at most
        low = -z - step
        high = np.maximum(
            np.sqrt(2 * np.maximum(-log_mass, 0.0)), mu + np.sqrt(2 * np.maximum(np.log(rows.q) - log_mass, 0.0))
        )
        high = high if beyond is None else np.maximum(high, beyond)
    number = np.ceil((high - low) / step)
    sizes = np.where(number <= MOST_POINTS, size_class(np.where(number <= MOST_POINTS, number, 8.0)), 0)
    missing = (1 + np.exp(kappa + 2 * line * line)) / np.expm1(2 * math.pi * line / step) + 2 * np.exp(-36 - log_count)
    found = []
    for size in sorted(set(sizes.tolist()) - {0}):
        at = np.flatnonzero(sizes == size)
        part, h, n = rows[at], step[at, None], number[at, None]
        k = np.arange(float(size))
        t = low[at, None] + h * np.minimum(k, n - 1)
        weight = np.where(k < n, np.log(h / math.sqrt(2 * math.pi)) - 0.5 * t * t, -math.inf)
        b = (low[at] + h[:, 0] * (n[:, 0] - 0.5))[:, None]
        edge, at_edge, lost = np.full(at.size, -math.inf), np.zeros(at.size), np.zeros(at.size)
        if not rows.add:
            edge = np.log(6 * line[at]) + 2 * line[at] ** 2 - 0.5 * b[:, 0] ** 2 - 0.9
            at_edge = log_ratio(part, b)[:, 0]
            tails = [log_normal_tail(b[:, 0]) + np.log1p(-part.q), log_normal_tail(b[:, 0] - part.mu) + np.log(part.q)]
            lost = part.count * np.exp(np.logaddexp(*tails)) * (1 + 1e-9)
        ratio = log_ratio(part, t)
        mu, q = part.columns
        blur = 0.1 * q * np.exp(np.minimum(mu * t - 0.5 * mu * mu, 700.0) - ratio) * (np.abs(mu * t) + mu * mu)
        blur += np.abs(ratio)
        most = (
            c_max[at] if rows.add else np.full(at.size, math.inf)
        )  # (with, without): κ = 1, and the ends serve every c
        found.append(
            (at, Rule(part, line[at], step[at], t, weight, ratio, blur, missing[at], lost, most, edge, at_edge))
        )
    return found


def chernoff(c: Floats, k: Floats, error: Floats, epsilon: Floats) -> Floats:
    """A(c), rounded up, of ``proofs/engine.md``, §1: shape (n, points); ε of shape (n, 1)."""
    high, low = np.log1p(c), c * np.log1p(1 / c)
    rounding = 8 * UNIT * (np.abs(k) + c * epsilon + high + low)
    return np.asarray(k + error + rounding - c * epsilon - high - low)


class Saddles(NamedTuple):
    """What points of the axis would give, were each the saddle: ε, log δ(ε) and the curvature.

    They are estimates only.
    """

    epsilon: Floats
    log_delta: Floats
    curvature: Floats

    def between(self, row: Indices, at: Indices, share: Floats) -> tuple[Floats, Floats]:
        """ε and log δ between points ``at`` and the ones after."""
        values = (self.epsilon, self.log_delta)
        low, high = ((1 - share) * y[row, at] + share * y[row, at + 1] for y in values)
        return low, high

    def crossed(self, row: Indices, epsilon: Floats, log_delta: Floats) -> tuple[Bools, Indices, Floats]:
        """Whether the points of a row reach ε (log δ, where ε is NaN); the last point before, and how far after it."""
        given = np.isfinite(epsilon)
        goal = np.where(given, epsilon, -log_delta)
        values = np.where(given[:, None], self.epsilon[row], -self.log_delta[row])
        passed = values >= goal[:, None]
        number, at = np.arange(row.size), np.argmax(passed, axis=1)
        known = passed[number, at] & (at > 0)
        at = np.maximum(at - 1, 0)
        left, right = values[number, at], values[number, at + 1]
        return known, at, np.clip((goal - left) / (right - left), 0.0, 1.0)


def saddles(c: Floats, k: Floats, h: Floats | float) -> Saddles:
    """By differences along log c, of step h, at all points but the first and the last."""
    x = c[:, 1:-1]
    rise = k[:, 2:] - k[:, :-2]
    bend = k[:, 2:] - 2 * k[:, 1:-1] + k[:, :-2]
    curvature = np.maximum((bend / (h * h) - rise / (2 * h)) / x**2, 0.0) + 1 / x**2 + 1 / (1 + x) ** 2
    epsilon = rise / (2 * h) / x - 1 / x - 1 / (1 + x)
    log_delta = k[:, 1:-1] - x * epsilon - np.log(x) - np.log1p(x) - 0.5 * np.log(2 * math.pi * curvature)
    return Saddles(epsilon, log_delta, curvature)
