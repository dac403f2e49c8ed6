"""A ledger of a run under Opacus: it draws batches and noise, or is charged before Opacus draws the noise of a step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

from privcalc import errors
from privcalc.attacks.replay import Look, look_first
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.interop.opacus.checks import DISTRIBUTED, WITH_LEDGER, check_optimizer
from privcalc.interop.opacus.ghost import KeptLoss
from privcalc.interop.opacus.optimizer import Kept, KeptGhost, keep
from privcalc.interop.opacus.processes import Processes
from privcalc.interop.opacus.sampler import Batches, Waiting, check_loader, coin_rate, loader_of, records_of
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
    if not isinstance(optimizer, Kept):
        check_optimizer(optimizer, *(WITH_LEDGER if draws is True else ()))
    check_loader(data_loader, several=isinstance(optimizer, DISTRIBUTED))
    rate = data_loader.batch_sampler.sample_rate
    return PoissonSampled(Gaussian(optimizer.noise_multiplier), rate if draws is True else coin_rate(rate))


def keep_ledger(
    optimizer: DPOptimizer,
    data_loader: Any,
    ledger: Ledger | None,
    *,
    start: object,
    criterion: DPLossFastGradientClipping | None = None,
    draws: Draws = True,
    ahead: int = 10,
    expected_batch_size: float | None = None,
    look: Look | None = None,
) -> tuple[Any, ...]:
    """Have a ledger draw the batches and the noise of a run. Then train as always, and ``certify`` the ledger.

    Go on with what is returned, and make schedulers with it: the optimizer that was given takes no more steps, and
    batches of the loader that was given get none. A step that is not one whole batch, each record once, raises and
    draws nothing.

    Args:
        optimizer: as ``make_private`` returned it.
        data_loader: likewise.
        ledger: with a plan, or a cap if noise or steps may depend on outputs. Where several processes train, that
            of the first one, and None in the others, which have the same data set, and get their part of each batch.
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
        expected_batch_size: the public number by which noisy sums are divided for a mean. By default it is Opacus's,
            rate times the number of records that there are, rounded down: give one where that is private.
        look: (train, data): before anything is drawn, the first step of ``train(data)``, with a ledger of its own in
            memory, is run with and without one record (:func:`privcalc.attacks.replay.replay`), and what was found is
            shown on the screen. It depends on the data, and is kept nowhere.
            For one process, and ``draws=True``.

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
    check_copies(data_loader.dataset)
    size = None if expected_batch_size is None else errors.positive("expected_batch_size", expected_batch_size)
    together = Processes() if isinstance(optimizer, DISTRIBUTED) else None
    if isinstance(ledger, Ledger) is not (together is None or together.rank == 0):
        raise PrivcalcError(f"ledger = {ledger!r}: must be a Ledger; and None in all processes but the first")
    if look is not None and (together is not None or draws is not True):
        raise PrivcalcError("look: is for one process and draws=True, where batches and noise pass the ledger")
    if ledger is not None:
        if not ledger.terms.seeded and not optimizer.secure_mode:
            check_secret(optimizer, data_loader, draws)
        look_first(look, Ledger, relation=ledger.terms.relation)
        ledger.say(start=start)
    kept = keep(optimizer, size)
    steps = _Steps(ledger, kept, data_loader.batch_sampler, draws, block, together)
    loader = loader_of(data_loader, steps.draw if draws is True else None)
    sampler = loader.batch_sampler
    assert isinstance(sampler, Batches)
    kept.batches, kept.pay, kept.release = sampler, steps.pay, steps.release if draws else None
    return (kept, KeptLoss(criterion, kept), loader) if isinstance(kept, KeptGhost) else (kept, loader)


class _Steps:
    """What a ledger is asked for a run's steps.

    Args:
        ledger: None in processes that have none.
        kept: the optimizer.
        sampler: that of the loader.
        draws: as of :func:`keep_ledger`.
        block: how many steps are charged at a time.
        together: the processes, if there are several.
    """

    def __init__(
        self, ledger: Any, kept: Kept, sampler: Any, draws: Draws, block: int, together: Processes | None
    ) -> None:
        self._ledger, self._kept, self._block, self._together = ledger, kept, block, together
        self._rate = sampler.sample_rate if draws is True else coin_rate(sampler.sample_rate)
        self._records, self._paid = records_of(sampler), dict[PoissonSampled, int]()

    def draw(self) -> tuple[list[int], Batch | None]:
        """This process's records of the next batch."""
        if self._together is not None:
            return self._together.draw(self._next)
        token = self._next()
        return token.indices.tolist(), token

    def release(self, total: Floats, clip_norm: float, waiting: Waiting) -> Floats:
        """A sum with noise; of all processes, if there are several."""
        if self._together is None:
            return self._noisy(total, clip_norm, waiting)
        same = clip_norm, float(self._kept.noise_multiplier), self._kept.expected_batch_size
        return self._together.release(lambda whole: self._noisy(whole, clip_norm, waiting), total, waiting, same)

    def pay(self) -> None:
        """Charge for a step whose noise Opacus draws."""
        now = self._step()
        if not self._paid.get(now):
            size = self._block
            while size > 1 and self._ledger.would_exceed(now, size):
                size //= 2
            _asked(self._ledger.record, now, size)
            self._paid[now] = size
        self._paid[now] -= 1

    def _step(self) -> PoissonSampled:
        return _step(float(self._kept.noise_multiplier), self._rate)

    def _next(self) -> Batch:
        batch: Batch = _asked(self._ledger.batch, self._step(), records=self._records)
        return batch

    def _noisy(self, total: Floats, clip_norm: float, waiting: Waiting) -> Floats:
        now = self._step()
        token = waiting.token or _asked(self._ledger.batch_from_elsewhere, now, size=waiting.size)
        noisy: Floats = self._ledger.gaussian(total[None], now, clip_norm=clip_norm, batch=token)
        return noisy.ravel()  # of one row, which is no row for each record however long it is


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
