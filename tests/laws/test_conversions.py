"""Guarantees and Rényi divergences against truth from outside (``proofs/conversions.md``)."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]

import privcalc as pc
from privcalc.composition import tradeoff
from privcalc.mechanisms.laplace import LaplacePair
from privcalc.numerics.log_moment import _cells, log_moment
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.poisson import JointConvexityPair, SampledPair

few = settings(max_examples=100 if SLOW else 8)


def holds(answer: pc.Enclosure, truth: float, rel: float) -> None:
    assert answer.lower <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= answer.upper
    assert answer.upper <= truth * (1 + rel) + 1e-15
    assert answer.lower >= truth * (1 - rel) - 1e-15


def optimal(epsilon: float, failure: float, count: int, at: float) -> mpf:
    """δ of the optimal composition (Kairouz, Oh, Viswanath 2015, Theorem 3.3), by its binomial sum."""
    mp.dps = max(mp.dps, 40)
    p = 1 / (1 + mp.exp(-mpf(epsilon)))
    total = mpf(0)
    for k in range(count + 1):
        loss = mpf(epsilon) * (2 * k - count)
        if loss > at:
            mass = mp.binomial(count, k) * p**count * mp.exp(-mpf(epsilon) * (count - k))
            total -= mass * mp.expm1(at - loss)
    log_kept = count * mp.log1p(-mpf(failure))
    return -mp.expm1(log_kept) + mp.exp(log_kept) * total


@pytest.mark.parametrize(("epsilon", "failure"), [(0.1, 1e-8), (1.0, 1e-3), (0.5, 0.0)])
@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_approx_dp_is_the_optimal_composition(epsilon: float, failure: float, count: int) -> None:
    run = pc.ApproxDP(epsilon=epsilon, delta=failure) * count
    for at in (0.0, 0.3 * epsilon, epsilon, 0.4 * epsilon * count):
        holds(run.delta(epsilon=at), float(optimal(epsilon, failure, count, at)), 1e-6)


def test_leaks_are_rounded_outwards() -> None:
    """Against 60 digits: the enclosure holds to the last bit, also where nothing else is rounded."""
    rng = np.random.default_rng(3)
    with mp.workdps(60):
        for _ in range(150):
            epsilon, count = 10 ** rng.uniform(-6, 2), int(rng.choice([1, 1, 2, 3, 7, 30]))
            failure = float(rng.choice([1e-300, 1e-100, 1e-12, 1e-3, 0.5, rng.uniform()]))
            at = epsilon * count * rng.uniform(0, 1.02)
            answer = (pc.ApproxDP(epsilon, failure) * count).delta(epsilon=at)
            truth = optimal(epsilon, failure, count, mpf(at))
            assert mpf(answer.lower) <= truth <= mpf(answer.upper) * (1 + mpf(10) ** -55)
            assert answer.width <= 1e-6


def test_a_sampled_leak_is_rounded_outwards() -> None:
    """Beyond the largest loss of the rest δ is the leak alone: rate times failure, exactly."""
    for rate, failure in itertools.product((0.1, 0.3, 1 / 3), (1e-9, 0.3, 0.7, 5e-324)):
        answer = pc.PoissonSampled(pc.ApproxDP(0.5, failure), rate).delta(epsilon=2.0)
        assert Fraction(answer.lower) <= Fraction(rate) * Fraction(failure) <= Fraction(answer.upper)


def test_epsilon_at_the_leak_itself() -> None:
    found = pc.ApproxDP(0.5, 1e-9).epsilon(delta=1e-9)
    assert found.lower <= 0.5 <= found.upper <= 0.5 * (1 + 1e-14)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_sampled_approx_dp_by_enumeration(rate: float, count: int) -> None:
    level, failure = 1.0, 0.02
    p = 1 / (1 + math.exp(-level))
    with_it = np.array([failure, 0, (1 - failure) * p, (1 - failure) * (1 - p)])
    without = np.array([0, failure, (1 - failure) * (1 - p), (1 - failure) * p])
    mixture = (1 - rate) * without + rate * with_it
    laws = [np.array([math.prod(t) for t in itertools.product(law, repeat=count)]) for law in (mixture, without)]
    run = pc.PoissonSampled(pc.ApproxDP(level, failure), rate) * count
    for at in (0.0, 0.02, 0.1, 0.5, 1.0):
        truth = max(float(np.maximum(a - math.exp(at) * b, 0).sum()) for a, b in (laws, laws[::-1]))
        found = run.delta(epsilon=at)
        assert found.lower <= truth * (1 + 1e-12) <= found.upper * (1 + 2e-12)
        assert found.width < failure * count


def test_zcdp_at_half() -> None:
    mp.dps = 30

    def epsilon(c: mpf) -> mpf:
        return (c + 1) / 2 + (mp.log(1e5) + c * mp.log(c) - (1 + c) * mp.log(1 + c)) / c

    best = mp.findroot(lambda c: mp.diff(epsilon, c), 4)
    found = pc.ZCDP(rho=0.5).epsilon(delta=1e-5)
    assert f"{found.upper:.9f}" == "4.728386985" == mp.nstr(epsilon(best), 10)
    assert epsilon(best) <= found.upper <= epsilon(best) * (1 + 1e-9)


def converted(rho: float, value: float, divisor: bool) -> mpf:
    """Least (A(c) − log δ)/c, or A(c) = ρc(c + 1) − cε − log(1 + c) − c·log(1 + 1/c), by golden sections over log c."""

    def function(x: mpf) -> mpf:
        c = mp.exp(x)
        a = mpf(rho) * c * (c + 1) - mp.log1p(c) - c * mp.log1p(1 / c)
        return (a - mp.log(value)) / c if divisor else a - c * mpf(value)

    at = min((mpf(i) for i in range(-30, 60)), key=function)
    low, high, golden = at - 1, at + 1, (mp.sqrt(5) - 1) / 2
    for _ in range(80):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if function(a) < function(b) else (a, high)
    return function((low + high) / 2)


def test_zcdp_is_converted_to_the_last_digits() -> None:
    """Never below 40 digits' truth, where terms cancel neither; and typically within 1e-12 of it."""
    rng = np.random.default_rng(4)
    wide = []
    with mp.workdps(40):
        for _ in range(20):
            rho, delta = 10 ** rng.uniform(-12, 3), 10 ** rng.uniform(-30, -0.05)
            found, truth = pc.ZCDP(rho).epsilon(delta=delta).upper, max(converted(rho, delta, True), 0)
            assert mpf(found) >= truth
            wide.append(float((found - truth) / truth) if truth else found)
            epsilon = float(truth)
            log_truth = min(converted(rho, epsilon, False), mpf(0))
            assert mpf(pc.ZCDP(rho).delta(epsilon=epsilon).upper) >= mp.exp(log_truth)
        for rho, share in itertools.product((1e-8, 1e-4, 0.1), (1e-6, 1e-9, 1e-12)):
            # just below the δ that ε = 0 has
            delta = float(mp.exp(converted(rho, 0.0, False)) * (1 - share))
            assert mpf(pc.ZCDP(rho).epsilon(delta=delta).upper) >= converted(rho, delta, True)
    assert np.median(wide) <= 1e-12
    assert max(wide) <= 1e-9


@pytest.mark.parametrize("a", [1e-100, 1e-5, 0.01, 0.4999, 0.5, 1.0, 3.0, 40.0, 800.0])
def test_zcdp_of_laplace_is_its_kullback_leibler_divergence(a: float) -> None:
    """It bounds D_α/α at every order, and is met as α falls to 1."""
    scale = 1 / a
    rho = pc.Laplace(scale).zcdp()[0]
    with mp.workdps(400):
        a = 1 / mpf(scale)
        limit = a - 1 + mp.exp(-a)
        assert limit <= mpf(rho) <= limit * (1 + mpf(10) ** -14)
        for c in (mpf(10) ** (mpf(i) / 4) for i in range(-40, 17)):
            s = 2 * c + 1
            k = c * a + mp.log((c + 1 + c * mp.exp(-s * a)) / s)
            assert k <= rho * c * (c + 1)
        assert rho <= a * mp.tanh(a / 2) * (1 + mpf(10) ** -14)


def test_delta_zero() -> None:
    assert math.isclose((pc.PureDP(0.1) * 30).epsilon(delta=0.0), 3.0)
    assert pc.ApproxDP(0.1, 1e-9).epsilon(delta=0.0).lower == math.inf
    assert math.isclose(pc.ApproxDP(0.1, 0.0).epsilon(delta=0.0), 0.1)
    for one in (pc.GDP(1.0), pc.ZCDP(0.5), pc.RDP([2.0], [1.0])):
        assert one.epsilon(delta=0.0).upper == math.inf
    assert pc.RDP([2.0, math.inf], [1.0, 3.0]).epsilon(delta=0.0).upper <= 3 * (1 + 1e-12)


@pytest.mark.parametrize(
    "one", [pc.PureDP(1.0), pc.ApproxDP(1.0, 1e-6), pc.GDP(1.0), pc.ZCDP(1.0), pc.RDP([2.0], [1.0])]
)
def test_other_relations_are_refused(one: pc.Mechanism) -> None:
    for relation in (pc.REPLACE_ONE, pc.ZERO_OUT):
        with pytest.raises(pc.PrivcalcError, match="was given for"):
            one.delta(epsilon=1.0, relation=relation)


def test_mu_of_approx_dp() -> None:
    one = pc.ApproxDP(1.0, 1e-3)
    assert one.gdp_mu(delta=9e-4).upper == math.inf
    for level in (1e-3, 2e-3, 0.1):
        assert one.gdp_mu(delta=level).upper < math.inf


def test_a_profile_of_one_needs_every_mu() -> None:
    """A bound of a tuned run with others may be 1 at ε = 0: no μ explains that, and nothing is divided by 0."""
    assert tradeoff._cell(0.0, (1 - 1e-9, 1 + 1e-15), 0.13, (1 - 1e-9, 0.6), math.inf, 12.3)[0] == math.inf
    assert tradeoff._cell(0.0, (1 - 1e-9, 1 + 1e-15), 0.13, (1 - 1e-9, 0.6), 40.0, 12.3)[0] == 40.0


# --- log-moments ----------------------------------------------------------------------------------


def moment(sampled: bool, a: float, q: float, add: bool, c: float) -> mpf:
    """K(c) of sampled Laplace from its densities: piecewise smooth, breaks at 0 and a."""
    mp.dps = 30

    def f(x: mpf) -> mpf:
        r = mp.exp(abs(x) - abs(x - a))
        m = (1 - q) + q * r
        return mp.exp(-abs(x)) / 2 * (m ** (1 + c) if not add else m ** (-c))

    lo, hi = ((1 - q) + q * mp.exp(-mpf(a))), ((1 - q) + q * mp.exp(mpf(a)))
    power = -c if add else 1 + c
    outside = (lo**power + hi**power * mp.exp(-mpf(a))) / 2
    return mp.log(outside + mp.quad(f, mp.linspace(0, a, 9)))


@pytest.mark.parametrize("c", [1e-3, 0.1, 1.0, 7.0, 100.0])
@pytest.mark.parametrize(("a", "q", "add"), [(1.0, 0.1, False), (1.0, 0.1, True), (0.2, 0.5, False), (5.0, 0.01, True)])
def test_log_moment_of_sampled_laplace(a: float, q: float, add: bool, c: float) -> None:
    truth = moment(True, mpf(a), mpf(q), add, mpf(c))
    pair = SampledPair(LaplacePair(a), q, add)
    found = float(log_moment(pair, np.array([c]))[0])
    assert truth <= found <= truth * mpf(1 + 1e-4), (found, truth)


@pytest.mark.parametrize("c", [1e-3, 0.1, 1.0, 20.0, 100.0])
def test_log_moment_of_joint_convexity(c: float) -> None:
    """It is finite, above that of a pair that occurs (add-or-remove), and below that of the unsampled pair."""
    q, mu = 0.1, 0.7
    pair = JointConvexityPair(GaussianPair(mu), GaussianPair(2 * mu), q)
    found = float(pair.log_moment(np.array([c]))[0])
    if c <= 1:
        assert float(log_moment(pair, np.array([c]))[0]) == found
    below = SampledPair(GaussianPair(mu), q, False).transform
    assert below is not None
    value, error = below.prepare(c, 1, -800.0, cut=False).log_real(np.array([c]))
    assert float(value[0] - error[0]) <= found <= 0.5 * (2 * mu) ** 2 * c * (c + 1) * (1 + 1e-3)


@pytest.mark.parametrize("c", [1e-6, 1e-3, 0.5, 100.0, 1e9])
def test_cells_enclose_the_integral(c: float) -> None:
    mp.dps = 40
    for d, (w0, w1) in itertools.product((1e-12, 1e-6, 9e-4, 1.1e-3, 0.01, 1.0, 50.0), ((1.0, 1e-9), (1e-9, 1.0))):

        def part(p: mpf, d: float = d) -> mpf:
            return mp.expm1(p * d) / p

        up = (part(mpf(c) + 1) - part(mpf(c))) / mp.expm1(d)
        truth = mp.log(w0 * (part(mpf(c)) - up) + w1 * up)
        found = _cells(np.zeros(1), np.array([d]), np.log([w0]), np.log([w1]), c)
        assert truth <= found <= truth + 2e-11 * (1 + abs(truth))


@pytest.mark.parametrize(
    ("step", "relation"),
    [
        (pc.PoissonSampled(pc.Laplace(1.0), 0.1), pc.ADD_OR_REMOVE_ONE),
        (pc.PoissonSampled(pc.ExponentialMechanism(1.0), 0.1), pc.ADD_OR_REMOVE_ONE),
        (pc.PoissonSampled(pc.Laplace(0.01), 0.1), pc.REPLACE_ONE),
        (pc.FixedSizeSampled(pc.Laplace(1.0), 10, 100), pc.ZERO_OUT),
        (pc.PoissonSampled(pc.Gaussian(1.0), 0.01), pc.REPLACE_ONE),
    ],
)
def test_rdp_does_not_fall_at_huge_orders(step: pc.Mechanism, relation: pc.Relation) -> None:
    orders = [10.0, 1e3, 1e40, 1e99, 1e120, 1e153, 1e160, 1e200, 1e307]
    with np.errstate(all="ignore"):
        found = step.rdp(orders, relation=relation)
        budget = pc.Filter(orders=[1e200], epsilons=[1e-3], relation=relation)
        assert budget.would_exceed(step * 10**4)
    assert np.all(found[1:] >= found[:-1] * (1 - 1e-9))


@pytest.mark.parametrize("order", [2, 3, 8, 32])
def test_rdp_closed_forms(order: int) -> None:
    mp.dps = 40
    n = mpf(order)
    assert math.isclose(pc.Gaussian(2.0).rdp(float(order)), order / 8, rel_tol=1e-12)
    for t in (mpf(1), mpf("0.25")):  # Mironov 2017, Table II
        a = 1 / t
        truth = mp.log(n / (2 * n - 1) * mp.exp((n - 1) * a) + (n - 1) / (2 * n - 1) * mp.exp(-n * a)) / (n - 1)
        found = float(pc.Laplace(float(t)).rdp(float(order)))
        assert truth * mpf(1 - 1e-13) <= found <= truth * mpf(1 + 1e-11)
    q, z = mpf("0.01"), mpf(1)  # Mironov, Talwar, Zhang 2019, Section 3.3
    terms = [
        mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp((k * k - k) / (2 * z * z))
        for k in range(order + 1)
    ]
    truth = mp.log(mp.fsum(terms)) / (n - 1)
    found = float(pc.PoissonSampled(pc.Gaussian(1.0), 0.01).rdp(float(order)))
    assert truth * mpf(1 - 1e-13) <= found <= truth * mpf(1 + 1e-8)


# --- laws -----------------------------------------------------------------------------------------

levels = st.floats(0.01, 3.0)
stated = st.one_of(
    st.builds(pc.PureDP, levels),
    st.builds(pc.ApproxDP, levels, st.sampled_from([0.0, 1e-9, 1e-3])),
    st.builds(pc.GDP, levels),
    st.builds(pc.ZCDP, levels, st.sampled_from([0.0, 0.1])),
    levels.map(lambda e: pc.RDP([2.0, 4.0, math.inf], [e, 1.5 * e, 2 * e])),
)


@given(stated, stated, st.integers(1, 30), st.sampled_from([1e-9, 1e-5, 0.01]))
@few
def test_laws_of_stated_guarantees(a: pc.Mechanism, b: pc.Mechanism, count: int, delta: float) -> None:
    one, two, more = (run.epsilon(delta=delta) for run in (a * count, a * (count + 1), a * count + b))
    looser = (a * count).epsilon(delta=min(2 * delta, 0.5))
    for found in (one, two, more, looser):
        assert 0 <= found.lower <= found.upper
    assert looser.lower <= one.upper
    assert one.lower <= two.upper
    assert one.lower <= more.upper
    spent = (a * count).delta(epsilon=1.0)
    assert 0 <= spent.lower <= spent.upper <= 1
    assert spent.lower <= (a * (count + 1)).delta(epsilon=1.0).upper


@pytest.mark.parametrize(
    "run", [pc.ZCDP(rho=0.1) * 2, pc.RDP([2.0, 50.0], [1.0, 30.0]) * 1, pc.Laplace(0.01) * 3 + pc.ZCDP(0.01)]
)
def test_a_bound_that_underflows_is_not_zero(run: pc.Run) -> None:
    """δ is positive at every finite ε where no largest loss is known, however small the bound."""
    assert run.delta(epsilon=1e5).upper > 0


def test_levels_whose_squares_are_no_numbers() -> None:
    """The divergence of huge order is ε: that of 1e-200 was said to be 0, as ε² is; (1e200)² ended in a traceback."""
    for make in (lambda e: pc.ApproxDP(e, 0.0), lambda e: pc.CustomMechanism.from_profile(np.zeros_like, max_loss=e)):
        for level in (1e-200, 1e-320, 1e200, 1.7e308):
            with pytest.raises(pc.PrivcalcError, match="1e-100 to 1e100"):
                make(level)
        with np.errstate(over="ignore"):
            assert make(1e-100).rdp(1e300) >= 1e-100
        assert make(1e100).zcdp()[0] >= 1e100


@pytest.mark.parametrize(
    "run", [pc.Gaussian(1e100) * 3, pc.ZCDP(1e-100) + pc.Gaussian(1e100), pc.RDP([2.0, 1e300], [1e-300, 1.0])]
)
def test_losses_beyond_all_numbers(run: pc.Run) -> None:
    """ε/μ overflows, and δ was not a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = run.delta(epsilon=1e300)
    assert found.lower == 0
    assert 0 < found.upper < 1e-300


def test_infinite_divergences_say_nothing() -> None:
    one = pc.RDP([2.0, 4.0, math.inf], [1.0, math.inf, math.inf])
    assert np.array_equal(one.rdp([1.5, 2.0, 3.0, 4.0]), pc.RDP([2.0], [1.0]).rdp([1.5, 2.0, 3.0, 4.0]))
    assert not np.isnan(one.rdp([1.5, 2.0, 3.0, 4.0, 5.0, math.inf])).any()
    assert one.epsilon(delta=1e-5).upper == pc.RDP([2.0], [1.0]).epsilon(delta=1e-5).upper
    nothing = pc.RDP([2.0], [math.inf])
    assert (nothing.epsilon(delta=1e-5).upper, nothing.delta(epsilon=1.0).upper) == (math.inf, 1.0)


def test_an_order_without_a_predecessor() -> None:
    """Beyond 2⁵³, α − 1 is no float: nothing is known between it and the next one below."""
    order = 2.0**54
    knot = pc.RDP([order], [1.0]).pairs(pc.ADD_OR_REMOVE_ONE).forward.knots[0]
    assert Fraction(knot) <= Fraction(order) - 1


LAWS = [
    pc.Gaussian(1.0) * 2,
    pc.Laplace(0.7).run,
    pc.PoissonSampled(pc.Gaussian(0.8), 0.2) * 3,
    pc.ApproxDP(0.5, 1e-3) * 2,
]


@pytest.mark.parametrize(("run", "direction"), quick(itertools.product(LAWS, (0, 1)), 0, 1, 2, 3, 4, 6, 7))
def test_optimistic_distributions(run, direction):
    """Rounded down, losses bound δ from below, also when added up; and come close where the spacing is small."""
    low, high = (
        pc.discretize(run, 0.04, tail=1e-4, direction=direction, pessimistic=pessimistic)
        for pessimistic in (False, True)
    )
    for epsilon in (-0.5, 0.0, 0.3, 1.0, 2.0):
        assert low.delta(epsilon) <= high.delta(epsilon)
        if epsilon >= 0:
            assert low.delta(epsilon) <= run.delta(epsilon=epsilon).upper
    assert low.delta(0.0) >= 0.8 * high.delta(0.0) - 1e-2
    twice = np.convolve(low.probabilities, low.probabilities)
    losses = 2 * low.losses[0] + 0.04 * np.arange(twice.size)
    above = losses > 1.0
    both = float(twice[above] @ -np.expm1(1.0 - losses[above]))
    assert both <= (run * 2).delta(epsilon=1.0).upper
    assert low.probabilities.min() >= 0
    assert low.probabilities.sum() <= 1 + 1e-12


def test_mu_at_a_leak_that_is_rounded_up():
    """δ₀ a little above the true leak leaves some for the rest: nothing is claimed from below (found by fuzzing)."""
    run = pc.PoissonSampled(pc.ApproxDP(0, 1e-5), 0.3) + pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100
    for delta in (0.3 * 1e-5, math.nextafter(0.3 * 1e-5, 1)):
        assert run.gdp_mu(delta=delta).lower <= 0.558 or run.gdp_mu(delta=delta).upper == math.inf
    assert pc.ApproxDP(0, 1e-17).beta(alpha=0.0).lower < 1


def test_an_answer_is_stated_as_no_guarantee_with_a_smaller_delta():
    """ε at δ = 1e-6 stated as pure: of a Gaussian none holds, and 12 of them would be certified at δ = 0."""
    noise = pc.Gaussian(20.0)
    answer, mu, most = (
        noise.epsilon(delta=1e-6),
        noise.gdp_mu(delta=1e-6),
        r"is an answer that holds at δ = 1e-06, and not at ",
    )
    for stated, at in (
        (lambda: pc.PureDP(answer), "0"),
        (lambda: pc.ApproxDP(answer, 1e-7), "1e-07"),
        (lambda: pc.GDP(mu), "0"),
        (lambda: pc.Guarantee(epsilon=answer, delta=1e-9), "1e-09"),
        (lambda: pc.Guarantee(mu=mu), "0"),
    ):
        with pytest.raises(pc.PrivcalcError, match=most + at):
            stated()
    with pytest.raises(pc.PrivcalcError, match="of which none is a ρ"):
        pc.ZCDP(answer)
    with pytest.raises(pc.PrivcalcError, match=most + "0"):  # nor by way of a certificate
        pc.PureDP(pc.certify(noise, delta=1e-6).guarantee.epsilon)
    there = noise.delta(epsilon=0.1, relation=pc.REPLACE_ONE)
    for elsewhere in (lambda: pc.ApproxDP(0.1, there), lambda: pc.Guarantee(epsilon=0.1, delta=there)):
        with pytest.raises(
            pc.PrivcalcError, match=r"delta = .*is an answer for replace-one, and not for add-or-remove-one"
        ):
            elsewhere()
    assert pc.PureDP(float(answer)).level == answer.upper
    assert pc.PureDP(pc.Laplace(1.0).epsilon(delta=0.0)).level == pytest.approx(1.0, rel=1e-14)
    assert pc.ApproxDP(answer, 1e-6).delta(epsilon=0.2) >= 0
    assert pc.ApproxDP(answer, 1e-5).failure == 1e-5
    assert pc.GDP(pc.Gaussian(2.0).gdp_mu()).mu >= 0.5
