"""Marks in ledgers of earlier versions; none are written now.

They are digests of generators' states, by which seeds can be tried.
"""

from __future__ import annotations

from privcalc.log.file import read

__all__ = ["secret"]

SECRET = (
    "{path}: is secret: an earlier version wrote digests of generators' states into it (bits: …), by which whoever has "
    "the file can try seeds of the run's noise and batches. Show its certificate, and not the ledger"
)


def secret(path: str) -> str | None:
    """What to say of a ledger's file that is an oracle for the noise of its run; None if it is none.

    Args:
        path: of a ledger.

    Raises:
        PrivcalcError: if it does not fit its hashes.
    """
    with read(path) as (entries, _):
        found = any(entry.get("type") == "marks" and "'bits:" in str(entry.get("digests")) for entry in entries)
    return SECRET.format(path=path) if found else None
