"""The command line ``privcalc``, with click: a file for each command, or for those that share one answer.

A command prints its answer and returns the exit status: 0; 1 where a claim is contradicted; 3 where it is neither
confirmed nor found wrong. An error ends with one line and 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from privcalc.cli import ask, attack, audit, budget, bulk, certificate, claim, plan
from privcalc.cli.options import Group, Sorting
from privcalc.terminal import INTERRUPTED, command, fail
from privcalc.version import __version__

__all__ = ["main"]

COMMANDS: tuple[click.Command, ...] = (
    *(ask.epsilon, ask.noise, plan.plan_, certificate.certify, certificate.verify, certificate.show),
    *(claim.claim, budget.budget),
    Sorting(
        "ask",
        commands=[*ask.COMMANDS, bulk.bulk_, ask.compare_],
        help="More questions of a run, or of a table of runs.",
    ),
    Sorting(
        "evidence",
        commands=[audit.audit, attack.attack, certificate.key, certificate.sign, certificate.revoke],
        help="What records cost and attacks show; keys, signatures, revocations.",
    ),
)
"""At most ten; what is sorted into a group may be named without it, too."""


@click.group("privcalc", cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def privcalc() -> None:
    """Certified differential-privacy accounting: proved lower and upper bounds on every answer."""


for _command in COMMANDS:
    privcalc.add_command(_command)


@command("privcalc")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        status = privcalc.main(None if argv is None else list(argv), prog_name="privcalc", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 0
    except click.Abort:
        fail("privcalc", "interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        return fail("privcalc" if context is None else context.command_path, error.format_message())
    return int(status or 0)
