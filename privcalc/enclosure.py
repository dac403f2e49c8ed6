"""Answers: enclosures that behave as the number at their safe end, and guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NoReturn

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.relation import Relation

__all__ = ["Enclosure", "Guarantee"]


@dataclass(frozen=True, eq=False)
class Enclosure:
    """A number known to lie in [lower, upper], rounding included.

    ``float()``, comparison and arithmetic use the safe end: the upper one for ε, δ, μ and advantage, the lower one for β. A sum
    of enclosures, by ``+`` or ``sum``, is an enclosure again; any other result is a float. Answers for different relations do
    not mix.

    Attributes:
        lower: proved lower bound.
        upper: proved upper bound; ∞ where nothing better was proved.
        relation: the neighbouring relation the number is for.
        route: how it was computed: "closed form", "contour", "smoothing" (the contour for losses with atoms), "enumeration",
            "lattice" or "fallback" (a wide bound), among others, joined by "+".
        safe: which end is on the safe side.

    Example:
        >>> import privcalc as pc
        >>> answer = pc.Gaussian(noise_multiplier=1.0).epsilon(delta=1e-5)
        >>> f"{answer.lower:.9f} {answer.upper:.9f} {answer.relation} {answer.route}"
        '4.377178096 4.377178096 add-or-remove-one closed form'
        >>> answer <= 4.4 and float(answer) == answer.upper
        True
        >>> total = sum([answer, pc.Laplace(scale=2.0).epsilon(delta=0.0)])
        >>> f"{total.lower:.9f} {total.upper:.9f} {total.relation}"
        '4.877178096 4.877178096 add-or-remove-one'
        >>> 2 * answer == 2 * answer.upper
        True
    """

    lower: float
    upper: float
    relation: Relation
    route: str
    safe: Literal["lower", "upper"] = "upper"

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:  # also catches NaN
            raise ArithmeticError(f"the bounds contradict each other: [{self.lower!r}, {self.upper!r}] by {self.route}")

    @property
    def width(self) -> float:
        """upper − lower."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    def __float__(self) -> float:
        return self.upper if self.safe == "upper" else self.lower

    def _other(self, other: object) -> float:
        if isinstance(other, Enclosure):
            if other.relation is not self.relation:
                raise PrivcalcError(f"relation = {other.relation}: cannot be mixed with an answer for {self.relation}")
            return float(other)
        if isinstance(other, Real):
            return float(other)
        raise TypeError(f"an Enclosure and a {type(other).__name__} do not combine: use float()")

    def __eq__(self, other: object) -> bool:
        return float(self) == self._other(other) if isinstance(other, (Enclosure, Real)) else NotImplemented

    def __hash__(self) -> int:
        return hash(float(self))

    def __lt__(self, other: object) -> bool:
        return float(self) < self._other(other)

    def __le__(self, other: object) -> bool:
        return float(self) <= self._other(other)

    def __gt__(self, other: object) -> bool:
        return float(self) > self._other(other)

    def __ge__(self, other: object) -> bool:
        return float(self) >= self._other(other)

    def __add__(self, other: object) -> Enclosure | float:
        end = self._other(other)
        if isinstance(other, Enclosure):
            if other.safe != self.safe:
                return float(self) + end
            low, high = _outward(self.lower, other.lower, -math.inf), _outward(self.upper, other.upper, math.inf)
            routes = dict.fromkeys([*self.route.split("+"), *other.route.split("+")])
            return Enclosure(low, high, self.relation, "+".join(routes), self.safe)
        # sum() starts with 0: a float in its place would lose the relation of the first term.
        return float(self) + end if end else self

    __radd__ = __add__

    def __sub__(self, other: object) -> float:
        return float(self) - self._other(other)

    def __rsub__(self, other: object) -> float:
        return self._other(other) - float(self)

    def __mul__(self, other: object) -> float:
        return float(self) * self._other(other)

    def __rmul__(self, other: object) -> float:
        return self._other(other) * float(self)

    def __truediv__(self, other: object) -> float:
        return float(self) / self._other(other)

    def __rtruediv__(self, other: object) -> float:
        return self._other(other) / float(self)

    def __round__(self, ndigits: int | None = None) -> float:
        """As a format with so many decimals prints it."""
        return float(f"{self:.{errors.count('ndigits', ndigits or 0)}f}")

    def _cut(self, *_: object) -> NoReturn:
        raise PrivcalcError(
            "answers are not cut to whole numbers, which may be on the unsafe side: round() goes to the safe one, "
            "and float() is the bare number"
        )

    __int__ = __trunc__ = __floor__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _cut

    def __neg__(self) -> float:
        return -float(self)

    def __abs__(self) -> float:
        return abs(float(self))

    def __str__(self) -> str:
        """The common digits of both ends, where they agree to six or more."""
        for digits in range(12, 5, -1):
            text = f"{self.lower:.{digits}g}"
            if text == f"{self.upper:.{digits}g}":
                return text
        return f"[{self.lower:.6g}, {self.upper:.6g}]"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


def _outward(a: float, b: float, direction: float) -> float:
    """a + b, rounded in a direction; as it is where it is exact."""
    exact = 0.0 in (a, b) or math.isinf(a) or math.isinf(b)
    return a + b if exact else math.nextafter(a + b, direction)


@dataclass(frozen=True)
class Guarantee:
    """What was promised or achieved: (ε, δ), or μ-GDP, or ρ-zCDP, under one relation; exactly one of the three.

    Attributes:
        epsilon: ε ≥ 0 of an (ε, δ) guarantee; an Enclosure where it was computed.
        delta: its δ in [0, 1).
        mu: μ of a Gaussian-DP guarantee.
        rho: ρ of a zCDP guarantee.
        relation: the neighbouring relation.

    Example:
        >>> import privcalc as pc
        >>> print(pc.Guarantee(epsilon=3.0, delta=1e-5))
        (3, 1e-05)-DP under add-or-remove-one
    """

    epsilon: float | Enclosure | None = None
    delta: float | None = None
    mu: float | Enclosure | None = None
    rho: float | None = None
    relation: Relation = Relation.ADD_OR_REMOVE_ONE

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "mu", "rho") if getattr(self, name) is not None]
        if len(given) != 1 or (self.epsilon is None) != (self.delta is None):
            raise PrivcalcError(
                "a guarantee is epsilon with delta, or mu, or rho: "
                f"epsilon = {self.epsilon!r}, delta = {self.delta!r}, mu = {self.mu!r}, rho = {self.rho!r}"
            )

    def __str__(self) -> str:
        if self.epsilon is not None:
            return f"({float(self.epsilon):.9g}, {self.delta:.9g})-DP under {self.relation}"
        if self.mu is not None:
            return f"{float(self.mu):.9g}-GDP under {self.relation}"
        return f"{self.rho:.9g}-zCDP under {self.relation}"
