"""Groups of k records."""

from __future__ import annotations

import functools
import math
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
