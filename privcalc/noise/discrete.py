"""The discrete Gaussian, exactly, by rational coins (Canonne, Kamath, Steinke 2020, Algorithms 1-3)."""

from __future__ import annotations

import math
import random
from fractions import Fraction

__all__ = ["discrete_gaussian"]


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
    """Mass ∝ e^{−|x|/t}."""
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


def discrete_gaussian(random_: random.Random, variance: Fraction) -> int:
    """A discrete Laplace number, accepted with probability exp(−(|x| − σ²/t)²/(2σ²)), t ≈ σ."""
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        x = _discrete_laplace(random_, t)
        if _bernoulli_exp(random_, (abs(x) - variance / t) ** 2 / (2 * variance)):
            return x
