"""``privcalc claim new|check``: a published ε, written down and recomputed."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from privcalc.claims import Claim, check
from privcalc.claims.schema import OPEN, PARAMETERS, samplers, template
from privcalc.cli.options import SOURCE, Answered, Group, option_of, together
from privcalc.errors import PrivcalcError
from privcalc.files import write_whole
from privcalc.terminal import UNCONFIRMED, WRONG


@click.group(cls=Group)
def claim() -> None:
    """Privacy claims that somebody published."""


def _among(name: str) -> list[str]:
    """The values that a parameter may have, where they are names."""
    return list(samplers()) if name == "sampler" else list(map(str, PARAMETERS[name].among or ()))


PARAMETER_OPTIONS = together(
    *(
        click.option(
            option_of(name),
            type=click.Choice(_among(name)) if _among(name) else float if float in field.kind else field.kind[0],
            help=f"{field.says[0].upper()}{field.says[1:]}.",
        )
        for name, field in PARAMETERS.items()
    )
)
"""An option for each parameter of a claim."""


@claim.command("check")
@click.argument("file", type=SOURCE, required=False)
@PARAMETER_OPTIONS
def check_(file: str | None, **stated: Any) -> Answered:
    """Recompute a published ε under everything that its stated parameters may mean.

    FILE is the claim, in TOML or JSON (docs/guides/claims.md), as claim new writes one; for a quick answer without
    sources give the numbers instead, and leave out what is not stated. Exit status 0 if it holds under all of that, 1
    if under nothing, 3 if it depends or cannot be told.
    """
    given = {name: value for name, value in stated.items() if value is not None}
    if (file is None) == (not given):
        raise PrivcalcError("FILE: give the claim, or its numbers, such as --epsilon 8 --delta 1e-5: one of both")
    verdict = check(Claim.said(**given) if file is None else Claim.load(file))
    return Answered(verdict.json, str(verdict), {True: 0, False: WRONG, None: UNCONFIRMED}[verdict.holds])


@claim.command
@click.argument("file", metavar="FILE.toml")
@click.option("--name", help="What is claimed to be private, in words.")
@PARAMETER_OPTIONS
def new(file: str, name: str | None, **stated: Any) -> Answered:
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
    return Answered({"file": file}, told)


def _asked() -> tuple[str, dict[str, tuple[Any, str, str]]]:
    """What somebody at a terminal says: values, the words that say so, and where these are."""
    name, address = click.prompt("what is claimed to be private"), "https://"
    given = {}
    for key, field in PARAMETERS.items():
        kind: Any = click.Choice([*_among(key), OPEN]) if _among(key) else None
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
