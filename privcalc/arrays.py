"""NumPy and torch arrays alike, without importing torch."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.numerics.normal import Floats

Array = TypeVar("Array")


def _is_torch(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "torch"


def finite(values: object) -> Floats:
    """As doubles, on the CPU.

    Raises:
        PrivcalcError: if they are not finite real numbers.
    """
    if _is_torch(values):
        values = values.detach().cpu().numpy()  # type: ignore[attr-defined]
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PrivcalcError(f"values: must be an array of real numbers, not {type(values).__name__}") from error
    if not np.all(np.isfinite(array)):
        raise PrivcalcError("values: must be finite; a NaN would pass through the noise. Clip contributions, and NaN to 0, first")
    return array


def integers(values: object) -> bool:
    """Whether they are integers."""
    if _is_torch(values):
        return not values.is_floating_point()  # type: ignore[attr-defined]
    return np.issubdtype(np.asarray(values).dtype, np.integer)


def noisy(values: Array, array: Floats, noise: NDArray[Any]) -> Array:
    """array + noise, added in double precision, in the kind of array that ``values`` are."""
    found: Any = array + noise.reshape(array.shape)
    whole = noise.dtype.kind == "i"
    if _is_torch(values):
        like: Any = values if whole or values.is_floating_point() else values.double()  # type: ignore[attr-defined]
        return cast(Array, like.new_tensor(found))
    if isinstance(values, (int, float)):
        return int(found) if whole else float(found)  # type: ignore[return-value]
    kind = np.asarray(values).dtype
    return cast(Array, found.astype(kind if kind.kind == "f" or whole else np.float64))
