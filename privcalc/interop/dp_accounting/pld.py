"""dp-accounting's privacy loss distributions, in and out: as they are, rounding of theirs included."""

from __future__ import annotations

import math
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

ROUNDED = 1e-6
"""How far masses may be from a sum of 1: dp-accounting's Gaussian of noise 0.3 has 6e-8 more, on its default grid."""


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
    nulled = "present"

    remove: DiscreteMechanism
    add: DiscreteMechanism
    relation: Relation

    def __repr__(self) -> str:
        return f"PLDMechanism({len(self.remove.p)} and {len(self.add.p)} outcomes, relation={self.relation})"

    def pairs(self, relation: Relation) -> Pairs:
        """(with, without) of the first, and of the second: each is an upper tail of its own."""
        if check_relation(relation) is not self.relation:
            raise PrivcalcError(f"relation = {relation}: this distribution was made for {self.relation}")
        forward: list[Pair] = [one.pairs(ADD_OR_REMOVE_ONE).forward for one in (self.remove, self.add)]
        return Pairs(forward[0], forward[1], NOTHING, bound="privacy loss distribution")


def from_pld(pld: Any, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Mechanism:
    """A mechanism for a pessimistic ``PrivacyLossDistribution``: compose it before you hand it over, or after.

    Args:
        pld: dp-accounting's object. Its curve is taken over, with its own errors, such as those of a composition by
            FFT; what rounding adds to its masses on a fine grid is counted, and does not make it too small.
        relation: the relation it was made for.

    Raises:
        PrivcalcError: if it is an optimistic estimate, or its masses are no probabilities.
    """
    if check_relation(relation) is REPLACE_ONE and pld._pmf_add is not pld._pmf_remove:
        raise PrivcalcError("pld: under replace-one must be symmetric, because each use may be in either order")
    remove, add = _laws("remove", pld._pmf_remove), _laws("add", pld._pmf_add)
    return PLDMechanism(remove, add, relation)


@np.errstate(over="ignore", invalid="ignore")
def _laws(name: str, pmf: Any) -> DiscreteMechanism:
    """Laws whose curve is that of the masses right of some loss t, and the chord to δ = 1 at ε = −∞ left of it.

    What rounding and a coarse grid add to masses, sums above 1 among it, stands left of t; to curves that are convex in
    e^ε the chord is an upper bound (``proofs/interop.md``, §5).
    """
    dense = pmf.to_dense_pmf()
    if not dense._pessimistic_estimate:
        raise PrivcalcError(f"pld: must be a pessimistic estimate; {name} is an optimistic one")
    masses = np.asarray(dense._probs, dtype=np.float64)
    losses = dense._discretization * (dense._lower_loss + np.arange(masses.size, dtype=np.float64))
    p, losses, leak = masses[masses > 0], losses[masses > 0], float(dense._infinity_mass)  # an FFT leaves some below 0
    missing = abs(math.fsum(p) + leak - 1) - math.fsum(masses[masses < 0])
    if not (leak >= 0 and missing <= ROUNDED and p.size):
        raise PrivcalcError(f"pld: {name} must have probabilities of sum 1; they are off by {missing!r}")
    q = p * np.exp(-losses)
    above, others = (np.append(np.cumsum(law[::-1])[::-1], 0.0)[1:] for law in (p, q))  # the mass right of each loss
    left = 1 - leak - above
    fits = (left >= 0) & (others + left * np.exp(-losses) <= 1)
    t = int(np.argmin(fits[::-1])) if not fits.all() else p.size  # so many losses, the largest, fit
    if not t:
        raise PrivcalcError(f"pld: {name} must fit a second law; to its largest loss, {losses[-1]!r}, none does")
    kept, other = p[p.size - t + 1 :].tolist(), q[p.size - t + 1 :].tolist()
    rest = max(1 - leak - math.fsum(kept), 0.0)
    paired = rest * math.exp(-losses[p.size - t])
    laws = [rest, *kept, leak, 0.0], [paired, *other, 0.0, max(1 - paired - math.fsum(other), 0.0)]
    columns = [(a, b) for a, b in zip(*laws, strict=True) if a or b]
    one, other_one = zip(*columns, strict=True)
    return CustomMechanism.from_probabilities(one, other_one)


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
