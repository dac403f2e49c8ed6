"""Skellam noise over vectors of bounded L2 norm: a Gaussian guarantee."""

from __future__ import annotations

import math

from privcalc import errors
from privcalc.mechanisms.discrete_gaussian import unit_mu
from privcalc.mechanisms.guarantees import GDP
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation

__all__ = ["skellam"]

_LARGE = 1e5
"""Variances from which a bound of I₁/I₀ gives away less than what the rounding of its logarithm needs."""


def skellam(variance: float, *, norm: float, relation: Relation = ADD_OR_REMOVE_ONE) -> GDP:
    """Return the guarantee of a sum of integer vectors, each of L2 norm at most ``norm``, plus Skellam noise.

    The noise of every coordinate is the difference of two Poisson numbers of mean variance/2, drawn exactly. It is
    μ-GDP for any number of coordinates, as good as a Gaussian of this variance less 0.6 or so
    (``proofs/discrete_gaussian.md``, §8). Of bounded L1 norms one coordinate dominates, and a ``CustomMechanism`` with
    its table of masses is exact.

    Args:
        variance: of one coordinate's noise, from 1e-3 to 1e15.
        norm: bounds the L2 norm of one record's vector, at least 1; under replace-one two vectors of that norm differ.
        relation: the relation to be accounted for.

    Returns:
        μ-GDP for this relation, which composes, samples and certifies as any other.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> from privcalc.mechanisms.skellam import skellam
        >>> print(f"{skellam(50.0, norm=3.0).mu:.6f} {3.0 / math.sqrt(50.0):.6f}")
        0.426780 0.424264
    """
    spread = errors.real("variance", variance, "a number from 1e-3 to 1e15", low=1e-3, high=1e15)
    size = errors.real("norm", norm, "a number from 1 to 2^53", low=1.0, high=2.0**53)
    moves = 2 if relation is REPLACE_ONE else 1
    return GDP(moves * size * unit_mu(_sigma(spread) * (1 - 1e-15)) * (1 + 1e-15), relation=relation)


def _sigma(variance: float) -> float:
    """The σ with 1/σ² = −2 log(I₁/I₀), rounded down: of the discrete Gaussian whose masses bend as much at 0."""
    from scipy.special import i0e, i1e  # slow to import

    if variance < _LARGE:
        bend = -2 * math.log(float(i1e(variance) / i0e(variance))) + 1e-13
    else:  # I₁/I₀ ≥ v/(½ + √(v² + 9/4)) (Amos 1974)
        bend = 2 * math.log1p((0.5 + 2.25 / (variance + math.hypot(variance, 1.5))) / variance) * (1 + 1e-14)
    return 1 / math.sqrt(bend) * (1 - 1e-15)
