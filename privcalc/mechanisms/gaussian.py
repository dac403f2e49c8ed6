"""The Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc.numerics.normal import Floats, gdp_profile
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.transform import GaussianTransform, Transform
from privcalc.pair import Pair

@dataclass(frozen=True)
class GaussianPair(Pair):
    """N(μ, 1) against N(0, 1); symmetric (Dong, Roth, Su 2022)."""

    mu: float

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """Balle, Wang 2018, Theorem 8."""
        return gdp_profile(self.mu, epsilon)

    @property
    def reverse(self) -> Pair:
        """Symmetric."""
        return self

    @property
    def max_loss(self) -> float:
        """Unbounded."""
        return float("inf")

    @property
    def zcdp(self) -> float:
        """ρ = μ²/2, exactly (Bun, Steinke 2016, Proposition 1.6)."""
        return 0.5 * self.mu**2

    @property
    def gdp(self) -> float:
        """μ."""
        return self.mu

    @property
    def transform(self) -> Transform:
        """Closed."""
        return GaussianTransform(self.mu)

    def sampled_transform(self, rate: float, *, add: bool) -> Transform:
        """By quadrature."""
        return SampledGaussianTransform(self.mu, rate, add)
