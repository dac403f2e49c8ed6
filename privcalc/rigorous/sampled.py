"""The Poisson-sampled Gaussian in its three orders: remove, add, and replace-one's pair of opposite records.

With t standard normal, r = e^{μt − μ²/2} and w(t) = 1 − q + qr: remove is M(s) = E[w^{s+1}], add M(s) = E[w^{−s}],
opposite M(s) = E[w(t)^{s+1}w(−t)^{−s}]. So is a person with several records, each with a coin of its own:
w(t) = Σ_j b_j e^{jμt − j²μ²/2}. Proofs: ``proofs/rigorous.md``, §3 and §4.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import flint

from privcalc.rigorous.balls import Ball, arb, error, middle, ndtr, precision
from privcalc.rigorous.factors import Normal
from privcalc.rigorous.rotation import Grid, Mixture


@dataclass(frozen=True)
class OneSided(Mixture):
    """A mixture of shifts against none, in the order ``add`` or remove: G = p·log w, L = log w."""

    add: bool

    @property
    def conjugate(self) -> bool:  # type: ignore[override]
        """The add order is −s."""
        return self.add

    def power(self, c: float) -> Ball:
        """p = c + 1, or −c."""
        return -arb(c) if self.add else arb(c) + 1

    def logs(self, c: float, t: Ball) -> tuple[Ball, Ball]:
        """p·log w and log w."""
        log = self.ratio(t)
        return self.power(c) * log, log

    def turned(self, c: float, t: float, angle: float) -> tuple[float, float]:
        log = self.float_ratio(t, angle)
        return (-c if self.add else c + 1.0) * log.real, log.imag

    def kappa(self, angle: Ball, c: float) -> Ball:
        """|w|^p ≤ κ·(w on the real line)^p for turns up to angle < π: 1, or (cos ½α)^{−c}."""
        return (angle / 2).cos() ** -arb(c) if self.add else arb(1)

    def log_kappa(self, angle: float, c: float) -> float:
        return -c * math.log(math.cos(0.5 * angle)) if self.add else 0.0


@dataclass(frozen=True)
class Sampled(OneSided):
    """N(μ, 1) against N(0, 1), sampled at rate q < 1."""

    @property
    def top(self) -> Ball | None:
        """−log(1 − q) in the add order."""
        return -(1 - arb(self.rate)).log() if self.add else None

    def tails(self, grid: Grid, c: float, height: Ball) -> Ball:
        """The better of the two tail bounds of proofs/rigorous.md, §3."""
        p, q, mu, step = self.power(c), arb(self.rate), arb(self.mu), arb(grid.step)
        scale = (height * height / 2).exp() * self.kappa(height * mu, c)
        left, right = -grid.first * step, grid.last * step  # the sums begin one step further out
        jump = q * ((p * p - p) * mu * mu / 2).exp()
        total = arb(0)
        for end, peak, flat in ((left, -p * mu, (1 - q) ** p), (right, p * mu, arb(1))):
            if not end > 0:
                return arb(math.inf)
            bounds = [(1 - q) * ndtr(-end) + jump * ndtr(peak - end)] if end >= peak else []
            if self.add and (end is left or end >= mu / 2):
                bounds.append(flat * ndtr(-end))
            total += min(bounds, key=middle) if bounds else arb(math.inf)
        return scale * total

    def reach(self, c: float, need: float, step: float) -> tuple[float, float]:
        """To where the better of the bounds in ``tails`` falls."""
        mu, q, p = float(self.mu), float(self.rate), (-c if self.add else c + 1.0)
        usual = math.sqrt(2 * need)
        far = math.sqrt(max(2 * (need + math.log(q) + 0.5 * (p * p - p) * mu * mu), 0.0))
        if self.add:
            left = min(max(usual, far + c * mu), math.sqrt(2 * (need - c * math.log1p(-q))))
            return left, max(usual, 0.5 * mu + step)
        return usual, max(usual, p * mu + min(far, math.sqrt(2 * (need + (p + 1) * -math.log(q)))))

    def profile(self, epsilon: Ball) -> Ball:
        """One use: q·δ(ε'), or (1 − (1 − q)e^ε)·δ(ε''); δ of the Gaussian (``proofs/poisson.md``). Any real ε."""
        base, q = Normal(1, self.mu**2), arb(self.rate)
        if not self.add:
            factor = 1 + epsilon.expm1() / q
            if factor > 0:
                return q * base.profile(factor.log())
            return -epsilon.expm1() if factor <= 0 else error(arb(1))
        left = 1 - (1 - q) * epsilon.exp()
        if left > 0:
            return left * base.profile(-(1 + (-epsilon).expm1() / q).log())
        return arb(0) if left <= 0 else error(arb(1))


@dataclass(frozen=True)
class Opposite(Mixture):
    """(1 − q)N(0, 1) + qN(μ, 1) against (1 − q)N(0, 1) + qN(−μ, 1); both directions are alike."""

    def logs(self, c: float, t: Ball) -> tuple[Ball, Ball]:
        """(c + 1)·log w(t) − c·log w(−t), and log w(t) − log w(−t)."""
        up, down = self.ratio(t), self.ratio(-t)
        return (arb(c) + 1) * up - arb(c) * down, up - down

    def turned(self, c: float, t: float, angle: float) -> tuple[float, float]:
        """−(t + iϑ) turns r by −θ."""
        up, down = self.float_ratio(t, angle), self.float_ratio(-t, -angle)
        return (c + 1) * up.real - c * down.real, up.imag - down.imag

    def kappa(self, angle: Ball, c: float) -> Ball:
        """(cos ½α)^{−c}, from w(−t)^{−c}."""
        return (angle / 2).cos() ** -arb(c)

    def log_kappa(self, angle: float, c: float) -> float:
        return -c * math.log(math.cos(0.5 * angle))

    def tails(self, grid: Grid, c: float, height: Ball) -> Ball:
        """Left of −μ/2, e^G ≤ 1; on the right the better of w(−t)^{−c} ≤ (1 − q)^{−c} and ≤ 1 − q + q·r(−t)^{−c}."""
        at, q, mu, step = arb(c), arb(self.rate), arb(self.mu), arb(grid.step)
        left, right = -grid.first * step, grid.last * step  # the sums begin one step further out
        if not (left >= mu / 2 and right > 0):
            return arb(math.inf)

        def beyond(order: Ball, power: Ball) -> Ball:
            """∫ of φ·e^{order·μt + power·μ²/2} from ``right`` on, a normal density around order·μ."""
            if not right >= order * mu:
                return arb(math.inf)
            return ((order * order + power) * mu * mu / 2).exp() * ndtr(order * mu - right)

        one = arb(1)
        flat = (1 - q) ** -at * ((1 - q) * beyond(0 * one, 0 * one) + q * beyond(at + 1, -at - 1))
        stay = (1 - q) * beyond(0 * one, 0 * one) + q * beyond(at, at)
        mixed = (1 - q) * stay + q * ((1 - q) * beyond(at + 1, -at - 1) + q * beyond(2 * at + 1, -one))
        bounds = [bound for bound in (flat, mixed) if bound.is_finite()]
        if not bounds:
            return arb(math.inf)
        return (height * height / 2).exp() * self.kappa(height * mu, c) * (ndtr(-left) + min(bounds, key=middle))

    def reach(self, c: float, need: float, step: float) -> tuple[float, float]:
        """Ends where the better bound of ``tails`` falls, M(c) being at least what Jensen's inequality says."""
        mu, q = float(self.mu), float(self.rate)
        up, stay, square = math.log(q), math.log1p(-q), mu * mu / 2
        down = math.log(1 - q + q * math.exp(-min((c + 1) * mu * mu, 700.0)))
        peak = max(0.0, (c + 1) * up + (c + 1) * c * square - c * down)

        def end(*modes: tuple[float, float]) -> float:
            return max(m * mu + math.sqrt(max(2 * (need + size - peak), 0.0)) for m, size in modes)

        one = (c + 1, up + (c + 1) * c * square)
        flat = end((0.0, -c * stay), (one[0], one[1] - c * stay))
        mixed = end((0.0, 0.0), (c, up + c * (c + 1) * square), one, (2 * c + 1, 2 * up + 4 * c * (c + 1) * square))
        return max(math.sqrt(2 * need), 0.5 * mu + step), min(flat, mixed)

    def profile(self, epsilon: Ball) -> Ball:
        """One use: P(t > τ) − e^ε Q(t > τ) where the loss passes ε (``proofs/replace_one.md``). Any real ε."""
        mu, q = arb(self.mu), arb(self.rate)
        k, grow = q * (-mu * mu / 2).exp(), epsilon.exp()
        half = (1 - q) * epsilon.expm1() / 2
        root = (half * half + k * k * grow).sqrt()
        # The positive root of ky² − 2·half·y − e^ε k, without cancellation.
        y = (root + half) / k if half > 0 else k * grow / (root - half)
        tau = y.log() / mu
        return (1 - q) * -epsilon.expm1() * ndtr(-tau) + q * (ndtr(mu - tau) - grow * ndtr(-mu - tau))


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
        total = arb(0)
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
            total += min(bounds, key=middle) if bounds else arb(math.inf)
        return scale * total

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
        capped = [*each[: law.most], sum(each[law.most :], start=arb(0))]
        return capped, [b * (-((j * one) ** 2) / 2).exp() for j, b in enumerate(capped)]
