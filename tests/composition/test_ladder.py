"""The ladder of routes: where it stops, what it leaves out, and that its order decides about sharpness only."""

from __future__ import annotations

import math

import numpy as np
import pytest
from strategies import directions

import privcalc as pc
from privcalc.composition import curve, ladder
from privcalc.composition.direction import Widths
from privcalc.composition.ladder import LADDER, Ladder, Route
from privcalc.composition.question import DeltaAt, EpsilonAt, Laid, invert, level
from privcalc.composition.uses import Uses
from privcalc.numerics.interfaces import RouteFailed
from privcalc.tables import profile_table, tradeoff_table

USES = Uses(((pc.Gaussian(2.0).pairs(pc.ADD_OR_REMOVE_ONE).forward, 1),))
"""Of which everything is known, so that routes can be as wide as we like."""


def route(name, width, asked, *, quick=False, fails=False):
    """Bounds of the Gaussian's profile that are as wide as that."""

    def lay(uses, demand, best):
        asked.append(name)
        if fails:
            raise RouteFailed(name)
        low, high = (lambda e: uses.one.bounds(e)[0] * (1 - width)), (lambda e: uses.one.bounds(e)[1] * (1 + width))
        return Laid(lambda e: (low(e), high(e)), 1.0)

    return Route(name, lambda _: True, lay, Widths(1e-6, 1e-4), Widths(1e-9, 1e-9), tries=1, quick=quick)


QUESTIONS = [
    pytest.param(lambda **given: DeltaAt(epsilon=0.7, **given), id="delta"),
    pytest.param(lambda **given: EpsilonAt(1e-3, **given), id="epsilon"),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_stops_at_the_first_route_that_is_sharp_enough(question):
    asked = []
    routes = (
        route("fails", 0.0, asked, fails=True),
        route("wide", 0.1, asked),
        route("sharp", 1e-8, asked),
        route("later", 0.0, asked),
    )
    found = Ladder(USES, routes).climb(question())
    assert list(dict.fromkeys(asked)) == ["fails", "wide", "sharp"]
    assert found.routes[-1] == "sharp"


@pytest.mark.parametrize("question", QUESTIONS)
def test_in_a_hurry_only_quick_routes_are_asked(question):
    asked = []
    routes = (route("quick", 0.1, asked, quick=True), route("slow", 1e-8, asked))
    Ladder(USES, routes).climb(question(quick=True))
    assert set(asked) == {"quick"}


@pytest.mark.parametrize(
    "run",
    [
        pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 300,
        pc.Laplace(3.0) * 5 + pc.Gaussian(4.0),
        pc.RandomizedResponse(0.3) * 4 + pc.RandomizedResponse(0.1),
        pc.PoissonSampled(pc.Laplace(1.0), 0.1) * 6,
    ],
    ids=str,
)
def test_the_order_costs_digits_only(run, monkeypatch):
    questions = (lambda: run.epsilon(delta=1e-6), lambda: run.delta(epsilon=0.3))
    usual = [question() for question in questions]
    monkeypatch.setattr(ladder, "LADDER", LADDER[::-1])
    for one, question in zip(usual, questions, strict=True):
        other = question()
        assert max(one.lower, other.lower) <= min(one.upper, other.upper)
        assert other.upper - other.lower <= 1e-3 * other.upper


@pytest.mark.parametrize("width", [1e-5, 0.01, 0.3])
def test_each_end_is_as_near_as_the_bounds_allow(width):
    """Also where the two lie far apart, and the search ends anywhere between them."""
    for guess in (0.1, 5.0, 40.0):
        low, high = invert(lambda e: (math.exp(-e) * (1 - width), math.exp(-e) * (1 + width)), 0.01, guess)
        left, right = -math.log(0.01 / (1 - width)), -math.log(0.01 / (1 + width))
        assert low <= left < right <= high
        assert high - low <= 1.02 * (right - left)


ASKED = [
    pytest.param(EpsilonAt, lambda d: invert(USES.one.bounds, d, 1.0)[0], id="epsilon"),
    pytest.param(lambda e: DeltaAt(epsilon=e, rtol=1e-6), lambda e: USES.one.bounds(e)[0], id="delta"),
]


def sharp_where_laid(asked, reach):
    """A slow route that is 1e-5 wide at the ε or δ that it was laid for, and ``reach`` times that elsewhere."""

    def lay(uses, demand, best):
        asked.append(demand)
        place = demand.epsilon or invert(uses.one.bounds, demand.delta, 1.0)[0]

        def bounds(epsilon):
            width = 1e-5 if abs(epsilon - place) < 0.02 * place else 1e-5 * reach
            return uses.one.bounds(epsilon)[0] * (1 - width), uses.one.bounds(epsilon)[1] * (1 + width)

        return Laid(bounds, 1.0)

    return Route("slow", lambda _: True, lay, Widths(1e-12, 1e-12), Widths(1e-4, 1e-4), tries=1)


@pytest.mark.parametrize(("question", "answer"), ASKED)
@pytest.mark.parametrize(("reach", "most"), [(1.0, 2), (1e3, 5)])
def test_a_slow_route_serves_its_neighbourhood(question, answer, reach, most):
    """As long as it is about as sharp there as where it was laid; else it is laid for the question itself."""
    asked = []
    routes = Ladder(USES, (sharp_where_laid(asked, reach),))
    for point in (0.011, 0.012, 0.013):
        found = routes.climb(question(point))
        assert found.lower <= answer(point) * (1 + 1e-12)
        assert answer(point) <= found.upper * (1 + 1e-12)
        assert found.width() < 1e-4
    assert len(asked) <= most
    assert len(asked) > 3 or reach == 1.0


@pytest.mark.parametrize(("question", "_"), ASKED)
@pytest.mark.parametrize("reach", [1.0, 1e3])
def test_answers_are_the_same_in_every_order(question, _, reach):
    """Bit for bit, and the same as of a ladder of which nothing else was asked."""
    points = [0.5, 0.012, 0.1, 0.03, 0.0301, 0.07]
    routes = Ladder(USES, (sharp_where_laid([], reach),))
    found = {point: routes.climb(question(point)) for point in points}
    back = Ladder(USES, (sharp_where_laid([], reach),))
    assert {point: back.climb(question(point)) for point in points[::-1]} == found
    assert {point: Ladder(USES, (sharp_where_laid([], reach),)).climb(question(point)) for point in points} == found


@pytest.mark.parametrize(
    ("delta", "there"), [(1e-5, 1e-5), (9.99e-6, 1e-6), (0.3, 0.1), (1e-300, 1e-300), (5e-324, 5e-324)]
)
def test_neighbourhoods_are_powers_of_ten(delta, there):
    assert level(delta) == there


WIDE_ENOUGH = [
    pytest.param(lambda rtol: DeltaAt(epsilon=0.7, rtol=rtol), id="delta"),
    pytest.param(lambda rtol: EpsilonAt(1e-3, rtol=rtol), id="epsilon"),
]


@pytest.mark.parametrize("question", WIDE_ENOUGH)
def test_no_more_is_asked_than_is_enough(question):
    for rtol, routes in ((0.5, ["wide"]), (0.0, ["wide", "sharp"])):
        asked: list[str] = []
        found = Ladder(USES, (route("wide", 0.1, asked), route("sharp", 1e-8, asked))).climb(question(rtol))
        assert list(dict.fromkeys(asked)) == routes
        assert (found.width() < 1e-6) == (rtol == 0.0)


def test_a_width_that_is_enough_is_what_a_lattice_is_laid_for(monkeypatch):
    """μ needs δ(0) to few digits, what only says where to search fewer; a lattice for nine took 100 times as long."""
    laid = []

    def build(entries, **demand):
        laid.append(demand["least"])
        raise RouteFailed("seen")

    monkeypatch.setattr(ladder.lattice, "build", build)
    run = pc.ExponentialMechanism(0.3) * 3 + pc.Gaussian(2.0)
    curves = [curve.Curve(side) for side in run._sides(pc.ADD_OR_REMOVE_ONE).lower]
    for rtol, least in ((0.03, 0.006), (1e-5, 2e-6), (1e-9, 1e-9)):
        laid.clear()
        curves[0].delta(0.0, rtol=rtol)
        assert laid
        assert laid == pytest.approx([least] * len(laid))


def test_a_curve_of_many_points_has_few_contours(monkeypatch):
    """One for every power of ten of δ, and what is above 1/2."""
    laid, build = [], ladder.contour.build

    def spy(*arguments, **given):
        laid.append(given["epsilon"])
        return build(*arguments, **given)

    monkeypatch.setattr(ladder.contour, "build", spy)
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    found = profile_table(run, np.linspace(0, 4, 60))
    assert np.all(found["upper"] - found["lower"] <= 1e-6 * found["upper"])
    assert len(set(laid)) <= 2 * len(set(map(level, found["upper"].tolist()))), "in each order"


def test_a_bound_on_the_axis_serves_nearby_questions(monkeypatch):
    lines, axis = [], curve.contour.axis
    monkeypatch.setattr(curve.contour, "axis", lambda *given: lines.append(1) or axis(*given))
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    add = curve.Curve(directions(run, pc.ADD_OR_REMOVE_ONE)[1])
    truth = {e: add.delta(e) for e in (1.0, 1.05, 1.1)}
    lines.clear()
    for epsilon, delta in truth.items():
        assert add.proves(epsilon, 10 * delta.upper, cheaply=True)
        assert not add.proves(epsilon, 0.9 * delta.lower, cheaply=True)
    lines.clear()
    assert all(add.proves(epsilon, 10 * delta.upper, cheaply=True) for epsilon, delta in truth.items())
    assert not lines


def test_answers_do_not_depend_on_what_was_asked_before():
    """Bit for bit: of one run, whatever was asked of it or of an equal one; of a table, in any order of its points."""
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100 + pc.RandomizedResponse(0.1) * 2

    def asked(run: pc.Run) -> list[object]:
        return [run.delta(epsilon=0.5), run.epsilon(delta=1e-5), run.beta(alpha=0.1)]

    first = asked(run)
    run.delta(epsilon=0.52)
    run.epsilon(delta=1.1e-5)
    for table, points in ((profile_table, [0.5, 0.1, 0.52, 0.5]), (tradeoff_table, [0.1, 0.05, 0.3, 0.1])):
        there, back = table(run, points), table(run, points[::-1])[::-1]
        assert np.array_equal(there, back)
    assert asked(run) == first
    assert asked(pc.Run(run.entries)) == first
