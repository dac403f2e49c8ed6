"""PILLAR: private linear classification on a few principal components of public features.

Pinto, Hu, Yang, Sanyal 2024, Algorithm 1.

    A_k ← top k eigenvectors of Σ_public x xᵀ,    z ← A_kᵀx, shortened to norm ≤ 1,    DP-SGD on (z, y)

A_k depends on public records only, so that the guarantee is that of DP-SGD. Proof, and what the paper printed wrongly:
``proofs/pillar.md``. Baseline: a random projection (JL; Nguyen, Ullman, Zakynthinou 2020).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

import privcalc as pc
from learners.dpsgd import DPSGD
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import Matrix, Rows, integers
from privcalc import errors

__all__ = ["PILLAR", "projection"]


@dataclass(kw_only=True, eq=False)
class PILLAR(DPSGD):
    """DP-SGD on projected features; ``X_public`` needs no labels.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ.
        sample_rate: q; 1 is full batch.
        k: dimensions to keep (paper: 40 or so).
        basis: "pca" of the public records, or "jl": random, no public records needed.
        relation, noise_multiplier, steps, sampler, records, clip_norm, learning_rate: see :class:`DPSGD`.
        self_training: see :class:`WhitenedGD`.
        momentum, weight_decay, device, ledger, seed, progress: see :class:`DPSGD`.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(4)[[0, 1]].repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> model = PILLAR(classes=[0, 1], epsilon=1.0, delta=1e-5, sample_rate=1.0, steps=20, records=1000, k=2)
        >>> model.fit(X, y, np.eye(4)[:2]).score(X, y)
        1.0
        >>> tuple(model.weights_.shape)
        (2, 2)
    """

    page: ClassVar[str] = "pillar.md"
    needs_labels: ClassVar[bool] = False
    sample_rate: float = 1.0
    k: int = 40
    basis: Literal["pca", "jl"] = "pca"
    self_training: bool = False
    public_weight_decay: float = field(default=0.0, init=False)
    public_steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.count("k", self.k, least=1)
        errors.one_of("basis", self.basis, "pca", "jl")

    @property
    def _flat(self) -> bool:
        return True

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        if self.basis == "jl":
            shape, generator = (private.shape[0], self.k), torch.Generator().manual_seed(0)  # public
            directions = (torch.randn(shape, generator=generator) / self.k**0.5).to(self.device, torch.float64)
        elif public is None:
            raise pc.PrivcalcError("X_public: must be given for basis='pca'")
        else:
            directions = projection(public[0], self.k)
        self.project_: Callable[[Tensor], Tensor] = functools.partial(project, directions=directions)
        return super()._train(private.map(self.project_), plan, count, None)

    def _scores(self, features: Tensor) -> Tensor:
        """Logits of the projected features."""
        return super()._scores(self.project_(features))


def project(rows: Tensor, directions: Tensor) -> Tensor:
    """A_kᵀx, shortened to norm 1 if it is longer; each row's from itself alone, bit for bit."""
    rows = Matrix.of(directions).times(Rows.of(rows)).T
    whole, scale = integers(rows, 1)
    norms = whole.square().sum(dim=1, keepdim=True).sqrt() * scale
    return rows / norms.clamp_min(1.0).to(rows.dtype)


def projection(public: Tensor, k: int) -> Tensor:
    """Top k eigenvectors of Σ x xᵀ, shape (features, min(k, rank)).

    Example:
        >>> projection(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), 1).abs()
        tensor([[1.],
                [0.]])
    """
    _, values, right = torch.linalg.svd(public, full_matrices=False)
    rank = int((values > 1e-6 * values[0]).sum()) if values[0] > 0 else 1
    directions: Tensor = right[: min(k, rank)]
    return directions.T
