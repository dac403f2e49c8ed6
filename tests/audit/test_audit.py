"""Per-sample audits: closed forms, engine record by record, shards, filters under attack, what may not be claimed."""

from __future__ import annotations

import contextlib
import json
import math
import re
import warnings

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import betaincinv, ndtr

import privcalc as pc
from privcalc import cli, parts
from privcalc.audit import gdp
from privcalc.audit.norms import read_norms
from privcalc.audit.sensitive import ESTIMATE, FILLED, FULL
from privcalc.audit.sums import Moments
from privcalc.questions import Questions

DELTA = 1e-5


def exact(noise, rate, ratios, times=1):
    return pc.Run.of(pc.PoissonSampled(pc.Gaussian(noise / r), rate) * times for r in ratios if r > 0).epsilon(
        delta=DELTA
    )


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_full_batch_epsilon_is_exact_and_above(delta):
    mu = np.concatenate([np.geomspace(1e-7, 300, 60), [0.0]])
    found = gdp.epsilons(mu, delta)
    for m, e in zip(mu[:-1], found, strict=False):
        truth = pc.GDP(m).epsilon(delta=delta)
        assert truth.lower <= e <= truth.upper + 1e-9 * max(1.0, truth.upper / 300)
    assert found[-1] == 0
    assert gdp.epsilons(mu, 0.0)[0] == math.inf


def test_full_batch_with_a_schedule():
    losses = pc.RealisedLosses(3)
    for noise, row in ((20.0, [1.0, 0.5, 0.0]), (5.0, [0.1, 1.0, 0.0]), (40.0, [1, 1, 0])):
        losses.update(np.array(row), noise)
    mu = np.asarray(losses.mu())
    assert mu == pytest.approx(
        [math.sqrt(1 / 400 + 0.01 / 25 + 1 / 1600), math.sqrt(0.25 / 400 + 1 / 25 + 1 / 1600), 0], rel=1e-12
    )
    assert losses.grade == FULL
    assert np.asarray(losses.epsilon(DELTA))[1] == pytest.approx(
        pc.GDP(float(mu[1])).epsilon(delta=DELTA).upper, abs=1e-9
    )


CASES = [(0.8, 0.001, 20_000), (1.0, 0.01, 2_000), (2.0, 0.01, 10_000), (5.0, 0.1, 1_000)]


@pytest.mark.parametrize(("noise", "rate", "steps"), quick(CASES, 0))
def test_sampled_epsilon_is_above_and_close(noise, rate, steps):
    rng = np.random.default_rng(3)
    ratios = np.minimum(1, np.exp(rng.normal(-1, 0.7, 3)) * np.exp(0.3 * rng.standard_normal((5, 3))))
    ratios[:, 0] = 1.0
    losses = pc.RealisedLosses(3, noise, rate)
    for row in ratios:
        losses.update(row, steps=steps // 5)
    found = np.asarray(losses.epsilon(DELTA))
    for i, e in enumerate(found):
        truth = exact(noise, rate, ratios[:, i], steps // 5)
        assert truth.lower <= e <= truth.upper * (1 + 1e-4) + 1e-6
    assert found[0] == pytest.approx(losses.worst_case.epsilon(delta=DELTA).upper, rel=1e-3)


@pytest.mark.slow  # few steps: test_audit_few.py
def test_few_large_steps_are_wider_but_safe():
    losses, row = pc.RealisedLosses(1, 0.8, 0.01), [1.0] + [0.02] * 99
    for ratio in row:
        losses.update([ratio])
    (found,) = np.asarray(losses.epsilon(DELTA))
    assert exact(0.8, 0.01, row).lower <= found <= losses.worst_case.epsilon(delta=DELTA).upper


# --- streaming, shards, partial updates -----------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(data=st.data(), rate=st.sampled_from([1.0, 0.05]))
def test_shards_partial_and_resumed_agree_with_the_whole(data, rate, tmp_path_factory):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    n, steps = 7, data.draw(st.integers(1, 12))
    rows = rng.random((steps, n))
    whole = pc.RealisedLosses(n, 2.0, rate)
    parts = [pc.RealisedLosses(3, 2.0, rate), pc.RealisedLosses(4, 2.0, rate)]
    indexed = pc.RealisedLosses(n, 2.0, rate)
    order = rng.permutation(n)
    for t, row in enumerate(rows):
        whole.update(row)
        parts[0].update(row[:3])
        parts[1].update(row[3:][order[order < 4]], indices=order[order < 4])
        indexed.update(row[order], indices=order)
        if t == steps // 2:
            path = tmp_path_factory.mktemp("a") / "losses.npz"
            indexed.save(path)
            indexed = pc.RealisedLosses.load(path)
    offline = np.sqrt((rows**2).sum(axis=0) / 4)
    merged = parts[0].merge(parts[1], disjoint=True)
    other_way = np.roll(parts[1].merge(parts[0], disjoint=True)._tally.mu(), 3)
    assert other_way == pytest.approx(offline, rel=1e-12 if rate == 1 else 1e-7)
    close = 1e-12 if rate == 1 else 1e-7  # the largest are rounded up to float32
    unseen = np.zeros(n, dtype=bool)
    for losses in (whole, merged, indexed):
        assert losses.grade == FULL
        assert losses._tally.mu() == pytest.approx(offline, rel=close)
        assert (losses._tally.mu() >= offline * (1 - 1e-15)).all()
        for bank, other in zip(losses._tally.banks, whole._tally.banks, strict=True):
            have, want = (b.bank(unseen, 0.0).moments if rate < 1 else b.sums + b.shared for b in (bank, other))
            assert have == pytest.approx(want, abs=close)


def test_what_is_not_observed_is_charged_the_clip_norm():
    losses, full = pc.RealisedLosses(3, 20.0), pc.RealisedLosses(3, 20.0)
    for _ in range(10):
        losses.update([0.2], indices=[1])
        full.update([1.0, 0.2, 1.0])
    assert losses.grade == FILLED
    assert np.asarray(losses.epsilon(DELTA)) == pytest.approx(np.asarray(full.epsilon(DELTA)), abs=1e-9)
    losses.checkpoint([0.5, 0.5, 0.5])
    losses.update([0.2], indices=[1])
    assert losses.grade == ESTIMATE
    assert np.asarray(losses.mu())[0] ** 2 == pytest.approx(10.25 / 400)


def test_realised_values_are_sensitive(tmp_path):
    losses = pc.RealisedLosses(3, 20.0, ids=["a", "b", "c"])
    losses.update([1.0, 0.3, 0.1])
    losses.save(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        assert "SENSITIVE" in str(file["header"])
    for thing in (losses, losses.epsilon(DELTA)):
        assert "SENSITIVE" in repr(thing)
        with pytest.raises(pc.PrivcalcError, match=r"RealisedLosses|RealisedValues"):
            pc.certify(thing, delta=DELTA)
    assert "For record b alone" in losses.for_record("b", DELTA)
    with pytest.raises(pc.PrivcalcError, match=r"unknown replacement"):
        losses.epsilon(DELTA, relation=pc.REPLACE_ONE)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([1.2, 0.1],), "norms"),
        (([math.nan, 0.1],), "norms"),
        (([0.1],), r"shape \(2,\)"),
        (([0.1, 0.2], None, [0, 0]), "indices"),
        (([0.1], None, [2]), "indices"),
        (([0.1, 0.1], -1.0), "noise_multiplier"),
    ],
)
def test_bad_updates(arguments, match):
    with pytest.raises(pc.PrivcalcError, match=match):
        pc.RealisedLosses(2, 1.0).update(*arguments)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: arrays.pop("seen"),
        lambda header, arrays: arrays.pop("sums0"),
        lambda header, arrays: header.pop("banks"),
        lambda header, arrays: header.update(banks=3),
        lambda header, arrays: header.update(banks=[[1.0, -1.0, 0.0, 0]]),
        lambda header, arrays: header.update(banks=[[2.0, 1.0, 0.0, 0]]),
        lambda header, arrays: header.update(steps=[[20.0]]),
        lambda header, arrays: header.update(steps=[[1.0, 20.0, -3]]),
        lambda header, arrays: header.update(partial="2"),
        lambda header, arrays: header.update(records=4),
        lambda header, arrays: header["banks"][0].__setitem__(0, 0.5),
        lambda header, arrays: arrays.update(sums0=arrays["sums0"][:2]),
        lambda header, arrays: arrays.update(sums0=arrays["sums0"] * math.nan),
        lambda header, arrays: arrays.update(seen=arrays["seen"].astype(np.float64)),
        lambda header, arrays: arrays.update(ids=np.ones(3, dtype=complex)),
    ],
)
@pytest.mark.parametrize("signed", [False, True])
def test_saved_losses_that_were_edited_are_refused(tmp_path, change, signed):
    """Also where the digest was made to fit."""
    path = tmp_path / "x.npz"
    losses = pc.RealisedLosses(3, 20.0, ids=["a", "b", "c"])
    losses.update([1.0, 0.3, 0.1])
    losses.save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header, digest = json.loads(str(arrays.pop("header"))), arrays.pop("digest")
    change(header, arrays)
    text = json.dumps(header)
    np.savez(path, header=np.array(text), digest=np.array(parts.digest(text, arrays)) if signed else digest, **arrays)
    with pytest.raises(pc.PrivcalcError, match="path = "):
        pc.RealisedLosses.load(path)


def test_files_that_hold_something_else_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    np.savez(tmp_path / "list.npz", header=np.array("[1]"))
    np.savez(tmp_path / "number.npz", header=np.array(3.0))
    np.savez(tmp_path / "pickle.npz", header=np.array([None], dtype=object))
    for name in ("x.npy", "list.npz", "number.npz", "pickle.npz"):
        with pytest.raises(pc.PrivcalcError, match="path = "):
            pc.RealisedLosses.load(tmp_path / name)
    pc.RealisedLosses(3, 20.0).save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    for place in range(0, len(whole), 7):
        (tmp_path / "flipped.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with contextlib.suppress(pc.PrivcalcError):
            pc.RealisedLosses.load(tmp_path / "flipped.npz")


@pytest.mark.parametrize(
    "ids", [["a", None, "c"], [1j, 2j, 3j], [1.0, math.nan, 2.0], [["a"], ["b"], ["c", "d"]], ["a", "a", "b"]], ids=str
)
def test_names_that_could_not_be_found_again_are_refused(ids):
    with pytest.raises(pc.PrivcalcError, match="ids"):
        pc.RealisedLosses(3, 20.0, ids=ids)


def test_what_a_filter_sums_does_not_underflow():
    """r²·(1e-100/1e100)² is no double, and must not be nothing."""
    gate = pc.IndividualFilter(2, mu=1.0)
    gate.admit([0.0, 0.0], 1e-100)
    gate.admit([0.5, 0.0], 1e100)
    assert gate._spent[0, 0] > 0 == gate._spent[0, 1]


# --- several runs, rates and noises -----------------------------------------------------------------

STEPS = [(0.01, 1.0, 300), (0.05, 2.0, 100), (1.0, 12.0, 10), (0.01, 1.5, 60)]  # rate, noise multiplier, how many


def of_run(steps, ratios, **options):
    losses = pc.RealisedLosses(ratios.shape[1], **options)
    for (rate, noise, count), row in zip(steps, ratios, strict=True):
        for _ in range(count):
            losses.update(row, noise, rate=rate)
    return losses


def composed(steps, ratios):
    """By the accountant itself, record by record: each with its own noise multipliers."""
    for own in ratios.T:
        taken = [
            (pc.PoissonSampled(pc.Gaussian(z / r), q), n) for (q, z, n), r in zip(steps, own, strict=True) if r > 0
        ]
        yield pc.Run.of(step * count for step, count in taken).epsilon(delta=DELTA)


@pytest.mark.parametrize("steps", quick([STEPS[:2], [STEPS[0], STEPS[3]], STEPS[1:3], STEPS], 2, 3), ids=str)
def test_steps_of_other_rates_and_noises_are_composed(steps):
    rng = np.random.default_rng(5)
    ratios = rng.random((len(steps), 4)) ** 2
    ratios[:, 0], ratios[:, 1], ratios[0, 2] = 1.0, 0.0, 0.0
    losses = of_run(steps, ratios)
    assert losses.worst_case == pc.Run.of(pc.PoissonSampled(pc.Gaussian(z), q) * n for q, z, n in steps)
    for found, truth in zip(np.asarray(losses.epsilon(DELTA)), composed(steps, ratios), strict=True):
        assert truth.lower <= found <= truth.upper * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize("steps", quick([[(0.1, 1.0, 2), (0.02, 0.7, 1)], [(0.1, 1.0, 2), (1.0, 3.0, 1)]], 1), ids=str)
def test_few_steps_of_several_rates_are_composed(steps):
    ratios = np.array([[1.0, 0.5, 0.0], [1.0, 0.9, 0.8]])
    for found, truth in zip(np.asarray(of_run(steps, ratios).epsilon(DELTA)), composed(steps, ratios), strict=True):
        assert truth.lower <= found <= truth.upper * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize("steps", quick([STEPS[:2], STEPS[1:3], [(0.05, 2.0, 60), (0.05, 2.0, 70)]], 1, 2), ids=str)
def test_losses_of_two_runs_of_the_same_records_add_up(steps, tmp_path):
    """In any order of the records, as if the steps of both were one run's, also after saving."""
    rng = np.random.default_rng(2)
    ratios, names, order = rng.random((2, 5)), np.array(["e", "a", "d", "b", "c"]), np.array([3, 0, 4, 2, 1])
    first = of_run(steps[:1], ratios[:1], ids=names)
    then = of_run(steps[1:], ratios[1:, order], ids=names[order])
    (first + then).save(tmp_path / "both.npz")
    both = pc.RealisedLosses.load(tmp_path / "both.npz")
    assert both.worst_case == first.worst_case + then.worst_case
    values = both.epsilon(DELTA)
    for found, truth in zip(np.asarray(values), composed(steps, ratios), strict=True):
        assert truth.lower <= found <= truth.upper * (1 + 1e-4) + 1e-6
    assert f"= {values.values[2]:.6g} " in values.for_record("d")
    assert np.asarray((then + first)._tally.mu())[np.argsort(order)] == pytest.approx(both._tally.mu(), rel=1e-12)


def test_what_either_run_did_not_see_stays_charged():
    runs = [pc.RealisedLosses(2, 2.0, ids=[7, 8]) for _ in range(2)]
    for _ in range(12):
        runs[0].update([0.1], indices=[0])
        runs[1].update([0.1, 0.1])
    both = runs[0] + runs[1]
    assert both.grade == FILLED
    assert np.asarray(both.mu()) == pytest.approx(
        [math.sqrt(24 * 0.01 / 4), math.sqrt((12 + 12 * 0.01) / 4)], rel=1e-12
    )


def test_the_largest_steps_of_two_runs_are_kept():
    """As if they were one run's, whose other steps are in the moments."""
    x = np.random.default_rng(3).random((2, 12, 4))
    ways = [Moments.empty(4, 0.5, 1.0) for _ in range(3)]
    for run, rows in enumerate(x):
        for row in rows:
            ways[run].add(np.sqrt(row), 1.0, 1, None, 0.0)
            ways[2].add(np.sqrt(row[::-1] if run else row), 1.0, 1, None, 0.0)
    found, whole = ways[0].after(ways[1], np.arange(4)[::-1]), ways[2]
    whole.settle()
    assert (found.largest == whole.largest).all()
    assert found.sums == pytest.approx(whole.sums, abs=1e-6)
    assert (found.total() >= (x[0].sum(axis=0) + x[1].sum(axis=0)[::-1]) * (1 - 1e-12)).all()


def test_records_are_not_put_together_without_names():
    """Two runs of the same five records were ten records; and of which record is whose loss?"""
    plain, other = (of_run([(1.0, 20.0, 3)], np.full((1, 5), r)) for r in (0.5, 1.0))
    with pytest.raises(pc.PrivcalcError, match=r"ids: must be given.*disjoint=True.*losses_a \+ losses_b"):
        plain.merge(other)
    with pytest.raises(pc.PrivcalcError, match="ids: must be given to both"):
        plain + other
    assert plain.merge(other, disjoint=True).records == 10
    one, two = (of_run([(1.0, 20.0, 3)], np.full((1, 5), r), ids=np.arange(5)) for r in (0.5, 1.0))
    for join in (lambda: one.merge(two), lambda: one.merge(two, disjoint=True)):
        with pytest.raises(pc.PrivcalcError, match=r"ids: must not be in both.*losses_a \+ losses_b"):
            join()
    assert np.asarray((one + two).mu()) == pytest.approx(math.sqrt(3 * 1.25) / 20)
    for foreign in (of_run([(1.0, 20.0, 3)], np.ones((1, 5)), ids=np.arange(1, 6)), plain, one.merge(two_of_others())):
        with pytest.raises(pc.PrivcalcError, match="ids: must be"):
            one + foreign
    with pytest.raises(TypeError):
        one + 1
    plain.name(np.arange(5)[::-1])  # as those of a learner have none
    assert np.asarray((plain + two).mu()) == pytest.approx(math.sqrt(3 * 1.25) / 20)
    with pytest.raises(pc.PrivcalcError, match="ids: must stay"):
        plain.name(np.arange(5))


def two_of_others():
    return of_run([(1.0, 20.0, 3)], np.full((1, 2), 0.5), ids=[11, 12])


# --- norms as they are ----------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [0.1, 1.0, 1e-9, 3e5])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_norms_are_divided_by_the_clip_norm(clip_norm, rate):
    norms = clip_norm * np.array([0.0, 0.01, 0.5, 1.0, 7.0])
    divided = pc.RealisedLosses(5, 2.0, rate)
    ways = [pc.RealisedLosses(5, 2.0, rate, clip_norm=clip_norm), pc.RealisedLosses(5, 2.0, rate, clip_norm=99.0)]
    for _ in range(20):
        divided.update([0.0, 0.01, 0.5, 1.0, 1.0])
        ways[0].update(norms)
        ways[1].update(norms, clip_norm=clip_norm)
    for way in ways:
        assert way._tally.mu() == pytest.approx(divided._tally.mu(), rel=1e-7)  # the largest are rounded up to float32
        assert (way._tally.mu() >= divided._tally.mu()).all()
    gate = pc.IndividualFilter(records=5, mu=0.7)
    admitted = sum(gate.admit(norms, 2.0, clip_norm=clip_norm).astype(int) for _ in range(9))
    assert admitted.tolist() == [9, 9, 7, 1, 1]  # r²/4 ≤ 0.49, r rounded up


@pytest.mark.parametrize(
    ("norms", "clip_norm"), [([-0.1], 1.0), ([math.nan], 1.0), ([2.0], None), ([1.0], 0.0), ([1.0], math.nan)]
)
def test_what_is_no_norm_is_refused(norms, clip_norm):
    with pytest.raises(pc.PrivcalcError, match=r"norms|clip_norm"):
        pc.RealisedLosses(1, 2.0).update(norms, clip_norm=clip_norm)
    with pytest.raises(pc.PrivcalcError, match=r"norms|clip_norm"):
        pc.IndividualFilter(1, 1.0).admit(norms, 2.0, clip_norm=clip_norm)


# --- what its numbers say of themselves -----------------------------------------------------------


def test_numbers_say_what_they_are_where_they_are_printed_or_saved(tmp_path):
    losses = pc.RealisedLosses(3, 20.0)
    losses.update([1.0, 0.3, 0.1])
    found = losses.epsilon(DELTA)
    for array in (found.values, found.values[1:], found.values * 2, losses.quantiles(DELTA), np.sort(found)):
        assert "SENSITIVE" in str(array)
        assert "SENSITIVE" in repr(array)
    for thing, options in ((found, {}), (found.values, {"header": "epsilon"})):
        np.savetxt(tmp_path / "x.txt", thing, **options)
        assert (tmp_path / "x.txt").read_text().startswith("# SENSITIVE")
        assert np.loadtxt(tmp_path / "x.txt") == pytest.approx(np.asarray(found))
        for save in (np.save, np.savez, np.savez_compressed):
            with pytest.raises(pc.PrivcalcError, match="SENSITIVE"):
                save(tmp_path / "x.npz", thing)
    for ask in (max, min, list, sum):
        for thing in (found, losses):
            with pytest.raises(pc.PrivcalcError, match=r"np\.max\(losses\.epsilon\(delta\)\) is the largest"):
                ask(thing)
    assert np.max(found) == np.max(np.asarray(found)) == found.worst
    assert np.quantile(found, 0.5) == found.quantiles([0.5])[0]
    assert type(np.asarray(found)) is np.ndarray


# --- batches that no coins drew -------------------------------------------------------------------


def batches(kind, records, rate, steps, rng):
    """Indices, step by step."""
    size = round(rate * records)
    while True:
        order = rng.permutation(records)
        cuts = {
            "poisson": lambda: [np.flatnonzero(rng.random(records) < rate)],
            "fixed": lambda: [order[:size]],
            "shuffled": lambda: np.split(order, range(size, records, size)),  # the last one may be smaller
        }[kind]()
        for rows in cuts:
            yield np.sort(rows)
            steps -= 1
            if not steps:
                return


@pytest.mark.parametrize(
    ("kind", "records", "rate"), [("fixed", 1000, 0.05), ("shuffled", 1000, 0.05), ("shuffled", 1010, 0.1)]
)
def test_batches_of_one_size_are_warned_of(kind, records, rate, tmp_path):
    losses = pc.RealisedLosses(records, 2.0, rate)

    def measure():
        for rows in batches(kind, records, rate, 40, np.random.default_rng(0)):
            losses.update(np.full(rows.size, 0.5), indices=rows)

    with pytest.warns(pc.PrivcalcWarning, match="not Poisson samples, and ε does not hold") as found:
        measure()
    (said,) = found
    assert said.filename == __file__
    assert not {50, 101, 1000, 1010} & {
        int(number) for number in re.findall(r"\d+", str(said.message))
    }  # sizes are secret
    losses.save(tmp_path / "x.npz")
    with pytest.warns(pc.PrivcalcWarning, match="ε does not hold"):
        pc.RealisedLosses.load(tmp_path / "x.npz").epsilon(0.0)


@pytest.mark.parametrize(
    ("records", "rate", "steps"),
    [(1000, 0.05, 400), (1, 0.5, 400), (2, 0.9, 400), (5, 1.0, 100), (100, 1e-9, 200), (50, 0.02, 400)],
)
def test_coins_are_not_warned_of(records, rate, steps):
    losses = pc.RealisedLosses(records, 2.0, rate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in batches("poisson", records, rate, steps, np.random.default_rng(1)):
            losses.update(np.full(rows.size, 0.5), indices=rows)
        for _ in range(40):  # full measurements, and steps of which nothing is known, are no batches
            losses.update(np.full(records, 0.5))
            losses.update([], indices=[])
        losses.update([], indices=[], steps=100)


# --- what may not be claimed: AdaMix, Proposition 14 ----------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("partial", [False, True])
def test_what_a_record_sums_does_not_underflow(rate, partial):
    """(ratio/noise)² below 1e-308 was 0: such a record was said to have lost nothing, even at δ = 0."""
    for ratio, noise in ((1e-70, 1e100), (1e-170, 1.0), (5e-324, 1.0)):
        losses = pc.RealisedLosses(records=2, noise_multiplier=noise, rate=rate)
        losses.update([ratio, 0.0], indices=[0, 1] if partial else None)
        assert np.isposinf(np.asarray(losses.epsilon(delta=0.0))[0])
        if rate == 1 or (SLOW and noise > 1):  # elsewhere it takes long
            assert np.asarray(losses.epsilon(delta=1e-300))[0] > 0
        if not partial:
            assert np.asarray(losses.epsilon(delta=0.0))[1] == 0


def test_the_counterexample_is_never_certified():
    """σ = 20; after one step the gradient vanishes in 95 % of the runs, else the record takes 200 more steps."""
    noise, further, share = 20.0, 200, 0.95
    losses = pc.RealisedLosses(1, noise)
    losses.update([1.0])
    losses.update([0.0])
    assert np.asarray(losses.mu())[0] == pytest.approx(1 / 20)
    claimed = float(np.asarray(losses.epsilon(DELTA))[0])
    assert claimed == pytest.approx(0.160, abs=1e-3)
    with pytest.raises(pc.PrivcalcError):
        pc.certify(losses, delta=DELTA)
    # The truth: with the record x_1 ~ N(1/20, 1), and beyond the 95 % point of the run without it 200 more such steps.
    mu = 1 / noise
    limit = 1.6448536269514722 + mu
    x = np.linspace(limit, limit + 12, 20_001)
    rest = math.sqrt(further) * mu
    left = claimed - (mu * x - mu * mu / 2)
    profile = np.where(
        True, ndtr(rest / 2 - left / rest) - np.exp(left) * ndtr(-rest / 2 - left / rest), 0.0
    )  # for every real ε
    p = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    truth = float(np.sum(p * profile) * (x[1] - x[0]))
    assert truth > 0.0084
    assert ndtr(limit - mu) == pytest.approx(share, abs=1e-9)
    rng = np.random.default_rng(0)
    first = mu + rng.standard_normal(400_000)
    loss = mu * first - mu * mu / 2
    more = first > limit
    loss = loss + more * (rest * (rest + rng.standard_normal(first.size)) - rest * rest / 2)
    assert np.mean(np.maximum(-np.expm1(claimed - loss), 0)) == pytest.approx(truth, abs=6e-4)
    # The event-restricted statement is true: on {B ≤ b} only the first step happened.
    statement = pc.EventRestricted(b=mu * mu * (1 + 1e-12))
    inside = np.mean(np.maximum(-np.expm1(claimed - loss[~more]), 0)) * np.mean(~more)
    assert inside <= statement.delta(claimed).upper + 1e-5


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1, 2])
@settings(max_examples=40 if SLOW else 15, deadline=None)
@given(
    budget=st.floats(0.01, 2),
    steps=st.lists(st.tuples(st.floats(0, 1), st.sampled_from([3.0, 20.0, 7.7])), min_size=1, max_size=60),
)
def test_the_budget_is_never_exceeded(power, budget, steps):
    from fractions import Fraction

    gate, spent = pc.IndividualFilter(1, **{"epsilon" if power == 1 else "mu": budget}), Fraction(0)
    for r, noise in [*steps, *[(1.0, 3.0)] * 40]:  # more than any budget lasts for
        cost = (Fraction(r) / Fraction(noise)) ** power
        if gate.admit([r], noise)[0]:
            spent += cost
            assert spent <= Fraction(budget) ** power
        else:
            assert float(spent + cost) >= budget**power * (1 - 1e-12)


def test_sums_of_the_filter_are_rounded_up():
    from fractions import Fraction

    rng = np.random.default_rng(2)
    gate, exact_sums = pc.IndividualFilter(50, 10.0), [Fraction(0)] * 50
    for _ in range(40):
        r = rng.random(50)
        assert gate.admit(r, 3.0).all()
        exact_sums = [total + Fraction(x) ** 2 for total, x in zip(exact_sums, r.tolist(), strict=True)]
    assert all(Fraction(float(have)) >= want for have, want in zip(gate._spent[0], exact_sums, strict=True))


def test_a_budget_can_be_met_exactly():
    gate = pc.IndividualFilter(1, 1.0)
    assert sum(gate.admit([1.0], 20.0)[0] for _ in range(500)) == 400


def test_renyi_filter_keeps_every_order_and_is_close():
    orders = [2.0, 8.0, 32.0]
    step = pc.PoissonSampled(pc.Gaussian(2.0), 0.05)
    gate = pc.IndividualFilter(2, orders=orders, epsilons=(step * 100).rdp(orders) * (1 + 1e-9), rate=0.05)
    taken = np.sum([gate.admit([1.0, 0.51], 2.0) for _ in range(600)], axis=0)
    half = pc.PoissonSampled(pc.Gaussian(2.0 / 0.51), 0.05)
    most = min(int(b / a) for a, b in zip(half.rdp(orders), (step * 100).rdp(orders), strict=True))
    assert taken[0] in {99, 100}  # the costs are upper bounds
    assert 0.98 * most <= taken[1] <= most
    with pytest.raises(pc.PrivcalcError):
        gate.mechanism(pc.REPLACE_ONE)
    with pytest.raises(pc.PrivcalcError, match="rate"):
        pc.IndividualFilter(2, 1.0, rate=0.5)


def _renyi(order, q, noise):
    """D_α of a sampled step at a whole order: the binomial sum (Mironov, Talwar, Zhang 2019), 50 digits."""
    with mp.workdps(50):
        q, x = mpf(q), 1 / mpf(noise) ** 2
        terms = [
            mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp(k * (k - 1) * x / 2)
            for k in range(order + 1)
        ]
        return mp.log(mp.fsum(terms)) / (order - 1)


@pytest.mark.parametrize(
    ("order", "budget", "noise", "rate"), [(1000, 5.0, 1.0, 0.5), (256, 4.0, 0.5, 0.1), (10, 100.0, 0.05, 0.5)]
)
def test_a_step_beyond_the_budget_of_a_high_order_is_refused(order, budget, noise, rate):
    assert _renyi(order, rate, noise) > budget
    gate = pc.IndividualFilter(records=1, orders=[order], epsilons=[budget], rate=rate)
    assert not any(gate.admit([1.0], noise)[0] for _ in range(3))
    enough = pc.IndividualFilter(
        records=1, orders=[order], epsilons=[float(7.01 * _renyi(order, rate, noise))], rate=rate
    )
    assert sum(enough.admit([1.0], noise)[0] for _ in range(9)) == 7  # and the cost of large steps is close


@settings(max_examples=15, deadline=None)
@given(
    orders=st.sets(st.sampled_from([2, 3, 17, 256, 1000]), min_size=1, max_size=2),
    rate=st.sampled_from([1e-9, 1e-3, 0.1, 0.5, 0.999, 1.0]),
    noise=st.sampled_from([0.001, 0.05, 0.5, 1.0, 30.0, 1e4]),
    room=st.floats(0.3, 9),
    ratios=st.lists(st.sampled_from([0.0, 1e-200, 1e-9, 1 / 128, 0.3, 0.71, 1 - 2**-53, 1.0]), min_size=1, max_size=12),
)
def test_the_true_divergence_of_admitted_steps_never_exceeds_the_budget(orders, rate, noise, room, ratios):
    budget = {order: float(room * _renyi(order, rate, noise)) for order in sorted(orders)}
    gate = pc.IndividualFilter(1, orders=list(budget), epsilons=list(budget.values()), rate=rate)
    taken = [r for r in ratios if gate.admit([r], noise)[0]]
    for order, limit in budget.items():
        cost = {r: _renyi(order, rate, mpf(noise) / mpf(r)) if r else mpf(0) for r in set(ratios)}
        with mp.workdps(50):
            assert mp.fsum(cost[r] for r in taken) <= mpf(limit) * (1 + mpf(10) ** -40)
    if len(orders) == 1 and len(taken) < len(ratios):  # a refusal is for want of budget
        refused = min(cost[r] for r in ratios if ratios.count(r) > taken.count(r))
        assert mp.fsum(cost[r] for r in taken) + refused > 0.9 * mpf(limit)


def test_costs_that_overflow_or_vanish_admit_nobody():
    gate = pc.IndividualFilter(1, 1e-100)
    assert not gate.admit([1.0], 1e-90)[0]
    assert not gate.admit([0.1], 1e80)[0]  # its cost, in units of the first step's, is below the least double
    gate = pc.IndividualFilter(2, 1.0)
    assert gate.admit([1.0, 0.5], 1e100).all()
    assert gate.admit([0.1, 0.0], 1e-100).tolist() == [False, True]  # above the largest
    gate = pc.IndividualFilter(2, orders=[2.0, 1e12], epsilons=[1e300, 1e300], rate=0.5)
    assert gate.admit([1.0, 0.0], 1e-100).tolist() == [True, True]
    gate = pc.IndividualFilter(2, orders=[2.0, 1e200], epsilons=[1e300, 1e300], rate=0.5)
    assert gate.admit([1.0, 0.0], 1e-100).tolist() == [False, True]
    for bad in (math.nan, math.inf, -0.1):
        with pytest.raises(pc.PrivcalcError):
            gate.admit([bad, 0.0], 1.0)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_where_a_bound_fails_the_unsampled_one_is_charged(bad, monkeypatch):
    monkeypatch.setattr(Questions, "rdp", lambda self, orders: np.full(np.shape(orders), bad))
    gate = pc.IndividualFilter(3, orders=[2.0], epsilons=[0.26], rate=0.5)
    assert [gate.admit([1.0, 0.5, 0.0], 1.0).tolist() for _ in range(2)] == [[False, True, True], [False, False, True]]


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("budget", [{"mu": 0.5}, {"epsilon": 0.75}], ids=str)
def test_filter_under_attack(budget, filtered):
    """The gradient grows after outputs that betray the record: with a filter the attack stays under the budget."""
    rng, size, steps, noise, pure = np.random.default_rng(5), 40_000, 60, 4.0, "epsilon" in budget
    guarantee = pc.IndividualFilter(1, **budget).mechanism()

    def play(present: bool):
        loss = np.zeros(size)
        gate = pc.IndividualFilter(size, **budget)
        for _ in range(steps):
            ratio = np.where(loss > 0.1, 1.0, 0.3)
            taken = gate.admit(ratio, noise) if filtered else np.ones(size, dtype=bool)
            m = np.where(taken, ratio / noise, 0.0)
            x = m * present + (rng.laplace(size=size) if pure else rng.standard_normal(size))
            loss += np.abs(x) - np.abs(x - m) if pure else m * x - m * m / 2
        return loss

    with_it, without = play(True), play(False)
    beaten = False
    for epsilon in (0.2, 0.5, 1.0):
        hits, misses = (with_it > epsilon).sum(), (without > epsilon).sum()
        power = betaincinv(hits, size - hits + 1, 1e-7) if hits else 0.0
        false = betaincinv(misses + 1, size - misses, 1 - 1e-7)
        beaten |= bool(power - math.exp(epsilon) * false > guarantee.delta(epsilon=epsilon).upper)
    assert beaten != filtered


@pytest.mark.parametrize("filtered", [True, False])
def test_renyi_filter_under_attack(filtered):
    """Poisson-sampled steps; the gradient grows after outputs that betray the record."""
    rng, size, steps, noise, rate = np.random.default_rng(6), 20_000, 40, 1.0, 0.2
    orders = [2.0, 4.0, 8.0, 16.0]
    budget = (pc.PoissonSampled(pc.Gaussian(noise / 0.3), rate) * 12).rdp(orders)
    gates = [pc.IndividualFilter(size, orders=orders, epsilons=budget, rate=rate) for _ in range(2)]

    def play(present: bool, gate: pc.IndividualFilter):
        loss = np.zeros(size)
        for _ in range(steps):
            ratio = np.where(loss > 0.02, 1.0, 0.3)
            taken = gate.admit(ratio, noise) if filtered else np.ones(size, dtype=bool)
            m = np.where(taken, ratio / noise, 0.0)
            x = m * (present & (rng.random(size) < rate)) + rng.standard_normal(size)
            loss += np.log1p(rate * np.expm1(m * x - m * m / 2))
        return loss

    with_it, without = play(True, gates[0]), play(False, gates[1])
    beaten = False
    for epsilon in (0.3, 0.6, 1.0, 1.5):
        hits, misses = (with_it > epsilon).sum(), (without > epsilon).sum()
        power = betaincinv(hits, size - hits + 1, 1e-7) if hits else 0.0
        false = betaincinv(misses + 1, size - misses, 1 - 1e-7)
        beaten |= bool(power - math.exp(epsilon) * false > gates[0].mechanism().delta(epsilon=epsilon).upper)
    assert beaten != filtered


def test_plan():
    plan = pc.plan_audit(
        np.linspace(0.01, 1, 100), share=0.5, epsilon=1.0, delta=DELTA, noise_multiplier=5.0, rate=0.01
    )
    assert plan.norm_ratio == pytest.approx(0.5)
    assert plan.own_epsilon <= 1.0 < plan.worst_epsilon
    assert pc.GDP(plan.mu).epsilon(delta=DELTA).upper <= 1.0


# --- the report -----------------------------------------------------------------------------------


def test_report(tmp_path, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    steps, records = 30, 12
    norms = rng.random((steps, records))
    table = pa.table(
        {
            "record": np.tile(np.arange(records), steps),
            "step": np.repeat(np.arange(steps), records),
            "norm_ratio": norms.ravel(),
            "group": np.tile(["x", "y"], records * steps // 2),
        }
    )
    pq.write_table(table, tmp_path / "n.parquet", row_group_size=50)
    np.save(tmp_path / "n.npy", norms)
    np.savez(tmp_path / "n.npz", norm_ratio=norms, group=np.array(["x", "y"] * (records // 2)))
    with pa.OSFile(str(tmp_path / "n.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    found = []
    for name in ("n.parquet", "n.npy", "n.npz", "n.arrow"):
        out = tmp_path / name.replace(".", "_")
        arguments = ["audit", str(tmp_path / name), "--noise-multiplier", "20", "--delta", "1e-5", "--out", str(out)]
        assert cli.main(arguments) == 0
        assert (out / "epsilon.png").stat().st_size > 1000
        result = pq.read_table(out / "epsilon.parquet")
        assert b"SENSITIVE" in result.schema.metadata[b"warning"]
        found.append(result.column("epsilon").to_numpy())
        summary = json.loads((out / "summary.json").read_text())
        assert summary["grade"] == FULL
        assert ("groups" in summary) == (name != "n.npy")
    for other in found[1:]:
        assert found[0] == pytest.approx(other, abs=1e-9)
    assert (
        cli.main(["audit", str(tmp_path / "no.npy"), "--noise-multiplier", "20", "--delta", "1e-5", "--out", "x"]) == 2
    )
    assert "SENSITIVE" in capsys.readouterr().out


def written(path, step, record, ratio, rows, **more):
    """A table with so many rows in a row group."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"step": step, "record": record, "norm_ratio": ratio, **more})
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@given(data=st.data())
@settings(max_examples=100 if SLOW else 40, deadline=None)
def test_tables_of_some_rows(suffix, tmp_path_factory, data):
    """Steps and records in any order, missing rows and steps, row groups of any size."""
    records, length = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    order = data.draw(st.permutations(range(length)))[: data.draw(st.integers(1, length))]
    rows = [(t, i) for t in order for i in data.draw(st.lists(st.integers(0, records - 1), unique=True))]
    ratio = [data.draw(st.floats(0, 1)) for _ in rows]
    step, record = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
    path = tmp_path_factory.mktemp("table") / f"norms{suffix}"
    written(path, step, record, ratio, data.draw(st.integers(1, 9)), group=[f"group {i}" for i in record])
    losses, groups, steps = read_norms(path, 20.0, 1.0, length)
    full = np.ones((length, max(record, default=0) + 1))
    full[step, record] = ratio
    assert steps == length
    truth, mu = np.sqrt((full**2).sum(axis=0)) / 20.0, np.asarray(losses.mu())
    assert (truth * (1 - 1e-12) <= mu).all()
    assert (mu <= truth * (1 + 1e-6) + 1e-8).all()  # rounded up
    if rows:
        assert list(groups) == [f"group {i}" if i in record else "" for i in range(full.shape[1])]


@pytest.mark.parametrize(
    ("step", "record", "words"),
    [
        ([0, 1, 0], [0, 0, 1], "step = 0: its rows must be together"),
        ([0, 0], [1, 1], "indices: must be distinct"),
        ([0, -1], [0, 0], "must be from 0$"),
        ([0, 1], [0, -1], "must be from 0$"),
        ([0.0, 1.0], [0, 0], "step: must be whole numbers"),
        ([0, 1], [0, None], "record: must be whole numbers, none missing"),
    ],
)
def test_tables_that_are_no_run(step, record, words, tmp_path):
    path = written(tmp_path / "norms.parquet", step, record, [0.5] * len(step), 2)
    with pytest.raises(pc.PrivcalcError, match=words):
        read_norms(path, 20.0, 1.0)


def test_a_table_longer_than_the_run(tmp_path):
    path = written(tmp_path / "norms.parquet", [0, 1, 2], [0, 0, 0], [0.5] * 3, 2)
    with pytest.raises(pc.PrivcalcError, match="step, record: must be from 0, and step below 2"):
        read_norms(path, 20.0, 1.0, 2)


def test_files_of_norms_that_are_the_other_way_round_or_text(tmp_path):
    """20 steps of 300 records, given as 300 of 20: ε of a fifteenth of the records, for fifteen times the steps."""
    path, norms = tmp_path / "norms.npy", np.random.default_rng(0).uniform(0, 1, (20, 300))
    norms[0] = 1.0
    np.save(path, norms)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = read_norms(path, 20.0, 1.0)[0]
        read_norms(path, 20.0, 1.0, 25)
    assert np.asarray(right.mu())[0] == pytest.approx(np.linalg.norm(norms[:, 0]) / 20, rel=1e-6)
    np.save(path, norms.T)
    for steps in (20, 100):
        with pytest.raises(
            pc.PrivcalcError, match=rf"steps = {steps}: must be that of the file, or more; .*\(300, 20\)"
        ):
            read_norms(path, 20.0, 1.0, steps)
    np.save(path, norms[:, :25])
    with pytest.raises(pc.PrivcalcError, match="the other way round"):
        read_norms(path, 20.0, 1.0, 25)
    (tmp_path / "norms.csv").write_text("0.5,0.2\n1.0,0.3\n")
    with pytest.raises(pc.PrivcalcError, match=r"norms\.csv': must be a table .* numpy\.save\('norms\.npy'"):
        read_norms(tmp_path / "norms.csv", 20.0, 1.0)
    np.save(path, norms.ravel())
    with pytest.raises(pc.PrivcalcError, match=r"must have shape \(steps, records\).*; has \(6000,\)"):
        read_norms(path, 20.0, 1.0)


def test_truth_values_are_no_norms():
    """Such as of what was clipped: records that were not would cost nothing."""
    with pytest.raises(pc.PrivcalcError, match="not truth values"):
        pc.RealisedLosses(records=2, noise_multiplier=2.0).update([True, False])


def test_an_audit_of_no_step_is_warned_of():
    """In a notebook, the cell that makes the losses is run again after the training: ε is 0 for everyone."""
    losses = pc.RealisedLosses(records=3, noise_multiplier=1.0, clip_norm=1.0)
    with pytest.warns(pc.PrivcalcWarning, match="losses: have no step"):
        assert np.asarray(losses.epsilon(delta=1e-5)).tolist() == [0, 0, 0]
    losses.update([0.5, 1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses.epsilon(delta=1e-5)


@pytest.mark.parametrize("name", ["max", "mean", "tolist"])
def test_methods_of_arrays_are_told_to_be_functions(name):
    losses = pc.RealisedLosses(records=2, noise_multiplier=20.0)
    losses.update([1.0, 0.5])
    found = losses.epsilon(delta=1e-5)
    with pytest.raises(AttributeError, match=rf"no {name!r}: NumPy's functions take it, such as np\.max\(values\)"):
        getattr(found, name)
    assert not hasattr(found, "__array_interface__")
    assert np.max(found) == found.values[0]
