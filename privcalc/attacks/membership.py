"""Membership inference by a threshold on the loss: AUC, and true positive rates at low false positive rates.

Source: Yeom, Giacomelli, Fredrikson, Jha 2018; Carlini et al. 2022 for low false positive rates; AdaMix, Section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.attacks.counts import at_least, at_most, level
from privcalc.attacks.scores import as_scores

__all__ = ["Membership", "auc", "membership"]


@dataclass(frozen=True)
class Membership:
    """The outcome of membership inference by a threshold on the loss.

    Attributes:
        auc: probability that a member has the smaller loss, ties half.
        auc_bounds: what it is between, with the confidence.
        rates: for each false positive rate asked for: the false and the true positive rate seen, an upper bound of
            the first and a lower bound of the second.
        confidence: of all bounds together.
    """

    auc: float
    auc_bounds: tuple[float, float]
    rates: dict[float, tuple[float, float, float, float]]
    confidence: float


def auc(with_it: ArrayLike, without: ArrayLike) -> float:
    """The probability that a score of the first world is larger than one of the second, ties half (Mann, Whitney 1947).

    Example:
        >>> auc([1, 2, 3, 4, 5, 6, 7, 8], [0, 0, 0, 0, 0, 0, 0, 8])
        0.8828125
    """
    one, other = as_scores("with_it", with_it), as_scores("without", without)
    from scipy.stats import rankdata  # slow to import

    ranks = rankdata(np.concatenate([one, other]))[: one.size]
    return float((ranks.sum() - one.size * (one.size + 1) / 2) / (one.size * other.size))


def membership(
    member_losses: ArrayLike,
    other_losses: ArrayLike,
    *,
    false_positive_rates: Sequence[float] = (0.001, 0.01, 0.1),
    confidence: float = 0.95,
    seed: int = 0,
) -> Membership:
    """Attack by the loss: a record whose loss is small is said to be a member.

    Half of the others, drawn at random, sets the thresholds; the members and the other half are counted. The bounds
    hold if losses are independent, as when each comes from a run of its own; losses of one model are not, and describe
    that model only.

    Args:
        member_losses: of records that were trained on.
        other_losses: of records that were not.
        false_positive_rates: where the true positive rate is asked for.
        confidence: of all bounds together.
        seed: of the split.

    Returns:
        A :class:`Membership`.

    Raises:
        PrivcalcError: if there are too few losses, or a rate is out of range.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(2)
        >>> found = membership(rng.standard_normal(5000), 1 + rng.standard_normal(5000))
        >>> print(f"{found.auc:.3f}", 0.24 < found.rates[0.1][1] < 0.50)
        0.766 True
    """
    members, others = -as_scores("member_losses", member_losses), -as_scores("other_losses", other_losses)
    wanted = np.atleast_1d(errors.floats("false_positive_rates", false_positive_rates, "rates")).tolist()
    error = (1 - level(confidence)) / (2 + 2 * len(wanted))
    area = auc(members, others)
    slack = math.sqrt(math.log(1 / error) / (2 * min(members.size, others.size)))  # Hoeffding 1963, Section 5
    others = np.random.default_rng(errors.count("seed", seed)).permutation(others)
    calibration, rest = np.sort(others[: others.size // 2])[::-1], others[others.size // 2 :]
    rates = {}
    for rate in wanted:
        value = errors.rate("false_positive_rates", rate)
        threshold = calibration[min(int(value * calibration.size), calibration.size - 1)]
        false, true = int((rest > threshold).sum()), int((members > threshold).sum())
        rates[value] = (
            false / rest.size,
            true / members.size,
            float(at_most(false, rest.size, error)),
            float(at_least(true, members.size, error)),
        )
    return Membership(area, (max(0.0, area - slack), min(1.0, area + slack)), rates, confidence)
