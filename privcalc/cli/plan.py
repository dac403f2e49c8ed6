"""``privcalc plan``: batch sizes, epochs and noise that meet a target."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcalc import pictures
from privcalc.calibration.choices import plan
from privcalc.calibration.noises import compare_noise
from privcalc.cli.options import add_options
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError
from privcalc.relation import Relation
from privcalc.rounding import upward
from privcalc.terminal import answer

TITLES = ("epochs", "batch", "rate", "steps", "noise multiplier", "noise/step", "noise/run", "× largest batch")


def add(commands: Any) -> None:
    """Add the command."""
    text = "batch sizes, epochs and noise that meet a target, and what each buys"
    parser = commands.add_parser("plan", help=text, description=text)
    parser.set_defaults(run=run)
    parser.add_argument("--records", type=int, required=True, help="how many records there are; must be public")
    add_options(parser, "--epsilon", "--delta")
    parser.add_argument("--epochs", type=float, nargs="+", help="passes over the data (default 1 3 10 30 100)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help="expected sizes of Poisson batches (default 0.1 %% to 100 %%)")
    add_options(parser, "--relation")
    parser.add_argument("--correlated", action="store_true", help="compare independent, banded and correlated noise, for each")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw it (needs matplotlib)")
    add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """List the choices; returns the exit status."""
    if args.correlated:
        return _compare(args)
    choices = plan(
        records=args.records,
        epsilon=args.epsilon,
        delta=args.delta,
        epochs=args.epochs,
        batch_sizes=args.batch_sizes,
        relation=Relation(args.relation),
    )
    if args.picture is not None:
        pictures.save(pictures.plan(choices), args.picture)
    target = {"records": args.records, "epsilon": args.epsilon, "delta": args.delta, "relation": args.relation}
    goal = Guarantee(epsilon=args.epsilon, delta=args.delta, relation=Relation(args.relation))
    lines = [
        f"{args.records} records, {goal}; Poisson batches",
        _line(TITLES),
    ]
    for one in choices:
        cells = (
            f"{one.epochs:g}",
            f"{one.batch_size}",
            f"{one.sample_rate:.4g}",
            f"{one.steps}",
            upward(one.noise_multiplier, ".6g"),
        )
        lines.append(_line((*cells, f"{one.step_noise:.3g}", f"{one.run_noise:.3g}", f"{one.relative:.2f}")))
    lines.append(
        "noise/step: in the average of one batch; noise/run: in the average over all steps; both in clip norms, per coordinate"
    )
    return answer({**target, "choices": [asdict(choice) for choice in choices]}, "\n".join(lines), as_json=args.json)


NOISES = ("epochs", "batch", "noise", "bands", "noise multiplier", "error of sums")


def _compare(args: argparse.Namespace) -> int:
    """Three kinds of noise for each number of epochs and each batch."""
    if args.epochs is None or args.batch_sizes is None or any(epochs != int(epochs) for epochs in args.epochs):
        raise PrivcalcError("epochs, batch_sizes: must be given with --correlated, epochs as whole numbers")
    target = {"records": args.records, "epsilon": args.epsilon, "delta": args.delta, "relation": Relation(args.relation)}
    found = [
        (epochs, batch, compare_noise(epochs=int(epochs), batch_size=batch, **target))
        for epochs in args.epochs
        for batch in args.batch_sizes
    ]
    if args.picture is not None:
        panels = {f"{epochs:g} epochs, batches of {batch}": rows for epochs, batch, rows in found}
        pictures.save(pictures.compared(panels), args.picture)
    goal = Guarantee(epsilon=args.epsilon, delta=args.delta, relation=target["relation"])
    lines = [f"{args.records} records, {goal}", _line(NOISES, NOISES)]
    choices = []
    for epochs, batch, rows in found:
        for one in rows:
            noise = upward(one.noise_multiplier, ".6g")
            lines.append(_line((f"{epochs:g}", f"{batch}", one.noise, f"{one.bands}", noise, f"{one.error:.3g}"), NOISES))
            told = {"noise": one.noise, "noise_multiplier": one.noise_multiplier, "bands": one.bands, "error": one.error}
            choices.append({"epochs": epochs, "batch_size": batch, **told})
    lines.append("error of sums: root mean square, per coordinate, of the sums of all steps so far, over the batch; in C")
    return answer({**target, "relation": args.relation, "choices": choices}, "\n".join(lines), as_json=args.json)


def _line(cells: tuple[str, ...], titles: tuple[str, ...] = TITLES) -> str:
    widths = (12 if title == "noise" else max(len(title), 9) for title in titles)
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
