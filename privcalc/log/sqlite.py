"""A store in one SQLite file, for the processes of one machine; and which store a URL names."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privcalc.errors import PrivcalcError, Unreachable
from privcalc.files import named, regular
from privcalc.log.database import TABLES, Store

__all__ = ["SQLite", "connect"]

SECONDS = 30.0
"""How long a transaction waits for those of others."""


class _Statements:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        return self._connection.execute(statement, values).rowcount


class SQLite:
    """A file; every transaction opens it anew, so that a fork, or a file that took its place, is no danger."""

    lock = ""

    def __init__(self, path: str) -> None:
        if not path or path == ":memory:":
            raise PrivcalcError(f"url = {path!r}: must name a file, which is there when the process is not")
        self.path: Path = named(path, name="url").absolute()
        self.url = f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def transaction(self, *, create: bool = False) -> Iterator[_Statements]:
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
                    if create:
                        for table in TABLES:
                            connection.execute(table)
                    yield _Statements(connection)
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
        """Nothing stays open."""


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
