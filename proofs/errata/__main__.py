"""``python -m proofs.errata``: compute every witness, print the table; ``--write`` writes ``proofs/ERRATA.md``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from privcalc.files import write_whole
from privcalc.terminal import command
from proofs.check import ROOT
from proofs.errata.catalogue import document, table


@command("python -m proofs.errata")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.errata", description="Errata of five papers, computed again."
    )
    parser.add_argument("--write", action="store_true", help="write proofs/ERRATA.md")
    if parser.parse_args(argv).write:
        write_whole(ROOT / "proofs" / "ERRATA.md", document())
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
