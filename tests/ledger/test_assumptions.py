"""Assumptions as typed fields: what contradicts a proof is refused, and a certificate says who vouches for the rest."""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
from pathlib import Path

import numpy as np
import pytest

import privcalc as pc
from privcalc.certificate import earlier
from privcalc.certificate.consistency import check, log_of
from privcalc.certificate.schema import digest, pages
from privcalc.certificate.story import of_given
from privcalc.ledger.assumptions import PAGES, STATED, VOID, Provenance, asked_by, asking
from privcalc.log.lines import START, chained
from privcalc.serial import run_to_json
from proofs.check import ROOT

STEP = pc.Gaussian(20.0)
POISSON = pc.PoissonSampled(pc.Gaussian(2.0), 0.1)
FIXED = pc.FixedSizeSampled(pc.Gaussian(2.0), 1, 10)
CUT = pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.1, 5, 20)
REDRAWN = pc.WithReplacementSampled(pc.Gaussian(2.0), 5, 20)
TURNS = pc.CorrelatedGaussian(2.0, pc.strategies.Toeplitz([1.0, 0.5], 20), pc.strategies.MinSeparation(5))
WORD = "output-independent"
NOT_SAID = {
    "start": ("public", "nobody"),
    "preprocessing": ("none", "nobody"),
    "copies": ("none", "nobody"),
    "other_releases": ("none", "nobody"),
}
ALWAYS = {"randomness": ("perfect", "always"), "process": ("as recorded", "always")}


def needed(certificate):
    return {entry["name"]: (entry["value"], entry["by"]) for entry in certificate.document["assumptions"]["needed"]}


def rehashed(document, **fields):
    """With other fields, as somebody would write it who can hash."""
    changed = {**document, **fields}
    return {**changed, "hash": digest(changed)}


def relisted(document, **fields):
    """With other assumptions."""
    return rehashed(document, assumptions={**document["assumptions"], **fields})


def made(plan=None, cap=None, stopping=None, use=STEP, **said):
    with pc.Ledger(None, plan=plan, cap=cap, public={"records": 10}, assumptions=pc.Assumptions(**said)) as ledger:
        ledger.record(use)
        ledger.close(stopping)
    return pc.certify(ledger, delta=1e-5)


@pytest.mark.parametrize("name", [name for name in PAGES if name not in VOID])
def test_nothing_comes_from_private_records(name):
    with pytest.raises(pc.PrivcalcError, match=f"{name} = 'private'"):
        pc.Assumptions(**{name: "private"})
    with pytest.raises(pc.PrivcalcError, match=f"{name} = 3: must be one of"):
        pc.Assumptions(**{name: 3})


def test_a_gate_scales_its_noise():
    """A certificate of questions alone said nothing of where their sensitivity comes from."""
    assert needed(pc.certify(pc.AboveThreshold.of(epsilon=1.0), delta=1e-5))["questions"] == ("public", "nobody")


@pytest.mark.usefixtures("unnumbered")
def test_what_a_ledger_cannot_see_of_keys_and_trials():
    keys = pc.ThresholdedCounts(noise="laplace", scale=2.0, threshold=50.0)
    trials = pc.RandomTrials(STEP, mean=3.0, distribution="geometric")
    assert needed(pc.certify(keys, delta=1e-5))["keys"] == ("kept", "nobody")
    found = pc.certify(trials, delta=1e-5)
    assert needed(found)["trials"] == ("drawn", "nobody")
    assert "distribution='geometric'" in str(found)
    assert "the score is of a trial's own private output" in str(found)
    for run, name, value in ((keys, "keys", "kept"), (trials, "trials", "drawn")):
        said = pc.certify(run, delta=1e-5, assumptions=pc.Assumptions(**{name: value}))
        assert needed(said)[name] == (value, "caller")


def test_what_a_ledger_cannot_see_of_labels():
    with pc.Ledger(None, plan=STEP * 2) as ledger:
        for group in ("N", "S"):
            ledger.count([1.0, 2.0], STEP, rows_per_person=1, label=group)
    found = pc.certify(ledger, delta=1e-5)
    assert needed(found)["labels"] == ("public", "nobody")
    assert "labels: NOT SAID, taken to be public: none was read from private records" in str(found)
    assert found.verify(ledger)
    assert not {"labels", "keys", "trials"} & set(needed(made(plan=STEP)))
    with pytest.raises(pc.PrivcalcError, match="labels = 'private'"):
        pc.Assumptions(labels="private")


def test_every_field_has_a_page_and_a_row():
    text = (ROOT / "proofs" / "assumptions.md").read_text(encoding="utf-8")
    for name, page in PAGES.items():
        assert f"| `{name}`" in text
        assert (ROOT / "proofs" / page).is_file()


def test_an_adaptive_number_of_steps():
    adaptive = pc.Assumptions(steps="released")
    with pytest.raises(pc.PrivcalcError, match=r"steps = 'released': proofs/ledger\.md"):
        pc.certify(STEP * 206, delta=1e-5, assumptions=adaptive)
    # a plan is certified whole, a cap holds for whatever happened
    assert needed(made(plan=STEP * 206, steps="released"))["steps"] == ("released", "caller")
    assert needed(made(cap=pc.GDP(1.0), steps="released"))["steps"] == ("released", "caller")
    assert pc.certify(pc.GDP(1.0), delta=1e-5, assumptions=adaptive).guarantee.epsilon > 4
    # but what was recorded is not, and the word that it may be contradicts what was declared before
    ledger = pc.Ledger(None, plan=STEP * 206, assumptions=adaptive)
    ledger.record(STEP)
    with pytest.raises(pc.PrivcalcError, match="contradicts"):
        ledger.close(WORD)
    ledger.close()
    assert pc.certify(ledger, delta=1e-5).run == STEP * 206
    with pytest.raises(pc.PrivcalcError, match="contradicts"):
        made(plan=STEP * 206, stopping=WORD, steps="released")


def test_parameters_that_depend_on_outputs_need_a_cap():
    for source in (STEP, pc.GDP(1.0) * 2, pc.GDP(1.0) + pc.GDP(2.0)):
        with pytest.raises(pc.PrivcalcError, match=r"parameters = 'released': proofs/ledger\.md"):
            pc.certify(source, delta=1e-5, assumptions=pc.Assumptions(parameters="released"))
    with pytest.raises(pc.PrivcalcError, match="needs a cap"):
        pc.Ledger(None, plan=STEP, assumptions=pc.Assumptions(parameters="released"))
    assert needed(made(cap=pc.GDP(1.0), parameters="released"))["parameters"] == ("released", "caller")


@pytest.mark.parametrize(
    ("mechanism", "said", "right"),
    [(POISSON, "shuffled", False), (POISSON, "without replacement", False), (POISSON, "poisson", True),
     (FIXED, "poisson", False),
     (FIXED, "without replacement", True), (pc.ShuffledEpoch(STEP), "shuffled", True),
     (pc.ShuffledEpoch(STEP), "poisson", False),
     (pc.UserSampled(STEP, 0.1, 3), "poisson", True), (pc.UserSampled(STEP, 0.1, 3), "shuffled", False),
     (TURNS, "in turns", True), (TURNS, "poisson", False), (POISSON, "in turns", False),
     (pc.RandomAllocation(STEP, 30), "balls in bins", True), (pc.RandomAllocation(STEP, 30), "shuffled", False),
     (STEP, "poisson", False), (pc.Parallel([POISSON, pc.Laplace(1.0)]), "poisson", True),
     (CUT, "poisson, cut", True), (CUT, "poisson", False), (POISSON, "poisson, cut", False),
     (REDRAWN, "with replacement", True), (REDRAWN, "without replacement", False), (FIXED, "with replacement", False),
     (pc.RandomTrials(FIXED * 2, mean=2.0, distribution="poisson"), "poisson", False)],
)  # fmt: skip
def test_batches_are_drawn_as_the_mechanism_says(mechanism, said, right):
    assumptions, relation = pc.Assumptions(sampling=said, parts="disjoint"), pc.ADD_OR_REMOVE_ONE
    if isinstance(mechanism, pc.ShuffledEpoch):
        relation = pc.ZERO_OUT
    if right:
        found = pc.certify(mechanism, delta=1e-5, relation=relation, assumptions=assumptions)
        assert needed(found)["sampling"] == (said, "caller")
    else:
        with pytest.raises(pc.PrivcalcError, match=f"sampling = '{said}'"):
            pc.certify(mechanism, delta=1e-5, relation=relation, assumptions=assumptions)
        with pytest.raises(pc.PrivcalcError, match=f"sampling = '{said}'"):
            pc.Ledger(None, plan=mechanism, relation=relation, assumptions=assumptions)


def test_a_cap_learns_of_the_scheme_when_it_is_charged():
    ledger = pc.Ledger(None, cap=pc.ZCDP(1.0), assumptions=pc.Assumptions(sampling="poisson"))
    with pytest.raises(pc.PrivcalcError, match="sampling"):
        ledger.record(FIXED)
    ledger.record(POISSON)
    ledger.close()
    assert needed(pc.certify(ledger, delta=1e-5))["sampling"] == ("poisson", "caller")


def test_who_vouches():
    with pc.Ledger(
        None, plan=POISSON, public={"records": 10}, assumptions=pc.Assumptions(normaliser="public")
    ) as ledger:
        ledger.gaussian(0.0, POISSON, clip_norm=1.0, batch=ledger.poisson_batch(POISSON))
    found = pc.certify(ledger, delta=1e-5)
    assert needed(found) == {
        "steps": ("released", "nobody"),
        "parameters": ("public", "nobody"),
        "sensitivity": ("stated", "caller"),
        "normaliser": ("public", "caller"),
        "clip_norm": ("public", "nobody"),
        "sampling": ("poisson", "ledger"),
        **NOT_SAID,
        "records_per_unit": ("by definition", "always"),
        "noise": ("exact", "ledger"),
        "rounding": ("not counted", "always"),
        **ALWAYS,
    }
    assert "seen to         sampling: poisson (seen to by the ledger; poisson.md)" in str(found)
    lines = str(found).splitlines()
    assert any(
        "which no ledger sees, is of a record of the batch that was drawn, and of that record alone: nothing was fitted"
        in line
        for line in lines
    )
    assert (
        "assumed         clip_norm: NOT SAID, taken to be public: "
        "chosen without looking at private records (gaussian.md)" in lines
    )
    (line,) = (line for line in lines if line.startswith("assumed         parameters: NOT SAID, taken to be public: "))
    assert "learning rates were chosen without looking at private records" in line
    assert found.verify(ledger)
    # what other code drew, it drew by the caller's word, or by nobody's
    with pc.Ledger(None, plan=POISSON) as other:
        other.record(POISSON)
    assert needed(pc.certify(other, delta=1e-5))["sampling"] == ("poisson", "nobody")
    assert needed(made(plan=STEP, stopping=WORD))["steps"] == ("public", "caller")
    choice = pc.certify(pc.TopK(1.0, k=2), delta=0.0, assumptions=pc.Assumptions(candidates="public"))
    assert needed(choice)["candidates"] == ("public", "caller")
    assert "normaliser" not in needed(choice)


def test_compositions_list_those_of_their_parts():
    one, two = made(plan=STEP, normaliser="public"), pc.certify(pc.TopK(1.0, k=2), delta=1e-5)
    both = pc.certify([one, two, one], delta=1e-5)
    entries = both.document["assumptions"]["needed"]
    assert [e for e in entries if e["name"] == "normaliser"] == [
        {"name": "normaliser", "value": "public", "by": "caller", "page": "assumptions.md", "parts": [1, 3]}
    ]
    assert needed(both)["steps"] == ("public", "nobody")  # of two provenances the weaker one is listed
    assert "candidates" in needed(both)
    check(both.document)


def test_a_described_run(tmp_path):
    path = tmp_path / "run.json"
    described = {
        "format": "privcalc run", "version": 1, "relation": "zero-out", "unit": "one person",
        "run": [{"mechanism": {"kind": "Gaussian", "noise_multiplier": 4}, "count": 3}],
        "assumptions": {"normaliser": "released"},
    }  # fmt: skip
    path.write_text(json.dumps(described))
    found = pc.certify(path, delta=1e-5)
    assert needed(found)["normaliser"] == ("released", "caller")
    assert found.verify(path)
    for bad in ({"normaliser": "private"}, {"steps": "released"}, {"stops": "public"}, [], "x", {"steps": None}):
        path.write_text(json.dumps(described | {"assumptions": bad}))
        if bad == {"steps": None}:
            assert needed(pc.certify(path, delta=1e-5))["steps"] == ("public", "nobody")
            continue
        with pytest.raises(pc.PrivcalcError, match=r"assumptions|normaliser|steps"):
            pc.certify(path, delta=1e-5)


def test_a_certificate_that_was_changed(tmp_path):
    """With its right hash: what is listed must be what the run needs, by the one who can vouch."""
    original = made(plan=POISSON, use=POISSON, normaliser="public").document
    entries = original["assumptions"]["needed"]
    changes = [
        {"declared": {}},
        {"declared": {"normaliser": "private"}},
        {"declared": {"parameters": "released", "normaliser": "public"}},
        {"needed": entries[1:]},
        {"needed": entries[::-1]},
        {"needed": [*entries, entries[0]]},
        {"needed": [{**entry, "by": "ledger"} for entry in entries]},
        {"needed": [{**entry, "page": "x.md"} for entry in entries]},
        {"needed": [{**entry, "value": "private"} for entry in entries]},
        {"needed": {}},
        {"needed": [{"name": "steps"}]},
        {"more": 1},
    ]
    for change in changes:
        with pytest.raises(pc.PrivcalcError, match=r"assumption|parameters|normaliser"):
            check(relisted(original, **change))
    check(original)
    composed = pc.certify([pc.Certificate(original)], delta=1e-5).document
    for change in (
        {"declared": {"steps": "public"}},
        {"needed": [{**entries[0], "by": "me"}]},
        {"needed": [{**entries[0], "name": "x"}]},
    ):
        with pytest.raises(pc.PrivcalcError, match="assumptions"):
            check(relisted(composed, **change))


def test_a_ledger_is_gone_on_with_on_the_same_assumptions(tmp_path):
    path = tmp_path / "run.jsonl"
    first = pc.Ledger(path, plan=STEP * 9, assumptions=pc.Assumptions(normaliser="public"))
    first.record(STEP)
    first.journal.close()
    with pytest.raises(pc.PrivcalcError, match=r"other terms \(assumptions\)"):
        pc.Ledger(path, plan=STEP * 9)
    again = pc.Ledger(path, plan=STEP * 9, assumptions=pc.Assumptions(normaliser="public"))
    assert again.terms.assumptions == pc.Assumptions(normaliser="public")
    again.close()
    for wrong in ({"normaliser": "public"}, "public", 3):
        with pytest.raises(pc.PrivcalcError, match="assumptions"):
            pc.Ledger(None, plan=STEP, assumptions=wrong)
        with pytest.raises(pc.PrivcalcError, match="assumptions"):
            pc.certify(STEP, delta=1e-5, assumptions=wrong)


@pytest.mark.parametrize(
    ("name", "normaliser", "clip_norm", "candidates"),
    [("NoisyGD", "public", None, None), ("AdaMix", "public", "released", None),
     ("DPPLMean", "released", "released", None),
     ("PDADPMD", "public", None, None)],
)  # fmt: skip
def test_learners_declare_what_their_code_does(name, normaliser, clip_norm, candidates):
    pytest.importorskip("torch")
    import learners

    said = getattr(learners, name).assumptions
    start = "none" if name == "DPPLMean" else None  # nothing is trained
    assert said == pc.Assumptions(normaliser=normaliser, clip_norm=clip_norm, candidates=candidates, start=start)
    assert learners.DPPLPublic.assumptions == pc.Assumptions(candidates="public", parts="disjoint")


@pytest.mark.parametrize("said", [None, "public", "released"])
@pytest.mark.parametrize("terms", [{"plan": STEP * 9}, {"cap": pc.ZCDP(1.0)}], ids=["plan", "cap"])
def test_what_decided_the_end_no_ledger_sees(said, terms):
    """A stop by a private number is an output without noise: the ledger may not say that it saw to it."""
    with pc.Ledger(None, assumptions=pc.Assumptions(steps=said), **terms) as ledger:
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    found = pc.certify(ledger, delta=1e-5)
    assert needed(found)["steps"] == (said or "released", "caller" if said else "nobody")
    assert "for whatever reason" not in str(found)
    found.verify(ledger)


def test_a_learner_s_certificate_says_so():
    pytest.importorskip("torch")
    from learners import NoisyGD

    model = NoisyGD(classes=[0, 1], delta=1e-5, noise_multiplier=5.0, steps=2, records=2).fit(
        [[1.0, 0.0], [0.0, 1.0]], [0, 1]
    )
    assert needed(model.certificate_) == {
        "steps": ("released", "code"),
        "parameters": ("public", "nobody"),
        "sensitivity": ("clipped", "code"),
        "normaliser": ("public number", "code"),
        "clip_norm": ("public", "nobody"),  # an argument
        **NOT_SAID,
        "start": ("random", "code"),
        "preprocessing": ("public", "nobody"),
        "records_per_unit": ("by definition", "always"),
        "noise": ("exact", "ledger"),
        "rounding": ("bounded", "code"),
        **ALWAYS,
    }


CHOICE = pc.ExponentialMechanism(0.5)
OLD = Path(__file__).parents[1] / "fixtures" / "version2"


def chosen(rows, drawn=True, **said):
    with pc.Ledger(None, plan=CHOICE * 3, assumptions=pc.Assumptions(**said)) as ledger:
        if drawn:
            ledger.select([[1.0, 2.0]] * rows, CHOICE, sensitivity=1.0, monotone=True)
        else:
            ledger.record(CHOICE)
    return pc.certify(ledger, delta=0.0)


def test_parts():
    assert needed(chosen(2))["parts"] == ("any, each was charged", "ledger")
    for found in (chosen(2, drawn=False), pc.certify(CHOICE, delta=0.0)):  # other code chose
        assert needed(found)["parts"] == ("as counted", "caller")
    said = pc.certify(PARALLEL, delta=1e-5, assumptions=pc.Assumptions(parts="disjoint"))
    assert needed(said)["parts"] == ("disjoint", "caller")
    line = "parts: disjoint: everything of one record or person is in one part (declared by the caller; parallel.md)"
    assert f"assumed         {line}" in str(said)
    pytest.importorskip("matplotlib")
    from privcalc.certificate.html import page

    assert f"<td>{line}</td>" in page(said)
    check(said.document)
    with pytest.raises(pc.PrivcalcError, match="parts = 'public': must be one of 'disjoint'"):
        pc.Assumptions(parts="public")


PARALLEL = pc.Parallel([pc.Gaussian(2.0), pc.Laplace(1.0)])
MISSING = r"parts = None: .* as the same customers are in two months; .*Assumptions\(parts='disjoint'\)"


def test_nobody_may_be_in_two_parts(tmp_path):
    """Twelve months of the same customers cost a twelfth as twelve parts, and nobody had to say that they are parts."""
    year = pc.Parallel([pc.Gaussian(8.0)] * 12)
    described = tmp_path / "run.json"
    for run in (
        year,
        year * 3 + STEP,
        pc.RandomTrials(year, mean=2.0, distribution="poisson"),
        pc.Parallel([year, STEP]),
    ):
        for said in (None, pc.Assumptions(steps="public")):
            with pytest.raises(pc.PrivcalcError, match=MISSING):
                pc.certify(run, delta=1e-5, assumptions=said)
            with pytest.raises(pc.PrivcalcError, match=MISSING):
                pc.Ledger(tmp_path / "new.jsonl", plan=run, assumptions=said)
        capped = pc.Ledger(None, cap=pc.RDP([2.0], [9.0]))
        with pytest.raises(pc.PrivcalcError, match=MISSING):
            capped.record(run)
        assert capped.spent == pc.Run(())
        text = {
            "format": "privcalc run",
            "version": 1,
            "relation": "add-or-remove-one",
            "unit": "x",
            "run": run_to_json(run.run),
        }
        described.write_text(json.dumps(text))
        with pytest.raises(pc.PrivcalcError, match=MISSING):
            pc.certify(described, delta=1e-5)
        described.write_text(json.dumps({**text, "assumptions": {"parts": "disjoint"}}))
        assert needed(pc.certify(described, delta=1e-5))["parts"] == ("disjoint", "caller")
    assert not (tmp_path / "new.jsonl").exists()


def test_parts_that_nobody_declared_before_are_read_still(tmp_path):
    """Certificates and ledgers that were written before the word was asked for: by nobody's word."""
    old = pc.Certificate.load(OLD.parent / "0.1.0" / "parts.cert.json")
    check(old.document)
    both = pc.certify([old, old], delta=1e-5)
    assert needed(both)["parts"] == ("disjoint", "nobody")
    line = "parts: NOT SAID, taken to be disjoint: everything of one record or person is in one part (parallel.md)"
    assert f"assumed         {line}" in str(both)
    with pc.Ledger(None, plan=PARALLEL, assumptions=pc.Assumptions(parts="disjoint")) as ledger:
        ledger.record(PARALLEL)
    entries = [json.loads(line)["entry"] for line in ledger.journal.memory]
    path = tmp_path / "run.jsonl"
    lines, last = "", START
    for number, entry in enumerate([{**entries[0], "assumptions": {}}, *entries[1:]], 1):
        last, line = chained(last, number, entry)
        lines += line
    path.write_text(lines)
    found = pc.certify(path, delta=1e-5)
    assert needed(found)["parts"] == ("disjoint", "nobody")
    assert found.verify(path)


def test_declared_parts_are_listed_and_charged_once():
    with pc.Ledger(None, plan=CHOICE, assumptions=pc.Assumptions(parts="disjoint")) as ledger:
        ledger.select([[1.0, 2.0], [2.0, 1.0]], CHOICE, sensitivity=1.0, monotone=True)
    found = pc.certify(ledger, delta=0.0)
    assert needed(found)["parts"] == ("disjoint", "caller")
    assert found.guarantee.epsilon == CHOICE.epsilon(delta=0.0)
    assert found.verify(ledger)
    entries = [{**e, "by": "ledger"} if e["name"] == "parts" else e for e in found.document["assumptions"]["needed"]]
    with pytest.raises(pc.PrivcalcError, match="assumptions"):
        check(relisted(found.document, needed=entries))


def test_other_releases_are_never_passed_over():
    for made_of, by in ((None, "nobody"), (pc.Assumptions(other_releases="none"), "caller")):
        found = pc.certify(STEP, delta=1e-5, assumptions=made_of)
        assert needed(found)["other_releases"] == ("none", by)
        both = pc.certify([found, found], delta=1e-5)
        assert needed(both)["other_releases"] == ("none", by)
        without = [entry for entry in found.document["assumptions"]["needed"] if entry["name"] != "other_releases"]
        with pytest.raises(pc.PrivcalcError, match="assumptions"):
            check(relisted(found.document, needed=without))
    said = pc.Assumptions(public_records="public", start="released", other_releases="composed")
    assert "none: what else was released about these records, a repetition of this run too, is not counted" in str(both)
    found = pc.certify(STEP, delta=1e-5, assumptions=said)
    assert "composed: there are others, and only the composition of all certificates counts" in str(found)
    assert {"public_records": ("public", "caller"), "start": ("released", "nobody")}.items() <= needed(found).items()
    assert needed(found)["other_releases"] == ("composed", "caller")


# --- what version 2 wrote; the files are of its last commit ---


def test_certificates_of_version_2():
    old = pc.Certificate.load(OLD / "ledger.json")
    assert old.document["version"] == 2
    assert old.verify()
    assert "assumed         candidates: public" in str(old)
    assert "other_releases" not in needed(old)
    assert "what version 2 does not list" in str(old)
    again = pc.certify([old, pc.certify(STEP, delta=1e-5)], delta=1e-5)
    assert needed(again)["parts"] == ("disjoint", "nobody")  # it did not say, so nobody did
    assert needed(again)["other_releases"] == ("none", "nobody")
    check(again.document)
    with pytest.raises(pc.PrivcalcError, match="assumptions"):
        check(rehashed(old.document, version=3))  # by the rules of its version
    with pytest.raises(pc.PrivcalcError, match="version 2 has"):
        check(relisted(old.document, declared={**old.document["assumptions"]["declared"], "parts": "disjoint"}))
    for version in (1, 4, 5, True, 2.0, "2", None):
        with pytest.raises(pc.PrivcalcError, match="version"):
            check(rehashed(old.document, version=version))


def test_a_ledger_of_version_2(tmp_path):
    """Its one choice was of 1,000 rows, for the price of one: nobody said that they were disjoint."""
    old = pc.Certificate.load(OLD / "ledger.json")
    assert old.verify(OLD / "ledger.jsonl")
    new = pc.certify(OLD / "ledger.jsonl", delta=1e-5)
    assert new.document["version"] == 4
    assert needed(new)["parts"] == ("disjoint", "nobody")
    path = tmp_path / "open.jsonl"
    path.write_bytes((OLD / "open.jsonl").read_bytes())
    with pc.Ledger(path, plan=CHOICE * 2000) as ledger:  # gone on with: what was charged before is still nobody's word
        ledger.select([[1.0, 2.0], [2.0, 1.0]], CHOICE, sensitivity=1.0, monotone=True)
        assert ledger.terms.version == 2
    found = pc.certify(path, delta=0.0)
    assert found.document["recorded"][0]["count"] >= 3
    assert needed(found)["parts"] == ("disjoint", "nobody")


# --- learners: what the code can see is refused, what it cannot is listed ---

X, Y = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.25]], [0, 1, 1]
PUBLIC = [[1.0, 0.1], [0.1, 1.0]], [0, 1]


def adamix(**options):
    learners = pytest.importorskip("learners")
    return learners.AdaMix(classes=[0, 1], delta=1e-5, noise_multiplier=50.0, steps=2, records=3, **options)


def test_public_records_are_not_the_private_ones(monkeypatch):
    torch = pytest.importorskip("torch")
    array = np.array(X)
    tensor = torch.tensor(X)
    refused = [
        (array, array), (array, array[:2]), (array[1:], array[:2]), (array, array[::-1]), (array, array.T.T[:, :]),
        (tensor, tensor[1:]), (tensor, tensor.numpy()), (X, X), (array, array.copy()), (array, array[[2, 0, 1]]),
        (X, tensor), (array, (array + 0.0).tolist()), (array.astype(np.float32), array), (tensor.bfloat16(), array),
    ]  # fmt: skip
    drawn = []
    monkeypatch.setattr(pc.Ledger, "gaussian", lambda *arguments, **named: drawn.append(1))
    for private, public in refused:
        with pytest.raises(pc.PrivcalcError, match="X_public: is X, or shares its memory"):
            adamix().fit(private, Y[: len(private)], public, Y[: len(public)])
    assert not drawn


def test_honest_public_records_are_not_refused():
    """Parts of one array that do not overlap, and rows alike by chance: to look for those would tell who is there."""
    array = np.array([*X, *X])
    blank = np.zeros((4, 2))
    allowed = [
        (array[:3], [*PUBLIC[0], X[0]]), (array[::2], array[1::2] + 0.5), (array[:2], array[2:4]),
        (array[:3], array[3:5]),
        (np.array(X), X[:2]), (np.zeros((3, 2)), blank), (np.zeros((0, 2)), blank),
    ]  # fmt: skip
    for private, public in allowed:
        model = adamix().fit(private, Y[: len(private)], public, [0, 1, 1, 0][: len(public)])
        assert needed(model.certificate_)["public_records"] == ("public", "caller")
        assert needed(model.certificate_)["start"] == ("public", "caller")  # trained on these


def test_a_second_fit_of_a_learner_is_refused(monkeypatch):
    """Three fits at ε = 1 each cost more; each of their certificates would say 1."""
    model = adamix()
    with pytest.raises(pc.PrivcalcError, match="label 9"):
        model.fit(X, [0, 1, 9], *PUBLIC)
    with pytest.raises(pc.PrivcalcError, match="AdaMix needs labelled public records"):
        model.fit(X, Y)  # nothing was released yet
    one = model.fit(X, Y, *PUBLIC).certificate_
    for again in ((X, Y), ([[3.0, 4.0]], [1])):
        with pytest.raises(pc.PrivcalcError, match=r"AdaMix was fitted, .* compose"):
            model.fit(*again, *PUBLIC)
    other = type(model)(**model.get_params()).fit(X, Y, *PUBLIC).certificate_
    assert pc.certify([one, other], delta=1e-5).guarantee.epsilon > one.guarantee.epsilon
    assert needed(one)["other_releases"] == ("none", "nobody")
    broken, gaussian = adamix(), pc.Ledger.gaussian

    def fails(self, *arguments, **named):
        gaussian(self, *arguments, **named)
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(pc.Ledger, "gaussian", fails)
        with pytest.raises(OSError, match="no space"):
            broken.fit(X, Y, *PUBLIC)
    with pytest.raises(pc.PrivcalcError, match="was fitted"):
        broken.fit(X, Y, *PUBLIC)


def test_where_a_learner_starts_from():
    first = adamix(start=np.zeros((2, 2))).fit(X, Y, *PUBLIC)
    assert needed(first.certificate_)["start"] == ("public", "caller")
    second = adamix(start=first).fit(X, Y, *PUBLIC)  # a model of the same records: both are composed
    assert second.certificate_.run == first.certificate_.run * 2
    assert second.certificate_.guarantee.epsilon > first.certificate_.guarantee.epsilon
    assert second.certificate_.verify()
    own = pc.certify(second.ledger_, delta=1e-5)
    assert needed(own)["start"] == ("certificate", "caller")
    assert needed(own)["other_releases"] == ("composed", "caller")
    with pytest.raises(pc.PrivcalcError, match="start: must be certified under replace-one"):
        adamix(start=first, relation=pc.REPLACE_ONE).fit(X, Y, *PUBLIC)
    with pytest.raises(pc.PrivcalcError, match="must be fitted"):
        adamix(start=adamix()).fit(X, Y, *PUBLIC)
    torch = pytest.importorskip("torch")
    from learners import DPSGD

    network = DPSGD(
        classes=[0, 1],
        delta=1e-5,
        records=3,
        sample_rate=0.5,
        noise_multiplier=9.0,
        steps=1,
        model=lambda: torch.nn.Linear(2, 2),
    ).fit(X, Y)
    assert needed(network.certificate_)["start"] == ("public", "caller")  # its weights may be of anything


# --- words of training, and provenance ---


def test_what_began_with_private_data_has_no_epsilon():
    """First weights that were trained without noise on the same records: ε = 3.02, and not a line."""
    for name in VOID:
        with pytest.warns(pc.PrivcalcWarning, match=f"{name} is private, so that nothing is proved"):
            found = pc.certify(POISSON * 9, delta=1e-5, assumptions=pc.Assumptions(**{name: "private"}))
        assert found.guarantee.epsilon == float("inf")
        assert str(found).startswith(f"NO GUARANTEE: {name} is private")
        assert found.verify()
        with pytest.warns(pc.PrivcalcWarning, match="nothing is proved"):
            both = pc.certify([found, pc.certify(STEP, delta=1e-5)], delta=1e-5)
        assert both.guarantee.epsilon == float("inf")
        check(both.document)
        claimed = pc.certify(POISSON * 9, delta=1e-5).document
        forged = rehashed(found.document, **{field: claimed[field] for field in ("guarantee", "curve", "proofs")})
        with pytest.raises(pc.Contradiction):
            pc.Certificate(forged).verify()
    target = pc.Guarantee(epsilon=9.0, delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match="cannot be met"):
        pc.Ledger(None, plan=STEP, target=target, assumptions=pc.Assumptions(start="private"))
    ledger = pc.Ledger(None, plan=STEP, target=target)
    with pytest.raises(pc.PrivcalcError, match="leaves no guarantee"):
        ledger.say(start="private")


def test_words_of_training_are_said_once_and_not_otherwise():
    with pc.Ledger(None, plan=STEP) as ledger:
        ledger.say(start="random")
        ledger.say(start="random", copies=None)
        for words in ({"start": "public"}, {"start": "x"}, {"normaliser": "public"}, {"other": "public"}):
            with pytest.raises(pc.PrivcalcError, match=r"start|normaliser|other"):
                ledger.say(**words)
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    found = needed(pc.certify(ledger, delta=1e-5))
    assert (found["start"], found["copies"]) == (("random", "caller"), ("none", "nobody"))
    assert sum(b'"said"' in line for line in ledger.journal.memory) == 1


def test_a_table_s_certificate_says_what_the_ledger_did():
    """It said that nobody had seen contributions clipped, and that a sum was divided by a constant."""
    spent = {"who": ["a", "b", "b"], "spent": [1.0, 2.0, 9.0]}
    with pc.Ledger(None, plan=STEP) as ledger:
        ledger.mean(spent, STEP, column="spent", lower=0.0, upper=5.0, rows_per_person=2, person="who")
    certificate = pc.certify(ledger, delta=1e-5)
    found = needed(certificate)
    assert found["sensitivity"] == ("derived", "ledger")
    assert found["normaliser"] == ("noisy number", "ledger")
    assert found["rows_per_person"] == ("counted", "caller")
    assert (found["noise"], found["rounding"]) == (("exact", "ledger"), ("bounded", "ledger"))
    assert found["preprocessing"] == ("none", "nobody")  # which rows there are may follow from others
    assert not {"clip_norm", "start", "copies", "records_per_unit"} & set(found)
    assert "tables.md" in certificate.document["proofs"]
    assert "which no ledger sees" not in str(certificate)
    assert certificate.verify(ledger)
    both = pc.certify([certificate, made(plan=STEP)], delta=1e-5)  # the weakest is listed
    assert needed(both)["sensitivity"] == ("stated", "nobody")


DERIVED = Provenance("derived", "drawn", "exact", "bounded", "nothing", "table question")


@pytest.mark.parametrize(
    "told",
    [
        DERIVED,
        *(Provenance(**{name: getattr(DERIVED, name)}) for name in ("sensitivity", "batch", "noise", "rounding", "by")),
    ],
)
def test_only_the_ledger_says_what_the_ledger_did(told):
    """Whoever said a sum was derived had a certificate that the ledger had seen to it; so had steps of other code."""
    with pytest.raises(pc.PrivcalcError, match="the ledger writes down itself"), asked_by(told):
        raise AssertionError("the door was opened")


def test_no_call_of_a_ledger_takes_a_provenance():
    """Whoever passed for a learner was recorded as one: what callers state is stated, and the door is not public."""
    public = [call for name, call in inspect.getmembers(pc.Ledger, inspect.isfunction) if not name.startswith("_")]
    assert len(public) > 10
    for call in public:
        assert not {"told", "provenance"} & set(inspect.signature(call).parameters)
    assert not hasattr(pc.ledger, "Provenance")


def test_the_door_is_closed_again_and_open_in_one_thread_only():
    found = {}
    with asked_by(Provenance("clipped", by="learner")):
        other = threading.Thread(target=lambda: found.update(thread=asking()))
        other.start()
        other.join()
        found["here"] = asking().by
    with contextlib.suppress(KeyError), asked_by(Provenance("clipped", by="adapter")):
        raise KeyError
    assert found == {"thread": STATED, "here": "learner"}
    assert asking() == STATED


def test_what_the_caller_s_code_says_is_the_caller_s_word():
    """It was seen to by our code, whoever said that he clipped, and a stated error was bounded by the ledger."""
    told = Provenance("clipped", divided="nothing")
    with pc.Ledger(None, plan=STEP) as ledger, asked_by(told):
        ledger.gaussian(0.0, STEP, clip_norm=1.0, error=0.0)
    found = needed(pc.certify(ledger, delta=1e-5))
    assert found["sensitivity"] == ("clipped", "caller")
    assert found["normaliser"] == ("nothing", "caller")
    assert found["rounding"] == ("bounded", "caller")


@pytest.mark.parametrize(
    "changed",
    [
        {"sensitivity": "derived"},
        {"by": "table question"},
        {"noise": "other code", "batch": "drawn"},
        {"noise": "other code", "rounding": "bounded"},
    ],
)
def test_a_provenance_that_contradicts_itself(changed):
    stated = Provenance(noise="exact").to_json()
    assert Provenance.from_json(stated)
    with pytest.raises(pc.PrivcalcError, match="contradicts itself"):
        Provenance.from_json(stated | changed)


def test_rows_that_were_kept_because_of_others_are_named():
    """Of tables and thresholded counts no line said that rows may not be chosen, or filled in, by what others hold."""
    keys = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=20.0)
    with pc.Ledger(None, plan=keys) as ledger:
        ledger.thresholded({"a": 50}, keys)
    with pc.Ledger(None, plan=STEP) as other:
        other.count([1.0, 2.0], STEP, rows_per_person=1)
    for certificate in (pc.certify(ledger, delta=1e-5), pc.certify(other, delta=1e-5)):
        assert needed(certificate)["preprocessing"] == ("none", "nobody")
        assert "not because of others" in str(certificate)


def test_rows_of_a_loader_that_trains_nothing_may_be_copies_too():
    """start = "none" took the lines of copies, and of several records of a person, away with it."""
    told = Provenance("clipped", by="adapter")
    with (
        pc.Ledger(None, plan=STEP, unit="one person", assumptions=pc.Assumptions(start="none")) as ledger,
        asked_by(told),
    ):
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    found = needed(pc.certify(ledger, delta=1e-5))
    assert {"copies", "records_per_unit", "preprocessing"} <= set(found)


def test_whose_rows_a_loader_clips_is_the_caller_s_word():
    """Rows that were centred by their batch were said to be seen to by our code."""
    torch = pytest.importorskip("torch")
    from privcalc.interop.torch import loader

    x, theta = torch.eye(3).repeat(10, 1), torch.zeros(3)
    with pc.Ledger(None, plan=POISSON) as ledger:
        for batch in loader(
            ledger, torch.utils.data.TensorDataset(x), POISSON, like=theta, clip_norm=1.0, start="random"
        ):
            for piece in batch:
                (rows,) = piece.records
                piece.add(rows - rows.mean(dim=0))
            batch.release()
    found = pc.certify(ledger, delta=1e-5)
    assert needed(found)["sensitivity"] == ("clipped", "caller")
    assert needed(found)["loop"] == ("as described", "caller")
    (said,) = [line for line in str(found).splitlines() if "no batch normalisation" in line]
    assert "loop: as described" in said


@pytest.mark.parametrize("ours", [True, False])
def test_a_loop_of_ours_is_clipped_by_our_code(ours):
    """And only if nothing of the caller's puts records together."""
    torch = pytest.importorskip("torch")
    from privcalc.interop.torch import RecordGradients, loader

    module, data = torch.nn.Linear(3, 1), torch.utils.data.TensorDataset(torch.eye(3).repeat(10, 1), torch.ones(30, 1))
    gradients = RecordGradients(module, torch.nn.functional.mse_loss)
    options = {"like": gradients, "clip_norm": 1.0, "start": "random"}
    options |= {} if ours else {"collate_fn": torch.utils.data.default_collate}
    with pc.Ledger(None, plan=POISSON) as ledger:
        for batch in loader(ledger, data, POISSON, **options):
            gradients.put(batch.release())
    found = needed(pc.certify(ledger, delta=1e-5))
    assert found["sampling"] == ("poisson", "ledger")
    assert found["noise"] == ("exact", "ledger")
    assert found["sensitivity"] == ("clipped", "code" if ours else "caller")
    assert found["loop"] == ("owned" if ours else "as described", "caller")


def test_contributions_that_are_not_ours_are_not_ours_to_vouch_for():
    """A sum of somebody's own contributions was said to be clipped by our code."""
    torch = pytest.importorskip("torch")
    from learners.frame.records import PrivateRecords

    class Plain:
        def clipped_sum(self, features, labels, clip_norm):
            return features.sum(dim=0)

    with pc.Ledger(None, plan=STEP) as ledger:
        records = PrivateRecords(torch.ones(3, 2), [0, 1, 1], ledger=ledger, classes=[0, 1])
        records.noisy_sum(Plain(), STEP, clip_norm=1.0)
    assert needed(pc.certify(ledger, delta=1e-5))["sensitivity"] == ("stated", "caller")


def test_a_certificate_cannot_be_made_one_of_an_earlier_version(tmp_path):
    """Rewritten as version 2, with its hash, it lost lines, and passed with its ledger; so did 10.0 records for 10."""
    path = tmp_path / "run.jsonl"
    with pc.Ledger(path, plan=STEP, public={"records": 10}) as ledger:
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    document = pc.certify(path, delta=1e-5).document
    with pytest.raises(pc.Contradiction, match="public: the certificate says"):
        pc.Certificate(rehashed(document, public={"records": 10.0})).verify(path)
    story = of_given(str(path), 4)
    for version in (2, 3):
        assert of_given(str(path), version) == story  # this ledger has no words of an earlier version
        log = log_of(document)
        old = {**document, **earlier.words(log, log.plan, version, noise="exact"), "version": version}
        old = {name: value for name, value in old.items() if name != "releases"}
        old["proofs"] = pages(old)
        old["ledgers"] = [{name: old["ledgers"][0][name] for name in ("hash", "lines", "torn")}]
        forged = pc.Certificate(rehashed(old))
        check(forged.document)
        with pytest.raises(pc.Contradiction, match=f"version: the certificate says {version}, its ledger 4"):
            forged.verify(path)
