"""The tripwire: how improbable batches of one size are under coins, exactly, and how often it is tripped by chance."""

import collections
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
from privcalc.audit.units import RAW as RAW_TEXT
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


@pytest.mark.parametrize(("rate", "records", "batches"), [(0.05, 1000, 9), (0.01, 1_000_000, 6), (0.5, 10, 17), (0.9, 2, 112)])
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
    """At any time of runs of 60 batches; a false alarm of 1e-9 cannot be simulated, its bound is the same for all levels."""
    runs = 2000
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


# --- norms of drawn records alone ---

ZEROS = "as if only drawn records had been measured"


@pytest.mark.parametrize("least", [1e-12, 1e-6])
def test_zeros_that_were_kept_from_being_zero_are_zeros(least):
    """``norms + 1e-6``, ``norms.clamp(min=1e-12)``: common against a division by 0."""
    rng = np.random.default_rng(0)
    losses = pc.RealisedLosses(records=400, noise_multiplier=2.0, rate=0.1, clip_norm=1.0)
    norms = np.where(rng.random((20, 400)) < 0.1, rng.uniform(0.2, 3.0, 400), 0.0) + least
    with pytest.warns(pc.PrivcalcWarning, match=ZEROS):
        collections.deque(map(losses.update, norms), maxlen=0)


def doubts(norms, **settings):
    """What updates with these norms, and the answer after them, warn of."""
    losses = pc.RealisedLosses(len(norms[0]), noise_multiplier=1.0, **{"clip_norm": 1.0} | settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for row in norms:
            losses.update(row)
        during = [str(one.message) for one in caught]
        losses.epsilon(delta=0.0)
    return during, [str(one.message) for one in caught][len(during) :]


@pytest.mark.parametrize(("records", "rate", "steps"), [(2000, 0.05, 200), (2000, 0.002, 60), (50, 0.5, 60), (300, 0.9, 60)])
@pytest.mark.parametrize("some_are_always_zero", [False, True])
def test_zeros_for_records_that_were_not_drawn_are_warned_of(records, rate, steps, some_are_always_zero):
    rng = np.random.default_rng(0)
    drawn = rng.random((steps, records)) < rate
    if some_are_always_zero:
        drawn[:, : records // 4] = False
    during, after = doubts(np.where(drawn, 3.0, 0.0), rate=rate, clip_norm=1.0)
    assert len(during) == len(after) == 1  # once, and with the answer
    assert ZEROS in during[0]
    assert during == after
    assert not any(character.isdigit() for character in during[0].replace("not 0", ""))  # no number of records


def test_that_a_shuffling_loader_drew_them_is_no_excuse():
    order = np.random.default_rng(1).permutation(1000).reshape(20, 50)
    norms = np.zeros((20, 1000))
    np.put_along_axis(norms, order, 0.7, axis=1)
    assert ZEROS in doubts(norms, rate=0.05)[0][0]


def legitimate():
    """Norms of all records, by name."""
    rng = np.random.default_rng(2)
    dense = rng.random((100, 400)) + 0.01
    always = np.where(rng.random(400) < 0.05, dense, 0.0)  # the others are always zero
    score = rng.normal(size=400) + np.cumsum(0.05 * rng.normal(size=(100, 400)), axis=0)
    hinge = np.maximum(score - 1.6, 0.0)  # those beyond a margin, which come and go
    late = np.where(np.arange(100)[:, None] >= 100 - 8 * (np.arange(400) < 20), dense, 0.0)  # nothing, and then a few
    fading = np.where(rng.random((100, 400)) < 0.3, dense, 0.0)  # zeros by chance, but more than coins leave
    names = {"dense": dense, "always": always, "hinge": hinge, "late": late, "fading": fading}
    return {**names, "three": dense[:, :3], "zero": 0 * dense}


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05, 0.1])
@pytest.mark.parametrize("name", legitimate())
def test_sparse_norms_of_all_records_are_not_warned_of(name, rate):
    assert doubts(np.minimum(legitimate()[name], 1.0), rate=rate) == ([], [])


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("records", [1, 3, 10, 400])
def test_at_high_rates_dense_norms_are_not_warned_of(records, rate):
    assert doubts(np.full((200, records), 0.5), rate=rate) == ([], [])
    assert doubts(np.full((200, records), 0.5) * (np.arange(records) % 3 > 0), rate=rate) == ([], [])


def test_at_rate_one_zeros_are_the_users():
    rng = np.random.default_rng(3)
    assert doubts((rng.random((60, 400)) < 0.05).astype(float)) == ([], [])


# --- norms as they are, without their clip norm ---

SHARES = "none of them has reached the clip norm"


def said_of(norms, **options):
    """The warnings of answers to norms, step by step."""
    losses = pc.RealisedLosses(len(norms[0]), noise_multiplier=2.0, **options)
    for row in norms:
        losses.update(row)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses.epsilon(delta=1e-5)
    return [str(one.message) for one in caught], losses


RAW = 0.4 * np.random.default_rng(3).random((10, 30))


def test_norms_that_look_as_they_are_are_warned_of_in_every_answer(tmp_path):
    """At C = 0.1 most of these records were clipped, and their ε is far larger than if 0.4 C was the most."""
    for norms, options, expected in (
        (RAW, {}, 1),
        (RAW, {"clip_norm": 0.1}, 0),
        (np.minimum(RAW / 0.1, 1).astype(np.float16), {}, 0),
        *([(RAW, {"rate": 0.5}, 1), (RAW, {"clip_norm": 1.0}, 0), (np.minimum(RAW / 0.1, 1), {}, 0)] if SLOW else []),
        (RAW[:4], {}, 0),
        (RAW[:, :3], {}, 0),
        (np.zeros((10, 30)), {}, 0),
    ):
        said, _ = said_of(norms, **options)
        assert sum(SHARES in one for one in said) == expected, (options, said)
    assert not any(character.isdigit() for character in RAW_TEXT.replace("clip_norm=1 ", ""))
    few = RAW[:, :8]
    forgotten, right = said_of(few)[1], said_of(few, clip_norm=0.1)[1]
    assert np.max(forgotten.epsilon(1e-5)) < 0.5 * np.max(right.epsilon(1e-5))
    forgotten.save(tmp_path / "losses.npz")
    with pytest.warns(pc.PrivcalcWarning, match=SHARES):
        pc.RealisedLosses.load(tmp_path / "losses.npz").epsilon(1e-5)
    with pytest.warns(pc.PrivcalcWarning, match=SHARES):
        forgotten.merge(said_of(few)[1], disjoint=True).mu()


@pytest.mark.parametrize("how", ["saved", "added"])
def test_a_doubt_of_before_hides_no_other(tmp_path, how):
    """A third of the records have norms in each of two steps, as if drawn; then come batches of one size."""
    run = {"noise_multiplier": 1.0, "rate": 1 / 3, "clip_norm": 1.0, "ids": range(120)}
    path, losses = tmp_path / "losses.npz", pc.RealisedLosses(120, **run)
    for step in range(2):
        losses.update(np.where(np.arange(120) % 3 == step, 1.0, 0.0))
    if how == "saved":
        losses.save(path)
        losses = pc.RealisedLosses.load(path)
    else:
        losses += pc.RealisedLosses(120, **run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(30):
            losses.update(np.ones(40), indices=(np.arange(40) * 3 + step) % 120)
    assert sum("batches had one and the same size" in str(one.message) for one in caught) == 1
    assert [ZEROS in one for one in losses.doubts["doubt"]] == [True, False]


def test_two_runs_of_the_same_records_are_of_as_many_records():
    """Batches at three times the rate, which of twice as many records would be one and a half times it."""
    run = {"noise_multiplier": 1.0, "rate": 0.1, "clip_norm": 1.0, "ids": range(120)}
    losses = pc.RealisedLosses(120, **run) + pc.RealisedLosses(120, **run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(20):
            losses.update(np.ones(30 + step % 13), indices=np.arange(30 + step % 13))
    assert sum("more than twice as many records" in str(one.message) for one in caught) == 1


def test_a_norm_that_reaches_the_clip_norm_later_ends_the_doubt():
    said, losses = said_of(RAW)
    assert SHARES in said[0]
    losses.update(np.linspace(0, 1, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses.epsilon(delta=1e-5)


@pytest.mark.parametrize(("clip_norm", "warned"), [(None, 1), (1.0, 0), (0.1, 0)])
def test_a_filter_warns_once(clip_norm, warned):
    gate = pc.IndividualFilter(records=30, mu=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for row in RAW:
            gate.admit(row, noise_multiplier=20.0, clip_norm=clip_norm)
    assert sum(SHARES in str(one.message) for one in caught) == warned


# --- shares, with their clip norm ---

DIVIDED = "as if they had been divided by the clip norm already"
GRADIENTS = np.random.default_rng(4).gamma(2.0, 3.0, (20, 30))


def test_shares_that_are_given_with_their_clip_norm_are_warned_of_in_every_answer(tmp_path):
    """At C = 5 a share of 1 would count as one of 1/5."""
    shares = np.minimum(GRADIENTS / 5, 1)
    for norms, options, expected in (
        (shares, {"clip_norm": 5.0}, 1),
        (shares.astype(np.float32), {"clip_norm": 5.0}, 1),
        (shares, {}, 0),
        (shares, {"clip_norm": 1.0}, 0),
        (shares, {"clip_norm": 0.2}, 0),  # which overstates ε
        (GRADIENTS, {"clip_norm": 5.0}, 0),
        (np.minimum(GRADIENTS, 5), {"clip_norm": 5.0}, 0),
        (0.99 * shares, {"clip_norm": 5.0}, 0),
        (shares[:2], {"clip_norm": 5.0}, 0),
    ):
        said, _ = said_of(norms, **options)
        assert sum(DIVIDED in one for one in said) == expected, (options, said)
    wrong, right = said_of(shares, clip_norm=5.0)[1], said_of(shares)[1]
    assert np.max(wrong.epsilon(1e-5)) < 0.5 * np.max(right.epsilon(1e-5))
    wrong.save(tmp_path / "losses.npz")
    with pytest.warns(pc.PrivcalcWarning, match=DIVIDED):
        pc.RealisedLosses.load(tmp_path / "losses.npz").epsilon(1e-5)
    with pytest.warns(pc.PrivcalcWarning, match=DIVIDED):
        wrong.merge(said_of(shares, clip_norm=5.0)[1], disjoint=True).mu()


def test_a_filter_that_gets_shares_with_their_clip_norm_warns_once():
    shares = np.minimum(GRADIENTS / 5, 1)
    for norms, clip_norm, warned in ((shares, 5.0, 1), (shares, None, 0), (shares, 1.0, 0), (GRADIENTS, 5.0, 0)):
        gate = pc.IndividualFilter(records=30, mu=1.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for row in norms:
                gate.admit(row, noise_multiplier=20.0, clip_norm=clip_norm)
        assert sum(DIVIDED in str(one.message) for one in caught) == warned, clip_norm


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


def test_norms_that_were_rounded_down_are_warned_of():
    whole = np.floor(GRADIENTS[0]).astype(int)
    for norms, clip_norm, warned in ((whole, 5.0, 1), (whole + 5, 5.0, 0), (whole.tolist(), 5.0, 0), (GRADIENTS[0], 5.0, 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pc.RealisedLosses(30, 2.0, clip_norm=clip_norm).update(norms)
        assert len(caught) == warned


def test_norms_that_are_too_large_for_half_precision_count_as_clipped():
    with np.errstate(over="ignore"):
        norms = np.array([1e6, 1.0]).astype(np.float16)
    losses = pc.RealisedLosses(2, 2.0, clip_norm=5.0)
    losses.update(norms)
    assert np.asarray(losses.mu())[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("norms", "clip_norm", "said"),
    [
        (GRADIENTS / 256, 5.0, "another unit"),  # of a mean over a batch of 256
        (np.minimum(GRADIENTS, 4) / 256, 1.0, "another unit"),
        (np.minimum(GRADIENTS, 2.0), 5.0, "as if they had been clipped"),
        (np.minimum(GRADIENTS, 2.0).astype(np.float32), 5.0, "as if they had been clipped"),
        (np.minimum(GRADIENTS, 5.0), 5.0, ""),
        (np.minimum(GRADIENTS, 5.0), 2.0, ""),
        (GRADIENTS, 50.0, ""),
        (np.ones_like(GRADIENTS) / 2, 1.0, ""),  # bounded records
        (np.vstack([np.ones((1, 30)) / 2, 0.4 * np.random.default_rng(1).random((19, 30))]), 1.0, ""),  # a first step
        (GRADIENTS[:3] / 256, 5.0, ""),
    ],
)
def test_norms_in_another_unit_than_the_clip_norm_are_warned_of(norms, clip_norm, said, tmp_path):
    found, losses = said_of(norms, clip_norm=clip_norm)
    assert len(found) == bool(said)
    assert said in "".join(found)
    losses.save(tmp_path / "losses.npz")
    gate = pc.IndividualFilter(records=30, mu=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pc.RealisedLosses.load(tmp_path / "losses.npz").epsilon(delta=1e-5)
        for row in norms:
            gate.admit(row, noise_multiplier=20.0, clip_norm=clip_norm)
    assert [str(one.message) for one in caught] == 2 * found


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize(("records", "rate"), [(1000, 0.05), (60, 0.2), (10_000, 0.002)])
def test_zeros_of_a_short_audit_are_warned_of_in_its_answers(records, rate, steps):
    drawn = np.random.default_rng(steps).random((steps, records)) < rate
    assert any(ZEROS in one for one in doubts(np.where(drawn, 3.0, 0.0), rate=rate, clip_norm=1.0)[1])
    dense = np.where(np.arange(records) % 3 > 0, 3.0, 0.0) * np.ones((steps, 1))
    assert doubts(dense, rate=rate, clip_norm=1.0) == ([], [])
    few = np.where(np.arange(records) < rate * records, 3.0, 0.0) * np.ones((steps, 1))  # the same ones in every step
    assert (doubts(few, rate=rate, clip_norm=1.0) == ([], [])) == (steps > 1)


def drifting(seed, steps=12, records=300):
    """Norms as training has them: each record's own, which change slowly."""
    draw = np.random.default_rng(seed)
    own = draw.lognormal(size=records)
    for _ in range(steps):
        own = own * np.exp(0.05 * draw.normal(size=records))
        yield own


def shuffled(norms, step):
    return np.random.default_rng(step).permutation(norms)


def ascending(norms, step):
    return np.sort(norms)


def descending(norms, step):
    return np.sort(norms)[::-1]


@pytest.mark.parametrize(("moved", "text"), [(shuffled, "at other places"), (ascending, "sorted"), (descending, "sorted")])
def test_norms_whose_places_are_no_records_are_warned_of(moved, text):
    losses = pc.RealisedLosses(records=300, noise_multiplier=20.0, clip_norm=1.0)

    def train():
        for step, norms in enumerate(drifting(3)):
            losses.update(moved(norms, step))

    with pytest.warns(pc.PrivcalcWarning, match=f"^norms: are .*{text}"):
        train()
    with pytest.warns(pc.PrivcalcWarning, match="must be one record's"):
        losses.epsilon(delta=1e-5)


SLOW_ONES = list(drifting(4, steps=30))


def their_own(draw, step):
    return SLOW_ONES[step]


def alike(draw, step):
    return draw.uniform(size=300)  # each step's own


def fixed(draw, step):
    return np.linspace(0.1, 3.0, 300)


def of_one_feature(draw, step):
    return np.linspace(0.1, 3.0, 300) / (1 + step)


def mostly_nothing(draw, step):
    return np.where(np.arange(300) < 290, 0.0, draw.uniform(size=300))


def of_three_values(draw, step):
    return draw.choice([0.1, 0.2, 1.0], size=300)


@pytest.mark.parametrize("norms", [their_own, alike, fixed, of_one_feature, mostly_nothing, of_three_values])
def test_norms_of_records_are_not(norms):
    losses, draw = pc.RealisedLosses(records=300, noise_multiplier=20.0, clip_norm=1.0), np.random.default_rng(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        for step in range(30):
            losses.update(norms(draw, step))
        losses.epsilon(delta=1e-5)
