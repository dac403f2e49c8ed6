"""Audit: a network in plain PyTorch, trained through a ledger, and what the run cost each record.

The numbers per record depend on the data: for the data holder, or for the record itself; only the certificate may be published.
"""

from __future__ import annotations

import torch
from torch.func import grad, vmap
from torch.utils.data import TensorDataset

import privcalc as pc
from privcalc.interop.torch import loader

RECORDS, CLIP, DELTA = 400, 0.5, 1e-5
STEP = pc.Gaussian(noise_multiplier=8.0)


def made_up(seed: int = 0) -> TensorDataset:
    """Features and labels."""
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(dim=1) > 0).long())


def loss(weights: dict[str, torch.Tensor], one_x: torch.Tensor, one_y: torch.Tensor) -> torch.Tensor:
    """Of one record."""
    return torch.nn.functional.cross_entropy(weights["weight"] @ one_x + weights["bias"], one_y)


per_sample = vmap(grad(loss), in_dims=(None, 0, 0))


def norms(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of the gradients of these records, all parameters together."""
    parts = [g.flatten(1).double().square().sum(1) for g in per_sample(weights, x, y).values()]
    return torch.stack(parts).sum(0).sqrt()


def main(data: TensorDataset, steps: int = 20) -> tuple[dict[str, torch.Tensor], pc.Certificate, pc.RealisedLosses]:
    """Train; returns the weights, the certificate, and the losses of the records."""
    x, y = data.tensors
    theta = torch.zeros(14)
    losses = pc.RealisedLosses.of(STEP, records=len(x))
    with pc.Ledger(None, plan=STEP * steps, public={"records": RECORDS}) as ledger:
        for batch in loader(ledger, data, STEP, like=theta, clip_norm=CLIP):
            weights = {"weight": theta[:12].view(2, 6), "bias": theta[12:]}
            losses.update(norms(weights, x, y).numpy(), clip_norm=CLIP)
            for piece in batch:
                piece.add(torch.cat([g.flatten(1) for g in per_sample(weights, *piece.records).values()], dim=1))
            theta = theta - 4.0 * batch.release() / RECORDS
    return {"weight": theta[:12].view(2, 6), "bias": theta[12:]}, pc.certify(ledger, delta=DELTA), losses


if __name__ == "__main__":
    weights, certificate, losses = main(made_up())
    low, middle, high = losses.quantiles(DELTA, [0.0, 0.5, 1.0])
    print(certificate.guarantee)
    print(f"for the data holder only: ε of single records {low:.3f} … {middle:.3f} (median) … {high:.3f}")
