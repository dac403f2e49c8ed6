"""Tables of divergences: for Gaussian noise, sampled or not, bounds of δ at the powers of x, rounded up."""

from __future__ import annotations

import math
from fractions import Fraction

from privcalc.kernel.curve import Settings, base, ceil_div
from privcalc.kernel.fixed import Between, log, normal

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
