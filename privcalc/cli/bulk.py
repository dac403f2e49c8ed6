"""``privcalc bulk TABLE``: ε of a table of runs, line by line, in one process per core."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import click
import numpy as np
from numpy.typing import NDArray

from privcalc import bulk, parts
from privcalc.cli.options import OPTIONS, RELATION, Answered, Command, Source, engine_options, progress
from privcalc.errors import PrivcalcError
from privcalc.files import regular, whole
from privcalc.numerics.floats import Floats
from privcalc.relation import Relation
from privcalc.terminal import INPUT

NEW = ("epsilon_lower", "epsilon_upper", "relation", "error")
UNLIKE = ("batch_size", "dataset_size")
"""Options of samplers that are remarks in many tables."""

OTHER = {"sampler", *OPTIONS} - {*bulk.COLUMNS, *UNLIKE}
"""What ``privcalc epsilon`` knows of other samplers: a line that has it asks for something else."""
Write = Callable[[IO[bytes], dict[str, Any]], None]


@click.command("bulk", cls=Command)
@click.argument("table", type=Source(Path))
@click.option("--out", type=Path, required=True, metavar="FILE", help="Where the table goes, of the same kind.")
@engine_options(f"{bulk.PART} answers at a time (default: local for up to as many, else processes)")
@RELATION
def bulk_(table: Path, out: Path, engine: parts.Engine | None, relation: str) -> Answered:
    """ε of every line of a table (.csv, .csv with tabs as .tsv, .parquet).

    Its columns are noise_multiplier, sample_rate, steps, delta, and any others. The table is written with four more:
    both ends of ε, the relation, and why a line has no answer: its ε is then inf, and the exit status 2.
    """
    if out.suffix != table.suffix or out.resolve() == table.resolve():
        raise PrivcalcError(f"--out = {str(out)!r}: must be another file, whose name ends in {table.suffix!r}, too")
    read = {".csv": _text, ".tsv": _text, ".parquet": _parquet}.get(table.suffix)
    if read is None:
        raise PrivcalcError(f"table = {str(table)!r}: must be a table (.csv, .tsv, .parquet)")
    (noise, rate, steps, delta), places, words, write = read(regular(table, name="table"))
    more: dict[str, Any] = {"engine": engine, "folder": (kept := Path(f"{out}.parts")), "progress": progress("bulk")}
    found = bulk.epsilons(noise, rate, steps, delta, relation=Relation(relation), **more)
    lines = [own or text.partition(": ")[2] for own, text in zip(words, found["error"].tolist(), strict=True)]
    lines = [text and f"line {number}: {text}" for number, text in zip(places, lines, strict=True)]
    upper = np.where([bool(text) for text in lines], np.inf, found["upper"])
    lower = np.where([bool(text) for text in lines], 0.0, found["lower"])
    with whole(out) as file:
        write(file, dict(zip(NEW, (lower, upper, [relation] * len(lines), lines), strict=True)))
    bulk.remove(kept)
    bad = [text for text in lines if text]
    told = {"rows": len(lines), "answered": len(lines) - len(bad), "relation": relation, "out": str(out)}
    text = f"{told['answered']} of {len(lines)} lines answered: {out}"
    return Answered(told, text, *((INPUT, f"{len(bad)} lines without an answer; {bad[0]}") if bad else ()))


def _checked(names: list[str]) -> None:
    """Raise PrivcalcError unless the columns are there, once, and those that are added are not."""
    if absent := [name for name in bulk.COLUMNS if names.count(name) != 1]:
        raise PrivcalcError(
            f"table: must have the columns {', '.join(bulk.COLUMNS)}, once each; has not {', '.join(absent)}"
        )
    if there := set(NEW) & set(names):
        raise PrivcalcError(f"table: must not have the columns {', '.join(sorted(there))}, which are added")
    if other := OTHER & {name.lower() for name in names}:
        raise PrivcalcError(
            f"table: must not have the columns {', '.join(sorted(other))}, as no epsilon here depends on them: all "
            "lines are Gaussian steps on Poisson samples, and one record's. Ask privcalc epsilon --sampler, "
            "or rename what is a remark"
        )


def _text(path: Path) -> tuple[list[Floats], list[int], list[str], Write]:
    """Read a text's four columns, their lines, and why one is unreadable; and what writes them with more columns."""
    mark = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            reader = csv.reader(file, delimiter=mark, strict=True)
            lines, rows = [], []
            names = [name.strip() for name in next(reader, [])]
            for row in reader:
                if row:  # not an empty line
                    lines.append(reader.line_num)
                    rows.append(row)
        except (csv.Error, UnicodeError) as error:
            raise PrivcalcError(
                f"table = {str(path)!r}: must be text in UTF-8 with a line of names: {error}"
            ) from error
    _checked(names)
    numbers, words = np.full((len(bulk.COLUMNS), len(rows)), np.nan), [""] * len(rows)
    places = [names.index(name) for name in bulk.COLUMNS]
    for i, row in enumerate(rows):
        if len(row) != len(names):
            words[i] = f"must have {len(names)} columns, has {len(row)}"
            continue
        for k, place in enumerate(places):
            try:
                numbers[k, i] = float(row[place])
            except ValueError:
                words[i] = words[i] or f"{bulk.COLUMNS[k]} = {row[place]!r}: must be a number"

    def write(file: IO[bytes], more: dict[str, Any]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        to = csv.writer(text, delimiter=mark, lineterminator=os.linesep)
        to.writerow([*names, *more])
        columns = (value.tolist() if isinstance(value, np.ndarray) else value for value in more.values())
        for row, own in zip(rows, zip(*columns, strict=True), strict=True):
            to.writerow([*(row + [""] * len(names))[: len(names)], *own])
        text.detach()

    return list(numbers), lines, words, write


def _parquet(path: Path) -> tuple[list[NDArray[Any]], list[int], list[str], Write]:
    """The same of a Parquet file; its first row is number 0."""
    arrow, parquet = parts.extra("pyarrow", "audit"), parts.extra("pyarrow.parquet", "audit")
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise PrivcalcError(f"table = {str(path)!r}: must be a whole Parquet file: {error}") from error
    _checked(table.column_names)
    columns = [table.column(name).to_numpy() for name in bulk.COLUMNS]

    def write(file: IO[bytes], more: dict[str, Any]) -> None:
        found = table
        for name, value in more.items():
            found = found.append_column(name, arrow.array(value))
        parquet.write_table(found, file)

    return columns, list(range(len(table))), [""] * len(table), write
