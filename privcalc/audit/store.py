"""The file of realised losses: a header and arrays in one archive (``.npz``), with a digest of all of it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors, parts
from privcalc.audit.sensitive import WARNING

__all__ = ["FORMAT", "like", "read", "write"]

FORMAT = "privcalc realised losses 4"
"""1 kept no largest steps, 2 fewer moments, 3 had one rate for all steps: they are refused."""

Arrays = dict[str, NDArray[Any]]


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """All of it or nothing, for the owner alone; the file says that it is sensitive."""
    parts.write_arrays(path, {"format": FORMAT, "warning": WARNING, **header}, arrays, mode=0o600)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays.

    Raises:
        PrivcalcError: if the file is something else, of another version's format, or was changed.
    """
    try:
        header, arrays, whole = parts.read_arrays(path)
        name = str(header["format"])
        if name != FORMAT and not name.startswith(FORMAT[:-1]):
            raise ValueError("another format")
    except errors.PrivcalcError:
        raise
    except parts.UNREADABLE as error:
        raise errors.PrivcalcError(f"path = {str(path)!r}: must be a file that RealisedLosses.save wrote") from error
    if name != FORMAT:
        raise errors.PrivcalcError(
            f"path = {str(path)!r}: must be of the format {FORMAT!r}, not older or newer like {name!r}: audit again"
        )
    if not whole:
        raise errors.PrivcalcError(
            f"path = {str(path)!r}: must be as RealisedLosses.save wrote it: it was changed since"
        )
    return header, arrays


def like(empty: NDArray[Any], saved: NDArray[Any]) -> NDArray[Any]:
    """What was saved, if it fits."""
    if saved.dtype != empty.dtype or saved.shape != empty.shape or not np.isfinite(saved).all():
        raise ValueError(
            f"an array of {saved.dtype} and shape {saved.shape} in the place of {empty.dtype}, {empty.shape}"
        )
    return saved
