"""Audit: noisy full-batch gradient descent in JAX, and what the run cost each record.

The numbers per record depend on the data: for the data holder, or for the record itself; only the guarantee may be
published.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import privcalc as pc
from privcalc import noise

RECORDS, STEPS, CLIP, STEP_SIZE, DELTA = 1_000, 60, 1.0, 0.02, 1e-5


def made_up(seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Features and labels."""
    keys = jax.random.split(jax.random.key(seed))
    x = jax.random.normal(keys[0], (RECORDS, 8))
    return x, (x @ jax.random.normal(keys[1], (8,)) > 0).astype(jnp.float32)


def train(x: jax.Array, y: jax.Array) -> tuple[jax.Array, pc.Guarantee, pc.RealisedLosses]:
    """Train; returns the weights, the guarantee of the run, and the losses of the records."""

    def loss(weights: jax.Array, one_x: jax.Array, one_y: jax.Array) -> jax.Array:
        logit = one_x @ weights
        return jnp.logaddexp(0.0, logit) - one_y * logit

    per_sample = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    multiplier = pc.noise_multiplier(epsilon=2.0, delta=DELTA, steps=STEPS)
    losses = pc.RealisedLosses(records=RECORDS, noise_multiplier=multiplier, clip_norm=CLIP)
    weights = jnp.zeros(8)
    for _ in range(STEPS):
        gradients = per_sample(weights, x, y)
        gradients = jnp.where(
            jnp.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0
        )  # one NaN would spoil the sum
        norms = jnp.linalg.norm(gradients, axis=1)
        losses.update(np.asarray(norms))
        # A little below the bound, and summed in doubles:
        # in single precision rows and sums are rounded by more than nothing.
        rows = jnp.minimum(1.0, (1 - 1e-6) * CLIP / norms)[:, None] * gradients
        total = np.asarray(rows, dtype=np.float64).sum(axis=0)
        weights = weights - STEP_SIZE * noise.gaussian(total, multiplier, clip_norm=CLIP)

    run = pc.Gaussian(multiplier) * STEPS
    return weights, pc.Guarantee(epsilon=run.epsilon(delta=DELTA), delta=DELTA), losses


if __name__ == "__main__":
    x, y = made_up()
    weights, guarantee, losses = train(x, y)
    accuracy = float(jnp.mean((x @ weights > 0) == (y > 0)))
    low, middle, high = losses.quantiles(DELTA, [0.0, 0.5, 1.0])
    print(f"accuracy {accuracy:.3f}, guarantee {guarantee}")
    print(f"for the data holder only: ε of single records {low:.3f} … {middle:.3f} (median) … {high:.3f}")
