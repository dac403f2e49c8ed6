"""The Laplace transform of a lognormal r = e^{μg − μ²/2} about its mean: ψ(s) = E e^{−s(r − 1)} = e^s φ(s), Re s > 0.

By a trapezoid rule on a rotated line, with bounds of its error and of its decay: ``proofs/allocation.md``, §2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from privcalc.numerics.elementary import expm1, log1p
from privcalc.numerics.floats import QUIET, UNIT, Complexes, Floats, short
from privcalc.numerics.special import ndtr

REACH = 11.0
"""The rule covers so many standard deviations, and the tilted law where the tilt is at most ``ROOM``."""

ROOM = 4.0
"""The largest tilt, in standard deviations, under which the rule still covers the law."""

NEAR = 14.0
"""The largest growth with which ψ itself is summed."""

TURN = 2.0
"""By how many μ r is turned at most where relative precision is wanted: e^{−x²/2} grows e²-fold."""

CELLS = 400_000
"""Complex numbers at once, 6 MB. Only speed depends on it."""

_BLOCK = 64
"""Terms that are summed at once."""

DIGITS = 54.0
"""−log of the rule's error."""


class LogTransform(NamedTuple):
    """log ψ(s), and a bound on its error."""

    value: Complexes
    error: Floats


class Rule(NamedTuple):
    """A trapezoid rule for ψ on Im x = a.

    Attributes:
        real: r on the real axis.
        turned: r on the line.
        centred: r − 1 on the line.
        weights: the density on the line, times the step.
        size: what a term's roundings scale with.
        angle: by which r is turned.
        quadrature: without roundings, ψ is off by so much times |s|²e^{growth}.
        plain: φ is off by so much times |s|, roundings included.
    """

    real: Floats
    turned: Complexes
    centred: Complexes
    weights: Complexes
    size: Floats
    angle: float
    quadrature: float
    plain: float


@dataclass(frozen=True)
class Lognormal:
    """r, of mean 1."""

    mu: float

    @cached_property
    def _rule(self) -> Rule:
        mu = self.mu
        # r turns by 2θ ≤ ½π; on the line weights are e^{a²/2} ≤ 3.1 times as large, and so are their roundings.
        a = -min(math.pi / (4 * mu), 1.5)
        step = short(2 * math.pi * -a / (DIGITS + 2 * a * a))  # the nodes are exact
        x = step * np.arange(math.floor(-(REACH + ROOM) / step), math.ceil((REACH + 2 * mu) / step) + 1)
        size = x * x + 40 + (2 * np.abs(x) + mu) * mu / math.sin(mu * -a)
        real = np.exp(mu * x - 0.5 * mu * mu)
        centred = expm1(np.asarray(mu * x - 0.5 * mu * mu + 1j * mu * a, dtype=np.complex128))
        weights = step / math.sqrt(2 * math.pi) * np.exp(0.5 * (a - x) * (a + x) - 1j * a * x)
        fourth = math.exp(6 * mu**2) - 4 * math.exp(3 * mu**2) + 6 * math.exp(mu**2) - 3
        # 1e-14: more than what cancels in the line above, all of whose terms are at most 6e^{6μ²}.
        fourth = 8 * (max(fourth, 0.0) + (1e-14 + (2 * mu * a) ** 4) * math.exp(6 * mu**2))
        rule = (1 + math.exp(2 * a * a)) / math.expm1(2 * math.pi * -a / step)
        ends = math.exp(0.5 * a * a) * float(ndtr(step - REACH))
        # 0.71 > ½√2 (``proofs/allocation.md``, §2).
        quadrature = 0.71 * math.sqrt(fourth) * rule + ends * (0.5 + 2 * math.exp(mu**2))
        plain = rule + 4 * ends + UNIT * float((np.abs(weights) * real) @ (size + 24 + 4 * mu * np.abs(x) + 4 * mu**2))
        return Rule(real, real * np.exp(1j * mu * a), centred, weights, size, mu * -a, quadrature, plain)

    def growth(self, c: Floats) -> Floats:
        """By how much |e^{−z}|, Re s ≤ c, may grow on the lines of the rule, in the mean: a logarithm."""
        mu = self.mu
        return np.asarray(2 * c * math.sin(self._rule.angle) ** 2 + 0.5 * c * mu**2 + (c * mu) ** 2, dtype=np.float64)

    @QUIET
    def log_transform(self, s: Complexes) -> LogTransform:
        """Log ψ at points with Re s > 0, Im s ≥ 0.

        From ψ − 1 = E[e^{−z} − 1 + z], z = s(r − 1), or, where that grows, φ − 1 = E[e^{−sr} − 1], ψ = e^s φ.
        """
        c = float(s.real.max())
        growth = float(self.growth(np.asarray(c)))
        near = growth <= NEAR
        rule = self._rule
        less_one = np.empty(s.size, dtype=np.complex128)
        rows = max(1, CELLS // rule.weights.size)
        for at in range(0, s.size, rows):
            part = s[at : at + rows]
            terms = (
                second(np.multiply.outer(part, rule.centred)) if near else expm1(-np.multiply.outer(part, rule.turned))
            )
            less_one[at : at + rows] = np.sum(terms * rule.weights, axis=1)
        value = log1p(less_one)
        size = np.abs(s)
        if near:
            # |e^{−z} − 1 + z| ≤ ½|z|²m and ≤ 2m(1 + |z|), with m = max(1, |e^{−z}|) ≤ e^{c(1 − r cos α)}.
            grow = np.exp(c * np.maximum(1 - rule.real * math.cos(rule.angle), 0.0))
            weights, distance = np.abs(rule.weights) * grow * rule.size, np.abs(rule.centred)
            twice, mean, once = (float(weights @ distance**p) for p in (2, 0, 1))
            bound = UNIT * np.minimum(size**2 * twice, 2 * (mean + size * once)) + size**2 * rule.quadrature * math.exp(
                growth
            )
        else:
            bound = size * rule.plain
        share = bound * np.exp(-value.real)
        error = np.where(share < 0.5, -np.log1p(-np.minimum(share, 0.5)), np.inf) + 4 * UNIT * np.abs(value)
        if not near:
            value, error = value + s, error + 4 * UNIT * size
        return LogTransform(value, error)

    @QUIET
    def log_on_ray(self, low: float, step: float, size: int, angle: float) -> LogTransform:
        """Log φ at s_i = e^{low + step·i + i·angle}, 0 ≤ angle < π/2: r turns back by most of the angle.

        By a rule on the line where it does, whose step is a multiple of the ray's: E f(s_i r) is a convolution. Where
        |s| is large that of e^{−z}, whose terms nearly have one sign; else of e^{−z} − 1 + z, to which 1 − s is added.
        """
        mu = self.mu
        back = min(angle, TURN * mu)
        left = angle - back  # the angle of sr on the line
        # Any b within the strip is valid, and its error is counted below. 0.6 and 1.5 are empirical: only speed depends
        # on them.
        b = min(0.6 * (0.5 * math.pi - left) / mu, 1.5)
        ratio = mu * 2 * math.pi * b / (DIGITS + (back / mu + b) ** 2) / step
        every, per = max(1, math.floor(ratio)), max(1, math.ceil(1 / ratio))  # one of them is 1
        eta = every * step / (per * mu)
        first, last = math.floor(-(REACH + ROOM) / eta), math.ceil((REACH + 2 * mu) / eta)
        x = eta * np.arange(first, last + 1)
        weights = eta / math.sqrt(2 * math.pi) * np.exp(0.5 * (back / mu - x) * (back / mu + x) + 1j * x * (back / mu))
        plain = np.abs(weights)
        heavy = plain * (6 * x * x + 2 * _BLOCK + x.size / _BLOCK + 60 + 4 * np.abs(x) * back / mu)
        y = low + step * np.arange(size)
        s = np.asarray(np.exp(y + 1j * angle), dtype=np.complex128)
        count = int(np.count_nonzero(y < min(0.0, 0.35 - 0.5 * mu * mu)))  # where E|z|² is about 2
        value, error = np.empty(size, dtype=np.complex128), np.empty(size)
        grow, rule = math.exp(0.5 * (back / mu) ** 2), math.expm1(2 * math.pi * b / eta)
        for near, begin, end in ((True, 0, count), (False, count, size)):
            if begin == end:
                continue
            log = (
                low
                + step / per * np.arange(per * begin + every * first, per * (end - 1) + every * last + 1)
                - 0.5 * mu * mu
            )
            z = np.asarray(np.exp(log + 1j * left), dtype=np.complex128)
            modulus = np.abs(z)
            off = modulus * (16 + 6 * np.abs(log) + 4 * abs(low) + 4 * mu * mu)
            terms, sizes, slopes = (
                (second(z), 0.5 * modulus**2, modulus) if near else (np.exp(-z), *[np.exp(-z.real)] * 2)
            )
            mean = _correlated(terms, weights, every, per)
            bound = UNIT * (_correlated(sizes, heavy, every, per) + _correlated(slopes * off, plain, every, per))
            here = slice(begin, end)
            modulus = np.abs(s[here])
            if near:
                ends = float(ndtr(eta - REACH - ROOM)) + math.exp(mu**2) * float(ndtr(eta - REACH))
                most = math.exp(0.5 * (back / mu + b) ** 2 + mu**2)
                bound += modulus**2 * (0.5 * grow * ends + most / rule) + UNIT * modulus * (
                    20 + 4 * np.abs(y[here]) + 4 * abs(low)
                )
                value[here] = log1p(mean - s[here])
            else:
                far = modulus * math.cos(left) * math.exp(mu * (REACH + mu))
                bound += grow * (float(ndtr(eta - REACH - ROOM)) + float(ndtr(eta - REACH)) * np.exp(-far))
                # Moved up and down by b the integrand is at most e^{−|s|r·cos(left + μb)} times a density.
                moved = np.exp(self.log_most(modulus * math.cos(left + mu * b)) + 0.5 * (back / mu + b) ** 2)
                bound += 2 * moved / rule
                value[here] = np.log(mean)
            share = bound * np.exp(-value[here].real)
            error[here] = np.where(share < 0.5, -np.log1p(-np.minimum(share, 0.5)), np.inf) + 4 * UNIT * np.abs(
                value[here]
            )
        return LogTransform(value, error)

    def log_most(self, c: Floats) -> Floats:
        """A bound of log φ(c), c > 0: φ(c) ≤ (q/(ec))^q E r^{−q} for any q > 0."""
        # Any q is valid: points close enough to be near the best one.
        q = np.geomspace(0.1, 200, 80)[:, None]
        return np.asarray(
            np.minimum(np.min(q * (np.log(q) - 1 - np.log(c)) + 0.5 * q * (q + 1) * self.mu**2, axis=0), 0.0)
        )

    def log_most_on_ray(self, size: Floats, angle: float) -> Floats:
        """Return an upper bound of log |φ| at size·e^{i·angle}, r being turned as in ``log_on_ray``."""
        back = min(angle, TURN * self.mu)
        log_most = self.log_most((size * math.cos(angle - back)).ravel()).reshape(size.shape)
        return np.asarray(np.minimum(log_most + 0.5 * (back / self.mu) ** 2, 0.0))

    @property
    def cells(self) -> int:
        """Nodes of the rule for ψ."""
        return int(self._rule.weights.size)

    @cached_property
    @QUIET
    def axis(self) -> tuple[Floats, Floats]:
        """0 and points c > 0, and upper bounds of log ψ(c), which is convex."""
        # From where log ψ is 1e-12 to beyond all lines; chords between points are bounds however far these are apart.
        c = np.geomspace(1e-6 / math.sqrt(math.expm1(self.mu**2)), 1e8 / min(self.mu, 1.0), 900)
        last = int(np.searchsorted(self.growth(c), NEAR))
        ends = [
            self.log_transform(part.astype(np.complex128)) for part in (c[: last // 2], c[last // 2 : last], c[last:])
        ]
        value, error = (np.concatenate([end[i].real for end in ends]) for i in (0, 1))
        high = np.where(np.isfinite(error) & np.isfinite(value), value + error, np.inf)
        # Where the rule has no digits left, a moment's bound.
        return np.append(0.0, c), np.append(0.0, np.minimum(high, c + self.log_most(c)))

    def high(self, c: Floats) -> Floats:
        """An upper bound of log ψ(c): a chord."""
        points, high = self.axis
        return np.asarray(np.where(c <= points[-1], np.interp(c, points, high), c), dtype=np.float64)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """A bound of log |ψ(c + iu')| for every u' ≥ u.

        With r turned by −θ, |e^{−s r}| = e^{−vr}, v = c cos θ + u sin θ.
        """
        # Any angle below ½π is valid: points close enough to be near the best one.
        theta = np.append(0.0, np.geomspace(1e-7, 1.5, 60))[:, None]
        drop = 2 * c * np.sin(0.5 * theta) ** 2 - u * np.sin(theta)  # c − v
        bound = np.min(self.high(np.asarray(c - drop)) + drop + 0.5 * (theta / self.mu) ** 2, axis=0)
        return np.minimum.accumulate(bound)

    def log_far(self, c: float, u: float, number: int) -> float:
        """A log bound of the integral of |ψ(c + iu')|^number/u' over u' ≥ u: there |φ| is at most a power of u'."""
        # Any q > 0 and any angle below ½π are valid.
        q, theta = np.geomspace(0.1, 200, 80)[:, None], np.geomspace(1e-3, 1.0, 16)
        log = (
            q * (np.log(q) - 1 - np.log(u * np.sin(theta)))
            + 0.5 * q * (q + 1) * self.mu**2
            + 0.5 * (theta / self.mu) ** 2
        )
        return float(np.min(number * (c + log) - np.log(number * q)))


def _correlated(values: Floats | Complexes, weights: Floats | Complexes, every: int, per: int) -> Any:
    """Σ_j weights_j values_{per·i + every·j}, one step being 1, in short sums, so that each is rounded little."""
    size = (values.size - every * (weights.size - 1) - 1) // per + 1
    total = np.zeros(size, dtype=np.result_type(values, weights))
    for part in range(max(per, min(every, size))):
        # Of the points: those that one residue of i needs; of the weights: those of one residue of j.
        own, mine = (
            (values[part::per], np.conj(weights[part::per])) if per > 1 else (values[part::every], np.conj(weights))
        )
        into = total if per > 1 else total[part::every]
        for at in range(0, mine.size, _BLOCK):
            block = mine[at : at + _BLOCK]
            into += np.correlate(own[at : at + into.size + block.size - 1], block, "valid")
    return total


def second(z: Complexes) -> Complexes:
    """e^{−z} − 1 + z: a series where |z| < ½."""
    value = np.empty_like(z)
    near = z.real * z.real + z.imag * z.imag < 0.25
    far = z[~near]
    value[~near] = np.exp(-far) - (1 - far)
    w = -z[near]
    # The next term is 2·2⁻¹⁴/16! = 6e-18 of the first one, z²/2.
    total = np.full_like(w, 1 / math.factorial(15))
    for j in range(14, 1, -1):
        total *= w
        total += 1 / math.factorial(j)
    value[near] = total * w * w
    return value
