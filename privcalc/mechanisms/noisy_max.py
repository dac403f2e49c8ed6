"""Report-noisy-max: the candidate with the largest noisy score. Permute-and-flip is one of its kinds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from privcalc import errors
from privcalc.mechanisms.exponential import BoundedRangePair, ExponentialMechanism
from privcalc.mechanisms.laplace import LaplacePair
from privcalc.numerics.floats import UNIT
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.pair import Pair
from privcalc.pairs.two_point import TwoPointPair
from privcalc.run import ByNumber, Shown

__all__ = ["NoisyMax", "PermuteAndFlip"]

Noise = Literal["exponential", "gumbel", "laplace"]

_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Places in the range of the loss at which pairs occur; which is the best one depends on the run. Empirical."""

_DOWN = 1 - 16 * UNIT
"""Pays for the rounding of a loss that occurs."""


def _flipped(a: float, share: float) -> TwoPointPair:
    """Two candidates with exponential noise, one ahead by −share·a and lifted by a.

    It wins with e^{−share·a}/2, then more.
    """
    behind, ahead = share * a, (1 - share) * a
    up = behind + math.log1p(-math.expm1(-ahead))  # log(2 − e^{−ahead})
    down = ahead + math.log1p(-math.expm1(-behind))
    return TwoPointPair(up * _DOWN, down * _DOWN)


class Selection(ByNumber, Shown):
    """A release of one of several candidates, by their scores."""

    page = "noisy_max.md"
    needs = ("candidates", "monotone")
    draws = "select"
    scheme = None
    nulled = "absent"

    level: float
    monotone: bool

    def _shift(self, records: int) -> float:
        """How far one candidate moves against another, in scales of the noise."""
        return records * (1 if self.monotone else 2) * self.level


@dataclass(frozen=True, init=False, repr=False)
class PermuteAndFlip(Selection):
    """Release one of a public set of candidates: in random order, the first whose coin shows heads.

    The coin's probability is e^{ε(score − best)/Δ}.

    It is the same mechanism as the largest score with *exponential* noise of scale Δ/ε (Ding et al. 2021), and never
    chooses worse in expectation than ``ExponentialMechanism`` at the same ε in pure DP (McKenna, Sheldon 2020). But its
    loss has no range of ε: **at δ > 0, and in zCDP, it costs more**, up to four times the ρ. One use is exactly as
    private as ``Laplace`` noise at the same ε: the worst case is two candidates (``proofs/noisy_max.md``).

    Under add-or-remove-one and zero-out (a nulled record adds nothing) it is ε-DP for scores that a record can only
    raise (or only lower), by at most Δ: the default, ``monotone=True``; 2ε-DP for ``monotone=False``; twice that under
    replace-one. Note the missing factor 2 of the usual e^{ε(score − best)/(2Δ)}: that one is
    ``PermuteAndFlip(epsilon=ε/2)``.

    Args:
        epsilon: ε, > 0 (1e-100 to 1e100); kept as ``level``, because ``epsilon`` is a question.
        monotone: whether a record can only raise scores.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> for mechanism in (pc.PermuteAndFlip(epsilon=1.0), pc.ExponentialMechanism(epsilon=1.0)):
        ...     pure, approximate = mechanism.epsilon(delta=0.0), mechanism.epsilon(delta=0.1)
        ...     print(f"{pure:.6f} {approximate:.6f} {mechanism.zcdp()[0]:.6f}")
        1.000000 0.789279 0.367879
        1.000000 0.420846 0.125000
    """

    kind = "PermuteAndFlip"

    level: float
    monotone: bool

    def __init__(self, epsilon: float, *, monotone: bool = True) -> None:
        self._set(level=errors.scale("epsilon", epsilon), monotone=errors.flag("monotone", monotone))

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Two candidates, each lifted by another record: they win with ½(1 ± q(1 − e^{−a}))."""
        loss = 2 * math.atanh(rate * -math.expm1(-self._shift(1)) * _DOWN) * _DOWN
        return (TwoPointPair(loss, loss),)

    def apart(self, records: int) -> Pairs:
        """Laplace noise; a choice between two candidates occurs, for one use with the worst lead at every ε."""
        pair = LaplacePair(self._shift(records))
        two, *others = [_flipped(pair.a, share) for share in (*_SHARES, 1.0)]
        also = tuple((other, other.reverse) for other in others)
        return Pairs(pair, pair, (two, two), attained_alone=True, attained_curve=True, bound="noisy max", also=also)


@dataclass(frozen=True, init=False, repr=False)
class NoisyMax(Selection):
    """Release the candidate with the largest ε·score/Δ + independent noise of scale 1, of one of three kinds.

    * ``"exponential"`` is ``PermuteAndFlip(ε)``: exact for one use, which costs as much as ``Laplace`` noise;
    * ``"gumbel"`` is ``ExponentialMechanism(ε)``: of bounded range, which is less at δ > 0;
    * ``"laplace"``: in pure DP as much as the other two, and a loss that has no range of ε either. Laplace's profile is
      the upper end; the lower one is Gumbel's, which many candidates approach.

    Only the winner is released, neither its noisy score nor the runner-up. ``monotone`` and relations are as in
    :class:`PermuteAndFlip`. (Source: Dwork, Roth 2014, §3.3; ``proofs/noisy_max.md`` has the costs.)

    Args:
        epsilon: Δ over the scale of the noise, > 0 (1e-100 to 1e100); kept as ``level``.
        noise: "exponential", "gumbel" or "laplace".
        monotone: whether a record can only raise scores.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> for noise in ("exponential", "gumbel", "laplace"):
        ...     found = pc.NoisyMax(epsilon=1.0, noise=noise).delta(epsilon=0.5)
        ...     print(f"{found.lower:.4f} {found.upper:.4f}")
        0.2212 0.2212
        0.0774 0.0774
        0.0743 0.2212
    """

    kind = "NoisyMax"

    level: float
    noise: Noise
    monotone: bool

    def __init__(self, epsilon: float, *, noise: Noise, monotone: bool = True) -> None:
        if noise not in get_args(Noise):
            raise errors.PrivcalcError(f"noise = {noise!r}: must be 'exponential', 'gumbel' or 'laplace'")
        self._set(level=errors.scale("epsilon", epsilon), noise=noise, monotone=errors.flag("monotone", monotone))

    @property
    def _same(self) -> ExponentialMechanism | PermuteAndFlip:
        """The mechanism with its law; of Laplace noise the one whose choices it approaches."""
        kind = PermuteAndFlip if self.noise == "exponential" else ExponentialMechanism
        return kind(self.level, monotone=self.monotone)

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Return the opposite pairs of the mechanism with its law; with Laplace noise many candidates approach them."""
        return self._same.opposites(rate)

    def apart(self, records: int) -> Pairs:
        """Return the pairs of the mechanism with its law; with Laplace noise between Gumbel's and the Laplace pair."""
        if self.noise != "laplace":
            return self._same.apart(records)
        pair = LaplacePair(self._shift(records))
        ranged = BoundedRangePair(pair.a)
        two, *others = [ranged.member(share * pair.a) for share in _SHARES]
        also = tuple((other, other.reverse) for other in others)
        return Pairs(pair, pair, (two, two), bound="noisy max", also=also)
