"""Batches of a fixed size, drawn uniformly with replacement: a record may come up several times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc import errors
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.sampled import Claimed, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.numerics.counts import LEAST_LOG_NEVER, Draws
from privcalc.pairs.dominating import Others, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.redrawn import RedrawnPair
from privcalc.pairs.users import UsersPair, users
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["WithReplacementSampled"]


@dataclass(frozen=True)
class WithReplacementSampled(Sampled):
    """Run a Gaussian mechanism on ``batch_size`` draws from the data set, with replacement.

    Each draw is uniform over all records.

    A record counts as often as it was drawn. In the other data set each draw of it is one of another record, so that
    one draw moves the sum by two records, as with :class:`FixedSizeSampled`, and several by more. Exact under
    add-or-remove-one; else the upper end is advanced joint convexity and the lower end a pair that really occurs. Worse
    than without replacement:

        >>> import privcalc as pc
        >>> step = WithReplacementSampled(pc.Gaussian(noise_multiplier=2.0), batch_size=100, dataset_size=10_000)
        >>> print(f"{(step * 1000).epsilon(delta=1e-5):.6f}")
        1.889110
        >>> print(f"{(pc.FixedSizeSampled(step.mechanism, 100, 10_000) * 1000).epsilon(delta=1e-5):.6f}")
        1.828237

    Args:
        mechanism: what runs on the batch: ``Gaussian`` or ``GDP``, its sensitivity that of one record drawn once.
        batch_size: B, the number of draws; at least 1, also more than N.
        dataset_size: N, the number of records, or a public lower bound of it; under add-or-remove-one that of the
            larger data set, and then N > 1, because the smaller one must fill a batch, too. For groups: no data set has
            fewer than N − 1.

    Raises:
        PrivcalcError: if an argument is out of range, or the mechanism is sampled itself or not Gaussian.
    """

    kind = "WithReplacementSampled"
    page = "replacement.md"
    scheme = "with replacement"
    sized = True
    command = Command(
        "replacement",
        "{batch_size} draws with replacement from at least {dataset_size} records in each step",
        (
            Option("batch_size", int, "how many records are in a batch"),
            Option("dataset_size", int, "how many there are, or a public lower bound of it"),
        ),
    )
    claim = Claimed(
        "with replacement",
        "`batch_size` records, drawn anew in each step, among which one may come twice",
        ("batch_size", "dataset_size"),
    )

    mechanism: Mechanism
    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", errors.count("batch_size", self.batch_size, least=1))
        object.__setattr__(self, "dataset_size", errors.count("dataset_size", self.dataset_size, least=1))
        check_unsampled(self.mechanism)

    def expected_size(self, records: int) -> float:
        """Return the batch size B."""
        return float(self.batch_size)

    def fits(self, size: int) -> bool:
        """Every batch has one size."""
        return size == self.batch_size

    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """Draw uniform numbers of at least ``dataset_size`` records.

        It is one less where that bounds the larger of two data sets.
        """
        errors.count("records", records, least=max(self.dataset_size - (relation is ADD_OR_REMOVE_ONE), 1))
        return lambda noise: [np.sort(noise.numbers(self.batch_size, records))]

    def pairs(self, relation: Relation) -> Pairs:
        """Return the pairs in which each draw of the record is one of another (``proofs/replacement.md``)."""
        # From below of a larger data set, where in this one the chance of no draw underflows.
        of = self.dataset_size if self.dataset_size == 1 else Draws(self.batch_size, self.dataset_size).fewer().of
        return self._drawn(relation).beside(Others((self.dataset_size - 1.0, math.inf), (of - 1.0, of - 1.0)))

    def _drawn(self, relation: Relation) -> Pairs:
        """In a data set of this size."""
        mu, draws = self._mu(relation), self.batch_size
        apart = mu if relation not in (ADD_OR_REMOVE_ONE, REPLACE_ONE) else 2 * mu
        if self.dataset_size == 1:
            if relation is ADD_OR_REMOVE_ONE:
                raise errors.PrivcalcError(
                    f"dataset_size = 1: must be at least 2 under {relation}, "
                    "because nothing can be drawn from no records"
                )
            whole = GaussianPair(draws * apart)
            return Pairs(whole, whole)
        law = Draws(draws, self.dataset_size)
        swapped = users(2 * mu, law, None)
        if relation is ADD_OR_REMOVE_ONE:
            return swapped
        one, small = users(mu, law, law if relation is REPLACE_ONE else None), law.log_never > LEAST_LOG_NEVER
        bound = RedrawnPair(2 * mu, apart, law) if small else GaussianPair(draws * apart)
        other = UsersPair(2 * mu, law, law) if small else bound
        occurs = swapped if relation is REPLACE_ONE else one
        also = (one.lower(),) if relation is REPLACE_ONE else ()
        return Pairs(bound, bound, occurs.lower(), alternative=(other, other), bound="joint convexity", also=also)

    def _mu(self, relation: Relation) -> float:
        """μ of one draw of one record."""
        PoissonSampled(self.mechanism, 0.5).pairs(relation)  # raises where there is no guarantee
        one = self.mechanism.pairs(ADD_OR_REMOVE_ONE)
        if one.attained is not None or one.forward.gdp is None:
            raise errors.PrivcalcError(
                f"mechanism = {self.mechanism}: must be Gaussian or GDP in WithReplacementSampled"
            )
        return one.forward.gdp
