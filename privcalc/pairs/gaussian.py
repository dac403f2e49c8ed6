"""Pairs of normal distributions: one shift, and two opposite records under Poisson sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, TradeOff, Transform
from privcalc.numerics.sampled_gaussian import OppositeGaussianTransform, SampledGaussianTransform
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import gdp_profile, log_ndtr, ndtri
from privcalc.numerics.transforms import GaussianTransform
from privcalc.pairs.pair import Pair, SymmetricPair


@dataclass(frozen=True)
class GaussianPair(SymmetricPair):
    """N(μ, 1) against N(0, 1); symmetric (Dong, Roth, Su 2022). Proof: ``proofs/gaussian.md``."""

    mu: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Balle, Wang 2018, Theorem 8."""
        return gdp_profile(self.mu, epsilon)

    def trade_off(self, alpha: float) -> TradeOff:
        """β = Φ(−z − μ), z = Φ⁻¹(α) (Dong, Roth, Su 2022, Equation 6)."""
        low, high = _quantile(alpha) if alpha <= 0.5 else [-z for z in _quantile(1 - alpha)[::-1]]
        sums = [z + self.mu for z in (low, high)]
        blur = 2 * UNIT * (abs(sums[0]) + self.mu)
        return TradeOff(
            (_normal(-sums[1] - blur)[0], _normal(-sums[0] + blur)[1]),
            (_normal(sums[0] - blur)[0], _normal(sums[1] + blur)[1]),
        ).tidy(alpha)

    @property
    def zcdp(self) -> float:
        """ρ = μ²/2, exactly (Bun, Steinke 2016, Proposition 1.6)."""
        return 0.5 * self.mu**2

    @property
    def gdp(self) -> float:
        return self.mu

    def power(self, count: int) -> Pair:
        """√count·μ (Dong, Roth, Su 2022, Corollary 3.3)."""
        return GaussianPair(self.mu * math.sqrt(count))

    @property
    def gdp_bounds(self) -> Bounds:
        return self.mu, self.mu

    @property
    def transform(self) -> Transform:
        """The transform in closed form."""
        return GaussianTransform(self.mu)

    def sampled_transform(self, rate: float, *, add: bool) -> Transform:
        return SampledGaussianTransform(self.mu, rate, add)

    def opposed(self, rate: float) -> Pair | None:
        """Means μ and −μ."""
        if rate == 1:
            return GaussianPair(2 * self.mu)
        return OppositeGaussianPair(self.mu, rate) if self.mu else None

    @property
    def outcomes(self) -> tuple[Floats, Floats] | None:
        """One, if the laws are equal."""
        return None if self.mu else (np.ones(1), np.ones(1))


def _normal(x: float) -> Bounds:
    """Bounds of the normal distribution function Φ(x)."""
    log = float(log_ndtr(x))
    error = 16 * UNIT * (1 - log)
    return math.exp(log) * (1 - error) - TINY, math.exp(log) * (1 + error) + TINY


def _quantile(alpha: float) -> Bounds:
    """Bounds of Φ⁻¹(α), 0 < α ≤ ½: points at which Φ was evaluated to be on either side."""
    z, log = float(ndtri(alpha)), math.log(alpha)
    off, error = 1e-14 * (1 + abs(z)), 16 * UNIT * (1 - log)
    while not (log_ndtr(z - off) + error <= log <= log_ndtr(z + off) - error):
        off *= 4
    return z - off, z + off


@dataclass(frozen=True)
class OppositeGaussianPair(SymmetricPair):
    """(1 − q)N(0, 1) + qN(μ, 1) against (1 − q)N(0, 1) + qN(−μ, 1): two opposite records, all others null.

    It dominates under replace-one, and occurs (``proofs/replace_one.md``). The loss rises in t, and passes ε at
    μt = ε/2 + arsinh(A), A = (1 − q)sinh(ε/2)e^{μ²/2}/q.
    """

    mu: float
    rate: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """P(t > t*) − e^ε Q(t > t*), t* giving the supremum over t.

        Where t* is rounded, the loss is of second order in that.
        """
        mu, q = self.mu, self.rate
        log_q, log_rest = math.log(q), math.log1p(-q) if q < 1 else -math.inf
        with np.errstate(divide="ignore"):
            # log 2A; all terms of μt are ≥ 0, so nothing cancels where μ and ε are tiny
            log_twice = log_rest - log_q + 0.5 * mu * mu + 0.5 * epsilon + np.log(-np.expm1(-epsilon))
            t = (
                0.5 * epsilon
                + np.where(log_twice > 20, log_twice, np.arcsinh(0.5 * np.exp(np.minimum(log_twice, 20.0))))
            ) / mu
            # In logarithms, because e^ε brings to light what would have underflowed.
            log_stay = log_rest + log_ndtr(-t)
            p = np.exp(np.logaddexp(log_stay, log_q + log_ndtr(mu - t)))
            tail = np.exp(epsilon + np.logaddexp(log_stay, log_q + log_ndtr(-mu - t)))
        # (1 − q)(1 − e^ε)Φ(−t) + q[Φ(μ − t) − e^ε Φ(−μ − t)]
        delta = np.maximum(p - tail, 0.0)
        return ProfileValues(delta, tail, 8 * UNIT * (4 + t * t + mu * mu + epsilon - log_q) * (p + tail) + TINY)

    @property
    def zcdp(self) -> float:
        """The pair N(μ), N(−μ) dominates."""
        return 2 * self.mu**2

    @property
    def transform(self) -> Transform:
        return OppositeGaussianTransform(self.mu, self.rate)

    @property
    def gdp_bounds(self) -> Bounds:
        """The far tail is that of N(μ) against (1 − q)N(0); at most N(μ) against N(−μ) (``proofs/gdp.md``, §2)."""
        return self.mu, 2 * self.mu
