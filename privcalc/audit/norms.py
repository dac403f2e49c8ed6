"""Files of norms of clipped contributions: a table or an array.

A table (Parquet, Arrow/Feather) has the columns record, step (whole numbers from 0), norm_ratio (norm of the clipped
contribution over the clip norm, in [0, 1]) and optionally group; the rows of a step are together. It is read in row
groups, so it may exceed memory. An array (.npy, or "norm_ratio" and optionally "group" in .npz) has one row per step
and one column per record; with more rows than columns, --steps must say how many steps there were, or this warns.
Given the clip norm, both may have norms as they are instead.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.audit.realised import RealisedLosses
from privcalc.files import archive, regular
from privcalc.parts import extra

__all__ = ["read_norms"]

ARRAYS, TABLES = (".npy", ".npz"), (".parquet", ".arrow", ".feather")
"""The ends of the names of files that are read."""

Rows = dict[str, NDArray[Any]]
Found = tuple[RealisedLosses, NDArray[Any] | None, int]


def read_norms(
    path: Path, noise_multiplier: float, rate: float, steps: int | None = None, clip_norm: float | None = None
) -> Found:
    """The losses of a run whose norms are in a file; steps that it lacks are charged the clip norm.

    Args:
        path: a table or an array, see above.
        noise_multiplier: of every step.
        rate: sampling rate.
        steps: length of the run; that of the file if None.
        clip_norm: if given, what the file has are norms as they are, not over the clip norm.

    Returns:
        The losses, the group of every record (or None), and the number of steps.

    Raises:
        PrivcalcError: if it is no regular file, columns are missing, an entry occurs twice, or norms are not in [0, 1].
    """
    if path.suffix not in ARRAYS + TABLES:
        raise errors.PrivcalcError(
            f"norms = {str(path)!r}: must be a table ({', '.join(TABLES)}) with the columns record, step and "
            f"norm_ratio, or an array ({', '.join(ARRAYS)}) with one row per step and one column per record. Of text "
            "such as CSV: of a table, with pandas, read_csv('norms.csv').to_parquet('norms.parquet'); of bare numbers, "
            "numpy.save('norms.npy', numpy.loadtxt('norms.csv', delimiter=','))"
        )
    regular(path, name="norms")
    read = _from_array if path.suffix in ARRAYS else _from_table
    return read(path, noise_multiplier, rate, steps, clip_norm)


def _from_table(path: Path, noise_multiplier: float, rate: float, steps: int | None, clip_norm: float | None) -> Found:
    records, length = _extent(path, steps)
    losses, groups = RealisedLosses(max(records, 1), noise_multiplier, rate, clip_norm=clip_norm), None
    done = np.zeros(length, dtype=bool)
    for step, rows in _steps(path):
        if done[step]:
            raise errors.PrivcalcError(f"step = {step}: its rows must be together in the file (sort it by step)")
        done[step] = True
        order = np.argsort(rows["record"], kind="stable")
        record = rows["record"][order]
        everyone = record.size == records and bool((record == np.arange(records)).all())
        losses.update(rows["norm_ratio"][order], indices=None if everyone else record)
        if "group" in rows:
            groups = np.full(losses.records, "", dtype=object) if groups is None else groups
            groups[rows["record"]] = rows["group"]
    _charge(losses, int((~done).sum()))
    return losses, groups, length


def _extent(path: Path, steps: int | None) -> tuple[int, int]:
    """How many records and steps: one more than the largest number of each."""
    records, length = 0, 0 if steps is None else errors.count("steps", steps, least=1)
    for rows in _batches(path, ("record", "step")):
        last = int(rows["step"].max()) + 1
        if min(rows["record"].min(), rows["step"].min()) < 0 or (steps is not None and last > steps):
            below = "" if steps is None else f", and step below {steps}"
            raise errors.PrivcalcError(f"step, record: must be from 0{below}")
        records, length = max(records, int(rows["record"].max()) + 1), max(length, last)
    return records, length


def _steps(path: Path) -> Iterator[tuple[int, Rows]]:
    """Every step with its rows, put together from the row groups that they are spread over."""
    for step, parts in itertools.groupby(_pieces(path), key=lambda piece: piece[0]):
        pieces = [rows for _, rows in parts]
        yield step, {name: np.concatenate([rows[name] for rows in pieces]) for name in pieces[0]}


def _pieces(path: Path) -> Iterator[tuple[int, Rows]]:
    """Rows of one step in one row group."""
    for rows in _batches(path, ("record", "step", "norm_ratio", "group")):
        step = rows.pop("step")
        edges = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), step.size]
        for start, stop in itertools.pairwise(edges):
            yield int(step[start]), {name: column[start:stop] for name, column in rows.items()}


def _batches(path: Path, columns: tuple[str, ...]) -> Iterator[Rows]:
    """Row groups as arrays, none of them empty."""
    arrow = extra("pyarrow", "audit")
    try:
        if path.suffix == ".parquet":
            file = extra("pyarrow.parquet", "audit").ParquetFile(path)
            names = file.schema_arrow.names
            parts = file.iter_batches(batch_size=1 << 20, columns=[name for name in columns if name in names])
        else:
            reader = extra("pyarrow.ipc", "audit").open_file(arrow.memory_map(str(path)))
            names = reader.schema.names
            parts = (reader.get_batch(i) for i in range(reader.num_record_batches))
    except (OSError, arrow.ArrowInvalid) as error:
        raise errors.PrivcalcError(f"norms = {str(path)!r}: must be a Parquet or Arrow file: {error}") from error
    if absent := {"record", "step", "norm_ratio"} - set(names):
        raise errors.PrivcalcError(
            f"norms = {str(path)!r}: must have the columns record, step, norm_ratio; {sorted(absent)} missing"
        )
    for part in parts:
        found = {
            name: part.column(name).to_numpy(zero_copy_only=False) for name in columns if name in part.schema.names
        }
        for name in ("record", "step"):
            if found[name].dtype.kind not in "iu":
                raise errors.PrivcalcError(f"{name}: must be whole numbers, none missing")
        if part.num_rows:
            yield found


def _from_array(path: Path, noise_multiplier: float, rate: float, steps: int | None, clip_norm: float | None) -> Found:
    groups = None
    try:
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with np.load(archive(path, name="norms"), allow_pickle=False) as file:
                array, groups = file["norm_ratio"], file["group"] if "group" in file.files else None
    except errors.PrivcalcError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        MemoryError,
        OverflowError,
        TokenError,
        zipfile.BadZipFile,
    ) as error:
        raise errors.PrivcalcError(
            f"norms = {str(path)!r}: must be an array, in .npz by the name norm_ratio: {error}"
        ) from error
    if array.ndim != 2 or not array.shape[1] or (groups is not None and groups.shape != array.shape[1:]):
        raise errors.PrivcalcError(
            f"norms = {str(path)!r}: must have shape (steps, records), and group (records,); has {array.shape}"
            + ("" if groups is None else f", and {groups.shape}")
        )
    length = _length(path, array.shape, steps)
    losses = RealisedLosses(array.shape[1], noise_multiplier, rate, clip_norm=clip_norm)
    for row in array:
        losses.update(row)
    _charge(losses, length - array.shape[0])
    return losses, groups, length


def _length(path: Path, shape: tuple[int, ...], steps: int | None) -> int:
    """The number of steps; an array of which they are the columns is refused."""
    rows, columns = shape
    length = rows if steps is None else errors.count("steps", steps, least=1)
    text = f"norms = {str(path)!r}: has shape {(rows, columns)}, one row per step and one column per record"
    if length < rows or (columns == length != rows):
        turned = "; it may be the other way round: transpose it" if columns == length else ""
        raise errors.PrivcalcError(f"steps = {steps!r}: must be that of the file, or more; {text}{turned}")
    return length


def _charge(losses: RealisedLosses, missing: int) -> None:
    """Steps of which the file says nothing: the clip norm, for everyone."""
    if missing:
        losses.update(np.empty(0), indices=np.empty(0, dtype=np.intp), steps=missing)
