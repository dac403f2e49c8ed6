"""Check a certificate again: its hash, its logic, its numbers, and the ledgers that it was made from.

ε is proved in ball arithmetic, where that is decided in time (``proved.py``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privcalc.certificate.assumed import private
from privcalc.certificate.consistency import check, contradicted, of_part, same_listing
from privcalc.certificate.proved import decided, within
from privcalc.certificate.schema import NOISE, void
from privcalc.certificate.story import claims, of_given
from privcalc.errors import PrivcalcError
from privcalc.ledger.terms import Terms, filter_of
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import Json, canonical, run_from_json, run_to_json, target_from_json

SAME = (
    *("version", "basis", "status", "relation", "unit", "public", "assumptions", "not_accounted", "stopping"),
    *("run", "recorded", "declared", "target", "seeded", "noise", "releases", "ledgers"),
)
"""What a certificate and its ledger must agree on."""


def verify(
    document: Mapping[str, Any],
    given: Sequence[str | list[str]] = (),
    *,
    rigorous: bool = False,
    seconds: float = math.inf,
) -> tuple[str, ...]:
    """What could be confirmed, the verdict first; see :meth:`Certificate.verify`.

    Args:
        document: the certificate.
        given: the ledgers and descriptions it was made from, as paths, or the lines of one in memory.
        rigorous: whether a claim of ε that cannot be decided in ball arithmetic is an error.
        seconds: how long all this may take; it is not stopped then, but no proof is begun.

    Raises:
        Contradiction: with whatever is wrong.
        NotConfirmed: if it cannot be told.
    """
    progress = within(seconds, show=rigorous)
    fits(document)
    with contradicted():
        # Ledgers first: they are read quickly, and may show what is wrong before the numbers take their time.
        ledgers = _ledgers(document, given)
        return decided(document, ledgers, progress, engine=_numbers, rigorous=rigorous)


def fits(document: Mapping[str, Any]) -> None:
    """Check all of a certificate but its numbers, and that no filter passed its cap.

    Raises:
        Contradiction: with the reason.
        NotConfirmed: as :func:`privcalc.certificate.consistency.check`.
    """
    check(document)
    with contradicted():
        for number, part in enumerate(document["parts"] or [document]):
            if part["basis"] == "cap":
                cap, recorded = run_from_json(part["run"]), run_from_json(part["recorded"])
                with of_part(number) if document["parts"] else contextlib.nullcontext():
                    if filter_of(cap.entries[0][0]).would_exceed(recorded):
                        raise PrivcalcError(f"recorded: {recorded} is more than the cap {cap}")


def _numbers(document: Mapping[str, Any], run: Run, relation: Relation) -> tuple[Json, list[str]]:
    """Every number, computed again by the engine; and whether a target is met."""
    delta, found = document["guarantee"]["delta"], list[str]()
    fresh = void(delta) if private(document["assumptions"]) else claims(run, relation, delta)
    if document["target"] is not None:
        target = target_from_json(document["target"], relation)
        Terms(relation, document["unit"], run, None, target, {}, (), False).check_target()
        found.append(f"the target {target} is met")
    return fresh, [*found, "every number was computed again, and none is smaller than what the engine shows"]


def _ledgers(document: Mapping[str, Any], given: Sequence[str | list[str]]) -> list[str]:
    """Match the ledgers given to parts: each to another one; every part that names a ledger must have it."""
    composed = document["basis"] == "composed"
    left = dict(enumerate(document["parts"] if composed else [document]))
    for source in given:
        stories = {version: of_given(source, version) for version in {part["version"] for part in left.values()}}
        unlike = {number: list(_unlike(part, stories[part["version"]])) for number, part in left.items()}
        fits = [number for number, found in unlike.items() if not found]
        near = [number for number in left if not composed or "ledgers" not in unlike[number]]
        if not fits + near:
            raise PrivcalcError(
                f"ledger: {source if isinstance(source, str) else 'one'} is that of no part that is left"
            )
        number = (fits + near)[0]
        part = left.pop(number)
        with of_part(number) if composed else contextlib.nullcontext():
            for name in unlike[number]:
                said, told = (
                    repr(each[name]) if name in each else "nothing" for each in (part, stories[part["version"]])
                )
                raise PrivcalcError(
                    f"{name}: the certificate says {said}, its ledger {told}; if the ledger was gone on with since, "
                    "certify it again"
                )
    for number, part in left.items():
        if given and part["ledgers"]:
            raise PrivcalcError(f"part {number + 1}: its ledger, of hash {part['ledgers'][0]['hash']}, was not given")
    if given and composed:
        return ["every ledger given is that of a part, and every ledger that a part names was given"]
    kind = "ledger" if document["ledgers"] else "description"
    return [f"the {kind} is whole, says the same, and charges no more than it may"] * bool(given)


def _unlike(part: Mapping[str, Any], story: Mapping[str, Any]) -> Iterator[str]:
    """Where a certificate says something else than its ledger, as its version says it; also by the type of a number."""
    for name in SAME:
        one: Any = part.get(name, NOISE[0]) if name == "noise" else part.get(name)
        two: Any = story.get(name)
        if name in ("run", "recorded", "declared") and one is not None and two is not None:
            one, two = run_to_json(run_from_json(one)), run_to_json(run_from_json(two))
        elif name == "assumptions":
            one, two = same_listing(one, two, story["version"]), True
        elif name == "ledgers" and story["version"] == 2:  # certificates of version 2 did not name budgets
            two = [
                {key: value for key, value in found.items() if key != "budget" or "budget" in one[0]} for found in two
            ]
        if canonical(one) != canonical(two):
            yield name
