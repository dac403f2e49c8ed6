"""Noisy gradient descent of which the last weights alone are released."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal

from privcalc import errors
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["LastIterate"]

MOST_STEPS = 10**9
"""Steps up to which the power of the contraction is computed."""

EXACT = Context(prec=60, Emin=-(10**15), Emax=10**15)
"""Sixty digits: 1 − cᵀ has forty of its own for every double c < 1, as 1 − c ≥ 2⁻⁵³."""


@dataclass(frozen=True)
class LastIterate(Mechanism):
    """T steps of full-batch noisy gradient descent, of which **the last weights alone** are ever released.

    A step is w ← w − η·(∇F(w) + N(0, (noise_multiplier·C)²)), with F the *sum* of all losses and of what is public,
    a constant η, and no gradient of one record longer than C at any w. Each w ↦ w − η∇F(w) must bring any two points
    together by the factor c < 1, whatever the records: for F of curvature between m and M, c = max(|1 − ηm|, |1 − ηM|),
    in which M grows with the number of records, and m > 0 comes from a public ridge. Then one use is μ-GDP with

        μ² = (1 − cᵀ)/(1 + cᵀ) · (1 + c)/(1 − c) / noise_multiplier²

    under zero-out, where all records are counted in public, and four times that under replace-one. Linear losses with
    a ridge attain it. Under add-or-remove-one there may be one record more: c must hold of that as well, which needs a
    public cap of their number (``capped``). A projection on a convex set, fixed and public, may follow each step.

    Clipping each record's gradient, momentum and batches are not covered: no such step is known to contract. Of
    intermediate weights, losses or gradients nothing may be looked at, and no step may end the run or choose η
    (``proofs/last_iterate.md``, which also says what rounding does to c).

    Args:
        noise_multiplier: standard deviation of the noise on the summed gradient / C.
        steps: T, at least 1 (up to 10⁹); fixed beforehand.
        contraction: c in [0, 1).
        capped: whether c holds for any number of records, because more than a public cap are never used.

    Raises:
        PrivcalcError: if an argument is out of range.

    Source: Bok, Su, Altschuler 2024 (*Shifted Interpolation for Differential Privacy*, arXiv 2403.00278).

    Example:
        >>> import privcalc as pc
        >>> last = pc.LastIterate(noise_multiplier=20.0, steps=1000, contraction=0.99)
        >>> print(f"{last.epsilon(delta=1e-5, relation=pc.ZERO_OUT):.6f}")
        2.934730
        >>> print(f"{(pc.Gaussian(20.0) * 1000).epsilon(delta=1e-5, relation=pc.ZERO_OUT):.6f}")
        7.511276
    """

    kind = "LastIterate"
    page = "last_iterate.md"
    needs = ("clip_norm", "iterates")
    draws = None
    scheme = None

    noise_multiplier: float
    steps: int
    contraction: float
    capped: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", errors.scale("noise_multiplier", self.noise_multiplier))
        object.__setattr__(self, "steps", errors.count("steps", self.steps, least=1))
        if self.steps > MOST_STEPS:
            raise errors.PrivcalcError(f"steps = {self.steps}: must be at most {MOST_STEPS}")
        factor = errors.real("contraction", self.contraction, "a number in [0, 1)", low=0.0, high=1.0, open_high=True)
        object.__setattr__(self, "contraction", factor)
        object.__setattr__(self, "capped", errors.flag("capped", self.capped))

    def mu(self, shift: int = 1) -> float:
        """The μ of one use, rounded once: of ``shift`` gradients of norm C."""
        e, one, c = EXACT, Decimal(1), Decimal(self.contraction)
        power = e.power(c, Decimal(self.steps)) if c else Decimal(0)
        above = e.multiply(e.subtract(one, power), e.add(one, c))
        below = e.multiply(e.add(one, power), e.subtract(one, c))
        root = e.sqrt(e.divide(above, below))
        return float(e.divide(e.multiply(root, Decimal(shift)), Decimal(self.noise_multiplier)))

    def pairs(self, relation: Relation) -> Pairs:
        """N(μ, 1) against N(0, 1)."""
        if relation is ADD_OR_REMOVE_ONE and not self.capped:
            raise errors.PrivcalcError(
                f"relation = {relation}: LastIterate has no guarantee under it, because how much a step contracts "
                "depends on the number of records, which is private; use zero-out or replace-one, or a public cap "
                "(capped=True)"
            )
        pair = GaussianPair(self.mu(2 if relation is REPLACE_ONE else 1))
        return Pairs(pair, pair)
