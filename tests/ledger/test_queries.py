"""Questions to tables: no person moves a release by more than was declared, and no row decides whether there is one."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import itertools
import math
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import privcalc as pc
from privcalc.ledger.answers import MISS, half_width, shortfall
from privcalc.ledger.columns import Asked
from privcalc.ledger.tables import Tables

ADD, REPLACE, ZERO = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
NOISES = (pc.Gaussian(1.0), pc.Laplace(1.0))
GROUPS = ["N", "S", 3, None]
GRID = [-1.0, 0.0, 0.5, 2.0, 2.5]
CHOICE = pc.ExponentialMechanism(1.0, monotone=False)


class Bare(Tables):
    """Answers without noise, and notes what was asked of the ledger."""

    def __init__(self, relation=ADD, noise=np.zeros):
        self.relation, self.noise = relation, noise

    @property
    def terms(self):
        return SimpleNamespace(relation=self.relation)

    def _of_persons(self, persons):
        return contextlib.nullcontext()

    def gaussian(self, values, mechanism, *, clip_norm, error, label=None):
        assert error == 0  # of the doubles themselves the bound holds
        self.values, self.bound = values, clip_norm
        return values + self.noise(len(values))

    laplace = gaussian

    def _charge(self, mechanism, *, label):
        pass

    def select(self, scores, mechanism, *, sensitivity, monotone=False, joint=False, label=None):
        self.values, self.bound, self.monotone = scores, sensitivity, monotone
        assert joint == (np.ndim(scores) == 2)
        best = np.argmax(scores, axis=-1)
        if isinstance(mechanism, pc.TopK):
            return np.sort(np.argsort(-np.asarray(scores), axis=-1, kind="stable")[..., : mechanism.k], axis=-1)
        return best if joint else int(best)


def taken(person):
    """Which rows count, of which each person has one at most."""
    marks = 2.0 ** np.arange(len(person))
    found = Bare().sum(marks, NOISES[0], lower=0, upper=marks[-1], rows_per_person=1, person=person).value
    return [bool(int(found) >> row & 1) for row in range(len(person))]


# --- neighbours ---------------------------------------------------------------------------------------

ODD = [
    None,
    "text",
    "2",
    b"1",
    [1.0],
    10**400,
    -(10**400),
    Fraction(1, 3),
    decimal.Decimal("2.5"),
    True,
    1j,
    object(),
    math.nan,
]
FLOATS = st.floats(-3, 3) | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.1, 2.0, 2.5])
VALUES = {
    np.float64: FLOATS,
    np.float32: FLOATS.map(lambda value: float(np.float32(np.clip(value, -3e38, 3e38)))),
    np.int64: st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]),
    np.uint64: st.integers(0, 4) | st.sampled_from([2**64 - 1, 2**63, 2**53 + 1]),
    np.uint8: st.integers(0, 255),
    np.bool_: st.booleans(),
    object: FLOATS | st.sampled_from(ODD),
}
NAMES = st.sampled_from([*GROUPS, "X", 3.0, math.nan, (1, [2]), [], 0])
IDS = st.sampled_from(["ann", "bob", 7, 7.5])


def array(values, kind):
    found = np.empty(len(values), dtype=kind)
    for place, value in enumerate(values):
        found[place] = value
    return found


@st.composite
def neighbours(draw):
    """Columns of two tables: with one more person's rows, and with another person's, or none, in their place."""
    kind = draw(st.sampled_from(list(VALUES)))
    row = st.tuples(VALUES[kind], NAMES)
    most, known = draw(st.integers(1, 3)), draw(st.booleans())
    others = [(*cells, who) for cells, who in draw(st.lists(st.tuples(row, IDS | st.none()), max_size=8))]
    relation = draw(st.sampled_from([ADD, ZERO, REPLACE]))
    # Where the ledger sees whose rows they are, a person may have more of them than count.
    size = 3 * most if known else most
    first = draw(st.lists(row, max_size=size))
    second = draw(st.lists(row, max_size=size)) if relation is REPLACE else []

    def table(rows):
        found = list(others)
        for cells in rows:
            found.insert(draw(st.integers(0, len(found))), (*cells, "new"))
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        return {"x": array(columns[0], kind), "by": array(columns[1], object), "who": array(columns[2], object)}

    grouped = draw(st.booleans())
    options = {"rows_per_person": most, "person": "who" if known else None}
    options |= {"by": "by", "groups": GROUPS} if grouped else {}
    return relation, table(first), table(second), options


def exact(values):
    return [Fraction(float(value)) for value in np.ravel(values)]


@settings(max_examples=400 if SLOW else 100, deadline=None)
@given(neighbours(), st.sampled_from(["count", "sum", "mean", "histogram"]), st.sampled_from(NOISES), st.data())
def test_no_person_moves_sums_by_more_than_is_declared(both, question, noise, data):
    relation, one, two, options = both
    if question in {"sum", "mean"}:
        bounds = st.sampled_from([-1e90, -3, -0.1, 0, 0.1, 1 / 3, 2, 2**53 + 2.0, 1e90])
        low, high = sorted(data.draw(st.lists(bounds, min_size=2, max_size=2, unique=True)))
        options |= {"column": "x", "lower": low, "upper": high}
    elif question == "histogram":
        options |= {
            "column": "x",
            "edges": data.draw(st.sampled_from([[0, 1], [-1.0, 0.0, 2.5], [-math.inf, 0.1, math.inf]])),
        }
    found = []
    for table in (one, two):
        bare = Bare(relation)
        answer = getattr(bare, question)(table, noise, **options)
        assert np.all(np.isfinite(answer.value))
        found.append((exact(bare.values), Fraction(bare.bound)))
    (a, bound), (b, same) = found
    assert bound == same  # it is public
    moved = [abs(x - y) for x, y in zip(a, b, strict=True)]
    most = bound * (2 if relation is REPLACE else 1)
    if isinstance(noise, pc.Gaussian):
        assert sum(x * x for x in moved) <= most**2
    else:
        assert sum(moved) <= most


@settings(max_examples=200 if SLOW else 60, deadline=None)
@given(neighbours(), st.sampled_from(["count", "sum", "histogram"]))
def test_whole_numbers_with_discrete_noise(both, question):
    relation, one, two, options = both
    if question == "sum":
        options |= {"column": "x", "lower": -2, "upper": 5}
    elif question == "histogram":
        options |= {"column": "x", "edges": [0, 1, 2]}
    noise = pc.DiscreteGaussian(2.0, 5 * options["rows_per_person"])
    found = []
    for table in (one, two):
        bare = Bare(relation)
        getattr(bare, question)(table, noise, **options)
        assert bare.values.dtype == np.int64
        assert bare.bound == noise.sensitivity
        found.append(bare.values.astype(object))
    assert sum(np.abs(found[0] - found[1])) <= noise.sensitivity * (2 if relation is REPLACE else 1)


@settings(max_examples=400 if SLOW else 100, deadline=None)
@given(neighbours(), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_no_person_moves_ranks_by_more_than_is_declared(both, share):
    """One choice of a candidate in each group: the score of any tuple, a sum, moves by no more than the sensitivity."""
    relation, one, two, options = both
    found = []
    for table in (one, two):
        bare = Bare(relation)
        bare.quantile(table, CHOICE, share=share, candidates=GRID, column="x", **options)
        assert not bare.monotone
        found.append(np.atleast_2d(bare.values))
    moved = [
        [Fraction(x) - Fraction(y) for x, y in zip(*rows, strict=True)]
        for rows in zip(*map(np.ndarray.tolist, found), strict=True)
    ]
    most = Fraction(bare.bound) * (2 if relation is REPLACE else 1)
    assert sum(max(map(abs, row)) for row in moved) <= most


@pytest.mark.parametrize(
    ("relation", "grouped", "one", "two", "moves"),
    [(ADD, False, [9, 9], [], 1.8), (ADD, True, [9, (9, "S")], [], 1.8), (REPLACE, False, [-9, -9], [9, 9], 2.0),
     (REPLACE, True, [9, 9], [(9, "S"), (9, "S")], 3.6)],
)  # fmt: skip
def test_the_bound_of_a_quantile_is_reached(relation, grouped, one, two, moves):
    others, given = [(5, "N")] * 20, {"share": 0.9, "candidates": [0, 6, 8]}
    moved, bound = between(relation, grouped, (one, two), others, "quantile", CHOICE, **given)
    assert np.abs(np.atleast_2d(moved)).max(axis=1).sum() == pytest.approx(moves, abs=1e-5)
    assert bound == pytest.approx(moves, abs=1e-5)


def between(relation, grouped, rows, others, question, mechanism, **options):
    """What a question adds up of two tables, one less the other; and how far that may move, as it is declared."""
    options |= {"by": "by", "groups": ["N", "S"]} if grouped else {}
    found = []
    for mine in rows:
        full = [row if isinstance(row, tuple) else (row, "N") for row in [*mine, *others]]
        bare, table = Bare(relation), {"x": [value for value, _ in full], "by": [name for _, name in full]}
        getattr(bare, question)(table, mechanism, column="x", rows_per_person=2, person=None, **options)
        found.append(bare.values)
    return found[0] - found[1], bare.bound * (2 if relation is REPLACE else 1)


@pytest.mark.parametrize("share", [0.9, 2 / 3, 0.99, 1e-9])
def test_ranks_are_exact(share):
    """As 0.9 · n is not: some row moves it by more than 0.9."""
    for n in range(100):
        moved = []
        for rows in (n, n + 1):
            bare = Bare()
            bare.quantile(np.full(rows, 2.0), CHOICE, share=share, candidates=GRID, rows_per_person=1)
            moved.append([Fraction(score) for score in bare.values.tolist()])
        assert max(abs(x - y) for x, y in zip(*moved, strict=True)) <= Fraction(bare.bound)


@settings(max_examples=300 if SLOW else 80, deadline=None)
@given(neighbours(), st.sampled_from([pc.TopK(1.0, 1), pc.TopK(1.0, 2), pc.ExponentialMechanism(1.0)]))
def test_a_person_only_adds_to_counts(both, choice):
    relation, one, two, options = both
    found = []
    for table in (one, two):
        bare = Bare(relation)
        bare.top(table, choice, candidates=[0, 1, 2.5, "text", None], column="x", **options)
        assert bare.monotone
        found.append(np.atleast_2d(bare.values))
    moved = found[0] - found[1]
    if relation is not REPLACE:
        assert moved.min() >= 0
    assert sum(np.maximum(moved, 0).max(axis=1)) <= bare.bound
    assert sum(np.maximum(-moved, 0).max(axis=1)) <= bare.bound


@pytest.mark.parametrize(
    ("relation", "low", "high", "grouped", "one", "two", "euclid"),
    [
        (ADD, 0, 5, False, [5, 5], [], 10),
        (ADD, -7, 5, True, [-7, -7], [], 14),
        (ZERO, -7, 5, False, [-7, -7], [], 14),
        (REPLACE, -7, 5, False, [-7, -7], [5, 5], 24),
        (REPLACE, 2, 5, False, [], [5, 5], 10),
        (REPLACE, 0, 5, True, [5, 5], [(5, "S"), (5, "S")], math.sqrt(200)),
        (REPLACE, -5, 5, True, [5, 5], [-5, -5], 20),
    ],
)
def test_the_bound_of_a_sum_is_reached(relation, low, high, grouped, one, two, euclid):
    """Neither too small nor larger than need be."""
    moved, bound = between(relation, grouped, (one, two), [(1, "S")], "sum", NOISES[0], lower=low, upper=high)
    assert np.linalg.norm(moved) == pytest.approx(euclid, rel=1e-15)
    assert euclid <= bound * (1 + 1e-15) <= euclid * (1 + 1e-6)


@pytest.mark.parametrize(
    ("relation", "grouped", "noise", "one", "two", "moves"),
    [
        (ADD, False, NOISES[0], [9, 9], [], math.sqrt(2) * 8),
        (ADD, True, NOISES[1], [9, (1, "S")], [], 16),
        (REPLACE, False, NOISES[0], [1, 1], [9, 9], 16),
        (REPLACE, False, NOISES[1], [1, 1], [9, 9], 16),
        (REPLACE, True, NOISES[0], [1, 1], [(9, "S"), (9, "S")], 16),
        (REPLACE, True, NOISES[1], [1, 1], [(9, "S"), (9, "S")], 32),
    ],
)
def test_the_bound_of_a_mean_is_reached(relation, grouped, noise, one, two, moves):
    moved, bound = between(relation, grouped, (one, two), [(5, "S")], "mean", noise, lower=1, upper=9)
    assert np.linalg.norm(moved, 1 if noise is NOISES[1] else 2) == pytest.approx(moves, rel=1e-15)
    assert moves <= bound <= moves * (1 + 1e-6)


def test_rounding_is_paid_for():
    """The rounded sum moves by more than the largest value, and by no more than is declared."""
    others = np.full(1000, 0.1)
    seen = 0
    for n in range(1, 200):
        bare = Bare()
        moved = []
        for extra in ([], [1.0]):
            bare.sum([*others[:n], *extra], NOISES[0], lower=0, upper=1, rows_per_person=1)
            moved.append(Fraction(float(bare.values[0])))
        assert moved[1] - moved[0] <= Fraction(bare.bound)
        seen += moved[1] - moved[0] > 1
    assert seen
    assert 1 < bare.bound < 1 + 1e-6


# --- what is computed -------------------------------------------------------------------------------------


@given(st.lists(FLOATS, max_size=30), st.sampled_from([(-1.0, 2.0), (0.0, 1e90), (-1e-5, 0.1)]))
@example([0.1] * 7 + [1e16, -1e16, math.nan], (-1e90, 1e90))
def test_sums_are_exact(values, bounds):
    bare, step = Bare(), 2.0 ** (math.frexp(max(-bounds[0], bounds[1]))[1] - 51)
    clipped = [
        Fraction(math.floor(min(max(value, bounds[0]), bounds[1]) / step + 0.5)) * Fraction(step)
        for value in values
        if not math.isnan(value)
    ]  # of a grid
    found = bare.sum(np.array(values), NOISES[0], lower=bounds[0], upper=bounds[1], rows_per_person=1)
    assert found.value == float(sum(clipped))
    assert bare.count(np.array(values), NOISES[0], rows_per_person=1).value == len(values)
    mean = bare.mean(np.array(values), NOISES[0], lower=bounds[0], upper=bounds[1], rows_per_person=1).value
    width = bounds[1] - bounds[0]
    assert mean == pytest.approx(float(sum(clipped) / len(clipped)) if clipped else sum(bounds) / 2, abs=1e-12 * width)
    counts = bare.histogram(np.array(values), NOISES[0], edges=[-1.0, 0.0, 2.0], rows_per_person=1).value
    inside = [value for value in values if not math.isnan(value)]
    assert counts.tolist() == [sum(value < 0 for value in inside), sum(value >= 0 for value in inside)]


@given(
    st.lists(st.sampled_from([*GRID, 1.0, -9.0, math.inf]), min_size=1, max_size=30),
    st.sampled_from([0.25, 0.5, 1.0, 0.0]),
)
def test_quantiles(values, share):
    """The best candidate is a quantile where one is: at most share·n values lie below, at least as many up to it."""
    bare, n = Bare(), len(values)
    found = bare.quantile(np.array(values), CHOICE, share=share, candidates=GRID, rows_per_person=1).value
    ranks = {c: (sum(v < c for v in values), sum(v <= c for v in values)) for c in GRID}
    far = {c: max(low - share * n, share * n - high, 0) for c, (low, high) in ranks.items()}
    assert far[found] == min(far.values())
    if n % 4 == 0 and set(values) <= set(GRID):
        assert far[found] == 0


def test_groups_and_people():
    table = {
        "who": ["a", "a", "b", None, "b", "b", math.nan, "c"],
        "shop": ["N", "S", "N", "N", "?", "N", "S", "S"],
        "spent": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, None],
    }
    bare, options = Bare(), {"rows_per_person": 2, "person": "who", "by": "shop", "groups": ["S", "N", "W"]}
    found = bare.count(table, NOISES[0], **options)
    assert found.groups == ("S", "N", "W")
    assert found.value.tolist() == [
        2,
        2,
        0,
    ]  # a's two rows, b's first (its second is in no group), c's; nobody's are not
    assert bare.sum(table, NOISES[0], column="spent", lower=0, upper=3, **options).value.tolist() == [2, 1 + 3, 0]
    assert bare.mean(table, NOISES[0], column="spent", lower=0, upper=4, **options).value.tolist() == [2, 2.5, 2]
    assert bare.histogram(table, NOISES[0], column="spent", edges=[0, 2, 4], **options).value.tolist() == [
        [0, 1],
        [1, 1],
        [0, 0],
    ]
    assert bare.quantile(table, CHOICE, column="spent", share=0.5, candidates=[1, 2, 4], **options).value.tolist() == [
        2,
        1,
        1,
    ]
    assert bare.top(
        table, pc.TopK(1.0, 2), column="shop", candidates=["N", "?", "S"], rows_per_person=9, person=None
    ).value == ("N", "S")
    assert bare.top(table, pc.ExponentialMechanism(1.0), column="spent", candidates=[2.0, 4.0], **options).value == (
        (2.0,),
        (4.0,),
        (2.0,),
    )
    assert bare.count([1, 2, 3], NOISES[0], rows_per_person=1, by=["x", "y", "x"], groups=["x"]).value.tolist() == [2]
    odd = np.array([10**400, -(10**400), Fraction(1, 2), decimal.Decimal("0.25"), "1", [1.0], None, True], dtype=object)
    assert bare.sum(odd, NOISES[0], lower=-2, upper=4, rows_per_person=1).value == 4 - 2 + 0.5 + 0.25 + 1 + 1
    assert (
        bare.sum(odd, pc.DiscreteGaussian(1.0, 4), lower=-2, upper=4, rows_per_person=1).value == 4 - 2 + 1 + 0 + 1 + 1
    )
    with pytest.raises(ValueError, match="read-only"):
        found.value[0] = 1
    with pytest.raises(AttributeError):
        found.value = 1


@pytest.mark.parametrize(("library", "name"), [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")])
def test_data_frames(library, name):
    make = getattr(pytest.importorskip(library), name)
    frame = make(
        {
            "who": ["a", "b", "b", None],
            "shop": ["N", "S", None, "N"],
            "spent": [1.5, None, 4.0, 8.0],
            "n": [1, 2, 3, None],
        }
    )
    bare, by = Bare(), {"by": "shop", "groups": ["N", "S"]}
    assert bare.count(frame, NOISES[0], rows_per_person=1, person=None).value == 4
    assert bare.count(frame, NOISES[0], rows_per_person=1, person="who").value == 2
    assert bare.count(frame, NOISES[0], rows_per_person=1, person=None, **by).value.tolist() == [2, 1]
    assert bare.sum(
        frame, NOISES[0], column="spent", lower=0, upper=5, rows_per_person=1, person=None, **by
    ).value.tolist() == [6.5, 0]
    assert bare.sum(frame["n"], NOISES[0], lower=0, upper=2, rows_per_person=1).value == 5
    assert bare.mean(
        frame, NOISES[0], column="n", lower=0, upper=4, rows_per_person=1, person=None, **by
    ).value.tolist() == [1, 2]
    assert bare.top(
        frame, pc.TopK(1.0, 1), column="shop", candidates=["S", "N"], rows_per_person=1, person=None
    ).value == ("N",)
    texts = make({"spent": ["1.5", "n/a", "4"]})
    assert bare.sum(texts, NOISES[0], column="spent", lower=0, upper=5, rows_per_person=1).value == 5.5
    with pytest.raises(pc.PrivcalcError, match=r"column = 'cost': the table has no such column"):
        bare.sum(frame, NOISES[0], column="cost", lower=0, upper=5, rows_per_person=1, person=None)


@pytest.mark.parametrize("odd", ["n/a", None, [1, 2], math.nan, 10**400, 1j])
def test_one_odd_cell_changes_its_row_only(odd):
    """For NumPy a list with a text is all texts, one with a list is none; a missing number makes floats of integers."""
    bare, clean = Bare(), [1, 2, 3]
    for noise in (pc.Gaussian(1.0), pc.DiscreteGaussian(1.0, 5)):
        before = bare.sum(clean, noise, lower=0, upper=5, rows_per_person=1).value
        bound, after = bare.bound, bare.sum([*clean, odd], noise, lower=0, upper=5, rows_per_person=1).value
        assert (after - before, bare.bound) == (5 if odd == 10**400 else 0, bound)
    table = {"by": ["N", "N", odd], "who": [1, odd, 2]}
    answer = bare.count(table, NOISES[0], rows_per_person=1, person="who", by="by", groups=["N", "S"])
    assert answer.value.tolist()[0] == 1 + (odd in ("n/a", 1j, 10**400))


@pytest.mark.parametrize("clean", [[1, 2, 2], [0.5, 2, 2], [True, False, False], ["01", "2", "2"]])
@pytest.mark.parametrize("odd", ["x", math.nan])
def test_one_odd_cell_makes_texts_of_all_and_changes_its_row_only(clean, odd):
    """As NumPy makes texts of [1, "x"], and a reader of files numbers of the texts 01 and 2, unless there is an x."""
    bare, groups, one = Bare(), list(dict.fromkeys(clean)), {"rows_per_person": 1}
    texts = np.array([str(value) for value in clean] + ["x"])
    readings = [clean, np.array(clean), np.array([*clean, odd]), texts]
    if not isinstance(clean[0], bool):
        readings.append(np.array([float(value) for value in clean] + [math.nan]))
    for column in readings:
        table = {"c": column}
        assert bare.count(table, NOISES[0], by="c", groups=groups, **one).value.tolist() == [1, 2]
        assert bare.top(table, pc.ExponentialMechanism(1.0), column="c", candidates=groups, **one).value == (groups[1],)
        assert bare.sum(table, NOISES[0], column="c", lower=0, upper=9, **one).value == sum(map(float, clean))
    with pytest.raises(pc.PrivcalcError, match="must be different values"):
        bare.count({"c": texts}, NOISES[0], by="c", groups=[*groups, f" {float(clean[0])}"], **one)


def test_nullable_integers_and_categories():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"n": pandas.array([1, None, 7], dtype="Int64"), "c": pandas.Categorical(["a", None, "b"])}
    )
    bare = Bare()
    assert bare.sum(frame, NOISES[0], column="n", lower=0, upper=5, rows_per_person=1, person=None).value == 6
    assert bare.count(frame, NOISES[0], rows_per_person=1, person=None, by="c", groups=["b", "a"]).value.tolist() == [
        1,
        1,
    ]


# --- error bars -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("miss", [MISS, 0.5 * MISS, 1e-6])
def test_error_bars_of_sums(miss):
    for scale in (1e-3, 0.4, 1.0, 30.0):
        width = half_width(pc.Gaussian(scale), 7.0, miss)
        assert miss * (1 - 1e-6) <= 2 * stats.norm.sf(width, scale=7 * scale) <= miss
        width = half_width(pc.Laplace(scale), 7.0, miss)
        assert miss * (1 - 1e-6) <= 2 * stats.laplace.sf(width, scale=7 * scale) <= miss
    for sigma in np.concatenate([np.linspace(0.05, 6, 200), [31.4, 200.0]]):
        width = half_width(pc.DiscreteGaussian(sigma / 3, 3), 3.0, miss)
        x = np.arange(0, int(12 * sigma) + 9)
        weights = np.exp(-0.5 * (x / sigma) ** 2)
        assert 2 * weights[x > width].sum() <= miss * (2 * weights.sum() - 1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.floats(0.05, 5), st.integers(1, 3), st.floats(0.5, 3))
def test_error_bars_of_choices(counts, level, k, sensitivity):
    scores = np.array(counts, dtype=np.float64)
    logs = level / sensitivity * (scores - scores.max())
    law = np.exp(logs) / np.exp(logs).sum()
    t = shortfall(pc.ExponentialMechanism(level), sensitivity, len(scores))
    assert law[scores < scores.max() - t].sum() <= MISS
    k = min(k, len(scores))
    sets = np.array([min(choice) for choice in itertools.combinations(counts, k)], dtype=np.float64)
    law = np.exp(level / (2 * sensitivity) * (sets - sets.max()))
    t = shortfall(pc.TopK(level, k), sensitivity, len(scores))
    assert law[sets < sets.max() - t].sum() <= MISS * law.sum()


@given(st.lists(st.floats(-1, 5), min_size=1, max_size=40), st.floats(-1, 1), st.floats(-1, 1), st.floats(0.01, 3))
def test_error_bars_of_means(values, shift, more, scale):
    """Whatever the noise within its bars does to sum and count, the mean is within its own."""
    clip = math.sqrt(2) * 3.0
    width = half_width(pc.Gaussian(scale), clip, 0.5 * MISS)
    bare = Bare(noise=lambda size: np.array([shift, more]) * width)
    found = bare.mean(values, pc.Gaussian(scale), lower=-1, upper=5, rows_per_person=1)
    assert abs(found.value - math.fsum(values) / len(values)) <= found.error * (1 + 1e-6) + 1e-9
    assert -1 <= found.value <= 5
    assert found.error <= 6


# --- through a ledger -------------------------------------------------------------------------------------


def test_six_questions_through_a_ledger():
    rng = np.random.default_rng(3)
    table = {"x": rng.uniform(0, 10, 4000), "shop": rng.choice(["N", "S"], 4000)}
    noise, choice, top = pc.Gaussian(5.0), pc.ExponentialMechanism(0.5, monotone=False), pc.TopK(1.0, 1)
    plan, by = noise * 4 + choice + top, {"rows_per_person": 1, "person": None, "by": "shop", "groups": ["N", "S"]}
    with pc.Ledger(None, plan=plan, seed=4) as ledger:
        answers = [
            ledger.count(table, noise, label="visits", **by),
            ledger.sum(table, noise, column="x", lower=0, upper=10, label="spent", **by),
            ledger.mean(table, noise, column="x", lower=0, upper=10, label="mean", **by),
            ledger.histogram(table, noise, column="x", edges=[0, 5, 10], label="bins", **by),
            ledger.quantile(
                table, choice, column="x", share=0.5, candidates=np.linspace(0, 10, 101), label="median", **by
            ),
            ledger.top(
                table, top, column="shop", candidates=["N", "S", "W"], rows_per_person=1, person=None, label="top"
            ),
        ]
        assert ledger.spent == plan  # groups cost nothing
        for again in (ledger.count, ledger.histogram):
            extra = {"column": "x", "edges": [0, 1]} if again == ledger.histogram else {}
            with pytest.raises(pc.PrivcalcError, match="was used"):
                again(table, noise, label="visits", **extra, **by)
        with pytest.raises(pc.BudgetExceeded):
            ledger.count(table, noise, **by)
    truth = [(table["shop"] == name) for name in ("N", "S")]
    assert np.all(np.abs(answers[0].value - [part.sum() for part in truth]) < 3 * answers[0].error)
    assert np.all(np.abs(answers[1].value - [table["x"][part].sum() for part in truth]) < 3 * answers[1].error)
    assert np.all(np.abs(answers[2].value - [table["x"][part].mean() for part in truth]) < 3 * answers[2].error)
    assert np.all(np.abs(answers[4].value - 5) < 1)
    assert answers[5].value in {("N",), ("S",)}
    assert str(answers[0]).splitlines()[0].startswith("visits: count of 'N' = ")
    assert str(answers[0]).splitlines()[1].endswith("± 9.79982 (95 % of the noise)")
    applied = "at most 1 row of a person, by the caller's word; values from 0 to 10"
    assert str(answers[1]).endswith(f"\napplied: {applied}; what that cut is not in the bar")
    for answer, parts in zip(answers, [2, 2, 2, 4, 2, 1], strict=True):
        frame = answer.to_frame()
        assert len(frame) == parts
        assert set(frame["applied"]) == {answer.applied}
        assert frame["value"].to_list() == np.ravel(np.asarray(answer.value)).tolist()
    bins = answers[3].to_frame("pandas")
    assert bins[["group", "part"]].to_numpy().tolist() == [["N", 0], ["N", 1], ["S", 0], ["S", 1]]
    assert bins["error"].tolist() == [answers[3].error] * 4
    assert "rows from the best with probability 95 %" in str(answers[5])
    found = pc.certify(ledger, delta=1e-5)
    assert found.document["ledgers"][0]["labels"] == ["visits", "spent", "mean", "bins", "median", "top"]


@pytest.mark.parametrize("relation", pc.Relation)
def test_the_law_of_what_is_released(relation):
    """What the bound is, is drawn: the noise of a count by groups, and a median's probabilities."""
    table, options = (
        {"x": [1, 2, 2, 5], "by": ["N", "N", "S", "S"]},
        {"by": "by", "groups": ["N", "S"], "rows_per_person": 2, "person": None},
    )
    noise, draws = pc.Gaussian(3.0), 2000 if SLOW else 600
    ledger = pc.Ledger(None, plan=noise * draws + CHOICE * draws, relation=relation, seed=7)
    most = math.sqrt(2) if relation is REPLACE else 2.0
    answers = [ledger.count(table, noise, **options) for _ in range(draws)]
    assert answers[0].error == pytest.approx(stats.norm.ppf(0.975) * 3 * most, rel=1e-9)
    found = np.concatenate([answer.value - 2 for answer in answers])
    assert stats.kstest(found, stats.norm(scale=3 * most).cdf).pvalue > 1e-8
    grid = np.array([1.0, 2.0, 5.0])
    chosen = [
        ledger.quantile(table["x"], CHOICE, share=0.5, candidates=grid, rows_per_person=3).value for _ in range(draws)
    ]
    weights = np.exp(np.array([-1.0, 0.0, -1.0]) / 1.5)  # the median's rank is 2: 1 has ranks up to 1, 5 from 3 on
    expected = draws * weights / weights.sum()
    assert stats.chisquare([chosen.count(value) for value in grid], expected).pvalue > 1e-8


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("kind", [pc.Gaussian, pc.Laplace])
@pytest.mark.parametrize("relation", pc.Relation)
def test_no_row_decides_whether_there_is_an_answer(scale, kind, relation):
    """Sums too large for the noise to be seen in doubles were refused: the refusal tells that they were large."""
    noise = kind(scale)
    ledger = pc.Ledger(None, plan=noise * 20, relation=relation)
    for values in ([], [0.1], [1e308] * 5000, [math.nan] * 3, [-math.inf] * 9):
        found = [
            ledger.sum(np.array(values), noise, lower=-0.1, upper=1e9, rows_per_person=1),
            ledger.count(np.array(values), noise, rows_per_person=1),
            ledger.mean(np.array(values), noise, lower=-0.1, upper=1e9, rows_per_person=1),
            ledger.histogram(np.array(values), noise, edges=[0, 1, 2], rows_per_person=3),
        ]
        assert all(np.all(np.isfinite(answer.value)) and np.all(np.isfinite(answer.error)) for answer in found)


def test_several_columns_of_groups_are_their_combinations():
    table = {"who": list("abcd"), "shop": ["N", "S", "N", "?"], "n": [1, 2, 2, 1], "x": [1.0, 2.0, 4.0, 8.0]}
    bare, options = Bare(), {"rows_per_person": 1, "person": "who", "groups": {"shop": ["N", "S"], "n": [2, 1]}}
    found = bare.sum(table, NOISES[0], column="x", lower=0, upper=9, **options)
    assert found.groups == (("N", 2), ("N", 1), ("S", 2), ("S", 1))
    assert found.value.tolist() == [4, 1, 2, 0]
    assert bare.top(table, pc.TopK(1.0, 1), column="x", candidates=[1, 4], **options).value[0] == (4,)
    for wrong in ({}, {"shop": []}, {"shop": "NS"}):
        with pytest.raises(pc.PrivcalcError, match="groups: must be"):
            bare.count(table, NOISES[0], rows_per_person=1, person="who", groups=wrong)


@pytest.mark.parametrize("relation", pc.Relation)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_person_moves_counts_of_persons_by_more_than_is_declared(relation, noise, most):
    """Of all tables of one person over three groups, or two persons in turn; the bound is reached."""
    rows = [list(mine) for size in range(4) for mine in itertools.product("NSE", repeat=size)]
    found = []
    for mine in rows:
        bare = Bare(relation)
        table = {"who": ["new"] * len(mine) + ["old", "old"], "by": [*mine, "N", "N"]}
        options = {"rows_per_person": most, "person": "who", "by": "by", "groups": ["N", "S", "E"]}
        found.append(bare.count_distinct(table, noise, **options).value)
        assert found[-1].tolist() == [len(set(mine[:most]) & {name}) + (name == "N") for name in "NSE"]
    order = 1 if noise is NOISES[1] else 2
    others = found if relation is REPLACE else found[:1]
    moved = max(np.linalg.norm(one - other, order) for one in found for other in others)
    assert moved == pytest.approx(bare.bound * (2 if relation is REPLACE else 1), rel=1e-12)


def test_what_is_refused():
    bare, x = Bare(), np.arange(5.0)
    for match, attempt in {
        "rows_per_person = 0": lambda: bare.count(x, NOISES[0], rows_per_person=0),
        "rows_per_person = 1.5": lambda: bare.count(x, NOISES[0], rows_per_person=1.5),
        "must be given together; which groups occur is private": lambda: bare.count(
            x, NOISES[0], rows_per_person=1, by=x
        ),
        "groups: must be a list": lambda: bare.count(x, NOISES[0], rows_per_person=1, by=x, groups="NS"),
        r"^groups: must be a list of at least one value, all of which are public$": lambda: bare.count(
            x, NOISES[0], rows_per_person=1, by=x, groups=[]
        ),
        "different values, and no NaN": lambda: bare.count(x, NOISES[0], rows_per_person=1, by=x, groups=[1, 1.0]),
        "and no NaN": lambda: bare.count(x, NOISES[0], rows_per_person=1, by=x, groups=[math.nan]),
        "that can be compared": lambda: bare.count(x, NOISES[0], rows_per_person=1, by=x, groups=[[1]]),
        "by: must have one value per row": lambda: bare.count(x, NOISES[0], rows_per_person=1, by=x[:4], groups=[1]),
        "person: must have one value per row": lambda: bare.count(x, NOISES[0], rows_per_person=1, person=x[:4]),
        "person: must have .*; or be the name of one column": lambda: bare.count(
            {"a": x, "b": x}, NOISES[0], rows_per_person=1, person=["a", "b"]
        ),
        "table: must be a data frame, .*, not <class 'int'>": lambda: bare.count(6000, NOISES[0], rows_per_person=1),
        "table: must be a data frame, .*, not <class 'float'>": lambda: bare.count(
            {"a": 1.0}, NOISES[0], rows_per_person=1
        ),
        "turn times into text": lambda: bare.count(
            x, NOISES[0], rows_per_person=1, by=np.zeros(5, "datetime64[D]"), groups=["1970-01-01"]
        ),
        "lower = 2, upper = 1": lambda: bare.sum(x, NOISES[0], lower=2, upper=1, rows_per_person=1),
        "not both 0": lambda: bare.sum(x, NOISES[0], lower=0, upper=0, rows_per_person=1),
        "upper = inf": lambda: bare.sum(x, NOISES[0], lower=0, upper=math.inf, rows_per_person=1),
        "lower = nan": lambda: bare.sum(x, NOISES[0], lower=math.nan, upper=1, rows_per_person=1),
        "upper - lower": lambda: bare.mean(x, NOISES[0], lower=1, upper=1, rows_per_person=1),
        "must be Gaussian or Laplace, for a mean": lambda: bare.mean(
            x, pc.DiscreteGaussian(1.0, 9), lower=0, upper=1, rows_per_person=1
        ),
        "must be Gaussian, DiscreteGaussian or Laplace": lambda: bare.count(
            x, pc.PoissonSampled(NOISES[0], 0.1), rows_per_person=1
        ),
        "person: must be the column": lambda: bare.count_distinct(x, NOISES[0], rows_per_person=1),
        "sensitivity of at least 3": lambda: bare.count(x, pc.DiscreteGaussian(1.0, 2), rows_per_person=3),
        "this has 2 dimensions": lambda: bare.sum(
            np.ones((2, 2)), NOISES[0], lower=0, upper=1, rows_per_person=1, person=None
        ),
        "must be a column of numbers": lambda: bare.sum(
            np.zeros(2, "datetime64[s]"), NOISES[0], lower=0, upper=1, rows_per_person=1
        ),
        "must be whole numbers": lambda: bare.sum(
            x, pc.DiscreteGaussian(1.0, 1), lower=0, upper=0.5, rows_per_person=1
        ),
        "edges: must be at least 2": lambda: bare.histogram(x, NOISES[0], edges=[1], rows_per_person=1),
        "ascending numbers": lambda: bare.histogram(x, NOISES[0], edges=[1, 1], rows_per_person=1),
        "candidates: must be": lambda: bare.quantile(x, CHOICE, share=0.5, candidates=[math.nan], rows_per_person=1),
        "share = 50": lambda: bare.quantile(x, CHOICE, share=50, candidates=[1], rows_per_person=1),
        r"ExponentialMechanism\(ε, monotone=False\)": lambda: bare.quantile(
            x, pc.ExponentialMechanism(1.0), share=0.5, candidates=[1], rows_per_person=1
        ),
        "must be TopK or ExponentialMechanism": lambda: bare.top(x, NOISES[0], candidates=[1], rows_per_person=1),
        "must be at least k = 2": lambda: pc.Ledger(None, plan=pc.TopK(1.0, 2)).top(
            x, pc.TopK(1.0, 2), candidates=[1], rows_per_person=1
        ),
    }.items():
        with pytest.raises(pc.PrivcalcError, match=match):
            attempt()
    with pytest.raises(pc.PrivcalcError, match="rows_per_person"):  # nobody forgets it
        bare.count(x, NOISES[0])


TABLE = {"cust": ["a", "b", "b"], "order": [1, 2, 3], "paid": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("first", ["cust", None, ["a", "b", "b"]])
@pytest.mark.parametrize("later", ["cust", "order", None, ["a", "b", "b"]])
def test_what_a_ledger_protects_does_not_change(tmp_path, first, later):
    noise, path = pc.Gaussian(5.0), tmp_path / "year.jsonl"
    plan = noise * 3 + CHOICE * 3
    with pc.Ledger(path, plan=plan) as ledger:
        with pytest.raises(pc.BudgetExceeded):  # what is refused says nothing about later questions
            ledger.count(TABLE, pc.Gaussian(1.0), rows_per_person=1, person="order")
        ledger.count(TABLE, noise, rows_per_person=3, person=first)
        ledger.pause()
    with pc.Ledger(path, plan=plan) as ledger:
        asks = [
            lambda: ledger.sum(TABLE, noise, column="paid", lower=0, upper=3, rows_per_person=1, person=later),
            lambda: ledger.quantile(
                TABLE, CHOICE, column="paid", share=0.5, candidates=[1, 2], rows_per_person=1, person=later
            ),
            lambda: ledger.top(
                TABLE, pc.ExponentialMechanism(1.0), column="paid", candidates=[1, 2], rows_per_person=1, person=later
            ),
        ]
        if later == first:
            asks[0](), asks[1]()
        else:
            spent = ledger.spent
            for ask in asks:
                with pytest.raises(
                    pc.PrivcalcError, match=r"person = .*: this ledger's questions named persons by .*; "
                ):
                    ask()
            assert ledger.spent == spent


@pytest.mark.parametrize("person", ["cust", None])
def test_certificates_say_whose_word_rows_per_person_is(tmp_path, person):
    noise, path = pc.Gaussian(5.0), tmp_path / "year.jsonl"
    with pc.Ledger(path, plan=noise) as ledger:
        ledger.count(TABLE, noise, rows_per_person=3, person=person)
    certificate = pc.certify(path, delta=1e-6)
    certificate.verify(path)
    said = (
        "assumed         rows_per_person: kept: no person has more than rows_per_person rows (person= was not given) "
    )
    assert (said in str(certificate)) == (person is None)
    both = pc.certify([certificate, certificate], delta=1e-6)
    both.verify()
    assert (said in str(both)) == (person is None)


def test_a_series_is_known_by_its_name():
    pandas = pytest.importorskip("pandas")
    table, noise = pandas.DataFrame(TABLE), pc.Gaussian(5.0)
    with pc.Ledger(None, plan=noise * 3) as ledger:
        ledger.count(table, noise, rows_per_person=1, person="cust")
        ledger.count(table, noise, rows_per_person=1, person=table["cust"])
        with pytest.raises(pc.PrivcalcError, match="person = 'order'"):
            ledger.count(table, noise, rows_per_person=1, person=table["order"])


def test_errors_show_no_values_of_a_column_that_was_given_as_a_public_list():
    """Such as ``groups=table["city"]``: a message goes to logs."""
    bare, city = Bare(), np.array(["Kleinkuhlen", "Kleinkuhlen", "Grosskuhlen"])
    for groups in (city, city.tolist(), city.reshape(1, 3), "Kleinkuhlen", [["Kleinkuhlen"]], {"Kleinkuhlen": 1}):
        for by in (None, city):
            with pytest.raises(pc.PrivcalcError, match="groups") as caught:
                bare.count(city, NOISES[0], by=by, groups=groups, rows_per_person=1)
            assert "kuhlen" not in str(caught.value)
            assert caught.value.__cause__ is None
    for edges in (
        city,
        ["Kleinkuhlen", 1],
        [Fraction(98765), Fraction(98764)],
        np.array([98765.0, 98764.0]),
        [98765, math.nan],
    ):
        with pytest.raises(pc.PrivcalcError, match="edges: must be at least 2 ascending") as caught:
            bare.histogram(np.ones(3), NOISES[0], edges=edges, rows_per_person=1)
        assert "kuhlen" not in str(caught.value)
        assert "9876" not in str(caught.value)


@pytest.mark.parametrize("person", [None, "who"])
def test_lists_of_groups_and_edges_are_assumed_to_be_public(person, tmp_path):
    noise, path = pc.Gaussian(3.0), tmp_path / "run.jsonl"
    table = {"who": ["a", "b"], "shop": ["N", "S"]}
    with pc.Ledger(path, plan=noise) as ledger:
        ledger.count(table, noise, rows_per_person=1, person=person, by="shop", groups=["N", "S"])
    certificate = pc.certify(path, delta=1e-5)
    found = [entry for entry in certificate.document["assumptions"]["needed"] if entry["name"] == "candidates"]
    assert found == [{"name": "candidates", "value": "public", "by": "nobody", "page": "tables.md"}]
    assert certificate.verify(path)
    with pc.Ledger(None, plan=noise, assumptions=pc.Assumptions(candidates="public")) as said:
        said.count(table, noise, rows_per_person=1, person=person)
    assert {"name": "candidates", "value": "public", "by": "caller", "page": "tables.md"} in pc.certify(
        said, delta=1e-5
    ).document["assumptions"]["needed"]


@pytest.mark.parametrize("noise", [pc.Gaussian(3.0), pc.Laplace(3.0), pc.DiscreteGaussian(3.0)])
def test_no_row_decides_whether_there_is_an_answer_where_the_number_of_records_is_public(noise):
    """The table may be of others; what is added up here was bounded here."""
    ledger = pc.Ledger(None, plan=noise * 2, public={"records": 10})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ledger.count(np.ones(5000), noise, rows_per_person=1).value > 1000
        ledger.count(np.ones(5000), noise, rows_per_person=1, by=np.ones(5000), groups=range(10))


def said_of(ask):
    """What is said on the screen while a ledger is asked; nothing of it is published, as it depends on the table."""
    with warnings.catch_warnings(record=True) as caught, pc.Ledger(None, cap=pc.ZCDP(1.0)) as ledger:
        warnings.simplefilter("always")
        ask(ledger)
        assert not ledger._book.warnings
    return [str(one.message) for one in caught]


def test_columns_with_another_index_than_the_table_are_warned_of():
    """Rows go together by their places; pandas goes by the index."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {"who": np.arange(60) // 3, "x": np.arange(60) % 7, "by": np.array(list("ab"))[np.arange(60) % 2]}
    )
    noise, most = pc.Gaussian(10.0), {"rows_per_person": 3}
    turned = table.sample(frac=1, random_state=1)
    for wrong in (
        lambda ledger: ledger.count(table, noise, person=turned.who, **most),
        lambda ledger: ledger.count(table.x, noise, person=turned.who, **most),
        lambda ledger: ledger.sum(table, noise, column=turned.x, lower=0, upper=9, person="who", **most),
        lambda ledger: ledger.count(table, noise, by=turned["by"], groups=["a", "b"], person="who", **most),
    ):
        found = said_of(wrong)
        assert len(found) == 1
        assert "has another index" in found[0]
    for right in (
        lambda ledger: ledger.count(table, noise, person=table.who, **most),
        lambda ledger: ledger.sum(turned, noise, column="x", lower=0, upper=9, person=turned.who, **most),
        lambda ledger: ledger.count(table, noise, person=table.who.to_numpy(), **most),
        lambda ledger: ledger.sum(table.x.tolist(), noise, lower=0, upper=9, person=table.who, **most),
    ):
        assert said_of(right) == []


@pytest.mark.parametrize(
    ("most", "kind"),
    [(2.0**53, float), (2.0**24, np.float32), (2.0**11, np.float16), (2.0**53, list), (2.0**53, object)],
)
def test_ids_of_every_floating_type_that_rounding_makes_one_are_warned_of(most, kind):
    """2^53 and 2^53 + 1 are one double: two persons share the rows of one, and their rows take each other's places."""

    def column(*values):
        return list(values) if kind is list else np.array(values, dtype=kind)

    with pc.Ledger(None, cap=pc.ZCDP(1.0)) as ledger:
        with pytest.warns(pc.PrivcalcWarning, match="cannot tell neighbouring numbers apart"):
            ledger.count(np.ones(2), pc.Gaussian(10.0), person=column(1.0, most), rows_per_person=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ledger.count(np.ones(2), pc.Gaussian(10.0), person=column(math.inf, most / 2), rows_per_person=1)


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    number: float


class Nameless:
    """An object that equals itself only."""


@pytest.mark.parametrize(
    "who", [lambda: ("a", float("nan")), lambda: ("a", ("b", float("nan"))), lambda: Key("a", float("nan"))]
)
def test_a_name_with_a_part_that_is_missing_is_nobody_s(who):
    """Else each row would be of another person, and one person would move a sum by all of them."""
    rows = [who() for _ in range(4)]
    with pytest.warns(pc.PrivcalcWarning, match="equal themselves only"):
        found = taken([*rows, ("a", 1.0), Key("a", 1.0)])
    assert found == [False] * 4 + [True] * 2


class Alone(str):
    """A text that equals itself only."""

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


class Hashed:
    """Equal by name, found by identity."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return id(self)


class Named(Hashed):
    """Equal by name."""

    def __hash__(self):
        return hash(self.name)


def zero_dimensions(name):
    return pytest.importorskip("torch").tensor(len(name))


@pytest.mark.parametrize(
    "who",
    [
        lambda _: Nameless(),
        Alone,
        Hashed,
        lambda name: Named((name, float("nan"))),
        zero_dimensions,
        lambda name: lambda: name,
    ],
)
def test_objects_that_equal_themselves_only_are_nobody_s(who):
    """Else a person with three rows would count three times."""
    with pytest.warns(pc.PrivcalcWarning, match="equal themselves only"):
        assert taken([who("b"), who("b"), who("b"), "a"]) == [False] * 3 + [True]


def test_names_that_are_equal_are_one_person():
    when = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    for who in (lambda: Named("b"), lambda: Key("b", 1.0), lambda: ("b", 2), lambda: np.float32(3.0), lambda: when):
        assert taken([who(), who(), "a"]) == [True, False, True]


def test_numbers_in_single_precision_of_torch_are_warned_of_like_numpy_s():
    torch = pytest.importorskip("torch")
    for kind, most in ((torch.float16, 2.0**11), (torch.float32, 2.0**24), (torch.float64, 2.0**53)):
        with pytest.warns(pc.PrivcalcWarning, match="cannot tell neighbouring"):
            Asked("count", np.ones(2), 1, person=torch.tensor([most, 1.0], dtype=kind)).rows()


def test_columns_of_a_dictionary_with_other_indexes_are_warned_of():
    pandas = pytest.importorskip("pandas")
    value = pandas.Series([1.0, 2.0], index=[1, 0])
    with pytest.warns(pc.PrivcalcWarning, match="has another index"):
        Asked("sum", {"who": pandas.Series(["a", "b"]), "x": value}, 1, person="who", column="x").rows(numbers=True)


def test_the_name_of_a_file_is_no_table():
    with (
        pc.Ledger(None, cap=pc.ZCDP(1.0)) as ledger,
        pytest.raises(pc.PrivcalcError, match=r"table = 'file\.csv': must be"),
    ):
        ledger.count("file.csv", pc.Gaussian(10.0), rows_per_person=1)


def test_whose_a_row_is_must_be_said_of_a_table_with_several_columns():
    """After a join or explode, a person has more rows than the one thought of; a column has the persons."""
    pandas = pytest.importorskip("pandas")
    rows = {"who": ["a", "a", "b"], "paid": [1.0, 2.0, 3.0]}
    bare, one = Bare(), {"rows_per_person": 1}
    asked = [
        lambda table, **who: bare.count(table, NOISES[0], **one, **who).value,
        lambda table, **who: bare.sum(table, NOISES[0], column="paid", lower=0, upper=5, **one, **who).value,
        lambda table, **who: bare.mean(table, NOISES[0], column="paid", lower=0, upper=5, **one, **who).value,
        lambda table, **who: bare.histogram(table, NOISES[0], column="paid", edges=[0, 5], **one, **who).value,
        lambda table, **who: (
            bare.quantile(table, CHOICE, column="paid", share=0.5, candidates=[1, 3], **one, **who).value
        ),
        lambda table, **who: bare.top(table, pc.TopK(1.0, 1), column="who", candidates=["a", "b"], **one, **who).value,
    ]
    for ask in asked:
        for table in (rows, pandas.DataFrame(rows)):
            with pytest.raises(pc.PrivcalcError, match="person: must be said of a table with several columns"):
                ask(table)
            ask(table, person=None)
            ask(table, person="who")
    assert asked[0](rows, person="who") == 2
    for table in (rows["paid"], np.ones(3), np.ones((3, 1)), {"paid": rows["paid"]}, pandas.Series(rows["paid"])):
        assert asked[0](table) == 3
    fields = np.array([("a", 1.0), ("a", 2.0), ("b", 3.0)], dtype=[("who", "U1"), ("paid", float)])
    for several in (np.ones((3, 2)), fields, fields.view(np.recarray)):
        with pytest.raises(pc.PrivcalcError, match="several columns"):
            asked[0](several)
    assert asked[0](fields, person="who") == 2
    frame = pandas.DataFrame({"day": [1, 1, 2], "shop": ["N", "S", "N"], "paid": [1.0, 2.0, 3.0]})
    for days in (frame.groupby("day").paid.sum(), frame.day.value_counts(), frame.groupby(["day", "shop"]).paid.sum()):
        with pytest.raises(pc.PrivcalcError, match="or an index with a name"):  # a row of many persons
            asked[0](days)
        with pytest.raises(pc.PrivcalcError, match="or an index with a name"):
            asked[0]({"paid": days})
        asked[0](days, person=None)
    asked[0](frame[frame.paid > 1].paid)


def test_groups_and_sets_are_no_tables():
    """Their length is a number of groups, and not of rows."""
    pandas = pytest.importorskip("pandas")
    grouped = pandas.DataFrame({"day": [1, 1, 2], "who": ["a", "b", "c"]}).groupby("day")
    for wrong in (grouped, {1, 2, 3}, {"a": 1}.keys(), grouped["who"]):
        with pytest.raises(
            pc.PrivcalcError, match="table: must be a data frame, a dictionary of columns, or a column, not"
        ):
            Bare().count(wrong, NOISES[0], rows_per_person=1)


@pytest.mark.parametrize("kind", ["datetime64[D]", "datetime64[us]", "timedelta64[s]"])
def test_times_are_no_persons(kind):
    """A day has the rows of many, of which all but the first are left out, and every person has rows on many days."""
    days = np.array([1, 1, 2]).astype(kind)
    for person in (days, "day"):
        with pytest.raises(pc.PrivcalcError, match=r"person = .*: must be a column of persons.*, not of "):
            Bare().count({"day": days}, NOISES[0], rows_per_person=1, person=person)


def test_blank_ids_are_nobody():
    """Like missing ones, which many readers make blank: who shares an id takes others' place when one leaves."""
    table = {"who": ["", "", " ", "a", "b", None], "paid": [-4.0, 4.0, 4.0, 1.0, 2.0, 4.0]}
    bare, one = Bare(), {"rows_per_person": 1, "person": "who"}
    found = bare.sum(table, NOISES[0], column="paid", lower=-4, upper=4, **one)
    assert (found.value, bare.bound) == (3.0, pytest.approx(4.0))
    assert bare.count(table, NOISES[0], **one).value == 2
    assert bare.count({"who": np.array(["", "a"])}, NOISES[0], **one).value == 1


@pytest.mark.parametrize("texts", [["3,50", "12,00", "7,25"], ["€3.50", "€12.00", "€7.25"], ["1 000", "2 000", "3"]])
def test_a_column_whose_texts_are_no_numbers_is_warned_of(texts):
    """Decimal commas and currencies: the sum was of no rows, nobody was told. One odd cell among others is missing."""
    one = {"lower": 0, "upper": 20, "rows_per_person": 1}
    assert any(
        "most of its texts are no numbers" in text
        for text in said_of(lambda ledger: ledger.sum(texts, NOISES[0], **one))
    )
    assert not said_of(lambda ledger: ledger.sum(["3.50", "12", "x", None], NOISES[0], **one))
    assert not said_of(lambda ledger: ledger.sum([3.5, None, None, None], NOISES[0], **one))


@pytest.mark.parametrize("question", ["count", "sum", "mean", "histogram", "quantile", "top"])
def test_how_many_rows_a_person_has_must_be_said(question):
    """Type checkers ask for it; who does not run one is told before anything is drawn."""
    options = {"sum": {"lower": 0, "upper": 1}, "mean": {"lower": 0, "upper": 1}, "histogram": {"edges": [0, 1]}}
    options |= {"quantile": {"share": 0.5, "candidates": [0.0, 1.0]}, "top": {"candidates": [0, 1]}}
    chooses = question in ("quantile", "top")
    step = pc.ExponentialMechanism(1.0, monotone=question == "top") if chooses else pc.Gaussian(1.0)
    with pc.Ledger(None, plan=step) as ledger:
        with pytest.raises(pc.PrivcalcError, match="rows_per_person = 0: must be"):
            getattr(ledger, question)([0.0, 1.0], step, **options.get(question, {}))
        assert not ledger.spent.entries
