"""Moments E R^p of complex order of the mean R of t kept lognormals, where R is nearly a constant.

Under the law tilted by e^{zR}, R is in a window but for e^{−TAIL}. There y^p e^{−zy} is a trigonometric sum, by
interpolation at equally spaced y_j, and the mean of e^{(z + iu)R} is a power: so E R^p ≈ Σ_j w_j y_j^p. Proofs:
``proofs/allocation.md``, §8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from privcalc.numerics.faces import Complexes
from privcalc.numerics.floats import QUIET, UNIT, Floats, short
from privcalc.numerics.lognormal_kept import TURN, KeptLognormal
from privcalc.numerics.special import ndtr

TAIL = 40.0
"""−log of the share of the tilted law on either side of the window."""

DIGITS = 44.0
"""−log of what interpolation is off by."""

TILTS = 40
"""So many tilts on either side of 0, half a standard deviation apart."""

SLOPE = 16.0
"""The window's length over the width in which weights fall to 0 beyond it."""

FALL = 6.0
"""Of these widths it is from the window to where the weights are a half: erfc(6) = 2e-17."""

MOST_NODES = 6001
"""Of a grid: a law that needs more is not nearly a constant, and rays serve it."""

_CELLS = 96
"""Parts of the window in each of which a maximum is bounded: more make the bound tighter."""


class Window(NamedTuple):
    """The law tilted by e^{zR}, on a grid of d = y − 1.

    Attributes:
        tilt: z.
        log_mass: log E e^{z(R − 1)}.
        mass_error: a bound on its error.
        low: where the window begins.
        high: where it ends.
        width: w, in which weights fall.
        grid: the nodes.
        weights: what they stand for under the tilted law.
        spread: a bound on the error of each.
        half: N·h/2.
    """

    tilt: float
    log_mass: float
    mass_error: float
    low: float
    high: float
    width: float
    grid: Floats
    weights: Floats
    spread: float
    half: float


class Moments(NamedTuple):
    """E R^{p + iv}, over e^log_scale.

    Attributes:
        values: at each v.
        error: a bound on the error of any.
        log_scale: what they were divided by.
        scale_error: a bound on its error.
    """

    values: Complexes
    error: float
    log_scale: float
    scale_error: float


@dataclass(frozen=True)
class Concentrated:
    """R = (r_1 + … + r_t)/t, r_j = e^{μg − μ²/2} kept with probability e^{−λr_j^q}."""

    mu: float
    steps: int
    log_lost: float

    @cached_property
    def one(self) -> KeptLognormal:
        """One kept lognormal r."""
        return KeptLognormal(self.mu, self.steps, self.log_lost)

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of R."""
        return math.sqrt(math.expm1(self.mu**2) / self.steps)

    @cached_property
    def tilts(self) -> Floats:
        """The real tilts z, multiples of t, shape (2·TILTS + 1,)."""
        unit = self.steps * short(0.5 / (self.deviation * self.steps), 24)  # so that z/t is exact
        return np.asarray(unit * np.arange(-TILTS, TILTS + 1), dtype=np.float64)

    @cached_property
    @QUIET
    def log_masses(self) -> Floats:
        """Upper bounds of log E e^{z(R − 1)} at the tilts."""
        return np.array([self.log_mass(float(z)) for z in self.tilts])

    def log_mass(self, tilt: float, faint: float = 1.0) -> float:
        """An upper bound of log E e^{z(R − 1)}; with ``faint``·λ for λ."""
        value, error = self.one.log_transform(tilt / self.steps, np.zeros(1), faint)
        found = self.steps * float(value[0].real + error[0])
        return found + 8 * UNIT * abs(found) if math.isfinite(found) else math.inf

    @QUIET
    def log_above(self, order: float) -> float:
        """An upper bound of log E R^order, order > 0, with λ as small as where R is turned.

        It holds as y^p is below an exponential.
        """
        found = math.inf
        for share in (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5):
            d = share * order * self.deviation**2
            tilt = order / (1 + d)
            found = min(found, order * math.log1p(d) - tilt * d + self.log_mass(tilt, math.cos(TURN)))
        return found + 1e-12 * (1 + abs(found))

    @QUIET
    def moments(self, order: float, v: Floats) -> Moments:
        """E R^{order + iv}, v ≥ 0.

        Raises:
            OverflowError: if R is not nearly a constant under the law that counts.
        """
        band = float(v.max())
        # A band serves again for smaller ones.
        level = 2.0 ** (math.ceil(2 * math.log2(band * self.deviation)) / 2) / self.deviation if band else 0.0
        at = TILTS + round(2 * order * self.deviation)
        if not 0 <= at <= 2 * TILTS:
            raise OverflowError("the moment is too high")
        found = window(self, at, level)
        logs = np.log1p(found.grid)
        base = np.exp(order * logs - found.tilt * found.grid)
        shape = _shape(found.low, found.high, found.width, found.grid)
        total = float(base @ shape)
        terms = base * shape * found.weights
        values = np.asarray(np.exp(1j * np.multiply.outer(v, logs)) @ terms, dtype=np.complex128)
        units = found.grid.size + 24 + (8 * abs(order) + 6 * band) * np.abs(logs) + 8 * np.abs(found.tilt * found.grid)
        error = float(np.abs(terms) @ units) * UNIT + total * (found.spread + 2 * math.exp(-TAIL))
        error += self._interpolation(found, order, band) + self._outside(found, order)
        return Moments(values, error * (1 + 1e-6), found.log_mass, found.mass_error)

    def _interpolation(self, found: Window, order: float, band: float) -> float:
        """Bound the error of the trigonometric sum in the window, and what weights below 1 leave out."""
        low, high, w, z = found.low, found.high, found.width, found.tilt
        part = 0.5 * float(found.grid[1] - found.grid[0])
        edges = np.linspace(found.grid[0] - part, found.grid[-1] + part, _CELLS + 1)
        h = 2 * found.half / found.grid.size
        # y^p e^{−zy} has one extremum: at p/z.
        inner = np.clip((order / z if z else 1.0) - 1, edges[:-1], edges[1:])
        most = np.max([order * np.log1p(d) - z * d for d in (edges[:-1], edges[1:], inner)], axis=0)
        falls = _shape_above(low, high, w, edges)
        least = 1 + float(edges[0])
        curve = 1 / w**2 + max(order, 0.0) / (2 * least**2)
        beta = math.sqrt(DIGITS / curve)
        rises = float(np.max(np.exp(most + band * beta / (1 + edges[:-1])) * falls))
        log = curve * beta**2 - (found.half * beta + math.log(-0.5 * math.expm1(-2 * found.half * beta)))
        sides = float(np.exp(most[0]) * falls[0] + np.exp(most[-1]) * falls[-1])
        sides *= 2 * max(1.0, math.exp(curve * beta**2 + band * beta / least - found.half * beta))
        sides *= beta * h / (2 * math.pi * math.sin(h * FALL * w))
        inside = np.clip((order / z if z else 1.0) - 1, low, high)
        largest = max(order * math.log1p(d) - z * d for d in (low, high, float(inside)))
        return rises * math.exp(log) / math.sinh(0.5 * h * beta) + sides + math.erfc(FALL) * math.exp(largest)

    @QUIET
    def _outside(self, found: Window, order: float) -> float:
        """E R^p where R is outside the window, over the scale: y^p is below tangents or chords in an exponent."""
        z, logs = self.tilts, self.log_masses
        low, high = math.log1p(found.low), math.log1p(found.high)
        least = 0.5 * (1 + found.low)
        if order > 0:
            right, left = z >= order / (1 + found.high), z <= order / (1 + found.low)
        else:
            right, left = z >= 0, z <= order * math.log(2) / least
        log = [
            float(np.min((order * edge - z * end + logs)[side], initial=math.inf))
            for side, edge, end in ((right, high, found.high), (left, low, found.low))
        ]
        if order < 0:  # and R < least: R^p ≤ least^m R^{p − m}, and R^{−b} ≤ Πr_j^{−b/t}
            # Any b ≥ −p is valid: points close enough to be near the best one.
            b = -order * np.geomspace(1.0, 1e6, 200)
            log.append(float(np.min((b + order) * math.log(least) + 0.5 * self.mu**2 * b * (b / self.steps + 1))))
        return float(np.exp(np.array(log) - found.log_mass).sum()) * (1 + 1e-9)


@lru_cache(maxsize=128)
@QUIET
def window(law: Concentrated, at: int, band: float) -> Window:
    """The law with the tilt of this number, for v up to ``band``."""
    z, logs = law.tilts, law.log_masses
    tilt, steps = float(z[at]), law.steps
    if not math.isfinite(logs[at]):
        raise OverflowError("the tilt is too strong")
    reach = (logs - logs[at] + TAIL) / np.abs(z - tilt)
    low, high = -float(np.min(reach[:at], initial=math.inf)), float(np.min(reach[at + 1 :], initial=math.inf))
    w = (high - low) / SLOPE
    start, end = low - 2 * FALL * w, high + 2 * FALL * w
    if not (start > -0.9 and end < 10):
        raise OverflowError("the mean is no constant")
    curve = 1 / w**2 + (max(tilt, 0.0) + z[-1] - z[-2]) / (2 * (1 + start) ** 2)
    half = band / (1 + start) + 2 * math.sqrt(curve * (DIGITS + 2))
    size = 2 * math.ceil(half * (end - start) / (2 * math.pi)) + 1
    if size > MOST_NODES:
        raise OverflowError("the mean's grid has too many nodes")
    # Multiples of a number of few bits, so that those of h are exact; D = 2π/h is a spacing longer,
    # as nodes are odd multiples.
    unit = short(2 * math.pi * (1 - 1 / size) / ((end - start) * steps))
    h, k = steps * unit, np.asarray(np.arange((size + 1) // 2), dtype=np.float64)
    u = h * k
    log, error = law.one.log_transform(tilt / steps, np.asarray(unit * k, dtype=np.float64))
    log, error = steps * log, steps * error
    log_mass = float(log[0].real)
    spacing = 2 * math.pi / (h * size)
    grid = np.asarray(spacing * (math.floor(start / spacing) + 0.5 + np.arange(size)), dtype=np.float64)
    powers = np.exp(log - log_mass)
    moduli = np.abs(powers)
    phases = np.multiply.outer(grid, u)
    weights = (2 * (np.exp(-1j * phases) @ powers).real - 1) / size
    off = moduli * (
        np.expm1(error) + UNIT * (8 * np.abs(log) + 8 * abs(log_mass) + size + 16 + 8 * u * np.abs(grid).max())
    )
    spread = 2 * float(off.sum()) / size
    if not math.isfinite(spread):
        raise OverflowError("the tilt is too strong")
    mass_error = float(error[0]) + 8 * UNIT * abs(log_mass)
    return Window(tilt, log_mass, mass_error, low, high, w, grid, weights, spread, 0.5 * size * h)


def _shape(low: float, high: float, width: float, d: Floats) -> Floats:
    """Return the factor on y^p e^{−zy}: nearly 1 in the window, nearly 0 twice as far from it as it is a half."""
    root = math.sqrt(2)
    rise, fall = (d - low) / width + FALL, (d - high) / width - FALL
    left, right = ndtr(root * rise) - ndtr(root * fall), ndtr(-root * fall) - ndtr(-root * rise)
    return np.asarray(np.where(d < 0.5 * (low + high), left, right))


def _shape_above(low: float, high: float, width: float, edges: Floats) -> Floats:
    """Upper bounds of it on cells."""
    root = math.sqrt(2)
    rise, fall = (edges[1:] - low) / width + FALL, (edges[:-1] - high) / width - FALL
    return np.asarray(np.minimum(ndtr(root * rise), ndtr(-root * fall)), dtype=np.float64)
