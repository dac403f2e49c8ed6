"""Under Opacus: every step sums one Poisson batch, all of it, once, and no other record (``proofs/interop.md``, §3)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.doubts import SEEDED, Doubts, known_seed
from privcalc.interop.opacus.ghost import Ghost
from privcalc.interop.opacus.guards import Guards, watch_gradients, watch_schedules
from privcalc.interop.opacus.own import check_noise, check_own
from privcalc.interop.opacus.past import Past, State, Used, state_of
from privcalc.interop.opacus.sampler import PRECISE, RULE, Drawn, check_loader, coin_rate
from privcalc.interop.opacus.supported import check_optimizer
from privcalc.interop.opacus.trained import Trained
from privcalc.interop.opacus.weights import Look
from privcalc.interop.torch.copies import COPIES, has_copies
from privcalc.interop.torch.records import Records
from privcalc.noise.bits import SecureBits
from privcalc.tripwire import Sizes, check_sum

__all__ = ["Watch"]

_ONE_SEED = "by whoever knows the seed, and a torch.Generator has one and the same seed in every process unless another is set"
REPEATABLE = (
    f"noise_generator: its noise can be repeated, and taken away again, {_ONE_SEED}: ε holds for secret noise only. Leave it "
    "out, or call exact_noise"
)
"""Of noise from a generator that somebody made."""
KNOWN_COINS = (
    f"data_loader: the coins of its generator can be tossed again {_ONE_SEED}: ε holds for secret batches only. Give no "
    "generator to the DataLoader, or have the ledger draw (keep_ledger(draws=True))"
)
"""Of batches from one."""


class Watch:
    """Checks every step of an optimizer, before its noise is drawn.

    Args:
        optimizer: as ``make_private`` returned it; it is watched from now on.
        data_loader: likewise. What does not fit is refused when a step is taken.
        trained: the module, as it was before ``make_private``.
        engine: whose accountant counts the steps, if one does.

    Attributes:
        data_loader: the loader.
        charge: what pays for a step that was found right, before its noise is drawn.
        release: what pays for the sum of such a step and draws its noise, both, where that is a ledger's.
        charged: how many steps were paid for, where a ledger is kept.
        doubts: what ε may not cover, as far as that may be published.
        doubt: why ε may not hold (one of them, or batches as if no coins had drawn them); None if it may.
        reproducible: whether nobody claims privacy.
        steps: how many had their noise drawn since it is watched.
    """

    def __init__(self, optimizer: DPOptimizer, data_loader: Any, trained: Trained, engine: PrivacyEngine | None = None) -> None:
        self.data_loader, self._trained, self.doubts = data_loader, trained, Doubts()
        self._guards = Guards(optimizer, self.doubts, trained.whole)
        self._dataset: Records | None = None
        self.charge: Callable[[], None] | None = None
        self.release: Callable[[torch.Tensor, float], torch.Tensor] | None = None
        self.charged: Callable[[], int] | None = None
        self.reproducible = False
        self.steps = 0
        self._known = 0  # steps before the first that is watched
        self._untold: str | None = None
        self._copied = COPIES if has_copies(data_loader.dataset) else None
        self._warned = False
        self._sizes: Sizes | None = None
        self._optimizer = optimizer
        self._fixed = optimizer.step_hook, optimizer.expected_batch_size, optimizer.loss_reduction
        self._engine, self._accountant = engine, None if engine is None else engine.accountant
        self._prepare, self._draw, self._clear = optimizer.pre_step, optimizer.add_noise, optimizer.zero_grad
        self._summed = 0  # records in the sum so far
        self._bounds: set[float] = set()  # by which they were clipped
        sampler: Any = getattr(data_loader, "batch_sampler", None)
        self._sampler = sampler
        if type(sampler) is UniformWithReplacementSampler:
            sampler.__class__ = Drawn  # the loader cannot be given another one, and memory managers take this one
            sampler.sizes, sampler.rate, sampler.states = deque(), sampler.sample_rate, Used()
            sampler.ahead = data_loader.num_workers * (data_loader.prefetch_factor or 0)
            sampler.guards, sampler.draw, sampler.first = self._guards, None, trained.begin
        ghostly = isinstance(optimizer, DPOptimizerFastGradientClipping)
        self._ghost = Ghost(optimizer, trained.module, self._bounds) if ghostly else None
        watch_schedules()
        watch_gradients()
        optimizer.pre_step, optimizer.add_noise, optimizer.zero_grad = self._pre_step, self._add_noise, self._zero_grad
        optimizer.privcalc_watch = self
        trained.watch(self.doubts, Look(self._guards.weights, "check_forward"))

    @property
    def records(self) -> int:
        """How many the loader has, which Opacus takes as public."""
        return int(self.data_loader.batch_sampler.num_samples)

    @property
    def doubt(self) -> str | None:
        """Why ε may not hold."""
        batches = None if self._sizes is None else self._sizes.doubt
        return batches or self._untold or self._copied or next(iter(self.doubts.found), None)

    @staticmethod
    def of(optimizer: DPOptimizer) -> Watch | None:
        """The one that watches an optimizer, if any does."""
        found: Watch | None = vars(optimizer).get("privcalc_watch")
        return found

    @property
    def repeatable(self) -> str | None:
        """What is wrong where noise or batches come from a generator that somebody made, whose seed may be known; else None."""
        own, secure = vars(self._optimizer), self._optimizer.secure_mode
        if "privcalc_noise" in own:
            known = own["privcalc_noise"] is not None and not isinstance(own["privcalc_noise"].bits, SecureBits)
        else:
            known = self._optimizer.generator is not None and not secure
        if known:
            return REPEATABLE
        tossed = getattr(self._sampler, "draw", None) is None and getattr(self._sampler, "generator", None) is not None
        return KNOWN_COINS if tossed and not secure else None

    def _check_seed(self) -> None:
        """Tell of noise and coins of torch's own generator, from which they come where none was given, if its seed is small."""
        devices = set() if "privcalc_noise" in vars(self._optimizer) else {p.device for p in self._optimizer.params}
        noise = self._optimizer.generator is None and any(map(known_seed, devices))
        coins = self._sampler.draw is None and self._sampler.generator is None and known_seed(torch.device("cpu"))
        if (noise or coins) and not self.reproducible:
            what = "noise and batches are" if noise and coins else "noise is" if noise else "batches are"
            self.doubts.tell(SEEDED.format(what=what))

    @property
    def by_ledger(self) -> bool:
        """Whether a ledger draws the noise that it charges for."""
        return self.release is not None and vars(self._optimizer).get("privcalc_noise", False) is None

    def goes_on(self, past: Past) -> None:
        """From what a ledger's steps have left."""
        self._guards.weights.past = past
        self._trained.saving(Look(self._guards.weights, "check_saved"))
        self._sampler.states.goes_to(past)

    def draws_batches_by(self, draw: Callable[[], list[int]]) -> None:
        """Have the loader's batches drawn so from now on."""
        check_loader(self.data_loader)
        self._sampler.draw = draw

    @property
    def size(self) -> int:
        """How many records are in the sum so far. Secret."""
        return self._summed

    def look_back(self) -> None:
        """No step may follow: has something been written since the last?"""
        if self.steps:
            self._guards.weights.check()
            self._trained.check_buffers(frozen=True)

    def draws_with(self, add_noise: Callable[[], None]) -> None:
        """Draw so from now on, after the same checks."""
        self._draw = add_noise

    def _zero_grad(self, *args: Any, **kwargs: Any) -> None:
        gradients = ("grad_sample", "_norm_sample")
        if any(getattr(p, name, None) is not None for p in self._optimizer.params for name in gradients):
            self._trained.check_moved(self._optimizer)
        if self._ghost is not None:
            self._ghost.clears()
        self._clear(*args, **kwargs)
        self._trained.cleared()
        self._guards.cleared()
        if self._ghost is not None:
            self._ghost.cleared()

    def _pre_step(self, *args: Any, **kwargs: Any) -> Any:
        """A physical batch is added to the sum."""
        check_optimizer(self._optimizer)
        check_own(self._optimizer)
        self._guards.check()
        self._check_fixed()
        self._trained.check(self._optimizer)
        steps = self.steps
        if self._optimizer.params:
            records = self._records()
            self._trained.check_losses(self._optimizer.loss_reduction, records)
            self._summed += records
            self._bounds.add(float(self._optimizer.max_grad_norm))
        complete = self._prepare(*args, **kwargs)
        if complete and self._optimizer.params and self.steps == steps:
            raise PrivcalcError("add_noise: must stay what it was when the optimizer was made private: no noise was drawn")
        self._guards.summed(complete=complete)
        return complete

    def _check_fixed(self) -> None:
        hook, size, reduction = self._fixed
        divides = self._optimizer.loss_reduction
        if getattr(self.data_loader, "batch_sampler", None) is not self._sampler:
            raise PrivcalcError("batch_sampler: must stay the one of make_private, whose batches are counted")
        if self._optimizer.step_hook is not hook:
            raise PrivcalcError("step_hook: must stay the accountant's: attach none after make_private")
        if self._engine is not None and self._engine.accountant is not self._accountant:
            raise PrivcalcError("accountant: must stay the one of make_private, which alone is told of the steps")
        if self._optimizer.expected_batch_size != size:
            found = self._optimizer.expected_batch_size
            raise PrivcalcError(f"expected_batch_size = {found!r}: must stay {size!r}; the size of a batch is private")
        if divides != reduction:
            raise PrivcalcError(f"loss_reduction = {divides!r}: must stay {reduction!r}; it says what sums are divided by")
        for group in self._optimizer.param_groups:
            for p in group["params"]:
                if not p.requires_grad and p.grad is not None and bool(p.grad.count_nonzero()):
                    raise PrivcalcError(
                        "requires_grad: a frozen parameter must have no gradient, which would move it without noise"
                    )

    def _records(self) -> int:
        """How many the gradients that are to be added are of."""
        found = self._optimizer.grad_samples if self._ghost is None else self._ghost.norms()
        sizes = {len(each) for each in found}
        if len(sizes) != 1:
            raise PrivcalcError("grad_sample: must have one gradient per record in every parameter")
        kinds = {each.dtype for each in (*found, *self._optimizer.params)}
        if not kinds <= set(PRECISE):
            raise PrivcalcError(
                f"gradients: must be in single or double precision, not {', '.join(sorted(map(str, kinds - set(PRECISE))))}: "
                "fewer digits neither keep the clip norm nor hold the noise"
            )
        size = sizes.pop()
        if self._ghost is not None:
            self._ghost.check_losses(size)
        return size

    def _add_noise(self) -> None:
        """A sum is complete."""
        check_optimizer(self._optimizer)
        check_loader(self.data_loader)
        sampler = self.data_loader.batch_sampler
        sizes: deque[int] = sampler.sizes
        if self._dataset is None:
            self._dataset = Records(self.data_loader.dataset)
        self._dataset.check(self.data_loader.dataset)
        if not sizes or self._summed != sizes[0]:
            what = (
                "no batch was drawn for this step" if not sizes else "the records of this step are not those of the batch drawn"
            )
            raise PrivcalcError(
                f"optimizer: {what}: {RULE}. Draw a batch for each step; accumulate with BatchMemoryManager only, and drop, add "
                "or repeat no record"
            )
        bound = float(self._optimizer.max_grad_norm)
        if self._bounds != {bound}:
            raise PrivcalcError(
                f"max_grad_norm = {bound!r}: must not change within a step; with ghost clipping, must stay the module's"
            )
        sums = [torch.isfinite(p.summed_grad).all() for p in self._optimizer.params]
        if not bool(torch.stack([each.to(sums[0].device) for each in sums]).all()):
            raise PrivcalcError(
                "gradients: must be finite; a NaN or infinity passes through clipping and noise, and shows that its record took "
                "part. Replace what is not finite in the records, or stop: the model may have diverged"
            )
        norms = [torch.linalg.vector_norm(p.summed_grad, dtype=torch.float64) for p in self._optimizer.params]
        check_sum("gradients", math.hypot(*map(float, norms)), clip_norm=bound, records=self._summed)
        self._check_sizes(sizes[0])
        self._guards.look_at_numbers()
        self._check_seed()
        if not self.steps:
            self._check_history()
        if self.charge is not None and not self.by_ledger:
            self.charge()
        elif self.charge is None and (repeatable := self.repeatable) is not None and not self._warned:
            errors.warn(repeatable)
            self._warned = True
        states, before = sampler.states, self._bits()
        if states.had(before):
            raise PrivcalcError(
                "optimizer: its noise would be made of bits that were used before, because the generator was in the same "
                "state: a seed that is set in every step does that, also within torch.random.fork_rng() around step(), and a "
                "state that is set back, as it was in this process or an earlier one of the run. Leave step() out of it, call "
                "torch.seed() in a run that is gone on with, or have exact noise drawn (exact_noise)"
            )
        self._draw()
        check_noise(self._optimizer)
        if before & (after := self._bits()) and self._optimizer.noise_multiplier > 0:
            raise PrivcalcError(
                "optimizer: the noise was not drawn from its generator, whose state has stayed: what draws it must stay Opacus's "
                "and torch's own"
            )
        states.add(before - after)
        self._guards.drawn()
        self._trained.stepped(self._known + self.steps)
        self.steps += 1
        # After the draw: if it fails, the sum may be there still, and must not be gone on with.
        sizes.popleft()
        self._guards.waiting = bool(sizes)
        self._summed = 0
        if self._ghost is None:
            self._bounds.clear()
        else:  # there the module clips, by a norm of its own
            self._ghost.stepped()

    def _bits(self) -> set[State]:
        """States of the generators that Opacus's noise is made of; none where others draw it."""
        if "privcalc_noise" in vars(self._optimizer):
            return set()
        return {state_of(self._optimizer.generator, device) for device in {p.device for p in self._optimizer.params}}

    def _check_sizes(self, size: int) -> None:
        """Coins are not all alike: warn, and refuse where there is no doubt any more."""
        if self._sizes is None:
            self._sizes = Sizes(coin_rate(self.data_loader.batch_sampler.sample_rate), self.records)
        said = self._sizes.doubt
        self._sizes.add(size)
        self._sizes.check()
        if said is None and self._sizes.doubt is not None:
            errors.warn(self._sizes.doubt)

    def _check_history(self) -> None:
        """All steps that made module and optimizer what they are count, and records once: a ledger refuses, else this warns."""
        self._copied = COPIES if has_copies(self.data_loader.dataset) else None
        if self._accountant is not None:
            self._known = len(self._accountant)
            self._untold = self._trained.untold(self._optimizer, self._known)
        if self.charged is not None:
            self._known = self.charged()
            untold = self._trained.untold(self._optimizer, self._known)
            if (wrong := untold or self._copied) is not None:
                raise PrivcalcError(wrong)
            return
        for doubt in filter(None, (self._untold, self._copied)):
            errors.warn(doubt)
