"""The laws of a privacy curve, over all mechanisms, runs and relations.

Answers are enclosures, so a law a ≤ b between two truths can be refuted only by a.lower > b.upper.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import random
from collections.abc import Callable

import numpy as np
import pytest
from cases import SLOW
from hypothesis import assume, example, settings
from hypothesis import strategies as st
from strategies import (
    allocations,
    binned,
    counts,
    deltas,
    directions,
    epsilons,
    given,
    mechanisms,
    noises,
    ordinary,
    ordinary_counts,
    ordinary_deltas,
    rates,
    refuses,
    relations,
    runs,
    sampled,
)

import privcalc as pc
from privcalc.numerics.interfaces import RouteFailed
from privcalc.numerics.routes import contour, lattice
from privcalc.serial import parts
from privcalc.strategies import BallsInBins, FixedOrder, MinSeparation, SquareRoot

few = settings(max_examples=300 if SLOW else 4)
slow = settings(max_examples=100 if SLOW else 3)  # dozens of questions per example
some = settings(max_examples=300 if SLOW else 6)


def at_most(a: pc.Enclosure, b: pc.Enclosure) -> None:
    """The true a does not exceed the true b."""
    assert a.lower <= b.upper, f"{a!r} exceeds {b!r}"


def same(a: pc.Enclosure, b: pc.Enclosure) -> None:
    """Identical, to the last bit."""
    assert (a.lower, a.upper, a.relation, a.route) == (b.lower, b.upper, b.relation, b.route)


def sound(answer: pc.Enclosure, relation: pc.Relation, top: float = math.inf) -> None:
    """What every answer owes: ordered ends within range, a relation, a route."""
    assert 0 <= answer.lower <= answer.upper <= top
    assert answer.relation is relation
    assert answer.route
    assert float(answer) == (answer.upper if answer.safe == "upper" else answer.lower)


# --- the curve itself -----------------------------------------------------------------------------


@given(runs, relations, st.lists(epsilons, min_size=3, max_size=3, unique=True))
@few
def test_delta_is_a_falling_convex_probability(run: pc.Run, relation: pc.Relation, where: list[float]) -> None:
    where = sorted(where)
    found = [run.delta(epsilon=e, relation=relation) for e in where]
    for epsilon, delta in zip(where, found, strict=True):
        sound(delta, relation, 1.0)
        assert delta.upper >= -math.expm1(epsilon)
    for low, high in itertools.pairwise(found):
        at_most(high, low)
    if where[-1] < 700:
        x = [math.expm1(e) for e in where]
        share = (x[1] - x[0]) / (x[2] - x[0])
        chord = (1 - share) * found[0].upper + share * found[2].upper
        assert found[1].lower <= chord * (1 + 1e-12)


@given(runs, relations, deltas)
@some
def test_epsilon_is_a_sound_answer(run: pc.Run, relation: pc.Relation, delta: float) -> None:
    sound(run.epsilon(delta=delta, relation=relation), relation)


@given(runs, relations, deltas)
@example(pc.Laplace(scale=1e4) * 5, pc.REPLACE_ONE, 1e-12)
@example(pc.PoissonSampled(pc.Gaussian(0.01 if SLOW else 0.05), 0.3) * 1000, pc.ZERO_OUT, 1e-5)
@example(pc.PoissonSampled(pc.Laplace(0.3), 1e-6) * (1000 if SLOW else 30), pc.REPLACE_ONE, 1e-100)
@example(pc.PoissonSampled(pc.Gaussian(1.0), 1e-6) * 5, pc.REPLACE_ONE, 1e-300)
@few
def test_epsilon_and_delta_are_inverse_to_each_other(run: pc.Run, relation: pc.Relation, delta: float) -> None:
    epsilon = run.epsilon(delta=delta, relation=relation)
    if epsilon.upper < math.inf:
        assert run.delta(epsilon=epsilon.upper, relation=relation).lower <= delta
    if 0 < epsilon.lower < math.inf:
        assert run.delta(epsilon=epsilon.lower, relation=relation).upper >= delta


@given(ordinary, ordinary_counts, ordinary_deltas)
@few
def test_ordinary_answers_are_sharp(mechanism: pc.Mechanism, count: int, delta: float) -> None:
    epsilon = (mechanism * count).epsilon(delta=delta)
    assert epsilon.width <= 1e-4 * epsilon.upper


@given(runs, relations)
def test_pure_epsilon_is_the_sum_of_pure_epsilons(run: pc.Run, relation: pc.Relation) -> None:
    whole = run.epsilon(delta=0.0, relation=relation)
    sound(whole, relation)
    parts = [(mechanism.epsilon(delta=0.0, relation=relation), n) for mechanism, n in run.entries]
    assert whole.lower <= math.fsum(n * part.upper for part, n in parts) * (1 + 1e-14)
    assert whole.upper * (1 + 1e-14) >= math.fsum(n * part.lower for part, n in parts)


# --- monotone -------------------------------------------------------------------------------------


@given(runs, relations, deltas, deltas)
@few
def test_epsilon_grows_as_delta_shrinks(run: pc.Run, relation: pc.Relation, one: float, other: float) -> None:
    small, large = sorted((one, other))
    at_most(run.epsilon(delta=large, relation=relation), run.epsilon(delta=small, relation=relation))


@given(mechanisms, relations, deltas, counts, counts)
@some
def test_epsilon_grows_with_the_count(
    m: pc.Mechanism, relation: pc.Relation, delta: float, one: int, other: int
) -> None:
    few_uses, more = sorted((one, other))
    at_most((m * few_uses).epsilon(delta=delta, relation=relation), (m * more).epsilon(delta=delta, relation=relation))


@given(st.sampled_from([pc.Gaussian, pc.Laplace]), noises, rates, rates, relations, deltas, counts)
@some
def test_epsilon_grows_with_the_rate(
    base: Callable[[float], pc.Mechanism],
    z: float,
    one: float,
    other: float,
    relation: pc.Relation,
    delta: float,
    n: int,
) -> None:
    low, high = (
        (pc.PoissonSampled(base(z), q) * n).epsilon(delta=delta, relation=relation) for q in sorted((one, other))
    )
    at_most(low, high)


@given(st.sampled_from([pc.Gaussian, pc.Laplace]), noises, noises, rates, relations, deltas, counts)
@few
def test_epsilon_falls_with_the_noise(
    base: Callable[[float], pc.Mechanism],
    one: float,
    other: float,
    q: float,
    relation: pc.Relation,
    delta: float,
    n: int,
) -> None:
    loud, quiet = (
        (pc.PoissonSampled(base(z), q) * n).epsilon(delta=delta, relation=relation) for z in sorted((one, other))
    )
    at_most(quiet, loud)


@given(runs, mechanisms, counts, relations, deltas)
@few
def test_adding_a_mechanism_never_improves(
    run: pc.Run, m: pc.Mechanism, n: int, relation: pc.Relation, delta: float
) -> None:
    at_most(run.epsilon(delta=delta, relation=relation), (run + m * n).epsilon(delta=delta, relation=relation))


@given(mechanisms, counts, deltas)
@few
def test_replace_one_costs_no_less_than_zero_out(m: pc.Mechanism, n: int, delta: float) -> None:
    # Nulling a record is one way to replace it.
    assume(not refuses(m, pc.REPLACE_ONE))
    at_most((m * n).epsilon(delta=delta, relation=pc.ZERO_OUT), (m * n).epsilon(delta=delta, relation=pc.REPLACE_ONE))


@given(sampled, counts, relations, deltas)
@few
def test_sampling_never_costs(m: pc.PoissonSampled, n: int, relation: pc.Relation, delta: float) -> None:
    at_most((m * n).epsilon(delta=delta, relation=relation), (m.mechanism * n).epsilon(delta=delta, relation=relation))


@pytest.mark.slow
@given(allocations, st.sampled_from([1, 1, 2, 30]), deltas, epsilons)
@slow
def test_allocation_costs_less_than_all_its_steps(m: pc.RandomAllocation, n: int, delta: float, epsilon: float) -> None:
    """Than its slots in the open; and curves fall."""
    found = (m * n).epsilon(delta=delta)
    sound(found, pc.ADD_OR_REMOVE_ONE)
    unsampled = m.mechanism * (n * m.epochs * m.choices)
    at_most(found, unsampled.epsilon(delta=delta))
    assert found.upper <= unsampled.epsilon(delta=delta).upper * (1 + 1e-9) or found.upper == math.inf
    at_most((m * n).epsilon(delta=min(1.5 * delta, 0.9)), found)
    at_most(found, (m * (n + 1)).epsilon(delta=delta))
    at_most((m * n).delta(epsilon=1.1 * epsilon), (m * n).delta(epsilon=epsilon))
    if m.choices < m.steps:
        more = pc.RandomAllocation(m.mechanism, m.steps, m.epochs, m.choices + 1)
        at_most(found, (more * n).epsilon(delta=delta))


@pytest.mark.slow
@given(binned, st.sampled_from([1, 1, 2, 30]), deltas, epsilons)
@slow
def test_secret_places_cost_less_than_public_ones(
    m: pc.CorrelatedGaussian, n: int, delta: float, epsilon: float
) -> None:
    """Of correlated noise; and curves fall."""
    assert isinstance(m.participation, BallsInBins)
    found = (m * n).epsilon(delta=delta)
    sound(found, pc.ADD_OR_REMOVE_ONE)
    public = pc.CorrelatedGaussian(m.noise_multiplier, m.strategy, FixedOrder(m.participation.bins))
    at_most(found, (public * n).epsilon(delta=delta))
    at_most((m * n).epsilon(delta=min(1.5 * delta, 0.9)), found)
    at_most(found, (m * (n + 1)).epsilon(delta=delta))
    at_most((m * n).delta(epsilon=1.1 * epsilon), (m * n).delta(epsilon=epsilon))


# --- the largest loss, and both ends in order -------------------------------------------------------

GRID = (0.0, 1e-300, 1e-100, 1e-30, 1e-20, 1e-14, 1e-12, 2e-12, 1e-6, 2e-6, 1e-3, 0.1, 0.5)
if not SLOW:
    GRID = (0.0, 1e-300, 1e-30, 1e-12, 2e-12, 1e-6, 2e-6, 0.5)
ORDINARY = [
    pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000,
    pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000 + pc.Laplace(20.0) * 10 + pc.PureDP(0.05),
    pc.ExponentialMechanism(0.5) * 3 + pc.Gaussian(3.0),
    pytest.param(pc.UserSampled(pc.Gaussian(2.0), 0.02, records=5) * 300, marks=pytest.mark.slow),
    pc.TruncatedPoissonSampled(pc.Gaussian(1.0), 0.01, 125, 10_000) * 1000,
    pytest.param(pc.WithReplacementSampled(pc.Gaussian(8.0), 30, 1000) * 300, marks=pytest.mark.slow),
    pc.RandomAllocation(pc.Gaussian(1.0), steps=100),
    pytest.param(pc.RandomAllocation(pc.Gaussian(1.0), steps=100) * 2, marks=pytest.mark.slow),
    pc.RandomizedResponse(1.0) * 20,
    pc.CorrelatedGaussian(9.0, SquareRoot(100), MinSeparation(20)) + pc.Laplace(20.0),
    pc.Laplace(1.0) * 3,
]
PURE = [
    pc.Laplace(0.01),
    pc.PureDP(1.0),
    pc.ExponentialMechanism(1.0),
    pc.ExponentialMechanism(1e-50),
    pc.RandomizedResponse(1.0, 3),
    pc.CustomMechanism.from_probabilities([0.75, 0.25], [0.25, 0.75]),
    pc.Parallel([pc.Laplace(1.0), pc.PureDP(0.7)]),
    pc.TopK(1.0, 3),
    pc.PermuteAndFlip(1.0),
    pc.NoisyMax(1.0, noise="exponential"),
    pc.FixedSizeSampled(pc.Laplace(1.0), 10, 100),
    pc.PoissonSampled(pc.Laplace(1.0), 0.01),
    pc.PoissonSampled(pc.Laplace(1 / 29), 1e-12),
]


def in_order(answers: list[pc.Enclosure], slack: float) -> None:
    """Both ends fall along the list: the safe one up to a relative rounding, the other up to the width of the answer.

    That one may come from another route at the next point, as sharp or less (``proofs/calibration.md``, monotone ends).
    """
    for one, other in itertools.pairwise(answers):
        width = one.upper - one.lower if one.upper < math.inf else 0.0
        assert other.lower <= one.lower * (1 + slack) + width, f"{one.lower!r} < {other.lower!r}"
        assert other.upper <= one.upper * (1 + slack), f"{one.upper!r} < {other.upper!r}"


def both_ways(run: pc.Run, relation: pc.Relation, slack: float) -> None:
    """ε(δ) and δ(ε) on grids that reach the edge of the support."""
    found = [run.epsilon(delta=delta, relation=relation) for delta in GRID]
    in_order(found, slack)
    top = found[0].upper
    edge = [top * x for x in (0.5, 0.9, 1 - 1e-9, 1 - 2e-15, 1.0, 1 + 4e-16)] if top < math.inf else []
    where = sorted([0.0, 0.01, 1.0, *edge] if not SLOW else [0.0, 1e-9, 0.01, 0.3, 1.0, 3.0, *edge])
    in_order([run.delta(epsilon=epsilon, relation=relation) for epsilon in where], slack)


@given(mechanisms, relations)
@example(pc.PoissonSampled(pc.Gaussian(1e-3), 1e-9), pc.ADD_OR_REMOVE_ONE)
@example(pc.ExponentialMechanism(30.0), pc.ZERO_OUT)
@some
def test_both_ends_of_one_use_are_monotone(mechanism: pc.Mechanism, relation: pc.Relation) -> None:
    assume(relation is not pc.REPLACE_ONE or not isinstance(mechanism, pc.PoissonSampled))  # answered by routes
    both_ways(mechanism.run, relation, 1e-13)


@pytest.mark.parametrize("run", ORDINARY, ids=str)
def test_both_ends_of_ordinary_runs_are_monotone(run: pc.Run) -> None:
    both_ways(run, pc.ADD_OR_REMOVE_ONE, 1e-12)


@pytest.mark.parametrize("mechanism", PURE, ids=str)
def test_no_answer_exceeds_the_largest_loss(mechanism: pc.Mechanism) -> None:
    pure = mechanism.epsilon(delta=0.0)
    for delta in (5e-324, 1e-300, 1e-100):
        found = mechanism.epsilon(delta=delta)
        assert pure.upper * (1 - 1e-13) <= found.lower <= found.upper <= pure.upper
        assert mechanism.epsilon(delta=delta, group_size=3).upper <= 3 * pure.upper * (1 + 1e-15)
    for beyond in (pure.upper, 2 * pure.upper):
        found = mechanism.delta(epsilon=beyond)
        assert (found.lower, found.upper) == (0.0, 0.0)


def test_the_largest_loss_is_enough_noise() -> None:
    assert pc.calibrate(pc.Laplace, epsilon=1.0, delta=1e-20).parameter == pytest.approx(1.0, rel=1e-14)


def test_the_rounding_of_a_largest_loss_stays_there() -> None:
    """Beyond it the other part rules, however small its δ."""
    both = pc.Parallel([pc.Laplace(0.01), pc.Gaussian(0.05)])
    alone = pc.Gaussian(0.05).epsilon(delta=1e-30)
    assert both.epsilon(delta=1e-30).upper == pytest.approx(alone.upper, rel=1e-9)


@given(mechanisms, counts, relations)
@example(pc.PoissonSampled(pc.Gaussian(1.0), 0.01), 100, pc.ADD_OR_REMOVE_ONE)
@example(pc.PoissonSampled(pc.RandomizedResponse(1.0), 0.1), 1, pc.ADD_OR_REMOVE_ONE)
@few
def test_renyi_divergences_grow_with_the_order(m: pc.Mechanism, n: int, relation: pc.Relation) -> None:
    found = (m * n).rdp(1 + np.array([1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 1.0]), relation=relation)
    # Where D is below the rounding of K (1e-14) over the order, no more than that is known.
    assert np.all(found[:-1] <= found[1:] * (1 + 1e-4) + n * 1e-12)


@given(noises, relations, st.lists(st.floats(1e-12, 1 - 1e-12), min_size=2, max_size=6, unique=True))
@example(1.0, pc.ADD_OR_REMOVE_ONE, [0.05, 0.18393972058572117, 0.1839397205857212, 0.5, 0.5000000000000001])
def test_beta_of_laplace_noise_is_monotone(scale: float, relation: pc.Relation, where: list[float]) -> None:
    found = [pc.Laplace(scale).beta(alpha=alpha, relation=relation) for alpha in sorted(where)]
    in_order(found, 1e-11)


# --- composition ----------------------------------------------------------------------------------


@given(mechanisms, st.integers(1, 30))
@few
def test_a_count_is_that_many_entries(m: pc.Mechanism, n: int) -> None:
    single = sum([m] * n, pc.Run())
    listed = pc.Run(((m, 1),) * n)
    assert m * n == n * m == single == listed == pc.Run.of([m] * n)


@given(st.lists(st.tuples(mechanisms, counts), min_size=2, max_size=5 if SLOW else 2), relations, deltas, st.randoms())
@few
def test_order_never_matters(
    parts: list[tuple[pc.Mechanism, int]], relation: pc.Relation, delta: float, shuffler: random.Random
) -> None:
    mixed = list(parts)
    shuffler.shuffle(mixed)
    one, other = pc.Run(tuple(parts)), pc.Run(tuple(mixed))
    assert one == other
    assert hash(one) == hash(other)
    assert one == sum((m * n for m, n in mixed), pc.Run())
    same(one.epsilon(delta=delta, relation=relation), other.epsilon(delta=delta, relation=relation))


@given(runs)
@few
def test_composing_with_nothing_changes_nothing(run: pc.Run) -> None:
    for same_run in (run + pc.Run(), pc.Run() + run, run + run * 0, run * 1, sum([run])):
        assert same_run == run


@given(runs, relations, deltas)
@few
def test_asking_twice_gives_one_answer(run: pc.Run, relation: pc.Relation, delta: float) -> None:
    first = run.epsilon(delta=delta, relation=relation)
    run.delta(epsilon=1.0, relation=relation)
    same(first, run.epsilon(delta=delta, relation=relation))


@given(relations, deltas, epsilons)
def test_the_empty_run_leaks_nothing(relation: pc.Relation, delta: float, epsilon: float) -> None:
    nothing = pc.Gaussian(1.0) * 0
    assert nothing == pc.Run()
    for answer in (
        nothing.epsilon(delta=delta, relation=relation),
        nothing.epsilon(delta=0.0, relation=relation),
        nothing.delta(epsilon=epsilon, relation=relation),
        nothing.advantage(relation=relation),
        nothing.gdp_mu(relation=relation),
    ):
        assert (answer.lower, answer.upper) == (0.0, 0.0)
    assert nothing.zcdp(relation=relation) == (0.0, 0.0)
    assert nothing.beta(alpha=0.25, relation=relation).upper >= 0.75 - 1e-12


@given(mechanisms, counts, relations)
@few
def test_zcdp_adds(m: pc.Mechanism, n: int, relation: pc.Relation) -> None:
    rho, xi = (m * n).zcdp(relation=relation)
    assert xi == 0.0
    assert rho == pytest.approx(n * m.zcdp(relation=relation)[0], rel=1e-13)


# --- relations ------------------------------------------------------------------------------------


@given(mechanisms, relations, deltas)
@few
def test_the_relation_survives(m: pc.Mechanism, relation: pc.Relation, delta: float) -> None:
    asked = m.epsilon(delta=delta, relation=relation), m.delta(epsilon=1.0, relation=relation)
    for answer in (*asked, m.advantage(relation=relation), m.gdp_mu(relation=relation)):
        assert answer.relation is relation


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(pc.Relation, 2)))
def test_mixing_relations_raises(one: pc.Relation, other: pc.Relation) -> None:
    a = pc.Gaussian(1.0).epsilon(delta=1e-5, relation=one)
    b = pc.Gaussian(1.0).epsilon(delta=1e-5, relation=other)
    for combine in (
        operator.add,
        operator.sub,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.eq,
        operator.ne,
    ):
        with pytest.raises(pc.PrivcalcError, match="relation"):
            combine(a, b)


@given(mechanisms, counts, deltas)
@few
def test_zero_out_is_add_or_remove_for_poisson_and_full_batches(m: pc.Mechanism, n: int, delta: float) -> None:
    assume(not refuses(m, pc.ZERO_OUT) and not refuses(m, pc.ADD_OR_REMOVE_ONE))
    cut = (
        pc.TruncatedPoissonSampled
    )  # a record that comes pushes out another one, a null record nobody: other upper ends
    assume(not any(isinstance(part, cut) for part in (m, *parts(m))))
    a = (m * n).epsilon(delta=delta, relation=pc.ZERO_OUT)
    b = (m * n).epsilon(delta=delta, relation=pc.ADD_OR_REMOVE_ONE)
    assert (a.lower, a.upper) == (b.lower, b.upper)


# --- the two faces --------------------------------------------------------------------------------


@given(ordinary, st.integers(1, 60), relations, st.floats(0.02, 0.5))
@slow
def test_beta_is_a_trade_off_curve(m: pc.Mechanism, n: int, relation: pc.Relation, alpha: float) -> None:
    run = m * n
    low, high = (run.beta(alpha=a, relation=relation) for a in (alpha, 2 * alpha))
    for answer, level in ((low, alpha), (high, 2 * alpha)):
        assert 0 <= answer.lower <= answer.upper <= 1 - level + 1e-12
        assert float(answer) == answer.lower
    at_most(high, low)
    # Total variation bounds the whole curve: α + β ≥ 1 − TV.
    assert alpha + low.upper >= 1 - run.advantage(relation=relation).upper - 1e-12


@given(ordinary, st.integers(1, 60), st.floats(0.1, 3.0))
@slow
def test_gdp_mu_covers_the_curve(m: pc.Mechanism, n: int, epsilon: float) -> None:
    run = m * n
    mu = run.gdp_mu().upper
    assume(0 < mu < 1e3)
    at_most(run.delta(epsilon=epsilon), pc.Gaussian(1 / mu * (1 - 1e-15)).delta(epsilon=epsilon))


@pytest.mark.parametrize(
    "run", [pc.PoissonSampled(pc.Gaussian(1.0), 0.05) * 100, pc.Gaussian(3.0) * 7 + pc.Gaussian(1.0)]
)
def test_gdp_mu_falls_with_the_share_set_aside(run: pc.Run) -> None:
    found = [run.gdp_mu(delta=share) for share in (0.0, 1e-8, 1e-3)]
    at_most(found[1], found[0])
    at_most(found[2], found[1])


# --- routes ---------------------------------------------------------------------------------------


def by_route(direction: tuple, epsilon: float) -> dict[str, tuple[float, float]]:
    """Bounds of δ(ε) by each route that applies."""
    found = {}
    if len(direction) == 1 and direction[0][1] == 1:
        delta, _, error = direction[0][0].profile(np.array([epsilon]))
        found["closed form"] = (float(delta[0] - error[0]), float(delta[0] + error[0]))
    transforms = [(pair.transform, n) for pair, n in direction]
    if all(transform is not None for transform, _ in transforms):
        with contextlib.suppress(RouteFailed):
            found["contour"] = contour.build(transforms, epsilon=epsilon)[0].bounds(epsilon)
    with contextlib.suppress(RouteFailed):
        found["lattice"] = lattice.build(list(direction), epsilon=epsilon)[0].bounds(epsilon)
    return found


@given(st.one_of(ordinary, mechanisms), st.one_of(ordinary_counts, st.integers(1, 20)), relations, ordinary_deltas)
@some
def test_routes_overlap(m: pc.Mechanism, n: int, relation: pc.Relation, delta: float) -> None:
    epsilon = (m * n).epsilon(delta=delta, relation=relation).upper
    assume(epsilon < 600)
    for direction in directions(m * n, relation):
        found = by_route(direction, epsilon)
        for (a, one), (b, other) in itertools.combinations(found.items(), 2):
            assert one[0] <= other[1], (a, one, b, other)
            assert other[0] <= one[1], (a, one, b, other)


def test_both_routes_are_really_compared() -> None:
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.05) * 200
    for direction in directions(run, pc.ADD_OR_REMOVE_ONE):
        found = by_route(direction, 2.0)
        assert set(found) == {"contour", "lattice"}
        middle = [0.5 * (low + high) for low, high in found.values()]
        assert middle[0] == pytest.approx(middle[1], rel=1e-4)
