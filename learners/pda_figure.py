"""Figure 1 of the PDA-DPMD paper: synthetic linear regression, cold and warm noisy gradient descent and mirror descent.

    python -m learners.pda_figure               p = 500 … 6000, 20 runs: about 15 minutes of one core
    python -m learners.pda_figure --quick       p = 500, 1000 and 2000, 3 runs: half a minute

As in the paper, the best learning rate of a grid is shown for each method and p. On private data such a choice would have to be
paid for.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

import privcalc as pc
from learners.plan import make_plan
from learners.records import PrivateRecords

__all__ = ["SparseGradient", "Task", "main", "make_task", "train"]

METHODS = {"cold": "noisy GD, cold start", "warm": "noisy GD, warm start", "mirror": "PDA-DPMD"}
RATES = {
    "cold": tuple(2.0**-k for k in (5, 4, 3)),
    "warm": tuple(2.0**-k for k in (6, 5, 4, 3)),
    "mirror": tuple(2.0**-k for k in (10, 8, 6, 4, 2)),
}
"""In units in which one grid serves for every p. Of gradient steps it is p, because the Hessian falls like 1/p. Mirror steps take
the public Hessian as it is, so that 1/2 would be Newton's step; the paper scales it to smallest eigenvalue 1: another unit."""
STEPS = 20
RECORDS = 10_000
CLIP_NORMS = {"cold": 0.25, "warm": 0.1, "mirror": 0.1}
"""The norm of x is 0.55. Chosen as the best of 0.1, 0.25, 0.5 at p = 500 and 2000, as the paper chooses them."""
FIRST, OTHERS, SIZE = 40, 80, 0.05
"""A record has so many features among the first fifth and among the rest, of this size."""
RIDGE = 1e-6


@dataclass(frozen=True)
class SparseGradient:
    """Linear regression, loss (xᵀθ − y)², on records given by the increasing positions of the features that are ``SIZE``.

    A row that is no list of increasing positions within θ adds 0.
    """

    theta: Tensor

    def clipped_sum(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """Σ_i clip_C(2(x_iᵀθ − y_i)·x_i), shape (p,); ‖x‖ is the same for all."""
        p, rows, y = len(self.theta), features.numpy().astype(np.int32), labels.numpy()
        if not (np.all(rows[:, 1:] > rows[:, :-1]) and np.all(rows[:, 0] >= 0) and np.all(rows[:, -1] < p)):
            sound = (rows[:, 1:] > rows[:, :-1]).all(axis=1) & (rows[:, 0] >= 0) & (rows[:, -1] < p)
            rows, y = rows[sound], y[sound]
        matrix = _matrix(rows, p)
        residual = np.nan_to_num(2 * (matrix @ self.theta.numpy() - y), posinf=0.0, neginf=0.0)
        norms = SIZE * rows.shape[1] ** 0.5 * np.abs(residual)
        return torch.from_numpy(matrix.T @ (residual * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-30))))


@dataclass(frozen=True)
class Task:
    """One draw of the synthetic problem (paper, §3), and what is found from its public part alone.

    Attributes:
        private: positions of the features, shape (records, 120), and y.
        optimum: the minimiser of the public loss.
        solve: the Cholesky factor of the public Hessian XᵀX/n + ridge·I, for :func:`scipy.linalg.cho_solve`.
    """

    private: tuple[NDArray[np.int32], NDArray[np.float64]]
    optimum: NDArray[np.float64]
    solve: tuple[NDArray[np.float64], bool]


def make_task(p: int, seed: int, records: int = RECORDS) -> Task:
    """40 of the first p/5 features and 80 of the others are 0.05, the rest 0; y = ⟨x, θ*⟩ + N(0, 0.01), θ* ~ N(0, I)."""
    rng = np.random.default_rng([seed, p])
    theta = rng.standard_normal(p)

    def draw(n: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        first = np.argpartition(rng.random((n, p // 5), dtype=np.float32), FIRST, axis=1)[:, :FIRST]
        others = np.argpartition(rng.random((n, p - p // 5), dtype=np.float32), OTHERS, axis=1)[:, :OTHERS]
        positions = np.sort(np.hstack([first, p // 5 + others]).astype(np.int32), axis=1)
        return positions, _matrix(positions, p) @ theta + 0.1 * rng.standard_normal(n)

    private, (positions, labels) = draw(records), draw(3 * p // 2)
    matrix = _matrix(positions, p)
    hessian = (matrix.T @ matrix).toarray() / len(labels)
    hessian[np.diag_indices(p)] += RIDGE
    solve = scipy.linalg.cho_factor(hessian, lower=True, overwrite_a=True)
    return Task(private, scipy.linalg.cho_solve(solve, matrix.T @ labels / len(labels)), solve)


def _matrix(positions: NDArray[np.int32], p: int) -> scipy.sparse.csr_array:
    """The features, shape (n, p)."""
    ends = np.arange(0, positions.size + 1, positions.shape[1])
    return scipy.sparse.csr_array((np.full(positions.size, SIZE), positions.ravel(), ends), shape=(len(positions), p))


def train(task: Task, method: str, rate: float, *, epsilon: float = 1.0, delta: float = 1e-5, seed: int | None = None) -> float:
    """The empirical loss of a private model, through the contract."""
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": pc.ADD_OR_REMOVE_ONE}
    plan = make_plan(pc.Gaussian, **target, noise_multiplier=None, steps=STEPS)
    theta = np.zeros_like(task.optimum) if method == "cold" else task.optimum
    average = np.zeros_like(theta)
    with pc.Ledger(None, plan=plan.run, unit="one row", public={"records": RECORDS}, seed=seed) as ledger:
        private = PrivateRecords(task.private[0], task.private[1], ledger=ledger, classes=None)
        for _ in range(plan.steps):
            contribution = SparseGradient(torch.from_numpy(theta))
            gradient = private.noisy_sum(contribution, plan.step, CLIP_NORMS[method]).numpy() / RECORDS
            move = scipy.linalg.cho_solve(task.solve, gradient) if method == "mirror" else gradient * len(theta)
            theta = theta - rate * move
            average += theta / plan.steps
    matrix = _matrix(task.private[0], len(average))
    return float(np.mean((matrix @ average - task.private[1]) ** 2))


def one_run(p: int, number: int) -> dict[tuple[str, float], float]:
    """The losses of a run, of each method and rate."""
    task = make_task(p, number)
    return {(method, rate): train(task, method, rate, seed=number) for method in METHODS for rate in RATES[method]}


class Point(NamedTuple):
    """What is shown of a method at a p."""

    rate: float
    losses: list[float]

    @property
    def mean(self) -> float:
        """Over runs."""
        return float(np.mean(self.losses))

    @property
    def error(self) -> float:
        """Half of the 95 % confidence interval of the mean, by Student's t."""
        n = len(self.losses)
        return float(stats.t.ppf(0.975, n - 1) * np.std(self.losses, ddof=1) / n**0.5)


def run(sizes: Sequence[int], runs: int, jobs: int) -> dict[int, dict[str, Point]]:
    """The best rate of every method and p."""
    found = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for p in sizes:
            every = list(pool.map(one_run, [p] * runs, range(runs)))
            points = [(method, Point(rate, [one[method, rate] for one in every])) for method, rate in every[0]]
            found[p] = {
                method: min((point for name, point in points if name == method), key=lambda point: point.mean)
                for method in METHODS
            }
            print(_line(p, found[p]), flush=True)
    return found


def _line(p: int, points: dict[str, Point]) -> str:
    cells = (f"{points[m].mean:.4f} ± {points[m].error:.4f} | {points[m].rate:g}" for m in METHODS)
    return f"| {p} | " + " | ".join(cells) + " |"


def draw(found: dict[int, dict[str, Point]], path: Path) -> None:
    """Both panels, with 95 % confidence intervals of the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, shown in zip(panels, (("cold", "warm"), ("warm", "mirror")), strict=True):
        for method in shown:
            points = [found[p][method] for p in found]
            axes.errorbar(list(found), [x.mean for x in points], [x.error for x in points], label=METHODS[method], capsize=2)
        axes.set_xlabel("dimension p")
        axes.set_ylabel("empirical loss")
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path, dpi=100)


HEADER = """# Figure 1 of the PDA-DPMD paper, again

`python -m learners.pda_figure` wrote this page. Synthetic linear regression, {records:,} private and 1.5·p public records, ε = 1,
δ = 1e-5, {steps} steps at full batch; mean empirical loss of {runs} runs and its 95 % confidence interval, at the best learning
rate of a grid. As in the paper, that choice is not paid for.

![loss over p]({picture})

| p | {names} |
|---|{rule}|
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, draw, and write the numbers."""
    parser = argparse.ArgumentParser(prog="python -m learners.pda_figure", description="Figure 1 of the PDA-DPMD paper.")
    parser.add_argument("--quick", action="store_true", help="p = 500, 1000 and 2000 only")
    parser.add_argument("--runs", type=int, help="draws of the problem, at least 2 (default 20, or 3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes, a gigabyte each (default: one per core)")
    parser.add_argument("--out", default="pda_figure_1", help="the picture is OUT.png, the page OUT.md (default %(default)s)")
    args = parser.parse_args(arguments)
    sizes = (500, 1000, 2000) if args.quick else (500, 1000, 2000, 3000, 4000, 5000, 6000)
    runs = args.runs or (3 if args.quick else 20)
    begin = time.perf_counter()
    found = run(sizes, runs, args.jobs)
    out = Path(args.out)
    draw(found, out.with_suffix(".png"))
    names = " | ".join(f"{name} | rate" for name in METHODS.values())
    picture, rule = out.with_suffix(".png").name, "|".join(["---"] * 2 * len(METHODS))
    page = HEADER.format(records=RECORDS, steps=STEPS, runs=runs, names=names, picture=picture, rule=rule)
    page += "\n".join(_line(p, points) for p, points in found.items()) + "\n"
    out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(f"{time.perf_counter() - begin:.0f} seconds with {args.jobs} processes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
