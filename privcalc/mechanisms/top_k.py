"""Top-k selection in one draw (DPPL), with the number of candidate sets counted correctly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.numerics.floats import Floats
from privcalc.numerics.special import betaln
from privcalc.pairs.dominating import Pairs
from privcalc.relation import Relation
from privcalc.run import Mechanism

__all__ = ["TopK", "log_multiplicity"]


@dataclass(frozen=True, init=False, repr=False)
class TopK(Mechanism):
    """Release k of the public candidates, chosen with probability ∝ exp(ε·u_min/(2Δ)).

    u_min is the lowest utility of the set.

    Every record adds between 0 and Δ to each utility, hence to u_min: it is ``ExponentialMechanism(ε/2)`` over sets,
    with a loss of range ε/2 under add-or-remove-one and zero-out, ε under replace-one. (The paper claims ε for
    add-or-remove: twice the cost.)

    To draw it: choose the rank y of the worst element with log-weight ε·u_(y)/(2Δ) + ``log_multiplicity(y, k)``, then
    the other k − 1 uniformly from the ranks strictly above, in one total order (utility, then public index). The C(y,
    k) printed in the paper weighs sets by y/k, which is private, and breaks the guarantee (``proofs/exponential.md``).

    Args:
        epsilon: the ε of exp(ε·u_min/(2Δ)), > 0 (1e-100 to 1e100); kept as ``level``, because ``epsilon`` is a
            question.
        k: size of the set, at least 1.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> mechanism = TopK(epsilon=1.0, k=5)
        >>> print(f"{mechanism.epsilon(delta=0.0):.9f} {mechanism.epsilon(delta=0.0, relation=pc.REPLACE_ONE):.9f}")
        0.500000000 1.000000000
    """

    kind = "TopK"
    page = "exponential.md"
    needs = ("candidates", "monotone")
    draws = "select"
    scheme = None

    level: float
    k: int

    def __init__(self, epsilon: float, k: int) -> None:
        object.__setattr__(self, "level", errors.scale("epsilon", epsilon))
        object.__setattr__(self, "k", errors.count("k", k, least=1))

    def __repr__(self) -> str:
        return f"TopK(epsilon={self.level!r}, k={self.k!r})"

    def pairs(self, relation: Relation) -> Pairs:
        """The pairs of the exponential mechanism at ε/2."""
        return ExponentialMechanism(0.5 * self.level).pairs(relation)


def log_multiplicity(rank: ArrayLike, k: int) -> Floats:
    """Log of the number C(rank − 1, k − 1) of k-sets whose worst element has this rank (1 is best); −∞ for rank < k.

    Example:
        >>> print(np.exp(log_multiplicity([1, 2, 3, 4], 2)).round(6))
        [0. 1. 2. 3.]
    """
    k = errors.count("k", k, least=1)
    ranks = np.asarray(rank, dtype=np.float64)
    if np.any(ranks != np.floor(ranks)) or not np.all((ranks >= 1) & (ranks < 2**53)):
        raise errors.PrivcalcError(f"rank = {rank!r}: must be whole numbers >= 1")
    # C(n, m) = 1/((n + 1) B(n − m + 1, m + 1)), n = rank − 1, m = k − 1
    inside = np.maximum(ranks, k)
    return np.where(ranks >= k, -betaln(inside - k + 1, k) - np.log(inside), -np.inf)
