"""The accountant for ``PrivacyEngine``: the run it has seen is composed as Poisson-sampled Gaussians, with certified answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from opacus import PrivacyEngine
from opacus.accountants import IAccountant, register_accountant
from opacus.optimizers import DPOptimizer

from privcalc import errors
from privcalc.calibration import dpsgd
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.batches import Watch
from privcalc.interop.opacus.sampler import coin_rate
from privcalc.interop.opacus.supported import check_optimizer
from privcalc.interop.opacus.trained import Trained
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Run

__all__ = ["PrivcalcAccountant", "coin_rate", "get_noise_multiplier", "register"]

NAME = "privcalc"

NOTHING = (
    "history: has no steps: an engine that was made anew knows nothing of those of an optimizer that another one made private; "
    "ask that engine, or, if nothing ran yet, ask again when it did"
)


class PrivcalcAccountant(IAccountant):  # type: ignore[misc]
    """Opacus's accountant with certified answers: the run it has seen is composed as Poisson-sampled Gaussians.

    Attributes:
        history: (noise multiplier, nominal rate, steps), steps in a row with the same numbers together.
        records: how many the loader has, where one was watched: a δ that is not below one over it is warned of.
        doubt: why ε may not hold (batches that look as if no coins had drawn them, noise that can be repeated, steps taken before
            that the history lacks, running means), which every answer then warns of; None if nothing was seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[float, float, int]] = []
        self.records: int | None = None
        self.doubt: str | None = None

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
        """What ran, at the rate of Opacus's coins; warns where nothing ran, batches were no samples, or noise can be repeated.

        Raises:
            PrivcalcError: if a step had no noise.
        """
        if doubt := self.doubt if self.history else NOTHING:
            errors.warn(doubt)
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
        errors.check_delta(errors.delta("delta", delta), self.records)
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
            watch = Watch.of(optimizer)
            if watch is None:
                raise PrivcalcError("optimizer: its batches were not watched: call register() before make_private")
            self.records, self.doubt = watch.records, self.doubt or watch.doubt or watch.repeatable
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
    does a second step on a batch, a batch left out, coins or a seed that are used again, and a gradient that is not finite; and
    trainable parameters of the module that the optimizer does not have, or that another optimizer moves. It warns of a module or
    optimizer with steps that the accountant was not told of, and of running means and other state that gets no noise. Where
    so many batches have one size that coins are in doubt, it warns, as does every answer, and refuses what can be no chance.
    Engines with other accountants stay as they are.
    """
    register_accountant(NAME, PrivcalcAccountant, force=True)
    if not hasattr(PrivacyEngine.make_private, "privcalc_watches"):
        PrivacyEngine.make_private = _watching(PrivacyEngine.make_private)


def _watching(make_private: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    @functools.wraps(make_private)
    def watched(engine: PrivacyEngine, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        trained = Trained(kwargs["module"]) if "module" in kwargs else None  # as it was before
        made = make_private(engine, *args, **kwargs)
        if trained is not None:
            trained.owner = made[0]
        if trained is not None and isinstance(engine.accountant, PrivcalcAccountant):
            Watch(made[1], made[-1], trained, engine)
        else:
            made[1].privcalc_trained = trained  # for a ledger, if one is kept
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
        steps = dpsgd.whole_steps(epochs or 0.0, rate)
    return dpsgd.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=coin_rate(rate), steps=steps, relation=relation)


def _entry(entry: Any) -> tuple[float, float, int]:
    """One entry of a history, checked."""
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise PrivcalcError(f"history = {entry!r}: must have entries (noise multiplier, sample rate, steps)")
    allowed = "a finite number >= 0"
    noise = errors.real("noise_multiplier", entry[0], allowed, low=0.0, high=math.inf, open_high=True)
    return noise, errors.rate("sample_rate", entry[1]), errors.count("steps", entry[2], least=1)
