"""Mechanisms of one's own: from two lists of probabilities, or from a privacy profile."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.mechanisms.guarantees import Stated
from privcalc.mechanisms.parallel import most
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.solve import Bounds
from privcalc.pairs.discrete import DiscretePair
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.pair import LeakPair, Pair
from privcalc.pairs.two_point import symmetric_mu
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation

__all__ = ["CustomMechanism"]

Profile = Callable[[Floats], Floats]
"""Maps losses ε ≥ 0 to δ(ε)."""


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
            values = np.asarray(self.function(np.asarray(epsilon, dtype=np.float64)), dtype=np.float64)
        wrong = f"profile = {self.function!r}: must map an array of losses to as many probabilities"
        if values.shape != np.shape(epsilon):
            raise errors.PrivcalcError(f"{wrong}; it has shape {values.shape} for losses of shape {np.shape(epsilon)}")
        if (bad := np.flatnonzero(~((values >= 0) & (values <= 1 + self.rtol)))).size:
            at, value = np.ravel(epsilon)[bad[0]], values.ravel()[bad[0]]
            raise errors.PrivcalcError(f"{wrong}; at the loss {at:.6g} it is {value:.6g}")
        return np.where(epsilon >= self.top, 0.0, np.minimum(values, 1.0))

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The function; the tail is bounded by the slope of a short chord to the left (of the reverse, across 0)."""
        delta = self._values(epsilon)
        step = 1e-3
        before = np.where(epsilon >= step, self._values(np.maximum(epsilon - step, 0.0)), 0.0)
        if np.any(epsilon < step):
            t = np.maximum(step - epsilon, 0.0)
            back = self.reverse._values(t) if isinstance(self.reverse, ProfilePair) else self._values(t)
            before = np.where(epsilon >= step, before, -np.expm1(-t) + np.exp(-t) * back)
        tail = np.clip((before - delta + 2 * self.rtol * delta) / -math.expm1(-step), 0.0, 1.0)
        return ProfileValues(delta, tail, 2 * self.rtol * delta + 4 * UNIT * delta + TINY)

    @property
    def reverse(self) -> Pair:
        """The two functions change places."""
        return ProfilePair(self.other, self.function, self.bottom, self.top, self.rtol)

    @property
    def max_loss(self) -> float:
        """The number that was given."""
        return self.top

    @property
    def zcdp(self) -> float:
        """ε-DP implies min(ε, ε²/2)-zCDP (Bun, Steinke 2016, Proposition 1.4)."""
        epsilon = max(self.top, self.bottom)
        return min(epsilon, 0.5 * epsilon**2) * (1 + 8 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """Pure DP implies a μ."""
        epsilon = max(self.top, self.bottom)
        return 0.0, symmetric_mu(epsilon) if epsilon < math.inf else math.inf


class CustomMechanism(Stated):
    """A mechanism of one's own, for the one relation it is described for; made by one of two class methods.

    Example:
        >>> import numpy as np
        >>> coin = CustomMechanism.from_probabilities([0.75, 0.25], [0.25, 0.75])
        >>> print(f"{coin.delta(epsilon=0.5):.9f}", coin.epsilon(delta=0.0))
        0.337819683 1.09861228867
    """

    page = "custom.md"

    @staticmethod
    def from_probabilities(
        with_record: ArrayLike, without_record: ArrayLike, *, relation: Relation = ADD_OR_REMOVE_ONE
    ) -> DiscreteMechanism:
        """A release whose worst pair of neighbours gives two laws on finitely many outcomes.

        The caller vouches that this pair of laws dominates every pair of neighbours; both orders are answered for. An
        outcome that only one of the two can give is a leak: it counts in δ, and no ε pays for it.

        Args:
            with_record: probabilities of the outcomes with the record; their sum is 1 to 1e-9 (and is made 1).
            without_record: the same without it, outcome by outcome.
            relation: the relation of the two neighbours. Under replace-one, two data sets that differ in one record;
                every use may have its own in either order.

        Raises:
            PrivcalcError: if the lists are no probabilities, or have different lengths.

        Example:
            >>> one = CustomMechanism.from_probabilities([0.5, 0.5 - 1e-6, 1e-6], [0.4, 0.6, 0.0])
            >>> print(f"{one.delta(epsilon=0.0):.6f} {one.epsilon(delta=0.0):.3f} {one.epsilon(delta=1e-5):.6f}")
            0.100002 inf 0.223126
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

        The contract of ``profile``: it maps an array of losses ε ≥ 0 to bounds of δ(ε) = sup_S P(S) − e^ε Q(S), to a
        relative error ``rtol``; non-increasing, convex in e^ε, and 0 in the limit; likewise ``reverse`` for (Q, P), and
        the two fit together at 0 (a supremum of true profiles over neighbours has all that; a minimum of bounds has
        not). It is checked on a grid when the mechanism is made. A release that gives everything away with probability
        δ₀: compose with ``ApproxDP(0, δ₀)``.

        Args:
            profile: for (with the record, without it); functions compare by identity.
            reverse: for (without, with); None if it is the same.
            max_loss: a loss that is never exceeded (1e-100 to 1e100): ``profile`` counts as 0 from there on; ∞ if there
                is none.
            reverse_max_loss: the same for ``reverse``; None if it is the same.
            exact: whether the profile is attained. Then there are lower ends for one use; more add nothing to those of
                a run.
            rtol: relative error of both functions, at most 1e-3.
            relation: the relation it was proved for.

        Raises:
            PrivcalcError: if the contract is seen to be broken.

        Example:
            >>> import numpy as np
            >>> profile = lambda e: np.maximum(-np.expm1((e - 1) / 2), 0)
            >>> one = CustomMechanism.from_profile(profile, max_loss=1.0, exact=True)
            >>> print(f"{one.epsilon(delta=0.1):.9f}")
            0.789278969
        """
        top = _largest_loss("max_loss", max_loss)
        bottom = top if reverse_max_loss is None else _largest_loss("reverse_max_loss", reverse_max_loss)
        error = errors.real("rtol", rtol, "a number in [0, 1e-3]", low=0.0, high=1e-3)
        pair = ProfilePair(profile, profile if reverse is None else reverse, top, bottom, error)
        _check(pair)
        return ProfileMechanism(pair, bool(exact), relation)

    @abstractmethod
    def _pairs(self) -> Pairs: ...


@dataclass(frozen=True, init=False, repr=False)
class DiscreteMechanism(CustomMechanism):
    """A release with finitely many outcomes, made by :meth:`CustomMechanism.from_probabilities`."""

    kind = "CustomMechanism"

    p: tuple[float, ...] = field(metadata={"argument": "with_record"})
    q: tuple[float, ...] = field(metadata={"argument": "without_record"})
    relation: Relation

    def __init__(self, p: tuple[float, ...], q: tuple[float, ...], relation: Relation) -> None:
        if len(p) != len(q):
            raise errors.PrivcalcError(
                f"without_record has {len(q)} outcomes: must have as many as with_record, {len(p)}"
            )
        if not any(x and y for x, y in zip(p, q, strict=True)):
            raise errors.PrivcalcError("with_record and without_record: no outcome is common to both, every δ is 1")
        self._set(p=p, q=q, relation=check_relation(relation))

    @classmethod
    def of_json(cls, **arguments: Any) -> DiscreteMechanism:
        """With just these laws: one whose sum is 1 to the last digit must not be divided by that sum once more."""
        mechanism = cls.from_probabilities(**arguments)
        p, q = (tuple(float(x) for x in arguments[name]) for name in ("with_record", "without_record"))
        return cls(p, q, mechanism.relation) if all(abs(math.fsum(law) - 1) < 2.5e-16 for law in (p, q)) else mechanism

    @property
    def mirrored(self) -> bool:
        """If what dominates occurs."""
        return self._pairs().attained is None

    def _pairs(self) -> Pairs:
        (forward, sharp), (backward, sharp_too) = _leaky(self.p, self.q), _leaky(self.q, self.p)
        if sharp and sharp_too:
            return _either(Pairs(forward, backward), self.relation)
        # A leak in one order only: what dominates is exact for one use;
        # what surely occurs is the pair without the leak.
        pairs = Pairs(forward, backward, _merged(self.p, self.q), attained_alone=True, bound="leak set apart")
        return _either(pairs, self.relation)

    def _arguments(self) -> str:
        return f"{list(self.p)!r}, {list(self.q)!r}"


@dataclass(frozen=True, init=False, repr=False)
class ProfileMechanism(CustomMechanism):
    """A release that is known by its privacy profile, made by :meth:`CustomMechanism.from_profile`."""

    kind = None

    pair: ProfilePair
    exact: bool
    relation: Relation

    def __init__(self, pair: ProfilePair, exact: bool, relation: Relation) -> None:
        self._set(pair=pair, exact=exact, relation=check_relation(relation))

    def _pairs(self) -> Pairs:
        pairs = Pairs(self.pair, self.pair.reverse, NOTHING, attained_alone=self.exact, bound="given profile")
        return _either(pairs, self.relation)

    def _arguments(self) -> str:
        return f"profile={self.pair.function!r}, exact={self.exact}"


def _largest_loss(name: str, value: SupportsFloat) -> float:
    """A scale, or ∞."""
    number = errors.real(name, value, allowed := "∞, or a number > 0 (1e-100 to 1e100)", low=1e-100, high=math.inf)
    return number if number == math.inf else errors.real(name, value, allowed, low=1e-100, high=1e100)


def _either(found: Pairs, relation: Relation) -> Pairs:
    """One pair for both orders, as under replace-one each use has its own.

    See ``proofs/custom.md``, §4.
    """
    if relation is not REPLACE_ONE or found.forward == found.backward:
        return found
    whole = most(list(found.upper()))
    alone = (found.attained is None or found.attained_alone) and not isinstance(whole, LeakPair)
    return Pairs(whole, whole, found.lower(), alone, bound=found.bound or "either order")


def _law(name: str, values: ArrayLike) -> tuple[float, ...]:
    """Probabilities, with sum 1."""
    array = errors.floats(name, values, "probabilities")
    if (
        array.ndim != 1
        or not array.size
        or not np.all((array >= 0) & (array <= 1))
        or np.any((array > 0) & (array < 1e-290))
    ):
        raise errors.PrivcalcError(f"{name} = {values!r}: must be a list of probabilities, each 0 or at least 1e-290")
    total = math.fsum(array)
    if abs(total - 1) > 1e-9:
        raise errors.PrivcalcError(f"{name}: the probabilities sum to {total!r}, must sum to 1")
    return tuple(float(x / total) for x in array)


def _leaky(p: tuple[float, ...], q: tuple[float, ...]) -> tuple[Pair, bool]:
    """Return a pair that dominates (P, Q), and whether its composition is exact (``proofs/custom.md``, §2)."""
    leak = math.fsum(x for x, y in zip(p, q, strict=True) if not y)
    mirror = math.fsum(y for x, y in zip(p, q, strict=True) if not x)
    both = sorted((x, y) for x, y in zip(p, q, strict=True) if x and y)
    kept = 1 - leak if leak < 0.5 else math.fsum(x for x, _ in both)
    x, y = (np.array(column) / kept for column in zip(*both, strict=True))
    if mirror < leak:
        # Q must give up ``leak`` in all: beyond where P is 0, where its losses are lowest, which are capped from below.
        y = _capped(x, y)
        pair = DiscretePair(tuple(x.tolist()), tuple(y.tolist()), 0.0)
    else:
        pair = DiscretePair(tuple(x.tolist()), tuple(y.tolist()), (mirror - leak) / kept)
    more, less = min(leak * (1 + 8 * UNIT), 1.0), leak * (1 - 8 * UNIT)
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
        # At a loss of 1e4 every δ that is not a leak has long vanished: 1e-15 is a rounding of 1.
        if end == math.inf and function._values(np.array([1e4]))[0] > 1e-15:
            raise errors.PrivcalcError(
                f"{name}: must tend to 0; compose with ApproxDP(0, δ) for a failure of probability δ"
            )
    # In x = e^ε, and in time values w = δ − (1 − x)_+, whose slope grows but for a step of 1 at x = 1.
    x = np.concatenate([np.exp(-left[:0:-1]), np.exp(right)])
    w = np.concatenate([np.exp(-left[:0:-1]) * g[:0:-1], h])
    slope = np.diff(w) / np.diff(x)
    slope[: left.size - 1] -= 1
    blur = (4 * pair.rtol + 1e-13) * (w[1:] + w[:-1]) / np.diff(x) + 1e-9 * np.abs(slope)
    if np.any(np.diff(slope) < -(blur[1:] + blur[:-1])):
        raise errors.PrivcalcError("profile: must be convex in exp(epsilon), together with reverse")
