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

__all__ = ["Mixed", "Tensors"]

LEAST, OFTEN = 8, 3
"""Rows, and pieces one after the other, that are not such by chance: released noise moves weights in between."""

FEW = 8
"""First rows, by which tensors are known to be others."""

SAME = (
    "gradients: all rows of a piece are the same, piece after piece, as if that of the whole piece had been repeated: each "
    "row has all records in it then, and ε does not hold. Give the gradient of each record's own loss (RecordGradients takes it)"
)
CENTRED = (
    "gradients: add up to 0 in piece after piece, as if they had been centred: each row has all records in it then, and ε does "
    "not hold. Give the gradient of each record's own loss, and subtract what is public or released only"
)


class Tensors:
    """Tensors of a ``TensorDataset``, looked at now, and again when their first rows are others, also by ``.data`` or NumPy.

    Warned of are those that were scaled by themselves, or have records several times.

    Args:
        dataset: of PyTorch; of others nothing is looked at.
        persons: whose each record is, if copies of one person's may be there.
    """

    def __init__(self, dataset: Any, persons: ArrayLike | None = None) -> None:
        self._dataset, self._persons, self._first = dataset, persons, b""
        self.check()

    def check(self) -> None:
        """Records are about to be used."""
        tensors = self._dataset.tensors if isinstance(self._dataset, TensorDataset) else ()
        looked_at = [each for each in tensors if each.layout == torch.strided and len(each)]
        first = digest_of([each[:FEW] for each in looked_at])
        if first == self._first:
            return
        self._first = first
        for tensor in looked_at:
            if tensor.is_floating_point() and tensor.isfinite().all():
                plain = tensor.detach().cpu()
                plain = plain if plain.dtype in (torch.float32, torch.float64) else plain.float()
                columns = plain.reshape(len(plain), -1).numpy()
                check_scaled("dataset", columns)
                if self._persons is None:
                    check_copies("dataset", columns)


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
