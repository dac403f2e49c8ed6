"""Correlated noise, drawn exactly, one step after another (``proofs/correlated.md``, §4).

Sums x_t are snapped to a grid g, and the coefficients of C are multiples of 2⁻²⁰: so Cx is a multiple of 2⁻²⁰g, and noise on that
finer grid is added in whole numbers. What is published is C⁻¹ of this, a function of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.ledger.single import Single
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.noise.arrays import finite, noisy
from privcalc.noise.grid import Grid
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.strategies.matrices import FINE, Toeplitz
from privcalc.strategies.participation import CyclicPoisson

__all__ = ["Stream"]

Array = TypeVar("Array")
Whole = NDArray[np.int64]

LOW = 26
"""Whole numbers are split in two, of which the lower has so many bits, so that products with coefficients stay below 2⁶³."""

LARGEST = 2**52
"""Sums are cut off here, in steps of the grid, which brings no two of them further apart."""


class Stream(Single):
    """One use of :class:`privcalc.CorrelatedGaussian`, which was charged as a whole: T releases, in order; made by a ledger.

    A process that ends takes the stream with it: sums of earlier steps and their noise are secret, and are not kept. What was
    charged stays charged, and a new stream is another use.

    Attributes:
        mechanism: what was charged.
        coordinates: how many numbers a sum has.
        step: how many releases were made.
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
        strategy = drawable(mechanism)
        self.mechanism, self.coordinates, self.step = mechanism, coordinates, 0
        self._grid, self._noise, self._held, self._look = grid, noise, held, look
        order = mechanism.participation
        self._places = None if records is None else noise.numbers(records, order.separation)
        self._rate = order.rate if isinstance(order, CyclicPoisson) else 1.0
        self._turn: tuple[int, Whole] | None = None
        self._coefficients = strategy.coefficients
        self._whole = [int(c * 2**FINE) for c in self._coefficients]
        self._sums: deque[tuple[Whole, Whole]] = deque(maxlen=strategy.bands)
        self._published: deque[Floats] = deque(maxlen=strategy.bands - 1)

    @property
    def indices(self) -> Whole:
        """Which records take part in the next release, ascending: those whose place or class it is, by their coins. Secret.

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
            values: the sum of the contributions of this step's records, a NumPy or torch array of ``coordinates`` numbers.

        Returns:
            The noisy sum, in the kind of array that was given.

        Raises:
            PrivcalcError: if all T releases were made, nobody asked whose turn it is, the array has another size, the sum was not
                clipped (as in :meth:`Ledger.gaussian`), or the ledger is closed.
        """
        array = finite("values", values)
        if array.size != self.coordinates:
            raise PrivcalcError(f"values: must be {self.coordinates} numbers in every step, not {array.size}")
        with self._held():
            if self.step == self.mechanism.strategy.columns:
                raise PrivcalcError(f"step = {self.step}: all {self.step} releases of this stream were made")
            if self._places is not None and (self._turn is None or self._turn[0] != self.step):
                raise PrivcalcError(
                    f"stream.indices: were not asked for in step {self.step}: the sum must be of the records whose turn it is; "
                    "if other code draws them, leave out records=, and the certificate says so"
                )
            self._look(values, array, None if self._places is None else self.indices.size)
            steps = self._steps(array.ravel())
            found = self._decoded(*self._row(steps))
            # Only now, so that an attempt that failed leaves no sum behind, which would count in two steps.
            self._sums.appendleft(steps)
            self._published.appendleft(found)
            self.step += 1
        return noisy(values, found.reshape(array.shape))

    def _steps(self, values: Floats) -> tuple[Whole, Whole]:
        """A sum in steps of the grid, as high·2²⁶ + low, low in [0, 2²⁶): one pair for each number."""
        with np.errstate(over="ignore"):
            steps = np.rint(np.clip(np.ldexp(values, -self._grid.exponent), -LARGEST, LARGEST)).astype(np.int64)
        return steps >> LOW, steps & (2**LOW - 1)

    def _row(self, steps: tuple[Whole, Whole]) -> tuple[Whole, Whole]:
        """Row t of Cx + Z, likewise in steps of the fine grid."""
        high, low = np.zeros_like(steps[0]), self._noise.normal(self.coordinates, self._grid.steps * 2.0**FINE)
        for c, (above, below) in zip(self._whole, (steps, *self._sums), strict=False):
            high += c * above
            low += c * below
        return high + (low >> LOW), low & (2**LOW - 1)

    def _decoded(self, high: Whole, low: Whole) -> Floats:
        """C⁻¹ of the rows so far: a function of these, whatever its rounding."""
        row = np.ldexp(high.astype(np.float64) * 2.0**LOW + low, self._grid.exponent - FINE)
        for c, before in zip(self._coefficients[1:], self._published, strict=False):
            row -= c * before
        return np.asarray(row / self._coefficients[0])

    def __repr__(self) -> str:
        return f"Stream(step={self.step}, mechanism={self.mechanism})"


def drawable(mechanism: CorrelatedGaussian) -> Toeplitz:
    """Its strategy, if a ledger can draw it exactly.

    Raises:
        PrivcalcError: if coefficients are not multiples of 2⁻²⁰, or too large.
    """
    strategy = mechanism.strategy
    if isinstance(strategy, Toeplitz):
        whole = [c * 2.0**FINE for c in strategy.coefficients]
        if all(c == int(c) for c in whole) and sum(map(abs, whole)) <= 2**34:
            return strategy
    raise PrivcalcError(
        f"strategy = {str(strategy)[:100]}: must be Toeplitz, with coefficients that are multiples of 2^-{FINE} whose absolute "
        "values add up to at most 2^14, for a ledger to draw it exactly: strategy.rounded(), before noise is calibrated for it"
    )
