"""Under Opacus: what training changes is moved by private steps alone, and all of them count (``proofs/interop.md``, §3)."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer

from privcalc.errors import PrivcalcError
from privcalc.interop.opacus.alone import MIXED, differs_alone
from privcalc.interop.opacus.doubts import Doubts
from privcalc.interop.opacus.guards import MOVED
from privcalc.interop.opacus.losses import Losses, watch_backward
from privcalc.interop.opacus.own import SAMPLER, check_owner, has_own_sampler
from privcalc.interop.opacus.rows import AGAIN, check_rows, is_pending, watch_order, watch_rows
from privcalc.interop.opacus.weights import Look, digest_of

__all__ = ["Trained"]

_AGAIN, _MIXED = "privcalc_again", "privcalc_mixed"
TRAINED = b""
"""In place of a digest."""


class Trained:
    """What the private optimizer of a module has to protect.

    Args:
        module: what ``make_private`` is about to be given, wrapped or not.

    Attributes:
        owner: what takes the gradients of its records, when that is known.
    """

    def __init__(self, module: Any) -> None:
        self._module: torch.nn.Module = module._module if isinstance(module, AbstractGradSampleModule) else module
        before = vars(self._module).get("privcalc_steps")
        if before is None:  # 1 for at least one: another private optimizer had these parameters, and nothing watched it
            before = int(any(hasattr(p, "summed_grad") for p in self._module.parameters()))
        self._before: int = before
        self.owner: Any = None
        self._doubts = Doubts()
        self._losses = Losses()
        self._state = False  # was it said that other state changes?
        self._stays: dict[int, tuple[torch.Tensor, int, bytes]] = {}  # of parameters that are not trained, which may be many

    def watch(self, doubts: Doubts, look: Callable[..., None]) -> None:
        """Have the state before each forward pass of training noted, and looked at, and be told of what is changed."""
        self._doubts = doubts
        for hooks in (self._module._forward_pre_hooks, self._module._state_dict_pre_hooks, self._module._forward_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(hook, Look | Losses)]:  # of one before this
                del hooks[key]
        if getattr(self.owner, "batch_first", True) and _alone not in self._module._forward_pre_hooks.values():
            self._module.register_forward_pre_hook(_alone, with_kwargs=True)
        if _note not in self._module._forward_pre_hooks.values():
            self._module.register_forward_pre_hook(_note)
        self._module.register_forward_pre_hook(look)
        self._module.register_forward_hook(self._losses)
        watch_backward()
        watch_rows()
        watch_order(self._module)

    @property
    def module(self) -> torch.nn.Module:
        """As it is trained, without Opacus's wrapping."""
        return self._module

    def begin(self) -> None:
        """A batch is given out: what is saved without noise must stay as it is before the first."""
        _keep(self._module)

    def saving(self, look: Callable[..., None]) -> None:
        """Have this called when the module is saved."""
        untyped: Any = self._module
        untyped.register_state_dict_pre_hook(look)

    def check(self, optimizer: DPOptimizer) -> None:
        """Raise PrivcalcError if more is trained than the optimizer's parameters, or by more than it; warn of other state."""
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        outside = [name for name, p in self._module.named_parameters() if p.requires_grad and id(p) not in own]
        if outside:
            raise PrivcalcError(
                f"optimizer: {len(outside)} trainable parameters of the module are not in the private optimizer "
                f"({_named(outside)}): what another makes of their gradients has no noise. Make all of them private, or freeze "
                "them with requires_grad_(False)"
            )
        self.check_moved(optimizer)
        self._check_rows()
        self._check_norms()
        self._check_state(own)
        self.check_buffers()

    def check_losses(self, reduction: str, records: int) -> None:
        """Warn where what gradients of so many records are of is no mean, or sum, of one loss for each record."""
        self._losses.check(reduction, records, self._doubts)

    def cleared(self) -> None:
        """The gradients were cleared."""
        self._losses.clear()

    def check_moved(self, optimizer: DPOptimizer) -> None:
        """Raise PrivcalcError if a parameter was changed since the forward pass whose gradients have not had a private step."""
        if any(_noted(p) and _moved(p) for group in optimizer.param_groups for p in group["params"]):
            raise PrivcalcError(MOVED)

    def _check_rows(self) -> None:
        """Row i of all gradients is record i's, as far as is seen."""
        check_owner(self.owner)
        check_rows(self._module)
        noted = vars(self._module)
        again, mixed = noted.pop(_AGAIN, False), noted.get(_MIXED, 0) > 1
        for doubt, seen in ((AGAIN, again), (MIXED, mixed), (SAMPLER, has_own_sampler(self._module))):
            if seen:
                self._doubts.tell(doubt)

    def _check_norms(self) -> None:
        """Torch does not count what batch normalisation writes to its buffers, and Opacus looks at trainable modules alone."""
        mixing = [
            name
            for name, each in self._module.named_modules()
            if isinstance(each, torch.nn.modules.batchnorm._BatchNorm) and (each.training or each.running_mean is None)
        ]
        if mixing:
            raise PrivcalcError(
                f"module: batch normalisation ({_named(mixing)}) scales each record by the others of its batch, and keeps their "
                "means, also where it is frozen: clipping does not bound that. Use GroupNorm or LayerNorm (Opacus's "
                "ModuleValidator.fix), or, with statistics of public records, eval() for these modules alone"
            )

    def _check_state(self, own: set[int]) -> None:
        """Buffers and frozen parameters: noted at the forward pass, and another tensor, or written to, since."""
        if self._state or not any(map(_noted, self._module.parameters())):
            return
        others = [(name, p) for name, p in self._module.named_parameters() if id(p) not in own]
        changed = {name for name, value in (*others, *self._module.named_buffers()) if not _noted(value) or _moved(value)}
        # The others are caches; and how many batches there were is no secret.
        changed &= {name for name, _ in _kept(self._module)} | {name for name, _ in others}
        self._tell(changed)

    def check_buffers(self, *, frozen: bool = False) -> None:
        """Saved buffers, by their bits since the first forward pass of training: also those written to through ``.data``.

        And frozen parameters, which may be many, when asked for.
        """
        for which, now in (("privcalc_buffers", _saved), ("privcalc_frozen", _frozen))[: 1 + frozen]:
            if not self._state and (before := vars(self._module).get(which)) is not None:
                self._tell(name for name, bits in now(self._module).items() if before.get(name) not in (bits, TRAINED))

    def whole(self, own: Mapping[int, bytes]) -> bytes:
        """A digest of all that is saved with the module, given those of the parameters that are trained, by their ids.

        Given none, all are looked at; else those of others are kept until torch counts that they were written to.
        """
        if not own:
            self._stays.clear()
        found = hashlib.sha256()
        for p in (getattr(p, "orig_weight", p) for p in self._module.parameters()):
            found.update(own[id(p)] if id(p) in own else self._of_frozen(p))
        for name, bits in sorted(_saved(self._module).items()):
            found.update(name.encode() + bits)
        return found.digest()

    def _of_frozen(self, p: torch.Tensor) -> bytes:
        kept = self._stays.get(id(p))
        if kept is None or kept[0] is not p or kept[1] != _version(p):
            kept = self._stays[id(p)] = p, _version(p), digest_of([p])
        return kept[2]

    def _tell(self, changed: Iterable[str]) -> None:
        if names := sorted(changed):
            self._state = True
            self._doubts.tell(
                f"module: its training changes what no noise is added to ({_named(names)}): ε does not cover it, as "
                "running means of the records, unless it follows from the parameters alone. For normalisation use "
                "GroupNorm or LayerNorm"
            )

    def untold(self, optimizer: DPOptimizer, known: int) -> str | None:
        """Why module or optimizer must have taken more than the steps that are known."""
        taken = max(self._before, max((_steps(state) for state in optimizer.state.values()), default=0))
        if taken <= known:
            return None
        return (
            f"optimizer: its state, or the module's, comes from at least {taken} steps, of which {known} are accounted for: ε "
            "does not cover the others, unless they used public records only. After a checkpoint load the accountant's history, "
            "too (engine.load_checkpoint), and go on with its ledger; for a new run make a new module and a new optimizer"
        )

    def stepped(self, known: int) -> None:
        """A step was taken, after ``known`` others: the module remembers how many, and what was noted of it is done with."""
        vars(self._module)["privcalc_steps"] = self._before = max(self._before, known) + 1
        for value in (*self._module.parameters(), *self._module.buffers()):
            vars(value).pop("privcalc_version", None)


def _alone(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """Look at a record alone at every tenth step and the first ten; twice, as a table may be as long as a batch by chance."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return
    noted = vars(module)
    steps, mixed = noted.get("privcalc_steps", 0), noted.get(_MIXED, 0)
    if (
        mixed < 2
        and (steps < 10 or steps % 10 == 0)
        and any(each.training for each in module.modules())
        and differs_alone(module, args, kwargs)
    ):
        noted[_MIXED] = mixed + 1


def _note(module: torch.nn.Module, _: Any) -> None:
    """The state of a module before a forward pass of training; a function of its own, which copies and pickles with it."""
    if any(each.training for each in module.modules()) and torch.is_grad_enabled():
        for value in (*module.parameters(), *module.buffers()):
            own = getattr(value, "orig_weight", value)  # of torch's expanded weights, which take its place in the forward pass
            vars(own)["privcalc_version"] = _version(own)
        _keep(module)
        if is_pending(module):
            vars(module)[_AGAIN] = True


def _keep(module: torch.nn.Module) -> None:
    """What is saved without noise, as it is before the first batch."""
    if "privcalc_buffers" not in vars(module):
        vars(module)["privcalc_buffers"], vars(module)["privcalc_frozen"] = _saved(module), _frozen(module)


def _saved(module: torch.nn.Module) -> dict[str, bytes]:
    """Digests of the buffers that are saved with a module, and of what else it says is to be saved."""
    found = {name: digest_of([value]) for name, value in _kept(module)}
    for path, each in module.named_modules():
        if type(each).get_extra_state is not torch.nn.Module.get_extra_state:
            name = f"{path}._extra_state" if path else "_extra_state"
            found[name] = hashlib.sha256(pickle.dumps(each.get_extra_state())).digest()
    return found


def _kept(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The buffers that are saved with a module, but how many batches there were, which is no secret."""
    return [
        (f"{path}.{name}" if path else name, value)
        for path, each in module.named_modules()
        for name, value in each._buffers.items()
        if value is not None and name not in each._non_persistent_buffers_set
        if not (name == "num_batches_tracked" and value.dtype is torch.int64 and value.numel() == 1)
    ]


def _frozen(module: torch.nn.Module) -> dict[str, bytes]:
    """Digests of the parameters that are not trained; of the others that they are."""
    own = {name: getattr(p, "orig_weight", p) for name, p in module.named_parameters()}
    return {name: TRAINED if p.requires_grad else digest_of([p]) for name, p in own.items()}


def _noted(value: torch.Tensor) -> bool:
    return "privcalc_version" in vars(value)


def _moved(value: torch.Tensor) -> bool:
    return bool(_version(value) != vars(value)["privcalc_version"])


def _version(value: torch.Tensor) -> int:
    """How often a tensor was written to, as far as torch counts: not through ``.data``, nor in inference mode."""
    return -1 if value.is_inference() else value._version


def _steps(state: Any) -> int:
    """How many steps an optimizer's state of one parameter comes from, at least."""
    if "step" in state:
        return int(state["step"])
    return int(state.get("momentum_buffer") is not None)


def _named(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
