"""Lower bounds by attacks: as right as they say, at known truth; near it with enough samples; no worse inputs accepted.

Coverage is counted over simulated audits: more misses than a bound's error allows, beyond chance of 1e-6, fail.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import SLOW
from scipy.optimize import brentq
from scipy.stats import binom, norm

import privcalc as pc
from privcalc import attacks
from privcalc.attacks import scores as scores_module
from privcalc.attacks.one_run import _gaussian_claims as gaussian_claims

ERROR = 0.2
AUDITS = 300


def allowed(audits: int, error: float = ERROR) -> int:
    return int(binom.isf(1e-6, audits, error))


def gaussian_pair(rng, mu, size):
    return mu + rng.standard_normal(size), rng.standard_normal(size)


def response_pair(rng, epsilon, size):
    truth = 1 / (1 + math.exp(-epsilon))
    return (rng.random(size) < truth).astype(float), (rng.random(size) > truth).astype(float)


# --- counts ---


def test_clopper_pearson_bounds_are_honest():
    # P(Bin(n, low) ≥ hits) and P(Bin(n, high) ≤ hits) equal the error, at both ends too
    low, high = float(attacks.at_least(50, 1000, 1e-6)), float(attacks.at_most(50, 1000, 1e-6))
    assert binom.sf(49, 1000, low) == pytest.approx(1e-6, rel=1e-6)
    assert binom.cdf(50, 1000, high) == pytest.approx(1e-6, rel=1e-6)
    assert attacks.at_least(0, 10, 0.1) == 0
    assert attacks.at_most(10, 10, 0.1) == 1
    assert float(attacks.at_least(10, 10, 0.1)) == pytest.approx(0.1**0.1)
    assert float(attacks.at_most(0, 10, 0.1)) == pytest.approx(1 - 0.1**0.1)


@pytest.mark.parametrize(("p", "q"), [(0.7, 0.3), (0.9, 0.5), (0.6, 0.2)])
def test_the_error_of_counts_is_as_stated(p, q):
    """Exactly, by enumeration of all counts: not more than stated, and not much less."""
    n, total = 50, {"epsilon": 0.0, "any": 0.0}
    law_p, law_q = (binom.pmf(np.arange(n + 1), n, rate) for rate in (p, q))
    truth = max(math.log(p / q), math.log((1 - q) / (1 - p)))
    for k, j in itertools.product(range(n + 1), repeat=2):
        if law_p[k] * law_q[j] < 1e-12:
            continue
        found = attacks.from_counts(k, n, j, n, confidence=0.8)
        total["epsilon"] += law_p[k] * law_q[j] * (found.epsilon(delta=0.0) > truth)
        total["any"] += law_p[k] * law_q[j] * (found.power[0] > p or found.false[0] < q)
    assert total["epsilon"] <= total["any"] + 1e-9
    assert 0.08 < total["any"] <= 0.2


def test_both_directions_are_used():
    # An output that only the second world shows: ε is infinite in one direction only.
    found = attacks.from_counts(100_000, 100_000, 50_000, 100_000)
    assert found.epsilon(delta=0.0) > 8
    assert attacks.from_counts(50_000, 100_000, 0, 100_000).epsilon(delta=0.0) > 8


def test_every_question_is_about_the_same_events():
    found = attacks.from_counts([900, 500], 1000, [400, 50], 1000)
    for delta in (0.0, 0.01, 0.3):
        assert found.delta(epsilon=found.epsilon(delta=delta)) == pytest.approx(delta, abs=1e-12)
    assert found.advantage() == found.delta(epsilon=0.0)
    for a in np.linspace(0, 1, 21):
        assert found.power_at(float(a)) >= a - 1e-12
        assert found.power_at(float(a)) <= 1 - pc.GDP(8.0).beta(alpha=float(a)).lower
    for false, power in zip(found.false, found.power, strict=True):
        assert found.power_at(float(false)) >= power - 1e-12
    assert attacks.from_counts(5, 10, 5, 10).mu() == 0 == attacks.from_counts(5, 10, 5, 10).gaussian_epsilon(delta=0.1)


def test_no_mixture_of_both_orders_is_claimed():
    """One curve per order: P is 0.7 N(0, 1) + 0.3 N(3, 1), Q is N(0, 1); the smaller β of two orders is not convex."""
    levels, trials = np.linspace(-5, 7, 60), 10**13
    first, second = 0.7 * norm.sf(levels) + 0.3 * norm.sf(levels - 3), norm.sf(levels)
    found = attacks.from_counts(
        np.rint(trials * first).astype(int).tolist(), trials, np.rint(trials * second).astype(int).tolist(), trials
    )
    for alpha in (0.01, 0.2, 0.455, 0.6, 0.9):
        t = norm.isf(alpha)
        u = brentq(lambda x: 0.7 * norm.cdf(x) + 0.3 * norm.cdf(x - 3) - alpha, -9, 9)
        truth = max(0.7 * norm.sf(t) + 0.3 * norm.sf(t - 3), norm.cdf(u))
        assert truth - 4e-3 < found.power_at(alpha) < truth


# --- coverage ---


@pytest.mark.parametrize(("mu", "size"), [(1.0, 400), (0.3, 3000), (3.0, 60)])
def test_coverage_for_a_gaussian_pair(mu, size):
    rng = np.random.default_rng(5)
    misses = 0
    truth = {delta: pc.GDP(mu).epsilon(delta=delta).upper for delta in (1e-3, 0.05)}
    curve = {alpha: 1 - pc.GDP(mu).beta(alpha=alpha).lower for alpha in (0.05, 0.3)}
    for seed in range(AUDITS):
        found = attacks.from_scores(*gaussian_pair(rng, mu, size), delta=list(truth), confidence=1 - ERROR, seed=seed)
        misses += (
            found.mu() > mu
            or any(found.epsilon(delta=delta) > epsilon for delta, epsilon in truth.items())
            or any(found.power_at(alpha) > power for alpha, power in curve.items())
        )
    assert misses <= allowed(AUDITS)


@pytest.mark.parametrize("order", ["random", "sorted"])
def test_coverage_for_randomised_response(order):
    """Files may be sorted: the split is random."""
    rng = np.random.default_rng(6)
    misses = 0
    for seed in range(AUDITS):
        one, other = response_pair(rng, 1.0, 500)
        if order == "sorted":
            one, other = np.sort(one), np.sort(other)
        misses += attacks.from_scores(one, other, delta=0.0, confidence=1 - ERROR, seed=seed).epsilon(delta=0.0) > 1.0
    assert misses <= allowed(AUDITS)


def test_what_chooses_thresholds_is_not_counted(monkeypatch):
    seen = []

    def spy(hits, trials, false_hits, false_trials, **options):
        seen.append((trials, false_trials))
        return attacks.from_counts(hits, trials, false_hits, false_trials, **options)

    monkeypatch.setattr(scores_module, "from_counts", spy)
    scores_module.from_scores(np.arange(400.0), np.arange(200.0))
    assert seen == [(300, 150)]


def test_sorted_scores_show_as_much():
    one, other = gaussian_pair(np.random.default_rng(16), 1.0, 50_000)
    assert 0.35 < attacks.from_scores(np.sort(one), np.sort(other)).advantage() <= 0.383


def test_sorted_scores_of_equal_worlds_show_nothing():
    rng = np.random.default_rng(15)
    one, other = (np.sort(rng.standard_normal(4000)) for _ in range(2))
    found = attacks.from_scores(one, other[::-1], confidence=1 - 1e-6)
    assert found.mu() == 0
    assert found.epsilon(delta=0.0) == 0


def test_coverage_of_membership():
    rng = np.random.default_rng(7)
    area, misses = float(0.5 * (1 + math.erf(0.5))), 0  # Φ(1/√2)
    for seed in range(AUDITS):
        other, member = gaussian_pair(rng, 1.0, 300)
        found = attacks.membership(member, other, false_positive_rates=[0.1], confidence=1 - ERROR, seed=seed)
        _, _, false, true = found.rates[0.1]
        low, high = found.auc_bounds
        misses += not low <= area <= high or true > 1 - pc.GDP(1.0).beta(alpha=false).lower
    assert misses <= allowed(AUDITS)


def test_membership_is_near_the_truth():
    other, member = gaussian_pair(np.random.default_rng(8), 1.0, 200_000)
    found = attacks.membership(member, other)
    assert found.auc == pytest.approx(0.5 * (1 + math.erf(0.5)), abs=0.003)
    for rate, (false, true, _, least) in found.rates.items():
        best = 1 - pc.GDP(1.0).beta(alpha=rate).upper
        assert false == pytest.approx(rate, rel=0.3)
        assert true == pytest.approx(best, rel=0.2)
        assert 0.75 * best < least < best * 1.2


# --- near the truth ---


def test_a_million_samples_of_the_gaussian_mechanism():
    one, other = gaussian_pair(np.random.default_rng(0), 1.0, 1_000_000)
    found = attacks.from_scores(one, other, delta=1e-2)
    truth = pc.Gaussian(1.0).epsilon(delta=1e-2)
    assert 0.95 * truth.upper < found.gaussian_epsilon(delta=1e-2) <= truth.upper
    assert 0.90 * truth.upper < found.epsilon(delta=1e-2) <= truth.upper
    assert not found.contradicts(truth, delta=1e-2)
    assert found.contradicts(pc.Gaussian(1.2).epsilon(delta=1e-2), delta=1e-2)


def test_randomised_response_is_reached():
    found = attacks.from_scores(*response_pair(np.random.default_rng(1), 1.0, 200_000), delta=0.0)
    assert 0.97 < found.epsilon(delta=0.0) <= 1.0


def test_likelihood_ratio_and_black_box_agree():
    def mechanism(data, rng):
        return [sum(data) + 2 * rng.standard_normal(), rng.standard_normal()]

    by_class = attacks.black_box(mechanism, [1.0, 1.0], [1.0], size=20_000)
    known = attacks.likelihood_ratio(
        lambda r, n: 2 + 2 * r.standard_normal(n), lambda r, n: 1 + 2 * r.standard_normal(n), lambda x: x
    )
    for found in (by_class, known):
        assert 0.4 < found.mu() <= 0.5


def test_the_classifier_sees_a_scale():
    """Noise over a private count: the mean is the same in both worlds."""
    found = attacks.black_box(lambda n, rng: rng.standard_normal(40) / n, 5, 6, size=6_000)
    assert found.mu() > 1.0


def test_canary_runs_take_different_numbers():
    seen = set()

    def train(there, number):
        assert number not in seen
        seen.add(number)
        return float(there)

    assert attacks.canary_runs(train, runs=500).epsilon(delta=0.0) > 3


# --- one run ---


def enumerate_guesses(epsilon, r):
    """Randomised response of r canaries: the law of the number of right guesses, by enumeration."""
    q = 1 / (1 + math.exp(-epsilon))
    law = np.zeros(r + 1)
    for right in itertools.product([0, 1], repeat=r):
        law[sum(right)] += math.prod(q if x else 1 - q for x in right)
    return law


def test_guesses_of_randomised_response_attain_the_bound():
    law = enumerate_guesses(0.8, 8)
    for v in range(9):
        bound = attacks.guess_probability(correct=v, guesses=8, canaries=8, epsilon=0.8)
        assert bound == pytest.approx(law[v:].sum(), rel=1e-12)


@pytest.mark.parametrize("delta", [0.001, 0.01, 0.1])
def test_no_mixture_of_leaks_beats_the_bound(delta):
    """Reveal all bits with probability δ, else randomised response; or reveal each bit by itself: both (ε, δ)-DP."""
    epsilon, m = 0.7, 8
    law = enumerate_guesses(epsilon, m)
    q = 1 / (1 + math.exp(-epsilon))
    right = delta + (1 - delta) * q
    for v in range(1, m + 1):
        bound = attacks.guess_probability(correct=v, guesses=m, canaries=m, epsilon=epsilon, delta=delta)
        assert (1 - delta) * law[v:].sum() + delta <= bound + 1e-12
        assert binom.sf(v - 1, m, right) <= bound + 1e-12


def test_the_bound_is_a_linear_programme():
    from scipy.optimize import linprog

    m, r, v, epsilon, delta = 30, 12, 10, 0.6, 0.004
    q = 1 / (1 + math.exp(-epsilon))
    mass = binom.pmf(np.arange(v), r, q)
    short = v - np.arange(v)
    best = -linprog(-np.ones(v), A_ub=[short], b_ub=[m * delta * (1 - q)], bounds=[(0, p) for p in mass]).fun
    found = attacks.guess_probability(correct=v, guesses=r, canaries=m, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(binom.sf(v - 1, r, q) + best, rel=1e-9)


def test_the_order_of_canaries_tells_nothing():
    coins = np.arange(1000) < 500
    found = attacks.one_run(np.zeros(1000), ~coins)
    assert found.epsilon(delta=0.0) == attacks.one_run(np.zeros(1000), coins).epsilon(delta=0.0) == 0


@pytest.mark.parametrize("kind", ["response", "gaussian", "shared level"])
def test_coverage_of_one_run(kind):
    rng = np.random.default_rng(9)
    m, mu, epsilon, delta, misses = 200, 1.0, 1.0, 1e-3, 0
    truth = pc.GDP(mu).epsilon(delta=delta).upper
    audits = AUDITS if kind == "response" else 80 if SLOW else 40
    for _ in range(audits):
        coins = rng.random(m) < 0.5
        sign = np.where(coins, 1.0, -1.0)
        if kind == "response":
            scores = np.where(rng.random(m) < 1 / (1 + math.exp(-epsilon)), sign, -sign)
        elif kind == "gaussian":
            scores = mu * coins + rng.standard_normal(m)
        else:  # μ-GDP for each canary, but all are well guessed in the same runs: the worst case of the μ bound
            loss = abs(mu * mu / 2 + mu * rng.standard_normal())
            scores = np.where(rng.random(m) < 1 / (1 + math.exp(-loss)), sign, -sign)
        found = attacks.one_run(scores, coins, guesses=[20, m], confidence=1 - ERROR)
        if kind == "response":
            misses += found.epsilon(delta=0.0) > epsilon
        else:
            misses += found.mu() > mu or (kind == "gaussian" and found.epsilon(delta=delta) > truth)
    assert misses <= allowed(audits)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_a_shared_level_nearly_attains_the_gaussian_bound(mu):
    """Level |L| of all canaries, L of the pair: μ-GDP each. The law of the number of right guesses, by quadrature."""
    m, nodes = 4000, np.linspace(-9, 9, 4001)
    level = np.abs(mu * mu / 2 + mu * nodes)
    weights = norm.pdf(nodes) / norm.pdf(nodes).sum()
    closest = math.inf
    for v in np.linspace(0.5 * m, 0.99 * m, 25).astype(int).tolist():
        exact = float(weights @ binom.sf(v - 1, m, 1 / (1 + np.exp(-level))))
        claims = gaussian_claims(mu)
        bound = min(attacks.guess_probability(correct=v, guesses=m, canaries=m, epsilon=e, delta=d) for e, d in claims)
        assert exact <= bound
        if exact < 0.2:
            closest = min(closest, bound / exact)
    assert closest < 3.5


def test_one_run_comes_near_randomised_response():
    rng = np.random.default_rng(10)
    coins = rng.random(20_000) < 0.5
    scores = np.where(rng.random(20_000) < 1 / (1 + math.exp(-1)), coins, ~coins)
    found = attacks.one_run(scores.astype(float), coins, guesses=20_000)
    assert 0.95 < found.epsilon(delta=0.0) <= 1.0
    assert 0.9 < found.epsilon(delta=1e-7) <= 1.0


def test_one_run_of_a_linear_learner():
    """1,000 orthogonal canaries, one noisy training; a tenth of the noise is found out."""
    pytest.importorskip("torch")
    from learners import NoisyGD

    m, rng = 1000, np.random.default_rng(12)
    coins = rng.random(m) < 0.5
    guarantees = []
    for z in (2.0, 0.2):
        model = NoisyGD(
            classes=[0, 1], delta=1e-5, noise_multiplier=z, steps=4, records=m, clip_norm=0.1, learning_rate=1.0, seed=3
        ).fit(100 * np.eye(m)[coins], np.ones(int(coins.sum())))
        scores = (model.weights_[:, 1] - model.weights_[:, 0]).numpy()
        guarantees.append((model.certificate_.guarantee.epsilon, attacks.one_run(scores, coins)))
    certified, found = guarantees[0]
    assert 1.0 < found.epsilon(delta=1e-5) <= certified.upper
    assert found.mu() <= math.sqrt(4) / 2.0
    assert guarantees[1][1].epsilon(delta=1e-5) > 3.5


# --- bad input ---


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: attacks.from_counts(11, 10, 0, 10), "hits"),
        (lambda: attacks.from_counts(1.5, 10, 0, 10), "hits"),
        (lambda: attacks.from_counts([1, 2], 10, 0, 10), "false_hits"),
        (lambda: attacks.from_counts(1, 0, 0, 10), "trials"),
        (lambda: attacks.from_counts(1, 10, 0, 10, confidence=1.0), "confidence"),
        (lambda: attacks.from_scores([1.0] * 7, [0.0] * 9), "with_it"),
        (lambda: attacks.from_scores([1.0] * 9, [math.nan] * 9), "without"),
        (lambda: attacks.from_scores([[1.0]] * 9, [1.0] * 9), "with_it"),
        (lambda: attacks.from_scores(["a"] * 9, [1.0] * 9), "with_it"),
        (lambda: attacks.from_scores([1.0] * 9, [1.0] * 9, delta=1.0), "delta"),
        (lambda: attacks.one_run([1.0] * 9, [2] * 9), "included"),
        (lambda: attacks.one_run([1.0] * 9, [True] * 9, guesses=10), "guesses"),
        (lambda: attacks.guess_probability(correct=3, guesses=2, canaries=9, epsilon=1.0), "guesses"),
        (lambda: attacks.membership([1.0] * 9, [1.0] * 9, false_positive_rates=[0.0]), "false_positive_rates"),
        (lambda: attacks.black_box(lambda n, rng: [0.0] * int(rng.integers(1, 3)), 1, 2, size=64), "mechanism"),
        (lambda: attacks.black_box(lambda n, rng: 0.0, 1, 2, size=3), "size"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(pc.PrivcalcError, match=f"^{name}"):
        call()


def test_infinite_and_constant_scores():
    assert attacks.from_scores([math.inf] * 100, [-math.inf] * 100).epsilon(delta=0.0) > 2
    assert attacks.from_scores([1.0] * 100, [1.0] * 100).epsilon(delta=0.0) == 0
