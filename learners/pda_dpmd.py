"""PDA-DPMD: noisy mirror descent with the public loss as mirror map (Amid et al. 2022, Alg. 1 and eq. 1).

    G ← (Σ clip_C(g_i) + N(0, (zC)² I))/n
    mirror:       ∇Ψ(θ_{t+1}) = ∇Ψ(θ_t) − η·G
    first order:  θ_{t+1} = θ_t − η·(α_t·G + (1 − α_t)·∇Ψ(θ_t)),  α_t = cos(πt/2K) from t = 0, 0 from K on

Ψ is the public loss, regularised, and scaled so that its flattest direction has curvature 1; n is a public count. What
follows the noisy sum is post-processing: GDP(√T/z) at full batch.
Proof, and what the paper printed wrongly: ``proofs/pda_dpmd.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

import privcalc as pc
from learners.frame.descent import SampledDescent
from learners.frame.plan import Plan, make_plan
from learners.frame.records import PrivateRecords
from learners.gradients.softmax import SoftmaxGradient, public_gradient, train_public
from privcalc import errors

__all__ = ["PDADPMD", "mirror_step", "private_share", "top_curvature"]


@dataclass(kw_only=True, eq=False)
class PDADPMD(SampledDescent):
    """PDA-DPMD for softmax regression, warm from public records.

    Args:
        update: "mirror": the exact step, solved with the public loss; "first order": the paper's cheap variant.
        horizon: K, after which the first-order variant follows the public gradient alone (paper: 100 to 5000): its
            first K steps are private, the others are neither drawn nor charged.
        curvature: λ of Ψ over the largest curvature of the public loss at the start: every direction is at least so
            steep.
        classes, epsilon, delta, noise_multiplier, steps, sampler, records, clip_norm, relation, device, ledger, seed:
            see :class:`DPSGD`.
        sample_rate, learning_rate, public_weight_decay, progress: see there, too. ``sample_rate=1`` is the paper's full
            batch; ``learning_rate`` is that of the flattest direction.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> model = PDADPMD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=10, records=1000, learning_rate=1.0)
        >>> model.fit(X, y, np.eye(2).repeat(5, axis=0), [0] * 5 + [1] * 5).score(X, y)
        1.0
    """

    page: ClassVar[str] = "pda_dpmd.md"
    sample_rate: float = 1.0
    update: Literal["mirror", "first order"] = "mirror"
    horizon: int = 200
    curvature: float = 1.0
    public_weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.one_of("update", self.update, "mirror", "first order")
        errors.positive("curvature", self.curvature)  # so that the mirror map is strongly convex
        errors.count("horizon", self.horizon, least=1)

    def plan(self) -> Plan:
        """T releases; of the first-order variant at most K, the others having weight 0."""
        most = None if self.update == "mirror" or self.steps is None else self.horizon
        found = make_plan(
            self._step,
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps if most is None else min(self.steps or most, most),
            relation=self.relation,
        )
        if self.update == "mirror" or found.steps <= self.horizon:
            return found
        noise = found.noise_multiplier  # was given, with ε
        return Plan.of(self._step(noise) * self.horizon, noise, self.delta, self.relation)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        if public is None:
            raise pc.PrivcalcError("X_public, y_public: PDA-DPMD takes its mirror map from labelled public records")
        batch = self._batch(plan, count)
        theta = train_public(*public, start=self._zeros(private.shape[-1]), weight_decay=self.public_weight_decay)
        rate = self.learning_rate
        if rate is None:
            rate = plan.learning_rate(batch, self.clip_norm, len(self.classes))
        average, each = torch.zeros_like(theta), plan.releases // plan.steps
        least = self.curvature * max(top_curvature(theta, public[0]), 1e-6)
        for t in self._steps(plan):
            noisy = private.noisy_sum(SoftmaxGradient(theta), plan.step, self.clip_norm) / batch
            if self.update == "mirror":
                theta = mirror_step(theta, least * rate * noisy, public, least)
            else:
                share = private_share((t - 1) // each, self.horizon)
                theta = theta - rate * (share * noisy + (1 - share) * mean_gradient(theta, public))
            average += theta / plan.releases
        if self.update == "mirror":
            return average
        for _ in range(plan.steps, self.steps or 0):  # beyond K
            theta = theta - rate * mean_gradient(theta, public)
        return theta


def mean_gradient(theta: Tensor, public: tuple[Tensor, Tensor]) -> Tensor:
    """Of public records."""
    return public_gradient(theta, *public) / len(public[1])


def private_share(t: int, horizon: int) -> float:
    """α_t = cos(πt/2K), 0 from K on.

    Example:
        >>> private_share(0, 200), private_share(200, 200), private_share(300, 200)
        (1.0, 0.0, 0.0)
    """
    return math.cos(0.5 * math.pi * t / horizon) if t < horizon else 0.0


def top_curvature(weights: Tensor, features: Tensor, *, steps: int = 50) -> float:
    """The largest eigenvalue of the Hessian of the mean softmax loss, by power iteration.

    Args:
        weights: where, shape (features, classes).
        features: public, shape (n, features).
        steps: of the iteration.

    Example:
        >>> features = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        >>> print(round(top_curvature(torch.zeros(2, 2, dtype=torch.float64), features), 6))  # 4/2 · 1/2
        1.0
    """
    shares = torch.softmax(features @ weights, dim=1)
    vector = torch.randn(weights.shape, generator=torch.Generator().manual_seed(0), dtype=weights.dtype).to(
        weights.device
    )
    size = 0.0
    for _ in range(steps):
        inner = features @ vector
        vector = features.T @ (shares * (inner - (shares * inner).sum(dim=1, keepdim=True))) / len(features)
        size = float(vector.norm())
        vector = vector / max(size, 1e-300)
    return size


def mirror_step(theta: Tensor, step: Tensor, public: tuple[Tensor, Tensor], curvature: float) -> Tensor:
    """argmin_w ⟨step, w⟩ + B_Ψ(w, θ), Ψ the mean public loss + curvature/2·‖w‖², by L-BFGS: ∇Ψ(w) = ∇Ψ(θ) − step.

    Args:
        theta: θ.
        step: η times the noisy gradient.
        public: features and labels.
        curvature: λ > 0.
    """
    slope = mean_gradient(theta, public) + curvature * theta - step
    # Ψ(w) − ⟨slope, w⟩ = mean loss + λ/2·‖w − slope/λ‖² + constant
    decay = curvature * len(public[1])
    return train_public(*public, start=theta, weight_decay=decay, reference=slope / curvature, steps=50)
