"""The public grid on which a sum is released, and how much larger noise must be for it.

Noise on the grid is drawn exactly (:mod:`privcalc.noise.continuous`), and sum and noise are added as whole numbers. So
what leaves has the law of a real number rounded to the grid, bit for bit (``proofs/executed_noise.md``, §1).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError

__all__ = ["Grid", "Norm", "needed"]

Norm = Literal[1, 2]
"""Of contributions: L1 for Laplace noise, L2 for Gaussian."""

Floats = NDArray[np.float64]

FINE, CHEAP, LEAST = 36, 12, 50
"""The grid: g ≤ 2^-FINE of the noise, made smaller until noise grows by 2^-CHEAP at most, not below 2^-LEAST."""

MOST = 2.0**52
"""Largest noise, in steps of the grid."""

WHOLE = 2**53
"""Up to which all whole numbers are doubles."""

BLOCK = 2**14
"""Numbers that are added at a time: what they need stays in the cache."""

LARGEST = Fraction(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Grid:
    """Multiples of 2^exponent, and noise of scale ``scale`` on it.

    Attributes:
        exponent: of the distance g = 2^exponent.
        scale: noise multiplier · (clip_norm + √d·g + 2·error), rounded up; d·g instead of √d·g if norms are L1.
    """

    exponent: int
    scale: float

    @classmethod
    def of(
        cls,
        noise_multiplier: float,
        *,
        clip_norm: float,
        coordinates: int,
        error: SupportsFloat = 0.0,
        norm: Norm = 2,
        finer: int = 0,
    ) -> Grid:
        """The grid for a sum: from public numbers only.

        Args:
            noise_multiplier: as it was planned.
            clip_norm: bound of the norm of one record's contribution.
            coordinates: how many numbers the sum has.
            error: η ≥ 0, a proved bound of the norm of what was released minus the exact sum; 0 for an exact sum.
            norm: 2 for Gaussian noise, 1 for Laplace noise.
            finer: noise is drawn on a grid of 2^-finer of the distance, which then is as much larger.

        Raises:
            PrivcalcError: if an argument does not fit, or no grid is fine enough for so much noise in so many
                coordinates.

        Example:
            >>> grid = Grid.of(20.0, clip_norm=0.5, coordinates=1000)
            >>> grid.exponent, round(grid.scale, 8)
            (-33, 10.00000007)
        """
        errors.one_of("norm", norm, 1, 2)
        z = errors.scale("noise_multiplier", noise_multiplier)
        eta = errors.real("error", error, "a finite number >= 0 (at most 1e100)", low=0.0, high=1e100)
        clip, number = errors.scale("clip_norm", clip_norm), errors.count("coordinates", coordinates)
        return _grid(z, clip, number, eta, norm, finer)

    @property
    def steps(self) -> float:
        """``scale`` in steps of the grid, exactly."""
        return math.ldexp(self.scale, -self.exponent)

    def add(self, values: Floats, noise: NDArray[np.int64]) -> Floats:
        """Snap values to the nearest multiple of g and add g·noise: a sum of whole numbers, rounded once to a double.

        Args:
            values: finite.
            noise: as many whole numbers, in one dimension.
        """
        flat, found = values.ravel(), np.empty(values.size)
        with np.errstate(over="ignore"):
            for start in range(0, flat.size, BLOCK):
                part = slice(start, start + BLOCK)
                self._add(flat[part], noise[part], found[part])
        return found.reshape(values.shape)

    def _add(self, values: Floats, noise: NDArray[np.int64], found: Floats) -> None:
        """Write sums plus noise, the same way for all numbers, so that time does not tell which are large."""
        grid = math.ldexp(1.0, self.exponent)
        np.multiply(values, math.ldexp(1.0, -self.exponent), out=found)  # by powers of two: without rounding
        np.rint(found, out=found)
        found += noise  # whole numbers, and a double each if noise is at most 2^53: one rounding
        found *= grid
        np.copyto(found, values, where=np.isinf(found))  # so large that noise is below half of their last place
        if max(int(noise.max(initial=0)), -int(noise.min(initial=0))) > WHOLE:
            for i in np.flatnonzero(np.abs(noise) > WHOLE):
                found[i] = _nearest((round(Fraction(values[i]) / Fraction(grid)) + int(noise[i])) * Fraction(grid))


def needed(
    noise_multiplier: float, *, clip_norm: float, coordinates: int, error: float, norm: Norm, exponent: int
) -> Fraction:
    """The least noise that has the guarantee on a grid; arguments as in :class:`Grid`, which has chosen as much."""
    bound = Fraction(clip_norm) + 2 * Fraction(error)
    return Fraction(noise_multiplier) * (bound + _root(coordinates, norm) * Fraction(2) ** exponent)


def _root(coordinates: int, norm: Norm) -> Fraction:
    """The norm of a vector of as many ones, or a little more."""
    d = max(1, coordinates)
    return Fraction(d) if norm == 1 else Fraction(math.isqrt((d << 64) - 1) + 1, 2**32)


def _power(x: Fraction) -> int:
    """⌊log₂ x⌋, or one off."""
    return math.frexp(float(x))[1] - 1


def _up(x: Fraction) -> float:
    """The least double that is not less."""
    least = float(x)
    return least if least >= x else math.nextafter(least, math.inf)


def _nearest(x: Fraction) -> float:
    """The nearest double that is finite."""
    return float(min(max(x, -LARGEST), LARGEST))


@functools.lru_cache(maxsize=64)
def _grid(noise_multiplier: float, clip_norm: float, coordinates: int, error: float, norm: Norm, finer: int) -> Grid:
    """Return the grid of :meth:`Grid.of`, cached, its arguments checked: steps of a run ask for it again and again."""
    z, bound, root = Fraction(noise_multiplier), Fraction(clip_norm) + 2 * Fraction(error), _root(coordinates, norm)
    noise = _power(z * bound)
    exponent = max(noise - LEAST + finer, min(noise - FINE + finer, _power(bound / root) - CHEAP))
    grid = Grid(exponent, _up(z * (bound + root * Fraction(2) ** exponent)))
    if math.ldexp(grid.steps, finer) > MOST:
        raise PrivcalcError(
            f"noise_multiplier = {noise_multiplier!r}, coordinates = {coordinates!r}: no grid of doubles is fine "
            f"enough; the former times {'the latter' if norm == 1 else 'the root of the latter'} must not be above 2^51"
        )
    return grid
