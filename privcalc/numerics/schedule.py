"""Many Poisson-sampled Gaussians of like parameters at once: what depends on their common variable is computed once.

With the logarithm of the odds q/(1 − q)·r, less that of a reference odds ς/(1 − ς), as the variable y,

    w = 1 − q + qr = e^{g(y) − g(λ)},    g(y) = log(1 − ς + ςe^y),    λ = log q/(1 − q) − log ς/(1 − ς),

and y = d + μt is normal with mean d = λ − μ²/2 and deviation μ. So with p = s + 1, or −s in the add direction,

    E[w^p] = e^{−p g(λ)} ∫ φ((y − d)/μ)/μ · e^{p g(y)} dy,

where g is the same for all entries (μ, q). One grid of y serves all of them, and their transforms are products of two
matrices: one has a row for every entry, the other one for every c or node. Proof: ``proofs/schedule.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcalc.numerics.elementary import fan_less_one, log1p, log_turned, log_weighted
from privcalc.numerics.floats import UNIT, Complexes, Floats, short
from privcalc.numerics.interfaces import NodeValues, Prepared, RealValues, log_slack
from privcalc.numerics.normal_loss import quadrature_error, trapezoid
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.special import log_normal_tail

_MAX_NODES = 60_000
"""Empirical: more are refused as too slow."""

_ROWS, _CELLS = 256, 2_000_000
"""Entries at once, and (node, column) pairs at once, 32 MB. Only speed depends on them."""

_LARGE = 600.0
"""Exponents up to which powers are summed as they are."""


def log_odds(q: Floats, reference: float) -> Floats:
    """log of the odds of q over those of another one."""
    return np.asarray(np.log(q / reference * ((1 - reference) / (1 - q))), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ScheduleTransform:
    """The product of the transforms of N(μ_i, 1) against N(0, 1), sampled, to the power n_i.

    The sampling rates are q_i < 1.
    """

    mu: Floats
    q: Floats
    counts: Floats
    add: bool

    @property
    def reference(self) -> float:
        """The sampling rate ς to which the others are shifted."""
        return float(self.q[self.q.size // 2])

    @cached_property
    def odds(self) -> Floats:
        """The shifts λ of log odds from ς, shape (entries,)."""
        return log_odds(self.q, self.reference)

    @cached_property
    def mean(self) -> Floats:
        """The means d of the common variable, shape (entries,)."""
        return np.asarray(self.odds - 0.5 * self.mu**2, dtype=np.float64)

    @cached_property
    def fixed(self) -> Floats:
        """The constants −g(λ) of the losses, shape (entries,)."""
        return -log_weighted(self.reference, self.odds)

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """One grid for all; every error, of all uses together, is about 1e-15 (``NormalLoss.prepare``).

        Raises:
            OverflowError: if the quadrature would need too many nodes.
        """
        mu, q, mean = self.mu, self.q, self.mean
        log_count = math.log(count) + math.log(float(self.counts.sum()))
        # The least μ has the shortest step and, like the largest q, the largest error constants.
        worst = SampledGaussianTransform(float(mu.min()), float(q.max()), self.add)
        rule = trapezoid(worst, c_max, log_count + 34)
        step, theta = short(rule.step * worst.mu), rule.line * worst.mu
        log_kappa = float(worst.log_kappa(np.asarray(theta), c_max))
        log_tol = -36 - log_count - 0.5 * rule.line**2 - log_kappa
        z = math.sqrt(-2 * log_tol)
        if self.add:
            low = mean - mu * np.sqrt(2 * (-log_tol - c_max * np.log1p(-q)))
            high = mean + mu * np.maximum(z, 0.5 * mu)
        else:
            low = mean - mu * z
            tail = log_mass - log_count
            b = np.maximum(math.sqrt(2 * max(-tail, 0.0)), mu + np.sqrt(2 * np.maximum(np.log(q) - tail, 0.0)))
            high = mean + mu * b
            if not cut:  # where the integrand at c_max is negligible, too
                excess = np.maximum(np.log(q) + 0.5 * c_max * (c_max + 1) * mu**2 - log_tol + 8, 0.0)
                far = float(np.max(mean + mu * ((c_max + 1) * mu + np.sqrt(2 * excess) + 4)))
                high = np.linspace(float(high.max()), max(far, float(high.max())), 65)
                good = self.log_edge(np.array([c_max]), theta, high[:, None, None]).max(axis=(1, 2)) <= log_tol
                high = high[np.argmax(good) if good.any() else -1 :][:1]
        first, last = math.floor(float(low.min()) / step) - 1, math.ceil(float(high.max()) / step) + 1
        if not last - first < _MAX_NODES or not max(abs(first), abs(last)) < 2**24:
            raise OverflowError("the transform needs too many quadrature nodes")
        y = np.asarray(step * np.arange(first, last + 1), dtype=np.float64)
        missing = quadrature_error(
            rule.line, float(worst.log_kappa(np.asarray(2 * theta), c_max)), rule.line * step / theta
        )
        return PreparedSchedule(self, count * self.counts, step, theta, y, missing + 2 * math.exp(-36 - log_count))

    def log_edge(self, c: Floats, theta: float, end: Floats) -> Floats:
        """Return the logarithm of the error of a cut at y = ``end``, a row for each c (``normal_loss.log_edge``)."""
        line, b = theta / self.mu, (end - self.mean) / self.mu
        # −0.9: above −½ log 2π = −0.919, as in ``normal_loss.log_edge``.
        size = np.log(6 * line) + 2 * line**2 - 0.5 * b**2 - 0.9
        loss = log_weighted(self.reference, end) + self.fixed
        return np.asarray(size + np.maximum((c[:, None] + 1) * loss, 0.0), dtype=np.float64)


class _At(NamedTuple):
    """The values of every entry at one real c: K, a bound on its error, and how M moves as λ and d are rounded."""

    k: Floats
    error: Floats
    moved: Floats


@dataclass(frozen=True, eq=False)
class PreparedSchedule:
    """A rule with the nodes y_j + iθ, and what each M may miss by quadrature and cuts, over max(1, M(c))."""

    of: ScheduleTransform
    counts: Floats
    step: float
    theta: float
    y: Floats
    missing: float

    @cached_property
    def _real(self) -> Floats:
        """The loss g(y) at the real nodes, shape (nodes,)."""
        return log_weighted(self.of.reference, self.y)

    def _power(self, c: Floats | float) -> Floats:
        return -np.asarray(c, dtype=np.float64) if self.of.add else np.asarray(c, dtype=np.float64) + 1.0

    @property
    def _end(self) -> float:
        """Where y is cut: half a step beyond the last node."""
        return float(self.y[-1]) + 0.5 * self.step

    @cached_property
    def lost(self) -> float:
        """Probability under P of what lies beyond the cut."""
        if self.of.add:
            return 0.0
        q, mu, b = self.of.q, self.of.mu, (self._end - self.of.mean) / self.of.mu
        beyond = np.exp(np.logaddexp(log_normal_tail(b) + np.log1p(-q), log_normal_tail(b - mu) + np.log(q)))
        return float(self.counts @ beyond) * (1 + 1e-9)

    def _edge(self, c: Floats, log_scale: Floats) -> Floats:
        """Return the error of a cut over e^log_scale: a row for each c and a column for each entry."""
        if self.of.add:
            return np.zeros((c.size, self.of.mu.size))
        with np.errstate(over="ignore"):
            return np.asarray(
                np.exp(self.of.log_edge(c, self.theta, np.asarray(self._end)) - log_scale), dtype=np.float64
            )

    def edge(self, c: Floats | float) -> Floats:
        """Errors of all uses together that come from the cut."""
        errors = self._edge(np.atleast_1d(np.asarray(c, dtype=np.float64)), np.zeros(()))
        return np.asarray((errors * self.counts).sum(axis=1), dtype=np.float64)

    def _missed(self, k: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(self.missing * np.exp(-np.minimum(k, 0.0)), dtype=np.float64)

    def _blocks(self) -> Iterator[tuple[slice, Floats, Floats]]:
        """Rows of entries; t² at the nodes, and log of step·φ(t)/μ."""
        rows = max(1, min(_ROWS, _CELLS // self.y.size))
        for start in range(0, self.of.mu.size, rows):
            rows_of = slice(start, start + rows)
            mu = self.of.mu[rows_of, None]
            square = ((self.y - self.of.mean[rows_of, None]) / mu) ** 2
            yield rows_of, square, np.log(self.step / math.sqrt(2 * math.pi) / mu) - 0.5 * square

    def _values(self, c: Floats) -> tuple[Floats, Floats]:
        """K and a bound on its rounding, sharper for a single c: a row for each c and a column for each entry."""
        sharp, shape = c.size == 1, (c.size, self.of.mu.size)
        value, rounding = np.empty(shape), np.empty(shape)
        p, depth = self._power(c), self.y.size + 80
        size = np.abs(p) * float(np.max(np.abs(self._real)))
        near = (size <= _LARGE) & (np.abs(p) * float(np.max(np.abs(self.of.fixed))) <= 3)
        which = np.floor(size / _LARGE)
        for rows, square, log_weights in self._blocks():
            fixed = np.multiply.outer(p, self.of.fixed[rows])
            roughly = depth + 6 * float(square.max()) + 12 * size[:, None]
            if near.any():  # M = e^{−p g(λ)} (1 + E[e^{p g} − 1])
                z, weights = np.multiply.outer(p[near], self._real), np.exp(log_weights).T
                change = np.expm1(z)
                less_one = change @ weights
                more = np.log1p(less_one)
                value[near, rows] = fixed[near] + more
                if sharp:
                    error = np.abs(change) @ (weights * (depth + 6 * square.T))
                    error += 12 * (np.abs(z) * np.exp(np.maximum(z, 0.0))) @ weights
                else:  # |e^z − 1| ≤ (e^z − 1) + 2
                    # 2.1: twice the sum of the weights, which is 1 but for the rule's error.
                    error = (less_one + 2.1) * roughly[near]
                rounding[near, rows] = UNIT * (error / (1 + less_one) + 12 * np.abs(fixed[near]) + 4 * np.abs(more))
            for block in np.unique(which[~near]).tolist():  # relative to powers nearby, the largest term being 1
                here = ~near & (which == block)
                top = float(p[here].max())
                log_terms = log_weights + top * self._real
                peak = log_terms.max(axis=1)
                terms = np.exp(log_terms - peak[:, None]).T
                less = np.exp(np.multiply.outer(p[here] - top, self._real))
                total = less @ terms
                value[here, rows] = fixed[here] + peak + np.log(total)
                error = roughly[here]
                if sharp:
                    spread = np.abs(p[here, None]) * (less @ (terms * np.abs(self._real)[:, None]))
                    error = (less @ (terms * (depth + 6 * square.T)) + 12 * spread) / total
                sizes = 12 * np.abs(fixed[here]) + 8 * np.abs(peak) + 4 * np.abs(value[here, rows])
                rounding[here, rows] = UNIT * (error + sizes)
        return value, rounding

    def _moved(self, loss: Floats, share: Floats | float) -> Floats:
        """8u E|log w| + 8u(|λ| + μ²) E[share] (``proofs/schedule.md``, §3)."""
        return 8 * UNIT * (loss + (np.abs(self.of.odds) + self.of.mu**2) * share)

    def log_real(self, c: Floats) -> RealValues:
        """Return Σ n K(c), shape (n,), and a bound on its error."""
        value, rounding = self._values(c)
        moved = (
            self._moved(np.max(np.abs(self._real)) + np.abs(self.of.fixed), 1.0)
            if c.size > 1
            else self._at(float(c[0])).moved
        )
        with np.errstate(over="ignore"):
            error = rounding + self._missed(value) + np.log1p(self._edge(c, value))
        error = error + np.multiply.outer(np.abs(self._power(c)), moved)
        total = (value * self.counts).sum(axis=1)
        error = (error * self.counts).sum(axis=1) + 80 * UNIT * (np.abs(value) * self.counts).sum(axis=1)
        return RealValues(total, error * (1 + 1e-9))

    def _at(self, c: float) -> _At:
        value, rounding = self._values(np.array([c]))
        k, p = value[0], float(self._power(c))
        means = np.stack([self._real, np.exp(self.y - self._real) * self.of.reference], axis=1) ** 2
        squares = np.empty((k.size, 2))
        for rows, _, log_weights in self._blocks():
            squares[rows] = np.exp(log_weights + p * self._real + (p * self.of.fixed[rows] - k[rows])[:, None]) @ means
        # E|g| ≤ √E[g²], and so for the share; what the rule misses of these is far less than what is added.
        root = np.sqrt(squares)
        loss = 1.001 * root[:, 0] + 1e-5 * root[:, 1] + 1e-7 * float(np.max(np.abs(self._real)))
        moved = self._moved(loss + np.abs(self.of.fixed), np.minimum(1.001 * root[:, 1] + 1e-7, 1.0))
        edge = np.log1p(self._edge(np.array([c]), value)[0])
        return _At(k, rounding[0] + abs(p) * moved + self._missed(k) + edge, moved)

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """Σ n log M(c + iu)/M(c) at u = k·step.

        M(c + iu) = e^{−iu g(λ)} (M(c) + e^{−p g(λ)} E[e^{p g}(e^{iug} − 1)]).
        """
        p, at, log = float(self._power(c)), self._at(c), log_turned(self.of.reference, self.y, self.theta)
        u, modulus, columns = step * np.arange(size), np.abs(log), max(1, _CELLS // self.y.size)
        starts = range(0, size, columns)
        turns = fan_less_one(log, step, min(columns, size))
        edge = self._edge(np.array([c]), at.k)[0]
        off = at.error + 2 * (self._missed(at.k) + edge)
        total, slack = np.zeros(size, dtype=np.complex128), np.zeros(size)
        for rows, square, log_weights in self._blocks():
            line, fixed, k = self.theta / self.of.mu[rows, None], self.of.fixed[rows, None], at.k[rows, None]
            sizes = np.exp(log_weights + 0.5 * line**2 + p * (log.real + fixed) - k)
            angle = p * log.imag - line * ((self.y - self.of.mean[rows, None]) / self.of.mu[rows, None])
            weights = sizes * (np.cos(angle) + 1j * np.sin(angle))
            if not np.all(np.abs(weights.sum(axis=1) - 1) <= 1e-9 + 2 * off[rows]):
                raise ArithmeticError("two evaluations of M(c) disagree")
            # Every weight, its exponent, and the sum are rounded (``proofs/schedule.md``, §4).
            unit = (
                64
                + self.y.size / 32
                + 90
                + 4 * (square + line**2)
                + 20 * abs(p) * (modulus + np.abs(fixed))
                + 4 * np.abs(k)
            )
            slope = UNIT * ((sizes * unit) @ modulus) + at.moved[rows]
            for start in starts:
                part = slice(start, min(start + columns, size))
                if len(starts) > 1:
                    turns = fan_less_one(log, step, part.stop - start, start)
                error = (off[rows] + at.moved[rows] * abs(p))[:, None] + np.multiply.outer(slope, u[part])
                factors, more = log_slack(log1p(_product(weights, turns)), error)
                total[part] += self.counts[rows] @ factors
                slack[part] += self.counts[rows] @ (more + 4 * UNIT * np.abs(factors)) + 2 * UNIT * np.abs(total[part])
        turn = float((self.counts * self.of.fixed).sum())
        blur = 64 * u * float((self.counts * np.abs(self.of.fixed)).sum()) + 80 * float(
            (self.counts * np.abs(at.k)).sum()
        )
        total = total + 1j * u * turn
        slack = slack + UNIT * (blur + 8 * np.abs(total))
        return NodeValues(np.conj(total) if self.of.add else total, slack * (1 + 1e-9))

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Σ n log of min over lines θ of G_θ(u)/M(c), where that is below 0 (``NormalLoss.log_decay``)."""
        p, at, real, q = float(self._power(c)), self._at(c), self._real, self.of.reference
        # How fast an entry in the middle turns: any θ is valid.
        middle, share = self.of.mu.size // 2, q * np.exp(self.y - real)
        mu = float(self.of.mu[middle])
        log_tilted = p * real - 0.5 * ((self.y - self.of.mean[middle]) / mu) ** 2
        tilted = np.exp(log_tilted - log_tilted.max())
        mean = float(tilted @ share / tilted.sum())
        variance = float(tilted @ (share - mean) ** 2 / tilted.sum())
        worst = SampledGaussianTransform(float(self.of.mu.min()), float(self.of.q.max()), self.of.add)
        spare = self._missed(at.k) + self._edge(np.array([c]), at.k)[0]
        rounding = 4 * UNIT * (self.y.size + 200) * (2 + np.hypot(c, u))
        best = np.zeros((self.of.mu.size, u.size))
        # Angles as in ``NormalLoss.log_decay``; any are valid.
        gaussian, most = u * mean / (1 / mu**2 + u * u * variance), min(1.2, self.theta)
        for angle in (gaussian, 2.5 * gaussian, np.full_like(u, 0.75 * most)):
            theta = np.minimum(angle, most)
            psi = np.minimum(0.5 * math.pi - theta, self.theta)
            log = log_turned(q, self.y, theta[:, None])
            flat = np.exp(p * (log.real - real))
            columns = np.concatenate([flat * np.exp(-u[:, None] * log.imag), flat]).T
            strip = 2 * np.exp(worst.log_kappa(theta + psi, c)) / np.expm1(2 * math.pi * psi / self.step)
            for rows, _, log_weights in self._blocks():
                mus, k = self.of.mu[rows, None], at.k[rows, None]
                with np.errstate(over="ignore", divide="ignore"):
                    turned = np.exp(log_weights + p * (real + self.of.fixed[rows, None]) - k) @ columns
                    lift, wide = np.exp(0.5 * (theta / mus) ** 2), np.exp(0.5 * (theta**2 + psi**2) / mus**2)
                    change = lift * (turned[:, : u.size] + rounding * turned[:, u.size :])
                    more = np.maximum(1.0, np.exp(-k)) * strip * wide + spare[rows, None]
                    best[rows] = np.fmin(best[rows], np.log(change + more))
        best = np.minimum.accumulate(best, axis=1) + (at.error + abs(p) * at.moved)[:, None]
        return np.asarray(self.counts @ np.minimum(best, 0.0), dtype=np.float64)


def _product(a: Complexes, b: Complexes) -> Complexes:
    """a @ b, in pieces of 32: a sum's rounding counts the terms of one piece, and the pieces."""
    return np.asarray(sum(a[:, i : i + 32] @ b[i : i + 32] for i in range(0, b.shape[0], 32)), dtype=np.complex128)
