"""``privcalc plan``: batch sizes, epochs and noise that meet a target."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcalc import pictures
from privcalc.calibration.choices import plan
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation


def add_command(commands: Any) -> None:
    """Hook the command into the command line."""
    text = "batch sizes, epochs and noise that meet a target, and what each buys"
    parser = commands.add_parser("plan", help=text, description=text)
    parser.add_argument("--records", type=int, required=True, help="how many records there are; must be public")
    parser.add_argument("--epsilon", type=float, required=True, help="ε of the target")
    parser.add_argument("--delta", type=float, required=True, help="δ of the target")
    parser.add_argument("--epochs", type=float, nargs="+", help="passes over the data (default 1 3 10 30 100)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help="expected sizes of Poisson batches (default 0.1 %% to 100 %%)")
    parser.add_argument(
        "--relation", choices=[one.value for one in Relation], default=ADD_OR_REMOVE_ONE.value, help="default %(default)s"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw it (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    """The command; returns the exit status."""
    choices = plan(
        records=args.records,
        epsilon=args.epsilon,
        delta=args.delta,
        epochs=args.epochs,
        batch_sizes=args.batch_sizes,
        relation=Relation(args.relation),
    )
    if args.picture is not None:
        figure = pictures.plan(choices)
        pictures.save(figure, args.picture)
    target = {"records": args.records, "epsilon": args.epsilon, "delta": args.delta, "relation": args.relation}
    if args.json:
        print(json.dumps({**target, "choices": [asdict(choice) for choice in choices]}, allow_nan=False))
        return 0
    print(f"{args.records} records, (ε, δ) = ({args.epsilon:g}, {args.delta:g}) under {args.relation}; Poisson batches")
    titles = ("epochs", "batch", "rate", "steps", "noise multiplier", "noise/step", "noise/run", "× largest batch")
    print(" ".join(f"{title:>{max(len(title), 9)}}" for title in titles))
    for one in choices:
        cells = (f"{one.epochs:g}", f"{one.batch_size}", f"{one.sample_rate:.4g}", f"{one.steps}", f"{one.noise_multiplier:.6g}")
        more = (f"{one.step_noise:.3g}", f"{one.run_noise:.3g}", f"{one.relative:.2f}")
        print(" ".join(f"{cell:>{max(len(title), 9)}}" for cell, title in zip((*cells, *more), titles, strict=True)))
    print("noise/step: in the average of one batch; noise/run: in the average over all steps; both in clip norms, per coordinate")
    return 0
