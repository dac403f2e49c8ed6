"""The noise: its laws, exactly where they are exact, and that it is never drawn twice."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import privcalc as pc
from privcalc.ledger.noise import SecureNoise, SeededNoise

ALARM = 1e-6 / 20
"""Each statistical test fails by chance with this probability: all of them together with less than 1e-6."""

SOURCES = [SeededNoise(11), SecureNoise()]
LAWS = {
    "normal": (stats.norm.cdf, lambda noise, n: noise.normal(n)),
    "laplace": (stats.laplace.cdf, lambda noise, n: noise.laplace(n)),
    "gumbel": (stats.gumbel_r.cdf, lambda noise, n: noise.gumbel(n)),
}


@pytest.mark.parametrize("noise", SOURCES, ids=["seeded", "secure"])
@pytest.mark.parametrize("law", LAWS)
def test_continuous_laws(noise, law):
    cdf, draw = LAWS[law]
    assert stats.kstest(draw(noise, 10**5), cdf).pvalue > ALARM


class Fixed(SeededNoise):
    """Given bits."""

    def __init__(self, *values):
        self._values = np.array(values, dtype=np.uint64)

    def bits(self, size):
        return self._values[:size]


def test_the_ends_of_the_laws():
    """Every pattern of bits gives a finite number; the extremes are symmetric and in the right places."""
    ends = Fixed(0, 1, 2**64 - 2, 2**64 - 1, 2**63, 2**63 + 1)
    for law in ("normal", "laplace", "gumbel"):
        assert np.all(np.isfinite(getattr(ends, law)(6)))
    normal = ends.normal(6)
    assert normal[0] == -normal[1]
    assert normal[0] == pytest.approx(stats.norm.ppf(2.0**-65))
    assert max(abs(normal[2]), abs(normal[3])) < 1e-15
    assert normal[4] == pytest.approx(stats.norm.ppf(0.25))
    assert abs(ends.laplace(2)[0]) == pytest.approx(64 * math.log(2))
    assert ends.gumbel(1)[0] == pytest.approx(65 * math.log(2))  # the largest, from the smallest uniform number
    uniform = (np.arange(6) + 0.5) / 6
    assert np.all(np.diff(Fixed(*(int(u * 2**64) for u in uniform)).gumbel(6)) < 0)


@pytest.mark.parametrize("sigma", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40.1)])
def test_discrete_gaussian_is_exact(sigma):
    size = 6000
    for noise in SOURCES:
        draws = noise.discrete_gaussian(size, sigma)
        reach = math.ceil(float(sigma) * 12)
        support = np.arange(-reach, reach + 1)
        mass = np.exp(-(support**2) / (2 * float(sigma) ** 2))
        mass /= mass.sum()
        observed, expected = np.array([np.sum(draws == x) for x in support]), size * mass
        assert observed.sum() == size
        kept = expected >= 5
        rest = [observed[~kept].sum()], [expected[~kept].sum()]
        if rest[1][0] < 1e-3:
            assert rest[0][0] == 0
            rest = [], []
        found = stats.chisquare([*observed[kept], *rest[0]], [*expected[kept], *rest[1]], sum_check=False)
        assert found.pvalue > ALARM


def test_coins_have_the_rate():
    for noise in SOURCES:
        for rate in (1e-3, 0.3, 1 / 3):
            assert stats.binomtest(int(noise.coins(10**5, rate).sum()), 10**5, rate).pvalue > ALARM
        assert noise.coins(1000, 1.0).all()
        assert not noise.coins(1000, 1e-50).any()
    # exactly below the limit, rounded down
    assert Fixed(2**62 - 1, 2**62).coins(2, 0.25).tolist() == [True, False]


def test_batches_of_fixed_size_are_uniform():
    noise, size, chosen, draws = SeededNoise(5), 6, 2, 15_000
    found = np.zeros((size, size))
    for _ in range(draws):
        first, second = noise.subset(size, chosen)
        found[first, second] += 1
    pairs = found[np.triu_indices(size, 1)]
    assert pairs.sum() == draws  # ascending, distinct
    assert stats.chisquare(pairs).pvalue > ALARM
    assert SecureNoise().subset(5, 5).tolist() == list(range(5))
    assert SecureNoise().subset(5, 0).size == 0


def test_draws_are_independent():
    draws = SeededNoise(9).normal(2 * 10**5)
    for lag in (1, 2, 7):
        assert abs(np.mean(draws[:-lag] * draws[lag:])) * math.sqrt(draws.size) < 6
    # the sign and the size
    assert stats.kstest(np.abs(draws[draws > 0]), np.abs(draws[draws < 0])).pvalue > ALARM


def from_fork(draw):
    """What a fork draws."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, np.asarray(draw()).tobytes())
        os._exit(0)
    os.close(writing)
    data = os.read(reading, 1 << 16)
    os.close(reading)
    os.waitpid(child, 0)
    return np.frombuffer(data)


def test_nothing_is_drawn_twice(tmp_path):
    """Not after a fork, not when a ledger is gone on with, seeded or not."""
    noise, step = SecureNoise(), pc.Gaussian(noise_multiplier=1.0)
    seen = [noise.normal(100), *(from_fork(lambda: noise.normal(100)) for _ in range(3)), noise.normal(100)]
    for seed in (None, 1):
        path = tmp_path / f"{seed}.jsonl"

        def draw(path=path, seed=seed):
            ledger = pc.Ledger(path, plan=step * 100, seed=seed)
            found = ledger.gaussian(np.zeros(100), step, clip_norm=1.0)
            ledger._journal.close()
            return found

        seen += [draw(), from_fork(draw), draw(), from_fork(draw)]
    together = np.concatenate(seen)
    assert len(np.unique(np.abs(together))) == together.size == 100 * len(seen)


def test_a_seed_reproduces():
    step = pc.Gaussian(noise_multiplier=1.0)

    def draw(seed):
        return pc.Ledger(None, plan=step, seed=seed).gaussian(np.zeros(5), step, clip_norm=1.0)

    assert np.array_equal(draw(3), draw(3))
    assert not np.array_equal(draw(3), draw(4))
    assert not np.array_equal(
        SeededNoise(3).discrete_gaussian(9, Fraction(50)), SeededNoise(3, 1).discrete_gaussian(9, Fraction(50))
    )
    for seed in (1.5, True, "1", -1):
        with pytest.raises(pc.PrivcalcError, match="seed"):
            pc.Ledger(None, plan=step, seed=seed)
