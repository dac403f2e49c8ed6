"""Figure 2 of the AdaMix paper: what a record is worth, public or private, and what private records add to public ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import band, distinct, seeds
from benchmarks.figures.mixed import EPSILON, ONLY, PARAGON, SETTINGS, count, error, without_privacy
from benchmarks.learners.grid import MIXED, Setting, task_of
from benchmarks.learners.methods import METHODS
from benchmarks.learners.results import show, table
from learners.adamix import performance_boost
from learners.data.tasks import plain_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES", "needed"]

PER_CLASS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
LARGEST = 5_000
"""Records of which so many per class are taken, together."""
LEVELS = (1.0, 3.0, 10.0)
ALONE = "NoisyGD (Fully-Private)"
BOOSTED = MIXED[1:]
PUBLIC = (20, 50, 100, 200, 500, 1000)
CLOSEST = 1e-3
"""To the error without privacy: no learner counts as closer, or the boost would be without bound."""


def compute(given: Given) -> Rows:
    """Rows of two panels: "worth" has a row per number of records and how they are used, "boost" per size of the public set."""
    many = {setting: _per_class(given, setting) for setting in SETTINGS}
    total = given.seeds * sum((1 + len(LEVELS)) * len(sizes) + (2 + len(BOOSTED)) * len(PUBLIC) for sizes in many.values())
    return list(given.watch(_runs(given, many), total))


def _per_class(given: Given, setting: Setting) -> list[int]:
    classes = len(np.unique(given.source(setting.source).pool.y))
    return [size for size in PER_CLASS if size * classes <= LARGEST]


def _runs(given: Given, many: dict[Setting, list[int]]) -> Iterator[dict[str, Any]]:
    for setting, sizes in many.items():
        source = given.source(setting.source)
        for seed in range(given.seeds):
            for size in sizes:
                task = task_of(replace(setting, private=size * len(np.unique(source.pool.y))), source, seed)
                key = {"panel": "worth", "source": setting.source, "seed": seed, "size": size}
                weights = without_privacy(task, [task.private], given.device)
                yield {**key, "epsilon": None, "error": error(weights, task)}
                for level in LEVELS:
                    model = METHODS[ALONE].fit(task, level, seed, given.device)
                    yield {**key, "epsilon": level, "error": error(model.weights_, task)}
            for size in PUBLIC:
                task = task_of(replace(setting, public=size), source, seed)
                key = {"panel": "boost", "source": setting.source, "seed": seed, "size": size}
                weights = plain_weights(task.classes, [task.public], device=given.device)
                yield {**key, "method": ONLY, "error": error(weights, task)}
                weights = without_privacy(task, [task.private, task.public], given.device)
                yield {**key, "method": PARAGON, "error": error(weights, task)}
                for method in BOOSTED:
                    model = METHODS[method].fit(task, EPSILON, seed, given.device)
                    yield {**key, "method": method, "error": error(model.weights_, task)}


def needed(sizes: Sequence[int], accuracies: Sequence[float], wanted: float) -> float:
    """The size at which an accuracy is first reached, linear in log(size) between two sizes; ∞ if it never is.

    Example:
        >>> print(f"{needed([1, 10, 100], [0.1, 0.5, 0.7], 0.6):.2f} {needed([1, 10], [0.1, 0.5], 0.6):.2f}")
        31.62 inf
    """
    if accuracies[0] >= wanted:
        return float(sizes[0])
    for k in range(1, len(sizes)):
        if accuracies[k] >= wanted:
            share = (wanted - accuracies[k - 1]) / (accuracies[k] - accuracies[k - 1])
            return float(sizes[k - 1] * (sizes[k] / sizes[k - 1]) ** share)
    return float("inf")


def pseudo_values(runs: NDArray[np.float64], function: Callable[[NDArray[np.float64]], float]) -> list[float]:
    """The jackknife's, one for each run, of a function of means: their mean estimates it, their spread tells how well.

    Args:
        runs: shape (numbers, runs).
        function: of the means of these numbers.

    Example:
        >>> pseudo_values(np.array([[1.0, 2.0, 6.0]]), lambda means: float(means[0]))
        [1.0, 2.0, 6.0]
    """
    n = runs.shape[1]
    whole = function(runs.mean(axis=1))
    return [n * whole - (n - 1) * function(np.delete(runs, k, axis=1).mean(axis=1)) for k in range(n)]


def _accuracies(rows: Rows, name: str, epsilon: float | None) -> list[list[float]]:
    sizes = distinct([row for row in rows if row["panel"] == "worth" and row["source"] == name], "size")
    return [
        [1 - found for found in values(rows, "error", panel="worth", source=name, size=size, epsilon=epsilon)] for size in sizes
    ]


def _boosts(rows: Rows, name: str, method: str, size: int) -> list[float]:
    runs = np.array([values(rows, "error", panel="boost", source=name, method=one, size=size) for one in (ONLY, PARAGON, method)])

    def boost(means: NDArray[np.float64]) -> float:
        only, best, own = means.tolist()
        return performance_boost(only, best, max(own, best + CLOSEST))

    return pseudo_values(runs, boost)


def draw(rows: Rows) -> Picture:
    """Accuracy against records per class; performance boost against the size of the public set."""
    from matplotlib.figure import Figure as Canvas

    names = distinct(rows, "source")
    picture = Canvas(figsize=(9, 3.5 * len(names)), layout="constrained")
    panels = picture.subplots(len(names), 2, squeeze=False)
    for name, (left, right) in zip(names, panels, strict=True):
        part = [row for row in rows if row["source"] == name]
        sizes = distinct([row for row in part if row["panel"] == "worth"], "size")
        for number, level in enumerate([None, *sorted(level for level in distinct(part, "epsilon") if level)]):
            color, label = ("green", "public") if level is None else (f"C{2 + number}", f"private, ε = {level:g}")
            band(left, sizes, _accuracies(rows, name, level), label, color)
        shares = distinct([row for row in part if row["panel"] == "boost"], "size")
        for number, method in enumerate(BOOSTED, 1):
            band(right, shares, [_boosts(rows, name, method, size) for size in shares], method, f"C{number}")
        right.axhline(1.0, color="black", linestyle="--", linewidth=0.8, label="no better than Only-Public")
        left.set(title=name, xscale="log", xlabel="records per class", ylabel="test accuracy", ylim=(0, None))
        right.set(title=f"{name}, ε = {EPSILON:g}", xscale="log", xlabel="public records, beside 1,000 private ones")
        right.set_ylabel("performance boost")
        for axes, ticks in ((left, sizes), (right, shares)):
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
        right.legend(fontsize="x-small")
    panels[0, 0].legend(fontsize="x-small")
    return picture


def _worth(rows: Rows, name: str) -> tuple[str, str]:
    """What was found, and tables: how many private records reach the accuracy of so many public ones."""
    part = [row for row in rows if row["panel"] == "worth" and row["source"] == name]
    sizes, levels = distinct(part, "size"), [level for level in distinct(part, "epsilon") if level]
    runs = {level: _accuracies(rows, name, level) for level in (None, *levels)}
    means = {level: np.mean(found, axis=1).tolist() for level, found in runs.items()}
    text, lines = "", []
    for level in levels:
        found = [needed(sizes, means[level], accuracy) for accuracy in means[None]]
        lines.append([f"private, ε = {level:g}", *(f"{one:.0f}" if np.isfinite(one) else f"> {sizes[-1]}" for one in found)])
        told = [one / size for one, size in zip(found, sizes, strict=True) if sizes[0] < one < np.inf]
        span = f"{min(told):.1f} to {max(told):.1f} private ones" if told else "no number of private ones that can be told"
        text += f"- {name}, ε = {level:g}: a public record is worth {span}, where this can be told; "
        text += f"{sum(np.isinf(found))} of {len(sizes)} sizes need more than {sizes[-1]} private records per class.\n"
    accuracies = [["public", *map(show, runs[None])], *([f"private, ε = {level:g}", *map(show, runs[level])] for level in levels)]
    return text, (
        f"### Test accuracy: {name}\n\n{table(['records per class', *map(str, sizes)], accuracies)}\n\nPrivate records per class "
        "that reach the mean accuracy of so many public ones (linear in their logarithm between two sizes):\n\n"
        f"{table(['public records per class', *map(str, sizes)], lines)}\n\n"
    )


def _boost(rows: Rows, name: str) -> tuple[str, str]:
    """What was found, and a table: the performance boost by the size of the public set."""
    sizes = distinct([row for row in rows if row["panel"] == "boost" and row["source"] == name], "size")
    runs = {method: [_boosts(rows, name, method, size) for size in sizes] for method in BOOSTED}
    means = {method: np.mean(found, axis=1) for method, found in runs.items()}
    best = [max(BOOSTED, key=lambda method: float(means[method][k])) for k in range(len(sizes))]
    leaders = "; ".join(f"{method} at {count([one == method for one in best], 'sizes')}" for method in BOOSTED)
    changes = ", ".join(f"{method} {found[0]:.2f} and {found[-1]:.2f}" for method, found in means.items())
    lines = [[method, *map(show, runs[method])] for method in BOOSTED]
    for method in (ONLY, PARAGON):
        own = [show(values(rows, "error", panel="boost", source=name, method=method, size=size)) for size in sizes]
        lines.append([f"test error: {method}", *own])
    return (
        f"- {name}, largest mean boost: {leaders}. With {sizes[0]} and {sizes[-1]} public records: {changes}.\n",
        f"### Performance boost at ε = {EPSILON:g}: {name}\n\n{table(['public records', *map(str, sizes)], lines)}\n\n",
    )


def tell(rows: Rows) -> str:
    """How many private records a public one is worth, and boosts."""
    parts = [part(rows, name) for part in (_worth, _boost) for name in distinct(rows, "source")]
    found, tables = ("".join(texts) for texts in zip(*parts, strict=True))
    return f"**Found:**\n\n{found}\n{NOTE.format(seeds=seeds(rows), closest=CLOSEST)}{tables}"


NOTE = """*Accuracy*: the same records, of which there are so many per class on average, are used as if they were public (ordinary
training, a fifth of them chooses its weight decay) or by NoisyGD from zero; both see features centred by the mean of 200 other,
public records.
*Performance boost*: (err of Only-Public − err of training on all records without privacy)/(err − err of training on all records
without privacy), of mean errors; 1 is no better than Only-Public, below 1 worse; the denominator is at least {closest:g}. The
jackknife corrects its bias and gives the interval; both are rough where the denominator is as small as its spread, which a wide
interval tells. Which mean is largest is not tested. Settings are the learners' defaults; δ = 1e-5, add-or-remove-one. Means and
95 % Student intervals over {seeds} seeds.

"""

FIGURES = (
    Figure(
        "adamix-2",
        "Figure 2 of the AdaMix paper: public and private records",
        "on MIT-67 with ResNet-50, fully private training needs as much as 10 times more samples than public ones; AdaMix has "
        "the best performance boost, which falls as the public set grows (Golatkar et al. 2022, §4.1).",
        5,
        compute,
        draw,
        tell,
    ),
)
