"""What the learners reach on Fashion-MNIST features, at their frozen defaults; tables with 95 % confidence intervals.

    python -m learners.results --data FOLDER        the four files of Fashion-MNIST (or of MNIST)

Orderings are reported as found. Nothing here was chosen by looking at these test records: defaults come from the papers, or from
MNIST digits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import privcalc as pc
from learners import DPLS, PILLAR, AdaMix, DPPLMean, DPPLPublic, NoisyGD
from learners.base import Learner
from learners.data import Images, mnist_files, small_mnist, split
from learners.demo import STEPS, Task, baseline
from learners.features import encode, unit_rows

__all__ = ["main"]

DELTA = 1e-5
Make = Callable[[Task, float, int], Learner]


def _task(private: Images, public: Images, test: Images) -> Task:
    centre = public.X.mean(axis=0)
    own, shared, unseen = (Images(unit_rows(part.X, centre), part.y) for part in (private, public, test))
    return Task(own, shared, unseen, sorted(np.unique(test.y).tolist()))


def _options(task: Task, epsilon: float, seed: int) -> dict[str, Any]:
    return {
        "classes": task.classes,
        "epsilon": epsilon,
        "delta": DELTA,
        "records": len(task.private.y),
        "steps": STEPS,
        "seed": seed,
    }


def _line(name: str, values: Sequence[float]) -> str:
    spread = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"| {name} | {np.mean(values):.3f} ± {spread:.3f} |"


def compare(task: Task, makers: dict[str, tuple[Make, bool]], epsilon: float, seeds: int) -> list[str]:
    """One line of a table per learner."""
    lines = []
    for name, (make, sees_public) in makers.items():
        scores = []
        for seed in range(seeds):
            model = make(task, epsilon, seed).fit(task.private.X, task.private.y, *(task.public if sees_public else ()))
            scores.append(model.score(task.test.X, task.test.y))
        lines.append(_line(f"{name}, ε = {epsilon:g}", scores))
        print(lines[-1], flush=True)
    return lines


LARGE: dict[str, tuple[Make, bool]] = {
    "NoisyGD": (lambda t, e, s: NoisyGD(**_options(t, e, s)), False),
    "PILLAR, k = 40": (lambda t, e, s: PILLAR(**_options(t, e, s), k=40), True),
    "PILLAR's baseline JL, k = 40": (lambda t, e, s: PILLAR(**_options(t, e, s), k=40, basis="jl"), False),
    "DPPL-Mean": (lambda t, e, s: DPPLMean(classes=t.classes, epsilon=e, delta=DELTA, seed=s), False),
    "clipped mean": (lambda t, e, s: DPPLMean(classes=t.classes, epsilon=e, delta=DELTA, seed=s, shares=(1.0,)), False),
    "DP least squares": (lambda t, e, s: DPLS(classes=t.classes, epsilon=e, delta=DELTA, seed=s), False),
}

SMALL: dict[str, tuple[Make, bool]] = {
    "Fully-Private (NoisyGD)": (lambda t, e, s: NoisyGD(**_options(t, e, s)), False),
    "PPGD": (lambda t, e, s: NoisyGD(**_options(t, e, s), clip_quantile=0.9), True),
    "AdaMix": (lambda t, e, s: AdaMix(**_options(t, e, s)), True),
    "AdaMix, projection filled to 40": (lambda t, e, s: AdaMix(**_options(t, e, s), dimension=40, fill=True), True),
    "AdaMix without projection": (lambda t, e, s: AdaMix(**_options(t, e, s), dimension=None), True),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m learners.results", description="Accuracies at frozen defaults.")
    parser.add_argument("--data", required=True, help="folder with the four files of Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each (default 5)")
    args = parser.parse_args(arguments)
    try:
        train, test = mnist_files(args.data, "train"), encode(mnist_files(args.data, "t10k"))
    except OSError as error:
        parser.exit(2, f"{parser.prog}: --data {args.data}: {error}\n")
    own, shared = (encode(part) for part in split(train, [10_000, 1_200], 0))
    print("10,000 private, 1,000 unlabelled public, 10,000 test records\n\n| learner | accuracy |\n|---|---|")
    large = _task(own, Images(shared.X[:1000], shared.y[:1000]), test)
    print(_line("not private", [baseline(large, [large.private], 1e-2)]))
    for epsilon in (1.0, 0.1):
        compare(large, LARGE, epsilon, args.seeds)
    candidates = encode(small_mnist())
    for epsilon in (1.0, 0.1):
        scores = []
        for seed in range(args.seeds):
            public = DPPLPublic(classes=large.classes, epsilon=epsilon, seed=seed)
            centre = shared.X[:1000].mean(axis=0)
            public.fit(large.private.X, large.private.y, unit_rows(candidates.X, centre))
            scores.append(public.score(large.test.X, large.test.y))
        print(_line(f"DPPL-Public, prototypes among 5,000 digits, ε = {epsilon:g} (pure)", scores), flush=True)
    print("\n1,000 private, 200 labelled public, 10,000 test records\n\n| learner | accuracy |\n|---|---|")
    small = _task(Images(own.X[:1000], own.y[:1000]), Images(shared.X[1000:], shared.y[1000:]), test)
    print(_line("Only-Public", [baseline(small, [small.public], 1e-2)]))
    print(_line("not private, all records", [baseline(small, [small.private, small.public], 1e-2)]))
    for epsilon in (1.0, 3.0):
        compare(small, SMALL, epsilon, args.seeds)
    print(f"\nevery certificate at δ = {DELTA:g}, {pc.ADD_OR_REMOVE_ONE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
