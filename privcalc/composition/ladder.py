"""Where routes are chosen: one table, climbed from the fastest route to the slowest until the answer is sharp enough.

Every route bounds δ(ε) of a direction with certainty, so that its answer may be met with what is known already, and the
order and all widths below decide about time and sharpness only. To add a route: a function that lays it, a row of
``LADDER``, and its page in ``certificate/schema.py``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from privcalc.composition.direction import FAIR, GOOD, POOR, STEEP, Bound, Widths
from privcalc.composition.question import Laid, Question
from privcalc.composition.uses import Uses
from privcalc.numerics.allocation import AllocationTransform
from privcalc.numerics.interfaces import RouteFailed, SplitTransform, Transform, TransformCounts
from privcalc.numerics.normal_loss import NormalLoss
from privcalc.numerics.routes import apart, contour, direct, jumps, lattice, smoothing
from privcalc.numerics.routes.atoms import enumerate_sums
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.schedule import ScheduleTransform
from privcalc.numerics.transforms import GaussianTransform, MixedTransform

SHARPER = 2.0
"""A route is laid for a question itself only where its neighbourhood's route says so many times less of it."""

KEPT = 64
"""Routes that are kept for the next question: those of some neighbourhoods."""

MANY = 1000
"""Uses from which jumps are faster than the lattice."""


class Route(NamedTuple):
    """A way to bound δ(ε), and how sharp its answer must be."""

    name: str
    """In ``Enclosure.route``; ``certificate.schema.ROUTES`` has its page."""
    applies: Callable[[Uses], bool]
    """Whether it is worth a try; laying it may fail even so."""
    lay: Callable[[Uses, Question, Bound], Laid]
    """For a question, and what is known of its answer; raises RouteFailed where it cannot answer."""
    enough: Widths
    """With this width after it, no later route is asked."""
    settled: Widths
    """With this width, it is not planned again for the answer that it found."""
    tries: int = 3
    """How often it is planned at most; 1 where the answer does not depend on what was expected, or takes too long."""
    quick: bool = False
    """Whether it takes milliseconds only."""
    cheap: bool = False
    """Whether it is laid for every question that is asked by itself: neighbourhoods are for searches only."""
    near: bool = False
    """Whether its plan wants to know about where the answer is: then the real axis is asked before."""


def _entries(uses: Uses) -> TransformCounts:
    return uses.transforms or []


def any_uses(_: Uses) -> bool:
    """Every direction may be asked."""
    return True


def transforms_known(uses: Uses) -> bool:
    """Every pair has a transform."""
    return uses.transforms is not None


def losses_with_atoms(uses: Uses) -> bool:
    """Whether transforms are known, not all of smooth losses.

    Without atoms the lattice is sharper than the smoothed contour.
    """
    return transforms_known(uses) and not all(_smooth(transform) for transform, _ in _entries(uses))


def atoms_apart(uses: Uses) -> bool:
    """Every loss has few atoms and a density."""
    return transforms_known(uses) and all(isinstance(transform, SplitTransform) for transform, _ in _entries(uses))


def _smooth(transform: Transform) -> bool:
    """A loss without atoms."""
    if isinstance(transform, MixedTransform):
        return _smooth(transform.usual) and _smooth(transform.rare)
    return isinstance(transform, (AllocationTransform, GaussianTransform, NormalLoss, ScheduleTransform))


def jumps_known(uses: Uses) -> bool:
    """One sampled Gaussian in the remove direction, among others with transforms."""
    sampled = [transform for transform, _ in _entries(uses) if isinstance(transform, SampledGaussianTransform)]
    return len(sampled) == 1 and not sampled[0].add


def jumps_among_many(uses: Uses) -> bool:
    """Whether it is one sampled Gaussian with uses enough for the transform to decay.

    Elsewhere the lattice is faster, and asked first.
    """
    return jumps_known(uses) and sum(count for _, count in _entries(uses)) >= MANY


def jumps_among_few(uses: Uses) -> bool:
    """One sampled Gaussian, with fewer uses."""
    return jumps_known(uses) and not jumps_among_many(uses)


def few_uses(uses: Uses) -> bool:
    """Few enough to compose them one convolution at a time."""
    return uses.number <= 20_000 and len(uses.each) <= 4


def by_contour(uses: Uses, asked: Question, _: Bound) -> Laid:
    """Inversion of the transform."""
    built, estimate = contour.build(_entries(uses), delta=asked.delta, epsilon=asked.epsilon)
    return Laid(built.bounds, estimate)


def by_parts(uses: Uses, asked: Question, _: Bound) -> Laid:
    """Atoms by themselves, the rest on the contour."""
    built, estimate = apart.build(_entries(uses), delta=asked.delta, epsilon=asked.epsilon)
    return Laid(built.bounds, estimate, rtol=1e-12)


def by_enumeration(uses: Uses, asked: Question, _: Bound) -> Laid:
    """All values of the loss."""
    law = enumerate_sums((pair.atoms, count) for pair, count in uses.each)
    return Laid(law.bounds, 0.0 if asked.delta is None else law.guess(asked.delta))


def by_smoothing(uses: Uses, asked: Question, _: Bound) -> Laid:
    """The contour of the loss with a small Gaussian one added."""
    built, estimate = smoothing.build(_entries(uses), delta=asked.delta, epsilon=asked.epsilon)
    return Laid(built.bounds, estimate, planned=estimate if asked.epsilon is None else None)


def by_jumps(uses: Uses, asked: Question, best: Bound) -> Laid:
    """A term for every number of large losses."""
    known = (best.lower, best.upper)
    built, estimate = jumps.build(_entries(uses), delta=asked.delta, epsilon=asked.epsilon, known=known)
    return Laid(built.bounds, estimate)


def by_lattice(uses: Uses, asked: Question, best: Bound) -> Laid:
    """Losses rounded to a lattice, inverted by a Fourier transform."""
    sharpness, widths = asked.sharpness(best), asked.widths
    built, estimate = lattice.build(
        list(uses.each),
        delta=asked.delta,
        epsilon=asked.epsilon,
        rtol=max(2e-7, 0.2 * widths.epsilon),
        least=max(GOOD, 0.2 * widths.delta),
        useless=sharpness if sharpness <= SIX_DIGITS.epsilon else math.inf,
        estimates=uses.estimates,
    )
    return Laid(built.bounds, estimate, planned=estimate if asked.epsilon is None else None)


def by_direct(uses: Uses, asked: Question, best: Bound) -> Laid:
    """Convolution, use by use, of losses rounded to a lattice."""
    if asked.epsilon == 0:
        raise RouteFailed("the window would be empty")
    if asked.epsilon is not None:
        built, estimate = direct.build(list(uses.each), epsilon=asked.epsilon)
    else:
        built, estimate = direct.build(list(uses.each), delta=asked.delta, known=(best.lower, best.upper))
    return Laid(built.bounds, estimate, rtol=1e-10)


SEVEN_DIGITS, SIX_DIGITS, SETTLED = Widths(FAIR, STEEP * FAIR), Widths(10 * FAIR, 10 * STEEP * FAIR), Widths(GOOD, GOOD)

LADDER = (
    Route("contour", transforms_known, by_contour, enough=SEVEN_DIGITS, settled=SETTLED, quick=True),
    Route("atoms apart", atoms_apart, by_parts, enough=SEVEN_DIGITS, settled=SETTLED, cheap=True),
    Route(
        "enumeration",
        any_uses,
        by_enumeration,
        enough=SEVEN_DIGITS,
        settled=Widths(GOOD, 10 * FAIR),
        tries=1,
        cheap=True,
    ),
    # Where atoms keep the smoothed contour from being sharper, the lattice is wider yet.
    Route("smoothing", losses_with_atoms, by_smoothing, enough=SIX_DIGITS, settled=Widths(GOOD, 10 * FAIR)),
    Route("jumps", jumps_among_many, by_jumps, enough=SEVEN_DIGITS, settled=Widths(FAIR, 10 * FAIR), near=True),
    Route("lattice", any_uses, by_lattice, enough=SEVEN_DIGITS, settled=Widths(GOOD, 10 * FAIR)),
    Route("jumps", jumps_among_few, by_jumps, enough=SEVEN_DIGITS, settled=Widths(FAIR, 10 * FAIR), near=True),
)
"""From the fastest to the slowest."""

LAST = Route("direct", few_uses, by_direct, enough=Widths(10 * FAIR, POOR), settled=Widths(GOOD, 10 * FAIR), tries=1)
"""The slowest route, asked only where no other left less than ``enough``.

Bounds that are not convex as they stand are such a case.
"""


class Ladder:
    """The routes of one direction, each laid at most once for a neighbourhood, whatever was asked before.

    Args:
        uses: the direction.
        routes: from the fastest to the slowest.
    """

    def __init__(self, uses: Uses, routes: Sequence[Route] | None = None) -> None:
        self.uses, self.routes = uses, LADDER if routes is None else routes
        self.last = LAST if routes is None and LAST.applies(uses) else None
        self._laid = functools.lru_cache(KEPT)(self._lay)
        self._start = functools.lru_cache(KEPT)(lambda question: question.start(uses))
        self._on_axis = functools.lru_cache(KEPT)(self._axis)

    def climb(self, question: Question, best: Bound | None = None) -> Bound:
        """The answer from what is known and from routes that are laid for its neighbourhood, the quick ones first."""
        uses = self.uses
        quick = [route for route in self.routes if route.quick and route.applies(uses)]
        found = best or question.anything
        if quick:
            found = self._near(question, question.neighbourhood(uses), found, quick)
            if question.content(uses, found, SEVEN_DIGITS):
                return found
        found = _meet(found, self._start(question))
        if not question.quick:
            slow = [route for route in self.routes if route.applies(uses)]
            # What is known to six digits already is known of this question only.
            own = question.sharpness(found) <= SIX_DIGITS.epsilon
            found = self._near(question, question if own else question.neighbourhood(uses, slow=True), found, slow)
        found = self._on_axis(question, found)
        if self.last is None or question.quick or question.content(uses, found, self.last.enough):
            return found
        return self._laid(self.last, question, found)[0]

    def _near(self, question: Question, near: Question, best: Bound, routes: Sequence[Route]) -> Bound:
        """With routes that are laid for ``near``; where they say much less of this question, with its own."""
        found = self._pass(question, near, best, routes)
        if _alike(question, near) or question.settled(found, SETTLED):
            return found
        there = self._pass(near, near, near.anything, routes)
        if near.content(self.uses, there, SEVEN_DIGITS) or not routes[-1].quick:
            moved = question.moved(near, there)
            if found.width() <= SHARPER * self._pass(moved, near, moved.anything, routes).width() < math.inf:
                return found
        if routes[-1].quick:
            return _meet(found, self._pass(question, question, question.anything, routes))
        return self._pass(question, question, found, routes)

    def _pass(self, question: Question, near: Question, best: Bound, routes: Sequence[Route]) -> Bound:
        """Climb the routes once, as laid for ``near``."""
        uses, same, started = self.uses, _alike(question, near), False
        there = near.anything
        for route in routes:
            if not route.quick and not started:
                there, started = _meet(there, self._start(near)), True
                best = _meet(best, self._start(near)) if same else best
            if route.near:
                best, there = self._on_axis(question, best), self._on_axis(near, there)
            if same or (route.cheap and question.rtol <= GOOD):
                best, _ = self._laid(route, question, best)
            else:
                there, laid = self._laid(route, near, there)
                for each in laid:
                    best = question.met(uses, best, each, route.name)
            if question.content(uses, best, route.enough):
                break
        return best

    def _axis(self, question: Question, best: Bound) -> Bound:
        return question.on_axis(self.uses, best)

    def _lay(self, route: Route, near: Question, best: Bound) -> tuple[Bound, tuple[Laid, ...]]:
        """Lay a route for an estimate of the answer, then for what was found, while that helps.

        Returns the best bound, and what is laid then.
        """
        # Earlier routes may tell nearly all of the answer.
        expected = (
            0.5 * (best.lower + best.upper) if 0 < best.lower <= best.upper <= (1 + near.near) * best.lower else None
        )
        laid: list[Laid] = []
        for _ in range(route.tries):
            try:
                laid.append(route.lay(self.uses, near.expecting(expected), best))
            except RouteFailed:
                break
            best = near.met(self.uses, best, laid[-1], route.name)
            middle, planned = 0.5 * (best.lower + best.upper), laid[-1].planned if expected is None else expected
            if near.settled(best, route.settled) or (
                planned is not None and abs(middle - planned) <= near.near * middle
            ):
                break
            expected = middle
        return best, tuple(laid)


def _alike(one: Question, other: Question) -> bool:
    """Whether they ask for the same, if not as sharply."""
    return (one.delta, one.epsilon) == (other.delta, other.epsilon)


def _meet(one: Bound, other: Bound) -> Bound:
    return other.meet(one.lower, one.upper, *one.routes)
