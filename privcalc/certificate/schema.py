"""What a certificate has: its fields, what each of them says, its numbers by their names, its pages, and its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from privcalc.attacks.replay.words import NO_GUARANTEE, STOPPED
from privcalc.errors import PrivcalcError
from privcalc.ledger.assumptions import every
from privcalc.proof import PROVED
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.serial import Field, Json, canonical, run_from_json

FORMAT, VERSION = "privcalc certificate", 4


READ = (2, 3, VERSION)
"""What can be read; what versions 2 and 3 said is in ``earlier.py``."""


VERIFIED, UNDECIDED = "VERIFIED", "UNDECIDED"
"""How the first line begins: whether the guarantee itself was proved again, in ball arithmetic."""

SCHEMA = {
    "format": Field((str,), '`"privcalc certificate"`', (FORMAT,)),
    "version": Field((int,), "4; 2 and 3 are read, too", READ),
    "privcalc": Field((str,), "the version of the library that wrote it"),
    "basis": Field(
        (str,),
        "what the run is: `plan`, `cap`, `recorded` (vouched for), `declared` (by hand) or `composed`",
        ("plan", "cap", "recorded", "declared", "composed"),
    ),
    "status": Field(
        (str,), "`closed`; or `open`, for a ledger without its closing line: at least this much", ("open", "closed")
    ),
    "relation": Field((str,), "the neighbouring relation", tuple(map(str, Relation))),
    "unit": Field((str,), "what one record is, in words"),
    "run": Field((list,), "the certified run; that of a cap is the one stated guarantee"),
    "guarantee": Field((dict,), "`epsilon`, an enclosure, at `delta`"),
    "curve": Field((list,), "ε at δ = 10⁻³ … 10⁻⁹, each as in `guarantee`"),
    "gdp": Field((dict,), "`mu` of μ-GDP, an enclosure, except with probability `delta`"),
    "advantage": Field((dict,), "the largest true minus false positive rate, an enclosure"),
    "beta": Field((list,), "the least false negative rates, enclosures `beta`, each at one of four `alpha`"),
    "public": Field(
        (dict,),
        "constants, as the caller declared them; public data by their digests ([assumptions.md](assumptions.md), §5)",
    ),
    "not_accounted": Field((list,), "texts: what the caller says is missing (tuning, say)"),
    "assumptions": Field(
        (dict,),
        "`declared`: what the caller said; `needed`: who saw to what the proofs need "
        "([assumptions.md](assumptions.md))",
    ),
    "stopping": Field((str, NoneType), 'null, or the caller\'s word `"output-independent"`'),
    "recorded": Field(
        (list, NoneType), "the run that the ledger charged, lost blocks included; null without one ledger"
    ),
    "declared": Field((list,), "the part of the recorded run whose noise the ledger did not draw"),
    "target": Field((dict, NoneType), "null, or the guarantee that plan or cap had to meet"),
    "seeded": Field((bool,), "true: a reproducible run, for which no privacy is claimed"),
    "noise": Field((str,), "who drew it: a summary of `releases`"),
    "releases": Field((list,), "what the ledger charged, by `provenance`: each a `mechanism` with its `count`"),
    "proofs": Field(
        (list,),
        "the pages of its mechanisms (of a cap also of what it admitted), learners, numbers and assumptions",
    ),
    "ledgers": Field(
        (list,),
        "for each ledger its `hash`, `lines`, `version`, if it is `torn` (ends in half a line); `labels`, `warnings`, "
        "…",
    ),
    "parts": Field((list,), "of a composition: its certificates, whole, none of them a composition"),
    "confirmed": Field(
        (list,), "claims proved in ball arithmetic: `route`, `epsilon`, `delta`, `pages` ([rigorous.md](rigorous.md))"
    ),
    "hash": Field((str,), "SHA-256 of the canonical text (keys sorted, no spaces, UTF-8) of all other fields"),
}
"""The fields of a certificate, all of which it has; ``proofs/certificate.md`` prints them."""


NOISE = ("real-valued", "exact", "exact, sums bounded")
"""How versions 2 and 3 took it: as real numbers; drawn bit for bit; sums' own error, too, was bounded and paid."""

CHANGED = {"noise": Field((str,), among=NOISE), "idealised": Field((list,))}
"""Fields that they had, and have otherwise or no more."""


def fields_of(version: int) -> dict[str, Field]:
    """Those of a version."""
    if version == VERSION:
        return SCHEMA
    return {**{name: field for name, field in SCHEMA.items() if name != "releases"}, **CHANGED}


REPLAYED = {
    **{"process": Field((str,)), "relation": Field((str,)), "added": Field((list,)), "releases": Field((int,))},
    **{"found": Field((list,)), "note": Field((str,), among=(NO_GUARANTEE, STOPPED))},
}
"""The fields of an entry of ``replayed``, which a certificate may have besides: what was replayed; its outcome."""


RELEASE = {"mechanism": Field((dict,)), "count": Field((int,)), "provenance": Field((dict,))}
LEDGER = {
    **{"hash": Field((str,)), "lines": Field((int,)), "torn": Field((bool,)), "version": Field((int,))},
    "persons": Field((str, NoneType), among=("column", "values", "word", None)),
    **dict.fromkeys(("labels", "warnings", "start"), Field((list,))),
    "budget": Field((dict, NoneType)),
}
BUDGET = {"dataset": Field((str,)), "reservation": Field((str,)), "lines": Field((int,)), "hash": Field((str,))}
CONFIRMED = {
    "route": Field((str,), among=(PROVED,)),
    "epsilon": Field((float, int)),
    "delta": Field((float, int)),
    "pages": Field((list,)),
}
"""The fields of an entry of ``releases``, of ``ledgers``, of the ``budget`` in it, and of an entry of ``confirmed``."""


NUMBERS = {
    "guarantee": ("epsilon", "delta"),
    "curve": ("epsilon", "delta"),
    "gdp": ("mu", "delta"),
    "beta": ("beta", "alpha"),
}
"""The claims that are given at a point: how the enclosure is called, and how the point."""


CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


ROUTES = {
    "closed form": "gdp.md",
    "contour": "engine.md",
    "jumps": "jumps.md",
    "atoms apart": "apart.md",
    "enumeration": "atoms.md",
    "smoothing": "smoothing.md",
    "lattice": "lattice.md",
    "direct": "direct.md",
    "moments": "conversions.md",
    "fallback": "calibration.md",
    "axis": "calibration.md",
    "group rule": "replace_one.md",
    "unsampled": "users.md",
    "opposite records": "replace_one.md",
    "integer vectors": "discrete_gaussian.md",
    "joint convexity": "replace_one.md",
    "cut batches": "truncated.md",
    "bounded range": "exponential.md",
    "adaptive choices": "choices.md",
    "noisy max": "noisy_max.md",
    "best of several": "tuning.md",
    "sparse vector": "sparse_vector.md",
    "new keys": "thresholded_counts.md",
    "worst part": "parallel.md",
    "worst companions": "correlated.md",
    "bins far apart": "correlated.md",
    "blocks": "allocation.md",
    "leak set apart": "custom.md",
    "given profile": "custom.md",
    "either order": "custom.md",
    "privacy loss distribution": "interop.md",
}
"""The page of every numerical route, and of every theorem that bounds a pair: the names in ``Enclosure.route``."""


MOVED: dict[str, tuple[str, ...]] = {}
"""Pages that certificates name and that ``proofs/`` no longer has: the pages that hold their text now."""


ALPHAS = (0.001, 0.01, 0.05, 0.1)


def digest(document: Mapping[str, Any]) -> str:
    """The hash of a document without its hash."""
    return hashlib.sha256(canonical({k: v for k, v in document.items() if k != "hash"}).encode()).hexdigest()


def changed(document: Mapping[str, Any]) -> bool:
    """Whether it does not fit its own hash."""
    return bool(document["hash"] != digest(document))


def same_pages(named: Sequence[str], relied: Sequence[str]) -> bool:
    """Whether a certificate names the pages that it relies on, by their names now or when it was written."""
    now = [{name, *MOVED.get(name, ())} for name in named]
    return (
        set(relied) <= set().union(*now) and all(names & set(relied) for names in now) and len(set(named)) == len(named)
    )


def public_in_words(public: Mapping[str, Any]) -> Iterator[str]:
    """Constants and public data that a certificate lists, for people, one by one."""
    for name, value in public.items():
        if isinstance(value, Mapping) and set(value) == {"sha256", "of"}:
            yield f"{name}: {value['of']}, SHA-256 {value['sha256']}"
        elif name == "dataset":
            yield f"dataset = {value} (a name; what other ledgers of it released is not counted here)"
        else:
            yield f"{name} = {value}"


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
