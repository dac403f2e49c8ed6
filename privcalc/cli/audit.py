"""``privcalc audit NORMS``: per-record ε, a summary, quantiles per group and the picture, from a file of norms.

A table (Parquet, Arrow/Feather) has the columns record, step (whole numbers from 0), norm_ratio (norm of the clipped contribution
over the clip norm, in [0, 1]) and optionally group; the rows of a step are together. It is read in row groups, so it may exceed
memory. An array (.npy, or "norm_ratio" and optionally "group" in .npz) has one row per step and one column per record.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors, pictures
from privcalc.audit.realised import RealisedLosses
from privcalc.audit.sensitive import QUANTILES, WARNING, RealisedValues
from privcalc.files import regular, whole

Batch = dict[str, NDArray[Any]]


def add_parser(commands: Any) -> None:
    """Hook the command into the command line."""
    text = "per-record epsilon, summary and picture, from norms of clipped contributions"
    parser = commands.add_parser(
        "audit", help=text, description=f"{text}. {__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("norms", type=Path, metavar="NORMS", help=".parquet, .arrow, .feather, .npy or .npz")
    parser.add_argument("--noise-multiplier", type=float, required=True, help="noise standard deviation / clip norm")
    parser.add_argument("--rate", type=float, default=1.0, help="Poisson sampling rate (default 1: full batches)")
    parser.add_argument("--delta", type=float, required=True, help="δ, for instance 1e-5")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the report goes")
    parser.add_argument("--steps", type=int, help="steps of the run; those without a row are charged the clip norm")
    parser.add_argument("--patient", action="store_true", help="refine every record, however many see rare large steps only")
    parser.add_argument("--compare", type=Path, metavar="NORMS", help="norms of another run of the same length, for the picture")


def run(args: argparse.Namespace) -> int:
    """The command."""
    options = (args.noise_multiplier, args.rate, args.delta, args.steps, args.patient)
    found, groups, count = audit(args.norms, *options)
    other = audit(args.compare, *options)[0] if args.compare else None
    args.out.mkdir(parents=True, exist_ok=True)
    summary = _summary(found, groups, args, count)
    _write(args.out / "epsilon.parquet", found, groups)
    picture = pictures.realised({"this run": found} | ({} if other is None else {"compared run": other}), delta=args.delta)
    pictures.save(picture, args.out / "epsilon.png", mode=0o600)
    with whole(args.out / "summary.json", mode=0o600) as file:  # last: where it is, the others are
        file.write((json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode("utf-8"))
    print(f"{found!r}\nwritten: {args.out}/epsilon.parquet, summary.json, epsilon.png; worst case {found.worst:.6g}")
    return 0


def audit(
    path: Path, noise_multiplier: float, rate: float, delta: float, steps: int | None = None, patient: bool = False
) -> tuple[RealisedValues, NDArray[Any] | None, int]:
    """ε of every record.

    Args:
        path: a table or an array, see above.
        noise_multiplier: of every step.
        rate: sampling rate.
        delta: δ.
        steps: length of the run; that of the file if None.
        patient: see ``RealisedLosses.epsilon``.

    Returns:
        ε, the group of every record (or None), and the number of steps.

    Raises:
        PrivcalcError: if it is no regular file, columns are missing, an entry occurs twice, or norms are not in [0, 1].
    """
    regular(path, name="norms")
    read = _from_array if path.suffix in {".npy", ".npz"} else _from_table
    losses, groups, length = read(path, noise_multiplier, rate, steps)
    return losses.epsilon(delta, patient=patient), groups, length


def _from_table(
    path: Path, noise_multiplier: float, rate: float, steps: int | None
) -> tuple[RealisedLosses, NDArray[Any] | None, int]:
    records, length = 0, 0 if steps is None else errors.count("steps", steps, least=1)
    for batch in _batches(path, ("record", "step")):
        if batch["record"].size:
            least = min(int(batch["record"].min()), int(batch["step"].min()))
            records = max(records, int(batch["record"].max()) + 1)
            last = int(batch["step"].max()) + 1
            if least < 0 or (steps is not None and last > steps):
                raise errors.PrivcalcError(f"step, record: must be from 0, and step below {steps}")
            length = max(length, last)
    losses = RealisedLosses(max(records, 1), noise_multiplier, rate)
    groups: NDArray[Any] | None = None
    waiting: list[tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]] = []
    current, done = 0, np.zeros(length, dtype=bool)

    def close(step: int) -> None:
        """All rows of a step are there."""
        record = np.concatenate([r for _, r, _ in waiting] or [np.empty(0, dtype=np.int64)])
        ratio = np.concatenate([v for _, _, v in waiting] or [np.empty(0)])
        waiting.clear()
        if done[step]:
            raise errors.PrivcalcError(f"step = {step}: its rows must be together in the file (sort it by step)")
        done[step] = True
        order = np.argsort(record, kind="stable")
        whole = record.size == records and bool((record[order] == np.arange(records)).all())
        losses.update(ratio[order], indices=None if whole else record[order])

    for batch in _batches(path, ("record", "step", "norm_ratio", "group")):
        if "group" in batch:
            if groups is None:
                groups = np.full(losses.records, "", dtype=object)
            groups[batch["record"]] = batch["group"]
        steps_here = batch["step"]
        edges = np.flatnonzero(np.diff(steps_here)) + 1
        for part in np.split(np.arange(steps_here.size), edges):
            if part.size:
                if waiting and int(steps_here[part[0]]) != current:
                    close(current)
                current = int(steps_here[part[0]])
                waiting.append((steps_here[part], batch["record"][part], batch["norm_ratio"][part]))
    if waiting:
        close(current)
    if missing := int((~done).sum()):
        losses.update(np.empty(0), indices=np.empty(0, dtype=np.intp), steps=missing)
    return losses, groups, length


def _from_array(
    path: Path, noise_multiplier: float, rate: float, steps: int | None
) -> tuple[RealisedLosses, NDArray[Any] | None, int]:
    groups = None
    try:
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with np.load(path, allow_pickle=False) as file:
                array, groups = file["norm_ratio"], file["group"] if "group" in file.files else None
    except (OSError, ValueError, KeyError, EOFError, MemoryError, OverflowError, TokenError, zipfile.BadZipFile) as error:
        raise errors.PrivcalcError(f"norms = {str(path)!r}: must be an array, in .npz by the name norm_ratio: {error}") from error
    if array.ndim != 2 or not array.shape[1] or (groups is not None and groups.shape != array.shape[1:]):
        raise errors.PrivcalcError(f"norms = {str(path)!r}: must have shape (steps, records), and group (records,)")
    length = array.shape[0] if steps is None else errors.count("steps", steps, least=array.shape[0])
    losses = RealisedLosses(array.shape[1], noise_multiplier, rate)
    for row in array:
        losses.update(row)
    if length > array.shape[0]:
        losses.update(np.empty(0), indices=np.empty(0, dtype=np.intp), steps=length - array.shape[0])
    return losses, groups, length


def extra(name: str) -> Any:
    """A module of the optional extra.

    Raises:
        PrivcalcError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise errors.PrivcalcError(f"{name}: is not installed; pip install 'privcalc[audit]'") from error


def _batches(path: Path, columns: tuple[str, ...]) -> Iterator[Batch]:
    """Row groups as arrays."""
    arrow = extra("pyarrow")
    try:
        if path.suffix == ".parquet":
            file = extra("pyarrow.parquet").ParquetFile(path)
            names = file.schema_arrow.names
            parts = file.iter_batches(batch_size=1 << 20, columns=[name for name in columns if name in names])
        else:
            reader = extra("pyarrow.ipc").open_file(arrow.memory_map(str(path)))
            names = reader.schema.names
            parts = (reader.get_batch(i) for i in range(reader.num_record_batches))
    except (OSError, arrow.ArrowInvalid) as error:
        raise errors.PrivcalcError(f"norms = {str(path)!r}: must be a Parquet or Arrow file: {error}") from error
    if absent := {"record", "step", "norm_ratio"} - set(names):
        raise errors.PrivcalcError(
            f"norms = {str(path)!r}: must have the columns record, step, norm_ratio; {sorted(absent)} missing"
        )
    for part in parts:
        found = {name: part.column(name).to_numpy(zero_copy_only=False) for name in columns if name in part.schema.names}
        for name in ("record", "step"):
            if found[name].dtype.kind not in "iu":
                raise errors.PrivcalcError(f"{name}: must be whole numbers, none missing")
        yield found


def _summary(found: RealisedValues, groups: NDArray[Any] | None, args: argparse.Namespace, count: int) -> dict[str, Any]:
    """The JSON summary; ∞ is null."""

    def numbers(values: NDArray[Any]) -> dict[str, Any]:
        quantiles = np.quantile(values, QUANTILES)
        cells = {f"{level:g}": float(q) if math.isfinite(q) else None for level, q in zip(QUANTILES, quantiles, strict=True)}
        return {"records": int(values.size), "quantiles": cells}

    values = np.asarray(found)
    summary: dict[str, Any] = {
        "warning": WARNING,
        "what": found.what,
        "grade": found.grade,
        "relation": str(found.relation),
        "noise_multiplier": args.noise_multiplier,
        "rate": args.rate,
        "delta": args.delta,
        "steps": count,
        "worst_case_epsilon": found.worst if math.isfinite(found.worst) else None,
        "all": numbers(values),
    }
    if groups is not None:
        summary["groups"] = {str(group): numbers(values[groups == group]) for group in dict.fromkeys(groups.tolist())}
    return summary


def _write(path: Path, found: RealisedValues, groups: NDArray[Any] | None) -> None:
    arrow, parquet = extra("pyarrow"), extra("pyarrow.parquet")
    columns: dict[str, Any] = {"record": np.arange(len(found)), "epsilon": np.asarray(found)}
    if groups is not None:
        columns["group"] = [str(group) for group in groups]
    table = arrow.table(columns).replace_schema_metadata({"warning": WARNING, "grade": found.grade, "what": found.what})
    with whole(path, mode=0o600) as file:
        parquet.write_table(table, file, row_group_size=1 << 20)
