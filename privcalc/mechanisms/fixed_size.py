"""Batches of a fixed size, drawn uniformly without replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.mechanisms.sampled import Claimed, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.pairs.dominating import Others, Pairs
from privcalc.pairs.leak import LeakPair
from privcalc.pairs.sampled import JointConvexityPair, sampled
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["FixedSizeSampled"]


@dataclass(frozen=True)
class NulledSlotPair(JointConvexityPair):
    """Fixed-size sampling under zero-out: joint convexity with ``one`` under replace-one and ``two`` under zero-out.

    Here ``one`` may have the larger losses: another record takes the slot where the batch leaves the record out. The
    profile is the lesser of the parent's and q·δ_two(ε), and 0 from the largest loss on. Proof:
    ``proofs/fixed_size.md``, §3.
    """

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The bound; its ``tail`` is not used, because no lower law is built on a bound."""
        delta, tail, error = super().profile(epsilon)
        plain = self.two.profile(epsilon)
        less = self.rate * plain[0] < delta
        delta, tail = (np.where(less, self.rate * x, y) for x, y in zip(plain, (delta, tail), strict=False))
        inside = epsilon < self.max_loss
        error = np.where(inside, np.maximum(error, self.rate * plain[2] + 4 * UNIT * delta), TINY)
        return ProfileValues(np.where(inside, delta, 0.0), np.where(inside, tail, 0.0), error)

    @property
    def max_loss(self) -> float:
        """log[((1 − q)e^{−k} + q)/((1 − q)e^{−k} + qe^{−l})], k and l the largest losses of ``one`` and ``two``."""
        k, top = self.one.max_loss, self.two.max_loss
        if top > 700:
            return top
        other = (1 - self.rate) / self.rate * math.exp(-k)
        return min(math.log1p(-math.expm1(-top) / (other + math.exp(-top))) * (1 + 32 * UNIT * (1 + max(k, top))), top)


@dataclass(frozen=True)
class FixedSizeSampled(Sampled):
    """Run a mechanism on a uniformly random batch of exactly ``batch_size`` records, a fresh one in each step.

    Where the batch leaves a record out, another one takes its slot. So one record's presence replaces a record of the
    batch, and the mechanism's replace-one pair rules under add-or-remove-one, too: a Gaussian needs twice the noise
    that Poisson sampling needs. The answer is exact there, and tight for one use under replace-one; else the upper end
    is advanced joint convexity and the lower end a pair that really occurs. Batches cut from a shuffled data set are no
    such samples: see :class:`ShuffledEpoch`.

    Args:
        mechanism: what runs on the batch.
        batch_size: m, at least 1.
        dataset_size: N ≥ m, the number of records, or a public lower bound of it; under add-or-remove-one that of the
            larger data set, and then N > m, because the smaller one must fill a batch, too. For groups: no data set has
            fewer than N − 1.

    Raises:
        PrivcalcError: if m > N, or the mechanism is itself sampled or a run.

    Example:
        >>> import privcalc as pc
        >>> step = FixedSizeSampled(pc.Gaussian(noise_multiplier=2.0), batch_size=100, dataset_size=10_000)
        >>> print(f"{(step * 1000).epsilon(delta=1e-5):.9f}")
        1.828236667
        >>> print(f"{(pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 1000).epsilon(delta=1e-5):.9f}")
        1.828236667
    """

    kind = "FixedSizeSampled"
    page = "fixed_size.md"
    scheme = "without replacement"
    sized = True
    command = Command(
        "fixed",
        "a uniformly random {batch_size} of at least {dataset_size} records in each step, without replacement",
        (
            Option("batch_size", int, "how many records are in a batch"),
            Option("dataset_size", int, "how many there are, or a public lower bound of it"),
        ),
    )
    claim = Claimed(
        "fixed size", "`batch_size` different records, drawn anew in each step", ("batch_size", "dataset_size")
    )

    mechanism: Mechanism
    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", errors.count("batch_size", self.batch_size, least=1))
        object.__setattr__(self, "dataset_size", errors.count("dataset_size", self.dataset_size, least=1))
        if self.batch_size > self.dataset_size:
            raise errors.PrivcalcError(
                f"batch_size = {self.batch_size}: must be at most dataset_size = {self.dataset_size}"
            )
        check_unsampled(self.mechanism)

    def expected_size(self, records: int) -> float:
        """Return the batch size m."""
        return float(self.batch_size)

    def fits(self, size: int) -> bool:
        """Every batch has one size."""
        return size == self.batch_size

    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """Draw a uniform subset of at least ``dataset_size`` records.

        It is one less where that bounds the larger of two data sets.
        """
        errors.count("records", records, least=self.dataset_size - (relation is ADD_OR_REMOVE_ONE))
        return lambda noise: [noise.subset(records, self.batch_size)]

    def pairs(self, relation: Relation) -> Pairs:
        """Another record takes the slot (``proofs/fixed_size.md``)."""
        if self.batch_size == self.dataset_size:
            if relation is ADD_OR_REMOVE_ONE:
                raise errors.PrivcalcError(
                    f"batch_size = {self.batch_size}: must be less than dataset_size = {self.dataset_size} under "
                    f"{relation}, because the smaller data set could not fill a batch"
                )
            return self.mechanism.pairs(relation).beside(self._others)
        return self._sampled(relation).beside(self._others)

    @property
    def _others(self) -> Others:
        """At least as many as fill the data set: with more the rate is less."""
        least = float(self.dataset_size - 1)
        return Others((least, math.inf), (least, least))

    def _sampled(self, relation: Relation) -> Pairs:
        """Return the pairs of a batch that leaves records out."""
        less, rate = self._rates
        two = self._checked(REPLACE_ONE)
        if relation is ADD_OR_REMOVE_ONE:
            attained = None if two.attained is None and less == rate else sampled(two.lower()[0], less)
            return Pairs(*sampled(two.forward, rate), attained, two.attained_alone, bound=two.bound)
        if relation is REPLACE_ONE:
            glued = JointConvexityPair(two.forward, two.forward, rate)
            return Pairs(glued, glued, sampled(two.lower()[0], less), bound="joint convexity")
        zero = self._checked(relation)
        # The bound holds for both orders, so its parts must.
        nulled = zero.forward if zero.forward == zero.backward else two.forward
        slot = NulledSlotPair(two.forward, nulled, rate)
        return Pairs(slot, slot, sampled(zero.lower()[0], less), bound="joint convexity")

    @property
    def _rates(self) -> tuple[float, float]:
        """m/N rounded down and up: bounds rise with it (``proofs/fixed_size.md``)."""
        exact, near = Fraction(self.batch_size, self.dataset_size), self.batch_size / self.dataset_size
        return (
            near if near <= exact else math.nextafter(near, 0.0),
            near if near >= exact else math.nextafter(near, 1.0),
        )

    def _checked(self, relation: Relation) -> Pairs:
        """The mechanism's pairs, if they have a profile that sampling can use."""
        whole = self.mechanism.pairs(relation)
        if whole.forward.moments_only or isinstance(whole.forward, LeakPair):
            why = "only its Rényi divergences are known" if whole.forward.moments_only else "it may leak everything"
            raise errors.PrivcalcError(
                f"mechanism = {self.mechanism}: cannot be sampled in batches of fixed size, because {why}; "
                "give a mechanism with a privacy profile, such as PureDP or GDP"
            )
        return whole
