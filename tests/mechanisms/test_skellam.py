"""Skellam noise over vectors: masses and tails from Bessel functions in many digits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from mpmath import mp, mpf

import privcalc as pc
from privcalc.mechanisms.skellam import _sigma, skellam


def masses(variance: float, reach: int) -> list[mpf]:
    """P(X = k) for 0 ≤ k ≤ reach."""
    v = mpf(variance)
    return [mp.besseli(k, v) * mp.exp(-v) for k in range(reach + 1)]


@pytest.mark.parametrize("variance", [0.01, 1.0, 5.0, 50.0])
def test_masses_bend_least_in_the_middle(variance: float) -> None:
    """The lemma."""
    with mp.workdps(50):
        p = masses(variance, 40)
        bends = [p[k + 1] * p[abs(k - 1)] / p[k] ** 2 for k in range(40)]
        assert all(a < b for a, b in itertools.pairwise(bends))


@pytest.mark.parametrize(("variance", "near"), [(0.01, 1.01), (1.0, 1.11), (5.0, 1.04), (50.0, 1.003), (400.0, 1.0004)])
def test_one_coordinate(variance: float, near: float) -> None:
    """The widest cell, by the tails."""
    with mp.workdps(40):
        p = masses(variance, int(14 * math.sqrt(variance)) + 40)
        tails = [mpf(0)]
        for mass in reversed(p):
            tails.append(tails[-1] + mass)
        z = [mp.sqrt(2) * mp.erfinv(1 - 2 * tail) for tail in reversed(tails) if mpf("1e-35") < tail < mpf("0.5")]
        z = [-z[0], *z]
        truth = max(b - a for a, b in itertools.pairwise(z))
        mu = mpf(skellam(variance, norm=1.0).mu)
        assert truth <= mu <= near * truth
        assert skellam(variance, norm=1.0, relation=pc.REPLACE_ONE).mu == pytest.approx(2 * float(mu), rel=1e-14)


@pytest.mark.parametrize(("variance", "epsilon"), [(4.0, 1.0), (2.0, 2.5)])
def test_four_coordinates_that_move_by_one(variance: float, epsilon: float) -> None:
    """A vector of norm 2, all outcomes written out."""
    with mp.workdps(30):
        half = [float(x) for x in masses(variance, int(16 * math.sqrt(variance)) + 30)]
    p = np.array(half[:0:-1] + half)
    losses = np.log(p[:-1] / p[1:])  # of X + 1 against X at each outcome of the latter but the first
    law = {0.0: 1.0}
    for _ in range(4):
        into: dict[float, float] = {}
        for x, a in law.items():
            for y, b in zip(losses.tolist(), p[:-1].tolist(), strict=True):
                if a * b > 1e-16:
                    into[round(x + y, 4)] = into.get(round(x + y, 4), 0.0) + a * b
        law = into
    truth = sum(a * max(0.0, -math.expm1(epsilon - x)) for x, a in law.items())
    claimed = skellam(variance, norm=2.0).delta(epsilon=epsilon)
    assert truth <= claimed.upper * (1 + 1e-3)
    assert claimed.upper < 3 * truth


@pytest.mark.parametrize("variance", [1e-3, 0.3, 7.0, 99_999.0, 100_001.0, 1e9, 1e15])
def test_the_matching_discrete_gaussian(variance: float) -> None:
    with mp.workdps(60):
        v = mpf(variance)
        truth = 1 / mp.sqrt(-2 * mp.log(mp.besseli(1, v) / mp.besseli(0, v)))
        assert mpf(_sigma(variance)) <= truth
        assert _sigma(variance) == pytest.approx(float(truth), rel=1e-5)


@pytest.mark.parametrize(
    "arguments", [{"variance": 0.0}, {"variance": math.nan}, {"variance": 1e16}, {"norm": 0.5}, {"norm": math.inf}]
)
def test_arguments(arguments: dict[str, float]) -> None:
    with pytest.raises(pc.PrivcalcError, match=next(iter(arguments))):
        skellam(**({"variance": 10.0, "norm": 2.0} | arguments))
