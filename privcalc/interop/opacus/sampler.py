"""Opacus's sampler, which remembers what it has drawn: each batch is for one step, and none is given up for another."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.guards import Guards
from privcalc.interop.opacus.past import Used, state_of

__all__ = ["PRECISE", "RULE", "Drawn", "check_loader", "coin_rate"]

PRECISE = (torch.float32, torch.float64)
RULE = "every optimizer step must be one whole batch of the loader that make_private returned, and every batch one step"


def coin_rate(sample_rate: float) -> float:
    """The probability with which Opacus's loader lets a record take part.

    Args:
        sample_rate: the nominal rate q.

    Returns:
        The share of the fractions k/2²⁴ below q, in single precision; at least q, and at most 2⁻²³ more.

    Raises:
        PrivcalcError: if q is not in (0, 1].
    """
    rate = errors.rate("sample_rate", sample_rate)
    return min(math.ceil(math.ldexp(max(rate, float(np.float32(rate))), 24)) / 2**24, 1.0)


class Drawn(UniformWithReplacementSampler):  # type: ignore[misc]
    """A sampler that remembers the batches it has drawn and no step has used.

    Attributes:
        sizes: of those batches, oldest first. Secret.
        ahead: how many batches the workers of the loader draw before they are used.
        rate: the nominal rate, when it was made.
        states: those of generators that batches were drawn from, and noise.
        guards: of the optimizer, which are told of batches.
        draw: what draws in place of Opacus's coins, where a ledger does.
        first: what is to happen before a batch is given out.
    """

    sizes: deque[int]
    ahead: int
    rate: float
    states: Used
    guards: Guards
    draw: Callable[[], list[int]] | None
    first: Callable[[], None]

    def __iter__(self) -> Iterator[list[int]]:
        """Draw; what workers have read ahead for an iteration before is no longer to be used.

        Raises:
            PrivcalcError: if a batch was left out: which ones are must not be chosen by what is in them; or the rate is not that
                of the steps accounted for, or the coins are those of an earlier batch.
        """
        if not hasattr(self, "sizes"):
            raise PrivcalcError("batch_sampler: must be the one of make_private, whose batches are counted")
        if len(self.sizes) > self.ahead:  # more than workers have read ahead: somebody has seen one
            raise PrivcalcError(
                f"data_loader: a batch was drawn and given up for another: {RULE}, as which ones are used must not be chosen. "
                "Step before a loop is left; look at the data through a loader of your own"
            )
        self.sizes.clear()
        for indices in self._tossed() if self.draw is None else (self.draw() for _ in range(self.steps)):
            if len(self.sizes) > self.ahead:
                raise PrivcalcError(
                    f"data_loader: the batch drawn last was not used, or not all of it: {RULE}. Step on empty batches too; "
                    "accumulate with BatchMemoryManager only; look at the data through a loader of your own"
                )
            self.sizes.append(len(indices))
            self.guards.waiting = True
            self.first()
            yield indices

    def _tossed(self) -> Iterator[list[int]]:
        """By Opacus's coins."""
        draws = super().__iter__()
        state = state_of(self.generator)
        for indices in draws:
            self._check_coins()
            if self.states.had([state]):
                raise PrivcalcError(
                    "data_loader: its coins are those of an earlier batch, or of noise, because the generator was in the same "
                    "state: a seed that is set in every step or epoch does that, and repeats the noise, too, as does a state "
                    "that is set back, as it was in this process or an earlier one of the run. Set it once, before the first "
                    "step; in a run that is gone on with, call torch.seed()"
                )
            self.states.add([state])
            yield indices
            state = state_of(self.generator)

    def _check_coins(self) -> None:
        if self.sample_rate != self.rate:
            raise PrivcalcError(f"sample_rate = {self.sample_rate!r}: must stay {self.rate!r}; call make_private for another")
        kind, device = torch.get_default_dtype(), torch.get_default_device()
        if kind not in PRECISE or device.type != "cpu":  # fewer bits, or another law of them
            raise PrivcalcError(
                f"data_loader: its coins must be drawn in single or double precision on the CPU, not {kind} on {device}"
            )


def check_loader(data_loader: Any) -> None:
    """Raise PrivcalcError unless it draws Poisson samples."""
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    if not isinstance(data_loader, DPDataLoader) or type(sampler) not in (UniformWithReplacementSampler, Drawn):
        found = f"{type(data_loader).__name__} with {type(sampler).__name__}"
        raise PrivcalcError(f"data_loader = {found}: must draw Poisson samples, as a DPDataLoader with its own sampler does")
    if getattr(data_loader.collate_fn, "rand_on_empty", False):
        raise PrivcalcError("rand_on_empty = True: must be False, because a made-up record takes the place of a missing one")
