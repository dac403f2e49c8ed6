"""Several processes that train one model: each sums its part of every batch, and the first one has the ledger.

Which parts are whose is public (each second index, with two processes); all processes trust each other, and see sums
without noise. What goes wrong in the first one is raised in all; a process that stops alone ends the others' waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.sampler import Waiting
from privcalc.ledger.drawn import Batch
from privcalc.numerics.floats import Floats

Found = TypeVar("Found")


class Processes:
    """All of them. They meet by gloo, whatever the model is trained by."""

    def __init__(self) -> None:
        self.rank, self.number = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo")

    def of_first(self, call: Callable[[], Found]) -> Found:
        """What the first process finds, or raises."""
        box: list[Any] = [None, None]
        if self.rank == 0:
            try:
                box[0] = call()
            except PrivcalcError as error:
                box[1] = error
        dist.broadcast_object_list(box, src=0, group=self._group)
        if box[1] is not None:
            raise box[1]
        found: Found = box[0]
        return found

    def draw(self, draw: Callable[[], Batch]) -> tuple[list[int], Batch | None]:
        """This process's part of the next batch; the first one keeps its token."""
        kept: list[Batch] = []

        def drawn() -> Any:
            kept.append(draw())
            return kept[0].indices

        part = self.of_first(drawn)[self.rank :: self.number].tolist()
        return part, kept[0] if kept else None

    def release(self, release: Callable[[Floats], Floats], total: Floats, waiting: Waiting, same: object) -> Floats:
        """The sum of all sums, with noise.

        Args:
            release: adds the noise, in the first process.
            total: of this process.
            waiting: this process's part of the batch; the token is where the ledger is.
            same: what must be the same in all processes.
        """
        found: list[Any] = [None] * self.number
        dist.all_gather_object(found, (waiting.size, total.size, same), group=self._group)
        if any(each[1:] != found[0][1:] for each in found):
            raise PrivcalcError(
                "optimizer: clip norm, noise multiplier, expected batch size and parameters must be the same in all "
                "processes"
            )
        whole = torch.from_numpy(np.array(total))
        dist.reduce(whole, dst=0, group=self._group)

        def released() -> Floats:
            if waiting.token is None or sum(each[0] for each in found) != waiting.token.indices.size:
                raise PrivcalcError("optimizer: the records of this step, in all processes, are not those of the batch")
            return release(whole.numpy())

        return self.of_first(released)
