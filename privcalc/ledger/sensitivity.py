"""How far one person moves a vector of clipped sums, exactly, under each relation. Proofs: ``proofs/tables.md``, §2."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.budgets import root, rounded
from privcalc.relation import REPLACE_ONE, Relation

__all__ = ["Reach", "bounds", "of_means", "of_sums"]

ROOM, RESOLVED = 2.0**30, 2.0**40
"""A sum is clamped at this many times what a person may add, or this many times the noise, whichever is less."""


@dataclass(frozen=True)
class Reach:
    """A bound of the norm of a person's contribution; under replace-one half of what a replacement moves.

    Attributes:
        square: of the ℓ2 norm.
        absolute: the ℓ1 norm.
        most: the largest change of one sum by one person who comes or goes.
        touched: how many sums one person changes at most, or two that are replaced.
    """

    square: Fraction
    absolute: Fraction
    most: Fraction
    touched: int

    def limit(self, noise: float, *, whole: bool) -> float:
        """Where sums are clamped: so far that it does not matter, and so near that doubles resolve the noise.

        Args:
            noise: its scale, in units of the bound that the noise is drawn for.
            whole: whether sums are whole numbers, which doubles hold up to 2⁵³.
        """
        found = float(self.most) * min(ROOM, RESOLVED * noise)
        return float(np.floor(min(found, 2.0**53))) if whole else found

    def bound(self, limit: float, *, squares: bool, whole: bool) -> float:
        """The norm's bound, rounded up, with what rounding of sums up to ``limit`` adds, unless they are whole."""
        least = Fraction(root(self.square, up=True)) if squares else self.absolute
        if not whole:
            cells = Fraction(root(Fraction(self.touched), up=True)) if squares else Fraction(self.touched)
            least += cells * Fraction(float(np.spacing(limit)))
        return rounded(least, up=True)


def bounds(lower: float, upper: float) -> tuple[float, float]:
    """Bounds of values, as they are declared.

    Raises:
        PrivcalcError: if they are none.
    """
    low, high = (errors.real(name, value, "a number of at most 1e90", low=-1e90, high=1e90)
                 for name, value in (("lower", lower), ("upper", upper)))  # fmt: skip
    if not low <= high or max(-low, high) < 1e-100:
        raise PrivcalcError(
            f"lower = {lower!r}, upper = {upper!r}: must be bounds of the values, ascending, and not both 0"
        )
    return low, high


def of_sums(lower: float, upper: float, *, rows: int, cells: int, relation: Relation) -> Reach:
    """Sums of values between ``lower`` and ``upper``, each row in one of ``cells`` sums, ``rows`` rows of a person."""
    high, low = rows * max(Fraction(upper), Fraction(0)), rows * max(-Fraction(lower), Fraction(0))
    most, touched = max(high, low), min(cells, 2 * rows)
    if relation is not REPLACE_ONE:
        return Reach(most**2, most, most, touched)
    if cells == 1:
        return Reach((high + low) ** 2 / 4, (high + low) / 2, most, touched)
    return Reach(max((high + low) ** 2, 2 * most**2) / 4, most, most, touched)


def of_means(half: float, *, rows: int, cells: int, relation: Relation) -> Reach:
    """Pairs of sums, of values between −half and half, and of half for each row; each row in one of ``cells`` pairs."""
    most, touched = rows * Fraction(half), 2 * min(cells, 2 * rows)
    if relation is not REPLACE_ONE:
        return Reach(2 * most**2, 2 * most, most, touched)
    return Reach(most**2, most if cells == 1 else 2 * most, most, touched)
