"""The command line ``privcalc``."""

from privcalc.cli.ask import main

__all__ = ["main"]
