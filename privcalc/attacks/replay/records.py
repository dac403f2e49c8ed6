"""Data sets of a replay: arrays with a row per record, to the end of which a record or two are added."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError

Row = tuple[NDArray[Any], ...]

LARGE = (1e3, -1e3, 1e30, 1e300)
"""Beyond any clipping norm; with the other sign; squares that overflow in single and in double precision."""
LABELS = 8
"""Values of a column of labels that are tried: more would make replays long."""


@dataclass(frozen=True, eq=False)
class Record:
    """A record that is added.

    Attributes:
        name: what it is, in words.
        row: its part of each array.
    """

    name: str
    row: Row


class Table:
    """A data set: an array, or a tuple, list or mapping of arrays, in all of which the i-th row is the i-th record's.

    Args:
        data: it; at least two records.

    Raises:
        PrivcalcError: if it is none.
    """

    def __init__(self, data: object) -> None:
        self._names: list[Any] | None = None
        self._kind: type = tuple
        if isinstance(data, Mapping):
            self._names, leaves = list(data), list(data.values())
        elif isinstance(data, (tuple, list)):
            self._kind, leaves = type(data), list(data)
        else:
            self._kind, leaves = np.ndarray, [data]
        self._leaves = [_array(leaf) for leaf in leaves]
        sizes = {leaf.shape[0] if leaf.ndim else -1 for leaf in self._leaves}
        if len(sizes) != 1 or min(sizes) < 2:
            raise PrivcalcError(
                "data: must be an array with a row for each of at least 2 records, or a tuple, list or mapping of such "
                f"arrays, all of one length, not of lengths {sorted(sizes)}"
            )

    def __len__(self) -> int:
        return int(self._leaves[0].shape[0])

    def row(self, number: int) -> Row:
        """One record's part of each array."""
        return tuple(leaf[number] for leaf in self._leaves)

    def record(self, name: str, row: object) -> Record:
        """Return a record that the caller gave, checked against the columns.

        Raises:
            PrivcalcError: if it is no row of the data.
        """
        parts = (
            list(row.values()) if isinstance(row, Mapping) else list(row) if isinstance(row, (tuple, list)) else [row]
        )
        if len(parts) == len(self._leaves):
            arrays = [errors.array(name, part) for part in parts]
            with contextlib.suppress(ValueError, TypeError):
                arrays = [part.astype(leaf.dtype) for part, leaf in zip(arrays, self._leaves, strict=True)]
                if [part.shape for part in arrays] == [leaf.shape[1:] for leaf in self._leaves]:
                    return Record(name, tuple(arrays))
        shapes = ", ".join(f"{leaf.shape[1:]} of {leaf.dtype}" for leaf in self._leaves)
        raise PrivcalcError(f"{name}: must be a row of every array of the data, of shapes {shapes}")

    def head(self, size: int, *extras: Row, changed: bool = False) -> Any:
        """The first records, or as many others, and some after them, in the form that the data were given in."""
        arrays = [
            np.concatenate(
                [
                    _others(leaf[:size]) if changed else leaf[:size],
                    *(np.asarray(extra[i])[None].astype(leaf.dtype) for extra in extras),
                ]
            )
            for i, leaf in enumerate(self._leaves)
        ]
        if self._names is not None:
            return dict(zip(self._names, arrays, strict=True))
        return arrays[0] if self._kind is np.ndarray else arrays if self._kind is list else tuple(arrays)

    def labels(self) -> Iterator[tuple[int, Any]]:
        """For each array of whole numbers or texts with one per record: its place, and some of its values."""
        for i, leaf in enumerate(self._leaves):
            if leaf.ndim == 1 and leaf.dtype.kind in "biuUS":
                yield from ((i, value) for value in np.unique(leaf)[:LABELS])

    @property
    def real(self) -> list[int]:
        """The places of arrays of floats."""
        return [i for i, leaf in enumerate(self._leaves) if leaf.dtype.kind == "f"]


def hostile(table: Table, *, finite: bool) -> list[Record]:
    """Records that show most: present, present twice, large, empty and missing ones, of every label.

    Args:
        table: the data.
        finite: whether records with NaN or ∞ cannot occur, because they are refused before.
    """
    last, first = table.row(len(table) - 1), table.row(0)
    records = [Record("the last record", last), Record("a copy of the first record", first)]
    with np.errstate(over="ignore", invalid="ignore"):
        for factor in LARGE:
            row = _with(table, last, lambda x, f=factor: np.nan_to_num(x * f, posinf=np.finfo(x.dtype).max))
            records.append(Record(f"the last record times {factor:g}", row))
    records.append(Record("zeros", _with(table, last, np.zeros_like)))
    if not finite:
        records.append(Record("NaN", _with(table, last, lambda x: np.full_like(x, np.nan))))
        records.append(Record("infinite", _with(table, last, lambda x: np.full_like(x, np.inf))))
    for place, value in table.labels():
        for record in (records[0], records[2]):
            row = tuple(np.asarray(value) if i == place else part for i, part in enumerate(record.row))
            records.append(Record(f"{record.name}, with {value}", row))
    return (
        records if table.real else [record for record in records if not record.name.startswith("the last record times")]
    )


def moved(table: Table, record: Record, rng: np.random.Generator) -> Record:
    """Another one, not far from it."""

    def shift(x: NDArray[Any]) -> NDArray[Any]:
        size = float(np.abs(x).max(initial=0.0))
        return np.asarray(x + rng.choice([0.1, 1.0, 3.0]) * (size or 1.0) * rng.standard_normal(x.shape))

    with np.errstate(all="ignore"):
        row = _with(table, record.row, shift)
    return Record(f"{record.name.removesuffix(', moved')}, moved", row)


def _array(leaf: Any) -> NDArray[Any]:
    """Return a leaf as an array; tensors of half precision, which NumPy may not have, as float32."""
    kind = f"{getattr(leaf, 'dtype', '')}".removeprefix("torch.")
    array = errors.array("data", leaf)
    return array.astype(np.float32) if kind == "float32" else array


def _others(leaf: NDArray[Any]) -> NDArray[Any]:
    """Return an array of the same shape with other values: reversed, and times −2 where it holds floats."""
    return leaf[::-1] * leaf.dtype.type(-2) if leaf.dtype.kind == "f" else leaf[::-1]


def _with(table: Table, row: Sequence[NDArray[Any]], change: Any) -> Row:
    """A record with other floats."""
    return tuple(
        np.asarray(change(np.asarray(part)), dtype=np.asarray(part).dtype) if i in table.real else part
        for i, part in enumerate(row)
    )
