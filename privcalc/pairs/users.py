"""A person with several records, each of which takes part by its own coin: mixtures of normal distributions."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.counts import LEAST_LOG_NEVER, Counts, LogRatio
from privcalc.numerics.faces import ProfileValues, Transform
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.normal import log_normal_tail
from privcalc.numerics.solve import Bounds
from privcalc.numerics.users import UsersTransform
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair

_GRID = 1025
"""Points between which thresholds are looked up first."""


@dataclass(frozen=True)
class UsersPair(Pair):
    """Σ_j P(J = j)·N(jμ, 1) against Σ_j P(J' = j)·N(−jμ, 1).

    J records of a person were removed, J' of another one added.

    None for a J that is always 0. It dominates, and occurs (``proofs/users.md``). The loss log w(t) − log w'(−t) rises
    in t.
    """

    mu: float
    up: Counts | None
    down: Counts | None

    @np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
    def profile(self, epsilon: Floats) -> ProfileValues:
        """P(t > t*) − e^ε Q(t > t*) at a t* just below that where the loss is ε; what that costs is in the error."""
        t = _thresholds(self, epsilon)
        loss = _loss(self, t)
        log_p, log_q = _log_beyond(self.mu, self.up, t), _log_beyond(-self.mu, self.down, t)
        p = np.exp(log_p.value)
        tail = np.where(t >= self._far, 0.0, np.exp(epsilon + log_q.value))  # there P has nothing left
        # Between t and t* the density is e^ε Q − P ≤ (1 − e^{loss − ε})e^ε Q; or, if t lies beyond t*, P − e^ε Q ≤ P.
        noise = 8 * UNIT * (loss.size + epsilon)
        gap = loss.value - epsilon
        missed = np.where(
            gap + noise <= 0, -np.expm1(np.minimum(gap - noise, 0.0)) * tail, -np.expm1(-np.abs(gap) - noise)
        )
        missed = np.where(t >= self._far, np.minimum(missed, p), missed)
        error = missed + 8 * UNIT * ((1 + log_p.size) * p + (1 + log_q.size + epsilon) * tail) + TINY
        beyond = epsilon > self.max_loss * (1 + 16 * UNIT)
        delta = np.where(beyond, 0.0, np.maximum(p - tail, 0.0))
        return ProfileValues(delta, np.where(beyond, 0.0, tail), np.where(beyond, TINY, error))

    @property
    def _far(self) -> float:
        """A point beyond which P has less than 1e-320."""
        # P(N > 39) = 1e-333 is below the least double.
        return 39.0 + (self.up.largest * self.mu if self.up else 0.0)

    @property
    def reverse(self) -> Pair:
        """The pair (Q, P), by the reflection t → −t."""
        return UsersPair(self.mu, self.down, self.up)

    @property
    def max_loss(self) -> float:
        """−log P(J' = 0) where nothing was removed."""
        if self.up is not None:
            return math.inf
        return -self.down.log_never if self.down is not None else 0.0

    @property
    def zcdp(self) -> float:
        """The pair in which all take part dominates."""
        return 0.5 * self.gdp_bounds[1] ** 2 * (1 + 8 * UNIT)

    @property
    def transform(self) -> Transform:
        return UsersTransform(self.mu, self.up, self.down)

    @property
    def gdp_bounds(self) -> Bounds:
        """All may take part in every step, which rules the far tails (``proofs/users.md``, §4)."""
        most = [law.most for law in (self.up, self.down) if law is not None]
        return max(most, default=0) * self.mu * (1 - 4 * UNIT), sum(most) * self.mu * (1 + 4 * UNIT)


def _log_beyond(mu: float, law: Counts | None, t: Floats) -> LogRatio:
    if law is None:
        return LogRatio(log_normal_tail(t), 1 + t * t)
    return law.log_beyond(mu, t)


def _loss(pair: UsersPair, t: Floats) -> LogRatio:
    """log w(t) − log w'(−t)."""
    value, size = np.zeros_like(t), np.zeros_like(t)
    for law, sign in ((pair.up, 1), (pair.down, -1)):
        if law is not None:
            log, rounding = law.log_ratio(pair.mu, sign * t)
            value, size = value + sign * log, size + rounding
    return LogRatio(value, size)


@functools.lru_cache(maxsize=64)
def _grid(pair: UsersPair) -> tuple[Floats, Floats]:
    """Points t, from one where the loss is at most 0 to where P has nothing left, and the losses there."""
    low = 0.0 if pair.down is None else -0.5 * pair.mu * pair.down.means[1] / pair.down.means[0] * (1 + 1e-9)
    t = np.linspace(low, pair._far, _GRID)
    return t, np.maximum.accumulate(_loss(pair, t).value)


def _thresholds(pair: UsersPair, epsilon: Floats) -> Floats:
    """Points just below those where the loss is ε, by Newton steps between two points of the grid."""
    points, losses = _grid(pair)
    at = np.clip(np.searchsorted(losses, epsilon), 1, points.size - 1)
    low, high = points[at - 1], points[at]
    share = (epsilon - losses[at - 1]) / np.maximum(losses[at] - losses[at - 1], TINY)
    t = low + np.clip(share, 0.0, 1.0) * (high - low)
    down = low.copy()
    left = np.arange(epsilon.size)
    for _ in range(60):
        x, goal = t[left], epsilon[left]
        loss, slope = _rising_loss(pair, x)
        gap = loss.value - goal
        low[left], high[left] = np.where(gap < 0, x, low[left]), np.where(gap > 0, x, high[left])
        noise = 8 * UNIT * (loss.size + goal)
        # Where it is found, one step down from it: by so much the loss is below ε for certain.
        found = (np.abs(gap) <= 2 * noise) | (high[left] - low[left] <= 4 * UNIT * np.abs(high[left]))
        step = (2 * np.abs(gap) + 3 * noise) / np.maximum(slope, TINY)
        down[left] = np.where(step < 1e-3, x - step, low[left])
        new = x - gap / np.maximum(slope, TINY)
        t[left] = np.where((new > low[left]) & (new < high[left]), new, 0.5 * (low[left] + high[left]))
        left = left[~found]
        if not left.size:
            break
    return np.asarray(down, dtype=np.float64)


def _rising_loss(pair: UsersPair, t: Floats) -> tuple[LogRatio, Floats]:
    """The loss, and its slope, rounded."""
    value, size, slope = np.zeros_like(t), np.zeros_like(t), np.zeros_like(t)
    for law, sign in ((pair.up, 1), (pair.down, -1)):
        if law is not None:
            (log, rounding), rise = law.rising_log_ratio(pair.mu, sign * t)
            value, size, slope = value + sign * log, size + rounding, slope + rise
    return LogRatio(value, size), slope


def users(mu: float, up: Counts | None, down: Counts | None) -> Pairs:
    """The pair and its reverse; that of all taking part, which dominates, where the chance of none underflows."""
    laws = [law for law in (up, down) if law is not None]
    if all(law.log_never > LEAST_LOG_NEVER for law in laws):
        pair = UsersPair(mu, up, down)
        return Pairs(pair, pair.reverse)
    whole = GaussianPair(mu * sum(law.most for law in laws) * (1 + 4 * UNIT))
    some = [None if law is None else law.fewer() for law in (up, down)]
    pair = UsersPair(mu, *some)
    return Pairs(whole, whole, (pair, pair.reverse), bound="unsampled")
