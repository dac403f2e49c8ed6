"""The jumps route's terms: every way in which rare large jumps may happen, with K on the real axis.

See ``proofs/jumps.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import Floats


@dataclass(frozen=True)
class Family:
    """All terms: which bands jump, log w_k, and K_k with its errors and log w_k added, at the points c."""

    marks: list[tuple[int, ...]]
    log_weight: Floats
    c: Floats
    k: Floats
    mass: Floats

    def log_peaks(self, epsilon: float) -> Floats:
        """For every term, the least of K_k(c) − cε − log(1 + c), which is about its log δ."""
        return np.asarray((self.k + self.base(epsilon)).min(axis=1), dtype=np.float64)

    def base(self, epsilon: float) -> Floats:
        """What is added to K for an integrand of about its integral's size."""
        return -self.c * epsilon - np.log1p(self.c)

    def log_delta(self, epsilon: float) -> float:
        """An estimate of log δ(ε), by the saddle point method."""
        values = self.k + self.base(epsilon)
        at = np.clip(np.argmin(values, axis=1), 1, self.c.size - 2)
        row, log_c = np.arange(at.size), np.log(self.c)
        low, mid, high = (values[row, at + i] for i in (-1, 0, 1))
        curvature = np.maximum((low + high - 2 * mid) / (log_c[1] - log_c[0]) ** 2, 0.3)
        return log_sum(np.nan_to_num(mid - 0.5 * np.log(2 * math.pi * curvature), nan=-math.inf, posinf=math.inf))

    def chernoff(self, epsilon: float) -> Floats:
        """A bound of every term's δ."""
        c = self.c
        best = (self.k - c * epsilon - np.log1p(c) - c * np.log1p(1 / c)).min(axis=1)
        return np.asarray(np.exp(np.minimum(np.fmin(best, self.mass), 0.0)) * (1 + 1e-9), dtype=np.float64)

    def part(self, rows: NDArray[np.bool_]) -> Family:
        """Some of the terms."""
        chosen = np.flatnonzero(rows)
        return Family(
            [self.marks[i] for i in chosen], self.log_weight[chosen], self.c, self.k[chosen], self.mass[chosen]
        )


def log_sum(x: Floats) -> float:
    """log Σ e^x."""
    top = float(x.max())
    return top + math.log(float(np.exp(x - top).sum())) if math.isfinite(top) else top
