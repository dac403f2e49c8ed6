"""A sum, and noise on it, for code that has no ledger: what a ledger releases, without the charge."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError, array, is_tensor, numbers, warn
from privcalc.noise.bits import SeededBits
from privcalc.noise.grid import Grid
from privcalc.noise.source import Noise

LARGEST = 2**53
"""Integers are cut off here, where doubles still hold all of them: a refusal would tell something about the records."""


def clipped(name: str, values: object) -> NDArray[Any]:
    """An array of real numbers; integers are cut off at ±2⁵³, which brings no two of them further apart.

    Raises:
        PrivcalcError: if it holds anything else.
    """
    checked = array(name, values)
    if checked.dtype.kind in "iu" and checked.dtype.itemsize == 8:
        checked = np.clip(checked, 0 if checked.dtype.kind == "u" else -LARGEST, LARGEST)
    return numbers(name, checked)


def finite(name: str, values: object) -> NDArray[np.float64]:
    """An array of finite numbers as doubles, on the CPU; integers are cut off at ±2⁵³.

    It is a copy: what another thread writes meanwhile is not in it, so that what was checked is what is released.

    Args:
        name: of the argument.
        values: an array.

    Raises:
        PrivcalcError: if they are not finite real numbers: then there are records without any bound.
    """
    plain = type(values) is np.ndarray and values.dtype == np.float64
    found = np.array(values if plain else clipped(name, values), dtype=np.float64)
    if not math.isfinite(length(found)) and not np.isfinite(found).all():  # squares may overflow
        raise PrivcalcError(
            f"{name}: must be finite; NaN would pass through the noise. Clip contributions, and NaN to 0, first"
        )
    return found


def length(values: NDArray[np.float64]) -> float:
    """The L2 norm; ∞ where squares overflow."""
    return math.sqrt(np.vdot(values, values))  # which warns of nothing, as dot does


def integers(name: str, values: object) -> NDArray[np.int64]:
    """An array of whole numbers as 64-bit integers, cut off at ±2⁵³.

    Raises:
        PrivcalcError: if they are none.
    """
    checked = clipped(name, values)
    if checked.dtype.kind not in "iu":
        raise PrivcalcError(f"{name}: must be integers for a discrete mechanism, not {checked.dtype}")
    return checked.astype(np.int64)


def noisy(values: Array, found: NDArray[Any]) -> Array:
    """Give 64-bit integers or doubles as the kind of array of ``values``.

    Doubles are rounded to its floats, integers stay.
    """
    whole = found.dtype.kind == "i"
    if is_tensor(values):
        like: Any = values
        like = like.long() if whole else like if like.is_floating_point() else like.double()
        return cast(Array, like.new_tensor(found))
    if isinstance(values, (int, float)):
        return int(found) if whole else float(found)  # type: ignore[return-value]
    kind = np.asarray(values).dtype
    return cast(Array, found.astype(kind, copy=False) if kind.kind == "f" else found)


__all__ = ["clipped", "finite", "gaussian", "integers", "laplace", "noisy"]

Array = TypeVar("Array")


def gaussian(
    values: Array, noise_multiplier: float, *, clip_norm: float, error: float = 0.0, noise: Noise | None = None
) -> Array:
    """Release a sum of contributions of norm ≤ ``clip_norm``, plus Gaussian noise, exactly and on a grid.

    The noise is N(0, (noise multiplier · clip_norm)²).

    The standard deviation is a little larger, ``noise_multiplier · (clip_norm + √d·g + 2·error)``, so that the bits of
    what is returned have the guarantee of ``Gaussian(noise_multiplier)`` (``proofs/executed_noise.md``). Account for it
    yourself.

    Args:
        values: the sum, all coordinates that ``clip_norm`` is about: a NumPy or torch array.
        noise_multiplier: > 0 (1e-100 to 1e100).
        clip_norm: bound of the Euclidean norm of one record's contribution, > 0.
        error: a proved bound of the norm of ``values`` minus the exact sum.
        noise: where it comes from; by default the operating system's generator.

    Returns:
        The noisy sum, in the kind of array that was given; doubles are multiples of the grid's g.

    Raises:
        PrivcalcError: if values are not finite, an argument does not fit, or no grid is fine enough.

    Example:
        >>> import numpy as np
        >>> from privcalc import noise
        >>> noisy = noise.gaussian(np.zeros(5), 1.1, clip_norm=1.0)
        >>> g = 2.0 ** noise.Grid.of(1.1, clip_norm=1.0, coordinates=5).exponent
        >>> bool(np.all(noisy % g == 0))
        True
    """
    array = finite("values", values)
    grid = Grid.of(noise_multiplier, clip_norm=clip_norm, coordinates=array.size, error=error)
    return noisy(values, grid.add(array, _source(noise).normal(array.size, grid.steps)))


def laplace(values: Array, scale: float, *, clip_norm: float, error: float = 0.0, noise: Noise | None = None) -> Array:
    """Return the sum with Laplace noise of scale ``scale · (clip_norm + d·g + 2·error)``, for L1 norms.

    Args:
        values: the sum.
        scale: of the noise over ``clip_norm``, as in ``Laplace(scale)``.
        clip_norm: bound of the L1 norm of one record's contribution, > 0.
        error: a proved bound of the L1 norm of ``values`` minus the exact sum.
        noise: where it comes from; by default the operating system's generator.
    """
    array = finite("values", values)
    grid = Grid.of(scale, clip_norm=clip_norm, coordinates=array.size, error=error, norm=1)
    return noisy(values, grid.add(array, _source(noise).laplace(array.size, grid.steps)))


def _source(noise: object) -> Noise:
    """Return the given source of noise, or the operating system's."""
    if noise is None:
        return Noise()
    if not isinstance(noise, Noise):
        raise PrivcalcError(f"noise = {noise!r}: must be a Noise, or None for the operating system's")
    if isinstance(noise.bits, SeededBits):
        warn(
            "noise: is made from a seed, and whoever knows it can take the noise away: ε holds for secret noise only. "
            "Leave it out; to reproduce a run, open a Ledger with seed=, whose certificate makes no privacy claim"
        )
    return noise
