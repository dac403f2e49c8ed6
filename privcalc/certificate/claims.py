"""The numbers of a certificate: what is claimed of a run, one by one, and the pages that it relies on."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from privcalc.certificate.schema import ALPHAS, CURVE, NUMBERS, RETIRED, ROUTES
from privcalc.errors import PrivcalcError
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism, Run
from privcalc.serial import Json, canonical, interval, parts

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


def pages(run: Run, relation: Relation, numbers: Mapping[str, Any], needed: Iterable[str] = ()) -> list[str]:
    """The proof pages that the claims rely on: of mechanisms, of the routes to the numbers, of the certificate.

    Args:
        run: what is certified.
        relation: the neighbouring relation.
        numbers: the claims, as from :func:`claims`.
        needed: pages of what is assumed.

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
    used = [name for claim in each(numbers) for name in claim.value["route"].split("+")]
    known = ROUTES | RETIRED | {PRIVATE: "assumptions.md"}
    if unknown := [name for name in used if name not in known]:
        raise PrivcalcError(f"route = {unknown[0]!r}: must be one of {', '.join(ROUTES)}")
    shared = ("gdp.md", "conversions.md", "ledger.md", "assumptions.md", "certificate.md", *needed)
    return list(dict.fromkeys([*own, *(known[name] for name in dict.fromkeys(used)), *shared]))


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
