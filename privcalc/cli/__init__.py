"""The command line ``privcalc``: a file for each command, or for those that share one answer, with ``add(commands)``.

``add`` gives the command its options and sets ``run``, which prints the answer and returns the exit status: 0; 1 where a claim is
contradicted; 3 where it is neither confirmed nor found wrong. An error ends with one line and 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from privcalc.cli import ask, attack, audit, budget, bulk, certificate, claim, compare, plan, sign
from privcalc.errors import PrivcalcError
from privcalc.terminal import command, fail
from privcalc.version import __version__

__all__ = ["main"]

COMMANDS = (ask, bulk, certificate, sign, claim, budget, attack, audit, compare, plan)

RENAMED = {"rate": "sample_rate", "count": "steps"}
"""Arguments of the library for which a command may have an option of another name."""


class _Parser(argparse.ArgumentParser):
    """Bad input: one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="privcalc", description="Certified differential-privacy accounting: proved lower and upper bounds on every answer."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for module in COMMANDS:
        module.add(commands)
    return parser


@command("privcalc")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except (PrivcalcError, OSError) as error:
        return fail(f"privcalc {args.command}", _told(args, str(error)))
    return status


def _told(args: argparse.Namespace, message: str) -> str:
    """The message; the argument that it begins with is named as the option that gave it.

    A number that a file has is not the option's, whatever its name: the values must be the same.
    """
    name, _, rest = message.partition(" = ")
    option = name if name in args else RENAMED.get(name, "")
    given = getattr(args, option, None)
    for value in given if isinstance(given, list) else [given]:
        if isinstance(value, (int, float)) and rest.startswith(f"{value!r}:"):
            return f"--{option.replace('_', '-')} = {rest}"
    return message
