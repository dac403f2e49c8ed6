"""Audit: a network in plain PyTorch, trained through a ledger, and what the run cost each record.

The numbers per record depend on the data: for the data holder, or for the record itself; only the certificate may be
published.
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import privcalc as pc
from privcalc.interop.torch import RecordGradients, loader

RECORDS, CLIP, DELTA = 400, 0.5, 1e-5
STEP = pc.Gaussian(noise_multiplier=8.0)


def made_up(seed: int = 0) -> TensorDataset:
    """Features and labels."""
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(dim=1) > 0).long())


def main(data: TensorDataset, model: torch.nn.Module, steps: int = 20) -> tuple[pc.Certificate, pc.RealisedLosses]:
    """Train the model; returns the certificate, and the losses of the records."""
    gradients, optimizer = RecordGradients(model, cross_entropy), torch.optim.SGD(model.parameters(), lr=4.0)
    losses = pc.RealisedLosses.of(STEP, records=RECORDS)
    with pc.Ledger(None, plan=STEP * steps, public={"records": RECORDS}) as ledger:
        for batch in loader(ledger, data, STEP, like=gradients, clip_norm=CLIP, start="random"):
            losses.update(gradients(*data.tensors).norm(dim=1).numpy(), clip_norm=CLIP)
            gradients.put(batch.release() / RECORDS)
            optimizer.step()
    return pc.certify(ledger, delta=DELTA), losses


if __name__ == "__main__":
    certificate, losses = main(made_up(), torch.nn.Linear(6, 2))
    low, middle, high = losses.quantiles(DELTA, [0.0, 0.5, 1.0])
    print(certificate.guarantee)
    print(f"for the data holder only: ε of single records {low:.3f} … {middle:.3f} (median) … {high:.3f}")
