"""Who may take part when: the sets of steps ("patterns") in which one record may be.

Which of its patterns a record has may depend on anything but data; when a record leaves, the others keep theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from privcalc import errors

__all__ = ["BallsInBins", "CyclicPoisson", "FixedOrder", "MinSeparation", "Participation"]


@dataclass(frozen=True, init=False)
class MinSeparation:
    """At least ``separation`` steps from one participation to the next, and at most ``most`` of them.

    Args:
        separation: b ≥ 1; 1 allows every step.
        most: k ≥ 1, the largest number of steps; as many as there is room for if None. ``most=1``: a single epoch.

    Example:
        >>> from privcalc.strategies import MinSeparation
        >>> MinSeparation(separation=100).uses(steps=1000), MinSeparation(separation=100, most=4).uses(steps=1000)
        (10, 4)
    """

    separation: int
    most: int | None

    def __init__(self, separation: int, most: int | None = None) -> None:
        object.__setattr__(self, "separation", errors.count("separation", separation, least=1))
        object.__setattr__(self, "most", None if most is None else errors.count("most", most, least=1))

    def uses(self, steps: int) -> int:
        """The largest number of steps that a record is in."""
        room = 1 + (steps - 1) // self.separation
        return room if self.most is None else min(room, self.most)


@dataclass(frozen=True)
class FixedOrder:
    """Epochs that all go through the records in the same order.

    A record is in one step of each, always at the same place.

    Args:
        epoch: steps of one epoch.

    Example:
        >>> from privcalc.strategies import FixedOrder
        >>> FixedOrder(epoch=300).uses(steps=1000)
        4
    """

    epoch: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch", errors.count("epoch", self.epoch, least=1))

    @property
    def separation(self) -> int:
        """From one step of a record to its next."""
        return self.epoch

    def uses(self, steps: int) -> int:
        """The largest number of steps that a record is in: the number of epochs, begun ones included."""
        return 1 + (steps - 1) // self.epoch


@dataclass(frozen=True)
class CyclicPoisson:
    """Classes take turns, and each record of the class whose turn it is takes part by a coin of its own.

    Each record has one class for the whole run, by a rule that looks at no data, and keeps it when others leave.

    Args:
        classes: how many there are, b: step t is for class t mod b.
        rate: probability in (0, 1] that a record takes part in a step of its class.

    Example:
        >>> from privcalc.strategies import CyclicPoisson
        >>> CyclicPoisson(classes=4, rate=0.08).uses(steps=1000)
        250
    """

    classes: int
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", errors.count("classes", self.classes, least=1))
        object.__setattr__(self, "rate", errors.rate("rate", self.rate))

    @property
    def separation(self) -> int:
        """From one turn of a record to its next."""
        return self.classes

    def uses(self, steps: int) -> int:
        """The largest number of turns that a record has."""
        return 1 + (steps - 1) // self.classes


@dataclass(frozen=True)
class BallsInBins:
    """Each record has one of the places of an epoch, uniformly, by itself and in secret, and keeps it in all epochs.

    Args:
        bins: places of an epoch: step t is for bin t mod b.

    Example:
        >>> from privcalc.strategies import BallsInBins
        >>> BallsInBins(bins=100).uses(steps=1000)
        10
    """

    bins: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", errors.count("bins", self.bins, least=1))

    @property
    def separation(self) -> int:
        """From one step of a record to its next."""
        return self.bins

    def uses(self, steps: int) -> int:
        """The largest number of steps that a record is in."""
        return 1 + (steps - 1) // self.bins


Participation = MinSeparation | FixedOrder
"""What is known of all patterns, where no credit is taken for chance."""
