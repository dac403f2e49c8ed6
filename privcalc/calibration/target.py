"""Targets: the number that must not exceed a level, and how it depends on a parameter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from privcalc import errors
from privcalc.enclosure import Enclosure, Guarantee
from privcalc.errors import PrivcalcError
from privcalc.numerics.solve import Bounds, crossing
from privcalc.run import Mechanism, Run

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

    def meets(self, run: Run) -> bool:
        """Whether a run was proved to meet the target."""
        return self.value(run)[1] <= self.level


def target(goal: Guarantee, group_size: int = 1) -> Target:
    """The question whose answer must stay below the target; ε and δ, and the advantage, for groups of ``group_size``.

    Raises:
        PrivcalcError: if the target is none that noise can meet, or not known for groups.
    """
    relation = goal.relation
    if goal.epsilon is not None:
        eps, dlt = errors.epsilon("epsilon", float(goal.epsilon)), goal.delta or 0.0
        ask_epsilon = functools.partial(Run.epsilon, delta=dlt, relation=relation, group_size=group_size)
        ask_delta = _ends(functools.partial(Run.delta, epsilon=eps, relation=relation, group_size=group_size))

        def achieved(run: Run) -> Guarantee:
            return Guarantee(epsilon=ask_epsilon(run), delta=dlt, relation=relation)

        if errors.may_be_swapped(eps, dlt):
            errors.warn(
                f"epsilon = {eps!r}, delta = {dlt!r}: δ is the larger, a chance of losing everything; are they swapped?"
            )
        if eps > 0:
            return Target(goal, eps, _ends(ask_epsilon), achieved, ask_delta if dlt > 0 else None, dlt)
        return Target(goal, errors.positive("delta (at epsilon = 0)", dlt), ask_delta, achieved)
    if goal.advantage is not None:
        level = errors.real("advantage", float(goal.advantage), "in (0, 1]", low=0.0, high=1.0, open_low=True)
        distance = functools.partial(Run.delta, epsilon=0.0, relation=relation, group_size=group_size)
        return Target(goal, level, _ends(distance), lambda run: Guarantee(advantage=distance(run), relation=relation))
    if group_size != 1:
        raise PrivcalcError(
            f"group_size = {group_size}: must be 1 unless the target is epsilon and delta, or advantage"
        )
    if goal.beta is not None:
        return _missed(goal)
    if goal.mu is not None:
        ask_mu = functools.partial(Run.gdp_mu, relation=relation)
        level = errors.positive("mu", float(goal.mu))
        return Target(goal, level, _ends(ask_mu), lambda run: Guarantee(mu=ask_mu(run), relation=relation))
    assert goal.rho is not None

    def value_rho(run: Run) -> Bounds:
        rho, xi = run.zcdp(relation=relation)
        return (rho, rho) if xi == 0 else (math.inf, math.inf)  # what is (ξ, ρ)-zCDP is no ρ-zCDP

    level = errors.positive("rho", goal.rho)
    return Target(goal, level, value_rho, lambda run: Guarantee(rho=value_rho(run)[1], relation=relation))


def _missed(goal: Guarantee) -> Target:
    """β(α) must be at least so much; what falls with noise is the power 1 − β(α)."""
    alpha, beta = goal.alpha or 0.0, float(goal.beta or 0.0)
    if not 0 < beta < 1 - alpha:
        raise PrivcalcError(
            f"beta = {beta!r}: must be in (0, 1 - alpha), where guessing has 1 - alpha; alpha = {alpha!r}"
        )
    ask = functools.partial(Run.beta, alpha=alpha, relation=goal.relation)

    def power(run: Run) -> Bounds:
        found = ask(run)
        return max(math.nextafter(1 - found.upper, 0.0), 0.0), min(math.nextafter(1 - found.lower, math.inf), 1.0)

    level = math.nextafter(1 - beta, 0.0)
    return Target(goal, level, power, lambda run: Guarantee(alpha=alpha, beta=ask(run), relation=goal.relation))


def _ends(ask: Callable[[Run], Enclosure]) -> Callable[[Run], Bounds]:
    """The question as a function to bounds."""

    def ends(run: Run) -> Bounds:
        answer = ask(run)
        return answer.lower, answer.upper

    return ends


def _run(made: object) -> Run:
    """The run, if it is one."""
    if not isinstance(made, (Mechanism, Run)):
        raise PrivcalcError(f"make: the function must return a mechanism or run, not {type(made).__name__}")
    return made.run


@dataclass(frozen=True)
class Loss:
    """The quantity to keep below the target, as a function of the parameter."""

    make: Make
    before: Run
    target: Target
    known: dict[float, Bounds] = field(default_factory=dict, compare=False, repr=False)
    """What was found, by parameter."""

    def exists(self, parameter: float) -> bool:
        """Whether the parameter is in the domain."""
        return not self.refusal(parameter)

    def refusal(self, parameter: float) -> str:
        """Why the parameter is not in the domain; nothing if it is."""
        try:
            made = self.make(parameter)
        except (PrivcalcError, OverflowError) as error:
            return str(error) or type(error).__name__
        _run(made)  # what is no run at one parameter is none at the others
        return ""

    def at(self, parameter: float) -> Bounds:
        """Bounds of the quantity."""
        if parameter not in self.known:
            self.known[parameter] = self.target.value(self.run(parameter) + self.before)
        return self.known[parameter]

    def run(self, parameter: float) -> Run:
        """What is made of a parameter."""
        return _run(self.make(parameter))

    def cross(self, parameter: Callable[[float], float], guess: float, low: float, high: float) -> float:
        """The least x, to search precision, at which the run was proved to meet the target; ``high`` if none."""
        level, target = self.target.level, self.target

        def bounds(x: float) -> Bounds:
            return self.at(parameter(x))

        # Upper ends: a search for the middle of a wide enclosure would end beyond what is needed.
        _, right = crossing(bounds, level, guess, low, high, rtol=1e-13, both=False, slope=SLOPE, above=True)
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
