"""Several processes under ``torchrun``, each with its own part of the private records: one ledger, one model, one certificate.

    torch.distributed.init_process_group("gloo")          # or "nccl", after torch.cuda.set_device
    model.fit(X_here, y_here, shards=Shards())            # in every process

Process 0 has the ledger: it tosses the coins of all records and adds the noise, once, to the sum of all clipped sums. The others
get the noisy sum, and so the same model. A process that stops alone leaves the others waiting; ``torchrun`` ends them. Proof, and
what a process sees of the others: ``proofs/noisy_gd.md``.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import privcalc as pc
from privcalc.ledger import Batch, Provenance

__all__ = ["Alone", "ShardedLedger", "Shards", "Team"]

Value = TypeVar("Value")
Opened = TypeVar("Opened")


class Team(ABC, Generic[Opened]):
    """The processes that train together; each sees the one ledger as ``Opened``."""

    @abstractmethod
    def gather(self, value: Value) -> list[Value]:
        """What every process has, in their order."""

    def alike(self, *values: object) -> None:
        """Raise in every process, unless all of them say the same."""
        if len(said := set(self.gather(repr(values)))) > 1:
            raise pc.PrivcalcError(f"shards: all processes must do the same, not {' and '.join(sorted(said))}")

    @abstractmethod
    def seed(self, given: int | None) -> int | None:
        """The seed of public choices, which all must make alike."""

    @abstractmethod
    def open(self, open_ledger: Callable[[], pc.Ledger]) -> Opened:
        """The ledger, as this process sees it."""

    @abstractmethod
    def own(self, ledger: Opened) -> pc.Ledger | None:
        """The ledger itself, in the process that has it."""

    @abstractmethod
    def charged(self, ledger: Opened) -> bool:
        """Whether something may have been released; asks no other process, which may have stopped."""

    @abstractmethod
    def certify(self, ledger: Opened, delta: float) -> pc.Certificate:
        """The one certificate, in every process."""


class Alone(Team[pc.Ledger]):
    """One process is a team of one: what all of them do, it does."""

    def gather(self, value: Value) -> list[Value]:
        """Its own value."""
        return [value]

    def seed(self, given: int | None) -> int | None:
        """As given; None draws anew each time."""
        return given

    def open(self, open_ledger: Callable[[], pc.Ledger]) -> pc.Ledger:
        """The ledger itself."""
        return open_ledger()

    def own(self, ledger: pc.Ledger) -> pc.Ledger:
        """That one."""
        return ledger

    def charged(self, ledger: pc.Ledger) -> bool:
        """Whether it has an entry."""
        return bool(ledger.spent.entries)

    def certify(self, ledger: pc.Ledger, delta: float) -> pc.Certificate:
        """The certificate of its ledger."""
        return pc.certify(ledger, delta=delta)


class Shards(Team["ShardedLedger"]):
    """All processes of ``torch.distributed``, which trust each other; every record must be with exactly one of them.

    Raises:
        PrivcalcError: if ``torch.distributed`` is not initialised.
    """

    def __init__(self) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise pc.PrivcalcError("shards: torch.distributed.init_process_group must be called first, in every process")
        self.rank = dist.get_rank()
        # Only nccl's tensors live on a GPU.
        self._device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")

    def gather(self, value: Value) -> list[Value]:
        """What every process has, in their order; secret, if one of them is."""
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, value)
        return found

    def first(self, call: Callable[[], Value]) -> Value:
        """What process 0 finds; if it raises, so do all."""
        outcome: list[Any] = [None, None]
        error: Exception | None = None
        if self.rank == 0:
            try:
                outcome[0] = call()
            except Exception as one:  # the others must not wait for ever
                error, outcome[1] = one, str(one)
        dist.broadcast_object_list(outcome, src=0)
        if error is not None:
            raise error
        if outcome[1] is not None:
            raise pc.PrivcalcError(f"shards: process 0 stopped: {outcome[1]}")
        found: Value = outcome[0]
        return found

    def seed(self, given: int | None) -> int | None:
        """The one of process 0, drawn if none was given."""
        return self.first(lambda: secrets.randbits(63) if given is None else given)

    def open(self, open_ledger: Callable[[], pc.Ledger]) -> ShardedLedger:
        """In process 0; the others reach it from there."""
        return ShardedLedger(self, open_ledger)

    def own(self, ledger: ShardedLedger) -> pc.Ledger | None:
        """None but in process 0."""
        return ledger.ledger

    def charged(self, ledger: ShardedLedger) -> bool:
        """Taken to be so: the others cannot be asked."""
        return True

    def certify(self, ledger: ShardedLedger, delta: float) -> pc.Certificate:
        """Made by process 0."""
        return ledger.certify(delta)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, for process 0 alone; of floats in double precision."""
        kind = torch.float64 if values.is_floating_point() else values.dtype
        found = values.detach().to(self._device, kind, copy=True)
        dist.reduce(found, dst=0)
        return found


class ShardedLedger:
    """A ledger that process 0 has, as every process sees it: values are those of this process's records.

    Args:
        shards: the processes.
        open_ledger: opens the ledger; called in process 0 only.
    """

    def __init__(self, shards: Shards, open_ledger: Callable[[], pc.Ledger]) -> None:
        self._shards = shards
        self.ledger: pc.Ledger | None = None
        """None but in process 0."""
        self._here: Batch | None = None
        self._everywhere: Batch | None = None

        def opened() -> None:
            self.ledger = open_ledger()

        shards.first(opened)

    @property
    def _ledger(self) -> pc.Ledger:
        assert self.ledger is not None
        return self.ledger

    @property
    def processes(self) -> int:
        """How many there are."""
        return dist.get_world_size()

    def would_exceed(self, run: pc.Mechanism | pc.Run) -> bool:
        """Whether another use would exceed what all processes may charge together, as :meth:`Ledger.would_exceed` says it."""
        return self._shards.first(lambda: self._ledger.would_exceed(run))

    def gaussian(
        self,
        values: Tensor,
        mechanism: pc.Mechanism,
        *,
        clip_norm: float,
        error: float | None = None,
        batch: Batch | None = None,
        told: Provenance | None = None,
    ) -> Tensor:
        """Gaussian noise (:meth:`Ledger.gaussian`) on the sum of all processes' values; each gets the same noisy sum.

        ``error`` is that of the sum of all: where it is 0, values are multiples of one power of two, which doubles hold in all.
        """
        self._shards.alike("gaussian", mechanism, clip_norm, tuple(values.shape), values.dtype, error, batch is None)
        if batch is not None and batch is not self._here:
            raise pc.PrivcalcError(f"batch = {batch}: must be the one that was drawn last")
        total, everywhere = self._shards.total(values), None if batch is None else self._everywhere
        given: dict[str, Any] = {"clip_norm": clip_norm, "error": error, "batch": everywhere, "told": told}
        noisy = self._shards.first(lambda: self._ledger.gaussian(total, mechanism, **given).cpu().numpy())
        return values.new_tensor(noisy)

    def select(
        self,
        scores: ArrayLike,
        mechanism: pc.ExponentialMechanism | pc.TopK,
        *,
        sensitivity: float,
        monotone: bool = False,
        told: Provenance | None = None,
    ) -> int | NDArray[np.int64]:
        """A choice (:meth:`Ledger.select`) by scores that are sums over the records of all processes."""
        here = torch.from_numpy(np.array(scores, dtype=np.float64))
        self._shards.alike("select", mechanism, sensitivity, monotone, tuple(here.shape))
        total = self._shards.total(here).cpu().numpy()
        given: dict[str, Any] = {"sensitivity": sensitivity, "monotone": monotone, "told": told}
        return self._shards.first(lambda: self._ledger.select(total, mechanism, **given))

    def batch(
        self, step: pc.Mechanism, *, records: int, persons: NDArray[Any] | None = None, told: Provenance | None = None
    ) -> Batch:
        """A batch (:meth:`Ledger.batch`) of all records: process 0 draws it, each process gets its own, any number of them."""
        self._shards.alike("batch", step, persons is None)
        sizes, whose = self._shards.gather(records), None if persons is None else np.concatenate(self._shards.gather(persons))
        start = sum(sizes[: self._shards.rank])

        def drawn() -> NDArray[np.int64]:
            self._everywhere = self._ledger.batch(step, records=sum(sizes), persons=whose, told=told)
            return self._everywhere.indices

        indices = self._shards.first(drawn)
        self._here = Batch(indices[(indices >= start) & (indices < start + records)] - start, step)
        return self._here

    def certify(self, delta: float) -> pc.Certificate:
        """The one certificate, in every process."""
        return pc.Certificate(self._shards.first(lambda: dict(pc.certify(self._ledger, delta=delta).document)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.ledger is not None:
            self.ledger.__exit__(kind, error, trace)
