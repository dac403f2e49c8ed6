"""How fast the sampled Gaussian's |M(s; x)| falls along a line, for all x = (norm ratio / noise multiplier)² at once.

The argument y of the mixture is turned by iθ. Every bound here is proved in ``proofs/audit_contours.md``, §1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import Floats
from privcalc.numerics.records.line import Line, log_mixture_rows
from privcalc.numerics.records.table import PANELS, Panel, panels_below

LINES, BLOCKS = 4, 14
"""Straight lines below the decay per x, as a function of x."""

_CELLS = 128
"""Cells of the last octave in which the decay is bounded; half as many in each octave below it."""


@dataclass(frozen=True)
class Decay:
    """How fast |M| falls along a line, and where along it that is known.

    Attributes:
        blocks: heights u, ascending, shape (BLOCKS,).
        lines: α, β of shape (2, LINES, BLOCKS): |M(c + iu; x)| ≤ M(c; x)·e^{−α(x − a0) + βx²} for every u ≥ blocks[j].
        a0: end of the first panel.
    """

    blocks: Floats
    lines: Floats
    a0: float


def decay(q: float, add: bool, c: float, reach: float, count: int) -> Decay:
    """The decay of |M| along Re s = c for x in [0, reach]; arguments and errors as of ``build``."""
    blocks = np.asarray(1.5 * c * 1.3 ** np.arange(BLOCKS), dtype=np.float64)
    if q == 1:  # |M(c + iu; x)| = M(c; x)·e^{−u²x/2}
        fall = np.broadcast_to(0.5 * blocks * blocks * (1 - 1e-12), (LINES, BLOCKS))
        return Decay(blocks, np.stack([fall, np.zeros((LINES, BLOCKS))]), 0.0)
    line = Line(q, add, c, c, 1, count)
    panels = panels_below(line, reach)
    return Decay(blocks, _decay(line, blocks, panels), panels[0].a)


def _decay(line: Line, blocks: Floats, panels: list[Panel]) -> Floats:
    """Lines below d(u; x)/x, d = log M(c; x) − log G_θ(u; x), from bounds on cells.

    See ``proofs/audit_contours.md``, §1.
    """
    c = line.c
    power = np.abs(line.power + 1j * blocks)
    rate = power * (power + 1) / (c * (c + 1))
    ratios, places = [], []
    for k, panel in enumerate(panels):
        edges = panel.a * np.linspace(1.0, 2.0, max(_CELLS >> (PANELS - 1 - k), 4) + 1)
        low, high = edges[:-1, None], edges[1:, None]
        x, half = 0.5 * (low + high), 0.5 * (high - low)
        f = panel(x[:, 0])[:, :1].real
        log_m = x * (f - panel.missed[0])
        theta, value, error = _rotated(line, x, blocks, x * (f + panel.missed[0]))
        moved = half * panel.slope * rate * np.cos(0.5 * theta) ** (-2 - (c if line.add else 0.0))
        d = log_m - half * panel.slope - 0.5 * theta**2 / low - np.log(value + error + moved)
        ratios.append(d / high)
        places.append(low[:, 0])
    found = np.concatenate(ratios) * (1 - 1e-9)
    where = np.concatenate(places)
    lines = np.zeros((2, LINES, blocks.size))
    for k in range(LINES):
        part = where < where[-1] * 1.1 * 4.0**-k
        lines[0, k] = np.maximum(found[part].min(axis=0), 0.0)
        lines[1, k] = np.maximum((lines[0, k] - found) / where[:, None], 0.0).max(axis=0) * (1 + 1e-9)
    return lines


def _rotated(line: Line, x: Floats, blocks: Floats, log_m: Floats) -> tuple[Floats, Floats, Floats]:
    """θ, E_x[|1 − q + qe^{y + iθ}|^p e^{−u·arg}] and what it may miss, by a trapezoid rule on the real line.

    Arguments and results have the shape (cells, blocks); x and log M (an upper bound) are columns.
    """
    mu, p, q = np.sqrt(x), line.power, line.q
    top = float(mu.max())
    eta = 0.22
    t = np.arange(-9.5, max(9.5, p * top + 9.5), eta)
    log = log_mixture_rows(mu, q, t)
    tilted = np.exp(p * log - 0.5 * t * t)
    share = np.sum(tilted * (1 - (1 - q) * np.exp(-log)), axis=1, keepdims=True) / tilted.sum(axis=1, keepdims=True)
    limit = min(0.5 * math.pi, 2 / math.sqrt(line.c)) if line.add else 0.5 * math.pi
    theta = np.minimum(blocks * share * x, 0.6 * limit)
    r = q * np.exp(np.minimum(mu * t - 0.5 * x, 600.0))[:, None, :]
    real, imag = 1 - q + r * np.cos(theta)[:, :, None], r * np.sin(theta)[:, :, None]
    exponent = 0.5 * p * np.log(real * real + imag * imag) - blocks[:, None] * np.arctan2(imag, real) - 0.5 * t * t
    value = np.exp(exponent).sum(axis=2) * eta / math.sqrt(2 * math.pi)
    up = np.minimum((limit - theta) / mu, 4.0)
    kappa = np.cos(0.5 * (theta + mu * up)) ** (-line.c) if line.add else 1.0
    rule = 2 * kappa * np.exp(0.5 * up * up + log_m) / np.expm1(2 * math.pi * up / eta)
    left = 2e-21 * (1 + ((1 - q) ** p * np.cos(0.5 * theta) ** (-line.c) if line.add else 0.0))
    right = 2e-21 * np.cos(0.5 * theta) ** (-line.c) if line.add else line.beyond(x[:, 0], float(t[-1]) - eta)[:, None]
    return theta, value, rule + left + right + 1e-13 * value
