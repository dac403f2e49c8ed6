"""Tripwires for a claim: batches that no coins drew, sums that no clipped contributions have, self-scaled columns.

For batches see ``proofs/interop.md``, §6.

They see sizes, shapes, one norm and moments. Silence proves nothing: most of what is wrong does not show in these.

Columns centred and scaled by what they hold themselves, as by a ``StandardScaler`` fitted on them, have to six digits
of one standard deviation mean 0 and standard deviation 1, which numbers scaled by public constants have by coincidence
only. One record is then in the values of all others. It is said on the screen of who has the data, and never written
down, for it depends on them (``proofs/ledger.md``, §8).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError, is_tensor, warn

DOUBT, REFUSAL = 1e-9, 2.0**-128
"""Chances, under coins, of a warning and of a refusal in a whole run.

A refusal is an output, a warning is for who has the data.
"""

ADVICE = (
    "these are not Poisson samples, and ε does not hold for them. A loader that shuffles or cuts batches of one size, "
    "and a seed that is set again in every step, do this. Toss a coin for each record in each step "
    "(ledger.poisson_batch(step) does, and Opacus's own loader), or describe what runs: pc.FixedSizeSampled, "
    "pc.ShuffledEpoch (docs/samplers.md)"
)
MANY_DRAWN = (
    "batches: have together more than twice as many records as coins of this rate give, as if drawn at another one, "
    "and ε does not hold for them. The rate is the probability with which one record takes part in one step, the "
    "expected batch size over the number of records; not one over the steps, or over the records"
)


class Sizes:
    """The sizes of a run's batches. They are secret; no message has any.

    Args:
        rate: with which each record takes part in a batch, in (0, 1].
        records: how many there are, at least 1.

    Attributes:
        chance: a bound of the probability that a run, however long, ever looks like this under coins: at most a of all
            runs have a chance of at most a.
        found: what it was found by, in words.
        surplus: a bound, of the same kind, that all batches together ever hold so many records, which another rate
            explains.
    """

    def __init__(self, rate: float, records: int) -> None:
        self._log_likeliest = log_likeliest(rate, records)
        self._counts: Counter[int] = Counter()
        self._batches, self._most = 0, 0
        self._last, self._streak = 0, 0
        self._rate, self._records, self._total = rate, records, 0
        self.chance, self.found, self.surplus = 1.0, "", 1.0

    def add(self, size: int) -> None:
        """One more batch. Empty ones are passed over: those between them are as independent, and of one law."""
        if size < 1 or self._log_likeliest == 0:
            return
        self._batches += 1
        self._counts[size] += 1
        self._most = max(self._most, self._counts[size])
        self._streak = self._streak + 1 if size == self._last else 1
        self._last = size
        self._total += size
        self._look_at_total()
        self._look(self._batches, self._batches, self._most)
        self._look(self._batches - self._streak + 1, self._streak, self._streak)

    def _look(self, place: int, batches: int, alike: int) -> None:
        """Look at some batches, ``alike`` of which had one size; ``place`` numbers the looks of this kind.

        With that, all looks together are unlikely.
        """
        choices = math.lgamma(batches + 1) - math.lgamma(alike + 1) - math.lgamma(batches - alike + 1)
        chance = math.exp(min(choices + (alike - 1) * self._log_likeliest, 0.0)) * 2 * place * (place + 1)
        if chance < self.chance:
            many = f"the last {batches}" if alike == batches else f"{alike} of {batches}"
            self.chance, self.found = chance, f"{many} batches had one and the same size"

    def _look_at_total(self) -> None:
        """Check whether all batches together are too many records for coins.

        It is Chernoff's bound, given that no batch is empty.
        """
        tosses, share = self._batches * self._records, self._total / (self._batches * self._records)
        if share <= 2 * self._rate:
            return
        rest = (1 - share) * math.log((1 - share) / (1 - self._rate)) if share < 1 else 0.0
        exponent = tosses * (share * math.log(share / self._rate) + rest)
        some = self._batches * math.log(-math.expm1(self._records * math.log1p(-self._rate)))
        self.surplus = min(self.surplus, math.exp(min(-exponent - some, 0.0)) * self._batches * (self._batches + 1))

    @property
    def doubt(self) -> str | None:
        """What a warning says; None while there is no reason for one."""
        if self.chance >= DOUBT > self.surplus:
            return MANY_DRAWN
        return self._text(f"{DOUBT:g}") if self.chance < DOUBT else None

    def check(self) -> None:
        """Raise PrivcalcError where coins are out of the question."""
        if self.chance < REFUSAL:
            raise PrivcalcError(self._text("2^-128"))

    def _text(self, bound: str) -> str:
        chance = f"which has probability below {bound} under independent coins"
        return f"batches: {self.found} (empty ones apart), {chance}: {ADVICE}"


ROWS = (
    "values: have as many rows as there are records in the batch, of whatever size it is: noise goes on one sum over "
    "these, of a public shape, and not on rows, with which ε does not hold; sum over the first axis"
)
FEW_BITS = (
    "values: are a sum of type {kind}, which wraps around or is rounded by more than one record's contribution: add up "
    "in 32 or 64 bits, such as values.sum(axis=0, dtype=...)"
)
BYTES = 4
"""With fewer one record can move a sum by more than its own contribution."""


class Shapes:
    """Whether sums have a row for each record of a batch, in batches of two sizes: no public shape is both."""

    def __init__(self) -> None:
        self._followed: dict[object, int] = {}

    def look(self, shape: tuple[int, ...], step: object, size: int) -> None:
        """One more release with a batch.

        Args:
            shape: of what is to be released.
            step: what it is a release of.
            size: of the batch. Secret; the message has it not.

        Raises:
            PrivcalcError: if with two batches of a step, of two sizes, there were as many rows as records.
        """
        if shape[:1] == (size,) and self._followed.setdefault(step, size) != size:
            raise PrivcalcError(ROWS)


def check_kind(values: object) -> None:
    """Refuse a sum in a type of fewer than 32 bits. Its type is the program's, and tells nothing of records.

    Raises:
        PrivcalcError: if it is one.
    """
    kind: Any = getattr(values, "dtype", None) if is_tensor(values) else np.asarray(values).dtype
    if kind.itemsize < BYTES:
        raise PrivcalcError(FEW_BITS.format(kind=f"{kind}".removeprefix("torch.")))


def check_sum(name: str, norm: float, *, clip_norm: float, records: int, error: float = 0.0) -> None:
    """Refuse a sum that is longer than contributions of a norm can make it, by so much that no rounding explains it.

    Args:
        name: of the argument.
        norm: of the sum.
        clip_norm: bound of one contribution's norm.
        records: how many there are. Secret, as is the norm; the message has neither.
        error: a bound of what rounding did to the sum.

    Raises:
        PrivcalcError: if it is longer than twice ``clip_norm`` times ``records``.
    """
    if not norm <= 2 * clip_norm * records + error:
        raise PrivcalcError(
            f"{name}: are longer than any sum over this batch, or over all records, of contributions of norm <= "
            f"clip_norm = {clip_norm!r} (by so much that rounding does not explain it): clip each record's "
            "contribution before they are added, give the norm that they were clipped to, and add what is public, such "
            "as the gradient of a penalty, after the noise"
        )


def log_likeliest(rate: float, records: int) -> float:
    """The logarithm of the largest probability that a batch has of any size, from above.

    It is given that the batch is not empty.
    """
    mode = min(max(1, math.floor((records + 1) * rate)), records)
    if mode == records:
        log_mass = records * math.log(rate)
    else:  # Stirling's formula with the bounds of Robbins 1955
        rest = records - mode
        log_mass = 0.5 * math.log(records / (2 * math.pi * mode * rest))
        log_mass += 1 / (12 * records) - 1 / (12 * mode + 1) - 1 / (12 * rest + 1)
        log_mass -= _divergence(mode, records * rate) + _divergence(rest, records * (1 - rate))
    some = 1.0 if rate == 1 else -math.expm1(records * math.log1p(-rate))
    return min(log_mass - math.log(some), 0.0)


def _divergence(count: int, mean: float) -> float:
    """count·log(count/mean) − count + mean ≥ 0, of which nothing cancels where they are close."""
    off = (count - mean) / mean
    return max(mean * ((1 + off) * math.log1p(off) - off), 0.0)


LEAST = 20
"""Fewer rows may be a design of experiments, which is balanced by intent."""

CHUNK = 4096
"""Rows that are looked at together, so that there is no second copy of all."""


def is_standardized(values: NDArray[Any]) -> bool:
    """Whether each column that varies has mean 0 and standard deviation 1 (of n or n − 1), by more than two values.

    Args:
        values: of all records, shape (n, …), finite.
    """
    if values.dtype.kind != "f" or len(values) < LEAST:
        return False
    columns = values.reshape(len(values), -1)
    rows, near = len(columns), 1e-4 / max(100.0, len(columns) ** 0.5)
    mean, squares = columns.mean(axis=0, dtype=np.float64), np.zeros(columns.shape[1])
    for start in range(0, rows, CHUNK):
        off = columns[start : start + CHUNK] - mean
        squares += np.einsum("ij,ij->j", off, off)
    varies = columns.min(axis=0) < columns.max(axis=0)
    unit = np.logical_or(*(np.abs(np.sqrt(squares / count) - 1) <= near for count in (rows, rows - 1)))
    if not varies.any() or not ((np.abs(mean) <= near) & unit)[varies].all():
        return False
    return any(np.unique(columns[:CHUNK, each]).size > 2 for each in np.flatnonzero(varies))  # −1 and 1 are codes


def check_standardized(name: str, values: NDArray[Any]) -> None:
    """Warn where columns were scaled by themselves.

    Args:
        name: of the argument.
        values: of all records, shape (n, …), finite.
    """
    if is_standardized(values):
        warn(
            f"{name}: every column has mean 0 and standard deviation 1, as a StandardScaler makes them that is fitted "
            "on these very records: one record is then in the values of all others, and ε does not hold. Scale by "
            "public constants, or fit the scaler on public records"
        )
