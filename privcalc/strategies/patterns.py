"""How far one record can move Cx: the largest ‖Σ_{t ∈ pattern} C[:, t] u_tᵀ‖, ‖u_t‖ ≤ 1, over all patterns of a record.

With G = CᵀC, its square is Σ G_st⟨u_s, u_t⟩ ≤ Σ |G_st|, attained by equal u_t where G ≥ 0. Proof:
``proofs/correlated.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.solve import Bounds
from privcalc.strategies.matrices import Strategy, check_strategy
from privcalc.strategies.participation import FixedOrder, MinSeparation, Participation

__all__ = ["sensitivity"]

_MOST_PATTERNS = 2000
"""Patterns up to which all are tried."""


def sensitivity(strategy: Strategy, participation: Participation) -> Bounds:
    """Bounds of the ℓ2 sensitivity of Cx, in units of the largest contribution.

    They agree up to rounding where coefficients are ≥ 0 and do not rise; where no two columns that one record may touch
    have a row in common; in a fixed order, if CᵀC ≥ 0; and where there are few patterns. Otherwise the upper one lets
    every participation have the companions that are the worst for it.

    Args:
        strategy: the matrix C.
        participation: the patterns that a record may have.

    Returns:
        ``(lower, upper)``: a pattern has the one, none is above the other.

    Raises:
        PrivcalcError: if an argument is of another kind, or the matrix too large for this participation.

    Example:
        >>> from privcalc.strategies import Dense, MinSeparation, sensitivity
        >>> low, high = sensitivity(Dense([[1, 0, 0], [1, 1, 0], [1, 1, 1]]), MinSeparation(separation=2))
        >>> f"{low:.9f} {high:.9f}"  # steps 0 and 2: (1, 1, 2)
        '2.449489743 2.449489743'
    """
    check_strategy(strategy)
    if not isinstance(participation, MinSeparation | FixedOrder):
        raise PrivcalcError(
            f"participation = {participation!r}: must be MinSeparation or FixedOrder of privcalc.strategies"
        )
    return _bounds(strategy, participation)


@functools.lru_cache(maxsize=64)
def _bounds(strategy: Strategy, participation: Participation) -> Bounds:
    """Return the bounds of ``sensitivity``, cached: every question of a run asks for them."""
    known = _of_falling(strategy, participation)
    return _of_gram(strategy, participation) if known is None else known


def column_norms(strategy: Strategy) -> tuple[Floats, Floats]:
    """Bounds of the norm of every column, (T,) each."""
    column = strategy.falling
    squares = np.cumsum(column**2)[::-1] if column is not None else (strategy.matrix() ** 2).sum(axis=0)
    norms, rounding = (
        np.sqrt(squares),
        1.01 * (strategy.relative + (strategy.bands + 4) * UNIT),
    )  # what is added else is 0
    return norms * (1 - rounding), norms * (1 + rounding)


def _of_falling(strategy: Strategy, participation: Participation) -> Bounds | None:
    """The pattern that begins first and comes back soonest is the worst: G_st falls in t, and in t − s."""
    column = strategy.falling
    if column is None:
        return None
    total, _ = worst_columns(column, participation)
    uses = participation.uses(strategy.columns)
    norm = math.sqrt(math.fsum((total * total).tolist()))
    # 1.01: more than the squares and products of such small numbers add.
    rounding = 1.01 * (strategy.relative + (uses + 4) * UNIT)
    return norm * (1 - rounding), norm * (1 + rounding)


def worst_columns(column: Floats, participation: Participation) -> tuple[Floats, Callable[[Floats], Floats]]:
    """The sum of the columns 0, b, 2b, …, shape (T,), and the transpose of the first column's map to it."""
    steps = column.size
    separation = participation.separation
    uses = participation.uses(steps)
    every = uses == 1 + (steps - 1) // separation  # as many as fit: t has the companions t − b, t − 2b, …

    def sums(x: Floats) -> Floats:
        if every:
            padded = np.concatenate([x, np.zeros(-steps % separation)])
            return np.cumsum(padded.reshape(-1, separation), axis=0).ravel()[:steps]
        total = np.zeros(steps)
        for at in range(0, uses * separation, separation):
            total[at:] += x[: steps - at]
        return total

    return sums(column), lambda x: sums(x[::-1])[::-1]


def _of_gram(strategy: Strategy, participation: Participation) -> Bounds:
    """By CᵀC, written out."""
    matrix = strategy.matrix()
    # A product of n terms errs by n·u of the product of absolute values (Higham 2002, §3.5).
    signed, size = matrix.T @ matrix, np.abs(matrix).T @ np.abs(matrix)
    # 1.01 and 2.02 as in ``_of_falling``: for squares and products of what is added.
    gram = np.abs(signed) + 1.01 * (2 * strategy.relative + (matrix.shape[0] + 2) * UNIT) * size
    uses, steps = participation.uses(strategy.columns), strategy.columns
    grow = 1 + 2.02 * (uses + 2) ** 2 * UNIT
    patterns = _few_patterns(participation, steps)
    if patterns is not None:
        sums = [float(gram[np.ix_(p, p)].sum()) for p in patterns]
        high, candidates = max(sums), [patterns[i] for i in np.argsort(sums)[-8:]]
    else:
        assert isinstance(participation, MinSeparation)
        apart = strategy.bands <= participation.separation
        weights = np.diag(gram) if apart else _companions(gram, participation.separation, uses)
        high, best = _heaviest(weights, participation.separation, uses)
        regular = [
            list(range(at, steps, participation.separation))[:uses]
            for at in range(min(participation.separation, steps))
        ]
        candidates = [best, max(regular, key=lambda p: float(gram[np.ix_(p, p)].sum()))]
    low = max(_attained(matrix, signed, pattern) for pattern in candidates)
    high = math.sqrt(high) * grow
    return min(low * (1 - 1.01 * (strategy.relative + (uses + 4) * UNIT)), high), high


def _attained(matrix: Floats, signed: Floats, pattern: list[int]) -> float:
    """A contribution of one coordinate, with signs that no single change improves.

    The rounding of cancelling sums is taken off.
    """
    part, signs = signed[np.ix_(pattern, pattern)], np.ones(len(pattern))
    for _ in range(4 * len(pattern)):
        gain = signs * (part @ signs) - np.diag(part)
        if gain.min() >= 0:
            break
        signs[int(np.argmin(gain))] *= -1
    columns = matrix[:, pattern]
    total, size = columns @ signs, np.abs(columns).sum(axis=1)
    return max(
        math.sqrt(math.fsum((total * total).tolist())) - 2 * len(pattern) * UNIT * float(np.linalg.norm(size)), 0.0
    )


def _few_patterns(participation: Participation, steps: int) -> list[list[int]] | None:
    """All patterns that matter, if they are few: those to which no step can be added at the end."""
    if isinstance(participation, FixedOrder):
        return [list(range(at, steps, participation.epoch)) for at in range(min(participation.epoch, steps))]
    uses, separation = participation.uses(steps), participation.separation
    if uses == steps:
        return [list(range(steps))]
    patterns, pattern = list[list[int]](), [0]
    while pattern:
        while len(pattern) < uses and pattern[-1] + separation < steps:
            pattern.append(pattern[-1] + separation)
        patterns.append(pattern.copy())
        if len(patterns) > _MOST_PATTERNS:
            return None
        while pattern and pattern[-1] == steps - 1:
            pattern.pop()
        if pattern:
            pattern[-1] += 1
    return patterns


def _companions(gram: Floats, separation: int, uses: int) -> Floats:
    """For each step, the most that its row can sum to over a pattern with it.

    Uses lie before and after it, within their number.
    """
    steps = gram.shape[0]
    weights = np.empty(steps)
    for at in range(steps):
        before = _heaviest_prefix(gram[at, : max(at - separation + 1, 0)], separation, uses - 1)
        after = _heaviest_prefix(gram[at, at + separation :][::-1], separation, uses - 1)
        weights[at] = gram[at, at] + (before + after[::-1]).max()
    return weights


def _heaviest_prefix(weights: Floats, separation: int, uses: int) -> Floats:
    """The largest weight of 0, …, ``uses`` steps that are so far apart, (uses + 1,)."""
    heaviest = np.zeros(uses + 1)
    last = np.zeros(weights.size + 1)  # of the first n steps
    for number in range(1, uses + 1):
        if (number - 1) * separation >= weights.size:
            heaviest[number:] = heaviest[number - 1]
            break
        last = _one_more(last, weights, separation)
        heaviest[number] = last[-1]
    return heaviest


def _one_more(last: Floats, weights: Floats, separation: int) -> Floats:
    """From the best of n uses among the first t steps, those of n + 1."""
    before = np.concatenate([np.zeros(min(separation - 1, weights.size)), last])[: weights.size]
    return np.concatenate([[0.0], np.maximum.accumulate(weights + before)])


def _heaviest(weights: Floats, separation: int, uses: int) -> tuple[float, list[int]]:
    """The largest weight of at most ``uses`` steps that are so far apart, and the steps."""
    table = [np.zeros(weights.size + 1)]
    for _ in range(uses):
        table.append(_one_more(table[-1], weights, separation))
    pattern, end = list[int](), weights.size
    for number in range(uses, 0, -1):
        if end <= 0:
            break
        row = table[number]
        # The first prefix that reaches the maximum ends with the step itself.
        at = int(np.searchsorted(row[: end + 1], row[end])) - 1
        if at < 0:
            break
        pattern.append(at)
        end = at - separation + 1
    return float(table[-1][-1]), pattern[::-1]
