"""The transform of a Poisson-sampled Laplace pair, by Gauss–Legendre quadrature with a proved error.

The loss l of the pair itself has, without the record, atoms ½e^{−a} at a and ½ at −a and the density ¼e^{−(l + a)/2}
between. With w = 1 − q + qe^l, M(s) = E w^{s+1} where the record is removed, E w^{−s} where it is added. Proofs:
``proofs/laplace.md``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.numerics.elementary import expm1, fan, log1p, log_weighted
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import ClosedTransform, NodeValues, Points, RealValues, SplitValues, log_slack
from privcalc.numerics.transforms import middle_profile

_POINTS = 64
"""Of the Gauss rule on a panel: its error is e^{−155} of the largest modulus on the ellipse."""

_RHO = 0.5 * math.pi + math.hypot(0.5 * math.pi, 1.0)
"""Of the ellipse with foci ±1 that is π/2 high: 3.43."""

_WIDE = 0.5 * (_RHO + 1 / _RHO)
"""Half of its width."""

_LOG_ERROR = math.log(64 / 15 / (1 - _RHO**-2)) - 2 * (_POINTS - 1) * math.log(_RHO)
"""log of the error of the rule on [−1, 1] over the largest modulus on the ellipse (Trefethen 2008, Theorem 4.5)."""

_TURN = 70.0
"""By how much s·log w may change on a panel that is not as wide as 2."""

_MOST_PANELS = 1000
"""Empirical: more are refused as too slow, and other routes answer."""

_FEW_CELLS, _MOST_CELLS = 40_000, 4_000_000
"""Pairs of a node and a point up to which each is evaluated, for few uses and for many."""

_MOST_APART = 40_000_000
"""Such pairs up to which atoms and the rest are evaluated apart, as a matrix product: about 0.1 s."""

_MANY = 4000
"""Counts up to which the matrix product, whose error is relative to M and not to M − 1, is precise enough."""

_GRID = 1500
"""Points at which the modulus is looked up between where a parabola and where an integration by parts bounds it."""


class Rule(NamedTuple):
    """Points l with their probabilities, log w there, and how much log w changes with l.

    Attributes:
        weights: of both atoms first.
        log_w: log w.
        slope: d log w/dl, at most 1.
        size: what the rounding of log w scales with.
        edges: ends of the panels.
    """

    weights: Floats
    log_w: Floats
    slope: Floats
    size: Floats
    edges: Floats


@dataclass(frozen=True)
class SampledLaplaceTransform(ClosedTransform):
    """(1 − q)Lap(0) + qLap(a) against Lap(0), of scale 1, 0 < q < 1; with ``add`` the other order."""

    a: float
    q: float
    add: bool
    count: int = 1

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> SampledLaplaceTransform:
        """For so many uses; panels are laid when it is known for which s.

        Raises:
            OverflowError: if there would be too many of them.
        """
        self._panels(c_max)
        return SampledLaplaceTransform(self.a, self.q, self.add, count)

    def _power(self, c: Floats | float) -> Floats:
        """The power of w."""
        return np.asarray(-np.asarray(c) if self.add else np.asarray(c) + 1.0, dtype=np.float64)

    def _panels(self, modulus: float) -> int:
        """So many that w^s changes by less than e^{90} on an ellipse, where the rule loses e^{−155}."""
        panels = math.ceil(self.a + (modulus + 2) * self._reach / _TURN)
        if not panels <= _MOST_PANELS:
            raise OverflowError("the transform needs too many panels")
        return panels

    @property
    def _reach(self) -> float:
        """By how much log w grows."""
        low, high = (float(x) for x in log_weighted(self.q, np.array([-self.a, self.a])))
        return high - low

    def _error(self, rule: Rule, power: Floats, u: float) -> Floats:
        """log of that of M − 1: what w^s is on the ellipse of each panel.

        With y = Im l there, |w| is between w(Re l) and its product with max{1 − s(1 − cos y), cos ½y}, s = d log w/dl,
        and arg w ≤ min(1, qe^l/(1 − q))·y.
        """
        middle, half = 0.5 * (rule.edges[1:] + rule.edges[:-1]), 0.5 * (rule.edges[1:] - rule.edges[:-1])
        far, near = middle + _WIDE * half, middle - _WIDE * half
        steep = np.minimum(1.0, self.q / (1 - self.q) * np.exp(np.minimum(far, 700.0)))
        p = power[:, None]
        y = 0.5 * math.pi * half
        fall = np.log(np.maximum(1 - steep * (1 - np.cos(y)), np.cos(0.5 * y)) * (1 - 1e-9))
        log_w = np.maximum(p * log_weighted(self.q, far), p * log_weighted(self.q, near)) + np.minimum(p, 0.0) * fall
        log_size = (
            np.logaddexp(0.0, log_w + u * steep * 0.5 * math.pi * half) - 0.5 * (near + self.a) + np.log(0.25 * half)
        )
        return np.asarray(np.logaddexp.reduce(log_size, axis=-1) + _LOG_ERROR + 1e-9, dtype=np.float64)

    @np.errstate(over="ignore", invalid="ignore")
    def log_real(self, c: Floats) -> RealValues:
        """K(c), from M − 1 = E[expm1(…)] where M is near 1."""
        power = self._power(c)
        rule = _rule(self, self._panels(float(np.abs(power).max())))
        z = np.multiply.outer(power, rule.log_w)
        unit = (rule.weights.size + 64) * (1 + self.a) * UNIT
        size = np.multiply.outer(np.abs(power), rule.size)
        top = np.maximum(z.max(axis=-1), 0.0)
        # Beyond 30 nothing cancels in log M, and e^z may overflow.
        near = top < 30
        moved = np.expm1(np.where(near[:, None], z, 0.0)) @ rule.weights
        total = np.exp(z - top[:, None]) @ rule.weights
        value = np.where(near, np.log1p(moved), top + np.log(total))
        grown = (
            np.exp(np.maximum(z, 0.0) - np.maximum(top, value)[:, None]) * np.exp(np.maximum(top - value, 0.0))[:, None]
        )
        rounding = (grown * (size + np.abs(np.where(near[:, None], z, 1.0)))) @ rule.weights + np.abs(value)
        error = unit * rounding + np.exp(self._error(rule, power, 0.0) - value)
        return RealValues(np.asarray(value), np.asarray(error))

    @np.errstate(over="ignore", invalid="ignore")
    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """Return log M(c + iu)/M(c) at u = 0, step, …, shape (size,), and the slack."""
        u = step * np.arange(size)
        real = self.log_real(np.array([c]))
        k, power = float(real.value[0]), float(self._power(c))
        rule = _rule(self, self._panels(math.hypot(abs(power), float(u[-1]))))
        turn = -1.0 if self.add else 1.0
        z = power * rule.log_w
        magnitude = rule.weights * np.exp(np.maximum(z, 0.0) - k)
        spread = float(magnitude @ rule.size) * np.hypot(power, u)
        unit = (2 * rule.weights.size + 64) * (1 + self.a) * UNIT
        cells = size * rule.weights.size
        if k < 1 and (cells <= _FEW_CELLS or (self.count > _MANY and cells <= _MOST_CELLS)):
            change = expm1(np.multiply.outer(power + 1j * turn * u, rule.log_w)) @ rule.weights
            log_m, rounding = log1p(np.asarray(change, dtype=np.complex128)) - k, 2 * unit * spread
        else:
            with np.errstate(divide="ignore"):
                log_m = np.log(fan(rule.weights * np.exp(z - k), turn * rule.log_w, step, size))
            rounding = unit * (float(magnitude.sum()) + 4 * spread)
        missed = float(np.exp(self._error(rule, np.array([power]), float(u[-1]))[0] - k))
        return log_slack(log_m, rounding + missed + 4 * UNIT * abs(k))

    def _parts(self, power: float, k: float) -> float:
        """Twice the sum of the integrand over L' at both ends, which over u bounds the integral, in units of e^k."""
        low, high = log_weighted(self.q, np.array([-self.a, self.a]))
        h = [
            0.25 * math.exp(-0.5 * (end + self.a) + (power + 1) * x - k - end) / self.q
            for end, x in ((-self.a, float(low)), (self.a, float(high)))
        ]
        return 2 * (h[0] + h[1])

    @property
    def points(self) -> Points:
        """log w(a) and log w(−a), or the opposite."""
        log_w = log_weighted(self.q, np.array([-self.a, self.a]))
        masses, size = np.array([0.5, 0.5 * math.exp(-self.a)]), 16 * (1 + self.a + float(np.abs(log_w).max())) * UNIT
        return Points(-log_w[::-1], masses[::-1], size) if self.add else Points(log_w, masses * np.exp(log_w), size)

    def rest_profile(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Return δ and its slope without the atoms (:func:`middle_profile`)."""
        return middle_profile(self.a, self.q, epsilon, add=self.add)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def rest_decay(self, c: float, u: Floats) -> Floats:
        """By its mass, and by parts."""
        real, power = self.log_real(np.array([c])), float(self._power(c))
        rule, k = _rule(self, self._panels(abs(power))), float(real.value[0])
        inner = float(rule.weights[2:] @ np.exp(power * rule.log_w[2:] - k))
        return np.asarray(np.minimum(inner, self._parts(power, k) / u) * math.exp(4 * float(real.error[0]) + 1e-9))

    @np.errstate(over="ignore", invalid="ignore")
    def split_nodes(self, c: float, step: float, size: int) -> SplitValues:
        """Return the atoms and the rest at u = 0, step, …, shape (size,), as matrix products."""
        u = step * np.arange(size)
        k, power = float(self.log_real(np.array([c])).value[0]), float(self._power(c))
        rule = _rule(self, self._panels(math.hypot(abs(power), float(u[-1]))))
        if size * rule.weights.size > _MOST_APART:
            raise OverflowError("too many nodes")
        turn = -1.0 if self.add else 1.0
        terms, angles = rule.weights * np.exp(power * rule.log_w - k), turn * rule.log_w
        atoms, rest = fan(terms[:2], angles[:2], step, size), fan(terms[2:], angles[2:], step, size)
        turned = float(terms @ rule.size) * np.hypot(power, u)
        rounding = UNIT * (1 + self.a) * ((2 * rule.weights.size + 64) * float(terms.sum()) + 32 * turned)
        missed = float(np.exp(self._error(rule, np.array([power]), float(u[-1]))[0] - k))
        return SplitValues(atoms, rest, rounding + missed + 4 * UNIT * abs(k))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def log_decay(self, c: float, u: Floats) -> Floats:
        """By the variance of the tilted loss, a grid, and an integration by parts of what has a density."""
        real, power = self.log_real(np.array([c])), float(self._power(c))
        rule = _rule(self, self._panels(abs(power)))
        spare = float(real.error[0]) + 1e-9
        tilted = rule.weights * np.exp(power * rule.log_w - float(real.value[0]))
        mean = float(tilted @ rule.log_w)
        variance = float(tilted @ (rule.log_w - mean) ** 2)
        spread = float(tilted @ np.abs(rule.log_w - mean))
        ends = float(tilted[0] + tilted[1])
        inner = tilted[2:].sum()
        low, high = log_weighted(self.q, np.array([-self.a, self.a]))
        parts = self._parts(power, float(real.value[0]))
        first = math.pi / float(high - low)
        # Where the integration by parts is a quarter of the mass: from there on it is the better bound. Any place is
        # valid.
        last = max(parts / (0.25 * float(inner)), first)
        step = (last - first) / _GRID
        tail = ends + parts / np.maximum(u, last)
        bound = np.where(u < first, np.sqrt(np.maximum(1 - (2 / math.pi * u) ** 2 * variance, 0.0)), 0.0)
        # Between points of the grid |M| moves by half of this: coarser, the bound would not be below 1.
        if step * spread < 0.1:
            # fan starts at 0: moved to the first point of the grid.
            modulus = np.abs(fan(tilted * np.exp(1j * first * (rule.log_w - mean)), rule.log_w - mean, step, _GRID + 1))
            beyond = np.maximum.accumulate((modulus + 0.5 * step * spread)[::-1])[::-1]
            at = np.clip(
                ((u - first) / step).astype(np.int64) if step > 0 else np.zeros(u.size, dtype=np.int64), 0, _GRID
            )
            bound = np.maximum(bound, np.where(u < last, beyond[at], 0.0))
        else:
            bound = np.where(u < last, 1.0, bound)
        log_bound = np.log(np.maximum(bound, tail)) + 4 * spare
        return np.asarray(np.minimum(np.nan_to_num(log_bound, nan=0.0), 0.0), dtype=np.float64)


@functools.lru_cache(maxsize=16)
def _rule(of: SampledLaplaceTransform, panels: int) -> Rule:
    """Return both atoms and the panels' points: panels at most about 2 wide, on which log w grows by about as much."""
    fine = np.linspace(-of.a, of.a, 8 * panels + 64)
    steep = max(panels - of.a, 0.0) / of._reach
    shares = 0.5 * (fine + of.a) + steep * (log_weighted(of.q, fine) - float(log_weighted(of.q, fine[:1])[0]))
    edges = np.interp(np.linspace(0.0, shares[-1], panels + 1), shares, fine)
    x, weight = np.polynomial.legendre.leggauss(_POINTS)
    half = 0.5 * (edges[1:] - edges[:-1])[:, None]
    points = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * x).ravel()
    inside = (half * weight).ravel() * 0.25 * np.exp(-0.5 * (points + of.a))
    loss = np.concatenate([[of.a, -of.a], points])
    log_w = log_weighted(of.q, loss)
    slope = np.exp(np.minimum(math.log(of.q) + loss - log_w, 0.0))
    weights = np.concatenate([[0.5 * math.exp(-of.a), 0.5], inside])
    return Rule(weights, log_w, slope, np.abs(log_w) + np.abs(loss) * slope, edges)
