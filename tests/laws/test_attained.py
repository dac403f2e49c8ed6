"""What lower ends say is attained, by the data sets that attain it: enumeration and quadrature without the library's pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

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
