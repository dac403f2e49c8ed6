"""Filters: the sums are exact, never exceed the budget, and the guarantee is the budget's."""

import contextlib
import copy
import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import privcalc as pc
from privcalc.budget.pool import Pool
from privcalc.ledger.rules import Filter, Plan
from privcalc.numerics.special import gdp_profile
from privcalc.pairs.gaussian import GaussianPair
from privcalc.questions import Questions

NOISE = st.sampled_from([0.7, 1.0, 2.0, 3.0, 5.0, 20.0, 1e3])
BUDGETS = st.sampled_from(
    [{"mu": 1.0}, {"mu": 0.3}, {"rho": 0.5}, {"rho": 0.1}, {"orders": [2.0, 8.0, 32.0], "epsilons": [1.0, 3.0, 20.0]}]
)


@pytest.mark.parametrize(
    ("budget", "part", "fits"),
    [
        (Filter(mu=1.0), pc.GDP(mu=0.5), 4),
        (Filter(mu=1.0), pc.Gaussian(noise_multiplier=20.0), 400),
        (Filter(mu=1.0, relation=pc.REPLACE_ONE), pc.Gaussian(noise_multiplier=20.0), 100),
        (Filter(rho=1.0), pc.Gaussian(noise_multiplier=10.0), 200),
        (Filter(rho=1.0), pc.ZCDP(rho=0.125), 8),
        (Filter(epsilon=1.0), pc.PureDP(epsilon=0.125), 8),
        (Filter(epsilon=1.0), pc.Laplace(scale=49.0), 49),
        (Filter(orders=[2, math.inf], epsilons=[1, 2]), pc.RDP(orders=[2, 3, math.inf], epsilons=[0.25, 0.3, 0.25]), 4),
    ],
)
def test_a_budget_can_be_met_exactly(budget, part, fits):
    assert budget.would_exceed(part * (fits + 1))
    for _ in range(fits):
        budget.charge(part)
    assert not np.any(budget.remaining) or isinstance(part, pc.RDP)
    spent = budget.spent
    with pytest.raises(pc.BudgetExceeded, match=r"would exceed the cap .*, of which"):
        budget.charge(part)
    assert np.all(budget.spent == spent)  # nothing was charged


@settings(max_examples=60 if SLOW else 20, deadline=None)
@given(budget=BUDGETS, noises=st.lists(NOISE, max_size=12))
def test_never_exceeded_and_would_exceed_agrees(budget, noises):
    ledger = Filter(**budget)
    charged = []
    for noise in noises:
        part = pc.Gaussian(noise_multiplier=noise)
        expected = ledger.would_exceed(part)
        try:
            ledger.charge(part)
            refused = False
            charged.append(noise)
        except pc.PrivcalcError:
            refused = True
        assert refused == expected
        square = sum((1 / Fraction(z) ** 2 for z in charged), Fraction(0))
        if "mu" in budget:
            assert square <= Fraction(budget["mu"]) ** 2
            assert Fraction(ledger.spent) ** 2 >= square
        elif "rho" in budget:
            assert square / 2 <= Fraction(budget["rho"])
        else:
            assert all(
                square * Fraction(a) / 2 <= Fraction(e)
                for a, e in zip(budget["orders"], budget["epsilons"], strict=True)
            )
    run = pc.Run.of(pc.Gaussian(noise_multiplier=z) for z in charged)
    assert run.epsilon(delta=1e-5).lower <= ledger.mechanism.epsilon(delta=1e-5).upper * (1 + 1e-12)


@settings(max_examples=30 if SLOW else 12, deadline=None)
@given(budget=BUDGETS, noises=st.lists(NOISE, min_size=1, max_size=6), data=st.data())
def test_the_order_does_not_matter(budget, noises, data):
    results = []
    for order in (noises, data.draw(st.permutations(noises))):
        ledger = Filter(**budget)
        fits = True
        for noise in order:
            fits = fits and not ledger.would_exceed(pc.Gaussian(noise_multiplier=noise))
            if fits:
                ledger.charge(pc.Gaussian(noise_multiplier=noise))
        results.append((fits, np.array(ledger.spent).tolist() if fits else None))
    whole = Filter(**budget).would_exceed(pc.Run.of(pc.Gaussian(noise_multiplier=z) for z in noises))
    assert results[0] == results[1]
    assert results[0][0] == (not whole)


def test_many_distinct_charges_stay_fast_and_safe():
    ledger = Filter(mu=1.0)
    noises = [40 + k / 7 for k in range(1000)]
    for noise in noises:
        ledger.charge(pc.Gaussian(noise_multiplier=noise))
    exact = math.sqrt(math.fsum(z**-2 for z in noises))
    assert exact * (1 - 1e-14) <= ledger.spent <= exact * (1 + 1e-14)


def test_sampled_steps():
    step = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01)
    with pytest.raises(pc.PrivcalcError, match=r"PoissonSampled.*must be exactly Gaussian"):
        Filter(mu=100.0).would_exceed(step)
    assert not Filter(mu=1.0).would_exceed(pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.01), rate=1.0))
    orders = [2.0, 8.0]
    ledger = Filter(orders=orders, epsilons=(step * 1000).rdp(orders) * (1 + 1e-12))
    for _ in range(10):
        ledger.charge(step * 100)
    assert ledger.would_exceed(step)
    assert not Filter(rho=0.6).would_exceed(step)
    assert Filter(epsilon=1e6).would_exceed(step)


def test_every_order_is_kept():
    ledger = Filter(orders=[2.0, 32.0], epsilons=[10.0, 1.0])
    assert not ledger.would_exceed(pc.Gaussian(noise_multiplier=4.0))
    assert ledger.would_exceed(pc.Gaussian(noise_multiplier=3.99))
    assert Filter(orders=[2.0, math.inf], epsilons=[10.0, 100.0]).would_exceed(pc.Gaussian(noise_multiplier=1e3))


@pytest.mark.parametrize(
    "budget",
    [
        {},
        {"mu": 1.0, "rho": 1.0},
        {"orders": [2.0]},
        {"epsilons": [2.0]},
        {"mu": 1.0, "epsilons": [1.0]},
        {"mu": 0.0},
        {"rho": math.nan},
        {"epsilon": -1.0},
        {"orders": [2.0], "epsilons": [math.inf]},
        {"mu": 1.0, "relation": "add"},
    ],
)
def test_bad_budgets(budget):
    with pytest.raises(pc.PrivcalcError):
        Filter(**budget)


def test_bad_charges():
    for part, budget in (
        (pc.ZCDP(rho=0.1, xi=0.1), Filter(rho=1.0)),
        (pc.GDP(mu=0.1, relation=pc.REPLACE_ONE), Filter(mu=1.0)),
        (pc.Laplace(scale=10.0), Filter(mu=1.0)),
        (0.5, Filter(mu=1.0)),
    ):
        with pytest.raises(pc.PrivcalcError):
            budget.charge(part)
        assert budget.spent == 0


@settings(max_examples=60 if SLOW else 20, deadline=None)
@given(budget=BUDGETS, plays=st.lists(st.tuples(st.booleans(), NOISE, st.integers(1, 3)), max_size=20))
def test_refunds_leave_what_was_charged_and_not_taken_back(budget, plays):
    ledger, kept = Filter(**budget), {}
    for charge, noise, count in plays:
        try:
            (ledger.charge if charge else ledger.refund)(pc.Gaussian(noise) * count)
        except pc.PrivcalcError:
            assert charge or kept.get(noise, 0) < count
        else:
            kept[noise] = kept.get(noise, 0) + (count if charge else -count)
            assert charge or kept[noise] >= 0
        fresh = Filter(**budget)
        fresh.charge(pc.Run.of(pc.Gaussian(noise) * count for noise, count in kept.items()))
        assert np.array_equal(ledger.spent, fresh.spent)


def test_refunds_of_rounded_charges_take_back_what_was_added():
    ledger, noises = Filter(mu=1.0), [40 + k / 7 for k in range(300)]
    before = []
    for noise in noises:
        before.append(list(ledger._spent))
        ledger.charge(pc.Gaussian(noise) * 3)
    assert any(3 / Fraction(z) ** 2 != new[0] - old[0] for z, old, new in zip(noises, before, before[1:], strict=False))
    for noise, sums in zip(noises[::-1], before[::-1], strict=True):
        ledger.refund(pc.Gaussian(noise))
        ledger.refund(pc.Gaussian(noise) * 2)
        assert ledger._spent == sums


def test_threads_lose_no_charge():
    ledger, step = Filter(mu=1e3), pc.Gaussian(20.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: (ledger.charge(step * 2), ledger.refund(step)), range(2000)))
    finally:
        sys.setswitchinterval(interval)
    assert ledger.spent == math.sqrt(5)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_costs_that_are_not_finite_are_refused(bad, monkeypatch):
    step = pc.PoissonSampled(pc.Gaussian(1.0), 0.1)
    monkeypatch.setattr(Questions, "rdp", lambda self, orders, relation: np.full(np.shape(orders), bad))
    monkeypatch.setattr(Questions, "zcdp", lambda self, relation: (bad, 0.0))
    monkeypatch.setattr(GaussianPair, "gdp", bad)
    whole = pc.PoissonSampled(pc.Gaussian(1.0), 1.0)
    for ledger, part in (
        (Filter(mu=1e100), whole),
        (Filter(rho=1e100), step),
        (Filter(epsilon=1e100), step),
        (Filter(orders=[2.0, 3.0], epsilons=[1e300, 1e300]), step),
    ):
        assert ledger.would_exceed(part)
        with pytest.raises(pc.BudgetExceeded, match="would exceed"):
            ledger.charge(part)
        with pytest.raises(pc.PrivcalcError, match="to take back"):
            ledger.refund(part)
    monkeypatch.setattr(Questions, "zcdp", lambda self, relation: (0.1, bad))
    with pytest.raises(pc.PrivcalcError, match="xi = 0"):
        Filter(rho=1e100).would_exceed(step)


def test_an_infinite_divergence_is_never_charged():
    unbounded = [
        pc.ApproxDP(0.1, 1e-6),
        pc.CustomMechanism.from_probabilities([0.5, 0.5 - 1e-6, 1e-6], [0.4, 0.6, 0.0]),
        pc.RDP([2.0], [math.inf]),
    ]
    for part in unbounded:
        for budget in (
            {"mu": 1e100},
            {"rho": 1e100},
            {"epsilon": 1e100},
            {"orders": [2.0, 3.0], "epsilons": [1e300, 1e300]},
        ):
            with pytest.raises(pc.PrivcalcError):
                Filter(**budget).charge(part)
    assert Filter(orders=[2.0, math.inf], epsilons=[1e300, 1e300]).would_exceed(pc.Gaussian(1e100))


def _true_renyi(part, order):
    """D_α of whole order by mpmath, the worse direction: closed forms of Mironov 2017; Mironov, Talwar, Zhang 2019."""
    match part:
        case pc.Gaussian():
            return mpf(order) / (2 * mpf(part.noise_multiplier) ** 2)
        case pc.Laplace():
            b, a = 1 / mpf(part.scale), mpf(order)
            return mp.log(a / (2 * a - 1) * mp.exp((a - 1) * b) + (a - 1) / (2 * a - 1) * mp.exp(-a * b)) / (a - 1)
        case pc.PoissonSampled():
            q, x = mpf(part.rate), 1 / mpf(part.mechanism.noise_multiplier) ** 2
            terms = (
                mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp(k * (k - 1) * x / 2)
                for k in range(order + 1)
            )
            return mp.log(mp.fsum(terms)) / (order - 1)
    raise AssertionError(part)


_NOISES = st.sampled_from([0.05, 0.3, 1.0, 4.0, 100.0])
_PARTS = st.one_of(
    st.builds(pc.Gaussian, _NOISES),
    st.builds(pc.Laplace, _NOISES),
    st.builds(pc.PoissonSampled, st.builds(pc.Gaussian, _NOISES), st.sampled_from([1e-9, 1e-3, 0.1, 0.9])),
)


@settings(max_examples=60 if SLOW else 20, deadline=None)
@given(
    kind=st.sampled_from(["mu", "rho", "epsilon", "orders"]),
    size=st.sampled_from([1e-3, 1.0, 30.0, 1e4]),
    plays=st.lists(st.tuples(st.booleans(), _PARTS, st.sampled_from([1, 7, 10**6])), max_size=12),
)
def test_the_true_divergence_of_what_is_admitted_never_exceeds_the_budget(kind, size, plays):
    orders = [2, 17, 200]
    budget = {"orders": orders, "epsilons": [size, 2 * size, 5 * size]} if kind == "orders" else {kind: size}
    ledger, kept = Filter(**budget), {}
    for charge, part, count in plays:
        try:
            (ledger.charge if charge else ledger.refund)(part * count)
        except pc.PrivcalcError:
            continue
        kept[part] = kept.get(part, 0) + (count if charge else -count)
    limits = {"mu": lambda a: a * mpf(size) ** 2 / 2, "rho": lambda a: a * mpf(size), "epsilon": lambda a: mpf(size)}
    with mp.workdps(50):
        for i, order in enumerate(orders):
            spent = mp.fsum(count * _true_renyi(part, order) for part, count in kept.items() if count)
            limit = mpf(budget["epsilons"][i]) if kind == "orders" else limits[kind](order)
            assert spent <= limit * (1 + mpf(10) ** -40)  # of the 50 digits


def _adaptive_law(budget, costs, world, history=()):
    """Outputs of randomised response whose ε is chosen from the last answers; stops where the filter says so."""
    ledger = Filter(epsilon=budget)
    for cost, _ in history:
        ledger.charge(pc.RandomizedResponse(epsilon=cost))
    cost = costs[(len(history) + sum(bit for _, bit in history)) % len(costs)]
    part = pc.RandomizedResponse(epsilon=cost)
    if ledger.would_exceed(part):
        return {history: 1.0}
    law = {}
    for bit in (0, 1):
        p = 1 / (1 + math.exp(-cost)) if bit == world else 1 / (1 + math.exp(cost))
        for key, value in _adaptive_law(budget, costs, world, (*history, (cost, bit))).items():
            law[key] = law.get(key, 0.0) + p * value
    return law


@pytest.mark.parametrize("costs", list(itertools.permutations((0.25, 0.5, 0.75))))
def test_adaptive_runs_by_enumeration(costs):
    laws = [_adaptive_law(1.5, costs, world) for world in (0, 1)]
    assert len({len(key) for key in laws[0]}) > 1  # the length does depend on outputs
    guarantee = Filter(epsilon=1.5).mechanism
    for epsilon in (0.0, 0.3, 0.8, 1.2, 1.5):
        delta = sum(max(p - math.exp(epsilon) * laws[1][key], 0.0) for key, p in laws[0].items())
        assert delta <= guarantee.delta(epsilon=epsilon).upper + 1e-12


def test_choices_under_a_budget_of_mu() -> None:
    """They cost little more than a²/4; what is admitted is no worse than the budget; together and one by one."""
    step, noise = pc.ExponentialMechanism(0.25), pc.Gaussian(2.0)
    one, together = Filter(mu=1.0), Filter(mu=1.0)
    one.charge(noise)
    together.charge(noise)
    admitted = 0
    while not one.would_exceed(step):
        one.charge(step)
        admitted += 1
    assert 41 <= admitted <= 47  # 0.75/(a²/4) = 48; 30 at the μ of one choice each
    run = step * admitted + noise
    for delta in (1e-2, 1e-6):
        assert run.epsilon(delta=delta).lower <= pc.GDP(1.0).epsilon(delta=delta).upper
    together.charge(step * (admitted - 1))
    assert together.spent <= 1
    spent = one.spent
    one.refund(step * 3)
    assert spent**2 - 4 * 0.25**2 / 4 < one.spent**2 < spent**2
    assert not one.would_exceed(step * 2)
    with pytest.raises(pc.BudgetExceeded):
        one.charge(step * 4)


@pytest.mark.parametrize(("a", "count", "more"), [(1.0, 1, 20), (0.25, 10, 100)])
def test_choices_that_are_made_after_what_was_charged_later(a: float, count: int, more: int) -> None:
    """In a run, a reserved block or another ledger of the budget, choices may come last, the worst order."""
    budget = Filter(mu=0.5 * a * math.sqrt(count + more))
    budget.charge(pc.ExponentialMechanism(a) * count)
    noise = pc.Gaussian(math.nextafter(1 / float(budget.remaining), math.inf))
    budget.charge(noise)
    run = pc.ExponentialMechanism(a) * count + noise
    for epsilon in (0.1, 1.0, 3.0):
        assert run.delta(epsilon=epsilon).lower <= budget.mechanism.delta(epsilon=epsilon).upper


def test_what_is_taken_back_of_choices_is_no_more_than_the_others_need() -> None:
    """Two kinds of choices, the first of which is taken back, cost what the second costs alone; in whatever order."""
    first, second = pc.ExponentialMechanism(0.3) * 40, pc.ExponentialMechanism(0.2) * 40
    alone, both = Filter(mu=2.0), Filter(mu=2.0)
    alone.charge(second)
    both.charge(first)
    both.charge(second)
    both.refund(pc.ExponentialMechanism(0.3) * 15)
    both.refund(pc.ExponentialMechanism(0.3) * 25)
    assert both.spent == alone.spent


def test_choices_that_depend_on_outputs_stay_within_mu() -> None:
    """All offsets of a grid, three ranges by what came before, until nothing fits: below the profile of the budget."""
    mu, h = 0.7, 0.05
    x = h * np.arange(-120, 121)

    def value(path: tuple[bool, ...], spent: tuple[float, ...]) -> np.ndarray:
        budget = Filter(mu=mu)
        for a in spent:
            budget.charge(pc.ExponentialMechanism(a))
        m = (12, 8, 4)[(sum(path) + len(path)) % 3]
        mechanism = pc.ExponentialMechanism(m * h)
        if len(path) == 4 or budget.would_exceed(mechanism):
            return np.maximum(-np.expm1(x), 0.0)
        won, lost = (value((*path, up), (*spent, m * h)) for up in (True, False))
        best = np.maximum(-np.expm1(x), 0.0)
        for t in range(m + 1):
            p = math.expm1(h * (t - m)) / math.expm1(-h * m)
            best[m:-m] = np.maximum(
                best[m:-m], p * won[m - t : x.size - m - t] + (1 - p) * lost[2 * m - t : x.size - t]
            )
        return best

    inside = slice(60, 181)
    bound = gdp_profile(mu, np.abs(x[inside]))
    limit = np.where(x[inside] >= 0, bound.delta, 1 - np.exp(x[inside]) * (1 - bound.delta))
    found = value((), ())[inside]
    assert np.all(found <= limit + 1e-9)
    assert np.any(found > 0.5 * limit)


# --- plans --------------------------------------------------------------------------------------------

PARTS = (pc.Gaussian(20.0), pc.Laplace(9.0), pc.Gaussian(30.0))


@given(
    had=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    asked=st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), min_size=3, max_size=3)), max_size=9),
)
def test_a_plan_admits_its_uses_and_no_more(had, asked):
    """Against a multiset that is counted by hand: all of a run is admitted, or nothing of it."""
    whole = [*had, 0, 0][:3]
    plan, left = Plan(pc.Run(tuple(zip(PARTS, had, strict=False)))), list(whole)
    for back, counts in asked:
        run = pc.Run(tuple((part, count) for part, count in zip(PARTS, counts, strict=True) if count))
        after = [have + count if back else have - count for have, count in zip(left, counts, strict=True)]
        fits = all(0 <= have <= most for have, most in zip(after, whole, strict=True))
        if not back:
            assert plan.would_exceed(run) is not fits
        with contextlib.nullcontext() if fits else pytest.raises(pc.PrivcalcError if back else pc.BudgetExceeded):
            (plan.refund if back else plan.charge)(run)
        left = after if fits else left
    for part, have in zip(PARTS, left, strict=True):
        assert not have or not plan.would_exceed(part * have)
        assert plan.would_exceed(part * (have + 1))
        with pytest.raises(pc.BudgetExceeded):
            plan.charge(part * (have + 1))
    for part, have, most in zip(PARTS, left, whole, strict=True):
        with pytest.raises(pc.PrivcalcError, match=f"of {most - have} that are charged"):
            plan.refund(part * (most - have + 1))


@pytest.mark.parametrize(
    "rule", [Plan(pc.Gaussian(2.0) * 4), Filter(mu=1.0), Pool(pc.GDP(1.0))], ids=["plan", "filter", "pool"]
)
def test_every_rule_charges_refunds_and_closes_alike(rule):
    """Four uses of μ = 1/2 are all that each of them has."""
    step = pc.Gaussian(2.0)
    rule.charge(step * 3)
    assert (rule.would_exceed(step), rule.would_exceed(step * 2)) == (False, True)
    for refused in (rule.charge, rule.check):
        with pytest.raises(pc.BudgetExceeded):
            refused(step * 2)
    rule.refund(step * 2)
    for wrong, why in (
        (step * 2, "2 uses to take back, of 1"),
        (pc.GDP(0.5), "of 0 that are"),
        (0.5, "must be a mech"),
    ):
        with pytest.raises(pc.PrivcalcError, match=why):
            rule.refund(wrong)
    assert rule.charged == step * 1
    with pytest.raises(pc.PrivcalcError, match="cannot be copied"):
        copy.copy(rule)
    rule.close()
    with pytest.raises(pc.PrivcalcError, match="is closed"):
        rule.charge(step)
    assert rule.charged == step * 1


@pytest.mark.parametrize(
    ("gate", "ratio", "noise"),
    [
        (pc.IndividualFilter(3, 0.5), 0.3, 7.0),
        (pc.IndividualFilter(3, epsilon=0.5), 0.3, 7.0),
        (pc.IndividualFilter(3, orders=[2.0, 16.0], epsilons=[0.1, 2.0], rate=0.25), 1.0, 2.0),
    ],
)
def test_an_individual_filter_has_the_verbs_of_a_rule_for_each_record(gate, ratio, noise):
    norms = np.array([1.0, ratio, 0.0])
    assert not gate.charged.any()
    while not (out := gate.would_exceed(norms, noise)).any():
        before = gate.charged
        assert (gate.would_exceed(norms, noise) == out).all()  # asking costs nothing
        assert gate.charge(norms, noise).all()
        assert (gate.charged[:2] > before[:2]).all()
        gate.refund()  # of a step that was never released: all is as it was
        assert (gate.charged == before).all()
        with pytest.raises(pc.PrivcalcError, match="no step to take back"):
            gate.refund()
        gate.charge(norms, noise)
    kept = gate.charged
    assert (gate.charge(norms, noise) == ~out).all()
    assert (gate.charged[out] == kept[out]).all()
    assert gate.charged.max() <= 1
    with pytest.raises(pc.PrivcalcError, match="cannot be copied"):
        copy.copy(gate)  # which would charge for itself
    gate.close()
    with pytest.raises(pc.PrivcalcError, match="closed"):
        gate.charge(norms, noise)


def test_what_an_individual_filter_says_it_charged_is_at_least_the_sum():
    gate, ratios = pc.IndividualFilter(4, 1.5), np.array([1.0, 0.7, 1e-9, 0.0])
    for _ in range(7):
        gate.charge(ratios, 3.0)
    exact = [7 * Fraction(r) ** 2 / 9 / Fraction(1.5) ** 2 for r in ratios.tolist()]
    assert all(Fraction(have) >= want for have, want in zip(gate.charged.tolist(), exact, strict=True))
    assert gate.charged == pytest.approx([float(want) for want in exact], rel=1e-12)
