"""Logs in a database that many processes write, one for each data set: read on and gone on with in whole transactions.

Here are what all stores do, the tables, a store in one SQLite file, and which store a URL names; and a witness, a small
file that is kept apart from the store and remembers how long a log was.

* ``privcalc_heads``: one row a data set: how many lines its log has, and the hash of the last; locked by whoever
  writes;
* ``privcalc_history``: the lines, as in a file; never changed;
* ``privcalc_ledgers``: one row a ledger: how far it had come when it last asked, and the token of who asked.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from privcalc.errors import Contradiction, PrivcalcError, Unreachable
from privcalc.files import DOCUMENT, named, read_whole, regular, write_whole
from privcalc.log.lines import Log, Position, entries
from privcalc.serial import Field, Json, canonical, check_fields, parse

Found = TypeVar("Found")

TABLES = (
    "CREATE TABLE IF NOT EXISTS privcalc_heads (dataset TEXT PRIMARY KEY, lines BIGINT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS privcalc_history (dataset TEXT NOT NULL, n BIGINT NOT NULL, line TEXT NOT NULL, "
    "PRIMARY KEY (dataset, n))",
    "CREATE TABLE IF NOT EXISTS privcalc_ledgers (dataset TEXT NOT NULL, reservation TEXT NOT NULL, lines BIGINT NOT "
    "NULL, hash TEXT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (dataset, reservation))",
)


Run = Callable[[str, tuple[object, ...]], Any]
"""A statement with its values, for which ``?`` stands; returns a cursor."""


class Transaction:
    """Statements that count together or not at all."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """What a SELECT finds."""
        return list(self._run(statement, values).fetchall())

    def change(self, statement: str, *values: object) -> int:
        """How many rows it changed."""
        return int(self._run(statement, values).rowcount)


class Store(Protocol):
    """A database that keeps logs, by name."""

    url: str
    """Without a password."""

    lock: str
    """What follows a SELECT of a row that is to be locked."""

    def transaction(self, *, create: bool = False, naming: bool = False) -> contextlib.AbstractContextManager[Run]:
        """Around the statements: committed at the end and durable then, or, after an error, as if none had been given.

        Args:
            create: whether a file is made if it is not there, and tables may be.
            naming: whether a data set may get a name; of those who do this, or create, one does it at a time.

        Raises:
            Unreachable: if it cannot be asked; at the end: it may be committed, or not.
            PrivcalcError: if there is no store, or it does not keep what it is given.
        """

    def close(self) -> None:
        """Let go of what is open; the next transaction opens it again."""


class Told(Protocol):
    """What a log's entries are told to, one after another."""

    def apply(self, entry: Json) -> None:
        """One more entry, verified."""


Said = TypeVar("Said", bound=Told)


WITNESS = "privcalc witness"
LARGEST = 1 << 12
"""Bytes of a witness, of which it has some three hundred."""

FIELDS = {
    "format": Field((str,), among=(WITNESS,)),
    "dataset": Field((str,)),
    "lines": Field((int,)),
    "hash": Field((str,)),
}


class Witness:
    """What was seen of one data set's history; the file is made when there is something to remember."""

    def __init__(self, path: str | os.PathLike[str], dataset: str) -> None:
        self.path: Path = named(path, name="witness")
        self.dataset = dataset

    def seen(self) -> tuple[int, str] | None:
        """Lines, and the hash of the last; None if it has seen nothing.

        Raises:
            PrivcalcError: if the file is of another data set, or no witness.
        """
        with contextlib.suppress(FileNotFoundError):
            found = parse(read_whole(self.path, name="witness", limit=LARGEST), f"witness = {str(self.path)!r}")
            check_fields(f"witness = {str(self.path)!r}", found, FIELDS)
            if found["dataset"] != self.dataset:
                raise PrivcalcError(
                    f"witness = {str(self.path)!r}: is of {found['dataset']!r}, not of {self.dataset!r}"
                )
            return found["lines"], found["hash"]
        return None

    def remember(self, lines: int, digest: str) -> None:
        """That the history came this far. Two processes may write at once: the file then has the one or the other."""
        if (self.seen() or (0, ""))[0] < lines:
            self.write(lines, digest)

    def write(self, lines: int, digest: str) -> None:
        """That this is what was seen, whatever it was before."""
        write_whole(
            self.path, canonical({"format": WITNESS, "dataset": self.dataset, "lines": lines, "hash": digest}) + "\n"
        )


class Shared(Log, Generic[Said]):
    """What was read of a data set's log. What this object adds it knows only when it has read it back, committed.

    Args:
        store: the database.
        dataset: whose log it is.
        made: makes what entries are told to, from the first on.
        seer: what remembers how far it had come.

    Attributes:
        history: what the entries were told to.
    """

    def __init__(self, store: Store, dataset: str, made: Callable[[], Said], seer: Witness | None = None) -> None:
        super().__init__()
        self.store, self.dataset, self.history, self._made, self._seer = store, dataset, made(), made, seer
        self.witness = None if seer is None else seer.remember
        self._last: tuple[int, str] | None = None  # the last line that was there, one's own ones included
        self._lock = threading.RLock()
        self._sql: Transaction

    def begin(self, first: Json, check: Callable[[Transaction], None]) -> None:
        """Make the tables, and the first line, unless ``check`` raises.

        Raises:
            PrivcalcError: if there is a log already.
        """
        end, lines = self.next((first,))
        with self.store.transaction(create=True) as run:
            sql = Transaction(run)
            for table in TABLES:
                sql.change(table)
            if sql.rows("SELECT 1 FROM privcalc_heads WHERE dataset = ?", self.dataset):
                raise PrivcalcError(
                    f"dataset = {self.dataset!r}: has a budget at {self.store.url}; there can be one only"
                )
            check(sql)
            sql.change("INSERT INTO privcalc_heads VALUES (?, 1, ?)", self.dataset, end.hash)
            sql.change("INSERT INTO privcalc_history VALUES (?, 1, ?)", self.dataset, lines[0])
        self._remember((1, end.hash))

    def locked(self, act: Callable[[Transaction], Found], *, naming: bool = False) -> Found:
        """Do something as the only one, with the log read up to its end; ``naming``: :meth:`Store.transaction`.

        Everything that is done here comes to the same when it is done twice: so once more, if the connection was lost.

        Raises:
            Unreachable: if the store cannot be asked; what was to be written may be, or not.
            Contradiction: if the log does not go on from what was read before.
        """
        with self._lock:
            try:
                return self._locked(act, naming)
            except Unreachable:
                self.store.close()
                return self._locked(act, naming)

    def _locked(self, act: Callable[[Transaction], Found], naming: bool) -> Found:
        self._added: tuple[int, str] | None = None
        with self.store.transaction(naming=naming) as run:
            self._sql = Transaction(run)
            self._read_on()
            found = act(self._sql)
        self._remember(self._added or (self.position.lines, self.position.hash))
        return found

    def _remember(self, last: tuple[int, str]) -> None:
        self._last = last
        if self.witness is not None:
            self.witness(*last)

    def append(self, entry: Json) -> None:
        """One more line, in a transaction of :meth:`locked`."""
        end, lines = self.next((entry,))
        self._sql.change("INSERT INTO privcalc_history VALUES (?, ?, ?)", self.dataset, end.lines, lines[0])
        self._sql.change(
            "UPDATE privcalc_heads SET lines = ?, hash = ? WHERE dataset = ?", end.lines, end.hash, self.dataset
        )
        self._added = end.lines, end.hash

    def line(self, number: int) -> bytes:
        """From the database, in a transaction of :meth:`locked`."""
        found = self._sql.rows("SELECT line FROM privcalc_history WHERE dataset = ? AND n = ?", self.dataset, number)
        return found[0][0].encode() if found else b""

    def check_seen(self, lines: int, digest: str, who: str) -> None:
        """Refuse a store that has not got what somebody saw in it.

        Raises:
            Contradiction: if it has not.
        """
        if self.hash_of(lines) != digest:
            raise Contradiction(
                f"url = {self.store.url!r}: {who} saw line {lines} of the budget of {self.dataset!r}, which it has "
                f"{'another' if self.line(lines) else 'no more'}: the store is an older copy, or was rewritten; "
                "nothing may be drawn before what it forgot is charged again: "
                "privcalc budget readmit (see the guide on budgets)"
            )

    def _read_on(self) -> None:
        """What others wrote since; the row is locked, so nobody writes meanwhile."""
        sql, at = self._sql, self.position
        head = sql.rows(f"SELECT lines, hash FROM privcalc_heads WHERE dataset = ?{self.store.lock}", self.dataset)
        if not head:
            others = [name for (name,) in sql.rows("SELECT dataset FROM privcalc_heads ORDER BY dataset")]
            raise PrivcalcError(
                f"dataset = {self.dataset!r}: has no budget at {self.store.url}, which has {_listed(others)}; "
                "Budget.create makes one"
            )
        if self._last is not None and self._last[0] > at.lines:
            self.check_seen(*self._last, "this process")
        # Each time: other processes tell it of what this one has not seen.
        if self._seer is not None and (seen := self._seer.seen()) is not None and seen[0] > at.lines:
            self.check_seen(*seen, "the witness")
        if head[0] == (at.lines, at.hash):
            return
        if at.lines:
            self.check_seen(at.lines, at.hash, "this process")
        if sql.rows(
            f"SELECT 1 FROM privcalc_history WHERE dataset = ? AND n > ? AND length(line) > {DOCUMENT}",
            self.dataset,
            at.lines,
        ):
            raise PrivcalcError(f"the budget of {self.dataset!r}: has a line of more than {DOCUMENT:,} characters")
        found = sql.rows(
            "SELECT line, n FROM privcalc_history WHERE dataset = ? AND n > ? ORDER BY n", self.dataset, at.lines
        )
        end = replace(at)
        added = list(entries((line.encode() for line, _ in found), f"the budget of {self.dataset!r}", end))
        if (end.lines, end.hash) != head[0] or end.torn or (found and found[-1][1] != end.lines):
            raise Contradiction(
                f"url = {self.store.url!r}: the history of {self.dataset!r} does not fit its head, or what was read of "
                "it before: the store is another copy, or was rewritten"
            )
        try:
            for entry in added:
                self.history.apply(entry)
        except PrivcalcError:  # nothing is known of it: it is read from its beginning the next time
            self.history, self.position = self._made(), Position()
            raise
        self.position = end


def _listed(names: list[str]) -> str:
    """At most ten data sets, for people."""
    return (
        f"those of {', '.join(map(repr, names[:10]))}{', …' if len(names) > 10 else ''}"
        if names
        else "those of no data set"
    )


SECONDS = 30.0
"""How long a transaction waits for those of others."""


class SQLite:
    """A file; every transaction opens it anew, so that a fork, or a file that took its place, is no danger."""

    lock = ""

    def __init__(self, path: str) -> None:
        if not path or path == ":memory:":
            raise PrivcalcError(f"url = {path!r}: must name a file, which is there when the process is not")
        self.path: Path = named(path, name="url").absolute()
        self.url = f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def transaction(self, *, create: bool = False, naming: bool = False) -> Iterator[Run]:
        """One that has the file alone (:meth:`privcalc.log.database.Store.transaction`)."""
        if self.path.exists():
            regular(self.path, name="url")
        elif not create:
            raise PrivcalcError(f"url = {self.url!r}: there is no such store; Budget.create makes one")
        mode = "rwc" if create else "rw"
        try:
            with contextlib.closing(
                sqlite3.connect(f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=SECONDS, isolation_level=None)
            ) as connection:
                # Durable when COMMIT returns, also the removal of the rollback journal,
                # without which a commit is undone.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA fullfsync = 1")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection.execute
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise PrivcalcError(f"url = {self.url!r}: is no store of budgets; Budget.create makes one") from error
            raise Unreachable(f"url = {self.url!r}: the store cannot be asked ({error})") from error
        except sqlite3.DatabaseError as error:
            raise PrivcalcError(f"url = {self.url!r}: is no store of budgets ({error})") from error

    def close(self) -> None:
        """Close the connection of this thread."""


def connect(url: object) -> Store:
    """The store of a URL; nothing is asked yet.

    Args:
        url: ``sqlite:///FILE``, the path of a file, or ``postgresql://…`` (needs the extra ``postgresql``).

    Raises:
        PrivcalcError: for other databases, or if psycopg is missing.
    """
    text = str(named(url, name="url")) if not isinstance(url, str) else url
    scheme, separator, rest = text.partition("://")
    if scheme in {"postgresql", "postgres"} and separator:
        try:
            from privcalc.log.postgresql import PostgreSQL
        except ImportError as error:
            raise PrivcalcError(f"url: {scheme} needs psycopg; install privcalc[postgresql]") from error
        return PostgreSQL(text)
    if separator and scheme != "sqlite":
        raise PrivcalcError(f"url = {scheme + separator!r}…: must be a file, sqlite:/// with a file, or postgresql://")
    return SQLite(rest.removeprefix("/") if separator else text)
