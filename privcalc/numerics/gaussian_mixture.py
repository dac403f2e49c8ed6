"""A person's records in a batch: k coins of probability q, at most B heads counted; and the ratio.

With J the number and r_j(t) = e^{jμt − j²μ²/2}, the ratio of Σ_j P(J = j)·N(jμ, 1) to N(0, 1) is

    w(t) = E r_J(t) = 1 + Σ_{j≥1} P(J = j)·(r_j(t) − 1).

Without a cap all zeros of w, as a polynomial in e^{μt}, are real and negative. What follows: ``proofs/users.md``, §3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import UNIT, Complexes, Floats
from privcalc.numerics.special import log_normal_tail

MOST_RECORDS = 1000
"""The largest group: its weights are a table."""

SMALLEST = 1e-306
"""Weights below are left out, less than 1e-302 in all."""


LEAST_LOG_NEVER = -695.0
"""Least log P(J = 0): below, weights would underflow."""


class LogRatio(NamedTuple):
    """log w at points, and what its rounding scales with: it is off by 8 units of ``size`` at most."""

    value: Floats
    size: Floats


class TurnedLogRatio(NamedTuple):
    """The logarithm of w at complex points, on the branch that is real on the real line; off by 8 units of ``size``."""

    value: Complexes
    size: Floats


class Terms(NamedTuple):
    """The terms of w − 1 at points t.

    Attributes:
        j: 1, 2, …
        x: log r_j.
        top: log of the largest P(J = j)·r_j, at least 0.
        grown: P(J = j)·r_j over e^top.
        never: P(J = 0) over e^top.
        change: P(J = j)·(r_j − 1).
    """

    j: Floats
    x: Floats
    top: Floats
    grown: Floats
    never: Floats
    change: Floats


@dataclass(frozen=True)
class Counts:
    """The law of J = min(Bin(records, rate), most), 0 < rate < 1."""

    records: int
    rate: float
    most: int

    @cached_property
    def weights(self) -> Floats:
        """P(J = 0), P(J = 1), … as far as they matter, each within one unit."""
        return _weights(self)

    @property
    def largest(self) -> int:
        """The largest number whose weight matters."""
        return int(self.weights.size) - 1

    @cached_property
    def log_weights(self) -> Floats:
        """The logarithms of ``weights``, −∞ where one is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights), dtype=np.float64)

    @property
    def log_never(self) -> float:
        """log P(J = 0)."""
        return self.records * math.log1p(-self.rate)

    def fewer(self) -> Counts:
        """The largest group of such records for which P(J = 0) does not underflow."""
        if self.log_never > LEAST_LOG_NEVER:
            return self
        records = int(LEAST_LOG_NEVER / math.log1p(-self.rate) * (1 - 1e-9))
        return Counts(records, self.rate, min(self.most, records))

    @cached_property
    def means(self) -> tuple[float, float]:
        """E J and E J², rounded."""
        j = np.arange(self.weights.size)
        return float(self.weights @ j), float(self.weights @ (j * j))

    def log_beyond(self, mu: float, b: Floats) -> LogRatio:
        """log P(t > b) under Σ_j P(J = j)·N(jμ, 1), any sign of μ; off by 8 units of ``size``."""
        j = np.arange(self.weights.size)
        x = np.asarray(b)[..., None] - mu * j
        terms = self.log_weights + log_normal_tail(x)
        top = np.asarray(terms.max(axis=-1))
        share = np.exp(terms - top[..., None])
        total = share.sum(axis=-1)
        # A tail is off by a few units, and by x(|b| + jμ) + 1 of them through x; to the left it is near 1.
        each = 1 + np.maximum(x, 0.8) * (np.abs(np.asarray(b))[..., None] + abs(mu) * j) + np.abs(self.log_weights)
        size = (j.size + 5) / 8 + (share * each).sum(axis=-1) / total
        return LogRatio(np.asarray(top + np.log(total), dtype=np.float64), np.asarray(size, dtype=np.float64))

    def mean_at(self, mu: float, t: Floats) -> Floats:
        """E J tilted to t, d log w/dt over μ; rounded."""
        return self._mean(self._terms(mu, t))

    def _mean(self, terms: Terms) -> Floats:
        return np.asarray((terms.grown @ terms.j) / (terms.grown.sum(axis=-1) + terms.never), dtype=np.float64)

    def _terms(self, mu: float, t: Floats) -> Terms:
        """For j ≥ 1, a row for each t."""
        j = np.arange(1, self.weights.size, dtype=np.float64)
        x = np.multiply.outer(t, mu * j) - 0.5 * (mu * j) ** 2
        log_terms = x + self.log_weights[1:]
        top = np.maximum(log_terms.max(axis=-1, initial=0.0), 0.0)
        grown = np.exp(log_terms - top[..., None])
        # Beyond 30 nothing cancels in r − 1, and e^x may overflow.
        change, large = np.expm1(np.minimum(x, 30.0)), x > 30
        if large.any():
            with np.errstate(over="ignore"):
                half = np.exp(0.5 * x[large])
                change[large] = half * half - 1
        with np.errstate(invalid="ignore"):
            change *= self.weights[1:]
        return Terms(j, x, np.asarray(top, dtype=np.float64), grown, self.weights[0] * np.exp(-top), change)

    def _log_ratio(self, mu: float, t: Floats, terms: Terms) -> LogRatio:
        j, _, top, grown, never, change = terms
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            moved = change.sum(axis=-1)
            far = (top > 30) | (moved < -0.5)
            log = np.where(far, top + np.log(grown.sum(axis=-1) + never), np.log1p(np.where(far, 0.0, moved)))
            # Of a sum of J terms, each inheriting the rounding of jμt − j²μ²/2;
            # in the far form also those of the logarithms.
            share = grown * np.exp(top - log)[..., None]
            changed = np.where(far, 1.0, np.exp(-log) * np.abs(change).sum(axis=-1))
        shifted = (share * (mu * j) * (np.abs(t)[..., None] + mu * j)).sum(axis=-1)
        size = np.abs(log) + (j.size + 5) / 8 * changed + 0.5 * shifted
        size += np.where(far, share @ np.abs(self.log_weights[1:]) / 8 + top, 0.0)
        return LogRatio(np.asarray(log, dtype=np.float64), np.asarray(size, dtype=np.float64))

    def log_ratio(self, mu: float, t: Floats) -> LogRatio:
        """log w on the real line, with all digits near 0."""
        return self._log_ratio(mu, t, self._terms(mu, t))

    def rising_log_ratio(self, mu: float, t: Floats) -> tuple[LogRatio, Floats]:
        """log w, and its slope in t, rounded: μ times E J tilted to t."""
        terms = self._terms(mu, t)
        return self._log_ratio(mu, t, terms), mu * self._mean(terms)

    def turned_log_ratio(self, mu: float, t: Floats, angle: float | Floats) -> TurnedLogRatio:
        """log w at t + i·angle/μ: each r_j turns by j·angle. For several angles, a row each (given as a column).

        The argument is that branch which is within π of (mean of J, tilted to t)·angle (``proofs/users.md``, §3).
        """
        terms = self._terms(mu, t)
        j, _, top, grown, never, change = terms
        log, size = self._log_ratio(mu, t, terms)
        phase = np.multiply.outer(j, np.ravel(angle))
        sine, half = np.sin(phase), 2 * np.sin(0.5 * phase) ** 2
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            direct, imag = (never[:, None] + grown @ np.cos(phase)).T, (grown @ sine).T
            scale = np.exp(np.minimum(top, 40.0))
            real = change.sum(axis=-1) - (grown @ half).T * scale
            small = np.where(top <= 30, real * (2 + real) + (imag * scale) ** 2, 1.0)
            near = np.abs(small) < 0.5
            log_size = np.where(near, 0.5 * np.log1p(np.where(near, small, 0.0)), top + np.log(np.hypot(direct, imag)))
        turn = np.arctan2(imag, direct)
        mean = (grown @ j) / (grown.sum(axis=-1) + never)
        turn += 2 * math.pi * np.round((mean * np.ravel(angle)[:, None] - turn) / (2 * math.pi))
        value = log_size + 1j * turn
        # All sums are off by units of what they are on the real line, of which |w| may be a small part.
        with np.errstate(over="ignore", invalid="ignore"):
            turned = (grown @ (np.abs(sine) + half)).T * np.exp(top - log)
            ratio = np.exp(np.minimum(log - log_size, 700.0))
            rounding = np.abs(value) + (size + (j.size + 5) / 8 * np.where(near, turned, 1.0)) * ratio
        shape = np.broadcast_shapes(np.shape(angle), np.shape(t))
        return TurnedLogRatio(value.reshape(shape), np.asarray(rounding.reshape(shape), dtype=np.float64))


@dataclass(frozen=True)
class Draws(Counts):
    """The law of J = Bin(draws, 1/of): how often one of ``of`` records comes up in so many draws with replacement."""

    rate: float = field(init=False)
    most: int = field(init=False)
    of: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", 1 / self.of)
        object.__setattr__(self, "most", self.records)

    @cached_property
    def weights(self) -> Floats:
        """By ratios in 60 digits, each within one unit."""
        return _draws(self)

    @property
    def some(self) -> float:
        """P(J > 0), rounded up."""
        return min(-math.expm1(self.log_never) * (1 + 8 * UNIT), 1.0)

    def fewer(self) -> Draws:
        least = math.ceil(-1.01 * self.records / LEAST_LOG_NEVER) + 1
        return self if self.log_never > LEAST_LOG_NEVER else Draws(self.records, max(self.of, least))


@lru_cache(maxsize=64)
def _draws(law: Draws) -> Floats:
    with localcontext(Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        term = (law.records * (1 - 1 / Decimal(law.of)).ln()).exp()
        masses = []
        for j in range(law.records + 1):
            masses.append(float(term))
            if masses[-1] < SMALLEST and j * law.of > law.records:
                break
            term = term * (law.records - j) / ((j + 1) * (law.of - 1))
    weights = np.array(masses)
    if weights[0] < SMALLEST:
        raise OverflowError("the chance that none takes part underflows")
    return weights[weights >= SMALLEST]


@lru_cache(maxsize=64)
def _weights(law: Counts) -> Floats:
    """In whole numbers: C(k, j)·n^j·(d − n)^{k−j}/d^k with q = n/d."""
    n, d = law.rate.as_integer_ratio()
    k, whole = law.records, d**law.records
    term, rest = (d - n) ** k, whole
    masses = []
    for j in range(law.most):
        masses.append(term / whole)
        rest -= term
        term = term * n * (k - j) // ((d - n) * (j + 1))
    masses.append(rest / whole)
    weights = np.array(masses)
    kept = np.flatnonzero(weights >= SMALLEST)
    if not kept.size or kept[0] > 0:
        raise OverflowError("the chance that none takes part underflows")
    return weights[: int(kept[-1]) + 1]
