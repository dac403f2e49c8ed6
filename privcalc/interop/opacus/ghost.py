"""Under Opacus: ghost clipping's second backward pass is of the gradients whose norms its first has found.

It takes norms layer by layer, from hooks around their forward passes, and clips by them what autograd makes of all uses of a
parameter: what no hook has seen would be in the sum, and in no norm (``proofs/interop.md``, §3).
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.own import check_owner
from privcalc.interop.opacus.past import State, state_of
from privcalc.interop.opacus.supported import check_optimizer

__all__ = ["Ghost"]

GRAPH: Any = torch.autograd
BEGAN, USED = "privcalc_began", "privcalc_used"


class Ghost:
    """What ghost clipping makes of the batches of one optimizer.

    Args:
        optimizer: as ``make_private`` returned it.
        module: that it trains, without Opacus's wrapping.
        bounds: is told by which norms records are clipped.
    """

    def __init__(self, optimizer: DPOptimizer, module: torch.nn.Module, bounds: set[float]) -> None:
        self._optimizer, self._module, self._bounds = optimizer, module, bounds
        self._clipping = False  # is it within its two backward passes?
        self._steps = 0
        self._norms: list[Any] = []  # those by which the gradients that were not cleared since are clipped
        self._made: list[tuple[Any, str]] = []  # the clipped sums, and what they were
        self._losses: torch.Size | None = None  # the shape of what the criterion made them of
        watch_criteria()
        note_uses(module)
        optimizer.privcalc_ghost = self

    def backward(self, backward: Callable[[DPTensorFastGradientClipping], None], loss: DPTensorFastGradientClipping) -> None:
        """The module clips each record's loss, by a norm of its own; at every tenth step and the first ten one is looked at.

        Raises:
            PrivcalcError: if random bits were drawn in it, or the norms are not those of the gradients.
        """
        check_owner(loss.module)
        check_uses(self._module, loss.loss_per_sample)
        self._losses = loss.loss_per_sample.shape
        self._bounds.add(float(loss.module.max_grad_norm))
        forget_norms(self._optimizer.params)
        one = norm_of_one(loss, self._optimizer.params) if self._steps < 10 or self._steps % 10 == 0 else None
        before, self._clipping = self._states(), True
        try:
            backward(loss)
        finally:
            self._clipping = False
        if before != self._states():
            raise PrivcalcError(
                "criterion: random bits were drawn in its backward(), as by checkpoint(preserve_rng_state=False) around dropout: "
                "ghost clipping goes backward twice, and clips the second gradients by the norms of the first"
            )
        self._made = self._gradients()
        if one is not None:
            check_norm(loss.module, *one)

    def clears(self) -> None:
        """Gradients are about to be cleared: where the criterion does that, it needs the norms."""
        if self._clipping:
            check_optimizer(self._optimizer)
            require_norms(self._optimizer.params)

    def cleared(self) -> None:
        """The gradients were cleared."""
        self._norms = [getattr(p, "_norm_sample", None) for p in self._optimizer.params]

    def norms(self) -> list[Any]:
        """Those of the records whose clipped gradients are there."""
        # The criterion clears the gradients when it has the norms, and then makes the clipped ones; nothing else does.
        found = [getattr(p, "_norm_sample", None) for p in self._optimizer.params]
        if len(found) != len(self._norms) or any(a is None or a is not b for a, b in zip(found, self._norms, strict=True)):
            raise PrivcalcError("criterion: must be the one that make_private returned: ghost clipping happens in its backward()")
        now = self._gradients()
        if len(now) != len(self._made) or any(a is not b or i != j for (a, i), (b, j) in zip(now, self._made, strict=True)):
            raise PrivcalcError(
                "gradients: must stay what the criterion's backward() made of them: what is added later is not clipped, and "
                "no other backward() may follow; for a penalty on the weights use the optimizer's weight_decay"
            )
        return found

    def check_losses(self, size: int) -> None:
        """Raise PrivcalcError unless there was a loss for each of as many records."""
        if self._losses != (size,):
            shape = "none" if self._losses is None else list(self._losses)
            raise PrivcalcError(f"criterion: must give one loss for each of the {size} records, to clip by; its shape is {shape}")

    def stepped(self) -> None:
        """The optimizer has used what there was."""
        self._losses = None
        self._steps += 1

    def _states(self) -> set[State]:
        """Of torch's own generators, where the gradients are."""
        return {state_of(None, device) for device in {torch.device("cpu"), *(p.device for p in self._optimizer.params)}}

    def _gradients(self) -> list[tuple[Any, str]]:
        """Not all that writes to a tensor is counted by torch: scalers of gradients do not, nor does ``.data``."""
        norm = functools.partial(torch.linalg.vector_norm, dtype=torch.float64)
        return [(g, "" if g is None else f"{g._version} {float(norm(g))!r}") for g in (p.grad for p in self._optimizer.params)]


def watch_criteria() -> None:
    """Have watched optimizers told of ghost clipping, of which only the criterion's loss knows module and shape."""
    backward = DPTensorFastGradientClipping.backward
    if hasattr(backward, "privcalc_watches"):
        return

    @functools.wraps(backward)
    def watched(loss: DPTensorFastGradientClipping) -> None:
        ghost: Ghost | None = vars(loss.optimizer).get("privcalc_ghost")
        if ghost is None:
            backward(loss)
        else:
            ghost.backward(backward, loss)

    vars(watched)["privcalc_watches"] = True
    DPTensorFastGradientClipping.backward = watched


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
