"""Opacus's optimizers, whose steps are whole batches, paid for before their noise (``proofs/interop.md``, §3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import torch
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    DPPerLayerOptimizer,
    FSDPOptimizerFastGradientClipping,
)
from torch.distributed.tensor import distribute_tensor

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.checks import PRECISE, check_clipping, check_noise, length
from privcalc.interop.opacus.sampler import RULE, Batches, Waiting
from privcalc.numerics.floats import Floats
from privcalc.tripwire import check_sum

Release = Callable[[Floats, float, Waiting], Floats]
"""Adds a ledger's noise to a sum, of contributions of a norm, over a batch."""
NOISY, ADDED = "privcalc_noisy", "privcalc_added"
ADAPTIVE = (
    *("target_unclipped_quantile", "clipbound_learning_rate", "max_clipbound"),
    *("min_clipbound", "unclipped_num_std"),
)
"""What only an optimizer that clips adaptively is made with."""
TINY = 1e-6
"""Opacus's: no norm is 0."""


class Kept(DPOptimizer):  # type: ignore[misc]
    """An optimizer each of whose steps is one whole batch, and is paid for.

    Attributes:
        batches: where batches wait for their steps.
        pay: what charges for a step whose noise Opacus draws.
        release: what charges for one and draws its noise, where a ledger does.
    """

    batches: Batches
    pay: Callable[[], None]
    release: Release | None

    def __init__(self, of: DPOptimizer, max_grad_norm: Any, expected_batch_size: Any, **more: Any) -> None:
        super().__init__(
            of.original_optimizer,
            noise_multiplier=of.noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=expected_batch_size,
            loss_reduction=of.loss_reduction,
            generator=of.generator,
            secure_mode=of.secure_mode,
            **more,
        )
        self.attach_step_hook(of.step_hook)
        self._fixed = expected_batch_size, of.loss_reduction
        self._summed: Any = None  # records in the sum so far
        self._clip_norm = 0.0  # of all of them
        self.original_optimizer.register_step_pre_hook(check_noisy)

    def pre_step(self, closure: Any = None) -> Any:
        """Add a physical batch to the sum, and draw noise if it is complete."""
        params = self.params
        check_clipping(self, params)
        check_kinds(params)
        if (self.expected_batch_size, self.loss_reduction) != self._fixed:
            raise PrivcalcError(
                f"expected_batch_size = {self.expected_batch_size!r}, loss_reduction = {self.loss_reduction!r}: must "
                f"stay {self._fixed}; the size of a batch is private"
            )
        if self._summed is None:
            if any(p.summed_grad is not None for p in params):
                raise PrivcalcError("optimizer: zero_grad() must be called after each step, before the next one")
            self._clip_norm = float(self.max_grad_norm)
            self._summed = 0
        if float(self.max_grad_norm) != self._clip_norm:
            raise PrivcalcError(f"max_grad_norm = {self.max_grad_norm!r}: must stay {self._clip_norm!r} within a step")
        return super().pre_step(closure)

    def clip_and_accumulate(self) -> None:
        """Add a physical batch's gradients to the sum, clipped, in the precision of the parameters.

        Raises:
            PrivcalcError: if a parameter has gradients of other records than the first one, or they were added before.
        """
        params = self.params
        found = [self._get_flat_grad_sample(p) for p in params]
        if len({len(each) for each in found}) != 1 or any(ADDED in vars(each) for each in found):
            raise PrivcalcError(
                "grad_sample: must have one gradient per record in every parameter, each added once; where only some "
                "layers have records in second place, as DPMultiheadAttention has by default, Opacus takes others for "
                "records there: give it batch_first=True"
            )
        self._summed += len(found[0])  # first: what is interrupted must not be added again
        rows = [each.reshape(len(each), p.numel()) for p, each in zip(params, found, strict=True)]
        norms = [torch.linalg.vector_norm(each, dim=1, dtype=p.dtype) for p, each in zip(params, rows, strict=True)]
        for p, each, row, factor in zip(params, found, rows, self._factors(norms), strict=True):
            total = (factor.to(row.device, p.dtype) @ row.to(p.dtype)).view_as(p)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad + total
            vars(each)[ADDED] = True

    def _factors(self, norms: list[torch.Tensor]) -> list[torch.Tensor]:
        """What clips the rows of each parameter."""
        together = torch.linalg.vector_norm(torch.stack([each.to(norms[0].device) for each in norms]), dim=0)
        return [(self.max_grad_norm / (together + TINY)).clamp(max=1.0)] * len(norms)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients: to None, whatever is asked for, so that no later ones are added to what has noise."""
        super().zero_grad(set_to_none=True)

    def scale_grad(self) -> None:
        """Divide by the expected size; what a hook of the step writes to the gradients after that has no noise."""
        if self.release is None:
            super().scale_grad()
        for p in self.params:
            vars(p.grad)[NOISY] = p.grad._version

    def add_noise(self) -> None:
        """The sum is complete: it must be over the batch that waits longest; pay for the step, then draw.

        Raises:
            PrivcalcError: before noise is drawn, if that is not so, or the sum is not finite or too long.
        """
        waiting = self.batches.waiting
        if not waiting or self._summed != waiting[0].size:
            raise PrivcalcError(
                f"optimizer: no batch was drawn for this step, or the records of this step are others: {RULE}. "
                "Accumulate with BatchMemoryManager only, and drop, add or repeat no record"
            )
        if self.release is None:
            self._draw()
        else:
            params = self.params
            sums = torch.cat([self._whole(p.summed_grad).reshape(-1) for p in params])
            noisy = self._released(sums.to("cpu", torch.float64).numpy(), waiting[0])
            if self.loss_reduction == "mean":
                noisy /= self.expected_batch_size
            parts = torch.from_numpy(noisy).to(sums).split_with_sizes([p.numel() for p in params])
            for p, part in zip(params, parts, strict=True):
                p.grad = self._part(part.view(p.shape), p)
        waiting.popleft()  # now: if the draw fails, the sum may be there still, and must not be gone on with
        self._summed = None

    def _whole(self, total: Any) -> torch.Tensor:
        """All of a parameter's sum."""
        return cast(torch.Tensor, total)

    def _part(self, noisy: torch.Tensor, p: Any) -> torch.Tensor:
        """What this process has of a parameter's noisy sum."""
        return noisy.to(p)

    def _released(self, total: Floats, waiting: Waiting) -> Floats:
        """The sum with its noise."""
        assert self.release is not None
        return self.release(total, self._clip_norm, waiting)

    def _draw(self) -> None:
        """Leave the noise to Opacus, which draws it."""
        total = length([p.summed_grad for p in self.params])
        if not total < float("inf"):
            raise PrivcalcError(
                "gradients: must be finite; a NaN or infinity passes through clipping and noise, and shows that its "
                "record took part. Replace what is not finite in the records, or stop: the model may have diverged"
            )
        check_sum("gradients", total, clip_norm=self._clip_norm, records=self._summed or 0)
        self.pay()
        super().add_noise()
        check_noise(self)


class KeptPerLayer(Kept, DPPerLayerOptimizer):  # type: ignore[misc]
    """With a clip norm for each parameter."""

    def _factors(self, norms: list[torch.Tensor]) -> list[torch.Tensor]:
        bounds = zip(self.max_grad_norms, norms, strict=True)
        return [(bound / (each + TINY)).clamp(max=1.0) for bound, each in bounds]


class KeptAdaptive(Kept, AdaClipDPOptimizer):  # type: ignore[misc]
    """Whose clip norm follows the share of gradients that were not clipped (``proofs/interop.md``, §3).

    How many these are, less half of the records, is a coordinate of the sum more, and the share is over the expected
    batch size, where Opacus has another release of the whole number, over the true one.
    """

    _unclipped = 0.0  # records that were not clipped, less half of all

    def _factors(self, norms: list[torch.Tensor]) -> list[torch.Tensor]:
        found = super()._factors(norms)
        self._unclipped += float((found[0] >= 1).sum()) - len(found[0]) / 2
        return found

    def _released(self, total: Floats, waiting: Waiting) -> Floats:
        assert self.release is not None
        share = float(self.noise_multiplier) / (2 * self.unclipped_num_std)
        if not share < 1:
            raise PrivcalcError(
                f"noise_multiplier = {self.noise_multiplier!r}: must be below 2 · unclipped_num_std = "
                f"{2 * self.unclipped_num_std!r}, or the count alone has less noise than both together"
            )
        weight = 2 * self._clip_norm * share / math.sqrt(1 - share * share)
        bound = math.hypot(self._clip_norm, weight / 2) * (1 + 2.0**-50)
        noisy = self.release(np.append(total, weight * self._unclipped), bound, waiting)
        found = float(noisy[-1]) / weight / float(self.expected_batch_size or 1) + 0.5
        self._unclipped, self.sample_size, self.unclipped_num = 0.0, 1, torch.tensor(found)
        return noisy[:-1]


class KeptGhost(Kept, DPOptimizerFastGradientClipping):  # type: ignore[misc]
    """With gradients that the criterion has clipped.

    Attributes:
        made: of so many records, which gradients, and how often each was written to; None if there are none.
        steps: how many backward passes there were.
        backward: whether the criterion is within its two.
    """

    made: tuple[int, list[tuple[Any, int]]] | None = None
    steps = 0
    backward = False

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear gradients; the criterion does so between its two backward passes, when it needs the norms."""
        if self.backward and any(getattr(p, "_norm_sample", None) is None for p in self.params):
            raise PrivcalcError(
                "criterion: ghost clipping has not taken the norms of all parameters' gradients, as in eval(), or "
                "where a layer was not used: call train() before the batch"
            )
        super().zero_grad(set_to_none)

    def accumulate(self) -> None:
        """Add a physical batch's gradients, which are those that the criterion has made of it, to the sum."""
        made, self.made = self.made, None
        if made is None or made[1] != versions(self.params):
            raise PrivcalcError(
                "gradients: must be what the backward() of the criterion that keep_ledger returned has made of this "
                "batch: what is added otherwise is not clipped; "
                "for a penalty on the weights use the optimizer's weight_decay"
            )
        self._summed += made[0]
        for p in self.params:
            p.summed_grad = p.grad.clone() if p.summed_grad is None else p.summed_grad + p.grad


class KeptSharded(KeptGhost):
    """With parameters of which each process has a part (FSDP2), and the mean over processes of their gradients.

    Sums of all parameters are put together in each process, so that the sum over processes is that of the batch.
    """

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients."""
        Kept.zero_grad(self)

    def _whole(self, total: Any) -> torch.Tensor:
        return cast(torch.Tensor, total.full_tensor())

    def _part(self, noisy: torch.Tensor, p: Any) -> torch.Tensor:
        return distribute_tensor(noisy.to(p.device, p.dtype), p.device_mesh, p.placements)


KINDS: dict[type[Kept], type[DPOptimizer]] = {
    KeptSharded: FSDPOptimizerFastGradientClipping,
    KeptGhost: DPOptimizerFastGradientClipping,
    KeptPerLayer: DPPerLayerOptimizer,
    KeptAdaptive: AdaClipDPOptimizer,
    Kept: DPOptimizer,
}
"""In whose place each is; the first that fits."""


def keep(of: DPOptimizer, expected_batch_size: float | None) -> Kept:
    """An optimizer like another one, which takes no further steps."""
    if not of.params:
        raise PrivcalcError("optimizer: must have parameters that are trained")
    size = expected_batch_size or of.expected_batch_size * getattr(of, "world_size", 1)
    kind = next(own for own, given in KINDS.items() if isinstance(of, given))
    more = {name: getattr(of, name) for name in ADAPTIVE} if kind is KeptAdaptive else {}
    kept = kind(of, getattr(of, "max_grad_norms", of.max_grad_norm), size, **more)
    of.attach_step_hook(_refuse)
    return kept


def versions(params: list[Any]) -> list[tuple[Any, int]]:
    """The gradients that there are, by identity, and how often each was written to, as far as torch counts."""
    return [(id(p.grad), -1 if p.grad is None else p.grad._version) for p in params]


def check_kinds(tensors: list[torch.Tensor]) -> None:
    """Raise PrivcalcError if some have too few digits."""
    if others := {str(each.dtype) for each in tensors if each.dtype not in PRECISE}:
        raise PrivcalcError(
            f"gradients: must be in single or double precision, not {', '.join(sorted(others))}: fewer digits neither "
            "keep the clip norm nor hold the noise"
        )


def check_noisy(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Check, before a step of the optimizer given to ``make_private``, that its gradients have noise."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            grad = p.grad
            if grad is not None and vars(grad).get(NOISY) != grad._version and bool(grad.count_nonzero()):
                raise PrivcalcError(
                    "optimizer: must not step along gradients without noise: step the one that keep_ledger returned, "
                    "not the one that was given to make_private; and a frozen parameter must have no gradient"
                )


def _refuse(_: DPOptimizer) -> None:
    """A hook that refuses."""
    raise PrivcalcError(
        "optimizer: step the one that keep_ledger returned, which pays for its steps; this one takes none"
    )


class NormRatios:
    """Norms of per-sample gradients over the clip norm, for ``RealisedLosses``, by the optimizer's hook at each step.

    Sensitive: they depend on the private data. A batch has its records in the order of the loader; to know which they
    were, keep their numbers in the data set.

    Args:
        optimizer: with flat clipping and per-sample gradients, as ``make_private`` or :func:`keep_ledger` returned it.

    Attributes:
        steps: one array for each step taken, for ``clip_norm=1``: min(‖gradient‖/clip norm, 1) of every record of its
            batch.

    Raises:
        PrivcalcError: for another kind of optimizer; at a step whose batch was split by a memory manager.
    """

    def __init__(self, optimizer: DPOptimizer) -> None:
        if type(optimizer) not in (DPOptimizer, Kept):
            raise PrivcalcError(
                f"optimizer = {type(optimizer).__name__}: must be DPOptimizer, which keeps per-sample gradients"
            )
        self.steps: list[Floats] = []
        account = optimizer.step_hook

        def hook(now: DPOptimizer) -> None:
            if getattr(now, "_is_last_step_skipped", True):
                raise PrivcalcError(
                    "optimizer: its batches must not be in pieces, of which only the last has its gradients yet"
                )
            self.steps.append(_ratios(now.grad_samples, now.max_grad_norm))
            if account is not None:
                account(now)

        optimizer.attach_step_hook(hook)


def _ratios(grad_samples: Iterable[Any], clip_norm: float) -> Floats:
    """By norms in double precision, without a copy of the gradients in it."""
    rows = [each.detach().reshape(len(each), math.prod(each.shape[1:])) for each in grad_samples]
    parts = [torch.linalg.vector_norm(row, dim=1, dtype=torch.float64).cpu().numpy() for row in rows]
    return np.asarray(np.minimum(np.linalg.norm(parts, axis=0) / float(clip_norm), 1.0), dtype=np.float64)
