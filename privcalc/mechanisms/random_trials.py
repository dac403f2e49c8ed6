"""Hyperparameter tuning: a random number of trials, of which the best is released."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcalc import errors
from privcalc.composition import tradeoff
from privcalc.composition.curve import Curve, worst_delta, worst_epsilon
from privcalc.composition.direction import Direction
from privcalc.mechanisms.trial_counts import Distribution, Finite, Law, NegativeBinomial, Poisson, checked, law
from privcalc.noise.source import Noise
from privcalc.numerics.floats import UNIT, Floats
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.pair import Pair
from privcalc.pairs.random_trials import Table, steepest, tuned
from privcalc.pairs.renyi import RenyiPair
from privcalc.pairs.two_point import TwoPointPair
from privcalc.relation import Relation
from privcalc.run import Mechanism, Run

__all__ = ["RandomTrials"]

_ORDERS = np.append(1 + np.geomspace(1e-2, 1e4, 80), math.inf)
"""The orders at which the bound is evaluated: 80 from 1.01 to 10001, geometric in α − 1; and ∞."""

_LOSSES = 200
"""Losses at which the profile of one trial is tabulated."""

_ROUGH = 1e-7
"""Relative width of ε with which trials are asked."""

_FAR = (1e-30, 1e-20, 1e-12, 1e-8, 1e-5, 1e-3, 0.1)
"""δ of one trial at which the table ends: the first with a finite ε."""

_TESTS = ((1e-5, True), (0.02, True), (0.1, True), (0.3, True), (1e-3, True), (0.1, False), (0.3, False), (0.6, False))
"""Tests of one trial that occur: false positive rate, and whether their outcomes are the best or the worst."""


@dataclass(frozen=True, init=False, repr=False)
class RandomTrials(Mechanism):
    """Repeat a run K times, K drawn at random, and release the best output and nothing else.

    What must hold (``proofs/tuning.md``): K is drawn from the distribution below (``draw()`` does it), independently of
    the data, and every one of the K trials is made. The trials are independent and alike: each is ``run`` with
    hyperparameters that it draws from one distribution fixed in advance, and ``run`` must bound all of them; so draw
    from the grid, do not go through it. "Best" is by a score that is a function of the trial's own private output and
    of public data; a score on private data has to be part of ``run``. Neither K nor the other outputs or scores are
    released, not even in logs or by how long it took.

    With K from a Poisson distribution there may be no trial (probability e^{−mean}): then a fixed output is released.

    Upper ends come from the whole profile of one trial, or from its Rényi divergences (on a fixed grid of 80 orders
    from 1.01 to 10001 and ∞) where these are less; lower ends from scores that single out an event. It cannot be
    Poisson-sampled.

    Source: ``proofs/tuning.md``; Papernot, Steinke 2022, Theorem 2 (sharpened by the run's trade-off curve) and Theorem
    6 (with a term for K = 0), Lemma 7 for other laws. Profiles in place of divergences: Koskela, Redberg, Wang 2024,
    whose bound has the price of the worst event at every output; here each has its own.

    Args:
        run: one trial, a mechanism or a run; kept as ``base``, because every mechanism has a ``run``.
        mean: E[K], at least 1 (up to 1e9), for "poisson" any number > 0 (1e-9 to 1e9); chosen without looking at the
            data. Left out where ``distribution`` is a list.
        distribution: "poisson", "geometric", "logarithmic"; or η > −1, of the truncated negative binomial law P(K = k)
            ∝ (1 − γ)^k·Γ(k + η)/k!, K ≥ 1, of which η = 1 is geometric and η = 0 logarithmic: the smaller η, the more
            mass far from the mean; or probabilities P(K = 0), P(K = 1), …, at most 1,001, of sum 1 (to 1e-9; the law is
            what they are over it).

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        What it costs to make 10 trials of DP-SGD instead of one, on average:

        >>> import privcalc as pc
        >>> from privcalc.mechanisms.random_trials import RandomTrials
        >>> one = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 1_000
        >>> print(f"{one.epsilon(delta=1e-5).upper:.3f}")
        1.828
        >>> for distribution in ("poisson", "logarithmic", "geometric"):
        ...     tuned = RandomTrials(one, mean=10, distribution=distribution)
        ...     print(f"{tuned.epsilon(delta=1e-5).upper:.3f}")
        3.338
        2.605
        2.727
        >>> print(f"{(one * 10).epsilon(delta=1e-5).upper:.3f}")  # if all 10 were released
        6.188

        Heavier tails cost less, and a number of trials that is not random more:

        >>> print(f"{RandomTrials(one, mean=10, distribution=-0.5).epsilon(delta=1e-5).upper:.3f}")
        2.517
        >>> print(f"{RandomTrials(one, distribution=[0] * 10 + [1]).epsilon(delta=1e-5).upper:.3f}")
        5.559
    """

    kind = "RandomTrials"
    page = "tuning.md"
    needs = ("trials",)
    draws = None
    scheme = None
    nulled = "present"

    base: Run
    mean: float
    distribution: Distribution

    def __init__(
        self, run: Mechanism | Run, *, mean: float | None = None, distribution: str | float | Sequence[float]
    ) -> None:
        if not isinstance(run, (Mechanism, Run)):
            raise errors.PrivcalcError(f"run = {run!r}: must be a mechanism or a run")
        known, number = checked(distribution, mean)
        object.__setattr__(self, "base", run.run)
        object.__setattr__(self, "mean", number)
        object.__setattr__(self, "distribution", known)

    @property
    def sampled(self) -> bool:
        """If a part of the run is."""
        return any(mechanism.sampled for mechanism, _ in self.base.entries)

    def pairs(self, relation: Relation) -> Pairs:
        """Bounds of the Rényi divergences, and from the profile of one trial; scores that single out an event occur."""
        pair, whole = _pair(self, relation), _whole(self, relation)
        other = None if whole is None else (whole, whole)
        others = self.base._sides(relation).others
        first, *more = _occurring(self, relation) or [NOTHING]
        return Pairs(pair, pair, first, alternative=other, bound="best of several", also=tuple(more), others=others)

    @property
    def law(self) -> Law:
        """The law of K, the number of trials."""
        return law(self.distribution, self.mean)

    @property
    def shape(self) -> float | None:
        """η of the law, ∞ for Poisson's; None of a list of probabilities."""
        law = self.law
        return None if isinstance(law, Finite) else law.eta if isinstance(law, NegativeBinomial) else math.inf

    @property
    def gamma(self) -> float | None:
        """γ of a truncated negative binomial law, P(K = k) ∝ (1 − γ)^k·Γ(k + η)/k!; None of other laws."""
        return self.law.gamma if isinstance(self.law, NegativeBinomial) else None

    def draw(self, rng: np.random.Generator | Noise | None = None) -> int:
        """The number of trials to make. Draw it once; a number that was looked at and drawn again is not random.

        Args:
            rng: None draws exactly, from the system's bits, and warns when it is asked again. A generator is for
                simulations, and is warned of: it draws nearly so, and whoever knows its seed knows the number.
        """
        if isinstance(rng, np.random.Generator):
            errors.warn(
                "draw: this number of trials is a generator's, for simulations: whoever knows its seed can draw it "
                "again, and no ε holds of a search that makes so many trials. Leave rng out for one that is charged"
            )
            return self.law.simulate(rng)
        if rng is None:
            if vars(self).get("_drawn"):
                errors.warn(
                    "draw: this number of trials was drawn before: whoever takes the larger, or the smaller, of "
                    "several numbers has another distribution than is charged, and ε does not hold. Draw once for each "
                    "search that is charged, of a RandomTrials of its own (simulations: give a generator)"
                )
            object.__setattr__(self, "_drawn", True)
        return self.law.draw(Noise() if rng is None else rng)

    def __repr__(self) -> str:
        return f"RandomTrials({self.base}, mean={self.mean!r}, distribution={self.distribution!r})"


@functools.lru_cache(maxsize=64)
def _pair(trials: RandomTrials, relation: Relation) -> RenyiPair:
    """The bound at the orders where it is finite."""
    base = trials.base.rdp(_ORDERS, relation=relation)
    match trials.law:
        case Poisson(mean):
            bound = _poisson(trials.base, base, mean, relation)
        case NegativeBinomial() as found:
            bound = _negative_binomial(trials.base, base, found, relation)
        case found:
            bound = _finite(_table(trials.base, relation), base, found)
    known = np.isfinite(bound)
    if not known.any() and _whole(trials, relation) is not None:
        return RenyiPair((math.inf,), (math.inf,))
    if not known.any():
        raise errors.PrivcalcError(
            f"run = {trials.base}: cannot be tuned, because one trial has no finite ε at δ ≤ {_FAR[-1]:g} (it may leak "
            "everything with a larger probability, and the best of several likelier still): tune a run with a small δ"
        )
    return RenyiPair(tuple(_ORDERS[known].tolist()), tuple(bound[known].tolist()))


@functools.lru_cache(maxsize=64)
def _whole(trials: RandomTrials, relation: Relation) -> Pair | None:
    """The bound from the profile of one trial, if it has one with a finite ε."""
    table = _table(trials.base, relation)
    return None if table is None else tuned(table, trials.law.weight)


@functools.lru_cache(maxsize=64)
def _curves(run: Run, relation: Relation) -> tuple[list[Curve], list[Curve]]:
    """The curves of what dominates one trial, in two ways."""
    sides = run._sides(relation)
    return [Curve(direction, _ROUGH) for direction in sides.upper], [Curve(side, _ROUGH) for side in sides.other]


@functools.lru_cache(maxsize=4096)
def _delta(run: Run, relation: Relation, epsilon: float) -> float:
    """An upper bound of δ(ε) of one trial."""
    return min(1.0, *(worst_delta(curves, epsilon).upper for curves in _curves(run, relation) if curves))


@functools.lru_cache(maxsize=64)
def _table(run: Run, relation: Relation) -> Table | None:
    """The profile of one trial."""
    curves, _ = _curves(run, relation)
    if not curves:
        return None
    top = max(curve.max_loss for curve in curves)
    ends = (worst_epsilon(curves, small).upper for small in _FAR)
    end = next((epsilon for epsilon in ends if 0 < epsilon < 600), None)
    if top <= 600 and (end is None or top < 1.5 * end):
        end = top
    elif end is not None and top == math.inf and any(curve.leak.upper for curve in curves):
        end = min(2 * end, 600.0)  # down to the leak
    # Below, the table's losses would be too close for e^τ to keep digits of their differences.
    if end is None or not end > 1e-6:
        return None
    losses = np.linspace(0.0, end * (1 + 1e-12), _LOSSES)
    deltas = np.minimum.accumulate([_delta(run, relation, x) for x in losses.tolist()])
    return Table(tuple(losses.tolist()), tuple(deltas.tolist()))


@functools.lru_cache(maxsize=64)
def _occurring(trials: RandomTrials, relation: Relation) -> list[tuple[Pair, Pair]]:
    """Whether the best trial is in an event of one trial, which is ranked first, or last: one law, in both orders."""
    directions = trials.base._sides(relation).lower
    rows: list[tuple[Pair, Pair]] = []
    for place, direction in enumerate(directions):
        tests = sorted(_tests(trials, direction), key=lambda pair: pair.max_loss)
        rows += [(test, test.reverse) if place == 0 else (test.reverse, test) for test in tests]
    return rows


def _tests(trials: RandomTrials, direction: Direction) -> list[TwoPointPair]:
    tests = []
    curve = Curve(direction, _ROUGH)
    mirrored = Curve(tuple((pair.reverse, count) for pair, count in direction), _ROUGH)
    for alpha, best in _TESTS:
        power = tradeoff.one_order(curve, mirrored, alpha)[0].power[0]
        both = np.array([power, alpha])
        if best:
            p, q = trials.law.better(both).tolist()
        else:  # f(x) − f(0)
            p, q = (trials.law.better(np.ones(1)) - trials.law.better(1 - both)).tolist()
        p, q = p * (1 - 1e-10) - 1e-13 * (not best), q * (1 + 1e-10) + 1e-13 * (not best)
        if 1e-200 < q < p < 1:
            tests.append(TwoPointPair(math.log(p / q) * (1 - 1e-10), (math.log1p(-q) - math.log1p(-p)) * (1 - 1e-10)))
    return tests


def _negative_binomial(run: Run, base: Floats, law: NegativeBinomial, relation: Relation) -> Floats:
    """D_λ ≤ ε(λ) + (1 + η)·log s + log E[K]/(λ − 1), with s a bound of P'(E)/P(E) over all events E with P(E) ≥ γ.

    Papernot, Steinke 2022, Theorem 2, take log s = min over λ̂ ≥ 1 of (1 − 1/λ̂)ε(λ̂) + log(1/γ)/λ̂; the trade-off
    curve gives s = (1 − β(γ))/γ, which is the least possible.
    """
    gamma = law.gamma
    if gamma == 1:
        return base  # one trial
    log_inverse = -math.log(gamma)
    with np.errstate(invalid="ignore"):
        ratios = (1 - 1 / _ORDERS) * base + log_inverse / _ORDERS
    least = gamma * (1 - 4 * UNIT)
    by_curve = math.log((1 - run.beta(alpha=least, relation=relation).lower + 4 * UNIT) / least)
    ratio = min(log_inverse, float(np.min(ratios)), max(by_curve, 0.0)) + 16 * UNIT * (1 + log_inverse)
    log_mean = math.log(law.mean)
    log_mean += 16 * UNIT * (1 + log_mean + log_inverse)
    return np.asarray((base + (1 + law.eta) * ratio + log_mean / (_ORDERS - 1)) * (1 + 16 * UNIT), dtype=np.float64)


def _poisson(run: Run, base: Floats, mean: float, relation: Relation) -> Floats:
    """(λ − 1)D_λ ≤ log[e^{−m} + m·e^{(λ − 1)(ε(λ) + m·δ̂)}], δ̂ = δ(log(1 + 1/(λ − 1))).

    Papernot, Steinke 2022, Theorem 6; the term e^{−m} is that of K = 0.
    """
    bound, known = np.full_like(base, math.inf), np.flatnonzero(base < math.inf)
    epsilons = [math.log1p(1 / (order - 1)) * (1 - 8 * UNIT) for order in _ORDERS[known].tolist()]
    for i, epsilon in zip(known.tolist(), epsilons, strict=True):
        c = float(_ORDERS[i]) - 1
        single = base[i] + mean * _delta(run, relation, epsilon)
        if c == math.inf:
            bound[i] = single * (1 + 16 * UNIT)
            continue
        exponent = c * single + math.log(mean)
        rounding = 32 * UNIT * (1 + c * single + abs(math.log(mean)))
        bound[i] = max(float(np.logaddexp(exponent, -mean)) + rounding, 0.0) / c * (1 + 4 * UNIT)
    return bound


def _finite(table: Table | None, base: Floats, law: Finite) -> Floats:
    """(λ − 1)D_λ ≤ log[f(0) + e^{(λ − 1)ε(λ)}·sup f′(q)^λ f′(q′)^{1 − λ}], the supremum by cells of rank."""
    if table is None:
        return np.full_like(base, math.inf)
    above = (base + steepest(table, law.weight, _ORDERS)) * (1 + 16 * UNIT) + 16 * UNIT
    c = np.append(_ORDERS[:-1] - 1, 1.0)  # at ∞ f(0) adds nothing to a divergence that is not negative
    if law.none:
        with np.errstate(over="ignore"):
            exact = np.logaddexp(c * above, math.log(law.none) + 4 * UNIT) / c
        above[:-1] = np.where(np.isfinite(above[:-1]), exact[:-1] * (1 + 16 * UNIT) + 16 * UNIT / c[:-1], math.inf)
    return np.asarray(np.maximum(above, 0.0), dtype=np.float64)
