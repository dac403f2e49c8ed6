"""NumPy and torch arrays alike, without importing torch."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError, array, is_tensor, numbers

__all__ = ["clipped", "finite", "integers", "length", "noisy"]

Array = TypeVar("Array")

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
    flat = values.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(np.dot(flat, flat))


def integers(name: str, values: object) -> NDArray[np.int64]:
    """An array of whole numbers as 64-bit integers, cut off at ±2⁵³.

    Raises:
        PrivcalcError: if they are none.
    """
    found = clipped(name, values)
    if found.dtype.kind not in "iu":
        raise PrivcalcError(f"{name}: must be integers for a discrete mechanism, not {found.dtype}")
    return found.astype(np.int64)


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
