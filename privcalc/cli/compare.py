"""``privcalc compare``: every installed accountant on one run."""

from __future__ import annotations

import argparse
import logging
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcalc.certificate.story import described
from privcalc.cli.options import add_options
from privcalc.peers.compare import compare
from privcalc.rounding import upward
from privcalc.serial import read_json
from privcalc.terminal import answer


def add(commands: Any) -> None:
    """Add the command."""
    text = "every installed accountant beside ours on one run, and why they differ"
    parser = commands.add_parser("compare", help=text, description=text)
    parser.set_defaults(run=run)
    parser.add_argument("described", type=Path, metavar="RUN.json", help="a described run, as for certify")
    add_options(parser, "--delta", "--json")


def run(args: argparse.Namespace) -> int:
    """Ask them all; returns the exit status."""
    terms = described(read_json(args.described))
    logging.disable(logging.WARNING)
    try:
        rows = compare(terms.bound, delta=args.delta, relation=terms.relation)
    finally:
        logging.disable(logging.NOTSET)
    entries = [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()} for row in rows]
    found = {"run": str(terms.bound), "delta": args.delta, "relation": str(terms.relation), "accountants": entries}
    lines = [
        str(terms.bound),
        f"δ = {upward(args.delta, 'g')}, {terms.relation}; σ is the noise standard deviation over the clip norm C",
    ]
    for row in rows:
        differs = f"{100 * row.excess:+.2g} %" if math.isfinite(row.excess) and row.excess else ""
        lines.append(f"{row.accountant:<18} {upward(row.epsilon, '>14.9g')} {differs:>10}  {row.kind}")
        lines += [f"{'':<18}   {line}" for line in row.why]
    return answer(found, "\n".join(lines), as_json=args.json)
