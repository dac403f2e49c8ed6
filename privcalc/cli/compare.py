"""``privcalc compare``: every installed accountant on one run."""

from __future__ import annotations

import argparse
import json
import logging
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcalc.certificate.story import described
from privcalc.peers.compare import compare
from privcalc.serial import read_json


def add_command(commands: Any) -> None:
    """Hook the command into the command line."""
    text = "every installed accountant beside ours on one run, and why they differ"
    parser = commands.add_parser("compare", help=text, description=text)
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a described run, as for certify")
    parser.add_argument("--delta", type=float, required=True, help="δ, for instance 1e-5")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    """The command; returns the exit status."""
    terms = described(read_json(args.run))
    logging.disable(logging.WARNING)
    try:
        rows = compare(terms.bound, delta=args.delta, relation=terms.relation)
    finally:
        logging.disable(logging.NOTSET)
    if args.json:
        entries = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()} for row in rows
        ]
        found = {"run": str(terms.bound), "delta": args.delta, "relation": str(terms.relation), "accountants": entries}
        print(json.dumps(found, allow_nan=False))
        return 0
    print(f"{terms.bound}\nδ = {args.delta:g}, {terms.relation}; σ is the noise standard deviation over the clip norm C")
    for row in rows:
        differs = f"{100 * row.excess:+.2g} %" if math.isfinite(row.excess) and row.excess else ""
        print(f"{row.accountant:<18} {row.epsilon:>14.9g} {differs:>10}  {row.kind}")
        for line in row.why:
            print(f"{'':<18}   {line}")
    return 0
