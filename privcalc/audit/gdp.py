"""ε(δ) of μ-GDP for an array of μ at once: Newton from a table, then one evaluation that proves the answer.

With a = μ/2 − ε/μ, b = −μ/2 − ε/μ and m the Mills ratio: δ = φ(a)(m(a) − m(b)), ∂δ/∂ε = −φ(a)m(b)
(``proofs/gaussian.md``). Where μ is small the difference cancels, but an error of a few units of m(b) moves ε by a few
units only.
"""

from __future__ import annotations

import math

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.special import mills, ndtri

ROWS = 16384


@np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")
def epsilons(mu: Floats, delta: float) -> Floats:
    """Upper bounds of ε, within 1e-9 for ε ≤ 300.

    Args:
        mu: numbers ≥ 0, shape (n,); ∞ gives ∞.
        delta: δ in [0, 1).

    Example:
        >>> print(epsilons(np.array([0.0, 1e-6, 1.0, 2.0]), 1e-5).round(9))
        [0.         0.         4.3771781  9.99725615]
    """
    if delta == 0:
        return np.where(mu > 0, math.inf, 0.0)
    found = np.empty(mu.size)
    # δ(0) = 2Φ(μ/2) − 1 ≤ δ: nothing is left to pay.
    free = max(2 * float(ndtri(0.5 + 0.5 * delta)) * (1 - 1e-9) - 1e-15, 0.0)
    paying = mu[(mu > free) & np.isfinite(mu)]
    if not paying.size:
        return np.where(mu <= free, 0.0, math.inf)
    low, high = math.log(max(free, 1e-300)), math.log(float(paying.max()) * (1 + 1e-9))
    rate = 6000 / max(high - low, 1e-6)
    guess = _table(np.exp(low + np.arange(6002) / rate), delta)
    for start in range(0, mu.size, ROWS):
        part = mu[start : start + ROWS]
        at = np.clip(np.nan_to_num((np.log(part) - low) * rate, neginf=0.0), 0.0, 6000.0)
        cell = at.astype(np.int64)
        below = guess[cell]
        found[start : start + ROWS] = _solve(part, below + (at - cell) * (guess[cell + 1] - below), free, delta)
    return found


def _table(mu: Floats, delta: float) -> Floats:
    """ε by bisection: a start, which nothing relies on."""
    low, high = np.zeros_like(mu), mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1
    for _ in range(45):
        middle = 0.5 * (low + high)
        above = ~(_profile(mu, middle).delta <= delta)  # also where the Mills ratio overflows
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def _profile(mu: Floats, epsilon: Floats) -> ProfileValues:
    """δ, −∂δ/∂ε, and a bound of the error of δ."""
    ratio = epsilon / mu
    a, b = 0.5 * mu - ratio, -0.5 * mu - ratio
    density = np.exp(-0.5 * a * a) * 0.3989422804014327
    at_a, at_b = mills(a), mills(b)
    error = density * (at_a + at_b) * (16 * UNIT) * (4 + a * a + b * b)
    return ProfileValues(density * (at_a - at_b), density * at_b, error)


def _solve(mu: Floats, epsilon: Floats, free: float, delta: float) -> Floats:
    for _ in range(2):
        value, slope, _ = _profile(mu, epsilon)
        epsilon = np.maximum(np.nan_to_num(epsilon + np.log(value / delta) * value / slope, nan=0.0), 0.0)
    # Where the proof of the first try fails, go on with larger ones.
    result = np.where(mu <= free, 0.0, np.nan)
    room = 1e-11 + 1e-12 * epsilon
    for _ in range(60):
        value, slope, error = _profile(mu, epsilon + room)
        done = np.isnan(result) & (value + error <= delta)
        result[done] = (epsilon + room)[done]
        if not np.isnan(result).any():
            break
        room = np.where(
            np.isfinite(slope), room + 2e-11 + 1.001 * np.maximum(value + error - delta, 0.0) / slope, 4 * room
        )
    return np.where(np.isnan(result), math.inf, result)
