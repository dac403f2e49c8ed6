"""The oracle against closed forms, printed values and a second method for each function."""

from __future__ import annotations

from typing import Any

import pytest
from cases import opposite_once, opposite_twice, quick
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


@pytest.mark.parametrize("direction", quick(DIRECTIONS, 0))
def test_contour_without_sampling_is_the_closed_gaussian(direction: ref.Order) -> None:
    for steps, eps in ((1, 3.0), (5, -2.0), (100_000, 800.0)):
        with mp.workdps(50):
            exact = ref.gaussian_delta(mp.sqrt(mpf(steps)) / 3, eps)
        assert close(ref.run_delta([(3.0, 1.0, steps)], eps, direction), exact, 20)


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


@pytest.mark.parametrize(
    "entries",
    quick([[(1.0, 0.01, 1000)], [(1.5, 0.05, 60)], [(1.0, 0.01, 500), (0.7, 0.001, 2000), (9.0, 1.0, 1)]], 0, 1),
)
def test_the_two_directions_are_one_pair_swapped(entries: list[ref.Entry]) -> None:
    remove = ref.run_delta(entries, -0.6, "remove")
    assert close(ref.run_delta(entries, 0.6, "add"), swapped(remove, 0.6), 18)


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
