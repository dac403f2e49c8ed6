"""Norms of per-sample gradients under Opacus, for audits of what each record cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from opacus.optimizers import DPOptimizer

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.optimizer import Kept
from privcalc.numerics.floats import Floats

__all__ = ["NormRatios"]


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
    parts = [_norms(g.detach()) for g in grad_samples]
    norms = np.linalg.norm(parts, axis=0)
    return np.asarray(np.minimum(norms / float(clip_norm), 1.0), dtype=np.float64)


def _norms(grad_sample: Any) -> Floats:
    """The norm of each record, in double precision, without a copy of the gradients in it."""
    flat = grad_sample.reshape(len(grad_sample), math.prod(grad_sample.shape[1:]))
    return np.asarray(torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).cpu().numpy())
