"""The same questions to privcalc, jax_privacy and dp-accounting: sensitivities of given matrices, the cost of bands."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import privcalc as pc
from privcalc.numerics.floats import Floats
from privcalc.strategies import (
    CyclicPoisson,
    Dense,
    FixedOrder,
    MinSeparation,
    SquareRoot,
    Tree,
    optimal_toeplitz,
    sensitivity,
)

__all__ = ["peers"]

DELTA = 1e-6


def matrices() -> dict[str, Floats]:
    """Some with entries below 0, some with columns that differ."""
    rng = np.random.default_rng(0)
    root = SquareRoot(200).matrix()
    signs = np.tril(rng.normal(size=(200, 200)), -1) * 0.1 + np.eye(200)
    return {
        "square root": root,
        "square root, columns differ": root * np.linspace(1.0, 1.5, 200),
        "20 bands, columns differ": np.triu(root, -19) * np.linspace(1.0, 1.5, 200),
        "signs": signs,
        "tree": Tree(200).matrix(),
    }


def sensitivities(jax_privacy: Any) -> None:
    """Bounds of the norm that one record moves: at least 20 steps between turns, and 10 epochs in a fixed order."""
    print("\n| matrix, 200 steps | patterns | privcalc | seconds | jax_privacy | seconds |\n|---|---|---|---|---|---|")
    for name, matrix in matrices().items():
        strategy = Tree(200) if name == "tree" else Dense(matrix)
        for order, ask in (
            (MinSeparation(20, 5), "get_min_sep_sensitivity_upper_bound"),
            (FixedOrder(20), "fixed_epoch_sensitivity"),
        ):
            (low, high), seconds = timed(partial(sensitivity, strategy, order))
            numbers = (20, 5) if isinstance(order, MinSeparation) else (10,)
            value, took = timed(partial(getattr(jax_privacy, ask), matrix, *numbers)) if jax_privacy else ("-", 0.0)
            ours = f"{low:.6f}" if high < low * (1 + 1e-9) else f"{low:.6f} to {high:.6f}"
            said = value if isinstance(value, str) else f"{value:.6f}"
            print(f"| {name} | {order} | {ours} | {seconds:.2f} | {said} | {took:.2f} |", flush=True)


def costs(accounting: Any) -> None:
    """ε of runs with bands and cyclic samples, and without sampling, as composed by dp-accounting."""
    print("\n| run | privcalc | seconds | dp-accounting | seconds |\n|---|---|---|---|---|")
    for steps, classes, rate, noise in (
        (1000, 1, 0.01, 1.0),
        (2000, 4, 0.04, 2.0),
        (2000, 16, 0.16, 4.0),
        (400, 100, 1.0, 8.0),
    ):
        strategy = optimal_toeplitz(steps, MinSeparation(classes), bands=classes)
        order = FixedOrder(classes) if rate == 1 else CyclicPoisson(classes, rate)
        run = pc.CorrelatedGaussian(noise, strategy, order)
        found, seconds = timed(partial(run.epsilon, delta=DELTA))
        said, took = timed(partial(accountant_says, run)) if accounting else ("-", 0.0)
        name = f"{steps} steps, {classes} bands, rate {rate:g}, noise multiplier {noise:g}"
        shown = said if isinstance(said, str) else f"{said:.6f}"
        print(f"| {name} | {found.lower:.6f} to {found.upper:.6f} | {seconds:.2f} | {shown} | {took:.2f} |", flush=True)


def accountant_says(run: pc.CorrelatedGaussian) -> float:
    """ε by privacy loss distributions, of the events that the run is told as."""
    from privcalc.interop.dp_accounting import to_event

    pld = importlib.import_module("dp_accounting.pld.pld_privacy_accountant")
    return float(pld.PLDAccountant().compose(to_event(run)).get_epsilon(DELTA))


def peers() -> None:
    """Both tables."""
    jax = installed("jax")
    if jax:
        jax.config.update("jax_enable_x64", True)
    sensitivities(installed("jax_privacy.matrix_factorization.sensitivity"))
    costs(installed("dp_accounting"))


def installed(name: str) -> Any:
    """A module, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def timed(ask: Callable[[], Any]) -> tuple[Any, float]:
    """An answer, and seconds."""
    start = time.perf_counter()
    found = ask()
    return found, time.perf_counter() - start
