"""Calibrate: DP-SGD by hand in PyTorch, with the noise that a target needs.

The loop draws Poisson batches (one coin per record and step), clips each record's gradient, adds noise once, and divides by
numbers that are public. The noise is drawn exactly, from secure random bits.
"""

from __future__ import annotations

import torch
from torch.func import functional_call, grad, vmap

import privcalc as pc
from privcalc import noise

RECORDS, EXPECTED_BATCH, EPOCHS, CLIP, RATE_OF_LEARNING = 2_000, 200, 10, 1.0, 2.0
EPSILON, DELTA = 3.0, 1e-5


def made_up(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels."""
    generator = torch.Generator().manual_seed(seed)  # its own: coins come from torch's, whose seed nobody must know
    x = torch.randn(RECORDS, 10, generator=generator)
    return x, (x @ torch.randn(10, generator=generator) > 0).long()


def train(x: torch.Tensor, y: torch.Tensor) -> tuple[dict[str, torch.Tensor], pc.Enclosure]:
    """Train; returns the weights, and the ε of what ran. Coins come from torch's generator: do not seed it."""
    model = torch.nn.Linear(10, 2)

    rate, steps = EXPECTED_BATCH / RECORDS, EPOCHS * RECORDS // EXPECTED_BATCH
    multiplier = pc.noise_multiplier(epsilon=EPSILON, delta=DELTA, sample_rate=rate, steps=steps)

    def loss(weights: dict[str, torch.Tensor], one_x: torch.Tensor, one_y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(model, weights, (one_x[None],)), one_y[None])

    weights = {name: value.detach() for name, value in model.named_parameters()}
    for _ in range(steps):
        batch = torch.nonzero(torch.rand(RECORDS, dtype=torch.float64) < rate).ravel()
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x[batch], y[batch])
        norms = torch.sqrt(sum((g.flatten(1).square().sum(1) for g in gradients.values()), torch.zeros(len(batch))))
        factor = torch.where(norms.isfinite(), (CLIP / norms).clamp(max=1.0), 0.0)  # one NaN would make the whole sum NaN
        for name, g in gradients.items():
            clipped = torch.einsum("n,n...->...", factor, g.nan_to_num())
            noisy = noise.gaussian(clipped, multiplier, clip_norm=CLIP)
            weights[name] = weights[name] - RATE_OF_LEARNING * noisy / EXPECTED_BATCH  # the expected size, not the private one

    run = pc.PoissonSampled(pc.Gaussian(multiplier), rate) * steps
    return weights, run.epsilon(delta=DELTA)


def accuracy_of(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of right predictions: on private records a private number."""
    return float((functional_call(torch.nn.Linear(10, 2), weights, (x,)).argmax(dim=1) == y).float().mean())


if __name__ == "__main__":
    data = made_up()
    weights, epsilon = train(*data)
    accuracy = accuracy_of(weights, *data)
    print(f"accuracy {accuracy:.3f}, ε = {epsilon} at δ = {DELTA:g}")
