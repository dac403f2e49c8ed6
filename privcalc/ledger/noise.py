"""Random numbers: from the operating system's cryptographic generator, or from a seed, for tests.

What floating point does to it. A normal number is −Φ⁻¹(u/2) with a random sign, u one of 2⁶³ equidistant points: it is never
beyond 9.3 σ, which changes the law by less than 1e-19 in total variation. It is a double: an attacker who sees every bit of
value + noise learns more than the real-valued mechanism tells (Mironov 2012). Results rounded to single precision or less, and
noise much above the resolution of the values, leave him little; only :class:`DiscreteGaussian`, which is drawn with exact
integer arithmetic (Canonne, Kamath, Steinke 2020), leaves him nothing.
"""

from __future__ import annotations

import math
import os
import random
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privcalc.numerics.floats import Floats

__all__ = ["Noise", "SecureNoise", "SeededNoise"]


class Noise(ABC):
    """Draws, given 64 random bits at a time."""

    integers: random.Random
    """For exact arithmetic."""

    @abstractmethod
    def bits(self, size: int) -> NDArray[np.uint64]:
        """``size`` independent uniform 64-bit numbers."""

    def normal(self, size: int) -> Floats:
        """Standard normal numbers."""
        bits = self.bits(size)
        tail = (bits >> np.uint64(1)).astype(np.float64)
        tail += 0.5
        tail *= 2.0**-64  # in (0, 1/2]
        found: Floats = ndtri(tail)
        return np.copysign(found, (bits & np.uint64(1)).astype(np.float64) - 0.5, out=found)

    def laplace(self, size: int) -> Floats:
        """Laplace numbers of scale 1: a random sign and an exponential size."""
        bits = self.bits(size)
        found: Floats = -np.log(((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-63)
        return np.copysign(found, (bits & np.uint64(1)).astype(np.float64) - 0.5, out=found)

    def gumbel(self, size: int) -> Floats:
        """Standard Gumbel numbers −log(−log(1 − U))."""
        u = np.minimum((self.bits(size).astype(np.float64) + 0.5) * 2.0**-64, 1 - 2.0**-53)
        return np.asarray(-np.log(-np.log1p(-u)), dtype=np.float64)  # large values come from small u, which are fine

    def coins(self, size: int, rate: float) -> NDArray[np.bool_]:
        """Independent coins that show True with probability ``rate``, rounded down to a multiple of 2⁻⁶⁴."""
        limit = int(Fraction(rate) * 2**64)
        return np.ones(size, dtype=np.bool_) if limit >= 2**64 else self.bits(size) < np.uint64(limit)

    def subset(self, size: int, chosen: int) -> NDArray[np.int64]:
        """A uniform subset of ``range(size)`` with ``chosen`` members, ascending."""
        return np.sort(np.argsort(self.bits(size), kind="stable")[:chosen])

    def discrete_gaussian(self, size: int, sigma: Fraction) -> NDArray[np.int64]:
        """Integers with mass ∝ exp(−x²/(2σ²)), exactly (Canonne, Kamath, Steinke 2020, Algorithms 1-3)."""
        return np.array([_discrete_gaussian(self.integers, sigma * sigma) for _ in range(size)], dtype=np.int64)


class SecureNoise(Noise):
    """The operating system's generator: no state here, so nothing to repeat after a fork or a restart."""

    def __init__(self) -> None:
        self.integers = random.SystemRandom()

    def bits(self, size: int) -> NDArray[np.uint64]:
        """From the kernel."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class SeededNoise(Noise):
    """Reproducible, hence without any privacy: for tests and research.

    Args:
        seed: a whole number.
        stream: distinct numbers give independent draws.
    """

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._generator: Any = np.random.default_rng([seed, stream])
        self.integers = random.Random(f"{seed}/{stream}")

    def bits(self, size: int) -> NDArray[np.uint64]:
        """From NumPy's generator."""
        return np.asarray(self._generator.integers(0, 2**64, size, dtype=np.uint64))


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


def _discrete_gaussian(random_: random.Random, variance: Fraction) -> int:
    """A discrete Laplace number, accepted with probability exp(−(|x| − σ²/t)²/(2σ²)), t ≈ σ."""
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        x = _discrete_laplace(random_, t)
        if _bernoulli_exp(random_, (abs(x) - variance / t) ** 2 / (2 * variance)):
            return x
