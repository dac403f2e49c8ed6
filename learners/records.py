"""The handle through which private records are reached: it gives out noisy, clipped sums drawn through the ledger, no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

import privcalc as pc

__all__ = ["Contribution", "PrivateRecords", "Records", "as_features", "as_labels"]

LARGEST = 1e15
"""Features are cut off here: their squares must be finite in single precision, or one record could turn a sum into NaN."""


class Records(NamedTuple):
    """Features, labels, and the norms of the features, which no step computes again.

    Example:
        >>> Records.of(torch.tensor([[3.0, 4.0]]), torch.tensor([1])).norms
        tensor([5.])
    """

    features: Tensor
    labels: Tensor
    norms: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> Records:
        """With their norms."""
        return cls(features, labels, torch.linalg.vector_norm(features.flatten(1), dim=1))

    def at(self, indices: Tensor) -> Records:
        """Some of them."""
        return Records(self.features[indices], self.labels[indices], self.norms[indices])


class Contribution(Protocol):
    """What one record adds to a sum, as a function of the current model; it must not depend on any other record."""

    def clipped_sum(self, records: Records, clip_norm: float) -> Tensor:
        """Σ_i g_i·min(1, clip_norm/‖g_i‖), zero for no records; a record whose g_i is 0, or not finite, adds 0."""
        ...


class PrivateRecords:
    """Private records behind a ledger.

    Features that are not finite count as 0, and none exceeds 1e15. Nothing tells how many records there are: under
    add-or-remove-one that is private too, and learners divide by a public count.

    Args:
        features: shape (n, …).
        labels: n members of ``classes``.
        ledger: pays for everything that leaves.
        classes: the public list of classes.
        device: where the tensors live.

    Raises:
        PrivcalcError: if shapes do not fit, or a label is not in the public list.
    """

    def __init__(
        self, features: ArrayLike | Tensor, labels: ArrayLike, *, ledger: pc.Ledger, classes: Sequence[Any], device: str = "cpu"
    ) -> None:
        rows, positions = as_features(features, device), as_labels(labels, classes, device)
        if positions.shape != rows.shape[:1]:
            raise pc.PrivcalcError(f"y: has {len(positions)} labels, must have as many as X has rows, {len(rows)}")
        self._records = Records.of(rows, positions)
        self._ledger = ledger

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record's features, which is public."""
        return tuple(self._records.features.shape[1:])

    def noisy_sum(self, contribution: Contribution, step: pc.Mechanism, clip_norm: float) -> Tensor:
        """The sum of all clipped contributions, or of those of a batch that the step samples, plus its noise.

        Args:
            contribution: see :class:`Contribution`.
            step: ``Gaussian``, or it sampled; charged to the ledger.
            clip_norm: bound of one record's norm.
        """
        records, batch = self._records, None
        if isinstance(step, (pc.PoissonSampled, pc.FixedSizeSampled)):
            draw = self._ledger.poisson_batch if isinstance(step, pc.PoissonSampled) else self._ledger.fixed_size_batch
            batch = draw(step, records=len(records.labels))
            records = records.at(torch.from_numpy(batch.indices).to(records.labels.device))
        total = contribution.clipped_sum(records, clip_norm)
        return self._ledger.gaussian(total, step, clip_norm=clip_norm, batch=batch)

    def __repr__(self) -> str:
        return "PrivateRecords()"


def as_features(values: ArrayLike | Tensor, device: str) -> Tensor:
    """Single precision; what is not finite becomes 0, and none exceeds 1e15."""
    with np.errstate(over="ignore"):
        array = values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values, dtype=np.float32))
    if array.ndim < 2:
        raise pc.PrivcalcError(f"X: must have shape (n, …), not {tuple(array.shape)}")
    single = array.to(device=device, dtype=torch.float32)
    return torch.nan_to_num(single, nan=0.0, posinf=0.0, neginf=0.0).clamp_(-LARGEST, LARGEST)


def as_labels(values: ArrayLike, classes: Sequence[Any], device: str) -> Tensor:
    """Positions in the public list."""
    position = {label: index for index, label in enumerate(classes)}
    if len(position) < 2 or len(position) != len(classes):
        raise pc.PrivcalcError(f"classes = {list(classes)!r}: must be at least two different labels, known to everyone")
    labels = np.asarray(values).ravel().tolist()
    try:
        return torch.tensor([position[label] for label in labels], dtype=torch.long, device=device)
    except KeyError as error:
        raise pc.PrivcalcError(f"y: label {error.args[0]!r} is not in classes = {list(classes)!r}") from error
