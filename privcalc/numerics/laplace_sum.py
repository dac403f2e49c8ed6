"""Laplace noise on several numbers, each of which moves by as much: the law of the summed loss, by sums of positive terms.

One loss lies in [−a, a]; the sum of m lies 2at below its largest value ma, 0 ≤ t ≤ m. With a weight e^{at} on P each number has
atoms ½ at t = 0 and t = 1 and the density a/2 between: so the sum has atoms 2^{−m}C(m, i) at t = i, and between them a density
that is a polynomial of degree m − 1 with Bernstein coefficients ≥ 0. Nothing cancels.
Proof: ``proofs/thresholded_counts.md``, §3.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import TINY, UNIT, Floats

MOST_SHIFT, MOST_COUNT = 30.0, 128
"""Up to here the rule has fewer than 150 nodes."""

_SERIES = 1e-17
"""What the power series of e^{av} is cut at, relative to it."""

_RULE = 1e-14
"""What nodes and weights of the rule are off, and what that makes of a coefficient's rounding, for each degree."""

_TOGETHER = 1 << 18
"""Nodes at which the density is evaluated at once."""


class _Law(NamedTuple):
    """Of the sum, at its pieces i = 0, …, m − 1.

    Attributes:
        terms: C(m − 1, l) times the Bernstein coefficients of the density of piece i.
        delta: δ where the piece begins, the loss being 2ai below its largest value.
        tail: e^ε·Q(L > ε) just after the atom there.
        nodes: of a rule on [0, 1].
        weights: its weights.
    """

    terms: Floats
    delta: Floats
    tail: Floats
    nodes: Floats
    weights: Floats


def laplace_sum_profile(a: float, count: int, epsilon: Floats) -> ProfileValues:
    """δ(ε), e^ε·Q(L > ε) and a bound of the error of δ for ``count`` independent Laplace shifts of ``a``, ε ≥ 0.

    Args:
        a: a shift over the scale, at most ``MOST_SHIFT``, rounded once.
        count: how many, at most ``MOST_COUNT``.
        epsilon: array of losses ≥ 0.

    Example:
        >>> delta, _, error = laplace_sum_profile(1.0, 2, np.array([0.5, 1.9]))
        >>> print(delta.round(12), bool(error.max() < 1e-12))
        [0.35049599 0.02498984] True
    """
    law, top = _law(a, count), count * a
    below, blur = top - epsilon, 8 * UNIT * (top + epsilon)
    inside = below >= -blur
    # Within rounding of an atom it counts as passed: there the tail is larger.
    piece = np.clip(np.floor((below + blur) / (2 * a)), 0, count - 1).astype(np.int64)
    x = np.maximum(below / (2 * a) - piece, 0.0)
    delta, tail = np.empty_like(x), np.empty_like(x)
    size = max(1, _TOGETHER // law.nodes.size)
    for start in range(0, x.size, size):
        at = slice(start, start + size)
        delta[at], tail[at] = _from(law, a, piece[at], x[at])
    relative = _RULE * (8 + count) + UNIT * (2 * count * (count + 8) + 8 * a)
    error = relative * delta + (blur + 4 * UNIT * top) * (delta + tail) * (1 + 1e-9) + TINY
    return ProfileValues(np.where(inside, delta, 0.0), np.where(below > 0, tail, 0.0), np.where(inside, error, TINY))


def _from(law: _Law, a: float, piece: NDArray[np.int64], x: Floats) -> tuple[Floats, Floats]:
    """δ and the tail 2ax beyond where a piece begins."""
    at = np.multiply.outer(x, law.nodes)
    kept, gone = np.exp(-a * at), np.expm1(-a * at)[:, ::-1]  # nodes are symmetric: x - v is that of another one
    mass = _density(law.terms[piece], at) * kept * np.multiply.outer(x * np.exp(-a * piece), law.weights)
    delta = law.delta[piece] - np.expm1(-2 * a * x) * law.tail[piece] - (mass * gone * (2 + gone)).sum(axis=-1)
    tail = np.exp(-2 * a * x) * law.tail[piece] + (mass * kept[:, ::-1] ** 2).sum(axis=-1)
    return delta, tail


def _density(terms: Floats, x: Floats) -> Floats:
    """Σ_l terms_l·x^l (1 − x)^{d − l}, a row of terms for each row of x: by powers of the smaller one over the larger one."""
    degree = terms.shape[-1] - 1
    turned, large = x > 0.5, np.maximum(x, 1 - x)
    ratio, found = (1 - large) / large, np.zeros_like(x)
    for k in range(degree, -1, -1):
        found = found * ratio + np.where(turned, terms[:, [degree - k]], terms[:, [k]])
    return np.asarray(found * large**degree, dtype=np.float64)


@functools.lru_cache(maxsize=128)
def _law(a: float, count: int) -> _Law:
    """The density, and what lies above the beginning of each piece."""
    cut = next(k for k in range(1, 1000) if math.lgamma(k + 1) - k * math.log(a) > -math.log(_SERIES) and k > a)
    nodes, weights = np.polynomial.legendre.leggauss((count + cut) // 2 + 1)
    terms = _coefficients(a, count) * [float(math.comb(count - 1, k)) for k in range(count)]
    law = _Law(terms, np.zeros(count), np.zeros(count), 0.5 + 0.25 * (nodes - nodes[::-1]), 0.5 * weights)
    delta, tail = 0.0, 0.0
    for i in range(count):
        law.delta[i], law.tail[i] = delta, tail + math.ldexp(math.comb(count, i), -count) * math.exp(-a * i)
        after = _from(law, a, np.array([i]), np.ones(1))
        delta, tail = float(after[0][0]), float(after[1][0])
    return law


def _coefficients(a: float, count: int) -> Floats:
    """Bernstein coefficients of the density, a row for each piece.

    One number more: half of the density stays, half goes to the next piece, and its integral over the last unit comes, a/2 times,
    with the atoms' part.
    """
    found = np.full((1, 1), 0.5 * a)
    for m in range(1, count):
        zero = np.zeros((1, m))
        here, before = np.vstack([found, zero]), np.vstack([zero, found])  # degree m − 1
        up = np.arange(m + 1) / m
        half = 0.5 * (here + before)
        raised = np.hstack([half * (1 - up[:-1]), zero[0, :1].repeat(m + 1)[:, None]])
        raised[:, 1:] += half * up[1:]
        since = np.hstack([np.zeros((m + 1, 1)), np.cumsum(here, axis=1)])
        until = np.hstack([np.cumsum(before[:, ::-1], axis=1)[:, ::-1], np.zeros((m + 1, 1))])
        atoms = np.array([math.ldexp(math.comb(m, i), -m) for i in range(m + 1)])
        found = raised + 0.5 * a * ((since + until) / m + atoms[:, None])
    return found
