"""Permute-and-flip, and the largest score with Laplace noise, exactly: coins and comparisons go on until bits differ.

Proof: ``proofs/noisy_max.md``, §4.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privcalc.noise.bits import Bits, Uniform
from privcalc.noise.exponential import ERROR, LARGEST, bounds, decay

__all__ = ["laplace_max", "permute_and_flip"]

Floats = NDArray[np.float64]

ROUNDING = 2.0**-52
"""Twice the unit roundoff, for each sum or product."""


def permute_and_flip(bits: Bits, scores: Floats, factor: Fraction) -> int:
    """A uniform one of those whose coin shows heads, with probability exp(factor·(score − best)).

    In random order the first of them is just that: all coins may be tossed before the order is drawn.

    Args:
        bits: the source.
        scores: finite.
        factor: > 0.
    """
    best = scores.max()
    words = bits.words(scores.size)
    with np.errstate(over="ignore"):
        gamma = (best - scores) * float(factor)
    off = 4 * ROUNDING * gamma + 2 * ERROR
    large = ~(gamma <= LARGEST)  # also where it overflows
    gamma[large], off[large] = LARGEST, 1.0
    value, shift = decay(gamma)
    chance = np.ldexp(value, -shift)
    gap = words.astype(np.float64) * 2.0**-64 - chance
    heads = gap < 0
    for i in np.flatnonzero(np.abs(gap) <= 4 * (chance * off + ROUNDING)):
        heads[i] = _heads(Uniform(bits, int(words[i]), 64), factor * (Fraction(best) - Fraction(scores[i])))
    found = np.flatnonzero(heads)
    return int(found[bits.integers.randrange(found.size)])


def _heads(uniform: Uniform, q: Fraction) -> bool:
    """Whether a uniform number is below e^{−q}."""
    digits = 64
    while q:
        digits += 64
        low, high = bounds(q, digits)
        if uniform.high * 2**digits <= low:
            return True
        if uniform.low * 2**digits >= high:
            return False
        uniform.refine()
    return True


def laplace_max(bits: Bits, scores: Floats, factor: Fraction) -> int:
    """The place of the largest factor·score + Laplace noise of scale 1."""
    found, best = 0, _Noisy(bits, factor * Fraction(scores[0]))
    for i in range(1, scores.size):
        other = _Noisy(bits, factor * Fraction(scores[i]))
        if other.above(best):
            found, best = i, other
    return found


class _Noisy:
    """A number with Laplace noise: base ± (whole + place), of which as many bits are drawn as comparisons need."""

    def __init__(self, bits: Bits, base: Fraction) -> None:
        self._base, self._sign = base, 1 if int(bits.words(1)[0]) % 2 else -1
        self._whole, self._place = exponential(bits)

    def _ends(self) -> tuple[Fraction, Fraction]:
        ends = [self._base + self._sign * (self._whole + x) for x in (self._place.low, self._place.high)]
        return min(ends), max(ends)

    def above(self, other: _Noisy) -> bool:
        """Return whether this noisy score is larger than the other."""
        while True:
            (low, high), (least, most) = self._ends(), other._ends()
            if low >= most:
                return True
            if least >= high:
                return False
            self._place.refine()
            other._place.refine()


def exponential(bits: Bits) -> tuple[int, Uniform]:
    """An exponential number of mean 1, as its whole part and the rest (von Neumann 1951).

    A uniform number x begins a falling run of uniform numbers, whose length is even with probability e^{−x}.
    """
    whole = 0
    while True:
        first = last = Uniform(bits)
        following, even = Uniform(bits), True
        while _below(following, last):
            last, following, even = following, Uniform(bits), not even
        if even:
            return whole, first
        whole += 1


def _below(one: Uniform, other: Uniform) -> bool:
    while True:
        if one.high <= other.low:
            return True
        if other.high <= one.low:
            return False
        one.refine()
        other.refine()
