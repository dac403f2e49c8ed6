"""Moments E R^p of complex order of the mean R = S/t of t lognormals, by a rule on rays.

With G(u) = E R^k e^{−uR}, for any whole k, a = k − p, Re a > 0 and |ϑ| < π/2,

    E R^p = Γ(a)^{−1} ∫ e^{a(y + iϑ)} G(e^{y + iϑ}) dy,

an integral over the real line, which a trapezoid rule sums to nearly all digits. Proofs: ``proofs/allocation.md``, §7.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from privcalc.numerics.faces import Complexes
from privcalc.numerics.fan import fan
from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.lognormal_rays import Mean, Order, Ray
from privcalc.numerics.special import gammaln

SMALL = 38.0
"""−log of the share that the rule and its ends may each leave."""

GAIN = 4.0
"""log of what a ray may magnify errors by, beside what the best one does."""

_BLOCK = 64
"""Terms that are summed at once, so that sums are as precise as these."""


def spacing(alpha: float, angle: float) -> tuple[float, float]:
    """(h, ω): moved by ω, the integrand shows that the rule is off by about e^{−SMALL}."""
    # Any ω below ½π − ϑ is valid, as ``log_alias`` counts it. 0.75 is empirical: only the number of nodes depends on
    # it.
    omega = 0.75 * (0.5 * math.pi - angle)
    grows = alpha * (math.log(math.cos(angle)) - math.log(math.cos(angle + omega)))
    return 2 * math.pi * omega / (SMALL + 2 + grows), omega


def log_alias(alpha: float, ray: Ray, omega: float, v: float) -> float:
    """Log of what the rule is off by, over e^{−vϑ}Γ(α)M."""
    up = -alpha * math.log(math.cos(ray.angle + omega))
    down = v * omega - alpha * math.log(math.cos(ray.angle - omega))
    return float(np.logaddexp(up, down)) - math.log(math.expm1(min(2 * math.pi * omega / ray.step, 700.0)))


def _log_guess(mean: Mean, order: Order) -> float:
    """About log Γ(α)E R^{k−α}, from below: log E R^p is convex."""
    known, p = mean.total.log_moments, order.k - order.alpha
    whole = max(math.floor(p), 1)
    line = float(known[whole] + (p - whole) * (known[whole] - known[whole - 1]))
    return max(line, 0.0) + float(gammaln(order.alpha))


def _reach(mean: Mean, order: Order, angle: float) -> tuple[float, float]:
    """From where to where a ray should go."""
    small = _log_guess(mean, order) - SMALL
    low = (small - float(mean.total.log_moments[order.k]) + math.log(order.alpha)) / order.alpha
    return low, mean.end(order, angle, small)


@lru_cache(maxsize=32)
def real_ray(mean: Mean, orders: tuple[Order, ...]) -> Ray:
    """One for all of these."""
    ends = [_reach(mean, order, 0.0) for order in orders]
    step = min(spacing(order.alpha, 0.0)[0] for order in orders)
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return mean.ray(0.0, step, low, high, max(order.k for order in orders))


def _ray_for(mean: Mean, order: Order, angle: float) -> tuple[Ray, float]:
    """A ray, and ω; in steps, so that it may serve again."""
    step, omega = spacing(order.alpha, angle)
    low, high = _reach(mean, order, angle)
    return _ray(
        mean, angle, 2.0 ** (math.floor(8 * math.log2(step)) / 8), math.floor(low), math.ceil(high), order.k
    ), omega


@lru_cache(maxsize=8)
def _ray(mean: Mean, angle: float, step: float, low: int, high: int, k: int) -> Ray:
    """Rays of the last questions."""
    return mean.ray(angle, step, low, high, k)


@QUIET
def real_moment(mean: Mean, order: Order, ray: Ray) -> tuple[float, float]:
    """Log E R^{k−α}, and its error: on the real axis, where all terms are ≥ 0."""
    log_gamma = float(gammaln(order.alpha))
    log_terms = order.alpha * ray.y + math.log(ray.step) - log_gamma
    values = ray.values[order.k].real
    top = float(np.max(log_terms + np.log(values)))
    weights = np.exp(log_terms - top)
    terms = weights * values
    total = float(terms.sum())
    sizes = 4 * np.abs(log_terms) + 4 * abs(top) + 4 * abs(log_gamma) + 4 * order.alpha * _moved(mean, ray)
    rounding = UNIT * (32 + ray.y.size + sizes)
    error = float(weights @ ray.errors[order.k]) + float(terms @ rounding)
    error += math.exp(mean.ends(order, ray) - log_gamma - top)
    share = error / total + math.exp(log_alias(order.alpha, ray, spacing(order.alpha, 0.0)[1], 0.0))
    found = math.log(total) + top
    return found, (-math.log1p(-share) if share < 0.5 else math.inf) + 8 * UNIT * (
        1 + abs(top) + abs(found) + abs(log_gamma)
    )


def _moved(mean: Mean, ray: Ray) -> Floats:
    """Return the size of a node's rounding error, in units: its own size, that of the first, and what t moves it by."""
    return np.asarray(np.abs(ray.y) + abs(float(ray.y[0])) + math.log(mean.steps), dtype=np.float64)


def loss(alpha: float, v: Floats, angle: Floats) -> Floats:
    """log of e^{−vϑ}(cos ϑ)^{−α}Γ(α)/|Γ(α + iv)|, less what it is at its least: about (1 + v²/α²)^{1/4}."""
    # As log|Γ(α + iv)| − log Γ(α) is about ½(α − ½) log(1 + v²/α²) − v atan(v/α).
    best = np.arctan2(v, alpha)
    return v * (best - angle) - alpha * np.log(np.cos(angle)) + alpha * np.log(np.cos(best))


def angles(alpha: float, v: Floats) -> list[tuple[float, int, int]]:
    """Rays, and from which of the nodes to which each serves."""
    found, start = [], 0
    while start < v.size:
        low, high = math.atan2(v[start], alpha), 0.5 * math.pi
        # 40 halvings leave 1e-12 of a right angle; any angle is valid.
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if loss(alpha, v[start], np.asarray(middle)) <= GAIN else (low, middle)
        # The rest of a right angle in steps, if that serves.
        last = min(low, math.atan2(float(v[-1]), alpha))
        angle = 0.5 * math.pi - 2.0 ** (math.ceil(4 * math.log2(0.5 * math.pi - last)) / 4)
        if loss(alpha, v[start], np.asarray(angle)) > GAIN or angle < 0:
            angle = low
        # A little more than ``GAIN``, so that rounding cannot leave the first node out.
        good = loss(alpha, v[start:], np.asarray(angle)) <= 1.001 * GAIN + 1e-6
        end = v.size if good.all() else start + int(np.argmin(good))
        found.append((angle, start, end))
        start = end
    return found


def on_ray(
    mean: Mean, order: Order, angle: float, log_total: float, v: Floats, step: float
) -> tuple[Complexes, Floats]:
    """Γ(α)E R^{k − α − iv}/(Γ(α + iv) E R^{k − α}) without the first factor's modulus, and its error."""
    ray, omega = _ray_for(mean, order, angle)
    log_terms = order.alpha * ray.y - log_total + math.log(ray.step)
    weights = np.exp(log_terms)
    terms = weights * ray.values[order.k]
    sizes = np.abs(terms)
    short = np.pad(np.stack([terms * np.exp(1j * v[0] * ray.y), ray.y]), ((0, 0), (0, -ray.y.size % _BLOCK)))
    short = short.reshape(2, -1, _BLOCK)
    value = fan(short[0], short[1].real, step, v.size).sum(axis=0)
    error = float(weights @ ray.errors[order.k]) + math.exp(mean.ends(order, ray) - log_total)
    moved = _moved(mean, ray)
    rounding = (
        2 * _BLOCK + ray.y.size / _BLOCK + 80 + 4 * np.abs(log_terms) + 4 * abs(log_total) + 4 * order.alpha * moved
    )
    error += UNIT * float(sizes @ rounding) + math.exp(log_alias(order.alpha, ray, omega, float(v[-1])))
    return value, error + v * (8 * UNIT * float(sizes @ moved))
