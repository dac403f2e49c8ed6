"""What the steps of a run have left, by digests, so that whoever goes on in another process begins with that and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from privcalc.ledger.account import Account
from privcalc.ledger.terms import check_mark

__all__ = ["Marks"]


class Marks(Account):
    """What :class:`Ledger` remembers beside charges; nothing is drawn on it."""

    def mark(self, digests: Iterable[str]) -> None:
        """Write digests down that are not there. The file is shown to others, so what they are of must be public or released.

        They are written before this returns, but not synced: of a process that is killed they stay, of a machine that loses its
        power the last may be lost. A ledger that is closed or paused writes nothing.

        Args:
            digests: each a word, such as "weights", a colon and 32 hexadecimal digits.

        Raises:
            PrivcalcError: if one is none.
        """
        new = [check_mark(each) for each in dict.fromkeys(digests) if each not in self._book.marks]
        self._check_process()
        with self._lock:
            if not new or self._book.closed or not self._journal.open:
                return
            entry = {"type": "marks", "digests": new}
            if self._journal.path is not None:
                with self._journal.unanchored():
                    self._journal.append(entry, durable=False)
            self._book.apply(entry)

    @property
    def ended(self) -> bool:
        """Whether it is closed, or let go."""
        return self._book.closed or not self._journal.open

    @property
    def marks(self) -> Collection[str]:
        """All of them, also of earlier processes, in their order."""
        return self._book.marks.keys()
