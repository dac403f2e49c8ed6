"""What mechanisms share: how they are set and shown, and noise on a sum of contributions of bounded norm."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Literal

from privcalc.errors import PrivcalcError
from privcalc.pairs.dominating import Pairs
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["Additive", "ByNumber", "Grouped", "Shown"]

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
    def norm(self) -> Literal[1, 2]:
        """Which norm of a contribution is bounded: L1 or L2."""
        return 2

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
