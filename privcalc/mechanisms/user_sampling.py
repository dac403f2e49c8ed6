"""Batches in which a person may have several records: the unit of the guarantee is the person."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.mechanisms.poisson import gaussian_mu
from privcalc.mechanisms.sampler import RATE, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.noise.source import Noise
from privcalc.numerics.gaussian_mixture import MOST_RECORDS, Counts
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.gaussian_mixture import users
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["UserSampled"]


@dataclass(frozen=True)
class UserSampled(Sampled):
    """Run a Gaussian mechanism on a Poisson sample of *records*, for neighbours that differ in one *person*.

    They differ in all records of that person.

    Each record takes part in a step with probability ``rate``, by a coin of its own; a person has at most ``records``
    of them. With ``counted``, at most so many of a person's sampled records are summed, chosen by a rule that looks at
    nothing but these. Every answer is for persons: add-or-remove-one adds or removes a person with all records,
    replace-one replaces a person, zero-out makes all records of a person null. All are exact: the records of the worst
    person point the same way (``proofs/users.md``). A question's own ``group_size=n`` asks for a group of n *persons*,
    each with all records: exact too, but where some are not ``counted``, for which there is only the rule for a chain
    of neighbours.

    Where *persons* are sampled, each with probability ``rate`` and at most B records at once, this is not needed: that
    is ``PoissonSampled(Gaussian(z / B), rate)``, z the noise multiplier of one record.

    Args:
        mechanism: what runs on the sample: ``Gaussian`` or ``GDP``, its sensitivity that of one record.
        rate: probability in (0, 1].
        records: the largest number of records that a person has, 1 to 1000.
        counted: how many of them are summed at most, 1 to ``records``; all if None.

    Raises:
        PrivcalcError: if an argument is out of range, or the mechanism is sampled itself or not Gaussian.

    Example:
        >>> import privcalc as pc
        >>> step = UserSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01, records=8)
        >>> print(f"{(step * 1000).epsilon(delta=1e-6):.6f}")
        23.082489
        >>> capped = UserSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01, records=8, counted=1)
        >>> print(f"{(capped * 1000).epsilon(delta=1e-6):.6f}")
        20.249715
    """

    kind = "UserSampled"
    unit = "one person"
    page = "users.md"
    scheme = "poisson"
    command = Command(
        "persons",
        "each record takes part with probability {sample_rate:.9g}, independently; a person has {records} at most, and "
        "of those "
        "in a batch {counted} count",
        (
            RATE._replace(default=1.0),
            Option("records", int, "the most records that one has"),
            Option("counted", int, "how many of one's records in a batch are summed at most", default=None),
        ),
        unit="person",
    )
    claim = None

    mechanism: Mechanism
    rate: float
    records: int
    counted: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", errors.rate("rate", self.rate))
        records = errors.count("records", self.records, least=1)
        if records > MOST_RECORDS:
            raise errors.PrivcalcError(f"records = {records}: must be at most {MOST_RECORDS}")
        object.__setattr__(self, "records", records)
        if self.counted is not None:
            counted = errors.count("counted", self.counted, least=1)
            if counted > records:
                raise errors.PrivcalcError(f"counted = {counted}: must be at most records = {records}")
            object.__setattr__(self, "counted", counted)
        check_unsampled(self.mechanism)

    def expected_size(self, records: int) -> float:
        """q·records, were all of them counted."""
        return self.rate * records

    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """A coin for each person's first ``records``; of those drawn any ``counted``, all equally likely, count."""
        if persons is None:
            raise errors.PrivcalcError(
                "persons = None: must say whose each record is, because the guarantee is for persons"
            )
        eligible = np.flatnonzero(_ranks(persons, np.zeros(persons.size)) < self.records)

        def draw(noise: Noise) -> list[Indices]:
            batch = eligible[noise.coins(eligible.size, self.rate)]
            if self.counted is not None:
                batch = batch[_ranks(persons[batch], noise.numbers(batch.size, 2**63)) < self.counted]
            return [batch]

        return draw

    def _pairs(self, relation: Relation, removed: int, added: int, total: int) -> Pairs:
        """So many persons' records, none of them capped if there are two."""
        advice = "UserSampled; ask PoissonSampled for groups of records instead (group_size=…)"
        mu = gaussian_mu(self.mechanism, self.rate, relation, advice)
        most = self.records if self.counted is None else self.counted
        if self.rate == 1:
            pair = GaussianPair(total * most * mu)
            return Pairs(pair, pair)
        laws = (Counts(n * self.records, self.rate, n * most) if n else None for n in (removed, added))
        return users(mu, *laws)

    def pairs(self, relation: Relation) -> Pairs:
        """A person removed; under replace-one, another one added as well."""
        swapped = int(relation is REPLACE_ONE)
        return self._pairs(relation, 1, swapped, 1 + swapped)

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """Several persons: their records are as many of one person.

        Where some are not counted, only the rule is known.
        """
        capped = self.counted is not None and self.counted < self.records
        if self.rate < 1 and (
            max(removed, added) * self.records > MOST_RECORDS or (capped and max(removed, added) > 1)
        ):
            self.pairs(relation)
            return None
        return self._pairs(relation, removed, added, total)


def _ranks(persons: Indices, keys: NDArray[np.generic]) -> Indices:
    """The place of each record among those of its person, by these keys; with equal keys, as they stand."""
    order = np.lexsort((keys, persons))
    ranks, place = np.empty(persons.size, dtype=np.int64), np.arange(persons.size)
    starts = (
        np.concatenate(([True], persons[order][1:] != persons[order][:-1])) if persons.size else np.empty(0, dtype=bool)
    )
    ranks[order] = place - np.maximum.accumulate(np.where(starts, place, 0))
    return ranks
