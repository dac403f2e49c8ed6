"""Transforms of losses that are functions of one normal variable, by a trapezoid rule on a rotated line.

With t ~ N(0, 1), p and q' the densities of P and Q over that of t, A = log p and L = log p/q',

    M(s) = E[e^{A(t) + sL(t)}].

On the line Im t = a the ratios turn by θ = μa. Where ±Im L ≥ 0 there, e^{iuL} does not grow with u, so that the step of
the rule does not depend on u, and the integral of absolute values bounds |M(c + iu')| for all u' ≥ u. What a loss must
know of itself is said at ``NormalLoss``; ``sampled_gaussian.py`` has some. Error bounds with proofs:
``proofs/engine.md``, §§4–7.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from privcalc.numerics.elementary import expm1, fan, log1p
from privcalc.numerics.floats import UNIT, Complexes, Floats
from privcalc.numerics.interfaces import NodeValues, Prepared, RealValues, log_slack

_SEPARABLE_COUNT = 4000
"""Counts up to which the matrix product, whose error is relative to M and not to M − 1, is precise enough."""

_CHEAP_CELLS, _MAX_CELLS = 40_000, 5_000_000
"""Numbers of (node, point) pairs up to which evaluating each costs nothing, and from which on it is not affordable."""

_MAX_NODES = 60_000
"""Empirical: more are refused as too slow, and other routes answer."""

_Array = TypeVar("_Array", Floats, Complexes)


@dataclass(frozen=True)
class Logs(Generic[_Array]):
    """A and L at points t, and what their roundings scale with: each is off by a few units of its size."""

    density: _Array
    loss: _Array
    density_size: Floats
    loss_size: Floats

    def at(self, s: complex | Floats | Complexes) -> _Array:
        """A + sL; for many s, a row each."""
        exponent: _Array = np.multiply.outer(s, self.loss) + self.density
        return exponent

    def size(self, s: float | Floats) -> Floats:
        """Return the size, in units, of the rounding error of A + sL for |s| = ``s``, shape s.shape + nodes.shape."""
        return np.asarray(np.multiply.outer(s, self.loss_size) + self.density_size, dtype=np.float64)


class NormalLoss(ABC):
    """A loss of one normal variable, as a transform.

    Where the ratios are turned by an angle α, |α| < π (Im t = α/μ), A and L are analytic, and

    * Im L has one sign for α ≥ 0: ≥ 0, or ≤ 0 if ``conjugate``; for |α| ≤ π/2 |Im L| rises with |α|;
    * |e^{A + cL}| is at most κ(α)·max(1, e^{A + cL}), that at α = 0, and φ·|e^{A + cL}| integrates to at most
      κ(α)·max(1, M(c)).
    """

    mu: float
    """How far a unit of Im t turns the ratios."""

    @property
    def conjugate(self) -> bool:
        """Whether Im L ≤ 0; then the rule gives M(c − iu)."""
        return False

    @abstractmethod
    def logs(self, t: Floats) -> Logs[Floats]:
        """A and L on the real line."""

    @abstractmethod
    def turned(self, t: Floats, angle: float | Floats) -> Logs[Complexes]:
        """A and L at t + i·angle/μ."""

    @abstractmethod
    def log_kappa(self, angle: Floats, c: float | Floats) -> Floats:
        """log κ for turns up to ``angle`` < π: does not fall with it, nor with c."""

    @abstractmethod
    def ends(self, c: float, step: float, log_tol: float) -> tuple[float, float | None]:
        """Ends beyond which a sum of step·φ·e^{A + c'L} is below e^{log_tol}, for every 0 ≤ c' ≤ c.

        The right one is None if it is far.

        Then the loss is cut there, by an event of small probability under P.
        """

    def log_beyond(self, b: float) -> float:
        """log P(t > b)."""
        raise NotImplementedError

    def beyond(self, log_mass: float) -> float:
        """A point b with P(t > b) ≤ e^log_mass."""
        raise NotImplementedError

    def reach(self, c: float, log_tol: float) -> float:
        """About where φ·e^{A + cL} has fallen below e^{log_tol} for good."""
        raise NotImplementedError

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Choose the line, the step and the ends so that every error, composed ``count`` times, is about 1e-15.

        Where the right end is far the nodes end at b. What happens beyond has probability ``lost`` under P, at most
        e^log_mass/count, and is left out of M; with ``cut`` that is the only demand on b, and the cut's own error may
        be large at large c (``log_real`` says so). Without, b also lies where the integrand at c_max is negligible.

        Raises:
            OverflowError: if the quadrature would need too many nodes.
        """
        log_count = math.log(count)
        # Nats: e^{−34} = 1.7e-15 for the rule, e^{−36} for each end, of all uses together: the 1e-15 of the docstring.
        line, log_kappa, step = trapezoid(self, c_max, log_count + 34)
        log_tol = -36 - log_count - line * line / 2
        low, end = self.ends(c_max, step, log_tol - float(self.log_kappa(np.asarray(self.mu * line), c_max)))
        high = self.beyond(log_mass - log_count) if end is None else end
        if end is None and not cut:
            high = self._past_mode(c_max, line, max(high, -low), log_tol)
        if not high - low < _MAX_NODES * step:
            raise OverflowError("the transform needs too many quadrature nodes")
        # The cut lies half a step beyond the last node.
        nodes = np.asarray(low + step * np.arange(math.ceil((high - low) / step)), dtype=np.float64)
        lost = math.exp(self.log_beyond(float(nodes[-1]) + 0.5 * step)) * (1 + 1e-9) if end is None else 0.0
        missing = quadrature_error(line, log_kappa, step) + 2 * math.exp(-36 - log_count)
        return PreparedNormalLoss(self, count, step, line, nodes, missing, lost, end is None)

    def _past_mode(self, c: float, line: float, start: float, log_tol: float) -> float:
        """The first of some points from ``start`` on at which the edge term of the integrand is below e^{log_tol}."""
        far = max(start, self.reach(c, log_tol))
        # Any point is valid, as its edge term is known: a finer search would only move the end by less.
        b = np.linspace(start, far, 129)
        good = log_edge(self, c, line, b) <= log_tol
        return float(b[int(np.argmax(good))]) if good.any() else 2 * far


def quadrature_error(line: float, log_kappa: float, step: float) -> float:
    """(1 + κe^{2a²})/(e^{2πa/h} − 1): error of the rule on Im t = a, relative to max(1, M(c)), for u ≥ 0.

    κ is that of 2μa.
    """
    return (1 + math.exp(log_kappa + 2 * line * line)) / math.expm1(2 * math.pi * line / step)


class Trapezoid(NamedTuple):
    """A rule on the line Im t = a: a, the log κ of its error, and its step."""

    line: float
    log_kappa: float
    step: float


def trapezoid(loss: NormalLoss, c: float, digits: float) -> Trapezoid:
    """The rule whose step makes (1 + κe^{2a²})/(e^{2πa/h} − 1) ≤ 2e^{−digits}, κ that of the angle 2μa < π."""
    # 2μa ≤ 3 < π; and weights on the line are e^{a²/2} ≤ 7.4 times as large, and so are their roundings. Any a is
    # valid.
    a = np.minimum(1.5 / loss.mu, 2.0) * np.linspace(0.02, 1.0, 50)
    growth = loss.log_kappa(2 * loss.mu * a, c)
    steps = 2 * math.pi * a / (digits + 2 * a * a + growth)
    best = int(np.argmax(steps))
    return Trapezoid(float(a[best]), float(growth[best]), float(steps[best]))


def log_edge(loss: NormalLoss, c: float | Floats, line: float, b: float | Floats) -> Floats:
    """log of 6a e^{2a²} κ(2μa) φ(b) max(1, e^{A + cL}), what a cut at b adds to the rule's error.

    See ``proofs/engine.md``, §5.
    """
    at = loss.logs(np.atleast_1d(np.asarray(b, dtype=np.float64)))
    log_kappa = loss.log_kappa(np.asarray(2 * loss.mu * line), np.asarray(c))
    # −0.9: log φ(b) = −b²/2 − ½ log 2π, and ½ log 2π = 0.919.
    size = math.log(6 * line) + 2 * line * line + log_kappa - 0.5 * np.square(b) - 0.9
    return np.asarray(size + np.maximum(at.density + c * at.loss, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class PreparedNormalLoss:
    """The rule: nodes t_j + ia, and what quadrature and truncation may leave out of M, relative to max(1, M(c))."""

    of: NormalLoss
    count: int
    step: float
    line: float
    nodes: Floats
    missing: float
    lost: float
    cut: bool

    def edge(self, c: Floats | float) -> Floats:
        """Error of M(c) that comes from the cut."""
        return self._edge(c, 0.0)

    def _edge(self, c: Floats | float, log_scale: Floats | float) -> Floats:
        """Return the error of M(c) that comes from the cut, over e^log_scale; ∞ where it overflows even so."""
        if not self.cut:
            return np.zeros_like(np.atleast_1d(c))
        log_error = log_edge(self.of, np.asarray(c), self.line, float(self.nodes[-1]) + 0.5 * self.step)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(log_error - log_scale))

    def _missed(self, log_m: Floats | float) -> Floats:
        """Return the quadrature error relative to M(c); a cut may leave less than 1 of it."""
        with np.errstate(over="ignore"):
            return np.asarray(self.missing * np.exp(-np.minimum(log_m, 0.0)), dtype=np.float64)

    @cached_property
    def _sum_unit(self) -> float:
        """Error constant of a sum over the nodes, in any order, of terms with a few roundings each."""
        return (self.nodes.size + 48) * UNIT

    @cached_property
    def _real(self) -> tuple[Floats, Logs[Floats]]:
        """log of the weights, and A and L, on the real line."""
        log_weights = math.log(self.step / math.sqrt(2 * math.pi)) - 0.5 * self.nodes**2
        return log_weights, self.of.logs(self.nodes)

    @cached_property
    def _rotated(self) -> tuple[Complexes, Logs[Complexes]]:
        """The log weights and the logs of the integrand on the line Im t = a: φ(t + ia) = φ(t) e^{a²/2 − iat}."""
        t, a = self.nodes, self.line
        log_weights = math.log(self.step / math.sqrt(2 * math.pi)) + 0.5 * (a - t) * (a + t) - 1j * a * t
        return log_weights, self.of.turned(t, self.of.mu * a)

    @cached_property
    def _known(self) -> dict[float, RealValues]:
        """The cache of K at single c, which a contour asks for several times."""
        return {}

    def log_real(self, c: Floats) -> RealValues:
        """K(c), from M − 1 = E[expm1(A + cL)] where M is near 1."""
        if c.size > 1:
            return self._log_real(c)
        if c[0] not in self._known:
            self._known[c[0]] = self._log_real(c)
        return self._known[c[0]]

    def _log_real(self, c: Floats) -> RealValues:
        log_weights, logs = self._real
        z, size = logs.at(c), logs.size(c)
        # Beyond 30 M is far from 1, so that nothing cancels in log M; and sums in logarithms cannot overflow.
        if float(z.max()) < 30.0:
            weights = np.exp(log_weights)
            value = np.log1p(np.expm1(z) @ weights)
            rounding = (size * np.exp(np.maximum(z, 0.0))) @ weights
        else:
            log_terms = z + log_weights
            top = log_terms.max(axis=-1)
            terms = np.exp(log_terms - top[:, None])
            total = terms.sum(axis=-1)
            value = np.log(total) + top
            rounding = 1 + (terms * (size + self.nodes**2)).sum(axis=-1) / total
        cut = np.log1p(self._edge(c, value))
        error: Floats = self._sum_unit * rounding + self._missed(value) + 4 * UNIT * np.abs(value) + cut
        return RealValues(value, error)

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """log M(c + iu)/M(c) at u = k·step, and log(1 + relative error)."""
        k_real = float(self.log_real(np.array([c])).value[0])
        log_weights, logs = self._rotated
        sign = -1.0 if self.of.conjugate else 1.0
        u = step * np.arange(size)
        z_real = logs.at(c)
        # |weight|·max(1, |e^{A + cL}|)/M(c): what the roundings scale with. A weight is off by (t² + 4) units.
        magnitude = np.exp(log_weights.real + np.maximum(z_real.real, 0.0) - k_real)
        modulus = np.hypot(c, u)

        def spread(unit: Floats | float) -> Floats:
            """Σ magnitude·(size of A + sL)·unit."""
            weights = magnitude * unit
            return np.asarray(float(weights @ logs.density_size) + modulus * float(weights @ logs.loss_size))

        cells = size * self.nodes.size
        if k_real < 1.0 and (cells <= _CHEAP_CELLS or (self.count > _SEPARABLE_COUNT and cells <= _MAX_CELLS)):
            # M − 1 = E[expm1(z)], |expm1(z)| ≤ |z|·max(1, e^{Re z}); NumPy sums a row pairwise, in blocks of 128.
            z = logs.at(np.asarray(c + 1j * sign * u, dtype=np.complex128))
            weights = np.exp(log_weights)
            terms = expm1(z) * weights
            far = z.real > 30  # there the weight may underflow while e^z overflows
            if far.any():
                terms = np.where(
                    far,
                    np.exp(np.minimum((z + log_weights).real, 700.0) + 1j * (z + log_weights).imag) - weights,
                    terms,
                )
            ratio = np.sum(terms, axis=1)
            log_m = log1p(ratio) - k_real
            error = UNIT * spread(self.nodes**2 + 60 + math.log2(self.nodes.size))
        else:
            with np.errstate(divide="ignore"):
                log_m = np.log(fan(np.exp(log_weights + z_real - k_real), sign * logs.loss, step, size))
            depth = 2 * self.nodes.size + 60
            error = UNIT * (float(magnitude @ (self.nodes**2 + depth)) + 8 * spread(1.0))
        log_m, slack = log_slack(log_m, error + float(self._missed(k_real)) + float(self._edge(c, k_real)[0]))
        return NodeValues((np.conj(log_m) if self.of.conjugate else log_m), slack)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """log of min over lines θ of G_θ(u)/M(c): the integral of absolute values, itself a trapezoid sum."""
        mu = self.of.mu
        log_weights, real = self._real
        k_real, k_error = (float(x[0]) for x in self.log_real(np.array([c])))
        at = real.at(c)
        tilted = np.exp(log_weights + at - k_real)
        # How fast L turns at the least angle: any θ is valid, and this finds a good one.
        share = np.abs(self.of.turned(self.nodes, 1e-6).loss.imag) * 1e6
        mean = float(tilted @ share)
        variance = float(tilted @ (share - mean) ** 2)
        best = np.zeros_like(u)
        edge, missed = float(self._edge(c, k_real)[0]), float(self._missed(k_real))
        # Below ½π, so that a strip of half-width ψ > 0 is left; 1.2 is empirical: any smaller angle is valid, only the
        # bound depends on it.
        theta_max = min(1.2, self.line * mu)
        gaussian = u * mean / (1 / mu**2 + u * u * variance)
        # Far out, where the loss of most uses varies less than that of a Gaussian one would, a fixed angle is better.
        for angle in (gaussian, 2.5 * gaussian, np.full_like(u, 0.75 * theta_max)):
            theta = np.minimum(angle, theta_max)
            logs = self.of.turned(self.nodes, theta[:, None])
            with np.errstate(over="ignore"):
                terms = tilted * np.exp((logs.density + c * logs.loss).real - at + 0.5 * (theta[:, None] / mu) ** 2)
                change = (terms * np.exp(-u[:, None] * np.abs(logs.loss.imag))).sum(axis=1)
            # Strip of half-width ψ for the analytic continuation of |…|: total angle at most π/2, and ψ ≤ a.
            psi = np.minimum((0.5 * math.pi - theta) / mu, self.line)
            log_kappa = self.of.log_kappa(theta + mu * psi, c)
            with np.errstate(over="ignore", divide="ignore"):
                strip = np.exp(log_kappa + 0.5 * ((theta / mu) ** 2 + psi**2)) / np.expm1(2 * math.pi * psi / self.step)
                spare = 2 * max(1.0, math.exp(-k_real)) * strip
                rounding = 4 * self._sum_unit * (2 + np.hypot(c, u)) * terms.sum(axis=1)
                best = np.fmin(best, np.log(change + spare + rounding + missed + edge))
        # M(c) is itself known up to an error.
        return np.minimum.accumulate(best + k_error)
