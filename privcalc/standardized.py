"""Columns centred and scaled by what they hold themselves, as by a ``StandardScaler`` fitted on them.

That is exact: to six digits of one standard deviation every column has mean 0 and standard deviation 1, which numbers
scaled by public constants have by coincidence only. One record is then in the values of all others. It is said on the
screen of who has the data, and never written down, for it depends on them (``proofs/ledger.md``, §8).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import warn

LEAST = 20
"""Fewer rows may be a design of experiments, which is balanced by intent."""

CHUNK = 4096
"""Rows that are looked at together, so that there is no second copy of all."""


def is_standardized(values: NDArray[Any]) -> bool:
    """Whether each column that varies has mean 0 and standard deviation 1 (of n or n − 1), by more than two values.

    Args:
        values: of all records, shape (n, …), finite.
    """
    if values.dtype.kind != "f" or len(values) < LEAST:
        return False
    columns = values.reshape(len(values), -1)
    rows, near = len(columns), 1e-4 / max(100.0, len(columns) ** 0.5)
    mean, squares = columns.mean(axis=0, dtype=np.float64), np.zeros(columns.shape[1])
    for start in range(0, rows, CHUNK):
        off = columns[start : start + CHUNK] - mean
        squares += np.einsum("ij,ij->j", off, off)
    varies = columns.min(axis=0) < columns.max(axis=0)
    unit = np.logical_or(*(np.abs(np.sqrt(squares / count) - 1) <= near for count in (rows, rows - 1)))
    if not varies.any() or not ((np.abs(mean) <= near) & unit)[varies].all():
        return False
    return any(np.unique(columns[:CHUNK, each]).size > 2 for each in np.flatnonzero(varies))  # −1 and 1 are codes


def check_standardized(name: str, values: NDArray[Any]) -> None:
    """Warn where columns were scaled by themselves.

    Args:
        name: of the argument.
        values: of all records, shape (n, …), finite.
    """
    if is_standardized(values):
        warn(
            f"{name}: every column has mean 0 and standard deviation 1, as a StandardScaler makes them that is fitted "
            "on these very records: one record is then in the values of all others, and ε does not hold. Scale by "
            "public constants, or fit the scaler on public records"
        )
