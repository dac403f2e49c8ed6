"""What a ledger says: its terms, and what was charged under them; read from its entries one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privcalc import errors
from privcalc.assumptions import Assumptions, check_type
from privcalc.describe import (
    Json,
    canonical,
    mechanism_from_json,
    mechanism_to_json,
    relation_from_json,
    run_from_json,
    run_to_json,
)
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError
from privcalc.filters import Filter
from privcalc.mechanism import Mechanism
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.relation import Relation, check_relation
from privcalc.run import Questions, Run

__all__ = ["Book", "Terms"]

FORMAT, VERSION = "privcalc ledger", 3
READ = (2, VERSION)
"""What can be read, and gone on with; version 2 charged one use for all rows of a choice, declared disjoint or not."""

FIELDS = {
    "open": {
        *("type", "format", "version", "relation", "unit", "plan", "cap", "target", "public", "not_accounted", "assumptions"),
        "seeded",
    },
    "reserve": {"type", "mechanism", "count"},
    "return": {"type", "mechanism", "count"},
    "record": {"type", "mechanism", "count"},
    "resume": {"type"},
    "close": {"type", "stopping"},
}
"""The entries, and their fields: all of them, and no others."""

OUTPUT_INDEPENDENT = "output-independent"
"""The one way of stopping early under which what was recorded may be certified (``proofs/ledger.md``)."""


@dataclass(frozen=True)
class Terms:
    """What a ledger was opened for: a plan fixed in advance, or a cap that holds whatever happens; exactly one of them."""

    relation: Relation
    unit: str
    plan: Run | None
    cap: Mechanism | None
    target: Guarantee | None
    public: Mapping[str, Any]
    not_accounted: Sequence[str]
    seeded: bool
    assumptions: Assumptions = field(default_factory=Assumptions)
    version: int = VERSION

    def __post_init__(self) -> None:
        check_relation(self.relation)
        if not isinstance(self.unit, str) or not self.unit:
            raise PrivcalcError(f"unit = {self.unit!r}: must say what one record is, such as 'one training example'")
        if (self.plan is None) == (self.cap is None):
            raise PrivcalcError("must have exactly one of plan (fixed in advance) and cap (GDP, ZCDP, RDP or PureDP)")
        if self.cap is not None and not isinstance(self.cap, (GDP, ZCDP, RDP, PureDP)):
            raise PrivcalcError(f"cap = {self.cap!r}: must be GDP, ZCDP, RDP or PureDP; no filter is proved for other budgets")
        if self.cap is not None:
            filter_of(self.cap)
        if not isinstance(self.public, Mapping) or not all(isinstance(name, str) for name in self.public):
            raise PrivcalcError(f"public = {self.public!r}: must be an object: names with their values")
        if not isinstance(self.not_accounted, (list, tuple)) or not all(isinstance(item, str) for item in self.not_accounted):
            raise PrivcalcError(f"not_accounted = {self.not_accounted!r}: must be a list of texts")
        check_type(self.assumptions).check(self.bound, "plan" if self.cap is None else "cap")
        for mechanism, _ in self.bound.entries:
            mechanism.pairs(self.relation)  # refuses what has no guarantee under the relation

    @property
    def bound(self) -> Run:
        """The run that dominates whatever may happen."""
        if self.plan is not None:
            return self.plan
        assert self.cap is not None
        return self.cap.run

    def check_target(self) -> None:
        """A charge past the plan or cap is refused; so the target need be checked against these only, once."""
        target = self.target
        if target is None:
            return
        if not isinstance(target, Guarantee) or target.relation is not self.relation:
            raise PrivcalcError(f"target = {target}: must be a Guarantee under {self.relation}")
        if target.epsilon is not None:
            assert target.delta is not None
            reached, allowed, name = (
                float(self.bound.epsilon(delta=target.delta, relation=self.relation)),
                float(target.epsilon),
                "ε",
            )
        elif target.mu is not None:
            reached, allowed, name = float(self.bound.gdp_mu(relation=self.relation)), float(target.mu), "μ"
        else:
            assert target.rho is not None
            (rho, xi), allowed, name = self.bound.zcdp(relation=self.relation), target.rho, "ρ"
            reached = rho if xi == 0 else float("inf")
        if not reached <= allowed:
            raise PrivcalcError(f"target = {target}: the {'plan' if self.plan is not None else 'cap'} needs {name} = {reached!r}")

    def to_json(self) -> Json:
        """The first entry."""
        return {
            "type": "open",
            "format": FORMAT,
            "version": self.version,
            "relation": str(self.relation),
            "unit": self.unit,
            "plan": None if self.plan is None else run_to_json(self.plan),
            "cap": None if self.cap is None else mechanism_to_json(self.cap),
            "target": None if self.target is None else target_to_json(self.target),
            "public": dict(self.public),
            "not_accounted": list(self.not_accounted),
            "seeded": self.seeded,
            "assumptions": self.assumptions.declared,
        }

    @classmethod
    def from_json(cls, entry: Json) -> Terms:
        """From the first entry."""
        if entry.get("type") != "open" or entry.get("format") != FORMAT:
            raise PrivcalcError("the first line is not that of a privcalc ledger")
        if type(entry.get("version")) is not int or entry["version"] not in READ:
            versions = " or ".join(map(str, READ))
            raise PrivcalcError(f"version = {entry.get('version')!r}: must be {versions} for this version of privcalc")
        if set(entry) != FIELDS["open"]:
            raise PrivcalcError(f"the first line has {sorted(entry)}: must have exactly {sorted(FIELDS['open'])}")
        try:
            relation = relation_from_json(entry["relation"])
            return cls(
                relation,
                entry["unit"],
                None if entry["plan"] is None else run_from_json(entry["plan"]),
                None if entry["cap"] is None else mechanism_from_json(entry["cap"]),
                None if entry["target"] is None else target_from_json(entry["target"], relation),
                entry["public"],
                entry["not_accounted"],
                entry["seeded"] is not False,
                Assumptions.from_json(entry["assumptions"]),
                entry["version"],
            )
        except TypeError as error:
            raise PrivcalcError(f"the first line has something in the wrong form: {error}") from error


def target_to_json(target: Guarantee) -> Json:
    """Only what was given."""
    values = {name: getattr(target, name) for name in ("epsilon", "delta", "mu", "rho")}
    return {name: float(value) for name, value in values.items() if value is not None}


def target_from_json(value: Json, relation: Relation) -> Guarantee:
    """The guarantee of a relation."""
    if not isinstance(value, Mapping) or not set(value) <= {"epsilon", "delta", "mu", "rho"}:
        raise PrivcalcError(f"target = {value!r}: must be epsilon with delta, or mu, or rho")
    return Guarantee(relation=relation, **{name: errors.epsilon(name, number) for name, number in value.items()})


@dataclass
class Book:
    """Terms and charges. ``charge`` refuses what the terms do not allow; nothing here touches a file.

    Attributes:
        terms: what it was opened for.
        drawn: uses charged by the ledger, reserved ones included.
        declared: uses that the caller said were made elsewhere.
        closed: whether a closing entry was read.
        stopping: what the caller said about an early end.
    """

    terms: Terms
    drawn: dict[Mechanism, int] = field(default_factory=dict)
    declared: dict[Mechanism, int] = field(default_factory=dict)
    closed: bool = False
    stopping: str | None = None

    def __post_init__(self) -> None:
        plan, cap = self.terms.plan, self.terms.cap
        self._known: dict[str, Mechanism] = {}
        self._left = None if plan is None else dict(plan.entries)
        self._filter = None if cap is None else filter_of(cap)

    @classmethod
    def read(cls, entries: Iterable[Json]) -> Book:
        """From a ledger's verified entries.

        Raises:
            PrivcalcError: if they do not make sense, or charge more than the terms allow.
        """
        iterator = iter(entries)
        first = next(iterator, None)
        if first is None:
            raise PrivcalcError("the ledger is empty: not even its first line is complete")
        book = cls(Terms.from_json(first))
        for entry in iterator:
            book.apply(entry)
        return book

    def apply(self, entry: Json) -> None:
        """One more entry."""
        if self.closed:
            raise PrivcalcError("the ledger goes on after its closing line")
        kind = entry.get("type")
        if not isinstance(kind, str) or kind not in FIELDS or kind == "open" or set(entry) != FIELDS[kind]:
            allowed = {name: sorted(fields) for name, fields in FIELDS.items() if name != "open"}
            raise PrivcalcError(f"entry = {str(entry)[:200]}: must be one of {allowed}")
        if kind == "close":
            stopping = entry["stopping"]
            if stopping not in (None, OUTPUT_INDEPENDENT):
                raise PrivcalcError(f"stopping = {stopping!r}: must be {OUTPUT_INDEPENDENT!r} or null")
            self.check_end(stopping)
            self.closed, self.stopping = True, stopping
        elif kind != "resume":
            mechanism, count = self._mechanism(entry["mechanism"]), errors.count("count", entry["count"], least=1)
            if kind == "return":
                self.refund(mechanism, count)
            else:
                self.charge(mechanism, count, declared=kind == "record")

    def _mechanism(self, value: object) -> Mechanism:
        """The mechanism of a description; each is read once, because that is slow."""
        text = canonical(value)
        if text not in self._known:
            self._known[text] = mechanism_from_json(value)
        return self._known[text]

    def check_end(self, stopping: str | None) -> None:
        """Refuse a word that contradicts what was declared when the ledger was opened."""
        if stopping is not None:
            self.terms.assumptions.check(self.recorded, "recorded")

    @property
    def recorded(self) -> Run:
        """What was charged."""
        return Run((*self.drawn.items(), *self.declared.items()))

    def room(self, run: Run) -> bool:
        """Whether all of a run may be charged.

        Raises:
            PrivcalcError: if the cap has no proof for one of its mechanisms.
        """
        if self._left is not None:
            return all(self._left.get(mechanism, 0) >= count for mechanism, count in run.entries)
        assert self._filter is not None
        return not self._filter.would_exceed(run)

    def charge(self, mechanism: Mechanism, count: int, *, declared: bool = False) -> None:
        """Charge ``count`` uses, or raise and charge nothing."""
        if self._left is not None:
            left = self._left.get(mechanism)
            if left is None:
                raise PrivcalcError(f"mechanism = {mechanism}: is not in the plan {self.terms.plan}")
            if left < count:
                raise PrivcalcError(f"mechanism = {mechanism}: the plan {self.terms.plan} has {left} more of it, not {count}")
            self._left[mechanism] = left - count
        else:
            assert self._filter is not None
            self.terms.assumptions.check(self.terms.bound, "cap", mechanism.run)
            self._filter.charge(mechanism * count)
        book = self.declared if declared else self.drawn
        book[mechanism] = book.get(mechanism, 0) + count

    def refund(self, mechanism: Mechanism, count: int, *, declared: bool = False) -> None:
        """Take back uses that were reserved and never drawn."""
        book = self.declared if declared else self.drawn
        had = book.get(mechanism, 0)
        if count > had:
            raise PrivcalcError(f"mechanism = {mechanism}: {count} uses are returned, of {had} that were reserved")
        book[mechanism] = had - count
        if self._left is not None:
            self._left[mechanism] += count
        else:
            assert self._filter is not None
            self._filter.refund(mechanism * count)


def filter_of(cap: Mechanism) -> Filter:
    """The filter that a cap stands for."""
    if isinstance(cap, GDP):
        return Filter(mu=cap.mu, relation=cap.relation)
    if isinstance(cap, ZCDP):
        if cap.xi:
            raise PrivcalcError(f"cap = {cap}: must have xi = 0")
        return Filter(rho=cap.rho, relation=cap.relation)
    if isinstance(cap, PureDP):
        return Filter(epsilon=cap.level, relation=cap.relation)
    assert isinstance(cap, RDP)
    return Filter(orders=cap.orders, epsilons=cap.epsilons, relation=cap.relation)


def entry_of(kind: str, mechanism: Mechanism, count: int) -> Json:
    """A charge, as an entry."""
    return {"type": kind, "mechanism": mechanism_to_json(mechanism), "count": count}


def as_run(name: str, value: object) -> Run | None:
    """A mechanism or a run as a run."""
    if value is None:
        return None
    if not isinstance(value, Questions):
        raise PrivcalcError(f"{name} = {value!r}: must be a mechanism or a run")
    return value.run
