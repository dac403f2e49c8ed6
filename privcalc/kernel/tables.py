"""Tables of divergences: for Gaussian noise, sampled or not, bounds of δ at the powers of x, rounded up.

Real numbers are known between two whole numbers of units 2^-bits: powers, logarithms, the normal distribution function.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from math import isqrt
from typing import TypeAlias

from privcalc.kernel.curve import Settings, base, ceil_div

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


EXTRA = 24
"""Bits beyond the unit's: of the rounding of some hundred powers, and of the doubles that choose a window."""


def window(s: Settings, sigma: float, rate: float) -> tuple[int, int]:
    """From which to which power of x the losses of a removed record are in a table.

    Chosen in doubles: beyond it at most about ``cut`` is left, and any window is safe.
    """
    step, left = math.log1p(2.0**-s.grid), max(1e-300, s.cut * 2.0**-s.bits)
    reach = math.sqrt(-2 * math.log(left)) / sigma
    far = 1 / (2 * sigma**2) + reach
    highest = far if far > 600 else math.log1p(rate * math.expm1(far))
    lowest = -far if rate == 1 else max(-far, math.log1p(-rate))  # of an added record the largest is −log(1 − q)
    return min(-1, math.floor(lowest / step)), max(1, math.ceil(highest / step))


def tables(s: Settings, sigma: Fraction, rate: Fraction) -> tuple[tuple[int, list[int]], tuple[int, list[int]]]:
    """The first power and the bounds of δ for a removed record, and for an added one.

    Removed, with γ = x^k: δ = q·(Φ(a) − γ'·Φ(a − 1/σ)), a = 1/(2σ) − σ·ln γ', γ' = (γ − 1 + q)/q, and 1 − γ where
    γ' ≤ 0 (Poisson sampling: ``proofs/poisson.md``). Added: 1 − γ + γ times what a removed one's is at 1/γ.
    """
    low, high = window(s, float(sigma), float(rate))
    x, one = base(s, 0)[0], 1 << s.bits
    bits = s.bits + EXTRA + math.ceil(max(-low, high) * math.log2(x / one))
    powers = _powers(s, -max(-low, high), max(-low, high), bits)
    removed = [_removed(powers[k], sigma, rate, bits) for k in range(low, high + 1)]
    unit = 1 << bits - s.bits
    first = [ceil_div(max(0, most), unit) for _, most in removed]
    added = [  # 1 − γ(1 − δ_removed(1/γ)); the second factor is at most 1/γ, so that only γ's relative error counts
        ceil_div(max(0, (1 << bits) - (powers[k][0] * max(0, (1 << bits) - removed[-k - low][1]) >> bits)), unit)
        for k in range(-high, -low + 1)
    ]
    return (low, first), (-high, added)


def _powers(s: Settings, low: int, high: int, bits: int) -> dict[int, Between]:
    """x^k for all k from low ≤ 0 to high ≥ 0."""
    found = {0: (1 << bits, 1 << bits)}
    scale = 1 << s.grid
    for k in range(1, high + 1):
        least, most = found[k - 1]
        found[k] = least + (least >> s.grid), most + ceil_div(most, scale)
    for k in range(-1, low - 1, -1):
        least, most = found[k + 1]
        found[k] = least * scale // (scale + 1), ceil_div(most * scale, scale + 1)
    return found


def _removed(gamma: Between, sigma: Fraction, rate: Fraction, bits: int) -> Between:
    """δ at γ of the pair (1 − q)·N(0, σ²) + q·N(1, σ²) against N(0, σ²), between two numbers."""
    one = 1 << bits
    p, q = rate.numerator, rate.denominator
    least, most = (((g - one) * q + p * one) // p for g in gamma)  # γ'
    most += 1
    if least <= 0:
        return one - gamma[1], one - gamma[0] if most <= 0 else one
    ln_least = log(least, one, bits)[0]
    ln_most = ln_least + ceil_div((most - least) * one, least) + log(least, one, bits)[1] - ln_least
    s, t = sigma.numerator, sigma.denominator
    half = (t << bits) // (2 * s)
    a = half - ceil_div(ln_most * s, t), half + 1 - ln_least * s // t
    b = a[0] - ceil_div(t << bits, s), a[1] - (t << bits) // s
    low = normal(a[0], bits)[0] - ceil_div(most * normal(b[1], bits)[1], one)
    high = normal(a[1], bits)[1] - (least * normal(b[0], bits)[0] >> bits)
    return low * p // q, ceil_div(high * p, q)
