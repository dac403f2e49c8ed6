"""Calibration: the parameter that just meets a target, on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtri

from privcalc import errors
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError
from privcalc.mechanism import Mechanism
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.normal import UNIT
from privcalc.numerics.solve import Bounds, crossing
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Run

__all__ = ["Calibration", "calibrate", "noise_multiplier", "noise_std", "steps"]

Make = Callable[[float], Mechanism | Run]


@dataclass(frozen=True)
class Calibration:
    """A parameter that meets a target.

    Attributes:
        parameter: the least noisy value found for which the target was proved; an int with ``integer=True``.
        run: the run at that value, without what was already spent.
        guarantee: what that run (with what was spent) achieves, as an enclosure.
    """

    parameter: float
    run: Run
    guarantee: Guarantee

    def __float__(self) -> float:
        return float(self.parameter)


@dataclass(frozen=True)
class _Target:
    """One number that must not exceed ``level``."""

    goal: Guarantee
    level: float
    value: Callable[[Run], Bounds]
    achieved: Callable[[Run], Guarantee]
    delta: Callable[[Run], Bounds] | None = None  # at the target's ε: smoother where ε(δ) is about to vanish
    delta_level: float = 0.0


def calibrate(
    make: Make,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
    bounds: tuple[float, float] | None = None,
    integer: bool = False,
    spent: Mechanism | Run | None = None,
) -> Calibration:
    """Find the parameter at which a run just meets a target.

    Args:
        make: maps the parameter to a mechanism or run. Privacy must be monotone in the parameter, in either direction. Values
            outside its domain must raise PrivcalcError, as all mechanisms do. Several mechanisms that share one budget are
            calibrated by a common scale: ``lambda z: pc.Gaussian(z) * 10 + pc.Laplace(scale=2 * z)``.
        epsilon: ε of the target,
        delta: with its δ; or
        mu: the target μ of Gaussian DP; or
        rho: the target ρ of zCDP.
        relation: the neighbouring relation.
        bounds: the interval of allowed values; by default the search finds its own within (0, ∞).
        integer: whether the parameter is a whole number ≥ 0, such as a count.
        spent: a run on the same records that the target must also pay for.

    Returns:
        A :class:`Calibration` whose guarantee was evaluated to meet the target. Meeting it with less noise is possible only
        within the width of the enclosures. For counts and rates: the largest value that meets the target.

    Raises:
        PrivcalcError: if the target is malformed, or no value meets it.

    Example:
        >>> import privcalc as pc
        >>> found = pc.calibrate(lambda z: pc.PoissonSampled(pc.Gaussian(z), 0.01) * 10_000, epsilon=3.0, delta=1e-5)
        >>> print(f"{found.parameter:.6f} {found.guarantee.epsilon <= 3.0}")
        1.564966 True
    """
    target = _target(epsilon, delta, mu, rho, check_relation(relation))
    before = Run() if spent is None else spent.run
    loss = _Loss(make, before, target)
    low, high = bounds or ((0.0, 1e18) if integer else (0.0, math.inf))
    if not 0 <= low < high:
        raise PrivcalcError(f"bounds = {bounds!r}: must be 0 <= low < high")
    if loss.meets(before) is False:
        raise PrivcalcError(f"spent = {before}: already exceeds the target {target.goal}")
    parameter: float = _whole(loss, low, high) if integer else _real(loss, low, high)
    run = make(parameter).run
    return Calibration(parameter, run, target.achieved(run + before))


def _target(epsilon: float | None, delta: float | None, mu: float | None, rho: float | None, relation: Relation) -> _Target:
    """The question whose answer must stay below the target."""
    if epsilon is not None:
        epsilon = errors.epsilon("epsilon", epsilon)
    if delta is not None:
        delta = errors.delta("delta", delta)
    goal = Guarantee(epsilon=epsilon, delta=delta, mu=mu, rho=rho, relation=relation)
    if epsilon is not None and delta is not None:
        eps, dlt = epsilon, delta

        def achieved(run: Run) -> Guarantee:
            return Guarantee(epsilon=run.epsilon(delta=dlt, relation=relation), delta=dlt, relation=relation)

        if eps > 0:

            def value(run: Run) -> Bounds:
                answer = run.epsilon(delta=dlt, relation=relation)
                return answer.lower, answer.upper

            def smooth(run: Run) -> Bounds:
                answer = run.delta(epsilon=eps, relation=relation)
                return answer.lower, answer.upper

            return _Target(goal, eps, value, achieved, smooth if dlt > 0 else None, dlt)

        def value_at_zero(run: Run) -> Bounds:
            answer = run.delta(epsilon=0.0, relation=relation)
            return answer.lower, answer.upper

        return _Target(goal, errors.positive("delta (at epsilon = 0)", dlt), value_at_zero, achieved)
    if mu is not None:

        def value_mu(run: Run) -> Bounds:
            answer = run.gdp_mu(relation=relation)
            return answer.lower, answer.upper

        return _Target(
            goal, errors.positive("mu", mu), value_mu, lambda run: Guarantee(mu=run.gdp_mu(relation=relation), relation=relation)
        )
    assert rho is not None

    def value_rho(run: Run) -> Bounds:
        found = run.zcdp(relation=relation)[0]
        return found, found

    return _Target(
        goal, errors.positive("rho", rho), value_rho, lambda run: Guarantee(rho=run.zcdp(relation=relation)[0], relation=relation)
    )


@dataclass(frozen=True)
class _Loss:
    """The quantity to keep below the target, as a function of the parameter."""

    make: Make
    before: Run
    target: _Target

    def exists(self, parameter: float) -> bool:
        """Whether the parameter is in the domain."""
        try:
            self.make(parameter)
        except (PrivcalcError, OverflowError):
            return False
        return True

    def at(self, parameter: float) -> Bounds:
        """Bounds of the quantity."""
        return self.target.value(self.make(parameter).run + self.before)

    def cross(self, parameter: Callable[[float], float], guess: float, low: float, high: float) -> float:
        """The least x, to search precision, at which the run was proved to meet the target; ``high`` if none."""
        level, target = self.target.level, self.target

        def bounds(x: float) -> Bounds:
            return self.at(parameter(x))

        _, right = crossing(bounds, level, guess, low, high, rtol=1e-13, both=False)
        if target.delta is None or not right < high or bounds(right)[1] > (1 - 1e-7) * level:
            return right
        # ε(δ) jumps to 0 near here; δ(ε) does not.
        question = target.delta
        _, other = crossing(
            lambda x: question(self.make(parameter(x)).run + self.before),
            target.delta_level,
            right,
            low,
            high,
            rtol=1e-13,
            both=False,
        )
        for widen in (1.0, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6):
            if other * widen < right and bounds(other * widen)[1] <= level:
                return other * widen
        return right

    def meets(self, run: Run) -> bool:
        """Whether a run was proved to meet the target."""
        return self.target.value(run)[1] <= self.target.level


def _real(loss: _Loss, low: float, high: float) -> float:
    """A real parameter: find the domain, then the direction, then the crossing."""
    level = loss.target.level
    start = 1.0 if low < 1.0 < high else (math.sqrt(low * high) if low > 0 and high < math.inf else max(low, 1e-9) * 2)
    if not loss.exists(start):
        inside = [x for k in range(-60, 61) if low < (x := 2.0**k) < high and loss.exists(x)]
        if not inside:
            raise PrivcalcError("make: no parameter was found at which it gives a run")
        start = min(inside, key=lambda x: abs(math.log(x)))
    # An exact edge of the domain, such as rate = 1, may itself be the answer.
    top = _edge(loss, start, high, 2.0)
    bottom = _edge(loss, start, low, 0.5)
    other = start * 2 if start * 2 <= top else start / 2
    if other < bottom:
        other = 0.5 * (start + (top if top > start else bottom))
    here, there = loss.at(start), loss.at(other)
    middle = sorted([(start, here[1]), (other, there[1])])
    if middle[0][1] >= middle[1][1]:
        right = loss.cross(lambda x: x, start, bottom, top)
        if right >= top and not (top < math.inf and loss.exists(top) and loss.at(top)[1] <= level):
            raise PrivcalcError(f"the target {loss.target.goal} is not met by any parameter up to {top!r}")
        return right
    # Privacy worsens with the parameter: search over its inverse.
    inverse_low = 1 / top if top < math.inf else 0.0
    inverse_high = 1 / bottom if bottom > 0 else math.inf
    if top < math.inf and loss.exists(top) and loss.at(top)[1] <= level:
        return top
    right = loss.cross(lambda x: 1 / x, 1 / start, inverse_low, inverse_high)
    parameter = (1 / right) * (1 - 4 * UNIT)
    if not right < inverse_high or loss.at(parameter)[1] > level:
        raise PrivcalcError(f"the target {loss.target.goal} is not met by any parameter down to {bottom!r}")
    return parameter


def _edge(loss: _Loss, inside: float, end: float, factor: float) -> float:
    """The last parameter towards ``end`` that is in the domain, to the last bit; ``end`` if all are."""
    outside = end
    x = inside
    for _ in range(200):
        x = min(x * factor, end) if factor > 1 else max(x * factor, end)
        if not 0 < x < math.inf or x == end:
            if x == end and 0 < end < math.inf and not loss.exists(end):
                outside = end
                break
            return end
        if not loss.exists(x):
            outside = x
            break
        inside = x
    else:
        return end
    while True:
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            return inside
        inside, outside = (middle, outside) if loss.exists(middle) else (inside, middle)


def _whole(loss: _Loss, low: float, high: float) -> int:
    """A whole parameter: bracket and interpolate, deciding by the certified predicate alone."""
    first, last = math.ceil(low), math.floor(high)
    level = loss.target.level
    known: dict[int, float] = {}

    def upper(n: int) -> float:
        if n not in known:
            known[n] = loss.at(n)[1] if loss.exists(n) else math.inf
        return known[n]

    start = max(first, 1)
    rising = upper(start + 1 if start < last else start) >= upper(start)
    if rising:
        if upper(start) > level:
            if first < start and upper(first) <= level:
                return first
            raise PrivcalcError(f"the target {loss.target.goal} is not met by any whole number from {first} to {last}")
        good, bad = start, last + 1
        while good < last and bad > last:
            # ε grows at least like the root of a count.
            ratio = level / upper(good) if upper(good) > 0 else 1e3
            probe = min(good * max(2, math.floor(min(ratio, 1e3) ** 2)), last)
            good, bad = (probe, bad) if upper(probe) <= level else (good, probe)
    else:
        good, bad = start, first - 1
        while upper(good) > level:
            bad, good = good, good * 2
            if good > last:
                raise PrivcalcError(f"the target {loss.target.goal} is not met by any whole number from {first} to {last}")
    bisect = False
    while abs(bad - good) > 1:
        share = 0.5
        if not bisect and 0 < upper(good) < upper(bad) < math.inf:
            share = math.log(level / upper(good)) / math.log(upper(bad) / upper(good))
        gap = abs(bad - good)
        probe = good + (min(max(math.floor(share * gap), 1), gap - 1)) * (1 if bad > good else -1)
        good, bad = (probe, bad) if upper(probe) <= level else (good, probe)
        bisect = abs(bad - good) > gap // 2 and not bisect
    return good


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float | None = None,
    steps: int | None = None,
    batch_size: float | None = None,
    dataset_size: int | None = None,
    epochs: float | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> float:
    """The noise multiplier for ``steps`` Gaussian releases on Poisson samples: noise standard deviation / clip norm.

    Args:
        epsilon: ε of the target, > 0.
        delta: δ of the target, in (0, 1).
        sample_rate: probability with which each record takes part in a step, independently (Poisson sampling). Default 1: the
            analytic Gaussian mechanism.
        steps: number of steps; default 1.
        batch_size: instead of sample_rate: the *expected* batch size,
        dataset_size: and the number of records, which must be public.
        epochs: instead of steps: passes over the data, rounded up to whole steps.
        relation: the neighbouring relation.

    Returns:
        A float on the safe side: the run with it was evaluated to meet the target.

    Raises:
        PrivcalcError: if an argument is out of range, or two of them say the same.

    Example:
        >>> import privcalc as pc
        >>> z = pc.noise_multiplier(epsilon=3.0, delta=1e-5, batch_size=600, dataset_size=60_000, epochs=100)
        >>> print(f"{z:.6f}")
        1.564966
    """
    rate, count = _schedule(sample_rate, steps, batch_size, dataset_size, epochs)
    target = errors.positive("epsilon", epsilon)
    level = errors.real("delta", delta, "a probability in (0, 1)", low=0.0, high=1.0, open_low=True, open_high=True)
    # Start from the central-limit noise, in which q²T(e^{1/z²} − 1) takes the place of μ² (Bu et al. 2020).
    mu = max(2 * float(ndtri(0.5 + 0.5 * level)), _rough_mu(target, level))
    guess = 1 / math.sqrt(math.log1p((mu / rate) ** 2 / count)) if rate < 1 else math.sqrt(count) / mu
    loss = _Loss(
        lambda z: PoissonSampled(Gaussian(z), rate) * count, Run(), _target(target, level, None, None, check_relation(relation))
    )
    right = loss.cross(lambda x: x, guess, 0.0, math.inf)
    if not right < math.inf:
        raise PrivcalcError(f"epsilon = {epsilon!r}: no noise multiplier was found that meets it")
    return right


def _rough_mu(epsilon: float, delta: float) -> float:
    """A μ near the one with ε(δ) = ε: from ε = μ²/2 + μ√(2 log 1/δ)."""
    root = math.sqrt(2 * math.log(1 / delta))
    return math.sqrt(root * root + 2 * epsilon) - root


def _schedule(
    sample_rate: float | None, steps: int | None, batch_size: float | None, dataset_size: int | None, epochs: float | None
) -> tuple[float, int]:
    """The sampling rate and the number of steps, from whichever way they were given."""
    if (batch_size is None) != (dataset_size is None):
        raise PrivcalcError(f"batch_size = {batch_size!r}, dataset_size = {dataset_size!r}: give both or neither")
    if batch_size is not None and dataset_size is not None:
        if sample_rate is not None:
            raise PrivcalcError(f"sample_rate = {sample_rate!r}: give it or batch_size and dataset_size, not both")
        records = errors.count("dataset_size", dataset_size, least=1)
        sample_rate = (
            errors.real("batch_size", batch_size, "in (0, dataset_size]", low=0.0, high=records, open_low=True) / records
        )
    rate = errors.rate("sample_rate", 1.0 if sample_rate is None else sample_rate)
    if epochs is None:
        return rate, errors.count("steps", 1 if steps is None else steps, least=1)
    if steps is not None:
        raise PrivcalcError(f"epochs = {epochs!r}: give it or steps, not both")
    return rate, math.ceil(errors.positive("epochs", epochs) / rate * (1 - 1e-12))


def noise_std(
    *, epsilon: float, delta: float, sensitivity: float, steps: int = 1, relation: Relation = ADD_OR_REMOVE_ONE
) -> float:
    """The noise standard deviation for a query of known L2 sensitivity: the analytic Gaussian mechanism.

    Args:
        epsilon: ε of the target.
        delta: δ of the target.
        sensitivity: the largest distance of the query's values on two data sets that are neighbours *under the relation you
            mean*; nothing is doubled here, because it is already in that distance.
        steps: how often the query, or others of the same sensitivity, are answered.
        relation: the relation that ``sensitivity`` is for; it does not change the number.

    Returns:
        σ, in the unit of the query, on the safe side (Balle, Wang 2018, Algorithm 1).

    Example:
        >>> import privcalc as pc
        >>> print(f"{pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=2.0):.6f}")
        7.461263
    """
    check_relation(relation)
    scale = errors.positive("sensitivity", sensitivity)
    return noise_multiplier(epsilon=epsilon, delta=delta, steps=steps) * scale * (1 + 2 * UNIT)


def steps(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> int:
    """The largest number of steps that stays within the target; 0 if not even one does.

    Args:
        epsilon: ε of the target.
        delta: δ of the target.
        noise_multiplier: noise standard deviation / clip norm.
        sample_rate: probability with which each record takes part in a step, independently (Poisson sampling).
        relation: the neighbouring relation.

    Example:
        >>> import privcalc as pc
        >>> pc.steps(epsilon=3.0, delta=1e-5, sample_rate=1.0, noise_multiplier=20.0)
        206
        >>> pc.steps(epsilon=3.0, delta=1e-5, sample_rate=1.0, noise_multiplier=20.0, relation=pc.REPLACE_ONE)
        51
    """
    step = PoissonSampled(Gaussian(noise_multiplier), errors.rate("sample_rate", sample_rate))
    return int(calibrate(lambda n: step * int(n), epsilon=epsilon, delta=delta, relation=relation, integer=True).parameter)
