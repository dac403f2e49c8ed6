"""The uses of a direction without its leaks, for routes: merged pairs, their transforms, quick bounds of both."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import groupby

import numpy as np

from privcalc.composition.direction import Direction, collapse, max_loss, merge
from privcalc.numerics.floats import QUIET, TINY, UNIT, Floats
from privcalc.numerics.interfaces import Transform, TransformCounts
from privcalc.numerics.log_moment import slope_error
from privcalc.numerics.routes import contour
from privcalc.numerics.routes.contour import Axis, Saddle, Scan
from privcalc.numerics.routes.lattice import Estimate, log_moments
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.schedule import ScheduleTransform, log_odds
from privcalc.pairs.pair import Pair

LEAST = 4
"""Entries from which a common grid is worth its while."""

RATIO, SPREAD = 1.5, 12.0
"""Entries share a grid if no μ is more than so many times another, and no two means lie more than so many μ apart."""


class Moments:
    """A run on the real axis: K(c) = Σ count·log M(c) bounded from above, δ(ε) ≤ e^{A(c)} for every c > 0.

    A(c) = K(c) − cε + c log c − (1 + c) log(1 + c) (Canonne, Kamath, Steinke 2020, Proposition 12; Asoodeh et al.
    2021). For guarantees that are given as Rényi divergences or zCDP this is the tight conversion at each order.
    """

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self.top = max_loss(direction)
        grid = np.concatenate([np.geomspace(1e-6, 1e9, 151), *(pair.knots for pair, _ in direction)])
        self.grid = np.asarray(np.unique(grid[grid > 0]), dtype=np.float64)
        self.k = self.log_moment(self.grid)
        self.between = functools.lru_cache(512)(self._between)  # questions nearby refine at the same places

    def log_moment(self, c: Floats) -> Floats:
        """An upper bound of K(c)."""
        total = np.zeros_like(c)
        for pair, count in self.direction:
            total = total + count * pair.log_moment(c)
        return total * (1 + 4 * UNIT * (len(self.direction) + 2))

    def _between(self, low: float, high: float) -> tuple[Floats, Floats]:
        """13 points, and K at them."""
        c = np.geomspace(low, high, 13)
        return c, self.log_moment(c)

    def delta(self, epsilon: float) -> float:
        """An upper bound of δ(ε)."""
        if epsilon >= self.top:
            return 0.0

        def log_delta(c: Floats, k: Floats) -> Floats:
            return Axis(c, k, np.zeros_like(c)).log_chernoff(epsilon)

        return min(math.exp(min(self._least(log_delta), 0.0)) * (1 + 1e-14) + TINY, 1.0)

    def epsilon(self, delta: float) -> float:
        """An upper bound of the smallest ε ≥ 0 with δ(ε) ≤ δ."""
        if delta == 0:
            return self.top

        log_delta = math.log(delta)

        def loss(c: Floats, k: Floats) -> Floats:
            # A is rounded upwards; log δ, and the difference, which may cancel, are off by two units of each.
            a = Axis(c, k, np.zeros_like(c)).log_chernoff(0.0)
            return (a - log_delta + 4 * UNIT * (np.abs(a) + abs(log_delta))) / c

        return min(max(self._least(loss) * (1 + 1e-14), 0.0), self.top)

    def _least(self, function: Callable[[Floats, Floats], Floats]) -> float:
        """The least value met on a grid that is refined around it until its neighbours are no larger.

        Every value is valid.
        """
        c, k = self.grid, self.k
        best = math.inf
        for _ in range(9):
            values = np.nan_to_num(function(c, k), nan=math.inf, posinf=math.inf)
            at = int(np.argmin(values))
            best = min(best, float(values[at]))
            left, right = max(at - 1, 0), min(at + 1, c.size - 1)
            if not math.isfinite(best) or max(values[left], values[right]) - best <= 1e-13 * min(abs(best), 1.0):
                break
            c, k = self.between(float(c[left]), float(c[right]))
        return best


def rough(direction: Direction) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Bounds of δ that are always available: any single use from below; zCDP from above (at the best order)."""
    rho = math.fsum(count * pair.zcdp for pair, count in direction) * (1 + 8 * UNIT)
    top = max_loss(direction)
    c = np.geomspace(1e-6, 1e12, 400)
    line = Axis(c, rho * c * (c + 1), 4 * UNIT * rho * c * (c + 1))

    def lower(epsilon: float) -> float:
        return (
            max((_any_jump(pair, count, epsilon) for pair, count in direction[:64]), default=0.0)
            if epsilon < top
            else 0.0
        )

    def upper(epsilon: float) -> float:
        if epsilon >= top:
            return 0.0
        return min(math.exp(min(0.0, float(line.log_chernoff(epsilon).min()))) * (1 + 1e-12) + TINY, 1.0)

    return lower, upper


def _any_jump(pair: Pair, count: int, epsilon: float) -> float:
    """A lower bound of δ(ε) from the test "some use has a loss above t", for a few t: P(S) − e^ε Q(S) of that event S.

    A line below a profile is a test (``proofs/tails.md``, §1), so that p and r need not be those of exactly this t.

    Where large losses are rare it is nearly sharp. With p = P(L > t) and r = Q(L > t): 1 − (1 − p)^n − e^ε (1 − (1 −
    r)^n).
    """
    t = epsilon * np.array([1.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02])
    delta, tail, error = pair.profile(t)
    blur = slope_error(delta, tail, error)
    p = np.minimum(np.maximum((delta - error + tail - blur) * (1 - 1e-11), 0.0), 1.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        above = tail + blur + TINY
        r = np.minimum(above * np.exp(-t), 1.0)
        # Near underflow: 1 − (1 − r)^n ≤ nr, and e^ε r in one exponential.
        other = math.exp(min(epsilon, 700.0)) * -np.expm1(count * np.log1p(-r))
        other = np.where(r > 1e-290, other, count * above * np.exp(epsilon - t))
        value = -np.expm1(count * np.log1p(-p)) - other
        rounding = 1e-11 * (np.minimum(count * p, 1.0) + other) + TINY
    single = max(float(delta[0] - error[0]), _every_jump(pair, count, epsilon), 0.0)
    if epsilon >= 700:
        return single
    return max(single, float(np.nanmax(np.where(np.isfinite(value), value - rounding, 0.0))))


def _every_jump(pair: Pair, count: int, epsilon: float) -> float:
    """A lower bound of δ(ε) from the test "every use has a loss above t": p^n − e^ε r^n.

    It is sharp near a largest loss that is an atom.
    """
    t = epsilon / count * np.array([0.9, 0.99, 0.999, 0.9999])
    delta, tail, error = pair.profile(t)
    blur = slope_error(delta, tail, error)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        log_p = count * np.log(np.maximum((delta - error + tail - blur) * (1 - 1e-11), 0.0))
        log_r = epsilon + count * (np.log(tail * (1 + 1e-9) + blur + 1e-300) - t)  # a tail that underflowed is not 0
        value = np.exp(np.minimum(log_p, 0.0)) * (1 - 1e-9) - np.exp(np.minimum(log_r, 700.0)) * (1 + 1e-9) - TINY
    return float(np.nanmax(np.where(np.isfinite(value), value, 0.0), initial=0.0))


def _on_axis(direction: Direction, delta: float, known: float) -> float:
    """An upper bound of ε, no larger than the known one, for points that are chosen for that."""
    entries = [(pair.transform, count) for pair, count in direction if pair.transform is not None]
    best = known
    if len(entries) < len(direction) or not 0 < known < math.inf:
        return best
    for share in (0.5, 0.9):
        log_mass = math.log(share * delta / len(entries))
        points = -math.log(delta) / known * np.geomspace(0.3, 3e4, 60)
        for part in (points[:20], points[:40], points):
            try:
                prepared = [(t.prepare(part[-1], n, log_mass, cut=True), n) for t, n in entries]
            except OverflowError:
                break
            line = contour.axis(prepared, part)
            left = delta - math.fsum(n * t.lost for t, n in prepared) * (1 + 1e-9)
            if left <= 0:
                continue
            log_left = line.log_chernoff(0.0) - math.log(left) + 1e-9
            found = float(np.nan_to_num(log_left / part, nan=math.inf).min())
            best = min(best, max(found * (1 + 1e-12), 0.0))
    return best


FAR = -100.0
"""log of what may be left out where only a plan is made."""


class Uses:
    """A direction without its leaks, in the forms that routes take.

    Attributes:
        pairs: equal ones once: for routes that know the composition of many uses.
        each: the same, a composition in closed form being one use: for routes that pay for every use.
        top: an upper bound of the loss.
        estimates: rough transforms of pairs, by which lattices are laid: made once.
        saddle: about where that of an ε is, and so δ(ε); None where none is found. Only plans rely on it.
    """

    def __init__(self, direction: Direction) -> None:
        self.pairs = merge(direction)
        self.each = collapse(self.pairs)
        self.top = max_loss(self.pairs)
        self.estimates = functools.cache(Estimate)
        self.saddle = functools.lru_cache(1024)(self._saddle)

    @cached_property
    def sides(self) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """Bounds of δ(ε) that are always available, from below and from above."""
        return rough(self.pairs)

    @cached_property
    def _scan(self) -> Scan:
        return Scan(self._log_moments)

    def _log_moments(self, c: Floats) -> Floats:
        if self.transforms is not None:
            with contextlib.suppress(OverflowError):
                return contour.axis(contour.prepare(self.transforms, c[-1], FAR, cut=True), c).k
        return log_moments(list(self.pairs), self.estimates, c)

    @QUIET
    def _saddle(self, epsilon: float | None, delta: float | None = None) -> Saddle | None:
        try:
            return self._scan.saddle(delta, epsilon)
        except (ArithmeticError, ValueError):
            return None

    def saddle_of(self, delta: float) -> Saddle | None:
        """The same for a δ."""
        return self._saddle(None, delta)

    @cached_property
    def transforms(self) -> TransformCounts | None:
        """All transforms with their counts; None where a pair has none."""
        found = [(pair.transform, count) for pair, count in self.pairs]
        known = [(transform, count) for transform, count in found if transform is not None]
        return grouped(known) if len(known) == len(found) else None

    @property
    def number(self) -> int:
        """How many uses there are to pay for."""
        return sum(count for _, count in self.each)

    @property
    def one(self) -> Pair | None:
        """The only use, where there is but one."""
        return self.each[0][0] if len(self.each) == 1 and self.each[0][1] == 1 else None

    def guess(self, delta: float) -> float:
        """A first ε: the zCDP bound ρ + 2√(ρ log 1/δ) (Bun, Steinke 2016, Proposition 1.3); 1 where no ρ is known."""
        known = self.one.guess(delta) if self.one is not None else None
        if known is not None:
            return known
        rho = math.fsum(count * pair.zcdp for pair, count in self.pairs)
        if rho == math.inf:
            return min(1.0, 0.999 * self.top)
        return min(rho + 2 * math.sqrt(rho * -math.log(delta)), 0.999 * self.top, 1e300)

    def on_axis(self, delta: float, known: float) -> float:
        """ε from the real axis alone, after leaving out a rare event that is paid for with a share of δ.

        Where a few large jumps carry the tail, M explodes long before the saddle; without them it does not. Points are
        chosen for what is known: where that was far off, again.
        """
        for _ in range(6):
            found = _on_axis(self.pairs, delta, known)
            if not 0 < found < 0.5 * known:
                return found
            known = found
        return known


def grouped(entries: list[tuple[Transform, int]]) -> list[tuple[Transform, int]]:
    """Return the same entries with sampled Gaussians of one direction and of like parameters as one transform."""
    sampled = [(t, n) for t, n in entries if isinstance(t, SampledGaussianTransform)]
    if len(sampled) < LEAST:
        return entries
    transforms = [(t, n) for t, n in entries if not isinstance(t, SampledGaussianTransform)]
    for add, part in groupby(
        sorted(sampled, key=lambda entry: (entry[0].add, entry[0].mu)), lambda entry: entry[0].add
    ):
        for alike in _alike(list(part)):
            if len(alike) < LEAST:
                transforms += alike
            else:
                mu, q, count = (
                    np.array(x, dtype=np.float64) for x in zip(*((t.mu, t.q, n) for t, n in alike), strict=True)
                )
                transforms.append((ScheduleTransform(mu, q, count, add), 1))
    return transforms


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
