"""Where random bits come from, and a uniform number of which as many bits are drawn as a question needs."""

from __future__ import annotations

import functools
import math
import os
import random
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bits", "SecureBits", "SeededBits", "Uniform", "coins", "numbers", "subset"]

Words = NDArray[np.uint64]


class Bits(ABC):
    """A source of independent fair bits."""

    integers: random.Random
    """Uniform whole numbers below any bound, exactly."""

    @abstractmethod
    def words(self, size: int) -> Words:
        """``size`` independent uniform 64-bit numbers."""


class SecureBits(Bits):
    """The operating system's cryptographic generator, read in blocks.

    No key or state is here to keep, to fork or to repeat.
    """

    def __init__(self) -> None:
        self.integers = random.SystemRandom()

    def words(self, size: int) -> Words:
        """Return ``size`` independent uniform 64-bit numbers from the operating system's generator."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class SeededBits(Bits):
    """Reproducible, hence without any privacy: for tests and research.

    Args:
        seed: a whole number.
        stream: distinct numbers give independent draws.
    """

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._generator: Any = np.random.default_rng([seed, stream])
        self.integers = random.Random(f"{seed}/{stream}")

    def words(self, size: int) -> Words:
        """Return ``size`` 64-bit numbers from NumPy's generator."""
        return np.asarray(self._generator.integers(0, 2**64, size, dtype=np.uint64))


class Uniform:
    """A uniform number in [0, 1) of which the first ``size`` bits are known: it is in [low, high).

    Args:
        bits: where more come from.
        value: the bits that are known, as a whole number.
        size: how many they are.
    """

    def __init__(self, bits: Bits, value: int = 0, size: int = 0) -> None:
        self._bits, self._value, self._size = bits, value, size

    @property
    def low(self) -> Fraction:
        """The end that belongs to it."""
        return Fraction(self._value, 2**self._size)

    @property
    def high(self) -> Fraction:
        """The end that does not."""
        return Fraction(self._value + 1, 2**self._size)

    def refine(self) -> None:
        """Draw 64 bits more."""
        self._value, self._size = (self._value << 64) + int(self._bits.words(1)[0]), self._size + 64


FIRST = 8
"""Bits of a coin that are looked at first: they decide nearly all, and the kernel takes its time for each bit."""


def coins(bits: Bits, size: int, rate: float | Fraction) -> NDArray[np.bool_]:
    """Independent coins that show True with probability ``rate``, the number as it is."""
    limit, rest = _first(rate)
    if limit >= 2**FIRST:
        return np.ones(size, dtype=np.bool_)
    parts = bits.words(-(-size * FIRST // 64)).view(np.uint8)[:size]
    heads = parts < limit
    if rest and (open_ones := np.flatnonzero(parts == limit)).size:
        heads[open_ones] = coins(bits, open_ones.size, rest)
    return heads


@functools.lru_cache(maxsize=64)
def _first(rate: float | Fraction) -> tuple[int, Fraction]:
    """A coin of so many bits shows True below the first number, and at it with the probability that is left."""
    scaled = Fraction(rate) * 2**FIRST
    limit = math.floor(scaled)
    return limit, scaled - limit


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
    drawn, last = bits.words(size).copy(), np.uint64(2**64 // below * below - 1)
    while (over := np.flatnonzero(drawn > last)).size:
        drawn[over] = bits.words(over.size)
    return (drawn % np.uint64(below)).astype(np.int64)
