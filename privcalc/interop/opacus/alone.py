"""Under Opacus: a record alone goes through a module as it does in its batch (``proofs/interop.md``, §3).

What mixes records, or changes their order, gets one record into the gradients of others, and no clipping bounds that.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

__all__ = ["MIXED", "differs_alone"]

MIXED = (
    "module: a record alone gives its layers other inputs, or another output, than it does within its batch: ε holds only if its "
    "gradients come from that record alone, and are in one and the same row in all layers. Leave out what centres, ranks, "
    "sorts or compares the records of a batch"
)

CLOSE = 0.05
"""Relative: sums are rounded otherwise in batches of another size, and features may have 8 bits."""


def differs_alone(module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether a record at random is otherwise alone than in its batch, both without dropout; False where that cannot be told.

    It cannot if the module draws random bits, or takes nothing that has one row for each record.

    Args:
        module: as it is trained; it stays as it is, but for what its forward pass writes to in place.
        args: what it is about to be called with.
        kwargs: likewise.
    """
    leaves = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and each.dim()]
    packed = any(isinstance(each, PackedSequence) for each in (*args, *kwargs.values()))
    if packed or not leaves or len(leaves[0]) < 2:
        return False
    size = len(leaves[0])
    which = secrets.randbelow(size)

    def alone(value: Any) -> Any:
        rows = isinstance(value, torch.Tensor) and value.dim() and len(value) == size
        return value[which : which + 1] if rows else value

    devices = {each.get_device() for each in leaves if each.is_cuda}
    with torch.no_grad(), torch.random.fork_rng(devices=devices), _at_rest(module):
        before = _bits(devices)
        try:
            together = _seen(module, args, kwargs)
            single = _seen(module, *pytree.tree_map(alone, (args, kwargs)))
            drawn = any(not torch.equal(a, b) for a, b in zip(before, _bits(devices), strict=True))
            pairs = [pair for name in together for pair in zip(together[name], single.get(name, []), strict=False)]
            return not drawn and any(not _close(a, which, b[0]) for a, b in pairs if (len(a), len(b)) == (size, 1))
        except Exception:  # of any code: it wants as many as there are, or training
            return False


def _seen(module: torch.nn.Module, args: Any, kwargs: Any) -> dict[str, list[torch.Tensor]]:
    """What goes into each trained layer, and what comes out of all."""
    found: dict[str, list[torch.Tensor]] = {}

    def note(name: str, value: Any) -> None:
        tensors = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor) and each.dim()]
        found.setdefault(name, []).extend(tensors)

    layers = [each for each in module.named_modules() if any(p.requires_grad for p in each[1].parameters(recurse=False))]
    hooks = [each.register_forward_pre_hook(lambda _, inputs, name=name: note(name, inputs)) for name, each in layers]
    try:
        note(" ", module.forward(*args, **kwargs))
    finally:
        for hook in hooks:
            hook.remove()
    return found


@contextlib.contextmanager
def _at_rest(module: torch.nn.Module) -> Iterator[None]:
    """Without dropout; attributes are what they were afterwards."""
    kept = [(each, each.training, dict(vars(each))) for each in module.modules()]
    for each, _, _ in kept:
        each.training = False
    try:
        yield
    finally:
        for each, training, before in kept:
            vars(each).clear()
            vars(each).update(before)
            each.training = training  # which compiled ones keep elsewhere


def _bits(devices: set[int]) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, sorted(devices))]


def _close(batch: torch.Tensor, which: int, alone: torch.Tensor) -> bool:
    row = batch[which]
    if row.shape != alone.shape:
        return True  # of no record
    gap, own, all_ = (float(torch.linalg.vector_norm(each.double())) for each in (row.double() - alone.double(), row, batch))
    return not gap > CLOSE * max(own, all_ / len(batch) ** 0.5)  # NaN is refused elsewhere
