"""Rows of Cx + Z in whole numbers, and what is published of them (``proofs/correlated.md``, §5).

An encoder holds what later rows need: bands the last sums, buffers their weighted totals, a tree the blocks that wait.
Steps of the fine grid, g' = 2⁻²⁰g, are kept as two whole numbers, of which the lower is in [0, 2^bits).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import Floats
from privcalc.strategies.buffered import BLT
from privcalc.strategies.matrices import FINE, Dense, Strategy, Toeplitz, Tree

__all__ = ["Encoder", "check_drawable", "encoder_of"]

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
    def next(self, values: Floats, draw: Draw) -> tuple[Floats, Callable[[], None]]:
        """What is published of the next sum, and what to call when it was: until then nothing has changed."""

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

    def next(self, values: Floats, draw: Draw) -> tuple[Floats, Callable[[], None]]:
        """Row t, less what was published before."""
        snapped = self._snapped(values, LARGEST)
        steps = snapped >> LOW, snapped & (2**LOW - 1)
        coefficients = _coefficients(self._strategy, self._step, self._bands)
        row = self._read(self._row(coefficients, steps, draw()), LOW)
        for c, before in zip(coefficients[1:], self._published, strict=False):
            row -= c * before
        found = np.asarray(row / coefficients[0])

        def keep() -> None:
            self._sums.appendleft(steps)
            self._published.appendleft(found)
            self._step += 1

        return found, keep

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

    def next(self, values: Floats, draw: Draw) -> tuple[Floats, Callable[[], None]]:
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

        def keep() -> None:
            self._totals, self._published = totals, published

        return found, keep


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

    def next(self, values: Floats, draw: Draw) -> tuple[Floats, Callable[[], None]]:
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

        def keep() -> None:
            self._blocks, self._published = waiting, sums

        return found, keep

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
