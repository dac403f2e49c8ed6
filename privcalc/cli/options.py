"""The options that several commands have."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from privcalc.parts import ENGINES, Engine, Progress
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

__all__ = ["add_engine", "add_options", "engine_of", "progress"]

OPTIONS: dict[str, dict[str, Any]] = {
    "--noise-multiplier": {"type": float, "required": True, "help": "noise standard deviation / clip norm"},
    "--sample-rate": {
        "type": float,
        "default": 1.0,
        "help": "probability with which each record takes part in a step, independently (default 1)",
    },
    "--epsilon": {"type": float, "required": True, "help": "ε, for instance 3"},
    "--delta": {"type": float, "required": True, "help": "δ, for instance 1e-5"},
    "--relation": {
        "choices": [relation.value for relation in Relation],
        "default": ADD_OR_REMOVE_ONE.value,
        "help": "neighbouring relation (default %(default)s)",
    },
    "--json": {"action": "store_true", "help": "print one JSON object"},
}


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give the command these options, in this order."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


def add_engine(parser: argparse.ArgumentParser, parts: str) -> None:
    """Give the command the options of where parts of its work are computed."""
    parser.add_argument("--engine", choices=ENGINES, help=f"computes {parts}; what was done is not done again")
    parser.add_argument("--workers", type=int, help="processes of the engines processes and dask (default: one per core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask cluster, such as tcp://host:8786, which has workers")


def engine_of(args: argparse.Namespace) -> Engine | None:
    """The engine that was asked for, if one was."""
    if args.engine is None and args.workers is None and args.scheduler is None:
        return None
    return Engine("dask" if args.engine is None and args.scheduler else args.engine or "processes", args.workers, args.scheduler)


def progress(args: argparse.Namespace) -> Progress:
    """Tells on standard error, so that what is printed stays what was asked for."""
    return lambda text: print(f"privcalc {args.command}: {text}", file=sys.stderr, flush=True)
