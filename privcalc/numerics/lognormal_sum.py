"""The deviation of a sum S of n independent lognormal r = e^{μg − μ²/2} from its mean n.

Its law is found by inversion of a Laplace transform.

With ψ(s) = E e^{−s(r − 1)}, any c > 0 and K = n + k,

    E(K − S)_+ = (1/2πi) ∫_{Re s = c} e^{sk} ψ(s)^n s^{−2} ds ≈ (h/π) Re Σ'_j e^{s_j k} ψ(s_j)^n s_j^{−2},

s_j = c + ijh, and Pr(S < K) with s^{−1}. The sum is Σ_m e^{−cmD} E(K + mD − S)_+, D = 2π/h. Every error is
bounded: ``proofs/allocation.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcalc.numerics.elementary import expm1
from privcalc.numerics.floats import QUIET, TINY, UNIT, Complexes, Floats
from privcalc.numerics.lognormal import Lognormal
from privcalc.numerics.special import gammaln, ndtr

SMALL = 38.0
"""−log of the share that aliasing and truncation may add."""

MOST_MOMENTS = 64
"""The highest moment of S that bounds its right tail."""

_MOST_CELLS = 6_000_000
"""(Point, node) pairs up to which a line is affordable."""

_MOST_BLOCKS = 300
"""Lines of one law; beyond them only bounds are known."""


class Deviation(NamedTuple):
    """The expected excess of S over n + k and the tail, at points k, every entry of their shape.

    Attributes:
        value: E(S − n − k)_+ where k ≥ 0, E(n + k − S)_+ elsewhere.
        error: a bound on its error.
        mass: Pr(S > n + k) where k ≥ 0, Pr(S < n + k) elsewhere.
        mass_error: a bound on its error.
    """

    value: Floats
    error: Floats
    mass: Floats
    mass_error: Floats


class Line(NamedTuple):
    """The nodes on a line Re s = c.

    Attributes:
        c: where it crosses the axis.
        step: their distance.
        values: at the nodes; ψ(s)^n over e^{log_scale}, less e^{½vs²} if v > 0; half of it at the first.
        errors: bounds on their errors.
        log_scale: by what they were divided.
        variance: v.
        tails: what the nodes left out may add to the sums with s^{−1} and s^{−2}.
        alias: what other periods add to Pr(S < n + k) and to E(n + k − S)_+, for all k that the line serves.
    """

    c: float
    step: float
    values: Complexes
    errors: Floats
    log_scale: float
    variance: float
    tails: tuple[float, float]
    alias: tuple[float, float]


@dataclass(frozen=True, eq=False)
class LognormalSum:
    """S = r_1 + … + r_n; its lines are kept."""

    mu: float
    number: int

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of S."""
        return math.sqrt(self.number * math.expm1(self.mu**2))

    @cached_property
    def one(self) -> Lognormal:
        """One lognormal r of the sum."""
        return Lognormal(self.mu)

    def log_chernoff(self, c: Floats, k: float) -> Floats:
        """E(n + k − S)_+ ≤ e^{ck}ψ(c)^n/(ec)."""
        return np.asarray(c * k + self.number * self.one.high(c) - 1 - np.log(c), dtype=np.float64)

    @cached_property
    @QUIET
    def log_moments(self) -> Floats:
        """Upper bounds of log E (S/n)^p for p = 0, 1, ….

        E (S/n)^p is p! times the coefficient of y^p in (Σ_j e^{j(j−1)μ²/2}(y/n)^j/j!)^n.
        """
        j = np.arange(MOST_MOMENTS + 1)
        log_one = 0.5 * j * (j - 1) * self.mu**2 - j * math.log(self.number) - gammaln(j + 1)
        power = np.where(j == 0, 0.0, -np.inf)
        left = self.number
        while left:
            if left & 1:
                power = _log_product(power, log_one)
            log_one, left = _log_product(log_one, log_one), left >> 1
        log_moments = power + gammaln(j + 1)
        return np.asarray(
            log_moments + 1e-12 * (1 + np.abs(log_moments) + np.abs(power) + 40 * self.mu**2 * j * j), dtype=np.float64
        )

    @QUIET
    def log_beyond(self, k: Floats) -> tuple[Floats, Floats]:
        """Bounds of log E(S − n − k)_+ and log Pr(S > n + k), k ≥ 0, from moments and Chebyshev's inequality."""
        # log E S^p is convex: between whole p it is below chords. One p at a time, as there may be millions of points.
        powers = np.unique(np.append(np.arange(1.125, 6, 0.125), np.arange(2.0, MOST_MOMENTS + 1)))
        log_moments = np.interp(powers, np.arange(MOST_MOMENTS + 1), self.log_moments)
        log_share = np.log1p(k / self.number)
        log_value, log_mass = np.full_like(k, np.inf), np.full_like(k, np.inf)
        # x^{−p}(x − 1) is largest at x = p/(p − 1).
        gains = (powers - 1) * np.log1p(-1 / powers) - np.log(powers)
        for p, log_moment, gain in zip(powers.tolist(), log_moments.tolist(), gains.tolist(), strict=True):
            size = log_moment - p * log_share
            np.minimum(log_mass, size, out=log_mass)
            np.minimum(log_value, size + gain, out=log_value)
        log_value += np.log(self.number) + log_share
        variance = 2 * math.log(self.deviation) + 1e-12
        return np.minimum(log_value, variance - np.log(4 * k)) + 1e-12, np.minimum(log_mass, variance - 2 * np.log(k))

    @cached_property
    def _edges(self) -> list[float]:
        """Rising; a line serves between each two."""
        return [0.0]

    @cached_property
    def _lines(self) -> dict[float, Line | None]:
        """By the left edge."""
        return {}

    def _saddle(self, k: float) -> float:
        """About where ck + n log ψ(c) − 2 log c is least."""
        points, high = self.one.axis
        return float(points[1 + int(np.argmin(points[1:] * k + self.number * high[1:] - 2 * np.log(points[1:])))])

    def _cover(self, low: float, high: float) -> None:
        """Add edges until they cover [low, high], or are too many."""
        edges = self._edges
        while edges[-1] <= high and len(edges) < _MOST_BLOCKS:
            edges.append(2 * edges[-1] + self.deviation)
        while edges[0] > low and len(edges) < _MOST_BLOCKS:
            end = edges[0]
            start = max(end - 3 / self._saddle(end), 0.5 * (end - self.number))
            # e^{ck} changes by e⁵ at most within a block: so many digits its far end loses beside the near one.
            # Empirical.
            while self._saddle(start) * (end - start) > 5:
                start = 0.5 * (start + end)
            # e^{−720} is nearly the least number: further left 0 and a bound say all.
            gone = float(np.min(self.log_chernoff(self.one.axis[0][1:], end))) < -720
            edges.insert(0, -math.inf if gone else start)

    @QUIET
    def deviations(self, k: Floats) -> Deviation:
        """At points k > −n in any order."""
        self._cover(float(k.min()), float(k.max()))
        edges, lines = self._edges, self._lines
        which = np.searchsorted(edges, k, side="right") - 1
        ends = [np.zeros_like(k) for _ in range(4)]
        for block in np.unique(which):
            here, line = which == block, None
            if 0 <= block < len(edges) - 1 and edges[block] > -math.inf:
                low, high = edges[block : block + 2]
                if low not in lines:
                    lines[low] = self._line(low, high)
                line = lines[low]
            values_here = self._known(k[here], line) if line is not None else self._bounded(k[here])
            for end, values in zip(ends, values_here, strict=True):
                end[here] = values
        return Deviation(*ends)

    def _bounded(self, k: Floats) -> Deviation:
        """Chernoff's bound on the left, moments on the right; nothing is known of the values themselves."""
        high, most = np.empty_like(k), np.empty_like(k)
        right = k >= 0
        high[right], most[right] = self.log_beyond(k[right])
        c = self.one.axis[0][1:]
        for i in np.flatnonzero(~right):
            log = self.log_chernoff(c, float(k[i]))
            high[i], most[i] = float(np.min(log)), min(float(np.min(log + 1 + np.log(c))), 0.0)
        zero = np.zeros_like(k)
        high, most = (np.exp(end) * (1 + 1e-9) + TINY for end in (high, most))
        return Deviation(zero, high, zero, np.minimum(most, 1.0))

    def _line(self, low: float, high: float) -> Line | None:
        """The line for points k from ``low`` to ``high``, on one side of 0; None for too many nodes, or no digits."""
        if low < 0:
            return self._line_at(self._saddle(low), low, high)
        if self.log_beyond(np.array([low]))[0][0] < math.log(self.deviation) - SMALL:
            return None
        # On the right the pole at 0 is taken out, and all that c gains is that fewer nodes will do.
        tried = ((0.2, 0.2), (0.5, 0.4), (2.0, 1.0), (5.0, 1.0))
        lines = (self._line_at(share / (low + self.deviation), low, high, most * _MOST_CELLS) for share, most in tried)
        return next((line for line in lines if line is not None), None)

    def _line_at(self, c: float, low: float, high: float, most: float = _MOST_CELLS) -> Line | None:
        n, right = self.number, low >= 0
        variance = self.deviation**2 if right else 0.0
        start = self.one.log_transform(np.array([c + 0j]))
        log_scale = 0.0 if right else n * float(start.value[0].real)
        # Beyond a tenth the line has no digit.
        if not n * start.error[0] < 0.1 or not math.isfinite(log_scale):
            return None
        peak = math.log(self.deviation) if right else c * low + log_scale - 2 * math.log(c)
        period = self._period(c, low, high, variance, peak)
        step = 2 * math.pi / period
        # The bound of decay falls, so that any grid is valid; this one finds ends within 9 %.
        grid = np.asarray(c * np.geomspace(1.0, 1e8, 220), dtype=np.float64)
        rho = np.exp(n * self.one.log_decay(c, grid) - log_scale)
        if right:
            rho += np.exp(0.5 * variance * (c - grid) * (c + grid))
        # In the last block |ψ|^n falls at least like a power of u.
        ones = np.append(
            rho[:-1] * np.log(grid[1:] / grid[:-1]),
            float(np.exp(self.one.log_far(c, grid[-1], n) - log_scale))
            + (rho[-1] / (variance * grid[-1] ** 2) if right else 0.0),
        )
        twos = np.append(rho[:-1] * (1 / grid[:-1] - 1 / grid[1:]), rho[-1] / grid[-1])
        mass, value = (np.cumsum(blocks[::-1])[::-1] / math.pi for blocks in (ones, twos))
        good = (value <= math.exp(-SMALL) * (self.deviation if right else 1 / c)) & (mass <= 1e3 * math.exp(-SMALL))
        if not good.any():
            return None
        at = int(np.argmax(good))
        # A node at u stands for [u − h, u]; one more makes the first one left out begin beyond the grid point.
        size = math.ceil(grid[at] / step) + 2
        if size * self.one.cells > most:
            return None
        s = np.asarray(c + 1j * step * np.arange(size), dtype=np.complex128)
        log, error = self.one.log_transform(s)
        log, error = n * log - log_scale, n * error
        # Where ψ has no digits left, it counts as 0, its bound as the error of that.
        known = error < 0.1
        power = np.where(known, np.exp(log), 0.0)
        errors = np.expm1(error) + UNIT * (8 * (np.abs(log) + abs(log_scale)) + 4)
        bound = np.exp(n * self.one.log_decay(c, np.asarray(s.imag, dtype=np.float64)) - log_scale)
        if right:
            half = 0.5 * variance * s * s
            normal, close = np.exp(half), known & (np.abs(log - half) < 1)
            values = np.where(close, normal * expm1(np.where(close, log - half, 0.0)), power - normal)
            larger = np.maximum(np.abs(power), np.abs(normal))
            errors = larger * (np.where(known, errors, 0.0) + UNIT * (8 * np.abs(half) + np.where(close, 0.0, 12.0)))
        else:
            values, errors = power, np.abs(power) * np.where(known, errors, 0.0)
        errors += np.where(known, 0.0, bound) + UNIT * (2 * math.isqrt(size) + 104) * np.abs(values)
        values[0] *= 0.5
        alias = self._alias(c, period, low, high, variance)
        return Line(c, step, values, errors, log_scale, variance, (float(mass[at]), float(value[at])), alias)

    def _left_periods(self, c: float, high: float, variance: float) -> tuple[Floats, Floats]:
        """Points c' > c, and log bounds of E(n + k' − S)_+ over e^{c'(k' − k)}, k = ``high`` ≥ k'.

        If v > 0, they also bound those of N(0, v).
        """
        # Only c' > c count, and a quotient by c' − c is to keep its digits.
        beyond = self.one.axis[0][self.one.axis[0] > 1.0001 * c]
        log = self.log_chernoff(beyond, high)
        if variance:
            log = np.logaddexp(log, beyond * high + 0.5 * variance * beyond**2 - 1 - np.log(beyond))
        return beyond, log

    def _right_periods(self, k: Floats, variance: float) -> tuple[Floats, Floats]:
        """Log bounds of E(S − n − k)_+ and Pr(S > n + k), also for N(0, v) instead of S − n."""
        value, mass = self.log_beyond(k)
        normal = -0.5 * k * k / variance
        return np.logaddexp(value, normal + 0.5 * math.log(variance)), np.logaddexp(mass, normal)

    def _period(self, c: float, low: float, high: float, variance: float, peak: float) -> float:
        """One with which other periods add nothing beside e^peak."""
        right = (SMALL + 6 + max(math.log(self.deviation + abs(high)) - peak, 0.0)) / c
        beyond, log = self._left_periods(c, high, variance)
        left = float(np.min((log + SMALL + 4 - peak) / (beyond - c), initial=math.inf))
        if not variance:
            return max(right, min(left, 1.001 * (self.number + high)))
        tried = np.geomspace(4 * self.deviation, max(right, 8 * self.deviation), 40)
        rest = self._right_periods(low + tried, variance)[0] - c * tried - np.log(-np.expm1(-c * tried))
        return max(left, float(tried[int(np.argmax(np.append(rest[:-1] < peak - SMALL, True)))]))

    def _alias(self, c: float, period: float, low: float, high: float, variance: float) -> tuple[float, float]:
        """Bounds of what other periods add to Pr(S < n + k) and E(n + k − S)_+, ``low`` ≤ k ≤ ``high``."""
        rho = math.exp(-c * period)
        mass = rho / (1 - rho)
        if variance:  # what S and the normal have in common is not there
            value, share = np.exp(np.concatenate(self._right_periods(np.array([low + period]), variance))).tolist()
            mass, value = mass * share, mass * value
        else:
            value = (max(high, 0.0) + 0.5 * self.deviation) * mass + period * rho / (1 - rho) ** 2
        if variance or period < self.number + high:  # else S ≥ 0 leaves nothing on the left
            beyond, log = self._left_periods(c, high, variance)
            log = log - (beyond - c) * period - np.log(-np.expm1(-(beyond - c) * period))
            value += float(np.exp(float(np.min(log, initial=math.inf))))
            mass += float(np.exp(float(np.min(log + 1 + np.log(beyond), initial=math.inf))))
        return mass * (1 + 1e-9), value * (1 + 1e-9)

    def _known(self, k: Floats, line: Line) -> Deviation:
        """Return the deviation at k from the values on a line."""
        c, size = line.c, line.values.size
        s = c + 1j * line.step * np.arange(size)
        modulus, reach = np.abs(s), float(np.abs(k).max())
        scale = np.exp(c * k + line.log_scale)
        moduli = np.abs(line.values)
        errors = line.errors + moduli * UNIT * (4 * modulus * reach + 8 * (c * reach + abs(line.log_scale) + 1))
        sums = []
        for power, tail, alias in zip((1, 2), line.tails, line.alias, strict=True):
            total = waves(line.values / s**power, line.step, k) * line.step / math.pi
            spread = float((errors / modulus**power).sum()) * line.step / math.pi
            sums += [scale * total, scale * (spread + tail) * (1 + 1e-9) + alias]
        mass, mass_error, value, error = sums
        if line.variance:
            # E(S − n − k)_+ less that of N(0, v) is what E(n + k − S)_+ is less that of N(0, v).
            deviation = math.sqrt(line.variance)
            z = k / deviation
            density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
            value, mass = value + deviation * (density - z * ndtr(-z)), ndtr(-z) - mass
            error = error + 16 * UNIT * (1 + z * z) * deviation * density
            mass_error = mass_error + 16 * UNIT * (1 + z * z) * density
        return Deviation(np.maximum(value, 0.0), error + TINY, np.maximum(mass, 0.0), mass_error + TINY)


def _log_product(a: Floats, b: Floats) -> Floats:
    """Return the log coefficients of a product of two power series, given theirs; coefficients are ≥ 0."""
    return np.array([np.logaddexp.reduce(a[: i + 1] + b[i::-1]) for i in range(a.size)])


def waves(terms: Complexes, step: float, k: Floats) -> Floats:
    """Re Σ_j terms_j e^{ij·step·k} at many k, in two stages.

    It is off by at most (2√N + 90)u Σ|terms| and what the phases are off.
    """
    block = math.isqrt(terms.size) + 1
    rows = -(-terms.size // block)
    padded = np.zeros(rows * block, dtype=np.complex128)
    padded[: terms.size] = terms
    sums = np.empty(k.size)
    # 32 MB of complex numbers at once. Empirical: only speed depends on it.
    many = max(1, 2_000_000 // (rows + block))
    for at in range(0, k.size, many):
        part = k[at : at + many]
        inner = np.exp(1j * step * np.arange(block)[:, None] * part)
        outer = np.exp(1j * step * block * np.arange(rows)[:, None] * part)
        sums[at : at + many] = ((padded.reshape(rows, block) @ inner) * outer).sum(axis=0).real
    return sums
