"""The sparse vector technique as a ledger runs it: a gate that replies until its answers are used up.

Proof: ``proofs/sparse_vector.md``, §4.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import SupportsFloat, SupportsIndex

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.rules import Single
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.noise.grid import Grid, needed
from privcalc.noise.source import Noise

__all__ = ["Gate", "drawable"]


class Gate(Single):
    """What :meth:`Ledger.above` opens: ask it until its answers are used up, or the ledger is closed.

    Attributes:
        mechanism: what was charged.
    """

    def __init__(
        self,
        mechanism: AboveThreshold,
        sensitivity: float,
        noise: Noise,
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.mechanism, self._left = mechanism, mechanism.answers
        self._noise, self._held = noise, held
        scales = (mechanism.threshold_scale, mechanism.query_scale)
        self._exponent = Grid.of(min(scales), clip_norm=sensitivity, coordinates=1, norm=1).exponent
        threshold, self._scale = (self._steps(scale, sensitivity) for scale in scales)
        self._threshold = int(noise.laplace(1, threshold)[0])

    @property
    def left(self) -> int:
        """How many replies may still be "above"; nothing sets it, or one use would have more."""
        return self._left

    def _steps(self, scale: float, sensitivity: float) -> float:
        """The noise in steps of the grid, for Δ and a step more."""
        exact = needed(scale, clip_norm=sensitivity, coordinates=1, error=0.0, norm=1, exponent=self._exponent)
        found = float(exact / Fraction(2) ** self._exponent)
        steps = math.nextafter(found, math.inf)
        if steps > 2.0**52:
            raise PrivcalcError(f"mechanism = {self.mechanism}: no grid is fine enough for both scales")
        return steps

    def ask(self, value: float, *, threshold: float) -> bool:
        """Whether the value, with fresh noise, is at least the threshold, with the gate's noise.

        Args:
            value: of this question; one record moves it by at most the sensitivity (``monotone``: and never down).
            threshold: a public number.

        Raises:
            PrivcalcError: if all answers are used up, a number is not finite, or the ledger is closed or another
                process's.
        """
        level = errors.real("threshold", threshold, "a finite number", low=-1e300, high=1e300)
        exact = _exact(value)
        with self._held():
            if not self._left:
                raise PrivcalcError(f"{self.mechanism}: all its answers were given; open another one")
            noise = int(self._noise.laplace(1, self._scale)[0])
            found = self._whole(exact) + noise >= self._whole(level) + self._threshold
            self._left -= found
        return found

    def _whole(self, value: Fraction | float) -> int:
        """The nearest multiple of the grid's step."""
        return round(Fraction(value) / Fraction(2) ** self._exponent)

    def __repr__(self) -> str:
        return f"Gate({self.mechanism}, left={self.left})"


def _exact(value: object) -> Fraction:
    """A number as it is: as a double, a count beyond 2⁵³ moves by more than one record moves it.

    Errors show no value.
    """
    with contextlib.suppress(TypeError):  # of arrays, which have an index where they are one whole number
        if isinstance(value, SupportsIndex):
            return Fraction(operator.index(value))
    if not isinstance(value, SupportsFloat):
        raise PrivcalcError("value: must be a number")
    found = float(value)
    if not math.isfinite(found):
        raise PrivcalcError("value: must be finite")
    return Fraction(found)


def drawable(mechanism: AboveThreshold, sensitivity: float) -> float:
    """The sensitivity, if a gate can be drawn with it.

    Raises:
        PrivcalcError: if not.
    """
    if not isinstance(mechanism, AboveThreshold):
        raise PrivcalcError(f"mechanism = {mechanism}: must be AboveThreshold")
    bound = errors.scale("sensitivity", sensitivity)
    Grid.of(mechanism.query_scale, clip_norm=bound, coordinates=1, norm=1)  # refused before it is charged
    if max(mechanism.threshold_scale, mechanism.query_scale) > 2.0**14 * min(
        mechanism.threshold_scale, mechanism.query_scale
    ):
        raise PrivcalcError(f"mechanism = {mechanism}: its scales must differ by a factor of at most 2^14, to be drawn")
    return bound
