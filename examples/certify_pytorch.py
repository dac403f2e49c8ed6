"""Certify: a network in plain PyTorch, whose batches and noise come from a ledger.

The first weights are public: the certificate has their digest, and a name of the private data set.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.utils.data import TensorDataset

import privcalc as pc
from privcalc.interop.torch import loader

RECORDS, CLIP, DELTA = 1_000, 1.0, 1e-5
STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.1)


def made_up(seed: int = 0) -> TensorDataset:
    """Features and labels."""
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(dim=1) > 0).long())


def main(data: TensorDataset, network: torch.nn.Module, steps: int = 40) -> tuple[dict[str, torch.Tensor], pc.Certificate]:
    """Train and certify; returns the weights and the certificate."""
    weights = {name: p.detach().clone() for name, p in network.named_parameters()}
    ends = np.cumsum([p.numel() for p in weights.values()])

    def shaped(flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = torch.tensor_split(flat, [int(end) for end in ends[:-1]])
        return {name: part.view_as(p) for (name, p), part in zip(weights.items(), parts, strict=True)}

    def loss(theta: torch.Tensor, one_x: torch.Tensor, one_y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(network, shaped(theta), (one_x[None],)), one_y[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    theta = torch.cat([p.ravel() for p in weights.values()])
    public = {"records": RECORDS, "start": network.state_dict(), "dataset": "made-up records, seed 0"}
    with pc.Ledger(None, plan=STEP * steps, public=public) as ledger:  # a path instead of None keeps it in a file
        for batch in loader(ledger, data, STEP, like=theta, clip_norm=CLIP, at_most=64):
            for piece in batch:
                piece.add(per_sample(theta, *piece.records))
            theta = theta - 2.0 * batch.release() / STEP.expected_size(RECORDS)
    return shaped(theta), pc.certify(ledger, delta=DELTA)


if __name__ == "__main__":
    data, network = made_up(), torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    weights, certificate = main(data, network)
    accuracy = float((functional_call(network, weights, (data.tensors[0],)).argmax(dim=1) == data.tensors[1]).float().mean())
    print(f"accuracy {accuracy:.3f}\n{certificate}")
