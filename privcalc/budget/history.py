"""What a budget's history says: its terms, what is reserved, what was settled; read from its lines one after another.

Whether there is room is a function of the multiset of all that is charged, whatever the order in which it was: anyone
with the lines, or with the ledgers, computes the same (``proofs/budgets.md``).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import NoneType

from privcalc import errors, serial
from privcalc.budget.pool import Pool, check_part_of, part_of, share_of
from privcalc.errors import Contradiction, PrivcalcError, Unreachable
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.terms import Terms, mechanism_of
from privcalc.log.database import Shared, Transaction, Witness, connect
from privcalc.log.lines import check_label
from privcalc.relation import Relation
from privcalc.run import Mechanism, Run
from privcalc.serial import Field, Json, check_fields

FORMAT, VERSION = "privcalc budget", 1

ORDERS = (*(1 + 2.0 ** (k / 2) for k in range(-8, 17)), float("inf"))
"""The odometer's Rényi orders, of budgets that are made now; each budget keeps its own."""

OPEN = {
    "type": Field((str,), among=("open",)),
    "format": Field((str,), among=(FORMAT,)),
    "version": Field((int,), among=(VERSION,)),
    "dataset": Field((str,)),
    "cap": Field((dict,)),
    "relation": Field((str,)),
    "unit": Field((str,)),
    "orders": Field((list,)),
    "name": Field((str,)),
    "time": Field((str,)),
    "witness": Field((bool,)),
}
"""The fields of the first line; ``name`` is drawn at random, so that no two budgets begin alike.

``witness`` is left out if there is none.
"""

_CHARGE = {"type": Field((str,)), "reservation": Field((str,)), "run": Field((list,)), "time": Field((str,))}

LATER = {
    "reserve": {**_CHARGE, "by": Field((str,), among=("ledger", "hand")), "bound": Field((str,), among=("plan", "cap")),
                "label": Field((str, NoneType)), "team": Field((str, NoneType))},
    "settle": {**_CHARGE, "lines": Field((int,)), "hash": Field((str,))},
    "readmit": {"type": Field((str,)), "name": Field((str,)), "reason": Field((str,)), "time": Field((str,)),
                "lines": Field((int,)), "hash": Field((str,))},
    "share": {"type": Field((str,)), "team": Field((str,)), "share": Field((float, int)), "time": Field((str,))},
    "rename": {"type": Field((str,)), "title": Field((str,)), "time": Field((str,))},
    "close": {"type": Field((str,)), "reason": Field((str,)), "time": Field((str,))},
}  # fmt: skip
"""The fields of the other lines, by their type.

A charge, whose ``team`` is left out if it has none; what a closed ledger recorded, which takes its place; that a store
was used again which had forgotten something: why, and what its witness had seen; a team's share, in place of the one
that it had; another name to go by; and that nothing more is charged.
"""


def now() -> str:
    """The time, for people; nothing follows from it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Rules:
    """What a budget was made for.

    Attributes:
        dataset: its name.
        cap: what everything together satisfies: ``GDP``, ``ZCDP``, ``RDP`` or ``PureDP``.
        relation: the neighbouring relation of every charge.
        unit: what one record is.
        orders: of the odometer.
        witnessed: whether it was made with a witness; then it is used with one.
    """

    dataset: str
    cap: Mechanism
    relation: Relation
    unit: str
    orders: tuple[float, ...] = ORDERS
    witnessed: bool = False

    def __post_init__(self) -> None:
        check_label(self.dataset, name="dataset")
        Terms(self.relation, self.unit, None, self.cap, None, {}, (), False, Assumptions())  # as of a ledger with a cap
        errors.orders("orders", self.orders)

    def to_json(self, name: str) -> Json:
        """The log's first line, which says the rules."""
        return {
            "type": "open",
            "format": FORMAT,
            "version": VERSION,
            "dataset": self.dataset,
            "cap": serial.mechanism_to_json(self.cap),
            "relation": str(self.relation),
            "unit": self.unit,
            "orders": ["inf" if order == float("inf") else order for order in self.orders],
            "name": name,
            "time": now(),
            **({"witness": True} if self.witnessed else {}),
        }

    @classmethod
    def from_json(cls, entry: Json) -> Rules:
        """From the first line."""
        found = check_fields("the budget's first line", {"witness": False, **entry}, OPEN)
        orders = tuple(float(order) for order in found["orders"])
        relation, cap = serial.relation_from_json(found["relation"]), serial.mechanism_from_json(found["cap"])
        return cls(found["dataset"], cap, relation, found["unit"], orders, found["witness"])


@dataclass(frozen=True)
class Reservation:
    """One charge.

    Attributes:
        run: what is charged for it now.
        by: "ledger", or "hand": by :meth:`Budget.reserve`, or of a ledger that was open when a restored store was
            readmitted.
        bound: whether it is a plan's run, or a cap.
        label: what it is, if somebody said so.
        settled: the hash of the closed ledger, whose recorded run is charged; None while all is reserved.
        team: for whom it was made, if somebody said so.
    """

    run: Run
    by: str
    bound: str
    label: str | None
    settled: str | None = None
    team: str | None = None


@dataclass
class History:
    """The lines, read; nothing here touches a database.

    Attributes:
        pool: all that is charged, reserved or for good.
        reservations: by their names.
        readmitted: the reasons for which a store that had forgotten something was used again, by the names of their
            lines.
        shares: of teams; what is left of 1 is everybody else's.
        title: another name to go by.
        closed: why nothing more is charged.
    """

    reservations: dict[str, Reservation] = field(default_factory=dict)
    readmitted: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Fraction] = field(default_factory=dict)
    title: str | None = None
    closed: str | None = None
    _rules: Rules | None = None

    @property
    def rules(self) -> Rules:
        """The rules, as the first line says them."""
        assert self._rules is not None
        return self._rules

    def apply(self, entry: Json) -> None:
        """One more line.

        Raises:
            PrivcalcError: if it makes no sense.
            Contradiction: if it takes back more than was charged.
        """
        if self._rules is None:
            self._rules = Rules.from_json(entry)
            self.pool = Pool(self._rules.cap)
            return
        if (kind := entry.get("type")) not in LATER:
            raise PrivcalcError(f"entry = {str(entry)[:200]}: its type must be one of {', '.join(LATER)}")
        entry = check_fields(f"{kind}", {"team": None, **entry} if kind == "reserve" else entry, LATER[f"{kind}"])
        if kind == "readmit":
            self.readmitted[entry["name"]] = check_label(entry["reason"], name="reason")
            # What their ledgers drew since the backup nobody knows: what was open stays charged,
            # and nothing is drawn on it.
            for name, one in self.reservations.items():
                self.reservations[name] = one if one.settled is not None else replace(one, by="hand")
            return
        if kind == "share":
            self.shares[check_label(entry["team"], name="team")] = share_of(entry["share"])
            return
        if kind in ("rename", "close"):
            self.title = check_label(entry["title"], name="title") if kind == "rename" else self.title
            self.closed = check_label(entry["reason"], name="reason") if kind == "close" else self.closed
            return
        name, run = entry["reservation"], _run(entry["run"])
        if kind == "reserve":
            if name in self.reservations:
                raise PrivcalcError(f"reservation = {name!r}: was made already")
            self.pool.count(run)
            self.reservations[name] = Reservation(run, entry["by"], entry["bound"], entry["label"], team=entry["team"])
            return
        before = self.reservations.get(name)
        if before is None or before.settled is not None or before.by != "ledger":
            raise Contradiction(
                f"reservation = {name!r}: cannot be settled, because none of a ledger is open under this name"
            )
        if before.bound == "plan":
            check_part(run, before.run)
        self.pool.refund(before.run)
        self.pool.count(run)
        self.reservations[name] = replace(before, run=run, settled=entry["hash"])

    def check(self, run: Run, team: str | None) -> None:
        """Refuse a charge for which there is no room, for anybody or for this team.

        Raises:
            BudgetExceeded: if there is none.
            PrivcalcError: if the budget was closed, or the team has no share though others do.
        """
        if self.closed is not None:
            raise PrivcalcError(f"dataset = {self.rules.dataset!r}: its budget was closed: {self.closed}")
        self.pool.check(run)
        if self.shares:
            check_part_of(run, self.cap_of(team), self.of(team), f"team {team!r}" if team else "those who name no team")

    def cap_of(self, team: str | None) -> Mechanism | None:
        """A team's part of the cap; of None what no team has.

        Raises:
            PrivcalcError: if the team has no share.
        """
        if team is not None and team not in self.shares:
            raise PrivcalcError(f"team = {team!r}: has no share; those who have one are {', '.join(self.shares)}")
        rest = 1 - sum(self.shares.values(), Fraction(0))
        return part_of(self.rules.cap, rest if team is None else self.shares[team])

    def of(self, team: str | None) -> Run:
        """What is charged for a team now."""
        return Run.of(one.run for one in self.reservations.values() if one.team == team)

    def check_shares(self, team: str, share: Fraction) -> None:
        """Refuse a share that does not fit beside those of others, or is less than what is charged already.

        Raises:
            PrivcalcError: if it does not.
        """
        after = History(self.reservations, shares={**self.shares, team: share}, _rules=self.rules)
        if (total := sum(after.shares.values())) > 1:
            raise PrivcalcError(f"share = {float(share)}: all shares must be at most 1 together, not {float(total)}")
        for who in (team, None):
            if (charged := after.of(who)).entries:
                check_part_of(charged, after.cap_of(who), Run(), f"team {who!r}" if who else "those who name no team")

    def part(self, *, settled: bool) -> Run:
        """What is charged for good, or is reserved for ledgers that are open."""
        chosen = (one for one in self.reservations.values() if settled == (one.settled is not None or one.by == "hand"))
        return Run(tuple(entry for one in chosen for entry in one.run.entries))


def _run(value: Sequence[Json]) -> Run:
    """What a line says was charged."""
    entries = []
    for part in value:
        check_fields("run", part, {"mechanism": Field((dict,)), "count": Field((int,))})
        entries.append((mechanism_of(part["mechanism"]), errors.count("count", part["count"], least=1)))
    return Run(tuple(entries))


def check_part(run: Run, whole: Run) -> None:
    """Refuse what is charged in place of a reservation, and is no part of it.

    Raises:
        Contradiction: if it is none.
    """
    had = dict(whole.entries)
    for mechanism, count in run.entries:
        if count > had.get(mechanism, 0):
            raise Contradiction(
                f"mechanism = {mechanism}: {count} uses were recorded, of {had.get(mechanism, 0)} reserved"
            )


POINTS = 200
"""Most points: each costs a composition."""


def course(lines: Sequence[Json]) -> list[tuple[datetime.datetime, float, float]]:
    """The shares of the cap after each line, or after as many of them as are drawn, evenly spread, the last among them.

    Args:
        lines: of :meth:`Budget.history`.

    Returns:
        The time of the line; the share that is charged, reserved parts included; and what is charged for good.
    """
    history, found = History(), []
    shown = {round(k * (len(lines) - 1) / POINTS) for k in range(POINTS + 1)}
    for number, entry in enumerate(lines):
        history.apply(entry)
        if number in shown:
            share = history.pool.share
            found.append((_time(entry["time"]), share(history.pool.charged), share(history.part(settled=True))))
    return found


def _time(text: str) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise PrivcalcError(f"time = {text[:50]!r}: must be a date with a time") from error
    return found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def charge_line(kind: str, reservation: str, run: Run, team: str | None = None, **more: object) -> Json:
    """A line that charges."""
    told = {} if team is None else {"team": team}
    return {"type": kind, "reservation": reservation, "run": serial.run_to_json(run), "time": now(), **more, **told}


def readmit_line(name: str, reason: str, lines: int, digest: str) -> Json:
    """A line that says why a store is used again, and what was seen in it that it has forgotten."""
    return {"type": "readmit", "name": name, "reason": reason, "time": now(), "lines": lines, "hash": digest}


Chain = Shared[History]
"""The lines, and what they say."""


def chain_of(url: object, dataset: str, witness: Witness | None = None) -> Chain:
    """The history of a data set in the store of this URL; nothing is asked yet."""
    return Shared(connect(url), dataset, History, witness)


def titles_in(sql: Transaction) -> dict[str, str | None]:
    """The data sets of a store, with the names that they were given later; it is asked in a transaction."""
    found: dict[str, str | None] = dict.fromkeys(name for (name,) in sql.rows("SELECT dataset FROM privcalc_heads"))
    renames = "SELECT dataset, line FROM privcalc_history WHERE line LIKE ? ORDER BY n"
    for dataset, line in sql.rows(renames, '%"type":"rename"%'):
        entry = serial.parse(line, "line")["entry"]
        if entry["type"] == "rename":
            found[dataset] = entry["title"]
    return dict(sorted(found.items()))


def titles(url: object) -> dict[str, str | None]:
    """The data sets that have a budget in a store, with the names that they go by now; none if there is no store.

    Args:
        url: as of :class:`privcalc.Budget`.

    Raises:
        Unreachable: if the store cannot be asked.
    """
    store = connect(url)
    try:
        with store.transaction() as run:
            return titles_in(Transaction(run))
    except Unreachable:
        raise
    except PrivcalcError:
        return {}
    finally:
        store.close()


def check_free(sql: Transaction, name: str, dataset: str) -> None:
    """Refuse a name for a data set that another one of the store has, or goes by.

    Raises:
        PrivcalcError: if one does.
    """
    for other, title in titles_in(sql).items():
        if other != dataset and name in (other, title):
            raise PrivcalcError(f"name = {name!r}: is what {other!r} goes by in this store; choose another")


def known_as(url: object, name: str) -> str:
    """The name under which the store keeps a data set: its own, or that of the one that goes by it now."""
    found = titles(url)
    return name if name in found else next((one for one, title in found.items() if title == name), name)
