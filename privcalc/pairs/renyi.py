"""Pairs that are known by bounds of their Rényi divergences only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.pairs.pair import SymmetricPair, ZCDPTerms


class MomentPair(SymmetricPair):
    """A bound of K(c) = c·D_{1+c} for both orders; the profile is what follows from it."""

    @property
    def moments_only(self) -> bool:
        return True

    @property
    def convex(self) -> bool:
        """A bound, not a profile."""
        return False

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Minimise e^{K(c) − cε}·c^c/(1 + c)^{1+c} over a fixed grid of c.

        Canonne, Kamath, Steinke 2020, Proposition 12.
        """
        # Any c gives a bound: points close enough to be near the best one.
        c = np.unique(np.concatenate([np.geomspace(1e-6, 1e9, 400), self.knots]))
        log_delta = self.log_moment(c) - np.multiply.outer(np.asarray(epsilon), c) - np.log1p(c) - c * np.log1p(1 / c)
        delta = np.exp(np.minimum(np.min(log_delta, axis=-1), 0.0)) * (1 + 1e-9)
        return ProfileValues(delta, np.zeros_like(delta), TINY + 0 * delta)


@dataclass(frozen=True)
class ZCDPPair(MomentPair):
    """D_α ≤ ξ + ρα for every α > 1."""

    rho: float
    xi: float

    @property
    def zcdp(self) -> float:
        """ξ + ρα ≤ (ξ + ρ)α."""
        return self.rho + self.xi

    @property
    def zcdp_terms(self) -> ZCDPTerms:
        """The number that was given."""
        return ZCDPTerms(self.rho, self.xi)

    def log_moment(self, c: Floats) -> Floats:
        """c(ξ + ρ(c + 1))."""
        return c * (self.xi + self.rho * (c + 1)) * (1 + 1e-15)


@dataclass(frozen=True)
class RenyiPair(MomentPair):
    """D_α ≤ ε(α) at some orders, ascending."""

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    @property
    def knots(self) -> Floats:
        """α − 1 at the finite orders; exact below 2⁵³, else rounded down."""
        return np.array([a - 1 if a < 2**53 else math.nextafter(a, 0.0) for a in self.orders if a < math.inf])

    def _values(self) -> Floats:
        """D_α does not fall with α, so a smaller value at a larger order bounds all orders below it."""
        return np.minimum.accumulate(np.array(self.epsilons)[::-1])[::-1]

    @property
    def max_loss(self) -> float:
        """The bound ε(∞), if it was given."""
        return self.epsilons[-1] if self.orders[-1] == math.inf else math.inf

    @property
    def zcdp(self) -> float:
        """D_α ≤ ε_{i+1} ≤ (ε_{i+1}/α_i)·α between orders, from α = 1 on; beyond the last only if ∞ is an order."""
        if self.orders[-1] < math.inf:
            return math.inf
        starts = np.array([1.0, *self.orders[:-1]])
        return float(np.max(self._values() / starts)) * (1 + 1e-15)

    def log_moment(self, c: Floats) -> Floats:
        """K is convex with K(0) = 0, hence below its chords; beyond the last finite order c·ε(∞)."""
        knots, values = self.knots, self._values()[: self.knots.size]
        top = np.full_like(c, math.inf) if self.max_loss == math.inf else c * self.max_loss
        if not knots.size:
            return top
        chords = np.interp(c, np.append(0.0, knots), np.append(0.0, knots * values)) * (1 + 1e-14)
        return np.asarray(np.where(c <= knots[-1], np.minimum(chords, top), top), dtype=np.float64)
