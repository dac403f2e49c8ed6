"""Whether a certificate fits itself: its hash, its fields, what it certifies; everything but the numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from privcalc.attacks.replay.words import KINDS
from privcalc.certificate import earlier
from privcalc.certificate.assumed import Log, check_form, lines, noise_of, summary, weakest
from privcalc.certificate.schema import (
    BUDGET,
    CONFIRMED,
    LEDGER,
    NOISE,
    READ,
    RELEASE,
    REPLAYED,
    VERSION,
    changed,
    fields_of,
    pages,
    same_pages,
)
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError, count
from privcalc.ledger.assumptions import OUTPUT_INDEPENDENT, Assumptions, Provenance, Release, run_of
from privcalc.log.lines import check_label, check_warning
from privcalc.proof import pages_of_proof
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import (
    Json,
    canonical,
    check_fields,
    mechanism_from_json,
    relation_from_json,
    run_from_json,
    run_to_json,
)

__all__ = ["RULES", "check", "contradicted", "log_of", "of_part", "of_parts", "same_listing", "story", "wrong_form"]


@contextlib.contextmanager
def wrong_form() -> Iterator[None]:
    """Whatever goes wrong with a document of the wrong form is told as that."""
    try:
        yield
    except PrivcalcError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise PrivcalcError(f"the certificate lacks something, or has it in the wrong form: {error!r}") from error


@contextlib.contextmanager
def contradicted() -> Iterator[None]:
    """Whatever is wrong with a document that is checked contradicts it; what could not be checked does not."""
    try:
        with wrong_form():
            yield
    except (Contradiction, NotConfirmed):
        raise
    except PrivcalcError as error:
        raise Contradiction(str(error)) from error


@contextlib.contextmanager
def of_part(number: int) -> Iterator[None]:
    """Whatever is wrong is said to be so in this part, counted from 0."""
    try:
        yield
    except PrivcalcError as error:
        raise type(error)(f"part {number + 1}: {error}") from error


def check(document: Mapping[str, Any]) -> None:
    """Check everything but the numbers: the hash, the fields, and that the run that is certified follows from the rest.

    Raises:
        Contradiction: with the reason.
        NotConfirmed: if it is a composition of version 2, which does not contain its parts.
    """
    with contradicted():
        if changed(document):
            raise PrivcalcError("the certificate does not fit its own hash: it was changed after it was made")
        version = document.get("version")
        if type(version) is not int or version not in READ:
            raise PrivcalcError(f"version = {version!r}: must be one of {', '.join(map(str, READ))}")
        unsaid = {} if version == VERSION else {"noise": NOISE[0]}  # which was not said at first
        full = {**unsaid, **document}
        rest = {name: value for name, value in full.items() if name != "replayed"}
        check_fields("fields", rest, fields_of(version), more=version == VERSION)
        if "replayed" in document:
            _replayed(document["replayed"])
        if any(not isinstance(item, str) for item in document["not_accounted"]):
            raise PrivcalcError(f"not_accounted = {document['not_accounted']}: must be texts")
        for ledger in document["ledgers"]:
            _ledger(ledger, version)
        check_form(document["assumptions"])
        run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
        RULES[document["basis"]](document, run)
        if not same_pages(document["proofs"], expected := pages(full)):
            raise PrivcalcError(f"proofs: must be {expected}, not {str(document['proofs'])[:500]}")
        _confirmed(document, run, relation)


def _ledger(ledger: Any, version: int) -> None:
    """What is said of a ledger has its form."""
    nothing: Json = {"labels": [], "warnings": [], "start": [], "budget": None, "persons": None, "version": 2}
    found = check_fields("ledgers", nothing | ledger, LEDGER, more=version == VERSION)
    count("lines", found["lines"], least=1)
    if len({check_label(label) for label in found["labels"]}) < len(found["labels"]):
        raise PrivcalcError(f"labels: must each occur once, not {str(found['labels'])[:500]}")
    if len({check_warning(text) for text in found["warnings"]}) < len(found["warnings"]):
        raise PrivcalcError(f"warnings: must each occur once, not {str(found['warnings'])[:500]}")
    if "budget" in ledger:
        spent = check_fields("budget", ledger["budget"], BUDGET)
        check_label(spent["dataset"], name="dataset")
        count("lines", spent["lines"], least=1)


def _replayed(sections: object) -> None:
    """What is said of replays has its form, and says that it is no guarantee."""
    if not isinstance(sections, list) or not sections:
        raise PrivcalcError(f"replayed = {str(sections)[:200]}: must be a list of what was replayed, or not be there")
    for section in sections:
        found = check_fields("replayed", section, REPLAYED)
        count("releases", found["releases"], least=1)
        relation_from_json(found["relation"])
        if any(not isinstance(name, str) for name in found["added"]) or not set(map(str, found["found"])) <= set(KINDS):
            raise PrivcalcError(f"replayed: added must be texts, and found some of {', '.join(KINDS)}")


def _confirmed(document: Mapping[str, Any], run: Run, relation: Relation) -> None:
    """What is said to be proved is a claim of this certificate."""
    claimed = [(point["epsilon"]["upper"], point["delta"]) for point in [document["guarantee"], *document["curve"]]]
    for proof in document["confirmed"]:
        check_fields("confirmed", proof, CONFIRMED)
        if (proof["epsilon"], proof["delta"]) not in claimed:
            raise PrivcalcError(f"confirmed: must name claims of this certificate, not {proof!r}")
        if not same_pages(proof["pages"], expected := pages_of_proof(run, relation)):
            raise PrivcalcError(f"confirmed: must be on the pages {expected}, not {proof!r}")


# --- one rule for each basis ---


def _composed(document: Mapping[str, Any], _: Run) -> None:
    """All that a composition inherits follows from the parts that it contains."""
    version = document["version"]
    if version == 2:
        raise NotConfirmed(
            "parts: a composition of version 2 does not contain its parts, so that it cannot be checked by itself; "
            "compose their certificates again"
        )
    for number, part in enumerate(document["parts"]):
        with of_part(number):
            if not isinstance(part, Mapping) or part.get("basis") == "composed":
                raise PrivcalcError("must be a certificate, and no composition")
            check(part)
            if part["version"] > version:
                raise PrivcalcError(f"version = {part['version']}: is later than that of its composition, {version}")
    for name, expected in of_parts(document["parts"], version).items():
        if name in ("run", "declared"):
            _same(name, run_from_json(document[name]), expected)
        elif canonical(document[name]) != canonical(expected):
            raise PrivcalcError(
                f"{name}: must be {str(expected)[:500]}, as in the parts, not {str(document[name])[:500]}"
            )


def _declared(document: Mapping[str, Any], run: Run) -> None:
    """A run described by hand has no ledger, and nothing that a ledger would say."""
    _same("run", run, document["declared"])
    ledger = (
        document["ledgers"] or document["parts"] or document["recorded"] is not None or document["stopping"] is not None
    )
    if ledger or document["status"] != "closed" or document.get("releases"):
        raise PrivcalcError("basis = 'declared': a described run has no ledger, and none has drawn its noise")
    _assumed(document, run)


def _plan(document: Mapping[str, Any], run: Run) -> None:
    """A plan is certified whole, whatever was recorded of it."""
    recorded = _of_ledger(document, vouched=False)
    _part_of("recorded", recorded, run)
    _assumed(document, run, recorded)


def _cap(document: Mapping[str, Any], run: Run) -> None:
    """A cap is certified whole, whatever its filter admitted; that it kept it ``verify.fits`` checks."""
    recorded = _of_ledger(document, vouched=False)
    if [uses for _, uses in run.entries] != [1]:
        raise PrivcalcError(f"run: {run} is no cap")
    _assumed(document, run, recorded)


def _recorded(document: Mapping[str, Any], run: Run) -> None:
    """What was recorded is certified where the caller vouched for the end."""
    recorded = _of_ledger(document, vouched=True)
    _part_of("recorded", recorded, run)
    _same("run", run, document["recorded"])
    _assumed(document, run, recorded)


RULES: dict[str, Callable[[Mapping[str, Any], Run], None]] = {
    "plan": _plan,
    "cap": _cap,
    "recorded": _recorded,
    "declared": _declared,
    "composed": _composed,
}
"""For each basis, what raises unless the run that is certified follows from the rest; it returns what was recorded."""


def _of_ledger(document: Mapping[str, Any], *, vouched: bool) -> Run:
    """The run of one ledger, of which the declared one is a part; the caller vouched for its end, or did not."""
    basis, status, stopping = (document[name] for name in ("basis", "status", "stopping"))
    if len(document["ledgers"]) != 1 or document["parts"] or document["recorded"] is None:
        raise PrivcalcError(f"basis = {basis!r}: must have one ledger, and what was recorded in it")
    if (status == "closed" and stopping == OUTPUT_INDEPENDENT) != vouched or (stopping is not None and not vouched):
        raise PrivcalcError(
            f"basis = {basis!r}, status = {status!r}, stopping = {stopping!r}: what was recorded is certified "
            "where a closed ledger's end was declared output-independent, and only there"
        )
    recorded = run_from_json(document["recorded"])
    _part_of("declared", outside := run_from_json(document["declared"]), recorded)
    if document["version"] == VERSION:
        for release in document["releases"]:
            check_fields("releases", release, RELEASE, more=True)
        log = log_of(document)
        _same("recorded", recorded, run_to_json(run_of(log.releases)))
        _same("declared", outside, run_to_json(run_of(log.releases, seen=False)))
    return recorded


def _part_of(name: str, inner: Run, outer: Run) -> None:
    """Raise unless a run is a part of another."""
    most = dict(outer.entries)
    for mechanism, uses in inner.entries:
        if most.get(mechanism, 0) < uses:
            raise PrivcalcError(f"{name}: {uses} × {mechanism} is more than {outer}")


def _same(name: str, run: Run, other: Sequence[Any]) -> None:
    """Raise unless two runs agree."""
    if run_from_json(other) != run:
        raise PrivcalcError(f"{name}: {run} is not {run_from_json(other)}")


def _assumed(document: Mapping[str, Any], run: Run, recorded: Run | None = None) -> None:
    """What is said of the process follows from the log."""
    found, version = check_form(document["assumptions"]), document["version"]
    Assumptions.from_json(found["declared"]).check(run, document["basis"], recorded)
    if version == VERSION:
        log = log_of(document)
        said: Json = {
            "noise": noise_of(log),
            "assumptions": {"declared": found["declared"], "needed": lines(log)},
        }
    else:
        said = earlier.check_words(document)
    for name, expected in said.items():
        same = (
            same_listing(found, expected, version)
            if name == "assumptions"
            else document.get(name, expected) == expected
        )
        if not same:
            raise PrivcalcError(f"{name}: must be {str(expected)[:3000]}, not {str(document.get(name))[:3000]}")


def same_listing(found: Json, expected: Json, version: int) -> bool:
    """Whether two lists of assumptions are one, up to pages that have moved; before version 4 in any order."""
    one, two = (listing["needed"] for listing in (found, expected))
    if version < VERSION:
        one, two = (sorted(each, key=lambda e: (e["name"], e["value"], e["by"])) for each in (one, two))
    return (
        canonical(found["declared"]) == canonical(expected["declared"])
        and len(one) == len(two)
        and all(
            {**a, "page": ""} == {**b, "page": ""} and same_pages(a["page"].split(", "), b["page"].split(", "))
            for a, b in zip(one, two, strict=True)
        )
    )


# --- what follows from the log, and from parts ---

NOTHING: Json = {
    "stopping": None,
    "recorded": None,
    "target": None,
    "seeded": False,
    "releases": [],
    "ledgers": [],
    "parts": [],
}


def log_of(document: Mapping[str, Any]) -> Log:
    """The log that a certificate, which is no composition, tells.

    Raises:
        PrivcalcError: if it is none.
    """
    if document["version"] < VERSION:
        return earlier.log_of(document)
    ledger: Json = next(iter(document["ledgers"]), {})
    run = run_from_json(document["run"])
    releases = [
        Release(
            mechanism_from_json(each["mechanism"]),
            count("count", each["count"], least=1),
            Provenance.from_json(each["provenance"]),
        )
        for each in document["releases"]
    ]
    return Log(
        declared=document["assumptions"]["declared"],
        basis=document["basis"],
        unit=document["unit"],
        releases=[Release(*entry) for entry in run.entries] if document["basis"] == "declared" else releases,
        labelled="labels" in ledger,
        persons=ledger.get("persons"),
        each_row=ledger.get("version", VERSION) > 2,
        open=document["status"] == "open",
        plan=run,
        seeded=document["seeded"],
        named="start" in ledger,
    )


def said_by(part: Mapping[str, Any]) -> list[Json]:
    """The lines of a part; of one of an earlier version those too that it did not know."""
    needed = part["assumptions"]["needed"]
    if part["version"] == VERSION:
        return list(needed)
    names = {entry["name"] for entry in needed}
    return [*needed, *(line for line in lines(log_of(part)) if line["name"] not in names)]


def of_parts(parts: Sequence[Mapping[str, Any]], version: int = VERSION) -> Json:
    """The story of a composition: everything that it inherits from its parts, and the parts themselves.

    Args:
        parts: the documents of certificates that are no compositions; each counts, also where two are equal.
        version: of the composition.

    Raises:
        PrivcalcError: if there are none, or their relations or units differ.
    """
    if not parts:
        raise PrivcalcError("parts: must be one certificate at least")
    for name in ("relation", "unit"):
        if len(found := sorted({part[name] for part in parts})) > 1:
            raise PrivcalcError(f"{name}: the certificates must have the same one, not {found}")
    run = Run.of(run_from_json(part["run"]) for part in parts)
    details = {
        "unit": parts[0]["unit"],
        "public": {},
        "not_accounted": sorted({item for part in parts for item in part["not_accounted"]}),
        "declared": run_to_json(Run.of(run_from_json(part["declared"]) for part in parts)),
        "seeded": any(part["seeded"] for part in parts),
        "ledgers": [ledger for part in parts for ledger in part["ledgers"]],
        "parts": list(parts),
    }
    if version < VERSION:
        details |= earlier.composed(parts, run)
    else:
        needed = weakest(*map(said_by, parts))
        noise = summary(noise_of(log_of(part)) for part in parts)
        details |= {"assumptions": {"declared": {}, "needed": needed}, "noise": noise}
    status = "closed" if all(part["status"] == "closed" for part in parts) else "open"
    return story(run, relation_from_json(parts[0]["relation"]), "composed", status, details)


def story(run: Run, relation: Relation, basis: str, status: str, details: Json) -> Json:
    """All that a certificate says but its numbers; fields that are not told are empty."""
    known = {"basis": basis, "status": status, "relation": str(relation), "run": run_to_json(run), **details}
    return {
        name: value for name, value in {**NOTHING, **known}.items() if name != "releases" or "idealised" not in known
    }
