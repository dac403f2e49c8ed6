"""Correlated noise: sensitivities against all patterns, by hand; what follows for ε; bands with cyclic Poisson sampling."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import privcalc as pc
from privcalc.certificate.certificate import certify
from privcalc.serial import mechanism_from_json, mechanism_to_json
from privcalc.strategies import (
    BLT,
    CyclicPoisson,
    Dense,
    FixedOrder,
    MinSeparation,
    SquareRoot,
    Strategy,
    Toeplitz,
    Tree,
    sensitivity,
)
from privcalc.strategies.patterns import _bounds

CYCLIC = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 6), CyclicPoisson(2, 0.2))
ALL = pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT, pc.REPLACE_ONE


def allowed(steps: int, participation: MinSeparation | FixedOrder) -> list[tuple[int, ...]]:
    """Every set of steps that the participation allows, from its words."""
    if isinstance(participation, FixedOrder):
        return [tuple(t for t in range(steps) if t % participation.epoch == at) for at in range(min(participation.epoch, steps))]
    most, apart = participation.most or steps, participation.separation
    return [
        pattern
        for size in range(1, most + 1)
        for pattern in itertools.combinations(range(steps), size)
        if all(b - a >= apart for a, b in itertools.pairwise(pattern))
    ]


def brute(matrix: np.ndarray, participation: MinSeparation | FixedOrder) -> tuple[float, float]:
    """The largest norm over all patterns with all signs, and the largest Σ |G_st|, in fractions but for the root."""
    rows = [[Fraction(float(x)) for x in row] for row in matrix]
    steps = matrix.shape[1]
    gram = [[sum(row[s] * row[t] for row in rows) for t in range(steps)] for s in range(steps)]
    occurs = above = Fraction(0)
    for pattern in allowed(steps, participation):
        above = max(above, sum(abs(gram[s][t]) for s in pattern for t in pattern))
        for signs in itertools.product((1, -1), repeat=len(pattern) - 1):
            pairs = list(zip(pattern, (1, *signs), strict=True))
            occurs = max(occurs, sum(gram[s][t] * a * b for s, a in pairs for t, b in pairs))
    return math.sqrt(occurs), math.sqrt(above)


matrices = st.integers(2, 7).flatmap(
    lambda n: st.lists(st.lists(st.integers(-4, 4), min_size=n, max_size=n), min_size=n, max_size=n).map(
        lambda rows: np.tril(np.array(rows, dtype=float), -1) + np.diag(1.0 + np.abs(np.diag(rows)))
    )
)
participations = st.one_of(
    st.builds(MinSeparation, st.integers(1, 4), st.none() | st.integers(1, 4)), st.integers(1, 4).map(FixedOrder)
)


@given(matrices, participations, st.booleans())
@example(np.array([[1.0, 0, 0], [-1, 1, 0], [1, -1, 1]]), MinSeparation(1), False)
@settings(max_examples=60 if SLOW else 20, deadline=None)
def test_all_patterns(matrix: np.ndarray, participation: MinSeparation | FixedOrder, positive: bool) -> None:
    """Both ends are right, and agree where CᵀC ≥ 0."""
    matrix = np.abs(matrix) if positive else matrix
    low, high = sensitivity(Dense(matrix), participation)
    occurs, above = brute(matrix, participation)
    assert low <= occurs * (1 + 1e-15)
    assert occurs <= high * (1 + 1e-15)
    assert high == pytest.approx(above, rel=1e-12)
    if positive:
        assert low == pytest.approx(occurs, rel=1e-12)


@given(matrices, st.builds(MinSeparation, st.integers(1, 4), st.none() | st.integers(1, 4)))
@settings(max_examples=40 if SLOW else 15, deadline=None)
def test_where_patterns_are_many(matrix: np.ndarray, participation: MinSeparation) -> None:
    """The bound by the worst companions, asked where all patterns can be tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privcalc.strategies.patterns._MOST_PATTERNS", -1)
        low, high = _bounds.__wrapped__(Dense(matrix), participation)
    occurs, _ = brute(matrix, participation)
    assert low <= occurs * (1 + 1e-15)
    assert occurs <= high * (1 + 1e-15)


@pytest.mark.parametrize(
    "strategy", [Toeplitz([1, 0.7, 0.2], 9), SquareRoot(9), SquareRoot(9, 3), BLT([0.3, 0.6], [0.9, 0.2], 9)], ids=str
)
@pytest.mark.parametrize("participation", [MinSeparation(1), MinSeparation(2, 3), MinSeparation(3), FixedOrder(4)], ids=str)
def test_columns_that_fall(strategy: Strategy, participation: MinSeparation | FixedOrder) -> None:
    low, high = sensitivity(strategy, participation)
    occurs, _ = brute(strategy.matrix(), participation)
    assert low <= occurs * (1 + 1e-14)
    assert occurs <= high * (1 + 1e-14)
    assert high - low <= 1e-13 * high


def test_bands_within_the_separation() -> None:
    """No row in common: found without a bound for companions, however many patterns there are."""
    rng = np.random.default_rng(1)
    matrix = np.zeros((40, 40))
    for d in range(3):
        matrix += np.diag(rng.normal(size=40 - d) + 3 * (d == 0), -d)
    low, high = sensitivity(Dense(matrix), MinSeparation(3, 5))
    norms = (matrix**2).sum(axis=0)
    best = max(sum(norms[list(p)]) for p in itertools.combinations(range(40), 5) if min(np.diff(p)) >= 3)
    assert low == pytest.approx(math.sqrt(best), rel=1e-12)
    assert high == pytest.approx(math.sqrt(best), rel=1e-12)


@pytest.mark.parametrize("separation", [1, 2])
def test_patterns_of_many_steps(separation: int) -> None:
    """However many: 1 and below it −½ in every column, the last one's left out."""
    steps = 1060 * separation
    low, high = sensitivity(Dense(np.eye(steps) - 0.5 * np.eye(steps, k=-1)), MinSeparation(separation))
    # Signs that alternate, so that neighbours add up; two steps apart there are none.
    exact = math.sqrt(1 + 1059 * 1.5**2 if separation == 1 else 1060 * 1.25)
    assert low == pytest.approx(exact, rel=1e-12)
    assert low <= exact * (1 + 1e-15)
    assert exact <= high * (1 + 1e-15)
    assert high == pytest.approx(exact, rel=1e-8)


def test_coefficients_in_many_digits() -> None:
    """What rounding is said to be, is it at most."""
    with mp.workdps(50):
        for strategy, value in (
            (SquareRoot(3000), lambda i: mp.binomial(2 * i, i) / mpf(4) ** i),
            (
                BLT([0.25, 0.5, 0.2], [0.999, 0.7, 0.0], 3000),
                lambda i: mpf(i == 0) or sum(mpf(s) * mpf(d) ** (i - 1) for s, d in ((0.25, 0.999), (0.5, 0.7), (0.2, 0.0))),
            ),
        ):
            found = strategy.falling
            assert found is not None
            for i in (0, 1, 2, 3, 50, 700, 2999):
                assert abs(mpf(float(found[i])) / value(i) - 1) <= strategy.relative


def test_known_numbers() -> None:
    """Tree: 1 + log₂ T blocks a step, all steps: Σ (block sizes)². All-ones columns. Independent noise: √k."""
    assert sensitivity(Tree(16), MinSeparation(1, 1)) == pytest.approx((math.sqrt(5),) * 2, rel=1e-12)
    assert sensitivity(Tree(8), MinSeparation(1)) == pytest.approx((math.sqrt(8 + 4 * 4 + 2 * 16 + 64),) * 2, rel=1e-12)
    assert sensitivity(Toeplitz([1.0], 10**6), MinSeparation(1000, 7)) == pytest.approx((math.sqrt(7),) * 2, rel=1e-12)
    assert sensitivity(Toeplitz([1.0] * 50, 50), MinSeparation(1, 1)) == pytest.approx((math.sqrt(50),) * 2, rel=1e-12)
    # Honaker's case of HOUSEHOLDS: 6 steps have the blocks 1 (six), 2 (three), 4 (one)
    assert Tree(6).matrix().sum(axis=0).tolist() == [3, 3, 3, 3, 2, 2]


@pytest.mark.parametrize("relation", ALL, ids=str)
def test_one_use_is_gaussian(relation: pc.Relation) -> None:
    strategy, participation = SquareRoot(500), MinSeparation(100)
    low, high = sensitivity(strategy, participation)
    run = pc.CorrelatedGaussian(5.0, strategy, participation)
    moves = 2 if relation is pc.REPLACE_ONE else 1
    for found, at in ((run.epsilon(delta=1e-6, relation=relation), 1), ((run * 3).epsilon(delta=1e-6, relation=relation), 3)):
        for s in (low, high):
            one = (pc.Gaussian(5.0 / (s * moves)) * at).epsilon(delta=1e-6)
            assert found.lower <= one.upper
            assert one.lower <= found.upper
    group = run.epsilon(delta=1e-6, relation=relation, records=3)
    assert group.lower <= pc.Gaussian(5.0 / (3 * high * moves)).epsilon(delta=1e-6).upper <= group.upper * (1 + 1e-9)


def test_a_wide_sensitivity_is_a_wide_answer() -> None:
    strategy = Dense(SquareRoot(200).matrix() * np.linspace(1, 1.1, 200))
    participation = MinSeparation(30, 4)
    low, high = sensitivity(strategy, participation)
    assert low < high < 1.02 * low
    found = pc.CorrelatedGaussian(5.0, strategy, participation).epsilon(delta=1e-6)
    assert found.lower == pytest.approx(float(pc.Gaussian(5.0 / low).epsilon(delta=1e-6)), rel=1e-9)
    assert found.upper == pytest.approx(float(pc.Gaussian(5.0 / high).epsilon(delta=1e-6)), rel=1e-9)


@pytest.mark.parametrize("relation", ALL, ids=str)
def test_cyclic_poisson(relation: pc.Relation) -> None:
    """As many sampled Gaussians as a class has turns, with the norm of a column; the last column may be cut."""
    run = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 1000), CyclicPoisson(2, 0.02))
    same = (pc.PoissonSampled(pc.Gaussian(1.0), 0.02) * 500).epsilon(delta=1e-6, relation=relation)
    found = run.epsilon(delta=1e-6, relation=relation)
    assert found.lower <= same.upper
    assert same.lower <= found.upper
    assert found.upper - found.lower < 1e-9
    odd = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 5), CyclicPoisson(2, 0.02)).simpler()
    assert [(n, round(m.mechanism.noise_multiplier, 9)) for m, n in odd.entries] == [(2, 1.0), (1, 1.25)]  # type: ignore[attr-defined]
    more = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 1000), CyclicPoisson(4, 0.02))
    assert sum(n for _, n in more.simpler().entries) == 250
    every = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 6), CyclicPoisson(2, 1.0))
    assert every.epsilon(delta=1e-6, relation=relation).upper == pytest.approx(
        pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 6), FixedOrder(2)).epsilon(delta=1e-6, relation=relation).upper,
        rel=1e-9,
    )


def test_lower_ends_are_those_of_one_class() -> None:
    """Two classes whose columns are 1, 2 and 2, 1: no record has 2 twice, so that the lower end must not say so."""
    matrix = np.diag([1.0, 2.0, 2.0, 1.0])
    found = pc.CorrelatedGaussian(1.0, Dense(matrix), CyclicPoisson(2, 0.3)).epsilon(delta=1e-6)
    one, both = (
        pc.Run(tuple((pc.PoissonSampled(pc.Gaussian(1 / norm), 0.3), count) for norm, count in norms)).epsilon(delta=1e-6)
        for norms in (((1.0, 1), (2.0, 1)), ((2.0, 2),))
    )
    assert found.lower == pytest.approx(one.lower, rel=1e-9)
    assert found.upper == pytest.approx(both.upper, rel=1e-9)


def test_groups_in_other_classes() -> None:
    """Records of a group may be in different classes, whose rows overlap: the exact law for one class is not used."""
    run = pc.CorrelatedGaussian(4.0, Toeplitz([1.0, 0.75], 40), CyclicPoisson(2, 0.2))
    one_class = (pc.PoissonSampled(pc.Gaussian(3.2), 0.2) * 20).epsilon(delta=1e-6, records=2)
    assert run.epsilon(delta=1e-6, records=2).upper >= one_class.lower
    assert run.group(pc.ADD_OR_REMOVE_ONE, 2, 0) is None


def test_proved_and_told_to_others() -> None:
    """The rigorous route, and dp-accounting's events, know of the same steps."""
    events = pytest.importorskip("dp_accounting")
    from privcalc.interop.dp_accounting import to_event

    cyclic = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 40), CyclicPoisson(2, 0.05))
    whole = pc.CorrelatedGaussian(4.0, SquareRoot(100), MinSeparation(25))
    for run in (cyclic, whole):
        answer = run.epsilon(delta=1e-6)
        assert pc.prove(run, epsilon=answer.upper * (1 + 1e-6), delta=1e-6).verdict == "proved"
        assert pc.prove(run, epsilon=answer.lower * (1 - 1e-6), delta=1e-6).verdict == "refuted"
    event = to_event(cyclic)
    assert isinstance(event, events.SelfComposedDpEvent)
    assert event.count == 20
    assert isinstance(to_event(whole), events.GaussianDpEvent)


def test_written_down_and_certified() -> None:
    for strategy in (Toeplitz([1, 0.5], 9), SquareRoot(9, 4), BLT([0.5], [0.5], 9), Dense([[1, 0], [-1, 2]]), Tree(9)):
        for participation in (MinSeparation(2, 3), MinSeparation(2), FixedOrder(2), CyclicPoisson(strategy.bands, 0.1)):
            mechanism = pc.CorrelatedGaussian(3.0, strategy, participation)
            assert mechanism_from_json(mechanism_to_json(mechanism)) == mechanism
    with pytest.raises(pc.PrivcalcError, match="must be a mechanism, not a part of one"):
        mechanism_from_json({"kind": "Tree", "steps": 3})
    with pytest.raises(pc.PrivcalcError, match="strategy"):
        mechanism_from_json({"kind": "CorrelatedGaussian", "noise_multiplier": 1.0, "strategy": 3, "participation": None})
    found = certify(pc.CorrelatedGaussian(3.0, Toeplitz([1, 0.5], 9), MinSeparation(3)), delta=1e-6)
    found.verify()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense([[1, 2], [0, 1]]), "lower triangular"), (lambda: Dense([[1, 0], [1, 0]]), "singular"),
        (lambda: Dense([[1, 0], [math.nan, 1]]), "finite"), (lambda: Dense([[1.0, 0.0]]), "square"),
        (lambda: Dense([1.0]), "matrix"),
        (lambda: Dense(np.eye(5000)), "at most 4096"), (lambda: Toeplitz([0.0, 1.0], 4), "singular"),
        (lambda: Toeplitz([1.0] * 5, 4), "at most steps"), (lambda: Toeplitz([], 4), "list"),
        (lambda: Toeplitz([1e300], 4), "1e-100"),
        (lambda: SquareRoot(0), "steps"), (lambda: SquareRoot(4, 5), "diagonals = 5"), (lambda: Tree(10**6), "at most 4096"),
        (lambda: BLT([0.6, 0.6], [0.5, 0.5], 4), "scales"), (lambda: BLT([0.6], [1.0], 4), "decays"),
        (lambda: BLT([0.6], [0.5, 0.5], 4), "as many"), (lambda: MinSeparation(0), "separation = 0"),
        (lambda: MinSeparation(1, 0), "most = 0"), (lambda: FixedOrder(0), "epoch = 0"),
        (lambda: pc.CorrelatedGaussian(0.0, Tree(4), FixedOrder(2)), "noise_multiplier"),
        (lambda: pc.CorrelatedGaussian(1e-100, Toeplitz([1e100], 4), FixedOrder(2)), "1e-100 of the sensitivity"),
        (lambda: pc.CorrelatedGaussian(1.0, np.eye(3), FixedOrder(2)), "strategy"),  # type: ignore[arg-type]
        (lambda: pc.CorrelatedGaussian(1.0, Tree(4), 2), "participation = 2"),  # type: ignore[arg-type]
        (lambda: pc.CorrelatedGaussian(1.0, Toeplitz([1, -1], 10**5), FixedOrder(2)), "at most 4096"),
        (lambda: pc.CorrelatedGaussian(1.0, Toeplitz([1, 1, 1], 9), CyclicPoisson(2, 0.1)), "classes = 2"),
        (lambda: CyclicPoisson(2, 0.0), "rate"), (lambda: CyclicPoisson(0, 0.1), "classes = 0"),
        (lambda: CYCLIC.pairs(ALL[0]), "cannot be a part here"), (lambda: pc.PoissonSampled(CYCLIC, 0.1), "itself sampled"),
        (lambda: pc.CorrelatedGaussian(1e-100, Toeplitz([1e100], 4), CyclicPoisson(2, 0.5)), "1e-100 of the sensitivity"),
    ],
)  # fmt: skip
def test_refused(make, message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        make()
