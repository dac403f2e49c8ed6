"""Mechanisms that add noise to a sum of contributions of bounded norm."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from privcalc.errors import PrivcalcError
from privcalc.run import Mechanism

__all__ = ["Additive"]


class Additive(Mechanism):
    """A sum of contributions of norm at most C, and noise of ``multiplier``·C in every coordinate."""

    needs = ("normaliser", "clip_norm")

    def __init_subclass__(cls, **words: object) -> None:
        super().__init_subclass__(**words)
        if not {"normaliser", "clip_norm"} <= set(cls.needs):
            raise PrivcalcError(
                f"{cls.__name__}: needs = {cls.needs!r}: must have normaliser and clip_norm, as all noise on a sum"
            )

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """The noise's scale over C: a standard deviation, of Laplace noise the scale."""

    @property
    def norm(self) -> Literal[1, 2]:
        """Which norm of a contribution is bounded: L1 or L2."""
        return 2

    @property
    def finer(self) -> int:
        """By how many powers of two its noise is drawn on a finer grid than sums are rounded to."""
        return 0

    @property
    def blur(self) -> float:
        """By how much more than a sum's rounding moves it that of a coded row does, which is made of several sums."""
        return 0.0

    @property
    def whole(self) -> bool:
        """Whether sums and noise are whole numbers."""
        return False
