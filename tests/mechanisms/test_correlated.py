"""Correlated noise: sensitivities against all patterns, by hand; what follows for ε; bands with cyclic Poisson."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from mpmath import mp, mpf

import privcalc as pc
from privcalc.mechanisms.correlated import bins_of, turns_of
from privcalc.strategies import (
    BLT,
    BallsInBins,
    CyclicPoisson,
    Dense,
    FixedOrder,
    MinSeparation,
    SquareRoot,
    Toeplitz,
    Tree,
    sensitivity,
)

CYCLIC = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 6), CyclicPoisson(2, 0.2))
ALL = pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT, pc.REPLACE_ONE


def allowed(steps: int, participation: MinSeparation | FixedOrder) -> list[tuple[int, ...]]:
    """Every set of steps that the participation allows, from its words."""
    if isinstance(participation, FixedOrder):
        return [
            tuple(t for t in range(steps) if t % participation.epoch == at)
            for at in range(min(participation.epoch, steps))
        ]
    most, apart = participation.most or steps, participation.separation
    return [
        pattern
        for size in range(1, most + 1)
        for pattern in itertools.combinations(range(steps), size)
        if all(b - a >= apart for a, b in itertools.pairwise(pattern))
    ]


TWELVE = {
    "independent": Toeplitz([1.0], 12),
    "bands": Toeplitz([1.0, 0.5, 0.25], 12),
    "signs": Toeplitz([1.0, -0.5, 0.25], 12),
    "root": SquareRoot(12),
    "root, cut": SquareRoot(12, 4),
    "buffers": BLT([0.3, 0.6], [0.9, 0.2], 12),
    "dense": Dense(np.tril(np.random.default_rng(0).integers(0, 9, (12, 12)), -1) + 3 * np.eye(12)),
    "dense, signs": Dense(np.tril(np.random.default_rng(1).normal(size=(12, 12)), -1) + 3 * np.eye(12)),
    "tree": Tree(12),
}
ORDERS = (
    MinSeparation(1),
    MinSeparation(1, 1),
    MinSeparation(2, 3),
    MinSeparation(3),
    MinSeparation(5, 2),
    FixedOrder(3),
    FixedOrder(5),
)


@functools.cache
def all_signs() -> np.ndarray:
    """3¹² ways to be in twelve steps, or not, with either sign; one of each with its opposite."""
    found = np.array(np.meshgrid(*[[-1, 0, 1]] * 12)).reshape(12, -1)
    return found[:, found.shape[1] // 2 + 1 :].astype(float)


@functools.cache
def takes_part(order: MinSeparation | FixedOrder) -> np.ndarray:
    """Which of them the order allows, from its words."""
    taken = all_signs() != 0
    if isinstance(order, FixedOrder):
        places = (np.arange(12) % order.epoch)[:, None]
        return np.max(np.where(taken, places, -1), axis=0) == np.min(np.where(taken, places, 99), axis=0)
    close = np.zeros(taken.shape[1], dtype=bool)
    for gap in range(1, order.separation):
        close |= np.any(taken[gap:] & taken[:-gap], axis=0)
    return ~close & (taken.sum(axis=0) <= (order.most or 12))


@pytest.mark.parametrize("kind", TWELVE)
def test_every_pattern_of_twelve_steps(kind: str) -> None:
    """Each kind of strategy and of participation, against all patterns with all signs."""
    strategy = TWELVE[kind]
    norms = np.sqrt(((strategy.matrix() @ all_signs()) ** 2).sum(axis=0))
    gram = np.abs(strategy.matrix().T @ strategy.matrix())
    for order in ORDERS:
        low, high = sensitivity(strategy, order)
        most = float(norms[takes_part(order)].max())
        assert low <= most * (1 + 1e-12)
        assert most <= high * (1 + 1e-12)
        if np.all(strategy.matrix() >= 0) and kind != "tree":
            assert high == pytest.approx(most, rel=1e-12)
        if strategy.falling is not None:
            assert high - low <= 1e-13 * high
        above = max(math.sqrt(gram[np.ix_(p, p)].sum()) for p in allowed(12, order))
        assert high == pytest.approx(above, rel=1e-12)
    columns = np.sqrt((strategy.matrix() ** 2).sum(axis=0))
    for classes in range(strategy.bands, 13):  # no row has two turns of a record: the worst column of each turn
        turns = [t.high for t in turns_of(strategy, CyclicPoisson(classes, 0.5)) for _ in range(t.uses)]
        assert sorted(turns) == pytest.approx(
            sorted(columns[at : at + classes].max() for at in range(0, 12, classes)), rel=1e-12
        )
        bins = bins_of(strategy, BallsInBins(classes))
        whole = [np.linalg.norm(strategy.matrix()[:, at::classes].sum(axis=1)) for at in range(classes)]
        assert (bins.low, bins.high) == pytest.approx((min(whole), max(whole)), rel=1e-12)
        together = np.abs(strategy.matrix()).T @ np.abs(strategy.matrix())
        for offset in range(classes):
            chosen = [(offset + strategy.bands * i) % classes for i in range(bins.slots)]
            apart = [together[s::classes, t::classes].sum() for s, t in itertools.permutations(chosen, 2)]
            assert not any(apart)


def test_bands_within_the_separation() -> None:
    """No row in common: found without a bound for companions, however many patterns there are."""
    rng = np.random.default_rng(1)
    matrix = np.zeros((24, 24))
    for d in range(3):
        matrix += np.diag(rng.normal(size=24 - d) + 3 * (d == 0), -d)
    low, high = sensitivity(Dense(matrix), MinSeparation(3, 5))
    norms = (matrix**2).sum(axis=0)
    best = max(sum(norms[list(p)]) for p in itertools.combinations(range(24), 5) if min(np.diff(p)) >= 3)
    assert low == pytest.approx(math.sqrt(best), rel=1e-12)
    assert high == pytest.approx(math.sqrt(best), rel=1e-12)


def test_coefficients_in_many_digits() -> None:
    """What rounding is said to be, is it at most."""
    with mp.workdps(50):
        for strategy, value in (
            (SquareRoot(3000), lambda i: mp.binomial(2 * i, i) / mpf(4) ** i),
            (
                BLT([0.25, 0.5, 0.2], [0.999, 0.7, 0.0], 3000),
                lambda i: (
                    mpf(i == 0) or sum(mpf(s) * mpf(d) ** (i - 1) for s, d in ((0.25, 0.999), (0.5, 0.7), (0.2, 0.0)))
                ),
            ),
        ):
            found = strategy.falling
            assert found is not None
            for i in (0, 1, 2, 3, 50, 700, 2999):
                assert abs(mpf(float(found[i])) / value(i) - 1) <= strategy.relative


@pytest.mark.parametrize("relation", ALL, ids=str)
def test_one_use_is_gaussian(relation: pc.Relation) -> None:
    strategy, participation = SquareRoot(500), MinSeparation(100)
    low, high = sensitivity(strategy, participation)
    run = pc.CorrelatedGaussian(5.0, strategy, participation)
    moves = 2 if relation is pc.REPLACE_ONE else 1
    for found, at in (
        (run.epsilon(delta=1e-6, relation=relation), 1),
        ((run * 3).epsilon(delta=1e-6, relation=relation), 3),
    ):
        for s in (low, high):
            one = (pc.Gaussian(5.0 / (s * moves)) * at).epsilon(delta=1e-6)
            assert found.lower <= one.upper
            assert one.lower <= found.upper
    group = run.epsilon(delta=1e-6, relation=relation, group_size=3)
    assert group.lower <= pc.Gaussian(5.0 / (3 * high * moves)).epsilon(delta=1e-6).upper <= group.upper * (1 + 1e-9)


def test_a_wide_sensitivity_is_a_wide_answer() -> None:
    strategy = Dense(SquareRoot(100).matrix() * np.linspace(1, 1.1, 100))
    participation = MinSeparation(15, 4)
    low, high = sensitivity(strategy, participation)
    assert low < high < 1.02 * low
    found = pc.CorrelatedGaussian(5.0, strategy, participation).epsilon(delta=1e-6)
    assert found.lower == pytest.approx(float(pc.Gaussian(5.0 / low).epsilon(delta=1e-6)), rel=1e-9)
    assert found.upper == pytest.approx(float(pc.Gaussian(5.0 / high).epsilon(delta=1e-6)), rel=1e-9)
    enough = pc.calibrate(lambda z: pc.CorrelatedGaussian(z, strategy, participation), epsilon=1.0, delta=1e-6)
    assert 1 - 1e-7 < enough.guarantee.epsilon.upper <= 1.0  # by the upper end: 1 % more noise than was needed, before


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
    found = [(n, round(m.mechanism.noise_multiplier, 9)) for m, n in odd.entries]  # type: ignore[attr-defined]
    assert found == [(2, 1.0), (1, 1.25)]
    more = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 1000), CyclicPoisson(4, 0.02))
    assert sum(n for _, n in more.simpler().entries) == 250
    every = pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 6), CyclicPoisson(2, 1.0))
    assert every.epsilon(delta=1e-6, relation=relation).upper == pytest.approx(
        pc.CorrelatedGaussian(1.25, Toeplitz([1.0, 0.75], 6), FixedOrder(2))
        .epsilon(delta=1e-6, relation=relation)
        .upper,
        rel=1e-9,
    )


def test_lower_ends_are_those_of_one_class() -> None:
    """Two classes whose columns are 1, 2 and 2, 1: no record has 2 twice, so that the lower end must not say so."""
    matrix = np.diag([1.0, 2.0, 2.0, 1.0])
    found = pc.CorrelatedGaussian(1.0, Dense(matrix), CyclicPoisson(2, 0.3)).epsilon(delta=1e-6)
    one, both = (
        pc.Run(tuple((pc.PoissonSampled(pc.Gaussian(1 / norm), 0.3), count) for norm, count in norms)).epsilon(
            delta=1e-6
        )
        for norms in (((1.0, 1), (2.0, 1)), ((2.0, 2),))
    )
    assert found.lower == pytest.approx(one.lower, rel=1e-9)
    assert found.upper == pytest.approx(both.upper, rel=1e-9)


def test_groups_in_other_classes() -> None:
    """Records of a group may be in different classes, whose rows overlap: the exact law for one class is not used."""
    run = pc.CorrelatedGaussian(4.0, Toeplitz([1.0, 0.75], 40), CyclicPoisson(2, 0.2))
    one_class = (pc.PoissonSampled(pc.Gaussian(3.2), 0.2) * 20).epsilon(delta=1e-6, group_size=2)
    assert run.epsilon(delta=1e-6, group_size=2).upper >= one_class.lower
    assert run.group(pc.ADD_OR_REMOVE_ONE, 2, 0, 2) is None


def test_balls_in_bins_without_bands() -> None:
    """No row of two bins: the random allocation itself, all epochs in the same slots."""
    found = pc.CorrelatedGaussian(3.0, Toeplitz([1.0], 60), BallsInBins(20)).epsilon(delta=1e-6)
    same = pc.RandomAllocation(pc.Gaussian(3.0), steps=20, epochs=3).epsilon(delta=1e-6)
    assert found.lower <= same.upper
    assert same.lower <= found.upper
    assert found.upper - found.lower < 1e-6


@pytest.mark.parametrize("bands", [[1.0, 0.5], [1.0, -0.6, 0.3]], ids=["two", "signed"])
def test_balls_in_bins_with_bands(bands: list[float]) -> None:
    """Contributions of one direction, columns of |C|: the simulated mixture is between the ends, in both orders."""
    strategy, bins, z = Toeplitz(bands, 12), 6, 1.5
    run = pc.CorrelatedGaussian(z, strategy, BallsInBins(bins))
    rng, number = np.random.default_rng(0), 100_000
    shifts = np.abs(strategy.matrix()).reshape(12, 2, bins).sum(axis=1).T / z  # (bins, rows)
    noise = rng.normal(size=(number, 12))
    loss = np.log(np.mean(np.exp(noise @ shifts.T - 0.5 * (shifts**2).sum(axis=1)), axis=1))
    for epsilon in (1.0,):
        removed, added = np.maximum(np.exp(loss) - math.exp(epsilon), 0), np.maximum(1 - np.exp(epsilon + loss), 0)
        most, error = max((float(x.mean()), float(x.std()) / math.sqrt(number)) for x in (removed, added))
        found = run.delta(epsilon=epsilon)
        assert found.lower <= most + 5 * error
        assert most - 5 * error <= found.upper


def test_balls_in_bins_of_contributions_that_adapt() -> None:
    """Two bins, three rows; after the first row the sign of the second bin's contribution follows a rule, after the
    second that of the first bin's next one: no rule has a larger δ than contributions that all point the same way
    (quadrature)."""
    at, weight = np.polynomial.hermite_e.hermegauss(60)
    first, second, third = np.meshgrid(at, at, at, indexing="ij")
    density = np.einsum("i,j,k->ijk", weight, weight, weight) / (2 * math.pi) ** 1.5
    matrix = np.array([[1, 0, 0], [0.7, 1, 0], [0.2, 0.5, 1]])

    def deltas(one, two) -> tuple[float, float]:
        """Bin 0 has steps 0 and 2, bin 1 step 1; contributions are 1, ``one`` of the first row, ``two`` of two rows."""

        def ratio(*rows: np.ndarray | float) -> np.ndarray:
            return np.exp(sum(d * x - d * d / 2 for d, x in zip(rows, (first, second, third), strict=True)))

        r = (ratio(1.0 + 0 * first, matrix[1, 0], matrix[2, 0] + two) + ratio(0.0, one, matrix[2, 1] * one)) / 2
        return float((density * np.maximum(r - math.e**0.5, 0)).sum()), float(
            (density * np.maximum(1 - math.e**0.5 * r, 0)).sum()
        )

    most = deltas(1.0, 1.0)
    rules = [np.where(first > cut, a, b) for cut in (-0.5, 0.0, 0.8) for a, b in ((1, -1), (-1, 1), (0, 1))]
    for one in rules:
        for two in (1.0, np.where(second > 0, 1, -1), np.where(first + second > 0, -1, 1)):
            assert all(x <= y + 1e-3 for x, y in zip(deltas(one, two), most, strict=True))
    assert max(deltas(rules[0], 1.0)) < max(most) - 1e-2


def test_more_bins_than_steps() -> None:
    """The least that occurs is nothing: of a bin without steps."""
    run = pc.CorrelatedGaussian(1.0, Toeplitz([1.0, 0.5], 3), BallsInBins(7))
    assert run.delta(epsilon=0.5).lower == 0
    found = pc.prove(run, epsilon=0.5, delta=1e-5)
    assert found.verdict == "undecided"
    assert pc.prove(run, epsilon=8.0, delta=1e-5).verdict == "proved"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense([[1, 2], [0, 1]]), "lower triangular"), (lambda: Dense([[1, 0], [1, 0]]), "singular"),
        (lambda: Dense([[1, 0], [math.nan, 1]]), "finite"), (lambda: Dense([[1.0, 0.0]]), "square"),
        (lambda: Dense([1.0]), "matrix"),
        (lambda: Dense(np.eye(5000)), "at most 4096"), (lambda: Toeplitz([0.0, 1.0], 4), "singular"),
        (lambda: Toeplitz([1.0] * 5, 4), "at most steps"), (lambda: Toeplitz([], 4), "list"),
        (lambda: Toeplitz([1e300], 4), "1e-100"),
        (lambda: SquareRoot(0), "steps"), (lambda: SquareRoot(4, 5), "diagonals = 5"),
        (lambda: Tree(10**6), "at most 4096"),
        (lambda: BLT([0.6, 0.6], [0.5, 0.5], 4), "scales"), (lambda: BLT([0.6], [1.0], 4), "decays"),
        (lambda: BLT([0.6], [0.5, 0.5], 4), "as many"), (lambda: MinSeparation(0), "separation = 0"),
        (lambda: MinSeparation(1, 0), "most = 0"), (lambda: FixedOrder(0), "epoch = 0"),
        (lambda: pc.CorrelatedGaussian(0.0, Tree(4), FixedOrder(2)), "noise_multiplier"),
        (lambda: pc.CorrelatedGaussian(1e-100, Toeplitz([1e100], 4), FixedOrder(2)), "1e-100 of the sensitivity"),
        (lambda: pc.CorrelatedGaussian(1.0, np.eye(3), FixedOrder(2)), "strategy"),  # type: ignore[arg-type]
        (lambda: pc.CorrelatedGaussian(1.0, Tree(4), 2), "participation = 2"),  # type: ignore[arg-type]
        (lambda: pc.CorrelatedGaussian(1.0, Toeplitz([1, -1], 10**5), FixedOrder(2)), "at most 4096"),
        (lambda: pc.CorrelatedGaussian(1.0, Toeplitz([1, 1, 1], 9), CyclicPoisson(2, 0.1)), "classes = 2"),
        (lambda: pc.CorrelatedGaussian(1.0, Toeplitz([1, 1, 1], 9), BallsInBins(2)), "bins = 2"),
        (lambda: pc.CorrelatedGaussian(1e-100, Toeplitz([1e100], 4), BallsInBins(2)), "1e-100 of the sensitivity"),
        (lambda: BallsInBins(0), "bins = 0"),
        (lambda: sensitivity(Toeplitz([1.0], 9), BallsInBins(2)), "must be MinSeparation"),
        (lambda: CyclicPoisson(2, 0.0), "rate"), (lambda: CyclicPoisson(0, 0.1), "classes = 0"),
        (lambda: CYCLIC.pairs(ALL[0]), "cannot be a part here"),
        (lambda: pc.PoissonSampled(CYCLIC, 0.1), "itself sampled"),
        (lambda: pc.CorrelatedGaussian(1e-100, Toeplitz([1e100], 4), CyclicPoisson(2, 0.5)),
         "1e-100 of the sensitivity"),
    ],
)  # fmt: skip
def test_refused(make, message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        make()


@pytest.mark.parametrize(
    "around",
    [
        lambda run: pc.PoissonSampled(run, rate=0.02),
        lambda run: pc.FixedSizeSampled(run, batch_size=20, dataset_size=1000),
        pc.ShuffledEpoch,
    ],
    ids=["poisson", "fixed", "shuffled"],
)
@pytest.mark.parametrize("participation", [FixedOrder(epoch=4), MinSeparation(4), BallsInBins(4)], ids=str)
def test_no_sampler_goes_around_a_whole_run(around, participation):
    """It would draw once for all steps: ε of 0.09 for 2.18, to whoever means a coin in each step."""
    run = pc.CorrelatedGaussian(4.0, Toeplitz([1.0, 0.5], 8), participation)
    with pytest.raises(pc.PrivcalcError, match=r"is a whole run, .* CyclicPoisson or BallsInBins"):
        around(run)
