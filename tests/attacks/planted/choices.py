"""Planted bugs of choices, thresholds and new keys."""

from __future__ import annotations

import numpy as np

from planted.bug import Bug, Rng
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.numerics.floats import Floats


def _noisy_max(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Two candidates; the record lifts the one behind. Exponential noise has no bounded range, Gumbel noise has."""
    noise = rng.standard_exponential((size, 2)) if bug else rng.gumbel(size=(size, 2))
    return np.asarray(noise[:, 0] + there - 0.5 > noise[:, 1], dtype=np.float64)


def _new_key(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A key that only this record has, released from a noisy count of 2 on, or of 15."""
    noisy = 1 + rng.laplace(size=size)
    return np.asarray(there & (noisy >= (2 if bug else 15)), dtype=np.float64)


def _sparse_vector(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Questions (0, 1), or (1, 0) of a neighbour, threshold 0; noise on that only (Lyu, Su, Li 2017, algorithm 5)."""
    threshold = 2 * rng.laplace(size=(size, 1))
    values = (np.array([0.0, 1.0]) if there else np.array([1.0, 0.0])) + (0 if bug else 4) * rng.laplace(size=(size, 2))
    above = values >= threshold
    return np.asarray(~above[:, 0] & above[:, 1], dtype=np.float64)


CHOICES = (
    Bug("noisy max: a bounded range with exponential noise", ExponentialMechanism(1.0), _noisy_max, "the choice",
        "mechanisms/test_noisy_max.py::test_a_fourth_of_rho_is_too_little"),
    Bug("a threshold that new keys pass", ThresholdedCounts(noise="laplace", scale=1.0, threshold=15.0), _new_key,
        "which keys there are", "mechanisms/test_thresholded_counts.py::test_what_is_drawn"),
    Bug("sparse vector without noise on questions", AboveThreshold(threshold_scale=2.0, query_scale=4.0, answers=2),
        _sparse_vector, "below, then above",
        "mechanisms/test_above_threshold.py::test_a_broken_variant_breaks_the_claim"),
)  # fmt: skip
