"""``privcalc plan``: batch sizes, epochs and noise that meet a target."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from privcalc import pictures
from privcalc.calibration.plans import compare_noise, plan
from privcalc.cli.options import DELTA, EPSILON, RELATION, Answered, Command, Numbers
from privcalc.enclosure import Guarantee, upward
from privcalc.errors import PrivcalcError
from privcalc.relation import Relation

TITLES = ("epochs", "batch", "rate", "steps", "noise multiplier", "noise/step", "noise/run", "× largest batch")


@click.command("plan", cls=Command)
@click.option("--records", type=int, required=True, help="How many records there are; must be public.")
@EPSILON
@DELTA
@click.option("--epochs", type=Numbers(float), help="Passes over the data (default 1,3,10,30,100).")
@click.option("--batch-sizes", type=Numbers(int), help="Expected sizes of Poisson batches (default 0.1 % to 100 %).")
@RELATION
@click.option("--correlated", is_flag=True, help="Compare independent, banded and correlated noise, for each.")
@click.option("--picture", type=Path, metavar="FILE", help="Also draw it (needs matplotlib).")
def plan_(correlated: bool, picture: Path | None, **asked: Any) -> Answered:
    """Batch sizes, epochs and noise that meet a target, and what each buys."""
    asked["relation"] = Relation(asked["relation"])
    found, lines = (_compared if correlated else _choices)(picture, asked)
    goal = Guarantee(epsilon=asked["epsilon"], delta=asked["delta"], relation=asked["relation"])
    named = {name: asked[name] for name in ("records", "epsilon", "delta")}
    text = "\n".join((f"{asked['records']} records, {goal}{'' if correlated else '; Poisson batches'}", *lines))
    return Answered({**named, "relation": asked["relation"].value, "choices": found}, text)


def _choices(picture: Path | None, asked: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """The choices with independent noise, as JSON and as lines."""
    choices = plan(**asked)
    if picture is not None:
        pictures.save(pictures.plan(choices), picture)
    lines = [_line(TITLES)]
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
        "noise/step: in the average of one batch; noise/run: in the average over all steps; both in clip norms, "
        "per coordinate"
    )
    return [asdict(choice) for choice in choices], lines


NOISES = ("epochs", "batch", "noise", "bands", "noise multiplier", "error of sums")


def _compared(picture: Path | None, asked: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """Three kinds of noise for each number of epochs and each batch, as JSON and as lines."""
    target = {**asked}
    epochs, batch_sizes = target.pop("epochs"), target.pop("batch_sizes")
    if epochs is None or batch_sizes is None or any(number != int(number) for number in epochs):
        raise PrivcalcError("epochs, batch_sizes: must be given with --correlated, epochs as whole numbers")
    found = [
        (number, batch, compare_noise(epochs=int(number), batch_size=batch, **target))
        for number in epochs
        for batch in batch_sizes
    ]
    if picture is not None:
        panels = {f"{number:g} epochs, batches of {batch}": rows for number, batch, rows in found}
        pictures.save(pictures.compared(panels), picture)
    lines, choices = [_line(NOISES, NOISES)], []
    for number, batch, one in ((number, batch, one) for number, batch, rows in found for one in rows):
        noise = upward(one.noise_multiplier, ".6g")
        lines.append(_line((f"{number:g}", f"{batch}", one.noise, f"{one.bands}", noise, f"{one.error:.3g}"), NOISES))
        told = {name: getattr(one, name) for name in ("noise", "noise_multiplier", "bands", "error")}
        choices.append({"epochs": number, "batch_size": batch, **told})
    lines.append(
        "error of sums: root mean square, per coordinate, of the sums of all steps so far, over the batch; in C"
    )
    return choices, lines


def _line(cells: tuple[str, ...], titles: tuple[str, ...] = TITLES) -> str:
    widths = (12 if title == "noise" else max(len(title), 9) for title in titles)
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
