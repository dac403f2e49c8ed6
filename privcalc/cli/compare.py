"""``privcalc compare``: every installed accountant on one run."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict
from pathlib import Path

import click

from privcalc.certificate.story import described
from privcalc.cli.options import DELTA, JSON, Command
from privcalc.peers.compare import compare
from privcalc.rounding import upward
from privcalc.serial import read_json
from privcalc.terminal import answer


@click.command("compare", cls=Command)
@click.argument("described_run", metavar="RUN.json", type=Path)
@DELTA
@JSON
def compare_(described_run: Path, delta: float, as_json: bool) -> int:
    """Every installed accountant beside ours on one run, described as for certify, and why they differ."""
    terms = described(read_json(described_run))
    logging.disable(logging.WARNING)
    try:
        rows = compare(terms.bound, delta=delta, relation=terms.relation)
    finally:
        logging.disable(logging.NOTSET)
    entries = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()}
        for row in rows
    ]
    found = {"run": str(terms.bound), "delta": delta, "relation": str(terms.relation), "accountants": entries}
    lines = [
        str(terms.bound),
        f"δ = {upward(delta, 'g')}, {terms.relation}; σ is the noise standard deviation over the clip norm C",
    ]
    for row in rows:
        differs = f"{100 * row.excess:+.2g} %" if math.isfinite(row.excess) and row.excess else ""
        lines.append(f"{row.accountant:<18} {upward(row.epsilon, '>14.9g')} {differs:>10}  {row.kind}")
        lines += [f"{'':<18}   {line}" for line in row.why]
    return answer(found, "\n".join(lines), as_json=as_json)
