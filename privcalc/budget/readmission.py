"""After a backup of a store was restored: what it forgot is charged again, with a reason that stays in its history.

A store that lacks a line that somebody saw is refused, by its witness, its ledgers and running processes: nothing may
be drawn before an operator said what happened. What ledgers are known to have reserved is charged for good here, and no
ledger that was open goes on: its file may be older than what was drawn on it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from privcalc.budget.budget import Budget
from privcalc.budget.history import chain_of, charge_line, known_as, readmit_line
from privcalc.errors import PrivcalcError
from privcalc.ledger.book import Book
from privcalc.log.database import Transaction, Witness
from privcalc.log.file import read
from privcalc.log.lines import check_label
from privcalc.run import Run

__all__ = ["readmit"]


def readmit(
    url: str | os.PathLike[str],
    *,
    dataset: str,
    reason: str,
    witness: str | os.PathLike[str] | None = None,
    ledgers: Sequence[str | os.PathLike[str]] = (),
) -> Budget:
    """Let a store be used again that was found to have forgotten something.

    Charged for good, whole, is each ledger that is named and that the store does not know, also beyond the cap, which
    then refuses everything; and each that is open in the store. On none of them anything is drawn any more: give what
    runs on new ledgers. What ran without a ledger, or on one whose file is lost, is to be charged by
    :meth:`Budget.reserve` afterwards.

    Args:
        url: as of :class:`Budget`.
        dataset: the name of the data set.
        reason: who restored what and why, 1 to 100 printable characters: a line of the history.
        witness: the file that saw more than the store has; from now on it has seen what is there. Each witness needs
            this once.
        ledgers: files of ledgers that the store forgot.

    Returns:
        The budget.

    Raises:
        PrivcalcError: if nothing is missing, the budget was made with a witness and none is given, or a file is no
            ledger of it, or of one that could never have been reserved.
        Contradiction: if the history does not fit its hashes, or a ledger does not.
        Unreachable: if the store cannot be asked; call it again.

    Example:
        >>> import shutil, tempfile
        >>> import privcalc as pc
        >>> from privcalc.budget import readmit
        >>> folder = tempfile.mkdtemp()
        >>> url, seen = folder + "/budget.db", folder + "/witness"
        >>> budget = pc.Budget.create(url, dataset="visits", cap=pc.ZCDP(0.5), witness=seen)
        >>> _ = shutil.copy(url, url + ".backup")
        >>> with pc.Ledger(folder + "/ledger", plan=pc.Gaussian(10.0) * 9, budget=budget):
        ...     pass
        >>> _ = shutil.copy(url + ".backup", url)
        >>> budget = readmit(url, dataset="visits", reason="disk failed", witness=seen, ledgers=[folder + "/ledger"])
        >>> print(budget.spent)
        9 × Gaussian(noise_multiplier=10.0)
    """
    dataset = known_as(url, check_label(dataset, name="dataset"))
    check_label(reason, name="reason")
    lost = dict(_reserved(path, dataset) for path in ledgers)
    seer = None if witness is None else Witness(witness, dataset)
    chain, name = chain_of(url, dataset), secrets.token_hex(16)

    def say(_: Transaction) -> None:
        seen = None if seer is None else seer.seen()
        if chain.history.rules.witnessed and seen is None:
            raise PrivcalcError(
                f"witness: must be given, one that saw something: the budget of {dataset!r} was made with one"
            )
        if name in chain.history.readmitted:
            return
        for run in lost.values():
            chain.history.pool.filter(run)  # what does not fit by itself was never reserved here
        if (seen is None or chain.hash_of(seen[0]) == seen[1]) and not lost.keys() - chain.history.reservations.keys():
            raise PrivcalcError(
                f"dataset = {dataset!r}: nothing that is given shows that {chain.store.url} has forgotten anything"
            )
        chain.append(readmit_line(name, reason, *(seen or (0, ""))))

    chain.locked(say)
    for reservation, run in lost.items():

        def charge(_: Transaction, reservation: str = reservation, run: Run = run) -> None:
            if reservation not in chain.history.reservations:
                label = f"readmitted: {reservation[:12]}"
                chain.append(charge_line("reserve", reservation, run, by="hand", bound="plan", label=label))

        chain.locked(charge)
    if seer is not None:  # only now: whoever is stopped before this has to do it again
        position = chain.locked(lambda _: chain.position)
        seer.write(position.lines, position.hash)
    return Budget(url, dataset=dataset, witness=witness)


def _reserved(path: str | os.PathLike[str], dataset: str) -> tuple[str, Run]:
    """The reservation of a ledger, and all that it was made for."""
    with read(path) as (lines, _):
        book = Book.read(lines)
    if book.budget is None or book.budget["dataset"] != dataset:
        raise PrivcalcError(f"path = {str(path)!r}: does not spend from the budget of {dataset!r}")
    return book.budget["reservation"], book.terms.bound
