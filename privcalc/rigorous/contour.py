"""δ(ε) of a composition by the contour integral, every error bounded in ball arithmetic.

See ``proofs/rigorous.md``, §1 and §2.

    S = Σ_m e^{cmD}δ(ε + mD) = (h/π) Re[f(c)/2 + Σ_{k≥1} f(c + ikh)],  f(s) = e^{K(s) − sε}/(s(s + 1)),  D = 2π/h.

All terms on the left are ≥ 0: S bounds δ(ε) from above for any c > 0 and h. From below the terms m ≠ 0 are taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from privcalc.rigorous.balls import Ball, acb, arb, lower, middle, pi, precision, upper
from privcalc.rigorous.description import UnprovableError
from privcalc.rigorous.factors import Factor, Line

NODES = 2_000_000
"""More nodes than this are not tried."""

CHUNK = 16_384
"""Nodes between two reports of progress. Only memory depends on it."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Bounds:
    """Bounds of δ(ε), and how they were found."""

    low: float
    high: float
    how: str


@dataclass
class Axis:
    """K on the real axis: Chernoff bounds e^{A(c)} ≥ δ(ε), A(c) = K(c) − cε + c log c − (1 + c)log(1 + c)."""

    factors: Sequence[Factor]
    known: dict[float, Ball] = field(default_factory=dict)
    progress: Progress = field(default=lambda _: None)

    def log_moment(self, c: float) -> Ball:
        """Return K(c), from the cache if it was asked before."""
        if c not in self.known:
            self.progress("")
            with precision(192):
                try:
                    self.known[c] = sum((factor.count * factor.log_moment(c) for factor in self.factors), start=arb(0))
                except UnprovableError:
                    self.known[c] = arb(math.nan)
        return self.known[c]

    def log_bound(self, c: float, epsilon: Ball) -> Ball:
        """Return A(c) = K(c) − cε + c·log c − (1 + c)·log(1 + c), the logarithm of a bound of δ(ε)."""
        at = arb(c)
        return self.log_moment(c) - at * epsilon + at * at.log() - (1 + at) * (1 + at).log()

    def guess(self, c: float, epsilon: Ball) -> float:
        """About A(c); ∞ where it is not known."""
        value = middle(self.log_bound(c, epsilon))
        return math.inf if math.isnan(value) else value

    def best(self, epsilon: Ball, *, fine: bool = False) -> float:
        """About the c with the least A, a convex function; to 8 digits if ``fine``."""
        c, factor = 2.0**-6, 2.0
        here = self.guess(c, epsilon)
        if self.guess(c / factor, epsilon) < here:
            factor = 0.5
        powers = [0.25**k * sign for k in range(1, 14 if fine else 3) for sign in (1, -1)]
        for ratio in (factor, *(factor**power for power in powers)):
            # Any c is valid; beyond these the search has lost its way.
            while 1e-12 < c < 1e12 and (there := self.guess(c * ratio, epsilon)) < here:
                c, here = c * ratio, there
        return c

    def chernoff(self, epsilon: Ball, *, fine: bool = False) -> float:
        """An upper bound of δ(ε)."""
        points = [self.best(epsilon, fine=fine), *(c for factor in self.factors for c in factor.corners)]
        return min(1.0, *(upper(self.log_bound(c, epsilon).exp()) for c in points))


@dataclass(frozen=True)
class Place:
    """Where to integrate: the line, the step, the demanded accuracy of M, and log(e^{K(c) − cε})."""

    c: float
    h: float
    nats: float
    log_scale: float


class Contour:
    """One composed direction; K on the real axis is kept between questions."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self.factors, self.axis = factors, Axis(factors)

    def bounds(self, epsilon: Ball, log_small: float, progress: Progress) -> Bounds | str:
        """Bounds of δ(ε) whose distance is about e^{log_small}; a reason where there are none.

        Nothing that is chosen here can make them wrong.
        """
        place = self._place(epsilon, log_small)
        if place is None:
            return "no line for the contour"
        # It would take 50,000 bits.
        if not place.nats < 20_000:
            return f"M would be needed to {place.nats:.3g} nats"
        # More bits than the answer's, for what cancels, and 96. Too few would make balls wide, never wrong.
        bits = int(96 + 1.7 * place.nats / math.log(2))
        with precision(bits):
            drawn = [factor.line(place.c, place.h, place.nats) for factor in self.factors]
            lines = [(line, factor.count) for line, factor in zip(drawn, self.factors, strict=True) if line is not None]
            if len(lines) < len(drawn):
                return "a part that is known by real moments only"
            size = self._size(lines, place, log_small)
            if size is None:
                return f"|M| decays too slowly: more than {NODES} nodes would be needed"
            progress(f"contour at c = {place.c:.4g}: {size} nodes, step {place.h:.4g}, {bits} bits")
            log_peak = sum((count * line.log_peak for line, count in lines), start=arb(0)) - arb(place.c) * epsilon
            total = self._sum(lines, place, size, epsilon, progress)
            value = arb(place.h) / pi() * log_peak.exp() * total
            tail = log_peak.exp() / pi() * self._tail(lines, (size - 1) * arb(place.h))
            alias = self._aliases(place, epsilon)
            low = max(0.0, lower(value - tail - alias))
            missed = f"outside at most {upper(tail):.1e}, aliases at most {upper(alias):.1e}"
            how = f"contour, {size} nodes, {bits} bits, {missed}"
            return Bounds(low, min(1.0, upper(value + tail)), how)

    def _place(self, epsilon: Ball, log_small: float) -> Place | None:
        """The c that needs the shortest period D, for aliases of about e^{log_small}."""
        middle_c = self.axis.best(epsilon)
        points = [middle_c * 1.12**k for k in range(-30, 22)]
        bound = {c: self.axis.guess(c, epsilon) for c in points}
        options = []
        for c in points:
            if not math.isfinite(bound[c]):
                continue
            left = min(
                [-log_small / c] + [(bound[d] - log_small) / (c - d) for d in points if d < c and bound[d] < math.inf]
            )
            right = min(
                [(bound[d] - log_small) / (d - c) for d in points if d > c and bound[d] < math.inf], default=math.inf
            )
            # A step is at most 6000c: below, the period is short for other reasons, and nodes are few anyway.
            period = max(left, right, 1e-3 / c)
            if period < math.inf:
                slack = max(bound[c] - log_small, 0.0)
                # 400: so many nats of cancellation cost as much as twice the nodes. Empirical: only speed depends on
                # it.
                options.append((period * (1 + slack / 400), c, period))
        if not options:
            return None
        _, c, period = min(options)
        log_scale = middle(self.axis.log_moment(c) - arb(c) * epsilon)
        nats = max(0.0, log_scale - math.log(c) - log_small) + math.log(max(f.count for f in self.factors)) + 10
        # A thousandth more, so that what floats chose holds in balls.
        return Place(c, 2 * math.pi / (1.001 * period), nats, log_scale)

    def _size(self, lines: Sequence[tuple[Line, int]], place: Place, log_small: float) -> int | None:
        """The number of nodes after which little is left, estimated."""
        u = place.h

        def left(u: float) -> float:
            return place.log_scale - math.log(u) + sum(count * line.estimate(u) for line, count in lines)

        while left(u) > log_small - 3:
            u *= 1.1
            if u > NODES * place.h:
                return None
        return math.ceil(u / place.h) + 2

    @staticmethod
    def _tail(lines: Sequence[tuple[Line, int]], start: Ball) -> Ball:
        """Bounds Σ_{k ≥ N} h|f|, over e^{K(c) − cε}: blocks [u, v] contribute ρ(u)(1/u − 1/v)."""
        total, u = arb(0), lower(start)
        # Twelve blocks that grow by 1.4 reach 40 times as far as the last node; the last one counts all beyond.
        for last in (False,) * 11 + (True,):
            product = arb(1)
            for line, count in lines:
                product *= line.decay(u) ** count
            v = u * 1.4
            total += product * (1 / arb(u) - (0 if last else 1 / arb(v)))
            u = v
        return total

    @staticmethod
    def _sum(lines: Sequence[tuple[Line, int]], place: Place, size: int, epsilon: Ball, progress: Progress) -> Ball:
        """Re[f(c)/2 + Σ_{1 ≤ k < size} f(c + ikh)] over e^{K(c) − cε}."""
        c, h = arb(place.c), arb(place.h)
        total = arb(0)
        for first in range(0, size, CHUNK):
            block = min(CHUNK, size - first)
            columns = [(line.ratios(first, block), count) for line, count in lines]
            for i in range(block):
                u = (first + i) * h
                term = acb(0, -u * epsilon).exp() / (acb(c, u) * acb(c + 1, u))
                for ratios, count in columns:
                    term *= ratios[i] ** count
                total += term.real / 2 if first + i == 0 else term.real
            if size > CHUNK:
                progress(f"{min(first + CHUNK, size)} of {size} nodes")
        return total

    def _aliases(self, place: Place, epsilon: Ball) -> Ball:
        """Σ_{m≠0} e^{cmD}δ(ε + mD) ≤ e^{A(d)}ρ/(1 − ρ), ρ = e^{−|c − d|D}, any d > c and any d < c.

        There, A(0) = 0.
        """
        period = 2 * pi() / arb(place.h)
        left = [self._alias(arb(0), arb(place.c) * period)]
        right = [arb(math.inf)]
        for d in list(self.axis.known):
            gap = abs(arb(d) - arb(place.c)) * period
            # Below, ρ/(1 − ρ) is above 1e6, and no bound.
            if gap > 1e-6:
                (right if d > place.c else left).append(self._alias(self.axis.log_bound(d, epsilon), gap))
        return min(left, key=upper) + min(right, key=upper)

    @staticmethod
    def _alias(log_bound: Ball, gap: Ball) -> Ball:
        return (log_bound - gap).exp() / -(-gap).expm1()
