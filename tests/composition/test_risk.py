"""Bayes risk and reconstruction: closed forms, enumeration of all attacks, β against δ; and targets of these kinds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import erfinv, mp, mpf, ncdf
from strategies import mechanisms, relations

import privcalc as pc

priors = st.floats(1e-6, 1 - 1e-6)


def quantile(p: mpf) -> mpf:
    return mp.sqrt(2) * erfinv(2 * p - 1)


@pytest.mark.parametrize("mu", [1e-3, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("prior", [1e-300, 1e-6, 0.3, 0.5, 0.9, 1 - 2**-53])
def test_gaussian_bayes_risk(mu: float, prior: float) -> None:
    """ "There" where the log likelihood ratio exceeds log((1 − π)/π), in fifty digits."""
    with mp.workdps(50):
        m, p = mpf(mu), mpf(prior)
        cut = mp.log((1 - p) / p) / m
        exact = p * ncdf(cut - m / 2) + (1 - p) * ncdf(-cut - m / 2)
        found = pc.GDP(mu).bayes_risk(prior=prior)
        assert found.lower <= exact <= found.upper
        assert found.upper - found.lower <= 1e-9 * float(exact) + 1e-300


@pytest.mark.parametrize("prior", [5e-324, 1e-323])
@pytest.mark.parametrize("mu", [38.0, 40.0])
def test_bayes_risk_below_the_smallest_double(mu: float, prior: float) -> None:
    with mp.workdps(50):
        cut = mp.log((1 - mpf(prior)) / mpf(prior)) / mu
        exact = mpf(prior) * ncdf(cut - mpf(mu) / 2) + (1 - mpf(prior)) * ncdf(-cut - mpf(mu) / 2)
    found = pc.GDP(mu).bayes_risk(prior=prior)
    assert found.lower <= exact <= found.upper


@pytest.mark.parametrize("mu", [1e-3, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("baseline", [0.0, 1e-300, 1e-6, 0.1, 0.5, 0.9, 1.0])
def test_gaussian_reconstruction(mu: float, baseline: float) -> None:
    with mp.workdps(350):
        exact = ncdf(quantile(mpf(baseline)) + mpf(mu)) if 0 < baseline < 1 else mpf(baseline)
        found = pc.GDP(mu).reconstruction(baseline=baseline)
        assert found.lower <= exact <= found.upper
        assert found.upper - found.lower <= 1e-9


laws = st.lists(st.integers(1, 20), min_size=2, max_size=5)


@given(laws, laws, priors)
@settings(max_examples=40 if SLOW else 15)
def test_every_guess_about_membership(p: list[int], q: list[int], prior: float) -> None:
    """All sets of outcomes on which one could say "there", for both orders."""
    size = min(len(p), len(q))
    with_record, without = (np.array(law[:size]) / sum(law[:size]) for law in (p, q))
    found = pc.CustomMechanism.from_probabilities(with_record, without).bayes_risk(prior=prior)

    def error(there: np.ndarray, absent: np.ndarray) -> float:
        sets = [np.array(s) for s in itertools.product((False, True), repeat=size)]
        return min(prior * there[~s].sum() + (1 - prior) * absent[s].sum() for s in sets)

    exact = min(error(with_record, without), error(without, with_record))
    assert found.lower <= exact * (1 + 1e-12)
    assert exact * (1 - 1e-12) <= found.upper


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("level", [0.1, 1.0, 3.0])
def test_reconstruction_is_attained(n: int, level: float) -> None:
    """One of n records, uniform; the output is uniform without it, and the record itself more often with it."""
    right = math.exp(level) / (math.exp(level) + n - 1)
    one = pc.CustomMechanism.from_probabilities([right, *[(1 - right) / (n - 1)] * (n - 1)], [1 / n] * n)
    found = one.reconstruction(baseline=1 / n)
    assert found.upper >= right * (1 - 1e-12)
    # Every guess, of every outcome: the curve of the other order may be the smaller one, which the bound does not use.
    assert found.upper <= max(right, 1 - one.beta(alpha=1 / n).lower) * (1 + 1e-12)
    answers = itertools.product(range(n), repeat=n) if n < 7 else [tuple(range(n))]
    best = max(sum(right if guess[z] == z else 0 for z in range(n)) / n + sum(
        (1 - right) / (n - 1) for z in range(n) for x in range(n) if x != z and guess[x] == z
    ) / n for guess in answers)  # fmt: skip
    assert best == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("n", [2, 5])
def test_reconstruction_through_randomized_response(n: int) -> None:
    """The likeliest value of an attribute with a uniform prior is guessed right that often, and the bound is above."""
    mechanism = pc.RandomizedResponse(1.0, n)
    right = math.e / (math.e + n - 1)
    assert mechanism.reconstruction(baseline=1 / n, relation=pc.REPLACE_ONE).upper >= right * (1 - 1e-12)


@given(mechanisms, relations, priors, st.floats(0, 1))
@example(pc.PoissonSampled(pc.Gaussian(1e-3), 1e-9), pc.ADD_OR_REMOVE_ONE, 0.5, 0.01)
@example(pc.Laplace(1.0), pc.ADD_OR_REMOVE_ONE, 1e-6, 1.0)
@settings(max_examples=8)
def test_both_faces_agree(mechanism: pc.Mechanism, relation: pc.Relation, prior: float, rate: float) -> None:
    """No test, at any α, errs less than the Bayes risk, which comes from δ; reconstruction is at most e^ε·κ + δ."""
    risk = mechanism.bayes_risk(prior=prior, relation=relation)
    least = min(prior, 1 - prior)
    assert 0 <= risk.lower <= risk.upper <= least
    for p in (prior, 1 - prior):
        beta = mechanism.beta(alpha=rate, relation=relation)
        assert risk.lower <= ((1 - p) * rate + p * beta.upper) * (1 + 1e-12) + 1e-300
    found = mechanism.reconstruction(baseline=rate, relation=relation)
    assert rate <= found.lower <= found.upper <= 1
    epsilon = 0.7
    delta = mechanism.delta(epsilon=epsilon, relation=relation)
    assert found.lower <= (math.exp(epsilon) * rate + delta.upper) * (1 + 1e-12)


def test_refused() -> None:
    for prior in (0.0, 1.0, math.nan, -1):
        with pytest.raises(pc.PrivcalcError, match="prior"):
            pc.Gaussian(1.0).bayes_risk(prior=prior)
    for baseline in (-0.1, 1.1, math.nan):
        with pytest.raises(pc.PrivcalcError, match="baseline"):
            pc.Gaussian(1.0).reconstruction(baseline=baseline)


STEPS = {"sample_rate": 0.01, "steps": 1000}


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE], ids=str)
def test_targets(relation: pc.Relation) -> None:
    """The noise meets the target, and a little less does not."""

    def run(z: float) -> pc.Run:
        return pc.PoissonSampled(pc.Gaussian(z), 0.01) * 1000

    z = pc.noise_multiplier(advantage=0.1, **STEPS, relation=relation)
    assert run(z).advantage(relation=relation).upper <= 0.1 < run(z * (1 - 1e-6)).advantage(relation=relation).upper
    found = pc.calibrate(run, advantage=0.1, relation=relation)
    assert found.parameter == pytest.approx(z, rel=1e-7)
    assert found.guarantee.advantage <= 0.1
    z = pc.noise_multiplier(alpha=0.01, beta=0.95, **STEPS, relation=relation)
    low = [run(x).beta(alpha=0.01, relation=relation).lower for x in (z, z * (1 - 1e-6))]
    assert low[1] < 0.95 <= low[0]
    assert pc.calibrate(run, alpha=0.01, beta=0.95, relation=relation).parameter == pytest.approx(z, rel=1e-7)


def test_gaussian_targets() -> None:
    assert pc.noise_multiplier(advantage=0.3829249225480262) == pytest.approx(1.0, rel=1e-9)
    missed = float(ncdf(quantile(mpf(0.95)) - 1))
    assert pc.noise_multiplier(alpha=0.05, beta=missed) == pytest.approx(1.0, rel=1e-8)
    assert pc.noise_multiplier(advantage=0.1, group_size=3) > 2.9 * pc.noise_multiplier(advantage=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "epsilon = None, delta = None"), ({"epsilon": 1.0}, "epsilon = 1.0"), ({"alpha": 0.1}, "alpha = 0.1"),
        ({"beta": 0.1}, "beta = 0.1"), ({"epsilon": 1.0, "delta": 1e-5, "advantage": 0.1}, "advantage = 0.1"),
        ({"advantage": 0.0}, "advantage = 0.0"), ({"advantage": 1.5}, "advantage = 1.5"),
        ({"alpha": 0.1, "beta": 0.9}, "beta = 0.9: must be in"),
        ({"alpha": 0.1, "beta": 0.0}, "beta = 0.0: must be in"),
        ({"alpha": 0.1, "beta": 0.5, "group_size": 2}, "group_size = 2"),
    ],
)  # fmt: skip
def test_targets_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        pc.noise_multiplier(**arguments)  # type: ignore[arg-type]


def test_a_rest_of_xi_is_no_rho() -> None:
    """What is (ξ, ρ)-zCDP with ξ > 0 was taken for ρ-zCDP."""
    with pytest.raises(pc.PrivcalcError, match="not met"):
        pc.calibrate(lambda z: pc.Gaussian(z) + pc.ZCDP(rho=0.01, xi=0.5), rho=0.1)


def test_a_ledger_starts_under_a_plan_that_meets_it(tmp_path) -> None:
    plan = pc.PoissonSampled(pc.Gaussian(3.0), 0.01) * 1000
    path = tmp_path / "ledger.jsonl"
    goal = pc.Guarantee(alpha=0.01, beta=0.98)
    for _ in range(2):  # and is read again
        with pc.Ledger(path, plan=plan, target=goal) as ledger:
            assert ledger.terms.target == goal
            ledger.pause()
    for target in (pc.Guarantee(alpha=0.01, beta=0.9895), pc.Guarantee(advantage=0.01)):
        with pytest.raises(pc.PrivcalcError, match="the plan has"):
            pc.Ledger(None, plan=plan, target=target)
