"""Questions to a table whose answers are noisy sums, each one release, its sensitivity derived from declared bounds.

Proofs: ``proofs/tables.md``. All noise is drawn by ``gaussian`` and ``laplace``; nothing here draws or charges.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.answers import MISS, Answer, half_width
from privcalc.ledger.columns import column_of, persons_of, rows_of, totals
from privcalc.ledger.provenance import Provenance
from privcalc.ledger.sensitivity import Reach, of_means, of_sums
from privcalc.ledger.tabled import ANSWERED, Tabled, Totals, ascending, by_group
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.laplace import Laplace
from privcalc.numerics.floats import Floats

__all__ = ["Sums"]


class Sums(Tabled):
    """Counts, sums, means and histograms."""

    @abstractmethod
    def gaussian(
        self,
        values: Any,
        mechanism: Any,
        *,
        clip_norm: float,
        error: float | None = None,
        label: str | None = None,
        told: Provenance | None = None,
    ) -> Any:
        """Draws and charges."""

    @abstractmethod
    def laplace(
        self,
        values: Any,
        mechanism: Any,
        *,
        clip_norm: float,
        error: float | None = None,
        label: str | None = None,
        told: Provenance | None = None,
    ) -> Any:
        """Draws and charges."""

    def count(
        self,
        table: Any,
        mechanism: Gaussian | DiscreteGaussian | Laplace,
        *,
        rows_per_person: int,
        person: object = ...,
        by: object = None,
        groups: object = None,
        label: str | None = None,
    ) -> Answer:
        """How many rows there are, or in each group.

        Args:
            table: a data frame, or a column.
            mechanism: ``Gaussian``, ``DiscreteGaussian`` or ``Laplace``; the noise is its multiple of what one person may move.
            rows_per_person: most rows that count of a person.
            person: column that tells whose row it is; None: nobody has more rows, on your word.
            by: column of groups.
            groups: public list of groups.
            label: what is released.

        Raises:
            PrivcalcError: if an argument does not fit, whatever the rows hold.
            BudgetExceeded: if plan or cap have too little left.

        Example:
            >>> import privcalc as pc
            >>> visits = {"customer": ["a", "b", "b", "c"], "shop": ["N", "N", "S", "?"]}
            >>> noise = pc.Gaussian(noise_multiplier=10.0)
            >>> with pc.Ledger(None, plan=noise * 12) as ledger:
            ...     found = ledger.count(visits, noise, rows_per_person=2, person="customer", by="shop", groups=["N", "S"])
            >>> print(found.groups, found.value.shape, round(found.error, 4))  # the noise of 10 × 2 rows
            ('N', 'S') (2,) 39.1993
        """
        most = errors.count("rows_per_person", rows_per_person, least=1)
        rows = rows_of(table, None, most=most, person=person, by=by, groups=groups)
        reach = of_sums(1.0, 1.0, rows=most, cells=rows.size, relation=self.terms.relation)
        sums, error = self._sums(rows.group, np.ones(len(rows.group)), rows.size, mechanism, reach, label, person, whole=True)
        return Answer("count", by_group(sums, rows), error, rows.groups, label)

    def sum(
        self,
        table: Any,
        mechanism: Gaussian | DiscreteGaussian | Laplace,
        *,
        lower: float,
        upper: float,
        rows_per_person: int,
        column: object = None,
        person: object = ...,
        by: object = None,
        groups: object = None,
        label: str | None = None,
    ) -> Answer:
        """The sum of a column, its values clamped to [lower, upper].

        Args:
            table: a data frame, or a column.
            mechanism: as in ``count``; with ``DiscreteGaussian`` bounds are whole, and values are rounded to whole numbers.
            lower: least value, a public constant; smaller ones count as it.
            upper: largest value, likewise.
            rows_per_person: most rows that count of a person.
            column: which one.
            person: whose row it is; as in ``count``.
            by: column of groups.
            groups: public list of groups.
            label: what is released.
        """
        most, (low, high) = errors.count("rows_per_person", rows_per_person, least=1), _bounds(lower, upper)
        found = column_of(table, column)
        rows = rows_of(table, len(found), most=most, person=person, by=by, groups=groups)
        rows = rows.where(~np.isnan(found))
        whole = isinstance(mechanism, DiscreteGaussian)
        if whole and not (low.is_integer() and high.is_integer()):
            raise PrivcalcError(f"lower = {lower!r}, upper = {upper!r}: must be whole numbers for {mechanism}")
        reach = of_sums(low, high, rows=most, cells=rows.size, relation=self.terms.relation)
        values = np.clip(found[rows.taken], low, high)
        values = np.rint(values) if whole else values
        sums, error = self._sums(rows.group, values, rows.size, mechanism, reach, label, person, whole=whole)
        return Answer("sum", by_group(sums, rows), error, rows.groups, label)

    def mean(
        self,
        table: Any,
        mechanism: Gaussian | Laplace,
        *,
        lower: float,
        upper: float,
        rows_per_person: int,
        column: object = None,
        person: object = ...,
        by: object = None,
        groups: object = None,
        label: str | None = None,
    ) -> Answer:
        """The mean of a column, its values clamped to [lower, upper]: a noisy sum over a noisy count, in one release.

        Where the number of rows is public, the sum of what values differ from the middle of the bounds by, over that number, has
        at most half of the variance.

        Args:
            table: a data frame, or a column.
            mechanism: ``Gaussian`` or ``Laplace``.
            lower: least value, a public constant; smaller ones count as it.
            upper: largest value, likewise, > lower.
            rows_per_person: most rows that count of a person.
            column: which one.
            person: whose row it is; as in ``count``.
            by: column of groups.
            groups: public list of groups.
            label: what is released.

        Returns:
            The :class:`Answer`, within the bounds. Its error is the whole width where the noise is larger than the count.
        """
        most, (low, high) = errors.count("rows_per_person", rows_per_person, least=1), _bounds(lower, upper)
        if not isinstance(mechanism, (Gaussian, Laplace)):
            raise PrivcalcError(f"mechanism = {mechanism}: must be Gaussian or Laplace, for a mean")
        middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        errors.scale("upper - lower", half)
        found = column_of(table, column)
        rows = rows_of(table, len(found), most=most, person=person, by=by, groups=groups)
        rows = rows.where(~np.isnan(found))
        reach = of_means(half, rows=most, cells=rows.size, relation=self.terms.relation)
        values = np.clip(np.clip(found[rows.taken], low, high) - middle, -half, half)
        cell, contributions = np.append(rows.group, rows.group + rows.size), np.append(values, np.full(len(values), half))
        told = dataclasses.replace(ANSWERED, divided="noisy number")
        sums, error = self._sums(cell, contributions, 2 * rows.size, mechanism, reach, label, person, miss=0.5 * MISS, told=told)
        above, below = sums[: rows.size], np.maximum(sums[rows.size :], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(below > 0, np.clip(above / below, -1.0, 1.0), 0.0)
            width = 2 * half * np.where(below > error, error / below, 1.0)
        value = np.clip(middle + half * share, low, high)
        bars = width if rows.groups is not None else float(width[0])
        return Answer("mean", by_group(value, rows), bars, rows.groups, label)

    def histogram(
        self,
        table: Any,
        mechanism: Gaussian | DiscreteGaussian | Laplace,
        *,
        edges: ArrayLike,
        rows_per_person: int,
        column: object = None,
        person: object = ...,
        by: object = None,
        groups: object = None,
        label: str | None = None,
    ) -> Answer:
        """How many values lie in each bin of a public grid. For categories count by groups instead.

        Args:
            table: a data frame, or a column.
            mechanism: as in ``count``.
            edges: ascending numbers e₀ < … < e_m: the bins are [eᵢ, eᵢ₊₁), the last one closed; what lies beyond counts in the
                outermost.
            rows_per_person: most rows that count of a person.
            column: which one.
            person: whose row it is; as in ``count``.
            by: column of groups.
            groups: public list of groups.
            label: what is released.
        """
        most, ends = errors.count("rows_per_person", rows_per_person, least=1), ascending("edges", edges, least=2)
        found, bins = column_of(table, column), len(ends) - 1
        rows = rows_of(table, len(found), most=most, person=person, by=by, groups=groups)
        rows = rows.where(~np.isnan(found))
        place = np.clip(np.searchsorted(ends, found[rows.taken], side="right") - 1, 0, bins - 1)
        cells = rows.size * bins
        reach = of_sums(1.0, 1.0, rows=most, cells=cells, relation=self.terms.relation)
        sums, error = self._sums(
            rows.group * bins + place, np.ones(len(place)), cells, mechanism, reach, label, person, whole=True
        )
        return Answer("histogram", sums if rows.groups is None else sums.reshape(-1, bins), error, rows.groups, label)

    def _sums(
        self,
        cell: NDArray[np.int64],
        contributions: Floats,
        size: int,
        mechanism: Gaussian | DiscreteGaussian | Laplace,
        reach: Reach,
        label: str | None,
        person: object,
        *,
        whole: bool = False,
        miss: float = MISS,
        told: Provenance = ANSWERED,
    ) -> tuple[Floats, float]:
        """Noisy sums of each cell, and their error bar."""
        if not isinstance(mechanism, (Gaussian, DiscreteGaussian, Laplace)):
            raise PrivcalcError(f"mechanism = {mechanism}: must be Gaussian, DiscreteGaussian or Laplace")
        limit = reach.limit(mechanism.scale if isinstance(mechanism, Laplace) else mechanism.noise_multiplier, whole=whole)
        sums = np.clip(totals(cell, contributions, size), -limit, limit)
        squares = isinstance(mechanism, Gaussian) or (isinstance(mechanism, DiscreteGaussian) and mechanism.norm == 2)
        bound = reach.bound(limit, squares=squares, whole=whole)
        if isinstance(mechanism, DiscreteGaussian):
            if mechanism.sensitivity < bound:
                raise PrivcalcError(
                    f"mechanism = {mechanism}: must have a sensitivity of at least {bound:.9g}, which is how far one person may "
                    "move the sums"
                )
            bound, sums = float(mechanism.sensitivity), sums.astype(np.int64)
        draw = self.laplace if isinstance(mechanism, Laplace) else self.gaussian
        with self._of_persons(persons_of(person)):
            noisy = draw(sums.view(Totals), mechanism, clip_norm=bound, error=0.0, label=label, told=told)
            found = np.asarray(noisy, dtype=np.float64)
        return found, half_width(mechanism, bound, miss, coordinates=size)


def _bounds(lower: float, upper: float) -> tuple[float, float]:
    low, high = (errors.real(name, value, "a number of at most 1e90", low=-1e90, high=1e90)
                 for name, value in (("lower", lower), ("upper", upper)))  # fmt: skip
    if not low <= high or max(-low, high) < 1e-100:
        raise PrivcalcError(f"lower = {lower!r}, upper = {upper!r}: must be bounds of the values, ascending, and not both 0")
    return low, high
