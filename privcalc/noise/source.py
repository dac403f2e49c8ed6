"""Draws from one source of bits; if these are fair and independent, each law is exactly the named one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privcalc.noise.bits import Bits, SecureBits, coins, numbers, subset
from privcalc.noise.continuous import laplace, normal, steps
from privcalc.noise.discrete_gaussian import discrete_gaussian
from privcalc.noise.selection import choose, choose_set, laplace_max, permute_and_flip

__all__ = ["Noise"]

Whole = NDArray[np.int64]

CROWD = 2**10
"""At least as many numbers are drawn at a time, so that the time it takes does not tell what one of them is like."""


class Noise:
    """A source of exact draws from laws of noise.

    Args:
        bits: by default :class:`SecureBits`.
    """

    def __init__(self, bits: Bits | None = None) -> None:
        self.bits = SecureBits() if bits is None else bits

    def normal(self, size: int, scale: float) -> Whole:
        """round(N(0, scale²)), ``size`` times."""
        return steps(self.bits, normal(), max(size, CROWD), scale)[:size]

    def laplace(self, size: int, scale: float) -> Whole:
        """round(Laplace numbers of this scale)."""
        return steps(self.bits, laplace(), max(size, CROWD), scale)[:size]

    def discrete_gaussian(self, size: int, sigma: Fraction) -> Whole:
        """Integers with mass ∝ exp(−x²/(2σ²))."""
        return discrete_gaussian(self.bits, sigma * sigma, size)

    def coins(self, size: int, rate: float) -> NDArray[np.bool_]:
        """Independent coins that show True with probability ``rate``."""
        return coins(self.bits, size, rate)

    def numbers(self, size: int, below: int) -> Whole:
        """Independent uniform whole numbers from 0 to ``below`` − 1."""
        return numbers(self.bits, size, below)

    def subset(self, size: int, chosen: int) -> Whole:
        """A uniform subset of ``range(size)`` with ``chosen`` members, ascending."""
        return subset(self.bits, size, chosen)

    def choose(self, scores: NDArray[np.float64], factor: Fraction) -> int:
        """i with probability ∝ exp(factor·scores[i])."""
        return choose(self.bits, scores, factor)

    def choose_set(self, scores: NDArray[np.float64], factor: Fraction, k: int) -> Whole:
        """k of them, ascending, with probability ∝ exp(factor·(the least score among them))."""
        return choose_set(self.bits, scores, factor, k)

    def permute_and_flip(self, scores: NDArray[np.float64], factor: Fraction) -> int:
        """A uniform one of those whose coin shows heads, with probability exp(factor·(score − best))."""
        return permute_and_flip(self.bits, scores, factor)

    def laplace_max(self, scores: NDArray[np.float64], factor: Fraction) -> int:
        """The place of the largest factor·score + Laplace noise of scale 1."""
        return laplace_max(self.bits, scores, factor)
