"""A data set whose records stay what and where they are, each in one place: seen from its structure alone.

Never from what is in records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import ConcatDataset, Subset

from privcalc import errors
from privcalc.errors import PrivcalcError

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


class Records:
    """What is seen of a data set when batches begin to be drawn from it.

    Looked at are its length; those of its attributes that are tensors as long as itself, which ones, and how often
    torch wrote to them, also of those that appear later, as where records are read when they are first asked for; which
    arrays and lists it has that are as long as itself; and the indices of a ``Subset``. What is in records is not: a
    refusal that depended on it would tell of it.

    Args:
        dataset: with a length.

    Attributes:
        size: how many records it has.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.size = dataset, len(dataset)
        self._tensors, self._columns, self._picked = _tensors(dataset), _columns(dataset), _picked(dataset)

    def check(self, dataset: Any = None) -> None:
        """Raise PrivcalcError for another data set, length, or, as far as seen, other records or order."""
        if len(self._dataset) != self.size:
            raise PrivcalcError(
                "dataset: must not change its length; batches are drawn from the records that it had at first"
            )
        now = _tensors(self._dataset)
        moved = any(
            place not in now or now[place][0] is not tensor or now[place][1] != writes
            for place, (tensor, writes) in self._tensors.items()
        )
        self._tensors = now | self._tensors  # what appeared stays from now on
        moved = moved or any(getattr(leaf, name, None) is not value for leaf, name, value in self._columns)
        moved = moved or not (dataset is None or dataset is self._dataset)
        if moved or self._picked != _picked(self._dataset):
            raise PrivcalcError(
                "dataset: must not change its records or their order while batches are drawn from it; for other "
                "records open a ledger of their own"
            )


def _leaves(dataset: Any) -> Iterator[Any]:
    """The data sets that it is made of."""
    if isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _leaves(part)
    elif isinstance(dataset, Subset):
        yield from _leaves(dataset.dataset)
    else:
        yield dataset


def _columns(dataset: Any) -> list[tuple[Any, str, Any]]:
    """Arrays and lists with as many entries as the data set they are an attribute of, and where they are."""
    found = []
    for leaf in _leaves(dataset):
        for name, value in getattr(leaf, "__dict__", {}).items():
            if (isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim)) and len(
                value
            ) == len(leaf):
                found.append((leaf, name, value))
    return found


def _picked(dataset: Any) -> list[list[int]]:
    """The indices of all subsets that it is made of."""
    if isinstance(dataset, ConcatDataset):
        return [picked for part in dataset.datasets for picked in _picked(part)]
    if isinstance(dataset, Subset):
        return [list(dataset.indices), *_picked(dataset.dataset)]
    return []


def _tensors(dataset: Any) -> dict[tuple[int, str, int], tuple[torch.Tensor, int]]:
    """Tensors as long as the part they are an attribute of, by their place, and how often each was written to."""
    found = {}
    for part, leaf in enumerate(_leaves(dataset)):
        for name, value in list(getattr(leaf, "__dict__", {}).items()):
            for place, each in enumerate(value if isinstance(value, (tuple, list)) and len(value) < 100 else [value]):
                if isinstance(each, torch.Tensor) and not each.is_inference() and _is_column(each, leaf):
                    found[part, name, place] = each, each._version
    return found


def _is_column(tensor: torch.Tensor, leaf: Any) -> bool:
    """Whether it has an entry for each record: not the item that was read last, nor room to decode one in."""
    return tensor.ndim > 0 and (not hasattr(leaf, "__len__") or len(tensor) == len(leaf))
