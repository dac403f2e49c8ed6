"""Answers: enclosures that behave as the number at their safe end, printed on its side; and guarantees."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.notebook import Number
from privcalc.relation import Relation, check_relation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    from privcalc.numerics.floats import Floats

__all__ = ["Enclosure", "Enclosures", "Guarantee", "check_answers", "downward", "upward"]

DIGITS = range(12, 5, -1)
"""How many digits of an answer are printed, at most and at least."""

NOISE = 1e-14
"""Ends as near as this, relatively, are kept apart, and from a short number between them, by rounding alone."""


@dataclass(frozen=True, eq=False, repr=False)
class Enclosure(Number):
    """A number known to lie in [lower, upper], rounding included.

    ``float()``, comparison, formatting, differences and ratios use the safe end: the upper one for ε, δ, μ and
    advantage, the lower one for β. A difference from a number, or the ratio of two answers, is a float that says how
    far apart they are, and not what is left of a budget (for that: ``calibrate(…, spent=run)``). Answers do not add,
    nor multiply or divide by a count: runs compose, and the composition is asked. Answers for different relations do
    not mix.

    Attributes:
        lower: proved lower bound.
        upper: proved upper bound; ∞ where nothing better was proved.
        relation: the neighbouring relation the number is for.
        route: how it was computed: "closed form", "contour", "fallback" (a wide bound), among others, joined by "+".
        safe: which end is on the safe side.
        delta: at which an ε or a μ holds, where that is known: with a smaller one it is stated as no guarantee.
        asked: its symbol and at what it is, where that is not ε at ``delta``: ("β", "α = 0.1").

    Example:
        >>> import privcalc as pc
        >>> answer = pc.Gaussian(noise_multiplier=1.0).epsilon(delta=1e-5)
        >>> f"{answer.lower:.9f} {answer.upper:.9f} {answer.relation} {answer.route}"
        '4.377178096 4.377178096 add-or-remove-one closed form'
        >>> answer <= 4.4 and float(answer) == answer.upper
        True
        >>> answer + answer
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: answers do not add: two runs of (ε, δ) have no (2ε, δ), as their δ add, too.
        Compose the runs, and ask: (run_a + run_b).epsilon(delta=…), or pc.certify([a, b], delta=…) of certificates;
        float() is the bare number
    """

    lower: float
    upper: float
    relation: Relation
    route: str
    safe: Literal["lower", "upper"] = "upper"
    delta: float | None = None
    asked: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:  # also catches NaN
            raise ArithmeticError(f"the bounds contradict each other: [{self.lower!r}, {self.upper!r}] by {self.route}")

    @property
    def width(self) -> float:
        """The absolute width, upper − lower."""
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

    def __add__(self, other: object) -> NoReturn:
        self._other(other)
        raise PrivcalcError(
            "answers do not add: two runs of (ε, δ) have no (2ε, δ), as their δ add, too. Compose the runs, and ask: "
            "(run_a + run_b).epsilon(delta=…), or pc.certify([a, b], delta=…) of certificates; float() "
            "is the bare number"
        )

    __radd__ = __add__

    def __mul__(self, other: object) -> NoReturn:
        self._other(other)
        raise PrivcalcError(
            "answers do not multiply: n runs of (ε, δ) have no (nε, δ), as their δ add, too. Compose the runs, and "
            "ask: (run * n).epsilon(delta=…); float() is the bare number"
        )

    __rmul__ = __mul__

    def __sub__(self, other: object) -> float:
        return float(self) - self._other(other)

    def __rsub__(self, other: object) -> float:
        number = self._other(other)
        if self.safe == "lower":  # 1 − β is a rate
            return number - float(self)
        raise PrivcalcError(
            "answers are not taken from a budget: what a run leaves of (ε, δ) is not ε less its own, as their δ add, "
            "too. Ask for the noise of what is to follow, pc.calibrate(lambda z: run + release(z), epsilon=…, "
            "delta=…), or have a Ledger with target= keep it; float() is the bare number"
        )

    def __truediv__(self, other: Enclosure) -> float:
        """How many times the other answer this one is."""
        number = self._other(other)
        return float(self) / number if isinstance(other, Enclosure) else self._share()

    def __rtruediv__(self, other: object) -> NoReturn:
        self._other(other)
        self._share()

    def _share(self) -> NoReturn:
        raise PrivcalcError(
            "answers do not divide: one of n runs that share (ε, δ) has neither (ε/n, δ) nor (ε/n, δ/n), and an ε goes "
            "into a budget another number of times than it divides it. Ask for the part itself, part.epsilon(delta=…), "
            "for its noise, pc.calibrate(lambda z: release(z) * n, epsilon=…, delta=…), or for how many, pc.steps(…); "
            "ratios of figures are of their ends, answer.upper / other"
        )

    def __round__(self, ndigits: int | None = None) -> float:
        """As a format with so many decimals prints it."""
        return float(f"{self:.{errors.count('ndigits', ndigits or 0)}f}")

    def _cut(self, *_: object) -> NoReturn:
        raise PrivcalcError(
            "answers are not cut to whole numbers, which may be on the unsafe side: round() goes to the safe one, "
            "and float() is the bare number"
        )

    __int__ = __trunc__ = __floor__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = (
        _cut
    )

    def __neg__(self) -> float:
        return -float(self)

    def __abs__(self) -> float:
        return abs(float(self))

    def _rounded(self, spec: str) -> str:
        """The safe end, rounded to its safe side; but a short number between ends that only rounding keeps apart."""
        if self.safe == "upper":
            return upward(self.upper, spec, enough=max(self.lower, self.upper * (1 - NOISE)))
        return downward(self.lower, spec, enough=min(self.upper, self.lower * (1 + NOISE)))

    def _digits(self) -> int | None:
        """How many digits both ends allow: less than a unit of the last one lies between them."""
        scale = max(abs(self.lower), abs(self.upper)) if math.isfinite(self.width) else 0.0
        return next((digits for digits in DIGITS if self.width <= scale * 10.0**-digits), None)

    def __str__(self) -> str:
        """The safe end, rounded to its safe side, to the digits that are known; both ends if these are below six."""
        if (digits := self._digits()) is None:
            return f"[{downward(self.lower, '.6g')}, {upward(self.upper, '.6g')}]"
        return self._rounded(f".{digits}g")

    def __format__(self, spec: str) -> str:
        """The safe end, rounded to its safe side; as ``str`` without a specification."""
        return self._rounded(spec) if spec else str(self)

    def stated(self, symbol: str, *, digits: int | None = None) -> str:
        """A claim in words that nobody can quote too well: its safe end first.

        Example:
            >>> import privcalc as pc
            >>> pc.Enclosure(1.935791, 1.994139, pc.ADD_OR_REMOVE_ONE, "fallback").stated("ε")
            'ε ≤ 1.99414 (the true value is at least 1.93579)'
        """
        sign, most = ("≤", "at least") if self.safe == "upper" else ("≥", "at most")
        if (known := self._digits()) is not None:
            return f"{symbol} {sign} {self._rounded(f'.{digits or known}g')}"
        other = downward(self.lower, ".6g") if self.safe == "upper" else upward(self.upper, ".6g")
        return f"{symbol} {sign} {self._rounded('.6g')} (the true value is {most} {other})"


@dataclass(frozen=True, eq=False)
class Enclosures:
    """Many answers: arrays of proved ends, one for each number that was asked for, in its shape.

    ``answers[i]`` is an :class:`Enclosure`, ``numpy.asarray(answers)`` an array of the safe ends.

    Attributes:
        lower: proved lower bounds.
        upper: proved upper bounds; ∞ where nothing better was proved.
        relation: the neighbouring relation the numbers are for.
        route: how each was computed.
        safe: which end is on the safe side.
        delta: at which each ε holds.

    Example:
        >>> import privcalc as pc
        >>> answers = pc.Gaussian(noise_multiplier=1.0).epsilon(delta=[1e-5, 1e-6])
        >>> answers.upper.round(6)
        array([4.377178, 4.886554])
        >>> print(answers[1])
        4.88655411747
    """

    lower: Floats
    upper: Floats
    relation: Relation
    route: NDArray[np.str_]
    safe: Literal["lower", "upper"] = "upper"
    delta: Floats | None = None

    def __post_init__(self) -> None:
        if not (self.lower <= self.upper).all():  # also catches NaN
            raise ArithmeticError("the bounds of an answer contradict each other")

    @property
    def width(self) -> Floats:
        """The absolute width, upper − lower."""
        import numpy as np

        return np.where(self.lower == self.upper, 0.0, self.upper - self.lower)

    def __len__(self) -> int:
        return len(self.lower)

    def __getitem__(self, at: int | tuple[int, ...]) -> Enclosure:
        if not isinstance(lower := self.lower[at], float):
            raise PrivcalcError(f"[{at!r}]: must be the place of one answer, of shape {self.lower.shape}")
        delta = None if self.delta is None else float(self.delta[at])
        return Enclosure(float(lower), float(self.upper[at]), self.relation, str(self.route[at]), self.safe, delta)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        safe = self.upper if self.safe == "upper" else self.lower
        return np.array(safe, dtype=dtype, copy=copy is not False)


def check_answers(relation: Relation, level: float | None = 0.0, /, **given: object) -> None:
    """Refuse answers, among numbers at ``level`` = δ, that hold elsewhere, on the other side, or at larger δ only."""
    for name, value in given.items():
        if not isinstance(value, Enclosure):
            continue
        if value.relation is not relation:
            raise PrivcalcError(f"{name} = {value}: is an answer for {value.relation}, and not for {relation}")
        if (value.safe == "lower") != (name == "beta"):
            raise PrivcalcError(f"{name} = {value}: is an answer whose safe end is the {value.safe} one")
        if value.delta is not None and level is not None and value.delta > level:
            raise PrivcalcError(
                f"{name} = {value}: is an answer that holds at δ = {value.delta:g}, and not at {level:g}: compose the "
                "runs themselves, a + b, or state ApproxDP with its δ"
            )


@dataclass(frozen=True)
class Guarantee:
    """What was promised or achieved under one relation: (ε, δ), or μ-GDP, or ρ-zCDP, or what an attack can do.

    Exactly one of the five; each number may be an Enclosure where it was computed.

    Attributes:
        epsilon: ε ≥ 0 of an (ε, δ) guarantee,
        delta: with its δ in [0, 1); or
        mu: μ of a Gaussian-DP guarantee; or
        rho: ρ of a zCDP guarantee; or
        advantage: the largest true minus false positive rate of any attack on membership, in [0, 1]; or
        beta: the smallest false negative rate of any attack on membership, in [0, 1],
        alpha: with its false positive rate in [0, 1].
        relation: the neighbouring relation.

    Example:
        >>> import privcalc as pc
        >>> print(pc.Guarantee(epsilon=3.0, delta=1e-5))
        (3, 1e-05)-DP under add-or-remove-one
        >>> print(pc.Guarantee(alpha=0.01, beta=0.9))
        false negative rate >= 0.9 at false positive rate 0.01 under add-or-remove-one
    """

    epsilon: float | Enclosure | None = None
    delta: float | None = None
    mu: float | Enclosure | None = None
    rho: float | None = None
    relation: Relation = Relation.ADD_OR_REMOVE_ONE
    advantage: float | Enclosure | None = None
    alpha: float | None = None
    beta: float | Enclosure | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "mu", "rho", "advantage", "beta") if getattr(self, name) is not None]
        pairs = (self.epsilon is None) == (self.delta is None) and (self.alpha is None) == (self.beta is None)
        if len(given) != 1 or not pairs:
            shown = ", ".join(f"{name} = {value!r}" for name, value in vars(self).items() if name != "relation")
            raise PrivcalcError(
                f"a guarantee is epsilon with delta, or mu, or rho, or advantage, or alpha with beta: {shown}"
            )
        level = None if self.delta is None else errors.delta("delta", self.delta)
        check_answers(
            check_relation(self.relation), level or 0.0, **{name: getattr(self, name) for name in (*given, "delta")}
        )
        object.__setattr__(self, "delta", level)
        for name in given:
            if not isinstance(value := getattr(self, name), Enclosure):
                rate = name in {"advantage", "beta"}
                allowed, most = ("a number in [0, 1]", 1.0) if rate else ("a number >= 0", math.inf)
                object.__setattr__(self, name, errors.real(name, value, allowed, low=0.0, high=most))
        if self.alpha is not None:
            object.__setattr__(self, "alpha", errors.real("alpha", self.alpha, "a number in [0, 1]", low=0.0, high=1.0))

    def __str__(self) -> str:
        return f"{self._claim()} under {self.relation}"

    def _claim(self) -> str:
        if self.epsilon is not None:
            return f"({upward(float(self.epsilon), '.9g')}, {upward(self.delta or 0.0, '.9g')})-DP"
        if self.mu is not None:
            return f"{upward(float(self.mu), '.9g')}-GDP"
        if self.advantage is not None:
            return f"advantage <= {upward(float(self.advantage), '.9g')}"
        if self.beta is not None:
            rate = downward(self.alpha or 0.0, ".9g")
            return f"false negative rate >= {downward(float(self.beta), '.9g')} at false positive rate {rate}"
        return f"{upward(self.rho or 0.0, '.9g')}-zCDP"


SPEC = re.compile(r"[^.]*?(?:\.(?P<precision>\d+))?(?P<kind>[eEfFgG%]?)")
WIDE = Context(prec=1100)
"""Holds every double, and its quantum at any precision that people ask for."""


def upward(value: float, spec: str, *, enough: float = math.inf) -> str:
    """``format(value, spec)``, but never below value.

    Args:
        value: any float.
        spec: a format specification of kind e, f, g or %, or without a kind.
        enough: a number below value from which on the nearest decimal need not be raised.

    Returns:
        The next decimal of that precision at or above value. What reads as value itself stays: 0.1 is "0.1".

    Raises:
        ValueError: for any other specification.

    Example:
        >>> upward(4.3771, ".2f"), upward(0.1, ".12g"), downward(0.999999, ".3g"), upward(float("inf"), ".3g")
        ('4.38', '0.1', '0.999', 'inf')
    """
    return _outward(value, spec, ROUND_CEILING, lambda near: near >= min(value, enough))


def downward(value: float, spec: str, *, enough: float = -math.inf) -> str:
    """``format(value, spec)``, but never above value, or what is ``enough``; else as :func:`upward`."""
    return _outward(value, spec, ROUND_FLOOR, lambda near: near <= max(value, enough))


def _outward(value: float, spec: str, side: str, safe: Callable[[float], bool]) -> str:
    if (asked := SPEC.fullmatch(spec)) is None:
        raise ValueError(f"format = {spec!r}: must be of kind e, f, g or %")
    if not (asked["precision"] or asked["kind"]) or value == 0 or not math.isfinite(value):
        return format(value, spec)
    precision, kind, first = int(asked["precision"] or 6), asked["kind"].lower(), Decimal(value).adjusted()
    if kind in ("f", "%"):
        last = -precision - 2 * (kind == "%")
    else:
        last = first - precision if kind == "e" else first - max(precision, 1) + 1
    near = Decimal(value).quantize(quantum := Decimal((0, (1,), last)), context=WIDE)
    if not safe(float(near)):
        near = Decimal(value).quantize(quantum, side, context=WIDE)
    return format(float(near), spec)
