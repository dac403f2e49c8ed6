"""Coins, whole numbers and subsets, exactly: a comparison goes on until bits differ."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privcalc.noise.bits import Bits, Uniform

__all__ = ["coins", "numbers", "subset"]

FIRST = 16
"""Bits of a coin that are looked at first: they decide nearly all, and the kernel takes its time for each bit."""


def coins(bits: Bits, size: int, rate: float) -> NDArray[np.bool_]:
    """Independent coins that show True with probability ``rate``, the double as it is."""
    limit, rest = _first(rate)
    if limit >= 2**FIRST:
        return np.ones(size, dtype=np.bool_)
    parts = bits.words(-(-size * FIRST // 64)).view(np.uint16)[:size]
    found = parts < np.uint16(limit)
    for i in np.flatnonzero(parts == np.uint16(limit)):
        found[i] = _below(bits, rest)
    return found


@functools.lru_cache(maxsize=64)
def _first(rate: float) -> tuple[int, Fraction]:
    """A coin of so many bits shows True below the first number, and at it with the probability that is left."""
    scaled = Fraction(rate) * 2**FIRST
    limit = math.floor(scaled)
    return limit, scaled - limit


def _below(bits: Bits, probability: Fraction) -> bool:
    """True with this probability, below 1."""
    uniform = Uniform(bits)
    while True:
        if uniform.high <= probability:
            return True
        if uniform.low >= probability:
            return False
        uniform.refine()


def subset(bits: Bits, size: int, chosen: int) -> NDArray[np.int64]:
    """A uniform subset of ``range(size)`` with ``chosen`` members, ascending: those with the least uniform numbers."""
    keys = [bits.words(size)]
    while True:
        order = np.lexsort(keys[::-1])
        if not np.any(np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])):
            return np.sort(order[:chosen])
        keys.append(bits.words(size))


def numbers(bits: Bits, size: int, below: int) -> NDArray[np.int64]:
    """Independent uniform whole numbers below ``below`` ≤ 2⁶³: words past its last whole multiple are drawn anew."""
    found, last = bits.words(size).copy(), np.uint64(2**64 // below * below - 1)
    while (over := np.flatnonzero(found > last)).size:
        found[over] = bits.words(over.size)
    return (found % np.uint64(below)).astype(np.int64)
