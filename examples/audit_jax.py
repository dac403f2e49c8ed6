"""Audit: noisy full-batch gradient descent in JAX, and what the run cost each record.

The numbers per record depend on the data: for the data holder, or for the record itself; only the guarantee may be published.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import privcalc as pc

RECORDS, STEPS, CLIP, STEP_SIZE, DELTA = 1_000, 60, 1.0, 0.02, 1e-5


def train(seed: int = 0) -> tuple[float, pc.Guarantee, pc.RealisedLosses]:
    """Train; returns the accuracy, the guarantee of the run, and the losses of the records."""
    keys = jax.random.split(jax.random.key(seed), 3)  # a run that is to be private needs a key nobody knows
    x = jax.random.normal(keys[0], (RECORDS, 8))
    y = (x @ jax.random.normal(keys[1], (8,)) > 0).astype(jnp.float32)

    def loss(weights: jax.Array, one_x: jax.Array, one_y: jax.Array) -> jax.Array:
        logit = one_x @ weights
        return jnp.logaddexp(0.0, logit) - one_y * logit

    per_sample = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    noise = pc.noise_multiplier(epsilon=2.0, delta=DELTA, steps=STEPS)
    losses = pc.RealisedLosses(records=RECORDS, noise_multiplier=noise, clip_norm=CLIP)
    weights = jnp.zeros(8)
    for key in jax.random.split(keys[2], STEPS):
        gradients = per_sample(weights, x, y)
        norms = jnp.linalg.norm(gradients, axis=1)
        losses.update(np.asarray(norms))
        clipped = jnp.einsum("n,nd->d", jnp.minimum(1.0, CLIP / norms), gradients)
        weights = weights - STEP_SIZE * (clipped + noise * CLIP * jax.random.normal(key, (8,)))

    run = pc.Gaussian(noise) * STEPS
    accuracy = float(jnp.mean((x @ weights > 0) == (y > 0)))
    return accuracy, pc.Guarantee(epsilon=run.epsilon(delta=DELTA), delta=DELTA), losses


if __name__ == "__main__":
    accuracy, guarantee, losses = train()
    low, middle, high = losses.quantiles(DELTA, [0.0, 0.5, 1.0])
    print(f"accuracy {accuracy:.3f}, guarantee {guarantee}")
    print(f"for the data holder only: ε of single records {low:.3f} … {middle:.3f} (median) … {high:.3f}")
