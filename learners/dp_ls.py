"""DP least squares: one noisy release of second moments, then a regularised solution for each class.

Mehta et al. 2023, Algorithm 3.

    A ← Σ x xᵀ + noise,    A_c ← Σ_{i of class c} x_i x_iᵀ + noise,    b_c ← Σ_{i of class c} x_i + noise
    w_c = (A_c + α·A + λ I)⁻¹ b_c

minimises Σ_{i of c} (1 − ⟨w, x_i⟩)² + α Σ_i ⟨w, x_i⟩² + λ‖w‖². At α = ∞ it is a plain ridge, which needs no A_c. A
baseline of DPPL. Proof: ``proofs/dp_ls.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

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
    """Least-squares classification from one Gaussian release: by default a plain ridge; Mehta's with ``weight``.

    Rows longer than C are shortened to C, and all are divided by it, so that a record adds a vector of norm at most √2,
    or √3 with the matrices of the classes; a replaced one moves the sum by at most √4.5, or 2.5; all the rest is
    post-processing.

    Args:
        classes: the public list of classes.
        epsilon: ε.
        delta: δ.
        relation: the neighbouring relation.
        weight: α > 0, of the records of all classes beside those of one; ∞ is a plain ridge.
        ridge: λ; by default the noise's own size, so that matrices can be inverted.
        clip_norm: C.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: not used: there is one step.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5).fit(X, y).score(X, y)
        1.0
        >>> DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5, weight=0.1).fit(X, y).score(X, y)
        1.0
    """

    page: ClassVar[str] = "dp_ls.md"
    assumptions: ClassVar[pc.Assumptions] = pc.Assumptions(normaliser="public", start="none")
    epsilon: float
    weight: float = math.inf
    ridge: float | None = None
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise pc.PrivcalcError(f"weight = {self.weight!r}: must be > 0; infinity is a plain ridge")

    def plan(self) -> Plan:
        """One Gaussian release."""
        target: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "relation": self.relation}
        return make_plan(pc.Gaussian, **target, noise_multiplier=None, steps=1)

    @property
    def _bound(self) -> float:
        """How far a record moves the sum; under replace-one half of the most that one does (``proofs/dp_ls.md``)."""
        moved, replaced = (2.0, 4.5) if math.isinf(self.weight) else (3.0, 6.25)
        return 0.5 * math.sqrt(replaced) if self.relation is pc.REPLACE_ONE else math.sqrt(moved)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        size, classes, plain = private.shape[0], len(self.classes), math.isinf(self.weight)
        moments = Products(classes, self.clip_norm, by_class=not plain)
        noisy = private.noisy_sum(moments, plan.step, self._bound)
        whole, sums = noisy[:, :size], noisy[:, size : size + classes]
        # The largest eigenvalue of symmetrised Gaussian noise is near σ·√(2d).
        noise = plan.noise_multiplier * self._bound * math.sqrt(2 * size)
        if plain:
            return solved(whole, sums, noise if self.ridge is None else self.ridge)
        ridge = noise * math.hypot(1.0, self.weight) if self.ridge is None else self.ridge
        own = noisy[:, size + classes :].reshape(size, classes, size).unbind(dim=1)
        return torch.cat([solved(part + self.weight * whole, sums[:, [c]], ridge) for c, part in enumerate(own)], dim=1)


def solved(matrix: Tensor, target: Tensor, ridge: float) -> Tensor:
    """(A + λ I)⁻¹ b, A made symmetric and positive semidefinite."""
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.T))
    found: Tensor = vectors @ ((vectors.T @ target) / (values.clamp_min(0.0) + ridge).unsqueeze(1))
    return found


@dataclass(frozen=True)
class Products(Exact):
    """Products (x xᵀ, x e_yᵀ), ‖x‖ ≤ 1, x rounded to multiples of 2⁻¹⁶: of norm ≤ √2.

    With x xᵀ once more in the place of y the norm is ≤ √3.
    """

    classes: int
    norm: float = 1.0
    by_class: bool = False

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """The sum, of shape (features, features + classes), or with classes·features more columns.

        It does not depend on ``clip_norm``, which is this bound.
        """
        totals = (self._total(*part) for part in groups(linear(features), labels))
        return summed(totals) * 2.0**-32

    def _total(self, rows: Rows, labels: Tensor) -> Tensor:
        total = torch.zeros(())
        for part, y in rows.blocks(labels):
            left = clipped(part.values() / self.norm, 1.0, 2.0**-16, dim=1)
            target = torch.nn.functional.one_hot(y, self.classes) * 2.0**16
            found = left.T @ torch.cat([left, target.to(left)], dim=1)
            if self.by_class:
                own = [left[y == c].T @ left[y == c] for c in range(self.classes)]
                found = torch.cat([found, *own], dim=1)
            total = total + found
        return total
