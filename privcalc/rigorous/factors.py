"""What a run is a product of: the loss of one kind of release, by its transform M(s) = E_P[e^{sL}], in ball arithmetic.

Parameters are exact fractions (a float is one). A symmetric factor is most readable in y = s + ½, as K(s) = K(−1 − s)
means that M is even in y. Statements and proofs: ``proofs/rigorous.md``.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from privcalc.rigorous.balls import Ball, acb, arb, middle, ndtr


class Line(ABC):
    """A factor on Re s = c, at the nodes c + ikh."""

    log_peak: Ball
    """log M(c)."""

    @abstractmethod
    def ratios(self, first: int, size: int) -> list[Ball]:
        """M(c + ikh)/M(c) for first ≤ k < first + size."""

    @abstractmethod
    def decay(self, u: float) -> Ball:
        """A bound of |M(c + iu')|/M(c) for all u' ≥ u at once."""

    def estimate(self, u: float) -> float:
        """About log(decay), for planning."""
        return middle(self.decay(u).log())


@dataclass(frozen=True)
class Factor(ABC):
    """A kind of release and how often it ran."""

    count: int

    @abstractmethod
    def log_moment(self, c: float) -> Ball:
        """log M(c) of one use, for planning and Chernoff bounds."""

    @property
    def top(self) -> Ball | None:
        """The largest loss of one use; None if there is none."""
        return None

    @property
    def corners(self) -> tuple[float, ...]:
        """Where K may bend."""
        return ()

    def line(self, c: float, h: float, nats: float) -> Line | None:
        """The factor on a line, relative errors below e^{−nats}; None where only real moments are known."""
        return None


@dataclass(frozen=True)
class Closed(Line):
    """A transform in closed form."""

    c: float
    h: float
    moment: Callable[[Ball], Ball]
    bound: Callable[[Ball], Ball]

    @property
    def log_peak(self) -> Ball:
        """The peak log M(c) on the line."""
        return self.moment(acb(self.c, 0)).real.log()

    def ratios(self, first: int, size: int) -> list[Ball]:
        c, h, peak = arb(self.c), arb(self.h), self.moment(acb(self.c, 0)).real
        return [self.moment(acb(c, k * h)) / peak for k in range(first, first + size)]

    def decay(self, u: float) -> Ball:
        """``bound``, a bound of |M|, over M(c); never more than 1."""
        return (self.bound(arb(u)) / self.moment(acb(self.c, 0)).real).min(arb(1))


@dataclass(frozen=True)
class Normal(Factor):
    """N(μ, 1) against N(0, 1), all uses as one: K(s) = μ²s(s + 1)/2."""

    square: Fraction

    def log_moment(self, c: float) -> Ball:
        """The transform in closed form."""
        return arb(self.square) / 2 * arb(c) * (arb(c) + 1)

    def line(self, c: float, h: float, nats: float) -> Line:
        """|M(c + iu)| = M(c)e^{−μ²u²/2}."""
        half = arb(self.square) / 2
        return Closed(
            c, h, lambda s: (half * s * (s + 1)).exp(), lambda u: (half * (arb(c) * (arb(c) + 1) - u * u)).exp()
        )

    def profile(self, epsilon: Ball) -> Ball:
        """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle, Wang 2018), any real ε."""
        mu = arb(self.square).sqrt()
        return ndtr(mu / 2 - epsilon / mu) - epsilon.exp() * ndtr(-mu / 2 - epsilon / mu)


class Discrete(Factor):
    """A loss that takes finitely many values."""

    @abstractmethod
    def law(self) -> list[tuple[Ball, Ball]]:
        """(loss, probability under P)."""

    @property
    def regular(self) -> bool:
        """Whether the losses are −a, 0 and a, with P(L = −a) = e^{−a}P(L = a)."""
        return False

    @property
    def top(self) -> Ball:
        losses = [loss for loss, _ in self.law()]
        return functools.reduce(lambda x, y: x.max(y), losses)

    def log_moment(self, c: float) -> Ball:
        return sum((p * (x * c).exp() for x, p in self.law()), start=arb(0)).log()

    def line(self, c: float, h: float, nats: float) -> Line:
        """|M(c + iu)| ≤ M(c), no better."""
        law = self.law()
        peak = self.log_moment(c).exp()
        return Closed(c, h, lambda s: sum((p * (x * s).exp() for x, p in law), start=acb(0, 0)), lambda _: peak)


@dataclass(frozen=True)
class Atoms(Discrete):
    """Losses ±a, and 0 if there are ``neutral`` outcomes.

    They are Poisson-sampled if ``rate`` < 1, in the order ``add`` or remove.
    """

    a: Fraction
    neutral: int = 0
    rate: Fraction = Fraction(1)
    add: bool = False

    @property
    def regular(self) -> bool:
        """If it is not sampled."""
        return self.neutral > 0 and self.rate == 1

    def law(self) -> list[tuple[Ball, Ball]]:
        a = arb(self.a)
        small = (-a).exp()
        one = 1 / (1 + (self.neutral + 1) * small)
        base = [(-a, small * one), *([(arb(0), self.neutral * small * one)] if self.neutral else []), (a, one)]
        return sampled(base, self.rate, self.add)


def sampled(law: list[tuple[Ball, Ball]], rate: Fraction, add: bool) -> list[tuple[Ball, Ball]]:
    """The law of log w = log(1 − q + qe^L) under (1 − q)Q + qP, or of −log w under Q.

    At q = 1 it is that of the reverse pair.
    """
    q = arb(rate)
    if add:
        return [(-(1 - q + q * x.exp()).log(), p * (-x).exp()) for x, p in reversed(law)]
    if rate == 1:
        return law
    return [((1 - q + q * x.exp()).log(), p * (q + (1 - q) * (-x).exp())) for x, p in law]


@dataclass(frozen=True)
class TwoPoint(Discrete):
    """Losses ``up`` and −``down``, both > 0."""

    up: Fraction
    down: Fraction

    def law(self) -> list[tuple[Ball, Ball]]:
        """Ascending losses; Q's masses are P's times e^{−L}, and both sum to 1."""
        up, down = arb(self.up), arb(self.down)
        whole = -(-up - down).expm1()
        return [(-down, (-down).exp() * -(-up).expm1() / whole), (up, -(-down).expm1() / whole)]


@dataclass(frozen=True)
class Finite(Discrete):
    """Outcomes with weights p under P and q under Q, both > 0; what P alone can give is set apart, as a leak."""

    outcomes: tuple[tuple[Fraction, Fraction], ...]
    whole: tuple[Fraction, Fraction]
    """What all weights of P and of Q come to, those of no outcome here included."""
    rate: Fraction = Fraction(1)
    add: bool = False

    def law(self) -> list[tuple[Ball, Ball]]:
        """P, given one of the outcomes."""
        kept = sum(p for p, _ in self.outcomes)
        one, two = self.whole
        base = [
            ((arb(p / q) * (arb(two) / arb(one))).log(), arb(p / kept)) for p, q in sorted(self.outcomes, key=_ratio)
        ]
        return sampled(base, self.rate, self.add)


def _ratio(outcome: tuple[Fraction, Fraction]) -> Fraction:
    return outcome[0] / outcome[1]


@dataclass(frozen=True)
class Symmetric(Factor):
    """A loss between −a and a, whose transform has a closed form in y = s + ½."""

    a: Fraction

    @property
    def top(self) -> Ball:
        return arb(self.a)

    def log_moment(self, c: float) -> Ball:
        """The transform in closed form."""
        return self._moment(arb(c)).log()

    @abstractmethod
    def _moment(self, s: Ball) -> Ball: ...


@dataclass(frozen=True)
class Laplace(Symmetric):
    """Laplace noise of scale 1 at a and at 0: M = e^{−a/2}[cosh(ya) + sinh(ya)/(2y)]."""

    def _moment(self, s: Ball) -> Ball:
        a, y = arb(self.a), s + 0.5
        return (-a / 2).exp() * ((y * a).cosh() + (y * a).sinh() / (2 * y))

    def line(self, c: float, h: float, nats: float) -> Line:
        """|cosh|, |sinh| ≤ cosh of the real part."""
        a, y = arb(self.a), arb(c) + 0.5
        scale = (-a / 2).exp() * (y * a).cosh()
        return Closed(c, h, self._moment, lambda u: scale * (1 + 1 / (2 * (y * y + u * u).sqrt())))


@dataclass(frozen=True)
class Logistic(Symmetric):
    """The pair that dominates every loss with a range of a: M = sinh(ya)/(2y sinh(a/2))."""

    def _moment(self, s: Ball) -> Ball:
        a, y = arb(self.a), s + 0.5
        return (y * a).sinh() / (2 * y * (a / 2).sinh())

    def line(self, c: float, h: float, nats: float) -> Line:
        """|sinh| ≤ cosh of the real part."""
        a, y = arb(self.a), arb(c) + 0.5
        scale = (y * a).cosh() / (2 * (a / 2).sinh())
        return Closed(c, h, self._moment, lambda u: scale / (y * y + u * u).sqrt())


@dataclass(frozen=True)
class Moments(Factor):
    """D_α ≤ ξ + ρα for every α > 1, and D_α ≤ ``most``: K(c) ≤ c·min(ξ + ρ(c + 1), most)."""

    rho: Fraction
    xi: Fraction = Fraction(0)
    most: Fraction | None = None

    def log_moment(self, c: float) -> Ball:
        """Return the smaller of the two given bounds of log M(c)."""
        at = Fraction(c)
        rate = self.xi + self.rho * (at + 1)
        return arb(at * (rate if self.most is None else min(rate, self.most)))

    @property
    def top(self) -> Ball | None:
        return None if self.most is None else arb(self.most)


@dataclass(frozen=True)
class Chords(Factor):
    """Chords of K(c), below which it lies, as it is convex: through 0 and the given (c, K).

    Beyond the last there is none but c·``most``.
    """

    knots: tuple[tuple[Fraction, Fraction], ...]
    most: Fraction | None

    def log_moment(self, c: float) -> Ball:
        """The chord at c."""
        at, previous = Fraction(c), (Fraction(0), Fraction(0))
        for knot in self.knots:
            if at <= knot[0]:
                slope = (knot[1] - previous[1]) / (knot[0] - previous[0])
                chord = previous[1] + slope * (at - previous[0])
                return arb(chord if self.most is None else min(chord, self.most * at))
            previous = knot
        return arb(math.inf) if self.most is None else arb(self.most * at)

    @property
    def top(self) -> Ball | None:
        """The value at the order ∞."""
        return None if self.most is None else arb(self.most)

    @property
    def corners(self) -> tuple[float, ...]:
        return tuple(float(c) for c, _ in self.knots)
