"""PyTorch without Opacus: a loader of the batches that a ledger draws, and the gradient of each record."""

from privcalc.interop.torch.batches import LoadedBatch, Loader, Piece, loader
from privcalc.interop.torch.gradients import RecordGradients

__all__ = ["LoadedBatch", "Loader", "Piece", "RecordGradients", "loader"]
