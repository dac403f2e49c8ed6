"""The jumps route: the contour integral, one term for every way in which rare large jumps may happen.

Where a few rare large jumps carry the tail, e^{cL} at the saddle c is dominated by jumps that are far too large, and
float64 loses what is asked for. So every use is marked with the band of its noise variable (``bands.py``), and the
composed law is a sum of measures ≥ 0, one for each way to mark the uses: n of them in bands above an edge, the rest,
the *bulk*, below. Each term

    δ_k(ε) = (1/2πi) ∫ w_k M_bulk(s)^{T−n} Π_i M_i(s)^{k_i} e^{−sε} / (s(s + 1)) ds,      w_k = T!/((T − n)! Π k_i!),

has its own saddle. Terms that a Chernoff bound shows to be small are only bounded, and those with a jump that surely
exceeds ε need no integral (``Sure``). Proofs: ``proofs/jumps.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement, groupby

import numpy as np

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.interfaces import Prepared, RouteFailed, TransformCounts
from privcalc.numerics.routes.bands import Band, log_beyond
from privcalc.numerics.routes.contour import DIGITS, Axis, Contour, assemble, axis, place, truncate
from privcalc.numerics.routes.terms import Family, Sure, log_sum, of_terms
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.solve import Bounds

MOST_JUMPS = 3
MOST_TERMS = 60
MOST_BANDS = 40

SMALL = 24.0
"""−log of the share of δ that may be bounded only."""

NEEDED = 5.0
"""−log of the share of δ from which a term must be integrated: without it, the answer would be wide."""

MOST_NODES = 60_000

WIDE = 8.0
"""The largest ratio of the ends of an interval for ε with which a plan is made."""

BLURS = (0.25, 0.1, 0.04, 0.016, 0.0064)


_UNDERFLOW = 1e-200
"""More than everything that underflows: what does is below 1e-300, times at most count^3."""


@dataclass(frozen=True)
class Jumps:
    """The terms that were integrated, those only bounded, the probability of what is in no term; sure terms."""

    terms: list[tuple[float, Contour]]
    small: Family
    rest: float
    sure: Sure | None = None

    @QUIET
    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ(ε)."""
        upper = self.rest + float(self.small.chernoff(epsilon).sum()) + _UNDERFLOW
        lower = 0.0
        if self.sure is not None:
            lower, more = self.sure.bounds(epsilon)
            upper += more
        for log_weight, contour in self.terms:
            weight = math.exp(log_weight)
            low, high = contour.bounds(epsilon)
            lower, upper = lower + weight * low * (1 - 1e-13), upper + weight * high * (1 + 1e-13)
        if math.isnan(lower) or math.isnan(upper):
            return 0.0, 1.0
        return min(max(lower * (1 - 1e-13), 0.0), 1.0), min(upper * (1 + 1e-13), 1.0)


@QUIET
def build(
    entries: TransformCounts, *, delta: float | None = None, epsilon: float | None = None, known: tuple[float, float]
) -> tuple[Jumps, float]:
    """Choose bands and terms for a target δ or a target ε.

    Args:
        entries: transforms with counts; one of them a sampled Gaussian in the remove direction.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or where it is expected, or None.
        known: an interval of what is asked, from elsewhere; used to plan only.

    Returns:
        The terms, and an estimate of what was asked.

    Raises:
        RouteFailed: if the run is of another kind, or too many terms matter.
    """
    try:
        return _build(entries, delta, epsilon, known)
    except (ArithmeticError, ValueError) as error:
        raise RouteFailed(str(error)) from error


def _build(
    entries: TransformCounts, delta: float | None, epsilon: float | None, known: tuple[float, float]
) -> tuple[Jumps, float]:
    sampled = [(t, n) for t, n in entries if isinstance(t, SampledGaussianTransform)]
    if len(sampled) != 1 or sampled[0][0].add:
        raise RouteFailed("not one sampled Gaussian")
    others = [(t, n) for t, n in entries if not isinstance(t, SampledGaussianTransform)]
    target = math.log(delta if delta is not None else max(known[0], 1e-3 * known[1]))
    reach = (epsilon, epsilon) if epsilon is not None else (known[0] or 1e-3 * known[1], known[1])
    while 0 < WIDE * reach[0] < reach[1] < math.inf:  # from above: bands do not serve for a c that is far too large
        low, high = reach[1] / WIDE, reach[1]
        eps, _, _ = _choose(sampled[0], others, target, (low, high))
        if eps > 1.1 * low:
            reach = (max(reach[0], 0.5 * eps), min(high, 2 * eps))
            break
        reach = (reach[0], 1.5 * low)
    for _ in range(3):
        eps, estimate, plan = _choose(sampled[0], others, target, reach)
        if delta is not None or abs(estimate - target) < 2:
            break
        target = estimate
    try:
        built = plan.integrate(eps, target)
    except RouteFailed:  # sharper edges may do: the bulk decays further where they are not felt
        narrower = tuple(blur for blur in BLURS if blur < plan.blur)
        eps, estimate, plan = _choose(sampled[0], others, target, reach, narrower)
        built = plan.integrate(eps, target)
    return built, (math.exp(estimate) if delta is None else eps)


def _choose(
    sampled: tuple[SampledGaussianTransform, int],
    others: TransformCounts,
    target: float,
    reach: tuple[float, float],
    blurs: tuple[float, ...] | None = None,
) -> tuple[float, float, _Layout]:
    """The widest edges that serve, with estimates of ε and log δ."""
    if not -600 < target < 0 or not 0 < reach[0] <= reach[1] < math.inf:
        raise RouteFailed("no window")
    c_ref = -target / reach[0]
    c = np.asarray(c_ref * np.geomspace(1e-3, 3.0, 140), dtype=np.float64)
    rest = [(t.prepare(c[-1], n, -800.0, cut=True), n) for t, n in others]
    best: tuple[float, float, _Layout] | None = None
    for blur in BLURS if blurs is None else blurs:
        try:
            plan = _Layout(*sampled, rest, c, target, blur, c_ref)
        except RouteFailed:  # too wide for so large a c, or too narrow
            continue
        eps = plan.solve(target, reach)
        estimate = plan.all.log_delta(eps)
        # Too wide an edge lets jumps through that should be cut, which makes the terms larger than they are.
        if best is not None and best[2].all.log_delta(eps) - estimate <= 0.3:
            break
        best = (eps, estimate, plan)
    if best is None:
        raise RouteFailed("no bands serve")
    return best


class _Layout:
    """Bands from an edge beyond which few uses jump to one beyond which none does, and K of all of them."""

    def __init__(
        self,
        pair: SampledGaussianTransform,
        count: int,
        others: list[tuple[Prepared, int]],
        c: Floats,
        target: float,
        blur: float,
        c_ref: float,
    ) -> None:
        self.pair, self.count, self.others, self.c, self.blur, self.c_ref = pair, count, others, c, blur, c_ref
        few = (target - SMALL + math.lgamma(MOST_JUMPS + 2)) / (MOST_JUMPS + 1) - math.log(count)
        self.log_far = target - DIGITS - math.log(count)
        low, high = (self._edge(x) for x in (few, self.log_far))
        if not high > low:
            raise RouteFailed("jumps are no rarer than δ")
        width = max(min(0.75, 3 / math.sqrt(1 + pair.mu * high)), (high - low) / MOST_BANDS)
        self.edges = low + width * np.arange(math.ceil((high - low) / width) + 1)
        self.bands = [self._band(a, b) for a, b in zip(self.edges[:-1].tolist(), self.edges[1:].tolist(), strict=True)]
        self.k = np.array([np.add(*band.log_real(c)) for band in self.bands])
        self.mass = np.array([band.log_mass() for band in self.bands])
        self.rest_k = sum((n * np.add(*part.log_real(c)) for part, n in others), np.zeros_like(c))
        self.bulk_k = np.add(*self._band(-math.inf, low).log_real(c))
        self.all = self.family(self.bulk_k, 0)

    def _edge(self, log_mass: float) -> float:
        """Where one use lies beyond with at most this probability."""
        low, high = 0.0, 200.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = log_beyond(self.pair.mu, self.pair.q, middle, self.blur) > log_mass
            low, high = (middle, high) if above else (low, middle)
        return high

    def _band(self, low: float, high: float) -> Band:
        return Band(self.pair.mu, self.pair.q, low, high, self.blur, self.count, self.c_ref, self.log_far)

    def family(self, bulk_k: Floats, first: int) -> Family:
        """All terms with at most so many jumps, in bands from ``first`` on."""
        marks: list[tuple[int, ...]] = []
        weights, ks, masses = [], [], []
        for n in range(min(MOST_JUMPS, self.count) + 1):
            chosen = list(combinations_with_replacement(range(first, len(self.bands)), n))
            index = np.array(chosen, dtype=np.int64).reshape(len(chosen), n)
            ways = sum(math.log(self.count - i) for i in range(n))
            repeats = [sum(math.lgamma(len(list(same)) + 1) for _, same in groupby(mark)) for mark in chosen]
            weight = ways - np.array(repeats)
            marks += chosen
            weights.append(weight)
            total = (self.count - n) * bulk_k + self.rest_k + self.k[index].sum(axis=1) + weight[:, None]
            ks.append(total + 1e-11 + 32 * UNIT * np.abs(total))
            masses.append(weight + self.mass[index].sum(axis=1) + 1e-11)
        return Family(marks, np.concatenate(weights), self.c, np.concatenate(ks), np.concatenate(masses))

    def solve(self, target: float, reach: tuple[float, float]) -> float:
        """ε from the estimate of log δ."""
        low, high = reach
        peaks = self.all.log_peaks(low)
        family = self.all.part(peaks > min(target, float(np.nanmax(peaks))) - 40)
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if family.log_delta(middle) > target else (low, middle)
        return math.sqrt(low * high)

    def integrate(self, epsilon: float, log_delta: float) -> Jumps:
        """The terms that matter, with the highest lower edge that leaves the bulk tame."""
        worth = log_sum(self.all.log_peaks(epsilon)) + 0.5
        first, bulk_k = 0, self.bulk_k
        for i in range(len(self.bands) - 1):
            merged = np.logaddexp(bulk_k, self.k[i])
            peak = (self.count * merged + self.rest_k + self.all.base(epsilon)).min()
            if not peak <= worth:
                break
            first, bulk_k = i + 1, merged
        try:
            return self._integrate(epsilon, log_delta, first)
        except RouteFailed:
            if not first:
                raise
            # The bulk decays too slowly along the contour; jumps do not.
            return self._integrate(epsilon, log_delta, 0)

    def _integrate(self, epsilon: float, log_delta: float, first: int) -> Jumps:
        """The terms that matter, the bulk ending at a given edge."""
        bulk = self._band(-math.inf, float(self.edges[first]))
        family = self.family(np.add(*bulk.log_real(self.c)), first)
        peaks = np.minimum(family.log_peaks(epsilon), np.log(family.chernoff(epsilon)))
        terms, done, above = [], np.zeros(peaks.size, dtype=np.bool_), None
        if not self.others:
            each = of_terms(family, bulk, self.bands)
            done = each.below(epsilon) <= log_delta - SMALL - math.log(peaks.size)
            above, peaks = each.part(done), np.where(done, -math.inf, peaks)
        order = np.argsort(-peaks)
        cut = max(float(peaks[order[min(MOST_TERMS, order.size - 1)]]), log_delta - SMALL - math.log(10.0))
        for i in order[peaks[order] > cut].tolist():
            try:
                terms.append(self._term(family, i, bulk, epsilon, log_delta))
                done[i] = True
            except RouteFailed:
                if peaks[i] > log_delta - NEEDED:
                    raise
            if sum(contour.log.size for _, contour in terms) > MOST_NODES:
                raise RouteFailed("the terms need too many nodes")
        n = MOST_JUMPS + 1
        jump, far = (
            math.log(self.count) + log_beyond(self.pair.mu, self.pair.q, edge, self.blur)
            for edge in self.edges[[first, -1]].tolist()
        )
        rest = math.exp(min(n * jump - math.lgamma(n + 1), 0.0)) * (self.count >= n) + math.exp(far)
        rest += self.count * math.fsum(band.far for band in (bulk, *self.bands[first:]))
        return Jumps(terms, family.part(~done), rest * (1 + 1e-9), above)

    def _term(self, family: Family, i: int, bulk: Band, epsilon: float, log_delta: float) -> tuple[float, Contour]:
        """log w_k and the contour integral of one term, to a precision relative to the whole δ."""
        mark, log_weight = family.marks[i], float(family.log_weight[i])
        jumps = [(self.bands[b], len(list(same))) for b, same in groupby(mark)]
        parts: list[tuple[Prepared, int]] = [*self.others, (bulk, self.count - len(mark)), *jumps]
        parts = [(part, n) for part, n in parts if n > 0]
        line = Axis(self.c, family.k[i] - log_weight, np.zeros_like(self.c), float(family.mass[i]) - log_weight)
        values = family.k[i] + family.base(epsilon)
        at = int(np.argmin(values))
        if self.c[at] < 0.1 * self.c_ref:  # the jumps exceed ε: no saddle but with the kernel's log c
            values = values - np.log(self.c)
            at = int(np.argmin(values))
        c_star, scale = float(self.c[at]), log_delta - log_weight
        c, d = place(line, epsilon, scale, c_star, DIGITS)
        step = 2 * math.pi / d
        log_c = math.log(self.c[1] / self.c[0])
        around = values[max(at - 1, 0) : at + 2]
        curvature = (
            max((float(around[0] + around[-1] - 2 * values[at]) / log_c**2 if around.size == 3 else 0.0), 0.3)
            / c_star**2
        )
        peak = float(axis(parts, np.array([c])).k[0]) - c * epsilon
        if not peak > -600:
            raise RouteFailed("a term is out of range")
        slack = max(peak - math.log(c) - math.log1p(c) - scale, -DIGITS)
        size, tail = truncate(parts, c, step, math.sqrt(2 * (DIGITS + slack + 1) / curvature), scale - peak - DIGITS)
        if size > MOST_NODES:
            raise RouteFailed("a term needs too many nodes")
        return log_weight, assemble(parts, line, c, step, size, tail)
