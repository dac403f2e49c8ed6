"""The composed directions of a run, or of a group: those that dominate, for upper ends, and those that occur."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from privcalc.composition.direction import Bound, Direction
from privcalc.numerics.routes.choices import Levels
from privcalc.pairs.adaptive_choices import ChoicesPair, gaussian_mu, playable
from privcalc.pairs.dominating import ANY, Others, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair
from privcalc.relation import REPLACE_ONE, Relation

Question = Callable[[list[Direction]], Bound]
"""Asked of all directions of a side."""

PairCounts = Sequence[tuple[Pairs, int]]


@dataclass(frozen=True)
class Sides:
    """What a run composes to under one relation.

    Attributes:
        upper: directions that dominate.
        lower: directions that occur.
        other: directions that dominate, too; may be none. Asked where ``upper`` does not occur, and for Rényi
            divergences.
        exact: whether ``upper`` occurs.
        bounds: which theorems were used.
        choices: directions that occur, ``lower`` first, each after those of one of its mechanisms alone; none where
            there is no choice.
        others: beside how many other records ``lower`` occurs.
    """

    upper: list[Direction]
    lower: list[Direction]
    other: list[Direction]
    exact: bool
    bounds: tuple[str, ...]
    choices: list[tuple[list[Direction], list[Direction]]]
    others: Others = ANY

    def below(self, question: Question, safe: Literal["lower", "upper"]) -> Bound:
        """The best answer from pairs that occur.

        One mechanism alone is quickly asked which choice is good; the run, twice at most.
        """

        def better(bound: Bound) -> float:
            return bound.lower if safe == "upper" else -bound.upper

        usual = question(self.lower)
        if not self.choices:
            return usual
        answers = [usual if alone == self.lower else question(alone) for alone, _ in self.choices]
        scores = [better(bound) for bound in answers]
        # Where all say the same (δ = 0, as ε is beyond the largest loss of any),
        # the last has the largest loss that occurs.
        at = scores.index(max(scores)) if min(scores) < max(scores) else len(scores) - 1
        alone, whole = self.choices[at]
        if at == 0:
            return usual
        return max(usual, answers[at] if whole == alone else question(whole), key=better)


def worst(sides: Sequence[Sides], more: Sequence[Sides] = ()) -> Sides:
    """The worst of several cases of one run; those in ``more`` dominate others, and need not occur."""
    first, *rest = sides
    cases = [first, *(side for side in rest if side != first)]
    if len(cases) == 1 and not more:
        return first

    def union(parts: Iterable[list[Direction]]) -> list[Direction]:
        return list(dict.fromkeys(direction for part in parts for direction in part))

    upper = union(side.upper for side in [*cases, *more])
    exact = all(side.exact for side in cases) and upper == union(side.upper for side in cases)
    other = union(side.other or side.upper for side in [*cases, *more])
    bounds = tuple(dict.fromkeys(name for side in [*cases, *more] for name in side.bounds))
    made = zip(*(side.choices for side in cases), strict=False)
    choices = [(union(one for one, _ in each), union(whole for _, whole in each)) for each in made]
    lower = union(side.lower for side in cases)
    others = functools.reduce(operator.and_, (side.others for side in cases))
    return Sides(upper, lower, other if other != upper else [], exact, bounds, choices, others)


MOST_CASES = 16
"""Mixed groups that are asked for one by one; of more, several are bounded by a larger one."""


@dataclass(frozen=True)
class Group:
    """A group of ``size`` (at least 2), and the run's sides by how many were removed and added, if known."""

    size: int
    known: Callable[[Relation, int, int, int], Sides | None]

    def sides(self, relation: Relation) -> Sides | None:
        """The worst of all ways to differ in so many records; None where a mechanism does not know its pair.

        Fewer records are no worse: those that are left over may contribute nothing.
        """
        k = self.size
        if relation is REPLACE_ONE:
            return self.known(relation, k, k, 2 * k)
        whole = self.known(relation, k, 0, k)
        if whole is None:
            return None
        cases, blocks = [whole], []
        for low, high in _mixed(k):  # k − high to k − low added: each is known in both orders
            found = self.known(relation, high, k - low, k)
            if found is None:
                return None
            if low == high:
                cases.append(found)
            elif found != whole:
                blocks.append(found)
        return worst(cases, blocks)


def _mixed(k: int) -> list[tuple[int, int]]:
    """Ranges of i that cover ⌈k/2⌉ ≤ i < k, growing towards the middle where there are many: there little is lost."""
    high, ranges = k - 1, []
    while high >= (k + 1) // 2:
        width = 1 if k <= 2 * MOST_CASES else max(1, (k - high) // 8)
        low = max(high - width + 1, (k + 1) // 2)
        ranges.append((low, high))
        high = low - 1
    return ranges


def compose(pairs: PairCounts) -> Sides:
    """The sides of a composition."""
    pairs, others = together(pairs)
    if len(pairs) == 1 and pairs[0][1] == 1 and pairs[0][0].attained_alone:
        only = pairs[0][0]
        upper = _both([(only.upper(), 1)])
        lower = upper if only.attained_curve else _both([(only.lower(), 1)])
        return Sides(upper, lower, [], True, (), [], others)
    entries, occurring = _played(pairs)
    exact = entries is occurring and all(p.attained is None for p, _ in entries)
    upper = _both([(p.upper(), n) for p, n in entries])
    lower = upper if exact else _both([(p.lower(), n) for p, n in occurring])
    other = _both([(p.upper(), n) for p, n in pairs]) if exact and entries is not pairs else _others(pairs)
    bounds = tuple(dict.fromkeys(p.bound for p, _ in entries if p.bound and (entries is not pairs or not exact)))
    return Sides(upper, lower, other, exact, bounds, [] if exact else _choices(occurring), others)


def together(pairs: PairCounts) -> tuple[PairCounts, Others]:
    """What one data set attains of it, and beside how many other records (``proofs/together.md``).

    Where the lower ends of two mechanisms exclude each other, that of one counts, by its zCDP: any choice is valid.
    """
    both = functools.reduce(operator.and_, (p.others for p, _ in pairs), ANY)
    if both.numbers[0] <= both.numbers[1]:
        return pairs, both

    def weight(number: float) -> float:
        return math.fsum(n * p.lower()[0].zcdp for p, n in pairs if p.others.at(number))

    low, high = both.runs
    numbers = {min(max(end, low), high) for p, _ in pairs for end in p.others.attains}
    best = max(sorted(numbers), key=weight)
    found = [(p, n) if low <= high and p.others.at(best) else (p.unattained(p.others), n) for p, n in pairs]
    return found, Others(both.runs, (best, best))


def _levels(pairs: PairCounts) -> Levels:
    """The ranges of all choices, the largest first, with their numbers."""
    counts: dict[float, int] = {}
    for p, n in pairs:
        if p.choice:
            counts[p.choice] = counts.get(p.choice, 0) + n
    return tuple(sorted(counts.items(), reverse=True))


def _played(pairs: PairCounts) -> tuple[PairCounts, PairCounts]:
    """The run with its choices as one use of a game's pair: what dominates it, and what occurs.

    A single choice, the last of all to choose, may take the offset that is the worst for what came before. Of several
    ranges too many to be played at once each range is a game of its own, and these compose (``proofs/choices.md``).
    """
    levels = _levels(pairs)
    rest = [(p, n) for p, n in pairs if not p.choice]
    if not levels or any(pair.moments_only for p, _ in rest for pair in p.upper()):
        return pairs, pairs
    if sum(count for _, count in levels) == 1:
        alone = [*rest, *((Pairs(p.forward, p.backward, bound=p.bound), n) for p, n in pairs if p.choice)]
        return alone, alone
    above, below = playable(levels)
    whole = [*rest, _game(levels)]
    if above:
        return whole, whole
    if len(levels) == 1:
        return pairs, whole if below else pairs
    known = {level[0]: _one_range(level) for level in levels}
    each = [entry for entry in known.values() if entry is not None]
    others = [(p, n) for p, n in pairs if not p.choice or known[p.choice] is None]
    return [*others, *each] if each else pairs, whole if below else pairs


def _one_range(level: tuple[float, int]) -> tuple[Pairs, int] | None:
    """What dominates all choices of one range: their game, or its limit; None where one alone is known as well."""
    a, count = level
    if count > 1 and playable((level,))[0]:
        return _game((level,))
    mu = gaussian_mu((level,))
    if mu * mu < 1.1 * count * 0.25 * a * a:
        limit = GaussianPair(mu)
        return Pairs(limit, limit, bound="adaptive choices"), 1
    return None


def _game(levels: Levels) -> tuple[Pairs, int]:
    game = ChoicesPair(levels)
    return Pairs(game, game, bound="adaptive choices"), 1


def _others(pairs: PairCounts) -> list[Direction]:
    """What dominates, too; all choices together are Gaussian DP, which is less the more of them there are."""
    if not any(p.alternative for p, _ in pairs):
        return []
    levels = _levels(pairs)
    if levels:
        mu = gaussian_mu(levels)
        if mu * mu < 1.1 * sum(n * 0.25 * a * a for a, n in levels):
            limit = GaussianPair(mu)
            rest = [(p.other(), n) for p, n in pairs if not p.choice]
            return _both([*rest, ((limit, limit), 1)])
    return _both([(p.other(), n) for p, n in pairs])


def _both(entries: Sequence[tuple[tuple[Pair, Pair], int]]) -> list[Direction]:
    """Two directions as values, equal ones once; a product as its factors."""
    sides = (tuple((part, n * count) for pair, n in entries for part, count in pair[i].factors) for i in (0, 1))
    return list(dict.fromkeys(sides))


def _choices(pairs: PairCounts) -> list[tuple[list[Direction], list[Direction]]]:
    """Every mechanism that has a choice makes the same one."""
    free = [(p, n) for p, n in pairs if p.also]
    if not free:
        return []
    main = max(free, key=lambda entry: entry[1] * entry[0].forward.zcdp)

    def made(entries: PairCounts, i: int) -> list[Direction]:
        return _both([((p.lower(), *p.also)[i] if p.also else p.lower(), n) for p, n in entries])

    return [(made([main], i), made(pairs, i)) for i in range(1 + min(len(p.also) for p, _ in free))]
