"""Adaptive choices by brute force: every strategy on a coarse grid, from below and, with what lies between, from above.

Nothing is searched: what the engine shows about the best line (``proofs/choices.md``, §2) is not used. Losses that are
hardly reached are taken from a bound of their probability, which zCDP gives.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORK, MOST_WORK = 1e8, 1e9
"""Products one table may cost, about a second for the second 10⁹: where it is as fine as it may be, and as coarse."""

FINEST, COARSEST = 300, 30
"""Lattice points per range."""

RARE = 55.0
"""−log of the probability beyond which losses are not followed."""


@dataclass(frozen=True, eq=False)
class _Table:
    """Bounds of V on the points of a lattice around 0: ``size`` points on either side."""

    spacing: float
    size: int
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    beyond: float
    """V is at most this to the right of all points."""


def choices_delta(a: float, count: int, epsilon: float) -> tuple[float, float]:
    """Both bounds of δ(ε) of ``count`` adaptive choices of range a, to about 1/m² of ε with m points per range.

    Args:
        a: the range of the loss of one choice, in (0, 8].
        count: how many.
        epsilon: ε ≥ 0; another one of the same choices costs nothing more.

    Raises:
        ArithmeticError: if the grid would be too coarse, or a is too large for plain sums.

    Example:
        >>> low, high = choices_delta(1.0, 2, 0.5)
        >>> print(low <= 0.15245191 <= high)
        True
    """
    if not 0 < a <= 8 or not epsilon >= 0:
        raise ArithmeticError("too large choices for plain sums")
    if epsilon >= count * a:
        return 0.0, 0.0
    table = _play(a, count)
    if epsilon >= (table.size - 1) * table.spacing:
        return 0.0, table.beyond
    i = math.floor(epsilon / table.spacing)
    share, j = math.expm1(epsilon - i * table.spacing) / math.expm1(table.spacing), i + table.size
    # From below: the value at the next point, as δ falls; rounding is far below 1e-9 of these sums.
    noise, high = 1e-13 * count, table.high
    above = high[j] + share * (high[j + 1] - high[j])
    return max(float(table.low[j + 1]) * (1 - 1e-9) - noise, 0.0), float(above) * (1 + 1e-9) + noise


@functools.lru_cache(maxsize=4)
def _play(a: float, count: int) -> _Table:
    """V after all choices."""
    rho = count * min(a * a / 8, a * math.tanh(a / 2))
    far = (rho + 2 * math.sqrt(RARE * rho)) / a
    reach, beyond = (
        (count, 0.0) if far >= count else (math.ceil(far), math.exp(-RARE) * (1 + 1e-9))
    )  # δ ≤ e^{−(ε − ρ)²/4ρ}
    price = 2.0 * count * (reach + 1)
    m = int(min(max(math.sqrt(WORK / price), COARSEST), FINEST))
    if m * m * price > MOST_WORK or (reach + 1) * a > 700:
        raise ArithmeticError("too many choices for all lines of a grid, or too large ones for plain sums")
    h, size = a / m, (reach + 1) * m
    z = np.exp(h * np.arange(-size, size + 1))
    low = np.maximum(1 - z, 0.0)
    high = low + beyond * np.minimum(z, 1.0)  # V(−x) = 1 − e^{−x}(1 − V(x)); kept within one range of the ends
    up = np.expm1(h * np.arange(m + 1) - a) / math.expm1(-a)
    length = z.size - 2 * m
    above, part = np.empty(length), np.empty(length)
    for _ in range(count):
        # Secants between the chords of two cells exceed those at the cells' ends by at most this.
        fall = np.append(high[:-1] - high[1:], 0.0)
        more = math.expm1(h) / (4 * -math.expm1(-a)) * np.maximum(fall[:-m] - math.exp(-a) * fall[m:], 0.0)
        both = np.append(more[:1], np.maximum(more[1:], more[:-1]))
        best_low, best_high = low.copy(), high.copy()
        for t in range(m + 1):
            y, ends = slice(m - t, m - t + length), slice(2 * m - t, 2 * m - t + length)
            for values, best, lift in ((low, best_low, None), (high, best_high, both if t < m else more)):
                np.multiply(values[y], up[t], out=above)
                np.multiply(values[ends], 1 - up[t], out=part)
                above += part
                if lift is not None:
                    above += lift[y]
                np.maximum(best[m:-m], above, out=best[m:-m])
        low, high = best_low, best_high
    return _Table(h, size, low, high, beyond)
