"""The logarithm of a sampled Gaussian's ratio, complex ``expm1`` and ``log1p``, and powers by squaring.

The functions have all digits near 0, unlike NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from privcalc.numerics.floats import Complexes, Floats

T = TypeVar("T")

_MANY_TERMS = 4000
"""From which a grid is faster than a matrix product."""

_TERMS = 22
"""Of Taylor's series at π/2: the next one is 1e-18."""


def repeated(factor: T, count: int, product: Callable[[T, T], T]) -> T:
    """The product of ``count`` ≥ 1 equal factors, by repeated squaring; ``product`` counts its own error."""
    whole = factor
    for bit in bin(count)[3:]:
        whole = product(whole, whole)
        if bit == "1":
            whole = product(whole, factor)
    return whole


def fan(base: Complexes | Floats, log: Complexes | Floats, step: float, size: int) -> Complexes:
    """Σ_j base_j e^{ik·step·log_j} for 0 ≤ k < size, over the last axis; with k = aB + b the exponential factors.

    Summed in any order it errs by at most (2J + 60)u Σ|terms|, J terms, and what the roundings of k·step·log move the
    angle by; many real terms go to a grid, with no more error (``proofs/engine.md``, §7).

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
    real = log.ndim == 1 and not np.iscomplexobj(base) and not np.iscomplexobj(log)
    if real and log.size > _MANY_TERMS and (found := _on_grid(base.real, step * log.real, size)) is not None:
        return found
    block = math.isqrt(size) + 1
    log = log[..., None, :]
    inner = base[..., None, :] * np.exp(1j * step * np.arange(block)[:, None] * log)
    outer = np.exp(1j * step * block * np.arange(-(-size // block))[:, None] * log)
    product = outer @ inner.swapaxes(-1, -2)
    return np.asarray(product.reshape(*product.shape[:-2], -1)[..., :size], dtype=np.complex128)


def _on_grid(base: Floats, angles: Floats, size: int) -> Complexes | None:
    """Σ_j base_j e^{ik·angle_j} for 0 ≤ k < size, by Taylor's formula about a grid; None where it may err by too much.

    On a grid of N ≥ 2·size angles the rest of one is tπ/N, |t| ≤ 1, and e^{iktπ/N} a series in ktπ/N, |·| ≤ π/2, whose
    terms are Fourier transforms.
    """
    grid = 2 << (size - 1).bit_length()
    turns = angles * (grid / (2 * math.pi))
    nearest = np.rint(turns)
    places, rest = (nearest % grid).astype(np.int64), 2 * (turns - nearest)
    if 5 * np.bincount(places).max() + 40 * grid.bit_length() + 200 > 2 * base.size + 60:
        return None
    powers = [base]
    for _ in range(_TERMS):
        powers.append(powers[-1] * rest)
    k = np.arange(size) * (1j * math.pi / grid)
    total = np.zeros(size, dtype=np.complex128)
    for p in range(_TERMS, -1, -1):
        # rfft has e^{−ik·angle}.
        total = total * k / (p + 1) + np.fft.rfft(np.bincount(places, powers[p], grid))[:size].conj()
    return total


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


def log_mixture(mu: float, q: float, t: Floats) -> Floats:
    """log(1 − q + q e^{μt − μ²/2}) on the real line."""
    return log_weighted(q, mu * t - 0.5 * mu * mu)


def log_weighted(q: float, x: Floats) -> Floats:
    """log(1 − q + q e^x), to a few units of itself also where q e^x is small.

    So log q + x, which cancels there, is left to where e^x nears the end of doubles: rates are at least 1e-100.
    """
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        less = q * np.expm1(np.minimum(x, 700.0))
        log = np.log1p(less)
        if q > 0.5:
            log = np.where(less < -0.5, np.log((1 - q) + q * np.exp(np.minimum(x, 30.0))), log)
        if x.max(initial=0.0) > 700:
            log = np.where(x > 700, math.log(q) + x + np.log1p((1 - q) / q * np.exp(-np.maximum(x, 0.0))), log)
    return np.asarray(log, dtype=np.float64)


def log_rotated(mu: float | Floats, q: float, t: Floats, theta: float | Floats) -> Complexes:
    """log(1 − q + q r e^{iθ}), r = e^{μt − μ²/2}."""
    return log_turned(q, mu * t - 0.5 * mu * mu, theta)


def rotated_size(mu: float, q: float, t: Floats, log: Complexes) -> Floats:
    """|log w| of :func:`log_rotated`, and of |qr/w| times |μt| + μ² a quarter: what its rounding scales with.

    The logarithm is off by a few units of itself, and by the rounding of μt − μ²/2, at most 2|μt| + μ² units, times
    |qr/w|: by less than 8 units of this size (``proofs/engine.md``, §7).
    """
    # |qr/w| by logarithms: 1 − (1 − q)/w, which it is about, cancels to 0 for rates below the unit roundoff.
    share = np.exp(np.minimum(math.log(q) + mu * t - 0.5 * mu**2 - log.real, 700.0))
    return np.asarray(np.abs(log) + 0.25 * share * (np.abs(mu * t) + mu**2), dtype=np.float64)


def log_turned(q: float, x: Floats, theta: float | Floats) -> Complexes:
    """log(1 − q + q e^{x + iθ}); NumPy's complex log1p loses half of the digits near 0, so it is done in parts."""
    with np.errstate(over="ignore"):
        r = np.exp(np.minimum(x, 700.0))
    turn = -2 * np.sin(0.5 * theta) ** 2
    real = q * (np.expm1(np.minimum(x, 700.0)) + r * turn)
    imag = q * r * np.sin(theta)
    direct = (1 - q) + q * r * np.cos(theta)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        small = real * (2 + real) + imag * imag
        modulus = np.where(np.abs(small) < 0.5, 0.5 * np.log1p(small), np.log(np.hypot(direct, imag)))
        out = modulus + 1j * np.arctan2(imag, direct)
        if np.max(x, initial=0.0) > 700:
            # Far out, from log q + x + iθ + log(1 + (1 − q)/q·e^{−x−iθ}), where r itself may overflow.
            rest = log1p(np.asarray((1 - q) / q * np.exp(-np.maximum(x, 0.0) - 1j * theta), dtype=np.complex128))
            out = np.where(x > 700, (math.log(q) + x + rest.real) + 1j * (theta + rest.imag), out)
    return np.asarray(out, dtype=np.complex128)


def expm1(z: Complexes) -> Complexes:
    """e^z − 1, by parts: e^x cos y − 1 = expm1(x)·cos y − 2 sin²(y/2)."""
    # Capped where the weights e^{−t²/2} have long made it irrelevant, so that 0·∞ cannot arise.
    x = np.minimum(z.real, 650.0)
    half = np.sin(0.5 * z.imag)
    grow = np.exp(x)
    out = np.empty_like(z)
    out.real = np.expm1(x) - 2 * grow * half * half
    out.imag = grow * np.sin(z.imag)
    return out


def log1p(z: Complexes) -> Complexes:
    """log(1 + z), by parts, for the same reason as in ``log_rotated``."""
    x, y = z.real, z.imag
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        small = x * (2 + x) + y * y
        modulus = np.where(np.abs(small) < 0.5, 0.5 * np.log1p(small), np.log(np.hypot(1 + x, y)))
    return np.asarray(modulus + 1j * np.arctan2(y, 1 + x), dtype=np.complex128)
