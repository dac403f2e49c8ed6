"""Under Opacus: what ε may not cover, said once, with every answer, and in the certificate (``proofs/interop.md``, §3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable

import torch
from opacus.optimizers import DPOptimizer

from privcalc import errors

__all__ = ["HOOKED", "SEEDED", "Doubts", "Weights", "digest_of", "known_seed"]

WRITTEN = (
    "parameters: were written by hand between private steps, or after them (load_state_dict, .data, copy_): ε holds only if "
    "what was written follows from released weights, as averages over steps and constraints do, or from public records, not from "
    "private ones. Where a ledger is kept, it can be declared: pc.Assumptions(start='released')"
)

HOOKED = (
    "optimizer: has hooks around its own steps (register_step_pre_hook, register_step_post_hook, or those of torch for all "
    "optimizers): ε holds only if none of them "
    "writes to parameters what does not follow from released weights. Do by hand, after step(), what they do"
)

SEEDED = (
    "torch.manual_seed: {what} of torch's own generator, whose seed is a small number: whoever guesses it can make them again, "
    "and ε holds for secret ones only. Call torch.seed() before the first step, and seed data and weights by a torch.Generator "
    "of their own; or have the ledger draw (keep_ledger(draws=True))"
)

SMALL = 2**32
"""Torch begins with 64 random bits, which are a number below this, or above it negative, once in 2³¹ times."""


class Doubts:
    """What was seen of one private run, that follows from its program, so that a certificate may say it.

    Attributes:
        found: in the order in which it was seen.
        publish: warns of it, and writes it down, where a ledger is kept.
        said: what somebody has declared, of a ledger's assumptions.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.publish: Callable[[str], None] = errors.warn
        self.said: Collection[str] = ()

    def tell(self, text: str) -> None:
        """Once."""
        if text not in self.found:
            self.found.append(text)
            self.publish(text)

    def goes_to(self, publish: Callable[[str], None]) -> None:
        """Tell what was found, and what will be, so."""
        self.publish = publish
        for text in self.found:
            publish(text)


class Weights:
    """The parameters of a private optimizer, as the steps of torch's optimizers have left them.

    Looked at are their bits, also where they were written to through ``.data``. To go back to weights that were there before is
    no change by hand, nor is what happens before the first private step: it is another start.

    Args:
        optimizer: as ``make_private`` returned it.
        doubts: is told.
    """

    def __init__(self, optimizer: DPOptimizer, doubts: Doubts) -> None:
        self._optimizer, self._doubts = optimizer, doubts
        self._known: set[bytes] = set()

    def check(self) -> None:
        """They are about to move; nobody need be told where somebody has declared where what is written is from."""
        now = self._digest()
        if self._known and now not in self._known and "start" not in self._doubts.said:
            self._doubts.tell(WRITTEN)
        self._known.add(now)

    def moved(self) -> None:
        """An optimizer has moved them."""
        if self._known:
            self._known.add(self._digest())

    def _digest(self) -> bytes:
        return digest_of(p for group in self._optimizer.param_groups for p in group["params"])


def digest_of(values: Iterable[torch.Tensor]) -> bytes:
    """Of their bits, one after another."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()


def known_seed(device: torch.device) -> bool:
    """Whether torch's own generator for a device has a seed that may be guessed."""
    own = torch.initial_seed() if device.type == "cpu" else torch.get_device_module(device).initial_seed()
    return own < SMALL or 2**64 - own < SMALL
