"""log Γ at complex points, with a bound on its error."""

from __future__ import annotations

import math

import numpy as np

from privcalc.numerics.faces import Complexes
from privcalc.numerics.floats import UNIT, Floats

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""B_2j/(2j(2j − 1)), j = 1, …, 7."""

_FAR = 16
"""From this real part on the series leaves out less than 1e-17."""


def log_gamma(z: Complexes) -> tuple[Complexes, Floats]:
    """Log Γ(z) up to multiples of 2πi, Re z > 0, and a bound on its error.

    By Stirling's series at w = z + m, Re w ≥ 16, log Γ(z) = log Γ(w) − Σ_{j<m} log(z + j). What the series leaves out
    is at most |B_16|/240·|w|^{−15}·(cos ½ arg w)^{−16} < 1e-17 (NIST Digital Library, 5.11.ii).

    Example:
        >>> value, error = log_gamma(np.array([3 + 0j, 1 + 1j]))
        >>> bool(abs(np.exp(value[0]) - 2) <= 1e-14)
        True
    """
    move = max(0, math.ceil(_FAR - float(z.real.min())))
    shift = np.log(np.add.outer(np.arange(move), z)).sum(axis=0)
    w = z + move
    inverse = 1 / w
    series, power = np.zeros_like(w), inverse
    for coefficient in _STIRLING:
        series = series + coefficient * power
        power = power * inverse * inverse
    log = np.log(w)
    value = (w - 0.5) * log - w + 0.5 * math.log(2 * math.pi) + series - shift
    size = np.abs(w) * (np.abs(log) + 2) + np.abs(shift)
    return np.asarray(value), np.asarray(UNIT * (12 * size + 8 * move * (1 + np.abs(log)) + 40), dtype=np.float64)
