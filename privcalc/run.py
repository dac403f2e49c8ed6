"""Runs: flat multisets of (mechanism, count), and every question that can be asked of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privcalc import answer, errors, tradeoff
from privcalc.answer import Bound, Direction
from privcalc.enclosure import Enclosure
from privcalc.numerics.normal import UNIT
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation

if TYPE_CHECKING:
    from privcalc.mechanism import Mechanism
    from privcalc.pair import Pair

__all__ = ["Run"]


class Questions(ABC):
    """The questions of a run; a mechanism answers them as a run of one."""

    @property
    @abstractmethod
    def run(self) -> Run:
        """The run that is asked."""

    def epsilon(self, *, delta: float, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """The smallest ε ≥ 0 for which the run is (ε, δ)-DP.

        Args:
            delta: δ in [0, 1); 0 asks for pure DP, ∞ where the run is not pure.
            relation: the neighbouring relation.

        Returns:
            An enclosure whose safe end is the upper one.

        Raises:
            PrivcalcError: if δ is out of range, or a mechanism has no guarantee under the relation.

        Example:
            >>> import privcalc as pc
            >>> print(f"{(pc.Gaussian(noise_multiplier=20.0) * 206).epsilon(delta=1e-5):.9f}")
            2.992982863
        """
        value = errors.delta("delta", delta)
        group = _group_epsilon(self.run, value)
        return self.run._ask(check_relation(relation), lambda side: answer.worst_epsilon(side, value), group)

    def delta(self, *, epsilon: float, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """The smallest δ for which the run is (ε, δ)-DP.

        Args:
            epsilon: ε ≥ 0, finite.
            relation: the neighbouring relation.

        Example:
            >>> import privcalc as pc
            >>> print(pc.Gaussian(noise_multiplier=1.0).delta(epsilon=1.0))
            0.126936737507
        """
        value = errors.epsilon("epsilon", epsilon)
        group = _group_delta(self.run, value)
        return self.run._ask(check_relation(relation), lambda side: answer.worst_delta(side, value), group)

    def advantage(self, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """Total variation distance δ(0): the largest true positive rate minus false positive rate of any attack.

        Source: Wasserman, Zhou 2010; Kaissis et al. 2024. Both directions have the same one.

        Example:
            >>> import privcalc as pc
            >>> print(pc.Gaussian(noise_multiplier=1.0).advantage())
            0.382924922548
        """
        return self.delta(epsilon=0.0, relation=relation)

    def beta(self, *, alpha: float, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """Trade-off curve: the smallest false negative rate of any attack with false positive rate ≤ α.

        Args:
            alpha: false positive rate in [0, 1].
            relation: the neighbouring relation.

        Returns:
            An enclosure whose safe end is the lower one. It is the minimum over both orders of the neighbours
            (Dong, Roth, Su 2022, Proposition 2.13).

        Example:
            >>> import privcalc as pc
            >>> print(f"{pc.Gaussian(noise_multiplier=1.0).beta(alpha=0.05):.6f}")
            0.740489
        """
        value = errors.real("alpha", alpha, "a probability in [0, 1]", low=0.0, high=1.0)
        run, checked = self.run, check_relation(relation)
        upper, lower, exact = run._directions(checked)
        found = tradeoff.beta(upper, value)
        other = found if exact else tradeoff.beta(lower, value)
        # A dominating pair has the smaller trade-off curve: the safe end comes from it.
        return Enclosure(found.lower, other.upper, checked, "+".join(found.routes), "lower")

    def gdp_mu(self, *, delta: float = 0.0, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """The smallest μ with δ_run(ε) ≤ δ₀ + (1 − δ₀)·δ_μ(ε) for all real ε: μ-GDP except with probability δ₀.

        Args:
            delta: δ₀ in [0, 1); at 0 a Poisson-sampled Gaussian needs the μ of the unsampled one, because its far tail does.
            relation: the neighbouring relation.

        Example:
            >>> import privcalc as pc
            >>> print((pc.Gaussian(noise_multiplier=2.0) * 16).gdp_mu())
            2
        """
        value = errors.delta("delta", delta)
        run, checked = self.run, check_relation(relation)
        upper, lower, exact = run._directions(checked)
        found = tradeoff.gdp_mu(upper, value)
        other = found if exact else tradeoff.gdp_mu(lower, value)
        return Enclosure(other.lower, found.upper, checked, "+".join(found.routes))

    def zcdp(self, *, relation: Relation = ADD_OR_REMOVE_ONE) -> tuple[float, float]:
        """(ρ, ξ) such that the run is (ξ, ρ)-zCDP: D_α ≤ ξ + ρα for every α > 1. An upper bound; ξ = 0 here.

        Source: Bun, Steinke 2016, Definition 1.1 and Lemma 1.7 (composition adds).

        Example:
            >>> import privcalc as pc
            >>> (pc.Gaussian(noise_multiplier=1.0) * 3).zcdp()[0] - 1.5 < 1e-14
            True
        """
        upper, _, _ = self.run._directions(check_relation(relation))
        rho = max(math.fsum(count * pair.zcdp for pair, count in direction) for direction in upper)
        return rho * (1 + 8 * UNIT) if rho else 0.0, 0.0


@dataclass(frozen=True)
class Run(Questions):
    """A composition: which mechanisms ran, and how often each; the order does not matter.

    Build it with ``mechanism * count``, ``+`` and ``sum``. ``run * 0`` is the empty run, for which every ε is 0.

    Attributes:
        entries: (mechanism, count) in a canonical order, each mechanism once, counts > 0.

    Example:
        >>> import privcalc as pc
        >>> run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 10_000 + pc.Gaussian(noise_multiplier=5.0)
        >>> print(run)
        10000 × PoissonSampled(mechanism=Gaussian(noise_multiplier=1.0), rate=0.01) + Gaussian(noise_multiplier=5.0)
    """

    entries: tuple[tuple[Mechanism, int], ...] = ()

    def __post_init__(self) -> None:
        merged: dict[Mechanism, int] = {}
        for mechanism, count in self.entries:
            merged[mechanism] = merged.get(mechanism, 0) + errors.count("count", count)
        entries = sorted(((m, n) for m, n in merged.items() if n), key=lambda entry: (-entry[1], repr(entry[0])))
        object.__setattr__(self, "entries", tuple(entries))

    @property
    def run(self) -> Run:
        """Itself."""
        return self

    @classmethod
    def of(cls, parts: Iterable[Mechanism | Run]) -> Run:
        """Compose many parts at once: ``sum(parts)``, without its quadratic cost."""
        return cls(tuple(entry for part in parts for entry in part.run.entries))

    def __mul__(self, count: int) -> Run:
        number = errors.count("count", count)
        return Run(tuple((mechanism, n * number) for mechanism, n in self.entries))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism | Run) -> Run:
        if not isinstance(other, Questions):
            return NotImplemented
        return Run(self.entries + other.run.entries)

    def __radd__(self, other: Mechanism | Run | int) -> Run:
        if isinstance(other, int) and not isinstance(other, bool) and other == 0:
            return self  # so that sum() works
        return self + other if isinstance(other, Questions) else NotImplemented

    def __str__(self) -> str:
        """The entries, joined by +."""
        return " + ".join(f"{n} × {m}" if n > 1 else str(m) for m, n in self.entries) or "nothing"

    def _directions(self, relation: Relation) -> tuple[list[Direction], list[Direction], bool]:
        """The composed directions that dominate, those that occur, and whether they are the same."""
        pairs = [(mechanism.pairs(relation), count) for mechanism, count in self.entries]
        upper = _distinct([[(p.forward, n) for p, n in pairs], [(p.backward, n) for p, n in pairs]])
        if all(p.attained is None for p, _ in pairs):
            return upper, upper, True
        lower = [[(p.lower()[i], n) for p, n in pairs] for i in (0, 1)]
        return upper, _distinct(lower), False

    def _ask(self, relation: Relation, question: Question, group: GroupRule) -> Enclosure:
        upper, lower, exact = self._directions(relation)
        found = question(upper)
        routes = found.routes
        if exact:
            return Enclosure(found.lower, found.upper, relation, "+".join(routes))
        below = question(lower)
        high = found.upper
        if relation is REPLACE_ONE:
            by_group = group()
            if by_group < high:
                high, routes = by_group, ("group rule",)
            elif "joint convexity" not in routes:
                routes = ("joint convexity", *routes)
        return Enclosure(below.lower, high, relation, "+".join(routes))


Question = Callable[[Sequence[Direction]], Bound]
GroupRule = Callable[[], float]


def _distinct(directions: Sequence[Sequence[tuple[Pair, int]]]) -> list[Direction]:
    """Directions as values, equal ones once."""
    return list(dict.fromkeys(tuple(direction) for direction in directions))


def _remove_and_add(run: Run) -> tuple[Direction, Direction]:
    pairs = [(mechanism.pairs(ADD_OR_REMOVE_ONE), count) for mechanism, count in run.entries]
    return tuple((p.forward, n) for p, n in pairs), tuple((p.backward, n) for p, n in pairs)


def _group_epsilon(run: Run, delta: float) -> GroupRule:
    """Replace-one as removing, then adding: δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁} δ_add(ε₂) (``proofs/replace_one.md``)."""

    def bound() -> float:
        if delta == 0:
            return math.inf
        remove, add = _remove_and_add(run)

        def total(share: float) -> float:
            first = answer.epsilon_at(remove, share * delta, quick=True).upper
            rest = (1 - share) * delta * math.exp(-first) * (1 - 16 * UNIT) if first < 700 else 0.0
            return (first + answer.epsilon_at(add, rest, quick=True).upper) * (1 + 4 * UNIT) if rest > 0 else math.inf

        return tradeoff.smallest(total, 0.01, 0.99, 0.02)

    return bound


def _group_delta(run: Run, epsilon: float) -> GroupRule:
    """The same for δ(ε)."""

    def bound() -> float:
        remove, add = _remove_and_add(run)

        def total(first: float) -> float:
            late = answer.delta_at(add, max(epsilon - first, 0.0) * (1 - 4 * UNIT), quick=True).upper
            early = answer.delta_at(remove, first, quick=True).upper
            return (early + math.exp(first) * late) * (1 + 16 * UNIT) if first < 700 else math.inf

        return min(1.0, tradeoff.smallest(total, 0.0, epsilon, 1e-3 * epsilon))

    return bound
