"""Truncated Poisson samples: all small data sets, compositions by hand, the binomial tail, wrong inputs."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from cases import SLOW, neighbours, quick
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import privcalc as pc
from privcalc.composition.curve import Curve
from privcalc.mechanisms.truncated_poisson import MixedPair, at_least
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.transforms import MixedTransform
from privcalc.pairs.pair import LeakPair

Law = dict[int, float]


@functools.cache
def sums(records: tuple[int, ...], rate: float, most: int) -> Law:
    """The law of the sum of a batch: every set of coins, every batch that may be kept."""
    found: Law = {}
    for coins in itertools.product((False, True), repeat=len(records)):
        up = tuple(x for x, coin in zip(records, coins, strict=True) if coin)
        chance = rate ** len(up) * (1 - rate) ** (len(records) - len(up))
        kept = list(itertools.combinations(up, most)) if len(up) > most else [up]
        for batch in kept:
            found[sum(batch)] = found.get(sum(batch), 0.0) + chance / len(kept)
    return found


@functools.cache
def normals(noise: float) -> tuple[float, dict[int, np.ndarray]]:
    t, step = np.linspace(-6 - 7 * noise, 6 + 7 * noise, 3_001, retstep=True)
    return float(step), {
        k: np.exp(-0.5 * ((t - k) / noise) ** 2) / (noise * math.sqrt(2 * math.pi)) for k in range(-6, 7)
    }


@functools.cache
def density(records: tuple[int, ...], rate: float, most: int, noise: float) -> np.ndarray:
    step, at = normals(noise)
    return step * sum(chance * at[total] for total, chance in sums(records, rate, most).items())


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize(("size", "most"), [(2, 1), (2, 2), (3, 1), (4, 2), (5, 3), (6, 2), (6, 4)])
def test_all_small_data_sets_are_between_both_ends(size: int, most: int, relation: pc.Relation) -> None:
    """Also smaller ones than the bound on their size."""
    for noise, rate in ((0.8, 0.3), (1.5, 0.7)):
        step = pc.TruncatedPoissonSampled(pc.Gaussian(noise), rate, most, size)
        epsilons = (0.0, 0.1, 0.5, 1.5)
        worst = np.zeros(len(epsilons))
        for one, other in {pair for n in range(1, size + 1) for pair in neighbours(n, relation)}:
            p, q = (density(records, rate, most, noise) for records in (one, other))
            worst = np.maximum(worst, [np.maximum(p - math.exp(e) * q, 0.0).sum() for e in epsilons])
        for epsilon, truth in zip(epsilons, worst, strict=True):
            found = step.delta(epsilon=epsilon, relation=relation)
            assert found.lower <= truth * (1 + 1e-4) + 1e-9
            assert truth <= found.upper * (1 + 1e-4) + 1e-9


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_two_steps_of_all_small_data_sets(relation: pc.Relation) -> None:
    """At ε of every sign in the first step: what a single step's δ(ε), ε ≥ 0, does not show."""
    size, most, noise, rate = 4, 2, 1.5, 0.6
    run = pc.TruncatedPoissonSampled(pc.Gaussian(noise), rate, most, size) * 2
    claimed = {epsilon: run.delta(epsilon=epsilon, relation=relation).upper for epsilon in (0.2, 1.0)}
    for one, other in set(neighbours(size, relation)):
        p, q = (density(records, rate, most, noise)[::15] * 15 for records in (one, other))
        for epsilon, upper in claimed.items():
            truth = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0.0).sum()
            assert truth <= upper * (1 + 1e-3) + 1e-8


def test_poisson_sampling_alone_would_be_too_little() -> None:
    """Planted bug: the cut is not counted. One record of two is kept, and the other tells whether it is this one."""
    p, q = (density(records, 0.9, 1, 0.8) for records in ((-1, 1), (-1,)))
    truth = float(np.maximum(p - math.e * q, 0.0).sum())
    assert truth > 1.2 * pc.PoissonSampled(pc.Gaussian(0.8), 0.9).delta(epsilon=1.0).upper
    assert truth <= pc.TruncatedPoissonSampled(pc.Gaussian(0.8), 0.9, 1, 2).delta(epsilon=1.0).upper


# --- the pair: many uses by hand ---


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("weight", "uses"), [(0.3, 40), (1e-3, 400), (1.0, 30)])
def test_many_uses_are_a_mean_over_how_often_the_coin_fell(weight: float, uses: int, reverse: bool) -> None:
    usual, rare = (pc.PoissonSampled(pc.Gaussian(z), 0.05) for z in (1.2, 0.6))
    pairs = [m.pairs(pc.ADD_OR_REMOVE_ONE).forward for m in (usual, rare)]
    mixed = MixedPair(pairs[0], pairs[1], weight)
    one, two = (pair.reverse if reverse else pair for pair in pairs)
    found = Curve((((mixed.reverse if reverse else mixed), uses),)).delta(1.0)
    truth = [0.0, 0.0]
    for k in range(uses + 1):
        chance = math.comb(uses, k) * weight**k * (1 - weight) ** (uses - k)
        if chance > 1e-14:
            part = Curve(tuple((pair, n) for pair, n in ((one, uses - k), (two, k)) if n)).delta(1.0)
            truth = [truth[0] + chance * part.lower, truth[1] + chance * part.upper]
    assert found.lower <= truth[1] * (1 + 1e-9) + 1e-13
    assert truth[0] <= found.upper * (1 + 1e-9) + 1e-13
    assert found.upper - found.lower < 1e-6 * found.upper


@pytest.mark.parametrize("weight", [0.4, 1e-6, 1e-30])
def test_the_mixed_transform(weight: float) -> None:
    """Against quadrature in many digits, on the real axis and along the contour."""
    parts = SampledGaussianTransform(1.0, 0.02, False), SampledGaussianTransform(2.0, 0.02, False)
    prepared = MixedTransform(*parts, weight).prepare(4.0, 1000, -80.0, cut=False)
    with mp.workdps(40):

        def moment(s: mp.mpc) -> mp.mpc:
            def of(mu: int) -> mp.mpc:
                return mp.quad(
                    lambda t: (1 + mpf(0.02) * mp.expm1(mu * t - mpf(mu * mu) / 2)) ** (s + 1) * mp.npdf(t),
                    [-12, -4, 0, 4, 8, 12, 20, 30],
                )

            return (1 - mpf(weight)) * of(1) + mpf(weight) * of(2)

        real, error = prepared.log_real(np.array([3.0]))
        assert abs(mpf(float(real[0])) - mp.log(moment(mpf(3)))) <= float(error[0]) + 1e-16
        alone = [part.prepare(4.0, 1000, -80.0, cut=False).log_real(np.array([3.0])).error[0] for part in parts]
        assert float(error[0]) < max(alone[:1] if weight < 1e-20 else alone) * 1.1 + 1e-14
        nodes = prepared.log_nodes(3.0, 0.5, 6)
        for k in (0, 1, 5):
            truth = moment(mp.mpc(3, 0.5 * k)) / mp.exp(mpf(float(real[0])))
            value = mp.exp(mp.mpc(complex(nodes.log_m[k])))
            assert abs(truth / value - 1) <= math.expm1(float(nodes.slack[k])) + 1e-15
            assert float(nodes.slack[k]) < 1e-9
            assert mp.log(abs(truth)) <= float(prepared.log_decay(3.0, np.array([0.5 * k]))[0]) + 1e-12


@given(
    st.sampled_from([0.5, 1.0, 5.0]), st.sampled_from([1e-9, 1e-3, 0.2, 1.0]), st.integers(1, 40), st.integers(1, 60),
    st.sampled_from(list(pc.Relation)),
)  # fmt: skip
@example(0.5, 1.0, 1, 1, pc.ADD_OR_REMOVE_ONE)
@settings(max_examples=25 if SLOW else 10, deadline=None)
def test_a_larger_batch_costs_no_more(noise: float, rate: float, most: int, more: int, relation: pc.Relation) -> None:
    """Down to Poisson sampling; a data set that may be larger costs no less."""
    make = functools.partial(pc.TruncatedPoissonSampled, pc.Gaussian(noise), rate)
    size = most + more
    runs = [
        make(most, size + 1),
        make(most, size),
        make(most + more // 2, size),
        pc.PoissonSampled(pc.Gaussian(noise), rate),
    ]
    ends = [run.delta(epsilon=0.5, relation=relation).upper for run in runs]
    assert all(a >= b * (1 - 1e-9) - 1e-300 for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize(
    "inner", quick([pc.Gaussian(1.0), pc.Laplace(1.0), pc.DiscreteGaussian(1.0), pc.GDP(1.0)], 0, 2, 3), ids=str
)
def test_every_mechanism_that_it_takes(inner: pc.Mechanism) -> None:
    run = pc.TruncatedPoissonSampled(inner, 0.1, 20, 100) * 3
    for relation in pc.Relation if SLOW or not isinstance(inner, pc.DiscreteGaussian) else [pc.REPLACE_ONE]:
        if relation is pc.ZERO_OUT and isinstance(inner, pc.GDP):
            continue
        found = run.epsilon(delta=1e-6, relation=relation)
        plain = (pc.PoissonSampled(inner, 0.1) * 3).epsilon(delta=1e-6, relation=relation)
        # What occurs is Poisson's pair; a lattice that bounds both says it to so many digits.
        assert 0 < plain.lower * (1 - 1e-4) <= found.lower <= found.upper < math.inf


def test_extreme_inputs_give_an_answer() -> None:
    for noise, rate, most, size, uses in (
        (1e-3, 0.5, 5, 100, 1), (1e4, 1e-9, 1, 10**12, 10**3 if SLOW else 3), (1.0, 1.0, 1, 2, 1),
        (0.6, 4e-5, 520_000, 12_700_000_000, 10**3 if SLOW else 3),
    ):  # fmt: skip
        run = pc.TruncatedPoissonSampled(pc.Gaussian(noise), rate, most, size) * uses
        for delta in (1e-300, 1e-10):
            found = run.epsilon(delta=delta)
            assert 0 <= found.lower <= found.upper


# --- the tail of the binomial law ---


@pytest.mark.parametrize(
    ("n", "p", "k"),
    [(5, 0.5, 1), (5, 0.5, 5), (3, 0.999, 2), (100, 0.1, 30), (100, 0.1, 5), (10**4, 0.01, 99), (10**4, 0.01, 100),
     (10**4, 0.01, 150), (10**6, 1e-3, 1300), (1000, 0.9, 960), (2000, 1e-9, 3), (1500, 0.5, 1500)],
)  # fmt: skip
def test_the_binomial_tail_against_many_digits(n: int, p: float, k: int) -> None:
    with mp.workdps(60):
        truth = mp.betainc(k, n - k + 1, 0, mpf(p), regularized=True)
        low, high = at_least(n, p, k)
        assert low <= truth <= high
        assert high - low <= 1e-9 * truth + 1e-300


# --- what is refused ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((pc.Gaussian(1.0), 0.1, 0, 5), "batch_size = 0"),
     ((pc.Gaussian(1.0), 0.1, 6, 5), "batch_size = 6: must be at most"),
     ((pc.Gaussian(1.0), 0.0, 1, 5), "rate = 0"), ((pc.Gaussian(1.0), 1.5, 1, 5), "rate = 1.5"),
     ((pc.Gaussian(1.0), math.nan, 1, 5), "rate = nan"), ((pc.Gaussian(1.0), 0.1, 2.5, 5), "batch_size = 2.5"),
     ((pc.Gaussian(1.0), 0.1, 1, True), "dataset_size = True"),
     ((pc.PoissonSampled(pc.Gaussian(1.0), 0.1), 0.1, 1, 5), "not itself sampled"),
     ((pc.ExponentialMechanism(1.0), 0.1, 1, 5), "ExponentialMechanism.*must be one of Gaussian")],
)  # fmt: skip
def test_wrong_inputs_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        pc.TruncatedPoissonSampled(*arguments)  # type: ignore[arg-type]


def test_a_relation_without_a_theorem_is_refused() -> None:
    with pytest.raises(pc.PrivcalcError, match="zero-out"):
        pc.TruncatedPoissonSampled(pc.GDP(1.0), 0.1, 1, 5).epsilon(delta=1e-5, relation=pc.ZERO_OUT)


def test_what_is_set_apart_is_a_bound_too() -> None:
    """The other pair, in which a cut gives everything away: less sharp, and never below what occurs."""
    pairs = pc.TruncatedPoissonSampled(pc.Gaussian(1.0), 0.3, 2, 5).pairs(pc.ADD_OR_REMOVE_ONE)
    leaky = pairs.other()[0]
    assert isinstance(leaky, LeakPair)
    grid = np.array([0.0, 0.5, 1.5, 4.0])
    assert np.all(leaky.profile(grid).delta >= pairs.forward.profile(grid).delta * (1 - 1e-12))
