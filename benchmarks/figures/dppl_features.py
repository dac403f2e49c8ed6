"""DPPL paper, Figures 6 to 8: what prototypes owe to the encoder, a projection, and where candidates come from."""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.figures import curves
from benchmarks.figures.figure import Figure, Given, Rows
from benchmarks.figures.means import CLEARLY, seeds
from benchmarks.learners.grid import FASHION, PIXELS, PUBLIC, Setting, task_of
from benchmarks.learners.methods import METHODS
from learners.data.sources import Data
from learners.data.tasks import Task
from learners.pillar import projection

__all__ = ["FIGURES"]

LEVELS = (0.1, 1.0, 3.0, 10.0)
DIMENSION = 40
OWN, PROJECTED, ELSEWHERE = "EfficientNet-Lite0", f"{DIMENSION} components", "public: MNIST digits"
VARIANTS: dict[str, Setting] = {
    OWN: FASHION,
    "pixels": PIXELS,
    PROJECTED: FASHION,
    ELSEWHERE: replace(FASHION, shifted=True),
}
METHOD_NAMES = ("DPPL-Mean", PUBLIC, "DP ridge")


def compute(given: Given) -> Rows:
    """A row per run: learner, what it sees, ε, seed, accuracy."""
    rows = []
    wanted = [(name, seed) for name in VARIANTS for seed in range(given.seeds)]
    for name, seed in given.watch(wanted, len(wanted)):
        task = task_of(VARIANTS[name], given.source(VARIANTS[name].source), seed)
        if name == PROJECTED:
            task = on_components(task)
        for method in METHOD_NAMES:
            for epsilon in LEVELS:
                found = METHODS[method].fit(task, epsilon, seed, given.device).score(*task.test)
                rows.append(
                    {"source": method, "learner": name, "epsilon": epsilon, "seed": seed, "accuracy": round(found, 6)}
                )
    return rows


def on_components(task: Task) -> Task:
    """All its records on principal components of the unlabelled public ones."""
    directions = projection(torch.from_numpy(task.unlabelled).double(), DIMENSION).numpy()
    private, test = (Data(part.X @ directions, part.y) for part in (task.private, task.test))
    return task._replace(private=private, test=test, unlabelled=task.unlabelled @ directions)


def tell(rows: Rows) -> str:
    """Each variant beside the features as they are."""
    found = " ".join(curves.beside(rows, name, OWN, "epsilon", "ε") for name in VARIANTS if name != OWN)
    return (
        f"**Found:** {found}\n\nFashion-MNIST, {FASHION.private:,} private records, {FASHION.unlabelled:,} unlabelled "
        "public ones. *Encoder*: the one that installs, beside none (pixels). *Projection*: on principal components of "
        "the public records; the paper's is trained by DP-SGD in a way that is not private (a record of the support "
        "set is in the clipped gradient of every query: proofs/dppl.md), so that it is not offered. *Public data*: "
        "candidates, and the centre of the features, from MNIST digits, which is further off than the paper's "
        "photographs with captions. Defaults; δ = 1e-5 (DPPL-Public: δ = 0). Means and 95 % Student intervals over "
        f"{seeds(rows)} seeds. {CLEARLY}\n\n{curves.tables(rows, 'epsilon', 'ε')}"
    )


FIGURES = (
    Figure(
        "dppl-6",
        "Figures 6 to 8 of the DPPL paper: encoder, projection, public data",
        "the success of all methods depends on the quality of the encoder, and none is satisfactory with ResNet-50; a "
        "projection that is trained does not help; public data other than the encoder's own do "
        "nearly as well (Wahdany et al. 2024, §5.3).",
        3,
        compute,
        lambda rows: curves.draw(rows, "epsilon", "ε"),
        tell,
    ),
)
