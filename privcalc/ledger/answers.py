"""What a question to a table answers, and how far noise may have moved it; before that, how far one person moves it.

How far a vector of clipped sums is moved is exact, under each relation. Proofs: ``proofs/tables.md``, §§2, 5.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.caps import root, rounded
from privcalc.mechanisms.exponential import ExponentialMechanism, TopK
from privcalc.noise.grid import Grid
from privcalc.notebook import Card
from privcalc.numerics.special import gammaln, ndtri
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Additive

MISS = 0.05
"""The probability with which an error is larger than is said."""


@dataclass(frozen=True, eq=False)
class Answer(Card):
    """What was released, with the error bar of its noise. All of it may be published, and post-processed freely.

    Attributes:
        question: "count", "sum", "mean", "quantile", "histogram" or "top".
        value: a number, or an array with one row per group; of ``top`` the chosen candidates.
        error: with probability 95 %, for each number by itself, the noise moved it by no more. Of choices: in rows, by
            how much the rank (the count of the rarest of the chosen) may fall short of the best candidate's.
        groups: what the rows of ``value`` are about, or None.
        label: of the release, or None.
    """

    question: str
    value: Any
    error: float | NDArray[np.float64]
    groups: tuple[Hashable, ...] | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        for array in (self.value, self.error):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def _card(self) -> tuple[str, dict[str, object]]:
        lines = [line.partition(" = ") for line in str(self).splitlines()]
        return self.label or self.question, {name: value for name, _, value in lines}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each group, or one in all: label, question, group, value and error, for a data frame or a file.

        Example:
            >>> import privcalc as pc
            >>> noise = pc.Gaussian(noise_multiplier=2.0)
            >>> with pc.Ledger(None, plan=noise, unit="one visit") as ledger:
            ...     table = {"shop": ["N", "S", "N"]}
            ...     visits = ledger.count(table, noise, by="shop", groups=["N", "S"], person=None, rows_per_person=1)
            >>> [(row["group"], round(row["error"], 1)) for row in visits.rows()]
            [('N', 3.9), ('S', 3.9)]
        """
        first = {"label": self.label, "question": self.question}
        cells: list[tuple[Any, ...]] = [(None, self.value, self.error)]
        if self.groups is not None:
            bars = np.broadcast_to(self.error, len(self.groups))
            cells = list(zip(self.groups, self.value, bars, strict=True))
        return [{**first, "group": group, "value": value, "error": error} for group, value, error in cells]

    def __str__(self) -> str:
        choice = self.question in {"quantile", "top"}
        head = self.question if self.label is None else f"{self.label}: {self.question}"
        bar = ", {:.6g} rows from the best with probability 95 %" if choice else " ± {:.6g} (95 % of the noise)"
        lines = []
        for row in self.rows():
            name = head if self.groups is None else f"{head} of {row['group']!r}"
            lines.append(f"{name} = {_plain(row['value'])}{bar.format(row['error'])}")
        return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return f"{value:.9g}" if isinstance(value, float) else f"{value}"


def half_width(mechanism: Additive, bound: float, miss: float, *, coordinates: int = 1) -> float:
    """What the noise of one of so many numbers exceeds with probability at most ``miss`` (``proofs/tables.md``, §5)."""
    normal = -float(ndtri(0.5 * miss))
    if mechanism.whole:
        return float(math.ceil(normal * mechanism.multiplier * bound))
    grid = Grid.of(mechanism.multiplier, clip_norm=bound, coordinates=coordinates, norm=mechanism.norm)
    quantile = normal if mechanism.norm == 2 else -math.log(miss)
    return quantile * grid.scale + math.ldexp(0.5, grid.exponent)  # it is rounded to the grid


def shortfall(mechanism: ExponentialMechanism | TopK, sensitivity: float, candidates: int) -> float:
    """Bound what the score of a choice falls short of the best by, with probability 95 %.

    See ``proofs/tables.md``, §5.
    """
    if isinstance(mechanism, TopK):
        k = min(mechanism.k, candidates)
        sets = float(gammaln(candidates + 1) - gammaln(k + 1) - gammaln(candidates - k + 1))
        return 2 * sensitivity / mechanism.level * (sets - math.log(MISS))
    return sensitivity / mechanism.level * (math.log(candidates) - math.log(MISS))


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
