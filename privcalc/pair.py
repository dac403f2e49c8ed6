"""Ordered pairs (P, Q) of output distributions: the one obligation of a mechanism.

A mechanism turns a neighbouring relation into pairs; everything else (composition, conversion, calibration) is derived
from two faces of a pair, with the privacy loss L = log dP/dQ under P:

* the *profile* δ(ε) = E_P[(1 − e^{ε−L})_+], of the pair and of its reverse, for ε ≥ 0: every pair has it;
* the *transform* M(s) = E_P[e^{sL}]: where a pair has one in a form with certified errors, the contour route may use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.normal import TINY, UNIT, Floats
from privcalc.numerics.transform import Transform


class Pair(ABC):
    """An ordered pair of distributions; a frozen value."""

    @abstractmethod
    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """Return ``(delta, tail, error)`` at losses ε ≥ 0.

        They are δ(ε); e^ε·Q(L > ε), the slope of the profile in e^ε times −e^ε; and a bound on the absolute error of δ.
        """

    @property
    @abstractmethod
    def reverse(self) -> Pair:
        """The pair (Q, P)."""

    @property
    @abstractmethod
    def max_loss(self) -> float:
        """A number that L never exceeds; may be ∞."""

    @property
    @abstractmethod
    def zcdp(self) -> float:
        """A ρ with D_α(P‖Q) ≤ ρα for every α > 1, and likewise for (Q, P)."""

    @property
    def transform(self) -> Transform | None:
        """M(s) with certified errors, if known."""
        return None

    @property
    def gdp(self) -> float | None:
        """μ, if the pair is exactly N(μ, 1) against N(0, 1)."""
        return None

    def sampled_transform(self, rate: float, *, add: bool) -> Transform | None:
        """The transform after Poisson sampling, if known."""
        return None


@dataclass(frozen=True)
class SampledPair(Pair):
    """Poisson sampling of a pair (P, Q) = (with, without the record) that dominates at every real ε.

    Remove: ((1 − q)Q + qP, Q), δ_q(ε) = q·δ(ε'), e^{ε'} = 1 + (e^ε − 1)/q. Add: (Q, (1 − q)Q + qP), whose profile is
    (1 − (1 − q)e^ε)·δ_{Q‖P}(ε''), e^{−ε''} = 1 + (e^{−ε} − 1)/q, for ε < −log(1 − q), else 0
    (Balle, Barthe, Gaboardi 2018, Theorem 8; Zhu, Dong, Wang 2022, Theorem 11). Proof: ``proofs/poisson.md``.
    """

    base: Pair
    rate: float
    add: bool

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """See the class."""
        return self._add_profile(epsilon) if self.add else self._remove_profile(epsilon)

    def _remove_profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        q = self.rate
        with np.errstate(over="ignore"):
            near = np.log1p(np.expm1(np.minimum(epsilon, 30.0)) / q)
        inner = np.where(epsilon < 30, near, epsilon - np.log(q) + np.log1p(-(1 - q) * np.exp(-epsilon)))
        delta, tail, error = self.base.profile(inner)
        # δ has slope −tail in ε', and ε' is off by a few units.
        error = q * (error + 8 * UNIT * (inner * tail + delta)) + TINY
        return q * delta, tail * np.exp(epsilon - inner), error

    def _add_profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        q = self.rate
        share = np.expm1(-epsilon) / q
        inside = 1 + share > 2 * UNIT
        share = np.where(inside, share, 0.0)
        inner = np.where(inside, -np.log1p(share), 0.0)
        delta, tail, error = self.base.reverse.profile(inner)
        left = np.where(inside, q * np.exp(epsilon) * (1 + share), 0.0)  # 1 − (1 − q)e^ε
        condition = 8 * UNIT * (1 + np.abs(share) / (1 + share)) * (1 + inner)
        out_tail = np.where(inside, np.exp(epsilon) * (1 - q) * (delta + tail) + left * tail, 0.0)
        error = np.where(inside, left * error + condition * (left * delta + left * tail), 4 * UNIT * delta) + TINY
        return left * delta, out_tail, error

    @property
    def reverse(self) -> Pair:
        """The other direction of sampling."""
        return SampledPair(self.base, self.rate, not self.add)

    @property
    def max_loss(self) -> float:
        """−log(1 − q) bounds the add direction; sampling shrinks log r to log(1 − q + qr) in the other."""
        if self.add:
            return float(-np.log1p(-self.rate))
        top = self.base.max_loss
        return top if top > 700 else float(np.log1p(self.rate * np.expm1(top)))

    @property
    def zcdp(self) -> float:
        """Sampling never costs: Rényi divergence is quasi-convex (van Erven, Harremoës 2014, Theorem 13)."""
        return self.base.zcdp

    @property
    def transform(self) -> Transform | None:
        """The base pair knows it."""
        return self.base.sampled_transform(self.rate, add=self.add)


@dataclass(frozen=True)
class GluedPair(Pair):
    """Poisson sampling under replace-one: the pair defined by the profile q·δ(ε'), ε ≥ 0, and its swap for ε < 0.

    ``base`` is the symmetric pair of the two replaced records' outputs (shift 2). The profile is valid by advanced joint
    convexity (Balle, Barthe, Gaboardi 2018, Theorem 2); that it composes: ``proofs/replace_one.md``.
    """

    base: Pair
    rate: float

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """As the remove direction of sampling."""
        return SampledPair(self.base, self.rate, add=False).profile(epsilon)

    @property
    def reverse(self) -> Pair:
        """Symmetric by construction."""
        return self

    @property
    def max_loss(self) -> float:
        """As the remove direction of sampling."""
        return SampledPair(self.base, self.rate, add=False).max_loss

    @property
    def zcdp(self) -> float:
        """Not better than the base pair, which dominates."""
        return self.base.zcdp
