"""Under Opacus: a loss is the mean of one loss for each record, or their sum, as was said (``proofs/interop.md``, §3).

Seen in autograd's graph, from the loss to the module's outputs, when torch is about to go back through it. Opacus multiplies
gradients by the size of a batch where it was told of a mean: of another loss they follow that size. A loss that is no sum over
records has one record in the gradients of others.
"""

from __future__ import annotations

import contextlib
import functools
import math
import secrets
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from privcalc.interop.opacus.doubts import Doubts

__all__ = ["Losses", "watch_backward"]

REDUCTION = (
    "loss_reduction = {said!r}: the loss is no {said} over the records of a batch: its gradients follow how many there are, "
    "which one record changes for all others, and ε does not hold of that. Give the loss that is announced (a mean divides by "
    "the number of records that came, a sum by nothing), or call make_private with loss_reduction={other!r}"
)

WEIGHED = (
    "criterion: a mean by weight=, or with ignore_index, divides by what all records of the batch have: one record changes the "
    "gradients of all others, and ε does not hold of that. Take one loss for each record (reduction='none'), then their mean"
)

PAIRS = (
    "criterion: the gradient of one record follows from the outputs of others, or it meets their labels (as outputs of shape "
    "(n, 1) do with labels of shape (n,)): ε holds only if the loss is the mean, or the sum, of one loss for each record. Leave "
    "out roots and powers of the mean, and what compares records"
)

AUTOGRAD: Any = torch.autograd
OUTPUTS = "privcalc_outputs"
CLOSE = 1e-5
"""Relative: factors are in single precision."""
APART = 1e-3
"""Relative, of second derivatives, which are 0 between records."""
SIZES = 3
"""As many sizes of batches must agree, at least."""
NODES = 1000
"""Loss functions are shorter."""
KEEPS = {
    *("Neg", "Abs", "Pow", "Exp", "Log", "LogSoftmax", "Softmax", "LogSigmoidForward", "Softplus", "Sigmoid", "Tanh", "Relu"),
    *("Clamp", "ClampMin", "Add", "Sub", "Rsub", "View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Expand", "Clone"),
    *("Transpose", "Permute", "T", "ToCopy", "Alias", "Gather", "Select", "Slice"),
}
"""What makes of a record's outputs something, without a number of the batch."""
LOSSES = {
    *("NllLoss", "NllLoss2D", "MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
    *("SoftMarginLoss", "MultiMarginLoss"),
}


class Losses:
    """A hook of a module's outputs: what becomes of them in losses, piece by piece. Copies have a blank one.

    What it remembers of sizes is secret.
    """

    def __init__(self) -> None:
        self._new: list[tuple[int, int, float, float | None]] = []  # since gradients were cleared
        self._found: dict[int, list[tuple[int, float]]] = {}  # sizes and factors, of each way through a loss
        self._share: float | None = None
        self._mixing = self._mixed = self._pieces = 0

    def __call__(self, _: Any, __: Any, output: Any) -> None:
        """The outputs of a batch."""
        if torch.compiler.is_compiling():
            return
        for value in pytree.tree_leaves(output):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None and value.dim() and len(value):
                node: Any = value.grad_fn
                node.metadata[OUTPUTS] = weakref.ref(self), len(value), value.output_nr

    def note(self, way: int, size: int, factor: float, share: float | None) -> None:
        """By what a loss multiplies outputs of so many rows; and by how much each counts, on average, in a weighted mean."""
        self._new.append((way, size, factor, share))

    def look(self, mixes: Callable[[], int]) -> None:
        """At the first ten pieces, and each tenth: how many rows the outputs have, if one is in the gradients of others."""
        if self._mixed < 2 and (self._pieces < 10 or self._pieces % 10 == 0):
            self._mixing = mixes()
        self._pieces += 1

    def clear(self) -> None:
        """Gradients are cleared."""
        self._new.clear()
        self._mixing = 0

    def check(self, reduction: str, records: int, doubts: Doubts) -> None:
        """Gradients of so many are about to be added: tell if losses were of another kind, in batches of several sizes."""
        for way, size, factor, share in self._new:
            found = self._found.setdefault(way, [])
            found.append((size, factor))
            del found[2 * SIZES : -2 * SIZES]
            if share is not None and not _same([share, self._share or share]):
                doubts.tell(WEIGHED)
            self._share = self._share or share
        self._mixed += self._mixing == records > 1
        self.clear()
        if self._mixed > 1:
            doubts.tell(PAIRS)
        for found in self._found.values():
            if len({size for size, _ in found}) < SIZES:
                continue
            if _same([factor if reduction == "mean" else factor * size for size, factor in found]):
                doubts.tell(REDUCTION.format(said=reduction, other="sum" if reduction == "mean" else "mean"))
            if _same([factor * size**2 for size, factor in found]):
                doubts.tell(PAIRS)

    def __deepcopy__(self, _: Any) -> Losses:
        return Losses()

    def __reduce__(self) -> tuple[type[Losses], tuple[()]]:
        return Losses, ()


def watch_backward() -> None:
    """Have losses looked at when torch goes back from them, where they are of a watched module."""
    backward = AUTOGRAD.backward
    if hasattr(backward, "privcalc_watches"):
        return

    @functools.wraps(backward)
    def watched(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(tensors, torch.Tensor) and tensors.grad_fn is not None:
            first = grad_tensors[0] if isinstance(grad_tensors, (list, tuple)) and len(grad_tensors) else grad_tensors
            with contextlib.suppress(Exception):  # of graphs of any code; what is seen in them is warned of, no more
                _look(tensors, first)
        backward(tensors, grad_tensors, *args, **kwargs)

    vars(watched)["privcalc_watches"] = True
    AUTOGRAD.backward = watched


def _look(loss: torch.Tensor, gradient: Any) -> None:
    outputs = _outputs(loss.grad_fn)
    owners = {owner() for owner, *_ in outputs.values()} - {None}
    if len(owners) != 1:
        return
    own: Any = owners.pop()
    first = torch.ones(()) if gradient is None else gradient.detach()
    if isinstance(first, torch.Tensor) and first.numel() and float(first.min()) == float(first.max()) > 0:
        for way, (size, factor, share) in enumerate(_ways(loss.grad_fn, float(first.max()))):
            own.note(way, size, factor, share)
    if not loss.dim():
        own.look(lambda: _mixes(loss, outputs))


def _outputs(loss: Any) -> dict[Any, Any]:
    """The functions that made the outputs which a loss is of."""
    found: dict[Any, Any] = {}
    seen: set[Any] = set()
    left = [loss]
    while left and len(seen) < NODES:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if (outputs := _of_module(node)) is not None:
            found[node] = outputs
        elif _is_hook(node):  # which must not run twice
            return {}
        else:
            left += [each for each, _ in node.next_functions if each is not None]
    return found


def _nested(outputs: dict[Any, Any]) -> bool:
    """Whether an output is made of another, through layers whose hooks must not run twice; or that takes too long to see."""
    seen: set[Any] = set()
    left = [each for node in outputs for each, _ in node.next_functions]
    while left:
        node = left.pop()
        if node in outputs or len(seen) > NODES:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
    return False


def _of_module(node: Any) -> Any:
    """Whose output a function makes, how many rows it has, and its number; also behind hooks of a layer that is the module."""
    if _is_hook(node):
        for number, (each, _) in enumerate(node.next_functions):
            if each is not None and (outputs := each.metadata.get(OUTPUTS)) is not None:
                return (*outputs[:2], number)
    return node.metadata.get(OUTPUTS)


def _is_hook(node: Any) -> bool:
    """Whether it runs a layer's hooks, as Opacus's are."""
    return bool(node.name() == "BackwardHookFunctionBackward")


def _mixes(loss: torch.Tensor, outputs: dict[Any, Any]) -> int:
    """How many rows the outputs have, if a second derivative by a row at random and another is not 0; else 0."""
    (size, *others) = {size for _, size, _ in outputs.values()}
    if others or size < 2:
        return 0
    if len(outputs) > 1 and _nested(outputs):
        return 0
    which = secrets.randbelow(size)
    edges = [torch.autograd.graph.GradientEdge(node, number) for node, (_, _, number) in outputs.items()]
    try:
        slopes = torch.autograd.grad(loss, edges, create_graph=True, allow_unused=True)
        rows = [each[which].flatten() for each in slopes if each is not None and each.requires_grad]
        one = sum((row * torch.arange(1, row.numel() + 1, device=row.device).sin()).sum() for row in rows)
        if not isinstance(one, torch.Tensor):
            return 0
        bends = [each for each in torch.autograd.grad(one, edges, retain_graph=True, allow_unused=True) if each is not None]
        all_ = math.hypot(*(float(each.double().norm()) for each in bends))
        own = math.hypot(*(float(each[which].double().norm()) for each in bends))
        scale = math.hypot(*(float(each.detach().double().norm()) for each in slopes if each is not None))
    except Exception:  # of any code: a function that has no second derivative
        return 0
    apart = math.sqrt(max(all_**2 - own**2, 0.0))
    return size if apart > APART * max(own, scale / size) else 0


def _ways(loss: Any, factor: float) -> Iterator[tuple[int, float, float | None]]:
    """From a loss to outputs, through what is known; with the factors on each."""
    left: list[tuple[Any, float, float | None]] = [(loss, factor, None)]
    for _ in range(NODES):
        if not left:
            return
        node, factor, share = left.pop()
        if (outputs := _of_module(node)) is not None:
            yield outputs[1], factor, share
            continue
        step, own = _factor(node)
        if step is not None:
            left += [(each, factor * step, share if own is None else own) for each, _ in node.next_functions if each is not None]


def _factor(node: Any) -> tuple[float | None, float | None]:
    """By what a function multiplies, None if that is not known; and by how much each counts, in a weighted mean."""
    name = node.name().rpartition("Backward")[0]
    if name in KEEPS or name == "Sum" or (name in LOSSES and node._saved_reduction != 1):
        return 1.0, None
    if name == "Mean":
        sizes = node._saved_self_sym_sizes
        dims = (getattr(node, "_saved_dim", None) or range(len(sizes))) if sizes else ()
        reduced = math.prod(sizes[each if each < len(sizes) else each - 2**64] for each in dims)  # kept without sign
        return 1 / max(reduced, 1), None
    if name in ("NllLoss", "NllLoss2D"):
        total, many = float(node._saved_total_weight), max(node._saved_target.numel(), 1)
        return (1 / total, total / many) if total > 0 else (None, None)
    if name in LOSSES:
        return 1 / max(node._saved_self.numel(), 1), None
    if name in ("Mul", "Div") and sum(each is not None for each, _ in node.next_functions) == 1:
        other = getattr(node, "_saved_other", None)
        other = getattr(node, "_saved_self", None) if other is None and name == "Mul" else other
        if isinstance(other, (int, float)) or (isinstance(other, torch.Tensor) and other.numel() == 1):
            value = abs(float(other))
            if 0 < value < math.inf:
                return (value if name == "Mul" else 1 / value), None
    return None, None


def _same(values: list[float]) -> bool:
    return max(values) <= min(values) * (1 + CLOSE)
