"""The handle through which private records are reached.

It gives out noisy, clipped sums drawn through the ledger, and no more.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import privcalc as pc
from learners.gradients.exact import Exact, Rows, cut_off
from privcalc import errors
from privcalc.ledger import Batch
from privcalc.ledger.assumptions import Provenance, asked_by
from privcalc.tripwire import check_standardized

__all__ = ["Contribution", "PrivateRecords", "TellsNorms", "Utility", "as_features", "as_labels", "is_private"]

LARGEST = 1e15
"""The largest absolute value of a feature; larger ones are cut off.

Their squares must be finite, also for networks in single precision, or a sum could become NaN.
"""


CLIPPED = Provenance("clipped", divided="nothing", by="learner")
"""What every learner sees to."""


def is_ours(kind: type) -> bool:
    """Whether a class is of this package, so that it is ours to vouch for."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


class Contribution(Protocol):
    """What one record adds to a sum, as a function of the current model; it must not depend on any other record."""

    def clipped_sum(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """Σ_i g_i·min(1, clip_norm/‖g_i‖), zero for no records; a record whose g_i is 0, or not finite, adds 0."""
        ...


@runtime_checkable
class TellsNorms(Protocol):
    """A contribution whose norms can be told, for an audit."""

    def ratios(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """‖clipped (and projected) g_i‖/clip_norm of every record, rounded up, at most 1."""
        ...


class Utility(Protocol):
    """The utility of each public candidate, as a sum over records.

    One record moves it by at most the sensitivity, as computed.
    """

    def scores(self, features: Tensor, labels: Tensor) -> NDArray[np.generic]:
        """Shape (candidates,), or (classes, candidates)."""
        ...


class PrivateRecords:
    """Private records behind a ledger.

    Features that are not finite count as 0, and none exceeds 1e15, nor do real-valued labels; where sums are exact
    (``proofs/sums.md``), each record is rounded to 19 binary digits of its norm. Nothing tells how many records there
    are: under add-or-remove-one that is private too, and learners divide by a public count.

    Args:
        features: shape (n, …).
        labels: n members of ``classes``; shape (n, m), with features (n, m, …), if ``users``.
        ledger: pays for everything that leaves.
        classes: the public list of classes; None for real-valued labels.
        device: where the tensors live.
        users: whether a row is a user with m records.
        persons: whose each row is, where steps sample for persons with several rows.
        losses: takes the norms of the contributions, for an audit; what it holds is as sensitive as the records.
        norms_every: steps from one pass over all records to the next, where steps are sampled.
        told: what the learner sees to, as its certificate says it.

    Raises:
        PrivcalcError: if shapes do not fit, or a label is not in the public list.
    """

    def __init__(
        self,
        features: ArrayLike | Tensor,
        labels: ArrayLike,
        *,
        ledger: pc.Ledger,
        classes: Sequence[Any] | None,
        device: str = "cpu",
        users: bool = False,
        persons: NDArray[Any] | None = None,
        losses: pc.RealisedLosses | None = None,
        norms_every: int = 1,
        told: Provenance = CLIPPED,
    ) -> None:
        self._losses, self._every, self._step = losses, norms_every, 0
        self._features = as_features(features, device)
        self._labels = as_labels(labels, classes, device)
        plain = (self._features.flatten(0, 1) if users else self._features).cpu().numpy()
        check_standardized("X", plain)
        self.users = users
        if users:
            self._labels = self._labels.reshape(np.shape(labels))
        elif self._labels.shape != self._features.shape[:1] or math.prod(np.shape(labels)[1:]) != 1:
            raise pc.PrivcalcError(
                f"y: has {len(self._labels)} labels, must have as many as X has rows, {len(self._features)}, "
                "in one column"
            )
        self._ledger, self._persons = ledger, persons
        self._told = told
        self._rows: Rows | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record's features, which is public."""
        return tuple(self._features.shape[1:])

    def noisy_sum(self, contribution: Contribution, step: pc.Mechanism, clip_norm: float) -> Tensor:
        """The sum of all clipped contributions, or of those of a batch that the step samples, plus its noise.

        Args:
            contribution: see :class:`Contribution`.
            step: ``Gaussian``, or it sampled; charged to the ledger.
            clip_norm: bound of one record's norm.
        """
        if self._losses is not None and not isinstance(contribution, TellsNorms):  # before anything is charged
            raise pc.PrivcalcError(
                f"norms_every: cannot be given, the norms of {type(contribution).__name__} are not measured"
            )
        batch = None
        if step.sampled:
            with self._asking(contribution):
                batch = self._ledger.batch(step, records=len(self._labels), persons=self._persons)
        self._measure(contribution, clip_norm, batch)
        total = contribution.clipped_sum(*self._some(contribution, None if batch is None else batch.indices), clip_norm)
        with self._asking(contribution):
            if not isinstance(contribution, Exact):
                return self._ledger.gaussian(total, step, clip_norm=clip_norm, batch=batch)
            return self._ledger.gaussian(cut_off(total, clip_norm), step, clip_norm=clip_norm, error=0.0, batch=batch)

    def _asking(self, bounded: object) -> AbstractContextManager[None]:
        """Say who bounds what a record adds.

        Somebody else's contributions and utilities are not ours to vouch for.
        """
        return asked_by(self._told if is_ours(type(bounded)) else dataclasses.replace(self._told, sensitivity="stated"))

    def _as_rows(self) -> Rows:
        """Made when they are first needed."""
        if self._rows is None:
            self._rows = Rows.of(self._features)
        return self._rows

    def _some(self, contribution: Contribution, rows: NDArray[np.int64] | None) -> tuple[Any, Tensor]:
        """Features as the contribution takes them, and labels: of all records, or of these."""
        features: Any = self._as_rows() if isinstance(contribution, Exact) else self._features
        if rows is None:
            return features, self._labels
        chosen = torch.from_numpy(rows).to(self._labels.device)
        return features.at(chosen) if isinstance(features, Rows) else features[chosen], self._labels[chosen]

    def _measure(self, contribution: Contribution, clip_norm: float, batch: Batch | None) -> None:
        """Tell the audit the norms: of all records, or between two full passes of those in the batch."""
        if self._losses is None or not isinstance(contribution, TellsNorms):
            return
        rows = batch.indices if batch is not None and self._step % self._every else None
        self._step += 1
        found = contribution.ratios(*self._some(contribution, rows), clip_norm)
        self._losses.update(found.double().cpu().numpy(), indices=rows)

    def select(
        self,
        utility: Utility,
        mechanism: pc.ExponentialMechanism | pc.TopK,
        sensitivity: float,
        *,
        monotone: bool = False,
    ) -> int | NDArray[np.int64]:
        """Choose among public candidates by their utility, through :meth:`Ledger.select`.

        Args:
            utility: see :class:`Utility`.
            mechanism: ``ExponentialMechanism`` or ``TopK``; for utilities with a row per class, one choice in each.
            sensitivity: how far one record moves any utility.
            monotone: whether a record can only raise them.
        """
        scores = utility.scores(self._features, self._labels)
        with self._asking(utility):
            return self._ledger.select(scores, mechanism, sensitivity=sensitivity, monotone=monotone)

    def map(self, function: Callable[[Tensor], Tensor]) -> PrivateRecords:
        """These records with other features; the function is public, and treats every record for itself."""
        found = copy.copy(self)
        found._features = function(self._features)
        found._rows = None
        return found

    def __repr__(self) -> str:
        return "PrivateRecords()"


def is_private(public: ArrayLike | Tensor, private: ArrayLike | Tensor) -> bool:
    """Whether "public" records are the private ones: the same memory, or all the same rows in any order and precision.

    A copy of some of the records is not looked for: whether it is refused would tell who is among them
    (proofs/assumptions.md).
    """
    if public is private or np.shares_memory(_array(public), _array(private)):
        return True
    if np.shape(public) != np.shape(private) or 0 in np.shape(public):
        return False
    one, other = (as_features(values, "cpu") for values in (public, private))
    kind = max(_precision(public), _precision(private), key=lambda kind: torch.finfo(kind).eps)
    return _rows(one.to(kind).double().numpy()) == _rows(other.to(kind).double().numpy())


def _array(values: ArrayLike | Tensor) -> NDArray[Any]:
    """Its memory; nothing where NumPy cannot look, as on a GPU."""
    if not isinstance(values, Tensor):
        return np.asarray(values)  # of what only shows an array, such as a table, it may be the memory
    if values.device.type != "cpu":
        return np.empty(0)
    held = values.detach()
    return (held.view(torch.int16) if held.dtype is torch.bfloat16 else held).numpy()  # NumPy has no such type


def _precision(values: ArrayLike | Tensor) -> torch.dtype:
    """The kind of floats that it is of; doubles hold all others."""
    if isinstance(values, Tensor):
        return values.dtype if values.dtype.is_floating_point else torch.float64
    return {np.dtype(np.float16): torch.float16, np.dtype(np.float32): torch.float32}.get(
        np.asarray(values).dtype, torch.float64
    )


def _rows(array: NDArray[Any]) -> Counter[bytes]:
    """How often each row is there; adding 0 makes -0 a 0."""
    return Counter((row + 0.0).tobytes() for row in array)


def as_features(values: ArrayLike | Tensor, device: str, *, name: str = "X") -> Tensor:
    """Double precision; what is not finite becomes 0, and none exceeds 1e15."""
    if isinstance(values, Tensor):
        array = errors.dense(name, values)
    else:
        array = torch.from_numpy(np.ascontiguousarray(errors.numbers(name, values), dtype=np.float64))
    if array.ndim < 2:
        raise pc.PrivcalcError(f"{name}: must have shape (n, …), not {tuple(array.shape)}")
    double = array.to(device=device, dtype=torch.float64)
    return torch.nan_to_num(double, nan=0.0, posinf=0.0, neginf=0.0).clamp_(-LARGEST, LARGEST)


def as_labels(values: ArrayLike | Tensor, classes: Sequence[Any] | None, device: str, *, name: str = "y") -> Tensor:
    """Positions in the public list; without one, numbers."""
    if classes is None:
        numbers = torch.as_tensor(errors.numbers(name, values).astype(np.float64), device=device)
        return torch.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0).clamp_(-LARGEST, LARGEST)
    position = positions(classes)
    labels = errors.array(name, values).ravel().tolist()
    try:
        return torch.tensor([position[label] for label in labels], dtype=torch.long, device=device)
    except (KeyError, TypeError) as error:  # not in the list, or nothing that can be in one
        label = next(label for label in labels if not isinstance(label, Hashable) or label not in position)
        raise pc.PrivcalcError(f"{name}: label {label!r} is not in classes = {list(classes)!r}") from error


def positions(classes: Sequence[Any]) -> dict[Any, int]:
    """Where each label is in the public list.

    Raises:
        PrivcalcError: unless these are at least two different labels, each equal to itself.
    """
    try:
        position = {label: index for index, label in enumerate(classes)}
        if len(position) == len(classes) >= 2 and not any(
            isinstance(x, float | np.floating) and math.isnan(x) for x in position
        ):
            return position
    except (TypeError, ValueError, RuntimeError) as error:
        raise pc.PrivcalcError(f"classes = {classes!r}: must be a list of labels, such as numbers or texts") from error
    raise pc.PrivcalcError(f"classes = {list(classes)!r}: must be at least two different labels, known to everyone")


@dataclass(frozen=True)
class Shape:
    """How large the private records are.

    Attributes:
        size: how many there are.
        count: the public number of them; 0 where nothing is divided by it.
        users: whether one of them is a user, with a row of records.
        persons: whether a person may have several of them.
        record: of the features of one record.
    """

    size: int
    count: int
    users: bool
    record: tuple[int, ...]
    persons: bool = False

    @property
    def unit(self) -> str:
        """What is protected."""
        return "one person" if self.persons else "one user" if self.users else "one training example"


def shape_of(name: str, values: ArrayLike | Tensor) -> tuple[int, ...]:
    """The shape of an array or a tensor."""
    found = errors.dense(name, values) if isinstance(values, Tensor) else errors.array(name, values)
    return tuple(found.shape)
