"""The sum of scores of t normal releases, k of which are shifted.

Its laws with and without the shifts give lower bounds.

A step's score is log(1 − q + qr), r = e^{μx − μ²/2}, rounded to a multiple of a spacing: whatever q and the spacing
are, the sum is a function of what is released, and so is its residue modulo a number of points: sums are convolved on a
circle, directly, all terms ≥ 0, and no mass is missing. Proof: ``proofs/allocation.md``, §6.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.special import ndtr

_SIZE = 4096
"""Points of the circle, about."""

_SPREAD = 8.5
"""So many standard deviations of the sum are around the circle: what is beyond is told as something else."""

_FAR, _NORMAL = 12.0, 37.0
"""Standard deviations beyond which all is one cell; and up to which masses are normal numbers under both laws."""


class Laws(NamedTuple):
    """The two laws of the sum modulo some number of points, in order around its middle.

    Attributes:
        with_shifts: masses.
        without: masses.
        relative: by how much each may be off.
    """

    with_shifts: Floats
    without: Floats
    relative: float


class _Law(NamedTuple):
    """Masses of the residues, within one relative error."""

    masses: Floats
    relative: float


@QUIET
def _cells(mu: float, rate: float, spacing: float, size: int, shift: float) -> _Law:
    """The score of one release with this mean, modulo ``size`` points."""
    first = math.floor(np.logaddexp(math.log1p(-rate), math.log(rate) - mu * (_FAR + 0.5 * mu)) / spacing)
    last = math.ceil(np.logaddexp(math.log1p(-rate), math.log(rate) + mu * (_FAR + mu)) / spacing)
    last = min(last, first + 8 * _SIZE)
    edges = spacing * (np.arange(first, last) + 0.5)
    log_r = np.log(np.maximum(np.expm1(edges) + rate, 0.0)) - math.log(rate)
    x = (log_r + 0.5 * mu * mu) / mu
    # Any border will do that both laws share: far ones are at infinity.
    near, far = max(-_FAR, mu - _NORMAL), min(mu + _FAR, _NORMAL)
    x = np.maximum.accumulate(np.where(np.isnan(x) | (x < near), -np.inf, np.where(x > far, np.inf, x)))
    low, high = np.append(-np.inf, x) - shift, np.append(x, np.inf) - shift
    left = high <= 0
    mass = np.where(left, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high))
    ends = np.where(left, ndtr(high), ndtr(-low)) * (1 + np.minimum(np.where(left, high, low) ** 2, 1e4))
    some = np.append(x, np.inf) > np.append(-np.inf, x)  # of a cell whose mass is lost in rounding nothing is known
    folded = np.zeros(-(-mass.size // size) * size)
    folded[: mass.size] = mass
    masses = np.roll(folded.reshape(-1, size).sum(axis=0), first % size)
    return _Law(masses, float((16 * UNIT * ends[some] / mass[some]).max()) + UNIT * (folded.size // size))


def _sum(a: _Law, b: _Law) -> _Law:
    """Convolved around the circle: all terms are ≥ 0, and nothing is left out."""
    size = a.masses.size
    whole = np.append(np.convolve(a.masses, b.masses), 0.0)
    return _Law(whole[:size] + whole[size:], a.relative + b.relative + UNIT * (size + 8))


def _power(law: _Law, count: int) -> _Law:
    found = law
    for bit in bin(count)[3:]:
        found = _sum(found, found)
        if bit == "1":
            found = _sum(found, law)
    return found


def scores(mu: float, steps: int, shifted: int, rate: float) -> Laws | None:
    """Return both laws of the sum on one circle; None if it would be too long, or all scores are one number."""
    # Only the circle's size is chosen from these rounded moments: any size is valid.
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
    # What rounding does to the mean, and more than it does to the spread.
    drift = steps * float(weights[0] @ (spacing * np.rint(score / spacing) - score))
    more = (
        0.5 * spacing * (_SPREAD * math.sqrt(steps) + 4) + max(drift, 0.0),
        0.5 * spacing * _SPREAD * math.sqrt(steps) - min(drift, 0.0),
    )
    window = math.floor((min(low, 0.0) - more[1]) / spacing) - 1, math.ceil((max(high, 0.0) + more[0]) / spacing) + 1
    size = window[1] - window[0]
    if size > 8 * _SIZE:
        return None
    plain, moved_law = _cells(mu, rate, spacing, size, 0.0), _cells(mu, rate, spacing, size, mu)
    others = _power(plain, steps - shifted)
    p, q = (_sum(others, _power(law, shifted)) for law in (moved_law, plain))
    relative = max(p.relative, q.relative)
    # With fewer digits the lower end is worth nothing.
    if not relative < 1e-3:
        return None
    return Laws(np.roll(p.masses, -window[0]), np.roll(q.masses, -window[0]), relative)
