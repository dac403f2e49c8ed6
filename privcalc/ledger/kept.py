"""How a ledger spends from the budget of a data set (``privcalc.budget``): what it is promised, and when it asks.

    reserve all that may be drawn  ->  (a line is durable  ->  its end is anchored  ->  draw) …  ->  close  ->  settle

Proof that nothing is drawn that is not charged there: ``proofs/budgets.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from privcalc.errors import PrivcalcError, Unreachable, warn

if TYPE_CHECKING:
    from privcalc.ledger.book import Book
    from privcalc.ledger.terms import Terms
    from privcalc.log.file import Journal
    from privcalc.run import Run
    from privcalc.serial import Json

__all__ = ["Budgeted", "Keeper", "begin", "finish"]


class Keeper(Protocol):
    """What keeps the budget, for one ledger."""

    def entry(self) -> Json:
        """The ledger's line that names its reservation, before there is one."""

    def start(self, entry: Json, bound: Run, journal: Journal, *, charged: bool) -> None:
        """Reserve ``bound`` for the ledger, or go on with what was reserved.

        Whoever had the ledger open can draw no more.

        Args:
            entry: the ledger's line.
            bound: what may be drawn.
            journal: the ledger's lines.
            charged: whether some of it was.

        Raises:
            BudgetExceeded: if there is no room for it.
            Contradiction: if store or ledger are not the ones that knew each other: one was restored, cut, copied or
                rewritten.
            Unreachable: if the store cannot be asked.
        """

    def advance(self, lines: int, digest: str) -> None:
        """Anchor the ledger's new end. What it raises is as for ``start``: then nothing may be drawn."""

    def settle(self, recorded: Run, lines: int, digest: str) -> None:
        """Charge what was recorded in place of what was reserved. Errors are as for ``start``."""


class Budgeted(Protocol):
    """A budget that ledgers can spend from: :class:`privcalc.Budget`."""

    def keeper(self, terms: Terms) -> Keeper:
        """What keeps it for a ledger of these terms.

        Raises:
            PrivcalcError: if relation or unit are others, or the ledger is seeded.
        """


def begin(keeper: Keeper | None, book: Book, journal: Journal) -> None:
    """Reserve before the first draw; from then on no line is drawn on before its end is anchored.

    Raises:
        PrivcalcError: if the ledger was opened with a budget and is gone on with without one, or the other way round.
    """
    if keeper is None:
        if book.budget is not None:
            raise PrivcalcError(
                f"budget = None: this ledger spends from the budget of {book.budget['dataset']!r}: give it again"
            )
        return
    if book.budget is None:
        if book.recorded.entries:
            raise PrivcalcError(
                "budget: this ledger was opened without one, and has drawn; what runs now needs its own ledger"
            )
        entry = keeper.entry()
        journal.append(entry)
        book.apply(entry)
    assert book.budget is not None
    keeper.start(book.budget, book.terms.bound, journal, charged=bool(book.recorded.entries))
    journal.witness = keeper.advance


def finish(keeper: Keeper | None, book: Book, journal: Journal) -> None:
    """Return what a closed ledger did not draw; where that cannot be done now it stays charged, which is said."""
    if keeper is None:
        return
    try:
        keeper.settle(book.recorded, journal.position.lines, journal.position.hash)
    except Unreachable as error:
        warn(
            f"{error}. The ledger is closed; all that was reserved for it stays charged until Budget.settle, or "
            "privcalc budget settle, is given its file"
        )
