"""NumPy and torch arrays alike, without importing torch."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.numerics.normal import Floats

Array = TypeVar("Array")

EXACT = 2.0**53
"""Integers beyond it are not all doubles: rounding them would let one record move a sum by more than its contribution."""

RESOLVED = 2.0**10
"""Least ratio of the noise to the distance between the doubles around the values."""


def _is_torch(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "torch"


def numbers(values: object) -> NDArray[Any]:
    """As a NumPy array of floats or integers.

    Raises:
        PrivcalcError: for anything else: complex numbers, text, objects.
    """
    if _is_torch(values):
        tensor: Any = values
        # bfloat16 has no NumPy type
        values = (tensor.double() if tensor.is_floating_point() else tensor).detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise PrivcalcError(f"values: must be an array of real numbers: {error}") from error
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise PrivcalcError(f"values: must be an array of real numbers of at most 64 bits, not of {array.dtype}")
    if array.dtype.kind in "iu" and array.size and (array.max() > EXACT or array.min() < -EXACT):
        raise PrivcalcError("values: must be integers of at most 2^53 in absolute value")
    return array


def finite(values: object, noise: float = np.inf) -> Floats:
    """As doubles, on the CPU.

    Args:
        values: an array.
        noise: the scale of what will be added.

    Raises:
        PrivcalcError: if they are not finite real numbers, or so large that the noise would be lost in their last digits.
    """
    array = np.asarray(numbers(values), dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise PrivcalcError("values: must be finite; a NaN would pass through the noise. Clip contributions, and NaN to 0, first")
    if array.size and np.spacing(np.abs(array).max()) * RESOLVED > noise:
        raise PrivcalcError(f"values: are too large for noise of scale {noise!r} to be added in double precision")
    return array


def integers(values: object) -> NDArray[np.int64]:
    """As 64-bit integers.

    Raises:
        PrivcalcError: if they are none.
    """
    array = numbers(values)
    if array.dtype.kind not in "iu":
        raise PrivcalcError(f"values: must be integers for a discrete mechanism, not {array.dtype}")
    return array.astype(np.int64)


def noisy(values: Array, array: NDArray[Any], noise: NDArray[Any]) -> Array:
    """array + noise, added as doubles or as 64-bit integers, in the kind of array that ``values`` are."""
    found: Any = array + noise.reshape(array.shape)
    whole = noise.dtype.kind == "i"
    if _is_torch(values):
        like: Any = values
        like = like.long() if whole else like if like.is_floating_point() else like.double()
        return cast(Array, like.new_tensor(found))
    if isinstance(values, (int, float)):
        return int(found) if whole else float(found)  # type: ignore[return-value]
    kind = np.asarray(values).dtype
    return cast(Array, found.astype(kind) if kind.kind == "f" else found)
