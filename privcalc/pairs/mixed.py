"""One of two pairs, by a coin that does not depend on the data and that everybody sees."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc.numerics.faces import ProfileValues, Transform
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.mixed import MixedTransform
from privcalc.numerics.solve import Bounds
from privcalc.pairs.pair import Pair


@dataclass(frozen=True)
class MixedPair(Pair):
    """With probability ``weight`` = w in (0, 1] the pair ``rare``, else ``usual``: δ = (1 − w)δ_usual + wδ_rare.

    ``rare`` dominates ``usual``, so that a greater w is no less. Proof: ``proofs/truncated.md``.
    """

    usual: Pair
    rare: Pair
    weight: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The mean of both."""
        one, two = self.usual.profile(epsilon), self.rare.profile(epsilon)
        delta, tail, error = ((1 - self.weight) * x + self.weight * y for x, y in zip(one, two, strict=True))
        return ProfileValues(delta, tail, error * (1 + 4 * UNIT) + 4 * UNIT * delta + TINY)

    @property
    def reverse(self) -> Pair:
        return MixedPair(self.usual.reverse, self.rare.reverse, self.weight)

    @property
    def convex(self) -> bool:
        """A mean of convex functions is."""
        return self.usual.convex and self.rare.convex

    @property
    def max_loss(self) -> float:
        return max(self.usual.max_loss, self.rare.max_loss)

    @property
    def zcdp(self) -> float:
        """Rényi divergence is quasi-convex (van Erven, Harremoës 2014, Theorem 13)."""
        return max(self.usual.zcdp, self.rare.zcdp)

    @property
    def gdp_bounds(self) -> Bounds:
        """Whatever coins fall, the larger one of both is a bound, n times, too."""
        return self.usual.gdp_bounds[0], max(self.usual.gdp_bounds[1], self.rare.gdp_bounds[1])

    @property
    def transform(self) -> Transform | None:
        """The mean of both, if both are known."""
        usual, rare = self.usual.transform, self.rare.transform
        return None if usual is None or rare is None else MixedTransform(usual, rare, self.weight)
