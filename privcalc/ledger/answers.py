"""What a question to a table answers: a value, and how far the noise may have moved it, which is public."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc.mechanisms.additive import Additive
from privcalc.mechanisms.exponential import ExponentialMechanism, TopK
from privcalc.noise.grid import Grid
from privcalc.numerics.special import gammaln, ndtri

__all__ = ["MISS", "Answer", "half_width", "shortfall"]

MISS = 0.05
"""The probability with which an error is larger than is said."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What was released, with the error bar of its noise. All of it may be published, and post-processed freely.

    Attributes:
        question: "count", "sum", "mean", "quantile", "histogram" or "top".
        value: a number, or an array with one row per group; of ``top`` the chosen candidates.
        error: with probability 95 %, for each number by itself, the noise moved it by no more. Of choices: in rows, by
            how much the rank (the count of the rarest of the chosen) may fall short of the best candidate's.
        groups: what the rows of ``value`` are about, or None.
        label: of the release, or None.
    """

    question: str
    value: Any
    error: float | NDArray[np.float64]
    groups: tuple[Hashable, ...] | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        for array in (self.value, self.error):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def __str__(self) -> str:
        choice = self.question in {"quantile", "top"}
        head = self.question if self.label is None else f"{self.label}: {self.question}"
        lines = [(head, self.value, self.error)]
        if self.groups is not None:
            bars = np.broadcast_to(self.error, len(self.groups))
            lines = [
                (f"{head} of {group!r}", *both) for group, *both in zip(self.groups, self.value, bars, strict=True)
            ]
        bar = ", {:.6g} rows from the best with probability 95 %" if choice else " ± {:.6g} (95 % of the noise)"
        return "\n".join(f"{name} = {_plain(value)}{bar.format(error)}" for name, value, error in lines)


def _plain(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return f"{value:.9g}" if isinstance(value, float) else f"{value}"


def half_width(mechanism: Additive, bound: float, miss: float, *, coordinates: int = 1) -> float:
    """What the noise of one of so many numbers exceeds with probability at most ``miss`` (``proofs/tables.md``, §5)."""
    normal = -float(ndtri(0.5 * miss))
    if mechanism.whole:
        return float(math.ceil(normal * mechanism.multiplier * bound))
    grid = Grid.of(mechanism.multiplier, clip_norm=bound, coordinates=coordinates, norm=mechanism.norm)
    quantile = normal if mechanism.norm == 2 else -math.log(miss)
    return quantile * grid.scale + math.ldexp(0.5, grid.exponent)  # it is rounded to the grid


def shortfall(mechanism: ExponentialMechanism | TopK, sensitivity: float, candidates: int) -> float:
    """Bound what the score of a choice falls short of the best by, with probability 95 %.

    See ``proofs/tables.md``, §5.
    """
    if isinstance(mechanism, TopK):
        k = min(mechanism.k, candidates)
        sets = float(gammaln(candidates + 1) - gammaln(k + 1) - gammaln(candidates - k + 1))
        return 2 * sensitivity / mechanism.level * (sets - math.log(MISS))
    return sensitivity / mechanism.level * (math.log(candidates) - math.log(MISS))
