"""Certificates and ledgers that earlier versions wrote are loaded, shown and verified by this one."""

import json
import math
from pathlib import Path

import pytest
from cases import SLOW

import privcalc as pc
from privcalc.certificate import consistency, earlier, schema
from privcalc.certificate.schema import digest
from privcalc.cli import main

FOLDER = Path(__file__).parents[1] / "fixtures" / "0.1.0"
CERTIFICATES = sorted(path.name.removesuffix(".cert.json") for path in FOLDER.glob("*.cert.json"))


@pytest.fixture(autouse=True)
def checks(checks_here):
    """All claims are confirmed, in this process."""


def test_there_is_one_of_each():
    documents = [json.loads((FOLDER / f"{name}.cert.json").read_text()) for name in CERTIFICATES]
    assert {document["basis"] for document in documents} == {"plan", "cap", "recorded", "declared", "composed"}
    assert {document["relation"] for document in documents} == set(map(str, pc.Relation))
    assert {document["version"] for document in documents} == {2}
    text = str([document["run"] for document in documents])
    kinds = (
        "Gaussian GDP Laplace DiscreteGaussian RandomizedResponse PureDP ApproxDP ExponentialMechanism TopK ZCDP RDP "
    )
    for kind in (kinds + "CustomMechanism PoissonSampled FixedSizeSampled ShuffledEpoch Parallel RandomTrials").split():
        assert f"'kind': '{kind}'" in text


@pytest.mark.parametrize("name", CERTIFICATES)
def test_what_0_1_0_wrote(name, one_claim):
    certificate = pc.Certificate.load(FOLDER / f"{name}.cert.json")
    document = certificate.document
    assert document["hash"] == digest(document)
    text = str(certificate)
    assert certificate.guarantee.epsilon.stated("ε") + " at δ = " in text
    assert "CHANGED" not in text
    source = next(iter([*FOLDER.glob(f"{name}.jsonl"), *FOLDER.glob(f"{name}.json")]), None)
    assert (source is not None) == ((len(document["ledgers"]) == 1 and not document["parts"]) or name == "described")
    if document["basis"] == "composed":
        assert "WITHOUT ITS PARTS" in text
        with pytest.raises(pc.NotConfirmed, match="does not contain its parts"):
            certificate.verify(seconds=math.inf)
        with pytest.raises(pc.NotConfirmed):
            pc.certify([certificate], delta=1e-5)
        return
    if name == "batches" and not SLOW:
        return
    if document["confirmed"]:
        pytest.importorskip("flint")
    assert certificate.verify(*[] if source is None else [source], seconds=math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CERTIFICATES if "composed" not in name])
def test_every_number_that_0_1_0_wrote(name):
    assert pc.Certificate.load(FOLDER / f"{name}.cert.json").verify(seconds=math.inf)


THIRD = Path(__file__).parents[1] / "fixtures" / "version3"
NAMES = ("cap", "choices", "composed", "declared", "gates", "mixed", "no_gate", "open", "plan", "recorded")


def ledgers_of(name):
    """Of a composition, those of all its parts."""
    parts = ("recorded", "plan") if name == "composed" else (name,)
    return [path for part in parts if (path := THIRD / f"{part}.jsonl").exists()]


def test_there_is_one_of_each_basis_of_version_3():
    assert sorted(path.name for path in THIRD.glob("*.cert.json")) == [f"{name}.cert.json" for name in NAMES]
    documents = [json.loads((THIRD / f"{name}.cert.json").read_text()) for name in NAMES]
    assert {document["basis"] for document in documents} == {"plan", "cap", "recorded", "declared", "composed"}
    lines = [json.loads(path.read_text().splitlines()[0])["entry"] for path in THIRD.glob("*.jsonl")]
    assert {found["version"] for found in (*documents, *lines)} == {3}
    assert len(lines) == 8


@pytest.mark.parametrize("name", NAMES)
def test_what_version_3_wrote(name, one_claim):
    certificate = pc.Certificate.load(THIRD / f"{name}.cert.json")
    text = str(certificate)
    assert "CHANGED" not in text
    assert ("OPEN, WITHIN ITS PLAN" in text) == (name == "open")
    assert certificate.guarantee.epsilon.stated("ε") + " at δ = " in text
    assert certificate.verify(*ledgers_of(name), seconds=math.inf)
    if name not in ("composed", "declared"):
        changed = {**certificate.document, "unit": "one town"}
        with pytest.raises(pc.Contradiction, match="unit"):
            pc.Certificate({**changed, "hash": digest(changed)}).verify(*ledgers_of(name), seconds=math.inf)


def test_an_open_ledger_of_version_3_goes_on_and_loses_no_charge(tmp_path):
    """It was left with blocks reserved: all of them stay charged, and what comes later is added."""
    path = tmp_path / "open.jsonl"
    path.write_bytes(old := (THIRD / "open.jsonl").read_bytes())
    entries = [json.loads(line)["entry"] for line in old.decode().splitlines()]
    charged = {}
    for entry in entries:
        if entry["type"] in ("reserve", "record"):
            kind = entry["mechanism"]["kind"]
            charged[kind] = charged.get(kind, 0) + entry["count"]
        assert entry["type"] not in ("return", "close")
    assert charged["Gaussian"] >= 102
    query, step = pc.Gaussian(noise_multiplier=20.0), pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.2)
    with pc.Ledger(path, plan=query * 120 + step * 20, public={"records": 50}) as ledger:
        assert dict(ledger.spent.entries) == {query: charged["Gaussian"], step: charged["PoissonSampled"]}
        ledger.record(step)
        with pytest.raises(pc.BudgetExceeded):
            ledger.record(query, 121 - charged["Gaussian"])
    assert path.read_bytes().startswith(old)
    found = pc.certify(path, delta=1e-5)
    assert found.final
    assert {**dict(found.run.entries)} == {query: 120, step: 20}
    assert [each["count"] for each in found.document["recorded"] if each["mechanism"]["kind"] == "PoissonSampled"] == [
        charged["PoissonSampled"] + 1
    ]


def test_what_is_wrong_is_refused_of_old_ones_too():
    certificate = pc.Certificate.load(FOLDER / "recorded.cert.json")
    document = certificate.document
    forged = {
        **document,
        "guarantee": {**document["guarantee"], "epsilon": {"lower": 0.01, "upper": 0.01, "route": "contour"}},
    }
    forged["proofs"] = schema.pages(forged)
    with pytest.raises(pc.PrivcalcError, match="is too small"):
        pc.Certificate({**forged, "hash": digest(forged)}).verify(seconds=math.inf)


def test_old_certificates_compose():
    """With one another, and with new ones; ledgers go on being theirs."""
    names = ("cap", "recorded", "seeded")
    parts = [pc.Certificate.load(FOLDER / f"{name}.cert.json") for name in names]
    both = pc.certify([*parts, pc.certify(pc.Gaussian(30.0), delta=1e-5)], delta=1e-5)
    assert [part["version"] for part in both.document["parts"]] == [2, 2, 2, schema.VERSION]
    assert both.verify(*(FOLDER / f"{name}.jsonl" for name in names), seconds=math.inf)
    assert not both.private


def test_ledgers_are_gone_on_with(tmp_path):
    path = tmp_path / "torn.jsonl"
    path.write_bytes((FOLDER / "torn.jsonl").read_bytes())
    step = pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.2)
    with pc.Ledger(path, plan=pc.Gaussian(noise_multiplier=20.0) * 120 + step * 20, public={"records": 50}) as ledger:
        ledger.record(step)
    assert pc.certify(path, delta=1e-5).final


def test_pages_that_have_moved(monkeypatch):
    """A page that is renamed, or split, is found by its old name; another name is refused."""
    document = pc.Certificate.load(FOLDER / "recorded.cert.json").document
    monkeypatch.setattr(pc.Gaussian, "page", "mechanisms/gaussian.md")
    with pytest.raises(pc.PrivcalcError, match="proofs"):
        consistency.check(document)
    monkeypatch.setattr(schema, "MOVED", {"gaussian.md": ("mechanisms/gaussian.md", "mechanisms/gaussian_profile.md")})
    monkeypatch.setitem(earlier.CITED, "clip_norm", "elsewhere.md")
    with pytest.raises(pc.PrivcalcError, match="assumptions"):
        consistency.check(document)
    monkeypatch.setitem(earlier.CITED, "clip_norm", "mechanisms/gaussian_profile.md")
    consistency.check(document)
    for proofs in (document["proofs"][1:], [*document["proofs"], "laplace.md"], document["proofs"] * 2):
        changed = {**document, "proofs": proofs}
        with pytest.raises(pc.PrivcalcError, match="proofs"):
            consistency.check({**changed, "hash": digest(changed)})


@pytest.mark.parametrize("unit", ["x", "é" * 2000])
def test_what_units_and_texts_may_be(unit):
    with pc.Ledger(None, plan=pc.Gaussian(20.0), unit=unit, not_accounted=[unit, ""]) as ledger:
        ledger.record(pc.Gaussian(20.0))
    document = pc.certify(ledger, delta=1e-5).document
    assert (document["unit"], document["not_accounted"]) == (unit, [unit, ""])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("unit", value) for value in ("", "x" * 2001, 3, ["one record"])),
        *(("not_accounted", value) for value in ("tuning", [3], [None], ["x" * 2001], 3, {"tuning": "all"})),
    ],
)
def test_what_units_and_texts_may_not_be(name, value):
    """In a ledger, and in a described run, by their name."""
    step = pc.Gaussian(20.0)
    with pytest.raises(pc.PrivcalcError, match=f"^{name}"):
        pc.Ledger(None, plan=step, **{name: value})
    with pytest.raises(pc.PrivcalcError, match=f"^{name}"):
        pc.certify(step, delta=1e-5, **{name: value})


@pytest.mark.parametrize(
    ("words", "status"),
    [
        *((["show", "c.json", *more], 2) for more in ([], ["--report"], ["--html", "o"], ["--registry", "o"])),
        *((["verify", "c.json", *more], 3) for more in ([], ["--json"])),
        *(
            ([*command, "--delta", "1e-5"], 2)
            for command in (["certify", "r.json", "--out", "o"], ["compare", "r.json"])
        ),
    ],
)
def test_an_unknown_kind_is_named_by_every_command(words, status, tmp_path, monkeypatch, capsys):
    """It is no contradiction, and no answer either."""
    monkeypatch.chdir(tmp_path)
    known = json.dumps(dict(pc.certify(pc.Gaussian(20.0), delta=1e-5).document))
    document = json.loads(known.replace('"Gaussian"', '"Mystery"'))
    (tmp_path / "c.json").write_text(json.dumps(document | {"hash": digest(document)}))
    run = {
        "format": "privcalc run",
        "version": 1,
        "relation": "add-or-remove-one",
        "unit": "one record",
        "run": document["run"],
    }
    (tmp_path / "r.json").write_text(json.dumps(run))
    assert main(words) == status
    said = capsys.readouterr()
    assert "kind = 'Mystery': must be one of AboveThreshold" in said.out + said.err
    assert not (tmp_path / "o").exists()
