"""What privacy costs in time: one full-batch step of softmax regression, ``python -m benchmarks.learners.speed``.

A private step (closed-form clipping, an exact sum, noise through the ledger) beside public ones, and beside Opacus if
it is installed, with per-example gradients and with ghost clipping. The steps take turns; times are medians (of
processor time, on a CPU), and ratios medians of those within a turn. A sum in doubles that is not exact is there to
show what exactness costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import privcalc as pc
from learners.device import add_device
from learners.frame.records import PrivateRecords
from learners.gradients.exact import Rows
from learners.gradients.softmax import SoftmaxGradient, public_gradient, residuals
from privcalc.files import write_whole
from privcalc.terminal import command

__all__ = ["main", "measure"]

RATE, NOISE = 1e-4, 20.0
Step = Callable[[], object]


def measure(records: int, features: int, classes: int, rounds: int, device: str = "cpu") -> dict[str, list[float]]:
    """Seconds of each kind of step in every turn, by name.

    Example:
        >>> list(measure(records=100, features=20, classes=3, rounds=3))[:2]
        ['public step', 'public step, autograd']
    """
    generator = torch.Generator().manual_seed(0)
    x = nn.functional.normalize(torch.randn(records, features, generator=generator), dim=1).to(device)
    y = torch.randint(0, classes, (records,), generator=generator).to(device)
    steps = {
        "public step": _public(x, y, classes),
        "public step, autograd": _autograd(x, y, classes),
        "public step, transposed": _transposed(x, y, classes),
        "public step, double precision": _public(x.double(), y, classes),
        "private step": _private(x, y, classes, rounds),
        "its sum alone": _sum(Rows.of(x.double()), y, classes),
        "sum in doubles, not exact": _rounded(x.double(), y, classes),
    }
    if importlib.util.find_spec("opacus") is not None:
        steps["Opacus"] = _opacus(x, y, classes)
        steps["Opacus, ghost clipping"] = _ghost(x, y, classes)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 1):  # the first round warms up
        for name, step in steps.items():
            start = _now(device)
            step()
            seconds[name].append(_now(device) - start)
    return {name: found[1:] for name, found in seconds.items()}


def _now(device: str) -> float:
    """Processor time; of other devices, what a clock says."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _public(x: Tensor, y: Tensor, classes: int) -> Step:
    weights = torch.zeros(x.shape[1], classes, device=x.device, dtype=x.dtype)
    return lambda: weights.sub_(RATE * public_gradient(weights, x, y))


def _autograd(x: Tensor, y: Tensor, classes: int) -> Step:
    linear = nn.Linear(x.shape[1], classes, bias=False).to(x.device)

    def step() -> None:
        linear.zero_grad()
        nn.functional.cross_entropy(linear(x), y).backward()  # type: ignore[no-untyped-call]

    return step


def _transposed(x: Tensor, y: Tensor, classes: int) -> Step:
    """Both products in the order that is the faster one."""
    weights, index = torch.zeros(classes, x.shape[1], device=x.device), torch.arange(len(y), device=x.device)

    def step() -> None:
        residual = torch.softmax(weights @ x.T, dim=0)
        residual[y, index] -= 1.0
        weights.sub_(RATE * (residual @ x))

    return step


def _private(x: Tensor, y: Tensor, classes: int, rounds: int) -> Step:
    weights, step = torch.zeros(x.shape[1], classes, device=x.device, dtype=torch.float64), pc.Gaussian(NOISE)
    ledger = pc.Ledger(None, plan=step * (rounds + 1))
    private = PrivateRecords(x, y.cpu(), ledger=ledger, classes=range(classes), device=str(x.device))
    return lambda: weights.sub_(RATE * private.noisy_sum(SoftmaxGradient(weights), step, 1.0))


def _sum(rows: Rows, y: Tensor, classes: int) -> Step:
    weights = torch.zeros(rows.values().shape[1], classes, device=y.device, dtype=torch.float64)
    return lambda: SoftmaxGradient(weights).clipped_sum(rows, y, 1.0)


def _rounded(x: Tensor, y: Tensor, classes: int) -> Step:
    weights = torch.zeros(x.shape[1], classes, device=x.device, dtype=torch.float64)
    norms = torch.linalg.vector_norm(x, dim=1)

    def step() -> Tensor:
        residual = residuals(weights, x, y)
        scale = torch.clamp(1.0 / (norms * torch.linalg.vector_norm(residual, dim=1)).clamp_min(1e-30), max=1.0)
        return x.T @ (residual * scale.unsqueeze(1))

    return step


def _opacus(x: Tensor, y: Tensor, classes: int) -> Step:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(nn.Linear(x.shape[1], classes, bias=False).to(x.device))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        expected_batch_size=len(y),
    )

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _ghost(x: Tensor, y: Tensor, classes: int) -> Step:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    linear = nn.Linear(x.shape[1], classes, bias=False).to(x.device)
    model = GradSampleModuleFastGradientClipping(linear, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=RATE),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        expected_batch_size=len(y),
    )
    criterion: Any = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    return step


@command("python -m benchmarks.learners.speed")
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learners.speed", description="Time of a private step beside a public one."
    )
    parser.add_argument("--records", type=int, default=10_000, help="records in the batch (default %(default)s)")
    parser.add_argument("--features", type=int, default=1280, help="numbers per record (default %(default)s)")
    parser.add_argument("--classes", type=int, default=10, help="classes (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=21, help="steps of each kind (default %(default)s)")
    parser.add_argument("--out", help="file to write the table to, too")
    add_device(parser, "cpu")
    args = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", module="opacus|torch")
    found = measure(args.records, args.features, args.classes, args.rounds, args.device)
    page = [
        f"{args.records} × {args.features}, {args.classes} classes, {args.device}, {torch.get_num_threads()} threads",
        "",
        "| step | milliseconds | time / public | time / private |",
        "|---|---|---|---|",
    ]
    for name, seconds in found.items():
        turns = (zip(seconds, found[base], strict=True) for base in ("public step", "private step"))
        ratios = (statistics.median(one / other for one, other in turn) for turn in turns)
        figures = [1e3 * statistics.median(seconds), *ratios]
        page.append(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    print("\n".join(page))
    if args.out is not None:
        head = [
            "# Time of a step of softmax regression",
            "",
            "Written by `python -m benchmarks.learners.speed --out FILE`.",
            "",
        ]
        write_whole(args.out, "\n".join([*head, *page]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
