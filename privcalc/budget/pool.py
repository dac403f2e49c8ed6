"""The admission rule of a budget: all charges of its ledgers together stay within one cap.

Proof in ``proofs/budgets.md``.
"""

from __future__ import annotations

import numpy as np

from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.ledger.filters import Filter
from privcalc.ledger.rules import Rule
from privcalc.ledger.terms import filter_of
from privcalc.numerics.floats import Floats
from privcalc.run import Mechanism, Run

__all__ = ["Pool"]


class Pool(Rule):
    """What the ledgers of a data set share: the filter of the cap is asked for all that is charged, anew each time.

    So whether there is room is a function of the multiset of what is charged, whatever the order in which it was.

    Args:
        cap: ``GDP``, ``ZCDP``, ``RDP`` or ``PureDP``.
    """

    def __init__(self, cap: Mechanism) -> None:
        super().__init__()
        self.cap = cap

    def filter(self, run: Run) -> Filter:
        """A filter of the cap, to which a run alone was charged.

        Raises:
            BudgetExceeded: if it is too much.
            PrivcalcError: if the cap has no proof for a mechanism.
        """
        found = filter_of(self.cap)
        found.charge(run)
        return found

    def refusal(self, run: Run) -> str | None:
        """That the cap would be exceeded, or is."""
        try:
            return self.filter(self.charged).refusal(run)
        except BudgetExceeded:
            return f"{run}: the budget {self.cap} is exceeded by what was readmitted"

    def count(self, run: Run) -> None:
        """Charge what was admitted when it was written down, or was lost and is readmitted: also what does not fit."""
        with self._lock:
            self._move(run, 1)

    @property
    def remaining(self) -> float | Floats:
        """The largest charge that still fits, rounded down, in the unit of the cap."""
        try:
            return self.filter(self.charged).remaining
        except BudgetExceeded:  # what was readmitted, or rounding that another version does otherwise
            return filter_of(self.cap).remaining * 0.0

    @property
    def exceeded(self) -> bool:
        """Whether the cap is no guarantee: more was readmitted than fits, or what it has no proof for."""
        try:
            self.filter(self.charged)
        except PrivcalcError:
            return True
        return False

    def share(self, run: Run) -> float:
        """The share of the cap that a run uses, of what adds up; above 1 if more was readmitted than fits."""
        return filter_of(self.cap).share(run)

    def cheaper(self, run: Run, other: Run) -> bool:
        """Whether a run has a cost, and none that is above the other's."""
        try:
            return bool(np.all(np.asarray(self.filter(run).spent) <= np.asarray(self.filter(other).spent)))
        except PrivcalcError:
            return False
