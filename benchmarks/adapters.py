"""``python -m benchmarks.adapters``: what the adapters add to a step, in milliseconds, for each package that is installed.

Of each of ten steps the least over all passes, which other processes disturb the least, and their mean: what is done for ten
steps at once, such as waiting for the disk, is counted.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import privcalc as pc
from privcalc.terminal import command

REPEATS = 300


def seconds(call: Callable[[], object]) -> float:
    """How long a call took."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def opacus() -> Iterator[tuple[str, float]]:
    """``optimizer.step()`` of a network of 8,970 parameters on batches of 64, less what it takes with Opacus's own accountant."""
    warnings.simplefilter("ignore")  # what Opacus says of its own noise is not the matter here
    plain = _opacus_step("rdp")
    for what in ("accountant", "ledger on disk", "norms for the audit"):
        yield f"Opacus, {what}", _opacus_step("privcalc", what) - plain


def _opacus_step(accountant: str, what: str = "") -> float:
    adapter = importlib.import_module("privcalc.interop.opacus")
    engines, torch = importlib.import_module("opacus"), importlib.import_module("torch")
    adapter.register()
    x, y = torch.randn(640, 128), torch.randint(10, (640,))
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model, optimizer, *_, loader = engines.PrivacyEngine(accountant=accountant).make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    found: list[list[float]] = []
    plan = adapter.step_of(optimizer, loader) * REPEATS
    with tempfile.TemporaryDirectory() as folder, pc.Ledger(Path(folder) / "run.jsonl", plan=plan) as ledger:
        if what == "ledger on disk":
            adapter.keep_ledger(optimizer, loader, ledger)
        if what == "norms for the audit":
            adapter.NormRatios(optimizer)
        for _ in range(REPEATS // len(loader)):
            one = []
            for inputs, targets in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), targets).backward()
                one.append(seconds(optimizer.step))
            found.append(one)
    return statistics.fmean(min(times) for times in zip(*found, strict=True))


def dp_accounting() -> Iterator[tuple[str, float]]:
    """One event a step."""
    adapter = importlib.import_module("privcalc.interop.dp_accounting")
    events = importlib.import_module("dp_accounting")
    accountant, event = adapter.PrivcalcAccountant(), events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0))
    yield "dp-accounting, compose", min(seconds(lambda: accountant.compose(event)) for _ in range(REPEATS))


@command("python -m benchmarks.adapters")
def main() -> int:
    """Measure and print; returns the exit status."""
    for measure in (opacus, dp_accounting):
        try:
            for name, found in measure():
                print(f"{name:<30} {1e3 * found:.3f} ms a step")
        except ImportError as error:
            print(f"{measure.__name__:<30} {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
