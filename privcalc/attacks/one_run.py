"""Audit of a single training run, with many canaries that are each put in by the toss of a coin.

Source: Steinke, Nasr, Jagielski 2023, "Privacy auditing with one (1) training run", Theorem 5.2; for δ > 0 a bound of
our own, and the form for Gaussian DP that follows from it: ``proofs/attacks.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.attacks.counts import level
from privcalc.attacks.scores import as_scores
from privcalc.errors import PrivcalcError
from privcalc.numerics.special import betainc, gammaln, gdp_profile

LARGEST = 60.0
"""An ε or μ beyond which nothing is asked."""
EPSILONS = np.linspace(0.0, 12.0, 49)
"""Where a Gaussian profile is taken; every choice is valid."""


def guess_probability(*, correct: int, guesses: int, canaries: int, epsilon: float, delta: float = 0.0) -> float:
    """The largest probability, under (ε, δ)-DP, of at least so many correct guesses: a p-value.

    Args:
        correct: number of correct guesses.
        guesses: number of guesses, fixed in advance.
        canaries: number of canaries.
        epsilon: ε ≥ 0.
        delta: δ in [0, 1).

    Example:
        >>> print(f"{guess_probability(correct=70, guesses=100, canaries=1000, epsilon=0.5):.5f}")
        0.06565
    """
    m = errors.count("canaries", canaries, least=1)
    r, e, d = (
        errors.count("guesses", guesses, least=1),
        errors.epsilon("epsilon", epsilon),
        errors.delta("delta", delta),
    )
    v = errors.count("correct", correct)
    if not v <= r <= m:
        raise PrivcalcError(f"guesses = {r}: must be from correct = {v} to canaries = {m}")
    if v == 0:
        return 1.0
    miss = 1 / (1 + math.exp(min(e, 700.0)))
    tail = float(betainc(v, r - v + 1, 1 - miss))  # P(Binomial(r, q) ≥ v)
    w = np.arange(v - 1, -1, -1)  # one short, two short, …
    log_mass = gammaln(r + 1) - gammaln(w + 1) - gammaln(r - w + 1) + w * math.log1p(-miss) + (r - w) * math.log(miss)
    mass, short = np.exp(log_mass), v - w
    room = np.maximum(m * d * miss - np.concatenate([[0.0], np.cumsum(short * mass)[:-1]]), 0.0)
    return min(1.0, tail + float(np.minimum(mass, room / short).sum()))


@dataclass(frozen=True)
class OneRun:
    """How many guesses were right in one run.

    Attributes:
        canaries: how many there were.
        guesses: for each way to guess, the number of guesses.
        correct: and how many were right.
        confidence: of all bounds together.
    """

    canaries: int
    guesses: tuple[int, ...]
    correct: tuple[int, ...]
    confidence: float

    def epsilon(self, *, delta: float) -> float:
        """A lower bound of ε at δ, of a mechanism whose neighbours differ in one canary's presence."""
        value = errors.delta("delta", delta)
        return self._largest(lambda epsilon: [(epsilon, value)])

    def mu(self) -> float:
        """A lower bound of μ, if the mechanism is μ-GDP: then it is (ε, δ_μ(ε))-DP for every ε."""
        return self._largest(_gaussian_claims)

    def _largest(self, curve: Callable[[float], list[tuple[float, float]]]) -> float:
        """The largest x at which the guesses are too good, for a family that is weaker the larger x is."""
        error = (1 - self.confidence) / len(self.guesses)

        def refuted(x: float, r: int, v: int) -> bool:
            claims = curve(x)
            return any(
                guess_probability(correct=v, guesses=r, canaries=self.canaries, epsilon=e, delta=d) <= error
                for e, d in claims
            )

        best = 0.0
        for r, v in zip(self.guesses, self.correct, strict=True):
            if not refuted(best, r, v):
                continue
            low, high = best, LARGEST
            # Six digits of a lower bound: the end that is returned is valid at any width.
            while high - low > 1e-6 * max(1.0, low):
                middle = (low + high) / 2
                low, high = (middle, high) if refuted(middle, r, v) else (low, middle)
            best = low
        return best


def _gaussian_claims(mu: float) -> list[tuple[float, float]]:
    """Claims (ε, δ) that hold for every μ-GDP mechanism."""
    if mu <= 0:
        return [(0.0, 0.0)]
    delta, _, error = gdp_profile(mu, EPSILONS)
    return list(zip(EPSILONS.tolist(), np.minimum(delta + error, 1 - 2**-53).tolist(), strict=True))


def one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    guesses: int | Sequence[int] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> OneRun:
    """From the scores of canaries, each of which was put in by a fair coin of its own.

    Half of the guesses say that the canaries with the largest scores were in, the others that those with the smallest
    were out. How many guesses are made must not depend on the scores; several numbers share the error.

    Args:
        scores: one per canary, from what was released; larger ones say that it was in.
        included: whether it was in.
        guesses: how many guesses; None tries 1/20, 1/5 and all of the canaries.
        confidence: of all statements together.
        seed: of the order in which equal scores are taken, which must not tell who was in.

    Returns:
        A :class:`OneRun`.

    Raises:
        PrivcalcError: if the shapes do not fit, or ``included`` is not all true or false.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(3)
        >>> coins = rng.random(1000) < 0.5
        >>> found = one_run(coins + 0.5 * rng.standard_normal(1000), coins)
        >>> found.guesses, 1.4 < found.epsilon(delta=1e-5) < 10
        ((50, 200, 1000), True)
    """
    values = as_scores("scores", scores)
    there = errors.array("included", included)
    if there.dtype.kind not in "biu" or there.shape != values.shape or not np.isin(there, [0, 1]).all():
        raise PrivcalcError(f"included: must be {values.size} times true or false")
    m = values.size
    usual = [max(2, m // 20), max(2, m // 5), m]
    numbers = usual if guesses is None else np.atleast_1d(errors.array("guesses", guesses)).tolist()
    shuffled = np.random.default_rng(errors.count("seed", seed)).permutation(m)
    order = shuffled[np.argsort(values[shuffled], kind="stable")]
    correct = []
    for number in numbers:
        r = errors.count("guesses", number, least=1)
        if r > m:
            raise PrivcalcError(f"guesses = {r}: must be at most the number of canaries, {m}")
        correct.append(
            int(there[order[m - (r + 1) // 2 :]].sum() + (1 - there[order[: r // 2]].astype(np.int64)).sum())
        )
    return OneRun(m, tuple(map(int, numbers)), tuple(correct), level(confidence))
