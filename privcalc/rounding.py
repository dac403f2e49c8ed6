"""Numbers as text that errs on a stated side: a bound that is printed stays a bound."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["downward", "upward"]

SPEC = re.compile(r"(?P<shape>[^.]*?)(?:\.(?P<precision>\d+))?(?P<kind>[eEfFgG%]?)")

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
    whole = not (asked["precision"] or asked["kind"])
    if whole or value == 0 or not math.isfinite(value):
        return format(value, spec)
    precision, kind, first = int(asked["precision"] or 6), asked["kind"].lower(), Decimal(value).adjusted()
    if kind in ("f", "%"):
        last = -precision - 2 * (kind == "%")
    else:
        last = first - precision if kind == "e" else first - max(precision, 1) + 1
    quantum = Decimal((0, (1,), last))
    near = Decimal(value).quantize(quantum, context=WIDE)
    if not safe(float(near)):
        near = Decimal(value).quantize(quantum, side, context=WIDE)
    return format(float(near), spec)
