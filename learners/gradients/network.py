"""Any differentiable model: per-example gradients in microbatches, by ``torch.func``."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import privcalc as pc

__all__ = ["NetworkGradient", "flatten", "unflatten"]


@dataclass(frozen=True)
class NetworkGradient:
    """The gradients of cross entropy at parameters θ, one vector: a :class:`Contribution`; or g_i − ĝ instead of g_i.

    The model must treat every record for itself: batch normalisation mixes records, running statistics of any kind keep
    something of them, and both are refused. Other state that a module keeps of itself never passes from records to
    records: each microbatch sees a copy of the model as it was given. What a model keeps outside itself is not seen.

    If units are users, features of shape (users, m, …) and labels of shape (users, m), g_i is the mean gradient of one
    user's records. Records of zeros are no records.

    Args:
        model: the architecture; its own parameters are not used.
        parameters: θ, flat.
        origin: ĝ, flat; None is 0.
        memory: most numbers held in per-example gradients at a time.
    """

    model: nn.Module
    parameters: Tensor
    origin: Tensor | None = None
    memory: int = 50_000_000

    def __post_init__(self) -> None:
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) or getattr(module, "track_running_stats", False):
                raise pc.PrivcalcError(
                    f"model: {module} mixes the records of a batch; use group or layer normalisation"
                )

    def clipped_sum(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """Σ_i clip_C(g_i − ĝ), one vector, added in double precision."""
        features, named = features.to(self.parameters.dtype), unflatten(self.model, self.parameters)
        if labels.ndim == 1:
            features, labels = features.unsqueeze(1), labels.unsqueeze(1)
        there = features.flatten(2).any(dim=2)
        shares = there / there.sum(dim=1, keepdim=True).clamp_min(1)

        def loss(model: nn.Module, parameters: dict[str, Tensor], x: Tensor, y: Tensor, share: Tensor) -> Tensor:
            scores = functional_call(model, parameters, (x,))
            return nn.functional.cross_entropy(scores, y, reduction="none") @ share.to(scores.dtype)

        total = torch.zeros_like(self.parameters, dtype=torch.float64)
        size = max(1, self.memory // max(1, total.numel()))
        for i in range(0, len(labels), size):
            share = shares[i : i + size]
            # A copy: what a forward pass leaves in a module must not meet the next records, or stay in the model.
            alone = functools.partial(loss, copy.deepcopy(self.model))
            each = vmap(grad(alone), in_dims=(None, 0, 0, 0), randomness="different")
            try:
                found = each(named, features[i : i + size], labels[i : i + size], share)
            except (RuntimeError, IndexError) as error:  # what torch says tells how many records there were
                raise pc.PrivcalcError(
                    f"model: torch cannot differentiate it record by record ({type(error).__name__}); "
                    "NetworkGradient(model, parameters).clipped_sum on public records shows why"
                ) from None
            rows = torch.cat([g.reshape(g.shape[0], -1) for g in found.values()], dim=1)
            rows = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0).double()
            if self.origin is not None:
                rows -= self.origin.double()
            norms = torch.linalg.vector_norm(rows, dim=1)
            total += (torch.clamp(clip_norm / norms.clamp_min(1e-30), max=1.0) * share.any(dim=1)) @ rows
        return total

    def public_mean(self, features: Tensor, labels: Tensor) -> Tensor:
        """The mean gradient of public records, unclipped, flat."""

        def loss(parameters: dict[str, Tensor]) -> Tensor:
            scores = functional_call(self.model, parameters, (features.to(self.parameters.dtype),))
            return nn.functional.cross_entropy(scores, labels)

        found = grad(loss)(unflatten(self.model, self.parameters))
        return torch.cat([g.reshape(-1) for g in found.values()])


def flatten(model: nn.Module) -> Tensor:
    """All trainable parameters, as one vector."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])


def unflatten(model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """The vector's parts by name."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parts = torch.split(vector, [p.numel() for p in named.values()])
    return {name: part.reshape(p.shape) for (name, p), part in zip(named.items(), parts, strict=True)}
