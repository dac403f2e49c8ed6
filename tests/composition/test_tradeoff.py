"""The trade-off curve: both its ends against every test of small runs, in 60 digits."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import privcalc as pc
from privcalc.composition.curve import Curve
from privcalc.composition.direction import Bound, Leak
from privcalc.composition.tradeoff import one_order, peak
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.two_point import TwoPointPair

Law = list[tuple[mpf, mpf]]
"""P and Q of every outcome."""

mp.dps = 60


def response(epsilon: float, categories: int) -> Law:
    """What one report can be, (k − 2) others together."""
    total = mp.exp(mpf(epsilon)) + categories - 1
    told, other = mp.exp(mpf(epsilon)) / total, 1 / total
    return [(told, other), (other, told), *[(other, other)] * (categories - 2)]


def poisson(law: Law, rate: float) -> Law:
    """The record in it with this probability, against never."""
    return [((1 - mpf(rate)) * q + mpf(rate) * p, q) for p, q in law]


def leaking(epsilon: float, delta: float) -> Law:
    """An outcome of each that the other one never has, else randomised response."""
    d = mpf(delta)
    return [(d, mpf(0)), (mpf(0), d), *(((1 - d) * p, (1 - d) * q) for p, q in response(epsilon, 2))]


def product(laws: list[Law]) -> Law:
    """All at once; equal outcomes together."""
    whole: dict[tuple[int, ...], tuple[mpf, mpf]] = {}
    parts = [(law, len(list(same))) for law, same in itertools.groupby(laws)]
    found: Law = [(mpf(1), mpf(1))]
    for law, count in parts:
        whole = {}
        for chosen in itertools.combinations_with_replacement(range(len(law)), count):
            ways = mpf(math.factorial(count))
            for i in set(chosen):
                ways /= math.factorial(chosen.count(i))
            whole[chosen] = (ways * mp.fprod(law[i][0] for i in chosen), ways * mp.fprod(law[i][1] for i in chosen))
        found = [(p * a, q * b) for (p, q), (a, b) in itertools.product(found, whole.values())]
    return found


def missed(law: Law, alpha: float) -> tuple[mpf, mpf]:
    """β and 1 − β of the best test, which takes outcomes by falling ratio: both as sums of terms ≥ 0."""
    outcomes = sorted((p, q) for p, q in law if p)
    outcomes.sort(key=lambda pq: pq[0] / pq[1] if pq[1] else mp.inf, reverse=True)
    left, power, rest = mpf(alpha), mpf(0), mpf(0)
    for p, q in outcomes:
        share = mpf(1) if q <= left else left / q
        left -= share * q
        power += share * p
        rest += (1 - share) * p
    return rest, power


reports = st.builds(
    lambda e, k, n: (pc.RandomizedResponse(e, k), n, response(e, k)),
    st.floats(0.01, 6.0),
    st.integers(2, 4),
    st.integers(1, 6),
)
sampled = st.builds(
    lambda e, q, n: (pc.PoissonSampled(pc.RandomizedResponse(e), q), n, poisson(response(e, 2), q)),
    st.floats(0.01, 6.0), st.floats(1e-3, 1.0), st.integers(1, 6),
)  # fmt: skip
leaks = st.builds(
    lambda e, d, n: (pc.ApproxDP(e, d), n, leaking(e, d)), st.floats(0.01, 4.0), st.floats(1e-9, 0.6), st.integers(1, 3)
)


@st.composite
def customs(draw: st.DrawFn) -> tuple[pc.Mechanism, int, Law]:
    """Laws of whole numbers of thousandths."""
    counts = draw(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=2, max_size=4))
    p, q = (sum(column) for column in zip(*counts, strict=True))
    law = [(mpf(a) / p, mpf(b) / q) for a, b in counts]
    one = pc.CustomMechanism.from_probabilities([a / p for a, _ in counts], [b / q for _, b in counts])
    return one, draw(st.integers(1, 4)), law


rates = st.one_of(st.floats(1e-12, 0.01), st.floats(0.01, 0.9), st.sampled_from([0.5, 1e-6, 1e-100]))


@given(st.lists(st.one_of(reports, sampled, customs(), leaks), min_size=1, max_size=3), rates)
@example([(pc.RandomizedResponse(1.0), 1, response(1.0, 2))], 1e-6)
@example([(pc.RandomizedResponse(1.0), 60, response(1.0, 2))], 0.01)
@example([(pc.ApproxDP(0.5, 0.3), 2, leaking(0.5, 0.3))], 0.6)
@settings(max_examples=40)
def test_small_runs(parts: list[tuple[pc.Mechanism, int, Law]], alpha: float) -> None:
    """β and 1 − β, each to nine digits of itself, of the worse order."""
    run = pc.Run([(mechanism, count) for mechanism, count, _ in parts])
    law = product([one for _, count, one in parts for _ in range(count)])
    both = [missed(law, alpha), missed([(q, p) for p, q in law], alpha)]
    for found, truth in (
        (run.beta(alpha=alpha), min(rest for rest, _ in both)),
        (run.reconstruction(baseline=alpha), max(power for _, power in both)),
    ):
        assert found.lower * (1 - mpf(10) ** -30) <= truth <= found.upper * (1 + mpf(10) ** -30)
        rounded = 1e-14 if any(isinstance(mechanism, pc.ApproxDP) for mechanism, _, _ in parts) else 0.0  # 1 − δ
        assert found.upper - found.lower <= (1e-9 if found.upper > 1e-3 else 1e-7) * found.upper + rounded


@pytest.mark.parametrize("alpha", [1e-9, 0.01, 0.5, 0.97])
@pytest.mark.parametrize("level", [1.0, 12.0])
def test_one_choice(level: float, alpha: float) -> None:
    """An exponential mechanism attains each point, by the offset whose corner is there; permute-and-flip likewise."""
    choice, a = pc.ExponentialMechanism(level), mpf(level)
    corner = mpf(alpha) / (alpha + mp.exp(-a) * (1 - mpf(alpha)))
    found = choice.reconstruction(baseline=alpha)
    assert found.lower <= corner <= found.upper <= found.lower * (1 + 1e-12)
    # The pair of range a whose larger loss is log(corner/α) occurs, and has that corner.
    member = TwoPointPair(float(mp.log(corner / alpha)), float(a - mp.log(corner / alpha)))
    assert member.trade_off(alpha).power[1] >= corner * (1 - 1e-9)
    flipped = pc.PermuteAndFlip(level).beta(alpha=alpha)
    assert flipped.width <= 1e-12 * flipped.upper
    assert flipped.upper == pytest.approx(pc.Laplace(1 / level).beta(alpha=alpha).upper)


@given(st.floats(-3, 3), st.lists(st.floats(0.01, 1.0), min_size=4, max_size=9), st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=200)
def test_the_peak_of_a_concave_function(start: float, steps: list[float], left: float, right: float) -> None:
    """Two lines meet at 0 under a parabola's bend: at most the bound, which is the corner where there is no bend."""
    x = [start + sum(steps[:k]) for k in range(len(steps) + 1)]
    for bend in (0.0, 0.5):
        values = [1 - (left * -at if at < 0 else right * at) - bend * at * at for at in x]
        found = peak(x, [(value - 1e-12, value + 1e-12) for value in values])
        if x[0] < 0 < x[-1]:
            assert found >= 1 - 1e-12
        if bend == 0 and found < math.inf and x[2] <= 0 <= x[-3]:
            assert found <= 1 + 1e-9


def test_what_is_known_at_one_loss_holds_beyond() -> None:
    """Where δ is known near 0 only, or ε at a δ only, that is what β follows from."""
    true = Curve(((GaussianPair(0.01), 1),))

    def only(near: float, levels: bool) -> Any:
        def delta(epsilon: float, **_: Any) -> Bound:
            return true.delta(epsilon) if epsilon < near else Bound(0.0, 1.0, ("fallback",))

        def epsilon(delta: float, *, quick: bool = False, rtol: float = 0.0) -> Bound:
            return true.epsilon(delta) if levels and not quick else Bound(0.0, math.inf, ("fallback",))

        return SimpleNamespace(delta=delta, epsilon=epsilon, leak=Leak(), trade_off=lambda alpha: None)

    truth = true.trade_off(0.05)
    assert truth is not None
    for near, levels, loss in ((0.1, False, 1e-6), (0.0, True, 1e-2)):
        one = only(near, levels)
        found, _ = one_order(one, one, 0.05)
        assert truth[0].missed[0] - loss <= found.missed[0] <= truth[0].missed[1]
        assert truth[0].missed[0] <= found.missed[1]
