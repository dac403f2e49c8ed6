"""The source: the discrete Gaussian, seeds, and that nothing is drawn twice."""

import math
import os
import warnings
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats

import privcalc as pc
from privcalc.noise import Bits, Noise, SeededBits, gaussian, laplace
from privcalc.noise.discrete_gaussian import WIDEST, discrete_gaussian

ALARM = 1e-6 / 20
"""Each statistical test fails by chance with this probability: all of them together with less than 1e-6."""

SOURCES = [Noise(SeededBits(11)), Noise()]


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


class Words(Bits):
    """Given words, and then positive signs."""

    def __init__(self, *words):
        self._words = list(words)

    def words(self, size):
        return np.array([self._words.pop(0) if self._words else 0 for _ in range(size)], dtype=np.uint64)


@pytest.mark.parametrize("variance", [Fraction(1, 50), Fraction(0.3), Fraction(17, 3), Fraction(300)])
def test_discrete_gaussian_next_to_each_boundary(variance):
    """Uniform numbers just below and just above P(|X| ≤ k): by 90 digits. Of each k, the extreme ones too."""
    seen = 0
    with mp.workdps(90):
        two = 2 * mpf(variance.numerator) / variance.denominator
        total, reached = mp.jtheta(3, 0, mp.exp(-1 / two)), mpf(0)
        for k in range(math.isqrt(int(80 * variance)) + 2):
            reached += mp.exp(-(mpf(k) ** 2) / two) * (2 if k else 1)
            place = int(mp.floor(reached / total * mpf(2) ** 192))
            if 2**192 - place < 2**72:
                break
            for bits, right in ((place - 2**70, k), (place - 2, k), (place + 2, k + 1), (place + 2**70, k + 1)):
                words = bits >> 128, (bits >> 64) & (2**64 - 1), bits & (2**64 - 1)
                # Where one word decides, the next ones are signs: the size is what is compared.
                found = abs(int(discrete_gaussian(Words(*words), variance, 1)[0]))
                assert found == right, (k, bits - place)
                seen += 1
    assert seen >= 4


def test_tails_of_the_discrete_gaussian_are_reached():
    """The last number of 64 bits is no end: what comes after it decides, 30 σ and more away."""
    far = [abs(int(discrete_gaussian(Words(*[2**64 - 1] * n), Fraction(9), 1)[0])) / 3 for n in (1, 2, 4, 9)]
    assert far[0] > 8.9
    assert far == sorted(far)
    assert far[-1] > 26


@pytest.mark.parametrize("variance", [Fraction(WIDEST), Fraction(WIDEST) + 1])
def test_wide_noise_has_the_same_law_from_the_table_and_by_coins(variance):
    draws = discrete_gaussian(SeededBits(8), variance, 4000)
    assert stats.kstest(draws / 1000, stats.norm.cdf).pvalue > ALARM
    assert set(draws % 2) == {0, 1}


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
    noise, step = Noise(), pc.Gaussian(noise_multiplier=1.0)

    def draw_alone():
        return noise.normal(100, 2.0**50).astype(np.float64)

    seen = [draw_alone(), *(from_fork(draw_alone) for _ in range(3)), draw_alone()]
    for seed in (None, 1):
        path = tmp_path / f"{seed}.jsonl"

        def draw(path=path, seed=seed):
            ledger = pc.Ledger(path, plan=step * 100, seed=seed)
            found = ledger.gaussian(np.zeros(100), step, clip_norm=1.0)
            ledger.journal.close()
            return found

        seen += [draw(), from_fork(draw), draw(), from_fork(draw)]
    together = np.concatenate(seen)
    assert len(np.unique(np.abs(together))) == together.size == 100 * len(seen)


@pytest.mark.parametrize("release", [gaussian, laplace])
def test_noise_of_a_seed_is_warned_of(release):
    with pytest.warns(pc.PrivcalcWarning, match="^noise: is made from a seed"):
        release(np.zeros(3), 1.0, clip_norm=1.0, noise=Noise(SeededBits(0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release(np.zeros(3), 1.0, clip_norm=1.0, noise=Noise())
        release(np.zeros(3), 1.0, clip_norm=1.0)


def test_a_seed_reproduces():
    step = pc.Gaussian(noise_multiplier=1.0)

    def draw(seed):
        return pc.Ledger(None, plan=step, seed=seed).gaussian(np.zeros(5), step, clip_norm=1.0)

    assert np.array_equal(draw(3), draw(3))
    assert not np.array_equal(draw(3), draw(4))
    assert not np.array_equal(
        Noise(SeededBits(3)).discrete_gaussian(9, Fraction(50)),
        Noise(SeededBits(3, 1)).discrete_gaussian(9, Fraction(50)),
    )
    for seed in (1.5, True, "1", -1):
        with pytest.raises(pc.PrivcalcError, match="seed"):
            pc.Ledger(None, plan=step, seed=seed)
