"""Adaptive choices among two to four candidates, in up to four rounds: every adversary of a menu, by all outcomes.

The exponential mechanism draws candidate i with a probability ∝ w_i e^{a·s_i}: w_i from what is public, so that whoever
asks may set it after each reply, and s_i ∈ [0, 1] what the one record adds to its score.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import quick

import privcalc as pc

Round = tuple[np.ndarray, np.ndarray]
"""Losses log(P/Q) of the candidates, and their probabilities with the record."""


def rounds(a: float, candidates: int, weights: list[float], lifts: list[float]) -> list[Round]:
    """One round: all weights and lifts from these lists, up to the order of candidates."""
    menu = {}
    for pairs in itertools.combinations_with_replacement(itertools.product(weights, lifts), candidates):
        w, s = np.array(pairs).T
        p, q = w * np.exp(a * s), w
        p, q = p / p.sum(), q / q.sum()
        if np.ptp(s) > 0:
            menu[tuple(np.round(np.sort(p), 9)) + tuple(np.round(np.sort(p / q), 9))] = (np.log(p / q), p)
    return list(menu.values())


def reversed_rounds(menu: list[Round]) -> list[Round]:
    """The record is there under Q, not under P."""
    return [(-losses, p * np.exp(-losses)) for losses, p in menu]


def best(menu: list[Round], count: int, x: np.ndarray) -> np.ndarray:
    """The largest P(S) − e^x Q(S) of any adversary that picks a round of the menu after each reply, and of any S."""
    if count == 0:
        return np.maximum(-np.expm1(x), 0.0)
    won = [np.tensordot(best(menu, count - 1, np.subtract.outer(x, losses)), p, 1) for losses, p in menu]
    return np.max(won, axis=0)


@pytest.mark.parametrize(
    ("a", "candidates", "count", "weights"),
    quick(
        [
            (1.0, 3, 2, [1.0, math.exp(-0.4), math.exp(0.7)]),
            (0.5, 3, 3, [1.0, math.exp(-0.3)]),
            (2.0, 3, 4, [1.0]),
            (1.0, 4, 2, [1.0, math.exp(0.5)]),
            (0.7, 4, 3, [1.0]),
            (1.5, 4, 4, [1.0]),
        ],
        *(2, 4, 5),
    ),
)
def test_no_adversary_wins_more(a: float, candidates: int, count: int, weights: list[float]) -> None:
    lifts = [0.0, 0.5, 1.0] if count < 4 else [0.0, 1.0]
    menu = rounds(a, candidates, weights, lifts)
    run = pc.ExponentialMechanism(a) * count
    for epsilon in (0.0, 0.3 * a, 0.9 * a, 0.6 * a * count):
        found = run.delta(epsilon=epsilon)
        won = [float(best(part, count, np.array(epsilon))) for part in (menu, reversed_rounds(menu))]
        assert max(won) <= found.upper * (1 + 1e-12)
        assert max(won) > 0.5 * found.lower or epsilon > a  # not vacuous


@pytest.mark.parametrize(("a", "count", "offsets"), [(1.0, 2, 60), (0.5, 3, 16), (2.0, 4, 9)])
def test_two_candidates_attain_the_lower_end(a: float, count: int, offsets: int) -> None:
    """One is lifted: all offsets of a grid. With a third and a fourth candidate, copies of these, it is the same."""
    t = a * (np.arange(offsets) + 0.5) / offsets
    share = -np.expm1(t - a) / -math.expm1(-a)
    menu = [(np.array([x, x - a]), np.array([p, 1 - p])) for x, p in zip(t.tolist(), share.tolist(), strict=True)]
    copies = [(np.repeat(losses, 2), np.repeat(0.5 * p, 2)) for losses, p in menu]
    run = pc.ExponentialMechanism(a) * count
    for epsilon in (0.2 * a, 0.8 * a):
        found = run.delta(epsilon=epsilon)
        won = float(best(menu, count, np.array(epsilon)))
        assert 0.98 * found.lower <= won <= found.upper * (1 + 1e-12)
        if count == 2:
            assert float(best(copies, count, np.array(epsilon))) == pytest.approx(won, rel=1e-12)


def test_a_larger_range_would_be_seen() -> None:
    """Planted: a record that lifts by 1.1 wins more than is claimed."""
    menu = rounds(1.1, 3, [1.0, math.exp(-0.5)], [0.0, 1.0])
    found = pc.ExponentialMechanism(1.0) * 3
    assert float(best(menu, 3, np.array(0.6))) > found.delta(epsilon=0.6).upper
