"""Randomised response and two-point pairs against enumeration, 60-digit sums and ball arithmetic."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flint import arb, arb_poly, ctx  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy.stats import binom

import privcalc as pc
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.numerics.routes import atoms as numerics
from privcalc.numerics.special import gdp_profile
from privcalc.pairs.two_point import TwoPointPair
from privcalc.relation import Relation

SHARES = np.array([0.0, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0, 1.1])


def atoms(up: float, down: float, neutral: int = 0) -> list[tuple[mpf, mpf]]:
    """(loss, mass under P), from the definitions: dP/dQ is e^up or e^−down; or k-ary response."""
    with mp.workdps(60):
        if neutral:
            total = mp.e ** mpf(up) + neutral + 1
            return [(mpf(up), mp.e ** mpf(up) / total), (mpf(0), neutral / total), (-mpf(up), 1 / total)]
        a, b = mp.e ** mpf(up), mp.e ** -mpf(down)
        q = (1 - b) / (a - b)  # q·a + (1 − q)·b = 1
        return [(mpf(up), q * a), (-mpf(down), (1 - q) * b)]


def delta_of(law: list[tuple[mpf, mpf]], epsilon: float) -> mpf:
    with mp.workdps(60):
        return mp.fsum(p * (1 - mp.e ** (mpf(epsilon) - loss)) for loss, p in law if loss > epsilon)


def binomial_law(up: float, down: float, n: int) -> list[tuple[mpf, mpf]]:
    with mp.workdps(60):
        p, q = (mass for _, mass in atoms(up, down))
        weights = [p**n]
        for b in range(n, 0, -1):
            weights.append(weights[-1] * b / (n - b + 1) * q / p)
        return [(b * mpf(up) - (n - b) * mpf(down), w) for b, w in zip(range(n, -1, -1), weights, strict=True)]


def trinomial_law(epsilon: float, neutral: int, n: int) -> list[tuple[mpf, mpf]]:
    """By ball arithmetic on polynomials."""
    old, ctx.prec = ctx.prec, 2600
    try:
        e = arb(epsilon).exp()
        law = arb_poly([1 / e, neutral / e, 1]) ** n  # over e^ε, so that nothing is large
        total = (1 + (neutral + 1) / e) ** n
        with mp.workdps(60):
            return [(mpf(epsilon) * (j - n), mpf((law[j] / total).str(60, radius=False))) for j in range(2 * n + 1)]
    finally:
        ctx.prec = old


def check(pair: TwoPointPair, law: list[tuple[mpf, mpf]], epsilons: np.ndarray, rel: float) -> None:
    delta, tail, error = pair.profile(epsilons)
    for e, d, t, err in zip(epsilons, delta, tail, error, strict=True):
        truth = delta_of(law, float(e))
        assert abs(mpf(float(d)) - truth) <= err, (pair, e)
        with mp.workdps(60):
            near = [p for loss, p in law if abs(loss - mpf(float(e))) <= 1e-12 * pair.count * (pair.up + pair.down)]
            condition = 32 * 2.0**-52 * pair.count * (pair.up + pair.down) * (t + d + float(mp.fsum(near)))
            assert err <= rel * d + condition + 1e-300, (pair, e)
            if not near:  # the slope, away from the atoms
                slope = mp.fsum(p * mp.e ** (mpf(float(e)) - loss) for loss, p in law if loss > e)
                assert abs(mpf(float(t)) - slope) <= 1e-9 * slope + mpf(10) ** -300


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 50.0, 600.0])
@pytest.mark.parametrize("categories", [2, 3, 10])
def test_one_report(epsilon: float, categories: int) -> None:
    pair = RandomizedResponse(epsilon, categories).pairs(Relation.REPLACE_ONE).forward
    law = atoms(epsilon, epsilon, categories - 2)
    delta, _, error = pair.profile(epsilon * SHARES)
    for e, d, err in zip(epsilon * SHARES, delta, error, strict=True):
        truth = delta_of(law, float(e))
        assert abs(mpf(float(d)) - truth) <= err
        assert err <= 1e-14 * d + 1e-305


@pytest.mark.parametrize(("categories", "records"), [(2, 1), (2, 3), (3, 2), (4, 2)])
def test_enumerated_releases(categories: int, records: int) -> None:
    """All outputs of all data sets: neighbours that replace one record, by any other or by the fixed null category."""
    epsilon, e = 0.7, 0.31
    with mp.workdps(40):
        keep = mp.e ** mpf(epsilon) / (mp.e ** mpf(epsilon) + categories - 1)
        lie = (1 - keep) / (categories - 1)

        def probability(data: tuple[int, ...], output: tuple[int, ...]) -> mpf:
            return mp.fprod(keep if x == y else lie for x, y in zip(data, output, strict=True))

        worst = mpf(0)
        outputs = list(itertools.product(range(categories), repeat=records))
        for data in outputs:
            for other in outputs:
                if sum(x != y for x, y in zip(data, other, strict=True)) == 1:
                    terms = (probability(data, o) - mp.e ** mpf(e) * probability(other, o) for o in outputs)
                    worst = max(worst, mp.fsum(max(term, mpf(0)) for term in terms))
    for relation in Relation:
        pairs = RandomizedResponse(epsilon, categories).pairs(relation)
        assert pairs.forward == pairs.backward
        assert pairs.attained is None
        delta, _, error = pairs.forward.profile(np.array([e]))
        assert abs(worst - float(delta[0])) <= float(error[0]) + 1e-30


@pytest.mark.parametrize(
    ("epsilon", "categories", "count"), [(1e-12, 3, 7), (1.0, 3, 2), (0.01, 10, 400), (1.0, 5, 400), (40.0, 4, 50)]
)
def test_trinomial_powers(epsilon: float, categories: int, count: int) -> None:
    pair = TwoPointPair(epsilon, epsilon, categories - 2).power(count)
    assert isinstance(pair, TwoPointPair)
    wide = np.array([1.0, 6.0]) * math.sqrt(count) * epsilon
    check(pair, trinomial_law(epsilon, categories - 2, count), np.concatenate((SHARES * count * epsilon, wide)), 1e-11)


def test_trinomial_without_lies_left() -> None:
    """At ε = 800 a lie underflows: δ is 1 below the largest loss up to the error stated."""
    pair = TwoPointPair(800.0, 800.0, 1).power(10_000)
    assert pair is not None
    delta, _, error = pair.profile(np.array([0.0, 7.9e6, 8.1e6]))
    assert np.all(np.abs(delta - [1.0, 1.0, 0.0]) <= error)
    assert np.all(error < 1e-9)


def test_ten_thousand_trinomials() -> None:
    """Given how many reports are informative, the loss is that of so many binary ones."""
    epsilon, n = 0.02, 10_000
    pair = TwoPointPair(epsilon, epsilon, 1).power(n)
    assert pair is not None
    weights = binom.pmf(np.arange(n + 1), n, 1 - float(atoms(epsilon, epsilon, 1)[1][1]))
    losses = np.array([0.0, 0.5, 3.0])
    truth = np.zeros(3)
    for k in np.flatnonzero(weights > 1e-14):
        binary = TwoPointPair(epsilon, epsilon).power(int(k))
        assert binary is not None
        truth += weights[k] * binary.profile(losses)[0]
    assert pair.profile(losses)[0] == pytest.approx(truth, rel=1e-9)


@given(
    st.floats(-12, 4).map(math.exp), st.floats(-12, 4).map(math.exp), st.integers(2, 60), st.floats(0, 1.05)
)  # fmt: skip
def test_any_binomial_power(up: float, down: float, count: int, share: float) -> None:
    pair = TwoPointPair(up, down).power(count)
    assert isinstance(pair, TwoPointPair)
    check(pair, binomial_law(up, down, count), np.array([share * count * up]), 1e-11)
    assert pair.reverse.reverse == pair


@pytest.mark.parametrize(
    ("up", "down", "neutral"), [(1e-6, 1e-6, 0), (0.5, 0.5, 2), (0.3, 2.0, 0), (20.0, 20.0, 5), (300.0, 1e-4, 0)]
)
def test_transform(up: float, down: float, neutral: int) -> None:
    law = atoms(up, down, neutral)
    made = TwoPointPair(up, down, neutral).transform
    assert made is not None
    for c in (1e-3, 0.7, 4.0, 200.0):
        part = made.prepare(c, 1, 0.0, cut=False)
        step = 0.37 / (up + down)
        with mp.workdps(500):

            def moment(s: object) -> object:
                return mp.fsum(p * mp.exp(s * loss) for loss, p in law)

            real = moment(mpf(c))
            value, error = part.log_real(np.array([c]))
            assert abs(mp.log(real) - mpf(float(value[0]))) <= error[0] + mpf(10) ** -50
            nodes, slack = part.log_nodes(c, step, 9)
            for k in range(9):
                ratio = moment(mp.mpc(c, float(k * step))) / real
                got = mp.exp(mp.mpc(complex(nodes[k])))
                assert (
                    abs(got / ratio - 1) <= mp.expm1(float(slack[k]) * 1.001) + mpf(10) ** -45 or abs(ratio) < slack[k]
                )
        assert np.all(part.log_decay(c, np.array([0.0, 1.0, 1e9])) == 0)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("neutral", [0, 1, 8, 1000])
def test_zcdp_and_gdp(epsilon: float, neutral: int) -> None:
    pair = TwoPointPair(epsilon, epsilon, neutral)
    law = atoms(epsilon, epsilon, neutral)
    with mp.workdps(60):
        for c in (1e-9, 1e-3, 0.1, 1.0, 3.0, 30.0, 1e4, 1e8):
            rate = mp.log(mp.fsum(p * mp.exp(c * loss) for loss, p in law)) / (mpf(c) * (c + 1))
            assert rate <= pair.zcdp
        if not neutral:  # Kullback–Leibler is ε·tanh(ε/2): the bound is attained as α → 1
            assert mpf(pair.zcdp) <= mpf(epsilon) * mp.tanh(mpf(epsilon) / 2) * (1 + mpf(10) ** -13)
        # μ is that of the corner (Q(L = ε), P(L = ε)) of the trade-off curve
        quantile = [
            mp.findroot(lambda z, p=p: mp.ncdf(z) - p, mp.sqrt(2) * mp.erfinv(2 * p - 1))
            for p in (law[0][1], law[-1][1])
        ]
        mu = quantile[0] - quantile[1]
        assert mu <= pair.gdp_bounds[1] <= mu * (1 + mpf(10) ** -6)
    losses = np.linspace(0, epsilon, 50)
    assert np.all(pair.profile(losses)[0] <= gdp_profile(pair.gdp_bounds[1], losses)[0] * (1 + 1e-10))


@pytest.mark.parametrize(("up", "down"), [(0.2, 1.0), (1.0, 0.2), (1e-7, 3e-7), (5.0, 40.0)])
def test_zcdp_and_gdp_of_lopsided_pairs(up: float, down: float) -> None:
    pair = TwoPointPair(up, down)
    law = atoms(up, down)
    with mp.workdps(60):
        for c in (1e-9, 1e-3, 0.1, 1.0, 3.0, 30.0, 1e4):
            assert mp.log(mp.fsum(p * mp.exp(c * loss) for loss, p in law)) <= pair.zcdp * mpf(c) * (c + 1)
    for way in (pair, pair.reverse):
        losses = np.linspace(0, way.max_loss, 50)
        assert np.all(way.profile(losses)[0] <= gdp_profile(way.gdp_bounds[1], losses)[0] * (1 + 1e-10))


def test_mu_where_both_laws_nearly_always_gain() -> None:
    """1 − Q(L = up) = 5e-10 must not be the difference from 1 of a float."""
    pair = TwoPointPair(2.3416914865969833e-12, 0.00507460834193367)
    with mp.workdps(60):
        p = atoms(pair.up, pair.down)[0][1]
        tails = [1 - p, 1 - p * mp.exp(-mpf(pair.up))]
        z = [mp.findroot(lambda t, x=x: mp.log(mp.erfc(t / mp.sqrt(2)) / 2) - mp.log(x), 6) for x in tails]
        assert z[0] - z[1] <= pair.gdp_bounds[1] <= (z[0] - z[1]) * (1 + mpf(10) ** -6)


def test_description_and_refusals() -> None:
    assert repr(RandomizedResponse(epsilon=1.0)) == "RandomizedResponse(epsilon=1.0, categories=2)"
    assert RandomizedResponse(1.0) == RandomizedResponse(1.0, 2) != RandomizedResponse(1.0, 3)
    for epsilon in (0.0, -1.0, math.nan, math.inf, "1"):
        with pytest.raises(PrivcalcError, match="epsilon"):
            RandomizedResponse(epsilon)  # type: ignore[arg-type]
    for categories in (1, 2.0, True, -3):
        with pytest.raises(PrivcalcError, match="categories"):
            RandomizedResponse(1.0, categories)  # type: ignore[arg-type]


def test_masses_that_a_convolution_drops_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "_LIGHT", 1e-12)
    law = numerics.power(numerics.Masses(-1.0, np.array([0.2, 0.5, 0.3]), 0.0, 0.0), 50)
    left_out = 1.0 - math.fsum(law.values)
    assert 1e-14 < left_out <= law.missing + 1e-14
    assert law.missing < 1e-9


@pytest.mark.parametrize(("level", "rate"), [(40.0, 0.5), (3.0, 0.01), (0.1, 0.9), (200.0, 1e-3)])
def test_sampled_atoms_at_their_edge(level, rate):
    """Rounding may carry ε past the largest loss: the error says so (by fuzzing: δ ≤ 1.5e-306 for a true 9e-16)."""
    with mp.workdps(400):
        p = 1 / (1 + mp.exp(-mpf(level)))
        q = mpf(rate)
        with_record, without = [q * p + (1 - q) * (1 - p), q * (1 - p) + (1 - q) * p], [1 - p, p]
        epsilon = float(mp.log(with_record[0] / without[0]))
        for _ in range(4):
            epsilon = math.nextafter(epsilon, 0.0)
        for _ in range(9):
            both = [
                mp.fsum(max(a - mp.exp(mpf(epsilon)) * b, mpf(0)) for a, b in zip(*order, strict=True))
                for order in ((with_record, without), (without, with_record))
            ]
            answer = pc.PoissonSampled(pc.RandomizedResponse(level), rate).delta(epsilon=epsilon)
            assert mpf(answer.lower) <= max(both) <= mpf(answer.upper)
            epsilon = math.nextafter(epsilon, math.inf)
