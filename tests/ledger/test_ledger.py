"""The ledger: nothing is drawn that was not charged, and the certificate covers what happened."""

import contextlib
import copy
import itertools
import json
import math
import pickle
import re
import threading
import warnings
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy import integrate, stats
from watch import Spy, refused, spied

import privcalc as pc
from privcalc.strategies import FixedOrder, Toeplitz
from privcalc.tripwire import check_sum

ALARM = 1e-6 / 20
STEP = pc.Gaussian(noise_multiplier=20.0)
SAMPLED = pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.25)
GATE = pc.AboveThreshold.of(epsilon=1.0, monotone=True)
FIXED = pc.FixedSizeSampled(pc.Gaussian(noise_multiplier=2.0), batch_size=2, dataset_size=8)


# --- plans and caps -------------------------------------------------------------------------------


def test_a_plan_is_not_exceeded():
    ledger, spy = spied(plan=STEP * 3 + pc.Laplace(5.0))
    for left in (3, 2, 1):
        assert not ledger.would_exceed(STEP, left)
        assert ledger.would_exceed(STEP, left + 1)
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    assert ledger.would_exceed(STEP)
    assert not ledger.would_exceed(pc.Laplace(5.0))
    assert ledger.would_exceed(STEP + pc.Laplace(5.0))
    refused(spy, "has 0 more of it", lambda ledger=ledger: ledger.gaussian(0.0, STEP, clip_norm=1.0))
    refused(spy, "is not in the plan", lambda ledger=ledger: ledger.gaussian(0.0, pc.Gaussian(20.1), clip_norm=1.0))
    refused(spy, "the plan", lambda ledger=ledger: ledger.record(pc.Laplace(5.0) + STEP))
    ledger.laplace(0.0, pc.Laplace(5.0), clip_norm=1.0)
    assert spy.drawn == ["normal"] * 3 + ["laplace"]
    assert ledger.spent == STEP * 3 + pc.Laplace(5.0)


@pytest.mark.parametrize(
    ("cap", "fits", "not_fitting", "unproved"),
    [
        (
            pc.GDP(mu=1.0),
            [pc.Gaussian(2.0), pc.Gaussian(2.0), pc.Gaussian(math.sqrt(2) + 0.01)],
            pc.Gaussian(8.0),
            SAMPLED,
        ),
        (pc.ZCDP(rho=0.5), [pc.Gaussian(2.0), pc.Laplace(2.0), pc.Gaussian(2.0)], pc.Gaussian(1.5), pc.ZCDP(0.1, 0.1)),
        (
            pc.PureDP(epsilon=1.0),
            [pc.Laplace(2.0), pc.Laplace(4.0), pc.RandomizedResponse(0.25)],
            pc.Laplace(1e9),
            None,
        ),
        (pc.RDP(orders=[2, 8], epsilons=[1, 4]), [pc.Gaussian(1.5), SAMPLED, pc.Laplace(2.0)], pc.Gaussian(1.0), None),
    ],
    ids=str,
)
def test_a_cap_holds_for_adaptive_choices(cap, fits, not_fitting, unproved):
    ledger, spy = spied(cap=cap)
    for part in fits:
        assert not ledger.would_exceed(part)
        if isinstance(part, pc.Gaussian):
            ledger.gaussian(0.0, part, clip_norm=1.0)
        elif isinstance(part, pc.Laplace):
            ledger.laplace(0.0, part, clip_norm=1.0)
        else:
            ledger.record(part)
    assert ledger.would_exceed(not_fitting)
    draw = ledger.gaussian if isinstance(not_fitting, pc.Gaussian) else ledger.laplace
    refused(spy, "would exceed the cap", lambda ledger=ledger: draw(0.0, not_fitting, clip_norm=1.0))
    refused(spy, "would exceed", lambda ledger=ledger: ledger.record(STEP * 10**6))
    if unproved is not None:
        refused(spy, "must", lambda ledger=ledger: ledger.would_exceed(unproved))
        refused(spy, "must", lambda ledger=ledger: ledger.record(unproved))
    ledger.close()
    found = pc.certify(ledger, delta=1e-5)
    assert (found.run, found.document["basis"]) == (cap.run, "cap")
    assert found.guarantee.epsilon == cap.epsilon(delta=1e-5)


def test_blocks_never_keep_a_charge_from_being_made():
    """What is reserved for one mechanism and not drawn makes room for another."""
    ledger, spy = spied(cap=pc.GDP(mu=1.0))
    ledger._charged = 10_000  # blocks of a hundred
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    assert sum(ledger._undrawn.values()) > 50
    assert not ledger.would_exceed(pc.Gaussian(2.0), 3)
    ledger.record(pc.Gaussian(2.0), 3)
    for _ in range(99):
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    assert ledger.would_exceed(STEP)
    assert ledger.spent == STEP * 100 + pc.Gaussian(2.0) * 3  # exactly μ = 1
    assert spy.drawn == ["normal"] * 100


def test_reserve_and_return():
    ledger = pc.Ledger(None, plan=STEP * 1000 + pc.Laplace(9.0) * 5, reserve=3)
    ledger.record(pc.Laplace(9.0), 2)
    for _ in range(400):
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    reserved = ledger._book.drawn[STEP]
    assert 400 <= reserved < 403
    assert ledger.spent == STEP * 400 + pc.Laplace(9.0) * 2
    ledger.close(stopping="output-independent")
    assert ledger._book.recorded == ledger.spent == STEP * 400 + pc.Laplace(9.0) * 2
    assert pc.certify(ledger, delta=1e-5).run == ledger.spent
    with pytest.raises(pc.PrivcalcError, match="reserve"):
        pc.Ledger(None, plan=STEP, reserve=0)


def test_terms(tmp_path):
    path = tmp_path / "run.jsonl"

    def fail():
        with pc.Ledger(path, plan=STEP * 5, public={"records": 8}) as ledger:
            ledger.gaussian(0.0, STEP, clip_norm=1.0)
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        fail()
    terms = {"plan": STEP * 5, "public": {"records": 8}}
    others = [
        {"plan": STEP * 6},
        {"plan": None, "cap": pc.GDP(1.0)},
        {"unit": "one person"},
        {"relation": pc.REPLACE_ONE},
        {"public": {"records": 9}},
        {"not_accounted": ["x"]},
        {"target": pc.Guarantee(epsilon=9.0, delta=1e-5)},
        {"seed": 1},
    ]
    for other in others:
        with pytest.raises(
            pc.PrivcalcError, match=r"other terms \(.*" + ("seeded" if "seed" in other else next(iter(other)))
        ):
            pc.Ledger(path, **terms | other)
    with pc.Ledger(path, **terms) as ledger:
        assert ledger.spent == STEP.run
    for attempt in (lambda: ledger.gaussian(0.0, STEP, clip_norm=1.0), lambda: ledger.would_exceed(STEP)):
        with pytest.raises(pc.PrivcalcError, match="is closed"):
            attempt()
    ledger.close()  # again
    with pytest.raises(pc.PrivcalcError, match="is closed"):
        pc.Ledger(path, **terms)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"plan": STEP, "cap": pc.GDP(1.0)},
        {"plan": 5},
        {"cap": STEP},
        {"cap": pc.ApproxDP(1.0, 1e-5)},
        {"cap": pc.ZCDP(0.1, 0.1)},
        {"cap": pc.GDP(1.0, relation=pc.ZERO_OUT)},
        {"plan": pc.ShuffledEpoch(STEP)},  # no guarantee under add-or-remove-one
        {"plan": STEP, "unit": ""},
        {"plan": STEP, "relation": "add-or-remove-one"},
        {"plan": STEP, "public": {"x": math.nan}},
        {"plan": STEP, "public": {"x": object()}},
        {"plan": STEP, "public": "records"},
        {"plan": STEP, "public": {"records": -3}},
        {"plan": STEP, "public": {"records": 0}},
        {"plan": STEP, "public": {"records": 2.5}},
        {"plan": STEP, "public": {"records": "many"}},
        {"plan": STEP, "public": {"records": None}},
        {"plan": STEP, "unit": "\ud800"},
        {"plan": STEP, "not_accounted": "learning rate"},
        {"plan": STEP * 1000, "target": pc.Guarantee(epsilon=1.0, delta=1e-5)},
        {"plan": STEP * 4, "target": pc.Guarantee(mu=0.09)},
        {"plan": STEP * 4, "target": pc.Guarantee(rho=0.0049)},
        {"cap": pc.GDP(1.0), "target": pc.Guarantee(epsilon=4.3, delta=1e-5)},
        {"plan": STEP, "target": pc.Guarantee(epsilon=1.0, delta=1e-5, relation=pc.ZERO_OUT)},
        {"plan": pc.CustomMechanism.from_profile(lambda e: np.maximum(0.1 - e, 0) * 0)},
    ],
    ids=lambda arguments: re.sub(" at 0x\\w+", "", str(arguments)),
)
def test_refused_terms(tmp_path, arguments):
    path = tmp_path / "run.jsonl"
    with pytest.raises(pc.PrivcalcError):
        pc.Ledger(path, **arguments)
    assert not path.exists()


def test_targets_that_are_met():
    pc.Ledger(None, plan=STEP * 206, target=pc.Guarantee(epsilon=3.0, delta=1e-5))
    pc.Ledger(None, plan=STEP * 4, target=pc.Guarantee(mu=0.1 + 1e-12))
    pc.Ledger(None, plan=STEP * 4, target=pc.Guarantee(rho=0.005 + 1e-12))
    with pytest.raises(pc.PrivcalcError, match="the plan has"):
        pc.Ledger(None, plan=STEP * 207, target=pc.Guarantee(epsilon=3.0, delta=1e-5))


# --- batches --------------------------------------------------------------------------------------


def test_a_token_is_used_once_by_many_threads():
    ledger = pc.Ledger(None, plan=SAMPLED * 50, public={"records": 8})
    for _ in range(50):
        batch, found = ledger.poisson_batch(SAMPLED), []

        def release(batch=batch, found=found):
            with contextlib.suppress(pc.PrivcalcError):
                found.append(ledger.gaussian(0.0, SAMPLED, clip_norm=1.0, batch=batch))

        threads = [threading.Thread(target=release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 1


def test_batches_are_not_written_down():
    ledger = pc.Ledger(None, plan=SAMPLED * 9, public={"records": 8})
    lines = []
    for _ in range(9):
        batch = ledger.poisson_batch(SAMPLED)
        ledger.gaussian(float(batch.indices.size), SAMPLED, clip_norm=1.0, batch=batch)
        lines += ledger.journal.memory[1:]
    assert {line.partition(b'"entry":')[2].partition(b',"hash"')[0] for line in lines} == {
        b'{"clip_norm":1.0,"coordinates":1,"error":null,"exponent":-35,"mechanism":{"kind":"PoissonSampled",'
        b'"mechanism":{"kind":"Gaussian","noise_multiplier":2.0},"rate":0.25},"scale":2.0000000000582077,'
        b'"type":"draw"}',
        b'{"count":1,"mechanism":{"kind":"PoissonSampled","mechanism":{"kind":"Gaussian","noise_multiplier":2.0},'
        b'"rate":0.25},"provenance":{"batch":"drawn","by":"caller","divided":"stated","noise":"exact",'
        b'"rounding":"not counted","sensitivity":"stated"},"type":"reserve"}',
    }


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_charges_cannot_be_copied(attempt):
    """A copy would draw, or answer, as often again."""
    run, gate = pc.CorrelatedGaussian(6.0, Toeplitz([1.0, 0.5], steps=20), FixedOrder(epoch=10)), GATE
    ledger = pc.Ledger(None, plan=run + gate)
    for one in (ledger, ledger.correlated(run, coordinates=1, clip_norm=1.0), ledger.above(gate, sensitivity=1.0)):
        with pytest.raises(pc.PrivcalcError, match="cannot be copied"):
            attempt(one)


# --- values ---------------------------------------------------------------------------------------


DISCRETE = pc.DiscreteGaussian(3.0)


@pytest.mark.parametrize("make", [np.array, lambda x, dtype: pytest.importorskip("torch").tensor(x, dtype=dtype)])
@pytest.mark.parametrize(
    ("given", "found", "step"),
    [
        *((kind, kind, STEP) for kind in ("float32", "float64")),
        ("int32", "float64", STEP),
        ("int32", "int64", DISCRETE),
    ],
)
def test_what_is_released_is_of_the_kind_that_was_given(make, given, found, step):
    library = np if make is np.array else pytest.importorskip("torch")
    values = make([[1, 1, 1], [1, 1, 1]], dtype=getattr(library, given))
    ledger = pc.Ledger(None, plan=step * 2, seed=2)
    noisy = ledger.gaussian(values, step, clip_norm=1.0)
    assert (tuple(noisy.shape), noisy.dtype) == ((2, 3), getattr(library, found))
    assert (values == 1).all()  # as it was
    assert step is DISCRETE or len(np.unique(np.asarray(noisy))) == 6
    assert tuple(ledger.gaussian(values[:0], step, clip_norm=1.0).shape) == (0, 3)


def test_numbers_and_lists():
    ledger = pc.Ledger(None, plan=STEP * 9 + pc.Laplace(3.0) + DISCRETE)
    assert type(ledger.gaussian(1.0, STEP, clip_norm=1.0)) is float
    assert type(ledger.gaussian(1, STEP, clip_norm=1.0)) is float
    assert ledger.gaussian([1, 2], STEP, clip_norm=1.0).dtype == np.float64
    assert ledger.gaussian(np.float32(1), STEP, clip_norm=1.0).dtype == np.float32
    assert type(ledger.laplace(1.0, pc.Laplace(3.0), clip_norm=1.0)) is float
    assert type(ledger.gaussian(5, DISCRETE, clip_norm=1)) is int
    torch = pytest.importorskip("torch")
    assert not ledger.gaussian(torch.ones(2, requires_grad=True), STEP, clip_norm=1.0).requires_grad
    for bad in (torch.tensor([math.nan]), torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(pc.PrivcalcError, match="values"):
            ledger.gaussian(bad, STEP, clip_norm=1.0)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_written_to_meanwhile_is_released_as_it_was_checked(kind, monkeypatch):
    """A thread, or a copy from a device still under way, could put NaN or more between the checks and the noise."""
    values = np.zeros(3)
    given = values if kind == "numpy" else pytest.importorskip("torch").from_numpy(values)
    pay = pc.Ledger._pay

    def paid(self, *arguments):
        values[:] = [math.nan, 1e9, 1.0]
        return pay(self, *arguments)

    monkeypatch.setattr(pc.Ledger, "_pay", paid)
    noisy = np.asarray(pc.Ledger(None, plan=STEP, seed=1).gaussian(given, STEP, clip_norm=1.0))
    assert values[1] == 1e9
    assert float(np.abs(noisy).max()) < 10 * STEP.noise_multiplier


BAD_VALUES = [
    *(math.nan, math.inf, [1.0, -math.inf], np.array([1.0, math.nan], dtype=np.float32)),
    *(1j, np.array([1j]), "1", ["1"], None, object(), [[1], [1, 2]], np.array([1.0], dtype=object), 10**400),
    np.array([1.0], dtype=np.longdouble),
]


@pytest.mark.parametrize("values", BAD_VALUES, ids=lambda value: re.sub(" at 0x\\w+", "", repr(value)))
def test_refused_values(values):
    laplace, choice = pc.Laplace(20.0), pc.ExponentialMechanism(1.0, monotone=False)
    ledger, spy = spied(plan=STEP + laplace + choice)
    refused(spy, "values", lambda ledger=ledger: ledger.gaussian(values, STEP, clip_norm=1.0))
    refused(spy, "values", lambda ledger=ledger: ledger.laplace(values, laplace, clip_norm=1.0))
    refused(spy, r"values|scores", lambda ledger=ledger: ledger.select(values, choice, sensitivity=1.0))


def test_no_finite_value_is_refused():
    """Whether it is would tell something about the records."""
    laplace, choice, discrete = pc.Laplace(20.0), pc.ExponentialMechanism(1.0, monotone=False), pc.DiscreteGaussian(1.5)
    ledger = pc.Ledger(None, plan=(STEP + laplace + choice + discrete) * 9)
    for large in (1e20, -1e300, np.finfo(np.float64).max):
        assert ledger.gaussian(large, STEP, clip_norm=1.0) == large
        assert ledger.laplace([large], laplace, clip_norm=1.0) == [large]
        assert ledger.select([large, 0.0], choice, sensitivity=1.0) == (large < 0)
    for large in (2**60, -(2**62), np.array([2**63], dtype=np.uint64), np.int64(-(2**63))):
        whole = ledger.gaussian(large, discrete, clip_norm=1.0)
        assert abs(abs(int(np.sum(whole))) - 2**53) < 30  # cut off there, and then noise
        assert abs(abs(float(np.sum(ledger.gaussian(large, STEP, clip_norm=1.0)))) - 2**53) < 400


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf, 1e-200, 1e200, "1", None, True])
def test_refused_bounds(bound):
    ledger, spy = spied(plan=STEP + pc.Laplace(1.0) + pc.ExponentialMechanism(1.0, monotone=False))
    refused(spy, "clip_norm", lambda ledger=ledger: ledger.gaussian(0.0, STEP, clip_norm=bound))
    refused(spy, "clip_norm", lambda ledger=ledger: ledger.laplace(0.0, pc.Laplace(1.0), clip_norm=bound))
    choice = pc.ExponentialMechanism(1.0)
    refused(spy, "sensitivity", lambda ledger=ledger: ledger.select([0.0], choice, sensitivity=bound))


def test_the_noise_has_the_scale_that_was_charged():
    sampled = pc.PoissonSampled(pc.Gaussian(3.0), 0.5)
    ledger = pc.Ledger(None, plan=STEP + pc.Laplace(4.0) + sampled, public={"records": 100_000}, seed=7)
    centre = np.full(20_000, 3.0)
    noise = ledger.gaussian(centre, STEP, clip_norm=0.5) - centre
    assert stats.kstest(noise / 10, stats.norm.cdf).pvalue > ALARM
    noise = ledger.laplace(centre, pc.Laplace(4.0), clip_norm=0.5) - centre
    assert stats.kstest(noise / 2, stats.laplace.cdf).pvalue > ALARM
    batch = ledger.poisson_batch(sampled)
    noise = ledger.gaussian(np.zeros(20_000), sampled, clip_norm=2.0, batch=batch)
    assert stats.kstest(noise / 6, stats.norm.cdf).pvalue > ALARM


@pytest.mark.parametrize(("sensitivity", "norm"), [(2, 1), (math.sqrt(3), 2)])
def test_discrete_gaussian(sensitivity, norm):
    """The noise is that of σ = z·Δ, exact on integers that no double holds; charged and certified with its norm."""
    discrete = pc.DiscreteGaussian(1.5, sensitivity, norm=norm)
    ledger, spy = spied(plan=discrete * 2, seed=3)
    values = np.full(20_000, 2**53 - 100, dtype=np.int64)  # one more, or less, is not the same double
    noise = ledger.gaussian(values, discrete, clip_norm=sensitivity) - values
    whole = np.arange(-60, 61)
    mass = np.exp(-(whole**2) / (2 * (1.5 * sensitivity) ** 2))
    counts = np.array([np.sum(noise == x) for x in range(-6, 7)])
    expected = (20_000 * mass / mass.sum())[54:67]
    assert stats.chisquare([*counts, 20_000 - counts.sum()], [*expected, 20_000 - expected.sum()]).pvalue > ALARM
    refused(spy, f"must be {sensitivity}"[:11], lambda: ledger.gaussian(noise, discrete, clip_norm=1.0))
    refused(spy, "integers", lambda: ledger.gaussian(noise / 2, discrete, clip_norm=sensitivity))
    refused(spy, "is not in the plan", lambda: ledger.gaussian(noise, pc.DiscreteGaussian(1.5, 4), clip_norm=4))
    ledger.gaussian(noise, discrete, clip_norm=sensitivity)
    ledger.close("output-independent")
    certificate = pc.certify(ledger, delta=1e-5)
    assert certificate.guarantee.epsilon.upper == (discrete * 2).epsilon(delta=1e-5).upper


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT])
@pytest.mark.parametrize("scheme", ["poisson", "fixed", "discrete"])
@pytest.mark.parametrize("records", [0, 1, 7])
def test_a_sum_that_was_not_clipped_is_refused_before_its_noise_is_drawn(relation, scheme, records):
    """Twice as long as contributions can make it; a bit less may be rounding."""
    inner = pc.DiscreteGaussian(2.0, sensitivity=3) if scheme == "discrete" else pc.Gaussian(2.0)
    fixed = scheme == "fixed" and records
    step = pc.FixedSizeSampled(inner, records, 20) if fixed else pc.PoissonSampled(inner, 1.0)
    ledger, spy = spied(plan=step, relation=relation)
    batch = ledger.fixed_size_batch(step) if fixed else ledger.poisson_batch(step, records=records)
    kind = np.int64 if scheme == "discrete" else np.float64
    most = np.array([2 * 3 * records, 0], dtype=kind)
    refusal = "values: are longer than any sum over this batch.* <= clip_norm = 3.0 "
    for values in (most + np.array([1, 0], kind), -most - 1, most // 2 + np.array([most[0] + 1, 1], kind)):
        refused(spy, refusal, lambda ledger=ledger, x=values: ledger.gaussian(x, step, clip_norm=3.0, batch=batch))
    give = {"clip_norm": 3.0, "batch": batch}
    ledger.gaussian(most, step, **give)  # the batch was not used up


def test_batches_from_elsewhere_are_charged_and_nobody_vouches_for_their_coins(tmp_path):
    step, path = pc.PoissonSampled(pc.Gaussian(2.0), 0.5), tmp_path / "run.jsonl"
    with pc.Ledger(path, plan=step * 2, public={"records": 9}) as ledger:
        batch = ledger.batch_from_elsewhere(step, size=3)
        with pytest.raises(pc.PrivcalcError, match="longer than any sum"):
            ledger.gaussian(7.0, step, clip_norm=1.0, batch=batch)
        with pytest.raises(pc.PrivcalcError, match="was not used"):
            ledger.poisson_batch(step)
        ledger.gaussian(3.0, step, clip_norm=1.0, batch=batch)
        with pytest.raises(pc.PrivcalcError, match="batch"):
            ledger.gaussian(3.0, step, clip_norm=1.0, batch=batch)
        for wrong in (pc.Gaussian(2.0), step * 2, "x", None):
            with pytest.raises(pc.PrivcalcError, match="step = "):
                ledger.batch_from_elsewhere(wrong, size=3)
        for wrong in (-1, 2.0, None, "3", True):
            with pytest.raises(pc.PrivcalcError, match="size = "):
                ledger.batch_from_elsewhere(step, size=wrong)
        ledger.gaussian(0.0, step, clip_norm=1.0, batch=ledger.poisson_batch(step))
    told = [json.loads(line)["entry"].get("provenance", {}).get("batch") for line in path.read_text().splitlines()]
    assert told == [None, "stated", None, "drawn", None]
    assert not any("size" in json.loads(line)["entry"] for line in path.read_text().splitlines())  # it is secret
    certificate = pc.certify(path, delta=1e-5)
    said = {entry["name"]: entry["by"] for entry in certificate.document["assumptions"]["needed"]}
    assert (said["sampling"], said["steps"], certificate.document["noise"]) == ("nobody", "nobody", "exact")
    assert certificate.verify(path)


def test_a_sum_may_be_longer_by_its_error_and_have_any_centre_under_replace_one():
    step = pc.PoissonSampled(pc.Gaussian(2.0), 1.0)
    ledger = pc.Ledger(None, plan=step * 3, public={"records": 2})
    ledger.gaussian(np.array([4.5]), step, clip_norm=1.0, error=0.5, batch=ledger.poisson_batch(step))
    with pytest.raises(pc.PrivcalcError, match="longer than any sum"):
        ledger.gaussian(np.array([4.5]), step, clip_norm=1.0, error=0.4, batch=ledger.poisson_batch(step))
    other = pc.Ledger(None, plan=step * 3, public={"records": 2}, relation=pc.REPLACE_ONE)
    other.gaussian(np.array([1e6]), step, clip_norm=1.0, batch=other.poisson_batch(step))


@settings(max_examples=50 if SLOW else 20, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 4), st.integers(0, 2**32), st.sampled_from([np.float16, np.float32]))
def test_rounding_alone_never_makes_a_sum_too_long(records, size, seed, kind):
    """Half-precision running sums of contributions that all point one way: each to the next at most twice the step."""
    rows = np.abs(np.random.default_rng(seed).standard_normal((records, size)))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(kind)
    total = np.zeros(size, kind)
    for row in rows:
        total = total + row
    clip_norm = float(np.linalg.norm(rows.astype(float), axis=1).max())
    check_sum("values", float(np.linalg.norm(total.astype(float))), clip_norm=clip_norm, records=records)


def told(act):
    """The warnings of an act, as texts."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", pc.PrivcalcWarning)
        act()
    return [str(each.message) for each in found]


def test_rows_in_place_of_a_sum_are_refused():
    """As many rows as records in two batches of two sizes: no public shape is both."""
    step, rows = pc.PoissonSampled(pc.Gaussian(5.0), 0.1), np.ones((300, 2)) / 2
    ledger, spy = spied(plan=step * 30, public={"records": 300}, seed=1)
    batch = ledger.batch(step)
    first = batch.indices.size
    ledger.gaussian(rows[batch.indices], step, clip_norm=1.0, batch=batch)  # once it may be chance
    while (batch := ledger.batch(step)).indices.size == first:
        ledger.gaussian(np.zeros((first, 2)), step, clip_norm=1.0, batch=batch)
    refused(spy, "as many rows as", lambda: ledger.gaussian(rows[batch.indices], step, clip_norm=1.0, batch=batch))
    ledger.gaussian(np.zeros((first, 2)), step, clip_norm=1.0, batch=batch)  # it was not used up


@pytest.mark.parametrize(
    "shape", [lambda turn: (), lambda turn: (20,), lambda turn: (3, 2), lambda turn: (2, 1 + turn // 20)]
)
def test_public_shapes_are_not_refused(shape):
    """Of 20 coordinates in some batches as many as records; of others after a while, as where layers are unfrozen."""
    step = pc.PoissonSampled(pc.Gaussian(5.0), 0.2)
    ledger = pc.Ledger(None, plan=step * 40, public={"records": 100}, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for turn in range(40):
            batch = ledger.batch(step)
            ledger.gaussian(np.zeros(shape(turn)), step, clip_norm=1.0, batch=batch)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "float16", "bool"])
def test_sums_in_few_bits_are_refused(kind):
    """Two of 200 make 144 in eight bits; 2048 and 1 make 2048 in half precision."""
    ledger, spy = spied(plan=STEP + pc.Laplace(1.0))
    values = np.ones(2, kind)
    refused(
        spy, f"^values: are a sum of type {kind}", lambda ledger=ledger: ledger.gaussian(values, STEP, clip_norm=1.0)
    )
    refused(spy, "^values: are a sum of", lambda ledger=ledger: ledger.laplace(values, pc.Laplace(1.0), clip_norm=1.0))
    ledger.gaussian(values.astype(np.float32), STEP, clip_norm=1.0)
    ledger.laplace(values.astype(np.int32), pc.Laplace(1.0), clip_norm=1.0)


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT, pc.REPLACE_ONE])
def test_a_sum_over_all_records_that_was_not_clipped_is_refused_where_their_number_is_public(relation):
    step, laplace, discrete = pc.Gaussian(5.0), pc.Laplace(5.0), pc.DiscreteGaussian(5.0)
    ledger = pc.Ledger(None, plan=(step + laplace + discrete) * 3, relation=relation, public={"records": 100})
    for draw, mechanism in ((ledger.gaussian, step), (ledger.laplace, laplace), (ledger.gaussian, discrete)):
        draw(np.array([100, -100]), mechanism, clip_norm=1.0)

        def wrong(draw=draw, mechanism=mechanism):
            draw(np.array([120, -120]), mechanism, clip_norm=1.0)

        if relation is pc.REPLACE_ONE or mechanism is step:
            wrong()
        else:
            with pytest.raises(pc.PrivcalcError, match="longer than any sum"):
                wrong()
    if relation is not pc.REPLACE_ONE:
        with pytest.raises(pc.PrivcalcError, match="longer than any sum"):
            ledger.gaussian(np.array([203.0]), step, clip_norm=1.0)
        assert not ledger.would_exceed(step)  # it was not charged
    pc.Ledger(None, plan=step).gaussian(1e6, step, clip_norm=1.0)  # nobody knows how many there are


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE])
def test_a_turn_of_a_stream_that_was_not_clipped_is_refused(relation):
    run = pc.CorrelatedGaussian(6.0, Toeplitz([1.0, 0.5], steps=20), FixedOrder(epoch=10))
    ledger, rows = pc.Ledger(None, plan=run * 2, relation=relation), np.full((600, 1), 10.0)
    stream = ledger.correlated(run, coordinates=1, clip_norm=1.0, records=600)
    stream.release(rows[stream.indices].sum(axis=0) / 10)
    if relation is pc.REPLACE_ONE:
        assert stream.indices.size < 600
        stream.release(rows.sum(axis=0))
        return
    with pytest.raises(pc.PrivcalcError, match="longer than any sum"):
        stream.release(rows[stream.indices].sum(axis=0))
    assert stream.step == 1
    ledger.correlated(run, coordinates=1, clip_norm=1.0).release(rows.sum(axis=0))  # nobody knows how many there are


# --- choices --------------------------------------------------------------------------------------


def softmax(logits):
    weights = np.exp(logits - np.max(logits))
    return weights / weights.sum()


SCORES = np.array([3.0, 1.0, 2.0, -5.0])
ROWS, ONE, TOP = np.array([[3.0, 1.0, 2.0], [0.0, 0.0, 1.0]]), pc.ExponentialMechanism(0.8), pc.TopK(1.5, k=2)
PAIRS = list(itertools.permutations(range(3), 2))
WEIGHTS = np.exp(0.4 * SCORES[:3])


@pytest.mark.parametrize(
    ("choose", "outcomes", "law", "cost"),
    [
        (lambda ledger, **o: ledger.select(SCORES, ONE, **o), range(4), softmax(0.4 * SCORES), ONE),
        (lambda ledger, **o: ledger.select(ROWS, ONE, **o), list(itertools.product(range(3), repeat=2)),
         np.outer(softmax(0.4 * ROWS[0]), softmax(0.4 * ROWS[1])).ravel(), ONE),  # of disjoint parts: one use
        (lambda ledger, **o: ledger.peel(SCORES[:3], ONE, k=2, **o), PAIRS,
         [WEIGHTS[i] / WEIGHTS.sum() * WEIGHTS[j] / (WEIGHTS.sum() - WEIGHTS[i]) for i, j in PAIRS], ONE * 2),
        *((lambda ledger, n=n, **o: ledger.select(SCORES[:n], TOP, **o), list(itertools.combinations(range(n), 2)),
          softmax([1.5 * min(SCORES[list(s)]) / 4 for s in itertools.combinations(range(n), 2)]), TOP)
          for n in (3, 4)),
    ],
    ids=["select", "rows", "peel", "top 2 of 3", "top 2 of 4"],
)  # fmt: skip
def test_choices_have_the_law_that_is_charged(choose, outcomes, law, cost):
    """ε·score/Δ in the exponent; a set ascends: its ranking is private, and not what was charged for."""
    draws, said = 3000, {"sensitivity": 2.0, "monotone": True}
    ledger = pc.Ledger(None, plan=cost * draws, seed=4, assumptions=pc.Assumptions(parts="disjoint"))
    drawn = [choose(ledger, **said) for _ in range(draws)]
    assert type(drawn[0]) in (int, np.ndarray)
    found = Counter(one if type(one) is int else tuple(one.tolist()) for one in drawn)
    assert set(found) <= set(outcomes)
    assert stats.chisquare([found[one] for one in outcomes], draws * np.asarray(law)).pvalue > ALARM
    assert ledger.spent == cost * draws
    with pytest.raises(pc.BudgetExceeded):
        choose(ledger, **said)


def test_refused_peels():
    other = pc.Ledger(None, plan=pc.ExponentialMechanism(0.8, monotone=False) * 2)
    other.peel(SCORES, ONE, k=2, sensitivity=1.0)  # not said to be monotone: at double the cost
    assert float(other.spent.epsilon(delta=0)) == pytest.approx(3.2)
    for arguments in ({"k": 5}, {"k": 0}, {"k": 1, "scores": [[1.0, 2.0]]}, {"k": 1, "mechanism": TOP}):
        given = {"scores": SCORES, "mechanism": ONE, "sensitivity": 1.0} | arguments
        with pytest.raises(pc.PrivcalcError):
            pc.Ledger(None, plan=ONE * 9).peel(given.pop("scores"), given.pop("mechanism"), monotone=True, **given)


@pytest.mark.parametrize("monotone", [True, False])
def test_a_choice_beyond_the_plan_names_the_word(monotone):
    choice = pc.ExponentialMechanism(0.5, monotone=monotone)
    ledger = pc.Ledger(None, plan=STEP)
    with pytest.raises(pc.BudgetExceeded, match="is not in the plan") as caught:
        ledger.select([1.0, 2.0], choice, sensitivity=1.0)
    assert ("select(..., monotone=True)" in str(caught.value)) == monotone


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("monotone", [True, False])
def test_what_a_choice_costs(declared, monotone):
    """Half the cost only if both the mechanism and the caller say that scores are monotone."""
    plan = pc.ExponentialMechanism(0.5, monotone=True) + pc.ExponentialMechanism(0.5, monotone=False)
    ledger = pc.Ledger(None, plan=plan)
    ledger.select([1.0, 2.0], pc.ExponentialMechanism(0.5, monotone=declared), sensitivity=1.0, monotone=monotone)
    assert ledger.spent == pc.ExponentialMechanism(0.5, monotone=declared and monotone).run
    assert float(ledger.spent.epsilon(delta=0)) == pytest.approx(0.5 if declared and monotone else 1.0)


@pytest.mark.parametrize("mechanism", quick([pc.ExponentialMechanism(1.0), pc.TopK(1.0, k=2)], 0), ids=str)
def test_rows_are_charged_unless_they_are_declared_disjoint(mechanism):
    """Many choices from the same scores are as many choices: an attacker averages them."""
    scores, choose = np.tile([1.0, 2.0, 3.0], (60, 1)), {"sensitivity": 1.0, "monotone": True}
    ledger, spy = spied(plan=mechanism)
    refused(spy, "60 rows are charged for 60 ×", lambda ledger=ledger: ledger.select(scores, mechanism, **choose))
    ledger.select(scores[:1], mechanism, **choose)
    ledger = pc.Ledger(None, plan=mechanism * 63)
    ledger.select(scores[0], mechanism, **choose)
    ledger.select(scores, mechanism, **choose)
    assert ledger.spent == mechanism * 61
    ledger.close()
    assert pc.certify(ledger, delta=0.0).guarantee.epsilon > 59 * float(mechanism.epsilon(delta=0.0))
    capped, spy = spied(cap=pc.PureDP(2.5 * float(mechanism.epsilon(delta=0.0))))
    capped.select(scores[:2], mechanism, **choose)
    refused(spy, "2 rows", lambda ledger=capped: ledger.select(scores[:2], mechanism, **choose))


def test_rows_and_blocks(tmp_path, unnumbered):
    """A charge of several uses is durable whole, whatever was reserved before, and needs no more room than it takes."""
    choice, path, choose = pc.ExponentialMechanism(0.1), tmp_path / "run.jsonl", {"sensitivity": 1.0, "monotone": True}
    with pc.Ledger(path, plan=choice * 400 + STEP) as ledger:
        for rows in (1, 150, 3, 90, 2, 150):
            ledger.select(np.eye(rows, 4), choice, **choose)
            lines = [json.loads(line)["entry"] for line in path.read_text().splitlines()]
            written = sum({"reserve": 1, "return": -1}.get(e["type"], 0) * e.get("count", 0) for e in lines)
            assert ledger.spent.entries[0][1] <= written <= 400
        assert ledger.spent == choice * 396
        with pytest.raises(pc.PrivcalcError, match="5 rows"):
            ledger.select(np.eye(5), choice, **choose)
        ledger.select(np.eye(4), choice, **choose)
    assert pc.certify(path, delta=0.0).document["recorded"][0]["count"] == 400


def test_rows_that_are_one_array_are_not_disjoint():
    choice, row = pc.ExponentialMechanism(1.0), np.array([1.0, 2.0])
    ledger, spy = spied(plan=choice * 9, assumptions=pc.Assumptions(parts="disjoint"))
    for scores in (np.broadcast_to(row, (5, 2)), [row, row], [[3.0, 1.0], row, row]):
        refused(
            spy,
            "are one array",
            lambda ledger=ledger, s=scores: ledger.select(s, choice, sensitivity=1.0, monotone=True),
        )
    zeros = [0.0, 0.0]
    for scores in (
        np.tile(row, (5, 1)),
        [zeros, row, zeros],
        [(1.0, 2.0), (1.0, 2.0)],
        np.broadcast_to(row, (1, 2)),
        row,
    ):
        ledger.select(
            scores, choice, sensitivity=1.0, monotone=True
        )  # equal values say nothing, and are the records' own
    assert ledger.spent == choice * 5


def test_refused_choices():
    choice, top = pc.ExponentialMechanism(1.0), pc.TopK(epsilon=1.0, k=3)
    parallel = pc.Parallel([choice] * 2)
    ledger, spy = spied(plan=choice + top + parallel, assumptions=pc.Assumptions(parts="disjoint"))
    for scores, mechanism, monotone in (
        ([], choice, True),
        ([[[1.0], [2.0]]], choice, True),
        (1.0, choice, True),
        ([[1.0, 2.0], [np.nan, 1.0]], choice, True),
        ([[1.0, 2.0], [1.0, 2.0]], top, True),
        ([1.0, 2.0], top, True),
        ([1.0, 2.0, 3.0], top, False),
        ([1.0, 2.0], STEP, True),
        ([[1.0], [2.0]], parallel, True),
        ([1.0, 2.0], choice, 1),
    ):
        refused(
            spy,
            "scores|values|mechanism|monotone",
            lambda ledger=ledger, s=scores, m=mechanism, o=monotone: ledger.select(s, m, sensitivity=1.0, monotone=o),
        )


# --- a model --------------------------------------------------------------------------------------

OTHER, QUIET = pc.Laplace(scale=10.0), pc.Gaussian(noise_multiplier=40.0)
PLAN = {STEP: 12, OTHER: 5, SAMPLED: 6}


class Model(RuleBasedStateMachine):
    """A ledger, gone on with after crashes, against a count of what was drawn and what may have been lost."""

    def __init__(self):
        super().__init__()
        self.lines, self.batch = [], None

    @initialize(cap=st.booleans())
    def begin(self, cap):
        self.terms = {"cap": pc.ZCDP(rho=0.03)} if cap else {"plan": pc.Run(tuple(PLAN.items()))}
        self.cap, self.spent, self.closed = cap, Counter(), False
        self.open()

    def open(self):
        """As from a file that holds the lines."""
        self.ledger = pc.Ledger(None, **self.terms, public={"records": 3})
        for line in self.lines[1:]:
            entry = json.loads(line)["entry"]
            self.ledger._book.apply(entry)
            self.ledger.journal.append(entry)
        self.ledger._charged = 300  # blocks of four
        self.spy = Spy(self.ledger)

    def room(self, mechanism, count=1):
        if not self.cap:
            return self.spent[mechanism] + count <= PLAN.get(mechanism, 0)
        rho = sum(n * self.rho(m) for m, n in self.spent.items()) + count * self.rho(mechanism)
        return rho <= Fraction(0.03)

    @staticmethod
    def rho(mechanism):
        if isinstance(mechanism, pc.Gaussian):
            return 1 / Fraction(mechanism.noise_multiplier) ** 2 / 2
        return Fraction(mechanism.zcdp()[0])

    def attempt(self, mechanism, count, act):
        room, drawn = self.room(mechanism, count), len(self.spy.drawn)
        assert self.ledger.would_exceed(mechanism, count) == (not room)
        try:
            act()
        except pc.PrivcalcError:
            assert not room
            assert len(self.spy.drawn) == drawn
        else:
            assert room
            self.spent[mechanism] += count

    @precondition(lambda self: not self.closed)
    @rule(mechanism=st.sampled_from([STEP, QUIET]), count=st.integers(1, 4))
    def gaussian(self, mechanism, count):
        for _ in range(count):
            self.attempt(mechanism, 1, lambda: self.ledger.gaussian(0.0, mechanism, clip_norm=1.0))

    @precondition(lambda self: not self.closed)
    @rule()
    def laplace(self):
        self.attempt(OTHER, 1, lambda: self.ledger.laplace(0.0, OTHER, clip_norm=1.0))

    @precondition(lambda self: not self.closed)
    @rule(mechanism=st.sampled_from([STEP, OTHER, QUIET]), count=st.integers(1, 5))
    def record(self, mechanism, count):
        self.attempt(mechanism, count, lambda: self.ledger.record(mechanism, count))

    @precondition(lambda self: not self.closed and not self.cap and self.batch is None)
    @rule()
    def coins(self):
        def act():
            self.batch = self.ledger.poisson_batch(SAMPLED)

        self.attempt(SAMPLED, 1, act)

    @precondition(lambda self: not self.closed and self.batch is not None)
    @rule()
    def release(self):
        self.ledger.gaussian(0.0, SAMPLED, clip_norm=1.0, batch=self.batch)
        self.batch = None

    @precondition(lambda self: not self.closed)
    @rule()
    def crash(self):
        self.lines = list(self.ledger.journal.memory)
        self.batch = None
        self.spent = Counter(dict(self.ledger._book.recorded.entries))  # what was reserved is lost
        self.open()
        assert Counter(dict(self.ledger.spent.entries)) == +self.spent

    @precondition(lambda self: not self.closed)
    @rule(vouch=st.booleans())
    def close(self, vouch):
        self.ledger.close(stopping="output-independent" if vouch else None)
        self.closed = True
        found = pc.certify(self.ledger, delta=1e-5)
        assert found.final
        assert Counter(dict(found.run.entries)) == +self.spent if vouch else found.run == self.ledger.terms.bound

    @precondition(lambda self: self.closed)
    @rule()
    def after_the_end(self):
        with pytest.raises(pc.PrivcalcError, match="closed"):
            self.ledger.gaussian(0.0, STEP, clip_norm=1.0)

    @invariant()
    def agrees(self):
        if hasattr(self, "ledger"):
            assert Counter(dict(self.ledger.spent.entries)) == +self.spent
            book = Counter(dict(self.ledger._book.recorded.entries))
            assert all(book[mechanism] >= count for mechanism, count in self.spent.items())


TestModel = Model.TestCase
TestModel.settings = settings(settings(), max_examples=100 if SLOW else 8, stateful_step_count=25)


# --- the optional-stopping witness ----------------------------------------------------------------

SIGMA, MORE, DELTA = 20.0, 200, 1e-5


def witness(epsilon, *, below):
    """δ(ε) of: release x + N(0, σ²); stop below (above) the quantile that 95 % of runs reach; else 200 more."""
    edge = stats.norm.ppf(0.95 if below else 0.05, scale=SIGMA)

    def loss(y):
        return (2 * y - 1) / (2 * SIGMA**2)

    def density(y):
        return stats.norm.pdf(y, loc=1, scale=SIGMA)

    mu = math.sqrt(MORE) / SIGMA

    def later(e):  # the profile of the 200 steps at any real ε
        return stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)

    stop, go = ((-math.inf, edge), (edge, math.inf)) if below else ((edge, math.inf), (-math.inf, edge))
    ends = [(max(low, -12 * SIGMA), min(high, 12 * SIGMA)) for low, high in (stop, go)]
    parts = [
        lambda y: density(y) * max(0.0, -math.expm1(epsilon - loss(y))),
        lambda y: density(y) * later(epsilon - loss(y)),
    ]
    return sum(integrate.quad(part, *end, limit=400, epsabs=1e-12)[0] for part, end in zip(parts, ends, strict=True))


def run_of(ledger, x, *, below):
    """One run of it."""
    edge = stats.norm.ppf(0.95 if below else 0.05, scale=SIGMA)
    outputs = [ledger.gaussian(x, STEP, clip_norm=1.0)]
    if (outputs[0] > edge) == below:
        outputs += [ledger.gaussian(x, STEP, clip_norm=1.0) for _ in range(MORE)]
    return outputs


@pytest.mark.parametrize("below", [True, False])
def test_the_optional_stopping_witness(below):
    recorded = float(STEP.epsilon(delta=DELTA))
    assert recorded == pytest.approx(0.160, abs=5e-4)
    true = witness(recorded, below=below)
    assert true == pytest.approx(0.014161 if below else 0.008475, abs=1e-6)  # a thousand times δ

    # most runs stop after one step; their certificate is the plan's, and covers the truth
    for seed in range(200):
        ledger = pc.Ledger(None, plan=STEP * (1 + MORE), seed=seed)
        if len(run_of(ledger, 0.0, below=below)) == 1:
            break
    assert ledger.spent == STEP.run
    for stopping in (None, "output-independent"):
        again = pc.Ledger(None, plan=STEP * (1 + MORE))
        again.gaussian(0.0, STEP, clip_norm=1.0)
        again.close(stopping=stopping)
        found = pc.certify(again, delta=DELTA)
        if stopping is None:
            assert found.run == STEP * (1 + MORE)
            assert witness(float(found.guarantee.epsilon), below=below) <= DELTA
            assert found.guarantee.epsilon > 2.9
            assert "160" not in str(found).splitlines()[0]
        else:  # a false word of the caller is all that makes it smaller, and it is quoted
            assert found.guarantee.epsilon == recorded
            assert 'the caller declared: "output-independent"' in str(found)
    assert pc.certify(ledger, delta=DELTA).run == STEP * (1 + MORE)  # also while it is open

    capped = pc.Ledger(None, cap=pc.GDP(mu=math.sqrt(1 + MORE) / SIGMA + 1e-9))
    run_of(capped, 0.0, below=below)
    capped.close()
    assert pc.certify(capped, delta=DELTA).guarantee.epsilon - found.guarantee.epsilon >= 2.7
    capped = pc.Ledger(None, cap=pc.GDP(mu=0.7))
    capped.record(STEP, 195)
    with pytest.raises(pc.BudgetExceeded, match="would exceed"):
        capped.gaussian(0.0, STEP, clip_norm=1.0)
