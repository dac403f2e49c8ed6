"""A planted bug: a simulation with and without it, and what the accountant says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import Floats
from privcalc.run import Mechanism, Run

Rng = np.random.Generator
Sampler = Callable[[Rng, int, bool, bool], Floats]
"""Scores of so many runs: generator, number of runs, whether the record is there, whether the bug is."""

LEARNERS = "learners/test_learner_attacks.py::"


@dataclass(frozen=True)
class Bug:
    """A planted bug.

    Attributes:
        name: what is wrong.
        claim: what the accountant says of it; under add-or-remove-one.
        sampler: see ``Sampler``.
        attack: what the attacker looks at.
        test: a test that plants the same bug in the learners, if there is one.
    """

    name: str
    claim: Mechanism | Run
    sampler: Sampler
    attack: str
    test: str = ""


def normal(rng: Rng, *shape: int) -> Floats:
    """Standard normal numbers."""
    return rng.standard_normal(shape)
