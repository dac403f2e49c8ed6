"""A pair that is a product of others: composed as these, never as one."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import Floats
from privcalc.numerics.solve import Bounds
from privcalc.pairs.pair import Pair


@dataclass(frozen=True)
class ProductPair(Pair):
    """Several pairs, each so many times, independently; ``whole`` dominates the product, and is simple."""

    parts: tuple[tuple[Pair, int], ...]
    whole: Pair

    @property
    def factors(self) -> tuple[tuple[Pair, int], ...]:
        return self.parts

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Between nothing and that of the whole."""
        delta, tail, error = self.whole.profile(epsilon)
        return ProfileValues(0 * delta, 0 * tail, delta + error)

    @property
    def reverse(self) -> Pair:
        return ProductPair(tuple((pair.reverse, count) for pair, count in self.parts), self.whole.reverse)

    @property
    def zcdp(self) -> float:
        return self.whole.zcdp

    @property
    def gdp_bounds(self) -> Bounds:
        """Bounds (0, μ), the upper one of the whole."""
        return 0.0, self.whole.gdp_bounds[1]
