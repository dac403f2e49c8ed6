"""Record and replay: each classical violation is planted in a right loop, and found; the right loop shows none."""

from __future__ import annotations

import functools
import io
import random
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import quick

import privcalc as pc
from privcalc import noise
from privcalc.attacks.replay import KINDS, replay
from privcalc.attacks.replay.findings import difference
from privcalc.certificate.consistency import check
from privcalc.certificate.schema import digest

RECORDS, PUBLIC, BATCH, STEPS = 20, 50.0, 10, 4
STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), 0.5)
PLAIN = pc.Gaussian(noise_multiplier=1.0)
rng = np.random.default_rng(0)
X = rng.standard_normal((RECORDS, 3))
Y = (X.sum(axis=1) > 0).astype(np.int64)


def clipped(rows, bound=1.0):
    """Each shortened to the bound; what is not finite counts as nothing."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(norms < np.inf, rows / np.maximum(norms / bound, 1.0), 0.0)


def gradients(x, y, w):
    return x * (1 / (1 + np.exp(-x @ w)) - y)[:, None]


def training(bug=""):  # noqa: PLR0915
    """A loop of DP-SGD, right but for one bug."""

    def train(data):  # noqa: PLR0915
        x, y = data
        ledger = pc.Ledger(None, plan=STEP * 50 + PLAIN * 50)
        w, bias, rate, steps = np.zeros(3), 0.0, 1.0, STEPS
        state = {}
        if bug == "standardised by the data's own mean":
            x = x - x.mean(axis=0)
        if bug == "outliers of the data set dropped":
            near = np.abs(x).max(axis=1) <= 3 * np.median(np.abs(x))
            x, y = x[near], y[near]
        if bug == "duplicates dropped":
            x, first = np.unique(x, axis=0, return_index=True)
            y = y[first]
        if bug == "start from the data":
            w = clipped(x).mean(axis=0)
        if bug == "schedule of the private number":
            steps = len(x) // 5
        if bug == "rate of learning of the data":
            rate = 1 / np.abs(np.nan_to_num(x)).max()
        for _ in range(steps):
            if bug == "shuffled":
                indices, batch, step = np.random.permutation(len(x))[:BATCH], None, PLAIN
            else:
                batch, step = ledger.poisson_batch(STEP, records=len(x)), STEP
                indices = batch.indices
            rows, labels = x[indices], y[indices]
            if bug == "batch normalisation":
                rows = (rows - rows.mean(axis=0)) / (1e-3 + rows.std(axis=0))
            if bug == "running statistics":
                state["mean"] = np.nan_to_num(rows).mean(axis=0)
            each = gradients(rows, labels, w)
            bound, declared = 1.0, 1.0
            if bug == "half precision":
                each = each.astype(np.float16)
                total = (
                    (each * np.minimum(1, 1 / np.linalg.norm(each, axis=1, keepdims=True)))
                    .sum(axis=0)
                    .astype(np.float64)
                )
            elif bug == "mean clipped":
                total = clipped(each.mean(axis=0, keepdims=True))[0] * len(each)
            elif bug == "micro-batches clipped":
                parts = [each[i : i + 3].sum(axis=0) for i in range(0, len(each), 3)]
                total = clipped(np.array(parts)).sum(axis=0)
            elif bug == "clipped by coordinate":
                total = np.clip(np.nan_to_num(each), -1, 1).sum(axis=0)
            elif bug == "not clipped":
                total = np.nan_to_num(each, posinf=0, neginf=0).clip(-1e9, 1e9).sum(axis=0)
            elif bug == "clip norm of the data":
                bound = declared = float(np.nanquantile(np.linalg.norm(np.nan_to_num(each), axis=1).clip(0.01, 9), 0.5))
                total = clipped(each, bound).sum(axis=0)
            else:
                total = clipped(each).sum(axis=0)
            if bug == "noise for another clip norm":
                declared = 0.5
            if bug == "NaN skipped" and not np.all(np.isfinite(each)):
                continue
            if bug == "shape of the data":
                total = np.append(total, np.zeros(int(np.nan_to_num(np.abs(x)).max().clip(0, 99))))
            if bug == "records outside of the batch":
                total = total + 1e-9 * clipped(x).sum(axis=0)
            if bug == "a loss beside":
                state["loss"] = float(np.nan_to_num(np.abs(each)).sum())
            noisy = ledger.gaussian(total, step, clip_norm=declared, batch=batch)[:3]
            by = {"normalised by the batch": len(indices) or 1, "normalised by the data": len(x)}.get(bug, PUBLIC)
            w = w - rate * noisy / by
            if bug == "no noise for one parameter":
                bias -= float(np.nan_to_num(labels - 0.5).sum()) / PUBLIC
            if bug == "stops by the private loss" and np.abs(np.nan_to_num(x) @ w).max() > 50:
                break
        if bug == "tells how many":
            state["records"] = len(x)
        if bug == "fails by a record" and np.abs(np.nan_to_num(x)).max() > 100:
            raise ValueError("too large")
        return w, bias, state

    return train


PLANTED = {
    "normalised by the data": "output",
    "normalised by the batch": "output",
    "batch normalisation": "sensitivity",
    "running statistics": "output",
    "mean clipped": "interaction",
    "noise for another clip norm": "sensitivity",
    "micro-batches clipped": "interaction",
    "clipped by coordinate": "sensitivity",
    "not clipped": "sensitivity",
    "shuffled": "sensitivity",
    "stops by the private loss": "control flow",
    "shape of the data": "control flow",
    "NaN skipped": "refusal",
    "half precision": "refusal",
    "rate of learning of the data": "output",
    "no noise for one parameter": "output",
    "clip norm of the data": "control flow",
    "standardised by the data's own mean": "sensitivity",
    "outliers of the data set dropped": "sensitivity",
    "duplicates dropped": "sensitivity",
    "start from the data": "output",
    "schedule of the private number": "control flow",
    "records outside of the batch": "absent",
    "a loss beside": "output",
    "tells how many": "output",
    "fails by a record": "refusal",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_violation_is_found(bug):
    report = replay(training(bug), (X, Y), doors=pc.Ledger)
    assert PLANTED[bug] in report.kinds, str(report)


@pytest.mark.parametrize("seed", quick(range(3), 0))
def test_the_right_loop_shows_nothing(seed):
    report = replay(training(), (X, Y), doors=pc.Ledger, search=20, seed=seed)
    assert report.findings == (), str(report)
    assert 0.9 < report.largest <= 1  # a large record is clipped, and moves the sum by all that it may


def test_every_kind_is_planted():
    assert set(PLANTED.values()) | {"monotone"} == set(KINDS)


def test_what_is_found_names_release_record_and_meaning():
    report = replay(training("noise for another clip norm"), (X, Y), doors=pc.Ledger)
    (finding, *_) = report.findings
    assert finding.where == f"release 1, gaussian of {STEP}"
    assert finding.record.startswith("the last record times")
    assert "moved by 1, and the bound is 0.5" in finding.said
    assert finding.ratio == pytest.approx(2, rel=1e-3)
    assert KINDS["sensitivity"] in str(report)
    assert "no guarantee" in str(report)


@functools.cache
def the_right_report():
    return replay(training(), (X, Y), doors=pc.Ledger)


def test_a_certificate_says_what_was_replayed_and_that_it_is_no_guarantee(tmp_path):
    right, wrong = the_right_report(), replay(training("not clipped"), (X, Y), doors=pc.Ledger)
    plain = pc.certify(PLAIN, delta=1e-5)
    assert "replayed        nothing: no program was tried on neighbouring data" in str(plain)
    certificate = plain.replayed(right)
    assert certificate.verify()
    certificate.save(tmp_path / "run.json")
    assert pc.Certificate.load(tmp_path / "run.json") == certificate
    (line,) = (line for line in str(certificate).splitlines() if line.startswith("replayed"))
    assert "train, 4 releases" in line
    assert "a copy of the first record" in line
    assert "found nothing" in line
    assert "no guarantee" in line
    refuted = certificate.replayed(wrong)
    assert refuted.document["replayed"] == [right.section, wrong.section]
    assert str(refuted).startswith("REFUTED BY A REPLAY")
    assert str(pc.certify([refuted, plain], delta=1e-5)).startswith("REFUTED BY A REPLAY")
    assert "moved" not in str(wrong.section)  # what was seen depends on the data
    for said in (refuted.html() if hasattr(refuted, "html") else str(refuted),):
        assert "REFUTED BY A REPLAY" in said


@pytest.mark.parametrize(
    "change",
    [
        *([], {}, "none", [{}]),
        *(
            {"note": "it is private"},
            {"found": ["nothing"]},
            {"found": None},
            {"added": [3]},
            {"releases": 0},
            {"more": 1},
        ),
        *({"relation": "mine"}, {"process": 3}),
    ],
    ids=str,
)
def test_forged_sections_are_refused(change):
    section = the_right_report().section
    plain = pc.certify(PLAIN, delta=1e-5).document
    forged = {**plain, "replayed": [section | change] if isinstance(change, dict) and change else change}
    with pytest.raises(pc.Contradiction):
        pc.Certificate({**forged, "hash": digest(forged)}).verify()


@pytest.mark.parametrize("wrong", [(), (3,), (None,)])
def test_only_reports_are_added(wrong):
    with pytest.raises(pc.PrivcalcError, match="reports"):
        pc.certify(PLAIN, delta=1e-5).replayed(*wrong)
    one = pc.certify(PLAIN, delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match="composition"):
        pc.certify([one, one], delta=1e-5).replayed(the_right_report())


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("norm", "kinds"), [(1, ()), (2, ("sensitivity",))])
def test_laplace_needs_another_norm(norm, kinds, replaced):
    step = pc.Laplace(4.0)

    def total(x):
        norms = np.linalg.norm(x, norm, axis=1, keepdims=True)
        each = np.where(norms < np.inf, x / np.maximum(norms, 1.0), 0.0)
        return pc.Ledger(None, plan=step).laplace(each.sum(axis=0), step, clip_norm=1.0)

    relation = pc.REPLACE_ONE if replaced else pc.ADD_OR_REMOVE_ONE
    others = [np.full(3, 1e3), np.full(3, -1e3)]
    data = np.vstack([X, others])
    assert replay(total, data, doors=pc.Ledger, relation=relation).kinds == kinds


def counts(x, scale, bound):
    return np.array([scale * np.sum(np.nan_to_num(x[:, i]).clip(-bound, 1) > 0) for i in range(3)], dtype=float)


@pytest.mark.parametrize(
    ("score", "kinds"),
    [
        (lambda x: counts(x, 1, 1), ()),
        (lambda x: counts(x, 2, 1), ("sensitivity",)),
        (lambda x: np.nan_to_num(x).clip(-1, 1).sum(axis=0), ("monotone",)),
    ],
    ids=["right", "twice", "both ways"],
)
def test_choices(score, kinds):
    choice = pc.ExponentialMechanism(1.0)

    def chosen(x):
        return pc.Ledger(None, plan=choice).select(score(x), choice, sensitivity=1.0, monotone=True)

    assert replay(chosen, X, doors=pc.Ledger).kinds == kinds


@pytest.mark.parametrize("rows", [5, 20])
def test_batches_without_replacement(rows):
    step = pc.FixedSizeSampled(PLAIN, 4, rows)

    def total(x, bound=1.0):
        ledger = pc.Ledger(None, plan=step * 3)
        found = []
        for _ in range(3):
            batch = ledger.fixed_size_batch(step, records=len(x))
            found.append(
                ledger.gaussian(clipped(x[batch.indices], bound).sum(axis=0), step, clip_norm=1.0, batch=batch)
            )
        return found

    assert replay(total, X[:rows], doors=pc.Ledger).findings == ()
    assert replay(lambda x: total(x, 2.0), X[:rows], doors=pc.Ledger).kinds == ("sensitivity",)


def test_noise_without_a_ledger():
    def total(x, bound=1.0):
        return noise.gaussian(clipped(x, bound).sum(axis=0), 1.0, clip_norm=1.0)

    assert replay(total, X, doors=[noise]).kinds == ()
    assert replay(lambda x: total(x, 1.1), X, doors=noise).kinds == ("sensitivity",)
    assert replay(lambda x: total(x) * (1 if len(x) % 2 else 2), X, doors=noise).kinds == ("output",)


def test_coins_of_ones_own_are_followed_and_a_shuffle_is_found():
    """The record that is added is the last, so that coins of all others are the same; a permutation is another one."""

    def total(x, shuffle):
        found = []
        for _ in range(3):
            drawn = np.random.permutation(len(x))[:8] if shuffle else np.flatnonzero(np.random.random(len(x)) < 0.5)
            found.append(noise.gaussian(clipped(x[drawn]).sum(axis=0), 1.0, clip_norm=1.0))
        return found

    assert replay(lambda x: total(x, False), X, doors=noise).kinds == ()
    assert "sensitivity" in replay(lambda x: total(x, True), X, doors=noise).kinds


def test_a_search_finds_what_large_records_do_not():
    """A contribution that is longest in the middle."""

    def total(x):
        size = np.linalg.norm(np.nan_to_num(x).clip(-1e9, 1e9), axis=1)
        factor = 1.2 * np.exp(-((size - 3) ** 2) / 8)
        return noise.gaussian(np.array([factor.sum()]), 1.0, clip_norm=1.0)

    small = X / 10
    assert replay(total, small, doors=noise).kinds == ()
    assert replay(total, small, doors=noise, search=300).kinds == ("sensitivity",)


def test_records_of_ones_own_are_tried():
    def total(x):
        return noise.gaussian(np.where(x[:, 0] == 0.123, 5.0, 0.5).sum(), 1.0, clip_norm=1.0)

    assert replay(total, X, doors=noise).kinds == ()
    assert replay(total, X, doors=noise, records=[np.array([0.123, 0, 0])]).kinds == ("sensitivity",)


SAMPLERS = [
    STEP,
    PLAIN,
    pc.FixedSizeSampled(PLAIN, BATCH, RECORDS - 1),
    pc.WithReplacementSampled(PLAIN, BATCH, RECORDS - 1),
    pc.TruncatedPoissonSampled(PLAIN, 0.5, BATCH, 2 * RECORDS),
    pc.RandomAllocation(PLAIN, 2, epochs=2),
    pc.UserSampled(PLAIN, 0.5, 2),
]


@pytest.mark.parametrize("step", SAMPLERS, ids=lambda step: type(step).__name__)
def test_batches_of_every_sampler_are_replayed(step):
    """The batches of ``Ledger.batch`` came from the system's bits in every run, so that nothing could be replayed."""

    def sums(x, bound):
        ledger = pc.Ledger(None, plan=step * STEPS)
        whose = np.arange(len(x)) // 2 if isinstance(step, pc.UserSampled) else None
        sizes = {"persons": whose} if whose is not None else {"records": len(x)}
        for _ in range(STEPS):
            batch = ledger.batch(step, **sizes)
            yield ledger.gaussian(clipped(x[batch.indices], bound).sum(axis=0), step, clip_norm=1.0, batch=batch)

    assert replay(lambda x: list(sums(x, 1.0)), X, doors=pc.Ledger).findings == ()
    assert "sensitivity" in replay(lambda x: list(sums(x, 1.5)), X, doors=pc.Ledger).kinds


def test_integer_vectors_move_by_their_norm():
    """The L1 norm was measured, also of vectors whose L2 norm is bounded: four coordinates by 1 are 2, not 4."""
    step = pc.DiscreteGaussian(2.0, 2.0, norm=2)

    def count(x, reach=1):
        return pc.Ledger(None, plan=step).gaussian(reach * len(x) * np.ones(4, dtype=int), step, clip_norm=2.0)

    assert replay(count, X, doors=pc.Ledger).findings == ()
    assert replay(functools.partial(count, reach=2), X, doors=pc.Ledger).kinds == ("sensitivity",)


def test_nothing_is_left_behind():
    doors = {name: getattr(pc.Ledger, name) for name in ("gaussian", "laplace", "select", "poisson_batch")}
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), np.random.default_rng
    with pytest.raises(ZeroDivisionError):
        replay(lambda x: 1 / 0, X, doors=pc.Ledger)
    replay(training(), (X, Y), doors=pc.Ledger)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), np.random.default_rng)
    assert doors == {name: getattr(pc.Ledger, name) for name in doors}


def test_what_another_thread_draws_meanwhile_is_its_own():
    drawn = []

    def elsewhere():
        with pc.Ledger(None, plan=pc.Gaussian(1.0)) as ledger:
            drawn.append(float(ledger.gaussian(0.0, pc.Gaussian(1.0), clip_norm=1.0)))

    def process(x):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(elsewhere).result()
        return noise.gaussian(clipped(x).sum(axis=0), 1.0, clip_norm=1.0)

    assert replay(process, X, doors=(pc.Ledger, noise)).releases == 1
    assert len(set(drawn)) == len(drawn) > 9


OLD = np.random.default_rng(3)


@pytest.mark.parametrize("draw", [OLD.random, lambda: random.SystemRandom().random()], ids=["older", "system"])
def test_what_cannot_be_repeated_is_refused(draw):
    def total(x):
        return noise.gaussian(clipped(x).sum(axis=0), 1.0, clip_norm=1.0) + draw()

    with pytest.raises(pc.PrivcalcError, match="must do the same twice"):
        replay(total, X, doors=noise)


@pytest.mark.parametrize("make", ["new", random, np.random], ids=["new", "python", "global"])
def test_generators_that_are_made_in_the_process_are_replayed(make):
    def total(x):
        generator = np.random.default_rng() if make == "new" else make
        return noise.gaussian(clipped(x).sum(axis=0), 1.0, clip_norm=1.0) + generator.random()

    assert replay(total, X, doors=noise).kinds == ()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("process", {"process": 3}),
        ("process", {"process": lambda x: 0}),
        ("data", {"data": 3.0}),
        ("data", {"data": (X, Y[:3])}),
        ("data", {"data": X[:1]}),
        ("data", {"data": []}),
        ("doors", {"doors": None}),
        ("doors", {"doors": []}),
        ("doors", {"doors": np}),
        ("relation", {"relation": "replace-one"}),
        ("relation", {"relation": pc.ZERO_OUT}),
        ("search", {"search": -1}),
        ("search", {"search": 1.5}),
        ("seed", {"seed": "0"}),
        ("finite", {"finite": 1}),
        ("additive", {"additive": None}),
        ("records", {"records": 3}),
        ("records", {"records": [X[0]]}),
        ("records", {"records": [(X[0], Y[0], 3)]}),
        ("records", {"records": [(X[0][:2], Y[0])]}),
        ("records", {"records": [("x", Y[0])]}),
    ],
)
def test_bad_input(name, change):
    given = {"process": training(), "data": (X, Y), "doors": pc.Ledger} | change
    with pytest.raises(pc.PrivcalcError, match=name):
        replay(given.pop("process"), given.pop("data"), **given)


def test_returned_values_are_compared_bit_for_bit():
    one = {"a": [1.0, np.array([1.0, np.nan])], "b": (3, "x"), "c": None}
    assert difference(one, {"a": [1.0, np.array([1.0, np.nan])], "b": (3, "x"), "c": None}) is None
    for where, other in {
        "['a'][1]": {"a": [1.0, np.array([1.0 + 1e-16 * 3, np.nan])], "b": (3, "x"), "c": None},
        "['a'][0]": {"a": [np.nextafter(1.0, 2), np.array([1.0, np.nan])], "b": (3, "x"), "c": None},
        "['b']": {"a": [1.0, np.array([1.0, np.nan])], "b": (3,), "c": None},
        "['c']": {"a": [1.0, np.array([1.0, np.nan])], "b": (3, "x"), "c": 0},
        "value": {"a": 1.0},
    }.items():
        found = difference(one, other)
        assert found is not None
        assert where in found[0]
    assert difference(np.zeros(2), np.zeros(3))[1] == "has shape (2,) of float64, or (3,) of float64"
    assert difference(np.zeros(2), np.zeros(2, np.float32)) is not None
    assert difference(types.SimpleNamespace(a=np.zeros(2)), types.SimpleNamespace(a=np.zeros(2))) is None
    assert "['a']" in difference(types.SimpleNamespace(a=np.zeros(2)), types.SimpleNamespace(a=np.ones(2)))[0]
    ring, other = [1.0], [1.0]
    ring.append(ring)
    other.append(other)
    assert difference(ring, other) is None
    assert difference(np.array(["a"]), np.array(["b"])) is not None


class Slotted:
    __slots__ = ("mean",)

    def __init__(self, mean):
        self.mean = mean

    def predict(self, x):
        return x - self.mean


def private_mean(x):
    return float(np.nan_to_num(x).sum())


def closing_over(mean):
    return lambda z: z - mean


def with_default(mean):
    return lambda z, mean=mean: z - mean


RETURNED = {
    "method of C": lambda x: [private_mean(x)].index,
    "function": lambda x: closing_over(private_mean(x)),
    "default": lambda x: with_default(private_mean(x)),
    "partial": lambda x: functools.partial(np.add, private_mean(x)),
    "method": lambda x: Slotted(private_mean(x)).predict,
    "slots": lambda x: Slotted(private_mean(x)),
    "file": lambda x: io.BytesIO(np.float64(private_mean(x)).tobytes()),
    "text file": lambda x: io.StringIO(str(len(x))),
    "exception": lambda x: ValueError(len(x)),
    "iterator": lambda x: iter([len(x)]),
    "table": lambda x: pytest.importorskip("pandas").DataFrame({"mean": [private_mean(x)]}),
    "names": lambda x: pytest.importorskip("pandas").Series([1.0], index=[len(x)]),
    "masked": lambda x: np.ma.masked_array([1.0, 2.0], [False, len(x) % 2 == 0]),
    "sign of 0": lambda x: np.array([0.0, np.nan, 0.0 if len(x) % 2 else -0.0]),
}


@pytest.mark.parametrize("kind", RETURNED)
def test_whatever_is_returned_is_looked_into(kind):
    """A function, a method, a file in memory had no fields of their own, and were taken to be the same."""
    made, ones = RETURNED[kind], np.ones((4, 3))
    assert difference(made(ones), made(ones)) is None
    assert difference(made(ones), made(np.ones((5, 3)))) is not None


def test_a_function_that_is_returned_may_not_know_of_records():
    def process(x, leak=True):
        noisy = pc.Ledger(None, plan=PLAIN).gaussian(clipped(x).sum(axis=0), PLAIN, clip_norm=1.0)
        mean = private_mean(x) if leak else 0.0
        return lambda z: z @ noisy - mean

    assert replay(process, X[:5], doors=pc.Ledger).kinds == ("output",)
    assert replay(lambda x: process(x, leak=False), X[:5], doors=pc.Ledger).kinds == ()


def test_rings_of_objects_are_compared_once():
    """Twenty fields that all lead back: 20⁵⁰ ways."""

    class Node:
        def __init__(self, value):
            self.value = value
            for i in range(20):
                setattr(self, f"back{i}", types.SimpleNamespace(of=self))

    assert difference(Node(1), Node(1)) is None
    assert difference(Node(1), Node(2)) is not None


ROWS = np.random.default_rng(4).normal(size=(9, 3))


@pytest.mark.parametrize(("bound", "kinds"), [(1.0, ()), (2.0, ("sensitivity",))])
def test_the_first_releases_alone(bound, kinds):
    """What comes after them is neither run nor looked at, also where the process takes what it can for a failure."""
    step, began = pc.Gaussian(2.0), []

    def process(x):
        ledger = pc.Ledger(None, plan=step * 3)
        try:
            for turn in range(3):
                began.append(turn)
                ledger.gaussian(clipped(x, bound).sum(axis=0), step, clip_norm=1.0)
        except Exception:
            return len(x)
        return len(x)

    whole = replay(process, ROWS, doors=pc.Ledger, finite=True)
    assert whole.releases == 3
    assert not replay(process, ROWS, doors=pc.Ledger, finite=True, releases=4).stopped
    assert "was not looked at" not in str(whole)
    assert "output" in whole.kinds
    assert set(began) == {0, 1, 2}
    for most in (1, 2):
        began.clear()
        report = replay(process, ROWS, doors=pc.Ledger, finite=True, releases=most)
        assert (report.kinds, report.releases) == (kinds, most)
        assert set(began) == set(range(most))
        certificate = pc.certify(step * 3, delta=1e-5).replayed(report)
        check(certificate.document)
        for text in (str(report), str(certificate)):
            assert "each run was ended after these releases: what came later, and what is returned, was not" in text
    for wrong in (0, -1, 1.5, "1", True):
        with pytest.raises(pc.PrivcalcError, match=r"^releases"):
            replay(process, ROWS, doors=pc.Ledger, releases=wrong)
