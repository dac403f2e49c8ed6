"""Softmax regression without intercept: W of shape (features, classes), loss −log softmax(xW)_y.

One record's gradient is the outer product of x and r = softmax(xW) − e_y, so that its norm is ‖x‖·‖r‖: clipping needs
no gradient of its own per record, and a private step costs two matrix products, as a public one does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import privcalc as pc
from learners.gradients.exact import Matrix, OuterProducts, Rows, projected

__all__ = [
    "SoftmaxGradient",
    "exact_residuals",
    "gradient_norms",
    "into_ball",
    "public_gradient",
    "softmax",
    "train_public",
]

DIGITS = 36
"""Binary digits of exponentials: sums of them are exact in any order."""

POWERS = tuple(math.log(2.0) ** n / math.factorial(n) for n in range(9))
"""2^f = Σ POWERS[n]·f^n, within 3e-10 for |f| ≤ ½."""


@dataclass(frozen=True)
class SoftmaxGradient(OuterProducts):
    """The gradients of the loss at W, of shape (features, classes): a :class:`Contribution`, whose sum is exact.

    With U, Uᵀ·clip(g_i), shape (P, classes): x ⊗ r becomes Uᵀx ⊗ r, never longer than what x ⊗ r is clipped to.
    """

    weights: Tensor
    basis: Tensor | None = None

    def left(self) -> Callable[[Rows], Rows]:
        """x, or Uᵀx."""
        return super().left() if self.basis is None else functools.partial(projected, Matrix.of(self.basis))

    def residuals(self) -> Callable[[Rows, Tensor], Tensor]:
        """softmax(xW) − e_y."""
        weights = Matrix.of(self.weights)
        return lambda rows, labels: exact_residuals(weights.times(rows), labels)


def exact_residuals(logits: Tensor, labels: Tensor) -> Tensor:
    """softmax − e_y of logits of shape (classes, n), each column's from itself alone; 0 where scores overflow."""
    finite = logits.isfinite().all(dim=0)
    found = softmax(torch.where(finite, logits, 0.0))
    found[labels, torch.arange(len(labels), device=labels.device)] -= 1.0
    return found * finite


def softmax(logits: Tensor) -> Tensor:
    """Of finite columns, within 1e-9: by elementwise operations that IEEE 754 defines, and sums that are exact.

    Other implementations of exp, and of sums, may treat the end of an array otherwise than the rest.

    Example:
        >>> softmax(torch.tensor([[0.0], [0.0]], dtype=torch.float64)).T
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    digits = min(DIGITS, 52 - logits.shape[0].bit_length())
    t = ((logits - logits.amax(dim=0)) * (1 / math.log(2.0))).clamp_min(-64.0)
    whole = t.round()
    rest = t - whole
    found = torch.full_like(rest, POWERS[-1])
    for coefficient in reversed(POWERS[:-1]):
        found.mul_(rest).add_(coefficient)
    # 2^whole, bit by bit
    found = found.mul_(((whole.long() + (1023 + digits)) << 52).view(torch.float64)).round()
    return found / found.sum(dim=0)


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
    return (residuals(weights, features, labels).T @ features).T  # faster than the other way round


def into_ball(weights: Tensor, radius: float | None) -> Tensor:
    """Scaled down to norm ≤ radius; None is no limit.

    Example:
        >>> into_ball(torch.tensor([[3.0, 4.0]]), 1.0)
        tensor([[0.6000, 0.8000]])
    """
    return weights if radius is None else weights * min(1.0, radius / max(float(weights.norm()), 1e-30))


def train_public(
    features: Tensor,
    labels: Tensor,
    *,
    start: Tensor,
    weight_decay: float,
    steps: int = 200,
    reference: Tensor | None = None,
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
