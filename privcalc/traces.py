"""Traces of private records in what is taken for public: columns that were scaled by themselves, bounds that were read off one.

Both are warned of on the screen of who has the data, and never written down: they depend on it (``proofs/ledger.md``, §8).
Nothing is proved where they are silent: columns scaled before they were split or filtered, and round bounds, leave no trace.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import warn
from privcalc.numerics.floats import Floats

__all__ = ["check_bounds", "check_copies", "check_listed", "check_most", "check_scaled", "scaled_by"]

LEAST = 20
"""So many rows, or more, have a mean of 0 to six digits by intent only; so many different values are no categories."""

LOOKED_AT = 1000
"""Rows in which values are told from categories and levels of grey."""

FEW = 32
"""Values, or fewer, may be a design's, or levels of a public scale."""

LISTED = 5
"""So many entries of a list, or more, seldom have the order that a column gives them, or are each in one row of it."""

CHUNK, WIDEST = 4096, 128

LEVELS = (255.0, 127.5, 100.0, 1000.0, 16.0)
"""Of values of 8 bits over [0, 1] and [−1, 1], of percentages, three decimals and 4 bits: their ends are natural."""

SHARES = (0.001, 0.005, 0.01, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.98, 0.99, 0.995, 0.999)
FACTORS = (1.01, 1.05, 1.1, 1.2, 1.25, 1.5, 2.0)


def check_scaled(name: str, values: NDArray[Any]) -> None:
    """Warn where columns look as if they had been centred or scaled by what they hold themselves.

    Args:
        name: of the argument.
        values: of all records, shape (n, …), finite; with fewer records than tell chance from intent nothing is looked at.
    """
    if len(values) and (found := scaled_by(values.reshape(len(values), -1))) is not None:
        warn(
            f"{name}: {found}, as if scaled by these very records: one record is then in the values of all others, and ε does "
            "not hold. Scale by public constants, or fit the scaler on public records (natural ends are no harm)"
        )


def scaled_by(columns: NDArray[Any]) -> str | None:
    """What says that columns, shape (n, m), were scaled by themselves; None if nothing does."""
    rows, width = columns.shape
    if rows < LEAST or not width or columns.dtype.kind != "f":
        return None
    low, high, mean = columns.min(axis=0), columns.max(axis=0), columns.mean(axis=0, dtype=np.float64)
    deviation = _spread(columns, mean)
    varies, near = high > low, 1e-4 / max(100.0, rows**0.5)
    if not varies.any() or bool((columns[:LEAST] == np.rint(columns[:LEAST])).all()):
        return None
    centred, values = np.abs(mean) <= near * deviation, _values(columns)
    balanced = (values <= FEW) & (np.abs(low + high) <= 1e-6 * (high - low))  # codes −½ and ½, hours on a circle
    if centred[varies].all() and not balanced[varies].all():
        return "all columns have mean 0 (StandardScaler)"
    unit = np.abs(deviation - 1) <= near
    unit |= np.abs(deviation * (rows / (rows - 1)) ** 0.5 - 1) <= near
    graded = varies & (values > min(FEW, min(rows, LOOKED_AT) // 2))
    if (centred & unit & (values > 2)).any():
        return "some columns have mean 0 and standard deviation 1 (StandardScaler)"
    if _many(unit, graded):
        return "some columns have standard deviation 1"
    if 3 <= graded.sum() <= WIDEST and _orthogonal(columns[:, graded]):
        return "columns are orthogonal to each other (PCA, SVD)"
    if _many(np.abs(rows * (deviation**2 + mean**2) - 1) <= near, graded):
        return "columns have norm 1 (normalize over axis 0)"
    if _at_ends(columns, np.maximum(-low, high), graded):
        return "the largest value of every column is 1 (MinMaxScaler, MaxAbsScaler)"
    ends = graded & (np.abs(high - 1) <= 3e-7) & (np.minimum(np.abs(low), np.abs(low + 1)) <= 3e-7)
    if sum(_alone(columns[:, each]) for each in np.flatnonzero(ends)) >= max(2, ends.sum() / 2):
        return "columns go from 0, or -1, to 1, and one record alone is at either end (MinMaxScaler)"
    halved = np.abs((columns > 0).sum(axis=0) - (columns < 0).sum(axis=0)) <= 1
    if any(_robust(columns[:, each]) for each in np.flatnonzero(graded & halved)):
        return "columns have median 0 and quartiles at distance 1 (RobustScaler)"
    even = graded & (np.abs(mean - (low + high) / 2) <= near * deviation) & (values == min(rows, LOOKED_AT))
    if any(_ranked(columns[:, each]) for each in np.flatnonzero(even)):
        return "columns are ranks (rank(pct=True), QuantileTransformer)"
    return (
        _of_all(columns, float(mean.mean()), float(((mean - mean.mean()) ** 2 + deviation**2).mean()), near)
        if width > 1
        else None
    )


def _of_all(columns: NDArray[Any], mean: float, variance: float, near: float) -> str | None:
    """What all values together say, or the longest row."""
    if abs(mean) <= near and abs(variance - 1) <= near:
        return "all values together have mean 0 and standard deviation 1"
    norms = np.sqrt(np.einsum("ij,ij->i", columns, columns, dtype=np.float64))
    largest = np.maximum(columns.max(axis=1), -columns.min(axis=1))
    for sizes, what in ((largest, "largest value"), (norms, "norm of the longest record")):
        at = np.flatnonzero(sizes > 1 - 1e-4)
        if at.size == 1 and abs(sizes[at[0]] - 1) <= 3e-7 and np.count_nonzero(columns[at[0]]) > 1 and not _levels(columns):
            return f"the {what} is 1, of one record alone"
    return None


def _spread(columns: NDArray[Any], mean: Floats) -> Floats:
    """Standard deviations, some rows at a time."""
    squares = np.zeros(len(mean))
    for start in range(0, len(columns), CHUNK):
        off = columns[start : start + CHUNK] - mean
        squares += np.einsum("ij,ij->j", off, off)
    return np.sqrt(squares / len(columns))


def _values(columns: NDArray[Any]) -> NDArray[np.int64]:
    """How many different values each column has, in the rows that are looked at."""
    return np.asarray((np.diff(np.sort(columns[:LOOKED_AT], axis=0), axis=0) > 0).sum(axis=0) + 1, dtype=np.int64)


def _orthogonal(columns: NDArray[Any]) -> bool:
    """Whether no two have a product, but for rounding."""
    products = np.einsum("ij,ik->jk", columns, columns) if len(columns) < CHUNK else columns.T @ columns
    sizes = np.sqrt(np.diag(products))
    return bool((np.abs(products - np.diag(np.diag(products))) <= 1e-6 / len(columns) ** 0.5 * np.outer(sizes, sizes)).all())


def _many(found: NDArray[np.bool_], graded: NDArray[np.bool_]) -> bool:
    """Whether at least two of those columns are so, or all."""
    hits = int((found & graded).sum())
    return hits >= 2 or hits == graded.sum() == 1


def _at_ends(columns: NDArray[Any], largest: NDArray[Any], graded: NDArray[np.bool_]) -> bool:
    """Whether each column's largest absolute value is 1, which is one row's alone in most, and none are levels of grey."""
    where = np.flatnonzero(graded)
    if not where.size or bool((np.abs(largest[where] - 1) > 3e-7).any()) or _levels(columns[:, where]):
        return False
    if where.size == 1:
        return _alone(columns[:, where[0]])
    few = [1 in ((columns[:, each] > 1 - 1e-4).sum(), (columns[:, each] < 1e-4 - 1).sum()) for each in where]
    return 2 * sum(few) >= where.size


def _alone(column: NDArray[Any]) -> bool:
    """Whether the least and the largest value are of one row each, and no other is near, or equal; from 0 or −1 to 1."""
    low, high = column.min(), column.max()
    ends = abs(high - 1) <= 3e-7 and min(abs(low), abs(low + 1)) <= 3e-7
    near = ((column > high - 1e-4).sum(), (column < low + 1e-4).sum()) == (1, 1)
    exact = bool(low in (0, -1)) and ((column == high).sum(), (column == low).sum()) == (1, 1)  # long tails are dense at an end
    return bool(ends and (near or exact) and not _levels(column) and not _even(column))


def _robust(column: NDArray[Any]) -> bool:
    """Whether the median, or either of the two values that it is between, is 0 and the quartiles are at distance 1."""
    values = column.astype(np.float64)
    first, median, third = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    middle = min(abs(median), *(abs(float(np.quantile(values, 0.5, method=end))) for end in ("lower", "higher")))
    return bool(middle <= 1e-6 and abs(third - first - 1) <= 1e-6)


def _ranked(column: NDArray[Any]) -> bool:
    """Whether values are at equal distances, each once, in another order than that of the rows, as a time would be in."""
    return _even(column) and bool((np.diff(column) > 0).any()) and bool((np.diff(column) < 0).any())


def _even(column: NDArray[Any]) -> bool:
    """Whether values are at equal distances, each once."""
    steps = np.diff(np.sort(column.astype(np.float64)))
    return bool((np.abs(steps - steps.mean()) <= 1e-2 * steps.mean()).all())


def _levels(values: NDArray[Any]) -> bool:
    """Whether these are whole numbers over one of few public ones, as levels of grey and percentages are."""
    some = values[:LOOKED_AT].astype(np.float64)
    return any(bool((np.abs(some * size - np.rint(some * size * 2) / 2) < 1e-4).all()) for size in LEVELS)


def check_copies(name: str, columns: NDArray[Any]) -> None:
    """Warn where records are there several times: at least eight, and a hundredth of all, equal in numbers of many values.

    Args:
        name: of the argument.
        columns: of all records, shape (n, m), finite.
    """
    if columns.ndim != 2 or len(columns) < LEAST:
        return
    graded = np.flatnonzero(_values(columns) > min(LEAST, len(columns) // 4))[:3]
    if graded.size < 3:
        return
    order = np.lexsort(columns[:, graded].T)
    near = np.flatnonzero((np.diff(columns[np.ix_(order, graded)], axis=0) == 0).all(axis=1))
    copies = int((columns[order[near]] == columns[order[near + 1]]).all(axis=1).sum())
    if copies >= max(8, len(columns) // 100):
        warn(
            f"{name}: has the same records several times: of one person (oversampling, a bootstrap, files read twice) each copy "
            "is a record, and ε does not hold; leave copies out, or name the persons, persons=. Of other persons they are no harm"
        )


def check_bounds(name: str, bounds: Sequence[float] | Floats, values: Floats, taken: NDArray[np.bool_]) -> None:
    """Warn where bounds were read off the data, or these were scaled by themselves.

    Args:
        name: of the arguments.
        bounds: ascending: the least and the largest value that count, or edges or candidates.
        values: of all rows, NaN where there is none: bounds are read off a table before rows of persons are left out.
        taken: the rows that count.
    """
    seen: list[Floats] = [values[~np.isnan(values)], values[taken]]
    if np.isfinite(seen[0]).all():
        check_scaled("column", seen[0])
    for found in seen:
        if found.size >= 8 and (which := _read_off(np.asarray(bounds, dtype=np.float64), found)) is not None:
            warn(
                f"{name}: {which} of this column: bounds are public constants, known without it; what is taken from private "
                "records tells of them, and ε does not hold"
            )
            return


def _read_off(bounds: Floats, found: Floats) -> str | None:
    """What bounds are of a column: its ends, also rounded, its quantiles, its mean and deviations, or values of single rows."""
    inner = bounds[1:-1]
    chosen = any(each == 0 or _digits(each) in range(1, 5) for each in inner.tolist())
    if len(inner) >= LISTED and not chosen and bool((_times(inner, found) == 1).all()):
        return "are values, each of one row,"
    ends = [(float(bounds[0]), float(found.min())), (float(bounds[-1]), float(found.max()))]
    natural = len(np.unique(found)) <= 256 and min(int((found == end).sum()) for _, end in ends) > 1  # pixels, ages, scaled
    if all(bound == end for bound, end in ends) and not all(bound.is_integer() for bound, _ in ends) and not natural:
        return "are the least and the largest value"
    long = [bound for bound, _ in ends if bound != float(f"{bound:.6g}")]
    fine = [*long, *(bound for bound, _ in ends if min(_digits(bound), _parts(bound, bounds)) >= 4 and not _last_of(bound))]
    # Of a single row, and in four digits or more: neither a constant that data were cut at, nor one that is chosen.
    if any(bound in fine and bound == end and int((found == end).sum()) == 1 for bound, end in ends):
        return "have the least or the largest value"
    exact = [(bound, 1e-12 * abs(bound)) for bound in long]
    exact += [(bound, 0.5001 * 10.0 ** _last(bound)) for bound, _ in ends if _digits(bound) >= 5]
    exact = [each for each in exact if int((found == each[0]).sum()) <= 1]  # data may be cut at public numbers
    if exact and np.isfinite(found).all() and _computed(exact, found):
        return "have a quantile, a number of standard deviations or a multiple of the largest value"
    near = [bound if 0 < abs(bound - end) < 10.0 ** _last(bound) else 0.0 for bound, end in ends]
    digits = [min(_digits(each), _parts(each, bounds)) for each in near]  # of years, decades: one
    if max(digits) >= 4 or min(digits) >= 3:
        return "have the least or the largest value, rounded,"
    return None


def _computed(bounds: list[tuple[float, float]], found: Floats) -> bool:
    """Whether bounds of many digits are, but for their rounding, what people compute from a column."""
    mean, low, high = float(found.mean()), float(found.min()), float(found.max())
    known = [*np.quantile(found, SHARES).tolist(), *(times * end for times in FACTORS for end in (low, high)), low - 1, high + 1]
    for ddof, times in itertools.product((0, 1), (1, 2, 2.5, 3, 4, 5, 6)):
        away = times * float(found.std(ddof=ddof))
        known += [mean - away, mean + away]
    first, third = known[SHARES.index(0.25)], known[SHARES.index(0.75)]
    for fence in (1.5 * (third - first), 3.0 * (third - first)):  # Tukey's
        known += [first - fence, third + fence]
    return any(abs(bound - each) <= off for bound, off in bounds for each in known)


def _times(values: Floats, found: Floats) -> NDArray[np.int64]:
    """How many rows have each."""
    ordered = np.sort(found)
    return np.searchsorted(ordered, values, side="right") - np.searchsorted(ordered, values, side="left")


def _digits(value: float) -> int:
    """Significant digits, up to six, where these are all."""
    return len(f"{value:.5e}".partition("e")[0].lstrip("-").replace(".", "").rstrip("0")) if value == float(f"{value:.6g}") else 0


def _parts(value: float, bounds: Floats) -> int:
    """Digits of the number of steps, of the last digit's size, from the first bound to the last."""
    return len(f"{np.ptp(bounds) / 10.0 ** _last(value):.0f}")


def _last_of(value: float) -> bool:
    """Whether a step, of its last digit's size, further is a round number or a power of two: 9999, 23.99, 65535."""
    further = abs(value) + 10.0 ** _last(value)
    return _digits(float(f"{further:.6g}")) <= 2 or math.frexp(further)[0] == 0.5


def _last(value: float) -> float:
    """The power of ten of the last of them; −∞ of what is not finite."""
    return -np.inf if not np.isfinite(value) else int(f"{value:.5e}".partition("e")[2]) - max(_digits(value), 1) + 1


def check_listed(name: str, places: NDArray[np.int64], values: Sequence[Any]) -> None:
    """Warn where a list that is to be public has an order that a column gave it: in which its values come, or how often.

    Args:
        name: of the argument.
        places: of each row, where in the list its value is; −1 if it is not there.
        values: the list.
    """
    size = len(values)
    if size < LISTED or any(list(values) == other for other in _sorted(values)):
        return
    found, first, counts = np.unique(places[places >= 0], return_index=True, return_counts=True)
    if found.size == size and (bool((np.diff(first) > 0).all()) or _falling(counts, first)):
        warn(
            f"{name}: are listed in the order in which the column has them, or by how often, as if they had been taken from it "
            "(unique, value_counts): which values occur is private then, and ε does not hold. List all that may occur, from what "
            "is public; nobody needs to have them"
        )


def _falling(counts: NDArray[np.int64], first: NDArray[np.int64]) -> bool:
    """Whether the most frequent comes first; of equally frequent ones, that which a column has first, as in ``value_counts``."""
    return bool((np.lexsort((first, -counts)) == np.arange(len(counts))).all())


def _sorted(values: Sequence[Any]) -> list[list[Any]]:
    try:
        return [sorted(values), sorted(values, reverse=True)]
    except TypeError:
        return []


def check_most(most: int, largest: int, times: int) -> None:
    """Warn where so many rows of a person count as one alone has, a number that nobody chooses.

    Args:
        most: how many count.
        largest: the most that any person has.
        times: how many persons have as many.
    """
    if most == largest > 5 and times == 1 and most % 5:
        warn(
            "rows_per_person: is what one person has, and all others have fewer: if it was read off the table, noise that is "
            "scaled by it tells of that person, and ε does not hold. Choose a number without looking; further rows do not count"
        )
