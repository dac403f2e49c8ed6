"""What the benchmark runs: named grids of cells, each one learner on one task at one ε with one seed."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.learners.methods import BASELINES, METHODS
from benchmarks.learners.tasks import drawn_task, minority
from learners.data.sources import Data
from learners.data.tasks import Task

__all__ = ["GRIDS", "Cell", "Setting", "Source", "cells", "packed", "run", "task_of", "unpacked"]

LEVELS = (0.1, 1.0, 3.0)


@dataclass(frozen=True)
class Setting:
    """How a task is made of a source: see :func:`benchmarks.learners.tasks.drawn_task`."""

    source: str
    private: int
    public: int = 200
    unlabelled: int = 1000
    imbalance: float = 1.0
    shifted: bool = False
    balanced: bool = False

    def __str__(self) -> str:
        """Its key in the results."""
        more = [f"imbalance {self.imbalance:g}"] if self.imbalance > 1 else []
        more += ["shifted"] if self.shifted else []
        more += ["balanced"] if self.balanced else []
        return ", ".join([self.source, f"{self.private} private", f"{self.public}+{self.unlabelled} public", *more])

    @property
    def title(self) -> str:
        """For a table."""
        wide = f", {self.unlabelled:,} unlabelled" if self.unlabelled else ""
        each = ", as many of each class" if self.balanced else ""
        return f"{self.source}: {self.private:,} private records; public: {self.public} labelled{each}{wide}"


class Source(NamedTuple):
    """Features: what tasks are split from, test records, another public set, and encoded names of the classes."""

    pool: Data
    test: Data
    other: NDArray[np.generic] | None = None
    names: NDArray[np.generic] | None = None


class Cell(NamedTuple):
    """One number of the tables."""

    setting: Setting
    method: str
    epsilon: float | None
    seed: int

    @property
    def key(self) -> str:
        """Unique, and the same in later runs."""
        level = "" if self.epsilon is None else f" | ε = {self.epsilon:g}"
        return f"{self.setting} | {self.method}{level} | seed {self.seed}"


FASHION = Setting("fashion", 10_000)
FASHION_MIXED = replace(FASHION, private=1_000, unlabelled=0)
PIXELS = replace(FASHION, source="fashion pixels")
NEWS = Setting("news", 10_000)
NEWS_MIXED = replace(NEWS, private=1_000, unlabelled=0)

NAMED = [name for name in METHODS if "names" in name]
ABLATED = ["NoisyGD, C = 0.1", "FilteredGD", "WhitenedGD, C = 1"]
BALANCED = [name for name in METHODS if name.endswith("balanced")]
TAUGHT = [name for name in METHODS if "self-trained" in name]
PLAIN = [name for name in METHODS if name not in {*NAMED, *ABLATED, *BALANCED, *TAUGHT}]
PUBLIC = "DPPL-Public (pure ε)"
LONG_TAILED = ["WhitenedGD", "DP-SGD", "NoisyGD (Fully-Private)", "DPPL-Mean", PUBLIC, "DP ridge"]
LABELLED = ["public start", "AdaMix", "WhitenedGD, labels"]
MIXED = ["NoisyGD (Fully-Private)", "public start", "AdaMix", "AdaMix, projected"]
ON_PIXELS = ["WhitenedGD", "NoisyGD (Fully-Private)", "PILLAR, k = 40", "DPPL-Mean", PUBLIC, "DP ridge", "DP-LS"]
USES_LABELS = [name for name in PLAIN if METHODS[name].public in {"labelled", "both"}]

Part = tuple[Sequence[Setting], Sequence[str], Sequence[float]]
GRIDS: Mapping[str, Sequence[Part]] = {
    "core": [
        ([FASHION, FASHION_MIXED, NEWS, NEWS_MIXED], ["Only-Public", "probe", "nearest mean", *PLAIN], LEVELS),
        ([PIXELS], ["Only-Public", "probe", "nearest mean", *ON_PIXELS], LEVELS),
    ],
    "mixed": [([FASHION_MIXED], ["Only-Public", *MIXED, "PPGD", "NGD"], (1.0, 3.0))],
    "names": [
        (
            [NEWS, NEWS_MIXED],
            ["Only-Public", "class names alone", "NoisyGD (Fully-Private)", "AdaMix", "AdaMix, projected", *NAMED],
            (1.0, 3.0),
        )
    ],
    "imbalance": [
        (
            [replace(setting, imbalance=float(ratio)) for setting in (FASHION, NEWS) for ratio in (1, 10, 50, 100)],
            ["Only-Public", "probe", "nearest mean", *LONG_TAILED, *LABELLED, *BALANCED],
            LEVELS,
        ),
        ([FASHION_MIXED, NEWS_MIXED], BALANCED[:1], LEVELS),
    ],
    "taught": [
        (
            [replace(setting, imbalance=float(ratio)) for setting in (FASHION, NEWS) for ratio in (1, 10, 50, 100)],
            TAUGHT,
            LEVELS,
        )
    ],
    "shifted": [([FASHION, replace(FASHION, shifted=True)], ["PILLAR, k = 40", "JL, k = 40", PUBLIC], LEVELS)],
    "sizes": [
        (
            [replace(setting, unlabelled=size) for setting in (FASHION, NEWS) for size in (50, 200, 1000)],
            ["PILLAR, k = 40"],
            LEVELS,
        ),
        (
            [replace(setting, public=size, unlabelled=0) for setting in (FASHION, NEWS) for size in (50, 200, 1000)],
            ["Only-Public", *USES_LABELS],
            (1.0,),
        ),
    ],
    "ablation": [
        ([FASHION, FASHION_MIXED, NEWS, NEWS_MIXED], ["NoisyGD (Fully-Private)", "WhitenedGD", *ABLATED], LEVELS),
    ],
    "shots": [
        (
            [
                replace(FASHION_MIXED, public=10 * shots, private=size, balanced=True)
                for size in (1_000, 10_000)
                for shots in (2, 5)
            ],
            ["Only-Public", *MIXED, "WhitenedGD, labels"],
            (1.0, 3.0),
        )
    ],
    "large": [([replace(FASHION, source="fashion, all", private=58_800)], ["probe", "nearest mean", *PLAIN], LEVELS)],
    "quick": [([Setting("digits", 2_000, unlabelled=500)], ["Only-Public", "probe", "nearest mean", *PLAIN], (1.0,))],
}
"""By name; "core" first, "mixed" part of it for more seeds. "large" has all of Fashion-MNIST, "quick" pip's digits."""


def cells(names: Sequence[str], seeds: int) -> list[Cell]:
    """The cells of some grids, each once; all that one seed needs before the next seed, and task by task."""
    found: dict[Cell, None] = {}
    for seed in range(seeds):
        for name in names:
            for settings, methods, levels in GRIDS[name]:
                for setting in settings:
                    for method in methods:
                        for level in [None] if method in BASELINES else levels:
                            found[Cell(setting, method, level, seed)] = None
    return list(found)


def run(
    wanted: Sequence[Cell], sources: Mapping[str, Callable[[], Source]], device: str = "cpu"
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """What each cell finds: accuracy, also on the smallest quarter of classes, certified ε, who is right, seconds."""
    made: dict[str, Source] = {}
    last: tuple[Setting, int] | None = None
    for cell in wanted:
        if cell.setting.source not in made:
            made[cell.setting.source] = sources[cell.setting.source]()
        if last != (cell.setting, cell.seed):
            task, last = task_of(cell.setting, made[cell.setting.source], cell.seed), (cell.setting, cell.seed)
        start = time.perf_counter()
        if cell.epsilon is None:
            predicted, certified = BASELINES[cell.method].predict(task, device), None
        else:
            model = METHODS[cell.method].fit(task, cell.epsilon, cell.seed, device)
            predicted, certified = model.predict(task.test.X), float(model.certificate_.guarantee.epsilon or 0.0)
        right = predicted == task.test.y
        rare = np.isin(task.test.y, minority(task.private.y, task.classes))
        yield (
            cell,
            {
                "accuracy": float(right.mean()),
                "minority": float(right[rare].mean()),
                "certified": certified,
                "right": packed(right),
                "seconds": round(time.perf_counter() - start, 3),
            },
        )


def packed(right: NDArray[np.bool_]) -> str:
    """Which test records were right, a bit for each.

    Example:
        >>> unpacked(packed(np.array([True, False, True])), 3).tolist()
        [True, False, True]
    """
    return base64.b64encode(np.packbits(right).tobytes()).decode()


def unpacked(text: str, size: int | None = None) -> NDArray[np.bool_]:
    """The reverse; without a size, of a multiple of eight, the last ones False."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))[:size].astype(bool)


def task_of(setting: Setting, source: Source, seed: int) -> Task:
    """The split that a seed draws."""
    return drawn_task(
        source.pool,
        source.test,
        private=setting.private,
        public=setting.public,
        unlabelled=setting.unlabelled,
        seed=seed,
        imbalance=setting.imbalance,
        other=source.other if setting.shifted else None,
        shifted=setting.shifted,
        names=source.names,
        balanced=setting.balanced,
    )
