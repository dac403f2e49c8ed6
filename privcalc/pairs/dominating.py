"""Mechanisms: frozen descriptions of one release. A mechanism never sees a count."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair


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
        choice: of a choice whose loss has a known range, that range: many of them are a game (``proofs/choices.md``); else 0.
    """

    forward: Pair
    backward: Pair
    attained: tuple[Pair, Pair] | None = None
    attained_alone: bool = False
    alternative: tuple[Pair, Pair] | None = None
    bound: str = ""
    choice: float = 0.0
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
