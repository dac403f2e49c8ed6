"""What the budget of a filter adds up: μ², ρ, ε, or ε(α) at several orders, exactly where a mechanism allows it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.numerics.floats import UNIT, Floats
from privcalc.pairs.choices import gaussian_mu
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism

_BLOCKS = 64
"""Blocks of equal choices that are charged alike."""

INFINITE = None
"""The cost of a mechanism that no finite budget pays for."""


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


def _choices(a: float, count: int, left: Fraction) -> Fraction:
    """What choices of range a take from s = μ², the largest first: each s − r, where r + vr/(r − v) = s, v = a²/4, at most κv.

    It falls with s: in blocks, each use is charged for what would be left after the block. Proof: ``proofs/filters.md``.
    """
    v, most = Fraction(a) ** 2 / 4, Fraction(gaussian_mu(((a, 1),)) * (1 + 4 * UNIT)) ** 2
    total = Fraction(0)
    block = -(-count // _BLOCKS)
    for first in range(0, count, block):
        uses = min(block, count - first)
        total += uses * min(_choice(v, left - total - (uses - 1) * most), most)
    return total


def _choice(v: Fraction, s: Fraction) -> Fraction:
    """s − r for the larger root r of r² − sr + sv = 0, rounded up; ∞ (v times 2) where this is no bound."""
    if s < 4 * v:
        return 2 * v
    r = (s + Fraction(root(s * (s - 4 * v), up=False))) / 2
    return min(s - r, 2 * v) if v < r and v * r <= 12 * (r - v) else 2 * v


def _bound(values: Floats | float) -> list[Fraction] | None:
    """Upper bounds from the engine as fractions."""
    array = np.atleast_1d(values)
    return [Fraction(float(value)) for value in array] if np.all(np.isfinite(array)) else INFINITE


class Kind:
    """What a budget adds up, and how it is shown."""

    def costs(self, mechanism: Mechanism, count: int, relation: Relation, left: list[Fraction]) -> list[Fraction] | None:
        """Costs of ``count`` uses where so much of the budget is left; None if infinite."""
        raise NotImplementedError

    def shown(self, sums: list[Fraction], *, up: bool) -> float | Floats:
        """The budget and what was spent, as floats."""
        return rounded(sums[0], up=up)


class Squares(Kind):
    """Σμ²."""

    def costs(self, mechanism: Mechanism, count: int, relation: Relation, left: list[Fraction]) -> list[Fraction] | None:
        """μ² of each use, of mechanisms that are exactly Gaussian; of choices what they take from the μ² that is left."""
        exact = _gaussian(mechanism, relation)
        if exact is None:
            pairs = mechanism.pairs(relation)
            if pairs.choice:
                return [_choices(pairs.choice, count, left[0])]
            gdps = [pair.gdp for pair in pairs.upper()]
            mus = [mu for mu in gdps if mu is not None]
            if len(mus) < len(gdps):
                raise errors.PrivcalcError(
                    f"mechanism = {mechanism}: must be exactly Gaussian, or a choice, under {relation} for a budget of mu; "
                    "use a budget of rho, or of orders and epsilons"
                )
            found = _bound(np.max(mus) * (1 + 8 * UNIT))
            return found and [count * found[0] ** 2]
        return [count * exact]

    def shown(self, sums: list[Fraction], *, up: bool) -> float | Floats:
        """μ."""
        return root(sums[0], up=up)


class Concentrated(Kind):
    """Σρ."""

    def costs(self, mechanism: Mechanism, count: int, relation: Relation, left: list[Fraction]) -> list[Fraction] | None:
        """ρ of each use, of mechanisms with ξ = 0."""
        square = _gaussian(mechanism, relation)
        if square is not None:
            return [count * square / 2]
        rho, xi = mechanism.zcdp(relation=relation)
        if xi != 0:
            raise errors.PrivcalcError(f"mechanism = {mechanism}: must have xi = 0 for a budget of rho, its xi is {xi!r}")
        if type(mechanism) is ZCDP:
            return [count * Fraction(mechanism.rho)]
        found = _bound(rho)
        return found and [count * found[0]]


class Losses(Kind):
    """Σε."""

    def costs(self, mechanism: Mechanism, count: int, relation: Relation, left: list[Fraction]) -> list[Fraction] | None:
        """The largest loss of each use."""
        if type(mechanism) is Laplace:
            return [count * Fraction(2 if relation is REPLACE_ONE else 1) / Fraction(mechanism.scale)]
        if type(mechanism) in {PureDP, RandomizedResponse}:
            mechanism.pairs(relation)
            return [count * Fraction(mechanism.level)]  # type: ignore[attr-defined]
        found = _bound(mechanism.rdp([math.inf], relation=relation))
        return found and [count * found[0]]


@dataclass(frozen=True)
class Divergences(Kind):
    """Σε(α) at every order."""

    orders: tuple[float, ...]

    def costs(self, mechanism: Mechanism, count: int, relation: Relation, left: list[Fraction]) -> list[Fraction] | None:
        """ε(α) of each use; a Gaussian release has none at α = ∞."""
        square = _gaussian(mechanism, relation)
        if square is not None:
            return None if math.inf in self.orders else [count * square * Fraction(order) / 2 for order in self.orders]
        if type(mechanism) is RDP and set(self.orders) <= set(mechanism.orders):
            mechanism.pairs(relation)
            stated = dict(zip(mechanism.orders, mechanism.epsilons, strict=True))
            found = _bound(np.array([stated[order] for order in self.orders]))
        else:
            found = _bound(mechanism.rdp(np.array(self.orders), relation=relation))
        return found and [count * cost for cost in found]

    def shown(self, sums: list[Fraction], *, up: bool) -> float | Floats:
        """One for each order."""
        return np.array([rounded(value, up=up) for value in sums])
