"""Privacy filters: a budget that holds although later mechanisms and the end are chosen by the outputs."""

from __future__ import annotations

import math
from fractions import Fraction

from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.ledger.budgets import INFINITE, Concentrated, Divergences, Kind, Losses, Squares, rounded
from privcalc.ledger.rules import Rule
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run

__all__ = ["Filter"]

_BITS = 8192
"""Denominators of exact sums stay below this many bits, and a little more."""

Sums = list[Fraction]
Levels = dict[float, int]
"""Ranges of choices, and how many of each are charged."""


class Filter(Rule):
    """Charge mechanisms as they are chosen, each from earlier outputs; stop before the budget is exceeded.

    Whatever was charged, and whenever and for whatever reason the run stopped, all outputs together satisfy
    ``mechanism``, the guarantee of the whole budget; never the guarantee of what happened to be charged. Give exactly
    one budget (``proofs/filters.md``). A privacy profile (ε, δ) is no budget: no filter is proved for it.

    Costs of :class:`Gaussian`, :class:`Laplace`, :class:`RandomizedResponse` and stated guarantees are added exactly,
    as fractions, so that a budget can be met exactly; other costs are upper bounds.

    Args:
        mu: GDP: Σμ² ≤ mu². Every pair must be exactly Gaussian, or a choice (``ExponentialMechanism``, ``TopK``): many
            of them cost a little more than a²/4 each, a the range; a sampled step has no proof here and is refused
            (Koskela, Tobaben, Honkela 2022; Smith, Thakurta 2022).
        rho: zCDP: Σρ ≤ rho, for mechanisms with ξ = 0 (Feldman, Zrnic 2021; Whitehouse, Ramdas, Rogers, Wu 2023).
        epsilon: pure DP: Σε ≤ epsilon (Rogers, Roth, Ullman, Vadhan 2016).
        orders: Rényi orders, fixed now, with ``epsilons``: Σε(α) ≤ epsilons(α) at every one of them (Feldman, Zrnic
            2021).
        epsilons: as many numbers ≥ 0.
        relation: the neighbouring relation of every charge and of the guarantee.

    Raises:
        PrivcalcError: if not exactly one budget is given, or it is out of range.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.ledger.filters import Filter
        >>> budget = Filter(mu=1.0)
        >>> for noise in (2.0, 4.0, 2.0):  # each chosen after looking at the last output
        ...     budget.charge(pc.Gaussian(noise_multiplier=noise))
        >>> budget.spent, budget.would_exceed(pc.Gaussian(noise_multiplier=1.0))
        (0.75, True)
        >>> print(f"{budget.mechanism.epsilon(delta=1e-5):.6f}")
        4.377179
        >>> budget.charge(pc.PoissonSampled(pc.Gaussian(noise_multiplier=4.0), rate=0.01))
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: mechanism = PoissonSampled(mechanism=Gaussian(noise_multiplier=4.0), rate=0.01):
        must be exactly Gaussian, or a choice, under add-or-remove-one for a budget of mu; use a budget of rho, or of
        orders and epsilons
    """

    def __init__(
        self,
        *,
        mu: float | None = None,
        rho: float | None = None,
        epsilon: float | None = None,
        orders: ArrayLike | None = None,
        epsilons: ArrayLike | None = None,
        relation: Relation = ADD_OR_REMOVE_ONE,
    ) -> None:
        super().__init__()
        check_relation(relation)
        given = [
            name
            for name, value in (("mu", mu), ("rho", rho), ("epsilon", epsilon), ("orders", orders))
            if value is not None
        ]
        if len(given) != 1 or (orders is None) != (epsilons is None):
            raise errors.PrivcalcError(
                f"budget = {given + ['epsilons'] * (epsilons is not None)}: must be exactly one of mu, rho, epsilon, "
                "or orders with epsilons"
            )
        self._kind: Kind
        self._mechanism: Mechanism
        if mu is not None:
            gdp = GDP(mu, relation=relation)
            self._kind, self._mechanism, budget = Squares(), gdp, [Fraction(gdp.mu) ** 2]
        elif rho is not None:
            zcdp = ZCDP(rho, relation=relation)
            self._kind, self._mechanism, budget = Concentrated(), zcdp, [Fraction(zcdp.rho)]
        elif epsilon is not None:
            pure = PureDP(epsilon, relation=relation)
            self._kind, self._mechanism, budget = Losses(), pure, [Fraction(pure.level)]
        else:
            assert orders is not None
            assert epsilons is not None
            rdp = RDP(orders, epsilons, relation=relation)
            if math.inf in rdp.epsilons:
                raise errors.PrivcalcError(f"epsilons = {epsilons!r}: must be finite numbers >= 0")
            self._kind, self._mechanism = Divergences(rdp.orders), rdp
            budget = [Fraction(value) for value in rdp.epsilons]
        self._relation = relation
        self._budget = budget
        self._spent: Sums = [Fraction(0)] * len(budget)
        self._levels: Levels = {}
        self._units: dict[
            Mechanism, Sums
        ] = {}  # what a use of each adds to the sums, from when it was first asked about

    @property
    def mechanism(self) -> Mechanism:
        """The guarantee of all outputs together, however the mechanisms were chosen and wherever the run stopped.

        It is a mechanism (:class:`GDP`, :class:`ZCDP`, :class:`PureDP` or :class:`RDP`), so that it answers ``epsilon``
        and all other questions under ``relation``, and composes with what ran outside the filter. It is fixed from the
        start.
        """
        return self._mechanism

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return self._relation

    @property
    def spent(self) -> float | Floats:
        """What was charged, rounded up, in the unit of the budget: √Σμ², Σρ, Σε, or Σε(α) in ascending order of α.

        No certificate: it depends on outputs. Do not publish an ε computed from it.
        """
        return self._kind.shown(self._all(self._spent, self._levels), up=True)

    @property
    def remaining(self) -> float | Floats:
        """The largest single charge that is still admitted, rounded down: √(mu² − Σμ²), rho − Σρ, and so on."""
        spent = self._all(self._spent, self._levels)
        return self._kind.shown([max(b - s, Fraction(0)) for b, s in zip(self._budget, spent, strict=True)], up=False)

    def share(self, run: Run) -> float:
        """The share of the budget that a run takes, of what adds up (μ², ρ, ε, the worst order).

        It is for people to read.
        """
        after = self._after(run)
        return math.inf if after is INFINITE else max(map(_share, self._all(*after), self._budget))

    def refusal(self, run: Run) -> str | None:
        """That a sum would exceed the budget."""
        after = self._after(run)
        if after is not INFINITE and all(x <= most for x, most in zip(self._all(*after), self._budget, strict=True)):
            return None
        return f"{run}: would exceed the budget {self._mechanism}, of which {self.remaining} remains"

    def __repr__(self) -> str:
        return f"Filter({self._mechanism}, spent={self.spent})"

    def _move(self, run: Run, sign: int) -> None:
        """Also in the sums: what is taken back is what was added for it, whether that was exact or rounded up."""
        after = self._after(run, sign)
        assert after is not INFINITE
        self._spent, self._levels = after
        super()._move(run, sign)

    def _after(self, run: Run, sign: int = 1) -> tuple[Sums, Levels] | None:
        """The sums, and all choices, with a run or without it; None if they are infinite."""
        sums, levels = self._spent, dict(self._levels)
        for part, uses in run.entries:
            unit, count = self._unit(part, sums, uses), sign * uses
            if unit is INFINITE:
                return None
            sums = [total + count * cost for total, cost in zip(sums, unit, strict=True)]
            if a := self._kind.choice(part, self._relation):
                levels[a] = levels.get(a, 0) + count
        levels = {a: uses for a, uses in levels.items() if uses}
        return None if self._kind.together(levels) is INFINITE else (sums, levels)

    def _unit(self, part: Mechanism, sums: Sums, uses: int) -> Sums | None:
        """What one use adds, exactly; rounded up to 200 bits where a sum's denominator would grow too large."""
        if part not in self._units:
            costs = self._kind.costs(part, self._relation)
            if costs is INFINITE:
                return None
            self._units[part] = [
                cost if (total + uses * cost).denominator.bit_length() <= _BITS else _short(cost)
                for total, cost in zip(sums, costs, strict=True)
            ]
        return self._units[part]

    def _all(self, sums: Sums, levels: Levels) -> Sums:
        """What adds up, and what all choices cost together."""
        cost = self._kind.together(levels)
        assert cost is not INFINITE
        return [total + cost for total in sums]


def _share(spent: Fraction, most: Fraction) -> float:
    """The quotient, at least; ∞ of nothing."""
    return rounded(spent / most, up=True) if most else math.inf if spent else 0.0


def _short(cost: Fraction) -> Fraction:
    """A cost, rounded up to 200 bits."""
    scale = 1 << max(0, 200 + cost.denominator.bit_length() - cost.numerator.bit_length())
    return Fraction(math.ceil(cost * scale), scale)
