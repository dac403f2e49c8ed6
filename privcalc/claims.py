"""The numbers of a certificate: what is claimed of a run, how it is written down, and read again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from privcalc import errors
from privcalc.describe import Json, canonical
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.files import read_whole
from privcalc.mechanism import Mechanism
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Run

FORMAT, VERSION = "privcalc certificate", 3
READ = (2, VERSION)
"""What can be read; version 2 listed fewer assumptions (``proofs/assumptions.md``, §4)."""

FIELDS = (
    *("format", "version", "privcalc", "basis", "status", "relation", "unit", "run", "guarantee", "curve", "gdp", "advantage"),
    *(
        "beta",
        "public",
        "assumptions",
        "stopping",
        "recorded",
        "declared",
        "target",
        "seeded",
        "not_accounted",
        "idealised",
        "proofs",
    ),
    *("ledgers", "parts", "confirmed", "hash"),
)
"""What a certificate has: all of these, and nothing else (``proofs/certificate.md``)."""

CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
ROUTES = {
    "closed form": "gdp.md",
    "contour": "engine.md",
    "jumps": "jumps.md",
    "enumeration": "atoms.md",
    "smoothing": "smoothing.md",
    "lattice": "lattice.md",
    "direct": "direct.md",
    "moments": "conversions.md",
    "fallback": "calibration.md",
    "axis": "calibration.md",
    "group rule": "replace_one.md",
    "joint convexity": "replace_one.md",
    "bounded range": "exponential.md",
    "worst part": "parallel.md",
    "leak set apart": "custom.md",
    "given profile": "custom.md",
    "either order": "custom.md",
    "privacy loss distribution": "interop.md",
}
"""The page of every numerical route, and of every theorem that bounds a pair: the names in ``Enclosure.route``."""

MOVED: dict[str, tuple[str, ...]] = {}
"""Pages that certificates name, and that are no longer in ``proofs/`` under this name: the pages that hold their text now."""

ALPHAS = (0.001, 0.01, 0.05, 0.1)


def claims(run: Run, relation: Relation, delta: float) -> Json:
    """Everything that is claimed in numbers."""
    return {
        "guarantee": {"epsilon": interval(run.epsilon(delta=delta, relation=relation)), "delta": delta},
        "curve": [{"delta": d, "epsilon": interval(run.epsilon(delta=d, relation=relation))} for d in CURVE],
        "gdp": {"mu": interval(run.gdp_mu(delta=delta, relation=relation)), "delta": delta},
        "advantage": interval(run.advantage(relation=relation)),
        "beta": [{"alpha": alpha, "beta": interval(run.beta(alpha=alpha, relation=relation))} for alpha in ALPHAS],
    }


def digest(document: Mapping[str, Any]) -> str:
    """The hash of a document without its hash."""
    return hashlib.sha256(canonical({k: v for k, v in document.items() if k != "hash"}).encode()).hexdigest()


def interval(value: Enclosure) -> Json:
    """JSON has no ∞: null."""
    return {
        "lower": value.lower if math.isfinite(value.lower) else None,
        "upper": value.upper if math.isfinite(value.upper) else None,
        "route": value.route,
    }


def enclosure(value: Any, relation: Relation, safe: Literal["lower", "upper"] = "upper") -> Enclosure:
    """An enclosure that was written down.

    Raises:
        PrivcalcError: if it is none.
    """
    if not isinstance(value, dict) or set(value) != {"lower", "upper", "route"}:
        raise PrivcalcError(f"{str(value)[:200]}: must have exactly lower, upper and route")
    try:
        low, high = (
            math.inf if value[end] is None else errors.real(end, value[end], "a finite number", low=-math.inf, high=math.inf)
            for end in ("lower", "upper")
        )
        return Enclosure(low, high, relation, str(value["route"]), safe)
    except ArithmeticError as error:
        raise PrivcalcError(f"{value!r}: must have lower <= upper") from error


def pages(run: Run, relation: Relation, numbers: Mapping[str, Any]) -> list[str]:
    """The proof pages that the claims rely on: of the mechanisms, of the routes that gave the numbers, and of the certificate.

    Args:
        run: what is certified.
        relation: the neighbouring relation.
        numbers: the claims, as from :func:`claims`.

    Raises:
        PrivcalcError: if a number came by a route that has no page.
    """

    def of(mechanism: Mechanism) -> Iterator[str]:
        yield type(mechanism).page
        for part in parts(mechanism):
            yield from of(part)

    own = [page for mechanism, _ in run.entries for page in of(mechanism)]
    if relation is REPLACE_ONE and "poisson.md" in own:
        own.append("replace_one.md")
    used = [name for claim in _intervals(numbers) for name in claim["route"].split("+")]
    if unknown := [name for name in used if name not in ROUTES]:
        raise PrivcalcError(f"route = {unknown[0]!r}: must be one of {', '.join(ROUTES)}")
    shared = ("gdp.md", "conversions.md", "ledger.md", "assumptions.md", "certificate.md")
    return list(dict.fromkeys([*own, *(ROUTES[name] for name in dict.fromkeys(used)), *shared]))


def same_pages(named: Sequence[str], relied: Sequence[str]) -> bool:
    """Whether a certificate names the pages that it relies on, each by the name that it has, or had when that was written."""
    now = [{name, *MOVED.get(name, ())} for name in named]
    return set(relied) <= set().union(*now) and all(names & set(relied) for names in now) and len(set(named)) == len(named)


def _intervals(numbers: Mapping[str, Any]) -> Iterator[Json]:
    """Every interval of the claims."""
    yield from (numbers["guarantee"]["epsilon"], numbers["gdp"]["mu"], numbers["advantage"])
    yield from (point["epsilon"] for point in numbers["curve"])
    yield from (point["beta"] for point in numbers["beta"])


def parts(mechanism: Mechanism) -> list[Mechanism]:
    """The mechanisms that a mechanism is made of."""
    found: list[Mechanism] = []
    for field in dataclasses.fields(mechanism):  # type: ignore[arg-type]
        value = getattr(mechanism, field.name)
        if isinstance(value, Mechanism):
            found.append(value)
        elif isinstance(value, Run):
            found.extend(part for part, _ in value.entries)
        elif isinstance(value, tuple):
            found.extend(part for part in value if isinstance(part, Mechanism))
    return found


def read_json(path: Path) -> Json:
    """One JSON object, without numbers that JSON does not have, and each name once."""

    def once(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError(f"a name occurs twice in {[name for name, _ in pairs]}")
        return found

    def none(text: str) -> NoReturn:
        raise ValueError(f"{text} is not a JSON number")

    try:
        document = json.loads(read_whole(path), object_pairs_hook=once, parse_constant=none)
    except (ValueError, RecursionError) as error:
        raise PrivcalcError(f"path = {str(path)!r}: is not one whole JSON object: {error}") from error
    if not isinstance(document, dict):
        raise PrivcalcError(f"path = {str(path)!r}: must be a JSON object")
    return document
