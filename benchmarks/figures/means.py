"""What the figures say of means over seeds: lines with their 95 % intervals, and which differences are clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.figure import Rows
from benchmarks.learners.results import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CLEARLY", "band", "clear", "distinct", "seeds", "where"]

CLEARLY = (
    '"Clearly": the 95 % Student interval of differences, seed by seed, is on one side of 0, each comparison by itself.'
)
"""For the pages. One of twenty comparisons of equals is clear by chance."""


def distinct(rows: Rows, what: str) -> list[Any]:
    """The values of an entry, in the order in which they come."""
    return list(dict.fromkeys(row[what] for row in rows if what in row))


def seeds(rows: Rows) -> int:
    """Runs of each point."""
    return len(distinct(rows, "seed"))


def band(
    axes: Axes, x: Sequence[float] | NDArray[Any], runs: Sequence[Sequence[float]], label: str, color: str
) -> None:
    """Means over runs, one list of runs for each x, and their 95 % Student intervals."""
    middle, half = np.array([interval(run) for run in runs]).T
    axes.plot(x, middle, label=label, color=color, marker="o" if len(middle) < 20 else None, markersize=3)
    axes.fill_between(x, middle - half, middle + half, color=color, alpha=0.15, linewidth=0)


def clear(gains: Sequence[float]) -> Literal[-1, 0, 1]:
    """1 or −1 where the 95 % interval of the mean is above or below 0, 0 where it holds 0.

    Example:
        >>> clear([0.1, 0.2]), clear([1.0, 1.1]), clear([-0.1, -0.1]), clear([0.0, 0.0])
        (0, 1, -1, 0)
    """
    mean, half = interval(gains)
    return 1 if mean > half else -1 if mean < -half else 0


def where(gains: Mapping[str, Sequence[float]]) -> str:
    """Where differences, run by run, are clearly above 0, where below, and where neither.

    Example:
        >>> where({"a": [0.1, 0.1], "b": [-0.1, -0.1], "c": [0.1, -0.1], "d": [1.0, 1.0]})
        'clearly above at a, d; clearly below at b; undecided at c'
    """
    sides = {1: "clearly above at ", -1: "clearly below at ", 0: "undecided at "}
    found = {side: [name for name, values in gains.items() if clear(values) == side] for side in sides}
    return "; ".join(text + ", ".join(found[side]) for side, text in sides.items() if found[side])
