"""The exponential mechanism, and the pair that dominates everything of bounded range."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import (
    ClosedTransform,
    NodeValues,
    ProfileValues,
    RealValues,
    TradeOff,
    Transform,
    log_slack,
)
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import betaln
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.pair import Pair, SymmetricPair
from privcalc.pairs.renyi import ZCDPPair
from privcalc.pairs.two_point import TwoPointPair, symmetric_mu
from privcalc.run import ByNumber, Shown

__all__ = ["ExponentialMechanism", "TopK", "log_multiplicity"]


@dataclass(frozen=True)
class BoundedRangePair(SymmetricPair):
    """Logistic noise of scale 1 at a and at 0: dominates every pair whose loss has a range of at most a.

    Each ε has its own worst such pair, with losses t and t − a, t = (a + ε)/2: one use attains the profile, several
    uses of one pair do not attain the composed one (Dong, Durfee, Rogers 2020). Proof: ``proofs/exponential.md``.
    """

    a: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """δ(ε) = (1 − w)²/(1 − e^{−a}) and e^ε Q(L > ε) = w(1 − w)/(1 − e^{−a}), w = e^{(ε − a)/2} ≤ 1."""
        x = np.minimum(0.5 * (epsilon - self.a), 0.0)
        gap, scale = -np.expm1(x), -math.expm1(-self.a)
        # gap and scale may lie near 1e-100: divide before squaring
        delta = gap * (gap / scale)
        return ProfileValues(delta, np.exp(x) * (gap / scale), 24 * UNIT * delta + TINY)

    def trade_off(self, alpha: float) -> TradeOff:
        """logit(1 − β) = logit α + a."""
        small, rest = math.exp(-self.a), 1 - alpha
        total, error = alpha + small * rest, UNIT * (32 + self.a)
        missed, power = small * rest / total, alpha / total
        ends = [(value * (1 - error) - TINY, value * (1 + error) + TINY) for value in (missed, power)]
        return TradeOff(ends[0], ends[1]).tidy(alpha)

    def member(self, up: float) -> TwoPointPair:
        """The pair with losses ``up`` and up − a, which a choice between two candidates has."""
        return TwoPointPair(up, self.a - up)

    @property
    def max_loss(self) -> float:
        return self.a

    @property
    def zcdp(self) -> float:
        """The ρ = min(a²/8, a·tanh(a/2)) of every pair with this range (Cesar, Rogers 2021).

        As upper ends both hold of what occurs; a lower end never comes from the dominating pair
        (``proofs/exponential.md``).
        """
        return min(0.125 * self.a**2, self.a * math.tanh(0.5 * self.a)) * (1 + 16 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """μ = 2Φ⁻¹(1/(1 + e^{−a/2})) for one use, hence √n·μ bounds n uses; nothing is claimed from below."""
        return 0.0, symmetric_mu(0.5 * self.a)

    @property
    def transform(self) -> Transform:
        """The transform in closed form."""
        return LogisticTransform(self.a)

    def opposed(self, rate: float) -> Pair | None:
        """Logistic noise around a and around −a."""
        return BoundedRangePair(2 * self.a) if rate == 1 else None


@dataclass(frozen=True)
class LogisticTransform(ClosedTransform):
    """M(s) = sinh((s + ½)a)/((2s + 1) sinh(a/2)) = e^{sa}(1 − e^{−(2s+1)a})/((2s + 1)(1 − e^{−a})); no atoms."""

    a: float

    def log_real(self, c: Floats) -> RealValues:
        """K(c) = g((c + ½)a) − g(a/2), g(x) = log(sinh(x)/x)."""
        high, low = _log_sinhc((c + 0.5) * self.a), _log_sinhc(np.asarray(0.5 * self.a))
        return RealValues(high - low, 32 * UNIT * (high + low))

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """M(c + iu)/M(c) = [cos(ua) + i·coth(ya)·sin(ua)]·y/(y + iu), y = c + ½."""
        u = step * np.arange(size)
        y = c + 0.5
        spread = 1 / math.tanh(y * self.a)
        value = (np.cos(u * self.a) + 1j * spread * np.sin(u * self.a)) * (y / (y + 1j * u))
        # |cos| + coth·|sin| is at most 1 + u·a·coth(ya), and a·coth(ya) ≤ a + 1/y.
        error = 16 * UNIT * (2 + u * self.a) * (1 + u * (self.a + 1 / y)) * (y / np.hypot(y, u))
        with np.errstate(divide="ignore"):
            log_m, slack = log_slack(np.log(value), error)
        return NodeValues(log_m, slack + float(self.log_real(np.array([c])).error[0]))

    def log_decay(self, c: float, u: Floats) -> Floats:
        """|sinh((y + iu)a)| ≤ cosh(ya), and 1/|y + iu| falls."""
        y = c + 0.5
        return np.asarray(
            np.minimum(np.log(y / np.hypot(y, u)) - math.log(math.tanh(y * self.a)), 0.0), dtype=np.float64
        )


def _log_sinhc(x: Floats) -> Floats:
    """log(sinh(x)/x) for x > 0, to 24 units of itself; below 1 by the series of sinh."""
    z = np.minimum(x, 1.0) ** 2
    series = np.ones_like(z)
    for k in range(9, 1, -1):
        series = 1 + z / (2 * k * (2 * k + 1)) * series
    large = np.maximum(x, 1.0)
    value = np.where(x < 1, np.log1p(z / 6 * series), large + np.log(-np.expm1(-2 * large) / (2 * large)))
    return np.asarray(value, dtype=np.float64)


def _two_raised(a: float, rate: float, share: float) -> TwoPointPair:
    """Two candidates of probability ``share``: the raised one has e^a/Z times that, all else 1/Z.

    Here Z = 1 + share·(e^a − 1).
    """
    gain = -math.expm1(-a)
    low = math.exp(-a) / (math.exp(-a) + share * gain)  # 1/Z
    stay = (1 - rate) + rate * low
    # log w(e^a/Z) − log w(1/Z), the difference of the ratios being (1 − e^{−a})/(e^{−a} + share·(1 − e^{−a})).
    loss = math.log1p(rate * (gain / (math.exp(-a) + share * gain)) / stay)
    return TwoPointPair(loss * (1 - 16 * UNIT), loss * (1 - 16 * UNIT), (1 / share - 2) * (1 + 16 * UNIT))


@dataclass(frozen=True, init=False, repr=False)
class ExponentialMechanism(ByNumber, Shown):
    """Release one of a public set of candidates, chosen with probability ∝ exp(ε·score/Δ).

    Adding a record changes the score of every candidate by an amount between 0 and Δ: the default, ``monotone=True``,
    as for counts; **with a score that a record may move both ways, by at most Δ, say** ``monotone=False``, which costs
    twice as much. Under add-or-remove-one and zero-out (a nulled record adds nothing) the range of the loss is ε (2ε),
    under replace-one 2ε (4ε): a mechanism whose loss has range a is a-DP and a²/8-zCDP (``proofs/exponential.md``).

    The maximum of ε·score/Δ plus independent standard Gumbel noise is the same mechanism. Note the missing factor 2 of
    the usual exp(ε·score/(2Δ)): that one is ``ExponentialMechanism(epsilon=ε/2)``.

    Args:
        epsilon: ε, > 0 (1e-100 to 1e100); kept as ``level``, because ``epsilon`` is a question.
        monotone: whether a record can only raise scores.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> mechanism = ExponentialMechanism(epsilon=1.0)
        >>> print(f"{mechanism.epsilon(delta=0.0):.9f} {mechanism.delta(epsilon=0.5):.9f}")
        1.000000000 0.077404687
    """

    kind = "ExponentialMechanism"
    page = "exponential.md"
    needs = ("candidates", "monotone")
    draws = "select"
    scheme = None
    nulled = "absent"

    level: float
    monotone: bool

    def __init__(self, epsilon: float, *, monotone: bool = True) -> None:
        self._set(level=errors.scale("epsilon", epsilon), monotone=errors.flag("monotone", monotone))

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Two rare candidates, of which one record raises the one (or lowers all others), the other the other one."""
        a = self.level * (1 if self.monotone else 2)
        return tuple(_two_raised(a, rate, share) for share in (0.5, 0.2, 0.05, 0.01))

    def apart(self, records: int) -> Pairs:
        """The logistic pair; a choice between two candidates occurs, for one use with the worst offset at every ε."""
        pair = BoundedRangePair(records * (1 if self.monotone else 2) * self.level)
        two, *others = [pair.member(share * pair.a) for share in (0.5, 0.6, 0.7, 0.8, 0.9)]
        also = tuple((other, other.reverse) for other in others)
        zcdp = ZCDPPair(pair.a**2 / 8 * (1 + 4 * UNIT), 0.0)  # composed, a²/8-zCDP can be the smaller bound
        occurs, better = (two, two), (zcdp, zcdp)
        return Pairs(
            pair,
            pair,
            occurs,
            attained_alone=True,
            attained_curve=True,
            alternative=better,
            bound="bounded range",
            also=also,
            choice=pair.a,
        )


@dataclass(frozen=True, init=False, repr=False)
class TopK(ByNumber, Shown):
    """Release k of the public candidates, chosen with probability ∝ exp(ε·u_min/(2Δ)).

    u_min is the lowest utility of the set.

    Every record adds between 0 and Δ to each utility, hence to u_min: it is ``ExponentialMechanism(ε/2)`` over sets,
    with a loss of range ε/2 under add-or-remove-one and zero-out, ε under replace-one. (The paper claims ε for
    add-or-remove: twice the cost.)

    To draw it: choose the rank y of the worst element with log-weight ε·u_(y)/(2Δ) + ``log_multiplicity(y, k)``, then
    the other k − 1 uniformly from the ranks strictly above, in one total order (utility, then public index). The C(y,
    k) printed in the paper weighs sets by y/k, which is private, and breaks the guarantee (``proofs/exponential.md``).

    Args:
        epsilon: the ε of exp(ε·u_min/(2Δ)), > 0 (1e-100 to 1e100); kept as ``level``, because ``epsilon`` is a
            question.
        k: size of the set, at least 1.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> mechanism = TopK(epsilon=1.0, k=5)
        >>> print(f"{mechanism.epsilon(delta=0.0):.9f} {mechanism.epsilon(delta=0.0, relation=pc.REPLACE_ONE):.9f}")
        0.500000000 1.000000000
    """

    kind = "TopK"
    page = "exponential.md"
    needs = ("candidates", "monotone")
    draws = "select"
    scheme = None
    nulled = "absent"

    level: float
    k: int

    def __init__(self, epsilon: float, k: int) -> None:
        self._set(level=errors.scale("epsilon", epsilon), k=errors.count("k", k, least=1))

    def apart(self, records: int) -> Pairs:
        """The pairs of the exponential mechanism at ε/2."""
        return ExponentialMechanism(0.5 * self.level).apart(records)


def log_multiplicity(rank: ArrayLike, k: int) -> Floats:
    """Log of the number C(rank − 1, k − 1) of k-sets whose worst element has this rank (1 is best); −∞ for rank < k.

    Example:
        >>> print(np.exp(log_multiplicity([1, 2, 3, 4], 2)).round(6))
        [0. 1. 2. 3.]
    """
    k = errors.count("k", k, least=1)
    ranks = np.asarray(rank, dtype=np.float64)
    if np.any(ranks != np.floor(ranks)) or not np.all((ranks >= 1) & (ranks < 2**53)):
        raise errors.PrivcalcError(f"rank = {rank!r}: must be whole numbers >= 1")
    # C(n, m) = 1/((n + 1) B(n − m + 1, m + 1)), n = rank − 1, m = k − 1
    inside = np.maximum(ranks, k)
    return np.where(ranks >= k, -betaln(inside - k + 1, k) - np.log(inside), -np.inf)
