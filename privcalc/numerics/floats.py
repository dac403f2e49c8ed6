"""Double precision: its unit, its smallest number, and the arrays that all numerics share.

Numbers that recur in numerics and pairs, each with one reason everywhere:

* ``k * UNIT``: pays for the roundings of a few operations, which the proof page lists; often a power of two above their
  number.
* ``(1 + 1e-9)`` or ``(1 + 1e-12)`` on a bound: more than the rounding of its few operations, and nothing beside its
  width.
* ``700.0`` under an exponential: e^700 is a double and e^710 is not. What is capped is a bound of 1 there, or replaced.
* ``30.0``: e^30 is far from overflow, and both forms of a logarithm have all digits there: where one gives way to the
  other.
* ``1e-300`` in a logarithm or a quotient: stands for 0 without a warning.
* ``maxsize`` of a cache: so many sets of parameters occur in one run. Only speed depends on it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]


UNIT = 2.0**-53
"""Unit roundoff of a double."""


TINY = 1e-306
"""Stands for everything that underflows: added to upper bounds, subtracted from lower ones."""


QUIET = np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
"""Overflow and NaN are dealt with where bounds are formed: there they end as "nothing is known"."""


def short(x: float, bits: int = 28) -> float:
    """The next number ≤ x, x > 0, of so many bits: its multiples by whole numbers of the others are exact."""
    unit = 2.0 ** (math.frexp(x)[1] - bits)
    return math.floor(x / unit) * unit
