"""Double precision: its unit, its smallest number, and the arrays that all numerics share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


UNIT = 2.0**-53
"""Unit roundoff of a double."""


TINY = 1e-306
"""Stands for everything that underflows: added to upper bounds, subtracted from lower ones."""
