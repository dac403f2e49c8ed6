"""Compositions of Poisson-sampled Gaussians in high precision: the contour integral of ``reference``.

Each integral is taken on two lines that differ in position, step, rotation, cuts and precision, and
returned only when both agree to the requested digits (otherwise ``ArithmeticError``). Errors are
made small and compared; they are not bounded.

With privacy loss L, M(s) = E[e^{sL}] and K = sum of count * log M, any c > 0 where M(c) is finite
gives (Zhu, Dong, Wang 2022)

    delta(eps) = (1 / 2 pi i) * integral over Re s = c of e^{K(s) - s eps} / (s (s + 1)) ds
              ~= e^{-c eps} Re sum_{j >= 0} a_j e^{-i j h eps}       (trapezoid rule, step h).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from mpmath import mp, mpf

__all__ = [
    "Direction",
    "Entry",
    "Order",
    "Real",
    "run_bounds",
    "run_delta",
    "run_deltas",
    "run_epsilon",
    "sampled_gaussian_delta",
    "sampled_gaussian_epsilon",
]

Order = Literal["remove", "add"]
Direction = Order | Literal["replace"]
Entry = tuple[float, float, int]  # (noise multiplier, sampling rate, count >= 1)
Real: TypeAlias = float | mpf
Number: TypeAlias = Callable[[Any], Any]  # from mpmath's numbers to those that are calculated with
_Floats: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_WIDTH, _MOST_NODES, _MOST_POINTS = 32, 400_000, 10**7  # nodes in a row of a block, on one line, and points x, at most


# --- where to integrate (double precision; of this only ``run_bounds`` enters a result) -----------


class _Line(NamedTuple):
    """Re s = real and the trapezoid step, with estimates of K(real) and of log delta at every eps."""

    real: float
    step: float
    log_peak: float
    log_deltas: list[float]


def _powers(direction: Direction, c: Real) -> tuple[Real, Real]:
    """The powers of w(x) = 1-q + q r(x) and of w(-x) that make up e^{cL} times the density's ratio to N(0, z^2)."""
    if direction == "replace":
        return c + mpf(1), -mpf(c)  # c + 1.0 would round
    return (c + mpf(1), mpf(0)) if direction == "remove" else (-mpf(c), mpf(0))


def _window(z: float, q: float, direction: Direction, c: float, step: float, cut: float) -> tuple[_Floats, _Floats]:
    """Numbers k, and log of w(x)^p w(-x)^n e^{-x^2 / 2z^2} at x = k step, within ``cut`` of the peak.

    All stationary points lie in [0, p - n] for p > 0. For p < 0 one at x = -y has y <= -pq r(x) / (1-q) and y <= -pq.
    """
    p, n = map(float, _powers(direction, c))
    reach, high = z * math.sqrt(2 * cut), max(p - n, 0.0)
    low = max(p * q, -z * z * math.log1p(-p * q / ((1 - q) * z * z))) if p < 0 else 0.0
    if high - low + 2 * reach > _MOST_POINTS * step:
        raise ArithmeticError("too many points for the quadrature")
    k = np.arange(math.floor((low - reach) / step), math.ceil((high + reach) / step) + 1)
    x, stay, jump = k * step, math.log1p(-q), math.log(q)
    up, down = (np.logaddexp(stay, jump + (2 * y - 1) / (2 * z * z)) for y in (x, -x))
    values = p * up + n * down - (x / z) ** 2 / 2
    kept = values > values.max() - cut
    return k[kept], values[kept]


def _log_moment(entries: Sequence[Entry], direction: Direction, c: float, coarse: float = 1.0) -> float:
    """K(c) at real c > 0; a power -c of w makes peaks narrower, never below 2 z^2 / sqrt(c)."""
    total = 0.0
    for z, q, count in entries:
        if q == 1:
            total += count * c * (c + 1) / (2 * z * z)
            continue
        step = 0.3 * coarse * min(z, z * z, math.inf if direction == "remove" else 2 * z * z / math.sqrt(c))
        _, logs = _window(z, q, direction, c, step, 45.0)
        mass = float(np.exp(logs - logs.max()).sum()) / (z * math.sqrt(2 * math.pi))
        total += count * (float(logs.max()) + math.log(mass * step))
    return total


def _chernoff(log_moment: float, c: float) -> float:
    """Log of the largest delta(eps) e^{c eps} of any curve with this K(c) (sharp)."""
    return log_moment + c * math.log(c) - (1 + c) * math.log1p(c)


def _lowest(f: Callable[[int], float]) -> int:
    """The k with the lowest f(k), for f decreasing and then increasing."""
    k = min(range(-8, 40, 8), key=f)
    while f(side := min(k - 1, k + 1, key=f)) < f(k):
        k = side
        if not -100 < k < 100:
            raise ArithmeticError("no saddle point: epsilon or delta is out of reach")
    return k


def _plan(
    log_moment: Callable[[float], float], points: Sequence[float], need: float, shift: float, known: Sequence[float]
) -> _Line:
    """The line near the largest eps' saddle with the longest step whose aliases are below e^{-need} delta at every eps.

    ``known`` is what an earlier line found log delta(eps) to be: far less than the estimate where
    unlikely, very large losses keep the line from the saddle of the bulk.

    The rule with step h returns the sum over m of e^{m c D} delta(eps + m D), D = 2 pi / h.
    """

    def real(k: int) -> float:
        return math.exp((k + shift) / 6)

    def exponent(k: int, eps: float) -> float:  # log of the integrand on the real axis, convex
        return log_moment(real(k)) - real(k) * eps - math.log(real(k)) - math.log1p(real(k))

    def saddle(eps: float) -> tuple[int, float]:
        k = _lowest(lambda k: exponent(k, eps))
        curvature = (exponent(k - 1, eps) + exponent(k + 1, eps) - 2 * exponent(k, eps)) / (real(k) / 6) ** 2
        return k, exponent(k, eps) - math.log(2 * math.pi * curvature) / 2

    found = [saddle(eps) for eps in points]
    k = max(k for k, _ in found)
    log_deltas = [min(old, new) - 2 for old, (_, new) in zip(known, found, strict=True)]
    bound = {c: _chernoff(log_moment(c), c) for c in map(real, range(k - 8, k + 9))}
    best = _Line(0.0, 0.0, 0.0, [])
    for c in map(real, range(k - 8, k + 1)):
        period = max(
            max((need - log_delta) / c, min((bound[d] - d * eps - log_delta + need) / (d - c) for d in bound if d > c))
            for eps, log_delta in zip(points, log_deltas, strict=True)
        )
        if 2 * math.pi / period > best.step:
            best = _Line(c, 2 * math.pi / period, log_moment(c), log_deltas)
    return best


def run_bounds(entries: Sequence[Entry], epsilons: Sequence[float], direction: Direction) -> list[float]:
    """Upper bounds of ``run_delta``, at most 1, quickly, in double precision: the moment bound at the best c of a grid.

    For any c > 0 log delta <= K(c) + c log c - (1 + c) log(1 + c) - c eps. K(c) is taken twice, with two steps; where
    they disagree, where rounding might count, or where that takes long, the bound is 1.

    Example:
        >>> run_bounds([(2.0, 1.0, 1)], [1.0], "remove")[0] < 0.02  # it is 0.0068
        True
    """
    log_moment = functools.cache(functools.partial(_log_moment, entries, direction))

    def rate(k: int) -> float:
        return math.exp(k / 6)

    def at(epsilon: float) -> float:
        try:
            c = rate(_lowest(lambda k: _chernoff(log_moment(rate(k)), rate(k)) - rate(k) * epsilon))
            found = log_moment(c), _log_moment(entries, direction, c, 0.7)
        except (ArithmeticError, ValueError):
            return 1.0
        rounding = 2.0**-48 * sum(count * _size(z, q, c) for z, q, count in entries)
        if not (rounding <= 0.01 and abs(found[0] - found[1]) <= rounding + 1e-9):
            return 1.0
        log_delta = _chernoff(max(found), c) - c * epsilon + rounding + 1e-9
        return min(1.0, max(math.exp(min(log_delta, 0.0)), 5e-324))

    if any(q < 1 and z < 0.02 for z, q, _ in entries):
        return [1.0] * len(epsilons)  # millions of points x at each c
    return [at(epsilon) for epsilon in epsilons]


def _size(z: float, q: float, c: float) -> float:
    """At least the sum of the moduli of all added up in a logarithm of ``_window`` (or in the K of a Gaussian)."""
    far = 10 * z + 2 * c + 1  # of x
    return (
        (2 * c + 1) * ((2 * far + 1) / (z * z) - math.log(q) - (math.log1p(-q) if q < 1 else 0.0)) + (far / z) ** 2 + 1
    )


# --- the contour integral -----------------------------------------------------------------------


def _exp(x: Any) -> Any:
    return x.exp() if hasattr(x, "exp") else mp.exp(x)


def _log(x: Any) -> Any:
    return x.log() if hasattr(x, "log") else mp.log(x)


def _terms(entry: Entry, direction: Direction, c: float, turn: float, number: Number) -> list[tuple[Any, Any]]:
    """Pairs (V, E) with M(c + iu) = sum of V e^{uE}, equally accurate for all u >= 0.

    Trapezoid rule on the line x + i angle z^2 (below the real axis for "add"), on which
    |(1-q + q r e^{i angle})^{iu}| decays instead of oscillating.
    """
    z, q, _ = entry
    sign, (p, n) = -1 if direction == "add" else 1, _powers(direction, c)
    falls = direction != "remove"  # a negative power is larger off the real axis
    angle = turn * min(1.5, 2 / z, math.sqrt(20 / c)) if falls else turn * min(3.0, 4 / z)
    need = (mp.prec - 32) * math.log(2) + 2 * (angle * z) ** 2
    need -= c * math.log(math.cos(angle)) if falls else 0.0
    step, half = 2 * math.pi * angle * z * z / need, 1 / (2 * mpf(z) ** 2)
    lift, scale = sign * mpf(angle) * mpf(z) ** 2, number(step * mp.sqrt(half / mp.pi))
    half, rate, up_power, down_power = number(half), number(mpf(q)), number(p), number(n)
    side, terms = number(mp.mpc(0, sign)), []
    for k in _window(z, q, direction, c, step, need)[0].tolist():
        x = number(mp.mpc(k * mpf(step), lift))
        up = _log(1 - rate + rate * _exp((2 * x - 1) * half))
        down = _log(1 - rate + rate * _exp((-2 * x - 1) * half)) if n else number(0)
        terms.append((_exp(up_power * up + down_power * down - x * x * half) * scale, side * (up - down)))
    return terms


class _Ratios:
    """Sums of V e^{jhE} for j = 0, 1, 2, …, taken _WIDTH at a time: a row is the last one times e^{_WIDTH hE}."""

    def __init__(self, terms: Sequence[tuple[Any, Any]], h: Any, flint: ModuleType | None) -> None:
        self.flint, self.first, self.row = flint, 0, [v for v, _ in terms]
        self.sizes = [(float(_log(abs(v))), float((e * h).real)) for v, e in terms]
        across = [_exp(e * h) for _, e in terms]
        self.powers = [list(itertools.accumulate([x] * _WIDTH, operator.mul)) for x in across]

    def next(self, rows: int) -> list[Any]:
        """The sums for the next rows; terms that no longer count are left out."""
        kept = [size + self.first * fall > -mp.prec for size, fall in self.sizes]
        self.row, self.sizes, self.powers = (
            list(itertools.compress(x, kept)) for x in (self.row, self.sizes, self.powers)
        )
        if not self.row:
            return [0] * (rows * _WIDTH)
        left = []
        for _ in range(rows):
            left.append(self.row)
            self.row = [v * power[-1] for v, power in zip(self.row, self.powers, strict=True)]
        self.first += rows * _WIDTH
        across = [[1, *power[:-1]] for power in self.powers]
        if self.flint is None:
            return [mp.fdot(row, column) for row in left for column in zip(*across, strict=True)]
        return [x.mid() for x in (self.flint.acb_mat(left) * self.flint.acb_mat(across)).entries()]


def _weights(
    entries: Sequence[Entry], direction: Direction, line: _Line, small: mpf, turn: float, flint: ModuleType | None
) -> list[Any]:
    """The a_j of the module docstring, until their sum over all further j is below ``small``.

    That sum is judged from the last half block, as if |M| did not increase beyond it. A block is half of what came
    before.
    """
    number: Number = mp.mpmathify if flint is None else flint.acb
    c, h, least, rows = mpf(line.real), mpf(line.step), number(small).real, 2
    scale, factors, weights = number(h / mp.pi), [], list[Any]()
    for z, q, count in entries:
        half = count / (2 * mpf(z) ** 2)
        terms = _terms((z, q, count), direction, line.real, turn, number) if q < 1 else []
        peak = sum((v for v, _ in terms), number(0)).real
        scale *= peak**count if terms else number(mp.exp(half * c * (c + 1)))
        ratios = _Ratios([(v / peak, e) for v, e in terms], number(h), flint) if terms else None
        factors.append((half, count, ratios))
    near, far = number(c), number(c + 1)
    while len(weights) < (_MOST_NODES if flint else _MOST_NODES // 20):
        us = [h * j for j in range(len(weights), len(weights) + rows * _WIDTH)]
        block = [scale / ((near + iu) * (far + iu)) for iu in (number(mp.mpc(0, u)) for u in us)]
        for half, count, ratios in factors:
            if ratios is None:
                powers = [_exp(number(half * u * mp.mpc(-u, 2 * c + 1))) for u in us]
            else:
                powers = [r**count for r in ratios.next(rows)]
            block = [a * b for a, b in zip(block, powers, strict=True)]
        weights += block
        if all(abs(a) * len(weights) < least for a in block[len(block) // 2 :]):
            return [weights[0] / 2, *weights[1:]]
        rows = min(max(64, len(weights) // 2), 4096) // _WIDTH
    raise ArithmeticError("the integrand decays too slowly for the contour integral")


def _sum(weights: Sequence[Any], turn: Any, flint: ModuleType | None) -> mpf:
    """Real part of the sum of a_j turn^j."""
    if flint is not None:
        return mpf(flint.acb_poly(weights)(flint.acb(turn)).real.mid())
    total = mp.mpc(0)
    for a in reversed(weights):
        total = total * turn + a
    return total.real


def _settle(
    entries: Sequence[Entry], direction: Direction, points: Sequence[mpf], digits: int, delta: mpf | None = None
) -> list[mpf]:
    """Delta at every eps or, given delta, the root of delta(eps) = delta near the only eps, when two lines agree."""

    def curve(e: mpf) -> mpf:
        return mp.exp(-line.real * e) * _sum(weights, mp.exp(mp.mpc(0, -line.step * e)), flint)

    log_moment = functools.cache(functools.partial(_log_moment, entries, direction))
    flint: ModuleType | None = None
    previous = [mpf("nan")] * len(points)
    known = [0.0 if delta is None else float(mp.log(delta))] * len(points)
    for attempt in range(6):
        need = (digits + 4 + 3 * attempt) * math.log(10)
        line = _plan(log_moment, [float(eps) for eps in points], need, 0.37 * attempt, known)
        heights = [
            log_delta + line.real * float(eps) for eps, log_delta in zip(points, line.log_deltas, strict=True)
        ]  # of the sum that is taken, before e^{-c eps}
        lost = max(0.0, line.log_peak - min(heights))
        lost += math.log((1 + abs(line.log_peak)) * sum(count for _, _, count in entries))
        bits = int((need + lost) / math.log(2)) + 40
        with contextlib.ExitStack() as stack:
            stack.enter_context(mp.workprec(bits))
            with contextlib.suppress(ImportError):
                flint = importlib.import_module("flint")
                stack.enter_context(flint.ctx.workprec(bits))
            small = mp.exp(min(heights) - need)
            weights = _weights(entries, direction, line, small, 0.5 - 0.04 * attempt, flint)
            if delta is None:
                answers = [curve(eps) for eps in points]
                known = [min(old, float(mp.log(abs(new)))) for old, new in zip(known, answers, strict=True)]
            else:
                low = high = points[0]
                while curve(low) < delta:
                    low -= 1 / mpf(line.real)
                while curve(high) > delta:
                    high += 1 / mpf(line.real)
                options = {"solver": "anderson", "verify": False}
                options["tol"] = abs(high) * mpf(10) ** -(digits + 3)
                points = answers = [mp.findroot(lambda e: mp.log(curve(e) / delta), (low, high), **options)]
            if all(abs(new - old) <= abs(new) * mpf(10) ** -digits for old, new in zip(previous, answers, strict=True)):
                return answers
            previous = answers
    raise ArithmeticError(f"no agreement to {digits} digits")


def run_deltas(entries: Sequence[Entry], epsilons: Sequence[Real], direction: Direction, digits: int = 20) -> list[mpf]:
    """``run_delta`` at several epsilons, for hardly more than the price of the largest.

    Example:
        >>> print(*(mp.nstr(delta, 8) for delta in run_deltas([(2.0, 1.0, 1)], [0.5, 1.0], "remove")))
        0.052440323 0.006829595
    """
    with mp.workdps(digits + 30):
        points = [mpf(epsilon) for epsilon in epsilons]
        bounded = direction == "add" and all(q < 1 for _, q, _ in entries)
        top = -mp.fsum(n * mp.log1p(-mpf(q)) for _, q, n in entries) if bounded else mp.inf
        inside = [eps for eps in points if eps < top]
        found = iter(_settle(entries, direction, inside, digits) if inside else [])
        return [next(found) if eps < top else mpf(0) for eps in points]


def run_delta(entries: Sequence[Entry], epsilon: Real, direction: Direction, digits: int = 20) -> mpf:
    """Delta of a run of (z, q, count), any real epsilon, to ``digits`` relative digits.

    Raises ArithmeticError where the integrand decays too slowly (a few steps with a small rate).
    Beyond the largest loss, which is -sum of count * log(1 - q) for "add", delta is 0.
    """
    return run_deltas(entries, [epsilon], direction, digits)[0]


def run_epsilon(entries: Sequence[Entry], delta: Real, direction: Direction, digits: int = 15) -> mpf:
    """Epsilon >= 0 of a run at 0 < delta < 1 in one direction, to ``digits`` relative digits."""

    def bound(k: int) -> float:
        c = math.exp(k / 6)
        return (_chernoff(_log_moment(entries, direction, c), c) - float(mp.log(mpf(delta)))) / c

    with mp.workdps(digits + 30):
        guess = mpf(bound(_lowest(bound)))
        return max(mpf(0), _settle(entries, direction, [guess], digits, mpf(delta))[0])


def sampled_gaussian_delta(
    noise_multiplier: float,
    rate: float,
    steps: int,
    epsilon: Real,
    direction: Direction,
    digits: int = 20,
) -> mpf:
    """``run_delta`` of ``steps`` Poisson-sampled Gaussians."""
    return run_delta([(noise_multiplier, rate, steps)], epsilon, direction, digits)


def sampled_gaussian_epsilon(noise_multiplier: float, rate: float, steps: int, delta: Real, digits: int = 15) -> mpf:
    """Add-or-remove epsilon >= 0 at 0 < delta < 1: the larger of the two directions."""
    entries = [(noise_multiplier, rate, steps)]
    return max(run_epsilon(entries, delta, way, digits) for way in ("remove", "add"))
