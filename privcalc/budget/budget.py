"""The budget of a data set that several teams use.

Ledgers reserve from it before they draw, and return what they did not use.

    Budget.create  ->  Ledger(budget=…) reserves  ->  draws  ->  closes: its record takes the place of the reservation

Whatever anyone chooses by looking at outputs, of whatever ledger, all outputs together satisfy the cap:
``proofs/budgets.md``.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Self

from privcalc import errors
from privcalc.budget.history import Reservation, Rules, chain_of, charge_line, check_free, course, known_as
from privcalc.budget.managed import Managed
from privcalc.budget.pool import Odometer, Pool
from privcalc.budget.reserved import Reserved, anchored, check_open, settle, settled
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.ledger.book import Book, uses_of
from privcalc.ledger.terms import Terms
from privcalc.log.database import Transaction, Witness
from privcalc.log.file import line_of, read
from privcalc.log.lines import check_label, hash_in
from privcalc.notebook import Card
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism, Run
from privcalc.serial import Json, parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Budget"]


class Budget(Managed, Card):
    """The budget of one data set, kept in a database; it is opened here, and made by :meth:`create`.

    A ledger that is given it reserves its whole plan (or cap) there before it draws, atomically, or is refused. Every
    line of the ledger is anchored there before anything is drawn on it; when the ledger closes, what it recorded takes
    the place of the reservation. If the store cannot be asked, nothing is drawn; if it did not say whether it wrote,
    what it may hold is charged.

    Args:
        url: ``sqlite:///FILE``, or the path of a file: for the processes of one machine, not on a network file system;
            or ``postgresql://…``, for many machines (extra ``postgresql``).
        dataset: the name of the data set, 1 to 100 printable characters.
        cap: if given, it must be what the budget was made with; so must ``relation`` and ``unit``.
        relation: the neighbouring relation of every charge.
        unit: what one record is, in words.
        witness: a file, apart from the store, that remembers how far the history had come, so that an older copy of the
            store is seen even by who never used it. A budget that was made with one is opened with one; a new file is
            warned of.
        team: for whom it is opened: what is charged is counted as the team's, and keeps to its share, if teams have
            some.

    Raises:
        PrivcalcError: if there is no such budget, it is about something else, or the store is none.
        Contradiction: if the history does not fit its hashes, or is older than the witness.
        Unreachable: if the store cannot be asked.

    Example:
        >>> import tempfile
        >>> import privcalc as pc
        >>> url = tempfile.mkdtemp() + "/budget.db"
        >>> budget = pc.Budget.create(url, dataset="visits", cap=pc.ZCDP(0.5), unit="one patient")
        >>> step = pc.Gaussian(noise_multiplier=10.0)
        >>> with pc.Ledger(None, plan=step * 60, unit="one patient", budget=budget) as ledger:
        ...     _ = ledger.gaussian([0.0], step, clip_norm=1.0)
        ...     print(budget.charged)
        60 × Gaussian(noise_multiplier=10.0)
        >>> print(budget.charged)
        Gaussian(noise_multiplier=10.0)
        >>> print(f"{budget.odometer(delta=1e-6):.4f}")
        0.5912
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        dataset: str,
        cap: Mechanism | None = None,
        relation: Relation | None = None,
        unit: str | None = None,
        witness: str | os.PathLike[str] | None = None,
        team: str | None = None,
    ) -> None:
        name = known_as(url, check_label(dataset, name="dataset"))
        self.team = None if team is None else check_label(team, name="team")
        seer = None if witness is None else Witness(witness, name)
        known = seer is not None and seer.seen() is not None
        self._chain = chain_of(url, name, seer)
        self._chain.locked(lambda _: None)
        if self.rules.witnessed and seer is None:
            raise PrivcalcError(
                f"witness: must name a file: the budget of {dataset!r} was made with one, without which an older copy "
                "of its store is not seen; a new file is made where there is none, as on another machine"
            )
        if self.rules.witnessed and not known:
            errors.warn(
                f"witness = {str(witness)!r}: is new, and has seen nothing of the budget of {dataset!r} yet: if its "
                "store was restored from a backup before now, this file cannot tell"
            )
        for name, given in (("cap", cap), ("relation", relation), ("unit", unit)):
            if given is not None and given != (had := getattr(self.rules, name)):
                raise PrivcalcError(f"{name} = {given}: the budget of {dataset!r} was made with {had}")

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        *,
        dataset: str,
        cap: Mechanism,
        relation: Relation | None = None,
        unit: str = "one record",
        witness: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Make the budget of a data set that has none in this store, and the store if there is none, and open it.

        Args:
            url: as above.
            dataset: its name.
            cap: ``GDP``, ``ZCDP``, ``RDP`` at fixed orders or ``PureDP``: what all outputs together shall satisfy. For
                (ε, δ) profiles no filter is proved; choose one of these that implies what you want
                (``cap.epsilon(delta=…)``).
            relation: by default that of the cap, and no other.
            unit: what one record is; of every ledger that uses it, too.
            witness: as above.

        Raises:
            PrivcalcError: if an argument does not fit, or the data set has a budget.
            Unreachable: if the store cannot be asked; it may be there, then.

        Example:
            >>> import tempfile
            >>> import privcalc as pc
            >>> url = tempfile.mkdtemp() + "/budget.db"
            >>> pc.Budget.create(url, dataset="visits", cap=pc.ApproxDP(1.0, 1e-6))
            Traceback (most recent call last):
                ...
            privcalc.errors.PrivcalcError: cap = ApproxDP(epsilon=1.0, delta=1e-06, relation=add-or-remove-one): must
            be GDP, ZCDP, RDP or PureDP; no filter is proved for other budgets
        """
        if not isinstance(cap, Mechanism):
            raise PrivcalcError(f"cap = {cap!r}: must be GDP, ZCDP, RDP or PureDP")
        own: Relation = getattr(cap, "relation", ADD_OR_REMOVE_ONE)
        rules = Rules(dataset, cap, own if relation is None else relation, unit, witnessed=witness is not None)
        chain = chain_of(url, dataset, None if witness is None else Witness(witness, dataset))
        chain.begin(rules.to_json(secrets.token_hex(16)), lambda sql: check_free(sql, dataset, dataset))
        return cls(url, dataset=dataset, witness=witness)

    @property
    def rules(self) -> Rules:
        """What it was made for."""
        return self._chain.history.rules

    @property
    def _pool(self) -> Pool:
        """The admission rule, with all that is charged now; it is asked when the store is let go."""
        return self._chain.locked(lambda _: self._chain.history.pool)

    @property
    def cap(self) -> Mechanism:
        """The guarantee of all outputs together, unless :attr:`exceeded`.

        It answers ``epsilon`` and all other questions.
        """
        return self.rules.cap

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of all charges."""
        return self.rules.relation

    @property
    def unit(self) -> str:
        """What one record is."""
        return self.rules.unit

    @property
    def charged(self) -> Run:
        """All that is charged now, reserved parts included. No certificate: it depends on outputs."""
        return self._pool.charged

    @property
    def spent(self) -> Run:
        """What is charged for good: the records of closed ledgers, and charges by hand."""
        return self._chain.locked(lambda _: self._chain.history.part(settled=True))

    @property
    def reserved(self) -> Run:
        """What is reserved for ledgers that are open, or were left open by a crash."""
        return self._chain.locked(lambda _: self._chain.history.part(settled=False))

    @property
    def reservations(self) -> dict[str, Reservation]:
        """Every charge, by its name."""
        return self._chain.locked(lambda _: dict(self._chain.history.reservations))

    @property
    def readmitted(self) -> list[str]:
        """For what reasons a store that had forgotten something was used again (:func:`privcalc.budget.readmit`)."""
        return self._chain.locked(lambda _: list(self._chain.history.readmitted.values()))

    @property
    def remaining(self) -> float | Floats:
        """The largest charge that still fits, rounded down, in the cap's unit: μ, ρ, ε, or ε(α) by ascending α."""
        return self._pool.remaining

    @property
    def share(self) -> float:
        """How much of the cap is charged, as a fraction of what adds up (μ², ρ, ε, the worst order); for people."""
        pool = self._pool
        return pool.share(pool.charged)

    @property
    def exceeded(self) -> bool:
        """Whether more was readmitted than fits the cap, which is no guarantee then; nothing is admitted any more."""
        return self._pool.exceeded

    @property
    def head(self) -> tuple[int, str]:
        """The number of lines of the history, and the hash of the last.

        Keep both elsewhere, to notice an older copy of the store.
        """
        position = self._chain.locked(lambda _: self._chain.position)
        return position.lines, position.hash

    def would_exceed(self, mechanism: Mechanism | Run) -> bool:
        """Whether a charge would be refused for want of budget, if it came now.

        Raises:
            PrivcalcError: if the cap has no proof for a mechanism.
        """
        run, history = uses_of(mechanism), self._chain.locked(lambda _: self._chain.history)
        try:
            history.check(run, self.team)
        except errors.BudgetExceeded:
            return True
        return False

    def reserve(self, mechanism: Mechanism | Run, *, label: str | None = None) -> str:
        """Charge for what runs without a ledger, before it runs.

        It stays charged: nobody records how much of it was used.

        Args:
            mechanism: what will run, or a run.
            label: what it is.

        Returns:
            The name of the charge.

        Raises:
            BudgetExceeded: if there is too little left: then nothing is charged, and it must not run.
            PrivcalcError: if the cap has no proof for a mechanism.
            Unreachable: if the store cannot be asked, or did not say whether it wrote: it must not run, and may be
                charged.
        """
        run, name = uses_of(mechanism), secrets.token_hex(16)
        if label is not None:
            check_label(label)

        def act(_: Transaction) -> str:
            if name not in self._chain.history.reservations:
                self._chain.history.check(run, self.team)
                self._chain.append(charge_line("reserve", name, run, self.team, by="hand", bound="plan", label=label))
            return name

        return self._chain.locked(act)

    def settle(self, path: str | os.PathLike[str]) -> None:
        """Return what a closed ledger did not use, if its process died first, or the store was out of reach.

        Settling twice does nothing.

        Args:
            path: the ledger.

        Raises:
            PrivcalcError: if it is not closed (it may be running), or spends from another budget.
            Contradiction: if it does not fit its hashes, or what the store knows of it.
        """
        with read(path) as (lines, position):
            book = Book.read(lines)
        if not book.closed:
            raise PrivcalcError(
                f"path = {str(path)!r}: is not closed; open it again, and close it, if nothing runs on it any more"
            )
        if book.budget is None or book.budget["dataset"] != self.rules.dataset:
            raise PrivcalcError(f"path = {str(path)!r}: does not spend from the budget of {self.rules.dataset!r}")
        entry = book.budget

        def act(sql: Transaction) -> None:
            check_open(self._chain, entry["reservation"])
            self._chain.check_seen(entry["lines"], entry["hash"], f"the ledger {path}")
            if settled(self._chain, name := entry["reservation"], position.hash):
                return
            anchored(self._chain, sql, name, path, lambda number: hash_in(line_of(path, number)))
            settle(self._chain, sql, name, book.recorded, position.lines, position.hash)

        self._chain.locked(act)

    def odometer(self, *, delta: float) -> Enclosure:
        """Bound what was lost up to now: with probability 1 − δ the loss has never exceeded it.

        That holds at any time at which anybody looked.

        Args:
            delta: δ in [0, 1).

        Returns:
            An enclosure: the upper end holds whatever was chosen from outputs; below the lower end no odometer can be,
            because that much is lost if what is charged was fixed in advance. The guarantee of the data set is the
            cap's, not this.
        """
        meter = Odometer(self.rules.orders, self.relation)
        meter.charge(self.charged)
        return meter.epsilon(delta=delta)

    def history(self) -> list[Json]:
        """The lines of the history: what was charged, when, and for which ledger; verified."""
        rows = self._chain.locked(
            lambda sql: sql.rows("SELECT line FROM privcalc_history WHERE dataset = ? ORDER BY n", self._chain.dataset)
        )
        return [parse(line, "line")["entry"] for (line,) in rows]

    def keeper(self, terms: Terms) -> Reserved:
        """What a ledger asks (:class:`privcalc.ledger.kept.Budgeted`).

        Raises:
            PrivcalcError: if its relation or unit are others, or its noise has a seed and protects nobody.
        """
        self.check(terms)
        return Reserved(self._chain, terms, self.team)

    def check(self, terms: Terms) -> None:
        """Refuse what this budget cannot count.

        Raises:
            PrivcalcError: as for ``keeper``.
        """
        for name in ("relation", "unit"):
            if (given := getattr(terms, name)) != (had := getattr(self.rules, name)):
                raise PrivcalcError(
                    f"{name} = {str(given)!r}: the budget of {self.rules.dataset!r} is about {str(had)!r}"
                )
        if terms.seeded:
            raise PrivcalcError("seed: noise that can be drawn again protects nobody, and a budget counts what does")

    def close(self) -> None:
        """Let the connection go; the next question opens it again."""
        self._chain.store.close()

    def _card(self) -> tuple[str, dict[str, object]]:
        what = {"cap": self.cap, "one record": self.unit, "neighbours by": self.relation, "share charged": self.share}
        return f"Budget of {self.title}", {**what, **self.shares, "closed": self.retired or "no"}

    def plot(self) -> Figure:
        """What was charged over time, as a share of the cap; needs matplotlib."""
        from privcalc.pictures import spending

        times, charged, spent = map(list, zip(*course(self.history()), strict=True))
        return spending(times, charged, spent)

    def __repr__(self) -> str:
        return f"Budget({self._chain.store.url!r}, dataset={self.rules.dataset!r}, cap={self.cap})"
