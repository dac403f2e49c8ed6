"""Mechanisms: frozen descriptions of one release. A mechanism never sees a count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from privcalc import errors
from privcalc.pair import Pair
from privcalc.pairs import GaussianPair
from privcalc.relation import Relation
from privcalc.run import Questions, Run

__all__ = ["Mechanism"]


@dataclass(frozen=True)
class Pairs:
    """The pairs that dominate a mechanism under one relation.

    Attributes:
        forward: dominates every (output with the record, output without it); under replace-one, every ordered pair.
        backward: dominates the reverse order.
        attained: pairs that really occur, in the same two directions, where the dominating ones may not; they give the lower
            ends. None where the dominating pairs occur themselves.
        also: more pairs that occur as well, by rising largest loss; which of them gives the best lower end depends on the run.
        attained_alone: whether the dominating profile is attained, at every ε, by a single use: then it is exact for one.
        alternative: pairs that dominate too, which are better for some runs.
        bound: the name of the theorem that gives the dominating pairs, where they are not attained.
    """

    forward: Pair
    backward: Pair
    attained: tuple[Pair, Pair] | None = None
    attained_alone: bool = False
    alternative: tuple[Pair, Pair] | None = None
    bound: str = ""
    also: tuple[tuple[Pair, Pair], ...] = ()

    def upper(self) -> tuple[Pair, Pair]:
        """The dominating pairs."""
        return self.forward, self.backward

    def other(self) -> tuple[Pair, Pair]:
        """The alternative, where there is one."""
        return self.alternative or self.upper()

    def lower(self) -> tuple[Pair, Pair]:
        """The pairs for lower bounds."""
        return self.attained or self.upper()


NOTHING = (GaussianPair(0.0), GaussianPair(0.0))
"""Two equal laws, which occur in every release: what is attained where nothing is known from below."""


class Mechanism(Questions, ABC):
    """One release. ``mechanism * n`` repeats it, ``a + b`` composes; both give a :class:`Run`.

    All questions of a run (``epsilon``, ``delta``, …) can be asked of a mechanism: it is a run of one.

    Attributes:
        page: the page in ``proofs/`` that its pairs rely on.
    """

    page: ClassVar[str] = "custom.md"

    @abstractmethod
    def pairs(self, relation: Relation) -> Pairs:
        """The pairs under ``relation``; raises PrivcalcError where the mechanism has no guarantee under it."""

    @property
    def sampled(self) -> bool:
        """Whether it draws its own batches; such a mechanism cannot be sampled again."""
        return False

    @property
    def nulled_is_absent(self) -> bool:
        """Whether, under zero-out, the output with a nulled record has the law of that without it: Poisson sampling needs it."""
        return True

    def opposite_pair(self, rate: float) -> Pair | None:
        """Under replace-one and Poisson sampling: the symmetric pair that dominates and occurs, if it is known."""
        return None

    @property
    def run(self) -> Run:
        """The run of one use."""
        return Run(((self, 1),))

    def __mul__(self, count: int) -> Run:
        return self.run * count

    __rmul__ = __mul__

    def __add__(self, other: Mechanism | Run) -> Run:
        return self.run + other

    def __radd__(self, other: Mechanism | Run | int) -> Run:
        return self.run.__radd__(other)


def check_unsampled(mechanism: object) -> None:
    """Raise unless ``mechanism`` is one that a sampling scheme may run on its batches: not sampled itself, and no run."""
    if not isinstance(mechanism, Mechanism) or mechanism.sampled:
        raise errors.PrivcalcError(f"mechanism = {mechanism!r}: must be a mechanism that is not itself sampled")
