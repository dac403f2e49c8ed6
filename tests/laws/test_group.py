"""Groups of k records."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import strategies as some
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st

import privcalc as pc
from privcalc.composition.curve import Curve, epsilon_in_a_row
from privcalc.mechanisms.laplace import LaplacePair


@pytest.mark.parametrize("records", [2, 3, 10])
@pytest.mark.parametrize("relation", list(pc.Relation))
def test_gaussian_groups_are_exact(records: int, relation: pc.Relation) -> None:
    """k records of norm C in the same direction are one of norm kC."""
    run = pc.Gaussian(noise_multiplier=3.0) * 4
    one = pc.Gaussian(noise_multiplier=3.0 / records) * 4
    for found, truth in [
        (run.epsilon(delta=1e-5, relation=relation, group_size=records), one.epsilon(delta=1e-5, relation=relation)),
        (run.delta(epsilon=0.7, relation=relation, group_size=records), one.delta(epsilon=0.7, relation=relation)),
    ]:
        assert found.lower <= truth.upper * (1 + 1e-14)
        assert truth.lower <= found.upper * (1 + 1e-14)
        assert found.width <= 1e-11 * found.upper


def test_pure_groups() -> None:
    """k records cost kε, and Laplace noise of k records at once attains it."""
    run = pc.Laplace(scale=2.0) * 3
    found = run.epsilon(delta=0.0, group_size=4)
    assert found.upper == pytest.approx(6.0, rel=1e-12)


@pytest.mark.parametrize(("rate", "steps", "records"), quick([(0.3, 1, 2), (0.3, 2, 2), (0.1, 3, 3)], 0, 1))
def test_the_bound_covers_a_group_that_occurs(rate: float, steps: int, records: int) -> None:
    """k aligned records, each with a coin, in a few Poisson steps: the exact δ by quadrature is below the bound."""
    sigma = 1.0
    axis = np.linspace(-9, 9 + records, {1: 20_001, 2: 1_501, 3: 161}[steps])
    step = axis[1] - axis[0]

    def density(shift: float) -> np.ndarray:
        return np.exp(-0.5 * ((axis - shift) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)) * step

    base = density(0.0)
    group = sum(
        math.comb(records, j) * rate**j * (1 - rate) ** (records - j) * density(float(j)) for j in range(records + 1)
    )
    p, q = group, base
    for _ in range(steps - 1):
        p, q = np.multiply.outer(p, group), np.multiply.outer(q, base)
    run = pc.PoissonSampled(pc.Gaussian(sigma), rate) * steps
    for epsilon in (0.1, 0.5, 1.0, 3.0):
        bound = run.delta(epsilon=epsilon, group_size=records)
        for one, other in ((p, q), (q, p)):
            truth = float(np.maximum(one - math.exp(epsilon) * other, 0).sum())
            assert truth <= bound.upper + 0.1 * step**2  # the bound is exact: what is left is the quadrature of a kink
        assert run.epsilon(delta=bound.upper, group_size=records).upper <= epsilon * (1 + 1e-6)


@settings(max_examples=30 if SLOW else 2)
@given(some.ordinary, st.integers(1, 50), st.integers(2, 6))
def test_larger_groups_cost_more(mechanism: pc.Mechanism, steps: int, records: int) -> None:
    """ε grows with the group; a group of one is the run itself."""
    run = mechanism * steps
    one, few, more = (run.epsilon(delta=1e-4, group_size=k) for k in (1, records, records + 1))
    assert one.upper <= few.upper * (1 + 1e-6)
    assert few.upper <= more.upper * (1 + 1e-6)


def test_a_group_of_none_is_refused() -> None:
    """A size is a whole number, at least 1."""
    for size in (0, -1, 1.5, True):
        with pytest.raises(pc.PrivcalcError, match="group_size"):
            pc.Gaussian(1.0).epsilon(delta=1e-5, group_size=size)  # type: ignore[arg-type]


def test_the_group_rule_at_delta_zero_is_rounded_up() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        curves = [
            Curve(((LaplacePair(a), n),))
            for a, n in zip(rng.uniform(0, 1, 2), rng.integers(1, 9, 2).tolist(), strict=True)
        ]
        exact = sum(n * Fraction(pair.a) for curve in curves for pair, n in curve.direction)
        assert Fraction(epsilon_in_a_row(curves, 0.0)) >= exact


def test_the_old_name_of_a_group_is_read_where_it_can_be_one() -> None:
    run = pc.Gaussian(20.0) * 100
    for ask in (functools.partial(run.epsilon, delta=1e-5), functools.partial(run.delta, epsilon=1.0)):
        with pytest.warns(pc.PrivcalcWarning, match="records = 3: is now called group_size"):
            old = ask(records=3)
        assert old == ask(group_size=3)
    noise = functools.partial(pc.noise_multiplier, epsilon=3.0, delta=1e-5, sample_rate=0.01, steps=100)
    with pytest.warns(pc.PrivcalcWarning, match="group_size"):
        assert noise(records=32) == noise(group_size=32)
    for wrong in (33, 60_000):
        with pytest.raises(pc.PrivcalcError, match=rf"records = {wrong}: must be left out, or be group_size"):
            noise(records=wrong)
    with pytest.raises(pc.PrivcalcError, match="give one of them"):
        run.epsilon(delta=1e-5, group_size=2, records=2)


ROWS = st.lists(st.floats(-1, 1), min_size=3, max_size=3)


def chosen(scores: np.ndarray) -> np.ndarray:
    """The exponential mechanism's law."""
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def flipped(scores: np.ndarray) -> np.ndarray:
    """Permute-and-flip: in each order the first head."""
    heads = np.exp(scores - scores.max())
    found = np.zeros(scores.size)
    for order in itertools.permutations(range(scores.size)):
        left = 1.0
        for at in order:
            found[at] += left * heads[at] / math.factorial(scores.size)
            left *= 1 - heads[at]
    return found


def best_two(scores: np.ndarray) -> np.ndarray:
    """Sets of two by their lowest utility."""
    return chosen(np.array([min(both) for both in itertools.combinations(scores, 2)]))


def integers(moved: np.ndarray) -> np.ndarray:
    """Discrete Gaussian noise of σ = 0.7 in three coordinates."""
    values = np.arange(-9, 10)
    laws = [
        np.exp(-0.5 * ((values - v) / 0.7) ** 2) / np.exp(-0.5 * (np.arange(-40, 41) / 0.7) ** 2).sum() for v in moved
    ]
    return np.multiply.outer(np.multiply.outer(laws[0], laws[1]), laws[2]).ravel()


RELEASES: dict[str, tuple[pc.Mechanism, Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "exponential": (pc.ExponentialMechanism(0.4), lambda x: 0.4 * np.abs(x), chosen),
    "both ways": (pc.ExponentialMechanism(0.4, monotone=False), lambda x: 0.4 * x, chosen),
    "permute and flip": (pc.PermuteAndFlip(0.4), lambda x: 0.4 * np.abs(x), flipped),
    "sets": (pc.TopK(0.8, 2), lambda x: 0.4 * np.abs(x), best_two),
    "integers": (
        pc.DiscreteGaussian(0.7 / 1.5, sensitivity=1.5, norm=2),
        lambda x: np.round(x) if np.abs(np.round(x)).sum() <= 2 else np.sign(x) * [1.0, 1.0, 0.0],
        integers,
    ),
}


@settings(max_examples=100 if SLOW else 25, deadline=None)
@given(st.sampled_from(sorted(RELEASES)), st.data(), st.lists(ROWS, min_size=2, max_size=4), st.floats(0, 2))
def test_no_group_leaks_more_than_is_said(
    name: str, data: st.DataObject, rows: list[list[float]], epsilon: float
) -> None:
    """Any rows removed, and any added, beside any sum of others; by all outcomes."""
    mechanism, row, law = RELEASES[name]
    parts = [row(np.array(values)) for values in rows]
    removed = data.draw(st.integers(0, len(parts)))
    others = np.zeros(3) if name == "integers" else 2 * np.array(data.draw(ROWS))
    p, q = (law(others + sum(side, start=np.zeros(3))) for side in (parts[:removed], parts[removed:]))
    told = max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))
    assert told <= mechanism.delta(epsilon=epsilon, group_size=len(parts)).upper * (1 + 1e-9) + 1e-9
    if removed * 2 == len(parts):
        swapped = mechanism.delta(epsilon=epsilon, relation=pc.REPLACE_ONE, group_size=removed)
        assert told <= swapped.upper * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("k", [3, 40])
def test_where_only_the_number_counts_an_enormous_group_is_exact(k: int) -> None:
    """No mixed group is bounded by a larger one: Gaussian noise of 40 records was 3 % wide."""
    for run, one in (
        (pc.Gaussian(50.0) * 9, pc.Gaussian(50.0 / k) * 9),
        (pc.Laplace(50.0) * 9, pc.Laplace(50.0 / k) * 9),
        (pc.PermuteAndFlip(0.02) * 9, pc.PermuteAndFlip(0.02 * k) * 9),
        (pc.ExponentialMechanism(0.02, monotone=False) * 9, pc.ExponentialMechanism(0.02 * k, monotone=False) * 9),
        (pc.RandomizedResponse(0.02) * 9, pc.RandomizedResponse(0.02) * (9 * k)),
    ):
        found, same = run.epsilon(delta=1e-6, group_size=k), one.epsilon(delta=1e-6)
        assert found.lower == pytest.approx(same.lower, rel=1e-9)
        assert found.upper == pytest.approx(same.upper, rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_a_chain_of_pure_guarantees(k: int) -> None:
    """1 − α becomes at most min(e^ε(1 − f), …) step by step: k steps of the trade-off curve, at many levels."""
    level = 0.3
    found = pc.PureDP(level)
    levels = np.linspace(0, 1, 200_001)
    reached = levels
    for _ in range(k):
        reached = np.minimum(math.exp(level) * reached, 1 - math.exp(-level) * (1 - reached))
    for epsilon in (0.0, 0.1, 0.5, 0.9 * k * level):
        answer = found.delta(epsilon=epsilon, group_size=k)
        truth = float((reached - math.exp(epsilon) * levels).max())
        assert max(truth, 0.0) <= answer.upper * (1 + 1e-12)
        assert answer.lower <= truth + 5e-6 * math.exp(k * level)
    assert found.epsilon(delta=0.0, group_size=k).upper == pytest.approx(k * level, rel=1e-12)
    assert pc.PureDP(level).epsilon(delta=1e-3, group_size=2000).upper <= 600.0 * (1 + 1e-9)
    with pytest.raises(pc.PrivcalcError, match="was given for"):
        found.epsilon(delta=1e-5, relation=pc.REPLACE_ONE, group_size=k)


def test_groups_of_moments() -> None:
    """k²ρ: not below the normal law that has it; with ξ the rule."""
    one, same = pc.ZCDP(0.001) * 10, pc.Gaussian(math.sqrt(500)) * 10
    found, attained = one.epsilon(delta=1e-6, group_size=5), same.epsilon(delta=1e-6, group_size=5)
    assert attained.lower * (1 - 1e-9) <= found.lower <= attained.upper
    assert found.upper == pytest.approx((pc.ZCDP(0.025) * 10).epsilon(delta=1e-6).upper, rel=1e-9)
    assert pc.ZCDP(0.001, xi=0.01).epsilon(delta=1e-6, group_size=5).route == "group rule"
