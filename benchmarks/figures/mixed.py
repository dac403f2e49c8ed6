"""What the figures of the AdaMix paper share: tasks with few labelled public records, and models without privacy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from benchmarks.figures.figure import Given
from benchmarks.learners.grid import FASHION_MIXED, NEWS_MIXED, Setting, task_of
from benchmarks.learners.methods import probe_decay
from learners.data.sources import Data
from learners.data.tasks import Task, plain_weights
from learners.frame.records import as_features

__all__ = ["EPSILON", "ONLY", "PARAGON", "SETTINGS", "count", "error", "tasks", "without_privacy"]

SETTINGS = (FASHION_MIXED, NEWS_MIXED)
ONLY, PARAGON = "Only-Public", "all records, without privacy"
EPSILON = 3.0
"""ε of the paper's figures that have a single one."""


def tasks(given: Given) -> Iterator[tuple[Setting, int, Task]]:
    """Every setting with every seed."""
    for setting in SETTINGS:
        for seed in range(given.seeds):
            yield setting, seed, task_of(setting, given.source(setting.source), seed)


def error(weights: torch.Tensor, task: Task) -> float:
    """The share of wrong predictions of a linear model on the test records."""
    found = (as_features(task.test.X, str(weights.device)) @ weights).argmax(dim=1).cpu().numpy()
    return round(float(np.mean(np.asarray(task.classes)[found] != task.test.y)), 6)


def without_privacy(task: Task, parts: Sequence[Data], device: str) -> torch.Tensor:
    """Weights by ordinary training on some parts; a fifth of them choose the weight decay."""
    both = Data(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]))
    return plain_weights(task.classes, [both], probe_decay(task._replace(private=both), device), device)


def count(found: Sequence[bool], of: str) -> str:
    """How many are true.

    Example:
        >>> count([True, False, True], "pairs")
        '2 of 3 pairs'
    """
    return f"{sum(found)} of {len(found)} {of}"
