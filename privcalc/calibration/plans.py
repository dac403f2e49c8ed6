"""Plans of a training run (``privcalc plan``): which batch sizes, epochs and noise meet a target, and what each buys.

Noise may be independent, banded with cyclic samples, or correlated: each calibrated, with the same expected batch and
the same number of steps. Its error is that of the sums of all steps so far, which is what weights are made of: its root
mean square over the steps, per coordinate, in clip norms, divided by the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.calibration.search import calibrate
from privcalc.errors import PrivcalcError, suggests
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Run
from privcalc.strategies import (
    CyclicPoisson,
    FixedOrder,
    MinSeparation,
    Strategy,
    Toeplitz,
    momentum,
    optimal_toeplitz,
    spread,
)

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


__all__ = ["Choice", "Compared", "compare_noise", "plan"]

BANDS = (2, 4, 8, 16, 32, 64)
MOST_STEPS = 20_000
"""Beyond these the search for a strategy takes long."""


@dataclass(frozen=True)
class Compared:
    """One kind of noise that meets the target.

    Attributes:
        noise: "independent", "cyclic bands" or "correlated".
        epsilon: ε of the target.
        run: what runs: plan and calibrated noise, as a ledger takes it.
        noise_multiplier: its noise multiplier.
        bands: how many diagonals the strategy has; 1 if noise is independent.
        error: of the sums of all steps so far.
    """

    noise: str
    epsilon: float
    run: Run
    noise_multiplier: float
    bands: int
    error: float


def compare_noise(
    *,
    records: int,
    epochs: int,
    batch_size: int,
    epsilon: float,
    delta: float,
    relation: Relation = ADD_OR_REMOVE_ONE,
    beta: float = 0.0,
    bands: Sequence[int] = BANDS,
) -> list[Compared]:
    """Calibrate independent noise on Poisson samples, bands with cyclic ones, and correlated noise in fixed order.

    Args:
        records: how many records there are; must be public.
        epochs: passes over the data.
        batch_size: expected size of a batch; an epoch has records/batch_size steps, rounded.
        epsilon: ε of the target.
        delta: δ of the target.
        relation: the neighbouring relation.
        beta: momentum of the descent, in [0, 1), for whose weights strategies are made.
        bands: numbers of diagonals to try with cyclic samples; the one with the least error is kept.

    Returns:
        The three, by rising error; cyclic bands only where an epoch has more steps than the fewest bands.

    Raises:
        PrivcalcError: if an argument is out of range, or the steps are more than 20,000.

    Example:
        >>> for one in compare_noise(records=10_000, epochs=4, batch_size=100, epsilon=3.0, delta=1e-6, bands=[8]):
        ...     print(f"{one.noise:12} {one.bands:3} {one.error:.3f}")
        cyclic bands   8 0.071
        correlated   100 0.090
        independent    1 0.110
    """
    number, batch = errors.count("records", records, least=1), errors.count("batch_size", batch_size, least=1)
    if batch > number:
        raise PrivcalcError(f"batch_size = {batch}: must be at most records = {number}")
    errors.check_delta(errors.delta("delta", delta), number)
    epoch = max(round(number / batch), 1)
    steps = errors.count("epochs", epochs, least=1) * epoch
    if steps > MOST_STEPS:
        raise PrivcalcError(f"epochs = {epochs}, batch_size = {batch}: must be at most {MOST_STEPS} steps, not {steps}")
    load = momentum(steps, beta=beta)
    check_relation(relation)

    def entry(noise: str, strategy: Strategy, make: partial[CorrelatedGaussian] | partial[Run]) -> Compared:
        found = calibrate(make, epsilon=epsilon, delta=delta, relation=relation)
        error = found.parameter * spread(strategy, load) / batch
        return Compared(noise, float(epsilon), found.run, found.parameter, strategy.bands, error)

    found = [entry("independent", Toeplitz([1.0], steps), partial(_independent, 1 / epoch, steps))]
    cyclic = []
    for width in sorted({errors.count("bands", width, least=2) for width in bands}):
        if width < epoch:
            strategy: Strategy = optimal_toeplitz(steps, MinSeparation(width), bands=width, workload=load)
            order = CyclicPoisson(width, width / epoch)
            cyclic.append(entry("cyclic bands", strategy, partial(_correlated, strategy, order)))
    if cyclic:
        found.append(min(cyclic, key=lambda one: one.error))
    strategy = optimal_toeplitz(steps, FixedOrder(epoch), bands=epoch, workload=load)
    found.append(entry("correlated", strategy, partial(_correlated, strategy, FixedOrder(epoch))))
    return sorted(found, key=lambda one: one.error)


def _independent(rate: float, steps: int, z: float) -> Run:
    return PoissonSampled(Gaussian(z), rate) * steps


def _correlated(strategy: Strategy, order: FixedOrder | CyclicPoisson, z: float) -> CorrelatedGaussian:
    return CorrelatedGaussian(z, strategy, order)
