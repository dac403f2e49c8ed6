"""``python -m benchmarks.claims``: published claims recomputed; writes ``results/claims.md`` from the files here."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from privcalc.claims import Claim, Verdict, check
from privcalc.claims.schema import OPEN, PARAMETERS
from privcalc.claims.verdict import within
from privcalc.files import write_whole
from privcalc.terminal import command

FOLDER = Path(__file__).parent
TARGET = FOLDER.parents[1] / "results" / "claims.md"

HEAD = """# Published claims, recomputed

Written by `python -m benchmarks.claims` from the files in `benchmarks/claims`, each of which
`privcalc claim check FILE` answers for. What is quoted was read where the address says; "not stated" means: not in the
texts that are quoted. What a verdict says, and what it does not: [guide](../docs/guides/claims.md),
[proof](../proofs/claims.md). A correction is a better quotation in one of these files.
"""


def cell(text: object) -> str:
    """Text for a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def quoted(text: str) -> str:
    """Text as it stands, also where it has backticks itself."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {cell(text)} {fence}"


def section(verdict: Verdict) -> str:
    """One claim: verdict, readings, sources."""
    claim = verdict.claim
    lines = [f"\n## {claim.name}\n", f"**Verdict.** The published ε {verdict.text}.\n"]
    lines += ["| reading | ε |", "|---|---|"]
    for reading in verdict.readings:
        found = reading.why or within(reading.lower, reading.upper)
        lines.append(f"| {verdict.label(reading)} | {cell(found)} |")
    lines += ["\n| parameter | value | where it is stated |", "|---|---|---|"]
    for name in PARAMETERS:
        stated = claim.document[name]
        sources = "; ".join(
            f"{quoted(each['quote'])} [{host(each['address'])}]({each['address']})" for each in stated["sources"]
        )
        value = " or ".join(map(str, claim.values(name))) or OPEN
        lines.append(f"| {name.replace('_', ' ')} | {cell(value)} | {sources} |")
    for title in ("assumptions", "evidence"):
        lines += (
            [f"\n{title.capitalize()}:\n", *(f"* {text}" for text in claim.document[title])]
            if claim.document[title]
            else []
        )
    return "\n".join(lines) + "\n"


def host(address: str) -> str:
    """What a link is called: its last part."""
    return address.rstrip("/").rpartition("/")[2]


def page(folder: Path = FOLDER) -> str:
    """All claims of a folder."""
    return HEAD + "".join(section(check(Claim.load(path))) for path in sorted(folder.glob("*.json")))


@command("benchmarks.claims")
def main(argv: list[str] | None = None) -> int:
    """Write the page; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--out", type=Path, default=TARGET)
    write_whole(parser.parse_args(argv).out, page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
