"""The tripwire: how improbable batches of one size are under coins, exactly, and how often it is tripped by chance."""

import math
import warnings
from itertools import accumulate

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import privcalc as pc
from privcalc.tripwire import DOUBT, REFUSAL, Sizes, log_likeliest


def likeliest(rate, records):
    """max P[size = k | size ≥ 1], 50 digits."""
    with mp.workdps(50):
        q, mode = mpf(rate), int((records + 1) * mpf(rate))
        around = range(max(1, mode - 2), min(records, mode + 2) + 1)
        mass = max(mp.binomial(records, k) * q**k * (1 - q) ** (records - k) for k in around)
        return float(mass / (1 - (1 - q) ** records))


@settings(max_examples=60 if SLOW else 20, deadline=None)
@given(rate=st.floats(1e-9, 1.0), records=st.integers(1, 10**12))
@example(rate=1.0, records=5)
@example(rate=0.5, records=1)
@example(rate=0.5, records=2)
@example(rate=0.02, records=50)
@example(rate=1e-12, records=10**12)
@example(rate=1 - 1e-9, records=10**6)
def test_the_likeliest_size_is_bounded_and_close(rate, records):
    found, truth = math.exp(log_likeliest(rate, records)), likeliest(rate, records)
    assert truth * (1 - 1e-9) <= found <= min(1.0, 1.03 * truth)


def after(sizes, rate, records):
    """Chances, size by size."""
    watch = Sizes(rate, records)
    return [watch.chance for size in sizes if not watch.add(size)]


@pytest.mark.parametrize(
    ("rate", "records", "batches"), [(0.05, 1000, 9), (0.01, 1_000_000, 6), (0.5, 10, 17), (0.9, 2, 112)]
)
def test_it_is_tripped_when_the_probability_is_small_enough(rate, records, batches):
    """Not after a fixed number: 4·max^(n − 1) < 1e-9 of batches that all had one size."""
    found = after([max(round(rate * records), 1)] * batches, rate, records)
    assert found[-1] < DOUBT <= found[-2]
    exact = 4 * likeliest(rate, records) ** (batches - 1)
    assert exact * (1 - 1e-9) <= found[-1] <= 1.06 * exact


def test_the_last_batch_of_an_epoch_may_be_smaller():
    watch = Sizes(50 / 220, 220)
    for _ in range(4):
        for size in (50, 50, 50, 50, 20):
            watch.add(size)
    assert "of" in watch.found
    assert watch.chance < DOUBT
    assert "not Poisson samples" in watch.doubt


def test_what_goes_wrong_late_is_found():
    rng = np.random.default_rng(0)
    watch = Sizes(0.05, 1000)
    for size in rng.binomial(1000, 0.05, 5000):
        watch.add(int(size))
    assert watch.doubt is None
    before = sum(1 for _ in range(20) if watch.doubt is None and not watch.add(50))
    assert watch.doubt is not None
    assert 9 <= before < 20


@pytest.mark.parametrize(("rate", "records"), [(1.0, 1000), (0.3, 1), (1e-9, 10), (1.0, 1)])
def test_where_equal_sizes_are_likely_it_is_silent(rate, records):
    assert set(after([records, 0] * 500, rate, records)) == {1.0}


@pytest.mark.parametrize(("rate", "records"), [(0.5, 2), (0.3, 8), (0.05, 1000), (0.02, 50)])
@pytest.mark.parametrize("level", [0.5, 0.05, 0.01])
def test_coins_trip_it_no_more_often_than_it_says(rate, records, level):
    """At any time of 60 batches; a false alarm of 1e-9 cannot be simulated, its bound is the same for all levels."""
    runs = 2000 if SLOW else 500
    sizes = np.random.default_rng(1).binomial(records, rate, (runs, 60))
    tripped = sum(min(after(row.tolist(), rate, records), default=1.0) <= level for row in sizes)
    assert tripped / runs <= level + 3 * math.sqrt(level / runs)


@pytest.mark.parametrize(("rate", "true"), [(0.005, 0.05), (1e-4, 0.01)])
def test_a_rate_that_is_far_too_small_for_the_batches_is_warned_of(rate, true):
    """A rate of one over the steps, or over the records: the batches hold ten, or a hundred, times as many records."""
    rng = np.random.default_rng(0)
    losses = pc.RealisedLosses(records=200, noise_multiplier=2.0, rate=rate, clip_norm=1.0)
    batches = [np.flatnonzero(rng.random(200) < true) for _ in range(60)]
    with pytest.warns(pc.PrivcalcWarning, match="more than twice as many records") as caught:
        told = [losses.update(np.full(drawn.size, 2.0), indices=drawn) for drawn in batches]
    assert (len(caught), len(told)) == (1, 60)


@pytest.mark.parametrize(("rate", "records"), [(0.05, 1000), (1e-3, 100), (0.3, 3), (0.9, 2)])
def test_the_records_of_all_batches_trip_it_no_more_often_than_it_says(rate, records):
    """Also where empty batches are left out, so that those that are there hold more; the chance is Chernoff's."""
    sizes = np.random.default_rng(1).binomial(records, rate, (2000, 60))
    seen = [Sizes(rate, records) for _ in sizes]
    for watch, row in zip(seen, sizes.tolist(), strict=True):
        for size in row:
            watch.add(size)
    assert sum(watch.surplus <= 0.01 for watch in seen) / 2000 <= 0.01 + 3 * math.sqrt(0.01 / 2000)
    assert min(watch.surplus for watch in seen) >= DOUBT


def test_a_refusal_is_rarer_than_a_doubt_and_tells_no_size():
    watch = Sizes(0.05, 1000)
    falls = list(accumulate(after([47] * 40, 0.05, 1000), min))
    assert falls == after([47] * 40, 0.05, 1000)  # it is never taken back
    for _ in range(34):
        watch.check()
        watch.add(47)
        if watch.chance < REFUSAL:
            break
    with pytest.raises(pc.PrivcalcError, match=r"below 2\^-128 under independent coins") as refused:
        watch.check()
    assert "47" not in f"{refused.value}{watch.doubt}"


def test_two_runs_of_the_same_records_are_of_as_many_records():
    """Batches at three times the rate, which of twice as many records would be one and a half times it."""
    run = {"noise_multiplier": 1.0, "rate": 0.1, "clip_norm": 1.0, "ids": range(120)}
    losses = pc.RealisedLosses(120, **run) + pc.RealisedLosses(120, **run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(20):
            losses.update(np.ones(30 + step % 13), indices=np.arange(30 + step % 13))
    assert sum("more than twice as many records" in str(one.message) for one in caught) == 1


GRADIENTS = np.random.default_rng(4).gamma(2.0, 3.0, (20, 30))


def test_what_was_found_is_said_once_also_of_what_was_saved_or_added(tmp_path):
    run = {"noise_multiplier": 1.0, "rate": 1 / 3, "clip_norm": 1.0, "ids": range(120)}
    losses = pc.RealisedLosses(120, **run)

    def said(act):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            act()
        return ["batches had one and the same size" in str(one.message) for one in caught]

    def train():
        for step in range(30):
            losses.update(np.ones(40), indices=(np.arange(40) * 3 + step) % 120)

    assert said(train) == [True]
    assert said(lambda: losses.epsilon(delta=0.0)) == []
    losses.save(tmp_path / "losses.npz")
    loaded = pc.RealisedLosses.load(tmp_path / "losses.npz")
    assert said(lambda: [loaded.epsilon(delta=0.0) for _ in range(2)]) == [True]
    both = losses + pc.RealisedLosses(120, **run)
    assert said(lambda: [both.epsilon(delta=0.0) for _ in range(2)]) == [True]


GRADIENTS = np.random.default_rng(4).gamma(2.0, 3.0, (20, 30))


@pytest.mark.parametrize(("delta", "warned"), [(0.1, 1), (0.01, 0)])
def test_losses_at_a_delta_that_is_no_privacy_are_warned_of(delta, warned):
    losses = pc.RealisedLosses(records=50, noise_multiplier=5.0, clip_norm=1.0)
    losses.update(np.ones(50))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses.epsilon(delta=delta)
    assert ["is not below 1/50" in str(one.message) for one in caught] == [True] * warned


# --- norms of another kind or unit ---


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
def test_norms_that_wrap_around_are_refused(kind):
    """A norm of 300 is 44 in eight bits."""
    norms = np.full(30, 300).astype(kind)
    for give in (
        lambda: pc.RealisedLosses(30, 2.0, clip_norm=50.0).update(norms),
        lambda: pc.RealisedLosses(30, 2.0).checkpoint(norms % 2),
        lambda: pc.IndividualFilter(30, mu=1.0).admit(norms, 2.0, clip_norm=50.0),
    ):
        with pytest.raises(pc.PrivcalcError, match="wraps around"):
            give()


def test_norms_that_are_too_large_for_half_precision_count_as_clipped():
    with np.errstate(over="ignore"):
        norms = np.array([1e6, 1.0]).astype(np.float16)
    losses = pc.RealisedLosses(2, 2.0, clip_norm=5.0)
    losses.update(norms)
    assert np.asarray(losses.mu())[0] == pytest.approx(0.5)
