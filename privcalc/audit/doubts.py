"""Doubts of an audit's norms: of drawn records alone, in another unit than the clip norm, or clipped to another one.

They see zeros and how large norms are, and prove nothing where they are silent (``proofs/audits.md``, §1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIVIDED", "EMPTY", "RAW", "UNMEASURED", "Divided", "Shares", "Zeros"]

UNMEASURED = (
    "norms: about rate·records of them are not 0 at each step, and others in the next, as if only drawn records had been "
    "measured: give all records' norms, as if all had been drawn, or indices= of the drawn. Else ε is far too small"
)
"""Of zeros that may be records which were not drawn."""

EMPTY = "losses: have no step, so that ε is 0 for all: were they made anew after the run? Each step of it wants an update"
"""Of answers before the first step."""


NOTHING = 1e-5
"""Shares of the clip norm up to this are taken for 0: many add 1e-6 to a norm, or take at least that."""


class Zeros:
    """Norms that are 0 in a step for all but about rate·records, and in the next for all but others: the drawn ones.

    Whoever has norms that are truly 0 mostly keeps them (a record that nothing is learnt from, a margin that is wide enough), so
    that those that are not 0 are the same in the next step. Of drawn records each is drawn again with probability ``rate`` only.
    It is no proof (``proofs/audits.md``, §1).

    Attributes:
        doubt: whether, for at least five steps in a row and sixteen records that changed, both numbers were such as coins give.
        short: whether, in fewer steps, all numbers since the first were such as coins give, of at least eight records.
    """

    def __init__(self) -> None:
        self.doubt = False
        self._contrary = False
        self._drawn, self._left, self._expected, self._scatter = 0, 0, 0.0, 0.0
        self._forget()

    @property
    def short(self) -> bool:
        """What answers look at, before there is a doubt."""
        near = abs(self._drawn - self._expected) <= 4 * math.sqrt(self._scatter)
        again = self._stayed <= self._mean + 4 * math.sqrt(self._variance)
        return not self._contrary and min(self._drawn, self._left) >= 8 and near and again

    def _forget(self) -> None:
        """Begin again: so many records are not drawn by coins."""
        self._last: NDArray[np.bool_] | None = None
        self._steps, self._were, self._stayed, self._mean, self._variance = 0, 0, 0, 0.0, 0.0

    @property
    def nbytes(self) -> int:
        """Memory that grows with the number of records."""
        return 0 if self._last is None else self._last.nbytes

    def add(self, norms: NDArray[np.floating[Any]], rate: float) -> None:
        """The norms of all records in one more step, sampled at a rate below 1. Steps in which all are 0 are passed over."""
        found = norms > NOTHING
        count = int(np.count_nonzero(found))
        if count == 0 or self.doubt:
            return
        self._drawn, self._left = self._drawn + count, self._left + norms.size - count
        self._expected += rate * norms.size
        self._scatter += rate * (1 - rate) * norms.size
        if count > rate * norms.size + 4 * math.sqrt(rate * (1 - rate) * norms.size) + 2:
            self._contrary = True
            self._forget()
            return
        if self._last is not None:
            were = int(np.count_nonzero(self._last))
            self._steps += 1
            self._were += were
            self._stayed += int(np.count_nonzero(found & self._last))
            self._mean += rate * were
            self._variance += rate * (1 - rate) * were
            off, left = 4 * math.sqrt(self._variance), self._were - self._mean
            self.doubt = self._steps >= 5 and left >= max(16, 2 * off) and self._stayed <= self._mean + off
        self._last = found


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
