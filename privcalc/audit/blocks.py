"""Audits of more records than memory has: tables of norms on disk, computed block by block of records.

A block is a range of record numbers. Its ε depend on its own rows alone, whatever files and row groups they are spread
over, and whoever computes it: a contour is shared by the records of a block, so blocks must not follow row groups,
workers or memory. Row groups say which records and steps they have, so that a block reads those alone in which it has
rows.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors, parts
from privcalc.audit.realised import RealisedLosses
from privcalc.audit.sensitive import FILLED, FULL, WARNING, RealisedValues
from privcalc.files import regular
from privcalc.tripwire import Sizes
from privcalc.version import __version__

__all__ = ["BLOCK", "Blocks", "epsilons"]

BLOCK = 1 << 18
"""Records of a block: contours cost ten seconds whether few records share them or many, and memory 2 kB a record."""

WAITING = 1 << 25
"""Rows of a block that may wait for those of earlier steps."""

COLUMNS = ("record", "step", "norm_ratio")

MOST = 1 << 40
"""Numbers of records and steps are below it: names and hashes are not numbers from 0."""

Rows = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any] | None]
Answer = tuple[RealisedValues, NDArray[Any] | None, int]


@dataclass(frozen=True)
class Blocks:
    """What is asked of the records of one block; given its number, it computes them.

    Args:
        paths: the files, as absolute names.
        seen: a digest of them, without which files would be trusted that were changed meanwhile.
        records: of all blocks; numbers from 0.
        steps: length of the run.
        noise_multiplier: of every step.
        rate: sampling rate.
        clip_norm: if norms are as they are, not over the clip norm.
        delta: δ in [0, 1).
        patient: as :meth:`RealisedLosses.epsilon` takes it.
        size: records of a block.
    """

    paths: tuple[str, ...]
    seen: str
    records: int
    steps: int
    noise_multiplier: float
    rate: float
    clip_norm: float | None
    delta: float
    patient: bool
    size: int = BLOCK

    def __call__(self, block: int) -> parts.Arrays:
        """ε of the block's records, and what is known of all records only when all blocks are done."""
        first, last = block * self.size, min((block + 1) * self.size, self.records)
        losses = RealisedLosses(last - first, self.noise_multiplier, self.rate, clip_norm=self.clip_norm)
        sizes, groups = np.zeros(self.steps, dtype=np.int64), None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.PrivcalcWarning)  # the parts say so, once for all of them
            for step, (record, norm, group) in self._rows(first, last):
                sizes[step] = record.size
                losses.update(norm, indices=None if record.size == last - first else record)
                if group is not None:
                    groups = np.full(last - first, "", dtype=object) if groups is None else groups
                    groups[record] = group
            if missing := int((sizes == 0).sum()):
                losses.update(np.empty(0), indices=np.empty(0, dtype=np.intp), steps=missing)
            found = losses.epsilon(self.delta, patient=self.patient)
        _same(self.paths, self.seen)
        told = {"worst": found.worst, "grade": found.grade}
        arrays: parts.Arrays = {"epsilon": np.asarray(found), "sizes": sizes, "told": np.array(json.dumps(told))}
        return arrays if groups is None else {**arrays, "group": groups.astype(np.str_)}

    def _rows(self, first: int, last: int) -> Iterator[tuple[int, Rows]]:
        """The block's rows, step by step, ascending, whatever order the files have."""
        plan = _plan(self.paths, self.seen)
        mine = plan[(plan["high"] >= first) & (plan["low"] < last)]
        mine = mine[np.lexsort((mine["group"], mine["file"], mine["begin"]))]
        waiting: dict[int, list[Rows]] = {}
        rows = 0
        for this, following in zip(mine, [*mine["begin"][1:].tolist(), math.inf], strict=False):
            for step, part in _pieces(self.paths[this["file"]], this, first, last):
                waiting.setdefault(step, []).append(part)
                rows += part[0].size
            if rows > WAITING:
                raise errors.PrivcalcError(
                    f"step: the rows of a step are spread so far over {self.paths[this['file']]!r} that they do not "
                    "fit into memory: sort by step, then record"
                )
            for step in sorted(step for step in waiting if step < following):
                joined = _joined(step, waiting.pop(step), first)
                rows -= joined[0].size
                yield step, joined


def _joined(step: int, pieces: list[Rows], first: int) -> Rows:
    """All rows of a step, by record; numbers of records from that of the block's first."""
    record = np.concatenate([piece[0] for piece in pieces])
    norm = np.concatenate([piece[1] for piece in pieces])
    group = None if pieces[0][2] is None else np.concatenate([piece[2] for piece in pieces if piece[2] is not None])
    if not (np.diff(record) > 0).all():
        order = np.argsort(record, kind="stable")
        record, norm, group = record[order], norm[order], None if group is None else group[order]
        if (twice := np.flatnonzero(np.diff(record) == 0)).size:
            raise errors.PrivcalcError(f"record = {int(record[twice[0]])}: must not have two rows in step {step}")
    return record - first, norm, group


def _pieces(path: str, this: NDArray[Any], first: int, last: int) -> Iterator[tuple[int, Rows]]:
    """The rows of a row group for records from first to below last, by step."""
    with _opened(path) as file:
        names = [*COLUMNS, *({"group"} & set(file.schema_arrow.names))]
        for part in file.iter_batches(batch_size=1 << 20, row_groups=[int(this["group"])], columns=names):
            record, step = (_whole(name, part) for name in ("record", "step"))
            if not record.size:
                continue
            told = (this["low"], this["high"]), (this["begin"], this["end"])
            if any(
                column.min() < low or column.max() > high
                for column, (low, high) in zip((record, step), told, strict=True)
            ):
                raise errors.PrivcalcError(f"norms = {path!r}: must have the rows that its row groups say they have")
            norm = part.column("norm_ratio").to_numpy(zero_copy_only=False)
            group = part.column("group").to_numpy(zero_copy_only=False) if "group" in names else None
            here = np.flatnonzero((record >= first) & (record < last))
            if here.size < record.size:
                record, step, norm, group = record[here], step[here], norm[here], None if group is None else group[here]
            if (np.diff(step) < 0).any():
                order = np.argsort(step, kind="stable")
                record, step, norm, group = (
                    record[order],
                    step[order],
                    norm[order],
                    None if group is None else group[order],
                )
            edges = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), step.size] if step.size else []
            for start, stop in itertools.pairwise(edges):
                rows = slice(start, stop)
                yield int(step[start]), (record[rows], norm[rows], None if group is None else group[rows])


def _whole(name: str, part: Any) -> NDArray[np.int64]:
    column = part.column(name).to_numpy(zero_copy_only=False)
    if column.dtype.kind not in "iu":  # of missing numbers Arrow makes NaN
        raise errors.PrivcalcError(f"{name}: must be whole numbers, none missing")
    return np.asarray(column, dtype=np.int64)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """A Parquet file; what is wrong with it, in its own or in another process, is one error."""
    arrow, parquet = parts.extra("pyarrow", "audit"), parts.extra("pyarrow.parquet", "audit")
    try:
        with parquet.ParquetFile(regular(path, name="norms")) as file:
            yield file
    except (OSError, arrow.ArrowException) as error:
        raise errors.PrivcalcError(f"norms = {path!r}: must be a whole Parquet file: {error}") from error


def _seen(paths: tuple[str, ...]) -> str:
    """A digest of names, sizes, times of change and what the files say of their row groups."""
    found = hashlib.sha256()
    for path in paths:
        state = regular(path, name="norms").stat()
        found.update(f"{path} {state.st_size} {state.st_mtime_ns} ".encode())
        with open(path, "rb") as file:
            file.seek(max(state.st_size - 8, 0))
            size = int.from_bytes(file.read(4), "little") + 8
            file.seek(max(state.st_size - size, 0))
            found.update(file.read(min(size, 1 << 30)))
    return found.hexdigest()


def _same(paths: tuple[str, ...], seen: str) -> None:
    """Raise PrivcalcError if the files are others than those that were seen."""
    if _seen(paths) != seen:
        raise errors.PrivcalcError(f"norms = {paths[0]!r}: must not change while they are read")


@functools.lru_cache(maxsize=4)
def _plan(paths: tuple[str, ...], seen: str) -> NDArray[np.void]:
    """For every row group that has rows: file, number, smallest and largest record, first and last step."""
    _same(paths, seen)
    rows, kinds = [], parts.extra("pyarrow.types", "audit")
    for number, path in enumerate(paths):
        with _opened(path) as file:
            types, told = file.schema_arrow, file.metadata
            if absent := set(COLUMNS) - set(types.names):
                raise errors.PrivcalcError(
                    f"norms = {path!r}: must have the columns record, step, norm_ratio; {sorted(absent)} missing"
                )
            for name in COLUMNS:
                kind = types.field(name).type
                if not (kinds.is_integer(kind) or (name == "norm_ratio" and kinds.is_floating(kind))):
                    raise errors.PrivcalcError(
                        f"{name}: must be {'numbers' if name == 'norm_ratio' else 'whole numbers'}, not {kind}, "
                        f"in {path!r}"
                    )
            columns = {told.schema.column(k).path: k for k in range(told.num_columns)}
            for group in range(told.num_row_groups):
                here = told.row_group(group)
                if here.num_rows:
                    ends = (_ends(file, group, name, here.column(columns[name]).statistics) for name in COLUMNS[:2])
                    rows.append((number, group, *itertools.chain(*ends)))
    return np.array(rows, dtype=[(name, np.int64) for name in ("file", "group", "low", "high", "begin", "end")])


def _ends(file: Any, group: int, name: str, told: Any) -> tuple[int, int]:
    """The smallest and the largest number of a column in a row group: as the file says, or as they are."""
    if told is not None and told.has_min_max and isinstance(told.min, int) and not isinstance(told.min, bool):
        low, high = int(told.min), int(told.max)
    else:
        column = _whole(name, file.read_row_group(group, columns=[name]).combine_chunks())
        low, high = int(column.min()), int(column.max())
    if not 0 <= low <= high < MOST:
        raise errors.PrivcalcError(f"{name} = [{low} … {high}]: must be numbers from 0, below {MOST}")
    return low, high


def epsilons(
    norms: Path,
    noise_multiplier: float,
    delta: float,
    *,
    out: Path,
    rate: float = 1.0,
    steps: int | None = None,
    clip_norm: float | None = None,
    patient: bool = False,
    engine: parts.Engine = parts.LOCAL,
    progress: parts.Progress | None = None,
    size: int = BLOCK,
) -> tuple[Answer, parts.Parts]:
    """ε of every record at δ, as :class:`RealisedLosses` finds it, of tables that need not fit into memory.

    The numbers do not depend on the engine, nor on how the rows are spread over files and row groups. They depend on
    ``size``, in digits in which all of them are upper bounds.

    Args:
        norms: a Parquet file or a folder of them, with the columns record, step, norm_ratio and optionally group, in
            any order; the quicker, the nearer they are to being sorted by step and then record.
        noise_multiplier: noise standard deviation / clip norm of every step.
        delta: δ in [0, 1).
        out: folder of the parts; call ``remove`` when the answer is safe.
        rate: sampling rate.
        steps: length of the run; that of the files if None. Steps without a row are charged the clip norm.
        clip_norm: if given, norms are as they are, not over it.
        patient: whether every record is refined.
        engine: where blocks are computed.
        progress: is told of every block.
        size: records of a block.

    Returns:
        ε, the group of every record (or None) and the number of steps; and the parts.

    Raises:
        PrivcalcError: if files are no such tables, a record has two rows in a step, or norms are not in [0, 1].
    """
    paths = tuple(str(path.resolve()) for path in (sorted(norms.glob("*.parquet")) if norms.is_dir() else [norms]))
    if not paths or (not norms.is_dir() and norms.suffix != ".parquet"):
        raise errors.PrivcalcError(
            f"norms = {str(norms)!r}: must be a Parquet file (.parquet), or a folder with such files, to be computed "
            "in parts; for others leave out --engine, --workers and --scheduler"
        )
    errors.delta("delta", delta)
    errors.count("size", size, least=1)
    seen = _seen(paths)
    plan = _plan(paths, seen)
    if not plan.size:
        raise errors.PrivcalcError(f"norms = {str(norms)!r}: must have rows")
    records, last = (int(plan[name].max()) + 1 for name in ("high", "end"))
    length = last if steps is None else errors.count("steps", steps, least=1)
    if length < last:
        raise errors.PrivcalcError(f"step, record: must be from 0, and step below {length}")
    RealisedLosses(1, noise_multiplier, rate, clip_norm=clip_norm)  # raises where a setting is wrong, before the work
    errors.check_delta(delta, records)
    settings = (noise_multiplier, rate, clip_norm, delta, patient, size)
    blocks = Blocks(paths, seen, records, length, *settings)
    key = json.dumps({"privcalc": __version__, "numpy": np.__version__, "warning": WARNING, **asdict(blocks)})
    work = parts.Parts(blocks, -(-blocks.records // size), out, key, mode=0o600)
    return _together(work.compute(engine, progress), blocks), work


def _together(found: Iterator[parts.Arrays], blocks: Blocks) -> Answer:
    """The answer of all blocks."""
    values, groups = np.empty(blocks.records), None
    sizes, told = np.zeros(blocks.steps, dtype=np.int64), []
    for number, part in enumerate(found):
        here = slice(number * blocks.size, number * blocks.size + part["epsilon"].size)
        values[here] = part["epsilon"]
        sizes += part["sizes"]
        told.append(json.loads(str(part["told"])))
        if "group" in part:
            groups = np.full(blocks.records, "", dtype=object) if groups is None else groups
            groups[here] = part["group"]
    batches = Sizes(blocks.rate, blocks.records)
    for count in sizes[sizes < blocks.records].tolist():
        batches.add(count)
    if batches.doubt is not None:
        errors.warn(batches.doubt)
    grade = FILLED if any(one["grade"] == FILLED for one in told) else FULL
    answer = RealisedValues(f"epsilon at delta = {blocks.delta:g}", values, told[0]["worst"], grade)
    return answer, groups, blocks.steps
