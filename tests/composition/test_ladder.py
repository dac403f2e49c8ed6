"""The ladder of routes: where it stops, what it leaves out, and that its order decides about sharpness only."""

from __future__ import annotations

import math

import numpy as np
import pytest
from strategies import directions

import privcalc as pc
from privcalc.composition import curve, ladder
from privcalc.composition.aim import Built, DeltaAt, EpsilonAt, invert
from privcalc.composition.bound import Widths
from privcalc.composition.direction import Uses
from privcalc.composition.ladder import LADDER, Memory, Route, climb
from privcalc.numerics.routes.route import RouteFailed
from privcalc.tables import profile_table, tradeoff_table

USES = Uses(((pc.Gaussian(2.0).pairs(pc.ADD_OR_REMOVE_ONE).forward, 1),))
"""Of which everything is known, so that routes can be as wide as we like."""


def route(name, width, asked, *, quick=False, fails=False):
    """Bounds of the Gaussian's profile that are as wide as that."""

    def build(uses, demand):
        asked.append(name)
        if fails:
            raise RouteFailed(name)
        low, high = (lambda e: uses.one.bounds(e)[0] * (1 - width)), (lambda e: uses.one.bounds(e)[1] * (1 + width))
        return Built(lambda e: (low(e), high(e)), 1.0)

    return Route(name, lambda _: True, build, Widths(1e-6, 1e-4), Widths(1e-9, 1e-9), tries=1, quick=quick)


def climbed(aim, routes, monkeypatch):
    monkeypatch.setattr(ladder, "LADDER", routes)
    monkeypatch.setattr(ladder, "LAST", routes[-1]._replace(applies=lambda _: False))
    memory = Memory()
    found = climb(aim, aim.start(), memory)
    return found, [earlier.name for earlier in memory.kept]


AIMS = [
    pytest.param(lambda quick=False: DeltaAt(USES, 0.7, 0.0, 0.0, quick), id="delta"),
    pytest.param(lambda quick=False: EpsilonAt(USES, 1e-3, 0.0, quick), id="epsilon"),
]


@pytest.mark.parametrize("aim", AIMS)
def test_it_stops_at_the_first_route_that_is_sharp_enough(aim, monkeypatch):
    asked = []
    routes = (
        route("fails", 0.0, asked, fails=True),
        route("wide", 0.1, asked),
        route("sharp", 1e-8, asked),
        route("later", 0.0, asked),
    )
    found, kept = climbed(aim(), routes, monkeypatch)
    assert asked == ["fails", "wide", "sharp"]
    assert kept == ["wide", "sharp"]
    assert found.routes[-1] == "sharp"


@pytest.mark.parametrize("aim", AIMS)
def test_in_a_hurry_only_quick_routes_are_asked(aim, monkeypatch):
    asked = []
    routes = (route("quick", 0.1, asked, quick=True), route("slow", 1e-8, asked))
    climbed(aim(quick=True), routes, monkeypatch)
    assert asked == ["quick"]


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


QUESTIONS = [
    pytest.param(
        lambda d, anew: EpsilonAt(USES, d, 0.0, False, anew), lambda d: invert(USES.one.bounds, d, 1.0)[0], id="epsilon"
    ),
    pytest.param(lambda e, anew: DeltaAt(USES, e, 0.0, 0.0, False, anew), lambda e: USES.one.bounds(e)[0], id="delta"),
]


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
@pytest.mark.parametrize(("reach", "built"), [(1.0, 1), (1e3, 2)])
def test_a_slow_route_serves_the_next_question(question, answer, reach, built, monkeypatch):
    """As long as it is about as sharp there as where it was meant for; ``anew`` builds one for each question even so."""
    asked, first, second = [], 1e-3, 1e-2

    def build(uses, demand):
        asked.append(demand)
        own = len(asked)

        def bounds(epsilon):  # sharp for its own question, ``reach`` times less so for another one
            near = own == current
            width = 1e-5 if near else 1e-5 * reach
            return uses.one.bounds(epsilon)[0] * (1 - width), uses.one.bounds(epsilon)[1] * (1 + width)

        return Built(bounds, 1.0)

    slow = Route("slow", lambda _: True, build, Widths(1e-12, 1e-12), Widths(1e-9, 1e-9), tries=1)
    monkeypatch.setattr(ladder, "LADDER", (slow,))
    monkeypatch.setattr(ladder, "LAST", slow._replace(applies=lambda _: False))
    for anew, number in ((False, built), (True, 2)):
        memory, asked[:] = Memory(), []
        current = 1
        climb(question(first, anew), question(first, anew).start(), memory)
        current = 2
        found = climb(question(second, anew), question(second, anew).start(), memory)
        assert len(asked) == len(memory.kept) == number
        assert found.lower <= answer(second) * (1 + 1e-12)
        assert answer(second) <= found.upper * (1 + 1e-12)


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_what_was_built_for_the_nearest_question_is_asked_first(question, answer, monkeypatch):
    """And alone, where it is as sharp as it was."""
    asked = []

    def build(uses, demand):
        own = len(names)

        def bounds(epsilon):
            asked.append(own)
            return uses.one.bounds(epsilon)[0] * (1 - 1e-5), uses.one.bounds(epsilon)[1] * (1 + 1e-5)

        names.append(own)
        return Built(bounds, 1.0)

    names: list[int] = []
    slow = Route("slow", lambda _: True, build, Widths(1e-12, 1e-12), Widths(1e-9, 1e-9), tries=1)
    monkeypatch.setattr(ladder, "LADDER", (slow,))
    monkeypatch.setattr(ladder, "LAST", slow._replace(applies=lambda _: False))
    memory = Memory()
    for point in (1e-3, 1e-2, 1e-1):  # each is built: anew
        aim = question(point, True)
        climb(aim, aim.start(), memory)
    for point, nearest in ((1.1e-3, 0), (9e-3, 1), (0.09, 2)):
        asked.clear()
        aim = question(point, False)
        found = climb(aim, aim.start(), memory)
        assert set(asked) == {nearest}
        assert found.lower <= answer(point) * (1 + 1e-12)


WIDE_ENOUGH = [
    pytest.param(lambda rtol: DeltaAt(USES, 0.7, 0.0, 0.0, False, rtol=rtol), id="delta"),
    pytest.param(lambda rtol: EpsilonAt(USES, 1e-3, 0.0, False, rtol=rtol), id="epsilon"),
]


@pytest.mark.parametrize("aim", WIDE_ENOUGH)
def test_no_more_is_asked_than_is_enough(aim, monkeypatch):
    for rtol, routes in ((0.5, ["wide"]), (0.0, ["wide", "sharp"])):
        asked: list[str] = []
        found, _ = climbed(aim(rtol), (route("wide", 0.1, asked), route("sharp", 1e-8, asked)), monkeypatch)
        assert asked == routes
        assert (found.width() < 1e-6) == (rtol == 0.0)


def test_a_width_that_is_enough_is_what_a_lattice_is_laid_for(monkeypatch):
    """μ needs δ(0) to few digits, and what only says where to search fewer; a lattice for nine took a hundred times as long."""
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


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_a_fast_route_that_always_fails_is_not_tried_where_a_slow_one_answers(question, answer, monkeypatch):
    asked, memory = [], Memory()
    fast, slow = route("fast", 0.0, asked, quick=True, fails=True), route("slow", 1e-7, asked)
    monkeypatch.setattr(ladder, "LADDER", (fast, slow))
    monkeypatch.setattr(ladder, "LAST", slow._replace(applies=lambda _: False))
    for point in (1e-3, 2e-3, 3e-3, 4e-3, 5e-3):
        aim = question(point, False)
        found = climb(aim, aim.start(), memory)
        assert found.lower <= answer(point) * (1 + 1e-12)
        assert answer(point) <= found.upper * (1 + 1e-12)
    assert asked == ["fast", "slow", "fast"]


def test_what_was_built_far_away_is_not_searched(monkeypatch):
    """A search takes a hundred evaluations of each route that was kept: ten seconds, where another is built in a tenth."""
    asked, evaluated, memory = [], [], Memory()

    def route_of(uses, demand):
        built, delta = route("slow", 1e-8, asked).build(uses, demand), demand.delta
        return built._replace(bounds=lambda e: (evaluated.append(delta), built.bounds(e))[1])

    monkeypatch.setattr(ladder, "LADDER", (route("slow", 1e-8, asked)._replace(build=route_of),))
    monkeypatch.setattr(ladder, "LAST", ladder.LAST._replace(applies=lambda _: False))
    for delta, others in ((1e-12, []), (1e-3, [1e-3]), (1.1e-3, [1e-3])):
        evaluated.clear()
        aim = EpsilonAt(USES, delta, 0.0, quick=False)
        climb(aim, aim.start(), memory)
        assert set(evaluated) == set(others or [delta])
    assert asked == ["slow", "slow"]


def test_a_quick_question_is_told_what_was_built(monkeypatch):
    asked, memory = [], Memory()
    slow = route("slow", 1e-7, asked)
    monkeypatch.setattr(ladder, "LADDER", (slow,))
    monkeypatch.setattr(ladder, "LAST", slow._replace(applies=lambda _: False))
    for quick in (False, True):
        aim = EpsilonAt(USES, 1e-3, 0.0, quick)
        found = climb(aim, aim.start(), memory)
        assert found.width() < 1e-6
    assert asked == ["slow"]


def test_what_is_nearly_known_is_planned_for_once(monkeypatch):
    """A curve of many points: what was built at one point tells the next what to plan for."""
    laid, build = [], ladder.contour.build

    def spy(*arguments, **given):
        laid.append(given["epsilon"])
        return build(*arguments, **given)

    monkeypatch.setattr(ladder.contour, "build", spy)
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    found = profile_table(run, np.linspace(0, 4, 60))
    assert np.all(found["upper"] - found["lower"] <= 1e-6 * found["upper"])
    assert len(laid) <= 6, "one that is as sharp as where it was laid serves the next points, too"


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
    """Bit for bit: of one run, whatever was asked of it or of an equal one; of a table, in whatever order it has its points."""
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
