"""Gaussian noise that is correlated over the steps of a run: matrix mechanisms, DP-FTRL."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.random_allocation import RandomAllocation
from privcalc.numerics.floats import UNIT
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Additive, Mechanism, Run
from privcalc.strategies.matrices import FINE, Strategy, check_strategy
from privcalc.strategies.participation import BallsInBins, CyclicPoisson, FixedOrder, Participation
from privcalc.strategies.patterns import column_norms, sensitivity

__all__ = ["CorrelatedGaussian"]

MOST = 1e100
"""The largest μ, as of ``Gaussian``."""


@dataclass(frozen=True)
class CorrelatedGaussian(Additive):
    """A whole run of T steps whose noise is correlated: release Cx + Z and publish x + C⁻¹Z, one step at a time.

    Row t of x is the sum of the contributions of step t, each of norm at most C (the clip norm), which may depend on
    all that was published; Z has independent N(0, (noise_multiplier·C)²) entries. One use is exactly
    (s/noise_multiplier)-GDP, s the largest norm of Σ_t C[:, t] over the steps that one record may be in;
    2s/noise_multiplier under replace-one, where the new record takes the other's place (``proofs/correlated.md``).
    Where s is known between two bounds only, so is every answer.

    What sampling adds is known for bands and cyclic Poisson samples: with ``CyclicPoisson(classes=b, rate=q)``, and at
    most b diagonals, no row of Cx has two turns of one record, and a use is as many Poisson-sampled Gaussians as a
    class has turns, of noise multiplier z / (norm of the turn's column), the worst of all classes. Under replace-one
    the new record must be in the same class. With ``BallsInBins(bins=b)``, and at most b diagonals, the answer is an
    interval: a use is at most as bad as a random allocation to ⌊b / diagonals⌋ steps, and as bad as one to b steps, of
    noise multiplier z / (norm of a bin's columns); replace-one is refused. Other patterns may be secret, but no credit
    is taken for it.

    Args:
        noise_multiplier: standard deviation of an entry of Z / C, where C bounds one record's contribution to one step.
        strategy: the matrix, of :mod:`privcalc.strategies`.
        participation: in which steps one record may be: ``MinSeparation``, ``FixedOrder``, ``CyclicPoisson`` or
            ``BallsInBins``.

    Raises:
        PrivcalcError: if an argument is out of range, the matrix too large for this participation, or there are more
            diagonals than classes or bins.

    Source: Denisov, McMahan, Rush, Smith, Thakurta 2022 (*Improved Differential Privacy for SGD via Optimal Private
    Linear Operators on Adaptive Streams*), Theorem 2.1; Choquette-Choo et al. 2023 (*(Amplified) Banded Matrix
    Factorization*), Theorem 4.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.strategies import MinSeparation, SquareRoot
        >>> run = CorrelatedGaussian(6.0, SquareRoot(steps=2000), MinSeparation(separation=500))
        >>> print(f"{run.epsilon(delta=1e-6):.6f}")
        3.518466
        >>> from privcalc.strategies import CyclicPoisson, Toeplitz
        >>> run = CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], steps=1000), CyclicPoisson(classes=2, rate=0.02))
        >>> print(f"{run.epsilon(delta=1e-6):.6f}")
        3.213575
        >>> from privcalc.strategies import BallsInBins
        >>> run = CorrelatedGaussian(6.0, Toeplitz([1.0, 0.75], steps=1000), BallsInBins(bins=100))
        >>> print(run.epsilon(delta=1e-6))
        [0.290498, 0.445874]
    """

    kind = "CorrelatedGaussian"
    page = "correlated.md"
    draws = "correlated"
    scheme = "in turns"
    nulled = None  # one use is all steps: the participation says who is in which

    noise_multiplier: float
    strategy: Strategy
    participation: Participation | CyclicPoisson | BallsInBins

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", errors.scale("noise_multiplier", self.noise_multiplier))
        check_strategy(self.strategy)
        most = self._most()
        if not most / self.noise_multiplier <= MOST:
            raise PrivcalcError(
                f"noise_multiplier = {self.noise_multiplier!r}: must be at least {1 / MOST:g} of the sensitivity, "
                f"{most!r}"
            )

    def _most(self) -> float:
        """The largest shift; refuses what it cannot bound."""
        if isinstance(self.participation, CyclicPoisson):
            return max(turn.high for turn in turns_of(self.strategy, self.participation))
        if isinstance(self.participation, BallsInBins):
            return bins_of(self.strategy, self.participation).high
        return sensitivity(self.strategy, self.participation)[1]

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def finer(self) -> int:
        """The number of bits of the strategy's numbers below the grid."""
        return FINE

    @property
    def blur(self) -> float:
        return self.strategy.blur

    @property
    def sampled(self) -> bool:
        """Whether batches are drawn by coins (``CyclicPoisson``)."""
        return isinstance(self.participation, CyclicPoisson)

    @property
    def norm(self) -> Literal[1, 2]:
        return 2

    def expected_size(self, records: int) -> float:
        """Return the mean number of records of one step.

        Of a class with coins, of a turn in a fixed order; all records, where only a distance is known.
        """
        match self.participation:
            case CyclicPoisson():
                return records * self.participation.rate / self.participation.classes
            case FixedOrder() | BallsInBins():
                return records / self.participation.separation
        return float(records)

    def pairs(self, relation: Relation) -> Pairs:
        """N(s/z, 1) against N(0, 1).

        Raises:
            PrivcalcError: with ``CyclicPoisson``, where one use is a composition.
        """
        if self.sampled:
            raise PrivcalcError(
                f"mechanism = {self}: is a composition of Poisson-sampled steps, and cannot be a part here"
            )
        if isinstance(self.participation, BallsInBins):
            return self._allocated(relation)
        return self._whole(2 if relation is REPLACE_ONE else 1)

    def turns(self, relation: Relation) -> Sequence[tuple[Pairs, int]]:
        """Return the pairs of one record's turns: one, or with ``CyclicPoisson`` one for each norm of a column."""
        if not isinstance(self.participation, CyclicPoisson):
            return super().turns(relation)
        groups = list[tuple[Pairs, int]]()
        for turn in turns_of(self.strategy, self.participation):
            above = self._step(turn.high).pairs(relation)
            below = self._step(turn.low, occurring=True).pairs(relation) if turn.low else Pairs(*NOTHING)
            pairs = Pairs(
                *above.upper(), below.lower(), alternative=above.alternative, bound=above.bound, also=below.also
            )
            groups.append((pairs, turn.uses))
        return groups

    def simpler(self, *, occurring: bool = False) -> Run:
        """Independent Gaussians, Poisson-sampled under ``CyclicPoisson``, that dominate one use, or occur in it."""
        if isinstance(self.participation, BallsInBins):
            empty = occurring and not bins_of(self.strategy, self.participation).low  # a bin without steps
            return Run(() if empty else ((self._allocation(occurring=occurring), 1),))
        if isinstance(self.participation, CyclicPoisson):
            turns = [
                (turn.low if occurring else turn.high, turn.uses)
                for turn in turns_of(self.strategy, self.participation)
            ]
        else:
            turns = [(sensitivity(self.strategy, self.participation)[0 if occurring else 1], 1)]
        return Run(tuple((self._step(norm, occurring=occurring), count) for norm, count in turns if norm))

    def _step(self, norm: float, *, occurring: bool = False) -> Mechanism:
        """Return the Gaussian step of this norm, sampled with ``CyclicPoisson``."""
        step = self._gaussian(norm, occurring=occurring)
        return PoissonSampled(step, self.participation.rate) if isinstance(self.participation, CyclicPoisson) else step

    def _allocated(self, relation: Relation) -> Pairs:
        """Bins that are far apart from above, all of them from below: as if no two had a row in common."""
        if relation is REPLACE_ONE:
            raise PrivcalcError(
                f"relation = {relation}: CorrelatedGaussian with BallsInBins is not evaluated for it; ask under "
                "privcalc.ADD_OR_REMOVE_ONE or privcalc.ZERO_OUT, or take FixedOrder, which takes no credit for chance"
            )
        above, bins = self._allocation().pairs(relation), bins_of(self.strategy, self.participation)
        below = self._allocation(occurring=True).pairs(relation) if bins.low else Pairs(*NOTHING)
        return Pairs(
            *above.upper(), below.lower(), alternative=above.alternative, bound="bins far apart", also=below.also
        )

    def _allocation(self, *, occurring: bool = False) -> RandomAllocation:
        """Return the allocation to as many steps as there are bins that have no row in common; or to all."""
        bins = bins_of(self.strategy, self.participation)
        norm, slots = (bins.low, bins.bins) if occurring else (bins.high, bins.slots)
        step = self._gaussian(norm, occurring=occurring)
        return RandomAllocation(step, slots)

    def _gaussian(self, norm: float, *, occurring: bool) -> Gaussian:
        """A shift of so much: with noise that is rounded down, or up."""
        noise = self.noise_multiplier / norm
        return Gaussian(math.nextafter(noise, math.inf) if occurring else min(math.nextafter(noise, 0.0), MOST))

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """The pairs of k records, which are k steps of the relation, and may all have the worst pattern.

        Of chance only a chain is known.
        """
        if not isinstance(self.participation, Participation):
            return None
        return self._whole(total)

    def _whole(self, moves: int) -> Pairs:
        """So many unit contributions in the worst pattern; the quotient is rounded outward."""
        assert isinstance(self.participation, Participation)
        low, high = (s * moves / self.noise_multiplier for s in sensitivity(self.strategy, self.participation))
        pair, occurs = GaussianPair(math.nextafter(high, math.inf)), GaussianPair(max(math.nextafter(low, 0.0), 0.0))
        return Pairs(pair, pair, (occurs, occurs), bound="worst companions" if high > low * (1 + 1e-9) else "")


class Turn(NamedTuple):
    """Turns of a class, with bounds of the column's norm.

    The lower one is of a class that exists, the upper one of all.
    """

    low: float
    high: float
    uses: int


class Bins(NamedTuple):
    """Bounds of the norm of a bin's columns, the least and the largest.

    Then how many bins there are, and how many that share no row.
    """

    low: float
    high: float
    bins: int
    slots: int


@functools.lru_cache(maxsize=64)
def bins_of(strategy: Strategy, participation: BallsInBins) -> Bins:
    """The columns of one bin have no row in common.

    Raises:
        PrivcalcError: if the strategy has more diagonals than there are bins.
    """
    bins = participation.bins
    if strategy.bands > bins:
        raise PrivcalcError(
            f"bins = {bins}: must be at least the number of diagonals, {strategy.bands}, or a row has two steps of a "
            f"record; FixedOrder(epoch={bins}) takes no credit for chance, and allows it"
        )
    low, high = (
        np.pad(norms**2, (0, -norms.size % bins)).reshape(-1, bins).sum(axis=0) for norms in column_norms(strategy)
    )
    rounding = 1.01 * (strategy.columns // bins + 8) * UNIT
    return Bins(
        math.sqrt(low.min()) * (1 - rounding), math.sqrt(high.max()) * (1 + rounding), bins, bins // strategy.bands
    )


@functools.lru_cache(maxsize=64)
def turns_of(strategy: Strategy, participation: CyclicPoisson) -> tuple[Turn, ...]:
    """The turns that dominate those of every class, and one class's own: the largest sum of squares.

    Raises:
        PrivcalcError: if the strategy has more diagonals than there are classes.
    """
    classes = participation.classes
    if strategy.bands > classes:
        raise PrivcalcError(
            f"classes = {classes}: must be at least the number of diagonals, {strategy.bands}, "
            "or a row has two turns of a record"
        )
    # Classes without a last turn add nothing in it.
    low, high = (np.pad(norms, (0, -norms.size % classes)).reshape(-1, classes) for norms in column_norms(strategy))
    one = low[:, int(np.argmax((low**2).sum(axis=0)))]
    pairs, counts = np.unique(np.column_stack([one, high.max(axis=1)]), axis=0, return_counts=True)
    return tuple(Turn(least, most, uses) for (least, most), uses in zip(pairs.tolist(), counts.tolist(), strict=True))
