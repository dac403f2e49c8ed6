"""How many trials to make, exactly: whole numbers by coins and whole numbers alone (``proofs/tuning.md``, §7)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privcalc.noise.source import Noise

__all__ = ["finite", "geometric", "logarithmic", "negative_binomial", "poisson"]

TOGETHER = 64
"""Coins that are tossed at once."""

_STEEP = 1 / 64
"""Below minus that, η has a way of its own: of the other, the fewer attempts come to an end the closer η is to −1."""


def poisson(noise: Noise, mean: float) -> int:
    """Draw K with P(K = k) = e^{−mean}·mean^k/k!.

    It is the sum of ⌊mean⌋ numbers of mean 1, and of one more of which each unit is kept by a coin.
    """
    whole = math.floor(mean)
    rest = noise.coins(_poisson_of_one(noise), mean - whole) if mean > whole else ()
    return sum(_poisson_of_one(noise) for _ in range(whole)) + sum(map(int, rest))


def _poisson_of_one(noise: Noise) -> int:
    """Mean 1, from uniform whole numbers (Duchon, Duvignau 2016, Algorithm 1)."""
    bound, seen, found = 1, 0, 1
    while True:
        place = int(noise.numbers(1, bound + 1)[0]) + 1
        if place == bound + 1:
            found += 1
        elif place > seen:
            found, seen = found - 1, bound + 1
        else:
            return found
        bound += 1


def geometric(noise: Noise, gamma: float) -> int:
    """K ≥ 1 with P(K = k) = γ(1 − γ)^{k − 1}: the first coin that shows True with probability γ."""
    before = 0
    while True:
        tossed = noise.coins(TOGETHER, gamma)
        if tossed.any():
            return before + int(tossed.argmax()) + 1
        before += TOGETHER


def logarithmic(noise: Noise, gamma: float) -> int:
    """K ≥ 1 with P(K = k) ∝ (1 − γ)^k/k: a geometric number k, kept with probability 1/k."""
    while noise.numbers(1, found := geometric(noise, gamma))[0]:
        pass
    return found


def negative_binomial(noise: Noise, eta: float, gamma: float) -> int:
    """K ≥ 1 with P(K = k) ∝ (1 − γ)^k·Γ(k + η)/k!, η > −1; takes about E[K] coins, or E[K]·η."""
    if gamma == 1:
        return 1
    if eta == 1:
        return geometric(noise, gamma)
    if eta == 0:
        return logarithmic(noise, gamma)
    if eta < -_STEEP:
        return _tilted(noise, -eta, gamma)
    if eta < 1:
        return _thinned(noise, eta, gamma, 1)
    often = eta * -math.log(gamma) > math.log(2)  # K = 0 is, without truncation, the exception
    whole = math.floor(eta)
    while True:
        if often:
            if found := _untruncated(noise, whole, eta - whole, gamma):
                return found
        elif noise.numbers(1, found := 1 + _untruncated(noise, whole + 1, eta - whole, gamma))[0] == 0:
            return found


def _untruncated(noise: Noise, whole: int, rest: float, gamma: float) -> int:
    """K ≥ 0 of η = whole + rest: what comes before so many successes, and part of one."""
    before = sum(geometric(noise, gamma) - 1 for _ in range(whole))
    return before + (_thinned(noise, rest, gamma, 0) if rest else 0)


def _thinned(noise: Noise, eta: float, gamma: float, least: int) -> int:
    """Draw K ≥ ``least`` (0 or 1): coins of γ until one shows True.

    This is begun anew unless each step l is kept, with (l + η)/(l + 1).
    """
    found = least
    while not noise.coins(1, gamma)[0]:
        found = found + 1 if _kept(noise, found, eta) else least
    return found


def _kept(noise: Noise, step: int, eta: float) -> bool:
    place = int(noise.numbers(1, step + 1)[0])
    if eta >= 0:
        return place < step or bool(noise.coins(1, eta)[0])
    return place < step - 1 or (place == step - 1 and not noise.coins(1, -eta)[0])


def _tilted(noise: Noise, h: float, gamma: float) -> int:
    """η = −h: the first success of probability h/k at attempt k, begun anew once a coin of γ shows True before."""
    found = 1
    while noise.numbers(1, found)[0] or not noise.coins(1, h)[0]:
        found = 1 if noise.coins(1, gamma)[0] else found + 1
    return found


def finite(noise: Noise, masses: Sequence[float]) -> int:
    """K with P(K = k) ∝ masses[k] ≤ 1, the doubles as they are: one of all, kept with the probability masses[k]."""
    while not noise.coins(1, masses[found := int(noise.numbers(1, len(masses))[0])])[0]:
        pass
    return found
