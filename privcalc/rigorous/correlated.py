"""The norm of one record's change of Cx, for matrices with equal columns.

The numbers are balls, rounded outward (``proofs/correlated.md``, §2 to §4).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from privcalc.rigorous.balls import Ball, arb, lower, precision, upper
from privcalc.rigorous.description import Described, UnprovableError

MOST = 300_000
"""Steps, a microsecond or two each."""

BITS = 192
"""Thrice a double's bits: norms of columns are rounded to doubles, and none of these has more."""


def shift(strategy: Described, taking: Described, *, low: bool) -> Fraction:
    """The square of the largest norm of a pattern's columns.

    These are the columns 0, b, 2b, … if coefficients fall or no row has two of them.
    """
    match taking:
        case Described("MinSeparation", {"separation": apart, "most": most}):
            pass
        case Described("FixedOrder", {"epoch": apart}):
            most = None
        case _:
            raise UnprovableError(f"{taking}: not covered by the rigorous route")
    with precision(BITS):
        column, steps, falls = _column(strategy)
        uses = 1 + (steps - 1) // apart
        uses = uses if most is None else min(uses, most)
        if len(column) <= apart or uses == 1:
            squares = Squares(column, steps)
            return _out(sum((squares(j * apart) for j in range(uses)), start=arb(0)), low=low)
        if not falls:
            raise UnprovableError(f"{strategy}: with coefficients that rise it is not covered by the rigorous route")
        total, norm = [arb(0)] * steps, arb(0)
        for r in range(steps):
            gone = r - uses * apart
            here = column[r] if r < len(column) else arb(0)
            if r >= apart:
                here = here + total[r - apart]
            total[r] = here - (column[gone] if 0 <= gone < len(column) else 0)
            norm += total[r] * total[r]
        return _out(norm, low=low)


def turns(strategy: Described, taking: Described, *, low: bool) -> list[tuple[Fraction, int]]:
    """Norms of the columns 0, b, 2b, …, those of class 0.

    None is below that of another class in the same turn.
    """
    classes = taking.fields["classes"]
    with precision(BITS):
        column, steps, _ = _column(strategy)
        _apart(strategy, len(column), classes)
        squares = Squares(column, steps)
        norms = Counter(_out(squares(at).sqrt(), low=low) for at in range(0, steps, classes))
    return [(norm, uses) for norm, uses in norms.items() if norm]


def bins(strategy: Described, taking: Described, *, low: bool) -> tuple[Fraction, int]:
    """The square of the norm of a bin's columns, largest and least; and so many bins without a common row."""
    number = taking.fields["bins"]
    with precision(BITS):
        column, steps, _ = _column(strategy)
        _apart(strategy, len(column), number)
        squares = Squares(column, steps)
        first = number - 1 if low else 0
        square = sum((squares(at) for at in range(first, steps, number)), start=arb(0))
        return _out(square, low=low), number if low else number // len(column)


def _apart(strategy: Described, bands: int, places: int) -> None:
    if bands > places:
        raise UnprovableError(f"{strategy}: has rows in which one record is twice")


def _out(ball: Ball, *, low: bool) -> Fraction:
    end = lower(ball) if low else upper(ball)
    if not math.isfinite(end):
        raise UnprovableError("the sensitivity of correlated noise is out of range")
    return Fraction(max(end, 0.0))


class Squares:
    """‖C[:, t]‖² = Σ_{i < T − t} c_i²."""

    def __init__(self, column: Sequence[Ball], steps: int) -> None:
        self.steps, self.sums = steps, [arb(0)]
        for c in column:
            self.sums.append(self.sums[-1] + c * c)

    def __call__(self, at: int) -> Ball:
        """Return the squared norm of column ``at``."""
        return self.sums[min(self.steps - at, len(self.sums) - 1)]


def _column(strategy: Described) -> tuple[list[Ball], int, bool]:
    """The coefficients, the number of steps, and whether they are ≥ 0 and do not rise."""
    steps = strategy.fields.get("steps", 0)
    if not 0 < steps <= MOST:
        raise UnprovableError(f"{strategy}: not covered by the rigorous route")
    match strategy:
        case Described("Toeplitz", {"coefficients": numbers}) if len(numbers) <= steps:
            falls = all(x >= y for x, y in zip(numbers, (*numbers[1:], 0), strict=True))
            return [arb(x) for x in numbers], steps, falls
        case Described("SquareRoot", {"diagonals": kept}) if kept is None or kept <= steps:
            coefficients = [arb(1)]
            for i in range(1, steps if kept is None else kept):
                coefficients.append(coefficients[-1] * (2 * i - 1) / (2 * i))
            return coefficients, steps, True
    raise UnprovableError(f"{strategy}: not covered by the rigorous route")
