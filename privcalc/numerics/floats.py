"""Double precision: its unit, its smallest number, and the arrays that all numerics share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


UNIT = 2.0**-53
"""Unit roundoff of a double."""


TINY = 1e-306
"""Stands for everything that underflows: added to upper bounds, subtracted from lower ones."""


def short(x: float, bits: int = 28) -> float:
    """The next number ≤ x, x > 0, of so many bits: its multiples by whole numbers of the others are exact."""
    unit = 2.0 ** (math.frexp(x)[1] - bits)
    return math.floor(x / unit) * unit
