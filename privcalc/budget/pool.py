"""The rules of a budget: all charges of its ledgers together stay within one cap; and the odometer of what was lost.

Also caps of a size: the one that an ε at a δ allows, a share of one, what is left of one. Shares only divide the cap
among teams: everything that is charged keeps to the whole cap, and no proof rests on them.

Proofs: ``proofs/budgets.md``, §§1, 2; §4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, cast

import numpy as np

from privcalc import errors
from privcalc.calibration.search import calibrate
from privcalc.enclosure import Enclosure
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.ledger.caps import Divergences, Kind, Losses
from privcalc.ledger.rules import Filter, Rule
from privcalc.ledger.terms import filter_of
from privcalc.mechanisms.guarantees import GDP, RDP, PureDP
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
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


ORDERS = np.arange(2.0, 1001.0)
"""Among these is the order of a cap."""


def cap_for(
    *,
    epsilon: float,
    delta: float,
    runs: Literal["any", "gaussian"] = "any",
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> Mechanism:
    """The largest cap of a budget under which all outputs together are (ε, δ)-DP.

    It is the largest at this δ, of its kind: at another, ``cap.epsilon`` answers, and another cap would have more room.

    Args:
        epsilon: ε > 0.
        delta: δ in [0, 1); at 0 the cap is ``PureDP``.
        runs: what is to be charged. "any": the cap is ``RDP`` at one order, that at which Gaussian noise has the most
            room for this δ. It counts every mechanism, and what sampling saves; it has room for as much as the best
            ``ZCDP``. "gaussian": the cap is ``GDP``, which has room for more Gaussian noise, and takes nothing else but
            choices (exponential mechanisms), and sampling saves nothing.
        relation: the neighbouring relation.

    Raises:
        PrivcalcError: if an argument is out of range, or there is no such cap.

    Example:
        >>> cap = cap_for(epsilon=3.0, delta=1e-6)
        >>> cap.orders, cap.epsilon(delta=1e-6) <= 3.0
        ((9.0,), True)
        >>> print(f"{cap_for(epsilon=3.0, delta=1e-6, runs='gaussian').mu:.6f}")
        0.647727
    """
    errors.one_of("runs", runs, "any", "gaussian")
    target = errors.positive("epsilon", epsilon)
    if errors.delta("delta", delta) == 0:
        return PureDP(target, relation=relation)
    if runs == "gaussian":
        return GDP(float(calibrate(lambda mu: GDP(mu, relation=relation), **_goal(target, delta, relation))))
    # What conversion leaves of ε for each order (Canonne, Kamath, Steinke 2020, Proposition 12), per unit of μ².
    room = target - np.log1p(-1 / ORDERS) + (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    order = float(ORDERS[np.argmax(room / ORDERS)])
    found = calibrate(lambda x: RDP([order], [x], relation=relation), **_goal(target, delta, relation))
    return RDP([order], [float(found)], relation=relation)


def _goal(epsilon: float, delta: float, relation: Relation) -> dict[str, Any]:
    return {"epsilon": epsilon, "delta": delta, "relation": relation}


def _size(cap: Mechanism) -> tuple[str, Any]:
    """The argument that says how large a cap is, and its value."""
    limits = cap.limits() or {}
    return next((name, value) for name, value in reversed(limits.items()) if name != "relation")


def _like(cap: Mechanism, amount: float | Floats) -> Mechanism:
    """A cap of the same kind of another size."""
    return type(cap)(**{**(cap.limits() or {}), _size(cap)[0]: amount})


def share_of(value: object) -> Fraction:
    """A share of a cap: a number in [0, 1], exactly as it is written."""
    number = errors.real("share", cast(float, value), "a number in [0, 1]", low=0.0, high=1.0)
    return Fraction(repr(number))


def part_of(cap: Mechanism, share: Fraction) -> Mechanism | None:
    """The cap that has this share of what adds up: μ², ρ, ε, ε(α); None of nothing."""
    name, value = _size(cap)
    factor = math.sqrt(share) if name == "mu" else float(share)
    return _like(cap, np.asarray(value, dtype=np.float64)[()] * factor) if share else None


def left(pool: Pool, delta: float, *, nothing: bool = False) -> Enclosure:
    """ε at δ of the largest release of Gaussian noise that still fits, or of none; of several such only one does.

    Under a cap of pure DP, which Gaussian noise does not fit, ε of the largest release that does.
    """
    amount, relation = pool.remaining, filter_of(pool.cap).relation
    (name, _), orders = _size(pool.cap), np.asarray((pool.cap.limits() or {}).get("orders", 1.0))
    # D_α of Gaussian noise is αμ²/2, and ρ is μ²/2.
    mu = np.asarray(amount) if name == "mu" else np.sqrt(2 * np.asarray(amount) / orders)
    if nothing or not np.min(amount if name == "epsilon" else mu):
        return Enclosure(0.0, 0.0, relation, "nothing left", delta=delta)
    most = _like(pool.cap, amount) if name == "epsilon" else GDP(float(np.min(mu)), relation=relation)
    return most.epsilon(delta=delta, relation=relation)


def check_part_of(run: Run, cap: Mechanism | None, charged: Run, who: str) -> None:
    """Refuse what a team's share has no room for.

    Raises:
        BudgetExceeded: if it has none.
    """
    if cap is None:
        raise BudgetExceeded(f"{run}: has no room: teams have all of the budget; name one of them")
    pool = Pool(cap)
    pool.count(charged)
    try:
        pool.check(run)
    except BudgetExceeded as error:
        raise BudgetExceeded(f"share of {who}: {error}") from None


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
