"""Under Opacus: parameters move along noisy gradients only, by Opacus's own code, in one thread (``proofs/interop.md``, §3)."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
import pkgutil
import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from opacus.grad_sample import grad_sample_module
from opacus.optimizers import DPOptimizer
from opacus.schedulers import grad_clip_scheduler
from torch.nn.utils import _expanded_weights
from torch.nn.utils._expanded_weights import expanded_weights_utils
from torch.optim import optimizer as everywhere
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.doubts import HOOKED, OWN_STEP, Doubts
from privcalc.interop.opacus.pickled import Made, Tell
from privcalc.interop.opacus.weights import Weights

__all__ = ["MOVED", "Guards", "watch_schedules"]

MOVED = (
    "parameters: must not change between a batch's forward pass and its private step: another optimizer's step, also "
    "that of the one that was given to make_private, moves them without noise. Call step() of the returned one "
    "alone; change parameters by hand (averages, constraints) after it"
)

EDITED = (
    "grad_sample: was changed between backward() and step(): ε holds only if each row still comes from one record alone, as a "
    "mean over augmentations of that record does, and what centres, ranks or mixes the rows does not"
)

CLIP_NORM = (
    "max_grad_norm: was changed between steps: ε holds only if what it is changed by is public or was released, and not the "
    "norms of private gradients. For a public schedule use opacus.schedulers; or declare it, pc.Assumptions(clip_norm='public')"
)

PUBLIC = (
    "parameters: another optimizer moves them along gradients without noise: ε covers that only if these are of public records "
    "alone"
)

METRICS = (
    "metrics: a learning rate that follows them is a release of what they are of: ε covers it only if that is public or was "
    "released through the ledger; not the loss of private records"
)

Sums = list[tuple[torch.Tensor | None, str]]
"""Sums, and what they were."""

OUTSIDE = (
    "__init__",
    "__repr__",
    "__getstate__",
    "__setstate__",
    "add_param_group",
    "load_state_dict",
    "state_dict",
    "zero_grad",
)
"""Of torch's optimizers, and not in their steps."""

OWN = ("clip_and_accumulate", "accumulate")
"""Of Opacus's optimizers, and not to be replaced."""


class Guards:
    """What is held of one private optimizer between its steps.

    Attributes:
        waiting: whether a batch was drawn and has had no step.
        weights: its parameters.

    Args:
        optimizer: as ``make_private`` returned it. From now on every optimizer of torch that has one of its parameters is seen.
        doubts: is told what ε may not cover.
        whole: makes a digest of all that is saved with the module (:class:`Weights`).
    """

    def __init__(self, optimizer: DPOptimizer, doubts: Doubts, whole: Callable[[Mapping[int, bytes]], bytes]) -> None:
        self._optimizer, self._doubts = optimizer, doubts
        self.weights = Weights(optimizer, doubts, whole, id(self))
        self._owner: tuple[int, int] | None = None
        self._noisy: dict[int, tuple[torch.Tensor, int, float]] = {}  # of each parameter, while it is not cleared
        self._held: Sums | None = None  # of the pieces of a batch so far
        self._norm: object = None  # to which the records of the last step were clipped
        self.waiting = False
        self._moved: set[torch.Tensor] = set()  # parameters that steps were taken of, which are equal if they are the same
        for group in optimizer.param_groups:
            for p in group["params"]:
                vars(p)["privcalc_guard"] = id(self)  # whoever made it private last
                vars(p)["privcalc_pickled"] = Tell(p, doubts.tell)
        this = weakref.ref(self)

        def moves(other: torch.optim.Optimizer, *_: Any) -> None:
            guards = this()
            if guards is not None and guards._check_moves(other) and other is not guards._optimizer.original_optimizer:
                guards.weights.check()

        def moved(other: torch.optim.Optimizer, *_: Any) -> None:
            guards = this()
            if guards is not None and guards._check_moves(other):
                for doubt in _beside(other) if "start" not in doubts.said else ():
                    doubts.tell(doubt)
                guards.weights.moved()

        for each in (moves, moved):
            vars(each)["privcalc_guard"] = True
        weakref.finalize(self, register_optimizer_step_pre_hook(moves).remove)
        weakref.finalize(self, register_optimizer_step_post_hook(moved).remove)
        optimizer.original_optimizer.privcalc_private = doubts

    def check(self) -> None:
        """Raise PrivcalcError for another thread or process, code in the place of Opacus's, or a sum that was written to."""
        owner = os.getpid(), threading.get_ident()
        if self._owner not in (None, owner):
            raise PrivcalcError(
                "optimizer: must step in one thread of one process; what a fork or another thread does is not accounted for here"
            )
        self._owner = owner
        now = {p for group in self._optimizer.param_groups for p in group["params"]}
        if not self._moved <= now:
            raise PrivcalcError(
                "param_groups: must keep the parameters that private steps were taken of, whose changes are looked at: freeze "
                "one by requires_grad_(False) alone"
            )
        self._moved = now
        if replaced := [name for name in OWN if name in vars(self._optimizer)]:
            raise PrivcalcError(
                f"optimizer.{replaced[0]}: must stay Opacus's own, which clips, sums and scales as is accounted for"
            )
        held = self._held or [(None, "")] * len(self._optimizer.params)
        sums = [each for each in _sums(self._optimizer) if not hasattr(each[0], "_processed")]  # those Opacus refuses
        if sums and not _alike(held, sums):
            raise PrivcalcError("summed_grad: must stay as the clipped gradients of the pieces of a batch have made it")

        for p in self._optimizer.params:
            rows, made = getattr(p, "grad_sample", None), vars(p).get("privcalc_made")
            if isinstance(rows, torch.Tensor) and len(rows) and made != _made(rows):
                self._doubts.tell(EDITED)

    def look_at_numbers(self) -> None:
        """A step is about to be taken: warn where weights, or another clip norm than before, come from nobody knows where."""
        now, said = _norms(self._optimizer), "clip_norm" in self._doubts.said
        if self._norm not in (None, now) and not said and vars(self._optimizer).get("privcalc_scheduled") != now:
            self._doubts.tell(CLIP_NORM)
        self._norm = now
        self.weights.check()

    def drawn(self) -> None:
        """The noisy gradients are there; Opacus may scale them once, in place."""
        self._noisy = self._gradients()

    def summed(self, *, complete: bool) -> None:
        """A piece was added to the sum; raise PrivcalcError if a complete one has no noisy gradients."""
        self._held = None if complete else _sums(self._optimizer)
        if complete:
            now = self._gradients()
            if any(grad is not self._noisy[p][0] or version > self._noisy[p][1] + 1 for p, (grad, version, _) in now.items()):
                raise PrivcalcError("grad: must stay what noise was added to, but for one factor")
            self._noisy = now

    def cleared(self) -> None:
        """The gradients were cleared."""
        self._noisy = {}
        if all(total is None for total, _ in _sums(self._optimizer)):
            self._held = None

    def _check_moves(self, other: torch.optim.Optimizer) -> bool:
        """Whether an optimizer has gradients for parameters; PrivcalcError, or a doubt, for gradients without noise."""
        groups = self._optimizer.param_groups
        own = {id(p) for group in groups for p in group["params"] if vars(p).get("privcalc_guard") == id(self)}
        moved = [p for group in other.param_groups for p in group["params"] if id(p) in own and p.grad is not None]
        plain = [p for p in moved if not self._is_noisy(p) and bool(p.grad.count_nonzero())]
        if not plain:
            return bool(moved)
        if self.waiting or any(getattr(p, name, None) is not None for p in plain for name in ("grad_sample", "_norm_sample")):
            raise PrivcalcError(f"{MOVED}. For public records use the module without Opacus's hooks (to_standard_module())")
        self._doubts.tell(PUBLIC)
        return True

    def _gradients(self) -> dict[int, tuple[torch.Tensor, int, float]]:
        return {id(p): (p.grad, p.grad._version, _norm(p.grad)) for p in self._optimizer.params}

    def _is_noisy(self, p: torch.Tensor) -> bool:
        grad, version, norm = self._noisy.get(id(p), (None, 0, 0.0))
        return p.grad is grad and p.grad is not None and p.grad._version == version and _norm(p.grad) == norm


def _beside(optimizer: torch.optim.Optimizer) -> list[str]:
    """What is to be said of code that is neither torch's nor ours, and runs in its steps or around them."""
    own = [OWN_STEP] if _has_own_code(type(optimizer)) else []
    hooks = (*everywhere._global_optimizer_pre_hooks.values(), *everywhere._global_optimizer_post_hooks.values())
    known = (getattr(each, "privcalc_guard", str(getattr(each, "__module__", None)).startswith("torch.")) for each in hooks)
    hooked = not all(known) or bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)
    return [*own, HOOKED] if hooked else own


def _has_own_code(kind: type) -> bool:
    """Whether a class of optimizers has other code than torch's in the place of some of torch's."""
    order = kind.__mro__
    of_torch = [each for each in order if each.__module__.startswith("torch.")]
    for name in set().union(*map(vars, of_torch)).difference(OUTSIDE):
        owner = next(each for each in order if name in vars(each))
        code = inspect.unwrap(vars(owner)[name]) if owner not in of_torch else None  # torch wraps the steps of all
        if callable(code) and not str(code.__module__).startswith("torch."):
            return True
    return False


def _norm(value: torch.Tensor) -> float:
    """Torch does not count what is written through ``.data``, by NumPy, or by scalers of gradients."""
    return float(torch.linalg.vector_norm(value, dtype=torch.float64))


def _sums(optimizer: DPOptimizer) -> Sums:
    sums = [getattr(p, "summed_grad", None) for p in optimizer.params]
    return [(each, "" if each is None else f"{each._version} {_norm(each)!r}") for each in sums]


def _alike(one: Sums, other: Sums) -> bool:
    return len(one) == len(other) and all(a is b and i == j for (a, i), (b, j) in zip(one, other, strict=True))


def _made(rows: torch.Tensor) -> Made:
    """Which tensor it is, how often it was written to, and the norms of its rows."""
    norms = torch.linalg.vector_norm(rows.detach().reshape(len(rows), math.prod(rows.shape[1:])), dim=1, dtype=torch.float64)
    return Made((id(rows), rows.data_ptr(), rows._version, norms.cpu().numpy().tobytes()))


def _norms(optimizer: DPOptimizer) -> tuple[float, ...]:
    return float(optimizer.max_grad_norm), *map(float, getattr(optimizer, "max_grad_norms", ()))


def watch_gradients() -> None:
    """Have the gradients of single records noted when Opacus's hooks have made them."""
    promote = grad_sample_module.promote_current_grad_sample
    if hasattr(promote, "privcalc_watches"):
        return

    @functools.wraps(promote)
    def watched(p: torch.nn.Parameter) -> None:
        promote(p)
        rows = getattr(p, "grad_sample", None)
        if isinstance(rows, torch.Tensor):
            vars(p)["privcalc_made"] = _made(rows)

    vars(watched)["privcalc_watches"] = True
    grad_sample_module.promote_current_grad_sample = watched
    expand = expanded_weights_utils.set_grad_sample_if_exists

    @functools.wraps(expand)
    def expanded(value: Any, gradient: Any) -> None:
        expand(value, gradient)
        own = getattr(value, "orig_weight", None)
        if own is not None:
            vars(own)["privcalc_made"] = _made(own.grad_sample)

    for module in _expanding():
        vars(module)[expand.__name__] = expanded


def _expanding() -> list[ModuleType]:
    """The modules of torch's expanded weights, each of which has a name for what writes the gradients of records."""
    names = [f"{_expanded_weights.__name__}.{each.name}" for each in pkgutil.iter_modules(_expanded_weights.__path__)]
    return [module for module in map(importlib.import_module, names) if hasattr(module, "set_grad_sample_if_exists")]


def watch_schedules() -> None:
    """Have schedules that follow a metric warn, where they are of a private optimizer: they may read private records.

    Those of clip norms say which they have set.
    """
    kind: Any = torch.optim.lr_scheduler.ReduceLROnPlateau
    if hasattr(kind.step, "privcalc_watches"):
        return
    step = kind.step

    @functools.wraps(step)
    def watched(schedule: Any, *args: Any, **kwargs: Any) -> None:
        optimizer = getattr(schedule.optimizer, "original_optimizer", schedule.optimizer)
        doubts: Doubts | None = getattr(optimizer, "privcalc_private", None)
        if doubts is not None:
            doubts.tell(METRICS)
        step(schedule, *args, **kwargs)

    vars(watched)["privcalc_watches"] = True
    kind.step = watched
    clips: Any = grad_clip_scheduler._GradClipScheduler
    set_norm = clips.step

    @functools.wraps(set_norm)
    def setting(schedule: Any) -> None:
        set_norm(schedule)
        if not isinstance(schedule, grad_clip_scheduler.LambdaGradClip):  # which reads what it likes
            schedule.optimizer.privcalc_scheduled = _norms(schedule.optimizer)

    clips.step = setting
