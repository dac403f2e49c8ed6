"""Commands of click as ours are: options, errors in one line, help in the letters that a terminal has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from privcalc.errors import PrivcalcError
from privcalc.parts import ENGINES, Engine, Progress
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.terminal import fail, for_stream

__all__ = [
    "DELTA",
    "EPSILON",
    "JSON",
    "NOISE",
    "RATE",
    "RELATION",
    "Command",
    "Group",
    "Numbers",
    "engine_options",
    "progress",
]

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
            return fail(ctx.command_path, _told(ctx.params, str(error)))
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


def progress(command: str) -> Progress:
    """Tells on standard error, so that what is printed stays what was asked for."""
    return lambda text: print(f"privcalc {command}: {text}", file=sys.stderr, flush=True)
