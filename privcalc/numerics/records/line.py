"""The sampled Gaussian's M(s; x) on a vertical line, by quadrature, for many x at once.

Here x = (norm ratio / noise multiplier)².

Rules, tails and slopes in x are those of ``proofs/audit_moments.md``, §§2–3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.elementary import expm1, log_mixture, log_rotated, log_weighted
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Complexes
from privcalc.numerics.normal_loss import quadrature_error, trapezoid
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.special import erfcx


class TableFailed(ArithmeticError):
    """M is too far from 1 on this line for its logarithm to be approximated."""


@dataclass(frozen=True)
class Line:
    """F(p + iu) = E[(1 − q + qr)^{p + iu}] on one line, p = c + 1 (remove) or −c (add); M up to conjugation."""

    q: float
    add: bool
    c: float
    step: float
    size: int
    count: int

    @property
    def s(self) -> Complexes:
        """The nodes."""
        return np.asarray(self.c + 1j * self.step * np.arange(self.size), dtype=np.complex128)

    @property
    def power(self) -> float:
        """p."""
        return -self.c if self.add else self.c + 1

    def excess(self, x: Floats, size: int) -> tuple[Complexes, Floats]:
        """M − 1 at the first ``size`` nodes for every x, shape (x, size), and a bound of its error."""
        p, rule = self.power, Rule.of(self, x, 20_000)
        u = self.step * np.arange(size)
        z = (p + 1j * u)[:, None] * rule.log[:, None, :]
        if not z.real.max() < 600:
            raise TableFailed("the transform overflows")
        size_of = np.exp(rule.log_size)
        value = expm1(z) @ (size_of * np.exp(-1j * rule.height * rule.t))
        large = np.exp(np.maximum(p * rule.log.real, 0.0))
        rounding = UNIT * ((large * rule.spread) @ (size_of * (rule.t**2 + 2 * rule.t.size + 60)))
        return value, np.hypot(p, u) * rounding[:, None] + (rule.missed(value[:, 0])[:, None]) * (1 + 1e-6)

    def distance(self, v: float) -> Floats:
        """Bounds of E_v|(1 − q + qr)^{p + iu} − 1| at every node, by midpoints of cells.

        The integrand's slope is bounded.
        """
        mu, p, d = math.sqrt(v), self.power, 0.02
        high = 9.0 + (0.0 if self.add else p * mu)
        low = -9.0 - (math.sqrt(-2 * self.c * math.log1p(-self.q)) if self.add else 0.0)
        t = np.arange(low, high, d)
        log = log_mixture(mu, self.q, t)
        size = np.abs(p + 1j * self.step * np.arange(self.size))
        # Over a cell log(1 − q + qr) moves by at most μd/2 and log φ by |t|d/2 + d²/8.
        z = np.abs(log) + 0.5 * mu * d * np.minimum(
            1.0, self.q * np.exp(np.minimum(mu * (t + 0.5 * d) - 0.5 * v, 600.0)) / (1 - self.q)
        )
        large = np.maximum(p * log + abs(p) * (z - np.abs(log)), 0.0)
        weights = d / math.sqrt(2 * math.pi) * np.exp(large - 0.5 * t * t + 0.5 * d * np.abs(t))
        terms = np.minimum(size[:, None] * z, 1 + np.exp(-large))
        ends = (
            float(self.beyond(np.array([v]), float(t[-1]))[0])
            + 2e-19 * (1 + (1 - self.q) ** min(p, 0.0))
            + (2e-19 if self.add else 0.0)
        )
        return np.asarray((terms @ weights + 2 * ends) * (1 + 1e-9), dtype=np.float64)

    def beyond(self, x: Floats, b: float) -> Floats:
        """∫_{t > b} φ(t)(1 + (1 − q + qr)^p) dt for b > pμ, by r(t) ≤ r(b)e^{μ(t − b)}."""
        mu = np.sqrt(x)
        log = log_mixture_rows(mu[:, None], self.q, np.array([b]))[:, 0] * (1 + 1e-12) + 1e-12
        mills = math.sqrt(math.pi / 2) * erfcx(np.maximum(b - self.power * mu, 0.0) / math.sqrt(2))
        return np.asarray((math.exp(-0.5 * b * b) + np.exp(self.power * log - 0.5 * b * b)) * mills, dtype=np.float64)

    def slopes(self, v: Floats) -> Floats:
        """Bounds of ∂M(c; x)/∂x for 0 ≤ x ≤ v.

        As M'' ≥ −M', a difference quotient is one (``proofs/audit_moments.md``, §2).
        """
        h = v / 4
        value, error = self.excess(np.concatenate([v, v + h]), 1)
        here, far = np.split(value[:, 0].real, 2)
        rise = far - here + error[: v.size, 0] + error[v.size :, 0]
        return np.asarray(rise / h * np.exp(h + (v if self.add else 0.0)) * (1 + 1e-9), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Rule:
    """The trapezoid rule for M − 1 or M on the line Im t = height, one for all x (``proofs/engine.md``, §4).

    Attributes:
        line: the line of s.
        x: (norm ratio / noise multiplier)², shape (n,).
        t: real parts of the nodes, shape (J,).
        log: log(1 − q + qr) at the nodes, shape (n, J).
        log_size: log of |weight·φ| at the nodes, shape (J,).
        spread: what the roundings of a power scale with, shape (n, J).
        height: a.
        log_kappa: log κ.
        step: distance of the nodes.
    """

    line: Line
    x: Floats
    t: Floats
    log: Complexes
    log_size: Floats
    spread: Floats
    height: float
    log_kappa: float
    step: float

    @classmethod
    def of(cls, line: Line, x: Floats, most: int) -> Rule:
        """The rule for these x; OverflowError where more than ``most`` nodes are needed."""
        mu = np.sqrt(x)[:, None]
        top = float(mu.max())
        a, log_kappa, h = trapezoid(SampledGaussianTransform(top, line.q, line.add), line.c, math.log(line.count) + 31)
        low = -9.0 - (math.sqrt(-2 * line.c * math.log1p(-line.q)) if line.add else 0.0)
        high = 9.0 + (0.0 if line.add else line.power * top)
        if not high - low < most * h:
            raise OverflowError("the transform needs too many quadrature nodes")
        t = np.asarray(low + h * np.arange(math.ceil((high - low) / h) + 1), dtype=np.float64)
        log = log_rotated(mu, line.q, t[None, :], mu * a)
        # log(1 − q + qr) inherits the rounding of μt − μ²/2 through w = qr/(1 − q + qr).
        share = np.abs(1 - (1 - line.q) * np.exp(-log))
        spread = np.abs(log) + 0.1 * share * (np.abs(mu * t) + mu * mu)
        log_size = math.log(h / math.sqrt(2 * math.pi)) + 0.5 * (a - t) * (a + t)
        return cls(line, x, t, log, log_size, spread, a, log_kappa, h)

    def missed(self, first: Complexes) -> Floats:
        """What the rule and its two ends miss, shape (n,); ``first`` is its value at the first node."""
        a, line = self.height, self.line
        worst = math.cos(0.5 * math.sqrt(float(self.x.max())) * a) ** -line.c if line.add else 1.0
        left = 2e-19 * math.exp(0.5 * a * a) * (worst + 1)
        right = left if line.add else math.exp(0.5 * a * a) * line.beyond(self.x, float(self.t[-1]) - self.step)
        return np.asarray(quadrature_error(a, self.log_kappa, self.step) * (2 + np.abs(first)) + left + right)


def log_mixture_rows(mu: Floats, q: float, t: Floats) -> Floats:
    """log(1 − q + qe^{μt − μ²/2}) for a column of μ."""
    return log_weighted(q, mu * t - 0.5 * mu * mu)
