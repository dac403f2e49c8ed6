"""Attacks that learn a threshold from one part of the samples, and count the other part.

scores of two worlds        ->  from_scores  ->  Measured
samplers and their ratio    ->  likelihood_ratio
a mechanism as a function   ->  black_box
a training as a function    ->  canary_runs
losses of members or not    ->  membership (Yeom, Giacomelli, Fredrikson, Jha 2018; Carlini et al. 2022)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.attacks.counts import Measured, at_least, at_most, from_counts, level
from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import Floats
from privcalc.numerics.special import expit, ndtri

Rng = np.random.Generator
Data = TypeVar("Data")

TRAIN = 0.25
"""The share of the samples from which thresholds are chosen."""
CANDIDATES = 400
"""Thresholds that are tried, denser in both tails. Only the attack's power depends on it."""
CAUTION = 0.01
"""Thresholds are compared by bounds with this error, so that luck in the tails does not decide."""


def as_scores(name: str, values: ArrayLike) -> Floats:
    """Return at least eight scores, none of them NaN."""
    scores = errors.floats(name, values, "numbers")
    if scores.ndim != 1 or scores.size < 8 or np.isnan(scores).any():
        raise PrivcalcError(
            f"{name}: must be at least 8 numbers in one dimension, none of them NaN; has shape {scores.shape}"
        )
    return scores


def from_scores(
    with_it: ArrayLike,
    without: ArrayLike,
    *,
    delta: float | Sequence[float] = (0.0, 1e-5, 1e-3, 1e-2),
    confidence: float = 0.95,
    seed: int = 0,
) -> Measured:
    """From independent scores of two neighbouring worlds, larger ones speaking for the first.

    A quarter of both samples, drawn at random, chooses thresholds: for each δ and each order of the worlds the one that
    would show the largest ε, and those for μ and the advantage. The rest is counted. The bounds hold whatever the
    scores mean; good scores make them large.

    Source: Clopper, Pearson 1934; sample splitting.

    Args:
        with_it: scores of the first world, independent of each other.
        without: scores of the second.
        delta: δ that thresholds are chosen for; any other may be asked afterwards.
        confidence: of all statements together.
        seed: of the split.

    Returns:
        A :class:`Measured`.

    Raises:
        PrivcalcError: if there are fewer than eight scores, NaN among them, or a δ is out of range.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(1)
        >>> found = from_scores(1 + rng.standard_normal(100_000), rng.standard_normal(100_000), delta=1e-2)
        >>> print(f"{found.epsilon(delta=1e-2):.3f} {found.mu():.3f}")
        2.145 0.978
    """
    deltas = [
        errors.delta("delta", value) for value in np.atleast_1d(errors.floats("delta", delta, "probabilities")).tolist()
    ]
    rng = np.random.default_rng(errors.count("seed", seed))
    one, other = (
        rng.permutation(as_scores(name, values)) for name, values in (("with_it", with_it), ("without", without))
    )
    (seen, kept), (seen_other, kept_other) = (
        (x[: round(TRAIN * x.size)], x[round(TRAIN * x.size) :]) for x in (one, other)
    )
    grid = _candidates(np.concatenate([seen, seen_other]))
    power = at_least(_share(seen, grid) * seen.size, seen.size, CAUTION)
    false = at_most(_share(seen_other, grid) * seen_other.size, seen_other.size, CAUTION)
    with np.errstate(divide="ignore", invalid="ignore"):
        merits = [power - false, np.nan_to_num(ndtri(power) - ndtri(false), nan=-math.inf, posinf=-math.inf)]
        for value in deltas:
            for above, below in ((power, false), (1 - false, 1 - power)):
                merits.append(
                    np.where(above > value, np.log(np.maximum(above - value, 1e-300)) - np.log(below), -math.inf)
                )
    chosen = np.unique([grid[int(np.argmax(merit))] for merit in merits])
    hits, false_hits = ((x.size - np.searchsorted(np.sort(x), chosen)).tolist() for x in (kept, kept_other))
    return from_counts(hits, kept.size, false_hits, kept_other.size, confidence=confidence)


def _candidates(pooled: Floats) -> Floats:
    """Scores to choose from: quantiles, dense towards both ends."""
    shares = expit(np.linspace(-math.log(pooled.size), math.log(pooled.size), CANDIDATES))
    return np.unique(np.quantile(pooled, shares, method="higher"))


def _share(scores: Floats, thresholds: Floats) -> Floats:
    return np.asarray(1 - np.searchsorted(np.sort(scores), thresholds) / scores.size, dtype=np.float64)


def likelihood_ratio(
    with_it: Callable[[Rng, int], ArrayLike],
    without: Callable[[Rng, int], ArrayLike],
    loss: Callable[[NDArray[np.float64]], ArrayLike],
    *,
    size: int = 100_000,
    delta: float | Sequence[float] = (0.0, 1e-5, 1e-3, 1e-2),
    confidence: float = 0.95,
    seed: int = 0,
) -> Measured:
    """The best test of a known pair (Neyman, Pearson 1933), on samples.

    Round outputs if the real-valued mechanism is meant: the last bits of floating-point noise tell worlds apart
    (Mironov 2012).

    Args:
        with_it: draws so many outputs of the first world.
        without: of the second.
        loss: log dP/dQ of outputs, or anything that increases with it.
        size: samples of each world.
        delta: see :func:`from_scores`.
        confidence: of all statements together.
        seed: of the samples and the split.

    Returns:
        A :class:`Measured`.

    Example:
        >>> worlds = [lambda rng, n, at=at: rng.laplace(at, 1, n).round(9) for at in (1, 0)]
        >>> found = likelihood_ratio(*worlds, loss=lambda x: (abs(x) - abs(x - 1)).round(9))
        >>> 0.95 < found.epsilon(delta=0.0) < 1.0
        True
    """
    n, rng = errors.count("size", size, least=32), np.random.default_rng(errors.count("seed", seed))
    scores = [
        np.asarray(loss(np.asarray(draw(rng, n), dtype=np.float64)), dtype=np.float64) for draw in (with_it, without)
    ]
    return from_scores(*scores, delta=delta, confidence=confidence, seed=seed)


def black_box(
    mechanism: Callable[[Data, Rng], ArrayLike],
    one: Data,
    other: Data,
    *,
    size: int = 10_000,
    statistic: Callable[[Floats], float] | None = None,
    delta: float | Sequence[float] = (0.0, 1e-5, 1e-3, 1e-2),
    confidence: float = 0.95,
    seed: int = 0,
) -> Measured:
    """Attack a mechanism that can only be run.

    Args:
        mechanism: its output, numbers of any but always the same shape, from a data set and a generator.
        one: a data set.
        other: its neighbour.
        size: how often the mechanism runs on each.
        statistic: one number per output, larger ones speaking for ``one``. None: a logistic regression on the
            outputs and their squares is fitted to half of the runs, and its scores on the other half are attacked.
        delta: see :func:`from_scores`.
        confidence: of all statements together.
        seed: of everything.

    Returns:
        A :class:`Measured`.

    Raises:
        PrivcalcError: if outputs differ in shape or are NaN, or there are too few.

    Example:
        >>> noisy_sum = lambda data, rng: sum(data) + rng.normal()
        >>> found = black_box(noisy_sum, [1.0, 0.0], [0.0], size=20_000, statistic=lambda x: x[0])
        >>> 0.9 < found.mu() < 1.0
        True
    """
    errors.function("mechanism", mechanism, "of a data set and a generator")
    n, rng = errors.count("size", size, least=64), np.random.default_rng(errors.count("seed", seed))
    try:
        outputs = [
            np.array([np.ravel(mechanism(data, rng)) for _ in range(n)], dtype=np.float64) for data in (one, other)
        ]
    except ValueError as error:
        raise PrivcalcError("mechanism: must return numbers, always of the same shape") from error
    if statistic is not None:
        scores = [np.array([float(statistic(row)) for row in rows]) for rows in outputs]
    else:
        half = n // 2
        direction = _classifier(*(rows[:half] for rows in outputs))
        scores = [direction(rows[half:]) for rows in outputs]
    return from_scores(*scores, delta=delta, confidence=confidence, seed=seed)


def _classifier(one: Floats, other: Floats) -> Callable[[Floats], Floats]:
    """Log-odds by logistic regression on standardised outputs and squares, with a little ridge."""
    from scipy.optimize import minimize

    pooled = np.concatenate([one, other])
    middle = np.median(pooled, axis=0)
    # The 0.7-quantile of |x| is about a normal's deviation, and no outlier moves it.
    spread = np.maximum(np.quantile(np.abs(pooled - middle), 0.7, axis=0), 1e-300)

    def features(rows: Floats) -> Floats:
        # So that no outlier decides the fit. Only the attack's power depends on it.
        z = np.clip((rows - middle) / spread, -30, 30)
        return np.concatenate([np.ones((len(z), 1)), z, z * z], axis=1)

    x, sign = features(pooled), np.repeat([1.0, -1.0], [len(one), len(other)])

    def cost(w: Floats) -> tuple[float, Floats]:
        margin = sign * (x @ w)
        # A ridge of 1e-4: enough for a finite optimum where classes are apart. Only the attack's power depends on it.
        value = float(np.mean(np.logaddexp(0, -margin)) + 1e-4 * (w @ w))
        return value, np.asarray(-(sign * expit(-margin)) @ x / len(x) + 2e-4 * w, dtype=np.float64)

    weights = minimize(cost, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda rows: np.asarray(features(rows) @ weights, dtype=np.float64)


def canary_runs(
    train: Callable[[bool, int], float],
    *,
    runs: int,
    delta: float | Sequence[float] = (0.0, 1e-5, 1e-3, 1e-2),
    confidence: float = 0.95,
    seed: int = 0,
) -> Measured:
    """Audit a training by many runs with and without a canary (Jagielski, Ullman, Oprea 2020; Nasr et al. 2021).

    Args:
        train: trains with the canary or without, given a number of the run's own, and returns a score of the canary.
        runs: on each side.
        delta: see :func:`from_scores`.
        confidence: of all statements together.
        seed: of the split, and the first of the numbers.

    Returns:
        A :class:`Measured`, for the relation that the canary's presence stands for.

    Example:
        >>> import numpy as np
        >>> found = canary_runs(lambda there, number: there + np.random.default_rng(number).normal(), runs=2_000)
        >>> 0.7 < found.mu() < 1.0
        True
    """
    n = errors.count("runs", runs, least=8)
    scores = [np.array([float(train(there, seed + 2 * i + there)) for i in range(n)]) for there in (True, False)]
    return from_scores(*scores, delta=delta, confidence=confidence, seed=seed)


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
