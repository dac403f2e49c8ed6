"""Thresholded counts against quadrature of what is released, part by part; and what a ledger draws."""

from __future__ import annotations

import datetime
import functools
import math
from decimal import Decimal
from fractions import Fraction

import mixtures
import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy import optimize, signal, stats

import privcalc as pc
from privcalc.ledger.selection import fine

ADD, SWAP, NULL = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
ALARM = 1e-6 / 10


def density(noise: str, scale: float):
    if noise == "laplace":
        return (
            lambda x: mp.exp(-abs(x) / scale) / (2 * scale),
            lambda x: mp.exp(x / scale) / 2 if x < 0 else 1 - mp.exp(-x / scale) / 2,
        )
    return lambda x: mp.npdf(x, 0, scale), lambda x: mp.ncdf(x, 0, scale)


def one_key(noise: str, scale: float, threshold: float, counts: tuple[int, int], epsilon: mpf, weights=(1, 1)) -> mpf:
    """∫(w·p − e^ε v·q)₊ over what is released of a key with these counts (P, Q), both ≥ 1."""
    f, cdf = density(noise, scale)
    p, q = counts
    factor = mp.exp(epsilon) * weights[1]

    def gap(x):
        return max(weights[0] * f(x - p) - factor * f(x - q), mpf(0))

    lost = max(weights[0] * cdf(mpf(threshold) - p) - factor * cdf(mpf(threshold) - q), mpf(0))
    far = threshold + max(counts) + 60 * scale
    ends = sorted({mpf(threshold), *(mpf(x) for x in (*counts, far) if x > threshold), mpf(threshold) + scale})
    # where both are equal, for smooth pieces
    middle = mpf(p + q) / 2 + (scale**2 if noise == "gaussian" else scale / 2) * (
        epsilon - mp.log(mpf(weights[0]) / weights[1])
    ) / (p - q)
    ends = sorted({*ends, middle}) if threshold < middle < far else ends
    return lost + mp.quad(gap, ends)


def on_several(noise: str, scale: float, keys: int, epsilon) -> mpf:
    """δ(ε), any real ε, of noise on so many counts that move by one; Laplace's one by one, by their losses."""
    with mp.workdps(20):
        if noise == "gaussian":
            mu = mp.sqrt(keys) / scale
            return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        a, epsilon = 1 / mpf(scale), mpf(epsilon)
        if epsilon >= keys * a:
            return mpf(0)
        if keys == 0 or epsilon <= -keys * a:
            return 1 - mp.exp(epsilon)
        if keys == 1:
            return 1 - mp.exp((epsilon - a) / 2)
        knots = sorted({-a, a, *(x for k in range(-keys, keys + 1) if -a < (x := epsilon + k * a) < a)})
        inside = mp.quad(lambda x: mp.exp((x - a) / 2) / 4 * on_several(noise, scale, keys - 1, epsilon - x), knots)
        ends = on_several(noise, scale, keys - 1, epsilon - a) + mp.exp(-a) * on_several(
            noise, scale, keys - 1, epsilon + a
        )
        return inside + ends / 2


def released(noise: str, scale: float, threshold: float, count: int, keys: int, epsilon: float) -> float:
    """A lower bound of δ(ε) when so many common keys have ``count`` others: noisy counts told to 1/20 of a scale."""
    edges = np.append(np.arange(threshold, count + 20 * scale, 0.05 * scale), np.inf)
    law = stats.laplace(scale=scale) if noise == "laplace" else stats.norm(scale=scale)
    masses = [np.append(law.cdf(edges[0] - c), -np.diff(law.sf(edges - c))) for c in (count + 1, count)]
    p, q = (functools.reduce(np.multiply.outer, [mass] * keys).ravel() for mass in masses)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(
    ("epsilon", "exact"),
    [(0.5, "0.350495989981"), (1.0, "0.241836675359"), (1.5, "0.123849119045"), (1.9, "0.024989839887")],
)
def test_several_keys_do_not_move_as_one_would_by_as_much(epsilon, exact):
    """Two counts that move by one each are two Laplace shifts, and not one by 2: that was called attained."""
    found = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=60.0, keys=2).delta(epsilon=epsilon)
    assert (
        f"{found.lower:.12f}"
        == f"{found.upper:.12f}"
        == exact
        == f"{float(on_several('laplace', 1.0, 2, epsilon)):.12f}"
    )
    seen = released("laplace", 1.0, 60.0, 120, 2, epsilon)
    assert (1 - 3e-2) * found.upper < seen <= found.upper


@pytest.mark.parametrize(("scale", "threshold", "keys", "uses"), [(5.0, 301.0, 2, 10), (20.0, 1201.0, 8, 5)])
def test_several_uses_of_several_keys(scale, threshold, keys, uses):
    """So many independent Laplace shifts, convolved on a grid: losses rounded down, then up."""
    found = (pc.ThresholdedCounts(noise="laplace", scale=scale, threshold=threshold, keys=keys) * uses).epsilon(
        delta=1e-6
    )
    half = 4000
    edges = np.linspace(-1, 1, 2 * half + 1) / scale
    inside = np.diff(np.exp((edges - 1 / scale) / 2)) / 2
    ends = []
    for up in (0, 1):
        law = np.zeros(2 * half + 1)
        law[up : up + 2 * half] += inside
        law[0] += math.exp(-1 / scale) / 2
        law[-1] += 0.5
        total = functools.reduce(signal.fftconvolve, [law] * (keys * uses))
        losses = np.linspace(-keys * uses, keys * uses, total.size) / scale

        def delta(epsilon, total=total, losses=losses):
            return float(total[losses > epsilon] @ -np.expm1(epsilon - losses[losses > epsilon]))

        ends.append(optimize.brentq(lambda e, delta=delta: delta(e) - 1e-6, 0.1, 10))
    assert ends[0] * (1 - 1e-6) <= found.lower <= found.upper <= ends[1] * (1 + 1e-6)
    assert found.upper <= found.lower * (1 + 1e-9)


@given(
    st.sampled_from(["laplace", "gaussian"]), st.floats(0.2, 9), st.floats(0.5, 6), st.integers(1, 2), st.floats(0, 3)
)
@settings(max_examples=60 if SLOW else 8, deadline=None)
def test_lower_ends_are_below_every_part(noise, scale, above, keys, epsilon):
    """No lower end, under any relation, is above the worst part; nor any upper end below what a part shows."""
    threshold = 1 + above * scale
    with mp.workdps(20):
        p = 1 - density(noise, scale)[1](mpf(threshold) - 1)
        none = -mp.log(1 - p)

        def part(came, went, left):
            moved = on_several(noise, scale, left, epsilon + (came - went) * none) if left else 0
            if not left:
                moved = max(0, 1 - mp.exp(epsilon + (came - went) * none))
            return 1 - mp.exp(-came * none) * (1 - moved)

        add = [part(*sides, keys - j) for j in range(keys + 1) for sides in ((j, 0), (0, j))]
        mechanism = pc.ThresholdedCounts(noise=noise, scale=scale, threshold=threshold, keys=keys)
        found = mechanism.delta(epsilon=epsilon)
        assert found.lower <= max(add) * (1 + 1e-12) + 1e-300
        assert max(add) <= found.upper * (1 + 1e-12) + 1e-300
        if keys == 1:
            swap = max(part(i, j, 2 - i - j) for i in (0, 1) for j in (0, 1))
            found = mechanism.delta(epsilon=epsilon, relation=SWAP)
            assert found.lower <= swap * (1 + 1e-12) + 1e-300
            assert swap <= found.upper * (1 + 1e-12) + 1e-300


def worst(noise: str, scale: float, threshold: float, epsilon: float, count: int, new: int) -> tuple[mpf, mpf]:
    """A person with ``new`` new keys and one common one, of ``count`` others: both orders."""
    with mp.workdps(25):
        _, cdf = density(noise, scale)
        p = 1 - cdf(mpf(threshold) - 1)
        none, e = (1 - p) ** new, mpf(epsilon)
        there = 1 - none + one_key(noise, scale, threshold, (count + 1, count), e, (none, 1))
        return there, one_key(noise, scale, threshold, (count, count + 1), e, (1, none))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("scale", "threshold", "epsilon"),
    quick([(2.0, 9.0, 0.1), (1.0, 3.0, 0.5), (5.0, 2.0, 0.05), (0.7, 12.0, 0.9)], 0, 3),
)
def test_every_count_is_within_and_large_ones_attain_it(noise, scale, threshold, epsilon):
    """j new keys and one common one, counts from 1 to far above the threshold."""
    for new in (0, 1, 2):
        bound = pc.ThresholdedCounts(noise=noise, scale=scale, threshold=threshold, keys=new + 1).delta(epsilon=epsilon)
        found = [x for count in (1, 2, 8, 200) for x in worst(noise, scale, threshold, epsilon, count, new)]
        assert max(found) <= bound.upper * (1 + 1e-9)
        with mp.workdps(25):
            p = 1 - density(noise, scale)[1](mpf(threshold) - 1)
            alone = 1 - (1 - p) ** (new + 1)
        # the other parts of the maximum, from the profile of noise on m counts
        none, parts = -mp.log(1 - p), [alone]
        for j in range(new + 1):
            m = new + 1 - j
            parts.append(1 - (1 - p) ** j + (1 - p) ** j * on_several(noise, scale, m, epsilon + j * none))
        assert bound.upper == pytest.approx(float(max(parts)), rel=1e-10)
        assert bound.lower == pytest.approx(bound.upper, rel=1e-10)
        assert found[6] == pytest.approx(float(parts[new + 1]), rel=1e-7)  # a count of 200 attains its part


def test_one_key_costs_the_larger_of_two_and_not_their_sum():
    mechanism = pc.ThresholdedCounts(noise="gaussian", scale=4.0, threshold=18.0)
    noise = pc.Gaussian(4.0)
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        found = mechanism.delta(epsilon=epsilon)
        exact = max(mechanism.chance, noise.delta(epsilon=epsilon).upper)
        assert found.upper == pytest.approx(exact, rel=1e-9)
    assert mechanism.epsilon(delta=mechanism.chance * (1 - 1e-9)).lower == math.inf
    assert mechanism.epsilon(delta=mechanism.chance * (1 + 1e-9)).upper < math.inf
    assert mechanism.chance == pytest.approx(float(stats.norm.sf(17 / 4)), rel=1e-13)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_person_replaced(noise):
    """One key each: both come and go, one key moves by one each way, and all between, by quadrature."""
    scale, threshold, epsilon = 3.0, 9.0, 0.2
    bound = (
        pc.ThresholdedCounts(noise=noise, scale=scale, threshold=threshold).delta(epsilon=epsilon, relation=SWAP).upper
    )
    with mp.workdps(25):
        p, e = 1 - density(noise, scale)[1](mpf(threshold) - 1), mpf(epsilon)
        fresh = p + max(1 - p - mp.exp(e) * (1 - p), 0)  # one new, one gone
        mixed = p + one_key(noise, scale, threshold, (300, 301), e, (1 - p, 1))
        gone = one_key(noise, scale, threshold, (301, 300), e, (1, 1 - p))
    two = on_several(noise, scale, 2, epsilon)
    assert bound == pytest.approx(float(max(fresh, mixed, gone, two)), rel=1e-8)


def one_shift(a: float, epsilon):
    """δ(ε), any real ε, of Laplace noise of scale 1 that moves by a: an array."""
    inside = -np.expm1(np.minimum(epsilon - a, 0) / 2)
    return np.where(epsilon > -a, inside, -np.expm1(np.minimum(epsilon, 0)))


def on_counts(noise: str, scale: float, shifts: tuple[int, ...], epsilon: float) -> float:
    """δ(ε), any real ε, of noise on counts that move by so much each, two of them at most if it is Laplace's."""
    if noise == "gaussian" and shifts:
        return mixtures.gaussian(math.hypot(*shifts) / scale)(epsilon)
    a, b = (*(n / scale for n in shifts), 0.0, 0.0)[:2]
    # The first one's loss: atoms at both ends, and a density; pieces between which all is analytic.
    knots = np.unique(np.clip([-a, a, epsilon - b, epsilon + b], -a, a))
    x, weights = np.polynomial.legendre.leggauss(40)
    middle, half = (knots[1:] + knots[:-1]) / 2, (knots[1:] - knots[:-1]) / 2
    at, w = np.add.outer(np.zeros(40), middle) + np.multiply.outer(x, half), np.multiply.outer(weights, half)
    inside = float((w * np.exp((at - a) / 2) / 4 * one_shift(b, epsilon - at)).sum())
    return inside + float(one_shift(b, epsilon - a) + math.exp(-a) * one_shift(b, epsilon + a)) / 2


def unseen(law, threshold: float, counts) -> float:
    """−log of the probability that of new keys with these counts none is released."""
    return -sum(float(law.logcdf(threshold - count)) for count in counts if count)


@given(st.sampled_from(["laplace", "gaussian"]), st.data(), st.floats(0.5, 9), st.floats(1.01, 30), st.floats(0, 3))
@settings(max_examples=200 if SLOW else 15, deadline=None)
def test_no_group_of_persons_leaks_more(noise, data, scale, threshold, epsilon):
    """Persons with one or two of five keys each, of which nobody else, or very many others, have some."""
    keys, others = data.draw(st.integers(1, 2)), data.draw(st.sets(st.integers(0, 4), max_size=4))
    persons = data.draw(st.lists(st.sets(st.integers(0, 4), min_size=keys, max_size=keys), min_size=2, max_size=3))
    removed = data.draw(st.integers(0, len(persons)))
    law = stats.laplace(scale=scale) if noise == "laplace" else stats.norm(scale=scale)
    counts = [
        [sum(key in person for person in part) for part in (persons[:removed], persons[removed:])] for key in range(5)
    ]
    common = [key in others or min(both) > 0 for key, both in enumerate(counts)]
    lost = [
        unseen(law, threshold, (both[i] for both, seen in zip(counts, common, strict=True) if not seen)) for i in (0, 1)
    ]
    shifts = sorted(abs(up - down) for (up, down), seen in zip(counts, common, strict=True) if seen and up != down)
    shifts = tuple(shifts[-2:] if noise == "laplace" else shifts)  # the others' outputs are not looked at
    truth = max(
        1 - math.exp(-one) * (1 - on_counts(noise, scale, shifts, epsilon + one - other))
        for one, other in (lost, lost[::-1])
    )
    mechanism = pc.ThresholdedCounts(noise=noise, scale=scale, threshold=threshold, keys=keys)
    assert truth <= mechanism.delta(epsilon=epsilon, group_size=len(persons)).upper * (1 + 1e-9) + 1e-12
    if 2 * removed == len(persons):
        swapped = mechanism.delta(epsilon=epsilon, relation=SWAP, group_size=removed)
        assert truth <= swapped.upper * (1 + 1e-9) + 1e-12


def partitions(total: int, most: int):
    """All ways to write a number as a sum of positive ones."""
    if total == 0:
        yield ()
    for part in range(min(total, most), 0, -1):
        yield from ((part, *rest) for rest in partitions(total - part, part))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(("scale", "threshold", "k"), [(2.0, 9.0, 2), (9.0, 4.0, 3), (3.0, 40.0, 3), (1.0, 2.5, 4)])
def test_one_key_of_each_of_a_group(noise, scale, threshold, k):
    """The worst of all ways in which persons with a key each share keys, one of which may be common to many."""
    law = stats.laplace(scale=scale) if noise == "laplace" else stats.norm(scale=scale)
    lost = [max(unseen(law, threshold, parts) for parts in partitions(n, n)) for n in range(k + 1)]
    mechanism = pc.ThresholdedCounts(noise=noise, scale=scale, threshold=threshold)
    for epsilon in (0.0, 0.4, 1.5):
        truth = 0.0
        for added in range(k + 1):
            for new in range(k - added + 1):
                for gone in range(added + 1):
                    shifts = tuple(n for n in (k - added - new, added - gone) if n)
                    one = on_counts(noise, scale, shifts, epsilon + lost[new] - lost[gone])
                    truth = max(truth, 1 - math.exp(-lost[new]) * (1 - one))
        found = mechanism.delta(epsilon=epsilon, group_size=k)
        assert found.lower * (1 - 1e-9) - 1e-12 <= truth <= found.upper * (1 + 1e-9) + 1e-12
        if noise == "gaussian" or k == 2:
            assert found.width <= 1e-9


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_many_keys_are_bounded_by_the_sum(relation):
    twice = 2 if relation is SWAP else 1
    many = pc.ThresholdedCounts(noise="laplace", scale=100.0, threshold=2000.0, keys=200)
    noise = (pc.Laplace(100.0) * (200 * twice)).delta(epsilon=1.0)
    leak = -math.expm1(200 * twice * math.log1p(-many.chance))
    found = many.delta(epsilon=1.0, relation=relation)
    assert leak + (1 - leak) * noise.upper <= found.upper * (1 + 1e-9)
    assert found.upper <= (leak + noise.upper) * (1 + 1e-9)
    came = -math.expm1(200 * math.log1p(-many.chance))
    assert found.lower == pytest.approx(max(noise.lower, came), rel=1e-9, abs=0)
    few, most = (pc.ThresholdedCounts(noise="laplace", scale=9.0, threshold=60.0, keys=k) for k in (7, 8))
    assert few.delta(epsilon=1.0, relation=SWAP).upper <= most.delta(epsilon=1.0, relation=SWAP).upper


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_several_uses_and_sampling(relation):
    mechanism = pc.ThresholdedCounts(noise="gaussian", scale=5.0, threshold=30.0)
    found = (mechanism * 10).epsilon(delta=1e-5, relation=relation)
    noise = (pc.Gaussian(5.0 / (math.sqrt(2) if relation is SWAP else 1)) * 10).epsilon(delta=1e-5)
    assert noise.lower * (1 - 1e-6) <= found.lower <= found.upper < 1.1 * noise.upper
    # between what occurs and the sum of noise and leaks
    leak = -math.expm1(10 * math.log1p(-mechanism.chance))
    assert (
        found.upper
        <= (pc.Gaussian(5.0 / (math.sqrt(2) if relation is SWAP else 1)) * 10).epsilon(delta=1e-5 - 2 * leak).upper
    )
    sampled = pc.PoissonSampled(mechanism, 0.1)
    assert (
        0
        < sampled.epsilon(delta=1e-4, relation=relation).upper
        <= mechanism.epsilon(delta=1e-4, relation=relation).upper
    )


# --- the ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_is_drawn(noise):
    """One key of one person each time, among one of many; the law of what is released."""
    step, times = pc.ThresholdedCounts(noise=noise, scale=1.5, threshold=3.3), 4000
    ledger = pc.Ledger(None, plan=step * times, seed=3)
    law = stats.laplace(scale=1.5) if noise == "laplace" else stats.norm(scale=1.5)
    found = [ledger.thresholded({"a": 1, "b": 100, "c": 0}, step) for _ in range(times)]
    assert all(next(iter(one)) == "b" for one in found)
    assert not any("c" in one for one in found)
    released = [one["a"] for one in found if "a" in one]
    assert stats.binomtest(len(released), times, step.chance).pvalue > ALARM
    assert min(released) >= 3.3
    assert stats.kstest(np.array([one["b"] for one in found]) - 100, law.cdf).pvalue > ALARM
    g = 2.0 ** fine(1.5)
    assert all(value % g == 0 for one in found for value in one.values())
    assert ledger.spent == step * times


def test_the_threshold_is_on_the_safe_side(monkeypatch):
    """What is rounded up to the threshold, from below, is not released."""
    step = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=5.0)
    ledger, steps = pc.Ledger(None, plan=step * 2), 2 ** -fine(1.0)
    monkeypatch.setattr(ledger._noise, "laplace", lambda size, scale: np.full(size, 4 * steps, dtype=np.int64))
    assert ledger.thresholded({"a": 1}, step) == {}
    monkeypatch.setattr(ledger._noise, "laplace", lambda size, scale: np.full(size, 4 * steps + 1, dtype=np.int64))
    assert ledger.thresholded({"a": 1}, step) == {"a": 5 + 1 / steps}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"noise": "gumbel"}, "noise = 'gumbel': must be 'laplace' or 'gaussian'"),
        ({"scale": 0.0}, "scale = 0.0"),
        ({"threshold": 1.0}, "threshold = 1.0: must be a number > 1"),
        ({"threshold": math.nan}, "threshold = nan"),
        ({"keys": 0}, "keys = 0"),
    ],
)
def test_arguments_that_are_refused(wrong, words):
    with pytest.raises(pc.PrivcalcError, match=words):
        pc.ThresholdedCounts(**({"noise": "laplace", "scale": 1.0, "threshold": 9.0} | wrong))


def test_calls_that_are_refused():
    step = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=9.0)
    huge = pc.ThresholdedCounts(noise="laplace", scale=1e16, threshold=1e19)
    ledger = pc.Ledger(None, plan=step + huge + pc.Laplace(1.0))
    for counts, mechanism, words in (
        ([1, 2], step, "must be a dictionary"),
        ({"secret": 1.5}, step, "counts: must be whole numbers$"),
        ({"secret": -3}, step, "counts: must be whole numbers >= 0$"),
        ({}, pc.Laplace(1.0), "must be ThresholdedCounts"),
        ({}, huge, r"scale = 1e\+16: must be at most 2\^52"),
    ):
        with pytest.raises(pc.PrivcalcError, match=words) as caught:
            ledger.thresholded(counts, mechanism)
        assert "secret" not in str(caught.value)
    assert not ledger.spent.entries


AT_NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
ALIKE = [
    [True, 1, 1.0, np.int64(1), np.float64(1.0), Fraction(1), Decimal(1), Decimal("1.00"), 1 + 0j, np.complex128(1)],
    [0.0, -0.0, 0, False],
    [0.5, Fraction(1, 2), Decimal("0.5"), Decimal("0.50"), np.float32(0.5)],
    [Decimal("0.1"), Decimal("0.10"), Fraction(1, 10)],
    [Decimal("-1.250000000000000000000000000000000000001"), Decimal("-1.2500000000000000000000000000000000000010")],
    [math.inf, Decimal("Infinity"), np.float32(math.inf)],
    [frozenset({1}), frozenset({True}), frozenset({Decimal("1.0")})],
    [datetime.time(12, tzinfo=datetime.UTC), datetime.time(14, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))],
    ["a", np.str_("a"), type("Text", (str,), {"__repr__": lambda _: "another"})("a")],
    [b"a", np.bytes_(b"a")],
    [AT_NOON, AT_NOON.astimezone(datetime.timezone(datetime.timedelta(hours=2)))],
    [(1, 0.0), (True, -0.0), (1.0, 0)],
]


@pytest.mark.parametrize("alike", ALIKE, ids=lambda alike: str(alike[0]))
def test_a_key_does_not_show_how_its_first_record_wrote_it(alike):
    """Equal keys are one, and a dictionary has the first: whether a record wrote True or 1 was seen without noise."""
    step = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=20.0)
    seen = set()
    for first in alike:
        (found,) = pc.Ledger(None, plan=step, seed=1).thresholded({first: 500}, step)
        assert found == first
        assert hash(found) == hash(first)
        seen.add((type(found), repr(found), str(found)))
    assert len(seen) == 1


def test_keys_that_are_no_numbers_or_texts_stay_as_they_are():
    step = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=20.0)
    day, much, none = datetime.date(2026, 5, 1), math.inf, None
    others = 1j, frozenset("a"), "a", 1.5, ("a", (2, "b")), datetime.datetime(2026, 5, 1)
    keys = dict.fromkeys([day, much, none, *others], 500)
    found = pc.Ledger(None, plan=step, seed=1).thresholded(keys, step)
    assert {repr(key) for key in found} == {repr(key) for key in keys}
