"""Certificates and ledgers of every kind have the published form, and what has another is refused by it."""

import copy
import json

import jsonschema
import numpy as np
import pytest

import privcalc as pc
from privcalc.certificate.json_schema import json_schema
from privcalc.certificate.schema import SCHEMA
from privcalc.ledger.terms import LATER

STEP = pc.Gaussian(noise_multiplier=20.0)
CERTIFICATE, LINE = (jsonschema.Draft202012Validator(json_schema(of)) for of in ("certificate", "ledger"))


def released(path):
    """A ledger with many kinds of lines."""
    plan = STEP * 5 + pc.ExponentialMechanism(0.5) + pc.PoissonSampled(pc.Gaussian(2.0), 0.5) * 2
    public, missing = {"records": 4, "edges": np.arange(3.0)}, ["tuning"]
    ledger = pc.Ledger(path, plan=plan, public=public, not_accounted=missing)
    ledger.say(start=pc.certify(STEP, delta=1e-5), copies="none")
    ledger.gaussian(np.ones((4, 2)), STEP, clip_norm=2.0, label="sums")
    ledger.select([[1.0, 2.0]], pc.ExponentialMechanism(0.5), sensitivity=1.0, monotone=True)
    step = pc.PoissonSampled(pc.Gaussian(2.0), 0.5)
    ledger.gaussian(np.ones((1, 2)), step, clip_norm=2.0, batch=ledger.batch(step, records=4))
    ledger.record(STEP, 2, label="2026-05")
    with pytest.warns(pc.PrivcalcWarning):
        ledger.warn("something")
    return ledger


def asked(path):
    """A ledger of a question to a table, under a cap."""
    with pc.Ledger(path, cap=pc.GDP(1.0), unit="one person", public={"records": 4}) as ledger:
        ledger.count(np.arange(4), pc.Gaussian(20.0), person=np.arange(4), rows_per_person=1)
    return ledger


def test_ledgers_of_all_kinds_have_the_form(tmp_path):
    released(tmp_path / "a").close(stopping="output-independent")
    asked(tmp_path / "b")
    with pc.Ledger(tmp_path / "c", plan=STEP, seed=1) as ledger:
        ledger.gaussian(1.0, STEP, clip_norm=1.0)
    seen = set()
    for name in "abc":
        for text in (tmp_path / name).read_text().splitlines():
            LINE.validate(line := json.loads(text))
            seen.add(line["entry"]["type"])
    assert seen >= {"open", "said", "reserve", "record", "draw", "warning", "persons", "close"}


def test_certificates_of_all_kinds_have_the_form(tmp_path):
    opened = released(tmp_path / "a")
    run = pc.certify(STEP * 206, delta=1e-5, not_accounted=["tuning"])
    made = [run, pc.certify(asked(None), delta=1e-5)]
    made += [pc.certify(pc.Gaussian(2.0), delta=1e-5, assumptions=pc.Assumptions(clip_norm="public"))]
    with pytest.warns(pc.PrivcalcWarning):
        made.append(pc.certify(tmp_path / "a", delta=1e-5))
    opened.close(stopping="output-independent")
    with pytest.warns(pc.PrivcalcWarning):
        made.append(pc.certify(tmp_path / "a", delta=1e-5))
    with pytest.warns(pc.PrivcalcWarning):
        made.append(pc.certify(STEP, delta=1e-5, assumptions=pc.Assumptions(start="private")))
    made += [pc.certify([run, made[2]], delta=1e-5)]
    assert {each.document["basis"] for each in made} == {"declared", "cap", "plan", "recorded", "composed"}
    for each in made:
        CERTIFICATE.validate(each.document)


def test_what_has_another_form_is_refused(tmp_path):
    document = pc.certify(STEP, delta=1e-5).document
    for name in SCHEMA:
        assert not CERTIFICATE.is_valid({key: value for key, value in document.items() if key != name})
    for changes in (
        {"basis": "word"},
        {"seeded": 0},
        {"hash": "x"},
        {"version": 3},
        {"guarantee": {"epsilon": 1.0, "delta": 1e-5}},
        {"run": [{"mechanism": {"kind": "Gaussian"}, "count": 0}]},
        {"assumptions": {"declared": {}, "needed": [{"name": "steps"}]}},
        {"parts": [{"version": 4}]},
        {"ledgers": [{"hash": document["hash"]}]},
        {"required": ["something"]},
    ):
        assert not CERTIFICATE.is_valid({**document, **changes}), changes
    assert CERTIFICATE.is_valid({**document, "later": 1, "required": ["run"]})
    asked(tmp_path / "b")
    for text in (tmp_path / "b").read_text().splitlines():
        line = json.loads(text)
        for name in line["entry"]:
            changed = copy.deepcopy(line)
            del changed["entry"][name]
            assert not LINE.is_valid(changed) or name in ("label", "certificates"), (line, name)
    assert not LINE.is_valid({**line, "entry": {"type": "later"}})
    assert LINE.is_valid({**line, "entry": {"type": "later", "optional": True}})


def test_the_form_is_that_by_which_they_are_read():
    assert set(json_schema("certificate")["properties"]) == {*SCHEMA, "replayed", "required"}
    entry = json_schema("ledger")["properties"]["entry"]
    assert {each["if"]["properties"]["type"]["const"] for each in entry["allOf"][:-1]} == {"open", *LATER}
    for of in ("certificate", "ledger"):
        jsonschema.Draft202012Validator.check_schema(json_schema(of))
    with pytest.raises(pc.PrivcalcError, match="of = 'run'"):
        json_schema("run")
