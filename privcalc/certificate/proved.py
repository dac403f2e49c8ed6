"""The verdict on a certificate, and its claims of ε, each proved again in ball arithmetic: one check, said by all.

``privcalc verify`` comes to it with the engine's numbers (``verify.py``), the page in a browser without (``alone.py``).
What each line of the answer means: ``proofs/certificate.md``.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from privcalc.certificate.assumed import private
from privcalc.certificate.consistency import of_part
from privcalc.certificate.schema import UNDECIDED, VERIFIED, Claim, each, void
from privcalc.certificate.text import doubts, opened
from privcalc.enclosure import upward
from privcalc.errors import Contradiction, NotConfirmed
from privcalc.proof import Proof, finite_claims, prove_claims
from privcalc.relation import Relation
from privcalc.rigorous.description import UnprovableError
from privcalc.run import Run
from privcalc.serial import Json, enclosure, relation_from_json, run_from_json, target_from_json

__all__ = ["Engine", "decided", "within"]

Engine = Callable[[Mapping[str, Any], Run, Relation], tuple[Json, list[str]]]
"""The numbers of a certificate's run as they are computed now, and what was confirmed by them."""

Standing = Literal["confirmed", "open", "refuted"]

ELSEWHERE = (
    "not computed again here: μ and the error rates β, and whether a cap was kept; privcalc verify computes them again"
)
"""What is left where only ball arithmetic is there."""

SHARE = 0.8
"""Of the time that there is: no proof is begun, or gone on with, later than that."""

NEAR = 1.5
"""An upper bound of δ(ε), as a multiple of δ, beyond which it is not worth while to try a larger ε."""


def decided(
    document: Mapping[str, Any],
    ledgers: Sequence[str],
    progress: Callable[[str], None],
    *,
    engine: Engine | None = None,
    rigorous: bool = False,
    watch: Callable[[Proof], None] | None = None,
) -> tuple[str, ...]:
    """What could be confirmed of a certificate that fits itself, the verdict first.

    Args:
        document: the certificate.
        ledgers: what its ledgers confirmed.
        progress: called now and then; an exception ends a proof.
        engine: the numbers, computed again, if there is what computes them.
        rigorous: whether a claim of ε that cannot be decided in ball arithmetic is an error.
        watch: called with each proof when it is done.

    Raises:
        Contradiction: with whatever is wrong.
        NotConfirmed: if it cannot be told.
    """
    found = [
        "the text is whole: it fits its own hash",
        "what is certified follows from what was planned, capped or recorded",
    ]
    proofs, lines = _claims(document, progress, engine, watch, rigorous=rigorous)
    found += lines
    first: dict[str, int] = {}
    for number, part in enumerate(document["parts"]):
        if (same := first.setdefault(part["hash"], number)) < number:
            found.append(f"part {number + 1}: is the same as part {same + 1}, and counts again")
            continue
        with of_part(number):
            said = _claims(part, progress, engine, watch, rigorous=rigorous)[1]
            found += [f"part {number + 1}: {line}" for line in said]
    return (_verdict(document, proofs), *found, *ledgers, *opened(document), *doubts(document))


def within(seconds: float, *, show: bool = False) -> Callable[[str], None]:
    """What a proof calls as it goes on; it ends it when most of the time is gone, and may show its lines."""
    end = time.monotonic() + SHARE * seconds

    def progress(line: str) -> None:
        if time.monotonic() > end:
            raise UnprovableError(f"not within {seconds:g} seconds")
        if line and show:
            print(line, file=sys.stderr)

    return progress


def _verdict(document: Mapping[str, Any], proofs: Sequence[Proof]) -> str:
    """One sentence: what becomes of the guarantee."""
    guarantee = document["guarantee"]
    delta = float(guarantee["delta"])
    if guarantee["epsilon"]["upper"] is None:
        return f"{VERIFIED}: no finite ε is claimed at δ = {upward(delta, 'g')}, and nothing was found wrong"
    epsilon = float(guarantee["epsilon"]["upper"])
    claim = f"ε ≤ {upward(epsilon, '.9g')} at δ = {upward(delta, 'g')}, {document['relation']}"
    if shown := [proof.epsilon for proof in proofs if proof and proof.delta == delta and proof.epsilon >= epsilon]:
        last = f" (proved: {upward(min(shown), '.9g')})" if min(shown) > epsilon else ""
        return f"{VERIFIED}: {claim}{last}, was proved again, and nothing was found wrong"
    return f"{UNDECIDED}: {claim}, could not be proved here; nothing was found wrong"


def _claims(
    document: Mapping[str, Any],
    progress: Callable[[str], None],
    engine: Engine | None,
    watch: Callable[[Proof], None] | None,
    *,
    rigorous: bool,
) -> tuple[tuple[Proof, ...], list[str]]:
    """Numbers and proofs of a certificate that fits itself; what a file says was proved is proved again."""
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    computed, found = void(document["guarantee"]["delta"]), [ELSEWHERE]
    if engine is not None:
        computed, found = engine(document, run, relation)
    standings = _standings(document, computed, relation)
    proofs = prove_claims(run, relation, finite_claims(document), progress, watch)
    for proof in proofs:  # first, so that whoever checks says the same of an ε that is too small
        if proof.verdict == "refuted":
            raise Contradiction(
                f"epsilon = {proof.epsilon!r} at delta = {proof.delta!r}: is too small, δ(ε) "
                f"is at least {proof.lower!r}"
            )
    barred = bool(private(document["assumptions"]))
    for said, standing in standings:
        if standing == "refuted" or (standing == "open" and barred):
            raise Contradiction(said)
        if standing == "open" and engine is not None:
            raise NotConfirmed(f"{said}: less than can be shown today, and not refuted")
    needed = {(claim["epsilon"], claim["delta"]) for claim in document["confirmed"]}
    routes = {point["delta"]: point["epsilon"]["route"] for point in (document["guarantee"], *document["curve"])}
    for proof in proofs:
        said = f"δ({upward(proof.epsilon, '.9g')}) ≤ {upward(proof.delta, 'g')}"
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
        again = "" if engine is None else f"; computed again by the engine ({routes[proof.delta]})"
        found.append(f"{said}: could not be decided here{again}. {proof.working[-1]}")
    if engine is None and not barred:
        found += _others(document, run, relation, progress, watch)
    return proofs, found


def _nearly(run: Run, relation: Relation, proof: Proof, progress: Callable[[str], None]) -> Proof | None:
    """A proof for an ε that is larger by little."""
    for factor in (1 + 1e-6, 1 + 1e-3):
        (found,) = prove_claims(run, relation, [(proof.epsilon * factor, proof.delta)], progress)
        if found:
            return found
    return None


def _others(
    document: Mapping[str, Any],
    run: Run,
    relation: Relation,
    progress: Callable[[str], None],
    watch: Callable[[Proof], None] | None,
) -> Iterator[str]:
    """The other claims that are one of δ(ε): the advantage, which is δ(0), and a target of ε, or of it."""
    most, claims = document["advantage"]["upper"], list[tuple[str, float, float]]()
    if most < 1:
        claims.append((f"the advantage is at most {upward(most, '.9g')}", 0.0, most))
    if document["target"] is not None:
        goal = target_from_json(document["target"], relation)
        if goal.epsilon is None and goal.advantage is None:
            yield f"whether the target {goal} is met was not looked at here: privcalc verify says it"
        else:
            level = goal.delta if goal.advantage is None else float(goal.advantage)
            claims.append((f"the target {goal} is met", float(goal.epsilon or 0.0), level or 0.0))
    for said, epsilon, delta in claims:
        (proof,) = prove_claims(run, relation, [(epsilon, delta)], progress, watch)
        if proof.verdict == "refuted":
            raise Contradiction(f"{said}: is not so, δ({epsilon:g}) is at least {proof.lower!r}")
        yield f"{said}: {'proved in ball arithmetic' if proof else 'could not be decided here'}"


def _standings(
    document: Mapping[str, Any], computed: Mapping[str, Any], relation: Relation
) -> list[tuple[str, Standing]]:
    """Every claim beside one that is made now: it must not be on the unsafe side of it, beyond the last digits."""
    made, now = list(each(document)), list(each(computed))
    if (found := [(claim.name, claim.at) for claim in made]) != (right := [(claim.name, claim.at) for claim in now]):
        raise Contradiction(f"the numbers must be {str(right)[:500]}, not {str(found)[:500]}")
    return [
        (f"{claim}: claimed {_ends(claim.value)}, true is {_ends(true.value)}", _standing(claim, true.value, relation))
        for claim, true in zip(made, now, strict=True)
    ]


def _standing(claim: Claim, value: Json, relation: Relation) -> Standing:
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
