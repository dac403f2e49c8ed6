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

from privcalc.noise.bits import Bits, Uniform
from privcalc.noise.coins import subset
from privcalc.noise.exponential import ERROR, LARGEST, bounds, decay

__all__ = ["choose", "choose_set"]

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
    found: NDArray[np.int64] = np.sort(order[np.append(subset(bits, worst, k - 1), worst)])
    return found


def _weighted(bits: Bits, scores: Floats, factor: Fraction, k: int) -> int:
    """i with probability ∝ C(k − 1 + i, k − 1)·exp(factor·scores[i])."""
    uniform = Uniform(bits)
    uniform.refine()
    found = _quickly(uniform, scores, factor, k)
    return _exactly(uniform, scores, factor, k) if found is None else found


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
    found = int(np.searchsorted(ends, at, side="right"))
    if found >= weights.size or ends[found] - at <= doubt or (found and at - ends[found - 1] <= doubt):
        return None
    return found


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
        found = [bounds(q, digits) for q in logits]
        low, high = (
            list(itertools.accumulate(n * pair[end] for n, pair in zip(sets, found, strict=True))) for end in (0, 1)
        )
        first, last = uniform.low * low[-1], uniform.high * high[-1]
        for i in range(len(logits)):
            if last <= low[i] and (not i or first >= high[i - 1]):
                return i
        uniform.refine()
