"""The sum of Laplace losses against truncated powers in 60 digits, and those against quadrature over the noise."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import binomial, exp, factorial, mp, mpf, quad  # type: ignore[import-untyped]

from privcalc.mechanisms.thresholded_counts import LaplaceSumPair
from privcalc.numerics.floats import UNIT
from privcalc.numerics.laplace_sum import laplace_sum_profile


@functools.cache
def _coefficients(count: int, down: int) -> list[mpf]:
    """Of (1 + w)^{m − i}(1 − w)^i."""
    found = [mpf(0)] * (count + 1)
    for p in range(count - down + 1):
        for q in range(down + 1):
            found[p + q] += binomial(count - down, p) * binomial(down, q) * (-1) ** q
    return found


def truth(a, count: int, epsilon) -> mpf:
    """δ(ε), any real ε: y the loss below ma, P's transform is [½(1 + 1/2s) + ½e^{−2as}(1 − 1/2s)]^m under e^{y/2}."""
    total, eta = mpf(0), count * mpf(a) - mpf(epsilon)
    for down in range(count + 1):
        z = eta - 2 * mpf(a) * down
        if z <= 0:
            break
        inner = _coefficients(count, down)[0] * (1 - exp(-z))
        series = [(z / 2) ** k / factorial(k) for k in range(int(100 + 3 * z))]
        for j in range(1, count + 1):
            # ∫_0^z (e^{−x/2} − e^{x/2 − z})x^{j−1} dx/(j − 1)!
            even, odd = (sum(term / (j + k) for k, term in enumerate(series) if k % 2 == r) for r in (0, 1))
            rise = (even - odd - exp(-z) * (even + odd)) * z**j / factorial(j - 1)
            inner += _coefficients(count, down)[j] / mpf(2) ** j * rise
        total += binomial(count, down) * exp(-mpf(a) * down) * inner
    return total / mpf(2) ** count


def by_noise(a, count: int, epsilon) -> mpf:
    """The same by nested quadrature over Laplace noise around a, of one number after the other."""
    if epsilon >= count * a:
        return mpf(0)
    if count == 0:
        return 1 - exp(epsilon)

    def inner(x):
        return by_noise(a, count - 1, epsilon - (abs(x) - abs(x - a)))

    knots = sorted({mpf(0), a, *(x for k in range(-count, count + 1) if 0 < (x := (epsilon + k * a + a) / 2) < a)})
    inside = quad(lambda x: exp(x - a) / 2 * inner(x), knots)
    return inside + inner(a) / 2 + inner(mpf(0)) * exp(-a) / 2


@pytest.mark.parametrize(("a", "count"), [(1.0, 2), (4.0, 2)])
def test_the_truth_is_that_of_the_noise(a, count):
    with mp.workdps(15):
        for share in (0.0, 0.2, 0.7):
            epsilon = share * count * mpf(a)
            assert abs(by_noise(mpf(a), count, epsilon) / truth(a, count, epsilon) - 1) < mpf(10) ** -10


@given(st.floats(1e-3, 60), st.integers(1, 6), st.lists(st.floats(0, 1), min_size=1, max_size=2))
@example(1.0, 2, [0.0, 0.25, 0.5, 0.75, 0.95, 1.0])
@example(29.0, 2, [0.0, 0.3, 0.999999])
@example(30.0, 6, [0.0, 0.3, 0.8])
@example(100.0, 3, [0.01, 0.7])
@example(0.01, 40, [0.3])
@example(1.0, 128, [0.98])
@settings(max_examples=120 if SLOW else 5, deadline=None)
def test_every_digit_is_proved(a, count, shares):
    epsilon = np.array([share * count * a for share in shares])
    delta, tail, error = laplace_sum_profile(a, count, epsilon)
    with mp.workdps(60 + int(2 * a * count)):
        for x, d, t, e in zip(epsilon.tolist(), delta.tolist(), tail.tolist(), error.tolist(), strict=True):
            for near in (a * (1 - UNIT), a * (1 + UNIT)):  # a is 1/b, rounded
                assert abs(truth(near, count, x) - d) <= e
            assert e <= max(1e-11 * d, 64 * UNIT * count * a)
            # the slope to either side: within rounding of an atom it may be either
            top = count * mpf(a)
            step = mpf(10) ** -9 * top
            sides = [abs(truth(a, count, x + s * step) - truth(a, count, x)) / step for s in (-1, 1)]
            off = 1e-6
            assert min(sides) * (1 - off) - 1e-300 <= t <= max(sides) * (1 + off) or abs(x - top) <= step


def test_what_the_proof_uses_of_it():
    """e^{s/2}Q(L > s) does not rise for s ≥ 0, and is no larger there than at −s."""
    for a, count in ((1.0, 2), (0.2, 5), (3.0, 4), (7.0, 3)):
        s = np.sort(np.random.default_rng(count).uniform(0, count * a, 2000))
        delta, tail, _ = laplace_sum_profile(a, count, s)
        h = tail * np.exp(-0.5 * s)
        assert np.all(np.diff(h) <= 1e-13 * h[:-1])
        assert np.all(h <= (1 - delta - tail) * np.exp(-0.5 * s) * (1 + 1e-12) + 1e-16)  # Q(L > −s) = P(L < s)


def test_the_bound_that_grows_with_the_degree_is_what_counts():
    """Far from the atoms nearly all is rounding of polynomials, and the cut series; the truth is far inside."""
    for a, count in ((1.0, 12), (5.0, 2)):
        epsilon = np.array([0.11 * count * a])
        delta, tail, error = laplace_sum_profile(a, count, epsilon)
        assert error[0] > 3 * (16 * UNIT * count * a * (delta[0] + tail[0]))
        assert error[0] < 5e-12 * delta[0]
        with mp.workdps(60 + int(2 * a * count)):
            assert abs(truth(a, count, float(epsilon[0])) - delta[0]) < 0.1 * error[0]


def test_large_ones_are_between_some_numbers_and_one_shift():
    for pair, some in ((LaplaceSumPair(101.0, 2), 0.0), (LaplaceSumPair(0.01, 129), LaplaceSumPair(0.01, 128))):
        epsilon = np.array([0.0, 0.5])
        delta, tail, error = pair.profile(epsilon)
        assert error[1] + delta[1] == pytest.approx(-math.expm1((0.5 - pair.a * pair.count) / 2), rel=1e-9)
        low = some.profile(epsilon).delta if some else np.zeros(2)
        assert delta - error == pytest.approx(low, rel=1e-9)
        assert np.all((tail > 0) == (low > 0))
        assert pair.max_loss >= pair.a * pair.count
