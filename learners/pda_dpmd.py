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
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

import privcalc as pc
from learners.frame.descent import SampledDescent
from learners.frame.plan import Plan, make_plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import Matrix, OuterProducts, Rows
from learners.gradients.softmax import SoftmaxGradient, into_ball, public_gradient, train_public

__all__ = ["PDADPMD", "SquaredGradient", "mirror_step", "private_share", "quadratic_map", "top_curvature"]


HALVINGS = 30
"""Of the interval that holds a multiplier: to 1e-9 of it, where the minimiser errs more."""


@dataclass(kw_only=True, eq=False)
class PDADPMD(SampledDescent):
    """PDA-DPMD for softmax regression, warm from public records.

    Args:
        update: "mirror": the exact step, solved with the public loss; "first order": the paper's cheap variant.
        horizon: K, after which the first-order variant follows the public gradient alone (paper: 100 to 5000): its
            first K steps are private, the others are neither drawn nor charged.
        curvature: λ of Ψ over the largest curvature of the public loss at the start: every direction is at least so
            steep.
        radius: the least is taken over the ball of this radius around the public model; None takes it over all.
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
    radius: float | None = None
    public_weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.update not in {"mirror", "first order"}:
            raise pc.PrivcalcError(f"update = {self.update!r}: must be 'mirror' or 'first order'")
        if not self.curvature > 0:
            raise pc.PrivcalcError(
                f"curvature = {self.curvature!r}: must be > 0, so that the mirror map is strongly convex"
            )
        if self.horizon < 1 or not (self.radius is None or self.radius > 0):
            raise pc.PrivcalcError(f"horizon = {self.horizon!r}, radius = {self.radius!r}: must be > 0")

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

    def _start(self, private: PrivateRecords, public: tuple[Tensor, Tensor]) -> Tensor:
        """The public model."""
        return train_public(*public, start=self._zeros(private.shape[-1]), weight_decay=self.public_weight_decay)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        if public is None:
            raise pc.PrivcalcError("X_public, y_public: PDA-DPMD takes its mirror map from labelled public records")
        batch = self._batch(plan, count)
        start = self._start(private, public)
        rate = self.learning_rate
        if rate is None:
            rate = plan.learning_rate(batch, self.clip_norm, len(self.classes))
        theta, average, each = start, torch.zeros_like(start), plan.releases // plan.steps
        least = self.curvature * max(top_curvature(start, public[0]), 1e-6)
        for t in self._steps(plan):
            noisy = private.noisy_sum(SoftmaxGradient(theta), plan.step, self.clip_norm) / batch
            if self.update == "mirror":
                theta = mirror_step(theta, least * rate * noisy, public, least, centre=start, radius=self.radius)
            else:
                share = private_share((t - 1) // each, self.horizon)
                theta = self._near(theta - rate * (share * noisy + (1 - share) * self._slope(theta, public)), start)
            average += theta / plan.releases
        if self.update == "mirror":
            return average
        for _ in range(plan.steps, self.steps or 0):  # beyond K
            theta = self._near(theta - rate * self._slope(theta, public), start)
        return theta

    def _slope(self, theta: Tensor, public: tuple[Tensor, Tensor]) -> Tensor:
        """The mean public gradient."""
        return public_gradient(theta, *public) / len(public[1])

    def _near(self, theta: Tensor, start: Tensor) -> Tensor:
        """Projected onto the ball around the start."""
        return theta if self.radius is None else start + into_ball(theta - start, self.radius)


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


def mirror_step(
    theta: Tensor,
    step: Tensor,
    public: tuple[Tensor, Tensor],
    curvature: float,
    *,
    centre: Tensor | None = None,
    radius: float | None = None,
) -> Tensor:
    """argmin_w ⟨step, w⟩ + B_Ψ(w, θ), Ψ the mean public loss + curvature/2·‖w‖², by L-BFGS: ∇Ψ(w) = ∇Ψ(θ) − step.

    With a radius, over ‖w − centre‖ ≤ radius: where the free one is outside, it has a multiplier μ > 0, found by
    bisection, with which w(μ) = argmin + μ/2·‖w − centre‖² is on the sphere.

    Args:
        theta: θ.
        step: η times the noisy gradient.
        public: features and labels.
        curvature: λ > 0.
        centre: of the ball; θ if None.
        radius: of the ball; None is no limit.
    """
    features, labels = public
    middle = theta if centre is None else centre

    def slope_at(weights: Tensor) -> Tensor:
        return public_gradient(weights, features, labels) / len(labels) + curvature * weights

    slope = slope_at(theta) - step

    def least(multiplier: float) -> Tensor:
        # Ψ(w) − ⟨slope, w⟩ + μ/2·‖w − centre‖² = mean loss + (λ + μ)/2·‖w − (slope + μ·centre)/(λ + μ)‖² + constant
        total = curvature + multiplier
        target, decay = (slope + multiplier * middle) / total, total * len(labels)
        return train_public(features, labels, start=theta, weight_decay=decay, reference=target, steps=50)

    found = least(0.0)
    if radius is None or float((found - middle).norm()) <= radius:
        return found
    # ∇Ψ is monotone, so that μ·‖w − centre‖ ≤ ‖slope − ∇Ψ(centre)‖
    low, high = 0.0, float((slope - slope_at(middle)).norm()) / radius
    for _ in range(HALVINGS):
        multiplier = 0.5 * (low + high)
        outside = float((least(multiplier) - middle).norm()) > radius
        low, high = (multiplier, high) if outside else (low, multiplier)
    return middle + into_ball(least(high) - middle, radius)


@dataclass(frozen=True)
class SquaredGradient(OuterProducts):
    """Linear regression, loss (xᵀθ − y)²: gradient 2(xᵀθ − y)·x. Labels are real numbers."""

    theta: Tensor

    def residuals(self) -> Callable[[Rows, Tensor], Tensor]:
        """2(xᵀθ − y)."""
        theta = Matrix.of(self.theta.unsqueeze(1))
        return lambda rows, labels: 2 * (theta.times(rows) - labels)

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Shape (features,)."""
        return super().clipped_sum(features, labels, clip_norm).squeeze(1)


def quadratic_map(features: Tensor, ridge: float) -> Tensor:
    """The mirror map of public linear regression, with Hessian XᵀX/n + ridge·I.

    It is scaled to smallest eigenvalue 1 (paper, Appendix E).

    A mirror step is then exact: θ − η·H⁻¹·(noisy gradient).

    Example:
        >>> quadratic_map(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), 0.5)
        tensor([[2.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    hessian = features.T @ features / len(features)
    hessian = hessian + ridge * torch.eye(hessian.shape[0], device=hessian.device, dtype=hessian.dtype)
    least: Tensor = torch.linalg.eigvalsh(hessian)[0]
    return hessian / least
