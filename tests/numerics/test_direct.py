"""The direct route: containment, width, overlap with the other routes, and that each safeguard is needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import quick
from mpmath import mp, mpf
from reference import steps as reference
from scipy.special import log_ndtr

from privcalc.numerics.interfaces import RouteFailed
from privcalc.numerics.routes import contour, direct, lattice
from privcalc.numerics.routes.direct import Direct, Law, power
from privcalc.numerics.solve import crossing
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair
from privcalc.pairs.poisson import JointConvexityPair, SampledPair

PairCounts = list[tuple[Pair, int]]

RARE = [
    (1.42028, 0.000181874, 2, 2.2e-99),
    (2.54505, 3.54108e-05, 9, 4.4e-72),
    (1.31434, 0.00146399, 55, 4.56e-19),
    (1.62408, 0.000171422, 261, 2.2e-64),
]


def sampled(z: float, q: float, *, add: bool = False) -> SampledPair:
    return SampledPair(GaussianPair(1 / z), q, add)


def one_step(z: float, q: float, epsilon: float, *, add: bool) -> mpf:
    with mp.workdps(50):
        return reference._one_step(mpf(z), mpf(q), mp.exp(mpf(epsilon)), "add" if add else "remove")


def epsilon_bounds(entries: PairCounts, delta: float) -> tuple[float, float]:
    built, guess = direct.build(entries, delta=delta)
    return crossing(built.bounds, delta, guess, 0.0, math.inf)


def rounded_bracket(z: float, q: float, steps: int, delta: float, reach: float, points: int) -> tuple[float, float]:
    """ε from rounding every loss of the remove direction down, and up, to a grid: independent of the engine's laws."""
    grid = reach / points
    first = math.floor(math.log1p(-q) / grid)
    edges = np.arange(first, points + 1) * grid
    with np.errstate(divide="ignore", invalid="ignore"):
        x = 0.5 + z * z * np.log(np.maximum((np.expm1(edges) + q) / q, 0.0))
        logs = [np.log1p(-q) + log_ndtr(-x / z), np.log(q) + log_ndtr((1 - x) / z)]
    tails = [np.exp(v) for v in logs]
    mass = sum(t[:-1] - t[1:] for t in tails)
    beyond = float(tails[0][-1] + tails[1][-1])

    def epsilon(start: int, infinity: float) -> float:
        m, i, lost, base = mass, start, infinity, mass
        for _ in range(steps - 1):
            lost += infinity
            m, i = np.convolve(m, base), i + start
            lost += float(m[points + 1 - i :].sum()) if infinity else 0.0
            m = m[: points + 1 - i]
        losses = (i + np.arange(m.size)) * grid
        low, high = 0.0, reach
        for _ in range(60):
            middle = 0.5 * (low + high)
            over = losses > middle
            value = lost + float(m[over] @ -np.expm1(middle - losses[over]))
            low, high = (middle, high) if value > delta else (low, middle)
        return low

    return epsilon(first, 0.0), epsilon(first + 1, beyond)


@pytest.mark.parametrize(("z", "q", "steps", "delta"), RARE)
def test_rare_jumps_are_narrow(z: float, q: float, steps: int, delta: float) -> None:
    left, right = epsilon_bounds([(sampled(z, q), steps)], delta)
    assert 0 < left <= right
    assert right - left < 1e-3 * right


@pytest.mark.parametrize("where", quick(["right", "left", 0.5], 0))
def test_two_steps_contain_quadrature(where: str | float) -> None:
    z, q, steps, delta = RARE[0]
    left, right = epsilon_bounds([(sampled(z, q), steps)], delta)
    epsilon = {"left": left, "right": right}.get(str(where), 0.5)
    truth = reference.two_step_delta(z, q, epsilon, "remove")
    if where == "left":
        assert truth >= delta
    elif where == "right":
        assert truth <= delta
    built, _ = direct.build([(sampled(z, q), steps)], delta=delta)
    low, high = built.bounds(epsilon)
    assert low <= truth <= high


def test_add_direction_contains_quadrature() -> None:
    z, q, epsilon = 1.0, 0.01, 0.015
    built, _ = direct.build([(sampled(z, q, add=True), 2)], epsilon=epsilon)
    low, high = built.bounds(epsilon)
    truth = reference.two_step_delta(z, q, epsilon, "add")
    assert low <= truth <= high
    assert high < 1.02 * low


@pytest.mark.parametrize(("case", "reach"), [(RARE[0], 7.5), (RARE[1], 0.055)])
def test_overlaps_with_rounded_losses(case: tuple[float, float, int, float], reach: float) -> None:
    z, q, steps, delta = case
    left, right = epsilon_bounds([(sampled(z, q), steps)], delta)
    low, high = rounded_bracket(z, q, steps, delta, reach, 10_000)
    assert left <= high
    assert low <= right
    assert high - low < 2e-3 * high


@pytest.mark.parametrize(
    ("entries", "delta"),
    [
        ([(sampled(1.0, 0.01), 100)], 1e-6),
        ([(sampled(1.0, 0.01, add=True), 100)], 1e-6),
        ([(GaussianPair(0.3), 10)], 1e-6),
        ([(GaussianPair(0.3), 7), (sampled(1.0, 0.001), 13)], 1e-12),
    ],
)
def test_overlaps_with_other_routes(entries: PairCounts, delta: float) -> None:
    left, right = epsilon_bounds(entries, delta)
    assert right - left < 1e-3 * right
    by_lattice, guess = lattice.build(entries, delta=delta)
    answers = [crossing(by_lattice.bounds, delta, guess, 0.0, math.inf)]
    transforms = [(pair.transform, count) for pair, count in entries]
    by_contour, guess = contour.build([(t, n) for t, n in transforms if t is not None], delta=delta)
    answers.append(crossing(by_contour.bounds, delta, guess, 0.0, math.inf))
    for low, high in answers:
        assert left <= high
        assert low <= right


def test_both_questions_agree() -> None:
    z, q, steps, delta = RARE[1]
    left, right = epsilon_bounds([(sampled(z, q), steps)], delta)
    built, estimate = direct.build([(sampled(z, q), steps)], epsilon=right, known=(left, right))
    low, high = built.bounds(right)
    assert low <= delta
    assert low <= estimate <= 1.01 * high
    assert high < 1.01 * low


def test_bounds_are_monotone_and_contain_each_other() -> None:
    coarse = direct._at([(sampled(1.0, 0.001), 20)], 3.0, 512, 1e-12, 10.0)
    fine = direct._at([(sampled(1.0, 0.001), 20)], 3.0, 4096, 1e-12, 10.0)
    before = (1.0, 1.0)
    for epsilon in np.linspace(-0.5, 3.2, 301).tolist():
        low, high = fine.bounds(epsilon)
        assert 0 <= low <= high <= 1
        assert coarse.bounds(epsilon)[0] <= high
        assert low <= coarse.bounds(epsilon)[1]
        assert low <= before[0] * (1 + 1e-9)
        assert high <= before[1] * (1 + 1e-9)
        before = (low, high)


ONE_USE = [(1.0, 0.01, 0.05), (2.0, 1e-4, 0.001), (0.7, 0.3, 0.1), (1.0, 0.01, 0.003)]


def one_use(z: float, q: float, spacing: float, *, add: bool) -> tuple[Direct, Law, Law]:
    exact = round(spacing * 2**30) / 2**30
    upper, lower = direct._laws(sampled(z, q, add=add), 5.0, exact, -40.0, -25.0)
    return Direct(exact, upper, lower, upper.profile(exact), lower.profile(exact)), upper, lower


@pytest.mark.parametrize(("z", "q", "spacing"), ONE_USE)
@pytest.mark.parametrize("add", [False, True])
def test_laws_of_one_use_contain_the_profile(z: float, q: float, spacing: float, add: bool) -> None:
    built, *_ = one_use(z, q, spacing, add=add)
    for k in (-40.3, -7.0, -3.5, -1.5, -1.0, -0.7, -0.3, -0.01, 0.0, 0.01, 0.3, 0.5, 1.0, 1.7, 2.0, 5.4, 11.0, 23.9):
        truth = one_step(z, q, k * built.spacing, add=add)
        low, high = built.bounds(k * built.spacing)
        assert low <= truth <= high


def test_mutations_fail() -> None:
    z, q, epsilon = 1.0, 0.001, 0.37
    truth = reference.two_step_delta(z, q, epsilon, "remove")
    good = direct._at([(sampled(z, q), 2)], 2.0, 512, 1e-9, 10.0)
    assert good.bounds(epsilon)[0] <= truth <= good.bounds(epsilon)[1]
    # The upper law without its chords, the lower one with them.
    swapped = Direct(good.spacing, good.lower, good.upper, good.low, good.high)
    low, high = swapped.bounds(epsilon)
    assert not low <= truth
    assert not truth <= high
    # Losses at the lattice points below them: no upper law.
    down = Law(good.upper.first - 2, good.upper.mass, good.upper.infinity)
    shifted = Direct(good.spacing, down, good.lower, good.high, good.low)
    assert not truth <= shifted.bounds(epsilon)[1]


def test_certificate_repairs_bad_masses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the masses are, the scaled law contains the profile."""
    masses = direct._masses
    monkeypatch.setattr(direct, "_masses", lambda hull, spacing: masses(hull, spacing) * 0.9)
    built, *_ = one_use(1.0, 0.01, 0.05, add=False)
    assert built.bounds(0.32)[1] >= one_step(1.0, 0.01, 0.32, add=False)
    monkeypatch.setattr(Law, "scaled", lambda law, _: law)
    built, *_ = one_use(1.0, 0.01, 0.05, add=False)
    assert built.bounds(0.32)[1] < one_step(1.0, 0.01, 0.32, add=False)


def test_truncation_is_safe() -> None:
    """A narrow window and a large share on the left only widen the answer."""
    upper, lower = direct._laws(sampled(1.0, 0.05), 5.0, 0.015625, -30.0, -30.0)
    truth = reference.two_step_delta(1.0, 0.05, 0.5, "remove")
    for last, share in ((40, 0.1), (60, 1e-3), (400, 1e-9)):
        laws = [power(law, 2, last, share, upper=which) for law, which in ((upper, True), (lower, False))]
        built = Direct(0.015625, laws[0], laws[1], laws[0].profile(0.015625), laws[1].profile(0.015625))
        low, high = built.bounds(0.5)
        assert low <= truth <= high


def test_a_bound_has_no_lower_law() -> None:
    entries: PairCounts = [(JointConvexityPair(GaussianPair(1.0), GaussianPair(2.0), 0.01), 3)]
    built, guess = direct.build(entries, delta=1e-8)
    assert built.bounds(guess)[0] == 0
    by_lattice, _ = lattice.build(entries, delta=1e-8)
    assert built.bounds(5.0)[1] >= by_lattice.bounds(5.0)[0]


def test_out_of_reach_is_refused() -> None:
    with pytest.raises(RouteFailed):
        direct.build([(sampled(1.0, 0.01), 3)], delta=1e-250)
    with pytest.raises(RouteFailed):
        direct.build([(GaussianPair(50.0), 100)], delta=1e-5)
