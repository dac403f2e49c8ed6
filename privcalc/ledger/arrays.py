"""NumPy and torch arrays alike, without importing torch."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError, is_tensor, numbers
from privcalc.numerics.floats import Floats

Array = TypeVar("Array")

RESOLVED = 2.0**10
"""Least ratio of the noise to the distance between the doubles around the values."""


def finite(name: str, values: object, noise: float = np.inf) -> Floats:
    """An array of finite numbers as doubles, on the CPU.

    Args:
        name: of the argument.
        values: an array.
        noise: the scale of what will be added.

    Raises:
        PrivcalcError: if they are not finite real numbers, or so large that the noise would be lost in their last digits.
    """
    array = np.asarray(numbers(name, values), dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise PrivcalcError(f"{name}: must be finite; NaN would pass through the noise. Clip contributions, and NaN to 0, first")
    if array.size and np.spacing(np.abs(array).max()) * RESOLVED > noise:
        raise PrivcalcError(f"{name}: are too large for noise of scale {noise!r} to be added in double precision")
    return array


def integers(name: str, values: object) -> NDArray[np.int64]:
    """An array of whole numbers as 64-bit integers.

    Raises:
        PrivcalcError: if they are none.
    """
    array = numbers(name, values)
    if array.dtype.kind not in "iu":
        raise PrivcalcError(f"{name}: must be integers for a discrete mechanism, not {array.dtype}")
    return array.astype(np.int64)


def noisy(values: Array, array: NDArray[Any], noise: NDArray[Any]) -> Array:
    """array + noise, added as doubles or as 64-bit integers, in the kind of array that ``values`` are."""
    found: Any = array + noise.reshape(array.shape)
    whole = noise.dtype.kind == "i"
    if is_tensor(values):
        like: Any = values
        like = like.long() if whole else like if like.is_floating_point() else like.double()
        return cast(Array, like.new_tensor(found))
    if isinstance(values, (int, float)):
        return int(found) if whole else float(found)  # type: ignore[return-value]
    kind = np.asarray(values).dtype
    return cast(Array, found.astype(kind) if kind.kind == "f" else found)
