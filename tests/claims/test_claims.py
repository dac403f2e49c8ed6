"""Claims of others: what is read into them, what is recomputed, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import math
import re
import sys
from pathlib import Path

import mpmath
import pytest

import privcalc as pc
from benchmarks.claims.__main__ import FOLDER, TARGET, page
from privcalc.claims import Claim, Verdict, check, readings
from privcalc.claims.readings import run_of
from privcalc.claims.schema import PARAMETERS, SCHEMA, samplers, template
from privcalc.cli import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "claims.md").read_text(encoding="utf-8")
SOURCE = {"quote": "as printed", "address": "https://example.org/paper"}
GIVEN = {
    **{"unit": "one person", "relation": "add-or-remove-one", "mechanism": "Gaussian", "sampler": "Poisson"},
    **{"batch_size": 100, "dataset_size": 10_000, "noise_multiplier": 1.0, "steps": 1000, "epochs": 10},
    **{"epsilon": 2.0, "delta": 1e-5, "basis": "PLD"},
}
NOISE = pc.Gaussian(1.0)


def document(**changes):
    """A claim in JSON; None is not stated."""
    given = {**dict.fromkeys(PARAMETERS), **GIVEN, **changes}
    stated = {
        name: {"value": "not stated", "sources": []} if value is None else {"value": value, "sources": [SOURCE]}
        for name, value in given.items()
    }
    return {"format": "privcalc claim", "version": 1, "name": "a model", **stated, "assumptions": [], "evidence": []}


def claim(**changes):
    return Claim(document(**changes))


def test_the_guide_prints_the_schema_and_the_samplers():
    rows = re.findall(r"^\| `.*\|$", GUIDE, flags=re.MULTILINE)
    schema = [f"| `{name}` | {field.says} |" for name, field in SCHEMA.items()]
    named = [
        f"| `{name}` | {one.says} | {', '.join(f'`{need}`' for need in one.needs)} |"
        for name, one in samplers().items()
    ]
    assert rows == schema + named
    assert len(named) == 7


@pytest.mark.parametrize(
    ("sampler", "run"),
    [
        ("full batch", NOISE * 20),
        ("Poisson", pc.PoissonSampled(NOISE, 0.01) * 20),
        ("truncated Poisson", pc.TruncatedPoissonSampled(NOISE, 0.01, batch_size=150, dataset_size=10_000) * 20),
        ("fixed size", pc.FixedSizeSampled(NOISE, batch_size=100, dataset_size=10_000) * 20),
        ("with replacement", pc.WithReplacementSampled(NOISE, batch_size=100, dataset_size=10_000) * 20),
        ("random allocation", pc.RandomAllocation(NOISE, steps=10) * 2),
        ("shuffled", pc.ShuffledEpoch(NOISE) * 2),
    ],
)
def test_a_sampler_is_the_run_of_its_name(sampler, run):
    asked = {**GIVEN, "sample_rate": 0.01, "largest_batch": 150, "steps": 20, "epochs": 2}
    assert run_of(sampler, {name: asked[name] for name in ("noise_multiplier", *samplers()[sampler].needs)}) == run


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_the_ends_are_those_of_the_run(relation):
    (found,) = readings(claim(relation=str(relation)))
    answer = (pc.PoissonSampled(NOISE, 0.01) * 1000).epsilon(delta=1e-5, relation=relation)
    assert (found.lower, found.upper, found.why) == (answer.lower, answer.upper, "")


@pytest.mark.parametrize(("relation", "distance"), [("add-or-remove-one", 1), ("replace-one", 2), ("zero-out", 1)])
def test_a_full_batch_is_the_closed_form(relation, distance):
    """Balle, Wang 2018, Theorem 8."""
    (found,) = readings(claim(sampler="full batch", relation=relation, noise_multiplier=20, steps=206))

    def delta(epsilon):
        mu = distance * mpmath.sqrt(206) / 20
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)

    with mpmath.workdps(30):
        assert delta(mpmath.mpf(found.upper)) <= 1e-5 <= delta(mpmath.mpf(found.lower))


def test_what_is_not_stated_is_open():
    found = {(r.sampler, str(r.relation)) for r in readings(claim(relation=None, sampler=None, steps=1))}
    names = [str(relation) for relation in pc.Relation]
    assert found == {(sampler, name) for sampler in ("Poisson", "fixed size", "shuffled") for name in names}
    cut = {r.sampler for r in readings(claim(sampler=None, largest_batch=150, steps=1))}
    assert cut == {"Poisson", "fixed size", "shuffled", "truncated Poisson"}


def test_alternatives_are_combined():
    found = readings(claim(steps=[900, 1000], noise_multiplier=[1.0, 1.5], sample_rate=0.02))
    assert {(r.given["steps"], r.given["noise_multiplier"], r.given["sample_rate"]) for r in found} == {
        (steps, noise, rate) for steps in (900, 1000) for noise in (1.0, 1.5) for rate in (0.02, 0.01)
    }
    assert len({check(claim(steps=[900, 1000], sample_rate=0.02)).label(r) for r in found}) > 1
    assert len(readings(claim(sample_rate=0.01))) == 1  # the two rates are one


def test_what_is_between_the_ends_is_not_decided():
    given = {"sampler": "truncated Poisson", "relation": "zero-out", "largest_batch": 101, "steps": 3}
    (found,) = readings(claim(**given))
    assert found.lower < found.upper
    ends = {found.upper: "holds", math.nextafter(found.upper, 0): "open", found.lower: "open"}
    ends[math.nextafter(found.lower, 0)] = "fails"
    for epsilon, outcome in ends.items():
        assert found.outcome(epsilon) == outcome
        groups = check(claim(**given, epsilon=epsilon)).groups
        assert [name for name, members in groups.items() if members] == [outcome]


def test_shuffled_batches_never_fail():
    """The pair that dominates need not occur where the order is secret (``proofs/parallel.md``, §2)."""
    for relation in ("zero-out", "replace-one"):
        verdict = check(claim(sampler="shuffled", relation=relation, epsilon=0.01))
        assert verdict.holds is None
        assert verdict.text == f"not decided under: shuffled / {relation}"
    assert check(claim(sampler="shuffled", relation="zero-out", epsilon=30)).holds


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({}, 0, "holds under every reading"),
        ({"epsilon": 1.0}, 1, "does not hold under any reading"),
        (
            {"relation": None},
            3,
            "holds under: Poisson / add-or-remove-one, Poisson / zero-out; not under: Poisson / replace-one",
        ),
        ({"steps": None}, 3, "cannot be recomputed: steps is not stated"),
        ({"mechanism": None, "delta": None}, 3, "cannot be recomputed: mechanism, delta are not stated"),
        ({"epsilon": None}, 3, "cannot be recomputed: epsilon is not stated"),
        (
            {"sampler": ["Poisson", "shuffled"]},
            3,
            "holds under: Poisson / add-or-remove-one; no number under: shuffled",
        ),
        (
            {"sampler": ["Poisson", "shuffled"], "epsilon": 1},
            3,
            "not under: Poisson / add-or-remove-one; no number under: shuffled",
        ),
        ({"sampler": "random allocation", "epochs": 7, "batch_size": None}, 3, "no number under: random allocation"),
    ],
    ids=str,
)
def test_the_command(changes, status, text, tmp_path, capsys):
    path = tmp_path / "claim.json"
    path.write_text(json.dumps(document(**changes)))
    assert main(["claim", "check", str(path)]) == status
    assert capsys.readouterr().out.startswith(f"a model: {text}")
    assert main(["claim", "check", str(path), "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"].startswith(text)
    assert told["holds"] is {0: True, 1: False, 3: None}[status]
    if any(reading["why"] for group in told["readings"].values() for reading in group):
        assert told["upper"] is None  # nothing smaller than what is not known


REFUSED = {
    "sampler = poisson: must be 'fixed size' or 'full batch'": {"sampler": "poisson"},
    "relation = swap: must be 'add-or-remove-one'": {"relation": "swap"},
    "mechanism = Laplace: must be 'Gaussian'": {"mechanism": "Laplace"},
    "steps: value = True: must be str or float or int or list": {"steps": True},
    "steps = True: must be int": {"steps": [True, 2]},
    "steps = 0: must be a whole number": {"steps": 0},
    "steps = 10.0: must be int": {"steps": 10.0},
    "sample_rate = 1.5: must be a probability": {"sample_rate": 1.5},
    "noise_multiplier = 0: must be a finite number > 0": {"noise_multiplier": 0},
    "delta = 1: must be a probability": {"delta": 1},
    "epsilon = -1: must be a finite": {"epsilon": -1},
    "epsilon = [1, 2]: must be one value": {"epsilon": [1, 2]},
    "steps = [10]: must be one value, or a list of two": {"steps": [10]},
    "steps = [10, 10]: must be one value, or a list of two": {"steps": [10, 10]},
    "steps = not stated: must be int": {"steps": [10, "not stated"]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_unknown_values_are_refused(message):
    with pytest.raises(pc.PrivcalcError, match=re.escape(message)):
        claim(**REFUSED[message])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["temperature"], 1, "has 'temperature', which no claim has"),
        (["version"], 2, "version = 2: must be 1"),
        (["steps"], 1000, "steps = 1000: must be dict"),
        (["steps", "note"], "x", "not so ['note']"),
        (["steps", "sources"], [], "must quote what says so, or the value be 'not stated'"),
        (["steps", "value"], "not stated", "must be []"),
        (["steps", "sources", 0], "a paper", "must be an object"),
        (["steps", "sources", 0, "quote"], " ", "must be the text that says so"),
        (["steps", "sources", 0, "address"], "a paper", "must begin with https://"),
        (["assumptions"], [1], "must be a list of texts"),
    ],
    ids=str,
)
def test_forged_claims_are_refused(path, value, message):
    found = copy.deepcopy(document())
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(pc.PrivcalcError, match=re.escape(message)):
        Claim(found)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"steps": 15, "epochs": None}, "15 steps are 0.15 passes over the data set; are they epochs?"),
        ({"epochs": None}, "1000 steps are 10 passes over the data set"),
        ({"steps": None}, "10 epochs are some 1000 steps: state steps, if the sources do"),
        ({"epochs": None, "batch_size": None, "sample_rate": 0.5, "dataset_size": None}, "1000 steps are 500 passes"),
        ({"sampler": "full batch", "batch_size": None, "epochs": None}, None),
        ({"steps": None, "epochs": None}, None),
    ],
    ids=str,
)
def test_the_passes_that_steps_are_are_told(changes, told):
    """Steps that are epochs, or one epoch's, make ε small; nothing contradicts them where no epochs are stated."""
    text = str(Verdict(claim(**changes), []))
    assert told in text if told else "passes" not in text


def test_what_is_unknown_of_a_sampler_is_said_once():
    said = str(check(claim(sampler=None, relation=None, dataset_size=None, batch_size=None, sample_rate=0.01)))
    assert said.count("no number: batch_size, dataset_size: not stated") == 1
    assert "no number under: fixed size" in said
    assert len([line for line in said.splitlines() if line.startswith("  Poisson / ")]) == 3


def test_too_many_readings_are_refused():
    with pytest.raises(pc.PrivcalcError, match="must have at most 200 readings"):
        check(claim(steps=list(range(1, 21)), noise_multiplier=list(range(1, 12))))


def test_the_page_of_verdicts_is_what_the_claims_say():
    assert len(list(FOLDER.glob("*.json"))) >= 4
    assert TARGET.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 10, "epochs": 60}, "steps = 10 with epochs = 60"),
        ({"steps": [1000, 10]}, "steps = 10 with epochs = 10"),
        ({"epochs": [10, 60]}, "epochs = 60 with steps = 1000"),
        ({"largest_batch": 5}, "that is truncated Poisson"),
        ({"sampler": "fixed size", "sample_rate": 0.5, "steps": 20}, "sample_rate = 0.5 with 0.01"),
        ({"sampler": "with replacement", "batch_size": 10, "sample_rate": 0.01}, "sample_rate = 0.01"),
        ({"sampler": "full batch"}, "sampler = full batch with"),
        ({"delta": 0.9, "epsilon": 0.5}, "could be published whole"),
        ({"delta": 1e-4}, "could be published whole"),
        ({"delta": 0.9, "epsilon": 1e-5, "dataset_size": None, "sample_rate": 0.01}, "are they swapped"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_never_said_to_hold(changes, text):
    """Of two parameters that do not fit, a reading uses one: whoever wants a small number states both."""
    made = claim(**{"epsilon": 100.0, **changes})
    verdict = (
        check(made) if "steps" in changes and "sampler" not in changes else Verdict(made, [])
    )  # readings change nothing
    assert verdict.holds is None
    assert "contradicts itself" in verdict.text
    assert text in verdict.text
    assert verdict.contradictions


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 14_040, "epochs": 60, "batch_size": 256, "dataset_size": 60_000},
        {"steps": 14_100, "epochs": 60, "batch_size": 256, "dataset_size": 60_000},
        {"epochs": None, "steps": 3},
        {"dataset_size": None, "sample_rate": 0.01},
    ],
    ids=str,
)
def test_what_fits_is_no_contradiction(changes):
    assert not Verdict(claim(**changes), []).contradictions


@pytest.mark.parametrize("name", ["name", "unit", "basis", "assumptions", "quote", "address"])
def test_no_text_of_a_claim_poses_as_a_verdict(name):
    for text in ("a model\nb: holds under every reading", "a\x1b[2J", "a \u202e b", " "):
        forged = document()
        if name in ("quote", "address"):
            forged["steps"]["sources"] = [{**SOURCE, name: f"https://{text}"}]
        elif name in ("unit", "basis"):
            forged[name]["value"] = text
        else:
            forged[name] = [text] if name == "assumptions" else text
        if text.strip() or name not in ("quote", "address"):
            with pytest.raises(pc.PrivcalcError, match="printable"):
                Claim(forged)


def test_a_template_is_a_claim_of_which_nothing_is_stated(tmp_path, capsys):
    path = str(tmp_path / "claim.toml")
    assert main(["claim", "new", path]) == 0
    text = Path(path).read_text()
    assert all(f"[{name}]" in text for name in PARAMETERS)
    assert Claim.load(path).missing == list(PARAMETERS)
    assert main(["claim", "new", path]) == 2
    assert "must be a new file" in capsys.readouterr().err


def test_a_template_that_was_filled_in_says_what_the_json_says(tmp_path):
    whole = {name: (stated["value"], "it is \"so\"", "https://x.org") for name, stated in document().items()
             if name in PARAMETERS and stated["value"] != "not stated"}  # fmt: skip
    (tmp_path / "claim.toml").write_text(template("a model", whole))
    found = Claim.load(tmp_path / "claim.toml")
    assert str(check(found)).partition("\n")[2] == str(check(Claim(document()))).partition("\n")[2]
    (tmp_path / "claim.toml").write_text("[epsilon\n")
    with pytest.raises(pc.PrivcalcError, match="must be TOML"):
        Claim.load(tmp_path / "claim.toml")


def test_a_claim_is_asked_for_at_a_terminal(tmp_path, monkeypatch):
    path = str(tmp_path / "claim.toml")
    said = {"epsilon": "8", "delta": "1e-5", "steps": "1000", "noise_multiplier": "1.5"}
    lines = ["my model"]
    for name in PARAMETERS:
        lines += [said[name], "it says so", "https://x.org"] if name in said else [""]
    terminal = io.TextIOWrapper(io.BytesIO("\n".join([*lines, ""]).encode()))
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["claim", "new", path]) == 0
    found = Claim.load(path)
    assert (found.name, found.values("epsilon"), found.values("steps")) == ("my model", (8,), (1000,))
    assert set(PARAMETERS) - set(found.missing) == set(said)


def test_a_quick_claim_is_what_its_numbers_say(capsys):
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 10_000
    numbers = ["--noise-multiplier", "1", "--sample-rate", "0.01", "--steps", "10000", "--delta", "1e-5"]
    full = [*numbers, "--sampler", "Poisson", "--relation", "add-or-remove-one"]
    least = run.epsilon(delta=1e-5).upper
    assert main(["claim", "check", *full, "--epsilon", f"{least * 1.001}"]) == 0
    assert main(["claim", "check", *full, "--epsilon", f"{least * 0.999}"]) == 1
    assert main(["claim", "check", *numbers, "--epsilon", f"{least}"]) == 3
    assert main(["claim", "check"]) == main(["claim", "check", "x.json", "--epsilon", "1"]) == 2
    assert "one of both" in capsys.readouterr().err


def test_missing_fields_are_told_in_words():
    with pytest.raises(pc.PrivcalcError, match=r"lacks delta \(its δ\); privcalc claim new"):
        Claim({name: value for name, value in document().items() if name != "delta"})
