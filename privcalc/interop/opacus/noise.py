"""Noise under Opacus whose bits have the guarantee, in place of the sum of normal numbers of a floating-point generator."""

from __future__ import annotations

import torch
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from privcalc.interop.opacus.batches import Watch
from privcalc.interop.opacus.supported import check_optimizer
from privcalc.noise import Noise, gaussian

__all__ = ["exact_noise"]


def exact_noise(optimizer: DPOptimizer, noise: Noise | None = None) -> None:
    """Have an optimizer's noise drawn by :func:`privcalc.noise.gaussian`: exactly, on a public grid, from secure random bits.

    Its own generator, and ``secure_mode``, are not used any more. With :func:`keep_ledger` it is the ledger that draws: the
    certificate says that the noise was exact, and that the batches were drawn by other code. What rounding does to the sum of
    gradients before the noise is not counted, and the certificate says that, too: Opacus adds them in the precision of the
    parameters, with no proved bound (``proofs/executed_noise.md``, §1 and §5).

    Args:
        optimizer: as ``make_private`` returned it; it draws so from now on.
        noise: where it comes from; by default the ledger's, or the operating system's generator. To a ledger, noise from
            bits of your own is what other code drew; other than the system's need ``seed=``, and make no privacy claim.

    Raises:
        PrivcalcError: if its steps are no Gaussians of known noise.
    """
    check_optimizer(optimizer)
    source, watch = Noise() if noise is None else noise, Watch.of(optimizer)

    def add_noise() -> None:
        sums = [p.summed_grad for p in optimizer.params]
        for each in sums:
            _check_processed_flag(each)
        together = torch.cat([each.detach().double().cpu().ravel() for each in sums])
        bound, keeper = float(optimizer.max_grad_norm), Watch.of(optimizer)
        if noise is None and keeper is not None and keeper.release is not None:
            noisy = keeper.release(together, bound)
        else:
            noisy = gaussian(together, optimizer.noise_multiplier, clip_norm=bound, noise=source)
        for p, each, part in zip(optimizer.params, sums, torch.split(noisy, [each.numel() for each in sums]), strict=True):
            p.grad = part.to(each, copy=True).view_as(p)  # views of one tensor would count each other's changes
            _mark_as_processed(each)

    optimizer.privcalc_noise = noise  # so that a watch sees whose bits they are
    if watch is None:
        optimizer.add_noise = add_noise
    else:
        watch.draws_with(add_noise)
