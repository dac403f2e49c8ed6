"""The Laplace transform φ(ζ) = E e^{ζ(r − 1) − λr^q} of a lognormal r = e^{μg − μ²/2} that is kept with probability e^{−λr^q}.

Unlike that of r it is finite for every ζ, and what is not kept has a closed bound. Proofs: ``proofs/allocation.md``, §8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.lognormal import LogTransform, second
from privcalc.numerics.mixture import log1p
from privcalc.numerics.routes.route import QUIET
from privcalc.numerics.special import ndtr

DIGITS = 40.0
"""−log of the rule's error after it was taken t times."""

SHARE = 0.7
"""q as a share of that for which the place where r fades is nearest: smaller, the strip is wider and the place farther."""

TURN = 1.3
"""q times the angle by which r may turn: r^q stays in the right half plane."""

GONE = 120.0
"""λr^q where the rule ends."""

REACH = 11.0
"""Standard deviations that the rule covers on the left, and where the smallest are likely more."""

_ROWS = 400_000


class Rule(NamedTuple):
    """A trapezoid rule on the real line.

    Attributes:
        step: between the nodes.
        x: the nodes.
        r: there.
        less: r − 1.
        weights: the density times the step.
        fade: λr^q.
    """

    step: float
    x: Floats
    r: Floats
    less: Floats
    weights: Floats
    fade: Floats


@dataclass(frozen=True)
class KeptLognormal:
    """One of ``number`` that are kept together but for e^{log_lost} at most, also if one of them has its mean at e^{μ²}."""

    mu: float
    number: int
    log_lost: float

    @cached_property
    def power(self) -> float:
        """The q, about √(2·log(number) − 2·log_lost)/μ."""
        return SHARE * math.sqrt(2 * (math.log(self.number) - self.log_lost)) / self.mu

    @cached_property
    def log_rate(self) -> float:
        """Log λ: number·λ·E r^{q + 1} = number·λ·e^{q(q + 1)μ²/2} is what is lost at most."""
        q = self.power
        return self.log_lost - math.log(self.number) - 0.5 * q * (q + 1) * self.mu**2 - 1e-12 * (1 + q * q * self.mu**2)

    @cached_property
    def turn(self) -> float:
        """By which angle r may turn."""
        return TURN / self.power

    def _rule(self, real: float) -> Rule:
        mu, q = self.mu, self.power
        step = 2 * math.pi * (self.turn / mu) / (DIGITS + math.log(self.number))
        unit = 2.0 ** (math.frexp(step)[1] - 28)
        step = math.floor(step / unit) * unit  # of 28 bits, so that the nodes are exact
        last = ((math.log(GONE) - self.log_rate) / q + 0.5 * mu * mu) / mu
        first = REACH + mu * max(-real, 0.0)
        x = np.asarray(step * np.arange(math.floor(-first / step), math.ceil(last / step) + 1), dtype=np.float64)
        log = mu * x - 0.5 * mu * mu
        weights = np.asarray(step / math.sqrt(2 * math.pi) * np.exp(-0.5 * x * x), dtype=np.float64)
        return Rule(step, x, np.exp(log), np.expm1(log), weights, np.exp(np.minimum(self.log_rate + q * log, 700.0)))

    @QUIET
    def log_transform(self, real: float, imag: Floats, faint: float = 1.0) -> LogTransform:
        """Log φ at points ζ = real + i·imag, with ``faint``·λ for λ, cos(TURN) ≤ faint ≤ 1."""
        rule = self._rule(real)
        fade = faint * rule.fade
        zeta = np.asarray(real + 1j * imag, dtype=np.complex128)
        found = np.empty(zeta.size, dtype=np.complex128)
        kept, leaves = np.exp(-fade), -np.expm1(-fade)
        near = rule.fade < 0.5
        rows = max(1, _ROWS // rule.x.size)
        for at in range(0, zeta.size, rows):
            z = np.multiply.outer(zeta[at : at + rows], rule.less)
            # e^z·kept − 1 − z, whose mean is φ − 1: from e^z − 1 − z where nearly all is kept.
            terms = np.where(near, second(-z) * kept - (1 + z) * leaves, np.exp(z - fade) - (1 + z))
            found[at : at + rows] = np.sum(terms * rule.weights, axis=1)
        off = self._errors(rule, fade, real, np.abs(zeta), float(np.max(np.abs(imag))))
        share = off / np.abs(1 + found)
        known = share < 0.5
        # Where φ has no digits left it counts as a number that is larger, and off by thrice itself.
        value = np.where(known, log1p(found), np.log(3 * off))
        error = np.where(known, -np.log1p(-np.minimum(share, 0.5)), math.log(3)) + 4 * UNIT * np.abs(value)
        return LogTransform(value, error)

    def _errors(self, rule: Rule, fade: Floats, real: float, size: Floats, largest: float) -> Floats:
        """Bounds of what the mean of e^z·kept − 1 − z is off by."""
        mu, q, faint = self.mu, self.power, float(fade[-1] / rule.fade[-1])
        x, r, less = rule.x, rule.r, np.abs(rule.less)
        kept, leaves = np.exp(-fade), -np.expm1(-fade)
        # m ≥ |e^z|, times what is kept: |e^z − 1 − z| ≤ ½|z|²m.
        grown = np.maximum(kept, np.exp(real * rule.less - fade))
        units, moved = x * x + 100, 6 * less + 3 * r * (mu * np.abs(x) + mu * mu)
        twice = float(rule.weights @ (grown * (0.5 * less * less * units + less * moved)))
        once = float(rule.weights @ (leaves * (less * units + moved)))
        plain = float(rule.weights @ (leaves * units + grown * fade * (q * 3 * (mu * np.abs(x) + mu * mu) + 8)))
        rounding = UNIT * (twice * size**2 + once * size + plain)
        # The rule: on Im x = ±a, r turned by ±θ, |e^{ζr}| ≤ e^{νr}.
        a, theta = self.turn / mu, self.turn
        nu = real * math.cos(theta) + largest * math.sin(theta)
        fainter = faint * rule.fade * math.cos(TURN)
        cells = np.maximum(nu * r[1:], nu * r[:-1]) - real - fainter[:-1]
        mass = float(np.maximum(rule.weights[1:], rule.weights[:-1]) @ np.exp(cells))
        mass += self._ends(rule, real, nu, fainter)
        rule_error = 2 * math.exp(0.5 * a * a) * (mass + 1 + 2 * size) / math.expm1(2 * math.pi * a / rule.step)
        ends = float(ndtr(rule.x[0] + rule.step)) * (1 + size)
        ends += float(ndtr(rule.step - x[-1])) * (1 + size) + float(ndtr(rule.step - x[-1] + mu)) * size
        return np.asarray(rounding + (rule_error + ends + self._ends(rule, real, real, fade)) * (1 + 1e-9), dtype=np.float64)

    def _ends(self, rule: Rule, real: float, nu: float, fade: Floats) -> float:
        """A bound of the integral of the density times e^{νr − real − fade} beyond the last nodes but one."""
        mu, less, last = self.mu, max(-real, 0.0), float(rule.r[-1])
        if float(fade[-2]) * self.power < max(nu, 0.0) * last:  # it still rises
            return math.inf
        # On the left r ≤ 1, and 1 − r ≤ μ²/2 − μx.
        left = 0.5 * less * mu * mu * (1 + less) + max(nu - real, 0.0)
        right = max(nu * last, nu * float(rule.r[-2])) - real - float(fade[-2])
        low, high = float(ndtr(rule.x[0] + rule.step + less * mu)), float(ndtr(rule.step - rule.x[-1]))
        return math.exp(min(left, 700.0)) * low + math.exp(min(right, 700.0)) * high
