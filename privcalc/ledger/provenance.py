"""Who did what of a release: a ledger writes it down with each charge.

All that a certificate assumes follows from it.

The names of values are in order, the strongest first: the last ones say that nothing was seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args, get_type_hints

from privcalc.errors import PrivcalcError
from privcalc.run import Mechanism, Run
from privcalc.serial import Field, Json, check_fields

__all__ = ["STATED", "Answered", "Provenance", "Release", "asked_by", "asking", "drawn", "run_of"]


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
    """

    sensitivity: Literal["derived", "clipped", "stated"] = "stated"
    batch: Literal["drawn", "stated"] = "stated"
    noise: Literal["exact", "floating point", "other code"] = "other code"
    rounding: Literal["bounded", "not counted"] = "not counted"
    divided: Literal["nothing", "public number", "noisy number", "stated"] = "stated"
    by: Literal["table question", "learner", "loader", "adapter", "caller"] = "caller"

    def __post_init__(self) -> None:
        check_fields("provenance", dataclasses.asdict(self), FIELDS)

    @property
    def seen(self) -> bool:
        """Whether the ledger drew what was released."""
        return self.noise != "other code"

    def to_json(self) -> Json:
        """As it is written down."""
        return {name: getattr(self, name) for name in FIELDS}

    @classmethod
    def from_json(cls, value: object) -> Provenance:
        """From what was written down, perhaps by a later version that knows more.

        Raises:
            PrivcalcError: if it is none.
        """
        found = check_fields("provenance", value, FIELDS, more=True)
        told = cls(**{name: found[name] for name in FIELDS})
        answered = told.by == "table question"
        if (told.sensitivity == "derived") != answered or (_by_ledger(told) and not told.seen):
            raise PrivcalcError(f"provenance = {str(value)[:300]}: contradicts itself; no ledger writes that")
        return told


class Answered(Provenance):
    """What a question to a table says of itself, and nothing else may say: the ledger derived it."""


FIELDS = {name: Field((str,), among=get_args(kind)) for name, kind in get_type_hints(Provenance).items()}
"""What it says, by name."""

STATED = Provenance()
"""All by the caller's word."""


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
