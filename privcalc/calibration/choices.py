"""``privcalc plan``: which batch sizes, epochs and noise meet a target, and what each buys.

Averaged over a batch of expected size B, noise of standard deviation z·C becomes z/B in units of the clip norm C: the
noise of one step. Averaged over all T steps it is z/(B·√T): what a model that barely moves would feel of the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.errors import PrivcalcError, suggests
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation

__all__ = ["Choice", "plan"]

EPOCHS = (1.0, 3.0, 10.0, 30.0, 100.0)
SHARES = (0.001, 0.01, 0.1, 1.0)


@dataclass(frozen=True)
class Choice:
    """One way to meet the target.

    Attributes:
        epochs: passes over the data, in expectation.
        batch_size: expected batch size.
        sample_rate: probability with which each record takes part in a step.
        steps: number of steps.
        noise_multiplier: the least that was proved to meet the target.
        step_noise: noise in the average of one batch, in clip norms, per coordinate.
        run_noise: noise in the average over all steps, in clip norms, per coordinate.
        relative: step_noise over that of the largest batch listed for the same epochs: what a smaller batch costs.
    """

    epochs: float
    batch_size: int
    sample_rate: float
    steps: int
    noise_multiplier: float
    step_noise: float
    run_noise: float
    relative: float


@suggests
def plan(
    *,
    records: int,
    epsilon: float,
    delta: float,
    epochs: Sequence[float] | None = None,
    batch_sizes: Sequence[int] | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> list[Choice]:
    """Calibrate every combination of epochs and batch size.

    Args:
        records: how many records there are; must be public.
        epsilon: ε of the target.
        delta: δ of the target.
        epochs: passes over the data; default 1, 3, 10, 30, 100.
        batch_sizes: expected sizes of Poisson batches; default 0.1 % to 100 % of the records.
        relation: the neighbouring relation.

    Returns:
        By epochs, then batch size; all meet the target.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> for choice in plan(records=60_000, epsilon=3.0, delta=1e-5, epochs=[10], batch_sizes=[600, 6_000, 60_000]):
        ...     print(choice.batch_size, choice.steps, f"{choice.noise_multiplier:.3f} {choice.relative:.2f}")
        600 1000 0.814 18.50
        6000 100 1.675 3.81
        60000 10 4.397 1.00
    """
    number = errors.count("records", records, least=1)
    check_relation(relation)
    errors.check_delta(errors.delta("delta", delta), number)
    if errors.may_be_swapped(errors.epsilon("epsilon", epsilon), delta):
        raise PrivcalcError(f"epsilon = {epsilon!r}, delta = {delta!r}: δ is the larger; are they swapped?")
    passes = sorted({errors.positive("epochs", value) for value in (EPOCHS if epochs is None else epochs)})
    sizes = [max(round(share * number), 1) for share in SHARES] if batch_sizes is None else batch_sizes
    batches = sorted({errors.count("batch_sizes", size, least=1) for size in sizes})
    if not passes or not batches:
        raise PrivcalcError(f"epochs = {epochs!r}, batch_sizes = {batch_sizes!r}: must not be empty")
    if batches[-1] > number:
        raise PrivcalcError(f"batch_sizes = {batches[-1]}: must be at most records = {number}")
    found = []
    for many in passes:
        row = []
        for batch in batches:
            rate, steps = dpsgd.schedule(None, None, batch, number, many)
            noise = dpsgd.noise_multiplier(
                epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps, relation=relation
            )
            row.append((many, batch, rate, steps, noise, noise / batch, noise / batch / math.sqrt(steps)))
        found += [Choice(*one, one[5] / row[-1][5]) for one in row]
    return found
