"""The Laplace transform φ(ζ) = E e^{ζ(r − 1) − λr^q} of a lognormal r that is kept with chance e^{−λr^q}.

Here r = e^{μg − μ²/2}.

Unlike that of r it is finite for every ζ, and what is not kept has a closed bound. Proofs: ``proofs/allocation.md``,
§8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import QUIET, UNIT, Floats, short
from privcalc.numerics.lognormal import LogTransform, second
from privcalc.numerics.mixture import log1p
from privcalc.numerics.special import log_ndtr, ndtr

DIGITS = 40.0
"""−log of the rule's error after it was taken t times."""

SHARE = 0.7
"""q as a share of that for which the place where r fades is nearest.

With a smaller one the strip is wider and the place farther.
"""

TURN = 1.3
"""q times the angle by which r may turn: r^q stays in the right half plane."""

GONE = 120.0
"""λr^q where the rule ends."""

REACH = 11.0
"""Standard deviations that the rule covers on the left, and where the smallest are likely more."""

_ROWS = 400_000
"""Complex numbers at once, 6 MB. Only speed depends on it."""


class Rule(NamedTuple):
    """A trapezoid rule on the real line.

    Attributes:
        step: between the nodes.
        x: the nodes.
        r: there.
        less: r − 1.
        log_weights: log of the density times the step; weights themselves may underflow where e^{ζr} is large.
        fade: λr^q.
    """

    step: float
    x: Floats
    r: Floats
    less: Floats
    log_weights: Floats
    fade: Floats


@dataclass(frozen=True)
class KeptLognormal:
    """One of ``number`` that are kept together but for e^{log_lost} at most.

    That is so also if one of them has its mean at e^{μ²}.
    """

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
        step = short(step)  # so that the nodes are exact
        last = ((math.log(GONE) - self.log_rate) / q + 0.5 * mu * mu) / mu
        first = REACH + mu * max(-real, 0.0)
        x = np.asarray(step * np.arange(math.floor(-first / step), math.ceil(last / step) + 1), dtype=np.float64)
        log = mu * x - 0.5 * mu * mu
        log_weights = np.asarray(math.log(step / math.sqrt(2 * math.pi)) - 0.5 * x * x, dtype=np.float64)
        return Rule(
            step, x, np.exp(log), np.expm1(log), log_weights, np.exp(np.minimum(self.log_rate + q * log, 300.0))
        )

    @QUIET
    def log_transform(self, real: float, imag: Floats, faint: float = 1.0) -> LogTransform:
        """Log φ at points ζ = real + i·imag, with ``faint``·λ for λ, cos(TURN) ≤ faint ≤ 1."""
        rule = self._rule(real)
        fade = faint * rule.fade
        zeta = np.asarray(real + 1j * imag, dtype=np.complex128)
        found = np.empty(zeta.size, dtype=np.complex128)
        weights, log_kept = np.exp(rule.log_weights), rule.log_weights - fade
        kept, leaves = np.exp(-fade) * weights, -np.expm1(-fade) * weights
        near = rule.fade < 0.5
        rows = max(1, _ROWS // rule.x.size)
        for at in range(0, zeta.size, rows):
            z = np.multiply.outer(zeta[at : at + rows], rule.less)
            # e^z·kept − 1 − z, whose mean is φ − 1: from e^z − 1 − z where nearly all is kept and z is small.
            terms = np.exp(z + log_kept) - (1 + z) * weights
            i, j = np.nonzero(near & (np.abs(z) < 0.5))
            terms[i, j] = second(-z[i, j]) * kept[j] - (1 + z[i, j]) * leaves[j]
            found[at : at + rows] = np.sum(terms, axis=1)
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
        leaves = -np.expm1(-fade) * np.exp(rule.log_weights)
        # m ≥ |e^z|, times what is kept: |e^z − 1 − z| ≤ ½|z|²m.
        grown = np.exp(np.maximum(real * rule.less, 0.0) + rule.log_weights - fade)
        units, moved = x * x + 100, 6 * less + 3 * r * (mu * np.abs(x) + mu * mu)
        twice = float(grown @ (0.5 * less * less * units + less * moved))
        once = float(leaves @ (less * units + moved))
        plain = float(leaves @ units + grown @ (fade * (q * 3 * (mu * np.abs(x) + mu * mu) + 8)))
        rounding = UNIT * (twice * size**2 + once * size + plain)
        # The rule: on Im x = ±a, r turned by ±θ, |e^{ζr}| ≤ e^{νr}.
        a, theta = self.turn / mu, self.turn
        nu = real * math.cos(theta) + largest * math.sin(theta)
        fainter = faint * rule.fade * math.cos(TURN)
        cells = np.maximum(nu * r[1:], nu * r[:-1]) - real - fainter[:-1]
        mass = float(np.sum(np.exp(cells + np.maximum(rule.log_weights[1:], rule.log_weights[:-1]))))
        mass += self._ends(rule, real, nu, fainter)
        rule_error = 2 * math.exp(0.5 * a * a) * (mass + 1 + 2 * size) / math.expm1(2 * math.pi * a / rule.step)
        ends = float(ndtr(rule.x[0] + rule.step)) * (1 + size)
        ends += float(ndtr(rule.step - x[-1])) * (1 + size) + float(ndtr(rule.step - x[-1] + mu)) * size
        return np.asarray(
            rounding + (rule_error + ends + self._ends(rule, real, real, fade)) * (1 + 1e-9), dtype=np.float64
        )

    def _ends(self, rule: Rule, real: float, nu: float, fade: Floats) -> float:
        """A bound of the integral of the density times e^{νr − real − fade} beyond the last nodes but one."""
        mu, less, last = self.mu, max(-real, 0.0), float(rule.r[-1])
        if float(fade[-2]) * self.power < max(nu, 0.0) * last:  # it still rises
            return math.inf
        # On the left r ≤ 1, and 1 − r ≤ μ²/2 − μx.
        left = 0.5 * less * mu * mu * (1 + less) + max(nu - real, 0.0)
        right = max(nu * last, nu * float(rule.r[-2])) - real - float(fade[-2])
        low, high = float(log_ndtr(rule.x[0] + rule.step + less * mu)), float(log_ndtr(rule.step - rule.x[-1]))
        return math.exp(left + low) + math.exp(right + high) if max(left + low, right + high) < 700 else math.inf
