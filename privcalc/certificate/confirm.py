"""Whether δ(ε) ≤ δ, by other code than the engine's, where there is some.

Runs of (Poisson-sampled) Gaussians are checked by their moment bound, where that is below what is claimed, else with mpmath in
50-digit arithmetic; guarantees known by their moments with the tight conversion in mpmath; choices alone by all strategies of a
coarse grid; other runs by the lattice, which is named the engine's where the engine had it, too. What each answer means:
``proofs/certificate.md``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp, mpf

from privcalc.composition.curve import Curve
from privcalc.composition.direction import Direction, Leak, max_loss, merge, split_leaks
from privcalc.composition.fallback import Moments
from privcalc.errors import Contradiction, PrivcalcError
from privcalc.numerics.floats import UNIT
from privcalc.numerics.routes import lattice
from privcalc.numerics.routes.route import RouteFailed
from privcalc.pairs.choices import ChoicesPair
from privcalc.pairs.gaussian import OppositeGaussianPair
from privcalc.pairs.pair import Pair
from privcalc.pairs.sampled import SampledPair
from privcalc.reference import choices_delta
from privcalc.reference import steps as reference
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.run import Run

DIGITS = 16
"""Of δ in mpmath."""

SHARP = 8e-7
"""Relative width of ε, roughly, to which a lattice that was built for another ε serves; those within 0.2 % it serves anyway."""


class Found(NamedTuple):
    """Bounds of δ(ε) of one direction, and by what."""

    lower: float
    upper: float
    route: str


class Others:
    """Bounds of δ(ε) of directions, without the contour, the closed forms and the convolutions of the engine.

    Args:
        claimed: the (ε, δ) that will be asked first, of each direction: together they take little more time than one.
    """

    def __init__(self, claimed: Sequence[tuple[float, float]]) -> None:
        self.claimed = claimed
        self._known: dict[tuple[Direction, float], Found] = {}
        self._lattices: dict[Direction, list[tuple[lattice.Lattice, float]]] = {}
        self._bound = functools.cache(_moment_bound)

    def at(self, direction: Direction, epsilon: float, enough: float = 0.0) -> Found:
        """Bounds of δ(ε): a quick one, if it shows δ(ε) ≤ enough, or sharp ones."""
        if (direction, epsilon) not in self._known:
            if (quick := self._bound(direction, epsilon)).upper <= enough:
                return quick
            together = {e for e, delta in self.claimed if not self._bound(direction, e).upper <= delta}
            found = self._find(direction, sorted(together if epsilon in together else [epsilon], reverse=True))
            self._known |= {(direction, point): one for point, one in found.items()}
        return self._known[direction, epsilon]

    def _find(self, direction: Direction, points: list[float]) -> dict[float, Found]:
        rest, leak = split_leaks(direction)
        pairs = merge(rest)
        if not pairs:
            return dict.fromkeys(points, Found(leak.lower, leak.upper, "exactly"))
        found, route = {}, ""
        only, entries = pairs[0][0], [_gaussian(pair, count) for pair, count in pairs]
        if any(pair.moments_only for pair, _ in pairs):
            route, found = "tight conversion, mpmath", {e: (0.0, _by_moments(pairs, e)) for e in points}
        elif len(pairs) == 1 and isinstance(only, ChoicesPair):
            route, found = "no route", dict.fromkeys(points, (0.0, 1.0))  # a lattice would ask the engine's own table
            with contextlib.suppress(ArithmeticError):
                if pairs[0][1] == 1 and len(only.levels) == 1:  # played twice it is not a game of twice as many choices
                    (level,) = only.levels
                    route, found = "every strategy of a coarse grid", {e: choices_delta(*level, e) for e in points}
        elif all(entries):
            with contextlib.suppress(ArithmeticError):
                values = _reference([entry for entry in entries if entry], points, _order(pairs))
                off = mpf(10) ** (1 - DIGITS)
                ends = [(float(value * (1 - off)), float(value * (1 + off))) for value in values]
                route, found = "mpmath", dict(zip(points, ends, strict=True))
        if found:
            return {epsilon: Found(*leak.delta(found[epsilon]), route) for epsilon in points}
        if len(points) > 1 and all(entries):
            return {epsilon: self._find(direction, [epsilon])[epsilon] for epsilon in points}  # some may be easy
        return {epsilon: self._by_lattice(pairs, leak, epsilon) for epsilon in points}

    def _by_lattice(self, pairs: Direction, leak: Leak, epsilon: float) -> Found:
        """One that was built for another ε, if it is sharp enough here, or a new one."""
        route = "the engine's lattice once more" if any(pair.transform is None for pair, _ in pairs) else "lattice"
        kept = self._lattices.setdefault(pairs, [])
        for built, own in kept:
            low, high = built.bounds(epsilon)
            steep = max(1.0, -2 * math.log(high)) if high > 0 else 1.0  # δ falls by e^{−cε}, log 1/δ being about half of cε
            if high - low <= SHARP * steep * high or abs(epsilon - own) <= 2e-3 * own:
                return Found(*leak.delta((low, high)), route)
        try:
            built, _ = lattice.build(list(pairs), epsilon=epsilon)
        except RouteFailed:
            if epsilon > max_loss(pairs) * (1 + 16 * UNIT):
                return Found(*leak.delta((0.0, 0.0)), "the largest loss")
            return Found(0.0, 1.0, "no route")
        kept.append((built, epsilon))
        return Found(*leak.delta(built.bounds(epsilon)), route)


def confirm(run: Run, relation: Relation, epsilon: float, delta: float, others: Others | None = None) -> str:
    """How δ(ε) ≤ δ was confirmed: by other code than the engine's, or it is said that there was none.

    Args:
        run: what is claimed to be private.
        relation: the neighbouring relation.
        epsilon: ε.
        delta: δ.
        others: made for all ε that are asked of the run, where there are several.

    Raises:
        Contradiction: if δ(ε) > δ was shown.
    """
    sides, at = run._sides(relation), (others or Others([(epsilon, delta)])).at
    for direction in sides.lower:
        low, _, route = at(direction, epsilon, delta)
        if low > delta * (1 + 1e-12) + 1e-320:
            raise Contradiction(f"epsilon = {epsilon!r} at delta = {delta!r}: is too small, δ(ε) is at least {low!r} ({route})")
    near = ((1.0, ""), (1 + 1e-6, ", ε to 1e-6"))
    for steps in (near, ((1 + 1e-3, ", ε to 1e-3"),)):
        # What takes least first: what occurs was asked above, and serves for an ε nearby.
        for side, (factor, how) in itertools.product((sides.upper, sides.other), steps):
            results = [at(direction, factor * epsilon, delta) for direction in side]
            if results and all(found.upper <= delta for found in results):
                return ", ".join(dict.fromkeys(found.route for found in results)) + how
        for factor, how in steps if relation is REPLACE_ONE else ():
            if _by_group(run, factor * epsilon, delta, at):
                return "group rule, mpmath" + how
    return "by the engine alone; the other routes neither confirm nor refute it"


def _moment_bound(direction: Direction, epsilon: float) -> Found:
    """An upper bound of δ(ε) for Gaussians, in milliseconds; for other pairs it says nothing."""
    rest, leak = split_leaks(direction)
    pairs = merge(rest)
    entries = [_gaussian(pair, count) for pair, count in pairs]
    known = [entry for entry in entries if entry]
    if not known or len(known) < len(entries):
        return Found(0.0, 1.0, "no route")
    (bound,) = reference.run_bounds(known, [epsilon], _order(pairs))
    return Found(*leak.delta((0.0, bound)), "moment bound")


def _reference(entries: list[reference.Entry], points: list[float], direction: reference.Direction) -> list[Any]:
    """One sampled step by quadrature or a root; a transform that decays slowly, of a few rare steps, is left to the lattice."""
    noise, rate, count = entries[0]
    if len(entries) == 1 and count == 1 and float(rate) < 1:
        return [reference.one_step_delta(float(noise), float(rate), epsilon, direction) for epsilon in points]
    if direction == "replace":
        slow = not _slope(entries) > (0.09 if importlib.util.find_spec("flint") is None else 0.002)
    else:
        slow = sum(n for _, _, n in entries) < 10 and all(float(q) < 1 for _, q, _ in entries)
    if slow:
        raise ArithmeticError("too few steps for the contour integral to be fast")
    return reference.run_deltas(entries, points, direction, DIGITS)


def _slope(entries: list[reference.Entry]) -> float:
    """The slope of the summed loss at t = 0, for opposite records: |M(c + iu)| begins to fall where u is about its inverse."""
    total = 0.0
    for noise, rate, count in entries:
        q, mu = float(rate), 1 / float(noise)
        stay = (1 - q) * math.exp(min(mu * mu / 2, 700.0))
        total += count * (mu if q == 1 else 2 * mu * q / (stay + q)) ** 2
    return math.sqrt(total)


def _gaussian(pair: Pair, count: int) -> reference.Entry | None:
    """(noise multiplier, rate, count) of a Gaussian, sampled or not."""
    if isinstance(pair, OppositeGaussianPair):
        return 1 / pair.mu, pair.rate, count
    base, rate = (pair.base, pair.rate) if isinstance(pair, SampledPair) else (pair, 1.0)
    return (1 / base.gdp, rate, count) if base.gdp else None


def _order(pairs: Direction) -> reference.Direction:
    """Which of the reference's directions the sampled ones take; without any it does not matter."""
    if any(isinstance(pair, OppositeGaussianPair) for pair, _ in pairs):
        return "replace"
    return "add" if any(isinstance(pair, SampledPair) and pair.add for pair, _ in pairs) else "remove"


def _by_moments(pairs: Direction, epsilon: float) -> float:
    """e^{K(c) − cε}·c^c/(1 + c)^{1+c} in mpmath, at the best c of a grid; any c gives a valid bound."""
    moments = Moments(pairs)
    with mp.workdps(30):

        def log_delta(c: float, k: float) -> Any:
            x = mpf(c)
            return mpf(k) - x * mpf(epsilon) + x * mp.log(x) - (1 + x) * mp.log(1 + x)

        points = sorted((log_delta(c, k), c) for c, k in zip(moments.grid, moments.k, strict=True) if math.isfinite(k))[:3]
        if not points:
            return 1.0
        fine = np.linspace(0.8 * min(c for _, c in points), 1.25 * max(c for _, c in points), 2001)
        best = min(log_delta(float(c), float(k)) for c, k in zip(fine, moments.log_moment(fine), strict=True))
        return min(1.0, float(mp.exp(best)) * (1 + 1e-15))


def _by_group(run: Run, epsilon: float, delta: float, at: Callable[[Direction, float], Found]) -> bool:
    """δ ≤ δ_remove(t) + e^t δ_add(ε − t): the engine proposes t, mpmath decides."""
    try:
        sides = run._sides(ADD_OR_REMOVE_ONE).upper
    except PrivcalcError:
        return False
    remove, add = sides[0], sides[-1]
    curves = Curve(remove), Curve(add)

    def total(t: float) -> float:
        return curves[0].delta(t, quick=True).upper + math.exp(min(t, 700.0)) * curves[1].delta(epsilon - t, quick=True).upper

    t = min((epsilon * k / 40 for k in range(1, 40)), key=total)
    t = min((t + epsilon * k / 800 for k in range(-20, 21)), key=total)
    if total(t) > delta * (1 + 1e-9):
        return False
    first, second = at(remove, t).upper, at(add, epsilon - t).upper
    return first + math.exp(t) * second * (1 + 1e-12) <= delta
