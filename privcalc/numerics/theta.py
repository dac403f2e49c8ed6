"""The transform of the discrete Gaussian's loss in closed form (``proofs/discrete_gaussian.md``, §7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.faces import NodeValues, PeriodicTransform, RealValues, log_slack
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.mixture import log1p

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
