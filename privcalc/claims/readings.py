"""What a claim may mean: for all combinations of what its parameters leave open the run that each says, and its ε."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from privcalc.claims.schema import FULL, Claim, samplers
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.sampler import batched
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import Json

__all__ = ["Reading", "readings"]

MOST = 200
"""Readings that one claim may have."""

Chosen = Mapping[str, Any]


def run_of(sampler: str, given: Chosen) -> Run:
    """The run that a sampler and its parameters say; ``proofs/claims.md`` says why these runs.

    Raises:
        PrivcalcError: if there is none.
    """
    noise, claim = Gaussian(given["noise_multiplier"]), samplers()[sampler]
    if claim is FULL:
        return noise * int(given["steps"])
    taken = [given[name] for name in claim.takes]
    if claim.counted == "epochs" and "steps" in claim.takes:
        steps, rest = divmod(given["steps"], given["epochs"])
        if rest:
            raise PrivcalcError(f"steps = {given['steps']!r}: must be a multiple of epochs = {given['epochs']!r}")
        taken[claim.takes.index("steps")] = steps
    kind = next(kind for kind in batched() if kind.claim is claim)
    return kind.on(noise, *taken) * int(given[claim.counted])


USUAL = ("Poisson", "fixed size", "shuffled")
"""What a sampler may be that is not stated; and a truncated one, where a largest batch is."""


@dataclass(frozen=True)
class Reading:
    """One thing that a claim may mean.

    Attributes:
        relation: the neighbouring relation.
        sampler: how batches were drawn.
        given: the parameters that were used.
        lower: ε is at least this.
        upper: ε is at most this; ∞ if nothing is known.
        why: why nothing is known; empty if something is.
    """

    relation: Relation
    sampler: str
    given: Json
    lower: float
    upper: float
    why: str = ""

    def outcome(self, epsilon: float) -> str:
        """What it says of a published ε: ``"holds"``, ``"fails"``, or ``"open"`` where what is proved does not tell.

        Args:
            epsilon: what was published.
        """
        return "holds" if self.upper <= epsilon else "fails" if epsilon < self.lower else "open"


def readings(claim: Claim) -> list[Reading]:
    """All that a claim may mean, with the ε of each.

    Args:
        claim: the claim.

    Returns:
        One for each combination of what it leaves open; one that lacks a parameter says which.

    Raises:
        PrivcalcError: if they are more than 200.
    """
    found = list(itertools.islice(_combinations(claim), MOST + 1))
    if len(found) > MOST:
        raise PrivcalcError(f"claim = {claim.name!r}: must have at most {MOST} readings; state fewer alternatives")
    return [_read(relation, sampler, given) for relation, sampler, given in found]


def open_samplers(claim: Claim) -> tuple[str, ...]:
    """How batches may have been drawn."""
    usual = (*USUAL, "truncated Poisson") if claim.values("largest_batch") else USUAL
    return claim.values("sampler") or usual


def rates(claim: Claim) -> tuple[float, ...]:
    """What the sampling rate may be: as stated, and as batch size and number of records say."""
    pairs = itertools.product(claim.values("batch_size"), claim.values("dataset_size"))
    found = (*map(float, claim.values("sample_rate")), *(batch / records for batch, records in pairs))
    return tuple(dict.fromkeys(found))


def _combinations(claim: Claim) -> Iterator[tuple[Relation, str, Json]]:
    relations = [Relation(name) for name in claim.values("relation")] or list(Relation)
    for relation, sampler in itertools.product(relations, open_samplers(claim)):
        needs = ("mechanism", "noise_multiplier", *samplers()[sampler].needs, "delta")
        choices = [(rates(claim) if name == "sample_rate" else claim.values(name)) or (None,) for name in needs]
        for values in itertools.product(*choices):
            yield relation, sampler, dict(zip(needs, values, strict=True))


def _read(relation: Relation, sampler: str, given: Json) -> Reading:
    """The ε of one run; what is refused has none."""
    if missing := [name for name, value in given.items() if value is None]:
        return Reading(relation, sampler, given, 0.0, math.inf, f"{', '.join(missing)}: not stated")
    try:
        answer = run_of(sampler, given).epsilon(delta=given["delta"], relation=relation)
    except PrivcalcError as error:
        return Reading(relation, sampler, given, 0.0, math.inf, str(error))
    return Reading(relation, sampler, given, answer.lower if samplers()[sampler].below else 0.0, answer.upper)
