"""Laws of a loss on equally spaced atoms: sums of independent draws, and their profiles, without cancellation.

Everything is a sum of terms ≥ 0, so every number keeps its relative precision; what falls below the range of doubles is
counted in ``missing``. Rounding constants: ``proofs/randomized_response.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues

_CUT = 1e-307
"""Masses below this are left out of convolutions: subnormal numbers are slow."""


@dataclass(frozen=True, eq=False)
class Masses:
    """Masses at first, first + 1, …: each within a relative error, and all but ``missing`` of the law."""

    first: float
    values: Floats
    relative: float
    missing: float


def lost_tails(half: float) -> float:
    """What a log-concave law with masses down to ``half`` steps from its mode has below 2.3e-308.

    Where the mass, relative to the mode, has fallen by e^{−708} in d steps, it falls by e^{−708/d} in every later one.
    """
    return 4.6e-308 * (1 + half / 708)


def binomial(p: float, odds: float, count: int) -> Masses:
    """Bin(count, p) by ratios outward from the mode; ``odds`` = p/(1 − p) to within 8 units.

    One ratio, with its product, is off by 11 units. Beyond 19√n of the mean is at most 2e^{−722} (Hoeffding 1963,
    Theorem 1).
    """
    mode = min(int((count + 1) * p), count)
    width = int(19 * math.sqrt(count)) + 4
    b = np.arange(mode, min(mode + width, count), dtype=np.float64)
    with np.errstate(under="ignore"):
        above = np.cumprod((count - b) / (b + 1) * odds)
        b = np.arange(mode, max(mode - width, 0), -1, dtype=np.float64)
        below = np.cumprod(b / (count - b + 1) / odds)
    above, below = above[above > 0], below[below > 0]
    weights = np.concatenate((below[::-1], [1.0], above))
    total = float(weights.sum())
    distance = np.abs(np.arange(weights.size) - below.size)
    steps = float(distance.max()) + float(distance @ weights) / total * (1 + 1e-9)
    missing = 1e-312 + lost_tails(float(distance.max()))
    return Masses(mode - below.size, weights / total, (12 * steps + 80) * UNIT, missing)


def power(base: Masses, count: int) -> Masses:
    """The sum of ``count`` independent draws, by squaring; each convolution is a sum of products ≥ 0."""
    law = base
    for bit in bin(count)[3:]:
        law = _add(law, law)
        if bit == "1":
            law = _add(law, base)
    return law


def _add(a: Masses, b: Masses) -> Masses:
    """The sum of two independent draws; trimmed where the masses fall below the cut."""
    with np.errstate(under="ignore"):
        values = np.convolve(a.values, b.values)
    kept = np.flatnonzero(values > _CUT)
    low, high = int(kept[0]), int(kept[-1]) + 1
    terms = min(a.values.size, b.values.size)
    # Products that underflow lose at most 5e-324 each.
    lost = float(values[:low].sum() + values[high:].sum()) * (1 + 1e-6) + 5e-324 * (a.values.size * b.values.size)
    relative = (1 + a.relative) * (1 + b.relative) * (1 + (terms + 2) * UNIT) - 1
    return Masses(a.first + b.first + low, values[low:high], relative + 2 * UNIT, a.missing + b.missing + lost)


def decayed_sums(values: Floats, step: float) -> Floats:
    """Σ_{b ≥ j} values_b e^{−step·(b − j)} for every j, by doubling: the rounding grows with log₂ of the size."""
    total = values.copy()
    span = 1
    with np.errstate(under="ignore"):
        while span < total.size and (decay := math.exp(-step * span)) > 0:
            total[:-span] += decay * total[span:]
            span *= 2
    return total


class AtomLaw:
    """A loss L = offset + step·index whose index has the given masses under P.

    With T_j = Σ_{b ≥ j} p_b e^{ℓ_j − ℓ_b}, D_j = Σ_{b ≥ j} p_b (1 − e^{ℓ_j − ℓ_b}) = (1 − e^{−step}) Σ_{i > j} T_i, and
    ℓ_j the first loss above ε: δ(ε) = D_j + (1 − e^{ε − ℓ_j})·T_j and e^ε Q(L > ε) = e^{ε − ℓ_j}·T_j.
    """

    def __init__(self, masses: Masses, step: float, offset: float) -> None:
        values = self.masses = masses.values
        index = np.arange(masses.first, masses.first + values.size, dtype=np.float64)
        self.losses = step * index + offset
        self.tails = decayed_sums(values, step)
        self.heads = np.append(-math.expm1(-step) * decayed_sums(self.tails[1:], 0.0), 0.0)
        # The step is off by 5 units, which e^{−x}, x ≤ 745, sees as 3725; each doubling rounds three times,
        # in both sums.
        self.mass_error = masses.relative
        self.relative = masses.relative + (3800 + 6 * (values.size.bit_length() + 1)) * UNIT
        self.missing = masses.missing + TINY
        self.slack = 8 * UNIT * (np.abs(step * index) + abs(offset))

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The profile of the atoms (``Pair.profile``).

        Losses are off by ``slack``, which moves δ by slack·e^ε Q(L ≥ ε), and the slope by slack.
        """
        j = np.searchsorted(self.losses, epsilon, side="right")
        inside = j < self.losses.size
        j = np.minimum(j, self.losses.size - 1)
        x = np.minimum(epsilon - self.losses[j], 0.0)
        with np.errstate(under="ignore"):
            tail = np.where(inside, np.exp(x) * self.tails[j], 0.0)
            delta = np.where(inside, self.heads[j] - np.expm1(x) * self.tails[j], 0.0)
        below = np.maximum(np.where(inside, j, self.losses.size) - 1, 0)  # it may lie above ε in truth
        near = np.abs(epsilon - self.losses[below]) <= self.slack[below]
        share = np.where(tail > 0, delta, 0.0)  # e/δ covers what the slope is off by, relative to it
        moved = 2 * self.slack[j] * (tail + share) + np.where(near, self.slack[below] * self.tails[below], 0.0)
        return ProfileValues(delta, tail, self.relative * delta + moved + self.missing)
