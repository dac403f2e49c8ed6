"""Time values of one pair on the lattice, above and below the truth, and their transform (``proofs/lattice.md``)."""

from __future__ import annotations

import math

import numpy as np

from privcalc.numerics.elementary import expm1
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Complexes, Profile, RealValues
from privcalc.numerics.log_moment import slope_error
from privcalc.numerics.routes.minorant import SMALL, convexified, end_index, minorant, vague
from privcalc.numerics.routes.route import RouteFailed

FFT_UNIT = 16 * UNIT
"""Rounding per level of a fast Fourier transform, relative to the sum of absolute values.

A level is a butterfly and a twiddle factor.
"""


def kernel_at(s: Complexes, spacing: float) -> Complexes:
    """κ(s)."""
    return np.asarray(expm1(spacing * (s + 1)) * -expm1(-spacing * s) / math.expm1(spacing), dtype=np.complex128)


class Cells:
    """Time values of one pair on the lattice, and what is cut off at both ends.

    For ε < 0 they are those of the reverse pair, e^{|ε|} times the pair's own.
    """

    def __init__(self, pair: Profile, c: float, spacing: float, log_small: float, count: int) -> None:
        start = float(pair.profile(np.zeros(1)).delta[0])
        scale = math.log(start) - math.log(count) - 40
        right = end_index(pair, spacing, lambda e, log_h: log_h <= log_small and log_h + c * e <= scale)
        left = end_index(pair.reverse, spacing, lambda e, log_h: log_h - (1 + c) * e <= scale)
        if right + left > 3_000_000:
            raise RouteFailed("the lattice would need too many points")
        self.index = np.arange(-left, right + 1)
        self.epsilon = np.asarray(spacing * self.index, dtype=np.float64)
        self.c, self.spacing = c, spacing
        h, tail, h_error = pair.profile(self.epsilon[left:])
        g, g_tail, g_error = pair.reverse.profile(-self.epsilon[left::-1])
        # Of lines below the profile (``proofs/tails.md``): the value at 0, slopes on the left,
        # how far slopes may be off.
        least = min(float(h[0] - h_error[0]), float(g[0] - g_error[0]))
        mass, blur, g_blur = g - g_error + g_tail, slope_error(h, tail, h_error), slope_error(g, g_tail, g_error)
        g[0], g_error[0] = h[0], h_error[0]
        low_h, low_g = h - h_error, g - g_error
        if not pair.convex or vague((h, h_error), (g, g_error)):
            # The truth is convex and below the bound at the points, so it is below the minorant of these.
            (h, h_error), (g, g_error) = convexified((h, h_error), (g, g_error), spacing)
        self.upper, self.error = _whole(h, g), _whole(h_error + 4 * UNIT * h, g_error + 4 * UNIT * g)
        self.mass_beyond = float(h[-1] + h_error[-1])
        self.log_scale = max(float(np.max(self._exponent(c) + np.log(np.maximum(self.upper, SMALL)))) - 600, 0.0)
        # Lowered by a quarter of width × slope change of the cells on both sides (left of 0 in the reverse pair's
        # scale). Where the pair is only a bound, so that no lower law exists,
        # this is no more than an estimate of the width.
        low_h[0] = low_g[0] = min(least, float(low_h[0]))
        shrink, quarter = math.exp(-spacing), 0.25 * math.expm1(spacing) * (1 + 1e-12)
        r = quarter * (np.maximum(tail[:-1] - shrink * tail[1:], 0.0) + blur[:-1] + shrink * blur[1:])
        s = quarter * (np.maximum(mass[:-1] - mass[1:], 0.0) + g_blur[:-1] + g_blur[1:] + 4 * UNIT * mass[:-1])
        low_h -= np.maximum(np.append(r, 0.0), np.append(shrink * s[0], r)) + 8 * UNIT * h
        low_g -= np.maximum(np.append(shrink * s, 0.0), np.append(r[0], s)) + 8 * UNIT * g
        lowered = (_cut(low_h, low_g[1]), _cut(low_g, low_h[1]))
        hull = minorant(lowered, spacing)
        factor = hull.below(lowered)
        self.lower = _whole(hull.values[0], hull.values[1]) * factor
        self.lower_error = (hull.rounding + 2 * UNIT) * self.lower

    def _exponent(self, c: float) -> Floats:
        """What the values are multiplied by is e^{this}."""
        return np.asarray(c * self.epsilon + np.minimum(self.epsilon, 0.0), dtype=np.float64)

    def transform(self, w: Floats, w_error: Floats, kernel: Complexes, size: int) -> tuple[Complexes, Floats]:
        """(M(s_k) − 1)·e^{−log_scale} and its error: fold the tilted values into one period, and transform."""
        exponent = self._exponent(self.c)
        tilt = np.exp(exponent - self.log_scale)
        terms = w * tilt
        blur = 4 + 4 * (1 + self.c) * np.abs(self.epsilon) + 2 * self.log_scale
        noise = float(np.sum(tilt * (w_error + UNIT * w * blur))) + self._ends(self.c, self.log_scale)
        folded = np.bincount(self.index % size, weights=terms, minlength=size)
        folds = self.index.size // size + 2
        total = float(np.sum(terms))
        spectrum = np.conj(np.fft.rfft(folded))
        error = np.abs(kernel) * (noise + total * (FFT_UNIT * math.log2(size) + (folds + 16) * UNIT)) * (1 + 1e-9)
        change = kernel * spectrum
        return change, error + 16 * UNIT * np.abs(change)

    def _ends(self, c: float, shift: float) -> float:
        """The two sums left out, Σ_{i<L} w_L e^{ε_i − ε_L} e^{cε_i} and δ(∞) Σ_{i≤R} e^{cε_i}.

        See ``proofs/lattice.md``, §5.
        """
        left = self.upper[0] * np.exp((1 + c) * self.epsilon[0] - shift) / np.expm1(self.spacing * (c + 1))
        right = self.mass_beyond * np.exp(c * self.epsilon[-1] - shift) / -np.expm1(-self.spacing * c)
        return float(left + right) * (1 + 1e-9)

    def log_real(self, c: Floats) -> RealValues:
        """An upper bound of K of the upper law at real points (its error is already in it)."""
        terms = (self.upper + self.error) * np.exp(np.minimum(self.epsilon, 0.0)) + 1e-300
        value = np.empty_like(c)
        for i, x in enumerate(c.tolist()):
            shift = max(x * float(self.epsilon[-1]) - 600, 0.0)
            exponent = x * self.epsilon
            exponent -= shift
            total = float(np.exp(exponent, out=exponent) @ terms)
            total *= 1 + UNIT * (self.index.size + 64 + 4 * (1 + x) * float(np.abs(self.epsilon).max()) + shift)
            kernel = np.expm1(self.spacing * (x + 1)) * -np.expm1(-self.spacing * x) / math.expm1(self.spacing)
            value[i] = shift + np.log1p(kernel * (total + self._ends(x, shift)) + math.expm1(-shift))
        return RealValues(np.where(np.isfinite(value), value, math.inf), 16 * UNIT * (1 + np.abs(value)))


def _whole(right: Floats, left: Floats) -> Floats:
    """Both sides in one array."""
    return np.concatenate([left[:0:-1], right])


def _cut(low: Floats, across: float) -> Floats:
    """0 from the last point before the first that is not positive: raising one end might lift a segment above h."""
    positive = low > SMALL
    positive[-1] = False
    first = int(np.argmin(positive))
    cut = low.copy()
    cut[max(first - 1, 0) if across > SMALL else 0 :] = 0.0
    return cut
