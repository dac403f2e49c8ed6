"""Marks in ledgers of earlier versions: digests of generators' states, by which seeds can be tried. None are written now."""

from __future__ import annotations

from privcalc.files import regular
from privcalc.serial import parse

__all__ = ["secret"]

SECRET = (
    "{path}: is secret: an earlier version wrote digests of generators' states into it (bits: …), by which whoever has the "
    "file can try seeds of the run's noise and batches. Show its certificate, and not the ledger"
)


def secret(path: str) -> str | None:
    """What to say of a ledger's file that is an oracle for the noise of its run; None if it is none.

    Args:
        path: of a ledger that can be read.
    """
    with regular(path).open("rb") as lines:
        for line in lines:
            if b'"bits:' in line and line.endswith(b"\n"):
                entry = parse(line, "ledger")["entry"]
                if entry["type"] == "marks" and any(each.startswith("bits:") for each in entry["digests"]):
                    return SECRET.format(path=path)
    return None
