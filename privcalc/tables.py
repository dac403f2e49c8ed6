"""Whole curves at once: tables of the profile and trade-off curve, a discretised privacy loss distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.composition.ask import usual
from privcalc.composition.curve import Curve
from privcalc.composition.direction import Bound
from privcalc.errors import suggests
from privcalc.numerics.floats import UNIT, Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run

__all__ = ["PLD", "discretize", "profile_table", "tradeoff_of_profile", "tradeoff_table"]


def _check_run(run: object) -> None:
    if not isinstance(run, (Mechanism, Run)):
        raise errors.PrivcalcError(f"run = {run!r}: must be a mechanism or a run")


@suggests
def profile_table(
    run: Mechanism | Run, epsilons: ArrayLike, *, relation: Relation = ADD_OR_REMOVE_ONE
) -> NDArray[np.void]:
    """δ at many ε: a structured array with the columns ``epsilon``, ``lower``, ``upper``.

    Every row is what the run answers alone, to the last bit.

    Example:
        >>> import privcalc as pc
        >>> profile_table(pc.Gaussian(1.0) * 2, [0.0, 1.0, 2.0])["upper"].round(6)
        array([0.5205  , 0.286208, 0.114525])
    """
    _check_run(run)
    points = errors.each("epsilons", np.atleast_1d(np.asarray(epsilons, dtype=object)), errors.epsilon)
    found = run.run._answers(relation).deltas(points)
    return _table("epsilon", list(zip(points.tolist(), found.lower.tolist(), found.upper.tolist(), strict=True)))


@suggests
def tradeoff_table(
    run: Mechanism | Run, alphas: ArrayLike, *, relation: Relation = ADD_OR_REMOVE_ONE
) -> NDArray[np.void]:
    """β at many false positive rates α: a structured array with the columns ``alpha``, ``lower``, ``upper``.

    Every row is what the run answers alone, to the last bit.

    Example:
        >>> import privcalc as pc
        >>> tradeoff_table(pc.Gaussian(1.0), [0.0, 0.05, 1.0])["lower"].round(6)
        array([1.      , 0.740489, 0.      ])
    """
    _check_run(run)
    points = [
        errors.real("alphas", value, "probabilities in [0, 1]", low=0.0, high=1.0)
        for value in np.atleast_1d(np.asarray(alphas, dtype=object))
    ]
    answers = run.run._answers(relation)
    found = {point: answers.beta(point) for point in dict.fromkeys(points)}
    return _table("alpha", [(point, found[point].lower, found[point].upper) for point in points])


def tradeoff_of_profile(profile: NDArray[np.void], alphas: ArrayLike) -> NDArray[np.void]:
    """Bounds of β from a table of the profile alone.

    They are quick where answers are slow, and the closer the more ε the table has.

    Every (ε, δ) guarantee gives β ≥ 1 − δ − e^ε·α and β ≥ e^{−ε}·(1 − δ − α); the upper bound is that of guessing.

    Args:
        profile: as :func:`profile_table` returns it.
        alphas: false positive rates in [0, 1].

    Source: Wasserman, Zhou 2010; Kairouz, Oh, Viswanath 2015, Theorem 2.1.

    Example:
        >>> import privcalc as pc
        >>> profile = profile_table(pc.Gaussian(1.0), np.linspace(0, 5, 51))
        >>> tradeoff_of_profile(profile, [0.05])["lower"].round(4)
        array([0.7402])
    """
    points = [
        errors.real("alphas", value, "probabilities in [0, 1]", low=0.0, high=1.0) for value in np.atleast_1d(alphas)
    ]
    epsilon, delta = profile["epsilon"], profile["upper"]
    rows = []
    for alpha in points:
        with np.errstate(over="ignore", divide="ignore"):
            false = np.exp(epsilon + np.log(alpha)) * (1 + 4 * UNIT * (epsilon + 750))  # e^ε alone may overflow
        lines = np.concatenate([1 - delta - false, np.exp(-epsilon) * (1 - delta - alpha)])
        rows.append((alpha, max(float(lines.max()) - 8 * UNIT, 0.0), 1 - alpha))
    return _table("alpha", rows)


def _table(first: str, rows: list[tuple[float, float, float]]) -> NDArray[np.void]:
    return np.array(rows, dtype=[(first, np.float64), ("lower", np.float64), ("upper", np.float64)])


@dataclass(frozen=True, eq=False)
class PLD:
    """A discretised privacy loss distribution that dominates a run in one direction.

    The optimistic one is of smaller losses.

    Attributes:
        losses: ascending, multiples of the spacing.
        probabilities: P(L = loss). Pessimistic: their sum with ``infinity`` is 1, or more by what rounding asked for.
            Optimistic: it may be less; what is missing counts as a loss of −∞.
        infinity: P(L = ∞).
        relation: the neighbouring relation.
        direction: 0 for (with, without the record), 1 for the reverse.
        pessimistic: whether it bounds δ from above, else from below; sums of independent losses then do so, too.
    """

    losses: Floats
    probabilities: Floats
    infinity: float
    relation: Relation
    direction: int
    pessimistic: bool = True

    def delta(self, epsilon: float) -> float:
        """infinity + Σ_{l > ε} P(L = l)·(1 − e^{ε − l}): at least, or at most, the run's δ(ε) in this direction."""
        value = errors.real(
            "epsilon", epsilon, "a finite number", low=-np.inf, high=np.inf, open_low=True, open_high=True
        )
        above = self.losses > value
        total = self.infinity + float(self.probabilities[above] @ -np.expm1(value - self.losses[above]))
        blur = 4 * UNIT * (self.losses.size + 8)
        return min(total * (1 + blur), 1.0) if self.pessimistic else max(total * (1 - blur), 0.0)


def discretize(
    run: Mechanism | Run,
    spacing: float,
    *,
    tail: float = 1e-12,
    direction: int = 0,
    relation: Relation = ADD_OR_REMOVE_ONE,
    points: int = 2000,
    pessimistic: bool = True,
) -> PLD:
    """The composed privacy loss on a grid, rounded up, or down.

    Up, it is by chords through upper bounds of the profile ("connect the dots").

    Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022. The profile in x = e^ε is convex and falls, hence lies
    below the convex minorant of upper bounds at grid points, of 1 at x = 0, and of the last value beyond. Rounded down,
    a loss in (iΔ, (i + 1)Δ] counts as iΔ, with lower bounds of P(L > iΔ) = δ − x·dδ/dx: the slope is at least that of
    the next chord.

    Args:
        run: a run or mechanism.
        spacing: distance of the losses.
        tail: the grid reaches to the ε with δ(ε) ≤ tail, on both sides; what lies beyond goes to ``infinity`` on the
            right.
        direction: 0 for (with, without the record), 1 for the reverse.
        relation: the neighbouring relation.
        points: the most grid points that may be needed.
        pessimistic: round losses up, else down.

    Raises:
        PrivcalcError: if the grid would need more points, or reach beyond ±600, or the run is empty.

    Example:
        >>> import privcalc as pc
        >>> pld = discretize(pc.Gaussian(1.0), 0.01, tail=1e-9)
        >>> exact = float(pc.Gaussian(1.0).delta(epsilon=1.0))
        >>> bool(exact <= pld.delta(1.0) <= exact * 1.001)
        True
        >>> bool(0.95 * exact <= discretize(pc.Gaussian(1.0), 0.01, tail=1e-9, pessimistic=False).delta(1.0) <= exact)
        True
    """
    allowed = "a finite number > 0 (at least 1e-12, so that e^spacing − 1 keeps some digits)"
    step = errors.real("spacing", spacing, allowed, low=1e-12, high=math.inf, open_high=True)
    small = errors.real("tail", tail, "a probability in (0, 1)", low=0.0, high=1.0, open_low=True, open_high=True)
    errors.one_of("direction", direction, 0, 1)
    most, upper = errors.count("points", points, least=1), errors.flag("pessimistic", pessimistic)
    _check_run(run)
    with usual():
        return _discretized(run, step, small, direction, check_relation(relation), most, upper=upper)


def _discretized(
    run: Mechanism | Run, step: float, small: float, direction: int, relation: Relation, most: int, *, upper: bool
) -> PLD:
    composed = run.run._sides(relation)
    sides = composed.upper if upper else composed.lower
    forward, backward = (Curve(sides[i]) for i in ((0, -1) if direction == 0 else (-1, 0)))
    ends = [curve.epsilon(small).upper for curve in (forward, backward)]
    # Where nothing ever makes δ small (a leak), the grid ends where the budget of points does.
    right, left = (
        int(min(np.ceil(min(end, 600.0) / step), most // 2 if end == np.inf else np.inf)) + 1 for end in ends
    )
    if right + left > most + 3 or max(right, left) * step > 700:
        raise errors.PrivcalcError(f"spacing = {step!r}: the grid would need {right + left} points and reach {ends}")
    if not upper:
        return _rounded_down(forward, backward, (left, right), step, relation, direction)
    h = np.array([forward.delta(i * step).upper for i in range(right + 1)])
    g = np.array([backward.delta(i * step).upper for i in range(left + 1)])
    h[0] = g[0] = min(h[0], g[0])
    return _dots(h, g, step, relation, direction)


def _rounded_down(
    forward: Curve, backward: Curve, reach: tuple[int, int], step: float, relation: Relation, direction: int
) -> PLD:
    """Masses between lower bounds of P(L > iΔ), which fall; δ(−ε) = 1 − e^{−ε}(1 − δ_reverse(ε)) for ε > 0."""
    losses = np.asarray(step * np.arange(-reach[0], reach[1] + 1), dtype=np.float64)
    bounds = np.array(
        [(found.lower, found.upper) for found in (_both_sides(forward, backward, float(e)) for e in losses)]
    )
    width = np.expm1(np.diff(losses))  # x·(slope) needs x only in the ratio of neighbours
    blur = 1e-14 / width
    tails = np.append(bounds[:-1, 0] + (bounds[:-1, 0] - bounds[1:, 1]) / width - blur, 0.0)
    tails = np.maximum.accumulate(np.clip(tails, 0.0, 1.0)[::-1])[::-1]
    return PLD(losses[:-1], tails[:-1] - tails[1:], 0.0, relation, direction, pessimistic=False)


def _both_sides(forward: Curve, backward: Curve, epsilon: float) -> Bound:
    if epsilon >= 0:
        return forward.delta(epsilon)
    found, x = backward.delta(-epsilon), math.exp(epsilon)
    return Bound(max(1 - x * (1 - found.lower) - 4 * UNIT, 0.0), 1 - x * (1 - found.upper) + 4 * UNIT, found.routes)


def _dots(h: Floats, g: Floats, step: float, relation: Relation, direction: int) -> PLD:
    from scipy.optimize import isotonic_regression  # slow to import

    left = g.size - 1
    losses = np.asarray(step * np.arange(-left, h.size), dtype=np.float64)
    x = np.exp(losses)
    w = np.concatenate([x[:left] * g[:0:-1], h])  # δ − (1 − x)_+
    truth = w + np.maximum(-np.expm1(losses), 0.0)
    knots, values = np.append(0.0, x), np.append(0.0, w)
    width = np.diff(knots)
    slope = np.diff(values) / width - (np.arange(width.size) <= left)
    slope = isotonic_regression(slope, weights=width).x  # the convex minorant
    slope = np.append(np.clip(slope, -1.0, 0.0), 0.0)
    masses = np.asarray(x * np.diff(slope), dtype=np.float64)
    infinity = float(h[-1])
    if infinity == 0 and not masses.any():
        return PLD(np.zeros(1), np.ones(1), 0.0, relation, direction)
    found = PLD(losses, masses, infinity, relation, direction)
    reached = np.array([_sum(found, e) for e in losses])
    used = truth > 0
    if np.any(reached[used] <= 0):
        infinity += float(truth[used].min())
        reached = reached + float(truth[used].min())
    whole = float(masses.sum()) + infinity  # δ at −∞, where truth is 1
    worst = max(1.0, 1 / whole, float(np.max(truth[used] / reached[used]))) * (1 + 8 * UNIT * (losses.size + 8))
    return PLD(losses, masses * worst, infinity * worst, relation, direction)


def _sum(pld: PLD, epsilon: float) -> float:
    above = pld.losses > epsilon
    return pld.infinity + float(pld.probabilities[above] @ -np.expm1(epsilon - pld.losses[above]))
