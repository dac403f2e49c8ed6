"""Noise for a run under Opacus, at the rate at which its loader really draws."""

from __future__ import annotations

from typing import Any

from opacus.data_loader import DPDataLoader

from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.sampler import coin_rate
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

__all__ = ["get_noise_multiplier", "noise_for"]


def get_noise_multiplier(
    *,
    target_epsilon: float,
    target_delta: float,
    sample_rate: float,
    steps: int | None = None,
    epochs: float | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> float:
    """The noise multiplier for a run under Opacus, at the rate of its coins, which also holds where a ledger draws.

    Args:
        target_epsilon: ε of the target, > 0.
        target_delta: δ of the target, in (0, 1).
        sample_rate: nominal Poisson rate: ``1 / len(data_loader)``, which is not batch size / records where that is no
            whole number (:func:`noise_for` reads it off the loader).
        steps: number of steps; or
        epochs: passes over the data, rounded up to whole steps.
        relation: the neighbouring relation.

    Returns:
        A float on the safe side: the run with it was evaluated to meet the target.

    Raises:
        PrivcalcError: if an argument is out of range, or not exactly one of steps and epochs is given.
    """
    epsilon = errors.positive("target_epsilon", target_epsilon)
    delta = errors.real(
        "target_delta", target_delta, "a probability in (0, 1)", low=0, high=1, open_low=True, open_high=True
    )
    rate = errors.rate("sample_rate", sample_rate)
    if (steps is None) == (epochs is None):
        raise PrivcalcError(f"steps = {steps!r}, epochs = {epochs!r}: give exactly one of them")
    if steps is None:
        steps = dpsgd.whole_steps(epochs or 0.0, rate)
    return dpsgd.noise_multiplier(
        epsilon=epsilon, delta=delta, sample_rate=coin_rate(rate), steps=steps, relation=relation
    )


def noise_for(
    data_loader: Any,
    *,
    target_epsilon: float,
    target_delta: float,
    epochs: int | None = None,
    steps: int | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> float:
    """The noise multiplier for a loader, at its true rate.

    ``make_private`` has it draw at 1 / ``len(data_loader)``, not at batch size / records.

    Args:
        data_loader: as it is given to ``make_private``, or as that returned it.
        target_epsilon: ε of the target, > 0.
        target_delta: δ of the target, in (0, 1).
        epochs: how often the loader is gone through; or
        steps: number of steps.
        relation: the neighbouring relation.

    Returns:
        A float on the safe side, for Opacus's coins and for a ledger's.

    Raises:
        PrivcalcError: if an argument is out of range, not exactly one of steps and epochs is given, or the loader has
            no length.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> loader = DataLoader(range(1010), batch_size=100)  # eleven batches: the rate is 1/11, not 100/1010
        >>> print(f"{noise_for(loader, target_epsilon=2.0, target_delta=1e-5, epochs=3):.4f}")
        1.4535
    """
    try:
        length = len(data_loader)
    except TypeError:
        raise PrivcalcError(f"data_loader = {type(data_loader).__name__}: must have a length") from None
    rate = 1 / errors.count("len(data_loader)", length, least=1)
    if isinstance(data_loader, DPDataLoader):
        rate = float(data_loader.sample_rate)
    if (steps is None) == (epochs is None):
        raise PrivcalcError(f"steps = {steps!r}, epochs = {epochs!r}: give exactly one of them")
    if steps is None:
        steps = errors.count("epochs", epochs, least=1) * length
    return get_noise_multiplier(
        target_epsilon=target_epsilon, target_delta=target_delta, sample_rate=rate, steps=steps, relation=relation
    )
