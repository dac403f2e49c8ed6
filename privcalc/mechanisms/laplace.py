"""The Laplace mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privcalc import errors
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, TradeOff, Transform
from privcalc.numerics.sampled_laplace import SampledLaplaceTransform
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import erfinv, ndtri_exp
from privcalc.numerics.transforms import LaplaceTransform
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.pair import Pair, SymmetricPair
from privcalc.pairs.poisson import SampledPair
from privcalc.pairs.replace_one import inner_loss
from privcalc.run import Additive, ByNumber

__all__ = ["Laplace"]


@dataclass(frozen=True)
class LaplacePair(SymmetricPair):
    """Laplace noise of scale 1 at 0 and at a: |L| ≤ a, with atoms at both ends. Proof: ``proofs/laplace.md``."""

    a: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """δ(ε) = 1 − e^{(ε − a)/2} and e^ε Q(L > ε) = e^{(ε − a)/2}/2, for ε < a."""
        x = np.minimum(0.5 * (epsilon - self.a), 0.0)
        delta = -np.expm1(x)
        tail = np.where(epsilon < self.a, 0.5 * np.exp(x), 0.0)
        # a is rounded, which counts where δ depends on it: below it, and within rounding of it.
        blur = np.where(epsilon <= self.a * (1 + 8 * UNIT), self.a * np.exp(x), 0.0)
        return ProfileValues(delta, tail, 8 * UNIT * (delta + blur) + TINY)

    def trade_off(self, alpha: float) -> TradeOff:
        """F(F⁻¹(1 − α) − a), in three pieces that meet smoothly (``proofs/laplace.md``)."""
        log_alpha, small = math.log(alpha), math.exp(-self.a)
        if log_alpha + math.log(2) < -self.a:
            missed, power = -math.expm1(self.a + log_alpha), math.exp(self.a + log_alpha)
        elif alpha <= 0.5:
            missed = 0.25 * math.exp(-self.a - log_alpha)
            power = 1 - missed
        else:
            missed, power = small * (1 - alpha), small * alpha - math.expm1(-self.a)
        # Exponents are sums of two rounded terms; in the first piece both e^{a}α and β's distance
        # from it are at most β, and in the second the power is at least ½.
        error = 4 * UNIT * (4 + self.a - log_alpha)
        ends = [(value * (1 - error) - TINY, value * (1 + error) + TINY) for value in (missed, power)]
        return TradeOff(ends[0], ends[1]).tidy(alpha)

    @property
    def max_loss(self) -> float:
        return self.a

    @property
    def zcdp(self) -> float:
        """The Kullback–Leibler divergence a − 1 + e^{−a}, the least possible.

        D_α/α falls with α (``proofs/laplace.md``).
        """
        if self.a < 0.5:  # the alternating series, cut after a positive term
            return float(sum((-self.a) ** k / math.factorial(k) for k in range(2, 17))) * (1 + 32 * UNIT)
        return (self.a + math.expm1(-self.a)) * (1 + 32 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """Bound μ = −2Φ⁻¹(e^{−a/2}/2) for one use, hence √n·μ for n uses.

        Nothing is claimed from below (``proofs/gdp.md``).
        """
        if self.a < 1:  # the same, without cancellation
            return 0.0, 2 * math.sqrt(2) * float(erfinv(-math.expm1(-0.5 * self.a))) * (1 + 1e-12)
        return 0.0, -2 * float(ndtri_exp(math.log(0.5) - 0.5 * self.a)) * (1 + 1e-12)

    @property
    def transform(self) -> Transform:
        """The transform in closed form."""
        return LaplaceTransform(self.a)

    def sampled_transform(self, rate: float, *, add: bool) -> Transform:
        return SampledLaplaceTransform(self.a, rate, add)

    def opposed(self, rate: float) -> Pair:
        """Noise around a and around −a."""
        return LaplacePair(2 * self.a) if rate == 1 else OppositeLaplacePair(self.a, rate)


@dataclass(frozen=True)
class OppositeLaplacePair(SymmetricPair):
    """Laplace noise of scale 1 around 0, or with probability q < 1 around a; the same with −a: two opposite records.

    For ε ≥ 0 the smaller ratio is always e^{−a}, so that δ(ε) = q·δ_a(l), w(e^l) = e^ε w(e^{−a}), w(r) = 1 − q + qr.
    Proof: ``proofs/replace_one.md``.
    """

    a: float
    rate: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """q(1 − e^{(l − a)/2}) and e^ε Q(L > ε) = e^ε w(e^{−a})·e^{−(l + a)/2}/2, for l < a."""
        loss = inner_loss(epsilon, -self.a, self.rate)
        x = np.minimum(0.5 * (loss - self.a), 0.0)
        delta = -self.rate * np.expm1(x)
        size = np.abs(loss) + self.a + epsilon
        stay = (1 - self.rate) + self.rate * math.exp(-self.a)
        with np.errstate(over="ignore"):
            tail = np.where(loss < self.a, 0.5 * stay * np.exp(epsilon - 0.5 * (loss + self.a)), 0.0)
        # l is off by 16 units of its size, which counts where δ depends on it: below a, and within rounding of it.
        blur = np.where(loss <= self.a + 32 * UNIT * size, size * np.exp(x), 0.0)
        return ProfileValues(delta, np.minimum(tail, 1.0), 8 * UNIT * (4 * delta + 2 * self.rate * blur) + TINY)

    @property
    def max_loss(self) -> float:
        """log w(e^a) − log w(e^{−a})."""
        return sum(SampledPair(LaplacePair(self.a), self.rate, add=add).max_loss for add in (False, True)) * (
            1 + 2 * UNIT
        )

    @property
    def zcdp(self) -> float:
        """The ρ of two records without sampling, which dominates, as Rényi divergences are quasi-convex."""
        return LaplacePair(2 * self.a).zcdp

    @property
    def gdp_bounds(self) -> Bounds:
        return LaplacePair(2 * self.a).gdp_bounds


@dataclass(frozen=True)
class Laplace(ByNumber, Additive):
    """Release a sum of vectors, each of L1 norm at most C, plus Laplace noise of scale (scale·C) in every coordinate.

    Under add-or-remove-one and zero-out it is (1/scale)-DP, under replace-one (2/scale)-DP; the one-dimensional pair
    dominates (``proofs/laplace.md``).

    Args:
        scale: Laplace scale over C, where C bounds one record's L1 contribution; finite, > 0.

    Raises:
        PrivcalcError: if scale is not a finite number > 0.

    Example:
        >>> import privcalc as pc
        >>> print(f"{pc.Laplace(scale=1.0).epsilon(delta=0.0):.9f} {pc.Laplace(scale=1.0).epsilon(delta=0.1):.9f}")
        1.000000000 0.789278969
    """

    kind = "Laplace"
    page = "laplace.md"
    draws = "laplace"
    scheme = None

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", errors.scale("scale", self.scale))

    @property
    def multiplier(self) -> float:
        return self.scale

    @property
    def norm(self) -> Literal[1, 2]:
        return 1

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Two opposite records in one coordinate, all others null."""
        return (LaplacePair(1 / self.scale).opposed(rate),)

    def apart(self, records: int) -> Pairs:
        """Return the Laplace pair at the distance records/scale, in both orders."""
        pair = LaplacePair(records / self.scale)
        return Pairs(pair, pair)
