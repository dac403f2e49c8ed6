"""Upper bounds of K(c) = log E_P[e^{cL}] on the real axis, for pairs without a transform, from their profiles.

With the time value w(ε) = δ(ε) − (1 − e^ε)_+ (≥ 0, and zero at both ends)

    M(c) = 1 + c(c + 1) ∫ e^{cε} w(ε) dε,          c > 0.

The profile is convex in x = e^ε, hence below its chords: on a cell [ε₀, ε₀ + d] on one side of 0

    ∫ e^{c(ε − ε₀)} w dε ≤ w₀·(E(c) − F) + w₁·F,     E(p) = (e^{pd} − 1)/p,     F = (E(c + 1) − E(c))/(e^d − 1).

All terms are ≥ 0. Left of −t the integral is at most δ_rev(t)·e^{−(c+1)t}/(c + 1), as δ_rev falls; right of t it
follows from the zCDP bound: w ≤ e^{ρc'(c'+1) − c'ε} for every c' > c. Proof: ``proofs/conversions.md``, §4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import Profile, Transform

POINTS = 6000
"""Of a profile: between them chords bound it, more make the bound tighter."""

KNOTS = 10.0 ** np.arange(-5, 1)
"""Points c between which K is bounded by chords, too."""


def below_chords(log_moment: Callable[[Floats], Floats], c: Floats) -> Floats:
    """An upper bound of K(c) from one whose error does not vanish with c, so that K(c)/c would grow as c → 0.

    K is convex and K(0) = 0, so that K(c)/c does not fall: below 1 the chords between fixed points bound it as well.
    """
    if not c.size or not c.min() < 1:
        return log_moment(c)
    # Chords from far below the least c add nothing.
    knots = KNOTS[np.searchsorted(KNOTS, 0.1 * c.min(), side="right") :]
    direct, values = np.split(log_moment(np.concatenate([c, knots])), [c.size])
    least = knots * np.minimum.accumulate((values / knots)[::-1])[::-1]
    chords = np.interp(c, np.append(0.0, knots), np.append(0.0, least)) * (1 + 8 * UNIT)
    return np.asarray(np.where(c <= 1, np.fmin(direct, chords), direct), dtype=np.float64)


@np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
def log_moment(pair: Profile, c: Floats) -> Floats:
    """An upper bound of K(c); ∞ where this method has none."""
    transform = pair.transform
    if transform is None:
        return np.array([_from_profile(pair, float(x)) for x in c])
    return below_chords(functools.partial(_from_transform, transform), c)


def _from_transform(transform: Transform, c: Floats) -> Floats:
    bounds = np.full_like(c, np.inf)
    # One quadrature serves a decade of c; it may be out of reach for large ones.
    decade = np.floor(np.log10(c))
    for which in np.unique(decade):
        here = decade == which
        try:
            # e^{−800} is 0: nothing is left out.
            value, error = transform.prepare(float(c[here].max()), 1, -800.0, cut=False).log_real(c[here])
        except OverflowError:
            break
        bounds[here] = np.where(np.isfinite(value), value + error, np.inf)
    return bounds


def _from_profile(pair: Profile, c: float) -> float:
    right, log_beyond = _right_end(pair, c)
    # Beyond −80 the integrand is below e^{−80(c + 1)}; what is left there is counted (``log_left``).
    left = min(pair.reverse.max_loss, 80.0)
    if not 0 < right < np.inf or not left > 0:
        return np.inf
    nodes, w = _time_values(pair, right)
    total = np.logaddexp(_cells(nodes[:-1], np.diff(nodes), w[:-1], w[1:], c), log_beyond)
    end = pair.reverse.profile(np.array([left]))
    log_left = float(np.log(end.delta[0] + end.error[0])) - (c + 1) * left - np.log1p(c)
    nodes, w = _time_values(pair.reverse, left)
    w, start = (w - nodes)[::-1], -nodes[::-1]  # at −t the time value is e^{−t}·δ_rev(t)
    total = np.logaddexp(np.logaddexp(total, _cells(start[:-1], np.diff(start), w[:-1], w[1:], c)), log_left)
    value = np.logaddexp(0.0, np.log(c) + np.log1p(c) + total)
    value = np.log1p(np.exp(np.log(c) + np.log1p(c) + total)) if value < 1 else value
    return float(value * (1 + 4e-12)) if np.isfinite(value) else np.inf


def _right_end(pair: Profile, c: float) -> tuple[float, float]:
    """Where to stop on the right, and the log of what lies beyond."""
    if pair.max_loss < np.inf:
        return pair.max_loss * (1 + 16 * UNIT), -np.inf
    rho = pair.zcdp
    # At c' = 2c + 1/√ρ: beyond R the integral is at most e^{K(c') − (c' − c)R}/(c' − c).
    far = 2 * c + 1 / np.sqrt(rho)
    k, reach = rho * far * (far + 1), far - c
    # e^{−60} of what is beyond is left, and counted.
    right = (k + 60) / reach
    if not 0 < right < np.inf:
        return np.inf, -np.inf
    right = 2.0 ** (math.ceil(4 * math.log2(right)) / 4)  # few different ones, so that values serve several c
    return float(right), float(k - reach * right - np.log(reach))


def _nodes(end: float) -> Floats:
    """Graded near 0, even elsewhere, graded again towards a possible jump at the end."""
    near = end * np.geomspace(1e-12, 0.5, POINTS // 2)
    even = np.linspace(0, end, POINTS)
    return np.asarray(np.unique(np.concatenate([[0.0], near, even])), dtype=np.float64)


@functools.lru_cache(maxsize=64)
def _time_values(pair: Profile, end: float) -> tuple[Floats, Floats]:
    """Nodes from 0 to ``end``, and log w there."""
    nodes = _nodes(end)
    delta, _, error = pair.profile(nodes)
    return nodes, np.log(delta + error)


def _cells(start: Floats, d: Floats, log_w0: Floats, log_w1: Floats, c: float) -> float:
    """Log of the sum over cells; (E − F)/d and F/d without cancellation, times e^{−cd} so that nothing overflows."""
    low, high = c * d, (c + 1) * d
    small = high < 1e-3
    shift = np.where(small, 0.0, low)
    a, b = low[small], d[small]
    # By series, whose next terms are below 1e-17; else closed, where a few units are magnified by at most 2/high.
    whole = 1 + a / 2 + a**2 / 6 + a**3 / 24 + a**4 / 120
    share = (
        0.5
        + (2 * a + b) / 6
        + (3 * a * a + 3 * a * b + b * b) / 24
        + (4 * a**3 + 6 * a * a * b + 4 * a * b * b + b**3) / 120
    )
    share = (share + ((a + b) ** 4 + a * (a + b) ** 3 + a * a * (a + b) ** 2 + a**3 * (a + b) + a**4) / 720) / (
        1 + b / 2 + b**2 / 6 + b**3 / 24 + b**4 / 120
    )
    log_f0, log_f1 = np.empty_like(d), np.empty_like(d)
    log_f0[small], log_f1[small] = np.log(whole - share), np.log(share)
    a, b, large = low[~small], d[~small], high[~small]
    r = b / np.expm1(b)
    # In logarithms, as a product with c may overflow, or a quotient by it underflow,
    # and a cell would count for nothing.
    size = np.log(a) + np.log(large)
    log_f1[~small] = np.log(a + r * np.expm1(-a)) - size
    log_f0[~small] = np.log(np.maximum(-(b + r) * np.expm1(-a) - a * np.exp(-a), 0.0)) - size
    mean = np.logaddexp(log_w0 + log_f0, log_w1 + log_f1)
    terms = mean + np.log(d) + c * start + shift
    top = float(np.max(terms))
    if not np.isfinite(top):
        return top
    # 6e4: thirty units, magnified 2/high ≤ 2000-fold where it is closed.
    rounding = 1 + UNIT * (terms.size + 64 + 16 * float(np.max(np.abs(c * start) + shift)) + 6e4)
    return float(np.log(np.sum(np.exp(terms - top)) * rounding) + top)


def slope_error(delta: Floats, tail: Floats, error: Floats) -> Floats:
    """The error of ``tail`` as the slope of a line below the profile.

    A thousandth of it is for the roundings of its user.
    """
    return (1.001e-11 + error / np.maximum(delta, TINY)) * tail
