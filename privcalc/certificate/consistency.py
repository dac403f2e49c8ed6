"""Whether a certificate fits itself: its hash, its fields, what it certifies; everything but the numbers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from privcalc.attacks.replay.findings import KINDS
from privcalc.certificate.claims import pages
from privcalc.certificate.listing import allowed, check_form
from privcalc.certificate.schema import BUDGET, CONFIRMED, LEDGER, NOISE, REPLAYED, SCHEMA, digest, idealised, same_pages
from privcalc.certificate.story import of_parts
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError, count
from privcalc.ledger.book import on_grid
from privcalc.ledger.terms import OUTPUT_INDEPENDENT, check_label, check_warning, filter_of
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.proof import pages_of_proof
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import Json, check_fields, relation_from_json, run_from_json

__all__ = ["RULES", "check", "contradicted", "of_part", "same_listing", "wrong_form"]


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
        if document["hash"] != digest(document):
            raise PrivcalcError("the certificate does not fit its own hash: it was changed after it was made")
        noise = document.get("noise")
        full = {"noise": NOISE[0], **document}  # which certificates did not say before
        check_fields("fields", {name: value for name, value in full.items() if name != "replayed"}, SCHEMA)
        if "replayed" in document:
            _replayed(document["replayed"])
        if any(not isinstance(item, str) for item in document["not_accounted"]):
            raise PrivcalcError(f"not_accounted = {document['not_accounted']}: must be texts")
        run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
        if not same_pages(document["proofs"], expected := pages(run, relation, document, full["noise"])):
            raise PrivcalcError(f"proofs: must be {expected}, not {str(document['proofs'])[:500]}")
        _confirmed(document, run, relation)
        for ledger in document["ledgers"]:
            found = check_fields("ledgers", {"labels": [], "warnings": [], "budget": None, **ledger}, LEDGER)
            count("lines", found["lines"], least=1)
            if len({check_label(label) for label in found["labels"]}) < len(found["labels"]):
                raise PrivcalcError(f"labels: must each occur once, not {str(found['labels'])[:500]}")
            if len({check_warning(text) for text in found["warnings"]}) < len(found["warnings"]):
                raise PrivcalcError(f"warnings: must each occur once, not {str(found['warnings'])[:500]}")
            if "budget" in ledger:
                spent = check_fields("budget", ledger["budget"], BUDGET)
                check_label(spent["dataset"], name="dataset")
                count("lines", spent["lines"], least=1)
        RULES[document["basis"]](full, run)
        texts = idealised(noise, declared=bool(document["declared"]))
        if document["basis"] != "composed" and document["idealised"] != texts:
            raise PrivcalcError(f"idealised: must be {texts}, not {str(document['idealised'])[:500]}")


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
    if document["version"] == 2:
        raise NotConfirmed(
            "parts: a composition of version 2 does not contain its parts, so that it cannot be checked by itself; "
            "compose their certificates again"
        )
    for number, part in enumerate(document["parts"]):
        with of_part(number):
            if not isinstance(part, Mapping) or part.get("basis") == "composed":
                raise PrivcalcError("must be a certificate, and no composition")
            check(part)
    for name, expected in of_parts(document["parts"]).items():
        if name in ("run", "declared"):
            _same(name, run_from_json(document[name]), expected)
        elif document[name] != expected:
            raise PrivcalcError(f"{name}: must be {str(expected)[:500]}, as in the parts, not {str(document[name])[:500]}")


def _declared(document: Mapping[str, Any], run: Run) -> None:
    """A run described by hand has no ledger, and nothing that a ledger would say."""
    _same("run", run, document["declared"])
    ledger = document["ledgers"] or document["parts"] or document["recorded"] is not None or document["stopping"] is not None
    if ledger or document["status"] != "closed" or document["noise"] != NOISE[0]:
        raise PrivcalcError("basis = 'declared': a described run has no ledger, and none has drawn its noise")
    _assumed(document, run, Run(()))


def _plan(document: Mapping[str, Any], run: Run) -> None:
    """A plan is certified whole, whatever was recorded of it."""
    recorded = _of_ledger(document, vouched=False)
    _part_of("recorded", recorded, run)
    _assumed(document, run, recorded)


def _cap(document: Mapping[str, Any], run: Run) -> None:
    """A cap is certified whole, whatever its filter admitted."""
    recorded = _of_ledger(document, vouched=False)
    mechanism, uses = run.entries[0] if len(run.entries) == 1 else (None, 0)
    if uses != 1 or not isinstance(mechanism, (GDP, ZCDP, RDP, PureDP)):
        raise PrivcalcError(f"run: {run} is no cap")
    if filter_of(mechanism).would_exceed(recorded):
        raise PrivcalcError(f"recorded: {recorded} is more than the cap {run}")
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
    """What one ledger recorded, of which what was declared is a part, and whose end the caller vouched for, or did not."""
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
    if document["noise"] == NOISE[2]:
        others = dict(outside.entries)
        drawn = [mechanism for mechanism, uses in recorded.entries if uses > others.get(mechanism, 0)]
        if status != "closed" or not drawn or not all(on_grid(mechanism) for mechanism in drawn):
            raise PrivcalcError(f"noise = {NOISE[2]!r}: must be of a closed ledger that drew sums only")
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


def _assumed(document: Mapping[str, Any], run: Run, recorded: Run) -> None:
    """The assumptions are those that the run needs."""
    found, outside = check_form(document["assumptions"]), run_from_json(document["declared"])
    expected = allowed(found, document["version"], run, document["basis"], recorded, outside)
    if not any(same_listing(found, one) for one in expected):
        raise PrivcalcError(f"assumptions: must be {expected[0]['needed']}, not {found['needed']}")


def same_listing(found: Json, expected: Json) -> bool:
    """Whether two lists of assumptions are one, up to pages that have moved."""
    pairs = itertools.zip_longest(found["needed"], expected["needed"], fillvalue={"page": ""})
    return bool(found["declared"] == expected["declared"]) and all(
        {**one, "page": ""} == {**two, "page": ""} and same_pages([one["page"]], [two["page"]]) for one, two in pairs
    )
