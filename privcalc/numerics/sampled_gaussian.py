"""The transform of the Poisson-sampled Gaussian, by a trapezoid rule on a rotated line.

With t ~ N(0, 1), r(t) = e^{μt − μ²/2} and F(p) = E[(1 − q + q r)^p],

    remove (mixture against base):  M(s) = F(s + 1),        add (base against mixture):  M(s) = F(−s).

Both are F(p + iu) up to conjugation, with p = c + 1 or p = −c. On the line Im t = a the ratio r turns by θ = μa and

    |(1 − q + q r e^{iθ})^{p + iu}| = |1 − q + q r e^{iθ}|^p · e^{−u·arg(1 − q + q r e^{iθ})},      arg ≥ 0,

so nothing grows with u: the step of the rule does not depend on u, and the integral of these absolute values bounds
|F(p + iu')| for all u' ≥ u. Error bounds with proofs: ``proofs/engine.md``, §§4–6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcalc.numerics.faces import Complexes, NodeValues, Prepared, RealValues, log_slack
from privcalc.numerics.fan import fan
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.mixture import expm1, log1p, log_mixture, log_rotated
from privcalc.numerics.normal import log_normal_tail

_SEPARABLE_COUNT = 4000
"""Counts up to which the matrix product, whose error is relative to M and not to M − 1, is precise enough."""

_CHEAP_CELLS, _MAX_CELLS = 40_000, 5_000_000
"""Numbers of (node, point) pairs up to which evaluating each costs nothing, and from which on it is not affordable."""

_MAX_NODES = 60_000


@dataclass(frozen=True)
class SampledGaussianTransform:
    """N(μ, 1) against N(0, 1), sampled with probability q < 1, in one of its two directions."""

    mu: float
    q: float
    add: bool

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Choose the line, the step and the ends so that every error, composed ``count`` times, is about 1e-15.

        In the remove direction the nodes end at b. What happens beyond has probability ``lost`` under P, at most
        e^log_mass/count,
        and is left out of M; with ``cut`` that is the only demand on b, and the cut's own error may be large at large c
        (``log_real`` says so). Without, b also lies where the integrand at c_max is negligible.

        Raises:
            OverflowError: if the quadrature would need too many nodes.
        """
        log_count = math.log(count)
        line, log_kappa, step = trapezoid(self.mu, c_max, self.add, log_count + 34)
        log_tol = -36 - log_count - line * line / 2
        lost = 0.0
        if self.add:
            low, high = _add_range(self, c_max, step, log_tol - 0.5 * log_kappa)
        else:
            low = -math.sqrt(-2 * log_tol) - step
            high = _tail_point(self, log_mass - log_count)
            if not cut:
                high = _past_mode(self, c_max + 1, line, max(high, -low), log_tol)
        if not high - low < _MAX_NODES * step:
            raise OverflowError("the transform needs too many quadrature nodes")
        # The cut lies half a step beyond the last node.
        nodes = np.asarray(low + step * np.arange(math.ceil((high - low) / step)), dtype=np.float64)
        if not self.add:
            lost = math.exp(_log_tail(self, float(nodes[-1]) + 0.5 * step)) * (1 + 1e-9)
        missing = quadrature_error(line, log_kappa, step) + 2 * math.exp(-36 - log_count)
        return PreparedSampledGaussian(self, count, step, line, nodes, missing, lost)


def quadrature_error(line: float, log_kappa: float, step: float) -> float:
    """(1 + κe^{2a²})/(e^{2πa/h} − 1): error of the rule on Im t = a, relative to M(c), for every u ≥ 0."""
    return (1 + math.exp(log_kappa + 2 * line * line)) / math.expm1(2 * math.pi * line / step)


class Trapezoid(NamedTuple):
    """A rule on the line Im t = a: a, the log κ of its error, and its step."""

    line: float
    log_kappa: float
    step: float


def trapezoid(mu: float, c: float, add: bool, digits: float) -> Trapezoid:
    """The rule whose step makes (1 + κe^{2a²})/(e^{2πa/h} − 1) ≤ 2e^{−digits}."""
    a = np.minimum(1.5 / mu, 2.0) * np.linspace(0.02, 1.0, 50)
    log_kappa = -c * np.log(np.cos(mu * a)) if add else np.zeros_like(a)
    steps = 2 * math.pi * a / (digits + 2 * a * a + log_kappa)
    best = int(np.argmax(steps))
    return Trapezoid(float(a[best]), float(log_kappa[best]), float(steps[best]))


def _log_tail(pair: SampledGaussianTransform, b: float) -> float:
    """log P(t > b) for the mixture."""
    tails = log_normal_tail(np.array([b, b - pair.mu])) + np.array([math.log1p(-pair.q), math.log(pair.q)])
    return float(np.logaddexp(tails[0], tails[1]))


def _tail_point(pair: SampledGaussianTransform, log_mass: float) -> float:
    """A point b with P(t > b) ≤ e^log_mass: both normal tails by Φ(−z) ≤ e^{−z²/2}/2."""
    z = math.sqrt(2 * max(-log_mass, 0.0))
    shifted = pair.mu + math.sqrt(2 * max(math.log(pair.q) - log_mass, 0.0))
    return max(z, shifted)


def _past_mode(pair: SampledGaussianTransform, p: float, line: float, start: float, log_tol: float) -> float:
    """The first of some points from ``start`` on at which the edge term of the integrand is below e^{log_tol}."""
    # Beyond pμ + z the second mode, q r^p φ, has fallen below the tolerance too.
    excess = max(math.log(pair.q) + 0.5 * p * (p - 1) * pair.mu**2 - log_tol + 8, 0.0)
    far = max(start, p * pair.mu + math.sqrt(2 * excess) + 4)
    b = np.linspace(start, far, 129)
    good = _log_edge(pair, p, line, b) <= log_tol
    return float(b[int(np.argmax(good))]) if good.any() else 2 * far


def _log_edge(pair: SampledGaussianTransform, p: float | Floats, line: float, b: float | Floats) -> Floats:
    """log of 6a e^{2a²} φ(b)(1 − q + q r(b))^p: what a cut at b adds to the error of the rule (``proofs/engine.md``, §5)."""
    log_b = log_mixture(pair.mu, pair.q, np.atleast_1d(np.asarray(b, dtype=np.float64)))
    return np.asarray(math.log(6 * line) + 2 * line * line - 0.5 * np.square(b) - 0.9 + p * log_b, dtype=np.float64)


def _add_range(pair: SampledGaussianTransform, c: float, step: float, log_tol: float) -> tuple[float, float]:
    """Ends beyond which the sum of φ·(1 − q + qr)^(−c') is below e^{log_tol}, for every 0 ≤ c' ≤ c."""
    mu, q = pair.mu, pair.q
    z = math.sqrt(-2 * log_tol)
    far = -math.sqrt(2 * (-log_tol - c * math.log1p(-q))) - step
    # −c·log(1 − q + qr) is concave: below its tangent at b, of slope −k.
    b = np.linspace(-z, far, 65)[:-1] - step
    log_b = log_mixture(mu, q, b + step)
    slope = c * mu * np.exp(math.log(q) + mu * (b + step) - 0.5 * mu * mu - log_b)
    log_tail = -c * log_b + slope * (b + step) + 0.5 * slope**2 + log_normal_tail(-(b + step) - slope)
    good = (log_tail <= log_tol) & (-(b + step) >= slope)
    if good.any():
        far = float(b[int(np.argmax(good))])
    return far, max(z, mu / 2) + step


@dataclass(frozen=True)
class PreparedSampledGaussian:
    """The rule: nodes t_j + ia, and what quadrature and truncation may leave out of F, relative to F(p) ≥ 1."""

    pair: SampledGaussianTransform
    count: int
    step: float
    line: float
    nodes: Floats
    missing: float
    lost: float

    def edge(self, c: Floats | float) -> Floats:
        """Error of M(c) that comes from the cut."""
        return self._edge(c, 0.0)

    def _edge(self, c: Floats | float, log_scale: Floats | float) -> Floats:
        """``edge`` divided by e^log_scale; ∞ where it overflows even so."""
        if self.pair.add:
            return np.zeros_like(np.atleast_1d(c))
        log_edge = _log_edge(self.pair, np.asarray(c) + 1.0, self.line, float(self.nodes[-1]) + 0.5 * self.step)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(log_edge - log_scale))

    @cached_property
    def _sum_unit(self) -> float:
        """Error constant of a sum over the nodes, in any order, of terms with a few roundings each."""
        return (self.nodes.size + 48) * UNIT

    @cached_property
    def _real(self) -> tuple[Floats, Floats]:
        """log of the weights, and log(1 − q + qr), on the real line."""
        log_weights = math.log(self.step / math.sqrt(2 * math.pi)) - 0.5 * self.nodes**2
        return log_weights, log_mixture(self.pair.mu, self.pair.q, self.nodes)

    @cached_property
    def _rotated(self) -> tuple[Complexes, Complexes]:
        """Log weights and log mixture on the line Im t = a, where φ(t + ia) = φ(t) e^{a²/2 − iat}."""
        t, a = self.nodes, self.line
        log_weights = math.log(self.step / math.sqrt(2 * math.pi)) + 0.5 * (a - t) * (a + t) - 1j * a * t
        return log_weights, log_rotated(self.pair.mu, self.pair.q, t, self.pair.mu * a)

    def _power(self, c: float) -> float:
        return -c if self.pair.add else c + 1.0

    def log_real(self, c: Floats) -> RealValues:
        """K(c), from M − 1 = E[expm1(p·log(1 − q + qr))] where M is near 1."""
        log_weights, log = self._real
        p = -c if self.pair.add else c + 1.0
        z = np.multiply.outer(p, log)
        if float(z.max()) < 30.0:
            weights = np.exp(log_weights)
            value = np.log1p(np.expm1(z) @ weights)
            rounding = (np.abs(z) * np.exp(np.maximum(z, 0.0))) @ weights
        else:
            log_terms = z + log_weights
            top = log_terms.max(axis=-1)
            terms = np.exp(log_terms - top[:, None])
            total = terms.sum(axis=-1)
            value = np.log(total) + top
            rounding = 1 + (terms * (np.abs(z) + self.nodes**2)).sum(axis=-1) / total
        cut = np.log1p(self._edge(c, value))
        error: Floats = self._sum_unit * rounding + self.missing + 4 * UNIT * np.abs(value) + cut
        return RealValues(value, error)

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """log M(c + iu)/M(c) at u = k·step, and log(1 + relative error)."""
        p = self._power(c)
        k_real = float(self.log_real(np.array([c])).value[0])
        log_weights, log = self._rotated
        u = step * np.arange(size)
        # |weight|·max(1, |1 − q + q r e^{iθ}|^p)/M(c): what the roundings scale with. A weight is off by (t² + 4) units.
        magnitude = np.exp(log_weights.real + np.maximum(p * log.real, 0.0) - k_real)
        # log(1 − q + qr) inherits the rounding of μt − μ²/2 through w = qr/(1 − q + qr).
        weight = np.abs(1 - (1 - self.pair.q) * np.exp(-log))
        spread = np.abs(log) + 0.1 * weight * (np.abs(self.pair.mu * self.nodes) + self.pair.mu**2)
        cells = size * self.nodes.size
        if k_real < 1.0 and (cells <= _CHEAP_CELLS or (self.count > _SEPARABLE_COUNT and cells <= _MAX_CELLS)):
            # M − 1 = E[expm1(z)], |expm1(z)| ≤ |z|·max(1, e^{Re z}); NumPy sums a row pairwise, in blocks of 128.
            z = np.multiply.outer(p + 1j * u, log)
            weights = np.exp(log_weights)
            terms = expm1(z) * weights
            far = z.real > 30  # there the weight may underflow while e^z overflows
            if far.any():
                terms = np.where(
                    far, np.exp(np.minimum((z + log_weights).real, 700.0) + 1j * (z + log_weights).imag) - weights, terms
                )
            ratio = np.sum(terms, axis=1)
            log_m = log1p(ratio) - k_real
            depth = 60 + math.log2(self.nodes.size)
            error = UNIT * np.hypot(p, u) * float(magnitude @ (spread * (self.nodes**2 + depth)))
        else:
            with np.errstate(divide="ignore"):
                log_m = np.log(fan(np.exp(log_weights + p * log - k_real), log, step, size))
            depth = 2 * self.nodes.size + 60
            error = UNIT * (float(magnitude @ (self.nodes**2 + depth)) + 8 * np.hypot(p, u) * float(magnitude @ spread))
        log_m, slack = log_slack(log_m, error + self.missing + float(self._edge(c, k_real)[0]))
        return NodeValues((np.conj(log_m) if self.pair.add else log_m), slack)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """log of min over lines θ of G_θ(u)/M(c): the integral of absolute values, itself a trapezoid sum."""
        mu, q, p = self.pair.mu, self.pair.q, self._power(c)
        log_weights, real_log = self._real
        k_real = float(self.log_real(np.array([c])).value[0])
        tilted = np.exp(log_weights + p * real_log - k_real)
        with np.errstate(over="ignore"):
            share = 1 / (1 + (1 - q) / q * np.exp(0.5 * mu * mu - mu * self.nodes))
        mean = float(tilted @ share)
        variance = float(tilted @ (share - mean) ** 2)
        best = np.zeros_like(u)
        edge = float(self._edge(c, k_real)[0])
        theta_max = min(1.2, self.line * mu)
        for factor in (1.0, 2.5):
            theta = np.minimum(factor * u * mean / (1 / mu**2 + u * u * variance), theta_max)
            log = log_rotated(mu, q, self.nodes, theta[:, None])
            with np.errstate(over="ignore"):
                terms = tilted * np.exp(p * (log.real - real_log) + 0.5 * (theta[:, None] / mu) ** 2)
                change = (terms * np.exp(-u[:, None] * log.imag)).sum(axis=1)
            # Strip of half-width ψ for the analytic continuation of |…|: total angle at most π/2.
            psi = np.minimum((0.5 * math.pi - theta) / mu, 2.0)
            log_kappa = np.zeros_like(u)
            if self.pair.add:
                psi = np.minimum(psi, np.maximum(4 / math.sqrt(c) - theta, 0.25 * psi * mu) / mu)
                log_kappa = -c * np.log(np.cos(0.5 * (theta + psi * mu)))
            with np.errstate(over="ignore", divide="ignore"):
                spare = 2 * np.exp(log_kappa + 0.5 * ((theta / mu) ** 2 + psi**2)) / np.expm1(2 * math.pi * psi / self.step)
                rounding = 4 * self._sum_unit * (1 + np.hypot(p, u)) * terms.sum(axis=1)
                best = np.fmin(best, np.log(change + spare + rounding + self.missing + edge))
        # M(c) is itself known up to an error.
        return np.minimum.accumulate(best + float(self.log_real(np.array([c])).error[0]))
