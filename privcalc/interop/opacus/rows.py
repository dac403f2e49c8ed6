"""Under Opacus: row i of every layer's gradients is of record i (``proofs/interop.md``, §3).

Opacus adds what the uses of a layer have made row by row, and clips rows of all layers together, whatever they are of.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from opacus.grad_sample import grad_sample_module
from opacus.layers.dp_rnn import DPRNNBase, RNNLinear
from torch.nn.utils.rnn import PackedSequence

from privcalc.errors import PrivcalcError

__all__ = ["AGAIN", "check_rows", "is_pending", "watch_order", "watch_rows"]

AGAIN = (
    "module: its forward pass ran once more before backward(): Opacus takes row i of both for one record, and clips them as one. "
    "ε holds only if they are, as are two views of a batch; rows of other records, or of public ones, get to another "
    "record where one is missing"
)

_PART = "privcalc_part"


def watch_rows() -> None:
    """Have it noted which parameters have gradients of some of the rows only."""
    create = grad_sample_module.create_or_accumulate_grad_sample
    if hasattr(create, "privcalc_watches"):
        return

    @functools.wraps(create)
    def watched(*, param: torch.Tensor, grad_sample: torch.Tensor, max_batch_len: int) -> None:
        part = hasattr(param, "_current_grad_sample") and vars(param).get(_PART, False)
        vars(param)[_PART] = part or len(grad_sample) != max_batch_len
        create(param=param, grad_sample=grad_sample, max_batch_len=max_batch_len)

    vars(watched)["privcalc_watches"] = True
    grad_sample_module.create_or_accumulate_grad_sample = watched


def watch_order(module: torch.nn.Module) -> None:
    """Have recurrent layers refuse what they would sort."""
    for each in module.modules():
        if isinstance(each, DPRNNBase) and _check_order not in each._forward_pre_hooks.values():
            each.register_forward_pre_hook(_check_order)


def check_rows(module: torch.nn.Module) -> None:
    """Raise PrivcalcError if a layer was used for a part of the records: its rows are not those of the others.

    Sequences in a packed batch that end sooner are the last rows, and leave the others where they are.
    """
    packed = {id(p) for each in module.modules() if isinstance(each, RNNLinear) for p in each.parameters()}
    for path, each in module.named_modules():
        if any(vars(p).get(_PART, False) and id(p) not in packed for p in each._parameters.values() if p is not None):
            raise PrivcalcError(
                f"{path or 'module'}: was used more than once before backward(), for batches of different sizes: Opacus adds "
                "their gradients row by row, and takes row i of all for one record. Use each layer for the whole batch (a mask, "
                "not x[mask]), and for no batch of public or generated records beside it"
            )


def is_pending(module: torch.nn.Module) -> bool:
    """Whether Opacus has seen a forward pass of training whose gradients are not made yet."""
    own = [getattr(p, "orig_weight", p) for p in module.parameters()]  # torch's expanded weights have no other attributes
    return any(p.requires_grad and getattr(p, "_forward_counter", 0) > 0 for p in own)


def _check_order(module: Any, args: tuple[Any, ...]) -> None:
    """Whether it was sorted already does not matter: that would tell of lengths."""
    if module.training and torch.is_grad_enabled() and isinstance(args[0], PackedSequence) and args[0].sorted_indices is not None:
        raise PrivcalcError(
            "enforce_sorted = False: must be True, with records that the collate function has sorted by length: else this layer "
            "sorts them, and Opacus takes its rows and those of other layers for the same records, which they are not"
        )
