"""The transforms of the Poisson-sampled Gaussian in its three orders.

With t ~ N(0, 1), r(t) = e^{μt − μ²/2} and w = 1 − q + qr:

    remove (mixture against base):  M(s) = E[w(t)^{s+1}],
    add (base against mixture):     M(s) = E[w(t)^{−s}],
    two opposite records:           M(s) = E[w(t)^{s+1} w(−t)^{−s}].

Where r turns by an angle α, 0 ≤ α < π, arg w lies in [0, α] and rises up to π/2. Proofs: ``proofs/engine.md``, §§4–6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.elementary import log_mixture, log_rotated, rotated_size
from privcalc.numerics.floats import Complexes, Floats
from privcalc.numerics.normal_loss import Logs, NormalLoss
from privcalc.numerics.special import log_normal_tail


@dataclass(frozen=True)
class SampledGaussianTransform(NormalLoss):
    """N(μ, 1) against N(0, 1), sampled with probability q < 1, in one of its two directions."""

    mu: float
    q: float
    add: bool

    @property
    def conjugate(self) -> bool:
        """L = −log w in the add direction."""
        return self.add

    def logs(self, t: Floats) -> Logs[Floats]:
        """A = L = log w, or A = 0 and L = −log w."""
        log = log_mixture(self.mu, self.q, t)
        size = np.abs(log)
        return Logs(np.zeros_like(log), -log, np.zeros_like(log), size) if self.add else Logs(log, log, size, size)

    def turned(self, t: Floats, angle: float | Floats) -> Logs[Complexes]:
        """A and L on the line Im t = angle/μ."""
        log = log_rotated(self.mu, self.q, t, angle)
        size = rotated_size(self.mu, self.q, t, log)
        return Logs(np.zeros_like(log), -log, np.zeros_like(size), size) if self.add else Logs(log, log, size, size)

    def log_kappa(self, angle: Floats, c: float | Floats) -> Floats:
        """κ = 1, or that of w^{−c}."""
        return _log_kappa(self.q, angle, c) if self.add else np.zeros_like(angle)

    def ends(self, c: float, step: float, log_tol: float) -> tuple[float, float | None]:
        """On the left r ≤ 1; in the add direction w^{−c} is below a tangent there, and at most 1 from μ/2 on."""
        z = math.sqrt(-2 * log_tol)
        if not self.add:
            return -z - step, None
        mu, q = self.mu, self.q
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

    def log_beyond(self, b: float) -> float:
        return _log_beyond(self.mu, self.q, b)

    def beyond(self, log_mass: float) -> float:
        return _beyond(self.mu, self.q, log_mass)

    def reach(self, c: float, log_tol: float) -> float:
        """Beyond (c + 1)μ + z the second mode, q r^{c+1} φ, has fallen below the tolerance too."""
        excess = max(math.log(self.q) + 0.5 * c * (c + 1) * self.mu**2 - log_tol + 8, 0.0)
        return (c + 1) * self.mu + math.sqrt(2 * excess) + 4


@dataclass(frozen=True)
class OppositeGaussianTransform(NormalLoss):
    """(1 − q)N(0, 1) + qN(μ, 1) against (1 − q)N(0, 1) + qN(−μ, 1), q < 1: two opposite records."""

    mu: float
    q: float

    def logs(self, t: Floats) -> Logs[Floats]:
        """A = log w(t), L = log w(t) − log w(−t)."""
        up, down = log_mixture(self.mu, self.q, t), log_mixture(self.mu, self.q, -t)
        return Logs(up, up - down, np.abs(up), np.abs(up) + np.abs(down))

    def turned(self, t: Floats, angle: float | Floats) -> Logs[Complexes]:
        """A and L at t + ia: −(t + ia) turns r by −θ, so that Im L is a sum of two angles ≥ 0."""
        up, down = log_rotated(self.mu, self.q, t, angle), log_rotated(self.mu, self.q, -t, -angle)
        up_size, down_size = rotated_size(self.mu, self.q, t, up), rotated_size(self.mu, self.q, -t, down)
        return Logs(up, up - down, up_size, up_size + down_size)

    def log_kappa(self, angle: Floats, c: float | Floats) -> Floats:
        """κ is that of w(−t)^{−c}, as |w(t)|^{c+1} does not grow."""
        return _log_kappa(self.q, angle, c)

    def ends(self, c: float, step: float, log_tol: float) -> tuple[float, float | None]:
        """For t ≤ −μ/2 r(t) ≤ 1 ≤ r(−t), and e^{A + cL} ≤ 1."""
        return -max(math.sqrt(-2 * log_tol), 0.5 * self.mu) - step, None

    def log_beyond(self, b: float) -> float:
        """P is the mixture."""
        return _log_beyond(self.mu, self.q, b)

    def beyond(self, log_mass: float) -> float:
        """P is the mixture."""
        return _beyond(self.mu, self.q, log_mass)

    def reach(self, c: float, log_tol: float) -> float:
        """The modes of w(t)^{c+1} ≤ 1 − q + q r(t)^{c+1} times w(−t)^{−c}.

        The latter is at most (1 − q)^{−c} or 1 − q + q r(−t)^{−c}.
        """
        log_q, stay, square = math.log(self.q), math.log1p(-self.q), 0.5 * self.mu**2

        def end(*modes: tuple[float, float]) -> float:
            return max(order * self.mu + math.sqrt(2 * max(size - log_tol + 8, 0.0)) for order, size in modes) + 4

        one = log_q + c * (c + 1) * square
        flat = end((0.0, -c * stay), (c + 1, one - c * stay))
        return min(flat, end((0.0, 0.0), (c, one), (c + 1, one), (2 * c + 1, 2 * log_q + 4 * c * (c + 1) * square)))


def _log_kappa(q: float, angle: Floats, c: float | Floats) -> Floats:
    """log of (cos ½α)^{−c} or, for α ≤ ½π and q ≤ ½, 2(1 − 2q(1 − q)(1 − cos α))^{−c/2} (``proofs/engine.md``, §4)."""
    wide = -c * np.log(np.cos(0.5 * angle))
    rare = math.log(2) - 0.5 * c * np.log1p(-4 * q * (1 - q) * np.sin(0.5 * angle) ** 2)
    return np.asarray(np.where((angle <= 0.5 * math.pi) & (q <= 0.5), np.minimum(wide, rare), wide), dtype=np.float64)


def _log_beyond(mu: float, q: float, b: float) -> float:
    """log P(t > b) for the mixture."""
    tails = log_normal_tail(np.array([b, b - mu])) + np.array([math.log1p(-q), math.log(q)])
    return float(np.logaddexp(tails[0], tails[1]))


def _beyond(mu: float, q: float, log_mass: float) -> float:
    """A point b with P(t > b) ≤ e^log_mass: both normal tails by Φ(−z) ≤ e^{−z²/2}/2."""
    z = math.sqrt(2 * max(-log_mass, 0.0))
    shifted = mu + math.sqrt(2 * max(math.log(q) - log_mass, 0.0))
    return max(z, shifted)
