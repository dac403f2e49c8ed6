"""Strategies of correlated noise: lower-triangular matrices, who may take part when, and the sensitivity that follows.

A run of T steps releases Cx + Z, row by row: x_t is the sum of step t, C the strategy, Z independent normal noise. What
is published is x + C⁻¹Z, a function of that. :class:`privcalc.CorrelatedGaussian` says what it costs.
"""

from privcalc.run import PARTS
from privcalc.strategies.buffered import BLT
from privcalc.strategies.design import error, momentum, optimal_banded, optimal_blt, optimal_toeplitz, spread
from privcalc.strategies.matrices import Dense, SquareRoot, Strategy, Toeplitz, Tree
from privcalc.strategies.participation import BallsInBins, CyclicPoisson, FixedOrder, MinSeparation, Participation
from privcalc.strategies.patterns import sensitivity

__all__ = [
    "BLT",
    "BallsInBins",
    "CyclicPoisson",
    "Dense",
    "FixedOrder",
    "MinSeparation",
    "Participation",
    "SquareRoot",
    "Strategy",
    "Toeplitz",
    "Tree",
    "error",
    "momentum",
    "optimal_banded",
    "optimal_blt",
    "optimal_toeplitz",
    "sensitivity",
    "spread",
]

PARTS |= {
    part.__name__: part
    for part in (Toeplitz, SquareRoot, BLT, Dense, Tree, MinSeparation, FixedOrder, CyclicPoisson, BallsInBins)
}
