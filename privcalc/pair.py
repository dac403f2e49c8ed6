"""Ordered pairs (P, Q) of output distributions: the one obligation of a mechanism.

A mechanism turns a neighbouring relation into pairs; everything else (composition, conversion, calibration) is derived
from two faces of a pair, with the privacy loss L = log dP/dQ under P:

* the *profile* δ(ε) = E_P[(1 − e^{ε−L})_+], of the pair and of its reverse, for ε ≥ 0: every pair has it;
* the *transform* M(s) = E_P[e^{sL}]: where a pair has one in a form with certified errors, the contour route may use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from privcalc.numerics.normal import Floats
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

    @property
    @abstractmethod
    def gdp_bounds(self) -> tuple[float, float]:
        """Bounds of the smallest μ for which n uses are √n·μ-GDP, for every n."""

    @property
    def convex(self) -> bool:
        """Whether ``profile`` is convex in e^ε as it stands; if not, its convex minorant is the guarantee."""
        return True

    def sampled_transform(self, rate: float, *, add: bool) -> Transform | None:
        """The transform after Poisson sampling, if known."""
        return None
