"""Which of Opacus's optimizers take steps that are Gaussians of known noise (``proofs/interop.md``, §2)."""

from __future__ import annotations

import math

from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping, DPPerLayerOptimizer

from privcalc.errors import PrivcalcError

__all__ = ["check_optimizer"]

_SUPPORTED = (DPOptimizer, DPPerLayerOptimizer, DPOptimizerFastGradientClipping)
_WHY = {
    "AdaClipDPOptimizer": ", which divides by the size of the batch, a private number",
    "DistributedDPOptimizer": ", whose loader leaves out empty batches",
    "SimpleDistributedPerLayerOptimizer": ", whose loader leaves out empty batches",
    "DistributedDPOptimizerFastGradientClipping": ", whose loader leaves out empty batches",
    "FSDPOptimizerFastGradientClipping": ", whose loader leaves out empty batches",
}


SMALLEST = 2.0**-100
"""Of clip norms: in single precision there are 24 digits down to 2⁻¹²⁶."""


def check_optimizer(optimizer: DPOptimizer) -> None:
    """Raise PrivcalcError unless its steps are Gaussians of known noise."""
    name = type(optimizer).__name__
    if type(optimizer) not in _SUPPORTED:
        allowed = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise PrivcalcError(f"optimizer = {name}{_WHY.get(name, '')}: must be one of {allowed}")
    norm = float(optimizer.max_grad_norm)
    if not SMALLEST <= norm < math.inf:
        raise PrivcalcError(
            f"max_grad_norm = {norm!r}: must be finite, and {SMALLEST!r} at least: sums and noise would have too few digits"
        )
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
