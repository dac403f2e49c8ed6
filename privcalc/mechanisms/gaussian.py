"""The Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privcalc import errors
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair
from privcalc.pairs.replace_one import opposite
from privcalc.run import Additive, ByNumber

__all__ = ["Gaussian"]


@dataclass(frozen=True)
class Gaussian(ByNumber, Additive):
    """Release a sum that a record moves by at most C (replaced: 2C), plus N(0, (noise_multiplier·C)²) noise per entry.

    Under add-or-remove-one and zero-out it is exactly (1/noise_multiplier)-GDP, under replace-one
    (2/noise_multiplier)-GDP, because two contributions of norm C can differ by 2C (``proofs/gaussian.md``).

    Args:
        noise_multiplier: noise standard deviation / C, where C bounds one record's contribution; finite, > 0.

    Raises:
        PrivcalcError: if noise_multiplier is not a finite number > 0.

    Example:
        >>> import privcalc as pc
        >>> mechanism = pc.Gaussian(noise_multiplier=1.0)
        >>> print(f"{mechanism.epsilon(delta=1e-5):.9f} {mechanism.epsilon(delta=1e-5, relation=pc.REPLACE_ONE):.9f}")
        4.377178096 9.997256147
    """

    kind = "Gaussian"
    page = "gaussian.md"
    draws = "gaussian"
    scheme = None

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", errors.scale("noise_multiplier", self.noise_multiplier))

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def norm(self) -> Literal[1, 2]:
        return 2

    def apart(self, records: int) -> Pairs:
        """N(records/z, 1) against N(0, 1)."""
        pair = GaussianPair(records / self.noise_multiplier)
        return Pairs(pair, pair)

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Two opposite records, all others null (``proofs/replace_one.md``)."""
        return (opposite(GaussianPair(1 / self.noise_multiplier), rate),)
