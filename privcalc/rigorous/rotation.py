"""Transforms by the trapezoid rule on a rotated line, with a proved error.

M(c + iu) = E[e^{G(t) + iuL(t)}], t standard normal.

G and L are combinations of log(1 − q + qr(±t)), r(t) = e^{μt − μ²/2}. What may be asked of them, and the proofs:
``proofs/rigorous.md``, §3 and §4.
"""

from __future__ import annotations

import cmath
import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import flint

from privcalc.rigorous.balls import Ball, acb, arb, error, middle, pi, upper
from privcalc.rigorous.description import UnprovableError
from privcalc.rigorous.factors import Factor, Line

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
class Mixture(Factor):
    """A loss with M(c + iu) = E[e^{G + iuL}] for u ≥ 0, or its conjugate; q < 1.

    With r turned by θ, 0 ≤ θ < π: Im L ≥ 0, and |e^G| is at most κ(θ) times what it is at θ = 0.
    """

    mu: Fraction
    rate: Fraction

    conjugate = False
    """Whether the rule gives M(c − iu)."""

    @abstractmethod
    def logs(self, c: float, t: Ball) -> tuple[Ball, Ball]:
        """G and L at t."""

    @abstractmethod
    def turned(self, c: float, t: float, angle: float) -> tuple[float, float]:
        """Re G and Im L in floats, r turned by an angle."""

    @abstractmethod
    def kappa(self, angle: Ball, c: float) -> Ball:
        """κ for turns up to ``angle`` < π."""

    @abstractmethod
    def log_kappa(self, angle: float, c: float) -> float:
        """Return log κ in floats, for planning."""

    @abstractmethod
    def tails(self, grid: Grid, c: float, height: Ball) -> Ball:
        """Return a bound of the sum over nodes outside the grid on Im t = height."""

    @abstractmethod
    def reach(self, c: float, need: float, step: float) -> tuple[float, float]:
        """About how far to the left and right the nodes must go for tails of e^{−need}·M(c)."""

    def ratio(self, t: Ball) -> Ball:
        """log(1 − q + qr(t))."""
        q, mu = arb(self.rate), arb(self.mu)
        return (1 - q + q * (mu * t - mu * mu / 2).exp()).log()

    def float_ratio(self, t: float, angle: float) -> complex:
        """The ratio in floats, r turned."""
        mu, q = float(self.mu), float(self.rate)
        return cmath.log(1 - q + q * cmath.exp(complex(min(max(mu * t - 0.5 * mu * mu, -700.0), 700.0), angle)))

    def log_moment(self, c: float) -> Ball:
        """The rule on the real line, errors 2κe^{a²/2}/(e^{2πa/η} − 1)."""
        # e^{−45} = 3e-20: less than a double's last digit, of all uses together.
        grid = self._grid(c, 45 + math.log(self.count), real=True)
        total = arb(0)
        for j in range(grid.first, grid.last + 1):
            t = j * arb(grid.step)
            total += (self.logs(c, t)[0] - t * t / 2).exp()
        total = total * arb(grid.step) / (2 * pi()).sqrt() + error(self.tails(grid, c, arb(0)))
        return self._divide(total, self._strip(grid.step, arb(grid.height), arb(grid.height) * arb(self.mu), c)).log()

    @staticmethod
    def _divide(total: Ball, relative: Ball) -> Ball:
        """F, from a sum that is off by at most relative·F."""
        return total / (1 + error(relative)) if relative < 0.5 else arb(math.nan)

    def _strip(self, step: float, a: Ball, angle: Ball, c: float) -> Ball:
        """The rule's relative error for a real integrand that is analytic within ±a.

        There r turns by up to ``angle``.
        """
        if not angle < pi():
            return arb(math.inf)
        return 2 * self.kappa(angle, c) * (a * a / 2).exp() / (2 * pi() * a / arb(step)).expm1()

    def _grid(self, c: float, nats: float, *, real: bool) -> Grid:
        """A grid with relative errors of about e^{−nats}; chosen in floats, and judged in balls."""
        mu = float(self.mu)
        step, height = 0.0, 0.0
        for k in range(49):
            # r turns by less than π, on a rotated line by 2aμ ≤ 3; beyond √(2·nats) the factor e^{a²/2} costs more than
            # the strip gains.
            a = min((0.02 + 0.02 * k) * (0.98 * math.pi if real else 1.5) / mu, math.sqrt(2 * nats))
            lost = (0.5 if real else 2.0) * a * a + self.log_kappa((1 if real else 2) * a * mu, c)
            step, height = max((step, height), (2 * math.pi * a / (nats + lost + 2), a))
        extra = 0.0 if real else 0.5 * height**2 + self.log_kappa(height * mu, c)
        left, right = self.reach(c, nats + extra + 2, step)
        if not (left + right) / step < MOST:
            raise UnprovableError(f"{self}: the transform at c = {c:.3g} would take more than {MOST} nodes")
        return Grid(height, step, -math.ceil(left / step) - 2, math.ceil(right / step) + 2)

    def line(self, c: float, h: float, nats: float) -> Line:
        """The rule on a rotated line, one set of nodes for all u."""
        return RotatedLine(self, c, h, nats)


class RotatedLine(Line):
    """M(c + iu) = Σ_j V_j e^{iuL_j} + error for all u ≥ 0, or its conjugate."""

    def __init__(self, factor: Mixture, c: float, h: float, nats: float) -> None:
        self.factor, self.c, self.h = factor, c, h
        self.grid = grid = factor._grid(c, nats, real=False)
        a = arb(grid.height)
        scale = arb(grid.step) / (2 * pi()).sqrt()
        self.values, self.logs, self.sizes, self.turns = [], [], [], []
        for j in range(grid.first, grid.last + 1):
            t = flint.acb(j * arb(grid.step), a)
            weight, log = factor.logs(c, t)
            value = scale * (weight - t * t / 2).exp()
            self.values.append(value)
            self.logs.append(log)
            self.sizes.append(abs(value))
            self.turns.append(log.imag)
        tails = factor.tails(grid, c, a)
        angle = 2 * a * arb(factor.mu)
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
        self.sketch = _Sketch(factor, c, middle(self.log_peak))

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
            matrix = flint.acb_mat
            right = matrix([[unit[k] for unit in columns] for k in range(self.width)]).transpose()
            sums = (matrix(left) * right).entries()[:size]
        else:
            sums = [acb(0, 0)] * size
        blur = flint.acb(error(dead), error(dead))
        ratios = [(value + blur) / self.peak for value in sums]
        return [value.conjugate() for value in ratios] if self.factor.conjugate else ratios

    def decay(self, u: float) -> Ball:
        """Return the best bound of decay: the absolute sum on the rotated line, or rules for it at a small angle."""
        terms = zip(self.sizes, self.turns, strict=True)
        here = sum((size * (-turn * u).exp() for size, turn in terms), start=arb(0)) + self.slack
        theta = self.sketch.best(u)
        there = self._rotated(theta, u, 45 + math.log(self.factor.count)) if theta is not None else here
        return min((here / self.peak, there / self.peak, arb(1)), key=upper)

    def _rotated(self, theta: float, u: float, nats: float) -> Ball:
        """∫ of the absolute value on Im t = ϑ = θ/μ: no less than |M(c + iu')| for all u' ≥ u."""
        factor, c, mu = self.factor, self.c, arb(self.factor.mu)
        rise = arb(theta) / mu
        # Nearly to the end of the strip, where the factor κ is still finite.
        half = 0.98 * (0.5 * math.pi - theta)
        width = min(half / float(factor.mu), math.sqrt(2 * max(nats, 1.0)))
        turned = arb(theta) + mu * arb(width)
        if not turned < pi() / 2:
            return arb(math.inf)
        log_kappa = factor.log_kappa(theta + half, c)
        step = 2 * math.pi * width / (nats + 0.5 * width**2 + log_kappa + 2)
        shift = 0.5 * (theta / float(factor.mu)) ** 2
        whole = factor._grid(c, max(nats, 1.0) + shift + log_kappa, real=True)
        ratio = whole.step / step
        grid = Grid(
            theta / float(factor.mu), step, math.floor(whole.first * ratio) - 2, math.ceil(whole.last * ratio) + 2
        )
        total = arb(0)
        for j in range(grid.first, grid.last + 1):
            t = j * arb(step)
            weight, log = factor.logs(c, flint.acb(t, rise))
            total += (weight.real - u * log.imag - t * t / 2).exp()
        total *= arb(step) / (2 * pi()).sqrt()
        strip = 2 * factor.kappa(turned, c) * (arb(width) ** 2 / 2).exp() / (2 * pi() * arb(width) / arb(step)).expm1()
        return (rise * rise / 2).exp() * (total + strip * self.peak) + factor.tails(grid, c, rise)

    def estimate(self, u: float) -> float:
        return min(0.0, self.sketch.log_decay(u))


ANGLES = (*(1e-6 * 1.2e6 ** (k / 43) for k in range(44)), 1.45)
"""From 1e-6 to 1.2, by 38 % each, and 1.45, of turns below ½π; any is valid, this many to plan with."""
POINTS = 300
"""Of a sketch in floats, to plan with."""


class _Sketch:
    """The integral of absolute values at several angles, in floats; no bound depends on it."""

    def __init__(self, factor: Mixture, c: float, log_peak: float) -> None:
        grid = factor._grid(c, 40 + math.log(factor.count), real=True)
        width = (grid.last - grid.first) * grid.step / (POINTS - 1)
        self.factor, self.c, self.at = factor, c, len(ANGLES) // 2
        self.points = [grid.first * grid.step + width * k for k in range(POINTS)]
        self.level = math.log(width / math.sqrt(2 * math.pi)) - log_peak
        self.rows = dict[int, tuple[list[float], list[float]]]()

    def _row(self, at: int) -> tuple[list[float], list[float]]:
        """The logarithm of the absolute value, but for u times the second list."""
        if at not in self.rows:
            angle = ANGLES[at]
            level = self.level + 0.5 * (angle / float(self.factor.mu)) ** 2
            both = [self.factor.turned(self.c, t, angle) for t in self.points]
            flat = [weight - 0.5 * t * t + level for (weight, _), t in zip(both, self.points, strict=True)]
            self.rows[at] = flat, [turn for _, turn in both]
        return self.rows[at]

    def _log(self, at: int, u: float) -> float:
        values = [x - u * y for x, y in zip(*self._row(at), strict=True)]
        top = max(values)
        return top + math.log(math.fsum(math.exp(x - top) for x in values if x > top - 40))

    def log_decay(self, u: float) -> float:
        """The least over θ that is found from the angle that was the best of the last u on."""
        here = self._log(self.at, u)
        for way in (1, -1):
            while 0 <= self.at + way < len(ANGLES) and (there := self._log(self.at + way, u)) < here:
                self.at, here = self.at + way, there
        return here

    def best(self, u: float) -> float | None:
        """The best θ up to 1.2; None if it is not among them."""
        self.log_decay(u)
        return ANGLES[self.at] if ANGLES[self.at] <= 1.2 else None
