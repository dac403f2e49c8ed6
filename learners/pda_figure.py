"""Figure 1 of the PDA-DPMD paper: synthetic linear regression, cold and warm noisy gradient descent and mirror descent.

    python -m learners.pda_figure               p = 500 … 6000, 20 runs: about 15 minutes on 2 cores
    python -m learners.pda_figure --quick       p = 500 and 1000, 3 runs

As in the paper, the best learning rate of a grid is shown for each method and p. On private data such a choice would have to be
paid for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import privcalc as pc
from learners.pda_dpmd import SquaredGradient, quadratic_map
from learners.plan import make_plan
from learners.records import PrivateRecords

__all__ = ["Task", "main", "make_task", "train"]

METHODS = ("cold", "warm", "mirror")
RATES = {"cold": (2.0, 8.0, 32.0, 128.0), "warm": (2.0, 8.0, 32.0, 128.0), "mirror": (512.0, 2048.0, 8192.0, 32768.0)}
"""A mirror step is shorter: its Hessian is scaled to smallest eigenvalue 1, and the loss has some 1e-5 there."""
STEPS = 20
RECORDS = 10_000
CLIP_NORM = 0.5
"""About the norm of one feature vector: the residuals near the solution are well below 1."""


@dataclass(frozen=True)
class Task:
    """One draw of the synthetic problem (paper, §3)."""

    private: tuple[Tensor, Tensor]
    public: tuple[Tensor, Tensor]


def make_task(p: int, seed: int, records: int = RECORDS) -> Task:
    """40 of the first p/5 features and 80 of the others are 0.05, the rest 0; y = ⟨x, θ*⟩ + N(0, 0.01), θ* ~ N(0, I)."""
    rng = np.random.default_rng([seed, p])
    theta = rng.standard_normal(p)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        features = np.zeros((n, p), dtype=np.float32)
        first, rows = p // 5, np.arange(n)[:, None]
        features[rows, np.argpartition(rng.random((n, first), dtype=np.float32), 40, axis=1)[:, :40]] = 0.05
        features[rows, first + np.argpartition(rng.random((n, p - first), dtype=np.float32), 80, axis=1)[:, :80]] = 0.05
        labels = features @ theta + 0.1 * rng.standard_normal(n)
        return torch.from_numpy(features), torch.from_numpy(labels.astype(np.float32))

    return Task(draw(records), draw(3 * p // 2))


def train(task: Task, method: str, rate: float, *, epsilon: float = 1.0, delta: float = 1e-5, seed: int | None = None) -> float:
    """The empirical loss of a private model, through the contract."""
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": pc.ADD_OR_REMOVE_ONE}
    plan = make_plan(pc.Gaussian, **target, noise_multiplier=None, steps=STEPS)
    features, labels = task.private
    start, solve = _public(task) if method != "cold" else (torch.zeros(features.shape[1], dtype=torch.float64), None)
    theta, average = start, torch.zeros_like(start)
    with pc.Ledger(None, plan=plan.run, unit="one row", public={"records": RECORDS}, seed=seed) as ledger:
        private = PrivateRecords(features, labels, ledger=ledger, classes=None)
        for _ in range(plan.steps):
            gradient = private.noisy_sum(SquaredGradient(theta), plan.step, CLIP_NORM) / RECORDS
            if method == "mirror" and solve is not None:
                gradient = torch.cholesky_solve(gradient.unsqueeze(1), solve).squeeze(1)
            theta = theta - rate * gradient
            average += theta / plan.steps
    return float((features @ average.to(features.dtype) - labels).square().mean())


def _public(task: Task) -> tuple[Tensor, Tensor]:
    """The public optimum, and the Cholesky factor of the mirror map; both computed once per task."""
    key = "_public"
    if key not in task.__dict__:
        features, labels = task.public
        ridge = 1e-4 * torch.eye(features.shape[1])
        start = torch.linalg.solve(features.T @ features + ridge, features.T @ labels)
        task.__dict__[key] = start.double(), torch.linalg.cholesky(quadratic_map(features, 1e-6)).double()
    found: tuple[Tensor, Tensor] = task.__dict__[key]
    return found


def run(sizes: Sequence[int], runs: int) -> dict[str, dict[int, list[float]]]:
    """Losses: method, p, run; of the best rate."""
    found: dict[str, dict[int, list[float]]] = {method: {} for method in METHODS}
    for p in sizes:
        losses = {(method, rate): [0.0] * runs for method in METHODS for rate in RATES[method]}
        for number in range(runs):
            task = make_task(p, number)
            for (method, rate), values in losses.items():
                values[number] = train(task, method, rate, seed=number)
        for method in METHODS:
            found[method][p] = min(
                (losses[method, rate] for rate in RATES[method]),
                key=lambda values: float(np.nan_to_num(np.mean(values), nan=np.inf)),
            )
        print(f"p = {p}: " + ", ".join(f"{method} {np.mean(found[method][p]):.4f}" for method in METHODS), flush=True)
    return found


def draw(found: dict[str, dict[int, list[float]]], path: Path) -> None:
    """Both panels, with 95 % confidence intervals of the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    panels = figure.subplots(1, 2)
    names = {"cold": "noisy GD, cold start", "warm": "noisy GD, warm start", "mirror": "PDA-DPMD"}
    for axes, shown in zip(panels, (("cold", "warm"), ("warm", "mirror")), strict=True):
        for method in shown:
            sizes = list(found[method])
            means = [np.mean(values) for values in found[method].values()]
            errors = [1.96 * np.std(values, ddof=1) / len(values) ** 0.5 for values in found[method].values()]
            axes.errorbar(sizes, means, errors, label=names[method], capsize=2)
        axes.set_xlabel("dimension p")
        axes.set_ylabel("empirical loss")
        axes.legend()
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, draw, and write the numbers."""
    parser = argparse.ArgumentParser(prog="python -m learners.pda_figure", description="Figure 1 of the PDA-DPMD paper.")
    parser.add_argument("--quick", action="store_true", help="p = 500 and 1000, 3 runs")
    parser.add_argument("--out", default="pda-figure.png", help="picture; the numbers go beside it (default %(default)s)")
    args = parser.parse_args(arguments)
    sizes, runs = ((500, 1000), 3) if args.quick else ((500, 1000, 2000, 3000, 4000, 5000, 6000), 20)
    found = run(sizes, runs)
    draw(found, Path(args.out))
    Path(args.out).with_suffix(".json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
