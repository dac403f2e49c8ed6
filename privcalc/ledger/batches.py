"""Batches that a ledger draws: each is a token for one release, used before the next is drawn.

See ``proofs/ledger.md``, §5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.additive import Additive
from privcalc.mechanisms.sampled import Indices, Sampled, Sampler
from privcalc.mechanisms.users import UserSampled
from privcalc.noise.source import Noise
from privcalc.relation import Relation
from privcalc.run import Mechanism

__all__ = ["Ahead", "Batch", "Batches", "Drawing", "drawing_of"]


AT_ONCE = 2**16
"""Coins: so many take a tenth of a millisecond."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch that the ledger drew and charged for: the token for one release.

    Attributes:
        indices: which records take part, one entry for each time that a record does. Secret, as is how many there are.
        step: the mechanism it was drawn for.
    """

    indices: Indices
    step: Mechanism

    def __repr__(self) -> str:
        return f"Batch(step={self.step})"


class Drawing(NamedTuple):
    """How the batches of one use are drawn, and of how many records."""

    draw: Sampler
    records: int
    whose: Indices | None = None


def drawing_of(step: object, records: object, relation: Relation, persons: ArrayLike | None) -> Drawing:
    """How the batches of one use of a step are drawn.

    Raises:
        PrivcalcError: if none can be: then nothing was charged.
    """
    whose = None if persons is None else _persons(persons)
    if whose is not None and not isinstance(step, UserSampled):
        raise PrivcalcError(
            f"persons: must not be given for {step}, whose guarantee is for records; describe pc.UserSampled"
        )
    if whose is not None and records is not None and records != whose.size:
        raise PrivcalcError(f"persons: must be one for each of the {records} records, not {whose.size}")
    if whose is None and records is None:
        raise PrivcalcError("records = None: must be given, here or in public, to draw a batch of them")
    size = errors.count("records", records if whose is None else whose.size)
    if isinstance(step, Sampled):
        return Drawing(step.sampler(size, relation, whose), size, whose)
    if isinstance(step, Additive) and step.draws == "gaussian":
        return Drawing(lambda _: [np.arange(size)], size)
    raise PrivcalcError(
        f"step = {step}: must be a sampled mechanism whose batches a ledger can draw, or Gaussian or DiscreteGaussian "
        "for all records; what is drawn elsewhere is charged by record(step), before it is (docs/samplers.md)"
    )


def _persons(persons: ArrayLike) -> Indices:
    """Whose each record is: persons are numbered as they first appear."""
    names = errors.array("persons", persons)
    # texts, as a data frame has them
    if names.ndim == 1 and names.dtype.kind in "OT" and _alike(found := names.tolist()):
        seen: dict[object, int] = {}
        return np.array([seen.setdefault(name, len(seen)) for name in found], dtype=np.int64)
    if names.ndim != 1 or names.dtype.kind not in "iuUS":
        raise PrivcalcError("persons: must be one whole number or text for each record, in one row")
    _, first, whose = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[whose].astype(np.int64)


def _alike(names: list[object]) -> bool:
    """Whether all are texts, or all whole numbers."""
    return all(isinstance(name, str) for name in names) or all(type(name) is int for name in names)


class Ahead(Noise):
    """Secret draws, whose coins are tossed for several small batches at once: each row of them is given out once."""

    def __init__(self) -> None:
        super().__init__()
        self._kind: tuple[int, float] | None = None
        self._rows: deque[NDArray[np.bool_]] = deque()

    def coins(self, size: int, rate: float) -> NDArray[np.bool_]:
        """Independent coins that show True with probability ``rate``."""
        if (size, rate) != self._kind or not self._rows:
            rows = max(1, AT_ONCE // max(size, 1))
            self._kind, self._rows = (size, rate), deque(super().coins(rows * size, rate).reshape(rows, size))
        return self._rows.popleft()


class Batches:
    """A ledger's batches that are drawn and not yet used: the one given out, and the rest of uses begun."""

    def __init__(self) -> None:
        self._out: Batch | None = None
        self._rest: dict[Mechanism, tuple[int, deque[Indices]]] = {}
        self._whose: Indices | None = None

    def waits(self, step: Mechanism, records: int | None = None) -> bool:
        """Whether a use of this step has batches left.

        Raises:
            PrivcalcError: if there are other records now than when they were drawn.
        """
        if step not in self._rest:
            return False
        if records not in (None, self._rest[step][0]):
            raise PrivcalcError(
                f"records: must stay as many as they were until all {step.batches} batches of this use of {step} "
                "are released, because each record has its places in them already"
            )
        return True

    def look(self, whose: Indices | None) -> None:
        """Warn of as many records as before that are shared out to persons in another way."""
        if whose is None:
            return
        if self._whose is not None and whose.size == self._whose.size and not np.array_equal(whose, self._whose):
            errors.warn(
                "persons: share out as many records as in the batch before, but not alike; if these are the same "
                "records, no person is protected: name the owner of each alike in every batch"
            )
        self._whose = whose

    def put(self, step: Mechanism, records: int, drawn: Sequence[Indices]) -> None:
        """Begin a use."""
        self._rest[step] = records, deque(drawn)

    def take(self, step: Mechanism) -> Batch:
        """Give out the next one."""
        rest = self._rest[step][1]
        self._out = Batch(rest.popleft().copy(), step)  # whoever writes to it must not write to another batch
        if not rest:
            del self._rest[step]
        return self._out

    def check_used(self) -> None:
        """Raise unless the batch that was given out is used: batches are not to be chosen from."""
        if self._out is not None:
            raise PrivcalcError(
                f"the last batch, for {self._out.step}, was not used: release its sum, even if it is empty, first"
            )

    def use(self, batch: object, mechanism: Mechanism) -> None:
        """Take the token, once.

        Raises:
            PrivcalcError: if it is another ledger's, was used, or is for another step.
        """
        if self._out is None or batch is not self._out or self._out.step != mechanism:
            raise PrivcalcError(
                f"batch = {batch}: must be the batch that this ledger last drew for {mechanism} (ledger.batch(step)), "
                "and each is used once"
            )
        self._out = None
