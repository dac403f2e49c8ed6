"""Commands of click as ours are: options, samplers, answers, errors in one line, help in a terminal's letters."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

import privcalc as pc
from privcalc import errors, keywords
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


class Answered(NamedTuple):
    """What a command found.

    Attributes:
        found: what ``--json`` prints.
        text: what is printed else.
        status: the exit status: 0; 1 for a wrong claim, 2 for bad input, 3 for a check that came to no end.
        error: what standard error is told beside.
    """

    found: object
    text: str
    status: int = 0
    error: str = ""


class Command(click.Command):
    """A command whose function returns what it found; it is printed here, in words or as one JSON object."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; one that is unknown may be ours by another name."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = keywords.meant(
                error.option_name.strip("-").replace("-", "_"), [str(one.name) for one in self.params]
            )
            if ours is None:
                raise
            told = f"No such option {error.option_name!r}. Did you mean {option_of(ours)!r}?"
            raise click.NoSuchOption(error.option_name, told, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> int:
        """Run it; an error ends with one line, in which an argument has the name of the option that gave it."""
        as_json = ctx.params.pop("as_json")
        try:
            answer: Answered = super().invoke(ctx)
        except (PrivcalcError, OSError) as error:
            return fail(ctx.command_path, _told(ctx.params, str(error)).replace(ctx.meta.get(READ, "\0"), "-"))
        print(json.dumps(answer.found, allow_nan=False) if as_json else answer.text)
        return fail(ctx.command_path, answer.error, status=answer.status) if answer.error else answer.status

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
    """The message; the arguments that it begins with are named as the options that gave them.

    A number that a file has is not the option's, whatever its name: the values must be the same.
    """

    def named(found: re.Match[str]) -> str:
        option = found[1] if found[1] in given else NAMES.get(found[1], "")
        values = value if isinstance(value := given.get(option), list) else [value]
        ours = found[2] in [repr(one) for one in values if one is None or isinstance(one, (int, float))]
        return f"{option_of(option)} = {found[2]}" if option and ours else found[0]

    head, colon, rest = message.partition(":")
    return re.sub(r"(\w+) = ([^,]+)", named, head) + colon + rest


READ = "privcalc.read"
"""Where the context says to which file standard input was copied."""


def together(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """One decorator of several, in their order."""
    return lambda function: functools.reduce(lambda made, option: option(made), reversed(options), function)


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
EPSILON = click.option("--epsilon", type=float, required=True, help="ε, for instance 3.")
DELTA = click.option("--delta", type=float, required=True, help="δ, for instance 1e-5.")
KINDS, USUAL = click.Choice([relation.value for relation in Relation]), ADD_OR_REMOVE_ONE.value
RELATION = click.option("--relation", type=KINDS, default=USUAL, show_default=True, help="Neighbouring relation.")
STEPS = together(
    click.option("--steps", type=int, help="Number of steps; it, or epochs, must be given where batches are drawn."),
    click.option("--epochs", type=float, help="Instead: passes over the data, rounded up to whole steps."),
)


def engine_options(parts: str) -> Callable[[Decorated], Decorated]:
    """Options for where a command's parts are computed; its function takes them as one argument, ``engine``.

    Args:
        parts: what is computed part by part, for the help.
    """

    def chosen(function: Callable[..., Answered]) -> Callable[..., Answered]:
        @functools.wraps(function)
        def asked(*, engine: str | None, workers: int | None, scheduler: str | None, **options: Any) -> Answered:
            kind, given = engine or ("dask" if scheduler else "processes"), (engine, workers, scheduler)
            return function(engine=None if given == (None,) * 3 else Engine(kind, workers, scheduler), **options)

        return asked

    kinds, dask = click.Choice(ENGINES), "Of a dask cluster, such as tcp://host:8786, which has workers."
    return together(
        click.option("--engine", type=kinds, help=f"Computes {parts}; what was done is not done again."),
        click.option("--workers", type=int, help="Processes of either engine that has some (default: one per core)."),
        click.option("--scheduler", metavar="ADDRESS", help=dask),
        chosen,
    )


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
            raise PrivcalcError(f"{option_of(other)} = {given[other]!r}: is not for --sampler {sampler}")
        found = {option.name: given.get(option.name, option.default) for option in takes}
        if missing := next((name for name, value in found.items() if value is REQUIRED), None):
            raise PrivcalcError(f"{option_of(missing)}: must be given with --sampler {sampler}")
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
        if number is not None and epochs is not None:
            raise PrivcalcError(f"--epochs = {epochs}: give it or --steps, not both")
        if epochs is not None:
            return dpsgd.whole_steps(epochs, rate)
        if number is None and not self.none:
            raise PrivcalcError(
                "--steps: must be given where batches are drawn, or --epochs: ε of one step is too small for a run"
            )
        if number is not None and not SAMPLERS[self.sampler][1].counted[0].startswith("epoch"):
            errors.check_pass(number, rate)
        return 1 if number is None else number

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

    def neighbours(self, relation: Relation) -> str:
        """What neighbours differ in."""
        if SAMPLERS[self.sampler][1].unit == "person":
            who = "two persons" if relation is pc.REPLACE_ONE else "one person"
            return f"{who}, each of whose contributions is at most the clip norm"
        if relation is pc.REPLACE_ONE:
            return "two contributions may differ by twice the clip norm"
        return "one contribution, of at most the clip norm"


def sampler_options(function: Callable[..., Answered]) -> Callable[..., Answered]:
    """Give a command ``--sampler`` and what samplers ask for; its function takes them as one argument, ``batches``."""

    @functools.wraps(function)
    def asked(*, sampler: str, **options: Any) -> Answered:
        own = {name: options.pop(name) for name in OPTIONS}
        return function(batches=Batches.of(sampler, own), **options)

    kinds, words = click.Choice(sorted(SAMPLERS)), "How batches are drawn (docs/samplers.md)."
    return together(
        click.option("--sampler", type=kinds, default="poisson", show_default=True, help=words),
        *(
            click.option(option_of(name), type=kind, help=f"{text[0].upper()}{text[1:]}.")
            for name, (kind, text) in OPTIONS.items()
        ),
    )(asked)


def option_of(name: str) -> str:
    """The option of an argument: ``--sample-rate`` of ``sample_rate``."""
    return f"--{name.replace('_', '-')}"


def finite(value: Any) -> Any:
    """The value; of an infinite number, or NaN, None, because JSON has neither."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
