"""e^{-q} with a proved error: enclosures in whole numbers, as narrow as one likes, and doubles for whole arrays.

Nothing here trusts a mathematical library: only +, −, ×, / of IEEE doubles, and integers (``proofs/executed_noise.md``,
§3).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["ERROR", "LARGEST", "bounds", "decay"]

Floats = NDArray[np.float64]

ERROR = 2.0**-46
"""Relative error of :func:`decay`, at most."""

LARGEST = 2.0**19
"""Largest argument of :func:`decay`."""

_LOG2_HIGH, _LOG2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
"""log 2 = high + low up to 2⁻⁸⁶; the first has 32 bits, so that its products with whole numbers below 2²⁰ are exact."""

_DEGREE = 13
"""Of the series of e^{-x} for |x| ≤ ½ log 2: what is left out is below 0.35¹⁴/14! = 5e-18."""


def bounds(q: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers low ≤ 2^bits·e^{-q} ≤ high, a few units apart at most.

    Args:
        q: ≥ 0.
        bits: how many digits.
    """
    if q > bits + 1:  # e^{-q} < 2^{-q}
        return 0, 1
    halvings = max(0, math.floor(q).bit_length() + 4)  # so that what is left is below 1/16
    digits = bits + halvings + 16
    numerator, denominator = q.numerator << digits, q.denominator << halvings
    small = numerator // denominator  # q/2^halvings is in [small, small + 1] units
    low, high = _series(small + 1, digits)[0], _series(small, digits)[1]
    for _ in range(halvings):
        low, high = low * low >> digits, -(-high * high >> digits)
    return low >> (digits - bits), -(-high >> (digits - bits))


def _series(x: int, digits: int) -> tuple[int, int]:
    """Bounds of e^{-x}, x ≤ 1/16, both in units of 2^-digits.

    Each term is off by less than 2, and so is what is left out.
    """
    total, term, k = 0, 1 << digits, 0
    while term:
        total += -term if k % 2 else term
        k += 1
        term = term * x // (k << digits)
    return total - 2 * k - 2, total + 2 * k + 2


def decay(gamma: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """e^{-γ} = m·2^{-n} for γ in [0, ``LARGEST``]: m in (0.7, 1.42) and n, the relative error at most ``ERROR``.

    Example:
        >>> found, shift = decay(np.array([1.0, 700.0]))
        >>> bool(np.allclose(np.ldexp(found, -shift), np.exp([-1.0, -700.0]), rtol=1e-13, atol=0))
        True
    """
    n = np.rint(gamma * (1 / math.log(2)))
    rest = (gamma - n * _LOG2_HIGH) - n * _LOG2_LOW
    series = np.full_like(rest, 1 / math.factorial(_DEGREE))
    for k in range(_DEGREE - 1, -1, -1):
        series = 1 / math.factorial(k) - rest * series  # Horner, of Σ (−rest)^k/k!
    return series, n.astype(np.int64)
