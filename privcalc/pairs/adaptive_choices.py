"""Many choices of bounded range, played as a game by whoever may choose the candidates: one use of one pair.

Its profile is the value of the game (``numerics/routes/choices.py``), which adaptive choices attain, and which Gaussian
DP bounds where there are too many of them to play. Proofs: ``proofs/choices.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.routes import choices
from privcalc.numerics.routes.choices import Levels
from privcalc.numerics.routes.secants import SMALL
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import gdp_profile
from privcalc.pairs.pair import SymmetricPair
from privcalc.pairs.two_point import symmetric_mu


@dataclass(frozen=True)
class ChoicesPair(SymmetricPair):
    """Choices of bounded range, each of which may depend on what came before: dominates them, and is attained.

    Attributes:
        levels: ranges, the largest first, and how many choices each has; whoever plays also chooses their order.
    """

    levels: Levels

    def profile(self, epsilon: Floats) -> ProfileValues:
        """V(ε) between the bounds of the game, from its second table where the first one ends."""
        low, high, tail = self._win_all(epsilon)
        gaussian, _, error = gdp_profile(gaussian_mu(self.levels), epsilon)
        high = np.minimum(high, gaussian + error)
        for least in choices.LEAST:
            # Where the two differ by more than a hundredth it is worth to go on.
            open_ = np.flatnonzero(high - low > 1e-2 * high)
            if not open_.size:
                break
            above, below = choices.solve(self.levels, least)
            if above is not None:
                high[open_] = np.minimum(high[open_], above.bounds(epsilon[open_])[1])
            if below is not None:
                attained, _, slope = below.bounds(epsilon[open_])
                better = attained > low[open_]
                low[open_[better]], tail[open_[better]] = attained[better], slope[better]
        middle = 0.5 * (low + high)
        return ProfileValues(middle, tail, (0.5 * (high - low)) * (1 + 4 * UNIT) + 4 * UNIT * middle + TINY)

    def _win_all(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
        """Bounds without the game: a constant share of the range, and the test that every loss is the larger; ≤ 1."""
        total = math.fsum(a * count for a, count in self.levels)
        share = np.minimum(0.5 * (epsilon / total + 1), 1.0)  # t = a·share
        size = sum(count for _, count in self.levels) * (1 + self.levels[0][0])
        with np.errstate(under="ignore", divide="ignore"):
            log_p = np.sum([n * np.log(-np.expm1(a * share - a) / -math.expm1(-a)) for a, n in self.levels], axis=0)
            gap = np.minimum(epsilon - total * share, 0.0)
            p = np.exp(log_p) * (1 - 1e-12) * (1 - 64 * UNIT * size)
            low, tail = np.maximum(-p * np.expm1(gap + 16 * UNIT * total), 0.0), p * np.exp(gap)
        inside = (epsilon < self.max_loss) & (low > TINY) & (share < 1)
        high = np.where(epsilon < self.max_loss * (1 + 4 * UNIT), 1.0, 0.0)
        return np.where(inside, low, 0.0), high, np.where(inside, tail, 0.0)

    @property
    def max_loss(self) -> float:
        """All choices lose their ranges."""
        return math.fsum(a * count for a, count in self.levels) * (1 + 4 * UNIT)

    @property
    def zcdp(self) -> float:
        """min(a²/8, a·tanh(a/2)) for each (Cesar, Rogers 2021)."""
        return math.fsum(n * min(0.125 * a**2, a * math.tanh(0.5 * a)) for a, n in self.levels) * (1 + 32 * UNIT)

    def log_moment(self, c: Floats) -> Floats:
        """By zCDP and the largest loss; the composed logistic pair, which is asked as well, may know better."""
        return np.asarray(np.minimum(self.zcdp * c * (c + 1), c * self.max_loss), dtype=np.float64)

    @property
    def gdp_bounds(self) -> Bounds:
        """Bounds (0, μ): only the upper one is known."""
        return 0.0, gaussian_mu(self.levels)


def playable(levels: Levels) -> tuple[bool, bool]:
    """Whether the game gives a narrower answer than its limit, and is played to its end: from above, and from below."""
    levels_played = []
    for orders in (True, False):
        fine = (
            sum(count for _, count in levels) > 1 and choices.fineness(levels, SMALL, orders=orders) >= choices.COARSEST
        )
        levels_played.append(fine and choices.solve(levels, SMALL)[not orders] is not None)
    return levels_played[0], levels_played[1]


def gaussian_mu(levels: Levels) -> float:
    """A μ for which choices of (range, count), in any order that may depend on outputs, are μ-GDP.

    Each adds at most v·min(κ, s/(s − v)) to s = μ², v = a²/4, where κv = (2Φ⁻¹(1/(1 + e^{−a/2})))² holds of one choice;
    s is at least Σv of what was added before. The sum of a falling function is less than its integral, one v earlier.
    """
    v = [0.25 * a * a for a, _ in levels]
    most, total = max(v), math.fsum(n * one for (_, n), one in zip(levels, v, strict=True))
    alone = math.fsum(n * symmetric_mu(0.5 * a) ** 2 for a, n in levels)
    kappa = max(symmetric_mu(0.5 * a) ** 2 / one for (a, _), one in zip(levels, v, strict=True))
    start = most * kappa / (kappa - 1)
    s = alone
    if most <= 12 * (1 - 1 / start * most) and total > start + most:
        grown = kappa * (start + most) + (total - start - most)
        s = min(s, grown + most * math.log((total - 2 * most) / (start - most)))
    return math.sqrt(s) * (1 + 1e-12)
