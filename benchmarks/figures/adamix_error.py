"""Figure 1 of the AdaMix paper: test error by ε, and how well a membership attack does, beside what is certified."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

import privcalc as pc
from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import CLEARLY, band, distinct, seeds, where
from benchmarks.figures.mixed import ONLY, PARAGON, SETTINGS, count, error, tasks, without_privacy
from benchmarks.learners.grid import Source, task_of
from benchmarks.learners.methods import METHODS
from benchmarks.learners.results import show, table
from learners.data.sources import Data, split
from learners.data.tasks import plain_weights
from learners.frame.records import as_features, as_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES", "attack", "auc", "largest_auc", "largest_swap"]

LEVELS = (0.1, 1.0, 3.0)
COMPARED = ("NoisyGD (Fully-Private)", "PPGD", "NGD", "AdaMix", "AdaMix, projected")
CERTIFIED = {"swap": "certified: members and others", "area": "certified: with and without a record"}


def auc(members: NDArray[Any], others: NDArray[Any]) -> float:
    """The chance that a member's score is above another record's, ties counted half.

    Example:
        >>> auc(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
        0.625
    """
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


def attack(weights: torch.Tensor, members: Data, others: Data, classes: list[Any]) -> float:
    """AUC of the attack that calls records of small cross-entropy members (Sablayrolles et al. 2019, one threshold)."""

    def fit(data: Data) -> NDArray[Any]:
        scores = as_features(data.X, str(weights.device)) @ weights
        labels = as_labels(data.y, classes, str(weights.device))
        found: NDArray[Any] = -torch.nn.functional.cross_entropy(scores, labels, reduction="none").cpu().numpy()
        return found

    return auc(fit(members), fit(others))


@cache
def largest_auc(run: pc.Run, points: int = 400) -> float:
    """The area under the run's trade-off curve, rounded up.

    It bounds the AUC of every attack that tells runs with one record from runs without it, whatever else it knows
    (add-or-remove-one). In either order β is convex, so that the midpoint rule is at most its integral.

    Example:
        >>> print(f"{largest_auc(pc.Gaussian(noise_multiplier=1.0) * 1):.4f}")    # Φ(1/√2)
        0.7603
    """
    return 1.0 - float(np.mean([run.beta(alpha=(k + 0.5) / points).lower for k in range(points)]))


def largest_swap(run: pc.Run) -> float:
    """The largest expected AUC of scores that one model gives its members and other records, if both are drawn alike.

    Swapping a member and another record is replacing one record. It turns a pair that is ranked rightly into one that
    is not: AUC − (1 − AUC) is at most the advantage under replace-one.

    Example:
        >>> print(f"{largest_swap(pc.Gaussian(noise_multiplier=1.0) * 1):.4f}")    # Φ(1)
        0.8413
    """
    return (1.0 + run.advantage(relation=pc.REPLACE_ONE).upper) / 2


def up(value: float) -> float:
    """Rounded up to 6 digits.

    Example:
        >>> up(0.1234561)
        0.123457
    """
    return round(math.ceil(value * 1e6) / 1e6, 6)


def compute(given: Given) -> Rows:
    """A row per run: error, AUC of the attack, and both bounds."""
    total = len(SETTINGS) * given.seeds * (2 + len(COMPARED) * len(LEVELS))
    return list(given.watch(_runs(given), total))


def _runs(given: Given) -> Iterator[dict[str, Any]]:
    for setting, seed, task in tasks(given):
        source = given.source(setting.source)
        used = [setting.unlabelled, setting.public, setting.private]
        rest = split(source.pool, [*used, len(source.pool.y) - sum(used)], seed)[-1]
        others = task_of(setting, Source(source.pool, rest, source.other), seed).test
        key = {"source": setting.source, "seed": seed}

        def judge(weights: torch.Tensor, task: Any = task, others: Data = others) -> dict[str, Any]:
            found = attack(weights, task.private, others, task.classes)
            return {"error": error(weights, task), "auc": round(found, 6)}

        for name, weights in (
            (ONLY, plain_weights(task.classes, [task.public], device=given.device)),
            (PARAGON, without_privacy(task, [task.private, task.public], given.device)),
        ):
            yield {**key, "method": name, "epsilon": None, **judge(weights)}
        for level in LEVELS:
            for method in COMPARED:
                model = METHODS[method].fit(task, level, seed, given.device)
                run = model.plan_.run
                bounds = {"swap": up(largest_swap(run)), "area": up(largest_auc(run))}
                yield {**key, "method": method, "epsilon": level, **judge(model.weights_), **bounds}


def draw(rows: Rows) -> Picture:
    """Error against ε, AUC against error, and AUC against ε below the certified bounds."""
    from matplotlib.figure import Figure as Canvas

    names, levels = distinct(rows, "source"), sorted(level for level in distinct(rows, "epsilon") if level)
    picture = Canvas(figsize=(13, 3.8 * len(names)), layout="constrained")
    panels = picture.subplots(len(names), 3, squeeze=False)
    for name, (left, middle, right) in zip(names, panels, strict=True):
        noted: list[list[float]] = []
        for number, method in enumerate(COMPARED):
            found = {
                what: [values(rows, what, source=name, method=method, epsilon=level) for level in levels]
                for what in ("error", "auc")
            }
            band(left, levels, found["error"], method, f"C{number}")
            band(right, levels, found["auc"], method, f"C{number}")
            x, y = (np.mean(found[what], axis=1) for what in ("error", "auc"))
            middle.plot(x, y, "o-", color=f"C{number}", markersize=3, linewidth=0.7)
            for level, *place in zip(levels, x, y, strict=True):
                if all(np.abs(np.subtract(place, other) / (0.05, 0.006)).max() > 1 for other in noted):
                    middle.annotate(f"{level:g}", place, fontsize="x-small", textcoords="offset points", xytext=(3, 3))
                    noted.append(place)
        for method, style, marker in ((ONLY, "--", "s"), (PARAGON, ":", "^")):
            mean, chance = (float(np.mean(values(rows, what, source=name, method=method))) for what in ("error", "auc"))
            left.axhline(mean, color="black", linestyle=style, label=method)
            middle.plot(mean, chance, f"k{marker}", markersize=5, label=method)
            right.axhline(chance, color="black", linestyle=style, label=method)
        for what, label in CERTIFIED.items():
            bounds = [values(rows, what, source=name, epsilon=level)[0] for level in levels]
            right.plot(levels, bounds, color="tab:brown", linestyle="-" if what == "swap" else "-.", label=label)
        left.set(title=name, xscale="log", xlabel="ε", ylabel="test error", ylim=(0, None))
        middle.set(title=f"{name}, annotated by ε", xlabel="test error", ylabel="AUC of the attack", xmargin=0.1)
        right.set(title=name, xscale="log", xlabel="ε", ylabel="AUC of the attack", ylim=(0.45, 1))
        middle.legend(fontsize="x-small")
    panels[0, 0].legend(fontsize="x-small")
    panels[0, 2].legend(fontsize="x-small")
    return picture


def tell(rows: Rows) -> str:
    """Tables of error and AUC; who is ahead, and the largest AUC beside its bound."""
    levels, names = sorted(level for level in distinct(rows, "epsilon") if level), distinct(rows, "source")
    means = {
        (what, name, method, level): float(np.mean(values(rows, what, source=name, method=method, epsilon=level)))
        for what in ("error", "auc")
        for name in names
        for method in COMPARED
        for level in levels
    }
    points = [(name, level) for name in names for level in levels]
    best, safest = (
        [min(COMPARED, key=lambda method: means[what, name, method, level]) for name, level in points]
        for what in ("error", "auc")
    )
    text = (
        "**Found:**\n\n- Smallest mean error of the private learners (a point is a source and an ε): "
        + "; ".join(f"{method}: {count([one == method for one in best], 'points')}" for method in COMPARED)
        + ". The learner with the smallest error has also the smallest mean AUC at "
        + f"{count([one == two for one, two in zip(best, safest, strict=True)], 'points')}.\n"
    )
    for method in COMPARED:
        sides = []
        for name in names:
            base = values(rows, "error", source=name, method=ONLY)
            own = {level: values(rows, "error", source=name, method=method, epsilon=level) for level in levels}
            gains = {f"{level:g}": [a - b for a, b in zip(base, own[level], strict=True)] for level in levels}
            sides.append(f"{name}: {where(gains)}")
        text += f"- {method}, accuracy beside Only-Public at ε: {'. '.join(sides)}.\n"
    worst = max(
        ((name, method, level) for name, level in points for method in COMPARED), key=lambda key: means["auc", *key]
    )
    bound = values(rows, "swap", source=worst[0], epsilon=worst[2])[0]
    text += (
        f"- The attack's largest mean AUC against a private learner is {means['auc', *worst]:.3f} ({worst[1]}, "
        f"{worst[0]}, ε = {worst[2]:g}); certified is at most {bound:.3f}. "
        "Against training on all records without privacy: "
        + ", ".join(f"{np.mean(values(rows, 'auc', source=name, method=PARAGON)):.3f} ({name})" for name in names)
        + "; against Only-Public, which saw no member, "
        + ", ".join(f"{np.mean(values(rows, 'auc', source=name, method=ONLY)):.3f} ({name})" for name in names)
        + ".\n\n"
        + NOTE.format(seeds=seeds(rows), clearly=CLEARLY)
    )
    head = ["learner", "no ε", *(f"ε = {level:g}" for level in levels)]
    for what, title in (("error", "Test error"), ("auc", "AUC of the attack")):
        for name in names:
            lines = [
                [method, show(values(rows, what, source=name, method=method))] + [""] * len(levels)
                for method in (ONLY, PARAGON)
            ]
            for method in COMPARED:
                cells = [show(values(rows, what, source=name, method=method, epsilon=level)) for level in levels]
                lines.append([method, "", *cells])
            if what == "auc":
                for key, label in CERTIFIED.items():
                    bounds = [f"{values(rows, key, source=name, epsilon=level)[0]:.3f}" for level in levels]
                    lines.append([label, "", *bounds])
            text += f"### {title}: {name}\n\n{table(head, lines)}\n\n"
    return text


NOTE = """1,000 private records and 200 labelled public ones; settings are the learners' defaults, where the paper
chose the best learning rate for each ε. Ours is by the rule of proofs/noisy_gd.md, for 400 steps. Means and 95 %
Student intervals over {seeds} seeds; δ = 1e-5, add-or-remove-one. {clearly}

*The attack* is the paper's: one threshold on the loss of a record, its AUC over members (the private records) and
others. The others are here records of the same pool that nobody used, not test records: members and others are then
drawn alike, and what sets them apart is membership alone. It is a weak attack, and a small AUC proves nothing.

*What is certified*, which the paper lacks, is computed from the run's exact trade-off curve; no attack does better.
"Members and others" bounds the attack above, and every other score that a model gives records: swapping a member
and another record is replacing one record, so that the expected AUC is at most (1 + advantage)/2 under replace-one,
for T Gaussian steps Φ(√T/z). It bounds the expectation: what single models reach, and their mean over a few seeds,
scatters about theirs. "With and without a record" bounds another attack, on one record by someone who knows all
others: the AUC of telling runs with it from runs without it is at most the area under the trade-off curve, for T
Gaussian steps Φ(√(T/2)/z). Measured AUCs are read off the members themselves, which nothing pays for: all these
records are public, and play the private part.

"""

FIGURES = (
    Figure(
        "adamix-1",
        "Figure 1 of the AdaMix paper: error, ε and a membership attack",
        "on MIT-67 with ResNet-50, AdaMix has the smallest error at every ε and gains on Only-Public at all; under an "
        "attack the algorithms sort in the same way, AdaMix has the best trade-off (Golatkar et al. 2022, §4.1).",
        5,
        compute,
        draw,
        tell,
    ),
)
