"""Opacus's Poisson batches: their true rate, and a sampler with one step for each batch.

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
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.drawn import Batch
from privcalc.tripwire import Sizes

__all__ = ["RULE", "Batches", "Waiting", "check_loader", "coin_rate", "loader_of"]

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

    def __init__(self, of: UniformWithReplacementSampler, *, ahead: int, draw: Callable[[], Batch] | None) -> None:
        super().__init__(num_samples=of.num_samples, sample_rate=of.sample_rate, generator=of.generator, steps=of.steps)
        self.waiting: deque[Waiting] = deque()
        self._ahead, self._draw, self._rate = ahead, draw, of.sample_rate
        self._sizes = Sizes(coin_rate(of.sample_rate), of.num_samples)

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
                token = self._draw()
                yield token.indices.tolist(), token
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


def check_loader(data_loader: Any) -> None:
    """Raise PrivcalcError unless it draws Poisson samples."""
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    if type(sampler) not in (UniformWithReplacementSampler, Batches):
        found = f"{type(data_loader).__name__} with {type(sampler).__name__}"
        raise PrivcalcError(
            f"data_loader = {found}: must draw Poisson samples, as a DPDataLoader with its own sampler does"
        )
    if getattr(data_loader.collate_fn, "rand_on_empty", False):
        raise PrivcalcError(
            "rand_on_empty = True: must be False, because a made-up record takes the place of a missing one"
        )


def loader_of(data_loader: Any, draw: Callable[[], Batch] | None) -> DataLoader[Any]:
    """A loader like another one, of :class:`Batches`."""
    ahead = data_loader.num_workers * (data_loader.prefetch_factor or 0)
    return DataLoader(
        data_loader.dataset,
        batch_sampler=Batches(data_loader.batch_sampler, ahead=ahead, draw=draw),
        num_workers=data_loader.num_workers,
        collate_fn=data_loader.collate_fn,
        pin_memory=data_loader.pin_memory,
        timeout=data_loader.timeout,
        worker_init_fn=data_loader.worker_init_fn,
        multiprocessing_context=data_loader.multiprocessing_context,
        generator=data_loader.generator,
        prefetch_factor=data_loader.prefetch_factor,
        persistent_workers=data_loader.persistent_workers,
    )
