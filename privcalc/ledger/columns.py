"""Columns of arrays and data frames, read so that what one row holds never decides whether there is an answer.

What is refused is refused for the form of a table: its columns and their lengths, times in place of numbers. A value
that is no number is missing, a group that is not listed is nobody's. Data frames are of any library whose columns are
reached by name and turn into NumPy arrays (pandas, polars, pyarrow); none is imported here.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import pickle
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Required, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.answers import Answer
from privcalc.numerics.floats import Floats

__all__ = ["Asked", "Common", "Rows", "ascending", "column_of", "listed_values", "pick", "places", "split", "totals"]

TRUTH = {"true": 1.0, "false": 0.0}

PLAIN = (str, int, float, bool, bytes)
"""Kinds of names that are equal by what they hold."""


@dataclass(frozen=True)
class Rows:
    """Which rows take part, and the group of each of those."""

    taken: NDArray[np.bool_]
    group: NDArray[np.int64]
    groups: tuple[Hashable, ...] | None

    @property
    def size(self) -> int:
        """How many groups; all rows are one, if there are none."""
        return 1 if self.groups is None else len(self.groups)

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Those of them that are also in ``kept``, a mask of all rows."""
        return Rows(self.taken & kept, self.group[kept[self.taken]], self.groups)


def pick(name: str, table: Any, column: object) -> NDArray[Any]:
    """A column of a table: of this name, or the table itself, or what was given in place of a name.

    Raises:
        PrivcalcError: if there is no such column, or it is none.
    """
    found: Any = table if column is None else column
    if isinstance(column, str):
        try:
            found = table[column]
        except Exception as error:
            raise PrivcalcError(
                f"{name} = {column!r}: the table has no such column (an index is none: reset_index)"
            ) from error
    _check_index(name, _indexed(table), found)
    if errors.is_tensor(found) and f"{found.dtype}" in ("torch.float16", "torch.float32"):
        found = errors.dense(name, found).cpu().numpy()  # their digits decide which whole numbers they tell apart
    if isinstance(found, (list, tuple)):  # NumPy would make texts of all rows for the sake of one
        return np.fromiter(found, dtype=object, count=len(found))
    array = errors.array(name, found.to_numpy() if hasattr(found, "to_numpy") else found)
    if array.ndim != 1:
        raise PrivcalcError(
            f"{name} = {_shown(column)}: must be one column, or its name; this has {array.ndim} dimensions"
        )
    return array


def column_of(table: Any, column: object) -> Floats:
    """A column of numbers, NaN where there is none. Texts are read as numbers: one odd cell may have made texts of all.

    Raises:
        PrivcalcError: if its type has none.
    """
    found = pick("column", table, column)
    if found.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return found.astype(np.float64)
    if found.dtype.kind not in "OUS":
        raise PrivcalcError(f"column = {_shown(column)}: must be a column of numbers, not of {found.dtype}")
    numbers = np.array([_number(value) for value in found.tolist()], dtype=np.float64)
    texts = np.array([isinstance(value, str) and bool(value.strip()) for value in found.tolist()], dtype=np.bool_)
    if 2 * np.isnan(numbers[texts]).sum() > texts.sum():
        errors.warn(
            "column: most of its texts are no numbers (3,50 or €3.50 for 3.50), and count nowhere: make numbers of them"
        )
    return numbers


def _number(value: Any) -> float:
    """The nearest double; NaN if it is no number, whatever else it is. Truth values are 1 and 0, also as texts."""
    try:
        return float(TRUTH.get(value.strip().lower(), value) if isinstance(value, str) else value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # no row may decide whether there is an answer
        return math.nan


class Common(TypedDict, total=False):
    """Arguments that all six questions to a table take.

    Attributes:
        rows_per_person: the most rows that count of one person, who is what one record of the ledger is (its ``unit``).
        person: column that tells whose row it is: only the first ``rows_per_person`` rows of each person are used, and
            rows of nobody (None, NaN, blank) are not. None: that nobody has more is your word, and the certificate says
            so. A table with several columns, or an index with a name, wants either; of a single column it may be left
            out, which is your word, too. All questions of a ledger name persons by the same column, or none does:
            another one is refused.
        by: column of groups: one answer for each of ``groups``, for the price of one release.
        groups: public list of groups; other rows count nowhere.
        label: what is released; as in :meth:`Ledger.gaussian`.
    """

    rows_per_person: Required[int]
    person: object
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
    by: object = None
    groups: object = None
    label: str | None = None
    column: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows_per_person", errors.count("rows_per_person", self.rows_per_person, least=1))

    def rows(self, size: int | None = None) -> Rows:
        """The rows that take part: of each person the first ones, of those that are in a listed group.

        Args:
            size: how many rows there are; None: as many as the table has.

        Raises:
            PrivcalcError: if columns differ in length, groups are not listed, or nothing is said of persons though
                there are columns.
        """
        table, groups, number = self.table, self.groups, _length(self.table) if size is None else size
        if (self.by is None) != (groups is None):
            raise PrivcalcError(
                f"by = {_shown(self.by)}, groups {'= None' if groups is None else 'given'}: must be given together; "
                "which groups occur is private, so list them all"
            )
        if self.person is ... and _tells(table):
            raise PrivcalcError(
                "person: must be said of a table with several columns, or an index with a name, as groups have: the "
                "column that tells whose a row is; or None, your word that each is of one person, who has at most "
                f"{self.rows_per_person}, after joins too"
            )
        taken, group = np.ones(number, dtype=np.bool_), np.zeros(number, dtype=np.int64)
        names = None if groups is None else listed_values("groups", groups)
        if self.person is not None and self.person is not ...:
            taken = _first(_persons(table, self.person, number), self.rows_per_person)
        if names is not None:
            group = places(_of_length("by", pick("by", table, self.by), number), names)
        taken &= group >= 0
        return Rows(taken, group[taken], names)

    def numbers(self) -> tuple[Rows, Floats]:
        """The rows that have a number in the column, and these numbers."""
        found = column_of(self.table, self.column)
        rows = self.rows(len(found)).where(~np.isnan(found))
        return rows, found[rows.taken]

    def answer(self, rows: Rows, value: Any, error: Any) -> Answer:
        """The released answer, one for each group."""
        return Answer(self.question, value, error, rows.groups, self.label)

    @property
    def persons(self) -> tuple[str, str | None]:
        """How persons are named: by a column, of a table or a series with a name; by other values; or not."""
        person = self.person
        if person is None or person is ...:
            return "word", None
        name = person if isinstance(person, str) else getattr(person, "name", None)
        return ("column", name) if isinstance(name, str) else ("values", None)


def _length(table: Any) -> int:
    if isinstance(table, (str, bytes)):  # a file's name has a length, too
        raise PrivcalcError(
            f"table = {table!r}: must be a data frame, a dictionary of columns, or a column, not a text"
        )
    if isinstance(table, Mapping):
        return min((_length(column) for column in table.values()), default=0)
    shape = getattr(table, "shape", None)
    if shape:
        return int(shape[0])
    if isinstance(table, Sequence) or (hasattr(table, "__array__") and shape is None):
        return len(table)  # of groups, a set or a view it is not that of rows
    raise PrivcalcError(f"table: must be a data frame, a dictionary of columns, or a column, not {type(table)}")


def _tells(table: Any) -> bool:
    """Whether a table has several columns, or an index with a name: one may tell whose a row is."""
    if isinstance(table, Mapping):
        return len(table) > 1 or any(map(_tells, table.values()))
    fields = getattr(getattr(table, "dtype", None), "names", None) or ()
    shape: tuple[int, ...] = getattr(table, "shape", ())
    names = getattr(getattr(table, "index", None), "names", None) or ()
    return len(fields) > 1 or (len(shape) == 2 and shape[1] > 1) or any(name is not None for name in names)


def _of_length(name: str, column: NDArray[Any], size: int) -> NDArray[Any]:
    if len(column) != size:
        raise PrivcalcError(f"{name}: must have one value per row, not fewer or more; or be the name of one column")
    return column


def _persons(table: Any, person: object, size: int) -> NDArray[Any]:
    """The column of persons, which times are none: many share a day, and each has several."""
    found = pick("person", table, person)
    if found.dtype.kind in "mM":
        raise PrivcalcError(
            f"person = {_shown(person)}: must be a column of persons, by names or numbers, not of {found.dtype}"
        )
    return _of_length("person", found, size)


def _first(person: NDArray[Any], most: int) -> NDArray[np.bool_]:
    """The first rows of each person; none of those that are nobody's."""
    seen: dict[Hashable, int] = {}
    found, alone = np.zeros(len(person), dtype=np.bool_), False
    values = person.tolist()
    for row, who in enumerate(values):
        with contextlib.suppress(Exception):  # what cannot be compared is nobody
            blank = isinstance(who, str) and not who.strip()  # as many readers write what is missing
            if who is None or blank or not operator.eq(who, who):
                continue
            if _by_value(who):
                seen[who] = seen.get(who, 0) + 1
                found[row] = seen[who] <= most
            else:
                alone = True
    if _rounded(person, values):
        errors.warn(
            "person: has numbers of 2^53 and more in floating point (of 32 bits: 2^24; of 16: 2^11), which cannot tell "
            "neighbouring numbers apart: who shares a number takes the place of others, and sums may move further than "
            "is accounted for; read ids as texts or as whole numbers (a missing one makes a column floating point)"
        )
    if alone:
        errors.warn(
            "person: has names that equal themselves only, and no copy (tensors, a class without __eq__ and __hash__ "
            "by value, a tuple with a NaN), so that each row would be of another person; they are nobody's, and count "
            "nowhere: name persons by texts or numbers"
        )
    return found


def _by_value(who: Any) -> bool:
    """Whether a name equals a copy of itself, made of what it is written down as."""
    if type(who) in PLAIN or isinstance(who, Enum):
        return True
    try:
        twin = pickle.loads(pickle.dumps(who))
        return bool(operator.eq(twin, who)) and hash(twin) == hash(who)
    except Exception:
        return False


def _rounded(person: NDArray[Any], values: Sequence[Any]) -> bool:
    """Whether names are floating-point numbers so large that neighbouring whole numbers are one."""
    if person.dtype.kind == "f":
        most = 2.0 ** (int(np.finfo(person.dtype).nmant) + 1)
        return bool((np.abs(person[np.isfinite(person)]) >= most).any())
    floats: Iterator[Any] = (who for who in values if isinstance(who, (float, np.floating)) and math.isfinite(who))
    return any(abs(float(who)) >= 2.0 ** (int(np.finfo(type(who)).nmant) + 1) for who in floats)


def listed_values(name: str, values: object) -> tuple[Hashable, ...]:
    """A public list of different values. Errors show none of them: a private column may have been given in its place.

    Raises:
        PrivcalcError: if it is none.
    """
    given: Any = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not given:
        raise PrivcalcError(f"{name}: must be a list of at least one value, all of which are public")
    try:
        keys = [_key(value) for value in given]
        different = len(set(keys)) == len(keys) and all(operator.eq(key, key) for key in keys)
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


def places(column: NDArray[Any], values: Iterable[Hashable]) -> NDArray[np.int64]:
    """Where each row's value is in a list; −1 where it is not. Texts that read as numbers are these numbers.

    Raises:
        PrivcalcError: if the column has times, which NumPy turns into something else.
    """
    if column.dtype.kind in "mM":
        raise PrivcalcError(f"by: must be texts or numbers, not {column.dtype}; turn times into text first")
    index = {_key(value): place for place, value in enumerate(values)}
    return np.fromiter((_place(index, value) for value in column.tolist()), dtype=np.int64, count=len(column))


def _place(index: Mapping[Hashable, int], value: Any) -> int:
    try:
        return index.get(_key(value), -1)
    except Exception:  # a value that cannot be compared is in no list
        return -1


def _key(value: Any) -> Any:
    """The form that values are compared in: numbers, if they are or read as some.

    One odd cell makes texts of all rows.
    """
    number = _number(value)
    return value if math.isnan(number) else number


def split(cell: NDArray[np.int64], values: Floats, size: int) -> Iterator[Floats]:
    """The values of each cell."""
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order], np.arange(size + 1))
    ordered = values[order]
    return (ordered[low:high] for low, high in itertools.pairwise(ends))


def totals(cell: NDArray[np.int64], contributions: Floats, size: int) -> Floats:
    """The sum of each cell, exact but for one rounding, whatever the order of the rows (``math.fsum``)."""
    return np.array([math.fsum(part.tolist()) for part in split(cell, contributions, size)], dtype=np.float64)


def _check_index(name: str, table: Any, column: Any) -> None:
    """Warn where a column's own index is not that of the table: rows belong together by their places, not by that."""
    here: Any = getattr(column, "index", None)
    there: Any = getattr(table, "index", None)
    if column is table or not hasattr(here, "equals") or not hasattr(there, "equals"):
        return
    if len(column) == len(table) and not here.equals(there):
        errors.warn(
            f"{name}: has another index, or another order of it, than the table, and is taken by place: row by row it "
            "may be of other persons, and ε does not hold for these; give the name of a column, or align it, "
            "column.reindex(table.index)"
        )


def _indexed(table: Any) -> Any:
    """What a column's index is compared with: of a dictionary of columns, the first that has one."""
    if not isinstance(table, Mapping):
        return table
    return next((column for column in table.values() if hasattr(getattr(column, "index", None), "equals")), None)


def _shown(column: object) -> str:
    """The name of a column; its values are private."""
    return repr(column) if column is None or isinstance(column, str) else "…"
