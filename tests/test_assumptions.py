"""Assumptions as typed fields: what contradicts a proof is refused, and a certificate says who vouches for the rest."""

from __future__ import annotations

import json

import pytest

import privcalc as pc
from privcalc.assumptions import PAGES
from privcalc.claims import digest
from privcalc.consistency import check
from privcalc.proofcheck import ROOT

STEP = pc.Gaussian(20.0)
POISSON = pc.PoissonSampled(pc.Gaussian(2.0), 0.1)
FIXED = pc.FixedSizeSampled(pc.Gaussian(2.0), 1, 10)
WORD = "output-independent"


def needed(certificate):
    return {entry["name"]: (entry["value"], entry["by"]) for entry in certificate.document["assumptions"]["needed"]}


def made(plan=None, cap=None, stopping=None, use=STEP, **said):
    with pc.Ledger(None, plan=plan, cap=cap, public={"records": 10}, assumptions=pc.Assumptions(**said)) as ledger:
        ledger.record(use)
        ledger.close(stopping)
    return pc.certify(ledger, delta=1e-5)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_comes_from_private_records(name):
    with pytest.raises(pc.PrivcalcError, match=f"{name} = 'private'"):
        pc.Assumptions(**{name: "private"})
    with pytest.raises(pc.PrivcalcError, match=f"{name} = 3: must be one of"):
        pc.Assumptions(**{name: 3})


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
    assert needed(made(plan=STEP * 206, steps="released"))["steps"] == ("released", "ledger")
    assert needed(made(cap=pc.GDP(1.0), steps="released"))["steps"] == ("released", "ledger")
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
    [(POISSON, "shuffled", False), (POISSON, "without replacement", False), (POISSON, "poisson", True), (FIXED, "poisson", False),
     (FIXED, "without replacement", True), (pc.ShuffledEpoch(STEP), "shuffled", True), (pc.ShuffledEpoch(STEP), "poisson", False),
     (STEP, "poisson", False), (pc.Parallel([POISSON, pc.Laplace(1.0)]), "poisson", True),
     (pc.RandomTrials(FIXED * 2, mean=2.0, distribution="poisson"), "poisson", False)],
)  # fmt: skip
def test_batches_are_drawn_as_the_mechanism_says(mechanism, said, right):
    assumptions, relation = pc.Assumptions(sampling=said), pc.ADD_OR_REMOVE_ONE
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
    with pytest.raises(pc.PrivcalcError, match="more than once"):
        pc.Assumptions(sampling="with replacement")


def test_a_cap_learns_of_the_scheme_when_it_is_charged():
    ledger = pc.Ledger(None, cap=pc.ZCDP(1.0), assumptions=pc.Assumptions(sampling="poisson"))
    with pytest.raises(pc.PrivcalcError, match="sampling"):
        ledger.record(FIXED)
    ledger.record(POISSON)
    ledger.close()
    assert needed(pc.certify(ledger, delta=1e-5))["sampling"] == ("poisson", "caller")


def test_who_vouches():
    with pc.Ledger(None, plan=POISSON, public={"records": 10}, assumptions=pc.Assumptions(normaliser="public")) as ledger:
        ledger.gaussian(0.0, POISSON, clip_norm=1.0, batch=ledger.poisson_batch(POISSON))
    found = pc.certify(ledger, delta=1e-5)
    assert needed(found) == {
        "steps": ("released", "ledger"),
        "parameters": ("public", "nobody"),
        "normaliser": ("public", "caller"),
        "clip_norm": ("public", "nobody"),
        "sampling": ("poisson", "ledger"),
    }
    assert "assumed         sampling: poisson (enforced by the ledger; poisson.md)" in str(found)
    assert "assumed         clip_norm: public (nobody said so; gaussian.md)" in str(found)
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
        {"name": "normaliser", "value": "public", "by": "caller", "page": "noisy_gd.md"}
    ]
    assert {(e["name"], e["by"]) for e in entries if e["name"] == "steps"} == {("steps", "ledger"), ("steps", "nobody")}
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
    said = original["assumptions"]
    entries = said["needed"]
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
        document = {**original, "assumptions": {**said, **change}}
        document["hash"] = digest(document)
        with pytest.raises(pc.PrivcalcError, match=r"assumption|parameters|normaliser"):
            check(document)
    check(original)
    composed = pc.certify([pc.Certificate(original)], delta=1e-5).document
    for change in (
        {"declared": {"steps": "public"}},
        {"needed": [{**entries[0], "by": "me"}]},
        {"needed": [{**entries[0], "name": "x"}]},
    ):
        document = {**composed, "assumptions": {**composed["assumptions"], **change}}
        document["hash"] = digest(document)
        with pytest.raises(pc.PrivcalcError, match="assumptions"):
            check(document)


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
    [("NoisyGD", "public", "public", None), ("AdaMix", "public", "released", None),
     ("DPPLMean", "released", "released", None), ("DPPLPublic", None, None, "public"),
     ("PILLARSelection", "public", "public", "released"), ("PDADPMD", "public", "public", None)],
)  # fmt: skip
def test_learners_declare_what_their_code_does(name, normaliser, clip_norm, candidates):
    pytest.importorskip("torch")
    import learners

    said = getattr(learners, name).assumptions
    assert said == pc.Assumptions(normaliser=normaliser, clip_norm=clip_norm, candidates=candidates)


def test_a_learner_s_certificate_says_so():
    pytest.importorskip("torch")
    from learners import NoisyGD

    model = NoisyGD(classes=[0, 1], delta=1e-5, noise_multiplier=5.0, steps=2, records=2).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    assert needed(model.certificate_) == {
        "steps": ("released", "ledger"),
        "parameters": ("public", "nobody"),
        "normaliser": ("public", "caller"),
        "clip_norm": ("public", "caller"),
    }
