"""What is said of a process: by its caller, who is asked what no accountant can see, and by the ledger, of each charge.

The certificate lists what its run needs of both (``certificate/assumed.py``, ``proofs/assumptions.md``). What a
caller says is refused where it contradicts a proof; who did what of a release is written down with its charge.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Literal, NamedTuple, get_args, get_type_hints

from privcalc.errors import PrivcalcError
from privcalc.run import Mechanism, Run, known
from privcalc.serial import Field, Json, check_fields, parts

Origin = Literal["public", "released", "private"]
"""Where a value comes from: public constants and data; earlier noisy outputs, too; or private records otherwise."""

Start = Literal["public", "random", "released", "certificate", "private", "none"]

VOID = ("start", "preprocessing", "clip_norm")
"""What may be said to be private: then the certificate's ε is ∞, and it says why. Of all else that is refused."""

CAPS = ("GDP", "ZCDP", "RDP", "PureDP", "ApproxDP")


@dataclass(frozen=True)
class Assumptions:
    """What a caller declares of a process; None says nothing.

    Attributes:
        steps: what decides how many steps are taken, and when the run ends: "public" is fixed in advance; "released",
            by earlier outputs, needs a ledger's plan, which is then certified whole, or a cap.
        parameters: what the plan or cap, the noise multipliers, rates, numbers of records and batch sizes come from.
            "released" needs a cap.
        normaliser: what sums are divided by, or multiplied with, as learning rates, after the noise: "public" is a
            constant, "released" a noisy count, "private" the true one. (Under zero-out and replace-one the number of
            all records is public, that of a class is not.)
        clip_norm: the bound of a record's contribution, with which the noise scales; of a gate, the sensitivity of its
            questions. "private": ε is ∞.
        candidates: the candidates of a choice, the bounds of their scores, and K; of questions to tables, groups and
            edges too.
        monotone: "one way": a record can only raise scores, or only lower them (as counts), where a mechanism's price
            is of such scores: ``monotone=True``, and a ``TopK``.
        sampling: how batches are really drawn; must be what the mechanism assumes.
        parts: "disjoint": everything of one record (of one person, if that is the unit) is in one part of a
            ``Parallel`` only, which is refused without this word; months of the same customers are not. And so for the
            rows of the scores that are given to :meth:`Ledger.select`, which otherwise charges for each row.
        keys: "kept": nobody counts for more keys than a ``ThresholdedCounts`` says, nor twice for one.
        trials: "drawn": the number of trials of a ``RandomTrials`` was drawn from its distribution, independently of
            the data; all were made, and alike; the score is made of a trial's own private output and of public data;
            the best one only is released.
        iterates: "last only": of a ``LastIterate`` nothing but its last weights is ever released or looked at, its
            steps were fixed beforehand, and each contracts as it says.
        labels: what the labels of releases come from, which certificates publish: a loop over the groups that occur in
            private records tells which do.
        public_records: where records come from that are used without noise.
        start: where the first weights come from, those of frozen layers and those written by hand later: "random" (or
            zero); "public", of public data; "certificate", of a model of the same records, whose certificate is
            composed with this one ("released", as it was called before); "private", and ε is ∞; "none", nothing is
            trained.
        preprocessing: what was done to the records before they came here, beyond each by itself: "none"; scaled by
            "public" constants; by "released" ones; or by what was read off "private" records (their mean, say), and ε
            is ∞.
        copies: "none": no record is there twice, in the data or in what was joined to it.
        records_per_unit: "one": of each unit (person, household) there is one record only, or as many as the mechanism
            says.
        other_releases: whether anything else is released about these records that this certificate does not cover:
            "none"; or "composed", there is, and what counts is the composition of the certificates.

    Raises:
        PrivcalcError: if a value is unknown, or no proof allows it.

    Example:
        >>> import privcalc as pc
        >>> pc.certify(pc.Gaussian(20.0) * 206, delta=1e-5, assumptions=Assumptions(steps="released"))
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: steps = 'released': proofs/ledger.md takes a run without a ledger to be fixed
        in advance; open a Ledger with a plan or a cap
    """

    steps: Annotated[Origin | None, "ledger.md"] = None
    parameters: Annotated[Origin | None, "ledger.md"] = None
    normaliser: Annotated[Origin | None, "assumptions.md"] = None
    clip_norm: Annotated[Origin | None, "gaussian.md"] = None
    candidates: Annotated[Origin | None, "exponential.md"] = None
    monotone: Annotated[Literal["one way"] | None, "exponential.md"] = None
    sampling: Annotated[str | None, "poisson.md"] = None
    parts: Annotated[Literal["disjoint"] | None, "ledger.md"] = None
    keys: Annotated[Literal["kept"] | None, "thresholded_counts.md"] = None
    trials: Annotated[Literal["drawn"] | None, "tuning.md"] = None
    iterates: Annotated[Literal["last only"] | None, "last_iterate.md"] = None
    labels: Annotated[Origin | None, "ledger.md"] = None
    public_records: Annotated[Origin | None, "assumptions.md"] = None
    start: Annotated[Start | None, "assumptions.md"] = None
    preprocessing: Annotated[Literal["none", "public", "released", "private"] | None, "assumptions.md"] = None
    copies: Annotated[Literal["none"] | None, "assumptions.md"] = None
    records_per_unit: Annotated[Literal["one"] | None, "users.md"] = None
    other_releases: Annotated[Literal["none", "composed"] | None, "assumptions.md"] = None

    def __post_init__(self) -> None:
        for name, value in self.declared.items():
            allowed = schemes(known().values()) if name == "sampling" else VALUES[name]
            if not isinstance(value, str) or value not in allowed:
                raise PrivcalcError(f"{name} = {value!r}: must be one of {', '.join(map(repr, allowed))}, or None")
            if value == "private" and name not in VOID:
                raise PrivcalcError(
                    f"{name} = 'private': must be public or released, or proofs/{PAGES[name]} proves nothing"
                )

    @property
    def declared(self) -> dict[str, str]:
        """What was said, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, value: object) -> Assumptions:
        """The assumptions that a JSON object with some of the names says.

        Raises:
            PrivcalcError: if it is none, or a value is refused.
        """
        if not isinstance(value, Mapping) or not set(value) <= set(PAGES):
            raise PrivcalcError(f"assumptions = {value!r}: must be an object with some of {', '.join(PAGES)}")
        return cls(**value)

    @property
    def private(self) -> list[str]:
        """What is private, so that nothing is proved."""
        return [name for name in VOID if getattr(self, name) == "private"]

    def require(self, run: Run) -> None:
        """Refuse a new run that holds by the caller's word only, where that was not given.

        Args:
            run: what is planned, charged or certified.

        Raises:
            PrivcalcError: if it needs them apart, as ``Parallel`` does, and ``parts`` was not declared.
        """
        if self.parts is None and "parts" in needs(run):
            raise PrivcalcError(
                "parts = None: Parallel costs what its worst part does, and not the sum of all, only if nobody is in "
                "two parts, as the same customers are in two months; if so, declare it, "
                "assumptions=Assumptions(parts='disjoint'), and else compose the parts (a + b)"
            )

    def check(self, run: Run, basis: str, used: Run | None = None) -> None:
        """Refuse what contradicts the proof of a run.

        Args:
            run: what is certified.
            basis: of the certificate: "plan", "cap", "recorded" or "declared".
            used: what was charged, where that is known.

        Raises:
            PrivcalcError: with the page that is contradicted.
        """
        if self.steps == "released" and basis == "declared" and not _is_cap(run):
            raise PrivcalcError(
                "steps = 'released': proofs/ledger.md takes a run without a ledger to be fixed in advance; "
                "open a Ledger with a plan or a cap"
            )
        if self.steps == "released" and basis == "recorded":
            raise PrivcalcError("steps = 'released': contradicts stopping = 'output-independent' (proofs/ledger.md)")
        if self.parameters == "released" and not _is_cap(run):
            raise PrivcalcError(
                "parameters = 'released': proofs/ledger.md needs a cap, a plan is fixed before any output"
            )
        found = {kind.scheme: kind.page for kind in kinds(run, used) if kind.scheme is not None}
        if self.sampling is not None and (found or not _is_cap(run)) and set(found) != {self.sampling}:
            other = next((scheme for scheme in found if scheme != self.sampling), None)
            where = (
                "the run samples nothing"
                if other is None
                else f"proofs/{found[other]} is about batches drawn {other!r}"
            )
            raise PrivcalcError(f"sampling = {self.sampling!r}: {where}")


_HINTS = get_type_hints(Assumptions, include_extras=True)
VALUES = {name: get_args(get_args(hint.__origin__)[0]) for name, hint in _HINTS.items()}
"""What can be said of each; the first is taken for granted where nothing is said."""

PAGES: dict[str, str] = {name: hint.__metadata__[0] for name, hint in _HINTS.items()}
"""What can be declared, and the page that needs it."""


def check_type(value: object) -> Assumptions:
    """The value, if it is :class:`Assumptions`; an error otherwise."""
    if not isinstance(value, Assumptions):
        raise PrivcalcError(f"assumptions = {value!r}: must be Assumptions")
    return value


def every(*runs: Run | None) -> Iterator[Mechanism]:
    """All mechanisms, and what they are made of."""

    def of(mechanism: Mechanism) -> Iterator[Mechanism]:
        yield mechanism
        for part in parts(mechanism):
            yield from of(part)

    return (each for run in runs if run is not None for mechanism, _ in run.entries for each in of(mechanism))


def placed_by_word(run: Run) -> bool:
    """Whether no ledger draws who takes part when; versions before 4 did not say so of each charge."""
    return any(type(getattr(each, "participation", None)).__name__ == "MinSeparation" for each in every(run))


def kinds(*runs: Run | None) -> list[type[Mechanism]]:
    """The classes of all mechanisms, and of what they are made of, in order and once."""
    return list(dict.fromkeys(map(type, every(*runs))))


def needs_of(kind: type[Mechanism]) -> tuple[str, ...]:
    """What a certificate must say of a mechanism's use."""
    return kind.needs if kind.scheme is None else (*kind.needs, "sampling")


def needs(*runs: Run | None) -> set[str]:
    """The same of all mechanisms, and of what they are made of."""
    return {name for kind in kinds(*runs) for name in needs_of(kind)}


def schemes(among: Iterable[type[Mechanism]]) -> list[str]:
    """How their batches are drawn, each scheme once."""
    return sorted({kind.scheme for kind in among if kind.scheme is not None})


def _is_cap(run: Run) -> bool:
    """Whether the run is one stated guarantee, of all that happens."""
    return len(run.entries) == 1 and run.entries[0][1] == 1 and run.entries[0][0].kind in CAPS


@dataclass(frozen=True)
class Provenance:
    """Who did what of a release; without arguments, all is the caller's word.

    Attributes:
        sensitivity: who bounded what one record moves: derived by the ledger, from bounds and rows; clipped by our code
            (of a learner or a loader); or stated.
        batch: who drew it: the ledger; or stated.
        noise: exact, by the ledger; in floating point, by an old one; or by other code.
        rounding: whether the error of the sum was bounded, and paid.
        divided: what the sum was divided by: nothing; a public number, a noisy one, by our code; or stated.
        by: which code asked: a question to a table, a learner, a loader that takes each record's gradient itself, an
            adapter of a framework, or the caller's own.
        page: the proof page of the learner that asked; None of all else.
    """

    sensitivity: Literal["derived", "clipped", "stated"] = "stated"
    batch: Literal["drawn", "stated"] = "stated"
    noise: Literal["exact", "floating point", "other code"] = "other code"
    rounding: Literal["bounded", "not counted"] = "not counted"
    divided: Literal["nothing", "public number", "noisy number", "stated"] = "stated"
    by: Literal["table question", "learner", "loader", "adapter", "caller"] = "caller"
    page: str | None = None

    def __post_init__(self) -> None:
        check_fields("provenance", dataclasses.asdict(self), FIELDS)
        if self.page is not None and (self.by != "learner" or not re.fullmatch(r"[a-z0-9_]+\.md", self.page)):
            raise PrivcalcError(f"page = {self.page[:200]!r}: must be that of a learner, such as 'noisy_gd.md'")

    @property
    def seen(self) -> bool:
        """Whether the ledger drew what was released."""
        return self.noise != "other code"

    def to_json(self) -> Json:
        """As it is written down."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, value: object) -> Provenance:
        """From what was written down, perhaps by a later version that knows more.

        Raises:
            PrivcalcError: if it is none.
        """
        full = {"page": None, **value} if isinstance(value, Mapping) else value
        found = check_fields("provenance", full, FIELDS, more=True)
        told = cls(**{name: found[name] for name in FIELDS})
        answered = told.by == "table question"
        if (told.sensitivity == "derived") != answered or (_by_ledger(told) and not told.seen):
            raise PrivcalcError(f"provenance = {str(value)[:300]}: contradicts itself; no ledger writes that")
        return told


class Answered(Provenance):
    """What a question to a table says of itself, and nothing else may say: the ledger derived it."""


FIELDS = {name: Field((str,), among=get_args(kind)) for name, kind in get_type_hints(Provenance).items()}
FIELDS["page"] = Field((str, NoneType))
"""What it says, by name; a page that is None is left out."""

STATED = Provenance()
"""All by the caller's word."""

OUTPUT_INDEPENDENT = "output-independent"
"""The one way of stopping early under which what was recorded may be certified (``proofs/ledger.md``)."""


class Release(NamedTuple):
    """Uses of one mechanism of one provenance."""

    mechanism: Mechanism
    uses: int
    provenance: Provenance = STATED


def run_of(releases: Iterable[Release], *, seen: bool | None = None) -> Run:
    """What was released: by the ledger's drawing, by other code's, or both."""
    return Run(tuple((each.mechanism, each.uses) for each in releases if seen is None or each.provenance.seen is seen))


_ASKING: ContextVar[Provenance] = ContextVar("asking", default=STATED)
"""Of this thread (or task) alone."""


def asking() -> Provenance:
    """What the code that asks now says of itself; all is the caller's word, unless our own code said more."""
    return _ASKING.get()


@contextlib.contextmanager
def asked_by(told: Provenance) -> Iterator[None]:
    """Enter a call to a ledger by a learner, an adapter or a question to a table.

    It says who bounded what, and what it is divided by.

    This is no public name: what callers state is *stated*.

    Args:
        told: what that code does itself; what is drawn, derived or paid for the ledger writes down.

    Raises:
        PrivcalcError: if it says what the ledger alone can know.
    """
    before = _ASKING.set(_told(told))
    try:
        yield
    finally:
        _ASKING.reset(before)


@functools.lru_cache(maxsize=64)
def _told(told: Provenance) -> Provenance:
    """It, checked; steps of a run say the same again and again."""
    if not isinstance(told, Answered) and (_by_ledger(told) or told.by == "table question" or told.seen):
        raise PrivcalcError(
            f"told = {told!r}: must say who clipped and what divides, and by which code; what is drawn, derived, or "
            "paid for rounding, the ledger writes down itself"
        )
    return Provenance(**dataclasses.asdict(told))


@functools.lru_cache(maxsize=64)
def drawn(told: Provenance, *, batch: bool) -> Provenance:
    """What is written down where the ledger draws; steps of a run ask for the same again and again.

    Args:
        told: what the code that asks says, checked.
        batch: whether the ledger draws who takes part, too, or nobody does.
    """
    return dataclasses.replace(told, noise="exact", batch="drawn" if batch else "stated")


def _by_ledger(told: Provenance) -> bool:
    """Whether it says what only a ledger that draws does."""
    return told.sensitivity == "derived" or told.batch == "drawn" or told.rounding == "bounded"
