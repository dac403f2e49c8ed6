"""A tripwire: norms that were sorted, or shuffled, in each step; their places are no record's (``proofs/audits.md``, §1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SHUFFLED", "SORTED", "Order"]

SORTED = (
    "norms: are sorted in each step, as if not by record but by size: place i must be one record's in all steps, or ε is of no "
    "record. Give them in the order of the data set"
)
SHUFFLED = (
    "norms: are nearly the same numbers in each step, at other places, as a loader that shuffles gives them: place i must be one "
    "record's in all steps, or ε is of no record. Give them in the order of the data set"
)

LEAST, MOST, PREFIX = 64, 2**15, 4096
"""Of how many records norms are compared with those of the step before, and how many are looked at for being sorted."""

STEPS, LOOKED = 5, 100
"""In how many steps in a row it must be so, and how many steps are looked at."""


class Order:
    """The places of norms of all records. It is no proof where it is silent.

    Sorted: in steps whose norms are not multiples of each other, as those of one feature are, all of at least 64 ascend, or all
    descend; by chance with 2/64! for each. Shuffled: as samples of the step before and of this one they are closer than two
    samples of one law are but once in 10⁵ steps (Kolmogorov and Smirnov), though their places have nothing in common.

    Attributes:
        doubt: what is wrong; None while nothing is.
    """

    def __init__(self) -> None:
        self.doubt: str | None = None
        self._last: NDArray[Any] | None = None
        self._steps, self._sorted, self._shuffled = 0, 0, 0

    @property
    def nbytes(self) -> int:
        """Memory that grows with the number of records."""
        return 0 if self._last is None else self._last.nbytes

    def add(self, norms: NDArray[Any]) -> None:
        """Those of one more step, before clipping where they are known so."""
        if self.doubt is not None or self._steps >= LOOKED or norms.size < LEAST:
            self._last = None
            return
        self._steps += 1
        now, last = np.array(norms[:MOST] if norms.size <= MOST else norms[:PREFIX], dtype=np.float64), self._last
        self._last = now
        if last is None or last.size != now.size or min(np.unique(now).size, np.unique(last).size) < 0.9 * now.size:
            self._sorted = self._shuffled = 0
            return
        self._sorted = self._sorted + 1 if _monotone(now) and _monotone(last) and not _multiples(last, now) else 0
        self._shuffled = self._shuffled + 1 if norms.size <= MOST and _shuffled(last, now) else 0
        if max(self._sorted, self._shuffled) >= STEPS:
            self.doubt = SORTED if self._sorted >= STEPS else SHUFFLED


def _monotone(norms: NDArray[Any]) -> bool:
    steps = np.diff(norms)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _multiples(last: NDArray[Any], now: NDArray[Any]) -> bool:
    return bool(np.allclose(now * last.max(), last * now.max(), rtol=1e-6, atol=0.0))


def _shuffled(last: NDArray[Any], now: NDArray[Any]) -> bool:
    size = now.size
    there, here = np.argsort(np.argsort(last)), np.argsort(np.argsort(now))
    if abs(float(np.corrcoef(there, here)[0, 1])) > 4 / math.sqrt(size):
        return False
    both = np.sort(np.concatenate([last, now]))
    laws = (np.searchsorted(np.sort(each), both, side="right") for each in (last, now))
    distance = float(np.abs(np.subtract(*laws)).max()) / size
    return distance < 0.3 * math.sqrt(2 / size)
