"""Tripwires: batches that no coins drew (``proofs/interop.md``, §6), norms of drawn records alone, sums of unclipped ones.

They see sizes, zeros and one norm only, and prove nothing where they are silent: most of what is wrong does not show in these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError, warn

__all__ = ["DIVIDED", "RAW", "Divided", "Releases", "Shares", "Sizes", "Zeros", "check_persons", "check_sum"]

DOUBT, REFUSAL = 1e-9, 2.0**-128
"""Chances, under coins, of a warning and of a refusal in a whole run: a refusal is an output, a warning for who has the data."""

ADVICE = (
    "these are not Poisson samples, and ε does not hold for them. A loader that shuffles or cuts batches of one size, and a seed "
    "that is set again in every step, do this. Toss a coin for each record in each step (ledger.poisson_batch(step) does, and "
    "Opacus's own loader), or describe what runs: pc.FixedSizeSampled, pc.ShuffledEpoch (docs/samplers.md)"
)


class Sizes:
    """The sizes of a run's batches. They are secret; no message has any.

    Args:
        rate: with which each record takes part in a batch, in (0, 1].
        records: how many there are, at least 1.

    Attributes:
        chance: a bound of the probability that a run, however long, ever looks like this under coins: at most a of all runs
            have a chance of at most a.
        found: what it was found by, in words.
    """

    def __init__(self, rate: float, records: int) -> None:
        self._log_likeliest = log_likeliest(rate, records)
        self._counts: Counter[int] = Counter()
        self._batches, self._most = 0, 0
        self._last, self._streak = 0, 0
        self.chance, self.found = 1.0, ""

    def add(self, size: int) -> None:
        """One more batch. Empty ones are passed over: those between them are as independent, and of one law."""
        if size < 1 or self._log_likeliest == 0:
            return
        self._batches += 1
        self._counts[size] += 1
        self._most = max(self._most, self._counts[size])
        self._streak = self._streak + 1 if size == self._last else 1
        self._last = size
        self._look(self._batches, self._batches, self._most)
        self._look(self._batches - self._streak + 1, self._streak, self._streak)

    def _look(self, place: int, batches: int, alike: int) -> None:
        """``alike`` of some batches had one size; ``place`` numbers the looks of this kind, so that all together are unlikely."""
        choices = math.lgamma(batches + 1) - math.lgamma(alike + 1) - math.lgamma(batches - alike + 1)
        chance = math.exp(min(choices + (alike - 1) * self._log_likeliest, 0.0)) * 2 * place * (place + 1)
        if chance < self.chance:
            many = f"the last {batches}" if alike == batches else f"{alike} of {batches}"
            self.chance, self.found = chance, f"{many} batches had one and the same size"

    @property
    def doubt(self) -> str | None:
        """What a warning says; None while there is no reason for one."""
        return self._text(f"{DOUBT:g}") if self.chance < DOUBT else None

    def check(self) -> None:
        """Raise PrivcalcError where coins are out of the question."""
        if self.chance < REFUSAL:
            raise PrivcalcError(self._text("2^-128"))

    def _text(self, bound: str) -> str:
        return f"batches: {self.found} (empty ones apart), which has probability below {bound} under independent coins: {ADVICE}"


class Zeros:
    """Norms that are 0 in a step for all but about rate·records, and in the next for all but others: the drawn ones.

    Whoever has norms that are truly 0 mostly keeps them (a record that nothing is learnt from, a margin that is wide enough), so
    that those that are not 0 are the same in the next step. Of drawn records each is drawn again with probability ``rate`` only.
    It is no proof (``proofs/audits.md``, §1).

    Attributes:
        doubt: whether, for at least five steps in a row and sixteen records that changed, both numbers were such as coins give.
        short: whether, in fewer steps, all numbers since the first were such as coins give, of at least eight records.
    """

    def __init__(self) -> None:
        self.doubt = False
        self._contrary = False
        self._drawn, self._left, self._expected, self._scatter = 0, 0, 0.0, 0.0
        self._forget()

    @property
    def short(self) -> bool:
        """What answers look at, before there is a doubt."""
        near = abs(self._drawn - self._expected) <= 4 * math.sqrt(self._scatter)
        again = self._stayed <= self._mean + 4 * math.sqrt(self._variance)
        return not self._contrary and min(self._drawn, self._left) >= 8 and near and again

    def _forget(self) -> None:
        """Begin again: so many records are not drawn by coins."""
        self._last: NDArray[np.bool_] | None = None
        self._steps, self._were, self._stayed, self._mean, self._variance = 0, 0, 0, 0.0, 0.0

    @property
    def nbytes(self) -> int:
        """Memory that grows with the number of records."""
        return 0 if self._last is None else self._last.nbytes

    def add(self, norms: NDArray[np.floating[Any]], rate: float) -> None:
        """The norms of all records in one more step, sampled at a rate below 1. Steps in which all are 0 are passed over."""
        count = int(np.count_nonzero(norms))
        if count == 0 or self.doubt:
            return
        self._drawn, self._left = self._drawn + count, self._left + norms.size - count
        self._expected += rate * norms.size
        self._scatter += rate * (1 - rate) * norms.size
        if count > rate * norms.size + 4 * math.sqrt(rate * (1 - rate) * norms.size) + 2:
            self._contrary = True
            self._forget()
            return
        found = norms > 0
        if self._last is not None:
            were = int(np.count_nonzero(self._last))
            self._steps += 1
            self._were += were
            self._stayed += int(np.count_nonzero(found & self._last))
            self._mean += rate * were
            self._variance += rate * (1 - rate) * were
            off, left = 4 * math.sqrt(self._variance), self._were - self._mean
            self.doubt = self._steps >= 5 and left >= max(16, 2 * off) and self._stayed <= self._mean + off
        self._last = found


RAW = (
    "norms: none of them has reached the clip norm yet, of which without clip_norm they are taken to be shares. Where they are "
    "norms as they are, give clip_norm, or ε is wrong, and may be far too small; if shares, clip_norm=1 says so (and a smaller "
    "clip norm would have needed less noise)"
)
"""Of norms that may be no shares of a clip norm."""


UNIT = (
    "norms: none of them has reached a tenth of the clip norm yet, as if they had another unit than it: a loss that is averaged "
    "over the batch has gradients as many times shorter, and norms may have been divided already. If so, ε is far too small: "
    "give the norm of each record's own contribution; if not, a smaller clip norm would have needed less noise"
)
"""Of norms far below the clip norm that was given."""

ALIKE = (
    "norms: many, in several steps, are one and the same number below the clip norm, and none is larger, as if they had been "
    "clipped to it: if these are norms after another clipping, or in another unit, ε is too small, give those of what was really "
    "added up; if not, this number as the clip norm would have needed less noise"
)
"""Of norms that may have been clipped to another clip norm."""


class Shares:
    """Shares of a clip norm: of records that were clipped the share is 1.

    It is no proof: norms as they are may reach 1 by chance, and a clip norm may be so large that no record is clipped.

    Attributes:
        steps: in how many steps some were given that are not 0.
        norms: how many these were.
        largest: the largest.
        times: how many were as large as that, but for rounding in single precision,
        turns: in how many steps that had at least two of these.
    """

    def __init__(self, steps: int = 0, norms: int = 0, largest: float = 0.0, times: int = 0, turns: int = 0) -> None:
        self.steps, self.norms, self.largest, self.times, self.turns = steps, norms, largest, times, turns

    def add(self, norms: NDArray[np.floating[Any]]) -> None:
        """Those of one more step."""
        found = int(np.count_nonzero(norms))
        if found:
            most = float(norms.max())
            times = int(np.count_nonzero(norms >= most * (1 - 1e-6)))
            here = Shares(1, found, most, times, int(times > 1))
            self.__dict__.update(self.and_those(here).__dict__)

    def and_those(self, other: Shares) -> Shares:
        """Both."""
        largest = max(self.largest, other.largest)
        same = [each for each in (self, other) if each.largest >= largest * (1 - 1e-6)]
        counts = sum(each.times for each in same), sum(each.turns for each in same)
        return Shares(self.steps + other.steps, self.norms + other.norms, largest, *counts)

    @property
    def doubt(self) -> bool:
        """Whether there were many, and none was 1, up to rounding in half precision."""
        return self.steps >= 5 and self.norms >= 50 and self.largest < 1 - 1e-2

    @property
    def unit(self) -> str | None:
        """What is said where they are of norms that were given with their clip norm; None if nothing is."""
        if self.doubt and self.largest < 0.1:
            return UNIT
        cut = self.turns >= 3 and min(self.times, self.norms - self.times) >= 50  # all alike are of bounded records
        return ALIKE if cut and self.largest < 1 - 1e-2 else None


DIVIDED = (
    "norms: many are 1 and none is larger, as if they had been divided by the clip norm already: if so, leave clip_norm out, or "
    "ε is far too small; if they are norms as they are, a clip norm of 1 would have needed less noise"
)
"""Of norms that may be shares of the clip norm that was given."""


class Divided:
    """Norms that were given with a clip norm above 1, and look like shares of it: the clipped ones are 1, and none is larger.

    With a smaller clip norm shares count as more than they are. It is no proof: see :class:`Shares`.

    Attributes:
        ones: how many were 1, up to rounding in single precision.
        largest: the largest.
    """

    def __init__(self, ones: int = 0, largest: float = 0.0) -> None:
        self.ones, self.largest = ones, largest

    def add(self, norms: NDArray[Any], clip_norm: float) -> None:
        """Those of one more step."""
        if clip_norm > 1 and norms.size:
            self.ones += int(np.count_nonzero(np.abs(norms - 1.0) <= 1e-6))
            self.largest = max(self.largest, float(norms.max()))

    def and_those(self, other: Divided) -> Divided:
        """Both."""
        return Divided(self.ones + other.ones, max(self.largest, other.largest))

    @property
    def doubt(self) -> bool:
        """Whether many were 1, and none was larger."""
        return self.ones >= 50 and self.largest <= 1 + 1e-6


ROWS = (
    "values: have as many rows as there are records in {where}: noise goes on one sum over these, of a public shape, and not on "
    "rows, with which ε does not hold; sum over the first axis, unless it is of coordinates that are as many by chance"
)
SHAPE = (
    "values: have another shape than with an earlier batch of its step: shapes are public, and where one depends on who is in "
    "the batch, ε does not hold"
)
MEAN = (
    "clip_norm: goes with one over the size of the batch, as of a mean over it: that size is private, and noise that is "
    "scaled by it tells what it is, so that ε does not hold. Add up contributions of one clip norm, and divide what is released "
    "by step.expected_size(public number of records)"
)
MANY = 8
"""So many rows, or more, are seldom coordinates."""

NARROW = ("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16")
"""Types in which sums of some thousand records wrap around, or are rounded by more than what one of them adds."""


class Releases:
    """What a ledger was given to release: rows instead of a sum, a shape that follows the batch, sums in few bits.

    Whoever has the data is warned, once of each; where right runs, whatever is drawn, are not warned at all, so that the warning
    tells nothing of records, it is published, too. Refused is only what cannot be where shapes are public and stay as they are
    (``proofs/ledger.md``, §5).

    Args:
        records: how many there are, if that is public.
        publish: is told what may be published, and warns of it.
    """

    def __init__(self, records: int | None, publish: Callable[[str], None] = warn) -> None:
        self._records, self._publish = records, publish
        self._told: set[str] = set()
        self._shapes: dict[object, tuple[int, ...]] = {}
        self._followed: dict[object, set[int]] = {}
        self._products: dict[object, tuple[int, float]] = {}

    def look(
        self,
        values: object,
        shape: tuple[int, ...],
        step: object,
        size: int | None,
        clip_norm: float = 0.0,
        *,
        exact: bool = False,
    ) -> None:
        """One more release.

        Args:
            values: as they were given.
            shape: theirs.
            step: what they are a release of, all of one shape.
            size: of the batch they are of; None: there is none.
            clip_norm: what the noise is scaled with.
            exact: whether the caller stated how far they are from the exact sum, and so that they are one.

        Raises:
            PrivcalcError: if with two batches of a step, of two sizes, there were as many rows as records.
        """
        kind = f"{getattr(values, 'dtype', '')}".removeprefix("torch.")
        if kind in NARROW:
            self._tell(
                f"values: are a sum of type {kind}, which wraps around or is rounded by more than one record's contribution, so "
                "that ε does not hold: add up in 32 or 64 bits, such as values.sum(axis=0, dtype=...)",
                self._publish,
            )
        if size is None:
            if shape and shape[0] == self._records and shape[0] >= MANY and not exact:
                self._tell(ROWS.format(where="public['records']"), self._publish)
            return
        before_size, before_norm = self._products.setdefault(step, (size, clip_norm))
        alike = math.isclose(clip_norm * size, before_norm * before_size, rel_tol=1e-9)
        if size != before_size and clip_norm * size > 0 and alike:
            self._tell(MEAN)
        follows = bool(shape) and shape[0] == size
        sizes = self._followed.setdefault(step, set())
        if follows and sizes - {size}:
            raise PrivcalcError(ROWS.format(where="the batch, of whatever size it is"))
        if follows:
            sizes.add(size)
        before = self._shapes.get(step)
        self._shapes.setdefault(step, shape)
        if follows and size >= MANY and shape != before and not exact:  # as many as before may be coordinates
            self._tell(ROWS.format(where="the batch"))
        if before not in (None, shape):
            self._tell(SHAPE, self._publish)

    def count(self, records: int) -> None:
        """How many records a batch is drawn from: what is public may be a rounded or noisy number of them."""
        if self._records is not None and not self._records / 2 <= records <= 2 * self._records:
            self._tell(
                "records: are more than twice or less than half of what public['records'] says, which is what certificates go "
                "by: give one number, or open a ledger of its own for other records"
            )

    def _tell(self, doubt: str, how: Callable[[str], None] = warn) -> None:
        """Once."""
        if doubt not in self._told:
            self._told.add(doubt)
            how(doubt)


def check_persons(name: str, *, rows: int, persons: int, most: int) -> None:
    """Warn where persons who may have several rows have one each, as the numbers of rows have.

    Args:
        name: of the argument.
        rows: how many rows are somebody's.
        persons: how many persons they are of.
        most: how many rows of a person may count.
    """
    if most > 1 and rows == persons >= MANY:
        warn(
            f"{name}: is another one in every row, although up to {most} rows of a person count: if these are numbers of rows, "
            "and do not tell whose they are, ε holds for rows and not for persons; name the same person alike in all rows (if "
            "nobody has two, one row per person needs less noise)"
        )


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
            f"{name}: are longer than any sum over this batch, or over all records, of contributions of norm <= clip_norm = "
            f"{clip_norm!r} (by so much that rounding does not explain it): clip each record's contribution before they are "
            "added, give the norm that they were clipped to, and add what is public, such as the gradient of a penalty, after "
            "the noise"
        )


def log_likeliest(rate: float, records: int) -> float:
    """Upper bound of the logarithm of the largest probability that a batch, given that it is not empty, has of any size."""
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
