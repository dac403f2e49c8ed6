"""E R^k e^{−uR} on a ray u = e^{y + iϑ}, for all k up to some.

R = S/t is the mean of t lognormals r = e^{μg − μ²/2}.

As E r^j e^{−sr} = e^{j(j − 1)μ²/2}φ(e^{jμ²}s), φ(s) = E e^{−sr}, it is k! times a coefficient of a power of a power
series. Proofs: ``proofs/allocation.md``, §7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.faces import Complexes
from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.lognormal_sum import LognormalSum

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
        found = [self.total.one.log_on_ray(begin, step, number, angle) for begin, number in parts]
        log, error = (np.concatenate(ends) for ends in zip(*found, strict=True))
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
        powers, plain, largest = _power(terms, t), _power(sizes[0], t), _power(sizes[1], t)
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
        found = []
        for j in range(k + 1):
            q = np.maximum(j, np.geomspace(0.5, 2000, 40))[:, None]
            turned = np.min(self._log_power(j, angle, beta, q) - q * y, axis=(0, 1))
            found.append(np.minimum(turned, self.total.log_moments[j]))
        return np.array(found)


def _turns(order: Order, angle: float) -> tuple[Floats, Floats]:
    """Parts of ϑ by which r may turn, and powers q ≥ k, q > α, of which the best is taken."""
    # Any are valid: points close enough to be near the best one.
    q = np.maximum(order.alpha + np.geomspace(0.5, 400, 60), order.k)
    return np.linspace(0, angle, 24)[:, None], np.asarray(q, dtype=np.float64)


def _power(terms: NDArray[Number], t: int) -> NDArray[Number]:
    """The t-th power of a power series in the first axis, of constant term 1, which stays 1."""
    found = terms
    for bit in bin(t)[3:]:
        found = _times(found, found)
        if bit == "1":
            found = _times(found, terms)
    return found


def _times(a: NDArray[Number], b: NDArray[Number]) -> NDArray[Number]:
    """The product of two."""
    return np.array([(a[: n + 1] * b[n::-1]).sum(axis=0) for n in range(a.shape[0])])
