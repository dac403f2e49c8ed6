"""A slow oracle in many digits, which shares nothing with the engine."""

from reference.choices import choices_delta
from reference.steps import (
    Direction,
    Entry,
    Order,
    Real,
    gaussian_delta,
    gaussian_epsilon,
    laplace_composition_delta,
    laplace_delta,
    one_step_delta,
    run_delta,
    run_deltas,
    run_epsilon,
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
    two_step_delta,
)

__all__ = [
    "Direction",
    "Entry",
    "Order",
    "Real",
    "choices_delta",
    "gaussian_delta",
    "gaussian_epsilon",
    "laplace_composition_delta",
    "laplace_delta",
    "one_step_delta",
    "run_delta",
    "run_deltas",
    "run_epsilon",
    "sampled_gaussian_delta",
    "sampled_gaussian_epsilon",
    "two_step_delta",
]
