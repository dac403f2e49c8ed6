"""What a ledger was opened for, and the form of its entries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any

from privcalc import serial
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError, check_delta
from privcalc.ledger.assumptions import OUTPUT_INDEPENDENT, Assumptions, check_type
from privcalc.log.lines import LINE, check_digest
from privcalc.relation import Relation, check_relation
from privcalc.run import Mechanism, Run
from privcalc.serial import Field, Json, canonical, check_fields

if TYPE_CHECKING:  # terms are read without the engine
    from privcalc.ledger.rules import Filter, Rule

FORMAT, VERSION = "privcalc ledger", 4


READ = (2, 3, VERSION)
"""Versions that can be read, and gone on with.

Version 2 charged one use for all rows of a choice, declared disjoint or not; before version 4 a charge did not say its
provenance.
"""


TRAINING = ("start", "preprocessing", "copies", "records_per_unit", "clip_norm")
"""Words of training, which may be said when it begins."""


EXACT = "exact"
"""How this ledger draws (``proofs/executed_noise.md``); ledgers that do not say so drew in floating point."""


OPEN = {
    "type": Field((str,), among=("open",)),
    "format": Field((str,), among=(FORMAT,)),
    "version": Field((int,), among=READ),
    "relation": Field((str,)),
    "unit": Field((str,)),
    "plan": Field((list, NoneType)),
    "cap": Field((dict, NoneType)),
    "target": Field((dict, NoneType)),
    "public": Field((dict,)),
    "not_accounted": Field((list,)),
    "seeded": Field((bool,)),
    "assumptions": Field((dict,)),
    "noise": Field((str, NoneType), among=(EXACT, None)),
}
"""The first entry of a ledger; only later versions have others, which are kept, or must be known if they say so."""

_CHARGE = {"mechanism": Field((dict,)), "count": Field((int,)), "provenance": Field((dict, NoneType))}
_NAMED = {**_CHARGE, "label": Field((str, NoneType))}

LATER: dict[str, dict[str, Field]] = {
    kind: {"type": Field((str,)), **fields}
    for kind, fields in {
        "reserve": _NAMED,
        "return": _CHARGE,
        "record": _NAMED,
        "draw": {
            **{"mechanism": Field((dict,)), "clip_norm": Field((float,)), "coordinates": Field((int,))},
            **{"error": Field((float, NoneType)), "exponent": Field((int,)), "scale": Field((float,))},
        },
        "batches": {"mechanism": Field((dict,))},
        "said": {"words": Field((dict,)), "certificates": Field((list, NoneType))},
        "persons": {"named": Field((str,), among=("column", "values", "word")), "column": Field((str, NoneType))},
        "budget": {
            "dataset": Field((str,)),
            "reservation": Field((str,)),
            "lines": Field((int,)),
            "hash": Field((str,)),
        },
        "warning": {"text": Field((str,))},
        "marks": {"digests": Field((list,))},
        "resume": {},
        "close": {"stopping": Field((str, NoneType), among=(None, OUTPUT_INDEPENDENT))},
    }.items()
}
"""The fields of the other entries, by their type.

``label`` and ``certificates`` that are null are left out, and ``provenance`` before version 4; ``batches`` is of old
ledgers.
"""


@dataclass(frozen=True)
class Terms:
    """The terms of a ledger: exactly one of a plan, fixed in advance, or a cap, which holds whatever happens."""

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
    noise: str | None = EXACT

    def __post_init__(self) -> None:
        check_relation(self.relation)
        later = self.version >= VERSION  # what was written before is read as it is
        if not isinstance(self.unit, str) or not self.unit or (later and len(self.unit) > LINE):
            raise PrivcalcError(
                f"unit = {str(self.unit)[:200]!r}: must say what one record is, such as 'one training example', in 1 "
                f"to {LINE:,} characters"
            )
        if (self.plan is None) == (self.cap is None):
            raise PrivcalcError("must have exactly one of plan (fixed in advance) and cap (GDP, ZCDP, RDP or PureDP)")
        if self.cap is not None:
            filter_of(self.cap)
        if not isinstance(self.public, Mapping) or not all(isinstance(name, str) for name in self.public):
            raise PrivcalcError(f"public = {self.public!r}: must be an object: names with their values")
        missing = self.not_accounted
        texts = isinstance(missing, (list, tuple)) and all(isinstance(item, str) for item in missing)
        if not texts or (later and any(len(item) > LINE for item in missing)):
            raise PrivcalcError(
                f"not_accounted = {str(missing)[:200]}: must be a list of texts of at most {LINE:,} characters"
            )
        check_type(self.assumptions).check(self.bound, "plan" if self.cap is None else "cap")
        for mechanism, _ in self.bound.entries:
            mechanism.turns(self.relation)  # refuses what has no guarantee under the relation

    @property
    def bound(self) -> Run:
        """The run that dominates whatever may happen."""
        if self.plan is not None:
            return self.plan
        assert self.cap is not None
        return self.cap.run

    def rule(self) -> Rule:
        """What may be charged, from the beginning."""
        from privcalc.ledger.rules import Plan

        if self.plan is not None:
            return Plan(self.plan)
        assert self.cap is not None
        return filter_of(self.cap)

    def check(self, mechanism: Mechanism) -> None:
        """Refuse what contradicts the assumptions, of which a plan was checked whole.

        Raises:
            PrivcalcError: with the page that is contradicted.
        """
        if self.cap is not None:
            self.assumptions.check(self.bound, "cap", mechanism.run)

    def check_target(self) -> None:
        """A charge past the plan or cap is refused; so the target need be checked against these only, once."""
        from privcalc.calibration.target import target as aim_of

        target = self.target
        if target is None:
            return
        if private := self.assumptions.private:
            raise PrivcalcError(f"target = {target}: cannot be met, as {private[0]} = 'private' leaves no guarantee")
        if not isinstance(target, Guarantee) or target.relation is not self.relation:
            raise PrivcalcError(f"target = {target}: must be a Guarantee under {self.relation}")
        if target.delta is not None:
            check_delta(target.delta, self.public.get("records"))
        aim = aim_of(target)
        if not aim.meets(self.bound):
            raise PrivcalcError(
                f"target = {target}: the {'plan' if self.plan is not None else 'cap'} has {aim.achieved(self.bound)}"
            )

    def to_json(self) -> Json:
        """The log's first entry, which says the terms."""
        told = {name: getattr(self, name) for name in OPEN if name not in {"type", "format"}}
        told |= {name: write(told[name]) for name, (write, _) in FORMS.items() if told[name] is not None}
        return {"type": "open", "format": FORMAT, **told}

    @classmethod
    def from_json(cls, entry: Json) -> Terms:
        """From the first entry."""
        if entry.get("type") != "open" or entry.get("format") != FORMAT:
            raise PrivcalcError("the first line is not that of a privcalc ledger")
        found = check_fields("the first line", {"noise": None, **entry}, OPEN, more=entry.get("version") == VERSION)
        told = {name: found[name] for name in OPEN if name not in {"type", "format"}}
        told |= {name: read(told[name]) for name, (_, read) in FORMS.items() if told[name] is not None}
        if told["target"] is not None:
            told["target"] = serial.target_from_json(told["target"], told["relation"])
        return cls(**told)


@functools.lru_cache(maxsize=1024)
def _mechanism(text: str) -> Mechanism:
    return serial.mechanism_from_json(serial.parse(text.encode(), "mechanism"))


def mechanism_of(value: object) -> Mechanism:
    """The mechanism of a description; each is read once, because that is slow."""
    return _mechanism(canonical(value))


FORMS: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "relation": (str, serial.relation_from_json),
    "plan": (serial.run_to_json, serial.run_from_json),
    "cap": (serial.mechanism_to_json, mechanism_of),
    "target": (serial.target_to_json, dict),
    "public": (dict, dict),
    "not_accounted": (list, list),
    "assumptions": (lambda said: said.declared, Assumptions.from_json),
}
"""How fields are written, and read, that are no JSON themselves."""


def certificates_of(start: object, terms: Terms) -> list[str]:
    """The hashes of the certificates that a start has, if it is one, of the parts if that is a composition; else none.

    Raises:
        PrivcalcError: if it could not be composed with what has these terms.
    """
    document = getattr(start, "document", None)
    if document is None:
        return []
    if (document["relation"], document["unit"]) != (str(terms.relation), terms.unit):
        raise PrivcalcError(
            f"start: must be certified under {terms.relation} for {terms.unit!r}, to be composed with this ledger's; "
            f"not under {document['relation']} for {document['unit']!r}"
        )
    return [check_digest(part["hash"]) for part in document["parts"] or [document]]


def filter_of(cap: Mechanism) -> Filter:
    """The filter that a cap stands for.

    Raises:
        PrivcalcError: if it is no cap, or none is proved for it.
    """
    from privcalc.ledger.rules import Filter

    limits = cap.limits() if isinstance(cap, Mechanism) else None
    if limits is None:
        raise PrivcalcError(f"cap = {cap!r}: must be GDP, ZCDP, RDP or PureDP; no filter is proved for other budgets")
    return Filter(**limits)
