"""What is kept of each record while a run goes on: enough for its own loss, in constant memory.

With x = (norm ratio / noise multiplier)²: for full batches Σx; for Poisson sampling Σ x·T_j(2x/domain − 1), and the largest x.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.norm_batch import Bank
from privcalc.numerics.norm_table import MOMENTS
from privcalc.numerics.normal import Floats

ROWS, WAIT = 4096, 8
"""Records that are updated together, so that what they need fits into the cache; full steps that wait to be added."""

Indices = NDArray[np.intp]


@dataclass(eq=False)
class Moments:
    """Sums over the steps with x ≤ domain. What all records have in common is kept once, in ``shared``.

    Attributes:
        domain: end of the interval of x.
        sums: what each record has of its own, shape (records, size): size 1 for Σx alone, else MOMENTS.
        reach: the largest x that was seen of each record.
        shared: added to all records, shape (size,).
        spread: Σ|x| that was added and taken away again, at most: what roundings are relative to.
        count: number of steps.
    """

    domain: float
    sums: Floats
    reach: Floats
    shared: Floats = field(init=False)
    spread: float = 0.0
    count: int = 0
    _waiting: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _times: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = np.zeros(self.sums.shape[1])

    @classmethod
    def empty(cls, records: int, size: int, domain: float) -> Moments:
        """Nothing has happened."""
        return cls(domain, np.zeros((records, size)), np.zeros(records if size > 1 else 0))

    def add(self, ratios: NDArray[Any], scale: float, steps: int, rows: Indices | None, minus: float) -> None:
        """Add the moments of x = ratios²·scale, ``steps`` times, less those of x = minus; rows are distinct."""
        if rows is None:
            if self._waiting.shape[0] == 0:
                self._waiting = np.empty((WAIT if self.sums.shape[1] > 1 else 1, self.sums.shape[0]))
            x = self._waiting[len(self._times)]
            np.minimum(ratios, 1.0, out=x)
            x *= x
            x *= scale
            if self.reach.size:
                np.maximum(self.reach, x, out=self.reach)
            self._times.append(steps)
            if len(self._times) == self._waiting.shape[0]:
                self.settle()
            return
        less = self._of(np.array([minus]), steps) if minus else np.zeros((self.sums.shape[1], 1))
        for start in range(0, ratios.size, ROWS):
            x = np.square(np.minimum(ratios[start : start + ROWS], 1.0), dtype=np.float64)
            x *= scale
            found = self._of(x, steps)
            found -= less
            here = rows[start : start + ROWS]
            own = self.sums.take(here, axis=0)
            own += found.T
            self.sums[here] = own
            if self.reach.size:
                self.reach[here] = np.maximum(self.reach[here], x)

    def settle(self) -> None:
        """Add what waits; several steps at once, because the sums are far away in memory."""
        for start in range(0, self.sums.shape[0] if self._times else 0, ROWS):
            parts = (self._of(x[start : start + ROWS], steps) for x, steps in zip(self._waiting, self._times, strict=False))
            found = next(parts)
            for part in parts:
                found += part
            self.sums[start : start + ROWS] += found.T
        self._times.clear()

    def share(self, x: float, steps: int) -> None:
        """Add x for all records, of which some will be taken away."""
        self.shared += self._of(np.array([x]), steps)[:, 0]
        self.spread += 2 * x * steps

    def _of(self, x: Floats, steps: int) -> Floats:
        """steps·x·T_j(2x/domain − 1), shape (size, x)."""
        found = np.empty((self.sums.shape[1], x.size))
        np.multiply(x, steps, out=found[0])
        if found.shape[0] > 1:
            twice = x * (4 / self.domain)
            twice -= 2
            np.multiply(found[0], twice, out=found[1])
            found[1] *= 0.5
            for j in range(2, found.shape[0]):
                np.multiply(twice, found[j - 1], out=found[j])
                found[j] -= found[j - 2]
        return found

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self.sums.nbytes + self.reach.nbytes + self._waiting.nbytes

    def total(self) -> Floats:
        """Σx of each record."""
        self.settle()
        return np.asarray(np.maximum(self.sums[:, 0] + self.shared[0], 0.0), dtype=np.float64)

    def bank(self, unseen: NDArray[np.bool_], worst: float) -> Bank:
        """For the evaluation; records with an unseen step reach as far as any record can."""
        self.settle()
        moments = self.sums + self.shared
        scale = np.abs(moments[:, 0]) + self.spread
        reach = np.where(unseen, worst, self.reach) if self.shared[0] else self.reach
        return Bank(self.domain, moments, np.minimum(reach * (1 + 1e-12), self.domain), scale, self.count)


def fresh(records: int, full: bool, domain: float) -> Moments:
    """Sums for full batches, moments for sampled ones."""
    return Moments.empty(records, 1 if full else MOMENTS, domain)
