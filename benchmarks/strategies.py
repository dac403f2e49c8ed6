"""``python -m benchmarks.strategies``: strategies of correlated noise, beside jax_privacy's if that is installed; what wins when.

The first table has root mean square errors of prefix sums at 1-GDP, in clip norms, and seconds to find the strategy. The second
has the same error at (ε, 10⁻⁶), for independent noise with Poisson samples (DP-SGD), bands with cyclic Poisson samples, and
correlated noise without sampling (DP-FTRL), all with the same expected batch.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.signal import lfilter

import privcalc as pc
from privcalc.strategies import (
    BLT,
    CyclicPoisson,
    MinSeparation,
    SquareRoot,
    Strategy,
    Toeplitz,
    error,
    optimal_blt,
    optimal_toeplitz,
)
from privcalc.terminal import command

CASES = ((1000, 250, 100), (1000, 250, 250), (2000, 100, 100), (2000, 100, 32))
"""Steps, separation, bands."""

RUNS = ((1, 100), (4, 100), (16, 100), (4, 1000), (16, 250))
"""Epochs, steps of an epoch."""

EPSILONS = (0.3, 1.0, 3.0, 10.0)
DELTA = 1e-6


def timed(make: Callable[[], Strategy]) -> tuple[Strategy, float]:
    """A strategy, and seconds."""
    start = time.perf_counter()
    found = make()
    return found, time.perf_counter() - start


def theirs(steps: int, separation: int, bands: int) -> dict[str, Callable[[], Strategy]]:
    """jax_privacy's searches, with the same goal."""
    try:
        jax: Any = importlib.import_module("jax")
        peer = "jax_privacy.matrix_factorization"
        toeplitz, buffered_toeplitz = (importlib.import_module(f"{peer}.{name}") for name in ("toeplitz", "buffered_toeplitz"))
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)

    def banded() -> Strategy:
        found = np.asarray(toeplitz.optimize_banded_toeplitz(steps, bands))
        return Toeplitz(found / found[0], steps)

    def buffered() -> Strategy:
        options = {"n": steps, "min_sep": separation, "max_participations": None, "error": "mean"}
        found = buffered_toeplitz.optimize(**options, min_buffers=3, max_buffers=3)
        return BLT(np.asarray(found.output_scale), np.asarray(found.buf_decay), steps)

    return {"jax_privacy, bands": banded, "jax_privacy, 3 buffers": buffered}


def searches() -> None:
    """The first table."""
    print("| steps | separation | bands | strategy | error | seconds |\n|---|---|---|---|---|---|")
    for steps, separation, bands in CASES:
        apart = MinSeparation(separation)
        makes: dict[str, Callable[[], Strategy]] = {
            "independent": partial(Toeplitz, [1.0], steps),
            "square root, cut": partial(SquareRoot, steps, bands),
            "bands": partial(optimal_toeplitz, steps, apart, bands=bands),
            "3 buffers": partial(optimal_blt, steps, apart, buffers=3),
            **theirs(steps, separation, bands),
        }
        for name, make in makes.items():
            found, seconds = timed(make)
            print(f"| {steps} | {separation} | {bands} | {name} | {error(found, apart):.5f} | {seconds:.2f} |", flush=True)


def spread(strategy: Strategy) -> float:
    """The root mean square of the rows of AC⁻¹."""
    column = strategy.falling
    assert column is not None
    steps = strategy.columns
    rows = np.cumsum(np.cumsum(lfilter([1.0], column, np.eye(1, steps)[0])) ** 2)
    return math.sqrt(rows.mean())


def independent(epochs: int, epoch: int, epsilon: float) -> float:
    """DP-SGD."""
    steps = epochs * epoch
    z = pc.noise_multiplier(epsilon=epsilon, delta=DELTA, sample_rate=1 / epoch, steps=steps)
    return float(z) * spread(Toeplitz([1.0], steps))


def cyclic(epochs: int, epoch: int, epsilon: float) -> float:
    """The best number of bands; the expected batch is the same, so that rates grow with the number of classes."""
    steps, found = epochs * epoch, math.inf
    for bands in (2, 4, 8, 16, 32, 64):
        if bands >= epoch:
            break
        strategy = optimal_toeplitz(steps, MinSeparation(bands), bands=bands)
        run = pc.calibrate(partial(_cyclic, strategy, bands / epoch), epsilon=epsilon, delta=DELTA)
        found = min(found, float(run) * spread(strategy))
    return found


def _cyclic(strategy: Strategy, rate: float, z: float) -> pc.CorrelatedGaussian:
    return pc.CorrelatedGaussian(z, strategy, CyclicPoisson(strategy.bands, rate))


def unsampled(epochs: int, epoch: int, epsilon: float) -> float:
    """DP-FTRL with as many bands as an epoch has steps."""
    apart = MinSeparation(epoch)
    strategy = optimal_toeplitz(epochs * epoch, apart, bands=epoch)
    z = pc.calibrate(lambda z: pc.CorrelatedGaussian(z, strategy, apart), epsilon=epsilon, delta=DELTA)
    return float(z) * spread(strategy)


def what_wins() -> None:
    """The second table."""
    print("\n| epochs | steps of one | ε | DP-SGD | cyclic bands | DP-FTRL | least |\n|---|---|---|---|---|---|---|")
    for epochs, epoch in RUNS:
        for epsilon in EPSILONS:
            found = {name: make(epochs, epoch, epsilon) for name, make in METHODS.items()}
            numbers = " | ".join(f"{value:.2f}" for value in found.values())
            print(f"| {epochs} | {epoch} | {epsilon:g} | {numbers} | {min(found, key=found.__getitem__)} |", flush=True)


METHODS = {"DP-SGD": independent, "cyclic bands": cyclic, "DP-FTRL": unsampled}


@command("python -m benchmarks.strategies")
def main() -> int:
    """Print both tables."""
    searches()
    what_wins()
    return 0


if __name__ == "__main__":
    sys.exit(main())
