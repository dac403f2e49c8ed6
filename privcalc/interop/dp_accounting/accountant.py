"""dp-accounting: a ``PrivacyAccountant`` with certified answers, ``DpEvent`` trees in and out.

Needs the extra ``peers``.
"""

from __future__ import annotations

import math
from typing import Any

from dp_accounting import privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.interop.dp_accounting.events import NonPrivate, Parts, Refused, read
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation
from privcalc.run import Run

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: ADD_OR_REMOVE_ONE,
    NeighboringRelation.REPLACE_ONE: REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: ZERO_OUT,
}


class PrivcalcAccountant(privacy_accountant.PrivacyAccountant):  # type: ignore[misc]
    """Composes ``DpEvent`` trees under one relation; answers are the certified upper ends.

    Args:
        neighboring_relation: dp-accounting's; its REPLACE_SPECIAL is ``ZERO_OUT``.
    """

    def __init__(self, neighboring_relation: Any = NeighboringRelation.ADD_OR_REMOVE_ONE) -> None:
        if neighboring_relation not in RELATIONS:
            raise PrivcalcError(
                f"neighboring_relation = {neighboring_relation!r}: must be one of {', '.join(map(str, RELATIONS))}"
            )
        super().__init__(neighboring_relation)
        self._parts: Parts = {}
        self._private = True

    @property
    def relation(self) -> Relation:
        """The relation in our words."""
        return RELATIONS[self.neighboring_relation]

    @property
    def run(self) -> Run:
        """What was composed, to ask for enclosures; without events that are not private."""
        return Run(tuple(self._parts.items()))

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        parts: Parts = {}
        private = True
        try:
            read(event, 1, self.relation, parts)
        except Refused as refused:
            return self.CompositionErrorDetails(invalid_event=refused.event, error_message=str(refused))
        except NonPrivate:
            private = False
        if do_compose:
            self._private &= private
            for mechanism, uses in parts.items():
                self._parts[mechanism] = self._parts.get(mechanism, 0) + uses * errors.count("count", count)
        return None

    def get_epsilon(self, target_delta: float) -> float:
        """The upper end of ε at δ in [0, 1]; ∞ after an event that is not private.

        Raises:
            PrivcalcError: if δ is no probability.
        """
        delta = errors.real("target_delta", target_delta, "a probability in [0, 1]", low=0.0, high=1.0)
        if not self._private:
            return math.inf
        return self.run.epsilon(delta=delta, relation=self.relation).upper if delta < 1 else 0.0

    def get_delta(self, target_epsilon: float) -> float:
        """The upper end of δ at ε in [0, ∞]; 1 after an event that is not private.

        Raises:
            PrivcalcError: if ε is negative or no number.
        """
        epsilon = errors.real("target_epsilon", target_epsilon, "a number >= 0", low=0.0, high=math.inf)
        if not self._private:
            return 1.0
        return self.run.delta(epsilon=min(epsilon, 1e6), relation=self.relation).upper if self._parts else 0.0
