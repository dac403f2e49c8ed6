"""``privcalc claim check``: a published ε, recomputed from its stated parameters."""

from __future__ import annotations

import argparse
from typing import Any

from privcalc.claims import Claim, check
from privcalc.cli.options import add_options
from privcalc.terminal import UNCONFIRMED, WRONG, answer


def add(commands: Any) -> None:
    """Add the command."""
    text = "a privacy claim that somebody published"
    parser = commands.add_parser("claim", help=text, description=text)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = (
        "recompute a published ε under everything that its stated parameters may mean; exit status 0 if it holds under all of "
        "that, 1 if under nothing, 3 if it depends or cannot be told"
    )
    parser = actions.add_parser("check", help=text, description=text)
    parser.set_defaults(run=run)
    parser.add_argument("file", metavar="FILE", help="the claim, in JSON (docs/guides/claims.md)")
    add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Check one; returns the exit status."""
    verdict = check(Claim.load(args.file))
    answer(verdict.json, str(verdict), as_json=args.json)
    return {True: 0, False: WRONG, None: UNCONFIRMED}[verdict.holds]
