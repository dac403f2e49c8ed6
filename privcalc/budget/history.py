"""What a budget's history says: its terms, what is reserved, what was settled; read from its lines one after another.

Whether there is room is a function of the multiset of all that is charged, whatever the order in which it was: anyone
with the lines, or with the ledgers, computes the same (``proofs/budgets.md``).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import NoneType

from privcalc import errors, serial
from privcalc.budget.pool import Pool
from privcalc.errors import Contradiction, PrivcalcError
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.terms import Terms, check_label, mechanism_of
from privcalc.log.database import Shared, Witness, connect
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
                "label": Field((str, NoneType))},
    "settle": {**_CHARGE, "lines": Field((int,)), "hash": Field((str,))},
    "readmit": {"type": Field((str,)), "name": Field((str,)), "reason": Field((str,)), "time": Field((str,)),
                "lines": Field((int,)), "hash": Field((str,))},
}  # fmt: skip
"""The fields of the other lines, by their type.

A charge; what a closed ledger recorded, which takes its place; and that a store was used again which had forgotten
something: why, and what its witness had seen.
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
        """The first line."""
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
    """

    run: Run
    by: str
    bound: str
    label: str | None
    settled: str | None = None


@dataclass
class History:
    """The lines, read; nothing here touches a database.

    Attributes:
        pool: all that is charged, reserved or for good.
        reservations: by their names.
        readmitted: the reasons for which a store that had forgotten something was used again, by the names of their
            lines.
    """

    reservations: dict[str, Reservation] = field(default_factory=dict)
    readmitted: dict[str, str] = field(default_factory=dict)
    _rules: Rules | None = None

    @property
    def rules(self) -> Rules:
        """The first line."""
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
        entry = check_fields(f"{kind}", entry, LATER[f"{kind}"])
        if kind == "readmit":
            self.readmitted[entry["name"]] = check_label(entry["reason"], name="reason")
            # What their ledgers drew since the backup nobody knows: what was open stays charged,
            # and nothing is drawn on it.
            for name, one in self.reservations.items():
                self.reservations[name] = one if one.settled is not None else replace(one, by="hand")
            return
        name, run = entry["reservation"], _run(entry["run"])
        if kind == "reserve":
            if name in self.reservations:
                raise PrivcalcError(f"reservation = {name!r}: was made already")
            self.pool.count(run)
            self.reservations[name] = Reservation(run, entry["by"], entry["bound"], entry["label"])
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
        self.reservations[name] = Reservation(run, before.by, before.bound, before.label, entry["hash"])

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


def charge_line(kind: str, reservation: str, run: Run, **more: object) -> Json:
    """A line that charges."""
    return {"type": kind, "reservation": reservation, "run": serial.run_to_json(run), "time": now(), **more}


def readmit_line(name: str, reason: str, lines: int, digest: str) -> Json:
    """A line that says why a store is used again, and what was seen in it that it has forgotten."""
    return {"type": "readmit", "name": name, "reason": reason, "time": now(), "lines": lines, "hash": digest}


Chain = Shared[History]
"""The lines, and what they say."""


def chain_of(url: object, dataset: str, witness: Witness | None = None) -> Chain:
    """The history of a data set in the store of this URL; nothing is asked yet."""
    return Shared(connect(url), dataset, History, witness)
