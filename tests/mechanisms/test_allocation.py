"""Random allocation: against quadrature of 30 digits, closed moments, numerical convolution, what others published."""

from __future__ import annotations

import functools
import itertools
import math
import tracemalloc
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import privcalc as pc
from privcalc.noise.source import Noise
from privcalc.numerics import lognormal, lognormal_sum
from privcalc.numerics.allocation_bounds import between, scores
from privcalc.numerics.lognormal import Lognormal
from privcalc.numerics.lognormal_sum import LognormalSum
from privcalc.pairs.allocation import AllocationPair, MergedPair, allocation, several
from privcalc.pairs.allocation import _between as allocation_pairs


def one(k: mp.mpf, mu: float, *, call: bool) -> mp.mpf:
    """E(r − k)_+ or E(k − r)_+ of one lognormal, to 30 digits."""
    if k <= 0:
        return 1 - k if call else mp.mpf(0)
    d = (mp.log(k) + mp.mpf(mu) ** 2 / 2) / mu
    return mp.ncdf(mu - d) - k * mp.ncdf(-d) if call else k * mp.ncdf(d) - mp.ncdf(d - mu)


def two(k: float, mu: float) -> mp.mpf:
    """E(r + r' − 2 − k)_+, for k < 0 E(2 + k − r − r')_+."""
    with mp.workdps(30):
        level, call = mp.mpf(2) + k, k >= 0
        edge = (mp.log(level) + mp.mpf(mu) ** 2 / 2) / mu

        def value(x: mp.mpf) -> mp.mpf:
            return mp.npdf(x) * one(level - mp.exp(mu * x - mp.mpf(mu) ** 2 / 2), mu, call=call)

        # Beyond the edge r alone exceeds the level: smooth on either side, steep just below.
        steep = [edge - mp.mpf(2) ** -j for j in range(1, 40, 3)]
        points = [mp.mpf(-16), mp.mpf(-5), mp.mpf(-2), *[x for x in steep if x > -2], edge]
        beyond = [edge, edge + 1, edge + 3, edge + 16] if call else []
        return mp.quad(value, points) + (mp.quad(value, beyond) if beyond else 0)


def test_moments_bound_millions_of_points_in_little_memory() -> None:
    """A lattice asks at a million points at once: not a number for each of them and each moment."""
    law, k = LognormalSum(0.2, 600), np.linspace(0.0, 1e4, 100_000)
    few = law.log_beyond(k[::1000])
    tracemalloc.start()
    many = law.log_beyond(k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 20 * k.nbytes
    assert all(np.array_equal(all_[::1000], some) for all_, some in zip(many, few, strict=True))


@pytest.mark.parametrize("mu", quick([0.3, 1.0], 0))
def test_two_slots(mu: float) -> None:
    law = LognormalSum(mu, 2)
    k = np.array([-1.6, -1.0, -0.3, 0.0, 0.2, 1.5, 4.0]) * min(1.0, 2 * mu)
    found = law.deviations(k)
    assert np.all(found.error <= 1e-9)
    for i, x in enumerate(k.tolist()):
        assert abs(found.value[i] - two(x, mu)) <= found.error[i]


@pytest.mark.parametrize(("mu", "number"), [(0.02, 7), (0.5, 30), (1.0, 1000), (0.7, 10**6)])
def test_second_and_third_moments(mu: float, number: int) -> None:
    """∫ w dk = ½ Var S, ∫ k w dk is a sixth of the third moment; w(k) = E(S − n − k)_+, left of 0 E(n + k − S)_+."""
    law = LognormalSum(mu, number)
    x = np.linspace(-4.6, 4.6, 1201)
    k = np.sinh(x) * law.deviation
    k, x = k[k > -number], x[k > -number]
    found = law.deviations(k)
    weights = np.cosh(x) * law.deviation * (x[1] - x[0])
    second, third = math.expm1(mu**2), math.exp(3 * mu**2) - 3 * math.exp(mu**2) + 2
    assert float(weights @ found.value) == pytest.approx(0.5 * number * second, rel=1e-4)
    assert float(weights @ (k * found.value)) == pytest.approx(number * third / 6, rel=2e-2)
    # The slope is what lies beyond.
    slope = np.gradient(found.value, k)
    middle = (np.abs(k) < 3 * law.deviation) & (np.abs(k) > 0.05 * law.deviation)
    assert np.allclose(np.abs(slope[middle]), found.mass[middle], atol=5e-3)


def test_blocks_agree_where_they_meet() -> None:
    law = LognormalSum(1.0, 100)
    law.deviations(np.linspace(-70, 300, 50))
    inner = [edge for edge in law._edges if -70 < edge < 300 and edge != 0]
    assert len(inner) >= 5
    for edge in inner:
        near = np.array([np.nextafter(edge, -1e9), edge])
        found = law.deviations(near)
        assert abs(found.value[0] - found.value[1]) <= found.error.sum() + 1e-13
        assert abs(found.mass[0] - found.mass[1]) <= found.mass_error.sum() + 1e-13


def test_each_bound_holds_where_it_dominates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarse rule, a short line and a short period: the answer is wrong by what is said, and not by nothing."""
    k = np.array([-0.9, 0.4, 1.5])
    truth = np.array([float(two(x, 1.0)) for x in k.tolist()])
    for module, name, value in ((lognormal, "DIGITS", 16.0), (lognormal_sum, "SMALL", 6.0)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            found = LognormalSum(1.0, 2).deviations(k)
        off = np.abs(found.value - truth)
        assert np.all(off <= found.error)
        assert off.max() >= 1e-9


@given(st.floats(0.01, 2.5), st.floats(1e-3, 100.0), st.floats(0.0, 300.0))
@settings(max_examples=25 if SLOW else 8, deadline=None)
def test_transform(mu: float, c: float, u: float) -> None:
    """log ψ by another quadrature, on the real line of the same integral, and its decay."""
    law = Lognormal(mu)
    s = complex(c, u)
    found, error = law.log_transform(np.array([s]))
    x = np.linspace(-12, 12 + 2 * mu, 400_001)
    r = np.expm1(mu * x - 0.5 * mu**2)
    truth = np.sum(np.exp(-0.5 * x * x - s * r)) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    size = float(np.sum(np.exp(-0.5 * x * x - c * r))) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    if error[0] < 1:
        assert abs(np.exp(found[0]) - truth) <= abs(truth) * math.expm1(error[0]) * 1.01 + 1e-10 * size
    assert (
        math.log(abs(truth) + 1e-300) <= law.log_decay(c, np.array([0.5 * u, u]))[1] + 1e-9 or abs(truth) < 1e-11 * size
    )


def test_what_others_published() -> None:
    """PLD_accounting's intervals at σ = 1, δ = 1e-5: for 100 steps and 1000. Poisson sampling at 1/100 costs more."""
    for steps, low, high in ((100, 0.6085, 0.6357), (1000, 0.1364, 0.1422)):
        found = pc.RandomAllocation(pc.Gaussian(1.0), steps=steps).epsilon(delta=1e-5)
        assert low <= found.lower
        assert found.upper <= high
        assert found.width <= 1e-9 * found.upper
    assert (pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100).epsilon(delta=1e-5).lower > 0.7


@pytest.mark.parametrize("steps", quick([100, 10**4, 10**6], 2))
def test_long_epochs(steps: int) -> None:
    epoch = pc.RandomAllocation(pc.Gaussian(1.0), steps=steps)
    assert epoch.epsilon(delta=1e-6).width <= 2e-9
    composed = (epoch * 10).epsilon(delta=1e-6)
    assert composed.width <= 1e-6 * composed.upper


def test_two_epochs_by_a_grid() -> None:
    """δ of two epochs: δ of one, averaged over the other's loss, by losses rounded to a grid in either direction."""
    epoch = pc.RandomAllocation(pc.Gaussian(1.5), steps=50)
    h = 2e-3
    x = np.asarray(h * np.arange(-1500, 1501), dtype=np.float64)
    pair = AllocationPair(1 / 1.5, 50, add=False)
    right, left = pair.profile(x[x >= 0]), pair.reverse.profile(-x[x < 0])
    cdf = np.concatenate([np.exp(x[x < 0]) * (left.delta + left.tail), 1 - (right.delta + right.tail)])  # P(L ≤ x)
    mass = np.diff(np.maximum.accumulate(cdf), prepend=0.0)
    both = np.convolve(mass, mass)
    y = 2 * x[0] + h * np.arange(both.size)
    for epsilon in (0.2, 0.5):
        high = float((both * np.maximum(-np.expm1(epsilon - y), 0)).sum())
        low = float((both * np.maximum(-np.expm1(epsilon - y + 2 * h), 0)).sum())
        found = (epoch * 2).delta(epsilon=epsilon)
        assert found.width <= 1e-5 * found.upper
        assert found.lower <= high * (1 + 1e-6) + 1e-9
        assert low <= found.upper * (1 + 1e-6) + 1e-9


def test_a_merged_pair_and_its_leak_enclose_the_pair() -> None:
    cut = allocation(1.0, 10_000).forward.among
    merged = cut.pair  # type: ignore[attr-defined]
    assert isinstance(merged, MergedPair)
    epsilon = np.array(
        [0.0, 0.1, 1.0, merged.end * 0.999, merged.end, merged.end + 1e-3, merged.max_loss, 2 * merged.end]
    )
    truth, below = merged.of.profile(epsilon), merged.profile(epsilon)
    assert np.all(below.delta - below.error <= truth.delta + truth.error)
    above = cut.leak + (1 - cut.leak) * (below.delta + below.error)  # type: ignore[attr-defined]
    assert np.all(truth.delta - truth.error <= above)
    assert cut.leak <= 1e-12  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "mu", [pytest.param(0.3, marks=pytest.mark.slow), 1.0, pytest.param(8.0, marks=pytest.mark.slow)]
)
def test_two_slots_between_laws_on_a_grid(mu: float) -> None:
    """E(S − K)_+ of the merged and of the spread law enclose the integral; means are kept."""
    merged, spread = between(mu, 2, 500)
    for law in (merged, spread):
        assert float(np.exp(law.logs) @ law.masses) == pytest.approx(2.0, rel=1e-11)
        assert float(law.masses.sum()) == pytest.approx(1.0, rel=1e-11)
    for k in (-1.0, 0.5, 1e3):
        low, high = (
            float((np.maximum(np.sign(k) * (np.exp(law.logs) - 2 - k), 0) * law.masses).sum())
            for law in (merged, spread)
        )
        with mp.workdps(30):
            truth = float(two(k, mu))
        assert low * (1 - 1e-9) <= truth <= high * (1 + 1e-9) + 1e-100
        assert high - low <= 0.03 * high or high < 1e-12


@pytest.mark.parametrize(("mu", "number"), [(1.0, 37), (4.0, 1000)])
def test_sums_on_a_grid(mu: float, number: int) -> None:
    """Mean, and the second moment from both sides."""
    merged, spread = between(mu, number, 400)
    moments = [float(np.exp(2 * law.logs) @ law.masses) for law in (merged, spread)]
    assert moments[0] <= number * (number - 1 + math.exp(mu**2)) * (1 + 1e-9)
    assert moments[1] >= number * (number - 1 + math.exp(mu**2)) * (1 - 1e-9)
    for law in (merged, spread):
        assert float(np.exp(law.logs) @ law.masses) == pytest.approx(number, rel=1e-9)


@pytest.mark.parametrize("add", [False, True])
def test_the_grid_and_the_inversion_agree(add: bool) -> None:
    """Where the inversion has all digits its δ is between those of the two laws."""
    pair = AllocationPair(1.0, 30, add)
    epsilon = np.array([0.1, 0.4, 0.8])
    found = pair.profile(epsilon)
    assert np.all(found.error <= 1e-9 * found.delta)
    (low, high) = (side[add].profile(epsilon) for side in allocation_pairs(1.0, 30))
    assert np.all(low.delta - low.error <= found.delta)
    assert np.all(found.delta <= high.delta + high.error)
    assert np.all(high.delta <= 1.25 * low.delta)


def test_more_steps_and_fewer_epochs_cost_less() -> None:
    def cost(steps: int, epochs: int) -> pc.Enclosure:
        return pc.RandomAllocation(pc.Gaussian(2.0), steps=steps, epochs=epochs).epsilon(delta=1e-5)

    chain = [cost(1000, 1), cost(100, 1), cost(10, 1), cost(1, 1)]
    assert all(a.upper < b.lower for a, b in itertools.pairwise(chain))
    assert cost(100, 1).upper < (pc.RandomAllocation(pc.Gaussian(2.0), steps=100) * 4).epsilon(delta=1e-5).lower
    assert (pc.RandomAllocation(pc.Gaussian(2.0), steps=100) * 4).epsilon(delta=1e-5).upper < cost(100, 4).lower
    assert cost(1, 4).upper == pytest.approx((pc.Gaussian(2.0) * 4).epsilon(delta=1e-5).upper, rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "steps", "uses"),
    quick([(0.3, 2, 1), (0.3, 100, 1000), (0.7, 4, 10), (0.1, 50, 2), (1.0, 2, 1)], 0, 1, 3, 4),
)
def test_few_slots_and_little_noise(noise: float, steps: int, uses: int) -> None:
    """Where the inversion has too many nodes or too few digits; the largest coordinate alone tells nearly as much."""
    found = (pc.RandomAllocation(pc.Gaussian(noise), steps=steps) * uses).epsilon(delta=1e-6)
    assert found.width <= 3e-3 * found.upper
    assert found.upper < (pc.Gaussian(noise) * uses).epsilon(delta=1e-6).upper
    if uses == 1:  # the test "some coordinate exceeds x" attains so much at least
        x = np.linspace(0, 2 / noise + 8, 4001)
        p = -np.expm1((steps - 1) * norm.logcdf(x) + norm.logcdf(x - 1 / noise))
        q = -np.expm1(steps * norm.logcdf(x))
        occurs = float(np.log((p - 1e-6)[p > 2e-6] / q[p > 2e-6]).max())
        assert 0.93 * found.upper <= occurs <= found.upper


@pytest.mark.parametrize(("noise", "steps"), [(1e4, 60), (1e4, 1_000_000), (1e3, 100_000)])
def test_much_noise_and_many_slots(noise: float, steps: int) -> None:
    """The sum of all slots is N(μ, t) against N(0, t): what it tells is the least that any upper end may say."""
    mechanism, told = pc.RandomAllocation(pc.Gaussian(noise), steps=steps), 1 / noise / math.sqrt(steps)
    for epsilon in (0.5 * told, 4 * told, 7 * told):
        found = mechanism.delta(epsilon=epsilon)
        assert found.lower <= found.upper
        assert found.upper >= pc.GDP(told).delta(epsilon=epsilon).lower


@pytest.mark.parametrize("number", [60, 1000, 1_000_000])
def test_wide_cells_are_not_integrated(number: int) -> None:
    """Twelve nodes know nothing of 50 standard deviations: masses added up to a third."""
    for mu in (1e-4, 1e-3, 1e-2, 0.1):
        for law in between(mu, number, 700) or ():
            assert abs(law.masses.sum() + law.zero - 1) <= law.relative


@pytest.mark.parametrize(("noise", "steps", "choices"), [(1e-3, 5, 3), (0.1, 50, 25)])
def test_several_steps_with_next_to_no_noise(noise: float, steps: int, choices: int) -> None:
    """Nothing is known from below; from above a record in all of them, in one shift."""
    found = pc.RandomAllocation(pc.Gaussian(noise), steps=steps, choices=choices).epsilon(delta=1e-5)
    assert found.lower <= found.upper
    assert found.upper <= pc.GDP(math.sqrt(choices) / noise).epsilon(delta=1e-5).upper * (1 + 1e-9)


@pytest.mark.parametrize("noise", quick([1e4, 1e3], 0))
def test_scores_of_several_steps_with_much_noise(noise: float) -> None:
    """log R is nearly (k/t)μΣg: k/√t·μ-GDP. Scores lie near 0, far from the least there is."""
    laws = scores(1 / noise, 100, 10, 0.06)
    assert laws is not None
    found = several(1 / noise, 100, 10, 1).lower()[0]
    limit = pc.GDP(1 / noise).delta(epsilon=2 / noise).upper
    assert found.bounds(2 / noise)[0] == pytest.approx(limit, rel=0.01)


def test_next_to_no_noise_fails_closed() -> None:
    """Masses underflow: between nothing and the unsampled mechanism."""
    found = (pc.RandomAllocation(pc.Gaussian(0.01), steps=50) * 2).epsilon(delta=1e-5)
    assert found.upper == (pc.Gaussian(0.01) * 2).epsilon(delta=1e-5).upper
    assert found.lower == 0.0


@functools.cache
def subsets(mu: float, steps: int, choices: int) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood ratios of k of t steps, and weights, on a grid of the whole space."""
    x = np.linspace(-7.5, 7.5 + mu, 161)
    weight = norm.pdf(x) * (x[1] - x[0])
    ratio = np.exp(mu * x - 0.5 * mu * mu)
    total = sum(
        functools.reduce(np.multiply.outer, [ratio if j in chosen else np.ones_like(x) for j in range(steps)])
        for chosen in itertools.combinations(range(steps), choices)
    )
    return total / math.comb(steps, choices), functools.reduce(np.multiply.outer, [weight] * steps)


@pytest.mark.parametrize(
    ("steps", "choices", "noise"), [(3, 2, 2.0), *(pytest.param(3, 2, z, marks=pytest.mark.slow) for z in (0.6, 1.0))]
)
def test_several_of_three_steps_by_a_grid(steps: int, choices: int, noise: float) -> None:
    run = pc.RandomAllocation(pc.Gaussian(noise), steps=steps, choices=choices)
    ratio, weight = subsets(1 / noise, steps, choices)
    for epsilon in (0.4, 1.0):
        truth = max(
            float((weight * np.maximum(ratio - math.exp(epsilon), 0)).sum()),
            float((weight * np.maximum(1 - math.exp(epsilon) * ratio, 0)).sum()),
        )
        found = run.delta(epsilon=epsilon)
        assert found.lower <= truth * (1 + 2e-3)
        assert truth <= found.upper * (1 + 2e-3)
        assert 0.6 * found.upper <= found.lower


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "choices", "width"), [(100, 10, 0.06), (1003, 10, 0.015), (8, 4, 0.09)])
def test_several_steps(steps: int, choices: int, width: float) -> None:
    """Above: better than as many draws of one of ⌊t/k⌋, as published. Below: not what Poisson sampling is."""
    run = pc.RandomAllocation(pc.Gaussian(1.0), steps=steps, choices=choices)
    found = run.epsilon(delta=1e-6)
    assert found.width <= width * found.upper
    published = (pc.RandomAllocation(pc.Gaussian(1.0), steps=steps // choices) * choices).epsilon(delta=1e-6)
    assert found.upper <= published.upper * (1 + 1e-6)
    assert found.lower <= published.upper
    assert (
        pc.RandomAllocation(pc.Gaussian(1.0), steps=steps, choices=choices - 1).epsilon(delta=1e-6).lower < found.lower
    )
    twice = (run * 2 + pc.Gaussian(5.0)).epsilon(delta=1e-6)
    assert found.upper < twice.lower <= twice.upper < 2.5 * found.upper


@pytest.mark.parametrize("noise", quick([1e14, 1e30, 1e80], 0, 1))  # the last takes a minute
def test_scores_that_doubles_do_not_tell_apart(noise: float) -> None:
    """All scores are the same number, or differ by rounding: nothing is known from below, and the blocks bound it."""
    run = pc.RandomAllocation(pc.Gaussian(noise), steps=20, choices=2)
    found = run.delta(epsilon=0.0)
    assert scores(1 / noise, 20, 2, 0.06) is None
    assert found.lower <= 2 / math.sqrt(20) / noise / math.sqrt(2 * math.pi) <= found.upper


def test_sums_of_scores() -> None:
    """Two steps, one shifted: both laws by sums of all pairs of cells; how their ratio is e^score where one is."""
    laws = scores(1.0, 2, 1, 0.4)
    assert laws is not None
    assert laws.relative <= 1e-9
    x = np.linspace(-9, 10, 1201)
    p, q = norm.pdf(x - 1) * (x[1] - x[0]), norm.pdf(x) * (x[1] - x[0])
    score = np.log(0.6 + 0.4 * np.exp(x - 0.5))
    means = [float((np.multiply.outer(one, q) * np.add.outer(score, score)).sum()) for one in (p, q)]
    place = np.arange(laws.with_shifts.size)
    # Places are multiples of one unknown spacing: the difference of means over the spread does not depend on it.
    found = [float(masses @ place) for masses in laws[:2]]
    spread = math.sqrt(float(laws.without @ (place - found[1]) ** 2))
    truth = math.sqrt(2 * float(q @ (score - q @ score) ** 2))
    assert (found[0] - found[1]) / spread == pytest.approx((means[0] - means[1]) / truth, rel=1e-4)


def test_all_sets_of_steps_are_equally_likely() -> None:
    mechanism = pc.RandomAllocation(pc.Gaussian(1.0), steps=4, choices=2, epochs=2)
    batches = mechanism.sampler(6000, pc.ADD_OR_REMOVE_ONE)(Noise())
    assert len(batches) == 8
    assert all(np.array_equal(batches[i], batches[i + 4]) for i in range(4))
    sets = [0] * 6000
    for i, batch in enumerate(batches[:4]):
        for record in batch.tolist():
            sets[record] += 1 << i
    counts = np.array([sets.count(1 << a | 1 << b) for a, b in itertools.combinations(range(4), 2)])
    assert counts.sum() == 6000
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 40  # five degrees of freedom: 1.5e-7


def test_relations_and_slots() -> None:
    epoch = pc.RandomAllocation(pc.Gaussian(1.0), steps=30)
    assert epoch.epsilon(delta=1e-5).upper == epoch.epsilon(delta=1e-5, relation=pc.ZERO_OUT).upper
    with pytest.raises(pc.PrivcalcError, match="relation = replace-one: RandomAllocation"):
        epoch.epsilon(delta=1e-5, relation=pc.REPLACE_ONE)
    same = pc.RandomAllocation(pc.Gaussian(2.0), steps=30, epochs=4).epsilon(delta=1e-5)
    assert same.upper == pytest.approx(epoch.epsilon(delta=1e-5).upper, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"steps": 0}, "steps = 0"), ({"steps": 10**6 + 1}, "steps = 1000001: must be at most 1000000"),
     ({"steps": 2.5}, "steps"),
     ({"steps": 3, "epochs": 0}, "epochs = 0"), ({"steps": 3, "choices": 0}, "choices = 0"),
     ({"steps": 3, "choices": 4}, "choices = 4: must be at most steps = 3")],
)  # fmt: skip
def test_wrong_arguments(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        pc.RandomAllocation(pc.Gaussian(1.0), **arguments)


def test_wrong_mechanisms() -> None:
    for inner in (pc.Laplace(1.0), pc.PureDP(1.0), pc.ExponentialMechanism(1.0)):
        with pytest.raises(pc.PrivcalcError, match="must be Gaussian or GDP"):
            pc.RandomAllocation(inner, steps=3).epsilon(delta=1e-5)
    with pytest.raises(pc.PrivcalcError):
        pc.RandomAllocation(pc.PoissonSampled(pc.Gaussian(1.0), 0.1), steps=3)


@pytest.mark.parametrize(
    ("steps", "epochs", "noise"), [(4, 2, 1.0), (3, 1, 1.0), (1, 3, 3.0), (7, 5, 0.7), (2, 3, 3.0)]
)
def test_a_record_in_all_steps_is_the_root_of_their_number(steps, epochs, noise):
    """√choices was rounded up, and said to be attained."""
    found = pc.RandomAllocation(pc.Gaussian(noise), steps, epochs=epochs, choices=steps).gdp_mu()
    exact = Fraction(steps * epochs) / Fraction(noise) ** 2
    assert Fraction(found.lower) ** 2 <= exact <= Fraction(found.upper) ** 2
    assert found.upper <= found.lower * (1 + 1e-14)
