"""Admission rules: what may still be charged, so that all of it together has one guarantee.

The guarantee holds whatever is chosen from outputs.

Each says why a run is not admitted besides what is charged; here is what they all do: ``charged``, ``would_exceed``,
``charge``, ``refund``, ``close``.

* :class:`Plan`: uses that a run has, which was fixed before any output (``proofs/ledger.md``, §1);
* :class:`Filter`, a ledger's cap: what keeps sums of costs within bounds (``proofs/filters.md``);
* :class:`privcalc.budget.pool.Pool`, the cap of a budget that several ledgers share (``proofs/budgets.md``).
* :class:`privcalc.budget.pool.Odometer`, which admits everything, and says what was lost (``proofs/budgets.md``, §4).

:class:`privcalc.IndividualFilter` has the same verbs for a vector of records, of which it admits some; why it is no
:class:`Rule` it says itself (``proofs/audits.md``, §3).
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import NoReturn

from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.errors import BudgetExceeded, PrivcalcError, suggests
from privcalc.ledger.caps import INFINITE, Concentrated, Divergences, Kind, Losses, Squares, rounded
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, PureDP
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run


def as_run(name: str, value: object) -> Run:
    """A mechanism or a run as a run.

    Raises:
        PrivcalcError: if it is neither.
    """
    if not isinstance(value, (Mechanism, Run)):
        raise PrivcalcError(f"{name} = {value!r}: must be a mechanism or a run")
    return value.run


class Single:
    """An object that cannot be copied, nor sent to another process: a copy would count for itself."""

    def __reduce__(self) -> NoReturn:
        raise PrivcalcError(
            f"a {type(self).__name__} cannot be copied or sent to another process: there must be one that charges"
        )


class Rule(Single, ABC):
    """What decides whether a run may be released, all of it: charged before, and given back if it never was."""

    def __init__(self) -> None:
        self._uses: dict[Mechanism, int] = {}
        self._lock = threading.RLock()
        self.closed = False

    @property
    def charged(self) -> Run:
        """All that is charged now."""
        with self._lock:
            return Run(tuple(self._uses.items()))

    @abstractmethod
    def refusal(self, run: Run) -> str | None:
        """Why a run is not admitted, besides what is charged; None if it is.

        Raises:
            PrivcalcError: if the rule has no proof for it.
        """

    def would_exceed(self, mechanism: Mechanism | Run) -> bool:
        """Whether ``charge`` would refuse for want of room; nothing is charged.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            PrivcalcError: if the rule has no proof for a mechanism, or that has no guarantee under the relation.
        """
        return self.refusal(as_run("mechanism", mechanism)) is not None

    def check(self, mechanism: Mechanism | Run) -> None:
        """Refuse what ``charge`` would; nothing is charged.

        Raises:
            BudgetExceeded: if it is not admitted.
            PrivcalcError: as ``would_exceed``.
        """
        if (why := self.refusal(as_run("mechanism", mechanism))) is not None:
            raise BudgetExceeded(f"mechanism = {why}")

    def charge(self, mechanism: Mechanism | Run) -> None:
        """Charge what is about to be released; call it before, not after.

        Args:
            mechanism: one release, or a run of several that are all made.

        Raises:
            BudgetExceeded: if it is not admitted: then nothing is charged, and it must not be released. Less may still
                fit.
            PrivcalcError: as ``would_exceed``, or if the rule was closed.
        """
        run = as_run("mechanism", mechanism)
        with self._lock:
            if self.closed:
                raise PrivcalcError(f"mechanism = {mechanism}: cannot be charged, what it was for is closed")
            self.check(run)
            self._move(run, 1)

    def refund(self, mechanism: Mechanism | Run) -> None:
        """Take back a charge for what was never released, and never looked at: exactly what its charge added.

        Args:
            mechanism: one release, or a run of several.

        Raises:
            PrivcalcError: if as many uses of each are not charged, or were taken back: then nothing is.
        """
        run = as_run("mechanism", mechanism)
        with self._lock:
            for part, count in run.entries:
                if count > (had := self._uses.get(part, 0)):
                    raise PrivcalcError(f"mechanism = {part}: {count} uses to take back, of {had} that are charged")
            self._move(run, -1)

    def close(self) -> None:
        """End the rule: nothing more is charged."""
        self.closed = True

    def _move(self, run: Run, sign: int) -> None:
        """Add the uses of a run to those that are charged, or take them from these."""
        for part, count in run.entries:
            self._uses[part] = self._uses.get(part, 0) + sign * count
            if not self._uses[part]:
                del self._uses[part]


class Plan(Rule):
    """A run that was fixed before any output: each of its uses once, in any order.

    Args:
        run: what is planned.

    Example:
        >>> import privcalc as pc
        >>> plan = Plan(pc.Gaussian(20.0) * 3)
        >>> plan.charge(pc.Gaussian(20.0) * 2)
        >>> plan.would_exceed(pc.Gaussian(20.0) * 2), plan.would_exceed(pc.Gaussian(30.0))
        (True, True)
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, self._whole = run, dict(run.entries)

    def refusal(self, run: Run) -> str | None:
        """That it has fewer uses left."""
        for part, count in run.entries:
            if part not in self._whole:
                return f"{part}: is not in the plan {self.run}"
            if (left := self._whole[part] - self._uses.get(part, 0)) < count:
                return f"{part}: the plan {self.run} has {left} more of it, not {count}"
        return None


_BITS = 8192
"""Denominators of exact sums stay below this many bits, and a little more."""

Sums = list[Fraction]
Levels = dict[float, int]
"""Ranges of choices, and how many of each are charged."""


class Filter(Rule):
    """Charge mechanisms as they are chosen, each from earlier outputs; stop before the cap is exceeded.

    Whatever was charged, and whenever and for whatever reason the run stopped, all outputs together satisfy
    ``mechanism``, the guarantee of the whole cap; never the guarantee of what happened to be charged. Give exactly
    one cap (``proofs/filters.md``). A privacy profile (ε, δ) is no cap: no filter is proved for it.

    Costs of :class:`Gaussian`, :class:`Laplace`, :class:`RandomizedResponse` and stated guarantees are added exactly,
    as fractions, so that a cap can be met exactly; other costs are upper bounds.

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
        PrivcalcError: if not exactly one cap is given, or it is out of range.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.ledger.rules import Filter
        >>> cap = Filter(mu=1.0)
        >>> for noise in (2.0, 4.0, 2.0):  # each chosen after looking at the last output
        ...     cap.charge(pc.Gaussian(noise_multiplier=noise))
        >>> cap.spent, cap.would_exceed(pc.Gaussian(noise_multiplier=1.0))
        (0.75, True)
        >>> print(f"{cap.mechanism.epsilon(delta=1e-5):.6f}")
        4.377179
        >>> cap.charge(pc.PoissonSampled(pc.Gaussian(noise_multiplier=4.0), rate=0.01))
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: mechanism = PoissonSampled(mechanism=Gaussian(noise_multiplier=4.0), rate=0.01):
        must be exactly Gaussian, or a choice, under add-or-remove-one for a cap of mu; use a cap of rho, or of
        orders and epsilons
    """

    @suggests
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
                f"cap = {given + ['epsilons'] * (epsilons is not None)}: must be exactly one of mu, rho, epsilon, "
                "or orders with epsilons"
            )
        self._kind: Kind
        self._mechanism: Mechanism
        if mu is not None:
            gdp = GDP(mu, relation=relation)
            self._kind, self._mechanism, cap = Squares(), gdp, [Fraction(gdp.mu) ** 2]
        elif rho is not None:
            zcdp = ZCDP(rho, relation=relation)
            self._kind, self._mechanism, cap = Concentrated(), zcdp, [Fraction(zcdp.rho)]
        elif epsilon is not None:
            pure = PureDP(epsilon, relation=relation)
            self._kind, self._mechanism, cap = Losses(), pure, [Fraction(pure.level)]
        else:
            assert orders is not None
            assert epsilons is not None
            rdp = RDP(orders, epsilons, relation=relation)
            if math.inf in rdp.epsilons:
                raise errors.PrivcalcError(f"epsilons = {epsilons!r}: must be finite numbers >= 0")
            self._kind, self._mechanism = Divergences(rdp.orders), rdp
            cap = [Fraction(value) for value in rdp.epsilons]
        self._relation = relation
        self._cap = cap
        self._spent: Sums = [Fraction(0)] * len(cap)
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
        """The neighbouring relation of what is charged."""
        return self._relation

    @property
    def spent(self) -> float | Floats:
        """What was charged, rounded up, in the unit of the cap: √Σμ², Σρ, Σε, or Σε(α) in ascending order of α.

        No certificate: it depends on outputs. Do not publish an ε computed from it.
        """
        return self._kind.shown(self._all(self._spent, self._levels), up=True)

    @property
    def remaining(self) -> float | Floats:
        """The largest single charge that is still admitted, rounded down: √(mu² − Σμ²), rho − Σρ, and so on."""
        spent = self._all(self._spent, self._levels)
        return self._kind.shown([max(b - s, Fraction(0)) for b, s in zip(self._cap, spent, strict=True)], up=False)

    def share(self, run: Run) -> float:
        """The share of the cap that a run takes, of what adds up (μ², ρ, ε, the worst order).

        It is for people to read.
        """
        after = self._after(run)
        return math.inf if after is INFINITE else max(map(_share, self._all(*after), self._cap))

    def refusal(self, run: Run) -> str | None:
        """That a sum would exceed the cap."""
        after = self._after(run)
        if after is not INFINITE and all(x <= most for x, most in zip(self._all(*after), self._cap, strict=True)):
            return None
        return f"{run}: would exceed the cap {self._mechanism}, of which {self.remaining} remains"

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
