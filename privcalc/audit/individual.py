"""Individual filters: each record takes part while its own cap lasts, and so has the cap's guarantee."""

from __future__ import annotations

import math
import threading
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.audit.sensitive import ratios
from privcalc.ledger.caps import rounded
from privcalc.ledger.rules import Single
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, PureDP
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import UNIT, Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation
from privcalc.run import Mechanism

__all__ = ["IndividualFilter"]

CELLS = 128


class IndividualFilter(Single):
    """Which records may take part in the next step; those that may are charged.

    Before each step, ``charge`` is asked with the norm that each record's clipped contribution would have; the step may
    use admitted records only, at these norms. Whatever the norms, all outputs together satisfy ``mechanism``: the
    cap's guarantee, for every record, never what was spent. It holds if (``proofs/audits.md``, §3):

    * a record's ratio depends on earlier outputs and that record alone;
    * noise, number of steps and stopping do not depend on who was admitted, or how many: only on outputs;
    * nothing else about who was admitted, such as how many, is published.

    It has the verbs of the admission rules (:mod:`privcalc.ledger.rules`) and is none of them. A rule takes a release
    whole, or raises; a step is admitted for some records and not for others, and as who they are is secret no exception
    may tell: ``charge`` answers with an array. And a rule lists what was charged by mechanism, so that any of it can be
    given back; of a record that would be its norms, of which only sums are kept: ``refund`` takes back the last step.

    Args:
        records: how many records.
        mu: full batches: Σ(r/z)² ≤ mu² for each record (Feldman, Zrnic 2021; Koskela, Tobaben, Honkela 2022).
        epsilon: instead of mu: Laplace noise of scale z on each coordinate, norms in ℓ₁, Σr/z ≤ epsilon for each record
            (Ebadi, Sands, Schneider 2015): pure caps, such as those of devices that answer questions one by one.
            A release of any other kind whose ε for a record is e has the norm e at the noise multiplier 1.
        orders: instead of mu: Rényi orders, fixed now, with
        epsilons: Σ D_α ≤ ε(α) at every order, in the worse direction: the only filter that is proved for sampled steps.
        rate: sampling rate; below 1 with orders only.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> gate = pc.IndividualFilter(records=2, mu=0.1)
        >>> steps = np.array([gate.charge(np.array([1.0, 0.5]), noise_multiplier=20.0) for _ in range(20)])
        >>> print(steps.sum(axis=0), gate.mechanism(pc.ADD_OR_REMOVE_ONE), gate.mechanism(pc.REPLACE_ONE))
        [ 4 16] GDP(mu=0.1, relation=add-or-remove-one) GDP(mu=0.2, relation=replace-one)
        >>> device = pc.IndividualFilter(records=1, epsilon=1.0)
        >>> print([bool(device.charge([e], noise_multiplier=1.0)[0]) for e in (0.5, 0.25, 0.375, 0.25)])
        [True, True, False, True]
    """

    def __init__(
        self,
        records: int,
        mu: float | None = None,
        *,
        epsilon: float | None = None,
        orders: ArrayLike | None = None,
        epsilons: ArrayLike | None = None,
        rate: float = 1.0,
    ) -> None:
        self._size = errors.count("records", records, least=1)
        self._rate = errors.rate("rate", rate)
        caps = [mu is not None, epsilon is not None, orders is not None or epsilons is not None]
        if sum(caps) != 1 or (orders is None) != (epsilons is None):
            raise errors.PrivcalcError(
                "mu, epsilon, orders, epsilons: must be mu alone, epsilon alone, or orders with epsilons"
            )
        if not caps[2] and self._rate < 1:
            raise errors.PrivcalcError(
                f"rate = {rate!r}: must be 1 for a cap of mu or epsilon; sampled steps need orders and epsilons"
            )
        pure = None if epsilon is None else PureDP(epsilon)
        self._sum: GDP | PureDP | None = pure if mu is None else GDP(mu)
        self._rdp = None if orders is None or epsilons is None else RDP(orders, epsilons)
        if self._rdp is not None and math.inf in (*self._rdp.orders, *self._rdp.epsilons):
            raise errors.PrivcalcError(f"orders = {orders!r}, epsilons = {epsilons!r}: must be finite")
        self._spent = np.zeros((1 if self._rdp is None else len(self._rdp.orders), self._size))
        self._before: Floats | None = None
        self._unit = Fraction(0)  # the first step's noise: steps with the same noise are added without rounding
        self._power = 1 if isinstance(self._sum, PureDP) else 2
        self._tables: dict[float, Floats] = {}
        self._lock = threading.Lock()
        self.closed = False

    def mechanism(self, relation: Relation = ADD_OR_REMOVE_ONE) -> Mechanism:
        """The guarantee of the whole run for every record: one entry of a ledger. Fixed from the start.

        Raises:
            PrivcalcError: for a Rényi filter under another relation than add-or-remove-one, for which it is not proved.
        """
        check_relation(relation)
        kept = self._sum or self._rdp
        if relation is ADD_OR_REMOVE_ONE and kept is not None:
            return kept
        if relation is REPLACE_ONE and isinstance(kept, PureDP):
            return PureDP(2 * kept.level, relation=relation)
        if relation is REPLACE_ONE and isinstance(kept, GDP):
            return GDP(2 * kept.mu, relation=relation)
        raise errors.PrivcalcError(
            f"relation = {relation}: this filter is proved for add-or-remove-one, with mu or epsilon also replace-one"
        )

    @property
    def charged(self) -> Floats:
        """What each record was charged: its share of Σ(r/z)², of Σr/z, or of ε(α) at the worst order; rounded up.

        Secret, as are the norms that it comes from.
        """
        with self._lock:
            spent, limits = self._spent, np.maximum(self._limits(), 5e-324)[:, None]
        found: Floats = np.where(spent > 0, np.nextafter(spent / limits, np.inf), 0.0).max(axis=0)
        return np.minimum(found, 1.0)

    def would_exceed(
        self, norms: ArrayLike, noise_multiplier: float, *, clip_norm: float | None = None
    ) -> NDArray[np.bool_]:
        """Who would stay out of a step, as a boolean array, secret as that of ``charge``; nobody is charged."""
        with self._lock:
            return ~self._step(norms, noise_multiplier, clip_norm)[0]

    def charge(self, norms: ArrayLike, noise_multiplier: float, *, clip_norm: float | None = None) -> NDArray[np.bool_]:
        """Who may take part in a step; they are charged for it, all others pay nothing. ``admit`` is its other name.

        Args:
            norms: of the contribution that each record would make, shape (records,): as it is, with a clip norm; else
                over the clip norm, in [0, 1].
            noise_multiplier: of the step.
            clip_norm: what contributions are clipped to.

        Returns:
            A boolean array: secret, as is how many there are.

        Raises:
            PrivcalcError: if an argument does not fit, or the filter was closed; never for want of room.
        """
        with self._lock:
            if self.closed:
                raise errors.PrivcalcError("IndividualFilter: cannot be charged, it is closed")
            admitted, after = self._step(norms, noise_multiplier, clip_norm)
            self._before, self._spent = self._spent, np.where(admitted, after, self._spent)
        return admitted

    admit = charge

    def refund(self) -> None:
        """Take back the last charge, of a step that was never released, and never looked at.

        That it was not must have nothing to do with who was admitted.

        Raises:
            PrivcalcError: if nothing was charged since the last one was taken back.
        """
        with self._lock:
            if self._before is None:
                raise errors.PrivcalcError("IndividualFilter: has no step to take back; only the last one can be")
            self._spent, self._before = self._before, None

    def close(self) -> None:
        """End the filter: nobody is charged any more."""
        self.closed = True

    @np.errstate(over="ignore", invalid="ignore")
    def _step(self, norms: ArrayLike, noise: float, clip_norm: float | None) -> tuple[NDArray[np.bool_], Floats]:
        """Who may take part in a step, and all sums with it."""
        noise = errors.scale("noise_multiplier", noise)
        r = np.minimum(ratios("norms", norms, self._size, clip_norm).astype(np.float64), 1.0)
        self._unit = self._unit or Fraction(noise)
        after = self._after_sum(r, noise) if self._rdp is None else self._after_rdp(self._rdp, r, noise)
        return np.all(after <= self._limits()[:, None], axis=0), after  # whose sum is ∞ or NaN stays out

    def _limits(self) -> Floats:
        """What the sums may come to: (mu · first noise)², epsilon · first noise, rounded down, or ε(α)."""
        if self._sum is None:
            assert self._rdp is not None
            return np.array(self._rdp.epsilons)
        cap = self._sum.level if isinstance(self._sum, PureDP) else self._sum.mu
        return np.array([rounded((Fraction(cap) * self._unit) ** self._power, up=False)])

    def _after_sum(self, r: Floats, noise: float) -> Floats:
        """Σr²·(first noise/noise)², without squares for a cap of ε; each operation is rounded up if inexact."""
        weight = (self._unit / Fraction(noise)) ** self._power
        cost = r if self._power == 1 else _square_up(r)
        if weight != 1:
            cost = np.where(r > 0, cost * rounded(weight, up=True) * (1 + 4 * UNIT) + 5e-324, 0.0)
        return _sum_up(self._spent, cost[None, :])

    def _after_rdp(self, cap: RDP, r: Floats, noise: float) -> Floats:
        orders = np.array(cap.orders)
        cost = np.multiply.outer(orders / 2, np.square(r / noise))  # sampling can only lower it
        if self._rate < 1:
            if noise not in self._tables:
                self._tables[noise] = _table(orders, noise, self._rate)
            cost = np.fmin(cost, _between(self._tables[noise], r, noise) / (orders - 1)[:, None])
        cost = np.where(r > 0, cost * (1 + 8 * UNIT) + 1e-300, 0.0)
        return (self._spent + cost) * (1 + 2 * UNIT)

    def __repr__(self) -> str:
        return f"IndividualFilter({self._size} records, {self._sum or self._rdp}, rate={self._rate!r})"


def _table(orders: Floats, noise: float, rate: float) -> Floats:
    """Upper bounds of log M at every order and at the norm ratios j/CELLS, worse direction."""
    logs = np.zeros((orders.size, CELLS + 1))
    for j in range(1, CELLS + 1):
        own = noise if j == CELLS else min(noise * CELLS / j * (1 - 4 * UNIT), 1e100)  # the most a Gaussian may have
        step = PoissonSampled(Gaussian(own), rate)
        logs[:, j] = step.rdp(orders) * (orders - 1) * (1 + 8 * UNIT)
    return logs


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _between(logs: Floats, r: Floats, noise: float) -> Floats:
    """Upper bounds of log M at norm ratios r, from a table; ∞ or NaN where that has ∞.

    With x = (r/noise)², M is convex in 1 − e^{−x} in both directions, hence below its chords
    (``proofs/audit_moments.md``, §2). M itself may overflow: its logarithm rises by d over the cell, and by log(1 +
    t(e^d − 1)) ≤ log(1 + te^d) over the share t.
    """
    low = np.ceil(r * CELLS).astype(int) - 1
    x, left, right = (np.square(value / noise) for value in (r, low / CELLS, (low + 1) / CELLS))
    share = np.expm1((left - x) * (1 + 8 * UNIT)) / np.expm1(left - right) * (1 + 16 * UNIT)
    start, rise = logs[:, low], logs[:, low + 1] - logs[:, low]
    within = np.log1p(share * np.expm1(rise))
    beyond = np.logaddexp(np.log(share) + rise, 0.0) + 16 * UNIT * (rise + 1000)
    found = start + np.where(rise < 700, within, beyond)
    return np.asarray(found * (1 + 32 * UNIT), dtype=np.float64)


def _square_up(r: Floats) -> Floats:
    """r², rounded up where it is not exact; Dekker's product finds out."""
    square = r * r
    big = r * 134217729.0
    high = big - (big - r)
    low = r - high
    rest = ((high * high - square) + 2 * high * low) + low * low
    return np.asarray(
        np.where(rest > 0, np.nextafter(square, np.inf), square) + np.where((r > 0) & (r < 1e-140), 1e-280, 0.0)
    )


def _sum_up(a: Floats, b: Floats) -> Floats:
    """a + b, rounded up where it is not exact; Knuth's sum finds out."""
    total = a + b
    part = total - a
    rest = (a - (total - part)) + (b - part)
    return np.asarray(np.where(rest > 0, np.nextafter(total, np.inf), total), dtype=np.float64)
