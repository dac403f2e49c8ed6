"""What is asked of one direction: δ at an ε, or ε at a δ. The ladder of routes is the same for both.

An aim knows how to start (bounds that need no inversion), how a route is planned for it, and what a built route says about it.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, NamedTuple

from privcalc.composition.bound import FAIR, POOR, STEEP, Bound, Widths
from privcalc.composition.direction import SMALLEST, Uses
from privcalc.composition.fallback import axis_epsilon, rough
from privcalc.numerics.solve import Bounds, crossing

FEW = 50
"""Uses below which the transform decays too slowly for jumps to be worth their time, where the lattice gives six digits."""


class Demand(NamedTuple):
    """For what a route is built."""

    delta: float | None
    """δ: given, or expected, or None."""
    epsilon: float | None
    """ε: the same."""
    known: Bounds
    """An interval of what is asked, from elsewhere."""
    widths: Widths
    """Relative widths with which the asker is content."""
    sharpness: float
    """Of what is known (:meth:`Aim.sharpness`)."""


class Built(NamedTuple):
    """A route that was built: it bounds δ(ε) at every ε, most sharply near those that it was planned for."""

    bounds: Callable[[float], Bounds]
    estimate: float
    """A first guess of the answer."""
    planned: float | None = None
    """The answer that it was laid for, where the plan expected none and the estimate served as well."""
    rtol: float = 1e-15
    """To which relative precision ε is searched; less sharply where each evaluation takes long."""


class Aim(ABC):
    """What is asked of ``uses``.

    Attributes:
        tolerance: relative width of ε below which no slow route is asked to do better.
        quick: whether the routes that take more than milliseconds are left out.
        anew: whether slow routes are built for this question, even where those of an earlier one are sharp enough.
    """

    near: ClassVar[float]
    """If the answer moved by no more than this, relative, no new plan is made."""

    reach: ClassVar[float] = math.inf
    """How far earlier questions may lie whose routes are asked again (:meth:`distance`)."""

    def __init__(self, uses: Uses, tolerance: float, quick: bool, anew: bool = False) -> None:
        self.uses, self.tolerance, self.quick, self.anew = uses, tolerance, quick, anew

    @abstractmethod
    def start(self) -> Bound:
        """What is known without any route."""

    @abstractmethod
    def demand(self, expected: float | None, best: Bound) -> Demand:
        """For a route; ``expected`` is the answer as it was found so far, None at first."""

    @abstractmethod
    def met(self, best: Bound, built: Built, name: str) -> Bound:
        """What is known when a route was built."""

    @abstractmethod
    def settled(self, best: Bound, width: Widths) -> bool:
        """Whether a route need not be planned again."""

    @abstractmethod
    def content(self, best: Bound, width: Widths) -> bool:
        """Whether no slower route need be asked."""

    @abstractmethod
    def point(self, best: Bound) -> tuple[float, float]:
        """About (ε, δ): where on the curve the question lies, when it was answered."""

    @abstractmethod
    def distance(self, point: tuple[float, float]) -> float:
        """How far an earlier question was from this one: what was built for the nearest is asked first."""

    @abstractmethod
    def sharpness(self, best: Bound) -> float:
        """The width as a relative one of ε, roughly: so that questions of both kinds compare."""

    def on_axis(self, best: Bound) -> Bound:
        """After the ladder: what the real axis adds where the routes left the answer wide."""
        return best


class DeltaAt(Aim):
    """δ(ε) at an ε ≥ 0, with widths that are enough, too, ``rtol`` and absolutely ``atol``, or an upper end of ``below``."""

    near = 0.1

    def __init__(
        self,
        uses: Uses,
        epsilon: float,
        tolerance: float,
        atol: float,
        quick: bool,
        anew: bool = False,
        below: float = 0.0,
        rtol: float = 0.0,
    ) -> None:
        super().__init__(uses, tolerance, quick, anew)
        self.epsilon, self.atol, self.below, self.rtol = epsilon, atol, below, max(rtol, STEEP * tolerance)

    def start(self) -> Bound:
        """From the real axis."""
        low, high = (side(self.epsilon) for side in rough(self.uses.pairs))
        return Bound(low, high, ("fallback",))

    def demand(self, expected: float | None, best: Bound) -> Demand:
        """ε is given."""
        widths = Widths(self.tolerance, self.rtol)
        return Demand(expected, self.epsilon, (best.lower, best.upper), widths, self.sharpness(best))

    def met(self, best: Bound, built: Built, name: str) -> Bound:
        """The route at ε."""
        return best.meet(*built.bounds(self.epsilon), name)

    def settled(self, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates."""
        return best.width() <= max(width.delta, self.rtol) or best.upper <= self.below

    def content(self, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates, in ε, in δ, or absolutely."""
        enough = max(width.delta * max(1.0, self.tolerance / width.epsilon), self.rtol)
        return best.width() <= enough or best.upper - best.lower <= self.atol or best.upper <= self.below

    def point(self, best: Bound) -> tuple[float, float]:
        """ε is given."""
        return self.epsilon, 0.5 * (best.lower + best.upper)

    def distance(self, point: tuple[float, float]) -> float:
        """In ε."""
        return abs(point[0] - self.epsilon)

    def sharpness(self, best: Bound) -> float:
        """δ falls by e^{−cε}, log 1/δ being about half of cε."""
        return best.width() / max(1.0, -2 * math.log(best.upper)) if best.upper > 0 else 0.0


class EpsilonAt(Aim):
    """The smallest ε ≥ 0 with δ(ε) ≤ δ, for δ > 0; ``rtol`` is a relative width that is enough, too."""

    near = 0.01
    reach = 5.0  # a search takes a hundred evaluations, and far from its question a route says little: to build another is faster

    def __init__(self, uses: Uses, delta: float, tolerance: float, quick: bool, anew: bool = False, rtol: float = 0.0) -> None:
        super().__init__(uses, max(tolerance, rtol), quick, anew)
        self.delta, self.rtol = delta, 0.1 * rtol
        self._sides = rough(uses.pairs)
        self._guess = uses.guess(delta)

    def start(self) -> Bound:
        """From above only: the two ends lie far apart, and the lower one takes longer."""
        high = self._sides[1]
        end = invert(lambda e: (high(e),) * 2, self.delta, self._guess, rtol=1e-6)[1]
        return Bound(0.0, min(end, self.uses.top), ("fallback",))

    @cached_property
    def _least(self) -> float:
        low = self._sides[0]
        return invert(lambda e: (low(e),) * 2, self.delta, self._guess, self.uses.top, rtol=1e-9)[0]

    def demand(self, expected: float | None, best: Bound) -> Demand:
        """δ is given."""
        return Demand(self.delta, expected, (best.lower, best.upper), Widths(self.tolerance, 0.0), self.sharpness(best))

    def met(self, best: Bound, built: Built, name: str) -> Bound:
        """The route inverted; where that leaves it wide, the lower end from the real axis too."""
        guess = min(max(built.estimate, best.lower), best.upper)
        best = best.meet(*invert(built.bounds, self.delta, guess, rtol=max(built.rtol, self.rtol)), name)
        return self._from_below(best) if best.width() > POOR else best

    def settled(self, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates."""
        return best.width() <= max(width.epsilon, self.tolerance)

    def content(self, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates; six digits are enough of few uses."""
        six_digits = 10 * FAIR if self.uses.number < FEW else 0.0
        return best.width() <= max(width.epsilon, self.tolerance, six_digits)

    def point(self, best: Bound) -> tuple[float, float]:
        """δ is given."""
        return 0.5 * (best.lower + best.upper), self.delta

    def distance(self, point: tuple[float, float]) -> float:
        """In log δ."""
        return abs(math.log(max(point[1], SMALLEST)) - math.log(self.delta))

    def sharpness(self, best: Bound) -> float:
        """The width."""
        return best.width()

    def on_axis(self, best: Bound) -> Bound:
        """The lower end, if it was not asked for yet; the upper one without a rare event."""
        if best.width() > max(FAIR, self.tolerance):
            best = self._from_below(best)
        if best.width() > POOR and not self.quick:
            best = best.meet(best.lower, axis_epsilon(self.uses.pairs, self.delta, best.upper), "axis")
        return best

    def _from_below(self, best: Bound) -> Bound:
        if best.lower > 0 and self._sides[0](best.lower) <= self.delta:
            return best  # one question instead of a search: the real axis says less
        return best.meet(self._least, best.upper, "fallback")


def invert(bounds: Callable[[float], Bounds], delta: float, guess: float, top: float = math.inf, rtol: float = 1e-15) -> Bounds:
    """Bounds of the crossing of δ(ε) with δ, at or above ε = 0; at most the largest loss ``top``."""
    bounds = functools.cache(bounds)
    guess = min(max(guess, 1e-12), 0.999 * top)
    # Where δ is surely larger at the guess, it is at 0.
    if not bounds(guess)[0] > delta and bounds(0.0)[1] <= delta:
        return 0.0, 0.0

    def ends(function: Callable[[float], Bounds], start: float, rtol: float) -> Bounds:
        return crossing(function, delta, min(max(start, 1e-12), 0.999 * top), 0.0, top, rtol)

    low, high = ends(bounds, guess, rtol)
    width = (high - low) / high if high < math.inf else 0.0
    if width > max(10 * FAIR, 10 * rtol):
        # The search stopped between the two, and stepped out by its own measure: each for itself is nearer.
        low = max(low, ends(lambda e: (bounds(e)[0],) * 2, low, 1e-3 * width)[0])
        high = min(high, ends(lambda e: (bounds(e)[1],) * 2, high, 1e-3 * width)[1])
    return low, high
