"""Batches that a ledger draws, read in pieces that fit into memory.

Every piece is summed once, and every batch is one release.

    gradients = RecordGradients(module, loss)
    for batch in loader(ledger, dataset, step, like=gradients, clip_norm=1.0, start="random"):
        gradients.put(batch.release() / step.expected_size(public_number_of_records))
        optimizer.step()

What is proved of it, and what nobody sees: ``proofs/ledger.md``, §5.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from privcalc import errors
from privcalc.attacks.replay import Look, look_first
from privcalc.errors import PrivcalcError
from privcalc.interop.torch.gradients import RecordGradients
from privcalc.interop.torch.records import Records, check_copies
from privcalc.ledger.assumptions import Provenance, asked_by
from privcalc.ledger.drawn import Batch
from privcalc.ledger.ledger import Ledger
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.sampler import released
from privcalc.run import Mechanism
from privcalc.tripwire import check_standardized

CLIPS, OWNS = Provenance("clipped", by="adapter"), Provenance("clipped", by="loader")
"""What is known of its sums: rows are clipped here; and each is made here, too, of one record."""

MARGIN = 1 + 2.0**-20
"""Norms are off by less, in doubles, of up to 2³² numbers."""


class Piece:
    """Some of the records of a batch, to be added once.

    Attributes:
        records: as the data set and ``collate_fn`` give them.
    """

    def __init__(self, batch: LoadedBatch, records: Any, chunk: Tensor) -> None:
        self.records = records
        self._batch, self._chunk = batch, chunk

    def add(self, gradients: Tensor) -> None:
        """Clip the gradient of each record to the clip norm, and add all of them to the batch's sum.

        Args:
            gradients: one for each record of the piece, in any order: shape (records, …), the rest as ``like``.

        Raises:
            PrivcalcError: if there are more or fewer, a number is not finite, or this is not the piece that was given
                out last; nothing is added then.
        """
        with self._batch._adding:
            self._batch._add(self, gradients)


class LoadedBatch:
    """One batch: release its sum, also that of no records.

    For rows of your own, iterate over its pieces, and add each, first.
    """

    def __init__(self, owner: Loader, batch: Batch) -> None:
        self._owner, self._batch = owner, batch
        self._left = list(torch.split(torch.tensor(batch.indices), owner.at_most)) if batch.indices.size else []
        self._out: Piece | None = None
        self._loop: object = None  # the one that was begun last
        self._adding = threading.Lock()
        self._clip_norm = owner.clip_norm  # of all pieces, and of the release
        self._total = torch.zeros_like(owner.like, dtype=torch.float64)

    def __iter__(self) -> Iterator[Piece]:
        """The pieces that were not added, in their order; again after an interruption.

        Raises:
            PrivcalcError: if a piece is left out, or the loader takes the gradients itself.
        """
        if self._owner._gradients is not None:
            raise PrivcalcError(
                "like: is a RecordGradients, and release() adds all pieces; for rows of your own give its .like"
            )
        return self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        left, self._loop = list(self._left), (loop := object())
        read = self._owner._read(left)
        for chunk in left:
            if self._loop is not loop:  # workers read for that one
                raise PrivcalcError("piece: another loop over this batch was begun since; go on with that one")
            if self._left[0] is not chunk:
                raise PrivcalcError("piece: was not added; every record of a batch is in its sum, once")
            self._out = Piece(self, next(read), chunk)
            yield self._out
        next(read, None)  # to its end
        if self._left:
            raise PrivcalcError("piece: the last one was not added; every record of a batch is in its sum, once")

    def _add(self, piece: Piece, gradients: Tensor) -> None:
        # A loop in another thread may give out, after it was added, the piece that it began to read before.
        if piece is not self._out or not self._left or self._left[0] is not piece._chunk:
            raise PrivcalcError("piece: must be the one that this batch gave out last, and each is added once")
        count = len(piece._chunk)
        expected = (count, *self._total.shape)
        if not isinstance(gradients, Tensor) or tuple(gradients.shape) != expected:
            found = tuple(gradients.shape) if isinstance(gradients, Tensor) else type(gradients).__name__
            raise PrivcalcError(
                f"gradients: must be a tensor with one row for each record, as like, {expected}; not {found}"
            )
        # A copy: what is still being written to is clipped and added as it is now.
        rows = errors.dense("gradients", gradients).to(self._total.device, torch.float64, copy=True).reshape(count, -1)
        norms = torch.linalg.vector_norm(rows, dim=1)
        if not bool(torch.isfinite(norms).all()):
            raise PrivcalcError(
                "gradients: must be finite; clipping does not hide a NaN or infinity, which shows that its record took "
                "part. Replace what is not finite in that record's own gradient, or stop: the model may have diverged"
            )
        shares = (self._clip_norm / (norms * MARGIN)).clamp(max=1.0)
        total = self._total + (shares @ rows).reshape(self._total.shape)
        # The sum last: an interruption between these may lose the piece, and never adds it twice.
        self._out = None
        self._left.pop(0)
        self._total = total

    def release(self) -> Tensor:
        """Release the sum of all clipped gradients with noise (:meth:`Ledger.gaussian`), as a tensor like ``like``.

        With ``like=gradients`` it reads the pieces, and takes the gradient of each record, at the weights of now.

        Raises:
            PrivcalcError: before noise is drawn, if a piece was not added, the data set has changed, or this is not the
                batch that the ledger drew last, and not yet released.
        """
        owner = self._owner
        if owner._gradients is not None:
            for piece in self._pieces():
                record = piece.records if isinstance(piece.records, (list, tuple)) else (piece.records,)
                piece.add(owner._gradients(*record))
        if self._left:
            raise PrivcalcError("piece: not all were added; every record of a batch is in its sum, once")
        owner._records.check()
        total = self._total[None]  # one row, which is no row for each record however long it is
        noisy = owner.ledger.gaussian(total, owner.step, clip_norm=self._clip_norm, batch=self._batch)[0]
        return noisy.to(owner.like)


class Loader:
    """Batches of a data set as ``step`` assumes they are drawn, each charged when it is drawn and released once.

    A batch may be larger than memory: it comes in pieces of at most ``at_most`` records, whose gradients are clipped
    and added here; it is one release and one charge all the same. Refused before noise is drawn: a piece that is left
    out, added twice, or of another batch; a batch that is left out, released twice, or of another ledger; gradients
    that are not finite, or of more or fewer records than were drawn; a data set that changes its length, or tensors
    that it has, or has a record twice. What was charged stays charged, and such a batch can still be completed. A run
    is gone on with by opening its ledger again.

    With ``like=gradients`` there are no pieces to add: ``batch.release()`` has :class:`RecordGradients` take the
    gradient of each record by itself, and certificates say that our code clipped. That rows that you add are each of
    its own record alone is your word: nobody sees it (``attacks.replay`` shows it).

    Args:
        ledger: with a plan or a cap; it draws, charges and adds the noise.
        dataset: with a length and items by number, in an order that stays; workers read it, and nothing else. One
            record in several places, by a ``Subset`` or ``ConcatDataset``, is refused, unless ``persons`` names them
            alike.
        step: ``Gaussian``, for all records in every step, or one sampled.
        like: a :class:`RecordGradients`; or, for rows of your own, a tensor of the shape, precision and device of one
            record's gradient, such as the flat vector of parameters.
        clip_norm: C > 0: the gradient of each record is scaled to at most this norm.
        start: where the first weights come from, those of frozen layers too: "random", "public", a certificate (of a
            model of the same records), or "private", without noise: then no ε is claimed. Every certificate of the
            ledger says it.
        at_most: most records of a piece.
        persons: for ``UserSampled``, whose each record is.
        num_workers: processes that read ahead, within one batch.
        collate_fn: makes one ``piece.records`` of its items; torch's own by default, which puts each beside the others.
            That yours mixes none is your word, and certificates say so.
        look: (train, data): before anything is drawn, the first step of ``train(data)``, with a ledger of its own in
            memory, is run with and without one record (:func:`privcalc.attacks.replay.replay`), and what was found is
            shown on the screen. It depends on the data, and is kept nowhere.

    Raises:
        PrivcalcError: if an argument does not fit, or several processes train together.

    Example:
        >>> import privcalc as pc, torch
        >>> X, y = torch.eye(2).repeat(400, 1), torch.tensor([1.0, -1.0]).repeat(400)
        >>> theta, step = torch.zeros(2), pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.1)
        >>> with pc.Ledger(None, plan=step * 50, unit="one training example") as ledger:
        ...     data = torch.utils.data.TensorDataset(X, y)
        ...     for batch in loader(ledger, data, step, like=theta, clip_norm=1.0, start="random", at_most=32):
        ...         for piece in batch:
        ...             rows, labels = piece.records
        ...             piece.add((rows @ theta - labels)[:, None] * rows)  # the gradient of each record
        ...         theta -= batch.release() / step.expected_size(800)
        >>> ledger.spent.entries[0][1], bool((theta - torch.tensor([1.0, -1.0])).norm() < 0.5)
        (50, True)
    """

    def __init__(
        self,
        ledger: Ledger,
        dataset: Any,
        step: Mechanism,
        *,
        like: Tensor | RecordGradients,
        clip_norm: float,
        start: object,
        at_most: int = 1024,
        persons: ArrayLike | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        look: Look | None = None,
    ) -> None:
        if not isinstance(ledger, Ledger):
            raise PrivcalcError(f"ledger = {ledger!r}: must be a Ledger")
        if not isinstance(step, Mechanism) or not isinstance(released(step), Gaussian):
            raise PrivcalcError(f"step = {step}: must be Gaussian, or Gaussian sampled")
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise PrivcalcError(
                "dataset: must have a length and items by number, to be sampled from; of a DataLoader give its dataset"
            )
        if isinstance(dataset, tuple) and all(isinstance(one, Tensor) for one in dataset):
            raise PrivcalcError("dataset: must have an item for each record; of tensors give TensorDataset(*tensors)")
        check_copies(dataset, persons)
        self._gradients = like if type(like) is RecordGradients else None  # a subclass may take them in another way
        like = like if self._gradients is None else self._gradients.like
        if not isinstance(like, Tensor) or like.dtype not in (torch.float32, torch.float64):
            raise PrivcalcError(
                "like: must be a RecordGradients, or a tensor of 32 or 64 bits, of one gradient's shape"
            )
        if (
            torch.distributed.is_available()
            and torch.distributed.is_initialized()
            and torch.distributed.get_world_size() > 1
        ):
            raise PrivcalcError(
                "loader: is for one process; of several only one may have the ledger, draw the batches and add the "
                "noise (examples/train_on_shards.py does)"
            )
        self.ledger, self.step, self.like = ledger, step, like.detach()
        self.clip_norm = errors.scale("clip_norm", clip_norm)
        self.at_most = errors.count("at_most", at_most, least=1)
        for tensor in dataset.tensors if isinstance(dataset, TensorDataset) else ():
            if tensor.dtype in (torch.float32, torch.float64) and bool(torch.isfinite(tensor).all()):
                check_standardized("dataset", tensor.detach().cpu().numpy())
        self._records, self._persons = Records(dataset), persons
        self._told = CLIPS if self._gradients is None or collate_fn is not None else OWNS
        look_first(look, Ledger, relation=ledger.terms.relation)
        ledger.say(start=start)
        self._pending = pending = _Pending([])
        workers = errors.count("num_workers", num_workers)
        self._new_reader: Callable[[], DataLoader[Any]] = lambda: DataLoader(
            dataset,
            batch_sampler=pending,
            num_workers=workers,
            collate_fn=collate_fn,
            persistent_workers=workers > 0,
        )
        self._reader = self._new_reader()

    def __iter__(self) -> Iterator[LoadedBatch]:
        """Batches, until plan or cap have none left.

        Raises:
            BudgetExceeded: if they had none left from the start.
            PrivcalcError: if a batch was not released before the next one is asked for.
        """
        more = True
        while more:
            self._records.check()
            with asked_by(self._told):
                batch = self.ledger.batch(self.step, records=self._records.size, persons=self._persons)
            yield LoadedBatch(self, batch)
            more = self.ledger.has_batch(self.step)

    def _read(self, chunks: list[Tensor]) -> Iterator[Any]:
        """What the data set has for these."""
        self._pending.pieces = [chunk.tolist() for chunk in chunks]
        try:
            yield from self._reader if chunks else ()
        except Exception:  # a worker that died, as for want of memory, is not started again by torch
            self._reader = self._new_reader()
            raise


class _Pending:
    """The pieces of the batch that is read: the reader, and its workers, know of no other."""

    def __init__(self, pieces: list[list[int]]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


loader = Loader
"""As it reads in a loop."""
