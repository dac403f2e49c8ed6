"""The uses of a direction without its leaks, for routes: merged pairs, their transforms, quick bounds of both."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from functools import cached_property

from privcalc.composition.direction import Direction, collapse, max_loss, merge
from privcalc.composition.fallback import rough
from privcalc.numerics.floats import QUIET, Floats
from privcalc.numerics.interfaces import TransformCounts
from privcalc.numerics.routes import contour
from privcalc.numerics.routes.contour import Saddle, Scan
from privcalc.numerics.routes.lattice import Estimate, log_moments
from privcalc.numerics.schedule import grouped
from privcalc.pairs.pair import Pair

FAR = -100.0
"""log of what may be left out where only a plan is made."""


class Uses:
    """A direction without its leaks, in the forms that routes take.

    Attributes:
        pairs: equal ones once: for routes that know the composition of many uses.
        each: the same, a composition in closed form being one use: for routes that pay for every use.
        top: an upper bound of the loss.
        estimates: rough transforms of pairs, by which lattices are laid: made once.
        saddle: about where that of an ε is, and so δ(ε); None where none is found. Only plans rely on it.
    """

    def __init__(self, direction: Direction) -> None:
        self.pairs = merge(direction)
        self.each = collapse(self.pairs)
        self.top = max_loss(self.pairs)
        self.estimates = functools.cache(Estimate)
        self.saddle = functools.lru_cache(1024)(self._saddle)

    @cached_property
    def sides(self) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """Bounds of δ(ε) that are always available, from below and from above."""
        return rough(self.pairs)

    @cached_property
    def _scan(self) -> Scan:
        return Scan(self._log_moments)

    def _log_moments(self, c: Floats) -> Floats:
        if self.transforms is not None:
            with contextlib.suppress(OverflowError):
                return contour.axis(contour.prepare(self.transforms, c[-1], FAR, cut=True), c).k
        return log_moments(list(self.pairs), self.estimates, c)

    @QUIET
    def _saddle(self, epsilon: float | None, delta: float | None = None) -> Saddle | None:
        try:
            return self._scan.saddle(delta, epsilon)
        except (ArithmeticError, ValueError):
            return None

    def saddle_of(self, delta: float) -> Saddle | None:
        """The same for a δ."""
        return self._saddle(None, delta)

    @cached_property
    def transforms(self) -> TransformCounts | None:
        """All transforms with their counts; None where a pair has none."""
        found = [(pair.transform, count) for pair, count in self.pairs]
        known = [(transform, count) for transform, count in found if transform is not None]
        return grouped(known) if len(known) == len(found) else None

    @property
    def number(self) -> int:
        """How many uses there are to pay for."""
        return sum(count for _, count in self.each)

    @property
    def one(self) -> Pair | None:
        """The only use, where there is but one."""
        return self.each[0][0] if len(self.each) == 1 and self.each[0][1] == 1 else None

    def guess(self, delta: float) -> float:
        """A first ε: the zCDP bound ρ + 2√(ρ log 1/δ) (Bun, Steinke 2016, Proposition 1.3); 1 where no ρ is known."""
        known = self.one.guess(delta) if self.one is not None else None
        if known is not None:
            return known
        rho = math.fsum(count * pair.zcdp for pair, count in self.pairs)
        if rho == math.inf:
            return min(1.0, 0.999 * self.top)
        return min(rho + 2 * math.sqrt(rho * -math.log(delta)), 0.999 * self.top, 1e300)
