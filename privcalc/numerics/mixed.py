"""The transform of a pair that is one of two, by a coin that everybody sees: M = (1 − w)M₀ + wM₁.

Where M is near 1, so that many uses are composed, it is computed from M₀ − 1 and M₁ − 1. Proof:
``proofs/truncated.md``, §3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.faces import NodeValues, Prepared, RealValues, Transform, log_slack
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.mixture import expm1, log1p

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
