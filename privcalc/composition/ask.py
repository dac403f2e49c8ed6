"""The questions of a run: from its composed sides to an enclosure.

Each is asked of what dominates (the safe end) and of what occurs (the other one); where these are the same, once. Under
replace-one, removing and then adding a record is another bound.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np

from privcalc import errors
from privcalc.composition import tradeoff
from privcalc.composition.curve import (
    Curve,
    at_once,
    delta_in_a_row,
    delta_of_group,
    epsilon_in_a_row,
    epsilon_of_group,
    worst_delta,
    worst_epsilon,
)
from privcalc.composition.direction import POOR, Bound, Direction
from privcalc.composition.sides import Group, Question, Sides
from privcalc.enclosure import Enclosure, Enclosures
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.routes import many
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation

Composed = Callable[[Relation], Sides]
"""The sides of a run under a relation; raises PrivcalcError where a mechanism has no guarantee under it."""

Safe = Literal["lower", "upper"]

ROUGH = 1e-5
"""Relative width to which each end is found first, where theorems leave a gap between them."""


ONE, SMALLEST = 1.0, math.ulp(0.0)


@contextlib.contextmanager
def usual() -> Iterator[None]:
    """Compute in floating point as all bounds take it.

    That is with NumPy's own settings, whatever a program has set, and with small numbers.

    Raises:
        PrivcalcError: where numbers below 2.2e-308 are made 0 in this thread, so that no bound holds.
    """
    if SMALLEST * ONE == 0.0:
        raise errors.PrivcalcError(
            "floating point: this thread makes numbers below 2.2e-308 zeros, so that no bound holds; switch that off, "
            "torch.set_flush_denormal(False), or ask in a process that does not (libraries built "
            "with -ffast-math do it, too)"
        )
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        yield


class Answers:
    """The questions to one composition under one relation, whose curves they share.

    No answer depends on what else was asked.

    Args:
        composed: the sides of a run under a relation.
        relation: the neighbouring relation.
        several: the group of records that ε and δ protect, if not one.

    Raises:
        PrivcalcError: if there is no such relation, or a mechanism has no guarantee under it.
    """

    def __init__(self, composed: Composed, relation: Relation, several: Group | None = None) -> None:
        self.composed, self.relation, self.several = composed, check_relation(relation), several
        self.group_sides = None if several is None else several.sides(relation)
        self.curve = functools.cache(Curve)

    @cached_property
    def sides(self) -> Sides:
        """What dominates and what occurs; of the group, where that is known."""
        return self.composed(self.relation) if self.group_sides is None else self.group_sides

    @cached_property
    def in_a_row(self) -> list[Curve] | None:
        """The curves that also bound replace-one: removing, then adding a record; None if a mechanism has none."""
        try:
            return self._curves(self.composed(ADD_OR_REMOVE_ONE).upper)
        except errors.PrivcalcError:
            return None

    def epsilon(self, delta: float) -> Enclosure:
        """The smallest ε ≥ 0 with δ(ε) ≤ δ."""
        return replace(self._at(delta, worst_epsilon, epsilon_in_a_row, epsilon_of_group), delta=delta)

    def delta(self, epsilon: float) -> Enclosure:
        """The smallest δ at this ε."""
        found = self._at(epsilon, worst_delta, delta_in_a_row, delta_of_group)
        return replace(found, asked=("δ", f"ε = {epsilon:g}"))

    def _at(
        self,
        point: float,
        worst: Callable[[list[Curve], float], Bound],
        in_a_row: Callable[[list[Curve], float], float],
        of_group: Callable[[list[Curve], int, float], Bound],
    ) -> Enclosure:
        """By the worst curve; else by the rule for replacing in two steps, or for groups whose pairs are unknown."""
        if self.several is None:
            return self._ask(lambda curves: worst(curves, point), lambda curves: in_a_row(curves, point))
        if self.group_sides is not None:
            return self._ask(lambda curves: worst(curves, point))
        size = self.several.size
        return self._ask(lambda curves: of_group(curves, size, point))

    def epsilons(self, delta: Floats) -> Enclosures:
        """ε of many δ, each as if it were asked alone."""
        return replace(self._each(delta, many.epsilons, self.epsilon), delta=delta)

    def deltas(self, epsilon: Floats) -> Enclosures:
        """δ of many ε, each as if it were asked alone."""
        return self._each(epsilon, many.deltas, self.delta)

    def _each(
        self, points: Floats, question: Callable[..., tuple[Floats, Floats]], alone: Callable[[float], Enclosure]
    ) -> Enclosures:
        asked, which = np.unique(points, return_inverse=True)
        sides = self.sides if self.several is None or self.group_sides is not None else None
        found = None
        if sides is not None and sides.exact:
            with usual():
                found = at_once(self._curves(sides.upper), asked, question)
        ends = np.full((2, asked.size), math.nan) if found is None else found
        routes = ["" if sides is None else "+".join((*sides.bounds, "contour"))] * asked.size
        for row in np.flatnonzero(np.isnan(ends[1])).tolist():
            answer = alone(float(asked[row]))
            ends[:, row], routes[row] = (answer.lower, answer.upper), answer.route
        lower, upper = ends[:, which.reshape(points.shape)]
        return Enclosures(lower, upper, self.relation, np.asarray(routes, dtype=np.str_)[which.reshape(points.shape)])

    def beta(self, alpha: float) -> Enclosure:
        """The trade-off curve at α."""
        found = self._ask(lambda curves: tradeoff.beta(curves, alpha), safe="lower", whole=True)
        return replace(found, asked=("β", f"α = {alpha:g}"))

    def bayes_risk(self, prior: float) -> Enclosure:
        """min(π, 1 − π)·(1 − δ(ε)) with ε = |log(π/(1 − π))| (``proofs/risk.md``, §1)."""
        least, epsilon = min(prior, 1 - prior), abs(math.log(prior) - math.log1p(-prior))
        found = self.delta(epsilon)
        # δ moves by no more than ε does, and ε is off by a few roundings of logarithms.
        off = 4 * UNIT * (1 + abs(math.log(prior)) + abs(math.log1p(-prior)))
        low = math.nextafter(least * max(1 - found.upper - off, 0.0) * (1 - 4 * UNIT), 0.0)  # which may be subnormal
        high = math.nextafter(least * min(1 - found.lower + off, 1.0) * (1 + 4 * UNIT), 1.0)
        asked = "error of any guess", f"prior {prior:g}"
        return Enclosure(low, min(high, least), self.relation, found.route, "lower", asked=asked)

    def reconstruction(self, baseline: float) -> Enclosure:
        """1 − β(κ) (``proofs/risk.md``, §2)."""
        found = self._ask(lambda curves: tradeoff.power(curves, baseline), whole=True)
        return replace(found, asked=("success", f"baseline {baseline:g}"))

    def gdp_mu(self, delta: float) -> Enclosure:
        """The smallest μ of Gaussian DP, except with probability δ."""
        found = self._ask(lambda curves: tradeoff.gdp_mu(curves, delta))
        return replace(found, delta=delta, asked=("μ", f"δ = {delta:g}" if delta else ""))

    @usual()
    def rdp(self, alpha: Floats) -> Floats:
        """Upper bounds of the Rényi divergences of these orders, in both directions."""
        sides = self.composed(self.relation)
        parts = [part for part in (sides.upper, sides.other) if part]
        found = [np.max([_divergences(side, alpha.ravel()) for side in part], axis=0) for part in parts]
        return np.asarray(np.min(found, axis=0).reshape(alpha.shape), dtype=np.float64)

    @usual()
    def zcdp(self) -> tuple[float, float]:
        """(ρ, ξ) of (ξ, ρ)-zCDP, rounded up."""
        sides = self.composed(self.relation)

        def worst(part: Sequence[Direction]) -> tuple[float, float]:
            terms = [[math.fsum(n * pair.zcdp_terms[i] for pair, n in side) for side in part] for i in (0, 1)]
            return max(terms[0], default=0.0) * (1 + 8 * UNIT), max(terms[1], default=0.0) * (1 + 8 * UNIT)

        return min((worst(part) for part in (sides.upper, sides.other) if part), key=sum)

    def _curves(self, side: Sequence[Direction], tolerance: float = 0.0) -> list[Curve]:
        return [self.curve(direction, tolerance) for direction in side]

    @usual()
    def _ask(
        self,
        question: Callable[[list[Curve]], Bound],
        by_group: Callable[[list[Curve]], float] | None = None,
        safe: Safe = "upper",
        whole: bool = False,
    ) -> Enclosure:
        sides, relation = self.sides, self.relation

        def in_a_row() -> float:
            if by_group is None or relation is not REPLACE_ONE or self.in_a_row is None:
                return math.inf
            return by_group(self.in_a_row)

        # Where each ε has its own worst instance (``attained_alone``), δ is exact but the ``whole`` curve is not.
        if sides.exact and (not whole or sides.lower == sides.upper):
            found = question(self._curves(sides.upper))
            if found.width() > POOR:
                found = found.meet(found.lower, in_a_row(), "group rule")
            if sides.other and safe == "upper" and found.width() > POOR:
                other = question(self._curves(sides.other))
                found = found.meet(found.lower, other.upper, "+".join(other.routes))
            return Enclosure(found.lower, found.upper, relation, "+".join((*sides.bounds, *found.routes)), safe)
        high = in_a_row()

        def both_ends(tolerance: float) -> Bound:
            return _between(sides, lambda side: question(self._curves(side, tolerance)), safe)

        for tolerance in (ROUGH, 0.0):
            found = both_ends(tolerance)
            if high < found.upper:
                found = Bound(found.lower, high, ("group rule",))
            if found.width() > 100 * ROUGH:
                break  # more digits would not show
        return Enclosure(found.lower, found.upper, relation, "+".join(found.routes), safe)


def _between(sides: Sides, question: Question, safe: Safe) -> Bound:
    """From what dominates and what occurs, where these are not the same."""
    found = question(sides.upper)
    routes = (*sides.bounds, *found.routes)
    below = sides.below(question, safe)
    if safe == "lower":  # a dominating pair has the smaller trade-off curve: the safe end comes from it
        low = max([found.lower, *([question(sides.other).lower] if sides.other else [])])
        return Bound(min(low, below.upper), below.upper, routes)
    if sides.other:
        other = question(sides.other)
        if other.upper < found.upper:
            found, routes = other, other.routes
    return Bound(below.lower, found.upper, routes)


def _divergences(side: Direction, alpha: Floats) -> Floats:
    """Σ count·D_α for one direction."""
    finite = np.isfinite(alpha)
    total = np.zeros_like(alpha)
    c = np.where(
        alpha[finite] < 2**53, alpha[finite] - 1, alpha[finite]
    )  # exact, or rounded up: D_α does not fall with α
    for pair, count in side:
        total[~finite] += count * pair.max_loss
        if c.size:
            total[finite] += count * pair.log_moment(c) / c
    return total * (1 + 8 * UNIT)
