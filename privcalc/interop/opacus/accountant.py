"""The accountant for ``PrivacyEngine``: it composes the run it saw as Poisson-sampled Gaussians, certified."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from opacus.accountants import IAccountant, register_accountant
from opacus.optimizers import DPOptimizer

from privcalc import errors
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.checks import check_noise, check_optimizer, length
from privcalc.interop.opacus.optimizer import Kept
from privcalc.interop.opacus.sampler import coin_rate
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Run
from privcalc.tripwire import Sizes, check_sum

NAME = "privcalc"

LEAST = 4
"""The least batch whose size is looked at.

Opacus tells the number of records up to one batch's rounding only.
"""

NOTHING = (
    "history: has no steps: an engine that was made anew knows nothing of those of an optimizer that another one made "
    "private; ask that engine, or, if nothing ran yet, ask again when it did"
)


class PrivcalcAccountant(IAccountant):  # type: ignore[misc]
    """Opacus's accountant with certified answers: the run it has seen is composed as Poisson-sampled Gaussians.

    Attributes:
        history: (noise multiplier, nominal rate, steps), steps in a row with the same numbers together.
        records: how many there are at least, as far as steps have shown: a δ that is not below one over it is warned
            of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[float, float, int]] = []
        self.records: int | None = None
        self._sizes: Sizes | None = None

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
        """What ran, at the rate of Opacus's coins; warns where nothing ran.

        Raises:
            PrivcalcError: if a step had no noise.
        """
        if not self.history:
            errors.warn(NOTHING)
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
            A function of the optimizer, which raises PrivcalcError if its steps are no Gaussians of known noise, its
            noise is too small, its sum too long, or no coins can have drawn batches of such sizes.
        """
        rate = errors.rate("sample_rate", sample_rate)

        def hook(optimizer: DPOptimizer) -> None:
            self._look(optimizer, rate)
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=rate)

        return hook

    def _look(self, optimizer: DPOptimizer, rate: float) -> None:
        """What is seen of a step whose noise was drawn."""
        if isinstance(optimizer, Kept):  # which has looked before
            return
        check_optimizer(optimizer)
        expected = optimizer.expected_batch_size or 0
        check_noise(optimizer, expected if optimizer.loss_reduction == "mean" else 1.0)
        rows = getattr(optimizer.params[0], "grad_sample", None) if optimizer.params else None
        if rows is None or getattr(optimizer, "_is_last_step_skipped", True):
            return  # ghost clipping, or a batch in pieces: how many records are in the sum is not seen
        size = len(rows)
        check_sum(
            "gradients",
            length([p.summed_grad for p in optimizer.params]),
            clip_norm=optimizer.max_grad_norm,
            records=size,
        )
        if self._sizes is None and expected >= LEAST:
            self.records = math.ceil(expected / rate)  # or more: Opacus rounds what it expects down
            self._sizes = Sizes(coin_rate(rate), self.records)
        if self._sizes is not None:
            self._sizes.add(size)
            self._sizes.check()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            PrivcalcError: if the history is none, or steps were taken already, which would be forgotten; ValueError, by
                Opacus, for another accountant's.
        """
        loaded = type(self)()
        IAccountant.load_state_dict(loaded, state_dict)
        if not isinstance(loaded.history, (list, tuple)):
            raise PrivcalcError(f"history = {loaded.history!r}: must be a list")
        history = [_entry(entry) for entry in loaded.history]
        if self.history:
            raise PrivcalcError(
                f"state_dict: {len(self)} steps were taken already, and would be forgotten: load a checkpoint before "
                "the first step; to go back to earlier parameters, load these alone"
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

    An accountant is told noise and rate after the noise of a step was drawn, and nothing of batches: that each step is
    one whole Poisson batch of the loader that ``make_private`` returned is your word. A ledger counts them
    (:func:`keep_ledger`).
    """
    register_accountant(NAME, PrivcalcAccountant, force=True)


def _entry(entry: Any) -> tuple[float, float, int]:
    """One entry of a history, checked."""
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise PrivcalcError(f"history = {entry!r}: must have entries (noise multiplier, sample rate, steps)")
    allowed = "a finite number >= 0"
    noise = errors.real("noise_multiplier", entry[0], allowed, low=0.0, high=math.inf, open_high=True)
    return noise, errors.rate("sample_rate", entry[1]), errors.count("steps", entry[2], least=1)
