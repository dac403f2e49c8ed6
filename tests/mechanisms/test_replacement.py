"""Batches drawn with replacement: all small data sets, the law of how often a record comes up, and wrong inputs."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from cases import neighbours
from mpmath import mp, mpf

import privcalc as pc
from privcalc.numerics.gaussian_mixture import Draws


@functools.cache
def density(records: tuple[int, ...], draws: int, noise: float) -> np.ndarray:
    """Of the sum of all draws and normal noise: every sequence of draws."""
    t, step = np.linspace(-draws - 8 * noise, draws + 8 * noise, 2_001, retstep=True)
    found = np.zeros_like(t)
    for batch in itertools.product(records, repeat=draws):
        found += np.exp(-0.5 * ((t - sum(batch)) / noise) ** 2)
    return np.asarray(found * step / (len(records) ** draws * noise * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize(("size", "draws"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 3), (5, 2), (6, 2), (6, 3)])
def test_all_small_data_sets_are_between_both_ends(size: int, draws: int, relation: pc.Relation) -> None:
    """Also larger ones than the bound on their size; and add-or-remove-one is attained."""
    for noise in (1.0, 2.5):
        step = pc.WithReplacementSampled(pc.Gaussian(noise), draws, size)
        if size == 1 and relation is pc.ADD_OR_REMOVE_ONE:
            with pytest.raises(pc.PrivcalcError, match="dataset_size = 1"):
                step.delta(epsilon=1.0)
            continue
        for epsilon in (0.0, 0.1, 0.5, 1.5):
            worst = 0.0
            for one, other in {pair for n in (size, size + 1) for pair in neighbours(n, relation)}:
                p, q = (density(records, draws, noise) for records in (one, other))
                worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()))
            found = step.delta(epsilon=epsilon, relation=relation)
            assert found.lower <= worst * (1 + 1e-4) + 1e-8
            assert worst <= found.upper * (1 + 1e-4) + 1e-8
            if relation is pc.ADD_OR_REMOVE_ONE:
                assert found.upper <= worst * (1 + 1e-4) + 1e-8


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_two_steps_of_all_small_data_sets(relation: pc.Relation) -> None:
    size, draws, noise = 3, 2, 2.0
    run = pc.WithReplacementSampled(pc.Gaussian(noise), draws, size) * 2
    claimed = {epsilon: run.delta(epsilon=epsilon, relation=relation).upper for epsilon in (0.2, 1.0)}
    for one, other in set(neighbours(size, relation)):
        p, q = (density(records, draws, noise)[::16] * 16 for records in (one, other))
        for epsilon, upper in claimed.items():
            truth = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0.0).sum()
            assert truth <= upper * (1 + 1e-3) + 1e-7


def test_without_replacement_would_be_too_little() -> None:
    """The planted bug: that a record may come up twice is not counted."""
    p, q = (density(records, 3, 2.5) for records in ((-1, -1, -1, 1), (-1, -1, -1)))
    truth = float(np.maximum(p - math.exp(0.5) * q, 0.0).sum())
    assert truth > 1.05 * pc.PoissonSampled(pc.Gaussian(2.5), 0.75).delta(epsilon=0.5).upper
    assert truth <= pc.WithReplacementSampled(pc.Gaussian(2.5), 3, 4).delta(epsilon=0.5).upper * (1 + 1e-4)


@pytest.mark.parametrize(("draws", "of"), [(1, 2), (10, 3), (100, 10_000), (10**6, 10**4), (2000, 3), (5, 10**12)])
def test_how_often_a_record_comes_up(draws: int, of: int) -> None:
    law = Draws(draws, of)
    with mp.workdps(80):
        p = 1 / mpf(of)
        if law.log_never < -695:
            with pytest.raises(OverflowError):
                assert law.weights.size
            assert law.fewer().log_never > -695
            assert law.fewer().of > of
            return
        for j in (0, 1, 2, law.largest // 2, law.largest):
            if j <= law.largest:
                truth = mp.binomial(draws, j) * p**j * (1 - p) ** (draws - j)
                assert abs(mpf(float(law.weights[j])) / truth - 1) < 2.3e-16
        some = 1 - (1 - p) ** draws
        assert some <= mpf(law.some) <= some * (1 + mpf(10) ** -14)
    assert law.largest <= draws
    assert draws > 10 or law.largest == draws


def test_a_larger_data_set_costs_no_more() -> None:
    for relation in pc.Relation:
        runs = [pc.WithReplacementSampled(pc.Gaussian(3.0), 10, size) for size in (5, 20, 21, 99)]
        found = [run.delta(epsilon=0.5, relation=relation).upper for run in runs]
        assert all(a >= b for a, b in itertools.pairwise(found))


def test_persons_with_as_many_coins_cost_the_same() -> None:
    """Under add-or-remove-one: B coins of probability 1/N, each worth two records. An independent computation."""
    one = pc.WithReplacementSampled(pc.Gaussian(4.0), 64, 2**12) * 300
    two = pc.UserSampled(pc.Gaussian(2.0), 2.0**-12, records=64) * 300
    found, same = one.epsilon(delta=1e-6), two.epsilon(delta=1e-6)
    assert found.lower <= same.upper
    assert same.lower <= found.upper
    assert found.upper == pytest.approx(same.upper, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((pc.Gaussian(1.0), 0, 5), "batch_size = 0"), ((pc.Gaussian(1.0), 1, 0), "dataset_size = 0"),
     ((pc.Gaussian(1.0), 2.5, 5), "batch_size = 2.5"), ((pc.Gaussian(1.0), 1, True), "dataset_size = True"),
     ((pc.PoissonSampled(pc.Gaussian(1.0), 0.1), 1, 5), "not itself sampled")],
)  # fmt: skip
def test_wrong_inputs_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        pc.WithReplacementSampled(*arguments)  # type: ignore[arg-type]


def test_what_has_no_theorem_is_refused() -> None:
    with pytest.raises(pc.PrivcalcError, match=r"Laplace.*must be Gaussian or GDP"):
        pc.WithReplacementSampled(pc.Laplace(1.0), 2, 5).epsilon(delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match="zero-out"):
        pc.WithReplacementSampled(pc.GDP(1.0), 2, 5).epsilon(delta=1e-5, relation=pc.ZERO_OUT)
