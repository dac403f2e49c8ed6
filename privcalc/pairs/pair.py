"""Ordered pairs (P, Q) of output distributions: the one obligation of a mechanism.

A mechanism turns a neighbouring relation into pairs; everything else (composition, conversion, calibration) is derived
from two faces of a pair, with the privacy loss L = log dP/dQ under P:

* the *profile* δ(ε) = E_P[(1 − e^{ε−L})_+], of the pair and of its reverse, for ε ≥ 0: every pair has it;
* the *transform* M(s) = E_P[e^{sL}]: where a pair has one in a form with certified errors, the contour route may use
  it; on the real axis log M(α − 1) = (α − 1)D_α is known of every pair, at least as a bound.

A guarantee given as Rényi divergences has the real axis only (``moments_only``); its profile is the bound that follows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, TradeOff, Transform
from privcalc.numerics.log_moment import log_moment
from privcalc.numerics.routes.atoms import SUBNORMAL, Atoms
from privcalc.numerics.solve import Bounds
from privcalc.numerics.transforms import DiscreteTransform

_MOST_ATOMS = 4000
"""Atoms up to which a transform is worth its sums."""


class ZCDPTerms(NamedTuple):
    """(ρ, ξ) with D_α ≤ ξ + ρα for every α > 1."""

    rho: float
    xi: float


class Pair(ABC):
    """An ordered pair of distributions; a frozen value. What a pair does not say of itself counts as unbounded."""

    @abstractmethod
    def profile(self, epsilon: Floats) -> ProfileValues:
        """Return ``(delta, tail, error)`` at losses ε ≥ 0.

        They are δ(ε); e^ε·Q(L > ε), the slope of the profile in e^ε times −e^ε; and a bound on the absolute error of δ.
        Near an atom the tail may be that of its other side: it is promised that some line below the whole profile
        passes ε at ``delta − error``, and that its slope is that of ``tail`` up to ``slope_error``
        (``proofs/tails.md``).
        """

    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ at one ε ≥ 0, from the profile."""
        delta, _, error = self.profile(np.array([epsilon]))
        return max(float(delta[0] - error[0]), 0.0), min(float(delta[0] + error[0]), 1.0)

    @property
    @abstractmethod
    def reverse(self) -> Pair:
        """The pair (Q, P)."""

    def trade_off(self, alpha: float) -> TradeOff | None:
        """The best test of Q against P with a false positive rate of 0 < α < 1; None where there is no closed form."""
        return None if self.atoms is None else self.atoms.trade_off(alpha)

    @property
    def factors(self) -> tuple[tuple[Pair, int], ...]:
        """The factors of a product of pairs, each with its count; else this pair, once."""
        return ((self, 1),)

    @property
    def among(self) -> Pair:
        """The pair that represents this one among several uses, if that composes better; it is only made there."""
        return self

    @property
    def max_loss(self) -> float:
        """A number that L never exceeds."""
        return math.inf

    @property
    def zcdp(self) -> float:
        """A ρ with D_α(P‖Q) ≤ ρα for every α > 1, and likewise for (Q, P).

        Where the pair stands for many (bounded range), of all of these, not of the pair itself: from above both bounds
        hold of what occurs, from below neither is used (``proofs/exponential.md``).
        """
        return math.inf

    @property
    def transform(self) -> Transform | None:
        """M(s) with certified errors, if known; a sum over the atoms where these are few."""
        law = self.atoms
        if law is None or law.losses.size > _MOST_ATOMS:
            return None
        # A subnormal mass has no relative precision, which the tilt e^{cL} would bring to light: it is left out.
        kept = law.masses >= SUBNORMAL
        lost = law.missing + SUBNORMAL * (law.masses.size - int(np.count_nonzero(kept)))
        return DiscreteTransform(law.masses[kept], law.losses[kept], max(law.relative, law.shift), lost)

    @property
    def atoms(self) -> Atoms | None:
        """The law of the loss, if it takes few values."""
        return None

    def guess(self, delta: float) -> float | None:
        """An ε of a single use at δ, about, if better than what follows from ``zcdp``: to begin a search with."""
        return None

    @property
    def zcdp_terms(self) -> ZCDPTerms:
        """(ρ, ξ) with D_α ≤ ξ + ρα."""
        return ZCDPTerms(self.zcdp, 0.0)

    def log_moment(self, c: Floats) -> Floats:
        """An upper bound of K(c) = log M(c) = c·D_{1+c}(P‖Q) at c > 0; ∞ where none is known."""
        bound = np.minimum(self.zcdp * c * (c + 1), c * self.max_loss)
        return np.asarray(np.minimum(bound, log_moment(self, c)), dtype=np.float64)

    def power(self, count: int) -> Pair | None:
        """The pair of ``count`` independent uses, if it has a closed form."""
        return self if count == 1 else None

    @property
    def moments_only(self) -> bool:
        """Whether ``profile`` is only what follows from ``log_moment``: then runs are answered on the real axis."""
        return False

    @property
    def knots(self) -> Floats:
        """Points c at which ``log_moment`` may bend."""
        return np.empty(0)

    @property
    def gdp(self) -> float | None:
        """μ, if the pair is exactly N(μ, 1) against N(0, 1)."""
        return None

    @property
    def gdp_bounds(self) -> Bounds:
        """Bounds of the smallest μ for which n uses are √n·μ-GDP, for every n."""
        return 0.0, math.inf

    @property
    def convex(self) -> bool:
        """Whether ``profile`` is convex in e^ε as it stands; if not, its convex minorant is the guarantee."""
        return True

    def sampled_transform(self, rate: float, *, add: bool) -> Transform | None:
        """The transform after Poisson sampling, if known."""
        return None

    def opposed(self, rate: float) -> Pair | None:
        """Return the pair of two opposite records under replace-one and Poisson sampling, if it has its own form."""
        return None

    @property
    def outcomes(self) -> tuple[Floats, Floats] | None:
        """P and Q as laws on finitely many outcomes, Q > 0, if they are such and few."""
        return None


class SymmetricPair(Pair):
    """A pair with the same profile, and Rényi divergences, in both orders."""

    @property
    def reverse(self) -> Pair:
        return self


@dataclass(frozen=True)
class LeakPair(Pair):
    """With probability ``leak`` the release gives everything away; else it is ``pair``.

    Under composition leaks are set apart.

    Above: δ(ε) ≤ leak + (1 − leak)·δ_pair(ε). Below, at least ``attained`` + (1 − ``dropped``)·δ_pair(ε): an (ε, δ)
    mechanism attains both with all three equal to δ; for its Poisson sample see ``proofs/conversions.md``, §2. All
    three are bounds, of which ``attained`` is the lower one, and at most 1.
    """

    pair: Pair
    leak: float
    attained: float
    dropped: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The upper one; not convex-exact, and never composed as it stands (``direction.split_leaks``)."""
        delta, tail, error = self.pair.profile(epsilon)
        return ProfileValues(self.leak + (1 - self.leak) * delta, tail, error + 4 * UNIT * (self.leak + delta))

    @property
    def reverse(self) -> Pair:
        """The leak is on both sides."""
        return LeakPair(self.pair.reverse, self.leak, self.attained, self.dropped)

    @property
    def moments_only(self) -> bool:
        """Whether what remains without the leak has moments only."""
        return self.pair.moments_only
