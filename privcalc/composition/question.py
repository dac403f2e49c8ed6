"""What is asked of one direction: δ at an ε, or ε at a δ. The ladder of routes is the same for both.

A question is a value. It knows how to start (bounds that need no inversion), what a route that was laid says about it,
when that is enough, and its *neighbourhood*: a δ on a fixed grid, for which routes are laid. So what is laid for one
question serves others nearby, and yet no answer depends on what was asked before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from privcalc.composition.direction import FAIR, GOOD, POOR, SMALLEST, STEEP, Bound, Widths
from privcalc.numerics.solve import Bounds, crossing

if TYPE_CHECKING:
    from privcalc.composition.uses import Uses

FEW = 50
"""Uses below which the transform decays too slowly for jumps to be worth their time.

The lattice gives six digits there.
"""

FAR = (2, 5, 9, 14, 20, 27, 35, 44, 54, 65, 77, 90, 104, 119, 135, 152, 170, 189, 209, 230, 252, 275, 299)
"""Digits of the δ for which slow routes are laid: their distance, as that of the ε for them, grows with the digits."""

LARGE = 0.5
"""Above, log δ does not tell how far two questions are apart: each is a neighbourhood of its own."""


class Laid(NamedTuple):
    """A route that was laid: it bounds δ(ε) at every ε, most sharply near those that it was planned for."""

    bounds: Callable[[float], Bounds]
    guess: float
    """A first guess of the answer."""
    rtol: float = 1e-15
    """To which relative precision ε is searched; less sharply where each evaluation takes long."""
    planned: float | None = None
    """The answer that it was laid for, where the plan expected none and the guess served as well."""


@dataclass(frozen=True)
class _Asked:
    """What questions of both kinds have, of ``uses``, which are not part of them.

    Attributes:
        delta: δ: given, or where a route is laid expected, or None.
        epsilon: ε: the same.
        tolerance: relative width of ε below which no slow route is asked to do better.
        quick: whether the routes that take more than milliseconds are left out.
        rtol: a relative width of the answer that is enough, too.
    """

    delta: float | None = None
    epsilon: float | None = None
    tolerance: float = 0.0
    quick: bool = False
    rtol: float = 0.0


@dataclass(frozen=True)
class DeltaAt(_Asked):
    """δ(ε) at an ε ≥ 0; enough is, too, an absolute width of ``atol``, or an upper end of ``below``."""

    near: ClassVar[float] = 0.1
    """If the answer moved by no more than this, relative, no new plan is made."""
    anything: ClassVar[Bound] = Bound(0.0, 1.0, ("fallback",))
    """A probability."""
    atol: float = 0.0
    below: float = 0.0

    @property
    def at(self) -> float:
        """The ε that is asked at."""
        assert self.epsilon is not None
        return self.epsilon

    def start(self, uses: Uses) -> Bound:
        """From the real axis."""
        low, high = (side(self.at) for side in uses.sides)
        return Bound(low, high, ("fallback",))

    def neighbourhood(self, uses: Uses, *, slow: bool = False) -> Question:
        """The ε of a δ on the grid, as the saddle tells both; that δ for slow routes, which all questions share."""
        whole = replace(self, quick=False, atol=0.0, below=0.0, rtol=self.rtol if self.rtol > 10 * FAIR else GOOD)
        here = uses.saddle(self.at)
        if here is None or not math.log(SMALLEST) < here.log_delta <= math.log(LARGE):
            return whole
        if slow:
            # Where δ hardly changes with ε it is asked for more sharply than ε is.
            alone = self.at == 0 or (self.rtol <= GOOD and here.c * self.at < 1)
            return whole if alone else EpsilonAt(level(math.exp(here.log_delta), slow=True), tolerance=self.tolerance)
        there = uses.saddle_of(level(math.exp(here.log_delta)))
        return whole if there is None else replace(whole, epsilon=there.epsilon)

    def expecting(self, delta: float | None) -> Question:
        """The question where a route is laid that wants to know about the answer."""
        return replace(self, delta=delta)

    def moved(self, near: Question, answer: Bound) -> Question:
        """The same kind of question where a neighbourhood's routes are sharpest, given its answer: at its ε."""
        if near.epsilon is None and answer.upper < math.inf:
            return replace(self, epsilon=0.5 * (answer.lower + answer.upper))
        return replace(self, epsilon=near.epsilon or self.at)

    @property
    def widths(self) -> Widths:
        """The relative widths with which the asker is content: of δ."""
        return Widths(self.tolerance, max(self.rtol, STEEP * self.tolerance))

    def met(self, uses: Uses, best: Bound, laid: Laid, name: str) -> Bound:
        """The route at ε."""
        return best.meet(*laid.bounds(self.at), name)

    def settled(self, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates."""
        enough = best.width() <= max(width.delta, self.widths.delta)
        return enough or best.upper - best.lower <= self.atol or best.upper <= self.below

    def content(self, uses: Uses, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates, in ε, in δ, or absolutely."""
        enough = max(width.delta * max(1.0, self.tolerance / width.epsilon), self.widths.delta)
        atol = self.atol * max(1.0, width.delta / (STEEP * FAIR))  # as much more as of the relative width
        return best.width() <= enough or best.upper - best.lower <= atol or best.upper <= self.below

    def sharpness(self, best: Bound) -> float:
        """About the width relative to ε: δ falls by e^{−cε}, log 1/δ being about half of cε."""
        return best.width() / max(1.0, -2 * math.log(best.upper)) if best.upper > 0 else 0.0

    def on_axis(self, uses: Uses, best: Bound) -> Bound:
        """What the real axis adds after the ladder: nothing."""
        return best


@dataclass(frozen=True)
class EpsilonAt(_Asked):
    """The smallest ε ≥ 0 with δ(ε) ≤ δ, for δ > 0;"""

    near: ClassVar[float] = 0.01
    anything: ClassVar[Bound] = Bound(0.0, math.inf, ("fallback",))
    """Any ε."""

    @property
    def at(self) -> float:
        """The δ that is asked at."""
        assert self.delta is not None
        return self.delta

    def start(self, uses: Uses) -> Bound:
        """From above only: the two ends lie far apart, and the lower one takes longer."""
        high = uses.sides[1]
        end = invert(lambda e: (high(e),) * 2, self.at, uses.guess(self.at), rtol=1e-6)[1]
        return Bound(0.0, min(end, uses.top), ("fallback",))

    def neighbourhood(self, uses: Uses, *, slow: bool = False) -> EpsilonAt:
        """That of a δ on the grid."""
        delta = level(self.at, slow=slow) if self.at <= LARGE else self.at
        return EpsilonAt(delta, tolerance=max(self.tolerance, self.rtol))

    def expecting(self, epsilon: float | None) -> Question:
        """The question where a route is laid that wants to know about the answer."""
        return replace(self, epsilon=epsilon)

    def moved(self, near: Question, answer: Bound) -> Question:
        """The same at its δ."""
        return replace(self, delta=near.delta)

    @property
    def widths(self) -> Widths:
        """The relative widths with which the asker is content: of ε."""
        return Widths(max(self.tolerance, self.rtol), 0.0)

    def met(self, uses: Uses, best: Bound, laid: Laid, name: str) -> Bound:
        """The route inverted; where that leaves it wide, the lower end from the real axis too."""
        guess = min(max(laid.guess, best.lower), best.upper)
        best = best.meet(*invert(laid.bounds, self.at, guess, rtol=max(laid.rtol, 0.1 * self.rtol)), name)
        return self._from_below(uses, best) if best.width() > POOR else best

    def settled(self, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates."""
        return best.width() <= max(width.epsilon, self.widths.epsilon)

    def content(self, uses: Uses, best: Bound, width: Widths) -> bool:
        """Whether the width is at most the route's, or what the asker tolerates; six digits are enough of few uses."""
        six_digits = 10 * FAIR if uses.number < FEW else 0.0
        return best.width() <= max(width.epsilon, self.widths.epsilon, six_digits)

    def sharpness(self, best: Bound) -> float:
        """The relative width of ε."""
        return best.width()

    def on_axis(self, uses: Uses, best: Bound) -> Bound:
        """The lower end, if it was not asked for yet; the upper one without a rare event."""
        if best.width() > max(FAIR, self.widths.epsilon):
            best = self._from_below(uses, best)
        if best.width() > POOR and not self.quick:
            best = best.meet(best.lower, uses.on_axis(self.at, best.upper), "axis")
        return best

    def _from_below(self, uses: Uses, best: Bound) -> Bound:
        low = uses.sides[0]
        if best.lower > 0 and low(best.lower) <= self.at:
            return best  # one question instead of a search: the real axis says less
        least = invert(lambda e: (low(e),) * 2, self.at, uses.guess(self.at), uses.top, rtol=1e-9)[0]
        return best.meet(least, best.upper, "fallback")


Question = DeltaAt | EpsilonAt
"""What is asked of one direction."""


def level(delta: float, *, slow: bool = False) -> float:
    """The largest power of ten not above δ, as most δ are one.

    For slow routes, which reach farther, a power of ``FAR``.
    """
    digits = math.ceil(-math.log10(delta) - 1e-9)
    return float(f"1e-{next((far for far in FAR if far + (far > 2) >= digits), digits) if slow else digits}") or delta


def invert(
    bounds: Callable[[float], Bounds], delta: float, guess: float, top: float = math.inf, rtol: float = 1e-15
) -> Bounds:
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
