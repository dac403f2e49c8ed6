"""Errors of strategies and seconds to find them, beside jax_privacy's; and which noise wins for a run."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from privcalc import pictures
from privcalc.calibration.plans import Compared, compare_noise
from privcalc.strategies import (
    BLT,
    Dense,
    MinSeparation,
    SquareRoot,
    Strategy,
    Toeplitz,
    error,
    optimal_banded,
    optimal_blt,
    optimal_toeplitz,
)

__all__ = ["searches", "what_wins"]

CASES = ((256, 64, 64), (256, 64, 16), (1000, 250, 100), (1000, 250, 250), (2000, 100, 100), (2000, 100, 32))
"""Steps, separation, bands."""

MOST_DENSE = 256
"""Steps up to which jax_privacy's searches for matrices without equal columns are run: they take minutes beyond."""

RUNS = ((1, 100), (4, 100), (16, 100), (4, 1000), (16, 250))
"""Epochs, steps of an epoch."""

EPSILONS = (0.3, 1.0, 3.0, 10.0)
DELTA = 1e-6
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "strategies.svg"


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
        names = "toeplitz", "buffered_toeplitz", "banded", "dense"
        toeplitz, buffered_toeplitz, columns, dense = (importlib.import_module(f"{peer}.{name}") for name in names)
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

    def normalised() -> Strategy:
        return Dense(np.tril(np.asarray(columns.optimize(steps, bands=bands).materialize())))

    def best() -> Strategy:
        return Dense(
            np.tril(np.asarray(dense.optimize(steps, epochs=-(-steps // separation), bands=bands, equal_norm=True)))
        )

    found = {"jax_privacy, bands": banded, "jax_privacy, 3 buffers": buffered}
    small = {"jax_privacy, bands, columns differ": normalised, "jax_privacy, dense optimum with as many bands": best}
    return found | (small if steps <= MOST_DENSE else {})


def searches() -> None:
    """The first table."""
    print("\n| steps | separation | bands | strategy | error | seconds |\n|---|---|---|---|---|---|")
    for steps, separation, bands in CASES:
        apart = MinSeparation(separation)
        makes: dict[str, Callable[[], Strategy]] = {
            "independent": partial(Toeplitz, [1.0], steps),
            "square root, cut": partial(SquareRoot, steps, bands),
            "bands": partial(optimal_toeplitz, steps, apart, bands=bands),
            "bands, columns differ": partial(optimal_banded, steps, apart, bands=bands),
            "3 buffers": partial(optimal_blt, steps, apart, buffers=3),
            **theirs(steps, separation, bands),
        }
        for name, make in makes.items():
            found, seconds = timed(make)
            print(
                f"| {steps} | {separation} | {bands} | {name} | {error(found, apart):.5f} | {seconds:.2f} |", flush=True
            )


def what_wins(picture: Path = PICTURE) -> None:
    """The second table, and its picture."""
    print("\n| epochs | steps of one | ε | DP-SGD | cyclic bands | DP-FTRL | least |\n|---|---|---|---|---|---|---|")
    panels = dict[str, list[Compared]]()
    for epochs, epoch in RUNS:
        for epsilon in EPSILONS:
            records = epoch * BATCH
            found = compare_noise(records=records, batch_size=BATCH, epochs=epochs, epsilon=epsilon, delta=DELTA)
            panels.setdefault(f"{epochs} × {epoch} steps", []).extend(found)
            by_name = {one.noise: one.error * BATCH for one in found}
            numbers = " | ".join(f"{by_name[name]:.2f}" for name in METHODS)
            print(f"| {epochs} | {epoch} | {epsilon:g} | {numbers} | {METHODS[found[0].noise]} |", flush=True)
    pictures.save(pictures.compared(panels), picture)


BATCH = 100
"""Only the number of steps and the rates matter for what is shown."""

METHODS = {"independent": "DP-SGD", "cyclic bands": "cyclic bands", "correlated": "DP-FTRL"}
