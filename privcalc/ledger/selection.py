"""Choices among candidates, drawn exactly, after they are charged: ``Ledger.select`` and ``Ledger.peel``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.mechanisms.exponential import ExponentialMechanism, TopK
from privcalc.mechanisms.noisy_max import NoisyMax, PermuteAndFlip
from privcalc.noise.release import clipped, finite
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.run import Mechanism

__all__ = ["Chooser"]

Choice = ExponentialMechanism | PermuteAndFlip | NoisyMax
"""Mechanisms that release one candidate; each is cheaper where a record can only raise scores."""


@dataclass(frozen=True)
class Chooser:
    """What one call of a ledger chooses with.

    Attributes:
        noise: drawn from.
        charge: pays for so many uses of a mechanism, or raises.
        room: whether that would not raise.
        disjoint: whether rows were declared to be of disjoint parts of the records.
    """

    noise: Noise
    charge: Callable[[Mechanism, int], None]
    room: Callable[[Mechanism, int], bool]
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
        if len(rows) > 1 and not self.room(mechanism, len(rows)):
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


def _both_ways(mechanism: Choice | TopK) -> Choice | TopK:
    """The same for scores that a record may move either way."""
    match mechanism:
        case NoisyMax():
            return NoisyMax(mechanism.level, noise=mechanism.noise, monotone=False)
        case PermuteAndFlip():
            return PermuteAndFlip(mechanism.level, monotone=False)
        case ExponentialMechanism():
            return ExponentialMechanism(mechanism.level, monotone=False)
    return mechanism


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
