"""A mechanism is the only place that knows of itself: one that says too little is no class; a made-up one works."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_up
import numpy as np
import pytest
from made_up import MadeUpNoise, MadeUpSampled
from strategies import EXAMPLES, refuses

import privcalc as pc
from privcalc.certificate.assumed import SEEN, words
from privcalc.ledger.assumptions import PAGES
from privcalc.mechanisms.guarantees import Stated
from privcalc.pairs.dominating import Pairs
from privcalc.run import KINDS, NEEDS, Additive, Mechanism, known
from privcalc.serial import parts, run_from_json, run_to_json

SAID: dict[str, Any] = {"kind": None, "page": "custom.md", "needs": ("guarantee",), "draws": None, "scheme": None}


def defined(said: dict[str, Any]) -> type[Mechanism]:
    return type("MadeUp", (Mechanism,), {**said, "pairs": lambda self, relation: pc.Gaussian(1.0).pairs(relation)})


@pytest.mark.parametrize("name", SAID)
def test_a_mechanism_that_does_not_say_all_is_no_class(name: str) -> None:
    assert defined(SAID)
    with pytest.raises(pc.PrivcalcError, match=f"MadeUp: must say {name}"):
        defined({key: value for key, value in SAID.items() if key != name})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"needs": ("normalizer",)}, "needs = .'normalizer',.: must be a tuple of some of clip_norm"),
        ({"needs": "keys"}, "needs = 'keys'"),
        ({"needs": ()}, "needs = ..: must have one of clip_norm"),
        ({"needs": ("normaliser", "monotone", "iterates")}, "must have one of clip_norm"),
        ({"draws": "batch"}, "scheme = None"),
        ({"kind": "Gaussian"}, "kind = 'Gaussian': is privcalc.mechanisms.gaussian.Gaussian already"),
    ],
)
def test_what_it_says_is_checked(said: dict[str, Any], message: str) -> None:
    before = dict(KINDS)
    with pytest.raises(pc.PrivcalcError, match=message):
        defined({**SAID, **said})
    assert before == KINDS


def test_what_others_are_made_of_need_not_say_it() -> None:
    class Room(Mechanism):
        """No pairs yet."""

    class Inside(Room):
        """Some."""

        kind = None
        page = "custom.md"
        needs = ("guarantee",)
        draws = None
        scheme = None

        def pairs(self, relation: pc.Relation) -> Pairs:
            return pc.Gaussian(1.0).pairs(relation)

    assert Inside() * 2
    for made in (Inside(), pc.Parallel([pc.Gaussian(2.0), Inside()])):  # a class that does not say `nulled`
        with pytest.raises(pc.PrivcalcError, match=r"Mechanism\.nulled"):
            pc.PoissonSampled(made, 0.1)


def test_every_need_is_a_line_of_certificates() -> None:
    assert not (left := set(NEEDS) - {*PAGES, *SEEN}), f"add to Assumptions in ledger/assumptions.py: {left}"
    assert not (left := set(NEEDS) - set(words())), f"say what it means in certificate/pages/words.toml: {left}"
    for kind in known().values():
        assert kind.draws is None or callable(getattr(pc.Ledger, kind.draws)), kind


def test_a_mechanism_that_nobody_asked_for_is_read_all_the_same() -> None:
    """The public names are loaded when they are asked for."""
    code = (
        'from privcalc.serial import mechanism_from_json; print(mechanism_from_json({"kind": "Laplace", "scale": 2}))'
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "Laplace(scale=2.0)\n"
    )


# --- made up ---

NOISE = MadeUpNoise(4.0)
STEP = MadeUpSampled(NOISE, sides=10)


@pytest.mark.parametrize(
    "mechanism", [NOISE, STEP, pc.PoissonSampled(NOISE, 0.1), MadeUpSampled(pc.Gaussian(4.0))], ids=str
)
def test_what_is_made_up_is_written_down_and_certified(mechanism: Mechanism) -> None:
    assert run_from_json(run_to_json(mechanism * 3)) == mechanism * 3
    certificate = pc.certify(mechanism * 3, delta=1e-5)
    assert certificate.verify(seconds=math.inf)
    needed = {entry["name"]: entry for entry in certificate.document["assumptions"]["needed"]}
    assert {"normaliser", "clip_norm"} <= set(needed)
    assert ("sampling" in needed) == mechanism.sampled
    assert f"{type(mechanism).page}" in str(certificate)


def test_a_relation_that_was_not_thought_through_is_refused() -> None:
    with pytest.raises(pc.PrivcalcError, match="relation = replace-one: MadeUpNoise has no guarantee"):
        pc.certify(NOISE, delta=1e-5, relation=pc.REPLACE_ONE)


def test_a_made_up_sampler_says_how_batches_are_drawn() -> None:
    needed = pc.certify(STEP * 3, delta=1e-5).document["assumptions"]["needed"]
    assert [(entry["value"], entry["page"]) for entry in needed if entry["name"] == "sampling"] == [
        ("dice", "poisson.md")
    ]
    assert pc.certify(STEP, delta=1e-5, assumptions=pc.Assumptions(sampling="dice"))
    with pytest.raises(pc.PrivcalcError, match="sampling = 'poisson'"):
        pc.certify(STEP, delta=1e-5, assumptions=pc.Assumptions(sampling="poisson"))


def test_a_ledger_draws_made_up_batches_and_records_made_up_noise(tmp_path: Path) -> None:
    known = MadeUpSampled(pc.Gaussian(4.0))
    ledger = pc.Ledger(tmp_path / "run.jsonl", plan=known * 2 + NOISE)
    for _ in range(2):
        batch = ledger.batch(known, records=60)
        ledger.gaussian(np.zeros(2), known, clip_norm=1.0, error=0.0, batch=batch)
    ledger.record(NOISE)
    with pytest.raises(pc.PrivcalcError, match="must be Gaussian"):
        ledger.gaussian(np.zeros(2), NOISE, clip_norm=1.0)
    certificate = pc.certify(ledger, delta=1e-5)
    assert certificate.verify(ledger, seconds=math.inf)
    assert {"normaliser", "clip_norm", "sampling"} <= {e["name"] for e in certificate.document["assumptions"]["needed"]}


def test_the_command_line_and_claims_know_a_made_up_sampler() -> None:
    asked = ["epsilon", "--noise-multiplier", "4", "--steps", "3", "--delta", "1e-5", "--json"]
    asked += ["--sampler", "dice", "--sides", "10"]
    given = {"noise_multiplier": 4.0, "batch_size": 10, "steps": 3}
    code = f"""
import made_up
made_up.name_it()
from privcalc.claims.readings import run_of
from privcalc.cli import main
print(run_of("dice", {given}))
main({asked})
"""
    env = {**os.environ, "PYTHONPATH": f"{Path(made_up.__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    read, told = done.stdout.splitlines()
    run = MadeUpSampled(pc.Gaussian(4.0), 10) * 3
    assert read == str(run)
    assert json.loads(told)["epsilon"]["upper"] == run.epsilon(delta=1e-5).upper


# --- no caveat is forgotten ---


OWN = [kind for _, kind in sorted(known().items()) if kind.__module__.startswith("privcalc.")]


def test_every_class_has_an_example_and_a_public_name() -> None:
    shown = set(map(type, EXAMPLES))
    assert not (left := [kind.__name__ for kind in OWN if kind not in shown]), (
        f"add an example to tests/strategies.py of {left}"
    )
    named = set(pc.__all__)
    assert not (left := [kind.kind for kind in OWN if kind.kind not in named]), f"add to privcalc/__init__.pyi: {left}"


@pytest.mark.parametrize("kind", OWN)
def test_every_relation_is_on_the_page(kind: type[Mechanism]) -> None:
    """Proved there or refused. Laws pass over what a mechanism refuses, so that something must be left."""
    if issubclass(kind, Stated):  # a guarantee under the one relation that its caller names
        return
    assert "guarantee" not in kind.needs, "guarantee is of what a caller states; name what bounds a record's part"
    page = (Path(__file__).parents[2] / "proofs" / kind.page).read_text().lower()
    named = [relation for relation in pc.Relation if str(relation) in page]
    whole = re.search(r"(any|every|all) relations?", page)
    assert whole or len(named) == len(pc.Relation), f"say in {kind.page} what holds under each relation; it has {named}"
    uses = [one for one in EXAMPLES if type(one) is kind]
    refused = {relation for relation in pc.Relation for one in uses if refuses(one, relation)}
    assert refused != set(pc.Relation)
    assert refused <= set(named)


def test_noise_on_a_sum_cannot_forget_what_bounds_it() -> None:
    with pytest.raises(pc.PrivcalcError, match=r"Forgetful: needs = \(\): must have normaliser and clip_norm"):

        class Forgetful(Additive):
            """Noise on a sum, of which a certificate would say nothing."""

            needs = ()


def test_every_sampler_is_in_the_table() -> None:
    table = (Path(__file__).parents[2] / "docs" / "samplers.md").read_text(encoding="utf-8")
    for kind in OWN:
        assert kind.scheme is None or f"`pc.{kind.__name__}(" in table, (
            f"add a line to docs/samplers.md for {kind.__name__}"
        )


@pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: type(one).__name__)
@pytest.mark.usefixtures("unnumbered")
def test_a_certificate_says_all_that_its_mechanisms_need(one: Mechanism) -> None:
    relation = next(relation for relation in pc.Relation if not refuses(one, relation))
    said = pc.Assumptions(parts="disjoint") if "parts" in one.needs else pc.Assumptions()
    found = pc.certify(one, delta=1e-5, relation=relation, assumptions=said).document["assumptions"]["needed"]
    inner = [one, *parts(one)]
    assert {name for each in inner for name in each.needs} <= {entry["name"] for entry in found}
    assert any(each.scheme for each in inner) == ("sampling" in {entry["name"] for entry in found})
