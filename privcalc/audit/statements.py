"""Statements of a run without filters, beyond its worst case: they are about an event, and nothing stronger."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc import errors
from privcalc.audit.sensitive import Sensitive
from privcalc.enclosure import Enclosure
from privcalc.mechanisms.guarantees import GDP

__all__ = ["EventRestricted"]


@dataclass(frozen=True, init=False)
class EventRestricted(Sensitive):
    """For a b fixed in advance, B = Σ_t (r_t/z_t)² of one record and every event S, both orders, full batches:

        P[S ∩ {B ≤ b}] ≤ e^ε·P'[S ∩ {B ≤ b}] + δ_{√b}(ε),

    P with, P' without the record, δ_μ the profile of μ-GDP. It says nothing about runs with B > b, nor that a run
    with B ≤ b is (ε, δ)-DP: conditioning on the event, or choosing b afterwards, is not covered (``proofs/audits.md``,
    §2).

    Args:
        b: the bound of B, > 0, fixed before the run.

    Example:
        >>> import privcalc as pc
        >>> statement = pc.EventRestricted(b=1 / 400)
        >>> print(f"{statement.epsilon(delta=1e-5):.6f}")
        0.160043
        >>> pc.certify(statement, delta=1e-5)
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: EventRestricted: must not be listed or certified: realised losses depend
        on the data and are no guarantee (proofs/audits.md). Certify the plan of the run, or an IndividualFilter's
        mechanism. For the data holder alone: np.max(losses.epsilon(delta)) is the largest, and .values are all
    """

    b: float

    def __init__(self, b: float) -> None:
        object.__setattr__(self, "b", errors.scale("b", b))

    @property
    def _mechanism(self) -> GDP:
        return GDP(self.b**0.5 * (1 + 2.0**-51))

    def delta(self, epsilon: float) -> Enclosure:
        """δ of the inequality."""
        return self._mechanism.delta(epsilon=epsilon)

    def epsilon(self, delta: float) -> Enclosure:
        """ε of the inequality."""
        return self._mechanism.epsilon(delta=delta)

    def __str__(self) -> str:
        """The statement as a formula, with its numbers."""
        event = f"[S and B <= {self.b!r}]"
        return f"P{event} <= e^eps P'{event} + delta for every event S, both orders; B the record's own"
