"""Copies of a record in a data set that is built of others: seen by indices, never by what is in records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import ConcatDataset, Subset

from privcalc import errors
from privcalc.errors import PrivcalcError

__all__ = ["COPIES", "check_copies", "has_copies"]

COPIES = (
    "dataset: has one record in several places, such as an index of a Subset that occurs twice, or a ConcatDataset of "
    "a data set with itself: each place is sampled and clipped by itself, so that this record counts as often, and ε "
    "does not hold for it. Leave copies out; or describe pc.UserSampled(…, records=k), "
    "and give persons= that name all copies of a record alike"
)


def has_copies(dataset: Any, whose: ArrayLike | None = None) -> bool:
    """Whether one record is in several places.

    Args:
        dataset: of PyTorch; what is neither ``Subset`` nor ``ConcatDataset`` has none.
        whose: a name for each place, if copies with one name do not matter.
    """
    if not isinstance(dataset, (Subset, ConcatDataset)):
        return False
    places = _places(dataset)
    names = None if whose is None else np.unique(errors.array("persons", whose), return_inverse=True)[1].reshape(-1)
    if names is None:
        return _different(places) < int(places.shape[1])
    if names.size != places.shape[1]:  # refused elsewhere
        return False
    return _different(places) < _different(np.vstack([places, names[None]]))


def check_copies(dataset: Any, whose: ArrayLike | None = None) -> None:
    """Refuse a data set in which one record counts as several.

    Raises:
        PrivcalcError: if it does.
    """
    if has_copies(dataset, whose):
        raise PrivcalcError(COPIES)


def _different(columns: NDArray[np.int64]) -> int:
    return int(np.unique(columns, axis=1).shape[1])


def _places(dataset: Any) -> NDArray[np.int64]:
    """For each place, the data set at the bottom that it is from, and its index there, shape (2, places)."""
    if isinstance(dataset, Subset):
        return _places(dataset.dataset)[:, np.asarray([int(index) for index in dataset.indices], dtype=np.int64)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_places(part) for part in dataset.datasets], axis=1)
    return np.stack([np.full(len(dataset), id(dataset), dtype=np.int64), np.arange(len(dataset), dtype=np.int64)])
