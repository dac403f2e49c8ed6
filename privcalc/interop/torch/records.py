"""A data set whose records stay what and where they are: seen from its structure, never from what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset

from privcalc.errors import PrivcalcError

__all__ = ["Records"]


class Records:
    """What is seen of a data set when batches begin to be drawn from it.

    Looked at are its length and those of its attributes that are tensors: which ones, and how often torch wrote to them. What
    is in them is not: a refusal that depended on it would tell of it.

    Args:
        dataset: with a length.

    Attributes:
        size: how many records it has.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.size = dataset, len(dataset)
        self._tensors = _tensors(dataset)

    def check(self) -> None:
        """Raise PrivcalcError if it has another length, or other records or another order, as far as is seen."""
        if len(self._dataset) != self.size:
            raise PrivcalcError("dataset: must not change its length; batches are drawn from the records that it had at first")
        now = _tensors(self._dataset)
        if len(now) != len(self._tensors) or any(a is not b or i != j for (a, i), (b, j) in zip(now, self._tensors, strict=True)):
            raise PrivcalcError(
                "dataset: must not change its records or their order while batches are drawn from it; for other records open a "
                "ledger of their own"
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


def _tensors(dataset: Any) -> list[tuple[torch.Tensor, int]]:
    """All tensors that it, or what it is made of, has in its attributes, with the number of times that each was written to."""
    found = []
    for leaf in _leaves(dataset):
        for value in getattr(leaf, "__dict__", {}).values():
            for each in value if isinstance(value, (tuple, list)) and len(value) < 100 else [value]:
                if isinstance(each, torch.Tensor) and not each.is_inference():
                    found.append((each, each._version))
    return found
