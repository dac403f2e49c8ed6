"""Ball arithmetic: where python-flint comes in, and the few functions that all rigorous routes use.

An ``arb`` is an interval that contains the exact value; every operation keeps that true, at a precision set by
``precision``. A comparison of balls is true only if it holds for all values in them.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any, TypeAlias

import flint

Ball: TypeAlias = Any
"""An ``arb`` (real) or ``acb`` (complex)."""


def precision(bits: int) -> AbstractContextManager[Any]:
    """Work with so many bits inside a ``with``."""
    context: AbstractContextManager[Any] = flint.ctx.workprec(bits)
    return context


def arb(value: Any) -> Ball:
    """The exact value of an int, a float or a fraction, as a ball.

    Example:
        >>> arb(0.1) * 10 == 1  # the float 0.1 is not a tenth
        False
        >>> arb(0.5) * 2 == 1
        True
    """
    if isinstance(value, Fraction):
        return flint.arb(value.numerator) / value.denominator
    return flint.arb(value)


def acb(real: Any, imaginary: Any) -> Ball:
    """Return a complex ball from its real and imaginary parts."""
    return flint.acb(arb(real), arb(imaginary))


def upper(ball: Ball) -> float:
    """A float that is no smaller than anything in the ball; ∞ for a ball without bound.

    Example:
        >>> upper(arb(1) / 3) * 3 >= 1, upper(arb(0.1))
        (True, 0.1)
    """
    if not ball.is_finite():
        return math.inf
    value = float(ball.upper())
    return value if value == math.inf or arb(value) >= ball else math.nextafter(value, math.inf)


def lower(ball: Ball) -> float:
    """A float that is no larger than anything in the ball."""
    return -upper(-ball)


def middle(ball: Ball) -> float:
    """An approximation, for planning only; NaN for a ball without bound."""
    return float(ball.mid()) if ball.is_finite() else math.nan


def pi() -> Ball:
    """Return π at the working precision."""
    return flint.arb.pi()


def span(low: Ball, high: Ball) -> Ball:
    """The smallest ball that contains both."""
    return low.union(high)


def error(radius: Ball) -> Ball:
    """The ball [−r, r]."""
    return radius.union(-radius)


def ndtr(x: Ball) -> Ball:
    """The normal distribution function, to full relative precision in both tails.

    Example:
        >>> ndtr(arb(0)) == 0.5
        True
    """
    return (-x / arb(2).sqrt()).erfc() / 2


def density(x: Ball) -> Ball:
    """Return the standard normal density at x."""
    return (-x * x / 2).exp() / (2 * pi()).sqrt()
