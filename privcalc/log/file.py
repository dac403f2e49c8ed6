"""A log in a file, or in memory, of one writing process: durable, locked while open, readable after a crash."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import portalocker

from privcalc.errors import PrivcalcError
from privcalc.files import DOCUMENT, named, regular
from privcalc.log.lines import Log, Position, entries
from privcalc.serial import Json

__all__ = ["Journal", "line_of", "lines_of", "read"]

FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

POSIX = os.name == "posix"
"""Elsewhere a lock forbids to read, so that a file beside the log is locked, and names of files need no syncing."""


@contextlib.contextmanager
def read(path: str | os.PathLike[str]) -> Iterator[tuple[Iterator[Json], Position]]:
    """The verified entries of a file, one at a time, and where the reading stands."""
    position = Position()
    with regular(path).open("rb") as file:
        yield entries(lines_of(file), path, position), position


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; one that is longer than any ledger's is cut, and fits nothing."""
    return iter(functools.partial(file.readline, DOCUMENT + 1), b"")


def line_of(path: str | os.PathLike[str], number: int) -> bytes:
    """A line of a file as it is now, counted from 1; empty if there is none."""
    with regular(path).open("rb") as file:
        return next(itertools.islice(lines_of(file), number - 1, None), b"")


class Journal(Log):
    """The writing end; without a path, in memory.

    Args:
        path: file to create or to go on with, a regular one (a symbolic link leads to it); None for memory.
        consume: is given the entries that are there, verified, one after another, and must take all of them.

    Raises:
        PrivcalcError: if another writer has the file, it is no regular one, or it does not fit its hashes.
    """

    def __init__(self, path: str | os.PathLike[str] | None, consume: Callable[[Iterator[Json]], None]) -> None:
        super().__init__()
        self.path = None if path is None else named(path).absolute()
        self.memory: list[bytes] = []
        self._file: int | None = None
        if self.path is None:
            return
        if self.path.exists():
            regular(self.path)
        self._file = os.open(self.path, FLAGS, 0o644)
        files = [self._file]
        self._release = weakref.finalize(self, _close, files)  # a ledger that is forgotten lets its file go
        try:
            if not POSIX:  # pragma: no cover
                files.append(os.open(f"{self.path}.lock", FLAGS, 0o644))
            portalocker.lock(files[-1], portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
            with read(self.path) as (lines, self.position):
                consume(lines)
            if self.position.torn:
                os.ftruncate(self._file, self.position.size)
            self._check_file()
            os.fsync(self._file)
            if POSIX:
                _sync_folder(self.path)
        except portalocker.LockException as error:
            self.close()
            other = isinstance(error, portalocker.AlreadyLocked)
            why = "another writer has this ledger open" if other else f"cannot be locked ({error})"
            raise PrivcalcError(f"path = {str(path)!r}: {why}") from error
        except BaseException:
            self.close()
            raise

    def line(self, number: int) -> bytes:
        """From memory, or from the file of this name as it is now."""
        return b"".join(self.memory[number - 1 : number]) if self.path is None else line_of(self.path, number)

    @property
    def in_place(self) -> bool:
        """Whether its file still holds what was written here, whatever was added since."""
        at = self.position  # of one moment, while others may write
        return self.hash_of(at.lines) == at.hash

    def append(self, *added: Json) -> None:
        """Write entries; when this returns they are on the disk. If it raises, none of them are."""
        if not self.open:
            raise PrivcalcError(f"{self.path}: the ledger is closed")
        end, lines = self.next(added)
        if self._file is None:
            self.memory.extend(map(str.encode, lines))
        else:
            self._check_file()
            try:
                _write(self._file, "".join(lines).encode())
                os.fsync(self._file)
            except OSError:
                self._undo()
                raise
            except BaseException:  # interrupted: what is on the disk counts, and is read when it is opened again
                self.close()
                raise
        self.position = end
        if self.witness is not None:
            try:
                self.witness(end.lines, end.hash)
            except BaseException:  # what is in the file counts, and nothing is drawn on it
                self.close()
                raise

    @contextlib.contextmanager
    def unwitnessed(self) -> Iterator[None]:
        """For lines on which nothing is drawn."""
        witness, self.witness = self.witness, None
        try:
            yield
        finally:
            self.witness = witness

    def _check_file(self) -> None:
        """The lock is on the file, not on its name: neither may have been changed by others.

        Raises:
            PrivcalcError: and nothing more can be written.
        """
        assert self._file is not None
        assert self.path is not None
        mine, named = os.fstat(self._file), None
        with contextlib.suppress(FileNotFoundError):
            named = os.stat(self.path)
        if named is None or not os.path.samestat(mine, named) or mine.st_size != self.position.size:
            self.close()
            raise PrivcalcError(
                f"path = {str(self.path)!r}: the ledger was moved, removed or written to by something else"
            )

    def _undo(self) -> None:
        """Half a write must not stay in the middle of the file; if it cannot be taken back, nothing more is written."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self.position.size)
            os.fsync(self._file)
        except OSError:
            self.close()

    @property
    def open(self) -> bool:
        """Whether it can still be written to."""
        return self.path is None or self._file is not None

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._release()
            self._file = None


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(path: Path) -> None:
    """Make the name of a new file durable."""
    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
