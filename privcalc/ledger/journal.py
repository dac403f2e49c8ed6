"""An append-only file of JSON lines, each with a running hash and a number; durable, locked, and readable after a crash.

A line is ``{"n": number, "entry": {…}, "hash": h}`` with h = SHA-256 of the previous line's hash and the canonical text of
number and entry, so that lines that were edited, dropped, doubled or moved do not fit. What a crash can leave is a last line
without its end: it was never acknowledged, and is recognised and left out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from privcalc.errors import PrivcalcError
from privcalc.files import LEDGER, TEXT, named, regular
from privcalc.serial import canonical, parse

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

__all__ = ["Journal", "read"]

START = "0" * 64
"""The hash before the first line."""


@dataclass
class Position:
    """What has been read: lines, the hash of the last, bytes up to its end; and whether half a line follows."""

    lines: int = 0
    hash: str = START
    size: int = 0
    torn: bool = False


def chained(previous: str, number: int, entry: object) -> tuple[str, str]:
    """The hash of a line, and its text."""
    payload = canonical(entry)
    digest = hashlib.sha256(f"{previous}{number}{payload}".encode()).hexdigest()
    return digest, f'{{"n":{number},"entry":{payload},"hash":"{digest}"}}\n'


def entries(lines: Iterator[bytes], name: object, position: Position) -> Iterator[dict[str, Any]]:
    """The entries of a journal's lines, verified; ``position`` is moved along.

    Raises:
        PrivcalcError: naming the line that does not fit.
    """
    for line in lines:
        number = position.lines + 1
        if not line.endswith(b"\n"):
            if number == 1 and line[: len(LEDGER)] != LEDGER[: len(line)]:
                raise PrivcalcError(f"{name}: is not a ledger")  # whatever it is, it must not be cut off
            position.torn = True
            if next(lines, None) is not None:
                raise PrivcalcError(f"{name}: line {number} has no end")
            return
        try:
            record = parse(line, "line")
            entry, found, digest = record["entry"], record["n"], record["hash"]
            expected, text = chained(position.hash, number, entry)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise PrivcalcError(f"{name}: line {number} cannot be read") from error
        if found != number or not isinstance(entry, dict):
            raise PrivcalcError(f"{name}: line {number} is numbered {str(found)[:20]}: lines are missing, doubled or moved")
        if digest != expected or text.encode() != line:
            raise PrivcalcError(f"{name}: line {number} does not fit its hash: it, or a line before it, was changed")
        position.lines, position.hash, position.size = number, digest, position.size + len(line)
        yield entry


@contextlib.contextmanager
def read(path: str | os.PathLike[str]) -> Iterator[tuple[Iterator[dict[str, Any]], Position]]:
    """The verified entries of a file, one at a time, and where the reading stands."""
    position = Position()
    with regular(path).open("rb") as file:
        yield entries(lines_of(file), path, position), position


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; one that is longer than any ledger's is cut, and fits nothing."""
    return iter(functools.partial(file.readline, TEXT + 1), b"")


def hash_of(path: str | os.PathLike[str], number: int) -> str | None:
    """The hash of a line of a file that was verified, counted from 1; None if there is no such line."""
    with regular(path).open("rb") as file:
        return hash_in(lines_of(file), number)


def hash_in(lines: Iterator[bytes], number: int) -> str | None:
    """The hash of one of the lines."""
    line = next(itertools.islice(lines, max(0, number - 1), None), b"")
    return str(parse(line, "line").get("hash")) if number > 0 and line.endswith(b"\n") else None


class Journal:
    """The writing end; without a path, in memory.

    Args:
        path: file to create or to go on with, a regular one (a symbolic link leads to it); None for memory.
        consume: is given the entries that are there, verified, one after another, and must take all of them.

    Raises:
        PrivcalcError: if another writer has the file, it is no regular one, or it does not fit its hashes.
    """

    def __init__(self, path: str | os.PathLike[str] | None, consume: Callable[[Iterator[dict[str, Any]]], None]) -> None:
        self.path = None if path is None else named(path).absolute()
        self.memory: list[bytes] = []
        self.anchor: Callable[[int, str], None] | None = None  # is told each new end, before anything is drawn on it
        self._file: int | None = None
        self._position = Position()
        if self.path is None:
            return
        if fcntl is None:  # pragma: no cover
            raise PrivcalcError("path: ledgers on disk need a system with POSIX file locks; give path=None")
        if self.path.exists():
            regular(self.path)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._release = weakref.finalize(self, os.close, self._file)  # a ledger that is forgotten lets its file go
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with read(self.path) as (lines, self._position):
                consume(lines)
            if self._position.torn:
                os.ftruncate(self._file, self._position.size)
            self._check_file()
            os.fsync(self._file)
            _sync_folder(self.path)
        except BlockingIOError as error:
            self.close()
            raise PrivcalcError(f"path = {str(path)!r}: another writer has this ledger open") from error
        except BaseException:
            self.close()
            raise

    @property
    def torn(self) -> bool:
        """Whether half a line was found, and dropped, when the file was opened."""
        return self._position.torn

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return self._position.lines

    @property
    def hash(self) -> str:
        """The hash of the last line."""
        return self._position.hash

    def hash_of(self, number: int) -> str | None:
        """The hash of a line, counted from 1; None if there is no such line."""
        return hash_in(iter(self.memory), number) if self.path is None else hash_of(self.path, number)

    @property
    def in_place(self) -> bool:
        """Whether its file still holds what was written here, whatever was added since."""
        at = self._position  # of one moment, while others may write
        return self.hash_of(at.lines) == at.hash

    def append(self, *added: dict[str, Any]) -> None:
        """Write entries; when this returns they are on the disk. If it raises, none of them are."""
        if not self.open:
            raise PrivcalcError(f"{self.path}: the ledger is closed")
        number, digest, text = self._position.lines, self._position.hash, ""
        for entry in added:
            number += 1
            digest, line = chained(digest, number, entry)
            if len(line.encode()) > TEXT:
                raise PrivcalcError(
                    f"{self.path}: line {number} would have more than {TEXT:,} bytes, and could not be read again"
                )
            text += line
        data = text.encode()
        if self._file is not None:
            self._check_file()
            try:
                _write(self._file, data)
                os.fsync(self._file)
            except OSError:
                self._undo()
                raise
            except BaseException:  # interrupted: what is on the disk counts, and is read when the ledger is opened again
                self.close()
                raise
        else:
            self.memory.extend(data.splitlines(keepends=True))
        self._position = Position(number, digest, self._position.size + len(data))
        if self.anchor is not None:
            try:
                self.anchor(number, digest)
            except BaseException:  # what is in the file counts, and nothing is drawn on it
                self.close()
                raise

    @contextlib.contextmanager
    def unanchored(self) -> Iterator[None]:
        """For lines on which nothing is drawn."""
        anchor, self.anchor = self.anchor, None
        try:
            yield
        finally:
            self.anchor = anchor

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
        if named is None or not os.path.samestat(mine, named) or mine.st_size != self._position.size:
            self.close()
            raise PrivcalcError(f"path = {str(self.path)!r}: the ledger was moved, removed or written to by something else")

    def _undo(self) -> None:
        """Half a write must not stay in the middle of the file; if it cannot be taken back, nothing more is written."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self._position.size)
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
