"""Composed certificates: all they inherit is recomputed from the parts inside, and the parts' ledgers must fit."""

import copy
import functools

import pytest

import privcalc as pc
from privcalc.certificate import story
from privcalc.certificate.consistency import of_parts
from privcalc.certificate.schema import digest
from privcalc.serial import run_to_json

STEP = pc.Gaussian(noise_multiplier=20.0)


@pytest.fixture(autouse=True)
def checks(checks_here):
    """All claims are confirmed, in this process."""


def rehashed(document, **changes):
    """Changed by someone who knows how the hash is made."""
    changed = copy.deepcopy(dict(document)) | changes
    return pc.Certificate({**changed, "hash": digest(changed)})


def ledger(path, steps=3, uses=20, **terms):
    made = pc.Ledger(path, plan=STEP * uses, **terms)
    for _ in range(steps):
        made.gaussian(0.0, STEP, clip_norm=1.0)
    made.record(STEP)
    made.close()
    return path


verify = functools.partial(pc.Certificate.verify, seconds=float("inf"))
"""Here and now: a fresh interpreter for each of many checks takes long."""


@pytest.fixture(scope="module", autouse=True)
def few_numbers():
    """Of each certificate: their number is not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "CURVE", (1e-3,))
        patch.setattr(story, "ALPHAS", (0.05,))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two ledgers, one of them seeded, a described run, and their composition."""
    folder = tmp_path_factory.mktemp("parts")
    said = pc.Assumptions(normaliser="public")
    paths = [
        ledger(folder / "one.jsonl", not_accounted=["tuning"], assumptions=said),
        ledger(folder / "two.jsonl", uses=30, seed=1),
    ]
    parts = [pc.certify(path, delta=1e-5) for path in paths]
    parts.append(pc.certify(STEP * 5, delta=1e-7, not_accounted=["the mean"]))
    return paths, parts, pc.certify(parts, delta=1e-6)


def test_a_composition_contains_its_parts(made):
    paths, parts, both = made
    assert both.document["parts"] == [part.document for part in parts]
    assert both.run == STEP * 55
    lines = verify(both, *paths)
    assert lines[-1] == "every ledger given is that of a part, and every ledger that a part names was given"
    assert sum(line.startswith("part 2: δ(") for line in lines) == sum(line.startswith("δ(") for line in lines)
    assert verify(both)
    assert verify(both, *paths[::-1])
    # a composition of compositions is one of all their parts
    assert pc.certify([both, parts[0]], delta=1e-6).document["parts"] == [*both.document["parts"], parts[0].document]
    # the order of the parts says nothing about the run
    assert verify(pc.certify(parts[::-1], delta=1e-6), *paths)


def forgeries(document):
    """What a composition inherits, changed where it is written; every hash is right."""
    needed = document["assumptions"]["needed"]
    yield "seeded", {"seeded": False}
    yield "not_accounted", {"not_accounted": []}
    yield "not_accounted", {"not_accounted": ["tuning"]}
    yield "ledgers", {"ledgers": []}
    yield "ledgers", {"ledgers": document["ledgers"][:1]}
    yield "assumptions", {"assumptions": {"declared": {}, "needed": []}}
    yield "assumptions", {"assumptions": {"declared": {}, "needed": [{**entry, "by": "ledger"} for entry in needed]}}
    yield "assumptions", {"assumptions": {"declared": {"normaliser": "public"}, "needed": needed}}
    yield "declared", {"declared": []}
    yield "public", {"public": {"records": 9}}
    yield "unit", {"unit": "one cell"}
    yield "stopping", {"stopping": "output-independent"}
    yield "recorded", {"recorded": run_to_json(STEP)}
    yield "target", {"target": {"epsilon": 9.0, "delta": 1e-5}}
    yield "status", {"status": "open"}
    yield "run", {"run": run_to_json(STEP * 54)}


@pytest.mark.parametrize("number", range(16))
def test_nothing_inherited_can_be_changed(made, number):
    reason, changes = list(forgeries(made[2].document))[number]
    with pytest.raises(pc.PrivcalcError, match=reason):
        verify(rehashed(made[2].document, **changes))


def test_parts_are_checked_by_the_same_rules(made):
    """What would be refused of a certificate is refused of a part, with all hashes right."""
    _, parts, both = made
    first = parts[0].document
    for changes in (
        {"basis": "recorded"},
        {"recorded": run_to_json(STEP * 21)},
        {"noise": "exact"},
        {"releases": []},
        {"assumptions": {**first["assumptions"], "needed": []}},
        {"ledgers": []},
        {"guarantee": {**first["guarantee"], "epsilon": {"lower": 0.1, "upper": 0.1, "route": "closed form"}}},
    ):
        forged = rehashed(first, **changes).document
        with pytest.raises(pc.PrivcalcError, match="part 1"):
            verify(rehashed(both.document, **of_parts([forged, *both.document["parts"][1:]])))
    for other in ([], [first, 5], [{"basis": "plan"}], [both.document], {}, None, [first["parts"]]):
        with pytest.raises(pc.PrivcalcError):
            verify(rehashed(both.document, parts=other))


def test_a_part_dropped(made):
    """The file is then an honest one of the rest; the ledgers tell."""
    paths, parts, both = made
    rest = pc.certify(parts[:1], delta=1e-6)
    assert verify(rest, paths[0])
    with pytest.raises(pc.PrivcalcError, match=r"two\.jsonl.*no part"):
        verify(rest, *paths)
    with pytest.raises(pc.PrivcalcError, match=r"part 2.*not given"):
        verify(both, paths[0])
    with pytest.raises(pc.PrivcalcError, match="no part"):
        verify(both, *paths, paths[0])
    # two equal runs have equal ledgers, and count twice
    twice = pc.certify([parts[0], parts[0]], delta=1e-6)
    assert twice.run == STEP * 40
    assert verify(twice, paths[0], paths[0])
    with pytest.raises(pc.PrivcalcError, match="not given"):
        verify(twice, paths[0])
    # a part that was made one without its ledger is no longer that ledger's
    bare = pc.certify(STEP * 20, delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match="no part"):
        verify(pc.certify([bare, parts[1]], delta=1e-6), *paths)
    # a part whose story is not its ledger's
    with pytest.raises(pc.PrivcalcError, match=r"part 2: public"):
        verify(pc.certify([parts[0], rehashed(parts[1].document, public={"records": 7})], delta=1e-6), *paths)
    with pytest.raises(pc.PrivcalcError, match="noise: must be"):  # that it was seeded its lines say, too
        pc.certify([parts[0], rehashed(parts[1].document, seeded=False)], delta=1e-6)


def test_what_a_file_says_was_proved_is_proved_again(made):
    pytest.importorskip("flint")
    single = made[1][2]
    proved = single.prove()
    assert sum("proved in" in line for line in verify(proved)) == len(proved.document["confirmed"]) > 0
    assert "it says" in str(proved)
    record = proved.document["confirmed"][0]
    for change in ({"route": "a machine-checked proof"}, {"pages": ["gaussian.md"]}, {"pages": []}, {"epsilon": 0.1}):
        with pytest.raises(pc.PrivcalcError, match="confirmed"):
            verify(rehashed(single.document, confirmed=[{**record, **change}]))
    # inside a composition, too
    composed = pc.certify([proved, single], delta=1e-6)
    assert any(line.startswith("part 1: ") and "proved" in line for line in verify(composed))
    forged = rehashed(proved.document, confirmed=[{**record, "route": "x"}]).document
    with pytest.raises(pc.PrivcalcError, match="part 1: confirmed"):
        verify(rehashed(composed.document, parts=[forged, *composed.document["parts"][1:]]))


def test_one_certificate_is_no_list():
    certificate = pc.certify(STEP, delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match=r"give a list: pc.certify\(\[certificate\], …\)"):
        pc.certify(certificate, delta=1e-5)
    for other in (3.0, None, STEP.epsilon(delta=1e-5)):
        with pytest.raises(
            pc.PrivcalcError, match="source: must be a ledger, its path, a run, or a list of certificates"
        ):
            pc.certify(other, delta=1e-5)


def began(start, **terms):
    """A ledger of a run that began from a model."""
    step = pc.PoissonSampled(pc.Gaussian(2.0), 0.1)
    with pc.Ledger(None, plan=step, **terms) as ledger:
        ledger.say(start=start)
        ledger.record(step)
    return ledger


def test_a_certificate_as_start_must_be_composed():
    first, other = (pc.certify(pc.Gaussian(noise), delta=1e-5) for noise in (20.0, 30.0))
    both = pc.certify([first, other], delta=1e-5)
    for start, hashes in ((first, [first.document["hash"]]), (both, [first.document["hash"], other.document["hash"]])):
        ledger = began(start)
        alone = pc.certify(ledger, delta=1e-5)
        assert alone.document["ledgers"][0]["start"] == hashes
        assert not alone.final
        assert all(
            f"TO COMPOSE: it began from a model of the same records, whose certificate has hash {each}" in str(alone)
            for each in hashes
        )
        assert sum("TO COMPOSE" in line for line in alone.verify(ledger)) == len(hashes)
        whole = pc.certify([start, alone], delta=1e-5)
        assert whole.final
        assert "TO COMPOSE" not in str(whole)
        wrong = pc.certify([pc.certify(pc.Gaussian(40.0), delta=1e-5), alone], delta=1e-5)
        assert not wrong.final
    ledger = began("certificate")  # which one was not said
    alone = pc.certify(ledger, delta=1e-5)
    assert not alone.final
    assert "whose certificate is not named" in str(alone)
    both = pc.certify([first, alone], delta=1e-5)  # whichever it began from may not be among them
    assert not both.final
    assert "whose certificate is not named" in str(both)
    assert {line["by"] for line in both.document["assumptions"]["needed"] if line["name"] == "start"} == {"nobody"}


def test_the_start_that_a_ledger_names_cannot_be_left_out_of_its_certificate():
    ledger = began(pc.certify(pc.Gaussian(20.0), delta=1e-5))
    document = dict(pc.certify(ledger, delta=1e-5).document)
    document["ledgers"] = [{name: value for name, value in document["ledgers"][0].items() if name != "start"}]
    needed = document["assumptions"]["needed"]
    unnamed = [line | {"by": "nobody"} if line["name"] == "start" else line for line in needed]
    for lines, wrong in ((needed, "assumptions"), (unnamed, "assumptions|ledgers")):
        document["assumptions"] = document["assumptions"] | {"needed": lines}
        forged = pc.Certificate({**document, "hash": digest(document)})
        with pytest.raises(pc.Contradiction, match=wrong):
            forged.verify(ledger)


def test_a_start_of_other_neighbours_is_refused():
    first = pc.certify(pc.Gaussian(20.0), delta=1e-5)
    for terms in ({"unit": "one person"}, {"relation": pc.REPLACE_ONE}):
        with pytest.raises(pc.PrivcalcError, match="start: must be certified under"):
            began(first, **terms)


def test_a_start_is_kept_when_a_ledger_is_gone_on_with(tmp_path):
    step, first = pc.Gaussian(2.0), pc.certify(pc.Gaussian(20.0), delta=1e-5)
    for _ in range(2):  # said again, it is written down once
        with pc.Ledger(tmp_path / "ledger", plan=step * 2) as ledger:
            ledger.say(start=first)
            ledger.record(step)
            ledger.pause()
    assert (tmp_path / "ledger").read_text().count('"said"') == 1
    assert pc.certify(tmp_path / "ledger", delta=1e-5).document["ledgers"][0]["start"] == [first.document["hash"]]
