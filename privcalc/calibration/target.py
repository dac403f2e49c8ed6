"""Targets: the number that must not exceed a level, and how it depends on a parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from privcalc import errors
from privcalc.enclosure import Enclosure, Guarantee
from privcalc.errors import PrivcalcError
from privcalc.numerics.solve import Bounds, crossing
from privcalc.relation import Relation
from privcalc.run import Mechanism, Questions, Run

__all__ = ["Loss", "Make", "Target", "target"]

SLOPE = 1.5
"""About how many times faster the loss falls, relatively, than the noise grows; a first guess."""

Make = Callable[[float], Mechanism | Run]


@dataclass(frozen=True)
class Target:
    """One number that must not exceed ``level``."""

    goal: Guarantee
    level: float
    value: Callable[[Run], Bounds]
    achieved: Callable[[Run], Guarantee]
    delta: Callable[[Run], Bounds] | None = None  # at the target's ε: smoother where ε(δ) is about to vanish
    delta_level: float = 0.0


def target(
    epsilon: float | None, delta: float | None, mu: float | None, rho: float | None, relation: Relation, records: int = 1
) -> Target:
    """The question whose answer must stay below the target; ε and δ for groups of ``records``."""
    eps = None if epsilon is None else errors.epsilon("epsilon", epsilon)
    dlt = None if delta is None else errors.delta("delta", delta)
    goal = Guarantee(epsilon=eps, delta=dlt, mu=mu, rho=rho, relation=relation)
    if eps is not None and dlt is not None:
        ask_epsilon = functools.partial(Run.epsilon, delta=dlt, relation=relation, records=records)
        ask_delta = _ends(functools.partial(Run.delta, epsilon=eps, relation=relation, records=records))

        def achieved(run: Run) -> Guarantee:
            return Guarantee(epsilon=ask_epsilon(run), delta=dlt, relation=relation)

        if 0 < eps < dlt and dlt >= 0.1:
            errors.warn(
                f"epsilon = {epsilon!r}, delta = {delta!r}: δ is the larger, a chance of losing everything; are they swapped?"
            )
        if eps > 0:
            return Target(goal, eps, _ends(ask_epsilon), achieved, ask_delta if dlt > 0 else None, dlt)
        return Target(goal, errors.positive("delta (at epsilon = 0)", dlt), ask_delta, achieved)
    if mu is not None:
        ask_mu = functools.partial(Run.gdp_mu, relation=relation)
        level = errors.positive("mu", mu)
        return Target(goal, level, _ends(ask_mu), lambda run: Guarantee(mu=ask_mu(run), relation=relation))
    assert rho is not None

    def value_rho(run: Run) -> Bounds:
        found = run.zcdp(relation=relation)[0]
        return found, found

    level = errors.positive("rho", rho)
    return Target(goal, level, value_rho, lambda run: Guarantee(rho=value_rho(run)[1], relation=relation))


def _ends(ask: Callable[[Run], Enclosure]) -> Callable[[Run], Bounds]:
    """The question as a function to bounds."""

    def ends(run: Run) -> Bounds:
        answer = ask(run)
        return answer.lower, answer.upper

    return ends


def _run(made: object) -> Run:
    """The run, if it is one."""
    if not isinstance(made, Questions):
        raise PrivcalcError(f"make: the function must return a mechanism or run, not {type(made).__name__}")
    return made.run


@dataclass(frozen=True)
class Loss:
    """The quantity to keep below the target, as a function of the parameter."""

    make: Make
    before: Run
    target: Target

    def exists(self, parameter: float) -> bool:
        """Whether the parameter is in the domain."""
        try:
            made = self.make(parameter)
        except (PrivcalcError, OverflowError):
            return False
        _run(made)  # what is no run at one parameter is none at the others
        return True

    def at(self, parameter: float) -> Bounds:
        """Bounds of the quantity."""
        return self.target.value(self.run(parameter) + self.before)

    def run(self, parameter: float) -> Run:
        """What is made of a parameter."""
        return _run(self.make(parameter))

    def cross(self, parameter: Callable[[float], float], guess: float, low: float, high: float) -> float:
        """The least x, to search precision, at which the run was proved to meet the target; ``high`` if none."""
        level, target = self.target.level, self.target

        @functools.cache
        def bounds(x: float) -> Bounds:
            return self.at(parameter(x))

        _, right = crossing(bounds, level, guess, low, high, rtol=1e-13, both=False, slope=SLOPE)
        if target.delta is None or not right < high or bounds(right)[1] > (1 - 1e-7) * level:
            return right
        # ε(δ) jumps to 0 near here; δ(ε) does not.
        question = target.delta
        _, other = crossing(
            lambda x: question(self.run(parameter(x)) + self.before),
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
