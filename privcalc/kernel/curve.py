"""Curves of whole numbers, and how they compose: line by line the functions of ``proofs/formal/Curves.v``.

A curve has masses w_k ≥ 0, in units of 2^-bits, of privacy losses k·ln x, and a leak. It stands for the pair of
measures with p = w_k, q = w_k·x^-k, and (leak, 0). Every rounding is upward, and so is every bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce

ROOT = 40
"""x^n ≤ e^ε is shown by x^n ≤ (1 + ε/2^ROOT)^(2^ROOT), which loses ε²/2^41 of ε."""


@dataclass(frozen=True)
class Settings:
    """How finely is computed; any settings are safe.

    Attributes:
        bits: the unit is 2^-bits.
        grid: x = 1 + 2^-grid at level 0.
        cut: mass, in units, that may be moved to an edge or into the leak at each trim.
        most: masses, above which the grid is made twice as coarse.
    """

    bits: int
    grid: int
    cut: int
    most: int


@dataclass(frozen=True)
class Curve:
    """Masses of the losses low·ln x, (low + 1)·ln x, …, with x of the level, and the mass of an infinite loss."""

    level: int
    low: int
    mass: tuple[int, ...]
    leak: int


def ceil_div(a: int, b: int) -> int:
    """⌈a/b⌉ for b > 0."""
    return -(-a // b)


@cache
def base(s: Settings, level: int) -> tuple[int, int]:
    """x at a level, (1 + 2^-grid)^(2^level), between two whole numbers of units."""
    one = 1 << s.bits
    if not level:
        x = one + (one >> s.grid)
        return x, x + 1
    low, high = base(s, level - 1)
    return low * low >> s.bits, ceil_div(high * high, one)


def convolution(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The product of two polynomials with whole coefficients ≥ 0, by one product of long numbers (Kronecker)."""
    size = (max(map(int.bit_length, a)) + max(map(int.bit_length, b)) + min(len(a), len(b)).bit_length()) // 8 + 1
    long = [int.from_bytes(b"".join(w.to_bytes(size, "little") for w in each), "little") for each in (a, b)]
    count = len(a) + len(b) - 1
    digits = (long[0] * long[1]).to_bytes(size * count, "little")
    return [int.from_bytes(digits[i : i + size], "little") for i in range(0, size * count, size)]


def multiply(s: Settings, a: Curve, b: Curve) -> Curve:
    """The curve of two uses, of one level."""
    one = 1 << s.bits
    mass = tuple(ceil_div(w, one) for w in convolution(a.mass, b.mass))
    leak = ceil_div(a.leak * (b.leak + sum(b.mass)) + sum(a.mass) * b.leak, one)
    return Curve(a.level, a.low + b.low, mass, leak)


def trim(s: Settings, c: Curve) -> Curve:
    """Small masses at the upper end become leak; at the lower end they move up, since dropping them would be unsafe."""
    mass, leaked = list(c.mass), 0
    while mass and leaked + mass[-1] <= s.cut:
        leaked += mass.pop()
    moved, first = 0, 0
    while first < len(mass) - 1 and moved + mass[first] <= s.cut:
        moved, first = moved + mass[first], first + 1
    kept = (moved + mass[first], *mass[first + 1 :]) if mass else (0,)
    return Curve(c.level, c.low + first, kept, c.leak + leaked)


def coarsen(s: Settings, c: Curve) -> Curve:
    """A curve on the grid of x²: a loss between two points is split such that p and q keep their sums."""
    one, (x_low, x_high) = 1 << s.bits, base(s, c.level)
    least, largest = one * one // (x_high + one), ceil_div(one * one, x_low + one)
    mass = c.mass if c.low % 2 == 0 else (0, *c.mass)
    found, carry = list[int](), 0
    for even, odd in zip(mass[::2], mass[1::2], strict=False):
        found.append(carry + even + ceil_div(odd * largest, one))
        carry = ceil_div(odd * (one - least), one)
    found.append(carry + mass[-1] if len(mass) % 2 else carry)
    return Curve(c.level + 1, c.low // 2, tuple(found), c.leak)


def product(s: Settings, a: Curve, b: Curve) -> Curve:
    """The curve of both, on the coarser grid of the two, trimmed."""
    for _ in range(b.level - a.level):
        a = coarsen(s, a)
    for _ in range(a.level - b.level):
        b = coarsen(s, b)
    found = trim(s, multiply(s, a, b))
    return coarsen(s, found) if len(found.mass) > s.most else found


def power(s: Settings, c: Curve, count: int) -> Curve:
    """The curve of ``count`` ≥ 1 uses, by squaring."""
    if count == 1:
        return c
    half = power(s, c, count // 2)
    whole = product(s, half, half)
    return product(s, whole, c) if count % 2 else whole


def chords(s: Settings, low: int, table: Sequence[int]) -> Curve:
    """From bounds d_k, in units, of the divergences at x^low, x^(low + 1), … to the curve of their chords.

    With D = 2^grid the mass at k is D(d_{k+1} − d_k) − (D + 1)(d_k − d_{k−1}), where d is 1 at x^-∞ = 0.
    """
    scale = 1 << s.grid
    bends = [scale * (table[1] - table[0]) + (1 << s.bits) - table[0]]
    for before, here, after in zip(table, table[1:], table[2:], strict=False):
        bends.append(scale * (after - here) - (scale + 1) * (here - before))
    bends.append((scale + 1) * (table[-2] - table[-1]))
    return Curve(0, low, tuple(max(0, w) for w in bends), table[-1])


def composed(s: Settings, entries: Sequence[tuple[int, Sequence[int], int]]) -> Curve:
    """The curve of a run: for each entry its first power of x, its table, and how often it is used."""
    return reduce(lambda a, b: product(s, a, b), (power(s, chords(s, low, table), n) for low, table, n in entries))


def delta(s: Settings, c: Curve, n: int) -> int:
    """A bound, in units, of δ at e^ε = x^n, n ≥ 0: Σ_{k>n} w_k(1 − x^(n−k)), and the leak."""
    one, x = 1 << s.bits, base(s, c.level)[1]
    y, total = one, 0
    for _ in range(c.low - n):
        y = (y << s.bits) // x
    for w in c.mass[max(0, n - c.low) :]:
        total += w * (one - y)
        y = (y << s.bits) // x
    return ceil_div(total, one) + c.leak


def reaches(s: Settings, c: Curve, n: int, epsilon: int) -> bool:
    """Whether x^n ≤ e^ε is shown, ε ≥ 0 in units."""
    one, x = 1 << s.bits, base(s, c.level)[1]
    least, most = one, one + (epsilon >> ROOT)
    for _ in range(n):
        least = ceil_div(least * x, one)
    for _ in range(ROOT):
        most = most * most >> s.bits
    return least <= most
