"""Weights that a loader is told of: they stay from the draw of a batch to its release, and are gone on with as they were left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from privcalc.errors import PrivcalcError
from privcalc.ledger.ledger import Ledger

__all__ = ["RESUMED", "Told", "digest_of"]

RESUMED = (
    "parameters: those at the first step of this optimizer or loader are none that this ledger's steps have left, nor those that "
    "they began with: ε holds only if they, and buffers, follow from such weights, or are a start of their own that is public or "
    "was released; not of private records. If so, it can be declared where the ledger is first opened: "
    "pc.Assumptions(start='released')"
)


class Told:
    """Weights that follow from what a ledger releases, as they are when its batches are drawn.

    Args:
        ledger: where digests of them are written down; the first weights are public, the others were released.
        weights: a module, all that it saves; or tensors that are written to in place.
    """

    def __init__(self, ledger: Ledger, weights: torch.nn.Module | Tensor | Iterable[Tensor]) -> None:
        self._ledger = ledger
        self._weights = weights if isinstance(weights, (torch.nn.Module, Tensor)) else tuple(weights)
        if not all(isinstance(each, Tensor) for each in self._tensors()):
            raise PrivcalcError("weights: must be a module, or tensors")
        self._at: bytes | None = None
        ledger.before_end(self._left)

    def drawn(self) -> None:
        """A batch was drawn."""
        begins, self._at = self._at is None, digest_of(self._tensors())
        known = [each for each in self._ledger.marks if each.startswith("weights:")] if begins else []
        if known and self._mark() not in known and "start" not in self._ledger.terms.assumptions.declared:
            self._ledger.warn(RESUMED)
        self._ledger.mark([self._mark()])

    def check(self) -> None:
        """Raise PrivcalcError if they are others than when the batch was drawn."""
        if self._at != digest_of(self._tensors()):
            raise PrivcalcError(
                "weights: must not change between the draw of a batch and its release: what moves them then has no noise, such "
                "as running means, another optimizer, or gradients taken elsewhere. Update them after release()"
            )

    def _left(self) -> None:
        """The ledger is about to end."""
        if self._at is not None:
            self._at = digest_of(self._tensors())
            self._ledger.mark([self._mark()])

    def _mark(self) -> str:
        assert self._at is not None
        return f"weights:{self._at.hex()[:32]}"

    def _tensors(self) -> Iterator[Tensor]:
        if isinstance(self._weights, torch.nn.Module):
            saved = self._weights.state_dict()
            yield from (saved[name] for name in saved if not name.endswith("num_batches_tracked"))
        else:
            yield from (self._weights,) if isinstance(self._weights, Tensor) else self._weights


def digest_of(values: Iterable[Tensor]) -> bytes:
    """Of their bits, one after another."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()
