"""Where budgets are kept: three tables in a database, an SQLite file or a PostgreSQL server, asked in whole transactions.

* ``privcalc_heads``: one row a data set: how many lines its history has, and the hash of the last; locked by whoever writes;
* ``privcalc_history``: the lines, each with a running hash, as in a ledger; never changed;
* ``privcalc_ledgers``: one row a ledger: how far it had come when it last asked, and the token of who asked.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

__all__ = ["TABLES", "Store", "Transaction"]

TABLES = (
    "CREATE TABLE IF NOT EXISTS privcalc_heads (dataset TEXT PRIMARY KEY, lines BIGINT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS privcalc_history (dataset TEXT NOT NULL, n BIGINT NOT NULL, line TEXT NOT NULL, "
    "PRIMARY KEY (dataset, n))",
    "CREATE TABLE IF NOT EXISTS privcalc_ledgers (dataset TEXT NOT NULL, reservation TEXT NOT NULL, lines BIGINT NOT NULL, "
    "hash TEXT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (dataset, reservation))",
)


class Transaction(Protocol):
    """Statements that count together or not at all."""

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """What a SELECT finds; ``?`` stands for a value."""

    def change(self, statement: str, *values: object) -> int:
        """How many rows it changed."""


class Store(Protocol):
    """A database."""

    url: str
    """Without a password."""

    lock: str
    """What follows a SELECT of a row that is to be locked."""

    def transaction(self, *, create: bool = False) -> contextlib.AbstractContextManager[Transaction]:
        """Around the statements: committed at the end and durable then, or, after an error, as if none had been given.

        Args:
            create: whether the tables, and a file, are made if they are not there.

        Raises:
            Unreachable: if it cannot be asked; at the end: it may be committed, or not.
            PrivcalcError: if there is no store, or it does not keep what it is given.
        """

    def close(self) -> None:
        """Let go of what is open; the next transaction opens it again."""
