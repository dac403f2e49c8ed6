"""Commands of click as ours are: options, samplers, errors in one line, help in the letters that a terminal has."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

import privcalc as pc
from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.sampler import REQUIRED, Batched, batched
from privcalc.mechanisms.sampler import Command as Asked
from privcalc.parts import ENGINES, Engine, Progress
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.terminal import fail, for_stream

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

NAMES = {"rate": "sample_rate", "count": "steps"}
"""Arguments of the library for which a command may have an option of another name."""


class Command(click.Command):
    """A command with an exit status: 0; 1 for a wrong claim, 2 for bad input, 3 for a check that came to no end."""

    def invoke(self, ctx: click.Context) -> int:
        """Run it; an error ends with one line, in which an argument has the name of the option that gave it."""
        try:
            status: int = super().invoke(ctx)
        except (PrivcalcError, OSError) as error:
            return fail(ctx.command_path, _told(ctx.params, str(error)).replace(ctx.meta.get(READ, "\0"), "-"))
        return status

    def get_help(self, ctx: click.Context) -> str:
        """Its help, in letters that standard output has."""
        return for_stream(super().get_help(ctx), sys.stdout)


class Group(click.Group):
    """Commands of one subject; their help, too, is in letters that standard output has."""

    command_class = Command

    def get_help(self, ctx: click.Context) -> str:
        """Its help."""
        return for_stream(super().get_help(ctx), sys.stdout)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of its commands, or of its groups that only sort them: ``privcalc delta`` is ``privcalc ask delta``."""
        sorting = (one for one in self.commands.values() if isinstance(one, Sorting))
        return super().get_command(ctx, cmd_name) or next(
            (one.commands[cmd_name] for one in sorting if cmd_name in one.commands), None
        )


class Sorting(Group):
    """Commands that go together; each may be named without the group."""


def _told(given: dict[str, Any], message: str) -> str:
    """The message; the argument that it begins with is named as the option that gave it.

    A number that a file has is not the option's, whatever its name: the values must be the same.
    """
    name, _, rest = message.partition(" = ")
    option = name if name in given else NAMES.get(name, "")
    value = given.get(option)
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, (int, float)) and rest.startswith(f"{one!r}:"):
            return f"--{option.replace('_', '-')} = {rest}"
    return message


READ = "privcalc.read"
"""Where the context says to which file standard input was copied."""


class Source(click.Path):
    """A file to read, as a path; ``-`` is standard input, which is copied to a file that goes with the command."""

    def __init__(self, kind: type = str) -> None:
        super().__init__(path_type=kind)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the file."""
        if str(value) != "-" or ctx is None:
            return super().convert(value, param, ctx)
        if READ in ctx.meta:
            self.fail("standard input is read once", param, ctx)
        folder = ctx.with_resource(tempfile.TemporaryDirectory())
        ctx.meta[READ] = path = f"{folder}/standard-input.csv"  # tables are told by their endings
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return Path(path) if self.type is Path else str(path)


SOURCE = Source()


class Numbers(click.ParamType[list[float]]):
    """Numbers with commas between them, as a list."""

    def __init__(self, kind: type[float]) -> None:
        self.kind = kind
        self.name = f"{'integer' if kind is int else 'number'},…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """The list of a text such as ``1e-5,1e-6``."""
        if isinstance(value, list):
            return value
        try:
            return [self.kind(one) for one in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} must be numbers with commas between them", param, ctx)


NOISE = click.option("--noise-multiplier", type=float, required=True, help="Noise standard deviation / clip norm.")
RATE = click.option(
    "--sample-rate",
    type=float,
    default=1.0,
    show_default=True,
    help="Probability with which each record takes part in a step, independently.",
)
EPSILON = click.option("--epsilon", type=float, required=True, help="ε, for instance 3.")
DELTA = click.option("--delta", type=float, required=True, help="δ, for instance 1e-5.")
RELATION = click.option(
    "--relation",
    type=click.Choice([relation.value for relation in Relation]),
    default=ADD_OR_REMOVE_ONE.value,
    show_default=True,
    help="Neighbouring relation.",
)
STEPS = (
    click.option("--steps", type=int, help="Number of steps; it, or epochs, must be given where batches are drawn."),
    click.option("--epochs", type=float, help="Instead: passes over the data, rounded up to whole steps."),
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def engine_options(parts: str) -> Callable[[Decorated], Decorated]:
    """Options for where a command's parts are computed: ``engine``, ``workers``, ``scheduler``; :func:`engine_of`.

    Args:
        parts: what is computed part by part, for the help.
    """

    def decorate(function: Decorated) -> Decorated:
        for option in (
            click.option(
                "--scheduler", metavar="ADDRESS", help="Of a dask cluster, such as tcp://host:8786, which has workers."
            ),
            click.option(
                "--workers", type=int, help="Processes of the engines processes and dask (default: one per core)."
            ),
            click.option(
                "--engine", type=click.Choice(ENGINES), help=f"Computes {parts}; what was done is not done again."
            ),
        ):
            function = option(function)
        return function

    return decorate


def engine_of(engine: str | None, workers: int | None, scheduler: str | None) -> Engine | None:
    """The engine that was asked for, if one was."""
    if engine is None and workers is None and scheduler is None:
        return None
    return Engine("dask" if engine is None and scheduler else engine or "processes", workers, scheduler)


def progress(command: str) -> Progress | None:
    """Tells on standard error, so that what is printed stays what was asked for; only people at a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda text: print(f"privcalc {command}: {text}", file=sys.stderr, flush=True)


SAMPLERS: dict[str, tuple[type[Batched], Asked]] = {
    kind.command.name: (kind, kind.command) for kind in batched() if kind.command is not None
}
"""By name; each class says what it is called here, and what it asks for."""


INSTEAD = {
    "batch_size": "how many records it has on average, over --dataset-size: instead of --sample-rate",
    "dataset_size": "how many there are, which must be public",
}
"""What Poisson sampling may be told in place of its rate."""


def _options() -> dict[str, tuple[type, str]]:
    """All that samplers ask for: its type, and what it is for each of them."""
    types: dict[str, type] = {}
    says: dict[str, dict[str, list[str]]] = {}
    for name, (_, command) in SAMPLERS.items():
        for option in command.options:
            types[option.name] = option.type
            says.setdefault(option.name, {}).setdefault(option.help, []).append(name)
    for name, text in INSTEAD.items():
        says[name][text] = ["poisson"]
    return {
        name: (types[name], "; ".join(f"{', '.join(sorted(takers))}: {text}" for text, takers in found.items()))
        for name, found in says.items()
    }


OPTIONS = _options()


@dataclass(frozen=True)
class Batches:
    """How the batches of a run are drawn.

    Attributes:
        sampler: its name.
        given: its options, those that were not given by their defaults, in the order in which its mechanism takes them.
        records: how many records there are, if somebody said so.
    """

    sampler: str
    given: dict[str, Any]
    records: int | None = None

    @classmethod
    def of(cls, sampler: str, options: dict[str, Any]) -> Batches:
        """Of a name and all options, None where one was not given.

        Raises:
            PrivcalcError: if one is missing, or is another sampler's.
        """
        takes = SAMPLERS[sampler][1].options
        given = {name: value for name, value in options.items() if value is not None}
        records = given.get("dataset_size")
        if sampler == "poisson" and INSTEAD.keys() & given.keys():
            sized = [given.pop(name, None) for name in ("sample_rate", *INSTEAD)]
            given["sample_rate"], _ = dpsgd.schedule(sized[0], 1, sized[1], sized[2], None)
        if other := next((name for name in given if name not in {option.name for option in takes}), None):
            raise PrivcalcError(f"{_option(other)} = {given[other]!r}: is not for --sampler {sampler}")
        found = {option.name: given.get(option.name, option.default) for option in takes}
        if missing := next((name for name, value in found.items() if value is REQUIRED), None):
            raise PrivcalcError(f"{_option(missing)}: must be given with --sampler {sampler}")
        return cls(sampler, found, records)

    @property
    def none(self) -> bool:
        """Whether every record takes part in every step."""
        return self.given == {"sample_rate": 1.0}

    def steps(self, number: int | None, epochs: float | None) -> int:
        """How many steps, or epochs where these are what the sampler counts.

        Raises:
            PrivcalcError: if both or none were given.
        """
        rate = self.given.get("sample_rate", self.given.get("batch_size", 1) / (self.records or 1))
        if (number is None) == (epochs is None):
            if number is not None:
                raise PrivcalcError(f"--epochs = {epochs}: give it or --steps, not both")
            if not self.none:
                raise PrivcalcError(
                    "--steps: must be given where batches are drawn, or --epochs: ε of one step is too small for a run"
                )
            return 1
        if number is None:
            return dpsgd.whole_steps(epochs or 0.0, rate)
        if not SAMPLERS[self.sampler][1].counted[0].startswith("epoch"):
            errors.check_pass(number, rate)
        return number

    def step(self, noise: float) -> pc.Mechanism:
        """The mechanism of a step of Gaussian noise."""
        if self.none:
            return pc.Gaussian(noise)
        return SAMPLERS[self.sampler][0].on(pc.Gaussian(noise), *self.given.values())

    def number(self, steps: int) -> str:
        """How many of what there are."""
        one, of = SAMPLERS[self.sampler][1].counted
        return f"{steps} {one}{'s' * (steps != 1)}{of.format(**self.given)}"

    def __str__(self) -> str:
        """What is assumed of them."""
        if self.none:
            return "every record takes part in every step"
        words = {name: "all" if value is None else value for name, value in self.given.items()}
        return SAMPLERS[self.sampler][1].words.format(**words)

    def neighbours(self, relation: pc.Relation) -> str:
        """What neighbours differ in."""
        two = relation is pc.REPLACE_ONE
        if SAMPLERS[self.sampler][1].unit == "person":
            return f"{'two persons' if two else 'one person'}, each of whose contributions is at most the clip norm"
        return (
            "two contributions may differ by twice the clip norm"
            if two
            else "one contribution, of at most the clip norm"
        )


def sampler_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--sampler`` and what samplers ask for; its function takes them as one argument, ``batches``."""

    @functools.wraps(function)
    def asked(*, sampler: str, **options: Any) -> int:
        own = {name: options.pop(name) for name in OPTIONS}
        return function(batches=Batches.of(sampler, own), **options)

    decorated: Callable[..., int] = asked
    for name, (kind, text) in reversed(OPTIONS.items()):
        decorated = click.option(_option(name), type=kind, help=f"{text[0].upper()}{text[1:]}.")(decorated)
    kinds = click.Choice(sorted(SAMPLERS))
    words = "How batches are drawn (docs/samplers.md)."
    return click.option("--sampler", type=kinds, default="poisson", show_default=True, help=words)(decorated)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
