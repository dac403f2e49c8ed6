"""Which steps an audit of realised losses has a theory of, and what a person's contributions come to."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privcalc as pc
from privcalc.audit import totals

SHARES = st.floats(1e-100, 1) | st.just(0.0)


@given(st.lists(st.tuples(st.integers(0, 3), SHARES), min_size=1, max_size=12))
def test_persons_lose_no_more_than_their_totals(rows):
    """μ of a person is the norm of the sum over the noise: in exact arithmetic at most the sum of norms."""
    whose, norms = map(list, zip(*rows, strict=True))
    names = sorted(set(whose))
    most = max(whose.count(name) for name in names)
    step = pc.UserSampled(pc.Gaussian(noise_multiplier=4.0), 1.0, records=most)
    losses = pc.RealisedLosses.of(step, len(names), ids=names)
    for _ in range(3):
        losses.update(totals(norms, whose))
    for name, found in zip(names, np.asarray(losses.mu()), strict=True):
        total = sum(Fraction(norm) for person, norm in rows if person == name)
        assert Fraction(float(found)) ** 2 >= 3 * (total / 4) ** 2
        assert found == pytest.approx(math.sqrt(3) * float(total) / 4, rel=1e-9, abs=1e-150)
    assert losses.worst_case.epsilon(delta=1e-5).upper == pytest.approx((step * 3).epsilon(delta=1e-5).upper, rel=1e-9)


def test_of_a_step_is_what_the_constructor_says():
    for step, same in (
        (pc.Gaussian(2.0), pc.RealisedLosses(2, 2.0)),
        (pc.PoissonSampled(pc.Gaussian(2.0), 0.1), pc.RealisedLosses(2, 2.0, 0.1)),
        (pc.UserSampled(pc.Gaussian(2.0), 1.0, records=4, counted=2), pc.RealisedLosses(2, 1.0, clip_norm=2.0)),
    ):
        losses = pc.RealisedLosses.of(step, 2)
        for one in (losses, same):
            one.update([0.5, 1.0])
        assert np.array_equal(np.asarray(losses.epsilon(1e-5)), np.asarray(same.epsilon(1e-5)))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (pc.UserSampled(pc.Gaussian(2.0), 0.5, records=4), "UserSampled.*a coin of its own"),
        (pc.FixedSizeSampled(pc.Gaussian(2.0), 1, 3), "FixedSizeSampled.*no theory"),
        (pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.5, 2, 3), "TruncatedPoissonSampled.*no theory"),
        (pc.WithReplacementSampled(pc.Gaussian(2.0), 1, 3), "WithReplacementSampled.*no theory"),
        (pc.RandomAllocation(pc.Gaussian(2.0), 3), "RandomAllocation.*no theory"),
        (pc.ShuffledEpoch(pc.Gaussian(2.0)), "ShuffledEpoch.*no theory"),
        (pc.PoissonSampled(pc.Laplace(2.0), 0.5), "Laplace.*no theory"),
        (pc.GDP(1.0), "GDP.*no theory"),
    ],
)
def test_steps_without_a_theory_are_refused_by_name(step, said):
    with pytest.raises(pc.PrivcalcError, match=said):
        pc.RealisedLosses.of(step, 3)


def test_totals_take_norms_of_as_many_persons():
    for norms, whose in (([0.5, 2.0], [1, 1]), ([0.5], [1, 1]), ([0.5], [0.5]), ([0.5], [[1]])):
        with pytest.raises(pc.PrivcalcError, match=r"norms|persons"):
            totals(norms, whose)
