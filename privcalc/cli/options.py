"""The options that several commands have."""

from __future__ import annotations

import argparse
from typing import Any

from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

__all__ = ["add_options"]

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
