"""Certificates: what is saved can be checked again, and what was changed is refused with the reason."""

import copy
import functools
import itertools
import json
import math
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import strategies as some
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EXAMPLES

import privcalc as pc
from privcalc.certificate import certificate as certificates
from privcalc.certificate import schema
from privcalc.certificate import story as numbers
from privcalc.certificate import verify as verification
from privcalc.certificate.consistency import RULES, check
from privcalc.certificate.html import sheet
from privcalc.certificate.schema import ROUTES, SCHEMA, digest
from privcalc.certificate.text import show
from privcalc.cli import main
from privcalc.ledger.tables import ANSWERED
from privcalc.mechanisms.custom import DiscreteMechanism
from privcalc.numerics.routes import lattice
from privcalc.run import Mechanism
from privcalc.serial import canonical, mechanism_from_json, mechanism_to_json, run_from_json, run_to_json

STEP, CLOSING = pc.Gaussian(noise_multiplier=20.0), "output-independent"
ROOT = Path(pc.__file__).parent.parent
PROOFS = ROOT / "proofs"

PROVED = {
    *(pc.Gaussian, pc.Laplace, pc.DiscreteGaussian, pc.RandomizedResponse, pc.ExponentialMechanism, pc.TopK, pc.PureDP),
    *(pc.ApproxDP, pc.GDP, pc.ZCDP, pc.ShuffledEpoch),
}
"""Whose single use is proved under every relation."""

DISJOINT = pc.Assumptions(parts="disjoint")
DERIVED = ANSWERED.to_json()


@pytest.fixture(autouse=True)
def checks(checks_here):
    """All claims are confirmed, in this process."""


@pytest.fixture(autouse=True)
def remember(monkeypatch):
    """The same numbers are asked for again and again."""
    monkeypatch.setattr(certificates, "claims", remembered)
    monkeypatch.setattr(verification, "claims", remembered)
    # In this process, where they are remembered; the limits have tests of their own.
    monkeypatch.setattr(
        pc.Certificate.verify, "__kwdefaults__", {"seconds": math.inf, "rigorous": False, "public": None}
    )


@functools.cache
def _claims(run, relation, delta):
    return numbers.claims(run, relation, delta)


def remembered(run, relation, delta):
    return copy.deepcopy(_claims(run, relation, delta))


def ledger(path=None, steps=5, plan=STEP * 20, stopping=None, close=True, **terms):
    made = pc.Ledger(path, plan=plan, **terms)
    for _ in range(steps):
        made.gaussian(0.0, STEP, clip_norm=1.0)
    made.record(STEP, 2)
    if close:
        made.close(stopping=stopping)
    else:
        made.journal.close()
    return made if path is None else path


def rehashed(document, **changes):
    """Changed by someone who knows how the hash is made."""
    changed = copy.deepcopy(dict(document)) | changes
    changed["hash"] = digest(changed)
    return pc.Certificate(changed)


# --- the schema -----------------------------------------------------------------------------------


def test_the_page_prints_the_schema():
    page = (PROOFS / "certificate.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `.*\|$", page, flags=re.MULTILINE)
    assert rows == [f"| `{name}` | {field.says} |" for name, field in SCHEMA.items()]
    assert max(map(len, rows)) <= 130


def test_the_schema_is_what_is_written_and_checked(tmp_path):
    document = pc.certify(ledger(tmp_path / "run.jsonl"), delta=1e-5).document
    assert set(document) == set(SCHEMA)
    assert set(RULES) == set(SCHEMA["basis"].among)
    for name, field in SCHEMA.items():
        for other in (1, 0.5, True, None, "other", [], {}):
            if name != "hash" and type(other) not in field.kind:
                with pytest.raises(pc.Contradiction, match=rf"{name} = .*: must be"):
                    check(rehashed(document, **{name: other}).document)


def test_every_bound_of_a_pair_has_a_page():
    """A route without one cannot be certified: the blocks of k of t steps had none."""
    rooms = ("composition", "interop", "mechanisms", "pairs")
    texts = [path.read_text(encoding="utf-8") for room in rooms for path in (ROOT / "privcalc" / room).rglob("*.py")]
    bounds = {name for text in texts for name in re.findall(r'\bbound="([^"]+)"', text)}
    assert {"blocks", "cut batches", "worst part"} <= bounds
    assert not bounds - set(ROUTES)


def test_words_of_a_run_are_checked_as_those_of_a_ledger():
    for words in ({"unit": 5}, {"unit": ""}, {"not_accounted": "tuning"}, {"not_accounted": [1]}, {"assumptions": {}}):
        with pytest.raises(pc.PrivcalcError, match=next(iter(words))):
            pc.certify(STEP, delta=1e-5, **words)


# --- descriptions ---------------------------------------------------------------------------------


def below(kind):
    return [kind, *itertools.chain.from_iterable(below(child) for child in kind.__subclasses__())]


def test_every_public_mechanism_has_a_page_and_is_here():
    public = {
        kind for name in pc.__all__ if isinstance(kind := getattr(pc, name), type) and issubclass(kind, Mechanism)
    }
    for kind in public - {Mechanism}:
        assert (PROOFS / kind.page).is_file(), kind
        assert f"[{kind.page}]({kind.page})" in (PROOFS / "README.md").read_text()
    assert {kind for kind in public if any(isinstance(example, kind) for example in EXAMPLES)} == public - {
        Mechanism
    } | {Mechanism}
    for page in ("ledger.md", "certificate.md"):
        assert f"[{page}]({page})" in (PROOFS / "README.md").read_text()


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=lambda m: type(m).__name__)
def test_descriptions_are_read_back_exactly(mechanism):
    text = canonical(mechanism_to_json(mechanism))
    assert mechanism_from_json(json.loads(text)) == mechanism
    assert canonical(mechanism_to_json(mechanism_from_json(json.loads(text)))) == text
    nested = pc.Parallel([mechanism, STEP]) * 3 + pc.RandomTrials(mechanism + STEP, mean=2, distribution="poisson")
    assert run_from_json(json.loads(canonical(run_to_json(nested)))) == nested


@given(run=some.runs)
def test_descriptions_of_any_run(run):
    assert run_from_json(json.loads(canonical(run_to_json(run)))) == run


@given(weights=st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), min_size=2, max_size=7))
def test_probabilities_are_not_normalised_twice(weights):
    laws = [[x / math.fsum(column) for x in column] for column in zip(*weights, strict=True)]
    mechanism = pc.CustomMechanism.from_probabilities(*laws)
    assert mechanism_from_json(mechanism_to_json(mechanism)) == mechanism


def test_what_cannot_be_written_down():
    class Gaussian(pc.Gaussian):
        """Another one, of the same name."""

    class Other(DiscreteMechanism):
        """What it leaks may be anything."""

    other = Other((0.5, 0.5), (0.4, 0.6), pc.ADD_OR_REMOVE_ONE)
    for mechanism in (
        pc.CustomMechanism.from_profile(lambda e: 0 * e),
        Gaussian(1.0),
        pc.Parallel([Gaussian(1.0)]),
        other,
    ):
        with pytest.raises(pc.PrivcalcError, match=r"must be one of privcalc's own|cannot be written down"):
            mechanism_to_json(mechanism)
        with pytest.raises(pc.PrivcalcError):
            pc.certify(mechanism, delta=1e-5)


# --- round trips ----------------------------------------------------------------------------------


def confirmed(certificate, tmp_path):
    path = tmp_path / "run.cert.json"
    certificate.save(path)
    again = pc.Certificate.load(path)
    assert again == certificate
    assert again.guarantee == certificate.guarantee
    lines = again.verify()
    assert lines[0].startswith(("VERIFIED: ", "UNDECIDED: "))
    assert lines[1] == "the text is whole: it fits its own hash"
    assert str(again).startswith(("verdict", "OPEN", "REPRO"))
    return lines


SLOWLY = (
    pc.UserSampled,
    pc.WithReplacementSampled,
    pc.FixedSizeSampled,
    pc.TruncatedPoissonSampled,
    pc.RandomAllocation,
)
"""Of which balls take many seconds to say that they decide nothing, or little."""


@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(m, marks=[pytest.mark.slow] if isinstance(m, SLOWLY) else [], id=type(m).__name__) for m in EXAMPLES],
)
def test_every_mechanism_and_relation(mechanism, tmp_path, monkeypatch):
    """With every number checked at the certificate's δ; at the curve's other δ below, for some."""
    monkeypatch.setattr(numbers, "CURVE", (1e-3,))
    monkeypatch.setattr(numbers, "ALPHAS", (0.05,))
    _claims.cache_clear()
    for relation in pc.Relation:
        try:
            mechanism.pairs(relation)
        except pc.PrivcalcError:
            with pytest.raises(pc.PrivcalcError):
                pc.certify(mechanism, delta=1e-5, relation=relation, assumptions=DISJOINT)
            continue
        certificate = pc.certify(mechanism, delta=1e-5, relation=relation, assumptions=DISJOINT)
        assert certificate.guarantee.epsilon == mechanism.epsilon(delta=1e-5, relation=relation)
        assert mechanism.page in certificate.document["proofs"]
        lines = [line for line in confirmed(certificate, tmp_path) if line.startswith("δ(")]
        assert len(lines) == 2
        if type(mechanism) in PROVED:
            assert all(line.endswith("proved in ball arithmetic") for line in lines), lines
        else:
            assert all("proved" in line or "could not be decided here; computed again by" in line for line in lines)
    _claims.cache_clear()


@settings(max_examples=5)
@given(noise=some.ordinary_noises, count=st.integers(1, 50), delta=some.ordinary_deltas)
def test_small_runs_are_proved(noise, count, delta):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "CURVE", ())
        certificate = pc.certify(pc.Gaussian(noise) * count, delta=delta)
        assert certificate.verify()[-1].endswith("proved in ball arithmetic")
        assert certificate.verify()[0].startswith("VERIFIED: ε ≤ ")
    _claims.cache_clear()


def test_ledgers(tmp_path):
    path = ledger(tmp_path / "run.jsonl", target=pc.Guarantee(epsilon=2.0, delta=1e-5), public={"records": 9})
    certificate = pc.certify(path, delta=1e-5)
    assert (certificate.run, certificate.final, certificate.private) == (STEP * 20, True, True)
    lines = certificate.verify(path)
    assert "the target (2, 1e-05)-DP under add-or-remove-one is met" in lines
    assert lines[-1] == "the ledger is whole, says the same, and charges no more than it may"
    text = str(certificate)
    assert "drawn elsewhere 2 × Gaussian" in text
    assert "recorded        7 × Gaussian" in text
    assert "a check shows consistency, not honesty" in text
    assert "was anything tuned on private data?" in text


def test_vouched_and_open_and_seeded(tmp_path):
    vouched = pc.certify(ledger(stopping=CLOSING), delta=1e-5)
    assert (vouched.run, vouched.document["basis"]) == (STEP * 7, "recorded")
    assert vouched.guarantee.epsilon == (STEP * 7).epsilon(delta=1e-5)
    assert f'the caller declared: "{CLOSING}"' in str(vouched)
    confirmed(vouched, tmp_path)
    path = ledger(tmp_path / "run.jsonl", close=False)
    opened = pc.certify(path, delta=1e-5)
    assert not opened.final
    stated = opened.guarantee.epsilon.stated("ε")
    line = f"OPEN, WITHIN ITS PLAN: {stated} at δ = 1e-05, add-or-remove-one holds for everything"
    assert line in str(opened)
    assert any(line in said for said in opened.verify(path))
    seeded = pc.certify(ledger(seed=1), delta=1e-5)
    assert not seeded.private
    assert str(seeded).startswith("REPRODUCIBLE RUN: NO PRIVACY CLAIM")
    composed = pc.certify([seeded, vouched, opened], delta=1e-5)
    assert not composed.private
    assert not composed.final
    assert composed.run == STEP * 47
    confirmed(composed, tmp_path)
    assert f'by its recorded run, closed, the end declared "{CLOSING}": 7 ×' in str(composed)


def test_a_described_run(tmp_path):
    path = tmp_path / "run.json"
    described = {
        "format": "privcalc run",
        "version": 1,
        "relation": "zero-out",
        "unit": "one person",
        "run": [{"mechanism": {"kind": "Gaussian", "noise_multiplier": 4}, "count": 3}],
        "not_accounted": ["the learning rate was tuned"],
    }
    path.write_text(json.dumps(described, indent=2))
    certificate = pc.certify(path, delta=1e-6)
    assert (certificate.run, certificate.relation) == (pc.Gaussian(4.0) * 3, pc.ZERO_OUT)
    assert "not accounted   the learning rate was tuned" in str(certificate)
    assert "described by hand" in str(certificate)
    assert "description is whole" in certificate.verify(path)[-1]
    bad = [
        {"format": "privcalc"},
        {"version": 2},
        {"relation": "zero"},
        {"relation": None},
        {"unit": ""},
        {"run": described["run"][0]},
        {"run": [described["run"][0] | {"more": 1}]},
        {"run": [described["run"][0] | {"count": -1}]},
        {"run": [described["run"][0] | {"count": 1.5}]},
        {"run": [{"count": 1}]},
        {"public": []},
        {"not_accounted": "x"},
        {"more": 1},
        {"epsilon": 0.1},
    ]
    for change in bad:
        path.write_text(json.dumps(described | change))
        with pytest.raises(pc.PrivcalcError):
            pc.certify(path, delta=1e-6)
    text = json.dumps(described)
    for wrong in (
        text[:-1],
        text + "{}",
        "[]",
        "",
        "NaN",
        text.replace("4", "NaN"),
        text[:-1] + ', "unit": "x"}',
        "[" * 10**5,
    ):
        path.write_text(wrong)
        with pytest.raises(pc.PrivcalcError):
            pc.certify(path, delta=1e-6)
    path.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(pc.PrivcalcError):
        pc.certify(path, delta=1e-6)


def test_composition():
    one = pc.certify(STEP * 3, delta=1e-5, not_accounted=["tuning"])
    two = pc.certify(pc.Gaussian(5.0), delta=1e-7)
    both = pc.certify([one, two], delta=1e-6)
    assert both.run == STEP * 3 + pc.Gaussian(5.0)
    assert both.guarantee.epsilon == both.run.epsilon(delta=1e-6)
    assert both.document["not_accounted"] == ["tuning"]
    assert pc.certify([both, one], delta=1e-6).run == STEP * 6 + pc.Gaussian(5.0)
    for parts in (
        [],
        [one, STEP],
        [one, pc.certify(STEP, delta=1e-5, unit="one person")],
        [one, pc.certify(STEP, delta=1e-5, relation=pc.ZERO_OUT)],
        [one, pc.Certificate({**two.document, "run": run_to_json(pc.Gaussian(50.0))})],  # does not fit its hash
        [one, rehashed(two.document, run=run_to_json(pc.Gaussian(50.0)))],  # is not what was declared
        [one, pc.Certificate({})],
    ):
        with pytest.raises(pc.PrivcalcError):
            pc.certify(parts, delta=1e-6)
    with pytest.raises(pc.Contradiction, match="no part"):
        both.verify(ledger())


# --- tampering ------------------------------------------------------------------------------------


def changed_numbers(document):
    """Claims that are too small, too large, or no numbers, in every place where a number is claimed."""

    def places():
        yield "guarantee", ("guarantee", "epsilon"), "upper"
        yield "curve", ("curve", 3, "epsilon"), "upper"
        yield "gdp", ("gdp", "mu"), "upper"
        yield "advantage", ("advantage",), "upper"
        yield "beta", ("beta", 1, "beta"), "lower"

    for name, keys, end in places():
        for value in (1e-6, 1e-3, 0.5, "nan", "text", None, True):
            changed = copy.deepcopy(dict(document))
            at = functools.reduce(lambda part, key: part[key], keys, changed)
            if isinstance(value, float):
                factor = 1 + value if end == "lower" else 1 - value
                at[end] *= factor
                at["lower" if end == "upper" else "upper"] = at[end]
            elif value == "nan":
                at[end] = "NaN"
            elif value is None and name == "beta":
                continue  # null is ∞: a lower end above the upper one is tested by it elsewhere
            elif value is None:
                at["lower"] = None
            else:
                at[end] = value
            yield name, value, changed


def test_claims_that_are_too_small():
    """By one in a million, with the hash made again; of μ, with ends 10⁻⁵ apart, that is too little to be shown."""
    document = pc.certify(pc.Gaussian(1.0) * 2, delta=1e-5).document
    for name, _, changed in changed_numbers(document):
        refusal = pc.Contradiction, pc.NotConfirmed
        with pytest.raises(refusal, match=rf"{name}|is too small|must be a finite number|lower <= upper") as found:
            rehashed(changed).verify()
        assert isinstance(found.value, pc.Contradiction) or (name == "gdp" and "not refuted" in str(found.value))


def test_less_than_can_be_shown_today_is_not_wrong():
    """Where an interval is wide, another version may have shown more: a claim within it is refuted by nothing."""
    run = pc.PoissonSampled(pc.Gaussian(2.0), 0.1) * 6 + pc.ExponentialMechanism(0.3) * 4
    document = pc.certify(run, delta=1e-5).document
    ends = document["guarantee"]["epsilon"]
    assert ends["upper"] - ends["lower"] > 1e-7 * ends["upper"]
    ends["upper"] = 0.5 * (ends["lower"] + ends["upper"])
    with pytest.raises(pc.NotConfirmed, match="less than can be shown today, and not refuted"):
        rehashed(document).verify()
    ends["upper"] = ends["lower"] = 0.99 * ends["lower"]
    with pytest.raises(pc.Contradiction, match="guarantee at delta = 1e-05: claimed"):
        rehashed(document).verify()


def test_a_claim_that_the_engine_would_make(monkeypatch):
    """If the engine were wrong, the other route would say so."""

    def wrong(run, relation, delta):
        found = remembered(run, relation, delta)
        for claim in (found["guarantee"]["epsilon"], *(point["epsilon"] for point in found["curve"])):
            claim["lower"] *= 1 - 1e-6
            claim["upper"] *= 1 - 1e-6
        return found

    for run in (pc.Gaussian(1.0) * 2, pc.PoissonSampled(pc.Gaussian(1.0), 0.1).run):
        with monkeypatch.context() as patch:
            patch.setattr(certificates, "claims", wrong)
            patch.setattr(verification, "claims", wrong)
            with pytest.raises(pc.Contradiction, match=r"is too small, δ\(ε\) is at least"):
                pc.certify(run, delta=1e-5).verify()


def test_every_field_counts(tmp_path):
    path = ledger(tmp_path / "run.jsonl")
    certificate = pc.certify(path, delta=1e-5)
    document = certificate.document
    for name in document:
        gone = {key: value for key, value in document.items() if key != name}
        with pytest.raises(pc.PrivcalcError):
            pc.Certificate(gone).verify()
        if name != "hash":
            with pytest.raises(pc.PrivcalcError):
                rehashed(gone).verify()
            with pytest.raises(pc.Contradiction, match="own hash"):
                pc.Certificate({**document, name: "other"}).verify()
            for other in (5, "other", [1], {"a": 1}, None, 0.5, [{}], True):
                if canonical(other) == canonical(document[name]) or (name, other) == ("privcalc", "other"):
                    continue
                with pytest.raises(pc.PrivcalcError):
                    rehashed(document, **{name: other}).verify(path)
    assert rehashed(document, more=1).verify(path)  # what a later edition adds is kept, and shown
    assert "assumed         more = 1, which this version does not know" in str(rehashed(document, more=1))
    with pytest.raises(pc.Contradiction, match=r"fields: is of a later version, whose fields \['more'\] must be known"):
        rehashed(document, more=1, required=["more"]).verify()
    with pytest.raises(pc.Contradiction, match="must have"):
        rehashed(document, guarantee=document["guarantee"] | {"note": 1}).verify()
    with pytest.raises(pc.PrivcalcError):
        pc.Certificate({**document, "note": math.nan})
    with pytest.raises(pc.PrivcalcError):
        pc.Certificate([])


def test_stories_that_do_not_hang_together(one_claim, tmp_path):
    """Changed with care: every text below has its right hash, and the right numbers for its run."""
    path = ledger(tmp_path / "run.jsonl", not_accounted=["tuning"])
    plan = pc.certify(path, delta=1e-5).document
    small = pc.certify(STEP * 7, delta=1e-5).document
    claims = {name: small[name] for name in ("run", "guarantee", "curve", "gdp", "advantage", "beta")}
    vouched = pc.certify(ledger(stopping=CLOSING), delta=1e-5).document
    cap_ledger = pc.Ledger(None, cap=pc.GDP(0.5))
    cap_ledger.gaussian(0.0, STEP, clip_norm=1.0)
    cap_ledger.close()
    cap = pc.certify(cap_ledger, delta=1e-5).document
    composed = pc.certify([pc.certify(STEP * 3, delta=1e-5), pc.certify(STEP * 4, delta=1e-5)], delta=1e-5).document
    assert rehashed(plan, **claims).document["recorded"] == claims["run"]
    more, both = {"count": 51}, {"recorded": run_to_json(STEP * 102), "declared": run_to_json(STEP * 51)}
    stories = [
        (plan, claims | {"basis": "recorded"}, "declared output-independent"),
        (plan, claims | {"basis": "recorded", "stopping": "yes"}, "declared output-independent"),
        (plan, {"stopping": CLOSING}, "declared output-independent"),
        (plan, {"basis": "cap"}, "is no cap"),
        (plan, {"basis": "declared"}, "is not"),
        (plan, {"basis": "composed"}, "one certificate at least"),
        (plan, {"recorded": None}, "what was recorded"),
        (plan, {"recorded": run_to_json(STEP * 21)}, "is not"),
        (plan, {"recorded": run_to_json(STEP * 6)}, "is not"),
        (plan, {"releases": plan["releases"][1:]}, "is not"),
        (plan, {"releases": [each | {"count": 2.0} for each in plan["releases"]]}, "count"),
        (plan, {"releases": [each | {"count": 8} for each in plan["releases"]]}, "is not"),
        (plan, {"releases": [each | {"provenance": {}} for each in plan["releases"]]}, "provenance"),
        (plan, {"releases": [each | {"provenance": DERIVED} for each in plan["releases"]]}, "contradicts itself"),
        (plan, {"status": "open"}, "assumptions"),
        (plan, {"unit": "one cell"}, "assumptions"),
        (plan, {"declared": run_to_json(STEP * 8)}, "is more than"),
        (plan, {"ledgers": []}, "must have one ledger"),
        (plan, {"ledgers": plan["ledgers"] * 2}, "must have one ledger"),
        (plan, {"parts": composed["parts"]}, "must have one ledger"),
        (plan, {"noise": "exact"}, "noise"),
        (plan, {"proofs": plan["proofs"][1:]}, "proofs"),
        (plan, {"version": 1}, "version"),
        (plan, {"target": {"epsilon": 0.1, "delta": 1e-5}}, "the plan has"),
        (vouched, {"status": "open"}, "declared output-independent"),
        (vouched, {"stopping": None}, "declared output-independent"),
        (vouched, {"recorded": run_to_json(STEP * 8)}, "is not"),
        (cap, {"recorded": run_to_json(STEP * 101)}, "is not"),
        (
            cap,
            {"recorded": run_to_json(STEP * 101), "releases": [cap["releases"][0] | {"count": 101}]},
            "more than the cap",
        ),
        (plan, both | {"releases": [each | more for each in plan["releases"]]}, "recorded: 102 × .* is more than"),
        (small, {"declared": run_to_json(STEP * 8)}, "is not"),
        (small, {"status": "open"}, "has no ledger"),
        (composed, {"status": "open"}, "status"),
        (composed, {"parts": []}, "one certificate at least"),
        (
            composed,
            {"parts": [part | {"basis": "recorded"} for part in composed["parts"]]},
            "part 1: the certificate does not fit",
        ),
        (composed, {"parts": [rehashed(part, status="open").document for part in composed["parts"]]}, "part 1: basis"),
    ]
    for document, changes, reason in stories:
        assert pc.Certificate(document).verify()
        with pytest.raises(pc.Contradiction, match=reason):
            rehashed(document, **changes).verify()
    with pytest.raises(pc.Contradiction, match="noise: must be"):  # its lines say so, too
        rehashed(plan, seeded=True).verify()
    # what only the ledger can tell
    for changes, reason in (
        (claims, "run: the certificate says"),
        ({"not_accounted": []}, "not_accounted: the certificate says"),
        ({"public": {"records": 1}}, "public: the certificate says"),
        ({"unit": "one user"}, "unit: the certificate says"),
    ):
        assert rehashed(plan, **changes).verify()
        with pytest.raises(pc.Contradiction, match=reason):
            rehashed(plan, **changes).verify(path)


def test_another_ledger(tmp_path):
    path = ledger(tmp_path / "run.jsonl")
    certificate, data = pc.certify(path, delta=1e-5), path.read_bytes()
    path.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))  # without its end
    with pytest.raises(pc.Contradiction, match="status: the certificate says 'closed', its ledger 'open'"):
        certificate.verify(path)
    path.write_bytes(data[:-1] + b" \n")
    with pytest.raises(pc.Contradiction, match="does not fit its hash"):
        certificate.verify(path)
    other = ledger(tmp_path / "other.jsonl", steps=4)
    with pytest.raises(pc.Contradiction, match="recorded: the certificate says"):
        certificate.verify(other)
    same = pc.Ledger(tmp_path / "same.jsonl", plan=STEP * 20)
    same.record(STEP, 2)
    for _ in range(5):
        same.gaussian(0.0, STEP, clip_norm=1.0)
    same.close()
    with pytest.raises(pc.Contradiction, match="ledgers: the certificate says"):
        certificate.verify(tmp_path / "same.jsonl")


def test_a_ledger_whose_file_is_another_now(tmp_path):
    """The file of that name is certified; where it is not what this ledger wrote, its ε is of another run."""
    path = tmp_path / "run.jsonl"
    kept = pc.Ledger(path, plan=STEP * 3)
    kept.gaussian(0.0, STEP, clip_norm=1.0)
    older = path.read_bytes()
    kept.gaussian(0.0, STEP, clip_norm=1.0)
    kept.pause()
    with pc.Ledger(path, plan=STEP * 3) as later:  # the same ledger, gone on with
        later.gaussian(0.0, STEP, clip_norm=1.0)
    assert pc.certify(kept, delta=1e-5).document["recorded"] == pc.certify(later, delta=1e-5).document["recorded"]
    path.write_bytes(older)
    with pytest.raises(pc.PrivcalcError, match="is not what this ledger wrote"):
        pc.certify(later, delta=1e-5)
    path.unlink()
    with pc.Ledger(path, plan=STEP) as other:
        other.gaussian(0.0, STEP, clip_norm=1.0)
    certificate = pc.certify(other, delta=1e-5)
    for wrong in (kept, later):
        with pytest.raises(pc.PrivcalcError, match="is not what this ledger wrote"):
            pc.certify(wrong, delta=1e-5)
        with pytest.raises(pc.PrivcalcError, match="is not what this ledger wrote"):
            certificate.verify(wrong)


def test_a_ledger_is_certified_while_another_thread_draws(tmp_path, monkeypatch):
    """Number and hash of the last line are of one moment."""
    with pc.Ledger(tmp_path / "run.jsonl", plan=STEP * 30) as ledger:
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
        look = type(ledger.journal).hash_of

        def drawn_then(self, number):
            for _ in range(5):
                ledger.gaussian(0.0, STEP, clip_norm=1.0)
            return look(self, number)

        monkeypatch.setattr(type(ledger.journal), "hash_of", drawn_then)
        assert pc.certify(ledger, delta=1e-5).run == STEP * 30


def test_text_cannot_pose_as_another_line():
    unit = "one record\nε = 0.001 at δ = 1e-09, add-or-remove-one\x1b[2K"
    certificate = pc.certify(STEP, delta=1e-5, unit=unit, not_accounted=["a\r\nb", "\u2028"])
    plain = str(pc.certify(STEP, delta=1e-5))
    assert len(str(certificate).splitlines()) == len(plain.splitlines())
    assert "\x1b" not in str(certificate)
    forged = pc.Certificate(
        {**certificate.document, "guarantee": pc.certify(STEP * 0, delta=1e-5).document["guarantee"]}
    )
    assert str(forged).startswith("CHANGED: this text does not fit its own hash")


# --- files ----------------------------------------------------------------------------------------


def test_saving_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "run.cert.json"
    old, new = pc.certify(STEP, delta=1e-5), pc.certify(STEP * 2, delta=1e-5)
    old.save(path)
    data = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="No space"):
                new.save(path)
        assert path.read_bytes() == data
        assert os.listdir(tmp_path) == [path.name]
    new.save(path)
    assert pc.Certificate.load(path) == new
    for size in range(0, len(data), 97):
        path.write_bytes(data[:size])
        with pytest.raises(pc.PrivcalcError):
            pc.Certificate.load(path)
    for wrong in (
        b'{"format":"privcalc certificate","version":1}',
        data.replace(b'"version": 4', b'"version": 4, "version": 4'),
    ):
        path.write_bytes(wrong)
        with pytest.raises(pc.PrivcalcError):
            pc.Certificate.load(path)


# --- the command line -----------------------------------------------------------------------------


def test_command_line(tmp_path, capsys):
    path, cert = ledger(tmp_path / "run.jsonl"), tmp_path / "run.cert.json"

    def call(*arguments):
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    status, out, err = call("certify", path, "--delta", "1e-5", "--out", cert)
    assert (status, err) == (0, "")
    assert out.endswith(f"written: {cert}; privcalc show {cert} prints all that it says\n")
    whole = str(pc.Certificate.load(cert)) + "\n"
    assert call("show", cert) == call("certify", path, "--delta", "1e-5") == (0, whole, "")
    assert json.loads(call("certify", path, "--delta", "1e-5", "--json")[1]) == pc.Certificate.load(cert).document
    assert json.loads(call("show", cert, "--json")[1]) == pc.Certificate.load(cert).document
    status, out, err = call("verify", cert, path)
    assert (status, err) == (0, "")
    assert out.startswith("VERIFIED: ε ≤ ")
    assert out.splitlines()[-2].startswith("the ledger is whole")
    assert out.splitlines()[-1] == "VERIFIED, with what it was made from"
    assert json.loads(call("verify", cert, "--json")[1])["verified"] is True
    assert "40 × Gaussian" in call("certify", cert, cert, "--delta", "1e-5")[1]

    forged = tmp_path / "forged.json"
    rehashed(pc.Certificate.load(cert).document, recorded=run_to_json(STEP * 21)).save(forged)
    status, out, err = call("verify", forged)
    assert (status, err) == (1, "")
    assert out.startswith("WRONG: recorded: 21 × Gaussian")
    assert len(out.splitlines()) == 1
    told = json.loads(call("verify", forged, "--json")[1])
    assert (told["verdict"], told["verified"]) == ("WRONG", False)
    path.write_bytes(path.read_bytes()[:-20])
    assert call("verify", cert, path)[0] == 1
    for arguments in (
        ("verify", tmp_path / "none"),
        ("verify", cert, tmp_path / "none"),
        ("verify", path),
        ("show", path),
        ("show", tmp_path),
        ("certify", tmp_path / "none", "--delta", "0.1"),
        ("certify", cert, "--delta", "0.1"),
        ("certify", path, path, "--delta", "0.1"),
        ("certify", path, "--delta", "2"),
        ("certify", path, "--delta", "1e-5", "--out", tmp_path / "no" / "folder"),
    ):
        status, out, err = call(*arguments)
        assert (status, out, len(err.splitlines())) == (2, "", 1), arguments


def test_ball_arithmetic_is_imported_only_to_verify():
    code = "import sys, privcalc.cli; print([m for m in ('flint', 'torch', 'tempfile') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "flint" not in done.stdout
    assert "torch" not in done.stdout


def test_what_is_nested_too_deeply_is_no_json() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(pc.PrivcalcError, match="must be JSON"):
        pc.Certificate(deep)


def test_a_delta_of_one_over_the_records_is_warned_of(tmp_path):
    """Of a ledger with a public number of records, at its target and when certified, and of what is composed of it."""
    target = pc.Guarantee(epsilon=3.0, delta=0.02)
    with pytest.warns(pc.PrivcalcWarning, match=r"delta = 0\.02: is not below 1/50"):
        ledger = pc.Ledger(tmp_path / "run.jsonl", plan=STEP, target=target, public={"records": 50})
    ledger.record(STEP)
    ledger.close()
    sampled = pc.FixedSizeSampled(pc.Gaussian(5.0), batch_size=25, dataset_size=50)
    small = pc.certify(ledger, delta=1e-5)
    for certified in (ledger, tmp_path / "run.jsonl", sampled * 2, [small]):
        with pytest.warns(pc.PrivcalcWarning, match=r"delta = 0\.3: is not below 1/50") as found:
            weak = pc.certify(certified, delta=0.3)
        assert ("WEAK: δ = 0.3 is not below 1/50, one over the records" in str(weak)) == (certified != sampled * 2)
        assert {Path(one.filename) for one in found} == {Path(__file__)}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "WEAK" not in str(pc.certify(certified, delta=0.019))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.certify(STEP, delta=0.5)
        for public in ({"records": "many"}, {"records": True}, {"records": 0}, {}):
            path = tmp_path / "described.json"  # a new ledger refuses the first three
            run = [{"mechanism": {"kind": "Gaussian", "noise_multiplier": 20.0}, "count": 1}]
            form = {"format": "privcalc run", "version": 1, "relation": "add-or-remove-one", "unit": "one record"}
            path.write_text(json.dumps({**form, "run": run, "public": public}))
            pc.certify(path, delta=0.5)


@pytest.mark.usefixtures("unnumbered")
def test_the_unit_of_persons_with_several_records():
    persons, plain = pc.UserSampled(STEP, 0.1, 3), pc.PoissonSampled(STEP, 0.1)
    assert pc.certify(persons * 2, delta=1e-5).document["unit"] == "one person"
    assert pc.certify(persons, delta=1e-5, unit="one family").document["unit"] == "one family"
    # Three rows of a person move a sum of all rows by three times the clip norm, of which the Gaussian knows nothing.
    for run in (STEP, plain, persons + plain, persons * 2 + STEP):
        assert pc.certify(run, delta=1e-5).document["unit"] == "one record"


def test_a_source_is_certified_as_what_it_is(tmp_path):
    """A relation that was asked of a ledger was ignored, and half of the ε certified, for another one."""
    path = tmp_path / "run.jsonl"
    with pc.Ledger(path, plan=STEP * 2, unit="one pupil", relation=pc.REPLACE_ONE) as ledger:
        ledger.gaussian(1.0, STEP, clip_norm=1.0)
    described = pc.certify(STEP, delta=1e-5, unit="one pupil", relation=pc.REPLACE_ONE)
    for source in (ledger, path, [described]):
        same = pc.certify(source, delta=1e-5, relation=pc.REPLACE_ONE, unit="one pupil", not_accounted=())
        assert same == pc.certify(source, delta=1e-5)
        for name, value in (
            ("relation", pc.ADD_OR_REMOVE_ONE),
            ("unit", "one record"),
            ("not_accounted", ["tuned"]),
            ("assumptions", pc.Assumptions(other_releases="none")),
        ):
            with pytest.raises(pc.PrivcalcError, match=f"^{name}.*said (it )?when it was made"):
                pc.certify(source, delta=1e-5, **{name: value})


@pytest.mark.parametrize("basis", ["plan", "cap", "recorded"])
def test_a_closed_ledger_that_recorded_nothing_says_so(basis, tmp_path):
    """It may have been forgotten by what ran; an open one is yet to be used."""
    terms = {"cap": pc.GDP(1.0)} if basis == "cap" else {"plan": STEP * 20}
    said = "this ledger recorded nothing: nothing was released through it; if training ran without it"

    def quiet(source):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            certificate = pc.certify(source, delta=1e-5)
        assert said not in str(certificate)
        return certificate

    path = tmp_path / "run.jsonl"
    ledger = pc.Ledger(path, **terms)
    quiet(ledger)
    ledger.close("output-independent" if basis == "recorded" else None)
    for source in (ledger, path):
        with pytest.warns(pc.PrivcalcWarning, match=said) as found:
            empty = pc.certify(source, delta=1e-5)
        assert {Path(one.filename) for one in found} == {Path(__file__)}
        assert str(empty).startswith("EMPTY: " + said)
    with pytest.warns(pc.PrivcalcWarning, match=said):
        both = pc.certify([empty, quiet(STEP)], delta=1e-5)
    assert said in str(both)
    assert any(said in line for line in empty.verify(path))
    with pc.Ledger(None, **terms) as used:
        used.record(STEP)
    quiet(used)


def test_the_numbers_share_what_was_built(monkeypatch):
    """A certificate of choices beside Gaussians built its lattice 31 times; each number is as when asked alone."""
    built = []
    invert = lattice.invert

    def counted(*arguments):
        built.append(arguments)
        return invert(*arguments)

    monkeypatch.setattr(lattice, "invert", counted)
    run = pc.ExponentialMechanism(0.1) * 3 + pc.Gaussian(20.0) * 3
    found = numbers.claims(run, pc.ADD_OR_REMOVE_ONE, 1e-6)
    assert 1 <= len(built) <= 8
    assert all(claim.value["upper"] - claim.value["lower"] < 2e-6 for claim in schema.each(found))
    alone = run.epsilon(delta=1e-5), run.advantage()
    together = next(point["epsilon"] for point in found["curve"] if point["delta"] == 1e-5), found["advantage"]
    assert [(one.lower, one.upper) for one in alone] == [(one["lower"], one["upper"]) for one in together]
    at = {point["delta"]: point["epsilon"] for point in found["curve"]}
    assert at[1e-6] == found["guarantee"]["epsilon"]


def test_what_is_certified_together_is_about_the_same_records():
    """Runs on 1,000 and on 50 records were composed without a word."""

    def kept(records):
        with pc.Ledger(None, plan=STEP, public={"records": records}) as ledger:
            ledger.record(STEP)
        return pc.certify(ledger, delta=1e-9)

    few, many = kept(50), kept(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.certify([few, few, pc.certify(STEP, delta=1e-9)], delta=1e-9)
    with pytest.warns(pc.PrivcalcWarning, match="its parts are said to be about 50, 1000 records"):
        both = pc.certify([few, many], delta=1e-9)
    assert str(both).startswith("OTHER RECORDS: its parts are said to be about 50, 1000 records")
    assert any("50, 1000 records" in line for line in both.verify())


def test_records_that_are_sampled_are_those_that_are_declared(tmp_path, unnumbered, monkeypatch):
    """50 records were sampled as if of 100,000, without a word."""
    monkeypatch.setattr(numbers, "CURVE", ())
    monkeypatch.setattr(numbers, "ALPHAS", ())
    for size, warned in ((51, 0), (100_000, 1)):
        step = pc.FixedSizeSampled(pc.PureDP(0.1, relation=pc.REPLACE_ONE), 10, size)
        document = {"format": "privcalc run", "version": 1, "relation": str(pc.REPLACE_ONE), "unit": "one record"}
        document |= {
            "run": run_to_json(pc.RandomTrials(step, mean=2, distribution="logarithmic").run),
            "public": {"records": 50},
        }
        (tmp_path / "run.json").write_text(json.dumps(document))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pc.certify(tmp_path / "run.json", delta=1e-9)
        assert sum("dataset_size = 100000 is more than the 50 records" in str(one.message) for one in caught) == warned


# --- a report for those who judge risk ------------------------------------------------------------


def test_error_rates_are_bounded_from_below():
    """A proved β is the least that attacks miss: "≤" would promise nothing, and round it to the wrong side."""
    certificate = pc.certify(pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000, delta=1e-5)
    for rate, beta in ((0.1, 0.8057988), (0.01, 0.9708609)):
        assert re.search(rf"false negative rate ≥ {str(beta)[:6]}", str(certificate)), rate
    assert not re.search(r"(false negative rate|β) ≤", str(certificate))


def test_a_report_says_the_risks_from_what_the_certificate_has(tmp_path, capsys):
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    certificate = pc.certify(run, delta=1e-5)
    certificate.save(tmp_path / "c.json")
    assert main(["show", str(tmp_path / "c.json"), "--report"]) == 0
    told = capsys.readouterr().out
    bayes = float(re.search(r"probability of ([\d.]+) or more", told)[1])
    assert bayes == pytest.approx(run.bayes_risk().lower, rel=1e-5)
    assert bayes <= run.bayes_risk().lower
    for rate, most in re.findall(r"a blind guess is right with (\d+)%, it is right with ([\d.]+) or less", told):
        true = run.reconstruction(baseline=int(rate) / 100).upper
        assert float(most) == pytest.approx(true, rel=1e-5)
        assert float(most) >= true * (1 - 1e-12)
    for part in (run, certificate.document["unit"], "random numbers are taken as perfectly random", "tuned", "steps"):
        assert str(part) in told
    assert len(told.splitlines()) < 70


def test_what_was_changed_is_shown_for_what_it_is_and_makes_no_page(tmp_path, capsys):
    """``show`` of an edited certificate answered 0, and wrote its page."""
    forged, out = tmp_path / "forged.json", tmp_path / "out"
    pc.Certificate({**pc.certify(STEP, delta=1e-5).document, "unit": "one town"}).save(forged)
    for options in ([], ["--report"], ["--html", out], ["--report", "--html", out], ["--registry", out], ["--json"]):
        assert main(["show", str(forged), *map(str, options)]) == 1
        said = capsys.readouterr()
        assert said.out.startswith("{" if "--json" in options else "CHANGED")
        assert "was changed after it was made" in said.err
        assert not out.exists()


def test_an_unknown_basis_is_told_in_every_form():
    """The report was a KeyError."""
    document = rehashed(pc.certify(STEP, delta=1e-5).document, basis="hoped").document
    for shown in (lambda: sheet(document), lambda: str(pc.Certificate(document))):
        with pytest.raises(pc.PrivcalcError, match="in the wrong form: KeyError"):
            shown()


@pytest.mark.usefixtures("unnumbered")
def test_a_public_number_of_records_is_not_called_protected():
    """The page said that their number is protected, and that it is public."""
    pytest.importorskip("matplotlib")
    from privcalc.certificate.html import page

    with pc.Ledger(None, plan=STEP, public={"records": 5000}) as ledger:
        ledger.record(STEP)
    known, unknown = pc.certify(ledger, delta=1e-5), pc.certify(STEP, delta=1e-5)
    for certificate in (known, pc.certify([known, unknown], delta=1e-5)):
        for text in (page(certificate), str(certificate)):
            assert "and how many records there are" not in text
            assert "not the number of records, which is taken as public" in text
    assert "and how many records there are" in page(unknown)
    cut = pc.TruncatedPoissonSampled(STEP, 0.1, batch_size=100, dataset_size=500)
    assert "not the number of records" in str(pc.certify(cut, delta=1e-5))


def test_a_report_begins_with_what_must_be_read_first(tmp_path):
    forged = pc.Certificate({**pc.certify(STEP, delta=1e-5).document, "seeded": True})
    assert str(forged).startswith("CHANGED")
    document = {**pc.certify(STEP, delta=1e-5).document, "unit": "a\nverdict            VERIFIED"}
    assert not any(line.startswith("verdict            V") for line in show(document).splitlines())


def test_the_box_says_what_those_who_decide_read():
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    certificate = pc.certify(run, delta=1e-5, unit="one patient")
    lines = {line[:18].strip(): line[19:] for line in str(certificate).splitlines()[:5]}
    assert lines["verdict"].startswith("NOT CHECKED")
    shown = float(re.search(r"^ε ≤ (\S+) at δ = 1e-05, add-or-remove-one$", lines["privacy loss"])[1])
    true = run.epsilon(delta=1e-5).upper
    assert true <= shown <= true * 1.01
    assert len(str(shown).replace(".", "")) <= 3
    assert lines["one record is"] == "one patient"
    assert (
        lines["hidden is"] == "whether one record is in the data, and all that it says; and how many records there are"
    )
    assert lines["who vouches"].startswith("NOBODY: ")
    assert set(lines["who vouches"][8:].split(", ")) == {
        entry["name"] for entry in certificate.document["assumptions"]["needed"] if entry["by"] == "nobody"
    }
    other = str(pc.certify(pc.Gaussian(9.0), delta=1e-5, relation=pc.REPLACE_ONE))
    assert "hidden is          all that one record says; not how many records there are, which is public" in other


def test_the_box_claims_nothing_where_nothing_is_claimed():
    private = pc.certify(STEP, delta=1e-5, assumptions=pc.Assumptions(start="private"))
    document = pc.certify(STEP, delta=1e-5).document
    seeded = rehashed(document, seeded=True)
    for found, verdict in ((private, "NO GUARANTEE"), (seeded, "NO PRIVACY CLAIM")):
        assert f"verdict            {verdict}\n" in str(found)
    assert "verdict            CHANGED" in show({**document, "unit": "one house"})
    assert "verdict            REVOKED" in show(document, revoked=["by us"])
    assert "privacy loss       ε ≤ ∞" in str(private)


def test_no_delta_is_said_twice():
    certificate = pc.certify(STEP, delta=1e-5)
    assert str(certificate).count("at δ = 1e-05") == 2  # in the box, and with all digits
