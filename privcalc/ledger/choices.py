"""Questions to a table whose answers are candidates, each one release, its sensitivity derived from declared bounds.

Proofs: ``proofs/tables.md``. All choices are drawn by ``select``; nothing here draws or charges.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.answers import Answer, shortfall
from privcalc.ledger.columns import Rows, column_of, listed_values, persons_of, pick, places, rows_of, split
from privcalc.ledger.provenance import Provenance
from privcalc.ledger.tabled import ANSWERED, Tabled, ascending
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.top_k import TopK
from privcalc.numerics.floats import Floats
from privcalc.relation import REPLACE_ONE

__all__ = ["Choices"]

SHARES = 2.0**20
"""A quantile is rounded to a multiple of its inverse, so that ranks are exact."""


class Choices(Tabled):
    """Quantiles, and the most frequent candidates."""

    @abstractmethod
    def select(
        self,
        scores: ArrayLike,
        mechanism: Any,
        *,
        sensitivity: float,
        monotone: bool = False,
        joint: bool = False,
        label: str | None = None,
        told: Provenance | None = None,
    ) -> Any:
        """Draws and charges."""

    def quantile(
        self,
        table: Any,
        mechanism: ExponentialMechanism,
        *,
        share: float,
        candidates: ArrayLike,
        rows_per_person: int,
        column: object = None,
        person: object = ...,
        by: object = None,
        groups: object = None,
        label: str | None = None,
    ) -> Answer:
        """One of a public grid of candidates that has about this share of the values below it: the median at 0.5.

        Args:
            table: a data frame, or a column.
            mechanism: ``ExponentialMechanism(ε, monotone=False)``, because a row moves scores both ways.
            share: between 0 and 1, rounded to a multiple of 2⁻²⁰.
            candidates: ascending numbers, such as ``np.linspace(lower, upper, 1001)``.
            rows_per_person: most rows that count of a person.
            column: which one.
            person: whose row it is; as in ``count``.
            by: column of groups.
            groups: public list of groups.
            label: what is released.
        """
        most, grid = errors.count("rows_per_person", rows_per_person, least=1), ascending("candidates", candidates, least=1)
        rank = errors.real("share", share, "a number between 0 and 1", low=0.0, high=1.0)
        if not isinstance(mechanism, ExponentialMechanism) or mechanism.monotone:
            raise PrivcalcError(f"mechanism = {mechanism}: must be ExponentialMechanism(ε, monotone=False), for a quantile")
        rank = round(rank * SHARES) / SHARES
        found = column_of(table, column)
        rows = rows_of(table, len(found), most=most, person=person, by=by, groups=groups)
        rows = rows.where(~np.isnan(found))
        scores = np.array([_ranks(part, grid, rank) for part in split(rows.group, found[rows.taken], rows.size)])
        alone = self.terms.relation is REPLACE_ONE and rows.size == 1
        reach = most * (0.5 if alone else max(rank, 1 - rank))
        given: dict[str, Any] = {"joint": rows.groups is not None, "label": label, "told": ANSWERED}
        with self._of_persons(persons_of(person)):
            chosen = self.select(_scores(scores, rows), mechanism, sensitivity=reach, **given)
        value = float(grid[chosen]) if rows.groups is None else grid[chosen]
        return Answer("quantile", value, shortfall(mechanism, reach, len(grid)), rows.groups, label)

    def top(
        self,
        table: Any,
        mechanism: TopK | ExponentialMechanism,
        *,
        candidates: object,
        rows_per_person: int,
        column: object = None,
        person: object = ...,
        by: object = None,
        groups: object = None,
        label: str | None = None,
    ) -> Answer:
        """The most frequent of a public list of candidates: ``mechanism.k`` of them for ``TopK``, one otherwise.

        Args:
            table: a data frame, or a column.
            mechanism: ``TopK``, or ``ExponentialMechanism`` for the most frequent one.
            candidates: public list of values.
            rows_per_person: most rows that count of a person.
            column: which one.
            person: whose row it is; as in ``count``.
            by: column of groups.
            groups: public list of groups.
            label: what is released.

        Returns:
            The :class:`Answer` with a tuple of candidates, in the order of the list: their ranking is not released. Counts are
            a release of their own.
        """
        most, names = errors.count("rows_per_person", rows_per_person, least=1), listed_values("candidates", candidates)
        if not isinstance(mechanism, (TopK, ExponentialMechanism)):
            raise PrivcalcError(f"mechanism = {mechanism}: must be TopK or ExponentialMechanism")
        place = places(pick("column", table, column), names)
        rows = rows_of(table, len(place), most=most, person=person, by=by, groups=groups).where(place >= 0)
        cells = np.bincount(rows.group * len(names) + place[rows.taken], minlength=rows.size * len(names))
        scores, grouped = cells.reshape(rows.size, len(names)), rows.groups is not None
        reach = float(most)
        given: dict[str, Any] = {"monotone": True, "joint": grouped, "label": label, "told": ANSWERED}
        with self._of_persons(persons_of(person)):
            chosen = self.select(_scores(scores, rows), mechanism, sensitivity=reach, **given)
        sets = np.reshape(chosen, (rows.size, -1))
        value = [tuple(names[index] for index in row) for row in sets.tolist()]
        return Answer("top", tuple(value) if grouped else value[0], shortfall(mechanism, reach, len(names)), rows.groups, label)


def _ranks(values: Floats, grid: Floats, share: float) -> Floats:
    """−(how far share·n lies from the ranks of each candidate, of which equal values give it several)."""
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, grid, side=side).astype(np.float64) for side in ("left", "right"))
    target = share * len(values)
    return -np.maximum(np.maximum(below - target, target - upto), 0.0)


def _scores(scores: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """One row, or one of each group."""
    return scores if rows.groups is not None else scores[0]
