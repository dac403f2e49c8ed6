"""δ of laws that are written down: finite ones, and means of shifted normal or Laplace noise, to some 13 digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar

NORMAL, LAPLACE = stats.norm(), stats.laplace()

Weights = dict[float, float]
"""The law of what noise is added to: values and probabilities."""

Side = Callable[[float], float]
"""δ(ε) of one order, for every real ε."""


def finite(p: Any, q: Any) -> Side:
    """Of two laws on finitely many outcomes."""
    x, y = (np.asarray(law, dtype=float).ravel() for law in (p, q))
    return lambda epsilon: math.fsum(np.maximum(x - math.exp(epsilon) * y, 0))


def mixture(p: Weights, q: Weights, noise: Any = NORMAL) -> Side:
    """Of the noisy sums: P − e^ε Q has its signs between points found first; masses are differences of tails."""
    ends = (min([*p, *q]), max([*p, *q]))
    x = np.unique(np.concatenate([np.linspace(ends[0] - 37, ends[1] + 37, 8001), list(p), list(q)]))

    def gap(epsilon: float, at: Any) -> Any:
        above, below = (sum(w * noise.pdf(at - v) for v, w in law.items()) for law in (p, q))
        return above - math.exp(epsilon) * below

    def mass(epsilon: float, low: float, high: float) -> float:
        def one(v: float) -> float:
            a, b = low - v, high - v
            return float(noise.sf(a) - noise.sf(b) if a > 0 else noise.cdf(b) - noise.cdf(a))

        return math.fsum([w * one(v) for v, w in p.items()] + [-math.exp(epsilon) * w * one(v) for v, w in q.items()])

    def told(epsilon: float) -> float:
        positive = gap(epsilon, x) > 0
        turns = np.flatnonzero(positive[1:] != positive[:-1])
        roots = [float(brentq(lambda at: gap(epsilon, at), x[i], x[i + 1], xtol=1e-14)) for i in turns]
        borders = [-math.inf, *roots, math.inf]
        signs = [bool(positive[0]), *(bool(positive[i + 1]) for i in turns)]
        return math.fsum(
            mass(epsilon, low, high) for low, high, sign in zip(borders, borders[1:], signs, strict=False) if sign
        )

    return told


def both(p: Weights, q: Weights, side: Side, noise: Any = NORMAL) -> Side:
    """The composition with another pair of the same order: E_P δ(ε − L), L the first one's loss."""

    def told(epsilon: float) -> float:
        def inner(x: float) -> float:
            above, below = (sum(w * noise.pdf(x - v) for v, w in law.items()) for law in (p, q))
            return float(above * side(epsilon - math.log(above / below)))

        knots = sorted({*p, *q, min([*p, *q]) - 36, max([*p, *q]) + 36})
        parts = (
            quad(inner, low, high, epsabs=1e-13, epsrel=1e-12, limit=400)[0] for low, high in itertools.pairwise(knots)
        )
        return math.fsum(parts)

    return told


def worst(family: Callable[[float], Side], low: float, high: float) -> Side:
    """The largest of a family, as good as it is found: any member will do."""

    def told(epsilon: float) -> float:
        def loss(at: float) -> float:
            return -family(at)(epsilon)

        start = min(np.linspace(low, high, 41).tolist(), key=loss)
        step = (high - low) / 40
        found = minimize_scalar(loss, bounds=(start - step, start + step), method="bounded", options={"xatol": 1e-9})
        return -min(float(found.fun), loss(start))

    return told


def gaussian(mu: float) -> Side:
    """N(μ, 1) against N(0, 1) (Balle, Wang 2018, Theorem 8)."""

    def told(epsilon: float) -> float:
        return float(stats.norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * stats.norm.sf(epsilon / mu + mu / 2))

    return told
