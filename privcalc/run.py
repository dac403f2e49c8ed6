"""Mechanisms and runs: what ran, its composition by ``*`` and ``+``, and every question that can be asked of it.

A mechanism is a frozen description of one release and never sees a count; a run is a flat multiset of (mechanism,
count).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import pkgutil
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from privcalc import errors
from privcalc.errors import PrivcalcError, Suggesting
from privcalc.questions import Questions
from privcalc.relation import REPLACE_ONE, Relation

if TYPE_CHECKING:  # a run is read and compared without the engine, which is asked for numbers only
    from privcalc.composition.ask import Answers
    from privcalc.composition.sides import Sides
    from privcalc.pairs.dominating import Pairs
    from privcalc.pairs.pair import Pair

__all__ = ["Additive", "ByNumber", "Grouped", "Mechanism", "Run", "Shown", "known"]


@dataclass(frozen=True)
class Run(Questions):
    """A composition: which mechanisms ran, and how often each; the order does not matter.

    Build it with ``mechanism * count``, ``+`` and ``sum``. ``run * 0`` is the empty run, for which every ε is 0.

    Attributes:
        entries: (mechanism, count) in a canonical order, each mechanism once, counts > 0.

    Example:
        >>> import privcalc as pc
        >>> run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 10_000 + pc.Gaussian(noise_multiplier=5.0)
        >>> print(run)
        10000 × PoissonSampled(mechanism=Gaussian(noise_multiplier=1.0), rate=0.01) + Gaussian(noise_multiplier=5.0)
    """

    entries: tuple[tuple[Mechanism, int], ...] = ()

    def __post_init__(self) -> None:
        merged: dict[Mechanism, int] = {}
        for mechanism, count in self.entries:
            merged[mechanism] = merged.get(mechanism, 0) + errors.count("count", count)
        entries = [(mechanism, count) for mechanism, count in merged.items() if count]
        if len(entries) > 1:
            entries.sort(key=lambda entry: (-entry[1], repr(entry[0])))
        object.__setattr__(self, "entries", tuple(entries))

    @property
    def run(self) -> Run:
        """The run itself, as of a mechanism."""
        return self

    @property
    def unit(self) -> str:
        """Whom its guarantee protects where nobody named the unit: clipping each record protects no person."""
        units = {mechanism.unit for mechanism, _ in self.entries}
        return units.pop() if len(units) == 1 else Mechanism.unit

    @classmethod
    def of(cls, parts: Iterable[Mechanism | Run]) -> Run:
        """Compose many parts at once: ``sum(parts)``, without its quadratic cost."""
        return cls(tuple(entry for part in parts for entry in part.run.entries))

    def __mul__(self, count: int) -> Run:
        number = errors.count("count", count)
        return Run(tuple((mechanism, n * number) for mechanism, n in self.entries))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism | Run) -> Run:
        if not isinstance(other, (Mechanism, Run)):
            return NotImplemented
        return Run(self.entries + other.run.entries)

    def __radd__(self, other: Mechanism | Run | int) -> Run:
        if isinstance(other, int) and not isinstance(other, bool) and other == 0:
            return self  # so that sum() works
        return self + other if isinstance(other, (Mechanism, Run)) else NotImplemented

    def __str__(self) -> str:
        """The entries, joined by +."""
        return " + ".join(f"{n} × {m}" if n > 1 else str(m) for m, n in self.entries) or "nothing"

    def _sides(self, relation: Relation) -> Sides:
        """The composed directions under a relation."""
        from privcalc.composition.sides import compose

        return compose(
            [(pairs, n * count) for mechanism, count in self.entries for pairs, n in mechanism.turns(relation)]
        )

    def _answers(self, relation: Relation, group_size: int = 1) -> Answers:
        from privcalc.composition.ask import Answers
        from privcalc.composition.sides import Group

        return Answers(self._sides, relation, Group(group_size, self._group) if group_size > 1 else None)

    def _group(self, relation: Relation, removed: int, added: int, total: int) -> Sides | None:
        """The same for two data sets that differ in so many records; None where only a chain of neighbours is known."""
        from privcalc.composition.sides import compose

        found = [(mechanism.group(relation, removed, added, total), count) for mechanism, count in self.entries]
        known = [(pairs, count) for pairs, count in found if pairs is not None]
        return compose(known) if len(known) == len(found) else None


BOUNDS = ("clip_norm", "candidates", "questions", "parts", "keys", "trials", "guarantee", "reports")
"""Lines of a certificate that bound what one record can change."""

NEEDS = (*BOUNDS, "normaliser", "monotone", "iterates")
"""All lines that the use of a mechanism may need; a scheme needs ``sampling`` by itself."""

Nulled = Literal["absent", "present"] | None

KINDS: dict[str, type[Mechanism]] = {}
"""The registry: mechanisms by their name in JSON. A class enters when it is defined."""

ENGINE = importlib.util.find_spec("privcalc.mechanisms") is not None
"""Not where a certificate is checked by ball arithmetic alone (``docs/verifier``): nothing is computed there."""

PARTS: dict[str, type] = {}
"""Values that mechanisms are made of, written down alike; ``privcalc.strategies`` enters its own."""


class Mechanism(Questions, metaclass=Suggesting):
    """One release. ``mechanism * n`` repeats it, ``a + b`` composes; both give a :class:`Run`.

    All questions of a run (``epsilon``, ``delta``, …) can be asked of a mechanism: it is a run of one.

    A class says all that the library must know of it; one that can be made and does not is refused when it is defined.

    Attributes:
        kind: its name in JSON, the class's own; None if it cannot be written down.
        page: the page in ``proofs/`` that its pairs rely on.
        unit: whom its guarantee protects where nobody names the unit.
        needs: what a certificate must say of its use, some of :data:`NEEDS`; one of :data:`BOUNDS` at least, but for
            samplers.
        draws: the method of a ledger that draws it and charges in one call; None if other code must.
        scheme: how batches are drawn that it is true of, in the words of certificates; None if it samples nothing.
        nulled: what a nulled record is to it, on which sampling under zero-out rests (``proofs/poisson.md``): "absent",
            its output has the law of that without it; "present", it may not. None: no sampler may go around it, as of a
            whole run, which says itself who takes part in which step.
    """

    kind: ClassVar[str | None]
    page: ClassVar[str]
    unit: ClassVar[str] = "one record"
    needs: ClassVar[tuple[str, ...]]
    draws: ClassVar[str | None]
    scheme: ClassVar[str | None]
    nulled: Nulled = None
    said: ClassVar[tuple[str, ...]] = ("kind", "page", "needs", "draws", "scheme")

    def __init_subclass__(cls, **words: object) -> None:
        super().__init_subclass__(**words)
        whole = not any(getattr(getattr(cls, name, None), "__isabstractmethod__", False) for name in dir(cls))
        for name in cls.said if whole else ():
            if not hasattr(cls, name):
                raise errors.PrivcalcError(f"{cls.__name__}: must say {name}, a class attribute of privcalc.Mechanism")
        if whole and (not isinstance(cls.needs, tuple) or not set(cls.needs) <= set(NEEDS)):
            raise errors.PrivcalcError(
                f"{cls.__name__}: needs = {cls.needs!r}: must be a tuple of some of {', '.join(NEEDS)}"
            )
        if whole and cls.scheme is None and not set(cls.needs) & set(BOUNDS):
            raise errors.PrivcalcError(
                f"{cls.__name__}: needs = {cls.needs!r}: must have one of {', '.join(BOUNDS)}, which says what "
                "bounds one record's part in it"
            )
        if whole and cls.draws == "batch" and cls.scheme is None:
            raise errors.PrivcalcError(f"{cls.__name__}: scheme = None: must say how its batches are drawn")
        if (kind := vars(cls).get("kind")) is not None:
            other = KINDS.get(kind, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise errors.PrivcalcError(
                    f"{cls.__name__}: kind = {kind!r}: is {other.__module__}.{other.__qualname__} already"
                )
            KINDS[kind] = cls  # that it is there already is one cell of a notebook, run twice

    @classmethod
    def of_json(cls, **arguments: Any) -> Mechanism:
        """The mechanism that JSON describes: by default what these arguments make."""
        return cls(**arguments)

    @abstractmethod
    def pairs(self, relation: Relation) -> Pairs:
        """The pairs under ``relation``; raises PrivcalcError where the mechanism has no guarantee under it."""

    def turns(self, relation: Relation) -> Sequence[tuple[Pairs, int]]:
        """The pairs that one use is composed of, and how often each: one, but for mechanisms that are whole runs."""
        return ((self.pairs(relation), 1),)

    def limits(self) -> dict[str, Any] | None:
        """As a cap: the arguments of the filter that keeps runs below it; None where no filter is proved."""
        return None

    @property
    def sampled(self) -> bool:
        """Whether it draws its own batches; such a mechanism cannot be sampled again."""
        return self.scheme is not None

    @property
    def batches(self) -> int:
        """The number of batches, and so of releases, in one use.

        It is 1, but for samplers that give each record its place in many steps.
        """
        return 1

    def expected_size(self, records: int) -> float:
        """How many of so many records a release sums on average: a number to divide by, public if ``records`` is.

        Raises:
            PrivcalcError: if it samples, and does not say how.
        """
        if self.sampled:
            raise errors.PrivcalcError(f"mechanism = {self}: does not say how large its batches are")
        return float(records)

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Symmetric pairs of two records under replace-one and Poisson sampling, by rising largest loss.

        They give lower ends.
        """
        return ()

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs | None:
        """The pairs of data sets that differ in ``removed`` records of the first and ``added`` ones of the second.

        At most so many each, and ``total`` together. Under replace-one both are the number of those replaced. None
        where they are not known: the rule for a chain of neighbours is the best bound.
        """
        from privcalc.pairs.dominating import Pairs
        from privcalc.pairs.gaussian import GaussianPair

        pairs = self.pairs(relation)
        if pairs.attained is not None or pairs.forward.gdp is None or pairs.backward.gdp != pairs.forward.gdp:
            return None
        # A chain of k neighbours, each step μ-GDP, is kμ-GDP (Dong, Roth, Su 2022, Theorem 2.14).
        steps = removed if relation is REPLACE_ONE else total
        if pairs.others.attains[1] + 1 < steps:
            return None  # the data set of which the pair is known has fewer records than the group
        pair = GaussianPair(steps * pairs.forward.gdp)
        return Pairs(pair, pair, others=pairs.others)

    @property
    def run(self) -> Run:
        """The run of one use."""
        return Run(((self, 1),))

    def _answers(self, relation: Relation, group_size: int = 1) -> Answers:
        return self.run._answers(relation, group_size)

    def __mul__(self, count: int) -> Run:
        return Run(((self, count),))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism | Run) -> Run:
        return self.run + other

    def __radd__(self, other: Mechanism | Run | int) -> Run:
        return self.run.__radd__(other)


_ARGUMENTS = {"level": "epsilon", "failure": "delta"}
"""Fields whose argument has the name of a question."""


class Shown(Mechanism):
    """A mechanism that is shown as the call that makes it, its arguments by name."""

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _arguments(self) -> str:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        shown = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        return ", ".join(
            f"{_ARGUMENTS.get(name, name)}={value!r}" for name, value in shown.items() if name != "relation"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._arguments()})"


class Grouped(Mechanism):
    """A mechanism that knows the pairs of data sets that differ in any number of records (``proofs/users.md``, §2)."""

    @abstractmethod
    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs:
        """As of any mechanism."""

    def pairs(self, relation: Relation) -> Pairs:
        """A replaced record is one removed and one added."""
        added = int(relation is REPLACE_ONE)
        return self.group(relation, 1, added, 1 + added)


class ByNumber(Grouped):
    """One to which it only matters how many they are, removed and added together."""

    @abstractmethod
    def apart(self, records: int) -> Pairs:
        """The pairs of data sets that differ in so many records."""

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs:
        return self.apart(total)


class Additive(Mechanism):
    """A sum of contributions of norm at most C, and noise of ``multiplier``·C in every coordinate."""

    needs = ("normaliser", "clip_norm")
    nulled: Nulled = "absent"

    def __init_subclass__(cls, **words: object) -> None:
        super().__init_subclass__(**words)
        if not {"normaliser", "clip_norm"} <= set(cls.needs):
            raise PrivcalcError(
                f"{cls.__name__}: needs = {cls.needs!r}: must have normaliser and clip_norm, as all noise on a sum"
            )

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """The noise's scale over C: a standard deviation, of Laplace noise the scale."""

    @property
    @abstractmethod
    def norm(self) -> Literal[1, 2]:
        """Which norm of a contribution is bounded: L1 or L2."""

    @property
    def finer(self) -> int:
        """By how many powers of two its noise is drawn on a finer grid than sums are rounded to."""
        return 0

    @property
    def blur(self) -> float:
        """By how much more than a sum's rounding moves it that of a coded row does, which is made of several sums."""
        return 0.0

    @property
    def whole(self) -> bool:
        """Whether sums and noise are whole numbers."""
        return False


def known() -> dict[str, type[Mechanism]]:
    """The registry of all mechanisms by their name in JSON, those included that nobody has asked for yet."""
    if ENGINE:
        _load()
    return KINDS


@functools.cache
def _load() -> None:
    package = importlib.import_module("privcalc.mechanisms")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
