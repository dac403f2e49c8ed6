"""All powers e^{ik·h·L} at once: nodes on a vertical line as one matrix product."""

from __future__ import annotations

import math

import numpy as np

from privcalc.numerics.faces import Complexes
from privcalc.numerics.floats import Floats
from privcalc.numerics.mixture import expm1


def fan(base: Complexes | Floats, log: Complexes | Floats, step: float, size: int) -> Complexes:
    """Σ_j base_j e^{ik·step·log_j} for 0 ≤ k < size, over the last axis; with k = aB + b the exponential factors.

    Summed in any order it errs by at most (2J + 60)u Σ|terms|, J terms, and what the roundings of k·step·log move the
    angle by (``proofs/engine.md``, §7).

    Args:
        base: the terms at k = 0, shape (…, J).
        log: their logarithms, of the same shape.
        step: distance of the nodes.
        size: number of nodes.

    Returns:
        The sums, shape (…, size).

    Example:
        >>> bool(np.allclose(fan(np.array([0.5, 0.5]), np.array([0.0, math.pi]), 1.0, 3), [1, 0, 1]))
        True
    """
    block = math.isqrt(size) + 1
    log = log[..., None, :]
    inner = base[..., None, :] * np.exp(1j * step * np.arange(block)[:, None] * log)
    outer = np.exp(1j * step * block * np.arange(-(-size // block))[:, None] * log)
    product = outer @ inner.swapaxes(-1, -2)
    return np.asarray(product.reshape(*product.shape[:-2], -1)[..., :size], dtype=np.complex128)


def fan_less_one(log: Complexes, step: float, size: int, start: int = 0) -> Complexes:
    """e^{ik·step·log_j} − 1 for ``start`` ≤ k < start + size, Im log ≥ 0, in a row for each j.

    The result is off by at most 40u·k·step·|log_j|.

    From f = e^a − 1 and g = e^b − 1 that of a + b is f + g + fg, where |f| ≤ |a|, |g| ≤ |b| and |f|, |g| ≤ 2.

    Example:
        >>> last = fan_less_one(np.array([0.3 + 0.1j]), 2.0, 7)[0, 6]
        >>> bool(np.allclose(last, np.expm1(12j * (0.3 + 0.1j)), rtol=1e-14))
        True
    """
    block = math.isqrt(size) + 1
    inner = expm1(1j * np.multiply.outer(log, step * np.arange(block)))[:, None, :]
    outer = expm1(1j * np.multiply.outer(log, step * (start + block * np.arange(-(-size // block)))))[:, :, None]
    return np.asarray((outer + inner + outer * inner).reshape(log.size, -1)[:, :size], dtype=np.complex128)
