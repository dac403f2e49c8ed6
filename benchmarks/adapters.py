"""``python -m benchmarks.adapters``: what the adapters add to a step, for each package that is installed.

Whole steps under Opacus, from drawing the batch to moving the weights. All runs take each step one after another, in an
order that turns; what is printed is the median of the ratios of these pairs, in processor time, and by the clock. Where
the ledger draws, steps are without noise, whose time is by itself, for a million coordinates: all at once, as they
could be drawn ahead of many steps, and in as many as one step of the small network needs.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

import privcalc as pc
from privcalc.noise import Noise
from privcalc.terminal import command

REPEATS, WARM = 300, 60
COORDINATES, WEIGHTS = 10**6, 8_970
ALONE, SILENT, DRAWS = "Opacus alone", "Opacus alone, without noise", "ledger draws"


def seconds(call: Callable[[], object]) -> float:
    """How long a call took."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def opacus() -> Iterator[str]:
    """Of a small network with convolutions and of one of 8,970 weights, on batches of 64 of 6,400 records."""
    warnings.simplefilter("ignore")  # what Opacus says of its own noise is not the matter here
    for name in ("convolutions", "8,970 weights"):
        runs = {how: _Run(name, how) for how in (ALONE, SILENT, "accountant", "ledger, Opacus draws", DRAWS)}
        with patch.object(Noise, "normal", lambda _, size, __: np.zeros(size, dtype=np.int64)):
            found: dict[str, list[tuple[float, float]]] = {how: [] for how in runs}
            for number in range(REPEATS):
                names = list(runs)
                for how in names[number % len(names) :] + names[: number % len(names)]:
                    found[how].append(both(runs[how].step))
        for how in list(runs)[2:]:
            pairs = list(zip(found[how][WARM:], found[SILENT if how == DRAWS else ALONE][WARM:], strict=True))
            busy, clock = (statistics.median(ours[i] / own[i] for ours, own in pairs) for i in (0, 1))
            least = 1e3 * statistics.median(own[0] for _, own in pairs)
            yield f"Opacus, {name}: {how:<22} {busy:.3f} of Opacus's {least:.2f} ms ({clock:.3f} by the clock)"
    noise, torch = Noise(), importlib.import_module("torch")
    draws = {
        "at once": lambda: noise.normal(COORDINATES, 2.0**36),
        f"{WEIGHTS:,} at a time": lambda: [noise.normal(WEIGHTS, 2.0**36) for _ in range(COORDINATES // WEIGHTS)],
        "torch.normal, of 32 bits of seed": lambda: torch.normal(0.0, 1.0, (COORDINATES,)),
    }
    for name, draw in draws.items():
        yield f"noise, {name}: {min(both(draw)[0] for _ in range(5)):.4f} s for 10^6 coordinates"


def both(call: Callable[[], object]) -> tuple[float, float]:
    """Processor time of all threads, and time by the clock."""
    busy, clock = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - busy, time.perf_counter() - clock


class _Run:
    """A run under Opacus, one step at a time."""

    def __init__(self, name: str, how: str) -> None:
        adapter, engines = importlib.import_module("privcalc.interop.opacus"), importlib.import_module("opacus")
        self._torch = torch = importlib.import_module("torch")
        nn = torch.nn
        adapter.register()
        if name == "convolutions":
            first = nn.Sequential(nn.Conv2d(1, 16, 8, 2, padding=3), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2, 1))
            body = nn.Sequential(
                nn.Conv2d(16, 32, 4, 2), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()
            )
            module: Any = nn.Sequential(first, body, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))
            x = torch.randn(6400, 1, 28, 28)
        else:
            module, x = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)), torch.randn(6400, 128)
        accountant = "privcalc" if how == "accountant" else "rdp"
        self._module, self._optimizer, loader = engines.PrivacyEngine(accountant=accountant).make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(x, torch.randint(10, (6400,))), batch_size=64
            ),
            noise_multiplier=0.0 if how == SILENT else 1.0,
            max_grad_norm=1.0,
        )
        if how.startswith("ledger"):
            draws = how == DRAWS
            ledger = pc.Ledger(None, plan=adapter.step_of(self._optimizer, loader, draws=draws) * (REPEATS + 200))
            self._optimizer, loader = adapter.keep_ledger(self._optimizer, loader, ledger, start="random", draws=draws)
        self._batches = self._forever(loader)

    @staticmethod
    def _forever(loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    def step(self) -> None:
        """One."""
        inputs, targets = next(self._batches)
        self._optimizer.zero_grad()
        self._torch.nn.functional.cross_entropy(self._module(inputs), targets).backward()
        self._optimizer.step()


def dp_accounting() -> Iterator[str]:
    """One event a step."""
    adapter = importlib.import_module("privcalc.interop.dp_accounting")
    events = importlib.import_module("dp_accounting")
    accountant, event = adapter.PrivcalcAccountant(), events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0))
    least = min(seconds(lambda: accountant.compose(event)) for _ in range(REPEATS))
    yield f"dp-accounting, compose: {1e3 * least:.3f} ms"


@command("python -m benchmarks.adapters")
def main() -> int:
    """Measure and print; returns the exit status."""
    for measure in (opacus, dp_accounting):
        try:
            for line in measure():
                print(line)
        except ImportError as error:
            print(f"{measure.__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
