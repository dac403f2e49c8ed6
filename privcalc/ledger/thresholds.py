"""What is released of counts only where they are large, drawn exactly and charged in one call.

Proof: ``proofs/thresholded_counts.md``, §4.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any, TypeVar

import numpy as np

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.noise.source import Noise

__all__ = ["fine", "thresholded"]

Key = TypeVar("Key", bound=Hashable)

FINE, MOST = 36, 52
"""The grid's step is 2^-FINE of the noise, or nearly, and at most 1; the noise has at most 2^MOST steps."""


def thresholded(
    counts: Mapping[Key, int], mechanism: ThresholdedCounts, noise: Noise, charge: Callable[[], None]
) -> dict[Key, float]:
    """Release keys whose noisy count reaches the threshold, with that count, charged before it is drawn.

    This does the work of :meth:`Ledger.thresholded`.
    """
    if not isinstance(mechanism, ThresholdedCounts):
        raise PrivcalcError(f"mechanism = {mechanism}: must be ThresholdedCounts")
    found = _counts(counts)
    exponent = fine(mechanism.scale)
    charge()
    draw = noise.laplace if mechanism.noise == "laplace" else noise.normal
    drawn = draw(len(found), math.ldexp(mechanism.scale, -exponent)).tolist()
    # What is rounded to this or more was at least the threshold.
    least = math.ceil(Fraction(mechanism.threshold) / Fraction(2) ** exponent + Fraction(1, 2))
    sums = {shown(key): (count << -exponent) + one for (key, count), one in zip(found.items(), drawn, strict=True)}
    kept = sorted(
        ((value, key) for key, value in sums.items() if value >= least), key=lambda one: (-one[0], repr(one[1]))
    )
    return {key: float(value * Fraction(2) ** exponent) for value, key in kept}


def fine(scale: float) -> int:
    """The exponent of a grid on which whole numbers lie, and for which ``scale`` is so many steps, exactly.

    Raises:
        PrivcalcError: if there is none.
    """
    exponent = min(math.frexp(scale)[1] - FINE, 0)
    if math.ldexp(scale, -exponent) > 2.0**MOST:
        raise PrivcalcError(f"scale = {scale!r}: must be at most 2^{MOST}, to be drawn")
    return exponent


def shown(key: Any) -> Any:
    """The one form of keys that are equal; other keys than numbers, texts, times and tuples of these stay."""
    try:
        found = _one_form(key.item() if isinstance(key, np.generic) else key)
        return found if found == key and hash(found) == hash(key) else key
    except Exception:  # no key may decide whether there is an answer: infinities are no fractions, say
        return key


def _one_form(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(shown, key))
    if isinstance(key, frozenset):
        return frozenset(map(shown, key))
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes(memoryview(key))
    if isinstance(key, datetime.datetime):
        there = key if key.utcoffset() is None else key.astimezone(datetime.UTC)
        return datetime.datetime(*there.timetuple()[:6], there.microsecond, there.tzinfo)
    if isinstance(key, datetime.time) and (ahead := key.utcoffset()) is not None:
        there = datetime.datetime.combine(datetime.date(2000, 1, 1), key.replace(tzinfo=None)) - ahead
        return there.time().replace(tzinfo=datetime.UTC)  # which is another time where that is another day
    return _one_number(key) if isinstance(key, (Number, Decimal)) else key


def _one_number(key: Any) -> Any:
    """A whole number, else a double, else a decimal number, else a fraction: the first of these that it is."""
    number = key.real if isinstance(key, complex) else key
    if abs(number) == math.inf:
        return float(number)
    exact = Fraction(*number.as_integer_ratio())
    if exact.denominator == 1:
        return exact.numerator
    if Fraction(float(exact)) == exact:
        return float(exact)
    places = exact.denominator.bit_length()  # which are enough, if any are
    whole = exact * 10**places
    if whole.denominator > 1:
        return exact
    digits = f"{whole.numerator}"
    return Decimal(f"{digits.rstrip('0')}E{len(digits) - len(digits.rstrip('0')) - places}")


def _counts(counts: Mapping[Key, int]) -> dict[Key, int]:
    """Those above 0; errors show no values, which are private."""
    if not isinstance(counts, Mapping):
        raise PrivcalcError(f"counts: must be a dictionary of whole numbers, not {type(counts).__name__}")
    try:
        found = {key: operator.index(value) for key, value in counts.items()}
    except TypeError as error:
        raise PrivcalcError("counts: must be whole numbers") from error
    if any(value < 0 for value in found.values()):
        raise PrivcalcError("counts: must be whole numbers >= 0")
    return {key: value for key, value in found.items() if value}
