"""The last iterate: against the linear example in closed form, by quadrature, and attacked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import beta as beta_law

import privcalc as pc

FACTORS = st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 0.5, 1 - 2**-53, 1 - 1e-9]))


@given(FACTORS, st.integers(1, 5000), st.floats(0.01, 100))
@example(1 - 2**-53, 10**9, 3.0)
@example(5e-324, 7, 1.0)
def test_the_linear_example_attains_it(c: float, steps: int, noise: float) -> None:
    """The mean of w_T moves by Σc^k, and its variance is z²·Σc^{2k}: in 60 digits."""
    with mp.workdps(60):
        factor = mpf(c)
        if steps <= 200:
            moved, spread = mp.fsum(factor**k for k in range(steps)), mp.fsum(factor ** (2 * k) for k in range(steps))
        else:
            moved = (1 - factor**steps) / (1 - factor)
            spread = (1 - factor ** (2 * steps)) / (1 - factor**2)
        truth = moved / mp.sqrt(spread) / mpf(noise)
        last = pc.LastIterate(noise, steps, c)
        for relation, shift in ((pc.ZERO_OUT, 1), (pc.REPLACE_ONE, 2)):
            found = last.gdp_mu(relation=relation)
            assert abs(last.mu(shift) / (shift * truth) - 1) <= mpf(2) ** -52
            assert found.lower * (1 - 1e-15) <= shift * truth <= found.upper * (1 + 1e-15)
    assert last.mu() <= math.sqrt(steps) / noise * (1 + 1e-15)  # never more than all iterates


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
@pytest.mark.parametrize("c", [0.0, 0.3, 0.9])
def test_the_best_moves(c: float, steps: int) -> None:
    """The least Σa² with Σc^{T−1−t}(1 − a_t) = 0, by linear algebra; the distance in between is never negative."""
    powers = c ** np.arange(steps - 1.0, -1.0, -1.0)
    moves, *_ = np.linalg.lstsq(powers[None], powers.sum(keepdims=True), rcond=None)
    assert np.sqrt((moves**2).sum()) == pytest.approx(pc.LastIterate(1.0, steps, c).mu(), rel=1e-12)
    apart = 0.0
    for move in moves:
        apart = c * apart + 1 - move
        assert apart >= -1e-12
    assert apart == pytest.approx(0, abs=1e-12)


def _last(step: object, steps: int, noise: float, x: np.ndarray) -> np.ndarray:
    """The density of w_T on a grid, from w_0 = 0."""
    assert callable(step)
    width = x[1] - x[0]
    density = np.exp(-0.5 * ((x - step(np.zeros(1))) / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
    for _ in range(steps - 1):
        kernel = np.exp(-0.5 * ((x[:, None] - step(x)[None, :]) / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
        density = kernel @ density * width
    return np.asarray(density)


@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("shift", [1.0, -1.0])
def test_maps_that_are_not_linear(shift: float, steps: int) -> None:
    """Contractions with kinks and bends, shifted by a sign that depends on the place: δ by quadrature is below."""
    c, noise, x = 0.8, 1.3, np.linspace(-14, 14, 1401)
    bound = pc.LastIterate(noise, steps, c)
    for contract in (lambda w: c * w, lambda w: c * np.abs(w), lambda w: c * np.sin(w), lambda w: -c * w):
        p = _last(contract, steps, noise, x)
        for moved in (lambda w: contract(w) + shift, lambda w: contract(w) + shift * np.sign(w + 0.1)):
            q = _last(moved, steps, noise, x)
            for epsilon in (0.0, 0.5, 1.5):
                most = bound.delta(epsilon=epsilon, relation=pc.ZERO_OUT).upper
                for one, other in ((p, q), (q, p)):
                    delta = np.maximum(one - math.exp(epsilon) * other, 0).sum() * (x[1] - x[0])
                    assert delta <= most + 2e-5  # of the rule at a corner
    linear = _last(lambda w: c * w, steps, noise, x), _last(lambda w: c * w + shift, steps, noise, x)
    sharp = np.maximum(linear[0] - linear[1], 0).sum() * (x[1] - x[0])
    assert sharp == pytest.approx(bound.advantage(relation=pc.ZERO_OUT).upper, abs=2e-5)


def test_attack() -> None:
    """The best threshold on the linear example beats no bound, and comes close; its error rate is one in a million."""
    c, steps, noise, eta, runs = 0.95, 60, 4.0, 0.05, 200_000
    last, generator = pc.LastIterate(noise, steps, c), np.random.default_rng(7)
    ends = []
    for record in (0.0, 1.0):
        weights = np.zeros(runs)
        for _ in range(steps):
            weights = c * weights - eta * (record + noise * generator.standard_normal(runs))
        ends.append(weights)
    threshold = -0.5 * eta * (1 - c**steps) / (1 - c)
    hits = [int((weights < threshold).sum()) for weights in ends]
    least = beta_law.ppf(5e-7, hits[1], runs - hits[1] + 1) - beta_law.ppf(1 - 5e-7, hits[0] + 1, runs - hits[0])
    advantage = last.advantage(relation=pc.ZERO_OUT)
    assert 0.95 * advantage.lower < least <= advantage.upper
    # A bug: noise that is not drawn anew in each step, or one that is not scaled by η, is found.
    assert least > pc.LastIterate(2 * noise, steps, c).advantage(relation=pc.ZERO_OUT).upper


def test_all_iterates_cost_more_and_the_rest_is_said() -> None:
    last = pc.LastIterate(20.0, 1000, 0.99)
    assert last.epsilon(delta=1e-5, relation=pc.ZERO_OUT) < 3 < (pc.Gaussian(20.0) * 1000).epsilon(delta=1e-5)
    assert pc.LastIterate(20.0, 10**6, 0.99).mu() == pytest.approx(math.sqrt(199) / 20)  # however long
    with pytest.raises(pc.PrivcalcError, match=r"relation = add-or-remove-one: .* public cap"):
        last.epsilon(delta=1e-5)
    capped = pc.LastIterate(20.0, 1000, 0.99, capped=True)
    assert capped.epsilon(delta=1e-5).upper == last.epsilon(delta=1e-5, relation=pc.ZERO_OUT).upper
    for name, value in (("contraction", 1.0), ("contraction", -0.1), ("steps", 0), ("noise_multiplier", 0.0)):
        with pytest.raises(pc.PrivcalcError, match=name):
            pc.LastIterate(**{"noise_multiplier": 1.0, "steps": 5, "contraction": 0.5, name: value})
    with pytest.raises(pc.PrivcalcError):
        pc.PoissonSampled(last, 0.1)


def test_the_certificate_says_that_the_rest_was_kept() -> None:
    last = pc.LastIterate(20.0, 1000, 0.99)
    for said, by in ((None, "nobody"), ("last only", "caller")):
        words = pc.Assumptions(iterates=said)
        certificate = pc.certify(last, delta=1e-5, relation=pc.ZERO_OUT, assumptions=words)
        line = next(line for line in certificate.document["assumptions"]["needed"] if line["name"] == "iterates")
        assert (line["value"], line["by"], line["page"]) == ("last only", by, "last_iterate.md")


@pytest.mark.parametrize("c", [0.0, 0.99, 1 - 2**-50])
def test_it_is_proved_again(c: float) -> None:
    last = pc.LastIterate(20.0, 1000, c)
    for relation in (pc.ZERO_OUT, pc.REPLACE_ONE):
        assert pc.certify(last * 2, delta=1e-5, relation=relation).verify()[0].startswith("VERIFIED")
