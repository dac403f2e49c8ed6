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

from privcalc.numerics.elementary import log1p
from privcalc.numerics.floats import QUIET, UNIT, Complexes, Floats, short
from privcalc.numerics.lognormal import CELLS, REACH, LogTransform, second
from privcalc.numerics.special import log_ndtr, ndtr

RULE_DIGITS = 40.0
"""−log of the rule's error after it was taken t times."""

SHARE = 0.7
"""q as a share of that for which the place where r fades is nearest.

With a smaller one the strip is wider and the place farther.
"""

TURN = 1.3
"""q times the angle by which r may turn: r^q stays in the right half plane."""

GONE = 120.0
"""λr^q where the rule ends."""


class Rule(NamedTuple):
    """A trapezoid rule on the real line.

    Attributes:
        step: between the nodes.
        x: the nodes.
        r: there.
        less: r − 1.
        log_weights: log of the density times the step; weights themselves may underflow where e^{ζr} is large.
        fade: λr^q.
    """

    step: float
    x: Floats
    r: Floats
    less: Floats
    log_weights: Floats
    fade: Floats


@dataclass(frozen=True)
class KeptLognormal:
    """One of ``number`` that are kept together but for e^{log_lost} at most.

    That is so also if one of them has its mean at e^{μ²}.
    """

    mu: float
    number: int
    log_lost: float

    @cached_property
    def power(self) -> float:
        """The q, about √(2·log(number) − 2·log_lost)/μ."""
        return SHARE * math.sqrt(2 * (math.log(self.number) - self.log_lost)) / self.mu

    @cached_property
    def log_rate(self) -> float:
        """Log λ: number·λ·E r^{q + 1} = number·λ·e^{q(q + 1)μ²/2} is what is lost at most."""
        q = self.power
        return self.log_lost - math.log(self.number) - 0.5 * q * (q + 1) * self.mu**2 - 1e-12 * (1 + q * q * self.mu**2)

    @cached_property
    def turn(self) -> float:
        """By which angle r may turn."""
        return TURN / self.power

    def _rule(self, real: float) -> Rule:
        mu, q = self.mu, self.power
        step = short(2 * math.pi * (self.turn / mu) / (RULE_DIGITS + math.log(self.number)))  # the nodes are exact
        last = ((math.log(GONE) - self.log_rate) / q + 0.5 * mu * mu) / mu
        first = REACH + mu * max(-real, 0.0)
        x = np.asarray(step * np.arange(math.floor(-first / step), math.ceil(last / step) + 1), dtype=np.float64)
        log = mu * x - 0.5 * mu * mu
        log_weights = np.asarray(math.log(step / math.sqrt(2 * math.pi)) - 0.5 * x * x, dtype=np.float64)
        return Rule(
            step, x, np.exp(log), np.expm1(log), log_weights, np.exp(np.minimum(self.log_rate + q * log, 300.0))
        )

    @QUIET
    def log_transform(self, real: float, imag: Floats, faint: float = 1.0) -> LogTransform:
        """Log φ at points ζ = real + i·imag, with ``faint``·λ for λ, cos(TURN) ≤ faint ≤ 1."""
        rule = self._rule(real)
        fade = faint * rule.fade
        zeta = np.asarray(real + 1j * imag, dtype=np.complex128)
        less_one = np.empty(zeta.size, dtype=np.complex128)
        weights, log_kept = np.exp(rule.log_weights), rule.log_weights - fade
        kept, leaves = np.exp(-fade) * weights, -np.expm1(-fade) * weights
        near = rule.fade < 0.5
        rows = max(1, CELLS // rule.x.size)
        for at in range(0, zeta.size, rows):
            z = np.multiply.outer(zeta[at : at + rows], rule.less)
            # e^z·kept − 1 − z, whose mean is φ − 1: from e^z − 1 − z where nearly all is kept and z is small.
            terms = np.exp(z + log_kept) - (1 + z) * weights
            i, j = np.nonzero(near & (np.abs(z) < 0.5))
            terms[i, j] = second(-z[i, j]) * kept[j] - (1 + z[i, j]) * leaves[j]
            less_one[at : at + rows] = np.sum(terms, axis=1)
        off = self._errors(rule, fade, real, np.abs(zeta), float(np.max(np.abs(imag))))
        share = off / np.abs(1 + less_one)
        known = share < 0.5
        # Where φ has no digits left it counts as a number that is larger, and off by thrice itself.
        value = np.where(known, log1p(less_one), np.log(3 * off))
        error = np.where(known, -np.log1p(-np.minimum(share, 0.5)), math.log(3)) + 4 * UNIT * np.abs(value)
        return LogTransform(value, error)

    def _errors(self, rule: Rule, fade: Floats, real: float, size: Floats, largest: float) -> Floats:
        """Bounds of what the mean of e^z·kept − 1 − z is off by."""
        mu, q, faint = self.mu, self.power, float(fade[-1] / rule.fade[-1])
        x, r, less = rule.x, rule.r, np.abs(rule.less)
        leaves = -np.expm1(-fade) * np.exp(rule.log_weights)
        # m ≥ |e^z|, times what is kept: |e^z − 1 − z| ≤ ½|z|²m.
        grown = np.exp(np.maximum(real * rule.less, 0.0) + rule.log_weights - fade)
        units, moved = x * x + 100, 6 * less + 3 * r * (mu * np.abs(x) + mu * mu)
        twice = float(grown @ (0.5 * less * less * units + less * moved))
        once = float(leaves @ (less * units + moved))
        plain = float(leaves @ units + grown @ (fade * (q * 3 * (mu * np.abs(x) + mu * mu) + 8)))
        rounding = UNIT * (twice * size**2 + once * size + plain)
        # The rule: on Im x = ±a, r turned by ±θ, |e^{ζr}| ≤ e^{νr}.
        a, theta = self.turn / mu, self.turn
        nu = real * math.cos(theta) + largest * math.sin(theta)
        fainter = faint * rule.fade * math.cos(TURN)
        cells = np.maximum(nu * r[1:], nu * r[:-1]) - real - fainter[:-1]
        mass = float(np.sum(np.exp(cells + np.maximum(rule.log_weights[1:], rule.log_weights[:-1]))))
        mass += self._ends(rule, real, nu, fainter)
        rule_error = 2 * math.exp(0.5 * a * a) * (mass + 1 + 2 * size) / math.expm1(2 * math.pi * a / rule.step)
        ends = float(ndtr(rule.x[0] + rule.step)) * (1 + size)
        ends += float(ndtr(rule.step - x[-1])) * (1 + size) + float(ndtr(rule.step - x[-1] + mu)) * size
        return np.asarray(
            rounding + (rule_error + ends + self._ends(rule, real, real, fade)) * (1 + 1e-9), dtype=np.float64
        )

    def _ends(self, rule: Rule, real: float, nu: float, fade: Floats) -> float:
        """A bound of the integral of the density times e^{νr − real − fade} beyond the last nodes but one."""
        mu, less, last = self.mu, max(-real, 0.0), float(rule.r[-1])
        if float(fade[-2]) * self.power < max(nu, 0.0) * last:  # it still rises
            return math.inf
        # On the left r ≤ 1, and 1 − r ≤ μ²/2 − μx.
        left = 0.5 * less * mu * mu * (1 + less) + max(nu - real, 0.0)
        right = max(nu * last, nu * float(rule.r[-2])) - real - float(fade[-2])
        low, high = float(log_ndtr(rule.x[0] + rule.step + less * mu)), float(log_ndtr(rule.step - rule.x[-1]))
        return math.exp(left + low) + math.exp(right + high) if max(left + low, right + high) < 700 else math.inf


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
        log_mass = self.steps * float(value[0].real + error[0])
        return log_mass + 8 * UNIT * abs(log_mass) if math.isfinite(log_mass) else math.inf

    @QUIET
    def log_above(self, order: float) -> float:
        """An upper bound of log E R^order, order > 0, with λ as small as where R is turned.

        It holds as y^p is below an exponential.
        """
        least = math.inf
        for share in (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5):
            d = share * order * self.deviation**2
            tilt = order / (1 + d)
            least = min(least, order * math.log1p(d) - tilt * d + self.log_mass(tilt, math.cos(TURN)))
        return least + 1e-12 * (1 + abs(least))

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
        law = window(self, at, level)
        logs = np.log1p(law.grid)
        base = np.exp(order * logs - law.tilt * law.grid)
        shape = _shape(law.low, law.high, law.width, law.grid)
        total = float(base @ shape)
        terms = base * shape * law.weights
        values = np.asarray(np.exp(1j * np.multiply.outer(v, logs)) @ terms, dtype=np.complex128)
        units = law.grid.size + 24 + (8 * abs(order) + 6 * band) * np.abs(logs) + 8 * np.abs(law.tilt * law.grid)
        error = float(np.abs(terms) @ units) * UNIT + total * (law.spread + 2 * math.exp(-TAIL))
        error += self._interpolation(law, order, band) + self._outside(law, order)
        return Moments(values, error * (1 + 1e-6), law.log_mass, law.mass_error)

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
