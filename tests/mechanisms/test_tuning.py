"""Tuning: the exact law of the best of K outputs, on small alphabets, against the claimed divergences."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

import privcalc as pc
from privcalc.mechanisms.random_trials import _ORDERS, _TESTS, RandomTrials
from privcalc.noise.bits import SeededBits
from privcalc.noise.source import Noise

KINDS = ["poisson", "geometric", "logarithmic"]
FINITE = _ORDERS[np.isfinite(_ORDERS)]


def generating(trials):
    """E[x^K]."""
    if trials.distribution not in KINDS:
        masses = [float(mass) for mass in pmf(trials)]
        return lambda x: np.polynomial.polynomial.polyval(x, masses)
    m, g = trials.mean, trials.gamma
    if g is None:
        return lambda x: np.exp(m * (x - 1))
    if g == 1:
        return lambda x: x
    if trials.distribution == "geometric":
        return lambda x: g * x / (1 - (1 - g) * x)
    return lambda x: np.log1p(-(1 - g) * x) / math.log(g)


@functools.cache
def pmf(trials):
    """P(K = k) in 40 digits, as Papernot and Steinke write it (Definition 1), or as it is listed."""
    if isinstance(trials.distribution, tuple):
        listed = [mpf(mass) for mass in trials.distribution]
        return [mass / sum(listed) for mass in listed]
    with mp.workdps(40):
        eta, g = mpf(trials.shape), mpf(trials.gamma)
        scale = mp.log(1 / g) if eta == 0 else g**-eta - 1
        found = [mpf(0), (1 - g) * (eta or 1) / scale]
        for k in range(1, math.ceil(60 / trials.gamma)):
            found.append(found[-1] * (1 - g) * (k + eta) / (k + 1))
        return found


def best_law(trials, masses):
    """The law of the best of K, outputs from the worst to the best; first of all "no trial"."""
    f = generating(trials)
    below = np.append(np.cumsum(masses), 1.0)
    below[-2] = 1.0
    law = np.diff(f(np.concatenate([[0.0], below[:-1]])))
    return np.concatenate([[f(0.0)], law])


def divergence(p, q, order):
    keep = p > 0
    p, q = p[keep], q[keep]
    return float(np.logaddexp.reduce(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1))


def response(level, k, truth):
    masses = np.ones(k)
    masses[truth] = math.exp(level)
    return masses / masses.sum()


@pytest.mark.parametrize("mean", [0.01, 0.3, 1.0])
def test_few_poisson_trials(mean):
    """Theorem 6 without the term of K = 0 would be negative for mean < 1."""
    trials = RandomTrials(pc.RandomizedResponse(epsilon=1.0), mean=mean, distribution="poisson")
    laws = [best_law(trials, response(1.0, 2, t)) for t in (0, 1)]
    claim = trials.rdp(FINITE)
    for p, q in (laws, laws[::-1]):
        true = np.array([divergence(p, q, order) for order in FINITE[FINITE < 300]])
        assert np.all(true <= claim[: true.size] + 1e-12)
    unguarded = 1.0 + math.log(mean) / (FINITE - 1)
    assert mean == 1 or unguarded.min() < 0


@pytest.mark.parametrize("distribution", KINDS)
@pytest.mark.parametrize("mean", [1.0, 1.0 + 1e-9, 2.5, 40.0, 1e6])
def test_mean_and_draw(distribution, mean):
    trials = RandomTrials(pc.Gaussian(noise_multiplier=1.0), mean=mean, distribution=distribution)
    gamma = trials.gamma
    if distribution == "geometric":
        assert 1 / gamma == pytest.approx(mean)
    elif distribution == "logarithmic" and gamma < 1:
        assert (1 / gamma - 1) / -math.log(gamma) == pytest.approx(mean, rel=1e-7)
        if mean < 100:
            assert stats.logser(1 - gamma).mean() == pytest.approx(mean, rel=1e-6)
    if mean <= 40:
        rng = np.random.default_rng(0)
        drawn = np.array([trials.law.simulate(rng) for _ in range(4000)])
        assert abs(drawn.mean() - mean) <= 5 * (drawn.std() + 1e-3) / math.sqrt(4000)
        assert distribution == "poisson" or drawn.min() >= 1


@pytest.mark.parametrize(("distribution", "factor"), [("geometric", 3.0), ("logarithmic", 2.0)])
def test_pure_dp(distribution, factor):
    """(2 + η)ε-DP (Papernot, Steinke 2022, Theorem 2, both orders ∞)."""
    trials = RandomTrials(pc.PureDP(epsilon=0.5), mean=1e6, distribution=distribution)
    assert trials.epsilon(delta=0.0).upper == pytest.approx(0.5 * factor, rel=1e-9)


def test_a_mechanism_like_any_other():
    step = pc.PoissonSampled(pc.Gaussian(1.0), rate=0.01) if SLOW else pc.Gaussian(50.0)
    trials = RandomTrials(step * 100, mean=5.0, distribution="poisson")
    both = (trials + step * 100).epsilon(delta=1e-5)
    assert both.upper >= trials.epsilon(delta=1e-5).upper
    assert min(trials.epsilon(delta=1e-5).lower, trials.delta(epsilon=0.1).lower) > 0
    assert both.lower >= (step * 100).epsilon(delta=1e-5).lower > 0  # more releases never improve a guarantee
    assert (trials + step * 100).beta(alpha=0.1).upper <= (step * 100).beta(alpha=0.1).upper * (1 + 1e-9) < 0.9
    assert trials == RandomTrials(step * 100, mean=5.0, distribution="poisson")
    drawn = RandomTrials(pc.PoissonSampled(pc.Gaussian(1.0), rate=0.01) * 100, mean=5.0, distribution="poisson")
    with pytest.raises(pc.PrivcalcError, match="not itself sampled"):
        pc.PoissonSampled(drawn, rate=0.1)
    with pytest.raises(pc.PrivcalcError, match="cannot be sampled"):
        pc.PoissonSampled(RandomTrials(pc.Gaussian(1.0), mean=5.0, distribution="poisson"), rate=0.1).epsilon(
            delta=1e-5
        )
    with pytest.raises(
        pc.PrivcalcError, match=r"cannot be tuned, because one trial has no finite ε at δ ≤ 0\.1 \(it may leak"
    ):
        RandomTrials(pc.ApproxDP(epsilon=1.0, delta=0.2), mean=5.0, distribution="poisson").epsilon(delta=1e-3)


# --- from the whole profile -----------------------------------------------------------------------


def discrete(p, q):
    return pc.CustomMechanism.from_probabilities(p, q)


def worst(p, q, epsilon):
    return max(float(np.maximum(x - math.exp(epsilon) * y, 0.0).sum()) for x, y in ((p, q), (q, p)))


def of_events(trials, p, q, epsilon):
    """The best trial is in an event of one trial, of probability α under q, ranked first or last: P − e^ε Q."""
    order = np.argsort(-p / q)
    f = generating(trials)
    alphas = np.concatenate([[alpha for alpha, _ in _TESTS], np.linspace(0, 1, 401)])
    power = np.interp(alphas, np.append(0, np.cumsum(q[order])), np.append(0, np.cumsum(p[order])))
    for first in (True, False):
        both = [1 - f(1 - x) if first else f(x) - f(0.0) for x in (power, alphas)]
        yield from (both[0] - math.exp(epsilon) * both[1]).tolist()


@pytest.mark.parametrize("distribution", KINDS)
@pytest.mark.parametrize("mean", [0.3, 1.0, 2.0, 10.0, 300.0])
def test_every_ranking_of_outputs_is_within(distribution, mean):
    """Random laws on three and four outputs, in all orders of their scores, the whole curve."""
    if mean < 1 and distribution != "poisson":
        return
    rng = np.random.default_rng(4)
    for size in (3, 4):
        p, q = rng.dirichlet(np.ones(size), 2)
        p, q = 0.05 / size + 0.95 * p, 0.05 / size + 0.95 * q
        trials = RandomTrials(discrete(p, q), mean=mean, distribution=distribution)
        whole = trials.pairs(pc.ADD_OR_REMOVE_ONE).other()[0]
        reached = []
        for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
            found = trials.delta(epsilon=epsilon)
            here = [worst(best_law(trials, p[list(o)]), best_law(trials, q[list(o)]), epsilon)
                    for o in itertools.permutations(range(size))]  # fmt: skip
            assert max(here) <= found.upper * (1 + 1e-9) + 1e-13
            assert max(here) <= whole.bounds(epsilon)[1] + 1e-13
            # What is said to occur does: a coin is part of a trial's output, too, and splits it.
            split = [gap for one, two in ((p, q), (q, p)) for gap in of_events(trials, one, two, epsilon)]
            assert max(split) <= found.upper * (1 + 1e-9) + 1e-13
            assert found.lower <= max(split) * (1 + 1e-9) + 1e-13
            reached.append(max(*here, *split) / found.upper if found.upper else 1.0)
        assert max(reached) > 0.25


@pytest.mark.parametrize("distribution", KINDS)
def test_the_weight_of_a_rank(distribution):
    """f′ and f, in 40 digits, and f of the test above."""
    trials = RandomTrials(pc.Gaussian(1.0), mean=7.0, distribution=distribution)
    f = generating(trials)
    a = np.array([1e-12, 1e-3, 0.2, 0.9, 1.0])
    np.testing.assert_allclose(trials.law.better(a)[1:], 1 - f(1 - a[1:]), rtol=1e-9)
    with mp.workdps(40):
        m, g = mpf(trials.mean), None if trials.gamma is None else mpf(trials.gamma)
        exact = {
            "poisson": lambda x: mp.exp(m * (x - 1)),
            "geometric": lambda x: g * x / (1 - (1 - g) * x),
            "logarithmic": lambda x: mp.log(1 - (1 - g) * x) / mp.log(g),
        }[distribution]
        for x, weight, better in zip(a, trials.law.weight(a), trials.law.better(a), strict=True):
            assert abs(weight - mp.diff(exact, 1 - mpf(float(x)))) < 1e-10 * weight
            assert abs(better - (1 - exact(1 - mpf(float(x))))) < 1e-12 * better


def test_leaks_are_tuned_too():
    """No divergence is finite, the profile is: ten trials leak ten times as often."""
    trials = RandomTrials(pc.ApproxDP(epsilon=0.5, delta=1e-7), mean=10.0, distribution="geometric")
    assert trials.epsilon(delta=9e-7).upper == math.inf
    assert trials.epsilon(delta=2e-6).upper < 1.6
    assert trials.epsilon(delta=1e-8).lower > 0


@given(st.sampled_from(KINDS), st.floats(1, 50), st.floats(0.3, 8), st.sampled_from(list(pc.Relation)))
@settings(max_examples=12 if SLOW else 6, deadline=None)
def test_more_trials_cost_more(distribution, mean, noise, relation):
    less, more = (RandomTrials(pc.Gaussian(noise), mean=m, distribution=distribution) for m in (mean, 1.5 * mean))
    one = pc.Gaussian(noise).epsilon(delta=1e-6, relation=relation)
    few, many = (trials.epsilon(delta=1e-6, relation=relation) for trials in (less, more))
    assert few.lower <= few.upper <= many.upper * (1 + 1e-3)
    assert distribution == "poisson" or one.lower <= few.upper * (1 + 1e-6)


# --- any law of the number of trials -----------------------------------------------------------------

LAWS = [
    {"mean": 1.15, "distribution": -0.95}, {"mean": 3.0, "distribution": -0.5}, {"mean": 2.0, "distribution": -0.005},
    {"mean": 5.0, "distribution": 1e-9}, {"mean": 5.0, "distribution": 0.4}, {"mean": 1.001, "distribution": 2.5},
    {"mean": 6.0, "distribution": 2.5}, {"mean": 12.0, "distribution": 30.0}, {"distribution": (0.25, 0.25, 0.0, 0.5)},
    {"distribution": (0.0, 0.5, 0.5)}, {"distribution": (0.0, 0.0, 0.0, 1.0)},
    {"distribution": (0.999, 0.0, 0.0, 0.001)},
]  # fmt: skip


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_generating_functions_of_any_law(law):
    """From its masses, in 40 digits: the mean, f and f′, near 0 and 1 too."""
    trials = RandomTrials(pc.Gaussian(1.0), **law)
    a = np.array([1e-12, 1e-3, 0.2, 0.9, 1.0])
    with mp.workdps(40):
        masses = pmf(trials)
        assert trials.law.none == pytest.approx(float(masses[0]), rel=1e-15)
        assert abs(sum(k * mass for k, mass in enumerate(masses)) / mpf(trials.law.mean) - 1) < 1e-12
        assert trials.mean == pytest.approx(trials.law.mean, rel=1e-7)
        for x, weight, better in zip(a, trials.law.weight(a), trials.law.better(a), strict=True):
            rest, exact, power = 1 - mpf(float(x)), [mpf(0), 1 - masses[0]], mpf(1)
            for k, mass in enumerate(masses[1:], 1):
                exact[0] += k * mass * power
                power *= rest
                exact[1] -= mass * power
            assert abs(weight - exact[0]) <= 5e-13 * exact[0]
            assert abs(better - exact[1]) <= 1e-12 * exact[1]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_numbers_are_drawn_of_any_law(law):
    trials, noise, rng = RandomTrials(pc.Gaussian(1.0), **law), Noise(SeededBits(7, 0)), np.random.default_rng(7)
    expected = np.array([float(mass) for mass in pmf(trials)[:40]])
    for draw, times in ((lambda: trials.draw(noise), 600), (lambda: trials.law.simulate(rng), 3000)):
        found = np.bincount([draw() for _ in range(times)], minlength=expected.size)
        often = np.flatnonzero(times * expected >= 8)
        assert found[: expected.size][expected == 0].sum() == 0
        observed, wanted = found[often], times * expected[often]
        if times - wanted.sum() > 1e-6:
            observed, wanted = np.append(observed, times - observed.sum()), np.append(wanted, times - wanted.sum())
        if wanted.size > 1:
            assert stats.chisquare(observed, wanted).pvalue > 1e-7


@pytest.mark.parametrize("law", [LAWS[i] for i in (1, 6, 8, 10)], ids=str)
def test_every_ranking_under_any_law(law):
    """As of the named laws, on three outputs; a tuple by writing out all trials."""
    rng = np.random.default_rng(6)
    p, q = (0.05 / 3 + 0.95 * x for x in rng.dirichlet(np.ones(3), 2))
    trials = RandomTrials(discrete(p, q), **law)
    reached = []
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
        found = trials.delta(epsilon=epsilon)
        orders = [list(order) for order in itertools.permutations(range(3))]
        here = [worst(best_law(trials, p[order]), best_law(trials, q[order]), epsilon) for order in orders]
        split = [gap for one, two in ((p, q), (q, p)) for gap in of_events(trials, one, two, epsilon)]
        assert max(*here, *split) <= found.upper * (1 + 1e-9) + 1e-13
        assert found.lower <= max(split) * (1 + 1e-9) + 1e-13
        for order in (1.5, 4.0, 30.0):
            laws = [best_law(trials, x) for x in (p, q)]
            assert divergence(*laws, order) <= trials.rdp([order])[0] * (1 + 1e-9) + 1e-12
        reached.append(max(*here, *split) / found.upper if found.upper else 1.0)
    assert max(reached) > 0.25


def written_out(masses, law):
    """The law of the best, output 0 before 1 before 2, from all lists of up to k trials; last of all "no trial"."""
    found = np.zeros(law.size + 1)
    for k, mass in enumerate(masses):
        for outputs in itertools.product(range(law.size), repeat=k):
            found[min(outputs, default=law.size)] += mass * math.prod(law[list(outputs)])
    return found


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=5).filter(lambda x: sum(x[1:]) > 0.1),
    st.floats(0.1, 2),
    st.floats(0, 3),
)
@example([0, 0, 0, 0, 1.0], 2.0, 0.0)
@settings(max_examples=8, deadline=None)
def test_all_lists_of_trials_are_within(masses, level, epsilon):
    law = np.array(masses) / math.fsum(masses)
    trials = RandomTrials(pc.RandomizedResponse(level, categories=3), distribution=law)
    found = trials.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    best = [written_out(law, response(level, 3, truth)) for truth in range(3)]
    true = max(worst(one, two, epsilon) for one in best for two in best)
    assert true <= found.upper * (1 + 1e-9) + 1e-13
    assert found.lower <= found.upper


def test_laws_that_have_a_name_are_special_cases():
    """η = 1, 0 and ∞; a shape nearby; and Poisson's probabilities, listed."""
    one = pc.Gaussian(4.0)
    for name, shape in (("geometric", 1), ("logarithmic", 0.0), ("poisson", math.inf)):
        named = RandomTrials(one, mean=5, distribution=name)
        assert RandomTrials(one, mean=5, distribution=shape) == named
        assert named.shape == shape
        if shape < 2:
            near = RandomTrials(one, mean=5, distribution=shape + 1e-9)
            assert near.epsilon(delta=1e-5).upper == pytest.approx(named.epsilon(delta=1e-5).upper, rel=1e-6)
    listed = RandomTrials(one, distribution=stats.poisson(5).pmf(np.arange(60)))
    named = RandomTrials(one, mean=5, distribution="poisson")
    assert listed.mean == pytest.approx(5, rel=1e-12)
    assert listed.epsilon(delta=1e-5).upper == pytest.approx(named.epsilon(delta=1e-5).upper, rel=1e-6)
    single = RandomTrials(one, distribution=[0, 1])
    assert single.epsilon(delta=1e-5).upper == pytest.approx(one.epsilon(delta=1e-5).upper, rel=0.01)
    # A number that is not random costs most, here about what all five outputs do.
    fixed = RandomTrials(one, distribution=[0] * 5 + [1]).epsilon(delta=1e-5)
    assert named.epsilon(delta=1e-5).upper < fixed.upper < (one * 5).epsilon(delta=1e-5).upper * 1.1


@pytest.mark.parametrize(
    "arguments",
    [
        {"distribution": "geometric"},
        {"mean": 2.0, "distribution": -1.0},
        {"mean": 2.0, "distribution": 1e-200},
        {"mean": 2.0, "distribution": 1e4},
        {"mean": 2.0, "distribution": math.nan},
        {"mean": 2.0, "distribution": True},
        {"mean": 1e6, "distribution": -0.99},
        {"mean": 2.0, "distribution": [0.5, 0.5]},
        {"distribution": [1.0]},
        {"distribution": [1.0, 0.0]},
        {"distribution": [0.5, 0.4]},
        {"distribution": [1.5, -0.5]},
        {"distribution": [math.nan, 1.0]},
        {"distribution": [[0.5, 0.5]]},
        {"distribution": [1e-3] * 1000 + [0.0] * 2},
        {"mean": 0.5, "distribution": "geometric"},
        {"mean": 0.0, "distribution": "poisson"},
        {"mean": math.nan, "distribution": "logarithmic"},
        {"mean": 2.0, "distribution": "fixed"},
    ],
)
def test_bad_arguments(arguments):
    with pytest.raises(pc.PrivcalcError):
        RandomTrials(pc.Gaussian(noise_multiplier=1.0), **arguments)
    with pytest.raises(pc.PrivcalcError):
        RandomTrials(3.0, mean=2.0, distribution="poisson")


def test_a_number_of_trials_that_is_drawn_again_is_warned_of():
    """The larger of two numbers has another law than is charged."""
    trials = RandomTrials(pc.Gaussian(12.0), mean=6, distribution="geometric")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trials.draw()
        trials.draw(Noise())
        trials.draw(Noise())
        RandomTrials(pc.Gaussian(12.0), mean=6, distribution="geometric").draw()  # of another search
    with pytest.warns(pc.PrivcalcWarning, match="was drawn before"):
        trials.draw()
    assert trials == RandomTrials(pc.Gaussian(12.0), mean=6, distribution="geometric")


def test_a_number_of_trials_from_a_generator_is_warned_of():
    """Whoever reads the script draws it again."""
    with pytest.warns(pc.PrivcalcWarning, match="is a generator's, for simulations"):
        RandomTrials(pc.Gaussian(12.0), mean=6, distribution="geometric").draw(np.random.default_rng(0))


@pytest.mark.parametrize("distribution", ["geometric", "poisson", [0.0, 0.5, 0.5]])
def test_what_occurs_in_one_order_is_reversed_in_the_other(distribution: object) -> None:
    """A test of one order and another of the other one are two laws: no β is that of both."""
    base = pc.CustomMechanism.from_probabilities([0.7, 0.2, 0.1], [0.5, 0.2, 0.3])
    mean = 2.0 if isinstance(distribution, str) else None
    pairs = pc.RandomTrials(base, mean=mean, distribution=distribution).pairs(pc.ADD_OR_REMOVE_ONE)
    assert len(pairs.also) > 2
    for first, second in (pairs.attained, *pairs.also):
        assert second == first.reverse
