"""The one exception, and the checks that raise it.

Every argument check of the library is one of the functions below, so that an error always names the
argument, the value that was given and what is allowed.
"""

from __future__ import annotations

import math
import operator
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["NotConfirmedError", "PrivcalcError"]


class PrivcalcError(ValueError):
    """A question that cannot be answered as asked: an argument out of range, or a relation that does not fit.

    Example:
        >>> import privcalc as pc
        >>> pc.Gaussian(noise_multiplier=-1.0)
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: noise_multiplier = -1.0: must be a finite number > 0 (1e-100 to 1e100)
    """


class NotConfirmedError(PrivcalcError):
    """A check that came to no end: nothing was found wrong, and the claim is not confirmed (``Certificate.verify``)."""


def real(
    name: str, value: SupportsFloat, allowed: str, *, low: float, high: float, open_low: bool = False, open_high: bool = False
) -> float:
    """Return ``value`` as a float, or raise because it is not a number in the allowed interval."""
    if isinstance(value, (bool, str, bytes)):
        raise PrivcalcError(f"{name} = {value!r}: must be {allowed}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise PrivcalcError(f"{name} = {value!r}: must be {allowed}") from error
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if math.isnan(number) or below or above:
        raise PrivcalcError(f"{name} = {value!r}: must be {allowed}")
    return number


def positive(name: str, value: SupportsFloat) -> float:
    """Return a finite float > 0."""
    return real(name, value, "a finite number > 0", low=0.0, high=math.inf, open_low=True, open_high=True)


def scale(name: str, value: SupportsFloat) -> float:
    """Return a noise scale: a float in [1e-100, 1e100], so that its square and inverse exist."""
    return real(name, value, "a finite number > 0 (1e-100 to 1e100)", low=1e-100, high=1e100)


def rate(name: str, value: SupportsFloat) -> float:
    """Return a probability in (0, 1]."""
    return real(name, value, "a probability in (0, 1] (at least 1e-100)", low=1e-100, high=1.0)


def delta(name: str, value: SupportsFloat) -> float:
    """Return a δ in [0, 1)."""
    return real(name, value, "a probability in [0, 1)", low=0.0, high=1.0, open_high=True)


def epsilon(name: str, value: SupportsFloat) -> float:
    """Return a finite ε ≥ 0."""
    return real(name, value, "a finite number >= 0", low=0.0, high=math.inf, open_high=True)


def count(name: str, value: object, *, least: int = 0) -> int:
    """Return a whole number ≥ ``least``; floats are refused, because 9_999.7 steps mean nothing."""
    message = f"{name} = {value!r}: must be a whole number (int) >= {least}"
    if isinstance(value, bool):
        raise PrivcalcError(message)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise PrivcalcError(message) from error
    if number < least:
        raise PrivcalcError(message)
    if number > 2**53:
        raise PrivcalcError(f"{name} = {value!r}: must be at most 2^53")
    return number


def orders(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return Rényi orders: an array of numbers > 1, ∞ included."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PrivcalcError(f"{name} = {value!r}: must be numbers > 1 (inf included)") from error
    if array.size == 0 or not np.all(array > 1):
        raise PrivcalcError(f"{name} = {value!r}: must be numbers > 1 (inf included)")
    return array
