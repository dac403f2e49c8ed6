"""The one way to read and write files: regular files only, read up to a size, written whole or not at all.

Reading follows symbolic links, and the file they lead to must be regular: a pipe may never end, a device may have no
end. Writing replaces a regular file or makes a new one. It refuses whatever else has the name: directories, devices,
pipes, and symbolic links, which may have been put there by someone else, so that the file that is replaced is the one
that was named.
"""

from __future__ import annotations

import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from privcalc.errors import PrivcalcError

__all__ = ["TEXT", "archive", "folder", "read_whole", "regular", "whole", "write_whole"]

TEXT = 1 << 26
"""Most bytes of a text that is read into memory, such as scores."""

DOCUMENT = 1 << 24
"""Most bytes of one JSON document, or of a log's line.

A certificate has ten thousand, one of a year of releases a few million.
"""

ARCHIVE = 8 << 30
"""Most bytes that an archive of arrays may unpack to: a few megabytes of deflated zeros are gigabytes."""

LEDGER = b'{"n":1,"entry":{'
"""How every ledger begins: a record of what happened, which nothing may take the place of."""

KEPT = {LEDGER: "a ledger", b"SQLite format 3\0": "a database, such as a store of budgets", b"-----BEGIN ": "a key"}
"""How files begin that no other file may replace, because what they hold is nowhere else."""

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}


def named(path: object, *, name: str = "path") -> Path:
    """A path, of a text or of an object that is one.

    Raises:
        PrivcalcError: if it is neither.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise PrivcalcError(f"{name} = {path!r}: must be the name of a file, a text or a path")
    return Path(path)


def regular(path: str | os.PathLike[str], *, name: str = "path", limit: int | None = None) -> Path:
    """A path that may be opened for reading: it leads to a regular file, of at most ``limit`` bytes.

    Args:
        path: of the file; symbolic links are followed.
        name: of the argument, for errors.
        limit: most bytes.

    Raises:
        PrivcalcError: if it leads to something else, or the file is larger.
        OSError: if there is none, or it is out of reach.

    Example:
        >>> regular(os.devnull)
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: path = '/dev/null': must be a regular file, not a device
    """
    found_path = named(path, name=name)
    try:
        found = os.stat(found_path)
    except ValueError as error:  # a null character
        raise PrivcalcError(f"{name} = {os.fspath(path)!r}: must be the name of a file") from error
    if not stat.S_ISREG(found.st_mode):
        raise PrivcalcError(f"{name} = {os.fspath(path)!r}: must be a regular file, not {_kind(found)}")
    if limit is not None and found.st_size > limit:
        raise _too_large(path, name, limit)
    return found_path


def read_whole(path: str | os.PathLike[str], *, name: str = "path", limit: int = TEXT) -> bytes:
    """The bytes of a whole regular file; arguments and errors are those of :func:`regular`."""
    with regular(path, name=name, limit=limit).open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # it grew, or did not say its size
        raise _too_large(path, name, limit)
    return data


def archive(path: str | os.PathLike[str], *, name: str = "path", limit: int = ARCHIVE) -> Path:
    """A path that may be read as a zip archive (``.npz``) of at most ``limit`` bytes when it is unpacked.

    Raises:
        PrivcalcError: as :func:`regular`, or if it says that it unpacks to more.
        OSError, zipfile.BadZipFile: if it cannot be read, or is no archive.
    """
    found = regular(path, name=name)
    with zipfile.ZipFile(found) as file:
        if sum(part.file_size for part in file.infolist()) > limit:  # zipfile unpacks no more of a part than it says
            raise PrivcalcError(
                f"{name} = {os.fspath(path)!r}: must unpack to at most {limit:,} bytes; save it as .npy instead"
            )
    return found


def folder(path: str | os.PathLike[str], *, name: str = "path") -> Path:
    """The path of a folder to write to, which is there or can be made; it is not made here.

    Raises:
        PrivcalcError: if it has no name, or something else has it, or that of a folder it would be in.

    Example:
        >>> folder("", name="--out")
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: --out = '': must be the name of a folder
    """
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise PrivcalcError(f"{name} = {os.fspath(path)!r}: must be the name of a folder")
    found = Path(path)
    there = next(part for part in (found, *found.parents, Path()) if os.path.lexists(part))
    if not there.is_dir():
        raise PrivcalcError(f"{name} = {os.fspath(path)!r}: must be a folder, or a new one; {str(there)!r} is none")
    return found


@contextmanager
def whole(path: str | os.PathLike[str], *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its place at ``path`` when all is written; after an error nothing has changed.

    Args:
        path: where it shall be: the name of a regular file that may be written to, or a new one in a folder that is
            there.
        mode: most permissions that it gets; 0o600 for what is sensitive. A file that is replaced passes on fewer.

    Raises:
        PrivcalcError: if something else than a regular file has the name, or one that must not be lost (``KEPT``).
        OSError: with the path, if it cannot be written.

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
    target = named(path)
    made: str | None = None
    try:
        mode &= _permitted(target)
        name = os.path.join(target.parent, f".privcalc-{secrets.token_hex(8)}")
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        made = name
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException as error:
        if made is not None:
            Path(made).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(target)) from error  # not by the name it had meanwhile
        raise


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text, all of it or nothing; errors are those of :func:`whole`."""
    with whole(path) as file:
        file.write(text.encode("utf-8"))


def _permitted(target: Path) -> int:
    """The permissions of the file that is replaced; all, if there is none.

    Raises:
        PrivcalcError: if the name is not that of a file that may be replaced.
    """
    if str(target) == "-":
        raise PrivcalcError("path = '-': must be the name of a file; standard output has what is printed")
    try:
        found = target.lstat()
    except FileNotFoundError:
        return 0o777
    except ValueError as error:
        raise PrivcalcError(f"path = {str(target)!r}: must be the name of a file") from error
    if not stat.S_ISREG(found.st_mode):
        raise PrivcalcError(f"path = {str(target)!r}: must be a regular file, or a new one, not {_kind(found)}")
    if not found.st_mode & 0o222 or not os.access(target, os.W_OK):  # root may write anything: ask the file, too
        raise PrivcalcError(f"path = {str(target)!r}: must not be write-protected")
    with target.open("rb") as file:
        begin = file.read(max(map(len, KEPT)))
    for start, what in KEPT.items():
        if begin.startswith(start):
            raise PrivcalcError(f"path = {str(target)!r}: must not be {what}, which would be lost")
    return stat.S_IMODE(found.st_mode)


def _kind(found: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _too_large(path: str | os.PathLike[str], name: str, limit: int) -> PrivcalcError:
    return PrivcalcError(f"{name} = {os.fspath(path)!r}: must have at most {limit:,} bytes")
