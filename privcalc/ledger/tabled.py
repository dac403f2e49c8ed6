"""What all questions to a table share: who is counted how often, in which groups, and by what draws (``proofs/tables.md``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.book import Persons
from privcalc.ledger.columns import Rows
from privcalc.ledger.provenance import Answered
from privcalc.ledger.terms import Terms
from privcalc.numerics.floats import Floats

__all__ = ["ANSWERED", "Tabled", "Totals"]

ANSWERED = Answered("derived", rounding="bounded", divided="nothing", by="table question")
"""What is known of an answer before it is drawn: its sums are exact, and derived from bounds and rows."""


class Totals(np.ndarray[Any, np.dtype[Any]]):
    """Sums that a ledger added up itself, of contributions that it bounded: there is nothing to doubt about them."""


class Tabled(ABC):
    """What :class:`Ledger` answers about tables: ``count``, ``sum``, ``mean``, ``histogram``, ``quantile`` and ``top``.

    A table is one column (an array, a list, a series) or a data frame with ``column=`` naming one; ``person`` and ``by`` are
    columns, or names of some. All six take

    * ``rows_per_person``: the most rows that count of one person, who is what one record of the ledger is (its ``unit``). With
      ``person``, a column that tells whose row it is, only the first that many rows of each person are used, and rows of
      nobody (None, NaN, blank) are not; with ``person=None`` that nobody has more is your word, and the certificate says so. A
      table with several columns, or an index with a name, wants either; of a single column it may be left out, which is your
      word, too. All questions of a ledger name persons by the same column, or none does: another one is refused.
    * ``by`` and ``groups``: one answer for each of a public list of groups, for the price of one release. Other rows count
      nowhere.
    * ``label``: as in ``gaussian``.

    Values that are missing (None, NaN, what is no number) count nowhere; values beyond the bounds, and ±∞, count as the bounds.
    Texts that read as numbers are these numbers, among groups and candidates too: one odd cell makes texts of a column in many
    readers.
    """

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What the ledger was opened for."""

    @abstractmethod
    def _of_persons(self, persons: Persons) -> AbstractContextManager[None]:
        """Around what draws and charges: the same persons as before in this ledger, or nothing is."""


def ascending(name: str, values: ArrayLike, *, least: int) -> Floats:
    """Public numbers, checked to ascend. Errors show none of them: a private column may have been given in their place."""
    try:
        found = errors.floats(name, values, "ascending numbers")
    except PrivcalcError:
        found = np.empty(0)
    if found.ndim != 1 or len(found) < least or not np.all(found[1:] > found[:-1]) or np.isnan(found).any():
        raise PrivcalcError(f"{name}: must be at least {least} ascending numbers, all of which are public")
    return found


def by_group(found: Floats, rows: Rows) -> float | Floats:
    """A number, or one of each group."""
    return float(found[0]) if rows.groups is None else found
