"""The file of realised losses: a header and arrays in one archive (``.npz``), with a digest of all of it."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors, files
from privcalc.audit.sensitive import WARNING

__all__ = ["FORMAT", "like", "read", "write"]

FORMAT = "privcalc realised losses 4"
"""1 kept no largest steps, 2 fewer moments, 3 had one rate for all steps: they are refused."""

UNREADABLE = (ValueError, KeyError, TypeError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises for an archive that was cut or edited."""

Arrays = dict[str, NDArray[Any]]


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """All of it or nothing, for the owner alone; the file says that it is sensitive."""
    text = json.dumps({"format": FORMAT, "warning": WARNING, **header})
    with files.whole(path, mode=0o600) as file:
        np.savez(file, header=np.array(text), digest=np.array(_digest(text, arrays)), **arrays)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays.

    Raises:
        PrivcalcError: if the file is something else, of another version's format, or was changed.
    """
    try:
        arrays = _arrays(files.archive(path))
        text, digest = str(arrays.pop("header")), str(arrays.pop("digest", ""))
        header: dict[str, Any] = json.loads(text)
        name = str(header["format"])
        if name != FORMAT and not name.startswith(FORMAT[:-1]):
            raise ValueError("another format")
    except errors.PrivcalcError:
        raise
    except UNREADABLE as error:
        raise errors.PrivcalcError(f"path = {str(path)!r}: must be a file that RealisedLosses.save wrote") from error
    if name != FORMAT:
        raise errors.PrivcalcError(
            f"path = {str(path)!r}: must be of the format {FORMAT!r}, not older or newer like {name!r}: audit again"
        )
    if digest != _digest(text, arrays):
        raise errors.PrivcalcError(f"path = {str(path)!r}: must be as RealisedLosses.save wrote it: it was changed since")
    return header, arrays


def _arrays(path: Path) -> Arrays:
    """Of an archive that is there."""
    with np.load(path, allow_pickle=False) as file:
        try:
            return {name: file[name] for name in file.files}
        except OSError as error:  # its table of contents leads out of it
            raise ValueError(f"{error}") from error


def like(empty: NDArray[Any], saved: NDArray[Any]) -> NDArray[Any]:
    """What was saved, if it fits."""
    if saved.dtype != empty.dtype or saved.shape != empty.shape or not np.isfinite(saved).all():
        raise ValueError(f"an array of {saved.dtype} and shape {saved.shape} in the place of {empty.dtype}, {empty.shape}")
    return saved


def _digest(header: str, arrays: Arrays) -> str:
    """SHA-256 of all that a file holds."""
    found = hashlib.sha256(header.encode())
    for name, value in sorted(arrays.items()):
        found.update(f"{name} {value.dtype} {value.shape} ".encode())
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()
