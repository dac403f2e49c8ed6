"""The oracle against closed forms, printed values and a second method for each function."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from cases import PRINTED, opposite_once, opposite_twice, quick
from mpmath import mp, mpf
from reference import runs as contour
from reference import steps as ref

DIRECTIONS: tuple[ref.Order, ...] = ("remove", "add")


def close(a: mpf, b: mpf, digits: int) -> bool:
    with mp.workdps(80):
        return bool(abs(a - b) <= abs(b) * mpf(10) ** -digits)


def swapped(delta: mpf, epsilon: float) -> mpf:
    """The profile of (Q, P) at epsilon from that of (P, Q) at -epsilon."""
    with mp.workdps(80):
        return 1 - mp.exp(mpf(epsilon)) * (1 - delta)


def closed_step(z: float, q: float, epsilon: float, direction: ref.Order) -> mpf:
    """One sampled Gaussian step from the profile of the plain one."""
    with mp.workdps(60):
        mu, rate, eps = 1 / mpf(z), mpf(q), mpf(epsilon)
        if direction == "add":
            level = 1 + mp.expm1(-eps) / rate
            scale = 1 - (1 - rate) * mp.exp(eps)
            return scale * ref.gaussian_delta(mu, -mp.log(level)) if level > 0 else mpf(0)
        level = 1 + mp.expm1(eps) / rate
        return rate * ref.gaussian_delta(mu, mp.log(level)) if level > 0 else -mp.expm1(eps)


def test_gaussian_printed_values_and_round_trip() -> None:
    assert f"{float(ref.gaussian_epsilon(1, 1e-5)):.9f}" == "4.377178096"
    assert f"{float(ref.gaussian_epsilon(2, 1e-5)):.9f}" == "9.997256146"
    assert f"{float(ref.gaussian_epsilon(0.719117435, 1e-5)):.8f}" == "3.00000000"
    for mu, delta in ((1, "1e-5"), (0.001, "1e-9"), (30, "1e-100"), (3, "0.5")):
        target = mpf(delta)
        assert close(ref.gaussian_delta(mu, ref.gaussian_epsilon(mu, target)), target, 48)
    assert ref.gaussian_epsilon(0.001, 0.3) == 0


def test_gaussian_delta_is_the_integral_of_the_positive_part() -> None:
    for z, eps in ((1.0, 4.0), (0.5, -1.0), (7.0, 2.0)):
        for direction in DIRECTIONS:
            direct = ref.one_step_delta(z, 1.0, eps, direction)
            with mp.workdps(50):
                assert close(direct, ref.gaussian_delta(1 / mpf(z), eps), 30)


@pytest.mark.parametrize("direction", quick(DIRECTIONS, 0))
def test_contour_without_sampling_is_the_closed_gaussian(direction: ref.Order) -> None:
    for steps, eps in ((1, 3.0), (5, -2.0), (100_000, 800.0)):
        with mp.workdps(50):
            exact = ref.gaussian_delta(mp.sqrt(mpf(steps)) / 3, eps)
        assert close(ref.run_delta([(3.0, 1.0, steps)], eps, direction), exact, 20)


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "printed"), quick(PRINTED, 1, 5))
def test_printed_epsilon(rate: float, noise: float, steps: int, delta: float, printed: str) -> None:
    epsilon = ref.sampled_gaussian_epsilon(noise, rate, steps, delta)
    assert abs(epsilon - mpf(printed)) <= 0.51 * 10.0 ** -len(printed.split(".")[1])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("noise", quick([0.3, 1.0, 5.0], 1, 2))
def test_one_step_is_the_closed_form(noise: float, direction: ref.Order) -> None:
    for rate, eps in ((0.001, 1.0), (0.3, -0.2), (0.9, 2.0), (0.3, -3.0)):
        exact = closed_step(noise, rate, eps, direction)
        assert close(ref.one_step_delta(noise, rate, eps, direction), exact, 25)


@pytest.mark.parametrize("direction", quick(DIRECTIONS, 0))
@pytest.mark.parametrize(("noise", "rate", "eps"), quick([(6.0, 0.3, 0.05), (4.0, 0.6, -0.3)], 0))
def test_contour_is_the_quadrature_for_one_and_two_steps(
    noise: float, rate: float, eps: float, direction: ref.Order
) -> None:
    one = ref.run_delta([(noise, rate, 1)], eps, direction, 18)
    assert close(one, ref.one_step_delta(noise, rate, eps, direction), 17)
    two = ref.sampled_gaussian_delta(noise, rate, 2, eps, direction, 18)
    assert close(two, ref.two_step_delta(noise, rate, eps, direction), 17)


@pytest.mark.parametrize(("noise", "rate", "eps"), quick([(1.0, 0.3, 0.5), (0.6, 0.9, 4.0), (3.0, 0.5, 0.1)], 1))
def test_opposite_records(noise: float, rate: float, eps: float) -> None:
    """One step by its root and by the contour; two by nested quadrature; each pair is its own reverse."""
    root = ref.one_step_delta(noise, rate, eps, "replace")
    assert close(root, mpf(opposite_once(noise, rate, eps)), 9)
    assert close(root, ref.run_delta([(noise, rate, 1)], eps, "replace", 18), 17)
    assert close(root, swapped(ref.one_step_delta(noise, rate, -eps, "replace"), eps), 25)
    two = ref.run_delta([(noise, rate, 2)], eps, "replace", 18)
    assert close(two, mpf(opposite_twice(noise, rate, eps)), 8)
    assert close(two, swapped(ref.run_delta([(noise, rate, 2)], -eps, "replace", 18), eps), 16)


@pytest.mark.slow
def test_two_steps_swap_where_the_contour_is_slow() -> None:
    remove = ref.two_step_delta(0.3, 0.9, -1.5, "remove")
    assert close(ref.two_step_delta(0.3, 0.9, 1.5, "add"), swapped(remove, 1.5), 18)


@pytest.mark.parametrize(
    "entries",
    quick([[(1.0, 0.01, 1000)], [(1.5, 0.05, 60)], [(1.0, 0.01, 500), (0.7, 0.001, 2000), (9.0, 1.0, 1)]], 0, 1),
)
def test_the_two_directions_are_one_pair_swapped(entries: list[ref.Entry]) -> None:
    remove = ref.run_delta(entries, -0.6, "remove")
    assert close(ref.run_delta(entries, 0.6, "add"), swapped(remove, 0.6), 18)


@pytest.mark.parametrize("direction", quick(DIRECTIONS, 1))
def test_count_is_repetition_and_order_does_not_matter(direction: ref.Order) -> None:
    merged = ref.run_delta([(1.0, 0.1, 3), (3.0, 0.5, 2)], 0.3, direction, 12)
    single = [(1.0, 0.1, 1), (3.0, 0.5, 1), (1.0, 0.1, 1), (3.0, 0.5, 1), (1.0, 0.1, 1)]
    assert close(merged, ref.run_delta(single, 0.3, direction, 12), 11)


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"),
    quick(
        [
            (1.0, 0.01, 2000, "1e-100"),
            (0.8, 1e-5, 3_000_000, "1e-8"),
            (1.0, 1e-4, 10**9, "1e-8"),
            (5.8, 1.5e-4, 2279, "2e-24"),
        ],
        2,
    ),
)
def test_epsilon_inverts_delta(noise: float, rate: float, steps: int, delta: str) -> None:
    epsilon = ref.run_epsilon([(noise, rate, steps)], mpf(delta), "remove")
    again = ref.sampled_gaussian_delta(noise, rate, steps, epsilon, "remove", 12)
    assert close(again, mpf(delta), 12)


def test_edges() -> None:
    largest = -100 * mp.log1p(-mpf(0.01))
    assert ref.run_delta([(1.0, 0.01, 100)], largest + 1e-9, "add") == 0
    assert 0 < ref.run_delta([(4.0, 0.01, 100)], 0.4, "add") < 1e-40
    assert ref.run_epsilon([(1.0, 0.01, 100)], 0.5, "remove") == 0


@pytest.mark.parametrize(("noise", "steps"), quick([(10.0, 1000), (5.0, 40)], 1))
def test_mpmath_alone_gives_the_same_number(noise: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint")
    fast = ref.run_delta([(noise, 0.01, steps)], 0.09, "remove")
    monkeypatch.setitem(sys.modules, "flint", None)
    assert close(ref.run_delta([(noise, 0.01, steps)], 0.09, "remove"), fast, 14)


def test_slow_decay_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contour, "_MOST_NODES", 2_000)
    with pytest.raises(ArithmeticError, match="decays too slowly"):
        ref.run_delta([(0.5, 0.001, 2)], 0.1, "remove")


def test_a_line_that_disagrees_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    plan: Any = contour._plan

    def coarse(*args: Any) -> Any:
        line = plan(*args)
        return line._replace(step=5 * line.step)

    monkeypatch.setattr(contour, "_plan", coarse)
    with pytest.raises(ArithmeticError, match="no agreement"):
        ref.run_delta([(1.0, 0.01, 1000)], 1.0, "remove")


def laplace_by_recursion(scale: float, steps: int, epsilon: mpf) -> mpf:
    """E[delta of one step fewer at epsilon - L] by quadrature between its kinks."""
    with mp.workdps(30):
        if steps == 1:
            return ref.laplace_delta(scale, epsilon)
        a, eps = 1 / mpf(scale), mpf(epsilon)

        def fewer(loss: mpf) -> mpf:
            return laplace_by_recursion(scale, steps - 1, eps - loss)

        knots = [eps + k * a for k in range(-2 * steps, 2 * steps + 1)]
        ends = [-a, *[x for x in knots if -a < x < a], a]
        middle = mp.quad(lambda x: mp.exp((x - a) / 2) / 4 * fewer(x), ends, method="gauss-legendre", maxdegree=3)
        return fewer(a) / 2 + mp.exp(-a) / 2 * fewer(-a) + middle


@pytest.mark.parametrize("scale", quick([0.5, 1.0, 40.0], 1))
def test_laplace(scale: float) -> None:
    for part in (-1.2, -0.4, 0.0, 0.7, 1.1):
        eps = part / scale
        one = ref.laplace_composition_delta(scale, 1, eps)
        assert abs(one - ref.laplace_delta(scale, eps)) < 1e-40
        for steps in (2, 3):
            exact = ref.laplace_composition_delta(scale, steps, steps * eps)
            assert abs(exact - laplace_by_recursion(scale, steps, steps * eps)) < 1e-18
        six = ref.laplace_composition_delta(scale, 6, -6 * eps)
        assert abs(ref.laplace_composition_delta(scale, 6, 6 * eps) - swapped(six, 6 * eps)) < 1e-30


@pytest.mark.parametrize("direction", quick(DIRECTIONS, DIRECTIONS.index("add")))
def test_several_epsilons_at_once(direction: ref.Order) -> None:
    """Against the closed form of plain Gaussians, far apart and in any order; and one by one where they are sampled."""
    points = [3.0, 0.0, 5.5, 0.25, 9.0]
    plain = ref.run_deltas([(2.0, 1.0, 9)], points, direction, 16)
    assert all(close(found, ref.gaussian_delta(mpf(3) / 2, e), 15) for found, e in zip(plain, points, strict=True))
    sampled = [(1.0, 0.05, 400)]
    found = ref.run_deltas(sampled, [2.0, 25.0, 0.5] if direction == "add" else [2.0, 0.5], direction, 16)
    assert close(found[0], ref.run_delta(sampled, 2.0, direction, 20), 15)
    assert close(found[-1], ref.run_delta(sampled, 0.5, direction, 20), 15)
    if direction == "add":
        assert found[1] == 0  # beyond the largest loss


@pytest.mark.parametrize(
    ("entries", "epsilon", "direction"),
    [
        ([(2.0, 1.0, 9)], 3.0, "remove"),
        ([(1.0, 0.01, 1000)], 2.0, "remove"),
        ([(1.0, 0.01, 1000)], 2.0, "add"),
        ([(1.0, 0.5, 10)], 6.0, "add"),
        ([(0.5, 0.9, 30), (3.0, 1.0, 2)], 30.0, "add"),
        ([(3.0, 0.05, 300), (20.0, 1.0, 5)], 1.0, "replace"),
    ],
    ids=str,
)
def test_the_moment_bound_is_above_and_near(entries: list[ref.Entry], epsilon: float, direction: ref.Direction) -> None:
    (bound,) = ref.run_bounds(entries, [epsilon], direction)
    delta = ref.run_delta(entries, epsilon, direction, 16)
    assert delta <= bound
    assert bound <= 10 * delta ** mpf("0.9")


@pytest.mark.parametrize(
    ("entries", "epsilon"),
    [([(1.0, 0.5, 10)], 6.95), ([(1e4, 1e-3, 10**9)], 1e-3), ([(1e-3, 0.01, 3)], 5e5)],
    ids=str,
)
def test_the_moment_bound_says_nothing_where_it_cannot_tell(entries: list[ref.Entry], epsilon: float) -> None:
    """Beyond the largest loss; where rounding counts; where the points lie too densely."""
    assert ref.run_bounds(entries, [epsilon], "add") == [1.0]


def test_the_moment_bound_is_never_zero() -> None:
    assert ref.run_bounds([(100.0, 1.0, 1)], [60.0], "remove") == [5e-324]
