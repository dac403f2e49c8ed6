"""Whether a certificate fits itself: its hash, its fields, what it certifies; everything but the numbers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privcalc.certificate.claims import pages
from privcalc.certificate.schema import FIELDS, FORMAT, IDEALISED, READ, TYPES, digest, same_pages
from privcalc.certificate.story import of_parts
from privcalc.errors import NotConfirmedError, PrivcalcError, count
from privcalc.ledger.assumptions import allowed, check_form
from privcalc.ledger.terms import OUTPUT_INDEPENDENT, filter_of
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.rigorous.proof import PROVED, pages_of_proof
from privcalc.run import Run
from privcalc.serial import Json, relation_from_json, run_from_json

__all__ = ["check", "of_part", "wrong_form"]


@contextlib.contextmanager
def wrong_form() -> Iterator[None]:
    """Whatever goes wrong with a document of the wrong form is told as that."""
    try:
        yield
    except PrivcalcError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise PrivcalcError(f"the certificate lacks something, or has it in the wrong form: {error!r}") from error


def check(document: Mapping[str, Any]) -> None:
    """Check everything but the numbers: the hash, the fields, and that the run that is certified follows from the rest.

    Raises:
        PrivcalcError: with the reason.
        NotConfirmedError: if it is a composition of version 2, which does not contain its parts.
    """
    with wrong_form():
        _check(document)


@contextlib.contextmanager
def of_part(number: int) -> Iterator[None]:
    """Whatever is wrong is said to be so in this part, counted from 0."""
    try:
        yield
    except NotConfirmedError as error:
        raise NotConfirmedError(f"part {number + 1}: {error}") from error
    except PrivcalcError as error:
        raise PrivcalcError(f"part {number + 1}: {error}") from error


def _check(document: Mapping[str, Any]) -> None:
    if document["hash"] != digest(document):
        raise PrivcalcError("the certificate does not fit its own hash: it was changed after it was made")
    if set(document) != set(FIELDS):
        raise PrivcalcError(f"fields: must be exactly {', '.join(FIELDS)}; not so {sorted(set(document) ^ set(FIELDS))}")
    if document["format"] != FORMAT or type(document["version"]) is not int or document["version"] not in READ:
        found, versions = f"format = {document['format']!r}, version = {document['version']!r}", " or ".join(map(str, READ))
        raise PrivcalcError(f"{found}: must be {FORMAT!r}, {versions}")
    for name, kinds in TYPES.items():
        if not isinstance(document[name], kinds):
            raise PrivcalcError(f"{name} = {str(document[name])[:80]}: must be {' or '.join(kind.__name__ for kind in kinds)}")
    if any(not isinstance(item, str) for item in document["not_accounted"]):
        raise PrivcalcError(f"not_accounted = {document['not_accounted']}: must be texts")
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    if not same_pages(document["proofs"], expected := pages(run, relation, document)):
        raise PrivcalcError(f"proofs: must be {expected}, not {str(document['proofs'])[:500]}")
    if document["idealised"] != list(IDEALISED):
        raise PrivcalcError(f"idealised: must be {list(IDEALISED)}, not {str(document['idealised'])[:500]}")
    basis, status, ledgers, parts = (document[name] for name in ("basis", "status", "ledgers", "parts"))
    if status not in ("open", "closed"):
        raise PrivcalcError(f"status = {status!r}: must be 'open' or 'closed'")
    claimed = [(point["epsilon"]["upper"], point["delta"]) for point in [document["guarantee"], *document["curve"]]]
    for proof in document["confirmed"]:
        if set(proof) != {"route", "epsilon", "delta", "pages"} or (proof["epsilon"], proof["delta"]) not in claimed:
            raise PrivcalcError(f"confirmed: must name claims of this certificate, with route and pages, not {proof!r}")
        if proof["route"] != PROVED or not same_pages(proof["pages"], pages_of_proof(run, relation)):
            raise PrivcalcError(f"confirmed: must be by {PROVED!r}, on the pages {pages_of_proof(run, relation)}, not {proof!r}")
    for ledger in ledgers:
        if set(ledger) != {"hash", "lines", "torn"} or not isinstance(ledger["hash"], str) or count("lines", ledger["lines"]) < 1:
            raise PrivcalcError(f"ledgers: must have hash, lines and torn, not {ledger!r}")
    if basis == "composed":
        _composed(document)
        return
    if basis == "declared":
        same("run", run, document["declared"])
        if ledgers or parts or status != "closed" or document["recorded"] is not None or document["stopping"] is not None:
            raise PrivcalcError("basis = 'declared': a described run has no ledger")
    elif basis in ("plan", "cap", "recorded"):
        if len(ledgers) != 1 or parts or document["recorded"] is None:
            raise PrivcalcError(f"basis = {basis!r}: must have one ledger, and what was recorded in it")
        vouched = status == "closed" and document["stopping"] == OUTPUT_INDEPENDENT
        if vouched != (basis == "recorded") or (document["stopping"] is not None and not vouched):
            raise PrivcalcError(
                f"basis = {basis!r}, status = {status!r}, stopping = {document['stopping']!r}: what was recorded is certified "
                "where a closed ledger's end was declared output-independent, and only there"
            )
        _within(document, run)
    else:
        raise PrivcalcError(f"basis = {basis!r}: unknown")
    _assumed(document, run)


def _assumed(document: Mapping[str, Any], run: Run) -> None:
    """The assumptions that the run needs."""
    found, basis = document["assumptions"], document["basis"]
    if set(found) != {"declared", "needed"}:
        raise PrivcalcError(f"assumptions: must have declared and needed, not {sorted(found)}")
    check_form(found["needed"])
    used, outside = run_from_json(document["recorded"] or []), run_from_json(document["declared"])
    expected = allowed(found, document["version"], run, basis, used, outside)
    if not any(same_listing(found, one) for one in expected):
        raise PrivcalcError(f"assumptions: must be {expected[0]['needed']}, not {found['needed']}")


def same_listing(found: Json, expected: Json) -> bool:
    """Whether two lists of assumptions are one, up to pages that have moved."""
    pairs = itertools.zip_longest(found["needed"], expected["needed"], fillvalue={"page": ""})
    return bool(found["declared"] == expected["declared"]) and all(
        {**one, "page": ""} == {**two, "page": ""} and same_pages([one["page"]], [two["page"]]) for one, two in pairs
    )


def same(name: str, run: Run, other: Sequence[Any]) -> None:
    """Whether two runs agree."""
    if run_from_json(other) != run:
        raise PrivcalcError(f"{name}: {run} is not {run_from_json(other)}")


def _composed(document: Mapping[str, Any]) -> None:
    """All that a composition inherits, from the parts that it contains."""
    if document["version"] == 2:
        raise NotConfirmedError(
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
            same(name, run_from_json(document[name]), expected)
        elif document[name] != expected:
            raise PrivcalcError(f"{name}: must be {str(expected)[:500]}, as in the parts, not {str(document[name])[:500]}")


def _within(document: Mapping[str, Any], run: Run) -> None:
    """Nothing recorded is beyond what is certified, nothing declared beyond what was recorded."""
    recorded, declared = run_from_json(document["recorded"]), run_from_json(document["declared"])
    for name, inner, outer in (("declared", declared, recorded), ("recorded", recorded, run)):
        if name == "recorded" and document["basis"] == "cap":
            mechanism, uses = run.entries[0] if run.entries else (None, 0)
            if len(run.entries) != 1 or uses != 1 or not isinstance(mechanism, (GDP, ZCDP, RDP, PureDP)):
                raise PrivcalcError(f"run: {run} is no cap")
            if filter_of(mechanism).would_exceed(recorded):
                raise PrivcalcError(f"recorded: {recorded} is more than the cap {run}")
            continue
        most = dict(outer.entries)
        for mechanism, uses in inner.entries:
            if most.get(mechanism, 0) < uses:
                raise PrivcalcError(f"{name}: {uses} × {mechanism} is more than {outer}")
    if document["basis"] == "recorded":
        same("run", run, document["recorded"])
