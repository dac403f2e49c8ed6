"""``privcalc audit NORMS``: per-record ε, a summary, quantiles per group and the picture, from a file of norms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from privcalc import pictures
from privcalc.audit import norms
from privcalc.audit.blocks import BLOCK, Answer, epsilons
from privcalc.audit.norms import read_norms
from privcalc.audit.sensitive import QUANTILES, WARNING, RealisedValues
from privcalc.cli.options import DELTA, NOISE, Answered, Command, Source, engine_options, finite, progress
from privcalc.files import folder, whole
from privcalc.parts import Engine, Parts, extra
from privcalc.serial import indented


@click.command(
    cls=Command, help=f"Per-record ε, summary and picture, from norms of clipped contributions.\n\n\b\n{norms.__doc__}"
)
@click.argument("table", metavar="NORMS", type=Source(Path))
@NOISE
@click.option(
    *("--sample-rate", "--rate"),  # the second is its name in 0.1.0
    type=float,
    default=1.0,
    show_default=True,
    help="Probability with which each record takes part in a step, independently.",
)
@DELTA
@click.option("--out", required=True, metavar="FOLDER", help="Where the report goes.")
@click.option("--steps", type=int, help="Steps of the run; those without a row are charged the clip norm.")
@click.option("--clip-norm", type=float, help="The clip norm, where norms are as they are, not over it.")
@click.option("--patient", is_flag=True, help="Refine every record, however many see rare large steps only.")
@click.option("--compare", type=Path, metavar="NORMS", help="Norms of another run of the same length, for the picture.")
@engine_options(f"blocks of {BLOCK:,} records, as many as the table has; without it all records are in memory at once")
def audit(table: Path, out: str, compare: Path | None, engine: Engine | None, **asked: Any) -> Answered:
    """Write the report."""
    target = folder(out, name="--out")  # before the work, which may take long
    kept: list[Parts] = []
    found, groups, count = _epsilon(table, engine, target, kept, **asked)
    runs = {"this run": found}
    if compare:
        runs["compared run"] = _epsilon(compare, engine, target, kept, **asked)[0]
    target.mkdir(parents=True, exist_ok=True)
    summary = _summary(found, groups, count, asked)
    _write(target / "epsilon.parquet", found, groups)
    pictures.save(pictures.realised(runs, delta=asked["delta"]), target / "epsilon.png", mode=0o600)
    with whole(target / "summary.json", mode=0o600) as file:  # last: where it is, the others are
        file.write(indented(summary).encode("utf-8"))
    for work in kept:
        work.remove()
    text = f"{found!r}\nwritten: {out}/epsilon.parquet, summary.json, epsilon.png; worst case {found.worst:.6g}"
    return Answered(summary, text)


def _epsilon(
    path: Path,
    engine: Engine | None,
    out: Path,
    kept: list[Parts],
    noise_multiplier: float,
    sample_rate: float,
    delta: float,
    patient: bool,
    **more: Any,
) -> Answer:
    """ε and group of every record, and the number of steps; parts that were kept on the way are added to ``kept``."""
    if engine is None:
        losses, groups, length = read_norms(path, noise_multiplier, sample_rate, **more)
        return losses.epsilon(delta, patient=patient), groups, length
    more |= {"out": out / "parts", "engine": engine, "progress": progress("audit")}
    found, work = epsilons(path, noise_multiplier, delta, rate=sample_rate, patient=patient, **more)
    kept.append(work)
    return found


def _summary(found: RealisedValues, groups: NDArray[Any] | None, count: int, asked: dict[str, Any]) -> dict[str, Any]:
    """The JSON summary; ∞ is null."""

    def numbers(values: NDArray[Any]) -> dict[str, Any]:
        quantiles = np.quantile(values, QUANTILES)
        cells = {f"{level:g}": finite(q) for level, q in zip(QUANTILES, quantiles.tolist(), strict=True)}
        return {"records": int(values.size), "quantiles": cells}

    values = np.asarray(found)
    summary: dict[str, Any] = {
        "warning": WARNING,
        "what": found.what,
        "grade": found.grade,
        "relation": str(found.relation),
        "noise_multiplier": asked["noise_multiplier"],
        "rate": asked["sample_rate"],
        **({} if asked["clip_norm"] is None else {"clip_norm": asked["clip_norm"]}),
        "delta": asked["delta"],
        "steps": count,
        "worst_case_epsilon": finite(found.worst),
        "all": numbers(values),
    }
    if groups is not None:
        summary["groups"] = {str(group): numbers(values[groups == group]) for group in dict.fromkeys(groups.tolist())}
    return summary


def _write(path: Path, found: RealisedValues, groups: NDArray[Any] | None) -> None:
    arrow, parquet = extra("pyarrow", "audit"), extra("pyarrow.parquet", "audit")
    columns: dict[str, Any] = {"record": np.arange(len(found)), "epsilon": np.asarray(found)}
    if groups is not None:
        columns["group"] = [str(group) for group in groups]
    table = arrow.table(columns).replace_schema_metadata({"warning": WARNING, "grade": found.grade, "what": found.what})
    with whole(path, mode=0o600) as file:
        parquet.write_table(table, file, row_group_size=1 << 20)
