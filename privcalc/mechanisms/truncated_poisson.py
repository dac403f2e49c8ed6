"""Poisson samples that are cut at a largest size, so that batches fit a fixed shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import numpy as np

from privcalc import errors
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.sampler import RATE, Claimed, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.noise.source import Noise
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, Transform
from privcalc.numerics.solve import Bounds
from privcalc.numerics.transforms import MixedTransform
from privcalc.pairs.dominating import Others, Pairs
from privcalc.pairs.pair import LeakPair, Pair
from privcalc.pairs.poisson import sampled
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation
from privcalc.run import Mechanism


@dataclass(frozen=True)
class MixedPair(Pair):
    """With probability ``weight`` = w in (0, 1] the pair ``rare``, else ``usual``: δ = (1 − w)δ_usual + wδ_rare.

    ``rare`` dominates ``usual``, so that a greater w is no less. Proof: ``proofs/truncated.md``.
    """

    usual: Pair
    rare: Pair
    weight: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The mean of both."""
        one, two = self.usual.profile(epsilon), self.rare.profile(epsilon)
        delta, tail, error = ((1 - self.weight) * x + self.weight * y for x, y in zip(one, two, strict=True))
        return ProfileValues(delta, tail, error * (1 + 4 * UNIT) + 4 * UNIT * delta + TINY)

    @property
    def reverse(self) -> Pair:
        return MixedPair(self.usual.reverse, self.rare.reverse, self.weight)

    @property
    def convex(self) -> bool:
        """A mean of convex functions is."""
        return self.usual.convex and self.rare.convex

    @property
    def max_loss(self) -> float:
        return max(self.usual.max_loss, self.rare.max_loss)

    @property
    def zcdp(self) -> float:
        """Rényi divergence is quasi-convex (van Erven, Harremoës 2014, Theorem 13)."""
        return max(self.usual.zcdp, self.rare.zcdp)

    @property
    def gdp_bounds(self) -> Bounds:
        """Whatever coins fall, the larger one of both is a bound, n times, too."""
        return self.usual.gdp_bounds[0], max(self.usual.gdp_bounds[1], self.rare.gdp_bounds[1])

    @property
    def transform(self) -> Transform | None:
        """The mean of both, if both are known."""
        usual, rare = self.usual.transform, self.rare.transform
        return None if usual is None or rare is None else MixedTransform(usual, rare, self.weight)


_DIGITS = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")

_STIRLING = ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360))
"""B_2j/(2j(2j − 1)); the next is 1/156, over n^13."""

_SMALL = 1000
"""Up to here factorials are whole numbers; beyond, what Stirling's series leaves out is less than 1e-41."""

_MOST_TERMS = 1 << 20
"""Empirical: beyond these terms a geometric series bounds the rest."""


def log_binomial(n: int, k: int, p: Decimal, rest: Decimal) -> Decimal:
    """log Pr(Bin(n, p) = k) within 1e-25, ``rest`` = 1 − p; both above 0."""
    with localcontext(_DIGITS):
        return _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k) + k * p.ln() + (n - k) * rest.ln()


def at_least(n: int, p: float, k: int) -> Bounds:
    """Lower and upper bounds of Pr(Bin(n, p) ≥ k), 0 < p ≤ 1, n ≥ 0, k ≥ 1."""
    if k > n:
        return 0.0, 0.0
    if p == 1:
        return 1.0, 1.0
    with localcontext(_DIGITS):
        share, rest = Decimal(p), 1 - Decimal(p)
        if k > share * n:
            return _far(n, k, share, rest)
        low, high = _far(n, n - k + 1, rest, share)
    return max(1 - high - 4 * UNIT, 0.0), min(1 - low + 4 * UNIT, 1.0)


def _log_factorial(n: int) -> Decimal:
    if n <= _SMALL:
        return Decimal(math.factorial(n)).ln()
    x = Decimal(n)
    series = sum((Decimal(a) / b / x ** (2 * i + 1) for i, (a, b) in enumerate(_STIRLING)), Decimal(0))
    return x * x.ln() - x + (2 * _PI * x).ln() / 2 + series


def _far(n: int, k: int, p: Decimal, rest: Decimal) -> Bounds:
    """For k above the mean: ratios (n − j)p/((j + 1)(1 − p)) are below 1 from j = k on, and fall."""
    first, odds = log_binomial(n, k, p, rest).exp(), float(p / rest)
    total, term, j, size = 1.0, 1.0, k, 64
    ratio = float((n - k) / Decimal(k + 1)) * odds
    while True:
        at = np.arange(j, min(j + size, n), dtype=np.float64)
        with np.errstate(under="ignore"):
            terms = term * np.cumprod((n - at) / (at + 1) * odds)
        total += float(terms.sum())
        j += at.size
        term = float(terms[-1]) if at.size else 0.0
        ratio = (n - j) / (j + 1) * odds * (1 + 8 * UNIT)
        left = term * ratio / (1 - ratio) if ratio < 1 else math.inf
        if j >= n or left <= UNIT * total or j - k >= _MOST_TERMS:
            break
        size *= 2
    # A ratio and its product are off by eight units, so that the m-th term is by 8m.
    error = (8 * (j - k) + 16) * UNIT
    low, high = (
        float(first * Decimal(x)) for x in (total * (1 - error), (total + (left if j < n else 0.0)) * (1 + error))
    )
    return low * (1 - 2 * UNIT), min(max(high * (1 + 2 * UNIT), math.ulp(0.0)), 1.0)


__all__ = ["TruncatedPoissonSampled"]

_SUMS = (Gaussian, Laplace, DiscreteGaussian, GDP)


@dataclass(frozen=True)
class TruncatedPoissonSampled(Sampled):
    """Run a mechanism on a Poisson sample, cut to a random part of ``batch_size`` records if it has more.

    The part is uniformly random.

    In each step every record is drawn by a coin of its own; where more than B come up, B of them are chosen uniformly
    and the others dropped. Smaller batches may be filled up to B with null records, which add nothing. Where a record
    that came up takes the place of another, one's presence is seen twice; that this may happen is what cutting costs,
    and it is little where B is a few standard deviations above the mean. The lower end is plain Poisson sampling, which
    occurs: few records are never cut.

    Args:
        mechanism: what runs on the batch: ``Gaussian``, ``Laplace``, ``DiscreteGaussian`` or ``GDP``.
        rate: probability q in (0, 1] of each coin.
        batch_size: B, the largest batch; at least 1.
        dataset_size: N ≥ B, the number of records, or a public upper bound of it; under add-or-remove-one that of the
            larger data set.

    Raises:
        PrivcalcError: if an argument is out of range, B > N, or the mechanism is sampled itself or none of these.

    Source: Chua et al. 2024, arXiv 2411.04205, the sampler; Ganesh 2025, arXiv 2508.15089.

    Example:
        >>> import privcalc as pc
        >>> step = TruncatedPoissonSampled(pc.Gaussian(noise_multiplier=1.0), 0.01, batch_size=150, dataset_size=10_000)
        >>> print(f"{(step * 1000).epsilon(delta=1e-5):.6f}")
        1.830507
        >>> print(f"{(pc.PoissonSampled(step.mechanism, 0.01) * 1000).epsilon(delta=1e-5):.6f}")
        1.828237
    """

    kind = "TruncatedPoissonSampled"
    page = "truncated.md"
    scheme = "poisson, cut"
    command = Command(
        "truncated",
        "Poisson samples with probability {sample_rate:.9g}, of which {batch_size} at most are kept, "
        "of at most {dataset_size}",
        (
            RATE,
            Option("batch_size", int, "how many records are in a batch at most"),
            Option("dataset_size", int, "how many there are, or a public upper bound of it"),
        ),
    )
    claim = Claimed(
        "truncated Poisson",
        "a coin for each record in each step, cut at `largest_batch` records, a random part being kept",
        ("sample_rate", "largest_batch", "dataset_size"),
    )

    mechanism: Mechanism
    rate: float
    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", errors.rate("rate", self.rate))
        object.__setattr__(self, "batch_size", errors.count("batch_size", self.batch_size, least=1))
        object.__setattr__(self, "dataset_size", errors.count("dataset_size", self.dataset_size, least=1))
        if self.batch_size > self.dataset_size:
            raise errors.PrivcalcError(
                f"batch_size = {self.batch_size}: must be at most dataset_size = {self.dataset_size}"
            )
        check_unsampled(self.mechanism)
        if not isinstance(self.mechanism, _SUMS):
            names = ", ".join(kind.__name__ for kind in _SUMS)
            raise errors.PrivcalcError(
                f"mechanism = {self.mechanism}: must be one of {names} in TruncatedPoissonSampled"
            )

    def expected_size(self, records: int) -> float:
        """q·records, hardly less where B is above it by some standard deviations; at most B."""
        return min(self.rate * records, float(self.batch_size))

    def fits(self, size: int) -> bool:
        """None has more than B."""
        return size <= self.batch_size

    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """A coin for each of at most ``dataset_size`` records; a uniform subset of heads, if they are too many."""
        if records > self.dataset_size:
            raise errors.PrivcalcError(
                f"records: must be at most dataset_size = {self.dataset_size}, which bounds their number"
            )

        def draw(noise: Noise) -> list[Indices]:
            batch = np.flatnonzero(noise.coins(records, self.rate))
            return [batch if batch.size <= self.batch_size else batch[noise.subset(batch.size, self.batch_size)]]

        return draw

    @property
    def truncation(self) -> float:
        """An upper bound of η = Pr(Bin(N − 1, q) ≥ B): that a record that comes up makes the sample too large."""
        return at_least(self.dataset_size - 1, self.rate, self.batch_size)[1]

    def pairs(self, relation: Relation) -> Pairs:
        """Poisson's pairs, and with probability η those of a replaced record (``proofs/truncated.md``)."""
        poisson = PoissonSampled(self.mechanism, self.rate).pairs(relation)
        eta, most = self.truncation, float(self.dataset_size - 1)
        few = Others((0.0, most), (0.0, min(most, float(self.batch_size - 1))))  # of whom none is ever cut
        if not eta:
            return poisson.beside(few)
        weight = leak = min(math.nextafter(eta * self.rate, 1.0), 1.0)  # that a cut meets this record
        if relation is ZERO_OUT:
            rare = self.mechanism.pairs(relation).upper()
        else:
            rare = (self._replaced(),) * 2
            if relation is ADD_OR_REMOVE_ONE and self.rate < 1:
                weight, rare = eta, sampled(rare[0], self.rate)
        first, second = (MixedPair(*both, weight) for both in zip(poisson.upper(), rare, strict=True))
        apart = LeakPair(poisson.forward, leak, 0.0, leak), LeakPair(poisson.backward, leak, 0.0, leak)
        return Pairs(
            first, second, poisson.lower(), alternative=apart, bound="cut batches", also=poisson.also, others=few
        )

    def _replaced(self) -> Pair:
        """Return the pair of one record in the place of another."""
        two = self.mechanism.group(ADD_OR_REMOVE_ONE, 1, 1, 2)
        return (self.mechanism.pairs(REPLACE_ONE) if two is None else two).forward
