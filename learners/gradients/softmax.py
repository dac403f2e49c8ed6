"""Softmax regression without intercept: W of shape (features, classes), loss −log softmax(xW)_y.

One record's gradient is the outer product of x and r = softmax(xW) − e_y, so that its norm is ‖x‖·‖r‖: clipping needs no
gradient of its own per record, and a private step costs two matrix products, as a public one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import privcalc as pc

__all__ = ["SoftmaxGradient", "gradient_norms", "into_ball", "one_pass", "public_gradient", "train_public"]


@dataclass(frozen=True)
class SoftmaxGradient:
    """The gradients of the loss at W: a :class:`Contribution`."""

    weights: Tensor
    norms: Tensor | None = None

    def with_norms(self, norms: Tensor) -> SoftmaxGradient:
        """Told ‖x_i‖."""
        return replace(self, norms=norms)

    def clipped_sum(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """Σ_i x_i ⊗ r_i·min(1, C/(‖x_i‖‖r_i‖)), shape (features, classes)."""
        residual = residuals(self.weights, features, labels)
        norms = torch.linalg.vector_norm(features, dim=1) if self.norms is None else self.norms
        norms = norms * torch.linalg.vector_norm(residual, dim=1)
        # 0/0 for a record without gradient: it adds nothing anyway
        residual *= torch.clamp(clip_norm / norms.clamp_min(1e-30), max=1.0).unsqueeze(1)
        return features.T @ residual

    def ratios(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """min(1, ‖x_i‖‖r_i‖/C), with room for single precision."""
        return (gradient_norms(self.weights, features, labels) / clip_norm * (1 + 1e-5)).clamp(max=1.0)


def residuals(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """softmax(xW) − e_y, shape (n, classes); 0 for a record whose scores overflow."""
    if features.ndim != 2:
        raise pc.PrivcalcError(f"X: must have shape (n, features) for a linear model, not {tuple(features.shape)}")
    residual = torch.softmax(features @ weights.to(features.dtype), dim=1)
    residual[torch.arange(len(labels), device=labels.device), labels] -= 1.0
    return torch.nan_to_num_(residual, nan=0.0)


def gradient_norms(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """‖g_i‖ of public records."""
    norms: Tensor = torch.linalg.vector_norm(features, dim=1) * torch.linalg.vector_norm(
        residuals(weights, features, labels), dim=1
    )
    return norms


def public_gradient(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Σ_i g_i of public records, unclipped."""
    return features.T @ residuals(weights, features, labels)


def into_ball(weights: Tensor, radius: float | None) -> Tensor:
    """Scaled down to norm ≤ radius; None is no limit.

    Example:
        >>> into_ball(torch.tensor([[3.0, 4.0]]), 1.0)
        tensor([[0.6000, 0.8000]])
    """
    return weights if radius is None else weights * min(1.0, radius / max(float(weights.norm()), 1e-30))


def one_pass(features: Tensor, labels: Tensor, *, start: Tensor, curvature: float, radius: float | None = None) -> Tensor:
    """One pass of projected gradient descent, η_t = 2/(c(t + 1)), a record at a time in the given order (AdaMix, Algorithm 3).

    Args:
        features: shape (n, features).
        labels: positions of classes.
        start: where to begin, shape (features, classes).
        curvature: c > 0, by which the expected loss is taken to be strongly convex.
        radius: see :func:`into_ball`.
    """
    weights = start
    for t, (x, y) in enumerate(zip(torch.split(features, 1), torch.split(labels, 1), strict=True), 1):
        weights = into_ball(weights - 2 / (curvature * (t + 1)) * public_gradient(weights, x, y), radius)
    return weights


def train_public(
    features: Tensor, labels: Tensor, *, start: Tensor, weight_decay: float, steps: int = 200, reference: Tensor | None = None
) -> Tensor:
    """Minimise Σ loss + weight_decay/2·‖W − reference‖² over public records, by L-BFGS.

    Args:
        features: shape (n, features), n ≥ 1.
        labels: positions of classes.
        start: where to begin, shape (features, classes).
        weight_decay: λ ≥ 0.
        steps: most iterations.
        reference: centre of the weight decay; 0 if None.
    """
    features = features.to(start.dtype)
    weights = start.clone().requires_grad_(True)
    centre = torch.zeros_like(start) if reference is None else reference
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(features @ weights, labels)
        loss = loss + 0.5 * weight_decay / len(labels) * (weights - centre).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()
