"""Bounds of Pr(Bin(n, p) ≥ k), to nine digits or better, however large n and small the probability.

The first term in 60 digits, by Stirling's series, whose error is less than the first term left out; the others by
ratios, which fall, so that what is left out is below a geometric series. Below the mean the complement is bounded.
Proof: ``proofs/truncated.md``, §4.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import numpy as np

from privcalc.numerics.floats import UNIT
from privcalc.numerics.solve import Bounds

_DIGITS = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")

_STIRLING = ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360))
"""B_2j/(2j(2j − 1)); the next is 1/156, over n^13."""

_SMALL = 1000
"""Up to here factorials are whole numbers; beyond, what Stirling's series leaves out is less than 1e-41."""

_MOST_TERMS = 1 << 20
"""Empirical: beyond these terms a geometric series bounds the rest."""


def log_binomial(n: int, k: int, p: Decimal, rest: Decimal) -> Decimal:
    """log Pr(Bin(n, p) = k) within 1e-25, ``rest`` = 1 − p; both above 0."""
    with localcontext(_DIGITS):
        return _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k) + k * p.ln() + (n - k) * rest.ln()


def at_least(n: int, p: float, k: int) -> Bounds:
    """Lower and upper bounds of Pr(Bin(n, p) ≥ k), 0 < p ≤ 1, n ≥ 0, k ≥ 1."""
    if k > n:
        return 0.0, 0.0
    if p == 1:
        return 1.0, 1.0
    with localcontext(_DIGITS):
        share, rest = Decimal(p), 1 - Decimal(p)
        if k > share * n:
            return _far(n, k, share, rest)
        low, high = _far(n, n - k + 1, rest, share)
    return max(1 - high - 4 * UNIT, 0.0), min(1 - low + 4 * UNIT, 1.0)


def _log_factorial(n: int) -> Decimal:
    if n <= _SMALL:
        return Decimal(math.factorial(n)).ln()
    x = Decimal(n)
    series = sum((Decimal(a) / b / x ** (2 * i + 1) for i, (a, b) in enumerate(_STIRLING)), Decimal(0))
    return x * x.ln() - x + (2 * _PI * x).ln() / 2 + series


def _far(n: int, k: int, p: Decimal, rest: Decimal) -> Bounds:
    """For k above the mean: ratios (n − j)p/((j + 1)(1 − p)) are below 1 from j = k on, and fall."""
    first, odds = log_binomial(n, k, p, rest).exp(), float(p / rest)
    total, term, j, size = 1.0, 1.0, k, 64
    ratio = float((n - k) / Decimal(k + 1)) * odds
    while True:
        at = np.arange(j, min(j + size, n), dtype=np.float64)
        with np.errstate(under="ignore"):
            terms = term * np.cumprod((n - at) / (at + 1) * odds)
        total += float(terms.sum())
        j += at.size
        term = float(terms[-1]) if at.size else 0.0
        ratio = (n - j) / (j + 1) * odds * (1 + 8 * UNIT)
        left = term * ratio / (1 - ratio) if ratio < 1 else math.inf
        if j >= n or left <= UNIT * total or j - k >= _MOST_TERMS:
            break
        size *= 2
    # A ratio and its product are off by eight units, so that the m-th term is by 8m.
    error = (8 * (j - k) + 16) * UNIT
    low, high = (
        float(first * Decimal(x)) for x in (total * (1 - error), (total + (left if j < n else 0.0)) * (1 + error))
    )
    return low * (1 - 2 * UNIT), min(max(high * (1 + 2 * UNIT), math.ulp(0.0)), 1.0)
