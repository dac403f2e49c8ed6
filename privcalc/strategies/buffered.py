"""Strategies that a few buffers make, however many steps there are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import UNIT, Floats
from privcalc.strategies.matrices import FINE, Falling, Strategy, fine, numbers_of, steps_of

__all__ = ["BLT"]


@dataclass(frozen=True, init=False)
class BLT(Falling):
    """Buffered linear Toeplitz: c_0 = 1, c_i = Σ_j scale_j·decay_j^{i−1}; noise needs one buffer for each j.

    Source: Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024 (*Efficient and Near-Optimal Noise Generation for
    Streaming Differential Privacy*).

    Args:
        scales: each ≥ 0, their sum at most 1, so that coefficients do not rise.
        decays: as many, in [0, 1).
        steps: T, 1 to 10⁷.

    Example:
        >>> from privcalc.strategies import BLT
        >>> BLT([0.25, 0.25], [0.5, 0.75], steps=4).matrix()[:, 0]
        array([1.      , 0.5     , 0.3125  , 0.203125])
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]
    steps: int

    def __init__(self, scales: ArrayLike, decays: ArrayLike, steps: int) -> None:
        given = {
            "scales": numbers_of("scales", scales, dimensions=1),
            "decays": numbers_of("decays", decays, dimensions=1),
        }
        if given["scales"].size != given["decays"].size:
            raise PrivcalcError(
                f"decays: must be as many as scales, {given['scales'].size}, not {given['decays'].size}"
            )
        if np.any(given["scales"] < 0) or math.fsum(given["scales"]) > 1:
            raise PrivcalcError(f"scales = {scales!r}: must be numbers >= 0 whose sum is at most 1")
        if np.any(given["decays"] < 0) or np.any(given["decays"] >= 1):
            raise PrivcalcError(f"decays = {decays!r}: must be numbers in [0, 1)")
        for name, values in given.items():
            object.__setattr__(self, name, tuple(values.tolist()))
        object.__setattr__(self, "steps", steps_of(steps))

    @property
    def bands(self) -> int:
        return self.steps

    def rounded(self, *, bands: int | None = None) -> Strategy:
        """Still by buffers, unless it is cut to ``bands``."""
        return fine_buffers(self) if bands is None else super().rounded(bands=bands)

    @property
    def blur(self) -> float:
        """Each row, and each total in it, is rounded to 2⁻²⁰ of the grid (``proofs/correlated.md``, §5)."""
        kept = sum(a * min(self.steps, 1 / (1 - d)) for a, d in zip(self.scales, self.decays, strict=True))
        return math.sqrt(self.steps) * (1 + kept) * 2.0**-FINE

    @property
    def falling(self) -> Floats:
        """A sum of falling powers, after 1."""
        powers = np.arange(self.steps - 1.0)
        total = np.zeros(self.steps - 1)
        with np.errstate(under="ignore"):
            for scale, decay in zip(self.scales, self.decays, strict=True):
                total += scale * decay**powers
        return np.concatenate([[1.0], total])

    @property
    def relative(self) -> float:
        """Powers err by a few units, products and sums by one each; what underflows is as good as 0."""
        return (8 + len(self.scales)) * UNIT


def fine_buffers(strategy: BLT) -> BLT:
    """Scales rounded down, so that they still sum to at most 1, decays to the nearest below 1: multiples of 2^-FINE."""
    scales = np.ldexp(np.floor(np.ldexp(strategy.scales, FINE)), -FINE)
    return BLT(scales, np.minimum(fine(strategy.decays), 1 - 2.0**-FINE), strategy.steps)
