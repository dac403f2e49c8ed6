"""Adaptive choices again, by brute force: every strategy on a coarse grid, from below and, with what lies between, from above.

Nothing is searched and nothing is cut off: what the engine shows about the best line (``proofs/choices.md``, §2) is not used.
"""

from __future__ import annotations

import math

import numpy as np

WORK = 4e7
"""Products that one table may cost."""


def choices_delta(a: float, count: int, epsilon: float) -> tuple[float, float]:
    """Lower and upper bounds of δ(ε) of ``count`` adaptive choices of range a, to about 1/m² of ε.

    Args:
        a: the range of the loss of one choice, in (0, 8].
        count: how many.
        epsilon: ε ≥ 0.

    Raises:
        ArithmeticError: if the grid would be too coarse, or a is too large for plain sums.

    Example:
        >>> low, high = choices_delta(1.0, 2, 0.5)
        >>> print(low <= 0.15245191 <= high)
        True
    """
    m = int(min(math.sqrt(WORK) / count, 300))
    if m < 30 or not 0 < a <= 8 or not epsilon >= 0:
        raise ArithmeticError("too many choices, or too large ones, for all lines of a grid")
    if epsilon >= count * a:
        return 0.0, 0.0
    h, size = a / m, (count + 1) * m
    z = np.exp(h * np.arange(-size, size + 1))
    high = np.maximum(1 - z, 0.0)
    low = high.copy()
    up = np.expm1(h * np.arange(m + 1) - a) / math.expm1(-a)
    for _ in range(count):
        fall = np.append(high[:-1] - high[1:], 0.0)
        # Secants between the chords of two cells exceed those at the cells' ends by at most this.
        more = math.expm1(h) / (4 * -math.expm1(-a)) * np.maximum(fall[:-m] - math.exp(-a) * fall[m:], 0.0)
        best_low, best_high = low.copy(), high.copy()
        for t in range(m + 1):
            y = slice(m - t, 2 * size + 1 - m - t)
            ends = slice(2 * m - t, 2 * size + 1 - t)
            above = up[t] * high[y] + (1 - up[t]) * high[ends]
            above += np.maximum(more[m - t : m - t + above.size], more[max(m - t - 1, 0) : max(m - t - 1, 0) + above.size])
            best_high[m:-m] = np.maximum(best_high[m:-m], above)
            best_low[m:-m] = np.maximum(best_low[m:-m], up[t] * low[y] + (1 - up[t]) * low[ends])
        low, high = best_low, best_high
    j = min(math.floor(epsilon / h), count * m - 1) + size
    share = (math.exp(epsilon) - z[j]) / (z[j + 1] - z[j])
    # From below: the value at the next point, as δ falls; rounding is far below 1e-9 of these sums.
    noise = 1e-13 * count
    return max(low[j + 1] * (1 - 1e-9) - noise, 0.0), (high[j] + share * (high[j + 1] - high[j])) * (1 + 1e-9) + noise
