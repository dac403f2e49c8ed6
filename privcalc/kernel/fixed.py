"""Real numbers between two whole numbers of units 2^-bits: powers, logarithms, and the normal distribution function.

Every function rounds its lower end down and its upper end up (``proofs/kernel.md``, §3).
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import TypeAlias

from privcalc.kernel.curve import ceil_div

Between: TypeAlias = tuple[int, int]


def _twice_artanh(num: int, den: int, bits: int) -> Between:
    """2·artanh(num/den) for 0 ≤ num/den ≤ 1/3: a power's floors are 2 units off at most, a quotient's 1 more."""
    t = (num << bits) // den
    square, power, total, terms = t * t >> bits, t, 0, 0
    while power:
        total, power, terms = total + power // (2 * terms + 1), power * square >> bits, terms + 1
    return 2 * total, 2 * total + 8 * terms + 16


@cache
def log2(bits: int) -> Between:
    """The logarithm of 2."""
    return _twice_artanh(1, 3, bits)


def log(num: int, den: int, bits: int) -> Between:
    """ln(num/den) of a positive fraction: 2^e·f with f in (1/2, 2), and ln f = 2·artanh((f − 1)/(f + 1))."""
    e = num.bit_length() - den.bit_length()
    num, den = (num, den << e) if e >= 0 else (num << -e, den)
    low, high = _twice_artanh(abs(num - den), num + den, bits)
    if num < den:
        low, high = -high, -low
    two = log2(bits)
    return low + min(e * two[0], e * two[1]), high + max(e * two[0], e * two[1])


def _exp(y: int, bits: int) -> Between:
    """e^(y·2^-bits) for y ≥ 0: the series at y/2^r < 2^-8, squared r times."""
    r = max(0, y.bit_length() - bits + 8)
    ends = []
    for up in (0, 1):
        z = (y >> r) + up
        term = total = 1 << bits
        n = 1
        while term > 1 or (up == 0 and term):
            term = (term * z >> bits) // n + up
            total, n = total + term, n + 1
        total += up  # the terms that are left are less than a unit together, as z < 2^-7
        for _ in range(r):
            total = (total * total >> bits) + up
        ends.append(total)
    return ends[0], ends[1]


def density(t: int, bits: int) -> Between:
    """The normal density at t·2^-bits, times √(2π)."""
    low, high = _exp((t * t >> bits) // 2, bits)[0], _exp(ceil_div(t * t, 2 << bits), bits)[1]
    return (1 << 2 * bits) // high, ceil_div(1 << 2 * bits, low)


@cache
def root(bits: int) -> Between:
    """1/√(2π), by π = 16·artan(1/5) − 4·artan(1/239) (Machin)."""

    def artan(d: int) -> Between:
        power, total, n = (1 << bits + 8) // d, 0, 0
        while power:
            total += (-1) ** n * (power // (2 * n + 1))
            power, n = power // (d * d), n + 1
        return total - 3 * n - 3, total + 3 * n + 3

    (a, b), (c, d) = artan(5), artan(239)
    low, high = 16 * a - 4 * d, 16 * b - 4 * c  # π in units of 2^-(bits + 8)
    one = 1 << 2 * bits + bits + 8
    return isqrt(one // (2 * high)), isqrt(one // (2 * low) + 1) + 1


def normal(t: int, bits: int) -> Between:
    """Φ at t·2^-bits: ½ + φ(t)·Σ t^(2n+1)/(2n+1)!!, all of whose terms are positive."""
    one, size = 1 << bits, t * t >> 2 * bits
    if t < 0:
        low, high = normal(-t, bits)
        return one - high, one - low
    if size > 2 * bits:  # 1 − Φ(t) < e^(−t²/2) < e^-bits
        return one - 1, one
    more = size * 3 // 4 + 8  # the series is as large as e^(t²/2) = 2^(.7213 t²)
    t, work, ends = t << more, bits + more, []
    square = t * t
    for up in (0, 1):
        term = total = t
        n = 1
        while term > up or (2 * n + 1 << 2 * work) < 2 * square:
            term = (term * square >> 2 * work) // (2 * n + 1) + up
            total, n = total + term, n + 1
        ends.append(total + up)  # from here on the terms are halved at least each time
    phi, scale = density(t, work), root(work)
    low = (phi[0] * scale[0] >> work) * ends[0] >> work
    high = ceil_div(ceil_div(phi[1] * scale[1], 1 << work) * ends[1], 1 << work)
    return (one >> 1) + (low >> more), min(one, (one >> 1) + ceil_div(high, 1 << more))
