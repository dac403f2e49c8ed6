"""Many questions at once: the same bits as each alone, the truth inside, and the bounds of what is new in them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]

import privcalc as pc
from privcalc.bulk import epsilons as bulk
from privcalc.composition.curve import Curve
from privcalc.numerics.floats import QUIET, Floats
from privcalc.numerics.routes import lines, many
from privcalc.numerics.routes.rules import Rows, Rule, rules
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.poisson import SampledPair

ROW = st.tuples(
    st.floats(math.log(0.3), math.log(20.0)).map(math.exp),
    st.floats(-5.0, -0.05).map(lambda x: 10**x),
    st.integers(2, 10**6),
    st.floats(-12.0, -0.5).map(lambda x: 10**x),
)


def asked(rows: list[tuple[float, float, int, float]]) -> Floats:
    """Both ends, shape (2, rows)."""
    noise, rate, steps, delta = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    return np.array(many.epsilons(1 / noise, rate, steps, delta))


def asked_deltas(rows: list[tuple[float, float, int, float]]) -> Floats:
    """The same of δ, at an ε that δ = rows' last tells."""
    noise, rate, steps, epsilon = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    return np.array(many.deltas(1 / noise, rate, steps, epsilon))


@settings(max_examples=200 if SLOW else 15, deadline=None)
@given(st.lists(ROW, min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_a_row_does_not_depend_on_others(rows: list[tuple[float, float, int, float]], random: Any) -> None:
    """To the last bit: alone, among others, in another order."""
    together = asked(rows)
    assert np.array_equal(together, np.concatenate([asked([row]) for row in rows], axis=1), equal_nan=True)
    order = list(range(len(rows)))
    random.shuffle(order)
    assert np.array_equal(together[:, order], asked([rows[i] for i in order]), equal_nan=True)


def test_pieces_of_any_size_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1.0 + k / 40, 0.01 * (1 + k % 5), 100 * (1 + k), 10.0 ** -(3 + k % 6)) for k in range(40)]
    found = asked(rows)
    assert np.isfinite(found).mean() > 0.9
    monkeypatch.setattr(many, "BLOCK", 3)
    monkeypatch.setattr(many, "MANY", 7)
    assert np.array_equal(asked(rows), found, equal_nan=True)


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"),
    [
        (1.0, 0.01, 1000, 1e-5),
        (4.0, 0.05, 10_000, 1e-8),
        (0.7, 0.02, 300, 1e-3),
        (2.0, 0.3, 50, 1e-6),
        (10.0, 0.9, 20, 0.1),
    ],
)
def test_the_truth_is_inside(noise: float, rate: float, steps: int, delta: float) -> None:
    """By the transform in 30 digits, integrated by mpmath, at both ends; and by the ladder's contour, with bounds."""
    low, high = asked([(noise, rate, steps, delta)])[:, 0].tolist()
    assert high - low <= 1e-9 * high
    run = pc.PoissonSampled(pc.Gaussian(noise), rate) * steps
    answer = run.epsilon(delta=delta)
    assert (answer.lower, answer.upper) == (low, high)
    assert run.delta(epsilon=high).lower <= delta <= run.delta(epsilon=low).upper
    proof = pc.prove(run, epsilon=high * (1 + 1e-9), delta=delta)
    assert proof.verdict == "proved"
    assert pc.prove(run, epsilon=low * (1 - 1e-9), delta=delta).verdict == "refuted"


AT = st.tuples(ROW, st.lists(st.floats(0.0, 12.0), min_size=1, max_size=4))


@settings(max_examples=200 if SLOW else 15, deadline=None)
@given(st.lists(AT, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_delta_does_not_depend_on_others(
    runs: list[tuple[tuple[float, float, int, float], list[float]]], random: object
) -> None:
    """The same for several ε of each run, which share lines."""
    rows = [(*run[:3], epsilon) for run, epsilons in runs for epsilon in epsilons]
    together = asked_deltas(rows)
    assert np.array_equal(together, np.concatenate([asked_deltas([row]) for row in rows], axis=1), equal_nan=True)
    order = list(range(len(rows)))
    random.shuffle(order)
    assert np.array_equal(together[:, order], asked_deltas([rows[i] for i in order]), equal_nan=True)


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "end"),
    [(1.0, 0.01, 1000, 4.0), (0.6, 0.002, 300, 4.0), (3.0, 0.3, 200, 6.0), (2.0, 0.02, 400, 1.5)],
)
def test_delta_of_many_epsilons(noise: float, rate: float, steps: int, end: float) -> None:
    """Beside the ladder's own contours of both orders; convex and falling; and the inverse of ε."""
    points = np.linspace(0.0, end, 41)
    low, high = asked_deltas([(noise, rate, steps, epsilon) for epsilon in points.tolist()])
    known = np.isfinite(high)
    assert known.mean() > 0.9
    assert np.all((low <= high) | ~known)
    assert np.all((high - low)[known] <= 1e-7 * high[known])
    forward, backward = (Curve(((SampledPair(GaussianPair(1 / noise), rate, add), steps),)) for add in (False, True))
    for epsilon, a, b in zip(
        points[known][::5].tolist(), low[known][::5].tolist(), high[known][::5].tolist(), strict=True
    ):
        found = [curve.delta(epsilon) for curve in (forward, backward)]
        assert max(bound.lower for bound in found) <= b
        assert a <= max(bound.upper for bound in found)
    inverse = asked([(noise, rate, steps, delta) for delta in high[known & (high < 0.4)].tolist()])
    assert not np.any(inverse[0] > points[known & (high < 0.4)] * (1 + 1e-12))


def found_in(rule: Rule, epsilon: Floats) -> tuple[lines.Scan, lines.Cells]:
    """The axis of a rule, and the cell of its one row."""
    axis = lines.scan(rule)
    return axis, axis.cells(np.array([0]), epsilon, rule.rows.log_delta)[0]


def laid(rows: Rows, c_max: Floats, epsilon: Floats) -> list[tuple[lines.Lines, Floats]]:
    """Lines of one row, and the ε that they are for."""
    found = []
    for _, rule in rules(rows, c_max):
        axis = lines.scan(rule)
        cells, start, _ = axis.cells(np.array([0]), epsilon, rule.rows.log_delta)
        found += [(line, start) for _, line in lines.lay(axis, cells)[0]]
    return found


def first(rows: Rows) -> Rule:
    return rules(rows, np.full(rows.q.size, 40.0))[0][1]


@pytest.mark.parametrize(
    ("law", "add"),
    quick(itertools.product([(1.0, 0.01), (0.6, 0.3), (5.0, 1e-4), (30.0, 0.9)], [False, True]), 0, 3, 4, 7),
)
def test_nodes_have_all_digits_of_what_differs_from_1(law: tuple[float, float], add: bool) -> None:
    """log M(c + iu)/M(c) beside quadrature in 30 digits: off by at most the bound, which is small where M is near 1."""
    noise, rate = law
    rule = first(Rows(*(np.array([x]) for x in (1 / noise, rate, 1000.0, -150.0)), add=add))  # the cut is far
    c, h, size = np.array([3.0]), np.array([0.7]), 24
    value, error = rule.real(c[:, None])
    found, off, agree = rule.nodes(c, value[:, 0], error[:, 0], h, size)
    assert agree.all()
    with mp.workdps(30):
        mu, q = 1 / mpf(noise), mpf(rate)

        def m(s: object) -> object:
            power = -s if add else s + 1
            return mp.quad(
                lambda t: mp.npdf(t) * mp.exp(power * mp.log(1 - q + q * mp.exp(mu * t - mu * mu / 2))),
                mp.linspace(-12, 24, 25),
            )

        real = m(mpf(3))
        assert abs(mp.log(real) - mpf(float(value[0, 0]))) <= float(error[0, 0]) <= 1e-12
        for k in (1, 2, 7, 23):
            exact = m(mp.mpc(3, mpf(0.7) * k)) / real
            exact = mp.conj(exact) if add else exact  # the other half of the line
            got = mp.exp(mp.mpc(complex(found[0, k])))
            assert abs(got - exact) <= float(off[0, k])
            assert float(off[0, k]) <= 1e-13 + 5e-12 * k * abs(complex(exact) - 1)


def two_adds(noise: float, rate: float, epsilon: float) -> float:
    """δ(ε) of two uses, (without, with): E[(1 − e^ε w(t)w(t'))₊], over t' in closed form, over t in 20 digits."""
    with mp.workdps(20):
        mu, q, e = 1 / mpf(noise), mpf(rate), mpf(epsilon)

        def inner(t: object) -> object:
            w = 1 - q + q * mp.exp(mu * t - mu * mu / 2)
            r = (mp.exp(-e) / w - 1 + q) / q
            if r <= 0:
                return mpf(0)
            top = mp.log(r) / mu + mu / 2
            return mp.npdf(t) * (mp.ncdf(top) - mp.exp(e) * w * ((1 - q) * mp.ncdf(top) + q * mp.ncdf(top - mu)))

        last = (mp.exp(-e) / (1 - q) - 1 + q) / q  # r(t) from which on no t' is enough
        stop = mp.log(last) / mu + mu / 2
        return float(
            mp.quad(inner, [*mp.linspace(-12, stop - 1, 7), *(stop - mpf(2) ** -k for k in range(1, 16)), stop])
        )


@pytest.mark.parametrize(
    ("noise", "rate", "epsilon"), [(2.0, 0.5, 0.3), (1.0, 0.9, 1.5), (4.0, 0.99, 0.5), (1.5, 0.7, 1.0)]
)
@QUIET
def test_the_other_order(noise: float, rate: float, epsilon: float) -> None:
    """Its contour has the truth inside, and a δ a little below what it is, is not said to be enough."""
    delta = two_adds(noise, rate, epsilon)
    rows = Rows(*(np.array([x]) for x in (1 / noise, rate, 2.0, math.log(delta))), add=True)
    eps = np.array([epsilon])
    bounds = [line.bounds(eps) for line, _ in laid(rows, 60 * rows.mu, eps)]
    assert len(bounds) == 1
    low, high = float(bounds[0][0][0]), float(bounds[0][1][0])
    assert low * (1 - 1e-13) <= delta <= high * (1 + 1e-13)
    assert high - low <= 1e-7 * delta
    c = np.array([math.sqrt(2 - 2 * math.log(delta)) * noise])
    given = np.array([delta * (1 + 1e-6)])
    assert many._without(rows, c, eps, given)[1] <= given
    assert not many._without(rows, c, eps, np.array([delta * (1 - 1e-6)]))[1] <= delta * (1 - 1e-6)


def test_a_rule_bounds_nothing_beyond_what_it_was_made_for() -> None:
    """(without, with): w^{−c} grows on the turned lines and on the left, the more the larger c is."""
    rows = Rows(*(np.array([x]) for x in (0.2, 0.999, 100.0, -20.0)), add=True)
    rule = rules(rows, np.array([1.0]))[0][1]
    c = np.array([0.9, 1.0, 1.1, 40.0])
    assert np.isfinite(rule.real(c[None])[1]).tolist() == [[True, True, False, False]]
    assert not lines.lay(*found_in(rule, np.array([math.nan])))[0]


def test_arrays_where_a_number_stands() -> None:
    """Each is what is answered alone, whichever route that takes; with its place where it is refused."""
    sampled = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    for run in (sampled, pc.PoissonSampled(pc.Gaussian(1.0), 1e-5) * 5 + pc.Laplace(3.0), pc.Gaussian(2.0) * 3):
        epsilon = run.epsilon(delta=np.array([[1e-5, 0.7], [1e-5, 0.0]]))
        assert epsilon.upper.shape == (2, 2)
        for place, delta in (((0, 0), 1e-5), ((0, 1), 0.7), ((1, 1), 0.0)):
            alone = run.epsilon(delta=delta)
            assert (epsilon[place].lower, epsilon[place].upper, epsilon[place].route) == (
                alone.lower,
                alone.upper,
                alone.route,
            )
            assert epsilon[place].delta == delta
        found = run.delta(epsilon=[0.5, 0.0])
        for i, at in enumerate((0.5, 0.0)):
            alone = run.delta(epsilon=at)
            assert (found[i].lower, found[i].upper, found[i].route) == (alone.lower, alone.upper, alone.route)
        assert np.array_equal(np.asarray(found), found.upper)
        assert len(found) == 2
    assert sampled.epsilon(delta=[]).upper.shape == (0,)
    assert sampled.delta(epsilon=[1.0], relation=pc.ZERO_OUT)[0].relation is pc.ZERO_OUT
    group, alone = sampled.epsilon(delta=[1e-5], group_size=2)[0], sampled.epsilon(delta=1e-5, group_size=2)
    assert (group.lower, group.upper) == (alone.lower, alone.upper)
    with pytest.raises(pc.PrivcalcError, match=r"delta\[1, 0\] = 1.5: must be a probability in \[0, 1\)"):
        sampled.epsilon(delta=[[1e-5, 1e-5], [1.5, 0.1]])
    with pytest.raises(pc.PrivcalcError, match=r"epsilon\[1\] = nan: must be a finite number >= 0"):
        sampled.delta(epsilon=np.array([0.5, np.nan]))
    with pytest.raises(pc.PrivcalcError, match=r"epsilon\[1\] = True"):
        sampled.delta(epsilon=[0.5, True])
    with pytest.raises(pc.PrivcalcError, match="must be the place of one answer"):
        epsilon[0]


def test_rows_without_an_answer_are_asked_alone() -> None:
    """Rare jumps, one step, too small a δ, bad numbers: each row is what it is alone, and spoils no other."""
    noise, rate, steps, delta = (
        [1.0, 0.4, 1.0, -1.0, 1.0],
        [0.01, 1e-4, 0.01, 0.01, 0.01],
        [1000, 30, 1, 5, 100],
        1e-7,
    )
    assert np.isnan(asked([(0.4, 1e-4, 30, 1e-7), (0.8, 1e-6, 30, 1e-7)])).all()
    found = bulk(noise, rate, steps, delta)
    for row in (0, 1, 2, 4):
        answer = (pc.PoissonSampled(pc.Gaussian(noise[row]), rate[row]) * steps[row]).epsilon(delta=delta)
        assert (found["lower"][row], found["upper"][row]) == (answer.lower, answer.upper)
    assert found["error"].tolist().count("") == 4


def test_a_direction_that_fails_fails_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst of the rest would be too small an ε."""
    rows = [(1.0, 0.01, 1000, 1e-5), (2.0, 0.01, 1000, 1e-5)]
    assert np.isfinite(asked(rows)).all()
    monkeypatch.setattr(many, "_without", lambda rows, *_: np.where(rows.mu < 0.7, [[0.0], [0.0]], [[0.0], [math.nan]]))
    found = asked(rows)
    assert np.isnan(found[:, 0]).all()
    assert np.isfinite(found[:, 1]).all()


def test_bounds_need_what_they_count() -> None:
    """Too few nodes: what is cut off is missed, unless the tail is counted."""
    rows = Rows(*(np.array([x]) for x in (1.0, 0.01, 1000.0, math.log(1e-5))))
    ((line, start),) = laid(rows, rows.mu, np.array([math.nan]))
    low, high = line.bounds(start)
    some = {name: value[:, :4] for name, value in vars(line).items() if name in ("modulus", "phase", "nodes", "slack")}
    bare = lines.Lines(**(vars(line) | some))
    assert not bare.bounds(start)[0] <= low
    assert not (bare.bounds(start)[0] <= high) & (low <= bare.bounds(start)[1])
    without = lines.Lines(**(vars(line) | {"slack": np.zeros_like(line.slack)}))
    assert (without.bounds(start)[1] - without.bounds(start)[0] < high - low).all()
