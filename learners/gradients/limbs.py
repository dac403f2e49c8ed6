"""Products of matrices of whole numbers by the integer units of CPUs: exact, and the same numbers as by doubles.

A whole number up to 2²⁰ is l₀ + 2⁷l₁ + 2¹⁴l₂, its *limbs* from −64 to 64. Their products are added up in 32 bits. Older CPUs
add two of them in 16 bits, one factor made unsigned by adding 128: 2·(64 + 128)·64 < 2¹⁵ (``proofs/sums.md``, §5).
"""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor

__all__ = ["LARGEST", "TERMS", "added", "fit", "joined", "product", "split", "whole_of"]

LIMBS = 3
LARGEST = 2.0**20
"""Of the numbers."""

TERMS = 2**16
"""Of a sum, at most: 2¹⁶·64² = 2²⁸."""


@functools.cache
def supported() -> bool:
    """Whether this CPU has instructions for it, and PyTorch's products are right: of any shape, of the largest and most limbs."""
    shapes = [*itertools.product((1, 2, 10), (1, 2, 33), (2, 3, 64, 1280)), (1, 1, TERMS), (1, TERMS, 2)]
    try:
        return torch.cpu._is_vnni_supported() and all(_right(*shape) for shape in shapes)
    except (AttributeError, RuntimeError):  # another version of PyTorch
        return False


def _right(k: int, n: int, d: int) -> bool:
    """Both products, beside those of longer integers: of limbs that are 64 or −64, and of such that are all 64."""
    for period in (3, 2**20):

        def limbs(rows: int, columns: int, period: int = period) -> Tensor:
            return (64 - 128 * (torch.arange(rows * columns) % period == 2)).view(rows, columns).to(torch.int8)

        for one, other in ((limbs(k, d), limbs(LIMBS * n, d).T), (limbs(k, n), limbs(n, LIMBS * d))):
            if not torch.equal(torch._int_mm(one, other).long(), one.long() @ other.long()):
                return False
    return True


def fit(values: Tensor) -> bool:
    """Whether records are to be split, from their device and shape. (PyTorch's product is wrong for a single column.)"""
    return values.device.type == "cpu" and values.ndim == 2 and 1 < values.shape[1] <= TERMS and supported()


def split(whole: Tensor) -> Tensor:
    """The limbs of doubles that are integers up to 2²⁰, of shape (n, d): shape (n, 3, d), in 8 bits.

    Example:
        >>> split(torch.tensor([[2.0**20, -65.0, 130.0]], dtype=torch.float64)).tolist()
        [[[0, 63, 2], [0, -1, 1], [64, 0, 0]]]
    """
    top = (whole * 2.0**-14).round()
    rest = whole - top * 2.0**14
    middle = (rest * 2.0**-7).round()
    return torch.stack([rest - middle * 2.0**7, middle, top], dim=1).to(torch.int8)


def joined(limbs: Tensor, dim: int = 1) -> Tensor:
    """Σ 2^{7i}·limbs[i] along a dimension, in double precision."""
    low, middle, top = limbs.unbind(dim)
    return low.double() + middle.double() * 2.0**7 + top.double() * 2.0**14


def product(matrix: Tensor, limbs: Tensor) -> Tensor:
    """Split integers (k, 3, d) times the transpose of records (n, 3, d): shape (k, n); exact if all norms' products are < 2⁴⁸."""
    (k, _, _), (n, _, _) = matrix.shape, limbs.shape
    found = torch._int_mm(matrix.flatten(0, 1), limbs.flatten(0, 1).T).view(k, LIMBS, n, LIMBS)
    return joined(joined(found), 2)


def added(total: Tensor | None, vectors: Tensor, stored: Tensor) -> Tensor:
    """A sum of integers (k, n) times records, so far: of records as doubles (n, d), or of limbs (n, 3, d), then as limbs."""
    if stored.dtype is not torch.int8:
        return vectors @ stored if total is None else total.addmm_(vectors, stored)
    found = torch._int_mm(split(vectors).flatten(0, 1), stored.flatten(1))
    return found if total is None else total.add_(found)


def whole_of(total: Tensor) -> Tensor:
    """What was added up, shape (k, d); exact below 2⁵³."""
    if total.dtype is not torch.int32:
        return total
    limbs = total.long().view(len(total) // LIMBS, LIMBS, LIMBS, -1)
    shifts = torch.tensor([0, 7, 14])
    return (limbs << (shifts[:, None, None] + shifts[:, None])).sum(dim=(1, 2)).double()
