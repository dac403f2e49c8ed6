"""Choices among candidates, drawn exactly and charged in one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import BudgetExceeded, PrivcalcError
from privcalc.ledger.provenance import Provenance
from privcalc.ledger.terms import Terms
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.noisy_max import NoisyMax, PermuteAndFlip
from privcalc.mechanisms.top_k import TopK
from privcalc.noise.arrays import clipped, finite
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats
from privcalc.run import Mechanism

__all__ = ["Selection"]

Choice = ExponentialMechanism | PermuteAndFlip | NoisyMax
"""Mechanisms that release one candidate; each is cheaper where a record can only raise scores."""


class Selection(ABC):
    """What :class:`Ledger` chooses."""

    _noise: Noise

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What the ledger was opened for."""

    @abstractmethod
    def would_exceed(self, mechanism: Any, count: int = 1) -> bool:
        """Whether plan or cap have too little left for it."""

    @abstractmethod
    def _charge(self, mechanism: Mechanism, count: int = 1, label: str | None = None, told: Provenance | None = None) -> None:
        """Before anything is drawn."""

    def select(
        self,
        scores: ArrayLike,
        mechanism: ExponentialMechanism | PermuteAndFlip | NoisyMax | TopK,
        *,
        sensitivity: float,
        monotone: bool = False,
        joint: bool = False,
        label: str | None = None,
        told: Provenance | None = None,
    ) -> int | NDArray[np.int64]:
        """Choose a candidate, as ``mechanism`` does with ε·score/sensitivity; or one in each of several rows.

        Args:
            scores: one per candidate, shape (n,). With shape (rows, n) one choice is made per row, and each is charged, unless
                ``Assumptions(parts="disjoint")`` was declared: every record counts in one row only. Then together they cost what
                one does, because ranges add when a replaced record changes two rows. Or unless the choice is ``joint``.
            mechanism: ``ExponentialMechanism``, ``PermuteAndFlip`` or ``NoisyMax``; or ``TopK`` for sets, which needs
                ``monotone=True``.
            sensitivity: Δ > 0: how far one record can move any score, as it was computed. The choice is drawn exactly.
            monotone: whether a record can only raise scores (or only lower them). Unless this and ``mechanism.monotone`` both say
                so, the mechanism with ``monotone=False`` is charged, at double the cost, and has to be in the plan.
            joint: whether the rows are one choice, of a candidate in each, whose score is the sum of theirs: one use is charged,
                and ``sensitivity`` (and ``monotone``) are of that sum.
            label: as in ``gaussian``.
            told: likewise.

        Returns:
            The index; for ``TopK`` the k indices, ascending, because a set is released and not its ranking; one or k per row.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if an argument does not fit, or rows declared disjoint are one array.
        """
        delta = errors.scale("sensitivity", sensitivity)
        monotone, joint = errors.flag("monotone", monotone), errors.flag("joint", joint)
        if not isinstance(mechanism, Choice) and not (isinstance(mechanism, TopK) and monotone):
            raise PrivcalcError(
                f"mechanism = {mechanism}: must be ExponentialMechanism, PermuteAndFlip or NoisyMax, or TopK with monotone=True"
            )
        values = clipped("scores", scores)
        if values.ndim not in {1, 2} or not values.size:
            raise PrivcalcError(f"scores: must have shape (n,) or (rows, n), not {values.shape}")
        if isinstance(mechanism, TopK) and values.shape[-1] < mechanism.k:
            raise PrivcalcError(f"scores: must be at least k = {mechanism.k}, not {values.shape[-1]}")
        rows = np.atleast_2d(values)
        for row in rows:
            finite("scores", row)
        mechanism, said = self._said(mechanism, monotone)
        uses = 1 if joint else self._uses(rows, mechanism, shared=_one_row(scores, values))
        self._charge_as_said(mechanism, uses, label, "" if said else "select", told)
        found = np.array([_choose(self._noise, finite("scores", row), mechanism, delta) for row in rows])  # row by row: memory
        if values.ndim == 2:
            return found
        return int(found[0]) if isinstance(mechanism, Choice) else np.asarray(found[0])

    def peel(
        self,
        scores: ArrayLike,
        mechanism: ExponentialMechanism | PermuteAndFlip | NoisyMax,
        *,
        k: int,
        sensitivity: float,
        monotone: bool = False,
        label: str | None = None,
    ) -> NDArray[np.int64]:
        """Choose k different candidates, one after the other among those that are left, with their ranking: charged as k choices.

        A set without its ranking costs less noise: ``select`` with ``TopK``.

        Args:
            scores: one per candidate, shape (n,).
            mechanism: of one choice: ``ExponentialMechanism``, ``PermuteAndFlip`` or ``NoisyMax``.
            k: how many, 1 to n.
            sensitivity: as in ``select``.
            monotone: as in ``select``.
            label: as in ``gaussian``.

        Returns:
            Their indices, in the order in which they were chosen.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if an argument does not fit.

        Example:
            >>> import privcalc as pc
            >>> step = pc.ExponentialMechanism(epsilon=50.0)
            >>> with pc.Ledger(None, plan=step * 2) as ledger:
            ...     ledger.peel([3, 9, 5, 1], step, k=2, sensitivity=1.0, monotone=True).tolist()
            [1, 2]
        """
        delta, number = errors.scale("sensitivity", sensitivity), errors.count("k", k, least=1)
        monotone = errors.flag("monotone", monotone)
        if not isinstance(mechanism, Choice):
            raise PrivcalcError(f"mechanism = {mechanism}: must be ExponentialMechanism, PermuteAndFlip or NoisyMax")
        values = clipped("scores", scores)
        if values.ndim != 1 or values.size < number:
            raise PrivcalcError(f"scores: must have shape (n,) with n at least k = {number}, not {values.shape}")
        exact = finite("scores", values)
        mechanism, said = self._said(mechanism, monotone)
        self._charge_as_said(mechanism, number, label, "" if said else "peel")
        left = np.arange(exact.size)
        found = []
        for _ in range(number):
            place = _choose(self._noise, exact[left], mechanism, delta)
            found.append(int(left[place]))
            left = np.delete(left, place)
        return np.array(found, dtype=np.int64)

    def _said(self, mechanism: Any, monotone: bool) -> tuple[Any, bool]:
        """What is charged, double where it was not said that scores only rise; and whether it was said, or need not be."""
        unsaid = isinstance(mechanism, Choice) and mechanism.monotone and not monotone
        return (_both_ways(mechanism) if unsaid else mechanism), not unsaid

    def _charge_as_said(
        self, mechanism: Mechanism, uses: int, label: str | None, call: str, told: Provenance | None = None
    ) -> None:
        """``call`` is named where it might have said more."""
        try:
            self._charge(mechanism, uses, label, told)
        except BudgetExceeded as error:
            if not call:
                raise
            raise BudgetExceeded(
                f"{error}; where a record can only raise scores (or only lower them), say so, {call}(..., monotone=True)"
            ) from error

    def _uses(self, rows: NDArray[Any], mechanism: Mechanism, *, shared: bool) -> int:
        """What rows cost: one use each, or one altogether if they were declared to be of disjoint parts of the records."""
        if self.terms.assumptions.parts == "disjoint":
            if shared and len(rows) > 1:
                raise PrivcalcError(
                    f"scores: {len(rows)} rows are one array: they are not of disjoint parts, as was declared (proofs/ledger.md)"
                )
            return 1
        if len(rows) > 1 and self.would_exceed(mechanism, len(rows)):
            raise BudgetExceeded(
                f"scores: {len(rows)} rows are charged for {len(rows)} × {mechanism}, more than is left. If every record counts "
                "in one row only, declare it to the ledger, assumptions=Assumptions(parts='disjoint'), and they cost one"
            )
        return len(rows)


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
