"""Under Opacus: what ε may not cover, said once, with every answer, and in the certificate (``proofs/interop.md``, §3)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from privcalc import errors

__all__ = ["HOOKED", "OWN_STEP", "SEEDED", "Doubts", "known_seed"]

HOOKED = (
    "optimizer: has hooks around its own steps (register_step_pre_hook, register_step_post_hook, or those of torch for all "
    "optimizers): ε holds only if none of them "
    "writes to parameters what does not follow from released weights. Do by hand, after step(), what they do"
)

OWN_STEP = (
    "optimizer: its step is code of its own, none of torch's: ε holds only if what it writes to parameters follows from the "
    "gradients that have noise, and from nothing else of the records. Where a ledger is kept, it can be declared: "
    "pc.Assumptions(start='released')"
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


def known_seed(device: torch.device) -> bool:
    """Whether torch's own generator for a device has a seed that may be guessed."""
    own = torch.initial_seed() if device.type == "cpu" else torch.get_device_module(device).initial_seed()
    return own < SMALL or 2**64 - own < SMALL
