"""The history of one data set in a store: verified line by line as it is read, and gone on with under its lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from privcalc.budget.history import History
from privcalc.budget.store import Store, Transaction
from privcalc.budget.witness import Witness
from privcalc.errors import Contradiction, PrivcalcError, Unreachable
from privcalc.ledger.journal import Position, chained, entries
from privcalc.serial import Json, parse

__all__ = ["Chain"]

Found = TypeVar("Found")


class Chain:
    """What was read of a history. What this object adds it knows only when it has read it back, committed.

    Args:
        store: the database.
        dataset: whose history it is.
        witness: what remembers how far it had come, apart from the store.
    """

    def __init__(self, store: Store, dataset: str, witness: Witness | None = None) -> None:
        self.store = store
        self.dataset = dataset
        self.history = History()
        self.position = Position()
        self._witness = witness
        self._seen: tuple[int, str] | None = None  # the last line that was there, one's own ones included
        self._lock = threading.RLock()

    def begin(self, first: Json) -> None:
        """Make the tables, and the first line.

        Raises:
            PrivcalcError: if there is a history already.
        """
        digest, line = chained(self.position.hash, 1, first)
        with self.store.transaction(create=True) as sql:
            if sql.rows("SELECT 1 FROM privcalc_heads WHERE dataset = ?", self.dataset):
                raise PrivcalcError(f"dataset = {self.dataset!r}: has a budget at {self.store.url}; there can be one only")
            sql.change("INSERT INTO privcalc_heads VALUES (?, 1, ?)", self.dataset, digest)
            sql.change("INSERT INTO privcalc_history VALUES (?, 1, ?)", self.dataset, line)
        self._remember((1, digest))

    def locked(self, act: Callable[[Transaction], Found]) -> Found:
        """Do something as the only one, with the history read up to its end.

        Everything that is done here comes to the same when it is done twice: so once more, if the connection was lost.

        Raises:
            Unreachable: if the store cannot be asked; what was to be written may be, or not.
            Contradiction: if the history does not go on from what was read before.
        """
        with self._lock:
            try:
                return self._locked(act)
            except Unreachable:
                self.store.close()
                return self._locked(act)

    def _locked(self, act: Callable[[Transaction], Found]) -> Found:
        self._added: tuple[int, str] | None = None
        with self.store.transaction() as sql:
            self._read_on(sql)
            found = act(sql)
        self._remember(self._added or (self.position.lines, self.position.hash))
        return found

    def _remember(self, seen: tuple[int, str]) -> None:
        self._seen = seen
        if self._witness is not None:
            self._witness.remember(*seen)

    def add(self, sql: Transaction, entry: Json) -> None:
        """One more line, in a transaction of :meth:`locked`."""
        number = self.position.lines + 1
        digest, line = chained(self.position.hash, number, entry)
        sql.change("INSERT INTO privcalc_history VALUES (?, ?, ?)", self.dataset, number, line)
        sql.change("UPDATE privcalc_heads SET lines = ?, hash = ? WHERE dataset = ?", number, digest, self.dataset)
        self._added = number, digest

    def has(self, sql: Transaction, lines: int, digest: str) -> bool:
        """Whether the store has a line with this hash at this place."""
        found = sql.rows("SELECT line FROM privcalc_history WHERE dataset = ? AND n = ?", self.dataset, lines)
        return bool(found) and parse(found[0][0], "line").get("hash") == digest

    def check_seen(self, sql: Transaction, lines: int, digest: str, who: str) -> None:
        """Refuse a store that has not got what somebody saw in it.

        Raises:
            Contradiction: if it has not.
        """
        if not self.has(sql, lines, digest):
            found = sql.rows("SELECT 1 FROM privcalc_history WHERE dataset = ? AND n = ?", self.dataset, lines)
            raise Contradiction(
                f"url = {self.store.url!r}: {who} saw line {lines} of the budget of {self.dataset!r}, which it has "
                f"{'no more' if not found else 'another'}: the store is an older copy, or was rewritten; nothing may be drawn "
                "before what it forgot is charged again: privcalc budget readmit (see the guide on budgets)"
            )

    def _read_on(self, sql: Transaction) -> None:
        """What others wrote since; the row is locked, so nobody writes meanwhile."""
        head = sql.rows(f"SELECT lines, hash FROM privcalc_heads WHERE dataset = ?{self.store.lock}", self.dataset)
        if not head:
            others = [name for (name,) in sql.rows("SELECT dataset FROM privcalc_heads ORDER BY dataset")]
            raise PrivcalcError(
                f"dataset = {self.dataset!r}: has no budget at {self.store.url}, which has {_listed(others)}; Budget.create "
                "makes one"
            )
        lines, digest = head[0]
        if self._seen is not None and self._seen[0] > self.position.lines:
            self.check_seen(sql, *self._seen, "this process")
        # Each time: other processes tell it of what this one has not seen.
        if self._witness is not None and (seen := self._witness.seen()) is not None and seen[0] > self.position.lines:
            self.check_seen(sql, *seen, "the witness")
        if (lines, digest) == (self.position.lines, self.position.hash):
            return
        if self.position.lines:
            self.check_seen(sql, self.position.lines, self.position.hash, "this process")
        found = sql.rows(
            "SELECT line, n FROM privcalc_history WHERE dataset = ? AND n > ? ORDER BY n", self.dataset, self.position.lines
        )
        position = replace(self.position)
        added = list(entries((line.encode() for line, _ in found), f"the budget of {self.dataset!r}", position))
        if (position.lines, position.hash) != (lines, digest) or position.torn or (found and found[-1][1] != lines):
            raise Contradiction(
                f"url = {self.store.url!r}: the history of {self.dataset!r} does not fit its head, or what was read of "
                "it before: the store is another copy, or was rewritten"
            )
        try:
            for entry in added:
                self.history.apply(entry)
        except PrivcalcError:  # nothing is known of it: it is read from its beginning the next time
            self.history, self.position = History(), Position()
            raise
        self.position = position


def _listed(names: list[str]) -> str:
    """At most ten data sets, for people."""
    return f"those of {', '.join(map(repr, names[:10]))}{', …' if len(names) > 10 else ''}" if names else "those of no data set"
