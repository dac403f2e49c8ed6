"""Under Opacus: clipping and noise are Opacus's own, and the noise is as large as it says (``proofs/interop.md``, §3)."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import opacus
import torch
from opacus.optimizers import DPOptimizer

from privcalc.errors import PrivcalcError

__all__ = ["check_noise", "check_own", "check_owner"]

OPTIMIZER = ("step", "pre_step", "clip_and_accumulate", "accumulate", "add_noise", "scale_grad", "zero_grad")
"""What adds up, clips, and draws noise."""
MODULE = ("get_clipping_coef", "get_norm_sample")
"""What ghost clipping takes its factors from."""
HOME = Path(opacus.__file__).parent
DOUBT = 34.0
"""Of Opacus's noise a sum is refused with probability e⁻³⁴."""
RESOLUTION = 2.0**-24
"""Of normal numbers in single precision, and of the sums they are added to."""


def check_own(optimizer: DPOptimizer) -> None:
    """Raise PrivcalcError if its class has code in the place of Opacus's."""
    _check(optimizer, OPTIMIZER)


def check_owner(module: Any) -> None:
    """Raise PrivcalcError if a module that clips for ghost clipping has code in the place of Opacus's."""
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
        code = getattr(found, "__code__", None)
        if found is not None and (code is None or not Path(code.co_filename).is_relative_to(HOME)):
            raise PrivcalcError(_own(owner, name))


def _own(owner: Any, name: str) -> str:
    return f"{type(owner).__name__}.{name}: must stay Opacus's own, which clips, sums and adds noise as is accounted for"
