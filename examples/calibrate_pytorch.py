"""Calibrate: DP-SGD by hand in PyTorch, with the noise that a target needs.

The loop draws Poisson batches (one coin per record and step), clips each record's gradient, adds noise once, and
divides by numbers that are public. The noise is drawn exactly, from secure random bits.
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import privcalc as pc
from privcalc import noise
from privcalc.interop.torch import RecordGradients

RECORDS, EXPECTED_BATCH, EPOCHS, CLIP = 2_000, 200, 10, 1.0
EPSILON, DELTA = 3.0, 1e-5


def made_up(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels."""
    generator = torch.Generator().manual_seed(seed)  # its own: coins come from torch's, whose seed nobody must know
    x = torch.randn(RECORDS, 10, generator=generator)
    return x, (x @ torch.randn(10, generator=generator) > 0).long()


def train(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.nn.Module, pc.Enclosure]:
    """Train; returns the model, and the ε of what ran. Coins come from torch's generator: do not seed it."""
    rate, steps = EXPECTED_BATCH / RECORDS, EPOCHS * RECORDS // EXPECTED_BATCH
    multiplier = pc.noise_multiplier(epsilon=EPSILON, delta=DELTA, sample_rate=rate, steps=steps)

    model = torch.nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    gradients = RecordGradients(model, cross_entropy)  # each record's own, of nothing else in the batch
    for _ in range(steps):
        batch = torch.nonzero(torch.rand(RECORDS, dtype=torch.float64) < rate).ravel()
        rows = gradients(x[batch], y[batch])
        norms = rows.norm(dim=1)
        factor = torch.where(
            norms.isfinite(), (CLIP / norms).clamp(max=1.0), 0.0
        )  # one NaN would make the whole sum NaN
        noisy = noise.gaussian(factor @ rows.nan_to_num(), multiplier, clip_norm=CLIP)
        gradients.put(noisy / EXPECTED_BATCH)  # the expected size, not the private one
        optimizer.step()

    run = pc.PoissonSampled(pc.Gaussian(multiplier), rate) * steps
    return model, run.epsilon(delta=DELTA)


if __name__ == "__main__":
    x, y = made_up()
    model, epsilon = train(x, y)
    accuracy = float((model(x).argmax(dim=1) == y).float().mean())  # on private records a private number
    print(f"accuracy {accuracy:.3f}, ε = {epsilon} at δ = {DELTA:g}")
