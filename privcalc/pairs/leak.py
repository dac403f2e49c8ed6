"""A pair that gives everything away with some probability."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import UNIT, Floats
from privcalc.pairs.pair import Pair


@dataclass(frozen=True)
class LeakPair(Pair):
    """With probability ``leak`` the release gives everything away; else it is ``pair``.

    Under composition leaks are set apart.

    Above: δ(ε) ≤ leak + (1 − leak)·δ_pair(ε). Below, at least ``attained`` + (1 − ``dropped``)·δ_pair(ε): an (ε, δ)
    mechanism attains both with all three equal to δ; for its Poisson sample see ``proofs/conversions.md``, §2. All
    three are bounds, of which ``attained`` is the lower one, and at most 1.
    """

    pair: Pair
    leak: float
    attained: float
    dropped: float

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The upper one; not convex-exact, and never composed as it stands (``direction.split_leaks``)."""
        delta, tail, error = self.pair.profile(epsilon)
        return ProfileValues(self.leak + (1 - self.leak) * delta, tail, error + 4 * UNIT * (self.leak + delta))

    @property
    def reverse(self) -> Pair:
        """The leak is on both sides."""
        return LeakPair(self.pair.reverse, self.leak, self.attained, self.dropped)

    @property
    def moments_only(self) -> bool:
        """Whether what remains without the leak has moments only."""
        return self.pair.moments_only
