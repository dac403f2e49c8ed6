"""Correlated noise, drawn exactly, one step after another (``proofs/correlated.md``, §5).

Sums x_t are snapped to a grid g, and noise is drawn on one that is finer by 2⁻²⁰: where the numbers of C are multiples
of 2⁻²⁰, so is Cx, and all is added in whole numbers. What is published is made of the rows Cx + Z alone.

An encoder holds what later rows need: bands the last sums, buffers their weighted totals, a tree the blocks that wait.
Steps of the fine grid, g' = 2⁻²⁰g, are kept as two whole numbers, of which the lower is in [0, 2^bits).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.ledger.rules import Single
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.noise.grid import Grid
from privcalc.noise.release import finite, noisy
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.strategies.buffered import BLT
from privcalc.strategies.matrices import FINE, Dense, Strategy, Toeplitz, Tree
from privcalc.strategies.participation import CyclicPoisson

Whole = NDArray[np.int64]
Pair = tuple[Whole, Whole]
Draw = Callable[[], Whole]
"""Noise in steps of the fine grid, one whole number for each coordinate."""

LOW = 26
"""Bits of the lower number, so that products with coefficients stay below 2⁶³."""

LARGEST = 2**52
"""Sums are cut off here, in steps of the grid, which brings no two of them further apart."""

LOW_BUFFER, LARGEST_BUFFER = 42, 2**44
"""The same for buffers, whose totals are up to 2²⁰ times as large as a sum."""

MOST_WEIGHT = 2**34
"""Of the coefficients of a row, in steps of 2⁻²⁰."""


class Encoder(ABC):
    """C, one step after another.

    Args:
        exponent: of the grid, g = 2^exponent.
    """

    def __init__(self, exponent: int) -> None:
        self._exponent = exponent

    @abstractmethod
    def next(self, values: Floats, draw: Draw) -> Floats:
        """What is published of the next sum; where an attempt fails nothing has changed, or it would count twice."""

    def _snapped(self, values: Floats, largest: int) -> Whole:
        """A sum in steps of the grid."""
        with np.errstate(over="ignore"):
            steps = np.clip(np.ldexp(values, -self._exponent), -largest, largest)
        return np.asarray(np.rint(steps).astype(np.int64))

    def _read(self, row: Pair, bits: int) -> Floats:
        """A row in units of the caller, rounded."""
        return np.asarray(np.ldexp(row[0].astype(np.float64) * 2.0**bits + row[1], self._exponent - FINE))


class Bands(Encoder):
    """Toeplitz and dense matrices: the sums of as many steps as there are diagonals."""

    def __init__(self, strategy: Toeplitz | Dense, exponent: int) -> None:
        super().__init__(exponent)
        self._strategy, self._bands, self._step = strategy, strategy.bands, 0
        self._sums: deque[Pair] = deque(maxlen=self._bands)
        self._published: deque[Floats] = deque(maxlen=self._bands - 1)

    def next(self, values: Floats, draw: Draw) -> Floats:
        """Row t, less what was published before."""
        snapped = self._snapped(values, LARGEST)
        steps = snapped >> LOW, snapped & (2**LOW - 1)
        coefficients = _coefficients(self._strategy, self._step, self._bands)
        row = self._read(self._row(coefficients, steps, draw()), LOW)
        for c, before in zip(coefficients[1:], self._published, strict=False):
            row -= c * before
        found = np.asarray(row / coefficients[0])

        self._sums.appendleft(steps)
        self._published.appendleft(found)
        self._step += 1
        return found

    def _row(self, coefficients: list[float], steps: Pair, noise: Whole) -> Pair:
        high, low = np.zeros_like(noise), noise
        for c, (above, below) in zip(coefficients, (steps, *self._sums), strict=False):
            whole = int(c * 2**FINE)
            high += whole * above
            low = low + whole * below
        return high + (low >> LOW), low & (2**LOW - 1)


class Buffers(Encoder):
    """Buffered linear Toeplitz: for each buffer Σ decay^i·x_{t−1−i}, each time rounded to the fine grid."""

    def __init__(self, strategy: BLT, exponent: int, coordinates: int) -> None:
        super().__init__(exponent)
        self._scales = [int(a * 2**FINE) for a in strategy.scales]
        self._decays = [int(d * 2**FINE) for d in strategy.decays]
        nothing = np.zeros(coordinates, dtype=np.int64)
        self._totals: list[Pair] = [(nothing, nothing)] * len(self._scales)
        self._published = [np.zeros(coordinates)] * len(self._scales)  # the same of what was published, in doubles

    def next(self, values: Floats, draw: Draw) -> Floats:
        """x_t + Σ scale·total + Z_t, less the same of what was published."""
        snapped, finer = self._snapped(values, LARGEST_BUFFER), LOW_BUFFER - FINE
        sums = snapped >> finer, (snapped & (2**finer - 1)) << FINE  # of g', not of g
        high, low = np.zeros_like(snapped), np.zeros_like(snapped)
        for scale, (above, below) in zip(self._scales, self._totals, strict=True):
            high += scale * above
            low += scale * below
        noise = draw()
        row = _added(_rounded(high, low), sums, (noise >> LOW_BUFFER, noise & (2**LOW_BUFFER - 1)))
        found = self._read(row, LOW_BUFFER)
        for scale, before in zip(self._scales, self._published, strict=True):
            found -= scale / 2**FINE * before
        totals = [
            _added(_rounded(decay * above, decay * below), sums)
            for decay, (above, below) in zip(self._decays, self._totals, strict=True)
        ]
        published = [
            decay / 2**FINE * before + found for decay, before in zip(self._decays, self._published, strict=True)
        ]
        self._totals, self._published = totals, published
        return found


def _rounded(high: Whole, low: Whole) -> Pair:
    """(high·2⁴² + low)/2²⁰ to the nearest whole number; low in [0, 2⁶²)."""
    rest = high & (2**FINE - 1)
    return high >> FINE, (rest << (LOW_BUFFER - FINE)) + ((low + 2 ** (FINE - 1)) >> FINE)


def _added(*pairs: Pair) -> Pair:
    """The sum, with its lower part below 2⁴² again."""
    high, low = (np.sum(parts, axis=0) for parts in zip(*pairs, strict=True))
    return high + (low >> LOW_BUFFER), low & (2**LOW_BUFFER - 1)


class Blocks(Encoder):
    """Tree aggregation: a row for every block that the step completes.

    What is published adds up to the estimates of sums.

    A block is estimated by its row and its halves' estimates, weighted by their variances (Honaker 2015, "from below");
    the sum of t steps by the blocks that t is made of in binary.
    """

    def __init__(self, exponent: int) -> None:
        super().__init__(exponent)
        self._blocks: dict[int, tuple[Pair, Floats]] = {}  # by height, those that wait for another
        self._published: Floats | float = 0.0  # the estimate of the sum so far

    def next(self, values: Floats, draw: Draw) -> Floats:
        """By how much the estimate of the sum grows."""
        snapped, waiting = self._snapped(values, LARGEST), dict(self._blocks)
        total = snapped >> LOW, snapped & (2**LOW - 1)
        estimate, height = self._noisy(total, draw()), 0
        while height in waiting:
            half, halved = waiting.pop(height)
            height += 1
            total = total[0] + half[0], total[1] + half[1]
            share = 2.0**-height  # variances are v = 1/(2 − 2^-height); of both halves' sum 1/(1 − share)
            estimate = (self._noisy(total, draw()) + (1 - share) * (estimate + halved)) / (2 - share)
        waiting[height] = total, estimate
        sums = np.sum([block for _, block in waiting.values()], axis=0)
        found = np.asarray(sums - self._published)
        self._blocks, self._published = waiting, sums
        return found

    def _noisy(self, total: Pair, noise: Whole) -> Floats:
        """A row: lower parts of up to 2¹² sums, in steps of the fine grid."""
        low = (total[1] << FINE) + noise
        return self._read(((total[0] << FINE) + (low >> LOW), low & (2**LOW - 1)), LOW)


def encoder_of(strategy: Strategy, exponent: int, coordinates: int) -> Encoder:
    """What draws a strategy.

    Raises:
        PrivcalcError: as :func:`check_drawable`.
    """
    check_drawable(strategy)
    match strategy:
        case Toeplitz() | Dense():
            return Bands(strategy, exponent)
        case BLT():
            return Buffers(strategy, exponent, coordinates)
    return Blocks(exponent)


def check_drawable(strategy: Strategy) -> None:
    """Refuse a strategy that cannot be drawn exactly.

    Raises:
        PrivcalcError: if its numbers are no multiples of 2⁻²⁰, or too large.
    """
    match strategy:
        case Toeplitz():
            fits = _fine(strategy.coefficients)
        case Dense():
            fits = all(map(_fine, strategy.rows))
        case BLT():
            fits = _fine(strategy.scales) and _fine(strategy.decays)
        case _:
            fits = isinstance(strategy, Tree)
    if not fits:
        raise PrivcalcError(
            f"strategy = {str(strategy)[:100]}: must have numbers that are multiples of 2^-{FINE}, whose absolute "
            "values add up to at most 2^14 in a row, for a ledger to draw it exactly: strategy.rounded(), "
            "before noise is calibrated for it"
        )


def _fine(numbers: tuple[float, ...]) -> bool:
    whole = [math.ldexp(number, FINE) for number in numbers]
    return all(number == int(number) for number in whole) and math.fsum(map(abs, whole)) <= MOST_WEIGHT


def _coefficients(strategy: Toeplitz | Dense, step: int, bands: int) -> list[float]:
    """Those of x_t, x_{t−1}, … in row t."""
    if isinstance(strategy, Toeplitz):
        return list(strategy.coefficients)
    return list(strategy.rows[step][max(step + 1 - bands, 0) : step + 1][::-1])


Array = TypeVar("Array")


class Stream(Single):
    """One use of :class:`privcalc.CorrelatedGaussian`: T releases, in order; made by a ledger.

    It was charged as a whole.

    A process that ends takes the stream with it: sums of earlier steps and their noise are secret, and are not kept.
    What was charged stays charged, and a new stream is another use.

    Attributes:
        mechanism: what was charged.
        coordinates: how many numbers a sum has.
    """

    def __init__(
        self,
        mechanism: CorrelatedGaussian,
        grid: Grid,
        coordinates: int,
        noise: Noise,
        records: int | None,
        held: Callable[[], AbstractContextManager[None]],
        look: Callable[[object, Floats, int | None], None],
    ) -> None:
        self.mechanism, self.coordinates, self._step = mechanism, coordinates, 0
        self._grid, self._noise, self._held, self._look, self._steps = (
            grid,
            noise,
            held,
            look,
            mechanism.strategy.columns,
        )
        order = mechanism.participation
        self._places = None if records is None else noise.numbers(records, order.separation)
        self._rate = order.rate if isinstance(order, CyclicPoisson) else 1.0
        self._turn: tuple[int, Whole] | None = None
        self._encoder = encoder_of(mechanism.strategy, grid.exponent, coordinates)

    @property
    def step(self) -> int:
        """How many releases were made; nothing sets it, or more than T could be made of one use."""
        return self._step

    @property
    def indices(self) -> Whole:
        """The records in the next release, ascending: those whose place or class it is, by their coins. Secret.

        Raises:
            PrivcalcError: if the ledger was not told how many records there are.
        """
        if self._places is None:
            raise PrivcalcError("records = None: must be given to Ledger.correlated, which then draws places")
        if self._turn is None or self._turn[0] != self.step:  # coins are tossed once, however often this is asked
            members = np.flatnonzero(self._places == self.step % self.mechanism.participation.separation)
            taking = members if self._rate == 1 else members[self._noise.coins(members.size, self._rate)]
            self._turn = self.step, taking
        return self._turn[1].copy()

    def release(self, values: Array) -> Array:
        """The next sum x_t plus (C⁻¹Z)_t.

        Args:
            values: the sum of the contributions of this step's records, a NumPy or torch array of ``coordinates``
                numbers.

        Returns:
            The noisy sum, in the kind of array that was given.

        Raises:
            PrivcalcError: if all T releases were made, nobody asked whose turn it is, the array has another size, the
                sum was not clipped (as in :meth:`Ledger.gaussian`), or the ledger is closed.
        """
        array = finite("values", values)
        if array.size != self.coordinates:
            raise PrivcalcError(f"values: must be {self.coordinates} numbers in every step, not {array.size}")
        with self._held():
            if self.step == self._steps:
                raise PrivcalcError(f"step = {self.step}: all {self.step} releases of this stream were made")
            if self._places is not None and (self._turn is None or self._turn[0] != self.step):
                raise PrivcalcError(
                    f"stream.indices: were not asked for in step {self.step}: the sum must be of the records whose "
                    "turn it is; if other code draws them, leave out records=, and the certificate says so"
                )
            self._look(values, array, None if self._places is None else self.indices.size)
            found = self._encoder.next(array.ravel(), self._drawn)
            self._step += 1
        return noisy(values, found.reshape(array.shape))

    def _drawn(self) -> Whole:
        """Noise for one row, in steps of the fine grid."""
        return self._noise.normal(self.coordinates, self._grid.steps * 2.0**FINE)

    def __repr__(self) -> str:
        return f"Stream(step={self.step}, mechanism={self.mechanism})"
