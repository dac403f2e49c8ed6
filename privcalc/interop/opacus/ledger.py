"""A ledger of a run under Opacus: it draws batches and noise, or is charged before Opacus draws the noise of a step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

from privcalc import errors
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.interop.opacus.checks import check_optimizer
from privcalc.interop.opacus.ghost import KeptLoss
from privcalc.interop.opacus.optimizer import Kept, KeptGhost, KeptPerLayer, keep
from privcalc.interop.opacus.sampler import Batches, Waiting, check_loader, coin_rate, loader_of
from privcalc.interop.torch.records import check_copies
from privcalc.ledger.assumptions import Provenance, asked_by
from privcalc.ledger.drawn import Batch
from privcalc.ledger.ledger import Ledger
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import Floats

Found = TypeVar("Found")
Draws = bool | Literal["noise"]
TOLD = Provenance(by="adapter")
"""Opacus clips and divides: both are stated."""


def step_of(optimizer: DPOptimizer, data_loader: Any, *, draws: Draws = True) -> PoissonSampled:
    """The mechanism of one step, for a ledger's plan.

    Use it as ``plan=step_of(optimizer, loader) * (epochs * len(loader))``.

    Args:
        optimizer: as ``make_private`` returned it.
        data_loader: likewise.
        draws: as of :func:`keep_ledger`: what a ledger draws is drawn at the nominal rate, and not at that of Opacus's
            coins.

    Raises:
        PrivcalcError: if the steps are no Poisson-sampled Gaussians: another kind of optimizer, a loader that does not
            draw Poisson samples, or no noise.
    """
    check_optimizer(optimizer, Kept, KeptPerLayer, KeptGhost)
    check_loader(data_loader)
    rate = data_loader.batch_sampler.sample_rate
    return PoissonSampled(Gaussian(optimizer.noise_multiplier), rate if draws is True else coin_rate(rate))


def keep_ledger(
    optimizer: DPOptimizer,
    data_loader: Any,
    ledger: Ledger,
    *,
    start: object,
    criterion: DPLossFastGradientClipping | None = None,
    draws: Draws = True,
    ahead: int = 10,
) -> tuple[Any, ...]:
    """Have a ledger draw the batches and the noise of a run. Then train as always, and ``certify`` the ledger.

    Go on with what is returned, and make schedulers with it: the optimizer that was given takes no more steps, and
    batches of the loader that was given get none. A step that is not one whole batch, each record once, raises and
    draws nothing.

    Args:
        optimizer: as ``make_private`` returned it.
        data_loader: likewise.
        ledger: with a plan, or a cap if noise or steps may depend on outputs.
        start: where the first weights come from, those of frozen layers too: "random", "public", a certificate (of a
            model of the same records), or "private", without noise: then no ε is claimed. Every certificate of the
            ledger says it.
        criterion: that ``make_private`` returned with ghost clipping, and only with it.
        draws: True: batches by :meth:`Ledger.batch`, and exact noise, both of secure random bits; without workers,
            which ask for batches before the last one was released. "noise": Opacus draws the batches, on your word.
            False: the noise, too, by torch's generator, which takes 32 bits of whatever seed it has.
        ahead: how many steps are charged at a time, if the ledger draws nothing, because to wait for the disk may take
            longer than a step. What was charged and did not run counts as having run; under a plan, that changes
            nothing.

    Returns:
        (optimizer, data_loader), or (optimizer, criterion, data_loader) with ghost clipping.

    Raises:
        PrivcalcError: as ``step_of``; or if the data set has one record in several places, noise or coins come from a
            generator of somebody's (unless the ledger was opened with ``seed=``, and claims nothing), or an argument
            does not fit.
    """
    errors.one_of("draws", draws, True, False, "noise")
    block = errors.count("ahead", ahead, least=1)
    step_of(optimizer, data_loader, draws=draws)
    if isinstance(optimizer, Kept):
        raise PrivcalcError("optimizer: keeps a ledger already; give keep_ledger what make_private returned")
    if draws is True and data_loader.num_workers:
        raise PrivcalcError(
            f"num_workers = {data_loader.num_workers!r}: must be 0 where the ledger draws, batch by batch; "
            "draws='noise' leaves the batches to Opacus"
        )
    if isinstance(optimizer, DPOptimizerFastGradientClipping) != isinstance(criterion, DPLossFastGradientClipping):
        raise PrivcalcError("criterion: must be the one that make_private returned with ghost clipping, and only then")
    if not ledger.terms.seeded and not optimizer.secure_mode:
        check_secret(optimizer, data_loader, draws)
    check_copies(data_loader.dataset)
    ledger.say(start=start)
    kept = keep(optimizer)
    rate = data_loader.batch_sampler.sample_rate
    paid: dict[PoissonSampled, int] = {}

    def step() -> PoissonSampled:
        return _step(float(kept.noise_multiplier), rate if draws is True else coin_rate(rate))

    def draw() -> Batch:
        return _asked(ledger.batch, step(), records=data_loader.batch_sampler.num_samples)

    def release(total: Floats, clip_norm: float, waiting: Waiting) -> Floats:
        now = step()
        token = waiting.token or _asked(ledger.batch_from_elsewhere, now, size=waiting.size)
        noisy: Floats = ledger.gaussian(total[None], now, clip_norm=clip_norm, batch=token)
        return noisy.ravel()  # of one row, which is no row for each record however long it is

    def pay() -> None:
        now = step()
        if not paid.get(now):
            size = block
            while size > 1 and ledger.would_exceed(now, size):
                size //= 2
            _asked(ledger.record, now, size)
            paid[now] = size
        paid[now] -= 1

    loader = loader_of(data_loader, draw if draws is True else None)
    sampler = loader.batch_sampler
    assert isinstance(sampler, Batches)
    kept.batches, kept.pay, kept.release = sampler, pay, release if draws else None
    return (kept, KeptLoss(criterion, kept), loader) if isinstance(kept, KeptGhost) else (kept, loader)


def check_secret(optimizer: DPOptimizer, data_loader: Any, draws: Draws) -> None:
    """Raise PrivcalcError if noise or coins come from a generator that somebody made.

    Its seed is one and the same by default.
    """
    made = {
        "noise_generator": not draws and optimizer.generator,
        "data_loader": draws is not True and data_loader.generator,
    }
    for name, generator in made.items():
        if generator:
            raise PrivcalcError(
                f"{name}: what its generator draws can be drawn again, and taken away, by whoever knows the seed, and "
                "a torch.Generator has one and the same in every process unless another is set. Give none, have the "
                "ledger draw (draws=True), or open the ledger with seed=, which makes no privacy claim"
            )


@functools.lru_cache(maxsize=16)
def _step(noise_multiplier: float, rate: float) -> PoissonSampled:
    """One, checked: steps of a run are alike."""
    return PoissonSampled(Gaussian(noise_multiplier), rate)


def _asked(call: Callable[..., Found], *args: Any, **options: Any) -> Found:
    """By an adapter; whoever has too small a plan is told what a step is."""
    try:
        with asked_by(TOLD):
            return call(*args, **options)
    except BudgetExceeded as error:
        raise BudgetExceeded(
            f"{error}. A step of this optimizer is step_of(optimizer, data_loader): "
            "plan=step_of(optimizer, data_loader) * (epochs * len(data_loader)), with draws= as of keep_ledger in both"
        ) from error
