"""A person with several records, each of which takes part by its own coin: mixtures of normal distributions."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Complexes, Floats
from privcalc.numerics.gaussian_mixture import LEAST_LOG_NEVER, Counts, Draws, LogRatio, TurnedLogRatio
from privcalc.numerics.interfaces import ProfileValues, Transform
from privcalc.numerics.normal_loss import Logs, NormalLoss
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import gdp_profile, log_normal_tail
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair, SymmetricPair


@dataclass(frozen=True)
class UsersTransform(NormalLoss):
    """Σ_j P(J = j)·N(jμ, 1) against Σ_j P(J' = j)·N(−jμ, 1); None for a J that is always 0."""

    shift: float
    up: Counts | None
    down: Counts | None
    mu: float = field(init=False, default=0.0)
    """How far a unit of Im t turns the ratios."""

    @property
    def _laws(self) -> list[Counts]:
        return [law for law in (self.up, self.down) if law is not None]

    @property
    def _turns(self) -> int:
        """1 where all zeros of w and w' are real, else the largest J: each r_j may then turn by π in all."""
        return 1 if all(law.most == law.records for law in self._laws) else max(law.largest for law in self._laws)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", self.shift * self._turns)

    def logs(self, t: Floats) -> Logs[Floats]:
        """A = log w(t), L = log w(t) − log w'(−t)."""
        none = np.zeros_like(t)
        up, up_size = (none, none) if self.up is None else self.up.log_ratio(self.shift, t)
        down, down_size = (none, none) if self.down is None else self.down.log_ratio(self.shift, -t)
        return Logs(up, up - down, up_size, up_size + down_size)

    def turned(self, t: Floats, angle: float | Floats) -> Logs[Complexes]:
        none = np.zeros(np.broadcast_shapes(np.shape(t), np.shape(angle)))
        inner = angle / self._turns
        zero = TurnedLogRatio(np.zeros(none.shape, dtype=np.complex128), none)
        up, up_size = zero if self.up is None else self.up.turned_log_ratio(self.shift, t, inner)
        down, down_size = zero if self.down is None else self.down.turned_log_ratio(self.shift, -t, inner)
        return Logs(up, np.asarray(up - np.conj(down), dtype=np.complex128), up_size, up_size + down_size)

    def log_kappa(self, angle: Floats, c: float | Floats) -> Floats:
        """Return log κ of w'(−t)^{−c}: |w'| is at least (cos ½α)^m times what it is at α = 0."""
        if self.down is None:
            return np.zeros_like(angle)
        power = 1.0 if self._turns > 1 else min(self.down.records, -2 / math.expm1(-0.5 * self.shift**2))
        return np.asarray(-c * power * np.log(np.cos(0.5 * angle)), dtype=np.float64)

    def ends(self, c: float, step: float, log_tol: float) -> tuple[float, float | None]:
        """Ends of the rule: for t ≤ 0 w(t) ≤ 1, and w'(−t) ≥ 1 from a mean shift on.

        On the right w'^{−c} is below a tangent, if w = 1.
        """
        z = math.sqrt(-2 * log_tol)
        left, law = z, self.down
        if law is not None:
            left = max(z, 0.5 * self.shift * law.means[1] / law.means[0] * (1 + 1e-9))
        if self.up is not None or law is None:
            return -left - step, None
        far = -math.sqrt(2 * (-log_tol - c * law.log_never)) - step
        # With x = −t, −c·log w'(x) is concave: below its tangent at b, of slope −k.
        b = np.linspace(-z, far, 65)[:-1] - step
        log_b = law.log_ratio(self.shift, b + step).value
        slope = c * self.shift * law.mean_at(self.shift, b + step)
        log_tail = -c * log_b + slope * (b + step) + 0.5 * slope**2 + log_normal_tail(-(b + step) - slope)
        good = (log_tail <= log_tol) & (-(b + step) >= slope)
        if good.any():
            far = float(b[int(np.argmax(good))])
        return -left - step, -far

    def log_beyond(self, b: float) -> float:
        """For the mixture of those removed."""
        if self.up is None:
            return float(log_normal_tail(np.array(b)))
        value, size = self.up.log_beyond(self.shift, np.array([b]))
        return float(value[0] + 1e-15 * size[0])

    def beyond(self, log_mass: float) -> float:
        """Each of the n + 1 normal tails by Φ(−z) ≤ e^{−z²/2}/2, and a share of 2/(n + 1) for it."""
        assert self.up is not None
        j = np.arange(self.up.weights.size)
        room = self.up.log_weights + math.log(0.5 * j.size) - log_mass
        return float(np.max(j * self.shift + np.sqrt(2 * np.maximum(room, 0.0))))

    def reach(self, c: float, log_tol: float) -> float:
        """The modes of r_j^{c+1}φ, each with its weight, times w'^{−c} at most."""
        assert self.up is not None
        j = np.arange(self.up.weights.size)
        rest = -c * self.down.log_never if self.down is not None else 0.0
        size = (c + 1) * self.up.log_weights + 0.5 * c * (c + 1) * (j * self.shift) ** 2 + rest
        return float(np.max((c + 1) * j * self.shift + np.sqrt(2 * np.maximum(size - log_tol + 8, 0.0)))) + 4


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
        loss, _ = _rising_loss(self, t)
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


@functools.lru_cache(maxsize=64)
def _grid(pair: UsersPair) -> tuple[Floats, Floats]:
    """Points t, from one where the loss is at most 0 to where P has nothing left, and the losses there."""
    low = 0.0 if pair.down is None else -0.5 * pair.mu * pair.down.means[1] / pair.down.means[0] * (1 + 1e-9)
    t = np.linspace(low, pair._far, _GRID)
    return t, np.maximum.accumulate(_rising_loss(pair, t)[0].value)


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
        done = (np.abs(gap) <= 2 * noise) | (high[left] - low[left] <= 4 * UNIT * np.abs(high[left]))
        step = (2 * np.abs(gap) + 3 * noise) / np.maximum(slope, TINY)
        down[left] = np.where(step < 1e-3, x - step, low[left])
        new = x - gap / np.maximum(slope, TINY)
        t[left] = np.where((new > low[left]) & (new < high[left]), new, 0.5 * (low[left] + high[left]))
        left = left[~done]
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
