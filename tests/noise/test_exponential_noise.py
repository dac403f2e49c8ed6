"""e^{-q}: the enclosures against 60-digit arithmetic, and the doubles within the error that is claimed of them."""

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from privcalc.noise.exponential import ERROR, LARGEST, _series, bounds, decay


def truth(q):
    return mp.exp(-mpf(q.numerator) / q.denominator)


@given(st.fractions(0, 2000), st.integers(1, 300))
@example(Fraction(0), 64)
@example(Fraction(1, 16), 64)
@example(Fraction(1), 1)
@example(Fraction(10**30), 200)
@example(Fraction(1, 10**30), 200)
@example(Fraction(6, 7) * 64, 128)
def test_bounds_enclose(q, bits):
    with mp.workprec(bits + 3400):
        low, high = bounds(q, bits)
        assert low <= truth(q) * 2**bits <= high
        assert high - low <= 4


@given(st.integers(4, 60), st.floats(0, 1 / 16))
@example(4, 1 / 16)
@example(5, 1 / 16)
def test_the_series_counts_its_own_rounding(digits, x):
    """With few digits, where that is all that matters."""
    units = int(x * 2**digits)
    low, high = _series(units, digits)
    with mp.workdps(60):
        assert low <= mp.exp(-mpf(units) / 2**digits) * 2**digits <= high


def test_the_series_is_not_enclosed_without_what_it_counts():
    """The test above can fail: sums of rounded terms are no bounds."""
    with mp.workdps(60):
        off = [abs(sum(_series(x, 40)) / 2 - mp.exp(-mpf(x) / 2**40) * 2**40) for x in range(2**36 - 500, 2**36)]
    assert max(off) > 0.5


@given(st.lists(st.one_of(st.floats(0, LARGEST), st.floats(0, 3)), min_size=1))
@example([0.0, 5e-324, LARGEST, 0.34657359027997264, 0.34657359027997270, 1e-9])
def test_doubles_are_as_near_as_is_claimed(gammas):
    value, shift = decay(np.array(gammas))
    with mp.workdps(60):
        for gamma, m, n in zip(gammas, value, shift, strict=True):
            exact = mp.exp(-mpf(gamma))
            assert abs(mpf(float(m)) * mpf(2) ** -int(n) - exact) <= ERROR / 8 * exact
            assert 0.7 < m < 1.42


def test_every_binade_of_doubles():
    gammas = np.ldexp(np.random.default_rng(0).uniform(1, 2, 400), np.random.default_rng(1).integers(-1074, 19, 400))
    test_doubles_are_as_near_as_is_claimed.hypothesis.inner_test(gammas.tolist())


def test_what_is_too_small_for_the_digits():
    assert bounds(Fraction(10**6), 64) == (0, 1)
