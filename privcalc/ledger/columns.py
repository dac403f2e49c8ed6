"""What a question to a table asks, and the public lists that it is asked with."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Required, TypedDict

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.answers import Answer
from privcalc.ledger.frames import Rows
from privcalc.ledger.sources import Wanted, found, key, shown, tells
from privcalc.numerics.floats import Floats

__all__ = ["Asked", "Common", "ascending", "listed_values"]


class Common(TypedDict, total=False):
    """Arguments that all questions to a table take.

    Attributes:
        rows_per_person: the most rows that count of one person, who is what one record of the ledger is (its ``unit``).
        person: column that tells whose row it is: only the first ``rows_per_person`` rows of each person are used, and
            rows of nobody (None, NaN, blank) are not. None: that nobody has more is your word, and the certificate says
            so. A table with several columns, or an index with a name, wants either; of a single column it may be left
            out, which is your word, too. All questions of a ledger name persons by the same column, or none does:
            another one is refused.
        order: column, or list of columns, that tells which rows of a person are the first; missing ones are last. By
            default they are as in the table; one that is not in memory (DuckDB, Spark, lazy Polars) has no order.
            Rows that are equal in it are taken by what is asked about: name as many columns as tell rows apart.
        by: column of groups: one answer for each of ``groups``, for the price of one release.
        groups: public list of groups; other rows count nowhere. Or, without ``by``, a dictionary of several columns'
            names and lists: one answer for each combination, a tuple.
        label: what is released; as in :meth:`Ledger.gaussian`.
    """

    rows_per_person: Required[int]
    person: object
    order: object
    by: object
    groups: object
    label: str | None


@dataclass(frozen=True, eq=False)
class Asked:
    """A question to a table, with its :class:`Common` arguments; a person of whom nothing is said is ``...``.

    Attributes:
        question: what it is called.
        table: where columns are looked up.
        column: which one is asked about, or None.
    """

    question: str
    table: Any
    rows_per_person: int = 0  # which is refused: it must be said
    person: object = ...
    order: object = None
    by: object = None
    groups: object = None
    label: str | None = None
    column: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows_per_person", errors.count("rows_per_person", self.rows_per_person, least=1))

    def rows(self, *, numbers: bool = False, listed: Sequence[Hashable] = ()) -> Rows:
        """The rows that take part: of each person the first ones, of those that are in a listed group.

        Args:
            numbers: whether the column is one of numbers.
            listed: or one of values that are compared with these.

        Raises:
            PrivcalcError: if columns differ in length, groups are not listed, or nothing is said of persons though
                there are columns.
        """
        if (self.by is None) != (self.groups is None or isinstance(self.groups, Mapping)):
            raise PrivcalcError(
                f"by = {shown(self.by)}, groups {'= None' if self.groups is None else 'given'}: must be given "
                "together; which groups occur is private, so list them all"
            )
        if self.person is ... and tells(self.table):
            raise PrivcalcError(
                "person: must be said of a table with several columns, or an index with a name, as groups have: the "
                "column that tells whose a row is; or None, your word that each is of one person, who has at most "
                f"{self.rows_per_person}, after joins too"
            )
        orders = [] if self.order is None else self.order if isinstance(self.order, list) else [self.order]
        known = self.persons[0] != "word"
        if orders and not known:
            raise PrivcalcError("order: is of the rows of a person: give person, too")
        several = list(self.groups.items()) if isinstance(self.groups, Mapping) else [(self.by, self.groups)]
        lists = [] if self.groups is None else [(by, listed_values("groups", one)) for by, one in several]
        if self.groups is not None and not lists:
            raise PrivcalcError("groups: must be of at least one column")
        groups: tuple[Hashable, ...] | None = tuple(itertools.product(*(one for _, one in lists))) if lists else None
        if groups and not isinstance(self.groups, Mapping):
            groups = lists[0][1]
        wanted = {"x": Wanted("column", self.column)} if numbers else {}
        wanted |= {f"k{place}": Wanted("by", by, one) for place, (by, one) in enumerate(lists)}
        if listed:
            wanted[f"k{len(lists)}"] = Wanted("column", self.column, tuple(listed))
        if known:
            wanted["p"] = Wanted("person", self.person)
        wanted |= {f"o{place}": Wanted("order", column) for place, column in enumerate(orders)}
        frame, keys = found(self.table, wanted)
        if known and not orders:
            if isinstance(frame, nw.LazyFrame):
                raise PrivcalcError(
                    "order: must be said of a table that is not in memory, whose rows have none: columns that tell "
                    "which rows of a person are the first"
                )
            frame = frame.with_row_index("o0")
        order = tuple(f"o{place}{mark}" for place in range(len(orders)) for mark in ("?", ""))
        return Rows(frame, tuple(keys.values()), order, self.rows_per_person if known else 0, groups)

    def answer(self, rows: Rows, value: Any, error: Any, *bounds: float) -> Answer:
        """The released answer, one for each group; of values between bounds."""
        whose = "by the caller's word" if self.persons[0] == "word" else "the first ones"
        applied = f"at most {self.rows_per_person} row{'s' * (self.rows_per_person > 1)} of a person, {whose}"
        applied += "; values from {:.9g} to {:.9g}".format(*bounds) if bounds else ""
        return Answer(self.question, value, error, rows.groups, self.label, applied)

    @property
    def persons(self) -> tuple[str, str | None]:
        """How persons are named: by a column, of a table or a series with a name; by other values; or not."""
        person = self.person
        if person is None or person is ...:
            return "word", None
        name = person if isinstance(person, str) else getattr(person, "name", None)
        return ("column", name) if isinstance(name, str) else ("values", None)


def listed_values(name: str, values: object) -> tuple[Hashable, ...]:
    """A public list of different values. Errors show none of them: a private column may have been given in its place.

    Raises:
        PrivcalcError: if it is none.
    """
    given: Any = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not given:
        raise PrivcalcError(f"{name}: must be a list of at least one value, all of which are public")
    try:
        keys = [key(value) for value in given]
        different = len(set(keys)) == len(keys) and all(operator.eq(one, one) for one in keys)
    except Exception:
        raise PrivcalcError(f"{name}: must be values that can be compared: texts, numbers, dates") from None
    if not different:
        raise PrivcalcError(
            f"{name}: must be different values, and no NaN; texts that read as numbers are these. They are public, so "
            "list them, and do not take them from the table"
        )
    return tuple(given)


def ascending(name: str, values: ArrayLike, *, least: int) -> Floats:
    """Check public numbers to ascend.

    Errors show none of them: a private column may have been given in their place.
    """
    try:
        found = errors.floats(name, values, "ascending numbers")
    except PrivcalcError:
        found = np.empty(0)
    if found.ndim != 1 or len(found) < least or not np.all(found[1:] > found[:-1]) or np.isnan(found).any():
        raise PrivcalcError(f"{name}: must be at least {least} ascending numbers, all of which are public")
    return found
