"""From descriptions of mechanisms to exact factors: the pairs of ``proofs/``, stated again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.allocation import RandomAllocation
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP, Stated
from privcalc.mechanisms.laplace import Laplace as LaplaceMechanism
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.mechanisms.top_k import TopK
from privcalc.mechanisms.users import UserSampled
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.rigorous.allocated import Allocated
from privcalc.rigorous.balls import Ball, arb, ndtr, precision
from privcalc.rigorous.factors import Atoms, Chords, Factor, Laplace, Logistic, Moments, Normal, UnprovableError
from privcalc.rigorous.integers import Integers
from privcalc.rigorous.persons import Persons
from privcalc.rigorous.sampled import Opposite, Sampled
from privcalc.run import Mechanism, Run

Kind = Literal["dominating", "moments", "occurring"]
"""Pairs that dominate; alternatives: of a bounded range a²/8-zCDP, of short integer vectors a normal pair; pairs that occur."""


@dataclass(frozen=True)
class Leak:
    """Uses that give everything away, with probability ≤ ``high`` and ≥ ``low`` each; from below ``dropped`` is not counted."""

    count: int
    high: Fraction
    low: Fraction
    dropped: Fraction


class Leaked(NamedTuple):
    """1 − Π(1 − p)^n from above and below; the share Π(1 − dropped)^n kept below (``proofs/conversions.md``, §2)."""

    high: Ball
    low: Ball
    kept: Ball


@dataclass(frozen=True)
class Composition:
    """One direction: factors, leaks, and whether this pair itself occurs."""

    factors: tuple[Factor, ...]
    leaks: tuple[Leak, ...]
    exact: bool

    def leaked(self) -> Leaked:
        """What all leaks together come to."""
        high, low, kept = arb(1), arb(1), arb(1)
        for leak in self.leaks:
            high *= (1 - arb(leak.high)) ** leak.count
            low *= (1 - arb(leak.low)) ** leak.count
            kept *= (1 - arb(leak.dropped)) ** leak.count
        return Leaked(1 - high, 1 - low, kept)

    def top(self) -> Ball | None:
        """The largest loss apart from leaks; None if there is none."""
        total = arb(0)
        for factor in self.factors:
            top = factor.top
            if top is None:
                return None
            total += factor.count * top
        return total


def compose(run: Run, relation: Relation, kind: Kind, *, add: bool) -> Composition:
    """The factors of a run in one direction.

    Raises:
        UnprovableError: if a part has no factor here.
        PrivcalcError: if a mechanism has no guarantee under the relation.
    """
    square, parts, leaks, exact = Fraction(0), dict[Factor, int](), list[Leak](), True
    alone = len(run.entries) == 1 and run.entries[0][1] == 1
    for mechanism, count in run.entries:
        for part in _parts(mechanism, count, relation, kind, add):
            if isinstance(part, Leak):
                leaks.append(part)
            elif isinstance(part, Normal):
                square += part.count * part.square
            else:
                parts[replace(part, count=1)] = parts.get(replace(part, count=1), 0) + part.count
            exact = exact and (kind == "occurring" or _occurs(mechanism, part, alone))
    factors = [replace(part, count=n) for part, n in parts.items()]
    if square:
        factors.append(Normal(1, square))
    return Composition(tuple(factors), tuple(leaks), exact)


def _occurs(mechanism: Mechanism, part: Factor | Leak, alone: bool) -> bool:
    """The logistic pair's profile is attained by one use, not by several; that of integers, and of rounded norms, is not."""
    base = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
    if isinstance(base, CorrelatedGaussian) or (isinstance(base, DiscreteGaussian) and base.norm == 2):
        return False
    return alone if isinstance(part, Logistic) else not isinstance(part, (Moments, Chords))


def _parts(mechanism: Mechanism, count: int, relation: Relation, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    if isinstance(mechanism, Stated) and mechanism.relation is not relation:
        raise PrivcalcError(f"relation = {relation}: {mechanism} was given for {mechanism.relation}")
    moves = 2 if relation is REPLACE_ONE else 1
    match mechanism:
        case Gaussian():
            yield Normal(count, (moves * _mu(mechanism)) ** 2)
        case GDP():
            yield Normal(count, _mu(mechanism) ** 2)
        case DiscreteGaussian(norm=2):
            if kind == "moments" or (kind == "dominating" and mechanism.sensitivity >= 2):
                yield Normal(count, (moves * _mu(mechanism)) ** 2)
            else:  # so many coordinates that move by 1
                yield Integers(count * math.floor(Fraction(mechanism.sensitivity) ** 2), _square(mechanism), moves)
        case DiscreteGaussian():
            yield Integers(count, _square(mechanism), moves * int(mechanism.sensitivity))
        case PureDP():
            yield Atoms(count, Fraction(mechanism.level))
        case RandomizedResponse():
            yield Atoms(count, Fraction(mechanism.level), mechanism.categories - 2)
        case ApproxDP():
            p = Fraction(mechanism.failure)
            if mechanism.level:
                yield Atoms(count, Fraction(mechanism.level))
            if p:
                yield Leak(count, p, p, p)
        case LaplaceMechanism():
            yield Laplace(count, moves / Fraction(mechanism.scale))
        case ExponentialMechanism():
            yield _ranged(count, Fraction(mechanism.level) * moves * (1 if mechanism.monotone else 2), kind)
        case TopK():
            yield _ranged(count, Fraction(mechanism.level) / 2 * moves, kind)
        case ZCDP():
            rho = Fraction(mechanism.rho)
            yield Normal(count, 2 * rho) if kind == "occurring" else Moments(count, rho, Fraction(mechanism.xi))
        case RDP():
            yield _renyi(mechanism, count, kind)
        case PoissonSampled() if mechanism.rate == 1:
            yield from _parts(mechanism.mechanism, count, relation, kind, add)
        case PoissonSampled():
            yield from _sampled(mechanism, count, relation, kind, add)
        case CorrelatedGaussian():
            for part, uses in mechanism.simpler(occurring=kind == "occurring").entries:
                yield from _parts(part, count * uses, relation, kind, add)
        case UserSampled():
            yield _persons(mechanism, count, relation, kind, add)
        case RandomAllocation():
            yield _allocated(mechanism, count, relation, kind, add)
        case _:
            raise UnprovableError(f"{mechanism}: not covered by the rigorous route")


def _persons(mechanism: UserSampled, count: int, relation: Relation, kind: Kind, add: bool) -> Factor:
    """All records of the worst person point the same way."""
    if relation is REPLACE_ONE:
        raise UnprovableError(f"{mechanism}: two persons of opposite records are not covered by the rigorous route")
    most = mechanism.records if mechanism.counted is None else mechanism.counted
    for _ in _parts(mechanism.mechanism, count, relation, kind, add):  # raises where there is no guarantee
        pass
    mu = most * _mu(mechanism.mechanism)
    if mechanism.rate == 1:
        return Normal(count, mu**2)
    return Persons(count, mu, Fraction(mechanism.rate), add, mechanism.records, most)


def _allocated(mechanism: RandomAllocation, count: int, relation: Relation, kind: Kind, add: bool) -> Factor:
    """One of the steps, in every pass the same."""
    if relation is REPLACE_ONE:
        raise PrivcalcError(f"relation = {relation}: {mechanism} is not evaluated for it")
    for _ in _parts(mechanism.mechanism, count, relation, kind, add):  # raises where there is no guarantee
        pass
    square = _mu(mechanism.mechanism) ** 2 * mechanism.epochs
    if mechanism.choices == mechanism.steps:
        return Normal(count, square * mechanism.steps)
    if mechanism.choices > 1:
        raise UnprovableError(f"{mechanism}: several steps for each record are not covered by the rigorous route")
    return Allocated(count, square, mechanism.steps, add)


def _ranged(count: int, a: Fraction, kind: Kind) -> Factor:
    """Loss of range a: the logistic pair; or a²/8-zCDP and a-DP; it occurs as a choice between two with losses ±a/2."""
    if kind == "occurring":
        return Atoms(count, a / 2)
    return Moments(count, a * a / 8, most=a) if kind == "moments" else Logistic(count, a)


def _renyi(mechanism: RDP, count: int, kind: Kind) -> Factor:
    """K lies below its chords; D_α does not fall with α, so that a smaller value at a larger order holds below, too."""
    pairs = [(a, Fraction(e)) for a, e in zip(mechanism.orders, mechanism.epsilons, strict=True) if e < math.inf]
    if kind == "occurring":
        return Normal(count, 2 * min((e / Fraction(a) if a < math.inf else Fraction(0) for a, e in pairs), default=Fraction(0)))
    knots, least = [], None
    for a, e in reversed(pairs):
        least = e if least is None else min(least, e)
        if a < math.inf:
            knots.append((Fraction(a) - 1, (Fraction(a) - 1) * least))
    most = pairs[-1][1] if pairs and pairs[-1][0] == math.inf else None
    return Chords(count, tuple(reversed(knots)), most)


def _sampled(mechanism: PoissonSampled, count: int, relation: Relation, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    q = Fraction(mechanism.rate)
    base = mechanism.mechanism
    if isinstance(base, DiscreteGaussian) and base.norm == 2 and kind == "occurring":
        return
    if relation is REPLACE_ONE:
        match base:
            case Gaussian() | DiscreteGaussian(norm=2):
                yield Opposite(count, _mu(base), q)
            case GDP(relation=stated) if stated is ADD_OR_REMOVE_ONE:
                yield Opposite(count, _mu(base), q)
            case _:
                raise UnprovableError(f"{mechanism}: under replace-one only the group rule is proved here")
        return
    vectors = isinstance(base, DiscreteGaussian) and base.norm == 2
    for part in [Normal(count, _mu(base) ** 2)] if vectors else _parts(base, count, relation, kind, add):
        if isinstance(part, Normal):
            if isinstance(base, Stated) and not isinstance(base, GDP):
                raise UnprovableError(f"{base}: cannot be sampled, because only its Rényi divergences are known")
            yield Sampled(count, _mu(base), q, add)
        elif isinstance(part, Atoms):
            yield replace(part, rate=q, add=add)
        elif isinstance(part, Leak):
            yield Leak(count, q * part.high, Fraction(0) if add else q * part.low, part.dropped)
        else:
            raise UnprovableError(f"{mechanism}: its transform is not covered by the rigorous route")


def _mu(base: Mechanism) -> Fraction:
    """μ of N(μ, 1) against N(0, 1), which dominates one that is added or removed."""
    match base:
        case Gaussian():
            return 1 / Fraction(base.noise_multiplier)
        case GDP():
            return Fraction(base.mu)
        case DiscreteGaussian(norm=2):
            norm = Fraction(base.sensitivity)
            return norm * _unit_mu(Fraction(base.noise_multiplier) * norm)
    raise UnprovableError(f"{base}: is not covered as a normal release")


def _square(noise: DiscreteGaussian) -> Fraction:
    """σ²."""
    return (Fraction(noise.noise_multiplier) * Fraction(noise.sensitivity)) ** 2


def _unit_mu(sigma: Fraction) -> Fraction:
    """A double above W(σ) of ``proofs/discrete_gaussian.md``, (6.1): as 2/σ is, and what bisection has checked."""
    low, high = float(1 / sigma), float(2.1 / sigma)
    with precision(400):
        wanted = (-1 / (2 * arb(sigma) ** 2)).exp()
        for _ in range(60):
            w = low + 0.5 * (high - low)
            beside = ndtr(arb(-w) / 2) - ndtr(arb(-3 * Fraction(w)) / 2)
            if beside < wanted * (1 - 2 * ndtr(arb(-w) / 2)):
                high = w
            else:
                low = w
    return Fraction(high)
