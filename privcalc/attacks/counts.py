"""Lower bounds of ε, μ, δ and 1 − β from events that were counted in two neighbouring worlds.

For every event S, P(S) ≤ e^ε Q(S) + δ(ε) and P(S) ≤ 1 − β(Q(S)) (Wasserman, Zhou 2010; Kairouz, Oh, Viswanath 2015).
Clopper and Pearson's bounds (1934) for P(S) and Q(S) make that a statement with exact confidence:
``proofs/attacks.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import Floats
from privcalc.numerics.special import betainccinv, betaincinv, ndtri


def at_least(hits: ArrayLike, trials: ArrayLike, error: float) -> Floats:
    """Clopper and Pearson's lower bound of a probability: above the truth with probability at most ``error``.

    Source: Clopper, Pearson 1934.

    Args:
        hits: how often the event was seen.
        trials: how often it could have been.
        error: of each bound by itself.

    Example:
        >>> print(at_least(50, 1000, 1e-6).round(4))
        0.0236
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    return np.asarray(
        np.where(k > 0, betaincinv(np.maximum(k, 1e-9), np.maximum(n - k, 0) + 1, error), 0.0), dtype=np.float64
    )


def at_most(hits: ArrayLike, trials: ArrayLike, error: float) -> Floats:
    """Return upper confidence limits of a proportion: each is below the truth with probability at most ``error``."""
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    return np.asarray(np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1e-9), error), 1.0), dtype=np.float64)


@dataclass(frozen=True)
class Measured:
    """Confidence limits of event rates in two worlds: P(S) ≥ ``power`` and Q(S) ≤ ``false``, or P and Q exchanged.

    With probability at least ``confidence``, all of this holds together: ask as many questions as you like.

    Attributes:
        power: lower bounds of P(S), the true positive rates.
        false: upper bounds of Q(S), the false positive rates.
        confidence: of all bounds together.
        forward: which events are of (P, Q); the others are of (Q, P).
    """

    power: Floats
    false: Floats
    confidence: float
    forward: NDArray[np.bool_]

    def epsilon(self, *, delta: float) -> float:
        """A lower bound of ε at δ: the mechanism is not (ε', δ)-DP for any smaller ε'.

        Args:
            delta: δ in [0, 1).

        Raises:
            PrivcalcError: if δ is out of range.
        """
        left = self.power - errors.delta("delta", delta)
        with np.errstate(divide="ignore"):
            losses = np.where(left > 0, np.log(np.maximum(left, 1e-300)) - np.log(self.false), -np.inf)
        return max(0.0, float(np.max(losses, initial=0.0)))

    def delta(self, *, epsilon: float) -> float:
        """A lower bound of δ(ε), ε ≥ 0."""
        with np.errstate(over="ignore", divide="ignore"):
            false = np.exp(errors.epsilon("epsilon", epsilon) + np.log(self.false))
        return max(0.0, float(np.max(self.power - false, initial=0.0)))

    def advantage(self) -> float:
        """A lower bound of the total variation distance δ(0)."""
        return self.delta(epsilon=0.0)

    def mu(self) -> float:
        """A lower bound of μ: the mechanism is not μ'-GDP for any smaller μ' (Dong, Roth, Su 2022)."""
        some = (self.power > 0) & (self.false < 1)
        separations = ndtri(self.power[some]) - ndtri(self.false[some])
        return max(0.0, float(np.max(separations, initial=0.0)))

    def gaussian_epsilon(self, *, delta: float) -> float:
        """Return the ε at δ that ``mu`` implies *if* both worlds are a Gaussian pair; without that, use ``epsilon``."""
        from privcalc.mechanisms.guarantees import GDP

        mu = self.mu()
        return GDP(mu).epsilon(delta=delta).lower if mu > 0 else 0.0

    def power_at(self, alpha: float) -> float:
        """A lower bound of 1 − β(α): the best true positive rate at false positive rate α, in either order.

        Tests of one order may be mixed at random.
        """
        value = errors.real("alpha", alpha, "a probability in [0, 1]", low=0.0, high=1.0)
        return max(
            float(
                np.interp(
                    value, *_hull(np.append(self.false[order], [0.0, 1.0]), np.append(self.power[order], [0.0, 1.0]))
                )
            )
            for order in (self.forward, ~self.forward)
        )

    def contradicts(self, certified: Enclosure, *, delta: float) -> bool:
        """Return whether this lower bound refutes a certified upper bound of ε at δ."""
        return self.epsilon(delta=delta) > certified.upper


def _hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The upper concave hull of points."""
    kept: list[tuple[float, float]] = []
    for a, b in sorted(zip(x.tolist(), y.tolist(), strict=True)):
        while kept and kept[-1][0] == a:
            kept.pop()
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (a - kept[-2][0]) <= (b - kept[-2][1]) * (
            kept[-1][0] - kept[-2][0]
        ):
            kept.pop()
        kept.append((a, b))
    points = np.array(kept)
    return points[:, 0], points[:, 1]


def from_counts(
    hits: int | Sequence[int],
    trials: int,
    false_hits: int | Sequence[int],
    false_trials: int,
    *,
    confidence: float = 0.95,
) -> Measured:
    """From how often each event was seen in each world; its complement, with the worlds exchanged, is used too.

    The events must have been fixed without looking at the samples that are counted.

    Source: Clopper, Pearson 1934; union bound over all events, both worlds and both directions.

    Args:
        hits: for each event, how often it was seen in the first world.
        trials: samples of the first world.
        false_hits: the same for the second world.
        false_trials: samples of the second world.
        confidence: of all statements together.

    Returns:
        A :class:`Measured`.

    Raises:
        PrivcalcError: if counts are not whole numbers between 0 and the number of samples.

    Example:
        >>> found = from_counts(9_000, 10_000, 1_000, 10_000)
        >>> print(f"{found.epsilon(delta=0.0):.3f} {found.mu():.3f}")
        2.132 2.496
    """
    n, m = errors.count("trials", trials, least=1), errors.count("false_trials", false_trials, least=1)
    k = np.atleast_1d(errors.array("hits", hits))
    j = np.atleast_1d(errors.array("false_hits", false_hits))
    for name, values, most in (("hits", k, n), ("false_hits", j, m)):
        if (
            values.dtype.kind not in "iu"
            or values.ndim != 1
            or values.size == 0
            or values.min() < 0
            or values.max() > most
        ):
            raise PrivcalcError(f"{name} = {values.tolist()!r}: must be whole numbers from 0 to {most}")
    if k.size != j.size:
        raise PrivcalcError(f"false_hits = {j.tolist()!r}: must be as many as hits, {k.size}")
    error = (1 - level(confidence)) / (2 * k.size)
    power, false = at_least(k, n, error), at_most(j, m, error)
    # P(S) ≥ p and Q(S) ≤ q say of the complement that Q(Sᶜ) ≥ 1 − q and P(Sᶜ) ≤ 1 − p: no further error.
    return Measured(
        np.concatenate([power, 1 - false]),
        np.concatenate([false, 1 - power]),
        confidence,
        np.repeat([True, False], k.size),
    )


def level(confidence: float) -> float:
    """Return a confidence in (0, 1)."""
    return errors.real("confidence", confidence, "a number in (0, 1)", low=0.0, high=1.0, open_low=True, open_high=True)
