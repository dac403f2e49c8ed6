"""The benchmark's picture: accuracy over ε in the core grid, a panel per task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.learners.grid import GRIDS, LEVELS
from benchmarks.learners.results import Cells, Results, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["core"]

SHOWN = (
    "WhitenedGD, labels",
    "WhitenedGD",
    "NoisyGD (Fully-Private)",
    "AdaMix",
    "DOPE-SGD",
    "PDA-DPMD",
    "PILLAR, k = 40",
)
ALSO = ("DPPL-Mean", "DPPL-Public (pure ε)", "DP ridge")


def core(cells: Cells) -> Figure:
    """Means with 95 % Student intervals over seeds; the lines across are the two baselines without ε."""
    from matplotlib.figure import Figure as Canvas

    results, (settings, *_) = Results(cells), GRIDS["core"][0]
    picture = Canvas(figsize=(11, 8), layout="constrained")
    for setting, axes in zip(settings, picture.subplots(2, 2, sharex=True).flat, strict=True):
        for name, style in (("probe", "--"), ("Only-Public", ":")):
            if found := list(results.values(setting, name, None).values()):
                axes.axhline(np.mean(found), color="black", linestyle=style, linewidth=1, label=name)
        for number, name in enumerate((*SHOWN, *ALSO)):
            runs = {level: list(results.values(setting, name, level).values()) for level in LEVELS}
            points = [(level * 1.02**number, *interval(found)) for level, found in runs.items() if found]
            if points:
                where, middle, half = np.array(points).T
                half = np.where(np.isfinite(half), half, 0.0)
                axes.errorbar(where, middle, half, capsize=2, color=f"C{number}", label=name, marker=".")
        axes.set(
            title=f"{setting.source}, {setting.private:,} private records", xscale="log", xlabel="ε", ylabel="accuracy"
        )
        axes.set_xticks(LEVELS, [f"{level:g}" for level in LEVELS])
        axes.minorticks_off()
    lines = {
        label: line for axes in picture.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    picture.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4, fontsize="small")
    return picture
