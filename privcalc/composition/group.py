"""Several neighbours in a row: replace-one as removing a record then adding another, and groups of k records.

Where all mechanisms know the pair of data sets that differ in so many records removed and so many added, the worst of
these counts, and nothing is lost (``proofs/users.md``). Else: for data sets D₀, …, D_k, each a neighbour of the next,
δ(Σε_i) ≤ Σ_i e^{ε_1 + … + ε_{i−1}}·δ_i(ε_i) for every split of ε, each δ_i that of the whole run (Dwork, Roth 2014,
Theorem 2.2 for pure DP; ``proofs/replace_one.md`` for the step).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privcalc.composition.curve import Curve, worst_delta, worst_epsilon
from privcalc.composition.direction import Bound, delta_at_most, epsilon_at_most
from privcalc.composition.sides import Sides, worst
from privcalc.composition.tradeoff import smallest
from privcalc.numerics.floats import UNIT
from privcalc.numerics.solve import crossing
from privcalc.relation import REPLACE_ONE, Relation

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


def epsilon(curves: Sequence[Curve], delta: float) -> float:
    """An upper bound of the replace-one ε from the curves of removing and of adding."""
    remove, add = curves[0], curves[-1]
    most = epsilon_at_most(delta, (remove.max_loss + add.max_loss) * (1 + UNIT))
    if delta == 0:
        return most

    def total(share: float) -> float:
        first = remove.epsilon(share * delta * (1 - 4 * UNIT), quick=True).upper
        rest = (1 - share) * delta * math.exp(-first) * (1 - 16 * UNIT) if first < 700 else 0.0
        return (first + add.epsilon(rest, quick=True).upper) * (1 + 4 * UNIT) if rest > 0 else math.inf

    return min(smallest(total, 0.01, 0.99, 0.02)[0], most)


def delta(curves: Sequence[Curve], epsilon: float) -> float:
    """An upper bound of the replace-one δ."""
    remove, add = curves[0], curves[-1]

    def total(first: float) -> float:
        late = add.delta(max(epsilon - first, 0.0) * (1 - 4 * UNIT), quick=True).upper
        early = remove.delta(first, quick=True).upper
        return (early + math.exp(first) * late) * (1 + 16 * UNIT) if first < 700 else math.inf

    most = delta_at_most(epsilon, (remove.max_loss + add.max_loss) * (1 + UNIT))
    return min(most, smallest(total, 0.0, epsilon, 1e-3 * epsilon)[0]) if most else 0.0


def epsilon_of_group(curves: Sequence[Curve], size: int, delta: float) -> Bound:
    """A bound of ε for neighbours that differ in up to ``size`` records, by equal splits."""
    own = worst_epsilon(curves, delta)
    most = epsilon_at_most(delta, _largest(curves, size))
    # The rule asks for at least ε/k of each: there is nothing to find where these add up to the largest loss already.
    least = size * own.lower
    if delta == 0 or own.upper == math.inf or least >= most * (1 - 1e-6):
        return Bound(own.lower, most, ("group rule",))

    def spread(epsilon: float) -> tuple[float, float]:
        value = _spread(curves, size, epsilon)
        return value, value

    _, high = crossing(spread, delta, min(max(size * own.upper, 1e-9), most), least, most, 1e-10, both=False)
    return Bound(own.lower, high, ("group rule",))


def delta_of_group(curves: Sequence[Curve], size: int, epsilon: float) -> Bound:
    """The same for δ."""
    return Bound(worst_delta(curves, epsilon).lower, _spread(curves, size, epsilon), ("group rule",))


def _spread(curves: Sequence[Curve], size: int, epsilon: float) -> float:
    """δ(ε/k)·(1 + e^{ε/k} + … + e^{(k−1)ε/k}), 1 if that is more."""
    most = delta_at_most(epsilon, _largest(curves, size))
    share = epsilon / size * (1 - 4 * UNIT)
    each = max(curve.delta(share, rtol=1e-7).upper for curve in curves)
    if most == 0 or each == 0 or epsilon > 700:
        return 0.0 if each == 0 else most
    factor = math.expm1(epsilon) / math.expm1(share) if share > 0 else float(size)
    return min(most, each * factor * (1 + 64 * UNIT * (1 + epsilon)))


def _largest(curves: Sequence[Curve], size: int) -> float:
    """No loss of the group exceeds this."""
    return size * max(curve.max_loss for curve in curves) * (1 + UNIT)
