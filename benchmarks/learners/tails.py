"""The section on long-tailed classes: accuracies, also of the smallest, and the default learner beside the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.learners.grid import BALANCED, GRIDS, LABELLED, LONG_TAILED, Setting
from benchmarks.learners.methods import BASELINES
from benchmarks.learners.results import Results, table

__all__ = ["long_tails"]

TEXT = """## Long-tailed classes

Accuracy on all test records / on those of the smallest quarter of the classes. Class sizes n·e^{−cλ}, the classes
in a random order for every seed, n the smallest there was; ratio 1 has all 10,000. Test and public records are as
they were: of all classes about as many."""

BESIDE = """The default learner − the best of the others in a cell (in parentheses), seed by seed, corrected for how
many the others are, as below; beside those that are given labelled public records where it is, too. "Balanced" is
the default learner that is told, as the others are not, that public records without labels, and those to be
predicted, are of all classes about evenly ([proof](../proofs/whitened.md)); that it should be told was thought of
after these long tails had been seen for it without, its constant was chosen on MNIST digits. In the minority's rows
the best is that of the minority, and intervals are over seeds alone, which also draw the classes that it is."""

TOLD = """What being told is worth: balanced − not, seed by seed. It costs no privacy."""


def long_tails(results: Results) -> list[str]:
    """Nothing where nothing was run."""
    settings, methods, levels = GRIDS["imbalance"][0]
    tails = [setting for setting in settings if setting.imbalance > 1]
    if not results.any(tails):
        return []
    found = [TEXT]
    for source in dict.fromkeys(setting.source for setting in settings):
        own = [setting for setting in settings if setting.source == source]
        rows = []
        for method in methods:
            for level in [None] if method in BASELINES else levels:
                cells = [
                    (
                        results.show(s, method, level),
                        results.show(s, method, level, "minority") if s.imbalance > 1 else "",
                    )
                    for s in own
                ]
                name = method if level is None else f"{method}, ε = {level:g}"
                rows.append([name, *(" / ".join(filter(None, pair)) for pair in cells)])
        found.append(f"### {source}\n\n" + table(["learner", *(f"ratio {s.imbalance:g}" for s in own)], rows))
    rows = [
        [
            f"{one}, {what}: {setting.source}, ratio {setting.imbalance:g}",
            *beside(results, setting, one, others, levels, what),
        ]
        for one, others in rivals().items()
        for what in ("accuracy", "minority")
        if what == "accuracy" or one in BALANCED
        for setting in tails
    ]
    head = ["", *(f"ε = {level:g}" for level in levels)]
    return [*found, BESIDE, table(head, rows), *told(results, levels)]


def rivals() -> dict[str, list[str]]:
    """The default learner as it is given public records, and who else is given no more of them."""
    one, *without = LONG_TAILED
    *others, labelled = LABELLED
    without_labels, with_labels = BALANCED
    both = ["Only-Public", *others, *without]
    return {one: without, without_labels: without, labelled: both, with_labels: both}


def told(results: Results, levels: Sequence[float]) -> list[str]:
    """What the declaration is worth, wherever it was run."""
    rows = []
    for settings, _, _ in GRIDS["imbalance"]:
        for setting in settings:
            for one, two in zip(BALANCED, (LONG_TAILED[0], LABELLED[-1]), strict=True):
                gains = [results.gain((setting, one, level), (setting, two, level)) for level in levels]
                ratio = f", ratio {setting.imbalance:g}" if setting.imbalance > 1 else ""
                rows.append(
                    [f"{one}: {setting.source}, {setting.private:,}{ratio}", *(str(gain or "") for gain in gains)]
                )
    return [TOLD, table(["", *(f"ε = {level:g}" for level in levels)], rows)]


def beside(
    results: Results, setting: Setting, one: str, others: Sequence[str], levels: Sequence[float], what: str
) -> list[str]:
    """By ε, one learner minus the best of others, where it was run."""
    found = []
    for level in levels:
        means = {name: list(results.values(setting, name, level, what).values()) for name in others}
        run = {name: float(np.mean(values)) for name, values in means.items() if values}
        best = max(run, key=run.__getitem__, default=one)
        gain = (
            results.gain((setting, one, level), (setting, best, level), what, comparisons=len(others)) if run else None
        )
        found.append(f"{gain} ({best})" if gain else "")
    return found
