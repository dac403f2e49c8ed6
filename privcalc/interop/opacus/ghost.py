"""Under Opacus: ghost clipping's second backward pass is of the gradients whose norms its first has found.

It takes norms layer by layer, from hooks around their forward passes, and clips by them what autograd makes of all uses of a
parameter: what no hook has seen would be in the sum, and in no norm (``proofs/interop.md``, §3).
"""

from __future__ import annotations

from typing import Any

import torch

from privcalc.errors import PrivcalcError

__all__ = ["check_uses", "note_uses"]

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
