"""Stored cells of the benchmark, and what is said of them: means, intervals, paired differences."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from benchmarks.learners.grid import Setting, unpacked
from benchmarks.learners.methods import BASELINES

__all__ = ["Cells", "Gain", "Results", "difference", "gains", "interval", "show", "sides", "table", "tally"]

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
    return float(np.mean(values)), float(
        student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    )


class Gain(NamedTuple):
    """A mean difference, half the width of its 95 % interval (∞ from one seed), and of how many seeds."""

    mean: float
    half: float
    seeds: int = 1

    def __str__(self) -> str:
        return _shown(self.mean, self.half, sign=True)


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
        """As .812 ± .010 (5), the number of seeds last."""
        found = list(self.values(setting, method, epsilon, what).values())
        return show(found) + (f" ({len(found)})" if len(found) > 1 else "")

    def gain(
        self,
        one: tuple[Setting, str, float],
        two: tuple[Setting, str, float],
        what: str = "accuracy",
        comparisons: int = 1,
    ) -> Gain | None:
        """The difference of two, seed by seed, with the interval of :func:`difference`; None if they share no seed."""
        first, second = self.values(*one, what), self.values(*two, what)
        seeds = [seed for seed in first if seed in second]
        rights = [self.right(*one), self.right(*two)]
        each = None
        if not seeds:
            return None
        if what == "accuracy" and all(seed in right for right in rights for seed in seeds):
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
    return _shown(*interval(values), sign=sign) if values else ""


def _shown(mean: float, half: float, sign: bool) -> str:
    shown = f"{mean:+.3f}" if sign else f"{mean:.3f}"
    return re.sub(r"\b0\.", ".", f"{shown} (one seed)" if math.isinf(half) else f"{shown} ± {half:.3f}")


def difference(values: Sequence[float], records: NDArray[np.float64] | None = None, comparisons: int = 1) -> Gain:
    """Mean and 95 % interval of paired differences, over seeds and over test records, each as if drawn anew.

    The root of the sum of squares of two half-widths: Student's for the seeds' mean, which are few, and the normal one
    for that of the records, which are many. Each of both holds what seeds and records do together, so that it covers 95
    % or somewhat more (simulated: 95 to 99 %); Student's quantile for both would cover up to 100 %.

    Args:
        values: of each seed, at least one.
        records: of each test record, the mean over seeds of right or not; None leaves them as they are.
        comparisons: of which this is one, or the one that was picked (Bonferroni).

    Example:
        >>> print(difference([0.5, 0.6, 0.7]))
        +.600 ± .248
        >>> print(difference([0.5, 0.6, 0.7], np.repeat([0.0, 1.0], 200)))
        +.600 ± .253
        >>> print(difference([0.5, 0.6, 0.7], comparisons=10))
        +.600 ± .813
    """
    if len(values) < 2:
        return Gain(*interval(values), len(values))
    level = 1 - 0.025 / comparisons
    seeds = student.ppf(level, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    tested = 0.0 if records is None else norm.ppf(level) * np.std(records) / len(records) ** 0.5
    return Gain(float(np.mean(values)), math.hypot(seeds, tested), len(values))


def sides(gains: Sequence[Gain], threshold: float = 0.0) -> tuple[int, int]:
    """How many are above the threshold with all of their interval, and how many below."""
    above, below = (sum(sign * (gain.mean - threshold) > gain.half for gain in gains) for sign in (1, -1))
    return above, below


def tally(gains: Sequence[Gain], threshold: float = 0.0) -> str:
    """:func:`sides` in words.

    Example:
        >>> tally([Gain(0.3, 0.1), Gain(0.1, 0.2), Gain(0.1, math.inf), Gain(-0.2, 0.1)])
        '1 above, 1 below, 2 undecided'
    """
    above, below = sides(gains, threshold)
    return f"{above} above, {below} below, {len(gains) - above - below} undecided"


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


def gains(
    results: Results, setting: Setting, one: str, two: str, levels: Sequence[float], what: str = "accuracy"
) -> dict[float, Gain]:
    """By ε, where both were run."""
    found = {level: results.gain((setting, one, level), (setting, two, level), what) for level in levels}
    return {level: gain for level, gain in found.items() if gain is not None}
