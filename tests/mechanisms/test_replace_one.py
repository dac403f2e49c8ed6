"""Replace-one under Poisson sampling: two opposite records (proofs/replace_one.md).

Truth: all releases of small finite mechanisms, by enumeration; densities and sums in 50 digits; tests of every level.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.integrate import quad

import privcalc as pc
from privcalc.mechanisms.custom import CustomMechanism
from privcalc.mechanisms.exponential import BoundedRangePair
from privcalc.mechanisms.laplace import LaplacePair, OppositeLaplacePair
from privcalc.pairs.gaussian import GaussianPair, OppositeGaussianPair
from privcalc.pairs.pair import LeakPair, Pair
from privcalc.pairs.replace_one import OppositePair, opposite
from privcalc.pairs.two_point import TwoPointPair

Array = np.ndarray
EPSILONS = (0.0, 0.01, 0.1, 0.3, 0.7, 1.5, 3.0)


def divergence(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def sampled(rate: float, null: Array, one: Array, two: Array) -> tuple[Array, Array]:
    """Both outputs when the one record, or the other, takes part at this rate."""
    return (1 - rate) * null + rate * one, (1 - rate) * null + rate * two


# --- the theorem ---


@pytest.mark.parametrize("seed", range(8))
def test_no_two_records_are_worse_than_opposite_ones(seed: int) -> None:
    """All ways to lay the same likelihood ratios on equally likely outcomes; real ε; attained by mirrored ones."""
    rng = np.random.default_rng(seed)
    rate, size = rng.uniform(0.02, 0.98), 5
    null, law = np.full(size, 1 / size), np.sort(rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 3.0]))) + 1e-12)
    law /= law.sum()
    step = pc.PoissonSampled(CustomMechanism.from_probabilities(law, null), rate)
    for epsilon in EPSILONS:
        claim = step.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
        found = [divergence(*sampled(rate, null, law, np.array(two)), epsilon) for two in itertools.permutations(law)]
        assert max(found) <= claim.upper * (1 + 1e-9) + 1e-15
        assert max(found) == pytest.approx(
            divergence(*sampled(rate, null, law, law[::-1]), epsilon), rel=1e-12, abs=1e-15
        )
        assert claim.upper == pytest.approx(max(found), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("seed", range(10))
def test_every_release_with_a_stated_guarantee(seed: int) -> None:
    """Any three laws: what (a, δ) they keep without sampling, and what is claimed of them with it; two uses as well."""
    rng = np.random.default_rng(seed)
    rate, level = rng.uniform(0.02, 0.98), rng.uniform(0.05, 2.0)
    null, one, two = rng.dirichlet(np.full(4, rng.choice([0.5, 2.0, 20.0])), 3)
    leak = max(divergence(*pair, level) for x in (one, two) for pair in ((x, null), (null, x)))
    step = pc.PoissonSampled(pc.ApproxDP(level, min(leak * (1 + 1e-12), 0.999)), rate)
    p, q = sampled(rate, null, one, two)
    for a, b in ((p, q), (q, p)):
        for epsilon in EPSILONS:
            assert divergence(a, b, epsilon) <= step.delta(epsilon=epsilon, relation=pc.REPLACE_ONE).upper * (1 + 1e-9)
        twice = divergence(np.outer(a, a), np.outer(b, b), 0.3)
        assert twice <= (step * 2).delta(epsilon=0.3, relation=pc.REPLACE_ONE).upper * (1 + 1e-9)


@pytest.mark.parametrize(("level", "leak"), [(1.0, 0.0), (1.0, 1e-3), (0.3, 0.2), (0.3, 0.6), (0.0, 0.1), (3.0, 1e-9)])
@pytest.mark.parametrize("rate", [0.01, 0.5, 0.97])
def test_a_stated_guarantee_is_attained(level: float, leak: float, rate: float) -> None:
    """The levels of (ε, δ) cut where a ratio changes, in 50 digits: three ratios, mirrored, and two leaks."""
    with mp.workdps(50):
        a, d, r = mp.exp(mpf(level)), mpf(leak), mpf(rate)
        end = (1 - d) / (1 + a)
        cuts = sorted({mpf(0), end, 1 - d, d, 1 - end, mpf(1)})

        def ratio(tau: mpf) -> mpf:
            return a if tau < end else 1 / a if tau < 1 - d else mpf(0)

        cells = [(y - x, ratio((x + y) / 2), ratio(1 - (x + y) / 2)) for x, y in itertools.pairwise(cuts)]
        pairs = [(m * (1 - r + r * x), m * (1 - r + r * y)) for m, x, y in cells]
        mechanism = pc.ApproxDP(level, leak) if leak else pc.PureDP(level)
        step = pc.PoissonSampled(mechanism, rate)
        for epsilon in EPSILONS:
            grow = mp.exp(mpf(epsilon))
            truth = r * d + mp.fsum(max(p - grow * q, 0) for p, q in pairs)
            found = step.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
            assert found.lower <= truth <= found.upper
            assert found.upper - found.lower <= 1e-12
        kept = [(p, q) for p, q in pairs if p]
        once = r * d
        twice = (
            1
            - (1 - once) ** 2
            + mp.fsum(max(p * x - mp.exp(mpf(0.4)) * q * y, 0) for (p, q) in kept for (x, y) in kept)
        )
        found = (step * 2).delta(epsilon=0.4, relation=pc.REPLACE_ONE)
        assert found.lower * (1 - 1e-12) <= twice <= found.upper * (1 + 1e-12)
        assert found.upper - found.lower <= 1e-11


def test_guarantees_that_say_nothing_of_an_absent_record_are_refused() -> None:
    for relation in (pc.REPLACE_ONE, pc.ZERO_OUT):
        for stated in (
            pc.GDP(1.0, relation=relation),
            pc.PureDP(1.0, relation=relation),
            pc.ApproxDP(1.0, 0.1, relation=relation),
        ):
            with pytest.raises(pc.PrivcalcError, match="was given for"):
                pc.PoissonSampled(stated, 0.1).epsilon(delta=1e-5, relation=pc.REPLACE_ONE)
    with pytest.raises(pc.PrivcalcError, match="only its Rényi divergences are known"):
        pc.PoissonSampled(pc.ZCDP(0.1), 0.1).epsilon(delta=1e-5, relation=pc.REPLACE_ONE)


# --- Laplace, and the discrete Gaussian ---


def laplace_delta(a: mpf, rate: mpf, epsilon: mpf) -> mpf:
    """∫ (p − e^ε q)_+ piece by piece: noise around 0 and ±a; both densities are exponentials between −a, 0, a."""

    def density(x: mpf, sign: int) -> mpf:
        return ((1 - rate) * mp.exp(-abs(x)) + rate * mp.exp(-abs(x - sign * a))) / 2

    def excess(x: mpf) -> mpf:
        return density(x, 1) - mp.exp(epsilon) * density(x, -1)

    def tail(x: mpf, shift: mpf) -> mpf:
        return mp.exp(shift - x) / 2 if x >= shift else 1 - mp.exp(x - shift) / 2

    if excess(a) <= 0:
        return mpf(0)
    start = mp.findroot(excess, (-a, a), solver="anderson", tol=mp.eps) if excess(-a) < 0 else mpf("-inf")
    return (1 - rate) * (1 - mp.exp(epsilon)) * tail(start, 0) + rate * (
        tail(start, a) - mp.exp(epsilon) * tail(start, -a)
    )


@pytest.mark.parametrize("seed", range(4))
def test_laplace_to_50_digits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with mp.workdps(60):
        for _ in range(10):
            a, rate = 10 ** rng.uniform(-3, 1.3), rng.choice([10 ** rng.uniform(-9, 0), rng.uniform(0, 1)])
            mechanism = pc.PoissonSampled(pc.Laplace(1 / a), rate)
            exact = 1 / mpf(mechanism.mechanism.scale)  # type: ignore[attr-defined]
            top = mp.log((1 - mpf(rate) + mpf(rate) * mp.exp(exact)) / (1 - mpf(rate) + mpf(rate) * mp.exp(-exact)))
            for share in (1e-9, 0.1, 0.5, 0.9, 0.999, 1.001):
                epsilon = float(top * share)
                found = mechanism.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
                truth = laplace_delta(exact, mpf(rate), mpf(epsilon))
                assert found.lower <= truth <= found.upper, (a, rate, share)
            pure = mechanism.epsilon(delta=0.0, relation=pc.REPLACE_ONE)
            assert pure.lower <= top <= pure.upper <= top * (1 + 1e-9)


@pytest.mark.parametrize(("scale", "rate", "epsilon"), [(1.0, 0.1, 0.2), (0.3, 0.02, 1.0), (2.0, 0.6, 0.4)])
def test_laplace_twice(scale: float, rate: float, epsilon: float) -> None:
    """E_P[(1 − e^{ε − L₁ − L₂})_+] by a double integral over the line, the inner one in closed form."""
    a = 1 / scale

    def loss(x: float) -> float:
        up, down = ((1 - rate) * math.exp(-abs(x)) + rate * math.exp(-abs(x - s * a)) for s in (1, -1))
        return math.log(up / down)

    def inner(left: float) -> float:
        if left < 0:
            return 1 - math.exp(left) * (1 - inner(-left))
        return float(laplace_delta(mpf(a), mpf(rate), mpf(left)))

    def integrand(x: float) -> float:
        up = 0.5 * ((1 - rate) * math.exp(-abs(x)) + rate * math.exp(-abs(x - a)))
        return up * inner(epsilon - loss(x))

    middle = quad(integrand, -a, 0, epsabs=1e-9, epsrel=1e-9)[0] + quad(integrand, 0, a, epsabs=1e-9, epsrel=1e-9)[0]
    top = loss(a)
    right, left = (0.5 * ((1 - rate) * math.exp(-a) + rate * moved) for moved in (1.0, math.exp(-2 * a)))
    truth = middle + right * inner(epsilon - top) + left * inner(epsilon + top)
    found = (pc.PoissonSampled(pc.Laplace(scale), rate) * 2).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    assert found.lower - 1e-8 <= truth <= found.upper + 1e-8
    assert found.width <= 1e-4 * found.upper


@pytest.mark.parametrize(("sigma", "shift"), [(0.4, 1), (1.0, 1), (2.5, 3), (30.0, 1)])
@pytest.mark.parametrize("rate", [1e-4, 0.2, 0.95])
def test_discrete_gaussian_by_its_sum(sigma: float, shift: int, rate: float) -> None:
    with mp.workdps(50):
        step = pc.PoissonSampled(pc.DiscreteGaussian(sigma / shift, shift), rate)
        exact = mpf(step.mechanism.noise_multiplier) * shift  # type: ignore[attr-defined]
        far = int(60 * sigma) + shift
        weight = {x: mp.exp(-(mpf(x) ** 2) / (2 * exact**2)) for x in range(-far - shift, far + shift + 1)}
        total, r = mp.fsum(weight.values()), mpf(rate)
        for epsilon in (0.0, 0.05, 0.5, 3.0):
            grow = mp.exp(mpf(epsilon))
            p, q = ([(1 - r) * weight[x] + r * weight[x - s] for x in range(-far, far + 1)] for s in (shift, -shift))
            truth = mp.fsum(max(x - grow * y, 0) for x, y in zip(p, q, strict=True)) / total
            found = step.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
            assert found.lower <= truth <= found.upper
            assert found.upper - found.lower <= 1e-10


# --- pairs that are known by their profile ---

LEAKY = LeakPair(TwoPointPair(0.9, 0.4), 0.05, 0.05, 0.05)


@pytest.mark.parametrize(
    ("base", "exact"),
    [
        (LaplacePair(0.7), lambda q: OppositeLaplacePair(0.7, q)),
        (LaplacePair(9.0), lambda q: OppositeLaplacePair(9.0, q)),
        (GaussianPair(0.4), lambda q: OppositeGaussianPair(0.4, q)),
        (GaussianPair(4.0), lambda q: OppositeGaussianPair(4.0, q)),
        (TwoPointPair(1.3, 1.3), lambda q: opposite(TwoPointPair(1.3, 1.3), q)),
        (TwoPointPair(1.3, 0.2), lambda q: opposite(TwoPointPair(1.3, 0.2), q)),
        (TwoPointPair(0.9, 0.9, 3), lambda q: opposite(TwoPointPair(0.9, 0.9, 3), q)),
        (LEAKY, lambda q: opposite(LEAKY, q)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rate", [1e-6, 0.03, 0.5, 0.99])
def test_the_search_over_levels_agrees_with_closed_forms(base: Pair, exact: object, rate: float) -> None:
    truth = exact(rate)  # type: ignore[operator]
    if isinstance(base, LeakPair):
        found: Pair = OppositePair(base.pair, rate, base.leak)
        truth = truth.pair
    else:
        found = OppositePair(base, rate)
    losses = min(truth.max_loss, 20.0) * np.array([0.0, 1e-6, 0.01, 0.2, 0.6, 0.95, 1.01])
    high, low = found.profile(losses), truth.profile(losses)
    assert np.all(high.delta + high.error >= low.delta - low.error)
    assert np.all(high.delta <= (low.delta + low.error) * (1 + 1e-11) + 1e-15)
    assert found.max_loss >= truth.max_loss * (1 - 1e-12) - 1e-13


@pytest.mark.parametrize("seed", range(6))
def test_bounded_range_against_every_level(seed: int) -> None:
    """The logistic pair's trade-off curve in 40 digits: no level gives more than is claimed, and the best gives it."""
    rng = np.random.default_rng(seed)
    a, rate = float(10 ** rng.uniform(-2, 1)), float(rng.choice([10 ** rng.uniform(-6, 0), rng.uniform(0, 1)]))
    pair = opposite(BoundedRangePair(a), rate)
    losses = pair.max_loss * np.array([0.0, 0.05, 0.4, 0.9])
    delta, _, error = pair.profile(losses)
    with mp.workdps(40):
        shift = mp.exp(-mpf(a))

        def power(s: mpf) -> mpf:
            odds = s / (1 - s) / shift
            return odds / (1 + odds)

        for loss, value, off in zip(losses.tolist(), delta.tolist(), error.tolist(), strict=True):
            grow, q = mp.exp(mpf(loss)), mpf(rate)

            def gain(t: mpf, grow: mpf = grow, q: mpf = q) -> mpf:
                s = 1 / (1 + mp.exp(t))
                return (1 - q) * (1 - grow) * s + q * power(s) - grow * q * (1 - power(1 - s))

            low, high = mpf(-60), mpf(60)
            for _ in range(200):
                one, two = low + (high - low) / 3, high - (high - low) / 3
                low, high = (one, high) if gain(one) < gain(two) else (low, two)
            best = max(gain(low), gain(mpf(0)))
            assert best <= value + off
            assert value <= best * (1 + 1e-11) + 1e-15


def test_the_exponential_mechanism_replaced() -> None:
    """Three candidates with all scores that records may give: never above; the two raised are the lower end."""
    level, rate = 1.0, 0.3
    step = pc.PoissonSampled(pc.ExponentialMechanism(level), rate)
    rng = np.random.default_rng(3)
    for epsilon in (0.0, 0.1, 0.3, 0.5):
        claim, met = step.delta(epsilon=epsilon, relation=pc.REPLACE_ONE), 0.0
        for lead in (-40.0, 1.1, 2.9, 4.6):
            public = np.array([0.0, 0.0, lead])
            moves = [*itertools.product((0.0, 1.0), repeat=3), *rng.uniform(0, 1, (4, 3))]
            laws = [np.exp(level * (public + np.array(move))) for move in moves]
            laws = [law / law.sum() for law in laws]
            null = np.exp(level * public) / np.exp(level * public).sum()
            met = max(met, *(divergence(*sampled(rate, null, x, y), epsilon) for x in laws for y in laws))
        assert claim.lower * (1 - 1e-3) <= met <= claim.upper


# --- laws ---

MECHANISMS = st.sampled_from(
    [
        pc.Gaussian(0.7), pc.Gaussian(3.0), pc.Laplace(0.5), pc.Laplace(4.0), pc.DiscreteGaussian(1.2), pc.PureDP(0.6),
        pc.GDP(1.5), pc.ApproxDP(0.4, 1e-3), pc.ExponentialMechanism(0.8), pc.RandomizedResponse(1.1, 3),
        CustomMechanism.from_probabilities([0.6, 0.3, 0.1], [0.2, 0.5, 0.3]),
        CustomMechanism.from_profile(lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), max_loss=1.0),
    ]
)  # fmt: skip


@settings(max_examples=20 if SLOW else 4, deadline=None)
@given(MECHANISMS, st.floats(1e-4, 0.99), st.sampled_from([1, 2, 7]), st.floats(0.05, 2.0))
@example(pc.Laplace(0.5), 0.99, 1, 0.0)
def test_between_one_record_and_two(mechanism: pc.Mechanism, rate: float, steps: int, epsilon: float) -> None:
    """At least what one record costs, at most what removing one and adding one does; no more than without sampling."""
    run = pc.PoissonSampled(mechanism, rate) * steps
    replaced = run.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    one, two = run.delta(epsilon=epsilon), run.delta(epsilon=epsilon, group_size=2)
    assert replaced.upper >= one.lower * (1 - 1e-9)
    assert replaced.lower <= two.upper * (1 + 1e-9)
    try:
        whole = (mechanism * steps).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    except pc.PrivcalcError:
        return  # stated for one record more or less
    assert replaced.lower <= whole.upper * (1 + 1e-9)


# --- long runs of the Gaussian ---


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"),
    [(1.0, 1e-4, 10**9, 1e-6), (100.0, 1e-4, 10**9, 1e-6), (0.8, 1e-3, 10**5, 1e-10)],
)
def test_a_billion_steps(noise: float, rate: float, steps: int, delta: float) -> None:
    """The lattice left a gap of 2 %. Ball arithmetic proves one end, and refutes what is just below the other."""
    run = pc.PoissonSampled(pc.Gaussian(noise), rate) * steps
    found = run.epsilon(delta=delta, relation=pc.REPLACE_ONE)
    assert found.width <= 1e-8 * found.upper
    assert found.route == "contour"
    assert pc.prove(run, epsilon=found.upper * (1 + 1e-9), delta=delta, relation=pc.REPLACE_ONE).verdict == "proved"
    assert pc.prove(run, epsilon=found.lower * (1 - 1e-9), delta=delta, relation=pc.REPLACE_ONE).verdict == "refuted"


def test_rare_records_and_a_large_saddle() -> None:
    """c is about 26,000: a bound of |w|^−c that does not know the rate left this to the lattice, with seven digits."""
    run = pc.PoissonSampled(pc.Gaussian(9.484538), 1.0194879e-4) * 470
    found = run.epsilon(delta=3.117886e-6, relation=pc.REPLACE_ONE)
    assert found.width <= 1e-9 * found.upper
    if SLOW:
        assert pc.prove(run, epsilon=found.upper * (1 + 1e-9), delta=3.117886e-6, relation=pc.REPLACE_ONE)


def test_where_the_quadrature_is_out_of_reach() -> None:
    """μ = 100: the transform cannot be prepared, and the lattice is planned without it. The records show if drawn."""
    found = (pc.PoissonSampled(pc.Gaussian(0.01), 0.1) * 3).delta(epsilon=0.5, relation=pc.REPLACE_ONE)
    assert found.lower <= 1 - 0.9**3 <= found.upper <= 0.2711


@pytest.mark.parametrize(
    ("mechanism", "top"),
    [(pc.PureDP(1000.0), 1000.0), (pc.ApproxDP(1000.0, 1e-9), 1000.0), (pc.ExponentialMechanism(1000.0), 1000.0),
     (pc.Laplace(1e-3), 1000.0), (pc.DiscreteGaussian(0.02), math.inf), (pc.DiscreteGaussian(0.05), math.inf),
     (pc.PureDP(1e-100), 1e-100), (pc.Laplace(1e9), 1e-9), (pc.ExponentialMechanism(1e-9), 1e-9),
     (pc.GDP(1e-100), math.inf)],
)  # fmt: skip
def test_the_ends_of_all_scales(mechanism: pc.Mechanism, top: float) -> None:
    """At most the rate shows in one use, nearly as much where the loss is large, and no loss beyond both records'."""
    for rate in (1e-9, 0.1, 0.999):
        step = pc.PoissonSampled(mechanism, rate)
        found, most = (
            step.delta(epsilon=0.5, relation=pc.REPLACE_ONE),
            step.epsilon(delta=1e-9, relation=pc.REPLACE_ONE),
        )
        assert 0 <= found.lower <= found.upper <= rate * (1 + 1e-9)
        if top >= 1000 and not isinstance(mechanism, (pc.ExponentialMechanism, pc.GDP)):
            assert found.lower >= rate * (1 - 1e-9)
        assert most.upper <= 2 * top * (1 + 1e-9)
