"""Pairs of laws on two points: randomised response, and the ends of every bounded loss."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Complexes, Floats
from privcalc.numerics.interfaces import (
    ClosedTransform,
    NodeValues,
    ProfileValues,
    RealValues,
    TradeOff,
    Transform,
    log_slack,
)
from privcalc.numerics.routes.atoms import AtomLaw, Atoms, Masses, binomial, power
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import erfinv, ndtri_exp
from privcalc.pairs.pair import Pair

_MOST = {True: 10**9, False: 20_000}
"""The largest exact power: with two atoms, with three."""


_FEW = {True: 20_000, False: 1_000}
"""The largest power for which all values are enumerated: with two atoms, with three."""


_LARGE = 600.0
"""Losses up to which e^{−L} is far from underflow."""


@dataclass(frozen=True)
class TwoPointPair(Pair):
    """A loss that is ``up`` or −``down``: a general pair with two outcomes. Proof: ``proofs/randomized_response.md``.

    With ``neutral`` = m > 0, and then up = down = ε, the loss is also 0: P = (p, r, …, r) against Q = (r, p, r, …, r)
    over 2 + m outcomes, or P = (p, r, mr) against Q = (r, p, mr) for any m. ``count`` > 1 is the exact composition of
    that many uses.
    """

    up: float
    down: float
    neutral: float = 0
    count: int = 1

    def masses(self) -> tuple[float, float, float]:
        """P(L = up), P(L = 0), P(L = −down) of one use, each to 8 units."""
        small = math.exp(-self.up)
        if self.neutral:
            p = 1 / (1 + (self.neutral + 1) * small)
            return p, self.neutral * small * p, small * p
        total = -math.expm1(-self.up - self.down)
        return -math.expm1(-self.down) / total, 0.0, math.exp(-self.down) * -math.expm1(-self.up) / total

    @property
    def factors(self) -> tuple[tuple[Pair, int], ...]:
        """The single uses, each of which has a transform."""
        return ((replace(self, count=1), self.count),)

    def power(self, count: int) -> Pair | None:
        """The exact composition of ``count`` uses; None where its table would be too large."""
        total = self.count * count
        return replace(self, count=total) if total <= _MOST[not self.neutral] else None

    def trade_off(self, alpha: float) -> TradeOff | None:
        law = Atoms.of(_law(self)) if self.count > _FEW[not self.neutral] else self.atoms
        return None if law is None else law.trade_off(alpha)

    def profile(self, epsilon: Floats) -> ProfileValues:
        """δ(ε) = p(1 − e^{ε − up}) and e^ε Q(L > ε) = p e^{ε − up}, for ε < up; several uses by their table."""
        if self.count > 1:
            return _law(self).profile(epsilon)
        p = self.masses()[0]
        x = np.minimum(epsilon - self.up, 0.0)
        delta = -p * np.expm1(x)
        return ProfileValues(delta, np.where(epsilon < self.up, p * np.exp(x), 0.0), 16 * UNIT * delta + TINY)

    @property
    def reverse(self) -> Pair:
        """The losses change sign."""
        return replace(self, up=self.down, down=self.up)

    @property
    def max_loss(self) -> float:
        """``up``, times the count."""
        return self.count * self.up

    @property
    def zcdp(self) -> float:
        """The least of ε·tanh(ε/2), ε the larger |L|, and half the largest variance of L under any tilted law."""
        epsilon = max(self.up, self.down)
        variance = (0.5 * (self.up + self.down)) ** 2
        if self.neutral:
            b = 0.5 * self.neutral * math.exp(-0.5 * epsilon)
            variance *= 1 / (1 + b) if b <= 2 else 0.25 / (1 - 1 / (b * b))
        return self.count * min(epsilon * math.tanh(0.5 * epsilon), 0.5 * variance) * (1 + 32 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """μ = Φ⁻¹(p) − Φ⁻¹(q) for one use, q = Q(L = up), hence √n·μ bounds n uses; nothing is claimed from below."""
        p, zero, low = self.masses()
        if self.up == self.down and not self.neutral:
            return 0.0, math.sqrt(self.count) * symmetric_mu(self.up)
        ends = [
            _quantile(math.log(p), low + zero),
            _quantile(math.log(p) - self.up, low + zero - p * math.expm1(-self.up)),
        ]
        far = max(abs(end) for end in ends)
        mu = ends[0] - ends[1] + 1e-13 * (1 + far)
        if far < 30:  # the mean value theorem, without cancellation
            mu = min(mu, -p * math.expm1(-self.up) * math.sqrt(2 * math.pi) * math.exp(0.5 * far * far) * (1 + 1e-11))
        return 0.0, math.sqrt(self.count) * mu

    def opposed(self, rate: float) -> Pair | None:
        if self.neutral or self.count > 1 or self.up != self.down or self.up > _LARGE:
            return None
        return self.of_opposite(rate, 16 * UNIT)

    def of_opposite(self, rate: float, blur: float) -> TwoPointPair:
        """The pair of two opposite records: dominating if ``blur`` > 0 pays for rounding.

        With −``blur`` it is dominated.
        """
        stay = (1 - rate) + rate * math.exp(-self.up)
        up = math.log1p(rate * 2 * math.sinh(self.up) / stay) * (1 + blur)
        return TwoPointPair(up, up, math.expm1(self.up) * (1 - blur))

    @property
    def outcomes(self) -> tuple[Floats, Floats] | None:
        """Two or three, where none is rare beyond doubles."""
        if self.count > 1 or max(self.up, self.down) > _LARGE:
            return None
        p, zero, low = self.masses()
        kept = [
            (mass, mass * math.exp(-loss)) for loss, mass in ((self.up, p), (0.0, zero), (-self.down, low)) if mass > 0
        ]
        x, y = np.array(kept).T
        return x, y

    @property
    def transform(self) -> Transform | None:
        """Closed, for one use; a power has none of its own."""
        return TwoPointTransform(self) if self.count == 1 else None

    @property
    def atoms(self) -> Atoms | None:
        """Two or three, or those of the table."""
        if self.count > _FEW[not self.neutral]:
            return None
        if self.count > 1:
            return Atoms.of(_law(self))
        p, zero, low = self.masses()
        kept = [(loss, mass) for loss, mass in ((-self.down, low), (0.0, zero), (self.up, p)) if mass > 0]
        losses, masses = np.array(kept).T
        # 600: e^{−600}, the least mass, is far above the least double.
        return Atoms(losses, masses, 8 * UNIT, 0.0, 3 * TINY, complete=self.up + self.down < 600)


def symmetric_mu(epsilon: float) -> float:
    """An upper bound of 2Φ⁻¹(1/(1 + e^{−ε})), tight to rounding: the smallest μ of any ε-DP pair."""
    if epsilon < 2:
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(0.5 * epsilon))) * (1 + 1e-12)
    return -2 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon)))) * (1 + 1e-12)


def _quantile(log_p: float, complement: float) -> float:
    """Φ⁻¹(p), from whichever of p and 1 − p is the smaller."""
    # log ½ = −0.693.
    if log_p < -0.7:
        return float(ndtri_exp(log_p))
    return -float(ndtri_exp(math.log(complement))) if complement > 0 else math.inf


@functools.lru_cache(maxsize=8)
def _law(pair: TwoPointPair) -> AtomLaw:
    """The loss of ``count`` uses: (up + down)·(ups − n/2) + n(up − down)/2.

    With neutral outcomes it is ε·(ups − downs).
    """
    p, zero, low = pair.masses()
    n = pair.count
    if pair.neutral:
        kept = [mass for mass in (low, zero, p) if mass > 0]
        law = power(Masses(2.0 - len(kept), np.array(kept), 8 * UNIT, 3 * TINY * (len(kept) < 3)), n)
        return AtomLaw(law, pair.up, 0.0)
    law = binomial(p, p / low if low > 0 else math.inf, n)
    return AtomLaw(replace(law, first=law.first - 0.5 * n), pair.up + pair.down, 0.5 * n * (pair.up - pair.down))


def _turn(x: Floats) -> Complexes:
    """Return e^{ix} − 1, without cancellation near x = 0."""
    return np.asarray(-2 * np.sin(0.5 * x) ** 2 + 1j * np.sin(x))


@dataclass(frozen=True)
class TwoPointTransform(ClosedTransform):
    """M(s) = p e^{s·up} + z + d e^{−s·down}. The atoms keep |M| from decaying."""

    pair: TwoPointPair

    def log_real(self, c: Floats) -> RealValues:
        """log[1 + p(e^{c·up} − 1) + d(e^{−c·down} − 1)].

        Or c·up + log[1 + z(e^{−c·up} − 1) + d(e^{−c(up + down)} − 1)].
        """
        p, zero, low = self.pair.masses()
        up, down = c * self.pair.up, c * self.pair.down
        near = up + down < 1
        small = np.log1p(p * np.expm1(np.where(near, up, 0.0)) + low * np.expm1(-np.where(near, down, 0.0)))
        large = up + np.log1p(zero * np.expm1(-up) + low * np.expm1(-up - down))
        return RealValues(np.where(near, small, large), np.where(near, 64 * UNIT * (up + down), 64 * UNIT * (1 + up)))

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """M(c + iu)/M(c) is the mean of e^{iuL} under the tilted law (p e^{c·up}, z, d e^{−c·down})/M(c)."""
        p, zero, low = self.pair.masses()
        u = step * np.arange(size, dtype=np.float64)
        weights = np.array(
            [p, zero * math.exp(-c * self.pair.up), low * math.exp(-c * (self.pair.up + self.pair.down))]
        )
        weights /= weights.sum()
        up, down = np.asarray(u * self.pair.up), np.asarray(u * self.pair.down)
        value = weights[0] * _turn(up) + weights[2] * _turn(-down)
        x, y = value.real, value.imag
        with np.errstate(divide="ignore"):
            log_m = 0.5 * np.log1p(np.maximum(2 * x + x * x + y * y, -1.0)) + 1j * np.arctan2(y, 1 + x)
        # A weight is off by 32 units and by c(up + down) more; an angle, in proportion to itself.
        scale = 64 + 4 * c * (self.pair.up + self.pair.down)
        log_m, slack = log_slack(log_m, scale * UNIT * (weights[0] * up + weights[2] * down))
        return NodeValues(log_m, slack + float(self.log_real(np.array([c])).error[0]))

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Return 0: an almost periodic sum has no decay."""
        return np.zeros_like(u)
