"""DPPL paper, Figures 2 and 5: prototypes beside DP-SGD as classes become imbalanced; all classes, and the smallest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import distinct, seeds
from benchmarks.learners.grid import FASHION, LEVELS, LONG_TAILED, NEWS, Cell, run
from benchmarks.learners.results import show, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES"]

RATIOS = (1.0, 10.0, 50.0, 100.0)
WORST = 50.0
"""The ratio of Figure 5."""
SOURCES = {"fashion": FASHION, "news": NEWS}
MINORITY = (
    "Accuracy on the quarter of the classes that has the fewest private records (read off them, unpaid, to judge)"
)


def compute(given: Given, methods: Sequence[str], ratios: Sequence[float]) -> Rows:
    """A row per run: source, ratio, method, ε, seed, and both accuracies."""
    cells = {
        Cell(replace(setting, imbalance=ratio), method, level, seed): (name, ratio)
        for name, setting in SOURCES.items()
        for ratio in ratios
        for seed in range(given.seeds)
        for method in methods
        for level in LEVELS
    }
    have = {name: (lambda name=name: given.source(name)) for name in SOURCES}
    return [
        {
            "source": cells[cell][0],
            "ratio": cells[cell][1],
            "method": cell.method,
            "epsilon": cell.epsilon,
            "seed": cell.seed,
        }
        | {what: found[what] for what in ("accuracy", "minority", "certified")}
        for cell, found in given.watch(run(list(cells), have, given.device), len(cells))
    ]


def draw(rows: Rows, what: str) -> Picture:
    """A panel per source and ratio, a line per method: means; dotted lines enclose all runs (the paper: quantiles)."""
    from matplotlib.figure import Figure as Canvas

    names, ratios = distinct(rows, "source"), sorted(distinct(rows, "ratio"))
    shape = (len(names), len(ratios)) if len(ratios) > 1 else (1, len(names))
    picture = Canvas(figsize=(1.5 + 3 * shape[1], 3.2 * shape[0]), layout="constrained")
    panels = picture.subplots(*shape, sharex=True, sharey="row", squeeze=False)
    for axes, (name, ratio) in zip(panels.flat, ((name, ratio) for name in names for ratio in ratios), strict=True):
        for number, method in enumerate(distinct(rows, "method")):
            runs = np.array(
                [values(rows, what, source=name, ratio=ratio, method=method, epsilon=level) for level in LEVELS]
            )
            axes.plot(LEVELS, runs.mean(axis=1), color=f"C{number}", label=method)
            for edge in (runs.min(axis=1), runs.max(axis=1)):
                axes.plot(LEVELS, edge, color=f"C{number}", linestyle=":", linewidth=0.8)
        axes.set(title=f"{name}, ratio {ratio:g}", xscale="log", xlabel="ε")
    for axes in panels[:, 0]:
        axes.set_ylabel(f"{'minority ' if what == 'minority' else ''}accuracy")
    picture.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return picture


def tell(rows: Rows, what: str) -> str:
    """Means and 95 % intervals, and where the prototypes are ahead of DP-SGD."""
    text, ahead, asked = "", dict.fromkeys(("DPPL-Mean", "DPPL-Public (pure ε)"), 0), 0
    for name, ratio in dict.fromkeys((row["source"], row["ratio"]) for row in rows):
        lines, means = [], {}
        for method in distinct(rows, "method"):
            found = [values(rows, what, source=name, ratio=ratio, method=method, epsilon=level) for level in LEVELS]
            lines.append([method, *map(show, found)])
            means[method] = np.mean(found, axis=1)
        for method in ahead:
            ahead[method] += sum(ours > theirs for ours, theirs in zip(means[method], means["DP-SGD"], strict=True))
        asked += len(LEVELS)
        text += (
            f"### {name}, ratio {ratio:g}\n\n{table(['learner', *(f'ε = {level:g}' for level in LEVELS)], lines)}\n\n"
        )
    found_text = ", ".join(f"{method} in {count}" for method, count in ahead.items())
    return (
        f"**Found:** ahead of DP-SGD (means): {found_text} of {asked} cases of source, ratio and ε. "
        f"{MINORITY if what == 'minority' else 'Test accuracy'}, from 10,000 records "
        f"before they are thinned. Mean ± half of a 95 % Student interval over {seeds(rows)} seeds; δ = 1e-5 "
        "(DPPL-Public: δ = 0), add-or-remove-one. Dotted lines in the picture: smallest and largest run. Settings are "
        f"the learners' defaults, where the paper tunes all methods.\n\n{text}"
    )


FIGURES = (
    Figure(
        "dppl-2",
        "Figure 2 of the DPPL paper: imbalance",
        "on CIFAR-100 with ViT-H-14, at every ratio above 1 DPPL-Public is far ahead of linear probing by DP-SGD at "
        "every ε; DPPL-Mean is behind both at small ε, and ahead of DPPL-Public at large ones (Wahdany et al. 2024, "
        "§5.1).",
        3,
        lambda given: compute(given, ["DP-SGD", "DPPL-Mean", "DPPL-Public (pure ε)"], RATIOS),
        lambda rows: draw(rows, "accuracy"),
        lambda rows: tell(rows, "accuracy"),
    ),
    Figure(
        "dppl-5",
        "Figure 5 of the DPPL paper: minority classes",
        "on CIFAR-100 with ViT-H-14 at ratio 50, the prototypes are far ahead of all baselines on the smallest quarter "
        "of the classes (Wahdany et al. 2024, §5.2). Their DPSGD-Global-Adapt is not among ours.",
        3,
        lambda given: compute(given, LONG_TAILED, [WORST]),
        lambda rows: draw(rows, "minority"),
        lambda rows: tell(rows, "minority"),
    ),
)
