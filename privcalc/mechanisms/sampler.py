"""Mechanisms that run on batches, and how the batches are drawn: a ledger draws what is accounted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.noise.source import Noise
from privcalc.relation import Relation
from privcalc.run import Mechanism, known

__all__ = [
    "RATE",
    "Batched",
    "Claimed",
    "Command",
    "Indices",
    "Option",
    "Sampled",
    "Sampler",
    "check_unsampled",
    "released",
]

Indices = NDArray[np.int64]

Sampler = Callable[[Noise], Sequence[Indices]]
"""Draws the batches of one use, in their order."""


REQUIRED: Any = object()
"""No default."""


class Option(NamedTuple):
    """One option by which the command line asks for a sampler's argument.

    Attributes:
        name: of the option, ``sample_rate`` for ``--sample-rate``.
        type: of its value.
        says: what it is.
        default: what it is if it is not given.
    """

    name: str
    type: type
    says: str
    default: Any = REQUIRED

    @property
    def help(self) -> str:
        """The help text of the option, with its default."""
        told = (
            "" if self.default is REQUIRED else f" (default {'all' if self.default is None else f'{self.default:g}'})"
        )
        return f"{self.says}{told}"


RATE: Option = Option("sample_rate", float, "probability with which each record takes part in a step, independently")


class Command(NamedTuple):
    """A sampler on the command line.

    Attributes:
        name: after ``--sampler``.
        words: what is assumed of the batches; the options fill it in.
        options: in the order in which the class takes them, after what runs on a batch.
        counted: what ``--steps`` counts, and of what; the options fill it in.
        unit: whom the relation is about.
    """

    name: str
    words: str
    options: tuple[Option, ...] = ()
    counted: tuple[str, str] = ("Gaussian step", "")
    unit: str = "record"


class Claimed(NamedTuple):
    """A sampler in a published claim.

    Attributes:
        name: what claims call it.
        says: what it is, for people.
        takes: the parameters of the claim, in the order in which the class takes them; ``steps`` are those of one
            epoch.
        counted: the parameter that says how often it ran.
        below: whether what is proved from below is of this sampler.
    """

    name: str
    says: str
    takes: tuple[str, ...] = ()
    counted: str = "steps"
    below: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        """The parameters without which there is no number."""
        return tuple(dict.fromkeys((*self.takes, self.counted)))


class Batched(Mechanism):
    """A mechanism that runs on batches, with the words in which people ask for it.

    Attributes:
        mechanism: what runs on a batch.
        command: what the command line calls it; None if it does not.
        claim: what claims call it; None if they do not.
    """

    needs = ()
    said: ClassVar[tuple[str, ...]] = (*Mechanism.said, "command", "claim")
    command: ClassVar[Command | None]
    claim: ClassVar[Claimed | None]

    mechanism: Mechanism

    @classmethod
    def on(cls, mechanism: Mechanism, *arguments: Any) -> Mechanism:
        """Return this sampler of ``mechanism``, with the arguments that people were asked for."""
        make: Callable[..., Mechanism] = cls
        return make(mechanism, *arguments)


def batched() -> list[type[Batched]]:
    """Return all classes of samplers, by name."""
    return [kind for _, kind in sorted(known().items()) if issubclass(kind, Batched)]


class Sampled(Batched):
    """A mechanism that says how its batches are drawn; what it says is what its pairs assume.

    Attributes:
        sized: whether all batches have one size, so that a record that comes takes the place of another.
    """

    draws = "batch"
    sized: ClassVar[bool] = False

    @abstractmethod
    def expected_size(self, records: int) -> float:
        """How many of so many records a batch has on average."""

    def fits(self, size: int) -> bool:
        """Whether a batch can have so many records."""
        return True

    @abstractmethod
    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """Return the sampler of one use's batches: indices below ``records``, all equally likely to be any record's.

        Args:
            records: how many there are; may be secret.
            relation: the neighbouring relation, where what may be drawn from depends on it.
            persons: whose each record is, for samplers that ask.

        Raises:
            PrivcalcError: if no batch can be drawn from so many; nothing was drawn then.
        """


def check_unsampled(mechanism: object) -> None:
    """Raise unless a sampling scheme may run ``mechanism`` on batches: not sampled itself, no whole run."""
    if not isinstance(mechanism, Mechanism) or mechanism.sampled:
        raise errors.PrivcalcError(f"mechanism = {mechanism!r}: must be a mechanism that is not itself sampled")
    if mechanism.nulled is None:
        raise errors.PrivcalcError(
            f"mechanism = {mechanism!r}: is a whole run, which says itself who takes part in which step; a sampler "
            "around it would draw once for all steps. Give it the participation CyclicPoisson or BallsInBins. (Of a "
            "class of your own that is none, say what a nulled record is to it: Mechanism.nulled)"
        )


def released(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism that a step releases: the one that runs on a batch, or the mechanism itself."""
    return mechanism.mechanism if isinstance(mechanism, Sampled) else mechanism
