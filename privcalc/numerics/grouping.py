"""Which entries of a run share a grid (``schedule.py``), and the grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from privcalc.numerics.faces import Prepared, Transform
from privcalc.numerics.floats import short
from privcalc.numerics.normal_loss import quadrature_error, trapezoid
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.schedule import PreparedSchedule, Schedule, log_odds

LEAST = 4
"""Entries from which a common grid is worth its while."""

RATIO, SPREAD = 1.5, 12.0
"""Entries share a grid if no μ is more than so many times another, and no two means lie more than so many μ apart."""

_MAX_NODES = 60_000
"""Empirical: more are refused as too slow."""


class ScheduleTransform(Schedule):
    """The product of sampled Gaussians' transforms as one transform."""

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


def grouped(entries: list[tuple[Transform, int]]) -> list[tuple[Transform, int]]:
    """Return the same entries with sampled Gaussians of one direction and of like parameters as one transform."""
    sampled = [(t, n) for t, n in entries if isinstance(t, SampledGaussianTransform)]
    if len(sampled) < LEAST:
        return entries
    found: list[tuple[Transform, int]] = [(t, n) for t, n in entries if not isinstance(t, SampledGaussianTransform)]
    for add, part in groupby(
        sorted(sampled, key=lambda entry: (entry[0].add, entry[0].mu)), lambda entry: entry[0].add
    ):
        for alike in _alike(list(part)):
            if len(alike) < LEAST:
                found += alike
            else:
                mu, q, count = (
                    np.array(x, dtype=np.float64) for x in zip(*((t.mu, t.q, n) for t, n in alike), strict=True)
                )
                found.append((ScheduleTransform(mu, q, count, add), 1))
    return found


def _alike(
    entries: list[tuple[SampledGaussianTransform, int]],
) -> Iterator[list[tuple[SampledGaussianTransform, int]]]:
    """Cut a list that ascends in μ where μ has grown too much, and each piece where the means lie too far apart."""
    while entries:
        least = entries[0][0].mu
        size = next((i for i, (t, _) in enumerate(entries) if t.mu > RATIO * least), len(entries))
        piece, entries = entries[:size], entries[size:]
        mean = log_odds(np.array([t.q for t, _ in piece]), 0.5) - 0.5 * np.array([t.mu for t, _ in piece]) ** 2
        order, means = np.argsort(mean, kind="stable").tolist(), mean.tolist()
        start = 0
        for i in range(1, size + 1):
            if i == size or means[order[i]] - means[order[start]] > SPREAD * least:
                yield [piece[j] for j in order[start:i]]
                start = i
