"""Strategies for a workload: errors written out, searches against scans, and against where they began."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

import privcalc as pc
from privcalc.ledger.streams import check_drawable
from privcalc.strategies import (  # fmt: skip
    BLT,
    Dense,
    FixedOrder,
    MinSeparation,
    SquareRoot,
    Strategy,
    Toeplitz,
    Tree,
    error,
    momentum,
    optimal_banded,
    optimal_blt,
    optimal_toeplitz,
    sensitivity,
)

ONCE, FOUR = MinSeparation(separation=1, most=1), MinSeparation(separation=50)


def written_out(strategy: Strategy, participation: MinSeparation | FixedOrder, load: np.ndarray, kind: str) -> float:
    """The rows of AC⁻¹, solved for."""
    steps = strategy.columns
    a = np.array([[load[r - t] if r >= t else 0.0 for t in range(steps)] for r in range(steps)])
    rows = (np.linalg.solve(strategy.matrix().T, a.T).T ** 2).sum(axis=1)
    return sensitivity(Dense(strategy.matrix()), participation)[1] * math.sqrt(
        rows.mean() if kind == "mean" else rows.max()
    )


UNEVEN = Dense(SquareRoot(60).matrix() * np.linspace(1.0, 2.0, 60))


@pytest.mark.parametrize(
    "strategy",
    [SquareRoot(60), BLT([0.3, 0.4], [0.9, 0.5], 60), Toeplitz([1.0, 0.5, 0.1], 60), UNEVEN],
    ids=["square root", "buffers", "bands", "dense"],
)
@pytest.mark.parametrize("kind", ["mean", "max"])
def test_errors(strategy: Strategy, kind: str) -> None:
    for load in (np.ones(60), momentum(60, beta=0.9, decay=0.01)):
        for participation in (ONCE, FixedOrder(20)):
            found = error(strategy, participation, workload=load, kind=kind)  # type: ignore[arg-type]
            assert found == pytest.approx(written_out(strategy, participation, load, kind), rel=1e-9)


def test_momentum() -> None:
    """Noise of one step, followed through the weights."""
    w = v = 0.0
    found = []
    for step in range(30):
        v = 0.9 * v + (step == 0)
        w = 0.99 * w + v
        found.append(w)
    assert momentum(30, beta=0.9, decay=0.01) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("participation", [ONCE, FOUR, MinSeparation(1, 3)], ids=str)
@pytest.mark.parametrize("kind", ["mean", "max"])
def test_two_bands_by_a_scan(participation: MinSeparation, kind) -> None:
    def at(c: float) -> float:
        return error(Toeplitz([1.0, c], 200), participation, kind=kind)

    scan = minimize_scalar(at, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9})
    found = error(optimal_toeplitz(200, participation, bands=2, kind=kind), participation, kind=kind)
    assert found <= float(scan.fun) * (1 + 1e-6)


def test_one_buffer_by_a_scan() -> None:
    grid = [error(BLT([a], [d], 200), FOUR) for a in np.linspace(0.05, 1, 60) for d in 1 - np.geomspace(1e-3, 0.9, 60)]
    found = [error(optimal_blt(200, FOUR, buffers=n), FOUR) for n in (1, 2, 3)]
    assert found[0] <= min(grid)
    assert found[0] >= found[1] >= found[2]


@pytest.mark.parametrize("load", [None, momentum(6, beta=0.5)], ids=["sums", "momentum"])
def test_bands_whose_columns_differ_by_another_search(load: np.ndarray | None) -> None:
    """Any matrix of two diagonals, scaled to columns of one norm, without gradients."""
    order = MinSeparation(2)

    def at(x: np.ndarray) -> float:
        matrix = np.diag(x[:6]) + np.diag(x[6:], -1)
        return written_out(
            Dense(matrix / np.linalg.norm(matrix, axis=0)), order, np.ones(6) if load is None else load, "mean"
        )

    start = np.array([1.0] * 6 + [0.5] * 5)
    scan = minimize(at, start, method="Nelder-Mead", options={"maxiter": 2500, "xatol": 1e-7, "fatol": 1e-9})
    found = optimal_banded(6, order, bands=2, workload=load)
    assert error(found, order, workload=load) <= float(scan.fun) * (1 + 1e-5)
    check_drawable(found)


def test_bands_whose_columns_differ_are_better() -> None:
    """Half a percent to three, as published for such matrices; and columns have one norm."""
    order = FixedOrder(32)
    for bands in (8, 32):
        found, equal = optimal_banded(128, order, bands=bands), optimal_toeplitz(128, order, bands=bands)
        assert error(equal, order) * 0.95 < error(found, order) < error(equal, order) * 0.995
        assert np.linalg.norm(found.matrix(), axis=0) == pytest.approx(1.0, abs=1e-5)
        assert found.bands == bands


@pytest.mark.parametrize("participation", [ONCE, FOUR, FixedOrder(30)], ids=str)
@pytest.mark.parametrize("load", [None, momentum(300, beta=0.9, decay=1e-3)], ids=["sums", "momentum"])
def test_never_worse_than_the_beginning(participation: MinSeparation | FixedOrder, load: np.ndarray | None) -> None:
    for bands in (1, 7, 30, 300):
        found = optimal_toeplitz(300, participation, bands=bands, workload=load)
        begun = SquareRoot(300, bands)
        assert error(found, participation, workload=load) <= error(begun, participation, workload=load) * (1 + 1e-5)
        pc.CorrelatedGaussian(3.0, found, participation)  # it is a strategy


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: error(Tree(8), ONCE), "must be a square matrix"),
        (lambda: error(Dense([[1, 0], [1, 2]]), ONCE, kind="most"), "kind = 'most'"),
        (lambda: error(SquareRoot(9), ONCE, workload=[1.0]), "9 finite numbers"),
        (lambda: error(SquareRoot(9), ONCE, kind="most"), "kind = 'most'"),
        (lambda: optimal_toeplitz(9, ONCE, bands=10), "bands = 10"),
        (lambda: optimal_blt(9, ONCE, buffers=9), "buffers = 9"),
        (lambda: optimal_banded(9, MinSeparation(4), bands=5), "bands = 5"),
        (lambda: optimal_banded(2049, FOUR, bands=5), "steps = 2049"),
        (lambda: momentum(9, beta=1.0), "beta"),
        (lambda: momentum(9, decay=-0.1), "decay"),
    ],
)
def test_refused(ask, message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        ask()
