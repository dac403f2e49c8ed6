"""A record of which J of a batch's draws are, J at random: another one in its place, while all other draws stay."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.counts import Draws
from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.normal import gdp_profile
from privcalc.numerics.solve import Bounds
from privcalc.pairs.pair import SymmetricPair
from privcalc.pairs.users import UsersPair

_NEGLIGIBLE = 1e-120
"""Probability of the numbers that are taken to give everything away."""


@dataclass(frozen=True)
class RedrawnPair(SymmetricPair):
    """A bound for two records, ``apart`` from each other and ``mu`` from every other record.

    Distances are in units of the noise; the bound is by joint convexity.

    With w_j = P(J = j), q = P(J > 0), e^{ε'} = 1 + (e^ε − 1)/q and β = e^{ε − ε'}, for ε ≥ 0

        δ(ε) ≤ min{(1 − β)·δ_one(ε) + β·Σ w_j δ_{j·apart}(ε'), Σ w_j δ_{j·apart}(ε)},

    δ_one being that of Σ w_j N(jμ, 1) against N(0, 1), δ_m that of N(m, 1). Proof: ``proofs/replacement.md``.
    """

    mu: float
    apart: float
    law: Draws

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The bound; its ``tail`` is not used, because no lower law is built on a bound."""
        q = self.law.some
        with np.errstate(over="ignore", divide="ignore"):
            # Up to 30 with all digits near 0, beyond in a form that cannot overflow; at 30 both have all digits.
            near = np.log1p(np.expm1(np.minimum(epsilon, 30.0)) / q)
            inner = np.where(epsilon < 30, near, epsilon - math.log(q) + np.log1p(-(1 - q) * np.exp(-epsilon)))
        beta = q / (q * np.exp(-epsilon) - np.expm1(-epsilon))
        one = UsersPair(self.mu, self.law, None).profile(epsilon)
        same, plain = self._drawn(inner), self._drawn(epsilon)
        # ε' is off by a few units, which its slope counts; 1 − β by a few units of 1.
        same = same._replace(error=same.error + 8 * UNIT * np.abs(inner) * same.tail)
        mixed = ProfileValues(*((1 - beta) * x + beta * y for x, y in zip(one, same, strict=True)))
        less = plain.delta < mixed.delta
        delta, tail, error = (np.where(less, y, x) for x, y in zip(mixed, plain, strict=True))
        return ProfileValues(delta, tail, error + 16 * UNIT * (delta + one.delta) + TINY)

    def _drawn(self, epsilon: Floats) -> ProfileValues:
        """Σ_{j ≥ 1} w_j δ_{j·apart}(ε)."""
        counts, weights, rest = _counts(self.law)
        delta, tail, error = np.zeros_like(epsilon), np.zeros_like(epsilon), np.zeros_like(epsilon)
        for j, w in zip(counts, weights, strict=True):
            part = gdp_profile(j * self.apart, epsilon)
            delta, tail, error = delta + w * part.delta, tail + w * part.tail, error + w * part.error
        # jμ is rounded, which moves δ by no more than that: its slope in μ is at most a density.
        blur = UNIT * self.apart * sum(j * w for j, w in zip(counts, weights, strict=True))
        return ProfileValues(delta + rest, tail, error + blur + (len(counts) + 8) * UNIT * delta + TINY)

    @property
    def convex(self) -> bool:
        """Not as it stands."""
        return False

    @property
    def zcdp(self) -> float:
        """The ρ of a batch all of whose draws were this record, which dominates."""
        return 0.5 * (self.law.records * self.apart) ** 2 * (1 + 8 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """Bounds (0, μ), μ of a batch all of whose draws were this record."""
        return 0.0, self.law.records * self.apart * (1 + 4 * UNIT)


@functools.lru_cache(maxsize=64)
def _counts(law: Draws) -> tuple[list[int], list[float], float]:
    """j ≥ 1 and w_j, as far as they matter, and what is left."""
    weights = law.weights
    rest = np.cumsum(weights[::-1])[::-1]
    most = max(int(np.count_nonzero(rest > _NEGLIGIBLE)), 2)
    left = (
        float(rest[most]) * (1 + 1e-9) + 1e-300
        if most < weights.size
        else (1e-300 if law.largest < law.records else 0.0)
    )
    return list(range(1, most)), weights[1:most].tolist(), left
