"""Privacy filters: a budget that holds although later mechanisms are chosen, and the run is stopped, by looking at outputs."""

from __future__ import annotations

import math
import threading
from fractions import Fraction

from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.ledger.budgets import INFINITE, Concentrated, Divergences, Kind, Losses, Squares
from privcalc.ledger.rules import Rule
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Questions

__all__ = ["Filter"]

_BITS = 8192
"""Denominators of exact sums stay below this many bits, and a little more."""

Entries = tuple[tuple[Mechanism, int], ...]
Levels = dict[float, int]
"""Ranges of choices, and how many of each are charged."""


class Filter(Rule):
    """Charge mechanisms to a budget as they are chosen, each from the outputs of the earlier ones; stop before it is exceeded.

    Whatever was charged, and whenever and for whatever reason the run stopped, all outputs together satisfy ``mechanism``, the
    guarantee of the whole budget; never the guarantee of what happened to be charged. Give exactly one budget
    (``proofs/filters.md``). A privacy profile (ε, δ) is no budget: no filter is proved for it.

    Costs of :class:`Gaussian`, :class:`Laplace`, :class:`RandomizedResponse` and stated guarantees are added exactly, as
    fractions, so that a budget can be met exactly; other costs are upper bounds.

    Args:
        mu: GDP: Σμ² ≤ mu². Every pair must be exactly Gaussian, or a choice (``ExponentialMechanism``, ``TopK``): many of
            them cost a little more than a²/4 each, a the range; a sampled step has no proof here and is refused (Koskela,
            Tobaben, Honkela 2022; Smith, Thakurta 2022).
        rho: zCDP: Σρ ≤ rho, for mechanisms with ξ = 0 (Feldman, Zrnic 2021; Whitehouse, Ramdas, Rogers, Wu 2023).
        epsilon: pure DP: Σε ≤ epsilon (Rogers, Roth, Ullman, Vadhan 2016).
        orders: Rényi orders, fixed now, with ``epsilons``: Σε(α) ≤ epsilons(α) at every one of them (Feldman, Zrnic 2021).
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
        privcalc.errors.PrivcalcError: mechanism = PoissonSampled(mechanism=Gaussian(noise_multiplier=4.0), rate=0.01): must be
        exactly Gaussian, or a choice, under add-or-remove-one for a budget of mu; use a budget of rho, or of orders and epsilons
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
        check_relation(relation)
        given = [
            name for name, value in (("mu", mu), ("rho", rho), ("epsilon", epsilon), ("orders", orders)) if value is not None
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
        self._spent = [Fraction(0)] * len(budget)
        self._charged: dict[Mechanism, tuple[int, list[Fraction]]] = {}  # uses, and what they added to the sums
        self._levels: Levels = {}
        self._lock = threading.Lock()

    @property
    def mechanism(self) -> Mechanism:
        """The guarantee of all outputs together, however the mechanisms were chosen and wherever the run stopped.

        It is a mechanism (:class:`GDP`, :class:`ZCDP`, :class:`PureDP` or :class:`RDP`), so that it answers ``epsilon`` and all
        other questions under ``relation``, and composes with what ran outside the filter. It is fixed from the start.
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

    def would_exceed(self, mechanism: Questions) -> bool:
        """Whether ``charge`` would refuse for want of budget; nothing is charged.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            PrivcalcError: if a mechanism is of a kind that this budget has no proof for, or has no guarantee under the relation.
        """
        return self._after(_entries(mechanism)) is None

    def charge(self, mechanism: Questions) -> None:
        """Charge what is about to be released; call it before, not after.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            PrivcalcError: as ``would_exceed``.
            BudgetExceeded: if the budget would be exceeded: then nothing is charged, and it must not be released. A smaller
                mechanism may still fit.
        """
        entries = _entries(mechanism)
        with self._lock:
            after = self._after(entries)
            if after is None:
                raise errors.BudgetExceeded(
                    f"mechanism = {mechanism}: would exceed the budget {self._mechanism}, of which {self.remaining} remains"
                )
            sums, self._levels = after
            self._spent = sums[-1]
            self._charged |= {part: self._more(part, count, *sums[i : i + 2]) for i, (part, count) in enumerate(entries)}

    def refund(self, mechanism: Questions) -> None:
        """Take back a charge for what was never released, and never looked at: exactly what its charge added.

        Args:
            mechanism: one release, or a run of several.

        Raises:
            PrivcalcError: if this filter has not charged as many uses of each, or they were taken back: then nothing is.
        """
        entries = _entries(mechanism)
        with self._lock:
            left, sums, levels = dict(self._charged), self._spent, self._levels
            for part, count in entries:
                had, added = left.pop(part, (0, []))
                if count > had:
                    raise errors.PrivcalcError(f"mechanism = {part}: {count} uses to take back, of {had} that are charged")
                back = added
                if count < had:  # a charge may have been rounded up: what stays is never too little
                    costs = self._kind.costs(part, count, self._relation)
                    assert costs is not INFINITE
                    back = costs
                    left[part] = had - count, [total - cost for total, cost in zip(added, back, strict=True)]
                sums = [total - cost for total, cost in zip(sums, back, strict=True)]
                levels = self._with(levels, part, -count)
            self._charged, self._spent, self._levels = left, sums, levels

    def __repr__(self) -> str:
        return f"Filter({self._mechanism}, spent={self.spent})"

    def _after(self, entries: Entries) -> tuple[list[list[Fraction]], Levels] | None:
        """The sums before and after each entry, and all choices then; None if it is more than the budget."""
        sums, levels = [self._spent], self._levels
        for part, count in entries:
            costs = self._kind.costs(part, count, self._relation)
            if costs is INFINITE:
                return None
            sums.append([_plus(total, cost) for total, cost in zip(sums[-1], costs, strict=True)])
            levels = self._with(levels, part, count)
        if self._kind.together(levels) is INFINITE:
            return None
        fits = all(total <= most for total, most in zip(self._all(sums[-1], levels), self._budget, strict=True))
        return (sums, levels) if fits else None

    def _with(self, levels: Levels, part: Mechanism, count: int) -> Levels:
        """The choices with so many more uses of a part, if it is one."""
        a = self._kind.choice(part, self._relation)
        found = {**levels, a: levels.get(a, 0) + count} if a else levels
        return {a: uses for a, uses in found.items() if uses}

    def _all(self, sums: list[Fraction], levels: Levels) -> list[Fraction]:
        """What adds up, and what all choices cost together."""
        cost = self._kind.together(levels)
        assert cost is not INFINITE
        return [total + cost for total in sums]

    def _more(self, part: Mechanism, count: int, before: list[Fraction], after: list[Fraction]) -> tuple[int, list[Fraction]]:
        """What is kept of a part after another charge of it."""
        had, added = self._charged.get(part, (0, [Fraction(0)] * len(before)))
        return had + count, [total + new - old for total, old, new in zip(added, before, after, strict=True)]


def _entries(mechanism: Questions) -> Entries:
    if not isinstance(mechanism, Questions):
        raise errors.PrivcalcError(f"mechanism = {mechanism!r}: must be a mechanism or a run")
    return mechanism.run.entries


def _plus(total: Fraction, cost: Fraction) -> Fraction:
    """The sum, exactly; where its denominator would grow too large, the cost is first rounded up to 200 bits."""
    found = total + cost
    if found.denominator.bit_length() <= _BITS:
        return found
    scale = 1 << max(0, 200 + cost.denominator.bit_length() - cost.numerator.bit_length())
    return total + Fraction(math.ceil(cost * scale), scale)
