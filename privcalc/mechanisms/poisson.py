"""Poisson sampling: every record takes part in a step with probability q, independently."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcalc import errors
from privcalc.mechanisms.sampler import RATE, Claimed, Command, Indices, Sampled, Sampler, check_unsampled
from privcalc.numerics.gaussian_mixture import MOST_RECORDS, Counts
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian_mixture import users
from privcalc.pairs.pair import Pair
from privcalc.pairs.poisson import JointConvexityPair, sampled
from privcalc.pairs.replace_one import opposite
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation
from privcalc.run import Mechanism

__all__ = ["PoissonSampled", "gaussian_mu"]


@dataclass(frozen=True)
class PoissonSampled(Sampled):
    """Run a mechanism on a Poisson sample: independent coins of probability ``rate``, one per record and step.

    Shuffled or fixed-size batches are not Poisson samples, and this accounting does not hold for them. Under
    add-or-remove-one and zero-out the two dominating pairs occur themselves, so that answers are exact. Under
    replace-one the worst case is two opposite records: exact for the Gaussian, Laplace and discrete Gaussian mechanisms
    and for stated guarantees; for other mechanisms that is the upper end, and the lower end a pair that really occurs.

    Args:
        mechanism: what runs on the sample.
        rate: probability q in (0, 1].

    Raises:
        PrivcalcError: if rate is not in (0, 1], or the mechanism is itself sampled or a run.

    Example:
        >>> import privcalc as pc
        >>> step = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01)
        >>> print(f"{(step * 10_000).epsilon(delta=1e-5):.9f}")
        6.187712390
    """

    kind = "PoissonSampled"
    page = "poisson.md"
    scheme = "poisson"
    command = Command(
        "poisson",
        "each record takes part in each step with probability {sample_rate:.9g}, independently (Poisson sampling)",
        (RATE._replace(default=1.0),),
    )
    claim = Claimed("Poisson", "a coin for each record in each step", ("sample_rate",))

    mechanism: Mechanism
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", errors.rate("rate", self.rate))
        check_unsampled(self.mechanism)

    def expected_size(self, records: int) -> float:
        """Return the mean batch size, q·records."""
        return self.rate * records

    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """A coin for each."""
        return lambda noise: [np.flatnonzero(noise.coins(records, self.rate))]

    def pairs(self, relation: Relation) -> Pairs:
        """Pairs that remove and add a record, or, under replace-one, opposite records, or a bound.

        See ``proofs/poisson.md`` and ``proofs/replace_one.md``.
        """
        if self.rate == 1:
            return self.mechanism.pairs(relation)
        others = self.mechanism.pairs(ADD_OR_REMOVE_ONE if relation is REPLACE_ONE else relation).others
        return self._sampled(relation).beside(others)

    def _sampled(self, relation: Relation) -> Pairs:
        """At a rate below 1."""
        whole = self.mechanism.pairs(ADD_OR_REMOVE_ONE if relation is REPLACE_ONE else relation)
        if whole.forward.moments_only:
            raise errors.PrivcalcError(
                f"mechanism = {self.mechanism}: cannot be sampled, because only its Rényi divergences are known; "
                "give a mechanism with a privacy profile, such as ApproxDP or GDP"
            )
        if relation is ZERO_OUT and self.mechanism.nulled != "absent":
            raise errors.PrivcalcError(
                f"mechanism = {self.mechanism}: cannot be sampled under {relation}, because its guarantee compares a "
                "record with a nulled one, not with an absent one; "
                "ask under privcalc.ADD_OR_REMOVE_ONE (proofs/poisson.md)"
            )
        if relation is not REPLACE_ONE:
            attained = None if whole.attained is None else sampled(whole.attained[0], self.rate)
            return Pairs(*sampled(whole.forward, self.rate), attained, whole.attained_alone)
        bound, occurs = opposite(whole.forward, self.rate), self.mechanism.opposites(self.rate)
        if occurs == (bound,):
            return Pairs(bound, bound)
        # Replacing a record by one that contributes nothing is an instance of replace-one.
        lower, *also = [(pair, pair) for pair in occurs] or [sampled(whole.lower()[0], self.rate)]
        glued = self._glued(whole.forward, bound)
        return Pairs(bound, bound, lower, alternative=glued, bound="opposite records", also=tuple(also))

    def _glued(self, one: Pair, bound: Pair) -> tuple[Pair, Pair] | None:
        """Advanced joint convexity, where two records of the mechanism itself are less far apart than opposite ones."""
        try:
            two = self.mechanism.pairs(REPLACE_ONE).forward
        except errors.PrivcalcError:
            return None
        glued = JointConvexityPair(one, two, self.rate)
        return (glued, glued) if glued.max_loss < bound.max_loss else None

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """Mixtures over how many of them were sampled, for a mechanism that is μ-GDP (``proofs/users.md``)."""
        if self.rate == 1:
            return self.mechanism.group(relation, removed, added, total)
        self.pairs(relation)  # raises where there is no guarantee
        one = self.mechanism.pairs(ADD_OR_REMOVE_ONE)
        if one.forward.gdp is None or one.attained is not None or max(removed, added) > MOST_RECORDS:
            return None
        return users(one.forward.gdp, *(Counts(n, self.rate, n) if n else None for n in (removed, added)))


def gaussian_mu(mechanism: Mechanism, rate: float, relation: Relation, sampler: str) -> float:
    """Return the μ of what runs on a batch, as a mixture of normal laws needs it.

    Raises:
        PrivcalcError: if it is not exactly Gaussian, or has no guarantee under the relation once it is sampled.
    """
    PoissonSampled(mechanism, rate).pairs(relation)
    one = mechanism.pairs(ADD_OR_REMOVE_ONE)
    if one.attained is not None or one.forward.gdp is None:
        raise errors.PrivcalcError(f"mechanism = {mechanism}: must be Gaussian or GDP in {sampler}")
    return one.forward.gdp
