"""What lower ends say is attained, by the data sets that attain it: enumeration and quadrature without the library's pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

import privcalc as pc
from privcalc.mechanisms.fixed_size import FixedSizeSampled
from privcalc.mechanisms.replacement import WithReplacementSampled
from privcalc.mechanisms.truncated import TruncatedPoissonSampled
from privcalc.mechanisms.tuning import RandomTrials

X = np.arange(-9, 9.001, 0.05)


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
    """The largest δ of the run, over all data sets with so many records at most, each record −1, 0 or 1 for each sampler."""
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
    "two sizes": ([(fixed, 2), (fixed, 4)], FixedSizeSampled(pc.Gaussian(1.0), 1, 2) + FixedSizeSampled(pc.Gaussian(1.0), 1, 4)),
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
        assert alone.lower * (1 - 1e-6) <= found.lower <= alone.upper  # other runs beside 999, and nothing is known of it there
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
    found = WithReplacementSampled(pc.Gaussian(1.0), 2, 1).epsilon(delta=1e-5, relation=pc.REPLACE_ONE, records=2)
    two = pc.Gaussian(1.0).epsilon(delta=1e-5, relation=pc.REPLACE_ONE, records=2)  # both draws move by 2, whoever is drawn
    assert found.lower <= two.upper
    whole = FixedSizeSampled(pc.Gaussian(1.0), 2, 2).epsilon(delta=1e-5, relation=pc.REPLACE_ONE, records=2)
    assert whole.lower == two.lower


def shifted(law, by):
    """Noise around a number, told to cells."""
    return np.diff(law.cdf(np.append(np.append(-np.inf, X * 3), np.inf) - by))


def chosen(weights):
    """Candidates with probabilities in proportion to these."""
    return np.array(weights) / sum(weights)


NORMAL, LAPLACE = stats.norm(), stats.laplace()
RATIO = math.exp(1.0)

WIDE = stats.laplace(scale=2)
ABOVE = quad(lambda x: WIDE.pdf(x) * (WIDE.cdf(x + 0.5) - WIDE.cdf(x)), -80, 80, points=(-0.5, 0.0))[0]

ATTAINED = {
    "Gaussian: one record, in one coordinate": (pc.Gaussian(1.0), [(shifted(NORMAL, 1), shifted(NORMAL, 0))]),
    "Laplace: one record, in one coordinate": (pc.Laplace(1.0), [(shifted(LAPLACE, 1), shifted(LAPLACE, 0))]),
    "DiscreteGaussian: the same": (
        pc.DiscreteGaussian(1.0),
        [tuple(chosen(np.exp(-0.5 * (np.arange(-30, 31) - by) ** 2)) for by in (1, 0))],
    ),
    "DiscreteGaussian of L2 norm √2: two coordinates move": (
        pc.DiscreteGaussian(1.0, sensitivity=1.5, norm=2),
        [tuple(np.multiply.outer(*[chosen(np.exp(-((np.arange(-30, 31) - by) ** 2) / 4.5))] * 2).ravel() for by in (1, 0))],
    ),
    "PoissonSampled: all others null": (
        pc.PoissonSampled(pc.Gaussian(1.0), 0.3),
        [(0.7 * shifted(NORMAL, 0) + 0.3 * shifted(NORMAL, 1), shifted(NORMAL, 0))],
    ),
    "FixedSizeSampled: N − 1 others, opposite": (
        FixedSizeSampled(pc.Gaussian(1.0), 1, 4),
        [(0.75 * shifted(NORMAL, -1) + 0.25 * shifted(NORMAL, 1), shifted(NORMAL, -1))],
    ),
    "WithReplacementSampled: N − 1 others, opposite": (
        WithReplacementSampled(pc.Gaussian(1.0), 2, 3),
        [(sum(w * shifted(NORMAL, v) for v, w in ((-2, 4 / 9), (0, 4 / 9), (2, 1 / 9))), shifted(NORMAL, -2))],
    ),
    "TruncatedPoissonSampled: alone": (
        TruncatedPoissonSampled(pc.Gaussian(1.0), 0.5, 1, 4),
        [(0.5 * shifted(NORMAL, 0) + 0.5 * shifted(NORMAL, 1), shifted(NORMAL, 0))],
    ),
    "RandomAllocation: to one of two steps": (
        pc.RandomAllocation(pc.Gaussian(1.0), 2),
        [
            (
                0.5 * sum(np.multiply.outer(shifted(NORMAL, i), shifted(NORMAL, 1 - i)) for i in (0, 1)).ravel(),
                np.multiply.outer(*[shifted(NORMAL, 0)] * 2).ravel(),
            )
        ],
    ),
    "RandomizedResponse: another category": (pc.RandomizedResponse(1.0, 3), [(chosen([RATIO, 1, 1]), chosen([1, RATIO, 1]))]),
    "ExponentialMechanism: two candidates, any lead": (
        pc.ExponentialMechanism(1.0),
        [(chosen([RATIO * x, 1]), chosen([x, 1])) for x in np.geomspace(1e-3, 1e3, 2001)],
    ),
    "TopK: two of many, one of which rises": (
        pc.TopK(2.0, 1),
        [(chosen([RATIO * x, 1]), chosen([x, 1])) for x in np.geomspace(1e-3, 1e3, 2001)],
    ),
    "PermuteAndFlip: two candidates, any lead": (
        pc.PermuteAndFlip(1.0),
        [tuple(np.array([won, 1 - won]) for won in (1 - math.exp(y - 1) / 2, math.exp(-y) / 2)) for y in np.linspace(0, 1, 1001)],
    ),
    "AboveThreshold: one question, half below and half above": (
        pc.AboveThreshold(threshold_scale=2.0, query_scale=2.0),
        [(np.array([0.5 + ABOVE, 0.5 - ABOVE]), np.array([0.5 - ABOVE, 0.5 + ABOVE]))],
    ),
    "Parallel: the record in the worse part": (
        pc.Parallel([pc.Gaussian(1.0), pc.Laplace(1.0)]),
        [(shifted(law, 1), shifted(law, 0)) for law in (NORMAL, LAPLACE)],
    ),
    "ApproxDP: a leak, else randomised response": (
        pc.ApproxDP(1.0, 0.01),
        [(np.append(0.99 * chosen([RATIO, 1]), [0, 0.01]), np.append(0.99 * chosen([1, RATIO]), [0.01, 0]))],
    ),
    "ThresholdedCounts: a key of the record's own": (
        pc.ThresholdedCounts(noise="laplace", scale=9.0, threshold=10.0),
        [(np.array([math.exp(-1) / 2, 1 - math.exp(-1) / 2]), np.array([0.0, 1.0]))],
    ),
}


@pytest.mark.parametrize("name", ATTAINED)
def test_what_is_attained_is_attained(name):
    """The lower end is what the data set of the table leaks, told to cells a twentieth wide; no more, and hardly less."""
    mechanism, laws = ATTAINED[name]
    for epsilon in (0.05, 0.3, 0.6):
        truth = max(max(told(p, q, epsilon), told(q, p, epsilon)) for p, q in laws)
        found = mechanism.delta(epsilon=epsilon)
        assert truth <= found.upper * (1 + 1e-9) + 1e-12
        assert found.lower <= truth * (1 + 8e-3) + 1e-9


@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=5), st.lists(st.integers(1, 20), min_size=5, max_size=5), st.floats(0, 2)
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
