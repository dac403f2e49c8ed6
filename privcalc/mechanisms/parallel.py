"""Releases of disjoint parts of the data set."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from privcalc import errors
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.solve import Bounds
from privcalc.pairs.dominating import Others, Pairs
from privcalc.pairs.pair import LeakPair, Pair, ZCDPTerms
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["Parallel"]


@dataclass(frozen=True)
class MaxPair(Pair):
    """A pair that dominates each given one: its profile is their pointwise maximum.

    Proof: ``proofs/parallel.md``.
    """

    pairs: tuple[Pair, ...]

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The largest δ, and that pair's slope, which is a subgradient of the maximum."""
        delta, tail, error = (
            np.stack(part) for part in zip(*(pair.profile(epsilon) for pair in self.pairs), strict=True)
        )
        at = np.argmax(delta, axis=0)[None]
        most = np.take_along_axis(delta, at, 0)[0]
        # The maximum lies between the largest lower and the largest upper bound.
        blur = (
            np.maximum((delta + error).max(axis=0) - most, most - (delta - error).max(axis=0)) * (1 + 4 * UNIT)
            + 4 * UNIT * most
        )
        return ProfileValues(most, np.take_along_axis(tail, at, 0)[0], blur + TINY)

    @property
    def reverse(self) -> Pair:
        """The maximum of the reverse profiles."""
        return MaxPair(tuple(pair.reverse for pair in self.pairs))

    @property
    def max_loss(self) -> float:
        return max(pair.max_loss for pair in self.pairs)

    @property
    def zcdp(self) -> float:
        """The largest ρ of the parts: no part exceeds it, and zCDP composes adaptively."""
        return max(pair.zcdp for pair in self.pairs)

    @property
    def zcdp_terms(self) -> ZCDPTerms:
        """The largest of each."""
        terms = [pair.zcdp_terms for pair in self.pairs]
        return ZCDPTerms(max(rho for rho, _ in terms), max(xi for _, xi in terms))

    def log_moment(self, c: Floats) -> Floats:
        """Return the largest bound of K of the parts: it bounds K of every part, and such bounds compose adaptively."""
        return np.asarray(np.max([pair.log_moment(c) for pair in self.pairs], axis=0), dtype=np.float64)

    @property
    def moments_only(self) -> bool:
        """Where that is all that is known of a part."""
        return any(pair.moments_only for pair in self.pairs)

    @property
    def knots(self) -> Floats:
        """The knots of all parts."""
        return np.concatenate([pair.knots for pair in self.pairs])

    @property
    def gdp_bounds(self) -> Bounds:
        """The largest of each."""
        bounds = [pair.gdp_bounds for pair in self.pairs]
        return max(low for low, _ in bounds), max(high for _, high in bounds)

    @property
    def convex(self) -> bool:
        """A maximum of convex functions is convex."""
        return all(pair.convex for pair in self.pairs)


@dataclass(frozen=True, init=False)
class Parallel(Mechanism):
    """Several releases, each of its own part of the records.

    A public rule tells from a record alone which part it belongs to.

    *Nobody may be in two parts*: months of the same customers are no parts, and cost their sum (``a + b``). That parts
    are disjoint is your word, ``Assumptions(parts="disjoint")``, without which nothing is certified; ``epsilon`` and
    the other questions take it for granted.

    Under add-or-remove-one and zero-out (a nulled record stays in its part) a record touches one release, so that the
    guarantee is the worst of the parts', not their sum. When it is repeated, the rule may change from use to use. One
    use is exact, and so are many if all parts are Gaussian or alike; else the upper end composes the pointwise maximum
    of the parts' profiles, and the lower end is the part with the largest Rényi divergence of order 2.

    Refused under replace-one: the new record may belong to another part than the old one, so that two releases change.
    Compose those two.

    Args:
        parts: one mechanism per part.

    Raises:
        PrivcalcError: if there are no parts, or one of them is not a mechanism.

    Example:
        >>> import privcalc as pc
        >>> by_region = Parallel([pc.Gaussian(1.0), pc.Gaussian(2.0), pc.Laplace(scale=10.0)])
        >>> print(f"{by_region.epsilon(delta=1e-5):.9f}")
        4.377178096
    """

    kind = "Parallel"
    page = "parallel.md"
    needs = ("parts",)
    draws = None
    scheme = None

    parts: tuple[Mechanism, ...]

    def __init__(self, parts: Iterable[Mechanism]) -> None:
        if isinstance(parts, Mechanism) or not isinstance(parts, Iterable):
            raise errors.PrivcalcError(f"parts = {parts!r}: must be a list of mechanisms")
        given = tuple(parts) if getattr(parts, "ndim", 1) else ()
        if not given:
            raise errors.PrivcalcError(f"parts = {parts!r}: must have at least one mechanism")
        for part in given:
            if not isinstance(part, Mechanism):
                raise errors.PrivcalcError(f"parts = {parts!r}: {part!r} is not a mechanism (a run cannot be a part)")
        object.__setattr__(self, "parts", given)
        said = {part.nulled for part in given}
        object.__setattr__(self, "nulled", None if None in said else "present" if "present" in said else "absent")

    @property
    def sampled(self) -> bool:
        """If a part is."""
        return any(part.sampled for part in self.parts)

    def pairs(self, relation: Relation) -> Pairs:
        """The worst part (``proofs/parallel.md``, §1)."""
        if relation is REPLACE_ONE:
            raise errors.PrivcalcError(
                f"relation = {relation}: Parallel has no guarantee under it, because the new record may belong to "
                "another part; compose the two parts' mechanisms instead (a + b)"
            )
        every = [part.pairs(relation) for part in self.parts]
        parts = _worst(every)
        if len(parts) == 1:
            return replace(parts[0], others=_others(parts[0], every))
        heaviest = max(parts, key=lambda part: max(_weight(pair) for pair in part.lower()))
        forward, backward = (most([part.upper()[i] for part in parts]) for i in (0, 1))
        alone = all(part.attained is None or part.attained_alone for part in parts) and not isinstance(
            forward, LeakPair
        )
        return Pairs(forward, backward, heaviest.lower(), alone, bound="worst part", others=_others(heaviest, every))


def _others(part: Pairs, every: list[Pairs]) -> Others:
    """Beside how many a part's lower end occurs: each other part has as many more as it may run with."""
    rest = list(every)
    rest.remove(part)
    least, most = (math.fsum(pairs.others.runs[i] for pairs in rest) for i in (0, 1))
    (low, high), (few, many) = part.others.attains, part.others.runs
    return Others((few + least, many + most), (low + least, high + most))


def _worst(parts: list[Pairs]) -> list[Pairs]:
    """Equal ones once; of exact Gaussian ones the one with the largest μ, which dominates them."""
    normal = [part for part in parts if part.attained is None and all(pair.gdp is not None for pair in part.upper())]
    most = max(normal, key=lambda part: max(pair.gdp or 0.0 for pair in part.upper()), default=None)
    return [part for part in dict.fromkeys(parts) if part not in normal or part == most]


def _weight(pair: Pair) -> float:
    """D₂; which part gives the lower end is a choice, and any is valid."""
    return np.inf if isinstance(pair, LeakPair) else float(pair.log_moment(np.ones(1))[0])


def most(pairs: list[Pair]) -> Pair:
    """The maximum of pairs: the largest leak and the largest rest bound all.

    p + (1 − p)δ rises with the leak p and with δ.
    """
    rest = tuple(dict.fromkeys(pair.pair if isinstance(pair, LeakPair) else pair for pair in pairs))
    whole = MaxPair(rest) if len(rest) > 1 else rest[0]
    leak = max(pair.leak if isinstance(pair, LeakPair) else 0.0 for pair in pairs)
    return LeakPair(whole, leak, 0.0, leak) if leak else whole
