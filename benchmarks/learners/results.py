"""Stored cells of the benchmark, and what is said of them: means, intervals, paired differences."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks.learners.grid import Setting, unpacked
from benchmarks.learners.methods import BASELINES

__all__ = ["Cells", "Results", "difference", "gains", "interval", "show", "table"]

Cells = Mapping[str, Mapping[str, Any]]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % Student interval; ∞ from one value.

    Example:
        >>> mean, half = interval([0.5, 0.6, 0.7])
        >>> print(f"{mean:.3f} {half:.3f}")
        0.600 0.248
    """
    if len(values) < 2:
        return float(np.mean(values)), math.inf
    return float(np.mean(values)), float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


class Results:
    """Stored cells by setting, method and ε."""

    def __init__(self, cells: Cells) -> None:
        self._found: dict[tuple[str, str, float | None], dict[int, Mapping[str, Any]]] = {}
        for cell in cells.values():
            key = (cell["setting"], cell["method"], cell["epsilon"])
            self._found.setdefault(key, {})[cell["seed"]] = cell

    def values(self, setting: Setting, method: str, epsilon: float | None, what: str = "accuracy") -> dict[int, float]:
        """By seed."""
        level = None if method in BASELINES else epsilon
        cells = sorted(self._found.get((str(setting), method, level), {}).items())
        return {seed: cell[what] for seed, cell in cells if what in cell}

    def show(self, setting: Setting, method: str, epsilon: float | None, what: str = "accuracy") -> str:
        """As .812 ± .010, with the number of seeds where it is one."""
        return show(list(self.values(setting, method, epsilon, what).values()))

    def gain(
        self, one: tuple[Setting, str, float], two: tuple[Setting, str, float], what: str = "accuracy", comparisons: int = 1
    ) -> str:
        """The difference of two, seed by seed, with the interval of :func:`difference`."""
        first, second = self.values(*one, what), self.values(*two, what)
        seeds = [seed for seed in first if seed in second]
        rights = [self.right(*one), self.right(*two)]
        each = None
        if what == "accuracy" and all(seed in right for right in rights for seed in seeds) and seeds:
            each = np.mean([rights[0][seed].astype(float) - rights[1][seed] for seed in seeds], axis=0)
        return difference([first[seed] - second[seed] for seed in seeds], each, comparisons)

    def right(self, setting: Setting, method: str, epsilon: float | None) -> dict[int, NDArray[np.bool_]]:
        """Which test records were right, by seed; a few at the end are none."""
        level = None if method in BASELINES else epsilon
        cells = self._found.get((str(setting), method, level), {})
        return {seed: unpacked(cell["right"]) for seed, cell in cells.items() if "right" in cell}

    def mean(self, setting: Setting, method: str, epsilon: float) -> float:
        """Over the seeds; -∞ without any."""
        found = list(self.values(setting, method, epsilon).values())
        return float(np.mean(found)) if found else -math.inf

    def seeds(self) -> str:
        """How many seeds cells have, from the fewest to the most."""
        counts = {len(cells) for cells in self._found.values()} or {0}
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))

    def any(self, settings: Sequence[Setting]) -> bool:
        """Whether something was run there."""
        return bool({str(setting) for setting in settings} & {key[0] for key in self._found})


def show(values: Sequence[float], *, sign: bool = False) -> str:
    """Mean and 95 % interval.

    Example:
        >>> show([0.5, 0.6, 0.7])
        '.600 ± .248'
        >>> show([-0.5, 20.5], sign=True)
        '+10.000 ± 133.415'
    """
    if not values:
        return ""
    mean, half = interval(values)
    shown = f"{mean:+.3f}" if sign else f"{mean:.3f}"
    return re.sub(r"\b0\.", ".", f"{shown} (one seed)" if math.isinf(half) else f"{shown} ± {half:.3f}")


def difference(values: Sequence[float], records: NDArray[np.float64] | None = None, comparisons: int = 1) -> str:
    """Mean and 95 % interval of paired differences, over seeds and over test records, each as if drawn anew.

    The variance is that of the seeds' mean plus that of the records' mean: no less than the true one where both are drawn,
    because each holds a part of what seeds and records do together. Student's quantile, for the number of seeds.

    Args:
        values: of each seed.
        records: of each test record, the mean over seeds of right or not; None leaves them as they are.
        comparisons: of which this is one, or the one that was picked (Bonferroni).

    Example:
        >>> difference([0.5, 0.6, 0.7])
        '+.600 ± .248'
        >>> difference([0.5, 0.6, 0.7], np.repeat([0.0, 1.0], 200))
        '+.600 ± .271'
        >>> difference([0.5, 0.6, 0.7], comparisons=10)
        '+.600 ± .813'
    """
    if len(values) < 2:
        return show(values, sign=True)
    variance = np.var(values, ddof=1) / len(values) + (0.0 if records is None else np.var(records) / len(records))
    half = float(student.ppf(1 - 0.025 / comparisons, len(values) - 1) * math.sqrt(variance))
    return re.sub(r"\b0\.", ".", f"{np.mean(values):+.3f} ± {half:.3f}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, without rows that have nothing; without a head, rows that go on a table.

    Example:
        >>> print(table(["a", "b"], [["x", "1"], ["y", ""]]))
        | a | b |
        |---|---|
        | x | 1 |
    """
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)] if head else []
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows if any(row[1:]))])


def gains(results: Results, setting: Setting, one: str, two: str, levels: Sequence[float], what: str = "accuracy") -> list[str]:
    """By ε, where both were run."""
    gains = {level: results.gain((setting, one, level), (setting, two, level), what) for level in levels}
    return [f"{shown} (ε = {level:g})" for level, shown in gains.items() if shown]
