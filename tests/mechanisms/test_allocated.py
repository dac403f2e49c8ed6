"""The transform of a random allocation: against closed moments, two slots by quadrature, what each bound says alone."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import privcalc as pc
from privcalc.numerics import allocation, lognormal, lognormal_mean_rays
from privcalc.numerics.allocation import AllocationTransform
from privcalc.numerics.lognormal_mean_rays import real_ray
from privcalc.numerics.special import log_gamma


def nodes(mu: float, steps: int, add: bool, c: float, v: float) -> tuple[complex, float, float]:
    """E R^p over E R^{Re p} at the last of two nodes, a bound on its error, and K(c)."""
    transform = AllocationTransform(mu, steps, add)
    found = transform.log_nodes(c, v, 2)
    value = complex(np.exp(found.log_m[1]))
    return value, abs(value) * math.expm1(float(found.slack[1])), float(transform.log_real(np.array([c])).value[0])


@given(st.floats(0.05, 4.0), st.booleans(), st.floats(1e-3, 20.0), st.floats(1e-3, 8.0))
@example(4.0, False, 1.0, 0.3)
@example(0.05, True, 19.0, 7.0)
@example(2.4644117200349673, True, 2.00001, 2.4457821562072093)
@settings(max_examples=60 if SLOW else 12, deadline=None)
def test_one_slot(mu: float, add: bool, c: float, v: float) -> None:
    """E r^p = e^{p(p − 1)μ²/2}; where it is out of reach, K(c) is bounded and no node is found."""
    transform, v = AllocationTransform(mu, 1, add), v / mu
    p = complex(-c, -v) if add else complex(1 + c, v)
    truth, start = (0.5 * mu * mu * x * (x - 1) for x in (p, p.real))
    real = transform.log_real(np.array([c]))
    assert start <= real.value[0] + real.error[0] + 1e-15
    try:
        value, error, k = nodes(mu, 1, add, c, v)
    except OverflowError:
        assert 0.5 * c * c * mu * mu > 15
        return
    assert abs(k - start) <= real.error[0] + 1e-15
    assert abs(value - np.exp(truth - start)) <= error + 1e-15
    # A ray serves α to 2α, and has the fewer digits the further its order is from the least.
    assert error <= 1e-9 or 0.5 * c * c * mu * mu > 10


@pytest.mark.parametrize(("mu", "steps"), [(0.1, 7), (0.6, 1000), (1.0, 4000), (1.7, 3), (3.0, 10_000)])
def test_whole_moments(mu: float, steps: int) -> None:
    real = AllocationTransform(mu, steps, add=False).log_real(np.array([1.0, 2.0]))
    t, e = mp.mpf(steps), mp.exp(mp.mpf(mu) ** 2)
    second = 1 + (e - 1) / t
    third = (e**3 + 3 * (t - 1) * e + (t - 1) * (t - 2)) / t**2
    for value, error, moment in zip(real.value, real.error, (second, third), strict=True):
        assert abs(value - mp.log(moment)) <= error
        assert error <= 1e-9


@pytest.mark.parametrize(("mu", "add"), quick([(0.3, False), (1.0, False), (1.0, True), (2.5, True)], 1))
def test_two_slots(mu: float, add: bool) -> None:
    """R = e^{μx/√2 − μ²/2} cosh(μy/√2), x and y independent."""
    for c, v in ((0.4, 1.0), (2.6, 0.3), (1.0, 9.0)):
        value, error, _ = nodes(mu, 2, add, c, v)
        p = mp.mpc(-c, -v) if add else mp.mpc(1 + c, v)

        def moment(p: mp.mpc) -> mp.mpc:
            inner = mp.quad(lambda y: mp.npdf(y) * mp.cosh(mu * y / mp.sqrt(2)) ** p, list(range(-36, 37, 4)))
            return inner * mp.exp(p * p * mu**2 / 4 - p * mu**2 / 2)

        with mp.workdps(20):
            truth = complex(moment(p) / moment(p.real))
        assert abs(value - truth) <= error
        assert error <= 1e-10


@pytest.mark.parametrize(("noise", "epsilon"), quick([(0.6, 3.0), (0.6, 14.0), (2.0, 1.4)], 2))
def test_two_epochs_of_two_slots(noise: float, epsilon: float) -> None:
    """Both y given, the loss is normal: Black and Scholes' formula, averaged over a grid, exact to all digits."""
    mu, spread = 1 / noise, 1 / noise
    y = np.linspace(-14, 14, 501)
    weight = norm.pdf(y) * (y[1] - y[0])
    one = np.logaddexp(mu * y / math.sqrt(2), -mu * y / math.sqrt(2)) - math.log(2)
    log = np.add.outer(one, one) - mu * mu
    truth = []
    for sign in (1, -1):  # E(R − e^ε)_+, and e^ε E(e^{−ε} − R)_+
        d = (log - sign * epsilon) / spread
        value = sign * (
            np.exp(log + 0.5 * spread**2) * norm.cdf(sign * (d + spread)) - np.exp(sign * epsilon) * norm.cdf(sign * d)
        )
        truth.append(float(weight @ value @ weight) * math.exp(0 if sign > 0 else epsilon))
    found = (pc.RandomAllocation(pc.Gaussian(noise), steps=2) * 2).delta(epsilon=epsilon)
    assert found.lower * (1 - 1e-11) <= max(truth) <= found.upper * (1 + 1e-11)
    assert found.width <= 1e-8 * found.upper


@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "delta", "width"),
    [
        (0.6, 10, 10, 1e-6, 1e-9),
        (0.6, 100, 10, 1e-8, 1e-9),
        (0.6, 1000, 10, 1e-6, 1e-8),
        (0.6, 10, 1, 1e-8, 1e-9),
        (0.3, 100, 1, 1e-8, 1e-9),
        (1.0, 10, 1, 1e-8, 1e-9),
        (3.0, 10, 100, 1e-12, 1e-8),
        pytest.param(18.0, 2, 2, 1e-12, 1e-7, marks=pytest.mark.slow),
    ],
)
def test_widths(noise: float, steps: int, epochs: int, delta: float, width: float) -> None:
    """Without the transform these are 1e-5 to 4e-3 wide."""
    found = (pc.RandomAllocation(pc.Gaussian(noise), steps=steps) * epochs).epsilon(delta=delta)
    assert found.width <= width * found.upper
    assert found.route == "contour"


@pytest.mark.slow
def test_the_contour_and_the_grid_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    run = pc.RandomAllocation(pc.Gaussian(0.7), steps=40) * 3
    found = run.epsilon(delta=1e-5)
    monkeypatch.setattr(AllocationTransform, "serves", staticmethod(lambda mu, steps: False))
    other = run.epsilon(delta=1e-5)
    assert other.route != "contour"
    assert other.lower <= found.upper
    assert found.lower <= other.upper
    assert other.width > 100 * found.width


def test_with_other_mechanisms() -> None:
    """What is composed with it can only cost more, and less than the sum."""
    epoch = pc.RandomAllocation(pc.Gaussian(1.0), steps=50)
    more = epoch * 2 + pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100
    assert "contour" in more.epsilon(delta=1e-6).route
    alone = (epoch * 2).epsilon(delta=1e-6), (pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100).epsilon(delta=1e-6)
    assert alone[0].upper < more.epsilon(delta=1e-6).lower
    assert more.epsilon(delta=2e-6).upper < alone[0].upper + alone[1].upper


def test_moments_with_a_coarse_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments are wrong by what is said, and not by nothing."""
    monkeypatch.setattr(lognormal_mean_rays, "SMALL", 9.0)
    for cached in (real_ray, lognormal_mean_rays._ray, allocation._mean_of):
        cached.cache_clear()
    worst = 0.0
    for mu in (0.4, 1.3):
        for add in (False, True):
            found, error, k = nodes(mu, 1, add, 1.7, 0.8)
            p = complex(-1.7, -0.8) if add else complex(2.7, 0.8)
            truth = np.exp(0.5 * mu * mu * (p * (p - 1) - p.real * (p.real - 1)))
            off = abs(found - truth)
            assert off <= error + 1e-15
            worst = max(worst, off, abs(k - 0.5 * mu * mu * p.real * (p.real - 1)))
    for cached in (real_ray, lognormal_mean_rays._ray, allocation._mean_of):
        cached.cache_clear()
    assert worst >= 1e-8


@pytest.mark.parametrize(
    ("name", "value", "least"), [("DIGITS", 54.0, 0.0), ("DIGITS", 1.0, 1e-9), ("REACH", 3.0, 1e-9)]
)
def test_one_lognormal_on_a_ray(monkeypatch: pytest.MonkeyPatch, name: str, value: float, least: float) -> None:
    """log E e^{−sr} by a fine rule on the real line; with few digits, or a short rule, it is off by what is said."""
    monkeypatch.setattr(lognormal, name, value)
    x = np.linspace(-14, 14, 60_001)
    weight, worst = norm.pdf(x) / norm.pdf(x).sum(), 0.0
    for mu, angle in ((0.3, 0.0), (1.0, 0.0), (1.0, 1.2), (2.5, 1.5)):
        found, error = lognormal.Lognormal(mu).log_on_ray(-6.0, 0.7, 12, angle)
        s = np.exp(-6.0 + 0.7 * np.arange(12) + 1j * angle)
        truth = np.array([np.exp(-z * np.exp(mu * x - 0.5 * mu * mu)) @ weight for z in s])
        known = error < 0.3
        off = np.abs(np.exp(found) / truth - 1)[known]
        assert np.all(off <= np.expm1(error[known]) + 1e-13)
        assert np.all(known) or least
        assert np.all(error < 1e-12) or least
        worst = max(worst, float(off.max(initial=0.0)))
    assert worst >= least


@given(st.floats(0.5, 600.0), st.floats(0.0, 3000.0))
@settings(max_examples=25, deadline=None)
def test_log_gamma(x: float, y: float) -> None:
    value, error = log_gamma(np.array([complex(x, y)]))
    with mp.workdps(30):
        truth = mp.loggamma(mp.mpc(x, y))
        off = mp.mpc(complex(value[0])) - truth
    turns = float(off.imag) / (2 * math.pi)
    assert abs(float(off.real)) <= error[0]
    assert abs(turns - round(turns)) * 2 * math.pi <= error[0]
    assert error[0] <= 1e-10


def test_no_node_decays_more_slowly_than_is_said() -> None:
    transform = AllocationTransform(1.0, 30, add=False)
    v = np.asarray(0.5 * np.arange(60), dtype=np.float64)
    found = transform.log_nodes(1.5, 0.5, 60)
    assert np.all(found.log_m.real <= transform.log_decay(1.5, v) + found.slack + 1e-9)
