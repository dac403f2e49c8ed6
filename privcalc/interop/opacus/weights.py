"""Under Opacus: weights and momenta are those that steps have left, or somebody is told (``proofs/interop.md``, §3)."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from opacus.optimizers import DPOptimizer

from privcalc import errors
from privcalc.interop.opacus.doubts import Doubts
from privcalc.interop.opacus.past import Past

__all__ = ["Look", "Weights", "digest_of"]

RESUMED = (
    "parameters: those at the first step of this optimizer or loader are none that this ledger's steps have left, nor those that "
    "they began with: ε holds only if they, and buffers, follow from such weights, or are a start of their own that is public or "
    "was released; not of private records. If so, it can be declared where the ledger is first opened: "
    "pc.Assumptions(start='released')"
)

WRITTEN = (
    "parameters: were written by hand between private steps, or after them (load_state_dict, .data, copy_): ε holds only if "
    "what was written follows from released weights, as averages over steps and constraints do, or from public records, not from "
    "private ones. Where a ledger is kept, it can be declared: pc.Assumptions(start='released')"
)

MOMENTA = (
    "optimizer: its state, such as momenta, is none that its steps have left: the next step writes it to the weights, and ε "
    "holds only if it follows from released weights or public records, not from private ones. Where a ledger is kept, it can be "
    "declared: pc.Assumptions(start='released')"
)

LATE = (
    "parameters: those that are saved now are none that a step has left: they were written after the ledger ended, and its "
    "certificate cannot say so. ε holds of them only if they follow from released weights (averages, rounding, pruning) or from "
    "public records, not from private ones"
)


class Weights:
    """The parameters of a private optimizer, and its state, as the steps of torch's optimizers have left them.

    Looked at are their bits, also where they were written to through ``.data``. To go back to weights that were there before is
    no change by hand, nor is what happens before the first private step: it is another start, unless a ledger knows of others.

    Args:
        optimizer: as ``make_private`` returned it.
        doubts: is told.
        whole: makes a digest of all that is saved with the module, of those of these parameters, by their ids.
        guard: the name that the parameters have while no later optimizer has made them private.

    Attributes:
        past: what a ledger knows, where one is kept.
    """

    def __init__(self, optimizer: DPOptimizer, doubts: Doubts, whole: Callable[[Mapping[int, bytes]], bytes], guard: int) -> None:
        self._optimizer, self._doubts, self._whole, self._guard = optimizer, doubts, whole, guard
        self._known: set[bytes] = set()
        self.past: Past | None = None
        self._late = False
        self._norms: list[float] = []  # when they were looked at last

    def check(self) -> None:
        """They are about to move; nobody need be told where somebody has declared where what is written is from."""
        found = self._own()
        weights, momenta, begins = b"".join(found.values()), self._momenta(), not self._known
        silent = "start" in self._doubts.said
        if not (silent or weights in self._known or self._left("weights", self._whole(found))):
            self._doubts.tell(RESUMED if begins else WRITTEN)
        if not (silent or momenta is None or momenta in self._known or self._left("momenta", momenta)):
            self._doubts.tell(MOMENTA)
        self._know(found, write=begins)

    def moved(self) -> None:
        """An optimizer has moved them."""
        if self._known:
            self._know(self._own(), write=True)

    def check_forward(self) -> None:
        """Gradients are about to be taken at them: also where they are put back before the step."""
        if not self._known or not torch.is_grad_enabled() or self._norms == self._sizes() or "start" in self._doubts.said:
            return
        if any(vars(p).get("privcalc_guard") != self._guard for p in self._optimizer.params):  # another's steps move them now
            return
        found = self._own()
        if not (b"".join(found.values()) in self._known or self._left("weights", self._whole(found))):
            self._doubts.tell(WRITTEN)

    def check_saved(self) -> None:
        """Somebody takes them away; after the end of a ledger they are what its certificate is about."""
        if not self._known or self.past is None or not self.past.ended or self._late or "start" in self._doubts.said:
            return
        self._late = not self.past.knows("weights", self._whole({}))
        if self._late:
            errors.warn(LATE)

    def _left(self, kind: str, digest: bytes) -> bool:
        """Whether a ledger's steps have left this; at first, where it has seen none, it is the start."""
        if self.past is None or not self.past.begun:
            return not self._known
        return self.past.knows(kind, digest)

    def _know(self, found: Mapping[int, bytes], *, write: bool) -> None:
        self._norms = self._sizes()
        momenta = self._momenta()
        self._known |= {b"".join(found.values())} | ({momenta} if momenta else set())
        if write and self.past is not None:
            self.past.left(weights=self._whole(found), **({"momenta": momenta} if momenta else {}))

    def _sizes(self) -> list[float]:
        """Norms, which are faster than digests."""
        return [float(torch.linalg.vector_norm(p.detach(), dtype=torch.float64)) for p in self._optimizer.params]

    def _own(self) -> dict[int, bytes]:
        return {id(p): digest_of([p]) for group in self._optimizer.param_groups for p in group["params"]}

    def _momenta(self) -> bytes | None:
        """Of all tensors of the optimizer's state; None if there are none."""
        states = (self._optimizer.state.get(p, {}) for group in self._optimizer.param_groups for p in group["params"])
        tensors = [each[name] for each in states for name in sorted(each) if isinstance(each[name], torch.Tensor)]
        return digest_of(tensors) if tensors else None


class Look:
    """A hook of a module, also for when it is saved by ``state_dict()``, a copy or a pickle. Copies have a blank one.

    Args:
        weights: of the module.
        how: the method of theirs that looks.
    """

    def __init__(self, weights: Weights | None = None, how: str = "") -> None:
        self._weights = (lambda: None) if weights is None else weakref.ref(weights)
        self._how = how

    def __call__(self, *_: Any) -> None:
        """Something is about to happen to the module."""
        if (weights := self._weights()) is not None:
            getattr(weights, self._how)()

    def __deepcopy__(self, _: Any) -> Look:
        if self._how == "check_saved":
            self()
        return Look()

    def __reduce__(self) -> tuple[type[Look], tuple[()]]:
        if self._how == "check_saved":
            self()
        return Look, ()


def digest_of(values: Iterable[torch.Tensor]) -> bytes:
    """Of their bits, one after another."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()
