"""The page's section on self-training: what a student adds, and the default learner with it beside the papers'."""

from __future__ import annotations

from benchmarks.learners.grid import GRIDS, LEVELS, PLAIN
from benchmarks.learners.methods import METHODS
from benchmarks.learners.results import Gain, Results, table, tally
from benchmarks.learners.tails import beside

__all__ = ["self_training"]

TEXT = """## Self-training

After the fit a second model is fitted to what the private one predicts for the 1,000 public records without labels,
and both predict together: it costs nothing ([proof](../proofs/whitened.md)). Its settings were frozen on MNIST
digits before anything here was run with it, once. Accuracy with it − without, seed by seed; ratios are of long
tails."""

BESIDE = """The default learner with it − the best of the five papers' learners that need no labels, and of their
baselines (in parentheses), corrected for how many these are:"""


def self_training(results: Results) -> list[str]:
    """Nothing where nothing was run."""
    settings, methods, _ = GRIDS["taught"][0]
    rows, every = [], list[Gain]()
    for method in methods:
        plain = method.removesuffix(", self-trained")
        for setting in settings:
            gains = [results.gain((setting, method, level), (setting, plain, level)) for level in LEVELS]
            every += [gain for gain in gains if gain is not None]
            shown = [
                (f"{gain} ({gain.seeds})" if gain.seeds > 1 else str(gain)) if gain is not None else ""
                for gain in gains
            ]
            rows.append([f"{plain}: {setting.source}, ratio {setting.imbalance:g}", *shown])
    if not every:
        return []
    head = ["", *(f"ε = {level:g}" for level in LEVELS)]
    others = [name for name in PLAIN if METHODS[name].public in {"unlabelled", "nothing"} and name != "WhitenedGD"]
    best = [
        [
            f"{method}: {setting.source}, ratio {setting.imbalance:g}",
            *beside(results, setting, method, others, LEVELS, "accuracy"),
        ]
        for method in methods[:2]
        for setting in settings
    ]
    mean = sum(gain.mean for gain in every) / len(every)
    text = f"{TEXT} In all {tally(every)}; the mean of the differences is {mean:+.3f}."
    return [text, table(head, rows), BESIDE, table(head, best)]
