"""Gaussian noise that is correlated over the steps of a run: matrix mechanisms, DP-FTRL."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism, Run
from privcalc.strategies.matrices import Strategy, check_strategy
from privcalc.strategies.participation import CyclicPoisson, FixedOrder, Participation
from privcalc.strategies.patterns import column_norms, sensitivity

__all__ = ["CorrelatedGaussian"]

MOST = 1e100
"""The largest μ, as of ``Gaussian``."""


@dataclass(frozen=True)
class CorrelatedGaussian(Mechanism):
    """A whole run of T steps whose noise is correlated: release Cx + Z and publish x + C⁻¹Z, one step at a time.

    Row t of x is the sum of the contributions of step t, each of norm at most C (the clip norm), which may depend on all that was
    published; Z has independent N(0, (noise_multiplier·C)²) entries. One use is exactly (s/noise_multiplier)-GDP, s the largest
    norm of Σ_t C[:, t] over the steps that one record may be in; 2s/noise_multiplier under replace-one, where the new record
    takes the other's place (``proofs/correlated.md``). Where s is known between two bounds only, so is every answer.

    What sampling adds is known for bands and cyclic Poisson samples: with ``CyclicPoisson(classes=b, rate=q)``, and at most b
    diagonals, no row of Cx has two turns of one record, and a use is as many Poisson-sampled Gaussians as a class has turns, of
    noise multiplier z / (norm of the turn's column), the worst of all classes. Under replace-one the new record must be in the
    same class. Other patterns may be secret, but no credit is taken for it.

    Args:
        noise_multiplier: standard deviation of an entry of Z / C, where C bounds one record's contribution to one step.
        strategy: the matrix, of :mod:`privcalc.strategies`.
        participation: in which steps one record may be: ``MinSeparation``, ``FixedOrder`` or ``CyclicPoisson``.

    Raises:
        PrivcalcError: if an argument is out of range, the matrix too large for this participation, or there are more diagonals
            than classes.

    Source: Denisov, McMahan, Rush, Smith, Thakurta 2022 (*Improved Differential Privacy for SGD via Optimal Private Linear
    Operators on Adaptive Streams*), Theorem 2.1; Choquette-Choo et al. 2023 (*(Amplified) Banded Matrix Factorization*),
    Theorem 4.

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
    """

    page: ClassVar[str] = "correlated.md"

    noise_multiplier: float
    strategy: Strategy
    participation: Participation | CyclicPoisson

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", errors.scale("noise_multiplier", self.noise_multiplier))
        check_strategy(self.strategy)
        most = self._most()
        if not most / self.noise_multiplier <= MOST:
            raise PrivcalcError(
                f"noise_multiplier = {self.noise_multiplier!r}: must be at least {1 / MOST:g} of the sensitivity, {most!r}"
            )

    def _most(self) -> float:
        """The largest shift; refuses what it cannot bound."""
        if isinstance(self.participation, CyclicPoisson):
            return max(turn.high for turn in turns_of(self.strategy, self.participation))
        return sensitivity(self.strategy, self.participation)[1]

    @property
    def sampled(self) -> bool:
        """Whether coins say who takes part."""
        return isinstance(self.participation, CyclicPoisson)

    def expected_size(self, records: int) -> float:
        """Of one step: a share of one class, or of a turn in a fixed order; all, where only a distance is known."""
        match self.participation:
            case CyclicPoisson():
                return records * self.participation.rate / self.participation.classes
            case FixedOrder():
                return records / self.participation.epoch
        return float(records)

    def pairs(self, relation: Relation) -> Pairs:
        """N(s/z, 1) against N(0, 1).

        Raises:
            PrivcalcError: with ``CyclicPoisson``, where one use is a composition.
        """
        if self.sampled:
            raise PrivcalcError(f"mechanism = {self}: is a composition of Poisson-sampled steps, and cannot be a part here")
        return self._whole(2 if relation is REPLACE_ONE else 1)

    def turns(self, relation: Relation) -> Sequence[tuple[Pairs, int]]:
        """One pair, or with ``CyclicPoisson`` one for each norm that a turn's column has."""
        if not isinstance(self.participation, CyclicPoisson):
            return super().turns(relation)
        found = list[tuple[Pairs, int]]()
        for turn in turns_of(self.strategy, self.participation):
            above = self._step(turn.high).pairs(relation)
            below = self._step(turn.low, occurring=True).pairs(relation) if turn.low else Pairs(*NOTHING)
            pairs = Pairs(*above.upper(), below.lower(), alternative=above.alternative, bound=above.bound, also=below.also)
            found.append((pairs, turn.uses))
        return found

    def simpler(self, *, occurring: bool = False) -> Run:
        """Independent Gaussians, Poisson-sampled with ``CyclicPoisson``, which dominate one use; or which occur in it."""
        if isinstance(self.participation, CyclicPoisson):
            turns = [(turn.low if occurring else turn.high, turn.uses) for turn in turns_of(self.strategy, self.participation)]
        else:
            turns = [(sensitivity(self.strategy, self.participation)[0 if occurring else 1], 1)]
        return Run(tuple((self._step(norm, occurring=occurring), count) for norm, count in turns if norm))

    def _step(self, norm: float, *, occurring: bool = False) -> Mechanism:
        """A shift of so much: with noise that is rounded down, or up."""
        noise = self.noise_multiplier / norm
        step = Gaussian(math.nextafter(noise, math.inf) if occurring else min(math.nextafter(noise, 0.0), MOST))
        return PoissonSampled(step, self.participation.rate) if isinstance(self.participation, CyclicPoisson) else step

    def group(self, relation: Relation, removed: int, added: int) -> Pairs | None:
        """k records are k steps of the relation; they may all have the worst pattern. With coins only a chain is known."""
        if self.sampled:
            return None
        return self._whole(2 * removed if relation is REPLACE_ONE else removed + added)

    def _whole(self, moves: int) -> Pairs:
        """So many unit contributions in the worst pattern; the quotient is rounded outward."""
        assert not isinstance(self.participation, CyclicPoisson)
        low, high = (s * moves / self.noise_multiplier for s in sensitivity(self.strategy, self.participation))
        pair, occurs = GaussianPair(math.nextafter(high, math.inf)), GaussianPair(max(math.nextafter(low, 0.0), 0.0))
        return Pairs(pair, pair, (occurs, occurs), bound="worst companions" if high > low * (1 + 1e-9) else "")


class Turn(NamedTuple):
    """So many turns of a class: bounds of the norm of the column, the lower one of a class that exists, the upper one of all."""

    low: float
    high: float
    uses: int


@functools.lru_cache(maxsize=64)
def turns_of(strategy: Strategy, participation: CyclicPoisson) -> tuple[Turn, ...]:
    """The turns that dominate those of every class, and what one class has of them: that with the largest sum of squares.

    Raises:
        PrivcalcError: if the strategy has more diagonals than there are classes.
    """
    classes = participation.classes
    if strategy.bands > classes:
        raise PrivcalcError(
            f"classes = {classes}: must be at least the number of diagonals, {strategy.bands}, or a row has two turns of a record"
        )
    # Classes without a last turn add nothing in it.
    low, high = (np.pad(norms, (0, -norms.size % classes)).reshape(-1, classes) for norms in column_norms(strategy))
    one = low[:, int(np.argmax((low**2).sum(axis=0)))]
    pairs, counts = np.unique(np.column_stack([one, high.max(axis=1)]), axis=0, return_counts=True)
    return tuple(Turn(least, most, uses) for (least, most), uses in zip(pairs.tolist(), counts.tolist(), strict=True))
