"""The odometer of a data set: what was lost up to now, whenever one looks; proof in ``proofs/budgets.md``, §4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from privcalc import errors
from privcalc.enclosure import Enclosure
from privcalc.ledger.budgets import Divergences, Kind, Losses
from privcalc.relation import Relation
from privcalc.run import Run

__all__ = ["odometer"]


def odometer(run: Run, *, delta: float, orders: Sequence[float], relation: Relation) -> Enclosure:
    """An ε that the loss exceeds, now or ever before, with a probability of at most δ.

    It holds whatever was chosen from outputs.

    Args:
        run: all that is charged.
        delta: δ in [0, 1).
        orders: Rényi orders, fixed before the first output.
        relation: the neighbouring relation.

    Returns:
        The upper end is the odometer: the least over the orders of Σε(α) + log(K/δ)/(α − 1), K of them finite. The
        lower end is that of the run's ε at δ, were it fixed in advance: below it no odometer is right.
    """
    level = errors.delta("delta", delta)
    found = [_sum(run, Losses(), relation)] if math.inf in orders else []
    finite = [order for order in orders if order < math.inf]
    if level > 0:
        margin = math.log(len(finite) / level) if finite else math.inf
        for order in finite:
            bound = _sum(run, Divergences((order,)), relation) + margin / (order - 1)
            found.append(bound * (1 + 1e-14))  # logarithm, quotient and sum: a few roundings
    low = run.epsilon(delta=level, relation=relation).lower if run.entries else 0.0
    high = min(found, default=math.inf) if run.entries else 0.0
    return Enclosure(low, max(low, high), relation, "odometer", delta=level)


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
