"""Mechanisms of one's own: from two lists of probabilities, or from a privacy profile."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from privcalc import errors
from privcalc.mechanism import Pairs
from privcalc.mechanisms.guarantees import Stated
from privcalc.mechanisms.randomized_response import symmetric_mu
from privcalc.numerics.atoms import Atoms
from privcalc.numerics.normal import TINY, UNIT, Floats
from privcalc.pair import Pair
from privcalc.pairs import LeakPair
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

__all__ = ["CustomMechanism"]

Profile = Callable[[Floats], Floats]
"""Maps losses ε ≥ 0 to δ(ε)."""


@dataclass(frozen=True)
class DiscretePair(Pair):
    """Two laws on finitely many outcomes, as (p, q) with every p > 0 and Σp = 1, Σq ≤ 1: the rest of Q is where P is 0.

    The profile is piecewise linear in e^ε; both it and the slope are sums of terms ≥ 0. Proof: ``proofs/custom.md``, §1.
    """

    p: tuple[float, ...]
    q: tuple[float, ...]
    rest: float

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
        return UNIT * (64 + 8 * float(logs.max()) + 8 * len(self.p))

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """δ = δ(l) + Q(L ≥ l)(e^l − e^ε), l the next larger loss."""
        losses, log_q, at_loss, mass = self._table
        index = np.searchsorted(-losses, -epsilon, side="left") - 1  # the last loss > ε
        inside, j = index >= 0, np.maximum(index, 0)
        with np.errstate(under="ignore"):
            tail = np.where(inside, np.exp(np.minimum(log_q[j] + epsilon, 0.0)), 0.0)
            share = np.exp(np.minimum(log_q[j] + losses[j], 0.0)) * -np.expm1(np.minimum(epsilon - losses[j], 0.0))
        delta = np.where(inside, np.minimum(at_loss[j] + share, 1.0), 0.0)
        # A loss that is off by the blur moves δ by that times P(L = l); also just beyond the largest.
        near = epsilon <= losses[0] + 4 * self._blur
        error = 4 * self._blur * np.where(near, delta + tail + np.where(inside, 0.0, mass[0]), 0.0)
        return delta, tail, error + TINY

    @property
    def reverse(self) -> Pair:
        """Not needed of a pair with ``rest`` > 0 as a pair of laws, but its profile is: the rest of Q is a certain event."""
        return RestPair(self) if self.rest else DiscretePair(self.q, self.p, 0.0)

    @property
    def max_loss(self) -> float:
        """The largest, rounded up."""
        return max(float(self._table[0][0]) + self._blur, 0.0)

    @property
    def _least(self) -> float:
        return float(self._table[0][-1]) - self._blur

    @property
    def zcdp(self) -> float:
        """The least of ε, ε²/2 and r²/8, r the range of the loss (its variance under any tilted law is at most r²/4)."""
        if self.rest:
            return math.inf
        epsilon, spread = max(self.max_loss, -self._least), self.max_loss - self._least
        return min(epsilon, 0.5 * epsilon**2, 0.125 * spread**2) * (1 + 8 * UNIT)

    def log_moment(self, c: Floats) -> Floats:
        """log Σ p e^{cL}."""
        log_p = np.log(np.array(self.p))
        exponents = log_p + np.multiply.outer(c, log_p - np.log(np.array(self.q)))
        value = np.asarray(logsumexp(exponents, axis=-1), dtype=np.float64)
        error = self._blur * (4 + 4 * c + np.abs(value)) + UNIT * 8 * np.abs(exponents).max(axis=-1)
        # K lies below c·max L and, near 0, where cancellation rules, below the zCDP bound.
        least = np.minimum(np.minimum(value + error, c * self.max_loss), self.zcdp * c * (c + 1))
        return np.asarray(least, dtype=np.float64)

    @property
    def atoms(self) -> Atoms | None:
        """One for every outcome."""
        losses = np.log(self.p) - np.log(self.q)
        order = np.argsort(losses)
        return Atoms(losses[order], np.array(self.p)[order], self._blur, self._blur, complete=not self.rest)

    @property
    def gdp_bounds(self) -> tuple[float, float]:
        """Pure DP implies a μ; nothing is claimed from below."""
        return 0.0, math.inf if self.rest else symmetric_mu(max(self.max_loss, -self._least))


@dataclass(frozen=True)
class RestPair(Pair):
    """(Q, P) of a pair whose Q has mass where P has none: δ(∞) > 0. Only ever the reverse of a pair that is asked."""

    base: DiscretePair

    @functools.cached_property
    def _finite(self) -> tuple[DiscretePair, float]:
        """The part of Q where P > 0, scaled to a law, and its mass."""
        kept = 1 - self.base.rest
        return DiscretePair(tuple(x / kept for x in self.base.q), self.base.p, 0.0), kept

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """rest + kept·δ'(ε − log kept), δ' of the part where P > 0."""
        inner, kept = self._finite
        shift = -math.log(kept)
        delta, tail, error = inner.profile(epsilon + shift)
        blur = inner._blur * (1 + shift) * (delta + tail)
        return self.base.rest + kept * delta, kept * tail, kept * (error + blur) + 8 * UNIT

    @property
    def reverse(self) -> Pair:
        """The pair itself."""
        return self.base

    @property
    def max_loss(self) -> float:
        """∞."""
        return math.inf

    @property
    def zcdp(self) -> float:
        """None."""
        return math.inf

    @property
    def gdp_bounds(self) -> tuple[float, float]:
        """No μ is known."""
        return 0.0, math.inf


@dataclass(frozen=True)
class ProfilePair(Pair):
    """A profile given as a function, convex in e^ε together with its reverse."""

    function: Profile
    other: Profile
    top: float
    bottom: float
    rtol: float

    def _values(self, epsilon: Floats) -> Floats:
        with np.errstate(all="ignore"):
            found = np.asarray(self.function(np.asarray(epsilon, dtype=np.float64)), dtype=np.float64)
        if found.shape != np.shape(epsilon) or not np.all((found >= 0) & (found <= 1 + self.rtol)):
            raise errors.PrivcalcError(f"profile = {self.function!r}: must map an array of losses to as many probabilities")
        return np.where(epsilon >= self.top, 0.0, np.minimum(found, 1.0))

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """The function; the tail is bounded by the slope of a short chord to the left (of the reverse, across 0)."""
        delta = self._values(epsilon)
        step = 1e-3
        before = np.where(epsilon >= step, self._values(np.maximum(epsilon - step, 0.0)), 0.0)
        if np.any(epsilon < step):
            t = np.maximum(step - epsilon, 0.0)
            back = self.reverse._values(t) if isinstance(self.reverse, ProfilePair) else self._values(t)
            before = np.where(epsilon >= step, before, -np.expm1(-t) + np.exp(-t) * back)
        tail = np.clip((before - delta + 2 * self.rtol * delta) / -math.expm1(-step), 0.0, 1.0)
        return delta, tail, 2 * self.rtol * delta + 4 * UNIT * delta + TINY

    @property
    def reverse(self) -> Pair:
        """The two functions change places."""
        return ProfilePair(self.other, self.function, self.bottom, self.top, self.rtol)

    @property
    def max_loss(self) -> float:
        """As given."""
        return self.top

    @property
    def zcdp(self) -> float:
        """ε-DP implies min(ε, ε²/2)-zCDP (Bun, Steinke 2016, Proposition 1.4)."""
        epsilon = max(self.top, self.bottom)
        return min(epsilon, 0.5 * epsilon**2) * (1 + 8 * UNIT)

    @property
    def gdp_bounds(self) -> tuple[float, float]:
        """Pure DP implies a μ."""
        epsilon = max(self.top, self.bottom)
        return 0.0, symmetric_mu(epsilon) if epsilon < math.inf else math.inf


class CustomMechanism(Stated):
    """A mechanism of one's own, for the one relation it is described for; made by one of two class methods.

    Example:
        >>> import numpy as np
        >>> coin = CustomMechanism.from_probabilities([0.75, 0.25], [0.25, 0.75])
        >>> print(f"{coin.delta(epsilon=0.5):.9f}", coin.epsilon(delta=0.0))
        0.337819682 1.09861228867
    """

    @staticmethod
    def from_probabilities(
        with_record: ArrayLike, without_record: ArrayLike, *, relation: Relation = ADD_OR_REMOVE_ONE
    ) -> DiscreteMechanism:
        """A release whose worst pair of neighbours gives two laws on finitely many outcomes.

        The caller vouches that this pair of laws dominates every pair of neighbours; both orders are answered for. An outcome
        that only one of the two can give is a leak: it counts in δ, and no ε pays for it.

        Args:
            with_record: probabilities of the outcomes with the record; their sum is 1 to 1e-9 (and is made 1).
            without_record: the same without it, outcome by outcome.
            relation: the relation of the two neighbours. Under replace-one, two data sets that differ in one record.

        Raises:
            PrivcalcError: if the lists are no probabilities, or have different lengths.

        Example:
            >>> one = CustomMechanism.from_probabilities([0.5, 0.5 - 1e-6, 1e-6], [0.4, 0.6, 0.0])
            >>> print(f"{one.delta(epsilon=0.0):.6f} {one.epsilon(delta=0.0):.3f} {one.epsilon(delta=1e-5):.6f}")
            0.100001 inf 0.223126
        """
        return DiscreteMechanism(_law("with_record", with_record), _law("without_record", without_record), relation)

    @staticmethod
    def from_profile(
        profile: Profile,
        *,
        reverse: Profile | None = None,
        max_loss: float = math.inf,
        reverse_max_loss: float | None = None,
        exact: bool = False,
        rtol: float = 1e-13,
        relation: Relation = ADD_OR_REMOVE_ONE,
    ) -> ProfileMechanism:
        """A release with a known bound of its privacy profile.

        The contract of ``profile``: it maps an array of losses ε ≥ 0 to bounds of δ(ε) = sup_S P(S) − e^ε Q(S), to a relative
        error ``rtol``; non-increasing, convex in e^ε, and 0 in the limit; likewise ``reverse`` for (Q, P), and the two fit
        together at 0 (a supremum of true profiles over neighbours has all that; a minimum of bounds has not). It is checked on a
        grid when the mechanism is made. A release that gives everything away with probability δ₀: compose with
        ``ApproxDP(0, δ₀)``.

        Args:
            profile: for (with the record, without it); functions compare by identity.
            reverse: for (without, with); None if it is the same.
            max_loss: a loss that is never exceeded: ``profile`` counts as 0 from there on.
            reverse_max_loss: the same for ``reverse``; None if it is the same.
            exact: whether the profile is attained. Then lower ends for one use are given; for more, they are 0 always.
            rtol: relative error of both functions, at most 1e-3.
            relation: the relation it was proved for.

        Raises:
            PrivcalcError: if the contract is seen to be broken.

        Example:
            >>> import numpy as np
            >>> one = CustomMechanism.from_profile(lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), max_loss=1.0, exact=True)
            >>> print(f"{one.epsilon(delta=0.1):.9f}")
            0.789278969
        """
        top = errors.real("max_loss", max_loss, "a number > 0", low=0.0, high=math.inf, open_low=True)
        bottom = top if reverse_max_loss is None else reverse_max_loss
        bottom = errors.real("reverse_max_loss", bottom, "a number > 0", low=0.0, high=math.inf, open_low=True)
        error = errors.real("rtol", rtol, "a number in [0, 1e-3]", low=0.0, high=1e-3)
        pair = ProfilePair(profile, profile if reverse is None else reverse, top, bottom, error)
        _check(pair)
        return ProfileMechanism(pair, bool(exact), relation)

    @abstractmethod
    def _pairs(self) -> Pairs: ...


@dataclass(frozen=True, init=False, repr=False)
class DiscreteMechanism(CustomMechanism):
    """Made by :meth:`CustomMechanism.from_probabilities`."""

    p: tuple[float, ...]
    q: tuple[float, ...]
    relation: Relation

    def __init__(self, p: tuple[float, ...], q: tuple[float, ...], relation: Relation) -> None:
        if len(p) != len(q):
            raise errors.PrivcalcError(f"without_record has {len(q)} outcomes: must have as many as with_record, {len(p)}")
        if not any(x and y for x, y in zip(p, q, strict=True)):
            raise errors.PrivcalcError("with_record and without_record: no outcome is common to both, every δ is 1")
        self._set(relation, p=p, q=q)

    def _pairs(self) -> Pairs:
        forward, backward = _leaky(self.p, self.q), _leaky(self.q, self.p)
        if forward[1] and backward[1]:
            return Pairs(forward[0], backward[0])
        # A leak in one order only: what dominates is exact for one use; what surely occurs is the pair without the leak.
        return Pairs(forward[0], backward[0], _merged(self.p, self.q), attained_alone=True, bound="leak set apart")

    def _arguments(self) -> str:
        return f"{list(self.p)!r}, {list(self.q)!r}"


@dataclass(frozen=True, init=False, repr=False)
class ProfileMechanism(CustomMechanism):
    """Made by :meth:`CustomMechanism.from_profile`."""

    pair: ProfilePair
    exact: bool
    relation: Relation

    def __init__(self, pair: ProfilePair, exact: bool, relation: Relation) -> None:
        self._set(relation, pair=pair, exact=exact)

    def _pairs(self) -> Pairs:
        nothing = DiscretePair((1.0,), (1.0,), 0.0)
        return Pairs(self.pair, self.pair.reverse, (nothing, nothing), attained_alone=self.exact, bound="given profile")

    def _arguments(self) -> str:
        return f"profile={self.pair.function!r}, exact={self.exact}"


def _law(name: str, values: ArrayLike) -> tuple[float, ...]:
    """Probabilities, with sum 1."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise errors.PrivcalcError(f"{name} = {values!r}: must be probabilities") from error
    if array.ndim != 1 or not array.size or not np.all((array >= 0) & (array <= 1)) or np.any((array > 0) & (array < 1e-290)):
        raise errors.PrivcalcError(f"{name} = {values!r}: must be a list of probabilities, each 0 or at least 1e-290")
    total = math.fsum(array)
    if abs(total - 1) > 1e-9:
        raise errors.PrivcalcError(f"{name}: the probabilities sum to {total!r}, must sum to 1")
    return tuple(float(x / total) for x in array)


def _leaky(p: tuple[float, ...], q: tuple[float, ...]) -> tuple[Pair, bool]:
    """What dominates (P, Q), and whether its composition is exact (``proofs/custom.md``, §2)."""
    leak = math.fsum(x for x, y in zip(p, q, strict=True) if not y)
    mirror = math.fsum(y for x, y in zip(p, q, strict=True) if not x)
    both = [(x, y) for x, y in zip(p, q, strict=True) if x and y]
    kept = 1 - leak if leak < 0.5 else math.fsum(x for x, _ in both)
    x, y = (np.array(column) / kept for column in zip(*both, strict=True))
    if mirror < leak:
        # Q must give up ``leak`` in all: beyond where P is 0, where its losses are lowest, which are capped from below.
        y = _capped(x, y)
        pair = DiscretePair(tuple(x.tolist()), tuple(y.tolist()), 0.0)
    else:
        pair = DiscretePair(tuple(x.tolist()), tuple(y.tolist()), (mirror - leak) / kept)
    more, less = leak * (1 + 8 * UNIT), leak * (1 - 8 * UNIT)
    return (LeakPair(pair, more, less, more) if leak else pair), mirror >= leak


def _capped(x: Floats, y: Floats) -> Floats:
    """min(y, κx) with sum 1; Σy > 1 = Σx, so κ > 1."""
    order = np.argsort(x / y)  # the lowest losses first
    below, above = np.cumsum(x[order]), np.append(np.cumsum(y[order][::-1])[::-1], 0.0)[1:]
    kappa = (1 - above) / below
    ratio = np.append((y / x)[order], 0.0)[1:]
    return np.asarray(np.minimum(y, max(float(kappa[np.argmax(kappa >= ratio)]), 1.0) * x), dtype=np.float64)


def _merged(p: tuple[float, ...], q: tuple[float, ...]) -> tuple[Pair, Pair]:
    """Outcomes that only one law has are told as the one with the largest, or least, ratio: a post-processing."""
    both = [(x, y) for x, y in zip(p, q, strict=True) if x and y]
    both.sort(key=lambda pair: pair[0] / pair[1])
    x, y = (list(column) for column in zip(*both, strict=True))
    x[-1] += math.fsum(a for a, b in zip(p, q, strict=True) if not b)
    y[0] += math.fsum(b for a, b in zip(p, q, strict=True) if not a)
    return DiscretePair(tuple(x), tuple(y), 0.0), DiscretePair(tuple(y), tuple(x), 0.0)


def _check(pair: ProfilePair) -> None:
    """The contract, on a grid: values, monotonicity, convexity across 0."""
    right, left = (np.concatenate([[0.0], np.geomspace(1e-3, min(end, 60.0), 200)]) for end in (pair.top, pair.bottom))
    mirrored = ProfilePair(pair.other, pair.function, pair.bottom, pair.top, pair.rtol)
    h, g = pair._values(right), mirrored._values(left)
    for name, values in (("profile", h), ("reverse", g)):
        if np.any(np.diff(values) > 2 * pair.rtol * values[:-1] + TINY):
            raise errors.PrivcalcError(f"{name}: must not increase")
    if abs(h[0] - g[0]) > 4 * pair.rtol * h[0] + 1e-12:
        raise errors.PrivcalcError(f"reverse: must be {h[0]!r} at 0, as profile is, not {g[0]!r}")
    for end, function, name in ((pair.top, pair, "profile"), (pair.bottom, mirrored, "reverse")):
        if end == math.inf and function._values(np.array([1e4]))[0] > 1e-15:
            raise errors.PrivcalcError(f"{name}: must tend to 0; compose with ApproxDP(0, δ) for a failure of probability δ")
    # In x = e^ε, and in time values w = δ − (1 − x)_+, whose slope grows but for a step of 1 at x = 1.
    x = np.concatenate([np.exp(-left[:0:-1]), np.exp(right)])
    w = np.concatenate([np.exp(-left[:0:-1]) * g[:0:-1], h])
    slope = np.diff(w) / np.diff(x)
    slope[: left.size - 1] -= 1
    blur = (4 * pair.rtol + 1e-13) * (w[1:] + w[:-1]) / np.diff(x) + 1e-9 * np.abs(slope)
    if np.any(np.diff(slope) < -(blur[1:] + blur[:-1])):
        raise errors.PrivcalcError("profile: must be convex in exp(epsilon), together with reverse")
