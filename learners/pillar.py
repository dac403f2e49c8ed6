"""PILLAR: private linear classification on a few principal components of public features.

Pinto, Hu, Yang, Sanyal 2024, Algorithm 1.

    A_k ← top k eigenvectors of Σ_public x xᵀ,    z ← A_kᵀx, shortened to norm ≤ 1,    DP-SGD on (z, y)

A_k depends on public records only, so that the guarantee is that of DP-SGD. Proof, and what the paper printed wrongly:
``proofs/pillar.md``. Baselines: no projection (``k=None``), and a random one (JL; Nguyen, Ullman, Zakynthinou 2020).
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

__all__ = ["PILLAR", "projection"]


@dataclass(kw_only=True, eq=False)
class PILLAR(DPSGD):
    """DP-SGD on projected features; ``X_public`` needs no labels.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ.
        sample_rate: q; 1 is full batch.
        k: dimensions to keep (paper: 40 or so); None keeps all.
        basis: "pca" of the public records, or "jl": random, no public records needed.
        centred: subtract the public mean first (the paper's proof centres, its Algorithm 1 does not).
        relation, noise_multiplier, steps, sampler, records, clip_norm, learning_rate: see :class:`DPSGD`.
        basis_seed: of the random projection, public.
        self_training: see :class:`WhitenedGD`.
        momentum, weight_decay, ema, device, ledger, seed, progress: see :class:`DPSGD`.

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
    k: int | None = 40
    basis: Literal["pca", "jl"] = "pca"
    centred: bool = False
    basis_seed: int = 0
    self_training: bool = False
    public_weight_decay: float = field(default=0.0, init=False)
    public_steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and (isinstance(self.k, bool) or self.k < 1):
            raise pc.PrivcalcError(f"k = {self.k!r}: must be a whole number >= 1, or None")
        if self.basis not in {"pca", "jl"}:
            raise pc.PrivcalcError(f"basis = {self.basis!r}: must be 'pca' or 'jl'")

    @property
    def _flat(self) -> bool:
        return True

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        self.project_ = self._projection(private.shape[0], public)
        return super()._train(private.map(self.project_), plan, count, None)

    def _projection(self, features: int, public: tuple[Tensor, Tensor] | None) -> Callable[[Tensor], Tensor]:
        if self.k is None:
            return shortened
        if self.basis == "jl":
            generator = torch.Generator().manual_seed(self.basis_seed)
            matrix = (torch.randn((features, self.k), generator=generator) / self.k**0.5).to(self.device, torch.float64)
            return functools.partial(
                project, centre=torch.zeros(features, device=self.device, dtype=torch.float64), directions=matrix
            )
        if public is None:
            raise pc.PrivcalcError("X_public: must be given for basis='pca'")
        centre = (
            public[0].mean(dim=0) if self.centred else torch.zeros(features, device=self.device, dtype=torch.float64)
        )
        directions = projection(public[0] - centre, self.k)
        return functools.partial(project, centre=centre, directions=directions)

    def _scores(self, features: Tensor) -> Tensor:
        """Logits of the projected features."""
        return super()._scores(self.project_(features))


def project(rows: Tensor, centre: Tensor, directions: Tensor) -> Tensor:
    """A_kᵀ(x − centre), shortened; each row's from itself alone, bit for bit."""
    return shortened(Matrix.of(directions).times(Rows.of(rows - centre)).T)


def shortened(rows: Tensor) -> Tensor:
    """Rows longer than 1 scaled to norm 1; each row's from itself alone, bit for bit."""
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
