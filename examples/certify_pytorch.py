"""Certify: a network in plain PyTorch, whose batches and noise come from a ledger.

The first weights are public: the certificate has their digest, and a name of the private data set.
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import privcalc as pc
from privcalc.interop.torch import RecordGradients, loader

RECORDS, CLIP, DELTA = 1_000, 1.0, 1e-5
STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.1)


def made_up(seed: int = 0) -> TensorDataset:
    """Features and labels."""
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(dim=1) > 0).long())


def main(data: TensorDataset, network: torch.nn.Module, steps: int = 40) -> pc.Certificate:
    """Train the network and certify."""
    gradients, optimizer = RecordGradients(network, cross_entropy), torch.optim.SGD(network.parameters(), lr=2.0)
    public = {"records": RECORDS, "start": network.state_dict(), "dataset": "made-up records, seed 0"}
    with pc.Ledger(None, plan=STEP * steps, public=public) as ledger:  # a path instead of None keeps it in a file
        for batch in loader(ledger, data, STEP, like=gradients, clip_norm=CLIP, start="random", at_most=64):
            gradients.put(batch.release() / STEP.expected_size(RECORDS))
            optimizer.step()
    return pc.certify(ledger, delta=DELTA)


if __name__ == "__main__":
    data, network = made_up(), torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    certificate = main(data, network)
    accuracy = float((network(data.tensors[0]).argmax(dim=1) == data.tensors[1]).float().mean())
    print(f"accuracy {accuracy:.3f}\n{certificate}")
