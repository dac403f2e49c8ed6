"""Discrete Gaussian noise in ball arithmetic: the law of many uses, and their transform.

See ``proofs/rigorous.md``, §8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import flint

from privcalc.rigorous.balls import Ball, acb, arb, error, middle, ndtr, pi, precision, span
from privcalc.rigorous.description import UnprovableError
from privcalc.rigorous.factors import Closed, Factor, Line

_SMOOTH = 16
"""Variances from which a sum of such noises has nearly the masses of one."""

_FAR = 10**400
"""A loss that no claim's ε exceeds."""


@dataclass(frozen=True)
class Integers(Factor):
    """N_Z(0, σ²) around ``shift`` against around 0: loss (shift/σ²)(y + shift/2), y ∼ N_Z(0, σ²)."""

    square: Fraction
    shift: int

    def log_moment(self, c: float) -> Ball:
        """The series at a real point."""
        return self._moment(arb(c), arb(0)).real.log()

    def line(self, c: float, h: float, nats: float) -> Line:
        """|M(c + iu)| ≤ M(c), no better: it returns."""
        peak = self.log_moment(c).exp()
        return Closed(c, h, lambda s: self._moment(arb(c), s.imag), lambda _: peak)

    def _moment(self, c: Ball, u: Ball) -> Ball:
        """M(s), by a sum over y where σ < 1, else over k by Poisson's formula.

        Both fall like a Gaussian from their largest term.

        Raises:
            UnprovableError: where that is not known to within 1.
        """
        m, square, s = self.shift, arb(self.square), acb(0, 1) * u + c
        direct = self.square < 1
        fall = 1 / (2 * square) if direct else 2 * pi() ** 2 * square
        width = math.ceil(math.sqrt((flint.ctx.prec + 40) * math.log(2) / float(middle(fall)))) + 2
        top = c * m if direct else -u * m / (2 * pi() * square)
        first = round(middle(top))
        if not abs(top - first) <= 1:
            raise UnprovableError(f"{self}: its transform is out of range")
        total, whole = acb(0, 0), arb(0)
        for k in range(-width, width + 1):
            j = first + k
            if direct:
                total += (s * (m * (2 * j + m)) * fall - fall * (j * j)).exp()
            else:
                total += (
                    s * (s + 1) * m * m / (2 * square) - fall * (j * j) + 2 * pi() * acb(0, 1) * (s + 1) * (m * j)
                ).exp()
            whole += (-fall * (k * k)).exp()
        rest = 2 * (-fall * (width - 1) ** 2).exp() / (1 - (-fall * (width - 1)).exp())
        size = rest * (c * (c + 1) * m * m / (2 * square)).exp()
        return (total + acb(0, 1) * error(size) + error(size)) / (whole + rest.union(arb(0)))

    def size(self, bits: int) -> int:
        """How many losses ``composed`` yields at most."""
        return 2 * self._reach(self.count * self.square, bits) + 2

    def composed(self) -> Iterator[tuple[Ball, Ball]]:
        """(loss, probability) of all uses together, descending losses.

        First comes what is beyond the table, twice, at a large one.
        """
        step, middle_loss = Fraction(self.shift) / self.square, Fraction(self.shift * self.count, 2)
        table = self._wide if self.count == 1 or self.square >= _SMOOTH else self._narrow
        beyond, reach, masses = table()
        yield arb(_FAR), (2 * beyond).union(arb(0))
        for y, mass in zip(range(reach, -reach - 1, -1), masses, strict=True):
            yield arb(step * (y + middle_loss)), mass

    @staticmethod
    def _reach(variance: Fraction, bits: int) -> int:
        return math.ceil(math.sqrt(2 * float(variance) * (bits + 20) * math.log(2))) + 1

    def _wide(self) -> tuple[Ball, int, Iterator[Ball]]:
        """Return one noise of variance nσ², each mass off by the factors of ``proofs/discrete_gaussian.md``, §2."""
        variance, n = self.count * self.square, self.count
        reach = self._reach(variance, flint.ctx.prec)
        whole, beyond = _whole(variance, reach)
        scale = 1 / whole
        if n > 1:
            tau = arb(Fraction(21, 10)) * (-(pi() ** 2) * arb(self.square)).exp()
            ratio = ((1 + tau) / (1 - tau)) ** (n - 1)
            scale, beyond = scale * span(1 / ratio, ratio), beyond * ratio
        fall = -1 / (2 * arb(variance))
        return beyond, reach, (scale * (fall * (y * y)).exp() for y in range(reach, -reach - 1, -1))

    def _narrow(self) -> tuple[Ball, int, Iterator[Ball]]:
        """The convolution by squaring, cut where P(|Σy| > r) ≤ 2e^{−r²/(2kσ²)} for k uses is small for all of them."""
        most = self._reach(self.count * self.square, flint.ctx.prec)
        reach = self._reach(self.square, flint.ctx.prec)
        whole, beyond = _whole(self.square, reach)
        fall, poly = -1 / (2 * arb(self.square)), flint.arb_poly
        one = poly([(fall * (y * y)).exp() / whole for y in range(-reach, reach + 1)])
        part, uses, size, lost = one, 1, reach, beyond
        for bit in bin(self.count)[3:]:
            steps = [(part, uses, size, lost)] if bit == "0" else [(part, uses, size, lost), (one, 1, reach, beyond)]
            for with_, more, extra, missing in steps:
                part, uses, size, lost = part * with_, uses + more, size + extra, lost + missing
                if size > most:
                    part = poly(part.coeffs()[size - most : size + most + 1])
                    size, lost = most, lost + 2 * (fall * (most + 1) ** 2 / uses).exp()
        return lost, size, iter(part.coeffs()[::-1])


def _whole(variance: Fraction, reach: int) -> tuple[Ball, Ball]:
    """Σ_y e^{−y²/2v}, and the share of |y| > reach: below a geometric series from its first term on both sides."""
    v = arb(variance)
    fall = -1 / (2 * v)
    tail = 2 * (fall * (reach + 1) ** 2).exp() / (1 - (fall * (2 * reach + 3)).exp())
    if variance >= 1:  # Poisson's formula: σ√(2π)(1 + 2Σ e^{−2π²vk²})
        terms = math.ceil(math.sqrt((flint.ctx.prec + 40) * math.log(2) / (2 * math.pi**2 * float(variance)))) + 1
        drop = -2 * pi() ** 2 * v
        rest = 2 * (drop * (terms + 1) ** 2).exp() / (1 - drop.exp())
        total = 1 + 2 * sum(((drop * (k * k)).exp() for k in range(1, terms + 1)), start=arb(0)) + rest.union(arb(0))
        whole = (2 * pi() * v).sqrt() * total
    else:
        whole = 1 + 2 * sum(((fall * (y * y)).exp() for y in range(1, reach + 1)), start=arb(0)) + tail.union(arb(0))
    return whole, tail / whole


def unit_mu(sigma: Fraction) -> Fraction:
    """A double above W(σ) of ``proofs/discrete_gaussian.md``, (6.1): as 2/σ is, and what bisection has checked."""
    # W(σ) ≤ 2/σ; a twentieth more, whatever the rounding.
    low, high = float(1 / sigma), float(2.1 / sigma)
    with precision(400):
        wanted = (-1 / (2 * arb(sigma) ** 2)).exp()
        for _ in range(60):
            w = low + 0.5 * (high - low)
            beside = ndtr(arb(-w) / 2) - ndtr(arb(-3 * Fraction(w)) / 2)
            if beside < wanted * (1 - 2 * ndtr(arb(-w) / 2)):
                high = w
            else:
                low = w
    return Fraction(high)
