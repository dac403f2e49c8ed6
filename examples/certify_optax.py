"""Certify: an Optax optimizer in JAX, whose batches and noise come from a ledger.

Gradients are compiled; what the ledger does (draw, charge, add noise) is outside of ``jax.jit``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

import privcalc as pc
from privcalc.interop.jax import Released

RECORDS, CLIP, DELTA, MOST = 1_000, 1.0, 1e-5, 256
STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.1)


def made_up(seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Features and labels."""
    keys = jax.random.split(jax.random.key(seed))
    x = jax.random.normal(keys[0], (RECORDS, 6))
    return x, (x @ jax.random.normal(keys[1], (6,)) > 0).astype(jnp.float32)


def loss(weights: jax.Array, one_x: jax.Array, one_y: jax.Array) -> jax.Array:
    """Of one record."""
    logit = one_x @ weights
    return jnp.logaddexp(0.0, logit) - one_y * logit


per_sample = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))


def clipped_sum(weights: jax.Array, x: jax.Array, y: jax.Array) -> np.ndarray:
    """In pieces of one shape, so that nothing is compiled anew, filled up with nothing; a little below the bound, in doubles."""
    total = np.zeros(weights.shape)
    for start in range(0, len(x), MOST):
        rows, labels = x[start : start + MOST], y[start : start + MOST]
        room = MOST - len(rows)
        filled = per_sample(weights, jnp.pad(rows, ((0, room), (0, 0))), jnp.pad(labels, (0, room)))
        gradients = np.asarray(filled, dtype=np.float64)[: len(rows)]
        norms = np.linalg.norm(gradients, axis=1)
        total += np.minimum(1.0, (1 - 1e-6) * CLIP / np.maximum(norms, 1e-30)) @ gradients
    return total


def main(x: jax.Array, y: jax.Array, steps: int = 40) -> tuple[jax.Array, pc.Certificate]:
    """Train and certify; returns the weights and the certificate."""
    weights = jnp.zeros(x.shape[1])
    with pc.Ledger(None, plan=STEP * steps, public={"records": len(x), "start": weights}) as ledger:
        released = Released(ledger, STEP, clip_norm=CLIP)
        optimizer = optax.chain(released.transform, optax.scale(1 / STEP.expected_size(len(x))), optax.sgd(2.0, momentum=0.5))
        state = optimizer.init(weights)
        for indices in released.batch_iterator(len(x)):
            updates, state = optimizer.update(clipped_sum(weights, x[indices], y[indices]), state)
            weights = optax.apply_updates(weights, updates)
    return weights, pc.certify(ledger, delta=DELTA)


if __name__ == "__main__":
    x, y = made_up()
    weights, certificate = main(x, y)
    accuracy = float(jnp.mean((x @ weights > 0) == (y > 0)))
    print(f"accuracy {accuracy:.3f}\n{certificate}")
