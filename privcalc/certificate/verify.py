"""Check a certificate again: its hash, its logic, its numbers; ε by a route without the engine's numerics, where there is one.

What each line of the answer means: ``proofs/certificate.md``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from privcalc.certificate.assumed import private
from privcalc.certificate.claims import PRIVATE, Claim, alone, claims, each, void
from privcalc.certificate.confirm import Others, confirm
from privcalc.certificate.consistency import check, contradicted, of_part, same_listing
from privcalc.certificate.earlier import NOISE
from privcalc.certificate.story import of_given
from privcalc.certificate.text import doubts, opened
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError
from privcalc.ledger.terms import Terms
from privcalc.relation import Relation
from privcalc.rigorous.proof import Proof, finite_claims, prove_claims
from privcalc.rounding import upward
from privcalc.run import Run
from privcalc.serial import Json, canonical, enclosure, relation_from_json, run_from_json, run_to_json, target_from_json

SAME = (
    *("version", "basis", "status", "relation", "unit", "public", "assumptions", "not_accounted", "stopping", "run", "recorded"),
    *("declared", "target", "seeded", "noise", "releases", "ledgers"),
)
"""What a certificate and its ledger must agree on."""


def verify(document: Mapping[str, Any], given: Sequence[str | list[str]] = (), *, rigorous: bool = False) -> tuple[str, ...]:
    """What could be confirmed; see :meth:`Certificate.verify`.

    Args:
        document: the certificate.
        given: the ledgers and descriptions it was made from, as paths, or the lines of one in memory.
        rigorous: whether to prove every claim of ε.

    Raises:
        Contradiction: with whatever is wrong.
        NotConfirmed: if it cannot be told.
    """
    check(document)
    with contradicted():
        # Ledgers first: they are read quickly, and may show what is wrong before the numbers take their time.
        ledgers = _ledgers(document, given)
        found = ["the text is whole: it fits its own hash", "what is certified follows from what was planned, capped or recorded"]
        found += _claims(document, rigorous=rigorous)
        first: dict[str, int] = {}
        for number, part in enumerate(document["parts"]):
            if (same := first.setdefault(part["hash"], number)) < number:
                found.append(f"part {number + 1}: is the same as part {same + 1}, and counts again")
                continue
            with of_part(number):
                found += [f"part {number + 1}: {line}" for line in _claims(part, rigorous=False)]
        return (*found, *ledgers, *opened(document), *doubts(document))


def _claims(document: Mapping[str, Any], *, rigorous: bool) -> list[str]:
    """Target, numbers, and what is said to be proved, of a certificate that fits itself."""
    found = []
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    delta = document["guarantee"]["delta"]
    fresh = void(delta) if private(document["assumptions"]) else claims(run, relation, delta)
    _numbers(document, fresh, run, relation)
    if document["target"] is not None:
        target = target_from_json(document["target"], relation)
        Terms(relation, document["unit"], run, None, target, {}, (), False).check_target()
        found.append(f"the target {target} is met")
    found.append("every number was computed again, and none is smaller than what is proved")
    points = finite_claims(document)
    others = Others(points)
    for epsilon, d in points:
        found.append(f"δ({upward(epsilon, '.9g')}) ≤ {upward(d, 'g')}: {confirm(run, relation, epsilon, d, others)}")
    said = points if rigorous else [(claim["epsilon"], claim["delta"]) for claim in document["confirmed"]]
    return found + [str(proof).splitlines()[0] for proof in _proofs(run, relation, said)]


def _proofs(run: Run, relation: Relation, points: Sequence[tuple[float, float]]) -> tuple[Proof, ...]:
    """What a file says was proved is not believed: it is proved again."""
    if points and importlib.util.find_spec("flint") is None:
        raise NotConfirmed("confirmed: python-flint is needed to prove claims in ball arithmetic (pip install python-flint)")
    proofs = prove_claims(run, relation, points, lambda text: print(text, file=sys.stderr))
    for proof in proofs:
        if proof.verdict != "proved":
            raise (Contradiction if proof.verdict == "refuted" else NotConfirmed)(f"not proved: {proof}")
    return proofs


def _ledgers(document: Mapping[str, Any], given: Sequence[str | list[str]]) -> list[str]:
    """Every ledger given must be that of a part, each of another one, and every part that names a ledger must have it."""
    composed = document["basis"] == "composed"
    left = dict(enumerate(document["parts"] if composed else [document]))
    for source in given:
        stories = {version: of_given(source, version) for version in {part["version"] for part in left.values()}}
        unlike = {number: list(_unlike(part, stories[part["version"]])) for number, part in left.items()}
        fits = [number for number, found in unlike.items() if not found]
        near = [number for number in left if not composed or "ledgers" not in unlike[number]]
        if not fits + near:
            raise PrivcalcError(f"ledger: {source if isinstance(source, str) else 'one'} is that of no part that is left")
        number = (fits + near)[0]
        part = left.pop(number)
        with of_part(number) if composed else contextlib.nullcontext():
            for name in unlike[number]:
                said, told = (repr(each[name]) if name in each else "nothing" for each in (part, stories[part["version"]]))
                raise PrivcalcError(
                    f"{name}: the certificate says {said}, its ledger {told}; if the ledger was gone on with since, certify it "
                    "again"
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
            two = [{key: value for key, value in found.items() if key != "budget" or "budget" in one[0]} for found in two]
        if canonical(one) != canonical(two):
            yield name


def _numbers(document: Mapping[str, Any], fresh: Mapping[str, Any], run: Run, relation: Relation) -> None:
    """Every claim against one that is made now: never on the unsafe side of it, beyond the last digits."""
    made, now = list(each(document)), list(each(fresh))
    if (found := [(claim.name, claim.at) for claim in made]) != (right := [(claim.name, claim.at) for claim in now]):
        raise Contradiction(f"the numbers must be {str(right)[:500]}, not {str(found)[:500]}")
    for claim, true in zip(made, now, strict=True):
        # What is out of place may come of a version that answered each question alone, some of them more sharply.
        if _fits(claim, true.value, relation):
            continue
        value = true.value if true.value["route"] == PRIVATE else alone(run, relation, true)
        if value is true.value or not _fits(claim, value, relation):
            raise Contradiction(f"{claim}: claimed {_ends(claim.value)}, true is {_ends(value)}")


def _fits(claim: Claim, value: Json, relation: Relation) -> bool:
    safe: Literal["lower", "upper"] = "lower" if claim.name == "beta" else "upper"
    old, new = enclosure(claim.value, relation, safe), enclosure(value, relation, safe)
    slack = 1e-9 * abs(float(new)) if math.isfinite(float(new)) else 0.0
    sound = old.lower <= new.lower + slack if safe == "lower" else old.upper >= new.upper - slack
    return sound and old.lower <= new.upper + slack and old.upper >= new.lower - slack


def _ends(value: Json) -> str:
    low, high = (math.inf if value[end] is None else value[end] for end in ("lower", "upper"))
    return f"[{low!r}, {high!r}]"
