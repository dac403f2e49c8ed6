"""Planted bugs of batches and of who is protected: other samplers than the accountant was told of, groups."""

from __future__ import annotations

import numpy as np

from planted.bug import LEARNERS, Bug, Rng, normal
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import ApproxDP
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.random_allocation import RandomAllocation
from privcalc.numerics.floats import Floats

_EIGHT_TIMES = 8 * Gaussian(4.0).epsilon(delta=1e-2).upper


def _shuffled(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Ten batches of a tenth: each record in exactly one, or in each by a coin."""
    takes = np.zeros((size, 10)) if not there else rng.random((size, 10)) < 0.1
    if there and bug:
        takes = np.arange(10) == rng.integers(0, 10, (size, 1))
    return np.asarray((takes + 0.3 * normal(rng, size, 10)).max(axis=1))


def _one_of_four(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Four steps: each record in exactly one, drawn by itself, or in each by a coin."""
    takes = np.zeros((size, 4)) if not there else rng.random((size, 4)) < 0.25
    if there and bug:
        takes = np.arange(4) == rng.integers(0, 4, (size, 1))
    return np.asarray(np.exp((takes + 0.3 * normal(rng, size, 4)) / 0.09).sum(axis=1))


def _same_slot(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Four epochs of ten steps: a record draws its step once, or anew in each epoch."""
    slots = np.repeat(rng.integers(0, 10, (size, 1)), 4, axis=1) if bug else rng.integers(0, 10, (size, 4))
    takes = (np.arange(10) == slots[:, :, None]) & there
    return np.asarray(np.exp((takes + 1.1 * normal(rng, size, 4, 10)).sum(axis=1) / 1.21).sum(axis=1))


def _group(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A person of eight records, at eight times one's ε: right for Laplace, not for normal noise and the same δ."""
    noise = 4 * normal(rng, size) if bug else rng.laplace(scale=8 / _EIGHT_TIMES, size=size)
    return np.asarray(8 * there + noise)


BATCHES = (
    Bug("Poisson claimed but shuffled", PoissonSampled(Gaussian(0.3), 0.1) * 10, _shuffled, "the largest sum of a pass",
        LEARNERS + "shuffled_batches"),
    Bug("random allocation claimed as Poisson of rate 1/t", PoissonSampled(Gaussian(0.3), 0.25) * 4, _one_of_four,
        "the likelihood ratio"),
    Bug("fresh slots claimed, but fixed", RandomAllocation(Gaussian(1.1), steps=10) * 4, _same_slot,
        "the likelihood ratio"),
    Bug("a group of k at k times ε", ApproxDP(_EIGHT_TIMES, 1e-2), _group, "the sum"),
)  # fmt: skip
