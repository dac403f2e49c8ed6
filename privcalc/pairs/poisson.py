"""The pair of a Poisson-sampled mechanism, in the order that removes a record or adds one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, Transform
from privcalc.numerics.routes.atoms import Atoms
from privcalc.numerics.solve import Bounds
from privcalc.pairs.pair import LeakPair, Pair, SymmetricPair


@dataclass(frozen=True)
class SampledPair(Pair):
    """Poisson sampling of a pair (P, Q) = (with, without the record) that dominates at every real ε.

    Remove: ((1 − q)Q + qP, Q), δ_q(ε) = q·δ(ε'), e^{ε'} = 1 + (e^ε − 1)/q. Add: (Q, (1 − q)Q + qP), whose profile is
    (1 − (1 − q)e^ε)·δ_{Q‖P}(ε''), e^{−ε''} = 1 + (e^{−ε} − 1)/q, for ε < −log(1 − q), else 0
    (Balle, Barthe, Gaboardi 2018, Theorem 8; Zhu, Dong, Wang 2022, Theorem 11). Proof: ``proofs/poisson.md``.
    """

    base: Pair
    rate: float
    add: bool

    def profile(self, epsilon: Floats) -> ProfileValues:
        return self._add_profile(epsilon) if self.add else self._remove_profile(epsilon)

    def _remove_profile(self, epsilon: Floats) -> ProfileValues:
        q = self.rate
        with np.errstate(over="ignore", divide="ignore"):
            # Up to 30 with all digits near 0, beyond in a form that cannot overflow; at 30 both have all digits.
            near = np.log1p(np.expm1(np.minimum(epsilon, 30.0)) / q)
            inner = np.where(epsilon < 30, near, epsilon - np.log(q) + np.log1p(-(1 - q) * np.exp(-epsilon)))
        delta, tail, error = self.base.profile(inner)
        # δ has slope −tail in ε', and ε' is off by a few units: perhaps from beyond an atom, where the tail is smaller.
        steepest = (
            tail
            if self.base.gdp is not None
            else np.maximum(tail, self.base.profile(inner - 16 * UNIT * np.abs(inner)).tail)
        )
        error = q * (error + 8 * UNIT * (np.abs(inner) * steepest + delta)) + TINY
        return ProfileValues(q * delta, tail * np.exp(epsilon - inner), error)

    @np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
    def _add_profile(self, epsilon: Floats) -> ProfileValues:
        q = self.rate
        share = np.expm1(-epsilon) / q
        gap = epsilon + math.log1p(-q)  # < 0 inside
        inside = gap < -8 * UNIT * epsilon
        losses, epsilon = epsilon, np.where(inside, epsilon, 0.0)
        share = np.where(inside, share, 0.0)
        # 1 − (1 − q)e^ε, and ε'' from it near the edge, where 1 + share cancels.
        near_edge = inside & (share < -0.5)
        edge = np.where(near_edge, -np.expm1(gap), 1.0)
        inner = np.where(near_edge, epsilon + math.log(q) - np.log(edge), -np.log1p(np.where(near_edge, 0.0, share)))
        inner = np.where(inside, np.maximum(inner, 0.0), 0.0)
        delta, tail, error = self.base.reverse.profile(inner)
        left = np.where(near_edge, edge, np.where(inside, q * np.exp(epsilon) * (1 + share), 0.0))
        condition = 16 * UNIT * (1 + epsilon / np.where(inside, -gap, 1.0) + abs(math.log(q)) * near_edge) * (1 + inner)
        out_tail = np.where(inside, np.exp(epsilon) * (1 - q) * (delta + tail) + left * tail, 0.0)
        if self.base.gdp is None:  # rounding may have carried ε'' beyond an atom, where the tail is smaller
            before = np.maximum(inner - np.minimum(condition, 1.0), 0.0)
            tail = np.maximum(tail, self.base.reverse.profile(before).tail)
        # Beyond the largest loss δ is 0; within rounding of it, at most 1 − (1 − q)e^ε ≤ −(ε + log(1 − q)).
        near = np.where(losses > self.max_loss * (1 + 16 * UNIT), 0.0, 32 * UNIT * losses)
        error = np.where(inside, left * error + condition * (left * delta + left * tail), near) + TINY
        return ProfileValues(left * delta, out_tail, error)

    @property
    def reverse(self) -> Pair:
        """The other direction of sampling."""
        return SampledPair(self.base, self.rate, not self.add)

    @property
    def max_loss(self) -> float:
        """log(1 − q + q e^{l}), l the base pair's largest loss; −log(1 − q + q e^{−l}) in the add direction."""
        if self.add:
            least = self.base.reverse.max_loss
            if -self.rate * math.expm1(-least) > 0.5:  # 1 + q(e^{−l} − 1) would cancel; 1 − q and qe^{−l} do not
                return float(-np.log((1 - self.rate) + self.rate * np.exp(-least)))
            return -math.log1p(self.rate * math.expm1(-least))
        top = self.base.max_loss
        if top == math.inf:
            return math.inf
        if top > 700:  # e^l would overflow; rounded up, because the sum of logarithms may cancel
            log_q = math.log(self.rate)
            return top + log_q + math.log1p((1 - self.rate) / self.rate * math.exp(-top)) + 8 * UNIT * (top - log_q)
        # A rounding of l counts as l(1 + x)/x times as much in x.
        x = self.rate * math.expm1(top)
        return math.log1p(x) + 4 * UNIT * min(top, self.rate * top * math.exp(top))

    @property
    def zcdp(self) -> float:
        """Sampling never costs: Rényi divergence is quasi-convex (van Erven, Harremoës 2014, Theorem 13)."""
        return self.base.zcdp

    @property
    def convex(self) -> bool:
        """Whether the base pair's profile is convex."""
        return self.base.convex

    @property
    def atoms(self) -> Atoms | None:
        """One for each of the base pair's."""
        law = self.base.atoms
        return None if law is None else law.sampled(self.rate, add=self.add)

    @property
    def transform(self) -> Transform | None:
        """The base pair knows it, or it is a sum over the atoms."""
        return self.base.sampled_transform(self.rate, add=self.add) or super().transform

    @property
    def gdp_bounds(self) -> Bounds:
        """The bounds of the base pair, exactly: all steps may sample the record, which rules the far tail.

        See ``proofs/gdp.md``.
        """
        return self.base.gdp_bounds


@dataclass(frozen=True)
class JointConvexityPair(SymmetricPair):
    """Replacing one record of a sample: a bound by advanced joint convexity; symmetric by construction.

    With ε' = log(1 + (e^ε − 1)/q) and β = e^{ε − ε'}, for ε ≥ 0 (Balle, Barthe, Gaboardi 2018, Theorem 2 and the
    convexity of δ),

        δ_q(ε) ≤ q·[(1 − β)·δ_one(ε') + β·δ_two(ε')],

    ``one`` being the pair (with the record, without it) and ``two`` the pair of the two replaced records' outputs. The
    true profile is convex, so the convex minorant of this bound and of its swap holds too, and composes.
    Proof: ``proofs/fixed_size.md``, §2.
    """

    one: Pair
    two: Pair
    rate: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The bound; its ``tail`` is not used, because no lower law is built on a bound."""
        one = SampledPair(self.one, self.rate, add=False).profile(epsilon)
        two = one if self.two == self.one else SampledPair(self.two, self.rate, add=False).profile(epsilon)
        # β = e^ε/(1 + (e^ε − 1)/q)
        beta = self.rate / (self.rate * np.exp(-epsilon) - np.expm1(-epsilon))
        mixed = ProfileValues(*((1 - beta) * x + beta * y for x, y in zip(one, two, strict=True)))
        # 1 − β is off by a few units of 1, also where q is off by one or two.
        return mixed._replace(error=mixed.error + 16 * UNIT * (mixed.delta + one.delta))

    @property
    def convex(self) -> bool:
        """Not as it stands."""
        return False

    @property
    def max_loss(self) -> float:
        """The largest loss of the two records' pair, sampled."""
        return SampledPair(self.two, self.rate, add=False).max_loss

    @property
    def zcdp(self) -> float:
        """The replace-one pair without sampling dominates."""
        return self.two.zcdp

    @property
    def gdp_bounds(self) -> Bounds:
        """Between nothing and the replace-one pair without sampling."""
        return 0.0, self.two.gdp_bounds[1]


def sampled(pair: Pair, rate: float) -> tuple[Pair, Pair]:
    """The remove and the add direction; a leak is seen if the record is sampled (``proofs/conversions.md``, §2)."""
    if pair.gdp == 0:
        return pair, pair
    if not isinstance(pair, LeakPair):
        return SampledPair(pair, rate, add=False), SampledPair(pair, rate, add=True)
    remove, add = sampled(pair.pair, rate)
    leak, attained = math.nextafter(rate * pair.leak, 1.0), math.nextafter(rate * pair.attained, 0.0)
    return LeakPair(remove, leak, attained, pair.dropped), LeakPair(add, leak, 0.0, pair.dropped)
