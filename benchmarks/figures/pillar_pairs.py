"""Pairs of classes (PILLAR paper, Figure 3): how much of a classifier lies in k components; private selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.figures import curves
from benchmarks.figures.figure import Figure, Given, Rows
from benchmarks.figures.means import CLEARLY, distinct, seeds
from benchmarks.learners.grid import FASHION, NEWS, PIXELS, Setting, task_of
from benchmarks.learners.methods import DELTA, FULL, Method
from benchmarks.learners.results import show
from examples.pillar_selection import PILLARSelection
from learners.data.sources import Data
from learners.data.tasks import Task
from learners.gradients.softmax import train_public
from learners.noisy_gd import NoisyGD
from learners.pillar import PILLAR, projection

__all__ = ["FIGURES", "pair", "separability"]

SOURCES: dict[str, Setting] = {"fashion": FASHION, "pixels": PIXELS, "news": NEWS}
TRAINED = ("fashion", "news")
PAIRS = ((0, 1), (2, 6))
"""Places in the list of classes: of Fashion-MNIST T-shirt and trousers, pullover and shirt."""
DIMENSIONS = (2, 5, 10, 20, 40, 80, 160)
LEVELS = (0.7, 1.0, 3.0)
STEPS = 500
"""T of each of the selection's runs; its releases are of single records."""
LEARNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "PILLARSelection, k = 40": (PILLARSelection, {"steps": STEPS}),
    "PILLAR, k = 40": (PILLAR, {**FULL, "k": 40}),
    "NoisyGD": (NoisyGD, FULL),
}


def pair(task: Task, places: tuple[int, int]) -> Task:
    """Records of two classes; public ones without labels stay all."""
    names = [task.classes[place] for place in places]

    def own(data: Data) -> Data:
        kept = np.isin(data.y, names)
        return Data(data.X[kept], data.y[kept])

    return task._replace(private=own(task.private), public=own(task.public), test=own(task.test), classes=names)


def separability(features: Tensor, labels: Tensor, k: int, *, weight_decay: float = 1e-2) -> float:
    """ξ_k = 1 − ‖A_k A_kᵀ w‖ of a linear classifier w, norm 1; *public* records, two classes (Definition 3, Figure 3).

    Args:
        features: public, shape (n, d).
        labels: 0 or 1.
        k: dimensions.
        weight_decay: of the classifier's training, on the summed loss.

    Example:
        >>> X = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.1], [0.0, -0.1]])
        >>> separability(X, torch.tensor([0, 1, 0, 1]), 2) < 1e-6
        True
    """
    weights = train_public(
        features,
        labels,
        start=torch.zeros((features.shape[1], 2), device=features.device, dtype=features.dtype),
        weight_decay=weight_decay,
    )
    normal = weights[:, 1] - weights[:, 0]
    normal = normal / normal.norm()
    return float(1 - (projection(features, k).T @ normal).norm())


def compute_separability(given: Given) -> Rows:
    """A row per source, pair, k and seed: ξ_k on records that all are public."""
    rows = []
    wanted = [(name, seed) for name in SOURCES for seed in range(given.seeds)]
    for name, seed in given.watch(wanted, len(wanted)):
        task = task_of(SOURCES[name], given.source(SOURCES[name].source), seed)
        for places in PAIRS:
            two = pair(task, places)
            x, y = (
                torch.from_numpy(two.private.X).double(),
                torch.from_numpy((two.private.y == two.classes[1]).astype(np.int64)),
            )
            for k in DIMENSIONS:
                key = {"source": f"classes {places[0]} and {places[1]}", "learner": name, "k": k, "seed": seed}
                rows.append({**key, "xi": round(separability(x, y, k), 6)})
    return rows


def tell_separability(rows: Rows) -> str:
    """ξ of features beside pixels."""
    text = []
    for name in distinct(rows, "source"):
        own = {
            kind: [row["xi"] for row in rows if (row["source"], row["learner"], row["k"]) == (name, kind, 40)]
            for kind in SOURCES
        }
        text.append(f"{name}: " + ", ".join(f"{kind} {show(found)}" for kind, found in own.items()))
    return (
        f"**Found:** ξ₄₀ of {'; '.join(text)}.\n\nξ_k = 1 − ‖A_kA_kᵀw‖, w a logistic regression of norm 1 (the paper: "
        "a linear SVM, and the square) on records of two classes that play the private part, A_k their own top k "
        "principal components; the smaller, the more of w is kept. Means and 95 % Student intervals over "
        f"{seeds(rows)} seeds, which draw the records.\n\n{curves.tables(rows, 'k', 'k', 'xi')}"
    )


def compute_selection(given: Given) -> Rows:
    """A row per run: source and pair, learner, ε, seed, accuracy."""
    rows = []
    wanted = [(name, seed) for name in TRAINED for seed in range(given.seeds)]
    for name, seed in given.watch(wanted, len(wanted)):
        task = task_of(SOURCES[name], given.source(SOURCES[name].source), seed)
        for places in PAIRS:
            two = pair(task, places)
            for learner, (kind, settings) in LEARNERS.items():
                for epsilon in LEVELS:
                    public: Any = "nothing" if kind is NoisyGD else "unlabelled"
                    found = Method(kind, settings, public).fit(two, epsilon, seed, given.device).score(*two.test)
                    key = {
                        "source": f"{name}, classes {places[0]} and {places[1]}",
                        "learner": learner,
                        "epsilon": epsilon,
                    }
                    rows.append({**key, "seed": seed, "accuracy": round(found, 6)})
    return rows


def tell_selection(rows: Rows) -> str:
    """The selection beside PILLAR."""
    one, two, _ = LEARNERS
    return (
        f"**Found:** {curves.beside(rows, one, two, 'epsilon', 'ε')}\n\nThe paper proves its sample complexity with "
        "Algorithm 2 and runs Algorithm 1 only. Here both, on about 2,000 (news: 1,000) private records of two "
        f"classes; 1,000 unlabelled public ones of all classes; δ = {DELTA:g}, add-or-remove-one. Algorithm 2 is four "
        f"runs of {STEPS} steps, each of a single record without replacement, and a choice by the exponential "
        f"mechanism; the others take {FULL['steps']} steps at full batch. Defaults. Means and 95 % Student intervals "
        f"over {seeds(rows)} seeds. {CLEARLY}\n\n{curves.tables(rows, 'epsilon', 'ε')}"
    )


FIGURES = (
    Figure(
        "pillar-3",
        "Figure 3 of the PILLAR paper: how much of a classifier lies in k components",
        "linear classifiers of two CIFAR-10 or CIFAR-100 classes lie far more in few principal components of "
        "pre-trained features than of pixels (Pinto et al. 2024, §3.1).",
        3,
        compute_separability,
        lambda rows: curves.draw(rows, "k", "dimension k", "xi", "ξ_k"),
        tell_separability,
    ),
    Figure(
        "pillar-selection",
        "Algorithm 2 of the PILLAR paper: private selection among single-record runs",
        "with a scaled hinge loss, noisy descent over single records and a private choice among its runs, few private "
        "labels are enough if the classes are separable in few components (Pinto et al. 2024, Theorem 1); "
        "no experiment shows it.",
        3,
        compute_selection,
        lambda rows: curves.draw(rows, "epsilon", "ε"),
        tell_selection,
    ),
)
