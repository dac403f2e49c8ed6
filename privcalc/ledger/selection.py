"""What a ledger releases that is no sum, drawn exactly, after it is charged.

* choices among candidates: ``Ledger.select`` and ``Ledger.peel`` (``proofs/exponential.md``);
* counts, only where they are large: ``Ledger.thresholded`` (``proofs/thresholded_counts.md``, §4);
* replies of a gate, until its answers are used up: ``Ledger.above`` (``proofs/sparse_vector.md``, §4).
"""

from __future__ import annotations

import contextlib
import datetime
import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.ledger.rules import Single
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.mechanisms.exponential import ExponentialMechanism, TopK
from privcalc.mechanisms.noisy_max import NoisyMax, PermuteAndFlip
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.noise.grid import Grid, needed
from privcalc.noise.release import clipped, finite
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.run import Mechanism

Choice = ExponentialMechanism | PermuteAndFlip | NoisyMax
"""Mechanisms that release one candidate; each is cheaper where a record can only raise scores."""


@dataclass(frozen=True)
class Chooser:
    """What one call of a ledger chooses with.

    Attributes:
        noise: drawn from.
        charge: pays for so many uses of a mechanism, or raises.
        exceeds: whether that would raise.
        disjoint: whether rows were declared to be of disjoint parts of the records.
    """

    noise: Noise
    charge: Callable[[Mechanism, int], None]
    exceeds: Callable[[Mechanism, int], bool]
    disjoint: bool

    def select(
        self, scores: ArrayLike, mechanism: Any, *, sensitivity: float, monotone: bool, joint: bool
    ) -> int | NDArray[np.int64]:
        """One choice, or one in each row (:meth:`Ledger.select`)."""
        delta = errors.scale("sensitivity", sensitivity)
        monotone, joint = errors.flag("monotone", monotone), errors.flag("joint", joint)
        if not isinstance(mechanism, Choice) and not (isinstance(mechanism, TopK) and monotone):
            raise PrivcalcError(
                f"mechanism = {mechanism}: must be ExponentialMechanism, PermuteAndFlip or NoisyMax, "
                "or TopK with monotone=True"
            )
        values = clipped("scores", scores)
        if values.ndim not in {1, 2} or not values.size:
            raise PrivcalcError(f"scores: must have shape (n,) or (rows, n), not {values.shape}")
        if isinstance(mechanism, TopK) and values.shape[-1] < mechanism.k:
            raise PrivcalcError(f"scores: must be at least k = {mechanism.k}, not {values.shape[-1]}")
        rows = np.atleast_2d(values)
        for row in rows:
            finite("scores", row)
        mechanism, said = _said(mechanism, monotone)
        uses = 1 if joint else self._uses(rows, mechanism, shared=_one_row(scores, values))
        self._charge(mechanism, uses, "" if said else "select")
        found = np.array(
            [_choose(self.noise, finite("scores", row), mechanism, delta) for row in rows]
        )  # row by row: memory
        if values.ndim == 2:
            return found
        return int(found[0]) if isinstance(mechanism, Choice) else np.asarray(found[0])

    def peel(
        self, scores: ArrayLike, mechanism: Any, *, k: int, sensitivity: float, monotone: bool
    ) -> NDArray[np.int64]:
        """One choice after another, among what is left (:meth:`Ledger.peel`)."""
        delta, number = errors.scale("sensitivity", sensitivity), errors.count("k", k, least=1)
        monotone = errors.flag("monotone", monotone)
        if not isinstance(mechanism, Choice):
            raise PrivcalcError(f"mechanism = {mechanism}: must be ExponentialMechanism, PermuteAndFlip or NoisyMax")
        values = clipped("scores", scores)
        if values.ndim != 1 or values.size < number:
            raise PrivcalcError(f"scores: must have shape (n,) with n at least k = {number}, not {values.shape}")
        exact = finite("scores", values)
        mechanism, said = _said(mechanism, monotone)
        self._charge(mechanism, number, "" if said else "peel")
        left = np.arange(exact.size)
        found = []
        for _ in range(number):
            place = _choose(self.noise, exact[left], mechanism, delta)
            found.append(int(left[place]))
            left = np.delete(left, place)
        return np.array(found, dtype=np.int64)

    def _charge(self, mechanism: Mechanism, uses: int, call: str) -> None:
        """``call`` is named where it might have said more."""
        try:
            self.charge(mechanism, uses)
        except BudgetExceeded as error:
            if not call:
                raise
            raise BudgetExceeded(
                f"{error}; where a record can only raise scores (or only lower them), say so, {call}(..., "
                "monotone=True)"
            ) from error

    def _uses(self, rows: NDArray[Any], mechanism: Mechanism, *, shared: bool) -> int:
        """The uses that rows cost: one each, or one in all if declared to be of disjoint parts of the records."""
        if self.disjoint:
            if shared and len(rows) > 1:
                raise PrivcalcError(
                    f"scores: {len(rows)} rows are one array: they are not of disjoint parts, "
                    "as was declared (proofs/ledger.md)"
                )
            return 1
        if len(rows) > 1 and self.exceeds(mechanism, len(rows)):
            raise BudgetExceeded(
                f"scores: {len(rows)} rows are charged for {len(rows)} × {mechanism}, more than is left. If every "
                "record counts in one row only, declare it to the ledger, assumptions=Assumptions(parts='disjoint'), "
                "and they cost one"
            )
        return len(rows)


def _said(mechanism: Any, monotone: bool) -> tuple[Any, bool]:
    """What is charged, double where it was not said that scores only rise; and whether it was said, or need not be."""
    unsaid = isinstance(mechanism, Choice) and mechanism.monotone and not monotone
    return (_both_ways(mechanism) if unsaid else mechanism), not unsaid


def _one_row(scores: object, values: NDArray[Any]) -> bool:
    """Whether two rows are one array; not whether they are equal, which would tell something about the records."""
    if not isinstance(scores, (list, tuple)) or values.ndim != 2:
        return values.strides[:1] == (0,)
    seen = Counter(id(row) for row in scores if not isinstance(row, tuple))  # equal literals are one tuple
    return any(
        seen[id(row)] > 1 and np.ptp(clipped("scores", row)) > 0 for row in scores
    )  # parts without records may share their zeros


def _both_ways(mechanism: Choice) -> Choice:
    """The same for scores that a record may move either way."""
    if isinstance(mechanism, NoisyMax):
        return NoisyMax(mechanism.level, noise=mechanism.noise, monotone=False)
    return type(mechanism)(mechanism.level, monotone=False)


def _choose(noise: Noise, scores: Floats, mechanism: Choice | TopK, sensitivity: float) -> int | NDArray[np.int64]:
    """One choice, or a set, with the exact probabilities of the scores as they are (``proofs/exponential.md``)."""
    factor = Fraction(mechanism.level) / Fraction(sensitivity)
    match mechanism:
        case TopK():
            return noise.choose_set(scores, factor / 2, mechanism.k)
        case NoisyMax(noise="laplace"):
            return noise.laplace_max(scores, factor)
        case PermuteAndFlip() | NoisyMax(noise="exponential"):
            return noise.permute_and_flip(scores, factor)
    return noise.choose(scores, factor)


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


class Gate(Single):
    """What :meth:`Ledger.above` opens: ask it until its answers are used up, or the ledger is closed.

    Attributes:
        mechanism: what was charged.
    """

    def __init__(
        self,
        mechanism: AboveThreshold,
        sensitivity: float,
        noise: Noise,
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.mechanism, self._left = mechanism, mechanism.answers
        self._noise, self._held = noise, held
        scales = (mechanism.threshold_scale, mechanism.query_scale)
        self._exponent = Grid.of(min(scales), clip_norm=sensitivity, coordinates=1, norm=1).exponent
        threshold, self._scale = (self._steps(scale, sensitivity) for scale in scales)
        self._threshold = int(noise.laplace(1, threshold)[0])

    @property
    def left(self) -> int:
        """How many replies may still be "above"; nothing sets it, or one use would have more."""
        return self._left

    def _steps(self, scale: float, sensitivity: float) -> float:
        """The noise in steps of the grid, for Δ and a step more."""
        exact = needed(scale, clip_norm=sensitivity, coordinates=1, error=0.0, norm=1, exponent=self._exponent)
        found = float(exact / Fraction(2) ** self._exponent)
        steps = math.nextafter(found, math.inf)
        if steps > 2.0**52:
            raise PrivcalcError(f"mechanism = {self.mechanism}: no grid is fine enough for both scales")
        return steps

    def ask(self, value: float, *, threshold: float) -> bool:
        """Whether the value, with fresh noise, is at least the threshold, with the gate's noise.

        Args:
            value: of this question; one record moves it by at most the sensitivity (``monotone``: and never down).
            threshold: a public number.

        Raises:
            PrivcalcError: if all answers are used up, a number is not finite, or the ledger is closed or another
                process's.
        """
        level = errors.real("threshold", threshold, "a finite number", low=-1e300, high=1e300)
        exact = _exact(value)
        with self._held():
            if not self._left:
                raise PrivcalcError(f"{self.mechanism}: all its answers were given; open another one")
            noise = int(self._noise.laplace(1, self._scale)[0])
            found = self._whole(exact) + noise >= self._whole(level) + self._threshold
            self._left -= found
        return found

    def _whole(self, value: Fraction | float) -> int:
        """The nearest multiple of the grid's step."""
        return round(Fraction(value) / Fraction(2) ** self._exponent)

    def __repr__(self) -> str:
        return f"Gate({self.mechanism}, left={self.left})"


def _exact(value: object) -> Fraction:
    """A number as it is: as a double, a count beyond 2⁵³ moves by more than one record moves it.

    Errors show no value.
    """
    with contextlib.suppress(TypeError):  # of arrays, which have an index where they are one whole number
        if isinstance(value, SupportsIndex):
            return Fraction(operator.index(value))
    if not isinstance(value, SupportsFloat):
        raise PrivcalcError("value: must be a number")
    found = float(value)
    if not math.isfinite(found):
        raise PrivcalcError("value: must be finite")
    return Fraction(found)


def drawable(mechanism: AboveThreshold, sensitivity: float) -> float:
    """The sensitivity, if a gate can be drawn with it.

    Raises:
        PrivcalcError: if not.
    """
    if not isinstance(mechanism, AboveThreshold):
        raise PrivcalcError(f"mechanism = {mechanism}: must be AboveThreshold")
    bound = errors.scale("sensitivity", sensitivity)
    Grid.of(mechanism.query_scale, clip_norm=bound, coordinates=1, norm=1)  # refused before it is charged
    if max(mechanism.threshold_scale, mechanism.query_scale) > 2.0**14 * min(
        mechanism.threshold_scale, mechanism.query_scale
    ):
        raise PrivcalcError(f"mechanism = {mechanism}: its scales must differ by a factor of at most 2^14, to be drawn")
    return bound
