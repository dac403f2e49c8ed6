"""Printed values and quadratures that several test files share; and which cases are slow."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

import privcalc as pc

SLOW = os.environ.get("PRIVCALC_SLOW") == "1"
"""Whether there are as many examples as there can be."""


def quick(cases: Iterable[Any], *kept: int) -> list[Any]:
    """A parametrised test's cases, slow at other positions: the law is the same, and so is the code."""
    one = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[] if i in kept else [pytest.mark.slow]) for i, case in enumerate(one)]


# Poisson-sampled Gaussians: rate, noise multiplier, steps, δ, ε to the printed digits (contour integral in 40-digit
# arithmetic, by an earlier, separate program).
PRINTED = [
    (0.01, 1.0, 1_000, 1e-5, "1.8282366665"),
    (0.01, 1.0, 10_000, 1e-5, "6.1877123900"),
    (0.001, 0.6, 100_000, 1e-6, "6.960843884"),
    (0.01, 10.0, 1_000, 1e-5, "0.09775338555"),
    (0.02, 2.0, 2_000, 1e-12, "3.418328336"),
    (0.01, 1.0, 2_000, 1e-20, "7.423223989"),
    (0.0001, 0.8, 1_000_000, 1e-8, "1.00176944007"),
    (0.01, 100.0, 10_000, 1e-6, "0.03368071481"),
]


# --- Poisson-sampled Gaussians under replace-one: two opposite records -------------------------------


def opposite_loss(noise: float, rate: float, t: float) -> float:
    mu = 1 / noise
    up, down = (rate * math.exp(sign * mu * t - mu * mu / 2) for sign in (1, -1))
    return math.log1p(up - rate) - math.log1p(down - rate)


def opposite_once(noise: float, rate: float, epsilon: float) -> float:
    """δ of one step, any real ε; the threshold by root finding, not by the pair's formula."""
    far = 60 * noise + 60
    if abs(epsilon) < opposite_loss(noise, rate, far):
        t = brentq(lambda t: opposite_loss(noise, rate, t) - epsilon, -far, far, xtol=1e-14)
    else:
        t = math.copysign(1e9, epsilon)
    p, q = ((1 - rate) * norm.sf(t) + rate * norm.sf(t - shift) for shift in (1 / noise, -1 / noise))
    return float(p - math.exp(epsilon) * q)


def opposite_twice(noise: float, rate: float, epsilon: float) -> float:
    """δ of two steps: δ of one, averaged over the loss of the other."""

    def outer(t: float) -> float:
        mass = (1 - rate) * norm.pdf(t) + rate * norm.pdf(t - 1 / noise)
        return float(mass * opposite_once(noise, rate, epsilon - opposite_loss(noise, rate, t)))

    return float(quad(outer, -12, 12 + 1 / noise, limit=400, epsabs=1e-13, epsrel=1e-11)[0])


def neighbours(size: int, relation: pc.Relation) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All neighbouring data sets of records −1, 0 and 1, the larger of so many records, in both orders."""
    values = (-1, 0, 1)
    for rest in itertools.combinations_with_replacement(values, size - 1):
        for x in values:
            one = tuple(sorted((*rest, x)))
            if relation is pc.ADD_OR_REMOVE_ONE:
                others = [rest]
            else:
                others = [tuple(sorted((*rest, y))) for y in ((0,) if relation is pc.ZERO_OUT else values)]
            for other in others:
                yield from ((one, other), (other, one))
