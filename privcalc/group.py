"""Several neighbours in a row: replace-one as removing a record then adding another, and groups of k records.

For data sets D₀, …, D_k, each a neighbour of the next, δ(Σε_i) ≤ Σ_i e^{ε_1 + … + ε_{i−1}}·δ_i(ε_i) for every split of ε,
each δ_i that of the whole run (Dwork, Roth 2014, Theorem 2.2 for pure DP; ``proofs/replace_one.md`` for the step).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from privcalc.answer import Bound, Curve, worst_delta, worst_epsilon
from privcalc.direction import Direction
from privcalc.numerics.normal import UNIT
from privcalc.numerics.solve import crossing
from privcalc.pairs import GaussianPair
from privcalc.tradeoff import smallest


def epsilon(curves: Sequence[Curve], delta: float) -> float:
    """An upper bound of the replace-one ε from the curves of removing and of adding."""
    remove, add = curves[0], curves[-1]
    if delta == 0:
        return (remove.max_loss + add.max_loss) * (1 + 8 * UNIT)

    def total(share: float) -> float:
        first = remove.epsilon(share * delta * (1 - 4 * UNIT), quick=True).upper
        rest = (1 - share) * delta * math.exp(-first) * (1 - 16 * UNIT) if first < 700 else 0.0
        return (first + add.epsilon(rest, quick=True).upper) * (1 + 4 * UNIT) if rest > 0 else math.inf

    return smallest(total, 0.01, 0.99, 0.02)


def delta(curves: Sequence[Curve], epsilon: float) -> float:
    """An upper bound of the replace-one δ."""
    remove, add = curves[0], curves[-1]

    def total(first: float) -> float:
        late = add.delta(max(epsilon - first, 0.0) * (1 - 4 * UNIT), quick=True).upper
        early = remove.delta(first, quick=True).upper
        return (early + math.exp(first) * late) * (1 + 16 * UNIT) if first < 700 else math.inf

    return min(1.0, smallest(total, 0.0, epsilon, 1e-3 * epsilon))


def records_epsilon(curves: Sequence[Curve], records: int, delta: float) -> Bound:
    """ε for neighbours that differ in up to ``records`` records: exact for Gaussian runs, else a bound by equal splits."""
    exact = _gaussian([curve.direction for curve in curves], records)
    if exact is not None:
        return worst_epsilon([exact], delta)
    own = worst_epsilon(curves, delta)
    top = records * max(curve.max_loss for curve in curves) * (1 + 8 * UNIT)
    if delta == 0 or own.upper == math.inf:
        return Bound(own.lower, top, ("group rule",))

    def spread(epsilon: float) -> tuple[float, float]:
        value = _spread(curves, records, epsilon)
        return value, value

    _, high = crossing(spread, delta, max(records * own.upper, 1e-9), 0.0, math.inf, 1e-9, both=False)
    return Bound(own.lower, min(high, top), ("group rule",))


def records_delta(curves: Sequence[Curve], records: int, epsilon: float) -> Bound:
    """The same for δ."""
    exact = _gaussian([curve.direction for curve in curves], records)
    if exact is not None:
        return worst_delta([exact], epsilon)
    return Bound(worst_delta(curves, epsilon).lower, _spread(curves, records, epsilon), ("group rule",))


def _spread(curves: Sequence[Curve], records: int, epsilon: float) -> float:
    """δ(ε/k)·(1 + e^{ε/k} + … + e^{(k−1)ε/k}), 1 if that is more."""
    share = epsilon / records * (1 - 4 * UNIT)
    each = max(curve.delta(share, rtol=1e-7).upper for curve in curves)
    if each == 0 or epsilon > 700:
        return 0.0 if each == 0 else 1.0
    factor = math.expm1(epsilon) / math.expm1(share) if share > 0 else float(records)
    return min(1.0, each * factor * (1 + 64 * UNIT * (1 + epsilon)))


def _gaussian(directions: list[Direction], records: int) -> Curve | None:
    """k records that move the mean the same way: kμ, exactly (Dong, Roth, Su 2022, Theorem 2.14)."""
    if any(pair.gdp is None for pair, _ in directions[0]) or len(directions) > 1:
        return None
    square = math.fsum(count * (pair.gdp or 0.0) ** 2 for pair, count in directions[0])
    return Curve(((GaussianPair(records * math.sqrt(square)), 1),) if square else ())
