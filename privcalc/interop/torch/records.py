"""A data set whose records stay what and where they are, each there once: seen from its structure, never from what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset

from privcalc.errors import PrivcalcError

__all__ = ["Records"]


class Records:
    """What is seen of a data set when batches begin to be drawn from it.

    Looked at are its length, those of its attributes that are tensors (which ones, and how often torch has written to them), and
    the numbers of records in ``Subset`` and ``ConcatDataset``. Their contents are not: a refusal that depended on them would tell
    of them, and two persons may have equal records.

    Args:
        dataset: with a length.

    Attributes:
        size: how many records it has.

    Raises:
        PrivcalcError: if it has a record twice.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.size = dataset, len(dataset)
        whole: set[int] = set()
        parts: dict[int, set[int]] = {}
        for leaf, numbers in _leaves(dataset):
            seen = parts.setdefault(id(leaf), set())
            chosen = None if numbers is None else set(numbers)
            twice = id(leaf) in whole or (seen and chosen is None) or (chosen is not None and bool(seen & chosen))
            if twice or (numbers is not None and chosen is not None and len(chosen) < len(numbers)):
                raise PrivcalcError(
                    "dataset: must have each record once; a Subset with a number twice, or a ConcatDataset of the same records, "
                    "makes what one record adds to a sum larger than the clip norm. Describe persons with several records by "
                    "pc.UserSampled"
                )
            if chosen is None:
                whole.add(id(leaf))
            else:
                seen |= chosen
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


def _leaves(dataset: Any) -> Iterator[tuple[Any, list[int] | None]]:
    """The data sets that it is made of, and which of their records; None for all."""
    if isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _leaves(part)
    elif isinstance(dataset, Subset):
        inner: Any = dataset.dataset
        numbers = [int(i) for i in dataset.indices]
        while isinstance(inner, Subset):
            numbers, inner = [int(inner.indices[i]) for i in numbers], inner.dataset
        size: int = len(inner)
        yield inner, [i % size if i < 0 else i for i in numbers]
    else:
        yield dataset, None


def _tensors(dataset: Any) -> list[tuple[torch.Tensor, int]]:
    """All tensors that it, or what it is made of, has in its attributes, with the number of times that each was written to."""
    found = []
    for leaf, _ in _leaves(dataset):
        for value in getattr(leaf, "__dict__", {}).values():
            for each in value if isinstance(value, (tuple, list)) and len(value) < 100 else [value]:
                if isinstance(each, torch.Tensor) and not each.is_inference():
                    found.append((each, each._version))
    return found
