"""What one ledger asks of a budget: to reserve, to anchor each new end, to settle (``privcalc.ledger.kept``)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from privcalc.budget.history import Chain, charge_line, check_part
from privcalc.errors import Contradiction, PrivcalcError
from privcalc.ledger.terms import Terms
from privcalc.log.database import Transaction
from privcalc.log.file import Journal
from privcalc.run import Run
from privcalc.serial import Json

__all__ = ["Reserved"]

ROW = "SELECT lines, hash, token FROM privcalc_ledgers WHERE dataset = ? AND reservation = ?"


def check_open(chain: Chain, name: str) -> None:
    """Refuse a reservation on which nothing is drawn any more, and which stays charged.

    Raises:
        Contradiction: if it is one.
    """
    found = chain.history.reservations.get(name)
    if found is not None and found.by != "ledger":
        raise Contradiction(
            f"reservation = {name!r}: its ledger was open, or was forgotten, when a restored store was readmitted; it "
            "stays charged, and nothing may be drawn on it: give what runs on a new ledger"
        )


class Reserved:
    """One ledger's side of a budget.

    Of all processes that have the ledger, or a copy of it, the last that opened it may draw.

    Args:
        chain: the budget's history.
        terms: the ledger's.
        team: whose it is.
    """

    def __init__(self, chain: Chain, terms: Terms, team: str | None = None) -> None:
        self._chain = chain
        self._terms = terms
        self._team = team
        self._name = ""
        self._tokens: set[str] = set()  # a transaction that was lost may have put any of them there

    def entry(self) -> Json:
        """The ledger's line: a reservation of a new name, and how far the budget had come."""
        position = self._chain.locked(lambda _: self._chain.position)
        return {
            "type": "budget",
            "dataset": self._chain.dataset,
            "reservation": secrets.token_hex(16),
            "lines": position.lines,
            "hash": position.hash,
        }

    def start(self, entry: Json, bound: Run, journal: Journal, *, charged: bool) -> None:
        """Reserve, or take over what is reserved (:meth:`privcalc.ledger.kept.Keeper.start`)."""
        if entry["dataset"] != self._chain.dataset:
            raise PrivcalcError(
                f"budget: this ledger spends from that of {entry['dataset']!r}, not of {self._chain.dataset!r}"
            )
        self._name = entry["reservation"]
        token = self._token()

        def act(sql: Transaction) -> None:
            check_open(self._chain, self._name)
            self._chain.check_seen(entry["lines"], entry["hash"], f"the ledger {journal.path}")
            if not anchored(self._chain, sql, self._name, journal.path, journal.hash_of):
                if charged:
                    raise Contradiction(
                        f"path = {str(journal.path)!r}: the budget of {self._chain.dataset!r} does not know this "
                        "ledger, which has drawn: the store is an older copy, or was rewritten"
                    )
                self._chain.history.check(bound, self._team)
                kind = "plan" if self._terms.cap is None else "cap"
                line = charge_line("reserve", self._name, bound, self._team, by="ledger", bound=kind, label=None)
                self._chain.append(line)
            elif self._chain.history.reservations[self._name].run != bound:
                raise Contradiction(f"path = {str(journal.path)!r}: was settled, or reserved something else")
            self._put(sql, journal.position.lines, journal.position.hash, token)

        self._chain.locked(act)

    def advance(self, lines: int, digest: str) -> None:
        """Anchor a new end (:meth:`privcalc.ledger.kept.Keeper.advance`)."""
        token = self._token()

        def act(sql: Transaction) -> None:
            self._check_mine(sql)
            self._put(sql, lines, digest, token)

        self._chain.locked(act)
        self._tokens = {token}

    def settle(self, recorded: Run, lines: int, digest: str) -> None:
        """Charge what was recorded (:meth:`privcalc.ledger.kept.Keeper.settle`)."""

        def act(sql: Transaction) -> None:
            if not settled(self._chain, self._name, digest):
                self._check_mine(sql)
                settle(self._chain, sql, self._name, recorded, lines, digest)

        self._chain.locked(act)

    def _token(self) -> str:
        found = secrets.token_hex(16)
        self._tokens.add(found)
        return found

    def _check_mine(self, sql: Transaction) -> None:
        check_open(self._chain, self._name)
        row = sql.rows(ROW, self._chain.dataset, self._name)
        if not row or row[0][2] not in self._tokens:
            raise Contradiction(
                f"reservation = {self._name!r}: the ledger, or a copy of it, was opened elsewhere since; "
                "this one may not draw "
                "on the same reservation" if row else
                f"reservation = {self._name!r}: is not known any more: the store is an older copy, or was rewritten"
            )  # fmt: skip

    def _put(self, sql: Transaction, lines: int, digest: str, token: str) -> None:
        sql.change(
            "INSERT INTO privcalc_ledgers VALUES (?, ?, ?, ?, ?) ON CONFLICT (dataset, reservation) "
            "DO UPDATE SET lines = excluded.lines, hash = excluded.hash, token = excluded.token",
            *(self._chain.dataset, self._name, lines, digest, token),
        )


def anchored(chain: Chain, sql: Transaction, name: str, path: object, hash_of: Callable[[int], str | None]) -> bool:
    """Whether a ledger has a reservation; refuses one that has not got the line that it had when it last asked.

    Raises:
        Contradiction: if it has not, or the store's tables do not fit each other.
    """
    row = sql.rows(ROW, chain.dataset, name)
    if bool(row) != (name in chain.history.reservations):
        raise Contradiction(f"reservation = {name!r}: history and anchors do not fit: the store was changed")
    if not row:
        return False
    lines, digest, _ = row[0]
    found = hash_of(lines)
    if found != digest:
        raise Contradiction(
            f"path = {str(path)!r}: had a line {lines} when it last asked the budget of {chain.dataset!r}, and has "
            f"{'none' if found is None else 'another'} now: it is an older copy, or was cut or rewritten"
        )
    return True


def settled(chain: Chain, name: str, digest: str) -> bool:
    """Whether a ledger that ended so was settled already.

    Raises:
        Contradiction: if it ended otherwise then, or is not known.
    """
    check_open(chain, name)
    found = chain.history.reservations.get(name)
    if found is None:
        raise Contradiction(f"reservation = {name!r}: is not known: the store is an older copy, or was rewritten")
    if found.settled not in (None, digest):
        raise Contradiction(f"reservation = {name!r}: was settled by a ledger that ended otherwise")
    return found.settled is not None


def settle(chain: Chain, sql: Transaction, name: str, recorded: Run, lines: int, digest: str) -> None:
    """Put what a closed ledger recorded in the place of what was reserved for it, where that is less.

    Raises:
        Contradiction: if it recorded more than its plan.
    """
    found = chain.history.reservations[name]
    run = recorded if found.bound == "plan" or chain.history.pool.cheaper(recorded, found.run) else found.run
    if found.bound == "plan":
        check_part(run, found.run)
    chain.append(charge_line("settle", name, run, lines=lines, hash=digest))
    sql.change(
        "UPDATE privcalc_ledgers SET lines = ?, hash = ?, token = '' WHERE dataset = ? AND reservation = ?",
        *(lines, digest, chain.dataset, name),
    )
