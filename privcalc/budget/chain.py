"""A data set's history in a store, and its witness: a small file, kept apart, that remembers its length."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from privcalc.budget.history import History
from privcalc.errors import PrivcalcError
from privcalc.files import named, read_whole, write_whole
from privcalc.log.database import Shared
from privcalc.log.sqlite import connect
from privcalc.serial import Field, canonical, check_fields, parse

__all__ = ["Chain", "Witness", "chain_of"]

FORMAT = "privcalc witness"
LARGEST = 1 << 12
"""Bytes of a witness, of which it has some three hundred."""

FIELDS = {
    "format": Field((str,), among=(FORMAT,)),
    "dataset": Field((str,)),
    "lines": Field((int,)),
    "hash": Field((str,)),
}


class Witness:
    """What was seen of one data set's history; the file is made when there is something to remember."""

    def __init__(self, path: str | os.PathLike[str], dataset: str) -> None:
        self.path: Path = named(path, name="witness")
        self.dataset = dataset

    def seen(self) -> tuple[int, str] | None:
        """Lines, and the hash of the last; None if it has seen nothing.

        Raises:
            PrivcalcError: if the file is of another data set, or no witness.
        """
        with contextlib.suppress(FileNotFoundError):
            found = parse(read_whole(self.path, name="witness", limit=LARGEST), f"witness = {str(self.path)!r}")
            check_fields(f"witness = {str(self.path)!r}", found, FIELDS)
            if found["dataset"] != self.dataset:
                raise PrivcalcError(
                    f"witness = {str(self.path)!r}: is of {found['dataset']!r}, not of {self.dataset!r}"
                )
            return found["lines"], found["hash"]
        return None

    def remember(self, lines: int, digest: str) -> None:
        """That the history came this far. Two processes may write at once: the file then has the one or the other."""
        if (self.seen() or (0, ""))[0] < lines:
            self.write(lines, digest)

    def write(self, lines: int, digest: str) -> None:
        """That this is what was seen, whatever it was before."""
        write_whole(
            self.path, canonical({"format": FORMAT, "dataset": self.dataset, "lines": lines, "hash": digest}) + "\n"
        )


Chain = Shared[History]
"""The lines, and what they say."""


def chain_of(url: object, dataset: str, witness: Witness | None = None) -> Chain:
    """The history of a data set in the store of this URL; nothing is asked yet."""
    return Shared(connect(url), dataset, History, witness)
