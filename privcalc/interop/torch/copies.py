"""Copies of a record in a data set, as far as it is built of others: looked for by places, never by what is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from privcalc import errors
from privcalc.errors import PrivcalcError

__all__ = ["COPIES", "check_copies", "has_copies"]

COPIES = (
    "dataset: has one record in several places, such as an index of a Subset that occurs twice, or a ConcatDataset of a data set "
    "with itself: each place is sampled and clipped by itself, so that this record counts as often, and ε does not hold for it. "
    "Leave copies out; or describe pc.UserSampled(…, records=k), and give persons= that name all copies of a record alike"
)


def has_copies(dataset: Any, whose: ArrayLike | None = None) -> bool:
    """Whether one record is in several places.

    Args:
        dataset: of PyTorch; what is neither ``Subset`` nor ``ConcatDataset``, nor transforms one, is taken to have none.
        whose: a name for each place, if copies with one name do not matter.
    """
    dataset = _bottom(dataset)
    if not isinstance(dataset, (Subset, ConcatDataset)):
        return False
    which, row = _places(dataset)
    places = np.stack([which, row])
    if whose is None:
        return bool(np.unique(places, axis=1).shape[1] < row.size)
    names = np.unique(errors.array("persons", whose), return_inverse=True)[1].reshape(-1)
    if names.size != row.size:  # refused elsewhere
        return False
    return bool(np.unique(places, axis=1).shape[1] < np.unique(np.vstack([places, names[None]]), axis=1).shape[1])


def check_copies(dataset: Any, whose: ArrayLike | None = None) -> None:
    """Refuse a data set in which one record counts as several.

    Raises:
        PrivcalcError: if it does.
    """
    if has_copies(dataset, whose):
        raise PrivcalcError(COPIES)


def _bottom(dataset: Any) -> Any:
    """What a data set of somebody's own transforms: the one data set among its attributes that is as long as itself."""
    seen: set[int] = set()
    while id(dataset) not in seen and not isinstance(dataset, (Subset, ConcatDataset, TensorDataset)):
        seen.add(id(dataset))
        parts = getattr(dataset, "__dict__", {}).values()
        inner: list[Any] = [each for each in parts if isinstance(each, Dataset) and hasattr(each, "__len__")]
        if len(inner) == 1 and len(inner[0]) == len(dataset):
            dataset = inner[0]
    return dataset


def _places(dataset: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each place, the data set at the bottom that it is from, and where it is there."""
    dataset = _bottom(dataset)
    if isinstance(dataset, Subset):
        which, row = _places(dataset.dataset)
        picked = np.fromiter((int(index) for index in dataset.indices), dtype=np.int64, count=len(dataset.indices))
        return which[picked], row[picked]
    if isinstance(dataset, ConcatDataset):
        found = [_places(part) for part in dataset.datasets]
        return np.concatenate([which for which, _ in found]), np.concatenate([row for _, row in found])
    row = np.arange(len(dataset), dtype=np.int64)
    if isinstance(dataset, TensorDataset) and dataset.tensors[0].numel():  # slices of one tensor share its memory
        first = dataset.tensors[0]
        where = (int(first.storage_offset()) + row * int(first.stride(0))) * int(first.element_size())
        return np.full(len(dataset), first.untyped_storage().data_ptr(), dtype=np.int64), where
    return np.full(len(dataset), id(dataset), dtype=np.int64), row
