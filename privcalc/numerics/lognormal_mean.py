"""The transform of a random allocation: moments E R^p of complex order of the mean R of t lognormals, by a rule on rays.

With G(u) = E R^k e^{−uR}, for any k ≥ 0, Re p < k, a = k − p and |ϑ| < π/2,

    E R^p = Γ(a)^{−1} ∫ e^{a(y + iϑ)} G(e^{y + iϑ}) dy,

an integral over the real line that a trapezoid rule sums to nearly all digits. G comes from the transform of a single lognormal.
Where the record is removed M(s) = E R^{1+s}, where it is added E R^{−s}. Proofs: ``proofs/allocation.md``, §4.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from privcalc.numerics.faces import Complexes, NodeValues, RealValues, log_slack
from privcalc.numerics.fan import fan
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.lognormal_sum import LognormalSum
from privcalc.numerics.routes.route import QUIET
from privcalc.numerics.special import gammaln

SMALL = 38.0
"""−log of the share that the rule and its ends may each leave."""

GAIN = 4.0
"""log of what a ray may magnify errors by."""

MOST_CELLS = 400_000_000
"""Pairs of a node and a point of the lognormal's rule up to which a ray is affordable."""

MOST_POWER, _LARGEST = 64, 300.0
"""The highest k, and the largest k(k − 1)μ²/2."""

_BLOCK = 64
"""Terms that are summed at once, so that sums are as precise as these."""

ROUGH = 1e-3
"""The largest error of K(c) with which it is used."""

MOST_C = 500.0
"""The largest c where the record is added."""

LEAST_MU = 0.05
"""With more noise there would be too many nodes, and losses are nearly normal."""


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
        """S."""
        return LognormalSum(self.mu, self.steps)

    def log_beyond(self, order: Order, angle: float, y: float) -> float:
        """A log bound of ∫|e^{αx} G(e^{x + iϑ})| dx over x > y: r may turn by any part of ϑ."""
        beta, q = np.linspace(0, angle, 24)[:, None], order.alpha + np.geomspace(0.5, 400, 60)
        q = np.maximum(q, order.k)
        log = self._log_power(order, angle, beta, q) + (order.alpha - q) * y - np.log(q - order.alpha)
        return float(np.min(log))

    def _log_power(self, order: Order, angle: float, beta: Floats, q: Floats) -> Floats:
        """|E R^k e^{−uR}| ≤ e^{this} |u|^{−q}, q ≥ k."""
        less = q - order.k
        log = q * (np.log(q) - 1 - np.log(np.cos(angle - beta))) + 0.5 * less * (less / self.steps + 1) * self.mu**2
        return np.asarray(log + 0.5 * self.steps * (beta / self.mu) ** 2, dtype=np.float64)

    def end(self, order: Order, angle: float, log_small: float) -> float:
        """Where ``log_beyond`` is about so small."""
        beta, q = np.linspace(0, angle, 24)[:, None], order.alpha + np.geomspace(0.5, 400, 60)
        q = np.maximum(q, order.k)
        log = self._log_power(order, angle, beta, q) - np.log(q - order.alpha) - log_small
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
        found = [self.total.one.log_on_ray(begin, step, number, angle) for begin, number in parts]
        log, error = (np.concatenate(ends) for ends in zip(*found, strict=True))
        y = low + step * np.arange(size)
        modulus = np.exp(np.concatenate([begin + step * np.arange(number) for begin, number in parts]))
        phi = np.exp(log)
        known = error < 0.5
        most = np.exp(self.total.one.log_most_on_ray(modulus, angle)) if not known.all() else 1.0
        error = np.where(known, np.abs(phi) * np.expm1(np.minimum(error, 1.0)), most)
        phi = np.where(known, phi, 0.0)
        first, first_error = np.abs(phi[:size]), error[:size]
        share = t * first_error / np.maximum(first - first_error, 1e-300)
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
        powers, plain, most_ = _power(terms, t), _power(sizes[0], t), _power(sizes[1], t)
        log_whole = t * log[:size]
        whole = np.where(used, np.exp(log_whole), 0.0)
        scale = np.array([math.factorial(j) for j in range(k + 1)], dtype=np.float64)[:, None]
        units = UNIT * (4 * np.abs(log_whole) + 16)
        rest = np.arange(k + 1)[:, None] * (rounds * (2 * k + 8) + 16) * UNIT + np.expm1(1.2 * share) + units
        errors = np.abs(whole) * scale * ((most_ - plain) + 1.2 * most_ * rest)
        values = whole * scale * powers
        dropped = ~used
        if dropped.any():
            errors[:, dropped] = np.exp(self._log_most(k, angle, y[dropped]))
        return Ray(angle, y, step, values, errors)

    def _log_most(self, k: int, angle: float, y: Floats) -> Floats:
        """Log bounds of |E R^k e^{−uR}| for each power up to k."""
        beta = np.linspace(0, angle, 12)[:, None, None]
        found = []
        for j in range(k + 1):
            q = np.maximum(j, np.geomspace(0.5, 2000, 40))[:, None]
            found.append(np.minimum(np.min(self._log_power(Order(j, 0.0), angle, beta, q) - q * y, axis=(0, 1)), self.total.log_moments[j]))
        return np.array(found)


def _power(terms: Floats | Complexes, t: int):
    """The t-th power of a power series in the first axis, of constant term 1."""
    found = None
    while t:
        if t & 1:
            found = terms if found is None else _times(found, terms)
        t >>= 1
        if t:
            terms = _times(terms, terms)
    return found


def _times(a, b):
    found = np.empty_like(a)
    for n in range(a.shape[0]):
        found[n] = (a[: n + 1] * b[n::-1] if n < b.shape[0] else 0).sum(axis=0)
    return found


def spacing(alpha: float, angle: float) -> tuple[float, float]:
    """(h, ω): the rule is off by about e^{−SMALL} if f is moved by ω."""
    omega = 0.75 * (0.5 * math.pi - angle)
    return 2 * math.pi * omega / (SMALL + 2 - alpha * math.log(math.cos(angle + omega)) + alpha * math.log(math.cos(angle))), omega


def log_alias(alpha: float, ray: Ray, omega: float, v: float) -> float:
    """Log of what the rule is off by, over e^{−vϑ}Γ(α)M."""
    up = -alpha * math.log(math.cos(ray.angle + omega))
    down = v * omega - alpha * math.log(math.cos(ray.angle - omega))
    return float(np.logaddexp(up, down)) - math.log(math.expm1(min(2 * math.pi * omega / ray.step, 700.0)))


@lru_cache(maxsize=64)
def mean_of(mu: float, steps: int) -> Mean:
    return Mean(mu, steps)


def _log_guess(mean: Mean, order: Order) -> float:
    """About log Γ(α)E R^{k−α}, from below: log E R^p is convex."""
    known, p = mean.total.log_moments, order.k - order.alpha
    whole = max(math.floor(p), 1)
    return max(float(known[whole] + (p - whole) * (known[whole] - known[whole - 1])), 0.0) + float(gammaln(order.alpha))


def _reach(mean: Mean, order: Order, angle: float) -> tuple[float, float]:
    """From where to where a ray should go."""
    small = _log_guess(mean, order) - SMALL
    low = (small - float(mean.total.log_moments[order.k]) + math.log(order.alpha)) / order.alpha
    return low, mean.end(order, angle, small)


@lru_cache(maxsize=32)
def _real_ray(mean: Mean, orders: tuple[Order, ...]) -> Ray:
    """One for all of these."""
    ends = [_reach(mean, order, 0.0) for order in orders]
    step = min(spacing(order.alpha, 0.0)[0] for order in orders)
    return mean.ray(0.0, step, min(low for low, _ in ends), max(high for _, high in ends), max(order.k for order in orders))


def _ray_for(mean: Mean, order: Order, angle: float) -> tuple[Ray, float]:
    """A ray, and ω; in steps, so that it may serve again."""
    step, omega = spacing(order.alpha, angle)
    low, high = _reach(mean, order, angle)
    return _ray(mean, angle, 2.0 ** (math.floor(8 * math.log2(step)) / 8), math.floor(low), math.ceil(high), order.k), omega


@lru_cache(maxsize=8)
def _ray(mean: Mean, angle: float, step: float, low: int, high: int, k: int) -> Ray:
    return mean.ray(angle, step, low, high, k)


@QUIET
def real_moment(mean: Mean, order: Order, ray: Ray) -> tuple[float, float]:
    """Log E R^{k−α}, and its error: on the real axis, where all terms are ≥ 0."""
    log_terms = order.alpha * ray.y + math.log(ray.step) - float(gammaln(order.alpha))
    values = ray.values[order.k].real
    top = float(np.max(log_terms + np.log(values)))
    weights = np.exp(log_terms - top)
    terms = weights * values
    total = float(terms.sum())
    rounding = UNIT * (32 + ray.y.size + 4 * np.abs(log_terms) + 4 * abs(top) + 2 * order.alpha * np.abs(ray.y))
    error = float(weights @ ray.errors[order.k]) + float(terms @ rounding)
    error += math.exp(mean.ends(order, ray) - float(gammaln(order.alpha)) - top)
    share = error / total + math.exp(log_alias(order.alpha, ray, spacing(order.alpha, 0.0)[1], 0.0))
    found = math.log(total) + top
    return found, (-math.log1p(-share) if share < 0.5 else math.inf) + 8 * UNIT * (1 + abs(top) + abs(found))


def log_gamma(z: Complexes) -> tuple[Complexes, Floats]:
    """log Γ at Re z > 0, and a bound on its error: Stirling's series, moved to where |z| ≥ 16."""
    shift = np.zeros_like(z)
    move = max(0, math.ceil(16 - float(z.real.min())))
    for j in range(move):
        shift += np.log(z + j)
    w = z + move
    inverse = 1 / w
    series, power = np.zeros_like(w), inverse.copy()
    for coefficient in _STIRLING:
        series += coefficient * power
        power *= inverse * inverse
    value = (w - 0.5) * np.log(w) - w + 0.5 * math.log(2 * math.pi) + series - shift
    size = np.abs(w) * (np.abs(np.log(w)) + 2) + np.abs(shift)
    return value, np.asarray(UNIT * (12 * size + 8 * move + 40) + 1e-16, dtype=np.float64)


_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


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
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if loss(alpha, v[start], np.asarray(middle)) <= GAIN else (low, middle)
        # The rest of a right angle in steps, if that serves.
        angle = 0.5 * math.pi - 2.0 ** (math.ceil(4 * math.log2(0.5 * math.pi - min(low, math.atan2(float(v[-1]), alpha)))) / 4)
        if loss(alpha, v[start], np.asarray(angle)) > GAIN or angle < 0:
            angle = low
        good = loss(alpha, v[start:], np.asarray(angle)) <= 1.001 * GAIN + 1e-6
        end = v.size if good.all() else start + int(np.argmin(good))
        found.append((angle, start, end))
        start = end
    return found


def on_ray(mean: Mean, order: Order, angle: float, log_total: float, v: Floats, step: float) -> tuple[Complexes, Floats]:
    """Γ(α)E R^{k − α − iv}/(Γ(α + iv) E R^{k − α}) without the first factor's modulus, and its error."""
    ray, omega = _ray_for(mean, order, angle)
    log_terms = order.alpha * ray.y - log_total + math.log(ray.step)
    weights = np.exp(log_terms)
    terms = weights * ray.values[order.k]
    sizes = np.abs(terms)
    short = np.zeros((-(-ray.y.size // _BLOCK), _BLOCK), dtype=np.complex128)
    places = np.zeros(short.shape)
    short.ravel()[: ray.y.size], places.ravel()[: ray.y.size] = terms * np.exp(1j * v[0] * ray.y), ray.y
    value = fan(short, places, step, v.size).sum(axis=0)
    error = float(weights @ ray.errors[order.k]) + math.exp(mean.ends(order, ray) - log_total)
    rounding = UNIT * (2 * _BLOCK + len(short) + 80 + 4 * np.abs(log_terms) + 4 * abs(log_total) + 2 * order.alpha * np.abs(ray.y))
    error += float(sizes @ rounding) + math.exp(log_alias(order.alpha, ray, omega, float(v[-1])))
    return value, error + v * (8 * UNIT * float(sizes @ np.abs(ray.y)))


@dataclass(frozen=True)
class AllocationTransform:
    """(1/t)Σ_j N(μe_j, I) against N(0, I); with ``add`` the other order."""

    mu: float
    steps: int
    add: bool

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> AllocationTransform:
        """This object itself."""
        return self

    @property
    def lost(self) -> float:
        """Zero."""
        return 0.0

    def edge(self, c: Floats | float) -> Floats:
        """Zero."""
        return np.zeros_like(np.atleast_1d(c))

    @cached_property
    def _mean(self) -> Mean:
        return mean_of(self.mu, self.steps)

    @cached_property
    def _most(self) -> int:
        """The highest k."""
        return min(math.floor(0.5 + math.sqrt(0.25 + 2 * _LARGEST / self.mu**2)), MOST_POWER)

    def _order(self, c: float) -> Order:
        """Of M(c)."""
        if self.add:
            return Order(2, c + 2)
        # The larger α, the shorter are rays, and the more powers they have.
        k = min(math.floor(c) + 4 + math.floor(c / 3), self._most)
        return Order(k, k - 1 - c)

    def _real(self, order: Order) -> tuple[float, float]:
        """Log of the moment, on a ray that serves many of them."""
        top = 2.0 ** math.ceil(math.log2(order.alpha if self.add else order.k))
        if self.add:
            orders = (Order(2, 0.5 * top), Order(2, top))
        else:
            most = min(int(top), self._most)
            orders = (Order(4, 1.0), Order(4, 3.0), Order(most, 1.0), Order(most, 0.25 * most + 3.0))
        return real_moment(self._mean, order, _real_ray(self._mean, orders))

    def _known(self, c: Floats) -> Floats:
        return np.asarray(c < MOST_C) if self.add else np.asarray(c <= self._most - 2)

    def _above(self, c: Floats) -> Floats:
        """An upper bound of K(c): where added by E R^{−c} ≤ ΠE r^{−c/t}; where removed from whole moments."""
        if self.add:
            return np.asarray(0.5 * self.mu**2 * c * (c / self.steps + 1) * (1 + 1e-12), dtype=np.float64)
        known = self._mean.total.log_moments
        chords = np.where(c + 1 < known.size, np.interp(1 + c, np.arange(known.size), known), math.inf)
        return np.asarray(np.minimum(0.5 * self.mu**2 * c * (c + 1) * (1 + 1e-12), chords), dtype=np.float64)

    @QUIET
    def log_real(self, c: Floats) -> RealValues:
        """K(c). Where c is too large, an upper bound."""
        value, error = self._above(c), np.zeros_like(c)
        for i in np.flatnonzero(self._known(c)):
            found, off = self._real(self._order(float(c[i])))
            if off < ROUGH:
                value[i], error[i] = found, off
        return RealValues(value, error)

    @QUIET
    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """M(c + iv)/M(c), some nodes on each ray."""
        if not self._known(np.asarray(c)):
            raise OverflowError("the moment is too high")
        order = self._order(c)
        real, real_error = self._real(order)
        if not real_error < ROUGH:
            raise OverflowError("the moment is too large")
        start = float(gammaln(order.alpha))
        v = np.asarray(step * np.arange(size), dtype=np.float64)
        gamma, gamma_error = log_gamma(order.alpha + 1j * v)
        log, errors = np.empty(size, dtype=np.complex128), np.empty(size)
        for angle, begin, end in angles(order.alpha, v):
            block = slice(begin, end)
            value, error = on_ray(self._mean, order, angle, real + start, v[block], step)
            turn = start - gamma[block] - v[block] * angle + 1j * order.alpha * angle
            log[block] = np.log(value) + turn
            log_size = np.abs(turn) + start + v[block] * angle
            errors[block] = np.exp(turn.real) * (error + np.abs(value) * 1.1 * (gamma_error[block] + UNIT * (8 * log_size + 16)))
        log.imag -= 2 * math.pi * np.rint(log.imag / (2 * math.pi))  # whole powers only are taken
        values, slack = log_slack(log if self.add else np.conj(log), errors)
        return NodeValues(values, slack + real_error)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """R is e^{μḡ} times something independent, ḡ ~ N(0, 1/t)."""
        return np.asarray(-0.5 * self.mu**2 / self.steps * u * u * (1 - 8 * UNIT), dtype=np.float64)
