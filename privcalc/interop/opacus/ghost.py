"""Ghost clipping's criterion, whose norms are compared with autograd's now and then (``proofs/interop.md``, §3).

It takes norms layer by layer, from hooks around forward passes, and clips by them what autograd makes of all uses of a
parameter: what no hook has seen, or a layer's rule gets wrong, would be in the sum, and in no norm.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import torch
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping, DPTensorFastGradientClipping

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.checks import PRECISE, length
from privcalc.interop.opacus.optimizer import KeptGhost, KeptSharded, versions

FIRST, EVERY = 10, 10
"""The first ten backward passes are looked at, and each tenth."""


class KeptLoss(DPLossFastGradientClipping):  # type: ignore[misc]
    """A criterion like another one, for an optimizer that keeps a ledger."""

    def __init__(self, of: DPLossFastGradientClipping, optimizer: KeptGhost) -> None:
        super().__init__(of.module, optimizer, of.criterion, of.loss_reduction)
        for path, each in of.module._module.named_modules():  # its own, also where nothing is wrapped
            if getattr(each, "scale_grad_by_freq", False):
                raise PrivcalcError(
                    f"{path}: scale_grad_by_freq=True divides by how often the batch has a row, so that each record is "
                    "in the gradients of the others: with ghost clipping nothing bounds that; set it to False"
                )

    def __call__(self, *args: Any, **kwargs: Any) -> KeptTensor:
        """The loss of each record."""
        return KeptTensor.of(super().__call__(*args, **kwargs))


ARITHMETIC = "__mul__", "__truediv__", "__add__", "__sub__", "__rsub__", "__neg__"
"""Of losses, each of which gives losses."""


def _kept(name: str) -> Callable[..., KeptTensor]:
    """One of these, of losses that tell the optimizer."""
    own = getattr(DPTensorFastGradientClipping, name)
    return lambda self, *other: KeptTensor.of(own(self, *other))


class KeptTensor(DPTensorFastGradientClipping):  # type: ignore[misc]
    """Losses whose ``backward()`` tells the optimizer of how many records it has made gradients."""

    @classmethod
    def of(cls, loss: DPTensorFastGradientClipping) -> KeptTensor:
        """Keep the same losses as this criterion."""
        return cls(loss.module, loss.optimizer, loss.loss_per_sample, loss.loss_reduction)

    __mul__, __truediv__, __add__, __sub__, __rsub__, __neg__ = map(_kept, ARITHMETIC)

    def backward(self) -> None:
        """Both backward passes.

        Raises:
            PrivcalcError: if there is not one loss for each record, or a record's gradient is longer than the norm it
                was clipped to.
        """
        optimizer, losses = self.optimizer, self.loss_per_sample
        if losses.dim() != 1:
            raise PrivcalcError(
                f"criterion: must give one loss for each record, to clip by; its shape is {list(losses.shape)}"
            )
        if float(self.module.max_grad_norm) != float(optimizer.max_grad_norm):
            raise PrivcalcError(
                f"max_grad_norm = {optimizer.max_grad_norm!r}: must stay the module's, {self.module.max_grad_norm!r}, "
                "by which ghost clipping clips"
            )
        for p in optimizer.params:
            p._norm_sample = None  # of an earlier batch
        sharded = isinstance(optimizer, KeptSharded)  # autograd knows of no parameters in parts
        for layer in self.module._module.modules() if sharded else ():
            vars(layer).pop("norm_sample", None)
        look = not sharded and (optimizer.steps < FIRST or optimizer.steps % EVERY == 0)
        which = secrets.randbelow(len(losses)) if look and len(losses) else None
        norm = None if which is None else self._norm(which)
        optimizer.backward, optimizer.made = True, None
        try:
            super().backward()
        finally:
            optimizer.backward = False
        norms = self.module.per_sample_gradient_norms
        if len(norms) != len(losses):
            raise PrivcalcError("criterion: must have one loss, and each layer one row, for each record")
        if norms.dtype not in PRECISE:
            raise PrivcalcError(
                f"criterion: ghost clipping has taken norms in {norms.dtype}, which has too few digits to clip by, as "
                "after a forward pass in mixed precision: take grad_sample_mode='hooks', or single precision"
            )
        if norm is not None and which is not None:
            self._check(norm, float(norms[which]))
        optimizer.made, optimizer.steps = (len(losses), versions(optimizer.params)), optimizer.steps + 1

    def _norm(self, which: int) -> float:
        """Of a record's gradient, by autograd alone."""
        params = self.optimizer.params
        self.module.disable_hooks()
        try:
            found = torch.autograd.grad(self.loss_per_sample[which], params, retain_graph=True, allow_unused=True)
        finally:
            self.module.enable_hooks()
        return length([each for each in found if each is not None])

    def _check(self, norm: float, taken: float) -> None:
        """Norms are of 32 bits, and of what cancels: a twentieth is no error of a layer's."""
        bound = float(self.module.max_grad_norm)
        if min(1.0, bound / (taken + 1e-6)) * norm > 1.05 * bound:
            raise PrivcalcError(
                "criterion: ghost clipping has taken too small a norm of a record's gradient, and does not clip it to "
                "max_grad_norm: Opacus's norms are wrong for a layer, such as EmbeddingBag, a convolution with "
                "padding_mode, a weight that is used elsewhere, too, or a layer with random bits. Take "
                "grad_sample_mode='hooks', which clips what it adds"
            )
