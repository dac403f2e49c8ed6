"""What the cap of a filter adds up: μ², ρ, ε, or ε(α) at several orders, exactly where a mechanism allows it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.numerics.floats import UNIT, Floats
from privcalc.pairs.adaptive_choices import gaussian_mu
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism

INFINITE = None
"""The cost of a mechanism that no finite cap pays for."""


def rounded(value: Fraction, *, up: bool) -> float:
    """The double on that side of a number ≥ 0: the nearest one or its neighbour."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf if up else sys.float_info.max
    wrong = Fraction(number) < value if up else Fraction(number) > value
    return math.nextafter(number, math.inf if up else 0.0) if wrong else number


def root(value: Fraction, *, up: bool) -> float:
    """The double on that side of the square root of a number ≥ 0."""
    number = math.sqrt(rounded(value, up=up))
    while Fraction(number) ** 2 < value if up else Fraction(number) ** 2 > value:
        number = math.nextafter(number, math.inf if up else 0.0)
    return number


def _gaussian(mechanism: Mechanism, relation: Relation) -> Fraction | None:
    """μ² of a Gaussian or GDP release, exactly; None for others."""
    if type(mechanism) is Gaussian:
        return Fraction(2 if relation is REPLACE_ONE else 1) ** 2 / Fraction(mechanism.noise_multiplier) ** 2
    if type(mechanism) is GDP:
        mechanism.pairs(relation)  # refuses another relation
        return Fraction(mechanism.mu) ** 2
    return None


def _bound(values: Floats | float) -> list[Fraction] | None:
    """Upper bounds from the engine as fractions."""
    array = np.atleast_1d(values)
    return [Fraction(float(value)) for value in array] if np.all(np.isfinite(array)) else INFINITE


class Kind:
    """What a cap adds up, and how it is shown."""

    def costs(self, mechanism: Mechanism, relation: Relation) -> list[Fraction] | None:
        """What a use costs, and adds up; None if infinite."""
        raise NotImplementedError

    def choice(self, mechanism: Mechanism, relation: Relation) -> float:
        """The range of a choice that is not paid for by what adds up, but together with all others; 0 if it is none."""
        return 0.0

    def together(self, levels: Mapping[float, int]) -> Fraction | None:
        """The cost of all choices, so many of each range, in whatever order; None if infinite.

        The order may mix them with everything else.
        """
        return Fraction(0)

    def shown(self, sums: list[Fraction], *, up: bool) -> float | Floats:
        """The cap and what was spent, as floats."""
        return rounded(sums[0], up=up)


class Squares(Kind):
    """The sum of μ², for Gaussian DP."""

    def costs(self, mechanism: Mechanism, relation: Relation) -> list[Fraction] | None:
        """μ² of each use, of mechanisms that are exactly Gaussian; choices add nothing here."""
        exact = _gaussian(mechanism, relation)
        if exact is None:
            pairs = mechanism.pairs(relation)
            if pairs.choice:
                return [Fraction(0)]
            gdps = [pair.gdp for pair in pairs.upper()]
            mus = [mu for mu in gdps if mu is not None]
            if len(mus) < len(gdps):
                raise errors.PrivcalcError(
                    f"mechanism = {mechanism}: must be exactly Gaussian, or a choice, under {relation} for a cap of "
                    "mu; use a cap of rho, or of orders and epsilons"
                )
            found = _bound(np.max(mus) * (1 + 8 * UNIT))
            return found and [found[0] ** 2]
        return [exact]

    def choice(self, mechanism: Mechanism, relation: Relation) -> float:
        """The range of a choice's loss."""
        return 0.0 if _gaussian(mechanism, relation) is not None else mechanism.pairs(relation).choice

    def together(self, levels: Mapping[float, int]) -> Fraction | None:
        """The μ² of all choices together (``proofs/filters.md``)."""
        if not levels:
            return Fraction(0)
        mu = gaussian_mu(tuple(sorted(levels.items(), reverse=True)))
        return Fraction(mu) ** 2 if math.isfinite(mu) else INFINITE

    def shown(self, sums: list[Fraction], *, up: bool) -> float | Floats:
        """The level as μ, in words."""
        return root(sums[0], up=up)


class Concentrated(Kind):
    """The sum of ρ, for zCDP."""

    def costs(self, mechanism: Mechanism, relation: Relation) -> list[Fraction] | None:
        """ρ of each use, of mechanisms with ξ = 0."""
        square = _gaussian(mechanism, relation)
        if square is not None:
            return [square / 2]
        rho, xi = mechanism.zcdp(relation=relation)
        if xi != 0:
            raise errors.PrivcalcError(f"mechanism = {mechanism}: must have xi = 0 for a cap of rho, its xi is {xi!r}")
        if type(mechanism) is ZCDP:
            return [Fraction(mechanism.rho)]
        return _bound(rho)


class Losses(Kind):
    """The sum of ε, for pure DP."""

    def costs(self, mechanism: Mechanism, relation: Relation) -> list[Fraction] | None:
        """The largest loss of each use."""
        if type(mechanism) is Laplace:
            return [Fraction(2 if relation is REPLACE_ONE else 1) / Fraction(mechanism.scale)]
        if type(mechanism) in {PureDP, RandomizedResponse}:
            mechanism.pairs(relation)
            return [Fraction(mechanism.level)]  # type: ignore[attr-defined]
        return _bound(mechanism.rdp([math.inf], relation=relation))


@dataclass(frozen=True)
class Divergences(Kind):
    """Σε(α) at every order."""

    orders: tuple[float, ...]

    def costs(self, mechanism: Mechanism, relation: Relation) -> list[Fraction] | None:
        """ε(α) of each use; a Gaussian release has none at α = ∞."""
        square = _gaussian(mechanism, relation)
        if square is not None:
            return None if math.inf in self.orders else [square * Fraction(order) / 2 for order in self.orders]
        if type(mechanism) is RDP and set(self.orders) <= set(mechanism.orders):
            mechanism.pairs(relation)
            stated = dict(zip(mechanism.orders, mechanism.epsilons, strict=True))
            return _bound(np.array([stated[order] for order in self.orders]))
        return _bound(mechanism.rdp(np.array(self.orders), relation=relation))

    def shown(self, sums: list[Fraction], *, up: bool) -> float | Floats:
        """One for each order."""
        return np.array([rounded(value, up=up) for value in sums])
