"""Opacus: an accountant for ``PrivacyEngine``, ledgers of its runs, and norms for audits. Needs the extra ``opacus``.

    import privcalc.interop.opacus
    privcalc.interop.opacus.register()
    engine = PrivacyEngine(accountant="privcalc")

Every step must be one whole batch of the loader that ``make_private`` returned, and every batch one step; how many records are
in it is checked, by the accountant and with a ledger, before noise is drawn. Assumed, and not seen from here: they are the
records that were drawn, and the length of the data set, which Opacus divides by, is public.
Opacus's coins have 24 bits: a record takes part with a probability a little above the nominal rate, which is accounted for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import IAccountant, register_accountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer

from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.batches import Watch, check_loader, check_optimizer
from privcalc.ledger.ledger import Ledger
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Run

__all__ = ["NormRatios", "PrivcalcAccountant", "coin_rate", "get_noise_multiplier", "keep_ledger", "register", "step_of"]

NAME = "privcalc"


def coin_rate(sample_rate: float) -> float:
    """The probability with which Opacus's loader lets a record take part.

    Args:
        sample_rate: the nominal rate q.

    Returns:
        The share of the fractions k/2²⁴ below q, in single precision; at least q, and at most 2⁻²³ more.

    Raises:
        PrivcalcError: if q is not in (0, 1].
    """
    rate = errors.rate("sample_rate", sample_rate)
    return min(math.ceil(math.ldexp(max(rate, float(np.float32(rate))), 24)) / 2**24, 1.0)


class PrivcalcAccountant(IAccountant):  # type: ignore[misc]
    """Opacus's accountant with certified answers: the run it has seen is composed as Poisson-sampled Gaussians.

    Attributes:
        history: (noise multiplier, nominal rate, steps), steps in a row with the same numbers together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Account for one step.

        Args:
            noise_multiplier: noise standard deviation / clip norm, ≥ 0; at 0 every ε is ∞.
            sample_rate: nominal Poisson rate, in (0, 1].

        Raises:
            PrivcalcError: if an argument is out of range.
        """
        noise, rate, _ = _entry((noise_multiplier, sample_rate, 1))
        steps = 1
        if self.history and tuple(self.history[-1][:2]) == (noise, rate):
            steps += self.history.pop()[2]
        self.history.append((noise, rate, steps))

    @property
    def run(self) -> Run:
        """What ran, at the rate of Opacus's coins.

        Raises:
            PrivcalcError: if a step had no noise.
        """
        entries = [_entry(entry) for entry in self.history]
        return Run.of(PoissonSampled(Gaussian(noise), coin_rate(rate)) * steps for noise, rate, steps in entries)

    def epsilon(self, delta: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """ε spent so far, with both ends.

        Args:
            delta: δ in [0, 1).
            relation: the neighbouring relation.

        Raises:
            PrivcalcError: if δ is out of range, or a step had no noise.
        """
        return self.run.epsilon(delta=delta, relation=relation)

    def get_epsilon(self, delta: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> float:
        """The certified upper end of ε; ∞ if a step had no noise.

        Args:
            delta: δ in [0, 1).
            relation: the neighbouring relation.

        Raises:
            PrivcalcError: if δ is out of range.
        """
        value = errors.delta("delta", delta)
        if any(_entry(entry)[0] == 0 for entry in self.history):
            return math.inf
        return self.epsilon(value, relation=relation).upper

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """What the engine attaches to its optimizer: it accounts for each step, before the parameters move.

        Args:
            sample_rate: nominal Poisson rate.

        Returns:
            A function of the optimizer, which raises PrivcalcError if nothing watched the step: see :func:`register`.
        """
        rate = errors.rate("sample_rate", sample_rate)

        def hook(optimizer: DPOptimizer) -> None:
            check_optimizer(optimizer)
            if Watch.of(optimizer) is None:
                raise PrivcalcError("optimizer: its batches were not watched: call register() before make_private")
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=rate)

        return hook

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            PrivcalcError: if the history is none, or steps were taken already, which would be forgotten; ValueError, by Opacus,
                for another accountant's.
        """
        loaded = type(self)()
        IAccountant.load_state_dict(loaded, state_dict)
        if not isinstance(loaded.history, (list, tuple)):
            raise PrivcalcError(f"history = {loaded.history!r}: must be a list")
        history = [_entry(entry) for entry in loaded.history]
        if self.history:
            raise PrivcalcError(
                f"state_dict: {len(self)} steps were taken already, and would be forgotten: load a checkpoint before the first "
                "step; to go back to earlier parameters, load these alone"
            )
        self.history = history

    def __len__(self) -> int:
        """The number of steps."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name it is registered by."""
        return NAME


def register() -> None:
    """Make ``PrivacyEngine(accountant="privcalc")`` work; doing so twice changes nothing.

    An accountant is told noise and rate after a step, and no more. So with this one, ``make_private`` has the loader and the
    optimizer that it returns watched: a step that is no whole Poisson batch raises PrivcalcError before its noise is drawn, as
    does a second step on a batch, a batch left out, and a gradient that is not finite. Engines with other accountants stay as
    they are.
    """
    register_accountant(NAME, PrivcalcAccountant, force=True)
    if not hasattr(PrivacyEngine.make_private, "privcalc_watches"):
        PrivacyEngine.make_private = _watching(PrivacyEngine.make_private)


def _watching(make_private: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    @functools.wraps(make_private)
    def watched(engine: PrivacyEngine, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        made = make_private(engine, *args, **kwargs)
        if isinstance(engine.accountant, PrivcalcAccountant):
            Watch(made[1], made[-1])
        return made

    vars(watched)["privcalc_watches"] = True
    return watched


def get_noise_multiplier(
    *,
    target_epsilon: float,
    target_delta: float,
    sample_rate: float,
    steps: int | None = None,
    epochs: float | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> float:
    """The noise multiplier for a run under Opacus, at the rate of its coins.

    Args:
        target_epsilon: ε of the target, > 0.
        target_delta: δ of the target, in (0, 1).
        sample_rate: nominal Poisson rate: 1 / len(data_loader).
        steps: number of steps; or
        epochs: passes over the data, rounded up to whole steps.
        relation: the neighbouring relation.

    Returns:
        A float on the safe side: the run with it was evaluated to meet the target.

    Raises:
        PrivcalcError: if an argument is out of range, or not exactly one of steps and epochs is given.
    """
    epsilon = errors.positive("target_epsilon", target_epsilon)
    delta = errors.real("target_delta", target_delta, "a probability in (0, 1)", low=0, high=1, open_low=True, open_high=True)
    rate = errors.rate("sample_rate", sample_rate)
    if (steps is None) == (epochs is None):
        raise PrivcalcError(f"steps = {steps!r}, epochs = {epochs!r}: give exactly one of them")
    if steps is None:
        steps = math.ceil(errors.positive("epochs", epochs or 0.0) / rate * (1 - 1e-12))
    return dpsgd.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=coin_rate(rate), steps=steps, relation=relation)


def step_of(optimizer: DPOptimizer, data_loader: DPDataLoader) -> PoissonSampled:
    """The mechanism of one step, for the plan of a ledger: ``plan=step_of(optimizer, loader) * len(loader) * epochs``.

    Args:
        optimizer: as ``make_private`` returned it.
        data_loader: likewise.

    Raises:
        PrivcalcError: if the steps are no Poisson-sampled Gaussians: another kind of optimizer, a loader that does not draw
            Poisson samples, or no noise.
    """
    check_optimizer(optimizer)
    check_loader(data_loader)
    return PoissonSampled(Gaussian(optimizer.noise_multiplier), coin_rate(data_loader.batch_sampler.sample_rate))


def keep_ledger(optimizer: DPOptimizer, data_loader: DPDataLoader, ledger: Ledger, *, ahead: int = 10) -> None:
    """Charge a ledger for every step, before its noise is drawn. Then close the ledger and ``certify`` it.

    Args:
        optimizer: as ``make_private`` returned it; it keeps the ledger from now on.
        data_loader: likewise; its batches, and no others, must be used.
        ledger: with a plan, or a cap if noise or steps may depend on outputs.
        ahead: how many steps are charged at a time, because to wait for the disk may take longer than a step. What was charged
            and did not run at the end counts as having run; under a plan, which is certified as a whole, that changes nothing.

    Raises:
        PrivcalcError: as ``step_of``, or if the optimizer keeps one already. A step that is not one whole batch of the loader,
            or whose charge is refused, raises, and draws nothing.
    """
    step_of(optimizer, data_loader)
    block = errors.count("ahead", ahead, least=1)
    watch = Watch.of(optimizer) or Watch(optimizer, data_loader)
    if watch.data_loader is not data_loader:
        raise PrivcalcError("data_loader: must be the one that make_private returned with the optimizer")
    if watch.charge is not None:
        raise PrivcalcError("optimizer: keeps a ledger already")
    paid: dict[PoissonSampled, int] = {}

    def charge() -> None:
        step = step_of(optimizer, data_loader)
        if not paid.get(step):
            size = block
            while size > 1 and ledger.would_exceed(step, size):
                size //= 2
            ledger.record(step, size)
            paid[step] = size
        paid[step] -= 1

    watch.charge = charge


class NormRatios:
    """Norms of per-sample gradients over the clip norm, for ``RealisedLosses``, taken before each step clips them.

    Sensitive: they depend on the private data. A batch has its records in the order of the loader; to know which they were,
    keep their numbers in the data set.

    Args:
        optimizer: with flat clipping and per-sample gradients, as ``make_private`` returned it; it is watched from now on.

    Attributes:
        steps: one array for each step taken, min(‖gradient‖/clip norm, 1) of every record of its batch, and of the next
            physical batch's records where a memory manager split it.

    Raises:
        PrivcalcError: for another kind of optimizer.
    """

    def __init__(self, optimizer: DPOptimizer) -> None:
        if type(optimizer) is not DPOptimizer:
            raise PrivcalcError(f"optimizer = {type(optimizer).__name__}: must be DPOptimizer, which keeps per-sample gradients")
        self.steps: list[Floats] = []
        pending: list[Floats] = []
        take = optimizer.pre_step

        def pre_step(*args: Any, **kwargs: Any) -> Any:
            pending.append(_ratios(optimizer.grad_samples, optimizer.max_grad_norm))
            stepped = take(*args, **kwargs)
            if stepped:
                self.steps.append(np.concatenate(pending))
                pending.clear()
            return stepped

        optimizer.pre_step = pre_step


def _ratios(grad_samples: Iterable[Any], clip_norm: float) -> Floats:
    parts = [_norms(g.detach()) for g in grad_samples]
    norms = np.linalg.norm(parts, axis=0)
    return np.asarray(np.minimum(norms / float(clip_norm), 1.0), dtype=np.float64)


def _norms(grad_sample: Any) -> Floats:
    """Of each record, in double precision without a copy in it."""
    flat = grad_sample.reshape(len(grad_sample), math.prod(grad_sample.shape[1:]))
    return np.asarray(torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).cpu().numpy())


def _entry(entry: Any) -> tuple[float, float, int]:
    """One entry of a history, checked."""
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise PrivcalcError(f"history = {entry!r}: must have entries (noise multiplier, sample rate, steps)")
    allowed = "a finite number >= 0"
    noise = errors.real("noise_multiplier", entry[0], allowed, low=0.0, high=math.inf, open_high=True)
    return noise, errors.rate("sample_rate", entry[1]), errors.count("steps", entry[2], least=1)
