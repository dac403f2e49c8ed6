"""Checks of an Opacus optimizer: whether its steps are Gaussians of known noise.

See ``proofs/interop.md``, §2 and §3.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DistributedDPOptimizer,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    DPPerLayerOptimizer,
    FSDPOptimizerFastGradientClipping,
    SimpleDistributedPerLayerOptimizer,
)
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import DistributedDPOptimizerFastGradientClipping

from privcalc.errors import PrivcalcError

PRECISE = (torch.float32, torch.float64)
SUPPORTED = (DPOptimizer, DPPerLayerOptimizer, DPOptimizerFastGradientClipping)
DISTRIBUTED = (
    DistributedDPOptimizer,
    SimpleDistributedPerLayerOptimizer,
    DistributedDPOptimizerFastGradientClipping,
    FSDPOptimizerFastGradientClipping,
)
WITH_LEDGER = (AdaClipDPOptimizer, *DISTRIBUTED)
"""Only where a ledger draws batches and noise."""
WHY = {
    AdaClipDPOptimizer: ", which divides by the size of the batch, a private number",
    **dict.fromkeys(DISTRIBUTED, ", whose loader leaves out empty batches"),
}
SMALLEST = 2.0**-100
"""Of clip norms: in single precision there are 24 digits down to 2⁻¹²⁶."""
DOUBT = 128 * math.log(2)
"""Noise that is as large as it should be is refused with a probability below 2⁻¹²⁸."""
RESOLUTION = 2.0**-24
"""Of normal numbers in single precision, and of the sums they are added to."""


def check_optimizer(optimizer: DPOptimizer, *others: type[DPOptimizer]) -> None:
    """Raise PrivcalcError unless it is of a kind, or of others, whose steps are Gaussians of known noise."""
    kind = type(optimizer)
    if kind not in (*SUPPORTED, *others):
        allowed = ", ".join(each.__name__ for each in SUPPORTED)
        where = "; or a ledger must draw batches and noise (keep_ledger)" if kind in WITH_LEDGER else ""
        raise PrivcalcError(f"optimizer = {kind.__name__}{WHY.get(kind, '')}: must be one of {allowed}{where}")
    check_clipping(optimizer, optimizer.params)


def check_clipping(optimizer: DPOptimizer, params: list[Any]) -> None:
    """Raise PrivcalcError if sums are not clipped to the norm that noise is scaled by, or of several batches."""
    norm = float(optimizer.max_grad_norm)
    if not SMALLEST <= norm < math.inf:
        raise PrivcalcError(
            f"max_grad_norm = {norm!r}: must be finite, and {SMALLEST!r} at least: "
            "sums and noise would have too few digits"
        )
    found = [getattr(p, "grad_sample", None) for p in params]
    most = max((len(each) for each in found if isinstance(each, list)), default=1)
    if most != 1:
        raise PrivcalcError(
            f"accumulated_iterations = {most}: must be 1, because a record may be in "
            "several of the accumulated Poisson samples; for large batches use BatchMemoryManager"
        )
    if hasattr(optimizer, "_adjusted_noise_multiplier"):
        raise PrivcalcError("optimizer: must not clip adaptively: the noise it draws is not the noise multiplier's")
    if isinstance(optimizer, DPPerLayerOptimizer):
        norm = math.hypot(*(float(each) for each in optimizer.max_grad_norms))
        if not norm <= float(optimizer.max_grad_norm) * (1 + 1e-6):  # Opacus has it in single precision
            raise PrivcalcError(
                f"max_grad_norm = {optimizer.max_grad_norm!r}: must be the norm of the layers' norms, {norm!r}"
            )


def check_noise(optimizer: DPOptimizer, divisor: float = 1.0) -> None:
    """Raise PrivcalcError if what was added to the sums is less than noise of their size ever is.

    For r = ‖noise‖² / (d σ²) < 1 in d coordinates, P(≤ r) ≤ (r e^(1 − r))^(d/2) (Chernoff's bound for χ²).

    Args:
        optimizer: which has just drawn it.
        divisor: what noisy sums were divided by since.
    """
    std = float(optimizer.noise_multiplier) * float(optimizer.max_grad_norm)
    if std == 0:
        return
    for p in optimizer.params:
        noisy, total = p.grad.detach() * divisor, p.summed_grad.detach().view_as(p)
        ratio = ((length([noisy - total]) + 4 * RESOLUTION * length([noisy])) / std) ** 2 / max(p.numel(), 1)
        ratio = max(ratio, RESOLUTION**2)
        if ratio < 1 and p.numel() / 2 * (math.log(ratio) + 1 - ratio) < -DOUBT:
            raise PrivcalcError(
                "optimizer: the noise is too small to be of its noise multiplier, or lacks in a parameter: ε holds for "
                "the noise that was accounted for"
            )


def length(tensors: list[torch.Tensor]) -> float:
    """Of all together, in doubles."""
    return math.hypot(*(float(torch.linalg.vector_norm(each.detach(), dtype=torch.float64)) for each in tensors))
