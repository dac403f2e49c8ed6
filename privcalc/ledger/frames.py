"""The rows of a question as one plan of expressions, which every engine turns into the same whole numbers.

Of each person at most k rows are kept, values are clamped and rounded to a public grid, and groups are counted and
added up in two integer limbs. Nothing else leaves the engine. Proof: ``proofs/tables.md``, §§1, 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError

Frame: TypeAlias = nw.DataFrame[Any] | nw.LazyFrame[Any]

FINE, LIMB = 51, 26
"""Values have so many bits, in two limbs: 2^37 rows add up in 64 bits."""


@dataclass(frozen=True)
class Steps:
    """The public grid of clamped values: multiples of 2^-exponent.

    Attributes:
        lower: the least value.
        upper: the largest.
        exponent: of the grid; what is largest has FINE bits.
    """

    lower: float
    upper: float
    exponent: int

    @classmethod
    def of(cls, lower: float, upper: float, *, whole: bool = False) -> Self:
        """For values of these bounds, or whole numbers of these."""
        exponent = FINE - math.frexp(max(-lower, upper))[1]
        return cls(lower, upper, min(exponent, 0) if whole else exponent)

    def place(self, value: float) -> int:
        """Its multiple of the grid's step, ⌊value·2^exponent + ½⌋."""
        return math.floor(math.ldexp(value, self.exponent) + 0.5)

    def exact(self, value: float) -> Fraction:
        """The value that is added for it."""
        return Fraction(self.place(value)) / Fraction(2) ** self.exponent

    def places(self, values: nw.Expr) -> nw.Expr:
        """Those of a column, clamped: the same doubles on every engine, as nothing is rounded but to whole numbers."""
        return (values.clip(self.lower, self.upper) * 2.0**self.exponent + 0.5).floor()

    def value(self, total: int) -> float:
        """A sum of places as a double, rounded once."""
        return math.ldexp(float(total), -self.exponent)


@dataclass(frozen=True)
class Key:
    """A column whose values are compared with a public list.

    Attributes:
        place: where each value of the column that is in the list stands there.
        size: how long that is.
    """

    place: Mapping[Any, int]
    size: int


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that take part.

    Attributes:
        frame: its columns are ``p``, the persons; ``x``, the numbers, and ``ok``, whether there is one; ``k0``, …; and
            those by which rows of a person are ordered. Only those that are asked for.
        keys: of ``k0``, …
        order: the columns of an order that was declared; if there is none, ``o0`` is the place in the table.
        most: rows of a person that count; 0: all.
        groups: what the first keys are about, together, or None.
    """

    frame: Frame
    keys: tuple[Key, ...]
    order: tuple[str, ...]
    most: int
    groups: tuple[Hashable, ...] | None

    @property
    def size(self) -> int:
        """How many groups; all rows are one, if there are none."""
        return 1 if self.groups is None else len(self.groups)

    def sums(
        self,
        *,
        ends: Sequence[float] = (),
        both: bool = False,
        steps: Steps | None = None,
        middle: float = 0.0,
        distinct: bool = False,
    ) -> Callable[[], tuple[NDArray[np.int64], list[int]]]:
        """Of each cell the number of rows and the sum of the values' places, when called: then the engine runs.

        Cells are combinations of keys, and of places among ``ends``.

        Args:
            ends: ascending; a number's place is the number of those that it is at or beyond.
            both: to which the number of those is added that it is beyond.
            steps: what is added up.
            middle: of the values less this.
            distinct: whether a cell has the number of persons, in place of that of rows.

        Raises:
            PrivcalcError: before that, if the engine cannot do it, whatever the rows hold.
        """
        frame, cells = self.frame, (1 + both) * len(ends) + 1
        if isinstance(frame, nw.DataFrame):
            return lambda: self._read(self._plan(frame, ends, both, steps, middle, distinct), cells)
        try:
            plan = self._plan(frame, ends, both, steps, middle, distinct)
            plan.collect_schema()
        except (NotImplementedError, nw.exceptions.NarwhalsError) as error:
            raise PrivcalcError(
                f"table: {frame.implementation.name.lower()} has no expression for this question ({error}); ask "
                "another engine"
            ) from error
        return lambda: self._read(plan.collect(), cells)

    def _plan(
        self, frame: Any, ends: Sequence[float], both: bool, steps: Steps | None, middle: float, distinct: bool
    ) -> Any:
        names, values = [f"k{place}" for place in range(len(self.keys))], nw.col("x")
        listed = [nw.col(name).is_in(list(key.place)) for name, key in zip(names, self.keys, strict=True) if key.place]
        if len(listed) < len(names):
            listed = [nw.lit(False)]  # what is listed is of no value that the column can have
        if "ok" in frame.collect_schema().names():
            listed.append(nw.col("ok"))
        taken = nw.when(*listed).then(nw.lit(0)).otherwise(nw.lit(1)) if listed else nw.lit(0)
        frame = frame.with_columns(out=taken, c=_place(frame, values, ends, both))
        if steps is not None:
            frame = frame.with_columns(s=steps.places(values - middle if middle else values))
            high = (nw.col("s") * 2.0**-LIMB).floor()
            frame = frame.with_columns(h=high.cast(nw.Int64), l=(nw.col("s") - high * 2.0**LIMB).cast(nw.Int64))
        sums = [] if steps is None else ["h", "l"]
        if self.most:
            frame = _first(frame, self.most, [*self.order, "out", *names, "c", *sums] if self.order else ["o0"])
        added = (nw.col(name).sum() for name in sums)
        frame = frame.filter(nw.col("out") == 0)
        if distinct:
            frame = frame.group_by("p", *names, "c").agg(rows=nw.len())
        return frame.group_by(*names, "c").agg(*added, n=nw.len())

    def _read(self, found: nw.DataFrame[Any], cells: int) -> tuple[NDArray[np.int64], list[int]]:
        shape = (*(key.size for key in self.keys), cells)
        counts, sums = np.zeros(math.prod(shape), dtype=np.int64), [0] * math.prod(shape)
        for row in found.iter_rows(named=True):
            place = 0
            for index, key in enumerate(self.keys):
                place = place * key.size + key.place[row[f"k{index}"]]
            place = place * cells + int(row["c"])
            counts[place] += int(row["n"])
            sums[place] += (int(row["h"]) << LIMB) + int(row["l"]) if "h" in row else 0
        return counts, sums


def _first(frame: Any, most: int, by: list[str]) -> Any:
    """The first rows of each person, in an order of that person's own: rows that are equal in it add the same."""
    if isinstance(frame, nw.LazyFrame):
        return frame.filter(nw.col("c").cum_count().over("p", order_by=by) <= most)
    ordered = frame.sort("p", *by).with_row_index("#")
    return ordered.filter(nw.col("#") - nw.col("#").min().over("p") < most)


def _place(frame: Any, values: nw.Expr, ends: Sequence[float], both: bool) -> nw.Expr:
    """Which place each value has: a tree of comparisons, or a search where the column is in memory."""
    if not ends:
        return nw.lit(0)
    if isinstance(frame, nw.DataFrame):

        def search(column: Any) -> Any:
            found = np.searchsorted(ends, column.to_numpy(), side="right")
            return (found + both * np.searchsorted(ends, column.to_numpy(), side="left")).astype(np.int64)

        return values.map_batches(search, return_dtype=nw.Int64())
    tests = [test for end in ends for test in ([values >= end, values > end] if both else [values >= end])]
    return _tree(tests, 0)


def _tree(tests: Sequence[nw.Expr], least: int) -> nw.Expr:
    """How many of them hold, of which each follows from the next, and ``least``."""
    if not tests:
        return nw.lit(least)
    half = len(tests) // 2
    more, fewer = _tree(tests[half + 1 :], least + half + 1), _tree(tests[:half], least)
    return nw.when(tests[half]).then(more).otherwise(fewer)
