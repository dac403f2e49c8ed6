"""The game of adaptive choices against nested maximisation in many digits, enumeration of real choices, and laws."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from reference import choices_delta

import privcalc as pc
from privcalc.composition.curve import Curve, worst_delta
from privcalc.mechanisms.exponential import BoundedRangePair
from privcalc.numerics.interfaces import RouteFailed
from privcalc.numerics.routes import choices
from privcalc.numerics.special import gdp_profile
from privcalc.pairs.adaptive_choices import ChoicesPair, gaussian_mu
from privcalc.pairs.two_point import TwoPointPair

Value = Callable[[mpf], mpf]


def after(a: mpf, x: mpf, t: mpf, rest: Value) -> mpf:
    """E V(x − L_t), from the definition."""
    p = -mp.expm1(t - a) / -mp.expm1(-a)
    return p * rest(x - t) + (1 - p) * rest(x + a - t)


def largest(function: Value, low: mpf, high: mpf, steps: int) -> mpf:
    """The largest value on a grid, refined around it."""
    for _ in range(6):
        points = [low + (high - low) * i / steps for i in range(steps + 1)]
        values = [function(point) for point in points]
        at = values.index(max(values))
        low, high = points[max(at - 1, 0)], points[min(at + 1, steps)]
    return max(values)


def game(a: mpf, count: int, x: mpf, steps: int) -> mpf:
    """V_count(x): the last choice in closed form, the ones before it by search."""
    if count == 1:
        if abs(x) >= a:
            return max(-mp.expm1(x), mpf(0))
        return (1 - mp.exp((x - a) / 2)) ** 2 / -mp.expm1(-a)
    least = min(max(x - (count - 1) * a, mpf(0)), a)  # with a smaller t nothing is left to win
    return largest(lambda t: after(a, x, t, lambda y: game(a, count - 1, y, steps)), least, a, steps)


@pytest.mark.parametrize("a", [1e-6, 0.1, 1.0, 4.0])
def test_two_choices_by_maximisation(a: float) -> None:
    pair = ChoicesPair(((a, 2),))
    with mp.workdps(40):
        for share in (0.0, 0.01, 0.3, 0.9, 1.3, 1.99):
            x = share * a
            truth = game(mpf(a), 2, mpf(x), 24)
            low, high = pair.bounds(x)
            assert low <= truth <= high
            assert high - low <= 5e-6 * high or share > 1.5


@pytest.mark.parametrize(("a", "count", "m"), [(1.0, 10, 40), (3.0, 5, 30), (0.1, 40, 16), (8.0, 3, 30)])
def test_every_line_of_the_grid(a: float, count: int, m: int) -> None:
    """From one choice's profile on, all offsets of a grid, without search: within a coarse and a fine game's bounds."""
    h, size = a / m, count * m
    x = np.asarray(h * np.arange(-size - m, size + m + 1), dtype=np.float64)
    value = np.where(
        np.abs(x) < a, np.expm1(np.minimum(x - a, 0) / 2) ** 2 / -np.expm1(-a), np.maximum(-np.expm1(x), 0.0)
    )
    for _ in range(count - 1):
        best = value.copy()
        for t in range(m + 1):
            p = math.expm1(h * t - a) / math.expm1(-a)
            best[m:-m] = np.maximum(best[m:-m], p * value[m - t : -m - t] + (1 - p) * value[2 * m - t : value.size - t])
        value = best
    found, origin = choices.Game([(m, count)], h, 1e-290).values(), size + m
    assert np.all(found.lower <= value[origin : origin + found.lower.size] * (1 + 1e-12))
    assert np.all(value[origin : origin + found.upper.size] <= found.upper * (1 + 1e-12) + found.leak)
    points = x[origin : origin + size : 7]
    delta, _, error = ChoicesPair(((a, count),)).profile(points)
    low, high, _ = found.bounds(points)
    assert np.all(low <= delta + error)
    assert np.all(delta - error <= high)
    assert np.all(value[origin : origin + size : 7] <= (delta + error) * (1 + 1e-12))


@pytest.mark.parametrize(("a", "count", "m"), [(4.0, 60, 24), (0.7, 12, 166)])
def test_where_the_value_rounds_to_one(a: float, count: int, m: int) -> None:
    """All offsets of a grid for 1 − V, a sum of positive terms: from 4e-13 on; no line was shown to be best there."""
    h, size = a / m, count * m
    x = np.asarray(h * np.arange(-size - m, size + m + 1), dtype=np.float64)
    w = np.exp((np.clip(x, -a, a) - a) / 2)
    missing = np.where(np.abs(x) < a, (w * (2 - w) - math.exp(-a)) / -math.expm1(-a), np.exp(np.minimum(x, 0.0)))
    position = choices.Range(m, h, 1.0, 1e-27, window=2, shown=True)
    found = position.first()
    for _ in range(count - 1):
        least = missing.copy()
        for t in range(m + 1):
            p = math.expm1(h * t - a) / math.expm1(-a)
            least[m:-m] = np.minimum(
                least[m:-m], p * missing[m - t : -m - t] + (1 - p) * missing[2 * m - t : x.size - t]
            )
        missing, found = least, position.play(found)
    origin, rounding = size + m, (count + 1) * (32 + 8 * a) * 2.0**-53
    near, far = missing[origin : origin + found.missing.size], missing[origin : origin + found.upper.size]
    assert np.all(found.missing <= near * (1 + rounding))
    assert np.all(found.missing >= near * (1 - 0.6 * count * h * h))
    assert np.all(1 - found.upper <= far + rounding + found.leak)
    assert found.strategy is not None
    assert np.all(found.strategy.lower <= 1 - far + rounding)


def strategy(a: float, count: int, m: int = 24) -> Callable[[int, float], float]:
    """The best offset with so many choices left, at a loss that is still wanted, from a table of its own."""
    h, size = a / m, (count + 1) * m
    x = h * np.arange(-size, size + 1)
    value, best = np.maximum(-np.expm1(x), 0.0), []
    for _ in range(count):
        scores = np.full((m + 1, x.size), -1.0)
        for t in range(m + 1):
            p = math.expm1(h * t - a) / math.expm1(-a)
            scores[t, m:-m] = p * value[m - t : -m - t] + (1 - p) * value[2 * m - t : value.size - t]
        value = np.where(scores[0] < 0, value, scores.max(axis=0))
        best.append(scores.argmax(axis=0))
    return lambda left, y: h * min(max(int(best[left - 1][min(max(round(y / h) + size, m), x.size - m - 1)]), 1), m - 1)


def two_candidates(a: float, t: float) -> tuple[float, float]:
    """Probabilities of the first candidate with and without the record, which lifts its score: losses t and t − a."""
    q = math.exp(-t) * math.expm1(t - a) / math.expm1(-a)
    lead = math.log1p(-q) - math.log(q)  # of the second candidate, without the record
    lifted, usual = (1 / (1 + math.exp(lead - score)) for score in (a, 0.0))
    assert math.log(lifted / usual) == pytest.approx(t, rel=1e-9, abs=1e-12)
    return lifted, usual


@pytest.mark.parametrize(("a", "count", "epsilon"), [(1.0, 8, 3.0), (0.3, 9, 0.4), (3.0, 6, 9.0)])
def test_an_adversary_attains_it(a: float, count: int, epsilon: float) -> None:
    """All outcomes of choices between two candidates, whose scores depend on what came before."""
    offset = strategy(a, count)
    with_record, without = 0.0, 0.0
    for outcome in itertools.product((True, False), repeat=count):
        p, q, left = 1.0, 1.0, epsilon
        for i, first in enumerate(outcome):
            t = offset(count - i, left)
            chances = two_candidates(a, t)
            p *= chances[0] if first else 1 - chances[0]
            q *= chances[1] if first else 1 - chances[1]
            left -= t if first else t - a
        if p > math.exp(epsilon) * q:
            with_record, without = with_record + p, without + q
    attained = with_record - math.exp(epsilon) * without
    found = (pc.ExponentialMechanism(a) * count).delta(epsilon=epsilon)
    assert attained <= found.upper * (1 + 1e-12)
    assert attained >= 0.99 * found.lower
    members = [TwoPointPair(share * a, (1 - share) * a, count=count) for share in np.linspace(0.05, 0.95, 181)]
    fixed = max(worst_delta([Curve(((pair, 1),))], epsilon).upper for pair in members)
    assert attained > fixed  # no offset that is the same each time does as well


@pytest.mark.parametrize(("a", "count", "epsilon"), [(1.0, 10, 7.7164), (0.1, 60, 1.0), (3.0, 4, 5.0), (0.5, 2, 0.0)])
def test_reference(a: float, count: int, epsilon: float) -> None:
    """By brute force, without anything that the engine shows about the best line; ``verify`` uses it."""
    low, high = choices_delta(a, count, epsilon)
    found = ChoicesPair(((a, count),)).bounds(epsilon)
    assert low <= found[1]
    assert found[0] <= high
    assert high <= 1.01 * low
    with pytest.raises(ArithmeticError):
        choices_delta(a, 20_000, epsilon)


def test_that_a_game_has_no_end_is_remembered(monkeypatch) -> None:
    """Each question played it anew before: minutes, of thousands of choices."""
    begun = []

    def values(game: choices.Game) -> None:
        begun.append(game)
        raise RouteFailed("no strategy is shown to be the best")

    choices.solve.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(choices.Game, "values", values)
        for epsilon in (0.5, 0.6, 0.7):
            low, high = ChoicesPair(((0.5, 7),)).bounds(epsilon)
            assert low <= high
    choices.solve.cache_clear()
    assert len(begun) == len(choices.LEAST)


@settings(max_examples=12 if SLOW else 6, deadline=None)
@given(st.floats(1e-3, 5.0), st.integers(2, 9), st.floats(0.0, 1.0))
@example(0.1, 12, 0.999)
@example(5.0, 2, 0.0)
@example(1.0, 9, 0.6)
@example(1e-50, 3, 0.5)
def test_laws(a: float, count: int, share: float) -> None:
    """Below randomised response and the composed logistic pair, above members; more with more choices; by symmetry."""
    x = share * count * a
    low, high = ChoicesPair(((a, count),)).bounds(x)
    assert 0 <= low <= high <= 1
    assert high <= worst_delta([Curve(((TwoPointPair(a, a, count=count), 1),))], x).upper * (1 + 1e-5) + 1e-300
    assert low <= worst_delta([Curve(((BoundedRangePair(a), count),))], x).upper * (1 + 1e-9) + 1e-300
    assert low <= gdp_profile(gaussian_mu(((a, count),)), np.array([x])).delta[0] * (1 + 1e-9) + 1e-300
    for up in (0.3, 0.5, 0.8):
        assert worst_delta([Curve(((TwoPointPair(up * a, (1 - up) * a, count=count), 1),))], x).lower <= high
    assert low <= ChoicesPair(((a, count + 1),)).bounds(x)[1]
    assert low <= ChoicesPair(((1.01 * a, count),)).bounds(x)[1]


def test_a_test_below_the_profile() -> None:
    """What ``profile`` promises of its tail: a line below the whole profile."""
    pair = ChoicesPair(((0.7, 9),))
    x = np.linspace(0.0, 6.2, 40)
    delta, tail, error = pair.profile(x)
    for at, d, slope, off in zip(x, delta, tail, error, strict=True):
        line = d - off - slope * np.expm1(x - at) * (1 - 1e-9 * np.sign(x - at))
        assert np.all(line <= (delta + error) * (1 + 1e-9) + 1e-300)


@functools.cache
def gaussian_steps(a: float, count: int) -> float:
    """s of Gaussian DP by its recursion, one choice at a time."""
    v, one = 0.25 * a * a, gaussian_mu(((a, 1),)) ** 2
    s = one
    for _ in range(count - 1):
        s += min(one, v * s / (s - v))
    return s


@pytest.mark.parametrize(("a", "count"), quick([(0.01, 1), (0.01, 7), (0.1, 300), (0.5, 5000), (2.0, 40)], 0, 1, 3, 4))
def test_many_choices_are_gaussian(a: float, count: int) -> None:
    mu = gaussian_mu(((a, count),))
    assert math.sqrt(gaussian_steps(a, count)) <= mu * (1 + 1e-9)
    assert mu * mu <= gaussian_steps(a, count) * (1 + 4 / count) or count < 20
    if count <= 300:
        x = np.linspace(0.0, min(count * a * 0.99, 5 * mu), 60)
        delta, _, error = ChoicesPair(((a, count),)).profile(x) if count > 1 else BoundedRangePair(a).profile(x)
        bound = gdp_profile(mu, x)
        assert np.all(delta - error <= bound.delta + bound.error)


def test_one_step_of_the_gaussian_bound() -> None:
    """E G(x − L_t; s) ≤ G(x; s + vs/(s − v)) for every x and t, in many digits."""
    with mp.workdps(30):

        def g(x: mpf, s: mpf) -> mpf:
            root = mp.sqrt(s)
            return mp.ncdf(root / 2 - x / root) - mp.exp(x) * mp.ncdf(-root / 2 - x / root)

        for a, ratio in ((mpf("0.1"), mpf("2.8")), (mpf(1), mpf(3)), (mpf(5), mpf(4)), (mpf("0.5"), mpf(50))):
            v = a * a / 4
            s = ratio * v
            for x, t in itertools.product([-3, -1, -0.2, 0, 0.3, 1, 2, 5, 9], range(9)):
                loss = a * t / 8
                at = x * mp.sqrt(s)
                assert after(a, at, loss, functools.partial(g, s=s)) <= g(at, s + v * s / (s - v))


def test_choices_come_last() -> None:
    """With noise beside them: E V_2(ε − L) by quadrature over the noise's loss."""
    a, mu, epsilon = 0.8, 0.5, 0.9
    found = (pc.ExponentialMechanism(a) * 2 + pc.Gaussian(1 / mu)).delta(epsilon=epsilon)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    losses = epsilon - (mu * nodes + mu * mu / 2)
    size = np.abs(losses)
    value = ChoicesPair(((a, 2),)).profile(size).delta
    value = np.where(losses >= 0, value, np.exp(-size) * value - np.expm1(-size))
    truth = float(weights @ value) / math.sqrt(2 * math.pi)
    assert found.lower * (1 - 1e-4) <= truth <= found.upper * (1 + 1e-4)
    assert found.upper - found.lower < 1e-5 * found.upper
    one = (pc.ExponentialMechanism(a) + pc.Gaussian(1 / mu)).delta(epsilon=epsilon)
    assert one.upper - one.lower <= 1e-9 * one.upper  # a single choice is exact in any company


def test_several_ranges() -> None:
    """The order matters: the bounds hold of the worst, and equal ranges are one, whoever has them."""
    top, small = pc.ExponentialMechanism(0.5), pc.ExponentialMechanism(0.2)
    assert (top * 3 + pc.TopK(1.0, 2) * 2).epsilon(delta=1e-4) == (top * 5).epsilon(delta=1e-4)
    found = (top + small).delta(epsilon=0.3)
    with mp.workdps(20):
        orders = []
        for first, last in ((mpf("0.5"), mpf("0.2")), (mpf("0.2"), mpf("0.5"))):
            after_it = functools.partial(game, last, 1, steps=0)
            whole = functools.partial(after, first, mpf("0.3"), rest=after_it)
            orders.append(largest(whole, mpf(0), first, 32))
    assert orders[0] < 0.99 * orders[1]  # the smaller one first is worse
    assert found.lower <= orders[1] <= found.upper
    assert found.upper - found.lower <= 1e-6 * found.upper


def every_order(
    ranges: tuple[int, ...], counts: tuple[int, ...], h: float
) -> tuple[np.ndarray, dict[tuple[int, ...], tuple]]:
    """V on a grid where all ranges are multiples of h, with every offset and every next range; and the best of both."""
    size = sum(m * n for m, n in zip(ranges, counts, strict=True)) + max(ranges)
    x = h * np.arange(-size, size + 1)
    none = np.maximum(-np.expm1(x), 0.0)
    tables: dict[tuple[int, ...], tuple] = {(0,) * len(counts): (none, None, None)}
    for n in sorted(itertools.product(*(range(count + 1) for count in counts)), key=sum)[1:]:
        value, which, best = none.copy(), np.zeros(x.size, dtype=int), np.ones(x.size, dtype=int)
        for i, m in enumerate(ranges):
            if not n[i]:
                continue
            rest = tables[(*n[:i], n[i] - 1, *n[i + 1 :])][0]
            for t in range(1, m):
                p = math.expm1(h * (t - m)) / math.expm1(-h * m)
                here = np.full(x.size, -1.0)
                here[m:-m] = p * rest[m - t : x.size - m - t] + (1 - p) * rest[2 * m - t : x.size - t]
                better = here > value * (1 + 1e-12)
                value, which, best = (
                    np.where(better, here, value),
                    np.where(better, i, which),
                    np.where(better, t, best),
                )
        tables[n] = value, which, best
    return x, tables


@pytest.mark.parametrize(
    ("ranges", "counts", "h"), [((30, 10), (2, 3), 0.03), ((24, 18), (3, 2), 0.01), ((20, 12, 5), (2, 1, 2), 0.1)]
)
def test_every_order(ranges: tuple[int, ...], counts: tuple[int, ...], h: float) -> None:
    """Whoever plays may choose what comes next from what came before: the same strategies, and not much more."""
    x, tables = every_order(ranges, counts, h)
    pair, value = ChoicesPair(tuple((m * h, n) for m, n in zip(ranges, counts, strict=True))), tables[counts][0]
    inside = (x >= 0) & (x < 0.5 * pair.max_loss)
    delta, _, error = pair.profile(x[inside])
    assert np.all(value[inside] <= (delta + error) * (1 + 1e-12))
    assert np.all(delta - error <= 1.05 * value[inside])
    assert np.all(error <= 1e-4 * delta)


def test_an_adversary_attains_it_in_several_ranges() -> None:
    """All outcomes of four choices of two candidates; which comes next, and its scores, follow what came before."""
    ranges, counts, h, epsilon = (25, 10), (2, 2), 0.04, 0.8
    x, tables = every_order(ranges, counts, h)
    with_record, without, orders = 0.0, 0.0, set()
    for outcome in itertools.product((True, False), repeat=4):
        p, q, left, n, order = 1.0, 1.0, epsilon, counts, ()
        for first in outcome:
            place = min(max(round(left / h) + x.size // 2, 0), x.size - 1)
            _, which, best = tables[n]
            i = which[place] if n[which[place]] else 1 - which[place]
            t = h * min(best[place], ranges[i] - 1)
            chances = two_candidates(ranges[i] * h, t)
            p, q = (prior * (chance if first else 1 - chance) for prior, chance in zip((p, q), chances, strict=True))
            left -= t if first else t - ranges[i] * h
            n, order = (*n[:i], n[i] - 1, *n[i + 1 :]), (*order, int(i))
        orders.add(order)
        if p > math.exp(epsilon) * q:
            with_record, without = with_record + p, without + q
    attained = with_record - math.exp(epsilon) * without
    found = (pc.ExponentialMechanism(1.0) * 2 + pc.ExponentialMechanism(0.4) * 2).delta(epsilon=epsilon)
    assert attained <= found.upper * (1 + 1e-12)
    assert attained >= 0.99 * found.lower
    assert found.upper - found.lower <= 1e-5 * found.upper


def test_ranges_without_a_common_measure() -> None:
    """Rounded up for the upper end and down for the lower one; between what slightly larger and smaller ranges cost."""
    run = pc.ExponentialMechanism(1.0) * 3 + pc.ExponentialMechanism(0.37123456) * 4
    found = run.epsilon(delta=1e-6)
    assert found.upper - found.lower <= 2e-5 * found.upper
    more = (pc.ExponentialMechanism(1.0) * 3 + pc.ExponentialMechanism(0.375) * 4).epsilon(delta=1e-6)
    less = (pc.ExponentialMechanism(1.0) * 3 + pc.ExponentialMechanism(0.37) * 4).epsilon(delta=1e-6)
    assert less.lower <= found.upper
    assert found.lower <= more.upper
    assert 0 < more.upper - less.lower < 0.02
    tiny = (pc.ExponentialMechanism(1.0) * 3 + pc.ExponentialMechanism(1e-9) * 2).epsilon(delta=1e-6)
    alone = (pc.ExponentialMechanism(1.0) * 3).epsilon(delta=1e-6)
    assert alone.lower <= tiny.upper
    assert tiny.upper <= alone.upper * 1.02


def test_too_many_orders() -> None:
    """Each range is played alone, and these compose; from below one order is. One by one they cost 1.5e-3 more."""
    run = pc.ExponentialMechanism(0.5) * 12 + pc.ExponentialMechanism(0.02) * 60
    found = run.epsilon(delta=1e-6)
    assert "adaptive choices" in found.route
    assert found.upper - found.lower <= 4e-4 * found.upper
    assert found.upper >= (pc.ExponentialMechanism(0.5) * 12).epsilon(delta=1e-6).lower


@pytest.mark.slow
@pytest.mark.parametrize(("a", "count", "width"), [(2.0, 200, 1e-6), (0.7, 1000, 5e-5), (1.0, 1000, 5e-5)])
def test_long_games_are_played(a: float, count: int, width: float) -> None:
    """Between one offset that is the same each time and Gaussian DP, which were 2 to 9 % apart."""
    found = (pc.ExponentialMechanism(a) * count).epsilon(delta=1e-6)
    assert "adaptive choices" in found.route
    assert found.upper - found.lower <= width * found.upper
    assert gdp_profile(gaussian_mu(((a, count),)), np.array([found.lower])).delta[0] >= 1e-6
    fixed = worst_delta([Curve(((TwoPointPair(a / 2, a / 2, count=count), 1),))], found.upper)
    assert fixed.lower <= 1e-6


def test_beside_what_dominates_only() -> None:
    """Integers with discrete noise have a bound and what occurs: the game stands beside either."""
    run = pc.ExponentialMechanism(0.5) * 5
    found = (run + pc.DiscreteGaussian(noise_multiplier=2.0)).epsilon(delta=1e-6)
    assert found.upper - found.lower <= 1e-4 * found.upper
    normal = (run + pc.Gaussian(noise_multiplier=2.0)).epsilon(delta=1e-6)
    assert abs(found.upper - normal.upper) < 0.01


def test_a_small_range_beside_large_ones() -> None:
    """What has no place on the largest's lattice is left out from below, and does not make the large ones smaller."""
    large = pc.ExponentialMechanism(1.0) * 4
    with_small = large + pc.ExponentialMechanism(1e-4)
    assert with_small.epsilon(delta=1e-6).lower >= large.epsilon(delta=1e-6).lower * (1 - 1e-5)
    assert with_small.epsilon(delta=1e-6).upper <= large.epsilon(delta=1e-6).upper + 1e-4
    three = (large + pc.ExponentialMechanism(0.5) * 2 + pc.ExponentialMechanism(7e-4) * 2).delta(epsilon=0.5)
    assert three.upper - three.lower <= 1e-3 * three.upper


def test_what_cannot_be_played() -> None:
    """Too many, or too large: other bounds answer, and they are as good as they were."""
    assert choices.fineness(((1e-5, 10**15),), choices.SMALL) == 0  # without a list of them
    assert choices.solve(((0.1, 10**6),), 1e-27) == (None, None)
    many = (pc.ExponentialMechanism(0.01) * 100_000).epsilon(delta=1e-6)
    assert many.upper - many.lower < 1.1e-4 * many.upper
    assert many.upper < 8.84
    large = (pc.ExponentialMechanism(100.0) * 3).epsilon(delta=1e-6)
    assert 0 < large.lower <= large.upper <= 300
    sure = (pc.ExponentialMechanism(0.5) * 4).epsilon(delta=0.0)
    assert 1.99 < sure.lower <= sure.upper <= 2.0 * (1 + 1e-14)


def test_both_orders_are_the_same() -> None:
    for relation in pc.Relation:
        run = pc.ExponentialMechanism(0.3) * 4
        pair = ChoicesPair(((0.6 if relation is pc.REPLACE_ONE else 0.3, 4),))
        assert pair.reverse is pair
        low, high = pair.bounds(0.5)
        found = run.delta(epsilon=0.5, relation=relation)
        assert (found.lower, found.upper) == (low, high)


def test_beyond_the_grid_nothing_overflows():
    """The tests' tails were e^x times too large there: infinite, or NaN where they are 0."""
    table = choices.solve(((1.0, 60),), choices.LEAST[0])[0]
    assert table is not None
    end = (table.upper.size - 1) * table.spacing
    with np.errstate(all="raise", under="ignore"):
        low, high, tail = table.bounds(np.array([end, end + 1.0, end + 5000.0]))
    assert not np.any(low[1:])
    assert not np.any(tail[1:])
    assert np.all(high[1:] == high[0])
    assert table.upper[-1] <= high[0] < table.upper[-1] * (1 + 1e-6) + 2 * table.leak + 1e-300
