"""Work in parts: here, in several processes or on a cluster. A part is a file, written whole, and never computed twice.

What a part is, and so all bytes, depends on the question alone and not on who computes it: an engine only says where a
part is computed next. Whoever dies loses what it had begun.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privcalc import errors, files

__all__ = ["ENGINES", "LOCAL", "Engine", "Parts", "digest", "extra", "read_arrays", "write_arrays"]

ENGINES = ("local", "processes", "dask")
"""One part after another in this process; in processes of this machine; on the workers of a dask cluster."""

DEATHS = 3
"""So many times in a row processes may die before any of them has finished a part."""

SELDOM = 1.0
"""Seconds between two words of progress."""

UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy raises for an archive that was cut or edited."""

Arrays = dict[str, NDArray[Any]]
Work = Callable[[int], Arrays]
Progress = Callable[[str], None]
Item = TypeVar("Item")
Found = TypeVar("Found")


def digest(header: str, arrays: Arrays) -> str:
    """SHA-256 of all that a file holds."""
    found = hashlib.sha256(header.encode())
    for name, value in sorted(arrays.items()):
        found.update(f"{name} {value.dtype} {value.shape} ".encode())
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def write_arrays(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any], *, mode: int = 0o666
) -> None:
    """A header and arrays in one archive (``.npz``), with a digest of all of it; all of it or nothing."""
    text = json.dumps(header)
    with files.whole(path, mode=mode) as file:
        np.savez(file, header=np.array(text), digest=np.array(digest(text, arrays)), **arrays)


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays, bool]:
    """Header, arrays, and whether they are as they were written.

    Raises:
        PrivcalcError, OSError, or one of UNREADABLE: if it is no such archive.
    """
    with np.load(files.archive(path), allow_pickle=False) as file:
        try:
            arrays: Arrays = {name: file[name] for name in file.files}
        except OSError as error:  # its table of contents leads out of it
            raise ValueError(f"{error}") from error
    text, found = str(arrays.pop("header")), str(arrays.pop("digest", ""))
    header = json.loads(text)
    if not isinstance(header, dict):
        raise TypeError("header")
    return header, arrays, found == digest(text, arrays)


@dataclass(frozen=True)
class Engine:
    """Where parts are computed.

    Args:
        name: "local", "processes" or "dask" (the extra ``dask``).
        workers: how many processes; one per core if None. Not for "local", nor for a cluster that has its own.
        scheduler: address of a dask cluster, such as "tcp://host:8786"; its workers reach the same files by the same
            names. None: processes of this machine.

    Example:
        >>> list(Engine().each(len, ["one", "three"]))
        [3, 5]
    """

    name: str = "local"
    workers: int | None = None
    scheduler: str | None = None

    def __post_init__(self) -> None:
        errors.one_of("engine", self.name, *ENGINES)
        if self.workers is not None:
            errors.count("workers", self.workers, least=1)
        if self.name == "local" and self.workers not in (None, 1):
            raise errors.PrivcalcError(
                f"workers = {self.workers!r}: must not be given to the engine local, which is one process"
            )
        if self.scheduler is not None and (self.name != "dask" or self.workers is not None):
            raise errors.PrivcalcError(
                f"scheduler = {self.scheduler!r}: must be given to the engine dask alone, without workers"
            )

    def each(self, task: Callable[[Item], Found], items: list[Item]) -> Iterator[Found]:
        """What the task says of each item, in the order in which they are finished.

        Items whose worker dies are done again.

        Raises:
            PrivcalcError: if workers die again and again, or dask is not installed. What a task raises ends it.
        """
        if self.name == "local" or not items:
            return map(task, items)
        return (self._processes if self.name == "processes" else self._dask)(task, items)

    def _processes(self, task: Callable[[Item], Found], items: list[Item]) -> Iterator[Found]:
        from concurrent.futures import ProcessPoolExecutor, as_completed  # slow to import
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        left, deaths = dict(enumerate(items)), 0
        while left:
            with ProcessPoolExecutor(min(self.workers or _cores(), len(left)), mp_context=get_context("spawn")) as pool:
                asked = {pool.submit(task, item): number for number, item in left.items()}
                try:
                    for future in as_completed(asked):
                        found = future.result()
                        del left[asked[future]]
                        deaths = 0
                        yield found
                except BrokenProcessPool:
                    deaths += 1
                    if deaths > DEATHS:
                        raise errors.PrivcalcError(
                            f"engine = {self.name!r}: its processes were killed {deaths} times, perhaps for want of "
                            "memory: take fewer workers; finished parts are kept"
                        ) from None
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise

    def _dask(self, task: Callable[[Item], Found], items: list[Item]) -> Iterator[Found]:
        distributed, place = extra("distributed", "dask"), self.scheduler
        with ExitStack() as stack:
            if place is None:
                workers = min(self.workers or _cores(), len(items))
                own = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
                place = stack.enter_context(own)
            try:
                client = stack.enter_context(distributed.Client(place, set_as_default=False))
            except (OSError, ValueError) as error:
                raise errors.PrivcalcError(
                    f"scheduler = {place!r}: must be the address of a dask cluster: {error}"
                ) from error
            try:
                for future in distributed.as_completed(client.map(task, items, pure=False), loop=client.loop):
                    yield future.result()
            except distributed.KilledWorker as error:
                raise errors.PrivcalcError(
                    "engine = 'dask': workers died over one part again and again, perhaps for want of memory; finished "
                    "parts are kept"
                ) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def extra(name: str, of: str) -> Any:
    """A module of an optional extra.

    Raises:
        PrivcalcError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise errors.PrivcalcError(f"{name.partition('.')[0]}: is not installed; pip install -e '.[{of}]'") from error


LOCAL = Engine()


@dataclass(frozen=True)
class Parts:
    """Parts of a work in a folder.

    Args:
        work: the arrays of a part, from its number alone; it must be one that processes can be given (picklable).
        count: how many parts.
        folder: where their files are.
        key: all that their numbers depend on, besides the number of the part: parts with another key are not used.
        mode: permissions of their files.
    """

    work: Work
    count: int
    folder: Path
    key: str
    mode: int = 0o666

    def path(self, number: int) -> Path:
        """The file of a part."""
        return self.folder / f"{hashlib.sha256(self.key.encode()).hexdigest()[:16]}-{number:06}.npz"

    def read(self, number: int) -> Arrays:
        """What a part has.

        Raises:
            PrivcalcError: if its file is not whole, or is of another work.
            OSError: if there is none.
        """
        path = self.path(number)
        try:
            header, arrays, whole = read_arrays(path)
        except UNREADABLE as error:
            raise errors.PrivcalcError(f"path = {str(path)!r}: must be a part as it was written: {error}") from error
        if not whole or header != {"key": self.key, "part": number}:
            raise errors.PrivcalcError(f"path = {str(path)!r}: must be a part as it was written; it was changed since")
        return arrays

    def has(self, number: int) -> bool:
        """Whether a part is there. One that was cut or changed is not, and is warned of."""
        try:
            self.read(number)
        except FileNotFoundError:
            return False
        except errors.PrivcalcError as error:
            errors.warn(f"{error}; it is computed again")
            return False
        return True

    def __call__(self, number: int) -> int:
        """Compute a part if it is not there; the bytes that this process had in memory at most, so far."""
        if not self.has(number):
            write_arrays(self.path(number), {"key": self.key, "part": number}, self.work(number), mode=self.mode)
        return peak()

    def compute(self, engine: Engine, progress: Progress | None = None) -> Iterator[Arrays]:
        """All parts, in order, when all are there; ``progress`` is told how many are."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tell, start, told, most = progress or (lambda _: None), time.monotonic(), 0.0, 0
        left = [number for number in range(self.count) if not self.has(number)]
        done = self.count - len(left)
        if done:
            tell(f"{done} of {self.count} parts were there")
        for found in engine.each(self, left):
            done, most, now = done + 1, max(most, found), time.monotonic()
            if now - told >= SELDOM or done == self.count:
                told = now
                tell(f"{done} of {self.count} parts, {now - start:.0f} s, at most {most / 1e6:.0f} MB per worker")
        return (self.read(number) for number in range(self.count))

    def remove(self) -> None:
        """The files of these parts; the folder, if it is empty then."""
        for number in range(self.count):
            self.path(number).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


def peak() -> int:
    """Most bytes that this process had in memory; 0 where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
