"""Each record's gradient of a module's loss, by itself: nothing of its batch can be in it.

See ``proofs/ledger.md``, §5.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType, MethodType

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _NormBase

from privcalc import errors
from privcalc.errors import PrivcalcError


class RecordGradients:
    """A module's gradients, a row for each record, as a loader takes them itself; and the way back, for any optimizer.

    A copy of the module is given one record at a time, in a batch of one (by ``torch.func.vmap`` all at once, where it
    can); what it remembers, in buffers, parameters or attributes, is forgotten with the copy, of which one is in memory
    at a time; as is what a loss remembers that is a module or a method of one. So no record is in the row of another,
    if no loss, hook, closure, class or other variable that is not copied with the module keeps any of it. Refused are
    layers that normalise by the batch, buffers or parameters of the module itself that were written to all the same
    (``copy.deepcopy`` copies no lambda), and a ``forward`` in place of the class's that is not copied.
    Frozen parameters have no gradient; weights that are used twice have one, of both uses.

    Args:
        module: with parameters that require a gradient, in one precision and on one device.
        loss: of the module's output for one record, and what else the record has, each with a first dimension of 1,
            such as ``torch.nn.functional.cross_entropy``.
        inputs: how many of a record's tensors the module takes; the first ones.

    Attributes:
        like: zeros, of the shape, precision and device of a row.

    Raises:
        PrivcalcError: if the module has nothing to train, a layer that normalises by the batch, or a ``forward`` that
            is not copied.

    Example:
        >>> import privcalc as pc, torch
        >>> from privcalc.interop.torch import loader
        >>> x = torch.eye(2).repeat(400, 1)
        >>> data = torch.utils.data.TensorDataset(x, x.argmax(dim=1))
        >>> step = pc.PoissonSampled(pc.Gaussian(1.0), rate=0.1)
        >>> model = torch.nn.Linear(2, 2)
        >>> gradients = RecordGradients(model, torch.nn.functional.cross_entropy)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> with pc.Ledger(None, plan=step * 50, unit="one training example") as ledger:
        ...     for batch in loader(ledger, data, step, like=gradients, clip_norm=1.0, start="random"):
        ...         gradients.put(batch.release() / step.expected_size(800))
        ...         optimizer.step()
        >>> bool((model(x).argmax(dim=1) == x.argmax(dim=1)).all())
        True
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Tensor], *, inputs: int = 1) -> None:
        if not isinstance(module, torch.nn.Module):
            raise PrivcalcError(f"module = {module!r}: must be a torch.nn.Module")
        self._module, self._loss, self._inputs = module, loss, errors.count("inputs", inputs, least=1)
        rows = [parameter for _, parameter in self._trained()]
        if not rows or len({(parameter.dtype, parameter.device) for parameter in rows}) != 1:
            raise PrivcalcError(
                "module: must have parameters that require a gradient, in one precision and on one device"
            )
        self._check_layers()
        self._written: list[str] = []  # what was ever, and may hold records
        self._of_one()  # refused before anything is charged
        self.like = torch.zeros(
            sum(parameter.numel() for parameter in rows), dtype=rows[0].dtype, device=rows[0].device
        )

    def __call__(self, *record: Tensor) -> Tensor:
        """The gradients of some records at the module's weights as they are.

        Args:
            record: what records have, each tensor with a row for each record.

        Returns:
            Shape (records, like.numel()).

        Raises:
            PrivcalcError: if these do not fit together, the module now has other parameters or layers, or something
                that is not copied wrote to its buffers or parameters, or the loss's; from then on always.
        """
        if not record or any(
            not isinstance(each, Tensor) or each.ndim == 0 or len(each) != len(record[0]) for each in record
        ):
            raise PrivcalcError("record: must be tensors with a row for each record")
        self._check_layers()
        weights = {name: parameter.detach().clone() for name, parameter in self._trained()}
        self._check_size(sum(weight.numel() for weight in weights.values()))
        if len(record[0]) == 0:
            return self.like.new_zeros(0, self.like.numel())
        alone = tuple(each[:, None].to(self.like.device) for each in record)  # each record in a batch of one
        before = self._tensors()
        try:
            return self._rows(weights, alone)
        finally:
            self._check_unwritten(before)

    def _rows(self, weights: dict[str, Tensor], alone: tuple[Tensor, ...]) -> Tensor:
        """All at once, where torch can."""
        try:
            found = vmap(grad(self._of_one()), in_dims=(None, 0), randomness="different")(weights, alone)
        except RuntimeError:  # what torch cannot ask of many at once: a GRU, branches, buffers that are written to
            return torch.stack([self._plain(weights, one) for one in zip(*alone, strict=True)])
        return torch.cat([found[name].flatten(1) for name in weights], dim=1)

    def put(self, mean: Tensor) -> None:
        """Write the release, over a batch's expected size, into ``grad`` of each parameter, for any optimizer.

        Args:
            mean: of the shape of ``like``.

        Raises:
            PrivcalcError: if it has another one.
        """
        if mean.shape != self.like.shape:
            raise PrivcalcError(f"mean: must have the shape {tuple(self.like.shape)}, not {tuple(mean.shape)}")
        self._check_size(sum(parameter.numel() for _, parameter in self._trained()))
        start = 0
        for _, parameter in self._trained():
            stop = start + parameter.numel()
            parameter.grad = mean[start:stop].view_as(parameter).to(parameter, copy=True)
            start = stop

    def _of_one(self) -> Callable[[dict[str, Tensor], tuple[Tensor, ...]], Tensor]:
        """The loss of one record, by a fresh copy of the module.

        Parameters, too, frozen ones or not, may be written to.
        """
        copies: dict[int, object] = {}  # one for both: a method of the module becomes one of its copy
        module = copy.deepcopy(self._module, copies)
        loss = self._loss if _owner(self._loss) is None else copy.deepcopy(self._loss, copies)
        for (name, layer), other in zip(self._module.named_modules(), module.modules(), strict=False):
            forward = vars(layer).get("forward")
            if isinstance(forward, FunctionType) and forward is vars(other).get("forward"):
                raise PrivcalcError(
                    f"module: {name or type(layer).__name__} has a function as forward, which is not copied with it, "
                    "so that weights are not those of the copy; write it as a method of a class"
                )

        def of_one(weights: dict[str, Tensor], alone: tuple[Tensor, ...]) -> Tensor:
            output = functional_call(module, weights, alone[: self._inputs])
            return loss(output, *alone[self._inputs :]).sum()

        return of_one

    def _plain(self, weights: dict[str, Tensor], alone: tuple[Tensor, ...]) -> Tensor:
        """One row, by autograd."""
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        with torch.enable_grad():
            loss = self._of_one()(leaves, alone)
        found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in found])

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Once each, also those that are used in two layers."""
        return [(name, parameter) for name, parameter in self._module.named_parameters() if parameter.requires_grad]

    def _tensors(self) -> dict[str, tuple[Tensor, int]]:
        """Buffers and parameters of the originals, and how often torch wrote to each."""
        owners = {"module": self._module, "loss": _owner(self._loss)}
        return {
            f"{prefix}.{name}": (each, -1 if each.is_inference() else each._version)
            for prefix, owner in owners.items()
            if owner is not None
            for name, each in (*owner.named_parameters(), *owner.named_buffers())
        }

    def _check_unwritten(self, before: dict[str, tuple[Tensor, int]]) -> None:
        """Refuse what the copies' records got into: it would be in later rows."""
        now = self._tensors()
        self._written += [
            name
            for name in sorted({*before, *now})
            if name not in now
            or name not in before
            or now[name][0] is not before[name][0]
            or now[name][1] != before[name][1]
        ]
        if self._written:
            raise PrivcalcError(
                f"module: {self._written[0]} was written to by something that is not copied with the model, such as a "
                "lambda or a closure, so that a record may be in the rows of others; write it as a method of a module, "
                "and begin with a fresh model"
            )

    def _check_size(self, size: int) -> None:
        if size != self.like.numel():
            raise PrivcalcError(
                f"module: must have the {self.like.numel()} trainable numbers it began with, not {size}"
            )

    def _check_layers(self) -> None:
        """Refuse batch norms: one record gives nothing to normalise by, and running means are made of records."""
        for name, layer in self._module.named_modules():
            if isinstance(layer, _NormBase) and (layer.training or not layer.track_running_stats) and not _alone(layer):
                raise PrivcalcError(
                    f"module: {name or type(layer).__name__} normalises by the batch, so that each record is in the "
                    "gradients of all others; take GroupNorm or LayerNorm, or eval() for running means that are public"
                )


def _owner(loss: object) -> torch.nn.Module | None:
    """The module that it is, or is a method of."""
    found = loss.__self__ if isinstance(loss, MethodType) else loss
    return found if isinstance(found, torch.nn.Module) else None


def _alone(layer: _NormBase) -> bool:
    """Whether it normalises each record by itself, and remembers nothing."""
    return not layer.track_running_stats and type(layer).__name__.startswith(("InstanceNorm", "LazyInstanceNorm"))
