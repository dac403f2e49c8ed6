"""Questions to a table, each one release, its sensitivity derived from declared bounds.

Proofs: ``proofs/tables.md``. All noise is drawn by ``gaussian``, ``laplace`` and ``select``; nothing here draws or
charges.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeGuard, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError, suggests
from privcalc.ledger.answers import MISS, Answer, Reach, bounds, half_width, of_means, of_persons, of_sums, shortfall
from privcalc.ledger.assumptions import Answered, asked_by
from privcalc.ledger.columns import Asked, Common, ascending, listed_values
from privcalc.ledger.frames import Rows, Steps
from privcalc.ledger.terms import Terms
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism, TopK
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.laplace import Laplace
from privcalc.numerics.floats import Floats
from privcalc.relation import REPLACE_ONE
from privcalc.run import Additive, Mechanism

if TYPE_CHECKING:
    from privcalc.ledger.book import Persons

__all__ = ["ANSWERED", "Tables", "Totals"]

ANSWERED = Answered("derived", rounding="bounded", divided="nothing", by="table question")
DIVIDED = dataclasses.replace(ANSWERED, divided="noisy number")
"""What is known of an answer before it is drawn: its sums are exact, and derived from bounds and rows."""

SHARES = 2.0**20
"""A quantile is rounded to a multiple of its inverse, so that ranks are exact."""


class Totals(np.ndarray[Any, np.dtype[Any]]):
    """Sums that a ledger added up itself, of contributions that it bounded, after it had charged for their release."""


class Tables(ABC):
    """What :class:`Ledger` answers about tables.

    That is ``count``, ``count_distinct``, ``sum``, ``mean``, ``histogram``, ``quantile`` and ``top``.

    A table is one column (an array, a list, a series) or a data frame with ``column=`` naming one; ``person`` and
    ``by`` are columns, or names of some. All take the arguments of :class:`Common`: ``rows_per_person`` always, and
    ``person``, ``by``, ``groups`` and ``label``.

    Values that are missing (None, NaN, what is no number) count nowhere; values beyond the bounds, and ±∞, count as the
    bounds. Texts that read as numbers are these numbers, among groups and candidates too: one odd cell makes texts of a
    column in many readers.
    """

    gaussian: Callable[..., Any]
    laplace: Callable[..., Any]
    select: Callable[..., Any]
    _charge: Callable[..., None]

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What the ledger was opened for."""

    @abstractmethod
    def _of_persons(self, persons: Persons) -> AbstractContextManager[None]:
        """Around what draws and charges: the same persons as before in this ledger, or nothing is."""

    @suggests
    def count(self, table: Any, mechanism: Gaussian | DiscreteGaussian | Laplace, **common: Unpack[Common]) -> Answer:
        """How many rows there are, or in each group.

        Args:
            table: a data frame, or a column.
            mechanism: ``Gaussian``, ``DiscreteGaussian`` or ``Laplace``; the noise is its multiple of what one person
                may move.
            common: ``rows_per_person`` (always), ``person``, ``by``, ``groups``, ``label``: :class:`Common`.

        Raises:
            PrivcalcError: if an argument does not fit, whatever the rows hold.
            BudgetExceeded: if plan or cap have too little left.

        Example:
            >>> import privcalc as pc
            >>> visits = {"customer": ["a", "b", "b", "c"], "shop": ["N", "N", "S", "?"]}
            >>> noise = pc.Gaussian(noise_multiplier=10.0)
            >>> with pc.Ledger(None, plan=noise * 12) as ledger:
            ...     shops = {"by": "shop", "groups": ["N", "S"]}
            ...     found = ledger.count(visits, noise, rows_per_person=2, person="customer", **shops)
            >>> print(found.groups, found.value.shape, round(found.error, 4))  # the noise of 10 × 2 rows
            ('N', 'S') (2,) 39.1993
        """
        asked = Asked("count", table, **common)
        rows = asked.rows()
        counted = rows.sums()
        reach = of_sums(1, 1, rows=asked.rows_per_person, cells=rows.size, relation=self.terms.relation)
        sums, error = self._sums(asked, lambda: counted()[0], rows.size, mechanism, reach, whole=True)
        return asked.answer(rows, by_group(sums, rows), error)

    @suggests
    def count_distinct(
        self, table: Any, mechanism: Gaussian | DiscreteGaussian | Laplace, **common: Unpack[Common]
    ) -> Answer:
        """How many persons there are, or in each group: one is in as many groups as ``rows_per_person`` rows are.

        Args:
            table: a data frame.
            mechanism: as in ``count``.
            common: ``rows_per_person`` and ``person`` (always), ``order``, ``by``, ``groups``, ``label``:
                :class:`Common`.
        """
        asked = Asked("count_distinct", table, **common)
        if asked.persons[0] == "word":
            raise PrivcalcError("person: must be the column that tells whose a row is, where persons are counted")
        rows = asked.rows()
        counted = rows.sums(distinct=True)
        reach = of_persons(rows=asked.rows_per_person, cells=rows.size, relation=self.terms.relation)
        sums, error = self._sums(asked, lambda: counted()[0], rows.size, mechanism, reach, whole=True)
        return asked.answer(rows, by_group(sums, rows), error)

    @suggests
    def sum(
        self,
        table: Any,
        mechanism: Gaussian | DiscreteGaussian | Laplace,
        *,
        lower: float,
        upper: float,
        column: object = None,
        **common: Unpack[Common],
    ) -> Answer:
        """The sum of a column, its values clamped to [lower, upper].

        Args:
            table: a data frame, or a column.
            mechanism: as in ``count``; with ``DiscreteGaussian`` bounds are whole, and values are rounded to whole
                numbers.
            lower: least value, a public constant; smaller ones count as it.
            upper: largest value, likewise.
            column: which one.
            common: ``rows_per_person`` (always), ``person``, ``by``, ``groups``, ``label``: :class:`Common`.
        """
        asked, (low, high) = Asked("sum", table, column=column, **common), bounds(lower, upper)
        rows, whole = asked.rows(numbers=True), isinstance(mechanism, Additive) and mechanism.whole
        if whole and not (low.is_integer() and high.is_integer()):
            raise PrivcalcError(f"lower = {lower!r}, upper = {upper!r}: must be whole numbers for {mechanism}")
        steps = Steps.of(low, high, whole=whole)
        added = rows.sums(steps=steps)
        ends = steps.exact(low), steps.exact(high)
        reach = of_sums(*ends, rows=asked.rows_per_person, cells=rows.size, relation=self.terms.relation)
        sums, error = self._sums(asked, lambda: map(steps.value, added()[1]), rows.size, mechanism, reach, whole=whole)
        return asked.answer(rows, by_group(sums, rows), error, low, high)

    @suggests
    def mean(
        self,
        table: Any,
        mechanism: Gaussian | Laplace,
        *,
        lower: float,
        upper: float,
        column: object = None,
        **common: Unpack[Common],
    ) -> Answer:
        """The mean of a column, its values clamped to [lower, upper]: a noisy sum over a noisy count, in one release.

        Where the number of rows is public, the sum of what values differ from the middle of the bounds by, over that
        number, has at most half of the variance.

        Args:
            table: a data frame, or a column.
            mechanism: ``Gaussian`` or ``Laplace``.
            lower: least value, a public constant; smaller ones count as it.
            upper: largest value, likewise, > lower.
            column: which one.
            common: ``rows_per_person`` (always), ``person``, ``by``, ``groups``, ``label``: :class:`Common`.

        Returns:
            The :class:`Answer`, within the bounds. Its error is the whole width where the noise is larger than the
            count.
        """
        asked, (low, high) = Asked("mean", table, column=column, **common), bounds(lower, upper)
        if not _adds(mechanism) or mechanism.whole:
            raise PrivcalcError(f"mechanism = {mechanism}: must be Gaussian or Laplace, for a mean")
        middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        errors.scale("upper - lower", half)
        rows, steps = asked.rows(numbers=True), Steps.of(-half, half)
        added, top = rows.sums(steps=steps, middle=middle), steps.place(half)
        reach = of_means(steps.exact(half), rows=asked.rows_per_person, cells=rows.size, relation=self.terms.relation)

        def pairs() -> Iterator[float]:
            counts, sums = added()
            return map(steps.value, [*sums, *(int(count) * top for count in counts)])

        sums, error = self._sums(asked, pairs, 2 * rows.size, mechanism, reach, miss=0.5 * MISS, divided=True)
        above, below = sums[: rows.size], np.maximum(sums[rows.size :], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(below > 0, np.clip(above / below, -1.0, 1.0), 0.0)
            width = 2 * half * np.where(below > error, error / below, 1.0)
        value = np.clip(middle + half * share, low, high)
        return asked.answer(rows, by_group(value, rows), by_group(width, rows), low, high)

    @suggests
    def histogram(
        self,
        table: Any,
        mechanism: Gaussian | DiscreteGaussian | Laplace,
        *,
        edges: ArrayLike,
        column: object = None,
        **common: Unpack[Common],
    ) -> Answer:
        """How many values lie in each bin of a public grid. For categories count by groups instead.

        Args:
            table: a data frame, or a column.
            mechanism: as in ``count``.
            edges: ascending numbers e₀ < … < e_m: the bins are [eᵢ, eᵢ₊₁), the last one closed; what lies beyond counts
                in the outermost.
            column: which one.
            common: ``rows_per_person`` (always), ``person``, ``by``, ``groups``, ``label``: :class:`Common`.
        """
        asked, ends = Asked("histogram", table, column=column, **common), ascending("edges", edges, least=2)
        bins, rows = len(ends) - 1, asked.rows(numbers=True)
        cells, counted = rows.size * bins, rows.sums(ends=ends[1:-1].tolist())
        reach = of_sums(1, 1, rows=asked.rows_per_person, cells=cells, relation=self.terms.relation)
        sums, error = self._sums(asked, lambda: counted()[0], cells, mechanism, reach, whole=True)
        return asked.answer(rows, sums if rows.groups is None else sums.reshape(-1, bins), error)

    @suggests
    def quantile(
        self,
        table: Any,
        mechanism: ExponentialMechanism,
        *,
        share: float,
        candidates: ArrayLike,
        column: object = None,
        **common: Unpack[Common],
    ) -> Answer:
        """One of a public grid of candidates that has about this share of the values below it: the median at 0.5.

        Args:
            table: a data frame, or a column.
            mechanism: ``ExponentialMechanism(ε, monotone=False)``, because a row moves scores both ways.
            share: between 0 and 1, rounded to a multiple of 2⁻²⁰.
            candidates: ascending numbers, such as ``np.linspace(lower, upper, 1001)``.
            column: which one.
            common: ``rows_per_person`` (always), ``person``, ``by``, ``groups``, ``label``: :class:`Common`.
        """
        asked, grid = Asked("quantile", table, column=column, **common), ascending("candidates", candidates, least=1)
        rank = errors.real("share", share, "a number between 0 and 1", low=0.0, high=1.0)
        if not isinstance(mechanism, ExponentialMechanism) or mechanism.monotone:
            raise PrivcalcError(
                f"mechanism = {mechanism}: must be ExponentialMechanism(ε, monotone=False), for a quantile"
            )
        rank = round(rank * SHARES) / SHARES
        rows = asked.rows(numbers=True)
        counted = rows.sums(ends=grid.tolist(), both=True)
        alone = self.terms.relation is REPLACE_ONE and rows.size == 1
        reach = asked.rows_per_person * (0.5 if alone else max(rank, 1 - rank))

        def scores() -> Floats:
            return _ranks(counted()[0].reshape(rows.size, -1), rank)

        chosen = self._chosen(asked, rows, scores, mechanism, reach, monotone=False)
        value = float(grid[chosen]) if rows.groups is None else grid[chosen]
        return asked.answer(rows, value, shortfall(mechanism, reach, len(grid)))

    @suggests
    def top(
        self,
        table: Any,
        mechanism: TopK | ExponentialMechanism,
        *,
        candidates: object,
        column: object = None,
        **common: Unpack[Common],
    ) -> Answer:
        """The most frequent of a public list of candidates: ``mechanism.k`` of them for ``TopK``, one otherwise.

        Args:
            table: a data frame, or a column.
            mechanism: ``TopK``, or ``ExponentialMechanism`` for the most frequent one.
            candidates: public list of values.
            column: which one.
            common: ``rows_per_person`` (always), ``person``, ``by``, ``groups``, ``label``: :class:`Common`.

        Returns:
            The :class:`Answer` with a tuple of candidates, in the order of the list: their ranking is not released.
            Counts are a release of their own.
        """
        asked, names = Asked("top", table, column=column, **common), listed_values("candidates", candidates)
        if not isinstance(mechanism, (TopK, ExponentialMechanism)):
            raise PrivcalcError(f"mechanism = {mechanism}: must be TopK or ExponentialMechanism")
        if isinstance(mechanism, TopK) and mechanism.k > len(names):
            raise PrivcalcError(f"candidates: must be at least k = {mechanism.k}, not {len(names)}")
        rows, reach = asked.rows(listed=names), float(asked.rows_per_person)
        counted = rows.sums()
        chosen = self._chosen(asked, rows, lambda: counted()[0].reshape(rows.size, -1), mechanism, reach, monotone=True)
        value = [tuple(names[index] for index in row) for row in np.reshape(chosen, (rows.size, -1)).tolist()]
        return asked.answer(
            rows, value[0] if rows.groups is None else tuple(value), shortfall(mechanism, reach, len(names))
        )

    def _sums(
        self,
        asked: Asked,
        found: Callable[[], Iterable[float]],
        size: int,
        mechanism: Additive,
        reach: Reach,
        *,
        whole: bool = False,
        miss: float = MISS,
        divided: bool = False,
    ) -> tuple[Floats, float]:
        """Noisy sums of each cell, and their error bar."""
        if not _adds(mechanism):
            raise PrivcalcError(f"mechanism = {mechanism}: must be Gaussian, DiscreteGaussian or Laplace")
        limit = reach.limit(mechanism.multiplier, whole=whole)
        bound = reach.bound(limit, squares=mechanism.norm == 2, whole=whole)
        if isinstance(mechanism, DiscreteGaussian):
            if mechanism.sensitivity < bound:
                raise PrivcalcError(
                    f"mechanism = {mechanism}: must have a sensitivity of at least {bound:.9g}, which is how far one "
                    "person may move the sums"
                )
            bound = float(mechanism.sensitivity)
        error = half_width(mechanism, bound, miss, coordinates=size)
        draw = self.laplace if mechanism.draws == "laplace" else self.gaussian
        with self._paid(asked, mechanism, DIVIDED if divided else ANSWERED):
            sums = np.clip(np.fromiter(computed(found), dtype=np.float64), -limit, limit)
            values = sums.astype(np.int64) if mechanism.whole else sums
            return np.asarray(draw(values.view(Totals), mechanism, clip_norm=bound, error=0.0), dtype=np.float64), error

    def _chosen(
        self,
        asked: Asked,
        rows: Rows,
        found: Callable[[], NDArray[Any]],
        mechanism: Any,
        reach: float,
        *,
        monotone: bool,
    ) -> Any:
        """The place of what is chosen, or one of each group, together."""
        grouped = rows.groups is not None
        with self._paid(asked, mechanism, ANSWERED):
            scores = computed(found).astype(np.float64).view(Totals)
            return self.select(
                scores if grouped else scores[0], mechanism, sensitivity=reach, monotone=monotone, joint=grouped
            )

    @contextlib.contextmanager
    def _paid(self, asked: Asked, mechanism: Mechanism, told: Answered) -> Iterator[None]:
        """Around what reads the table and draws: charged before a row is read, whatever comes of it."""
        with self._of_persons(asked.persons), asked_by(told):
            self._charge(mechanism, label=asked.label)
            yield


def computed(found: Callable[[], Any]) -> Any:
    """What an engine returns.

    Raises:
        PrivcalcError: if it fails, which may be for what rows hold.
    """
    try:
        return found()
    except Exception as error:
        raise PrivcalcError(
            "table: its engine failed after the question was charged for, and it stays so: whether an engine fails may "
            "tell something of the rows, and so may its words"
        ) from error


def _adds(mechanism: object) -> TypeGuard[Additive]:
    """Whether one call adds its noise to a sum."""
    return isinstance(mechanism, Additive) and mechanism.draws in {"gaussian", "laplace"}


def by_group(found: Floats, rows: Rows) -> float | Floats:
    """A number, or one of each group."""
    return float(found[0]) if rows.groups is None else found


def _ranks(counts: NDArray[np.int64], share: float) -> Floats:
    """−(how far share·n lies from the ranks of each candidate, of which equal values give it several)."""
    upto = counts.cumsum(axis=1).astype(np.float64)  # places are at a candidate, or between two
    target = share * upto[:, -1:]
    return -np.maximum(np.maximum(upto[:, :-1:2] - target, target - upto[:, 1::2]), 0.0)
