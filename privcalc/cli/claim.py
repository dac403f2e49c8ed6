"""``privcalc claim new|check``: a published ε, written down and recomputed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from privcalc.claims import Claim, check
from privcalc.claims.schema import OPEN, PARAMETERS, samplers, template
from privcalc.cli.options import JSON, SOURCE, Group
from privcalc.errors import PrivcalcError
from privcalc.files import write_whole
from privcalc.terminal import UNCONFIRMED, WRONG, answer


@click.group(cls=Group)
def claim() -> None:
    """Privacy claims that somebody published."""


def _parameters(function: Callable[..., int]) -> Callable[..., int]:
    """An option for each parameter of a claim."""
    for name, field in reversed(PARAMETERS.items()):
        among = list(samplers()) if name == "sampler" else list(field.among or ())
        kind: Any = click.Choice(among) if among else float if float in field.kind else field.kind[0]
        function = click.option(f"--{name.replace('_', '-')}", type=kind, help=f"{field.says}.")(function)
    return function


@claim.command("check")
@click.argument("file", type=SOURCE, required=False)
@_parameters
@JSON
def check_(file: str | None, as_json: bool, **stated: Any) -> int:
    """Recompute a published ε under everything that its stated parameters may mean.

    FILE is the claim, in TOML or JSON (docs/guides/claims.md), as claim new writes one; for a quick answer without
    sources give the numbers instead, and leave out what is not stated. Exit status 0 if it holds under all of that, 1
    if under nothing, 3 if it depends or cannot be told.
    """
    given = {name: value for name, value in stated.items() if value is not None}
    if (file is None) == (not given):
        raise PrivcalcError("FILE: give the claim, or its numbers, such as --epsilon 8 --delta 1e-5: one of both")
    verdict = check(Claim.said(**given) if file is None else Claim.load(file))
    answer(verdict.json, str(verdict), as_json=as_json)
    return {True: 0, False: WRONG, None: UNCONFIRMED}[verdict.holds]


@claim.command
@click.argument("file", metavar="FILE.toml")
@click.option("--name", help="What is claimed to be private, in words.")
@_parameters
@JSON
def new(file: str, name: str | None, as_json: bool, **stated: Any) -> int:
    """Write a claim to fill in, with all fields and what they say.

    At a terminal, without options, each is asked for.
    """
    if not file.endswith(".toml") or os.path.lexists(file):
        raise PrivcalcError(f"FILE = {file!r}: must be a new file, whose name ends in .toml")
    given = {key: (value, "", "") for key, value in stated.items() if value is not None}
    if not given and name is None and sys.stdin.isatty():
        name, given = _asked()
    write_whole(file, template(name or "a claim to fill in", given))
    told = f"{file}: fill in what the sources say, then: privcalc claim check {file}"
    return answer({"file": file}, told, as_json=as_json)


def _asked() -> tuple[str, dict[str, tuple[Any, str, str]]]:
    """What somebody at a terminal says: values, the words that say so, and where these are."""
    name, address = click.prompt("what is claimed to be private"), "https://"
    given = {}
    for key, field in PARAMETERS.items():
        among = list(samplers()) if key == "sampler" else list(field.among or ())
        kind: Any = click.Choice([*among, OPEN]) if among else None
        value = click.prompt(f"{key}, {field.says}", default=OPEN, type=kind)
        if value != OPEN:
            quote = click.prompt("  the words that say so")
            address = click.prompt("  their address", default=address)
            number = next((one for one in (int, float) if one in field.kind and _is(one, value)), str)
            given[key] = number(value), quote, address
    return name, given


def _is(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
