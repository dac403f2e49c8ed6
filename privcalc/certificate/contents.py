"""What follows from a certificate's own text: its pages, its log, and what a composition inherits from its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from privcalc.certificate import earlier
from privcalc.certificate.assumed import Log, lines, noise_of, summary, weakest
from privcalc.certificate.schema import ALPHAS, CURVE, NOISE, NUMBERS, ROUTES, VERSION
from privcalc.errors import PrivcalcError
from privcalc.errors import count as whole
from privcalc.ledger.assumptions import Provenance, Release, every
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Run
from privcalc.serial import Json, canonical, mechanism_from_json, relation_from_json, run_from_json, run_to_json

__all__ = ["Claim", "each", "log_of", "of_parts", "pages", "story", "void"]

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


NOTHING: Json = {
    "stopping": None,
    "recorded": None,
    "target": None,
    "seeded": False,
    "releases": [],
    "ledgers": [],
    "parts": [],
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
