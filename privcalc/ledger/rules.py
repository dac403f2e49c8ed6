"""Admission rules: what may still be charged, so that all of it together has one guarantee, whatever is chosen from outputs.

* :class:`Plan`: uses that a run has, which was fixed before any output (``proofs/ledger.md``, §1);
* :class:`privcalc.Filter`, a ledger's cap: what keeps sums of costs within a budget (``proofs/filters.md``).

A budget of several ledgers asks the filter of its cap for all that is charged together, anew each time
(``proofs/budgets.md``). An ``IndividualFilter`` has a sum for each record, and admits records, not releases
(``proofs/audits.md``, §3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.run import Questions, Run

__all__ = ["Plan", "Rule"]


class Rule(ABC):
    """What decides whether a run may be released, all of it: charged before, and given back if it never was."""

    @abstractmethod
    def would_exceed(self, mechanism: Questions) -> bool:
        """Whether ``charge`` would refuse; nothing is charged.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            PrivcalcError: if the rule has no proof for it.
        """

    @abstractmethod
    def charge(self, mechanism: Questions) -> None:
        """Charge what is about to be released; before it is.

        Raises:
            BudgetExceeded: if it is not admitted: then nothing is charged, and it must not be released.
            PrivcalcError: as ``would_exceed``.
        """

    @abstractmethod
    def refund(self, mechanism: Questions) -> None:
        """Take back what was charged and never drawn.

        Raises:
            PrivcalcError: if it was not charged: then nothing is taken back.
        """


class Plan(Rule):
    """A run that was fixed before any output: each of its uses once, in any order.

    Args:
        run: what is planned.

    Example:
        >>> import privcalc as pc
        >>> plan = Plan(pc.Gaussian(20.0) * 3)
        >>> plan.charge(pc.Gaussian(20.0) * 2)
        >>> plan.would_exceed(pc.Gaussian(20.0) * 2), plan.would_exceed(pc.Gaussian(30.0))
        (True, True)
    """

    def __init__(self, run: Run) -> None:
        self.run, self._left = run, dict(run.entries)

    def would_exceed(self, mechanism: Questions) -> bool:
        """Whether it has fewer uses left."""
        return any(self._left.get(part, 0) < count for part, count in mechanism.run.entries)

    def charge(self, mechanism: Questions) -> None:
        """Use them up."""
        for part, count in mechanism.run.entries:
            if part not in self._left:
                raise BudgetExceeded(f"mechanism = {part}: is not in the plan {self.run}")
            if self._left[part] < count:
                raise BudgetExceeded(f"mechanism = {part}: the plan {self.run} has {self._left[part]} more of it, not {count}")
        for part, count in mechanism.run.entries:
            self._left[part] -= count

    def refund(self, mechanism: Questions) -> None:
        """Have them again."""
        whole = dict(self.run.entries)
        for part, count in mechanism.run.entries:
            if (had := whole.get(part, 0) - self._left.get(part, 0)) < count:
                raise PrivcalcError(f"mechanism = {part}: {count} uses to take back, of {had} that are charged")
        for part, count in mechanism.run.entries:
            self._left[part] += count
