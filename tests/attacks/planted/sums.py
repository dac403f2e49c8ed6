"""Planted bugs of sums: what is clipped, divided by, and how often noise is drawn."""

from __future__ import annotations

import numpy as np

from planted.bug import LEARNERS, Bug, Rng, normal
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.numerics.floats import Floats


def sensitivity(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A record is replaced by its opposite: 2C, and noise for C."""
    return (1.0 if there else -1.0) + (2.0 if bug else 4.0) * normal(rng, size)


def _noise_reused(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Ten steps; the record is far from the model in every other one."""
    noise = 4 * (normal(rng, size, 1) if bug else normal(rng, size, 10))
    signs = np.tile([1.0, -1.0], 5)
    return np.asarray(((np.arange(10) % 2 == 0) * there + noise) @ signs)


def private_count(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """The mean of 50 records or 51, all zero, of 1,280 coordinates: the noise's scale tells. Draws sums of squares."""
    scale = 1 / (50 + there) if bug else 1 / 50
    return -(scale**2) * rng.chisquare(1280, size)


def _clip_after_averaging(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Five records, one of them far out: the clipped mean times five moves by 5C."""
    return (5.0 if bug else 1.0) * there + 4 * normal(rng, size)


def _seed_reused(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Trained again after a record has joined, with the seed of last time: the noise cancels."""
    first = normal(rng, size)
    second = first if bug else normal(rng, size)
    return (there + 4 * second) - 4 * first


SUMS = (
    Bug("sensitivity off by 2", Gaussian(2.0), sensitivity, "the sum",
        LEARNERS + "half_the_sensitivity"),
    Bug("noise reused across steps", Gaussian(4.0) * 10, _noise_reused, "steps, every other one subtracted",
        LEARNERS + "noise_reused"),
    Bug("normaliser from the private count", Gaussian(20.0), private_count, "the scale of the noise",
        LEARNERS + "private_count"),
    Bug("clip after averaging", Gaussian(4.0), _clip_after_averaging, "the sum", LEARNERS + "clip_after_averaging"),
    Bug("seed reused", Gaussian(4.0), _seed_reused, "the difference of two runs"),
)  # fmt: skip
