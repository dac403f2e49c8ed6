"""What a ledger says: its terms, and what was charged under them; read from its entries one after another."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from privcalc import errors
from privcalc.errors import BudgetExceeded, Contradiction, PrivcalcError
from privcalc.ledger.assumptions import STATED, Assumptions, Provenance, Release, placed_by_word, run_of
from privcalc.ledger.rules import as_run
from privcalc.ledger.terms import EXACT, LATER, TRAINING, VERSION, Terms, mechanism_of
from privcalc.log.lines import check_digest, check_label, check_warning
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.sampler import Sampled, released
from privcalc.noise.grid import Grid, needed
from privcalc.run import Additive, Mechanism, Run
from privcalc.serial import Json, check_fields, mechanism_to_json

__all__ = ["Book"]

Draw = tuple[Mechanism, int, bool]

Use = tuple[Mechanism, Provenance]

Persons = tuple[str, str | None]
"""How to tell whose a row of a table is: by a column's name, by values without a name, or by the caller's word."""


@dataclass
class Book:
    """Terms and charges. ``charge`` refuses what the terms do not allow; nothing here touches a file.

    Attributes:
        terms: what it was opened for.
        uses: what was charged, reserved uses included, by mechanism and provenance.
        rule: what may still be charged.
        stopping: what the caller said about an early end.
        labels: of releases, each used once.
        warnings: what a run was warned of, each once.
        draws: the kinds of sums that were drawn: mechanism, number of coordinates, and whether the sum's error was
            bounded.
        elsewhere: in ledgers of old, steps whose batches other code draws, and runs in which it says whose turn it is.
        said: words of training that were said after the ledger was opened.
        begun: hashes of the certificates, of models of the same records, whose weights its training began from.
        persons: what questions to tables protect, the same for all of them; None before the first.
        budget: the reservation it spends from, in the budget of a data set; None if there is none.
    """

    terms: Terms
    uses: dict[Use, int] = field(default_factory=dict)
    stopping: str | None = None
    labels: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    draws: set[Draw] = field(default_factory=set)
    elsewhere: set[Mechanism] = field(default_factory=set)
    persons: Persons | None = None
    said: dict[str, str] = field(default_factory=dict)
    begun: dict[str, None] = field(default_factory=dict)
    budget: Json | None = None

    def __post_init__(self) -> None:
        self.rule = self.terms.rule()

    @property
    def closed(self) -> bool:
        """Whether a closing entry was read."""
        return self.rule.closed

    @classmethod
    def read(cls, entries: Iterable[Json]) -> Book:
        """From a ledger's verified entries.

        Raises:
            PrivcalcError: if they do not make sense.
            Contradiction: if they charge more than the terms allow.
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
        """Take in one more entry of the log."""
        if self.closed:
            raise PrivcalcError("the ledger goes on after its closing line")
        kind, later = entry.get("type"), self.terms.version >= VERSION
        if not isinstance(kind, str) or kind not in LATER:
            if later and isinstance(kind, str) and entry.get("optional") is True:
                return  # of a later version, which says that nothing is missed
            raise PrivcalcError(f"entry = {str(entry)[:200]}: its type must be one of {', '.join(LATER)}")
        lacks = {name: None for name in ("label", "provenance", "certificates") if name in LATER[kind]}
        entry = check_fields(kind, lacks | entry, LATER[kind], more=later)
        if kind == "close":
            self.check_end(entry["stopping"])
            self.stopping = entry["stopping"]
            self.rule.close()
        elif kind == "draw":
            mechanism = mechanism_of(entry["mechanism"])
            check_draw(mechanism, entry)
            self.draws.add(kind_of(mechanism, entry))
        elif kind == "batches":
            step = mechanism_of(entry["mechanism"])
            self.elsewhere.add(step if isinstance(step, CorrelatedGaussian) else sampled(step))
        elif kind == "said":
            self.check_said(entry["words"])
            self.said |= entry["words"]
            self.begun |= dict.fromkeys(map(check_digest, entry["certificates"] or ()))
        elif kind == "persons":
            if self.persons is not None or (entry["named"] == "column") == (entry["column"] is None):
                raise PrivcalcError(f"entry = {entry}: must say once how persons are named, with a column if by one")
            self.persons = entry["named"], entry["column"]
        elif kind == "warning":
            if check_warning(entry["text"]) in self.warnings:
                raise PrivcalcError(f"entry = {str(entry)[:200]}: must say once what the run was warned of")
            self.warnings[entry["text"]] = None
        elif kind == "marks":  # of earlier versions (digests.py)
            for each in entry["digests"]:
                check_digest(each, "[a-z]{1,20}:[0-9a-f]{32}")
        elif kind == "budget":
            if self.budget is not None or self.recorded.entries:
                raise PrivcalcError(
                    f"entry = {entry}: must say once, before the first charge, of which budget a ledger spends"
                )
            self.budget = entry
        elif kind != "resume":
            self._apply_charge(kind, entry)

    def _apply_charge(self, kind: str, entry: Json) -> None:
        """A line that reserves, records or returns."""
        mechanism, count = mechanism_of(entry["mechanism"]), errors.count("count", entry["count"], least=1)
        told = entry["provenance"]
        if told is None and self.terms.version >= VERSION:
            raise PrivcalcError(f"entry = {str(entry)[:200]}: must say its provenance")
        provenance = self._unsaid(mechanism, kind) if told is None else Provenance.from_json(told)
        if provenance.seen is (kind == "record"):
            raise PrivcalcError(
                f"entry = {str(entry)[:200]}: must record what other code draws, and reserve what the ledger draws"
            )
        if kind == "return":
            self.refund(mechanism, count, provenance)
            return
        self.check_label(entry["label"])
        try:
            self.charge(mechanism, count, provenance)
        except BudgetExceeded as error:  # what was charged cannot be refused any more
            raise Contradiction(str(error)) from error
        if entry["label"] is not None:
            self.labels[entry["label"]] = None

    def check_label(self, label: str | None) -> None:
        """Refuse a label that is no text, or was used before.

        Raises:
            PrivcalcError: if it is refused.
        """
        if label is not None and check_label(label) in self.labels:
            raise PrivcalcError(
                f"label = {label!r}: was used in this ledger already; each release has a label of its own, such as "
                "'2026-05 visits', and a second one of the same is charged again"
            )

    def check_said(self, words: object) -> None:
        """Refuse words of training that are none, or contradict what was said before.

        Raises:
            PrivcalcError: if they are refused.
        """
        Assumptions.from_json(words)
        assert isinstance(words, Mapping)
        for name, value in words.items():
            if name not in TRAINING or (known := self.declared.get(name, value)) != value:
                before = (
                    f"was said to be {known!r} before" if name in TRAINING else "must be said when the ledger is opened"
                )
                raise PrivcalcError(f"{name} = {value!r}: {before}")

    @property
    def declared(self) -> dict[str, str]:
        """What the caller said of the process."""
        return {**self.terms.assumptions.declared, **self.said}

    def _unsaid(self, mechanism: Mechanism, kind: str) -> Provenance:
        """What is known of a charge that does not say so, of a ledger before version 4."""
        if kind == "record":
            return STATED
        return Provenance(
            batch="stated" if placed_by_word(mechanism.run) else "drawn",
            noise="exact" if self.terms.noise == EXACT else "floating point",
        )

    def check_persons(self, persons: Persons) -> None:
        """Refuse a question to a table that protects others than those before it.

        Raises:
            PrivcalcError: if it is refused.
        """
        if self.persons not in (None, persons):
            given, before = (
                {"column": repr(column), "values": "values without a name", "word": "None"}[named]
                for named, column in (persons, self.persons)
            )
            raise PrivcalcError(
                f"person = {given}: this ledger's questions named persons by {before}; what is protected cannot change "
                f"within a ledger, so give person={before} again (rename the column, "
                "where the same persons' is called otherwise)"
            )

    def check_end(self, stopping: str | None) -> None:
        """Refuse a word that contradicts what was declared when the ledger was opened."""
        if stopping is not None:
            self.terms.assumptions.check(self.recorded, "recorded")

    @property
    def recorded(self) -> Run:
        """The run of all that was charged."""
        return run_of(self.releases)

    @property
    def drawn(self) -> dict[Mechanism, int]:
        """What the ledger draws of it."""
        return dict(run_of(self.releases, seen=True).entries)

    @property
    def releases(self) -> list[Release]:
        """The charges, and who did what of each: old lines are joined with what was said of them elsewhere."""
        bounded: dict[Mechanism, bool] = {}
        for mechanism, _, paid in self.draws:
            bounded[mechanism] = paid and bounded.get(mechanism, True)
        found: dict[Use, int] = {}
        for (mechanism, told), count in self.uses.items():
            known = told
            if told.seen and mechanism in self.elsewhere:
                known = dataclasses.replace(known, batch="stated")
            if told.seen and bounded.get(mechanism):
                known = dataclasses.replace(known, rounding="bounded")
            if count:
                found[mechanism, known] = found.get((mechanism, known), 0) + count
        return [Release(mechanism, count, provenance) for (mechanism, provenance), count in found.items()]

    def charge(self, mechanism: Mechanism, count: int, provenance: Provenance = STATED) -> None:
        """Charge ``count`` uses.

        Raises:
            BudgetExceeded: if the terms do not allow it: then nothing is charged.
            PrivcalcError: if the cap has no proof for the mechanism.
        """
        self.terms.check(mechanism)
        self.rule.charge(mechanism * count)
        self.uses[mechanism, provenance] = self.uses.get((mechanism, provenance), 0) + count

    def refund(self, mechanism: Mechanism, count: int, provenance: Provenance = STATED) -> None:
        """Take back uses that were reserved and never drawn."""
        had = self.uses.get((mechanism, provenance), 0)
        if count > had:
            raise PrivcalcError(f"mechanism = {mechanism}: {count} uses are returned, of {had} that were reserved")
        self.uses[mechanism, provenance] = had - count
        self.rule.refund(mechanism * count)


def drawn_as(mechanism: Mechanism) -> Additive:
    """What adds the noise, of a mechanism that is drawn on a grid, or sampled from one that is.

    Raises:
        PrivcalcError: if it is none.
    """
    inner = mechanism if isinstance(mechanism, Additive) else released(mechanism)
    if not isinstance(inner, Additive) or inner.whole:
        raise PrivcalcError(f"mechanism = {mechanism}: is not drawn on a grid")
    return inner


def sampled(mechanism: Mechanism) -> Sampled:
    """It, if it is one whose use has one batch.

    Raises:
        PrivcalcError: if not.
    """
    if not isinstance(mechanism, Sampled) or mechanism.batches > 1:
        raise PrivcalcError(
            f"step = {mechanism}: must be a sampled mechanism whose use has one batch, such as PoissonSampled"
        )
    return mechanism


def draw_of(mechanism: Mechanism, *, clip_norm: float, coordinates: int, error: float | None) -> tuple[Grid, Json]:
    """The grid of a sum, and the entry that says so.

    Raises:
        PrivcalcError: if there is none.
    """
    allowed = "a finite number >= 0 (at most 1e100)"
    paid = None if error is None else errors.real("error", error, allowed, low=0.0, high=1e100)
    return _draw_of(mechanism, float(clip_norm), coordinates, paid)


@functools.lru_cache(maxsize=16)
def _draw_of(mechanism: Mechanism, clip_norm: float, coordinates: int, error: float | None) -> tuple[Grid, Json]:
    """What nobody writes to: steps of a run ask for the same again and again."""
    noise, given = drawn_as(mechanism), 0.0 if error is None else error
    options: dict[str, Any] = {"clip_norm": clip_norm, "coordinates": _size(noise, coordinates), "error": given}
    grid = Grid.of(noise.multiplier, **options, norm=noise.norm, finer=noise.finer)
    public = {"clip_norm": clip_norm, "coordinates": coordinates, "error": error}
    return grid, {
        "type": "draw",
        "mechanism": _as_json(mechanism),
        **public,
        "exponent": grid.exponent,
        "scale": grid.scale,
    }


@functools.lru_cache(maxsize=16)
def _as_json(mechanism: Mechanism) -> Json:
    """What nobody writes to: steps of a run ask for the same again and again."""
    return mechanism_to_json(mechanism)


def _size(noise: Additive, coordinates: int) -> int:
    """As many coordinates snapped once move rows as far as these do, rounded as the strategy's encoder rounds them."""
    return math.ceil(coordinates * (1 + noise.blur) ** 2 * (1 + 1e-12)) if noise.blur else coordinates


def kind_of(mechanism: Mechanism, entry: Json) -> Draw:
    """The kind of sum that an entry is about: of each kind the first is written down.

    Clip norms may change with every step.

    The error of a sum over a batch counts as bounded if it is 0: a record outside of the batch could move it otherwise.
    """
    error, sampled = entry["error"], isinstance(mechanism, (Sampled, CorrelatedGaussian))
    return mechanism, entry["coordinates"], error is not None and not (sampled and error)


def check_draw(mechanism: Mechanism, entry: Json) -> None:
    """Refuse a draw with less noise than its grid needs.

    Raises:
        Contradiction: if it has less.
        PrivcalcError: if its numbers are none.
    """
    noise, bound = drawn_as(mechanism), errors.scale("clip_norm", entry["clip_norm"])
    size = _size(noise, errors.count("coordinates", entry["coordinates"]))
    error = errors.level("error", entry["error"] or 0.0)
    if not -2000 <= (exponent := entry["exponent"]) <= 2000:
        raise PrivcalcError(f"exponent = {exponent!r}: must be between -2000 and 2000")
    least = needed(noise.multiplier, clip_norm=bound, coordinates=size, error=error, norm=noise.norm, exponent=exponent)
    if errors.positive("scale", entry["scale"]) < least:
        raise Contradiction(f"draw = {str(entry)[:500]}: is less noise than what was charged needs on this grid")


def entry_of(kind: str, mechanism: Mechanism, count: int, provenance: Provenance, label: str | None = None) -> Json:
    """A charge, as an entry."""
    named = {} if label is None else {"label": label}
    told = {"mechanism": _as_json(mechanism), "count": count, "provenance": provenance.to_json()}
    return {"type": kind, **told, **named}


def uses_of(mechanism: Mechanism | Run, count: int = 1) -> Run:
    """What is charged: a run of at least one use.

    Raises:
        PrivcalcError: if it is none.
    """
    number, run = errors.count("count", count, least=1), as_run("mechanism", mechanism)
    if not run.entries:
        raise PrivcalcError(f"mechanism = {mechanism!r}: must be a mechanism or a run of some")
    return run * number
