"""What a certificate says besides its numbers: of a ledger, of a described run, or of other certificates, its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privcalc.certificate.listing import listed, union
from privcalc.certificate.schema import BUDGET, IDEALISED, NOISE, idealised
from privcalc.errors import PrivcalcError
from privcalc.files import regular
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.book import Book
from privcalc.ledger.journal import Position, entries, lines_of
from privcalc.ledger.terms import OUTPUT_INDEPENDENT, Terms
from privcalc.relation import Relation
from privcalc.run import Mechanism, Run
from privcalc.serial import (
    Field,
    Json,
    canonical,
    check_fields,
    read_json,
    relation_from_json,
    run_from_json,
    run_to_json,
    target_to_json,
)

__all__ = ["described", "of_given", "of_parts", "of_run"]

RUN_FORMAT = "privcalc run"

RUN = {
    **dict.fromkeys(("format", "relation", "unit"), Field((str,))),
    "version": Field((int,)),
    **dict.fromkeys(("run", "not_accounted"), Field((list,))),
    **dict.fromkeys(("public", "assumptions"), Field((dict,))),
}
"""A run that is described by hand."""

DESCRIBED: Json = {
    "format": RUN_FORMAT,
    "version": 1,
    "relation": "add-or-remove-one",
    "unit": "one record",
    "run": [{"count": 100, "mechanism": {"kind": "Gaussian", "noise_multiplier": 20.0}}],
}
"""One of them."""

NOTHING: Json = {"stopping": None, "recorded": None, "target": None, "seeded": False, "ledgers": [], "parts": []}


def of_given(source: str | list[str]) -> Json:
    """The story of a ledger, or of a run described by hand.

    Args:
        source: the path of a file, or the lines of a ledger in memory.

    Raises:
        PrivcalcError: if it is neither, does not fit its hashes, or charges more than it may.
        OSError: if the file cannot be read.
    """
    if isinstance(source, list):
        return _of_ledger((line.encode() for line in source), "the ledger")
    path = regular(source, name="source")
    with path.open("rb") as file:
        if file.read(5) != b'{"n":':
            return of_run(described(read_json(path)))
        file.seek(0)
        return _of_ledger(lines_of(file), path)


def _of_ledger(lines: Iterator[bytes], name: object) -> Json:
    """The story that a ledger's lines tell; ``name`` is what messages call it."""
    position = Position()
    book = Book.read(entries(lines, name, position))
    terms, recorded = book.terms, book.recorded
    vouched = book.closed and book.stopping == OUTPUT_INDEPENDENT
    basis = "recorded" if vouched else "plan" if terms.plan is not None else "cap"
    run, declared = recorded if vouched else terms.bound, Run(tuple(book.declared.items()))
    labels = {"labels": list(book.labels)} if book.labels else {}
    warned = {"warnings": list(book.warnings)} if book.warnings else {}
    budget = {} if book.budget is None else {"budget": {name: book.budget[name] for name in BUDGET}}
    said, by_word = terms.assumptions, book.persons == ("word", None)
    tabled = book.persons is not None
    given = {"each_row": terms.version > 2, "tabled": tabled, "by_word": by_word, "elsewhere": bool(book.elsewhere)}
    needed = listed(said, run, basis, recorded, declared, **given, labelled=bool(labels))
    details = {
        "unit": terms.unit,
        "public": dict(terms.public),
        "assumptions": {"declared": said.declared, "needed": needed},
        "not_accounted": list(terms.not_accounted),
        "stopping": book.stopping,
        "recorded": run_to_json(recorded),
        "declared": run_to_json(declared),
        "target": None if terms.target is None else target_to_json(terms.target),
        "seeded": terms.seeded,
        "noise": _noise(book),
        "idealised": idealised(_noise(book), declared=bool(declared.entries)),
        "ledgers": [{"hash": position.hash, "lines": position.lines, "torn": position.torn} | labels | warned | budget],
    }
    return _story(run, terms.relation, basis, "closed" if book.closed else "open", details)


def _noise(book: Book) -> str:
    """How a ledger drew; sums are bounded if whatever it drew, and will draw, is sums, each with a bound of its error."""
    if book.terms.noise is None:
        return NOISE[0]
    known: dict[Mechanism, bool] = {}
    for mechanism, _, bounded in book.draws:
        known[mechanism] = bounded and known.get(mechanism, True)
    used = [mechanism for mechanism, count in book.drawn.items() if count]
    return NOISE[2] if book.closed and used and all(known.get(mechanism) for mechanism in used) else NOISE[1]


def of_run(terms: Terms) -> Json:
    """The story of a run without a ledger; terms with a plan describe it, so that both have the same checks."""
    run, said = terms.bound, terms.assumptions
    details = {
        "unit": terms.unit,
        "public": dict(terms.public),
        "assumptions": {"declared": said.declared, "needed": listed(said, run, "declared", Run(()), run)},
        "not_accounted": list(terms.not_accounted),
        "declared": run_to_json(run),
        "noise": NOISE[0],
        "idealised": idealised(NOISE[0], declared=True),
    }
    return _story(run, terms.relation, "declared", "closed", details)


def described(document: Json) -> Terms:
    """What a run described by hand says: its ``bound`` is the run.

    Raises:
        PrivcalcError: if it is none, or has no guarantee under its relation.
    """
    if document.get("format") != RUN_FORMAT or document.get("version") != 1:
        raise PrivcalcError(
            f"format = {document.get('format')!r}: must be a ledger, or a described run, such as {canonical(DESCRIBED)}"
        )
    found = check_fields("the described run", {"public": {}, "not_accounted": [], "assumptions": {}, **document}, RUN)
    run, relation, said = run_from_json(found["run"]), relation_from_json(found["relation"]), found["assumptions"]
    constants, missing = found["public"], found["not_accounted"]
    return Terms(relation, found["unit"], run, None, None, constants, missing, False, Assumptions.from_json(said))


def of_parts(parts: Sequence[Mapping[str, Any]]) -> Json:
    """The story of a composition: everything that it inherits from its parts, and the parts themselves.

    Args:
        parts: the documents of certificates that are no compositions; each counts, also where two are equal.

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
        "assumptions": union([part["assumptions"] for part in parts], run),
        "not_accounted": sorted({item for part in parts for item in part["not_accounted"]}),
        "declared": run_to_json(Run.of(run_from_json(part["declared"]) for part in parts)),
        "seeded": any(part["seeded"] for part in parts),
        "noise": min((part.get("noise", NOISE[0]) for part in parts), key=NOISE.index),
        "idealised": [text for text in IDEALISED.values() if any(text in part["idealised"] for part in parts)],
        "ledgers": [ledger for part in parts for ledger in part["ledgers"]],
        "parts": list(parts),
    }
    status = "closed" if all(part["status"] == "closed" for part in parts) else "open"
    return _story(run, relation_from_json(parts[0]["relation"]), "composed", status, details)


def _story(run: Run, relation: Relation, basis: str, status: str, details: Json) -> Json:
    return {**NOTHING, "basis": basis, "status": status, "relation": str(relation), "run": run_to_json(run), **details}
