"""Doubts of the unit of norms: they may be in another one than the clip norm, or shares of it, or clipped to another one.

It is seen from how large they are, and proves nothing where it is silent (``proofs/audits.md``, §1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIVIDED", "RAW", "Units"]

RAW = (
    "norms: none of them has reached the clip norm yet, of which without clip_norm they are taken to be shares. Where they are "
    "norms as they are, give clip_norm, or ε is wrong, and may be far too small; if shares, clip_norm=1 says so (and a smaller "
    "clip norm would have needed less noise)"
)
"""Of norms that may be no shares of a clip norm."""


UNIT = (
    "norms: none of them has reached a tenth of the clip norm yet, as if they had another unit than it: a loss that is averaged "
    "over the batch has gradients as many times shorter, and norms may have been divided already. If so, ε is far too small: "
    "give the norm of each record's own contribution; if not, a smaller clip norm would have needed less noise"
)
"""Of norms far below the clip norm that was given."""

ALIKE = (
    "norms: many, in several steps, are one and the same number below the clip norm, and none is larger, as if they had been "
    "clipped to it: if these are norms after another clipping, or in another unit, ε is too small, give those of what was really "
    "added up; if not, this number as the clip norm would have needed less noise"
)
"""Of norms that may have been clipped to another clip norm."""


class Shares:
    """Shares of a clip norm: of records that were clipped the share is 1.

    It is no proof: norms as they are may reach 1 by chance, and a clip norm may be so large that no record is clipped.

    Attributes:
        steps: in how many steps some were given that are not 0.
        norms: how many these were.
        largest: the largest.
        times: how many were as large as that, but for rounding in single precision,
        turns: in how many steps that had at least two of these.
    """

    def __init__(self, steps: int = 0, norms: int = 0, largest: float = 0.0, times: int = 0, turns: int = 0) -> None:
        self.steps, self.norms, self.largest, self.times, self.turns = steps, norms, largest, times, turns

    def add(self, norms: NDArray[np.floating[Any]]) -> None:
        """Those of one more step."""
        found = int(np.count_nonzero(norms))
        if found:
            most = float(norms.max())
            times = int(np.count_nonzero(norms >= most * (1 - 1e-6)))
            here = Shares(1, found, most, times, int(times > 1))
            self.__dict__.update(self.and_those(here).__dict__)

    def and_those(self, other: Shares) -> Shares:
        """Both."""
        largest = max(self.largest, other.largest)
        same = [each for each in (self, other) if each.largest >= largest * (1 - 1e-6)]
        counts = sum(each.times for each in same), sum(each.turns for each in same)
        return Shares(self.steps + other.steps, self.norms + other.norms, largest, *counts)

    @property
    def doubt(self) -> bool:
        """Whether there were many, and none was 1, up to rounding in half precision."""
        return self.steps >= 5 and self.norms >= 50 and self.largest < 1 - 1e-2

    @property
    def unit(self) -> str | None:
        """What is said where they are of norms that were given with their clip norm; None if nothing is."""
        if self.doubt and self.largest < 0.1:
            return UNIT
        cut = self.turns >= 3 and min(self.times, self.norms - self.times) >= 50  # all alike are of bounded records
        return ALIKE if cut and self.largest < 1 - 1e-2 else None


DIVIDED = (
    "norms: many are 1 and none is larger, as if they had been divided by the clip norm already: if so, leave clip_norm out, or "
    "ε is far too small; if they are norms as they are, a clip norm of 1 would have needed less noise"
)
"""Of norms that may be shares of the clip norm that was given."""


class Divided:
    """Norms that were given with a clip norm above 1, and look like shares of it: the clipped ones are 1, and none is larger.

    With a smaller clip norm shares count as more than they are. It is no proof: see :class:`Shares`.

    Attributes:
        ones: how many were 1, up to rounding in single precision.
        largest: the largest.
    """

    def __init__(self, ones: int = 0, largest: float = 0.0) -> None:
        self.ones, self.largest = ones, largest

    def add(self, norms: NDArray[Any], clip_norm: float) -> None:
        """Those of one more step."""
        if clip_norm > 1 and norms.size:
            self.ones += int(np.count_nonzero(np.abs(norms - 1.0) <= 1e-6))
            self.largest = max(self.largest, float(norms.max()))

    def and_those(self, other: Divided) -> Divided:
        """Both."""
        return Divided(self.ones + other.ones, max(self.largest, other.largest))

    @property
    def doubt(self) -> bool:
        """Whether many were 1, and none was larger."""
        return self.ones >= 50 and self.largest <= 1 + 1e-6


class Units:
    """Of norms and their clip norms: whether they may be in another unit, or clipped already."""

    def __init__(self) -> None:
        self._shares, self._given, self._divided = Shares(), Shares(), Divided()

    def add(self, norms: NDArray[Any], shares: NDArray[Any], clip_norm: float | None) -> None:
        """Those of one more step.

        Args:
            norms: as they were given.
            shares: of the clip norm, at most 1.
            clip_norm: as it was given; None if the norms were shares.
        """
        if clip_norm is None:
            self._shares.add(shares)
        else:
            self._divided.add(norms, clip_norm)
            self._given.add(shares)

    def and_those(self, other: Units) -> Units:
        """Both."""
        found = Units()
        found._shares, found._given = self._shares.and_those(other._shares), self._given.and_those(other._given)
        found._divided = self._divided.and_those(other._divided)
        return found

    @property
    def doubts(self) -> list[str]:
        """What is said with answers."""
        unit = DIVIDED if self._divided.doubt else self._given.unit
        return [*([RAW] if self._shares.doubt else []), *([] if unit is None else [unit])]

    @property
    def saved(self) -> dict[str, list[float]]:
        """For a file."""
        return {name: list(vars(getattr(self, f"_{name}")).values()) for name in ("shares", "given", "divided")}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """From a file, of which older ones have less."""
        found = cls()
        found._shares, found._given = Shares(*saved.get("shares", ())), Shares(*saved.get("given", ()))
        found._divided = Divided(*saved.get("divided", ()))
        return found
