"""DP least squares: one noisy release of Σ x xᵀ and Σ x e_yᵀ, then the ridge solution (Mehta et al. 2023; a baseline of DPPL).

Proof: ``proofs/dp_ls.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import privcalc as pc
from learners.frame.learner import Learner
from learners.frame.plan import Plan, make_plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import Exact, Rows, clipped, groups, linear, summed

__all__ = ["DPLS"]


@dataclass(kw_only=True, eq=False)
class DPLS(Learner):
    """Least-squares classification from one Gaussian release.

    Rows longer than 1 are shortened, so that a record adds a vector of norm at most √2, and a replaced one moves the sum by at
    most √4.5; all the rest is post-processing.

    Args:
        classes: the public list of classes.
        epsilon: ε.
        delta: δ.
        relation: the neighbouring relation.
        ridge: λ added to Σ x xᵀ; by default the noise's own size, so that the matrix can be inverted.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: not used: there is one step.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5).fit(X, y).score(X, y)
        1.0
    """

    epsilon: float
    ridge: float | None = None

    def plan(self) -> Plan:
        """One Gaussian release."""
        target: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "relation": self.relation}
        return make_plan(pc.Gaussian, **target, noise_multiplier=None, steps=1)

    @property
    def _bound(self) -> float:
        """How far a record moves the sum: √2; under replace-one half of √4.5, which is the most (``proofs/dp_ls.md``)."""
        return 0.5 * math.sqrt(4.5) if self.relation is pc.REPLACE_ONE else math.sqrt(2)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        size = private.shape[0]
        noisy = private.noisy_sum(Products(len(self.classes)), plan.step, self._bound)
        matrix = 0.5 * (noisy[:, :size] + noisy[:, :size].T)
        # The largest eigenvalue of symmetrised Gaussian noise is near σ·√(2d).
        ridge = plan.noise_multiplier * self._bound * math.sqrt(2 * size) if self.ridge is None else self.ridge
        values, vectors = torch.linalg.eigh(matrix)
        weights: Tensor = vectors @ ((vectors.T @ noisy[:, size:]) / (values.clamp_min(0.0) + ridge).unsqueeze(1))
        return weights


@dataclass(frozen=True)
class Products(Exact):
    """(x xᵀ, x e_yᵀ), ‖x‖ ≤ 1, x rounded to multiples of 2⁻¹⁶: norm ≤ √2."""

    classes: int

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Shape (features, features + classes); of norm at most √2 whatever ``clip_norm``, which is this bound."""
        totals = (self._total(*part) for part in groups(linear(features), labels))
        return summed(totals) * 2.0**-32

    def _total(self, rows: Rows, labels: Tensor) -> Tensor:
        total = torch.zeros(())
        for part, y in rows.blocks(labels):
            left = clipped(part.values(), 1.0, 2.0**-16, dim=1)
            target = torch.nn.functional.one_hot(y, self.classes) * 2.0**16
            total = total + left.T @ torch.cat([left, target.to(left)], dim=1)
        return total
