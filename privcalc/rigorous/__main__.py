"""``python -m privcalc.rigorous CERT``: prove the claims of a certificate, with python-flint and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from privcalc.rigorous.description import finite_claims
from privcalc.rigorous.proof import Prover


def main(path: str) -> int:
    """Print a line for each claim; 0 if all were proved, 1 if one was refuted, else 3.

    Nothing else of the file is checked.
    """
    document = json.loads(Path(path).read_bytes())
    prover, verdicts = Prover(document["run"], document["relation"]), set[str]()
    for epsilon, delta in finite_claims(document):
        finding = prover.decide(epsilon, delta)
        verdicts.add(finding.verdict)
        print(f"δ({epsilon!r}) ≤ {delta!r} under {document['relation']}: {finding.verdict}")
    return 1 if "refuted" in verdicts else 3 if "undecided" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
