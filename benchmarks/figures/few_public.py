"""DOPE-SGD and PDA-DPMD beside warm DP-SGD at equal certified ε, few labelled public records, Fashion-MNIST features.

Orderings are reported as found, at frozen defaults: full batch and T steps for all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import CLEARLY, clear, distinct, seeds
from benchmarks.learners.grid import FASHION_MIXED, task_of
from benchmarks.learners.methods import BASELINES, DELTA, Method
from benchmarks.learners.results import interval, show, table
from learners.dope import DOPESGD
from learners.dpsgd import DPSGD
from learners.pda_dpmd import PDADPMD

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES", "LEARNERS"]

STEPS = 50
TASK = replace(FASHION_MIXED, private=2_000)
SETTINGS = ((1.0, 1.0), (1.0, 0.1))
"""ε and C. Features have norm 1, so that C = 1 clips next to nothing, and then a public origin changes nothing."""
BASE = "DP-SGD, warm"
MEAN: dict[str, Any] = {"ensemble": STEPS, "combine": "weights"}

LEARNERS: dict[str, tuple[type[DPSGD] | type[PDADPMD], dict[str, Any]]] = {
    "DP-SGD, cold": (DOPESGD, {"origin": "none", "start": "cold"}),
    BASE: (DPSGD, {}),
    "DP-SGD, warm, mean of iterates": (DOPESGD, {"origin": "none", **MEAN}),
    "DOPE-SGD, public origin": (DOPESGD, {}),
    "DOPE-SGD, public origin, mean of iterates": (DOPESGD, MEAN),
    "DOPE-SGD, public origin, extended": (DOPESGD, {"extended": True}),
    "DOPE-SGD, origin from history": (DOPESGD, {"origin": "history"}),
    "PDA-DPMD, mirror step": (PDADPMD, {}),
    "PDA-DPMD, first order": (PDADPMD, {"update": "first order"}),
}


def compute(given: Given) -> Rows:
    """A row per run: learner, ε, C, seed and accuracy; of public records alone ε and C are null."""
    rows, source = [], given.source("fashion")
    for seed in given.watch(range(given.seeds), given.seeds):
        task = task_of(TASK, source, seed)
        right = BASELINES["Only-Public"].predict(task, given.device) == task.test.y
        rows.append(
            {
                "learner": "Only-Public",
                "epsilon": None,
                "clip_norm": None,
                "seed": seed,
                "accuracy": float(right.mean()),
            }
        )
        for epsilon, clip_norm in SETTINGS:
            for name, (kind, settings) in LEARNERS.items():
                method = Method(
                    kind, {"sample_rate": 1.0, "steps": STEPS, "clip_norm": clip_norm, **settings}, "labelled"
                )
                found = method.fit(task, epsilon, seed, given.device).score(task.test.X, task.test.y)
                rows.append(
                    {"learner": name, "epsilon": epsilon, "clip_norm": clip_norm, "seed": seed, "accuracy": found}
                )
    return rows


def _columns(rows: Rows) -> list[tuple[float, float]]:
    return [
        (epsilon, clip)
        for epsilon, clip in dict.fromkeys((row["epsilon"], row["clip_norm"]) for row in rows)
        if epsilon
    ]


def _learners(rows: Rows) -> list[str]:
    return [name for name in distinct(rows, "learner") if name != "Only-Public"]


def draw(rows: Rows) -> Picture:
    """A dot with its interval per learner and setting; the line is public records alone."""
    from matplotlib.figure import Figure as Canvas

    picture = Canvas(figsize=(8, 4), layout="constrained")
    axes, names = picture.subplots(), _learners(rows)
    for number, (epsilon, clip) in enumerate(_columns(rows)):
        found = [interval(values(rows, "accuracy", learner=name, epsilon=epsilon, clip_norm=clip)) for name in names]
        middle, half = np.array(found).T
        heights = np.arange(len(names)) + 0.15 * (2 * number - 1)
        axes.errorbar(middle, heights, xerr=half, fmt="o", capsize=2, label=f"ε = {epsilon:g}, C = {clip:g}")
    axes.axvline(
        np.mean(values(rows, "accuracy", learner="Only-Public")),
        color="gray",
        linestyle=":",
        label="public records alone",
    )
    axes.set(xlabel="accuracy", yticks=range(len(names)), yticklabels=names)
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return picture


def tell(rows: Rows) -> str:
    """Accuracies, and differences to warm DP-SGD."""
    columns, names = _columns(rows), _learners(rows)

    def runs(name: str, column: tuple[float, float]) -> list[Any]:
        return values(rows, "accuracy", learner=name, epsilon=column[0], clip_norm=column[1])

    head = [f"ε = {epsilon:g}, C = {clip:g}" for epsilon, clip in columns]
    lines = []
    sides: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for name in names:
        gains = {
            column: [float(gain) for gain in np.subtract(runs(name, column), runs(BASE, column))] for column in columns
        }
        lines.append(
            [name, *(cell for column in columns for cell in (show(runs(name, column)), show(gains[column], sign=True)))]
        )
        for where, gain in zip(head, gains.values(), strict=True):
            sides[clear(gain)].append(f"{name} ({where}: {np.mean(gain):+.3f})")
    return (
        f"**Found:** clearly better than {BASE}: {', '.join(sides[1]) or 'none'}; "
        f"clearly worse: {', '.join(sides[-1]) or 'none'}. Trained on the "
        f"{TASK.public} public records alone: {show(values(rows, 'accuracy', learner='Only-Public'))}.\n\n"
        f"Fashion-MNIST, EfficientNet-Lite0 features; {TASK.private:,} private records; full batch, {STEPS} steps, "
        f"δ = {DELTA:g}, add-or-remove-one. All learners of a column have the same certificate. Mean accuracy ± half "
        f"of a 95 % Student interval over {seeds(rows)} seeds, which draw the split and the noise; and the "
        f"difference to {BASE}, seed by seed. {CLEARLY} Learning rates are the defaults. C = 1 clips next to nothing: "
        "there a public origin changes nothing; one from history is itself noisy, and differences to it are clipped. "
        "PDA-DPMD's mirror step, too, returns the mean of its iterates.\n\n"
        + table(["learner", *(cell for name in head for cell in (name, "− warm"))], lines)
    )


FIGURES = (
    Figure(
        "few-public",
        "Few labelled public records",
        "no figure of one paper, but claims of two: DOPE-SGD (Nasr et al. 2023) and PDA-DPMD (Amid et al. 2022) are "
        "each better than DP-SGD from the same public start.",
        5,
        compute,
        draw,
        tell,
    ),
)
