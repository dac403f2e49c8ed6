"""Tripwires: batches that no coins drew (``proofs/interop.md``, §6), and sums that are none of clipped contributions.

They see sizes, shapes and one norm only, and prove nothing where they are silent: most of what is wrong does not show in these.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable

from privcalc.errors import PrivcalcError, warn
from privcalc.numerics.floats import Floats

__all__ = ["Releases", "Sizes", "check_persons", "check_sum"]

DOUBT, REFUSAL = 1e-9, 2.0**-128
"""Chances, under coins, of a warning and of a refusal in a whole run: a refusal is an output, a warning for who has the data."""

ADVICE = (
    "these are not Poisson samples, and ε does not hold for them. A loader that shuffles or cuts batches of one size, and a seed "
    "that is set again in every step, do this. Toss a coin for each record in each step (ledger.poisson_batch(step) does, and "
    "Opacus's own loader), or describe what runs: pc.FixedSizeSampled, pc.ShuffledEpoch (docs/samplers.md)"
)
MANY_DRAWN = (
    "batches: have together more than twice as many records as coins of this rate give, as if drawn at another one, and "
    "ε does not hold for them. The rate is the probability with which one record takes part in one step, the expected batch size "
    "over the number of records; not one over the steps, or over the records"
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
        surplus: a bound, of the same kind, that all batches together ever hold so many records, which another rate explains.
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
        """``alike`` of some batches had one size; ``place`` numbers the looks of this kind, so that all together are unlikely."""
        choices = math.lgamma(batches + 1) - math.lgamma(alike + 1) - math.lgamma(batches - alike + 1)
        chance = math.exp(min(choices + (alike - 1) * self._log_likeliest, 0.0)) * 2 * place * (place + 1)
        if chance < self.chance:
            many = f"the last {batches}" if alike == batches else f"{alike} of {batches}"
            self.chance, self.found = chance, f"{many} batches had one and the same size"

    def _look_at_total(self) -> None:
        """Whether all batches together are too many records for coins: Chernoff's bound, given that no batch is empty."""
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
        return f"batches: {self.found} (empty ones apart), which has probability below {bound} under independent coins: {ADVICE}"


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
FOLLOWS = (
    "clip_norm: goes up and down from batch to batch: if it is read off these (a median or the largest norm of the batch), it is "
    "private, noise that is scaled by it tells of it, and ε does not hold. Choose it before, or let it follow what was released"
)
NUMBER = (
    "clip_norm: is one over a whole number that is not round, as of a mean over so many records: under add-or-remove-one their "
    "number is private, and noise that is scaled by it tells it. Release the sum and divide it by a public number; if the number "
    "is public, public={'records': …} says so"
)
WHOLE = (
    "values: have norm clip_norm, sum after sum, as if the sum had been clipped and not each record's contribution: one record "
    "then moves it by up to 2 * clip_norm, and ε does not hold. Clip each contribution by itself, before they are added; "
    "torch.nn.utils.clip_grad_norm_, optax.clip_by_global_norm and an optimizer's clipnorm= clip the whole sum"
)
OFTEN = 5
"""Sums in a row, each another one, whose norm is not the clip norm by chance."""

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
        self._clips: dict[object, tuple[float, int, int]] = {}
        self._whole: dict[object, set[bytes]] = {}

    def look(
        self,
        values: object,
        array: Floats,
        step: object,
        size: int | None,
        clip_norm: float = 0.0,
        *,
        length: float | None = None,
        exact: bool = False,
    ) -> None:
        """One more release.

        Args:
            values: as they were given.
            array: the same, in doubles.
            step: what they are a release of, all of one shape.
            size: of the batch they are of; None: there is none.
            clip_norm: what the noise is scaled with.
            length: the norm of the sum, if it is of several records and they bound it.
            exact: whether the caller stated how far they are from the exact sum, and so that they are one.

        Raises:
            PrivcalcError: if with two batches of a step, of two sizes, there were as many rows as records.
        """
        shape = array.shape
        whole = self._whole.setdefault(step, set())
        if length is None or abs(length - clip_norm) > 1e-5 * clip_norm or array.size < 2 or (array % 1 == 0).all():
            whole.clear()
        elif len(whole) < OFTEN:
            whole.add(hashlib.sha256(array.tobytes()).digest())
            if len(whole) == OFTEN:
                self._tell(WHOLE)
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
            if self._records is None and _one_over(clip_norm):
                self._tell(NUMBER)
            return
        last, up, down = self._clips.get(step, (clip_norm, 0, 0))
        self._clips[step] = clip_norm, up + (clip_norm > last), down + (clip_norm < last)
        if min(up, down) >= 2:
            self._tell(FOLLOWS)
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


def _one_over(clip_norm: float) -> bool:
    """Whether it is 1/n of a whole number n of three digits or more, but for zeros at its end, which is no power of two."""
    number = round(1 / clip_norm) if clip_norm > 1e-15 else 0
    odd = number > 100 and abs(1 / clip_norm - number) < 1e-9 * number and number & (number - 1)
    return bool(odd) and len(str(number).rstrip("0")) >= 3


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
