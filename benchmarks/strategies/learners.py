"""DP-SGD, cyclic bands and DP-FTRL on equal features, steps and expected batches: which learns most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from examples.dpftrl import DPFTRL
from learners.data.sources import Data, split
from learners.dpsgd import DPSGD
from learners.frame.learner import Learner
from privcalc.strategies import FixedOrder, optimal_blt

__all__ = ["accuracies"]

EPSILONS = (0.1, 1.0, 3.0)
DELTA = 1e-5
RUNS = ((1, 100), (4, 100))
"""Epochs, steps of an epoch."""

TEST, BANDS = 1_000, 4
"""Records that are held out, and bands with cyclic samples."""


def methods(records: int, epochs: int, epoch: int, epsilon: float, seed: int) -> dict[str, Callable[[], Learner]]:
    """Learners at their defaults, by name."""
    steps = epochs * epoch
    common: dict[str, Any] = {
        "classes": list(range(10)),
        "epsilon": epsilon,
        "delta": DELTA,
        "records": records,
        "steps": steps,
        "seed": seed,
    }
    return {
        "DP-SGD": lambda: DPSGD(**common, sample_rate=1 / epoch),
        "cyclic bands": lambda: DPFTRL(**common, rate=BANDS / epoch, bands=BANDS),
        "DP-FTRL, bands": lambda: DPFTRL(**common, epoch=epoch),
        "DP-FTRL, BLT": lambda: DPFTRL(**common, epoch=epoch, strategy=optimal_blt(steps, FixedOrder(epoch))),
    }


def accuracies(features: Data, seeds: Sequence[int]) -> None:
    """Print the table: percent of held-out digits that are named right, mean and standard error over the seeds."""
    whole, test = split(features, [len(features.y) - TEST, TEST], 0)
    names = list(methods(1, 1, 1, 1.0, 0))
    print(f"\n| epochs | steps of one | ε | {' | '.join(names)} | most |\n|{'---|' * (len(names) + 4)}")
    for epochs, epoch in RUNS:
        for epsilon in EPSILONS:
            found = {
                name: [make().fit(whole.X, whole.y).score(test.X, test.y) for make in made]
                for name, made in _by_name(len(whole.y), epochs, epoch, epsilon, seeds).items()
            }
            shown = [f"{100 * np.mean(a):.1f} ± {100 * np.std(a, ddof=1) / len(a) ** 0.5:.1f}" for a in found.values()]
            best = max(found, key=lambda name: float(np.mean(found[name])))
            print(f"| {epochs} | {epoch} | {epsilon:g} | {' | '.join(shown)} | {best} |", flush=True)


def _by_name(
    records: int, epochs: int, epoch: int, epsilon: float, seeds: Sequence[int]
) -> dict[str, list[Callable[[], Learner]]]:
    """For each name its learners, one for each seed."""
    made = [methods(records, epochs, epoch, epsilon, seed) for seed in seeds]
    return {name: [one[name] for one in made] for name in made[0]}
