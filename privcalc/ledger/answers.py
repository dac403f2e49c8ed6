"""What a question to a table answers, and how far noise may have moved it; before that, how far one person moves it.

How far a vector of clipped sums is moved is exact, under each relation. Proofs: ``proofs/tables.md``, §§2, 5.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import narwhals.stable.v2 as nw
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
        question: "count", "count_distinct", "sum", "mean", "quantile", "histogram" or "top".
        value: a number, or an array with one row per group; of ``top`` the chosen candidates.
        error: with probability 95 %, for each number by itself, the noise moved it by no more. Of choices: in rows, by
            how much the rank (the count of the rarest of the chosen) may fall short of the best candidate's.
        groups: what the rows of ``value`` are about, or None.
        label: of the release, or None.
        applied: the declared bounds by which rows and values were cut; what they cut is not in the error bar.
    """

    question: str
    value: Any
    error: float | NDArray[np.float64]
    groups: tuple[Hashable, ...] | None = None
    label: str | None = None
    applied: str = ""

    def __post_init__(self) -> None:
        for array in (self.value, self.error):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def _card(self) -> tuple[str, dict[str, object]]:
        lines = [line.partition(" = ") for line in self._lines()]
        shown: dict[str, object] = {name: value for name, _, value in lines}
        return self.label or self.question, shown | ({"applied": self.applied} if self.applied else {})

    def __str__(self) -> str:
        said = [f"applied: {self.applied}; what that cut is not in the bar"] if self.applied else []
        return "\n".join(self._lines() + said)

    def to_frame(self, engine: Literal["polars", "pandas", "pyarrow"] = "polars") -> Any:
        """The released numbers as a data frame, a row for each; its own methods write CSV and Parquet.

        Columns are ``question``, ``label``, ``group`` (a text), ``part`` (the bin of a histogram, the place among
        several that were chosen; else 0), ``value``, ``error`` and ``applied``.

        Args:
            engine: whose frame, one that is installed.
        """
        groups = self.groups or (None,)
        values = [self.value] if self.groups is None else list(self.value)
        bars = np.broadcast_to(self.error, len(groups)).tolist()
        rows = [
            (None if self.groups is None else f"{group}", part, value, bar)
            for group, given, bar in zip(groups, values, bars, strict=True)
            for part, value in enumerate(np.ravel(np.asarray(given)).tolist() if np.ndim(given) else [given])
        ]
        group, part, value, error = (list(column) for column in zip(*rows, strict=True))
        if len({type(one) for one in value}) > 1:  # chosen candidates may be of several types
            value = [f"{one}" for one in value]
        same = {name: [getattr(self, name)] * len(rows) for name in ("question", "label", "applied")}
        columns = {"question": same["question"], "label": same["label"], "group": group, "part": part}
        columns |= {"value": value, "error": error, "applied": same["applied"]}
        return nw.from_dict(columns, backend=engine).to_native()

    def _lines(self) -> list[str]:
        choice = self.question in {"quantile", "top"}
        head = self.question if self.label is None else f"{self.label}: {self.question}"
        lines = [(head, self.value, self.error)]
        if self.groups is not None:
            bars = np.broadcast_to(self.error, len(self.groups))
            lines = [
                (f"{head} of {group!r}", *both) for group, *both in zip(self.groups, self.value, bars, strict=True)
            ]
        bar = ", {:.6g} rows from the best with probability 95 %" if choice else " ± {:.6g} (95 % of the noise)"
        return [f"{name} = {_plain(value)}{bar.format(error)}" for name, value, error in lines]


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


def of_sums(lower: Fraction | int, upper: Fraction | int, *, rows: int, cells: int, relation: Relation) -> Reach:
    """Sums of values between ``lower`` and ``upper``, each row in one of ``cells`` sums, ``rows`` rows of a person."""
    high, low = rows * max(Fraction(upper), Fraction(0)), rows * max(-Fraction(lower), Fraction(0))
    most, touched = max(high, low), min(cells, 2 * rows)
    if relation is not REPLACE_ONE:
        return Reach(most**2, most, most, touched)
    if cells == 1:
        return Reach((high + low) ** 2 / 4, (high + low) / 2, most, touched)
    return Reach(max((high + low) ** 2, 2 * most**2) / 4, most, most, touched)


def of_persons(*, rows: int, cells: int, relation: Relation) -> Reach:
    """Counts of persons, each of whom adds 1 to at most ``rows`` of ``cells`` counts."""
    touched = min(cells, rows if relation is not REPLACE_ONE else 2 * rows)
    norm = Fraction(touched, 1 if relation is not REPLACE_ONE else 2)
    return Reach(norm if relation is not REPLACE_ONE else norm / 2, norm, Fraction(1), touched)


def of_means(half: Fraction, *, rows: int, cells: int, relation: Relation) -> Reach:
    """Pairs of sums, of values between −half and half, and of half for each row; each row in one of ``cells`` pairs."""
    most, touched = rows * Fraction(half), 2 * min(cells, 2 * rows)
    if relation is not REPLACE_ONE:
        return Reach(2 * most**2, 2 * most, most, touched)
    return Reach(most**2, most if cells == 1 else 2 * most, most, touched)
