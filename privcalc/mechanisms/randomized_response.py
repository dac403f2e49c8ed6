"""Randomised response, and the pairs whose loss takes two or three values."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc import errors
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.two_point import TwoPointPair
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Grouped, Shown

__all__ = ["RandomizedResponse"]


@dataclass(frozen=True, init=False, repr=False)
class RandomizedResponse(Grouped, Shown):
    """Report each record's category truthfully with probability e^ε/(e^ε + k − 1), else one of the others.

    The others are equally likely.

    All reports are released, so how many there are is public. Under every relation the record's report is still sent:
    under replace-one it reports the other record's category, under add-or-remove-one and zero-out an absent or nulled
    record reports some fixed public category, randomised like any other. (If absent records sent nothing, presence
    would be visible and no finite ε would hold.) Exactly ε-DP in all three cases, by the same pair
    (``proofs/randomized_response.md``).

    Args:
        epsilon: ε of one report; > 0 (1e-100 to 1e100); kept as ``level``, because ``epsilon`` is a question.
        categories: k, the number of categories, at least 2.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> mechanism = RandomizedResponse(epsilon=1.0)
        >>> print(f"{mechanism.epsilon(delta=0.0):.9f} {mechanism.delta(epsilon=0.5):.9f}")
        1.000000000 0.287649137
    """

    kind = "RandomizedResponse"
    page = "randomized_response.md"
    needs = ("reports",)
    draws = None
    scheme = None
    nulled = "absent"

    level: float
    categories: int

    def __init__(self, epsilon: float, categories: int = 2) -> None:
        self._set(level=errors.scale("epsilon", epsilon), categories=errors.count("categories", categories, least=2))

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs:
        """(p, r, r, …) against (r, p, r, …), for every report that differs: one for each record, or one for two."""
        reports = removed if relation is REPLACE_ONE else total
        pair = TwoPointPair(self.level, self.level, self.categories - 2, reports)
        return Pairs(pair, pair)
