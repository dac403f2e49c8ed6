"""A store in a PostgreSQL database, for many machines. Needs psycopg."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import make_conninfo

from privcalc.errors import PrivcalcError, Unreachable

__all__ = ["PostgreSQL"]

SETTINGS = (
    "SET synchronous_commit = on",  # COMMIT returns when it is durable, whatever the server's default
    "SET lock_timeout = '30s'",
    "SET statement_timeout = '60s'",
    "SET idle_in_transaction_session_timeout = '60s'",
)

ALIVE: dict[str, str | int] = {
    "application_name": "privcalc",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30000,
}
"""How soon a connection that died without a word is noticed."""


class PostgreSQL:
    """A database of a server, over one connection in each process."""

    lock = " FOR UPDATE"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = f"postgresql://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._secret = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._process = os.getpid()

    @contextlib.contextmanager
    def transaction(
        self, *, create: bool = False, naming: bool = False
    ) -> Iterator[Callable[[str, tuple[object, ...]], Any]]:
        """One that sees what was committed before each statement (:meth:`privcalc.log.database.Store.transaction`)."""
        try:
            connection = self._connected()
            with connection.transaction():
                if create or naming:  # two at once would collide
                    connection.execute("SELECT pg_advisory_xact_lock(7017271)")
                # Statements are this package's own texts, values are sent apart from them.
                yield lambda statement, values: connection.execute(statement.replace("?", "%s"), values)
        except PrivcalcError:
            raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise Unreachable(f"url = {self.url!r}: the store cannot be asked ({_line(error)})") from error
        except psycopg.errors.UndefinedTable as error:
            raise PrivcalcError(f"url = {self.url!r}: is no store of budgets; Budget.create makes one") from error
        except psycopg.Error as error:
            raise PrivcalcError(f"url = {self.url!r}: {_line(error)}") from error
        except BaseException:
            self.close()  # interrupted: what it would say next may be the answer to something else
            raise

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._process != os.getpid():  # a fork must not talk on its parent's connection, nor end it
            self._inherited, self._connection, self._process = self._connection, None, os.getpid()
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(make_conninfo(self._secret, **ALIVE), autocommit=True)
            for setting in SETTINGS:
                self._connection.execute(setting)
            if self._connection.execute("SHOW fsync").fetchone() != ("on",):
                self.close()
                raise PrivcalcError(
                    f"url = {self.url!r}: its server has fsync off, and would forget charges when power fails"
                )
        return self._connection

    def close(self) -> None:
        """End the connection; the next transaction opens another."""
        if self._connection is not None and self._process == os.getpid():
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None


def _line(error: psycopg.Error) -> str:
    """What a server said, in its first line; a URL, which may hold a password, is not in it."""
    return (str(error).splitlines() or [type(error).__name__])[0]
