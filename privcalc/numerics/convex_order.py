"""The sum S of n lognormals r = e^{μg − μ²/2} between two laws on few points, in the order of convex functions.

For every convex F, E F(merged) ≤ E F(S) ≤ E F(spread): ``spread`` splits what lies between two points of a grid among
them and keeps the mean, ``merged`` puts what lies between them at its mean. All terms are ≥ 0: masses keep their
relative precision. Proof: ``proofs/allocation.md``, §5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.special import ndtr

REACH = 9.5
"""The grid covers so many standard deviations of log r, on the tilted side, too."""

MOST_MU = 20.0
"""Beyond it masses underflow."""

WIDEST = 0.5
"""The widest cell, in standard deviations of log r: Gauss's rule is exact there, and a wider grid tells little."""


@dataclass(frozen=True, eq=False)
class Points:
    """A law on ascending points.

    Attributes:
        logs: of the points.
        masses: without what lies at 0 and at infinity.
        zero: the mass at 0.
        excess: the mean at infinity, over the last point.
        relative: by how much masses may be off.
        shift: by how much logarithms may be off.
    """

    logs: Floats
    masses: Floats
    zero: float
    excess: float
    relative: float
    shift: float


@dataclass(frozen=True)
class Grid:
    """Points of ratio e^{step}."""

    low: float
    step: float
    size: int

    @classmethod
    def of(cls, mu: float, number: int, size: int) -> Grid:
        """From where a single r hardly ever is to where the sum of ``number`` hardly ever is."""
        low = -0.5 * mu * mu - REACH * mu
        high = 0.5 * mu * mu + REACH * mu + math.log(number)
        return cls(low, (high - low) / (size - 1), size)

    @property
    def logs(self) -> Floats:
        """The logarithms of the points, shape (size,)."""
        return np.asarray(self.low + self.step * np.arange(self.size), dtype=np.float64)

    def spread(self, logs: Floats, masses: Floats) -> tuple[Floats, float, int]:
        """Masses on the grid, the mean beyond it over the last point, and the largest number of terms.

        All lie above ``low``.
        """
        at = (logs - self.low) / self.step
        index = np.minimum(at.astype(np.int64), self.size - 1)
        above = np.maximum(logs - (self.low + self.step * index), 0.0)
        beyond = index == self.size - 1
        excess = float((masses * np.expm1(above))[beyond].sum())
        share = masses * np.where(beyond, 0.0, np.minimum(np.expm1(above) / math.expm1(self.step), 1.0))
        found = np.bincount(index, masses - share, self.size) + np.bincount(index + 1, share, self.size + 1)[:-1]
        return np.asarray(found, dtype=np.float64), excess, 2 * int(np.bincount(index).max())

    def merged(self, logs: Floats, masses: Floats) -> tuple[Floats, Floats, int]:
        """Logarithms of the means in the cells, their masses, and the largest number of terms."""
        index = np.clip(np.floor((logs - self.low) / self.step).astype(np.int64), -1, self.size - 1) + 1
        found = np.bincount(index, masses, self.size + 1)
        base = self.low + self.step * np.arange(-1, self.size)
        over = np.bincount(index, masses * np.exp(logs - base[index]), self.size + 1)
        kept = (found > 0) & (over > 0)
        means = np.asarray(base[kept] + np.log(over[kept] / found[kept]), dtype=np.float64)
        return means, np.asarray(found[kept], dtype=np.float64), int(np.bincount(index).max())


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = 0.5 * (1 + _NODES), 0.5 * _WEIGHTS


@QUIET
def _one(mu: float, grid: Grid) -> tuple[Points, Points]:
    """R itself, merged and spread."""
    width = grid.step / mu
    x = (grid.logs + 0.5 * mu * mu) / mu
    inner = x[:-1, None] + width * _NODES
    density = width / math.sqrt(2 * math.pi) * np.exp(-0.5 * inner * inner) * _WEIGHTS
    rise = np.expm1(grid.step * _NODES)
    mass, over = density.sum(axis=1), density @ (1 + rise)
    share = density @ (rise / math.expm1(grid.step))
    stay = density @ (np.expm1(grid.step * (1 - _NODES)) * np.exp(grid.step * (_NODES - 1)) / -math.expm1(-grid.step))
    reach = float(np.abs(x).max())
    relative, shift = UNIT * (64 + 4 * reach * reach), UNIT * (16 + 8 * float(np.abs(grid.logs).max()))
    ends = np.array([ndtr(x[0]), ndtr(-x[-1])])
    means = np.array([ndtr(x[0] - mu), ndtr(mu - x[-1])])
    outer = [math.log(mean / end) for mean, end in zip(means, ends, strict=True)]
    below = Points(
        np.concatenate([outer[:1], grid.logs[:-1] + np.log(over / mass), outer[1:]]),
        np.concatenate([ends[:1], mass, ends[1:]]),
        0.0, 0.0, relative, shift + 4 * relative,
    )  # fmt: skip
    spread = np.append(stay, 0.0) + np.append(0.0, share)
    # Below the grid it is 0 or the first point, beyond it the last point or infinity.
    spread[0] += means[0] * math.exp(-grid.logs[0])
    spread[-1] += ends[1]
    return below, Points(grid.logs, spread, float(ends[0]), float(means[1] * math.exp(-grid.logs[-1])), relative, shift)


def _added(a: Points, b: Points, grid: Grid, *, spread: bool) -> Points:
    """The sum of two independent ones."""
    logs = np.logaddexp.outer(a.logs, b.logs).ravel()
    masses = np.multiply.outer(a.masses, b.masses).ravel()
    shift = max(a.shift, b.shift) + UNIT * (16 + 4 * float(np.abs(logs).max()))
    if not spread:
        points, found, terms = grid.merged(logs, masses)
        relative = a.relative + b.relative + UNIT * (terms + 8)
        return Points(points, found, 0.0, 0.0, relative, shift + 4 * UNIT * terms)
    found, excess, terms = grid.spread(logs, masses)
    # With one of them at 0 the sum is the other; means beyond the grid add up.
    found += a.zero * b.masses + b.zero * a.masses
    return Points(
        a.logs,
        found,
        a.zero * b.zero,
        a.excess + b.excess + excess,
        a.relative + b.relative + UNIT * (terms + 8),
        shift,
    )


@QUIET
def between(mu: float, number: int, size: int) -> tuple[Points, Points] | None:
    """``merged`` and ``spread`` laws of S on about so many points; None if these are too far apart."""
    grid = Grid.of(mu, number, size)
    if grid.step > WIDEST * mu:
        return None
    found = []
    for one, spread in zip(_one(mu, grid), (False, True), strict=True):
        whole = one
        for bit in bin(number)[3:]:
            whole = _added(whole, whole, grid, spread=spread)
            if bit == "1":
                whole = _added(whole, one, grid, spread=spread)
        found.append(whole)
    return found[0], found[1]
