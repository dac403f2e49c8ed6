"""Choices, coins and subsets: exact probabilities, also where doubles cannot tell two candidates apart."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from privcalc.noise import selection
from privcalc.noise.bits import Bits, SecureBits, SeededBits, Uniform, coins, subset
from privcalc.noise.selection import choose, choose_set

ALARM = 1e-6 / 40
SOURCES = [SeededBits(11), SecureBits()]


class Words(Bits):
    """Given words, and no others."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, size):
        found, self.left = self.left[:size], self.left[size:]
        assert len(found) == size
        return np.array(found, dtype=np.uint64)


# --- choices --------------------------------------------------------------------------------------

SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9)


@given(SCORES, st.floats(1e-6, 1e2), st.integers(1, 3), st.booleans())
@example([0.0], 1.0, 1, True)
@example([1e300, -1e300, 1e300], 1.0, 1, True)
@example([0.0, 5e-324, -700.0], 1.0, 2, True)
@example([0.1, 0.2, 0.3], 1e-3, 3, False)
def test_a_point_next_to_a_boundary(scores, factor, k, just_below):
    """Uniform numbers 2⁻¹²⁰ below and above the boundary between two candidates, in 100-digit arithmetic."""
    k = min(k, len(scores))
    ranked = np.array(sorted(scores, reverse=True))
    with mp.workdps(150):
        weights = [
            math.comb(k - 1 + i, k - 1) * mp.exp((mpf(score) - mpf(float(ranked[k - 1]))) * mpf(factor))
            for i, score in enumerate(ranked[k - 1 :].tolist())
        ]
        total, end = sum(weights), mpf(0)
        for i, weight in enumerate(weights):
            end += weight
            at = int(mp.floor(end / total * mpf(2) ** 192)) + (-(2**70) if just_below else 2**70)
            if not 0 <= at < 2**192 or min([weight, *weights[i + 1 : i + 2]]) / total < mpf(2) ** -110:
                continue
            source = Words(at >> 128, (at >> 64) & (2**64 - 1), at & (2**64 - 1))
            found = selection._weighted(source, ranked[k - 1 :], Fraction(factor), k)
            assert found == (i if just_below else i + 1)


def test_doubles_decide_only_what_they_can_tell(monkeypatch):
    """Whatever the first word is, doubles and integers agree, or doubles do not answer."""
    rng, unsure = np.random.default_rng(0), 0
    for _ in range(400):
        n, k = int(rng.integers(1, 40)), int(rng.integers(1, 4))
        scores, factor = rng.normal(size=n) * 10.0 ** rng.integers(-3, 3), Fraction(float(10.0 ** rng.integers(-3, 3)))
        uniform = Uniform(SeededBits(int(rng.integers(2**32))))
        uniform.refine()
        quick = selection._quickly(uniform, scores, factor, k)
        unsure += quick is None
        assert quick in (None, selection._exactly(uniform, scores, factor, k))
    assert unsure < 4


@pytest.mark.parametrize("bits", SOURCES, ids=["seeded", "secure"])
def test_the_law_of_choices(bits):
    scores, draws = np.array([0.0, 1.0, 2.5, -3.0, 1.0]), 20_000 if SLOW else 6_000
    law = np.exp(0.7 * scores) / np.exp(0.7 * scores).sum()
    found = Counter(choose(bits, scores, Fraction(7, 10)) for _ in range(draws))
    assert stats.chisquare([found[i] for i in range(5)], draws * law).pvalue > ALARM


def test_candidates_far_behind_are_chosen_as_rarely_as_they_should():
    """Gumbel noise of 64 bits is never above 45: a candidate 49 behind was never chosen."""
    scores, factor = np.array([0.0, -60.0]), Fraction(1)
    with mp.workdps(60):
        second = 1 / (1 + mp.exp(60))
        at = int(mp.floor((1 - second) * mpf(2) ** 192))
    at -= 2**70
    words = at >> 128, (at >> 64) & (2**64 - 1), at & (2**64 - 1)
    assert choose(Words(*words), scores, factor) == 0
    at += 2**71
    assert choose(Words(at >> 128, (at >> 64) & (2**64 - 1), at & (2**64 - 1)), scores, factor) == 1


def test_scores_may_be_of_any_size():
    assert choose(SeededBits(1), np.array([-1.7e308, 1.7e308]), Fraction(10) ** 200) == 1
    assert choose(SeededBits(1), np.array([0.0, 1e-300]), Fraction(10) ** 305) == 1
    both = {choose(SeededBits(i), np.array([1e-300, 0.0]), Fraction(1)) for i in range(40)}
    assert both == {0, 1}


def test_sets_of_many_candidates():
    """Counts of sets with hundreds of digits; each candidate is as likely as any where all scores are equal."""
    found = np.concatenate([choose_set(SeededBits(i), np.zeros(2000), Fraction(1), 400) for i in range(50)])
    assert stats.chisquare(np.bincount(found, minlength=2000)).pvalue > ALARM
    mantissas, exponents = selection._sets_above(3000, 200)
    for i in (0, 1, 17, 2999):
        assert (
            abs(Fraction(mantissas[i]) * Fraction(2) ** int(exponents[i]) / math.comb(199 + i, 199) - 1) <= i * 2.0**-52
        )


# --- coins and subsets ----------------------------------------------------------------------------


def test_coins_have_the_rate():
    for bits in SOURCES:
        for rate in (1e-3, 0.3, 1 / 3):
            assert stats.binomtest(int(coins(bits, 10**5, rate).sum()), 10**5, rate).pvalue > ALARM
        assert coins(bits, 1000, 1.0).all()
        assert not coins(bits, 1000, 1e-50).any()


@pytest.mark.parametrize("rate", [0.25, 0.3, 1 / 3, 1e-9, 1e-30, 1e-100, 5e-324, 1 - 2.0**-53])
def test_coins_next_to_the_rate(rate):
    """The rate is a finite binary fraction: the first number not below it, and the last that is."""
    digits = 8 * 136  # eight are looked at at a time
    limit = int(Fraction(rate) * 2**digits)
    assert Fraction(limit, 2**digits) == Fraction(rate)
    for at, expected in ((limit - 1, True), (limit, False)):
        words = [(at >> (digits - 8 - 8 * i)) & 255 for i in range(136)]
        assert coins(Words(*words), 1, rate).tolist() == [expected]


def test_batches_of_fixed_size_are_uniform():
    bits, size, chosen, draws = SeededBits(5), 6, 2, 15_000
    found = np.zeros((size, size))
    for _ in range(draws):
        first, second = subset(bits, size, chosen)
        found[first, second] += 1
    pairs = found[np.triu_indices(size, 1)]
    assert pairs.sum() == draws  # ascending, distinct
    assert stats.chisquare(pairs).pvalue > ALARM
    assert subset(SecureBits(), 5, 5).tolist() == list(range(5))
    assert subset(SecureBits(), 5, 0).size == 0


def test_equal_keys_are_told_apart_by_more_bits():
    assert subset(Words(7, 3, 7, *[9, 1, 2], *[5, 1, 4]), 3, 2).tolist() == [1, 2]
    assert subset(Words(7, 7, 7, *[2, 1, 2], *[5, 1, 4]), 3, 2).tolist() == [1, 2]
    assert subset(Words(7, 7, 7, *[2, 1, 2], *[4, 1, 5]), 3, 2).tolist() == [0, 1]
