"""Users' own mechanisms and whole tables, against enumeration (``proofs/custom.md``)."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import quick
from mpmath import mp

import privcalc as pc
from privcalc.mechanisms.custom import CustomMechanism
from privcalc.numerics.floats import Floats
from privcalc.tables import discretize, profile_table, tradeoff_table

PAIRS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.5, 0.4, 0.1], [0.45, 0.55, 0.0]),
    ([0.5, 0.45, 0.05], [0.55, 0.4, 0.05]),
    ([0.5, 0.4, 0.1, 0.0], [0.6, 0.3, 0.0, 0.1]),
    ([0.5, 0.4, 0.1, 0.0], [0.6, 0.35, 0.0, 0.05]),
    ([1.0, 0.0], [0.9, 0.1]),
]


def truth(p: list[float], q: list[float], count: int, epsilon: float) -> float:
    a, b = (np.array([math.prod(t) for t in itertools.product(law, repeat=count)]) for law in (p, q))
    return max(float(np.maximum(x - math.exp(epsilon) * y, 0).sum()) for x, y in ((a, b), (b, a)))


def within(answer: pc.Enclosure, value: float) -> None:
    assert answer.lower <= value * (1 + 1e-12) + 1e-15
    assert value * (1 - 1e-12) - 1e-15 <= answer.upper


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_probabilities_by_enumeration(p: list[float], q: list[float], count: int) -> None:
    one = CustomMechanism.from_probabilities(p, q)
    sampled = pc.PoissonSampled(one, 0.3)
    mixture = [0.7 * b + 0.3 * a for a, b in zip(p, q, strict=True)]
    for epsilon in (0.0, 0.2, 1.0):
        found = (one * count).delta(epsilon=epsilon)
        within(found, truth(p, q, count, epsilon))
        within((sampled * count).delta(epsilon=epsilon), truth(mixture, q, count, epsilon))
        if count == 1:
            assert found.width < 1e-12


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.5], [1.0]),
        ([0.5, 0.6], [0.5, 0.5]),
        ([1.5, -0.5], [0.5, 0.5]),
        ([1.0, 0.0], [0.0, 1.0]),
        ([], []),
        ("ab", [1.0]),
    ],
)
def test_broken_probabilities(p: list[float], q: list[float]) -> None:
    with pytest.raises(pc.PrivcalcError):
        CustomMechanism.from_probabilities(p, q)


def laplace(epsilon: Floats) -> Floats:
    return np.maximum(-np.expm1((epsilon - 1) / 2), 0.0)


def test_profile_of_laplace() -> None:
    one = CustomMechanism.from_profile(laplace, max_loss=1.0, exact=True)
    assert hash(one) == hash(CustomMechanism.from_profile(laplace, max_loss=1.0, exact=True))
    same = pc.Laplace(1.0)
    single = one.epsilon(delta=0.1)
    assert single.width < 1e-10
    assert single.lower <= same.epsilon(delta=0.1).upper
    found, exact = (one * 30).epsilon(delta=1e-5), (same * 30).epsilon(delta=1e-5)
    assert exact.lower <= found.upper <= exact.upper * (1 + 1e-3)
    assert found.lower <= exact.upper
    found = (pc.PoissonSampled(one, 0.1) * 30).epsilon(delta=1e-5)
    exact = (pc.PoissonSampled(same, 0.1) * 30).epsilon(delta=1e-5)
    assert exact.lower <= found.upper <= exact.upper * (1 + 1e-3)
    with pytest.raises(pc.PrivcalcError, match="was given for"):
        one.delta(epsilon=1.0, relation=pc.REPLACE_ONE)


@pytest.mark.parametrize(
    "profile",
    [
        lambda e: e,
        lambda e: 0 * e - 1,
        lambda e: 0.5 + 0 * e,
        lambda e: np.minimum(np.exp(-e), 0.3 * (e < 1) + 0.1 * (e >= 1)),
        lambda e: np.float64(0.1),
        lambda e: np.exp(-e) * np.nan,
    ],
)
def test_broken_profiles(profile: object) -> None:
    with pytest.raises(pc.PrivcalcError):
        CustomMechanism.from_profile(profile)  # type: ignore[arg-type]


# --- tables ---------------------------------------------------------------------------------------

RUNS = [
    pc.Gaussian(1.0).run,
    pc.PoissonSampled(pc.Gaussian(1.0), 0.1) * 20,
    pc.Laplace(2.0) * 3,
    CustomMechanism.from_probabilities([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]).run,
]


@pytest.mark.parametrize("run", RUNS)
def test_tables_agree_with_questions(run: pc.Run) -> None:
    table = profile_table(run, [0.0, 0.5, 2.0])
    assert table.dtype.names == ("epsilon", "lower", "upper")
    for epsilon, lower, upper in table:
        found = run.delta(epsilon=float(epsilon))
        assert lower <= found.upper
        assert found.lower <= upper
    mixed = [2.0, 0.0, 0.5, 2.0]
    again = profile_table(run, mixed)  # in the order that was asked for
    assert again["epsilon"].tolist() == mixed
    assert again["upper"].tolist() == [table["upper"][(0.0, 0.5, 2.0).index(epsilon)] for epsilon in mixed]
    curve = tradeoff_table(run, [0.01, 0.5])
    assert np.all(curve["lower"] <= curve["upper"])
    assert np.all(np.diff(curve["lower"]) <= 0)


@pytest.mark.parametrize("run", quick(RUNS, 0, 1, 3))
def test_discretised_loss_dominates_and_is_close(run: pc.Run) -> None:
    sides = [discretize(run, 0.02, tail=1e-7, direction=i) for i in (0, 1)]
    for pld in sides:
        total = float(pld.probabilities.sum()) + pld.infinity
        assert 1 - 1e-9 <= total <= 1 + 1e-6
        assert np.all(pld.probabilities >= 0)
    for epsilon in (0.0, 0.1, 0.333, 1.0, 2.5):
        found, upper = run.delta(epsilon=epsilon), max(pld.delta(epsilon) for pld in sides)
        assert found.lower <= upper <= found.upper * 1.01 + 1e-3 * 0.02 + 2e-7


def test_discretize_refuses() -> None:
    for bad in ({"spacing": 0.0}, {"spacing": 1e-6}, {"spacing": 0.1, "tail": 0.0}, {"spacing": 0.1, "direction": 2}):
        with pytest.raises(pc.PrivcalcError):
            discretize(pc.Gaussian(1.0), **bad)  # type: ignore[arg-type]
    with pytest.raises(pc.PrivcalcError, match="spacing"):
        discretize(pc.PureDP(1e-100), 1e-102)  # e^spacing is 1


def test_a_leak_of_all_but_nothing() -> None:
    """1 − leak is one unit: δ may be bounded by 1 only, but there is an answer."""
    one = CustomMechanism.from_probabilities([1 - 1e-16, 1e-16], [0.0, 1.0])
    for run in (one * 1, one * 2):
        assert run.delta(epsilon=1.0).upper == 1.0
        assert run.epsilon(delta=0.5).upper == math.inf


def test_a_profile_leaves_the_lower_end_of_the_rest() -> None:
    profile = CustomMechanism.from_profile(lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), max_loss=1.0)
    rest = pc.Gaussian(2.0) * 3
    assert (profile * 2 + rest).epsilon(delta=1e-5).lower == rest.epsilon(delta=1e-5).lower > 0
    batch = pc.FixedSizeSampled(
        CustomMechanism.from_profile(
            lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), max_loss=1.0, relation=pc.REPLACE_ONE
        ),
        1,
        10,
    )
    assert (batch * 3).delta(epsilon=0.1).lower == 0.0


def test_uses_under_replace_one_may_differ_in_their_order() -> None:
    """One use on (D, D') and one on neighbours that lie the other way round: (P × Q, Q × P) is an instance, too."""
    p, q = [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]
    one = CustomMechanism.from_probabilities(p, q, relation=pc.REPLACE_ONE)
    for epsilon in (0.0, 0.2, 0.5, 1.0, 1.5):
        answer = (one * 2).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
        for first, second in itertools.product(((p, q), (q, p)), repeat=2):
            laws = [[a * b for a in x for b in y] for x, y in zip(first, second, strict=True)]
            assert answer.upper >= sum(max(a - math.exp(epsilon) * b, 0.0) for a, b in zip(*laws, strict=True)) - 1e-15
        single = one.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
        add = CustomMechanism.from_probabilities(p, q).delta(epsilon=epsilon)
        assert (single.lower, single.upper) == pytest.approx((add.lower, add.upper), rel=1e-12, abs=1e-15)
    # a symmetric pair needs no maximum
    coin = CustomMechanism.from_probabilities([0.75, 0.25], [0.25, 0.75], relation=pc.REPLACE_ONE) * 3
    assert coin.epsilon(delta=1e-3, relation=pc.REPLACE_ONE).width <= 1e-6


def test_leaks_and_profiles_under_replace_one() -> None:
    leaky = CustomMechanism.from_probabilities([0.5, 0.49, 0.01], [0.4, 0.6, 0.0], relation=pc.REPLACE_ONE)
    answer = (leaky * 2).delta(epsilon=0.3, relation=pc.REPLACE_ONE)
    assert answer.upper >= 1 - 0.99**2
    assert answer.lower > 0
    stated = CustomMechanism.from_profile(
        lambda e: np.maximum(0.3 * (math.e - np.exp(e)), 0.0) / (math.e - 1),
        reverse=lambda e: np.maximum(0.3 * (math.e**2 - np.exp(e)), 0.0) / (math.e**2 - 1),
        max_loss=1.0,
        reverse_max_loss=2.0,
        relation=pc.REPLACE_ONE,
    )
    pairs = stated.pairs(pc.REPLACE_ONE)
    assert pairs.forward == pairs.backward
    assert pairs.forward.max_loss == 2.0


def test_the_lower_end_at_delta_zero_is_a_loss_that_occurs() -> None:
    """``max_loss`` is rounded up, or declared by the user: it is no lower bound."""
    with mp.workdps(40):
        for x in (0.75, 0.6, 0.5 + 1e-9):
            answer = (CustomMechanism.from_probabilities([x, 1 - x], [1 - x, x]) * 3).epsilon(delta=0.0)
            truth = 3 * mp.log(mp.mpf(x) / (1 - mp.mpf(x)))
            assert answer.lower <= truth <= answer.upper
    declared = CustomMechanism.from_profile(lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), max_loss=5.0, exact=True)
    assert declared.epsilon(delta=0.0).lower <= 1.0
    assert declared.epsilon(delta=0.0).upper >= 5.0


@pytest.mark.parametrize("common", [1e-20, 1e-16, 3e-17, 1e-10])
def test_nearly_all_of_one_law_is_where_the_other_is_not(common: float) -> None:
    """1 − rest is what is left of the other law, and is not to be had by subtraction."""
    one = CustomMechanism.from_probabilities([1.0, 0.0], [common, 1.0])
    pair = one.pairs(pc.ADD_OR_REMOVE_ONE).forward.reverse
    with mp.workdps(40):
        q = mp.mpf(common) / (1 + mp.mpf(common))
        for epsilon in (0.0, 1.0, 30.0):
            low, high = pair.bounds(epsilon)
            assert low <= 1 - q + max(q - mp.exp(epsilon), 0) <= high
    # Half of the outcomes that only Q has are left to the sample,
    # of which a test that rejects for the other one misses 1 − α.
    answer = pc.PoissonSampled(one, 0.5).beta(alpha=0.1)
    assert 0.45 - 1e-6 <= answer.lower <= 0.45 * (1 + 1e-12) <= answer.upper * (1 + 2e-12)


def test_a_leak_can_be_discretised() -> None:
    run = pc.ApproxDP(1.0, 1e-3) + pc.Gaussian(1.0)
    pld = discretize(run, 0.1)
    assert pld.infinity >= 1e-3
    assert pld.delta(0.5) >= run.delta(epsilon=0.5).upper
    assert pld.probabilities.sum() + pld.infinity >= 1


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (
            [0.0003360797853414441, 0.9279776634539366, 0.07168625676072198, 2.03e-198],
            [0.000209371055152338, 0.9280952872516889, 0.07169534169315885, 1.08e-213],
        ),
        ([1.0, 2.077e-48, 4.83e-32], [1.0, 2.076e-48, 5.0e-32]),
        ([1.0, 6.08e-44, 8.34e-93], [1.0, 6.14e-44, 1.49e-153]),
        (
            [0.49864437913304344, 0.001883, 0.49947262086695656, 9.8e-34],
            [0.4986175182573411, 0.001882, 0.4995004817426589, 1.8e-33],
        ),
    ],
)
def test_an_atom_of_more_mass_than_all_beyond_it(p: list[float], q: list[float]) -> None:
    """Where ε is its loss, the loss may be above ε by a rounding, and then counts with its mass."""
    mp.dps = 60
    laws = [[mp.mpf(x) / mp.fsum(map(mp.mpf, law)) for x in law] for law in (p, q)]

    def truth(epsilon: float) -> mp.mpf:
        return max(
            mp.fsum(max(x - mp.exp(epsilon) * y, 0) for x, y in zip(a, b, strict=True)) for a, b in (laws, laws[::-1])
        )

    mechanism = CustomMechanism.from_probabilities(p, q)
    for loss in (0.0, *(abs(math.log(x / y)) for x, y in zip(p, q, strict=True))):
        for epsilon in (loss, math.nextafter(loss, 0.0), math.nextafter(loss, math.inf)):
            assert mechanism.delta(epsilon=epsilon).upper >= truth(epsilon)
    for delta in (1e-60, 1e-160):
        assert truth(mechanism.epsilon(delta=delta).upper) <= delta
