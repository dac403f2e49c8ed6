"""dp-accounting's privacy loss distributions, in and out: as they are, rounding of theirs included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.custom import CustomMechanism, DiscreteMechanism
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.pair import Pair
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run
from privcalc.tables import discretize


@dataclass(frozen=True, repr=False)
class PLDMechanism(Mechanism):
    """A release that two distributions of losses dominate, one in each direction; made by :func:`from_pld`.

    Each is kept as laws of its own, of which the first order counts.
    """

    kind = None
    page = "interop.md"
    needs = ("guarantee",)
    draws = None
    scheme = None

    remove: DiscreteMechanism
    add: DiscreteMechanism
    relation: Relation

    def __repr__(self) -> str:
        return f"PLDMechanism({len(self.remove.p)} and {len(self.add.p)} outcomes, relation={self.relation})"

    @property
    def nulled_is_absent(self) -> bool:
        """Unknown."""
        return False

    def pairs(self, relation: Relation) -> Pairs:
        """(with, without) of the first, and of the second: each is an upper tail of its own."""
        if check_relation(relation) is not self.relation:
            raise PrivcalcError(f"relation = {relation}: this distribution was made for {self.relation}")
        forward: list[Pair] = [one.pairs(ADD_OR_REMOVE_ONE).forward for one in (self.remove, self.add)]
        return Pairs(forward[0], forward[1], NOTHING, bound="privacy loss distribution")


def from_pld(pld: Any, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Mechanism:
    """A mechanism for a pessimistic ``PrivacyLossDistribution``: compose it before you hand it over, or after.

    Args:
        pld: dp-accounting's object. Its own errors, such as those of a composition by FFT, are taken over.
        relation: the relation it was made for.

    Raises:
        PrivcalcError: if it is an optimistic estimate, or its probabilities and losses fit no pair of laws.
    """
    if check_relation(relation) is REPLACE_ONE and pld._pmf_add is not pld._pmf_remove:
        raise PrivcalcError("pld: under replace-one must be symmetric, because each use may be in either order")
    remove, add = _laws("remove", pld._pmf_remove), _laws("add", pld._pmf_add)
    return PLDMechanism(remove, add, relation)


def _laws(name: str, pmf: Any) -> DiscreteMechanism:
    """P, and Q = P·e^{−loss}, with what is left of Q where P is 0."""
    dense = pmf.to_dense_pmf()
    if not dense._pessimistic_estimate:
        raise PrivcalcError(f"pld: must be a pessimistic estimate; {name} is an optimistic one")
    p = np.asarray(dense._probs, dtype=np.float64)
    losses = dense._discretization * (dense._lower_loss + np.arange(p.size, dtype=np.float64))
    kept = p > 0
    p, losses = p[kept], losses[kept]
    q = p * np.exp(-losses)
    if np.any(dense._probs < 0) or abs(p.sum() + dense._infinity_mass - 1) > 1e-9 or q.sum() > 1 + 1e-9:
        raise PrivcalcError(
            f"pld: {name} must have probabilities of sum 1, and fit a second law; sums {float(p.sum())!r}, "
            f"{float(q.sum())!r}. Give the events (from_event), or a distribution of a larger "
            "value_discretization_interval, which rounds less"
        )
    rest = max(1 - float(q.sum()), 0.0)
    mass = float(dense._infinity_mass)
    laws = [*p.tolist(), mass, 0.0], [*q.tolist(), 0.0, rest]
    columns = [(a, b) for a, b in zip(*laws, strict=True) if a or b]
    one, other = zip(*columns, strict=True)
    return CustomMechanism.from_probabilities(one, other)


def to_pld(
    run: Mechanism | Run,
    *,
    spacing: float = 0.01,
    tail: float = 1e-12,
    relation: Relation = ADD_OR_REMOVE_ONE,
    points: int = 4000,
) -> Any:
    """A pessimistic ``PrivacyLossDistribution`` that dominates a run; see ``privcalc.discretize`` for the arguments.

    Args:
        run: a run or mechanism.
        spacing: distance of the losses: dp-accounting composes only objects of the same.
        tail: mass beyond the grid.
        relation: the relation.
        points: the most grid points in a direction.

    Raises:
        PrivcalcError: as ``privcalc.discretize``.
    """
    made = []
    for direction in (0, 1):
        found = discretize(run, spacing, tail=tail, direction=direction, relation=relation, points=points)
        whole = np.round(found.losses / errors.positive("spacing", spacing)).astype(int)
        masses = dict(zip(whole.tolist(), found.probabilities.tolist(), strict=True))
        made.append(pld_pmf.create_pmf(masses, spacing, found.infinity, True))
    return privacy_loss_distribution.PrivacyLossDistribution(*made)
