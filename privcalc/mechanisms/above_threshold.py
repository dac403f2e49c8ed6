"""The sparse vector technique: of many questions, which are above a threshold, at the price of those that are."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from privcalc import errors
from privcalc.numerics.floats import UNIT
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.pair import Pair
from privcalc.pairs.two_point import TwoPointPair
from privcalc.relation import Relation
from privcalc.run import Grouped, Shown

__all__ = ["AboveThreshold"]

_NEAR = 1e-4
"""Relative difference of two scales up to which the larger one stands for both."""


@dataclass(frozen=True, init=False, repr=False)
class AboveThreshold(Grouped, Shown):
    """Tell of questions, one by one, whether each is above a threshold; end after ``answers`` that were.

    Laplace noise is added to the threshold, once, and to each question's value, anew: algorithm 7 of Lyu, Su, Li 2017
    (Dwork et al. 2009). There may be any number of questions, each may depend on earlier replies, and those below cost
    nothing. With a the inverse of the threshold's scale, and b that of the questions', one run is (a + 2·answers·b)-DP,
    and for questions whose value a record can only raise, ``monotone=True``, (a + answers·b)-DP under add-or-remove-one
    and zero-out (the proof, and published variants that have none: ``proofs/sparse_vector.md``). Under replace-one
    monotone questions cost what others do, and others twice that. What is charged is every pair of laws with these
    losses; the lower end is that of one question, or of very many, first until none was above, then until all were.

    **The noisy value is not released** with a reply: it would tell the noise on the threshold. To release values, draw
    fresh noise: add ``Laplace(scale) * answers``. With a fresh threshold after each answer it is
    ``AboveThreshold(…) * answers``.

    Args:
        threshold_scale: scale of the noise on the threshold over Δ, by which a record moves a question at most.
        query_scale: the same of the noise on a question.
        answers: how many replies may be "above".
        monotone: whether a record can only raise values, as counts.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> import privcalc as pc
        >>> gate = pc.AboveThreshold(threshold_scale=2.0, query_scale=4.0)
        >>> best = pc.AboveThreshold.of(epsilon=1.0, answers=5)
        >>> print(f"{gate.epsilon(delta=0.0).upper:.6f} {best.threshold_scale:.6f} {best.query_scale:.6f}")
        1.000000 5.641589 12.154435
    """

    kind = "AboveThreshold"
    page = "sparse_vector.md"
    needs = ("questions", "monotone")
    draws = "above"
    scheme = None
    nulled = "absent"

    threshold_scale: float
    query_scale: float
    answers: int
    monotone: bool

    def __init__(self, *, threshold_scale: float, query_scale: float, answers: int = 1, monotone: bool = False) -> None:
        self._set(
            threshold_scale=errors.scale("threshold_scale", threshold_scale),
            query_scale=errors.scale("query_scale", query_scale),
            answers=errors.count("answers", answers, least=1),
            monotone=errors.flag("monotone", monotone),
        )

    @classmethod
    def of(cls, *, epsilon: float, answers: int = 1, monotone: bool = False) -> AboveThreshold:
        """The one of pure ε, under add-or-remove-one, of which value and threshold differ by the least variance.

        With n = 2·answers (monotone: answers) scales are (1 + n^{2/3})/ε and n^{1/3}·(1 + n^{2/3})/ε: Lyu, Su, Li 2017,
        §4.2.

        Args:
            epsilon: ε > 0.
            answers: how many replies may be "above".
            monotone: whether a record can only raise values.
        """
        level = errors.scale("epsilon", epsilon)
        root = math.cbrt(errors.count("answers", answers, least=1) * (1 if monotone is True else 2))
        scale = (1 + root * root) / level
        return cls(threshold_scale=scale, query_scale=root * scale, answers=answers, monotone=monotone)

    def group(self, relation: Relation, removed: int, added: int, total: int) -> Pairs:
        """Two outcomes with the largest losses; one question occurs."""
        up, down = (removed, added) if self.monotone else (total, total)  # values of P are so much above and below Q's
        questions = self.answers * ((total if self.monotone else 2 * total) / self.query_scale)
        low, high = ((moved / self.threshold_scale + questions) * (1 + 8 * UNIT) for moved in (down, up))
        pair = TwoPointPair(low, high)
        loss = self._told(0.5 * max(up, down)) * (1 - 1e-11)
        one = TwoPointPair(loss, loss)
        scales = self.threshold_scale, self.query_scale, self.answers
        streams: list[tuple[Pair, Pair]] = [(pair, pair.reverse) for pair in _streams(*scales, down, up)]
        if up != down:
            streams += [(pair.reverse, pair) for pair in _streams(*scales, up, down)]
            streams.sort(key=lambda both: max(both[0].max_loss, both[1].max_loss))
        return Pairs(pair, pair.reverse, (one, one), bound="sparse vector", also=tuple(streams))

    def _told(self, x: float) -> float:
        """The loss of one question, log((1 + 2d)/(1 − 2d)), to 1e-11.

        Here d = P(0 < X < x), with X the difference of both noises.
        """
        small, large = sorted((self.threshold_scale, self.query_scale))
        y, share = x / large, small / large
        if large - small <= _NEAR * large:
            d, log_rest = (-2 * math.expm1(-y) - y * math.exp(-y)) / 4, math.log1p(0.5 * y) - y
        else:
            less, square = x / small, share * share
            apart = (1 - share) * (1 + share)
            d = (square * math.expm1(-less) - math.expm1(-y)) / (2 * apart)
            log_rest = math.log1p(-square * math.exp(y - less)) - math.log(apart) - y
        # 1 − 2d on its own where it is small, as its logarithm is what counts.
        return 2 * math.atanh(2 * d) if d < 0.25 else math.log(2 - math.exp(log_rest)) - log_rest


_RATIOS = np.concatenate([[0.0], np.exp(np.arange(-1.0, 4.0, 0.5))]), np.exp(np.arange(-10.0, 4.0, 0.5))
"""Expected answers at ρ = 0 in the first part of a stream, and over ``answers`` in the second: any are valid."""

_LEVELS = (1e-2, 1e-4, 1e-6, 1e-8)
"""Probabilities from which a stream's event on is looked for."""

_FEW = 10_000
"""Answers up to which streams are looked for: beyond, a count of them says little of one more."""

_LARGE = 30.0
"""Losses of a question up to which they are looked for."""


@functools.lru_cache(maxsize=64)
def _streams(threshold_scale: float, query_scale: float, answers: int, first: int, then: int) -> list[TwoPointPair]:
    """Tests of the limit of many questions, by rising loss: no answer in the first part, then all of them.

    Under Q values are larger by ``first`` in the first part, smaller by ``then`` in the second
    (``proofs/sparse_vector.md``, §1).
    """
    a, b = 1 / threshold_scale, 1 / query_scale
    if answers > _FEW or not 1e-3 < a / b < 1e3 or max(a, b) * (first + then) > _LARGE:
        return []
    coarse = [
        (*_event(2_000, a, b, answers, (t, t * math.exp(b * first)), (tau, tau * math.exp(-b * then))), t, tau)
        for t in _RATIOS[0].tolist()
        for tau in (answers * _RATIOS[1]).tolist()
    ]
    found = []
    for level in _LEVELS:
        _, _, t, tau = max(
            ((p, q, t, tau) for p, q, t, tau in coarse if p >= level), key=lambda each: each[0] / each[1]
        )
        p, q = _event(40_000, a, b, answers, (t, t * math.exp(b * first)), (tau, tau * math.exp(-b * then)))
        if 0 < q * (1 + 1e-6) < p < 1:
            up, down = math.log(p / q) * (1 - 1e-10), (math.log1p(-q) - math.log1p(-p)) * (1 - 1e-10)
            found.append(TwoPointPair(up, down))
    return sorted(set(found), key=lambda pair: pair.up)


def _event(
    cells: int, a: float, b: float, answers: int, quiet: tuple[float, float], loud: tuple[float, float]
) -> tuple[float, float]:
    """Bounds of E[e^{−tθ}·Pr(Poisson(τθ) ≥ c)], θ = e^{−bx}, x of density ½ae^{−a|x|}: below under P, above under Q.

    The first factor rises with x, the second falls: on a cell both are between their values at its ends.
    """
    from scipy.special import gammainc

    x = np.concatenate([np.linspace(-45 / a, 45 / a, cells), np.linspace(-60 / b, 60 / b, cells)])
    x = np.unique(np.clip(x, -45 / a, 45 / a))
    half = 0.5 * np.exp(-a * np.abs(x))
    mass = np.diff(np.where(x < 0, half, 1 - half))
    theta = np.exp(np.clip(-b * x, -600.0, 600.0))
    (none, none_q), (all_, all_q) = ((np.exp(-t * theta) for t in quiet), (gammainc(answers, t * theta) for t in loud))
    p, q = float(mass @ (none[:-1] * all_[1:])), float(mass @ (none_q[1:] * all_q[:-1]))
    # Beyond both ends of x is e^{−45}; SciPy's function is taken to ten digits, masses cancel to 1e-15.
    return p * (1 - 1e-9) - 1e-14, q * (1 + 1e-9) + 1e-14
