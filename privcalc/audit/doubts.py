"""What contradicts a claim in an audit: batches that no coins of the stated rate drew (``proofs/audits.md``, §1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from privcalc import errors
from privcalc.tripwire import Sizes

__all__ = ["EMPTY", "Doubts"]

CHOSEN = "If the indices were not the batches but records that you chose to measure, make an audit of these alone"
"""What else batches of one size may be."""

EMPTY = (
    "losses: have no step, so that ε is 0 for all: were they made anew after the run? Each step of it wants an update"
)
"""Of answers before the first step."""


class Doubts:
    """The doubts that an audit found, each said once: when found, or with the first answer after loading or joining.

    Args:
        records: how many.
        before: what was found before it was saved, or joined.

    Attributes:
        found: all that was found, in words.
    """

    def __init__(self, records: int, before: tuple[str, ...] = ()) -> None:
        self.found = before
        self._untold, self._told = before, False
        self._records = records
        self._sizes: dict[float, Sizes] = {}

    def add(self, size: int, rate: float) -> None:
        """The size of one more batch, and the rate at which it was drawn."""
        sizes = self._sizes.setdefault(rate, Sizes(rate, self._records))
        sizes.add(size)
        if sizes.doubt is not None and not self._told:
            self._told = True
            self.found += (f"{sizes.doubt}. {CHOSEN}",)
            errors.warn(self.found[-1])

    def and_those(self, other: Doubts, records: int) -> Doubts:
        """Both, for what was measured, of so many records together; steps that follow are looked at anew."""
        return Doubts(records, tuple(dict.fromkeys([*self.found, *other.found])))

    def untold(self) -> tuple[str, ...]:
        """What was found and not yet said here: it is said now."""
        untold, self._untold = self._untold, ()
        return untold

    @property
    def saved(self) -> dict[str, Any]:
        """For a file."""
        return {"doubt": list(self.found)}

    @classmethod
    def restored(cls, records: int, saved: Mapping[str, Any]) -> Self:
        """From a file, of which older ones have one doubt at most."""
        told = saved["doubt"]
        return cls(records, () if told is None else (told,) if isinstance(told, str) else tuple(map(str, told)))
