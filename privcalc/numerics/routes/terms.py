"""The jumps route's terms: every way in which rare large jumps may happen, with K on the real axis.

See ``proofs/jumps.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.routes.bands import Band
from privcalc.numerics.solve import Bounds


@dataclass(frozen=True)
class Sure:
    """Such terms.

    Attributes:
        mu: μ, of the run's only pair.
        q: its rate.
        blur: the width of the bands' edges.
        count: the number T of uses.
        low: the lower edge of each term's highest band.
        log_p: log of each term's mass under P, with all ways to mark the uses.
        log_q: the same under Q.
        others: the same under Q without the highest jump.
        error: of these logarithms.
    """

    mu: float
    q: float
    blur: float
    count: int
    low: Floats
    log_p: Floats
    log_q: Floats
    others: Floats
    error: Floats

    def below(self, epsilon: float) -> Floats:
        """log of a bound of e^ε Q(L < ε) of each term; no less than that of e^ε Q where a band reaches so low."""
        least = epsilon - self.count * math.log1p(-self.q) * (1 + 4 * UNIT)
        t = (least if least > 30 else math.log(math.expm1(least) + self.q)) - math.log(self.q)
        reached = (t / self.mu + 0.5 * self.mu) + 1e-9 * (1 + abs(t) / self.mu + self.mu)
        low = np.maximum(self.low, 0.0)
        nearest = np.minimum(reached, low / (1 + self.blur**2))
        square = np.where(low > 0, nearest**2 + ((low - nearest) / self.blur) ** 2, 0.0)
        return np.asarray(epsilon + self.others + self.error - 0.5 * square, dtype=np.float64)

    @QUIET
    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of the sum of these terms of δ(ε)."""
        p, q, off = np.exp(self.log_p), np.exp(self.log_q + epsilon), np.expm1(self.error) + 4 * UNIT * (1 + epsilon)
        error = off * (p + q)
        lower = np.maximum(p - q - error, 0.0)
        upper = np.maximum(p - q + error, 0.0) + np.exp(self.below(epsilon))
        return float(lower.sum()) * (1 - 1e-12), float(upper.sum()) * (1 + 1e-12)

    def part(self, rows: NDArray[np.bool_]) -> Sure:
        """Some of the terms."""
        arrays = (self.low, self.log_p, self.log_q, self.others, self.error)
        return Sure(self.mu, self.q, self.blur, self.count, *(array[rows] for array in arrays))


def of_terms(family: Family, bulk: Band, bands: Sequence[Band]) -> Sure:
    """All terms of a run of nothing else, as if each were surely above ε; without a jump none is."""
    ends = np.array([-1.0, 0.0])
    base, base_error = bulk.log_real(ends)
    each = [band.log_real(ends) for band in bands]
    k, k_error = (np.array([found[i] for found in each]) for i in (0, 1))
    low, ks, errors, others = [], [], [], []
    for mark, log_weight in zip(family.marks, family.log_weight.tolist(), strict=True):
        still = bulk.count - len(mark)
        rest = log_weight + still * base + k[list(mark[:-1])].sum(axis=0)
        low.append(bands[mark[-1]].low if mark else -math.inf)
        ks.append(rest + k[mark[-1]] if mark else rest)
        others.append(float(rest[0]))
        errors.append(float((still * base_error + k_error[list(mark)].sum(axis=0)).max()))
    log_q, log_p = np.array(ks).T
    error = np.array(errors) + 1e-12 + 32 * UNIT * (np.abs(log_p) + np.abs(log_q))
    return Sure(bulk.mu, bulk.q, bulk.blur, bulk.count, np.array(low), log_p, log_q, np.array(others), error)


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
    """The logarithm log Σ e^x, without overflow."""
    top = float(x.max())
    return top + math.log(float(np.exp(x - top).sum())) if math.isfinite(top) else top
