"""``privcalc plan``: which batch sizes, epochs and noise meet a target, and what each buys.

Averaged over a batch of expected size B, noise of standard deviation z·C becomes z/B in units of the clip norm C: the noise of
one step. Averaged over all T steps it is z/(B·√T): what a model that barely moves would feel of the whole run.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privcalc import dpsgd, errors, pictures
from privcalc.errors import PrivcalcError
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation

__all__ = ["Choice", "plan"]

EPOCHS = (1.0, 3.0, 10.0, 30.0, 100.0)
SHARES = (0.001, 0.01, 0.1, 1.0)


@dataclass(frozen=True)
class Choice:
    """One way to meet the target.

    Attributes:
        epochs: passes over the data, in expectation.
        batch_size: expected batch size.
        sample_rate: probability with which each record takes part in a step.
        steps: number of steps.
        noise_multiplier: the least that was proved to meet the target.
        step_noise: noise in the average of one batch, in clip norms, per coordinate.
        run_noise: noise in the average over all steps, in clip norms, per coordinate.
        relative: step_noise over that of the largest batch listed for the same epochs: what a smaller batch costs.
    """

    epochs: float
    batch_size: int
    sample_rate: float
    steps: int
    noise_multiplier: float
    step_noise: float
    run_noise: float
    relative: float


def plan(
    *,
    records: int,
    epsilon: float,
    delta: float,
    epochs: Sequence[float] | None = None,
    batch_sizes: Sequence[int] | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> list[Choice]:
    """Calibrate every combination of epochs and batch size.

    Args:
        records: how many records there are; must be public.
        epsilon: ε of the target.
        delta: δ of the target.
        epochs: passes over the data; default 1, 3, 10, 30, 100.
        batch_sizes: expected sizes of Poisson batches; default 0.1 % to 100 % of the records.
        relation: the neighbouring relation.

    Returns:
        By epochs, then batch size; all meet the target.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> for choice in plan(records=60_000, epsilon=3.0, delta=1e-5, epochs=[10], batch_sizes=[600, 6_000, 60_000]):
        ...     print(choice.batch_size, choice.steps, f"{choice.noise_multiplier:.3f} {choice.relative:.2f}")
        600 1000 0.814 18.50
        6000 100 1.675 3.81
        60000 10 4.397 1.00
    """
    number = errors.count("records", records, least=1)
    check_relation(relation)
    passes = sorted({errors.positive("epochs", value) for value in (EPOCHS if epochs is None else epochs)})
    sizes = [max(round(share * number), 1) for share in SHARES] if batch_sizes is None else batch_sizes
    batches = sorted({errors.count("batch_sizes", size, least=1) for size in sizes})
    if not passes or not batches:
        raise PrivcalcError(f"epochs = {epochs!r}, batch_sizes = {batch_sizes!r}: must not be empty")
    if batches[-1] > number:
        raise PrivcalcError(f"batch_sizes = {batches[-1]}: must be at most records = {number}")
    found = []
    for many in passes:
        row = []
        for batch in batches:
            rate, steps = dpsgd.schedule(None, None, batch, number, many)
            noise = dpsgd.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps, relation=relation)
            row.append((many, batch, rate, steps, noise, noise / batch, noise / batch / math.sqrt(steps)))
        found += [Choice(*one, one[5] / row[-1][5]) for one in row]
    return found


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
