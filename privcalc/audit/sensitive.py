"""What depends on the data of a run, and is therefore no guarantee and not for publication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

WARNING = "SENSITIVE: depends on the private data; no guarantee; not for publication"

FULL, FILLED, ESTIMATE = "full pass", "worst-case filled", "checkpoint estimate (no bound)"
"""Grades: every norm of every step was measured; what was not measured was charged at the clip norm; or was guessed."""

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class Sensitive:
    """Realised values: no certificate can be built from them, and nothing lists them by accident."""

    def __iter__(self) -> Iterator[NoReturn]:
        """Refused; also what ``certify`` meets."""
        raise errors.PrivcalcError(
            f"source = {type(self).__name__}: must not be realised losses: they depend on the data and are no guarantee "
            "(proofs/audits.md). Certify the plan of the run, or an IndividualFilter's mechanism; np.asarray gives the numbers"
        )


@dataclass(frozen=True, eq=False, repr=False)
class RealisedValues(Sensitive):
    """One realised number per record, such as ε at a δ. ``np.asarray`` gives the array; printing gives no values.

    Attributes:
        what: what the numbers are.
        values: one per record, shape (records,); upper bounds, unless the grade says "no bound".
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype)

    def __len__(self) -> int:
        return int(self.values.size)

    def __repr__(self) -> str:
        return f"RealisedValues({self.what} of {self.values.size} records, {self.relation}, {self.grade}; {WARNING})"

    def for_record(self, record: Any) -> str:
        """What may be shown to this record alone."""
        value = float(self.values[position(self.ids, self.values.size, record)])
        return (
            f"For record {record} alone: realised {self.what} = {value:.6g} ({self.grade}); worst case {self.worst:.6g}. "
            "It describes the run that happened, is no guarantee, and must not be shown to anyone else."
        )

    def quantiles(self, levels: ArrayLike = QUANTILES) -> Floats:
        """Quantiles over the records, at levels in [0, 1]: as sensitive as the values; release them only through a ledger."""
        levels = np.atleast_1d(errors.floats("levels", levels, "numbers in [0, 1]"))
        if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise errors.PrivcalcError("levels: must be numbers in [0, 1]")
        return np.asarray(np.quantile(self.values, levels), dtype=np.float64)

    def compare(self) -> dict[str, float]:
        """Against the worst case: its value, the median and largest realised one, and the share of records under half of it."""
        values = self.values
        half = float(np.mean(values <= 0.5 * self.worst))
        return {"worst case": self.worst, "median": float(np.median(values)), "largest": float(values.max()), "under half": half}


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


def ratios(name: str, values: ArrayLike, size: int) -> NDArray[np.floating[Any]]:
    """Norms over the clip norm, shape (size,); up to 1 + 1e-6 by rounding.

    Raises:
        PrivcalcError: if the shape is another, or one is negative, NaN or above 1: then it was not clipped.
    """
    array = errors.numbers(name, values)
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    if array.shape != (size,):
        raise errors.PrivcalcError(f"{name}: must have shape ({size},), not {array.shape}")
    if size and not (array.min() >= 0 and array.max() <= 1 + 1e-6):
        raise errors.PrivcalcError(
            f"{name} = [{float(array.min())!r} … {float(array.max())!r}]: must be norms of clipped contributions over the clip "
            "norm, in [0, 1]"
        )
    return array
