"""Admission rules: what may still be charged, so that all of it together has one guarantee.

The guarantee holds whatever is chosen from outputs.

Each says why a run is not admitted besides what is charged; here is what they all do: charge, refund, close.

* :class:`Plan`: uses that a run has, which was fixed before any output (``proofs/ledger.md``, §1);
* :class:`privcalc.Filter`, a ledger's cap: what keeps sums of costs within a budget (``proofs/filters.md``);
* :class:`privcalc.budget.pool.Pool`, the cap of a budget that several ledgers share (``proofs/budgets.md``).

An ``IndividualFilter`` has a sum for each record, and admits records, not releases (``proofs/audits.md``, §3).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import NoReturn

from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.run import Mechanism, Run

__all__ = ["Plan", "Rule", "Single", "as_run"]


def as_run(name: str, value: object) -> Run:
    """A mechanism or a run as a run.

    Raises:
        PrivcalcError: if it is neither.
    """
    if not isinstance(value, (Mechanism, Run)):
        raise PrivcalcError(f"{name} = {value!r}: must be a mechanism or a run")
    return value.run


class Single:
    """An object that cannot be copied, nor sent to another process: a copy would count for itself."""

    def __reduce__(self) -> NoReturn:
        raise PrivcalcError(
            f"a {type(self).__name__} cannot be copied or sent to another process: there must be one that charges"
        )


class Rule(Single, ABC):
    """What decides whether a run may be released, all of it: charged before, and given back if it never was."""

    def __init__(self) -> None:
        self._uses: dict[Mechanism, int] = {}
        self._lock = threading.RLock()
        self.closed = False

    @property
    def charged(self) -> Run:
        """All that is charged now."""
        with self._lock:
            return Run(tuple(self._uses.items()))

    @abstractmethod
    def refusal(self, run: Run) -> str | None:
        """Why a run is not admitted, besides what is charged; None if it is.

        Raises:
            PrivcalcError: if the rule has no proof for it.
        """

    def would_exceed(self, mechanism: Mechanism | Run) -> bool:
        """Whether ``charge`` would refuse for want of budget; nothing is charged.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            PrivcalcError: if the rule has no proof for a mechanism, or that has no guarantee under the relation.
        """
        return self.refusal(as_run("mechanism", mechanism)) is not None

    def check(self, mechanism: Mechanism | Run) -> None:
        """Refuse what ``charge`` would; nothing is charged.

        Raises:
            BudgetExceeded: if it is not admitted.
            PrivcalcError: as ``would_exceed``.
        """
        if (why := self.refusal(as_run("mechanism", mechanism))) is not None:
            raise BudgetExceeded(f"mechanism = {why}")

    def charge(self, mechanism: Mechanism | Run) -> None:
        """Charge what is about to be released; call it before, not after.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            BudgetExceeded: if it is not admitted: then nothing is charged, and it must not be released. Less may still
                fit.
            PrivcalcError: as ``would_exceed``, or if the rule was closed.
        """
        run = as_run("mechanism", mechanism)
        with self._lock:
            if self.closed:
                raise PrivcalcError(f"mechanism = {mechanism}: cannot be charged, what it was for is closed")
            self.check(run)
            self._move(run, 1)

    def refund(self, mechanism: Mechanism | Run) -> None:
        """Take back a charge for what was never released, and never looked at: exactly what its charge added.

        Args:
            mechanism: one release, or a run of several.

        Raises:
            PrivcalcError: if as many uses of each are not charged, or were taken back: then nothing is.
        """
        run = as_run("mechanism", mechanism)
        with self._lock:
            for part, count in run.entries:
                if count > (had := self._uses.get(part, 0)):
                    raise PrivcalcError(f"mechanism = {part}: {count} uses to take back, of {had} that are charged")
            self._move(run, -1)

    def close(self) -> None:
        """End the rule: nothing more is charged."""
        self.closed = True

    def _move(self, run: Run, sign: int) -> None:
        """Add the uses of a run to those that are charged, or take them from these."""
        for part, count in run.entries:
            self._uses[part] = self._uses.get(part, 0) + sign * count
            if not self._uses[part]:
                del self._uses[part]


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
        super().__init__()
        self.run, self._whole = run, dict(run.entries)

    def refusal(self, run: Run) -> str | None:
        """That it has fewer uses left."""
        for part, count in run.entries:
            if part not in self._whole:
                return f"{part}: is not in the plan {self.run}"
            if (left := self._whole[part] - self._uses.get(part, 0)) < count:
                return f"{part}: the plan {self.run} has {left} more of it, not {count}"
        return None
