"""Under Opacus: every step sums one Poisson batch, all of it, once, and no other record (``proofs/interop.md``, §3)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping, DPPerLayerOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from privcalc.errors import PrivcalcError

__all__ = ["Watch", "check_loader", "check_optimizer"]

_SUPPORTED = (DPOptimizer, DPPerLayerOptimizer, DPOptimizerFastGradientClipping)
_WHY = {
    "AdaClipDPOptimizer": ", which divides by the size of the batch, a private number",
    "DistributedDPOptimizer": ", whose loader leaves out empty batches",
    "SimpleDistributedPerLayerOptimizer": ", whose loader leaves out empty batches",
    "DistributedDPOptimizerFastGradientClipping": ", whose loader leaves out empty batches",
}
_RULE = "every optimizer step must be one whole batch of the loader that make_private returned, and every batch one step"


class Drawn(UniformWithReplacementSampler):  # type: ignore[misc]
    """A sampler that remembers the batches it has drawn and no step has used.

    Attributes:
        sizes: of those batches, oldest first. Secret.
        ahead: how many batches the workers of the loader draw before they are used.
    """

    sizes: deque[int]
    ahead: int

    def __iter__(self) -> Iterator[list[int]]:
        """Draw; the batches of an iteration before are no longer to be used.

        Raises:
            PrivcalcError: if a batch was left out: which ones are must not be chosen by what is in them.
        """
        self.sizes.clear()
        for indices in super().__iter__():
            if len(self.sizes) > self.ahead:
                raise PrivcalcError(
                    f"data_loader: the batch drawn last was not used, or not all of it: {_RULE}. Step on empty batches too; "
                    "accumulate with BatchMemoryManager only; look at the data through a loader of your own"
                )
            self.sizes.append(len(indices))
            yield indices


class Watch:
    """Checks every step of an optimizer, before its noise is drawn.

    Args:
        optimizer: as ``make_private`` returned it; it is watched from now on.
        data_loader: likewise. What does not fit is refused when a step is taken.

    Attributes:
        data_loader: the loader.
        charge: what pays for a step that was found right, before its noise is drawn.
    """

    def __init__(self, optimizer: DPOptimizer, data_loader: Any) -> None:
        self.data_loader = data_loader
        self.charge: Callable[[], None] | None = None
        self._optimizer = optimizer
        self._prepare, self._draw, self._clear = optimizer.pre_step, optimizer.add_noise, optimizer.zero_grad
        self._summed = 0  # records in the sum so far
        self._bounds: set[float] = set()  # by which they were clipped
        self._norms: list[Any] = []  # ghost clipping: those by which the gradients that were not cleared since are clipped
        sampler: Any = getattr(data_loader, "batch_sampler", None)
        if type(sampler) is UniformWithReplacementSampler:
            sampler.__class__ = Drawn  # the loader cannot be given another one, and memory managers take this one
            sampler.sizes = deque()
            sampler.ahead = data_loader.num_workers * (data_loader.prefetch_factor or 0)
        optimizer.pre_step, optimizer.add_noise, optimizer.zero_grad = self._pre_step, self._add_noise, self._zero_grad
        optimizer.privcalc_watch = self

    @staticmethod
    def of(optimizer: DPOptimizer) -> Watch | None:
        """The one that watches an optimizer, if any does."""
        found: Watch | None = vars(optimizer).get("privcalc_watch")
        return found

    def _zero_grad(self, *args: Any, **kwargs: Any) -> None:
        self._clear(*args, **kwargs)
        self._norms = [getattr(p, "_norm_sample", None) for p in self._optimizer.params]

    def _pre_step(self, *args: Any, **kwargs: Any) -> Any:
        """A physical batch is added to the sum."""
        check_optimizer(self._optimizer)
        if self._optimizer.params:
            self._summed += self._records()
            self._bounds.add(float(self._optimizer.max_grad_norm))
        return self._prepare(*args, **kwargs)

    def _records(self) -> int:
        """How many the gradients that are to be added are of."""
        found: list[Any]
        if isinstance(self._optimizer, DPOptimizerFastGradientClipping):
            # The criterion clears the gradients when it has the norms, and then makes the clipped ones; nothing else does.
            found = [getattr(p, "_norm_sample", None) for p in self._optimizer.params]
            if len(found) != len(self._norms) or any(a is None or a is not b for a, b in zip(found, self._norms, strict=True)):
                raise PrivcalcError(
                    "criterion: must be the one that make_private returned: ghost clipping happens in its backward()"
                )
        else:
            found = self._optimizer.grad_samples
        sizes = {len(each) for each in found}
        if len(sizes) != 1:
            raise PrivcalcError("grad_sample: must have one gradient per record in every parameter")
        return sizes.pop()

    def _add_noise(self) -> None:
        """A sum is complete."""
        check_optimizer(self._optimizer)
        check_loader(self.data_loader)
        sizes: deque[int] = self.data_loader.batch_sampler.sizes
        if not sizes or self._summed != sizes[0]:
            what = (
                "no batch was drawn for this step" if not sizes else "the records of this step are not those of the batch drawn"
            )
            raise PrivcalcError(
                f"optimizer: {what}: {_RULE}. Draw a batch for each step; accumulate with BatchMemoryManager only, and drop, add "
                "or repeat no record"
            )
        bound = float(self._optimizer.max_grad_norm)
        if self._bounds != {bound}:
            raise PrivcalcError(f"max_grad_norm = {bound!r}: must not change within a step, nor at all with ghost clipping")
        sums = [torch.isfinite(p.summed_grad).all() for p in self._optimizer.params]
        if not bool(torch.stack([each.to(sums[0].device) for each in sums]).all()):
            raise PrivcalcError(
                "gradients: must be finite; a NaN or infinity passes through clipping and noise, and shows that its record took "
                "part. Replace what is not finite in the records, or stop: the model may have diverged"
            )
        if self.charge is not None:
            self.charge()
        sizes.popleft()
        self._summed = 0
        if not isinstance(self._optimizer, DPOptimizerFastGradientClipping):  # there the module clips, by a norm of its own
            self._bounds.clear()
        self._draw()


def check_optimizer(optimizer: DPOptimizer) -> None:
    """Raise PrivcalcError unless its steps are Gaussians of known noise."""
    name = type(optimizer).__name__
    if type(optimizer) not in _SUPPORTED:
        allowed = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise PrivcalcError(f"optimizer = {name}{_WHY.get(name, '')}: must be one of {allowed}")
    if any(getattr(p, "grad_sample", None) is not None for p in optimizer.params) and optimizer.accumulated_iterations != 1:
        raise PrivcalcError(
            f"accumulated_iterations = {optimizer.accumulated_iterations}: must be 1, because a record may be in several of the "
            "accumulated Poisson samples; for large batches use BatchMemoryManager"
        )
    if hasattr(optimizer, "_adjusted_noise_multiplier"):
        raise PrivcalcError("optimizer: must not clip adaptively: the noise it draws is not the noise multiplier's")
    if isinstance(optimizer, DPPerLayerOptimizer):
        norm = math.hypot(*(float(each) for each in optimizer.max_grad_norms))
        if not norm <= float(optimizer.max_grad_norm) * (1 + 1e-6):  # Opacus has it in single precision
            raise PrivcalcError(f"max_grad_norm = {optimizer.max_grad_norm!r}: must be the norm of the layers' norms, {norm!r}")


def check_loader(data_loader: Any) -> None:
    """Raise PrivcalcError unless it draws Poisson samples."""
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    if not isinstance(data_loader, DPDataLoader) or type(sampler) not in (UniformWithReplacementSampler, Drawn):
        found = f"{type(data_loader).__name__} with {type(sampler).__name__}"
        raise PrivcalcError(f"data_loader = {found}: must draw Poisson samples, as a DPDataLoader with its own sampler does")
    if getattr(data_loader.collate_fn, "rand_on_empty", False):
        raise PrivcalcError("rand_on_empty = True: must be False, because a made-up record takes the place of a missing one")
