"""The numbers of a certificate: what is claimed of a run, one by one, and the pages that it relies on."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from privcalc.certificate import earlier
from privcalc.certificate.schema import ALPHAS, CURVE, NUMBERS, ROUTES, VERSION
from privcalc.errors import PrivcalcError
from privcalc.ledger.assumptions import every
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Run
from privcalc.serial import Json, canonical, interval, run_from_json

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
        needed = ["executed_noise.md"] if document.get("noise", earlier.NOISE[0]) != earlier.NOISE[0] else []
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
