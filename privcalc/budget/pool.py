"""The rules of a budget: all charges of its ledgers together stay within one cap; and the odometer of what was lost.

Proofs: ``proofs/budgets.md``, §§1, 2; §4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.enclosure import Enclosure
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.ledger.budgets import Divergences, Kind, Losses
from privcalc.ledger.rules import Filter, Rule
from privcalc.ledger.terms import filter_of
from privcalc.numerics.floats import Floats
from privcalc.relation import Relation
from privcalc.run import Mechanism, Run


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


class Odometer(Rule):
    """The rule that admits everything, and says what was lost up to now, whenever one looks (§4).

    Args:
        orders: Rényi orders, fixed before the first output.
        relation: the neighbouring relation.
    """

    def __init__(self, orders: Sequence[float], relation: Relation) -> None:
        super().__init__()
        self._orders, self._relation = tuple(orders), relation

    def refusal(self, run: Run) -> str | None:
        """Nothing is refused: of what has no proof the odometer is ∞."""
        return None

    def epsilon(self, *, delta: float) -> Enclosure:
        """An ε that the loss exceeds, now or ever before, with a probability of at most δ.

        It holds whatever was chosen from outputs.

        Args:
            delta: δ in [0, 1).

        Returns:
            The upper end is the odometer: the least over the orders of Σε(α) + log(K/δ)/(α − 1), K of them finite. The
            lower end is that of the run's ε at δ, were it fixed in advance: below it no odometer is right.
        """
        level, run, relation = errors.delta("delta", delta), self.charged, self._relation
        if not run.entries:
            return Enclosure(0.0, 0.0, relation, "odometer", delta=level)
        finite = [order for order in self._orders if order < math.inf]
        found = [_sum(run, Losses(), relation) if math.inf in self._orders else math.inf]
        if level > 0:
            for order in finite:
                bound = _sum(run, Divergences((order,)), relation) + math.log(len(finite) / level) / (order - 1)
                found.append(bound * (1 + 1e-14))  # logarithm, quotient and sum: a few roundings
        low = run.epsilon(delta=level, relation=relation).lower
        return Enclosure(low, max(low, min(found)), relation, "odometer", delta=level)


def _sum(run: Run, kind: Kind, relation: Relation) -> float:
    """Σ of the costs of all uses, each by itself, rounded up; ∞ where one has none."""
    total = Fraction(0)
    for mechanism, count in run.entries:
        try:
            cost = kind.costs(mechanism, relation)
        except errors.PrivcalcError:
            return math.inf
        if cost is None:
            return math.inf
        total += Fraction(math.ceil(count * cost[0] * 2**80), 2**80)
    found = float(total)
    return math.nextafter(found, math.inf) if Fraction(found) < total else found
