"""Lower ends are attained, by data sets that attain them: enumeration and quadrature without the library's pairs."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixtures import both as composed
from mixtures import finite, gaussian, mixture, worst
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy import stats
from scipy.integrate import quad

import privcalc as pc
from privcalc.mechanisms.fixed_size import FixedSizeSampled, WithReplacementSampled
from privcalc.mechanisms.random_trials import RandomTrials
from privcalc.mechanisms.truncated_poisson import TruncatedPoissonSampled
from privcalc.strategies import BallsInBins, CyclicPoisson, MinSeparation, Toeplitz

X = np.arange(-9, 9.001, 0.05)
NORMAL, LAPLACE = stats.norm(), stats.laplace()


def told(p, q, epsilon):
    """δ(ε) of two laws."""
    return float(np.maximum(np.asarray(p) - math.exp(epsilon) * np.asarray(q), 0).sum())


def noisy(weights):
    """The law of a sum with normal noise, told to cells; the sum's law is given."""
    edges = np.append(np.append(-np.inf, X), np.inf)
    return sum(w * np.diff(stats.norm.cdf(edges - v)) for v, w in weights.items())


def fixed(values):
    """One of the records, uniformly."""
    return {v: values.count(v) / len(values) for v in values}


def cut(values, rate=0.5):
    """A Poisson sample of which one is kept."""
    found = {}
    for coins in itertools.product((0, 1), repeat=len(values)):
        heads = [v for v, coin in zip(values, coins, strict=True) if coin]
        chance = math.prod(rate if coin else 1 - rate for coin in coins)
        for v in heads or [0]:
            found[v] = found.get(v, 0) + chance / max(len(heads), 1)
    return found


def of_one_data_set(samplers, most, epsilon):
    """The run's largest δ over all data sets of at most so many records, each −1, 0 or 1 for each sampler."""
    worst = 0.0
    for records in range(max(least for _, least in samplers), most + 1):
        sides = []
        for law, _ in samplers:
            rows = [(1, *others) for others in itertools.combinations_with_replacement((-1, 0, 1), records - 1)]
            sides.append([(noisy(law(row)), noisy(law(row[1:]))) for row in rows])
        for chosen in itertools.product(*sides):
            p, q = (np.multiply.outer(*(pair[i] for pair in chosen)).ravel() for i in (0, 1))
            worst = max(worst, told(p, q, epsilon), told(q, p, epsilon))
    return worst


SUMS = {
    "two sizes": (
        [(fixed, 2), (fixed, 4)],
        FixedSizeSampled(pc.Gaussian(1.0), 1, 2) + FixedSizeSampled(pc.Gaussian(1.0), 1, 4),
    ),
    "cut beside a size": (
        [(fixed, 4), (cut, 1)],
        FixedSizeSampled(pc.Gaussian(1.0), 1, 4) + TruncatedPoissonSampled(pc.Gaussian(1.0), 0.5, 1, 4),
    ),
}


@pytest.mark.parametrize("case", SUMS)
def test_a_sum_leaks_no_less_than_its_lower_end_in_one_data_set(case):
    """Each lower end alone needs another number of records: 2 and 4; 4, and 1."""
    samplers, run = SUMS[case]
    for epsilon in (0.1, 0.5):
        truth = of_one_data_set(samplers, 4, epsilon)
        found = run.delta(epsilon=epsilon)
        assert 0 < found.lower <= truth * (1 + 1e-9)
        assert truth <= found.upper * (1 + 1e-9)


def test_sizes_that_exclude_each_other():
    gauss, wide = pc.Gaussian(1.0), pc.Gaussian(1000.0)
    small, large = FixedSizeSampled(gauss, 1, 10), FixedSizeSampled(gauss, 10, 1000)
    for one, other in (
        (FixedSizeSampled(wide, 1, 1000), TruncatedPoissonSampled(gauss, 0.5, 1, 1000)),
        (large, small),
        (large, WithReplacementSampled(gauss, 1, 10)),
    ):
        found, alone = (one + other).epsilon(delta=1e-5), one.epsilon(delta=1e-5)
        assert (
            alone.lower * (1 - 1e-6) <= found.lower <= alone.upper
        )  # other runs beside 999, and nothing is known of it there
        assert found.upper >= other.epsilon(delta=1e-5).upper
        nested = RandomTrials(one, mean=1, distribution="geometric") + other
        assert nested.epsilon(delta=1e-5).lower <= alone.upper * 1.001
    alike = small * 2 + WithReplacementSampled(gauss, 1, 10)
    assert alike.epsilon(delta=1e-5).upper <= alike.epsilon(delta=1e-5).lower * (1 + 1e-8)
    counts = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=9.0)
    assert (counts + small).epsilon(delta=1e-2).lower <= small.epsilon(delta=1e-2).upper
    assert (counts + gauss).epsilon(delta=1e-2).lower > gauss.epsilon(delta=1e-2).upper


def test_a_group_is_no_larger_than_its_data_set():
    """Two records of a data set that has one were said to move by twice as much as all draws can."""
    found = WithReplacementSampled(pc.Gaussian(1.0), 2, 1).epsilon(delta=1e-5, relation=pc.REPLACE_ONE, group_size=2)
    two = pc.Gaussian(1.0).epsilon(
        delta=1e-5, relation=pc.REPLACE_ONE, group_size=2
    )  # both draws move by 2, whoever is drawn
    assert found.lower <= two.upper
    whole = FixedSizeSampled(pc.Gaussian(1.0), 2, 2).epsilon(delta=1e-5, relation=pc.REPLACE_ONE, group_size=2)
    assert whole.lower == two.lower


def orders(p, q, noise=NORMAL):
    """Both orders of two means of shifted noise."""
    return [mixture(p, q, noise), mixture(q, p, noise)]


def discrete(p, q):
    """Both orders of two finite laws."""
    return [finite(p, q), finite(q, p)]


def chosen(weights):
    """Candidates with probabilities in proportion to these."""
    return np.array(weights) / sum(weights)


def binomial(count, rate, step=1.0):
    """How often a coin falls, times a step."""
    return {step * k: math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(count + 1)}


def integers(sigma, by, count=1):
    """The sum of so many discrete Gaussians, each moved by as much."""
    one = chosen(np.exp(-0.5 * (np.arange(-60, 61) / sigma) ** 2))
    law = functools.reduce(np.convolve, [one] * count)
    return np.pad(law, (by * count, 4 * count - by * count))


def allocated(mu, steps, order):
    """One of two steps, or two of three: given all others, does the last release lift the ratio beyond e^ε?"""
    g, h = np.linspace(
        -12.5, 12.5, 40_001 if steps == 2 else 601, retstep=True
    )  # analytic, and nothing at the ends: a sum is as good as any rule
    w = h * stats.norm.pdf(g)
    r = np.exp(mu * g - 0.5 * mu * mu)
    if steps == 2:
        fixed_part, factor = r / 2, np.full_like(r, 0.5)
    else:
        w = np.multiply.outer(w, w)
        fixed_part, factor = np.multiply.outer(r, r) / 3, np.add.outer(r, r) / 3

    def told(epsilon):
        least = np.maximum((math.exp(epsilon * order) - fixed_part) / factor, 1e-300)
        at = np.log(least) / mu + 0.5 * mu  # r > least from there on
        q, p = stats.norm.sf(at), stats.norm.sf(at - mu)
        if order > 0:
            return float((w * (fixed_part * q + factor * p - math.exp(epsilon) * q)).sum())
        return float((w * (1 - q - math.exp(epsilon) * (fixed_part * (1 - q) + factor * (1 - p)))).sum())

    return told


def wins(lead, count=1e8):
    """The probability that one of so many candidates, a lead ahead, beats as many others; Laplace noise on all."""
    t, step = np.linspace(-6, 45, 4001, retstep=True)  # above log(count/2), around which the largest noise is
    mine, others = (np.log1p(-np.exp(-t - by) / count) for by in (0.0, lead))
    return float(step * (np.exp(-t + (count - 1) * mine + count * others)).sum())


def two(p, q):
    """Both orders of an event that has these probabilities."""
    return discrete([p, 1 - p], [q, 1 - q])


def ranged(epsilon, a=1.0):
    """One choice of range a, with the worst offset, at every real ε (Dong, Durfee, Rogers 2020)."""
    if abs(epsilon) >= a:
        return max(-math.expm1(epsilon), 0.0)
    return math.expm1((epsilon - a) / 2) ** 2 / -math.expm1(-a)


def twice_chosen(epsilon, a=1.0):
    """Two choices, the second of which may depend on the first: losses t and t − a, then the worst for what is left."""

    def of(t):
        p = -math.expm1(t - a) / -math.expm1(-a)
        return p * ranged(epsilon - t) + (1 - p) * ranged(epsilon - t + a)

    return max(of(t) for t in np.linspace(0, a, 4001))


def best_of(p, q, mean=3.0):
    """Geometrically many trials, of which one in an event is the best, or the worst; any event of Gaussian trials."""

    def better(x):
        return x / (1 / mean + (1 - 1 / mean) * x)

    pairs = [(better(p), better(q)), (1 - better(1 - p), 1 - better(1 - q))]
    return [side for x, y in pairs for side in two(x, y)]


RATIO = math.exp(1.0)
SWAPPED = pc.REPLACE_ONE
NULLED = pc.ZERO_OUT
ONE, NONE = {1.0: 1.0}, {0.0: 1.0}
WIDE = stats.laplace(scale=2)
ABOVE = quad(lambda x: WIDE.pdf(x) * (WIDE.cdf(x + 0.5) - WIDE.cdf(x)), -80, 80, points=(-0.5, 0.0), epsabs=1e-14)[0]
GAUSS = pc.Gaussian(1.0)
CHOICE = [worst(lambda x: finite(chosen([math.exp(1 + x), 1]), chosen([math.exp(x), 1])), -4, 4)]
TOEPLITZ = Toeplitz([1.0, 0.5], steps=3)
PAIR = Toeplitz([1.0, 0.5], steps=2)


def stream(scale, first, then):
    """The best of many events, in the limit: none of the first questions was above, and then one of the others."""
    x = np.linspace(-45 * scale, 45 * scale, 9001)
    theta, density = np.exp(-x / scale), stats.laplace.pdf(x, scale=scale) * (x[1] - x[0])
    quiet, loud = np.append(0.0, np.exp(np.arange(-1, 4, 0.25))), np.exp(np.arange(-10, 4, 0.25))

    def chances(first_move, then_move):
        none = np.exp(-np.multiply.outer(quiet * math.exp(first_move / scale), theta))
        some = -np.expm1(-np.multiply.outer(loud * math.exp(-then_move / scale), theta))
        return (none * density) @ some.T

    p, q = chances(0.0, 0.0), chances(first, then)
    return lambda epsilon: float((p - math.exp(epsilon) * q).max())


ATTAINED = {
    "Gaussian: one record, in one coordinate": (GAUSS, None, orders(ONE, NONE)),
    "Gaussian: opposite records": (GAUSS, SWAPPED, [gaussian(2.0)]),
    "Laplace: one record, in one coordinate": (pc.Laplace(1.0), None, orders(ONE, NONE, LAPLACE)),
    "Laplace: opposite records": (pc.Laplace(1.0), SWAPPED, orders({2.0: 1.0}, NONE, LAPLACE)),
    "DiscreteGaussian: one record, in one coordinate": (
        pc.DiscreteGaussian(1.0),
        None,
        discrete(integers(1, 1), integers(1, 0)),
    ),
    "DiscreteGaussian: opposite records": (pc.DiscreteGaussian(1.0), SWAPPED, discrete(integers(1, 2), integers(1, 0))),
    "DiscreteGaussian of L2 norm 1.5: two coordinates move": (
        pc.DiscreteGaussian(1.0, sensitivity=1.5, norm=2),
        None,
        discrete(integers(1.5, 1, 2), integers(1.5, 0, 2)),
    ),
    "DiscreteGaussian of L2 norm 2: four coordinates move": (
        pc.DiscreteGaussian(1.0, sensitivity=2.0, norm=2),
        None,
        discrete(integers(2, 1, 4), integers(2, 0, 4)),
    ),
    "PoissonSampled: all others null": (pc.PoissonSampled(GAUSS, 0.3), None, orders(binomial(1, 0.3), NONE)),
    "PoissonSampled: opposite records, all others null": (
        pc.PoissonSampled(GAUSS, 0.3),
        SWAPPED,
        orders(binomial(1, 0.3), binomial(1, 0.3, -1.0)),
    ),
    "PoissonSampled Laplace: opposite records": (
        pc.PoissonSampled(pc.Laplace(1.0), 0.3),
        SWAPPED,
        orders(binomial(1, 0.3), binomial(1, 0.3, -1.0), LAPLACE),
    ),
    "PoissonSampled integers: opposite records": (
        pc.PoissonSampled(pc.DiscreteGaussian(1.0), 0.3),
        SWAPPED,
        [finite(*(0.7 * integers(1, 1) + 0.3 * integers(1, by) for by in (2, 0)))],
    ),
    "PoissonSampled choice: raised candidates": (
        pc.PoissonSampled(pc.ExponentialMechanism(1.0), 0.3),
        SWAPPED,
        [
            finite(
                0.7 * chosen([1, 1, n]) + 0.3 * chosen([RATIO, 1, n]),
                0.7 * chosen([1, 1, n]) + 0.3 * chosen([1, RATIO, n]),
            )
            for n in (0.0, 3.0, 18.0, 98.0)
        ],
    ),
    "FixedSizeSampled: N − 1 others, opposite": (
        FixedSizeSampled(GAUSS, 1, 4),
        None,
        orders({-1.0: 0.75, 1.0: 0.25}, {-1.0: 1.0}),
    ),
    "FixedSizeSampled, replaced: others as the one that came": (
        FixedSizeSampled(GAUSS, 1, 4),
        SWAPPED,
        orders({-1.0: 0.75, 1.0: 0.25}, {-1.0: 1.0}),
    ),
    "FixedSizeSampled, nulled: others null": (FixedSizeSampled(GAUSS, 1, 4), NULLED, orders(binomial(1, 0.25), NONE)),
    "FixedSizeSampled, thirds": (
        FixedSizeSampled(pc.Laplace(1.0), 1, 3),
        None,
        orders({0.0: 2 / 3, 2.0: 1 / 3}, NONE, LAPLACE),
    ),
    "WithReplacementSampled: N − 1 others, opposite": (
        WithReplacementSampled(GAUSS, 2, 3),
        None,
        orders(binomial(2, 1 / 3, 2.0), NONE),
    ),
    "WithReplacementSampled, replaced": (
        WithReplacementSampled(GAUSS, 2, 3),
        SWAPPED,
        [*orders(binomial(2, 1 / 3, 2.0), NONE), *orders(binomial(2, 1 / 3), binomial(2, 1 / 3, -1.0))],
    ),
    "WithReplacementSampled, nulled": (WithReplacementSampled(GAUSS, 2, 3), NULLED, orders(binomial(2, 1 / 3), NONE)),
    "TruncatedPoissonSampled: alone": (TruncatedPoissonSampled(GAUSS, 0.5, 1, 4), None, orders(binomial(1, 0.5), NONE)),
    "TruncatedPoissonSampled, replaced: alone": (
        TruncatedPoissonSampled(GAUSS, 0.5, 1, 4),
        SWAPPED,
        orders(binomial(1, 0.5), binomial(1, 0.5, -1.0)),
    ),
    "UserSampled: all records alike": (pc.UserSampled(GAUSS, 0.3, 2), None, orders(binomial(2, 0.3), NONE)),
    "UserSampled, one of two counted": (pc.UserSampled(GAUSS, 0.3, 2, 1), None, orders(binomial(1, 0.51), NONE)),
    "UserSampled, replaced": (pc.UserSampled(GAUSS, 0.3, 2), SWAPPED, orders(binomial(2, 0.3), binomial(2, 0.3, -1.0))),
    "RandomAllocation: to one of two steps": (
        pc.RandomAllocation(GAUSS, 2),
        None,
        [allocated(1.0, 2, order) for order in (1, -1)],
    ),
    "RandomAllocation: in three passes": (
        pc.RandomAllocation(pc.Gaussian(3.0), 2, epochs=3),
        None,
        [allocated(math.sqrt(1 / 3), 2, order) for order in (1, -1)],
    ),
    "RandomAllocation: two of three steps": (
        pc.RandomAllocation(GAUSS, 3, choices=2),
        None,
        [allocated(1.0, 3, order) for order in (1, -1)],
    ),
    "RandomAllocation: all steps": (pc.RandomAllocation(GAUSS, 2, epochs=3, choices=2), None, [gaussian(math.sqrt(6))]),
    "CorrelatedGaussian: the first and the last step": (
        pc.CorrelatedGaussian(1.0, TOEPLITZ, MinSeparation(separation=2)),
        None,
        [gaussian(1.5)],
    ),
    "CorrelatedGaussian, sampled: the class of the longer column": (
        pc.CorrelatedGaussian(1.0, PAIR, CyclicPoisson(classes=2, rate=0.5)),
        None,
        orders(binomial(1, 0.5, math.sqrt(1.25)), NONE),
    ),
    "CorrelatedGaussian: one of two bins": (
        pc.CorrelatedGaussian(1.0, Toeplitz([1.0], steps=2), BallsInBins(bins=2)),
        None,
        [allocated(1.0, 2, order) for order in (1, -1)],
    ),
    "RandomizedResponse: another category": (
        pc.RandomizedResponse(1.0, 3),
        None,
        [finite(chosen([RATIO, 1, 1]), chosen([1, RATIO, 1]))],
    ),
    "ExponentialMechanism: two candidates, any lead": (pc.ExponentialMechanism(1.0), None, CHOICE),
    "ExponentialMechanism twice: the second after the first": (pc.ExponentialMechanism(1.0) * 2, None, [twice_chosen]),
    "TopK: two of many, one of which rises": (pc.TopK(2.0, 1), None, CHOICE),
    "PermuteAndFlip: two candidates, any lead": (
        pc.PermuteAndFlip(1.0),
        None,
        [side for y in np.linspace(0, 1, 1001) for side in two(1 - math.exp(y - 1) / 2, math.exp(-y) / 2)],
    ),
    "NoisyMax, Laplace: one of many candidates": (
        pc.NoisyMax(1.0, noise="laplace"),
        None,
        [worst(lambda x, i=i: two(wins(x + 1), wins(x))[i], -4, 4) for i in (0, 1)],
    ),
    "AboveThreshold: one question, or very many": (
        pc.AboveThreshold(threshold_scale=2.0, query_scale=2.0),
        None,
        [*two(0.5 + ABOVE, 0.5 - ABOVE), stream(2.0, 1.0, 1.0)],
    ),
    "Parallel: the record in the worse part": (
        pc.Parallel([GAUSS, pc.Laplace(1.0)]),
        None,
        [*orders(ONE, NONE), *orders(ONE, NONE, LAPLACE)],
    ),
    "Parallel: the other part fills its batch": (
        pc.Parallel([GAUSS, FixedSizeSampled(GAUSS, 1, 4)]),
        None,
        [*orders(ONE, NONE), *orders({-1.0: 0.75, 1.0: 0.25}, {-1.0: 1.0})],
    ),
    "ApproxDP: a leak, else randomised response": (
        pc.ApproxDP(1.0, 0.01),
        None,
        [finite(np.append(0.99 * chosen([RATIO, 1]), [0, 0.01]), np.append(0.99 * chosen([1, RATIO]), [0.01, 0]))],
    ),
    "CustomMechanism: a leak of one side": (
        pc.CustomMechanism.from_probabilities([0.5, 0.3, 0.2], [0.4, 0.6, 0.0]),
        None,
        discrete([0.5, 0.3, 0.2], [0.4, 0.6, 0.0]),
    ),
    "ThresholdedCounts: a key of the record's own": (
        pc.ThresholdedCounts(noise="laplace", scale=9.0, threshold=10.0),
        None,
        [*two(math.exp(-1) / 2, 0.0), *orders({1 / 9: 1.0}, NONE, LAPLACE)],
    ),
    "ThresholdedCounts: two keys that many have": (
        pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=60.0, keys=2),
        None,
        [composed(ONE, NONE, mixture(ONE, NONE, LAPLACE), LAPLACE)],
    ),
    "RandomTrials: the best is in an event": (
        RandomTrials(GAUSS, mean=3, distribution="geometric"),
        None,
        [
            side
            for level in np.concatenate([np.geomspace(1e-6, 0.5, 200), 1 - np.geomspace(1e-6, 0.5, 200)])
            for side in best_of(float(stats.norm.sf(stats.norm.isf(level) - 1)), level)
        ],
    ),
}

BETWEEN = {  # known between two ends only: the table's data sets do not attain the upper one, nor the lower end theirs
    "RandomAllocation: two of three steps",
    "NoisyMax, Laplace: one of many candidates",
    "AboveThreshold: one question, or very many",
    "RandomTrials: the best is in an event",
    "PoissonSampled choice: raised candidates",
}


@pytest.mark.parametrize("name", ATTAINED)
def test_what_is_attained_is_attained(name):
    """The lower end is no more than what the data set of the table leaks, and hardly less."""
    mechanism, relation, sides = ATTAINED[name]
    for epsilon in (0.05, 0.3, 0.6):
        truth = max(side(epsilon) for side in sides)
        found = mechanism.delta(epsilon=epsilon, relation=relation or pc.ADD_OR_REMOVE_ONE)
        assert truth <= found.upper * (1 + 1e-9) + 1e-12
        assert found.lower <= truth * (1 + (1e-6 if "Laplace: one of many" in name else 1e-9)) + 1e-12
        assert found.lower >= truth * (1 - 1e-4) - 1e-9 or name in BETWEEN


RESPONSES = [np.multiply.outer(law, law) for law in (chosen([RATIO, 1, 1]), chosen([1, RATIO, 1]))]
WIDER = quad(lambda x: WIDE.pdf(x) * (WIDE.cdf(x + 1.0) - WIDE.cdf(x)), -80, 80, points=(-1.0, 0.0), epsabs=1e-14)[0]
GEOMETRIC = math.exp(-1.0) ** np.abs(np.arange(-300, 301)) * math.tanh(0.5)
COUNTED = functools.partial(pc.ThresholdedCounts, noise="laplace", scale=9.0, threshold=10.0)


def counted(new, common):
    """New keys with so many persons of the group, and shifts of common ones: alone, and in both orders."""
    leak = -math.expm1(math.fsum(math.log1p(-math.exp((n - 10) / 9) / 2) for n in new))
    side = mixture({common / 9: 1.0}, NONE, LAPLACE) if common else (lambda epsilon: max(-math.expm1(epsilon), 0.0))
    lost = -math.log1p(-leak)
    return [lambda epsilon: leak + (1 - leak) * side(epsilon + lost), lambda epsilon: side(epsilon - lost)]


GROUPS = {
    "all of one kind": (GAUSS, None, [gaussian(2.0)]),
    "Laplace: in one coordinate": (pc.Laplace(1.0), None, orders({2.0: 1.0}, NONE, LAPLACE)),
    "Laplace, replaced": (pc.Laplace(1.0), SWAPPED, orders({4.0: 1.0}, NONE, LAPLACE)),
    "integers, in one coordinate": (pc.DiscreteGaussian(1.0), NULLED, discrete(integers(1, 2), integers(1, 0))),
    "integers of L2 norm 1.5: two coordinates move": (
        pc.DiscreteGaussian(1.0, sensitivity=1.5, norm=2),
        None,
        discrete(integers(1.5, 2, 2), integers(1.5, 0, 2)),
    ),
    "two candidates, of which both raise one": (
        pc.ExponentialMechanism(1.0),
        None,
        [worst(lambda x: finite(chosen([math.exp(2 + x), 1]), chosen([math.exp(x), 1])), -4, 4)],
    ),
    "two candidates, of which each raises one": (
        pc.TopK(2.0, 1),
        None,
        [worst(lambda x: finite(chosen([math.exp(1 + x), 1]), chosen([math.exp(x), RATIO])), -4, 4)],
    ),
    "a score that moves both ways, replaced": (
        pc.ExponentialMechanism(0.25, monotone=False),
        SWAPPED,
        [worst(lambda x: finite(chosen([math.exp(2 + x), 1]), chosen([math.exp(x), 1])), -4, 4)],
    ),
    "permute-and-flip: any lead": (
        pc.PermuteAndFlip(1.0),
        None,
        [side for y in np.linspace(0, 2, 2001) for side in two(1 - math.exp(y - 2) / 2, math.exp(-y) / 2)],
    ),
    "NoisyMax, Laplace: one of many candidates": (
        pc.NoisyMax(0.5, noise="laplace"),
        None,
        [worst(lambda x, i=i: two(wins(x + 1), wins(x))[i], -4, 4) for i in (0, 1)],
    ),
    "two reports": (pc.RandomizedResponse(1.0, 3), None, discrete(*RESPONSES)),
    "two reports, replaced": (pc.RandomizedResponse(1.0, 3), SWAPPED, discrete(*RESPONSES)),
    "AboveThreshold: one question, or very many": (
        pc.AboveThreshold(threshold_scale=2.0, query_scale=2.0, monotone=True),
        None,
        [*two(0.5 + WIDER, 0.5 - WIDER), stream(2.0, 0.0, 2.0), stream(2.0, 2.0, 0.0)],
    ),
    "ThresholdedCounts: a key of both, of each, of one": (
        COUNTED(),
        None,
        [side for case in (((2,), 0), ((1, 1), 0), ((1,), 1), ((), 2)) for side in counted(*case)],
    ),
    "a stated pure guarantee: a count with geometric noise": (
        pc.PureDP(1.0),
        None,
        discrete(np.append([0, 0], GEOMETRIC), np.append(GEOMETRIC, [0, 0])),
    ),
    "sampled": (
        pc.PoissonSampled(GAUSS, 0.3),
        None,
        [*orders(binomial(2, 0.3), NONE), *orders(binomial(1, 0.3), binomial(1, 0.3, -1.0))],
    ),
    "sampled and replaced": (pc.PoissonSampled(GAUSS, 0.3), SWAPPED, orders(binomial(2, 0.3), binomial(2, 0.3, -1.0))),
    "the whole of a batch": (FixedSizeSampled(GAUSS, 2, 2), SWAPPED, [gaussian(4.0)]),
    "the one record that there is": (WithReplacementSampled(GAUSS, 2, 1), SWAPPED, [gaussian(4.0)]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_of_two_leaks_what_is_said(name):
    mechanism, relation, sides = GROUPS[name]
    for epsilon in (0.05, 0.6):
        truth = max(side(epsilon) for side in sides)
        found = mechanism.delta(epsilon=epsilon, relation=relation or pc.ADD_OR_REMOVE_ONE, group_size=2)
        assert truth <= found.upper * (1 + 1e-9) + 1e-12
        assert found.lower <= truth * (1 + (1e-6 if "Laplace: one of many" in name else 1e-9)) + 1e-12
        between = name in BETWEEN or name == "the one record that there is"
        assert found.lower >= truth * (1 - 1e-4) or between
        assert found.upper <= truth * (1 + 1e-4) or between


@pytest.mark.parametrize(("level", "passes", "choices"), [(3.0, 3, 1), (0.7, 7, 1), (3.0, 5, 3), (1.1, 6, 3)])
def test_a_root_is_not_what_it_is_rounded_to(level, passes, choices):
    """μ√passes is off by three roundings; ends of one use hold for the number itself and neighbours, in 40 digits."""
    run = pc.RandomAllocation(pc.Gaussian(level), 3, epochs=passes, choices=choices)
    found = run.gdp_mu()
    with mp.workdps(40):
        assert found.lower <= mp.sqrt(passes * choices) / mpf(level) <= found.upper


@pytest.mark.parametrize(("level", "passes"), [(3.0, 3), (2.1, 2), (11.0, 7)])
def test_two_steps_with_a_root_in_thirty_digits(level, passes):
    """δ of one use by a sum over the first release, with μ = √passes/level as it is."""
    run = pc.RandomAllocation(pc.Gaussian(level), 2, epochs=passes)
    with mp.workdps(30):
        mu, step = mp.sqrt(passes) / mpf(level), mpf(1) / 256
        for epsilon in (mpf(1) / 8, mpf(1) / 2):
            found = mpf(0)
            for k in range(-10 * 256, 10 * 256 + 1):
                g = k * step
                r = mp.exp(mu * g - mu * mu / 2)
                least = 2 * mp.exp(epsilon) - r
                at = mp.log(least) / mu + mu / 2 if least > 0 else -mp.inf
                q, p = (mp.erfc(x / mp.sqrt(2)) / 2 for x in (at, at - mu))
                found += step * mp.npdf(g) * ((r / 2 - mp.exp(epsilon)) * q + p / 2)
            said = run.delta(epsilon=float(epsilon))
            assert said.lower <= found * (1 + mpf(10) ** -11)
            assert found * (1 - mpf(10) ** -11) <= said.upper


@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=5),
    st.lists(st.integers(1, 20), min_size=5, max_size=5),
    st.floats(0, 2),
)
@settings(max_examples=30, deadline=None)
def test_lower_ends_of_small_laws_are_below_the_truth(p, q, epsilon):
    """Any two laws on a few outcomes, used twice, and sampled."""
    x, y = (np.array(part, dtype=float) / sum(part) for part in (p, q[: len(p)]))
    one = pc.CustomMechanism.from_probabilities(x, y)
    twice = [np.multiply.outer(law, law).ravel() for law in (x, y)]
    mixed = 0.7 * y + 0.3 * x
    for run, (a, b) in ((one, (x, y)), (one * 2, twice), (pc.PoissonSampled(one, 0.3), (mixed, y))):
        truth = max(told(a, b, epsilon), told(b, a, epsilon))
        found = run.delta(epsilon=epsilon)
        assert found.lower <= truth * (1 + 1e-9) + 1e-15
        assert truth <= found.upper * (1 + 1e-9) + 1e-15
