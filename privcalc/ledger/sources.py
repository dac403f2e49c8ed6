"""Columns of a table, read so that what one row holds never decides whether there is an answer.

What is refused is refused for the form of a table: its columns, their types and lengths. A value that is no number is
missing, a group that is not listed is nobody's. Engines are those of narwhals; what has none (lists, arrays,
dictionaries of columns) is given to Polars.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import operator
import pickle
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.frames import Frame, Key
from privcalc.numerics.floats import Floats

BLANK = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""What a name may be made of that is none: engines differ in what they take for spaces."""


class Wanted(NamedTuple):
    """A column that a question needs.

    Attributes:
        role: what it is called among the arguments: column, by, person, order.
        column: its name, or what was given in place of one.
        listed: the public values that it is compared with, if it is.
    """

    role: str
    column: object
    listed: tuple[Hashable, ...] = ()

    @property
    def refused(self) -> str:
        """What is said of a type that it cannot have."""
        return f"{self.role} = {shown(self.column)}: must be {KINDS[self.role]}, not of "


KINDS = {
    "column": "a column of numbers",
    "by": "texts or numbers (turn times into text first)",
    "person": "a column of persons, by names or numbers",
    "order": "a column of numbers, texts or times",
}


def found(table: Any, wanted: Mapping[str, Wanted]) -> tuple[Frame, dict[str, Key]]:
    """The columns that are asked for, under names of ours, of numbers and texts only; and keys for what is listed.

    Raises:
        PrivcalcError: if there is no such column, or lengths or types do not fit, whatever they hold.
    """
    try:
        frame = nw.from_native(table, pass_through=True)
    except Exception as error:
        raise PrivcalcError("table: is no data frame that can be read (are there two columns of one name?)") from error
    named = all(isinstance(one.column, str) for one in wanted.values())
    if isinstance(frame, nw.LazyFrame) or (isinstance(frame, nw.DataFrame) and wanted and named):
        frame, odd = _selected(frame, wanted)
    else:
        frame, odd = _gathered(table, wanted)
    keys = {}
    for name, one in wanted.items():
        if one.listed:
            keys[name] = _key_of(frame, name, one, name in odd)
        frame = _cleaned(frame, name, one)
    return frame, keys


def _selected(frame: Any, wanted: Mapping[str, Wanted]) -> tuple[Frame, set[str]]:
    """Columns of a frame; those of odd types, which Python has to read, are read."""
    schema, chosen = frame.collect_schema(), {}
    odd: set[str] = set()
    for name, one in wanted.items():
        column = next(iter(schema)) if one.column is None and len(schema) == 1 else one.column
        if not isinstance(column, str) or column not in schema:
            given = "" if isinstance(frame, nw.DataFrame) else "; of a table that is not in memory, columns are names"
            raise PrivcalcError(
                f"{one.role} = {shown(one.column)}: the table has no such column (an index is none: reset_index){given}"
            )
        chosen[name] = nw.col(column)
    frame = frame.select(**(chosen or {"all": nw.col(next(iter(schema)))}))
    for name, kind in dict(frame.collect_schema()).items():
        if name not in wanted or _fits(kind, wanted[name], lazy=isinstance(frame, nw.LazyFrame)):
            continue
        if isinstance(frame, nw.LazyFrame) or kind.is_temporal():
            raise PrivcalcError(f"{wanted[name].refused}{kind}")
        read = nw.new_series(name, _odd(wanted[name], frame[name].to_list()), backend=frame.implementation)
        frame, odd = frame.with_columns(read), odd | {name}
    return frame, odd


def _fits(kind: nw.dtypes.DType, one: Wanted, *, lazy: bool) -> bool:
    """Whether an engine can tell what such a column holds."""
    if _numeric(kind):
        return not (lazy and one.role == "person" and kind.is_float())
    text = isinstance(kind, (nw.String, nw.Categorical, nw.Enum))
    if one.listed:
        return text and all(isinstance(value, str) and (not lazy or math.isnan(number(value))) for value in one.listed)
    return (text and one.role != "column") or (one.role == "order" and kind.is_temporal())


def _gathered(table: Any, wanted: Mapping[str, Wanted]) -> tuple[Frame, set[str]]:
    """Columns that are arrays, or become some, as a frame of the first engine that is installed."""
    arrays = {name: pick(one.role, table, one.column) for name, one in wanted.items()}
    sizes = [len(arrays[name]) for name, one in wanted.items() if one.role == "column"] or [_length(table)]
    odd: set[str] = set()
    for name, one in wanted.items():
        array = arrays[name]
        if array.dtype.kind in "mM" and one.role != "order":
            raise PrivcalcError(f"{one.refused}{array.dtype}")
        if len(array) != sizes[0]:
            raise PrivcalcError(
                f"{one.role}: must have one value per row, not fewer or more; or be the name of one column"
            )
        if array.dtype.kind == "f" and one.role == "person":
            warn_of_rounded(array)
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(
                {"f": np.float64, "m": np.int64, "M": np.int64}.get(array.dtype.kind, array.dtype)
            )
        if array.dtype.kind not in "biufmM":
            arrays[name], odd = _odd(one, array.tolist()), odd | {name}
    return nw.from_dict(arrays or {"all": np.zeros(sizes[0])}, backend="polars"), odd


def _odd(one: Wanted, values: list[Any]) -> Floats:
    """A column of any values as numbers."""
    if one.listed:
        return places(values, {key(value): place for place, value in enumerate(one.listed)})
    return {"column": numbers, "person": codes, "order": ranks}[one.role](values)


def _key_of(frame: Any, name: str, one: Wanted, odd: bool) -> Key:
    """What is listed, as it stands in a column: texts that read as numbers are these."""
    place = {key(value): place for place, value in enumerate(one.listed)}
    if odd:
        return Key({float(value): value for value in place.values()}, len(place))
    if _numeric(frame.collect_schema()[name]):
        return Key({value: at for value, at in place.items() if isinstance(value, float)}, len(place))
    if isinstance(frame, nw.LazyFrame):
        return Key(place, len(place))
    texts = [text for text in frame[name].cast(nw.String).unique().to_list() if isinstance(text, str)]
    return Key({text: place[key(text)] for text in texts if key(text) in place}, len(place))


def _cleaned(frame: Any, name: str, one: Wanted) -> Any:
    """A column in the one form in which it is equal, or ordered, on all engines; without rows of nobody."""
    column, kind = nw.col(name), frame.collect_schema()[name]
    missing = column.is_null() | column.is_nan() if kind.is_float() else column.is_null()
    if one.role == "order":
        return frame.with_columns(**{name: nw.when(~missing).then(column), f"{name}?": missing})
    if one.listed:
        return frame.with_columns(
            **{name: _even(column.cast(nw.Float64)) if _numeric(kind) else column.cast(nw.String)}
        )
    if one.role == "column":
        frame = frame.with_columns(x=column.cast(nw.Float64))
        missing = column.is_null() | column.is_nan()
        return frame.with_columns(ok=~missing).with_columns(x=nw.when(nw.col("ok")).then(column).otherwise(nw.lit(0.0)))
    if kind.is_float():
        if isinstance(frame, nw.DataFrame):
            warn_of_rounded(frame[name].to_numpy())
        return frame.filter(~missing).with_columns(p=_even(column))
    if _numeric(kind):
        return frame.filter(~missing)
    frame = frame.with_columns(p=column.cast(nw.String))
    return frame.filter(~missing & (column.str.strip_chars(BLANK) != ""))


def _numeric(kind: nw.dtypes.DType) -> bool:
    return kind.is_numeric() or kind == nw.Boolean


def _even(column: nw.Expr) -> nw.Expr:
    """Without −0, which is another number than 0 on some engines."""
    return nw.when(column == 0.0).then(nw.lit(0.0)).otherwise(column)


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
            f"{name} = {shown(column)}: must be one column, or its name; this has {array.ndim} dimensions"
        )
    return array


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


def tells(table: Any) -> bool:
    """Whether a table has several columns, or an index with a name: one may tell whose a row is."""
    if isinstance(table, Mapping):
        return len(table) > 1 or any(map(tells, table.values()))
    frame = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        return len(frame.collect_schema()) > 1
    fields = getattr(getattr(table, "dtype", None), "names", None) or ()
    shape: tuple[int, ...] = getattr(table, "shape", ())
    names = getattr(getattr(table, "index", None), "names", None) or ()
    return len(fields) > 1 or (len(shape) == 2 and shape[1] > 1) or any(name is not None for name in names)


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


def shown(column: object) -> str:
    """The name of a column; its values are private."""
    return repr(column) if column is None or isinstance(column, str) else "…"


TRUTH = {"true": 1.0, "false": 0.0}

PLAIN = (str, int, float, bool, bytes)
"""Kinds of names that are equal by what they hold."""


def number(value: Any) -> float:
    """The nearest double; NaN if it is no number, whatever else it is. Truth values are 1 and 0, also as texts."""
    try:
        return float(TRUTH.get(value.strip().lower(), value) if isinstance(value, str) else value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # no row may decide whether there is an answer
        return math.nan


def key(value: Any) -> Any:
    """The form that values are compared in: numbers, if they are or read as some.

    One odd cell makes texts of all rows.
    """
    found = number(value)
    return value if math.isnan(found) else found


def numbers(values: Sequence[Any]) -> Floats:
    """A column of numbers, NaN where there is none."""
    found = np.array([number(value) for value in values], dtype=np.float64)
    texts = np.array([isinstance(value, str) and bool(value.strip()) for value in values], dtype=np.bool_)
    if 2 * np.isnan(found[texts]).sum() > texts.sum():
        errors.warn(
            "column: most of its texts are no numbers (3,50 or €3.50 for 3.50), and count nowhere: make numbers of them"
        )
    return found


def places(values: Sequence[Any], listed: Mapping[Hashable, int]) -> Floats:
    """Where each value is in a list of keys; NaN where it is not."""

    def place(value: Any) -> float:
        try:
            return listed.get(key(value), math.nan)
        except Exception:  # a value that cannot be compared is in no list
            return math.nan

    return np.array([place(value) for value in values], dtype=np.float64)


def codes(values: Sequence[Any]) -> Floats:
    """A number for each person, equal where the names are; NaN for nobody."""
    seen: dict[Hashable, int] = {}
    found, alone = np.full(len(values), math.nan), False
    for row, who in enumerate(values):
        with contextlib.suppress(Exception):  # what cannot be compared is nobody
            blank = isinstance(who, str) and not who.strip()  # as many readers write what is missing
            if who is None or blank or not operator.eq(who, who):
                continue
            if _by_value(who):
                found[row] = seen.setdefault(who, len(seen))
            else:
                alone = True
    for kind in {type(who) for who in values if isinstance(who, (float, np.floating))}:
        warn_of_rounded(np.array([who for who in values if type(who) is kind], dtype=kind))
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


def warn_of_rounded(persons: NDArray[Any]) -> None:
    """Say so, if names are floating-point numbers so large that neighbouring whole numbers are one."""
    most = 2.0 ** (int(np.finfo(persons.dtype).nmant) + 1)
    if (np.abs(persons[np.isfinite(persons)]) >= most).any():
        errors.warn(
            "person: has numbers of 2^53 and more in floating point (of 32 bits: 2^24; of 16: 2^11), which cannot tell "
            "neighbouring numbers apart: who shares a number takes the place of others, and sums may move further than "
            "is accounted for; read ids as texts or as whole numbers (a missing one makes a column floating point)"
        )


def ranks(values: Sequence[Any]) -> Floats:
    """The place of each value in the order of all, numbers before texts and times; NaN for what is none of them."""
    keys = [(math.isnan(found := number(value)), 0.0 if math.isnan(found) else found, _text(value)) for value in values]
    place = {one: float(rank) for rank, one in enumerate(sorted(set(keys)))} | {(True, 0.0, ""): math.nan}
    return np.array([place[one] for one in keys], dtype=np.float64)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value.isoformat() if isinstance(value, datetime.date) else ""
