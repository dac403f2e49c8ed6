"""Enclosures against truth from outside: closed forms at 50 digits, ball arithmetic, quadrature, enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from cases import PRINTED, SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from reference import steps as ref
from scipy.special import ndtr
from strategies import deltas, directions

import privcalc as pc
from privcalc.numerics.routes import lattice

DIRECTIONS: tuple[ref.Direction, ...] = ("remove", "add")


def contains(answer: pc.Enclosure, truth: mpf, rel: float = 1.0) -> None:
    """The truth lies within, and the width is at most ``rel``."""
    assert mpf(answer.lower) <= truth <= mpf(answer.upper), f"{answer!r} misses {mp.nstr(truth, 20)}"
    assert answer.width <= rel * answer.upper < math.inf, f"{answer!r} is wider than {rel}"


def sampled(z: float, q: float) -> pc.PoissonSampled:
    return pc.PoissonSampled(pc.Gaussian(noise_multiplier=z), q)


# --- check values ---------------------------------------------------------------------------------


def test_printed_gaussian_values() -> None:
    one = pc.Gaussian(noise_multiplier=1.0)
    assert f"{float(one.epsilon(delta=1e-5)):.9f}" == "4.377178096"
    assert f"{float(one.epsilon(delta=1e-5, relation=pc.ZERO_OUT)):.9f}" == "4.377178096"
    assert f"{float(one.epsilon(delta=1e-5, relation=pc.REPLACE_ONE)):.9f}" == "9.997256146"
    assert f"{float(pc.Gaussian(0.5).epsilon(delta=1e-5)):.9f}" == "9.997256146"
    found = pc.calibrate(pc.Gaussian, epsilon=3.0, delta=1e-5)
    assert f"{1 / found.parameter:.9f}" == "0.719117435"
    assert pc.steps(epsilon=3.0, delta=1e-5, noise_multiplier=20.0) == 206
    assert pc.steps(epsilon=3.0, delta=1e-5, noise_multiplier=20.0, relation=pc.REPLACE_ONE) == 51


# --- Gaussian -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-5, 0.01, 0.5])
@pytest.mark.parametrize("z", [1e-3, 0.05, 0.5, 1.0, 3.0, 100.0, 1e4])
def test_gaussian_epsilon(z: float, delta: float) -> None:
    contains(pc.Gaussian(z).epsilon(delta=delta), ref.gaussian_epsilon(1 / mpf(z), mpf(delta)), 1e-8)
    contains(
        pc.Gaussian(z).epsilon(delta=delta, relation=pc.REPLACE_ONE), ref.gaussian_epsilon(2 / mpf(z), mpf(delta)), 1e-8
    )


@pytest.mark.parametrize("delta", [1e-304, 5e-306, 1e-308, 1e-320, 5e-324])
def test_lower_ends_survive_underflow(delta: float) -> None:
    """Sampling only helps; a share under Q that underflowed was taken for 0 once."""
    mu = mp.sqrt(3) / mpf(0.8)
    run = pc.PoissonSampled(pc.Gaussian(0.8), 0.01) * 3
    assert run.epsilon(delta=delta).lower <= ref.gaussian_epsilon(mu, mpf(delta))
    for epsilon in (70.0, 85.5, 86.0):
        assert run.delta(epsilon=epsilon).lower <= ref.gaussian_delta(mu, epsilon)


@given(st.floats(-7, 7).map(math.exp), st.floats(0, 30), st.integers(1, 10**9))
def test_gaussian_delta(z: float, deviations: float, steps: int) -> None:
    with mp.workdps(60):
        mu = mp.sqrt(steps) / mpf(z)
        epsilon = float(max(mu * mu / 2 + mu * (mpf(deviations) - 2), mpf(0)))
        truth = ref.gaussian_delta(mu, epsilon)
    contains((pc.Gaussian(z) * steps).delta(epsilon=epsilon), truth)


@given(st.lists(st.tuples(st.floats(0.5, 100.0), st.integers(1, 10**6)), min_size=1, max_size=4), deltas)
def test_gaussians_of_different_noise(parts: list[tuple[float, int]], delta: float) -> None:
    with mp.workdps(60):
        mu = mp.sqrt(mp.fsum(n / mpf(z) ** 2 for z, n in parts))
        truth = ref.gaussian_epsilon(mu, mpf(delta))
    run = pc.Run(tuple((pc.Gaussian(z), n) for z, n in parts))
    contains(run.epsilon(delta=delta), truth, 1e-8)
    answer = run.gdp_mu()
    assert answer.lower <= mu * (1 + mpf(2) ** -50)
    assert mpf(answer.upper) >= mu
    assert answer.width <= 1e-12 * answer.upper


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("z", [0.4, 1.0, 5.0])
def test_gaussian_beta_and_advantage(z: float, alpha: float) -> None:
    # G_μ(α) = Φ(Φ⁻¹(1 − α) − μ) (Dong, Roth, Su 2022).
    with mp.workdps(40):
        quantile = mp.sqrt(2) * mp.erfinv(1 - 2 * mpf(alpha))
        beta = mp.ncdf(quantile - 1 / mpf(z))
        total_variation = 2 * mp.ncdf(1 / (2 * mpf(z))) - 1
    answer = pc.Gaussian(z).beta(alpha=alpha)
    assert mpf(answer.lower) <= beta <= mpf(answer.upper) + mpf(10) ** -15
    assert answer.lower == pytest.approx(float(beta), abs=1e-9)
    contains(pc.Gaussian(z).advantage(), total_variation, 1e-9)


# --- one and two sampled steps --------------------------------------------------------------------

ONE_STEP = [
    (0.3, 0.01, 2.0), (0.3, 0.9, 4.0), (1.0, 1e-6, 1e-6), (1.0, 0.01, 0.004), (1.0, 0.01, 1.0), (5.0, 0.3, 0.05),
    (100.0, 0.5, 1e-3),
]  # fmt: skip


@pytest.mark.parametrize(("z", "q", "epsilon"), ONE_STEP)
def test_one_sampled_step(z: float, q: float, epsilon: float) -> None:
    truth = max(ref.one_step_delta(z, q, epsilon, way) for way in DIRECTIONS)
    for relation in (pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT):
        contains(sampled(z, q).delta(epsilon=epsilon, relation=relation), truth, 1e-8)


@pytest.mark.parametrize(
    ("z", "q", "epsilon"), quick([(0.5, 0.1, 1.0), (1.0, 0.01, 0.02), (1.0, 0.5, 1.5), (4.0, 0.2, 0.03)], 0, 1)
)
def test_two_sampled_steps(z: float, q: float, epsilon: float) -> None:
    truth = max(ref.two_step_delta(z, q, epsilon, way) for way in DIRECTIONS)
    contains((sampled(z, q) * 2).delta(epsilon=epsilon), truth, 1e-4)


@given(st.floats(-1.2, 3).map(math.exp), st.floats(-9, -0.05).map(math.exp), st.floats(0.02, 6))
@settings(max_examples=100 if SLOW else 5)
def test_one_sampled_step_anywhere(z: float, q: float, share: float) -> None:
    epsilon = math.log1p(q * math.expm1(share / z))
    truth = max(ref.one_step_delta(z, q, epsilon, way) for way in DIRECTIONS)
    contains(sampled(z, q).delta(epsilon=epsilon), truth)


# --- many sampled steps ---------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "z", "steps", "delta", "printed"), quick(PRINTED, 0, 4, 5))
def test_the_table(q: float, z: float, steps: int, delta: float, printed: str) -> None:
    answer = (sampled(z, q) * steps).epsilon(delta=delta)
    # Rare large jumps: e^9 roundings of a million steps are the floor of double precision.
    width = 1e-7 if (q, steps) == (0.0001, 1_000_000) else 1e-9
    contains(answer, ref.sampled_gaussian_epsilon(z, q, steps, delta), width)
    places = len(printed.split(".")[1])
    half = 0.5 * 10.0**-places
    assert answer.lower - half <= float(printed) <= answer.upper + half


@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"),
    quick(
        [
            (1e-4, 1.0, 10**9, 1e-8),  # a thousand million steps
            (1e-5, 20.0, 10**9, 1e-5),
            (0.01, 1.0, 2_000, 1e-100),  # deep tail
            (0.3, 4.0, 50, 1e-100),
            (1e-5, 0.8, 3_000_000, 1e-8),  # rare jumps
            (0.5, 3.0, 20, 1e-6),  # few steps
        ],
        *(0, 3, 5),
    ),
)
def test_far_corners(q: float, z: float, steps: int, delta: float) -> None:
    contains((sampled(z, q) * steps).epsilon(delta=delta), ref.sampled_gaussian_epsilon(z, q, steps, delta), 1e-5)


@given(st.floats(-0.4, 3).map(math.exp), st.floats(-6, -1).map(math.exp), st.integers(100, 20_000), st.floats(1, 40))
@settings(max_examples=100 if SLOW else 4)
def test_sampled_gaussians_anywhere(z: float, q: float, steps: int, digits: float) -> None:
    delta = 10**-digits
    contains((sampled(z, q) * steps).epsilon(delta=delta), ref.sampled_gaussian_epsilon(z, q, steps, delta))


@pytest.mark.parametrize(
    ("entries", "epsilon"),
    quick(
        [
            ([(1.0, 0.01, 500), (0.7, 0.001, 2000), (9.0, 1.0, 1)], 0.6),
            ([(1.0, 0.01, 500), (0.7, 0.001, 2000), (9.0, 1.0, 1)], 3.0),
            ([(2.0, 0.1, 100), (3.0, 0.05, 300), (20.0, 1.0, 40)], 5.0),
        ],
        *(0, 2),
    ),
)
def test_heterogeneous_runs(entries: list[ref.Entry], epsilon: float) -> None:
    run = pc.Run.of(sampled(z, q) * n if q < 1 else pc.Gaussian(z) * n for z, q, n in entries)
    truth = max(ref.run_delta(entries, epsilon, way, 15) for way in DIRECTIONS)
    contains(run.delta(epsilon=epsilon), truth, 1e-7)


# --- Laplace --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-3, 0.2, 1.0, 7.0, 1e4])
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.3, 0.9, 0.999999, 1.0, 1.5])
def test_one_laplace(scale: float, share: float) -> None:
    epsilon = share / scale
    contains(pc.Laplace(scale).delta(epsilon=epsilon), ref.laplace_delta(scale, epsilon))
    contains(pc.Laplace(scale).delta(epsilon=epsilon, relation=pc.REPLACE_ONE), ref.laplace_delta(scale / 2, epsilon))
    contains(pc.Laplace(scale).epsilon(delta=0.0), 1 / mpf(scale), 1e-12)
    contains(pc.Laplace(scale).epsilon(delta=0.0, relation=pc.REPLACE_ONE), 2 / mpf(scale), 1e-12)


@pytest.mark.parametrize(("scale", "steps"), [(0.5, 2), (1.0, 3), (1.0, 8), (40.0, 10), (2e3, 5)])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 0.8, 0.98])
def test_laplace_compositions(scale: float, steps: int, share: float) -> None:
    epsilon = share * steps / scale
    contains(
        (pc.Laplace(scale) * steps).delta(epsilon=epsilon), ref.laplace_composition_delta(scale, steps, epsilon), 1e-2
    )


@pytest.mark.parametrize(
    ("scale", "steps", "delta"), [(1.0, 8, 1e-5), (5.0, 10, 1e-8), (1e4, 5, 1e-12), (5e3, 5, 1e-12), (0.01, 4, 0.1)]
)
def test_laplace_epsilon(scale: float, steps: int, delta: float) -> None:
    answer = (pc.Laplace(scale) * steps).epsilon(delta=delta)
    if answer.lower > 0:
        assert ref.laplace_composition_delta(scale, steps, answer.lower) >= delta * (1 - 1e-12)
    assert ref.laplace_composition_delta(scale, steps, answer.upper) <= delta * (1 + 1e-12)


@pytest.mark.parametrize(("scale", "steps"), [(0.05, 5), (1.0, 5), (1e4, 5)])
@pytest.mark.parametrize("planned", [0.59, 0.8, 0.95])
def test_the_lattice_route_near_the_largest_loss(scale: float, steps: int, planned: float) -> None:
    # All steps at their atom: the curve has a kink there, which need not be a lattice point.
    top = steps / scale
    (direction,) = directions(pc.Laplace(scale) * steps, pc.ADD_OR_REMOVE_ONE)
    built, _ = lattice.build(list(direction), epsilon=planned * top)
    for share in (0.5, 0.9, 0.99999, 1.0, 1.000005, 1.00001):
        low, high = built.bounds(share * top)
        truth = ref.laplace_composition_delta(scale, steps, share * top)
        assert low <= truth + mpf(10) ** -25
        assert truth <= high + mpf(10) ** -25


def laplace_mixture(scale: mpf, q: mpf, x: mpf) -> mpf:
    """Density of a Poisson-sampled Laplace release of a record 1 among none."""
    return ((1 - q) * mp.exp(-abs(x) / scale) + q * mp.exp(-abs(x - 1) / scale)) / (2 * scale)


def sampled_laplace_delta(scale: float, rate: float, epsilon: float, way: ref.Direction) -> mpf:
    """∫ (p − e^ε q)₊: the likelihood ratio is monotone in x, so the region is a half line; constant outside [0, 1]."""
    with mp.workdps(40):
        b, q, e = mpf(scale), mpf(rate), mp.exp(mpf(epsilon))

        def excess(x: mpf) -> mpf:
            mixed, base = laplace_mixture(b, q, x), mp.exp(-abs(x) / b) / (2 * b)
            return mixed - e * base if way == "remove" else base - e * mixed

        total = sum(max(mpf(0), excess(end)) * b for end in (mpf(0), mpf(1)))  # both tails, constant ratio
        low, high = mpf(0), mpf(1)
        if (excess(low) > 0) != (excess(high) > 0):
            for _ in range(140):
                middle = (low + high) / 2
                low, high = (middle, high) if (excess(middle) > 0) == (excess(mpf(0)) > 0) else (low, middle)
        return total + mp.quad(lambda x: max(mpf(0), excess(x)), [0, low, 1])


@pytest.mark.parametrize(("scale", "rate"), [(0.05, 0.2), (1.0, 0.01), (1.0, 0.9), (20.0, 0.3)])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 0.99])
def test_one_sampled_laplace(scale: float, rate: float, share: float) -> None:
    epsilon = share * math.log1p(rate * math.expm1(1 / scale))
    truth = max(sampled_laplace_delta(scale, rate, epsilon, way) for way in DIRECTIONS)
    contains(pc.PoissonSampled(pc.Laplace(scale), rate).delta(epsilon=epsilon), truth, 1e-6)


def binned(cells: list[tuple[np.ndarray, np.ndarray]], epsilon: float) -> float:
    """δ(ε) of a product of discrete pairs (P, Q): a lower bound of the δ of whatever was binned."""
    p, q = np.ones(1), np.ones(1)
    for a, b in cells:
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def laplace_cells(scale: float, rate: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Masses of the mixture and of the base in ``size`` cells of [0, 1] and the two tails."""
    edges = np.linspace(0.0, 1.0, size + 1)

    def cdf(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.maximum(x, 0) / scale))

    def masses(at: float) -> np.ndarray:
        return np.diff(np.concatenate([[0.0], cdf(edges - at), [1.0]]))

    return rate * masses(1.0) + (1 - rate) * masses(0.0), masses(0.0)


@pytest.mark.parametrize(("scale", "rate", "epsilon"), [(1.0, 0.1, 0.1), (0.3, 0.05, 0.7), (2.0, 0.6, 0.3)])
def test_a_few_sampled_laplace_steps(scale: float, rate: float, epsilon: float) -> None:
    mixed, base = laplace_cells(scale, rate, 1_500)
    answer = (pc.PoissonSampled(pc.Laplace(scale), rate) * 2).delta(epsilon=epsilon)
    below = max(binned([(mixed, base)] * 2, epsilon), binned([(base, mixed)] * 2, epsilon))
    assert below <= answer.upper * (1 + 1e-9)
    assert answer.lower <= below * (1 + 1e-3) + 1e-9
    assert answer.width <= 1e-3 * answer.upper


def test_laplace_with_sampled_gaussian() -> None:
    # A mixed run, binned: Laplace(1) and a sampled Gaussian of noise 1 at rate 0.2.
    edges = np.linspace(-5.0, 6.0, 1_501)[1:-1]
    with_it, without = (np.diff(np.concatenate([[0.0], ndtr(edges - at), [1.0]])) for at in (1.0, 0.0))
    gaussian = 0.2 * with_it + 0.8 * without, without
    laplace = laplace_cells(1.0, 1.0, 1_500)
    run = pc.Laplace(1.0) + sampled(1.0, 0.2)
    for epsilon in (0.2, 0.8, 1.4):
        below = max(binned([laplace, gaussian], epsilon), binned([laplace[::-1], gaussian[::-1]], epsilon))
        answer = run.delta(epsilon=epsilon)
        assert below <= answer.upper * (1 + 1e-9)
        assert answer.lower <= below * (1 + 1e-3)


# --- enumeration on tiny data sets ----------------------------------------------------------------
#
# Up to three records with values of norm at most 1; the release is the sum of a Poisson sample plus N(0, z²). Both
# output distributions are mixtures of at most eight normals. Any threshold set S gives P(S) − e^ε P'(S) ≤ δ(ε); the
# sets used are found on a grid and evaluated by exact normal distribution functions.

VALUES = (-1.0, 0.0, 0.4, 1.0)


def mixture(records: Sequence[float], rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and means of the output."""
    weights, means = np.ones(1), np.zeros(1)
    for value in records:
        weights = np.concatenate([(1 - rate) * weights, rate * weights])
        means = np.concatenate([means, means + value])
    return weights, means


def hockey_stick(one: Sequence[float], other: Sequence[float], rate: float, z: float, epsilon: float) -> float:
    """A lower bound of δ(ε), sharp to about nine digits."""
    x = np.linspace(-4.0 - 12 * z, 4.0 + 12 * z, 3_001)
    (wp, mp_), (wq, mq) = mixture(one, rate), mixture(other, rate)

    def log_density(weights: np.ndarray, means: np.ndarray) -> np.ndarray:
        terms = np.log(weights) - 0.5 * ((x[:, None] - means) / z) ** 2
        return np.logaddexp.reduce(terms, axis=1)

    gap = log_density(wp, mp_) - log_density(wq, mq) - epsilon
    change = np.flatnonzero((gap[:-1] > 0) != (gap[1:] > 0))
    roots = x[change] - gap[change] * (x[change + 1] - x[change]) / (gap[change + 1] - gap[change])
    edges = np.concatenate([[-np.inf], roots, [np.inf]])
    p = np.diff(ndtr((edges[:, None] - mp_) / z) @ wp)
    q = np.diff(ndtr((edges[:, None] - mq) / z) @ wq)
    inside = np.arange(edges.size - 1) % 2 == (0 if gap[0] > 0 else 1)
    return float((p - math.exp(epsilon) * q)[inside].sum())


SETTINGS = [(0.5, 0.3), (1.0, 0.1), (2.0, 0.8)]


@pytest.mark.parametrize(("z", "rate"), SETTINGS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_enumerated_add_or_remove_and_zero_out(z: float, rate: float, share: float) -> None:
    epsilon = share * math.log1p(rate * math.expm1(1.5 / z))
    worst = 0.0
    for others in itertools.chain(*(itertools.combinations_with_replacement(VALUES, n) for n in range(3))):
        for value in VALUES:
            for one, other in ((([*others, value]), list(others)), (list(others), [*others, value])):
                worst = max(worst, hockey_stick(one, other, rate, z, epsilon))
    for relation in (pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT):
        claimed = sampled(z, rate).delta(epsilon=epsilon, relation=relation)
        assert worst <= claimed.upper * (1 + 1e-12) + 1e-15, "the claimed curve does not dominate"
        assert claimed.lower <= worst * (1 + 1e-6) + 1e-12, "the claimed curve is not attained"


@pytest.mark.parametrize(("z", "rate"), SETTINGS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_enumerated_replace_one(z: float, rate: float, share: float) -> None:
    epsilon = share * math.log1p(rate * math.expm1(2.5 / z))
    worst = 0.0
    for others in itertools.chain(*(itertools.combinations_with_replacement(VALUES, n) for n in range(3))):
        for value, new in itertools.permutations(VALUES, 2):
            worst = max(worst, hockey_stick([*others, value], [*others, new], rate, z, epsilon))
    opposite = hockey_stick([1.0], [-1.0], rate, z, epsilon)
    claimed = sampled(z, rate).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    assert opposite <= worst <= claimed.upper * (1 + 1e-12) + 1e-15, "the claimed curve does not dominate"
    assert claimed.lower <= opposite * (1 + 1e-6) + 1e-12, "the lower end does not occur"


@pytest.mark.parametrize("z", [0.6, 2.0])
def test_enumerated_full_batch(z: float) -> None:
    # Without sampling: shift 1 for add-or-remove and zero-out, shift 2 for replace-one.
    for epsilon in (0.0, 1.0, 2.5):
        removed = hockey_stick([1.0], [], 1 - 1e-16, z, epsilon)
        replaced = hockey_stick([1.0], [-1.0], 1 - 1e-16, z, epsilon)
        assert pc.Gaussian(z).delta(epsilon=epsilon).upper == pytest.approx(removed, rel=1e-6)
        assert pc.Gaussian(z).delta(epsilon=epsilon, relation=pc.ZERO_OUT).upper == pytest.approx(removed, rel=1e-6)
        assert pc.Gaussian(z).delta(epsilon=epsilon, relation=pc.REPLACE_ONE).upper == pytest.approx(replaced, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.2, 0.8])
def test_two_replace_one_steps_dominate_a_binned_pair(epsilon: float) -> None:
    # The ±1 pair occurs in every step, with the same two data sets.
    z, rate = 1.0, 0.2
    edges = np.linspace(-8.0, 8.0, 1_501)[1:-1]

    def masses(value: float) -> np.ndarray:
        weights, means = mixture([value], rate)
        return np.diff(np.concatenate([[0.0], ndtr((edges[:, None] - means) / z) @ weights, [1.0]]))

    below = binned([(masses(1.0), masses(-1.0))] * 2, epsilon)
    claimed = (sampled(z, rate) * 2).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    assert below <= claimed.upper * (1 + 1e-9)
    assert claimed.lower <= below * (1 + 1e-3)


# --- counterexamples found once -------------------------------------------------------------------


def test_a_tail_that_underflows_is_not_zero() -> None:
    """The lower bound from a threshold test once took e^ε·Q = 0 where Q had underflowed, and exceeded the truth."""
    run = pc.Laplace(3.6876761686279282) * 926 + pc.Gaussian(0.001)
    answer = run.epsilon(delta=0.003596362097358986, relation=pc.REPLACE_ONE)
    assert answer.lower <= 2005490
    assert answer.upper >= 2005489


def test_tiny_lattice_spacing() -> None:
    """Cell widths below the resolution of e^ε near 1 once raised the lower law above the truth."""
    truth = ref.two_step_delta(100.0, 1e-9, 0.0, "remove")
    contains((pc.PoissonSampled(pc.Gaussian(100.0), 1e-9) * 2).delta(epsilon=0.0), truth, 1e-8)


def test_ratios_that_overflow() -> None:
    """On the rotated line log r was once capped at 700: ε was 300 times too small, by a route that did not notice."""
    answer = (pc.PoissonSampled(pc.Gaussian(0.01), 0.3) * 1000).epsilon(delta=1e-5)
    # About 300 of 1000 steps sample the record, each at a loss of μ²/2 = 5000 or more.
    assert 1.5e6 < answer.lower <= answer.upper < 2.2e6


@pytest.mark.parametrize("level", quick([1e-20, 1e-6], 0))
def test_gdp_mu_dominates_where_delta_is_tiny(level: float) -> None:
    """Margins below 1e-16 were once absorbed by a 1, and the μ that came out was too small."""
    run = sampled(1.0, 0.01) * 1000
    mu = run.gdp_mu(delta=level)
    end = run.epsilon(delta=level).lower
    for share in (0.5, 0.983):
        truth = ref.sampled_gaussian_delta(1.0, 0.01, 1000, share * end, "remove")
        assert truth <= level + (1 - mpf(level)) * ref.gaussian_delta(mu.upper, share * end) * (1 + mpf("1e-9"))


def test_replace_one_where_the_tilt_underflows() -> None:
    """e^{−cε} underflowed to 0 in the lattice's upper bound; an exact test of ten opposite records refutes 85.98."""
    answer = (sampled(2.0, 0.99) * 10).epsilon(delta=1e-230, relation=pc.REPLACE_ONE)
    assert answer.lower > 90


@pytest.mark.parametrize("scale", [1e-3, 0.01, 0.3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 0.05, 0.18, 0.1839, 0.25, 0.5, 0.6, 1 - 1e-10])
def test_trade_off_of_laplace_noise(scale: float, alpha: float) -> None:
    """F(F⁻¹(1 − α) − a)."""
    a = mpf(1) / mpf(scale)
    at = (-mp.log(2 * mpf(alpha)) if alpha <= 0.5 else mp.log(2 * (1 - mpf(alpha)))) - a
    truth = mp.exp(at) / 2 if at < 0 else 1 - mp.exp(-at) / 2
    contains(pc.Laplace(scale).beta(alpha=alpha), truth, 2e-12 if truth > 1e-290 else 1.0)
