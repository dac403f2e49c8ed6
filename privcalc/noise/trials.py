"""How many trials to make, exactly: whole numbers by coins and whole numbers alone (``proofs/tuning.md``, §7)."""

from __future__ import annotations

import math

from privcalc.noise.source import Noise

__all__ = ["geometric", "logarithmic", "poisson"]

TOGETHER = 64
"""Coins that are tossed at once."""


def poisson(noise: Noise, mean: float) -> int:
    """K with P(K = k) = e^{−mean}·mean^k/k!: ⌊mean⌋ numbers of mean 1, and one more of which each unit is kept by a coin."""
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
