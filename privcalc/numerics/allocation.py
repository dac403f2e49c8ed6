"""The transform of a random allocation: M(s) = E R^{1+s} where the record is removed, E R^{−s} where it is added.

R is the mean of t lognormals. Proofs: ``proofs/allocation.md``, §7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.interfaces import ClosedTransform, NodeValues, Prepared, RealValues, log_slack
from privcalc.numerics.lognormal_mean_grid import Concentrated
from privcalc.numerics.lognormal_mean_rays import Mean, Order, angles, on_ray, real_moment, real_ray
from privcalc.numerics.special import gammaln, log_gamma

MOST_POWER, _LARGEST = 64, 300.0
"""The highest k, and the largest k(k − 1)μ²/2."""

ROUGH = 1e-3
"""The largest error of K(c) with which it is used."""

MOST_C = 500.0
"""The largest c where the record is added."""

LEAST_MU, LARGEST_MU = 0.05, 4.0
"""With more noise rays have too many nodes, and losses are nearly normal; with less, too few moments are numbers."""

MOST_STEPS = 64.0
"""The largest √t/μ: rays have so many times more nodes."""

NARROW = 1 / 25
"""The largest standard deviation of R with which it is nearly a constant."""

FAR, MOST_FAR = 11.0, 20.0
"""So many standard deviations up, r − 1 may be that many times what the sum varies by.

Tilts of many epochs stay below that.
"""

_LOST_IN = 8.0
"""What is lost is chosen in steps of this, as a logarithm, so that what was found serves again."""


@lru_cache(maxsize=16)
def _mean_of(mu: float, steps: int) -> Mean:
    """Kept, as its rays are."""
    return Mean(mu, steps)


@lru_cache(maxsize=16)
def _concentrated(mu: float, steps: int, log_lost: float) -> Concentrated:
    """Kept, as what it was asked."""
    return Concentrated(mu, steps, log_lost)


@dataclass(frozen=True)
class AllocationTransform(ClosedTransform):
    """(1/t)Σ_j N(μe_j, I) against N(0, I); with ``add`` the other order."""

    mu: float
    steps: int
    add: bool

    @staticmethod
    def serves(mu: float, steps: int) -> bool:
        """Whether rays have few nodes, or R is nearly a constant, of which no r is much."""
        if AllocationTransform.on_rays(mu, steps):
            return True
        deviation = math.sqrt(math.expm1(min(mu * mu, 700.0)) / steps)
        return deviation <= NARROW and math.expm1(FAR * mu) <= MOST_FAR * steps * deviation

    @staticmethod
    def on_rays(mu: float, steps: int) -> bool:
        """Whether rays have few nodes."""
        return LEAST_MU <= mu <= LARGEST_MU and math.sqrt(steps) <= MOST_STEPS * mu

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Return this object; where R is nearly a constant and something may be left out, the one on a grid of R."""
        if not cut or self.on_rays(self.mu, self.steps):
            return self
        log_lost = _LOST_IN * math.floor((log_mass - math.log(count)) / _LOST_IN)
        return ConcentratedTransform(self, _concentrated(self.mu, self.steps, log_lost))

    @cached_property
    def _mean(self) -> Mean:
        return _mean_of(self.mu, self.steps)

    @cached_property
    def _most(self) -> int:
        """The highest power k of R whose terms stay below e^``_LARGEST``, at most ``MOST_POWER``."""
        return min(math.floor(0.5 + math.sqrt(0.25 + 2 * _LARGEST / self.mu**2)), MOST_POWER)

    def _order(self, c: float) -> Order:
        """Return the order of the moment of R that M(c) is."""
        if self.add:
            return Order(2, c + 2)
        # The larger α, the shorter are rays, and the more powers they have.
        k = min(math.floor(c) + 3 + math.floor(c / 3), self._most)
        return Order(k, k - 1 - c)

    def _real(self, order: Order) -> tuple[float, float]:
        """Log of the moment, on a ray that serves many of them."""
        top = 2.0 ** math.ceil(math.log2(order.alpha if self.add else order.k))
        if self.add:
            orders: tuple[Order, ...] = (Order(2, 0.5 * top), Order(2, top))
        else:
            most = min(int(top), self._most)
            orders = (Order(3, 1.0), Order(3, 2.0), Order(most, 1.0), Order(most, 0.25 * most + 3.0))
        try:
            return real_moment(self._mean, order, real_ray(self._mean, orders))
        except (ArithmeticError, ValueError):  # out of range
            return 0.0, math.inf

    def _known(self, c: Floats) -> Floats:
        if not self.on_rays(self.mu, self.steps):
            return np.zeros(c.shape, dtype=np.bool_)
        return np.asarray(c < MOST_C) if self.add else np.asarray(c <= self._most - 2)

    def above(self, c: Floats) -> Floats:
        """An upper bound of K(c): where added by E R^{−c} ≤ ΠE r^{−c/t}; where removed from whole moments."""
        if self.add:
            return np.asarray(0.5 * self.mu**2 * c * (c / self.steps + 1) * (1 + 1e-12), dtype=np.float64)
        known = self._mean.total.log_moments
        chords = np.where(c + 1 < known.size, np.interp(1 + c, np.arange(known.size), known), math.inf)
        return np.asarray(np.minimum(0.5 * self.mu**2 * c * (c + 1) * (1 + 1e-12), chords), dtype=np.float64)

    @QUIET
    def log_real(self, c: Floats) -> RealValues:
        """Return K(c), shape (n,), and a bound on its error; where c is too large, an upper bound."""
        value, error = self.above(c), np.zeros_like(c)
        for i in np.flatnonzero(self._known(c)):
            log_moment, off = self._real(self._order(float(c[i])))
            if off < ROUGH:
                value[i], error[i] = log_moment, off
        return RealValues(value, error)

    @QUIET
    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """M(c + iv)/M(c), some nodes on each ray."""
        if not self._known(np.asarray(c)):
            raise OverflowError("the moment is too high")
        order = self._order(c)
        real, real_error = self._real(order)
        if not real_error < ROUGH:
            raise OverflowError("the moment is too large")
        start = float(gammaln(order.alpha))
        v = np.asarray(step * np.arange(size), dtype=np.float64)
        gamma, gamma_error = log_gamma(np.asarray(order.alpha + 1j * v, dtype=np.complex128))
        log, errors = np.empty(size, dtype=np.complex128), np.empty(size)
        for angle, begin, end in angles(order.alpha, v):
            block = slice(begin, end)
            value, error = on_ray(self._mean, order, angle, real + start, v[block], step)
            turn = start - gamma[block] - v[block] * angle + 1j * order.alpha * angle
            log[block] = np.log(value) + turn
            log_size = np.abs(turn) + start + v[block] * angle
            errors[block] = np.exp(turn.real) * (
                error + np.abs(value) * 1.1 * (gamma_error[block] + UNIT * (8 * log_size + 16))
            )
        log.imag -= 2 * math.pi * np.rint(log.imag / (2 * math.pi))  # whole powers only are taken
        values, slack = log_slack(log if self.add else np.conj(log), errors)
        return NodeValues(values, slack + real_error)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """R is e^{μḡ} times something independent, ḡ ~ N(0, 1/t)."""
        return np.asarray(-0.5 * self.mu**2 / self.steps * u * u * (1 - 8 * UNIT), dtype=np.float64)


@dataclass(frozen=True)
class ConcentratedTransform:
    """The transform on a grid of R, which is nearly a constant; every r_j is kept with a probability near 1."""

    whole: AllocationTransform
    law: Concentrated

    @property
    def lost(self) -> float:
        """The probability that some r_j is not kept, at most."""
        return math.exp(self.law.log_lost)

    def edge(self, c: Floats | float) -> Floats:
        """Zero: nothing is cut sharply."""
        return np.zeros_like(np.atleast_1d(c))

    def _order(self, c: float) -> float:
        return -c if self.whole.add else 1 + c

    def _real(self, c: float) -> tuple[float, float]:
        """K(c); an error too large for use where R is no constant."""
        try:
            moments = self.law.moments(self._order(c), np.zeros(1))
        except OverflowError:
            return 0.0, math.inf
        value = float(moments.values[0].real)
        share = moments.error / value if value > 0 else math.inf
        if not share < 0.5:
            return 0.0, math.inf
        k = math.log(value) + moments.log_scale
        return k, -math.log1p(-share) + moments.scale_error + 4 * UNIT * (abs(k) + abs(moments.log_scale))

    @QUIET
    def log_real(self, c: Floats) -> RealValues:
        """Return K(c), shape (n,), and a bound on its error; where R is no constant, an upper bound."""
        value, error = self.whole.above(c), np.zeros_like(c)
        for i, x in enumerate(c.tolist()):
            log_moment, off = self._real(x)
            if off < ROUGH:
                value[i], error[i] = log_moment, off
        return RealValues(value, error)

    @QUIET
    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """Return log M(c + iv)/M(c) at v = 0, step, …, shape (size,), and the slack."""
        if not self._real(c)[1] < ROUGH:
            raise OverflowError("R is no constant")
        moments = self.law.moments(self._order(c), np.asarray(step * np.arange(size), dtype=np.float64))
        start = float(moments.values[0].real)
        share = moments.error / start
        if not share < ROUGH:
            raise OverflowError("R is no constant")
        log = np.log(moments.values / start)
        return log_slack(
            np.conj(log) if self.whole.add else log, np.asarray(2 * share * (1 + np.abs(moments.values) / start))
        )

    @QUIET
    def log_decay(self, c: float, u: Floats) -> Floats:
        """R turned by an angle in the mean of its normal variables."""
        order, law = self._order(c), self.law
        angle = law.one.turn * np.linspace(0.0, 1.0, 40)
        if self.whole.add:
            most = -math.log1p(-self.lost)  # a ValueError if all is lost: nothing is known
        else:
            k, error = self._real(c)
            most = law.log_above(order) - k + error
        turned = np.multiply.outer(angle, -u) + (0.5 * law.steps * (angle / law.mu) ** 2 + most)[:, None]
        return np.asarray(np.min(turned, axis=0) + 1e-9, dtype=np.float64)
