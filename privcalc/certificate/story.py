"""What a certificate says: of a ledger, of a described run, or of others, its parts; its numbers, and their pages."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from privcalc.certificate import earlier
from privcalc.certificate.assumed import Log, lines, noise_of, summary, weakest
from privcalc.certificate.schema import ALPHAS, BUDGET, CURVE, NOISE, NUMBERS, ROUTES, VERSION
from privcalc.errors import PrivcalcError
from privcalc.errors import count as whole
from privcalc.files import regular
from privcalc.ledger.assumptions import Assumptions, Provenance, Release, every, run_of
from privcalc.ledger.terms import OUTPUT_INDEPENDENT, Terms
from privcalc.log.lines import Position, entries
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Run
from privcalc.serial import (
    Field,
    Json,
    canonical,
    check_fields,
    interval,
    mechanism_from_json,
    mechanism_to_json,
    read_json,
    relation_from_json,
    run_from_json,
    run_to_json,
    target_to_json,
)

PRIVATE = "private data"
"""The route of what is not claimed."""


class Claim(NamedTuple):
    """One number of a certificate.

    Attributes:
        name: the field.
        at: the δ or α that it is given at, or nothing.
        value: the enclosure, as it is written down.
    """

    name: str
    at: Json
    value: Json

    def __str__(self) -> str:
        return " ".join([self.name, *(f"at {key} = {value!r}" for key, value in self.at.items())])


def void(delta: float) -> Json:
    """The claims of what began with private data: none (``proofs/assumptions.md``, §7)."""
    nothing, any_rate = ({"lower": 0.0, "upper": end, "route": PRIVATE} for end in (None, 1.0))
    return {
        "guarantee": {"epsilon": nothing, "delta": delta},
        "curve": [{"delta": d, "epsilon": nothing} for d in CURVE],
        "gdp": {"mu": nothing, "delta": delta},
        "advantage": any_rate,
        "beta": [{"alpha": alpha, "beta": any_rate} for alpha in ALPHAS],
    }


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


def pages(document: Mapping[str, Any]) -> list[str]:
    """The proof pages that a certificate relies on.

    Those of its mechanisms, of the routes to its numbers, of what is assumed, and of itself; of a cap also those of its
    filter and of what it admitted, and of what a learner released those of the learner.

    Args:
        document: what a certificate says, its numbers included.

    Raises:
        PrivcalcError: if a number came by a route that has no page.
    """
    run, now = run_from_json(document["run"]), document["version"] == VERSION
    own = [type(each).page for each in every(run)]
    if document["relation"] == str(REPLACE_ONE) and "poisson.md" in own:
        own.append("replace_one.md")
    for part in (document["parts"] or [document]) if now else ():
        if part["basis"] == "cap":
            own += ["filters.md", *(type(each).page for each in every(run_from_json(part["recorded"])))]
        own += [page for each in part.get("releases", []) if (page := each["provenance"].get("page"))]
    used = dict.fromkeys(name for claim in each(document) for name in claim.value["route"].split("+"))
    known = ROUTES | {PRIVATE: "assumptions.md"}
    if unknown := [name for name in used if name not in known]:
        raise PrivcalcError(f"route = {unknown[0]!r}: must be one of {', '.join(ROUTES)}")
    shared = ("gdp.md", "conversions.md", "ledger.md", "assumptions.md", "certificate.md")
    if now:
        needed = [page for entry in document["assumptions"]["needed"] for page in entry["page"].split(", ")]
    else:
        needed = ["executed_noise.md"] if document.get("noise", NOISE[0]) != NOISE[0] else []
    return list(dict.fromkeys([*own, *(known[name] for name in used), *shared, *needed]))


def each(numbers: Mapping[str, Any]) -> Iterator[Claim]:
    """Every claim.

    Raises:
        PrivcalcError: if one has more than the enclosure and the point that it is given at, or lacks one of them.
    """
    for name, (inner, at) in NUMBERS.items():
        for point in numbers[name] if isinstance(numbers[name], list) else [numbers[name]]:
            if not isinstance(point, Mapping) or set(point) != {inner, at}:
                raise PrivcalcError(f"{name}: must have {inner} and {at}, not {canonical(point)[:200]}")
            yield Claim(name, {at: point[at]}, point[inner])
    yield Claim("advantage", {}, numbers["advantage"])


__all__ = ["described", "log_of", "of_given", "of_parts", "of_run"]

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

NOTHING: Json = {
    "stopping": None,
    "recorded": None,
    "target": None,
    "seeded": False,
    "releases": [],
    "ledgers": [],
    "parts": [],
}


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
    return _story(run, terms.relation, basis, "closed" if book.closed else "open", details)


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
    return _story(run, terms.relation, "declared", "closed", details | _words(log, run, version))


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
            whole("count", each["count"], least=1),
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
    return _story(run, relation_from_json(parts[0]["relation"]), "composed", status, details)


def _story(run: Run, relation: Relation, basis: str, status: str, details: Json) -> Json:
    known = {"basis": basis, "status": status, "relation": str(relation), "run": run_to_json(run), **details}
    return {
        name: value for name, value in {**NOTHING, **known}.items() if name != "releases" or "idealised" not in known
    }
