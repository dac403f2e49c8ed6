"""The dominating pairs of a mechanism under one relation, and how many other records they need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair


@dataclass(frozen=True)
class Others:
    """The number of records beside the one that differs: where a mechanism may run, and its lower end occurs.

    Attributes:
        runs: the least and the largest number with which it may run.
        attains: those of which one data set at least has the pairs that occur; ∞ is a limit, of ever more records.
    """

    runs: tuple[float, float] = (0.0, math.inf)
    attains: tuple[float, float] = (0.0, math.inf)

    def at(self, number: float) -> bool:
        """Return whether the lower end occurs beside ``number`` other records."""
        return self.attains[0] <= number <= self.attains[1]

    def __and__(self, other: Others) -> Others:
        """Return the numbers that meet both conditions."""
        runs, attains = (
            (max(one[0], two[0]), min(one[1], two[1]))
            for one, two in ((self.runs, other.runs), (self.attains, other.attains))
        )
        return Others(runs, attains)

    @property
    def numbers(self) -> tuple[float, float]:
        """The least and the largest number with which it runs and its lower end occurs; least > largest if none."""
        return max(self.runs[0], self.attains[0]), min(self.runs[1], self.attains[1])


ANY = Others()
"""Beside any number of others."""


@dataclass(frozen=True)
class Pairs:
    """The pairs that dominate a mechanism under one relation.

    Attributes:
        forward: dominates every (output with the record, output without it); under replace-one, every ordered pair.
        backward: dominates the reverse order.
        attained: pairs that really occur, in the same two directions, where the dominating ones may not; they give the
            lower ends. None where the dominating pairs occur themselves.
        also: more pairs that occur as well, by rising largest loss; which of them gives the best lower end depends on
            the run.
        attained_alone: whether the dominating profile is attained, at every ε, by a single use: then it is exact for
            one.
        alternative: pairs that dominate too, which are better for some runs.
        bound: the name of the theorem that gives the dominating pairs, where they are not attained.
        others: the numbers of other records for which what is attained occurs (``proofs/together.md``).
        choice: of a choice whose loss has a known range, that range: many of them are a game (``proofs/choices.md``);
            else 0.
        attained_curve: whether one use attains each point of the trade-off curve of what dominates, too.
    """

    forward: Pair
    backward: Pair
    attained: tuple[Pair, Pair] | None = None
    attained_alone: bool = False
    alternative: tuple[Pair, Pair] | None = None
    bound: str = ""
    choice: float = 0.0
    also: tuple[tuple[Pair, Pair], ...] = ()
    others: Others = ANY
    attained_curve: bool = False

    def upper(self) -> tuple[Pair, Pair]:
        """Return the dominating pairs (forward, backward), for upper bounds."""
        return self.forward, self.backward

    def other(self) -> tuple[Pair, Pair]:
        """Return the alternative dominating pairs, or the dominating pairs where there is no alternative."""
        return self.alternative or self.upper()

    def beside(self, others: Others) -> Pairs:
        """Return these pairs under one more condition; no lower end is known where the two exclude each other."""
        both = self.others & others
        least, most = both.numbers
        return replace(self, others=both) if least <= most else self.unattained(Others(both.runs))

    def unattained(self, others: Others) -> Pairs:
        """Return the dominating pairs with no lower end."""
        return replace(self, attained=NOTHING, attained_alone=False, also=(), others=others)

    def lower(self) -> tuple[Pair, Pair]:
        """Return the pairs (forward, backward) that occur, for lower bounds."""
        return self.attained or self.upper()


NOTHING = (GaussianPair(0.0), GaussianPair(0.0))
"""Two equal laws, which occur in every release: what is attained where nothing is known from below."""
