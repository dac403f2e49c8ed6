"""Runs whose losses take few values: every value of their sum, with its probability.

Sums of nonnegative terms keep their relative precision. Values closer than a tiny gap are merged, so that losses with a
common step, and the same sum reached in different orders, stay one value. With L' within ``shift`` of the loss and
masses within a relative error, δ is bounded at ε ± shift. Proof: ``proofs/atoms.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.elementary import repeated
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, RouteFailed, TradeOff
from privcalc.numerics.solve import Bounds

_LIGHT = 1e-307
"""Masses below this are left out of convolutions: subnormal numbers are slow."""


@dataclass(frozen=True, eq=False)
class Masses:
    """Masses at first, first + 1, …: each within a relative error, and all but ``missing`` of the law."""

    first: float
    values: Floats
    relative: float
    missing: float


def lost_tails(half: float) -> float:
    """What a log-concave law with masses down to ``half`` steps from its mode has below 2.3e-308.

    Where the mass, relative to the mode, has fallen by e^{−708} in d steps, it falls by e^{−708/d} in every later one.
    """
    return 4.6e-308 * (1 + half / 708)


def binomial(p: float, odds: float, count: int) -> Masses:
    """Bin(count, p) by ratios outward from the mode; ``odds`` = p/(1 − p) to within 8 units.

    One ratio, with its product, is off by 11 units. Beyond 19√n of the mean is at most 2e^{−722} (Hoeffding 1963,
    Theorem 1).
    """
    mode = min(int((count + 1) * p), count)
    width = int(19 * math.sqrt(count)) + 4
    b = np.arange(mode, min(mode + width, count), dtype=np.float64)
    with np.errstate(under="ignore"):
        above = np.cumprod((count - b) / (b + 1) * odds)
        b = np.arange(mode, max(mode - width, 0), -1, dtype=np.float64)
        below = np.cumprod(b / (count - b + 1) / odds)
    above, below = above[above > 0], below[below > 0]
    weights = np.concatenate((below[::-1], [1.0], above))
    total = float(weights.sum())
    distance = np.abs(np.arange(weights.size) - below.size)
    steps = float(distance.max()) + float(distance @ weights) / total * (1 + 1e-9)
    missing = 1e-312 + lost_tails(float(distance.max()))
    return Masses(mode - below.size, weights / total, (12 * steps + 80) * UNIT, missing)


def power(base: Masses, count: int) -> Masses:
    """The sum of ``count`` independent draws, by squaring; each convolution is a sum of products ≥ 0."""
    return repeated(base, count, _add)


def _add(a: Masses, b: Masses) -> Masses:
    """The sum of two independent draws; trimmed where the masses fall below the cut."""
    with np.errstate(under="ignore"):
        values = np.convolve(a.values, b.values)
    kept = np.flatnonzero(values > _LIGHT)
    low, high = int(kept[0]), int(kept[-1]) + 1
    terms = min(a.values.size, b.values.size)
    # Products that underflow lose at most 5e-324 each.
    lost = float(values[:low].sum() + values[high:].sum()) * (1 + 1e-6) + 5e-324 * (a.values.size * b.values.size)
    relative = (1 + a.relative) * (1 + b.relative) * (1 + (terms + 2) * UNIT) - 1
    return Masses(a.first + b.first + low, values[low:high], relative + 2 * UNIT, a.missing + b.missing + lost)


def decayed_sums(values: Floats, step: float) -> Floats:
    """Σ_{b ≥ j} values_b e^{−step·(b − j)} for every j, by doubling: the rounding grows with log₂ of the size."""
    total = values.copy()
    span = 1
    with np.errstate(under="ignore"):
        while span < total.size and (decay := math.exp(-step * span)) > 0:
            total[:-span] += decay * total[span:]
            span *= 2
    return total


class AtomLaw:
    """A loss L = offset + step·index whose index has the given masses under P.

    With T_j = Σ_{b ≥ j} p_b e^{ℓ_j − ℓ_b}, D_j = Σ_{b ≥ j} p_b (1 − e^{ℓ_j − ℓ_b}) = (1 − e^{−step}) Σ_{i > j} T_i, and
    ℓ_j the first loss above ε: δ(ε) = D_j + (1 − e^{ε − ℓ_j})·T_j and e^ε Q(L > ε) = e^{ε − ℓ_j}·T_j.
    """

    def __init__(self, masses: Masses, step: float, offset: float) -> None:
        values = self.masses = masses.values
        index = np.arange(masses.first, masses.first + values.size, dtype=np.float64)
        self.losses = step * index + offset
        self.tails = decayed_sums(values, step)
        self.heads = np.append(-math.expm1(-step) * decayed_sums(self.tails[1:], 0.0), 0.0)
        # The step is off by 5 units, which e^{−x}, x ≤ 745, sees as 3725; each doubling rounds three times,
        # in both sums.
        self.mass_error = masses.relative
        self.relative = masses.relative + (3800 + 6 * (values.size.bit_length() + 1)) * UNIT
        self.missing = masses.missing + TINY
        self.slack = 8 * UNIT * (np.abs(step * index) + abs(offset))

    def profile(self, epsilon: Floats) -> ProfileValues:
        """The profile of the atoms (``Pair.profile``).

        Losses are off by ``slack``, which moves δ by slack·e^ε Q(L ≥ ε), and the slope by slack.
        """
        j = np.searchsorted(self.losses, epsilon, side="right")
        inside = j < self.losses.size
        j = np.minimum(j, self.losses.size - 1)
        x = np.minimum(epsilon - self.losses[j], 0.0)
        with np.errstate(under="ignore"):
            tail = np.where(inside, np.exp(x) * self.tails[j], 0.0)
            delta = np.where(inside, self.heads[j] - np.expm1(x) * self.tails[j], 0.0)
        below = np.maximum(np.where(inside, j, self.losses.size) - 1, 0)  # it may lie above ε in truth
        near = np.abs(epsilon - self.losses[below]) <= self.slack[below]
        share = np.where(tail > 0, delta, 0.0)  # e/δ covers what the slope is off by, relative to it
        moved = 2 * self.slack[j] * (tail + share) + np.where(near, self.slack[below] * self.tails[below], 0.0)
        return ProfileValues(delta, tail, self.relative * delta + moved + self.missing)


MAX_WORK = 300_000
"""Products of masses that one enumeration may form: about 30 ms."""

GAP = 2.0**-44
"""Values closer than this, relative to the largest of the run, are merged."""

SUBNORMAL = 2.3e-308
"""Masses below this have no relative precision."""

_CUT = 1e-300
"""Masses below this are left out."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """Losses, ascending, each within ``shift``; masses under P within a relative error; all but ``missing``.

    ``missing`` is a part of the law.
    """

    losses: Floats
    masses: Floats
    relative: float
    shift: float
    missing: float = TINY
    complete: bool = False
    """Whether Q has no mass elsewhere, either."""

    @classmethod
    def of(cls, law: AtomLaw) -> Atoms:
        """From equally spaced ones."""
        kept = law.masses >= SUBNORMAL
        missing = law.missing + SUBNORMAL * (law.masses.size - int(np.count_nonzero(kept)))
        return cls(law.losses[kept], law.masses[kept], law.mass_error, float(law.slack.max()), missing)

    def sampled(self, rate: float, *, add: bool) -> Atoms | None:
        """Poisson sampling: q_j = p_j e^{−L_j} and L'_j = log(1 − q + q e^{L_j}); added, the loss is −L' under Q."""
        if not self.complete:
            return None
        near = (self.losses < 30) & (rate * np.expm1(np.minimum(self.losses, 30.0)) > -0.5)
        with np.errstate(divide="ignore", under="ignore"):
            far = np.logaddexp(np.log1p(-rate), math.log(rate) + self.losses)
        losses = np.where(near, np.log1p(rate * np.expm1(np.where(near, self.losses, 0.0))), far)
        weight = np.exp(-self.losses) if add else rate + (1 - rate) * np.exp(-self.losses)
        # Where a loss is off, so is e^{−L}, and L' by q e^{L−L'} ≤ 1 times that.
        size = 8 * UNIT * (2 + self.reach - math.log(rate))
        slope = np.minimum(rate * np.exp(np.minimum(self.losses - losses, 700.0)), 1.0)
        shift = float(np.max(np.where(near, 8 * UNIT * np.abs(losses), size) + self.shift * slope)) * 1.01
        relative = (self.relative + self.shift + size) * 1.01
        if not relative < 1e-9:
            return None
        order = slice(None, None, -1 if add else 1)
        masses = (self.masses * weight)[order]
        return Atoms((-losses if add else losses)[order], masses, relative, shift, 1e-300, complete=True)

    @functools.cached_property
    def reach(self) -> float:
        """The largest absolute value of a loss."""
        return float(max(abs(self.losses[0]), abs(self.losses[-1])))

    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ(ε) = Σ p (1 − e^{ε − L})_+, a sum of terms ≥ 0."""
        moved = self.shift + 4 * UNIT * (abs(epsilon) + self.reach)
        margin = self.relative + (self.losses.size + 64) * UNIT
        low, high = (self._value(epsilon + move) for move in (moved, -moved))
        return max(low * (1 - margin) - TINY, 0.0), min(high * (1 + margin) + self.missing, 1.0)

    @functools.cached_property
    def _sums(self) -> tuple[Floats, ...]:
        """Q of each value, P and Q of it and all larger ones, P of all smaller ones; underflow counts as nothing."""
        p = self.masses
        with np.errstate(under="ignore", over="ignore"):
            q = np.exp(np.minimum(np.log(p) - self.losses, 0.0))
            above = [np.append(decayed_sums(x, 0.0), 0.0) for x in (p, q)]
            return q, *above, np.append(0.0, decayed_sums(p[::-1], 0.0)[::-1])

    def trade_off(self, alpha: float) -> TradeOff | None:
        """The trade-off curve of Q against P at 0 < α < 1, from the best test and from lines below all tests.

        Proof: ``proofs/atoms.md``. None where losses or α are beyond doubles.
        """
        p, (q, above_p, above_q, below_p) = self.masses, self._sums
        # What is off by rounding: e^L and q by their exponents, below 710 + |L|, and sums by their doublings.
        off = self.shift + UNIT * (4 * (710 + self.reach) + 2 * p.size.bit_length() + 64)
        down, up = 1 - (self.relative + 3 * off), 1 + (self.relative + 3 * off)
        if not (off < 1e-3 and alpha > 10 * TINY):
            return None
        # All values from the j-th on have at most α of Q; and a share of the one before.
        j = int(np.argmax(above_q * up + TINY <= alpha))
        share = 0.0
        if j > 0:
            share = min((alpha - above_q[j] * up - TINY) / (q[j - 1] * up + TINY), 1.0) * (1 - 4 * UNIT)
        at = max(j - 1, 0)
        power = (above_p[j] + share * p[at]) * down
        missed = (below_p[at] + (1 - share) * p[at] if j > 0 else 0.0) * up + self.missing
        # No test has more than E_P(1 − xe^{−L})_+ + xα, for every x: those just below and above each value.
        kept = int(np.searchsorted(self.losses, 690.0))
        with np.errstate(under="ignore", over="ignore"):
            low, high = (np.exp(self.losses[:kept] + move) for move in (-off, off))
            rest = low * ((above_q[:kept] * down - TINY) - alpha)
            least = below_p[:kept] * down + rest - 4 * UNIT * (below_p[:kept] + np.abs(rest))
            rest = high * (alpha - (above_q[1 : kept + 1] * down - TINY))
            most = above_p[1 : kept + 1] * up + rest + 4 * UNIT * (above_p[1 : kept + 1] + np.abs(rest))
        bounds = float(least.max(initial=0.0)), float(most.min(initial=1.0)) + self.missing
        return TradeOff((bounds[0], float(missed)), (float(power), bounds[1])).tidy(alpha)

    def guess(self, delta: float) -> float:
        """The first value at or beyond which δ(ε) ≤ δ, near enough."""
        low, high = 0, self.losses.size - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._value(float(self.losses[middle])) <= delta else (middle + 1, high)
        return float(self.losses[low])

    def _value(self, epsilon: float) -> float:
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        return float(self.masses[first:] @ -np.expm1(epsilon - self.losses[first:]))


def add(a: Atoms, b: Atoms, gap: float) -> Atoms:
    """The sum of two independent losses; cells of width ``gap`` are merged into their lowest value."""
    with np.errstate(under="ignore"):
        masses = np.multiply.outer(a.masses, b.masses).ravel()
    losses = np.add.outer(a.losses, b.losses).ravel()
    order = np.argsort(losses)
    losses, masses = losses[order], masses[order]
    cell = np.floor(losses * (1 / gap))
    first = np.flatnonzero(np.concatenate([[True], cell[1:] > cell[:-1]]))
    merged, losses = np.add.reduceat(masses, first), losses[first]
    kept = merged > _CUT
    if not kept.any():
        raise RouteFailed("all masses underflow")
    # A product that underflows, and all that is left out, is below the cut.
    missing = a.missing + b.missing + (masses.size - int(np.count_nonzero(kept)) + 1) * 2 * _CUT
    most = int(np.diff(np.append(first, masses.size)).max())
    relative = (1 + a.relative) * (1 + b.relative) * (1 + (most + 4) * UNIT) - 1 + 4 * UNIT
    # The quotients, up to 2^44, are rounded: a cell may be wider by a hundredth.
    shift = a.shift + b.shift + 1.01 * gap + 4 * UNIT * (a.reach + b.reach)
    return Atoms(losses[kept], merged[kept], relative, shift, missing)


def enumerate_sums(entries: Iterable[tuple[Atoms | None, int]]) -> Atoms:
    """The loss of a run, from the atoms and the count of every part.

    Raises:
        RouteFailed: if there are too many values, or a part has no atoms.
    """
    parts = []
    for part, count in entries:
        if part is None or count > MAX_WORK:
            raise RouteFailed("the loss takes too many values")
        parts.append((part, count))
    work = 0
    gap = GAP * max(math.fsum(count * part.reach for part, count in parts), 1e-290)

    def join(a: Atoms, b: Atoms) -> Atoms:
        nonlocal work
        work += a.losses.size * b.losses.size
        if work > MAX_WORK:
            raise RouteFailed("the loss takes too many values")
        return add(a, b, gap)

    laws = [repeated(part, count, join) for part, count in parts]
    laws.sort(key=lambda law: law.losses.size)
    return functools.reduce(join, laws)
