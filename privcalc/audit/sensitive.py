"""What depends on the data of a run, and is therefore no guarantee and not for publication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.notebook import Card
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

WARNING = "SENSITIVE: depends on the private data; no guarantee; not for publication"

FULL, FILLED, ESTIMATE = "full pass", "worst-case filled", "checkpoint estimate (no bound)"
"""Grades: every norm of every step was measured; what was not measured was charged at the clip norm; or was guessed."""

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class Sensitive:
    """Realised values: no certificate can be built from them, and nothing lists them by accident."""

    def __iter__(self) -> Iterator[NoReturn]:
        """Refused; what ``list`` and ``max`` meet, and ``certify``."""
        raise errors.PrivcalcError(
            f"{type(self).__name__}: must not be listed or certified: realised losses depend on the data and are no "
            "guarantee (proofs/audits.md). Certify the plan of the run, or an IndividualFilter's mechanism. For the "
            "data holder alone: np.max(losses.epsilon(delta)) is the largest, and .values are all"
        )


class SensitiveArray(NDArray[Any]):
    """An array of numbers that says that it is sensitive, wherever it is printed or written as text.

    Its parts do so, too; else it is like all arrays.
    """

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n# {WARNING}"

    def __str__(self) -> str:
        return f"{super().__str__()}\n# {WARNING}"

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions of it."""
        return super().__array_function__(func, types, *_said(func, args, kwargs))


def _said(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments, with the warning in what is written; refused where a file has no place for it."""
    if func is np.savetxt:
        return args, {**kwargs, "header": f"{WARNING}\n{kwargs.get('header', '')}".strip()}
    if func in (np.save, np.savez, np.savez_compressed):
        raise errors.PrivcalcError(
            f"{func.__name__}: must not be used for realised losses, as its file cannot say what they are: {WARNING}. "
            "RealisedLosses.save writes one that does; np.asarray(values) are the bare numbers"
        )
    return args, kwargs


@dataclass(frozen=True, eq=False, repr=False)
class RealisedValues(Sensitive, Card):
    """One realised number per record, such as ε at a δ.

    Printing gives no values; NumPy's functions take it as an array.

    Attributes:
        what: what the numbers are.
        values: one per record, shape (records,); upper bounds, unless the grade says "no bound". Where this array or a
            part of it is printed, or written as text, it says that it is no release; ``np.asarray`` gives the bare
            numbers.
        worst: the same number for a record that always has the clip norm: what the accountant says of the run.
        grade: "full pass", "worst-case filled" or "checkpoint estimate (no bound)".
        ids: the records' names; their positions if None.
        relation: the neighbouring relation.
    """

    what: str
    values: Floats
    worst: float
    grade: str
    ids: NDArray[Any] | None = None
    relation: Relation = field(default=ADD_OR_REMOVE_ONE)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values).view(SensitiveArray))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions of it."""

        def plain(value: Any) -> Any:
            return value.values if isinstance(value, RealisedValues) else value

        args, kwargs = _said(func, args, kwargs)
        return func(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    if not TYPE_CHECKING:  # a checker would take it to have all attributes

        def __getattr__(self, name: str) -> NoReturn:
            """What it has not, such as an array's methods."""
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: NumPy's functions take it, such as np.max(values), and "
                f"np.asarray(values) are the bare numbers. {WARNING}"
            )

    def __len__(self) -> int:
        return int(self.values.size)

    def _card(self) -> tuple[str, dict[str, object]]:
        return f"realised {self.what}", {
            "records": self.values.size,
            "neighbours by": self.relation,
            "grade": self.grade,
            "warning": WARNING,
        }

    def __repr__(self) -> str:
        return f"RealisedValues({self.what} of {self.values.size} records, {self.relation}, {self.grade}; {WARNING})"

    def for_record(self, record: Any) -> str:
        """What may be shown to this record alone."""
        value = float(self.values[position(self.ids, self.values.size, record)])
        return (
            f"For record {record} alone: realised {self.what} = {value:.6g} ({self.grade}); worst case "
            f"{self.worst:.6g}. It describes the run that happened, is no guarantee, "
            "and must not be shown to anyone else."
        )

    def quantiles(self, levels: ArrayLike = QUANTILES) -> Floats:
        """Quantiles over the records, at levels in [0, 1].

        They are as sensitive as the values: release them only through a ledger.
        """
        levels = np.atleast_1d(errors.floats("levels", levels, "numbers in [0, 1]"))
        if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise errors.PrivcalcError("levels: must be numbers in [0, 1]")
        found: Floats = np.quantile(self.values, levels).view(SensitiveArray)
        return found

    def compare(self) -> dict[str, float]:
        """Compare with the worst case: its value, the median and largest one, and the share under half of it."""
        values = self.values
        half = float(np.mean(values <= 0.5 * self.worst))
        return {
            "worst case": self.worst,
            "median": float(np.median(values)),
            "largest": float(values.max()),
            "under half": half,
        }


def position(ids: NDArray[Any] | None, records: int, record: Any) -> int:
    """Where a record is."""
    if ids is None:
        index = errors.count("record", record)
        if index >= records:
            raise errors.PrivcalcError(f"record = {record!r}: must be below {records}")
        return index
    found = np.flatnonzero(ids == record)
    if found.size != 1:
        raise errors.PrivcalcError(f"record = {record!r}: must be one of the ids")
    return int(found[0])


def ratios(name: str, values: ArrayLike, size: int, clip_norm: float | None = None) -> NDArray[np.floating[Any]]:
    """Norms over the clip norm, shape (size,); those of clipped contributions up to 1 + 1e-6 by rounding.

    Args:
        name: of the argument.
        values: norms, if there is a clip norm, which they are cut off at; else norms over the clip norm.
        size: how many.
        clip_norm: C > 0.

    Raises:
        PrivcalcError: if the shape is another, or one is negative, NaN or above 1 without a clip norm.
    """
    array = errors.numbers(name, values)
    if array.dtype.kind == "b":
        raise errors.PrivcalcError(f"{name}: must be norms, not truth values: a False would be charged as nothing")
    if array.dtype.kind in "iu" and array.dtype.itemsize < 4:
        raise errors.PrivcalcError(
            f"{name}: must not be of type {array.dtype}, which wraps around (300 becomes 44 in 8 bits) and has no "
            "fractions, so that ε would be far too small: compute norms in 32 or 64 bit floating point"
        )
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    if array.shape != (size,):
        raise errors.PrivcalcError(f"{name}: must have shape ({size},), not {array.shape}")
    if clip_norm is not None:
        bound = errors.scale("clip_norm", clip_norm)
        if size and not array.min() >= 0:
            raise errors.PrivcalcError(f"{name} = [{float(array.min())!r} …]: must be norms, >= 0")
        with np.errstate(over="ignore"):
            cut = np.minimum(array.astype(np.float64) / bound, 1.0)
        return np.asarray(np.where(cut > 0, np.nextafter(cut, 2.0), np.where(array > 0, 5e-324, 0.0)), dtype=np.float64)
    if size and not (array.min() >= 0 and array.max() <= 1 + 1e-6):
        raise errors.PrivcalcError(
            f"{name} = [{float(array.min())!r} … {float(array.max())!r}]: must be norms of clipped contributions over "
            "the clip norm, in [0, 1]; for norms as they are give clip_norm (--clip-norm) where there is one, "
            "or divide them by it"
        )
    return array
