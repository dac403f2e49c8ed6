"""Under Opacus: clipping and noise are Opacus's own, and the noise is as large as it says (``proofs/interop.md``, §3)."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import opacus
import torch
from opacus.grad_sample import GradSampleModule, grad_sample_module
from opacus.optimizers import DPOptimizer
from opacus.optimizers import optimizer as noisy

from privcalc.errors import PrivcalcError

__all__ = ["SAMPLER", "check_noise", "check_own", "check_owner", "has_own_sampler"]

SAMPLER = (
    "register_grad_sampler: gradients of single records are taken by code that is not Opacus's: ε holds only if each row that it "
    "returns is of one record alone, in their order"
)

OPTIMIZER = ("step", "pre_step", "clip_and_accumulate", "accumulate", "add_noise", "scale_grad", "zero_grad")
"""What adds up, clips, and draws noise."""
MODULE = ("capture_activations_hook", "capture_backprops_hook", "rearrange_grad_samples", "get_clipping_coef", "get_norm_sample")
"""What takes gradients of records, and ghost clipping's factors."""
FUNCTIONS = ((noisy, "_generate_noise"), (grad_sample_module, "create_or_accumulate_grad_sample"))
"""What they call."""
HOME = Path(opacus.__file__).parent
DOUBT = 34.0
"""Of Opacus's noise a sum is refused with probability e⁻³⁴."""
RESOLUTION = 2.0**-24
"""Of normal numbers in single precision, and of the sums they are added to."""


def check_own(optimizer: DPOptimizer) -> None:
    """Raise PrivcalcError if its class, or what that calls, has code in the place of Opacus's."""
    _check(optimizer, OPTIMIZER)
    for module, name in FUNCTIONS:
        found = getattr(module, name)
        if not (hasattr(found, "privcalc_watches") or _is_opacus(found)):
            raise PrivcalcError(
                f"{module.__name__}.{name}: must stay Opacus's own, which sums and adds noise as is accounted for"
            )


def check_owner(module: Any) -> None:
    """Raise PrivcalcError if what takes gradients of a module's records has code in the place of Opacus's."""
    if replaced := [name for name in MODULE if name in vars(module)]:
        raise PrivcalcError(_own(module, replaced[0]))
    _check(module, MODULE)


def check_noise(optimizer: DPOptimizer) -> None:
    """Raise PrivcalcError if what was added to the sums is less than noise of their size ever is.

    For r = ‖noise‖² / (d σ²) < 1 in d coordinates, P(≤ r) ≤ (r e^(1 − r))^(d/2) (Chernoff's bound for χ²).
    """
    std = float(optimizer.noise_multiplier) * float(optimizer.max_grad_norm)
    if std == 0:
        return
    for p in optimizer.params:
        grad, total = p.grad.detach(), p.summed_grad.detach().view_as(p)
        added, rounding = (float(torch.linalg.vector_norm(each, dtype=torch.float64)) for each in (grad - total, grad))
        ratio = ((added + RESOLUTION * rounding) / std) ** 2 / max(grad.numel(), 1)
        ratio = max(ratio, RESOLUTION**2)
        if ratio < 1 and grad.numel() / 2 * (math.log(ratio) + 1 - ratio) < -DOUBT:
            raise PrivcalcError(
                "optimizer: the noise is too small to be of its noise multiplier, or lacks in a parameter: what draws it must "
                "stay Opacus's and torch's own"
            )


def _check(owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        found = inspect.getattr_static(type(owner), name, None)
        if found is not None and not _is_opacus(found):
            raise PrivcalcError(_own(owner, name))


def has_own_sampler(module: torch.nn.Module) -> bool:
    """Whether a layer's gradients of records are taken by code that somebody has registered."""
    kinds = {type(each) for each in module.modules()}
    samplers = GradSampleModule.GRAD_SAMPLERS
    return any(kind in samplers and not _is_opacus(samplers[kind]) for kind in kinds)


def _is_opacus(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(HOME)


def _own(owner: Any, name: str) -> str:
    return f"{type(owner).__name__}.{name}: must stay Opacus's own, which clips, sums and adds noise as is accounted for"
