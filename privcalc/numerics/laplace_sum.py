"""Laplace noise on several numbers that each move by as much: the law of the summed loss.

It is found by sums of positive terms.

One loss lies in [−a, a]; the sum of m lies 2at below its largest value ma, 0 ≤ t ≤ m. With a weight e^{at} on P each
number has atoms ½ at t = 0 and t = 1 and the density a/2 between: so the sum has atoms 2^{−m}C(m, i) at t = i, and
between them a density that is a polynomial of degree m − 1 with Bernstein coefficients ≥ 0. So are all that follow, and
nothing cancels. Proof: ``proofs/thresholded_counts.md``, §3.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues

MOST_SHIFT, MOST_COUNT = 100.0, 128
"""Up to here coefficients are tried; they may still overflow."""

_MOST_DEGREE = 1000
"""Binomial coefficients overflow soon after."""

Indices = NDArray[np.int64]

_SERIES = 1e-17
"""What the power series of e^y is cut at, relative to it."""

_TOGETHER = 1 << 16
"""Points at which polynomials are evaluated at once."""


class _Law(NamedTuple):
    """The law of the summed loss at its pieces i = 0, …, m − 1; every array has shape (m,).

    Attributes:
        above: e^{−ai} times that of e^{2ax}·(what the density of piece i adds to e^ε·Q(L > ε)), 2ax beyond its
            beginning.
        gained: what it adds to δ.
        delta: δ where the piece begins, the loss being 2ai below its largest value.
        tail: e^ε·Q(L > ε) just after the atom there.
    """

    above: Floats
    gained: Floats
    delta: Floats
    tail: Floats


def laplace_sum_profile(a: float, count: int, epsilon: Floats) -> ProfileValues | None:
    """δ(ε), e^ε·Q(L > ε) and a bound of the error of δ for ``count`` independent Laplace shifts of ``a``, ε ≥ 0.

    Args:
        a: a shift over the scale, rounded once.
        count: how many.
        epsilon: array of losses ≥ 0.

    Returns:
        None where shifts are too large, or too many, for doubles.

    Example:
        >>> delta, _, error = laplace_sum_profile(1.0, 2, np.array([0.5, 1.9]))
        >>> print(delta.round(12), bool(error.max() < 1e-12))
        [0.35049599 0.02498984] True
    """
    law, top = _law(a, count), count * a
    if law is None:
        return None
    below, blur = top - epsilon, 8 * UNIT * (top + epsilon)
    inside = below >= -blur
    # Within rounding of an atom it counts as passed: there the tail is larger.
    piece = np.clip(np.floor((below + blur) / (2 * a)), 0, count - 1).astype(np.int64)
    x = np.clip(below / (2 * a) - piece, 0.0, 1.0)
    delta, tail = np.empty_like(x), np.empty_like(x)
    for start in range(0, x.size, _TOGETHER):
        at = slice(start, start + _TOGETHER)
        delta[at], tail[at] = _from(law, a, piece[at], x[at])
    relative = UNIT * (count * (count + 16) + 24 * (law.gained.shape[-1] + 8) + 8 * a) + 4 * _SERIES
    error = relative * delta + (blur + 4 * UNIT * top) * (delta + tail) * (1 + 1e-9) + TINY
    return ProfileValues(np.where(inside, delta, 0.0), np.where(below > 0, tail, 0.0), np.where(inside, error, TINY))


def _from(law: _Law, a: float, piece: Indices, x: Floats) -> tuple[Floats, Floats]:
    """δ and the tail 2ax beyond where a piece begins."""
    delta = law.delta[piece] - np.expm1(-2 * a * x) * law.tail[piece] + _values(law.gained, piece, x)
    tail = np.exp(-2 * a * x) * (law.tail[piece] + _values(law.above, piece, x))
    return delta, tail


def _values(terms: Floats, piece: Indices, x: Floats) -> Floats:
    """Σ_l terms_l·x^l (1 − x)^{d − l}, of a row of terms: by powers of the smaller one over the larger one."""
    degree = terms.shape[-1] - 1
    turned, small = x > 0.5, np.minimum(x, 1 - x)
    large = np.maximum(x, 1 - x)
    ratio = small / large
    if x.size == 1:
        row = terms[piece[0], ::-1] if turned[0] else terms[piece[0]]
        return np.asarray(row @ ratio ** np.arange(degree + 1.0) * large**degree, dtype=np.float64)
    both = np.concatenate([terms, terms[:, ::-1]]).T
    rows, total = piece + terms.shape[0] * turned, np.zeros_like(x)
    for k in range(degree, -1, -1):
        total = total * ratio + both[k][rows]
    return np.asarray(total * large**degree, dtype=np.float64)


@functools.lru_cache(maxsize=128)
def _law(a: float, count: int) -> _Law | None:
    """Return the law above each piece and what its density adds; all polynomials as Σ terms_l·x^l (1 − x)^{d − l}."""
    if a > MOST_SHIFT or count > MOST_COUNT:
        return None
    rise, fall = _exponential(a), _exponential(2 * a)[::-1] * math.exp(-2 * a)  # e^{av}, e^{−2ax}
    if count + rise.size + fall.size > _MOST_DEGREE:
        return None
    density = _coefficients(a, count) * _binomials(count - 1) * np.exp(-a * np.arange(count))[:, None]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        above = np.array([_integral(np.convolve(row, rise)) for row in density])
        gained = np.array([2 * a * _integral(np.convolve(row, fall)) for row in above])
    law = _Law(above, gained, np.zeros(count), np.zeros(count))
    delta, tail = 0.0, 0.0
    for i in range(count):
        law.delta[i], law.tail[i] = delta, tail + math.ldexp(math.comb(count, i), -count) * math.exp(-a * i)
        # At x = 1 only the last term counts.
        delta += -math.expm1(-2 * a) * float(law.tail[i]) + float(gained[i, -1])
        tail = math.exp(-2 * a) * (float(law.tail[i]) + float(above[i, -1]))
    return law if np.isfinite(above).all() and np.isfinite(gained).all() else None


def _binomials(degree: int) -> Floats:
    return np.array([float(math.comb(degree, k)) for k in range(degree + 1)])


def _exponential(y: float) -> Floats:
    """Return the coefficients of e^{yx}, cut: Σ_k y^k/k!·x^k (x + (1 − x))^{K − k}, one degree after the other."""
    last = next(
        k for k in range(1, 4096) if k > 2 * y and math.lgamma(k + 2) - (k + 1) * math.log(y) > -math.log(0.5 * _SERIES)
    )
    coefficients, term = np.ones(1), 1.0
    for k in range(1, last + 1):
        term *= y / k
        coefficients = np.append(coefficients, 0.0) + np.append(0.0, coefficients)
        coefficients[-1] += term
    return coefficients


def _integral(terms: Floats) -> Floats:
    """From 0 to x: with terms C(d, l)β_l, the sums of β over d + 1."""
    degree = terms.size
    sums = np.append(0.0, np.cumsum(terms / _binomials(degree - 1)))
    return np.asarray(sums * (_binomials(degree) / degree), dtype=np.float64)


def _coefficients(a: float, count: int) -> Floats:
    """Bernstein coefficients of the density, a row for each piece.

    One number more: half of the density stays, half goes to the next piece, and its integral over the last unit comes,
    a/2 times, with the atoms' part.
    """
    density = np.full((1, 1), 0.5 * a)
    for m in range(1, count):
        zero = np.zeros((1, m))
        here, before = np.vstack([density, zero]), np.vstack([zero, density])  # degree m − 1
        up = np.arange(m + 1) / m
        half = 0.5 * (here + before)
        raised = np.hstack([half * (1 - up[:-1]), zero[0, :1].repeat(m + 1)[:, None]])
        raised[:, 1:] += half * up[1:]
        since = np.hstack([np.zeros((m + 1, 1)), np.cumsum(here, axis=1)])
        until = np.hstack([np.cumsum(before[:, ::-1], axis=1)[:, ::-1], np.zeros((m + 1, 1))])
        atoms = np.array([math.ldexp(math.comb(m, i), -m) for i in range(m + 1)])
        density = raised + 0.5 * a * ((since + until) / m + atoms[:, None])
    return density
