"""Check a certificate again: its hash, its logic, its numbers.

ε is proved in ball arithmetic, where that is decided in time.

What each line of the answer means: ``proofs/certificate.md``.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from privcalc.certificate.assumed import private
from privcalc.certificate.consistency import check, contradicted, of_part, same_listing
from privcalc.certificate.schema import NOISE, UNDECIDED, VERIFIED
from privcalc.certificate.story import Claim, claims, each, of_given, void
from privcalc.certificate.text import doubts, opened
from privcalc.enclosure import upward
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError
from privcalc.ledger.terms import Terms
from privcalc.log.lines import Position, entries
from privcalc.proof import Proof, finite_claims, prove_claims
from privcalc.relation import Relation
from privcalc.rigorous.description import UnprovableError
from privcalc.run import ENGINE, Run
from privcalc.serial import Json, canonical, enclosure, relation_from_json, run_from_json, run_to_json, target_from_json

SAME = (
    *("version", "basis", "status", "relation", "unit", "public", "assumptions", "not_accounted", "stopping"),
    *("run", "recorded", "declared", "target", "seeded", "noise", "releases", "ledgers"),
)
"""What a certificate and its ledger must agree on."""

ELSEWHERE = (
    "not computed again here: μ, the advantage, the error rates; whether a target is met, and a cap kept: privcalc "
    "verify computes them again"
)
"""What is left where only ball arithmetic is there."""

NEAR = 1.5
"""An upper bound of δ(ε), as a multiple of δ, beyond which it is not worth while to try a larger ε."""

SHARE = 0.8
"""Of the time that there is: no proof is begun, or gone on with, later than that."""


def verify(
    document: Mapping[str, Any],
    given: Sequence[str | list[str]] = (),
    *,
    rigorous: bool = False,
    seconds: float = math.inf,
    watch: Callable[[Proof], None] | None = None,
) -> tuple[str, ...]:
    """What could be confirmed, the verdict first; see :meth:`Certificate.verify`.

    Args:
        document: the certificate.
        given: the ledgers and descriptions it was made from, as paths, or the lines of one in memory.
        rigorous: whether a claim of ε that cannot be decided in ball arithmetic is an error.
        seconds: how long all this may take; it is not stopped then, but no proof is begun.
        watch: called with each proof when it is done.

    Raises:
        Contradiction: with whatever is wrong.
        NotConfirmed: if it cannot be told.
    """
    end = time.monotonic() + SHARE * seconds

    def progress(line: str) -> None:
        if time.monotonic() > end:
            raise UnprovableError(f"not within {seconds:g} seconds")
        if line and rigorous:
            print(line, file=sys.stderr)

    check(document)
    with contradicted():
        # Ledgers first: they are read quickly, and may show what is wrong before the numbers take their time.
        ledgers = _ledgers(document, given)
        found = [
            "the text is whole: it fits its own hash",
            "what is certified follows from what was planned, capped or recorded",
        ]
        proofs, lines = _claims(document, progress, rigorous=rigorous, watch=watch)
        found += lines
        first: dict[str, int] = {}
        for number, part in enumerate(document["parts"]):
            if (same := first.setdefault(part["hash"], number)) < number:
                found.append(f"part {number + 1}: is the same as part {same + 1}, and counts again")
                continue
            with of_part(number):
                found += [
                    f"part {number + 1}: {line}" for line in _claims(part, progress, rigorous=rigorous, watch=watch)[1]
                ]
        return (_verdict(document, proofs), *found, *ledgers, *opened(document), *doubts(document))


def _verdict(document: Mapping[str, Any], proofs: Sequence[Proof]) -> str:
    """One sentence: what becomes of the guarantee."""
    guarantee = document["guarantee"]
    if guarantee["epsilon"]["upper"] is None:
        return (
            f"{VERIFIED}: no finite ε is claimed at δ = {upward(guarantee['delta'], 'g')}, and nothing was found wrong"
        )
    epsilon, delta = float(guarantee["epsilon"]["upper"]), float(guarantee["delta"])
    claim = f"ε ≤ {upward(epsilon, '.9g')} at δ = {upward(delta, 'g')}, {document['relation']}"
    if shown := [proof.epsilon for proof in proofs if proof and proof.delta == delta and proof.epsilon >= epsilon]:
        last = f" (proved: {upward(min(shown), '.9g')})" if min(shown) > epsilon else ""
        return f"{VERIFIED}: {claim}{last}, was proved again, and nothing was found wrong"
    return f"{UNDECIDED}: {claim}, could not be proved here; nothing was found wrong"


def _nearly(run: Run, relation: Relation, proof: Proof, progress: Callable[[str], None]) -> Proof | None:
    """A proof for an ε that is larger by little."""
    for factor in (1 + 1e-6, 1 + 1e-3):
        (found,) = prove_claims(run, relation, [(proof.epsilon * factor, proof.delta)], progress)
        if found:
            return found
    return None


def _claims(
    document: Mapping[str, Any],
    progress: Callable[[str], None],
    *,
    rigorous: bool,
    watch: Callable[[Proof], None] | None,
) -> tuple[tuple[Proof, ...], list[str]]:
    """Target, numbers, and proofs, of a certificate that fits itself; what a file says was proved is proved again."""
    found = []
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    delta = document["guarantee"]["delta"]
    unknown = not ENGINE or private(document["assumptions"])
    fresh = void(delta) if unknown else claims(run, relation, delta)
    _numbers(document, fresh, relation)
    if ENGINE and document["target"] is not None:
        target = target_from_json(document["target"], relation)
        Terms(relation, document["unit"], run, None, target, {}, (), False).check_target()
        found.append(f"the target {target} is met")
    if ENGINE:
        found.append("every number was computed again, and none is smaller than what the engine shows")
    else:
        found.append(ELSEWHERE)
    needed = {(claim["epsilon"], claim["delta"]) for claim in document["confirmed"]}
    routes = {point["delta"]: point["epsilon"]["route"] for point in (document["guarantee"], *document["curve"])}
    proofs = prove_claims(run, relation, finite_claims(document), progress, watch)
    for proof in proofs:
        said = f"δ({upward(proof.epsilon, '.9g')}) ≤ {upward(proof.delta, 'g')}"
        if proof.verdict == "refuted":
            raise Contradiction(
                f"epsilon = {proof.epsilon!r} at delta = {proof.delta!r}: is too small, δ(ε) "
                f"is at least {proof.lower!r}"
            )
        if proof:
            found.append(f"{said}: proved in ball arithmetic")
            continue
        if rigorous or (proof.epsilon, proof.delta) in needed:
            raise NotConfirmed(f"not proved: {proof}")
        if proof.upper <= NEAR * proof.delta and (near := _nearly(run, relation, proof, progress)):
            found.append(
                f"{said}: proved in ball arithmetic for ε = {upward(near.epsilon, '.9g')}; the last digits could not be"
            )
            proofs = (*proofs, near)
            continue
        route = routes[proof.delta]
        found.append(f"{said}: could not be decided here; computed again by the engine ({route}). {proof.working[-1]}")
    return proofs, found


def _ledgers(document: Mapping[str, Any], given: Sequence[str | list[str]]) -> list[str]:
    """Match the ledgers given to parts: each to another one; every part that names a ledger must have it."""
    if not ENGINE:
        return [_whole(document, lines) for lines in given]
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


def _whole(document: Mapping[str, Any], lines: str | list[str]) -> str:
    """What the hashes of a ledger's lines show, without reading what was charged."""
    position = Position()
    for _ in entries((line.encode() for line in lines), "ledger", position):
        pass
    told = {"hash": position.hash, "lines": position.lines, "torn": position.torn}
    if not any(told.items() <= named.items() for named in document["ledgers"]):
        raise PrivcalcError(
            f"ledger: has {position.lines} lines and the hash {position.hash}, and the certificate names none such"
        )
    return "the ledger is whole, and the one that the certificate names; what it says was not read here"


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


def _numbers(document: Mapping[str, Any], fresh: Mapping[str, Any], relation: Relation) -> None:
    """Every claim against one that is made now: never on the unsafe side of it, beyond the last digits."""
    made, now = list(each(document)), list(each(fresh))
    if (found := [(claim.name, claim.at) for claim in made]) != (right := [(claim.name, claim.at) for claim in now]):
        raise Contradiction(f"the numbers must be {str(right)[:500]}, not {str(found)[:500]}")
    for claim, true in zip(made, now, strict=True):
        standing = _standing(claim, true.value, relation)
        said = f"{claim}: claimed {_ends(claim.value)}, true is {_ends(true.value)}"
        if standing == "refuted" or (standing == "open" and private(document["assumptions"])):
            raise Contradiction(said)
        if ENGINE and standing == "open":
            raise NotConfirmed(f"{said}: less than can be shown today, and not refuted")


def _standing(claim: Claim, value: Json, relation: Relation) -> Literal["confirmed", "open", "refuted"]:
    """Whether a claim is at least what is shown now, or at least not beyond the other end of what is true."""
    safe: Literal["lower", "upper"] = "lower" if claim.name == "beta" else "upper"
    old, new = enclosure(claim.value, relation, safe), enclosure(value, relation, safe)
    slack = 1e-9 * abs(float(new)) if math.isfinite(float(new)) else 0.0
    if old.lower > new.upper + slack or old.upper < new.lower - slack:
        return "refuted"
    sound = old.lower <= new.lower + slack if safe == "lower" else old.upper >= new.upper - slack
    return "confirmed" if sound else "open"


def _ends(value: Json) -> str:
    low, high = (math.inf if value[end] is None else value[end] for end in ("lower", "upper"))
    return f"[{low!r}, {high!r}]"
