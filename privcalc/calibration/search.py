"""Calibration: the parameter that just meets a target, on the safe side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from privcalc import errors
from privcalc.calibration.target import Loss, Make, target
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError, suggests
from privcalc.numerics.floats import UNIT
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run

__all__ = ["Calibration", "calibrate"]


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return f"Calibration({self.parameter:.6g}: {self.guarantee})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Only for names that there are not."""
            raise AttributeError(
                f"Calibration has no {name!r}: what was found is its .parameter, whatever that is of the run (noise "
                "multiplier, rate, count); then there are .run and .guarantee"
            )


@suggests
def calibrate(
    make: Make,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    advantage: float | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
    bounds: tuple[float, float] | None = None,
    integer: bool = False,
    spent: Mechanism | Run | None = None,
) -> Calibration:
    """Find the parameter at which a run just meets a target.

    Args:
        make: maps the parameter to a mechanism or run. Privacy must be monotone in the parameter, in either direction.
            Values outside its domain must raise PrivcalcError, as all mechanisms do. Several mechanisms that share one
            budget are calibrated by a common scale: ``lambda z: pc.Gaussian(z) * 10 + pc.Laplace(scale=2 * z)``.
        epsilon: ε of the target,
        delta: with its δ; or
        mu: the target μ of Gaussian DP; or
        rho: the target ρ of zCDP; or
        advantage: the largest true minus false positive rate of any attack on membership; or
        beta: the smallest false negative rate of any attack on membership,
        alpha: at this false positive rate.
        relation: the neighbouring relation.
        bounds: the interval of allowed values; by default the search finds its own within (0, ∞).
        integer: whether the parameter is a whole number ≥ 0, such as a count.
        spent: a run on the same records that the target must also pay for.

    Returns:
        A :class:`Calibration` whose guarantee was evaluated to meet the target. Meeting it with less noise is possible
        only within the width of the enclosures. For counts and rates: the largest value that meets the target.

    Raises:
        PrivcalcError: if the target is malformed, or no value meets it.

    Example:
        >>> import privcalc as pc
        >>> found = pc.calibrate(lambda z: pc.PoissonSampled(pc.Gaussian(z), 0.01) * 10_000, epsilon=3.0, delta=1e-5)
        >>> print(f"{found.parameter:.6f} {found.guarantee.epsilon <= 3.0}")
        1.564966 True
        >>> found = pc.calibrate(lambda z: pc.PoissonSampled(pc.Gaussian(z), 0.01) * 10_000, alpha=0.01, beta=0.9)
        >>> print(f"{found.parameter:.6f} {found.guarantee}")
        1.165280 false negative rate >= 0.9 at false positive rate 0.01 under add-or-remove-one
    """
    rates = {"advantage": advantage, "alpha": alpha, "beta": beta}
    aim = target(Guarantee(epsilon=epsilon, delta=delta, mu=mu, rho=rho, relation=check_relation(relation), **rates))
    errors.function("make", make, "which maps the parameter to a mechanism or a run, such as pc.Gaussian")
    if spent is not None and not isinstance(spent, (Mechanism, Run)):
        raise PrivcalcError(f"spent = {spent!r}: must be a mechanism or a run")
    before, whole = Run() if spent is None else spent.run, errors.flag("integer", integer)
    loss = Loss(make, before, aim)
    low, high = _interval(bounds) if bounds is not None else (0.0, 1e18 if whole else math.inf)
    if not aim.meets(before):
        raise PrivcalcError(f"spent = {before}: already exceeds the target {aim.goal}")
    parameter: float = _whole(loss, low, high) if whole else _real(loss, low, high)
    run = loss.run(parameter)
    errors.check_delta(delta or 0.0, *(getattr(mechanism, "dataset_size", None) for mechanism, _ in run.entries))
    found = aim.achieved(run + before)
    if found.epsilon is not None and float(epsilon or 0) > 0 and run.entries:
        errors.check_free(delta or 0.0, float(found.epsilon) == 0)  # the upper end
    return Calibration(parameter, run, found)


def _interval(bounds: object) -> tuple[float, float]:
    """Both ends of what is allowed."""
    message = f"bounds = {bounds!r}: must be (low, high), two numbers with 0 <= low < high"
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise PrivcalcError(message)
    low, high = (
        errors.real("bounds", end, "two numbers with 0 <= low < high", low=0.0, high=math.inf) for end in bounds
    )
    if not low < high:
        raise PrivcalcError(message)
    return low, high


def _real(loss: Loss, low: float, high: float) -> float:
    """A real parameter: find the domain, then the direction, then the crossing."""
    level = loss.target.level
    start = 1.0 if low < 1.0 < high else (math.sqrt(low * high) if low > 0 and high < math.inf else max(low, 1e-9) * 2)
    if not loss.exists(start):
        inside = [x for k in range(-60, 61) if low < (x := 2.0**k) < high and loss.exists(x)]
        if not inside:
            raise PrivcalcError(
                f"make: no parameter was found at which it gives a run; at {start:g}: {loss.refusal(start)}"
            )
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


def _edge(loss: Loss, inside: float, end: float, factor: float) -> float:
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


def _whole(loss: Loss, low: float, high: float) -> int:
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
                raise PrivcalcError(
                    f"the target {loss.target.goal} is not met by any whole number from {first} to {last}"
                )
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
