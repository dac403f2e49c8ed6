"""The one door for batches: each sampler's are drawn as accounted, each is used once, and a use charged once."""

from __future__ import annotations

import copy
import itertools
import sys
import warnings
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from watch import Spy, refused, spied

import privcalc as pc
from privcalc.ledger import drawn
from privcalc.ledger.drawn import _persons

ALARM = 1e-6 / 20

NOISE = pc.Gaussian(noise_multiplier=2.0)
COINS = pc.PoissonSampled(NOISE, rate=0.5)
FIXED = pc.FixedSizeSampled(NOISE, batch_size=2, dataset_size=4)
PERSONS = pc.UserSampled(NOISE, rate=0.5, records=3, counted=2)
CUT = pc.TruncatedPoissonSampled(NOISE, rate=0.5, batch_size=2, dataset_size=4)
AGAIN = pc.WithReplacementSampled(NOISE, batch_size=3, dataset_size=4)
EPOCH = pc.RandomAllocation(NOISE, steps=3, epochs=2)
PLACES = pc.RandomAllocation(NOISE, steps=3)
WHOSE = np.array(["b", "a", "a", "b", "a", "a"])
"""Of the person a one record is too many, the last."""


def batch_of(ledger, step):
    return ledger.batch(step, persons=WHOSE) if isinstance(step, pc.UserSampled) else ledger.batch(step, records=4)


def release(ledger, step, batch):
    return ledger.gaussian(np.zeros(2), step, clip_norm=1.0, batch=batch)


@pytest.mark.parametrize("step", [COINS, FIXED, PERSONS, NOISE, CUT, AGAIN], ids=lambda step: type(step).__name__)
def test_each_batch_is_charged_when_drawn_and_used_once_in_its_turn(step):
    ledger, spy = spied(plan=step * 3 + pc.PoissonSampled(NOISE, 0.25))
    foreign, _ = spied(plan=step)
    first = batch_of(ledger, step)
    assert ledger.spent == step.run
    refused(spy, "was not used", lambda ledger=ledger: batch_of(ledger, step))
    refused(spy, "was not used", lambda ledger=ledger: ledger.batch(pc.PoissonSampled(NOISE, 0.25), records=4))
    for wrong in (batch_of(foreign, step), copy.copy(first)):
        refused(spy, "must be the batch", lambda ledger=ledger, wrong=wrong: release(ledger, step, wrong))
    refused(spy, "must be", lambda ledger=ledger: release(ledger, pc.PoissonSampled(NOISE, 0.25), first))
    refused(spy, "finite", lambda ledger=ledger: ledger.gaussian([np.nan], step, clip_norm=1.0, batch=first))
    if step is not NOISE:
        refused(spy, "must be the batch", lambda ledger=ledger: release(ledger, step, None))
        refused(spy, "is not sampled", lambda ledger=ledger: release(ledger, NOISE, first))
    assert "indices" not in repr(first)  # they are secret
    refused(spy, "label", lambda ledger=ledger: ledger.gaussian(0.0, step, clip_norm=1.0, batch=first, label="a"))
    release(ledger, step, first)
    refused(spy, "each is used once", lambda ledger=ledger: release(ledger, step, first))
    second = batch_of(ledger, step)
    refused(spy, "each is used once", lambda ledger=ledger: release(ledger, step, first))  # reordered
    release(ledger, step, second)
    assert ledger.spent == step * 2
    assert ledger.has_batch(step)
    release(ledger, step, batch_of(ledger, step))
    assert not ledger.has_batch(step)
    refused(spy, "has 0 more of it", lambda ledger=ledger: batch_of(ledger, step))


def test_a_full_batch_has_everyone_and_another_release_is_another_charge():
    ledger = pc.Ledger(None, plan=NOISE * 3)
    batch = batch_of(ledger, NOISE)
    assert batch.indices.tolist() == [0, 1, 2, 3]
    ledger.gaussian(0.0, NOISE, clip_norm=1.0)
    assert ledger.spent == NOISE * 2
    release(ledger, NOISE, batch)
    assert ledger.spent == NOISE * 2


def test_persons_are_drawn_by_a_coin_per_record_and_counted_up_to_the_cap():
    ledger = pc.Ledger(None, plan=PERSONS * 3000, seed=3)
    assert ledger.terms.unit == "one person"
    found = Counter()
    for _ in range(3000):
        batch = batch_of(ledger, PERSONS)
        found[tuple(batch.indices.tolist())] += 1
        release(ledger, PERSONS, batch)
    expected = Counter()
    for coins in itertools.product([0, 1], repeat=5):  # the records 0 to 4
        drawn = [i for i in range(5) if coins[i]]
        mine, other = [i for i in drawn if i in (1, 2, 4)], [i for i in drawn if i in (0, 3)]
        kept = list(itertools.combinations(mine, 2)) if len(mine) > 2 else [tuple(mine)]
        for some in kept:
            expected[tuple(sorted([*some, *other]))] += 3000 / 32 / len(kept)
    assert set(found) <= set(expected)  # record 5 is left out
    assert stats.chisquare([found[s] for s in expected], list(expected.values())).pvalue > ALARM


def test_what_a_batch_is_drawn_from_is_checked_before_it_is_charged():
    ledger, spy = spied(
        plan=COINS + PERSONS + FIXED + AGAIN + CUT + pc.Laplace(2.0) + pc.ShuffledEpoch(NOISE), relation=pc.ZERO_OUT
    )
    refused(spy, "must be PoissonSampled", lambda: ledger.poisson_batch(FIXED, records=4))
    refused(spy, "must be FixedSizeSampled", lambda: ledger.fixed_size_batch(COINS, records=4))
    for match, step, said in (
        ("records = None", COINS, {}),
        ("persons = None", PERSONS, {"records": 6}),
        ("one for each of the 5", PERSONS, {"records": 5, "persons": WHOSE}),
        ("in one row", PERSONS, {"persons": WHOSE[None]}),
        ("whole number or text", PERSONS, {"persons": [0.5, np.nan]}),
        ("guarantee is for records", COINS, {"persons": WHOSE}),
        (">= 4", FIXED, {"records": 3}),
        (">= 4", AGAIN, {"records": 3}),
        ("at most dataset_size = 4", CUT, {"records": 5}),
        ("a ledger can draw", pc.Laplace(2.0), {"records": 4}),
        ("a ledger can draw", pc.ShuffledEpoch(NOISE), {"records": 4}),
        ("a ledger can draw", "poisson", {"records": 4}),
    ):
        refused(spy, match, lambda ledger=ledger, step=step, said=said: ledger.batch(step, **said))


@pytest.mark.parametrize("step", [COINS, FIXED, PERSONS, AGAIN, EPOCH])
def test_expected_sizes(step):
    """The number to divide by is that of the batches that are drawn."""
    sampler = step.sampler(6, pc.ADD_OR_REMOVE_ONE, np.arange(6) if step is PERSONS else None)
    noise = pc.Ledger(None, plan=step, seed=5)._noise
    sizes = [len(batch) for _ in range(2000) for batch in sampler(noise)]
    assert np.mean(sizes) == pytest.approx(step.expected_size(6), abs=0.2)


def test_batches_have_their_laws():
    """By enumeration, for four records; the law of two epochs is that of one."""
    uses = {COINS: 1000, FIXED: 1000, CUT: 1000, AGAIN: 1000, EPOCH: 600}
    ledger = pc.Ledger(None, plan=pc.Run(tuple(uses.items())), seed=6)
    found, expected = ({step: Counter() for step in uses} for _ in range(2))
    for step, count in uses.items():
        for _ in range(count):
            parts = []
            for _ in range(step.batches):
                batch = ledger.batch(step, records=4)
                parts.append(tuple(batch.indices.tolist()))
                release(ledger, step, batch)
            if step is EPOCH:
                assert parts[:3] == parts[3:]
                parts = [tuple(next(t for t in range(3) if i in parts[t]) for i in range(4))]
            found[step][parts[0]] += 1
    assert ledger.spent == ledger.terms.plan
    expected[FIXED] |= dict.fromkeys(itertools.combinations(range(4), 2), 1000 / 6)
    for coins in itertools.product([0, 1], repeat=4):
        drawn = [i for i in range(4) if coins[i]]
        expected[COINS][tuple(drawn)] += 1000 / 16
        kept = list(itertools.combinations(drawn, 2)) if len(drawn) > 2 else [tuple(drawn)]
        for some in kept:
            expected[CUT][some] += 1000 / 16 / len(kept)
    for draws in itertools.product(range(4), repeat=3):
        expected[AGAIN][tuple(sorted(draws))] += 1000 / 64
    for places in itertools.product(range(3), repeat=4):
        expected[EPOCH][places] += 600 / 81
    for step, law in expected.items():
        assert set(found[step]) <= set(law)
        assert stats.chisquare([found[step][s] for s in law], list(law.values())).pvalue > ALARM


# --- a use with several batches: here each record has one place in an epoch of three ---------------


def test_within_an_epoch_nothing_may_change():
    ledger, spy = spied(plan=PLACES * 2 + NOISE)
    for number in range(3):
        batch = ledger.batch(PLACES, records=4)
        release(ledger, PLACES, batch)
        if number < 2:
            refused(spy, "must stay as many", lambda ledger=ledger: ledger.batch(PLACES, records=5))
            refused(spy, "first batch of a use", lambda ledger=ledger: ledger.batch(PLACES, records=4, label="again"))
            assert ledger.has_batch(PLACES)
        refused(spy, "each is used once", lambda ledger=ledger, batch=batch: release(ledger, PLACES, batch))
        if not number:
            ledger.gaussian(0.0, NOISE, clip_norm=1.0)  # other releases may come in between
    assert ledger.spent == PLACES + NOISE
    ledger.batch(PLACES, records=5)  # another use, of other records


def test_a_batch_that_is_written_to_is_no_other_batch():
    """Passes over the same places shared one array: numbers shifted in the first were so in the second, too."""
    step = pc.RandomAllocation(NOISE, 2, epochs=3)
    ledger, found = pc.Ledger(None, plan=step), []
    for _ in range(6):
        batch = ledger.batch(step, records=9)
        found.append(batch.indices.tolist())
        np.add(batch.indices, 100, out=batch.indices)
        release(ledger, step, batch)
    assert found[:2] == found[2:4] == found[4:]
    assert sorted(found[0] + found[1]) == list(range(9))


@pytest.mark.parametrize(
    ("step", "sizes", "others"),
    [
        (pc.FixedSizeSampled(NOISE, 10, 1000), (10,), (0, 9, 11, 500)),
        (pc.WithReplacementSampled(NOISE, 10, 1000), (10,), (0, 9, 11, 500)),
        (pc.TruncatedPoissonSampled(NOISE, 0.01, 20, 1000), (0, 10, 20), (21, 500)),
        (pc.PoissonSampled(NOISE, 0.01), (0, 10, 500), ()),
    ],
    ids=str,
)
def test_a_batch_from_elsewhere_may_be_one_of_the_step(step, sizes, others):
    """500 of 1000 records were certified as a batch of 10: ε = 0.2."""
    ledger, spy = spied(plan=step * len(sizes))
    for size in others:
        refused(
            spy, "size: is of no batch", lambda ledger=ledger, size=size: ledger.batch_from_elsewhere(step, size=size)
        )
    for size in sizes:
        release(ledger, step, ledger.batch_from_elsewhere(step, size=size))
    assert ledger.spent == step * len(sizes)


@pytest.mark.parametrize("pause", [True, False], ids=["pause", "crash"])
def test_an_epoch_that_was_left_stays_charged_and_the_next_one_is_fresh(tmp_path, pause):
    path, terms = tmp_path / "run.jsonl", {"plan": PLACES * 2}
    ledger = pc.Ledger(path, **terms)
    release(ledger, PLACES, ledger.batch(PLACES, records=50))
    if pause:
        ledger.pause()
    else:
        ledger.journal.close()  # as the system does
    again = pc.Ledger(path, **terms)
    spy = Spy(again)
    assert again.spent == PLACES.run
    places = [again.batch(PLACES, records=50)]
    assert spy.drawn == ["numbers"]
    for _ in range(2):
        release(again, PLACES, places[-1])
        places.append(again.batch(PLACES, records=50))
    assert sorted(np.concatenate([batch.indices for batch in places])) == list(range(50))
    release(again, PLACES, places[-1])
    refused(spy, "has 0 more of it", lambda ledger=again: ledger.batch(PLACES, records=50))


@pytest.mark.parametrize(
    "kind", ["float16", "[float16]", "uint8", "bool", "torch.bfloat16", "torch.float8_e4m3fn", "pandas.int8"]
)
def test_sums_of_few_bits_are_refused(kind):
    """One record can move them by more than its own contribution; a list is of the type of its numbers."""
    package, _, name = kind.strip("[]").rpartition(".")
    values = np.ones(2, dtype=name) if not package else None
    if package == "torch":
        torch = pytest.importorskip("torch")
        values = torch.ones(2).to(getattr(torch, name))
    elif package == "pandas":
        values = pytest.importorskip("pandas").Series([1, 1], dtype=name)
    with pytest.raises(pc.PrivcalcError, match="wraps around"):
        pc.Ledger(None, plan=NOISE).gaussian(list(values) if kind[0] == "[" else values, NOISE, clip_norm=1.0)


class Alone(str):
    """A text that equals itself only."""

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


@pytest.mark.parametrize("kind", [None, "object", "string", "category", np.dtypes.StringDType()], ids=str)
def test_persons_may_be_a_column_of_texts(kind):
    """Data frames hold texts as objects, which were refused."""
    pd = pytest.importorskip("pandas")
    names = ["b", "b", "a", "c", "b", "a"]
    column = pd.Series(names, dtype=kind) if isinstance(kind, (str, type(None))) else np.array(names, dtype=kind)
    ledger = pc.Ledger(None, plan=PERSONS, seed=1)
    same = pc.Ledger(None, plan=PERSONS, seed=1)
    assert ledger.batch(PERSONS, persons=column).indices.tolist() == same.batch(PERSONS, persons=names).indices.tolist()
    assert _persons(column).tolist() == _persons([7, 7, 2, 9, 7, 2]).tolist() == [0, 0, 1, 2, 0, 1]
    assert _persons(np.array([2**70, 1, 2**70], dtype=object)).tolist() == [0, 1, 0]
    assert _persons(np.array([Alone("b"), Alone("b")], dtype=object)).tolist() == [0, 0]
    for wrong in (["a", None], ["a", np.nan], [1, "1"], [True, False], [1.0, 2.0], [("a",), ("b",)]):
        with pytest.raises(pc.PrivcalcError, match="one whole number or text"):
            _persons(pd.Series(wrong, dtype=object))


@pytest.mark.parametrize(
    ("wrong", "later"),
    [
        (True, [0, 0, 1, 2]), (True, [0, 1, 0, 1]), (False, ["b", "b", "a", "a"]), (False, [7, 7, 3, 3]),
        (False, [0, 0, 0]),
    ],
    ids=["other", "mixed", "texts", "numbers", "another table"],
)  # fmt: skip
def test_persons_that_are_shared_out_in_another_way_are_warned_of(wrong, later):
    """The same four records, with other owners in the next batch, were sampled without a word."""
    step = pc.UserSampled(pc.Gaussian(2.0), 0.5, records=3)
    with warnings.catch_warnings(record=True) as caught, pc.Ledger(None, plan=step * 2) as ledger:
        warnings.simplefilter("always")
        for persons in ([0, 0, 1, 1], later):
            ledger.gaussian(np.zeros(3), step, clip_norm=1.0, batch=ledger.batch(step, persons=persons))
    assert sum("not alike" in str(one.message) for one in caught) == wrong


def test_coins_of_one_rate_are_never_given_to_another(monkeypatch):
    """Whichever instruction of ``coins`` another thread's request for another rate comes after."""
    monkeypatch.setattr(drawn, "AT_ONCE", 8)
    ahead = drawn.Ahead()

    def interrupted(after):
        passed = itertools.count()

        def trace(frame, event, _):
            if frame.f_code is drawn.Ahead.coins.__code__:
                frame.f_trace_opcodes = True
                if event == "opcode" and next(passed) == after:
                    sys.settrace(None)
                    assert ahead.coins(4, 1.0).all()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return ahead.coins(4, 0.0), next(passed) > after
        finally:
            sys.settrace(before)

    reached = set()
    for after in [*range(120)] * 3:  # rows that wait, and rows that have to be tossed
        row, came = interrupted(after)
        assert not row.any()
        reached |= {after} if came else set()
    assert max(reached) > 50
