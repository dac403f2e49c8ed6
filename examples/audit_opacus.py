"""Audit: a run under Opacus that ends in a certificate, and what it cost each record.

The numbers per record depend on the data: for the data holder, or for the record itself; only the certificate may be
published.
"""

from __future__ import annotations

import copy

import torch
from opacus import PrivacyEngine
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import privcalc as pc
from privcalc.interop.opacus import keep_ledger, register, step_of
from privcalc.interop.torch import RecordGradients

RECORDS, BATCH, CLIP, DELTA = 200, 20, 0.5, 1e-5


def made_up(seed: int = 0) -> TensorDataset:
    """Features and labels, from a generator of their own: torch's makes secret numbers, so it must not be seeded."""
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(dim=1) > 0).long())


def main(data: TensorDataset, epochs: int = 2) -> tuple[torch.nn.Module, pc.Certificate, pc.RealisedLosses]:
    """Train; returns the model, the certificate, and the losses of the records."""
    register()
    plain = torch.nn.Linear(6, 2)  # without hooks of Opacus
    gradients = RecordGradients(plain, cross_entropy)
    model, optimizer, batches = PrivacyEngine(accountant="privcalc").make_private(
        module=(module := copy.deepcopy(plain)),
        optimizer=torch.optim.SGD(module.parameters(), lr=4.0),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=CLIP,
    )
    step = step_of(optimizer, batches)
    losses = pc.RealisedLosses.of(step, records=len(data))
    with pc.Ledger(None, plan=step * (epochs * len(batches)), public={"records": RECORDS}) as ledger:
        optimizer, batches = keep_ledger(
            optimizer, batches, ledger, start="random"
        )  # batches and noise are the ledger's
        for _ in range(epochs):
            for x, y in batches:
                plain.load_state_dict(model._module.state_dict())
                losses.update(gradients(*data.tensors).norm(dim=1).numpy(), clip_norm=CLIP)  # also of records not drawn
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()
    return model, pc.certify(ledger, delta=DELTA), losses


if __name__ == "__main__":
    model, certificate, losses = main(made_up())
    low, middle, high = losses.quantiles(DELTA, [0.0, 0.5, 1.0])
    print(certificate.guarantee)
    print(f"for the data holder only: ε of single records {low:.3f} … {middle:.3f} (median) … {high:.3f}")
