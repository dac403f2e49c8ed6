"""Where routes are chosen: one table, climbed from the fastest route to the slowest until the answer is sharp enough.

Every route bounds δ(ε) of a direction with certainty, so that its answer may be met with what is known already, and the order
and all widths below decide about time and sharpness only. To add a route: a function that builds it, a row of ``LADDER``, and its
page in ``certificate/schema.py``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from privcalc.composition.aim import Aim, Built, Demand
from privcalc.composition.bound import FAIR, GOOD, POOR, STEEP, Bound, Widths
from privcalc.composition.direction import Uses
from privcalc.numerics.allocated import AllocationTransform
from privcalc.numerics.faces import SplitTransform, Transform
from privcalc.numerics.grouping import ScheduleTransform
from privcalc.numerics.mixed import MixedTransform
from privcalc.numerics.normal_loss import NormalLoss
from privcalc.numerics.routes import apart, contour, direct, jumps, lattice, smoothing
from privcalc.numerics.routes.atoms import enumerate_sums
from privcalc.numerics.routes.route import RouteFailed, TransformCounts
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.transforms import GaussianTransform

SHARPER = 2.0
"""A route is built anew only where what was built before is that many times less sharp than where it was meant for."""


FAILURES = 2
"""A route that failed so often, and was never built, is asked only where what slower ones built does not answer."""


class Kept(NamedTuple):
    """What was built for an earlier question of the same uses."""

    name: str
    """Of its route."""
    built: Built
    sharpness: float
    """How well it answered what it was built for (:meth:`Aim.sharpness`)."""
    point: tuple[float, float]
    """That question, as a point of the curve (:meth:`Aim.point`)."""


@dataclass
class Memory:
    """What earlier questions of the same uses leave for later ones."""

    kept: list[Kept] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    """How often each route failed."""

    def nearest(self, aim: Aim) -> list[Kept]:
        """What was built within reach, for the nearest question first; of equally near ones the last."""
        newest = [earlier for earlier in self.kept[::-1] if aim.quick or aim.distance(earlier.point) <= aim.reach]
        return sorted(newest, key=lambda earlier: aim.distance(earlier.point))

    def spares(self, route: str, aim: Aim, best: Bound) -> tuple[Bound, bool]:
        """What slower routes say that were built, and whether another try of a fast one, which always failed, can wait."""
        if aim.anew or self.failed[route] < FAILURES or any(earlier.name == route for earlier in self.kept):
            return best, False
        for earlier in self.nearest(aim):
            best = aim.met(best, earlier.built, earlier.name)
            if aim.content(best, SEVEN_DIGITS) or aim.sharpness(best) <= SHARPER * earlier.sharpness:
                return best, True
        return best, False


MANY = 1000
"""Uses from which jumps are faster than the lattice."""


class Route(NamedTuple):
    """A way to bound δ(ε), and how sharp its answer must be."""

    name: str
    """In ``Enclosure.route``; ``certificate.schema.ROUTES`` has its page."""
    applies: Callable[[Uses], bool]
    """Whether it is worth a try; building may fail even so."""
    build: Callable[[Uses, Demand], Built]
    """Raises RouteFailed where it cannot answer."""
    enough: Widths
    """With this width after it, no later route is asked."""
    settled: Widths
    """With this width, it is not planned again for the answer that it found."""
    tries: int = 3
    """How often it is planned at most; 1 where the answer does not depend on what was expected, or takes too long."""
    quick: bool = False
    """Whether it takes milliseconds only."""
    near: bool = False
    """Whether its plan wants to know about where the answer is: then the real axis is asked before."""


def _entries(uses: Uses) -> TransformCounts:
    return uses.transforms or []


def any_uses(_: Uses) -> bool:
    """Always."""
    return True


def transforms_known(uses: Uses) -> bool:
    """Every pair has a transform."""
    return uses.transforms is not None


def losses_with_atoms(uses: Uses) -> bool:
    """Transforms are known, not all of smooth losses: without atoms the lattice is sharper than the smoothed contour."""
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
    """One sampled Gaussian, with uses enough for the transform to decay: elsewhere the lattice is faster, and asked first."""
    return jumps_known(uses) and sum(count for _, count in _entries(uses)) >= MANY


def jumps_among_few(uses: Uses) -> bool:
    """One sampled Gaussian, with fewer uses."""
    return jumps_known(uses) and not jumps_among_many(uses)


def few_uses(uses: Uses) -> bool:
    """Few enough to compose them one convolution at a time."""
    return uses.number <= 20_000 and len(uses.each) <= 4


def by_contour(uses: Uses, demand: Demand) -> Built:
    """Inversion of the transform."""
    built, estimate = contour.build(_entries(uses), delta=demand.delta, epsilon=demand.epsilon)
    return Built(built.bounds, estimate)


def by_parts(uses: Uses, demand: Demand) -> Built:
    """Atoms by themselves, the rest on the contour."""
    built, estimate = apart.build(_entries(uses), delta=demand.delta, epsilon=demand.epsilon)
    return Built(built.bounds, estimate, rtol=1e-12)


def by_enumeration(uses: Uses, demand: Demand) -> Built:
    """All values of the loss."""
    law = enumerate_sums((pair.atoms, count) for pair, count in uses.each)
    return Built(law.bounds, 0.0 if demand.delta is None else law.guess(demand.delta))


def by_smoothing(uses: Uses, demand: Demand) -> Built:
    """The contour of the loss with a small Gaussian one added."""
    built, estimate = smoothing.build(_entries(uses), delta=demand.delta, epsilon=demand.epsilon)
    return Built(built.bounds, estimate, planned=estimate if demand.epsilon is None else None)


def by_jumps(uses: Uses, demand: Demand) -> Built:
    """A term for every number of large losses."""
    built, estimate = jumps.build(_entries(uses), delta=demand.delta, epsilon=demand.epsilon, known=demand.known)
    return Built(built.bounds, estimate)


def by_lattice(uses: Uses, demand: Demand) -> Built:
    """Losses rounded to a lattice, inverted by a Fourier transform."""
    built, estimate = lattice.build(
        list(uses.each),
        delta=demand.delta,
        epsilon=demand.epsilon,
        rtol=max(2e-7, 0.2 * demand.widths.epsilon),
        least=max(GOOD, 0.2 * demand.widths.delta),
        useless=demand.sharpness if demand.sharpness <= SIX_DIGITS.epsilon else math.inf,
        estimates=uses.estimates,
    )
    return Built(built.bounds, estimate)


def by_direct(uses: Uses, demand: Demand) -> Built:
    """Convolution, use by use, of losses rounded to a lattice."""
    if demand.epsilon == 0:
        raise RouteFailed("the window would be empty")
    if demand.epsilon is not None:
        built, estimate = direct.build(list(uses.each), epsilon=demand.epsilon)
    else:
        built, estimate = direct.build(list(uses.each), delta=demand.delta, known=demand.known)
    return Built(built.bounds, estimate, rtol=1e-10)


SEVEN_DIGITS, SIX_DIGITS = Widths(FAIR, STEEP * FAIR), Widths(10 * FAIR, 10 * STEEP * FAIR)

LADDER = (
    Route("contour", transforms_known, by_contour, enough=SEVEN_DIGITS, settled=Widths(GOOD, GOOD), quick=True),
    Route("atoms apart", atoms_apart, by_parts, enough=SEVEN_DIGITS, settled=Widths(GOOD, GOOD)),
    Route("enumeration", any_uses, by_enumeration, enough=SEVEN_DIGITS, settled=Widths(GOOD, 10 * FAIR), tries=1),
    # Where atoms keep the smoothed contour from being sharper, the lattice is wider yet.
    Route("smoothing", losses_with_atoms, by_smoothing, enough=SIX_DIGITS, settled=Widths(GOOD, 10 * FAIR)),
    Route("jumps", jumps_among_many, by_jumps, enough=SEVEN_DIGITS, settled=Widths(FAIR, 10 * FAIR), near=True),
    Route("lattice", any_uses, by_lattice, enough=SEVEN_DIGITS, settled=Widths(GOOD, 10 * FAIR)),
    Route("jumps", jumps_among_few, by_jumps, enough=SEVEN_DIGITS, settled=Widths(FAIR, 10 * FAIR), near=True),
)
"""From the fastest to the slowest."""

LAST = Route("direct", few_uses, by_direct, enough=Widths(10 * FAIR, POOR), settled=Widths(GOOD, 10 * FAIR), tries=1)
"""The slowest: asked only where neither the ladder nor the real axis left less than ``enough``."""


def climb(aim: Aim, best: Bound, memory: Memory) -> Bound:
    """The answer to ``aim`` from what is known and the routes that it takes; those that were built are added to ``memory``."""
    uses = aim.uses
    if aim.quick:  # a slow route that was built costs little
        slow = [earlier for earlier in memory.nearest(aim) if all(earlier.name != route.name for route in LADDER if route.quick)]
        for earlier in slow[:1]:
            best = aim.met(best, earlier.built, earlier.name)
    for route in LADDER:
        if route.applies(uses) and (route.quick or not aim.quick):
            best, spared = memory.spares(route.name, aim, aim.on_axis(best) if route.near else best)
            if not spared:
                best = _try(route, aim, best, memory)
            if aim.content(best, route.enough):
                break
    best = aim.on_axis(best)
    if LAST.applies(uses) and not aim.quick and not aim.content(best, LAST.enough) and best.upper < math.inf:
        best = _try(LAST, aim, best, memory)
    return best


def _try(route: Route, aim: Aim, best: Bound, memory: Memory) -> Bound:
    """Ask what was built before; else build for an estimate of the answer, and again for what was found, while that helps."""
    if not route.quick and not aim.anew:
        for earlier in [earlier for earlier in memory.nearest(aim) if earlier.name == route.name]:
            best = aim.met(best, earlier.built, route.name)
            if aim.content(best, route.enough) or aim.sharpness(best) <= SHARPER * earlier.sharpness:
                return best
    # Earlier routes, and what was built for other questions, may tell nearly all of the answer.
    expected = 0.5 * (best.lower + best.upper) if 0 < best.lower <= best.upper <= (1 + aim.near) * best.lower else None
    for _ in range(route.tries):
        try:
            built = route.build(aim.uses, aim.demand(expected, best))
        except RouteFailed:
            memory.failed[route.name] += 1
            break
        best = aim.met(best, built, route.name)
        memory.kept.append(Kept(route.name, built, aim.sharpness(best), aim.point(best)))
        if aim.settled(best, route.settled):
            break
        middle = 0.5 * (best.lower + best.upper)
        planned = expected if built.planned is None else built.planned
        if planned is not None and abs(middle - planned) <= aim.near * middle:
            break
        expected = middle
    return best
