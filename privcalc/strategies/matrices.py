"""Strategy matrices C, lower triangular: row r of the release is Σ_t C[r, t]·x_t plus noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import UNIT, Floats

__all__ = ["Dense", "SquareRoot", "Strategy", "Toeplitz", "Tree"]

MOST_DENSE = 4096
"""Steps up to which a matrix is written out."""

FINE = 20
"""Coefficients that are multiples of 2^-FINE can be drawn exactly (``proofs/correlated.md``, §5)."""

MOST_STEPS = 10_000_000
"""Steps of a strategy that is given by its coefficients."""


class Strategy(ABC):
    """A matrix with a column for every step; a frozen value."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """T, the number of steps."""

    @property
    @abstractmethod
    def bands(self) -> int:
        """How many diagonals there are: columns so far apart have no row in common."""

    @property
    @abstractmethod
    def falling(self) -> Floats | None:
        """The first column, if every other is the same further down, and its entries are ≥ 0 and do not rise."""

    @abstractmethod
    def matrix(self) -> Floats:
        """Return the whole matrix C, shape (rows, steps).

        Raises:
            PrivcalcError: if that is too large to be written out.
        """

    def rounded(self, *, bands: int | None = None) -> Strategy:
        """The strategy with numbers rounded to multiples of 2⁻²⁰, which a ledger can draw exactly.

        Args:
            bands: how many diagonals to keep; all if None.

        Raises:
            PrivcalcError: if it is a ``Tree`` and ``bands`` is given.

        Example:
            >>> SquareRoot(steps=1000).rounded(bands=3).coefficients
            (1.0, 0.5, 0.375)
        """
        most = self.bands if bands is None else errors.count("bands", bands, least=1)
        column = self.falling
        if column is not None:
            return Toeplitz(fine(column[:most]), self.columns)
        return Dense(fine(np.triu(self.matrix(), 1 - most)))

    @property
    def blur(self) -> float:
        """How far roundings of an encoder move all rows, in ℓ2, as a share of what snapping moves one sum."""
        return 0.0

    @property
    def relative(self) -> float:
        """How far a number of ``falling`` or ``matrix`` may be from the entry, relative to it."""
        return 0.0


def steps_of(value: object, most: int = MOST_STEPS) -> int:
    """Return the number of steps T, checked.

    Raises:
        PrivcalcError: if it is none, or too large.
    """
    steps = errors.count("steps", value, least=1)
    if steps > most:
        raise PrivcalcError(f"steps = {steps}: must be at most {most}")
    return steps


def _shifted(column: Floats) -> Floats:
    """The Toeplitz matrix of a column."""
    steps = column.size
    if steps > MOST_DENSE:
        raise PrivcalcError(
            f"steps = {steps}: must be at most {MOST_DENSE}, unless coefficients are >= 0 and do not rise"
        )
    padded = np.concatenate([np.zeros(steps - 1), column])
    return np.lib.stride_tricks.sliding_window_view(padded, steps)[:, ::-1]


class Falling(Strategy):
    """A strategy whose every column is the first, further down, and whose coefficients are ≥ 0 and do not rise."""

    steps: int

    @property
    def columns(self) -> int:
        return self.steps

    @property
    @abstractmethod
    def falling(self) -> Floats:
        """The first column c of C, shape (T,), ≥ 0 and non-increasing."""

    def matrix(self) -> Floats:
        """Every column is the first, further down."""
        return _shifted(self.falling)


@dataclass(frozen=True, init=False)
class Toeplitz(Strategy):
    """C[r, t] = c_{r−t}: banded, if there are fewer coefficients than steps.

    Args:
        coefficients: c_0 ≠ 0, c_1, …; those that are missing are 0. ``[1.0]`` is independent noise.
        steps: T, 1 to 10⁷.

    Raises:
        PrivcalcError: if the matrix is singular, or there are more coefficients than steps.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.strategies import MinSeparation, Toeplitz
        >>> run = pc.CorrelatedGaussian(2.0, Toeplitz([1.0, 0.5], steps=1000), MinSeparation(separation=100))
        >>> print(f"{run.gdp_mu():.6f}")  # 10 times a column of norm √1.25
        1.767767
    """

    coefficients: tuple[float, ...]
    steps: int

    def __init__(self, coefficients: ArrayLike, steps: int) -> None:
        numbers = numbers_of("coefficients", coefficients, dimensions=1)
        while numbers.size > 1 and numbers[-1] == 0:
            numbers = numbers[:-1]
        object.__setattr__(self, "steps", steps_of(steps))
        if numbers.size > self.steps:
            raise PrivcalcError(f"coefficients: must be at most steps = {self.steps} numbers, not {numbers.size}")
        if numbers[0] == 0:
            raise PrivcalcError("coefficients: the first must not be 0: the matrix would be singular")
        object.__setattr__(self, "coefficients", tuple(numbers.tolist()))

    @property
    def columns(self) -> int:
        return self.steps

    @property
    def bands(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    def rounded(self, *, bands: int | None = None) -> Toeplitz:
        most = self.bands if bands is None else errors.count("bands", bands, least=1)
        return Toeplitz(fine(self.coefficients[:most]), self.steps)

    @property
    def falling(self) -> Floats | None:
        """The coefficients, if they are ≥ 0 and do not rise."""
        coefficients = np.array(self.coefficients)
        falls = np.all(coefficients >= 0) and np.all(np.diff(coefficients) <= 0)
        return _padded(coefficients, self.steps) if falls else None

    def matrix(self) -> Floats:
        """Every column is the first, further down."""
        return _shifted(_padded(np.array(self.coefficients), self.steps))


@dataclass(frozen=True, init=False)
class SquareRoot(Falling):
    """The square root of the matrix of prefix sums: c_i = C(2i, i)/4^i, optimal for these up to a constant.

    Source: Fichtenberger, Henzinger, Upadhyay 2023; cut to some diagonals: Kalinin, Lampert 2024.

    Args:
        steps: T, 1 to 10⁷.
        diagonals: how many are kept; all if None.

    Example:
        >>> from privcalc.strategies import SquareRoot
        >>> SquareRoot(steps=4).matrix()[:, 0].round(6)
        array([1.    , 0.5   , 0.375 , 0.3125])
    """

    steps: int
    diagonals: int | None

    def __init__(self, steps: int, diagonals: int | None = None) -> None:
        object.__setattr__(self, "steps", steps_of(steps))
        kept = None if diagonals is None else errors.count("diagonals", diagonals, least=1)
        if kept is not None and kept > self.steps:
            raise PrivcalcError(f"diagonals = {kept}: must be at most steps = {self.steps}")
        object.__setattr__(self, "diagonals", kept)

    @property
    def bands(self) -> int:
        """How many diagonals there are."""
        return self.steps if self.diagonals is None else self.diagonals

    @property
    def falling(self) -> Floats:
        """c_i = c_{i−1}·(1 − 1/(2i))."""
        factors = np.concatenate([[1.0], 1 - 0.5 / np.arange(1.0, self.bands)])
        return _padded(np.cumprod(factors), self.steps)

    @property
    def relative(self) -> float:
        """A quotient, a difference and a product for each coefficient before."""
        return 3.03 * self.bands * UNIT


@dataclass(frozen=True, init=False)
class Dense(Strategy):
    """A strategy that is given by a lower-triangular matrix.

    Args:
        rows: (T, T), T at most 4096, 0 above the diagonal and not 0 on it.

    Raises:
        PrivcalcError: if it is not square, not lower triangular, singular, or has an entry that is not finite.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.strategies import Dense, MinSeparation
        >>> run = pc.CorrelatedGaussian(1.0, Dense([[1.0, 0.0], [0.5, 2.0]]), MinSeparation(separation=1))
        >>> print(f"{run.gdp_mu():.6f}")  # the norm of (1, 2.5)
        2.692583
    """

    rows: tuple[tuple[float, ...], ...]

    def __init__(self, rows: ArrayLike) -> None:
        matrix = numbers_of("rows", rows, dimensions=2)
        if matrix.shape[0] != matrix.shape[1]:
            raise PrivcalcError(f"rows: must be a square matrix, not {matrix.shape[0]} × {matrix.shape[1]}")
        steps_of(matrix.shape[0], MOST_DENSE)
        if np.any(np.triu(matrix, 1)):
            raise PrivcalcError("rows: must be lower triangular: a step must not wait for a later one")
        if np.any(np.diag(matrix) == 0):
            raise PrivcalcError(
                f"rows: is singular: 0 on the diagonal in row {int(np.argmin(np.abs(np.diag(matrix))))}"
            )
        object.__setattr__(self, "rows", tuple(map(tuple, matrix.tolist())))

    @property
    def columns(self) -> int:
        return len(self.rows)

    @property
    def bands(self) -> int:
        """The number of diagonals: one more than the largest distance from the main one."""
        r, t = np.nonzero(self.matrix())
        return 1 + int((r - t).max())

    @property
    def falling(self) -> Floats | None:
        """The first column, if all others are the same further down, and it does."""
        matrix = self.matrix()
        column = matrix[:, 0]
        alike = np.array_equal(matrix[1:, 1:], matrix[:-1, :-1])
        return column if alike and np.all(column >= 0) and np.all(np.diff(column) <= 0) else None

    def matrix(self) -> Floats:
        return np.array(self.rows)


@dataclass(frozen=True)
class Tree(Strategy):
    """Tree aggregation: a row for every dyadic block of steps, the sum over it.

    A step is in at most 1 + log₂ T of them.

    Any estimate from these rows (the online one of Honaker 2015, say) is a function of what is released.

    Source: Dwork, Naor, Pitassi, Rothblum 2010; Chan, Shi, Song 2011.

    Args:
        steps: T, at most 4096.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.strategies import MinSeparation, Tree
        >>> print(f"{pc.CorrelatedGaussian(1.0, Tree(8), MinSeparation(separation=1, most=1)).gdp_mu():.6f}")  # √4
        2.000000
    """

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", steps_of(self.steps, MOST_DENSE))

    @property
    def columns(self) -> int:
        return self.steps

    @property
    def bands(self) -> int:
        """Blocks reach over half of the steps."""
        return self.steps

    @property
    def falling(self) -> None:
        """None: the columns of a tree are no shifts of one column."""

    def rounded(self, *, bands: int | None = None) -> Strategy:
        """Return the tree itself, whose entries are 0 and 1."""
        if bands is not None:
            raise PrivcalcError(f"bands = {bands!r}: must be None for a Tree")
        return self

    def matrix(self) -> Floats:
        """1 where a block that is complete within T steps contains the step."""
        blocks = [(at, size) for size in _powers(self.steps) for at in range(0, self.steps - size + 1, size)]
        matrix = np.zeros((len(blocks), self.steps))
        for row, (at, size) in zip(matrix, blocks, strict=True):
            row[at : at + size] = 1
        return matrix


def _powers(steps: int) -> Iterator[int]:
    return (2**i for i in range(steps.bit_length()))


def fine(numbers: ArrayLike) -> Floats:
    """To multiples of 2^-FINE."""
    return np.ldexp(np.rint(np.ldexp(numbers, FINE)), -FINE)


def _padded(column: Floats, steps: int) -> Floats:
    return np.concatenate([column, np.zeros(steps - column.size)])


def numbers_of(name: str, values: ArrayLike, dimensions: int) -> Floats:
    """Return numbers as an array of ``dimensions`` dimensions, checked.

    Raises:
        PrivcalcError: if they are not, or not finite, or too large or small.
    """
    array = errors.numbers(name, values).astype(np.float64)
    if array.ndim != dimensions or not array.size:
        raise PrivcalcError(
            f"{name}: must be {'a list' if dimensions == 1 else 'a matrix'} of numbers, not of shape {array.shape}"
        )
    size = np.abs(array[array != 0])
    if not np.all(np.isfinite(array)) or (size.size and (size.min() < 1e-100 or size.max() > 1e100)):
        raise PrivcalcError(f"{name}: must be finite, 0 or of absolute value 1e-100 to 1e100")
    return array


def check_strategy(value: object) -> Strategy:
    """Return the strategy, checked.

    Raises:
        PrivcalcError: if it is none.
    """
    if not isinstance(value, Strategy):
        raise PrivcalcError(
            f"strategy = {value!r}: must be Toeplitz, SquareRoot, BLT, Dense or Tree of privcalc.strategies"
        )
    return value
