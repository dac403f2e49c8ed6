"""``privcalc claim check``: a published ε, recomputed from its stated parameters."""

from __future__ import annotations

import click

from privcalc.claims import Claim
from privcalc.claims import check as checked
from privcalc.cli.options import JSON, Group
from privcalc.terminal import UNCONFIRMED, WRONG, answer


@click.group(cls=Group)
def claim() -> None:
    """Privacy claims that somebody published."""


@claim.command
@click.argument("file")
@JSON
def check(file: str, as_json: bool) -> int:
    """Recompute a published ε under everything that its stated parameters may mean.

    FILE is the claim, in JSON (docs/guides/claims.md). Exit status 0 if it holds under all of that, 1 if under nothing,
    3 if it depends or cannot be told.
    """
    verdict = checked(Claim.load(file))
    answer(verdict.json, str(verdict), as_json=as_json)
    return {True: 0, False: WRONG, None: UNCONFIRMED}[verdict.holds]
