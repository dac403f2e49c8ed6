"""One epoch of random allocation in ball arithmetic.

E(K − S)_+ of S = r_1 + … + r_t, r = e^{μg − μ²/2}, by Laplace inversion.

    Σ_m e^{−cmD} E(K + mD − S)_+ = (h/π) Re[f(c)/2 + Σ_{k≥1} f(c + ikh)],
    f(s) = e^{sK}φ(s)^t/s²,  φ(s) = E e^{−sr},  D = 2π/h.

With D ≥ K there are no terms m < 0, as S > 0. Proof: ``proofs/rigorous.md``, §7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import flint

from privcalc.rigorous.balls import Ball, acb, arb, error, lower, middle, ndtr, pi, precision, upper
from privcalc.rigorous.contour import Bounds, Progress
from privcalc.rigorous.factors import Factor

MOST_NODES, MOST_TERMS = 60_000, 20_000_000
"""More nodes, or nodes times cells of the rule for φ, are not tried."""

LEAST, MOST = Fraction(1, 10**12), Fraction(100)
"""μ² for which it is tried."""

_BLOCKS = 20
"""They grow by half: the last one begins at 2000 times the last node, and counts all beyond."""


@dataclass(frozen=True)
class Allocated(Factor):
    """(1/t)Σ_j N(μe_j, I) against N(0, I) in t dimensions, in the order ``add`` or remove; ``square`` is μ²."""

    square: Fraction
    steps: int
    add: bool

    def log_moment(self, c: float) -> Ball:
        """At most that of the unsampled pair, of which P is a mixture."""
        return arb(self.square) / 2 * arb(c) * (arb(c) + 1)


@dataclass(frozen=True)
class Rule:
    """The trapezoid rule for φ on Im x = −θ/μ, 0 < 2θ ≤ π/2, to about e^{−nats}; in the precision that is set."""

    mu: float
    nats: float

    @cached_property
    def height(self) -> float:
        """The height of the line of integration, θ/μ."""
        # 0.785 < ¼π, as 2θ ≤ ½π; beyond √nats the factor e^{a²} costs more than the strip gains.
        return min(0.785 / self.mu, math.sqrt(self.nats))

    @cached_property
    def step(self) -> float:
        """The step η of the trapezoid rule."""
        return 2 * math.pi * self.height / (self.nats + 2 * self.height**2 + 2)

    @property
    def size(self) -> int:
        """Nodes on one side of 0."""
        return math.ceil(math.sqrt(2 * self.nats + self.height**2) / self.step) + 2


class Transform:
    """φ(s) within one absolute error for all s with Re s > 0, Im s ≥ 0."""

    def __init__(self, square: Fraction, nats: float) -> None:
        self.mu = arb(square).sqrt()
        self.rule = rule = Rule(math.sqrt(square), nats)
        a, step = arb(rule.height), arb(rule.step)
        if not 2 * a * self.mu < pi() / 2:
            raise ArithmeticError("the line of the rule is too far from the axis")
        points = [flint.acb(j * step, -a) for j in range(-rule.size, rule.size + 1)]
        scale = step / (2 * pi()).sqrt()
        self.weights = [scale * (-x * x / 2).exp() for x in points]
        self.values = [(self.mu * x - self.mu * self.mu / 2).exp() for x in points]
        strip = (1 + (2 * a * a).exp()) / (2 * pi() * a / step).expm1()
        self.slack = strip + 2 * (a * a / 2).exp() * ndtr(-rule.size * step)

    def along(self, c: float, h: float, size: int) -> list[Ball]:
        """At c + ikh, k < size: a product of two matrices."""
        width = min(math.isqrt(size) + 1, 128)
        turns = [-r * acb(0, h) for r in self.values]
        unit = [[(turn * k).exp() for k in range(width + 1)] for turn in turns]
        row, left = (
            [w * (-r * arb(c)).exp() for w, r in zip(self.weights, self.values, strict=True)],
            list[list[Ball]](),
        )
        for _ in range(-(-size // width)):
            left.append(row)
            row = [v * powers[-1] for v, powers in zip(row, unit, strict=True)]
        matrix = flint.acb_mat
        right = matrix([[powers[k] for powers in unit] for k in range(width)]).transpose()
        blur = flint.acb(error(self.slack), error(self.slack))
        return [value + blur for value in (matrix(left) * right).entries()[:size]]

    def real(self, v: Ball) -> Ball:
        """An upper bound of φ(v), v > 0."""
        total = sum((w * (-r * v).exp() for w, r in zip(self.weights, self.values, strict=True)), start=acb(0, 0))
        return arb(upper(total.real + self.slack)).min(arb(1))

    def decay(self, c: float, u: float) -> Ball:
        """A bound of |φ(c + iu')| for all u' ≥ u: e^{θ²/2μ²}φ(c cos θ + u sin θ), for some θ."""
        theta = arb(self.sketch.best(c, u)[1])
        bound = ((theta / self.mu) ** 2 / 2).exp() * self.real(arb(c) * theta.cos() + arb(u) * theta.sin())
        return bound.min(arb(1))

    @cached_property
    def sketch(self) -> Sketch:
        """The transform in floats, for planning only."""
        return Sketch(middle(self.mu))


TURNS = (0.0, *(1e-7 * 1.5e7 ** (k / 59) for k in range(60)))
"""From 1e-7 to 1.5 < ½π, by 32 % each; any is valid, this many to plan with."""


class Sketch:
    """The bound of |φ| in floats, for planning only."""

    def __init__(self, mu: float) -> None:
        # Twelve deviations in steps of 0.04: fine enough to plan with.
        points = [0.04 * k - 12.0 for k in range(601)]
        self.mu, self.at = mu, 0
        self.values = [math.exp(min(mu * x - 0.5 * mu * mu, 600.0)) for x in points]
        self.weights = [math.exp(-0.5 * x * x) * 0.04 / math.sqrt(2 * math.pi) for x in points]

    def _log(self, at: int, c: float, u: float) -> float:
        theta = TURNS[at]
        v = c * math.cos(theta) + u * math.sin(theta)
        total = math.fsum(w * math.exp(-v * r) for w, r in zip(self.weights, self.values, strict=True) if v * r < 700)
        rise: float = 0.5 * (theta / self.mu) ** 2
        return rise + math.log(max(total, 1e-300))

    def best(self, c: float, u: float) -> tuple[float, float]:
        """The least logarithm that is found from the θ that was the last one's on, and its θ."""
        here = self._log(self.at, c, u)
        for way in (1, -1):
            while 0 <= self.at + way < len(TURNS) and (there := self._log(self.at + way, c, u)) < here:
                self.at, here = self.at + way, there
        return min(here, 0.0), TURNS[self.at]


def allocated(
    factors: Sequence[Factor], epsilon: Fraction, log_small: float, progress: Progress
) -> Bounds | str | None:
    """Bounds of δ(ε), apart by about e^{log_small}.

    None where there is not one such use alone, a reason where it takes too long.

    Nothing that is chosen here can make them wrong.
    """
    if len(factors) != 1 or not isinstance(factors[0], Allocated) or factors[0].count != 1:
        return None
    one = factors[0]
    sign = -1 if one.add else 1
    with precision(96):
        level = one.steps * (sign * arb(epsilon)).exp()
        variance = one.steps * arb(one.square).expm1()
        # E(S − x)_+ is at most the deviation for x ≥ E S.
        log_deviation = 0.5 * middle(variance.log())
    if not (LEAST < one.square < MOST and epsilon < 600):
        return "allocation: a noise multiplier, or an ε, out of range"
    log_wanted = log_small + math.log(one.steps) - (float(epsilon) if one.add else 0.0)
    period = max(middle(level), 2.0 * one.steps) * (1 + 2.0**-20)
    c = max(log_deviation - log_wanted + 2, 2.0) / period
    h = 2 * math.pi / period
    sketch = Sketch(math.sqrt(one.square))
    rise, end = c * middle(level), h
    while rise + one.steps * sketch.best(c, end)[0] - math.log(end) > log_wanted - 2:
        # A search in floats: only the number of nodes depends on its steps.
        end *= 1.1
        if not end < MOST_NODES * h:
            return f"allocation: more than {MOST_NODES} nodes would be needed"
    size = math.ceil(end / h) + 2
    nats = rise - 2 * math.log(c) - log_wanted + math.log(one.steps) + 4
    # Half as many bits again as the answer's, for what cancels, and 80. Too few would make balls wide, never wrong.
    bits = int(80 + 1.5 * nats / math.log(2))
    with precision(bits):
        transform = Transform(one.square, nats)
        cells = len(transform.weights)
        if size * cells > MOST_TERMS:
            return f"allocation: {size} nodes of {cells} cells would be needed"
        progress(f"allocation: {size} nodes of {cells} cells, {bits} bits")
        level, at = one.steps * (sign * arb(epsilon)).exp(), arb(c)
        whole = 2 * pi() / arb(h)
        if not whole >= level:
            raise ArithmeticError("the period is too short")
        total = arb(0)
        for k, value in enumerate(transform.along(c, h, size)):
            s = acb(c, k * arb(h))
            power = value**one.steps if abs(value) > 4 * transform.slack else _small(abs(value), one.steps)
            term = (acb(0, k * arb(h) * level).exp() * power / (s * s)).real
            total += term / 2 if k == 0 else term
        start = lower((size - 1) * arb(h))
        tail, u, most = arb(0), start, arb(1)
        for j in range(_BLOCKS):
            # Blocks that grow by half: any are valid, smaller ones waste less of the decay.
            v = 1.5 * u
            most = most.min(transform.decay(c, u))  # holds for all that is further out, where the slack may say less
            tail += most**one.steps * (1 / arb(u) - (0 if j == _BLOCKS - 1 else 1 / arb(v)))
            u = v
        scale = (at * level).exp() / pi()
        bound = scale * (arb(h) * total + error(tail))
        # The terms m ≥ 1: K + mD − t and E(S − K − mD)_+, with ρ = e^{−cD}: Σρ^m = ρ/(1 − ρ), Σmρ^m = ρ/(1 − ρ)².
        rho = (-at * whole).exp()
        bound -= (level - one.steps) * rho / (1 - rho) + whole * rho / (1 - rho) ** 2
        beyond = level + whole - one.steps
        rest = rho / (1 - rho) * ((variance + beyond * beyond).sqrt() - beyond) / 2
        put = bound - rest / 2 + error(rest / 2)
        delta = (arb(epsilon).exp() * put if one.add else put - (level - one.steps)) / one.steps
        how = f"inversion of a sum of {one.steps}, {size} nodes, {cells} cells, {bits} bits"
        return Bounds(max(0.0, lower(delta)), min(1.0, upper(delta)), how)


def _small(size: Ball, steps: int) -> Ball:
    """The power of what is nearly 0: a ball around 0."""
    most = arb(upper(size)) ** steps
    return flint.acb(error(most), error(most))
