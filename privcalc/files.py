"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole(path: str | os.PathLike[str], *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its place at ``path`` when all is written; after an error nothing has changed.

    Args:
        path: where it shall be.
        mode: permissions; 0o600 for what is sensitive.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "found.txt"
        >>> with whole(target) as file:
        ...     _ = file.write(b"all of it")
        ...     print(target.exists())
        False
        >>> target.read_text()
        'all of it'
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.resolve().parent, prefix=f".{target.name}.")
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text, all of it or nothing."""
    with whole(path) as file:
        file.write(text.encode("utf-8"))
