"""Contours of some records from moments: Chernoff's bound, an upper bound of δ(ε), and ε.

See ``proofs/audit_contours.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.records.bank import Bank
from privcalc.numerics.records.decay import BLOCKS, Decay
from privcalc.numerics.records.table import NormTable


@dataclass(frozen=True, eq=False)
class Fall:
    """|e^{K(c + iu) − K(c)}| ≤ e^{−fall[j]} for u ≥ blocks[j], fall of shape (n, BLOCKS)."""

    blocks: Floats
    fall: Floats


def falls_of(parts: list[Bank], decays: list[Decay | None]) -> Fall:
    """How much the transform of each record falls along the contour, by the best of the straight lines."""
    fall = np.zeros((parts[0].reach.size, BLOCKS))
    for part, decay in zip(parts, decays, strict=True):
        if decay is None:
            continue
        blocks, noise = decay.blocks, part.unit * part.scale
        certain = np.maximum(part.moments[:, 0] - noise - part.count * decay.a0, 0.0)
        squares = 0.5 * part.domain * (part.moments[:, 1] + part.moments[:, 0] + 2 * noise)
        best = np.zeros_like(fall)
        for alpha, beta in zip(*decay.lines, strict=True):
            best = np.maximum(best, np.multiply.outer(certain, alpha) - np.multiply.outer(squares, beta))
        fall += np.maximum.accumulate(best, axis=1)
    return Fall(blocks, fall)


@dataclass(frozen=True, eq=False)
class Lines:
    """Contours of some records in one direction: K at the nodes and what may be missing.

    Attributes:
        c, step: the line.
        k: K(c), shape (n,), and ``error`` a bound on its error at every node, shape (n, size).
        weights: |f(c + iu)|/e^{K(c) − cε}, shape (n, size), the first halved.
        phase: the argument of f at ε = 0, shape (n, size).
        turn: |Im K|, shape (n, size).
        tail: Σ_j e^{−decay}(1/U_j − 1/U_{j+1}), shape (n,).
    """

    c: float
    step: float
    k: Floats
    error: Floats
    weights: Floats
    phase: Floats
    turn: Floats
    tail: Floats

    @classmethod
    def of(cls, parts: list[Bank], tables: list[NormTable | None], fall: Fall) -> Lines:
        """From moments and coefficients."""
        real = imag = error = np.zeros((parts[0].reach.size, 1))
        for part, table in zip(parts, tables, strict=True):
            if table is None:
                continue
            c, step, size = table.c, table.step, table.error.size
            noise = part.unit * part.scale
            total = part.moments[:, 0] + noise
            both = part.moments @ np.concatenate([table.coefficients.real, table.coefficients.imag], axis=1)
            real, imag = real + both[:, :size], imag + both[:, size:]
            error = error + table.missed(total, noise, part.count)
        u = step * np.arange(size)
        s = c + 1j * u
        k = real[:, 0]
        weights = np.exp(real - k[:, None]) / np.abs(s * (s + 1))
        weights[:, 0] *= 0.5
        last = float(u[-1])
        here = fall.blocks <= last  # the first block starts at the last node; it has what was known below
        if here.any() and size > 1:
            edges = np.append(last, fall.blocks[~here])
            widths = np.append(1 / edges[:-1] - 1 / edges[1:], 1 / edges[-1])
            tail = np.exp(-fall.fall[:, int(here.sum()) - 1 :]) @ widths * (1 + 1e-9)
        else:
            tail = np.full(k.size, math.inf)
        return cls(c, step, k, error, weights, imag - np.arctan2(u, c) - np.arctan2(u, c + 1), np.abs(imag), tail)

    def chernoff(self, delta: float) -> Floats:
        """ε from δ ≤ e^{K(c) − cε}c^c/(1 + c)^{1 + c} (Canonne, Kamath, Steinke 2020, Proposition 12)."""
        c = self.c
        top = (
            self.k
            + self.error[:, 0]
            + 16 * UNIT * np.abs(self.k)
            - math.log1p(c)
            - c * math.log1p(1 / c)
            - math.log(delta)
        )
        return np.asarray(
            np.nan_to_num(np.maximum(top / c * (1 + 8 * UNIT) + 1e-15, 0.0), nan=math.inf), dtype=np.float64
        )

    def upper(self, epsilon: Floats) -> Floats:
        """log of an upper bound of δ(ε), for any real ε."""
        u = self.step * np.arange(self.weights.shape[1])
        turn = np.multiply.outer(epsilon, u)
        total = np.sum(self.weights * np.cos(self.phase - turn), axis=1)
        slack = np.expm1(self.error) + UNIT * (
            4 * np.abs(turn)
            + 4 * self.turn
            + (8 * np.abs(self.k) + 8 * self.c * np.abs(epsilon) + u.size + 96)[:, None]
        )
        error = np.sum(self.weights * slack, axis=1)
        tail = np.exp(self.error[:, 0]) * self.tail / self.step
        whole = (total + error + tail) * (1 + 1e-12) * self.step / math.pi
        return np.asarray(self.k - self.c * epsilon + np.log(np.where(whole > 0, whole, math.inf)), dtype=np.float64)

    def off(self, epsilon: Floats, delta: float) -> Floats:
        """How much smaller δ(ε) is without the bounds of its errors, in ε, over 1e-4·ε + 1e-6."""
        angle = self.phase - np.multiply.outer(epsilon, self.step * np.arange(self.weights.shape[1]))
        total = np.sum(self.weights * np.cos(angle), axis=1) * self.step / math.pi
        short = math.log(delta) - (self.k - self.c * epsilon + np.log(np.maximum(total, 1e-300)))
        apart = np.where(np.isfinite(epsilon), short / (self.c * (1e-4 * np.minimum(epsilon, 1e300) + 1e-6)), math.inf)
        return np.asarray(
            np.where(epsilon <= 0, 0.0, np.nan_to_num(apart, nan=math.inf, posinf=math.inf)), dtype=np.float64
        )

    def invert(self, epsilon: Floats, delta: float) -> Floats:
        """ε with upper(ε) ≤ log δ, checked; ∞ where none was found."""
        goal, u = math.log(delta), self.step * np.arange(self.weights.shape[1])
        # Where f is largest δ is still above the goal, as c lies below the saddle; Newton's method,
        # kept inside what is known.
        low = self.phase[:, 1] / self.step
        high = np.full(epsilon.size, math.inf)
        epsilon = np.where(epsilon > low, epsilon, low)
        slope = np.full(epsilon.size, self.c)
        for _ in range(9):
            angle = self.phase - np.multiply.outer(epsilon, u)
            total = np.maximum(np.sum(self.weights * np.cos(angle), axis=1), 1e-300)
            slope = np.maximum(self.c - np.sum(self.weights * np.sin(angle) * u, axis=1) / total, 0.8 * self.c)
            value = self.k - self.c * epsilon + np.log(total * self.step / math.pi) - goal
            low, high = np.where(value > 0, epsilon, low), np.where(value > 0, high, epsilon)
            new = epsilon + np.clip(value / slope, -6 / self.c, 6 / self.c)
            inside = (new >= low) & (new <= high) & (value > -1.0)
            epsilon = np.where(inside, new, 0.5 * (low + np.minimum(high, low + 6 / self.c)))
        found = np.full(epsilon.size, math.inf)
        for attempt in range(5):
            above = self.upper(epsilon) - goal
            found = np.where(above <= 0, np.minimum(found, epsilon), found)
            if np.isfinite(found).all():
                break
            # With room for what a step may leave, and for an error that does not fall as δ does.
            epsilon = epsilon + np.where(above > 0, (above * (1.02 + 0.5 * attempt) + 1e-9) / slope, 0.0)
        return np.asarray(np.where(np.isfinite(found), np.maximum(found, 0.0), math.inf), dtype=np.float64)
