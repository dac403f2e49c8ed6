"""Replace-one as removing a record, then adding another: the group rule, each side composed over the whole run first.

δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂) for every split (``proofs/replace_one.md``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from privcalc.answer import Curve
from privcalc.numerics.normal import UNIT
from privcalc.tradeoff import smallest


def epsilon(curves: Sequence[Curve], delta: float) -> float:
    """An upper bound of the replace-one ε from the curves of removing and of adding."""
    remove, add = curves[0], curves[-1]
    if delta == 0:
        return remove.max_loss + add.max_loss

    def total(share: float) -> float:
        first = remove.epsilon(share * delta, quick=True).upper
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
