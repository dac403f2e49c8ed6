"""The best of a random number of trials, from the whole profile of one trial: a mixture of shifts of that profile.

Proof: ``proofs/tuning.md``, §5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import TINY, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.pairs.pair import LeakPair, Pair, SymmetricPair

Derivative = Callable[[Floats], Floats]
"""a ↦ f′(1 − a), f the generating function of the number of trials; falls."""

_CELLS = 8_000
"""Ranks at which weights and prices are taken: any are valid, more make the bound tighter."""
_LEAST = 1e-12
"""The least rank apart from 0: any is valid, a small one makes the bound tight for many trials."""
_NODES = 200
"""Shifts of the mixture: any are valid, more make the bound tighter."""
_POINTS = 2_000
"""Losses of the table: between them chords bound the profile, more make the bound tighter."""
_SPARE = 1e-11
"""More than all rounding of the mixture, relative to f′(1)."""
_FAR = 1e-200
"""The least price, relative to the largest weight."""
_CUT = 1e-40
"""So unlikely a best trial is set apart where prices are less than that."""


@dataclass(frozen=True)
class Table:
    """Upper bounds of a profile, in both orders, at losses 0 = τ₀ < τ₁ < …; between them its chords in e^τ bound it."""

    losses: tuple[float, ...]
    deltas: tuple[float, ...]

    @functools.cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        """e^τ, δ, and minus the slope after each loss, 0 after the last."""
        z, deltas = np.exp(self.losses), np.array(self.deltas)
        return z, deltas, np.append(-np.diff(deltas) / np.diff(z), 0.0)

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """δ and e^x times minus the slope, at any real x: below 0 by the other order, 1 − e^x(1 − δ(−x))."""
        z, deltas, slopes = self._arrays
        there = np.exp(np.minimum(np.abs(x), self.losses[-1]))
        i = np.searchsorted(z, there, side="right") - 1  # z₀ = 1 ≤ there
        delta = np.maximum(deltas[i] - slopes[i] * (there - z[i]), 0.0)
        tail = there * slopes[i] * (np.abs(x) < self.losses[-1])
        scale = np.exp(np.minimum(x, 0.0))
        mirrored = -np.expm1(np.minimum(x, 0.0)) + scale * delta
        return np.where(x < 0, mirrored, delta), np.where(x < 0, np.maximum(scale * (1 - delta - tail), 0.0), tail)

    def power(self, a: Floats) -> Floats:
        """Bound from above the probability, under either law, of events of probability a under the other."""
        x, d = np.exp(np.array(self.losses))[:, None], np.array(self.deltas)[:, None]
        power = np.full_like(a, 1.0)
        for part in np.array_split(np.arange(a.size), max(1, a.size // 1000)):
            lines = np.minimum(x * a[part] + d, 1 - (1 - a[part] - d) / x + 1e-15)
            power[part] = lines.min(axis=0)
        return np.asarray(np.minimum(power * (1 + 1e-14) + 1e-300, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class TunedPair(SymmetricPair):
    """A bound of the profile of the best of several trials, for both orders."""

    table: Table

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Between the losses of the table, its chords."""
        delta, tail = self.table.at(np.asarray(epsilon, dtype=np.float64))
        return ProfileValues(delta, tail, 1e-9 * delta + TINY)

    @property
    def max_loss(self) -> float:
        """The last one: δ is 0 there."""
        return self.table.losses[-1] * (1 + 1e-12)

    @property
    def zcdp(self) -> float:
        """ε-DP implies min(ε, ε²/2)-zCDP."""
        return min(self.max_loss, 0.5 * self.max_loss**2) * (1 + 1e-12)

    def log_moment(self, c: Floats) -> Floats:
        """By the largest loss: more is known of the trials' divergences than of this profile."""
        return np.asarray(c * self.max_loss, dtype=np.float64)

    @property
    def convex(self) -> bool:
        """Each order's bound is, both together need not be."""
        return False


def _cells(table: Table, derivative: Derivative) -> tuple[Floats, Floats, float]:
    """Largest weights and least prices by rank, and the probability that the best trial is at a rank beyond those.

    There is none unless some price is nearly 0, as where K = 1 is unlikely, or many trials are all but certain.
    """
    a = np.concatenate([[0.0], np.geomspace(_LEAST, 1.0, _CELLS)])
    best = float(derivative(a[:1])[0])
    if not derivative(a[-1:])[0] > _FAR * best:
        a = np.concatenate([a[a < 0.5], 1 - np.geomspace(0.5, 100 * _LEAST, _CELLS // 2), [1.0]])
    gain, price = derivative(a[:-1]) * (1 + 1e-12), derivative(table.power(a[1:])) * (1 - 1e-12)
    dear = ~(price > _FAR * best)
    if not dear.any():
        return gain, price, 0.0
    beyond = (1 - a[:-1]) * gain * (1 + 1e-12)
    last = int(np.argmax(dear | (beyond <= _CUT)))
    return gain[:last], price[:last], float(beyond[last])


def steepest(table: Table, derivative: Derivative, orders: Floats) -> Floats:
    """log sup f′(q)^λ f′(q′)^{1 − λ} over the events of one trial, over λ − 1, for orders λ; at λ = ∞ the limit."""
    gain, price, beyond = _cells(table, derivative)
    if beyond:
        return np.full_like(orders, math.inf)
    logs = np.log(gain)
    rises = logs - np.log(price)
    return np.array([float((rises + logs / (order - 1)).max()) for order in orders.tolist()])


def tuned(table: Table, derivative: Derivative) -> Pair | None:
    """The pair of the best of K trials: δ(ε) ≤ Σ weight·δ_trial(ε − shift), tabulated; None where doubles do not reach.

    Args:
        table: of one trial.
        derivative: a ↦ f′(1 − a), to a relative 5e-13.
    """
    gain, price, beyond = _cells(table, derivative)
    if not gain.size or beyond >= 1:
        return None
    top = float((gain / price).max()) * (1 + 1e-12)
    u = np.concatenate([[0.0], np.geomspace(1e-3 * min(1.0, top), top, _NODES)])
    values = np.array([max(float((gain - at * price).max()), 0.0) for at in u])
    values[-1] = 0.0
    slopes = np.append(np.diff(values) / np.diff(u), 0.0)
    weights = np.append(np.maximum(np.diff(slopes), 0.0) * u[1:], _SPARE * float(gain[0]))
    shifts = np.append(np.log(u[1:]), math.log(2 * top))
    losses = np.linspace(0.0, table.losses[-1] + float(shifts[-1]), _POINTS)
    deltas = np.zeros_like(losses)
    for weight, shift in zip(weights, shifts, strict=True):
        if weight:
            deltas += weight * table.at(losses - shift)[0]
    deltas = np.minimum.accumulate(np.minimum(deltas * (1 + 1e-12), 1.0))
    # What is left at the end is set apart: beyond it no loss is known.
    left = float(deltas[-1])
    leak = min((left + beyond) * (1 + 1e-15), 1.0)
    rest = np.maximum(deltas - left, 0.0) / (1 - leak) * (1 + 1e-12) if leak < 1 else np.zeros_like(deltas)
    pair = TunedPair(Table(tuple(losses.tolist()), tuple(np.minimum(rest, 1.0).tolist())))
    return LeakPair(pair, leak, 0.0, leak) if leak else pair
