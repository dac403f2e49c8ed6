"""Correlated noise, drawn exactly, one step after another (``proofs/correlated.md``, §5).

Sums x_t are snapped to a grid g, and noise is drawn on one that is finer by 2⁻²⁰: where the numbers of C are multiples
of 2⁻²⁰, so is Cx, and all is added in whole numbers (:mod:`privcalc.ledger.encoders`). What is published is made of the
rows alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.ledger.encoders import encoder_of
from privcalc.ledger.rules import Single
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.noise.grid import Grid
from privcalc.noise.release import finite, noisy
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.strategies.matrices import FINE
from privcalc.strategies.participation import CyclicPoisson

__all__ = ["Stream"]

Array = TypeVar("Array")
Whole = NDArray[np.int64]


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
            found, keep = self._encoder.next(array.ravel(), self._drawn)
            keep()  # only now, so that an attempt that failed leaves no sum behind, which would count in two steps
            self._step += 1
        return noisy(values, found.reshape(array.shape))

    def _drawn(self) -> Whole:
        """Noise for one row, in steps of the fine grid."""
        return self._noise.normal(self.coordinates, self._grid.steps * 2.0**FINE)

    def __repr__(self) -> str:
        return f"Stream(step={self.step}, mechanism={self.mechanism})"
