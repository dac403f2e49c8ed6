"""Under Opacus: ghost clipping's second backward pass is of the gradients whose norms its first has found.

It takes norms layer by layer, from hooks around their forward passes, and clips by them what autograd makes of all uses of a
parameter: what no hook has seen would be in the sum, and in no norm (``proofs/interop.md``, §3).
"""

from __future__ import annotations

import secrets
from typing import Any

import torch

from privcalc.errors import PrivcalcError

__all__ = ["check_norm", "check_uses", "forget_norms", "norm_of_one", "note_uses", "require_norms"]

GRAPH: Any = torch.autograd
BEGAN, USED = "privcalc_began", "privcalc_used"


def note_uses(module: torch.nn.Module) -> None:
    """Have noted, of each parameter, which nodes of autograd's graph its own module's forward passes have made."""
    for each in module.modules():
        own = any(p.requires_grad for p in each._parameters.values() if p is not None)
        if own and _begin not in each._forward_pre_hooks.values():
            each.register_forward_pre_hook(_begin, prepend=True)
            each.register_forward_hook(_end)


def check_uses(module: torch.nn.Module, losses: torch.Tensor) -> None:
    """Raise PrivcalcError if a parameter is used elsewhere too, or has hooks, which change gradients after their norms."""
    names = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    for path, each in module.named_modules():
        if getattr(each, "scale_grad_by_freq", False) and any(p.requires_grad for p in each.parameters()):
            raise PrivcalcError(
                f"{path}: scale_grad_by_freq=True divides by how often the batch has a row, so that each record is in the "
                "gradients of the others: with ghost clipping nothing bounds that; set it to False"
            )
    for name, own in module.named_parameters():
        if own.requires_grad and (own._backward_hooks or getattr(own, "_post_accumulate_grad_hooks", None)):
            raise PrivcalcError(
                f"{name}: has hooks of its gradient, which change it after ghost clipping has taken its norm: remove them, or "
                "take grad_sample_mode='hooks'"
            )
    ahead: list[Any] = [losses.grad_fn]
    seen = set(ahead)
    while ahead:
        node = ahead.pop()
        for after, _ in () if node is None else node.next_functions:
            p: Any = getattr(after, "variable", None)
            if id(p) in names and not any(a <= node._sequence_nr() < b for a, b in vars(p).get(USED, ())):
                raise PrivcalcError(
                    f"{names[id(p)]}: is used outside of its own module's forward pass, too, as by functional.linear(x, "
                    "layer.weight): ghost clipping takes no norm of what that adds to its gradient, and does not clip it. Take "
                    "grad_sample_mode='hooks', which leaves it out"
                )
            if after is not None and after not in seen:
                seen.add(after)
                ahead.append(after)
    for each in module.parameters():
        vars(each).pop(USED, None)


def forget_norms(params: list[Any]) -> None:
    """Before the first backward pass: those of an earlier batch must not do for this one."""
    for p in params:
        p._norm_sample = None


def require_norms(params: list[Any]) -> None:
    """Raise PrivcalcError if the first backward pass has not taken a norm of each parameter's gradients."""
    if any(getattr(p, "_norm_sample", None) is None for p in params):
        raise PrivcalcError(
            "criterion: ghost clipping has not taken the norms of all parameters' gradients, as in eval() or after a forward "
            "pass of training that had no backward(): call train() before the batch, and look at others within torch.no_grad()"
        )


def norm_of_one(loss: Any, params: list[Any]) -> tuple[int, float] | None:
    """A record at random, and the norm of its gradient by autograd alone; None without records."""
    losses = loss.loss_per_sample
    if losses.dim() != 1 or not len(losses):
        return None
    which, kept = secrets.randbelow(len(losses)), [p.grad for p in params]
    loss.module.disable_hooks()
    try:
        for p in params:
            p.grad = None
        losses[which].backward(retain_graph=True)
        found = [torch.linalg.vector_norm(p.grad.detach(), dtype=torch.float64) for p in params if p.grad is not None]
        return which, float(torch.stack([each.cpu() for each in found]).norm()) if found else 0.0
    finally:
        loss.module.enable_hooks()
        for p, grad in zip(params, kept, strict=True):
            p.grad = grad


def check_norm(module: Any, which: int, norm: float) -> None:
    """Raise PrivcalcError if a record's gradient, of this norm, was not clipped by it but by a lesser one.

    Norms are of 32 bits, and of what cancels: a twentieth is no error of the layer's.
    """
    bound, taken = float(module.max_grad_norm), float(module.per_sample_gradient_norms[which])
    if min(1.0, bound / (taken + 1e-6)) * norm > 1.05 * bound:
        raise PrivcalcError(
            "criterion: ghost clipping has taken too small a norm of a record's gradient, and does not clip it to max_grad_norm: "
            "Opacus's norms are wrong for a layer, such as EmbeddingBag, a convolution with padding_mode, or one of your own "
            "with arguments beside its input, or random bits. Take grad_sample_mode='hooks', which clips what it adds"
        )


def _begin(module: torch.nn.Module, _: Any) -> None:
    """A function of its own, which copies and pickles with the module, as does the next."""
    if torch.is_grad_enabled():
        vars(module).setdefault(BEGAN, []).append(GRAPH._get_sequence_nr())


def _end(module: torch.nn.Module, *_: Any) -> None:
    if torch.is_grad_enabled() and vars(module).get(BEGAN):
        span = vars(module)[BEGAN].pop(), GRAPH._get_sequence_nr()
        for p in module._parameters.values():
            if p is not None and p.requires_grad:
                vars(p).setdefault(USED, []).append(span)
