"""Guarantees as mechanisms: what someone else has proved of a release, under the one relation it was proved for."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.enclosure import Enclosure, check_answers
from privcalc.numerics.floats import UNIT
from privcalc.pairs.discrete import DiscretePair
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import LeakPair, Pair
from privcalc.pairs.renyi import RenyiPair, ZCDPPair
from privcalc.pairs.replace_one import opposite
from privcalc.pairs.two_point import TwoPointPair
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation
from privcalc.run import Shown

__all__ = ["GDP", "RDP", "ZCDP", "ApproxDP", "PureDP"]


_LARGEST, _MOST_STEPS = 600.0, 1000
"""A loss up to which no mass underflows, and the largest group that has a table of its losses."""


class Stated(Shown):
    """A guarantee that holds under ``relation`` and is refused under any other."""

    page = "conversions.md"
    needs = ("guarantee",)
    draws = None
    scheme = None
    nulled = "present"  # it may tell how many records there are, which costs nothing under zero-out

    relation: Relation

    def pairs(self, relation: Relation) -> Pairs:
        """The pair of the guarantee."""
        if relation is not self.relation:
            raise errors.PrivcalcError(f"relation = {relation}: {self} was given for {self.relation}")
        return self._pairs()

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """The release that attains the guarantee for a record, mirrored for the other one, keeps it too."""
        return (opposite(self._pairs().forward, rate),) if self.mirrored else ()

    @property
    def mirrored(self) -> bool:
        """Whether a pair attains the guarantee, in both orders."""
        return False

    @abstractmethod
    def _pairs(self) -> Pairs: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._arguments()}, relation={self.relation})"


@dataclass(frozen=True, init=False, repr=False)
class PureDP(Stated):
    """A release with an ε-DP guarantee, which randomised response dominates and attains (Kairouz, Oh, Viswanath 2015).

    Args:
        epsilon: ε > 0; kept as ``level``, because ``epsilon`` is a question.
        relation: the relation it was proved for.

    Example:
        >>> import privcalc as pc
        >>> run = pc.PureDP(epsilon=0.1) * 100
        >>> print(run.epsilon(delta=0.0), run.epsilon(delta=1e-6))
        10 4.77456758811
    """

    kind = "PureDP"

    level: float
    relation: Relation

    def __init__(self, epsilon: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> None:
        check_answers(relation, epsilon=epsilon)
        self._set(level=errors.scale("epsilon", epsilon), relation=check_relation(relation))

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """The pair that dominates is rounded up, this one down."""
        pair = TwoPointPair(self.level, self.level)
        return (pair.of_opposite(rate, -16 * UNIT),) if pair.opposed(rate) else ()

    def _pairs(self) -> Pairs:
        pair = TwoPointPair(self.level, self.level)
        return Pairs(pair, pair)

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """Geometric noise on a count that moves by as many (``proofs/users.md``, §2)."""
        self.pairs(relation)  # raises where there is no guarantee
        steps = removed if relation is REPLACE_ONE else total
        if steps * self.level > _LARGEST or steps > _MOST_STEPS:
            return None
        small = math.exp(-self.level)
        inner = -math.expm1(-self.level) * np.exp(-self.level * np.arange(1, steps))
        masses = (np.concatenate(([1.0], inner, [math.exp(-self.level * steps)])) / (1 + small)).tolist()
        pair = DiscretePair(tuple(masses), tuple(reversed(masses)), 0.0, 8 * UNIT, steps * self.level * (1 + 2 * UNIT))
        return Pairs(pair, pair)

    def limits(self) -> dict[str, Any]:
        """Return the arguments of the filter that keeps Σε below this ε."""
        return {"epsilon": self.level, "relation": self.relation}


@dataclass(frozen=True, init=False, repr=False)
class ApproxDP(Stated):
    """Any (ε, δ)-DP release. "Leak with probability δ, else randomised response" dominates and attains it: exact.

    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.3.

    Args:
        epsilon: ε, 0 or a number from 1e-100 to 1e100; kept as ``level``.
        failure: given as ``delta``: δ in [0, 1).
        relation: the relation it was proved for.

    Example:
        >>> import privcalc as pc
        >>> run = pc.ApproxDP(epsilon=0.1, delta=1e-8) * 100
        >>> print(f"{run.epsilon(delta=1e-5):.6f}", run.epsilon(delta=1e-7).upper)
        4.329637 inf
    """

    kind = "ApproxDP"

    level: float
    failure: float
    relation: Relation

    def __init__(self, epsilon: float, delta: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> None:
        failure = errors.delta("delta", delta)
        check_answers(relation, failure, epsilon=epsilon, delta=delta)
        self._set(level=errors.level("epsilon", epsilon), failure=failure, relation=check_relation(relation))

    @property
    def mirrored(self) -> bool:
        """Whether both orders attain it: yes where no mass underflows; e^{−600} is far from that."""
        return self.level <= 600

    def _pairs(self) -> Pairs:
        whole: Pair = TwoPointPair(self.level, self.level) if self.level else GaussianPair(0.0)
        pair = LeakPair(whole, self.failure, self.failure, self.failure) if self.failure else whole
        return Pairs(pair, pair)


@dataclass(frozen=True, init=False, repr=False)
class GDP(Stated):
    """A release with a μ-GDP guarantee, which N(μ, 1) against N(0, 1) attains (Dong, Roth, Su 2022, Definition 2.6).

    Args:
        mu: μ > 0.
        relation: the relation it was proved for.

    Example:
        >>> import privcalc as pc
        >>> print(f"{pc.GDP(mu=1.0).epsilon(delta=1e-5):.9f}")
        4.377178096
    """

    kind = "GDP"

    mu: float
    relation: Relation

    def __init__(self, mu: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> None:
        check_answers(relation, mu=mu)
        self._set(mu=errors.scale("mu", mu), relation=check_relation(relation))

    @property
    def mirrored(self) -> bool:
        return True

    def _pairs(self) -> Pairs:
        pair = GaussianPair(self.mu)
        return Pairs(pair, pair)

    def limits(self) -> dict[str, Any]:
        """Return the arguments of the filter that keeps √Σμ² below this μ."""
        return {"mu": self.mu, "relation": self.relation}


@dataclass(frozen=True, init=False, repr=False)
class ZCDP(Stated):
    """Any (ξ, ρ)-zCDP release: D_α ≤ ξ + ρα for every α > 1 (Bun, Steinke 2016).

    It is converted on the real axis: an upper bound.

    The lower end is that of a Gaussian release, which is ρ-zCDP.

    Args:
        rho: ρ > 0.
        xi: ξ ≥ 0.
        relation: the relation it was proved for.

    Example:
        >>> import privcalc as pc
        >>> print(f"{pc.ZCDP(rho=0.5).epsilon(delta=1e-5):.9f}")
        4.728386985
    """

    kind = "ZCDP"

    rho: float
    xi: float
    relation: Relation

    def __init__(self, rho: float, xi: float = 0.0, *, relation: Relation = ADD_OR_REMOVE_ONE) -> None:
        if isinstance(rho, Enclosure) or isinstance(xi, Enclosure):
            raise errors.PrivcalcError(
                f"rho = {rho}, xi = {xi}: is an answer, of which none is a ρ or ξ; Run.zcdp() has these"
            )
        self._set(rho=errors.scale("rho", rho), xi=errors.epsilon("xi", xi), relation=check_relation(relation))

    def _pairs(self) -> Pairs:
        return self._of(1)

    def _of(self, steps: int) -> Pairs:
        pair = ZCDPPair(self.rho * steps**2 * (1 if steps == 1 else 1 + 4 * UNIT), self.xi)
        occurs = GaussianPair(math.nextafter(steps * math.sqrt(2 * self.rho) * (1 - UNIT), 0.0))
        return Pairs(pair, pair, (occurs, occurs))

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """k²ρ (Bun, Steinke 2016, Proposition 1.9), where ξ is 0."""
        self.pairs(relation)  # raises where there is no guarantee
        return None if self.xi else self._of(removed if relation is REPLACE_ONE else total)

    def limits(self) -> dict[str, Any]:
        """Σρ, where ξ is 0."""
        if self.xi:
            raise errors.PrivcalcError(f"cap = {self}: must have xi = 0")
        return {"rho": self.rho, "relation": self.relation}


@dataclass(frozen=True, init=False, repr=False)
class RDP(Stated):
    """Any release with D_α ≤ ε(α) at the given orders (Mironov 2017). Converted on the real axis: an upper bound.

    Between orders K(α − 1) = (α − 1)D_α is bounded by its chords, because it is convex; beyond the largest order
    nothing is known unless ∞ is among them. The lower end is that of a Gaussian release that meets the curve.

    Args:
        orders: α > 1, ∞ included.
        epsilons: ε(α) ≥ 0, as many.
        relation: the relation it was proved for.

    Example:
        >>> import privcalc as pc
        >>> print(f"{pc.RDP(orders=[2, 4, 8, 16], epsilons=[1, 2, 4, 8]).epsilon(delta=1e-5):.6f}")
        5.087862
    """

    kind = "RDP"

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]
    relation: Relation

    def __init__(self, orders: ArrayLike, epsilons: ArrayLike, *, relation: Relation = ADD_OR_REMOVE_ONE) -> None:
        alpha = np.atleast_1d(errors.orders("orders", orders))
        values = [
            errors.real("epsilons", e, "numbers >= 0", low=0.0, high=math.inf)
            for e in np.atleast_1d(errors.floats("epsilons", epsilons, "numbers >= 0"))
        ]
        if alpha.ndim != 1 or len(values) != alpha.size or np.unique(alpha).size != alpha.size:
            raise errors.PrivcalcError(
                f"epsilons = {epsilons!r}: must be one number for each of the (distinct) orders {orders!r}"
            )
        both = sorted(zip(alpha.tolist(), values, strict=True))
        self._set(
            orders=tuple(a for a, _ in both), epsilons=tuple(e for _, e in both), relation=check_relation(relation)
        )

    def _pairs(self) -> Pairs:
        # An infinite bound says nothing.
        known = [(a, e) for a, e in zip(self.orders, self.epsilons, strict=True) if e < math.inf] or [
            (math.inf, math.inf)
        ]
        pair = RenyiPair(tuple(a for a, _ in known), tuple(e for _, e in known))
        rho = min((e / a if a < math.inf else 0.0) for a, e in known)
        occurs = GaussianPair(math.sqrt(2 * rho) * (1 - 4 * UNIT))
        return Pairs(pair, pair, (occurs, occurs))

    def limits(self) -> dict[str, Any]:
        """Σε(α) at every order."""
        return {"orders": self.orders, "epsilons": self.epsilons, "relation": self.relation}
