"""What the numbers of records and of their gradients show of one that is in those of others: warned of, and nothing proved.

Unlike a refusal, a warning is seen by who has the data alone, so that it may look at these (``proofs/ledger.md``, §8).
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import TensorDataset

from privcalc.errors import warn
from privcalc.interop.torch.weights import digest_of
from privcalc.traces import check_copies, check_scaled

__all__ = ["Mixed", "Tensors", "check_tensors"]

LEAST, OFTEN = 8, 3
"""Rows, and pieces one after the other, that are not such by chance: released noise moves weights in between."""

SAME = (
    "gradients: all rows of a piece are the same, piece after piece, as if that of the whole piece had been repeated: each "
    "row has all records in it then, and ε does not hold. Give the gradient of each record's own loss (torch.func.vmap)"
)
CENTRED = (
    "gradients: add up to 0 in piece after piece, as if they had been centred: each row has all records in it then, and ε does "
    "not hold. Give the gradient of each record's own loss, and subtract what is public or released only"
)


def check_tensors(dataset: Any, persons: ArrayLike | None = None) -> None:
    """Warn where the tensors of a ``TensorDataset`` were scaled by themselves, or have records several times.

    Args:
        dataset: of PyTorch; of others nothing is looked at.
        persons: whose each record is, if copies of one person's may be there.
    """
    for tensor in dataset.tensors if isinstance(dataset, TensorDataset) else ():
        if tensor.is_floating_point() and tensor.layout == torch.strided and len(tensor) and tensor.isfinite().all():
            plain = tensor.detach().cpu()
            columns = (plain if plain.dtype in (torch.float32, torch.float64) else plain.float()).reshape(len(plain), -1).numpy()
            check_scaled("dataset", columns)
            if persons is None:
                check_copies("dataset", columns)


class Tensors:
    """The tensors of a data set, which are looked at now, and again when their first rows are others.

    Args:
        dataset: as ``check_tensors`` takes it.
    """

    FEW = 8

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._first = dataset, self._few(dataset)
        check_tensors(dataset)

    def check(self) -> None:
        """A step is about to be taken; also seen is what was written through ``.data`` or NumPy."""
        if (now := self._few(self._dataset)) != self._first:
            self._first = now
            check_tensors(self._dataset)

    def _few(self, dataset: Any) -> bytes:
        tensors = dataset.tensors if isinstance(dataset, TensorDataset) else ()
        strided = [each for each in tensors if each.layout == torch.strided]
        return digest_of([each[: self.FEW].contiguous() for each in strided])


class Mixed:
    """Rows of gradients that others are in, as far as that shows in them: all the same, or of sum 0."""

    def __init__(self) -> None:
        self._same, self._centred, self._told = 0, 0, False

    def look(self, rows: Tensor, norms: Tensor) -> None:
        """The rows of one more piece, before they are clipped, and their norms; warns once."""
        if self._told or len(rows) < LEAST or rows.shape[1] < 2:
            return
        size = float(norms.sum())
        same = bool((rows == rows[0]).all()) and int(torch.count_nonzero(rows[0])) > 1
        self._same = self._same + 1 if same else 0
        self._centred = self._centred + 1 if size > 0 and float(rows.sum(dim=0).norm()) <= 1e-6 * size else 0
        if max(self._same, self._centred) >= OFTEN:
            self._told = True
            warn(SAME if self._same >= OFTEN else CENTRED)
