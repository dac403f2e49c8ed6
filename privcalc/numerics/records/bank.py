"""The bank of a record's sampled steps: the largest exactly, the others by Chebyshev moments of x.

Here x = (ratio / noise)².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.records.table import MOMENTS

CLOSE = 0.6
"""Tolerances, 1e-4·ε + 1e-6, above which a record is asked again by a slower route."""

KEEP = 8
"""Steps of a record that are kept exactly: its largest."""


@dataclass(frozen=True, eq=False)
class Bank:
    """Records over steps of one sampling rate with x in [0, domain].

    Attributes:
        rate: q in (0, 1]; full batches keep no largest steps.
        domain: end of the interval.
        moments: Σ_t x_t T_j(2x_t/domain − 1) of the steps that are not kept, shape (n, MOMENTS).
        reach: a bound of the largest x_t among them, shape (n,); 0 without steps.
        scale: Σ_t |what was added|, ≥ Σ_t x_t, shape (n,): what the rounding of the moments is relative to.
        count: number of steps, at most, of any record.
        largest: x of the steps that are kept, 0 where there are fewer, shape (n, any).
    """

    rate: float
    domain: float
    moments: Floats
    reach: Floats
    scale: Floats
    count: int
    largest: Floats

    def __getitem__(self, rows: NDArray[np.intp] | slice) -> Bank:
        held = self.moments[rows], self.reach[rows], self.scale[rows], self.count, self.largest[rows]
        return Bank(self.rate, self.domain, *held)

    @property
    def unit(self) -> float:
        """Bound of the rounding error of a moment, relative to ``scale``."""
        return 4 * (self.count + 200) * UNIT

    def folded(self) -> Bank:
        """The bank with all steps in the moments."""
        moments = self.moments.copy()
        for x in self.largest.T:
            moments += weighted(x, self.domain, MOMENTS).T
        scale = self.scale + self.largest.sum(axis=1)
        reach = np.maximum(self.reach, self.largest.max(axis=1, initial=0.0))
        return Bank(
            self.rate, self.domain, moments, np.minimum(reach, self.domain), scale, self.count, self.largest[:, :0]
        )


def weighted(x: Floats, domain: float, size: int) -> Floats:
    """x·T_j(2x/domain − 1), shape (size, x)."""
    found = np.empty((size, x.size))
    found[0] = x
    if size > 1:
        twice = x * (4 / domain)
        twice -= 2
        np.multiply(found[0], twice, out=found[1])
        found[1] *= 0.5
        for j in range(2, size):
            np.multiply(twice, found[j - 1], out=found[j])
            found[j] -= found[j - 2]
    return found
