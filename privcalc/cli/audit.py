"""``privcalc audit NORMS``: per-record ε, a summary, quantiles per group and the picture, from a file of norms."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import pictures
from privcalc.audit import norms
from privcalc.audit.blocks import BLOCK, Answer, epsilons
from privcalc.audit.norms import read_norms
from privcalc.audit.sensitive import QUANTILES, WARNING, RealisedValues
from privcalc.cli.options import add_engine, add_options, engine_of, progress
from privcalc.files import folder, whole
from privcalc.parts import Parts, extra
from privcalc.serial import indented
from privcalc.terminal import answer


def add(commands: Any) -> None:
    """Add the command."""
    text = "per-record epsilon, summary and picture, from norms of clipped contributions"
    parser = commands.add_parser(
        "audit", help=text, description=f"{text}. {norms.__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(run=run)
    files = ".parquet, .arrow, .feather, .npy or .npz; with --engine .parquet, or a folder of such files"
    parser.add_argument("norms", type=Path, metavar="NORMS", help=files)
    add_options(parser, "--noise-multiplier", "--sample-rate", "--delta")
    hidden = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    parser.add_argument("--rate", type=float, dest="sample_rate", **hidden)  # its name in 0.1.0
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the report goes")
    parser.add_argument("--steps", type=int, help="steps of the run; those without a row are charged the clip norm")
    parser.add_argument("--clip-norm", type=float, help="the clip norm, where norms are as they are, not over it")
    parser.add_argument("--patient", action="store_true", help="refine every record, however many see rare large steps only")
    parser.add_argument("--compare", type=Path, metavar="NORMS", help="norms of another run of the same length, for the picture")
    add_engine(parser, f"blocks of {BLOCK:,} records, as many as the table has; without it all records are in memory at once")
    add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Write the report; returns the exit status."""
    out = folder(args.out, name="--out")  # before the work, which may take long
    kept: list[Parts] = []
    found, groups, count = _epsilon(args.norms, args, out, kept)
    runs = {"this run": found}
    if args.compare:
        runs["compared run"] = _epsilon(args.compare, args, out, kept)[0]
    out.mkdir(parents=True, exist_ok=True)
    summary = _summary(found, groups, args, count)
    _write(out / "epsilon.parquet", found, groups)
    pictures.save(pictures.realised(runs, delta=args.delta), out / "epsilon.png", mode=0o600)
    with whole(out / "summary.json", mode=0o600) as file:  # last: where it is, the others are
        file.write(indented(summary).encode("utf-8"))
    for work in kept:
        work.remove()
    text = f"{found!r}\nwritten: {args.out}/epsilon.parquet, summary.json, epsilon.png; worst case {found.worst:.6g}"
    return answer(summary, text, as_json=args.json)


def _epsilon(path: Path, args: argparse.Namespace, out: Path, kept: list[Parts]) -> Answer:
    """ε and group of every record, and the number of steps; parts that were kept on the way are added to ``kept``."""
    if (engine := engine_of(args)) is not None:
        found, work = epsilons(
            path,
            args.noise_multiplier,
            args.delta,
            out=out / "parts",
            rate=args.sample_rate,
            steps=args.steps,
            clip_norm=args.clip_norm,
            patient=args.patient,
            engine=engine,
            progress=progress(args),
        )
        kept.append(work)
        return found
    losses, groups, length = read_norms(path, args.noise_multiplier, args.sample_rate, args.steps, args.clip_norm)
    return losses.epsilon(args.delta, patient=args.patient), groups, length


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
        "rate": args.sample_rate,
        **({} if args.clip_norm is None else {"clip_norm": args.clip_norm}),
        "delta": args.delta,
        "steps": count,
        "worst_case_epsilon": found.worst if math.isfinite(found.worst) else None,
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
