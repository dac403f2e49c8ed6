"""A person with several records, each in a sample by a coin of its own: Σ_j b_j N(jμ, 1) against N(0, 1), both orders.

As the sampled Gaussian of ``privcalc/rigorous/sampled.py``, with w(t) = Σ_j b_j r_j, r_j = e^{jμt − j²μ²/2}. The ``mu``
of the rules is that of the most records, J: a turn by θ turns r_j by jθ/J. Proof: ``proofs/rigorous.md``, §4.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import flint

from privcalc.rigorous.balls import Ball, arb, middle, ndtr, precision
from privcalc.rigorous.rotation import Grid
from privcalc.rigorous.sampled import OneSided


@dataclass(frozen=True)
class Persons(OneSided):
    """``records`` coins of probability ``rate``, at most ``most`` of them counted; ``mu`` is that of ``most``."""

    records: int
    most: int

    def weights(self) -> list[Ball]:
        """Return P(J = j) for j = 0, 1, …."""
        return _weights(replace(self, count=1), flint.ctx.prec)[0]

    def ratio(self, t: Ball) -> Ball:
        one, base = arb(self.mu) / self.most, (arb(self.mu) / self.most * t).exp()
        return sum(
            (b * base**j * (-((j * one) ** 2) / 2).exp() for j, b in enumerate(self.weights())), start=arb(0)
        ).log()

    def float_ratio(self, t: float, angle: float) -> complex:
        """In floats, r_j turned by its share."""
        one, turn, total = float(self.mu) / self.most, angle / self.most, 0j
        for j, b in enumerate(_planned(replace(self, count=1))):
            total += b * cmath.exp(complex(min(max(j * one * t - 0.5 * (j * one) ** 2, -600.0), 600.0), j * turn))
        return cmath.log(total)

    def tails(self, grid: Grid, c: float, height: Ball) -> Ball:
        """Tails by convexity: w^p ≤ Σ b_j r_j^p, each a multiple of a normal density.

        In the add order also w ≥ b_0, or ≥ 1.
        """
        p, mu, step, weights = self.power(c), arb(self.mu), arb(grid.step), self.weights()
        scale = (height * height / 2).exp() * self.kappa(height * mu, c)
        left, right = -grid.first * step, grid.last * step  # the sums begin one step further out
        found = arb(0)
        for end, sign, flat in ((left, -1, weights[0] ** p), (right, 1, arb(1))):
            if not end > 0:
                return arb(math.inf)
            peaks = [sign * p * mu * j / self.most for j in range(self.most + 1)]
            bounds = []
            if all(end >= peak for peak in peaks):
                each = (b * ((p * p - p) * (mu * j / self.most) ** 2 / 2).exp() for j, b in enumerate(weights))
                bounds.append(
                    sum((size * ndtr(peak - end) for size, peak in zip(each, peaks, strict=True)), start=arb(0))
                )
            if self.add and (sign < 0 or end >= mu / 2):
                bounds.append(flat * ndtr(-end))
            found += min(bounds, key=middle) if bounds else arb(math.inf)
        return scale * found

    def reach(self, c: float, need: float, step: float) -> tuple[float, float]:
        """To where the better of the bounds in ``tails`` falls."""
        p, one = (-c if self.add else c + 1.0), float(self.mu) / self.most
        usual = math.sqrt(2 * need)
        sizes = [
            (j, math.log(b) + 0.5 * (p * p - p) * (j * one) ** 2)
            for j, b in enumerate(map(middle, self.weights()))
            if b > 0
        ]
        far = max(abs(p) * j * one + math.sqrt(max(2 * (need + size), 0.0)) for j, size in sizes)
        far = max(far, abs(p) * float(self.mu) + step, usual)
        if self.add:
            least = math.sqrt(2 * (need - c * self.records * math.log1p(-float(self.rate))))
            return min(far, least), max(usual, 0.5 * float(self.mu) + step)
        return usual, far

    @property
    def top(self) -> Ball | None:
        """−log P(J = 0) in the add order."""
        return -self.records * (1 - arb(self.rate)).log() if self.add else None


@lru_cache(maxsize=32)
def _planned(law: Persons) -> tuple[float, ...]:
    """P(J = j) in floats."""
    return tuple(map(middle, law.weights()))


@lru_cache(maxsize=32)
def _weights(law: Persons, bits: int) -> tuple[list[Ball], list[Ball]]:
    """P(J = j), and e^{−(jμ)²/2} times that; at so many bits."""
    with precision(bits):
        q, k, one = arb(law.rate), law.records, arb(law.mu) / law.most
        each = [math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
        found = [*each[: law.most], sum(each[law.most :], start=arb(0))]
        return found, [b * (-((j * one) ** 2) / 2).exp() for j, b in enumerate(found)]
