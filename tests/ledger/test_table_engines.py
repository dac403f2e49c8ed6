"""One question, one answer: every engine returns the whole numbers that a loop over the rows finds."""

from __future__ import annotations

import functools
import importlib.util
import math
import shutil

import numpy as np
import pytest
from cases import SLOW
from hypothesis import given, settings
from hypothesis import strategies as st
from test_queries import CHOICE, Bare

import privcalc as pc

NOISE = pc.Gaussian(1.0)
GROUPS = {"by": ["N", "é", " S"], "n": [3, -1, 0]}
BLANKS = ["", " ", "\u00a0\u2003", None]
TOP = pc.TopK(1.0, 1)


def pandas(rows):
    library = pytest.importorskip("pandas")
    whole = {
        name: library.array(rows[name], dtype="Int64") for name in ("id", "day")
    }  # in floats they are not told apart
    return library.DataFrame(rows | whole)


def polars(rows):
    kinds = {"x": float, "who": str, "id": int, "by": str, "n": int, "day": int}
    return pytest.importorskip("polars").DataFrame(rows, schema=kinds)


def arrow(rows):
    return polars(rows).to_arrow()


def lazy(rows):
    return polars(rows).lazy()


def duck(rows):
    duckdb = pytest.importorskip("duckdb")
    connection, table = duckdb.connect(), arrow(rows)
    connection.register("t", table)
    return connection.table("t")


def dask(rows):
    return pytest.importorskip("dask.dataframe").from_pandas(pandas(polars(rows).to_dict(as_series=False)), 2)


@functools.cache
def spark_session():
    sql = importlib.import_module("pyspark.sql")
    return sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def spark(rows):
    table = polars(rows)
    return spark_session().createDataFrame(
        table.rows(), schema="x double, who string, id long, by string, n long, day long"
    )


ENGINES = [pandas, polars, arrow, lazy, duck]
SPARK = importlib.util.find_spec("pyspark") is not None and shutil.which("java") is not None
FLOATS = st.floats(-3, 3) | st.sampled_from([None, math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0, 0.1, 2.0, 0.5])
ROWS = st.fixed_dictionaries(
    {
        "x": FLOATS,
        "who": st.sampled_from(["ann", "Ann", "ann ", "a\u0301", "á", *BLANKS]),
        "id": st.sampled_from([7, -7, 2**62, 2**53, 2**53 + 1, 0, None]),
        "by": st.sampled_from(["N", "n", "é", " S", "S", "e\u0301", "", None]),
        "n": st.sampled_from([3, -1, 0, 2, None]),
        "day": st.sampled_from([1, 2, 2**60, None]),
    }
)


EDGES, GRID = [-1.0, 0.5, 1.0, 2.0], [-1.0, 0.0, 0.5, 2.0]
LOW, HIGH, STEP = -1.0, 2.0, 2.0**-49


def counts_of(rows, person, most, by, column=None, places=0):
    """The rows that count, in a loop: of each person the first by day, and by what is asked where days tie."""
    found, persons = [], {}
    for number, row in enumerate(rows):
        if person is None or row[person] not in BLANKS:
            persons.setdefault(number if person is None else row[person], []).append(row)
    for mine in persons.values():
        keyed = []
        for row in mine:
            missing = column == "x" and (row["x"] is None or math.isnan(row["x"]))
            out = missing or any(name in GROUPS and row[name] not in GROUPS[name] for name in (by, column))
            asked = [row[name] for name in (by, column) if name in GROUPS]
            asked += [places(row["x"]), grid_of(row["x"])] if column == "x" and not missing else []
            keyed.append(((row["day"] is None, row["day"] or 0, out, *([] if out else asked)), out, row))
        found += [row for _, out, row in sorted(keyed, key=lambda one: one[0])[:most] if not out]
    return [[row for row in found if by is None or row[by] == group] for group in GROUPS.get(by, [None])]


def grid_of(x):
    return math.floor(min(max(x, LOW), HIGH) / STEP + 0.5)


def bin_of(x):
    return sum(x >= edge for edge in EDGES[1:-1])


def rank_of(x):
    return sum(x >= c for c in GRID) + sum(x > c for c in GRID)


def ranks(values, share=0.25):
    below, upto, n = (lambda c: sum(x < c for x in values)), (lambda c: sum(x <= c for x in values)), len(values)
    return [-max(below(c) - share * n, share * n - upto(c), 0) for c in GRID]


@settings(max_examples=200 if SLOW else 15, deadline=None)
@given(
    st.lists(ROWS, max_size=12),
    st.sampled_from([None, "who", "id"]),
    st.sampled_from([None, "by", "n"]),
    st.integers(1, 3),
)
def test_every_engine_finds_what_a_loop_finds(rows, person, by, most):
    options = {"rows_per_person": most, "person": person, "order": "day" if person else None}
    options |= {"by": by, "groups": GROUPS[by]} if by else {}
    columns = {name: [row[name] for row in rows] for name in ("x", "who", "id", "by", "n", "day")}
    parts = functools.partial(counts_of, rows, person, most, by)
    counts = [len(part) for part in parts()]
    persons = [len({row[person] for row in part}) for part in parts()] if person else None
    sums = [sum(grid_of(row["x"]) for row in part) * STEP for part in parts("x", lambda _: 0)]
    bins = [[sum(bin_of(row["x"]) == place for row in part) for place in range(3)] for part in parts("x", bin_of)]
    scores = [ranks([row["x"] for row in part]) for part in parts("x", rank_of)]
    listed = [[sum(row["by"] == name for row in part) for name in GROUPS["by"]] for part in parts("by")]
    for engine in ENGINES:
        bare, table = Bare(), engine(columns)
        for expected, ask in (
            (counts, lambda: bare.count(table, NOISE, **options)),
            *([(persons, lambda: bare.count_distinct(table, NOISE, **options))] if person else []),
            (sums, lambda: bare.sum(table, NOISE, column="x", lower=LOW, upper=HIGH, **options)),
            (bins, lambda: bare.histogram(table, NOISE, column="x", edges=EDGES, **options)),
            (scores, lambda: bare.quantile(table, CHOICE, column="x", share=0.25, candidates=GRID, **options)),
            (listed, lambda: bare.top(table, TOP, column="by", candidates=GROUPS["by"], **options)),
        ):
            ask()
            assert np.ravel(bare.values).tolist() == np.ravel(expected).tolist(), (engine, expected)


@pytest.mark.parametrize("engine", [lazy, duck])
def test_a_plan_that_fails_stays_charged(engine):
    """Whether it fails may depend on what a row holds: an answer like any other."""
    rows = {"x": [1.0], "who": ["a"], "id": [1], "by": ["N/A"], "n": [1], "day": [1]}
    table = engine(rows)
    if engine is lazy:
        table = table.with_columns(x=pytest.importorskip("polars").col("by").cast(int))
    else:
        table = table.project('cast("by" as double) as x')
    with pc.Ledger(None, plan=NOISE * 2) as ledger:
        with pytest.raises(pc.PrivcalcError, match="failed after the question was charged for, and it stays so"):
            ledger.sum(table, NOISE, column="x", lower=0, upper=1, rows_per_person=1, person=None, label="May")
        assert ledger.spent == NOISE * 1
        with pytest.raises(pc.PrivcalcError, match="label = 'May': was used"):
            ledger.count(table, NOISE, rows_per_person=1, person=None, label="May")


@pytest.mark.parametrize("engine", [lazy, duck])
def test_what_an_engine_cannot_tell_is_refused_by_the_types_of_columns_and_nothing_is_charged(engine):
    table = engine({"x": [1.0], "who": ["a"], "id": [1], "by": ["N"], "n": [1], "day": [1]})
    one = {"rows_per_person": 1}
    with pc.Ledger(None, plan=NOISE) as ledger:
        for match, options in {
            "person: must be said of a table with several columns": {},
            "order: must be said of a table that is not in memory": {"person": "who"},
            "person = 'x': must be a column of persons.*Float64": {"person": "x", "order": "day"},
            "by = 'by': must be texts or numbers.*String": {"person": None, "by": "by", "groups": ["01"]},
            "by = 'shop': the table has no such column": {"person": None, "by": "shop", "groups": ["N"]},
            "columns are names": {"person": [1], "order": "day"},
            "order: is of the rows of a person": {"person": None, "order": "day"},
        }.items():
            with pytest.raises(pc.PrivcalcError, match=match):
                ledger.count(table, NOISE, **one, **options)
        with pytest.raises(pc.PrivcalcError, match="column = 'by': must be a column of numbers, not of String"):
            ledger.sum(table, NOISE, column="by", lower=0, upper=1, person=None, **one)
        assert not ledger.spent.entries


def test_an_engine_without_ordered_windows_is_refused_by_name():
    table = dask({"x": [1.0], "who": ["a"], "id": [1], "by": ["N"], "n": [1], "day": [1]})
    with pc.Ledger(None, plan=NOISE) as ledger:
        with pytest.raises(pc.PrivcalcError, match=r"table: dask has no expression for this question \(.*order_by"):
            ledger.count(table, NOISE, person="who", order="day", rows_per_person=1)
        assert not ledger.spent.entries
        assert ledger.count(table, NOISE, person=None, rows_per_person=1).error > 0


@pytest.mark.service
def test_spark_finds_what_pandas_finds():
    """Nulls, NaN, infinities and blank names, on another engine's machine, where there is Java for it."""
    rows = [
        {"x": x, "who": who, "id": number, "by": by, "n": n, "day": day}
        for number, (x, who, by, n, day) in enumerate(
            zip(
                [1.0, None, math.nan, math.inf, -math.inf, 0.1, 0.1, 1e308, -0.0, 2.0] * 3,
                ["a", "b", "a", " ", None, "é", "a", "a\u0301", "b", "é"] * 3,
                ["N", "é", "N", None, "S", "é", "N", " S"] * 3 + ["N"] * 6,
                [3, -1, 0, None, 2] * 6,
                [1, 1, 2, None, 2**60, 0] * 5,
                strict=True,
            )
        )
    ]
    columns = {name: [row[name] for row in rows] for name in ("x", "who", "id", "by", "n", "day")}
    of = {"rows_per_person": 2, "person": "who", "order": "day", "by": "by", "groups": GROUPS["by"]}
    found = []
    for engine in (pandas, spark if SPARK else lazy):
        table, bare = engine(columns), Bare()
        found.append([])
        for ask in (
            lambda: bare.count(table, NOISE, **of),
            lambda: bare.count_distinct(table, NOISE, **of),
            lambda: bare.sum(table, NOISE, column="x", lower=LOW, upper=HIGH, **of),
            lambda: bare.mean(table, NOISE, column="x", lower=LOW, upper=HIGH, **of),
            lambda: bare.histogram(table, NOISE, column="x", edges=EDGES, **of),
            lambda: bare.quantile(table, CHOICE, column="x", share=0.25, candidates=GRID, **of),
            lambda: bare.top(table, TOP, column="n", candidates=[3, -1, 0], **of),
        ):
            ask()
            found[-1].append(bare.values.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_are_equal_in_order_are_taken_by_what_they_add(engine):
    """Not by where an engine finds them, which depends on the rows of others."""
    x, by = [2.0, 1.0, math.nan, 1.5], ["N", "N", "N", "?"]
    options = {"person": "who", "order": "day", "rows_per_person": 1, "by": "by", "groups": ["N"]}
    for turned in (1, -1):
        columns = {"x": x[::turned], "who": ["a"] * 4, "id": [1] * 4, "by": by[::turned], "n": [1] * 4, "day": [1] * 4}
        found = Bare().sum(engine(columns), NOISE, column="x", lower=LOW, upper=HIGH, **options)
        assert found.value.tolist() == [1.0]
