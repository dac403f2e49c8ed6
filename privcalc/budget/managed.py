"""What whoever answers for a budget does with it: shares of teams, another name, its end. Nothing is ever deleted."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from privcalc.budget.history import Chain, check_free, now
from privcalc.budget.pool import Pool, left, share_of
from privcalc.enclosure import Enclosure
from privcalc.ledger.rules import Single
from privcalc.log.database import Transaction
from privcalc.log.lines import check_label

__all__ = ["Managed"]


@dataclass(frozen=True)
class Standing:
    """Where a team stands.

    Attributes:
        team: its name; None for who names none.
        share: of the cap.
        charged: how much of this share is charged, reservations included, as a fraction of what adds up.
        left: ε, at the δ that was asked for, of the largest single release of Gaussian noise that still fits. Such ε do
            not add.
    """

    team: str | None
    share: float
    charged: float
    left: Enclosure


class Managed(Single):
    """The management of a budget; the log is its history, in a store."""

    _chain: Chain

    @property
    def shares(self) -> dict[str, float]:
        """The shares of teams; what they leave of 1 is for who names no team. None at all: nobody is asked."""
        return self._chain.locked(lambda _: {team: float(one) for team, one in self._chain.history.shares.items()})

    @property
    def title(self) -> str:
        """What the data set goes by: its name, or the last that :meth:`rename` gave it."""
        return self._chain.locked(lambda _: self._chain.history.title or self._chain.dataset)

    @property
    def retired(self) -> str | None:
        """Why nothing more is charged; None while something may be."""
        return self._chain.locked(lambda _: self._chain.history.closed)

    def standing(self, *, delta: float) -> list[Standing]:
        """Where each team stands, and last who names no team: alone, if no team has a share.

        Args:
            delta: δ of the ε that is left.
        """
        history = self._chain.locked(lambda _: self._chain.history)
        rest, found = 1 - sum(history.shares.values(), Fraction(0)), []
        for team, share in (*history.shares.items(), (None, rest)):
            pool = Pool(history.cap_of(team) or history.rules.cap)
            pool.count(history.of(team) if history.shares else history.pool.charged)
            free = left(pool, delta, nothing=not share or history.closed is not None)
            found.append(Standing(team, float(share), pool.share(pool.charged) if share else 0.0, free))
        return found

    def set_share(self, team: str, share: float) -> None:
        """Set aside a share of the cap for a team; charges of others, and of nobody, leave it alone from then on.

        Args:
            team: any name.
            share: of what adds up (μ², ρ, ε, ε(α)), in [0, 1]; in place of the one that the team had.

        Raises:
            PrivcalcError: if all shares are more than 1, or the team, or who names none, has spent more already.
        """
        exact = share_of(share)
        check_label(team, name="team")

        def act(_: Transaction) -> None:
            if self._chain.history.shares.get(team) != exact:
                self._chain.history.check_shares(team, exact)
                self._chain.append({"type": "share", "team": team, "share": float(exact), "time": now()})

        self._chain.locked(act)

    def rename(self, title: str) -> None:
        """Give the data set another name to go by; it is opened by either. Ledgers and witnesses keep the first.

        Raises:
            PrivcalcError: if another data set of the store has that name.
        """
        check_label(title, name="title")

        def act(sql: Transaction) -> None:
            check_free(sql, title, self._chain.dataset)
            if (self._chain.history.title or self._chain.dataset) != title:
                self._chain.append({"type": "rename", "title": title, "time": now()})

        self._chain.locked(act, naming=True)

    def retire(self, reason: str) -> None:
        """Charge nothing more, ever; ledgers that are open go on within what they reserved, and give back the rest.

        Args:
            reason: for the history, 1 to 100 printable characters.
        """
        check_label(reason, name="reason")

        def act(_: Transaction) -> None:
            if self._chain.history.closed is None:
                self._chain.append({"type": "close", "reason": reason, "time": now()})

        self._chain.locked(act)
