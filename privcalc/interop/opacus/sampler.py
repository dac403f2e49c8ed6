"""Opacus's Poisson batches: their true rate, noise at that rate, and a sampler with one step for each batch.

See ``proofs/interop.md``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler
from torch.utils.data import DataLoader

from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.errors import PrivcalcError
from privcalc.ledger.drawn import Batch
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.tripwire import Sizes

LIKE = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"),
    *("generator", "prefetch_factor", "persistent_workers"),
)
"""What a loader of other batches has of the one in whose place it is."""

RULE = "every step must be one whole batch of the loader that keep_ledger returned, and every batch one step"


def coin_rate(sample_rate: float) -> float:
    """The probability with which Opacus's own loader lets a record take part: its coins have 24 bits.

    Args:
        sample_rate: the nominal rate q.

    Returns:
        The share of the fractions k/2²⁴ below q, in single precision; at least q, and at most 2⁻²³ more.

    Raises:
        PrivcalcError: if q is not in (0, 1].
    """
    rate = errors.rate("sample_rate", sample_rate)
    return min(math.ceil(math.ldexp(max(rate, float(np.float32(rate))), 24)) / 2**24, 1.0)


Draw = Callable[[], tuple[list[int], Batch | None]]
"""Gives this process's records of a ledger's next batch, and the token, where the ledger is."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A batch that was given out and has had no step.

    Attributes:
        size: how many records it has. Secret.
        token: what pays for its release, where a ledger drew it.
    """

    size: int
    token: Batch | None


class Batches(UniformWithReplacementSampler):  # type: ignore[misc]
    """Batches by a ledger, or by Opacus's coins, which are kept until the step that each is for.

    Args:
        of: the sampler in whose place this one is.
        ahead: how many batches the workers of the loader read before they are used.
        draw: the next batch of a ledger; None: Opacus's own coins are tossed, and their sizes looked at.

    Attributes:
        waiting: those that had no step, oldest first.
    """

    def __init__(self, of: Any, *, ahead: int, draw: Draw | None) -> None:
        records = records_of(of)
        super().__init__(num_samples=records, sample_rate=of.sample_rate, generator=of.generator, steps=len(of))
        self.waiting: deque[Waiting] = deque()
        self._ahead, self._draw, self._rate = ahead, draw, of.sample_rate
        self._sizes = Sizes(coin_rate(of.sample_rate), records)

    def __iter__(self) -> Iterator[list[int]]:
        """Draw; what workers had read ahead for an iteration before is no longer to be used.

        Raises:
            PrivcalcError: if a batch was left out (which ones are used must not depend on what is in them), or no coins
                of the rate that is accounted for can have drawn the batches.
        """
        self._check_used()
        self.waiting.clear()
        for indices, token in self._drawn():
            self.waiting.append(Waiting(len(indices), token))
            yield indices
            self._check_used()

    def _drawn(self) -> Iterator[tuple[list[int], Batch | None]]:
        if self._draw is not None:
            for _ in range(self.steps):
                yield self._draw()
            return
        for indices in super().__iter__():
            kind, device = torch.get_default_dtype(), torch.get_default_device()
            if self.sample_rate != self._rate or kind not in (torch.float32, torch.float64) or device.type != "cpu":
                raise PrivcalcError(
                    f"data_loader: its coins must be tossed at rate {self._rate!r}, in single or double precision on "
                    f"the CPU; not at {self.sample_rate!r}, {kind} on {device}, which is another law"
                )
            self._sizes.add(len(indices))
            self._sizes.check()
            yield indices, None

    def _check_used(self) -> None:
        if len(self.waiting) > self._ahead:  # more than workers have read ahead: somebody has seen one
            raise PrivcalcError(
                f"data_loader: the batch drawn last was not used, or not all of it: {RULE}. Step on empty batches too, "
                "and before a loop is left; accumulate with BatchMemoryManager only; "
                "look at the data through a loader of your own"
            )


def records_of(sampler: Any) -> int:
    """How many records there are, in all processes together."""
    return int(getattr(sampler, "total_size", sampler.num_samples))


def check_loader(data_loader: Any, *, several: bool) -> None:
    """Raise PrivcalcError unless it draws Poisson samples, for several processes or for one."""
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    own = DistributedUniformWithReplacementSampler if several else UniformWithReplacementSampler
    if type(sampler) not in (own, Batches):
        found = f"{type(data_loader).__name__} with {type(sampler).__name__}"
        raise PrivcalcError(
            f"data_loader = {found}: must draw Poisson samples, as a DPDataLoader with its own sampler does"
        )
    if getattr(data_loader.collate_fn, "rand_on_empty", False):
        raise PrivcalcError(
            "rand_on_empty = True: must be False, because a made-up record takes the place of a missing one"
        )


def loader_of(data_loader: Any, draw: Draw | None) -> DataLoader[Any]:
    """A loader like another one, of :class:`Batches`."""
    ahead = data_loader.num_workers * (data_loader.prefetch_factor or 0)
    batches = Batches(data_loader.batch_sampler, ahead=ahead, draw=draw)
    return DataLoader(data_loader.dataset, batch_sampler=batches, **{name: getattr(data_loader, name) for name in LIKE})


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


@errors.suggests
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
        length = errors.count("len(data_loader)", len(data_loader), least=1)
    except TypeError:
        raise PrivcalcError(f"data_loader = {type(data_loader).__name__}: must have a length") from None
    if steps is None and epochs is not None:
        steps, epochs = errors.count("epochs", epochs, least=1) * length, None
    return get_noise_multiplier(
        target_epsilon=target_epsilon,
        target_delta=target_delta,
        sample_rate=float(data_loader.sample_rate) if isinstance(data_loader, DPDataLoader) else 1 / length,
        steps=steps,
        epochs=epochs,
        relation=relation,
    )
