"""The Poisson-sampled Gaussian: M(s) by the trapezoid rule on a rotated line, with a proved error.

With t standard normal and r = e^{μt − μ²/2}, F(p) = E[(1 − q + qr)^p]: remove is M(s) = F(s + 1), add M(s) = F(−s), whose values
for u < 0 are conjugates of those for u > 0; so p + iu with u ≥ 0 is enough. Proofs: ``proofs/rigorous.md``, §3 and §4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privcalc.rigorous.balls import Ball, acb, arb, error, flint, middle, ndtr, pi, upper
from privcalc.rigorous.factors import Factor, Line, Normal, UnprovableError

Floats = NDArray[np.float64]

MOST = 200_000
"""The most nodes of a quadrature."""


@dataclass(frozen=True)
class Grid:
    """Nodes t = jη + ia, first ≤ j ≤ last."""

    height: float
    step: float
    first: int
    last: int


@dataclass(frozen=True)
class Sampled(Factor):
    """N(μ, 1) against N(0, 1), sampled at rate q < 1, in the order ``add`` or remove."""

    mu: Fraction
    rate: Fraction
    add: bool

    @property
    def top(self) -> Ball | None:
        """−log(1 − q) in the add order."""
        return -(1 - arb(self.rate)).log() if self.add else None

    def power(self, c: float) -> Ball:
        """p = c + 1, or −c."""
        return -arb(c) if self.add else arb(c) + 1

    def log_moment(self, c: float) -> Ball:
        """log F(p): the rule on the real line, errors 2κe^{a²/2}/(e^{2πa/η} − 1)."""
        nats = 45 + math.log(self.count)
        grid = self._grid(c, nats, real=True)
        p, q, mu = self.power(c), arb(self.rate), arb(self.mu)
        total = arb(0)
        for j in range(grid.first, grid.last + 1):
            t = j * arb(grid.step)
            total += ((1 - q + q * (mu * t - mu * mu / 2).exp()).log() * p - t * t / 2).exp()
        total = total * arb(grid.step) / (2 * pi()).sqrt() + error(self.tails(grid, c, arb(0)))
        return self._divide(total, self._strip(grid.step, arb(grid.height), arb(grid.height) * mu, c)).log()

    @staticmethod
    def _divide(total: Ball, relative: Ball) -> Ball:
        """F, from a sum that is off by at most relative·F."""
        return total / (1 + error(relative)) if relative < 0.5 else arb(math.nan)

    def kappa(self, angle: Ball, c: float) -> Ball:
        """|1 − q + qre^{iα}|^p ≤ κ(1 − q + qr)^p for |α| ≤ angle < π: 1, or (cos ½α)^{−c}."""
        return (angle / 2).cos() ** -arb(c) if self.add else arb(1)

    def _strip(self, step: float, a: Ball, angle: Ball, c: float) -> Ball:
        """Relative error of the rule for a real integrand that is analytic within ±a, where r turns by up to ``angle``."""
        if not angle < pi():
            return arb(math.inf)
        return 2 * self.kappa(angle, c) * (a * a / 2).exp() / (2 * pi() * a / arb(step)).expm1()

    def tails(self, grid: Grid, c: float, height: Ball) -> Ball:
        """What the nodes outside the grid on Im t = height add at most: both bounds of proofs/rigorous.md, §3, the better."""
        p, q, mu, step = self.power(c), arb(self.rate), arb(self.mu), arb(grid.step)
        scale = (height * height / 2).exp() * self.kappa(height * mu, c)
        left, right = -grid.first * step, grid.last * step  # the sums begin one step further out
        jump = q * ((p * p - p) * mu * mu / 2).exp()
        found = arb(0)
        for end, peak, flat in ((left, -p * mu, (1 - q) ** p), (right, p * mu, arb(1))):
            if not end > 0:
                return arb(math.inf)
            bounds = [(1 - q) * ndtr(-end) + jump * ndtr(peak - end)] if end >= peak else []
            if self.add and (end is left or end >= mu / 2):
                bounds.append(flat * ndtr(-end))
            found += min(bounds, key=middle) if bounds else arb(math.inf)
        return scale * found

    def _grid(self, c: float, nats: float, *, real: bool) -> Grid:
        """A grid with relative errors of about e^{−nats}; chosen in floats, and judged in balls."""
        mu, q, p = float(self.mu), float(self.rate), (-c if self.add else c + 1.0)
        turn = np.linspace(0.02, 0.98, 49) * (0.98 * math.pi if real else 1.5)
        a = np.minimum(turn / mu, math.sqrt(2 * nats))
        lost = 0.5 * a * a if real else 2 * a * a
        if self.add:
            lost = lost - c * np.log(np.cos(0.5 * a * mu if real else a * mu))
        steps = 2 * np.pi * a / (nats + lost + 2)
        best = int(np.argmax(steps))
        height, step = float(a[best]), float(steps[best])
        extra = 0.0 if real else 0.5 * height**2 - (c * math.log(math.cos(0.5 * height * mu)) if self.add else 0.0)
        need, jump = nats + extra + 2, math.log(q) + 0.5 * (p * p - p) * mu * mu
        usual = math.sqrt(2 * need)
        far = math.sqrt(max(2 * (need + jump), 0.0))
        if self.add:
            left = min(max(usual, far + c * mu), math.sqrt(2 * (need - c * math.log1p(-q))))
            right = max(usual, 0.5 * mu + step)
        else:
            left, right = usual, max(usual, p * mu + min(far, math.sqrt(2 * (need + (p + 1) * -math.log(q)))))
        if not (left + right) / step < MOST:
            raise UnprovableError(f"{self}: the transform at c = {c:.3g} would take more than {MOST} nodes")
        return Grid(height, step, -math.ceil(left / step) - 2, math.ceil(right / step) + 2)

    def line(self, c: float, h: float, nats: float) -> Line:
        """The rule on a rotated line, one set of nodes for all u."""
        return SampledLine(self, c, h, nats)

    def profile(self, epsilon: Ball) -> Ball:
        """One use: q·δ(ε'), or (1 − (1 − q)e^ε)·δ(ε''); δ of the Gaussian (``proofs/poisson.md``). Any real ε."""
        base, q = Normal(1, self.mu**2), arb(self.rate)
        if not self.add:
            factor = 1 + epsilon.expm1() / q
            if factor > 0:
                return q * base.profile(factor.log())
            return -epsilon.expm1() if factor <= 0 else error(arb(1))
        left = 1 - (1 - q) * epsilon.exp()
        if left > 0:
            return left * base.profile(-(1 + (-epsilon).expm1() / q).log())
        return arb(0) if left <= 0 else error(arb(1))


class SampledLine(Line):
    """F(p + iu) = Σ_j V_j e^{iuL_j} + error, L_j = log(1 − q + qr_j), for all u ≥ 0."""

    def __init__(self, factor: Sampled, c: float, h: float, nats: float) -> None:
        self.factor, self.c, self.h = factor, c, h
        self.grid = grid = factor._grid(c, nats, real=False)
        p, q, mu = factor.power(c), arb(factor.rate), arb(factor.mu)
        a = arb(grid.height)
        scale = arb(grid.step) / (2 * pi()).sqrt()
        self.values, self.logs, self.sizes, self.turns = [], [], [], []
        for j in range(grid.first, grid.last + 1):
            t = flint().acb(j * arb(grid.step), a)
            log = (1 - q + q * (mu * t - mu * mu / 2).exp()).log()
            value = scale * (p * log - t * t / 2).exp()
            self.values.append(value)
            self.logs.append(log)
            self.sizes.append(abs(value))
            self.turns.append(log.imag)
        tails = factor.tails(grid, c, a)
        angle = 2 * a * mu
        relative = arb(math.inf)
        if angle < pi():
            relative = (1 + factor.kappa(angle, c) * (2 * a * a).exp()) / (2 * pi() * a / arb(grid.step)).expm1()
        self.peak = factor._divide(sum(self.values, start=acb(0, 0)).real + error(tails), relative)
        self.log_peak = self.peak.log()
        self.slack = tails + relative * self.peak
        self.little = self.slack / len(self.values)
        turn = acb(0, 1) * arb(h)
        self.steps = [turn * log for log in self.logs]
        self.width, self.unit = 0, list[list[Ball]]()
        self.planned = _Plan(factor, c, middle(self.log_peak))

    def ratios(self, first: int, size: int) -> list[Ball]:
        """k = first + b·width + a: a matrix product. Nodes of the rule that have died out go into the error."""
        if not self.unit:
            self.width = min(math.isqrt(size) + 1, 128)
            self.unit = [[(e * k).exp() for k in range(self.width + 1)] for e in self.steps]
        row, columns, left, dead = [], [], list[list[Ball]](), self.slack
        for v, e, s, unit in zip(self.values, self.steps, self.sizes, self.unit, strict=True):
            bound = s * (e.real * first).exp()
            if bound < self.little:
                dead += bound
            else:
                row.append(v * (e * first).exp())
                columns.append(unit)
        if row:
            for _ in range(-(-size // self.width)):
                left.append(row)
                row = [v * unit[-1] for v, unit in zip(row, columns, strict=True)]
            matrix = flint().acb_mat
            right = matrix([[unit[k] for unit in columns] for k in range(self.width)]).transpose()
            sums = (matrix(left) * right).entries()[:size]
        else:
            sums = [acb(0, 0)] * size
        blur = flint().acb(error(dead), error(dead))
        found = [(value + blur) / self.peak for value in sums]
        return [value.conjugate() for value in found] if self.factor.add else found

    def decay(self, u: float) -> Ball:
        """The best of: the absolute sum on the rotated line; rules for the absolute value at a small angle."""
        terms = zip(self.sizes, self.turns, strict=True)
        here = sum((size * (-turn * u).exp() for size, turn in terms), start=arb(0)) + self.slack
        theta = self.planned.best(u)
        there = self._rotated(theta, u, 45 + math.log(self.factor.count)) if theta is not None else here
        return min((here / self.peak, there / self.peak, arb(1)), key=upper)

    def _rotated(self, theta: float, u: float, nats: float) -> Ball:
        """G_θ(u) = e^{ϑ²/2}∫φ|1 − q + qre^{iθ}|^p e^{−u·arg}, ϑ = θ/μ ≥ |F(p + iu')| for all u' ≥ u."""
        factor, c = self.factor, self.c
        p, q, mu = factor.power(c), arb(factor.rate), arb(factor.mu)
        rise = arb(theta) / mu
        half = 0.98 * (0.5 * math.pi - theta)
        width = min(half / float(factor.mu), math.sqrt(2 * max(nats, 1.0)))
        turned = arb(theta) + mu * arb(width)
        if not turned < pi() / 2:
            return arb(math.inf)
        log_kappa = -c * math.log(math.cos(0.5 * (theta + half))) if factor.add else 0.0
        step = 2 * math.pi * width / (nats + 0.5 * width**2 + log_kappa + 2)
        shift = 0.5 * (theta / float(factor.mu)) ** 2
        whole = factor._grid(c, max(nats, 1.0) + shift + log_kappa, real=True)
        ratio = whole.step / step
        grid = Grid(theta / float(factor.mu), step, math.floor(whole.first * ratio) - 2, math.ceil(whole.last * ratio) + 2)
        unit = acb(0, theta).exp()
        total = arb(0)
        for j in range(grid.first, grid.last + 1):
            t = j * arb(step)
            log = (1 - q + q * unit * (mu * t - mu * mu / 2).exp()).log()
            total += (p * log.real - u * log.imag - t * t / 2).exp()
        total *= arb(step) / (2 * pi()).sqrt()
        strip = 2 * factor.kappa(turned, c) * (arb(width) ** 2 / 2).exp() / (2 * pi() * arb(width) / arb(step)).expm1()
        return (rise * rise / 2).exp() * (total + strip * self.peak) + factor.tails(grid, c, rise)

    def estimate(self, u: float) -> float:
        """From floats."""
        return min(0.0, self.planned.log_decay(u))


class _Plan:
    """G_θ(u) in floats, for several θ; no bound depends on it."""

    def __init__(self, factor: Sampled, c: float, log_peak: float) -> None:
        mu, q, p = float(factor.mu), float(factor.rate), (-c if factor.add else c + 1.0)
        grid = factor._grid(c, 40 + math.log(factor.count), real=True)
        t = np.linspace(grid.first * grid.step, grid.last * grid.step, 400)
        self.angles = np.append(np.geomspace(1e-6, 1.2, 44), 1.45)
        log_r = np.clip(mu * t - 0.5 * mu * mu, -700.0, 700.0)
        w = 1 - q + q * np.exp(log_r) * np.exp(1j * self.angles[:, None])
        step = math.log((t[1] - t[0]) / math.sqrt(2 * math.pi))
        rise = 0.5 * (self.angles / mu) ** 2
        self.flat: Floats = p * np.log(np.abs(w)) - 0.5 * t * t + step + rise[:, None] - log_peak
        self.turn: Floats = np.angle(w)

    def _all(self, u: float) -> Floats:
        values = self.flat - u * self.turn
        top = values.max(axis=1)
        found: Floats = top + np.log(np.exp(values - top[:, None]).sum(axis=1))
        return found

    def log_decay(self, u: float) -> float:
        """The least over θ."""
        return float(self._all(u).min())

    def best(self, u: float) -> float | None:
        """The best θ up to 1.2; None if it is not among them."""
        values = self._all(u)
        at = int(np.argmin(values))
        return float(self.angles[at]) if self.angles[at] <= 1.2 else None
