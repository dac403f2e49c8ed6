"""Pairs of laws on finitely many outcomes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.log_moment import below_chords
from privcalc.numerics.routes.atoms import Atoms
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import logsumexp
from privcalc.pairs.pair import Pair
from privcalc.pairs.two_point import symmetric_mu


@dataclass(frozen=True)
class DiscretePair(Pair):
    """Two laws on finitely many outcomes, as (p, q) with every p > 0 and Σp = 1, Σq ≤ 1: the rest of Q is where P is 0.

    The profile is piecewise linear in e^ε; both it and the slope are sums of terms ≥ 0. Proof: ``proofs/custom.md``,
    §1. Losses, and all masses relatively, may be off by ``inherited`` before any rounding here.

    No loss exceeds ``top``.
    """

    p: tuple[float, ...]
    q: tuple[float, ...]
    rest: float
    inherited: float = 0.0
    top: float = math.inf

    @functools.cached_property
    def _table(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Losses, descending; log of the cumulated Q; δ at the losses; cumulated P."""
        p, q = np.array(self.p), np.array(self.q)
        losses = np.log(p) - np.log(q)
        order = np.argsort(-losses, kind="stable")
        losses, p, q = losses[order], p[order], q[order]
        log_q = np.asarray(np.logaddexp.accumulate(np.log(q)), dtype=np.float64)
        # From one loss down to the next, δ grows by Q(L ≥ the upper one)·(difference of e^L).
        steps = np.exp(log_q[:-1] + losses[:-1]) * -np.expm1(np.diff(losses))
        return losses, log_q, np.concatenate([[0.0], np.cumsum(steps)]), np.cumsum(p)

    @functools.cached_property
    def _blur(self) -> float:
        """A bound of the error of any loss, and of the relative error of any sum."""
        logs = np.abs(np.log(np.concatenate([self.p, self.q])))
        return UNIT * (64 + 8 * float(logs.max()) + 8 * len(self.p)) + self.inherited

    def profile(self, epsilon: Floats) -> ProfileValues:
        """δ = δ(l) + Q(L ≥ l)(e^l − e^ε), l the next larger loss."""
        losses, log_q, at_loss, mass = self._table
        index = np.searchsorted(-losses, -epsilon, side="left") - 1  # the last loss > ε
        inside, j = index >= 0, np.maximum(index, 0)
        with np.errstate(under="ignore"):
            tail = np.where(inside, np.exp(np.minimum(log_q[j] + epsilon, 0.0)), 0.0)
            share = np.exp(np.minimum(log_q[j] + losses[j], 0.0)) * -np.expm1(np.minimum(epsilon - losses[j], 0.0))
        delta = np.where(inside, np.minimum(at_loss[j] + share, 1.0), 0.0)
        # A loss that is off by the blur moves δ by that times P(L = l): also one that lies at ε, or just below it.
        near = np.searchsorted(-losses, 4 * self._blur - epsilon, side="left") - 1
        error = 4 * self._blur * (delta + tail + np.where(near > index, mass[np.maximum(near, 0)], 0.0))
        return ProfileValues(delta, tail, error + TINY)

    @property
    def reverse(self) -> Pair:
        """The reverse, needed for its profile: with ``rest`` > 0 the rest of Q is a certain event.

        As a pair of laws it is not needed then.
        """
        return RestPair(self) if self.rest else DiscretePair(self.q, self.p, 0.0, self.inherited)

    @property
    def max_loss(self) -> float:
        """The largest, rounded up."""
        return min(max(float(self._table[0][0]) + self._blur, 0.0), self.top)

    @property
    def _least(self) -> float:
        return float(self._table[0][-1]) - self._blur

    @property
    def zcdp(self) -> float:
        """The least of ε, ε²/2 and r²/8, r the range of the loss.

        The loss's variance under any tilted law is at most r²/4.
        """
        if self.rest:
            return math.inf
        epsilon, spread = max(self.max_loss, -self._least), self.max_loss - self._least
        return min(epsilon, 0.5 * epsilon**2, 0.125 * spread**2) * (1 + 8 * UNIT)

    def log_moment(self, c: Floats) -> Floats:
        """log Σ p e^{cL}, at most c·max L, and near 0 at most the zCDP bound and chords.

        Cancellation rules near 0.
        """
        least = np.minimum(below_chords(self._sum, c), np.minimum(c * self.max_loss, self.zcdp * c * (c + 1)))
        return np.asarray(least, dtype=np.float64)

    def _sum(self, c: Floats) -> Floats:
        log_p = np.log(np.array(self.p))
        exponents = log_p + np.multiply.outer(c, log_p - np.log(np.array(self.q)))
        value = np.asarray(logsumexp(exponents, axis=-1), dtype=np.float64)
        error = self._blur * (4 + 4 * c + np.abs(value)) + UNIT * 8 * np.abs(exponents).max(axis=-1)
        return np.asarray(value + error, dtype=np.float64)

    @property
    def atoms(self) -> Atoms:
        """One for every outcome."""
        losses = np.log(self.p) - np.log(self.q)
        order = np.argsort(losses)
        return Atoms(losses[order], np.array(self.p)[order], self._blur, self._blur, complete=not self.rest)

    @property
    def outcomes(self) -> tuple[Floats, Floats]:
        """The rest of Q is one more."""
        return np.array((*self.p, *[0.0] * (self.rest > 0))), np.array((*self.q, *[self.rest] * (self.rest > 0)))

    @property
    def gdp_bounds(self) -> Bounds:
        """Pure DP implies a μ; nothing is claimed from below."""
        return 0.0, math.inf if self.rest else symmetric_mu(max(self.max_loss, -self._least))


@dataclass(frozen=True)
class RestPair(Pair):
    """(Q, P) of a pair whose Q has mass where P has none: δ(∞) > 0. Only ever the reverse of a pair that is asked."""

    base: DiscretePair

    @functools.cached_property
    def _finite(self) -> tuple[DiscretePair, float]:
        """The part of Q where P > 0, scaled to a law, and its mass."""
        kept = math.fsum(self.base.q)  # 1 − rest cancels
        return DiscretePair(tuple(x / kept for x in self.base.q), self.base.p, 0.0, self.base.inherited), kept

    def profile(self, epsilon: Floats) -> ProfileValues:
        """rest + kept·δ'(ε − log kept), δ' of the part where P > 0."""
        inner, kept = self._finite
        shift = -math.log(kept)
        delta, tail, error = inner.profile(epsilon + shift)
        blur = inner._blur * (1 + shift) * (delta + tail)
        return ProfileValues(self.base.rest + kept * delta, kept * tail, kept * (error + blur) + 8 * UNIT)

    @property
    def reverse(self) -> Pair:
        return self.base
