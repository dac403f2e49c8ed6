"""What a certificate says of a ledger, or of a run described by hand, and the numbers of what ran."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from privcalc.certificate import earlier
from privcalc.certificate.assumed import Log, lines, noise_of
from privcalc.certificate.consistency import story
from privcalc.certificate.schema import ALPHAS, BUDGET, CURVE, NOISE, VERSION
from privcalc.errors import PrivcalcError
from privcalc.files import regular
from privcalc.ledger.assumptions import OUTPUT_INDEPENDENT, Assumptions, Release, run_of
from privcalc.ledger.terms import Terms
from privcalc.log.lines import Position, entries
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import (
    Field,
    Json,
    canonical,
    check_fields,
    interval,
    mechanism_to_json,
    read_json,
    relation_from_json,
    run_from_json,
    run_to_json,
    target_to_json,
)

__all__ = ["claims", "described", "of_given", "of_run"]


def claims(run: Run, relation: Relation, delta: float) -> Json:
    """Everything that is claimed in numbers."""
    answers = run._answers(relation)
    epsilon = functools.cache(answers.epsilon)  # at δ of the guarantee the curve says the same
    return {
        "guarantee": {"epsilon": interval(epsilon(delta)), "delta": delta},
        "curve": [{"delta": d, "epsilon": interval(epsilon(d))} for d in CURVE],
        "gdp": {"mu": interval(answers.gdp_mu(delta)), "delta": delta},
        "advantage": interval(answers.delta(0.0)),
        "beta": [{"alpha": alpha, "beta": interval(answers.beta(alpha))} for alpha in ALPHAS],
    }


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


def of_given(source: str | list[str], version: int = VERSION) -> Json:
    """The story of a ledger, or of a run described by hand.

    Args:
        source: the path of a file, or the lines of a ledger in memory.
        version: of the certificate that tells it; a ledger of a later one is told in its own.

    Raises:
        PrivcalcError: if it is neither, does not fit its hashes, or charges more than it may.
        OSError: if the file cannot be read.
    """
    if isinstance(source, list):
        return _of_ledger((line.encode() for line in source), "the ledger", version)
    from privcalc.log.file import lines_of

    path = regular(source, name="source")
    with path.open("rb") as file:
        if file.read(5) != b'{"n":':
            return of_run(described(read_json(path)), version)
        file.seek(0)
        return _of_ledger(lines_of(file), path, version)


def _of_ledger(read: Iterator[bytes], name: object, version: int) -> Json:
    """The story that a ledger's lines tell; ``name`` is what messages call it."""
    from privcalc.ledger.book import Book  # what a certificate says is read without ledgers

    position = Position()
    book = Book.read(entries(read, name, position))
    terms, releases = book.terms, book.releases
    version = max(version, terms.version)  # a certificate of an earlier one cannot say what this ledger does
    vouched = book.closed and book.stopping == OUTPUT_INDEPENDENT
    basis = "recorded" if vouched else "plan" if terms.plan is not None else "cap"
    run = book.recorded if vouched else terms.bound
    terms.assumptions.check(run, basis, book.recorded)
    labels = {"labels": list(book.labels)} if book.labels else {}
    warned = {"warnings": list(book.warnings)} if book.warnings else {}
    warned |= {"start": list(book.begun)} if book.begun else {}
    budget = {} if book.budget is None else {"budget": {name: book.budget[name] for name in BUDGET}}
    persons = None if book.persons is None else book.persons[0]
    log = Log(
        declared=book.declared,
        basis=basis,
        unit=terms.unit,
        releases=releases,
        labelled=bool(labels),
        persons=persons,
        each_row=terms.version > 2,
        open=not book.closed,
        plan=Run(()) if version < VERSION else run,
        seeded=terms.seeded,
        named=version < VERSION or bool(book.begun),
    )
    known = {} if version < VERSION else {"version": terms.version} | ({} if persons is None else {"persons": persons})
    details = {
        "version": version,
        "unit": terms.unit,
        "public": dict(terms.public),
        "not_accounted": list(terms.not_accounted),
        "stopping": book.stopping,
        "recorded": run_to_json(book.recorded),
        "declared": run_to_json(run_of(releases, seen=False)),
        "target": None if terms.target is None else target_to_json(terms.target),
        "seeded": terms.seeded,
        "ledgers": [
            {"hash": position.hash, "lines": position.lines, "torn": position.torn} | known | labels | warned | budget
        ],
    }
    details |= _words(log, run, version)
    return story(run, terms.relation, basis, "closed" if book.closed else "open", details)


def _words(log: Log, run: Run, version: int) -> Json:
    """What a log says of the process, in a version's words."""
    if version < VERSION:
        noise = NOISE[0] if log.basis == "declared" else earlier.noise_in(log.releases, closed=not log.open)
        return earlier.words(log, run, version, noise=noise)
    releases = [
        {"mechanism": mechanism_to_json(mechanism), "count": uses, "provenance": provenance.to_json()}
        for mechanism, uses, provenance in (() if log.basis == "declared" else log.releases)
    ]
    assumed = {"declared": dict(log.declared), "needed": lines(log)}
    return {"assumptions": assumed, "noise": noise_of(log), "releases": sorted(releases, key=canonical)}


def of_run(terms: Terms, version: int = VERSION) -> Json:
    """The story of a run without a ledger; terms with a plan describe it, so that both have the same checks."""
    run, said = terms.bound, terms.assumptions
    said.check(run, "declared")
    log = Log(
        said.declared, "declared", terms.unit, [Release(*entry) for entry in run.entries], named=version < VERSION
    )
    details = {
        "version": version,
        "unit": terms.unit,
        "public": dict(terms.public),
        "not_accounted": list(terms.not_accounted),
        "declared": run_to_json(run),
    }
    return story(run, terms.relation, "declared", "closed", details | _words(log, run, version))


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
