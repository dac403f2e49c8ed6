"""A ledger of a run under Opacus: every step is charged before its noise is drawn."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Iterator

import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer

from privcalc import errors
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.interop.opacus.batches import Watch
from privcalc.interop.opacus.noise import exact_noise
from privcalc.interop.opacus.past import Past
from privcalc.interop.opacus.sampler import check_loader, coin_rate
from privcalc.interop.opacus.supported import check_optimizer
from privcalc.ledger.batches import Batch
from privcalc.ledger.ledger import Ledger
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled

__all__ = ["keep_ledger", "step_of"]


def step_of(optimizer: DPOptimizer, data_loader: DPDataLoader, *, draws: bool = False) -> PoissonSampled:
    """The mechanism of one step, for the plan of a ledger: ``plan=step_of(optimizer, loader) * (epochs * len(loader))``.

    Args:
        optimizer: as ``make_private`` returned it.
        data_loader: likewise.
        draws: whether a ledger draws the batches, at the nominal rate, and not at that of Opacus's coins.

    Raises:
        PrivcalcError: if the steps are no Poisson-sampled Gaussians: another kind of optimizer, a loader that does not draw
            Poisson samples, or no noise.
    """
    check_optimizer(optimizer)
    check_loader(data_loader)
    rate = data_loader.batch_sampler.sample_rate
    return PoissonSampled(Gaussian(optimizer.noise_multiplier), rate if draws else coin_rate(rate))


def keep_ledger(
    optimizer: DPOptimizer, data_loader: DPDataLoader, ledger: Ledger, *, ahead: int = 10, draws: bool = False
) -> None:
    """Charge a ledger for every step, before its noise is drawn. Then close the ledger and ``certify`` it.

    With :func:`exact_noise` the ledger draws the noise, too, and its certificate says so; with ``draws`` noise and batches.

    Args:
        optimizer: as ``make_private`` returned it; it keeps the ledger from now on.
        data_loader: likewise; its batches, and no others, must be used.
        ledger: with a plan, or a cap if noise or steps may depend on outputs.
        ahead: how many steps are charged at a time, because to wait for the disk may take longer than a step. What was charged
            and did not run at the end counts as having run; under a plan, which is certified as a whole, that changes nothing.
            Where the ledger draws the noise it does not matter: it reserves by itself, and returns what is left.
        draws: have the loader's batches drawn by :meth:`Ledger.batch`, from secure random bits, each a token for one step: the
            plan is of ``step_of(optimizer, data_loader, draws=True)``, and the certificate says that the ledger saw to noise and
            sampling. In this process: without workers, whose reading ahead needs batches that have had no step.

    Raises:
        PrivcalcError: as ``step_of``, or if the optimizer keeps one already, was made private before ``register()``, or has taken
            steps that this ledger does not have (after a checkpoint: go on with theirs; also seen at the first step, from the
            state of optimizer and module). A step that is not one whole batch of the loader, or whose charge is
            refused, raises, and draws nothing; so does a step after so many batches of one size that no coins can have drawn
            them, and one whose noise comes from a ``noise_generator``, unless the ledger was opened with ``seed=``.
    """
    step_of(optimizer, data_loader)
    if draws and data_loader.num_workers:
        raise PrivcalcError(f"num_workers = {data_loader.num_workers!r}: must be 0 where the ledger draws, batch by batch")
    block = errors.count("ahead", ahead, least=1)
    watch = Watch.of(optimizer)
    if watch is None:
        trained = vars(optimizer).get("privcalc_trained")
        if trained is None:
            raise PrivcalcError(
                "optimizer: its module is not known, all of which must be trained by it: call register() before make_private"
            )
        watch = Watch(optimizer, data_loader, trained)
    if watch.data_loader is not data_loader:
        raise PrivcalcError("data_loader: must be the one that make_private returned with the optimizer")
    if watch.charge is not None:
        raise PrivcalcError("optimizer: keeps a ledger already")
    if missing := max(watch.steps, _missing(optimizer, ledger, draws=draws)):
        raise PrivcalcError(
            f"optimizer: has already taken {missing} steps that this ledger does not see, nor its certificate: keep the ledger "
            "from the first step on, before any other; after a checkpoint go on with the ledger of the steps before it"
        )
    watch.charged = lambda: sum(steps for _, steps in ledger.spent.entries)
    watch.doubts.said, watch.reproducible = ledger.terms.assumptions.declared, ledger.terms.seeded
    watch.doubts.goes_to(ledger.warn)
    watch.goes_on(Past(ledger))
    ledger.before_end(watch.look_back)
    if draws:
        _draw_all(optimizer, data_loader, ledger, watch)
        return
    paid: dict[PoissonSampled, int] = {}

    def charge() -> None:
        if (repeatable := watch.repeatable) is not None and not ledger.terms.seeded:
            raise PrivcalcError(f"{repeatable}; or open the ledger with seed=, which makes no privacy claim")
        step = step_of(optimizer, data_loader)
        if not paid.get(step):
            size = block
            while size > 1 and ledger.would_exceed(step, size):
                size //= 2
            with _told():
                ledger.record(step, size)
            paid[step] = size
        paid[step] -= 1

    def release(total: torch.Tensor, clip_norm: float) -> torch.Tensor:
        step = step_of(optimizer, data_loader)
        with _told():
            batch = ledger.batch_from_elsewhere(step, size=watch.size)
        return ledger.gaussian(total[None], step, clip_norm=clip_norm, batch=batch)[0]  # one row: whatever its length, one sum

    watch.charge, watch.release = charge, release


def _draw_all(optimizer: DPOptimizer, data_loader: DPDataLoader, ledger: Ledger, watch: Watch) -> None:
    """Batches, noise and charges are the ledger's."""
    last: list[Batch] = []

    def draw() -> list[int]:
        with _told():
            last[:] = [ledger.batch(step_of(optimizer, data_loader, draws=True), records=watch.records)]
        indices: list[int] = last[0].indices.tolist()
        return indices

    def release(total: torch.Tensor, clip_norm: float) -> torch.Tensor:
        step = step_of(optimizer, data_loader, draws=True)
        return ledger.gaussian(total[None], step, clip_norm=clip_norm, batch=last[0])[0]

    def charge() -> None:
        raise PrivcalcError("exact_noise: must be left out where the ledger draws; it draws the noise already")

    watch.charge, watch.release = charge, release
    exact_noise(optimizer)
    watch.draws_batches_by(draw)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Whoever has too small a plan is told what a step is."""
    try:
        yield
    except BudgetExceeded as error:
        raise BudgetExceeded(
            f"{error}. A step of this optimizer, at the rate of the loader's coins, is step_of(optimizer, data_loader): "
            "plan=step_of(optimizer, data_loader) * (epochs * len(data_loader)); with draws=True in both where the ledger draws"
        ) from error


def _missing(optimizer: DPOptimizer, ledger: Ledger, *, draws: bool) -> int:
    """How many steps the engine's accountant was told of, also by a checkpoint, that the ledger was not charged for."""
    hook = optimizer.step_hook
    accountant = inspect.getclosurevars(hook).nonlocals.get("self") if inspect.isfunction(hook) else None  # in Opacus's, and ours
    if accountant is None:
        return 0
    taken: Counter[tuple[float, float]] = Counter()
    for noise, rate, steps in accountant.history:
        taken[noise, rate] += steps
    charged = dict(ledger.spent.entries)
    left = 0
    for (noise, rate), steps in taken.items():
        known = charged.get(PoissonSampled(Gaussian(noise), rate if draws else coin_rate(rate)), 0) if noise > 0 else 0
        left += max(steps - known, 0)
    return left
