"""From the description of a run to a composition of exact factors, one for each direction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from privcalc.rigorous.balls import Ball, arb
from privcalc.rigorous.description import Description
from privcalc.rigorous.factors import Factor, Normal
from privcalc.rigorous.mechanisms import BOUNDED, Kind, Leak, factors_of, occurs


class Leaked(NamedTuple):
    """1 − Π(1 − p)^n from above and below; the share Π(1 − dropped)^n kept below (``proofs/conversions.md``, §2)."""

    high: Ball
    low: Ball
    kept: Ball


@dataclass(frozen=True)
class Composition:
    """One composed direction: factors, leaks, and whether this pair itself occurs."""

    factors: tuple[Factor, ...]
    leaks: tuple[Leak, ...]
    exact: bool

    def leaked(self) -> Leaked:
        """Return all leaks together: bounds of the probability that any occurs, and of what is kept."""
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


def compose(run: Description, relation: str, kind: Kind, *, add: bool) -> Composition:
    """The factors of a run in one direction.

    Raises:
        UnprovableError: if a part has no factor here.
        RefusedError: if a mechanism has no guarantee under the relation.
    """
    square, parts, leaks, exact = Fraction(0), dict[Factor, int](), list[Leak](), True
    alone = len(run) == 1 and run[0][1] == 1
    for mechanism, count in run:
        exact = exact and (kind == "occurring" or mechanism.kind not in BOUNDED)
        for part in factors_of(mechanism, count, relation, kind, add):
            if isinstance(part, Leak):
                leaks.append(part)
            elif isinstance(part, Normal):
                square += part.count * part.square
            else:
                parts[replace(part, count=1)] = parts.get(replace(part, count=1), 0) + part.count
            exact = exact and (kind == "occurring" or occurs(mechanism, part, alone))
    factors = [replace(part, count=n) for part, n in parts.items()]
    if square:
        factors.append(Normal(1, square))
    return Composition(tuple(factors), tuple(leaks), exact)
