"""The sum S of n lognormals r = e^{μg − μ²/2} between two laws on few points, in the order of convex functions.

For every convex F, E F(merged) ≤ E F(S) ≤ E F(spread): ``spread`` splits what lies between two points of a grid among
them and keeps the mean, ``merged`` puts what lies between them at its mean. All terms are ≥ 0: masses keep their
relative precision. Proof: ``proofs/allocation.md``, §5.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.numerics.elementary import repeated
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
        on_grid = np.bincount(index, masses - share, self.size) + np.bincount(index + 1, share, self.size + 1)[:-1]
        return np.asarray(on_grid, dtype=np.float64), excess, 2 * int(np.bincount(index).max())

    def merged(self, logs: Floats, masses: Floats) -> tuple[Floats, Floats, int]:
        """Logarithms of the means in the cells, their masses, and the largest number of terms."""
        index = np.clip(np.floor((logs - self.low) / self.step).astype(np.int64), -1, self.size - 1) + 1
        in_cells = np.bincount(index, masses, self.size + 1)
        base = self.low + self.step * np.arange(-1, self.size)
        over = np.bincount(index, masses * np.exp(logs - base[index]), self.size + 1)
        kept = (in_cells > 0) & (over > 0)
        means = np.asarray(base[kept] + np.log(over[kept] / in_cells[kept]), dtype=np.float64)
        return means, np.asarray(in_cells[kept], dtype=np.float64), int(np.bincount(index).max())


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
        points, total, terms = grid.merged(logs, masses)
        relative = a.relative + b.relative + UNIT * (terms + 8)
        return Points(points, total, 0.0, 0.0, relative, shift + 4 * UNIT * terms)
    total, excess, terms = grid.spread(logs, masses)
    # With one of them at 0 the sum is the other; means beyond the grid add up.
    total += a.zero * b.masses + b.zero * a.masses
    return Points(
        a.logs,
        total,
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
    laws = []
    for one, spread in zip(_one(mu, grid), (False, True), strict=True):
        laws.append(repeated(one, number, functools.partial(_added, grid=grid, spread=spread)))
    return laws[0], laws[1]


_SIZE = 4096
"""Points of the circle, about."""

_SPREAD = 8.5
"""So many standard deviations of the sum are around the circle: what is beyond is told as something else."""

_FAR, _NORMAL = 12.0, 37.0
"""Standard deviations beyond which all is one cell; and up to which masses are normal numbers under both laws."""


class Laws(NamedTuple):
    """The two laws of the sum modulo some number of points, in order around its middle.

    Attributes:
        with_shifts: masses.
        without: masses.
        relative: by how much each may be off.
    """

    with_shifts: Floats
    without: Floats
    relative: float


class _Law(NamedTuple):
    """Masses of the residues, within one relative error."""

    masses: Floats
    relative: float


@QUIET
def _cells(mu: float, rate: float, spacing: float, size: int, shift: float) -> _Law:
    """The score of one release with this mean, modulo ``size`` points."""
    first = math.floor(np.logaddexp(math.log1p(-rate), math.log(rate) - mu * (_FAR + 0.5 * mu)) / spacing)
    last = math.ceil(np.logaddexp(math.log1p(-rate), math.log(rate) + mu * (_FAR + mu)) / spacing)
    last = min(last, first + 8 * _SIZE)
    edges = spacing * (np.arange(first, last) + 0.5)
    log_r = np.log(np.maximum(np.expm1(edges) + rate, 0.0)) - math.log(rate)
    x = (log_r + 0.5 * mu * mu) / mu
    # Any border will do that both laws share: far ones are at infinity.
    near, far = max(-_FAR, mu - _NORMAL), min(mu + _FAR, _NORMAL)
    x = np.maximum.accumulate(np.where(np.isnan(x) | (x < near), -np.inf, np.where(x > far, np.inf, x)))
    low, high = np.append(-np.inf, x) - shift, np.append(x, np.inf) - shift
    left = high <= 0
    mass = np.where(left, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high))
    ends = np.where(left, ndtr(high), ndtr(-low)) * (1 + np.minimum(np.where(left, high, low) ** 2, 1e4))
    some = np.append(x, np.inf) > np.append(-np.inf, x)  # of a cell whose mass is lost in rounding nothing is known
    folded = np.zeros(-(-mass.size // size) * size)
    folded[: mass.size] = mass
    masses = np.roll(folded.reshape(-1, size).sum(axis=0), first % size)
    return _Law(masses, float((16 * UNIT * ends[some] / mass[some]).max()) + UNIT * (folded.size // size))


def _sum(a: _Law, b: _Law) -> _Law:
    """Convolved around the circle: all terms are ≥ 0, and nothing is left out."""
    size = a.masses.size
    whole = np.append(np.convolve(a.masses, b.masses), 0.0)
    return _Law(whole[:size] + whole[size:], a.relative + b.relative + UNIT * (size + 8))


def scores(mu: float, steps: int, shifted: int, rate: float) -> Laws | None:
    """Return both laws of the sum on one circle; None if it would be too long, or all scores are one number."""
    # Only the circle's size is chosen from these rounded moments: any size is valid.
    x = np.linspace(-9, 9 + mu, 4001)
    weights = [np.exp(-0.5 * (x - m) ** 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi) for m in (0.0, mu)]
    score = np.logaddexp(math.log1p(-rate), math.log(rate) + mu * x - 0.5 * mu * mu)
    (mean, square), (moved, moved_square) = ((float(w @ score), float(w @ score**2)) for w in weights)
    width = math.sqrt(steps * max(square - mean**2, 0.0) + shifted * max(moved_square - moved**2, 0.0))
    far = float(np.logaddexp(math.log1p(-rate), math.log(rate) + mu * (7 + 0.5 * mu)))
    low = steps * mean - _SPREAD * width
    high = (steps - shifted) * mean + shifted * moved + _SPREAD * width + far
    spacing = (high - low) / _SIZE
    if not spacing > UNIT:  # scores differ by their rounding
        return None
    # What rounding does to the mean, and more than it does to the spread.
    drift = steps * float(weights[0] @ (spacing * np.rint(score / spacing) - score))
    more = (
        0.5 * spacing * (_SPREAD * math.sqrt(steps) + 4) + max(drift, 0.0),
        0.5 * spacing * _SPREAD * math.sqrt(steps) - min(drift, 0.0),
    )
    window = math.floor((min(low, 0.0) - more[1]) / spacing) - 1, math.ceil((max(high, 0.0) + more[0]) / spacing) + 1
    size = window[1] - window[0]
    if size > 8 * _SIZE:
        return None
    plain, moved_law = _cells(mu, rate, spacing, size, 0.0), _cells(mu, rate, spacing, size, mu)
    others = repeated(plain, steps - shifted, _sum)
    p, q = (_sum(others, repeated(law, shifted, _sum)) for law in (moved_law, plain))
    relative = max(p.relative, q.relative)
    # With fewer digits the lower end is worth nothing.
    if not relative < 1e-3:
        return None
    return Laws(np.roll(p.masses, -window[0]), np.roll(q.masses, -window[0]), relative)
