"""Strategies that are good for a workload: errors of published sums, and the coefficients that make them small.

With A the workload (a Toeplitz matrix; all ones below the diagonal: sums of all steps so far), the error of A(x + C⁻¹Z)
in step t is the norm of row t of AC⁻¹, times the noise multiplier; at μ-GDP that is the sensitivity of C divided by μ.
A search may end anywhere: what it finds is a strategy like any other, whose sensitivity is bounded when it is used.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import Floats
from privcalc.numerics.special import expit, logit, softmax
from privcalc.strategies.buffered import BLT, fine_buffers
from privcalc.strategies.matrices import Dense, Strategy, Toeplitz, check_strategy, fine
from privcalc.strategies.participation import Participation
from privcalc.strategies.patterns import sensitivity, worst_columns

__all__ = ["error", "momentum", "optimal_banded", "optimal_blt", "optimal_toeplitz", "spread"]

Kind = Literal["mean", "max"]

MOST_BANDED = 2048
"""Steps of a matrix that is searched entry by entry."""


def momentum(steps: int, *, beta: float = 0.0, decay: float = 0.0) -> Floats:
    """The workload of stochastic gradient descent: how much of a step's noise the weights have so many steps later.

    Args:
        steps: T.
        beta: momentum in [0, 1).
        decay: share of the weights that a step takes away (learning rate times weight decay), in [0, 1).

    Returns:
        (T,), all ones if both are 0.

    Example:
        >>> from privcalc.strategies import momentum
        >>> momentum(4, beta=0.5)
        array([1.   , 1.5  , 1.75 , 1.875])
    """
    number = errors.count("steps", steps, least=1)
    kept = 1 - errors.real("decay", decay, "a number in [0, 1)", low=0.0, high=1.0, open_high=True)
    again = errors.real("beta", beta, "a number in [0, 1)", low=0.0, high=1.0, open_high=True)
    return _recursion([1.0], np.convolve([1.0, -kept], [1.0, -again]), _impulse(number))


def error(
    strategy: Strategy, participation: Participation, *, workload: ArrayLike | None = None, kind: Kind = "mean"
) -> float:
    """Standard deviation of what is published at 1-GDP, in units of the clip norm; divide by μ for μ-GDP.

    Args:
        strategy: any but a ``Tree``.
        participation: the patterns that a record may have.
        workload: (T,) coefficients, see :func:`momentum`; sums of all steps so far if None.
        kind: the root mean square over the steps, or the largest.

    Returns:
        The upper end of the sensitivity times that error of AC⁻¹.

    Raises:
        PrivcalcError: if the strategy is a ``Tree``, whose estimates are not unique, or the workload of another length.

    Example:
        >>> from privcalc.strategies import MinSeparation, SquareRoot, Toeplitz, error
        >>> once = MinSeparation(separation=1, most=1)
        >>> print(f"{error(Toeplitz([1.0], 1000), once):.3f} {error(SquareRoot(1000), once):.3f}")
        22.372 3.102
    """
    return sensitivity(strategy, participation)[1] * spread(strategy, workload, kind)


def spread(strategy: Strategy, workload: ArrayLike | None = None, kind: Kind = "mean") -> float:
    """The norm of the rows of AC⁻¹, root mean square or largest: times σ, the standard deviation of what is published.

    Args:
        strategy: as for :func:`error`.
        workload: as there.
        kind: as there.

    Raises:
        PrivcalcError: as there.

    Example:
        >>> from privcalc.strategies import Toeplitz, spread
        >>> print(f"{spread(Toeplitz([1.0], 100), kind='max'):.3f} {spread(Toeplitz([1.0, 0.5], 100), kind='max'):.3f}")
        10.000 6.700
    """
    load = _workload(workload, check_strategy(strategy).columns)
    column = np.array(strategy.coefficients) if isinstance(strategy, Toeplitz) else strategy.falling
    if column is not None:
        return math.sqrt(_weights(strategy.columns, kind) @ _recursion([1.0], column, load) ** 2)
    if not isinstance(strategy, Dense):
        raise PrivcalcError(f"strategy = {type(strategy).__name__}: must be a square matrix")
    from scipy.linalg import solve_triangular, toeplitz  # slow to import

    rows = (solve_triangular(strategy.matrix(), toeplitz(load, np.zeros(load.size)).T, lower=True, trans="T") ** 2).sum(
        axis=0
    )
    _weights(strategy.columns, kind)  # a known kind
    return math.sqrt(rows.mean() if kind == "mean" else rows.max())


def optimal_toeplitz(
    steps: int, participation: Participation, *, bands: int, workload: ArrayLike | None = None, kind: Kind = "mean"
) -> Toeplitz:
    """Banded coefficients, ≥ 0 and not rising, with a small error.

    Args:
        steps: T.
        participation: the patterns that a record may have.
        bands: how many coefficients, 1 to T.
        workload: (T,) coefficients; sums of all steps so far if None.
        kind: what is made small: the mean square error over the steps, or the largest.

    Returns:
        The best that L-BFGS finds from the square root, with c_0 = 1, or that; rounded, so that a ledger can draw it
        exactly.

    Source: McKenna 2025 (*Scaling up the Banded Matrix Factorization Mechanism for Differentially Private ML*).

    Example:
        >>> from privcalc.strategies import MinSeparation, error, optimal_toeplitz
        >>> four = MinSeparation(separation=250)
        >>> found = optimal_toeplitz(1000, four, bands=100)
        >>> print(f"{error(found, four):.2f}")
        7.32
    """
    number = errors.count("steps", steps, least=1)
    wanted = errors.count("bands", bands, least=1)
    if wanted > number:
        raise PrivcalcError(f"bands = {wanted}: must be at most steps = {number}")
    from scipy.optimize import minimize  # slow to import
    from scipy.signal import fftconvolve

    load, weights = _workload(workload, number), _weights(number, kind)

    def value(c: Floats) -> tuple[float, Floats]:
        """log of ‖v‖²·Σ w b², v the sum of the worst columns and b = A/C, and its gradient: dB = −B/C·dC."""
        worst, back = worst_columns(np.concatenate([c, np.zeros(number - wanted)]), participation)
        noise = _recursion([1.0], c, load)
        spread, norm = float(weights @ noise**2), float(worst @ worst)
        slope = fftconvolve((2 * weights * noise)[::-1], _recursion([1.0], c, noise))[number - wanted : number][::-1]
        return math.log(spread * norm), 2 * back(worst)[:wanted] / norm - slope / spread

    start = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1.0, wanted)]))
    with np.errstate(all="ignore"):
        optimum = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 500, "maxfun": 1000})
    candidates = [Toeplitz(start, number).rounded()]
    if np.all(np.isfinite(optimum.x)) and optimum.x[0] > 0:
        candidates.append(Toeplitz(_falling(optimum.x / optimum.x[0]), number).rounded())
    return min(candidates, key=lambda one: error(one, participation, workload=load, kind=kind))


def optimal_banded(steps: int, participation: Participation, *, bands: int, workload: ArrayLike | None = None) -> Dense:
    """Bands whose columns differ, all of one norm.

    They have one to three percent less mean error than what :func:`optimal_toeplitz` finds.

    Args:
        steps: T, 1 to 2048: a second for a few hundred, minutes beyond 1000.
        participation: the patterns that a record may have.
        bands: how many diagonals, 1 to T, and at most the separation of a record's steps, so that they share no row.
        workload: (T,) coefficients; sums of all steps so far if None.

    Returns:
        The best that L-BFGS finds from those of :func:`optimal_toeplitz`; rounded, so that a ledger can draw it
        exactly, which takes memory for ``bands`` sums.

    Source: Choquette-Choo et al. 2023 (*(Amplified) Banded Matrix Factorization*), McKenna 2025.

    Example:
        >>> from privcalc.strategies import MinSeparation, error, optimal_banded, optimal_toeplitz
        >>> four = MinSeparation(separation=16)
        >>> for find in (optimal_toeplitz, optimal_banded):
        ...     print(f"{error(find(64, four, bands=16), four):.3f}")
        4.700
        4.585
    """
    number = errors.count("steps", steps, least=1)
    if number > MOST_BANDED:
        raise PrivcalcError(f"steps = {number}: must be at most {MOST_BANDED}")
    if errors.count("bands", bands, least=1) > participation.separation:
        raise PrivcalcError(
            f"bands = {bands}: must be at most {participation.separation}, the separation of a record's steps"
        )
    begun = optimal_toeplitz(number, participation, bands=bands, workload=workload).matrix()
    from scipy.linalg import solve_triangular, toeplitz  # slow to import
    from scipy.optimize import minimize

    load = toeplitz(_workload(workload, number), np.zeros(number))
    places = np.nonzero(np.tri(number) - np.tri(number, k=-bands))

    def normalised(x: Floats) -> tuple[Floats, Floats]:
        columns = np.zeros((number, number))
        columns[places] = x
        norms = np.linalg.norm(columns, axis=0)
        return columns / norms, norms

    def value(x: Floats) -> tuple[float, Floats]:
        """log ‖B‖², B = AC⁻¹, and its gradient: dB = −B·dC·C⁻¹, and dC is what dx leaves orthogonal to each column."""
        c, norms = normalised(x)
        noise = solve_triangular(c, load.T, lower=True, trans="T").T
        spread = float((noise**2).sum())
        slope = -2 * noise.T @ solve_triangular(c, noise.T, lower=True).T / spread
        return math.log(spread), ((slope - c * (slope * c).sum(axis=0)) / norms)[places]

    with np.errstate(all="ignore"):
        found = minimize(value, begun[places], jac=True, method="L-BFGS-B", options={"maxiter": 300, "maxfun": 400})
    candidates = [normalised(x)[0] for x in (begun[places], found.x) if np.all(np.isfinite(x))]
    return min((Dense(fine(c)) for c in candidates), key=lambda one: error(one, participation, workload=workload))


def optimal_blt(
    steps: int,
    participation: Participation,
    *,
    buffers: int = 3,
    workload: ArrayLike | None = None,
    kind: Kind = "mean",
) -> BLT:
    """A buffered linear Toeplitz strategy with a small error, whatever the separation.

    Args:
        steps: T.
        participation: the patterns that a record may have.
        buffers: how many, 1 to 8: noise needs so many vectors.
        workload: (T,) coefficients; sums of all steps so far if None.
        kind: what is made small: the mean square error over the steps, or the largest.

    Returns:
        The best that L-BFGS finds, one buffer after the other; rounded, so that a ledger can draw it exactly.

    Source: McMahan, Xu, Zhang 2024 (*A Hassle-free Algorithm for Private Learning in Practice: Don't Use Tree
    Aggregation, Use BLTs*).

    Example:
        >>> from privcalc.strategies import MinSeparation, error, optimal_blt
        >>> four = MinSeparation(separation=250)
        >>> print(f"{error(optimal_blt(1000, four, buffers=2), four):.2f}")
        6.66
    """
    number = errors.count("steps", steps, least=1)
    count = errors.count("buffers", buffers, least=1)
    if count > 8:
        raise PrivcalcError(f"buffers = {count}: must be at most 8")
    from scipy.optimize import minimize  # slow to import

    load, weights = _workload(workload, number), _weights(number, kind)

    def made(x: Floats) -> BLT:
        """Scales that sum to less than 1, decays below 1."""
        scales, decays = np.split(x, 2)
        # The scales' sum stays below 1, and a decay, expit(30) = 1 − 1e-13 at most, too.
        return BLT(softmax(np.append(scales, 0.0))[:-1] * (1 - 1e-12), expit(np.minimum(decays, 30.0)), number)

    def value(x: Floats) -> float:
        """C is a ratio of polynomials, so 1/C is one recursion."""
        one = made(x)
        below = np.array([1.0])
        for decay in one.decays:
            below = np.convolve(below, [1.0, -decay])
        above = below.copy()
        for j, scale in enumerate(one.scales):
            rest = np.array([1.0])
            for i, decay in enumerate(one.decays):
                rest = rest if i == j else np.convolve(rest, [1.0, -decay])
            above[1:] += scale * rest
        noise = _recursion(below, above, load)
        worst, _ = worst_columns(one.falling, participation)
        return math.log((weights @ noise**2) * (worst @ worst))

    x, best = np.empty(0), math.inf
    for buffer in range(count):
        # A new buffer joins with a share of what is left, where it is missing: its decay between 1 and 1 − 1/T.
        tried = [
            minimize(
                value, np.concatenate([x[:buffer], [share], x[buffer:], [logit(1 - number**-gap)]]), method="L-BFGS-B"
            )
            for share in (0.0, -3.0)
            for gap in (0.25, 0.5, 0.75, 1.0)
        ]
        optimum = min(tried, key=lambda one: float(one.fun))
        if not optimum.fun < best:
            break
        x, best = optimum.x, float(optimum.fun)
    return fine_buffers(made(x))


def _recursion(above: ArrayLike, below: ArrayLike, x: ArrayLike) -> Floats:
    """The power series above/below times that of x."""
    from scipy.signal import lfilter  # slow to import

    return np.asarray(lfilter(above, below, x), dtype=np.float64)


def _impulse(steps: int) -> Floats:
    return np.concatenate([[1.0], np.zeros(steps - 1)])


def _falling(c: Floats) -> Floats:
    """Return the running minimum of c, cut at 0: c itself where it falls already."""
    return np.minimum.accumulate(np.maximum(c, 0.0))


def _workload(workload: ArrayLike | None, steps: int) -> Floats:
    if workload is None:
        return np.ones(steps)
    numbers = errors.floats("workload", workload, "finite numbers")
    if numbers.shape != (steps,) or not np.all(np.isfinite(numbers)):
        raise PrivcalcError(
            f"workload: must be {steps} finite numbers, one for each step, not of shape {numbers.shape}"
        )
    return numbers


def _weights(steps: int, kind: Kind) -> Floats:
    """Return the weight of the squared entry i of AC⁻¹: it is in the rows i, …, T − 1; the last row is the longest."""
    if kind not in ("mean", "max"):
        raise PrivcalcError(f"kind = {kind!r}: must be 'mean' or 'max'")
    return np.ones(steps) if kind == "max" else 1 - np.arange(steps) / steps
