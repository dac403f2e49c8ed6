"""The transform of a Poisson-sampled Gaussian, restricted to a band of its noise variable: remove direction only.

A use has t ~ N(0, 1) or, with probability q, N(μ, 1). Give it a mark that says in which band t + wξ lies, ξ ~ N(0, 1)
apart: with Φ-edges of width w instead of sharp ones everything stays analytic. With r(t) = e^{μt − μ²/2}, the transform
of the measure of the uses marked (low, high] is

    M(s) = F(s + 1),   F(p) = ∫ φ(t) (1 − q + q r)^p β(t) dt,
    β(t) = Φ((high − t)/w) − Φ((low − t)/w) = P(low < t + wξ ≤ high).

Because |β(t + iy)| ≤ e^{y²/2w²} β(t), the rotated trapezoid rule of ``normal_loss.py`` works as it does there. The
lowest band, low = −∞, holds nearly every use; for it M − 1 is computed. What lies beyond the last node belongs to no
band: there β is less than tiny, but (1 − q + q r)^p would grow faster than β falls. Proofs: ``proofs/jumps.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcalc.numerics.elementary import expm1, fan, log1p, log_mixture, log_rotated, rotated_size
from privcalc.numerics.floats import UNIT, Complexes, Floats
from privcalc.numerics.interfaces import NodeValues, RealValues, RouteFailed, log_slack
from privcalc.numerics.special import log_ndtr, log_normal_tail, wofz

_DIGITS = 33.0
"""−log of the quadrature error of all uses."""

_PHI_ERROR = 2e-12
"""Relative error of a computed Φ(z), next to 8|z|² units for its exponent."""

_TILT = 300.0
"""e to this power is the most by which jumps in a band are ever favoured over none."""

_LINES = (0.5, 1.0, 2.5)
"""Angles θ for the decay, relative to the best for a normal loss; low ones, with a small error, are tried too."""

_MAX_NODES = 20_000

_MAX_CELLS = 20_000_000
_BLOCK = 400_000
_NEGLIGIBLE = 110.0


@dataclass(frozen=True)
class Band:
    """The rule for one band, good for real parts up to about ``c_ref``; beyond, the stated errors grow."""

    mu: float
    q: float
    low: float
    high: float
    blur: float
    count: int
    c_ref: float
    log_far: float = 0.0
    """log of the probability, in one use, that may lie beyond the last node."""
    lost: float = 0.0

    @property
    def _bulk(self) -> bool:
        return self.low == -math.inf

    @cached_property
    def _line(self) -> tuple[float, float, float]:
        """Height a of the line, step of the rule, and its error relative to F(p) (``proofs/jumps.md``, §3)."""
        a, v = min(2 * self.blur, 1.5 / self.mu), 1 + self.blur**-2
        step = 2 * math.pi * a / (_DIGITS + math.log(self.count) + 2 * a * a * v)
        return a, step, (1 + math.exp(2 * a * a * v)) / math.expm1(2 * math.pi * a / step)

    @cached_property
    def nodes(self) -> Floats:
        """Nodes from where the band is negligible at c = 0 to beyond its edge, where it is so at ``c_ref``."""
        w, depth = self.blur, _DIGITS + 10 + math.log(self.count)
        digits = math.sqrt(2 * depth)
        start = -digits if self._bulk else self.low / (1 + w * w) - digits * w
        reach = float(log_mixture(self.mu, self.q, np.array([self.high]))[0])
        p = min(2 * self.c_ref, _TILT / max(reach, 1e-300)) + 1
        most = max(digits, math.sqrt(2 * max(-self.log_far, 0.0))) * w
        x = np.geomspace(0.1 * w, p * self.mu * w * w + most, 400)
        rise = log_mixture(self.mu, self.q, self.high + x) - reach
        fall = 0.5 * (x / w) ** 2 + 0.5 * x * (x + 2 * max(self.high, 0.0))
        enough = (fall - p * rise >= depth) & (self._log_far(self.high + x) <= self.log_far)
        end = self.high + float(x[np.argmax(enough)] if enough.any() else x[-1])
        step = self._line[1]
        size = math.ceil((end - start) / step)
        if not size < _MAX_NODES:
            raise RouteFailed("a band needs too many nodes")
        return np.asarray(start + step * np.arange(size), dtype=np.float64)

    def _log_far(self, t: Floats) -> Floats:
        """A bound of log P(t' > t, t' + wξ ≤ high), t' being the noise of a use; t ≥ high."""
        outside = np.logaddexp(
            math.log1p(-self.q) + log_normal_tail(t), math.log(self.q) + log_normal_tail(t - self.mu)
        )
        return np.asarray(outside - 0.5 * ((t - self.high) / self.blur) ** 2, dtype=np.float64)

    @property
    def far(self) -> float:
        """The probability that a use would be in the band, and lies beyond it."""
        return math.exp(float(self._log_far(self._end)[0])) * (1 + 1e-9)

    @property
    def _end(self) -> Floats:
        """Half a step after the last node, where the band ends."""
        return self.nodes[-1:] + 0.5 * self._line[1]

    def log_mass(self) -> float:
        """log P(low < t + wξ ≤ high), for low > −∞ bounded by what lies above low."""
        return 0.0 if self._bulk else log_beyond(self.mu, self.q, self.low, self.blur)

    def edge(self, c: Floats | float) -> Floats:
        """Nothing is left out sharply."""
        return np.zeros_like(np.atleast_1d(c))

    def _edges(self, t: Floats) -> list[tuple[float, Floats]]:
        """(edge, log of Φ(±(edge − t)/w)) for both edges, with the sign that is small on the side of t."""
        if self._bulk:
            return [(self.high, np.asarray(log_ndtr((t - self.high) / self.blur), dtype=np.float64))]
        side = np.where(t < 0.5 * (self.low + self.high), 1.0, -1.0)
        return [(b, np.asarray(log_ndtr(side * (t - b) / self.blur), dtype=np.float64)) for b in (self.low, self.high)]

    @cached_property
    def _log_beta(self) -> tuple[Floats, Floats]:
        """log β on the real line, and log of the sum of the Φ it is a difference of."""
        t = self.nodes
        logs = [log for _, log in self._edges(t)]
        if self._bulk:
            return np.asarray(log_ndtr((self.high - t) / self.blur), dtype=np.float64), logs[0]
        near, far = np.maximum(*logs), np.minimum(*logs)
        return near + np.log(-np.expm1(np.minimum(far - near, -1e-300))), near + np.log1p(np.exp(far - near))

    @cached_property
    def _beta_error(self) -> Floats:
        """Error of β relative to the sum of the Φ.

        For the bulk it is relative to β, which is 1 less a small Φ on the left.
        """
        z2 = (
            np.max([((self.nodes - b) / self.blur) ** 2 for b in (self.low, self.high) if math.isfinite(b)], axis=0) + 4
        )
        error = _PHI_ERROR + 8 * UNIT * z2
        if self._bulk:
            error = error * np.exp(np.minimum(self._log_beta[1] - self._log_beta[0], 0.0))
        return np.asarray(error, dtype=np.float64)

    @cached_property
    def _beta(self) -> Complexes:
        """Log β on the line Im t = a (for the bulk: where 1 − β is small, log(1 − (1 − β)))."""
        t, a, w = self.nodes, self._line[0], self.blur
        if self._bulk:
            z = (t - self.high + 1j * a) / w
            small = t < self.high
            inner = np.exp(_log_phi(np.where(small, z, -z)))
            return np.where(small, log1p(-np.where(small, inner, 0.0)), _log_phi(np.where(small, -1.0, -z)))
        side = np.where(t < 0.5 * (self.low + self.high), 1.0, -1.0)
        one, two = (_log_phi(side * (t - b + 1j * a) / w) for b in (self.low, self.high))
        near, far = np.where(side > 0, one, two), np.where(side > 0, two, one)
        return np.asarray(near + log1p(-np.exp(far - near)), dtype=np.complex128)

    @cached_property
    def _real(self) -> tuple[Floats, Floats]:
        """log of step·φ, and log(1 − q + qr), on the real line."""
        t = self.nodes
        return math.log(self._line[1] / math.sqrt(2 * math.pi)) - 0.5 * t * t, log_mixture(self.mu, self.q, t)

    @cached_property
    def _log_outside(self) -> float:
        """log Q(t + wξ > high), for the bulk."""
        return float(log_normal_tail(np.array([self.high / math.sqrt(1 + self.blur**2)]))[0])

    def _log_ends(self, p: Floats, k: Floats) -> Floats:
        """log of the errors that come from both ends of the nodes, relative to F(p) = e^k.

        On the left G(start)/κ, where log G falls by at least κ beyond; on the right, where the band ends, the path of
        the integral from the real line to Im t = 2a. For the bulk, of which E[(…)^p − 1] is summed, both parts.
        """
        ends = np.append(self.nodes[:1], self._end)
        log_g = -0.5 * ends**2
        pull = -ends[0]
        if not self._bulk:
            pull += (self.low - ends[0]) / self.blur**2
            log_g[0] -= 0.5 * ((self.low - ends[0]) / self.blur) ** 2
        log_g[1] -= 0.5 * ((self.high - ends[1]) / self.blur) ** 2
        logs = log_mixture(self.mu, self.q, ends)
        a, step, _ = self._line
        path = 2 * a * a * (1 + self.blur**-2) + math.log(a + step)
        power = np.multiply.outer(p, logs)
        if self._bulk:
            power, path = np.maximum(power, 0.0) + math.log(2), float(np.logaddexp(path, 1.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            left = log_g[0] + power[:, 0] - math.log(pull)
            right = log_g[1] + power[:, 1] + path
        return np.asarray(np.logaddexp(left, right) - k, dtype=np.float64)

    def log_real(self, c: Floats) -> RealValues:
        """K(c) and a bound on its error; ∞ where the nodes do not reach."""
        (log_weights, log), (log_beta, log_sum) = self._real, self._log_beta
        p = np.asarray(c, dtype=np.float64) + 1.0
        z = np.multiply.outer(p, log)
        t2 = self.nodes**2
        if self._bulk and float((z + log_weights + log_beta).max()) < 30.0:
            log_terms = z + (log_weights + log_beta)
            tilted = np.exp(log_terms)
            weights = np.exp(log_weights + log_beta)
            terms = np.where(z < 1, np.expm1(np.minimum(z, 1.0)) * weights, tilted - weights)
            outside = math.exp(self._log_outside)
            value = np.log1p(np.maximum(terms.sum(axis=1) - outside, -0.9))
            spread = np.abs(z) * np.maximum(tilted, weights)
            rounding = (spread @ (t2 + self.nodes.size + 60)) * UNIT + 1e-13 * outside
            rounding += 2 * np.maximum(tilted, weights) @ self._beta_error
            rounding = rounding * np.exp(-value)
        else:
            log_terms = z + (log_weights + log_beta)
            top = log_terms.max(axis=1)
            terms = np.exp(log_terms - top[:, None])
            total = terms.sum(axis=1)
            value = np.log(total) + top
            blurred = np.exp(log_sum - log_beta) if not self._bulk else np.ones_like(log)
            rounding = (
                (terms @ (t2 + np.abs(log_beta) + self.nodes.size + 60) + (terms * np.abs(z)).sum(axis=1)) * 4 * UNIT
            )
            rounding = (rounding + terms @ (blurred * self._beta_error)) / total + 4 * UNIT * np.abs(top)
        with np.errstate(over="ignore"):
            extra = rounding + self._line[2] * (1 + self._bulk * np.exp(-value)) + np.exp(self._log_ends(p, value))
        return RealValues(
            value, np.where(extra < 0.5, extra / (1 - np.minimum(extra, 0.5)) + 4 * UNIT * np.abs(value), math.inf)
        )

    @cached_property
    def _rotated(self) -> tuple[Complexes, Complexes, Floats]:
        """log of step·φ·β on the line, log(1 − q + qr) there, and a bound of log |step·φ·β| before differences."""
        t, a = self.nodes, self._line[0]
        log_weights = math.log(self._line[1] / math.sqrt(2 * math.pi)) + 0.5 * (a - t) * (a + t) - 1j * a * t
        blurred = self._log_beta[0 if self._bulk else 1]
        bound = log_weights.real + blurred + 0.5 * (a / self.blur) ** 2
        return log_weights + self._beta, log_rotated(self.mu, self.q, t, self.mu * a), bound

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """log M(c + iu)/M(c) at u = k·step, and log(1 + relative error)."""
        p, u = c + 1.0, step * np.arange(size)
        k_real, k_error = (float(x[0]) for x in self.log_real(np.array([c])))
        if not k_error < 1:
            raise RouteFailed("a band is not known at the saddle")
        log_weights, log, bound = self._rotated
        bound = bound - k_real
        log_size = bound + p * log.real
        log_size = np.maximum(log_size, bound) if self._bulk else log_size
        kept = log_size > -_NEGLIGIBLE
        if not kept.any():
            raise RouteFailed("a band is out of range")
        dropped = float(np.exp(log_size[~kept]).sum())
        t, log_weights, log, magnitude = self.nodes[kept], log_weights[kept], log[kept], np.exp(log_size[kept])
        spread = rotated_size(self.mu, self.q, t, log)
        a, _, quadrature = self._line
        factor = math.exp(0.5 * a * a * (1 + self.blur**-2))
        missing = quadrature * (1 + self._bulk * math.exp(-k_real)) + dropped
        missing += factor * math.exp(float(self._log_ends(np.array([p]), np.array([k_real]))[0]))
        error = float(magnitude @ self._beta_error[kept]) * (1 + self._bulk)
        if self._bulk and k_real < 1.0:
            if size * t.size > _MAX_CELLS:
                raise RouteFailed("the bulk needs too many evaluations")
            outside = math.exp(self._log_outside)
            ratio = np.empty(size, dtype=np.complex128)
            near, weights = p * log.real + np.abs(log) < 0.7, np.exp(log_weights)
            rows = max(1, _BLOCK // t.size)
            for i in range(0, size, rows):
                s = p + 1j * u[i : i + rows]
                ratio[i : i + rows] = np.sum(expm1(np.multiply.outer(s, log[near])) * weights[near], axis=1)
                far = np.exp(np.multiply.outer(s, log[~near]) + log_weights[~near]) - weights[~near]
                ratio[i : i + rows] += np.sum(far, axis=1)
            log_m = log1p(ratio - outside) - k_real
            depth = 60 + math.log2(t.size)
            rounding = UNIT * np.hypot(p, u) * float(
                magnitude @ (spread * (t**2 + depth))
            ) + 1e-13 * outside * math.exp(-k_real)
        else:
            with np.errstate(divide="ignore"):
                log_m = np.log(fan(np.exp(log_weights + p * log - k_real), log, step, size))
            sizes = t**2 + np.abs(self._log_beta[0][kept]) + 2 * t.size + 60 + 4 * abs(k_real)
            rounding = UNIT * (float(magnitude @ sizes) + 8 * np.hypot(p, u) * float(magnitude @ spread))
        return log_slack(log_m, rounding + error + missing)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """log of min over lines θ of G_θ(u)/M(c) (``proofs/jumps.md``, §4)."""
        mu, q, w, p = self.mu, self.q, self.blur, c + 1.0
        (log_weights, real_log), (log_beta, log_sum) = self._real, self._log_beta
        k_real, k_error = (float(x[0]) for x in self.log_real(np.array([c])))
        common = log_weights + p * real_log - k_real
        log_bump = common - 0.5 * ((self.nodes - self.high) / w) ** 2 - 0.9
        kept = np.maximum(common + log_beta, log_bump) > -_NEGLIGIBLE
        if not kept.any():
            raise RouteFailed("a band is out of range")
        dropped = float(np.exp((common + np.logaddexp(log_beta, log_bump - common))[~kept]).sum())
        t, real_log, bump = self.nodes[kept], real_log[kept], np.exp(log_bump)[kept]
        off = np.exp(common + (log_beta if self._bulk else log_sum)) * self._beta_error
        tilted = (np.exp(common + log_beta) + 2 * off)[kept]
        with np.errstate(over="ignore"):
            share = 1 / (1 + (1 - q) / q * np.exp(0.5 * mu * mu - mu * t))
        mean = float(tilted @ share)
        variance = float(tilted @ (share - mean) ** 2)
        v = 1 + w**-2
        best = np.zeros_like(u)
        ends = math.exp(float(self._log_ends(np.array([p]), np.array([k_real]))[0]))
        pull = (1.0 if self._bulk else v) / mu**2
        best_angle, first_angle = u * mean / (pull + u * u * variance), u * mean / pull
        soft = self._softest(tilted, bump)
        for angle, most in (
            *((factor * best_angle, 1.2) for factor in _LINES),
            (first_angle, soft),
            (first_angle, 3 * soft),
        ):
            theta = np.minimum(angle, min(most, 1.2))
            y = theta / mu
            log = log_rotated(mu, q, t, theta[:, None])
            psi = np.minimum((0.5 * math.pi - theta) / mu, 4 * w)
            with np.errstate(over="ignore", invalid="ignore"):
                if self._bulk:
                    total = np.exp(0.5 * y[:, None] ** 2) * (
                        tilted + (y / w * np.exp(0.5 * (y / w) ** 2))[:, None] * bump
                    )
                else:
                    total = np.exp(0.5 * v * y[:, None] ** 2) * tilted
                flat = total.sum(axis=1)
                terms = total * np.exp(p * (log.real - real_log))
                change = (terms * np.exp(-u[:, None] * log.imag)).sum(axis=1)
                spare = 4 * flat * np.exp(0.5 * v * psi**2) / np.expm1(2 * math.pi * psi / self._line[1])
                # Every term is positive, and known to this relative error.
                reach = np.abs(log).max() + mu * np.abs(t).max() + mu * mu
                relative = UNIT * (t.size + 800 + float(np.max(t * t)) + 16 * np.hypot(p, u) * reach)
                change = change * (1 + relative) + flat * np.exp(-600.0)
                best = np.fmin(best, np.log(change + spare + (ends + dropped) * (1 + y / w) * np.exp(0.5 * v * y * y)))
        return np.minimum.accumulate(best + k_error)

    def _softest(self, tilted: Floats, bump: Floats) -> float:
        """The angle up to which the bulk's edge is not felt on a line.

        A band is all edges: for it the angle is a low one.
        """
        if not self._bulk:
            return 0.3
        return (
            self.mu
            * self.blur
            * math.sqrt(2 * max(math.log(float(tilted.sum()) / max(float(bump.sum()), 1e-300)), 1.0))
        )


def _log_phi(z: Complexes) -> Complexes:
    """log Φ(z) for Re z ≤ 0: Φ(z) = ½ e^{−z²/2} w(−iz/√2), w the Faddeeva function (Abramowitz, Stegun 7.1.3)."""
    return np.asarray(-0.5 * z * z + np.log(0.5 * wofz(-1j * z / math.sqrt(2))), dtype=np.complex128)


def log_beyond(mu: float, q: float, edge: float, blur: float) -> float:
    """log P(t + wξ > edge) of one use."""
    spread = math.sqrt(1 + blur * blur)
    tails = log_normal_tail(np.array([edge, edge - mu]) / spread) + np.array([math.log1p(-q), math.log(q)])
    return float(np.logaddexp(tails[0], tails[1]))
