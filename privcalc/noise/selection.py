"""One of many, with probabilities ∝ m_i·e^{-q_i} for whole m_i and rational q_i: the exponential mechanism, exactly.

A uniform number is compared with the partial sums, in doubles where their proved error leaves no doubt, in integers
with more random bits and more digits where it does (``proofs/executed_noise.md``, §4).
"""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privcalc.noise.bits import Bits, Uniform, subset
from privcalc.noise.exponential import ERROR, LARGEST, bounds, decay

__all__ = ["choose", "choose_set", "laplace_max", "permute_and_flip"]

Floats = NDArray[np.float64]

ROUNDING = 2.0**-52
"""Twice the unit roundoff, for each sum or product."""


def choose(bits: Bits, scores: Floats, factor: Fraction) -> int:
    """i with probability ∝ exp(factor·scores[i]), of the doubles as they are.

    Args:
        bits: the source.
        scores: finite.
        factor: > 0.
    """
    return _weighted(bits, scores, factor, 1)


def choose_set(bits: Bits, scores: Floats, factor: Fraction, k: int) -> NDArray[np.int64]:
    """k of them, ascending, with probability ∝ exp(factor·(the least score among them)) (``proofs/exponential.md``).

    The worst one is drawn by its rank, C(rank − 1, k − 1) sets having it, the others uniformly from those above. Their
    order by rank is no part of the mechanism: it is not released.
    """
    order = np.argsort(-scores, kind="stable")
    worst = k - 1 + _weighted(bits, scores[order[k - 1 :]], factor, k)
    chosen: NDArray[np.int64] = np.sort(order[np.append(subset(bits, worst, k - 1), worst)])
    return chosen


def _weighted(bits: Bits, scores: Floats, factor: Fraction, k: int) -> int:
    """i with probability ∝ C(k − 1 + i, k − 1)·exp(factor·scores[i])."""
    uniform = Uniform(bits)
    uniform.refine()
    quick = _quickly(uniform, scores, factor, k)
    return _exactly(uniform, scores, factor, k) if quick is None else quick


def _quickly(uniform: Uniform, scores: Floats, factor: Fraction, k: int) -> int | None:
    """In doubles; None in doubt."""
    with np.errstate(over="ignore"):
        gamma = (scores.max() - scores) * float(factor)
    large = ~(gamma <= LARGEST)  # also where it overflows
    gamma[large] = LARGEST
    value, shift = decay(gamma)
    if k > 1:
        mantissas, exponents = _sets_above(scores.size, k)
        value, shift = value * mantissas, shift - exponents
    weights = np.ldexp(value, np.maximum(shift.min() - shift, -1000))
    off = weights * np.where(large, 1.0, 4 * ROUNDING * gamma + 2 * ERROR)
    ends = np.cumsum(weights)
    doubt = 4 * (float(off.sum()) + (3 * weights.size + 8) * ROUNDING * ends[-1])
    at = float(uniform.low) * ends[-1]
    chosen = int(np.searchsorted(ends, at, side="right"))
    if chosen >= weights.size or ends[chosen] - at <= doubt or (chosen and at - ends[chosen - 1] <= doubt):
        return None
    return chosen


@functools.lru_cache(maxsize=1)
def _sets_above(size: int, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """C(k − 1 + i, k − 1) for i < ``size`` as m·2^e, the i-th up to 2i roundings."""
    mantissas, exponents, m, e = [0.5], [1], 0.5, 1
    for i in range(1, size):
        m, more = math.frexp(m * (k - 1 + i) / i)
        e += more
        mantissas.append(m)
        exponents.append(e)
    return np.array(mantissas), np.array(exponents, dtype=np.int64)


def _exactly(uniform: Uniform, scores: Floats, factor: Fraction, k: int) -> int:
    """With as many digits, and bits of the uniform number, as are needed."""
    best, digits = Fraction(scores.max()), 64
    logits = [factor * (best - Fraction(score)) for score in scores.tolist()]
    sets = list(itertools.accumulate(range(1, len(logits)), lambda before, i: before * (k - 1 + i) // i, initial=1))
    while True:
        digits *= 2
        weights = [bounds(q, digits) for q in logits]
        low, high = (
            list(itertools.accumulate(n * pair[end] for n, pair in zip(sets, weights, strict=True))) for end in (0, 1)
        )
        first, last = uniform.low * low[-1], uniform.high * high[-1]
        for i in range(len(logits)):
            if last <= low[i] and (not i or first >= high[i - 1]):
                return i
        uniform.refine()


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
    winners = np.flatnonzero(heads)
    return int(winners[bits.integers.randrange(winners.size)])


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
    winner, best = 0, _Noisy(bits, factor * Fraction(scores[0]))
    for i in range(1, scores.size):
        other = _Noisy(bits, factor * Fraction(scores[i]))
        if other.above(best):
            winner, best = i, other
    return winner


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
