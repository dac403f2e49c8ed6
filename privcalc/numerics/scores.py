"""The sum of scores of t normal releases, k of which are shifted: its laws with and without the shifts, for lower bounds.

A step's score is log(1 − q + qr), r = e^{μx − μ²/2}, rounded to a multiple of a spacing: whatever q and the spacing are, the
sum is a function of what is released. Sums are convolved directly, all terms ≥ 0. Proof: ``proofs/allocation.md``, §6.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.routes.route import QUIET
from privcalc.numerics.special import ndtr

_SIZE = 4096
"""Points of the lattice."""

_SPREAD = 8.5
"""So many standard deviations of the sum are covered."""

_RARE = 1e-30


class Laws(NamedTuple):
    """Of the sum.

    Attributes:
        with_shifts: masses.
        without: masses.
        relative: by how much they may be off, what is missing included.
    """

    with_shifts: Floats
    without: Floats
    relative: float


class _Law(NamedTuple):
    """Masses from a first index on, within one relative error."""

    first: int
    masses: Floats
    relative: float


@QUIET
def _cells(mu: float, rate: float, spacing: float, shift: float) -> _Law:
    """The score of one release with this mean."""
    reach = 38.0
    first = math.floor(np.logaddexp(math.log1p(-rate), math.log(rate) - mu * (reach + 0.5 * mu)) / spacing)
    last = math.ceil(np.logaddexp(math.log1p(-rate), math.log(rate) + mu * (reach + mu)) / spacing)
    last = min(last, first + 8 * _SIZE)
    edges = spacing * (np.arange(first, last) + 0.5)
    log_r = np.log(np.maximum(np.expm1(edges) + rate, 0.0)) - math.log(rate)
    x = np.append(-np.inf, (log_r + 0.5 * mu * mu) / mu) - shift
    x = np.maximum.accumulate(np.where(np.isnan(x), -np.inf, x))
    low, high = x, np.append(x[1:], np.inf)
    left = high <= 0
    mass = np.where(left, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high))
    ends = np.where(left, ndtr(high), ndtr(-low)) * (1 + np.minimum(np.where(left, high, low) ** 2, 1e4))
    mass = np.where(mass > _RARE, mass, 0.0)
    return _Law(first, mass, float((16 * UNIT * ends / np.maximum(mass, _RARE))[mass > 0].max()))


def _sum(a: _Law, b: _Law, window: tuple[int, int]) -> _Law:
    """Convolved, without what lies outside the window."""
    masses, first = np.convolve(a.masses, b.masses), a.first + b.first
    start, stop = max(window[0] - first, 0), max(window[1] - first, 1)
    kept = masses[start:stop]
    return _Law(first + start, kept, a.relative + b.relative + UNIT * (min(a.masses.size, b.masses.size) + 4))


def _power(law: _Law, count: int, window: tuple[int, int]) -> _Law:
    found = law
    for bit in bin(count)[3:]:
        found = _sum(found, found, window)
        if bit == "1":
            found = _sum(found, law, window)
    return found


def scores(mu: float, steps: int, shifted: int, rate: float) -> Laws | None:
    """Both laws on one lattice; None if too much of them lies outside it, or all scores are one number."""
    x = np.linspace(-9, 9 + mu, 4001)
    weights = [np.exp(-0.5 * (x - m) ** 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi) for m in (0.0, mu)]
    score = np.logaddexp(math.log1p(-rate), math.log(rate) + mu * x - 0.5 * mu * mu)
    (mean, square), (moved, moved_square) = ((float(w @ score), float(w @ score**2)) for w in weights)
    width = math.sqrt(steps * max(square - mean**2, 0.0) + shifted * max(moved_square - moved**2, 0.0))
    far = float(np.logaddexp(math.log1p(-rate), math.log(rate) + mu * (7 + 0.5 * mu)))
    low = steps * mean - _SPREAD * width
    high = (steps - shifted) * mean + shifted * moved + _SPREAD * width + far
    spacing = (high - low) / _SIZE
    if not spacing > UNIT:  # scores differ by their rounding
        return None
    plain, moved_law = _cells(mu, rate, spacing, 0.0), _cells(mu, rate, spacing, mu)
    # What rounding does to the mean, and more than it does to the spread.
    drift = steps * (spacing * float((plain.first + np.arange(plain.masses.size)) @ plain.masses) - mean)
    more = (
        0.5 * spacing * (_SPREAD * math.sqrt(steps) + 4) + max(drift, 0.0),
        0.5 * spacing * _SPREAD * math.sqrt(steps) - min(drift, 0.0),
    )
    window = math.floor((min(low, 0.0) - more[1]) / spacing) - 1, math.ceil((max(high, 0.0) + more[0]) / spacing) + 1
    if window[1] - window[0] > 8 * _SIZE:
        return None
    others = _power(plain, steps - shifted, window)
    ends = [_sum(others, _power(law, shifted, window), window) for law in (moved_law, plain)]
    first = min(law.first for law in ends)
    size = max(law.first + law.masses.size for law in ends) - first
    p, q = (np.pad(law.masses, (law.first - first, size - law.first + first - law.masses.size)) for law in ends)
    missing = max(abs(1 - float(p.sum())), abs(1 - float(q.sum())))
    return Laws(p, q, max(law.relative for law in ends) + missing) if missing < 1e-7 else None
