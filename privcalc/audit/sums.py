"""What is kept of each record while a run goes on: enough for its own loss, in constant memory.

With x = (norm ratio / noise multiplier)²: for full batches Σx; for Poisson sampling the KEEP largest x, rounded up to
float32, and of the others Σ x·T_j(2x/domain − 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import UNIT, Floats

KEEP = 8
"""Steps of a record that are kept exactly: its largest."""

MOMENTS = 14
"""Chebyshev moments of the others."""

ROWS, WAIT = 4096, 8
"""Records that are updated together, so that what they need fits into the cache; full steps that wait to be added."""

LEAST = 1e-300
"""What an x below it, but above 0, is rounded up to: down to it doubles keep their relative precision."""

Indices = NDArray[np.intp]
Singles = NDArray[np.float32]


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

    def folded(self) -> Bank:
        """All steps in the moments."""
        moments = self.moments.copy()
        for column in self.largest.T:
            moments += weighted(column, self.domain, MOMENTS).T
        reach = np.maximum(self.reach, self.largest.max(axis=1, initial=0.0))
        scale = self.scale + self.largest.sum(axis=1)
        return Bank(self.rate, self.domain, moments, reach, scale, self.count, self.largest[:, :0])

    @property
    def unit(self) -> float:
        """Bound of the rounding error of a moment, relative to ``scale``."""
        return 4 * (self.count + 200) * UNIT


@dataclass(eq=False)
class Moments:
    """Sums over the steps with x ≤ domain. What all records have in common is kept once, in ``shared``.

    Attributes:
        rate: with which records are sampled; 1 for full batches.
        domain: end of the interval of x.
        sums: what each record has of its own, shape (records, size): size 1 for Σx alone, else MOMENTS.
        largest: the largest x of each record, ascending, shape (records, KEEP), or (records, 0) for full batches; they
            are not in the sums, and no x in the sums is larger than the first of them.
        shared: added to all records, shape (size,).
        spread: Σ|x| that was added and taken away again, at most: what roundings are relative to.
        count: number of steps.
    """

    rate: float
    domain: float
    sums: Floats
    largest: Singles
    shared: Floats = field(init=False)
    spread: float = 0.0
    count: int = 0
    _waiting: NDArray[np.floating[Any]] = field(default_factory=lambda: np.empty((0, 0)))
    _times: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = np.zeros(self.sums.shape[1])

    @classmethod
    def empty(cls, records: int, rate: float, domain: float) -> Moments:
        """Whether no step has been added yet."""
        size = 1 if rate == 1 else MOMENTS
        return cls(
            rate, domain, np.zeros((records, size)), np.zeros((records, KEEP if size > 1 else 0), dtype=np.float32)
        )

    def add(self, ratios: NDArray[Any], scale: float, steps: int, rows: Indices | None, minus: float) -> None:
        """Add x = ratios²·scale, ``steps`` times, and take x = minus away as often; rows are distinct."""
        # After KEEP times an x is not larger than any that is kept.
        once = min(steps, KEEP) if self.largest.size else 0
        if rows is None:
            for _ in range(once):
                self._wait(ratios, scale, 1)
            if steps > once:
                if once:
                    self.settle()
                self._wait(ratios, scale, steps - once)
                if once:
                    self.settle()
            return
        less = self._of(np.array([minus]), steps) if minus else np.zeros((self.sums.shape[1], 1))
        for start in range(0, ratios.size, ROWS):
            x = squares(ratios[start : start + ROWS], scale)
            here = rows[start : start + ROWS]
            found = self._of(self._keep(here, x), 1) if once else self._of(x, steps)
            for _ in range(once - 1):
                found += self._of(self._keep(here, x), 1)
            if steps > once > 0:
                found += self._of(x, steps - once)
            found -= less
            own = self.sums.take(here, axis=0)
            own += found.T
            self.sums[here] = own

    def _keep(self, rows: Indices, x: Floats) -> Floats:
        """Keep x where it is among the largest; what is not kept any more."""
        least = self.largest[rows, 0].astype(np.float64)
        new = np.flatnonzero(x > least)
        if new.size:
            kept = self.largest[rows[new]]
            kept[:, 0] = round_up(x[new])
            kept.sort(axis=1)
            self.largest[rows[new]] = kept
        return np.asarray(np.minimum(x, least), dtype=np.float64)

    def _wait(self, ratios: NDArray[Any], scale: float, steps: int) -> None:
        """Add full steps several at a time, as the sums are far away in memory; sampled ones in single precision."""
        sampled = self.largest.size > 0
        if self._waiting.shape[0] == 0:
            shape = (WAIT if sampled else 1, self.sums.shape[0])
            self._waiting = np.empty(shape, dtype=np.float32 if sampled else np.float64)
        row = self._waiting[len(self._times)]
        for start in range(0, row.size, ROWS):
            x = squares(ratios[start : start + ROWS], scale)
            row[start : start + ROWS] = round_up(x) if sampled else x
        self._times.append(steps)
        if len(self._times) == self._waiting.shape[0]:
            self.settle()

    def settle(self) -> None:
        """Add the steps that wait to the sums."""
        size = len(self._times)
        for start in range(0, self.sums.shape[0] if size else 0, ROWS):
            part = self._waiting[:size, start : start + ROWS].astype(np.float64)
            if self.largest.size and self._times == [1] * size:
                largest = self.largest[start : start + ROWS]
                new = np.flatnonzero(part.max(axis=0) > largest[:, 0])
                both = np.concatenate([largest[new], part[:, new].T], axis=1)
                both.partition(size, axis=1)
                part[:, new] = both[:, :size].T
                kept = both[:, size:].astype(np.float32)  # they are such numbers
                kept.sort(axis=1)
                largest[new] = kept
            found = self._of(part[0], self._times[0])
            for x, steps in zip(part[1:], self._times[1:], strict=True):
                found += self._of(x, steps)
            self.sums[start : start + ROWS] += found.T
        self._times.clear()

    def share(self, x: float, steps: int) -> None:
        """Add x for all records, of which some will be taken away."""
        self.shared += self._of(np.array([x]), steps)[:, 0]
        self.spread += 2 * x * steps

    def _of(self, x: Floats, steps: int) -> Floats:
        """steps·x·T_j(2x/domain − 1), shape (size, x)."""
        found = weighted(x, self.domain, self.sums.shape[1])
        if steps != 1:
            found *= steps
        return found

    def beside(self, other: Moments) -> Moments:
        """These records and others of the same steps, these first."""
        self.settle()
        other.settle()
        both = (np.concatenate([self.sums, other.sums]), np.concatenate([self.largest, other.largest]))
        found = Moments(self.rate, self.domain, *both)
        found.sums[: len(self.sums)] += self.shared
        found.sums[len(self.sums) :] += other.shared
        found.spread, found.count = max(self.spread, other.spread), max(self.count, other.count)
        return found

    def after(self, other: Moments, order: NDArray[np.intp]) -> Moments:
        """The same records' steps here, then those of ``other``, in another order; rates and domains are the same."""
        self.settle()
        other.settle()
        found = Moments(self.rate, self.domain, self.sums + other.sums[order], self.largest.copy())
        found.shared, found.spread, found.count = (
            self.shared + other.shared,
            self.spread + other.spread,
            self.count + other.count,
        )
        if found.largest.size:
            both = np.sort(np.concatenate([self.largest, other.largest[order]], axis=1), axis=1)
            found.largest = np.ascontiguousarray(both[:, KEEP:])
            for column in both[:, :KEEP].T.astype(np.float64):
                found.sums += found._of(column, 1).T
        return found

    @property
    def nbytes(self) -> int:
        """The memory of all arrays, in bytes."""
        return self.sums.nbytes + self.largest.nbytes + self._waiting.nbytes

    def total(self) -> Floats:
        """Σx of each record."""
        self.settle()
        kept = self.largest.sum(axis=1, dtype=np.float64)
        return np.asarray(np.maximum(self.sums[:, 0] + self.shared[0], 0.0) + kept, dtype=np.float64)

    def bank(self, unseen: NDArray[np.bool_], worst: float) -> Bank:
        """For the evaluation; records with an unseen step reach as far as any record can."""
        self.settle()
        moments = np.zeros((len(self.sums), MOMENTS))
        moments[:, : self.shared.size] = self.sums + self.shared
        scale = np.abs(moments[:, 0]) + self.spread
        largest = np.minimum(self.largest.astype(np.float64), self.domain)
        # Where much was added and taken away, tiny steps may have been rounded to nothing.
        least = largest[:, 0] if largest.size else self.domain
        reach = np.where((moments[:, 0] != 0) | (self.spread > 0), least, 0.0)
        reach = np.maximum(reach, worst * unseen) if self.spread else reach
        return Bank(
            self.rate, self.domain, moments, np.minimum(reach * (1 + 1e-12), self.domain), scale, self.count, largest
        )


def squares(ratios: NDArray[Any], scale: float) -> Floats:
    """x = ratios²·scale, ratios above 1 counting as 1; none above 0 is lost to underflow."""
    x: Floats = np.minimum(ratios, 1.0, dtype=np.float64)
    x *= x
    x *= scale
    if (low := x < LEAST).any():
        x[low & (ratios > 0)] = LEAST
    return x


def round_up(x: Floats) -> Singles:
    """To float32, and not below: at most 2⁻²² larger."""
    with np.errstate(over="ignore"):  # ∞ is not below either
        single = (x * (1 + 2.0**-23)).astype(np.float32)
    if (single < x).any():  # below the normal numbers
        single = np.where(single < x, np.nextafter(single, np.float32(np.inf)), single)
    return single


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
