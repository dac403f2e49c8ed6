"""Batches of a fixed size, drawn uniformly without replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.mechanisms.poisson import gaussian_mu
from privcalc.mechanisms.sampler import Batched, Claimed, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.gaussian_mixture import LEAST_LOG_NEVER, Draws
from privcalc.numerics.interfaces import ProfileValues
from privcalc.pairs.dominating import Others, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.gaussian_mixture import RedrawnPair, UsersPair, users
from privcalc.pairs.pair import LeakPair
from privcalc.pairs.poisson import JointConvexityPair, sampled
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["FixedSizeSampled", "ShuffledEpoch", "WithReplacementSampled"]


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


_OPTIONS = (
    Option("batch_size", int, "how many records are in a batch"),
    Option("dataset_size", int, "how many there are, or a public lower bound of it"),
)


@dataclass(frozen=True)
class OfOneSize(Sampled):
    """A mechanism that runs on batches of ``batch_size`` of at least ``dataset_size`` records."""

    sized = True

    mechanism: Mechanism
    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", errors.count("batch_size", self.batch_size, least=1))
        object.__setattr__(self, "dataset_size", errors.count("dataset_size", self.dataset_size, least=1))
        check_unsampled(self.mechanism)

    def expected_size(self, records: int) -> float:
        """Return the batch size."""
        return float(self.batch_size)

    def fits(self, size: int) -> bool:
        """Every batch has one size."""
        return size == self.batch_size


@dataclass(frozen=True)
class FixedSizeSampled(OfOneSize):
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
    command = Command(
        "fixed",
        "a uniformly random {batch_size} of at least {dataset_size} records in each step, without replacement",
        _OPTIONS,
    )
    claim = Claimed(
        "fixed size", "`batch_size` different records, drawn anew in each step", ("batch_size", "dataset_size")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size > self.dataset_size:
            raise errors.PrivcalcError(
                f"batch_size = {self.batch_size}: must be at most dataset_size = {self.dataset_size}"
            )

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


@dataclass(frozen=True)
class ShuffledEpoch(Batched):
    """One pass over disjoint batches of the shuffled data set; the mechanism runs once on each.

    Repeat it for more epochs.

    This is what most training loops do. Each record takes part in exactly one release per epoch, and that is all that
    is used: shuffling is given no credit, however many batches there are. It is exact for an epoch of a single batch,
    and where it is known which batch a record is in. Poisson sampling of the same size buys much more:

        >>> import privcalc as pc
        >>> noise = pc.Gaussian(noise_multiplier=1.0)  # 10 epochs of 100 batches
        >>> print(f"{(ShuffledEpoch(noise) * 10).epsilon(delta=1e-5, relation=pc.ZERO_OUT):.6f}")
        17.856587
        >>> print(f"{(pc.PoissonSampled(noise, rate=0.01) * 1000).epsilon(delta=1e-5, relation=pc.ZERO_OUT):.6f}")
        1.828237

    Refused under add-or-remove-one: a record more moves others from batch to batch, so that many releases change. Under
    zero-out, the usual substitute, the nulled record keeps its place.

    Args:
        mechanism: what runs on each batch; it is not told how many records a batch has, so nothing depends on that.

    Raises:
        PrivcalcError: if the mechanism is itself sampled or a run.
    """

    kind = "ShuffledEpoch"
    page = "fixed_size.md"
    draws = None
    scheme = "shuffled"
    command = Command(
        "shuffled",
        "each record in one batch of an epoch, which a shuffled data set was cut into",
        counted=("epoch", ""),
    )
    claim = Claimed(
        "shuffled", "each epoch cut into batches; nothing is known from below", counted="epochs", below=False
    )

    mechanism: Mechanism

    def __post_init__(self) -> None:
        check_unsampled(self.mechanism)

    def pairs(self, relation: Relation) -> Pairs:
        """The mechanism's own (``proofs/parallel.md``, §2)."""
        if relation is ADD_OR_REMOVE_ONE:
            raise errors.PrivcalcError(
                f"relation = {relation}: ShuffledEpoch has no guarantee under it, because a record more moves others "
                "from batch to batch; ask under privcalc.ZERO_OUT or privcalc.REPLACE_ONE"
            )
        return self.mechanism.pairs(relation)


@dataclass(frozen=True)
class WithReplacementSampled(OfOneSize):
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
    command = Command(
        "replacement",
        "{batch_size} draws with replacement from at least {dataset_size} records in each step",
        _OPTIONS,
    )
    claim = Claimed(
        "with replacement",
        "`batch_size` records, drawn anew in each step, among which one may come twice",
        ("batch_size", "dataset_size"),
    )

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
        mu = gaussian_mu(self.mechanism, 0.5, relation, "WithReplacementSampled")
        draws = self.batch_size
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
