"""The discrete Gaussian, exactly: from a table; wide ones by rational coins (``proofs/executed_noise.md``, §4)."""

from __future__ import annotations

import functools
import math
import random
from bisect import bisect_left, bisect_right
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc.noise.bits import Bits, Uniform
from privcalc.noise.exponential import bounds

__all__ = ["discrete_gaussian"]

WIDEST = 10**6
"""The largest variance of which there is a table, of 13 σ entries."""

DIGITS = 128
"""Of the table, binary."""

LAST = 2**64 - 1
"""The largest word of 64 random bits."""


class _Law(NamedTuple):
    """Enclosures of P(|X| ≤ k), k = 0, 1, …: whole numbers over the whole numbers of the total."""

    low: list[int]
    high: list[int]
    least: int
    most: int


@functools.lru_cache(maxsize=4)
def _law(variance: Fraction, digits: int) -> _Law:
    """Return the table of the law, each weight to a few units of 2^-digits; what it leaves out is less than one."""
    low, high, least, most = [], [], 0, 0
    for k in range(math.isqrt(math.ceil(2 * variance * (digits + 2))) + 2):
        ends = bounds(Fraction(k * k) / (2 * variance), digits)
        least, most = least + ends[0] * (2 if k else 1), most + ends[1] * (2 if k else 1)
        low.append(least)
        high.append(most)
    # Beyond them is less than one unit: e^{-k²/2σ²} < e^{-digits}, falling by e^{-16/σ} at least from each to the next.
    return _Law(low, high, least, most + 1)


@functools.lru_cache(maxsize=8)
def _table(variance: Fraction) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """⌊2⁶⁴·P(|X| ≤ k)⌋ at least, and at most."""
    law = _law(variance, DIGITS)
    ends = [min((x << 64) // law.most, LAST) for x in law.low], [min((x << 64) // law.least, LAST) for x in law.high]
    return np.array(ends[0], dtype=np.uint64), np.array(ends[1], dtype=np.uint64)


def discrete_gaussian(bits: Bits, variance: Fraction, size: int) -> NDArray[np.int64]:
    """``size`` independent integers with mass ∝ e^{−x²/(2·variance)}."""
    if variance > WIDEST:
        return np.array([_by_coins(bits.integers, variance) for _ in range(size)], dtype=np.int64)
    least, most = _table(variance)
    words = bits.words(size)
    # P(|X| ≤ k) is below the uniform number: how often, at least.
    magnitudes = np.searchsorted(most, words, side="left")
    for i in np.flatnonzero(magnitudes != np.searchsorted(least, words, side="right")):
        magnitudes[i] = _exactly(variance, Uniform(bits, int(words[i]), 64))
    signs = np.unpackbits(bits.words(-(-size // 64)).view(np.uint8))[:size]
    return np.where(signs == 1, -magnitudes, magnitudes).astype(np.int64)


def _exactly(variance: Fraction, place: Uniform) -> int:
    """How many P(|X| ≤ k) are at most a uniform number: with as many digits as it takes."""
    digits = 2 * DIGITS
    while True:
        law = _law(variance, digits)
        least = bisect_right(law.high, math.floor(place.low * law.least))  # so many are surely at most the number
        most = bisect_left(law.low, math.ceil(place.high * law.most))  # and so many may be
        if least == most:
            return least
        digits += DIGITS
        place.refine()


def _bernoulli_exp(random_: random.Random, gamma: Fraction) -> bool:
    """True with probability e^{−γ}, γ ≥ 0: while γ > 1 one e^{−1} at a time, then the alternating series of e^{−γ}."""
    while gamma > 1:
        if not _bernoulli_exp(random_, Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while random_.randrange(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def _discrete_laplace(random_: random.Random, t: int) -> int:
    """Draw x with probability ∝ e^{−|x|/t}."""
    while True:
        low = random_.randrange(t)
        if not _bernoulli_exp(random_, Fraction(low, t)):
            continue
        high = 0
        while _bernoulli_exp(random_, Fraction(1)):
            high += 1
        x, negative = low + t * high, random_.randrange(2)
        if x or not negative:
            return -x if negative else x


def _by_coins(random_: random.Random, variance: Fraction) -> int:
    """A discrete Gaussian number, as discrete Laplace accepted with exp(−(|x| − σ²/t)²/(2σ²)), t ≈ σ.

    Canonne, Kamath, Steinke 2020, Algorithms 1 to 3.
    """
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        x = _discrete_laplace(random_, t)
        if _bernoulli_exp(random_, (abs(x) - variance / t) ** 2 / (2 * variance)):
            return x
