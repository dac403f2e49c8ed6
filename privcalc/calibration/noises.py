"""Which noise for a run: independent, banded with cyclic samples, or correlated; each calibrated, each with its error.

All three have the same expected batch and the same number of steps. The error is that of the sums of all steps so far,
which is what weights are made of: its root mean square over the steps, per coordinate, in clip norms, divided by the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from privcalc import errors
from privcalc.calibration.search import calibrate
from privcalc.errors import PrivcalcError
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

__all__ = ["Compared", "compare_noise"]

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
