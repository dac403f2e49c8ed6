"""What a claim may mean: for all combinations of what its parameters leave open the run that each says, and its ε."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from privcalc.claims.schema import Claim
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.allocation import RandomAllocation
from privcalc.mechanisms.fixed_size import FixedSizeSampled
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.replacement import WithReplacementSampled
from privcalc.mechanisms.shuffled import ShuffledEpoch
from privcalc.mechanisms.truncated import TruncatedPoissonSampled
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import Json

__all__ = ["Reading", "readings"]

MOST = 200
"""Readings that one claim may have."""

Chosen = Mapping[str, Any]


def _allocation(given: Chosen) -> Run:
    steps, rest = divmod(given["steps"], given["epochs"])
    if rest:
        raise PrivcalcError(f"steps = {given['steps']!r}: must be a multiple of epochs = {given['epochs']!r}")
    return RandomAllocation(Gaussian(given["noise_multiplier"]), steps) * int(given["epochs"])


def _truncated(given: Chosen) -> Run:
    step = TruncatedPoissonSampled(
        Gaussian(given["noise_multiplier"]), given["sample_rate"], given["largest_batch"], given["dataset_size"]
    )
    return step * int(given["steps"])


@dataclass(frozen=True)
class Sampler:
    """How batches may have been drawn.

    Attributes:
        needs: the parameters without which there is no number.
        run: the run that they say.
        says: what it is, for people.
        below: whether what is proved from below is of this sampler.
    """

    needs: tuple[str, ...]
    run: Callable[[Chosen], Run]
    says: str
    below: bool = True


RUNS = {
    "full batch": Sampler(
        ("steps",),
        lambda given: Gaussian(given["noise_multiplier"]) * given["steps"],
        "all records in every step",
    ),
    "Poisson": Sampler(
        ("sample_rate", "steps"),
        lambda given: PoissonSampled(Gaussian(given["noise_multiplier"]), given["sample_rate"]) * given["steps"],
        "a coin for each record in each step",
    ),
    "truncated Poisson": Sampler(
        ("sample_rate", "largest_batch", "dataset_size", "steps"),
        _truncated,
        "the same, cut at `largest_batch` records, a random part being kept",
    ),
    "fixed size": Sampler(
        ("batch_size", "dataset_size", "steps"),
        lambda given: (
            FixedSizeSampled(Gaussian(given["noise_multiplier"]), given["batch_size"], given["dataset_size"]) * given["steps"]
        ),
        "`batch_size` different records, drawn anew in each step",
    ),
    "with replacement": Sampler(
        ("batch_size", "dataset_size", "steps"),
        lambda given: (
            WithReplacementSampled(Gaussian(given["noise_multiplier"]), given["batch_size"], given["dataset_size"])
            * given["steps"]
        ),
        "the same, where a record may come twice",
    ),
    "random allocation": Sampler(
        ("steps", "epochs"),
        _allocation,
        "each record in one step of each epoch, drawn by itself",
    ),
    "shuffled": Sampler(
        ("epochs",),
        lambda given: ShuffledEpoch(Gaussian(given["noise_multiplier"])) * given["epochs"],
        "each epoch cut into batches; nothing is known from below",
        below=False,
    ),
}
"""Every sampler that a claim may name; ``proofs/claims.md`` says why these runs."""

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
        needs = ("mechanism", "noise_multiplier", *RUNS[sampler].needs, "delta")
        choices = [(rates(claim) if name == "sample_rate" else claim.values(name)) or (None,) for name in needs]
        for values in itertools.product(*choices):
            yield relation, sampler, dict(zip(needs, values, strict=True))


def _read(relation: Relation, sampler: str, given: Json) -> Reading:
    """The ε of one run; what is refused has none."""
    if missing := [name for name, value in given.items() if value is None]:
        return Reading(relation, sampler, given, 0.0, math.inf, f"{', '.join(missing)}: not stated")
    try:
        answer = RUNS[sampler].run(given).epsilon(delta=given["delta"], relation=relation)
    except PrivcalcError as error:
        return Reading(relation, sampler, given, 0.0, math.inf, str(error))
    return Reading(relation, sampler, given, answer.lower if RUNS[sampler].below else 0.0, answer.upper)
