"""Doubts of an audit's norms, all together; and of zeros, which records may have that were not drawn.

They see zeros, places, numbers and how large norms are, and prove nothing where they are silent (``proofs/audits.md``, §1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.audit.order import Order
from privcalc.audit.units import Units
from privcalc.tripwire import Sizes

__all__ = ["EMPTY", "Doubts"]

UNMEASURED = (
    "norms: about rate·records of them are not 0 at each step, and others in the next, as if only drawn records had been "
    "measured: give all records' norms, as if all had been drawn, or indices= of the drawn. Else ε is far too small"
)
"""Of zeros that may be records which were not drawn."""

CHOSEN = "If the indices were not the batches but records that you chose to measure, make an audit of these alone"
"""What else batches of one size may be."""

EMPTY = "losses: have no step, so that ε is 0 for all: were they made anew after the run? Each step of it wants an update"
"""Of answers before the first step."""


NOTHING = 1e-5
"""Shares of the clip norm up to this are taken for 0: many add 1e-6 to a norm, or take at least that."""


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
        found = norms > NOTHING
        count = int(np.count_nonzero(found))
        if count == 0 or self.doubt:
            return
        self._drawn, self._left = self._drawn + count, self._left + norms.size - count
        self._expected += rate * norms.size
        self._scatter += rate * (1 - rate) * norms.size
        if count > rate * norms.size + 4 * math.sqrt(rate * (1 - rate) * norms.size) + 2:
            self._contrary = True
            self._forget()
            return
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


class Doubts:
    """All doubts of an audit: the first is warned of at once, and then with every answer.

    Args:
        records: how many.

    Attributes:
        before: what was warned of before it was saved, or joined.
        told: what was warned of since.
    """

    def __init__(self, records: int, before: tuple[str, ...] = ()) -> None:
        self.before, self.told = before, ""
        self._records = records
        self._sizes: dict[float, Sizes] = {}
        self._zeros, self._order, self._units = Zeros(), Order(), Units()

    @property
    def nbytes(self) -> int:
        """Memory that grows with the number of records."""
        return self._zeros.nbytes + self._order.nbytes

    def add(
        self, norms: NDArray[Any], shares: NDArray[Any], *, clip_norm: float | None, rate: float, batch: bool, steps: int
    ) -> None:
        """The norms of one more step.

        Args:
            norms: as they were given.
            shares: of the clip norm, at most 1.
            clip_norm: as it was given; None if the norms were shares.
            rate: of the step.
            batch: whether they are of a batch, and not of all records.
            steps: how many steps they stand for.
        """
        self._units.add(norms, shares, clip_norm)
        doubt = None
        if not batch:
            self._order.add(norms)
            doubt = self._order.doubt
        if steps == 1 and batch:
            sizes = self._sizes.setdefault(rate, Sizes(rate, self._records))
            sizes.add(shares.size)
            if sizes.doubt is not None:
                doubt = f"{sizes.doubt}. {CHOSEN}"
        elif steps == 1 and rate < 1:
            self._zeros.add(shares, rate)
            doubt = doubt or (UNMEASURED if self._zeros.doubt else None)
        if doubt is not None and not self.told:
            self.told = doubt
            errors.warn(doubt)

    def and_those(self, other: Doubts, records: int) -> Doubts:
        """Both, for what was measured, of so many records together; steps that follow are looked at anew."""
        found = Doubts(records, tuple(dict.fromkeys([*self._lasting, *other._lasting])))
        found._units = self._units.and_those(other._units)
        return found

    @property
    def _lasting(self) -> tuple[str, ...]:
        now = self.told or (UNMEASURED if self._zeros.short else "")
        return tuple(dict.fromkeys([*self.before, *([now] if now else [])]))

    @property
    def answered(self) -> list[str]:
        """What is warned of with every answer."""
        return [*self._lasting, *self._units.doubts]

    @property
    def saved(self) -> dict[str, Any]:
        """For a file."""
        return {"doubt": list(self._lasting), **self._units.saved}

    @classmethod
    def restored(cls, records: int, saved: Mapping[str, Any]) -> Self:
        """From a file, of which older ones have one doubt at most."""
        told = saved["doubt"]
        found = cls(records, () if told is None else (told,) if isinstance(told, str) else tuple(map(str, told)))
        found._units = Units.restored(saved)
        return found
