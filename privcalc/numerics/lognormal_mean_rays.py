"""Moments E R^p of complex order of the mean R = S/t of t lognormals, by a rule on rays.

With G(u) = E R^k e^{−uR}, for any whole k, a = k − p, Re a > 0 and |ϑ| < π/2,

    E R^p = Γ(a)^{−1} ∫ e^{a(y + iϑ)} G(e^{y + iϑ}) dy,

an integral over the real line, which a trapezoid rule sums to nearly all digits. Proofs: ``proofs/allocation.md``, §7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.elementary import fan, repeated
from privcalc.numerics.floats import QUIET, UNIT, Complexes, Floats
from privcalc.numerics.lognormal_sum import LognormalSum
from privcalc.numerics.special import gammaln

MOST_CELLS = 400_000_000
"""Pairs of a node and a point of the lognormal's rule up to which a ray is affordable."""

Number = TypeVar("Number", np.float64, np.complex128)


class Ray(NamedTuple):
    """E R^k e^{−uR} at u = e^{y + iϑ}.

    Attributes:
        angle: ϑ.
        y: the nodes, equally spaced.
        step: their distance.
        values: by k, and node.
        errors: bounds on their errors.
    """

    angle: float
    y: Floats
    step: float
    values: Complexes
    errors: Floats


class Order(NamedTuple):
    """p = k − a.

    Attributes:
        k: a whole number.
        alpha: Re a.
    """

    k: int
    alpha: float


@dataclass(frozen=True)
class Mean:
    """R = S/t, S the sum of t independent r = e^{μg − μ²/2}."""

    mu: float
    steps: int

    @cached_property
    def total(self) -> LognormalSum:
        """The sum S of the t lognormals."""
        return LognormalSum(self.mu, self.steps)

    def log_beyond(self, order: Order, angle: float, y: float) -> float:
        """A log bound of ∫|e^{αx} G(e^{x + iϑ})| dx over x > y: r may turn by any part of ϑ."""
        beta, q = _turns(order, angle)
        log = self._log_power(order.k, angle, beta, q) + (order.alpha - q) * y - np.log(q - order.alpha)
        return float(np.min(log))

    def _log_power(self, k: int, angle: float, beta: Floats, q: Floats) -> Floats:
        """|E R^k e^{−uR}| ≤ e^{this} |u|^{−q}, q ≥ k."""
        less = q - k
        log = q * (np.log(q) - 1 - np.log(np.cos(angle - beta))) + 0.5 * less * (less / self.steps + 1) * self.mu**2
        return np.asarray(log + 0.5 * self.steps * (beta / self.mu) ** 2, dtype=np.float64)

    def end(self, order: Order, angle: float, log_small: float) -> float:
        """Where ``log_beyond`` is about so small."""
        beta, q = _turns(order, angle)
        log = self._log_power(order.k, angle, beta, q) - np.log(q - order.alpha) - log_small
        return float(np.min(log / (q - order.alpha)))

    def ends(self, order: Order, ray: Ray) -> float:
        """A log bound of the sum over the nodes left out, times the step: |E R^k e^{−uR}| ≤ E R^k on the left."""
        left = order.alpha * float(ray.y[0]) + float(self.total.log_moments[order.k]) - math.log(order.alpha)
        return float(np.logaddexp(left, self.log_beyond(order, ray.angle, float(ray.y[-1])))) + 1e-9

    @QUIET
    def ray(self, angle: float, step: float, low: float, high: float, k: int) -> Ray:
        """About so many nodes; all powers up to k."""
        mu, t = self.mu, self.steps
        # E r^j e^{−sr} is φ at e^{jμ²}s: a node of the same ray, where that is no finer than needed.
        shared = mu * mu >= step
        step = mu * mu / math.ceil(mu * mu / step) if shared else step
        size = math.ceil((high - low) / step) + 1
        move = round(mu * mu / step) if shared else size
        nodes = size + k * move
        if nodes * self.total.one.cells + 3 * size * k * k * t.bit_length() > MOST_CELLS:
            raise OverflowError("the ray has too many nodes")
        start = low - math.log(t)
        parts = [(start, nodes)] if shared else [(start + mu * mu * j, size) for j in range(k + 1)]
        pieces = [self.total.one.log_on_ray(begin, step, number, angle) for begin, number in parts]
        log, error = (np.concatenate(ends) for ends in zip(*pieces, strict=True))
        y: Floats = low + step * np.arange(size, dtype=np.float64)
        modulus = np.exp(np.concatenate([begin + step * np.arange(number) for begin, number in parts]))
        phi = np.exp(log)
        known = error < 0.5
        most = np.exp(self.total.one.log_most_on_ray(modulus, angle)) if not known.all() else 1.0
        error = np.where(known, np.abs(phi) * np.expm1(np.minimum(error, 1.0)), most)
        phi = np.where(known, phi, 0.0)
        first, first_error = np.abs(phi[:size]), error[:size]
        share = t * first_error / np.maximum(first - first_error, 1e-300)
        # Below 0.1 the factors 1.2 and 1.3 further down are above 1/(1 − share) and what multiplies errors; beyond few
        # digits are left.
        used = known[:size] & (share < 0.1)
        base = np.where(used, phi[:size], 1.0)
        terms, sizes = np.zeros((k + 1, size), dtype=np.complex128), np.zeros((2, k + 1, size))
        terms[0], sizes[:, 0] = 1.0, 1.0
        for j in range(1, k + 1):
            factor = math.exp(0.5 * j * (j - 1) * mu**2 - math.lgamma(j + 1) - j * math.log(t))
            part = slice(j * move, j * move + size)
            terms[j] = phi[part] / base * factor
            sizes[0, j] = np.abs(terms[j])
            sizes[1, j] = sizes[0, j] + (error[part] + first_error * sizes[0, j] / factor) / np.abs(base) * factor * 1.3
        rounds = 2 * t.bit_length()
        powers, plain, largest = repeated(terms, t, _times), *(repeated(size_of, t, _times) for size_of in sizes)
        log_whole = t * log[:size]
        whole = np.where(used, np.exp(log_whole), 0.0)
        scale = np.array([math.factorial(j) for j in range(k + 1)], dtype=np.float64)[:, None]
        units = UNIT * (4 * np.abs(log_whole) + 16)
        rest = (
            3 * UNIT * np.arange(k + 1)[:, None] * (rounds * (k + 5) + 64 + k * mu * mu) + np.expm1(1.2 * share) + units
        )
        errors = np.hypot(whole.real, whole.imag) * scale * ((largest - plain) + 1.2 * largest * rest)
        values = whole * scale * powers
        dropped = ~used
        if dropped.any():
            errors[:, dropped] = np.exp(self._log_most(k, angle, y[dropped]))
        return Ray(angle, y, step, values, errors)

    def _log_most(self, k: int, angle: float, y: Floats) -> Floats:
        """Log bounds of |E R^k e^{−uR}| for each power up to k."""
        # Any turn up to ϑ and any q ≥ j are valid: points close enough to be near the best one.
        beta = np.linspace(0, angle, 12)[:, None, None]
        bounds = []
        for j in range(k + 1):
            q = np.maximum(j, np.geomspace(0.5, 2000, 40))[:, None]
            turned = np.min(self._log_power(j, angle, beta, q) - q * y, axis=(0, 1))
            bounds.append(np.minimum(turned, self.total.log_moments[j]))
        return np.array(bounds)


def _turns(order: Order, angle: float) -> tuple[Floats, Floats]:
    """Parts of ϑ by which r may turn, and powers q ≥ k, q > α, of which the best is taken."""
    # Any are valid: points close enough to be near the best one.
    q = np.maximum(order.alpha + np.geomspace(0.5, 400, 60), order.k)
    return np.linspace(0, angle, 24)[:, None], np.asarray(q, dtype=np.float64)


def _times(a: NDArray[Number], b: NDArray[Number]) -> NDArray[Number]:
    """The product of two."""
    return np.array([(a[: n + 1] * b[n::-1]).sum(axis=0) for n in range(a.shape[0])])


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
    log_moment = math.log(total) + top
    return log_moment, (-math.log1p(-share) if share < 0.5 else math.inf) + 8 * UNIT * (
        1 + abs(top) + abs(log_moment) + abs(log_gamma)
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
    rays, start = [], 0
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
        rays.append((angle, start, end))
        start = end
    return rays


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
