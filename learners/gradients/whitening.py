"""Principal components of public features, whitened, as a map of single records."""

from __future__ import annotations

import torch
from torch import Tensor

from learners.gradients.exact import Matrix, Rows, integers

__all__ = ["normalised", "whitened", "whitening"]


def whitening(features: Tensor, k: int, ridge: float) -> Tensor:
    """The whitening V_k·(Λ_k + λ·mean(Λ_k))^(−½) up to a factor, of shape (features, at most k).

    Λ_k are the k largest eigenvalues of Σ x xᵀ, V_k their eigenvectors.

    Args:
        features: public, shape (n, features).
        k: at most so many columns, and no more than the rank.
        ridge: λ >= 0.

    Example:
        >>> whitening(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), 2, 0.0).abs()
        tensor([[1., 0.],
                [0., 2.]])
    """
    _, values, right = torch.linalg.svd(features, full_matrices=False)
    k = max(1, min(k, int((values > 1e-4 * values[0]).sum())))
    moments = values[:k].square()
    moments = moments + ridge * moments.mean()
    # of the largest, lest a public set of zeros gives infinities: rows are normalised anyway
    found: Tensor = right[:k].T * (moments / moments.max().clamp_min(1e-300)).clamp_min(1e-12).rsqrt()
    return found


def whitened(rows: Tensor, matrix: Tensor) -> Tensor:
    """xM, of norm 1; each row's from itself alone, bit for bit."""
    return normalised(Matrix.of(matrix).times(Rows.of(rows)).T)


def normalised(rows: Tensor) -> Tensor:
    """Rows of norm 1, up to rounding; those of 0 stay 0; each row's from itself alone, bit for bit.

    Example:
        >>> normalised(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    whole, _ = integers(rows, 1)
    return (whole / whole.square().sum(dim=1, keepdim=True).clamp_min(1.0).sqrt()).to(rows.dtype)
