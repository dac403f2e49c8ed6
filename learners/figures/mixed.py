"""What the figures of the AdaMix paper share: tasks with few labelled public records, and lines with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from learners.benchmark_page import interval
from learners.data import Data
from learners.figures.figure import Given, Rows
from learners.grid import FASHION_MIXED, NEWS_MIXED, Setting, task_of
from learners.methods import probe_decay
from learners.records import as_features
from learners.tasks import Task, plain_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "EPSILON",
    "ONLY",
    "PARAGON",
    "SETTINGS",
    "band",
    "count",
    "distinct",
    "error",
    "seeds",
    "tasks",
    "where",
    "without_privacy",
]

SETTINGS = (FASHION_MIXED, NEWS_MIXED)
ONLY, PARAGON = "Only-Public", "all records, without privacy"
EPSILON = 3.0
"""Of the paper's figures that have a single one."""


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


def band(axes: Axes, x: Sequence[float] | NDArray[Any], runs: Sequence[Sequence[float]], label: str, color: str) -> None:
    """Means over runs, one list of runs for each x, and their 95 % Student intervals."""
    middle, half = np.array([interval(run) for run in runs]).T
    axes.plot(x, middle, label=label, color=color, marker="o" if len(middle) < 20 else None, markersize=3)
    axes.fill_between(x, middle - half, middle + half, color=color, alpha=0.15, linewidth=0)


def distinct(rows: Rows, what: str) -> list[Any]:
    """The values of an entry, in the order in which they come."""
    return list(dict.fromkeys(row[what] for row in rows if what in row))


def seeds(rows: Rows) -> int:
    """Runs of each point."""
    return 1 + max(int(row["seed"]) for row in rows)


def count(found: Sequence[bool], of: str) -> str:
    """How many are true.

    Example:
        >>> count([True, False, True], "pairs")
        '2 of 3 pairs'
    """
    return f"{sum(found)} of {len(found)} {of}"


def where(gains: Mapping[str, Sequence[float]]) -> str:
    """Of differences, run by run: where the 95 % interval is above 0, where below, and where neither.

    Example:
        >>> where({"a": [0.1, 0.1], "b": [-0.1, -0.1], "c": [0.1, -0.1], "d": [1.0, 1.0]})
        'clearly above at a, d; clearly below at b; undecided at c'
    """
    sides: dict[str, list[str]] = {"clearly above at ": [], "clearly below at ": [], "undecided at ": []}
    for name, values in gains.items():
        mean, half = interval(values)
        side = "clearly above at " if mean > half else "clearly below at " if mean < -half else "undecided at "
        sides[side].append(name)
    return "; ".join(side + ", ".join(names) for side, names in sides.items() if names)
