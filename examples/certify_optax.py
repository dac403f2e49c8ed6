"""Certify: an Optax optimizer in JAX, whose batches and noise come from a ledger.

Needs the extra ``jax``: ``pip install -c constraints.txt -e '.[jax]'``. Gradients are compiled; what the ledger does
(draw, charge, add noise) is outside of ``jax.jit``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

import privcalc as pc
from privcalc.interop.jax import Released

RECORDS, CLIP, DELTA = 1_000, 1.0, 1e-5
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


def main(x: jax.Array, y: jax.Array, steps: int = 40) -> tuple[jax.Array, pc.Certificate]:
    """Train and certify; returns the weights and the certificate."""
    weights = jnp.zeros(x.shape[1])
    with pc.Ledger(None, plan=STEP * steps, public={"records": len(x), "start": weights}) as ledger:
        released = Released(ledger, STEP, clip_norm=CLIP)
        # The transform comes first: what is before it would change how far one record moves the sum.
        optimizer = optax.chain(
            released.transform, optax.scale(1 / STEP.expected_size(len(x))), optax.sgd(2.0, momentum=0.5)
        )
        state = optimizer.init(weights)
        for _ in released.batch_iterator(len(x)):
            updates, state = optimizer.update(released.clipped_sum(loss, weights, x, y), state)
            weights = optax.apply_updates(weights, updates)
    return weights, pc.certify(ledger, delta=DELTA)


if __name__ == "__main__":
    x, y = made_up()
    weights, certificate = main(x, y)
    accuracy = float(jnp.mean((x @ weights > 0) == (y > 0)))
    print(f"accuracy {accuracy:.3f}\n{certificate}")
