"""Figure 8 of the AdaMix paper: more noise in more steps, at the same ε."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import CLEARLY, band, distinct, seeds, where
from benchmarks.figures.mixed import EPSILON, SETTINGS, tasks
from benchmarks.learners.methods import Method
from benchmarks.learners.results import show, table
from learners.adamix import AdaMix

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES"]

NOISES = (2.5, 5.0, 10.0, 20.0, 40.0)
LEARNERS: dict[str, dict[str, Any]] = {"NGD": {"clip_norm": 1.0}, "AdaMix": {"dimension": 2000}}
"""NGD is AdaMix with a fixed clip norm and without projection."""


def compute(given: Given) -> Rows:
    """A row per run: accuracy, and the steps that the accountant allows."""
    return list(given.watch(_runs(given), len(SETTINGS) * given.seeds * len(LEARNERS) * len(NOISES)))


def _runs(given: Given) -> Iterator[dict[str, Any]]:
    for setting, seed, task in tasks(given):
        for noise in NOISES:
            for name, settings in LEARNERS.items():
                method = Method(AdaMix, {"noise_multiplier": noise, **settings}, "labelled")
                model = method.fit(task, EPSILON, seed, given.device)
                key = {"source": setting.source, "learner": name, "noise": noise, "seed": seed}
                yield {**key, "steps": model.plan_.steps, "accuracy": round(model.score(*task.test), 6)}


def draw(rows: Rows) -> Picture:
    """A panel per source, a line per learner."""
    from matplotlib.figure import Figure as Canvas

    names, noises = distinct(rows, "source"), distinct(rows, "noise")
    picture = Canvas(figsize=(4.5 * len(names), 3.6), layout="constrained")
    for name, axes in zip(names, picture.subplots(1, len(names), squeeze=False)[0], strict=True):
        for number, learner in enumerate(LEARNERS):
            runs = [values(rows, "accuracy", source=name, learner=learner, noise=noise) for noise in noises]
            band(axes, noises, runs, learner, f"C{number}")
        steps = [values(rows, "steps", noise=noise)[0] for noise in noises]
        axes.set(title=name, xscale="log", xlabel="noise multiplier σ (steps T)", ylabel="test accuracy")
        axes.set_xticks(
            noises, [f"{noise:g}\n({number:,})" for noise, number in zip(noises, steps, strict=True)], minor=False
        )
        axes.minorticks_off()
        axes.legend(fontsize="x-small")
    return picture


def tell(rows: Rows) -> str:
    """Accuracies, and whether the most noise is best."""
    noises = distinct(rows, "noise")
    lines, gains, rises = [], {}, []
    for name in distinct(rows, "source"):
        for learner in LEARNERS:
            runs = [values(rows, "accuracy", source=name, learner=learner, noise=noise) for noise in noises]
            means = np.mean(runs, axis=1)
            gain = [a - b for a, b in zip(runs[-1], runs[0], strict=True)]
            lines.append([f"{name}, {learner}", *map(show, runs), show(gain, sign=True)])
            gains[f"{learner} on {name}"] = gain
            best = noises[int(means.argmax())]
            rises.append(f"{best:g} ({learner} on {name}: {means.max():.3f})")
    head = ["source, learner", *(f"σ = {noise:g}, T = {values(rows, 'steps', noise=noise)[0]:,}" for noise in noises)]
    head.append("last − first")
    return (
        f"**Found:** σ = {noises[-1]:g} beside σ = {noises[0]:g}, seed by seed: {where(gains)}. The largest mean "
        "accuracy is at σ = "
        f"{', '.join(rises)}.\n\n{NOTE.format(seeds=seeds(rows), clearly=CLEARLY)}{table(head, lines)}\n"
    )


NOTE = """At ε = 3, δ = 1e-5, add-or-remove-one, the accountant allows T steps at noise multiplier σ: T/σ² is about
the same. NGD is AdaMix with the fixed clip norm 1 and without projection. The paper chose learning rates; ours is
by the rule of proofs/noisy_gd.md, which keeps the noise in the model about the same. Means and 95 % Student
intervals over {seeds} seeds. {clearly}

"""

FIGURES = (
    Figure(
        "adamix-8",
        "Figure 8 of the AdaMix paper: more noise, more steps",
        "at ε = 3 on several datasets, a larger σ gives better accuracy with NGD and AdaMix, and needs more steps "
        "(Golatkar et al. 2022, §A.3).",
        5,
        compute,
        draw,
        tell,
    ),
)
