"""Replace-one under Poisson sampling: two opposite records, from a pair (with the record, without it).

Let f be the trade-off curve of "without" against "with": a test of level τ has a false negative rate of at least f(τ).
The pair on [0, 1] with the distribution functions (1 − q)τ + q(1 − f(τ)) and (1 − q)τ + q f(1 − τ) dominates every two
outputs of which one sampled one record and the other another one; it is its own reverse. So

    δ(ε) = sup_τ (1 − q)(1 − e^ε)τ + q(1 − f(τ)) − e^ε q f(1 − τ).

A level τ is that of the largest likelihood ratios r of with/without; at τ the loss is log w(r(τ)) − log w(r(1 − τ)),
w(r) = 1 − q + qr. Proof: ``proofs/replace_one.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.solve import Bounds
from privcalc.pairs.discrete import DiscretePair
from privcalc.pairs.pair import LeakPair, Pair, SymmetricPair
from privcalc.pairs.poisson import SampledPair
from privcalc.pairs.two_point import symmetric_mu

_FAR = 750.0
"""Losses beyond which e^{−L} is nothing."""

_HALVINGS = 64
"""Halvings of an interval of losses below 750: down to 4e-17."""


def opposite(pair: Pair, rate: float) -> Pair:
    """The pair of two opposite records where ``pair``, (with, without), dominates; 0 < rate ≤ 1."""
    inner, leak = (pair.pair, pair.leak) if isinstance(pair, LeakPair) else (pair, 0.0)
    known = None if leak else inner.opposed(rate)
    if known is not None:
        return known
    laws = inner.outcomes
    if laws is not None:
        p, q = ((1 - leak) * law for law in laws)
        two: Pair = finite(np.append(p, 0.0), np.append(q, leak), rate) if leak else finite(p, q, rate)
    elif leak or inner.gdp != 0:
        two = OppositePair(inner, rate, leak)
    else:
        return inner
    if not isinstance(pair, LeakPair) or not leak:
        return two
    most, least, dropped = rate * leak, rate * pair.attained, rate * pair.dropped
    return LeakPair(two, math.nextafter(most, 1.0), math.nextafter(least, 0.0), math.nextafter(dropped, 1.0))


def finite(p: Floats, q: Floats, rate: float) -> DiscretePair:
    """The pair of two laws on finitely many outcomes: P may be 0 where Q is not.

    What P has where Q is 0 is a leak, and left out.

    A cell of levels between two neighbouring sums of Q, from above or from below, has one ratio at τ and one at 1 − τ.
    Levels up to ½, where sums lose nothing; the others mirror them.
    """
    ratio = p / q
    order = np.argsort(-ratio, kind="stable")
    ratio, q = ratio[order], q[order]
    down, up = np.cumsum(q), np.cumsum(q[::-1])
    edges = np.unique(np.concatenate([down[down < 0.5], up[up < 0.5], [0.5]]))
    starts = np.append(0.0, edges[:-1])
    middle = starts + 0.5 * (edges - starts)
    high, low = (
        1 - rate + rate * values[np.minimum(np.searchsorted(sums, middle), q.size - 1)]
        for values, sums in ((ratio, down), (ratio[::-1], up))
    )
    mass = edges - starts
    a, b = mass * high, mass * low
    kept = a + b > 0
    whole = math.fsum(a) + math.fsum(b)
    a, b = a[kept] / whole, b[kept] / whole
    return DiscretePair((*a.tolist(), *b.tolist()), (*b.tolist(), *a.tolist()), 0.0)


def inner_loss(epsilon: Floats, below: Floats | float, rate: float) -> Floats:
    """Solve w(e^l) = e^ε w(e^{l'}) for l, l' = ``below``.

    e^l = e^{ε + l'} + (e^ε − 1)(1 − q)/q, to 16 units of |l| + |l'| + ε.
    """
    odds = (1 - rate) / rate
    with np.errstate(over="ignore", divide="ignore"):
        excess = np.expm1(np.minimum(epsilon + below, 30.0)) + odds * np.expm1(np.minimum(epsilon, 30.0))
        log_gain = math.log(odds) + epsilon + np.log(-np.expm1(-epsilon)) if odds else np.full_like(epsilon, -np.inf)
        far = np.logaddexp(epsilon + below, log_gain)
        near = (excess > -0.5) & (epsilon < 30) & (epsilon + below < 30)
        return np.asarray(np.where(near, np.log1p(np.where(near, excess, 0.0)), far), dtype=np.float64)


@dataclass(frozen=True)
class OppositePair(SymmetricPair):
    """The opposite records of a pair that is known by its profile, ``base`` with ``leak`` = λ set apart: a bound.

    With w(e^l) = e^ε w(e^{l'}), for every l'

        δ(ε) ≤ q·[δ_base(l) + e^{ε + l'} δ_reverse(−l')],

    the dual of the supremum over τ, and equal to it where Q(L > l) = Q(L < l'). All terms are ≥ 0.
    """

    base: Pair
    rate: float
    leak: float = 0.0

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The least that a search over l' finds; its ``tail`` is not used, because no lower law is built on a bound."""
        least = self.base.reverse.max_loss
        low = np.full_like(epsilon, -max(least, _FAR * (self.leak > 0)) if least < math.inf else -_FAR)
        high = np.full_like(epsilon, min(self.base.max_loss, _FAR))
        low, high = self._bracket(epsilon, low, high)
        ends = [self._at(epsilon, below) for below in (low, high)]
        better = ends[0].delta <= ends[1].delta
        return ProfileValues(*(np.where(better, x, y) for x, y in zip(*ends, strict=True)))

    def _bracket(self, epsilon: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Around the l' at which the levels of both events meet; both ends at the first one where they meet there."""
        high = np.where(self._gap(epsilon, low) >= 0, low, high)
        for _ in range(_HALVINGS):
            open_ = np.flatnonzero(high > low)
            if not open_.size:
                break
            middle = 0.5 * (low[open_] + high[open_])
            above = self._gap(epsilon[open_], middle) >= 0
            high[open_] = np.where(above, middle, high[open_])
            low[open_] = np.where(above, low[open_], middle)
        return low, high

    def _gap(self, epsilon: Floats, below: Floats) -> Floats:
        """Q(L < l') − Q(L > l), which does not fall with l'."""
        above = _above(self.base, inner_loss(epsilon, below, self.rate))
        return np.asarray(self.leak + (1 - self.leak) * (_below(self.base, below, epsilon).null - above.null))

    def _at(self, epsilon: Floats, below: Floats) -> ProfileValues:
        q, leak = self.rate, self.leak
        loss = inner_loss(epsilon, below, q)
        first, second = _above(self.base, loss), _below(self.base, below, epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            value = (1 - leak) * (first.gain + second.gain) + leak * np.exp(epsilon + below)
            error = first.error + second.error
            # l is off by 16 units: perhaps from beyond an atom, where the slope is smaller.
            size = np.abs(loss) + np.abs(below) + epsilon
            slope = np.maximum(first.slope, _above(self.base, loss - 32 * UNIT * size).slope)
            blur = 16 * UNIT * size * np.minimum(slope, 1.0) + 16 * UNIT * (1 + epsilon + np.abs(below)) * value
            tail = (1 - leak) * ((1 - q) * np.exp(epsilon - loss) * first.slope + q * second.slope)
        scale = q / (1 - q * leak) * (1 + 8 * UNIT)
        delta = np.minimum(scale * value, 1.0)
        return ProfileValues(delta, np.minimum(tail, 1.0), scale * (error + blur) + 4 * UNIT * delta + TINY)

    @property
    def convex(self) -> bool:
        """A supremum of functions that are linear in e^ε, if the base pair's profile is one."""
        return self.base.convex

    @property
    def max_loss(self) -> float:
        """log w(e^a) − log w(e^{−b}), a and b the largest losses of the base pair and of its reverse."""
        least = -math.log1p(-self.rate) if self.leak and self.rate < 1 else math.inf
        if not self.leak:
            least = (
                SampledPair(self.base, self.rate, add=True).max_loss if self.rate < 1 else self.base.reverse.max_loss
            )
        return (SampledPair(self.base, self.rate, add=False).max_loss + least) * (1 + 2 * UNIT)

    @property
    def zcdp(self) -> float:
        """min(ε, ε²/2)-zCDP from ε-DP, and 4ρ for two records from ρ-zCDP.

        Bun, Steinke 2016, Propositions 1.4 and 1.9.
        """
        group = 4 * self.base.zcdp if not self.leak else math.inf
        return min(self.max_loss, 0.5 * self.max_loss**2, group) * (1 + 8 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """Pure DP implies a μ."""
        return 0.0, symmetric_mu(self.max_loss) if self.max_loss < math.inf else math.inf


class _Event(NamedTuple):
    """An event S of large, or of small losses.

    Attributes:
        gain: P(S) − e^l Q(S) of large ones; e^ε(e^{l'}Q(S) − P(S)) of small ones.
        null: Q(S).
        slope: e^l Q(S) of large ones; e^ε P(S) of small ones.
        error: of ``gain``.
    """

    gain: Floats
    null: Floats
    slope: Floats
    error: Floats


def _above(pair: Pair, loss: Floats) -> _Event:
    """{L > l}, any real l: δ(l) is 1 − e^l + e^l δ_reverse(−l) for l < 0."""
    (d, t, e), (g, s, f) = pair.profile(np.maximum(loss, 0.0)), pair.reverse.profile(np.maximum(-loss, 0.0))
    right, low = loss >= 0, np.minimum(loss, 0.0)
    least = np.maximum(1 - g - s, 0.0)
    return _Event(
        np.where(right, d, np.exp(low) * g - np.expm1(low)),
        np.where(right, t * np.exp(-np.maximum(loss, 0.0)), least),
        np.where(right, t, np.exp(low) * least),
        np.where(right, e, np.exp(low) * f),
    )


@np.errstate(over="ignore", invalid="ignore")
def _below(pair: Pair, loss: Floats, epsilon: Floats) -> _Event:
    """{L < l'}, any real l': e^{l'} δ_reverse(−l') is δ(l') − 1 + e^{l'} for l' > 0."""
    (d, t, e), (g, s, f) = pair.profile(np.maximum(loss, 0.0)), pair.reverse.profile(np.maximum(-loss, 0.0))
    left, high = loss <= 0, np.maximum(loss, 0.0)
    shrunk, grown = np.exp(epsilon + np.minimum(loss, 0.0)), np.exp(epsilon)
    return _Event(
        np.where(left, shrunk * g, grown * (d + np.expm1(high))),
        np.where(left, g + s, np.maximum(1 - t * np.exp(-high), 0.0)),
        np.where(left, shrunk * s, grown * np.maximum(1 - d - t, 0.0)),
        np.where(left, shrunk * f, grown * e),
    )
