"""Mechanisms that run on batches, and how the batches are drawn: a ledger draws what is accounted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privcalc.noise.source import Noise
from privcalc.relation import Relation
from privcalc.run import Mechanism

__all__ = ["Indices", "Sampled", "Sampler", "released"]

Indices = NDArray[np.int64]

Sampler = Callable[[Noise], Sequence[Indices]]
"""Draws the batches of one use, in their order."""


class Sampled(Mechanism):
    """A mechanism that runs on batches, and says how these are drawn; what it says is what its pairs assume.

    Attributes:
        mechanism: what runs on a batch.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    draws: ClassVar[str | None] = "batch"

    mechanism: Mechanism

    @abstractmethod
    def expected_size(self, records: int) -> float:
        """How many of so many records a batch has on average."""

    def fits(self, size: int) -> bool:
        """Whether a batch can have so many records."""
        return True

    @abstractmethod
    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """What draws the batches of one use: indices below ``records``, all equally likely to be any record's.

        Args:
            records: how many there are; may be secret.
            relation: the neighbouring relation, where what may be drawn from depends on it.
            persons: whose each record is, for samplers that ask.

        Raises:
            PrivcalcError: if no batch can be drawn from so many; nothing was drawn then.
        """


def released(mechanism: Mechanism) -> Mechanism:
    """What is released in a step: the mechanism that runs on a batch, or, without batches, the mechanism itself."""
    return mechanism.mechanism if isinstance(mechanism, Sampled) else mechanism
