"""What ledgers and certificates say of how noise was drawn, and what is refused because it does not fit."""

import json

import numpy as np
import pytest

import privcalc as pc
from privcalc.certificate.consistency import check
from privcalc.certificate.html import sheet
from privcalc.certificate.schema import digest
from privcalc.certificate.story import of_given
from privcalc.log.lines import chained
from privcalc.strategies import FixedOrder, Toeplitz

STEP, LAPLACE, CHOICE = (
    pc.Gaussian(noise_multiplier=20.0),
    pc.Laplace(50.0),
    pc.ExponentialMechanism(0.1, monotone=False),
)
SAMPLED = pc.PoissonSampled(STEP, 0.5)
DISCRETE = pc.DiscreteGaussian(20.0)
PLAN = (STEP + LAPLACE + CHOICE + SAMPLED + DISCRETE) * 4


def ledger_of(*draws, path=None, plan=PLAN):
    ledger = pc.Ledger(path, plan=plan, public={"records": 3})
    for draw in draws:
        draw(ledger)
    return ledger


def gaussian(error):
    return lambda ledger: ledger.gaussian([0.0, 1.0], STEP, clip_norm=1.0, error=error)


def sampled(error):
    return lambda ledger: ledger.gaussian(0.0, SAMPLED, clip_norm=1.0, error=error, batch=ledger.poisson_batch(SAMPLED))


def laplace(ledger):
    ledger.laplace(0.0, LAPLACE, clip_norm=1.0)


def choice(ledger):
    ledger.select([0.0, 1.0], CHOICE, sensitivity=1.0)


def discrete(ledger):
    ledger.gaussian(0, DISCRETE, clip_norm=1)


def record(ledger):
    ledger.record(STEP)


@pytest.mark.parametrize("run", [CHOICE, STEP, STEP + CHOICE, pc.RandomizedResponse(1.0)])
def test_what_other_code_drew_is_said_of_every_kind(run):
    """Of a described choice the line spoke of floating-point noise and of torch's generator."""
    (line,) = [line for line in str(pc.certify(run, delta=1e-5)).splitlines() if "assumed         noise:" in line]
    assert "by other code: whatever is random is drawn as described" in line
    assert "torch" not in line
    assert "floating-point noise" not in line


def story(source):
    """What a certificate says besides numbers, which take longer."""
    found = of_given(
        [line.decode() for line in source.journal.memory] if isinstance(source, pc.Ledger) else str(source)
    )
    return found["noise"], next((e["value"] for e in found["assumptions"]["needed"] if e["name"] == "rounding"), None)


@pytest.mark.parametrize(
    ("draws", "noise", "rounding"),
    [
        ([], "none was drawn", None),
        ([gaussian(None)], "exact", "not counted"),
        ([gaussian(0.0)], "exact", "bounded"),
        ([gaussian(1e-9), sampled(0.0)], "exact", "bounded"),
        ([gaussian(1e-9), gaussian(None)], "exact", "not counted"),
        ([gaussian(0.0), sampled(1e-9)], "exact", "not counted"),
        ([sampled(0.0), sampled(1e-9)], "exact", "not counted"),
        ([gaussian(0.0), laplace], "exact", "not counted"),
        ([gaussian(0.0), choice], "exact", "not counted"),
        ([gaussian(0.0), discrete], "exact", "not counted"),
        ([gaussian(None), record], "in part by other code", "not counted"),
        ([gaussian(0.0), record], "in part by other code", "not counted"),
        ([record], "by other code", "not counted"),
    ],
)
def test_what_is_said_follows_from_what_was_drawn(draws, noise, rounding):
    ledger = ledger_of(*draws)
    ledger.close()
    assert story(ledger) == (noise, rounding)


def test_a_run_whose_noise_other_code_drew_says_so_in_every_form():
    """The report said "noise exact" of a ledger that drew nothing."""
    pytest.importorskip("matplotlib")
    from privcalc.certificate.html import page

    ledger = ledger_of(record, plan=STEP)
    ledger.close()
    certificate = pc.certify(ledger, delta=1e-5)
    assert "noise           by other code" in str(certificate)
    assert "<td>noise: by other code" in page(certificate)
    for text in (str(certificate), page(certificate), sheet(certificate.document)):
        assert "by other code" in text
        assert "exact" not in text


def test_an_open_ledger_may_still_draw_sums_of_which_nothing_is_known():
    ledger = ledger_of(gaussian(0.0), plan=STEP * 2)
    assert story(ledger) == ("exact", "not counted")
    ledger.close()
    assert story(ledger) == ("exact", "bounded")
    document = dict(pc.certify(ledger, delta=1e-5).document) | {"status": "open"}
    with pytest.raises(pc.PrivcalcError, match="assumptions"):
        check(document | {"hash": digest(document)})


def test_a_described_run_was_drawn_by_other_code():
    document = pc.certify(STEP * 3, delta=1e-5).document
    check(document)
    assert document["noise"] == "by other code"


def test_a_composition_says_the_least():
    ledger = ledger_of(gaussian(0.0), plan=STEP)
    ledger.close()
    exact = pc.certify(ledger, delta=1e-5)
    said = pc.certify(STEP, delta=1e-5)
    both = pc.certify([exact, said], delta=1e-5).document
    check(both)
    listed = {entry["name"]: (entry["value"], entry["by"]) for entry in both["assumptions"]["needed"]}
    assert both["noise"] == "in part by other code"
    assert (listed["noise"], listed["rounding"]) == (("by other code", "caller"), ("not counted", "always"))
    assert "noise (part 2): by other code" in str(pc.Certificate(both))
    assert pc.certify([exact, exact], delta=1e-5).document["noise"] == "exact"


@pytest.mark.parametrize("noise", ["exact, sums bounded", "by other code", "real-valued", "perfect", None])
def test_changed_certificates(noise):
    document = dict(pc.certify(ledger_of(gaussian(None), plan=STEP), delta=1e-5).document) | {"noise": noise}
    with pytest.raises(pc.PrivcalcError, match="noise"):
        check(document | {"hash": digest(document)})


def test_a_described_run_cannot_say_that_it_was_drawn_exactly():
    exact = pc.certify(ledger_of(gaussian(None), plan=STEP), delta=1e-5).document
    described = pc.certify(STEP, delta=1e-5).document
    for change in ({"noise": "exact"}, {"releases": exact["releases"]}, {"assumptions": exact["assumptions"]}):
        document = {**described, **change}
        with pytest.raises(pc.PrivcalcError, match=r"none has drawn|noise|assumptions|proofs"):
            check(document | {"hash": digest(document)})


# --- ledgers --------------------------------------------------------------------------------------


def rewritten(path, change):
    """The ledger with changed entries, and hashes that fit."""
    number, previous, text = 0, "0" * 64, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = change(json.loads(line)["entry"])
        if entry is not None:
            number += 1
            previous, added = chained(previous, number, entry)
            text += added
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "run.jsonl"
    ledger_of(gaussian(0.01), laplace, path=found).close()
    return found


def test_draws_are_written_once_for_each_kind_of_sum(tmp_path):
    ledger = ledger_of(gaussian(None), gaussian(None), gaussian(0.5), laplace, path=tmp_path / "a.jsonl")
    lines = [json.loads(line)["entry"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    found = [entry for entry in lines if entry["type"] == "draw"]
    assert [(entry["mechanism"]["kind"], entry["coordinates"], entry["error"]) for entry in found] == [
        *(("Gaussian", 2, None), ("Gaussian", 2, 0.5), ("Laplace", 1, None))
    ]
    assert found[1]["scale"] == pytest.approx(40.0, rel=1e-9)
    ledger.journal.close()
    size = (tmp_path / "a.jsonl").stat().st_size
    again = ledger_of(laplace, path=tmp_path / "a.jsonl")
    again.journal.close()
    assert (tmp_path / "a.jsonl").read_bytes()[size:].count(b'"draw"') == 0


@pytest.mark.parametrize(
    "change",
    [
        {"scale": 20.0},
        {"scale": np.nextafter(20.4, 0)},
        {"exponent": 0},
        {"coordinates": 10**12},
        {"error": 1.0},
        {"clip_norm": 2.0},
        {"clip_norm": 0.0},
        {"coordinates": -1},
        {"exponent": 10**9},
        {"exponent": -(10**9)},
        {"error": -1.0},
        {"mechanism": {"kind": "ExponentialMechanism", "epsilon": 0.1, "monotone": False}},
    ],
)
def test_a_draw_with_less_noise_than_it_needs_is_refused(path, change):
    story(path)
    rewritten(path, lambda entry: entry | change if entry["type"] == "draw" and entry["error"] is not None else entry)
    with pytest.raises(pc.PrivcalcError):
        story(path)


def test_ledgers_that_do_not_say_so_drew_in_floating_point(path):
    """Those of privcalc 0.1.0, and of version 3: a charge did not say its provenance either."""

    def before(entry):
        if entry["type"] == "draw":
            return None
        kept = {name: value for name, value in entry.items() if name not in ("noise", "provenance")}
        return kept | ({"version": 3} if entry["type"] == "open" else {})

    rewritten(path, before)
    assert story(path)[0] == "floating point"
    rewritten(path, lambda entry: None if entry["type"] == "close" else entry)
    ledger_of(gaussian(0.0), path=path).close()  # gone on with: what was drawn before is as it was
    assert story(path)[0] == "floating point"
    releases = of_given(str(path))["releases"]
    assert {(each["mechanism"]["kind"], each["provenance"]["noise"]) for each in releases} == {
        ("Gaussian", "exact"),
        ("Gaussian", "floating point"),
        ("Laplace", "floating point"),
    }


def test_what_a_ledger_says_is_among_what_can_be_said(path):
    rewritten(path, lambda entry: entry | {"noise": "perfect"} if entry["type"] == "open" else entry)
    with pytest.raises(pc.PrivcalcError, match="noise"):
        story(path)


def turn(stream):
    """The sum of those whose turn it is."""
    return stream.release(np.zeros(1) * stream.indices.size)


# --- nothing that a ledger draws is taken as real-valued --------------------------------------------

STREAM = pc.CorrelatedGaussian(2.0, Toeplitz([1.0, 0.5], steps=2), FixedOrder(epoch=2))
FIXED, FLIP, WINNER, KEYS, GATE = (
    pc.FixedSizeSampled(STEP, 2, 3),
    pc.PermuteAndFlip(0.1, monotone=False),
    pc.NoisyMax(0.1, noise="laplace", monotone=False),
    pc.ThresholdedCounts(noise="gaussian", scale=20.0, threshold=200.0),
    pc.AboveThreshold(threshold_scale=40.0, query_scale=80.0),
)
TABLE = {"person": ["a", "b", "b"], "shop": ["N", "N", "S"], "spent": [1.0, 2.0, 3.0]}
BY = {"rows_per_person": 2, "person": "person"}
CALLS = {
    "gaussian": (STEP, gaussian(None)),
    "discrete": (DISCRETE, discrete),
    "poisson": (SAMPLED, sampled(None)),
    "fixed": (FIXED, lambda x: x.gaussian(0.0, FIXED, clip_norm=1.0, batch=x.fixed_size_batch(FIXED))),
    "laplace": (LAPLACE, laplace),
    "choice": (CHOICE, choice),
    "top k": (
        pc.TopK(0.1, k=2),
        lambda x: x.select([0.0, 1.0, 2.0], pc.TopK(0.1, k=2), sensitivity=1.0, monotone=True),
    ),
    "permute and flip": (FLIP, lambda x: x.select([0.0, 1.0], FLIP, sensitivity=1.0)),
    "noisy max": (WINNER, lambda x: x.select([0.0, 1.0], WINNER, sensitivity=1.0)),
    "stream": (STREAM, lambda x: turn(x.correlated(STREAM, coordinates=1, clip_norm=1.0, error=0.0, records=3))),
    "thresholded counts": (KEYS, lambda x: x.thresholded({"a": 2}, KEYS)),
    "gate": (GATE, lambda x: x.above(GATE, sensitivity=1.0).ask(0.0, threshold=1.0)),
    "count": (LAPLACE, lambda x: x.count(TABLE, LAPLACE, **BY)),
    "sum": (STEP, lambda x: x.sum(TABLE, STEP, column="spent", lower=0.0, upper=4.0, **BY)),
    "quantile": (CHOICE, lambda x: x.quantile(TABLE, CHOICE, column="spent", share=0.5, candidates=range(5), **BY)),
}


@pytest.mark.parametrize("name", CALLS)
def test_all_that_a_ledger_draws_is_exact(name):
    mechanism, call = CALLS[name]
    ledger = ledger_of(call, plan=mechanism * 1)
    ledger.close()
    assert story(ledger)[0] == "exact"
    assert ledger.spent.entries
