"""Contradictions of a claim: if parameters do not fit each other, a reading uses some, and not the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from privcalc.claims.readings import open_samplers, rates
from privcalc.claims.schema import FULL, Claim, samplers
from privcalc.errors import may_be_swapped

__all__ = ["contradictions"]


def contradictions(claim: Claim) -> list[str]:
    """What does not fit, in words; nothing if all that is stated may be true of one run.

    Args:
        claim: the claim.
    """
    return list(_found(claim))


def _found(claim: Claim) -> Iterator[str]:
    steps, epochs, known = claim.values("steps"), claim.values("epochs"), rates(claim)
    for name, values, others in (("steps", steps, epochs), ("epochs", epochs, steps)):
        for value in values if others and known else ():
            pairs = ((value, other) if name == "steps" else (other, value) for other in others)
            if not any(_passes(made, passed, rate) for (made, passed), rate in itertools.product(pairs, known)):
                rest = "epochs" if name == "steps" else "steps"
                yield f"{name} = {value} with {rest} = {_either(others)} and a sampling rate of {_either(known)}"
    stated, drawn = claim.values("sample_rate"), open_samplers(claim)
    sized = [
        batch / records
        for batch, records in itertools.product(claim.values("batch_size"), claim.values("dataset_size"))
    ]
    if stated and sized and any("batch_size" in samplers()[name].takes for name in drawn):  # and pass over a rate
        for rate in sized:
            if not any(math.isclose(rate, other, rel_tol=0.01) for other in stated):
                yield f"sample_rate = {_either(stated)} with {rate:.6g}, the batch size over the number of records"
    if FULL.name in drawn and any(rate < 1 for rate in known):
        yield f"sampler = full batch with a sampling rate of {_either(known)}"
    if "Poisson" in claim.values("sampler") and claim.values("largest_batch") and "truncated Poisson" not in drawn:
        largest = _either(claim.values("largest_batch"))
        yield f"sampler = Poisson with largest_batch = {largest}: that is truncated Poisson"
    for delta, records in itertools.product(claim.values("delta"), claim.values("dataset_size")):
        if delta * records >= 1:
            yield f"delta = {delta:g} with dataset_size = {records}: one record could be published whole, at random"
    for epsilon, delta in itertools.product(claim.values("epsilon"), claim.values("delta")):
        if may_be_swapped(epsilon, delta):
            yield f"epsilon = {epsilon:g} with delta = {delta:g}: δ is the larger; are they swapped?"


def _passes(steps: int, epochs: int, rate: float) -> bool:
    """Whether so many steps are so many passes, up to a pass's rounding and a tenth, for division among workers."""
    return 0.9 * epochs * math.floor(1 / rate) - 1 <= steps <= 1.1 * epochs * math.ceil(1 / rate) + 1


def _either(values: tuple[object, ...]) -> str:
    return " or ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
