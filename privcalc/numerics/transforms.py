"""Transforms M(s) = E_P[e^{sL}] on a vertical line, with certified errors.

The contour route (``contour.py``) asks three things of a transform, for Re s = c > 0:

* ``log_real(c)``: K(c) = log M(c) on the real axis, with a bound on its absolute error;
* ``log_nodes(c, u)``: log M(c + iu)/M(c) at many u, with a bound on its error;
* ``log_decay(c, u)``: a non-increasing bound on log |M(c + iu')|/M(c), valid for all u' ≥ u.

``prepare(c_max, count)`` fixes the precision: errors must stay small after ``count``-fold composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.elementary import expm1, fan, log1p, log_weighted
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import (
    ClosedTransform,
    NodeValues,
    PeriodicTransform,
    Points,
    Prepared,
    RealValues,
    SplitValues,
    Transform,
    log_slack,
)


@dataclass(frozen=True)
class GaussianTransform(ClosedTransform):
    """N(μ, 1) against N(0, 1): K(s) = μ² s (s + 1)/2 (Dong, Roth, Su 2022, §2.3)."""

    mu: float

    def log_real(self, c: Floats) -> RealValues:
        value = 0.5 * self.mu**2 * c * (c + 1)
        return RealValues(value, 16 * UNIT * value)

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """K(c + iu) − K(c) = μ²(−u² + i(2c + 1)u)/2."""
        u = step * np.arange(size)
        value = 0.5 * self.mu**2 * (-u * u + 1j * (2 * c + 1) * u)
        return NodeValues(value, 16 * UNIT * np.abs(value))

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Return −μ²u²/2, which is exact."""
        return -0.5 * self.mu**2 * u * u


@dataclass(frozen=True)
class LaplaceTransform(ClosedTransform):
    """Laplace at distance a (in units of its scale): atoms at ±a and a density between them.

    M(s) = [e^{sa} + e^{−(s+1)a}]/2 + [e^{sa} − e^{−(s+1)a}]/(2(2s + 1)): integrate e^{sL} over the three pieces of the
    line (Mironov 2017, Table II, at α = s + 1). The atoms keep |M| from decaying; the bound on it is that of the two
    terms.
    """

    a: float

    def log_real(self, c: Floats) -> RealValues:
        """K(c) = ca + log[((c + 1) + c e^{−(2c+1)a})/(2c + 1)]."""
        value = c * self.a + np.log1p(c * np.expm1(-(2 * c + 1) * self.a) / (2 * c + 1))
        return RealValues(value, 8 * UNIT * (1 + c * self.a))

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """log of [((s + 1) + s e^{−(2s+1)a})/(2s + 1)] e^{sa}, relative to its value at s = c."""
        u = step * np.arange(size)
        s = c + 1j * u
        a = self.a
        value = ((s + 1) + s * np.exp(-(2 * s + 1) * a)) / (2 * s + 1)
        scale = 1 + c * np.expm1(-(2 * c + 1) * a) / (2 * c + 1)
        error = 16 * UNIT * (2 + (2 * np.abs(s) + 1) * a)
        with np.errstate(divide="ignore"):
            return log_slack(np.log(value / scale) + 1j * u * a, error / scale)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """|M(c + iu)| ≤ [e^{ca} + e^{−(c+1)a}]·[1 + 1/|2s + 1|]/2."""
        bound = 0.5 * (1 + np.exp(-(2 * c + 1) * self.a)) * (1 + 1 / np.hypot(2 * c + 1, 2 * u))
        scale = 1 + c * np.expm1(-(2 * c + 1) * self.a) / (2 * c + 1)
        return np.asarray(np.minimum(np.log(bound / scale), 0.0), dtype=np.float64)

    @property
    def points(self) -> Points:
        """The atoms of the loss at ±a."""
        return Points(np.array([-self.a, self.a]), np.array([0.5 * math.exp(-self.a), 0.5]), 8 * UNIT * (1 + self.a))

    def rest_profile(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Return δ and its slope without the atoms (:func:`middle_profile`)."""
        return middle_profile(self.a, 1.0, epsilon, add=False)

    def rest_decay(self, c: float, u: Floats) -> Floats:
        """|D(c + iu)| ≤ [e^{ca} + e^{−(c+1)a}]/(2|2s + 1|)."""
        scale = 1 + c * math.expm1(-(2 * c + 1) * self.a) / (2 * c + 1)
        return np.asarray(0.5 * (1 + math.exp(-(2 * c + 1) * self.a)) / np.hypot(2 * c + 1, 2 * u) / scale)

    def split_nodes(self, c: float, step: float, size: int) -> SplitValues:
        """Return the atoms and the rest at u = 0, step, …, shape (size,), in closed form."""
        u = step * np.arange(size)
        s = c + 1j * u
        scale = 1 + c * math.expm1(-(2 * c + 1) * self.a) / (2 * c + 1)
        turn, other = np.exp(1j * u * self.a) / scale, np.exp(-(2 * s + 1) * self.a)
        error = 16 * UNIT * (2 + (2 * np.abs(s) + 1) * self.a) / scale
        return SplitValues(0.5 * turn * (1 + other), 0.5 * turn * (1 - other) / (2 * s + 1), error)


@dataclass(frozen=True, eq=False)
class DiscreteTransform:
    """M(s) = Σ_j p_j e^{sL_j} for finitely many losses and masses, each within ``blur``.

    For masses this is relative.

    The masses sum to 1, up to ``lost``.
    """

    masses: Floats
    losses: Floats
    blur: float
    lost: float = 0.0

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Leave out the smallest masses."""
        order = np.argsort(self.masses)
        sums = np.cumsum(self.masses[order])
        n = int(np.searchsorted(sums, math.exp(log_mass) / count - self.lost)) if cut else 0
        if not n:
            return self
        kept = np.sort(order[n:])
        return DiscreteTransform(
            self.masses[kept], self.losses[kept], self.blur, self.lost + float(sums[n - 1]) * (1 + 1e-9)
        )

    def edge(self, c: Floats | float) -> Floats:
        """Nothing is left out."""
        return np.zeros_like(np.atleast_1d(c))

    @property
    def _unit(self) -> float:
        """Rounding of a sum over the atoms, in any order and also of complex numbers, relative to the sum of moduli."""
        return (4 * self.masses.size + 64) * UNIT

    def log_real(self, c: Floats) -> RealValues:
        """log[1 + Σ p(e^{cL} − 1)] near 1, else c·top + log Σ p e^{c(L − top)}, top the largest L."""
        p, losses = self.masses, self.losses
        z, top = np.multiply.outer(c, losses), c * losses.max()
        near = np.abs(z).max(axis=-1) < 1
        small = np.log1p(np.expm1(np.where(near[..., None], z, 0.0)) @ p)
        large = top + np.log(np.exp(z - top[..., None]) @ p)
        size = np.where(near, np.abs(np.where(near[..., None], z, 0.0)) @ p, 1 + np.abs(z).max(axis=-1))
        # The masses sum to 1 within the blur and what is lost; M(c) ≥ e^{−1} where it is near.
        return RealValues(
            np.where(near, small, large), self.blur * (1 + c) * 1.01 + 3 * self.lost + 8 * self._unit * size
        )

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """The mean of e^{iuL} under the tilted law."""
        p, losses = self.masses, self.losses
        weights = p * np.exp(c * (losses - losses.max()))
        weights /= weights.sum()
        value = fan(weights, losses, step, size)
        u, reach = step * np.arange(size, dtype=np.float64), float(np.abs(losses).max())
        # A tilted weight is off by the blur of p, c times that of L, and the exponent's rounding;
        # an angle by u times that of L.
        error = 2 * (self.blur * (1 + 2 * c + u) + UNIT * (8 * c + 4 * u) * reach + self._unit)
        with np.errstate(divide="ignore"):
            log_m, slack = log_slack(np.log(value), error)
        return NodeValues(log_m, slack + float(self.log_real(np.array([c])).error[0]))

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Return 0: a sum over atoms is almost periodic, and has no decay."""
        return np.zeros_like(u)


LEAST_SIGMA = 1.0
"""From there on three terms of Poisson's sum are enough: all others are below 2e^{−4π²σ²} of it."""


@dataclass(frozen=True)
class ThetaTransform(PeriodicTransform):
    """N_Z(m, σ²) against N_Z(0, σ²), σ ≥ 1: the Gaussian's M(s), turned back and summed.

    It is turned by whole multiples of 2πi/h, h = m/σ².

    With v = uh − 2πk in [−π, π], log M(c + iu)/M(c) = ium²/(2σ²) + icmv − σ²v²/2 + log S(v) − log S(0), where
    S(v) = Σ_j e^{−2π²σ²j² + 2πσ²jv − 2πijcm}.
    """

    sigma: float
    shift: int

    @property
    def period(self) -> float:
        """The period 2π/h of |M(c + iu)| in u, rounded down."""
        return 2 * math.pi * self.sigma * self.sigma / self.shift * (1 - 8 * UNIT)

    def log_real(self, c: Floats) -> RealValues:
        """K(c) = m²c(c + 1)/(2σ²) + log S(0) − log S(0) at c = 0."""
        small = math.exp(-2 * (math.pi * self.sigma) ** 2)
        value = 0.5 * (self.shift / self.sigma) ** 2 * c * (c + 1)
        moved = -4 * small * np.sin(math.pi * self._turns(c)) ** 2 / (1 + 2 * small)  # S(0)/S(0) at 0, less 1
        # The second term of the sum, e^{−8π²σ²} ≤ small⁴, changes S as the first one does.
        angle = np.minimum(c * self.shift, 1.0) ** 2
        return RealValues(
            value + np.log1p(moved), 16 * UNIT * value + small * angle * (64 * UNIT * (1 + c * self.shift) + 1e-20)
        )

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """The formula above; where S vanishes it is known to its own error only."""
        sigma, m = self.sigma, self.shift
        square = sigma * sigma
        t = step * np.arange(size, dtype=np.float64) * (m / square)
        v = t - 2 * math.pi * np.rint(t / (2 * math.pi))
        turn = np.exp(-2j * math.pi * float(self._turns(np.array(c))))
        with np.errstate(under="ignore", divide="ignore"):
            right, left = (np.exp(-2 * math.pi * square * (math.pi - sign * v)) for sign in (1, -1))
            log_sum = log1p(right * turn + left / turn)
            first = float(np.log1p(2 * math.exp(-2 * (math.pi * sigma) ** 2) * turn.real))
            small = 4 * math.exp(-4 * (math.pi * sigma) ** 2)
            size_of = (right + left) * (64 + 64 * square * (1 + t) + 16 * c * m) * UNIT + small
            log_sum, slack = log_slack(log_sum, size_of)
        # v is off by 6 units of t.
        angle, fall = 0.5 * m * t + c * m * v, 0.5 * square * v * v
        off = UNIT * (4 * m * t + 8 * c * m * np.abs(v) + 8 * fall + 6 * t * (square * np.abs(v) + c * m))
        exact = size_of[0] + 8 * UNIT * abs(first)
        return NodeValues(log_sum - first - fall + 1j * angle, slack + (off + exact) * (1 + 1e-9))

    def log_fall(self, c: float, u: Floats) -> Floats:
        """Σ_j e^{−σ²(v − 2πj)²/2}/S(0), which falls up to v = π (Jacobi's product)."""
        square = self.sigma * self.sigma
        v = np.minimum(u * (self.shift / square), math.pi)
        with np.errstate(under="ignore"):
            others = sum(np.exp(-2 * math.pi * square * (math.pi - sign * v)) for sign in (1, -1))
        small = math.exp(-2 * (math.pi * self.sigma) ** 2)
        fall = 0.5 * square * v * v
        return np.asarray(np.log1p(others) - fall + 16 * UNIT * (1 + fall) + 3 * small, dtype=np.float64)

    def _turns(self, c: Floats) -> Floats:
        """cm less the next whole number."""
        turns = c * self.shift
        return np.asarray(turns - np.rint(turns), dtype=np.float64)


_FAR = 700.0
"""Exponents beyond which nothing is claimed."""


@dataclass(frozen=True)
class MixedTransform:
    """(1 − w)·``usual`` + w·``rare``, 0 < w ≤ 1."""

    usual: Transform
    rare: Transform
    weight: float

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Each part may leave out as much as the whole."""
        parts = [part.prepare(c_max, count, log_mass, cut=cut) for part in (self.usual, self.rare)]
        return PreparedMixed(parts[0], parts[1], self.weight)


@dataclass(frozen=True)
class PreparedMixed:
    """The mixture of two transforms whose quadratures are fixed."""

    usual: Prepared
    rare: Prepared
    weight: float

    @property
    def _logs(self) -> tuple[float, float]:
        """log(1 − w) and log w."""
        return (math.log1p(-self.weight) if self.weight < 1 else -math.inf), math.log(self.weight)

    @property
    def lost(self) -> float:
        """The mean of what both leave out."""
        return max(self.usual.lost, self.rare.lost)

    def edge(self, c: Floats | float) -> Floats:
        """The mean of both."""
        return np.asarray(self.usual.edge(c) + self.weight * self.rare.edge(c), dtype=np.float64)

    def log_real(self, c: Floats) -> RealValues:
        """log1p of the mean of M₀ − 1 and M₁ − 1, or of logarithms; an error e of one part counts by its share of M."""
        value, shares, parts, rounding = self._real(c)
        # log Σ share·e^{±error} is at most this, by Jensen's inequality also downwards.
        grown = sum(share * np.expm1(np.minimum(part.error, _FAR)) for share, part in zip(shares, parts, strict=True))
        error = np.where(_finite(parts), np.log1p(grown * (1 + 1e-9)) + rounding, np.inf)
        return RealValues(value, np.asarray(error, dtype=np.float64))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _real(self, c: Floats) -> tuple[Floats, list[Floats], list[RealValues], Floats]:
        """K(c); the shares of both parts in M(c); both parts; and the rounding of K(c)."""
        parts, w, logs = [self.usual.log_real(c), self.rare.log_real(c)], self.weight, self._logs
        k = [part.value for part in parts]
        far = np.logaddexp(logs[0] + k[0], logs[1] + k[1])
        moved = [np.expm1(np.minimum(k[0], 1.0)) * (1 - w), np.expm1(np.minimum(k[1], 1.0)) * w]
        near = np.maximum(*k) < 1
        value = np.where(near, np.log1p(moved[0] + moved[1]), far)
        shares = [np.exp(np.minimum(log + x - value, 0.0)) for log, x in zip(logs, k, strict=True)]
        # M₁ − 1 and M₀ − 1 are off by three units, M ≥ ½; else a share by those of its logarithm.
        large = 2 + np.abs(value) + sum(s * np.abs(x) for s, x in zip(shares, k, strict=True)) - shares[1] * logs[1]
        rounding = 4 * UNIT * np.where(near, 2 * (np.abs(moved[0]) + np.abs(moved[1])) + np.abs(value), large)
        return np.asarray(value), shares, parts, np.asarray(rounding)

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """M(c + iu)/M(c) − 1 = Σ share·(M_j(c + iu)/M_j(c) − 1)."""
        at = np.array([c])
        value, shares, _, rounding = self._real(at)
        change = np.zeros(size, dtype=np.complex128)
        error = np.full(size, float(rounding[0]))
        for part, share in zip((self.usual, self.rare), (float(s[0]) for s in shares), strict=True):
            if share == 0:
                continue
            nodes = part.log_nodes(c, step, size)
            moved, modulus = expm1(nodes.log_m), np.exp(np.minimum(nodes.log_m.real, _FAR))
            change += share * moved
            # The share is off by units of its logarithm, and Σ share − 1 by the rounding of K(c).
            unit = UNIT * (16 + 4 * abs(math.log(share)) + 8 * abs(float(value[0])))
            error += share * (modulus * np.expm1(np.minimum(nodes.slack, _FAR)) + unit * np.abs(moved))
            error += share * modulus * 8 * UNIT * np.abs(nodes.log_m)
        with np.errstate(divide="ignore"):
            return log_slack(log1p(change), error * (1 + 1e-9))

    def log_decay(self, c: float, u: Floats) -> Floats:
        """The mean of both bounds, each part's share of M(c) with its error."""
        at = np.array([c])
        value, shares, parts, _ = self._real(at)
        error = float(self.log_real(at).error[0])
        bound = np.full_like(u, -np.inf)
        for part, share, real in zip((self.usual, self.rare), shares, parts, strict=True):
            if float(share[0]) > 0:
                term = math.log(float(share[0])) + float(real.error[0]) + error + 64 * UNIT * (1 + abs(float(value[0])))
                bound = np.logaddexp(bound, term + np.minimum(part.log_decay(c, u), 0.0))
        return np.asarray(np.minimum(np.nan_to_num(bound, nan=0.0, posinf=0.0), 0.0), dtype=np.float64)


def _finite(parts: list[RealValues]) -> Floats:
    """Where an error is known of both."""
    return np.asarray(np.isfinite(parts[0].error) & (parts[0].error < _FAR) & (parts[1].error < _FAR))


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def middle_profile(a: float, q: float, epsilon: Floats, *, add: bool) -> tuple[Floats, Floats]:
    """E (1 − e^{ε − L})_+ over |l| < a, l the loss of the Laplace pair itself, at any real ε; and a bound on its error.

    With w(l₀) = e^ε it is (q/2)(1 − e^{(l₀ − a)/2})² where the record is removed, with w(l₀) = e^{−ε} where it is added
    (qe^ε/2)(e^{l₀/2} − e^{−a/2})²; beyond l₀ = ∓a, where all of it counts, it is linear in e^ε. q = 1: without
    sampling.
    """
    sign = -1.0 if add else 1.0
    low, high = (float(x) for x in log_weighted(q, np.array([-a, a])))
    loss = np.clip(np.log1p(np.maximum(np.expm1(np.clip(sign * epsilon, low, high)) / q, -1.0)), -a, a)
    whole = 0.5 * -math.expm1(-a)  # of the middle, under either law
    if add:
        beyond = -math.exp(-high) * np.expm1(np.minimum(epsilon + high, 0.0))
        root = np.exp(0.5 * loss) * -np.expm1(-0.5 * (loss + a))
        value = 0.5 * q * np.exp(np.minimum(np.maximum(epsilon, -high), -low)) * root * root
        mass = -0.5 * np.expm1(-0.5 * (loss + a))
    else:
        beyond = -math.exp(low) * np.expm1(np.minimum(epsilon - low, 0.0))
        root = -np.expm1(0.5 * (loss - a))
        value = 0.5 * q * root * root
        mass = 0.5 * q * root + 0.5 * (1 - q) * (np.exp(-0.5 * (loss + a)) - math.exp(-a))
    # At least the density at the largest loss.
    top, steep = (-low, math.exp(a) / q if a < 700 else math.inf) if add else (high, 1 / q)
    delta = np.where(epsilon < top, value + beyond * whole, 0.0)
    size = UNIT * (1 + a) * (np.abs(epsilon) + abs(low) + abs(high))
    edge = np.where(np.abs(epsilon - top) <= 64 * size, (16 * size) ** 2 * steep, 0.0)
    return np.asarray(delta), np.asarray(
        64 * UNIT * (1 + a + np.abs(epsilon)) * (delta + np.maximum(mass, 0.0)) + edge + TINY
    )
