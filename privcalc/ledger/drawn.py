"""A ledger's batches, each a token for one release, used before the next is drawn; and what is checked before that.

See ``proofs/ledger.md``, §5.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.account import Account
from privcalc.ledger.book import draw_of, drawn_as, sampled
from privcalc.ledger.kept import Budgeted
from privcalc.ledger.selection import Chooser
from privcalc.ledger.tables import Totals
from privcalc.ledger.terms import Terms
from privcalc.mechanisms.fixed_size import FixedSizeSampled
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.sampler import Indices, Sampled, Sampler, released
from privcalc.mechanisms.user_sampling import UserSampled
from privcalc.noise.bits import SeededBits
from privcalc.noise.release import finite, length, noisy
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Additive, Mechanism
from privcalc.tripwire import Shapes, check_kind, check_sum

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
    found = [str.__str__(each) if isinstance(each, str) else each for each in names.ravel().tolist()]
    if names.ndim == 1 and names.dtype.kind in "OT" and _alike(found):  # texts, as a data frame has them
        seen: dict[object, int] = {}
        return np.array([seen.setdefault(name, len(seen)) for name in found], dtype=np.int64)
    if names.ndim != 1 or names.dtype.kind not in "iuUS":
        raise PrivcalcError("persons: must be one whole number or text for each record, in one row")
    _, first, whose = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[whose].astype(np.int64)


def _alike(names: list[object]) -> bool:
    """Whether all are texts, or all whole numbers."""
    return all(type(name) is str for name in names) or all(type(name) is int for name in names)


_Tossed: TypeAlias = tuple[int, float, deque[NDArray[np.bool_]]]
"""Coins that were tossed and not yet given out, with their size and rate."""


class Ahead(Noise):
    """Secret draws, whose coins are tossed for several small batches at once: each row of them is given out once."""

    def __init__(self) -> None:
        super().__init__()
        self._tossed: _Tossed = (0, 0.0, deque())

    def coins(self, size: int, rate: float) -> NDArray[np.bool_]:
        """Independent coins that show True with probability ``rate``."""
        of_size, of_rate, rows = self._tossed  # once: another thread may put rows of another rate here meanwhile
        if (size, rate) == (of_size, of_rate):
            with contextlib.suppress(IndexError):  # none is left
                return rows.popleft()
        several = max(1, AT_ONCE // max(size, 1))
        rows = deque(super().coins(several * size, rate).reshape(several, size))
        row = rows.popleft()
        self._tossed = size, rate, rows
        return row


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
        if not self._rest or step not in self._rest:
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

    def begin(self, step: Mechanism, records: int, drawn: Sequence[Indices]) -> Batch:
        """Begin a use: give out its first one."""
        return self._give(step, records, deque(drawn))

    def take(self, step: Mechanism) -> Batch:
        """Give out the next one of a use that was begun."""
        return self._give(step, *self._rest.pop(step))

    def _give(self, step: Mechanism, records: int, rest: deque[Indices]) -> Batch:
        self._out = Batch(rest.popleft().copy(), step)  # whoever writes to it must not write to another batch
        if rest:
            self._rest[step] = records, rest
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


Array = TypeVar("Array")


class Drawn(Account):
    """What :class:`Ledger` draws of the records.

    Args:
        path: as of the ledger.
        terms: likewise.
        reserve: likewise.
        budget: likewise.
        seed: likewise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        terms: Terms,
        *,
        reserve: int,
        budget: Budgeted | None,
        seed: int | None,
    ) -> None:
        super().__init__(path, terms, reserve=reserve, budget=budget)
        # Every opening of a seeded ledger draws from a stream of its own,
        # so that nothing is repeated when it is gone on with.
        self._noise = Ahead() if seed is None else Noise(SeededBits(seed, self.journal.position.lines))
        self._batches = Batches()
        self._shapes = Shapes()
        self._token = threading.Lock()

    def batch(
        self, step: Mechanism, *, records: int | None = None, persons: ArrayLike | None = None, label: str | None = None
    ) -> Batch:
        """Draw the next batch as ``step`` assumes, and charge for the step; the release with it must follow.

        A use of a step that has several batches, such as an epoch in which each record has one place, is charged with
        the first. Its places live in this object only: after a pause or a crash it stays charged, and the next batch
        begins another one.

        Args:
            step: a sampled mechanism, or ``Gaussian`` or ``DiscreteGaussian`` for a batch of all records.
            records: how many records there are, which may be secret and is not written down; by default
                ``public["records"]``.
            persons: for ``UserSampled``, whose each record is: one name or number each. Of a person with more records
                than ``step`` knows of, only the first take part.
            label: as in ``gaussian``.

        Raises:
            BudgetExceeded: if plan or cap have too little left.
            PrivcalcError: if the last batch has not been used: batches are not to be chosen from; or no batch can be
                drawn so.

        Example:
            >>> import numpy as np
            >>> import privcalc as pc
            >>> step, X = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.1), np.ones((500, 3)) / 2
            >>> with pc.Ledger(None, plan=step * 20) as ledger:
            ...     while ledger.has_batch(step):
            ...         batch = ledger.batch(step, records=len(X))
            ...         noisy = ledger.gaussian(X[batch.indices].sum(axis=0), step, clip_norm=1.0, batch=batch)
            >>> print(ledger.spent)
            20 × PoissonSampled(mechanism=Gaussian(noise_multiplier=1.0), rate=0.1)
        """
        given = self.terms.public.get("records") if records is None and persons is None else records
        drawing = drawing_of(step, given, self.terms.relation, persons)
        self._batches.look(drawing.whose)
        return self._issue(step, drawing, label)

    def has_batch(self, step: Mechanism) -> bool:
        """Whether plan or cap have enough left for ``batch(step)``.

        Nothing is drawn or charged.

        Raises:
            PrivcalcError: if the cap has no proof for the mechanism.
        """
        return self._batches.waits(step) or not self.would_exceed(step)

    def poisson_batch(self, step: Mechanism, *, records: int | None = None, label: str | None = None) -> Batch:
        """:meth:`batch` for a ``PoissonSampled`` step: a coin for each record."""
        if not isinstance(step, PoissonSampled):
            raise PrivcalcError(f"step = {step}: must be PoissonSampled; batch(step) draws what other steps assume")
        return self.batch(step, records=records, label=label)

    def fixed_size_batch(self, step: Mechanism, *, records: int | None = None, label: str | None = None) -> Batch:
        """Draw a :meth:`batch` for a ``FixedSizeSampled`` step: a uniform subset.

        It is one of ``dataset_size`` records, if no number is given.
        """
        if not isinstance(step, FixedSizeSampled):
            raise PrivcalcError(f"step = {step}: must be FixedSizeSampled; batch(step) draws what other steps assume")
        return self.batch(step, records=step.dataset_size if records is None else records, label=label)

    def batch_from_elsewhere(self, step: Mechanism, *, size: int, label: str | None = None) -> Batch:
        """Charge for a step whose batch other code drew, as ``step`` assumes; the release with it must follow.

        The noise is the ledger's; that the batch was drawn so is your word, and the certificate says so.

        Args:
            step: a sampled mechanism whose use has one batch.
            size: how many records are in the batch. Secret; it is not written down.
            label: as in ``gaussian``.

        Returns:
            The token, whose indices are places in that batch.

        Raises:
            BudgetExceeded: if plan or cap have too little left.
            PrivcalcError: if the last batch has not been used, or no batch of the step has so many records.
        """
        records = errors.count("size", size)
        if not sampled(step).fits(records):
            raise PrivcalcError(f"size: is of no batch that is drawn as {step} assumes")

        return self._issue(step, Drawing(lambda _: [np.arange(records)], records), label, batch=False)

    def pause(self) -> None:
        """Return what was reserved and not drawn, and let the file go, until the same call opens it again.

        It is as safe as a crash: everything that was charged stays charged, and needs no pause to be so. Leaving a
        ``with`` block after it does not close the ledger. Pausing twice does nothing.

        Raises:
            PrivcalcError: if the ledger is closed or has no file, or a batch waits for its release: batches are not to
                be chosen from.
        """
        self._check_process()
        with self._token:
            self._batches.check_used()
            super().pause()

    def _issue(self, step: Mechanism, drawing: Drawing, label: str | None, *, batch: bool = True) -> Batch:
        """The next batch of a step; the first of a use charges for it, and draws all."""
        self._check_process()
        with self._token:
            self._batches.check_used()
            if self._batches.waits(step, drawing.records):
                if label is not None:
                    raise PrivcalcError(f"label = {label!r}: give it to the call that draws the first batch of a use")
                return self._batches.take(step)
            self._charge(step, label=label, batch=batch)
            return self._batches.begin(step, drawing.records, drawing.draw(self._noise))

    def _look(
        self,
        values: object,
        array: Floats,
        step: object,
        clip_norm: float,
        size: int | None,
        *,
        norm: int = 2,
        error: float | None = None,
    ) -> None:
        """Refuse what is no sum of clipped contributions of a batch of this size, or of all."""
        if isinstance(values, Totals):
            return
        check_kind(values)
        most = size
        if most is None and "records" in self.terms.public:
            most = self.terms.public["records"] + 1  # a neighbour has one more
        if most is not None and self.terms.relation is not REPLACE_ONE:  # where they may be around any centre
            size_of_all = length(array) if norm == 2 else float(np.abs(array).sum())
            check_sum("values", size_of_all, clip_norm=clip_norm, records=most, error=error or 0.0)
        if size is not None:
            with self._token:
                self._shapes.look(array.shape, step, size)

    def _on_grid(
        self,
        values: Array,
        mechanism: Mechanism,
        bound: float,
        error: float | None,
        batch: Batch | None,
        label: str | None,
    ) -> Array:
        """A sum with its noise, after it is paid for."""
        array, norm = finite("values", values), drawn_as(mechanism).norm
        grid, entry = draw_of(mechanism, clip_norm=bound, coordinates=array.size, error=error)
        self._look(values, array, mechanism, bound, size_of(batch), norm=norm, error=error)
        self._pay(values, mechanism, batch, label)
        self._note(mechanism, entry)
        draw = self._noise.laplace if norm == 1 else self._noise.normal
        return noisy(values, grid.add(array, draw(array.size, grid.steps)))

    def _pay(self, values: object, mechanism: Mechanism, batch: Batch | None, label: str | None) -> None:
        """Charge a release; one with a batch was charged with it, which is used up; and totals before they were."""
        if isinstance(values, Totals):
            return
        if batch is None and released(mechanism) is mechanism:
            self._charge(mechanism, label=label)
            return
        self._check_process()
        with self._token:
            self._batches.use(batch, mechanism)

    def _chooser(self, scores: object, label: str | None) -> Chooser:
        disjoint, charge = self.terms.assumptions.parts == "disjoint", functools.partial(self._charge, label=label)
        paid = isinstance(scores, Totals)
        return Chooser(self._noise, _free if paid else charge, self.would_exceed, disjoint)


def _free(_mechanism: Mechanism, _uses: int) -> None:
    """What was charged before."""


def size_of(batch: object) -> int | None:
    """Of how many records a batch is."""
    return batch.indices.size if isinstance(batch, Batch) else None
